// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
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
 * What is in flight has memory of the server's: requests to the device, and copies where they are needed. A device that
 * does not answer would let callers have any amount of it. So there is a limit to the bytes in flight at a member, of
 * URGENT operations and of the others each, far above what keeps a device busy. Beyond it they wait whatever their
 * priority and for however long; then URGENT ones wait, too, in the first rank.
 *
 * In a rank there is order; NORMAL goes before BACKGROUND. Where only one kind of operations is at work, its turn
 * costs one atomic operation before the transfer and one behind it, on a cache line of the member.
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

enum { TURN_URGENT, TURN_NORMAL, TURN_BACKGROUND };	/* ranks of the queue */

static u32 turn_rank(const struct kvctx_req *req)
{
	return req->prio - KVCTX_PRIO_URGENT;
}

static bool turn_has_room(const struct kvctx_turn *t, u32 rank)
{
	u64 urgent = os_atomic64_read(&t->urgent), max = KVCTX_TURN_MAX_BYTES;

	if (rank == TURN_URGENT)
		return urgent < max;
	if (urgent)
		max = rank == TURN_NORMAL ? TURN_NORMAL_BYTES : TURN_BACKGROUND_BYTES;
	return os_atomic64_read(&t->bytes) < max;
}

/* Has it waited so long that only the limit holds it? */
static bool turn_is_over(const struct kvctx_turn *t, const struct kvctx_req *req, u64 now)
{
	return now >= req->wait.since + TURN_MAX_WAIT && turn_rank(req) != TURN_URGENT &&
	       os_atomic64_read(&t->bytes) < KVCTX_TURN_MAX_BYTES;
}

/* Somebody waits: might he go? A guess, there is the tick. */
bool kvctx_turn_is_due(const struct kvctx_turn *t)
{
	/* URGENT ones wait only where much is in flight, and are looked after before it is little */
	return turn_has_room(t, TURN_NORMAL) ||
	       (turn_has_room(t, TURN_URGENT) && os_atomic64_read(&t->urgent) >= KVCTX_TURN_MAX_BYTES / 2);
}

/* Nobody waits whom an operation of this rank may not pass. */
static bool turn_is_next(struct kvctx_turn *t, u32 rank)
{
	u32 i;

	os_assert_locked(&t->queue.lock);
	for (i = 0; i <= rank; i++)
		if (!list_empty(&t->queue.reqs[i]))
			return false;
	return true;
}

/* 0: @req waits; 1: it may go; or why it will not. */
int kvctx_turn_queue(struct kvctx_turn *t, struct kvctx_req *req, u32 bytes)
{
	u32 rank = turn_rank(req);
	int ret = 1;

	os_lock_task(&t->queue.lock);
	os_atomic_inc(&t->queue.waiting);
	/* pairs with kvctx_turn_leave() */
	os_mb_after_atomic();
	if (!turn_has_room(t, rank) || !turn_is_next(t, rank)) {
		req->wait.since = os_now();
		req->wait.bytes = bytes;
		ret = kvctx_queue_add(&t->queue, rank, req, false);
		if (!ret)
			os_trace_op(op_queued, req, -1, 0);
	}
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

/* Who goes now: the first of a rank that has room, or waited long enough. */
static struct kvctx_req *turn_next(struct kvctx_turn *t, u64 now)
{
	struct kvctx_req *req, *found = NULL;
	u32 i;

	os_lock_task(&t->queue.lock);
	for (i = 0; i < ARRAY_SIZE(t->queue.reqs) && !found; i++) {
		req = list_first_entry_or_null(&t->queue.reqs[i], struct kvctx_req, wait.node);
		if (req && (turn_has_room(t, i) || turn_is_over(t, req, now)))
			found = req;
	}
	if (found) {
		kvctx_queue_out(&t->queue, found);
		kvctx_turn_begin(t, found->prio, found->wait.bytes);
	}
	os_unlock_task(&t->queue.lock);
	return found;
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
	return os_atomic_read(&t->queue.waiting);
}

void kvctx_turn_init(struct kvctx_turn *t)
{
	kvctx_queue_init(&t->queue, kvctx_req_go);
}
