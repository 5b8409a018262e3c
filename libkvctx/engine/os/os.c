// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The platform's functions that are not inline. See os.h.
 */
#include <sys/random.h>
#include <syslog.h>

#include "engine.h"

#define CACHE_LINE	64U
/* Blocks of memory from this size on may be written to devices, which want whole pages: the extents of the log are */
#define IO_MIN		(64U << 10)

static bool os_broken;

void (*kve_broken_told)(void);

void os_warn(const char *what, const char *file, int line)
{
	if (__atomic_exchange_n(&os_broken, true, __ATOMIC_SEQ_CST))
		return;
	kve_log(LOG_CRIT, "%s:%d: invariant broken, nothing is served any more: %s", file, line, what);
	if (kve_broken_told)
		kve_broken_told();
}

bool kve_broken(void)
{
	return __atomic_load_n(&os_broken, __ATOMIC_ACQUIRE);
}

/* Without the system's own the addresses that it chose have to do. */
u64 os_random64(void)
{
	u64 seed;

	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed = os_now() ^ (u64)(uintptr_t)&seed;
	return seed;
}

void *os_alloc(size_t size)
{
	if (size % CACHE_LINE)
		return malloc(size);
	return aligned_alloc(size < IO_MIN || size % KVC_BLOCK ? CACHE_LINE : KVC_BLOCK, size);
}

void *os_zalloc(size_t size)
{
	void *p = os_alloc(size);

	return p ? memset(p, 0, size) : NULL;
}

void os_free(void *p)
{
	free(p);
}

void os_lock_init(struct os_lock *l)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&l->lock, &attr);
	pthread_mutexattr_destroy(&attr);
}
