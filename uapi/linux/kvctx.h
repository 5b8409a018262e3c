/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * kvctx data-plane ABI: the ioctls, mappings and rings of /dev/kvctx/<pool>/<tenant>.
 *
 * Vocabulary
 *   page      one KV cache page: 1 byte to &kvctx_info.page_len_max bytes, stored and loaded whole or by byte range
 *   key       the 40 bytes that name a page inside a keyspace; opaque, compared whole
 *   keyspace  16 bytes that fingerprint model, dtype, layout and parallel shape; pages of another keyspace do not
 *             exist for a session
 *   session   an open file of a tenant's node after KVCTX_IOC_SETUP; owns memory registrations, arena, completion
 *             queue, leases and operations in flight; close() releases all of them, after DMA has stopped
 *   memory    a pinned range that operations may name by id: the arena (id 0) or a registration (ids from 1)
 *   segment   here: one piece of an operation's scatter list (struct kvctx_seg)
 *
 * Rules that hold for every structure
 *   - fixed size, 64-bit aligned, the same for 32-bit and 64-bit callers; native byte order
 *   - the first field of an ioctl argument is its size as the caller knows it. A kernel that knows a longer structure
 *     takes the missing tail as zeros; a kernel that knows a shorter one refuses a non-zero tail with -E2BIG
 *   - a size below the first published one, an unknown flag, a non-zero reserved field: -EINVAL
 *
 * Errors, one meaning each. "ioctl" is what the call returns, "res" what a completion carries.
 *   -ENOENT      res    not here: recompute
 *   -EBADMSG     res    was here, failed verification, has been dropped: recompute
 *   -EIO         res    the member failed this transfer: recompute
 *   -ENODEV      both   the member, or the whole pool, is gone: recompute
 *   -ETIME       both   the deadline passed before the operation was started; WAIT: the time limit passed
 *   -EREMOTEIO   res    no peer-to-peer path between this memory and this member (later kernels of the module)
 *   -EDQUOT      res    tenant over quota (later kernels of the module)
 *   -ENOSPC      res    STORE: nothing evictable; LEASE: too many leases
 *   -EAGAIN      res    STORE or DELETE with KVCTX_OP_NOWAIT: reclaim is running, try again
 *                ioctl  SUBMIT: the completion queue has no room for one more operation
 *   -EMSGSIZE    res    scatter list and byte range differ in length
 *   -ERANGE      res    LOAD: the byte range ends behind the page's end
 *   -E2BIG       res    page longer than page_len_max, or more segments than segs_max
 *                ioctl  the structure is longer than this kernel knows and its tail is not zero
 *   -EACCES      res    STORE or DELETE in a session opened read-only
 *   -EINVAL      both   unknown flag, opcode, memory id, lease, reserved field not zero, zero length
 *   -EFAULT      both   a pointer cannot be read or written; res: a segment leaves its memory
 *   -EOPNOTSUPP  res    opcode reserved for later
 *   -ENOMEM      both   out of memory, or over RLIMIT_MEMLOCK
 *   -EBADFD      ioctl  no KVCTX_IOC_SETUP yet
 *   -EEXIST      ioctl  SETUP done before
 *   -EBUSY       ioctl  MEM_UNREGISTER: operations in flight use it
 *   -EINTR       ioctl  a signal came while waiting
 *   -ENOTTY      ioctl  unknown ioctl
 * -EINVAL, -EFAULT, -E2BIG, -EMSGSIZE and -EACCES mean: nothing was done. An operation's error never touches the
 * other operations of its batch.
 */
#ifndef _UAPI_LINUX_KVCTX_H
#define _UAPI_LINUX_KVCTX_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define KVCTX_ABI_VERSION	1

#define KVCTX_NAME_MAX		32	/* bytes of a pool or tenant name, with its terminating NUL */
#define KVCTX_UUID_LEN		16
#define KVCTX_KEYSPACE_LEN	16
#define KVCTX_DIGEST_LEN	32

/**
 * struct kvctx_key - name of a page inside a keyspace
 * @digest: content or prefix hash as the engine computes it (sha256, blake3, xxh3-128 or u64 padded with zeros)
 * @qualifier: group, rank, layer, part; opaque to the kernel
 */
struct kvctx_key {
	__u8	digest[KVCTX_DIGEST_LEN];
	__u64	qualifier;
};

/* Session flags reported by INFO */
#define KVCTX_SESSION_RDONLY	(1U << 0)	/* opened without write permission */
#define KVCTX_SESSION_READY	(1U << 1)	/* SETUP was done */

/* Feature bits reported by INFO: operations and paths this module serves */
#define KVCTX_FEAT_VERIFY	(1ULL << 0)	/* LOAD verifies CRC32C */

/**
 * struct kvctx_info - KVCTX_IOC_INFO: what this node is and can do
 * @size: in: size of the structure as the caller knows it
 * @flags: in: zero
 * @abi_version: KVCTX_ABI_VERSION of the module
 * @session_flags: KVCTX_SESSION_*
 * @features: KVCTX_FEAT_*
 * @op_mask: bit n set: opcode n is served
 * @op_flags: every KVCTX_OP_* flag that SUBMIT knows
 * @capacity: bytes of all members' segments
 * @page_len_max: longest page in bytes
 * @arena_max: largest arena in bytes
 * @segment_size: bytes of a media segment
 * @chunk_size: bytes that one CRC32C covers
 * @block_size: media alignment of a page in bytes
 * @members: member devices of the pool
 * @segs_max: longest scatter list
 * @batch_max: most operations of one SUBMIT
 * @cq_max: most completion queue entries
 * @match_max: most keys of one MATCH
 * @lease_ms_max: longest lease in milliseconds
 * @leases_max: most pages under lease of one session
 * @mem_max: most memory registrations of one session
 * @dma_align: address and length alignment in bytes at which a segment is moved without a bounce block
 * @reserved: zero
 * @pool_uuid: identity of the pool
 * @pool: name of the pool, NUL-terminated
 * @tenant: name of the tenant, NUL-terminated
 *
 * Works before and after SETUP. The masks are those that SUBMIT validates with.
 */
struct kvctx_info {
	__u32	size;
	__u32	flags;
	__u32	abi_version;
	__u32	session_flags;
	__u64	features;
	__u64	op_mask;
	__u64	op_flags;
	__u64	capacity;
	__u64	page_len_max;
	__u64	arena_max;
	__u64	segment_size;
	__u32	chunk_size;
	__u32	block_size;
	__u32	members;
	__u32	segs_max;
	__u32	batch_max;
	__u32	cq_max;
	__u32	match_max;
	__u32	lease_ms_max;
	__u32	leases_max;
	__u32	mem_max;
	__u32	dma_align;
	__u32	reserved;
	__u8	pool_uuid[KVCTX_UUID_LEN];
	char	pool[KVCTX_NAME_MAX];
	char	tenant[KVCTX_NAME_MAX];
};

/* Flags of SETUP */
#define KVCTX_SETUP_EVENTFD	(1U << 0)	/* @eventfd is valid: signalled at each completion */

/* mmap offsets */
#define KVCTX_MMAP_CQ		0ULL		/* completion queue, &kvctx_setup.cq_bytes long */
#define KVCTX_MMAP_ARENA	(1ULL << 40)	/* arena, arena_bytes long; may be mapped in parts */

/**
 * struct kvctx_setup - KVCTX_IOC_SETUP: start the session
 * @size: size of the structure as the caller knows it
 * @flags: KVCTX_SETUP_*
 * @keyspace: keyspace of all operations of the session
 * @arena_bytes: in: bytes of pinned memory to allocate as memory id 0, may be 0; out: rounded up to whole pages.
 *	Accounted to RLIMIT_MEMLOCK
 * @cq_entries: in: completion queue length, 1..cq_max; out: rounded up to a power of two. Operations in flight and
 *	completions not yet consumed together never exceed it
 * @eventfd: eventfd to signal, with KVCTX_SETUP_EVENTFD; otherwise zero
 * @cq_bytes: out: length of the mapping at KVCTX_MMAP_CQ
 * @reserved: zero
 *
 * Once per open file. May sleep.
 */
struct kvctx_setup {
	__u32	size;
	__u32	flags;
	__u8	keyspace[KVCTX_KEYSPACE_LEN];
	__u64	arena_bytes;
	__u32	cq_entries;
	__s32	eventfd;
	__u64	cq_bytes;
	__u64	reserved[2];
};

#define KVCTX_MEM_ARENA		0U		/* memory id of the arena */

/**
 * struct kvctx_mem_register - KVCTX_IOC_MEM_REGISTER: pin memory of the caller
 * @size: size of the structure as the caller knows it
 * @flags: zero
 * @addr: start address, any alignment
 * @length: bytes, at least 1
 * @id: out: memory id
 * @reserved: zero
 *
 * The range must be writable by the caller. Pinned pages are accounted to RLIMIT_MEMLOCK until unregistered or the
 * session closes. May sleep.
 */
struct kvctx_mem_register {
	__u32	size;
	__u32	flags;
	__u64	addr;
	__u64	length;
	__u32	id;
	__u32	reserved;
};

/**
 * struct kvctx_mem_unregister - KVCTX_IOC_MEM_UNREGISTER: let go of a registration
 * @size: size of the structure as the caller knows it
 * @flags: zero
 * @id: memory id; the arena cannot be unregistered (-EINVAL)
 * @reserved: zero
 *
 * -EBUSY while operations in flight use it.
 */
struct kvctx_mem_unregister {
	__u32	size;
	__u32	flags;
	__u32	id;
	__u32	reserved;
};

/**
 * struct kvctx_seg - one piece of a scatter list
 * @offset: byte offset inside the memory
 * @mem: memory id
 * @length: bytes, at least 1
 */
struct kvctx_seg {
	__u64	offset;
	__u32	mem;
	__u32	length;
};

/* Opcodes. PREFETCH is reserved for a later kernel of the module (-EOPNOTSUPP) */
enum kvctx_opcode {
	KVCTX_OP_STORE		= 1,	/* write a page; res: its bytes */
	KVCTX_OP_LOAD		= 2,	/* read a page or a byte range of it; res: bytes read */
	KVCTX_OP_DELETE		= 3,	/* drop a page; res: 0, or -ENOENT; durable after FLUSH */
	KVCTX_OP_QUERY		= 4,	/* res: bytes of the page, or -ENOENT */
	KVCTX_OP_PREFETCH	= 5,
	KVCTX_OP_LEASE		= 6,	/* keep a page from eviction for lease_ms; res: lease id, from 1 */
	KVCTX_OP_RELEASE	= 7,	/* end a lease by id */
	KVCTX_OP_FLUSH		= 8,	/* what completed before this was submitted survives a power cut */
};

/* Operation flags */
#define KVCTX_OP_NOWAIT		(1U << 0)	/* STORE, DELETE: -EAGAIN instead of waiting for space */
#define KVCTX_OP_NO_VERIFY	(1U << 1)	/* LOAD: skip the CRC check; completes without VERIFIED */

/**
 * struct kvctx_sqe - one operation of SUBMIT
 * @opcode: enum kvctx_opcode
 * @nr_segs: entries of @segs: STORE and LOAD 1..segs_max, others 0
 * @reserved0: zero
 * @flags: KVCTX_OP_*
 * @user_data: returned in the completion
 * @key: page key: STORE, LOAD, DELETE, QUERY, LEASE; zero for others
 * @offset: LOAD: first byte of the range inside the page; others 0
 * @length: STORE: bytes of the page; LOAD: bytes of the range; others 0. Equals the sum of the segments' lengths
 * @segs: user address of struct kvctx_seg[nr_segs]; read during SUBMIT only
 * @timeout_ns: nanoseconds from SUBMIT after which an operation not yet started completes with -ETIME; 0: none
 * @depth: STORE: position of the page in its prefix, from 1; 0: unknown. A hint for reclaim
 * @lease_ms: LEASE: milliseconds, 1..lease_ms_max; others 0
 * @lease: RELEASE: lease id; others 0
 * @reserved1: zero
 * @crcs: zero; reserved for CRC exchange on peer-to-peer memory
 * @reserved2: zero
 */
struct kvctx_sqe {
	__u8	opcode;
	__u8	reserved0;
	__u16	nr_segs;
	__u32	flags;
	__u64	user_data;
	struct kvctx_key key;
	__u64	offset;
	__u64	length;
	__u64	segs;
	__u64	timeout_ns;
	__u32	depth;
	__u32	lease_ms;
	__u32	lease;
	__u32	reserved1;
	__u64	crcs;
	__u64	reserved2[2];
};

/* Completion flags: what really happened */
#define KVCTX_CQE_VERIFIED	(1U << 0)	/* every byte was checked against its CRC32C */
#define KVCTX_CQE_P2P		(1U << 1)	/* peer-to-peer DMA */
#define KVCTX_CQE_STAGED	(1U << 2)	/* copied through host memory by the library */
#define KVCTX_CQE_DEDUP		(1U << 3)	/* STORE: the page was present or on its way; nothing was written */
#define KVCTX_CQE_FROM_DRAM	(1U << 4)	/* served without the device */
#define KVCTX_CQE_PENDING	(1U << 5)	/* with DEDUP: another writer has not completed the page yet; FLUSH
						 * covers it only from then on
						 */

/**
 * struct kvctx_cqe - one completion
 * @user_data: of the operation
 * @res: result: not negative as the opcode says, or -errno
 * @flags: KVCTX_CQE_*
 */
struct kvctx_cqe {
	__u64	user_data;
	__s32	res;
	__u32	flags;
};

/**
 * struct kvctx_cq_ring - the mapping at KVCTX_MMAP_CQ
 * @head: next entry to consume; written by the caller with release order after it has read the entries
 * @pad0: keeps @head and @tail on cache lines of their own
 * @tail: one behind the newest entry; written by the kernel, read with acquire order
 * @entries: length of @cqes, a power of two; index an entry with (position & (entries - 1))
 * @pad1: zero
 * @cqes: the entries
 *
 * Positions are free-running. A session opened read-only maps the ring and the arena with PROT_READ only and lets the
 * kernel advance @head (&kvctx_wait.consumed). The kernel copies @head and trusts it for nothing but its own room: a
 * wrong @head can lose the caller's own completions and nothing else.
 */
struct kvctx_cq_ring {
	__u32	head;
	__u32	pad0[15];
	__u32	tail;
	__u32	entries;
	__u32	pad1[14];
	struct kvctx_cqe cqes[];
};

#define KVCTX_TIMEOUT_NONE	(~0ULL)		/* wait without limit */

/**
 * struct kvctx_submit - KVCTX_IOC_SUBMIT: queue operations
 * @size: size of the structure as the caller knows it
 * @flags: zero
 * @sqes: user address of struct kvctx_sqe[nr]
 * @nr: operations, 1..batch_max
 * @wait_nr: 0: return as soon as they are queued; n: as KVCTX_IOC_WAIT with min = n afterwards
 * @timeout_ns: of that wait, relative; KVCTX_TIMEOUT_NONE: no limit; zero when wait_nr is zero
 * @reserved: zero
 *
 * Returns the number of operations taken, from the front; each gives exactly one completion. Fewer than @nr when the
 * completion queue is full or @sqes becomes unreadable; -EAGAIN or -EFAULT when none was taken. A wait that times out
 * or is interrupted does not change the return value.
 */
struct kvctx_submit {
	__u32	size;
	__u32	flags;
	__u64	sqes;
	__u32	nr;
	__u32	wait_nr;
	__u64	timeout_ns;
	__u64	reserved;
};

/**
 * struct kvctx_wait - KVCTX_IOC_WAIT: wait for completions
 * @size: size of the structure as the caller knows it
 * @flags: zero
 * @min: return when at least so many completions can be consumed, or when nothing is in flight any more
 * @consumed: first take so many completions off the ring, as if the caller had advanced @head of the ring by it;
 *	-EINVAL when there are fewer. For sessions opened read-only, which can map the ring only for reading
 * @timeout_ns: relative; 0: only look; KVCTX_TIMEOUT_NONE: no limit
 *
 * Returns the number of completions that can be consumed; -ETIME when the limit passed first, -EINTR on a signal.
 */
struct kvctx_wait {
	__u32	size;
	__u32	flags;
	__u32	min;
	__u32	consumed;
	__u64	timeout_ns;
};

/* Flags of MATCH */
#define KVCTX_MATCH_LEASE	(1U << 0)	/* lease the pages found for @lease_ms */

/**
 * struct kvctx_match - KVCTX_IOC_MATCH: how many leading pages of a prefix are here
 * @size: size of the structure as the caller knows it
 * @flags: KVCTX_MATCH_*
 * @keys: user address of struct kvctx_key[nr_keys], in prefix order
 * @lens: user address of __u32[nr_keys] for the lengths in bytes of the pages found, or 0
 * @nr_keys: 1..match_max
 * @lease_ms: with KVCTX_MATCH_LEASE: milliseconds, 1..lease_ms_max; otherwise zero
 * @nr_present: out: leading pages present
 * @lease: out: lease id of all of them together, or 0
 *
 * Returns 0. When the session's leases are used up the pages are found but @lease is 0.
 */
struct kvctx_match {
	__u32	size;
	__u32	flags;
	__u64	keys;
	__u64	lens;
	__u32	nr_keys;
	__u32	lease_ms;
	__u32	nr_present;
	__u32	lease;
};

/*
 * The numbers carry no size: the structure's first field does. An ioctl therefore keeps its number when its structure
 * grows.
 */
#define KVCTX_IOC_TYPE		0xB5
#define KVCTX_IOC_INFO		_IO(KVCTX_IOC_TYPE, 0x00)
#define KVCTX_IOC_SETUP		_IO(KVCTX_IOC_TYPE, 0x01)
#define KVCTX_IOC_MEM_REGISTER	_IO(KVCTX_IOC_TYPE, 0x02)
#define KVCTX_IOC_MEM_UNREGISTER _IO(KVCTX_IOC_TYPE, 0x03)
#define KVCTX_IOC_SUBMIT	_IO(KVCTX_IOC_TYPE, 0x04)
#define KVCTX_IOC_WAIT		_IO(KVCTX_IOC_TYPE, 0x05)
#define KVCTX_IOC_MATCH		_IO(KVCTX_IOC_TYPE, 0x06)

#endif /* _UAPI_LINUX_KVCTX_H */
