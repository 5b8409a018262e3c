/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libkvctx: sessions, their memory, and what is asked and moved while the caller waits. Part of kvctx.h, where words,
 * conventions, threads and fork are.
 */
#ifndef KVCTX_LIB_SESSION_H
#define KVCTX_LIB_SESSION_H

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
 * @size: bytes of the structure, sizeof(struct kvctx_params)
 * @flags: zero
 * @keyspace: fingerprint of model, dtype, layout and parallel shape, see kvctx_keyspace_from_string()
 * @arena_bytes: pinned memory to allocate, may be 0
 * @cq_entries: most asynchronous operations submitted and not yet taken by kvctx_take(), at most
 *	cq_max; 0: 256. With more than half of cq_max synchronous calls may have to wait for
 *	asynchronous operations
 * @eventfd: descriptor of an eventfd to signal at each completion; -1 or 0: none. Stays the
 *	caller's
 * @timeout_ns: of each synchronous call: nanoseconds after which an operation that was not yet
 *	started fails with -ETIME; 0: none
 * @slot_bytes: bytes of one slot for a page read ahead, at most slot_bytes_max; 0 with no slots
 * @nr_slots: slots, pinned memory as the arena, at most slots_max; 0: none
 *
 * Clear it before use: it grows at the end in later versions, and zeros mean the default.
 */
struct kvctx_params {
	size_t size;
	uint64_t flags;
	uint8_t keyspace[KVCTX_KEYSPACE_LEN];
	uint64_t arena_bytes;
	uint32_t cq_entries;
	int eventfd;
	uint64_t timeout_ns;
	uint32_t slot_bytes;
	uint32_t nr_slots;
};

/* What kvctx_set_log() takes: @priority is one of LOG_* of <syslog.h>, @text a sentence without a newline */
typedef void (*kvctx_log_fn)(void *arg, int priority, const char *text);

/**
 * kvctx_set_log() - hear what an operator should know
 * @fn: called with each message, in whatever thread has it to tell; NULL: nobody listens any more
 * @arg: first argument of @fn
 *
 * The library never prints. What is served in the process has things to tell that no error number can: why a pool is
 * refused, which member was lost, what the system does not allow. One function hears for the whole process; a second
 * call replaces it, and does not return before a call of the former one has. @fn must be quick and must not call the
 * library.
 *
 * Context: MT-Safe. Sleeps.
 */
void kvctx_set_log(kvctx_log_fn fn, void *arg);

/**
 * struct kvctx_pool_params - what kvctx_pool_create() makes
 * @size: bytes of the structure, sizeof(struct kvctx_pool_params)
 * @flags: zero
 * @bytes: of the file; pages get a little less
 * @segment_bytes: unit of reclaim, a multiple of 4096 from 256 KiB to 1 GiB, at least four of which have to fit; no page
 *	is longer. 0: 256 MiB, less where a pool of @bytes would have few of them
 * @chunk_bytes: bytes under one checksum, a power of two from 4 KiB to 1 MiB; 0: 64 KiB
 * @reserved: zero
 *
 * Clear it before use: it grows at the end in later versions, and zeros mean the default.
 */
struct kvctx_pool_params {
	size_t size;
	uint64_t flags;
	uint64_t bytes;
	uint64_t segment_bytes;
	uint32_t chunk_bytes;
	uint32_t reserved;
};

/**
 * kvctx_pool_create() - have a pool below a directory, to be served in this process
 * @dir: the pool's directory; made when it is absent, but not what is above it
 * @params: the pool to make, if there is none
 *
 * Makes one file that has all its space from the beginning, so a full file system is an error now and never later. The
 * file appears when it is a pool, durably. Where the directory holds one already, of whatever size, that is a success.
 * Then kvctx_open() takes the path of the directory with the name of a tenant below it; "default" is there.
 *
 * A failure leaves nothing behind. kvctx_set_log() tells more about it.
 *
 * Context: MT-Safe. Sleeps.
 *
 * Return: 0, or
 *
 * * -EINVAL: parameters out of range, or too few bytes for four segments
 * * -E2BIG: parameters of a later version of the library, and not zero
 * * -ENOSPC: the file system has not so much space
 * * -EFBIG: larger than the files that this process may write (RLIMIT_FSIZE)
 * * -EMEDIUMTYPE: the directory holds something else
 * * -EBUSY: another process is making it just now
 * * -ENOMEM: out of memory
 *
 * and what else mkdir() and open() may give.
 */
int kvctx_pool_create(const char *dir, const struct kvctx_pool_params *params);

/**
 * kvctx_pool_add() - have one more member of a pool that is served in this process
 * @dir: the pool's directory
 * @path: a file or block device that becomes a member; what it holds is lost
 * @bytes: of a new file that is made as @path, with all its space; 0: @path is there
 *
 * The member takes new pages at once, sessions go on meanwhile, and pages that are there stay where they are. What lies
 * elsewhere gets a link in the directory; an absolute @path is taken into it as it is. Of a new file the last name of
 * @path appears when it is a member, so do not put an empty file into the directory before.
 *
 * Whatever ends the process leaves the pool with the member or without it. A failure leaves nothing behind;
 * kvctx_set_log() tells more about it.
 *
 * Pools of the module and of kvctxd grow by kvctxctl(8).
 *
 * Context: MT-Safe. Sleeps.
 *
 * Return: 0, or
 *
 * * -ENOSPC: too small for four segments, the file system is full, or the pool has 64 members
 * * -EEXIST: it holds a member of a pool; with @bytes: it is there already
 * * -EBUSY: it is in use, maybe as a member of this pool
 * * -EFBIG: larger than the files that this process may write (RLIMIT_FSIZE)
 * * -EMEDIUMTYPE: neither a file nor a block device
 * * -EUCLEAN: it holds something like a member of a pool
 * * -EIO: it, or the pool's members, cannot be written
 * * -ENOMEM: out of memory
 *
 * and what kvctx_open() gives for the pool, or open() for the file.
 */
int kvctx_pool_add(const char *dir, const char *path, uint64_t bytes);

/* Of kvctx_pool_remove(): the member's pages are dropped */
#define KVCTX_POOL_DROP		1U

/**
 * kvctx_pool_remove() - have one member less of a pool that is served in this process
 * @dir: the pool's directory
 * @member: a path that leads to it, or its number in decimal, for one that is not there
 * @flags: 0, or KVCTX_POOL_DROP
 *
 * Its pages go to the other members, as far as these have room without evicting, or are dropped. Then it is taken out
 * of the pool, its superblocks are wiped, and the directory has it no more: a link is taken away, a file that lies in
 * the directory itself is deleted. Sessions go on meanwhile. Returns when that is over, which leases on its pages delay;
 * new ones are not given. It cannot be called off, but ends with the process: then, or when it is killed, the pool is
 * left with the member and with all pages that were flushed.
 *
 * Context: MT-Safe. Sleeps, for as long as it takes.
 *
 * Return: 0, or
 *
 * * -EINVAL: flags that are not known
 * * -ENOENT: the pool has no such member
 * * -EBUSY: it is the last one that can be used
 * * -EALREADY: it is leaving
 * * -EIO: another member was lost meanwhile, and this one stays until the pool is served anew
 *
 * and what kvctx_open() gives for the pool.
 */
int kvctx_pool_remove(const char *dir, const char *member, unsigned int flags);

/**
 * kvctx_open() - open a tenant and start a session
 * @path: the tenant; what is there decides who serves the session
 * @flags: O_RDWR, or O_RDONLY for a session that can match and load only; O_CLOEXEC is implied
 * @params: NULL: a keyspace of zeros, no arena, the defaults
 * @out: the handle, to be closed with kvctx_close(); untouched on failure
 *
 * The last two names of @path are those of pool and tenant:
 *
 * * a character device, /dev/kvctx/POOL/TENANT: the kernel's module
 * * a socket, /run/kvctx/POOL/TENANT: the daemon kvctxd, which serves all processes of a host
 * * DIR/POOL/TENANT, where the directory DIR/POOL has the pool's members, files and block devices or
 *   links to them, and nothing else: the library itself, in this process. All sessions of a pool in
 *   one process share it; another process cannot open it meanwhile
 *
 * Every function means the same on all of them. kvctx_get_info() tells by its feature bits and limits
 * what one of them does not have.
 *
 * Context: MT-Safe. Sleeps.
 *
 * Return: 0, or
 *
 * * -EINVAL: other flags; parameters or sizes that the module refuses
 * * -E2BIG: parameters of a later version of the library, and not zero
 * * -ENOENT: no such pool or tenant
 * * -EBUSY: another process has the pool, or something else a member of it
 * * -EMEDIUMTYPE: something beside members in the pool's directory is no member of that pool
 * * -EUCLEAN: a member is damaged or missing, or they were attached without each other
 * * -EACCES: no permission for the tenant or a member
 * * -ENOTTY: neither a node of kvctx nor a pool's directory
 * * -EPROTONOSUPPORT: the daemon is of another version
 * * -EOPNOTSUPP: an eventfd, from a daemon that may use neither io_uring nor Linux's older asynchronous I/O,
 *   by which it signals one
 * * -EPROTO: the module speaks another ABI version
 * * -ENODEV: the pool is being detached, or the daemon is gone; a pool's directory, in a child of a process
 *   that had opened a directory or a daemon's socket before it forked
 * * -ENOMEM: out of memory, or arena and slots are over RLIMIT_MEMLOCK
 * * -EDQUOT: over what the operator lets the tenant have
 *
 * and what else open() may give. kvctx_set_log() tells why a pool's directory is refused. Members
 * may be missing where it has an entry ".degraded".
 */
int kvctx_open(const char *path, int flags, const struct kvctx_params *params, struct kvctx **out);

/**
 * kvctx_close() - end the session and free the handle
 * @ctx: handle, or NULL
 *
 * Leases end, registrations and the arena are let go, arena pointers become invalid. Operations in
 * flight are cancelled or finished by who serves the session, and waited for some seconds; a LOAD that a
 * device holds longer can write to its registered memory after the return. The last handle of a pool
 * that is served in this process detaches it, which goes on in the background if a device does not answer.
 *
 * Context: MT-Unsafe. Sleeps.
 */
void kvctx_close(struct kvctx *ctx);

/**
 * kvctx_fd() - file descriptor of the session, for poll()
 * @ctx: handle; keeps owning the descriptor
 *
 * Becomes readable when a completion comes, and stays so until the library has seen it: take
 * completions with kvctx_take() until there are none, then poll. When other threads make
 * synchronous calls on the handle, or sleep in kvctx_wait(), they may see it first: use an eventfd
 * (&struct kvctx_params) in such a program.
 *
 * It is for poll(), select(), epoll and io_uring's poll only, and with KVCTX_FEAT_URING for
 * kvctx_uring.h; nothing else means the same on every server.
 *
 * Context: MT-Safe.
 *
 * Return: the descriptor.
 */
int kvctx_fd(const struct kvctx *ctx);

/**
 * kvctx_get_info() - limits, masks and geometry
 * @ctx: handle; owns the structure returned
 *
 * Read by kvctx_open(); later its @features alone may gain KVCTX_FEAT_UNREGISTERED, in kvctx_mem_register().
 *
 * Context: MT-Safe.
 *
 * Return: the structure, valid until kvctx_close().
 */
const struct kvctx_info *kvctx_get_info(const struct kvctx *ctx);

/**
 * kvctx_usage() - what the tenant has in the pool
 * @ctx: handle
 * @pages: pages of all its keyspaces, now; or NULL
 * @bytes: their bytes; or NULL
 * @limit: bytes that it may have, 0: no limit but the pool's capacity; or NULL
 *
 * Context: MT-Safe.
 *
 * Return: 0, or
 *
 * * -ENODEV: the pool is gone
 */
int kvctx_usage(struct kvctx *ctx, uint64_t *pages, uint64_t *bytes, uint64_t *limit);

/**
 * kvctx_events() - which pages came and went in the keyspace
 * @ctx: handle
 * @events: where to copy them, the oldest first
 * @nr: room in @events, at most events_max; may be 0
 * @lost: how many were missed since the call before, as more than events_max had come; never NULL
 *
 * The first call begins, and takes none. From then on each STORE, eviction, DELETE and page that failed verification is
 * told, whoever did it, of the handle's tenant and keyspace and no other; see struct kvctx_events in <linux/kvctx.h>.
 * With *@lost, or a KVCTX_EVENT_MEMBER_LOST, only kvctx_match_all() and kvctx_query() tell what is here. An eventfd of
 * the handle is signalled by the first event after a call that took fewer than @nr, and after the one that began.
 *
 * Context: MT-Safe; each event goes to one caller. Does not wait for events.
 *
 * Return: number taken, or
 *
 * * -EINVAL: @nr is more than events_max
 * * -EFAULT: @events cannot be written; nothing was taken
 * * -ENOMEM: no memory to begin with
 * * -ENODEV: the pool is gone
 * * -EOPNOTSUPP: who serves the handle has no events; KVCTX_FEAT_EVENTS tells
 */
int kvctx_events(struct kvctx *ctx, struct kvctx_event *events, uint32_t nr, uint64_t *lost);

/**
 * kvctx_arena() - the session's arena
 * @ctx: handle
 * @len: its bytes, a whole number of memory pages; or NULL
 *
 * Operations name it by KVCTX_MEM_ARENA and an offset. In an O_RDONLY session the caller can only
 * read it. Who uses which part of it is the caller's business.
 *
 * Context: MT-Safe.
 *
 * Return: start of the mapping, valid until kvctx_close(); NULL without an arena.
 */
void *kvctx_arena(const struct kvctx *ctx, size_t *len);

/**
 * kvctx_mem_register() - pin memory of the caller
 * @ctx: handle
 * @addr: start, any alignment
 * @len: bytes
 * @id: memory id for &struct kvctx_seg
 *
 * Unregister memory before it is freed or mapped anew: the session keeps the memory pages that
 * were there, and an operation at the same address would move those.
 *
 * Memory of which a pool in the process moves pages is brought into huge pages on the way, in whole
 * 2 MiB, where the kernel can do that (Linux 6.1 and later): transfers take less time then. Its
 * content stays.
 *
 * Context: MT-Safe. Sleeps.
 *
 * Return: 0, or
 *
 * * -EINVAL: zero length
 * * -EFAULT: not writable by the caller
 * * -EREMOTEIO: memory of a PCI device that its driver, or this kernel, does not let peers reach
 * * -ENODEV: the driver of the PCI device whose memory it is comes or goes
 * * -ENOMEM: out of memory, over RLIMIT_MEMLOCK, or mem_max registrations
 * * -EDQUOT: over what the operator lets the tenant pin
 */
int kvctx_mem_register(struct kvctx *ctx, void *addr, size_t len, uint32_t *id);

/**
 * kvctx_mem_unregister() - let go of a registration
 * @ctx: handle
 * @id: memory id
 *
 * Context: MT-Safe. Sleeps.
 *
 * Return: 0, or
 *
 * * -EINVAL: no such registration
 * * -EBUSY: operations in flight, synchronous calls, batches that wait, or slots (kvctx_stage_init_at()) use it
 */
int kvctx_mem_unregister(struct kvctx *ctx, uint32_t id);

/**
 * kvctx_mem_find() - the memory that bytes lie in
 * @ctx: handle
 * @addr: first of the bytes
 * @len: how many, at least 1
 * @mem: memory id: KVCTX_MEM_ARENA, or of kvctx_mem_register()
 * @offset: of @addr in that memory
 *
 * Context: MT-Safe.
 *
 * Return: 0, or
 *
 * * -EFAULT: they are not all in the arena, nor all in one registration
 */
int kvctx_mem_find(struct kvctx *ctx, const void *addr, size_t len, uint32_t *mem, uint64_t *offset);

/**
 * kvctx_store() - store a page and wait
 * @ctx: handle
 * @key: name of the page
 * @buf: the page
 * @len: bytes, 1 to page_len_max
 * @cqe_flags: KVCTX_CQE_* of the completion, or NULL
 *
 * Memory inside the arena or inside one registration is used as it is. Other memory is pinned for
 * the call and counts towards RLIMIT_MEMLOCK meanwhile; memory that cannot be written, which the
 * kernel does not pin, is copied first: memory that cannot be read either ends in a signal, as
 * any access to it would. Waits for space when the pool is full.
 *
 * Context: MT-Safe. Sleeps; a signal does not end it.
 *
 * Return: @len; 0: the pool's or tenant's write budget is spent, and nothing was written (UNADMITTED); or
 *
 * * -ENOSPC: nothing can be evicted
 * * -EACCES: the session is read-only
 * * -EINVAL: zero length
 * * -E2BIG: longer than page_len_max
 * * -EIO: the member failed the transfer
 * * -ENODEV: the member, or the pool, is gone
 * * -ETIME: the handle's time limit passed
 * * -ENOMEM: out of memory, or over RLIMIT_MEMLOCK
 * * -EDQUOT: over what the operator lets the tenant pin
 */
int64_t kvctx_store(struct kvctx *ctx, const struct kvctx_key *key, const void *buf, size_t len,
		    uint32_t *cqe_flags);

/**
 * kvctx_load() - load a page, or its first bytes, and wait
 * @ctx: handle
 * @key: name of the page
 * @buf: where to; memory as for kvctx_store(), but it has to be writable
 * @len: bytes wanted, 1 to the length of the page
 * @cqe_flags: KVCTX_CQE_* of the completion, or NULL; VERIFIED: every byte was checked
 *
 * Every error means that the page has to be computed again; what @buf holds is then unspecified.
 *
 * Context: MT-Safe. Sleeps; a signal does not end it.
 *
 * Return: @len, or
 *
 * * -ENOENT: not here
 * * -EBADMSG: was here, failed verification, has been dropped
 * * -EINVAL: zero length
 * * -ERANGE: the page is shorter
 * * -EFAULT: the buffer is not writable
 * * -EIO: the member failed the transfer
 * * -ENODEV: the member, or the pool, is gone
 * * -ETIME: the handle's time limit passed
 * * -ENOMEM: out of memory, or over RLIMIT_MEMLOCK
 * * -EDQUOT: over what the operator lets the tenant pin
 */
int64_t kvctx_load(struct kvctx *ctx, const struct kvctx_key *key, void *buf, size_t len,
		   uint32_t *cqe_flags);

/**
 * kvctx_delete() - drop a page
 * @ctx: handle
 * @key: name of the page
 *
 * Durable after kvctx_flush().
 *
 * Context: MT-Safe. Sleeps; a signal does not end it.
 *
 * Return: 0, or
 *
 * * -ENOENT: not here
 * * -EACCES: the session is read-only
 * * -ENODEV: the pool is gone
 * * -ETIME: the handle's time limit passed
 * * -ENOMEM: out of memory
 */
int kvctx_delete(struct kvctx *ctx, const struct kvctx_key *key);

/**
 * kvctx_query() - length of a page
 * @ctx: handle
 * @key: name of the page
 *
 * Context: MT-Safe.
 *
 * Return: its bytes, or
 *
 * * -ENOENT: not here
 * * -ENODEV: the member, or the pool, is gone
 */
int64_t kvctx_query(struct kvctx *ctx, const struct kvctx_key *key);

/**
 * kvctx_flush() - make durable what completed before the call
 * @ctx: handle
 *
 * Pages that completed with KVCTX_CQE_PENDING are covered once their writer has completed them.
 *
 * Context: MT-Safe. Sleeps; a signal does not end it.
 *
 * Return: 0, or
 *
 * * -EIO: a member could not keep it
 * * -ENODEV: the pool is gone
 * * -ETIME: the handle's time limit passed
 * * -ENOMEM: out of memory
 */
int kvctx_flush(struct kvctx *ctx);

/**
 * kvctx_match() - how many leading pages of a prefix are here
 * @ctx: handle
 * @keys: keys in prefix order
 * @nr: how many, 1 to match_max
 * @lens: room for @nr lengths in bytes, of which as many are set as pages are here; or NULL
 * @lease_ms: milliseconds to lease the pages found, at most lease_ms_max; 0: no lease
 * @lease: one lease id for all of them, for kvctx_release(); 0 when none was given, as when the
 *	session has no more; NULL only without @lease_ms
 *
 * Context: MT-Safe.
 *
 * Return: number of leading pages present, or
 *
 * * -EINVAL: a number out of its range, or a lease without a place for its id
 * * -EFAULT: a pointer cannot be read or written
 * * -ENODEV: the pool is gone
 * * -ENOMEM: out of memory
 */
int64_t kvctx_match(struct kvctx *ctx, const struct kvctx_key *keys, uint32_t nr, uint32_t *lens,
		    uint32_t lease_ms, uint32_t *lease);

/**
 * kvctx_lease() - keep a page from eviction
 * @ctx: handle
 * @key: name of the page
 * @ms: milliseconds, 1 to lease_ms_max
 * @lease: lease id, from 1, for kvctx_release()
 *
 * Where others need room, leases of a tenant that keep more than its share of the pool yield before their time: the page
 * is a miss then.
 *
 * Context: MT-Safe.
 *
 * Return: 0, or
 *
 * * -ENOENT: not here
 * * -ENOSPC: too many leases
 * * -EINVAL: milliseconds out of their range
 * * -ENOMEM: out of memory
 */
int kvctx_lease(struct kvctx *ctx, const struct kvctx_key *key, uint32_t ms, uint32_t *lease);

/**
 * kvctx_release() - end a lease
 * @ctx: handle
 * @lease: lease id of kvctx_lease() or kvctx_match()
 *
 * Context: MT-Safe.
 *
 * Return: 0, or
 *
 * * -EINVAL: unknown, or it has run out
 */
int kvctx_release(struct kvctx *ctx, uint32_t lease);

/**
 * kvctx_cancel() - end what was not started
 * @ctx: handle
 * @user_data: of operations that were submitted to the handle's queue, or by kvctx_submit_sqes(); or of a batch
 *
 * Operations that wait for space, for their turn at a device, or for a slot (kvctx_stage()) complete with -ECANCELED.
 * One that waits for space and is being tried again just then is not counted: it starts, or ends so. Others go on.
 *
 * Context: MT-Safe.
 *
 * Return: how many operations it ended, or
 *
 * * -ENODEV: the pool is gone
 */
int kvctx_cancel(struct kvctx *ctx, uint64_t user_data);

/*
 * Slots: pages read ahead into memory of the kernel's, which the handle maps for reading. A page that
 * lies in a slot is loaded without the device (KVCTX_CQE_FROM_DRAM), or read where it lies
 * (kvctx_get()). What has been deleted or replaced since is never served from a slot.
 */

/**
 * kvctx_slots() - the session's slots
 * @ctx: handle
 * @slot_bytes: bytes of one, a whole number of memory pages; or NULL
 * @nr: how many; or NULL
 *
 * Context: MT-Safe.
 *
 * Return: start of slot 0, the others follow; for reading only, valid until kvctx_close(). NULL
 * without slots.
 */
const void *kvctx_slots(const struct kvctx *ctx, size_t *slot_bytes, uint32_t *nr);

/**
 * kvctx_prefetch() - read a page ahead and wait
 * @ctx: handle
 * @key: name of the page
 * @ms: milliseconds to keep it, from its arrival, 1 to lease_ms_max
 * @cqe_flags: KVCTX_CQE_* of the completion, or NULL; FROM_DRAM: it was there
 *
 * Context: MT-Safe. Sleeps; a signal does not end it.
 *
 * Return: bytes of the page, or
 *
 * * -ENOENT: not here
 * * -ENOSPC: no slot is free
 * * -E2BIG: longer than a slot
 * * -EOPNOTSUPP: the session has no slots
 * * -EBADMSG: was here, failed verification, has been dropped
 * * -EINVAL: milliseconds out of their range
 * * -EIO: the member failed the transfer
 * * -ENODEV: the member, or the pool, is gone
 * * -ETIME: the handle's time limit passed
 * * -ENOMEM: out of memory
 */
int64_t kvctx_prefetch(struct kvctx *ctx, const struct kvctx_key *key, uint32_t ms,
		       uint32_t *cqe_flags);

/**
 * kvctx_get() - read a page in its slot
 * @ctx: handle
 * @key: name of the page
 * @ms: milliseconds to keep it also after kvctx_put(), from now on, 1 to lease_ms_max
 * @page: its first byte, verified; or NULL. kvctx_query() tells the length
 * @cqe_flags: KVCTX_CQE_* of the completion, or NULL; FROM_DRAM: it was there
 *
 * Reads the page ahead if need be. The slot stays this page's until kvctx_put() was called as often
 * as this.
 *
 * Context: MT-Safe. Sleeps; a signal does not end it.
 *
 * Return: number of the slot, or what kvctx_prefetch() returns.
 */
int64_t kvctx_get(struct kvctx *ctx, const struct kvctx_key *key, uint32_t ms, const void **page,
		  uint32_t *cqe_flags);

/**
 * kvctx_put() - end of a kvctx_get()
 * @ctx: handle
 * @slot: number of the slot
 *
 * Context: MT-Safe.
 *
 * Return: 0, or
 *
 * * -EINVAL: no such slot, or nobody has got it
 * * -EOPNOTSUPP: the session has no slots
 */
int kvctx_put(struct kvctx *ctx, uint32_t slot);

/**
 * kvctx_match_all() - which pages are here
 * @ctx: handle
 * @keys: keys in prefix order
 * @nr: how many, 1 to match_max
 * @present: (@nr + 63) / 64 words; bit n % 64 of word n / 64 tells whether key n's page is here
 * @lens: room for @nr lengths in bytes, 0 where a page is missing; or NULL
 * @lease_ms: milliseconds to lease the pages found, at most lease_ms_max; 0: no lease
 * @lease: one lease id for all of them, as of kvctx_match(); NULL only without @lease_ms
 *
 * As kvctx_match(), but goes on behind a page that is missing.
 *
 * Context: MT-Safe.
 *
 * Return: number of pages present, or what kvctx_match() returns.
 */
int64_t kvctx_match_all(struct kvctx *ctx, const struct kvctx_key *keys, uint32_t nr, uint64_t *present,
			uint32_t *lens, uint32_t lease_ms, uint32_t *lease);

/**
 * kvctx_match_prefetch() - how many leading pages are here, and start to read them ahead
 * @ctx: handle
 * @keys: keys in prefix order
 * @nr: how many, 1 to match_max
 * @lens: room for @nr lengths in bytes, as in kvctx_match(); or NULL
 * @ms: milliseconds to keep them, each from its arrival, 1 to lease_ms_max
 * @prefetched: leading pages that lie in slots or are on their way there; or NULL
 *
 * Does not wait for the pages: who loads or gets one that is on its way does. Reads as many as there
 * are free slots, from the first on, up to a page longer than a slot.
 *
 * Context: MT-Safe.
 *
 * Return: number of leading pages present, or what kvctx_match() returns.
 */
int64_t kvctx_match_prefetch(struct kvctx *ctx, const struct kvctx_key *keys, uint32_t nr,
			     uint32_t *lens, uint32_t ms, uint32_t *prefetched);

/**
 * kvctx_key_from_bytes() - key of an engine whose pages have names of any length
 * @key: the key
 * @data: the name; NULL only when @len is 0
 * @len: its bytes
 * @qualifier: group, rank, layer, part
 *
 * The digest is the SHA-256 of the bytes: in Python, hashlib.sha256(data).digest().
 *
 * Context: MT-Safe.
 */
void kvctx_key_from_bytes(struct kvctx_key *key, const void *data, size_t len, uint64_t qualifier);

/**
 * kvctx_keyspace_from_bytes() - keyspace from what tells model, dtype, layout and parallel shape
 * @keyspace: the keyspace, as in &struct kvctx_params
 * @data: any bytes; NULL only when @len is 0
 * @len: how many
 *
 * The first 16 bytes of the SHA-256 of the bytes: in Python, hashlib.sha256(data).digest()[:16].
 *
 * Context: MT-Safe.
 */
void kvctx_keyspace_from_bytes(uint8_t *keyspace, const void *data, size_t len);

/**
 * kvctx_crc32c() - CRC32C of bytes
 * @crc: that of the bytes before these; 0: there are none
 * @buf: the bytes
 * @len: how many
 *
 * Context: MT-Safe.
 *
 * Return: the CRC32C (Castagnoli) of all bytes so far.
 */
uint32_t kvctx_crc32c(uint32_t crc, const void *buf, size_t len);

/**
 * kvctx_check_crcs() - compare a page in host memory with its CRCs
 * @buf: the page, or its part from the beginning of a chunk on
 * @len: bytes: whole chunks, or up to the end of the page
 * @chunk_size: of &struct kvctx_info
 * @crcs: as a LOAD with kvctx_sqe_set_crcs() told them
 *
 * Context: MT-Safe.
 *
 * Return: 0, or
 *
 * * -EBADMSG: a chunk does not have its CRC: recompute the page, and delete it
 * * -EINVAL: a chunk size of zero
 */
int kvctx_check_crcs(const void *buf, size_t len, uint32_t chunk_size, const uint32_t *crcs);

/**
 * kvctx_strerror() - what a result means in kvctx
 * @res: a function's or a completion's result
 *
 * Context: MT-Safe.
 *
 * Return: constant text, "success" for what is not negative.
 */
const char *kvctx_strerror(int res);

/**
 * kvctx_cqe_flags_str() - names of completion flags
 * @flags: KVCTX_CQE_*
 * @buf: room for the text; NULL only when @len is 0
 * @len: bytes of @buf; 96 hold every text of this version
 *
 * The names without their prefix, divided by '|', "-" for no flag; flags unknown to the library as
 * one hexadecimal number. Cut off, and terminated, when @buf is too short.
 *
 * Context: MT-Safe.
 *
 * Return: length of the whole text, as snprintf().
 */
int kvctx_cqe_flags_str(uint32_t flags, char *buf, size_t len);

/**
 * kvctx_version() - version of the library that runs
 *
 * Context: MT-Safe.
 *
 * Return: constant text "MAJOR.MINOR.PATCH".
 */
const char *kvctx_version(void);

/*
 * Helpers that fill keys and operations: plain assignments, part of the program that uses them.
 * Operations come cleared from kvctx_get_sqe(), so each helper sets only what its opcode uses.
 */

/**
 * kvctx_key_from_u64() - key of an engine whose page hashes are 64 bits
 * @hash: goes to the first bytes of the digest in native byte order, the others are zero
 * @qualifier: group, rank, layer, part
 *
 * Context: MT-Safe.
 *
 * Return: the key.
 */
static inline struct kvctx_key kvctx_key_from_u64(uint64_t hash, uint64_t qualifier)
{
	struct kvctx_key key;

	memset(&key, 0, sizeof(key));
	memcpy(key.digest, &hash, sizeof(hash));
	key.qualifier = qualifier;
	return key;
}

/**
 * kvctx_keyspace_from_string() - the same as kvctx_keyspace_from_bytes() of a string
 * @keyspace: the keyspace
 * @text: the string; the NUL at its end does not count
 *
 * Context: MT-Safe.
 */
static inline void kvctx_keyspace_from_string(uint8_t *keyspace, const char *text)
{
	kvctx_keyspace_from_bytes(keyspace, text, strlen(text));
}

#ifdef __cplusplus
}
#endif

#endif
