// SPDX-License-Identifier: GPL-2.0
/*
 * Priorities: whose turn it is at a member's device.
 *
 * An URGENT operation goes at once. While one is in flight on a member, less urgent ones go only as long as few of
 * their bytes are in flight there; the others wait, NORMAL and BACKGROUND in a rank of the member's queue each. They go
 *
 *   - when the last URGENT operation ends, or enough bytes of the less urgent ones have
 *   - after MAX_WAIT in any case: nothing starves
 *   - never, with an error, when they give up (queue.c)
 *
 * In a rank there is order; NORMAL goes before BACKGROUND. Where only one kind of operations is at work, its turn
 * costs one atomic operation before the transfer and one behind it, on a cache line of the member.
 *
 * What waits has been begun with the engine: it holds its place on media or its page. kind->go() takes it from there,
 * called once, in process context, without a lock.
 *
 * Who ends a transfer does not take the queue's lock: it counts first, then looks whether anybody waits, while who
 * queues an operation first says that it waits, then looks at the counts again.
 */
#include "op.h"

#define TURN_MAX_WAIT_MS	50
#define TURN_NORMAL_BYTES	(4 << 20)
#define TURN_BACKGROUND_BYTES	(1 << 20)

static struct kvctx_turn *turn_of(const struct kvctx_op *op)
{
	return &op->session->pool->members[op->io.member].turn;
}

static u32 turn_rank(const struct kvctx_op *op)
{
	return op->call.prio == KVCTX_PRIO_BACKGROUND;
}

static bool turn_has_room(const struct kvctx_turn *t, u32 rank)
{
	return !atomic_read(&t->urgent) ||
	       atomic64_read(&t->bytes) < (rank ? TURN_BACKGROUND_BYTES : TURN_NORMAL_BYTES);
}

/* Nobody waits whom an operation of this rank may not pass. */
static bool turn_is_next(struct kvctx_turn *t, u32 rank)
{
	lockdep_assert_held(&t->queue.lock);
	return list_empty(&t->queue.ops[0]) && (!rank || list_empty(&t->queue.ops[1]));
}

static void turn_begin(struct kvctx_turn *t, struct kvctx_op *op)
{
	if (op->call.prio == KVCTX_PRIO_URGENT)
		atomic_inc(&t->urgent);
	else
		atomic64_add(op->io.bytes, &t->bytes);
}

/* 0: @op waits; 1: it may go; or why it will not. */
static int turn_queue(struct kvctx_turn *t, struct kvctx_op *op)
{
	u32 rank = turn_rank(op);
	int ret = 1;

	spin_lock(&t->queue.lock);
	atomic_inc(&t->queue.waiting);
	/* pairs with kvctx_turn_end() */
	smp_mb__after_atomic();
	if (!turn_has_room(t, rank) || !turn_is_next(t, rank)) {
		op->wait.since = ktime_get();
		ret = kvctx_queue_add(&t->queue, rank, op, false);
	}
	if (ret)
		atomic_dec(&t->queue.waiting);
	spin_unlock(&t->queue.lock);
	return ret;
}

/*
 * Call kind->go() when it is the turn of @op to move io.bytes from or to io.member. kvctx_turn_end() follows when the
 * transfer has ended, unless go() was called with an error.
 */
void kvctx_turn_take(struct kvctx_op *op)
{
	struct kvctx_pool *p = op->session->pool;
	struct kvctx_turn *t = turn_of(op);
	int ret = 1;

	if (op->call.prio != KVCTX_PRIO_URGENT && (atomic_read(&t->urgent) || atomic_read(&t->queue.waiting)))
		ret = turn_queue(t, op);
	if (!ret) {
		/* @op may be gone */
		percpu_counter_inc(&p->counters.turn_waits);
		queue_delayed_work(p->io_wq, &t->queue.work, KVCTX_QUEUE_TICK);
		return;
	}
	if (ret > 0)
		turn_begin(t, op);
	op->kind->go(op, min(ret, 0));
}

/* Any context. */
void kvctx_turn_end(struct kvctx_op *op)
{
	struct kvctx_turn *t = turn_of(op);

	if (op->call.prio == KVCTX_PRIO_URGENT)
		atomic_dec(&t->urgent);
	else
		atomic64_sub(op->io.bytes, &t->bytes);
	/* pairs with turn_queue() */
	smp_mb__after_atomic();
	if (unlikely(atomic_read(&t->queue.waiting)) && turn_has_room(t, 0))
		mod_delayed_work(op->session->pool->io_wq, &t->queue.work, 0);
}

/* Take @op out of its queue. true: it was in one, and is the caller's now. */
bool kvctx_turn_recall(struct kvctx_op *op)
{
	struct kvctx_queue *q = &turn_of(op)->queue;
	bool queued;

	spin_lock(&q->lock);
	queued = op->wait.queued;
	if (queued)
		kvctx_queue_out(q, op);
	spin_unlock(&q->lock);
	return queued;
}

/* Who goes now: the first of a rank that has room, or waited long enough. */
static struct kvctx_op *turn_next(struct kvctx_turn *t, ktime_t now)
{
	struct kvctx_op *op, *found = NULL;
	u32 i;

	spin_lock(&t->queue.lock);
	for (i = 0; i < ARRAY_SIZE(t->queue.ops) && !found; i++) {
		op = list_first_entry_or_null(&t->queue.ops[i], struct kvctx_op, wait.node);
		if (op && (turn_has_room(t, i) || now >= ktime_add_ms(op->wait.since, TURN_MAX_WAIT_MS)))
			found = op;
	}
	if (found) {
		kvctx_queue_out(&t->queue, found);
		turn_begin(t, found);
	}
	spin_unlock(&t->queue.lock);
	return found;
}

static void turn_drop(struct kvctx_op *op, int err)
{
	op->kind->go(op, err);
}

static void turn_work(struct work_struct *work)
{
	struct kvctx_member *m = container_of(to_delayed_work(work), struct kvctx_member, turn.queue.work);
	struct kvctx_turn *t = &m->turn;
	ktime_t now = ktime_get();
	struct blk_plug plug;
	struct kvctx_op *op;

	blk_start_plug(&plug);
	kvctx_queue_weed(&t->queue, true);
	while ((op = turn_next(t, now))) {
		op->kind->go(op, 0);
		cond_resched();
	}
	blk_finish_plug(&plug);
	if (atomic_read(&t->queue.waiting))
		queue_delayed_work(m->pool->io_wq, &t->queue.work, KVCTX_QUEUE_TICK);
}

void kvctx_turn_init(struct kvctx_pool *p)
{
	u32 i;

	for (i = 0; i < KVC_MEMBERS_MAX; i++)
		kvctx_queue_init(&p->members[i].turn.queue, turn_work, turn_drop);
}

/* Nothing is in flight any more. */
void kvctx_turn_exit(struct kvctx_pool *p)
{
	u32 i;

	for (i = 0; i < KVC_MEMBERS_MAX; i++)
		cancel_delayed_work_sync(&p->members[i].turn.queue.work);
}
