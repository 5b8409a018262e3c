// SPDX-License-Identifier: GPL-2.0
/*
 * The index: (domain, key) -> entry.
 *
 * Chained hash table. Buckets hold entry ids, entries the id of the next. A bucket belongs to one of KVC_SHARDS
 * shards, whose lock guards its chain. The hash is NH with secret words drawn per attach, so that nobody can prepare
 * keys that share a chain.
 *
 * A chain holds PENDING and LIVE entries, at most one of a (domain, key); during recovery tombstones too.
 */
#include "engine.h"

u64 kvc_mix64(u64 x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static u32 bucket_of(const struct kvc_pool *p, u32 domain, const u8 *key)
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
	h = kvc_mix64(h) >> 32;
	return (u32)(h * p->nr_buckets >> 32);
}

u32 kvc_bucket(const struct kvc_pool *p, const struct kvc_domain *d, const u8 *key)
{
	return bucket_of(p, d->id, key);
}

u32 kvc_entry_bucket(const struct kvc_pool *p, u32 entry)
{
	const struct kvc_entry *e = kvc_entry(p, entry);

	return bucket_of(p, e->domain, e->key);
}

/* Written out: a call of memcmp() is a third of a lookup. */
static bool key_equal(const u8 *a, const u8 *b)
{
	u64 x[KVC_KEY_LEN / 8], y[KVC_KEY_LEN / 8];

	memcpy(x, a, sizeof(x));
	memcpy(y, b, sizeof(y));
	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ y[4]));
}

os_static_assert(KVC_KEY_LEN == 40, "words of a key");

u32 kvc_index_find(const struct kvc_pool *p, u32 bucket, const struct kvc_domain *d, const u8 *key)
{
	u32 entry = p->buckets[bucket];

	while (entry != KVC_NONE) {
		const struct kvc_entry *e = kvc_entry(p, entry);

		if (e->domain == d->id && key_equal(e->key, key))
			break;
		entry = e->next;
	}
	return entry;
}

void kvc_index_insert(struct kvc_pool *p, u32 bucket, u32 entry)
{
	struct kvc_entry *e = kvc_entry(p, entry);

	os_assert_locked(&kvc_shard(p, bucket)->lock);
	KVC_WARN_ONCE(e->chained);
	kvc_shard(p, bucket)->inserts++;
	e->chained = 1;
	e->next = p->buckets[bucket];
	p->buckets[bucket] = entry;
}

void kvc_index_remove(struct kvc_pool *p, u32 bucket, u32 entry)
{
	struct kvc_entry *e = kvc_entry(p, entry);
	u32 *link = &p->buckets[bucket];

	os_assert_locked(&kvc_shard(p, bucket)->lock);
	if (KVC_WARN_ONCE(!e->chained))
		return;
	while (*link != entry)
		link = &kvc_entry(p, *link)->next;
	*link = e->next;
	e->next = KVC_NONE;
	e->chained = 0;
}

void kvc_page_publish(struct kvc_pool *p, struct kvc_shard *sh, u32 entry)
{
	struct kvc_entry *e = kvc_entry(p, entry);

	e->state = KVC_E_LIVE;
	os_atomic64_add(&kvc_entry_seg(p, entry)->live_bytes, e->length);
	sh->pages++;
	sh->bytes += e->length;
}

void kvc_page_drop(struct kvc_pool *p, u32 bucket, u32 entry)
{
	struct kvc_shard *sh = kvc_shard(p, bucket);
	struct kvc_entry *e = kvc_entry(p, entry);

	kvc_index_remove(p, bucket, entry);
	e->state = KVC_E_DEAD;
	os_atomic64_sub(&kvc_entry_seg(p, entry)->live_bytes, e->length);
	sh->pages--;
	sh->bytes -= e->length;
}

static void sweep_bucket(struct kvc_pool *p, u32 bucket,
			 bool (*gone)(const struct kvc_pool *p, const struct kvc_entry *e))
{
	struct kvc_shard *sh = kvc_shard(p, bucket);
	u32 entry, next;

	os_lock(&sh->lock);
	for (entry = p->buckets[bucket]; entry != KVC_NONE; entry = next) {
		const struct kvc_entry *e = kvc_entry(p, entry);

		next = e->next;
		if (!gone(p, e))
			continue;
		if (e->state == KVC_E_LIVE)
			kvc_page_drop(p, bucket, entry);
		else
			kvc_index_remove(p, bucket, entry);
	}
	os_unlock(&sh->lock);
}

void kvc_index_sweep(struct kvc_pool *p, bool (*gone)(const struct kvc_pool *p, const struct kvc_entry *e))
{
	u32 bucket;

	for (bucket = 0; bucket < p->nr_buckets; bucket++) {
		sweep_bucket(p, bucket, gone);
		if (bucket % 1024 == 0)
			os_relax();
	}
}
