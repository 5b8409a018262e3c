// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Load, query, match, lease: everything that reads the index.
 *
 * Only a shard lock is taken, and within it, to lease, the one of leases. A hold or lease is counted on the segment
 * while the page is seen LIVE; reclaim takes pages out of the index under the same locks before it looks at the holds.
 */
#include "log/log.h"

/* The page if it can be read: 0, -ENOENT, -ENODEV. Shard locked. */
static int find_page(struct kvc_pool *p, u32 bucket, struct kvc_domain *d, const u8 *key, u32 *entry)
{
	u32 found = kvc_index_find(p, bucket, d, key);

	if (found == KVC_NONE || kvc_entry(p, found)->state != KVC_E_LIVE || READ_ONCE(d->dead))
		return kvc_not_found(p);
	if (unlikely(os_atomic_read(&p->nr_offline)) &&
	    READ_ONCE(kvc_member_of(p, kvc_eblock(p, found)->gseg)->offline))
		return -ENODEV;
	*entry = found;
	return 0;
}

void kvc_fill_load(struct kvc_pool *p, u32 entry, struct kvc_load *ld)
{
	const struct kvc_entry *e = kvc_entry(p, entry);
	struct kvc_member *m;

	ld->gseg = kvc_eblock(p, entry)->gseg;
	m = kvc_member_of(p, ld->gseg);
	ld->member = m->index;
	ld->offset = kvc_seg_offset(m, ld->gseg) + ((u64)e->block << KVC_BLOCK_SHIFT);
	ld->seq = e->seq;
	ld->length = e->length;
	ld->summed = kvc_summed(p, e);
	ld->nr_chunks = kvc_chunks(p, e->length);
	ld->no_crcs = e->no_crcs;
	ld->entry = entry;
	ld->crc_base = e->crc_base;
}

/* As kvc_load_begin(), for who wants to know what a later one would find: it is no load, to nobody. */
int kvc_load_look(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], struct kvc_load *ld)
{
	u32 bucket = kvc_bucket(p, d, key), entry;
	struct kvc_shard *sh = kvc_shard(p, bucket);
	int r;

	os_lock(&sh->lock);
	r = find_page(p, bucket, d, key, &entry);
	if (!r) {
		os_atomic_inc(&kvc_entry_seg(p, entry)->holds);
		kvc_fill_load(p, entry, ld);
	}
	os_unlock(&sh->lock);
	return r;
}

int kvc_load_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], struct kvc_load *ld)
{
	u32 bucket = kvc_bucket(p, d, key), entry;
	struct kvc_shard *sh = kvc_shard(p, bucket);
	struct kvc_entry *e;
	int r;

	os_lock(&sh->lock);
	r = find_page(p, bucket, d, key, &entry);
	if (r) {
		sh->misses++;
	} else {
		e = kvc_entry(p, entry);
		kvc_request_loads(p, e, bucket);
		os_atomic_inc(&kvc_entry_seg(p, entry)->holds);
		kvc_fill_load(p, entry, ld);
		sh->loads++;
		sh->load_bytes += e->length;
	}
	os_unlock(&sh->lock);
	return r;
}

u32 kvc_load_crc(struct kvc_pool *p, const struct kvc_load *ld, u32 chunk)
{
	return *kvc_crc_slot(kvc_seg(p, ld->gseg), ld->crc_base + chunk);
}

const u8 *kvc_load_nonce(struct kvc_pool *p, const struct kvc_load *ld)
{
	return kvc_nonce(p, ld->entry);
}

/* The full barrier of the decrement pairs with the one between DRAINING and reading the holds in reclaim.c. */
void kvc_hold_put(struct kvc_pool *p, u32 gseg)
{
	struct kvc_seg *seg = kvc_seg(p, gseg);

	if (os_atomic_dec_and_test(&seg->holds) && READ_ONCE(seg->state) == KVC_S_DRAINING)
		kvc_kick(kvc_member_of(p, gseg));
}

/*
 * Take a page that failed verification out of the index, unless it went already. Its record stays on media: a later
 * attach finds the page again and verification refuses it again.
 */
void kvc_drop_bad(struct kvc_pool *p, u32 entry)
{
	u32 bucket = kvc_entry_bucket(p, entry);
	struct kvc_shard *sh = kvc_shard(p, bucket);

	os_lock(&sh->lock);
	if (kvc_entry(p, entry)->state == KVC_E_LIVE) {
		kvc_seg_undead(p, kvc_entry_seg(p, entry));
		kvc_page_lose(p, bucket, entry);
		kvc_event(p, kvc_domain(p, kvc_entry(p, entry)->domain), KVC_EVENT_DROPPED, kvc_entry(p, entry));
	}
	sh->bad_pages++;
	os_unlock(&sh->lock);
}

void kvc_load_end(struct kvc_pool *p, struct kvc_load *ld, int status)
{
	if (status == -EBADMSG)
		kvc_drop_bad(p, ld->entry);
	kvc_hold_put(p, ld->gseg);
}

int kvc_query(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN])
{
	u32 bucket = kvc_bucket(p, d, key), entry;
	struct kvc_shard *sh = kvc_shard(p, bucket);
	int r;

	os_lock(&sh->lock);
	r = find_page(p, bucket, d, key, &entry);
	if (!r)
		r = (int)kvc_entry(p, entry)->length;
	os_unlock(&sh->lock);
	return r;
}

/* Length of the page, or why not. @asker may be NULL; without @l it is not leased. */
static int lease_page(struct kvc_pool *p, u32 bucket, struct kvc_domain *d, const u8 *key, struct kvc_asker *asker,
		      struct kvc_leasing *by, struct kvc_lease *l)
{
	struct kvc_shard *sh = kvc_shard(p, bucket);
	u32 entry, mark;
	struct kvc_entry *e;
	int r;

	if (l)
		kvc_leasing_prepare(by);
	os_lock(&sh->lock);
	r = find_page(p, bucket, d, key, &entry);
	if (!r && l)
		r = kvc_lease_take(p, kvc_eblock(p, entry)->gseg, d, by, l);
	if (!r) {
		e = kvc_entry(p, entry);
		mark = asker ? kvc_request_asks(asker, e->mark) : e->mark;
		/* a prompt that is asked for again and again leaves its entries' cache lines clean */
		if (mark != e->mark)
			e->mark = mark;
		r = (int)e->length;
	}
	os_unlock(&sh->lock);
	return r;
}

static u32 match(struct kvc_pool *p, struct kvc_domain *d, const u8 keys[][KVC_KEY_LEN], u32 nr,
		 struct kvc_asker *asker, u64 *present, u32 *lens, struct kvc_lease *leases)
{
	struct kvc_leasing by = { 0 };
	struct kvc_ahead ahead;
	u32 found = 0, bucket, i;
	int r;

	kvc_ahead_begin(&ahead, keys, nr, leases);
	for (i = 0; i < nr; i++) {
		bucket = kvc_ahead_bucket(p, d, &ahead, i);
		r = lease_page(p, bucket, d, keys[i], asker, &by, leases ? &leases[found] : NULL);
		if (unlikely(r == -ENOMEM && leases)) {
			leases[found].keep = NULL;
			r = lease_page(p, bucket, d, keys[i], asker, &by, NULL);
		}
		if (r < 0 && !present)
			break;
		if (r >= 0) {
			found++;
			if (present)
				present[i / 64] |= BIT_ULL(i % 64);
			if (lens)
				lens[i] = (u32)r;
		}
		if (i % 1024 == 1023)
			os_relax();
	}
	kvc_leasing_end(&by);
	return found;
}

u32 kvc_match(struct kvc_pool *p, struct kvc_domain *d, const u8 keys[][KVC_KEY_LEN], u32 nr, u64 *present, u32 *lens,
	      struct kvc_lease *leases)
{
	struct kvc_asker asker = { 0 };
	u32 found;

	if (!nr)
		return 0;
	kvc_request_begin(p, d, keys, nr, &asker);
	found = match(p, d, keys, nr, &asker, present, lens, leases);
	kvc_request_end(p, d, keys, found, present, &asker);
	return found;
}

int kvc_lease_get(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], struct kvc_lease *l)
{
	struct kvc_leasing by = { 0 };
	int r = lease_page(p, kvc_bucket(p, d, key), d, key, NULL, &by, l);

	kvc_leasing_end(&by);
	return min(r, 0);
}
