// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * What becomes of who finds no room: whether waiting helps.
 */
#include "log/log.h"

/*
 * Somebody is refused on @m. True: something is under way, or can be evicted, that will give room; the worker goes
 * after the same. Setting wanted before looking at the leases pairs with kvc_lease_put(), which drops its lease
 * before it looks at wanted.
 */
bool kvc_member_hope(struct kvc_member *m)
{
	struct kvc_pool *p = m->pool;
	bool hope;
	u32 gseg;

	if (m->offline || m->leaving)
		return false;
	WRITE_ONCE(m->wanted, true);
	os_mb();
	hope = kvc_room_coming(m);
	gseg = m->list[KVC_S_SEALED].first;
	for (; !hope && gseg != KVC_NONE; gseg = kvc_seg(p, gseg)->next)
		hope = kvc_seg_can_go(m, kvc_seg(p, gseg));
	hope = hope || (m->refused && kvc_lease_next(m, true));
	if (hope)
		m->hopeless = false;
	return hope;
}

/*
 * What to tell somebody for whom none of @members had room: -EAGAIN, -ENOSPC, -ENODEV, or 0 when room has come. A
 * segment that becomes ready after this saw none is announced by ops->space.
 */
int kvc_refusal(struct kvc_pool *p, u64 members)
{
	bool hope = false, online = false, room = false;
	u32 i;

	for (i = 0; i < kvc_nr_members(p); i++) {
		struct kvc_member *m = &p->members[i];

		if (!(members & BIT_ULL(i)))
			continue;
		os_lock(&m->lock);
		/* one that is joining may be unknown to who executes the work */
		if (!m->offline) {
			online |= !m->leaving;
			m->refused = true;
			hope |= kvc_member_hope(m);
			room |= !m->leaving && kvc_ready(m) > 1;
			kvc_kick(m);
		}
		os_unlock(&m->lock);
	}
	if (!online)
		return -ENODEV;
	if (room)
		return 0;
	return hope ? -EAGAIN : -ENOSPC;
}

/* Shared, and full of pages that reserves keep: until there is a segment to open for them. Member locked. */
static bool is_reserved(const struct kvc_member *m, const struct kvc_seg *seg)
{
	return seg->reserved && !kvc_seg_could_go(m, seg);
}

/*
 * Where reserves keep more segments of a member than can be kept, as their tenants' pages went there and not elsewhere:
 * the oldest of these. Else NULL. Member locked.
 */
struct kvc_seg *kvc_spilled(const struct kvc_member *m)
{
	struct kvc_seg *oldest = NULL;
	u32 kept = 0, i;

	for (i = 0; i < m->nr_segs; i++) {
		struct kvc_seg *seg = &m->segs[i];

		if (seg->state != KVC_S_SEALED || !(kvc_quota_keeps(m->pool, seg) || is_reserved(m, seg)))
			continue;
		kept++;
		if (kvc_seg_evictable(m, seg) && (!oldest || seg->open_seq < oldest->open_seq))
			oldest = seg;
	}
	return kept > kvc_quota_keepable(m) ? oldest : NULL;
}

/* Nothing can go on @members, for somebody who waits. Will such segments? */
bool kvc_spill(struct kvc_pool *p, u64 members)
{
	bool any = false;
	u32 i;

	for (i = 0; READ_ONCE(p->quota.on) && i < kvc_nr_members(p); i++) {
		struct kvc_member *m = &p->members[i];

		if (!(members & BIT_ULL(i)))
			continue;
		os_lock(&m->lock);
		if (!m->offline && !m->leaving && kvc_spilled(m)) {
			m->spills = true;
			any = true;
			kvc_kick(m);
		}
		os_unlock(&m->lock);
	}
	return any;
}
