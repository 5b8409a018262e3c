// SPDX-License-Identifier: GPL-2.0
/*
 * The part of libkvctx that kvctx-replay calls, over a tenant in memory (fake_store.h). Linked in place of the library.
 *
 * Stricter than the library where a caller could go wrong unseen: operations are carried out one by one while the
 * caller waits, in a shuffled order and on the memory as it is then, so a slot that is used too early shows as wrong
 * bytes; more operations than the completion queue holds, a bad scatter list or a forgotten lease ends the program.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kvctx.h>

#include "fake_store.h"

#define QUEUE_MAX	64
#define LEASES_MAX	512

struct lease {
	struct kvctx_key *keys;
	size_t nr;
};

struct kvctx {
	struct kvctx_info info;
	uint8_t *arena;
	size_t arena_bytes;
	uint32_t cq_entries;
	struct kvctx_sqe queue[QUEUE_MAX];
	size_t nr_queue;
	struct kvctx_sqe *running;	/* cq_entries of them, as is done */
	size_t nr_running;
	struct kvctx_cqe *done;
	size_t nr_done;
	struct lease leases[LEASES_MAX];
	uint64_t taken;			/* operations, ever */
	unsigned int shuffle;
};

static void insist(int truth, const char *what)
{
	if (truth)
		return;
	fprintf(stderr, "fake: %s\n", what);
	abort();
}

static int fill_info(struct kvctx_info *info, const char *path)
{
	if (sscanf(path, "/dev/kvctx/%31[^/]/%31[^/]", info->pool, info->tenant) != 2)
		return -ENOENT;
	info->page_len_max = 128 << 20;
	info->arena_max = fake_setting("arena_max") ? fake_setting("arena_max") : 1 << 30;
	info->cq_max = 4096;
	info->match_max = fake_setting("match_max") ? fake_setting("match_max") : 4096;
	info->lease_ms_max = 600000;
	return 0;
}

static void set_up(struct kvctx *ctx, const struct kvctx_params *params)
{
	insist(params->size == sizeof(*params) && !params->flags, "bad parameters");
	insist(params->arena_bytes <= ctx->info.arena_max, "more arena than allowed");
	insist(params->cq_entries && params->cq_entries <= ctx->info.cq_max, "bad length of the queue");
	fake_store_open(params->keyspace);
	ctx->arena_bytes = params->arena_bytes;
	ctx->arena = calloc(1, params->arena_bytes);
	ctx->cq_entries = params->cq_entries;
	ctx->running = calloc(params->cq_entries, sizeof(*ctx->running));
	ctx->done = calloc(params->cq_entries, sizeof(*ctx->done));
}

int kvctx_open(const char *path, int flags, const struct kvctx_params *params, struct kvctx **out)
{
	struct kvctx *ctx;
	int ret;

	if (fake_setting("open"))
		return -(int)fake_setting("open");
	insist(flags == O_RDWR, "not opened for reading and writing");
	ctx = calloc(1, sizeof(*ctx));
	ret = fill_info(&ctx->info, path);
	if (ret) {
		free(ctx);
		return ret;
	}
	if (params)
		set_up(ctx, params);
	*out = ctx;
	return 0;
}

void kvctx_close(struct kvctx *ctx)
{
	uint32_t id;

	if (!ctx)
		return;
	for (id = 0; id < LEASES_MAX; id++)
		free(ctx->leases[id].keys);
	if (ctx->arena)
		fake_store_close();
	free(ctx->arena);
	free(ctx->running);
	free(ctx->done);
	free(ctx);
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

static uint32_t take_lease(struct kvctx *ctx, const struct kvctx_key *keys, size_t nr)
{
	uint32_t id = 0;

	if (!nr || fake_setting("nolease"))
		return 0;
	while (ctx->leases[id].keys) {
		id++;
		insist(id < LEASES_MAX, "leases are not released");
	}
	ctx->leases[id].keys = malloc(nr * sizeof(*keys));
	memcpy(ctx->leases[id].keys, keys, nr * sizeof(*keys));
	ctx->leases[id].nr = nr;
	fake_store_lease(keys, nr, 1);
	return id + 1;
}

int64_t kvctx_match(struct kvctx *ctx, const struct kvctx_key *keys, uint32_t nr, uint32_t *lens, uint32_t lease_ms,
		    uint32_t *lease)
{
	uint32_t present = 0;

	insist(nr >= 1 && nr <= ctx->info.match_max && !lens, "bad match");
	insist(lease_ms >= 1 && lease_ms <= ctx->info.lease_ms_max, "bad time of a lease");
	while (present < nr && fake_store_present(&keys[present]))
		present++;
	*lease = take_lease(ctx, keys, present);
	return present;
}

int kvctx_release(struct kvctx *ctx, uint32_t lease)
{
	struct lease *l = &ctx->leases[lease - 1];

	insist(lease >= 1 && lease <= LEASES_MAX && l->keys, "no such lease");
	fake_store_lease(l->keys, l->nr, -1);
	free(l->keys);
	l->keys = NULL;
	return 0;
}

struct kvctx_sqe *kvctx_get_sqe(struct kvctx *ctx)
{
	if (ctx->nr_queue == QUEUE_MAX)
		return NULL;
	memset(&ctx->queue[ctx->nr_queue], 0, sizeof(ctx->queue[0]));
	return &ctx->queue[ctx->nr_queue++];
}

int kvctx_submit(struct kvctx *ctx)
{
	uint64_t gone = fake_setting("gone");
	int taken = 0, partial = fake_setting("partial"), left;

	if (gone && ctx->taken >= gone)
		return -ENODEV;
	if (partial && ctx->nr_running + ctx->nr_done >= (size_t)partial)
		return -EAGAIN;
	while ((size_t)taken < ctx->nr_queue && (!partial || taken < partial)) {
		insist(ctx->nr_running + ctx->nr_done < ctx->cq_entries, "too many operations in flight");
		ctx->running[ctx->nr_running++] = ctx->queue[taken++];
		ctx->taken++;
	}
	left = ctx->nr_queue - taken;
	memmove(ctx->queue, ctx->queue + taken, left * sizeof(ctx->queue[0]));
	ctx->nr_queue = left;
	return taken;
}

static void *memory(const struct kvctx *ctx, const struct kvctx_sqe *sqe)
{
	insist(!sqe->nr_segs && sqe->mem == KVCTX_MEM_ARENA, "bad memory");
	insist(sqe->length && !sqe->offset, "bad range");
	insist(sqe->segs % 4096 == 0 && sqe->segs + sqe->length <= ctx->arena_bytes, "outside of the arena");
	return ctx->arena + sqe->segs;
}

static void carry_out(struct kvctx *ctx, const struct kvctx_sqe *sqe)
{
	struct kvctx_cqe *cqe = &ctx->done[ctx->nr_done++];

	memset(cqe, 0, sizeof(*cqe));
	cqe->user_data = sqe->user_data;
	switch (sqe->opcode) {
	case KVCTX_OP_LOAD:
		cqe->res = fake_store_load(&sqe->key, memory(ctx, sqe), sqe->length, &cqe->flags);
		break;
	case KVCTX_OP_STORE:
		cqe->res = fake_store_store(&sqe->key, memory(ctx, sqe), sqe->length, sqe->depth, &cqe->flags);
		break;
	case KVCTX_OP_FLUSH:
		cqe->res = fake_store_flush();
		break;
	default:
		insist(0, "unexpected operation");
	}
}

static void carry_out_one(struct kvctx *ctx)
{
	size_t chosen;

	ctx->shuffle = ctx->shuffle * 1103515245 + 12345;
	chosen = (ctx->shuffle >> 16) % ctx->nr_running;
	carry_out(ctx, &ctx->running[chosen]);
	ctx->running[chosen] = ctx->running[--ctx->nr_running];
}

int kvctx_wait(struct kvctx *ctx, uint32_t nr, uint64_t timeout_ns)
{
	uint64_t hang = fake_setting("hang");

	if (hang && ctx->taken >= hang) {
		usleep(timeout_ns / 1000);
		return -ETIME;
	}
	if (fake_setting("slow"))
		usleep(fake_setting("slow"));
	/* One more than asked for now and then */
	while (ctx->nr_running && (ctx->nr_done < nr || ctx->shuffle >> 30 == 0))
		carry_out_one(ctx);
	return ctx->nr_done;
}

int kvctx_submit_and_wait(struct kvctx *ctx, uint32_t nr, uint64_t timeout_ns)
{
	int ret = kvctx_submit(ctx);

	if (ret >= 0)
		kvctx_wait(ctx, nr, timeout_ns);
	return ret;
}

unsigned int kvctx_take(struct kvctx *ctx, struct kvctx_cqe *cqes, unsigned int max)
{
	size_t nr = ctx->nr_done < max ? ctx->nr_done : max;

	memcpy(cqes, ctx->done, nr * sizeof(*cqes));
	ctx->nr_done -= nr;
	memmove(ctx->done, ctx->done + nr, ctx->nr_done * sizeof(*cqes));
	return nr;
}
