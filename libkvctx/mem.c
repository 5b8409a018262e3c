// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Registrations. The handle remembers them, so that synchronous calls can tell which one a buffer
 * lies in. The list is short and looked through from its newest.
 */
#include <stdlib.h>

#include "handle.h"

/*
 * A server in user space may use it without having registered it with io_uring, and says so from then on: a feature that
 * only comes, so of two threads either may be the last. Not under the lock, which nobody holds over a call.
 */
static void look_at_features(struct kvctx *ctx)
{
	uint64_t known = __atomic_load_n(&ctx->info.features, __ATOMIC_RELAXED);
	struct kvctx_info info = { .size = sizeof(info) };

	if (known & KVCTX_FEAT_PROCESS && !kvctx_sys_ioctl(ctx->file, KVCTX_IOC_INFO, &info))
		__atomic_fetch_or(&ctx->info.features, info.features & KVCTX_FEAT_UNREGISTERED, __ATOMIC_RELAXED);
}

int kvctx_mem_register(struct kvctx *ctx, void *addr, size_t len, uint32_t *id)
{
	struct kvctx_mem_register arg = {
		.size = sizeof(arg),
		.addr = (uintptr_t)addr,
		.length = len,
	};
	struct kvctx_reg *reg = calloc(1, sizeof(*reg));
	int ret;

	if (!reg)
		return -ENOMEM;
	ret = kvctx_sys_ioctl(ctx->file, KVCTX_IOC_MEM_REGISTER, &arg);
	if (ret) {
		free(reg);
		return ret;
	}
	reg->addr = (uintptr_t)addr;
	reg->len = len;
	reg->id = arg.id;
	*id = arg.id;
	look_at_features(ctx);
	pthread_mutex_lock(&ctx->lock);
	reg->next = ctx->regs;
	ctx->regs = reg;
	pthread_mutex_unlock(&ctx->lock);
	return 0;
}

/* Take a registration that nobody uses off the list */
static int unlink_reg(struct kvctx *ctx, uint32_t id, struct kvctx_reg **out)
{
	struct kvctx_reg **link, *reg;
	int ret = -EINVAL;

	pthread_mutex_lock(&ctx->lock);
	for (link = &ctx->regs; *link; link = &(*link)->next) {
		reg = *link;
		if (reg->id != id)
			continue;
		ret = reg->users || (ctx->batch_uses && ctx->batch_uses(ctx, id)) ? -EBUSY : 0;
		if (!ret) {
			*link = reg->next;
			*out = reg;
		}
		break;
	}
	pthread_mutex_unlock(&ctx->lock);
	return ret;
}

int kvctx_mem_unregister(struct kvctx *ctx, uint32_t id)
{
	struct kvctx_mem_unregister arg = { .size = sizeof(arg), .id = id };
	struct kvctx_reg *reg;
	int ret;

	/* First, since the kernel may give the id to someone else as soon as it is free */
	ret = unlink_reg(ctx, id, &reg);
	if (ret)
		return ret;
	ret = kvctx_sys_ioctl(ctx->file, KVCTX_IOC_MEM_UNREGISTER, &arg);
	if (!ret) {
		free(reg);
		return 0;
	}
	pthread_mutex_lock(&ctx->lock);
	reg->next = ctx->regs;
	ctx->regs = reg;
	pthread_mutex_unlock(&ctx->lock);
	return ret;
}

static bool holds(uintptr_t start, size_t bytes, uintptr_t p, size_t len)
{
	return p >= start && p - start <= bytes && len <= bytes - (p - start);
}

static struct kvctx_reg *find_reg(const struct kvctx *ctx, uintptr_t p, size_t len)
{
	struct kvctx_reg *reg;

	for (reg = ctx->regs; reg && !holds(reg->addr, reg->len, p, len); reg = reg->next)
		;
	return reg;
}

/* As kvctx_mem_find(), with ctx->lock held */
int kvctx_mem_locate(const struct kvctx *ctx, uintptr_t p, size_t len, uint32_t *mem, uint64_t *offset)
{
	const struct kvctx_reg *reg;

	if (ctx->arena && holds((uintptr_t)ctx->arena, ctx->arena_bytes, p, len)) {
		*mem = KVCTX_MEM_ARENA;
		*offset = p - (uintptr_t)ctx->arena;
		return 0;
	}
	reg = find_reg(ctx, p, len);
	if (!reg)
		return -EFAULT;
	*mem = reg->id;
	*offset = p - reg->addr;
	return 0;
}

int kvctx_mem_find(struct kvctx *ctx, const void *addr, size_t len, uint32_t *mem, uint64_t *offset)
{
	int ret;

	pthread_mutex_lock(&ctx->lock);
	ret = len ? kvctx_mem_locate(ctx, (uintptr_t)addr, len, mem, offset) : -EFAULT;
	pthread_mutex_unlock(&ctx->lock);
	return ret;
}

/* The registration that holds all of the buffer, to be given back; or NULL */
struct kvctx_reg *kvctx_mem_get(struct kvctx *ctx, const void *buf, size_t len)
{
	struct kvctx_reg *reg;

	pthread_mutex_lock(&ctx->lock);
	reg = find_reg(ctx, (uintptr_t)buf, len);
	if (reg)
		reg->users++;
	pthread_mutex_unlock(&ctx->lock);
	return reg;
}

/* As kvctx_mem_get(), by its id */
struct kvctx_reg *kvctx_mem_get_id(struct kvctx *ctx, uint32_t id)
{
	struct kvctx_reg *reg;

	pthread_mutex_lock(&ctx->lock);
	for (reg = ctx->regs; reg && reg->id != id; reg = reg->next)
		;
	if (reg)
		reg->users++;
	pthread_mutex_unlock(&ctx->lock);
	return reg;
}

void kvctx_mem_put(struct kvctx *ctx, struct kvctx_reg *reg)
{
	pthread_mutex_lock(&ctx->lock);
	reg->users--;
	pthread_mutex_unlock(&ctx->lock);
}

void kvctx_mem_free_all(struct kvctx *ctx)
{
	struct kvctx_reg *reg;

	while ((reg = ctx->regs)) {
		ctx->regs = reg->next;
		free(reg);
	}
}
