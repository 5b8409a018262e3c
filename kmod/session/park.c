// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Waiting for space. A STORE or DELETE that the engine answers with -EAGAIN is parked and tried again, in order, until
 * it starts or gives up (queue.c).
 *
 * The server has it retried when the engine says that space was made, and on the tick. The tick makes a wake-up that
 * came between a failed attempt and the parking cost one tick instead of for ever.
 *
 * Order: a STORE that may wait queues up behind those parked before it, while they are tried too: a DELETE ahead of it
 * in its batch has taken effect or failed when it starts. One that may not (NOWAIT) tries its luck; so does a DELETE,
 * which needs another kind of space.
 */
#include "session/wait.h"

/* Append, or put back at the front one that still counts. */
static int park_add(struct kvctx_queue *q, struct kvctx_req *req, bool front)
{
	int err;

	os_atomic_inc(&q->waiting);
	os_lock_task(&q->lock);
	err = kvctx_queue_add(q, 0, req, front);
	os_unlock_task(&q->lock);
	if (err)
		os_atomic_dec(&q->waiting);
	return err;
}

/*
 * The engine answered -EAGAIN, or was not asked. 0: it waits, may be gone, and kvctx_park_retry() is to be called on
 * the tick; otherwise it completes with the error.
 */
int kvctx_park(struct kvctx_queue *q, struct kvctx_req *req)
{
	return req->flags & KVCTX_OP_NOWAIT ? -EAGAIN : park_add(q, req, false);
}

static struct kvctx_req *park_first(struct kvctx_queue *q)
{
	struct kvctx_req *req;

	os_lock_task(&q->lock);
	req = list_first_entry_or_null(&q->reqs[0], struct kvctx_req, wait.node);
	if (req)
		kvctx_queue_out(q, req);
	os_unlock_task(&q->lock);
	return req;
}

/* By one at a time. true: somebody waits still, again on the tick */
bool kvctx_park_retry(struct kvctx_queue *q)
{
	struct kvctx_req *req;
	int err;

	/* what is tried again counts as waiting, until its effect is there */
	os_atomic_inc(&q->waiting);
	kvctx_queue_weed(q, true);
	while ((req = park_first(q))) {
		err = kvctx_req_attempt(req);
		if (err == -EAGAIN) {
			err = park_add(q, req, true);
			if (!err)
				break;
		}
		if (err)
			kvctx_req_complete(req, err, 0);
		os_relax();
	}
	/* pairs with kvctx_park_at_once() */
	return !os_atomic_dec_and_test(&q->waiting);
}

static void park_drop(struct kvctx_req *req, int err)
{
	kvctx_req_complete(req, err, 0);
}

void kvctx_park_init(struct kvctx_queue *q)
{
	kvctx_queue_init(q, park_drop);
}
