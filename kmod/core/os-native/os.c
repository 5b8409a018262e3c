// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * The native platform's functions that are not inline. See os.h.
 */
#include "os.h"

#define CACHE_LINE	64U

bool (*os_alloc_fault)(size_t size);
void (*os_window)(void);
u64 os_clock;
__thread int os_locks_held;

void os_warn(const char *what, const char *file, int line)
{
	fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, what);
	abort();
}

u64 os_random64(void)
{
	return 4;
}

void *os_alloc(size_t size)
{
	KVC_WARN_ONCE(os_locks_held != 0);
	if (unlikely(os_window))
		os_window();
	if (os_alloc_fault && os_alloc_fault(size))
		return NULL;
	return size % CACHE_LINE ? malloc(size) : aligned_alloc(CACHE_LINE, size);
}

void *os_zalloc(size_t size)
{
	void *p = os_alloc(size);

	return p ? memset(p, 0, size) : NULL;
}

void os_free(void *p)
{
	KVC_WARN_ONCE(os_locks_held != 0);
	free(p);
}

void os_lock_init(struct os_lock *l)
{
	pthread_mutex_init(&l->lock, NULL);
}
