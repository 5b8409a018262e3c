// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Turns: whose operation goes to a member's device.
 *
 * Priorities. An URGENT operation goes at once. While one is in flight on a member, less urgent ones go only as long as
 * few of their bytes are in flight there; the others wait, NORMAL and BACKGROUND in a rank each. They go
 *
 *   - when the last URGENT operation ends, or enough bytes of the less urgent ones have
 *   - after MAX_WAIT in any case: nothing starves
 *   - never, with an error, when they give up (queue.c)
 *
 * What is in flight has memory of the server's: requests to the device, and copies where they are needed. A device that
 * does not answer would let callers have any amount of it. So there is a limit to the bytes in flight at a member, of
 * URGENT operations and of the others each, far above what keeps a device busy. Beyond it they wait whatever their
 * priority and for however long; then URGENT ones wait, too, in the first rank.
 *
 * Tenants. As long as the operations of one tenant come it has the member alone, and there is order in a rank; NORMAL
 * goes before BACKGROUND. Its turn costs a comparison and one atomic operation before the transfer and one behind it,
 * on a cache line of the member. When another one's comes the member is shared, until only one tenant's have come for
 * SHARED_FOR. Then no more is in flight than keeps a device busy, of URGENT operations and of the others each; what is
 * beyond it waits here instead of in the device, so the order here is what tenants get. It is start-time fair queueing
 * with a depth (Goyal, Vin, Cheng, SIGCOMM '96; Jin, Chase, Kaur, SIGMETRICS '04): a tenant's pass counts the bytes of
 * it that went, over its weight; who has the least goes next; who had nothing waiting begins where the others are, so
 * nobody saves up turns. Nothing waits while less than the depth is in flight. URGENT operations of all tenants go
 * before the others of any; among the others it is the tenant first, then his NORMAL before his BACKGROUND ones: so a
 * NORMAL one that comes passes no BACKGROUND one that may go. One of these goes each MAX_WAIT however many of the
 * former come. A pass may wrap.
 *
 * What waits has been begun with the engine: it holds its place on media or its page. kvctx_req_go() takes it from
 * there, called once, without a lock.
 *
 * Who ends a transfer does not take the queue's lock: it counts first, then looks whether anybody waits, while who
 * queues an operation first says that it waits, then looks at the counts again.
 */
#include "session/wait.h"

#define TURN_MAX_WAIT		(50 * KVCTX_NSEC_PER_MS)
#define TURN_NORMAL_BYTES	(4U << 20)
#define TURN_BACKGROUND_BYTES	(1U << 20)
#define TURN_SHARED_BYTES	(4U << 20)		/* the depth; at least two operations */
#define TURN_SHARED_FOR		(1000 * KVCTX_NSEC_PER_MS)

/* What tenants have a pass each for */
static u32 turn_class(const struct kvctx_req *req)
{
	return kvctx_req_rank(req) != KVCTX_TURN_URGENT;
}

static bool turn_is_shared(const struct kvctx_turn *t)
{
	return READ_ONCE(t->alone) == KVCTX_TURN_SHARED;
}

/* Bytes that may be in flight, of URGENT operations and of the others each. Among tenants the same for all of them. */
static u64 turn_depth(const struct kvctx_turn *t)
{
	u64 depth = max_t(u64, TURN_SHARED_BYTES, 2ULL * READ_ONCE(t->longest));

	return turn_is_shared(t) ? min_t(u64, depth, KVCTX_TURN_MAX_BYTES) : KVCTX_TURN_MAX_BYTES;
}

static bool turn_has_room(const struct kvctx_turn *t, u32 rank)
{
	u64 urgent = os_atomic64_read(&t->urgent), max = turn_depth(t);

	if (rank == KVCTX_TURN_URGENT)
		return urgent < max;
	if (urgent)
		max = rank == KVCTX_TURN_NORMAL ? TURN_NORMAL_BYTES : TURN_BACKGROUND_BYTES;
	return os_atomic64_read(&t->bytes) < max;
}

/* Has it waited so long that only the limit holds it? Where tenants share, so does one at a time. */
static bool turn_is_over(const struct kvctx_turn *t, const struct kvctx_req *req, u64 now)
{
	u64 since = req->wait.since;

	if (turn_is_shared(t)) {
		if (kvctx_req_rank(req) != KVCTX_TURN_BACKGROUND)
			return false;
		since = max(since, t->late);
	}
	return now >= since + TURN_MAX_WAIT && kvctx_req_rank(req) != KVCTX_TURN_URGENT &&
	       os_atomic64_read(&t->bytes) < KVCTX_TURN_MAX_BYTES;
}

/* Somebody waits: might he go? A guess, there is the tick. */
bool kvctx_turn_is_due(const struct kvctx_turn *t)
{
	/* URGENT ones wait only where much is in flight, and are looked after before it is little */
	return turn_is_shared(t) || turn_has_room(t, KVCTX_TURN_NORMAL) ||
	       (turn_has_room(t, KVCTX_TURN_URGENT) && os_atomic64_read(&t->urgent) >= KVCTX_TURN_MAX_BYTES / 2);
}

/* Nobody waits whom an operation of this rank may not pass. */
static bool turn_is_next(struct kvctx_turn *t, u32 rank)
{
	u32 i;

	os_assert_locked(&t->queue.lock);
	for (i = 0; i <= rank; i++)
		if (!list_empty(&t->queue.reqs[i]))
			return false;
	/* among tenants it is not rank alone */
	return !(rank == KVCTX_TURN_NORMAL && turn_is_shared(t) && !list_empty(&t->queue.reqs[KVCTX_TURN_BACKGROUND]) &&
		 turn_has_room(t, KVCTX_TURN_BACKGROUND));
}

static bool turn_flow_waits(const struct kvctx_flow *f, u32 class)
{
	if (!class)
		return !list_empty(&f->reqs[KVCTX_TURN_URGENT]);
	return !list_empty(&f->reqs[KVCTX_TURN_NORMAL]) || !list_empty(&f->reqs[KVCTX_TURN_BACKGROUND]);
}

static bool turn_flow_idle(const struct kvctx_flow *f)
{
	return !turn_flow_waits(f, 0) && !turn_flow_waits(f, 1);
}

static bool turn_others_wait(struct kvctx_turn *t, u32 tenant)
{
	struct kvctx_flow *f;

	list_for_each_entry(f, &t->flows, node)
		if (f != &t->of[tenant] && !turn_flow_idle(f))
			return true;
	return false;
}

/* An operation of @tenant came, of @bytes. Who is here? */
static void turn_came(struct kvctx_turn *t, u32 tenant, u32 bytes, u64 now)
{
	bool first = t->last == KVCTX_TURN_SHARED;

	os_assert_locked(&t->queue.lock);
	if (t->last != tenant) {
		t->last = tenant;
		t->since = now;
		WRITE_ONCE(t->alone, first ? tenant : KVCTX_TURN_SHARED);
	} else if (turn_is_shared(t) && now >= t->since + TURN_SHARED_FOR && !turn_others_wait(t, tenant)) {
		WRITE_ONCE(t->alone, tenant);
	}
	if (bytes >= t->longest || now >= t->longest_since + TURN_SHARED_FOR) {
		WRITE_ONCE(t->longest, bytes);
		t->longest_since = now;
	}
}

/* @req goes, and counts. */
static void turn_goes(struct kvctx_turn *t, const struct kvctx_req *req, u32 bytes)
{
	u32 class = turn_class(req);
	u64 *mine = &t->of[req->tenant].pass[class];

	os_assert_locked(&t->queue.lock);
	t->pass[class] = kvctx_pass_caught_up(*mine, t->pass[class]);
	*mine += (u64)bytes * KVC_WEIGHT / kvctx_req_weight(req);
	kvctx_turn_begin(t, req->prio, bytes);
}

static int turn_add(struct kvctx_turn *t, struct kvctx_req *req, u32 bytes, u64 now)
{
	struct kvctx_flow *f = &t->of[req->tenant];
	u32 rank = kvctx_req_rank(req);
	int err;

	err = kvctx_queue_add(&t->queue, rank, req, false);
	if (err)
		return err;
	req->wait.since = now;
	req->wait.bytes = bytes;
	list_add_tail(&req->wait.turn, &f->reqs[rank]);
	if (list_empty(&f->node))
		list_add_tail(&f->node, &t->flows);
	os_trace_op(op_queued, req, -1, 0);
	return 0;
}

/* 0: @req waits; 1: it goes; or why it will not. */
int kvctx_turn_queue(struct kvctx_turn *t, struct kvctx_req *req, u32 bytes)
{
	struct kvctx_flow *f = &t->of[req->tenant];
	u32 rank = kvctx_req_rank(req), class = turn_class(req);
	u64 now = os_now();
	int ret = 1;

	os_lock_task(&t->queue.lock);
	os_atomic_inc(&t->queue.waiting);
	/* pairs with kvctx_turn_leave() */
	os_mb_after_atomic();
	turn_came(t, req->tenant, bytes, now);
	if (!turn_flow_waits(f, class))
		f->pass[class] = kvctx_pass_caught_up(f->pass[class], t->pass[class]);
	if (turn_has_room(t, rank) && turn_is_next(t, rank))
		turn_goes(t, req, bytes);
	else
		ret = turn_add(t, req, bytes, now);
	if (ret)
		os_atomic_dec(&t->queue.waiting);
	os_unlock_task(&t->queue.lock);
	return ret;
}

/* Take @req out of its queue. true: it was in one, and is the caller's now. */
bool kvctx_turn_recall(struct kvctx_turn *t, struct kvctx_req *req)
{
	bool queued;

	os_lock_task(&t->queue.lock);
	queued = req->wait.queued;
	if (queued)
		kvctx_queue_out(&t->queue, req);
	os_unlock_task(&t->queue.lock);
	return queued;
}

/* The first of a flow that may go, in those ranks; NULL: none */
static struct kvctx_req *turn_candidate(struct kvctx_turn *t, struct kvctx_flow *f, u32 from, u32 to, u64 now)
{
	struct kvctx_req *req;
	u32 i;

	for (i = from; i <= to; i++) {
		req = list_first_entry_or_null(&f->reqs[i], struct kvctx_req, wait.turn);
		if (req && (turn_has_room(t, i) || turn_is_over(t, req, now)))
			return req;
	}
	return NULL;
}

/* That of the tenant with the least pass */
static struct kvctx_req *turn_of_all(struct kvctx_turn *t, u32 from, u32 to, u64 now)
{
	struct kvctx_req *req, *found = NULL;
	u32 class = from != KVCTX_TURN_URGENT;
	struct kvctx_flow *f;

	list_for_each_entry(f, &t->flows, node) {
		if (found && !kvctx_pass_less(f->pass[class], t->of[found->tenant].pass[class]))
			continue;
		req = turn_candidate(t, f, from, to, now);
		if (req)
			found = req;
	}
	return found;
}

/* Who goes now: who has room, or waited long enough. */
static struct kvctx_req *turn_next(struct kvctx_turn *t, u64 now)
{
	struct kvctx_req *req;

	os_lock_task(&t->queue.lock);
	req = turn_of_all(t, KVCTX_TURN_URGENT, KVCTX_TURN_URGENT, now);
	if (!req)
		req = turn_of_all(t, KVCTX_TURN_NORMAL, KVCTX_TURN_BACKGROUND, now);
	if (req) {
		if (kvctx_req_rank(req) == KVCTX_TURN_BACKGROUND && !turn_has_room(t, KVCTX_TURN_BACKGROUND))
			t->late = now;
		kvctx_queue_out(&t->queue, req);
		turn_goes(t, req, req->wait.bytes);
	}
	os_unlock_task(&t->queue.lock);
	return req;
}

/* Those with nothing to wait for are in no list. */
static void turn_forget(struct kvctx_turn *t)
{
	struct kvctx_flow *f, *next;

	os_lock_task(&t->queue.lock);
	list_for_each_entry_safe(f, next, &t->flows, node)
		if (turn_flow_idle(f)) {
			list_del(&f->node);
			INIT_LIST_HEAD(&f->node);
		}
	os_unlock_task(&t->queue.lock);
}

/* Let those go on who may. true: somebody waits still, again on the tick */
bool kvctx_turn_run(struct kvctx_turn *t)
{
	u64 now = os_now();
	struct kvctx_req *req;

	kvctx_queue_weed(&t->queue, true);
	while ((req = turn_next(t, now))) {
		kvctx_req_go(req, 0);
		os_relax();
	}
	turn_forget(t);
	return os_atomic_read(&t->queue.waiting);
}

void kvctx_turn_init(struct kvctx_turn *t)
{
	u32 i, j;

	kvctx_queue_init(&t->queue, kvctx_req_go);
	t->queue.turns = true;
	t->alone = KVCTX_TURN_SHARED;
	t->last = KVCTX_TURN_SHARED;
	INIT_LIST_HEAD(&t->flows);
	for (i = 0; i < KVC_TENANTS_MAX; i++) {
		INIT_LIST_HEAD(&t->of[i].node);
		for (j = 0; j < KVCTX_TURN_RANKS; j++)
			INIT_LIST_HEAD(&t->of[i].reqs[j]);
	}
}
