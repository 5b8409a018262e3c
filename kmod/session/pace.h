/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * What a tenant may have of a pool at a time: operations in flight, and bytes a second. See pace.c.
 */
#ifndef KVCTX_PACE_H
#define KVCTX_PACE_H

#include "session/wait.h"

#define KVCTX_PACE_SECOND	(1000 * KVCTX_NSEC_PER_MS)

/* A tenant's */
struct kvctx_lane {
	struct os_atomic inflight;	/* operations that went, and have not ended */
	struct os_atomic again;		/* those of them that had to wait for space first, beside the others */
	struct os_atomic64 next;	/* when what went is paid for: none goes before. It may wrap */
	struct kvc_pace limit;		/* in force; under the queue's lock, also read without it */
	u64 late;			/* when one went that had waited too long for its rank; the same lock */
	struct kvctx_queue queue;	/* a rank each, as for turns */
};

struct kvctx_pace {
	struct kvctx_lane of[KVC_TENANTS_MAX];	/* by the tenant's slot */
};

void kvctx_pace_init(struct kvctx_pace *p);
int kvctx_pace_enter(struct kvctx_pace *p, struct kvctx_req *req);
void kvctx_pace_charge(struct kvctx_pace *p, struct kvctx_req *req, u32 bytes);
bool kvctx_pace_run(struct kvctx_pace *p);
void kvctx_pace_weed(struct kvctx_pace *p);

/* Has the tenant, which may have that much, anything left for what nobody waits for? */
static inline bool kvctx_pace_has_room(const struct kvctx_pace *p, u32 tenant, const struct kvc_pace *limit)
{
	const struct kvctx_lane *l = &p->of[tenant];

	return !os_atomic_read(&l->queue.waiting) &&
	       (!limit->inflight || os_atomic_read(&l->inflight) < limit->inflight) &&
	       (!limit->bandwidth || (s64)(os_atomic64_read(&l->next) - os_now()) <= 0);
}

/*
 * @req has ended that went. @moved: it came to a transfer; otherwise what it was charged is given back. Any context.
 * true: somebody waits who may go now, call kvctx_pace_run() soon
 */
static inline bool kvctx_pace_leave(struct kvctx_pace *p, struct kvctx_req *req, bool moved)
{
	struct kvctx_lane *l = &p->of[req->tenant];

	/* what was charged under another limit is forgotten */
	if (!moved && req->pace.generation == READ_ONCE(l->limit.generation))
		os_atomic64_sub(&l->next, req->pace.cost);
	if (req->pace.state == KVCTX_PACE_WENT)
		os_atomic_dec(&l->inflight);
	else if (req->pace.state == KVCTX_PACE_AGAIN)
		os_atomic_dec(&l->again);
	/* pairs with kvctx_pace_enter() */
	os_mb_after_atomic();
	return os_atomic_read(&l->queue.waiting) && (!moved || READ_ONCE(l->limit.inflight));
}

/*
 * @req went, and finds no space: it is not in flight while it waits for that. Before anybody else sees it there. Who
 * may go now does on the tick.
 */
static inline void kvctx_pace_park(struct kvctx_pace *p, struct kvctx_req *req)
{
	if (req->pace.state != KVCTX_PACE_WENT)
		return;
	req->pace.state = KVCTX_PACE_PARKED;
	os_atomic_dec(&p->of[req->tenant].inflight);
}

/* It may have its place when there is one, unless enough such are in flight. One caller at a time, in a lane. */
static inline bool kvctx_pace_may_resume(const struct kvctx_pace *p, const struct kvctx_req *req)
{
	const struct kvctx_lane *l = &p->of[req->tenant];
	u32 most = READ_ONCE(l->limit.inflight);

	return req->pace.state != KVCTX_PACE_PARKED || !most || os_atomic_read(&l->again) < most;
}

/* And has it */
static inline void kvctx_pace_resume(struct kvctx_pace *p, struct kvctx_req *req)
{
	if (req->pace.state != KVCTX_PACE_PARKED)
		return;
	req->pace.state = KVCTX_PACE_AGAIN;
	os_atomic_inc(&p->of[req->tenant].again);
}

#endif
