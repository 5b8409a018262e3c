/* SPDX-License-Identifier: GPL-2.0 */
/* Small things that several files need. */
#ifndef KVCTX_WORKLOAD_UTIL_H
#define KVCTX_WORKLOAD_UTIL_H

#include <stdint.h>
#include <time.h>

#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))
#define __printf(fmt, args)	__attribute__((format(printf, fmt, args)))

#define NS_PER_SEC		1000000000ULL
#define NS_PER_MSEC		1000000ULL

static inline uint64_t time_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static inline uint64_t clock_ns(void)
{
	return time_ns(CLOCK_MONOTONIC);
}

#endif
