// SPDX-License-Identifier: GPL-2.0
/*
 * Waiting for space. A STORE or DELETE that the engine answers with -EAGAIN is parked in a queue of the pool and
 * tried again, in order, until it starts, its deadline passes, or its session closes.
 *
 * One work item per pool does the retrying: when the engine says that space was made, and on a slow tick as long as
 * anything is parked. The tick looks after deadlines, and makes a wake-up that came between a failed attempt and the
 * parking cost one tick instead of for ever.
 *
 * Order: a STORE that may wait queues up behind those parked before it, whose retry under way counts: a DELETE ahead
 * of it in its batch has taken effect or failed when it starts. One that may not (NOWAIT) tries its luck; so does a
 * DELETE, which needs another kind of space.
 *
 * pool->parked_lock guards the queue, pool->parked_until (the earliest deadline in it) and, together with
 * session->dying, that nothing of a closing session is parked any more: close sets dying before it takes the lock to
 * empty the queue, parking reads it under the lock. The same holds for peers that go, and their operations, and for
 * io_uring commands that are cancelled.
 */
#include "data.h"

#define TICK	msecs_to_jiffies(10)

static bool parked_any(struct kvctx_pool *p)
{
	/* pairs with unparked(): the effect of one that was retried is seen */
	return atomic_read_acquire(&p->nr_parked);
}

static void unparked(struct kvctx_pool *p)
{
	atomic_dec_return_release(&p->nr_parked);
}

/* Does it name memory of a peer that is gone? */
static bool parked_gone(const struct kvctx_op *op)
{
	u32 i;

	for (i = 0; op->p2p && i < op->nr_pieces; i++)
		if (kvctx_peer_gone(op->user[i].mem))
			return true;
	return false;
}

/* Append, or put back at the front one that still counts. */
static int park(struct kvctx_op *op, bool front)
{
	struct kvctx_pool *p = op->session->pool;
	int err = 0;

	spin_lock(&p->parked_lock);
	if (kvctx_op_unwanted(op)) {
		err = -ECANCELED;
	} else if (parked_gone(op)) {
		err = -ENODEV;
	} else {
		list_add(&op->parked, front ? &p->parked : p->parked.prev);
		p->parked_until = min(p->parked_until, op->deadline);
		if (!front)
			atomic_inc(&p->nr_parked);
	}
	spin_unlock(&p->parked_lock);
	return err;
}

/*
 * Try an operation for the first time. 0: it was taken over; otherwise it completes with the error. @queue: behind
 * those that wait already.
 */
int kvctx_attempt(struct kvctx_op *op, bool queue)
{
	struct kvctx_pool *p = op->session->pool;
	bool wait = !(op->flags & KVCTX_OP_NOWAIT);
	int err = -EAGAIN;

	if (!(queue && wait && parked_any(p)))
		err = op->attempt(op);
	if (err != -EAGAIN || !wait)
		return err;
	percpu_counter_inc(&p->counters.store_waits);
	err = park(op, false);
	if (!err)
		queue_delayed_work(p->io_wq, &p->unpark, TICK);
	return err;
}

static void complete_ops(struct kvctx_pool *p, struct list_head *ops, int res)
{
	struct kvctx_op *op;

	while ((op = list_first_entry_or_null(ops, struct kvctx_op, parked))) {
		list_del(&op->parked);
		unparked(p);
		kvctx_op_complete(op, res, 0);
	}
}

/* Take out who waited too long; the queue is walked only when somebody did. */
static void expire(struct kvctx_pool *p)
{
	ktime_t now = ktime_get(), until = KTIME_MAX;
	struct kvctx_op *op, *next;
	LIST_HEAD(late);

	spin_lock(&p->parked_lock);
	if (p->parked_until <= now) {
		list_for_each_entry_safe(op, next, &p->parked, parked) {
			if (op->deadline <= now)
				list_move_tail(&op->parked, &late);
			else
				until = min(until, op->deadline);
		}
		p->parked_until = until;
	}
	spin_unlock(&p->parked_lock);
	complete_ops(p, &late, -ETIME);
}

static struct kvctx_op *unpark_first(struct kvctx_pool *p)
{
	struct kvctx_op *op;

	spin_lock(&p->parked_lock);
	op = list_first_entry_or_null(&p->parked, struct kvctx_op, parked);
	if (op)
		list_del(&op->parked);
	spin_unlock(&p->parked_lock);
	return op;
}

static void unpark_work(struct work_struct *work)
{
	struct kvctx_pool *p = container_of(to_delayed_work(work), struct kvctx_pool, unpark);
	struct blk_plug plug;
	struct kvctx_op *op;
	int err;

	blk_start_plug(&plug);
	expire(p);
	while ((op = unpark_first(p))) {
		err = op->attempt(op);
		if (err == -EAGAIN) {
			err = park(op, true);
			if (!err)
				break;
		}
		unparked(p);
		if (err)
			kvctx_op_complete(op, err, 0);
		cond_resched();
	}
	blk_finish_plug(&plug);
	if (parked_any(p))
		queue_delayed_work(p->io_wq, &p->unpark, TICK);
}

/* A peer is gone: operations on its memory wait no longer. */
void kvctx_park_revoke(struct kvctx_pool *p)
{
	struct kvctx_op *op, *next;
	LIST_HEAD(ops);

	spin_lock(&p->parked_lock);
	list_for_each_entry_safe(op, next, &p->parked, parked)
		if (parked_gone(op))
			list_move_tail(&op->parked, &ops);
	spin_unlock(&p->parked_lock);
	complete_ops(p, &ops, -ENODEV);
}

/* Nobody wants them any more: a session is closing and has set dying, or a command was cancelled. */
void kvctx_park_sweep(struct kvctx_pool *p)
{
	struct kvctx_op *op, *next;
	LIST_HEAD(ops);

	spin_lock(&p->parked_lock);
	list_for_each_entry_safe(op, next, &p->parked, parked)
		if (kvctx_op_unwanted(op))
			list_move_tail(&op->parked, &ops);
	spin_unlock(&p->parked_lock);
	complete_ops(p, &ops, -ECANCELED);
}

void kvctx_park_init(struct kvctx_pool *p)
{
	spin_lock_init(&p->parked_lock);
	INIT_LIST_HEAD(&p->parked);
	p->parked_until = KTIME_MAX;
	INIT_DELAYED_WORK(&p->unpark, unpark_work);
}
