/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libkvctx: KV cache pages on NVMe and NVMe-oF namespaces, through /dev/kvctx/<pool>/<tenant>.
 *
 * A handle (struct kvctx) is one session of a tenant's node with a keyspace. Memory that operations move is either the
 * session's arena (pinned memory from the kernel) or memory registered with kvctx_mem_register().
 *
 * Simple callers use the synchronous functions, which take any buffer. Others fill operations into the handle's queue
 * (kvctx_get_sqe() and kvctx_prep_*), submit many with one system call, and take completions without one
 * (kvctx_peek()).
 *
 * Conventions. Functions return 0 or a count, or -errno; <linux/kvctx.h> gives each errno its one meaning, and
 * kvctx_strerror() its text. The library never prints, never exits and installs no signal handlers. Sizes are bytes.
 *
 * Threads. Each function says "MT-Safe" (several threads may use one handle) or "one submitter": those calls, as a
 * group, belong to one thread at a time. Different handles are independent. A synchronous call keeps the handle's
 * completions to itself while it runs; give threads that mix both styles handles of their own.
 *
 * Fork. A child inherits the file but neither the arena nor the completion queue; it must not use the handle, except
 * for kvctx_close().
 */
#ifndef KVCTX_LIB_H
#define KVCTX_LIB_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <linux/kvctx.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVCTX_LIB_VERSION_MAJOR	0
#define KVCTX_LIB_VERSION_MINOR	1

struct kvctx;

/**
 * struct kvctx_params - how to open a handle
 * @size: sizeof(struct kvctx_params)
 * @flags: zero
 * @keyspace: fingerprint of model, dtype, layout and parallel shape
 * @arena_bytes: pinned memory to allocate, may be 0
 * @cq_entries: most operations in flight plus completions not yet taken; 0: 256
 * @eventfd: signalled at each completion; 0: none
 */
struct kvctx_params {
	size_t size;
	uint64_t flags;
	uint8_t keyspace[KVCTX_KEYSPACE_LEN];
	uint64_t arena_bytes;
	uint32_t cq_entries;
	int eventfd;
};

/**
 * kvctx_open() - open a tenant's node and start a session
 * @path: /dev/kvctx/<pool>/<tenant>
 * @flags: O_RDWR, or O_RDONLY for a session that can match and load only; O_CLOEXEC is implied
 * @params: NULL: a keyspace of zeros, no arena
 * @out: the handle; to be closed with kvctx_close()
 *
 * Return: 0; -EINVAL; -ENOENT, -ENXIO or -EACCES from open(); -ENOMEM (also over RLIMIT_MEMLOCK); any error of SETUP.
 * MT-Safe. Sleeps.
 */
int kvctx_open(const char *path, int flags, const struct kvctx_params *params, struct kvctx **out);

/**
 * kvctx_close() - end the session and free the handle
 * @ctx: handle or NULL
 *
 * Operations in flight are finished or cancelled by the kernel; nothing writes to registered memory after the last of
 * them, which may be later than the return. Arena pointers become invalid. Not MT-Safe. Sleeps.
 */
void kvctx_close(struct kvctx *ctx);

/**
 * kvctx_fd() - file descriptor of the session, for poll()
 * @ctx: handle; keeps owning the descriptor
 *
 * Readable while completions wait. MT-Safe.
 */
int kvctx_fd(const struct kvctx *ctx);

/**
 * kvctx_get_info() - limits, masks and geometry
 * @ctx: handle; owns the structure returned
 *
 * Read once, at open. MT-Safe.
 */
const struct kvctx_info *kvctx_get_info(const struct kvctx *ctx);

/**
 * kvctx_arena() - the session's arena
 * @ctx: handle
 * @len: its bytes, or NULL
 *
 * Return: start of the mapping, NULL without an arena. Read-only memory in an O_RDONLY session. Operations name it by
 * KVCTX_MEM_ARENA and an offset. MT-Safe.
 */
void *kvctx_arena(const struct kvctx *ctx, size_t *len);

/**
 * kvctx_mem_register() - pin memory of the caller
 * @ctx: handle
 * @addr: start, any alignment
 * @len: bytes
 * @id: memory id for struct kvctx_seg
 *
 * Return: 0; -EINVAL; -EFAULT: not writable by the caller; -ENOMEM: also over RLIMIT_MEMLOCK or mem_max. MT-Safe. Sleeps.
 */
int kvctx_mem_register(struct kvctx *ctx, void *addr, size_t len, uint32_t *id);

/**
 * kvctx_mem_unregister() - let go of a registration
 * @ctx: handle
 * @id: memory id
 *
 * Return: 0; -EINVAL: no such id; -EBUSY: operations in flight use it. MT-Safe. Sleeps.
 */
int kvctx_mem_unregister(struct kvctx *ctx, uint32_t id);

/**
 * kvctx_store() - store a page and wait
 * @ctx: handle
 * @key: name of the page
 * @buf: the page; memory inside the arena or a registration is used as it is, other memory is pinned for the call
 * @len: bytes
 * @cqe_flags: KVCTX_CQE_* of the completion, or NULL
 *
 * Waits for space when the pool is full. Return: @len; -ENOSPC; -EACCES; -E2BIG; -EIO; -ENODEV; -ENOMEM. MT-Safe. Sleeps.
 */
int64_t kvctx_store(struct kvctx *ctx, const struct kvctx_key *key, const void *buf, size_t len, uint32_t *cqe_flags);

/**
 * kvctx_load() - load a page, or its first bytes, and wait
 * @ctx: handle
 * @key: name of the page
 * @buf: where to; memory as for kvctx_store()
 * @len: bytes wanted, at most the page's length
 * @cqe_flags: KVCTX_CQE_* of the completion, or NULL: VERIFIED says that every byte was checked
 *
 * Return: @len; -ENOENT; -EBADMSG: failed verification, @buf holds zeros; -ERANGE: the page is shorter; -EIO; -ENODEV;
 * -ENOMEM. MT-Safe. Sleeps.
 */
int64_t kvctx_load(struct kvctx *ctx, const struct kvctx_key *key, void *buf, size_t len, uint32_t *cqe_flags);

/**
 * kvctx_delete() - drop a page; durable after kvctx_flush()
 * @ctx: handle
 * @key: name of the page
 *
 * Return: 0; -ENOENT; -EACCES; -ENOSPC; -ENOMEM. MT-Safe. Sleeps.
 */
int kvctx_delete(struct kvctx *ctx, const struct kvctx_key *key);

/**
 * kvctx_query() - length of a page
 * @ctx: handle
 * @key: name of the page
 *
 * Return: its bytes; -ENOENT; -ENODEV. MT-Safe.
 */
int64_t kvctx_query(struct kvctx *ctx, const struct kvctx_key *key);

/**
 * kvctx_flush() - make durable what completed before the call
 * @ctx: handle
 *
 * Return: 0; -EIO: a member could not keep it. MT-Safe. Sleeps.
 */
int kvctx_flush(struct kvctx *ctx);

/**
 * kvctx_match() - how many leading pages of a prefix are here
 * @ctx: handle
 * @keys: keys in prefix order
 * @nr: how many, 1..match_max
 * @lens: room for @nr lengths, or NULL
 * @lease_ms: milliseconds to lease the pages found; 0: no lease
 * @lease: lease id for kvctx_release(), 0 when none was given; NULL without @lease_ms
 *
 * Return: number of leading pages present, or -EINVAL. MT-Safe.
 */
int64_t kvctx_match(struct kvctx *ctx, const struct kvctx_key *keys, uint32_t nr, uint32_t *lens, uint32_t lease_ms,
		    uint32_t *lease);

/**
 * kvctx_lease() - keep a page from eviction
 * @ctx: handle
 * @key: name of the page
 * @ms: milliseconds, 1..lease_ms_max
 * @lease: lease id
 *
 * Return: 0; -ENOENT; -ENOSPC: too many leases. MT-Safe.
 */
int kvctx_lease(struct kvctx *ctx, const struct kvctx_key *key, uint32_t ms, uint32_t *lease);

/**
 * kvctx_release() - end a lease
 * @ctx: handle
 * @lease: lease id
 *
 * Return: 0; -EINVAL: unknown or run out. MT-Safe.
 */
int kvctx_release(struct kvctx *ctx, uint32_t lease);

/* user_data values from here on are the library's own */
#define KVCTX_USER_DATA_END	0xffffffff00000000ULL

/**
 * kvctx_get_sqe() - next free place of the handle's queue
 * @ctx: handle; owns the operation
 *
 * The operation is cleared; fill it with a kvctx_prep_*() function. What it points to (scatter list) must stay until
 * kvctx_submit() has taken it. One submitter.
 *
 * Return: the operation; NULL when the queue is full: submit first.
 */
struct kvctx_sqe *kvctx_get_sqe(struct kvctx *ctx);

/**
 * kvctx_submit() - hand the queued operations to the kernel
 * @ctx: handle
 *
 * Return: number taken, from the front; the others stay queued. -EAGAIN: none, the completion queue is full: take
 * completions first. -EFAULT: a scatter list cannot be read. One submitter.
 */
int kvctx_submit(struct kvctx *ctx);

/**
 * kvctx_submit_and_wait() - kvctx_submit(), then kvctx_wait()
 * @ctx: handle
 * @nr: completions to wait for
 * @timeout_ns: nanoseconds; KVCTX_TIMEOUT_NONE: no limit
 *
 * Return: as kvctx_submit(); how the wait ended is seen by kvctx_peek(). One submitter. Sleeps.
 */
int kvctx_submit_and_wait(struct kvctx *ctx, uint32_t nr, uint64_t timeout_ns);

/**
 * kvctx_wait() - wait for completions
 * @ctx: handle
 * @nr: return when so many can be taken, or when nothing is in flight any more
 * @timeout_ns: nanoseconds; 0: only look; KVCTX_TIMEOUT_NONE: no limit
 *
 * Return: number that can be taken; -ETIME; -EINTR. MT-Safe. Sleeps.
 */
int kvctx_wait(struct kvctx *ctx, uint32_t nr, uint64_t timeout_ns);

/**
 * kvctx_peek() - take completions
 * @ctx: handle
 * @cqes: where to copy them
 * @max: room in @cqes
 *
 * No system call, except in an O_RDONLY session. Return: number taken, 0 when none wait. MT-Safe.
 */
unsigned int kvctx_peek(struct kvctx *ctx, struct kvctx_cqe *cqes, unsigned int max);

/**
 * kvctx_strerror() - what a result means in kvctx
 * @res: negative errno; other values give "success"
 *
 * Return: constant text. MT-Safe.
 */
const char *kvctx_strerror(int res);

/**
 * kvctx_version() - version of the library that runs
 *
 * Return: "MAJOR.MINOR.PATCH". MT-Safe.
 */
const char *kvctx_version(void);

/* Fill operations. All plain assignments: the operation comes cleared from kvctx_get_sqe(). */

static inline struct kvctx_key kvctx_key_from_u64(uint64_t hash, uint64_t qualifier)
{
	struct kvctx_key key;

	memset(&key, 0, sizeof(key));
	memcpy(key.digest, &hash, sizeof(hash));
	key.qualifier = qualifier;
	return key;
}

static inline void kvctx_sqe_set_data(struct kvctx_sqe *sqe, uint64_t user_data)
{
	sqe->user_data = user_data;
}

static inline void kvctx_sqe_set_timeout(struct kvctx_sqe *sqe, uint64_t timeout_ns)
{
	sqe->timeout_ns = timeout_ns;
}

static inline void kvctx_prep_rw(struct kvctx_sqe *sqe, uint8_t opcode, const struct kvctx_key *key,
				 const struct kvctx_seg *segs, uint16_t nr_segs, uint64_t length)
{
	sqe->opcode = opcode;
	sqe->key = *key;
	sqe->segs = (uint64_t)(uintptr_t)segs;
	sqe->nr_segs = nr_segs;
	sqe->length = length;
}

/* @depth: position in the prefix from 1, 0: unknown */
static inline void kvctx_prep_store(struct kvctx_sqe *sqe, const struct kvctx_key *key, const struct kvctx_seg *segs,
				    uint16_t nr_segs, uint64_t length, uint32_t depth)
{
	kvctx_prep_rw(sqe, KVCTX_OP_STORE, key, segs, nr_segs, length);
	sqe->depth = depth;
}

/* @offset: first byte of the range inside the page */
static inline void kvctx_prep_load(struct kvctx_sqe *sqe, const struct kvctx_key *key, const struct kvctx_seg *segs,
				   uint16_t nr_segs, uint64_t offset, uint64_t length)
{
	kvctx_prep_rw(sqe, KVCTX_OP_LOAD, key, segs, nr_segs, length);
	sqe->offset = offset;
}

static inline void kvctx_prep_delete(struct kvctx_sqe *sqe, const struct kvctx_key *key)
{
	sqe->opcode = KVCTX_OP_DELETE;
	sqe->key = *key;
}

static inline void kvctx_prep_query(struct kvctx_sqe *sqe, const struct kvctx_key *key)
{
	sqe->opcode = KVCTX_OP_QUERY;
	sqe->key = *key;
}

static inline void kvctx_prep_lease(struct kvctx_sqe *sqe, const struct kvctx_key *key, uint32_t ms)
{
	sqe->opcode = KVCTX_OP_LEASE;
	sqe->key = *key;
	sqe->lease_ms = ms;
}

static inline void kvctx_prep_release(struct kvctx_sqe *sqe, uint32_t lease)
{
	sqe->opcode = KVCTX_OP_RELEASE;
	sqe->lease = lease;
}

static inline void kvctx_prep_flush(struct kvctx_sqe *sqe)
{
	sqe->opcode = KVCTX_OP_FLUSH;
}

#ifdef __cplusplus
}
#endif

#endif
