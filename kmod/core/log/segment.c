// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Segments: states, heads, room.
 *
 * BLANK -> (HEADED ->) FREE -> OPEN -> SEALING -> SEALED -> VICTIM or YIELDING -> DRAINING -> BLANK; UNUSABLE ends it,
 * unless the member is lost and returns.
 * kvc_seg_set_state() is the only place that changes a state; the table says what each state allows and from where it
 * is entered.
 *
 * Room. The summary log grows up to data_start, pages grow down to log_end. Records that are committed but not yet in
 * an extent, and those of pending pages, have their log blocks reserved:
 *
 *	log_end + kvc_log_blocks(unlogged) + pending_blocks + (closed ? 0 : 1) <= data_start
 *
 * where the last block is for an extent that says that no page follows, in case all records were logged before that was
 * known. So every commit can be summarized, in whatever order commits and summaries come. It holds because
 *	commit	kvc_log_blocks(a + r) <= kvc_log_blocks(a) + kvc_pending_blocks(r)
 *	summary	takes all of unlogged in one extent, or more than extent_fill bytes of it, which is the least that an
 *		extent holds when the next record does not fit: kvc_log_blocks() counts an extent for each such part.
 */
#include "log/log.h"

struct state_row {
	const char *name;
	u32	from;		/* states that may become this one */
	bool	leasable;	/* its pages may be leased */
	bool	coming;		/* becomes FREE or SEALED without a further decision */
};

#define S(state)	BIT(KVC_S_##state)

static const struct state_row states[KVC_NR_S] = {
	[KVC_S_BLANK]	 = { "blank",	 S(DRAINING) | S(UNUSABLE), false, true },
	[KVC_S_HEADED]	 = { "headed",	 S(BLANK), false, false },
	[KVC_S_FREE]	 = { "free",	 S(BLANK) | S(HEADED), false, false },
	[KVC_S_OPEN]	 = { "open",	 S(FREE), true, false },
	[KVC_S_SEALING]	 = { "sealing",	 S(OPEN) | S(SEALED), true, true },
	[KVC_S_SEALED]	 = { "sealed",	 S(SEALING) | S(VICTIM) | S(YIELDING) | S(BLANK), true, false },
	[KVC_S_VICTIM]	 = { "victim",	 S(SEALED), true, true },
	[KVC_S_YIELDING] = { "yielding", S(SEALED), false, true },
	[KVC_S_DRAINING] = { "draining", S(VICTIM) | S(YIELDING), false, true },
	[KVC_S_UNUSABLE] = { "unusable", S(BLANK), false, false },
};

bool kvc_state_leasable(u32 state)
{
	return states[state].leasable;
}

static void seg_link(struct kvc_pool *p, struct kvc_seg_list *l, struct kvc_seg *seg, bool front)
{
	u32 gseg = kvc_gseg(p, seg);

	seg->prev = front ? KVC_NONE : l->last;
	seg->next = front ? l->first : KVC_NONE;
	if (seg->prev == KVC_NONE)
		l->first = gseg;
	else
		kvc_seg(p, seg->prev)->next = gseg;
	if (seg->next == KVC_NONE)
		l->last = gseg;
	else
		kvc_seg(p, seg->next)->prev = gseg;
	l->count++;
}

static void seg_unlink(struct kvc_pool *p, struct kvc_seg_list *l, struct kvc_seg *seg)
{
	if (seg->prev == KVC_NONE)
		l->first = seg->next;
	else
		kvc_seg(p, seg->prev)->next = seg->next;
	if (seg->next == KVC_NONE)
		l->last = seg->prev;
	else
		kvc_seg(p, seg->next)->prev = seg->prev;
	l->count--;
}

/* Also enters a segment into its first list, BLANK, when its list does not know it yet. */
void kvc_seg_set_state(struct kvc_member *m, struct kvc_seg *seg, enum kvc_seg_state to)
{
	bool fresh = to == KVC_S_BLANK && seg->state == KVC_S_BLANK;

	os_assert_locked(&m->lock);
	KVC_WARN_ONCE(!fresh && !(states[to].from & BIT(seg->state)));
	if (!fresh)
		seg_unlink(m->pool, &m->list[seg->state], seg);
	WRITE_ONCE(seg->state, (u8)to);
	/* An old header in a blank segment is still believed by recovery: replace those first. */
	seg_link(m->pool, &m->list[to], seg, to == KVC_S_BLANK && os_atomic_read(&seg->undead));
}

/* Media may lead to pages of the segment that nobody has read. Member locked. */
void kvc_seg_doubt(struct kvc_member *m, struct kvc_seg *seg)
{
	kvc_seg_undead(m->pool, seg);
	WRITE_ONCE(seg->min_seq, 0);
	seg->hiding = true;
	if (seg->state != KVC_S_BLANK)
		return;
	seg_unlink(m->pool, &m->list[KVC_S_BLANK], seg);
	seg_link(m->pool, &m->list[KVC_S_BLANK], seg, true);
}

void kvc_seg_undead(struct kvc_pool *p, struct kvc_seg *seg)
{
	/* counted first: where the count is 0 nobody looks at the segments */
	os_atomic_inc_return(&p->nr_undead);
	if (os_atomic_xchg(&seg->undead, 1))
		os_atomic_dec_and_test(&p->nr_undead);
}

u32 kvc_log_blocks(const struct kvc_pool *p, u32 rec_bytes)
{
	u32 extents = (rec_bytes + p->extent_fill - 1) / p->extent_fill;

	if (rec_bytes == 0)
		return 0;
	return kvc_blocks((u64)rec_bytes + extents * KVC_EXTENT_HEADER) + extents - 1;
}

static u32 log_reserve(const struct kvc_pool *p, const struct kvc_seg *seg)
{
	return seg->log_end + kvc_log_blocks(p, seg->unlogged) + seg->pending_blocks + !seg->closed;
}

void kvc_seg_check(const struct kvc_pool *p, const struct kvc_seg *seg)
{
	KVC_WARN_ONCE(log_reserve(p, seg) > seg->data_start);
}

bool kvc_seg_fits(const struct kvc_pool *p, const struct kvc_seg *seg, u32 blocks, u32 rec_bytes)
{
	/* one more for a record beside this one, and one that it may cost, see kvc_seg_pair() */
	return seg->nr_entries + seg->nr_strays + 2 < kvc_seg_entries_max(p) &&
	       log_reserve(p, seg) + kvc_pending_blocks(rec_bytes) + blocks <= seg->data_start;
}

/*
 * May it be evicted, but for leases: sealed, not without room for its tombstones or with some that nobody can copy, and
 * not in vain, where headers cannot be written? Without the lock it is a guess.
 */
bool kvc_seg_could_go(const struct kvc_member *m, const struct kvc_seg *seg)
{
	return READ_ONCE(seg->state) == KVC_S_SEALED && !READ_ONCE(seg->rooted) &&
	       READ_ONCE(seg->crowded) != os_atomic_read(&m->pool->rooms) &&
	       READ_ONCE(m->headers_failed) < KVC_HEADERS_FAIL;
}

bool kvc_seg_evictable(const struct kvc_member *m, const struct kvc_seg *seg)
{
	return kvc_seg_could_go(m, seg) && !os_atomic_read(&seg->leases);
}

/* And may it, whoever asks for the room? */
bool kvc_seg_can_go(const struct kvc_member *m, const struct kvc_seg *seg)
{
	return kvc_seg_evictable(m, seg) && !kvc_quota_keeps(m->pool, seg);
}

/* Is room under way that nobody has to be evicted for? Member locked. */
bool kvc_room_coming(const struct kvc_member *m)
{
	bool coming = kvc_move_head(m) || m->discarding;
	u32 i;

	for (i = 0; i < KVC_NR_S; i++)
		coming |= states[i].coming && m->list[i].count;
	return coming;
}

/* The segment as its new header leaves it: empty. Entries and CRCs were freed before. */
void kvc_seg_reset(struct kvc_pool *p, struct kvc_seg *seg)
{
	u32 i;

	for (i = 0; i < KVC_SLOT_WORDS; i++)
		WRITE_ONCE(seg->tenants[i], U64_MAX);
	seg->log_end = 1;
	seg->data_start = p->seg_blocks;
	seg->unlogged = 0;
	seg->pending = 0;
	seg->pending_blocks = 0;
	seg->discarded = 1;
	seg->old = false;
	seg->closed = false;
	seg->endless = false;
	seg->torn = false;
	seg->hiding = false;
	WRITE_ONCE(seg->rooted, false);
	WRITE_ONCE(seg->min_seq, U64_MAX);
	kvc_cursor_init(&seg->log_cursor);
}

u32 kvc_avail(const struct kvc_member *m)
{
	return m->list[KVC_S_BLANK].count + m->list[KVC_S_HEADED].count + m->list[KVC_S_FREE].count;
}

/* Segments that a head could be opened in. Member locked. */
u32 kvc_ready(const struct kvc_member *m)
{
	return m->list[KVC_S_FREE].count + m->list[KVC_S_HEADED].count - (m->discarding ? 1 : 0);
}

/* One of them, or NULL. Member locked. */
struct kvc_seg *kvc_ready_take(struct kvc_member *m)
{
	struct kvc_pool *p = m->pool;
	struct kvc_seg *seg;

	if (m->list[KVC_S_FREE].count)
		return kvc_seg(p, m->list[KVC_S_FREE].first);
	if (!m->list[KVC_S_HEADED].count)
		return NULL;
	seg = kvc_seg(p, m->list[KVC_S_HEADED].last);
	if (seg == m->discarding)
		return NULL;
	kvc_seg_set_state(m, seg, KVC_S_FREE);
	return seg;
}

/* New pages leave one free segment to the move head: without it nothing could be reclaimed any more. */
struct kvc_seg *kvc_head_open(struct kvc_member *m, enum kvc_head which)
{
	u32 spare = which == KVC_HEAD_MOVE ? 0 : 1;
	struct kvc_pool *p = m->pool;
	struct kvc_seg *seg = kvc_ready(m) > spare ? kvc_ready_take(m) : NULL;

	if (!seg) {
		kvc_kick(m);
		return NULL;
	}
	kvc_seg_set_state(m, seg, KVC_S_OPEN);
	seg->open_seq = os_atomic64_inc_return(&p->open_seq);
	seg->used = true;
	WRITE_ONCE(seg->head, (u8)which);
	m->head[which] = seg;
	if (which >= KVC_HEAD_OWN) {
		m->nr_heads = max_t(u32, m->nr_heads, which + 1);
		kvc_quota_seg(m, which - KVC_HEAD_OWN, false);
	}
	kvc_kick(m);
	return seg;
}

/* Nothing is added to its log any more, as its end is not known. Member locked. */
void kvc_seg_end_log(struct kvc_seg *seg)
{
	seg->endless = true;
	seg->log_end = seg->data_start;
}

void kvc_seg_try_seal(struct kvc_member *m, struct kvc_seg *seg)
{
	if (seg->state != KVC_S_SEALING || seg->pending || seg->unlogged || seg->writing || !seg->closed)
		return;
	kvc_seg_set_state(m, seg, KVC_S_SEALED);
	os_atomic_inc(&m->pool->rooms);
	m->sealed++;
}

void kvc_seg_retire(struct kvc_member *m, enum kvc_head which)
{
	struct kvc_seg *seg = m->head[which];

	m->head[which] = NULL;
	kvc_seg_set_state(m, seg, KVC_S_SEALING);
	kvc_seg_try_seal(m, seg);
	kvc_kick(m);
}

/*
 * Near the limit of memory reclaim begins; at it a head goes on only if it @must. Nothing is opened for what all
 * tenants share: each that is given up may have tombstones, whose memory evictions do not give back. Member locked.
 */
static bool head_waits(struct kvc_member *m, bool must)
{
	if (likely(!kvc_memory_pressed(m->pool)))
		return false;
	kvc_kick(m);
	return !must && kvc_memory_full(m->pool);
}

int kvc_head_prepare(struct kvc_member *m, enum kvc_head which, u32 blocks, u32 nr_crcs, u32 beside,
		     struct kvc_seg **out)
{
	u32 rec_bytes = kvc_rec_bytes(nr_crcs) + beside;
	struct kvc_seg *seg;
	int r;

	for (;;) {
		if (m->offline || m->leaving)
			return -ENODEV;
		seg = m->head[which];
		if (!seg || !kvc_seg_fits(m->pool, seg, blocks, rec_bytes)) {
			if (head_waits(m, which != KVC_HEAD_NEW && which != KVC_HEAD_LONG))
				return -ENOBUFS;
			if (seg)
				kvc_seg_retire(m, which);
			seg = kvc_head_open(m, which);
		}
		if (!seg)
			return -EAGAIN;
		if (likely(!kvc_seg_lacks(seg, nr_crcs)))
			break;
		if (head_waits(m, which == KVC_HEAD_MOVE))
			return -ENOBUFS;
		r = kvc_seg_grow(m, seg, nr_crcs);
		if (r < 0)
			return r;
	}
	*out = seg;
	return 0;
}

u32 kvc_seg_reserve_page(struct kvc_member *m, struct kvc_seg *seg, struct kvc_domain *d, const u8 *key, u32 length,
			 u32 depth, u32 request)
{
	struct kvc_pool *p = m->pool;
	u32 entry = kvc_seg_append(p, seg, d, key);
	struct kvc_entry *e = kvc_entry(p, entry);

	seg->data_start -= kvc_blocks(length);
	seg->pending++;
	seg->pending_blocks += kvc_pending_blocks(kvc_page_rec_bytes(p, length));
	e->block = seg->data_start;
	e->length = length;
	e->depth = min_t(u32, depth, KVC_DEPTH_MAX);
	e->mark = request;
	e->crc_base = seg->nr_crcs;
	e->state = KVC_E_PENDING;
	seg->nr_crcs += kvc_chunks(p, length);
	kvc_seg_check(p, seg);
	return entry;
}

/* Count a record that a summary must take. Shard locked too. */
void kvc_seg_count(struct kvc_member *m, struct kvc_seg *seg, struct kvc_entry *e, u32 rec_bytes)
{
	u32 before = seg->unlogged;

	os_assert_locked(&m->lock);
	e->counted = 1;
	m->commits++;
	if (before == 0)
		seg->dirty_since = m->commits;
	seg->unlogged += rec_bytes;
	if (before < KVC_LOG_THRESHOLD && seg->unlogged >= KVC_LOG_THRESHOLD)
		kvc_kick(m);
}

/* What a tombstone beside the page's record adds to the blocks that are kept for it */
static u32 beside_blocks(const struct kvc_pool *p, const struct kvc_entry *e)
{
	u32 rec_bytes = kvc_page_rec_bytes(p, e->length);

	return kvc_pending_blocks(rec_bytes + KVC_REC_FIXED) - kvc_pending_blocks(rec_bytes);
}

void kvc_seg_reserve_beside(struct kvc_member *m, struct kvc_seg *seg, const struct kvc_entry *e)
{
	os_assert_locked(&m->lock);
	seg->pending_blocks += beside_blocks(m->pool, e);
	kvc_seg_check(m->pool, seg);
}

void kvc_seg_end_beside(struct kvc_member *m, struct kvc_seg *seg, const struct kvc_entry *e, struct kvc_entry *beside)
{
	os_assert_locked(&m->lock);
	seg->pending_blocks -= beside_blocks(m->pool, e);
	if (beside->state == KVC_E_TOMB)
		kvc_seg_count(m, seg, beside, KVC_REC_FIXED);
}

void kvc_seg_end_page(struct kvc_member *m, struct kvc_seg *seg, struct kvc_entry *e, bool commit)
{
	u32 rec_bytes = kvc_page_rec_bytes(m->pool, e->length);

	os_assert_locked(&m->lock);
	seg->pending--;
	seg->pending_blocks -= kvc_pending_blocks(rec_bytes);
	if (commit) {
		WRITE_ONCE(seg->min_seq, min_t(u64, seg->min_seq, e->seq));
		kvc_seg_count(m, seg, e, rec_bytes);
	}
	kvc_seg_check(m->pool, seg);
	if (seg->state == KVC_S_SEALING && !seg->pending) {
		kvc_seg_try_seal(m, seg);
		kvc_kick(m);
	}
}

/* Are there pages in the move head that reserves keep, and that would only be moved to the next one? Member locked. */
static os_racy bool would_be_moved(const struct kvc_member *m, const struct kvc_seg *seg)
{
	struct kvc_pool *p = m->pool;
	struct kvc_cursor c;
	u32 entry, slot;

	if (likely(!READ_ONCE(p->quota.on)) || kvc_ready(m) > 1)
		return false;
	kvc_cursor_init(&c);
	for (; (entry = kvc_cursor_entry(p, seg, &c)) != KVC_NONE; c.index++) {
		const struct kvc_entry *e = kvc_entry(p, entry);
		const struct kvc_seg *own;

		if (e->state != KVC_E_LIVE)
			continue;
		slot = kvc_domain(p, e->domain)->slot;
		own = m->head[kvc_quota_head(p, slot, KVC_HEAD_MOVE)];
		if (kvc_quota_guards(p, seg, slot) &&
		    (!own || !kvc_seg_fits(p, own, kvc_blocks(e->length), kvc_page_rec_bytes(p, e->length))))
			return true;
	}
	return false;
}

/*
 * The move head, if to give it up could make room: not for tombstones alone, which would have to go somewhere, nor for
 * pages that have to.
 */
struct kvc_seg *kvc_move_head(const struct kvc_member *m)
{
	struct kvc_seg *seg = m->head[KVC_HEAD_MOVE];

	os_assert_locked(&m->lock);
	return seg && seg->data_start < m->pool->seg_blocks && !would_be_moved(m, seg) ? seg : NULL;
}
