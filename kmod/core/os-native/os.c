// SPDX-License-Identifier: GPL-2.0
/*
 * The native platform's functions that are not inline. See os.h.
 */
#include <isa-l/crc.h>

#include "os.h"

#define CACHE_LINE	64U

bool (*os_alloc_fault)(size_t size);
void (*os_window)(void);
__thread int os_locks_held;

bool os_warn(bool cond, const char *what, const char *file, int line)
{
	if (unlikely(cond)) {
		fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, what);
		abort();
	}
	return cond;
}

/* The library takes an int; a page is shorter, a test's buffer may not be. */
u32 os_crc32c(u32 crc, const void *p, size_t n)
{
	const u8 *b = p;

	while (n > 0) {
		int step = n > INT_MAX ? INT_MAX : (int)n;

		crc = crc32_iscsi((unsigned char *)(uintptr_t)b, step, crc);
		b += step;
		n -= (size_t)step;
	}
	return crc;
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
	free(p);
}

void os_lock_init(struct os_lock *l)
{
	pthread_mutex_init(&l->lock, NULL);
}
