// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Pace: a tenant that may have so many operations in flight, or move so many bytes a second, has the others wait here
 * before anything of them has begun: they hold no page and no place on media, and are in nobody's way. It is about
 * operations that move pages: STORE, LOAD, GET, PREFETCH. Who has no such limit passes by without a look.
 *
 * In a lane URGENT ones go first, then NORMAL, then BACKGROUND ones, in order; but each MAX_WAIT one of a later rank
 * that has waited so long, so nothing starves. They give up as all that wait do (queue.c). They are looked at when one
 * ends that was in flight, and on the tick; of each lane no more at a time than wait when its turn comes, so none keeps
 * up the others.
 *
 * Bytes are paid for afterwards: one may go when all that went before it has been paid for, and then so many bytes are
 * due, at the tenant's rate. So the rate is kept over any time but for one operation, and for SLACK: so much of the
 * time in which nobody came may be made up for, or ticks would cost rate. What ended before it came to a transfer is
 * given back: a page that was not there, a STORE of what is there. This is the generic cell rate algorithm (ITU-T
 * I.371).
 *
 * A STORE that finds no space waits for it (park.c) out of flight: it has nothing, and the tenant's loads do not wait
 * for it. When it has its place it is in flight again, beside the others, as many such as may be at a time.
 *
 * CANCEL: who goes on from here is in no queue until it waits for something else. The lane remembers its name, and
 * whoever queues it asks (queue.c).
 */
#include "session/pace.h"

#define PACE_SLACK	(2 * KVCTX_TICK_MS * KVCTX_NSEC_PER_MS)
#define PACE_MAX_WAIT	(50 * KVCTX_NSEC_PER_MS)

/* Another limit, or another tenant, begins without debts: those of a low one could last for days. */
static void pace_renew(struct kvctx_lane *l, const struct kvc_pace *limit)
{
	os_assert_locked(&l->queue.lock);
	if (l->limit.generation == limit->generation)
		return;
	WRITE_ONCE(l->limit.generation, limit->generation);
	WRITE_ONCE(l->limit.bandwidth, limit->bandwidth);
	WRITE_ONCE(l->limit.inflight, limit->inflight);
	os_atomic64_set(&l->next, 0);
}

static bool pace_may_go(const struct kvctx_lane *l, u64 now)
{
	os_assert_locked(&l->queue.lock);
	return (!l->limit.inflight || os_atomic_read(&l->inflight) < l->limit.inflight) &&
	       (!l->limit.bandwidth || (s64)(os_atomic64_read(&l->next) - now) <= 0);
}

/* For @bytes in all, of which it may have paid some */
static void pace_pay(struct kvctx_lane *l, struct kvctx_req *req, u32 bytes, u64 now)
{
	u64 next = os_atomic64_read(&l->next), from = now - PACE_SLACK, cost;

	os_assert_locked(&l->queue.lock);
	if (!l->limit.bandwidth || bytes <= req->pace.bytes)
		return;
	cost = (u64)(bytes - req->pace.bytes) * KVCTX_PACE_SECOND / l->limit.bandwidth;
	if (req->pace.generation != l->limit.generation)
		req->pace.cost = 0;
	req->pace.generation = l->limit.generation;
	req->pace.cost += cost;
	req->pace.bytes = bytes;
	os_atomic64_add(&l->next, ((s64)(from - next) > 0 ? from - next : 0) + cost);
}

static void pace_goes(struct kvctx_lane *l, struct kvctx_req *req, u64 now)
{
	req->pace.state = KVCTX_PACE_WENT;
	os_atomic_inc(&l->inflight);
	pace_pay(l, req, kvc_blocks(req->length) << KVC_BLOCK_SHIFT, now);
}

/*
 * May @req begin? 1: yes, and kvctx_pace_leave() follows; 0: it waits, and kvctx_req_attempt() follows, @req may be
 * gone; or why it will not. It says itself how many bytes it moves, as far as it knows. Process context.
 */
int kvctx_pace_enter(struct kvctx_pace *p, struct kvctx_req *req)
{
	struct kvctx_lane *l = &p->of[req->tenant];
	struct kvc_pace limit;
	u64 now = os_now();
	int ret = 1;

	os_lock_task(&l->queue.lock);
	os_atomic_inc(&l->queue.waiting);
	/* pairs with kvctx_pace_leave() */
	os_mb_after_atomic();
	limit = kvctx_req_pace(req);
	pace_renew(l, &limit);
	if (os_atomic_read(&l->queue.waiting) == 1 && pace_may_go(l, now)) {
		pace_goes(l, req, now);
	} else if (req->flags & KVCTX_OP_NOWAIT) {
		ret = -EAGAIN;
	} else {
		ret = kvctx_queue_add(&l->queue, kvctx_req_rank(req), req, false);
		if (!ret) {
			req->wait.since = now;
			os_trace_op(op_paced, req, -1, 0);
		}
	}
	if (ret)
		os_atomic_dec(&l->queue.waiting);
	os_unlock_task(&l->queue.lock);
	return ret;
}

/* @req, which went or is part of what did, moves @bytes: more than it said, maybe. Process context. */
void kvctx_pace_charge(struct kvctx_pace *p, struct kvctx_req *req, u32 bytes)
{
	struct kvctx_lane *l = &p->of[req->tenant];
	struct kvc_pace limit;

	os_lock_task(&l->queue.lock);
	limit = kvctx_req_pace(req);
	pace_renew(l, &limit);
	pace_pay(l, req, bytes, os_now());
	os_unlock_task(&l->queue.lock);
}

/* Whose turn is it? *@late: only since he has waited for so long */
static struct kvctx_req *pace_first(struct kvctx_lane *l, u64 now, bool *late)
{
	struct kvctx_req *req, *first = NULL;
	u32 i;

	*late = false;
	for (i = 0; i < ARRAY_SIZE(l->queue.reqs); i++) {
		req = list_first_entry_or_null(&l->queue.reqs[i], struct kvctx_req, wait.node);
		if (!req)
			continue;
		if (!first) {
			first = req;
		} else if (now >= max(req->wait.since, l->late) + PACE_MAX_WAIT) {
			*late = true;
			return req;
		}
	}
	return first;
}

/* Who goes now? Out of the queue, and counted */
static struct kvctx_req *pace_next(struct kvctx_lane *l)
{
	struct kvctx_req *req;
	struct kvc_pace limit;
	u64 now = os_now();
	bool late;

	os_lock_task(&l->queue.lock);
	req = pace_first(l, now, &late);
	if (req) {
		limit = kvctx_req_pace(req);
		pace_renew(l, &limit);
		if (pace_may_go(l, now)) {
			if (late)
				l->late = now;
			kvctx_queue_try(&l->queue, req);
			req->pace.on_way = true;
			req->wait.tried = &l->queue.tried;
			pace_goes(l, req, now);
		} else {
			req = NULL;
		}
	}
	os_unlock_task(&l->queue.lock);
	return req;
}

/* Of one tenant; true: somebody waits still */
static bool pace_run_lane(struct kvctx_lane *l)
{
	struct kvctx_req *req;
	u32 most;
	int err;

	/* while one is being tried somebody counts as waiting: a CANCEL looks */
	most = os_atomic_inc_return(&l->queue.waiting) - 1;
	kvctx_queue_weed(&l->queue, true);
	for (; most && (req = pace_next(l)); most--) {
		err = kvctx_req_attempt(req);
		if (err)
			kvctx_req_complete(req, err, 0);
		os_relax();
	}
	return !os_atomic_dec_and_test(&l->queue.waiting);
}

/* Let those begin who may, one caller at a time. true: somebody waits still, again on the tick */
bool kvctx_pace_run(struct kvctx_pace *p)
{
	bool again = false;
	u32 i;

	for (i = 0; i < KVC_TENANTS_MAX; i++)
		if (os_atomic_read(&p->of[i].queue.waiting))
			again |= pace_run_lane(&p->of[i]);
	return again;
}

/* Take out who gives up. */
void kvctx_pace_weed(struct kvctx_pace *p)
{
	u32 i;

	for (i = 0; i < KVC_TENANTS_MAX; i++)
		kvctx_queue_weed(&p->of[i].queue, false);
}

static void pace_drop(struct kvctx_req *req, int err)
{
	kvctx_req_complete(req, err, 0);
}

void kvctx_pace_init(struct kvctx_pace *p)
{
	u32 i;

	for (i = 0; i < KVC_TENANTS_MAX; i++)
		kvctx_queue_init(&p->of[i].queue, pace_drop);
}
