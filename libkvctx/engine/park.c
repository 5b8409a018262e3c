// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Waiting for space. A STORE or DELETE that the engine answers with -EAGAIN is parked in waits->space and tried again,
 * in order, until it starts or gives up (queue.c).
 *
 * The attendant does the retrying (kve_waits_work() in turn.c): when the engine says that space was made, and on the tick.
 * The tick makes a wake-up that came between a failed attempt and the parking cost one tick instead of for ever.
 *
 * Order: a STORE that may wait queues up behind those parked before it, while the job tries them too: a DELETE ahead of
 * it in its batch has taken effect or failed when it starts. One that may not (NOWAIT) tries its luck; so does a DELETE,
 * which needs another kind of space.
 */
#include "session.h"

#define PARK_TICK	(KVE_NSEC / 100)

static bool park_used(struct kve_waits *w)
{
	/* pairs with kve_park_retry(): the effect of those that were tried again is seen */
	return __atomic_load_n(&w->space.waiting, __ATOMIC_ACQUIRE);
}

/* Append, or put back at the front one that still counts. */
static int park_add(struct kve_op *op, bool front)
{
	struct kve_waits *w = op->session->waits;
	int err;

	__atomic_add_fetch(&w->space.waiting, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&w->lock);
	err = kve_queue_add(&w->space, 0, op, front);
	pthread_mutex_unlock(&w->lock);
	if (err)
		__atomic_sub_fetch(&w->space.waiting, 1, __ATOMIC_RELEASE);
	return err;
}

static void park_drop(struct kve_op *op, int err)
{
	kve_op_complete(op, err, 0);
}

void kve_park_weed(struct kve_waits *w)
{
	kve_queue_weed(w, &w->space, false, park_drop);
}

static struct kve_op *park_first(struct kve_waits *w)
{
	struct kve_op *op;

	pthread_mutex_lock(&w->lock);
	op = TAILQ_FIRST(&w->space.ops[0]);
	if (op)
		kve_queue_out(&w->space, op);
	pthread_mutex_unlock(&w->lock);
	return op;
}

u32 kve_park_cancel(struct kve_session *s, u64 user_data)
{
	return kve_queue_cancel(&s->waits->space, s, user_data, park_drop);
}

/* When the engine says that there is space, and on the tick */
void kve_park_retry(struct kve_waits *w)
{
	struct kve_op *op;
	int err;

	/* what is tried again counts as waiting, until its effect is there */
	__atomic_add_fetch(&w->space.waiting, 1, __ATOMIC_SEQ_CST);
	kve_queue_weed(w, &w->space, true, park_drop);
	while ((op = park_first(w))) {
		err = op->kind->attempt(op);
		if (err == -EAGAIN) {
			err = park_add(op, true);
			if (!err)
				break;
		}
		if (err)
			kve_op_complete(op, err, 0);
	}
	/* pairs with park_used() */
	if (__atomic_sub_fetch(&w->space.waiting, 1, __ATOMIC_RELEASE))
		kve_job_queue(w->pool, &w->pool->space, kve_now() + PARK_TICK);
}

/*
 * Try an operation for the first time. 0: it was taken over; otherwise it completes with the error. @queue: behind
 * those that wait already.
 */
int kve_attempt(struct kve_op *op, bool queue)
{
	bool wait = !(op->call.flags & KVCTX_OP_NOWAIT);
	struct kve_waits *w = op->session->waits;
	struct kve_pool *p = w->pool;
	int err = -EAGAIN;

	if (!(queue && wait && park_used(w)))
		err = op->kind->attempt(op);
	if (err != -EAGAIN || !wait)
		return err;
	os_atomic64_add(&p->counters.store_waits, 1);
	err = park_add(op, false);
	if (!err)
		kve_job_queue(p, &p->space, kve_now() + PARK_TICK);
	return err;
}
