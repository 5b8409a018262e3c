// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Waiting: operations in a queue, until its user lets them go on or they give up, which calls queue->drop() with the
 * reason:
 *
 *   -ETIME   its deadline has passed
 *   others   nobody would take its result any more, or it cannot be had: what kvctx_req_unwanted() says; or -ECANCELED
 *            when a CANCEL names it
 *
 * What kvctx_req_unwanted() looks at is changed first, and then the queues are weeded; who queues an operation looks
 * under the queue's lock. So nothing slips in behind. Deadlines are looked after on the tick; the lists are walked only
 * when one has passed.
 *
 * Who queues an operation counts it in queue->waiting before it takes the lock. Who takes it out uncounts it, there or
 * in queue->passed.
 */
#include "session/wait.h"

/* Has a CANCEL named it while it was on its way from one queue to another, and in neither of them? */
static bool queue_missed(struct kvctx_req *req)
{
	const struct kvctx_tried *tried;

	if (likely(!req->pace.on_way))
		return false;
	req->pace.on_way = false;
	tried = req->wait.tried;
	return READ_ONCE(tried->cancelled) && tried->user_data == req->user_data &&
	       tried->owner == kvctx_req_owner(req);
}

/* 0, or why @req shall not wait. Behind those of its rank, or in @front of them. */
int kvctx_queue_add(struct kvctx_queue *q, u32 rank, struct kvctx_req *req, bool front)
{
	int err = kvctx_req_unwanted(req);

	os_assert_locked(&q->lock);
	if (!err && queue_missed(req))
		err = -ECANCELED;
	if (err)
		return err;
	req->wait.queued = true;
	req->wait.passed = false;
	req->wait.waited = true;
	q->until = min(q->until, req->deadline);
	list_add(&req->wait.node, front ? &q->reqs[rank] : q->reqs[rank].prev);
	return 0;
}

void kvctx_queue_out(struct kvctx_queue *q, struct kvctx_req *req)
{
	os_assert_locked(&q->lock);
	list_del(&req->wait.node);
	if (q->turns)
		list_del(&req->wait.turn);
	req->wait.queued = false;
	os_atomic_dec(req->wait.passed ? &q->passed : &q->waiting);
}

/* Out of the queue, to be tried. The queue remembers whom a CANCEL may name meanwhile. */
void kvctx_queue_try(struct kvctx_queue *q, struct kvctx_req *req)
{
	kvctx_queue_out(q, req);
	q->tried.owner = kvctx_req_owner(req);
	q->tried.user_data = req->user_data;
	WRITE_ONCE(q->tried.cancelled, false);
}

/* Out of the queue, to the list of those to be dropped */
static void queue_out_to(struct kvctx_queue *q, struct kvctx_req *req, int err, struct list_head *out)
{
	kvctx_queue_out(q, req);
	req->wait.err = err;
	list_add_tail(&req->wait.node, out);
}

static void queue_drop(struct kvctx_queue *q, struct list_head *out)
{
	struct kvctx_req *req, *next;

	list_for_each_entry_safe(req, next, out, wait.node)
		q->drop(req, req->wait.err);
}

static int queue_gives_up(struct kvctx_req *req, u64 now)
{
	int err = kvctx_req_unwanted(req);

	return !err && req->deadline <= now ? -ETIME : err;
}

/* Take out who gives up. @late: only if a deadline has passed. */
void kvctx_queue_weed(struct kvctx_queue *q, bool late)
{
	u64 now = os_now(), until = OS_NEVER;
	struct kvctx_req *req, *next;
	struct list_head out;
	u32 i;
	int err;

	INIT_LIST_HEAD(&out);
	os_lock_task(&q->lock);
	for (i = 0; i < ARRAY_SIZE(q->reqs) && (!late || q->until <= now); i++) {
		list_for_each_entry_safe(req, next, &q->reqs[i], wait.node) {
			err = queue_gives_up(req, now);
			if (err)
				queue_out_to(q, req, err, &out);
			else
				until = min(until, req->deadline);
		}
	}
	if (i)
		q->until = until;
	os_unlock_task(&q->lock);
	queue_drop(q, &out);
}

/* Is it among @nr names, which ascend? */
static bool queue_is_among(u64 user_data, const u64 *names, u32 nr)
{
	u32 from = 0, to = nr, mid;

	while (from < to) {
		mid = from + (to - from) / 2;
		if (names[mid] < user_data)
			from = mid + 1;
		else
			to = mid;
	}
	return from < nr && names[from] == user_data;
}

/*
 * End those of the session that wait here under one of these user_data, which ascend. How many? One that is being tried
 * just now is not counted: it is started, or ends.
 */
u32 kvctx_queue_cancel_all(struct kvctx_queue *q, const void *session, const u64 *names, u32 nr_names)
{
	struct kvctx_req *req, *next;
	struct list_head out;
	u32 i, nr = 0;

	if (!os_atomic_read(&q->waiting) && !os_atomic_read(&q->passed))
		return 0;
	INIT_LIST_HEAD(&out);
	os_lock_task(&q->lock);
	for (i = 0; i < ARRAY_SIZE(q->reqs); i++) {
		list_for_each_entry_safe(req, next, &q->reqs[i], wait.node) {
			if (kvctx_req_owner(req) != session || !queue_is_among(req->user_data, names, nr_names))
				continue;
			queue_out_to(q, req, -ECANCELED, &out);
			nr++;
		}
	}
	if (q->tried.owner == session && queue_is_among(q->tried.user_data, names, nr_names))
		WRITE_ONCE(q->tried.cancelled, true);
	os_unlock_task(&q->lock);
	queue_drop(q, &out);
	return nr;
}

u32 kvctx_queue_cancel(struct kvctx_queue *q, const void *session, u64 user_data)
{
	return kvctx_queue_cancel_all(q, session, &user_data, 1);
}

void kvctx_queue_init(struct kvctx_queue *q, void (*drop)(struct kvctx_req *req, int err))
{
	u32 i;

	os_lock_init(&q->lock);
	for (i = 0; i < ARRAY_SIZE(q->reqs); i++)
		INIT_LIST_HEAD(&q->reqs[i]);
	q->until = OS_NEVER;
	q->drop = drop;
}
