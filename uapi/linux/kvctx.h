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
 *   peer      a PCI device whose memory was registered; operations on it are peer-to-peer DMA
 *   segment   here: one piece of an operation's scatter list (struct kvctx_seg)
 *   slot      a piece of kernel-managed pinned memory that holds one page read ahead (PREFETCH)
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
 *   -ENODEV      both   the member, the whole pool, or the peer whose memory was named, is gone: recompute
 *   -ETIME       both   the deadline passed before the operation was started; WAIT: the time limit passed
 *   -EREMOTEIO   res    no peer-to-peer path between this memory and this member, a piece of peer memory that is not
 *                       whole device blocks, or a page that is encrypted; nothing was sent: stage the page through
 *                       host memory. MATCH: an answer
 *                       to peer memory, which the kernel does not write
 *                ioctl  MEM_REGISTER: memory of a PCI device that nobody can pin: its driver publishes it not as
 *                       peer-to-peer memory, or this kernel has no peer-to-peer DMA
 *   -EDQUOT      ioctl  SETUP, MEM_REGISTER: the tenant has as much as it may, of memory or of keyspaces
 *   -ENOSPC      res    STORE: nothing evictable; LEASE: too many leases; PREFETCH, GET: no slot is free
 *   -EAGAIN      res    STORE or DELETE with KVCTX_OP_NOWAIT: reclaim is running, or the tenant moves as much as it
 *                       may: try again
 *                ioctl  SUBMIT: the completion queue has no room for one more operation
 *   -EMSGSIZE    res    scatter list and byte range differ in length
 *   -ERANGE      res    LOAD: the byte range ends behind the page's end
 *   -E2BIG       res    page, or room for MATCH's answer, longer than page_len_max; page longer than a slot; more
 *                       segments than segs_max
 *                ioctl  the structure is longer than this kernel knows and its tail is not zero
 *   -EACCES      res    STORE, DELETE or FLUSH in a session opened read-only
 *   -EPERM       res    the tenant requires verified pages, and this operation would not verify, or the page it stores
 *                       never could
 *   -ENOKEY      both   the tenant's pages are encrypted, and its key is not there, or may not be used any more
 *   -EILSEQ      res    STORE: the bytes do not have the CRCs that came with them; nothing is kept
 *   -ECANCELED   res    a CANCEL named it before the operation was started; io_uring: the ring died, or the request was
 *                       cancelled, before that
 *   -EINVAL      both   unknown flag, opcode, memory id, lease, reserved field not zero, zero length
 *   -EFAULT      both   a pointer cannot be read or written; res: a segment leaves its memory
 *   -EOPNOTSUPP  res    PREFETCH, GET, PUT in a session without slots; PREFETCH and GET, and LOAD with @crcs, of a page
 *                       that has no CRCs; STORE and LOAD with @crcs of a tenant whose pages are encrypted
 *   -ENOMEM      both   out of memory, or over RLIMIT_MEMLOCK
 *   -EBADFD      ioctl  no KVCTX_IOC_SETUP yet
 *   -EEXIST      ioctl  SETUP done before
 *   -EBUSY       ioctl  MEM_UNREGISTER: operations in flight use it
 *   -EINTR       ioctl  a signal was handled while waiting
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
#define KVCTX_FEAT_P2P		(1ULL << 1)	/* MEM_REGISTER takes memory of PCI peers */
#define KVCTX_FEAT_URING	(1ULL << 2)	/* operations as io_uring commands */
#define KVCTX_FEAT_SLOTS	(1ULL << 3)	/* PREFETCH, GET, PUT */
#define KVCTX_FEAT_EVENTS	(1ULL << 4)	/* KVCTX_IOC_EVENTS */
/* What a server without the module tells of itself */
#define KVCTX_FEAT_PROCESS	(1ULL << 32)	/* served in this process, without the module */
#define KVCTX_FEAT_IOTHREADS	(1ULL << 33)	/* there, after SETUP: io_uring is not available, threads move pages */
#define KVCTX_FEAT_UNREGISTERED	(1ULL << 34)	/* there: some memory of this session is used without being registered
						 * with io_uring, since RLIMIT_MEMLOCK allows no more: slower
						 */

/* Tenant flags reported by INFO */
#define KVCTX_TENANT_VERIFIED	(1U << 0)	/* what would not verify is refused: KVCTX_OP_NO_VERIFY, LOAD
						 * to and STORE from peer memory without @crcs, LOAD to memory of
						 * a page stored that way
						 */
#define KVCTX_TENANT_ENCRYPTED	(1U << 1)	/* its pages are encrypted on the members: no peer memory, no @crcs */

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
 * @members: member devices of the pool, with the places of removed ones; grows when members are added
 * @segs_max: longest scatter list
 * @batch_max: most operations of one SUBMIT
 * @cq_max: most completion queue entries
 * @match_max: most keys of one MATCH
 * @lease_ms_max: longest lease in milliseconds
 * @leases_max: most pages under lease of one session
 * @mem_max: most memory registrations of one session
 * @dma_align: address and length alignment in bytes at which a segment is moved without a bounce block
 * @tenant_flags: KVCTX_TENANT_*
 * @pool_uuid: identity of the pool
 * @pool: name of the pool, NUL-terminated
 * @tenant: name of the tenant, NUL-terminated
 * @slots_max: most slots of one session
 * @slot_bytes_max: largest slot in bytes
 * @tenant_pages: pages of the tenant that the pool has now, of all its keyspaces
 * @tenant_bytes: their bytes
 * @tenant_limit: bytes that the tenant may have; 0: no limit but the pool's capacity
 * @events_max: events that are kept for those who have not read them yet, and most of one KVCTX_IOC_EVENTS
 * @reserved: zero
 *
 * Works before and after SETUP. The masks are those that SUBMIT validates with. Which members a peer's memory reaches
 * is what KVCTX_IOC_PATHS tells.
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
	__u32	tenant_flags;
	__u8	pool_uuid[KVCTX_UUID_LEN];
	char	pool[KVCTX_NAME_MAX];
	char	tenant[KVCTX_NAME_MAX];
	__u32	slots_max;
	__u32	slot_bytes_max;
	__u64	tenant_pages;
	__u64	tenant_bytes;
	__u64	tenant_limit;
	__u32	events_max;
	__u32	reserved;
};

/* Flags of SETUP */
#define KVCTX_SETUP_EVENTFD	(1U << 0)	/* @eventfd is valid: signalled at each completion, and for events */

/* mmap offsets */
#define KVCTX_MMAP_CQ		0ULL		/* completion queue, &kvctx_setup.cq_bytes long */
#define KVCTX_MMAP_ARENA	(1ULL << 40)	/* arena, arena_bytes long; may be mapped in parts */
#define KVCTX_MMAP_SLOTS	(2ULL << 40)	/* slots, nr_slots * slot_bytes long; PROT_READ only */

/**
 * struct kvctx_setup - KVCTX_IOC_SETUP: start the session
 * @size: size of the structure as the caller knows it
 * @flags: KVCTX_SETUP_*
 * @keyspace: keyspace of all operations of the session
 * @arena_bytes: in: bytes of pinned memory to allocate as memory id 0, may be 0; out: rounded up to whole pages.
 *	Accounted to RLIMIT_MEMLOCK, and to the tenant, which may have a limit for all its sessions together
 * @cq_entries: in: completion queue length, 1..cq_max; out: rounded up to a power of two. Operations in flight and
 *	completions not yet consumed together never exceed it
 * @eventfd: eventfd to signal, with KVCTX_SETUP_EVENTFD; otherwise zero
 * @cq_bytes: out: length of the mapping at KVCTX_MMAP_CQ
 * @slot_bytes: in: bytes of one slot, at most slot_bytes_max; out: rounded up to whole pages; 0 with no slots
 * @nr_slots: slots for pages read ahead, at most slots_max; 0: none, then PREFETCH, GET and PUT give -EOPNOTSUPP.
 *	Accounted as the arena
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
	__u32	slot_bytes;
	__u32	nr_slots;
	__u64	reserved;
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
 * The range must be writable by the caller. Pinned pages are accounted to RLIMIT_MEMLOCK and to the tenant until
 * unregistered or the session closes. May sleep.
 *
 * A range that maps memory of a PCI peer (a GPU's as its driver publishes it, a controller memory buffer) is registered
 * as peer memory, whole or not at all (-EFAULT where both kinds, or memory of two peers, meet in one range). It is not
 * accounted. When the peer's driver lets go of the device, operations on the registration end first, then it answers
 * -ENODEV until unregistered. So does registering while the driver is coming or going, after two seconds of trying.
 *
 * The CPU does not touch peer memory: no bounce blocks, so each piece has to begin and end on device blocks
 * (&kvctx_info.dma_align does for every member, and so must the place of the piece in the page); no check of CRCs; and
 * what a LOAD that failed has left there stays. An operation with some pieces in peer memory is treated so as a whole.
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

/**
 * enum kvctx_path_reason - what is between a memory and a member
 * @KVCTX_PATH_DIRECT: nothing; the member's device moves pages from and to this memory itself
 * @KVCTX_PATH_NO_QUEUE: the member's queue takes no peer memory (NVMe/TCP, null_blk)
 * @KVCTX_PATH_NO_ROUTE: no PCI switch in common, and the host bridge is not known to forward between its ports
 * @KVCTX_PATH_NO_PCI: the member is not a PCI device
 * @KVCTX_PATH_GONE: the peer's driver has let go of it
 */
enum kvctx_path_reason {
	KVCTX_PATH_DIRECT	= 0,
	KVCTX_PATH_NO_QUEUE	= 1,
	KVCTX_PATH_NO_ROUTE	= 2,
	KVCTX_PATH_NO_PCI	= 3,
	KVCTX_PATH_GONE		= 4,
};

/**
 * struct kvctx_path - one row of the answer of KVCTX_IOC_PATHS
 * @member: number of the member in the pool
 * @reason: enum kvctx_path_reason
 * @distance: PCI hops between peer and member; -1 where there is no path, 0 for host memory
 * @reserved: zero
 * @device: name of the member's block device, NUL-terminated
 * @peer: PCI name of the peer ("0000:03:00.0"), NUL-terminated; empty for host memory
 */
struct kvctx_path {
	__u32	member;
	__u32	reason;
	__s32	distance;
	__u32	reserved;
	char	device[32];
	char	peer[32];
};

/**
 * struct kvctx_paths - KVCTX_IOC_PATHS: which members a memory reaches
 * @size: size of the structure as the caller knows it
 * @flags: zero
 * @mem: memory id
 * @nr: in: rows that fit at @paths; out: members of the pool, with the places of removed ones, which are GONE; of
 *      these at most so many rows were written
 * @paths: user address of struct kvctx_path[nr]
 *
 * Decided when the memory was registered, or the member added, and enforced by SUBMIT: an operation whose page lies on
 * a member without a path completes with -EREMOTEIO, and nothing was sent to any device. A STORE of peer memory goes
 * only to members with a path; -EREMOTEIO when there is none.
 */
struct kvctx_paths {
	__u32	size;
	__u32	flags;
	__u32	mem;
	__u32	nr;
	__u64	paths;
};

enum kvctx_event_kind {
	KVCTX_EVENT_STORED	= 1,	/* the page is here, also in place of another of that key */
	KVCTX_EVENT_EVICTED	= 2,	/* it had to go: for others, or with a member that left */
	KVCTX_EVENT_DELETED	= 3,	/* by DELETE */
	KVCTX_EVENT_DROPPED	= 4,	/* it failed verification */
	KVCTX_EVENT_MEMBER_LOST	= 5,	/* a member failed: what lay on it is not here; key and length are zero */
};

/**
 * struct kvctx_event - a page came or went
 * @key: of the page
 * @kind: enum kvctx_event_kind; others may come in later kernels
 * @length: bytes of the page
 */
struct kvctx_event {
	struct kvctx_key key;
	__u32	kind;
	__u32	length;
};

/**
 * struct kvctx_events - KVCTX_IOC_EVENTS: what came and went in the session's keyspace
 * @size: size of the structure as the caller knows it
 * @flags: zero
 * @events: user address of struct kvctx_event[nr]
 * @nr: in: events that fit there, at most events_max, may be 0; out: events written, the oldest first
 * @reserved: zero
 * @lost: out: events that the caller missed since the call before
 *
 * The first call begins the stream: what happens from then on, by whomever, in the session's tenant and keyspace, and
 * nothing of any other. What happens to one page is told in the order in which it happens, and a STORE or DELETE before
 * its completion can be seen. A page that only moves to another place is no event, nor is a STORE that finds its page
 * present. Whoever may open the tenant may thus learn its keys, also in a session opened read-only.
 *
 * No event waits for its readers. The newest events_max are kept; who reads too slowly finds in @lost how many were
 * overwritten. Then, as after MEMBER_LOST, only MATCH and QUERY tell what is here.
 *
 * Does not wait. The eventfd of SETUP is signalled by the first event after a call that wrote fewer than @nr, and after
 * the one that began. Poll does not tell of events.
 *
 * Returns 0; -EFAULT when @events cannot be written, and nothing was read. When only its beginning can, that is
 * written.
 */
struct kvctx_events {
	__u32	size;
	__u32	flags;
	__u64	events;
	__u32	nr;
	__u32	reserved;
	__u64	lost;
};

enum kvctx_opcode {
	KVCTX_OP_STORE		= 1,	/* write a page; res: its bytes, or 0 with UNADMITTED */
	KVCTX_OP_LOAD		= 2,	/* read a page or a byte range of it; res: bytes read */
	KVCTX_OP_DELETE		= 3,	/* drop a page; res: 0, or -ENOENT; durable after FLUSH */
	KVCTX_OP_QUERY		= 4,	/* res: bytes of the page, or -ENOENT */
	KVCTX_OP_PREFETCH	= 5,	/* read a page into a slot and keep it for lease_ms; res: its bytes */
	KVCTX_OP_LEASE		= 6,	/* keep a page for lease_ms, or until others need room; res: lease id, from 1 */
	KVCTX_OP_RELEASE	= 7,	/* end a lease by id */
	KVCTX_OP_FLUSH		= 8,	/* what completed before this was submitted survives a power cut */
	KVCTX_OP_GET		= 9,	/* PREFETCH, and keep the slot until PUT; res: slot number, from 0 */
	KVCTX_OP_PUT		= 10,	/* end of a GET */
	KVCTX_OP_MATCH		= 11,	/* KVCTX_IOC_MATCH, answered to memory; res: number of pages found */
	KVCTX_OP_CANCEL		= 12,	/* end what was not started of an @offset for user_data; res: how many */
};

/* Priorities of operations */
enum kvctx_prio {
	KVCTX_PRIO_DEFAULT	= 0,	/* LOAD, GET: URGENT; STORE: NORMAL; PREFETCH: BACKGROUND */
	KVCTX_PRIO_URGENT	= 1,	/* decode waits for it; NORMAL where the tenant's may not be urgent */
	KVCTX_PRIO_NORMAL	= 2,	/* somebody waits for it, but not decode */
	KVCTX_PRIO_BACKGROUND	= 3,	/* nobody waits for it yet */
};

/* Operation flags */
#define KVCTX_OP_NOWAIT		(1U << 0)	/* STORE, DELETE: -EAGAIN instead of waiting for space; STORE: or
						 * for what the tenant may have in flight, or move in a second
						 */
#define KVCTX_OP_NO_VERIFY	(1U << 1)	/* LOAD: skip the CRC check; completes without VERIFIED;
						 * STORE: do not compute CRCs; see @crcs of &struct kvctx_sqe
						 */
#define KVCTX_OP_NO_SLOT	(1U << 2)	/* LOAD: from the device also when the page lies in a slot */

#define KVCTX_OP_REPLACE	(1U << 3)	/* STORE: also when the key is taken. Until this completes the page
						 * that is there, or on its way, is as it was; what was replaced
						 * is not found again after a power cut once this was flushed
						 */

/* Flags of MATCH, the operation and the ioctl */
#define KVCTX_MATCH_LEASE	(1U << 0)	/* lease the pages found for @lease_ms */
#define KVCTX_MATCH_PREFETCH	(1U << 1)	/* read pages found ahead, from the first on, while slots are free */
#define KVCTX_MATCH_ALL		(1U << 2)	/* do not stop at the first page that is missing */

#define KVCTX_OP_MATCH_LEASE	(KVCTX_MATCH_LEASE << 8)	/* MATCH: as of the ioctl */
#define KVCTX_OP_MATCH_PREFETCH	(KVCTX_MATCH_PREFETCH << 8)
#define KVCTX_OP_MATCH_ALL	(KVCTX_MATCH_ALL << 8)

/**
 * struct kvctx_sqe - one operation of SUBMIT
 * @opcode: enum kvctx_opcode
 * @prio: enum kvctx_prio: STORE, LOAD, PREFETCH, GET; others 0. A more urgent operation passes those that wait for a
 *	turn at the device, and carries a higher I/O priority
 * @nr_segs: STORE, LOAD, MATCH: 0: the one segment is @length bytes at offset @segs of the memory @mem; 1..segs_max:
 *	entries of the array at @segs; others 0
 * @flags: KVCTX_OP_*
 * @user_data: returned in the completion
 * @key: page key; zero for RELEASE, PUT, FLUSH, MATCH, CANCEL
 * @offset: LOAD: first byte of the range inside the page; CANCEL: user_data of operations of this session that are to
 *	end. Those that wait for space, for their turn at a device, or in part for a place in its queue, complete with
 *	-ECANCELED, and nothing was done. One that is being tried again just then is not counted: it starts, or
 *	ends so. Others go on, and are not counted; others 0
 * @length: STORE: bytes of the page; LOAD: bytes of the range; MATCH: room for the answer, at least that of
 *	&struct kvctx_found; others 0. Equals the sum of the segments' lengths
 * @segs: nr_segs > 0: user address of struct kvctx_seg[nr_segs], read during SUBMIT only; STORE, LOAD, MATCH with 0:
 *	bytes from the start of the memory @mem; others 0
 * @timeout_ns: nanoseconds from SUBMIT after which an operation not yet started completes with -ETIME; 0: none
 * @depth: STORE: position of the page in its prefix, from 1; 0: unknown. A hint for reclaim
 * @lease_ms: LEASE, PREFETCH, GET, and MATCH with LEASE or PREFETCH: milliseconds, 1..lease_ms_max; others 0. The slot
 *	of a PREFETCH or GET is used for another page only after that, and after the last PUT
 * @lease: RELEASE: lease id; PUT: slot number; others 0
 * @mem: STORE, LOAD, MATCH with nr_segs 0: memory id; otherwise 0
 * @crcs: STORE, LOAD: user address of __u32[], one CRC32C for each chunk (chunk_size bytes, the last one shorter) of
 *	the page (STORE) or that the range touches (LOAD), or 0. Accessed during SUBMIT only.
 *	STORE from host memory: compared with what the kernel computes, -EILSEQ when they differ. STORE from peer
 *	memory, which the kernel does not read, or with NO_VERIFY: kept as the page's CRCs; without them the page
 *	never verifies. LOAD: receives the CRCs that the bytes must have, for a check where the bytes are; not for a
 *	page stored without any (-EOPNOTSUPP)
 * @keys: MATCH: user address of struct kvctx_key[nr_keys], read during SUBMIT only; others 0
 * @nr_keys: MATCH: 1..match_max; others 0
 * @reserved2: zero
 */
struct kvctx_sqe {
	__u8	opcode;
	__u8	prio;
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
	__u32	mem;
	__u64	crcs;
	__u64	keys;
	__u32	nr_keys;
	__u32	reserved2;
};

/* Completion flags: what really happened */
#define KVCTX_CQE_VERIFIED	(1U << 0)	/* every byte was checked against its CRC32C */
#define KVCTX_CQE_P2P		(1U << 1)	/* peer-to-peer DMA; the CPU has not touched the bytes */
#define KVCTX_CQE_STAGED	(1U << 2)	/* copied through host memory by the library */
#define KVCTX_CQE_DEDUP		(1U << 3)	/* STORE: the page was present or on its way; nothing was written */
#define KVCTX_CQE_FROM_DRAM	(1U << 4)	/* served from a slot, without the device */
#define KVCTX_CQE_PENDING	(1U << 5)	/* with DEDUP: another writer has not completed the page yet; FLUSH
						 * covers it only from then on
						 */
#define KVCTX_CQE_UNADMITTED	(1U << 6)	/* STORE: the write budget of pool or tenant is spent and the page was
						 * not seen before; nothing was written, res is 0
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
 * or is interrupted, be it by what io_uring does in the task, does not change the return value.
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
 * Returns the number of completions that can be consumed; -ETIME when the limit passed first; -EINTR when a signal was
 * handled first. Then, @consumed is 0 and @timeout_ns what is left of it: the structure can be passed again. Signals
 * without a handler, and what io_uring does in the task meanwhile, do not end the wait, but leave the same traces in
 * the structure, which therefore has to be writable, and is filled anew for each call.
 */
struct kvctx_wait {
	__u32	size;
	__u32	flags;
	__u32	min;
	__u32	consumed;
	__u64	timeout_ns;
};

/**
 * struct kvctx_match - KVCTX_IOC_MATCH: which pages of a prefix are here
 * @size: size of the structure as the caller knows it
 * @flags: KVCTX_MATCH_*
 * @keys: user address of struct kvctx_key[nr_keys], in prefix order
 * @lens: user address of __u32[nr_keys] for the lengths in bytes of the pages found, or 0. With ALL, those that are
 *	missing get 0
 * @nr_keys: 1..match_max
 * @lease_ms: with LEASE or PREFETCH: milliseconds, 1..lease_ms_max; otherwise zero
 * @nr_present: out: leading pages present; with ALL: pages present
 * @lease: out: lease id of all of them together, or 0
 * @nr_prefetched: out: of the pages found so many, from the first on, lie in slots or are on their way there, for
 *	@lease_ms. Nothing tells when they have arrived: a LOAD or GET that comes earlier waits for them
 * @reserved: zero
 * @present: with ALL: user address of __u64[(nr_keys + 63) / 64], where bit n % 64 of word n / 64 tells whether key n's
 *	page is here; otherwise zero
 *
 * Returns 0. When the session's leases are used up the pages are found but @lease is 0. Leases of a tenant that keep
 * more than its share yield where others need room: the page is a miss then, and the lease ends as any other.
 *
 * Each call is taken for a request for the prompt that the keys are of, when it is decided which pages stay
 * (Documentation/eviction.rst): name all pages of the prompt, also those that are hardly there, and ask once a request.
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
	__u32	nr_prefetched;
	__u32	reserved;
	__u64	present;
};

/**
 * struct kvctx_found - what KVCTX_OP_MATCH answers
 * @nr_present: as in &struct kvctx_match, also the fields below that carry its names
 * @nr_prefetched: as there
 * @lease: as there
 * @reserved: zero
 * @present: a bit for each key, also without ALL. The lengths follow: __u32[nr_keys], 0 where a page is missing
 *
 * Written before the operation completes, as far as there is room for it; what is behind it is left alone.
 */
struct kvctx_found {
	__u32	nr_present;
	__u32	nr_prefetched;
	__u32	lease;
	__u32	reserved;
	__u64	present[];
};

/**
 * struct kvctx_uring_op - one operation as an io_uring command: sqe->cmd of KVCTX_URING_OP, with IORING_SETUP_SQE128
 * @opcode: enum kvctx_opcode
 * @prio: as in &struct kvctx_sqe, also the fields below that carry its names
 * @nr_segs: 0 with STORE and LOAD: the one segment @mem, @addr, @length; otherwise entries of the array at @addr
 * @flags: KVCTX_OP_*
 * @key: page key
 * @addr: nr_segs > 0: user address of struct kvctx_seg[nr_segs]; 0: offset in the memory @mem; with
 *	IORING_URING_CMD_FIXED: user address inside the ring's registered buffer sqe->buf_index
 * @timeout_ns: as there
 * @offset: as there, below 4 GiB
 * @length: as there
 * @arg: STORE: depth; LEASE, PREFETCH, GET: lease_ms; RELEASE: lease; PUT: slot number; others 0
 * @mem: memory id where nr_segs is 0 and the buffer is not a registered one; otherwise 0
 *
 * The io_uring completion's res is that of the operation; on rings with IORING_SETUP_CQE32 big_cqe[0] holds
 * KVCTX_CQE_*. Nothing goes to the session's completion queue. When the ring is closed, or its task begins another
 * program, an operation that waits for space or for its turn ends with -ECANCELED; IORING_OP_ASYNC_CANCEL does not
 * reach commands (-ENOENT), @timeout_ns does.
 */
struct kvctx_uring_op {
	__u8	opcode;
	__u8	prio;
	__u16	nr_segs;
	__u32	flags;
	struct kvctx_key key;
	__u64	addr;
	__u64	timeout_ns;
	__u32	offset;
	__u32	length;
	__u32	arg;
	__u32	mem;
};

/**
 * struct kvctx_uring_submit - a batch as an io_uring command: sqe->cmd of KVCTX_URING_SUBMIT
 * @sqes: user address of struct kvctx_sqe[nr]
 * @nr: operations, 1..batch_max
 * @reserved: zero
 *
 * As KVCTX_IOC_SUBMIT: each operation taken gives one completion in the session's completion queue. The io_uring
 * completion comes when the last of them has; res is what the ioctl would return.
 */
struct kvctx_uring_submit {
	__u64	sqes;
	__u32	nr;
	__u32	reserved;
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
#define KVCTX_IOC_PATHS		_IO(KVCTX_IOC_TYPE, 0x07)
#define KVCTX_IOC_EVENTS	_IO(KVCTX_IOC_TYPE, 0x08)

/* sqe->cmd_op of io_uring commands */
#define KVCTX_URING_OP		_IO(KVCTX_IOC_TYPE, 0x40)
#define KVCTX_URING_SUBMIT	_IO(KVCTX_IOC_TYPE, 0x41)

#endif /* _UAPI_LINUX_KVCTX_H */
