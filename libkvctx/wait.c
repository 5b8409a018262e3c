// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Waiting for completions.
 *
 * KVCTX_IOC_WAIT sleeps until so many entries lie between head and tail of the ring, or nothing is
 * in flight. It cannot tell completions of calls from others, and a sleeper would wake late if
 * entries that it counts on were published meanwhile. Hence
 *   - nothing is published while a thread sleeps. A sleeper asks for the entries held plus those it
 *     needs, and looks at the ring and decides anew when it wakes
 *   - one sleeper at most watches, that is, wakes at any completion. Others follow it: they wait
 *     until it has seen what they need, or leaves and one of them has to watch
 *   - a thread that sleeps alone may sleep for many completions at once. Who comes later and
 *     cannot wait that long watches beside it
 *   - a watcher that has to sleep while entries are held, since another thread sleeps, comes back
 *     after a while to publish them
 *
 * So no sleeper keeps others from progress: who sleeps for many needs no more than the ring has
 * room for beyond the asynchronous operations that may be busy, and is thus awake, as a follower,
 * before calls have filled the ring with entries held; the watcher publishes them then.
 */
#include <time.h>

#include "handle.h"

#define NSEC_PER_SEC	1000000000ULL
#define RETRY_NS	1000000		/* to look again after an error that should not be */
#define HELD_NS		1000000		/* to publish what is held */

static int watch(struct kvctx *ctx, uint64_t timeout_ns)
{
	bool early = ctx->seen != ctx->published && timeout_ns > HELD_NS;
	int ret;

	ctx->watched = true;
	ret = kvctx_ring_sleep(ctx, 1, early ? HELD_NS : timeout_ns);
	ctx->watched = false;
	return early && ret == -ETIME ? 0 : ret;
}

/* Before a thread goes that may have watched: if others wait for it, one of them has to watch */
static void leave(struct kvctx *ctx)
{
	if (!ctx->watched && ctx->waiters)
		pthread_cond_signal(&ctx->waiters->cond);
}

/* Let the watcher look, until @end (CLOCK_MONOTONIC; NULL: for ever) at the latest */
static void follow(struct kvctx *ctx, struct kvctx_waiter *w, const struct timespec *end)
{
	struct kvctx_waiter **link;
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->cond, &attr);
	pthread_condattr_destroy(&attr);
	w->next = ctx->waiters;
	ctx->waiters = w;
	w->listed = true;
	if (end)
		pthread_cond_timedwait(&w->cond, &ctx->lock, end);
	else
		pthread_cond_wait(&w->cond, &ctx->lock);
	for (link = &ctx->waiters; *link != w; link = &(*link)->next)
		;
	*link = w->next;
	w->listed = false;
	pthread_cond_destroy(&w->cond);
}

static void pause_ns(struct kvctx *ctx, long ns)
{
	const struct timespec ts = { .tv_nsec = ns };

	pthread_mutex_unlock(&ctx->lock);
	nanosleep(&ts, NULL);
	pthread_mutex_lock(&ctx->lock);
}

/*
 * Return when an operation is @done, and not before: its memory may be in use until then. Signals do
 * not matter, and while waiting fails, or a slot is waited for that a call has, the ring is looked at now and then.
 * Who waits for what may be staged, @wants_ready, brings staged operations further, whosever they are.
 */
void kvctx_wait_done(struct kvctx *ctx, struct kvctx_waiter *w, const bool *done)
{
	int ret;

	kvctx_ring_pull(ctx);
	while (!*done) {
		ret = w->wants_ready ? kvctx_stage_step(ctx) : 0;
		if (ret < 0)
			kvctx_wait_room(ctx);
		if (ret)
			continue;
		if (ctx->watched || (w->wants_ready && kvctx_stage_working(ctx))) {
			follow(ctx, w, NULL);
			continue;
		}
		ret = watch(ctx, KVCTX_TIMEOUT_NONE);
		if (ret && ret != -EINTR && !*done) {
			pause_ns(ctx, ret > 0 ? RETRY_NS / 10 : RETRY_NS);
			kvctx_ring_pull(ctx);
		}
	}
	while (w->wants_ready && kvctx_stage_step(ctx) > 0)	/* for those who got no slot because of us */
		;
	leave(ctx);
}

/* The kernel has no room for one more operation: return when it may have */
void kvctx_wait_room(struct kvctx *ctx)
{
	uint32_t published = ctx->published;

	kvctx_ring_pull(ctx);
	if (ctx->published != published)
		return;
	if (ctx->watched || watch(ctx, RETRY_NS) == 1)
		pause_ns(ctx, RETRY_NS / 10);
	leave(ctx);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* Nanoseconds; the clock is asked only if there is an end */
static uint64_t left_until(uint64_t end)
{
	uint64_t now;

	if (end == KVCTX_TIMEOUT_NONE)
		return end;
	now = now_ns();
	return now < end ? end - now : 0;
}

/* One sleep on the way to @nr ready completions; as kvctx_ring_sleep() */
static int sleep_for_ready(struct kvctx *ctx, struct kvctx_waiter *w, uint32_t nr, uint64_t end)
{
	struct timespec ts = { .tv_sec = end / NSEC_PER_SEC, .tv_nsec = end % NSEC_PER_SEC };
	uint32_t more = nr - ctx->nr_ready, spare = ctx->entries - ctx->limit;
	uint64_t left = left_until(end);

	if (!left)
		return -ETIME;
	/* who copies a staged operation lets us know when he has done it */
	if (ctx->watched || kvctx_stage_working(ctx)) {
		follow(ctx, w, end == KVCTX_TIMEOUT_NONE ? NULL : &ts);
		return 0;
	}
	if (more > spare)
		more = spare;
	if (more <= 1 || ctx->sleepers || ctx->nr_pending)
		return watch(ctx, left);
	return kvctx_ring_sleep(ctx, more, left);
}

static int wait_until(struct kvctx *ctx, uint32_t nr, uint64_t end)
{
	struct kvctx_waiter w = { .wants_ready = true };
	int ret = 0, step;

	while (!ret && ctx->nr_ready < nr && ctx->nr_ready < ctx->busy) {
		step = kvctx_stage_step(ctx);
		if (step < 0)
			kvctx_wait_room(ctx);
		if (!step)
			ret = sleep_for_ready(ctx, &w, nr, end);
		else if (!left_until(end))
			ret = -ETIME;
		if (ret == 1 && kvctx_stage_waits(ctx)) {	/* for a slot that a call has */
			pause_ns(ctx, RETRY_NS / 10);
			ret = 0;
		}
	}
	leave(ctx);
	if (ret < 0 && ctx->nr_ready < nr)
		return ret;
	return (int)ctx->nr_ready;
}

int kvctx_wait(struct kvctx *ctx, uint32_t nr, uint64_t timeout_ns)
{
	uint64_t end = timeout_ns, now;
	int ret;

	if (timeout_ns != KVCTX_TIMEOUT_NONE) {
		now = now_ns();
		end = timeout_ns < KVCTX_TIMEOUT_NONE - now ? now + timeout_ns : KVCTX_TIMEOUT_NONE;
	}
	pthread_mutex_lock(&ctx->lock);
	kvctx_ring_look(ctx);
	ret = wait_until(ctx, nr, end);
	pthread_mutex_unlock(&ctx->lock);
	return ret;
}
