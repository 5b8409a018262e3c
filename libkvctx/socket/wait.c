// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * WAIT in a session of kvctxd.
 *
 * One thread, the watcher, answers for all who sleep: it writes on the door which position of the far ring's tail is
 * wanted and polls the bell; others sleep on a futex (@rounds) that is moved whenever completions have come to the near
 * ring, and when the watcher leaves, so that one of them takes over. Alone it asks for the position that it needs, with
 * others for the next completion, or that the eventfd has told of the last one.
 */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "socket.h"

#define NSEC		1000000000ULL

static uint64_t sleep_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC + (uint64_t)ts.tv_nsec;
}

/* Completions have been harvested that the eventfd does not tell of yet, nor the door */
static bool sleep_lags(const struct socket_file *s)
{
	return s->signals && (int32_t)(kvs_door_tail(s) - s->seen) < 0;
}

/* How many more completions, at most, have to come before we return to the caller */
static uint32_t sleep_more(const struct socket_file *s, uint32_t min)
{
	uint32_t have = kvs_ring_consumable(s), more = min > have ? min - have : 0;

	/* the last one in flight ends every sleep */
	return more < s->inflight ? more : s->inflight;
}

/* Enough? The eventfd counts what the caller is told of */
static bool sleep_enough(const struct socket_file *s, uint32_t min)
{
	return !sleep_more(s, min) && (!sleep_lags(s) || kvs_gone(s));
}

/* How far off is what to ask for on the door? Who is not alone asks for all: for the next thing that anybody waits for */
static uint32_t sleep_ahead(const struct socket_file *s, uint32_t min)
{
	uint32_t more = sleep_more(s, min);

	if (s->sleepers == 1 || !more)
		return more;
	return !sleep_lags(s);
}

static struct timespec *sleep_left(uint64_t until, struct timespec *ts)
{
	uint64_t now;

	if (until == KVCTX_TIMEOUT_NONE)
		return NULL;
	now = sleep_now();
	now = until > now ? until - now : 0;
	*ts = (struct timespec){ .tv_sec = (time_t)(now / NSEC), .tv_nsec = (long)(now % NSEC) };
	return ts;
}

/* Have the bell rung when the far ring's tail comes to @position. false: it has */
static bool sleep_ask(struct socket_file *s, uint32_t position)
{
	__atomic_store_n(&s->door->wanted, WIRE_WANTED | position, __ATOMIC_SEQ_CST);
	return (int32_t)(kvs_door_tail(s) - position) < 0;
}

/* The watcher: until the bell rings, the daemon is gone, a signal or the end. Lock held, but not meanwhile */
static int sleep_watch(struct socket_file *s, uint32_t min, uint64_t until)
{
	struct pollfd fds[] = {
		{ .fd = s->fds[WIRE_FD_BELL], .events = POLLIN }, { .fd = s->kick_fd, .events = POLLIN },
	};
	struct timespec ts;
	eventfd_t kicks;
	int ret = 0;

	if (!sleep_ask(s, s->seen + sleep_ahead(s, min)))
		return 0;
	s->watched = true;
	pthread_mutex_unlock(&s->lock);
	if (ppoll(fds, 2, sleep_left(until, &ts), NULL) < 0)
		ret = errno == EINTR ? -EINTR : 0;
	kvs_drain(s, WIRE_FD_BELL);
	if (fds[1].revents)
		eventfd_read(s->kick_fd, &kicks);
	pthread_mutex_lock(&s->lock);
	s->watched = false;
	/* what others wait for may be the eventfd alone, and nothing comes to the near ring then */
	if (s->signals && s->sleepers > 1)
		kvs_ring_wake(s);
	return ret;
}

/* Beside a watcher, who has to look out for us too. Lock held, but not meanwhile */
static int sleep_follow(struct socket_file *s, uint32_t min, uint64_t until)
{
	uint32_t rounds = s->rounds;
	struct timespec ts;
	long ret;

	if (!sleep_ask(s, s->seen + sleep_ahead(s, min)))
		return 0;
	pthread_mutex_unlock(&s->lock);
	ret = syscall(SYS_futex, &s->rounds, FUTEX_WAIT_PRIVATE, rounds, sleep_left(until, &ts), NULL, 0);
	ret = ret < 0 && errno == EINTR ? -EINTR : 0;
	pthread_mutex_lock(&s->lock);
	return (int)ret;
}

/* Lock held */
static int sleep_until(struct socket_file *s, uint32_t min, uint64_t until)
{
	int ret = 0;

	s->sleepers++;
	while (!sleep_enough(s, min) && !ret) {
		if (until != KVCTX_TIMEOUT_NONE && sleep_now() >= until)
			ret = -ETIME;
		else if (s->watched)
			ret = sleep_follow(s, min, until);
		else
			ret = sleep_watch(s, min, until);
		kvs_ring_harvest(s);
	}
	s->sleepers--;
	if (!s->watched)
		kvs_ring_wake(s);
	return sleep_enough(s, min) ? 0 : ret;
}

int kvs_sleep(struct socket_file *s, uint32_t min, __u64 *timeout_ns)
{
	uint64_t until = KVCTX_TIMEOUT_NONE, now = 0;
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	kvs_ring_harvest(s);
	if (*timeout_ns && !sleep_enough(s, min)) {
		now = sleep_now();
		if (*timeout_ns < KVCTX_TIMEOUT_NONE - now)
			until = now + *timeout_ns;
		ret = sleep_until(s, min, until);
	}
	if (!ret)
		ret = (int)kvs_ring_consumable(s);
	pthread_mutex_unlock(&s->lock);
	if (!ret && kvs_gone(s))
		return -ENODEV;
	if (ret == -EINTR && until != KVCTX_TIMEOUT_NONE) {
		now = sleep_now();
		*timeout_ns = until > now ? until - now : 1;
	}
	return ret;
}
