/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * kvctx control-plane ABI: the generic-netlink family "kvctx".
 *
 * Requests that change something need CAP_SYS_ADMIN in the initial user namespace (-EPERM). GET requests and dumps are
 * open to everybody, but for tenants: who has neither CAP_NET_ADMIN nor CAP_SYS_ADMIN there gets those whose owner,
 * group and mode let him read their node. Events need CAP_NET_ADMIN (-EPERM). Every refusal carries a sentence in the
 * extended acknowledgement (NLMSGERR_ATTR_MSG).
 *
 * Commands and the attributes they take; "*" means may repeat, "?" optional
 *   POOL_ATTACH     KVCTX_A_DEVICE* KVCTX_A_DEGRADED?
 *                                               replies with one POOL object. The pool's name stands on the media.
 *                                               Without DEGRADED all members have to be there. kvctxd(8) takes one
 *                                               directory of members too, or its name in --pools, without a slash:
 *                                               -ENOENT when there is none
 *   POOL_DETACH     KVCTX_A_POOL                -EBUSY while sessions are open
 *   POOL_ADD        KVCTX_A_POOL KVCTX_A_DEVICE KVCTX_A_DRY_RUN? KVCTX_A_CAPACITY?
 *                                               -EEXIST when the device holds a pool; what else it holds is lost.
 *                                               With DRY_RUN nothing is read or written: could it be a member?
 *                                               kvctxd(8) makes a file of CAPACITY bytes; the kernel refuses that
 *   POOL_REMOVE     KVCTX_A_POOL KVCTX_A_INDEX KVCTX_A_MOVE?
 *                                               begins it: with MOVE pages go to other members as far as there is
 *                                               room, else they are dropped. -EBUSY: it is the last one online
 *   POOL_REJOIN     KVCTX_A_POOL KVCTX_A_DEVICE a member that was lost since the attach returns, with all that was
 *                                               durable on it and has not been stored anew or deleted since (but what
 *                                               reclaim had moved and not written a summary of yet), when its
 *                                               device, or another node for it, has what it was left with: else
 *                                               -ESTALE. -EEXIST: it is online. -EINVAL: it was missing at the attach.
 *                                               -EBUSY: it leaves, or operations of before are under way. -EXDEV: of
 *                                               another pool. -ENOSPC: too small
 *   POOL_GET        KVCTX_A_POOL? (dump: none)  POOL objects
 *   POOL_SET        KVCTX_A_POOL KVCTX_A_DISCARD_RATE? KVCTX_A_WRITE_BUDGET?
 *                                               kept on the media; what is not given stays; -EINVAL for neither
 *   TENANT_ADD      KVCTX_A_POOL KVCTX_A_TENANT KVCTX_A_UID? KVCTX_A_GID? KVCTX_A_MODE?
 *                   KVCTX_A_TENANT_FLAGS? KVCTX_A_LIMITS?
 *   TENANT_SET      KVCTX_A_POOL KVCTX_A_TENANT KVCTX_A_TENANT_FLAGS? KVCTX_A_LIMITS?
 *                                               kept on the media; what is not given stays; -EINVAL for neither.
 *                                               Flags: -EBUSY while its sessions are open; limits are in force at
 *                                               once. Either all that is given changes or, but for -EIO, nothing
 *   TENANT_REMOVE   KVCTX_A_POOL KVCTX_A_TENANT -EBUSY while its sessions are open
 *   TENANT_GET      dump: KVCTX_A_POOL?         TENANT objects
 *   STATS_GET       dump: KVCTX_A_POOL?         one STATS object a pool
 *   TENANT_STATS_GET dump: KVCTX_A_POOL?        TENANT_STATS objects
 *   PEER_GET        dump: KVCTX_A_POOL?         one PEER object a pool and PCI device with memory for peers;
 *                                               -EOPNOTSUPP where the kernel has no PCI peer-to-peer DMA
 *
 * Objects are messages of the command's number that carry
 *   POOL    POOL UUID CAPACITY SEGMENT_SIZE CHUNK_SIZE PAGE_LEN_MAX STATE ATTACH_BYTES ATTACH_US DISCARD_RATE
 *           WRITE_BUDGET, with a budget WRITE_BUDGET_LEFT, and one nested KVCTX_A_MEMBER a member
 *   TENANT  POOL TENANT UID GID MODE SESSIONS DEV_MAJOR DEV_MINOR TENANT_FLAGS TENANT_PAGES TENANT_BYTES
 *           TENANT_PINNED TENANT_LEASED TENANT_KEYSPACES and one u64 or u32 KVCTX_L_* a limit, nested in
 *           KVCTX_A_LIMITS
 *   TENANT_STATS  POOL TENANT and one KVCTX_T_* for each counter, several for LATENCY, nested in
 *           KVCTX_A_TENANT_STATS
 *   PEER    POOL PEER and one nested KVCTX_A_PATH a member
 *   STATS   POOL and one u64 KVCTX_S_* a counter, nested in KVCTX_A_STATS
 *
 * Multicast group "mgmt": an object of the same form after POOL_ATTACH, POOL_DETACH, POOL_SET, POOL_ADD, TENANT_ADD,
 * TENANT_SET, TENANT_REMOVE; MEMBER_LOST (POOL, MEMBER) when a member fails, POOL_REMOVE (POOL, MEMBER) when one is
 * removed, POOL_REJOIN (POOL, MEMBER) when one has returned. Of what a member returns with nothing else tells.
 *
 * Multicast group "pages": PAGES (POOL TENANT KEYSPACE PAGES LOST?), which pages of a tenant and keyspace came and
 * went; of those of a lost member only MEMBER_LOST tells, of those of a removed tenant only TENANT_REMOVE. They are
 * gathered for a tenth of a second, and of a pool no more than 1024 are told of it; LOST counts those before these that
 * were not. What is told of one page is in the order in which it happened, what is told of two need not be. While
 * somebody listens, and some seconds longer, every STORE takes a lock of the pool.
 *
 * Of either group only sockets that were opened with CAP_NET_ADMIN in the first user namespace hear, whoever joined.
 */
#ifndef _UAPI_LINUX_KVCTX_GENL_H
#define _UAPI_LINUX_KVCTX_GENL_H

#include <linux/types.h>

#define KVCTX_GENL_NAME		"kvctx"
#define KVCTX_GENL_VERSION	1
#define KVCTX_GENL_MCGRP_MGMT	"mgmt"
#define KVCTX_GENL_MCGRP_PAGES	"pages"

enum kvctx_genl_cmd {
	KVCTX_CMD_UNSPEC,
	KVCTX_CMD_POOL_ATTACH,
	KVCTX_CMD_POOL_DETACH,
	KVCTX_CMD_POOL_GET,
	KVCTX_CMD_TENANT_ADD,
	KVCTX_CMD_TENANT_REMOVE,
	KVCTX_CMD_TENANT_GET,
	KVCTX_CMD_STATS_GET,
	KVCTX_CMD_MEMBER_LOST,		/* event only */
	KVCTX_CMD_TENANT_SET,
	KVCTX_CMD_PEER_GET,
	KVCTX_CMD_POOL_SET,
	KVCTX_CMD_POOL_ADD,
	KVCTX_CMD_POOL_REMOVE,
	KVCTX_CMD_TENANT_STATS_GET,
	KVCTX_CMD_PAGES,		/* event only */
	KVCTX_CMD_POOL_REJOIN,
	__KVCTX_CMD_MAX,
};
#define KVCTX_CMD_MAX (__KVCTX_CMD_MAX - 1)

/* Top-level attributes */
enum kvctx_genl_attr {
	KVCTX_A_UNSPEC,
	KVCTX_A_PAD,
	KVCTX_A_POOL,			/* string: pool name */
	KVCTX_A_DEVICE,			/* string: path of a block device */
	KVCTX_A_TENANT,			/* string: tenant name */
	KVCTX_A_UID,			/* u32: owner of the node, default 0 */
	KVCTX_A_GID,			/* u32: group of the node, default 0 */
	KVCTX_A_MODE,			/* u32: permission bits of the node, default 0600 */
	KVCTX_A_SESSIONS,		/* u32: open files */
	KVCTX_A_DEV_MAJOR,		/* u32 */
	KVCTX_A_DEV_MINOR,		/* u32 */
	KVCTX_A_UUID,			/* binary, 16 bytes */
	KVCTX_A_CAPACITY,		/* u64: bytes of all segments */
	KVCTX_A_SEGMENT_SIZE,		/* u64: bytes */
	KVCTX_A_CHUNK_SIZE,		/* u32: bytes under one CRC32C */
	KVCTX_A_PAGE_LEN_MAX,		/* u64: bytes */
	KVCTX_A_STATE,			/* u32: enum kvctx_pool_state */
	KVCTX_A_MEMBER,			/* nested KVCTX_M_* */
	KVCTX_A_STATS,			/* nested KVCTX_S_* */
	KVCTX_A_TENANT_FLAGS,		/* u32: KVCTX_TENANT_* of <linux/kvctx.h>, default 0; ENCRYPTED is told only */
	KVCTX_A_PEER,			/* string: PCI name of a device */
	KVCTX_A_PATH,			/* nested KVCTX_P_* */
	KVCTX_A_DEGRADED,		/* flag: attach although members are missing */
	KVCTX_A_ATTACH_BYTES,		/* u64: read from the summaries at attach */
	KVCTX_A_ATTACH_US,		/* u64: how long that took, microseconds */
	KVCTX_A_DISCARD_RATE,		/* u64: bytes a second on each member, 1 MiB to 1 TiB; 0: no discards */
	KVCTX_A_WRITE_BUDGET,		/* u64: bytes a day, 1 MiB to 1 EiB; 0: no limit */
	KVCTX_A_WRITE_BUDGET_LEFT,	/* u64: bytes that may be written now */
	KVCTX_A_INDEX,			/* u32: position of a member in the pool */
	KVCTX_A_MOVE,			/* flag: move the pages */
	KVCTX_A_DRY_RUN,		/* flag: tell whether it could be done */
	KVCTX_A_TENANT_PAGES,		/* u64: pages in the index */
	KVCTX_A_TENANT_BYTES,		/* u64: their bytes */
	KVCTX_A_LIMITS,			/* nested KVCTX_L_* */
	KVCTX_A_TENANT_PINNED,		/* u64: bytes of memory that its sessions have pinned */
	KVCTX_A_TENANT_LEASED,		/* u64: bytes of the segments that its leases keep now, whole ones */
	KVCTX_A_TENANT_KEYSPACES,	/* u32: keyspaces that it has now */
	KVCTX_A_TENANT_STATS,		/* nested KVCTX_T_* */
	KVCTX_A_TENANT_KEY,		/* string: its pages are encrypted; name of a key in the caller's keyrings */
	KVCTX_A_TENANT_KEY_STATE,	/* u32: enum kvctx_key_state; of an encrypted tenant */
	KVCTX_A_TENANT_UNLOCK,		/* flag: look for its key again, in the caller's keyrings */
	KVCTX_A_KEYSPACE,		/* binary, 16 bytes */
	KVCTX_A_PAGES,			/* binary: struct kvctx_event of <linux/kvctx.h>, one or more */
	KVCTX_A_LOST,			/* u64: events of the pool that were not told */
	__KVCTX_A_MAX,
};
#define KVCTX_A_MAX (__KVCTX_A_MAX - 1)

enum kvctx_key_state {
	KVCTX_KEY_MISSING,		/* it was not found: SETUP gives -ENOKEY */
	KVCTX_KEY_USED,
	KVCTX_KEY_ENDED,		/* it was revoked, or has expired: so do operations */
};

enum kvctx_pool_state {
	KVCTX_POOL_ONLINE,
	KVCTX_POOL_DEGRADED,		/* a member failed or is missing: its pages miss, the others serve */
};

enum kvctx_member_state {
	KVCTX_MEMBER_STATE_ONLINE,
	KVCTX_MEMBER_STATE_FAILED,
	KVCTX_MEMBER_STATE_MISSING,	/* it was not there at attach */
	KVCTX_MEMBER_STATE_LEAVING,	/* being removed: its pages are leaving it */
	KVCTX_MEMBER_STATE_STUCK,	/* was leaving when another one was lost: stays until the next attach */
};

/* Inside KVCTX_A_MEMBER */
enum kvctx_genl_member {
	KVCTX_M_UNSPEC,
	KVCTX_M_PAD,
	KVCTX_M_INDEX,			/* u32: position in the pool */
	KVCTX_M_DEVICE,			/* string: path as given to POOL_ATTACH; none of a missing member */
	KVCTX_M_UUID,			/* binary, 16 bytes */
	KVCTX_M_SIZE,			/* u64: bytes of its segments */
	KVCTX_M_STATE,			/* u32: enum kvctx_member_state */
	KVCTX_M_SEGMENTS,		/* u32: all segments */
	KVCTX_M_SEGMENTS_FREE,		/* u32: blank or empty ones */
	KVCTX_M_BYTES,			/* u64: of the pages on it */
	KVCTX_M_INFLIGHT,		/* u64: bytes on their way to it or from it now, for operations */
	KVCTX_M_WAITING,		/* u32: operations that wait for their turn there now */
	__KVCTX_M_MAX,
};
#define KVCTX_M_MAX (__KVCTX_M_MAX - 1)

/* Inside KVCTX_A_PATH: what is between the peer and a member, as struct kvctx_path of <linux/kvctx.h> has it */
enum kvctx_genl_path {
	KVCTX_P_UNSPEC,
	KVCTX_P_PAD,
	KVCTX_P_MEMBER,			/* u32: position in the pool */
	KVCTX_P_REASON,			/* u32: enum kvctx_path_reason */
	KVCTX_P_DISTANCE,		/* s32: PCI hops, -1 without a path */
	__KVCTX_P_MAX,
};
#define KVCTX_P_MAX (__KVCTX_P_MAX - 1)

/* Inside KVCTX_A_LIMITS: what a tenant may take; 0: no limit */
enum kvctx_genl_limit {
	KVCTX_L_UNSPEC,
	KVCTX_L_PAD,
	KVCTX_L_QUOTA,			/* u64: bytes of its pages */
	KVCTX_L_RESERVE,		/* u64: bytes of its pages that no other tenant evicts, at most the quota */
	KVCTX_L_WRITE_BUDGET,		/* u64: bytes a day that its STOREs write, 1 MiB to 1 EiB */
	KVCTX_L_PINNED,			/* u64: bytes of registered memory, arenas and slots of all its sessions */
	KVCTX_L_LEASED,			/* u64: bytes of the segments that its leases keep */
	KVCTX_L_KEYSPACES,		/* u32: keyspaces */
	KVCTX_L_FLAGS,			/* u32: KVCTX_LIMIT_* */
	KVCTX_L_BANDWIDTH,		/* u64: bytes a second that its STOREs write and its LOADs read */
	KVCTX_L_INFLIGHT,		/* u32: STOREs, LOADs, GETs and PREFETCHes that have begun and not ended */
	KVCTX_L_WEIGHT,			/* u32: of its turns at a member, 1 to 10000; 0: 100 */
	__KVCTX_L_MAX,
};
#define KVCTX_L_MAX (__KVCTX_L_MAX - 1)

#define KVCTX_LIMIT_NO_URGENT	(1U << 0)	/* urgent operations are of normal priority */

/* Inside KVCTX_A_TENANT_STATS: u64 each but for the last; what its operations came to since attach */
enum kvctx_genl_tenant_stat {
	KVCTX_T_UNSPEC,
	KVCTX_T_PAD,
	KVCTX_T_STORES,			/* pages written */
	KVCTX_T_STORE_BYTES,
	KVCTX_T_DEDUPS,			/* STOREs that found the page */
	KVCTX_T_UNADMITTED,		/* STOREs that a write budget turned away */
	KVCTX_T_LOADS,			/* LOADs and GETs that found the page */
	KVCTX_T_LOAD_BYTES,
	KVCTX_T_FROM_DRAM,		/* of these, from a slot */
	KVCTX_T_MISSES,			/* LOADs and GETs that did not */
	KVCTX_T_FAILED,			/* operations with any other error */
	KVCTX_T_EVICTED_PAGES,		/* of the tenant, by whoever's reclaim */
	KVCTX_T_INFLIGHT,		/* now: operations that count against its limit, when it has one */
	KVCTX_T_WAITING,		/* now: operations that wait since it has a limit */
	KVCTX_T_LATENCY,		/* binary: struct kvctx_genl_latency; several, those that have any */
	__KVCTX_T_MAX,
};
#define KVCTX_T_MAX (__KVCTX_T_MAX - 1)

#define KVCTX_LATENCIES		101

/**
 * struct kvctx_genl_latency - how long operations of a kind and priority took, from SUBMIT to their end
 * @opcode: KVCTX_OP_STORE; or KVCTX_OP_LOAD, which GET is counted with
 * @prio: KVCTX_PRIO_*, not DEFAULT
 * @nr: how many, since attach. nr[0]: below 1024 ns; then four to an octave: nr[1 + 4 * i + j], of those from
 *	2^(10 + i) * (4 + j) / 4 ns on; the last one of all that took longer
 */
struct kvctx_genl_latency {
	__u32	opcode;
	__u32	prio;
	__u64	nr[KVCTX_LATENCIES];
};

/* Inside KVCTX_A_STATS: u64 each, counted since attach unless it says "now" */
enum kvctx_genl_stat {
	KVCTX_S_UNSPEC,
	KVCTX_S_PAD,
	KVCTX_S_PAGES,			/* now: pages in the index */
	KVCTX_S_BYTES,			/* now: their bytes */
	KVCTX_S_STORES,			/* pages written */
	KVCTX_S_STORE_BYTES,
	KVCTX_S_DEDUPS,			/* STOREs that found the page */
	KVCTX_S_LOADS,			/* pages or ranges read */
	KVCTX_S_LOAD_BYTES,
	KVCTX_S_MISSES,			/* LOADs that found no page */
	KVCTX_S_DELETES,
	KVCTX_S_BAD_PAGES,		/* pages that failed verification and were dropped */
	KVCTX_S_IO_ERRORS,		/* transfers that a member failed */
	KVCTX_S_FLUSHES,
	KVCTX_S_EVICTED_PAGES,		/* dropped by reclaim */
	KVCTX_S_MOVED_PAGES,		/* rewritten by reclaim */
	KVCTX_S_MOVED_BYTES,
	KVCTX_S_SEGMENTS_SEALED,
	KVCTX_S_SEGMENTS_RECLAIMED,
	KVCTX_S_SUMMARY_WRITES,
	KVCTX_S_STORE_WAITS,		/* STOREs and DELETEs that waited for space */
	KVCTX_S_RECOVERED_PAGES,	/* found at attach */
	KVCTX_S_RECOVER_SKIPPED,	/* records and segments refused at attach */
	KVCTX_S_BOUNCED_BLOCKS,		/* blocks copied because a segment was not aligned */
	KVCTX_S_SESSIONS,		/* now: open files */
	KVCTX_S_INFLIGHT,		/* now: operations */
	KVCTX_S_REREADS,		/* chunks that failed their check and were read once more */
	KVCTX_S_TURN_WAITS,		/* operations that waited for their turn at a member */
	KVCTX_S_SLOT_HITS,		/* LOADs, PREFETCHes and GETs that found the page in a slot */
	KVCTX_S_PREFETCHES,		/* pages read into slots */
	KVCTX_S_HOST_WRITTEN_BYTES,	/* sent to the devices: pages of STOREs, padded to blocks */
	KVCTX_S_RECLAIM_WRITTEN_BYTES,	/* the same: pages moved by reclaim */
	KVCTX_S_META_WRITTEN_BYTES,	/* the same: headers, summaries, superblocks */
	KVCTX_S_DISCARDED_BYTES,
	KVCTX_S_UNADMITTED,		/* STOREs that the write budget turned away */
	KVCTX_S_INDEX_BYTES,		/* of memory that the index has now, */
	KVCTX_S_INDEX_LIMIT,		/* and may have; 0: no limit */
	KVCTX_S_RECOVER_DROPPED,	/* pages that it had no memory for at attach */
	__KVCTX_S_MAX,
};
#define KVCTX_S_MAX (__KVCTX_S_MAX - 1)

#endif /* _UAPI_LINUX_KVCTX_GENL_H */
