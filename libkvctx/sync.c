// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Synchronous calls: one operation, submitted past the handle's queue and waited for. Its user_data is one of the
 * library's own; completions of others that are met on the way go to the stash, from where kvctx_peek() takes them.
 */
#include "handle.h"

static void stash(struct kvctx *ctx, const struct kvctx_cqe *cqe)
{
	uint32_t at = (ctx->stash_head + ctx->stash_len) & (2 * ctx->ring_entries - 1);

	ctx->stash[at] = *cqe;
	ctx->stash_len++;
}

/*
 * Take completions until ours is there. The stash has twice the ring's length and was less than half a ring full; since
 * nobody submits while we hold the lock, at most a ring's worth is added to it here.
 */
static int64_t await(struct kvctx *ctx, uint64_t tag, uint32_t *cqe_flags)
{
	struct kvctx_wait w = { .size = sizeof(w), .min = 1, .timeout_ns = KVCTX_TIMEOUT_NONE };
	struct kvctx_cqe cqe;
	int ret;

	for (;;) {
		ret = kvctx_ring_take(ctx, &cqe);
		if (ret < 0)
			return ret;
		if (ret == 0) {
			ret = kvctx_sys_ioctl(ctx->fd, KVCTX_IOC_WAIT, &w);
			if (ret < 0 && ret != -EINTR)
				return ret;
			continue;
		}
		if (cqe.user_data == tag) {
			if (cqe_flags)
				*cqe_flags = cqe.flags;
			return cqe.res;
		}
		stash(ctx, &cqe);
	}
}

/* With ctx->lock held */
static int64_t run_locked(struct kvctx *ctx, struct kvctx_sqe *sqe, uint32_t *cqe_flags)
{
	struct kvctx_submit s = { .size = sizeof(s), .sqes = (uintptr_t)sqe, .nr = 1 };
	int ret;

	/* The caller has to take what it has not looked at before more is moved aside */
	if (ctx->stash_len >= ctx->ring_entries / 2)
		return -EAGAIN;
	sqe->user_data = KVCTX_USER_DATA_END + (uint32_t)ctx->sync_serial++;
	ret = kvctx_sys_ioctl(ctx->fd, KVCTX_IOC_SUBMIT, &s);
	if (ret < 0)
		return ret;
	return await(ctx, sqe->user_data, cqe_flags);
}

static int64_t run(struct kvctx *ctx, struct kvctx_sqe *sqe, uint32_t *cqe_flags)
{
	int64_t ret;

	pthread_mutex_lock(&ctx->lock);
	ret = run_locked(ctx, sqe, cqe_flags);
	pthread_mutex_unlock(&ctx->lock);
	return ret;
}

/* Move a page between @buf and the pool; memory that the session does not know is pinned meanwhile */
static int64_t move(struct kvctx *ctx, uint8_t opcode, const struct kvctx_key *key, const void *buf, size_t len,
		    uint32_t *cqe_flags)
{
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (uintptr_t)buf, .length = len };
	struct kvctx_mem_unregister un = { .size = sizeof(un) };
	struct kvctx_sqe sqe = { 0 };
	struct kvctx_seg seg = { 0 };
	bool known;
	int64_t ret;

	if (len > ctx->info.page_len_max)
		return -E2BIG;
	pthread_mutex_lock(&ctx->lock);
	known = kvctx_find_memory(ctx, buf, len, &seg);
	if (!known) {
		ret = kvctx_sys_ioctl(ctx->fd, KVCTX_IOC_MEM_REGISTER, &reg);
		if (ret)
			goto unlock;
		seg.mem = reg.id;
	}
	kvctx_prep_rw(&sqe, opcode, key, &seg, 1, len);
	ret = run_locked(ctx, &sqe, cqe_flags);
	if (!known) {
		un.id = reg.id;
		kvctx_sys_ioctl(ctx->fd, KVCTX_IOC_MEM_UNREGISTER, &un);
	}
unlock:
	pthread_mutex_unlock(&ctx->lock);
	return ret;
}

int64_t kvctx_store(struct kvctx *ctx, const struct kvctx_key *key, const void *buf, size_t len, uint32_t *cqe_flags)
{
	return move(ctx, KVCTX_OP_STORE, key, buf, len, cqe_flags);
}

int64_t kvctx_load(struct kvctx *ctx, const struct kvctx_key *key, void *buf, size_t len, uint32_t *cqe_flags)
{
	return move(ctx, KVCTX_OP_LOAD, key, buf, len, cqe_flags);
}

int kvctx_delete(struct kvctx *ctx, const struct kvctx_key *key)
{
	struct kvctx_sqe sqe = { 0 };

	kvctx_prep_delete(&sqe, key);
	return (int)run(ctx, &sqe, NULL);
}

int64_t kvctx_query(struct kvctx *ctx, const struct kvctx_key *key)
{
	struct kvctx_sqe sqe = { 0 };

	kvctx_prep_query(&sqe, key);
	return run(ctx, &sqe, NULL);
}

int kvctx_flush(struct kvctx *ctx)
{
	struct kvctx_sqe sqe = { 0 };

	kvctx_prep_flush(&sqe);
	return (int)run(ctx, &sqe, NULL);
}

int kvctx_lease(struct kvctx *ctx, const struct kvctx_key *key, uint32_t ms, uint32_t *lease)
{
	struct kvctx_sqe sqe = { 0 };
	int64_t ret;

	kvctx_prep_lease(&sqe, key, ms);
	ret = run(ctx, &sqe, NULL);
	if (ret < 0)
		return (int)ret;
	*lease = (uint32_t)ret;
	return 0;
}

int kvctx_release(struct kvctx *ctx, uint32_t lease)
{
	struct kvctx_sqe sqe = { 0 };

	kvctx_prep_release(&sqe, lease);
	return (int)run(ctx, &sqe, NULL);
}

int64_t kvctx_match(struct kvctx *ctx, const struct kvctx_key *keys, uint32_t nr, uint32_t *lens, uint32_t lease_ms,
		    uint32_t *lease)
{
	struct kvctx_match m = {
		.size = sizeof(m),
		.flags = lease_ms ? KVCTX_MATCH_LEASE : 0,
		.keys = (uintptr_t)keys,
		.lens = (uintptr_t)lens,
		.nr_keys = nr,
		.lease_ms = lease_ms,
	};
	int ret;

	if (lease_ms && !lease)
		return -EINVAL;
	ret = kvctx_sys_ioctl(ctx->fd, KVCTX_IOC_MATCH, &m);
	if (ret)
		return ret;
	if (lease)
		*lease = m.lease;
	return m.nr_present;
}
