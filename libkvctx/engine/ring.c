// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Rings: which one a session gets, and who sends what it could not. The kernel may have no memory for a transfer or a
 * poke while the only one who could try again sleeps in the ring, and does not know; so the attendant does.
 */
#include "session.h"

#define RING_VARIABLE	"KVCTX_IO"	/* "threads": do without io_uring */

int kve_ring_open(struct kve_ring **out, u32 entries)
{
	const char *wanted = secure_getenv(RING_VARIABLE);
	int err = -ENOSYS;

	if (!wanted || strcmp(wanted, "threads"))
		err = kve_uring_open(out, entries);
	if (err != -ENOSYS)
		return err;
	if (!wanted)
		kve_log(LOG_NOTICE, "io_uring is not available: transfers are made by threads");
	return kve_iothreads_open(out);
}

static void ring_again(struct kve_session *s)
{
	kve_job_queue(s->pool, &s->send_job, kve_now() + KVE_RING_AGAIN);
}

void kve_send(struct kve_session *s)
{
	if (unlikely(kve_ring_send(s->ring)))
		ring_again(s);
}

void kve_poke(struct kve_session *s)
{
	if (unlikely(kve_ring_poke(s->ring)))
		ring_again(s);
}

/* The ring is there: who closes cancels this first */
void kve_send_work(struct kve_job *job)
{
	kve_send(container_of(job, struct kve_session, send_job));
}
