/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * The kvctx engine: where pages go, where they are, when they die. No I/O, no sleeping on I/O, no kernel header.
 *
 * The caller asks, does the I/O itself, and reports back. Work that nobody asked for (headers of empty segments,
 * summaries, rewriting, discards) is handed out as struct kvc_work by kvc_work_next() and reported by
 * kvc_work_done(). Everything that happens is therefore a sequence of calls, and can be replayed from a seed.
 *
 * Vocabulary
 *   member    a device of the pool, divided into equal segments
 *   segment   unit of reclaim; BLANK -> (header written) -> FREE -> OPEN -> SEALING -> SEALED -> DRAINING -> BLANK
 *   gseg      a segment: its member's number and its own on that member in one
 *   entry     a page's line in the index; lives in its segment's entry blocks, in the order of allocation
 *   domain    interned (tenant slot, epoch, keyspace): what a key is looked up in
 *   head      an open segment that takes pages: of each member, one for new pages, one for moved pages and, where there
 *             are not too few segments, one for new pages that are thought to live long; and one for each tenant that
 *             has a quota or a reserve
 *   hold      a load, lease or move that keeps a segment's bytes where they are
 *   undead    a segment whose pages left the index but whose header on media is still believed by recovery
 *
 * Promises the engine keeps, whatever the order of calls and wherever power is cut
 *   - a page is visible only after kvc_store_commit(), and durable once a summary written after that is durable
 *   - a segment's bytes are not handed out again while a hold exists, nor before its new header is durable
 *   - pages moved by reclaim are durable in their new place before the old segment's header is replaced
 *   - a tombstone is kept while any segment may still hold a record of the page it killed
 *   - memory per page: 64 bytes, 4 per chunk, up to 10 for the hash table, and 16 for a nonce once a tenant has a key;
 *     entry memory is freed with the segment
 * Not promised: that an evicted page stays away. A later attach may find it again while its segment's old header is in
 * place, even with a newer page of the key stored and evicted since; but never with a durable delete in between.
 *
 * Context: every function may be called from any thread in process context, concurrently unless it says otherwise.
 * None waits for I/O. Those marked "allocates" may sleep for memory. The engine's locks are plain spinlocks, never
 * taken in interrupt context; the order is member lock -> index shard lock -> domain lock, and os_alloc() is called
 * under none of them.
 */
#ifndef KVC_CORE_H
#define KVC_CORE_H

#include "media/format.h"

#define KVC_NONE	(~0U)

struct kvc_pool;
struct kvc_domain;

/* What the owner of a pool provides. Both may be called under the engine's locks and must not call back. */
struct kvc_ops {
	/* kvc_work_next(pool, member) has something to do */
	void (*kick)(void *owner, u32 member);
	/* space was made, or will never be: who got -EAGAIN should try again */
	void (*space)(void *owner);
};

struct kvc_stats {
	u64	pages, bytes;			/* now, in the index */
	u64	stores, store_bytes, dedups;
	u64	loads, load_bytes, misses;
	u64	deletes, bad_pages;
	u64	evicted_pages, moved_pages, moved_bytes;
	u64	segments_sealed, segments_reclaimed, summary_writes;
	u64	recovered_pages, recover_skipped;
	u64	recover_dropped;		/* pages that the index had no memory for at attach */
	u64	index_bytes, index_limit;	/* of memory, now */
	u64	unadmitted;			/* stores that the write budget turned away */
};

/*
 * Pool. @super is copied. @salt_seed: random; generation salts are drawn from it. Allocates.
 * kvc_pool_create: 0, -EINVAL (superblock fails kvc_super_check()), -ENOMEM.
 * kvc_pool_destroy: nothing may be in flight and no hold may exist; releases everything.
 */
int kvc_pool_create(const struct kvc_super *super, u64 salt_seed, const struct kvc_ops *ops, void *owner,
		    struct kvc_pool **out);
void kvc_pool_destroy(struct kvc_pool *p);

u32 kvc_page_max(const struct kvc_pool *p);		/* longest page that a segment takes, bytes */
u32 kvc_nr_members(const struct kvc_pool *p);
u32 kvc_chunk_size(const struct kvc_pool *p);
u64 kvc_capacity(const struct kvc_pool *p);		/* bytes of all segments */
/*
 * Memory of the index: what grows with the number of pages, and its limit; 0: none. Near the limit pages are evicted as
 * they are for want of space. An attach that comes to it goes without the pages of the oldest segments, as if they had
 * been evicted: set it before recovery.
 */
void kvc_index_limit(struct kvc_pool *p, u64 bytes);
u64 kvc_index_bytes(const struct kvc_pool *p);
void kvc_stats_get(struct kvc_pool *p, struct kvc_stats *st);
void kvc_tenant_usage(const struct kvc_pool *p, u32 slot, u64 *pages, u64 *bytes);	/* now, in the index */
u64 kvc_tenant_evicted(const struct kvc_pool *p, u32 slot);	/* its pages, since attach */
void kvc_member_segments(struct kvc_pool *p, u32 member, u32 *total, u32 *free);

/*
 * Recovery, after create and before anything else. For each of kvc_nr_segments() of each member: start, read
 * [offset, offset + len) of the member into a buffer, feed; while feed returns 1 read again what @r now names. Reads
 * never exceed KVC_RECOVER_IO bytes. A caller who sets keep, to a buffer of KVC_RECOVER_IO bytes, reads to keep + at
 * and leaves alone what else is in it: nothing is read twice then but what looks damaged, and of each segment no more
 * than the summaries and one step of KVC_RECOVER_STEP. Different segments may be recovered in parallel, each with its
 * own @r. A read error is reported through @err and makes the segment unusable until the next attach. finish: once,
 * after all.
 * feed: 0 done, 1 read again, -ENOMEM. Allocates.
 *
 * A member that is not there is given to kvc_member_fail() before, and not recovered. What it holds is not known: a key
 * that is not found may be there.
 *
 * finish raises the superblock's seq: the caller has to write it before the pool is used, and the one before it to
 * members that have another one before that (format.h, kvc_super_behind()). It counts the attaches, and
 * so makes the sequences of this one newer than those of all before, also where the newest are on members that are
 * missing now.
 */
#define KVC_RECOVER_IO	KVC_EXTENT_MAX
#define KVC_RECOVER_STEP (64U << 10)
struct kvc_recover {
	u32	member;
	u64	offset;			/* bytes from the start of the device */
	u32	len;
	void	*keep;			/* set by the caller after start; NULL: feed gets the last read alone */
	u32	at;			/* where in keep it goes */
	/* private */
	u32	gseg, first_block, next_block, next_record, nr_records, nr_crcs;
	bool	cut;			/* nothing may be added to its log */
	bool	closed;			/* the log says that no page follows */
	bool	unused;			/* there was nothing where the header would be */
	bool	again;			/* the extent at next_block is being read once more */
	struct kvc_domain *domain;	/* of the last record; most of a segment share one */
	struct kvc_seg_id id;
};

u32 kvc_nr_segments(const struct kvc_pool *p, u32 member);
void kvc_recover_start(struct kvc_pool *p, u32 member, u32 segment, struct kvc_recover *r);
int kvc_recover_feed(struct kvc_pool *p, struct kvc_recover *r, const void *buf, int err);
void kvc_recover_finish(struct kvc_pool *p);

/*
 * Superblock and tenants. The pool keeps the configuration; changes are prepared in a copy by the caller's sequence:
 * kvc_tenant_add/set/limit/remove change the pool's copy and raise seq; the caller then encodes kvc_super_of() for each
 * member and writes it to the slots of seq (format.h), before the next change: the slots on media alternate. The caller
 * serializes these functions. Whatever raises seq notes which members are there; kvc_super_touch() does nothing else:
 * to write the same again, or when a member was lost.
 * A removed tenant's pages are not found from then on, but what it deleted is still protected: the tenant may be back
 * after a power cut. When the superblock that is without it was written to all members that are there,
 * kvc_tenants_gone() lets go of what it had; it looks at every page of the pool, and needs no other lock.
 * add: slot number, -EEXIST, -ENOSPC, -EINVAL (name, mode, flags, name of the key); with a key, which allocates,
 * -ENOMEM. set, limit, remove: 0, -ENOENT, -EINVAL; limit, which allocates, -ENOMEM too.
 * Flags are KVC_TENANT_VERIFIED or none. With a key all pages of the tenant are encrypted with it, for as long as the
 * tenant is there. limit: also -ENOSPC, and nothing changes, when not all reserves can be kept,
 * which are a quarter more in segments, beside the segments that are kept free and open; or when there are too few
 * segments for one more tenant with a quota or a reserve: see quota.c. A tenant that is over its new quota has pages
 * evicted by and by.
 */
const struct kvc_super *kvc_super_of(const struct kvc_pool *p);
void kvc_super_touch(struct kvc_pool *p);
int kvc_tenant_add(struct kvc_pool *p, const char *name, u32 uid, u32 gid, u32 mode, u32 flags);
int kvc_tenant_add_keyed(struct kvc_pool *p, const char *name, u32 uid, u32 gid, u32 mode, u32 flags,
			 const struct kvc_super_key *key);
int kvc_tenant_set(struct kvc_pool *p, const char *name, u32 flags);
int kvc_tenant_limit(struct kvc_pool *p, const char *name, const struct kvc_limits *limits);
int kvc_tenant_remove(struct kvc_pool *p, const char *name);
/* Its name with the NUL, when the slot is still of that epoch. No sequence of the caller's is needed */
bool kvc_tenant_name(struct kvc_pool *p, u32 slot, u32 epoch, char name[KVC_NAME_MAX]);
/*
 * Limits that the caller enforces. no_urgent: where it says, as long as the pool is there, that the tenant's operations
 * may not be urgent; paced: likewise, that it has a pace; pace: which. weight: of its turns. pin: a session of it is
 * about to pin memory, 0, or -EDQUOT, when all of them together would have more than the tenant may, and nothing was
 * counted; unpin: it has let go of what was counted.
 */
struct kvc_pace {
	u64	bandwidth;		/* bytes a second; 0: no limit */
	u32	inflight;		/* operations; 0: no limit */
	u32	generation;		/* another one after each change, also of the tenant */
};

const bool *kvc_tenant_no_urgent(const struct kvc_pool *p, u32 slot);
u32 kvc_tenant_weight(const struct kvc_pool *p, u32 slot);
const bool *kvc_tenant_paced(const struct kvc_pool *p, u32 slot);
struct kvc_pace kvc_tenant_pace(const struct kvc_pool *p, u32 slot);
int kvc_tenant_pin(struct kvc_pool *p, u32 slot, u64 bytes);
void kvc_tenant_unpin(struct kvc_pool *p, u32 slot, u64 bytes);
u64 kvc_tenant_pinned(struct kvc_pool *p, u32 slot);
void kvc_tenants_gone(struct kvc_pool *p);
/* 0, -EINVAL (out of range), -ENOMEM. Allocates. */
int kvc_pool_set(struct kvc_pool *p, const struct kvc_settings *settings);

/*
 * Write budget, see budget.c. The caller tells the seconds, from any origin, before a store (cheap when nothing is to
 * be done), and every byte that it writes for the pool. What stores of a tenant with a budget of its own write is
 * counted here. left: bytes of the pool's, or of a tenant's own; 0 also without a budget.
 */
void kvc_budget_tick(struct kvc_pool *p, u64 now);
void kvc_budget_spend(struct kvc_pool *p, u64 bytes);
u64 kvc_budget_left(const struct kvc_pool *p);
u64 kvc_tenant_budget_left(const struct kvc_pool *p, u32 slot);

/*
 * Domains. open: finds or makes the domain of a tenant's keyspace and takes a reference: 0, -ENODEV (there is no such
 * tenant), -EDQUOT (no keyspace is left for it), -ENOMEM, with NULL. Allocates. Entries hold references of their own; a
 * keyspace counts while anybody holds one. A domain whose tenant was removed is dead: its pages are not found any more.
 */
int kvc_domain_open(struct kvc_pool *p, u32 tenant_slot, const u8 keyspace[KVC_KEYSPACE_LEN], struct kvc_domain **out);
/* The same for who does not ask why there is none: NULL */
static inline struct kvc_domain *kvc_domain_get(struct kvc_pool *p, u32 tenant_slot,
						const u8 keyspace[KVC_KEYSPACE_LEN])
{
	struct kvc_domain *d;

	return kvc_domain_open(p, tenant_slot, keyspace, &d) ? NULL : d;
}

void kvc_domain_put(struct kvc_pool *p, struct kvc_domain *d);
u32 kvc_tenant_keyspaces(struct kvc_pool *p, u32 slot);	/* that it has now */

/*
 * Store. begin reserves the place and makes the key pending: the caller writes the page to [offset, offset + blocks),
 * sets the CRC of each chunk, then commits (publishes; cannot fail) or aborts. Who does not know the CRCs sets no_crcs
 * before the commit: the page is marked, and nobody checks it. The page goes to one of @members, a mask by number.
 * What the caller writes for a tenant with a key is encrypted, which is the caller's to do, with a nonce that it sets
 * too; CRCs are of what is written, to the end of its last block: of bytes behind the page depends how the last ones of
 * it are decrypted.
 * begin: 0, -EEXIST (present: DEDUP), -EINPROGRESS (pending by another: DEDUP), -EAGAIN (no space yet: reclaim was
 * asked for, wait for ops->space), -ENOSPC (nothing evictable; at the tenant's quota: nothing of its own), -EDQUOT (the
 * write budget is spent and the key was not seen before; now it was), -ENODEV (none of the members online, or
 * the tenant was removed), -EINVAL (length 0 or over kvc_page_max()), -ENOMEM. Allocates.
 *
 * kvc_replace_begin() is for a page that takes its key whatever is there: until the commit that page is found as
 * before. Never -EEXIST, -EINPROGRESS. What was replaced, and what is older, is not found by an attach once the commit
 * is durable; before that, an attach finds the one or the other, or neither where reclaim had a use for the old one's
 * segment. A store of the key that began before the commit and ends after it publishes nothing.
 */
#define KVC_ANY_MEMBER	(~0ULL)

/*
 * What is written falls into streams that live differently long, for devices that keep such apart: the engine's own
 * structures, new pages, and from 2 on pages that came back or that reclaim has moved, the higher the longer they are
 * likely to stay.
 */
#define KVC_STREAM_META	0U
#define KVC_STREAM_NEW	1U

struct kvc_store {
	u32	member;
	u32	stream;
	u64	offset;			/* bytes from the start of the device, KVC_BLOCK aligned */
	u32	length;			/* page bytes; the write is padded to whole blocks by the caller */
	u32	summed;			/* of these CRCs are: the page; where it is encrypted, its blocks */
	u32	nr_chunks;
	bool	no_crcs;		/* begin clears it */
	bool	lost;			/* commit sets it: its member was when that came, and nothing was published */
	/* private */
	bool	replace;
	u32	gseg, entry, crc_base, bucket;
	u32	tomb;			/* entry kept for what is replaced; KVC_NONE: a plain store */
};

int kvc_replace_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], u32 length, u32 depth,
		      u64 members, struct kvc_store *st);
int kvc_store_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], u32 length, u32 depth,
		    u64 members, struct kvc_store *st);
void kvc_store_crc(struct kvc_pool *p, const struct kvc_store *st, u32 chunk, u32 crc);
void kvc_store_nonce(struct kvc_pool *p, const struct kvc_store *st, const u8 nonce[KVC_NONCE_LEN]);
void kvc_store_commit(struct kvc_pool *p, struct kvc_store *st);
void kvc_store_abort(struct kvc_pool *p, struct kvc_store *st);

/*
 * Load. begin finds the page and holds its segment; the caller reads what it wants of [offset, offset + length),
 * checks it against kvc_load_crc(), unless no_crcs says that there are none, and ends the load. end with -EBADMSG drops
 * the page (if it is still the same), any other status only lets go.
 * begin: 0, -ENOENT, -ENODEV (its member is offline; or it is not found, and a member is missing since attach).
 */
struct kvc_load {
	u32	member;
	u64	offset;			/* bytes from the start of the device, KVC_BLOCK aligned */
	u64	seq;			/* with the key: of these bytes and no others, wherever they are moved to */
	u32	length;			/* bytes of the whole page */
	u32	summed;			/* of these CRCs are, as in struct kvc_store */
	u32	nr_chunks;
	bool	no_crcs;		/* it was stored without: it cannot be checked */
	/* private */
	u32	gseg, entry, crc_base;
};

int kvc_load_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], struct kvc_load *ld);
int kvc_load_look(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], struct kvc_load *ld);
u32 kvc_load_crc(struct kvc_pool *p, const struct kvc_load *ld, u32 chunk);
const u8 *kvc_load_nonce(struct kvc_pool *p, const struct kvc_load *ld);	/* of a tenant with a key */
void kvc_load_end(struct kvc_pool *p, struct kvc_load *ld, int status);

/* Length of a present page, or -ENOENT, -ENODEV. */
int kvc_query(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN]);

/*
 * How many leading pages of keys[0..nr) are present; or, with @present, how many of all, which @present (kvc_bits(nr)
 * words of zeros) gets a bit each for. Policies take each call for a request for a prompt, of which these are all keys
 * in prefix order. @lens (or NULL) gets the lengths of those that are present, each at its key's place. @leases (or
 * NULL) gets one lease for each page found, one behind the other, to be ended by kvc_lease_put(). Lets others run now
 * and then: no lock may be held. With leases it allocates; for want of memory a lease may be one that lasts no more.
 *
 * A lease keeps its page from eviction, as a promise with a limit: the leases of a tenant keep as many segments as its
 * limit says; those beyond that yield where others need room (lease.c). One that has yielded lasts no more: it keeps
 * nothing, whatever comes to where its page was, and is ended as any other. Only a load keeps bytes where they are.
 * get: 0, -ENOENT, -ENODEV, -ENOMEM. Allocates.
 */
struct kvc_keep;
struct kvc_lease {
	struct kvc_keep *keep;		/* private */
};

static inline u32 kvc_bits(u32 nr)
{
	return (nr + 63) / 64;
}

u32 kvc_match(struct kvc_pool *p, struct kvc_domain *d, const u8 keys[][KVC_KEY_LEN], u32 nr, u64 *present, u32 *lens,
	      struct kvc_lease *leases);
int kvc_lease_get(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], struct kvc_lease *l);
void kvc_lease_put(struct kvc_pool *p, struct kvc_lease *l);
bool kvc_lease_lasts(const struct kvc_lease *l);
u64 kvc_tenant_leased(struct kvc_pool *p, u32 slot);	/* bytes of the segments that its leases keep */

/*
 * Delete. 0: gone from the index, durable at the next flush; -ENOENT; -EAGAIN (no room for the tombstone yet), -ENOSPC,
 * -ENODEV (no member online; or not found, and it may come back with a member that is missing since attach), -ENOMEM. A
 * page still pending is not found. Allocates.
 */
int kvc_delete(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN]);

/*
 * Events: which pages of a domain come and go. listen begins; take gives the oldest to @give, some at a time and with
 * no lock held, until there are none, @max were taken or @give returns false; one thread at a time calls it for a
 * listener. It returns how many were taken, and *@lost gets how many were overwritten before they could be; or -EFAULT
 * when @give took none: nothing is lost by that. The listener is woken by the first event after a take that found none
 * left, under the engine's locks; it must not call back. Who listens holds the domain. listen: 0, -ENOMEM. Allocates.
 */
#define KVC_EVENTS_MAX	(32U << 10)	/* kept for all listeners of a domain */

enum kvc_event_kind {
	KVC_EVENT_STORED = 1,
	KVC_EVENT_EVICTED,
	KVC_EVENT_DELETED,
	KVC_EVENT_DROPPED,		/* it failed verification */
	KVC_EVENT_MEMBER_LOST,		/* of no page: those on a member are not found any more */
};

struct kvc_event {
	u8	key[KVC_KEY_LEN];
	u32	kind;
	u32	length;			/* bytes of the page */
};

struct kvc_listener {
	void	(*wake)(struct kvc_listener *l);	/* or NULL */
	/* private */
	struct kvc_listener *next;
	struct kvc_domain *domain;
	u64	seen, lost;
	bool	idle;
};

int kvc_listen(struct kvc_pool *p, struct kvc_domain *d, struct kvc_listener *l);
void kvc_unlisten(struct kvc_pool *p, struct kvc_listener *l);
int kvc_events_take(struct kvc_listener *l, u32 max, u64 *lost,
		    bool (*give)(void *arg, const struct kvc_event *events, u32 nr), void *arg);

/*
 * The pool's watcher, one at most, is told of the pages of all domains (of a lost member its owner knows). take copies
 * up to @max of the oldest to @out and returns how many, and adds to *@lost those that were overwritten: the newest
 * KVC_WATCHED_MAX are kept. It is woken by the first event after a take that returned 0, as a listener is, and after
 * kvc_watch(). The watcher is the caller's memory until kvc_unwatch() returns; one thread at a time takes.
 */
#define KVC_WATCHED_MAX	1024U

struct kvc_watched {
	u32	slot, epoch;			/* the tenant */
	u8	keyspace[KVC_KEYSPACE_LEN];
	struct kvc_event event;
};

struct kvc_watcher {
	void	(*wake)(struct kvc_watcher *w);
	/* private */
	u64	end, seen;		/* positions, free-running */
	bool	idle;
	struct kvc_watched ring[KVC_WATCHED_MAX];
};

void kvc_watch(struct kvc_pool *p, struct kvc_watcher *w);
void kvc_unwatch(struct kvc_pool *p);
u32 kvc_watched_take(struct kvc_pool *p, struct kvc_watcher *w, struct kvc_watched *out, u32 max, u64 *lost);

/*
 * Work of a member. One thread at a time executes work of one member: next, I/O, done, in this order; a member has at
 * most one work item out, but any number of MOVEs beside it, whose order among each other is the caller's.
 * kvc_flush_next() hands out what a FLUSH needs (summaries of everything committed and deleted on this member before
 * the call) and nothing else; it returns 0 when all of it has been written. While stores go on that may take for ever:
 * kvc_flush_mark() names what was committed and deleted on the member so far, and kvc_flushed() tells whether all of
 * that is durable (or the member is gone), so a FLUSH ends with its own work. next: 1 with an item, 0 nothing to do
 * now, -ENOMEM (try again later; ops->kick is not called for it). Allocates.
 *
 * WRITE    write @buf[0..len) at @offset, with PREFLUSH and FUA
 * MOVE     read [src_offset, + padded length), look at it with kvc_work_check(), write it unchanged to
 *          [offset, + padded length); done(-EBADMSG) drops the page, done(other error) gives up moving it
 * DISCARD  discard [offset, + discard_len); an error is ignored
 *
 * Discards are not among what kvc_work_next() hands out: kvc_discard_next() does, at the caller's pace, at most @max
 * bytes (a multiple of KVC_BLOCK) at a time. Who never calls it has segments reused as they are. There may be
 * something to discard after a header was written or a discard is done.
 *
 * A summary WRITE that failed fails its member; a header WRITE that failed costs its segment only. After some in a row
 * no more is evicted on the member: what it has can be read, but there is no room on it before the next attach.
 */
enum kvc_work_type {
	KVC_WORK_WRITE,
	KVC_WORK_MOVE,
	KVC_WORK_DISCARD,
};

struct kvc_work {
	enum kvc_work_type type;
	u32	member;
	u32	stream;			/* of what WRITE and MOVE write */
	u64	offset;
	u32	len;			/* WRITE: bytes; MOVE: page bytes */
	u64	discard_len;
	void	*buf;			/* WRITE; owned by the engine until done */
	u32	src_member;		/* MOVE; another one when that is leaving */
	u64	src_offset;		/* MOVE */
	u32	nr_chunks;		/* MOVE */
	bool	no_crcs;		/* MOVE: there is nothing to check it with */
	/* private */
	u32	kind, gseg, count;
	struct kvc_load src;
	struct kvc_store dst;
};

int kvc_work_next(struct kvc_pool *p, u32 member, struct kvc_work *w);
int kvc_flush_next(struct kvc_pool *p, u32 member, struct kvc_work *w);
int kvc_discard_next(struct kvc_pool *p, u32 member, u64 max, struct kvc_work *w);
u64 kvc_flush_mark(struct kvc_pool *p, u32 member);
bool kvc_flushed(struct kvc_pool *p, u32 member, u64 mark);
/* Nothing is stored any more: with the next flush the logs of all segments are complete, as the next attach sees. */
void kvc_pool_rest(struct kvc_pool *p);
u32 kvc_work_crc(struct kvc_pool *p, const struct kvc_work *w, u32 chunk);

/*
 * Have the page's @len bytes from @pos on, in @buf, the CRCs of their chunks? @pos is a chunk's first byte; behind the
 * last ones @buf has the rest of their block. 0, -EBADMSG
 */
int kvc_work_check(struct kvc_pool *p, const struct kvc_work *w, const u8 *buf, u32 pos, u32 len);
void kvc_work_done(struct kvc_pool *p, struct kvc_work *w, int err);

/*
 * Small pages moved one at a time would keep those who wait for space waiting: kvc_run_next() is a kvc_work_next() that
 * gives, with a MOVE, what else moves from beside it to beside it. Together they can be one transfer, from and to
 * kvc_run_front()'s offsets; when that fails each is moved by itself. Every item of the run has an end of its own. The
 * last may be something else that was found behind them, and is executed after them.
 */
#define KVC_RUN_MOVES	64U
#define KVC_RUN_BYTES	KVC_CHUNK_MAX	/* of several; also a good step for a long one: whole chunks of any size */

struct kvc_run {
	struct kvc_work w[KVC_RUN_MOVES];
	u32	nr;
	u32	together;		/* the first so many are neighbours, each in front of the one before it */
	u64	bytes;			/* of these, padded */
};

int kvc_run_next(struct kvc_pool *p, u32 member, struct kvc_run *run);
/* Is what was read of the @run's neighbours, all of it in @buf, what was stored? 0, -EBADMSG */
int kvc_run_check(struct kvc_pool *p, const struct kvc_run *run, const u8 *buf);

/* Pages grow down in a segment. */
static inline const struct kvc_work *kvc_run_front(const struct kvc_run *run)
{
	return &run->w[run->together - 1];
}

/*
 * Members come and go while the pool is in use. The caller serializes these with what changes the superblock.
 *
 * add: the number of the new member, -ENOSPC (no number is left), -EINVAL (superblock fails its check), -ENOMEM. It is
 * in the superblock, which the caller writes to the new member first, then to all. No segment of the device may hold a
 * header of this pool. Then join: it is used from now on; or cancel: the superblock is without it again, to be written.
 *
 * leave: nothing is placed on the member any more, and its pages leave it: to other members, if @move, as far as these
 * have room without evicting for it and can be written, else from the index. Irreversible until the next attach.
 * -EINVAL (there is none), -EBUSY (no other member is online, or it has tombstones of keyspaces that the last attach
 * had no room for), -EALREADY. This is work of the member, also when it is
 * offline; its MOVEs read from it and write to another one. When another member is lost meanwhile it leaves no more,
 * and never has left. When left says that it is over the caller flushes the other members and, if left still says so,
 * remove takes the member out of the superblock; when that is written to the others, forget ends it, and the device is
 * free.
 */
bool kvc_member_room(const struct kvc_pool *p);	/* is a number left? */
int kvc_member_add(struct kvc_pool *p, const u8 uuid[KVC_UUID_LEN], u32 nr_segments);
void kvc_member_join(struct kvc_pool *p, u32 member);
void kvc_member_cancel(struct kvc_pool *p, u32 member);
int kvc_member_leave(struct kvc_pool *p, u32 member, bool move);
bool kvc_member_leaves(const struct kvc_pool *p, u32 member);
bool kvc_member_left(const struct kvc_pool *p, u32 member);
void kvc_member_remove(struct kvc_pool *p, u32 member);
void kvc_member_forget(struct kvc_pool *p, u32 member);
u64 kvc_member_bytes(const struct kvc_pool *p, u32 member);	/* of the pages on it */

/* The member is gone: its pages are not found, nothing is placed on it. Until it returns, or the next attach. */
void kvc_member_fail(struct kvc_pool *p, u32 member);
bool kvc_member_online(const struct kvc_pool *p, u32 member);

/*
 * A member that was lost since the attach returns, from the same device or another one that has its content as it was
 * left: what else it might have on it nobody here knows of. The caller serializes this with what changes the
 * superblock, and executes no work of the member. It sees that the device has the superblock that was written to it
 * last, and asks whether it may return (@newest: by that it was there, and nobody took a later one): 0, -EINVAL (it is
 * not there at all, not lost, or was missing already at the attach), -EBUSY (it leaves, or something is under way that
 * was begun on it before: later), -ESTALE (others were lost later, and these come first). It has the segments looked
 * at as in recovery: start, read [offset, offset + len) into a buffer, feed; while feed returns 1 read again what @c
 * now names, at most KVC_RECOVER_IO bytes. start: false, there is nothing to be looked at in this one. feed: 1, 0 (as
 * it was left), -ESTALE (not so).
 *
 * Then the caller writes the superblock as it is to the member, but not where that has the newest, and calls
 * kvc_member_return(): what was not durable is dropped, and the superblock says that the member is there, which is to
 * be written to it first and then to all. -ESTALE: as before, another one was lost meanwhile; the superblock is to be
 * written to the others. Then kvc_member_returned(), from when on it is used; or kvc_member_stay_lost(), and
 * another superblock is to be written.
 */
struct kvc_recheck {
	u64	offset;			/* bytes from the start of the device */
	u32	len;
	/* private */
	u32	gseg, block, end;
	struct kvc_seg_id id;
};

bool kvc_recheck_start(struct kvc_pool *p, u32 member, u32 segment, struct kvc_recheck *c);
int kvc_recheck_feed(struct kvc_pool *p, struct kvc_recheck *c, const void *buf);
int kvc_member_may_return(struct kvc_pool *p, u32 member, bool newest);
int kvc_member_return(struct kvc_pool *p, u32 member, bool newest);
void kvc_member_returned(struct kvc_pool *p, u32 member);
void kvc_member_stay_lost(struct kvc_pool *p, u32 member);

#endif
