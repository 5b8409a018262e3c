// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * EVENTS: what comes and goes in the session's keyspace, as the engine tells it. One caller at a time reads.
 *
 * The engine says under its locks that there is something to read; whom to signal is the attendant's work.
 */
#include "session.h"
#include "share.h"

os_static_assert(KVC_EVENTS_MAX == KVCTX_EVENTS_MAX, "events");

static void events_wake(struct kvc_listener *l)
{
	struct kve_session *s = (struct kve_session *)((u8 *)l - offsetof(struct kve_session, listener));

	kve_job_queue(s->pool, &s->events_job, 0);
}

static void events_work(struct kve_job *job)
{
	struct kve_session *s = (struct kve_session *)((u8 *)job - offsetof(struct kve_session, events_job));

	kve_cq_signal(s);
}

static bool events_give(void *arg, const struct kvc_event *events, u32 nr)
{
	struct kvctx_event **to = arg;
	u32 i;

	for (i = 0; i < nr; i++)
		kvctx_event_from((*to)++, &events[i]);
	return true;
}

static int events_read(struct kve_session *s, struct kvctx_events *arg)
{
	struct kvctx_event *to = (struct kvctx_event *)arg->events;
	u64 lost = 0;
	int nr = 0;

	if (s->listens) {
		nr = kvc_events_take(&s->listener, arg->nr, &lost, events_give, &to);
	} else {
		s->events_job.fn = events_work;
		s->listener.wake = events_wake;
		nr = kvc_listen(s->pool->core, s->domain, &s->listener);
		s->listens = !nr;
	}
	if (nr < 0)
		return nr;
	arg->nr = (u32)nr;
	arg->lost = lost;
	return 0;
}

int kve_events(struct kve_session *s, struct kvctx_events *arg)
{
	int err = kvctx_events_check(arg);

	if (err)
		return err;
	pthread_mutex_lock(&s->setup_lock);
	err = events_read(s, arg);
	pthread_mutex_unlock(&s->setup_lock);
	return err;
}

/* No call is being made on the session, nor will one be. */
void kve_events_exit(struct kve_session *s)
{
	if (!s->listens)
		return;
	kvc_unlisten(s->pool->core, &s->listener);
	kve_job_cancel(s->pool, &s->events_job);
}
