// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Memory of the index is evicted for as room is: what goes for it, and whether waiting helps who finds none.
 *
 * Leases yield for it, and reserves are kept, as they are for room; but where all that the index takes is within
 * reserves nothing goes, and stores are refused.
 */
#include "log/log.h"

/* Does the segment take memory that its pages' eviction would give back? */
static bool has_pages(const struct kvc_member *m, const struct kvc_seg *seg)
{
	return seg->nr_eblocks && seg->data_start < m->pool->seg_blocks;
}

/*
 * Will the index get memory from what is evicted on @m, now or when its heads have been given up? Not if it leaves:
 * that may be for as long as nobody else has room, and ends when another member is lost. Member locked.
 */
static bool memory_hope(struct kvc_member *m)
{
	const struct kvc_pool *p = m->pool;
	bool hope = m->list[KVC_S_VICTIM].count || m->list[KVC_S_YIELDING].count || m->list[KVC_S_DRAINING].count;
	u32 gseg, i;

	if (m->offline || m->leaving)
		return false;
	for (i = 0; i < m->nr_heads; i++)
		hope |= m->head[i] && has_pages(m, m->head[i]);
	for (gseg = m->list[KVC_S_SEALING].first; !hope && gseg != KVC_NONE; gseg = kvc_seg(p, gseg)->next)
		hope = has_pages(m, kvc_seg(p, gseg));
	for (gseg = m->list[KVC_S_SEALED].first; !hope && gseg != KVC_NONE; gseg = kvc_seg(p, gseg)->next)
		hope = has_pages(m, kvc_seg(p, gseg)) && kvc_seg_can_go(m, kvc_seg(p, gseg));
	return hope || kvc_lease_next(m, true);
}

/*
 * The oldest of those that give back as much memory as they do on average, or more, or NULL. So whose pages are small
 * does not cost those whose pages are large. Not those of tombstones alone, which would take as much elsewhere.
 */
struct kvc_seg *kvc_memory_victim(struct kvc_member *m)
{
	u64 blocks = 0, nr = 0;
	struct kvc_seg *oldest = NULL, *seg;
	u32 i;

	os_assert_locked(&m->lock);
	for (i = 0; i < m->nr_segs; i++) {
		if (has_pages(m, &m->segs[i]) && kvc_seg_can_go(m, &m->segs[i])) {
			blocks += m->segs[i].nr_eblocks;
			nr++;
		}
	}
	for (i = 0; blocks && i < m->nr_segs; i++) {
		seg = &m->segs[i];
		if (has_pages(m, seg) && kvc_seg_can_go(m, seg) && seg->nr_eblocks * nr >= blocks &&
		    (!oldest || seg->open_seq < oldest->open_seq))
			oldest = seg;
	}
	return oldest;
}

/* Heads with pages are given up: nothing else is left that could be evicted. Member locked. */
static bool give_up_heads(struct kvc_member *m)
{
	bool any = false;
	u32 i;

	if (!READ_ONCE(m->pool->memory.wanted))
		return false;
	for (i = 0; i < m->nr_heads; i++) {
		if (m->head[i] && has_pages(m, m->head[i])) {
			kvc_seg_retire(m, i);
			any = true;
		}
	}
	return any;
}

/* No victim: the last thing to try is all heads. Else true, and those who wait are told, once. */
bool kvc_memory_despair(struct kvc_member *m)
{
	if (give_up_heads(m))
		return false;
	if (!m->no_memory)
		kvc_memory_back(m->pool);
	m->no_memory = true;
	return true;
}

/*
 * What to tell somebody for whom the index had no memory: as kvc_refusal(). Setting wanted before looking pairs with
 * kvc_memory_back(), and with kvc_lease_put() as in kvc_member_hope().
 */
int kvc_memory_refusal(struct kvc_pool *p)
{
	bool hope = false;
	u32 i;

	WRITE_ONCE(p->memory.wanted, true);
	os_mb();
	if (!kvc_memory_full(p))
		return 0;
	for (i = 0; i < kvc_nr_members(p); i++) {
		struct kvc_member *m = &p->members[i];

		os_lock(&m->lock);
		WRITE_ONCE(m->wanted, true);
		os_mb();
		if (memory_hope(m)) {
			m->no_memory = false;
			hope = true;
		}
		kvc_kick(m);
		os_unlock(&m->lock);
	}
	return hope ? -EAGAIN : -ENOSPC;
}

/* The member's victim will give back @bytes of memory; 0: there is no such victim any more. */
void kvc_memory_going(struct kvc_member *m, u64 bytes)
{
	os_assert_locked(&m->lock);
	os_atomic64_add(&m->pool->memory.going, bytes - m->going);
	m->going = bytes;
}

/* Memory was given back, or will not be: who waits for it should try again. */
void kvc_memory_back(struct kvc_pool *p)
{
	os_mb();
	if (!READ_ONCE(p->memory.wanted))
		return;
	WRITE_ONCE(p->memory.wanted, false);
	kvc_space(p);
}
