// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Leases: pages that reclaim leaves alone for a while, and what they may keep from others.
 *
 * The leases of a tenant on one segment are a keep. A segment with a keep is no victim, however little of it is leased,
 * so what counts is the segments that a tenant keeps. It has a share of each member: what its limit says, else a
 * quarter of the member divided by the tenants of the pool, so that all of them together leave most of it to reclaim;
 * nothing of a member that has hardly more segments than heads. More than its share a tenant may keep as long as nobody
 * is the worse for it. Leases beyond the shares yield
 *	- when somebody is refused on a member where nothing else can go
 *	- and, where there are several tenants, when all leases keep more than half of the member, or a victim
 *	  was leased after it had been chosen
 * those of the tenant that is most over its share first, and of these the keep that has lasted longest. A segment
 * yields as a whole, so not while a tenant within its share keeps it too. Holds never yield.
 *
 * A keep is found by its segment until it yields, and by its leases until the last of them ends. So the end of a lease
 * that has yielded says nothing about what the segment has become since.
 *
 * Locks. leases->lock: keeps of the member's segments, and how many there are. A segment stops being leasable under it,
 * so a lease is either seen by reclaim, or sees that it comes too late. A keep's leases are counted without the lock,
 * but for the first and the last.
 */
#include "log/log.h"

struct kvc_keep {
	struct os_atomic leases;
	u32	gseg, slot, epoch;	/* whose, and of what */
	u64	since;			/* leases->turn */
	bool	yielded;		/* no segment has it any more; written under the lock */
	struct kvc_keep *next;		/* of the segment, the newest first */
};

/* What a tenant that was removed still keeps counts no more as soon as who has its slot now keeps something. */
static void lessee_count(struct kvc_lessee *t, const struct kvc_keep *k, int n)
{
	if (k->epoch > t->whose) {
		t->whose = k->epoch;
		t->keeps = 0;
	}
	if (k->epoch == t->whose)
		t->keeps += (u32)n;
}

static void keep_link(struct kvc_member *m, struct kvc_seg *seg, struct kvc_keep *k)
{
	os_assert_locked(&m->leases.lock);
	k->since = m->leases.turn++;
	k->next = seg->keeps;
	seg->keeps = k;
	os_atomic_inc(&seg->leases);
	lessee_count(&m->leases.tenants[k->slot], k, 1);
	WRITE_ONCE(m->leases.keeps, m->leases.keeps + 1);
}

/* The full barrier of the decrement pairs with kvc_member_hope(), and with the one in ask_over(), reclaim.c. */
static void keep_unlink(struct kvc_member *m, struct kvc_seg *seg, struct kvc_keep *k)
{
	struct kvc_keep **link = &seg->keeps;

	os_assert_locked(&m->leases.lock);
	while (*link != k)
		link = &(*link)->next;
	*link = k->next;
	lessee_count(&m->leases.tenants[k->slot], k, -1);
	WRITE_ONCE(m->leases.keeps, m->leases.keeps - 1);
	os_atomic_dec_and_test(&seg->leases);
}

/* Who already has a lease of the same call there needs no lock: the keep cannot go. */
static bool lease_again(struct kvc_leasing *by, u32 gseg, struct kvc_lease *l)
{
	struct kvc_keep *k = by->last[(gseg >> KVC_GSEG_SHIFT) % KVC_LEASING_LAST];

	if (!k || k->gseg != gseg || READ_ONCE(k->yielded))
		return false;
	os_atomic_inc(&k->leases);
	l->keep = k;
	return true;
}

static struct kvc_keep *keep_find(struct kvc_member *m, const struct kvc_seg *seg, const struct kvc_domain *d)
{
	struct kvc_keep *k = seg->keeps;

	os_assert_locked(&m->leases.lock);
	while (k && (k->slot != d->slot || k->epoch != d->epoch))
		k = k->next;
	return k;
}

/*
 * A lease of a page of @d in segment @gseg: 0; -ENOENT, the segment's pages are as good as gone, or its member leaves
 * and waits for leases; -ENOMEM. The page's shard is locked.
 */
int kvc_lease_take(struct kvc_pool *p, u32 gseg, const struct kvc_domain *d, struct kvc_leasing *by,
		   struct kvc_lease *l)
{
	struct kvc_member *m = kvc_member_of(p, gseg);
	struct kvc_seg *seg = kvc_seg(p, gseg);
	struct kvc_keep *k;
	int r = -ENOENT;

	if (lease_again(by, gseg, l))
		return 0;
	os_lock(&m->leases.lock);
	if (!kvc_state_leasable(READ_ONCE(seg->state)) || READ_ONCE(m->leaseless))
		goto out;
	r = 0;
	k = keep_find(m, seg, d);
	if (k) {
		os_atomic_inc(&k->leases);
	} else if (by->spare) {
		k = by->spare;
		by->spare = NULL;
		*k = (struct kvc_keep){ .gseg = gseg, .slot = d->slot, .epoch = d->epoch };
		os_atomic_set(&k->leases, 1);
		keep_link(m, seg, k);
	} else {
		r = -ENOMEM;
		goto out;
	}
	by->last[m->index % KVC_LEASING_LAST] = k;
	l->keep = k;
out:
	os_unlock(&m->leases.lock);
	return r;
}

/* Before each page that is to be leased: what that takes. No lock held. Allocates. */
void kvc_leasing_prepare(struct kvc_leasing *by)
{
	if (!by->spare)
		by->spare = os_alloc_charged(sizeof(*by->spare));
}

void kvc_leasing_end(struct kvc_leasing *by)
{
	os_free(by->spare);
}

void kvc_lease_put(struct kvc_pool *p, struct kvc_lease *l)
{
	struct kvc_keep *k = l->keep;
	bool last, frees = false;
	struct kvc_member *m;

	if (!k || os_atomic_dec_unless_last(&k->leases))
		return;
	m = kvc_member_of(p, k->gseg);
	os_lock(&m->leases.lock);
	last = os_atomic_dec_and_test(&k->leases);
	if (last && !k->yielded) {
		keep_unlink(m, kvc_seg(p, k->gseg), k);
		frees = true;
	}
	os_unlock(&m->leases.lock);
	if (last)
		os_free(k);
	if (frees && (READ_ONCE(m->wanted) || READ_ONCE(m->nr_asked) || READ_ONCE(p->quota.late))) {
		kvc_kick(m);
		kvc_space(p);
	}
}

bool kvc_lease_lasts(const struct kvc_lease *l)
{
	return l->keep && !READ_ONCE(l->keep->yielded);
}

u64 kvc_tenant_leased(struct kvc_pool *p, u32 slot)
{
	u32 nr = kvc_nr_members(p), epoch, i;
	u64 segs = 0;

	os_lock(&p->domains.lock);
	epoch = p->super.tenants[slot].epoch;
	os_unlock(&p->domains.lock);
	for (i = 0; i < nr; i++) {
		struct kvc_leases *l = &p->members[i].leases;

		os_lock(&l->lock);
		segs += l->tenants && l->tenants[slot].whose == epoch ? l->tenants[slot].keeps : 0;
		os_unlock(&l->lock);
	}
	return segs * p->super.segment_size;
}

/* Is the segment leased? Who made it so that it is leased no more asks here, others look at seg->leases. */
bool kvc_seg_leased(struct kvc_member *m, const struct kvc_seg *seg)
{
	bool leased;

	os_lock(&m->leases.lock);
	leased = seg->keeps;
	os_unlock(&m->leases.lock);
	return leased;
}

/* Which yield */

/* @limit in segments of @m, as the member's part of the pool is; not less than one. Domains locked. */
static u32 share_of(const struct kvc_member *m, u64 limit)
{
	const struct kvc_super *s = &m->pool->super;
	u64 all = 0, segs = limit / s->segment_size + !!(limit % s->segment_size);
	u32 i;

	for (i = 0; i < s->nr_members; i++)
		all += s->members[i].nr_segments;
	return segs >= all ? m->nr_segs : (u32)((segs * m->nr_segs + all - 1) / all);
}

/* What each tenant may keep on @m, whoever wants room. Member locked. */
static void note_shares(struct kvc_member *m)
{
	u32 quarter = m->nr_segs < KVC_SEGMENTS_FEW ? 0 : m->nr_segs / 4, nr = 0, i;
	const struct kvc_super *s = &m->pool->super;
	struct kvc_leases *l = &m->leases;

	os_lock(&m->pool->domains.lock);
	for (i = 0; i < KVC_TENANTS_MAX; i++)
		nr += s->tenants[i].flags & KVC_TENANT_USED ? 1 : 0;
	for (i = 0; i < KVC_TENANTS_MAX; i++) {
		l->tenants[i].epoch = s->tenants[i].epoch;
		l->tenants[i].share = 0;
		if (s->tenants[i].flags & KVC_TENANT_USED)
			l->tenants[i].share = s->limits[i].leased ? share_of(m, s->limits[i].leased) : quarter / nr;
	}
	os_unlock(&m->pool->domains.lock);
	l->nr_tenants = nr;
}

/* By how many segments its tenant is over its share. One that was removed has none. */
static u32 excess_of(const struct kvc_leases *l, const struct kvc_keep *k)
{
	const struct kvc_lessee *t = &l->tenants[k->slot];

	if (k->epoch != t->epoch)
		return U32_MAX;
	return t->keeps > t->share ? t->keeps - t->share : 0;
}

/* Of those who keep the segment, the least; 0: it does not yield. */
static u32 least_excess(const struct kvc_leases *l, const struct kvc_seg *seg)
{
	const struct kvc_keep *k;
	u32 least = U32_MAX;

	for (k = seg->keeps; k; k = k->next)
		least = min(least, excess_of(l, k));
	return least;
}

/*
 * The segment whose leases yield next, or NULL. @last: those who are refused on @m have nothing else to hope for.
 * Member locked.
 */
struct kvc_seg *kvc_lease_next(struct kvc_member *m, bool last)
{
	struct kvc_leases *l = &m->leases;
	struct kvc_seg *seg, *next = NULL;
	u32 excess, most = 0, gseg;

	if (!last && READ_ONCE(l->keeps) <= m->nr_segs / 2)
		return NULL;
	note_shares(m);
	if (!last && l->nr_tenants < 2)
		return NULL;
	os_lock(&l->lock);
	for (gseg = m->list[KVC_S_SEALED].first; gseg != KVC_NONE; gseg = seg->next) {
		seg = kvc_seg(m->pool, gseg);
		if (!seg->keeps || !kvc_seg_could_go(m, seg) || kvc_quota_keeps(m->pool, seg) ||
		    (!last && seg == m->newest))
			continue;
		excess = least_excess(l, seg);
		if (excess > most || (next && excess == most && seg->keeps->since < next->keeps->since)) {
			most = excess;
			next = seg;
		}
	}
	os_unlock(&l->lock);
	return next;
}

/* The segment gets state @to, in which nobody leases it, and the leases on it yield; false: somebody keeps it. */
static bool keeps_yield(struct kvc_member *m, struct kvc_seg *seg, enum kvc_seg_state to, bool may)
{
	struct kvc_leases *l = &m->leases;
	struct kvc_keep *k;
	bool yields;

	os_assert_locked(&m->lock);
	os_lock(&l->lock);
	yields = !seg->keeps || (may && least_excess(l, seg));
	if (yields)
		kvc_seg_set_state(m, seg, to);
	while (yields && seg->keeps) {
		k = seg->keeps;
		keep_unlink(m, seg, k);
		WRITE_ONCE(k->yielded, true);
	}
	os_unlock(&l->lock);
	return yields;
}

/* Reclaim takes @seg, which is leased: VICTIM, but leased no more. Member locked. */
bool kvc_lease_yield(struct kvc_member *m, struct kvc_seg *seg, bool last)
{
	/* who chose it looked at no leases, and shares may have changed since */
	note_shares(m);
	return kvc_seg_could_go(m, seg) && keeps_yield(m, seg, KVC_S_YIELDING, last || m->leases.nr_tenants > 1);
}

/* The pages of a victim are about to leave the index: DRAINING, unless it was leased meanwhile. Member locked. */
bool kvc_lease_end(struct kvc_member *m, struct kvc_seg *seg)
{
	if (os_atomic_read(&seg->leases))
		note_shares(m);
	return keeps_yield(m, seg, KVC_S_DRAINING, !m->leaving && m->leases.nr_tenants > 1);
}

/* The pool goes, and with it who forgot to end his leases. */
void kvc_keeps_free(struct kvc_seg *seg)
{
	struct kvc_keep *k, *next;

	for (k = seg->keeps; k; k = next) {
		next = k->next;
		os_free(k);
	}
}
