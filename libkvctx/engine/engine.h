/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The contract of uapi/linux/kvctx.h served in the process: pools, around kmod/core, without the module.
 *
 * Here lives what a pool needs whoever uses it: its devices, attach and detach, the worker of each member, time. What a
 * session is stands in session.h. Nothing here prints, handles a signal or ends the process.
 *
 * Vocabulary (beside kmod/core/core.h)
 *   device     a file or block device, opened for this process alone
 *   attendant  the pool's thread for all that waits for time or for space
 *   job        a function that the attendant calls, soon or at a time
 *   loss       of a member: its pages are gone until it returns, or the next attach
 *   place      of a member, by its number: there are KVC_MEMBERS_MAX from the beginning, and nobody is in most of them
 *   holder     who holds on to the devices of members, and lets go when one leaves
 *
 * Lifetimes: kve_pool_get() attaches the pool of a directory, or finds it attached in this process, and counts the
 * caller; the last kve_pool_put() detaches it, in the background when a device does not answer. A child after fork() owns nothing: see fork.c.
 *
 * Floors, lowest first; a file calls only what is below it. The core is below all of them.
 *   1  log fork huge format file attend
 *   2  os/os device create
 *   3  member super
 *   4  worker recover
 *   5  grow
 *   6  attach
 *   7  pool
 *   8  resize
 *
 * Locks, outermost first: kve_admin_lock (which pools there are), pool->super_lock (everything that changes a
 * superblock; held over I/O, so no session's call takes it), pool->config_lock (who changes what it says of members or
 * tenants or sets a rate holds it too, so others can read that; never held over I/O), a session's, the engine's,
 * pool->lock (jobs, flushes; never held over I/O).
 * pool->holders_lock is outside of a ring's, and under super_lock. No function of an upper floor is called under a lock
 * of a lower one.
 */
#ifndef KVE_ENGINE_H
#define KVE_ENGINE_H

#include <pthread.h>
#include <syslog.h>

#include "core.h"

/* Of the library's symbols: all others are hidden */
#define KVE_PUBLIC	__attribute__((__visibility__("default")))

#define KVE_NSEC	1000000000ULL
#define KVE_NEVER	U64_MAX
#define KVE_PATIENCE	(5 * KVE_NSEC)	/* with a device that does not answer, of who closes */

struct kve_pool;

/* CLOCK_MONOTONIC, in ns: all times are of this clock */
u64 kve_now(void);

/* device.c */

struct kve_device {
	char *path;
	int fd;				/* O_DIRECT */
	u64 bytes;
	u32 align;			/* of memory, offset and length of a transfer; at most KVC_BLOCK */
	bool block;			/* a block device, not a file */
	bool discards;
	bool tells;			/* when a transfer would have to wait; see device.c */
};

/*
 * Open @path for this process alone: a block device with O_EXCL, both with an flock(). 0, or -errno with a sentence in
 * @why (KVE_WHY bytes): -EBUSY names the process that has it.
 */
#define KVE_WHY		256
int kve_device_open(struct kve_device *d, const char *path, char *why);
void kve_device_close(struct kve_device *d);
void kve_device_let_go(struct kve_device *d);	/* others may have it; what it was called stays */
bool kve_device_is(const struct kve_device *d, const char *path);	/* does @path lead to it now? */
/* Synchronous; @buf, @len and @offset aligned to KVC_BLOCK. 0, -EIO. @durable: PREFLUSH and FUA */
int kve_device_read(const struct kve_device *d, void *buf, size_t len, u64 offset);
int kve_device_write(const struct kve_device *d, const void *buf, size_t len, u64 offset, bool durable);
int kve_device_discard(const struct kve_device *d, u64 offset, u64 len);

/* attend.c: the pool's attendant, and what all threads of the engine share */

int kve_cond_init(pthread_cond_t *c);				/* of CLOCK_MONOTONIC; 0, -errno */
void kve_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, u64 until);
int kve_thread_start(pthread_t *t, void *(*fn)(void *arg), void *arg, const char *name);	/* 0, -errno */

struct kve_job {
	struct kve_job *next;
	void (*fn)(struct kve_job *job);	/* in the attendant's thread, no lock held; may queue itself again */
	u64 at;					/* when, if it is queued */
	bool queued;
	bool cancelled;				/* somebody waits for its end: it is not queued meanwhile */
};

/* Have @job called at @at, or earlier if it is queued for earlier. Any thread, any lock but pool->lock; 0: soon */
void kve_job_queue(struct kve_pool *p, struct kve_job *job, u64 at);
/* It is not queued any more, and not running. Not by the attendant, nor under a lock that its function takes */
void kve_job_cancel(struct kve_pool *p, struct kve_job *job);

/* worker.c: flushes, as in the module */

struct kve_flush {
	struct kve_pool *pool;
	/* Once, by a thread of the engine, after the last member has written its summaries; no lock held */
	void (*done)(struct kve_flush *f);
	u32 *losses_seen;		/* of the session: -EIO once a loss. NULL: do not care */
	int err;
	/* private */
	u32 losses_before;
	struct os_atomic pending;
	struct kve_flush_part {
		struct kve_flush_part *next;
		struct kve_flush *flush;
	} on[KVC_MEMBERS_MAX];
};

void kve_flush_start(struct kve_flush *f);
int kve_pool_flush(struct kve_pool *p);		/* and wait for it. 0, or what kept it from being durable */

/* member.c */

enum {
	KVE_MEMBER_FAILED	= 1,	/* it is about to be lost */
	KVE_MEMBER_LOST		= 2,	/* the engine knows, pool->losses has counted it */
	KVE_MEMBER_MISSING	= 4,	/* it was not there at attach */
	KVE_MEMBER_REMOVED	= 8,	/* nobody is here: a hole, or a place that was never used */
	KVE_MEMBER_LEAVING	= 16,	/* it is being removed */
};

struct kve_member {
	struct kve_pool *pool;
	u32 index;
	u32 state;			/* atomically */
	struct kve_device *dev;		/* NULL: none. Else there until detach, though closed when it is REMOVED */
	u64 super_seq;			/* of the superblock that it took last; super_lock */
	bool told;			/* that it was lost is noted, and told; the same */
	/* worker.c */
	pthread_t thread;
	pthread_cond_t wake;
	bool works;			/* there is a thread */
	bool kicked;			/* atomically */
	struct kve_flush_part *flushes;	/* pool->lock */
	void *move_buf;
	struct kvc_run *run;
	u64 discard_at;			/* not earlier */
};

/* Only ever added to; a name of KVCTX_A_* each, see INFO of the pool */
struct kve_counters {
	struct os_atomic64 io_errors, flushes, store_waits, bounced, rereads, turn_waits, slot_hits, prefetches;
	struct os_atomic64 host_written, reclaim_written, meta_written, discarded;	/* bytes */
};

struct kve_holder {
	struct kve_holder *next;
	void (*let_go)(struct kve_holder *h, u32 member);	/* nothing moves there any more */
};

struct kve_pool {
	struct kve_pool *next;		/* of those of this process; kve_admin_lock */
	u64 number;			/* of those of this process, in the order of their attach */
	bool arriving;			/* being attached; kve_admin_lock */
	bool leaving;			/* being detached, by a thread of its own; kve_admin_lock */
	char *dir;			/* absolute */
	u64 dir_dev, dir_ino;		/* what it is found by */
	char name[KVC_NAME_MAX];
	u32 users;			/* kve_admin_lock */
	struct kvc_pool *core;
	u32 nr_members;			/* places with a worker: it only grows; see kve_nr_members() */
	struct kve_member members[KVC_MEMBERS_MAX];
	struct os_atomic losses;	/* members lost since attach */
	bool online;			/* recovered: the engine may call; atomically */
	bool stopping;			/* detach: only flushes any more; atomically */
	bool quit;			/* threads end; lock */
	u64 attach_bytes, attach_ns;	/* what recovery read, and how long it took */
	pthread_mutex_t super_lock, config_lock;
	void *super_buf;		/* one slot; super_lock */
	u64 super_seq;			/* of the superblock that any member took last; the same */
	struct kve_counters counters;
	pthread_mutex_t lock;

	/* attend.c */
	pthread_t attendant;
	bool attended;			/* there is a thread */
	pthread_cond_t attend;
	struct kve_job *jobs, *running;

	/* grow.c: the thread that ends removals; lock */
	pthread_t leaver;
	bool leaves;			/* there is one */
	bool leave_look;		/* a member may have left */
	bool leave_stop;
	pthread_cond_t leave;

	pthread_mutex_t holders_lock;
	struct kve_holder *holders;

	u64 impatient_until;		/* sessions end without a wait; atomically */

	/* Of the sessions': queued when the engine says that there is space. fn is set by who first waits */
	struct kve_job space;
	struct kve_waits *waits;	/* of the sessions, see session.h; freed with the pool */
	struct {			/* of tenants, likewise, by slot; config_lock */
		u32 epoch;		/* which it is about */
		struct kvctx_tally *tally;	/* NULL: nobody asked yet */
	} accounts[KVC_TENANTS_MAX];
};

/*
 * Who serves pools to others is told what becomes of their members. By a thread of the engine, or the one that had a member
 * return, which holds the pool's super_lock. NULL: nobody is told. Set before the first pool is attached.
 */
enum kve_member_news { KVE_MEMBER_WAS_LOST, KVE_MEMBER_HAS_LEFT, KVE_MEMBER_IS_BACK };
extern void (*kve_member_told)(struct kve_member *m, enum kve_member_news news);

/* Held over the I/O of an attach */
extern u64 kve_index_max;	/* bytes that the index of a pool attached from now on may take; 0: a quarter of memory */
extern pthread_mutex_t kve_admin_lock;

/*
 * The pool of the directory @dir, whose members are its files and its links to files and block devices, but for those
 * whose name begins with a dot. Attaches it unless this process has it attached. A member may be missing where the directory has
 * an entry ".degraded". 0, or with a sentence in @why
 *   -ENOENT      no such directory, or nothing in it
 *   -EBUSY       another process has it, or something else; or it is still being detached
 *   -ENOTTY      nothing in it is a member of a pool
 *   -EMEDIUMTYPE an entry beside members that is no member of this pool
 *   -EUCLEAN     members are damaged, missing, too small, there twice, or have two histories
 *   -EOPNOTSUPP  a member of a later format, or a device that cannot be used
 *   -EIO         a member cannot be read or written
 *   -ENODEV      this process's engine is broken, or not this process's
 *   -ENOMEM, and what open() may give
 */
int kve_pool_get(const char *dir, struct kve_pool **out, char *why);
/* false: it is being detached still, after KVE_PATIENCE */
bool kve_pool_put(struct kve_pool *p);
/* Slot and KVCTX_TENANT_* of a tenant. 0, -ENOENT */
int kve_pool_tenant(struct kve_pool *p, const char *name, u32 *slot, u32 *flags);
/* A transfer found that the device is gone. Any thread; asynchronous */
void kve_member_failed(struct kve_member *m);

static inline u32 kve_member_state(const struct kve_member *m)
{
	return __atomic_load_n(&m->state, __ATOMIC_ACQUIRE);
}

/* Members below this number are complete, also if nobody is there */
static inline u32 kve_nr_members(const struct kve_pool *p)
{
	return os_load_acquire(&p->nr_members);
}

void kve_holder_add(struct kve_pool *p, struct kve_holder *h);
void kve_holder_remove(struct kve_pool *p, struct kve_holder *h);	/* it is not being called any more */

/* grow.c */

/*
 * Have the file or block device @path as a member too; with @bytes a new file of that size is made there. What it holds
 * is lost. An entry of the pool's directory is made for one that lies elsewhere. 0, or with a sentence in @why
 *   -ENOSPC   it is too small, the file system is too full, or the pool has no place for another one
 *   -EEXIST   it holds a member of a pool; with @bytes: something is there
 *   -EBUSY    it is in use
 *   -EIO      it cannot be read or written; or no superblock could be
 * and what kve_device_open() gives. @dry_run: could it be? Nothing is read, written or made
 */
int kve_pool_add(struct kve_pool *p, const char *path, u64 bytes, bool dry_run, char *why);
/*
 * Begin to remove a member: its pages go to others, if @move and as far as these have room, or are dropped. When that is
 * over the state says REMOVED, the directory has it no more (a file that lay there is gone), and its superblocks are
 * wiped, unless the directory could not be changed. Irreversible until the next attach, which has the member again if it
 * was not over. 0, or with a sentence in @why
 *   -ENOENT    there is no such member
 *   -EBUSY     it is the last one online
 *   -EALREADY  it is leaving
 */
int kve_pool_remove(struct kve_pool *p, u32 member, bool move, char *why);

/* rejoin.c */

/*
 * Have a member that was lost since the attach return, from the file or device that it has open still or from @path, if
 * that has what the member was left with. 0, or with a sentence in @why
 *   -ESTALE   it has not; or others were lost later, and have to return first
 *   -EEXIST   the member is online
 *   -EINVAL   it was missing at the attach; or the pool's directory leads to another file or device than @path
 *   -EBUSY    it is leaving, or what was begun on it before takes longer than half a minute; or somebody else has it
 *   -EXDEV    of another pool, or no member any more
 *   -ENOSPC   too small
 *   -EIO      it cannot be read or written
 * and what kve_device_open() gives
 */
int kve_pool_rejoin(struct kve_pool *p, const char *path, char *why);

/* fork.c */

/* Between these no fork() takes place: for who opens and owns, or disowns and closes. May be nested */
void kve_fork_lock(void);
void kve_fork_unlock(void);
/* A descriptor that a child closes behind fork(), and that it must not use. 0, -ENOMEM */
int kve_fork_own(int fd);
void kve_fork_disown(int fd);		/* before close() */
/* Is this a child of the process that called it first? Then nothing of the engine may be touched */
bool kve_forked(void);

/* log.c: what an operator should know; told to the program's callback, if it has one */
__attribute__((__format__(printf, 2, 3)))
void kve_log(int priority, const char *fmt, ...);	/* LOG_* of syslog.h */
/* The sentence to go with an error. @why has KVE_WHY bytes. Returns @err */
__attribute__((__format__(printf, 3, 4)))
int kve_refuse(char *why, int err, const char *fmt, ...);

/* os.c: an invariant of the engine is broken: nothing is served in this process any more (-ENODEV) */
bool kve_broken(void);
/*
 * Who serves pools to others is told so, once, by the thread that found it, behind the line in the log: any locks are
 * held, so nothing of the engine may be called. NULL: nobody is told. Set before the first pool is attached.
 */
extern void (*kve_broken_told)(void);

#endif
