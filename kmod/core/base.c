// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * What every floor stands on: calls to the owner of the pool, sums, the shape of a work item.
 */
#include "engine.h"

u64 kvc_mix64(u64 x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

u32 kvc_nr_members(const struct kvc_pool *p)
{
	return os_atomic_read(&p->nr_members);
}

/*
 * Where to begin to look for a place: in turn at each of @members that takes pages, so that no neighbour of one that
 * does not gets its turns as well. A hint: they come and go.
 */
u32 kvc_turn(struct kvc_pool *p, u64 members)
{
	u64 takers = os_atomic64_read(&p->takers) & members, left;
	u32 turn, nr;

	if (!takers)
		return 0;
	left = takers & (takers - 1);
	if (left) {
		for (nr = 1; left; left &= left - 1)
			nr++;
		for (turn = os_atomic_inc_return(&p->turn) % nr; turn; turn--)
			takers &= takers - 1;
	}
	return (u32)__builtin_ctzll(takers);
}

u64 kvc_capacity(const struct kvc_pool *p)
{
	u64 segments = 0;
	u32 i;

	for (i = 0; i < p->super.nr_members; i++)
		segments += p->super.members[i].nr_segments;
	return segments * p->super.segment_size;
}

u64 kvc_index_bytes(const struct kvc_pool *p)
{
	return os_atomic64_read(&p->memory.bytes);
}

void kvc_work_init(struct kvc_member *m, struct kvc_seg *seg, struct kvc_work *w, enum kvc_work_type type,
		   enum kvc_work_kind kind, u32 block)
{
	memset(w, 0, sizeof(*w));
	w->type = type;
	w->kind = kind;
	w->member = m->index;
	w->gseg = kvc_gseg(m->pool, seg);
	w->offset = kvc_seg_offset(m, w->gseg) + ((u64)block << KVC_BLOCK_SHIFT);
}

void kvc_kick(struct kvc_member *m)
{
	m->pool->ops->kick(m->pool->owner, m->index);
}

/* A member that is leaving may have waited for room on another one. */
void kvc_space(struct kvc_pool *p)
{
	u32 i;

	p->ops->space(p->owner);
	for (i = 0; os_atomic_read(&p->nr_leaving) && i < kvc_nr_members(p); i++)
		if (READ_ONCE(p->members[i].leaving))
			kvc_kick(&p->members[i]);
}

void kvc_space_made(struct kvc_member *m)
{
	os_assert_locked(&m->lock);
	WRITE_ONCE(m->wanted, false);
	m->refused = false;
	os_atomic_inc(&m->pool->rooms);
	kvc_space(m->pool);
}
