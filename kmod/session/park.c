// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Waiting for space. A STORE or DELETE that the engine answers with -EAGAIN is parked and tried again until it starts
 * or gives up (queue.c). Each tenant has a queue, so one that has reached a limit of its own keeps up nobody else,
 * neither who waits nor who comes.
 *
 * The server has it retried when the engine says that space was made, and on the tick. The tick makes a wake-up that
 * came between a failed attempt and the parking cost one tick instead of for ever.
 *
 * Turns: of the tenants that wait the one goes next that has got the least, in bytes over its weight, as for a member's
 * device (turn.c), until none can go on. So what is made for all is shared by weight. Who had nothing waiting, or could
 * not go when others did, begins where these are: nobody saves up turns. Who comes while nobody of his own tenant waits
 * is tried at once, although others wait. These do not starve: whatever a page's size or tenant, what it wants is a
 * free segment, so while he finds these the others find them too; and when he finds none he waits, and his tenant
 * behind him.
 *
 * Order: a STORE that may wait queues up behind those of its tenant parked before it, while they are tried too: a
 * DELETE ahead of it in its batch has taken effect or failed when it starts. One that may not (NOWAIT) tries its luck;
 * so does a DELETE, which needs another kind of space.
 *
 * A STORE of a peer's memory goes to the members that reach the peer only. When these are full it is passed by all of
 * its tenant that can go elsewhere, in the order in which they wait, and by those that come: reqs[0] has the passed
 * ones. They come first when the queue is tried again.
 *
 * CANCEL: who is being tried again is in no queue, and may start at any moment, on which nobody who cancels waits. The
 * queue remembers its name, and that a CANCEL named it: then it does not go back.
 */
#include "session/wait.h"

#define PARK_LONGEST	(128ULL << 20)	/* of pages */

/* Append. It may be gone on return. */
static int park_add(struct kvctx_queue *q, struct kvctx_req *req)
{
	int err;

	os_atomic_inc(&q->waiting);
	os_lock_task(&q->lock);
	err = kvctx_queue_add(q, 1, req, false);
	if (!err)
		os_trace_op(op_parked, req, -1, 0);
	os_unlock_task(&q->lock);
	if (err)
		os_atomic_dec(&q->waiting);
	return err;
}

/*
 * The engine answered -EAGAIN, or was not asked. 0: it waits, may be gone, and kvctx_park_retry() is to be called on
 * the tick; otherwise it completes with the error.
 */
int kvctx_park(struct kvctx_park *p, struct kvctx_req *req)
{
	if (req->flags & KVCTX_OP_NOWAIT)
		return -EAGAIN;
	WRITE_ONCE(p->some, true);
	return park_add(&p->of[req->tenant], req);
}

/* Those that were passed count again, before all others, and find no member full. */
static void park_begin(struct kvctx_queue *q)
{
	struct kvctx_req *req;

	os_lock_task(&q->lock);
	while (!list_empty(&q->reqs[0])) {
		req = container_of(q->reqs[0].prev, struct kvctx_req, wait.node);
		req->wait.passed = false;
		list_del(&req->wait.node);
		list_add(&req->wait.node, &q->reqs[1]);
		os_atomic_inc(&q->waiting);
		os_atomic_dec(&q->passed);
	}
	WRITE_ONCE(q->full, 0);
	os_unlock_task(&q->lock);
}

/* The lock is held, @req counts in q->waiting. */
static void park_pass(struct kvctx_queue *q, struct kvctx_req *req)
{
	req->wait.passed = true;
	os_atomic_inc(&q->passed);
	os_atomic_dec(&q->waiting);
}

/* Who is to be tried: the first that a member may have space for. Those before it are passed. */
static struct kvctx_req *park_next(struct kvctx_queue *q)
{
	struct kvctx_req *req, *next, *found = NULL;

	os_lock_task(&q->lock);
	list_for_each_entry_safe(req, next, &q->reqs[1], wait.node) {
		if (~(req->barred | q->full)) {
			kvctx_queue_try(q, req);
			found = req;
			break;
		}
		list_move_tail(&req->wait.node, &q->reqs[0]);
		park_pass(q, req);
	}
	os_unlock_task(&q->lock);
	return found;
}

/* No member may have @req now. 0: it is in its place again, passed unless it may go to any; or why not */
static int park_again(struct kvctx_queue *q, struct kvctx_req *req)
{
	bool any = !req->barred;
	int err;

	os_atomic_inc(&q->waiting);
	os_lock_task(&q->lock);
	err = q->tried.cancelled ? -ECANCELED : kvctx_queue_add(q, any, req, any);
	if (err) {
		os_atomic_dec(&q->waiting);
	} else if (!any) {
		WRITE_ONCE(q->full, q->full | ~req->barred);
		park_pass(q, req);
	}
	os_unlock_task(&q->lock);
	return err;
}

/* What the tenant gets with it */
static u64 park_cost(const struct kvctx_req *req)
{
	return max_t(u64, req->length, KVC_BLOCK) * KVC_WEIGHT / kvctx_req_weight(req);
}

/* Let one of the tenant go on. false: none can */
static bool park_try(struct kvctx_park *p, u16 tenant)
{
	struct kvctx_queue *q = &p->of[tenant];
	struct kvctx_req *req;
	bool any, went;
	u64 cost;
	int err;

	while ((req = park_next(q))) {
		any = !req->barred;
		cost = park_cost(req);
		err = kvctx_req_attempt(req);
		went = err != -EAGAIN;
		if (!went)
			err = park_again(q, req);
		if (!err && went) {
			p->last = kvctx_pass_caught_up(p->pass[tenant], p->last);
			p->pass[tenant] += cost;
		}
		if (err)
			kvctx_req_complete(req, err, 0);
		os_relax();
		if (went || err)
			return true;
		if (any)
			break;
	}
	return false;
}

/*
 * Where the tenant is: not behind those who go, nor further ahead than one operation could bring it that has the weight
 * which the tenant has now: another one may have had the slot.
 */
static u64 park_caught_up(struct kvctx_queue *q, u64 pass, u64 last)
{
	u64 most = last;

	os_lock_task(&q->lock);
	if (!list_empty(&q->reqs[1]))
		most += PARK_LONGEST * KVC_WEIGHT /
			kvctx_req_weight(container_of(q->reqs[1].next, struct kvctx_req, wait.node));
	os_unlock_task(&q->lock);
	pass = kvctx_pass_caught_up(pass, last);
	return kvctx_pass_less(most, pass) ? most : pass;
}

/* The tenants of whom somebody waits. How many? */
static u32 park_begin_all(struct kvctx_park *p, u16 *tenants)
{
	struct kvctx_queue *q;
	u32 nr = 0;
	u16 i;

	for (i = 0; i < KVC_TENANTS_MAX; i++) {
		q = &p->of[i];
		if (!os_atomic_read(&q->waiting) && !os_atomic_read(&q->passed))
			continue;
		/* what is tried again counts as waiting, until its effect is there */
		os_atomic_inc(&q->waiting);
		kvctx_queue_weed(q, true);
		park_begin(q);
		p->pass[i] = park_caught_up(q, p->pass[i], p->last);
		tenants[nr++] = i;
	}
	return nr;
}

/* Where in @tenants is the one whose turn it is? */
static u32 park_turn(const struct kvctx_park *p, const u16 *tenants, u32 nr)
{
	u32 i, least = 0;

	for (i = 1; i < nr; i++)
		if (kvctx_pass_less(p->pass[tenants[i]], p->pass[tenants[least]]))
			least = i;
	return least;
}

/* By one at a time. true: somebody waits still, again on the tick */
bool kvctx_park_retry(struct kvctx_park *p)
{
	u16 tenants[KVC_TENANTS_MAX];
	u32 i, nr = park_begin_all(p, tenants);
	struct kvctx_queue *q;
	bool again = false;

	while (nr) {
		i = park_turn(p, tenants, nr);
		if (park_try(p, tenants[i]))
			continue;
		q = &p->of[tenants[i]];
		/* pairs with kvctx_park_at_once() */
		again |= !os_atomic_dec_and_test(&q->waiting) || os_atomic_read(&q->passed);
		tenants[i] = tenants[--nr];
	}
	WRITE_ONCE(p->some, again);
	return again;
}

/* Take out who gives up. */
void kvctx_park_weed(struct kvctx_park *p)
{
	u32 i;

	for (i = 0; i < KVC_TENANTS_MAX; i++)
		kvctx_queue_weed(&p->of[i], false);
}

static void park_drop(struct kvctx_req *req, int err)
{
	kvctx_req_complete(req, err, 0);
}

void kvctx_park_init(struct kvctx_park *p)
{
	u32 i;

	for (i = 0; i < KVC_TENANTS_MAX; i++)
		kvctx_queue_init(&p->of[i], park_drop);
	memset(p->pass, 0, sizeof(p->pass));
	p->last = 0;
	p->some = false;
}
