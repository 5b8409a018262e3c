// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Segments of one tenant's own: which they are, and who evicts one when their tenant is at its quota (quota.c).
 *
 * One member is asked to, by a store that was refused or when a tenant is found to be over its quota; its worker goes
 * on as long as that is so (reclaim.c), and asks the next one when it has nothing more to evict.
 *
 * Pages that the tenant has beside others' leave one by one. Each segment has a set of tenants that may have some: all,
 * until it was sealed and somebody looked, and fewer each time. So who is refused again and again, as all that he has
 * is leased, does not go over all that others have stored.
 */
#include "log/log.h"

/* Member locked. */
static bool is_there(const struct kvc_member *m)
{
	return !m->offline && !m->leaving;
}

/* Has the tenant a page in the segment? Member locked. */
static os_racy bool has_page(const struct kvc_pool *p, const struct kvc_seg *seg, u32 slot)
{
	u32 owner = kvc_seg_owner(seg), entry;
	struct kvc_cursor c;

	if (owner && owner != slot + 1)
		return false;
	kvc_cursor_init(&c);
	for (; (entry = kvc_cursor_entry(p, seg, &c)) != KVC_NONE; c.index++) {
		const struct kvc_entry *e = kvc_entry(p, entry);

		if ((e->state == KVC_E_LIVE || e->state == KVC_E_PENDING) && kvc_domain(p, e->domain)->slot == slot)
			return true;
	}
	return false;
}

static bool may_have(const struct kvc_seg *seg, u32 slot)
{
	return READ_ONCE(seg->tenants[slot / 64]) >> slot % 64 & 1;
}

/*
 * Who has pages in the segment? No page comes to a sealed one, so whoever has none now is not looked for there again.
 * Member locked.
 */
static os_racy void note_tenants(const struct kvc_pool *p, struct kvc_seg *seg)
{
	u64 tenants[KVC_SLOT_WORDS] = { 0 };
	struct kvc_cursor c;
	u32 entry, slot, i;

	kvc_cursor_init(&c);
	for (; (entry = kvc_cursor_entry(p, seg, &c)) != KVC_NONE; c.index++) {
		const struct kvc_entry *e = kvc_entry(p, entry);

		slot = kvc_domain(p, e->domain)->slot;
		if (e->state == KVC_E_LIVE)
			tenants[slot / 64] |= BIT_ULL(slot % 64);
	}
	for (i = 0; i < KVC_SLOT_WORDS; i++)
		WRITE_ONCE(seg->tenants[i], tenants[i]);
}

/* Is it a shared segment that pages of the tenant may leave for its quota? Without the lock it is a guess. */
static bool may_trim(const struct kvc_seg *seg, u32 slot)
{
	return READ_ONCE(seg->state) == KVC_S_SEALED && !kvc_seg_owner(seg) && may_have(seg, slot) &&
	       !os_atomic_read(&seg->leases) && os_atomic64_read(&seg->live_bytes);
}

static bool has_some(struct kvc_member *m, struct kvc_seg *seg, u32 slot)
{
	bool has;

	os_lock(&m->lock);
	if (may_trim(seg, slot))
		note_tenants(m->pool, seg);
	has = may_trim(seg, slot);
	os_unlock(&m->lock);
	return has;
}

/* The number of segments of @m, whose pages may leave; none of one that is gone, or leaves */
static u32 count_segments(struct kvc_member *m)
{
	u32 nr;

	os_lock(&m->lock);
	nr = is_there(m) ? m->nr_segs : 0;
	os_unlock(&m->lock);
	return nr;
}

/* A segment of @m that has pages of the tenant beside others', by number the first from @from on and round; or NULL */
static struct kvc_seg *find_mixed(struct kvc_member *m, u32 slot, u32 from)
{
	u32 nr = os_atomic64_read(&m->stock[slot].bytes) ? count_segments(m) : 0, i;

	for (i = 0; i < nr; i++) {
		struct kvc_seg *seg = &m->segs[(from + i) % nr];

		if (may_trim(seg, slot) && has_some(m, seg, slot))
			return seg;
	}
	return NULL;
}

/* The entries that a segment has, for who goes over them without the lock: what comes then is tombstones. */
static u32 count_entries(struct kvc_member *m, const struct kvc_seg *seg)
{
	u32 nr;

	os_lock(&m->lock);
	nr = seg->nr_entries;
	os_unlock(&m->lock);
	return nr;
}

/* The tenant's pages leave a segment that others share, but those that may be leased. Did any? */
static os_racy bool trim(struct kvc_member *m, struct kvc_seg *seg, u32 slot)
{
	u32 nr = count_entries(m, seg), entry;
	struct kvc_pool *p = m->pool;
	struct kvc_cursor c;
	bool any = false;

	kvc_seg_undead(p, seg);
	kvc_cursor_init(&c);
	for (; c.index < nr; c.index++) {
		entry = kvc_cursor_entry(p, seg, &c);
		if (kvc_domain(p, kvc_entry(p, entry)->domain)->slot == slot)
			any |= kvc_page_evict(p, entry, &seg->leases);
		if (c.index % 1024 == 1023)
			os_relax();
	}
	return any;
}

/* The same in one segment after the other, until one had any. By who executes the member's work. */
bool kvc_own_trim(struct kvc_member *m, u32 slot)
{
	struct kvc_seg *seg;

	while ((seg = find_mixed(m, slot, m->reclaim.trimmed))) {
		m->reclaim.trimmed = (u32)(seg - m->segs) + 1;
		if (trim(m, seg, slot))
			return true;
	}
	return false;
}

/* Whose are the pages in a recovered segment, or in one from before there were limits? KVC_TENANTS_MAX: several's */
static os_racy u32 sole_tenant(const struct kvc_pool *p, const struct kvc_seg *seg, u32 nr)
{
	u32 sole = KVC_TENANTS_MAX, slot;
	struct kvc_cursor c;

	kvc_cursor_init(&c);
	for (; c.index < nr; c.index++) {
		const struct kvc_entry *e = kvc_entry(p, kvc_cursor_entry(p, seg, &c));

		if (e->state != KVC_E_LIVE)
			continue;
		slot = kvc_domain(p, e->domain)->slot;
		if (sole != KVC_TENANTS_MAX && slot != sole)
			return KVC_TENANTS_MAX;
		sole = slot;
	}
	return sole;
}

static bool adopt(struct kvc_member *m, struct kvc_seg *seg)
{
	struct kvc_pool *p = m->pool;
	bool yes;
	u32 slot;

	if (READ_ONCE(seg->state) != KVC_S_SEALED || kvc_seg_owner(seg) || !os_atomic64_read(&seg->live_bytes))
		return false;
	slot = sole_tenant(p, seg, count_entries(m, seg));
	if (slot == KVC_TENANTS_MAX || kvc_quota_head(p, slot, KVC_HEAD_NEW) == KVC_HEAD_NEW)
		return false;
	os_lock(&m->lock);
	yes = seg->state == KVC_S_SEALED;
	if (yes) {
		WRITE_ONCE(seg->head, (u8)(KVC_HEAD_OWN + slot));
		kvc_quota_seg(m, slot, false);
	}
	os_unlock(&m->lock);
	return yes;
}

/*
 * There is a new plan: open segments of tenants that are not at home here are closed, others turn out to be theirs.
 * With these a reserve may have more segments than it keeps: some of other members may go.
 */
void kvc_own_adopt(struct kvc_member *m)
{
	struct kvc_pool *p = m->pool;
	bool any = false;
	u32 i;

	os_lock(&m->lock);
	for (i = KVC_HEAD_OWN; i < m->nr_heads; i++)
		if (m->head[i] && !(READ_ONCE(p->quota.share[i - KVC_HEAD_OWN].homes) & BIT_ULL(m->index)))
			kvc_seg_retire(m, i);
	os_unlock(&m->lock);
	for (i = 0; i < m->nr_segs; i++) {
		any |= adopt(m, &m->segs[i]);
		if (i % 64 == 63)
			os_relax();
	}
	for (i = 0; any && i < kvc_nr_members(p); i++)
		kvc_kick(&p->members[i]);
}

/* The tenant's segments on @m that could go, and *closing: one will soon be */
u32 kvc_own_count(struct kvc_member *m, u32 slot, bool *closing)
{
	u32 nr = os_atomic_read(&m->stock[slot].segs) ? count_segments(m) : 0, n = 0, i;

	for (i = 0; i < nr; i++) {
		const struct kvc_seg *seg = &m->segs[i];
		u8 state;

		if (kvc_seg_owner(seg) != slot + 1)
			continue;
		/* it may be sealed meanwhile */
		state = READ_ONCE(seg->state);
		*closing |= state == KVC_S_SEALING || state == KVC_S_VICTIM;
		n += kvc_seg_evictable(m, seg);
	}
	return n;
}

/* Open ones, of the tenant's own or with pages of it, are closed, so that these may leave soon. Were there any? */
static bool close_open(struct kvc_member *m, u32 slot)
{
	bool any = false;
	u32 gseg, i;

	os_lock(&m->lock);
	for (i = 0; is_there(m) && i < m->nr_heads; i++) {
		if (m->head[i] && has_page(m->pool, m->head[i], slot)) {
			kvc_seg_retire(m, i);
			any = true;
		}
	}
	gseg = is_there(m) ? m->list[KVC_S_SEALING].first : KVC_NONE;
	for (; !any && gseg != KVC_NONE; gseg = kvc_seg(m->pool, gseg)->next)
		any = has_page(m->pool, kvc_seg(m->pool, gseg), slot);
	os_unlock(&m->lock);
	return any;
}

/*
 * May any page of the tenant's leave @m soon? Segments are sealed, and sealed ones adopted, meanwhile: what was open
 * when sealed ones were looked at is looked for again, in the order in which that happens.
 */
static bool has_any(struct kvc_member *m, u32 slot)
{
	bool closing = false;

	if (READ_ONCE(m->offline) || READ_ONCE(m->leaving))
		return false;
	return find_mixed(m, slot, 0) || close_open(m, slot) || find_mixed(m, slot, 0) ||
	       kvc_own_count(m, slot, &closing) || closing;
}

/* The member with most of the tenant's that can go, or p->members + @nr */
static struct kvc_member *find_member(struct kvc_pool *p, u32 slot, u32 nr)
{
	struct kvc_member *best = p->members + nr;
	u32 most = 0, i, n;
	bool closing;

	for (i = 0; i < nr; i++) {
		closing = false;
		n = 2 * kvc_own_count(&p->members[i], slot, &closing);
		if (n + closing > most) {
			most = n + closing;
			best = &p->members[i];
		}
	}
	for (i = 0; i < nr && !most; i++)
		if (has_any(&p->members[i], slot))
			return &p->members[i];
	return best;
}

static bool is_asked(struct kvc_pool *p, u32 slot, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		struct kvc_member *m = &p->members[i];

		if (READ_ONCE(m->asked[slot]) && !READ_ONCE(m->offline) && !READ_ONCE(m->leaving))
			return true;
	}
	return false;
}

static bool ask(struct kvc_member *m, u32 slot)
{
	bool yes;

	os_lock(&m->lock);
	yes = is_there(m);
	if (yes && !m->asked[slot]) {
		WRITE_ONCE(m->asked[slot], true);
		WRITE_ONCE(m->nr_asked, m->nr_asked + 1);
	}
	os_unlock(&m->lock);
	if (yes)
		kvc_kick(m);
	return yes;
}

/* Have some of the tenant's own evicted. False: nothing of it can be. No lock held. */
bool kvc_own_ask(struct kvc_pool *p, u32 slot)
{
	u32 nr = kvc_nr_members(p);
	struct kvc_member *m;

	do {
		if (is_asked(p, slot, nr))
			return true;
		m = find_member(p, slot, nr);
		if (m == p->members + nr)
			return false;
	} while (!ask(m, slot));
	return true;
}

void kvc_own_unask(struct kvc_member *m, u32 slot)
{
	os_lock(&m->lock);
	WRITE_ONCE(m->asked[slot], false);
	WRITE_ONCE(m->nr_asked, m->nr_asked - 1);
	os_unlock(&m->lock);
}
