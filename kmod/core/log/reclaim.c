// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Reclaim: one segment of a member at a time, while few are available.
 *
 *	IDLE	choose a victim; it becomes VICTIM, still read and leased as before, or YIELDING, when it is taken from
 *		those who leased it (lease.c)
 *	CARRY	copy its tombstones that are still needed
 *	MOVE	copy the pages that are worth keeping, as far as the member's credit goes (victim.c)
 *	LOG	wait until all copies are durable; begins when no MOVE is out any more
 *	EVICT	if it was leased meanwhile it gets away; else it becomes DRAINING, and its pages leave the index
 *	WAIT	for the last hold; then its memory is freed and it is BLANK, to get a new header (summary.c)
 *
 * The phases are taken by kvc_reclaim_next() in the thread that executes the member's work; nothing of struct
 * kvc_reclaim is touched by another. The full barriers between setting DRAINING and reading holds pair with
 * those in load.c.
 */
#include "log/log.h"

/* No victim: the last thing to try is the move head. Else tell those who wait, once. Member locked. */
static bool despair(struct kvc_member *m)
{
	if (m->wanted && kvc_move_head(m)) {
		kvc_seg_retire(m, KVC_HEAD_MOVE);
		return false;
	}
	if (kvc_member_hope(m))
		return false;
	if (!m->hopeless)
		kvc_space(m->pool);
	m->hopeless = true;
	return true;
}

/* Member locked. */
static bool reclaimable(const struct kvc_member *m)
{
	return !m->offline && kvc_avail(m) < m->low;
}

static bool short_of_room(struct kvc_member *m)
{
	bool yes;

	os_lock(&m->lock);
	yes = reclaimable(m);
	os_unlock(&m->lock);
	return yes;
}

/*
 * Of the sealed segments, or of those that may hide pages: until they have gone no tombstone can; but not @spared.
 * NULL: all are leased. Member locked.
 */
static struct kvc_seg *oldest_sealed(struct kvc_member *m, bool hiding, const struct kvc_seg *spared)
{
	struct kvc_seg *oldest = NULL, *seg;
	u32 i;

	for (i = 0; i < m->nr_segs; i++) {
		seg = &m->segs[i];
		if (kvc_seg_can_go(m, seg) && seg->hiding >= hiding && seg != spared &&
		    (!oldest || seg->open_seq < oldest->open_seq))
			oldest = seg;
	}
	return oldest;
}

/*
 * Segments that may hide pages go first. After a victim whose tombstones were carried the oldest goes: they would be
 * carried again, unless what they are needed for has its turn too. What was stored just now stays even then, as it does
 * with the policy: a head that few pages go to is open for long. NULL: the policy has no wish.
 */
static struct kvc_seg *propose(struct kvc_member *m)
{
	struct kvc_seg *seg = NULL;

	os_lock(&m->lock);
	if (os_atomic_read(&m->pool->nr_undead))
		seg = oldest_sealed(m, true, NULL);
	if (!seg && m->reclaim.carried)
		seg = oldest_sealed(m, false, m->newest);
	if (!seg)
		seg = kvc_lease_next(m, false);
	os_unlock(&m->lock);
	if (!seg)
		return kvc_victim_choose(m);
	kvc_victim_plan(m, seg);
	return seg;
}

/* Member locked. */
static bool take(struct kvc_member *m, struct kvc_seg *seg, bool last)
{
	if (!seg || !kvc_seg_could_go(m, seg))
		return false;
	if (os_atomic_read(&seg->leases))
		return kvc_lease_yield(m, seg, last);
	kvc_seg_set_state(m, seg, KVC_S_VICTIM);
	return true;
}

/* What goes when the policy has no wish that can be fulfilled, or NULL. Member locked. */
static struct kvc_seg *take_any(struct kvc_member *m)
{
	struct kvc_seg *seg = oldest_sealed(m, false, NULL);

	m->survey->nr = 0;
	if (!seg && m->refused)
		seg = kvc_lease_next(m, true);
	return take(m, seg, true) ? seg : NULL;
}

/* 0: no victim needed or to be had; -EAGAIN: look again; 1: chosen */
static int choose(struct kvc_member *m)
{
	struct kvc_reclaim *rc = &m->reclaim;
	struct kvc_seg *seg = NULL;
	int r = 0;

	if (short_of_room(m))
		seg = propose(m);

	os_lock(&m->lock);
	if (!reclaimable(m))
		goto out;
	if (!take(m, seg, false))
		seg = take_any(m);
	if (seg) {
		rc->victim = seg;
		kvc_cursor_init(&rc->cursor);
		rc->budget = kvc_move_budget(m);
		rc->carried = false;
		rc->phase = KVC_R_CARRY;
		m->hopeless = false;
		r = 1;
	} else if (!m->list[KVC_S_SEALING].count && !despair(m)) {
		r = -EAGAIN;
	}
out:
	os_unlock(&m->lock);
	return r;
}

/* The victim gets away. Member locked. */
void kvc_victim_let_go(struct kvc_member *m)
{
	kvc_seg_set_state(m, m->reclaim.victim, KVC_S_SEALED);
	m->reclaim.victim = NULL;
	m->reclaim.phase = KVC_R_IDLE;
}

static int carry_tomb(struct kvc_member *m, u32 entry)
{
	return kvc_tomb_carry(m, KVC_HEAD_MOVE, entry);
}

static int carry(struct kvc_member *m)
{
	struct kvc_reclaim *rc = &m->reclaim;
	int r = rc->cursor.index == 0 && kvc_tombs_fill(m) ? -EAGAIN : kvc_tombs_carry(m, false, carry_tomb);

	if (r == -EAGAIN) {
		/* No room for its tombstones, or no gain in it: it cannot go until something else changes. */
		os_lock(&m->lock);
		WRITE_ONCE(rc->victim->crowded, os_atomic_read(&m->pool->rooms));
		kvc_victim_let_go(m);
		os_unlock(&m->lock);
		return -EAGAIN;
	}
	/* the member may have gone meanwhile */
	if (r)
		return r == -ENODEV ? 0 : r;
	kvc_cursor_init(&rc->cursor);
	rc->phase = KVC_R_MOVE;
	return -EAGAIN;
}

/* Length of the page if it is worth moving and the budget allows it, else 0 */
static u32 worth_moving(struct kvc_member *m, u32 entry)
{
	struct kvc_pool *p = m->pool;
	struct kvc_shard *sh = kvc_shard(p, kvc_entry_bucket(p, entry));
	const struct kvc_entry *e = kvc_entry(p, entry);
	u32 length = 0;

	os_lock(&sh->lock);
	if (e->state == KVC_E_LIVE && !READ_ONCE(kvc_domain(p, e->domain)->dead) &&
	    kvc_blocks(e->length) <= m->reclaim.budget && kvc_victim_keeps(m, e))
		length = e->length;
	os_unlock(&sh->lock);
	return length;
}

static void fill_move(struct kvc_work *w, u32 length)
{
	w->type = KVC_WORK_MOVE;
	w->kind = KVC_W_MOVE;
	w->member = w->dst.member;
	w->src_member = w->src.member;
	w->stream = w->dst.stream;
	w->gseg = w->src.gseg;
	w->offset = w->dst.offset;
	w->src_offset = w->src.offset;
	w->len = length;
	w->nr_chunks = w->src.nr_chunks;
	w->no_crcs = w->src.no_crcs;
}

/* To head @which of @m. 1: @w moves the page; 0: it is gone; -EAGAIN: no room; -ENODEV, -ENOMEM */
int kvc_move_start(struct kvc_member *m, enum kvc_head which, u32 entry, u32 length, struct kvc_work *w)
{
	struct kvc_pool *p = m->pool;
	struct kvc_shard *sh = kvc_shard(p, kvc_entry_bucket(p, entry));
	const struct kvc_entry *e = kvc_entry(p, entry);
	struct kvc_entry *copy;
	struct kvc_seg *seg;
	u32 to, i;
	int r;

	memset(w, 0, sizeof(*w));
	os_lock(&m->lock);
	if (which == KVC_HEAD_MOVE)
		r = kvc_head_prepare(m, which, kvc_blocks(length), kvc_chunks(p, length), 0, &seg);
	else
		r = kvc_page_prepare(m, which == KVC_HEAD_LONG, length, 0, &seg);
	if (r)
		goto out;
	os_lock(&sh->lock);
	if (e->state == KVC_E_LIVE) {
		to = kvc_seg_reserve_page(m, seg, kvc_domain(p, e->domain), e->key, length, e->depth, e->mark);
		copy = kvc_entry(p, to);
		copy->state = KVC_E_COPYING;
		if (which != KVC_HEAD_MOVE)
			m->newest = seg;
		copy->seq = e->seq;
		copy->no_crcs = e->no_crcs;
		os_atomic_inc(&kvc_entry_seg(p, entry)->holds);
		kvc_fill_load(p, entry, &w->src);
		kvc_fill_store(p, to, &w->dst);
		r = 1;
	}
	os_unlock(&sh->lock);
out:
	os_unlock(&m->lock);
	if (r != 1)
		return r;
	kvc_member_of(p, w->src.gseg)->reclaim.moving++;
	for (i = 0; i < w->src.nr_chunks; i++)
		kvc_store_crc(p, &w->dst, i, kvc_load_crc(p, &w->src, i));
	fill_move(w, length);
	return 1;
}

static void spend(struct kvc_member *m, u32 blocks)
{
	os_lock(&m->lock);
	m->reclaim.budget -= blocks;
	WRITE_ONCE(m->credit, m->credit - min(m->credit, KVC_CREDIT * blocks));
	os_unlock(&m->lock);
}

static int next_move(struct kvc_member *m, struct kvc_work *w)
{
	struct kvc_reclaim *rc = &m->reclaim;
	u32 entry, length;
	int r;

	while ((entry = kvc_cursor_entry(m->pool, rc->victim, &rc->cursor)) != KVC_NONE) {
		length = worth_moving(m, entry);
		r = length ? kvc_move_start(m, KVC_HEAD_MOVE, entry, length, w) : 0;
		if (r == -ENOMEM)
			return r;
		if (r < 0)
			break;
		rc->cursor.index++;
		if (r == 1) {
			spend(m, kvc_blocks(length));
			return 1;
		}
	}
	if (rc->moving)
		return 0;
	os_lock(&m->lock);
	rc->mark = m->commits;
	rc->phase = KVC_R_LOG;
	os_unlock(&m->lock);
	return -EAGAIN;
}

/* A page that was leased since the move began stays where it is: the lease is on its segment. */
void kvc_move_done(struct kvc_member *m, struct kvc_work *w, int err)
{
	struct kvc_pool *p = m->pool;
	u32 bucket = kvc_entry_bucket(p, w->src.entry);
	struct kvc_member *from = kvc_member_of(p, w->src.gseg);
	struct kvc_seg *victim = kvc_seg(p, w->src.gseg);
	struct kvc_shard *sh = kvc_shard(p, bucket);
	struct kvc_entry *copy = kvc_entry(p, w->dst.entry);
	bool ok;

	if (err == -EBADMSG)
		kvc_drop_bad(p, w->src.entry);
	os_lock(&m->lock);
	os_lock(&sh->lock);
	ok = !err && !m->offline && !READ_ONCE(from->offline) && kvc_entry(p, w->src.entry)->state == KVC_E_LIVE &&
	     !os_atomic_read(&victim->leases) && !READ_ONCE(kvc_domain(p, copy->domain)->dead);
	if (ok) {
		/* as it is now: somebody may have asked for the page meanwhile */
		u32 mark = kvc_entry(p, w->src.entry)->mark;

		kvc_seg_undead(p, victim);
		kvc_page_drop(p, bucket, w->src.entry);
		kvc_index_insert(p, bucket, w->dst.entry);
		copy->mark = mark;
		copy->copy = 1;
		kvc_page_publish(p, sh, w->dst.entry);
		m->moved_pages++;
		m->moved_bytes += copy->length;
	} else {
		copy->state = KVC_E_DEAD;
	}
	kvc_seg_end_page(m, kvc_seg(p, w->dst.gseg), copy, ok);
	os_unlock(&sh->lock);
	os_unlock(&m->lock);
	/* this is its thread */
	from->reclaim.moving--;
	if (err && err != -EBADMSG)
		from->reclaim.failed = true;
	else if (!ok)
		from->reclaim.stayed = true;
	kvc_hold_put(p, w->src.gseg);
}

/* Is all that was copied durable? The other commits of that time are waited for too. */
static bool copies_logged(struct kvc_member *m)
{
	bool durable;

	os_lock(&m->lock);
	durable = kvc_member_logged(m, m->reclaim.mark);
	os_unlock(&m->lock);
	return durable;
}

static int make_durable(struct kvc_member *m, struct kvc_work *w)
{
	if (!copies_logged(m)) {
		if (kvc_summary_any(m, w))
			return 1;
		if (!copies_logged(m))
			return 0;
	}
	m->reclaim.phase = KVC_R_EVICT;
	return -EAGAIN;
}

static void evict_page(struct kvc_pool *p, u32 entry)
{
	u32 bucket = kvc_entry_bucket(p, entry);
	struct kvc_shard *sh = kvc_shard(p, bucket);

	os_lock(&sh->lock);
	if (kvc_entry(p, entry)->state == KVC_E_LIVE) {
		struct kvc_domain *d = kvc_domain(p, kvc_entry(p, entry)->domain);

		kvc_page_lose(p, bucket, entry);
		if (!READ_ONCE(d->dead)) {
			kvc_budget_note(p, d, kvc_entry(p, entry)->key);
			sh->evicted++;
			kvc_event(d, KVC_EVENT_EVICTED, kvc_entry(p, entry));
		}
	}
	os_unlock(&sh->lock);
}

/* The victim's pages leave the index, unless it is leased: then it gets away. */
int kvc_victim_evict(struct kvc_member *m)
{
	struct kvc_reclaim *rc = &m->reclaim;
	bool goes;
	u32 entry;

	os_lock(&m->lock);
	goes = kvc_lease_end(m, rc->victim);
	if (goes)
		kvc_seg_undead(m->pool, rc->victim);
	else
		kvc_victim_let_go(m);
	os_unlock(&m->lock);
	if (!goes)
		return -EAGAIN;
	kvc_cursor_init(&rc->cursor);
	while ((entry = kvc_cursor_entry(m->pool, rc->victim, &rc->cursor)) != KVC_NONE) {
		evict_page(m->pool, entry);
		if (++rc->cursor.index % 1024 == 0)
			os_relax();
	}
	rc->phase = KVC_R_WAIT;
	return -EAGAIN;
}

/* The victim is BLANK after its last hold. 0: not yet */
int kvc_victim_finish(struct kvc_member *m)
{
	struct kvc_reclaim *rc = &m->reclaim;
	struct kvc_seg *seg = rc->victim;

	os_mb();
	if (os_atomic_read(&seg->holds))
		return 0;
	kvc_seg_free_entries(m->pool, seg);
	os_lock(&m->lock);
	WRITE_ONCE(seg->generation, 0);
	kvc_seg_set_state(m, seg, KVC_S_BLANK);
	m->reclaimed++;
	os_unlock(&m->lock);
	rc->victim = NULL;
	rc->phase = KVC_R_IDLE;
	return -EAGAIN;
}

/* 1: @w; 0: nothing to do now; -EAGAIN: a step was taken, look again; -ENOMEM */
int kvc_reclaim_next(struct kvc_member *m, struct kvc_work *w)
{
	switch (m->reclaim.phase) {
	case KVC_R_IDLE:
		return choose(m) ? -EAGAIN : 0;
	case KVC_R_CARRY:
		return carry(m);
	case KVC_R_MOVE:
		return next_move(m, w);
	case KVC_R_LOG:
		return make_durable(m, w);
	case KVC_R_EVICT:
		return kvc_victim_evict(m);
	case KVC_R_WAIT:
		return kvc_victim_finish(m);
	}
	return 0;
}
