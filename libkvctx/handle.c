// SPDX-License-Identifier: LGPL-2.1-or-later
/* Handles: opening, memory, closing. */
#include <stdlib.h>
#include <sys/mman.h>

#include "handle.h"

#define DEFAULT_CQ_ENTRIES 256

static int map_session(struct kvctx *ctx, const struct kvctx_setup *s)
{
	int prot = ctx->rdonly ? PROT_READ : PROT_READ | PROT_WRITE;

	ctx->ring_bytes = s->cq_bytes;
	ctx->ring_entries = s->cq_entries;
	ctx->ring = kvctx_sys_mmap(ctx->fd, ctx->ring_bytes, prot, KVCTX_MMAP_CQ);
	if (!ctx->ring)
		return -errno;
	if (!s->arena_bytes)
		return 0;
	ctx->arena_bytes = s->arena_bytes;
	ctx->arena = kvctx_sys_mmap(ctx->fd, ctx->arena_bytes, prot, KVCTX_MMAP_ARENA);
	return ctx->arena ? 0 : -errno;
}

static int start_session(struct kvctx *ctx, const struct kvctx_params *p)
{
	struct kvctx_setup s = { .size = sizeof(s), .cq_entries = DEFAULT_CQ_ENTRIES };
	int ret;

	ctx->info.size = sizeof(ctx->info);
	ret = kvctx_sys_ioctl(ctx->fd, KVCTX_IOC_INFO, &ctx->info);
	if (ret)
		return ret;
	if (ctx->info.abi_version != KVCTX_ABI_VERSION)
		return -EPROTO;
	if (p) {
		memcpy(s.keyspace, p->keyspace, sizeof(s.keyspace));
		s.arena_bytes = p->arena_bytes;
		if (p->cq_entries)
			s.cq_entries = p->cq_entries;
		if (p->eventfd) {
			s.eventfd = p->eventfd;
			s.flags |= KVCTX_SETUP_EVENTFD;
		}
	}
	ret = kvctx_sys_ioctl(ctx->fd, KVCTX_IOC_SETUP, &s);
	return ret ? ret : map_session(ctx, &s);
}

int kvctx_open(const char *path, int flags, const struct kvctx_params *params, struct kvctx **out)
{
	struct kvctx *ctx;
	int ret;

	if ((flags & ~(O_ACCMODE | O_CLOEXEC)) || (flags & O_ACCMODE) == O_WRONLY)
		return -EINVAL;
	if (params && (params->size != sizeof(*params) || params->flags || params->eventfd < 0))
		return -EINVAL;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return -ENOMEM;
	pthread_mutex_init(&ctx->lock, NULL);
	ctx->rdonly = (flags & O_ACCMODE) == O_RDONLY;
	ctx->fd = kvctx_sys_open(path, flags);
	ret = ctx->fd < 0 ? ctx->fd : start_session(ctx, params);
	if (ret)
		goto fail;
	ctx->queue_len = ctx->ring_entries < ctx->info.batch_max ? ctx->ring_entries : ctx->info.batch_max;
	ctx->sqes = calloc(ctx->queue_len, sizeof(*ctx->sqes));
	ctx->stash = calloc(2 * (size_t)ctx->ring_entries, sizeof(*ctx->stash));
	ret = -ENOMEM;
	if (!ctx->sqes || !ctx->stash)
		goto fail;
	*out = ctx;
	return 0;
fail:
	kvctx_close(ctx);
	return ret;
}

void kvctx_close(struct kvctx *ctx)
{
	if (!ctx)
		return;
	if (ctx->arena)
		kvctx_sys_munmap(ctx->arena, ctx->arena_bytes);
	if (ctx->ring)
		kvctx_sys_munmap(ctx->ring, ctx->ring_bytes);
	if (ctx->fd >= 0)
		kvctx_sys_close(ctx->fd);
	pthread_mutex_destroy(&ctx->lock);
	free(ctx->regs);
	free(ctx->stash);
	free(ctx->sqes);
	free(ctx);
}

int kvctx_fd(const struct kvctx *ctx)
{
	return ctx->fd;
}

const struct kvctx_info *kvctx_get_info(const struct kvctx *ctx)
{
	return &ctx->info;
}

void *kvctx_arena(const struct kvctx *ctx, size_t *len)
{
	if (len)
		*len = ctx->arena_bytes;
	return ctx->arena;
}

/* Room for one more line in the table of registrations */
static int grow_regs(struct kvctx *ctx)
{
	size_t max = ctx->max_regs ? 2 * ctx->max_regs : 16;
	struct kvctx_reg *regs;

	if (ctx->nr_regs < ctx->max_regs)
		return 0;
	regs = realloc(ctx->regs, max * sizeof(*regs));
	if (!regs)
		return -ENOMEM;
	ctx->regs = regs;
	ctx->max_regs = max;
	return 0;
}

int kvctx_mem_register(struct kvctx *ctx, void *addr, size_t len, uint32_t *id)
{
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (uintptr_t)addr, .length = len };
	int ret;

	pthread_mutex_lock(&ctx->lock);
	ret = grow_regs(ctx);
	if (!ret)
		ret = kvctx_sys_ioctl(ctx->fd, KVCTX_IOC_MEM_REGISTER, &reg);
	if (!ret) {
		ctx->regs[ctx->nr_regs++] = (struct kvctx_reg){ .addr = reg.addr, .len = len, .id = reg.id };
		*id = reg.id;
	}
	pthread_mutex_unlock(&ctx->lock);
	return ret;
}

int kvctx_mem_unregister(struct kvctx *ctx, uint32_t id)
{
	struct kvctx_mem_unregister un = { .size = sizeof(un), .id = id };
	size_t i;
	int ret;

	pthread_mutex_lock(&ctx->lock);
	ret = kvctx_sys_ioctl(ctx->fd, KVCTX_IOC_MEM_UNREGISTER, &un);
	for (i = 0; !ret && i < ctx->nr_regs; i++) {
		if (ctx->regs[i].id == id) {
			ctx->regs[i] = ctx->regs[--ctx->nr_regs];
			break;
		}
	}
	pthread_mutex_unlock(&ctx->lock);
	return ret;
}

static bool inside(uintptr_t p, size_t len, uintptr_t start, size_t bytes)
{
	return p >= start && p - start <= bytes && len <= bytes - (p - start);
}

bool kvctx_find_memory(const struct kvctx *ctx, const void *buf, size_t len, struct kvctx_seg *seg)
{
	uintptr_t p = (uintptr_t)buf;
	size_t i;

	seg->length = len;
	if (ctx->arena && inside(p, len, (uintptr_t)ctx->arena, ctx->arena_bytes)) {
		seg->mem = KVCTX_MEM_ARENA;
		seg->offset = p - (uintptr_t)ctx->arena;
		return true;
	}
	for (i = 0; i < ctx->nr_regs; i++) {
		if (inside(p, len, ctx->regs[i].addr, ctx->regs[i].len)) {
			seg->mem = ctx->regs[i].id;
			seg->offset = p - ctx->regs[i].addr;
			return true;
		}
	}
	return false;
}
