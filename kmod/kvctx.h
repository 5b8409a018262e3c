/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of kvctx.ko share.
 *
 *   main.c base.c bio.c   load and unload; what both sides stand on
 *   cipher.c              keys of tenants
 *   trace.h trace.c       tracepoints
 *   control/              pools, members, tenants, as the operator asks for them by netlink (control/ctrl.h)
 *   data/                 sessions and their operations (data/data.h)
 *   session/              what a session is without I/O (session/session.h)
 *   core/                 the engine (core/core.h), which all may call
 *
 * Floors, lowest first; a file calls only what is below it.
 *   1  base bio cipher trace session/sqe session/tally session/tree session/watch
 *   2  data/debug data/path data/cq session/call session/lease
 *   3  data/mem data/events
 *   4  data/register
 *   5  data/op
 *   6  session/queue session/slots data/send
 *   7  session/park session/turn session/pace session/match
 *   8  data/wait
 *   9  data/io
 *  10  data/load data/store
 *  11  data/slots
 *  12  data/lease
 *  13  data/submit
 *  14  data/uring
 *  15  data/session
 *  16  data/data
 *  17  control/device control/genl_msg control/worker
 *  18  control/recover control/event
 *  19  control/member
 *  20  control/grow control/tenant
 *  21  control/pool control/rejoin
 *  22  control/genl
 *  23  main
 *
 * What is above is called through a table (struct kvc_ops, kvctx_op_kind, file_operations), or asked for by queueing a
 * work item that it has set up (base.c).
 *
 * Lifetimes: a session holds its tenant, a tenant its pool (kvctx_tenant_get/put). Detach and tenant removal refuse
 * with -EBUSY while a session exists, so the data side never meets a dying pool. A session outlives its file while
 * DMA runs (see session.c).
 *
 * Locks, outermost first: pool->admin_lock (ctrl.h: attach, detach, tenants; held over I/O), kvctx_mutex (lists and
 * session counts; never held over I/O), then the data side's own, then the engine's.
 */
#ifndef KVCTX_H
#define KVCTX_H

#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/percpu_counter.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <linux/kvctx.h>
#include <linux/kvctx_genl.h>

#include "compat.h"
#include "core/core.h"
#include "session/pace.h"
#include "session/tally.h"

#define KVCTX_COUNT_BATCH	(16 << 20)	/* bytes that a processor keeps to itself */

struct kvctx_pool;
struct pci_dev;

struct kvctx_flush;

/* What a flush waits for on one member */
struct kvctx_flush_part {
	struct list_head node;
	struct kvctx_flush *flush;
};

/* A flush on its way: kvctx_flush_start() hands it to every member's worker, @done is called once, in process context,
 * after the last of them has written its summaries; @err is the first error.
 *
 * A lost member takes pages with it that completed and were not flushed yet. Every session is told so by -EIO of its
 * next flush, once a loss: @losses_seen points to the session's count of losses it knows of, which starts as
 * atomic_read(&pool->losses) when the session begins. NULL: do not care.
 */
struct kvctx_flush {
	struct kvctx_pool *pool;
	void (*done)(struct kvctx_flush *f);
	u32 *losses_seen;
	int err;
	/* private */
	u32 losses_before;
	atomic_t pending;		/* members that have not written yet */
	u32 nr;				/* members: what kvctx_nr_members() said when it was allocated */
	struct kvctx_flush_part on[];	/* one a member; allocate with struct_size(f, on, nr) */
};

struct kvctx_device;
struct kvctx_op;

/* Bits of kvctx_member.state; the first two are set in this order, and cleared when a member takes the place */
enum {
	KVCTX_MEMBER_FAILED,			/* it is about to be lost */
	KVCTX_MEMBER_LOST,			/* the engine knows, pool->losses has counted it */
	KVCTX_MEMBER_MISSING,			/* it was not there at attach; lost from the beginning */
	KVCTX_MEMBER_REMOVED,			/* nobody is here: a place for another */
	KVCTX_MEMBER_LEAVING,			/* its pages are leaving it */
	KVCTX_MEMBER_WORN,			/* a copy of its superblock could not be written; the log knows */
};

struct kvctx_member {
	struct kvctx_pool *pool;
	u32 index;
	unsigned long state;
	/*
	 * NULL: none. Else valid until detach, also when it is gone; until a removal, or until the member returns with
	 * another one, for who has a page of it in the engine's hands, and under RCU for others.
	 */
	struct block_device *bdev;
	struct kvctx_device *dev;		/* the same device to device.c */
	u64 super_seq;				/* of the superblock that it took last; pool->admin_lock */
	struct work_struct lost_work;
	/* worker.c */
	struct delayed_work work;
	spinlock_t flush_lock;			/* flushes */
	struct list_head flushes;
	/* of the worker alone */
	void *move_buf;
	struct kvc_run *run;
	ktime_t discard_at;			/* not earlier */
	bool no_discard;			/* the device refused one */
	struct kvctx_turn turn ____cacheline_aligned_in_smp;	/* data side: who may go to its device */
	struct delayed_work turn_work;		/* lets those go on that wait for it, see data/wait.c */
	struct {				/* data side: bios that wait for a place there, see data/send.c */
		atomic_t waiting;		/* those, and the one in the submitter's hands */
		spinlock_t lock;		/* any context: bios, until */
		struct list_head bios;
		u64 until;			/* not after the earliest deadline among them */
		struct work_struct work;	/* the submitter, on pool->send_wq */
	} send;
};

/* Nothing else, see data.c */
struct kvctx_counters {
	struct percpu_counter io_errors, flushes, store_waits, bounced_blocks, inflight, rereads;
	struct percpu_counter turn_waits, slot_hits, prefetches;
	struct percpu_counter host_written, reclaim_written, meta_written, discarded;	/* bytes, see bio.c */
};

struct kvctx_pool {
	struct list_head node;			/* under kvctx_mutex */
	struct mutex admin_lock;		/* see control/ctrl.h */
	refcount_t admins;			/* of the structure: who waits for the lock, and the pool itself */
	char name[KVCTX_NAME_MAX];
	struct kvc_pool *core;
	u32 nr_members;				/* places in use, also of removed ones; see kvctx_nr_members() */
	struct kvctx_member *members;		/* KVC_MEMBERS_MAX */
	struct delayed_work leave_work;		/* grow.c */
	bool loss_unwritten;			/* no superblock says yet that a member was lost */
	u64 super_seq;				/* of the superblock that any member took last; admin_lock */
	struct list_head tenants;		/* under kvctx_mutex */
	u32 sessions;				/* under kvctx_mutex */
	bool online;				/* recovered: members can be lost */
	bool stopping;				/* detach: no background work any more, only flushes, no requests */
	bool may_signal;			/* a member's driver may signal who submits; see data/send.c */
	u64 attach_bytes, attach_us;		/* what recovery read, and how long it took */
	atomic_t losses;			/* members lost since attach */
	struct kvctx_flush *last_flush;		/* of kvctx_pool_flush() */
	struct completion flushed;		/* its end */
	void *super_buf;			/* one slot; under admin_lock */
	struct workqueue_struct *bg_wq;		/* worker.c: one item a member */
	struct workqueue_struct *io_wq;		/* data side: verification, copies, failures, retries */
	struct workqueue_struct *send_wq;	/* data side: one item a member, see data/send.c */
	struct llist_head bottom;		/* data side: operations to be ended in softirq context */
	struct work_struct bottom_work;		/* of those, on system_bh_wq */
	struct kvctx_counters counters;
	u64 discard_rate;			/* as the superblock has it; written under kvctx_mutex */
	u64 write_budget;			/* likewise */

	unsigned long impatient_until;		/* data side: in jiffies, sessions end without a wait */
	struct kvctx_park space;		/* data side: STOREs and DELETEs that wait for some, see data/wait.c */
	struct delayed_work space_work;		/* tries them again */
	struct kvctx_pace pace;			/* data side: tenants' operations that may not begin yet */
	struct delayed_work pace_work;		/* lets those begin that may */
	struct work_struct sweep;		/* of all queues: some of those that wait gave up */
	struct dentry *debug;			/* see data/debug.c */
	struct kvctx_pages *pages;		/* control/event.c: who watches them; under kvctx_mutex */
};

struct kvctx_tenant {
	struct list_head node;			/* pool->tenants, under kvctx_mutex */
	struct kvctx_pool *pool;
	u32 slot;				/* in the superblock */
	u32 flags;				/* KVCTX_TENANT_*; does not change while a session is open */
	char name[KVCTX_NAME_MAX];
	u32 minor;
	u32 sessions;				/* under kvctx_mutex */
	struct kvctx_cipher *cipher;		/* the same; NULL: its key was not found, or none is needed */
	struct device *dev;
	struct kvctx_tally *tally;		/* what its operations came to */
};

/* Who goes over the members asks once; what is below is complete. */
static inline u32 kvctx_nr_members(const struct kvctx_pool *p)
{
	/* pairs with the release in kvctx_member_enter() */
	return smp_load_acquire(&p->nr_members);
}

/* base.c: the locks and what they guard, see the head of this file and control/ctrl.h */
extern struct mutex kvctx_mutex;
extern struct list_head kvctx_pools;			/* in the order of their attach; kvctx_mutex */
extern u32 kvctx_generation;				/* raised by all that changes what dumps show; kvctx_mutex */
extern struct xarray kvctx_minors;			/* minor -> tenant; kvctx_mutex */

struct kvctx_pool *kvctx_pool_find(const char *name);	/* kvctx_mutex */
struct kvctx_tenant *kvctx_tenant_get(u32 minor);	/* counts a session; NULL: gone. May sleep */
void kvctx_tenant_put(struct kvctx_tenant *t);		/* uncounts it. May sleep */
void kvctx_tenants_wait(struct kvctx_pool *p);		/* no lock */
void kvctx_member_failed(struct kvctx_member *m);	/* from any process context; asynchronous */
void kvctx_worker_kick(struct kvctx_member *m);		/* no lock, any context */
void kvctx_leave_look(struct kvctx_pool *p);		/* the same */
void kvctx_space(struct kvctx_pool *p);			/* ops->space: retry what is parked; any context, no sleep */
void kvctx_flush_start(struct kvctx_flush *f);

/* cipher.c */
struct kvctx_cipher *kvctx_cipher_find(const char *name);
struct kvctx_cipher *kvctx_cipher_get(struct kvctx_cipher *c);
void kvctx_cipher_put(struct kvctx_cipher *c);
bool kvctx_cipher_valid(const struct kvctx_cipher *c);
int kvctx_cipher_check(struct kvctx_cipher *c, u8 check[KVC_KEY_CHECK]);
int kvctx_cipher_run(struct kvctx_cipher *c, bool encrypt, const u8 *nonce, u32 block, u32 nr, struct page *page,
		     u32 offset);

/* bio.c. I/O is synchronous and of whole blocks, @buf of kvmalloc(). No lock; any context that may sleep */
void kvctx_bio_stream(struct bio *bio, u32 stream);
void kvctx_count_written(struct kvctx_pool *p, struct percpu_counter *c, u64 bytes);
int kvctx_io_stream(struct block_device *bdev, blk_opf_t opf, u32 stream, u64 offset, void *buf, size_t len);

/* The same for reads, and for what the engine's own structures are */
static inline int kvctx_io(struct block_device *bdev, blk_opf_t opf, u64 offset, void *buf, size_t len)
{
	return kvctx_io_stream(bdev, opf, KVC_STREAM_META, offset, buf, len);
}

#endif
