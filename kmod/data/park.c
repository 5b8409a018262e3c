// SPDX-License-Identifier: GPL-2.0
/*
 * Waiting for space. A STORE or DELETE that the engine answers with -EAGAIN is parked in pool->space and tried again,
 * in order, until it starts or gives up (queue.c).
 *
 * The queue's work does the retrying: when the engine says that space was made, and on the tick. The tick makes a
 * wake-up that came between a failed attempt and the parking cost one tick instead of for ever.
 *
 * Order: a STORE that may wait queues up behind those parked before it, while the work tries them too: a DELETE ahead
 * of it in its batch has taken effect or failed when it starts. One that may not (NOWAIT) tries its luck; so does a
 * DELETE, which needs another kind of space.
 */
#include "op.h"

static bool park_used(struct kvctx_pool *p)
{
	/* pairs with park_work(): the effect of those that were tried again is seen */
	return atomic_read_acquire(&p->space.waiting);
}

/* Append, or put back at the front one that still counts. */
static int park_add(struct kvctx_op *op, bool front)
{
	struct kvctx_queue *q = &op->session->pool->space;
	int err;

	atomic_inc(&q->waiting);
	spin_lock(&q->lock);
	err = kvctx_queue_add(q, 0, op, front);
	spin_unlock(&q->lock);
	if (err)
		atomic_dec(&q->waiting);
	return err;
}

/*
 * Try an operation for the first time. 0: it was taken over; otherwise it completes with the error. @queue: behind
 * those that wait already.
 */
int kvctx_attempt(struct kvctx_op *op, bool queue)
{
	struct kvctx_pool *p = op->session->pool;
	bool wait = !(op->call.flags & KVCTX_OP_NOWAIT);
	int err = -EAGAIN;

	if (!(queue && wait && park_used(p)))
		err = op->kind->attempt(op);
	if (err != -EAGAIN || !wait)
		return err;
	percpu_counter_inc(&p->counters.store_waits);
	err = park_add(op, false);
	if (!err)
		queue_delayed_work(p->io_wq, &p->space.work, KVCTX_QUEUE_TICK);
	return err;
}

static void park_drop(struct kvctx_op *op, int err)
{
	kvctx_op_complete(op, err, 0);
}

static struct kvctx_op *park_first(struct kvctx_queue *q)
{
	struct kvctx_op *op;

	spin_lock(&q->lock);
	op = list_first_entry_or_null(&q->ops[0], struct kvctx_op, wait.node);
	if (op)
		kvctx_queue_out(q, op);
	spin_unlock(&q->lock);
	return op;
}

static void park_work(struct work_struct *work)
{
	struct kvctx_pool *p = container_of(to_delayed_work(work), struct kvctx_pool, space.work);
	struct kvctx_queue *q = &p->space;
	struct blk_plug plug;
	struct kvctx_op *op;
	int err;

	/* what is tried again counts as waiting, until its effect is there */
	atomic_inc(&q->waiting);
	blk_start_plug(&plug);
	kvctx_queue_weed(q, true);
	while ((op = park_first(q))) {
		err = op->kind->attempt(op);
		if (err == -EAGAIN) {
			err = park_add(op, true);
			if (!err)
				break;
		}
		if (err)
			kvctx_op_complete(op, err, 0);
		cond_resched();
	}
	blk_finish_plug(&plug);
	/* pairs with park_used() */
	if (atomic_dec_return_release(&q->waiting))
		queue_delayed_work(p->io_wq, &q->work, KVCTX_QUEUE_TICK);
}

void kvctx_park_init(struct kvctx_pool *p)
{
	kvctx_queue_init(&p->space, park_work, park_drop);
}
