// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The completion queue and the queue of operations.
 *
 * The kernel writes entries and then tail with release order; we read tail with acquire order, copy the entry, and
 * give it back by writing head with release order. A session opened read-only cannot write head: the kernel does it.
 */
#include <time.h>

#include "handle.h"

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

uint32_t kvctx_ring_count(const struct kvctx *ctx)
{
	return __atomic_load_n(&ctx->ring->tail, __ATOMIC_ACQUIRE) - ctx->ring->head;
}

int kvctx_ring_take(struct kvctx *ctx, struct kvctx_cqe *cqe)
{
	uint32_t head = ctx->ring->head;

	if (!kvctx_ring_count(ctx))
		return 0;
	*cqe = ctx->ring->cqes[head & (ctx->ring_entries - 1)];
	if (ctx->rdonly) {
		struct kvctx_wait w = { .size = sizeof(w), .consumed = 1 };
		int ret = kvctx_sys_ioctl(ctx->fd, KVCTX_IOC_WAIT, &w);

		return ret < 0 ? ret : 1;
	}
	__atomic_store_n(&ctx->ring->head, head + 1, __ATOMIC_RELEASE);
	return 1;
}

unsigned int kvctx_peek(struct kvctx *ctx, struct kvctx_cqe *cqes, unsigned int max)
{
	unsigned int n = 0;

	pthread_mutex_lock(&ctx->lock);
	while (n < max && ctx->stash_len) {
		cqes[n++] = ctx->stash[ctx->stash_head];
		ctx->stash_head = (ctx->stash_head + 1) & (2 * ctx->ring_entries - 1);
		ctx->stash_len--;
	}
	while (n < max && kvctx_ring_take(ctx, &cqes[n]) == 1)
		n++;
	pthread_mutex_unlock(&ctx->lock);
	return n;
}

int kvctx_wait(struct kvctx *ctx, uint32_t nr, uint64_t timeout_ns)
{
	uint64_t end = timeout_ns == KVCTX_TIMEOUT_NONE ? 0 : now_ns() + timeout_ns;
	struct kvctx_wait w = { .size = sizeof(w) };
	uint32_t stashed;
	int ret;

	for (;;) {
		pthread_mutex_lock(&ctx->lock);
		stashed = ctx->stash_len;
		pthread_mutex_unlock(&ctx->lock);
		w.min = nr > stashed ? nr - stashed : 0;
		w.timeout_ns = KVCTX_TIMEOUT_NONE;
		if (timeout_ns != KVCTX_TIMEOUT_NONE) {
			uint64_t now = now_ns();

			w.timeout_ns = now < end ? end - now : 0;
		}
		ret = kvctx_sys_ioctl(ctx->fd, KVCTX_IOC_WAIT, &w);
		if (ret < 0)
			return ret;
		/* A synchronous call may have moved completions between ring and stash meanwhile */
		pthread_mutex_lock(&ctx->lock);
		ret = (int)(kvctx_ring_count(ctx) + ctx->stash_len);
		stashed = ctx->stash_len != stashed;
		pthread_mutex_unlock(&ctx->lock);
		if ((uint32_t)ret >= nr || !stashed)
			return ret;
	}
}

struct kvctx_sqe *kvctx_get_sqe(struct kvctx *ctx)
{
	struct kvctx_sqe *sqe;

	if (ctx->queued == ctx->queue_len)
		return NULL;
	sqe = &ctx->sqes[ctx->queued++];
	memset(sqe, 0, sizeof(*sqe));
	return sqe;
}

int kvctx_submit(struct kvctx *ctx)
{
	struct kvctx_submit s = { .size = sizeof(s), .sqes = (uintptr_t)ctx->sqes, .nr = ctx->queued };
	int ret;

	if (!ctx->queued)
		return 0;
	/* Not while a synchronous call fills the stash: see sync.c */
	pthread_mutex_lock(&ctx->lock);
	ret = kvctx_sys_ioctl(ctx->fd, KVCTX_IOC_SUBMIT, &s);
	pthread_mutex_unlock(&ctx->lock);
	if (ret > 0) {
		ctx->queued -= (uint32_t)ret;
		memmove(ctx->sqes, ctx->sqes + ret, ctx->queued * sizeof(*ctx->sqes));
	}
	return ret;
}

int kvctx_submit_and_wait(struct kvctx *ctx, uint32_t nr, uint64_t timeout_ns)
{
	int ret = kvctx_submit(ctx);

	if (ret < 0)
		return ret;
	kvctx_wait(ctx, nr, timeout_ns);
	return ret;
}
