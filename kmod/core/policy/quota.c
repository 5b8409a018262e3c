// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * What tenants may take of the room: quotas and reserves.
 *
 * A tenant with a quota or a reserve has segments of its own: an open one on each of its homes takes its pages, new
 * ones and those that reclaim moves. So its pages can be evicted, or spared, by whole segments without an effect on
 * anybody else's. Homes are all members; or, of a tenant with a quota alone, as many as it has room for HOME segments
 * on each: an open segment on every member would be much of a small quota. Open segments take room from all: of a
 * member's segments one in OPEN may be such.
 *
 * At its quota, which is a segment at least, a tenant opens no segment before one of its own was evicted (own.c). A
 * segment stays without which its tenant would be below its reserve. Both are in bytes of pages; how many segments
 * these may take has a bound as well, a quarter more than the bytes: what is deleted, and what is lost between pages,
 * takes room too.
 *
 * Reserves are kept as long as all of them, with that quarter, fit beside what reclaim keeps free and the open
 * segments. What does not fit is refused when it is asked for. Where members were lost, all reserves shrink alike.
 * That is so for the pool; a member may have more of it than others, but not so much that nothing else is stored there:
 * see kvc_spill().
 *
 * Pages that a tenant stored before it had limits lie beside others'. They count, but stay where they are until their
 * segment's turn comes: those within a reserve are moved to the tenant's own then. Those over a quota leave the index
 * one by one when there is nothing else to evict (reclaim.c).
 *
 * Where members were lost, or had left, the rest may not have segments to open for all: a tenant without a home has its
 * pages beside others', and those within its reserve are moved whenever their segment's turn comes.
 *
 * Pages and segments on a member that was lost count for neither: nobody can evict them, or has any use for them.
 */
#include "index/index.h"

#define HOME		8U	/* segments that a quota has for each home */
#define OPEN		8U	/* segments of a member for each that is open for one tenant alone */

static bool usable(const struct kvc_member *m)
{
	return !READ_ONCE(m->offline) && !READ_ONCE(m->leaving);
}

/* Segments of a member that reserves can be kept in: not those that are kept free, or open for all */
u32 kvc_quota_keepable(const struct kvc_member *m)
{
	u32 others = m->low + (m->nr_segs < KVC_LONG_SEGMENTS ? KVC_NR_HEADS - 1 : KVC_NR_HEADS);

	return m->nr_segs - min(m->nr_segs, others);
}

/* Segments for so many bytes, and a quarter */
static u64 segments_of(const struct kvc_pool *p, u64 bytes)
{
	u64 n = bytes / p->super.segment_size + !!(bytes % p->super.segment_size);

	return n + (n + 3) / 4;
}

/* What a plan has to give away, by member */
struct room {
	u32	nr;			/* members */
	u32	open[KVC_MEMBERS_MAX];	/* segments that may still be opened */
	u64	keep;			/* segments, of all members */
};

static void find_room(const struct kvc_pool *p, struct room *room)
{
	u32 i;

	room->nr = kvc_nr_members(p);
	room->keep = 0;
	for (i = 0; i < room->nr; i++) {
		const struct kvc_member *m = &p->members[i];

		room->open[i] = usable(m) ? max(m->nr_segs / OPEN, 1U) : 0;
		room->keep += usable(m) ? kvc_quota_keepable(m) : 0;
	}
}

/* The member with most room to open segments that is not among @homes, or room->nr */
static u32 roomiest(const struct room *room, u32 slot, u64 homes)
{
	u32 best = room->nr, most = 0, i, n;

	for (i = 0; i < room->nr; i++) {
		n = (slot + i) % room->nr;
		if (room->open[n] > most && !(homes & BIT_ULL(n))) {
			most = room->open[n];
			best = n;
		}
	}
	return best;
}

/* So many homes, if there are */
static u64 find_homes(struct room *room, u32 slot, u64 wanted)
{
	u64 homes = 0;
	u32 n;

	while (wanted--) {
		n = roomiest(room, slot, homes);
		if (n == room->nr)
			break;
		homes |= BIT_ULL(n);
		room->open[n]--;
		room->keep -= min_t(u64, room->keep, 1);
	}
	return homes;
}

static u32 count_homes(u64 homes)
{
	u32 n = 0;

	for (; homes; homes &= homes - 1)
		n++;
	return n;
}

static bool limited(const struct kvc_limits *l)
{
	return l->quota || l->reserve;
}

static u64 homes_of(const struct kvc_pool *p, u32 slot, struct room *room)
{
	const struct kvc_limits *l = &p->super.limits[slot];
	u64 wanted = room->nr;

	if (!limited(l))
		return 0;
	if (!l->reserve)
		wanted = min_t(u64, wanted, max_t(u64, 1, l->quota / (HOME * p->super.segment_size)));
	return find_homes(room, slot, wanted);
}

/* What a tenant's limits mean, when reserves of @needed segments are to be kept in @keep */
static void set_share(struct kvc_pool *p, u32 slot, u64 needed, u64 keep)
{
	const struct kvc_limits *l = &p->super.limits[slot];
	struct kvc_share *s = &p->quota.share[slot];
	/* media, or a member that is gone, may leave a reserve of more than there is */
	u64 reserve = min(l->reserve, kvc_capacity(p)), segment = p->super.segment_size;
	u32 open = count_homes(s->homes);

	if (needed > keep)
		reserve = reserve / segment * keep / needed * segment;
	WRITE_ONCE(s->quota, l->quota ? max(l->quota, segment) : U64_MAX);
	WRITE_ONCE(s->quota_segs, l->quota ? segments_of(p, l->quota) + open : U64_MAX);
	WRITE_ONCE(s->reserve, reserve);
	WRITE_ONCE(s->reserve_segs, reserve ? segments_of(p, reserve) + open : 0);
}

/* What a reserve takes; not more than the pool has, which is too much */
static u64 needed_for(const struct kvc_pool *p, u64 reserve)
{
	return segments_of(p, min(reserve, kvc_capacity(p)));
}

/* What all limits mean now. False: some cannot be kept. Domains locked. */
bool kvc_quota_plan(struct kvc_pool *p)
{
	struct kvc_quota *q = &p->quota;
	u64 needed = 0, homes;
	struct room room;
	bool kept = true;
	u32 i;

	os_assert_locked(&p->domains.lock);
	find_room(p, &room);
	for (i = 0; i < KVC_TENANTS_MAX; i++) {
		const struct kvc_limits *l = &p->super.limits[i];

		homes = homes_of(p, i, &room);
		kept &= homes || !limited(l);
		WRITE_ONCE(q->share[i].homes, homes);
		needed += l->reserve ? needed_for(p, l->reserve) : 0;
		if (limited(l))
			WRITE_ONCE(q->on, true);
	}
	for (i = 0; i < KVC_TENANTS_MAX; i++)
		set_share(p, i, needed, room.keep);
	WRITE_ONCE(q->plan, q->plan + 1);
	return kept && needed <= room.keep;
}

/* Members came or went. */
void kvc_quota_replan(struct kvc_pool *p)
{
	u32 i;

	if (!READ_ONCE(p->quota.on))
		return;
	os_lock(&p->domains.lock);
	kvc_quota_plan(p);
	os_unlock(&p->domains.lock);
	for (i = 0; i < kvc_nr_members(p); i++)
		kvc_kick(&p->members[i]);
}

/* What counts of a tenant's */
struct holding {
	u64	bytes, segs;
};

/* What is on members that are gone is in the index, but nobody has any use for it. */
static struct holding holding_of(const struct kvc_pool *p, u32 slot)
{
	u32 nr = kvc_nr_members(p), i;
	struct holding h = { 0 };

	for (i = 0; i < nr; i++) {
		const struct kvc_stock *stock = &p->members[i].stock[slot];

		if (READ_ONCE(p->members[i].offline))
			continue;
		h.bytes += os_atomic64_read(&stock->bytes);
		h.segs += os_atomic_read(&stock->segs);
	}
	return h;
}

/* Does the tenant have what its quota allows? Then it opens no segment. Any lock may be held. */
bool kvc_quota_full(const struct kvc_pool *p, u32 slot)
{
	const struct kvc_share *s = &p->quota.share[slot];
	u64 quota = READ_ONCE(s->quota);
	struct holding h;

	if (!READ_ONCE(p->quota.on) || quota == U64_MAX)
		return false;
	h = holding_of(p, slot);
	return h.bytes + os_atomic64_read(&s->pending) >= quota || h.segs >= READ_ONCE(s->quota_segs);
}

/* Are @length bytes more than the open segments of its homes may have beyond the quota? What moves opens some, too. */
bool kvc_quota_beyond(const struct kvc_pool *p, u32 slot, u32 length)
{
	const struct kvc_share *s = &p->quota.share[slot];
	u64 quota = READ_ONCE(s->quota), open = count_homes(READ_ONCE(s->homes)) * p->super.segment_size;
	u64 bytes = holding_of(p, slot).bytes + os_atomic64_read(&s->pending) + length;

	/* a quota may be any number */
	return bytes > quota && bytes - quota > open;
}

/* Does it have more? */
bool kvc_quota_over(const struct kvc_pool *p, u32 slot)
{
	return READ_ONCE(p->quota.on) && holding_of(p, slot).bytes > READ_ONCE(p->quota.share[slot].quota);
}

/* Would the tenant have less than its reserve without @bytes in @seg? Any lock may be held. */
static bool within_reserve(const struct kvc_pool *p, const struct kvc_seg *seg, u32 slot, u64 bytes)
{
	const struct kvc_share *s = &p->quota.share[slot];
	u64 reserve = READ_ONCE(s->reserve);
	struct holding h;

	if (!reserve)
		return false;
	h = holding_of(p, slot);
	if (kvc_seg_owner(seg) && h.segs > READ_ONCE(s->reserve_segs))
		return false;
	return h.bytes < reserve + READ_ONCE(s->leaving) + bytes;
}

/* Does the segment stay, for its tenant's reserve? */
bool kvc_quota_keeps(const struct kvc_pool *p, const struct kvc_seg *seg)
{
	u32 owner = READ_ONCE(p->quota.on) ? kvc_seg_owner(seg) : 0;
	u64 bytes = owner ? os_atomic64_read(&seg->live_bytes) : 0;

	return bytes && within_reserve(p, seg, owner - 1, bytes);
}

/* Is a tenant's page in a shared victim to be moved, lest the reserve is not kept? */
bool kvc_quota_guards(const struct kvc_pool *p, const struct kvc_seg *victim, u32 slot)
{
	return READ_ONCE(p->quota.on) && !kvc_seg_owner(victim) &&
	       within_reserve(p, victim, slot, p->super.segment_size);
}

/*
 * The pages in a victim, in s->bytes by tenant, are going to leave. False: they must not. Several members' victims may
 * have pages of a tenant. Who asks for the room may go below a reserve of his own.
 */
bool kvc_quota_leave(struct kvc_pool *p, const struct kvc_seg *victim, const struct kvc_survey *sv, u32 whose)
{
	bool may = true;
	u32 i;

	os_lock(&p->domains.lock);
	for (i = 0; i < KVC_TENANTS_MAX && may; i++)
		may = !sv->bytes[i] || whose == i + 1 || !within_reserve(p, victim, i, sv->bytes[i]);
	for (i = 0; i < KVC_TENANTS_MAX && may; i++)
		WRITE_ONCE(p->quota.share[i].leaving, p->quota.share[i].leaving + sv->bytes[i]);
	os_unlock(&p->domains.lock);
	return may;
}

/* They have left. */
void kvc_quota_left(struct kvc_pool *p, const struct kvc_survey *sv)
{
	u32 i;

	os_lock(&p->domains.lock);
	for (i = 0; i < KVC_TENANTS_MAX; i++)
		WRITE_ONCE(p->quota.share[i].leaving, p->quota.share[i].leaving - sv->bytes[i]);
	os_unlock(&p->domains.lock);
}

/* The head for the tenant's pages: of its own, or the @shared one */
u32 kvc_quota_head(const struct kvc_pool *p, u32 slot, u32 shared)
{
	return READ_ONCE(p->quota.share[slot].homes) ? KVC_HEAD_OWN + slot : shared;
}

/* Of @members those that the tenant's pages go to first; all of them if there is no difference */
u64 kvc_quota_some_homes(const struct kvc_pool *p, u32 slot, u64 members)
{
	u64 homes = READ_ONCE(p->quota.on) ? READ_ONCE(p->quota.share[slot].homes) & members : 0;

	return homes ? homes : members;
}

/* A store of @length has begun in @seg, or, @ends, ended. */
void kvc_quota_pend_own(struct kvc_pool *p, const struct kvc_seg *seg, u32 length, bool ends)
{
	u32 owner = kvc_seg_owner(seg);

	if (ends)
		os_atomic64_sub(&p->quota.share[owner - 1].pending, length);
	else
		os_atomic64_add(&p->quota.share[owner - 1].pending, length);
}

void kvc_quota_seg(struct kvc_member *m, u32 slot, bool goes)
{
	os_assert_locked(&m->lock);
	if (goes)
		os_atomic_dec(&m->stock[slot].segs);
	else
		os_atomic_inc(&m->stock[slot].segs);
}
