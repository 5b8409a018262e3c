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
