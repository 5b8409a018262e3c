// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * The index: (domain, key) -> entry.
 *
 * A hash table for each shard (bucket.c), guarded by the shard's lock. The hash is NH with secret words drawn per
 * attach, so that nobody can prepare keys that share a bucket. Its lowest bits choose the shard.
 *
 * Buckets hold PENDING and LIVE entries, at most one of a (domain, key); during recovery tombstones too.
 */
#include "index/index.h"

void kvc_index_init(struct kvc_pool *p)
{
	u32 i;

	for (i = 0; i < KVC_SHARDS; i++) {
		os_lock_init(&p->shards[i].lock);
		kvc_buckets_init(&p->shards[i].table, &p->memory.bytes);
	}
	for (i = 0; i < KVC_HASH_WORDS; i++)
		p->hash_secret[i] = (u32)kvc_mix64(~p->salt_seed + i);
}

void kvc_index_destroy(struct kvc_pool *p)
{
	u32 i;

	for (i = 0; i < KVC_SHARDS; i++)
		kvc_buckets_free(&p->shards[i].table);
}

static u32 hash_of(const struct kvc_pool *p, u32 domain, const u8 *key)
{
	const u32 *secret = p->hash_secret;
	u32 a, b, i;
	u64 h;

	h = (u64)(domain + secret[0]) * (domain + secret[1]);
#pragma GCC unroll 5
	for (i = 0; i < KVC_KEY_LEN / 4; i += 2) {
		memcpy(&a, key + 4 * i, 4);
		memcpy(&b, key + 4 * i + 4, 4);
		h += (u64)(a + secret[i + 2]) * (b + secret[i + 3]);
	}
	return (u32)(kvc_mix64(h) >> 32);
}

u32 kvc_bucket(const struct kvc_pool *p, const struct kvc_domain *d, const u8 *key)
{
	return hash_of(p, d->id, key);
}

u32 kvc_entry_bucket(const struct kvc_pool *p, u32 entry)
{
	const struct kvc_entry *e = kvc_entry(p, entry);

	return hash_of(p, e->domain, e->key);
}

static u32 hash_of_entry(const void *p, u32 entry)
{
	return kvc_entry_bucket(p, entry);
}

/* Written out: a call of memcmp() is a third of a lookup. No array of words: it would get the stack protected. */
static bool key_equal(const u8 *a, const u8 *b)
{
	u64 x, y, differ = 0;
	u32 i;

#pragma GCC unroll 5
	for (i = 0; i < KVC_KEY_LEN; i += 8) {
		memcpy(&x, a + i, 8);
		memcpy(&y, b + i, 8);
		differ |= x ^ y;
	}
	return !differ;
}

os_static_assert(KVC_KEY_LEN == 5 * 8, "words of a key");

static bool is_of(const struct kvc_pool *p, u32 entry, const struct kvc_domain *d, const u8 *key)
{
	const struct kvc_entry *e = kvc_entry(p, entry);

	return e->domain == d->id && key_equal(e->key, key);
}

u32 kvc_index_find(const struct kvc_pool *p, u32 bucket, const struct kvc_domain *d, const u8 *key)
{
	const struct kvc_buckets *t = &p->shards[bucket % KVC_SHARDS].table;
	const struct kvc_line *line = kvc_bucket_line(t, kvc_bucket_number(t->nr, t->mask, bucket));
	u32 i, bits, slot;

	for (; line; line = kvc_next_line(t, line)) {
#pragma GCC unroll 3
		for (i = 0; i < KVC_LINE_TAGS; i++) {
			bits = kvc_tags_equal(line->tags[i], kvc_tag(bucket));
			for (; bits; bits &= bits - 1) {
				slot = line->slot[kvc_tagged_slot(i, bits)];
				if (slot && is_of(p, slot - 1, d, key))
					return slot - 1;
			}
		}
	}
	return KVC_NONE;
}

void kvc_index_insert(struct kvc_pool *p, u32 bucket, u32 entry)
{
	struct kvc_shard *sh = kvc_shard(p, bucket);
	struct kvc_entry *e = kvc_entry(p, entry);

	os_assert_locked(&sh->lock);
	KVC_WARN_ONCE(e->indexed);
	sh->inserts++;
	e->indexed = 1;
	kvc_buckets_insert(&sh->table, bucket, entry);
	kvc_buckets_settle(&sh->table, hash_of_entry, p);
}

void kvc_index_remove(struct kvc_pool *p, u32 bucket, u32 entry)
{
	struct kvc_shard *sh = kvc_shard(p, bucket);
	struct kvc_entry *e = kvc_entry(p, entry);

	os_assert_locked(&sh->lock);
	if (KVC_WARN_ONCE(!e->indexed))
		return;
	kvc_buckets_remove(&sh->table, bucket, entry);
	e->indexed = 0;
}

void kvc_page_publish(struct kvc_pool *p, struct kvc_shard *sh, u32 entry)
{
	struct kvc_entry *e = kvc_entry(p, entry);
	struct kvc_domain *d = kvc_domain(p, e->domain);
	struct kvc_seg *seg = kvc_entry_seg(p, entry);
	struct kvc_stock *stock = &p->members[seg->member].stock[d->slot];

	e->state = KVC_E_LIVE;
	os_atomic64_add(&seg->live_bytes, e->length);
	os_atomic64_add(&stock->pages, 1);
	os_atomic64_add(&stock->bytes, e->length);
	sh->pages++;
	sh->bytes += e->length;
	/* one that only moved is there as before */
	if (unlikely(READ_ONCE(p->heard)) && !e->copy)
		kvc_event_add(p, d, KVC_EVENT_STORED, e);
}

void kvc_page_drop(struct kvc_pool *p, u32 bucket, u32 entry)
{
	struct kvc_shard *sh = kvc_shard(p, bucket);
	struct kvc_entry *e = kvc_entry(p, entry);
	struct kvc_seg *seg = kvc_entry_seg(p, entry);
	struct kvc_stock *stock = &p->members[seg->member].stock[kvc_domain(p, e->domain)->slot];

	kvc_index_remove(p, bucket, entry);
	e->state = KVC_E_DEAD;
	os_atomic64_sub(&stock->pages, 1);
	os_atomic64_sub(&stock->bytes, e->length);
	os_atomic64_sub(&seg->live_bytes, e->length);
	sh->pages--;
	sh->bytes -= e->length;
}

/* An entry of the bucket that is @gone, or KVC_NONE */
static u32 find_gone(struct kvc_pool *p, const struct kvc_buckets *t, u32 number,
		     bool (*gone)(const struct kvc_pool *p, const struct kvc_entry *e))
{
	const struct kvc_line *line = kvc_bucket_line(t, number);
	u32 i;

	for (; line; line = kvc_next_line(t, line))
		for (i = 0; i < KVC_LINE_SLOTS && line->slot[i]; i++)
			if (gone(p, kvc_entry(p, line->slot[i] - 1)))
				return line->slot[i] - 1;
	return KVC_NONE;
}

/* False when there is no such bucket, nor any behind it */
static bool sweep_bucket(struct kvc_pool *p, struct kvc_shard *sh, u32 number,
			 bool (*gone)(const struct kvc_pool *p, const struct kvc_entry *e))
{
	u32 entry, bucket;
	bool there;

	os_lock(&sh->lock);
	there = number < sh->table.nr;
	while (there) {
		entry = find_gone(p, &sh->table, number, gone);
		if (entry == KVC_NONE)
			break;
		bucket = kvc_entry_bucket(p, entry);
		if (kvc_entry(p, entry)->state == KVC_E_LIVE)
			kvc_page_drop(p, bucket, entry);
		else
			kvc_index_remove(p, bucket, entry);
	}
	os_unlock(&sh->lock);
	return there;
}

void kvc_index_sweep(struct kvc_pool *p, bool (*gone)(const struct kvc_pool *p, const struct kvc_entry *e))
{
	u32 i, number;

	for (i = 0; i < KVC_SHARDS; i++) {
		for (number = 0; sweep_bucket(p, &p->shards[i], number, gone); number++)
			if (number % 1024 == 0)
				os_relax();
	}
}

/*
 * A lookup waits for memory four times: for its chunk's address, for its bucket, for the entry block's address, for the
 * entry. Lookups of many keys wait together: while one key is looked up, the four are asked for on behalf of keys
 * further and further behind. Nothing is locked, so nothing is certain: lines and addresses are of memory that stays,
 * what they lead to is computed but not read.
 */

static const struct kvc_buckets *table_of(const struct kvc_pool *p, u32 bucket)
{
	return &p->shards[bucket % KVC_SHARDS].table;
}

/* The first entry in the line that has the tag, or KVC_NONE */
static u32 guess(const struct kvc_line *line, u32 bucket)
{
	u32 i, bits;

	for (i = 0; line && i < KVC_LINE_TAGS; i++) {
		bits = kvc_tags_equal(READ_ONCE(line->tags[i]), kvc_tag(bucket));
		if (bits)
			return os_load_acquire(&line->slot[kvc_tagged_slot(i, bits)]) - 1;
	}
	return KVC_NONE;
}

static void prefetch_entry(const struct kvc_pool *p, u32 entry, bool block)
{
	const u8 *eb = kvc_table_peek(&p->eblocks, entry >> KVC_EBLOCK_SHIFT);
	const u8 *e = eb + entry % KVC_EBLOCK_STRIDE * sizeof(struct kvc_entry);

	os_prefetch(e);
	if (block)
		os_prefetch(eb + offsetof(struct kvc_eblock, gseg));
}

static struct kvc_ahead_key *ahead_key(struct kvc_ahead *a, u32 i)
{
	return &a->key[i % KVC_AHEAD_RING];
}

static void hash_until(const struct kvc_pool *p, const struct kvc_domain *d, struct kvc_ahead *a, u32 end)
{
	const struct kvc_buckets *t;
	u32 bucket;

	for (; a->hashed < min(end, a->nr); a->hashed++) {
		bucket = hash_of(p, d->id, a->keys[a->hashed]);
		ahead_key(a, a->hashed)->bucket = bucket;
		t = table_of(p, bucket);
		os_prefetch(kvc_chunk_place(t, kvc_bucket_peek_number(t, bucket) / KVC_CHUNK_BUCKETS));
	}
}

static void lead_until(const struct kvc_pool *p, struct kvc_ahead *a, u32 end)
{
	struct kvc_ahead_key *k;

	for (; a->led < min(end, a->hashed); a->led++) {
		k = ahead_key(a, a->led);
		k->line = kvc_bucket_peek(table_of(p, k->bucket), k->bucket);
		os_prefetch(k->line);
	}
}

/* What is not in the bucket's first line may be in its second. */
static void guess_until(const struct kvc_pool *p, struct kvc_ahead *a, u32 end)
{
	struct kvc_ahead_key *k;

	for (; a->guessed < min(end, a->led); a->guessed++) {
		k = ahead_key(a, a->guessed);
		k->entry = guess(k->line, k->bucket);
		if (k->entry != KVC_NONE) {
			os_prefetch(kvc_table_place(&p->eblocks, k->entry >> KVC_EBLOCK_SHIFT));
		} else if (k->line) {
			k->line = kvc_next_peek(table_of(p, k->bucket), k->line);
			os_prefetch(k->line);
		}
	}
}

static void fetch_until(const struct kvc_pool *p, struct kvc_ahead *a, u32 end)
{
	struct kvc_ahead_key *k;

	for (; a->fetched < min(end, a->guessed); a->fetched++) {
		k = ahead_key(a, a->fetched);
		if (k->entry == KVC_NONE)
			k->entry = guess(k->line, k->bucket);
		if (k->entry != KVC_NONE)
			prefetch_entry(p, k->entry, a->blocks);
	}
}

os_static_assert(5 * KVC_AHEAD < KVC_AHEAD_RING, "keys under way");

void kvc_ahead_begin(struct kvc_ahead *a, const u8 keys[][KVC_KEY_LEN], u32 nr, bool blocks)
{
	a->keys = keys;
	a->nr = nr;
	a->blocks = blocks;
	a->hashed = 0;
	a->led = 0;
	a->guessed = 0;
	a->fetched = 0;
}

/*
 * Some keys at a time, without a lock between them, which would end what the processor overlaps. Not far at first:
 * often the first page is missing already.
 */
static void advance(const struct kvc_pool *p, const struct kvc_domain *d, struct kvc_ahead *a, u32 i)
{
	u32 far = 3 * i + KVC_AHEAD;

	hash_until(p, d, a, min(far, i + 5 * KVC_AHEAD));
	lead_until(p, a, min(far, i + 4 * KVC_AHEAD));
	guess_until(p, a, min(far, i + 3 * KVC_AHEAD));
	fetch_until(p, a, min(far, i + 2 * KVC_AHEAD));
}

u32 kvc_ahead_bucket(const struct kvc_pool *p, const struct kvc_domain *d, struct kvc_ahead *a, u32 i)
{
	if (i % KVC_AHEAD == 0)
		advance(p, d, a, i);
	return ahead_key(a, i)->bucket;
}
