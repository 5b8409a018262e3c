// SPDX-License-Identifier: LGPL-2.1-or-later
/* Handles: opening and closing them, and what they tell. */
#include <stdlib.h>
#include <unistd.h>
#include <sys/mman.h>

#include "handle.h"

#define DEFAULT_CQ_ENTRIES	256U
#define PARAMS_SIZE_FIRST	(offsetof(struct kvctx_params, timeout_ns) + sizeof(uint64_t))

/*
 * Parameters as this version knows them, from those of an earlier or later one: what the caller
 * does not know is zero, what we do not know has to be.
 */
static int read_params(const struct kvctx_params *from, struct kvctx_params *p)
{
	const uint8_t *bytes = (const uint8_t *)from;
	size_t i;

	memset(p, 0, sizeof(*p));
	if (!from)
		return 0;
	if (from->size < PARAMS_SIZE_FIRST)
		return -EINVAL;
	for (i = sizeof(*p); i < from->size; i++)
		if (bytes[i])
			return -E2BIG;
	memcpy(p, from, from->size < sizeof(*p) ? from->size : sizeof(*p));
	return p->flags || p->eventfd < -1 ? -EINVAL : 0;
}

static int map_session(struct kvctx *ctx, const struct kvctx_setup *s)
{
	int prot = ctx->rdonly ? PROT_READ : PROT_READ | PROT_WRITE;
	void *p;
	int ret;

	ret = kvctx_sys_mmap(ctx->file, s->cq_bytes, prot, KVCTX_MMAP_CQ, &p);
	if (ret)
		return ret;
	ctx->ring = p;
	ctx->ring_bytes = s->cq_bytes;
	if (s->arena_bytes) {
		ret = kvctx_sys_mmap(ctx->file, s->arena_bytes, prot, KVCTX_MMAP_ARENA, &p);
		if (ret)
			return ret;
		ctx->arena = p;
		ctx->arena_bytes = s->arena_bytes;
	}
	if (s->nr_slots) {
		ctx->slot_bytes = s->slot_bytes;
		ctx->nr_slots = s->nr_slots;
		ret = kvctx_sys_mmap(ctx->file, ctx->slot_bytes * ctx->nr_slots, PROT_READ, KVCTX_MMAP_SLOTS, &p);
		if (ret)
			return ret;
		ctx->slots = p;
	}
	return 0;
}

/*
 * Room for as many completions again as the caller may have outstanding: synchronous calls need
 * not wait for asynchronous operations then, and wait.c may let a sleeper hold entries.
 */
static void choose_entries(struct kvctx *ctx, uint32_t wanted, struct kvctx_setup *s)
{
	uint32_t max = ctx->info.cq_max;

	if (!wanted)
		wanted = max < DEFAULT_CQ_ENTRIES ? max : DEFAULT_CQ_ENTRIES;
	ctx->limit = wanted;
	s->cq_entries = wanted;
	if (wanted < max)
		s->cq_entries = wanted < max / 2 ? 2 * wanted : max;
}

static int start_session(struct kvctx *ctx, const struct kvctx_params *p)
{
	struct kvctx_setup s = {
		.size = sizeof(s), .arena_bytes = p->arena_bytes,
		.slot_bytes = p->slot_bytes, .nr_slots = p->nr_slots,
	};
	int ret;

	ctx->info.size = sizeof(ctx->info);
	ret = kvctx_sys_ioctl(ctx->file, KVCTX_IOC_INFO, &ctx->info);
	if (ret)
		return ret;
	if (ctx->info.abi_version != KVCTX_ABI_VERSION)
		return -EPROTO;
	memcpy(s.keyspace, p->keyspace, sizeof(s.keyspace));
	choose_entries(ctx, p->cq_entries, &s);
	if (p->eventfd > 0) {
		s.eventfd = p->eventfd;
		s.flags |= KVCTX_SETUP_EVENTFD;
	}
	ctx->timeout_ns = p->timeout_ns;
	ret = kvctx_sys_ioctl(ctx->file, KVCTX_IOC_SETUP, &s);
	if (ret)
		return ret;
	/* some of it is known only now */
	ret = kvctx_sys_ioctl(ctx->file, KVCTX_IOC_INFO, &ctx->info);
	if (ret)
		return ret;
	ctx->entries = s.cq_entries;
	return map_session(ctx, &s);
}

static int alloc_queues(struct kvctx *ctx)
{
	ctx->queue_len = ctx->limit < ctx->info.batch_max ? ctx->limit : ctx->info.batch_max;
	ctx->sqes = calloc(ctx->queue_len, sizeof(*ctx->sqes));
	ctx->ready = calloc(ctx->entries, sizeof(*ctx->ready));
	if (!ctx->sqes || !ctx->ready)
		return -ENOMEM;
	ctx->seen = ctx->ring->head;
	ctx->published = ctx->seen;
	return 0;
}

int kvctx_open(const char *path, int flags, const struct kvctx_params *params, struct kvctx **out)
{
	struct kvctx_params p;
	struct kvctx *ctx;
	int ret;

	if ((flags & ~(O_ACCMODE | O_CLOEXEC)) || (flags & O_ACCMODE) == O_WRONLY)
		return -EINVAL;
	ret = read_params(params, &p);
	if (ret)
		return ret;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return -ENOMEM;
	pthread_mutex_init(&ctx->lock, NULL);
	ctx->owner = getpid();
	ctx->rdonly = (flags & O_ACCMODE) == O_RDONLY;
	ret = kvctx_sys_open(path, flags & O_ACCMODE, &ctx->file);
	if (!ret)
		ret = start_session(ctx, &p);
	if (!ret)
		ret = alloc_queues(ctx);
	if (ret) {
		kvctx_close(ctx);
		return ret;
	}
	*out = ctx;
	return 0;
}

/* A child after fork() does not have the mappings: it may have others in their places. */
static void unmap_session(struct kvctx *ctx)
{
	if (ctx->slots)
		kvctx_sys_munmap(ctx->file, ctx->slots, ctx->slot_bytes * ctx->nr_slots);
	if (ctx->arena)
		kvctx_sys_munmap(ctx->file, ctx->arena, ctx->arena_bytes);
	if (ctx->ring)
		kvctx_sys_munmap(ctx->file, ctx->ring, ctx->ring_bytes);
}

void kvctx_close(struct kvctx *ctx)
{
	bool child;

	if (!ctx)
		return;
	child = ctx->owner != getpid();
	if (!child)
		unmap_session(ctx);
	if (ctx->file)
		kvctx_sys_close(ctx->file);
	kvctx_mem_free_all(ctx);
	kvctx_stage_free(ctx);
	/* another thread may have held it when the child was made */
	if (!child)
		pthread_mutex_destroy(&ctx->lock);
	while (ctx->nr_batches)		/* whose operations the end of the session has ended */
		free(ctx->batches[--ctx->nr_batches]);
	free(ctx->batches);
	free(ctx->ready);
	free(ctx->sqes);
	free(ctx);
}

int kvctx_fd(const struct kvctx *ctx)
{
	return kvctx_sys_poll_fd(ctx->file);
}

const struct kvctx_info *kvctx_get_info(const struct kvctx *ctx)
{
	return &ctx->info;
}

int kvctx_usage(struct kvctx *ctx, uint64_t *pages, uint64_t *bytes, uint64_t *limit)
{
	struct kvctx_info info = { .size = sizeof(info) };
	int ret = kvctx_sys_ioctl(ctx->file, KVCTX_IOC_INFO, &info);

	if (ret)
		return ret;
	if (pages)
		*pages = info.tenant_pages;
	if (bytes)
		*bytes = info.tenant_bytes;
	if (limit)
		*limit = info.tenant_limit;
	return 0;
}

int kvctx_events(struct kvctx *ctx, struct kvctx_event *events, uint32_t nr, uint64_t *lost)
{
	struct kvctx_events arg = { .size = sizeof(arg), .events = (uintptr_t)events, .nr = nr };
	int ret;

	*lost = 0;
	if (!(__atomic_load_n(&ctx->info.features, __ATOMIC_RELAXED) & KVCTX_FEAT_EVENTS))
		return -EOPNOTSUPP;
	ret = kvctx_sys_ioctl(ctx->file, KVCTX_IOC_EVENTS, &arg);
	if (ret)
		return ret;
	*lost = arg.lost;
	return (int)arg.nr;
}

void *kvctx_arena(const struct kvctx *ctx, size_t *len)
{
	if (len)
		*len = ctx->arena_bytes;
	return ctx->arena;
}
