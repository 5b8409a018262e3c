// SPDX-License-Identifier: GPL-2.0
/*
 * Priorities: whose turn it is at a member's device.
 *
 * An URGENT operation goes at once. While one is in flight on a member, less urgent ones go only as long as few of
 * their bytes are in flight there; the others wait, NORMAL and BACKGROUND in a queue each. They go
 *
 *   - when the last URGENT operation ends, or enough bytes of the less urgent ones have
 *   - after MAX_WAIT in any case: nothing starves
 *   - never, with an error, when their deadline passes, their session closes or their io_uring command is cancelled
 *
 * In a queue there is order; NORMAL goes before BACKGROUND. Where only one kind of operations is at work, its turn
 * costs one atomic operation before the transfer and one behind it, on a cache line of the member.
 *
 * What waits has been begun with the engine: it holds its place on media or its page. The operation's function go()
 * takes it from there, called once, in process context, without a lock.
 *
 * turn.lock guards the queues and, together with session->dying, that nothing of a closing session is queued any more
 * (as in park.c). Who ends a transfer does not take it: counts first, then looks whether anybody waits, while who
 * queues an operation first says that it waits, then looks at the counts again.
 */
#include "data.h"

#define MAX_WAIT_MS	50
#define TICK		msecs_to_jiffies(10)

#define NORMAL_BYTES	(4 << 20)
#define BACKGROUND_BYTES (1 << 20)

static struct kvctx_turn *turn_of(const struct kvctx_op *op)
{
	return &op->session->pool->members[op->member].turn;
}

static struct list_head *queue_of(struct kvctx_turn *t, const struct kvctx_op *op)
{
	return &t->queue[op->prio == KVCTX_PRIO_BACKGROUND];
}

static bool has_room(const struct kvctx_turn *t, u8 prio)
{
	s64 bound = prio == KVCTX_PRIO_BACKGROUND ? BACKGROUND_BYTES : NORMAL_BYTES;

	return !atomic_read(&t->urgent) || atomic64_read(&t->bytes) < bound;
}

/* Nobody waits whom @op may not pass. */
static bool is_next(struct kvctx_turn *t, const struct kvctx_op *op)
{
	lockdep_assert_held(&t->lock);
	return list_empty(&t->queue[0]) && (op->prio != KVCTX_PRIO_BACKGROUND || list_empty(&t->queue[1]));
}

static void begin(struct kvctx_turn *t, struct kvctx_op *op)
{
	if (op->prio == KVCTX_PRIO_URGENT)
		atomic_inc(&t->urgent);
	else
		atomic64_add(op->bytes, &t->bytes);
}

static void unqueue(struct kvctx_turn *t, struct kvctx_op *op)
{
	lockdep_assert_held(&t->lock);
	list_del(&op->parked);
	op->queued = false;
	atomic_dec(&t->waiting);
}

/* 0: @op waits; 1: it may go; -ECANCELED. */
static int queue(struct kvctx_turn *t, struct kvctx_op *op)
{
	int ret = 0;

	spin_lock(&t->lock);
	atomic_inc(&t->waiting);
	/* pairs with kvctx_turn_end() */
	smp_mb__after_atomic();
	if (has_room(t, op->prio) && is_next(t, op)) {
		ret = 1;
	} else if (kvctx_op_unwanted(op)) {
		ret = -ECANCELED;
	} else {
		op->queued = true;
		op->queued_at = ktime_get();
		t->until = min(t->until, op->deadline);
		list_add_tail(&op->parked, queue_of(t, op));
	}
	if (ret)
		atomic_dec(&t->waiting);
	spin_unlock(&t->lock);
	return ret;
}

/*
 * Call @go when it is the turn of @op to move op->bytes from or to op->member. kvctx_turn_end() follows when the
 * transfer has ended, unless @go was called with an error.
 */
void kvctx_turn_take(struct kvctx_op *op, void (*go)(struct kvctx_op *op, int err))
{
	struct kvctx_pool *p = op->session->pool;
	struct kvctx_turn *t = turn_of(op);
	int ret = 1;

	op->go = go;
	if (op->prio != KVCTX_PRIO_URGENT && (atomic_read(&t->urgent) || atomic_read(&t->waiting)))
		ret = queue(t, op);
	if (!ret) {
		/* @op may be gone */
		percpu_counter_inc(&p->counters.turn_waits);
		queue_delayed_work(p->io_wq, &t->work, TICK);
		return;
	}
	if (ret > 0)
		begin(t, op);
	go(op, min(ret, 0));
}

/* Any context. */
void kvctx_turn_end(struct kvctx_op *op)
{
	struct kvctx_turn *t = turn_of(op);

	if (op->prio == KVCTX_PRIO_URGENT)
		atomic_dec(&t->urgent);
	else
		atomic64_sub(op->bytes, &t->bytes);
	/* pairs with queue() */
	smp_mb__after_atomic();
	if (unlikely(atomic_read(&t->waiting)) && has_room(t, KVCTX_PRIO_NORMAL))
		mod_delayed_work(op->session->pool->io_wq, &t->work, 0);
}

/* Take @op out of its queue. true: it was in one, and is the caller's now. */
bool kvctx_turn_recall(struct kvctx_op *op)
{
	struct kvctx_turn *t = turn_of(op);
	bool queued;

	spin_lock(&t->lock);
	queued = op->queued;
	if (queued)
		unqueue(t, op);
	spin_unlock(&t->lock);
	return queued;
}

/* Who goes now: the first of a queue that has room, or waited long enough. */
static struct kvctx_op *next(struct kvctx_turn *t, ktime_t now)
{
	struct kvctx_op *op, *found = NULL;
	u32 i;

	spin_lock(&t->lock);
	for (i = 0; i < ARRAY_SIZE(t->queue) && !found; i++) {
		op = list_first_entry_or_null(&t->queue[i], struct kvctx_op, parked);
		if (op && (has_room(t, op->prio) || now >= ktime_add_ms(op->queued_at, MAX_WAIT_MS)))
			found = op;
	}
	if (found) {
		unqueue(t, found);
		begin(t, found);
	}
	spin_unlock(&t->lock);
	return found;
}

static void end_all(struct list_head *ops, int err)
{
	struct kvctx_op *op;

	while ((op = list_first_entry_or_null(ops, struct kvctx_op, parked))) {
		list_del(&op->parked);
		op->go(op, err);
	}
}

/* Take out who waited too long; the queues are walked only when somebody did. */
static void expire(struct kvctx_turn *t, ktime_t now)
{
	ktime_t until = KTIME_MAX;
	struct kvctx_op *op, *tmp;
	LIST_HEAD(late);
	u32 i;

	spin_lock(&t->lock);
	if (t->until <= now) {
		for (i = 0; i < ARRAY_SIZE(t->queue); i++) {
			list_for_each_entry_safe(op, tmp, &t->queue[i], parked) {
				if (op->deadline > now) {
					until = min(until, op->deadline);
					continue;
				}
				unqueue(t, op);
				list_add_tail(&op->parked, &late);
			}
		}
		t->until = until;
	}
	spin_unlock(&t->lock);
	end_all(&late, -ETIME);
}

static void turn_work(struct work_struct *work)
{
	struct kvctx_turn *t = container_of(to_delayed_work(work), struct kvctx_turn, work);
	struct kvctx_member *m = container_of(t, struct kvctx_member, turn);
	ktime_t now = ktime_get();
	struct blk_plug plug;
	struct kvctx_op *op;

	blk_start_plug(&plug);
	expire(t, now);
	while ((op = next(t, now))) {
		op->go(op, 0);
		cond_resched();
	}
	blk_finish_plug(&plug);
	if (atomic_read(&t->waiting))
		queue_delayed_work(m->pool->io_wq, &t->work, TICK);
}

/* As kvctx_park_sweep() */
void kvctx_turn_sweep(struct kvctx_pool *p)
{
	struct kvctx_op *op, *tmp;
	LIST_HEAD(ops);
	u32 i, j;

	for (i = 0; i < KVC_MEMBERS_MAX; i++) {
		struct kvctx_turn *t = &p->members[i].turn;

		spin_lock(&t->lock);
		for (j = 0; j < ARRAY_SIZE(t->queue); j++) {
			list_for_each_entry_safe(op, tmp, &t->queue[j], parked) {
				if (!kvctx_op_unwanted(op))
					continue;
				unqueue(t, op);
				list_add_tail(&op->parked, &ops);
			}
		}
		spin_unlock(&t->lock);
	}
	end_all(&ops, -ECANCELED);
}

void kvctx_turn_init(struct kvctx_pool *p)
{
	u32 i;

	for (i = 0; i < KVC_MEMBERS_MAX; i++) {
		struct kvctx_turn *t = &p->members[i].turn;

		spin_lock_init(&t->lock);
		INIT_LIST_HEAD(&t->queue[0]);
		INIT_LIST_HEAD(&t->queue[1]);
		t->until = KTIME_MAX;
		INIT_DELAYED_WORK(&t->work, turn_work);
	}
}

/* Nothing is in flight any more. */
void kvctx_turn_exit(struct kvctx_pool *p)
{
	u32 i;

	for (i = 0; i < KVC_MEMBERS_MAX; i++)
		cancel_delayed_work_sync(&p->members[i].turn.work);
}
