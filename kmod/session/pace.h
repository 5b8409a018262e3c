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
	struct os_atomic64 next;	/* when what went is paid for: none goes before. It may wrap */
	struct kvc_pace limit;		/* in force; under the queue's lock, also read without it */
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

	u64 rate = READ_ONCE(l->limit.bandwidth);

	/* at another rate, should that have changed, it is given back as more or less; then there are no debts */
	if (!moved && rate)
		os_atomic64_sub(&l->next, (u64)req->pace.bytes * KVCTX_PACE_SECOND / rate);
	os_atomic_dec(&l->inflight);
	/* pairs with kvctx_pace_enter() */
	os_mb_after_atomic();
	return os_atomic_read(&l->queue.waiting) && (!moved || READ_ONCE(l->limit.inflight));
}

#endif
