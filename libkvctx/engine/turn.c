// SPDX-License-Identifier: LGPL-2.1-or-later
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
 * In a rank there is order; NORMAL goes before BACKGROUND. What waits has been begun with the engine: it holds its place
 * on media or its page. kind->go() takes it from there, called once, without a lock: by who took the turn, or by the
 * attendant.
 *
 * Who ends a transfer does not take the lock: it counts first, then looks whether anybody waits, while who queues an
 * operation first says that it waits, then looks at the counts again; all of that in one order for all threads.
 */
#include "session.h"

#define TURN_MAX_WAIT		(KVE_NSEC / 20)
#define TURN_TICK		(KVE_NSEC / 100)
#define TURN_NORMAL_BYTES	(4U << 20)
#define TURN_BACKGROUND_BYTES	(1U << 20)

static struct kve_turn *turn_of(const struct kve_op *op)
{
	return &op->session->waits->turns[op->io.member];
}

static u32 turn_waiting(struct kve_turn *t)
{
	return __atomic_load_n(&t->queue.waiting, __ATOMIC_SEQ_CST);
}

static bool turn_has_room(const struct kve_turn *t, u32 rank)
{
	return !__atomic_load_n(&t->urgent, __ATOMIC_SEQ_CST) ||
	       __atomic_load_n(&t->bytes, __ATOMIC_SEQ_CST) < (rank ? TURN_BACKGROUND_BYTES : TURN_NORMAL_BYTES);
}

/* Nobody waits whom an operation of this rank may not pass. */
static bool turn_is_next(struct kve_turn *t, u32 rank)
{
	return TAILQ_EMPTY(&t->queue.ops[0]) && (!rank || TAILQ_EMPTY(&t->queue.ops[1]));
}

static void turn_begin(struct kve_turn *t, struct kve_op *op)
{
	if (op->call.prio == KVCTX_PRIO_URGENT)
		__atomic_add_fetch(&t->urgent, 1, __ATOMIC_SEQ_CST);
	else
		__atomic_add_fetch(&t->bytes, op->io.bytes, __ATOMIC_SEQ_CST);
}

/* 0: @op waits; 1: it may go; or why it will not. */
static int turn_queue(struct kve_turn *t, struct kve_op *op)
{
	struct kve_waits *w = op->session->waits;
	u32 rank = op->call.prio == KVCTX_PRIO_BACKGROUND;
	int ret = 1;

	pthread_mutex_lock(&w->lock);
	__atomic_add_fetch(&t->queue.waiting, 1, __ATOMIC_SEQ_CST);
	if (!turn_has_room(t, rank) || !turn_is_next(t, rank)) {
		op->wait.since = kve_now();
		ret = kve_queue_add(&t->queue, rank, op, false);
	}
	if (ret)
		__atomic_sub_fetch(&t->queue.waiting, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&w->lock);
	return ret;
}

/*
 * Call kind->go() when it is the turn of @op to move io.bytes from or to io.member. kve_turn_end() follows when the
 * transfer has ended, unless go() was called with an error.
 */
void kve_turn_take(struct kve_op *op)
{
	struct kve_waits *w = op->session->waits;
	struct kve_turn *t = turn_of(op);
	int ret = 1;

	if (op->call.prio != KVCTX_PRIO_URGENT && (__atomic_load_n(&t->urgent, __ATOMIC_SEQ_CST) || turn_waiting(t)))
		ret = turn_queue(t, op);
	if (!ret) {
		/* @op may be gone */
		os_atomic64_add(&w->pool->counters.turn_waits, 1);
		kve_job_queue(w->pool, &w->pool->space, kve_now() + TURN_TICK);
		return;
	}
	if (ret > 0)
		turn_begin(t, op);
	op->kind->go(op, min(ret, 0));
}

void kve_turn_end(struct kve_op *op)
{
	struct kve_waits *w = op->session->waits;
	struct kve_turn *t = turn_of(op);

	if (op->call.prio == KVCTX_PRIO_URGENT)
		__atomic_sub_fetch(&t->urgent, 1, __ATOMIC_SEQ_CST);
	else
		__atomic_sub_fetch(&t->bytes, op->io.bytes, __ATOMIC_SEQ_CST);
	if (unlikely(turn_waiting(t)) && turn_has_room(t, 0))
		kve_job_queue(w->pool, &w->pool->space, kve_now());
}

/* Take @op out of its queue. true: it was in one, and is the caller's now. */
bool kve_turn_recall(struct kve_op *op)
{
	struct kve_waits *w = op->session->waits;
	bool queued;

	pthread_mutex_lock(&w->lock);
	queued = op->wait.queued;
	if (queued)
		kve_queue_out(&turn_of(op)->queue, op);
	pthread_mutex_unlock(&w->lock);
	return queued;
}

/* Who goes now: the first of a rank that has room, or waited long enough. */
static struct kve_op *turn_next(struct kve_waits *w, struct kve_turn *t, u64 now)
{
	struct kve_op *op, *found = NULL;
	u32 i;

	pthread_mutex_lock(&w->lock);
	for (i = 0; i < ARRAY_SIZE(t->queue.ops) && !found; i++) {
		op = TAILQ_FIRST(&t->queue.ops[i]);
		if (op && (turn_has_room(t, i) || now >= op->wait.since + TURN_MAX_WAIT))
			found = op;
	}
	if (found) {
		kve_queue_out(&t->queue, found);
		turn_begin(t, found);
	}
	pthread_mutex_unlock(&w->lock);
	return found;
}

static void turn_drop(struct kve_op *op, int err)
{
	op->kind->go(op, err);
}

u32 kve_turns_cancel(struct kve_session *s, u64 user_data)
{
	u32 i, nr = 0;

	for (i = 0; i < KVC_MEMBERS_MAX; i++)
		nr += kve_queue_cancel(&s->waits->turns[i].queue, s, user_data, turn_drop);
	return nr;
}

void kve_turns_weed(struct kve_waits *w)
{
	u32 i;

	for (i = 0; i < KVC_MEMBERS_MAX; i++)
		kve_queue_weed(w, &w->turns[i].queue, false, turn_drop);
}

/* The attendant's: who may go on, in all of the pool? */
static void waits_work(struct kve_job *job)
{
	struct kve_pool *p = (struct kve_pool *)((u8 *)job - offsetof(struct kve_pool, space));
	struct kve_waits *w = p->waits;
	bool waiting = false;
	struct kve_op *op;
	u32 i;

	kve_park_retry(w);
	for (i = 0; i < KVC_MEMBERS_MAX; i++) {
		struct kve_turn *t = &w->turns[i];

		if (!turn_waiting(t))
			continue;
		kve_queue_weed(w, &t->queue, true, turn_drop);
		while ((op = turn_next(w, t, kve_now())))
			op->kind->go(op, 0);
		waiting |= turn_waiting(t) != 0;
	}
	if (waiting)
		kve_job_queue(p, job, kve_now() + TURN_TICK);
}

static void turn_queue_init(struct kve_queue *q)
{
	TAILQ_INIT(&q->ops[0]);
	TAILQ_INIT(&q->ops[1]);
	q->until = KVE_NEVER;
}

/* What a pool's operations wait in, made for the first of its sessions; kve_admin_lock held. */
static struct kve_waits *waits_new(struct kve_pool *p)
{
	struct kve_waits *w = calloc(1, sizeof(*w));
	u32 i;

	if (!w)
		return NULL;
	w->pool = p;
	pthread_mutex_init(&w->lock, NULL);
	turn_queue_init(&w->space);
	for (i = 0; i < KVC_MEMBERS_MAX; i++)
		turn_queue_init(&w->turns[i].queue);
	return w;
}

struct kve_waits *kve_waits_get(struct kve_pool *p)
{
	pthread_mutex_lock(&kve_admin_lock);
	if (!p->waits) {
		p->waits = waits_new(p);
		/* pairs with the engine's ops->space */
		if (p->waits)
			os_store_release(&p->space.fn, waits_work);
	}
	pthread_mutex_unlock(&kve_admin_lock);
	return p->waits;
}
