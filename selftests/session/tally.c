// SPDX-License-Identifier: GPL-2.0
/*
 * Counting for tenants: what counts as what, and in which bucket a latency is.
 */
#include "parts.h"
#include "session/tally.h"

#define MANY	20000U

static struct kvctx_tally *tally;
static struct kvctx_tally_shard *shard;

static void ends(u8 opcode, u8 prio, u64 took, s32 res, u32 flags)
{
	struct kvctx_req req = { .opcode = opcode, .prio = prio, .length = 1000, .since = os_clock - took };

	kvctx_tally_count(shard, &req, res, flags, os_now());
}

static u64 sum(u32 which)
{
	return kvctx_tally_sum(tally, which);
}

static void test_counters(void)
{
	u32 i;

	ends(KVCTX_OP_STORE, KVCTX_PRIO_NORMAL, 5, 1000, 0);
	ends(KVCTX_OP_STORE, KVCTX_PRIO_NORMAL, 5, 1000, KVCTX_CQE_DEDUP);
	ends(KVCTX_OP_STORE, KVCTX_PRIO_NORMAL, 5, 0, KVCTX_CQE_UNADMITTED);
	ends(KVCTX_OP_STORE, KVCTX_PRIO_NORMAL, 5, -ENOSPC, 0);
	ends(KVCTX_OP_LOAD, KVCTX_PRIO_URGENT, 5, 1000, KVCTX_CQE_VERIFIED);
	ends(KVCTX_OP_LOAD, KVCTX_PRIO_BACKGROUND, 5, 1000, KVCTX_CQE_FROM_DRAM);
	ends(KVCTX_OP_GET, KVCTX_PRIO_URGENT, 5, 0, 0);
	ends(KVCTX_OP_LOAD, KVCTX_PRIO_URGENT, 5, -ENOENT, 0);
	ends(KVCTX_OP_LOAD, KVCTX_PRIO_URGENT, 5, -EIO, 0);
	/* these move nothing for their callers, and are told when they fail */
	ends(KVCTX_OP_PREFETCH, KVCTX_PRIO_BACKGROUND, 5, 0, 0);
	ends(KVCTX_OP_MATCH, KVCTX_PRIO_NORMAL, 5, 7, 0);
	ends(KVCTX_OP_FLUSH, KVCTX_PRIO_NORMAL, 5, -EIO, 0);
	kvctx_tally_refused(shard, KVCTX_OP_GET, -ENOENT);
	kvctx_tally_refused(shard, KVCTX_OP_QUERY, -ENOENT);
	kvctx_tally_refused(shard, KVCTX_OP_QUERY, 1000);
	kvctx_tally_refused(shard, 250, -EINVAL);
	EXPECT(sum(KVCTX_T_STORES) == 1 && sum(KVCTX_T_STORE_BYTES) == 1000 && sum(KVCTX_T_DEDUPS) == 1);
	EXPECT(sum(KVCTX_T_UNADMITTED) == 1 && sum(KVCTX_T_LOADS) == 3 && sum(KVCTX_T_LOAD_BYTES) == 3000);
	EXPECT(sum(KVCTX_T_FROM_DRAM) == 1 && sum(KVCTX_T_MISSES) == 2 && sum(KVCTX_T_FAILED) == 5);
	/* sessions count in different places, and the sum has all of them */
	for (i = 0; i < 2 * KVCTX_TALLY_SHARDS; i++) {
		shard = kvctx_tally_join(tally);
		ends(KVCTX_OP_STORE, KVCTX_PRIO_NORMAL, 5, 1000, 0);
	}
	EXPECT(sum(KVCTX_T_STORES) == 1 + 2 * KVCTX_TALLY_SHARDS);
}

/* Each latency is in the bucket that the contract says, whose bounds are a quarter of an octave apart at most. */
static void test_buckets(void)
{
	struct kvctx_genl_latency l;
	u64 ns, from;
	u32 i, right = 0;

	EXPECT(!kvctx_tally_latency(tally, KVCTX_TALLY_STORE, KVCTX_PRIO_URGENT - KVCTX_PRIO_URGENT, &l));
	for (i = 0; i < KVCTX_LATENCIES; i++) {
		from = i ? (1ULL << (10 + (i - 1) / 4)) * (4 + (i - 1) % 4) / 4 : 0;
		for (ns = from; ns < from + 3; ns++)
			ends(KVCTX_OP_STORE, KVCTX_PRIO_URGENT, ns, 1000, 0);
		if (i)
			ends(KVCTX_OP_STORE, KVCTX_PRIO_URGENT, from - 1, 1000, 0);
	}
	ends(KVCTX_OP_STORE, KVCTX_PRIO_URGENT, 1ULL << 60, 1000, 0);
	EXPECT(kvctx_tally_latency(tally, KVCTX_TALLY_STORE, 0, &l));
	EXPECT(l.opcode == KVCTX_OP_STORE && l.prio == KVCTX_PRIO_URGENT);
	for (i = 0; i < KVCTX_LATENCIES; i++)
		right += l.nr[i] == 4;
	EXPECT(right == KVCTX_LATENCIES);
	EXPECT(kvctx_tally_latency(tally, KVCTX_TALLY_LOAD, KVCTX_PRIO_BACKGROUND - KVCTX_PRIO_URGENT, &l));
	EXPECT(l.opcode == KVCTX_OP_LOAD && l.prio == KVCTX_PRIO_BACKGROUND && l.nr[0] == 1);
}

static void count_many(u32 thread)
{
	struct kvctx_tally_shard *mine = kvctx_tally_join(tally);
	struct kvctx_req req = { .opcode = KVCTX_OP_LOAD, .prio = KVCTX_PRIO_NORMAL, .length = 1, .since = os_clock };
	u32 i;

	for (i = 0; i < MANY; i++)
		kvctx_tally_count(thread % 2 ? mine : shard, &req, 1, 0, os_now());
}

void test_tally(void)
{
	struct kvctx_genl_latency l;
	u64 before;

	os_clock = 1ULL << 61;
	tally = kvctx_tally_new();
	shard = kvctx_tally_join(tally);
	test_counters();
	test_buckets();
	before = sum(KVCTX_T_LOAD_BYTES);
	in_threads(4, count_many);
	EXPECT(sum(KVCTX_T_LOAD_BYTES) - before == 4 * MANY);
	EXPECT(kvctx_tally_latency(tally, KVCTX_TALLY_LOAD, 1, &l) && l.nr[0] == 4 * MANY);
	os_free(tally);
}
