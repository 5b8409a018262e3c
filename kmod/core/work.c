// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Work items: what a member's worker does next, and what its end means.
 */
#include "log/log.h"

/* Space first: what waits for it are stores. Then summaries, then what makes more space. */
int kvc_work_next(struct kvc_pool *p, u32 member, struct kvc_work *w)
{
	struct kvc_member *m = &p->members[member];
	int r;

	do {
		if (READ_ONCE(m->leaving)) {
			r = kvc_leave_next(m, w);
			continue;
		}
		if (READ_ONCE(m->offline))
			return 0;
		r = kvc_header_next(m, w);
		if (!r)
			r = kvc_summary_due(m, w);
		if (!r)
			r = kvc_reclaim_next(m, w);
	} while (r == -EAGAIN);
	return r;
}

int kvc_flush_next(struct kvc_pool *p, u32 member, struct kvc_work *w)
{
	return kvc_summary_any(&p->members[member], w);
}

u64 kvc_flush_mark(struct kvc_pool *p, u32 member)
{
	struct kvc_member *m = &p->members[member];
	u64 mark;

	os_lock(&m->lock);
	mark = m->commits;
	os_unlock(&m->lock);
	return mark;
}

bool kvc_flushed(struct kvc_pool *p, u32 member, u64 mark)
{
	struct kvc_member *m = &p->members[member];
	bool r;

	os_lock(&m->lock);
	r = m->offline || kvc_member_logged(m, mark);
	os_unlock(&m->lock);
	return r;
}

u32 kvc_work_crc(struct kvc_pool *p, const struct kvc_work *w, u32 chunk)
{
	return kvc_load_crc(p, &w->src, chunk);
}

void kvc_work_done(struct kvc_pool *p, struct kvc_work *w, int err)
{
	struct kvc_member *m = &p->members[w->member];

	switch (w->kind) {
	case KVC_W_HEADER:
		kvc_header_done(m, w, err);
		break;
	case KVC_W_EXTENT:
		kvc_summary_done(m, w, err);
		break;
	case KVC_W_MOVE:
		kvc_move_done(m, w, err);
		break;
	case KVC_W_DISCARD:
		kvc_discard_done(m, w);
		break;
	}
}
