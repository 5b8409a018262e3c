/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * What the core needs of its platform: user space on Linux, for tests and tools.
 *
 * os-linux/os.h has the same names for the kernel, libkvctx/engine/os/os.h for the engine in a process; the include
 * path chooses. The core includes nothing else.
 *
 * Beyond theirs: os_warn() ends the program, os_alloc_fault lets a test refuse allocations, os_clock lets it set the
 * time, os_window lets it do what another thread might do while no lock is held, and os_alloc() and os_free() abort
 * when one is.
 */
#ifndef KVC_OS_H
#define KVC_OS_H

#include "user.h"

/* A test's say in each allocation: true refuses it. */
extern bool (*os_alloc_fault)(size_t size);

#define OS_SELF_CHECKS			1

/* ns, as a test sets it */
extern u64 os_clock;

static inline u64 os_now(void)
{
	return READ_ONCE(os_clock);
}

/* Locks that this thread holds */
extern __thread int os_locks_held;

static inline void os_lock(struct os_lock *l)
{
	pthread_mutex_lock(&l->lock);
	os_locks_held++;
}

/* A test's: called where the last lock was dropped, and where memory is asked for. NULL: nobody looks. */
extern void (*os_window)(void);

static inline void os_unlock(struct os_lock *l)
{
	os_locks_held--;
	pthread_mutex_unlock(&l->lock);
	if (unlikely(os_window) && !os_locks_held)
		os_window();
}

/* For who holds another one all the while */
static inline void os_lock_inner(struct os_lock *l)
{
	KVC_WARN_ONCE(os_locks_held < 1);
	os_lock(l);
}

static inline void os_unlock_inner(struct os_lock *l)
{
	os_unlock(l);
	KVC_WARN_ONCE(os_locks_held < 1);
}

#define os_assert_locked(l)		((void)(l), KVC_WARN_ONCE(os_locks_held < 1))

/* Nobody traces tests */
#define os_trace(event, ...)			((void)0)
#define os_trace_op(stage, req, member, result)	((void)0)

#endif
