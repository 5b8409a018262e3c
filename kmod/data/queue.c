// SPDX-License-Identifier: GPL-2.0
/*
 * Waiting: operations in a queue, until its user lets them go on or they give up.
 *
 * There are two kinds of queues: for space in the pool (park.c), and for a turn at a member's device (turn.c). In both
 * an operation gives up, which calls queue->drop() with the reason, when
 *
 *   -ETIME       its deadline has passed
 *   -ECANCELED   its session closes, a CANCEL names it, or its io_uring command was cancelled
 *   -ENODEV      it names memory of a peer that is gone
 *
 * The last two are said first, and then the queues are swept; who queues an operation looks under the queue's lock. So
 * nothing slips in behind a sweep. Deadlines are looked after by the queue's work, on a slow tick as long as anybody
 * waits; the lists are walked only when one has passed.
 *
 * Who queues an operation counts it in queue->waiting before it takes the lock. Who takes it out uncounts it.
 */
#include "op.h"

/* 0, or why @op shall not wait. Behind those of its rank, or in @front of them. */
int kvctx_queue_add(struct kvctx_queue *q, u32 rank, struct kvctx_op *op, bool front)
{
	int err = kvctx_op_unwanted(op);

	lockdep_assert_held(&q->lock);
	if (err)
		return err;
	op->wait.queued = true;
	q->until = min(q->until, op->call.deadline);
	list_add(&op->wait.node, front ? &q->ops[rank] : q->ops[rank].prev);
	return 0;
}

void kvctx_queue_out(struct kvctx_queue *q, struct kvctx_op *op)
{
	lockdep_assert_held(&q->lock);
	list_del(&op->wait.node);
	op->wait.queued = false;
	atomic_dec(&q->waiting);
}

static void queue_drop(struct kvctx_queue *q, struct list_head *out)
{
	struct kvctx_op *op;

	while ((op = list_first_entry_or_null(out, struct kvctx_op, wait.node))) {
		list_del(&op->wait.node);
		q->drop(op, op->wait.err);
	}
}

/* Take out who gives up. @late: only if a deadline has passed. */
void kvctx_queue_weed(struct kvctx_queue *q, bool late)
{
	u64 now = os_now(), until = OS_NEVER;
	struct kvctx_op *op, *next;
	LIST_HEAD(out);
	u32 i;

	spin_lock(&q->lock);
	for (i = 0; i < ARRAY_SIZE(q->ops) && (!late || q->until <= now); i++) {
		list_for_each_entry_safe(op, next, &q->ops[i], wait.node) {
			op->wait.err = kvctx_op_unwanted(op) ?: op->call.deadline <= now ? -ETIME : 0;
			if (op->wait.err) {
				kvctx_queue_out(q, op);
				list_add_tail(&op->wait.node, &out);
			} else {
				until = min(until, op->call.deadline);
			}
		}
	}
	if (i)
		q->until = until;
	spin_unlock(&q->lock);
	queue_drop(q, &out);
}

/* What slots and single commands of io_uring are told of has no user_data. */
static bool queue_has_name(const struct kvctx_op *op, const struct kvctx_session *s, u64 user_data)
{
	return op->session == s && op->call.user_data == user_data &&
	       (!op->to.done || (op->to.uring && op->to.uring->batch));
}

/* End those of the session that wait here under that user_data. How many? */
static u32 queue_cancel(struct kvctx_queue *q, const struct kvctx_session *s, u64 user_data)
{
	struct kvctx_op *op, *next;
	LIST_HEAD(out);
	u32 i, nr = 0;

	if (!atomic_read(&q->waiting))
		return 0;
	spin_lock(&q->lock);
	for (i = 0; i < ARRAY_SIZE(q->ops); i++) {
		list_for_each_entry_safe(op, next, &q->ops[i], wait.node) {
			if (!queue_has_name(op, s, user_data))
				continue;
			op->wait.err = -ECANCELED;
			kvctx_queue_out(q, op);
			list_add_tail(&op->wait.node, &out);
			nr++;
		}
	}
	spin_unlock(&q->lock);
	queue_drop(q, &out);
	return nr;
}

s32 kvctx_queues_cancel(struct kvctx_session *s, const struct kvctx_sqe *sqe)
{
	struct kvctx_pool *p = s->pool;
	u32 i, nr = queue_cancel(&p->space, s, sqe->offset);

	for (i = 0; i < KVC_MEMBERS_MAX; i++)
		nr += queue_cancel(&p->members[i].turn.queue, s, sqe->offset);
	return nr;
}

/* Some of the operations that wait may have given up. */
void kvctx_queues_sweep(struct kvctx_pool *p)
{
	u32 i;

	kvctx_queue_weed(&p->space, false);
	for (i = 0; i < KVC_MEMBERS_MAX; i++)
		kvctx_queue_weed(&p->members[i].turn.queue, false);
}

void kvctx_sweep_work(struct work_struct *work)
{
	kvctx_queues_sweep(container_of(work, struct kvctx_pool, sweep));
}

void kvctx_queue_init(struct kvctx_queue *q, work_func_t work, void (*drop)(struct kvctx_op *op, int err))
{
	u32 i;

	spin_lock_init(&q->lock);
	for (i = 0; i < ARRAY_SIZE(q->ops); i++)
		INIT_LIST_HEAD(&q->ops[i]);
	q->until = OS_NEVER;
	q->drop = drop;
	INIT_DELAYED_WORK(&q->work, work);
}
