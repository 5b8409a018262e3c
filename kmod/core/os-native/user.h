/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * What the core needs of user space on Linux, as far as it is the same in tests and tools (os.h) and in the engine that
 * serves in a process (libkvctx/engine/os/os.h). Each of these adds its locks, and what a broken invariant means.
 */
#ifndef KVC_OS_USER_H
#define KVC_OS_USER_H

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <linux/types.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

#ifndef __packed
#define __packed			__attribute__((__packed__))
#endif
#ifndef __force
#define __force
#endif
#ifndef __aligned
#define __aligned(n)			__attribute__((__aligned__(n)))
#endif
#define likely(x)			__builtin_expect(!!(x), 1)
#define unlikely(x)			__builtin_expect(!!(x), 0)
#ifndef __clang_analyzer__
#define READ_ONCE(x)			__atomic_load_n(&(x), __ATOMIC_RELAXED)
#else	/* to it the built-in is no access, and would tell nothing about the pointer */
#define READ_ONCE(x)			(*(const volatile __typeof__(x) *)&(x))
#endif
#define WRITE_ONCE(x, v)		__atomic_store_n(&(x), v, __ATOMIC_RELAXED)
#define os_load_acquire(p)		__atomic_load_n(p, __ATOMIC_ACQUIRE)
#define os_store_release(p, v)		__atomic_store_n(p, v, __ATOMIC_RELEASE)
#define os_prefetch(p)			__builtin_prefetch(p)
#define BIT(n)				(1UL << (n))
#define BIT_ULL(n)			(1ULL << (n))
#define ARRAY_SIZE(a)			(sizeof(a) / sizeof((a)[0]))
/* Reads what others write, and may get anything */
#define os_racy				__attribute__((__no_sanitize__("thread"), __noinline__))
#define fallthrough			__attribute__((__fallthrough__))

#ifndef U32_MAX
#define U32_MAX				UINT32_MAX
#define U64_MAX				((u64)UINT64_MAX)
#endif

#ifndef min
#define min(a, b) ({					\
	__typeof__(a) _min_a = (a);			\
	__typeof__(b) _min_b = (b);			\
	(void)(&_min_a == &_min_b);			\
	_min_a < _min_b ? _min_a : _min_b; })
#define max(a, b) ({					\
	__typeof__(a) _max_a = (a);			\
	__typeof__(b) _max_b = (b);			\
	(void)(&_max_a == &_max_b);			\
	_max_a > _max_b ? _max_a : _max_b; })
#define min_t(type, a, b)		min((type)(a), (type)(b))
#define max_t(type, a, b)		max((type)(a), (type)(b))
#endif

#define os_static_assert(cond, msg)	_Static_assert(cond, msg)

/* True when @cond, which must never be: what then happens is os_warn()'s affair. */
void os_warn(const char *what, const char *file, int line);
#define KVC_WARN_ONCE(cond) ({				\
	bool _broken = (cond);				\
	if (unlikely(_broken))				\
		os_warn(#cond, __FILE__, __LINE__);	\
	_broken; })

static inline __le16 cpu_to_le16(u16 v) { return (__le16)htole16(v); }
static inline __le32 cpu_to_le32(u32 v) { return (__le32)htole32(v); }
static inline __le64 cpu_to_le64(u64 v) { return (__le64)htole64(v); }
static inline u16 le16_to_cpu(__le16 v) { return le16toh((u16)v); }
static inline u32 le32_to_cpu(__le32 v) { return le32toh((u32)v); }
static inline u64 le64_to_cpu(__le64 v) { return le64toh((u64)v); }

/* As in the kernel: rings of nodes, entered by a head that is in none of them */
struct list_head {
	struct list_head *next, *prev;
};

#ifndef container_of
#define container_of(p, type, member)	((type *)((char *)(p) - offsetof(type, member)))
#endif
#define list_first_entry_or_null(head, type, member) \
	(list_empty(head) ? NULL : container_of((head)->next, type, member))
#define list_for_each_entry(p, head, member)						\
	for (p = container_of((head)->next, __typeof__(*p), member); &p->member != (head);	\
	     p = container_of(p->member.next, __typeof__(*p), member))
/* The body may take @p out */
#define list_for_each_entry_safe(p, n, head, member)					\
	for (p = container_of((head)->next, __typeof__(*p), member),			\
	     n = container_of(p->member.next, __typeof__(*p), member); &p->member != (head);	\
	     p = n, n = container_of(n->member.next, __typeof__(*n), member))

static inline void INIT_LIST_HEAD(struct list_head *head)
{
	head->next = head;
	head->prev = head;
}

static inline bool list_empty(const struct list_head *head)
{
	return head->next == head;
}

static inline void list_add(struct list_head *node, struct list_head *behind)
{
	node->prev = behind;
	node->next = behind->next;
	node->next->prev = node;
	behind->next = node;
}

static inline void list_add_tail(struct list_head *node, struct list_head *head)
{
	list_add(node, head->prev);
}

static inline void list_del(struct list_head *node)
{
	node->next->prev = node->prev;
	node->prev->next = node->next;
}

static inline void list_move_tail(struct list_head *node, struct list_head *head)
{
	list_del(node);
	list_add_tail(node, head);
}

/* All that are behind @from go to the end of @to */
static inline void list_splice_tail_init(struct list_head *from, struct list_head *to)
{
	while (!list_empty(from))
		list_move_tail(from->next, to);
}

/* Raw CRC32C register update: no inversion before or after. */
u32 os_crc32c(u32 crc, const void *p, size_t n);

/* Whole cache lines begin where one does, as with the kernel's. */
void *os_alloc(size_t size);
void *os_zalloc(size_t size);
void os_free(void *p);
u64 os_random64(void);		/* that nobody can foretell; of tests: the same each time */
#define os_alloc_charged(size)		os_alloc(size)
#define os_zalloc_charged(size)		os_zalloc(size)

#define os_lock_task(l)			os_lock(l)
#define os_unlock_task(l)		os_unlock(l)

#define OS_NEVER			U64_MAX
#define os_index(i, n)			(i)

static inline void os_relax(void)
{
}

struct os_lock {
	union {
		pthread_mutex_t lock;
		char	room[48];	/* arm64's: memory is counted alike on all machines */
	};
};

void os_lock_init(struct os_lock *l);
#define os_must_hold(l)

struct os_atomic {
	u32 v;
};

struct os_atomic64 {
	u64 v;
};

/* What others did before they brought it to this value is seen after it. */
static inline u32 os_atomic_read(const struct os_atomic *a)
{
	return __atomic_load_n(&a->v, __ATOMIC_ACQUIRE);
}

static inline void os_atomic_set(struct os_atomic *a, u32 n)
{
	__atomic_store_n(&a->v, n, __ATOMIC_RELAXED);
}

/* Returns the new value; a full barrier, as all below that return something. */
static inline u32 os_atomic_inc_return(struct os_atomic *a)
{
	return __atomic_add_fetch(&a->v, 1, __ATOMIC_SEQ_CST);
}

static inline bool os_atomic_dec_and_test(struct os_atomic *a)
{
	return __atomic_sub_fetch(&a->v, 1, __ATOMIC_SEQ_CST) == 0;
}

static inline void os_atomic_inc(struct os_atomic *a)
{
	__atomic_add_fetch(&a->v, 1, __ATOMIC_RELAXED);
}

static inline void os_atomic_dec(struct os_atomic *a)
{
	__atomic_sub_fetch(&a->v, 1, __ATOMIC_RELEASE);
}

/* Unless it is 1: subtract 1 and return true. */
static inline bool os_atomic_dec_unless_last(struct os_atomic *a)
{
	u32 v = __atomic_load_n(&a->v, __ATOMIC_RELAXED);

	while (v != 1)
		if (__atomic_compare_exchange_n(&a->v, &v, v - 1, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			return true;
	return false;
}

static inline u32 os_atomic_xchg(struct os_atomic *a, u32 n)
{
	return __atomic_exchange_n(&a->v, n, __ATOMIC_SEQ_CST);
}

static inline u64 os_atomic64_read(const struct os_atomic64 *a)
{
	return __atomic_load_n(&a->v, __ATOMIC_RELAXED);
}

static inline void os_atomic64_set(struct os_atomic64 *a, u64 n)
{
	__atomic_store_n(&a->v, n, __ATOMIC_RELAXED);
}

static inline u64 os_atomic64_inc_return(struct os_atomic64 *a)
{
	return __atomic_add_fetch(&a->v, 1, __ATOMIC_SEQ_CST);
}

static inline void os_atomic64_add(struct os_atomic64 *a, u64 n)
{
	__atomic_add_fetch(&a->v, n, __ATOMIC_RELAXED);
}

static inline void os_atomic64_sub(struct os_atomic64 *a, u64 n)
{
	__atomic_sub_fetch(&a->v, n, __ATOMIC_RELAXED);
}

/* A pointer that others find without a lock, and what it points to with it */
#define os_publish(pp, p)		__atomic_store_n(pp, p, __ATOMIC_RELEASE)
#define os_published(pp)		__atomic_load_n(pp, __ATOMIC_ACQUIRE)

#define os_mb()				__atomic_thread_fence(__ATOMIC_SEQ_CST)
#define os_mb_after_atomic()		os_mb()

#endif
