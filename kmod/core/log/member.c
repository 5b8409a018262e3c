// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Members: made with the pool or added to it, lost (what returns: return.c), removed.
 *
 * A member's number is its place in p->members for as long as the pool is attached, and in the superblock for ever; one
 * that was removed leaves a hole there, which is filled after another attach at the earliest. Who goes over the members
 * reads kvc_nr_members() once; it only grows, and what is below it is complete. A hole is a member that is offline and
 * has no segments; a removed one keeps them until the pool goes, so that tombstones may name them.
 */
#include "log/log.h"

#define LOW_MAX		8U	/* segments kept available on a large member */

static void init_lists(struct kvc_member *m)
{
	u32 i;

	for (i = 0; i < KVC_NR_S; i++) {
		m->list[i].first = KVC_NONE;
		m->list[i].last = KVC_NONE;
	}
}

/* Others may know of the member, as a hole. */
static int alloc_segments(struct kvc_member *m, u32 nr_segs)
{
	struct kvc_seg *segs = os_zalloc(sizeof(*segs) * nr_segs);
	u8 *extent = os_alloc(m->pool->extent_max + KVC_BLOCK);
	struct kvc_survey *survey = os_zalloc(sizeof(*survey));
	u64 *costs = os_zalloc(sizeof(*costs) * nr_segs);
	u64 *floors = os_zalloc(sizeof(*floors) * kvc_victim_floors(nr_segs));
	struct kvc_lessee *tenants = os_zalloc(sizeof(*tenants) * KVC_TENANTS_MAX);
	u32 i;

	if (!segs || !extent || !survey || !costs || !floors || !tenants) {
		os_free(segs);
		os_free(extent);
		os_free(survey);
		os_free(costs);
		os_free(floors);
		os_free(tenants);
		return -ENOMEM;
	}
	os_lock(&m->leases.lock);
	m->leases.tenants = tenants;
	os_unlock(&m->leases.lock);
	os_lock(&m->lock);
	m->extent = extent;
	m->survey = survey;
	m->costs = costs;
	m->floors = floors;
	m->segs = segs;
	m->nr_segs = nr_segs;
	m->low = nr_segs < 8 ? 2 : max_t(u32, 3, min_t(u32, nr_segs / 100, LOW_MAX));
	for (i = 0; i < nr_segs; i++) {
		segs[i].member = (u8)m->index;
		kvc_seg_reset(m->pool, &segs[i]);
		kvc_seg_set_state(m, &segs[i], KVC_S_BLANK);
	}
	os_unlock(&m->lock);
	return 0;
}

/* Member locked, or nobody knows of it yet. */
static void note_taker(struct kvc_member *m)
{
	bool takes = !m->offline && !m->leaving;

	if (takes && !m->taker)
		os_atomic64_add(&m->pool->takers, BIT_ULL(m->index));
	if (!takes && m->taker)
		os_atomic64_sub(&m->pool->takers, BIT_ULL(m->index));
	m->taker = takes;
}

/* Nobody knows of it yet. 0 or -ENOMEM. No segments: a hole. */
int kvc_member_init(struct kvc_pool *p, u32 index, u32 nr_segs)
{
	struct kvc_member *m = &p->members[index];

	os_lock_init(&m->lock);
	os_lock_init(&m->leases.lock);
	m->pool = p;
	m->index = index;
	m->offline = !nr_segs;
	m->heir = nr_segs;
	note_taker(m);
	m->nr_heads = KVC_NR_HEADS;
	init_lists(m);
	return nr_segs ? alloc_segments(m, nr_segs) : 0;
}

static void free_crcs(struct kvc_seg *seg)
{
	u32 i;

	for (i = 0; i < seg->crc_room / KVC_CBLOCK_CRCS; i++)
		os_free(seg->crcs[i]);
	os_free(seg->crcs);
}

void kvc_member_exit(struct kvc_member *m)
{
	u32 i;

	for (i = 0; i < m->nr_segs; i++) {
		free_crcs(&m->segs[i]);
		kvc_keeps_free(&m->segs[i]);
	}
	os_free(m->segs);
	os_free(m->extent);
	os_free(m->survey);
	os_free(m->costs);
	os_free(m->floors);
	os_free(m->leases.tenants);
}

void kvc_member_segments(struct kvc_pool *p, u32 member, u32 *total, u32 *free)
{
	struct kvc_member *m = &p->members[member];

	os_lock(&m->lock);
	*total = m->nr_segs;
	*free = m->offline ? 0 : kvc_avail(m);
	os_unlock(&m->lock);
}

bool kvc_member_online(const struct kvc_pool *p, u32 member)
{
	return !READ_ONCE(p->members[member].offline);
}

void kvc_member_fail(struct kvc_pool *p, u32 member)
{
	struct kvc_member *m = &p->members[member];

	os_lock(&m->lock);
	if (!m->offline) {
		os_atomic_inc_return(&p->nr_offline);
		m->lost = true;
		WRITE_ONCE(m->offline, true);
		note_taker(m);
		kvc_memory_going(m, 0);
		os_atomic_inc(&p->nr_lost);
		WRITE_ONCE(m->lost_before, m->lost_before + 1);
		os_trace(member_lost, p->super.pool_name, member);
		kvc_event_lost(p);
		kvc_quota_replan(p);
		kvc_kick(m);
		kvc_space(p);
	}
	os_unlock(&m->lock);
}

/* The number of a new member: a hole that no member had since attach, or the next one. */
static u32 free_number(const struct kvc_pool *p)
{
	u32 nr = kvc_nr_members(p), i;

	for (i = 0; i < nr; i++)
		if (kvc_super_hole(&p->super, i) && !p->members[i].segs)
			return i;
	return nr;
}

bool kvc_member_room(const struct kvc_pool *p)
{
	return free_number(p) < KVC_MEMBERS_MAX;
}

/* Describe the member, all zero for a hole, in the superblock; its seq is raised. */
static void set_super(struct kvc_pool *p, u32 member, const struct kvc_super_member *sm)
{
	struct kvc_super *s = &p->super;

	os_lock(&p->domains.lock);
	s->members[member] = *sm;
	s->nr_members = max(s->nr_members, member + 1);
	while (kvc_super_hole(s, s->nr_members - 1))
		s->nr_members--;
	kvc_super_raise(p);
	kvc_requests_resize(p);
	os_unlock(&p->domains.lock);
}

static bool uuid_known(const struct kvc_pool *p, const u8 *uuid)
{
	u32 i;

	for (i = 0; i < p->super.nr_members; i++)
		if (!memcmp(p->super.members[i].uuid, uuid, KVC_UUID_LEN))
			return true;
	return false;
}

void kvc_member_joining(struct kvc_member *m, bool joining)
{
	os_lock(&m->lock);
	m->joining = joining;
	os_unlock(&m->lock);
}

/* The segments are made while it is offline, or not counted: nobody looks at them. */
int kvc_member_add(struct kvc_pool *p, const u8 uuid[KVC_UUID_LEN], u32 nr_segments)
{
	struct kvc_super_member sm = { .nr_segments = nr_segments };
	u32 member = free_number(p);
	struct kvc_member *m;
	int r;

	if (nr_segments < KVC_SEGMENTS_MIN || nr_segments > KVC_SEGMENTS_END || uuid_known(p, uuid))
		return -EINVAL;
	if (member == KVC_MEMBERS_MAX)
		return -ENOSPC;
	m = &p->members[member];
	if (member == kvc_nr_members(p)) {
		kvc_member_init(p, member, 0);
		/* pairs with the acquire in kvc_nr_members(): it is complete, and a hole */
		os_atomic_xchg(&p->nr_members, member + 1);
	}
	r = alloc_segments(m, nr_segments);
	if (r)
		return r;
	kvc_member_joining(m, true);
	memcpy(sm.uuid, uuid, KVC_UUID_LEN);
	set_super(p, member, &sm);
	return (int)member;
}

bool kvc_member_heirs(const struct kvc_pool *p)
{
	u32 nr = kvc_nr_members(p), i;

	for (i = 0; i < nr; i++)
		if (READ_ONCE(p->members[i].heir) && !READ_ONCE(p->members[i].offline))
			return true;
	return false;
}

void kvc_member_join(struct kvc_pool *p, u32 member)
{
	struct kvc_member *m = &p->members[member];
	bool heirs = kvc_member_heirs(p);

	os_lock(&m->lock);
	m->joining = false;
	WRITE_ONCE(m->heir, m->heir || heirs);
	WRITE_ONCE(m->offline, false);
	if (m->lost)
		os_atomic_dec_and_test(&p->nr_offline);
	m->lost = false;
	note_taker(m);
	os_unlock(&m->lock);
	kvc_quota_replan(p);
	kvc_kick(m);
	kvc_space(p);
}

void kvc_member_cancel(struct kvc_pool *p, u32 member)
{
	static const struct kvc_super_member none;
	struct kvc_member *m = &p->members[member];

	kvc_member_joining(m, false);
	set_super(p, member, &none);
}

static bool another_online(const struct kvc_pool *p, u32 member)
{
	u32 nr = kvc_nr_members(p), i;

	for (i = 0; i < nr; i++)
		if (i != member && !READ_ONCE(p->members[i].offline) && !READ_ONCE(p->members[i].leaving))
			return true;
	return false;
}

/* Member locked. */
static void retire_heads(struct kvc_member *m)
{
	u32 i;

	for (i = 0; i < m->nr_heads; i++)
		if (m->head[i])
			kvc_seg_retire(m, i);
}

void kvc_pool_rest(struct kvc_pool *p)
{
	u32 nr = kvc_nr_members(p), i;

	WRITE_ONCE(p->resting, true);
	for (i = 0; i < nr; i++) {
		os_lock(&p->members[i].lock);
		retire_heads(&p->members[i]);
		os_unlock(&p->members[i].lock);
	}
}

/* Tombstones that nobody can copy to another member */
static bool keeps_tombs(struct kvc_member *m)
{
	bool keeps = false;
	u32 i;

	os_lock(&m->lock);
	for (i = 0; i < m->nr_segs; i++)
		keeps |= m->segs[i].rooted;
	os_unlock(&m->lock);
	return keeps;
}

int kvc_member_leave(struct kvc_pool *p, u32 member, bool move)
{
	struct kvc_member *m = &p->members[member];

	if (member >= kvc_nr_members(p) || kvc_super_hole(&p->super, member))
		return -EINVAL;
	if (m->leaving)
		return -EALREADY;
	if (!another_online(p, member) || keeps_tombs(m) || READ_ONCE(m->torn))
		return -EBUSY;
	os_lock(&m->lock);
	m->moving = move;
	m->lost_before = os_atomic_read(&p->nr_lost);
	WRITE_ONCE(m->leaving, true);
	note_taker(m);
	retire_heads(m);
	os_unlock(&m->lock);
	os_atomic_inc(&p->nr_leaving);
	kvc_quota_replan(p);
	kvc_kick(m);
	kvc_space(p);
	return 0;
}

/* A member that was lost since may have taken copies with it that were not durable yet. */
bool kvc_member_leaves(const struct kvc_pool *p, u32 member)
{
	const struct kvc_member *m = &p->members[member];

	return READ_ONCE(m->leaving) && READ_ONCE(m->lost_before) == os_atomic_read(&p->nr_lost) &&
	       another_online(p, member);
}

bool kvc_member_left(const struct kvc_pool *p, u32 member)
{
	return READ_ONCE(p->members[member].left) && kvc_member_leaves(p, member);
}

void kvc_member_remove(struct kvc_pool *p, u32 member)
{
	static const struct kvc_super_member none;

	set_super(p, member, &none);
}

/* Its records are believed no more: tombstones need not outlive them. */
void kvc_member_forget(struct kvc_pool *p, u32 member)
{
	struct kvc_member *m = &p->members[member];
	u32 i;

	os_lock(&m->lock);
	if (m->lost)
		os_atomic_dec_and_test(&p->nr_offline);
	m->lost = false;
	WRITE_ONCE(m->heir, false);
	WRITE_ONCE(m->offline, true);
	note_taker(m);
	for (i = 0; i < m->nr_segs; i++) {
		WRITE_ONCE(m->segs[i].generation, 0);
		WRITE_ONCE(m->segs[i].believed, 0);
		WRITE_ONCE(m->segs[i].min_seq, U64_MAX);
		if (os_atomic_xchg(&m->segs[i].undead, 0))
			os_atomic_dec_and_test(&p->nr_undead);
	}
	if (m->unknown)
		os_atomic_dec_and_test(&p->nr_unknown);
	m->unknown = false;
	os_unlock(&m->lock);
	os_atomic_inc(&p->rooms);
	os_atomic_dec_and_test(&p->nr_leaving);
	kvc_quota_replan(p);
}

u64 kvc_member_bytes(const struct kvc_pool *p, u32 member)
{
	const struct kvc_member *m = &p->members[member];
	u64 sum = 0;
	u32 i;

	for (i = 0; i < m->nr_segs; i++)
		sum += os_atomic64_read(&m->segs[i].live_bytes);
	return sum;
}
