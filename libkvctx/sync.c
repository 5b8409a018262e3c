// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Synchronous calls: one operation each, submitted past the handle's queue as a pending one, and
 * waited for. Any number may be under way. A staged one takes a slot of stage.c meanwhile.
 */
#include <stdlib.h>

#include "handle.h"

struct call {
	struct kvctx_pending pending;	/* first: call_done() gets this */
	struct kvctx_waiter waiter;
	bool done;
	int32_t res;
	uint32_t flags;
};

static bool call_done(struct kvctx *ctx, struct kvctx_pending *p, const struct kvctx_cqe *cqe)
{
	struct call *call = (struct call *)p;

	kvctx_pending_remove(ctx, p);
	call->res = cqe->res;
	call->flags = cqe->flags;
	call->done = true;
	if (call->waiter.listed)
		pthread_cond_signal(&call->waiter.cond);
	return false;
}

/* Returns the operation's result */
int64_t kvctx_call(struct kvctx *ctx, struct kvctx_sqe *sqe, uint32_t *cqe_flags)
{
	struct call call = { .pending.done = call_done };
	int ret;

	pthread_mutex_lock(&ctx->lock);
	kvctx_pending_add(ctx, &call.pending);
	sqe->user_data = call.pending.tag;
	while ((ret = kvctx_ring_submit(ctx, sqe, 1, 0, 0)) == -EAGAIN)
		kvctx_wait_room(ctx);
	if (ret < 0)
		kvctx_pending_remove(ctx, &call.pending);
	else	/* the kernel has taken the operation: it will complete */
		kvctx_wait_done(ctx, &call.waiter, &call.done);
	pthread_mutex_unlock(&ctx->lock);
	if (ret < 0)
		return ret;
	if (cqe_flags)
		*cqe_flags = call.flags;
	return call.res;
}

static int64_t run_on(struct kvctx *ctx, struct kvctx_sqe *sqe, uint32_t mem, uint64_t offset,
		      uint32_t *cqe_flags)
{
	sqe->mem = mem;
	sqe->segs = offset;
	sqe->timeout_ns = ctx->timeout_ns;
	return kvctx_call(ctx, sqe, cqe_flags);
}

/* Memory that the session does not know is pinned meanwhile */
static int64_t run_pinned(struct kvctx *ctx, struct kvctx_sqe *sqe, const void *buf,
			  uint32_t *cqe_flags)
{
	struct kvctx_mem_register reg = {
		.size = sizeof(reg),
		.addr = (uintptr_t)buf,
		.length = sqe->length,
	};
	struct kvctx_mem_unregister un = { .size = sizeof(un) };
	int64_t ret;

	ret = kvctx_sys_ioctl(ctx->file, KVCTX_IOC_MEM_REGISTER, &reg);
	if (ret)
		return ret;
	ret = run_on(ctx, sqe, reg.id, 0, cqe_flags);
	un.id = reg.id;
	kvctx_sys_ioctl(ctx->file, KVCTX_IOC_MEM_UNREGISTER, &un);
	return ret;
}

/* A page in memory that cannot be pinned, since nobody may write it */
static int64_t run_copied(struct kvctx *ctx, struct kvctx_sqe *sqe, const void *buf,
			  uint32_t *cqe_flags)
{
	void *copy = malloc(sqe->length);
	int64_t ret;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, buf, sqe->length);
	ret = run_pinned(ctx, sqe, copy, cqe_flags);
	free(copy);
	return ret;
}

/* Move a page between @buf and the pool */
static int64_t move(struct kvctx *ctx, uint8_t opcode, const struct kvctx_key *key, const void *buf,
		    size_t len, uint32_t *cqe_flags)
{
	struct kvctx_sqe sqe = { .opcode = opcode, .key = *key, .length = len };
	uintptr_t p = (uintptr_t)buf, arena = (uintptr_t)ctx->arena;
	struct kvctx_reg *reg;
	int64_t ret;

	if (len > ctx->info.page_len_max)
		return opcode == KVCTX_OP_STORE ? -E2BIG : -ERANGE;
	if (arena && p >= arena && p - arena <= ctx->arena_bytes &&
	    len <= ctx->arena_bytes - (p - arena))
		return run_on(ctx, &sqe, KVCTX_MEM_ARENA, p - arena, cqe_flags);
	reg = kvctx_mem_get(ctx, buf, len);
	if (reg) {
		ret = run_on(ctx, &sqe, reg->id, p - reg->addr, cqe_flags);
		kvctx_mem_put(ctx, reg);
		return ret;
	}
	ret = run_pinned(ctx, &sqe, buf, cqe_flags);
	if (ret == -EFAULT && opcode == KVCTX_OP_STORE)
		ret = run_copied(ctx, &sqe, buf, cqe_flags);
	return ret;
}

/* Sooner or later: slots of asynchronous operations come back as we bring these further */
static int64_t wait_slot(struct kvctx *ctx, uint64_t bytes)
{
	int64_t slot;

	pthread_mutex_lock(&ctx->lock);
	while ((slot = kvctx_stage_take_slot(ctx, bytes)) == -EAGAIN)
		if (kvctx_stage_step(ctx) <= 0)
			kvctx_wait_room(ctx);
	pthread_mutex_unlock(&ctx->lock);
	return slot;
}

/* Move a page through a slot */
static int64_t run_staged(struct kvctx *ctx, const struct kvctx_sqe *sqe, void *buf,
			  uint32_t *cqe_flags)
{
	int64_t slot = wait_slot(ctx, sqe->length), ret = 0;
	bool store = sqe->opcode == KVCTX_OP_STORE;
	struct kvctx_sqe again;
	int err = 0;

	if (slot < 0)
		return slot;
	again = kvctx_stage_on_slot(ctx, sqe, (uint32_t)slot);
	if (store)
		ret = kvctx_stage_copy(ctx, sqe, buf, (uint32_t)slot);
	if (!ret)
		ret = kvctx_call(ctx, &again, cqe_flags);
	if (ret > 0 && !store)
		err = kvctx_stage_copy(ctx, sqe, buf, (uint32_t)slot);
	pthread_mutex_lock(&ctx->lock);
	kvctx_stage_give_slot(ctx, (uint32_t)slot);
	pthread_mutex_unlock(&ctx->lock);
	if (cqe_flags && ret >= 0)	/* 0: a STORE that was not admitted */
		*cqe_flags |= KVCTX_CQE_STAGED;
	return err ? err : ret;
}

/* As move(), of memory that may be a peer's or none of the host's */
static int64_t move_staged(struct kvctx *ctx, struct kvctx_sqe *sqe, void *buf,
			   uint32_t *cqe_flags)
{
	uintptr_t p = (uintptr_t)buf;
	int64_t ret = -EREMOTEIO;
	struct kvctx_reg *reg;

	if (!ctx->stage || !sqe->length)
		return -EINVAL;
	if (sqe->length > ctx->info.page_len_max)
		return sqe->opcode == KVCTX_OP_STORE ? -E2BIG : -ERANGE;
	if (ctx->rdonly && sqe->opcode == KVCTX_OP_STORE)
		return -EACCES;
	reg = kvctx_mem_get(ctx, buf, sqe->length);
	if (reg)
		ret = run_on(ctx, sqe, reg->id, p - reg->addr, cqe_flags);
	if (ret == -EREMOTEIO)
		ret = run_staged(ctx, sqe, buf, cqe_flags);
	if (reg)
		kvctx_mem_put(ctx, reg);
	return ret;
}

int64_t kvctx_store_staged(struct kvctx *ctx, const struct kvctx_key *key, const void *buf,
			   size_t len, const uint32_t *crcs, uint32_t *cqe_flags)
{
	struct kvctx_sqe sqe = {
		.opcode = KVCTX_OP_STORE, .key = *key, .length = len, .crcs = (uintptr_t)crcs,
		.timeout_ns = ctx->timeout_ns,
	};

	/* only read: a copy function gets it as what it reads from */
	return move_staged(ctx, &sqe, (void *)(uintptr_t)buf, cqe_flags);
}

int64_t kvctx_load_staged(struct kvctx *ctx, const struct kvctx_key *key, void *buf, size_t len,
			  uint32_t *crcs, uint32_t *cqe_flags)
{
	struct kvctx_sqe sqe = {
		.opcode = KVCTX_OP_LOAD, .key = *key, .length = len, .crcs = (uintptr_t)crcs,
		.timeout_ns = ctx->timeout_ns,
	};

	return move_staged(ctx, &sqe, buf, cqe_flags);
}

int64_t kvctx_store(struct kvctx *ctx, const struct kvctx_key *key, const void *buf, size_t len,
		    uint32_t *cqe_flags)
{
	return move(ctx, KVCTX_OP_STORE, key, buf, len, cqe_flags);
}

int64_t kvctx_load(struct kvctx *ctx, const struct kvctx_key *key, void *buf, size_t len,
		   uint32_t *cqe_flags)
{
	return move(ctx, KVCTX_OP_LOAD, key, buf, len, cqe_flags);
}

int kvctx_delete(struct kvctx *ctx, const struct kvctx_key *key)
{
	struct kvctx_sqe sqe = { .timeout_ns = ctx->timeout_ns };

	kvctx_prep_delete(&sqe, key);
	return (int)kvctx_call(ctx, &sqe, NULL);
}

int64_t kvctx_query(struct kvctx *ctx, const struct kvctx_key *key)
{
	struct kvctx_sqe sqe = { 0 };

	kvctx_prep_query(&sqe, key);
	return kvctx_call(ctx, &sqe, NULL);
}

int kvctx_flush(struct kvctx *ctx)
{
	struct kvctx_sqe sqe = { .timeout_ns = ctx->timeout_ns };

	kvctx_prep_flush(&sqe);
	return (int)kvctx_call(ctx, &sqe, NULL);
}

int kvctx_lease(struct kvctx *ctx, const struct kvctx_key *key, uint32_t ms, uint32_t *lease)
{
	struct kvctx_sqe sqe = { 0 };
	int64_t ret;

	kvctx_prep_lease(&sqe, key, ms);
	ret = kvctx_call(ctx, &sqe, NULL);
	if (ret < 0)
		return (int)ret;
	*lease = (uint32_t)ret;
	return 0;
}

int kvctx_release(struct kvctx *ctx, uint32_t lease)
{
	struct kvctx_sqe sqe = { 0 };

	kvctx_prep_release(&sqe, lease);
	return (int)kvctx_call(ctx, &sqe, NULL);
}

static int64_t match(struct kvctx *ctx, struct kvctx_match *m, uint32_t *lease)
{
	int ret;

	if (m->lease_ms && !lease)
		return -EINVAL;
	ret = kvctx_sys_ioctl(ctx->file, KVCTX_IOC_MATCH, m);
	if (ret)
		return ret;
	if (lease)
		*lease = m->lease;
	return m->nr_present;
}

int64_t kvctx_match(struct kvctx *ctx, const struct kvctx_key *keys, uint32_t nr, uint32_t *lens,
		    uint32_t lease_ms, uint32_t *lease)
{
	struct kvctx_match m = {
		.size = sizeof(m),
		.flags = lease_ms ? KVCTX_MATCH_LEASE : 0,
		.keys = (uintptr_t)keys,
		.lens = (uintptr_t)lens,
		.nr_keys = nr,
		.lease_ms = lease_ms,
	};

	return match(ctx, &m, lease);
}

int64_t kvctx_match_all(struct kvctx *ctx, const struct kvctx_key *keys, uint32_t nr, uint64_t *present,
			uint32_t *lens, uint32_t lease_ms, uint32_t *lease)
{
	struct kvctx_match m = {
		.size = sizeof(m),
		.flags = KVCTX_MATCH_ALL | (lease_ms ? KVCTX_MATCH_LEASE : 0),
		.keys = (uintptr_t)keys,
		.lens = (uintptr_t)lens,
		.nr_keys = nr,
		.lease_ms = lease_ms,
		.present = (uintptr_t)present,
	};

	return match(ctx, &m, lease);
}
