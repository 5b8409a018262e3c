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
 * A tenant at its quota has a segment of its own evicted so, if that is needed for nothing else (own.c, quota.c).
 *
 * The phases are taken by kvc_reclaim_next() in the thread that executes the member's work; nothing of struct
 * kvc_reclaim is touched by another. The full barriers between setting DRAINING and reading holds pair with
 * those in load.c.
 */
#include "log/log.h"

/* Tell who traces of a segment of @m. */
#define trace_seg(event, m, seg) \
	os_trace(event, (m)->pool->super.pool_name, (m)->index, (u32)((seg) - (m)->segs), \
		 os_atomic64_read(&(seg)->live_bytes))

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

static bool short_of_segments(const struct kvc_member *m)
{
	return kvc_avail(m) < m->low;
}

/* Member locked. */
static bool reclaimable(const struct kvc_member *m)
{
	return !m->offline && (short_of_segments(m) || kvc_memory_pressed(m->pool));
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
		if (kvc_victim_may_be(m, seg) && seg->hiding >= hiding && seg != spared &&
		    (!oldest || seg->open_seq < oldest->open_seq))
			oldest = seg;
	}
	return oldest;
}

/*
 * Segments that may hide pages go first. After a victim whose tombstones were carried the oldest goes: they would be
 * carried again, unless what they are needed for has its turn too. What was stored just now stays even then, as it does
 * with the policy: a head that few pages go to is open for long. Not so for memory, of which tombstones take as much
 * wherever they are. NULL: the policy has no wish.
 */
static struct kvc_seg *propose(struct kvc_member *m)
{
	struct kvc_seg *seg = NULL;
	bool memory;

	os_lock(&m->lock);
	memory = !short_of_segments(m);
	if (os_atomic_read(&m->pool->nr_undead))
		seg = oldest_sealed(m, true, NULL);
	if (!seg && memory)
		seg = kvc_memory_victim(m);
	else if (!seg && m->reclaim.carried)
		seg = oldest_sealed(m, false, m->newest);
	if (!seg && !memory)
		seg = kvc_lease_next(m, false);
	os_unlock(&m->lock);
	if (seg)
		kvc_victim_plan(m, seg);
	else if (!memory)
		seg = kvc_victim_choose(m);
	return seg;
}

/* Member locked. */
static bool take(struct kvc_member *m, struct kvc_seg *seg, bool last)
{
	if (!seg || !kvc_seg_could_go(m, seg) || (!m->reclaim.whose && kvc_quota_keeps(m->pool, seg)))
		return false;
	if (os_atomic_read(&seg->leases))
		return kvc_lease_yield(m, seg, last);
	kvc_seg_set_state(m, seg, KVC_S_VICTIM);
	return true;
}

/*
 * What goes when the policy has no wish that can be fulfilled, or NULL. It may just have been overtaken, so of this one
 * too is moved what is worth it. Member locked, but not all the time.
 */
static struct kvc_seg *take_any(struct kvc_member *m)
{
	struct kvc_seg *seg = short_of_segments(m) ? oldest_sealed(m, false, NULL) : kvc_memory_victim(m);

	m->survey->nr = 0;
	if (!seg && (m->refused || READ_ONCE(m->pool->memory.wanted)))
		seg = kvc_lease_next(m, true);
	if (!seg)
		return NULL;
	os_unlock(&m->lock);
	kvc_victim_plan(m, seg);
	os_lock(&m->lock);
	return reclaimable(m) && take(m, seg, true) ? seg : NULL;
}

/* With @seg, which was taken. Member locked. */
static void begin(struct kvc_member *m, struct kvc_seg *seg)
{
	struct kvc_reclaim *rc = &m->reclaim;

	rc->victim = seg;
	kvc_memory_going(m, kvc_seg_bytes(m->pool, seg));
	kvc_cursor_init(&rc->cursor);
	rc->budget = kvc_move_budget(m);
	rc->carried = false;
	rc->phase = KVC_R_CARRY;
	m->hopeless = false;
	m->no_memory = false;
	trace_seg(victim_chosen, m, seg);
}

/* A segment of the tenant's own goes: 1; -EAGAIN: one may soon be had; -ENOENT: there is none */
static int choose_own(struct kvc_member *m, u32 slot)
{
	struct kvc_seg *seg = NULL;
	bool closing = false, any;
	int r;

	m->reclaim.whose = slot + 1;
	m->reclaim.spills = false;
	any = kvc_own_count(m, slot, &closing);
	if (any)
		seg = kvc_victim_choose(m);
	os_lock(&m->lock);
	if (any && (!seg || !kvc_victim_may_be(m, seg))) {
		m->survey->nr = 0;
		seg = oldest_sealed(m, false, NULL);
	}
	if (take(m, seg, false))
		begin(m, seg);
	else
		m->reclaim.whose = 0;
	r = m->reclaim.whose ? 1 : m->list[KVC_S_SEALING].count ? -EAGAIN : -ENOENT;
	os_unlock(&m->lock);
	return r;
}

/* A tenant was asked to evict its own: 1: something is chosen; 0: not yet; -EAGAIN: a step was taken */
static int serve(struct kvc_member *m, u32 slot)
{
	struct kvc_pool *p = m->pool;
	int r;

	if (kvc_quota_full(p, slot)) {
		r = choose_own(m, slot);
		if (r == 1)
			return 1;
		if (kvc_own_trim(m, slot))
			return -EAGAIN;
		if (r == -EAGAIN)
			return 0;
		kvc_own_unask(m, slot);
		if (kvc_own_ask(p, slot))
			return -EAGAIN;
		if (kvc_quota_over(p, slot))
			WRITE_ONCE(p->quota.late, true);
	} else {
		kvc_own_unask(m, slot);
	}
	kvc_space(p);
	return -EAGAIN;
}

/* Who is over a quota? If nothing of theirs can go now, because it is leased, they are asked once more afterwards. */
static void ask_over(struct kvc_pool *p)
{
	bool late = false;
	u32 i;

	os_mb();
	for (i = 0; i < KVC_TENANTS_MAX; i++)
		late |= kvc_quota_over(p, i) && !kvc_own_ask(p, i);
	if (!late)
		WRITE_ONCE(p->quota.late, false);
}

/* Limits have changed, or the pool was recovered. */
static void review(struct kvc_member *m)
{
	struct kvc_pool *p = m->pool;

	m->plan = READ_ONCE(p->quota.plan);
	kvc_own_adopt(m);
	WRITE_ONCE(p->quota.late, true);
}

/* As serve(), for all tenants */
static int serve_quotas(struct kvc_member *m)
{
	int r = 0;
	u32 i;

	if (m->plan != READ_ONCE(m->pool->quota.plan))
		review(m);
	if (READ_ONCE(m->pool->quota.late))
		ask_over(m->pool);
	for (i = 0; !r && READ_ONCE(m->nr_asked) && i < KVC_TENANTS_MAX; i++)
		if (m->asked[i])
			r = serve(m, i);
	return r;
}

/* Somebody waits for it. Member locked. */
static struct kvc_seg *spilled(struct kvc_member *m)
{
	struct kvc_seg *seg = kvc_spilled(m);

	m->spills = false;
	m->reclaim.spills = seg;
	if (seg) {
		m->reclaim.whose = kvc_seg_owner(seg);
		kvc_seg_set_state(m, seg, KVC_S_VICTIM);
	} else {
		kvc_space(m->pool);
	}
	return seg;
}

/* 0: no victim needed or to be had; -EAGAIN: look again; 1: chosen */
static int choose(struct kvc_member *m)
{
	struct kvc_seg *seg = NULL;
	int r = 0;

	if (unlikely(READ_ONCE(m->pool->quota.on)))
		r = serve_quotas(m);
	if (r == 1)
		return r;
	if (short_of_room(m))
		seg = propose(m);

	os_lock(&m->lock);
	if (!reclaimable(m))
		goto out;
	if (!take(m, seg, false))
		seg = take_any(m);
	/* it may have got room, or been lost, meanwhile */
	if (!seg && !reclaimable(m))
		goto out;
	if (!seg && m->spills && short_of_segments(m))
		seg = spilled(m);
	if (seg) {
		begin(m, seg);
		r = 1;
	} else if (!r && !m->list[KVC_S_SEALING].count) {
		if (kvc_memory_pressed(m->pool) && !kvc_memory_despair(m))
			r = -EAGAIN;
		else if (short_of_segments(m) && !despair(m))
			r = -EAGAIN;
	}
out:
	os_unlock(&m->lock);
	return r;
}

/* The victim gets away. Member locked. */
void kvc_victim_let_go(struct kvc_member *m)
{
	kvc_memory_going(m, 0);
	kvc_seg_set_state(m, m->reclaim.victim, KVC_S_SEALED);
	m->reclaim.victim = NULL;
	m->reclaim.whose = 0;
	m->reclaim.phase = KVC_R_IDLE;
}

static int carry_tomb(struct kvc_member *m, u32 entry)
{
	return kvc_tomb_carry(m, KVC_HEAD_MOVE, entry);
}

/*
 * Would the page have to go to the move head, as a reserve keeps it? Those of a tenant without a home always do; others
 * when no segment can be opened for them. Member locked.
 */
static bool goes_nowhere(const struct kvc_member *m, const struct kvc_entry *e)
{
	struct kvc_pool *p = m->pool;
	u32 slot = kvc_domain(p, e->domain)->slot, head = kvc_quota_head(p, slot, KVC_HEAD_MOVE);
	const struct kvc_seg *own = m->head[head];

	if (!kvc_quota_guards(p, m->reclaim.victim, slot))
		return false;
	return head == KVC_HEAD_MOVE ||
	       (kvc_ready(m) < 2 &&
		(!own || !kvc_seg_fits(p, own, kvc_blocks(e->length), kvc_page_rec_bytes(p, e->length))));
}

/*
 * Is the victim full of pages that reserves keep, none of which is gone? Elsewhere they take as much room, until there
 * is a segment to open for their tenants.
 */
static os_racy bool kept_fill(struct kvc_member *m)
{
	const struct kvc_seg *victim = m->reclaim.victim;
	struct kvc_pool *p = m->pool;
	bool all = true, any = false;
	struct kvc_cursor c;
	u32 entry;

	if (likely(!READ_ONCE(p->quota.on)) || kvc_seg_owner(victim))
		return false;
	os_lock(&m->lock);
	kvc_cursor_init(&c);
	for (; all && (entry = kvc_cursor_entry(p, victim, &c)) != KVC_NONE; c.index++) {
		const struct kvc_entry *e = kvc_entry(p, entry);

		if (e->state == KVC_E_TOMB)
			continue;
		all = e->state == KVC_E_LIVE && goes_nowhere(m, e);
		any = true;
	}
	os_unlock(&m->lock);
	return all && any;
}

static int carry(struct kvc_member *m)
{
	struct kvc_reclaim *rc = &m->reclaim;
	bool begins = rc->cursor.index == 0, kept = begins && kept_fill(m);
	int r = kept || (begins && kvc_tombs_fill(m)) ? -EAGAIN : kvc_tombs_carry(m, false, carry_tomb);

	if (r == -EAGAIN) {
		/* No room for its tombstones, or no gain in it: it cannot go until something else changes. */
		os_lock(&m->lock);
		rc->victim->reserved = kept;
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
	    (kvc_quota_guards(p, m->reclaim.victim, kvc_domain(p, e->domain)->slot) ||
	     (kvc_blocks(e->length) <= m->reclaim.budget && kvc_victim_keeps(m, e))))
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
	r = kvc_copy_prepare(m, which, kvc_domain(p, e->domain)->slot, length, &seg);
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
		if (which == KVC_HEAD_MOVE)
			w->dst.stream = KVC_STREAM_NEW + KVC_HEAD_MOVE;
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
	if (unlikely(kvc_domain(p, e->domain)->encrypted))
		kvc_store_nonce(p, &w->dst, kvc_load_nonce(p, &w->src));
	fill_move(w, length);
	return 1;
}

static void spend(struct kvc_member *m, u32 blocks)
{
	os_lock(&m->lock);
	m->reclaim.budget -= min(m->reclaim.budget, blocks);
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
	os_trace(page_moved, p->super.pool_name, kvc_domain(p, copy->domain)->slot, from->index,
		 kvc_gseg_local(w->src.gseg), (s32)m->index, w->len, ok ? 0 : err ? err : -EBUSY);
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
		kvc_page_evict(m->pool, entry, NULL);
		if (++rc->cursor.index % 1024 == 0)
			os_relax();
	}
	trace_seg(victim_emptied, m, rc->victim);
	rc->phase = KVC_R_WAIT;
	return -EAGAIN;
}

/* How much of whom goes with the victim */
static os_racy void count_victim(struct kvc_member *m)
{
	const struct kvc_seg *seg = m->reclaim.victim;
	struct kvc_pool *p = m->pool;
	struct kvc_cursor c;
	u32 entry;

	memset(m->survey->bytes, 0, sizeof(m->survey->bytes));
	kvc_cursor_init(&c);
	for (; (entry = kvc_cursor_entry(p, seg, &c)) != KVC_NONE; c.index++) {
		const struct kvc_entry *e = kvc_entry(p, entry);

		if (e->state == KVC_E_LIVE)
			m->survey->bytes[kvc_domain(p, e->domain)->slot] += e->length;
	}
}

/* The same where tenants have quotas and reserves. What would break a reserve gets away. */
static int evict(struct kvc_member *m)
{
	struct kvc_reclaim *rc = &m->reclaim;
	struct kvc_pool *p = m->pool;
	int r;

	if (likely(!READ_ONCE(p->quota.on)))
		return kvc_victim_evict(m);
	/* it is not at its quota any more: its reserve counts */
	if (rc->whose && !rc->spills && !kvc_quota_full(p, rc->whose - 1))
		rc->whose = 0;
	count_victim(m);
	if (!kvc_quota_leave(p, rc->victim, m->survey, rc->whose)) {
		os_lock(&m->lock);
		rc->victim->reserved = false;
		WRITE_ONCE(rc->victim->crowded, os_atomic_read(&p->rooms));
		kvc_victim_let_go(m);
		os_unlock(&m->lock);
		return -EAGAIN;
	}
	r = kvc_victim_evict(m);
	kvc_quota_left(p, m->survey);
	/* who is at the quota waits for this, and not for room */
	kvc_space(p);
	return r;
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
	kvc_memory_back(m->pool);
	os_lock(&m->lock);
	kvc_memory_going(m, 0);
	WRITE_ONCE(seg->generation, 0);
	kvc_seg_set_state(m, seg, KVC_S_BLANK);
	if (kvc_seg_owner(seg))
		kvc_quota_seg(m, kvc_seg_owner(seg) - 1, true);
	WRITE_ONCE(seg->head, KVC_HEAD_NEW);
	m->reclaimed++;
	os_unlock(&m->lock);
	trace_seg(segment_freed, m, seg);
	rc->victim = NULL;
	rc->whose = 0;
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
		return evict(m);
	case KVC_R_WAIT:
		return kvc_victim_finish(m);
	}
	return 0;
}
