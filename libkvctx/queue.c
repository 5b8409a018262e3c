// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Asynchronous operations: their queue, an array that fills at its end and is handed over from its
 * front, and taking their completions.
 */
#include "handle.h"

struct kvctx_sqe *kvctx_get_sqe(struct kvctx *ctx)
{
	struct kvctx_sqe *sqe;

	if (ctx->queued == ctx->queue_len)
		return NULL;
	sqe = &ctx->sqes[ctx->queued++];
	memset(sqe, 0, sizeof(*sqe));
	return sqe;
}

/*
 * How many entries kvctx_ring_submit() may wait for when the caller wants @nr completions: 0 when the
 * kernel can only do a part of the waiting, see wait.c.
 */
static uint32_t more_for(const struct kvctx *ctx, uint32_t nr, uint64_t timeout_ns)
{
	if (!timeout_ns || nr <= ctx->nr_ready || ctx->nr_pending || ctx->sleepers)
		return 0;
	nr -= ctx->nr_ready;
	return nr <= ctx->entries - ctx->limit ? nr : 0;
}

/* @waited: out: the wait for @wait_nr is over */
static int submit_locked(struct kvctx *ctx, const struct kvctx_sqe *sqes, uint32_t queued, uint32_t wait_nr,
			 uint64_t timeout_ns, bool *waited)
{
	uint32_t room, nr, more;
	int ret;

	for (;;) {
		room = ctx->busy < ctx->limit ? ctx->limit - ctx->busy : 0;
		nr = queued < room ? queued : room;
		if (!nr)
			return -EAGAIN;
		if (wait_nr)
			kvctx_ring_pull(ctx);
		more = more_for(ctx, wait_nr, timeout_ns);
		*waited = more != 0;
		ctx->busy += nr;
		ret = kvctx_ring_submit(ctx, sqes, nr, more, timeout_ns);
		ctx->busy -= ret < 0 ? nr : nr - (uint32_t)ret;
		/* fewer may be busy than a waiting thread had to believe */
		kvctx_wake_ready(ctx);
		/* with nothing of its own to wait for, the caller could only try again */
		if (ret != -EAGAIN || ctx->busy)
			return ret;
		kvctx_wait_room(ctx);	/* drops the lock: others may have taken what room there was */
	}
}

static int submit(struct kvctx *ctx, uint32_t wait_nr, uint64_t timeout_ns, bool *waited)
{
	int ret;

	if (!ctx->queued)
		return 0;
	pthread_mutex_lock(&ctx->lock);
	ret = submit_locked(ctx, ctx->sqes, ctx->queued, wait_nr, timeout_ns, waited);
	pthread_mutex_unlock(&ctx->lock);
	if (ret > 0) {
		ctx->queued -= (uint32_t)ret;
		if (ctx->queued)
			memmove(ctx->sqes, ctx->sqes + ret, ctx->queued * sizeof(*ctx->sqes));
	}
	return ret;
}

int kvctx_submit(struct kvctx *ctx)
{
	bool waited;

	return submit(ctx, 0, 0, &waited);
}

int kvctx_submit_sqes(struct kvctx *ctx, const struct kvctx_sqe *sqes, uint32_t nr)
{
	uint32_t max = ctx->info.batch_max;
	bool waited;
	int ret;

	if (!nr)
		return 0;
	pthread_mutex_lock(&ctx->lock);
	ret = submit_locked(ctx, sqes, nr < max ? nr : max, 0, 0, &waited);
	pthread_mutex_unlock(&ctx->lock);
	return ret;
}

int kvctx_submit_and_wait(struct kvctx *ctx, uint32_t nr, uint64_t timeout_ns)
{
	bool waited = false;
	int ret = submit(ctx, nr, timeout_ns, &waited);

	if (ret >= 0 && !waited && timeout_ns)
		kvctx_wait(ctx, nr, timeout_ns);
	return ret;
}

/* More than there can be: it ends when nothing is in flight. */
int kvctx_drain(struct kvctx *ctx, uint64_t timeout_ns)
{
	int ret = kvctx_wait(ctx, UINT32_MAX, timeout_ns);

	return ret < 0 ? ret : 0;
}

int kvctx_expect(struct kvctx *ctx, int nr)
{
	int ret = 0;

	pthread_mutex_lock(&ctx->lock);
	if (nr > (int64_t)ctx->limit - ctx->busy)
		ret = -EAGAIN;
	else if (nr < (int64_t)ctx->nr_ready - ctx->busy)
		ret = -EINVAL;
	else
		ctx->busy += (uint32_t)nr;
	/* fewer may be busy than a waiting thread had to believe */
	kvctx_wake_ready(ctx);
	pthread_mutex_unlock(&ctx->lock);
	return ret;
}

unsigned int kvctx_take(struct kvctx *ctx, struct kvctx_cqe *cqes, unsigned int max)
{
	unsigned int n;

	pthread_mutex_lock(&ctx->lock);
	kvctx_ring_look(ctx);
	while (kvctx_stage_step(ctx) > 0)
		;
	for (n = 0; n < max && ctx->nr_ready; n++) {
		cqes[n] = ctx->ready[ctx->ready_head];
		ctx->ready_head = (ctx->ready_head + 1) & (ctx->entries - 1);
		ctx->nr_ready--;
	}
	ctx->busy -= n;
	pthread_mutex_unlock(&ctx->lock);
	return n;
}
