/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * Where a page is: (domain, key) -> entry.
 *
 *	table.c		numbers -> pointers
 *	bucket.c	a hash table that grows by one bucket at a time, of entries' numbers
 *	domain.c	what a key is looked up in
 *	event.c		who is told of pages that come and go there
 *	entry.c		memory of entries and CRCs, which belongs to segments
 *	index.c		shards of buckets; pages that come into the index and leave it
 *
 * Knows of segments that entries belong to them. Calls nothing of the log and the policy.
 */
#ifndef KVC_INDEX_H
#define KVC_INDEX_H

#include "engine.h"

/* entry.c: memory of entries and CRCs */
static inline struct kvc_eblock *kvc_eblock(const struct kvc_pool *p, u32 entry)
{
	return kvc_table_get(&p->eblocks, entry >> KVC_EBLOCK_SHIFT);
}

static inline struct kvc_entry *kvc_entry(const struct kvc_pool *p, u32 entry)
{
	return &kvc_eblock(p, entry)->e[entry % KVC_EBLOCK_STRIDE];
}

static inline struct kvc_seg *kvc_entry_seg(const struct kvc_pool *p, u32 entry)
{
	return kvc_seg(p, kvc_eblock(p, entry)->gseg);
}

/* Of an encrypted page. Written once, before it is published, and stays while it is held, as its CRCs do. */
static inline u8 *kvc_nonce(const struct kvc_pool *p, u32 entry)
{
	return os_published(&kvc_eblock(p, entry)->nonces)[entry % KVC_EBLOCK_STRIDE];
}

/* A page's CRCs are written once, before it is published, and stay while it is held. */
static inline u32 *kvc_crc_slot(const struct kvc_seg *seg, u32 i)
{
	return &seg->crcs[i / KVC_CBLOCK_CRCS][i % KVC_CBLOCK_CRCS];
}

/*
 * Make room for one more entry and @nr_crcs CRCs. Member locked; the lock is dropped to allocate. 0: there is room,
 * the lock was not dropped; 1: look again; -ENOMEM.
 */
int kvc_seg_grow(struct kvc_member *m, struct kvc_seg *seg, u32 nr_crcs);
/* The next entry, zeroed but for key and domain (whose reference it takes); there is room. */
u32 kvc_seg_append(struct kvc_pool *p, struct kvc_seg *seg, struct kvc_domain *d, const u8 *key);
/* Are the next two entries in memory that is there? Otherwise one is spent, and the caller calls grow again. */
bool kvc_seg_pair(struct kvc_pool *p, struct kvc_seg *seg, struct kvc_domain *d, const u8 *key);
static inline bool kvc_seg_lacks_eblock(const struct kvc_seg *seg)
{
	return seg->nr_entries == seg->nr_eblocks * KVC_EBLOCK_ENTRIES;
}

static inline bool kvc_seg_lacks_cblock(const struct kvc_seg *seg, u32 nr_crcs)
{
	return seg->nr_crcs + nr_crcs > seg->crc_room;
}

/* Would grow allocate? */
static inline bool kvc_seg_lacks(const struct kvc_seg *seg, u32 nr_crcs)
{
	return kvc_seg_lacks_eblock(seg) || kvc_seg_lacks_cblock(seg, nr_crcs);
}

/* From now on what is appended has room for a nonce; nobody encrypts yet. 0, -ENOMEM. Allocates */
int kvc_nonces_begin(struct kvc_pool *p);
void kvc_eblock_free(void *eblock);
u64 kvc_seg_bytes(const struct kvc_pool *p, const struct kvc_seg *seg);	/* that freeing all gives back */
/* Free CRCs and what blocks have dead entries only: the segment is complete, and nobody looks at dead ones. */
void kvc_seg_free_dead(struct kvc_pool *p, struct kvc_seg *seg);
/* Free all entries and CRCs; nobody else can reach the segment's memory any more. No lock held. */
void kvc_seg_free_entries(struct kvc_pool *p, struct kvc_seg *seg);
void kvc_cursor_init(struct kvc_cursor *c);
u32 kvc_cursor_entry(const struct kvc_pool *p, const struct kvc_seg *seg, struct kvc_cursor *c);

/* index.c. @bucket: the hash of a key, which leads to its shard and, there, to its bucket of the moment. */
void kvc_index_init(struct kvc_pool *p);
void kvc_index_destroy(struct kvc_pool *p);
u32 kvc_bucket(const struct kvc_pool *p, const struct kvc_domain *d, const u8 *key);
static inline struct kvc_shard *kvc_shard(struct kvc_pool *p, u32 bucket)
{
	return &p->shards[bucket % KVC_SHARDS];
}

u32 kvc_entry_bucket(const struct kvc_pool *p, u32 entry);
u32 kvc_index_find(const struct kvc_pool *p, u32 bucket, const struct kvc_domain *d, const u8 *key);
/*
 * Who inserts calls grow first, with no lock held, and asks for room with the shard locked; without any it comes again.
 * There is room where an entry was removed just now. grow: 0, or -ENOMEM when there is no room either. Allocates.
 */
static inline int kvc_index_grow(struct kvc_pool *p, u32 bucket)
{
	struct kvc_shard *sh = kvc_shard(p, bucket);

	return unlikely(READ_ONCE(sh->table.hungry)) ? kvc_buckets_grow(&sh->table, &sh->lock) : 0;
}

static inline bool kvc_index_room(struct kvc_pool *p, u32 bucket)
{
	return kvc_buckets_room(&kvc_shard(p, bucket)->table);
}

/* Keep the room that there is for an entry that comes later, until then. Shard locked. */
static inline void kvc_index_promise(struct kvc_pool *p, u32 bucket)
{
	kvc_buckets_promise(&kvc_shard(p, bucket)->table);
}

static inline void kvc_index_kept(struct kvc_pool *p, u32 bucket)
{
	kvc_buckets_kept(&kvc_shard(p, bucket)->table);
}

void kvc_index_insert(struct kvc_pool *p, u32 bucket, u32 entry);
void kvc_index_remove(struct kvc_pool *p, u32 bucket, u32 entry);
/* A page becomes LIVE (it is in its bucket), which listeners are told unless it moved; or it leaves. Shard locked. */
void kvc_page_publish(struct kvc_pool *p, struct kvc_shard *sh, u32 entry);
void kvc_page_drop(struct kvc_pool *p, u32 bucket, u32 entry);
/* Take out of every bucket what @gone says. No lock held. */
void kvc_index_sweep(struct kvc_pool *p, bool (*gone)(const struct kvc_pool *p, const struct kvc_entry *e));

/*
 * Lookups of many keys, one after the other. begin, then for each key in turn its bucket: what the lookups of those
 * behind it will read is meanwhile on its way to the caches; with @blocks the end of the entry blocks too. No lock.
 */
#define KVC_AHEAD		8U	/* keys that take a step together */
#define KVC_AHEAD_RING		64U

struct kvc_ahead_key {
	u32	bucket, entry;
	const struct kvc_line *line;
};

struct kvc_ahead {
	const u8 (*keys)[KVC_KEY_LEN];
	u32	nr;
	bool	blocks;
	u32	hashed, led, guessed, fetched;	/* keys that have taken each step */
	struct kvc_ahead_key key[KVC_AHEAD_RING];
};

void kvc_ahead_begin(struct kvc_ahead *a, const u8 keys[][KVC_KEY_LEN], u32 nr, bool blocks);
u32 kvc_ahead_bucket(const struct kvc_pool *p, const struct kvc_domain *d, struct kvc_ahead *a, u32 i);

/* domain.c */
int kvc_domains_init(struct kvc_pool *p);
void kvc_domains_destroy(struct kvc_pool *p);
/*
 * Of a record. @d: what it gave for the one before, or NULL; the caller puts the last. 0; -ENODEV: tenant and epoch are
 * not, or no longer, in use; -EDQUOT: no room, nor for this one later in the recovery; -ENOMEM. Allocates.
 */
int kvc_domain_of_record(struct kvc_pool *p, const struct kvc_rec *rec, struct kvc_domain **d);
void kvc_domains_recovered(struct kvc_pool *p);
void kvc_domains_kill(struct kvc_pool *p, u32 slot);	/* its tenant was removed. Domains locked */
static inline struct kvc_domain *kvc_domain(const struct kvc_pool *p, u32 id)
{
	return kvc_table_get(&p->domains.table, id);
}

/* event.c. Shard locked. Costs nothing while nobody listens */
/* How many bytes of its blocks the page's CRCs are of */
static inline u32 kvc_summed(const struct kvc_pool *p, const struct kvc_entry *e)
{
	if (unlikely(p->nonces) && kvc_domain(p, e->domain)->encrypted)
		return (u32)kvc_padded(e->length);
	return e->length;
}

void kvc_event_add(struct kvc_pool *p, struct kvc_domain *d, enum kvc_event_kind kind, const struct kvc_entry *e);
static inline void kvc_event(struct kvc_pool *p, struct kvc_domain *d, enum kvc_event_kind kind,
			     const struct kvc_entry *e)
{
	if (unlikely(READ_ONCE(p->heard)))
		kvc_event_add(p, d, kind, e);
}

/* No lock of a domain, but any other may be held. */
void kvc_event_lost(struct kvc_pool *p);

#endif
