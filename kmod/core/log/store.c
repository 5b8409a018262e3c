// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Store: reserve, make pending, publish.
 *
 * The place is reserved and the key made pending in one step under member and shard lock, so two stores of a key never
 * both get a place. Members take turns; one without room, or that the caller does not want, is passed over.
 *
 * A page that is to replace another stays out of the index, where that one is found, until it is committed. Room for it
 * is kept there: a commit allocates nothing, and by then there may be nothing to replace. Then it takes the key, from a
 * page or from a store that is pending, which finds itself out of the index at its end. Its newer sequence wins in
 * recovery; but where it is evicted again while what it replaced is still on media, only a tombstone keeps that away.
 * That has its room from the beginning, behind the page in the log of the same segment: both become durable together,
 * or the page does first, so that no power cut finds the key without either page.
 */
#include "log/log.h"

void kvc_fill_store(struct kvc_pool *p, u32 entry, struct kvc_store *st)
{
	const struct kvc_entry *e = kvc_entry(p, entry);
	struct kvc_seg *seg = kvc_entry_seg(p, entry);
	struct kvc_member *m;

	st->gseg = kvc_gseg(p, seg);
	m = kvc_member_of(p, st->gseg);
	st->member = m->index;
	st->stream = KVC_STREAM_NEW + (seg->head < KVC_NR_HEADS ? seg->head : KVC_HEAD_NEW);
	st->offset = kvc_seg_offset(m, st->gseg) + ((u64)e->block << KVC_BLOCK_SHIFT);
	st->length = e->length;
	st->summed = kvc_summed(p, e);
	st->nr_chunks = kvc_chunks(p, e->length);
	st->no_crcs = e->no_crcs;
	st->entry = entry;
	st->crc_base = e->crc_base;
	st->tomb = KVC_NONE;
}

/*
 * Does the index refuse a store of the key? 0: no. A page on a member that is gone does not count, nor does one that
 * is there: it is replaced. Shard locked.
 */
static int check_present(struct kvc_pool *p, u32 bucket, u32 entry, u32 request)
{
	struct kvc_shard *sh = kvc_shard(p, bucket);

	if (entry == KVC_NONE)
		return 0;
	if (kvc_entry(p, entry)->state == KVC_E_PENDING) {
		sh->dedups++;
		return -EINPROGRESS;
	}
	if (READ_ONCE(kvc_member_of(p, kvc_gseg(p, kvc_entry_seg(p, entry)))->offline))
		return 0;
	sh->dedups++;
	kvc_request_claims(p, kvc_entry(p, entry), request);
	return -EEXIST;
}

/* What was known of a key that is not in the index, or whose page is replaced, before any member was locked */
struct absence {
	bool	replace;
	u32	inserts;		/* what sh->inserts is as long as the key is in no entry */
	bool	lasting;		/* by what is known of it, it belongs to the long-lived */
	u32	request;
};

/* The same; @ab: out */
static int check_index(struct kvc_pool *p, u32 bucket, struct kvc_domain *d, const u8 *key, struct absence *ab)
{
	struct kvc_shard *sh = kvc_shard(p, bucket);
	u32 entry;
	int r;

	ab->request = kvc_request_awaits(p, bucket);
	os_lock(&sh->lock);
	entry = kvc_index_find(p, bucket, d, key);
	ab->inserts = entry == KVC_NONE ? sh->inserts : sh->inserts - 1;
	r = ab->replace && entry != KVC_NONE ? -EEXIST : check_present(p, bucket, entry, ab->request);
	os_unlock(&sh->lock);
	return r;
}

/* Room for a new page in the tenant's own head. At its quota it opens none. Member locked. */
static int own_prepare(struct kvc_member *m, u32 head, u32 blocks, u32 nr_crcs, u32 beside, struct kvc_seg **seg)
{
	u32 rec_bytes = kvc_rec_bytes(nr_crcs) + beside;
	bool fits = m->head[head] && kvc_seg_fits(m->pool, m->head[head], blocks, rec_bytes);
	u32 slot = head - KVC_HEAD_OWN;

	if (!m->offline && !m->leaving &&
	    (fits ? kvc_quota_beyond(m->pool, slot, blocks << KVC_BLOCK_SHIFT) : kvc_quota_full(m->pool, slot)))
		return -EAGAIN;
	return kvc_head_prepare(m, head, blocks, nr_crcs, beside, seg);
}

/*
 * Room for a new page in the head where it belongs. The other one takes it when no room is to come: pages of both kinds
 * in one segment cost more than to wait for reclaim. Member locked.
 */
static inline int shared_prepare(struct kvc_member *m, bool lasting, u32 blocks, u32 nr_crcs, u32 beside,
				 struct kvc_seg **seg)
{
	bool both = m->nr_segs >= KVC_LONG_SEGMENTS;
	enum kvc_head head = both && lasting ? KVC_HEAD_LONG : KVC_HEAD_NEW;
	int r = kvc_head_prepare(m, head, blocks, nr_crcs, beside, seg);

	if (r == -EAGAIN && both && !kvc_member_hope(m))
		r = kvc_head_prepare(m, lasting ? KVC_HEAD_NEW : KVC_HEAD_LONG, blocks, nr_crcs, beside, seg);
	return r;
}

/* Member locked. */
static int page_prepare(struct kvc_member *m, u32 slot, bool lasting, u32 length, u32 beside, struct kvc_seg **seg)
{
	u32 blocks = kvc_blocks(length), nr_crcs = kvc_chunks(m->pool, length), head;

	if (unlikely(READ_ONCE(m->pool->quota.on))) {
		head = kvc_quota_head(m->pool, slot, KVC_HEAD_NEW);
		if (head != KVC_HEAD_NEW)
			return own_prepare(m, head, blocks, nr_crcs, beside, seg);
		/* there are too few segments for one of its own */
		if (kvc_quota_full(m->pool, slot) && !m->offline && !m->leaving)
			return -EAGAIN;
	}
	return shared_prepare(m, lasting, blocks, nr_crcs, beside, seg);
}

/*
 * Room for a page of the tenant that is somewhere else already: no quota keeps it there. What the tenant's own head has
 * no room for goes to head @which. Member locked.
 */
int kvc_copy_prepare(struct kvc_member *m, enum kvc_head which, u32 slot, u32 length, struct kvc_seg **seg)
{
	u32 blocks = kvc_blocks(length), nr_crcs = kvc_chunks(m->pool, length);
	u32 own = kvc_quota_head(m->pool, slot, which);
	int r = own != which ? kvc_head_prepare(m, own, blocks, nr_crcs, 0, seg) : -EAGAIN;

	while (r == -ENOBUFS && which == KVC_HEAD_MOVE) {
		/* it has to stay, so it gets the memory that it needs, as in the move head */
		r = kvc_seg_grow(m, m->head[own], nr_crcs);
		if (r >= 0)
			r = kvc_head_prepare(m, own, blocks, nr_crcs, 0, seg);
	}
	if (r != -EAGAIN)
		return r;
	if (which == KVC_HEAD_MOVE)
		return kvc_head_prepare(m, which, blocks, nr_crcs, 0, seg);
	return shared_prepare(m, which == KVC_HEAD_LONG, blocks, nr_crcs, 0, seg);
}

/* Behind a page that replaces another: its tombstone. Member and shard locked. */
static void reserve_tomb(struct kvc_pool *p, struct kvc_seg *seg, struct kvc_domain *d, const u8 *key,
			 struct kvc_store *st)
{
	st->tomb = kvc_seg_append(p, seg, d, key);
	kvc_entry(p, st->tomb)->state = KVC_E_DEAD;
}

/* The same as reserve_on(), for a page that replaces what will be there */
static int replace_on(struct kvc_member *m, struct kvc_domain *d, u32 bucket, const u8 *key, u32 length, u32 depth,
		      const struct absence *ab, struct kvc_store *st)
{
	struct kvc_pool *p = m->pool;
	struct kvc_shard *sh = kvc_shard(p, bucket);
	struct kvc_seg *seg;
	int r;

	os_lock(&m->lock);
	do {
		r = page_prepare(m, d->slot, ab->lasting, length, KVC_REC_FIXED, &seg);
	} while (!r && !kvc_seg_pair(p, seg, d, key));
	if (r)
		goto out;
	os_lock_inner(&sh->lock);
	if (kvc_index_room(p, bucket)) {
		kvc_index_promise(p, bucket);
		kvc_fill_store(p, kvc_seg_reserve_page(m, seg, d, key, length, depth, ab->request), st);
		kvc_seg_reserve_beside(m, seg, kvc_entry(p, st->entry));
		st->bucket = bucket;
		reserve_tomb(p, seg, d, key, st);
		kvc_quota_pend(p, seg, length, false);
		m->newest = seg;
	} else {
		r = 1;
	}
	os_unlock_inner(&sh->lock);
out:
	os_unlock(&m->lock);
	return r;
}

/* One member: 0, -EAGAIN, -ENODEV, or an answer that ends the search; 1: grow the index. */
static int reserve_on(struct kvc_member *m, struct kvc_domain *d, u32 bucket, const u8 *key, u32 length, u32 depth,
		      const struct absence *ab, struct kvc_store *st)
{
	struct kvc_pool *p = m->pool;
	struct kvc_shard *sh = kvc_shard(p, bucket);
	u32 old = KVC_NONE, entry;
	struct kvc_seg *seg;
	int r;

	os_lock(&m->lock);
	r = page_prepare(m, d->slot, ab->lasting, length, 0, &seg);
	if (r)
		goto out_member;
	os_lock_inner(&sh->lock);
	if (sh->inserts != ab->inserts)
		old = kvc_index_find(p, bucket, d, key);
	r = check_present(p, bucket, old, ab->request);
	if (!r && !kvc_index_room(p, bucket))
		r = 1;
	if (r)
		goto out_shard;
	if (old != KVC_NONE) {
		/* it has no tombstone, and its member may return */
		kvc_seg_undead(p, kvc_entry_seg(p, old));
		kvc_page_drop(p, bucket, old);
	}
	entry = kvc_seg_reserve_page(m, seg, d, key, length, depth, ab->request);
	m->newest = seg;
	kvc_index_insert(p, bucket, entry);
	kvc_quota_pend(p, seg, length, false);
	kvc_fill_store(p, entry, st);
	st->bucket = bucket;
out_shard:
	os_unlock_inner(&sh->lock);
out_member:
	os_unlock(&m->lock);
	return r;
}

static int store_on(struct kvc_member *m, struct kvc_domain *d, u32 bucket, const u8 *key, u32 length, u32 depth,
		    const struct absence *ab, struct kvc_store *st)
{
	int r;

	do {
		r = kvc_index_grow(m->pool, bucket);
		if (!r && ab->replace)
			r = replace_on(m, d, bucket, key, length, depth, ab, st);
		else if (!r)
			r = reserve_on(m, d, bucket, key, length, depth, ab, st);
	} while (r == 1);
	return r;
}

static int refuse_unseen(struct kvc_pool *p, u32 bucket)
{
	struct kvc_shard *sh = kvc_shard(p, bucket);

	os_lock(&sh->lock);
	sh->unadmitted++;
	os_unlock(&sh->lock);
	return -EDQUOT;
}

/*
 * What to tell somebody for whom none of @homes had room: as kvc_refusal(). 0: try again, where *homes says. Who is at
 * the quota waits for his own to be evicted; who has no room at home goes elsewhere.
 */
static int refuse(struct kvc_pool *p, u32 slot, u64 members, u64 *homes)
{
	int r;

	if (unlikely(kvc_quota_full(p, slot)))
		return kvc_own_ask(p, slot) ? -EAGAIN : -ENOSPC;
	r = kvc_refusal(p, *homes);
	if (r != -ENOSPC && r != -ENODEV)
		return r;
	if (*homes != members) {
		*homes = members;
		return 0;
	}
	return r == -ENOSPC && kvc_spill(p, members) ? -EAGAIN : r;
}

/* With the arguments of its callers, who jump here */
static int begin_store(struct kvc_pool *p, struct kvc_domain *d, const u8 *key, u32 length, u32 depth, u64 members,
		       struct kvc_store *st)
{
	u32 bucket = kvc_bucket(p, d, key), nr, turn, i, n;
	u64 homes = kvc_quota_homes(p, d->slot, members);
	struct absence ab;
	bool full;
	int r;

	if (length == 0 || length > p->page_max)
		return -EINVAL;
	if (READ_ONCE(d->dead))
		return -ENODEV;
	ab.replace = st->replace;
	r = check_index(p, bucket, d, key, &ab);
	if (r && !ab.replace)
		return r;
	/* what is there was seen */
	if (!r && unlikely(kvc_budgeted(p, d->slot)) && !kvc_budget_admits(p, d, key))
		return refuse_unseen(p, bucket);
	ab.lasting = kvc_request_lasts(p, ab.request, depth);
	turn = kvc_turn(p, homes);
	do {
		nr = kvc_nr_members(p);
		full = false;
		for (i = 0; i < nr; i++) {
			n = (turn + i) % nr;
			if (!(homes & BIT_ULL(n)))
				continue;
			r = store_on(&p->members[n], d, bucket, key, length, depth, &ab, st);
			if (!r && unlikely(kvc_budgeted(p, d->slot)))
				kvc_budget_charge(p, d, kvc_padded(length));
			if (r != -EAGAIN && r != -ENODEV && r != -ENOBUFS)
				return r;
			full |= r == -ENOBUFS;
		}
		r = full ? kvc_memory_refusal(p) : refuse(p, d->slot, members, &homes);
	} while (r == 0);
	return r;
}

int kvc_store_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], u32 length, u32 depth,
		    u64 members, struct kvc_store *st)
{
	st->replace = false;
	return begin_store(p, d, key, length, depth, members, st);
}

int kvc_replace_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], u32 length, u32 depth,
		      u64 members, struct kvc_store *st)
{
	st->replace = true;
	return begin_store(p, d, key, length, depth, members, st);
}

void kvc_store_crc(struct kvc_pool *p, const struct kvc_store *st, u32 chunk, u32 crc)
{
	*kvc_crc_slot(kvc_seg(p, st->gseg), st->crc_base + chunk) = crc;
}

void kvc_store_nonce(struct kvc_pool *p, const struct kvc_store *st, const u8 nonce[KVC_NONCE_LEN])
{
	memcpy(kvc_nonce(p, st->entry), nonce, KVC_NONCE_LEN);
}

/* The tombstone of a page in @victim; NULL: of whatever media may lead to. Member and shard locked. */
static void bury(struct kvc_pool *p, struct kvc_entry *tomb, const struct kvc_seg *seg, const struct kvc_seg *victim)
{
	tomb->state = KVC_E_TOMB;
	tomb->seq = os_atomic64_inc_return(&p->seq);
	kvc_tomb_set(tomb, kvc_gseg(p, victim ? victim : seg), victim ? READ_ONCE(victim->generation) : 0);
}

/* Take the key from whoever has it. Member and shard locked. */
static void take_key(struct kvc_pool *p, const struct kvc_store *st)
{
	struct kvc_entry *e = kvc_entry(p, st->entry), *o = NULL;
	u32 old = kvc_index_find(p, st->bucket, kvc_domain(p, e->domain), e->key);
	const struct kvc_seg *victim = NULL;

	if (old != KVC_NONE && kvc_entry(p, old)->state == KVC_E_LIVE) {
		o = kvc_entry(p, old);
		e->mark = o->mark;
		victim = kvc_entry_seg(p, old);
		kvc_page_drop(p, st->bucket, old);
	} else if (old != KVC_NONE) {
		kvc_index_remove(p, st->bucket, old);
	}
	kvc_index_insert(p, st->bucket, st->entry);
	if (kvc_tomb_wanted(p, o))
		bury(p, kvc_entry(p, st->tomb), kvc_seg(p, st->gseg), victim);
}

static void end_store(struct kvc_pool *p, struct kvc_store *st, bool commit)
{
	struct kvc_member *m = &p->members[st->member];
	struct kvc_shard *sh = kvc_shard(p, st->bucket);
	struct kvc_entry *e = kvc_entry(p, st->entry);
	struct kvc_seg *seg = kvc_seg(p, st->gseg);

	os_lock(&m->lock);
	os_lock_inner(&sh->lock);
	st->lost = m->offline;
	if (m->offline || READ_ONCE(kvc_domain(p, e->domain)->dead))
		commit = false;
	if (unlikely(st->tomb != KVC_NONE)) {
		kvc_index_kept(p, st->bucket);
		if (commit)
			take_key(p, st);
		kvc_seg_end_beside(m, seg, e, kvc_entry(p, st->tomb));
	}
	commit = commit && e->indexed;
	if (commit) {
		e->no_crcs = st->no_crcs;
		e->seq = os_atomic64_inc_return(&p->seq);
		kvc_page_publish(p, sh, st->entry);
		m->stores++;
		if (kvc_mark_id(e->mark) & KVC_STRAY)
			WRITE_ONCE(m->strays, m->strays + 1);
		WRITE_ONCE(m->store_bytes, m->store_bytes + e->length);
		kvc_move_credit(m, kvc_blocks(e->length));
	} else {
		if (e->indexed)
			kvc_index_remove(p, st->bucket, st->entry);
		e->state = KVC_E_DEAD;
	}
	kvc_quota_pend(p, seg, e->length, true);
	kvc_seg_end_page(m, seg, e, commit);
	os_unlock_inner(&sh->lock);
	os_unlock(&m->lock);
}

void kvc_store_commit(struct kvc_pool *p, struct kvc_store *st)
{
	end_store(p, st, true);
}

void kvc_store_abort(struct kvc_pool *p, struct kvc_store *st)
{
	end_store(p, st, false);
}
