// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Delete.
 *
 * A page of which media has no record simply leaves the index. Otherwise media would bring it back: a tombstone, a
 * record with a newer sequence, is appended to a segment and becomes durable with the next summary.
 *
 * How long the tombstone is needed says tomb.c.
 */
#include "log/log.h"

/* Shard locked. */
static void lose(struct kvc_pool *p, struct kvc_domain *d, u32 bucket, u32 entry)
{
	kvc_page_lose(p, bucket, entry);
	kvc_shard(p, bucket)->deletes++;
	kvc_event(p, d, KVC_EVENT_DELETED, kvc_entry(p, entry));
}

/* Delete what needs no tombstone. 0, -ENOENT, or 1 with the page's segment when it needs one. Shard locked. */
static int delete_unlogged(struct kvc_pool *p, u32 bucket, struct kvc_domain *d, const u8 *key, u32 *entry)
{
	u32 found = kvc_index_find(p, bucket, d, key);

	if (found == KVC_NONE || kvc_entry(p, found)->state != KVC_E_LIVE || READ_ONCE(d->dead))
		return -ENOENT;
	*entry = found;
	if (kvc_tomb_wanted(p, kvc_entry(p, found)))
		return 1;
	lose(p, d, bucket, found);
	return 0;
}

/* Delete with a tombstone on @m. */
static int delete_on(struct kvc_member *m, struct kvc_domain *d, u32 bucket, const u8 *key)
{
	struct kvc_pool *p = m->pool;
	struct kvc_shard *sh = kvc_shard(p, bucket);
	struct kvc_seg *seg, *victim;
	u32 entry;
	int r;

	os_lock(&m->lock);
	r = kvc_tomb_prepare(m, KVC_HEAD_NEW, &seg);
	if (r)
		goto out;
	os_lock(&sh->lock);
	r = delete_unlogged(p, bucket, d, key, &entry);
	if (r == 1) {
		victim = kvc_entry_seg(p, entry);
		kvc_tomb_append(m, seg, &(struct kvc_tomb){
			.domain = d,
			.key = key,
			.seq = os_atomic64_inc_return(&p->seq),
			.victim = kvc_gseg(p, victim),
			.victim_gen = READ_ONCE(victim->generation),
		});
		lose(p, d, bucket, entry);
		r = 0;
	}
	os_unlock(&sh->lock);
	/* The segment may have been reopened for nothing. */
	kvc_seg_try_seal(m, seg);
out:
	os_unlock(&m->lock);
	return r;
}

int kvc_delete(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN])
{
	u32 bucket = kvc_bucket(p, d, key), entry, first = 0, nr, i;
	struct kvc_shard *sh = kvc_shard(p, bucket);
	int r;

	os_lock(&sh->lock);
	r = delete_unlogged(p, bucket, d, key, &entry);
	if (r == -ENOENT)
		r = kvc_not_found(p);
	if (r == 1)
		first = kvc_member_of(p, kvc_eblock(p, entry)->gseg)->index;
	os_unlock(&sh->lock);
	if (r <= 0)
		return r;
	do {
		nr = kvc_nr_members(p);
		for (i = 0; i < nr; i++) {
			r = delete_on(&p->members[(first + i) % nr], d, bucket, key);
			if (r != -EAGAIN && r != -ENODEV)
				return r;
		}
		r = kvc_refusal(p, KVC_ANY_MEMBER);
	} while (r == 0);
	return r;
}
