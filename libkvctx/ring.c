// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The completion ring: taking entries off it.
 *
 * The kernel writes entries, then tail with release order. We read tail with acquire order, copy
 * the new entries out, and publish them as free by writing head with release order. A session
 * opened read-only cannot write head; the kernel does it for us.
 *
 * Whoever comes first copies all there is: the completion of a call goes to the call, others to the
 * ready list, from where kvctx_peek() takes them. wait.c tells why nothing is published while a
 * thread sleeps.
 */
#include "handle.h"

static void publish(struct kvctx *ctx)
{
	struct kvctx_wait w = { .size = sizeof(w) };

	w.consumed = ctx->seen - ctx->published;
	if (ctx->sleepers || !w.consumed)
		return;
	if (!ctx->rdonly)
		__atomic_store_n(&ctx->ring->head, ctx->seen, __ATOMIC_RELEASE);
	else if (kvctx_sys_ioctl(ctx->fd, KVCTX_IOC_WAIT, &w) < 0)
		return;
	ctx->published = ctx->seen;
}

void kvctx_unlink_call(struct kvctx *ctx, struct kvctx_call *call)
{
	struct kvctx_call **link = &ctx->calls;

	while (*link != call)
		link = &(*link)->next;
	*link = call->next;
}

static bool give_to_call(struct kvctx *ctx, const struct kvctx_cqe *cqe)
{
	struct kvctx_call *call;

	for (call = ctx->calls; call; call = call->next) {
		if (call->tag != cqe->user_data)
			continue;
		kvctx_unlink_call(ctx, call);
		call->res = cqe->res;
		call->flags = cqe->flags;
		call->done = true;
		if (call->waiter.listed)
			pthread_cond_signal(&call->waiter.cond);
		return true;
	}
	return false;
}

/* Nobody waits, or those who do look again */
void kvctx_wake_ready(struct kvctx *ctx)
{
	struct kvctx_waiter *w;

	for (w = ctx->waiters; w; w = w->next)
		if (w->wants_ready)
			pthread_cond_signal(&w->cond);
}

/* There is room: it is one of those that are busy */
void kvctx_ready_add(struct kvctx *ctx, const struct kvctx_cqe *cqe)
{
	ctx->ready[(ctx->ready_head + ctx->nr_ready++) & (ctx->entries - 1)] = *cqe;
}

/* Where a completion belongs. Returns whether those who wait on the ready list have to look */
static bool sort(struct kvctx *ctx, struct kvctx_cqe *cqe)
{
	bool ours = cqe->user_data >= KVCTX_USER_DATA_END;

	if (ours && give_to_call(ctx, cqe))
		return false;
	if (!ours || !kvctx_stage_see(ctx, cqe))
		kvctx_ready_add(ctx, cqe);
	return true;
}

/* See all there is in the ring, and publish it if that is possible. Never sleeps. */
void kvctx_ring_pull(struct kvctx *ctx)
{
	uint32_t tail = __atomic_load_n(&ctx->ring->tail, __ATOMIC_ACQUIRE);
	uint32_t mask = ctx->entries - 1;
	bool wake = false;
	struct kvctx_cqe cqe;

	for (; ctx->seen != tail; ctx->seen++) {
		cqe = ctx->ring->cqes[ctx->seen & mask];
		wake |= sort(ctx, &cqe);
	}
	if (wake)
		kvctx_wake_ready(ctx);
	publish(ctx);
}
