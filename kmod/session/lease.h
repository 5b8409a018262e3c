/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * Leases of a session, and MATCH, see lease.c and match.c. The server has the timer.
 */
#ifndef KVCTX_LEASE_H
#define KVCTX_LEASE_H

#include "session/slots.h"

struct kvctx_leases {
	struct os_lock lock;		/* all that changes */
	struct kvc_pool *core;
	/* The server's: have kvctx_leases_expire() called at @end, not before. Leases locked */
	void (*arm)(struct kvctx_leases *t, u64 end);
	struct kvctx_tree ids, ends;
	u32 pages;
	u32 last_id;
	bool closed;			/* no lease is added any more */
};

/* Zero before; leaves @t->core and @t->arm to the caller. */
void kvctx_leases_init(struct kvctx_leases *t);
void kvctx_leases_expire(struct kvctx_leases *t, u64 now);
void kvctx_leases_close(struct kvctx_leases *t);
s32 kvctx_lease_one(struct kvctx_leases *t, struct kvc_domain *d, const struct kvctx_sqe *sqe);
int kvctx_lease_release(struct kvctx_leases *t, u32 id);

/* For match.c: a lease of up to @nr pages, which stand in kvctx_lease_pages() */
struct kvctx_lease;
struct kvctx_lease *kvctx_lease_alloc(u32 nr);
struct kvc_lease *kvctx_lease_pages(struct kvctx_lease *l);
s32 kvctx_lease_enter(struct kvctx_leases *t, struct kvctx_lease *l, u32 nr, u32 ms);

/* What a MATCH asks for, and what it finds */
struct kvctx_lookup {
	struct kvctx_leases *leases;
	struct kvctx_slots *slots;	/* NULL: nothing is read ahead */
	struct kvc_domain *domain;
	void *batch;			/* for slots */
	u32 flags;			/* KVCTX_MATCH_* */
	u32 nr_keys;
	u32 lease_ms;
	struct kvctx_key *keys;		/* not in their places afterwards */
	u64 *present;			/* kvc_bits(nr_keys) words of zeros; without ALL not used */
	u32 *lens;			/* or NULL */
	struct kvctx_found found;
};

int kvctx_match_find(struct kvctx_lookup *m);
struct kvctx_found *kvctx_match_answer(struct kvctx_lookup *m, const struct kvctx_req *req, u32 *bytes);

#endif
