/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * What a tenant's operations came to, and how long they took. See tally.c.
 *
 * There are several of each number, and a session counts in one of them: processors do not wait for each other's cache
 * lines, and the sum is what is told. Numbers only grow.
 */
#ifndef KVCTX_TALLY_H
#define KVCTX_TALLY_H

#include <linux/kvctx_genl.h>

#include "session/req.h"

#define KVCTX_TALLY_SHARDS	8U
#define KVCTX_TALLY_NR		(KVCTX_T_FAILED + 1)

/* Of which latencies are known: opcodes less 1 */
enum { KVCTX_TALLY_STORE, KVCTX_TALLY_LOAD, KVCTX_TALLY_KINDS };
enum { KVCTX_TALLY_PRIOS = 3 };

#define KVCTX_TALLY_ROW		128U			/* buckets, of which LATENCIES are used; a power of two */

struct kvctx_tally_shard {
	struct os_atomic64 bytes[KVCTX_TALLY_KINDS];	/* that moved; latencies tell of how many operations */
	struct os_atomic64 latency[KVCTX_TALLY_KINDS * 4 * KVCTX_TALLY_ROW];	/* see kvctx_tally_row() */
	struct os_atomic64 nr[KVCTX_TALLY_NR];		/* by KVCTX_T_*, those of which there is no latency */
};

struct kvctx_tally {
	struct os_atomic sessions;			/* that there were: who is next counts where */
	struct kvctx_tally_shard shards[KVCTX_TALLY_SHARDS];
};

struct kvctx_tally *kvctx_tally_new(void);		/* NULL: no memory. Allocates; to be os_free()d */
struct kvctx_tally_shard *kvctx_tally_join(struct kvctx_tally *t);
void kvctx_tally_rare(struct kvctx_tally_shard *t, const struct kvctx_req *req, s32 res, u32 flags, u64 now);
void kvctx_tally_refused(struct kvctx_tally_shard *t, u32 opcode, s32 res);
u64 kvctx_tally_sum(const struct kvctx_tally *t, u32 which);
bool kvctx_tally_latency(const struct kvctx_tally *t, u32 kind, u32 prio, struct kvctx_genl_latency *l);

/* As struct kvctx_genl_latency has them */
static inline u32 kvctx_tally_bucket(u64 ns)
{
	u32 log, bucket;

	if (ns < 1024)
		return 0;
	log = (u32)__builtin_clzll(ns) ^ 63;
	bucket = log * 4 - 39 + ((u32)(ns >> ((log - 2) & 63)) & 3);
	return bucket < KVCTX_LATENCIES ? bucket : KVCTX_LATENCIES - 1;
}

/* Where the latencies of a kind and enum kvctx_prio begin */
static inline u32 kvctx_tally_row(u32 kind, u32 prio)
{
	return (kind * 4 + prio) * KVCTX_TALLY_ROW;
}

static inline void kvctx_tally_moved(struct kvctx_tally_shard *t, const struct kvctx_req *req, u32 kind, u32 bytes,
				     u64 now)
{
	u32 bucket = kvctx_tally_row(kind, req->prio) + kvctx_tally_bucket(now - req->since);

	os_atomic64_add(t->bytes + kind, bytes);
	os_atomic64_add(t->latency + bucket, 1);
}

/* An operation that was started has ended. Any context. These are instructions of each operation. */
static inline void kvctx_tally_count(struct kvctx_tally_shard *t, const struct kvctx_req *req, s32 res, u32 flags,
				     u64 now)
{
	u32 kind = req->opcode - KVCTX_OP_STORE;

	if (unlikely(res <= 0 || kind >= KVCTX_TALLY_KINDS ||
		     flags & (KVCTX_CQE_DEDUP | KVCTX_CQE_UNADMITTED | KVCTX_CQE_FROM_DRAM)))
		kvctx_tally_rare(t, req, res, flags, now);
	else
		kvctx_tally_moved(t, req, kind, (u32)res, now);
}

#endif
