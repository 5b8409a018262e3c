/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the tests of pools in the process share: a directory with a pool of small files, and its pages.
 *
 * I/O of the engine passes through here (the linker wraps pwritev2, preadv2, fdatasync, and what gives to an io_uring,
 * sleeps in it and takes completions off it), so that a device can fail. So does kve_touch().
 */
#ifndef RIG_H
#define RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "engine.h"
#include "format.h"

#define RIG_SEGMENT	(256U << 10)
#define RIG_BYTES	(KVC_DEVICE_MIN + 16 * RIG_SEGMENT)	/* of a member */

extern char rig_dir[];			/* of the test's pool; fresh for each test */
extern char rig_why[KVE_WHY];		/* the last refusal */

int rig_setup(void **state);
/* With the ring of one kind */
int rig_setup_uring(void **state);
int rig_setup_threads(void **state);
int rig_teardown(void **state);
#define TEST(f)		cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

#define URING(f)							\
	{ #f " (io_uring)", f, rig_setup_uring, rig_teardown, NULL }
/* A test of both */
#define BOTH(f)								\
	URING(f),							\
	{ #f " (threads)", f, rig_setup_threads, rig_teardown, NULL }

const char *rig_path(const char *name);			/* below rig_dir; of this thread, valid until the next but three */
void rig_make(const char *dir, u32 members);		/* a pool: members m0, m1, ... */
void rig_file(const char *path, const void *bytes, size_t len, u64 size);

int rig_get(struct kve_pool **p);			/* kve_pool_get() of rig_dir */
struct kve_pool *rig_attach(void);			/* which has to work */
struct kve_pool *rig_again(struct kve_pool *p);		/* detaches it, which is its last use, and attaches */
u32 rig_state(struct kve_pool *p, u32 member);		/* its flags, enum kve_member_state: 0 if it serves */
void rig_refused(int err, const char *why);		/* which has to fail so */

/* Pages of tenant "default", keyspace 0. The result of the engine's begin, or -EIO of the transfer */
int rig_store(struct kve_pool *p, u32 id, u32 len);
int rig_load(struct kve_pool *p, u32 id, u32 len);
void rig_stored(struct kve_pool *p, u32 from, u32 nr);	/* stores them, all of which has to work */
void rig_store_on(struct kve_pool *p, u32 member, u32 from, u32 nr);	/* the same, on this one */
extern u64 rig_members;					/* where pages go; KVC_ANY_MEMBER as a test begins */
u32 rig_found(struct kve_pool *p, u32 from, u32 nr);	/* how many are there and right */
int rig_flush(struct kve_pool *p, u32 *losses_seen);

/* From now on writes, or reads, or flushes of this file fail; NULL: no more */
enum { RIG_READS = 1, RIG_WRITES = 2, RIG_SYNCS = 4 };
void rig_fail(const char *path, int what);
/*
 * The power goes after so many writes of the pool's own and changes of names; what comes then is said to be done, and is
 * not. Negative: it stays.
 */
void rig_power(int events);
bool rig_dark(void);					/* one more event: is it lost? */
bool rig_power_went(void);
void rig_copy(const char *from, const char *to);
/* What kve_log() said since the test began has this in it */
bool rig_logged(const char *text);
int rig_descriptors(void);				/* open ones */

/* What the transfers of sessions are said to have come to; NULL: what they did. In any thread */
extern s64 (*rig_result)(s64 res);
static inline void rig_tell(s64 (*result)(s64 res))	/* as above, with what @result reads */
{
	__atomic_store_n(&rig_result, result, __ATOMIC_RELEASE);
}

extern bool rig_stalled;				/* writes of the pool's own wait; atomically */
extern u32 rig_stuck;					/* so many of them do; atomically */
extern bool rig_held;					/* no transfer of a session ends; atomically */
extern bool rig_full;					/* an io_uring takes nothing; atomically */
extern u32 rig_sleeps;					/* how often somebody went to sleep in an io_uring; atomically */
extern bool rig_gone;					/* kve_touch() finds the caller's memory gone; atomically */

#endif
