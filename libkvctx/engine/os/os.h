/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the core needs of its platform: a process that it shares with a program of somebody else's.
 *
 * A broken invariant does not end the program: os_warn() notes it (kve_broken()) and says so once, to the log and to
 * kve_broken_told. Locks are held for short, so who waits for one spins a little first.
 */
#ifndef KVC_OS_H
#define KVC_OS_H

#include "../../../kmod/core/os-native/user.h"

#define OS_SELF_CHECKS			0

u64 kve_now(void);

static inline u64 os_now(void)
{
	return kve_now();
}

static inline void os_lock(struct os_lock *l)
{
	pthread_mutex_lock(&l->lock);
}

static inline void os_unlock(struct os_lock *l)
{
	pthread_mutex_unlock(&l->lock);
}

#define os_lock_inner(l)		os_lock(l)
#define os_unlock_inner(l)		os_unlock(l)
#define os_assert_locked(l)		((void)(l))

#include "trace.h"

#define os_trace(event, ...)			KVE_TRACE(event, __VA_ARGS__)
#define os_trace_op(stage, req, member, result)	KVE_TRACE_OP(stage, req, member, result)

#endif
