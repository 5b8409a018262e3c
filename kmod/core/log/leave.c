// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * A member leaves: its segments are emptied, one after the other, by its own worker.
 *
 * The steps are those of reclaim, whose state they use, but for where things go and what is kept:
 *	CARRY	copy the tombstones that are needed without this member to others
 *	MOVE	copy the pages to others, if asked to
 *	EVICT, WAIT	as in reclaim
 * Nothing has to be durable meanwhile: until the superblock without the member is, all of its records are believed as
 * before, and are as good as the copies. Deletes of copies need tombstones for that: its segments are undead.
 *
 * A reclaim that was at work is continued so: the tombstones it has carried are in segments of the member, whose turn
 * comes. A member that is offline leaves in the same way, but cannot be read: its pages are dropped.
 *
 * Leases delay it, but cannot stop it: while it waits for those that there are, and all the time when the pages are
 * dropped, the pages of the member are not leased to anybody.
 *
 * When another member is lost meanwhile the work stops, and the member stays until the next attach. What went to the
 * other one may not be durable there; nothing was overwritten, so the next attach finds everything here.
 *
 * MOVE goes over a victim in rounds. Pages that stayed because they were leased meanwhile are moved in another one
 * after the leases; where moves failed there are as many more as FAILED_ROUNDS, each to other members.
 */
#include "log/log.h"

#define FAILED_ROUNDS	3U

/* Empty segments for new pages that need no eviction: is it worth waiting for? */
static bool has_room(struct kvc_member *m)
{
	bool room;

	os_lock(&m->lock);
	room = !m->offline && !m->leaving && kvc_avail(m) > m->low && !kvc_memory_full(m->pool);
	if (room)
		kvc_kick(m);
	os_unlock(&m->lock);
	return room;
}

/* What an offline member has not logged is lost: its segments are sealed without. Member locked. */
static void give_up_logs(struct kvc_member *m)
{
	struct kvc_pool *p = m->pool;
	u32 gseg, next;

	for (gseg = m->list[KVC_S_SEALING].first; gseg != KVC_NONE; gseg = next) {
		struct kvc_seg *seg = kvc_seg(p, gseg);

		next = seg->next;
		seg->unlogged = 0;
		seg->closed = true;
		kvc_seg_try_seal(m, seg);
	}
}

/* The next segment to empty: 1; 0: none now, or none any more. */
static int choose(struct kvc_member *m)
{
	struct kvc_reclaim *rc = &m->reclaim;
	struct kvc_seg *seg = NULL;
	u32 gseg;

	os_lock(&m->lock);
	if (m->offline)
		give_up_logs(m);
	WRITE_ONCE(m->wanted, true);
	/* pairs with the decrement of the leases when the last one ends */
	os_mb();
	for (gseg = m->list[KVC_S_SEALED].first; gseg != KVC_NONE && !seg; gseg = kvc_seg(m->pool, gseg)->next)
		if (!os_atomic_read(&kvc_seg(m->pool, gseg)->leases))
			seg = kvc_seg(m->pool, gseg);
	WRITE_ONCE(m->leaseless, !m->moving || !seg);
	if (seg) {
		rc->victim = seg;
		kvc_seg_set_state(m, seg, KVC_S_VICTIM);
		kvc_cursor_init(&rc->cursor);
		rc->rounds = 0;
		rc->phase = KVC_R_CARRY;
	} else if (!m->list[KVC_S_SEALED].count && !m->list[KVC_S_SEALING].count) {
		WRITE_ONCE(m->left, true);
	}
	os_unlock(&m->lock);
	return seg ? 1 : 0;
}

/* To any other member: 0, -ENOMEM, or no room now: reclaim there makes it, and announces it. */
static int carry_tomb(struct kvc_member *m, u32 entry)
{
	struct kvc_pool *p = m->pool;
	u32 nr, i;
	int r;

	do {
		nr = kvc_nr_members(p);
		for (i = 1; i < nr; i++) {
			r = kvc_tomb_carry(&p->members[(m->index + i) % nr], KVC_HEAD_NEW, entry);
			if (!r || r == -ENOMEM)
				return r;
		}
		r = kvc_refusal(p, ~BIT_ULL(m->index));
	} while (!r);
	return r;
}

static void begin_round(struct kvc_member *m)
{
	struct kvc_reclaim *rc = &m->reclaim;

	kvc_cursor_init(&rc->cursor);
	rc->failed = false;
	rc->stayed = false;
	rc->phase = KVC_R_MOVE;
}

static int carry(struct kvc_member *m)
{
	int r = kvc_tombs_carry(m, true, carry_tomb);

	if (r)
		return r == -ENOMEM ? r : 0;
	begin_round(m);
	return -EAGAIN;
}

/* Length of a page that is to be moved, else 0 */
static u32 to_move(struct kvc_member *m, u32 entry)
{
	struct kvc_pool *p = m->pool;
	struct kvc_shard *sh = kvc_shard(p, kvc_entry_bucket(p, entry));
	const struct kvc_entry *e = kvc_entry(p, entry);
	u32 length = 0;

	os_lock(&sh->lock);
	if (m->moving && !READ_ONCE(m->offline) && e->state == KVC_E_LIVE && !READ_ONCE(kvc_domain(p, e->domain)->dead))
		length = e->length;
	os_unlock(&sh->lock);
	return length;
}

/* To any other member: 1 with @w; 0: it is gone, or there is no room; -EAGAIN: there will be room; -ENOMEM */
static int move_page(struct kvc_member *m, u32 entry, u32 length, struct kvc_work *w)
{
	struct kvc_pool *p = m->pool;
	enum kvc_head head = kvc_entry_seg(p, entry)->head == KVC_HEAD_NEW ? KVC_HEAD_NEW : KVC_HEAD_LONG;
	u32 nr = kvc_nr_members(p), turn = kvc_turn(p, KVC_ANY_MEMBER), i;
	bool wait = false;
	int r;

	for (i = 0; i < nr; i++) {
		struct kvc_member *to = &p->members[(turn + i) % nr];

		if (to == m)
			continue;
		r = kvc_move_start(to, head, entry, length, w);
		if (r >= 0 || r == -ENOMEM)
			return r;
		wait |= r == -EAGAIN && has_room(to);
	}
	return wait ? -EAGAIN : 0;
}

/* 0: the leases are waited for; -EAGAIN: another round, or on to EVICT */
static int end_round(struct kvc_member *m)
{
	struct kvc_reclaim *rc = &m->reclaim;

	if (!rc->stayed && (!rc->failed || rc->rounds == FAILED_ROUNDS)) {
		rc->phase = KVC_R_EVICT;
		return -EAGAIN;
	}
	os_lock(&m->lock);
	WRITE_ONCE(m->wanted, true);
	WRITE_ONCE(m->leaseless, true);
	os_unlock(&m->lock);
	/* pairs with the decrement of the leases when the last one ends */
	os_mb();
	if (kvc_seg_leased(m, rc->victim))
		return 0;
	rc->rounds += rc->failed;
	begin_round(m);
	return -EAGAIN;
}

static int next_move(struct kvc_member *m, struct kvc_work *w)
{
	struct kvc_reclaim *rc = &m->reclaim;
	u32 entry, length;
	int r;

	while ((entry = kvc_cursor_entry(m->pool, rc->victim, &rc->cursor)) != KVC_NONE) {
		length = to_move(m, entry);
		r = length ? move_page(m, entry, length, w) : 0;
		if (r == -EAGAIN)
			return 0;
		if (r < 0)
			return r;
		rc->cursor.index++;
		if (r == 1)
			return 1;
	}
	return rc->moving ? 0 : end_round(m);
}

static void stop(struct kvc_member *m)
{
	os_lock(&m->lock);
	WRITE_ONCE(m->leaseless, false);
	os_unlock(&m->lock);
}

/* 1: @w; 0: nothing to do now; -EAGAIN: a step was taken, look again; -ENOMEM */
int kvc_leave_next(struct kvc_member *m, struct kvc_work *w)
{
	int r;

	if (READ_ONCE(m->left))
		return 0;
	r = READ_ONCE(m->offline) ? 0 : kvc_summary_due(m, w);
	if (r)
		return r;
	if (!kvc_member_leaves(m->pool, m->index)) {
		stop(m);
		return 0;
	}
	switch (m->reclaim.phase) {
	case KVC_R_IDLE:
		return choose(m) ? -EAGAIN : 0;
	case KVC_R_CARRY:
		return carry(m);
	case KVC_R_MOVE:
		return next_move(m, w);
	case KVC_R_LOG:
	case KVC_R_EVICT:
		return kvc_victim_evict(m);
	case KVC_R_WAIT:
		return kvc_victim_finish(m);
	}
	return 0;
}
