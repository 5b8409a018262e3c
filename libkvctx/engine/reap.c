// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Waiting for completions, and who reaps the session's transfers meanwhile.
 *
 * One thread at a time is in the ring (cq->reaping): it takes transfers that are over, leaves the ring, and ends their
 * operations, which is where pages are verified; and it encrypts those whose turn came late (cq->later). A caller in
 * WAIT does that himself if nobody is there, and sleeps in the ring; other callers sleep on semaphores of their own.
 * What completes elsewhere (a flush, a deadline, an operation of another thread) wakes a sleeper in the ring by a poke,
 * if it is what he waits for. Who leaves hands over to another caller who waits. A caller who waits for several
 * completions sleeps until so many transfers are over, unless others want to know of each (w->eager): they wait too,
 * poll, or were told to look at an eventfd.
 *
 * The session's reaper makes progress when callers do not. While they come it only looks, every TICK, whether somebody
 * has come since the last time, and less often where they have come for long. If nobody has, and operations are in
 * flight, it goes into the ring itself until callers come again. It sleeps for long (cq->idle) when for a while nothing
 * was in flight; the next operation wakes it. Where callers are other processes (share.h) none will ever come, and it
 * is always in the ring.
 *
 * Whoever ends operations, or starts them later than SUBMIT, may have the caller's memory in his hands, or the ring
 * when the last of them is over, and close() waits for him (cq->touching). It does not wait for a device that holds on
 * to a transfer: the session is an orphan then, and its reaper's. From there on only the device touches the caller's
 * memory: no step is added to a transfer, none is checked or copied, and none succeeds.
 */
#include <time.h>

#include "session.h"

#define REAP_TICK	(KVE_NSEC / 1000)
#define REAP_ORPHAN	(KVE_NSEC / 10)
#define REAP_TICKS_IDLE	100U
#define REAP_TICKS_STEADY	20U	/* of callers who come; then it looks at every fourth */

/* Out of the ring: another caller who waits goes in. Lock held. */
static void reap_hand_over(struct kve_cq *cq)
{
	if (!cq->reaping && cq->waiters)
		kve_waiter_wake(&cq->waiters);
}

/* How many transfers' ends a waiter sleeps for; there is not enough for him. Lock held. */
static u32 reap_want(const struct kve_cq *cq, struct kve_waiter *w)
{
	u32 missing = w->min - kve_cq_consumable(cq);

	w->eager |= missing == 1 || cq->waiters || cq->eventfd >= 0 || cq->pollfd >= 0 || cq->posted;
	return w->eager ? 1 : missing;
}

/* Go into the ring, where nobody is, end what is over, and go on with one that is to. Lock held, but not meanwhile. */
static int reap_once(struct kve_session *s, struct kve_waiter *w, u64 until)
{
	u32 want = w ? reap_want(&s->cq, w) : 1;
	struct kve_io *over, *io;
	struct kve_op *later;
	bool touches;
	int err;

	if (s->cq.later)
		until = 0;
	s->cq.reaping = true;
	s->cq.sleeper = w;
	pthread_mutex_unlock(&s->lock);
	err = kve_ring_wait(s->ring, until, want, &over);
	pthread_mutex_lock(&s->lock);
	s->cq.sleeper = NULL;
	s->cq.reaping = false;
	later = s->cq.later;
	if (!over && !later)
		return err;
	if (later)
		s->cq.later = later->later.next;
	touches = !s->orphaned;
	s->cq.touching += touches;
	pthread_mutex_unlock(&s->lock);
	while ((io = over)) {
		over = io->next;
		kve_io_over(io);
	}
	if (later)
		later->kind->go(later, 0);
	pthread_mutex_lock(&s->lock);
	s->cq.touching -= touches;
	if (!s->cq.touching)
		pthread_cond_signal(&s->cq.drained);
	return err;
}

/* Until @w is woken, or @until. Lock held, but not meanwhile. */
static int reap_sleep(struct kve_session *s, struct kve_waiter *w, u64 until)
{
	struct timespec ts = { .tv_sec = (time_t)(until / KVE_NSEC), .tv_nsec = (long)(until % KVE_NSEC) };
	struct kve_waiter **link;
	int err;

	w->woken = false;
	w->next = s->cq.waiters;
	s->cq.waiters = w;
	kve_cq_hurry(s);
	pthread_mutex_unlock(&s->lock);
	if (until == KVE_NEVER)
		err = sem_wait(&w->sem) ? errno : 0;
	else
		err = sem_clockwait(&w->sem, CLOCK_MONOTONIC, &ts) ? errno : 0;
	pthread_mutex_lock(&s->lock);
	if (w->woken) {
		/* told just when it gave up: take the token too */
		if (err)
			sem_wait(&w->sem);
		return 0;
	}
	for (link = &s->cq.waiters; *link != w; link = &(*link)->next)
		;
	*link = w->next;
	return err == EINTR ? -EINTR : 0;
}

/* Until there is enough, or @until, or a signal was handled. Lock held. */
static int reap_wait(struct kve_session *s, struct kve_waiter *w, u64 until)
{
	int err = 0;

	sem_init(&w->sem, 0, 0);
	while (!kve_cq_enough(&s->cq, w->min) && !err) {
		if (until != KVE_NEVER && kve_now() >= until)
			err = -ETIME;
		else if (!s->cq.reaping)
			err = reap_once(s, w, until);
		else
			err = reap_sleep(s, w, until);
	}
	sem_destroy(&w->sem);
	reap_hand_over(&s->cq);
	return kve_cq_enough(&s->cq, w->min) ? 0 : err;
}

/*
 * Wait until @min completions can be consumed or nothing is in flight. Returns how many can be, or -ETIME, or -EINTR
 * with what is left of *@timeout_ns. With *@timeout_ns 0 it tells the number without waiting.
 */
int kve_cq_wait(struct kve_session *s, u32 min, u64 *timeout_ns)
{
	struct kve_waiter w = { .min = min };
	u64 now, until = KVE_NEVER;
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	if (!kve_cq_enough(&s->cq, min)) {
		s->cq.visits++;
		if (!*timeout_ns) {
			if (!s->cq.reaping)
				reap_once(s, NULL, 0);
			reap_hand_over(&s->cq);
		} else {
			now = kve_now();
			if (*timeout_ns < KVCTX_TIMEOUT_NONE - now)
				until = now + *timeout_ns;
			ret = reap_wait(s, &w, until);
		}
	}
	if (!ret)
		ret = (int)kve_cq_consumable(&s->cq);
	pthread_mutex_unlock(&s->lock);
	if (ret == -EINTR && until != KVE_NEVER) {
		now = kve_now();
		*timeout_ns = until > now ? until - now : 1;
	}
	return ret;
}

/* The caller found nothing in the ring: see whether transfers are over. */
void kve_cq_look(struct kve_session *s)
{
	if (!READ_ONCE(s->ready))
		return;
	pthread_mutex_lock(&s->lock);
	s->cq.visits++;
	if (s->cq.inflight && !s->cq.reaping) {
		reap_once(s, NULL, 0);
		reap_hand_over(&s->cq);
	} else {
		kve_cq_hurry(s);
	}
	pthread_mutex_unlock(&s->lock);
}

/*
 * Until nothing is in flight; of a device that holds on to a transfer not for longer than KVE_PATIENCE. Who waited in
 * vain did so for all sessions of the pool that are closed soon after. The caller's memory is his again in either case.
 */
bool kve_cq_drain(struct kve_session *s)
{
	u64 *impatient = &s->pool->impatient_until, now = kve_now(), until = now;
	struct kve_cq *cq = &s->cq;
	bool drained;

	if (now >= __atomic_load_n(impatient, __ATOMIC_RELAXED))
		until += KVE_PATIENCE;
	pthread_mutex_lock(&s->lock);
	while (!kve_cq_drained(cq) && kve_now() < until)
		kve_cond_wait(&cq->drained, &s->lock, until);
	while (cq->touching)
		pthread_cond_wait(&cq->drained, &s->lock);
	drained = kve_cq_drained(cq);
	if (!drained) {
		if (until > now)
			__atomic_store_n(impatient, until + KVE_PATIENCE, __ATOMIC_RELAXED);
		__atomic_store_n(&s->orphaned, true, __ATOMIC_RELEASE);
		cq->posted = NULL;
		pthread_detach(cq->reaper);
		/* also where nobody is in the ring: what is just being sent is sent before this returns */
		kve_poke(s);
	}
	pthread_mutex_unlock(&s->lock);
	return drained;
}

static void reap_free(struct kve_cq *cq)
{
	pthread_cond_destroy(&cq->wake);
	pthread_cond_destroy(&cq->drained);
}

/* All that is left to do for an orphan. What ends elsewhere than in the ring is found by looking. Lock held. */
static void reap_orphan(struct kve_session *s)
{
	while (!kve_cq_drained(&s->cq))
		reap_once(s, NULL, kve_now() + REAP_ORPHAN);
}

static void *reap_main(void *arg)
{
	struct kve_session *s = arg;
	struct kve_cq *cq = &s->cq;
	u32 ticks = 0, steady = 0;
	bool orphaned;
	u64 seen = 0;

	pthread_mutex_lock(&s->lock);
	while (!cq->stop && !s->orphaned) {
		bool busy = cq->inflight || cq->background || cq->posted;

		if (!busy && ticks == REAP_TICKS_IDLE) {
			cq->idle = true;
			pthread_cond_wait(&cq->wake, &s->lock);
			cq->idle = false;
			ticks = 0;
		} else if (busy && !cq->reaping && (cq->visits == seen || cq->later)) {
			reap_once(s, NULL, KVE_NEVER);
			reap_hand_over(cq);
		} else {
			ticks = busy || cq->visits != seen ? 0 : ticks + 1;
			steady = cq->visits != seen ? steady + 1 : 0;
			seen = cq->visits;
			kve_cond_wait(&cq->wake, &s->lock,
				      kve_now() + (steady < REAP_TICKS_STEADY ? 1 : 4) * REAP_TICK);
		}
	}
	orphaned = s->orphaned;
	if (orphaned)
		reap_orphan(s);
	pthread_mutex_unlock(&s->lock);
	if (orphaned) {
		reap_free(cq);
		cq->end(s);
	}
	return NULL;
}

/* The session has its ring and its completion queue. @end: of one that becomes an orphan, by the reaper */
int kve_reaper_start(struct kve_session *s, void (*end)(struct kve_session *orphan))
{
	int err = kve_cond_init(&s->cq.wake);

	s->cq.end = end;

	if (err)
		return err;
	err = kve_cond_init(&s->cq.drained);
	if (!err) {
		err = kve_thread_start(&s->cq.reaper, reap_main, s, "kvctx-reap");
		if (!err)
			return 0;
		pthread_cond_destroy(&s->cq.drained);
	}
	pthread_cond_destroy(&s->cq.wake);
	return -ENOMEM;
}

/* Nothing is in flight. */
void kve_reaper_stop(struct kve_session *s)
{
	struct kve_cq *cq = &s->cq;

	pthread_mutex_lock(&s->lock);
	cq->stop = true;
	pthread_cond_signal(&cq->wake);
	if (cq->reaping)
		kve_poke(s);
	pthread_mutex_unlock(&s->lock);
	pthread_join(cq->reaper, NULL);
	reap_free(cq);
}
