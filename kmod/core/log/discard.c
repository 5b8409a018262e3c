// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Discards: the old pages of segments that have a new header.
 *
 * A segment is HEADED until all of it was discarded, and FREE then. Discarding is a favour to the device, done at the
 * caller's pace: it asks for a part at a time, in between other work, or never. A HEADED segment can be opened all the
 * same when no FREE one is left; what was not discarded yet is then simply written again. Only the segment that a part
 * is out of (member->discarding) is left alone: a discard must not meet new pages.
 *
 * The segment to be discarded is the first of its list, the one to be opened early is the last.
 */
#include "log/log.h"

/* Parts end at multiples of @max in the segment, so that the device sees few ends that it has to round. */
int kvc_discard_next(struct kvc_pool *p, u32 member, u64 max, struct kvc_work *w)
{
	struct kvc_member *m = &p->members[member];
	u32 step = max_t(u32, 1, (u32)min_t(u64, max >> KVC_BLOCK_SHIFT, p->seg_blocks));
	struct kvc_seg *seg = NULL;
	u32 end;

	os_lock(&m->lock);
	if (!m->offline && !m->leaving && m->list[KVC_S_HEADED].count) {
		seg = kvc_seg(p, m->list[KVC_S_HEADED].first);
		m->discarding = seg;
	}
	os_unlock(&m->lock);
	if (!seg)
		return 0;
	kvc_work_init(m, seg, w, KVC_WORK_DISCARD, KVC_W_DISCARD, seg->discarded);
	end = min(seg->discarded - seg->discarded % step + step, p->seg_blocks);
	w->discard_len = (u64)(end - seg->discarded) << KVC_BLOCK_SHIFT;
	return 1;
}

void kvc_discard_done(struct kvc_member *m, struct kvc_work *w)
{
	struct kvc_pool *p = m->pool;
	struct kvc_seg *seg = kvc_seg(p, w->gseg);

	os_lock(&m->lock);
	m->discarding = NULL;
	seg->discarded += (u32)(w->discard_len >> KVC_BLOCK_SHIFT);
	if (seg->discarded == p->seg_blocks) {
		seg->used = false;
		kvc_seg_set_state(m, seg, KVC_S_FREE);
	}
	/* who was refused because of this one may come */
	if (m->wanted)
		kvc_space_made(m);
	os_unlock(&m->lock);
}
