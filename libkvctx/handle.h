/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the files of the library share.
 *
 *   sys.c	which server a path is for; sys.h is the seam
 *   sys_kernel.c the kernel as a server: system calls, alone
 *   crc.c	CRC32C
 *   copy.c	copies of pages; for servers, too
 *   keys.c	names from bytes
 *   inline.c	the header's helpers as symbols
 *   text.c	words for numbers
 *   mem.c	registrations, and which of them a buffer lies in
 *   paths.c	which members a memory reaches
 *   ring.c	the completion ring: operations go in, entries are taken off it
 *   stage.c	copies through slots, where memory and member, or server, do not reach each other
 *   wait.c	waiting for completions
 *   queue.c	asynchronous operations: their queue, and taking their completions
 *   sync.c	synchronous calls
 *   handle.c	open, close, what a handle is
 *   batch.c	many pages in one call
 *   slots.c	synchronous calls that read pages ahead
 *
 * Floors, lowest first; a file calls only what is below it.
 *   1  sys_kernel crc copy keys text
 *   2  sys mem paths ring
 *   3  stage
 *   4  wait
 *   5  queue sync handle
 *   6  batch slots inline
 *
 * Vocabulary
 *   seen	entries of the ring that were copied out of it
 *   published	entries of the ring that the server was told to be free again
 *   held	entries seen and not published
 *   ready	completions of asynchronous operations that were seen and not yet taken by the
 *		caller
 *   busy	asynchronous operations submitted, or being submitted, and not yet taken by the
 *		caller; never more than @limit, so that the ready list has room for all of them
 *   pending	operations with a user_data of the library's own, a tag: those of synchronous calls, and
 *		the staged ones. Their completions go to the function that they carry
 *   sleeper	thread inside KVCTX_IOC_WAIT, or in a KVCTX_IOC_SUBMIT that waits
 *
 * Locking: @lock guards what stands behind it, and is not held over a system call that sleeps. The
 * queue of operations has no lock: one submitter. What stands before @sqes is constant.
 */
#ifndef KVCTX_HANDLE_H
#define KVCTX_HANDLE_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "kvctx.h"
#include "sys.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/* A registration, on a list of the handle */
struct kvctx_reg {
	struct kvctx_reg *next;
	uintptr_t addr;
	size_t len;
	uint32_t id;
	unsigned int users;		/* calls */
};

/* A thread that lets another one look at the ring; on a list of the handle while it does */
struct kvctx_waiter {
	struct kvctx_waiter *next;
	pthread_cond_t cond;		/* there while it is on the list */
	bool listed;
	bool wants_ready;		/* is to be woken when the ready list changes */
};

struct kvctx_pending {
	struct kvctx_pending *next;
	uint64_t tag;			/* user_data */
	/*
	 * Its completion is seen; with ctx->lock held. It stays pending until it is removed. Returns
	 * whether those who wait on the ready list have to look.
	 */
	bool (*done)(struct kvctx *ctx, struct kvctx_pending *p, const struct kvctx_cqe *cqe);
};

#define KVCTX_PENDING_LISTS	64

/* An operation that may be done on a slot, see stage.c */
struct kvctx_staged {
	struct kvctx_staged *next;
	const struct kvctx_sqe *sqe;	/* as the caller made it; with its pieces, there until the end */
	uint64_t tag;			/* its user_data in the kernel */
	struct kvctx_cqe cqe;		/* what the caller will get */
	void (*done)(struct kvctx *ctx, struct kvctx_staged *st);	/* @cqe is complete; with ctx->lock held */
	uint32_t slot;
	bool has_slot, again;
};

/* Instead of a registration in pieces of such an operation: the offset is an address. No server gives this id */
#define KVCTX_MEM_ADDRESS	UINT32_MAX

/* user_data of operations of batches: the place of theirs, and 16 bits for the page; pending operations' are below */
#define KVCTX_BATCH_TAG		(KVCTX_USER_DATA_END + (1ULL << 31))

struct kvctx_stage;
struct kvctx_batch_work;

struct kvctx {
	struct kvctx_file *file;	/* NULL: not open yet */
	pid_t owner;			/* not a child of it */
	bool rdonly;
	struct kvctx_info info;
	uint64_t timeout_ns;
	uint32_t limit;			/* of busy */
	uint32_t entries;		/* of ring and ready list; a power of two, at least limit */
	struct kvctx_cq_ring *ring;
	size_t ring_bytes;
	void *arena;
	size_t arena_bytes;
	void *slots;
	size_t slot_bytes;
	uint32_t nr_slots;
	uint32_t queue_len;

	/* the submitter's */
	struct kvctx_sqe *sqes;
	uint32_t queued;

	pthread_mutex_t lock;
	struct kvctx_reg *regs;
	uint32_t seen, published;	/* free-running, as positions of the ring */
	struct kvctx_cqe *ready;
	uint32_t ready_head, nr_ready;
	uint32_t busy;
	uint32_t next_tag;
	struct kvctx_pending *pending[KVCTX_PENDING_LISTS];	/* by tag */
	uint32_t nr_pending;		/* with batches */
	struct kvctx_batch_work **batches;	/* by place; room for nr_batches */
	uint32_t nr_batches;
	bool (*batch_done)(struct kvctx *ctx, const struct kvctx_cqe *cqe);	/* as that of a pending one */
	bool (*batch_uses)(const struct kvctx *ctx, uint32_t mem);	/* what is not submitted yet of them */
	struct kvctx_waiter *waiters;
	unsigned int sleepers;
	bool watched;			/* a sleeper wakes at any completion */
	struct kvctx_stage *stage;	/* NULL: nothing is staged yet */
};

/* mem.c */
struct kvctx_reg *kvctx_mem_get(struct kvctx *ctx, const void *buf, size_t len);
struct kvctx_reg *kvctx_mem_get_id(struct kvctx *ctx, uint32_t id);
void kvctx_mem_put(struct kvctx *ctx, struct kvctx_reg *reg);
int kvctx_mem_locate(const struct kvctx *ctx, uintptr_t p, size_t len, uint32_t *mem, uint64_t *offset);
void kvctx_mem_free_all(struct kvctx *ctx);

/* ring.c; with ctx->lock held */
void kvctx_ring_pull(struct kvctx *ctx);
void kvctx_ring_look(struct kvctx *ctx);		/* drops it to look */
void kvctx_ready_add(struct kvctx *ctx, const struct kvctx_cqe *cqe);
void kvctx_wake_ready(struct kvctx *ctx);
void kvctx_pending_add(struct kvctx *ctx, struct kvctx_pending *p);
void kvctx_pending_remove(struct kvctx *ctx, struct kvctx_pending *p);
/* also ring.c; the lock is dropped meanwhile */
int kvctx_ring_submit(struct kvctx *ctx, const struct kvctx_sqe *sqes, uint32_t nr, uint32_t more,
		      uint64_t timeout_ns);
int kvctx_ring_sleep(struct kvctx *ctx, uint32_t more, uint64_t timeout_ns);

/* wait.c; with ctx->lock held, which is dropped to sleep */
void kvctx_wait_done(struct kvctx *ctx, struct kvctx_waiter *w, const bool *done);
void kvctx_wait_room(struct kvctx *ctx);

/* sync.c */
int64_t kvctx_call(struct kvctx *ctx, struct kvctx_sqe *sqe, uint32_t *cqe_flags);

/* stage.c; all but the last three with ctx->lock held */
void kvctx_stage_seen(struct kvctx *ctx, struct kvctx_staged *st, const struct kvctx_cqe *cqe);
void kvctx_stage_add(struct kvctx *ctx, struct kvctx_staged *st);
int kvctx_stage_cancel(struct kvctx *ctx, uint64_t user_data);
bool kvctx_stage_fits(const struct kvctx *ctx, uint64_t bytes);
int kvctx_stage_step(struct kvctx *ctx);
bool kvctx_stage_working(const struct kvctx *ctx);
bool kvctx_stage_waits(const struct kvctx *ctx);
int64_t kvctx_stage_take_slot(struct kvctx *ctx, uint64_t bytes);
void kvctx_stage_give_slot(struct kvctx *ctx, uint32_t slot);
struct kvctx_sqe kvctx_stage_on_slot(const struct kvctx *ctx, const struct kvctx_sqe *sqe, uint32_t slot);
int kvctx_stage_copy(struct kvctx *ctx, const struct kvctx_sqe *sqe, void *buf, uint32_t slot);
void kvctx_stage_free(struct kvctx *ctx);

#endif
