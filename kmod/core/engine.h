/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * What the engine's files share: its structures, its locks, its floors. Not for its users: they include core.h.
 *
 *	media/	the format: encoders, decoders, validators. Calls nothing of the others.
 *	index/	where a page is: tables, entries, buckets, domains
 *	policy/	who goes, who comes: requests, values, victims, the write budget
 *	log/	segments and what happens to them: stores, loads, deletes, summaries, reclaim, recovery, members
 *	.	the pool, its tenants, its work items
 *
 * Each folder has one header for the others. A file calls nothing of its own floor, nor of those above it; what a lower
 * one has to say to a higher one it returns. selftests/floors checks that the objects keep to it.
 *
 * Floors, lowest first; a file calls only what is below it.
 *   1  format format_super table bucket value event base
 *   2  domain budget index quota
 *   3  entry request
 *   4  segment tenant
 *   5  tomb lease discard own
 *   6  room memory load victim
 *   7  member store delete
 *   8  summary pool
 *   9  reclaim recover
 *  10  leave return
 *  11  work
 *
 * Locks, outermost first
 *   member->lock   heads, segment states, reservation and summary of the member's segments
 *   shard->lock    the shard's buckets; everything in an entry that changes; the shard's counters
 *   leases->lock   which segments of a member are leased
 *   table->lock, domains.lock, budget.lock, requests.lock   one of them
 *   domains.shard[].lock   where domains are found
 *   domain->lock, domains.watch_lock   innermost, one of them: events
 *
 * A segment's entries are appended under the member lock while it is OPEN (tombstones: SEALING too) and freed when it
 * is DRAINING, after all of them left the index and the last hold was dropped. So whoever sees an entry in a bucket
 * under the shard lock may use its block, and who takes a hold there may use it until the hold is dropped.
 */
#ifndef KVC_ENGINE_H
#define KVC_ENGINE_H

#include "core.h"
#include "index/bucket.h"
#include "index/table.h"
#include "media/format_media.h"
#include "policy/policy.h"

#define KVC_DOMAINS_MAX		(1024U << 10)
#define KVC_KEYSPACES		(64U << 10)	/* of a tenant that has no limit of its own */
#define KVC_KEYSPACES_SURE	1024U		/* that others cannot take from it */
#define KVC_LONG_SEGMENTS	12U		/* of a member that has a head for the long-lived */
#define KVC_SEGMENTS_FEW	8U		/* of a member that has hardly more than heads */
#define KVC_HEADERS_FAIL	3U		/* so many that fail are no accident: no segment goes for them */
#define KVC_LOG_THRESHOLD	(64U << 10)	/* unlogged record bytes that start a summary unasked */

enum kvc_entry_state {
	KVC_E_PENDING,		/* a store has begun; in the index, but only other stores see it */
	KVC_E_COPYING,		/* destination of a move; not in the index yet */
	KVC_E_LIVE,		/* a page; in the index */
	KVC_E_TOMB,		/* a tombstone; in the index during recovery only */
	KVC_E_DEAD,		/* not in the index */
};

/*
 * One cache line. Key, domain, depth, length, block and crc_base do not change once it is in the index, and are then
 * read without a lock. The rest: shard lock; its bits are in structures of their own, as neighbours in a word must not
 * be written beside readers. A tombstone has its victim where a page has length, depth, block, crc_base and mark.
 */
struct kvc_entry {
	u8	key[KVC_KEY_LEN];
	struct {
		u64	seq : KVC_COUNTER_BITS;
		u64	logged : 1;	/* its record is in an extent, on media or on the way */
		u64	counted : 1;	/* its record is in segment->unlogged */
	};
	struct {
		u64	length : 28;	/* bytes */
		u64	block : 18;	/* first block in the segment */
		u64	crc_base : 18;	/* first CRC in the segment's */
	};
	struct {
		u32	domain : 20;	/* id; the entry holds a reference */
		u32	depth : 12;	/* prefix position, or KVC_DEPTH_MAX */
	};
	struct {
		u32	mark : 26;	/* whose page it is (value.h); read unlocked too */
		u32	state : 3;
		u32	no_crcs : 1;	/* page: its CRCs are not known */
		u32	copy : 1;	/* moved here: another record of the page may be on media */
		u32	indexed : 1;
	};
};

#define KVC_DEPTH_MAX		(BIT(12) - 1)	/* so deep or deeper */

/* 0: unknown */
static inline u32 kvc_known_depth(const struct kvc_entry *e)
{
	return e->depth == KVC_DEPTH_MAX ? 0 : e->depth;
}

#define KVC_EBLOCK_ENTRIES	63U
#define KVC_EBLOCK_SHIFT	6		/* entry id = block id << 6 | slot */
#define KVC_EBLOCK_STRIDE	64U
#define KVC_EBLOCK_MAX		(32U << 20)

struct kvc_eblock {
	struct kvc_entry e[KVC_EBLOCK_ENTRIES];
	u32	gseg;
	u32	id;
	u32	next;		/* of the segment, block id */
	u32	pad;
	u8	(*nonces)[KVC_NONCE_LEN]; /* of each entry; NULL: none is of an encrypted page */
	u8	reserved[48 - sizeof(void *)];
};

os_static_assert(sizeof(struct kvc_entry) == 64, "memory of a page");
os_static_assert(KVC_PAGE_MAX < BIT(28), "length of a page");
os_static_assert(KVC_SEGMENT_MAX / KVC_BLOCK <= BIT(18), "block of a segment");
os_static_assert(KVC_DOMAINS_MAX <= BIT(20), "id of a domain");
os_static_assert(KVC_TENANTS_MAX * KVC_KEYSPACES_SURE <= KVC_DOMAINS_MAX / 2, "domains that tenants share");
os_static_assert(sizeof(struct kvc_eblock) == 4096, "entry blocks are one page");
os_static_assert(KVC_SEGMENT_MAX / KVC_BLOCK <= 256U << 10, "crc_base holds every CRC of a segment");

#define KVC_CBLOCK_CRCS		1024U		/* CRCs of one block of them */

enum kvc_seg_state {
	KVC_S_BLANK,		/* no valid header of ours, or an old one that must be replaced */
	KVC_S_HEADED,		/* new header durable, old pages not discarded; may be opened when none is FREE */
	KVC_S_FREE,		/* new header durable, nothing else */
	KVC_S_OPEN,		/* a head */
	KVC_S_SEALING,		/* no longer a head; stores pending or records not yet logged */
	KVC_S_SEALED,		/* complete on media */
	KVC_S_VICTIM,		/* chosen by reclaim; its pages are read and leased as before */
	KVC_S_YIELDING,		/* a victim whose leases have yielded; read as before, and leased to nobody */
	KVC_S_DRAINING,		/* its pages are leaving the index */
	KVC_S_UNUSABLE,		/* I/O error: not touched until the next attach, or until the member returns */
	KVC_NR_S,
};

struct kvc_cursor {
	u32	index;		/* of the entry in the segment */
	u32	blockno, block;	/* an entry block at or before it: number in the segment, id */
};

#define KVC_SLOT_WORDS		((KVC_TENANTS_MAX + 63) / 64)

struct kvc_seg {
	u8	member;			/* immutable */
	/* member lock; both may be read without it */
	u8	head;			/* which one it was opened as; recovered, or own.c says so, as if */
	u8	state;
	bool	writing;		/* an extent is on its way */
	bool	used;			/* pages were written since it was discarded as a whole */
	bool	broken;			/* recovery met a read error */
	bool	old;			/* recovery found its log: what lies behind that is not known */
	bool	hiding;			/* recovery did not find its log's end: there may be more pages */
	bool	dropped;		/* recovery had no memory for its pages */
	bool	rooted;			/* recovery had no room for the domain of a tombstone in its log */
	bool	torn;			/* an extent of its log was not written, or it was: nobody knows */
	bool	endless;		/* nor where its log ends: nothing is added to it */
	bool	closed;			/* an extent that is written, or on its way, says that no page follows */
	u32	prev, next;		/* list of the segments in this state, by gseg */
	u64	generation, salt;
	u64	believed;		/* generation that recovery could find on media; see tomb.c */
	u64	open_seq;
	u64	min_seq;		/* no page record in its log is older */
	u64	tenants[KVC_SLOT_WORDS]; /* a bit each: who may have pages here, as far as somebody looked; see own.c */
	u32	crowded;		/* pool->rooms when its tombstones found no room, or not less than they have */
	bool	reserved;		/* crowded, as all its pages are kept by reserves and have nowhere to go */
	u64	dirty_since;		/* member->commits at the oldest unlogged record */
	u64	writing_since;		/* the same of the extent on its way */
	u32	log_end;		/* block behind the summary log */
	u32	data_start;		/* lowest block of the pages */
	u32	discarded;		/* HEADED: blocks in front of this one need no discard any more */
	u32	unlogged;		/* bytes of committed records not yet in an extent */
	u32	pending;		/* stores and moves begun, not ended */
	u32	pending_blocks;		/* log blocks reserved for them */
	u32	nr_entries, nr_eblocks;
	u32	nr_nonces;		/* entry blocks that have room for nonces */
	u32	first_eblock, last_eblock;
	struct kvc_cursor log_cursor;	/* every entry before it is logged or dead */
	u32	nr_crcs, crc_room;
	u32	nr_strays;		/* records in its log that have no entry */
	u32	**crcs;			/* blocks of KVC_CBLOCK_CRCS */
	struct kvc_keep *keeps;		/* leases->lock; see lease.c */
	/* no lock */
	struct os_atomic holds;
	struct os_atomic leases;	/* keeps, of so many tenants */
	struct os_atomic undead;	/* media may hold records of pages that left the index without a tombstone */
	struct os_atomic64 live_bytes;
};

struct kvc_seg_list {
	u32	first, last, count;
};

/* A head is a stream of its own, KVC_STREAM_NEW + head. */
enum kvc_head {
	KVC_HEAD_NEW,
	KVC_HEAD_LONG,		/* new pages that are thought to live long; not on members of few segments */
	KVC_HEAD_MOVE,
	KVC_NR_HEADS,
	KVC_HEAD_OWN = KVC_NR_HEADS,	/* and the slot of a tenant, see quota.c */
	KVC_ALL_HEADS = KVC_HEAD_OWN + KVC_TENANTS_MAX,
};

os_static_assert(KVC_ALL_HEADS <= 255, "head of a segment");

enum kvc_reclaim_phase {
	KVC_R_IDLE,
	KVC_R_CARRY,		/* copy tombstones that are still needed */
	KVC_R_MOVE,		/* copy pages worth keeping */
	KVC_R_LOG,		/* make the copies durable */
	KVC_R_EVICT,		/* take the others out of the index */
	KVC_R_WAIT,		/* for the last hold */
};

/* Only touched by the one thread that executes the member's work */
struct kvc_reclaim {
	enum kvc_reclaim_phase phase;
	struct kvc_seg *victim;
	struct kvc_cursor cursor;
	u32	budget;		/* blocks that may still be moved */
	u32	moving;		/* MOVEs from here that were handed out and are not done */
	u64	stale_seq;	/* records of pages without a tombstone, outside of the victim, are not older */
	u64	mark;		/* commits that must be logged before the victim goes */
	bool	carried;	/* tombstones of the victim, or of the last one */
	u64	price;		/* what a block's pages were worth that went lately */
	bool	spills;		/* a reserve loses the victim, see kvc_spill() */
	u32	whose;		/* 1 + slot of the tenant that has to evict its own, 0: who goes is open */
	u32	trimmed;	/* own.c: the segment to go on with */
	/* leave.c */
	u32	rounds;		/* that the victim was gone over again after moves had failed */
	bool	failed;		/* a move did, in this round */
	bool	stayed;		/* a page did, for a lease, or the place that it was moved to went */
};

/* A tenant's slot, as its leases on a member are concerned */
struct kvc_lessee {
	u32	keeps, whose;		/* segments, of the tenant of this epoch, the last to keep any; leases->lock */
	u32	share, epoch;		/* as they were when somebody looked; member lock */
};

/* What of a tenant's slot is on a member, also of who had it before until the pages have left */
struct kvc_stock {
	struct os_atomic64 pages, bytes; /* in the index */
	struct os_atomic segs;		/* of its own, with heads; changed with the member locked */
};

/* Of a member; see lease.c */
struct kvc_leases {
	struct os_lock lock;
	struct kvc_lessee *tenants;	/* by slot; NULL: a hole */
	u64	turn;			/* keeps that there ever were */
	u32	keeps;			/* of all tenants; read without the lock too */
	u32	nr_tenants;		/* of the pool, as when somebody looked; member lock */
};

struct kvc_member {
	struct os_lock lock;
	struct kvc_pool *pool;
	u32	index, nr_segs;
	struct kvc_seg *segs;
	u32	low;			/* reclaim keeps this many segments available */
	bool	offline;		/* written under the lock */
	bool	wanted;			/* somebody, or reclaim, finds no room; written under the lock */
	bool	refused;		/* somebody: leases may yield for it */
	bool	hopeless;		/* those who wait were told that waiting does not help */
	bool	no_memory;		/* so were those who wait for memory */
	bool	lost;			/* it is one of p->nr_offline; written under the lock */
	bool	torn;			/* it has returned with tombstones that are to be carried from a torn segment */
	bool	heir;			/* of those that were there at the attach, see kvc_member_return(); the same */
	u64	going;			/* bytes of memory that the victim will give back; in p->memory.going too */
	u32	headers_failed;		/* writes of headers since the last that went well */
	bool	joining;		/* it was added, or returns, and is not used yet; written under the lock */
	bool	unknown;		/* it was missing at recovery; written under the lock */
	bool	leaving;		/* nothing is placed on it any more; written under the lock */
	bool	taker;			/* it is one of p->takers */
	bool	moving;			/* leaving: its pages go to others, as far as there is room */
	bool	leaseless;		/* leaving: no page is leased any more; written under the lock */
	bool	left;			/* leaving: it has no pages any more */
	u32	lost_before;		/* leaving: what p->nr_lost was then, and is with itself counted */
	struct kvc_seg_list list[KVC_NR_S];
	struct kvc_seg *head[KVC_ALL_HEADS];
	u32	nr_heads;		/* of these may be open */
	bool	spills;			/* what a reserve keeps here may go, as it is too much for one member */
	u32	nr_asked;
	bool	asked[KVC_TENANTS_MAX];	/* to evict its own here; may be read without the lock */
	u32	plan;			/* of who executes the work: what it has seen of p->quota.plan */
	struct kvc_seg *discarding;	/* HEADED, part of it is out to be discarded */
	u64	commits;		/* records that became loggable so far */
	u64	carried;		/* the same when it had carried those; each flush is of them, too */
	struct kvc_reclaim reclaim;
	u8	*extent;		/* buffer of the one extent on its way, and a block behind it */
	struct kvc_seg *newest;		/* where the last new page got its place */
	struct kvc_leases leases;
	struct kvc_stock stock[KVC_TENANTS_MAX]; /* by slot */
	struct kvc_survey *survey;	/* of who executes the work, as are floors and costs, one for each segment */
	u64	*costs;			/* what it cost to lose it when it was surveyed last; 0: it was not */
	u64	*floors;		/* the least of each group of costs */
	u32	credit;			/* blocks that reclaim may write, in parts of 1/KVC_CREDIT */
	u64	stores, store_bytes, strays, moved_pages, moved_bytes;
	u64	sealed, reclaimed, summary_writes;
	u64	recovered_seq, recovered_gen, recover_skipped;
};

struct kvc_shard {
	struct os_lock lock;
	struct kvc_buckets table;
	u32	inserts;		/* wraps; see check_index() */
	u64	pages, bytes;
	u64	loads, load_bytes, misses, dedups, deletes, bad_pages, evicted, unadmitted;
} __aligned(64);

struct kvc_domain {
	u32	id, slot, epoch;
	bool	dead;			/* its tenant was removed */
	bool	gone;			/* and every superblock says so; set under domains.lock */
	bool	encrypted;		/* its pages are */
	u8	keyspace[KVC_KEYSPACE_LEN];
	struct os_atomic refs;
	struct list_head node;		/* domains.lock: of its slot's, or of the dead */
	struct kvc_events *events;	/* lock; NULL, also for who looks without it: nobody listens */
	struct os_lock lock;
};

#define KVC_DOMAIN_SHARDS	16U

/* Ids by hash of slot and keyspace */
struct kvc_domain_shard {
	struct os_lock lock;
	struct kvc_buckets table;
} __aligned(64);

/* Of the pool, or of a tenant; see budget.c */
struct kvc_bucket {
	u64	per_day;		/* bytes; 0: no limit */
	u64	part;			/* bytes of a day's fraction that were not given yet */
	struct os_atomic64 left;	/* bytes, signed */
};

struct kvc_budget {
	struct os_lock lock;
	u64	now;			/* seconds; when buckets were filled last */
	bool	started;		/* the caller has told the time */
	struct kvc_bucket pool;
	u32	nr_sets;		/* set before seen is */
	u32	*seen;			/* NULL until there was a limit */
};

struct kvc_slot_domains {
	u32	nr;
	bool	refused;		/* one was, for want of room */
	struct list_head domains;
};

struct kvc_domains {
	struct os_lock lock;		/* all of it but shards, table */
	u32	max, sure;		/* of all; of each slot whatever others have */
	u32	nr, shared;		/* there are; those that are more than sure of their slot's, and the dead */
	bool	recovered;
	struct kvc_slot_domains slot[KVC_TENANTS_MAX];
	struct list_head dead;
	struct kvc_domain_shard shard[KVC_DOMAIN_SHARDS];
	struct kvc_table table;
	struct kvc_events *events;	/* of those that somebody listens to */
	struct os_lock watch_lock;
	struct kvc_watcher *watcher;	/* watch_lock, and set under lock; or NULL */
};

/*
 * Memory that grows with what is in the index: entries, CRCs, buckets, domains. Past the limit stores wait for reclaim,
 * what it needs itself it gets, as do tombstones.
 */
struct kvc_memory {
	struct os_atomic64 bytes;
	struct os_atomic64 going;	/* of victims: they will be given back */
	u64	limit;			/* 0: none */
	bool	wanted;			/* some store was refused for want of it */
	/* recovery */
	u64	floor;			/* of segments whose open_seq is below it the pages are not taken */
	struct os_atomic raising;	/* somebody is at it */
	struct os_atomic64 dropped;	/* pages */
};

/* What sessions of a tenant's slot have beside pages, and what they must not */
struct kvc_account {
	u64	pinned;			/* bytes; domains.lock */
	bool	no_urgent;		/* written under domains.lock, as the next */
	u32	weight;			/* never 0 */
	bool	paced;			/* pace is not all zeros */
	struct kvc_pace pace;
	struct os_atomic64 evicted;	/* pages */
	struct kvc_bucket budget;	/* of what it stores */
};

/* What follows from a tenant's limits; see quota.c. domains.lock; all but leaving is read without it */
struct kvc_share {
	u64	quota, reserve;		/* bytes; no quota: U64_MAX */
	u64	quota_segs, reserve_segs; /* that it may have for these */
	u64	homes;			/* members that its pages go to, and to segments of its own; 0: it shares */
	u64	leaving;		/* bytes that are being evicted */
	struct os_atomic64 pending;	/* bytes of its stores that have begun, in segments of its own */
};

struct kvc_quota {
	bool	on;			/* some tenant has, or had, a quota or a reserve */
	bool	late;			/* some tenant is over its quota, and nothing could be evicted when asked */
	u32	plan;			/* counts changes of what follows from limits */
	struct kvc_share share[KVC_TENANTS_MAX]; /* by slot */
};

#define KVC_HASH_WORDS		(KVC_KEY_LEN / 4 + 2)

struct kvc_pool {
	struct kvc_super super;		/* tenants: domains.lock */
	const struct kvc_ops *ops;
	void	*owner;
	u32	seg_blocks, chunk_size;
	u32	page_max;		/* bytes */
	u32	extent_max;		/* bytes of the longest extent written here */
	u32	extent_fill;		/* an extent that is not the last of a row has more than this of records */
	u32	hash_secret[KVC_HASH_WORDS];
	u64	salt_seed;
	u64	recovered_pages;
	bool	resting;		/* nothing is stored any more: flushes close logs; set once */
	bool	nonces;			/* entry blocks have room for them; set once, before a page is encrypted */
	bool	heard;			/* somebody listens or watches; domains.lock, but looked at without it */
	struct kvc_member *members;	/* KVC_MEMBERS_MAX */
	struct os_atomic nr_members;	/* of these are there, or were, or are holes; see member.c */
	struct kvc_table eblocks;
	struct kvc_domains domains;
	struct kvc_budget budget;
	struct kvc_requests requests;
	struct kvc_memory memory;
	struct os_atomic64 seq, generation, open_seq, salts;
	struct os_atomic turn;		/* of the next store, among the members that take any */
	struct os_atomic64 takers;	/* these, a bit each */
	struct os_atomic nr_undead;	/* segments with undead set */
	struct os_atomic nr_offline;
	struct os_atomic nr_lost;	/* members, ever */
	struct os_atomic nr_unknown;	/* members that were offline in recovery */
	struct os_atomic nr_leaving;
	struct os_atomic rooms;		/* times that tombstones may have got room, or ceased to be needed; from 1 */
	struct os_atomic nr_tombs_chained;
	struct kvc_account accounts[KVC_TENANTS_MAX];	/* by slot */
	struct kvc_quota quota;
	struct kvc_shard shards[KVC_SHARDS];
};

/* Entries of one segment: a page for each block, or more tombstones. Bounds what hostile media makes us allocate. */
static inline u32 kvc_seg_entries_max(const struct kvc_pool *p)
{
	return p->seg_blocks * 4;
}

/* What a work item is, behind its type */
enum kvc_work_kind {
	KVC_W_HEADER,
	KVC_W_EXTENT,
	KVC_W_MOVE,
	KVC_W_DISCARD,
};

/* A gseg is the member's number above the segment's on the member: both stay while members come and go. */
#define KVC_GSEG_SHIFT		24

os_static_assert(KVC_SEGMENTS_END <= BIT(KVC_GSEG_SHIFT), "segments of a member");
os_static_assert(((u64)KVC_MEMBERS_MAX << KVC_GSEG_SHIFT) < KVC_NONE, "segments of a pool");

static inline u32 kvc_gseg_of(u32 member, u32 segment)
{
	return member << KVC_GSEG_SHIFT | segment;
}

static inline u32 kvc_gseg_local(u32 gseg)
{
	return gseg & (BIT(KVC_GSEG_SHIFT) - 1);
}

static inline struct kvc_member *kvc_member_of(const struct kvc_pool *p, u32 gseg)
{
	return &p->members[gseg >> KVC_GSEG_SHIFT];
}

static inline struct kvc_seg *kvc_seg(const struct kvc_pool *p, u32 gseg)
{
	return &kvc_member_of(p, gseg)->segs[kvc_gseg_local(gseg)];
}

static inline u32 kvc_gseg(const struct kvc_pool *p, const struct kvc_seg *seg)
{
	return kvc_gseg_of(seg->member, (u32)(seg - p->members[seg->member].segs));
}

static inline u64 kvc_seg_offset(const struct kvc_member *m, u32 gseg)
{
	return KVC_DATA_OFFSET + kvc_gseg_local(gseg) * m->pool->super.segment_size;
}

/* 1 + slot of the tenant that all of its pages are of; 0: it is shared */
static inline u32 kvc_seg_owner(const struct kvc_seg *seg)
{
	u8 head = READ_ONCE(seg->head);

	return head < KVC_HEAD_OWN ? 0 : 1 + head - KVC_HEAD_OWN;
}

/* Limits that a pool without them does not pay for: the rest of these is in quota.c and budget.c */

/* Of @members those that the tenant's pages go to first; all of them if there is no difference */
static inline u64 kvc_quota_homes(const struct kvc_pool *p, u32 slot, u64 members)
{
	return unlikely(READ_ONCE(p->quota.on)) ? kvc_quota_some_homes(p, slot, members) : members;
}

/* A store of @length has begun in @seg, or, @ends, ended. */
static inline void kvc_quota_pend(struct kvc_pool *p, const struct kvc_seg *seg, u32 length, bool ends)
{
	if (unlikely(READ_ONCE(p->quota.on)) && kvc_seg_owner(seg))
		kvc_quota_pend_own(p, seg, length, ends);
}

static inline bool kvc_budgeted(const struct kvc_pool *p, u32 slot)
{
	return READ_ONCE(p->budget.pool.per_day) || READ_ONCE(p->accounts[slot].budget.per_day);
}

static inline u32 kvc_chunks(const struct kvc_pool *p, u32 length)
{
	return (length - 1) / p->chunk_size + 1;
}

static inline u32 kvc_page_rec_bytes(const struct kvc_pool *p, u32 length)
{
	return kvc_rec_bytes(kvc_chunks(p, length));
}

/*
 * Blocks of the log that a record not committed yet reserves: one more than an extent of its own, since a commit may
 * bring the number of extents up by one.
 */
static inline u32 kvc_pending_blocks(u32 rec_bytes)
{
	return kvc_blocks(KVC_EXTENT_HEADER + rec_bytes) + 1;
}

static inline bool kvc_memory_full(const struct kvc_pool *p)
{
	u64 limit = READ_ONCE(p->memory.limit);

	return unlikely(limit) && os_atomic64_read(&p->memory.bytes) > limit;
}

/* Is it time to evict for memory, beside what is being evicted? */
static inline bool kvc_memory_pressed(const struct kvc_pool *p)
{
	u64 limit = READ_ONCE(p->memory.limit), bytes, going;

	if (!limit)
		return false;
	bytes = os_atomic64_read(&p->memory.bytes);
	going = os_atomic64_read(&p->memory.going);
	return bytes > going && bytes - going > limit - limit / 32;
}

/* base.c */
u64 kvc_mix64(u64 x);
void kvc_kick(struct kvc_member *m);
u32 kvc_turn(struct kvc_pool *p, u64 members);
void kvc_space(struct kvc_pool *p);
void kvc_space_made(struct kvc_member *m);	/* a segment became ready; member locked */
void kvc_work_init(struct kvc_member *m, struct kvc_seg *seg, struct kvc_work *w, enum kvc_work_type type,
		   enum kvc_work_kind kind, u32 block);

/* tenant.c. With the lock of domains */
void kvc_super_raise(struct kvc_pool *p);
int kvc_tenants_init(struct kvc_pool *p);

#endif
