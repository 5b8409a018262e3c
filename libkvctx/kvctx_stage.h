/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libkvctx: memory that members do not reach, copied by a function of the caller's, and which they do. Part of kvctx.h.
 */
#ifndef KVCTX_LIB_STAGE_H
#define KVCTX_LIB_STAGE_H

#include <stddef.h>
#include <stdint.h>
#include <linux/kvctx.h>

struct kvctx;

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Staging. A page can lie on a member that peer memory has no path to, or the memory is of a device
 * whose driver publishes none, or it was never registered: the operation has to go through memory that
 * the server knows then, copied by who can reach both. The caller gives the library such memory, slots of
 * one size, and a function that copies, and tells which operations may be staged: by kvctx_stage(), or by
 * KVCTX_BATCH_STAGE. The library has no threads: kvctx_take() and kvctx_wait() copy and submit anew while
 * they are at it, and so do batches that may be staged, and synchronous calls that need a slot or give one back.
 */

/* Directions of a copy */
enum kvctx_copy_direction {
	KVCTX_COPY_TO_HOST = 0,		/* from the caller's memory to the arena: STORE */
	KVCTX_COPY_FROM_HOST = 1,	/* from the arena to the caller's memory: LOAD */
};

/*
 * The caller's copy function: 0, or -errno, which becomes the operation's result. It gets the
 * caller's own address of what is no host memory: where that was registered, plus an offset. It is
 * called once for each piece of a page, then once with 0 bytes and two NULL: return when all pieces
 * before have been copied, or with their error. Several threads may call it at once when several
 * reap. It makes no calls of the library.
 */
typedef int (*kvctx_copy_fn)(void *copy_ctx, void *dst, const void *src, size_t bytes,
			     enum kvctx_copy_direction direction);

/**
 * kvctx_stage_init() - give the library a copy function, and memory to stage pages in
 * @ctx: handle
 * @copy: the function
 * @copy_ctx: its first argument
 * @offset: of the library's part of the arena, which is its own from now on
 * @slots: pages that can be on their way at once
 * @slot_bytes: bytes of one slot: the longest page that can be staged
 *
 * Once per handle, before any operation is staged.
 *
 * Context: MT-Unsafe.
 *
 * Return: 0, or
 *
 * * -EINVAL: no function, no slots, or they do not fit into the arena
 * * -EEXIST: done before
 * * -ENOMEM: out of memory
 */
int kvctx_stage_init(struct kvctx *ctx, kvctx_copy_fn copy, void *copy_ctx, uint64_t offset,
		     uint32_t slots, uint32_t slot_bytes);

/**
 * kvctx_stage_init_at() - as kvctx_stage_init(), with slots in any memory of the session, and again
 * @ctx: handle
 * @copy: the function; NULL: the processor, for memory of the host
 * @copy_ctx: its first argument
 * @memory: where the slots are: in the arena or in one registration, which then stays, -EBUSY, until they are elsewhere
 * @slots: pages that can be on their way at once; 0: none any more
 * @slot_bytes: bytes of one slot: the longest page that can be staged; 0 with no slots
 *
 * Also while other operations are in flight, and any number of times: other slots, for longer pages, take the place of
 * the former when nothing is staged or waits to be.
 *
 * Context: MT-Safe.
 *
 * Return: 0, or
 *
 * * -EBUSY: a slot is taken or waited for: reap, and try again
 * * -EINVAL: one of @slots and @slot_bytes is zero, or @memory is not all in the arena or one registration
 * * -ENOMEM: out of memory
 */
int kvctx_stage_init_at(struct kvctx *ctx, kvctx_copy_fn copy, void *copy_ctx, void *memory, uint32_t slots,
			uint32_t slot_bytes);

/**
 * kvctx_stage() - have a queued operation staged where it has to be
 * @ctx: handle
 * @sqe: a STORE or LOAD from kvctx_get_sqe(), complete with its data and flags; not touched by the
 *	caller afterwards
 *
 * When it completes with -EREMOTEIO, and its page is not longer than a slot, it is done again on a
 * slot, in the order of completion as slots become free, and the caller sees only the end of it:
 * with KVCTX_CQE_STAGED, and VERIFIED as the kernel has verified the bytes in the slot. Scatter list
 * and CRCs have to stay, and memory to be registered, until the operation has completed. Its time
 * limit counts anew. An eventfd and kvctx_fd() tell of the first end too: call kvctx_take() then,
 * which goes on with it and may return nothing.
 *
 * Context: One submitter.
 *
 * Return: 0, or
 *
 * * -EINVAL: no kvctx_stage_init(), or an operation of another kind, or done before
 */
int kvctx_stage(struct kvctx *ctx, struct kvctx_sqe *sqe);

/**
 * kvctx_store_staged() - store a page from memory that a member may not reach, and wait
 * @ctx: handle
 * @key: name of the page
 * @buf: the page: inside one registration, or memory that only the copy function can read
 * @len: bytes, 1 to page_len_max
 * @crcs: CRC32C of each chunk, see kvctx_sqe_set_crcs(); or NULL
 * @cqe_flags: KVCTX_CQE_* of the completion, or NULL; STAGED: it was copied
 *
 * Registered memory is stored from as it is when that is possible, otherwise the page is staged.
 *
 * Context: MT-Safe. Sleeps; a signal does not end it.
 *
 * Return: @len; 0: not admitted, as kvctx_store(); or
 *
 * * -EREMOTEIO: no path, and the page is longer than a slot
 * * -EILSEQ: the bytes do not have these CRCs
 * * -EINVAL: zero length, or no kvctx_stage_init()
 * * -E2BIG: longer than page_len_max
 *
 * and what kvctx_store() and the copy function return.
 */
int64_t kvctx_store_staged(struct kvctx *ctx, const struct kvctx_key *key, const void *buf,
			   size_t len, const uint32_t *crcs, uint32_t *cqe_flags);

/**
 * kvctx_load_staged() - load a page to memory that a member may not reach, and wait
 * @ctx: handle
 * @key: name of the page
 * @buf: where to: inside one registration, or memory that only the copy function can write
 * @len: bytes wanted, 1 to the length of the page
 * @crcs: receives the CRC32C of each chunk, see kvctx_sqe_set_crcs(); or NULL
 * @cqe_flags: KVCTX_CQE_* of the completion, or NULL; STAGED: it was copied, P2P: it was not, and
 *	is not VERIFIED
 *
 * Context: MT-Safe. Sleeps; a signal does not end it.
 *
 * Return: @len, or
 *
 * * -EREMOTEIO: no path, and the page is longer than a slot
 * * -EOPNOTSUPP: with @crcs: the page was stored without any
 * * -EPERM: the tenant requires verified pages: load with @crcs and compare
 * * -EINVAL: zero length, or no kvctx_stage_init()
 * * -ERANGE: the page is shorter
 *
 * and what kvctx_load() and the copy function return.
 */
int64_t kvctx_load_staged(struct kvctx *ctx, const struct kvctx_key *key, void *buf, size_t len,
			  uint32_t *crcs, uint32_t *cqe_flags);

/**
 * kvctx_paths() - which members a memory reaches
 * @ctx: handle
 * @mem: memory id
 * @paths: receives one row a member; or NULL
 * @nr: room in @paths
 *
 * Context: MT-Safe.
 *
 * Return: members of the pool, of which at most @nr rows were written, or
 *
 * * -EINVAL: no such memory
 * * -ENOTTY: a module that does not tell
 */
int kvctx_paths(struct kvctx *ctx, uint32_t mem, struct kvctx_path *paths, uint32_t nr);

/**
 * kvctx_path_text() - a row of kvctx_paths() in words
 * @path: the row
 * @buf: room for the text; NULL only when @len is 0
 * @len: bytes of @buf; 160 hold every text
 *
 * As "0000:03:00.0: no common switch with nvme0n1". Cut off, and terminated, when @buf is too short.
 *
 * Context: MT-Safe.
 *
 * Return: length of the whole text, as snprintf().
 */
int kvctx_path_text(const struct kvctx_path *path, char *buf, size_t len);

#ifdef __cplusplus
}
#endif

#endif
