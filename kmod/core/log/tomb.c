// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Tombstones: where they go, and how long they are needed.
 *
 * A tombstone is a record with a newer sequence than the page it killed. It names where that page's record lies:
 * member, segment, generation. Recovery believes a log by the header in front of it, so the rule is about headers on
 * media.
 *
 * The rule. A tombstone of key K with sequence t may be dropped when no header that a recovery could find, whenever the
 * power goes, leads to a record of a page of K that is older than t, other than one that another tombstone of K, which
 * is not dropped, kills too. A header can be found until the next one in its place is durable: while that is on its
 * way, or when writing it failed, the old one can. The segment that the tombstone itself lies in does not count, as
 * both go with one write. A tombstone of a removed tenant may be dropped when every superblock that can be found says
 * so.
 *
 * What memory knows of media, so that the rule can be decided:
 *	seg->believed	generation of the header that can be found, from recovery or from the moment that it is durable
 *			until another one is; not that of the segment's use in memory, which begins and ends earlier
 *	seg->undead	the log may lead to pages that no tombstone names: they were evicted, moved, dropped or lost
 *			against another record, or nobody has read them (kvc_seg_doubt()). Set before the page leaves
 *			the index, cleared when the next header is durable
 *	seg->min_seq	no page that it leads to is older
 *	domain->gone	every superblock that can be found is without the tenant
 *
 * A tombstone is needed when the segment that it names still has that generation believed, or when any segment that is
 * undead, or on a member that is offline, may lead to an older page.
 *
 * Both only ever go from needed to not needed, for a given tombstone: a generation is never believed again, and what is
 * older than the tombstone left the index, and made its segment undead, before the tombstone came. So who goes over a
 * victim may look at what is stale once at its beginning, whatever others do meanwhile, and for the segment that each
 * tombstone names at believed when its turn comes.
 */
#include "log/log.h"

/* May media hold a record of the page, or an older one of its key that no other tombstone covers? NULL: it is absent */
bool kvc_tomb_wanted(const struct kvc_pool *p, const struct kvc_entry *e)
{
	return (e && (e->logged || e->copy)) || os_atomic_read(&p->nr_undead) || os_atomic_read(&p->nr_offline);
}

/* Put a tombstone into @seg, which kvc_tomb_prepare() gave. Member and the key's shard locked. */
void kvc_tomb_append(struct kvc_member *m, struct kvc_seg *seg, const struct kvc_tomb *t)
{
	struct kvc_pool *p = m->pool;
	struct kvc_entry *e = kvc_entry(p, kvc_seg_append(p, seg, t->domain, t->key));

	e->state = KVC_E_TOMB;
	e->seq = t->seq;
	kvc_tomb_set(e, t->victim, t->victim_gen);
	kvc_seg_count(m, seg, e, KVC_REC_FIXED);
	kvc_seg_check(p, seg);
}

static bool tomb_fits(const struct kvc_pool *p, u32 gseg)
{
	return kvc_seg_fits(p, kvc_seg(p, gseg), 0, KVC_REC_FIXED);
}

/* A sealed segment with a gap between log and pages takes tombstones too: it is sealed once more afterwards. */
static struct kvc_seg *tomb_gap(struct kvc_member *m)
{
	struct kvc_pool *p = m->pool;
	u32 gseg;

	for (gseg = m->list[KVC_S_SEALING].first; gseg != KVC_NONE; gseg = kvc_seg(p, gseg)->next)
		if (tomb_fits(p, gseg))
			return kvc_seg(p, gseg);
	for (gseg = m->list[KVC_S_SEALED].first; gseg != KVC_NONE; gseg = kvc_seg(p, gseg)->next)
		if (tomb_fits(p, gseg))
			return kvc_seg(p, gseg);
	return NULL;
}

static struct kvc_seg *tomb_seg(struct kvc_member *m, enum kvc_head which)
{
	struct kvc_seg *seg;
	u32 i;

	for (i = 0; i < KVC_NR_HEADS; i++)
		if (m->head[i] && kvc_seg_fits(m->pool, m->head[i], 0, KVC_REC_FIXED))
			return m->head[i];
	seg = tomb_gap(m);
	if (seg)
		return seg;
	if (m->head[which])
		kvc_seg_retire(m, which);
	return kvc_head_open(m, which);
}

int kvc_tomb_prepare(struct kvc_member *m, enum kvc_head which, struct kvc_seg **out)
{
	struct kvc_seg *seg;
	int r;

	for (;;) {
		if (m->offline || m->leaving)
			return -ENODEV;
		seg = tomb_seg(m, which);
		if (!seg)
			return -EAGAIN;
		r = kvc_seg_grow(m, seg, 0);
		if (r < 0)
			return r;
		if (r == 0)
			break;
	}
	if (seg->state == KVC_S_SEALED)
		kvc_seg_set_state(m, seg, KVC_S_SEALING);
	*out = seg;
	return 0;
}

static u64 oldest_stale_on(struct kvc_member *m, const struct kvc_seg *victim)
{
	bool offline = READ_ONCE(m->offline);
	u64 oldest = U64_MAX;
	u32 nr_segs, i;

	os_lock(&m->lock);
	nr_segs = m->nr_segs;
	os_unlock(&m->lock);
	for (i = 0; i < nr_segs; i++) {
		const struct kvc_seg *seg = &m->segs[i];

		if (seg != victim && (offline || os_atomic_read(&seg->undead)))
			oldest = min(oldest, READ_ONCE(seg->min_seq));
	}
	return oldest;
}

/* Of the pages that no tombstone names the oldest. Not counted: @victim, and member @without; either may be NULL. */
u64 kvc_oldest_stale(const struct kvc_pool *p, const struct kvc_seg *victim, const struct kvc_member *without)
{
	u32 nr = kvc_nr_members(p), known = victim ? os_atomic_read(&victim->undead) : 0, i;
	u64 oldest = U64_MAX;

	if (!os_atomic_read(&p->nr_offline) && os_atomic_read(&p->nr_undead) == known)
		return U64_MAX;
	for (i = 0; i < nr; i++)
		if (&p->members[i] != without)
			oldest = min(oldest, oldest_stale_on(&p->members[i], victim));
	return oldest;
}

static bool entry_is_tomb(struct kvc_pool *p, u32 entry)
{
	struct kvc_shard *sh = kvc_shard(p, kvc_entry_bucket(p, entry));
	bool tomb;

	os_lock(&sh->lock);
	tomb = kvc_entry(p, entry)->state == KVC_E_TOMB;
	os_unlock(&sh->lock);
	return tomb;
}

/* By the rule, with @victim and member @without not counted. @stale: what kvc_oldest_stale() said of the same */
bool kvc_tomb_needed(const struct kvc_pool *p, const struct kvc_seg *victim, const struct kvc_member *without,
		     u64 stale, const struct kvc_entry *e)
{
	const struct kvc_seg *named = kvc_seg(p, kvc_tomb_victim(e));

	if (READ_ONCE(kvc_domain(p, e->domain)->gone))
		return false;
	if (e->seq > stale)
		return true;
	if (named == victim || &p->members[named->member] == without)
		return false;
	return READ_ONCE(named->believed) == kvc_tomb_gen(e);
}

/* Copy a tombstone to @m: 0, -EAGAIN (no room), -ENODEV, -ENOMEM */
int kvc_tomb_carry(struct kvc_member *m, enum kvc_head which, u32 entry)
{
	struct kvc_pool *p = m->pool;
	struct kvc_shard *sh = kvc_shard(p, kvc_entry_bucket(p, entry));
	const struct kvc_entry *e = kvc_entry(p, entry);
	struct kvc_seg *seg;
	int r;

	os_lock(&m->lock);
	r = kvc_tomb_prepare(m, which, &seg);
	if (!r) {
		os_lock(&sh->lock);
		kvc_tomb_append(m, seg, &(struct kvc_tomb){
			.domain = kvc_domain(p, e->domain),
			.key = e->key,
			.seq = e->seq,
			.victim = kvc_tomb_victim(e),
			.victim_gen = kvc_tomb_gen(e),
		});
		os_unlock(&sh->lock);
	}
	os_unlock(&m->lock);
	return r;
}

/*
 * Has the victim of @m nothing but tombstones, and so many that are needed that they would take elsewhere most of what
 * its end gives? A segment has room for so many entries, however short they are.
 */
bool kvc_tombs_fill(struct kvc_member *m)
{
	const struct kvc_seg *victim = m->reclaim.victim;
	struct kvc_pool *p = m->pool;
	u32 needed = 0, entry;
	struct kvc_cursor c;
	u64 stale;

	/* recovery takes a block of its logs */
	if (p->seg_blocks - victim->data_start > 1)
		return false;
	stale = kvc_oldest_stale(p, victim, NULL);
	kvc_cursor_init(&c);
	while ((entry = kvc_cursor_entry(p, victim, &c)) != KVC_NONE) {
		needed += entry_is_tomb(p, entry) && kvc_tomb_needed(p, victim, NULL, stale, kvc_entry(p, entry));
		c.index++;
	}
	return needed >= kvc_seg_entries_max(p) / 4 * 3;
}

/*
 * Go on with the tombstones of the victim of @m, which is reclaimed, or leaves with its member: have those carried that
 * are needed without it, or without the whole member. 0: all are; else what @carry said, who is asked again the next
 * time.
 */
int kvc_tombs_carry(struct kvc_member *m, bool leaves, int (*carry)(struct kvc_member *m, u32 entry))
{
	const struct kvc_member *without = leaves ? m : NULL;
	struct kvc_reclaim *rc = &m->reclaim;
	const struct kvc_seg *victim = leaves ? NULL : rc->victim;
	struct kvc_pool *p = m->pool;
	u32 entry;
	int r;

	if (rc->cursor.index == 0)
		rc->stale_seq = kvc_oldest_stale(p, victim, without);
	while ((entry = kvc_cursor_entry(p, rc->victim, &rc->cursor)) != KVC_NONE) {
		if (entry_is_tomb(p, entry) &&
		    kvc_tomb_needed(p, victim, without, rc->stale_seq, kvc_entry(p, entry))) {
			r = carry(m, entry);
			if (r)
				return r;
			rc->carried = true;
		}
		rc->cursor.index++;
	}
	return 0;
}
