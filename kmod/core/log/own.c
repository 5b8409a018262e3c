// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Segments of one tenant's own: which they are, and who evicts one when their tenant is at its quota (quota.c).
 *
 * One member is asked to, by a store that was refused or when a tenant is found to be over its quota; its worker goes
 * on as long as that is so (reclaim.c), and asks the next one when it has nothing more to evict.
 */
#include "log/log.h"

/* Has the tenant, or have @others, a page in the segment? With the member locked, or by who executes its work. */
static os_racy bool has_page(const struct kvc_pool *p, const struct kvc_seg *seg, u32 slot, bool others)
{
	struct kvc_cursor c;
	u32 entry;

	kvc_cursor_init(&c);
	for (; (entry = kvc_cursor_entry(p, seg, &c)) != KVC_NONE; c.index++) {
		const struct kvc_entry *e = kvc_entry(p, entry);

		if ((e->state == KVC_E_LIVE || e->state == KVC_E_PENDING) &&
		    (kvc_domain(p, e->domain)->slot == slot) != others)
			return true;
	}
	return false;
}

/* A shared segment whose pages may leave for the tenant's quota. Member locked. */
static bool may_trim(const struct kvc_pool *p, const struct kvc_seg *seg, u32 slot)
{
	return seg->state == KVC_S_SEALED && !kvc_seg_owner(seg) && !os_atomic_read(&seg->leases) &&
	       os_atomic64_read(&seg->live_bytes) && has_page(p, seg, slot, false);
}

/* The next segment of @m that has pages of the tenant beside others', from number @from on; NULL: there is none */
struct kvc_seg *kvc_own_mixed(struct kvc_member *m, u32 slot, u32 from)
{
	struct kvc_seg *found = NULL;
	u32 i;

	for (i = from; i < m->nr_segs && !found; i++) {
		os_lock(&m->lock);
		if (may_trim(m->pool, &m->segs[i], slot))
			found = &m->segs[i];
		os_unlock(&m->lock);
	}
	return found;
}

/* Who are the pages in a recovered segment, or in one from before there were limits? KVC_TENANTS_MAX: several */
static os_racy u32 sole_tenant(const struct kvc_pool *p, const struct kvc_seg *seg)
{
	struct kvc_cursor c;
	u32 entry, slot;

	kvc_cursor_init(&c);
	for (; (entry = kvc_cursor_entry(p, seg, &c)) != KVC_NONE; c.index++) {
		const struct kvc_entry *e = kvc_entry(p, entry);

		if (e->state != KVC_E_LIVE)
			continue;
		slot = kvc_domain(p, e->domain)->slot;
		return has_page(p, seg, slot, true) ? KVC_TENANTS_MAX : slot;
	}
	return KVC_TENANTS_MAX;
}

static bool adopt(struct kvc_member *m, struct kvc_seg *seg)
{
	struct kvc_pool *p = m->pool;
	bool yes;
	u32 slot;

	if (READ_ONCE(seg->state) != KVC_S_SEALED || kvc_seg_owner(seg) || !os_atomic64_read(&seg->live_bytes))
		return false;
	slot = sole_tenant(p, seg);
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

/* Member locked. */
static bool is_there(const struct kvc_member *m)
{
	return !m->offline && !m->leaving;
}

/* The tenant's segments on @m that could go, and *closing: one will soon be */
static u32 count_own(struct kvc_member *m, u32 slot, bool *closing)
{
	u32 n = 0, i;

	os_lock(&m->lock);
	for (i = 0; is_there(m) && i < m->nr_segs; i++) {
		const struct kvc_seg *seg = &m->segs[i];

		if (kvc_seg_owner(seg) != slot + 1)
			continue;
		n += kvc_seg_evictable(m, seg);
		*closing |= seg->state == KVC_S_SEALING || seg->state == KVC_S_VICTIM;
	}
	os_unlock(&m->lock);
	return n;
}

/* Open ones, of the tenant's own or with pages of it, are closed, so that these may leave soon. Were there any? */
static bool close_open(struct kvc_member *m, u32 slot)
{
	bool any = false;
	u32 gseg, i;

	os_lock(&m->lock);
	for (i = 0; is_there(m) && i < m->nr_heads; i++) {
		if (m->head[i] && has_page(m->pool, m->head[i], slot, false)) {
			kvc_seg_retire(m, i);
			any = true;
		}
	}
	gseg = is_there(m) ? m->list[KVC_S_SEALING].first : KVC_NONE;
	for (; !any && gseg != KVC_NONE; gseg = kvc_seg(m->pool, gseg)->next)
		any = has_page(m->pool, kvc_seg(m->pool, gseg), slot, false);
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
	return kvc_own_mixed(m, slot, 0) || close_open(m, slot) || kvc_own_mixed(m, slot, 0) ||
	       count_own(m, slot, &closing) || closing;
}

/* The member with most of the tenant's that can go, or p->members + @nr */
static struct kvc_member *find_member(struct kvc_pool *p, u32 slot, u32 nr)
{
	struct kvc_member *best = p->members + nr;
	u32 most = 0, i, n;
	bool closing;

	for (i = 0; i < nr; i++) {
		closing = false;
		n = 2 * count_own(&p->members[i], slot, &closing);
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
