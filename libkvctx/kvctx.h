/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libkvctx: KV cache pages on NVMe and NVMe-oF namespaces, through /dev/kvctx/<pool>/<tenant>, or
 * without the module, in files and block devices; see kvctx_open().
 *
 * A handle (struct kvctx) is one session of a tenant with one keyspace. Memory that operations move
 * is the session's arena (pinned memory of its own) or memory registered with kvctx_mem_register().
 * <linux/kvctx.h> has the words, limits and errors; "the kernel" there and here is whoever serves
 * the session.
 *
 * Simple callers use the synchronous functions, which take any buffer and may be called by many
 * threads at once. Others fill operations into the handle's queue (kvctx_get_sqe(),
 * kvctx_prep_*()), hand over many with one system call (kvctx_submit()) and take completions
 * without one (kvctx_take()). Both styles may be mixed on one handle: a synchronous call leaves
 * the completions of others alone.
 *
 * Conventions. Functions return 0 or a count, or -errno; <linux/kvctx.h> gives each errno its one
 * meaning and kvctx_strerror() its text. The library never prints, never ends the process and
 * handles no signals. Sizes are bytes. Pointers are the caller's, and not kept after the call
 * unless a function says so.
 *
 * Threads. Each function says one of
 *   "MT-Safe"        any number of threads, also with other MT-Safe calls and one submitter
 *   "One submitter"  these calls, as a group, belong to one thread of a handle at a time; other
 *                    threads have kvctx_submit_sqes() and operations of their own
 *   "MT-Unsafe"      no other call of the handle at the same time
 * Different handles are independent. No function may be called from a signal handler.
 *
 * Fork. A child inherits the descriptor but neither arena nor completion queue; it must not use
 * the handle, but may call kvctx_close(), which closes the descriptor there and does nothing else. The
 * session ends when parent and child have closed it, which O_CLOEXEC does at exec.
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
 * * -EOPNOTSUPP: an eventfd, from a daemon that may not use io_uring, by which it signals one
 * * -EPROTO: the module speaks another ABI version
 * * -ENODEV: the pool is being detached, or the daemon is gone
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
 * @copy: the function; NULL: memcpy(), for memory of the host
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
