// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Pages read ahead into the session's slots. The kernel keeps the slots and counts who uses them;
 * the library maps them and tells where they are.
 */
#include "handle.h"

const void *kvctx_slots(const struct kvctx *ctx, size_t *slot_bytes, uint32_t *nr)
{
	if (slot_bytes)
		*slot_bytes = ctx->slot_bytes;
	if (nr)
		*nr = ctx->nr_slots;
	return ctx->slots;
}

int64_t kvctx_prefetch(struct kvctx *ctx, const struct kvctx_key *key, uint32_t ms,
		       uint32_t *cqe_flags)
{
	struct kvctx_sqe sqe = { .timeout_ns = ctx->timeout_ns };

	kvctx_prep_prefetch(&sqe, key, ms);
	return kvctx_call(ctx, &sqe, cqe_flags);
}

int64_t kvctx_get(struct kvctx *ctx, const struct kvctx_key *key, uint32_t ms, const void **page,
		  uint32_t *cqe_flags)
{
	struct kvctx_sqe sqe = { .timeout_ns = ctx->timeout_ns };
	int64_t slot;

	kvctx_prep_get(&sqe, key, ms);
	slot = kvctx_call(ctx, &sqe, cqe_flags);
	if (slot >= 0 && page)
		*page = (const char *)ctx->slots + (size_t)slot * ctx->slot_bytes;
	return slot;
}

int kvctx_put(struct kvctx *ctx, uint32_t slot)
{
	struct kvctx_sqe sqe = { 0 };

	kvctx_prep_put(&sqe, slot);
	return (int)kvctx_call(ctx, &sqe, NULL);
}

int64_t kvctx_match_prefetch(struct kvctx *ctx, const struct kvctx_key *keys, uint32_t nr,
			     uint32_t *lens, uint32_t ms, uint32_t *prefetched)
{
	struct kvctx_match m = {
		.size = sizeof(m),
		.flags = KVCTX_MATCH_PREFETCH,
		.keys = (uintptr_t)keys,
		.lens = (uintptr_t)lens,
		.nr_keys = nr,
		.lease_ms = ms,
	};
	int ret = kvctx_sys_ioctl(ctx->file, KVCTX_IOC_MATCH, &m);

	if (ret)
		return ret;
	if (prefetched)
		*prefetched = m.nr_prefetched;
	return m.nr_present;
}
