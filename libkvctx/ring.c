// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The completion ring: operations go in, entries are taken off it.
 *
 * The kernel writes entries, then tail with release order. We read tail with acquire order, copy
 * the new entries out, and publish them as free by writing head with release order. A session
 * opened read-only cannot write head; the kernel does it for us.
 *
 * Whoever comes first copies all there is: the completion of a pending operation goes to the function
 * that it carries, others to the ready list, from where kvctx_take() takes them. wait.c tells why
 * nothing is published while a thread sleeps.
 */
#include "handle.h"

static void publish(struct kvctx *ctx)
{
	struct kvctx_wait w = { .size = sizeof(w) };

	w.consumed = ctx->seen - ctx->published;
	if (ctx->sleepers || !w.consumed)
		return;
	if (!ctx->rdonly) {
		__atomic_store_n(&ctx->ring->head, ctx->seen, __ATOMIC_RELEASE);
		kvctx_sys_consumed(ctx->file);
	} else if (kvctx_sys_ioctl(ctx->file, KVCTX_IOC_WAIT, &w) < 0) {
		return;
	}
	ctx->published = ctx->seen;
}

/* The link to the operation with this tag, or the end of its list */
static struct kvctx_pending **pending_link(struct kvctx *ctx, uint64_t tag)
{
	struct kvctx_pending **link = &ctx->pending[tag % KVCTX_PENDING_LISTS];

	while (*link && (*link)->tag != tag)
		link = &(*link)->next;
	return link;
}

void kvctx_pending_add(struct kvctx *ctx, struct kvctx_pending *p)
{
	struct kvctx_pending **link;

	/* numbers come back, and an operation can be pending for as long as its caller likes */
	do {
		p->tag = KVCTX_USER_DATA_END + (ctx->next_tag++ & (KVCTX_BATCH_TAG - KVCTX_USER_DATA_END - 1));
		link = pending_link(ctx, p->tag);
	} while (*link);
	p->next = NULL;
	*link = p;
	ctx->nr_pending++;
}

void kvctx_pending_remove(struct kvctx *ctx, struct kvctx_pending *p)
{
	*pending_link(ctx, p->tag) = p->next;
	ctx->nr_pending--;
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
static bool ring_sort(struct kvctx *ctx, const struct kvctx_cqe *cqe)
{
	struct kvctx_pending *p;

	if (cqe->user_data >= KVCTX_BATCH_TAG && ctx->batch_done)
		return ctx->batch_done(ctx, cqe);
	p = *pending_link(ctx, cqe->user_data);
	if (p)
		return p->done(ctx, p, cqe);
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
		wake |= ring_sort(ctx, &cqe);
	}
	if (wake)
		kvctx_wake_ready(ctx);
	publish(ctx);
}

/*
 * See all there is, as kvctx_ring_pull(), for a caller who does not sleep: with nothing ready, the server may look what
 * its devices have done, which takes the caller's time.
 */
void kvctx_ring_look(struct kvctx *ctx)
{
	kvctx_ring_pull(ctx);
	if (ctx->nr_ready)
		return;
	pthread_mutex_unlock(&ctx->lock);
	kvctx_sys_look(ctx->file);
	pthread_mutex_lock(&ctx->lock);
	kvctx_ring_pull(ctx);
}

/* Entries between head and tail when @more new ones have come */
static uint32_t min_entries(const struct kvctx *ctx, uint32_t more)
{
	return ctx->seen - ctx->published + more;
}

/* A system call that may sleep until entries come; the thread counts as a sleeper if it does */
static int ring_enter(struct kvctx *ctx, unsigned long nr, void *arg, bool sleeps)
{
	int ret;

	ctx->sleepers += sleeps;
	pthread_mutex_unlock(&ctx->lock);
	ret = kvctx_sys_ioctl(ctx->file, nr, arg);
	pthread_mutex_lock(&ctx->lock);
	ctx->sleepers -= sleeps;
	if (sleeps)
		kvctx_ring_pull(ctx);
	return ret;
}

/*
 * Give operations to the kernel. With @more, sleep afterwards until so many new entries have come,
 * and see what is there.
 *
 * Return: how many the kernel has taken, from the front; -EAGAIN: no room for one; another error.
 */
int kvctx_ring_submit(struct kvctx *ctx, const struct kvctx_sqe *sqes, uint32_t nr, uint32_t more,
		      uint64_t timeout_ns)
{
	struct kvctx_submit s = {
		.size = sizeof(s),
		.sqes = (uintptr_t)sqes,
		.nr = nr,
		.wait_nr = more ? min_entries(ctx, more) : 0,
		.timeout_ns = more ? timeout_ns : 0,
	};

	return ring_enter(ctx, KVCTX_IOC_SUBMIT, &s, more);
}

/*
 * Sleep until @more new entries have come or nothing is in flight, and see what is there.
 *
 * Return: 0; 1: nothing was in flight; -ETIME, -EINTR.
 */
int kvctx_ring_sleep(struct kvctx *ctx, uint32_t more, uint64_t timeout_ns)
{
	struct kvctx_wait w = {
		.size = sizeof(w),
		.min = min_entries(ctx, more),
		.timeout_ns = timeout_ns,
	};
	int ret = ring_enter(ctx, KVCTX_IOC_WAIT, &w, true);

	return ret < 0 ? ret : (uint32_t)ret < w.min;
}
