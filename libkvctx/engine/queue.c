// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Waiting: operations in a queue of their pool, until its user lets them go on or they give up.
 *
 * There are two kinds of queues: for space in the pool (park.c), and for a turn at a member's device (turn.c). In both
 * an operation gives up with -ETIME when its deadline has passed, and with -ECANCELED when its session closes. The
 * latter is said under the lock, and then the queues are swept; who queues an operation looks under the same lock. So
 * nothing slips in behind a sweep. Deadlines are looked after by the queue's job, on a slow tick as long as anybody
 * waits; the lists are walked only when one has passed.
 *
 * Who queues an operation counts it in queue->waiting before it takes the lock. Who takes it out uncounts it.
 */
#include "session.h"

/* 0, or why @op shall not wait. Behind those of its rank, or in @front of them. Lock held, as in the next two. */
int kve_queue_add(struct kve_queue *q, u32 rank, struct kve_op *op, bool front)
{
	if (op->session->dying)
		return -ECANCELED;
	op->wait.queued = true;
	op->wait.rank = rank;
	op->batch = NULL;
	q->until = min(q->until, op->call.deadline);
	if (front)
		TAILQ_INSERT_HEAD(&q->ops[rank], op, wait.node);
	else
		TAILQ_INSERT_TAIL(&q->ops[rank], op, wait.node);
	return 0;
}

void kve_queue_out(struct kve_queue *q, struct kve_op *op)
{
	TAILQ_REMOVE(&q->ops[op->wait.rank], op, wait.node);
	op->wait.queued = false;
	__atomic_sub_fetch(&q->waiting, 1, __ATOMIC_RELEASE);
}

static int queue_gives_up(const struct kve_op *op, u64 now)
{
	if (op->session->dying)
		return -ECANCELED;
	return op->call.deadline <= now ? -ETIME : 0;
}

static void queue_drop(struct kve_ops *out, void (*drop)(struct kve_op *op, int err))
{
	struct kve_op *op;

	while ((op = TAILQ_FIRST(out))) {
		TAILQ_REMOVE(out, op, wait.node);
		drop(op, op->wait.err);
	}
}

/* Take out who gives up, and @drop it. @late: only if a deadline has passed. */
void kve_queue_weed(struct kve_waits *w, struct kve_queue *q, bool late, void (*drop)(struct kve_op *op, int err))
{
	u64 now = kve_now(), until = KVE_NEVER;
	struct kve_ops out = TAILQ_HEAD_INITIALIZER(out);
	struct kve_op *op, *next;
	u32 i;

	pthread_mutex_lock(&w->lock);
	for (i = 0; i < ARRAY_SIZE(q->ops) && (!late || q->until <= now); i++) {
		for (op = TAILQ_FIRST(&q->ops[i]); op; op = next) {
			next = TAILQ_NEXT(op, wait.node);
			op->wait.err = queue_gives_up(op, now);
			if (op->wait.err) {
				kve_queue_out(q, op);
				TAILQ_INSERT_TAIL(&out, op, wait.node);
			} else {
				until = min(until, op->call.deadline);
			}
		}
	}
	if (i)
		q->until = until;
	pthread_mutex_unlock(&w->lock);
	queue_drop(&out, drop);
}

/* End those of the session that wait here under that user_data, but what slots are told of. How many? */
u32 kve_queue_cancel(struct kve_queue *q, const struct kve_session *s, u64 user_data,
		     void (*drop)(struct kve_op *op, int err))
{
	struct kve_ops out = TAILQ_HEAD_INITIALIZER(out);
	struct kve_op *op, *next;
	u32 i, nr = 0;

	if (!__atomic_load_n(&q->waiting, __ATOMIC_ACQUIRE))
		return 0;
	pthread_mutex_lock(&s->waits->lock);
	for (i = 0; i < ARRAY_SIZE(q->ops); i++) {
		for (op = TAILQ_FIRST(&q->ops[i]); op; op = next) {
			next = TAILQ_NEXT(op, wait.node);
			if (op->session != s || op->call.user_data != user_data || op->done)
				continue;
			op->wait.err = -ECANCELED;
			kve_queue_out(q, op);
			TAILQ_INSERT_TAIL(&out, op, wait.node);
			nr++;
		}
	}
	pthread_mutex_unlock(&s->waits->lock);
	queue_drop(&out, drop);
	return nr;
}
