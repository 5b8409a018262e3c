/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * What the core needs of its platform: the Linux kernel.
 *
 * os-native/os.h has the same names for user space; the include path chooses. The core includes nothing else.
 *
 * Locks are spinlocks, taken in process and in softirq context. os_alloc() may sleep and is never called under a lock.
 */
#ifndef KVC_OS_H
#define KVC_OS_H

#include <linux/atomic.h>
#include <linux/bits.h>
#include <linux/build_bug.h>
#include <linux/bug.h>
#include <linux/container_of.h>
#include <linux/crc32c.h>
#include <linux/errno.h>
#include <linux/ktime.h>
#include <linux/limits.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/prefetch.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/stddef.h>
#include <linux/string.h>
#include <linux/types.h>
#include <asm/barrier.h>
#include <asm/byteorder.h>

#include "../../trace.h"

#define os_static_assert(cond, msg)	static_assert(cond, msg)

#define os_load_acquire(p)	smp_load_acquire(p)		/* users name what it pairs with */
#define os_store_release(p, v)	smp_store_release(p, v)		/* the same */
#define os_racy			__no_kcsan	/* reads what others write, and may get anything */
#define os_prefetch(p)		prefetch(p)	/* any address will do */

/* True when @cond, which must never be: says so once. */
#define KVC_WARN_ONCE(cond)		WARN_ON_ONCE(cond)

/* Raw CRC32C register update: no inversion before or after. */
static inline u32 os_crc32c(u32 crc, const void *p, size_t n)
{
	return crc32c(crc, p, n);
}

static inline void *os_alloc(size_t size)
{
	return kvmalloc(size, GFP_KERNEL | __GFP_NOWARN);
}

static inline void *os_zalloc(size_t size)
{
	return kvzalloc(size, GFP_KERNEL | __GFP_NOWARN);
}

/* The same on the account of the process that asks */
static inline void *os_alloc_charged(size_t size)
{
	return kvmalloc(size, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
}

static inline void *os_zalloc_charged(size_t size)
{
	return kvzalloc(size, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
}

static inline void os_free(void *p)
{
	kvfree(p);
}

/* ns since some moment before; only forward */
static inline u64 os_random64(void)
{
	return get_random_u64();
}

static inline u64 os_now(void)
{
	return (u64)ktime_get();
}

#define OS_NEVER		U64_MAX

/* @i, which is below @n, where a caller of ours said it */
#define os_index(i, n)		array_index_nospec(i, n)

/* Give others the processor in a long loop; no lock may be held. */
static inline void os_relax(void)
{
	cond_resched();
}

/* The tests verify every extent that is written. Here its CRC alone would cost as much as all else about it. */
#define OS_SELF_CHECKS			0

struct os_lock {
	spinlock_t lock;	/* guards what its owner says */
};

/* Macros, so that each place of initialization is a lock class of its own, and sparse sees the context change. */
#define os_lock_init(l)			spin_lock_init(&(l)->lock)
#define os_lock(l)			spin_lock_bh(&(l)->lock)
#define os_unlock(l)			spin_unlock_bh(&(l)->lock)
/* The same for who holds another one all the while */
#define os_lock_inner(l)		spin_lock(&(l)->lock)
#define os_unlock_inner(l)		spin_unlock(&(l)->lock)
/* The same for one that is taken in process context only */
#define os_lock_task(l)			spin_lock(&(l)->lock)
#define os_unlock_task(l)		spin_unlock(&(l)->lock)
#define os_must_hold(l)			__must_hold(&(l)->lock)	/* of a function that drops and retakes @l */
#define os_assert_locked(l)		lockdep_assert_held(&(l)->lock)

struct os_atomic {
	atomic_t v;
};

struct os_atomic64 {
	atomic64_t v;
};

/* What others did before they brought it to this value is seen after it. */
static inline u32 os_atomic_read(const struct os_atomic *a)
{
	return (u32)atomic_read_acquire(&a->v);
}

static inline void os_atomic_set(struct os_atomic *a, u32 n)
{
	atomic_set(&a->v, (int)n);
}

/* Returns the new value; a full barrier, as all below that return something. */
static inline u32 os_atomic_inc_return(struct os_atomic *a)
{
	return (u32)atomic_inc_return(&a->v);
}

static inline bool os_atomic_dec_and_test(struct os_atomic *a)
{
	return atomic_dec_and_test(&a->v);
}

static inline void os_atomic_inc(struct os_atomic *a)
{
	atomic_inc(&a->v);
}

static inline void os_atomic_dec(struct os_atomic *a)
{
	atomic_dec(&a->v);
}

/* Unless it is 1: subtract 1 and return true. */
static inline bool os_atomic_dec_unless_last(struct os_atomic *a)
{
	return atomic_add_unless(&a->v, -1, 1);
}

static inline u32 os_atomic_xchg(struct os_atomic *a, u32 n)
{
	return (u32)atomic_xchg(&a->v, (int)n);
}

static inline u64 os_atomic64_read(const struct os_atomic64 *a)
{
	return (u64)atomic64_read(&a->v);
}

static inline void os_atomic64_set(struct os_atomic64 *a, u64 n)
{
	atomic64_set(&a->v, (s64)n);
}

static inline u64 os_atomic64_inc_return(struct os_atomic64 *a)
{
	return (u64)atomic64_inc_return(&a->v);
}

static inline void os_atomic64_add(struct os_atomic64 *a, u64 n)
{
	atomic64_add((s64)n, &a->v);
}

static inline void os_atomic64_sub(struct os_atomic64 *a, u64 n)
{
	atomic64_sub((s64)n, &a->v);
}

/* A pointer that others find without a lock, and what it points to with it */
#define os_publish(pp, p)		smp_store_release(pp, p)	/* pairs with os_published() */
#define os_published(pp)		smp_load_acquire(pp)		/* pairs with os_publish() */

#define os_mb()				smp_mb()	/* users name what it pairs with */
#define os_mb_after_atomic()		smp_mb__after_atomic()	/* the same */

/* Tell who traces: an event of trace.h; a stage of a struct kvctx_req, with its member (-1: none) and result */
#define os_trace(event, ...)			trace_##event(__VA_ARGS__)
#define os_trace_op(stage, req, member, result)	trace_##stage(req, member, result)

#endif
