/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * What operations wait in: for space in the pool (park.c), for a turn at a member's device (turn.c), both of them
 * queues (queue.c). The server has the threads that let them go on, soon or on a slow tick as long as anybody waits.
 */
#ifndef KVCTX_WAIT_H
#define KVCTX_WAIT_H

#include "session/req.h"

#define KVCTX_TICK_MS		10U
#define KVCTX_TURN_MAX_BYTES	(256U << 20)	/* in flight at a member, of URGENT ones and of the others each */

/* Who is, or was last, being tried again; under the lock of its queue */
struct kvctx_tried {
	const void *owner;		/* kvctx_req_owner() */
	u64 user_data;
	bool cancelled;			/* a CANCEL named it meanwhile; read without the lock, too */
};

struct kvctx_queue {
	struct os_atomic waiting;	/* who is in it, or about to be, or being tried again; not the passed ones */
	struct os_lock lock;		/* what follows */
	struct list_head reqs[3];	/* those of a rank go before those of the next */
	struct os_atomic passed;	/* in it, but in nobody's way, see park.c */
	u64 full;			/* members without space for one of these; read without the lock, too */
	u64 until;			/* the earliest deadline among them */
	bool turns;			/* those in it are in a flow, too, see turn.c; never changes */
	struct kvctx_tried tried;	/* see park.c */
	void (*drop)(struct kvctx_req *req, int err);	/* the end of one that gives up; never changes; no lock */
};

struct kvctx_park {
	bool some;			/* wait here; a hint, true on the next tick at the latest; no lock */
	struct kvctx_queue of[KVC_TENANTS_MAX];	/* a tenant's STOREs and DELETEs, by its slot */
	/* of who tries them again */
	u64 pass[KVC_TENANTS_MAX];	/* bytes that went over the tenant's weight */
	u64 last;			/* the pass of who went last: of any who wait now it is not less */
};

enum { KVCTX_TURN_URGENT, KVCTX_TURN_NORMAL, KVCTX_TURN_BACKGROUND, KVCTX_TURN_RANKS };

#define KVCTX_TURN_SHARED	U32_MAX		/* for kvctx_turn.alone, .last: several tenants; none yet */

/* What a tenant has of a member */
struct kvctx_flow {
	struct list_head node;		/* in turn->flows while something waits, and until that is noticed */
	struct list_head reqs[KVCTX_TURN_RANKS];	/* what waits, in order */
	u64 pass[2];			/* bytes that went over its weight: URGENT ones, the others */
};

struct kvctx_turn {
	struct os_atomic64 urgent;	/* bytes in flight of URGENT operations, at least one of each */
	struct os_atomic64 bytes;	/* of the less urgent ones */
	u32 alone;			/* the only tenant that comes, or SHARED; read without the lock, too */
	struct kvctx_queue queue;	/* a rank each */
	/* under queue.lock */
	u32 last;			/* whose operation came last, */
	u64 since;			/* and no other's came since then */
	u64 pass[2];			/* of who went last: of any who come now it is not less */
	u32 longest;			/* bytes of the longest operation that came lately, */
	u64 longest_since;		/* and when */
	u64 late;			/* when one went that had waited too long for its priority */
	struct list_head flows;
	struct kvctx_flow of[KVC_TENANTS_MAX];	/* by the tenant's slot */
};

/* queue.c */
void kvctx_queue_init(struct kvctx_queue *q, void (*drop)(struct kvctx_req *req, int err));
int kvctx_queue_add(struct kvctx_queue *q, u32 rank, struct kvctx_req *req, bool front);
void kvctx_queue_out(struct kvctx_queue *q, struct kvctx_req *req);
void kvctx_queue_try(struct kvctx_queue *q, struct kvctx_req *req);
void kvctx_queue_weed(struct kvctx_queue *q, bool late);
u32 kvctx_queue_cancel(struct kvctx_queue *q, const void *session, u64 user_data);
u32 kvctx_queue_cancel_all(struct kvctx_queue *q, const void *session, const u64 *names, u32 nr_names);

/* park.c */
void kvctx_park_init(struct kvctx_park *p);
int kvctx_park(struct kvctx_park *p, struct kvctx_req *req);
bool kvctx_park_retry(struct kvctx_park *p);
void kvctx_park_weed(struct kvctx_park *p);

/* turn.c */
void kvctx_turn_init(struct kvctx_turn *t);
bool kvctx_turn_is_due(const struct kvctx_turn *t);
int kvctx_turn_queue(struct kvctx_turn *t, struct kvctx_req *req, u32 bytes);
bool kvctx_turn_recall(struct kvctx_turn *t, struct kvctx_req *req);
bool kvctx_turn_run(struct kvctx_turn *t);

/* Of passes, which may wrap */
static inline bool kvctx_pass_less(u64 pass, u64 other)
{
	return (s64)(pass - other) < 0;
}

/* @pass, or what those who come when @last went begin with */
static inline u64 kvctx_pass_caught_up(u64 pass, u64 last)
{
	return kvctx_pass_less(pass, last) ? last : pass;
}

/* Is an operation that came now to be tried, not to wait @behind those of its tenant that do? */
static inline bool kvctx_park_at_once(const struct kvctx_park *p, const struct kvctx_req *req, bool behind)
{
	const struct kvctx_queue *q = &p->of[req->tenant];

	/* pairs with kvctx_park_retry(): the effect of those that were tried again is seen */
	return !behind || req->flags & KVCTX_OP_NOWAIT ||
	       (!os_atomic_read(&q->waiting) && ~(req->barred | READ_ONCE(q->full)));
}

/* Bytes, now */
static inline u64 kvctx_turn_inflight(const struct kvctx_turn *t)
{
	return os_atomic64_read(&t->urgent) + os_atomic64_read(&t->bytes);
}

static inline void kvctx_turn_begin(struct kvctx_turn *t, u8 prio, u32 bytes)
{
	if (prio == KVCTX_PRIO_URGENT)
		os_atomic64_add(&t->urgent, bytes);
	else
		os_atomic64_add(&t->bytes, bytes);
}

/* Nobody is here whom @req may have to let go first, nor too much in flight. */
static inline bool kvctx_turn_at_once(const struct kvctx_turn *t, const struct kvctx_req *req)
{
	if (READ_ONCE(t->alone) != req->tenant)
		return false;
	/* half: while URGENT ones wait there is more, so none passes them */
	if (req->prio == KVCTX_PRIO_URGENT)
		return os_atomic64_read(&t->urgent) < KVCTX_TURN_MAX_BYTES / 2;
	return !(os_atomic64_read(&t->urgent) || os_atomic_read(&t->queue.waiting)) &&
	       os_atomic64_read(&t->bytes) < KVCTX_TURN_MAX_BYTES;
}

/*
 * Is it the turn of @req to move @bytes? 1: yes, and kvctx_turn_leave() follows when the transfer has ended; 0: it
 * waits, and kvctx_req_go() follows, @req may be gone; or why it will not. Process context.
 */
static inline int kvctx_turn_enter(struct kvctx_turn *t, struct kvctx_req *req, u32 bytes)
{
	if (!kvctx_turn_at_once(t, req))
		return kvctx_turn_queue(t, req, bytes);
	kvctx_turn_begin(t, req->prio, bytes);
	return 1;
}

/* Any context. true: somebody waits; if kvctx_turn_is_due(), call kvctx_turn_run() soon */
static inline bool kvctx_turn_leave(struct kvctx_turn *t, u8 prio, u32 bytes)
{
	if (prio == KVCTX_PRIO_URGENT)
		os_atomic64_sub(&t->urgent, bytes);
	else
		os_atomic64_sub(&t->bytes, bytes);
	/* pairs with kvctx_turn_queue() */
	os_mb_after_atomic();
	return unlikely(os_atomic_read(&t->queue.waiting));
}

#endif
