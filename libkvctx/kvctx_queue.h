/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libkvctx: many operations at once, in batches or by the handle's queue, and their completions. Part of kvctx.h.
 */
#ifndef KVCTX_LIB_QUEUE_H
#define KVCTX_LIB_QUEUE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <linux/kvctx.h>

struct kvctx;

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Of a batch: a page with memory that is neither in the arena nor in one registration, or that its member does not
 * reach, is done on a slot of kvctx_stage_init() or kvctx_stage_init_at(), whose function copies it
 */
#define KVCTX_BATCH_STAGE	1U

/**
 * struct kvctx_batch - many pages in one call
 * @size: bytes of the structure, sizeof(struct kvctx_batch)
 * @flags: KVCTX_BATCH_STAGE, or zero
 * @opcode: KVCTX_OP_STORE or KVCTX_OP_LOAD, of all pages
 * @prio: one of enum kvctx_prio
 * @reserved: zero
 * @nr: pages, at least 1; kvctx_batch_submit(): at most cq_entries of the handle; kvctx_batch_run(): 65536
 * @op_flags: KVCTX_OP_* of each operation, as kvctx_sqe_set_flags()
 * @depth: STORE: position of the first page in its prefix, from 1, the others follow; 0: unknown
 * @reserved2: zero
 * @keys: @nr names
 * @addrs: where the pieces of all pages are, those of a page behind each other: in the arena or in registered memory;
 *	with KVCTX_BATCH_STAGE in any
 * @lens: their bytes; a page is as long as its pieces together. LOAD: so many bytes of a page, from @offset on
 * @pieces: @nr numbers of pieces, each 1 to segs_max; NULL: every page is one piece
 * @res: receives @nr results, each as of kvctx_store() and kvctx_load()
 * @cqe_flags: receives @nr times KVCTX_CQE_*; or NULL
 * @user_data: kvctx_batch_submit(): of the completion, below KVCTX_USER_DATA_END
 * @offset: LOAD: first byte wanted of each page; STORE: 0
 *
 * Clear it before use: it grows at the end in later versions, and zeros mean the default. The handle's time limit holds
 * for each operation.
 */
struct kvctx_batch {
	size_t size;
	uint32_t flags;
	uint8_t opcode;
	uint8_t prio;
	uint16_t reserved;
	uint32_t nr;
	uint32_t op_flags;
	uint32_t depth;
	uint32_t reserved2;
	const struct kvctx_key *keys;
	void *const *addrs;
	const uint32_t *lens;
	const uint32_t *pieces;
	int32_t *res;
	uint32_t *cqe_flags;
	uint64_t user_data;
	uint64_t offset;
};

/**
 * kvctx_batch_submit() - begin to store or load many pages
 * @ctx: handle
 * @b: the pages; what it points to is read before the return, but for @res and @cqe_flags, which have to stay until the
 *	batch has completed
 *
 * One completion, for kvctx_take(), tells that all of them have ended: its result is the number of those that succeeded,
 * its flags are zero. Each page has a result of its own. The batch counts as so many operations as it has pages.
 * kvctx_cancel() with its @user_data ends those of its pages that were not started.
 *
 * With KVCTX_BATCH_STAGE pages in memory that was never registered wait for slots, in order, however many more they are:
 * as many STOREs as find a slot are copied now, the others, and all LOADs, while somebody reaps, as kvctx_stage() tells.
 * So the memory is the operation's until the batch has completed, and a LOAD has not changed it before its result is
 * there. Their results have KVCTX_CQE_STAGED. A time limit begins with the slot.
 *
 * Context: MT-Safe. Sleeps only for memory, and while the kernel has no room.
 *
 * Return: 0, or, with nothing done
 *
 * * -EAGAIN: too many operations are in flight, or completions wait to be taken
 * * -EFAULT: a piece is neither in the arena nor in one registration; with KVCTX_BATCH_STAGE: and the page is longer
 *   than a slot, or there are none
 * * -EINVAL: another opcode, no page, or a field that is not as above
 * * -E2BIG: more pages than cq_entries, or a page of more than 65535 pieces; or a batch of a later version of the
 *   library, and not zero there
 * * -ENOMEM: out of memory
 */
int kvctx_batch_submit(struct kvctx *ctx, const struct kvctx_batch *b);

/**
 * kvctx_batch_run() - store or load many pages and wait
 * @ctx: handle
 * @b: the pages
 *
 * Context: MT-Safe. Sleeps; a signal does not end it.
 *
 * Return: number of pages that succeeded, or what kvctx_batch_submit() returns, but for -EAGAIN.
 */
int64_t kvctx_batch_run(struct kvctx *ctx, const struct kvctx_batch *b);

/* Values of user_data from here on are the library's own: do not use them */
#define KVCTX_USER_DATA_END	0xffffffff00000000ULL

/**
 * kvctx_get_sqe() - next free place of the handle's queue
 * @ctx: handle; owns the operation
 *
 * The operation is cleared; fill it with a kvctx_prep_*() function. It is queued from now on, and
 * given to the kernel by the next kvctx_submit(), until when what it points to has to stay. The
 * queue has cq_entries places, or batch_max when that is less.
 *
 * Context: One submitter.
 *
 * Return: the operation, valid until it is submitted; NULL when the queue is full: submit first.
 */
struct kvctx_sqe *kvctx_get_sqe(struct kvctx *ctx);

/**
 * kvctx_submit_sqes() - hand operations of the caller's own to the kernel
 * @ctx: handle
 * @sqes: operations, filled by kvctx_prep_*() functions into memory that was cleared
 * @nr: how many, at least 1
 *
 * As kvctx_get_sqe() and kvctx_submit() by any number of threads: each has operations of its own, and they share the
 * handle, its registrations and its completions. Which thread takes a completion is the program's business.
 *
 * Context: MT-Safe. Sleeps only for memory, and while synchronous calls of other threads leave no room.
 *
 * Return: number taken, from the front, or what kvctx_submit() returns.
 */
int kvctx_submit_sqes(struct kvctx *ctx, const struct kvctx_sqe *sqes, uint32_t nr);

/**
 * kvctx_submit() - hand the queued operations to the kernel
 * @ctx: handle
 *
 * Each operation taken gives exactly one completion, also when it is refused: a bad one never
 * fails its neighbours. Operations that were not taken stay queued, in order, for the next call;
 * pointers from kvctx_get_sqe() do not stay valid.
 *
 * Context: One submitter. Sleeps only for memory, and while synchronous calls of other threads
 * leave no room.
 *
 * Return: number taken, from the front, 0 when nothing was queued; or
 *
 * * -EAGAIN: none, cq_entries completions are in flight or wait to be taken by kvctx_take(); or
 *	fewer are, and synchronous calls of other threads leave no room at the moment
 */
int kvctx_submit(struct kvctx *ctx);

/**
 * kvctx_submit_and_wait() - hand the queued operations to the kernel and wait for completions
 * @ctx: handle
 * @nr: completions to wait for, as in kvctx_wait()
 * @timeout_ns: nanoseconds to wait; 0: as kvctx_submit(); KVCTX_TIMEOUT_NONE: no limit
 *
 * One system call for both, as a rule. The wait can end early, by a signal, by what io_uring does in
 * the task, or when synchronous calls of other threads complete: kvctx_take() tells what is there. Waits too when
 * nothing was queued, but not when nothing could be submitted.
 *
 * Context: One submitter. Sleeps.
 *
 * Return: as kvctx_submit().
 */
int kvctx_submit_and_wait(struct kvctx *ctx, uint32_t nr, uint64_t timeout_ns);

/**
 * kvctx_wait() - wait for completions
 * @ctx: handle
 * @nr: return when so many can be taken, or when nothing is in flight any more
 * @timeout_ns: nanoseconds; 0: only look; KVCTX_TIMEOUT_NONE: no limit
 *
 * Counts completions of asynchronous operations only, and takes none: kvctx_take() does. While other
 * threads make synchronous calls a signal may not end it: use a limit there.
 *
 * Context: MT-Safe. Sleeps.
 *
 * Return: number that can be taken, less than @nr only when nothing more is in flight; or
 *
 * * -ETIME: the limit passed first
 * * -EINTR: a signal was handled first
 */
int kvctx_wait(struct kvctx *ctx, uint32_t nr, uint64_t timeout_ns);

/**
 * kvctx_drain() - wait until nothing is in flight
 * @ctx: handle
 * @timeout_ns: limit; 0: only look; KVCTX_TIMEOUT_NONE: none
 *
 * Then nothing of the handle's queue, of kvctx_submit_sqes() and of batches moves any byte, until more is submitted: the
 * memory may go. Completions are there for kvctx_take().
 *
 * Context: MT-Safe. Sleeps.
 *
 * Return: 0, or
 *
 * * -ETIME: the limit passed
 * * -EINTR: a signal was handled
 */
int kvctx_drain(struct kvctx *ctx, uint64_t timeout_ns);

/**
 * kvctx_expect() - tell of operations that the library does not submit
 * @ctx: handle
 * @nr: operations of a KVCTX_URING_SUBMIT that will be handed to a ring, see
 *	kvctx_uring_prep_submit(); below 0: so many were expected that the kernel has not taken
 *
 * Their completions come to kvctx_take() and count as those of kvctx_submit(). Call it before they
 * are submitted, and with what was not taken when the ring has told how many were. kvctx_wait() takes
 * none of them for in flight before the ring has passed them on.
 *
 * Context: MT-Safe.
 *
 * Return: 0, or
 *
 * * -EAGAIN: more than cq_entries would be in flight or wait to be taken
 * * -EINVAL: below 0: fewer are in flight
 */
int kvctx_expect(struct kvctx *ctx, int nr);

/**
 * kvctx_take() - take completions of asynchronous operations
 * @ctx: handle
 * @cqes: where to copy them
 * @max: room in @cqes
 *
 * In the order in which they completed. No system call, except in an O_RDONLY session.
 *
 * Context: MT-Safe; each completion goes to one caller.
 *
 * Return: number taken, 0 when none wait.
 */
unsigned int kvctx_take(struct kvctx *ctx, struct kvctx_cqe *cqes, unsigned int max);

/*
 * Helpers that fill keys and operations: plain assignments, part of the program that uses them.
 * Operations come cleared from kvctx_get_sqe(), so each helper sets only what its opcode uses.
 */

/**
 * kvctx_sqe_set_data() - value that the completion will carry
 * @sqe: operation
 * @user_data: any value below KVCTX_USER_DATA_END
 *
 * Context: One submitter.
 */
static inline void kvctx_sqe_set_data(struct kvctx_sqe *sqe, uint64_t user_data)
{
	sqe->user_data = user_data;
}

/**
 * kvctx_sqe_set_flags() - flags of an operation
 * @sqe: operation
 * @flags: KVCTX_OP_NOWAIT (STORE, DELETE), KVCTX_OP_NO_VERIFY (STORE, LOAD), KVCTX_OP_NO_SLOT (LOAD),
 *	KVCTX_OP_REPLACE (STORE)
 *
 * Context: One submitter.
 */
static inline void kvctx_sqe_set_flags(struct kvctx_sqe *sqe, uint32_t flags)
{
	sqe->flags = flags;
}

/**
 * kvctx_sqe_set_crcs() - CRCs that come with a STORE, or that a LOAD tells
 * @sqe: operation
 * @crcs: CRC32C of each chunk (chunk_size bytes, the last one shorter) of the page, or that the
 *	range touches; has to stay until the operation is submitted, or with kvctx_stage() until it
 *	has completed
 *
 * STORE from host memory: the kernel compares them (-EILSEQ). STORE from peer memory, which it does
 * not read: they are kept as the page's. LOAD: @crcs is written; kvctx_check_crcs() compares.
 *
 * Context: One submitter.
 */
static inline void kvctx_sqe_set_crcs(struct kvctx_sqe *sqe, uint32_t *crcs)
{
	sqe->crcs = (uint64_t)(uintptr_t)crcs;
}

/**
 * kvctx_sqe_set_prio() - how urgent an operation is
 * @sqe: operation: STORE, LOAD, PREFETCH or GET
 * @prio: one of enum kvctx_prio
 *
 * Context: One submitter.
 */
static inline void kvctx_sqe_set_prio(struct kvctx_sqe *sqe, uint8_t prio)
{
	sqe->prio = prio;
}

/**
 * kvctx_sqe_set_timeout() - deadline of an operation
 * @sqe: operation
 * @timeout_ns: nanoseconds from submission after which it completes with -ETIME if it has not been
 *	started; 0: none
 *
 * Context: One submitter.
 */
static inline void kvctx_sqe_set_timeout(struct kvctx_sqe *sqe, uint64_t timeout_ns)
{
	sqe->timeout_ns = timeout_ns;
}

/**
 * kvctx_prep_rw() - what kvctx_prep_store() and kvctx_prep_load() have in common
 * @sqe: operation
 * @opcode: KVCTX_OP_STORE or KVCTX_OP_LOAD
 * @key: name of the page; copied
 * @segs: scatter list; has to stay until the operation is submitted
 * @nr_segs: its entries, 1 to segs_max
 * @length: bytes, the sum of the entries' lengths
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_rw(struct kvctx_sqe *sqe, uint8_t opcode, const struct kvctx_key *key,
				 const struct kvctx_seg *segs, uint16_t nr_segs, uint64_t length)
{
	sqe->opcode = opcode;
	sqe->key = *key;
	sqe->segs = (uint64_t)(uintptr_t)segs;
	sqe->nr_segs = nr_segs;
	sqe->length = length;
}

/**
 * kvctx_prep_store() - make an operation a STORE
 * @sqe: operation
 * @key: name of the page; copied
 * @segs: where its pieces are; has to stay until the operation is submitted
 * @nr_segs: entries of @segs, 1 to segs_max
 * @length: bytes of the page, the sum of the pieces
 * @depth: position in its prefix, from 1; 0: unknown. A hint for eviction
 *
 * The pieces may not change until it has completed.
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_store(struct kvctx_sqe *sqe, const struct kvctx_key *key,
				    const struct kvctx_seg *segs, uint16_t nr_segs,
				    uint64_t length, uint32_t depth)
{
	kvctx_prep_rw(sqe, KVCTX_OP_STORE, key, segs, nr_segs, length);
	sqe->depth = depth;
}

/**
 * kvctx_prep_load() - make an operation a LOAD
 * @sqe: operation
 * @key: name of the page; copied
 * @segs: where its pieces go; has to stay until the operation is submitted
 * @nr_segs: entries of @segs, 1 to segs_max
 * @offset: first byte of the range inside the page
 * @length: bytes of the range, the sum of the pieces
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_load(struct kvctx_sqe *sqe, const struct kvctx_key *key,
				   const struct kvctx_seg *segs, uint16_t nr_segs,
				   uint64_t offset, uint64_t length)
{
	kvctx_prep_rw(sqe, KVCTX_OP_LOAD, key, segs, nr_segs, length);
	sqe->offset = offset;
}

/**
 * kvctx_prep_store_at() - make an operation a STORE of a page that is one piece
 * @sqe: operation
 * @key: name of the page; copied
 * @mem: memory id: KVCTX_MEM_ARENA, or of kvctx_mem_register()
 * @at: bytes from the start of that memory
 * @length: bytes of the page
 * @depth: position in its prefix, from 1; 0: unknown. A hint for eviction
 *
 * Less to do for the kernel than kvctx_prep_store() with one segment. The bytes may not change until it has completed.
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_store_at(struct kvctx_sqe *sqe, const struct kvctx_key *key, uint32_t mem, uint64_t at,
				       uint64_t length, uint32_t depth)
{
	kvctx_prep_rw(sqe, KVCTX_OP_STORE, key, NULL, 0, length);
	sqe->mem = mem;
	sqe->segs = at;
	sqe->depth = depth;
}

/**
 * kvctx_prep_load_at() - make an operation a LOAD to one piece of memory
 * @sqe: operation
 * @key: name of the page; copied
 * @mem: memory id: KVCTX_MEM_ARENA, or of kvctx_mem_register()
 * @at: bytes from the start of that memory
 * @offset: first byte of the range inside the page
 * @length: bytes of the range
 *
 * Less to do for the kernel than kvctx_prep_load() with one segment.
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_load_at(struct kvctx_sqe *sqe, const struct kvctx_key *key, uint32_t mem, uint64_t at,
				      uint64_t offset, uint64_t length)
{
	kvctx_prep_rw(sqe, KVCTX_OP_LOAD, key, NULL, 0, length);
	sqe->mem = mem;
	sqe->segs = at;
	sqe->offset = offset;
}

/**
 * kvctx_prep_delete() - make an operation a DELETE
 * @sqe: operation
 * @key: name of the page; copied
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_delete(struct kvctx_sqe *sqe, const struct kvctx_key *key)
{
	sqe->opcode = KVCTX_OP_DELETE;
	sqe->key = *key;
}

/**
 * kvctx_prep_query() - make an operation a QUERY
 * @sqe: operation
 * @key: name of the page; copied
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_query(struct kvctx_sqe *sqe, const struct kvctx_key *key)
{
	sqe->opcode = KVCTX_OP_QUERY;
	sqe->key = *key;
}

/**
 * kvctx_prep_lease() - make an operation a LEASE
 * @sqe: operation
 * @key: name of the page; copied
 * @ms: milliseconds, 1 to lease_ms_max
 *
 * The completion's result is the lease id.
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_lease(struct kvctx_sqe *sqe, const struct kvctx_key *key, uint32_t ms)
{
	sqe->opcode = KVCTX_OP_LEASE;
	sqe->key = *key;
	sqe->lease_ms = ms;
}

/**
 * kvctx_prep_release() - make an operation a RELEASE
 * @sqe: operation
 * @lease: lease id
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_release(struct kvctx_sqe *sqe, uint32_t lease)
{
	sqe->opcode = KVCTX_OP_RELEASE;
	sqe->lease = lease;
}

/**
 * kvctx_prep_prefetch() - make an operation a PREFETCH
 * @sqe: operation
 * @key: name of the page; copied
 * @ms: milliseconds to keep it, 1 to lease_ms_max
 *
 * The completion's result is the page's length.
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_prefetch(struct kvctx_sqe *sqe, const struct kvctx_key *key,
				       uint32_t ms)
{
	sqe->opcode = KVCTX_OP_PREFETCH;
	sqe->key = *key;
	sqe->lease_ms = ms;
}

/**
 * kvctx_prep_get() - make an operation a GET
 * @sqe: operation
 * @key: name of the page; copied
 * @ms: milliseconds to keep it, 1 to lease_ms_max
 *
 * The completion's result is the number of the slot, see kvctx_slots().
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_get(struct kvctx_sqe *sqe, const struct kvctx_key *key, uint32_t ms)
{
	sqe->opcode = KVCTX_OP_GET;
	sqe->key = *key;
	sqe->lease_ms = ms;
}

/**
 * kvctx_prep_put() - make an operation a PUT
 * @sqe: operation
 * @slot: number of the slot
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_put(struct kvctx_sqe *sqe, uint32_t slot)
{
	sqe->opcode = KVCTX_OP_PUT;
	sqe->lease = slot;
}

/**
 * kvctx_prep_cancel() - make an operation a CANCEL
 * @sqe: operation
 * @user_data: of the operations that are to end, see kvctx_cancel()
 *
 * The completion's result is the number of operations that it ended.
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_cancel(struct kvctx_sqe *sqe, uint64_t user_data)
{
	sqe->opcode = KVCTX_OP_CANCEL;
	sqe->offset = user_data;
}

/**
 * kvctx_prep_match() - make an operation a MATCH
 * @sqe: operation
 * @keys: names of pages in prefix order; have to stay until the operation is submitted
 * @nr: how many, 1 to match_max
 * @flags: KVCTX_OP_MATCH_*; or 0
 * @lease_ms: milliseconds, with KVCTX_OP_MATCH_LEASE or KVCTX_OP_MATCH_PREFETCH; otherwise 0
 * @mem: memory id of where the answer goes: KVCTX_MEM_ARENA, or of kvctx_mem_register()
 * @at: bytes from the start of that memory
 * @length: room there: a &struct kvctx_found, a bit for each key in words of 64, 4 bytes for each length. What does not
 *	fit is left out
 *
 * The completion's result is the number of pages found.
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_match(struct kvctx_sqe *sqe, const struct kvctx_key *keys, uint32_t nr, uint32_t flags,
				    uint32_t lease_ms, uint32_t mem, uint64_t at, uint64_t length)
{
	sqe->opcode = KVCTX_OP_MATCH;
	sqe->flags = flags;
	sqe->keys = (uint64_t)(uintptr_t)keys;
	sqe->nr_keys = nr;
	sqe->lease_ms = lease_ms;
	sqe->mem = mem;
	sqe->segs = at;
	sqe->length = length;
}

/**
 * kvctx_prep_flush() - make an operation a FLUSH
 * @sqe: operation
 *
 * It covers what completed before it is submitted.
 *
 * Context: One submitter.
 */
static inline void kvctx_prep_flush(struct kvctx_sqe *sqe)
{
	sqe->opcode = KVCTX_OP_FLUSH;
}

#ifdef __cplusplus
}
#endif

#endif
