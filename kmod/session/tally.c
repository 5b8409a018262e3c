// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Counting for tenants. An operation is counted once, when its caller is told its end. Latencies are from SUBMIT to
 * then, of LOAD and GET, and of STORE, by the priority that they had; in four buckets an octave, so that a quantile
 * that is read from them is at most a quarter too long.
 */
#include "session/tally.h"

static void tally_add(struct kvctx_tally_shard *t, u32 which)
{
	os_atomic64_add(&t->nr[which], 1);
}

/* An operation that SUBMIT refused or answered itself, with @res */
void kvctx_tally_refused(struct kvctx_tally_shard *t, u32 opcode, s32 res)
{
	if (res >= 0)
		return;
	if (res == -ENOENT && (opcode == KVCTX_OP_LOAD || opcode == KVCTX_OP_GET))
		tally_add(t, KVCTX_T_MISSES);
	else
		tally_add(t, KVCTX_T_FAILED);
}

/* For kvctx_tally_count(): what is not just a page that moved between its caller and a device */
void kvctx_tally_rare(struct kvctx_tally_shard *t, const struct kvctx_req *req, s32 res, u32 flags, u64 now)
{
	if (res < 0) {
		kvctx_tally_refused(t, req->opcode, res);
		return;
	}
	if (flags & KVCTX_CQE_DEDUP)
		tally_add(t, KVCTX_T_DEDUPS);
	else if (flags & KVCTX_CQE_UNADMITTED)
		tally_add(t, KVCTX_T_UNADMITTED);
	else if (req->opcode == KVCTX_OP_LOAD || req->opcode == KVCTX_OP_GET)
		kvctx_tally_moved(t, req, KVCTX_TALLY_LOAD, req->length, now);
	if (flags & KVCTX_CQE_FROM_DRAM && (req->opcode == KVCTX_OP_LOAD || req->opcode == KVCTX_OP_GET))
		tally_add(t, KVCTX_T_FROM_DRAM);
}

struct kvctx_tally *kvctx_tally_new(void)
{
	os_static_assert(KVCTX_OP_LOAD - KVCTX_OP_STORE == KVCTX_TALLY_LOAD, "kinds are opcodes");
	return os_zalloc(sizeof(struct kvctx_tally));
}

/* Where a session counts from now on */
struct kvctx_tally_shard *kvctx_tally_join(struct kvctx_tally *t)
{
	return &t->shards[os_atomic_inc_return(&t->sessions) % KVCTX_TALLY_SHARDS];
}

static u64 tally_moves(const struct kvctx_tally_shard *t, u32 kind)
{
	u64 sum = 0;
	u32 i, j;

	for (i = KVCTX_PRIO_URGENT; i <= KVCTX_PRIO_BACKGROUND; i++)
		for (j = 0; j < KVCTX_LATENCIES; j++)
			sum += os_atomic64_read(&t->latency[kvctx_tally_row(kind, i) + j]);
	return sum;
}

static u64 tally_of(const struct kvctx_tally_shard *t, u32 which)
{
	switch (which) {
	case KVCTX_T_STORES:
		return tally_moves(t, KVCTX_TALLY_STORE);
	case KVCTX_T_LOADS:
		return tally_moves(t, KVCTX_TALLY_LOAD);
	case KVCTX_T_STORE_BYTES:
		return os_atomic64_read(&t->bytes[KVCTX_TALLY_STORE]);
	case KVCTX_T_LOAD_BYTES:
		return os_atomic64_read(&t->bytes[KVCTX_TALLY_LOAD]);
	default:
		return os_atomic64_read(&t->nr[which]);
	}
}

u64 kvctx_tally_sum(const struct kvctx_tally *t, u32 which)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < KVCTX_TALLY_SHARDS; i++)
		sum += tally_of(&t->shards[i], which);
	return sum;
}

/* Those of one kind and priority. False: there are none */
bool kvctx_tally_latency(const struct kvctx_tally *t, u32 kind, u32 prio, struct kvctx_genl_latency *l)
{
	bool any = false;
	u32 i, j;

	l->opcode = kind + KVCTX_OP_STORE;
	l->prio = prio + KVCTX_PRIO_URGENT;
	for (j = 0; j < KVCTX_LATENCIES; j++) {
		l->nr[j] = 0;
		for (i = 0; i < KVCTX_TALLY_SHARDS; i++)
			l->nr[j] += os_atomic64_read(&t->shards[i].latency[kvctx_tally_row(kind, l->prio) + j]);
		any |= l->nr[j];
	}
	return any;
}
