// SPDX-License-Identifier: GPL-2.0
/*
 * Quotas and reserves. Tenants get some, now and then others; none comes to have more than its quota and two segments
 * for each member, and no eviction takes a tenant below its reserve. What they draw is drawn from a generator of their
 * own: histories without limits are what they were. See sim.h.
 */
#include "sim.h"

/* Bytes of all members that are in use */
static u64 capacity(const struct sim *s)
{
	u64 segs = 0;
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++)
		segs += s->hole[i] ? 0 : s->cfg.nr_segs[i];
	return segs * s->cfg.segment_size;
}

static u32 members(const struct sim *s)
{
	u32 n = 0, i;

	for (i = 0; i < s->cfg.nr_members; i++)
		n += !s->hole[i];
	return n;
}

static u64 model_bytes(const struct sim *s, u32 tenant)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < s->nr_keys; i++)
		if (s->keys[i].tenant == tenant)
			sum += s->keys[i].cur.length;
	return sum;
}

/* So many segments have pages of the tenant */
static u32 model_segments(const struct sim *s, u32 tenant)
{
	u64 has[SIM_MEMBERS_MAX] = { 0 };
	u32 i, n = 0;

	for (i = 0; i < s->nr_keys; i++) {
		const struct mkey *k = &s->keys[i];

		if (k->tenant == tenant && k->cur.version && k->at.offset)
			has[k->at.member] |= BIT_ULL(segment_of(s, k->at.offset));
	}
	for (i = 0; i < SIM_MEMBERS_MAX; i++)
		n += (u32)__builtin_popcountll(has[i]);
	return n;
}

/* Others than @l has */
static struct kvc_limits draw(struct sim *s, struct kvc_limits l)
{
	struct rng *r = &s->quota_rng;
	u64 all = capacity(s), seg = s->cfg.segment_size;

	l.quota = l.reserve = 0;
	if (rng_chance(r, 7000))
		l.reserve = rng_chance(r, 9000) ? rng_below(r, (u32)(all / 4)) : all - rng_below(r, (u32)all / 2);
	if (rng_chance(r, 5000))
		l.quota = rng_chance(r, 2000) ? 1 + rng_below(r, (u32)seg) : 1 + rng_below(r, (u32)(all * 2 / 3));
	/* one that nobody comes to */
	if (l.quota && rng_chance(r, 500))
		l.quota = ~0ULL - rng_below(r, 1U << 31);
	/* who evicts for the quota's sake may go below a reserve that is as large */
	if (l.quota && l.reserve)
		l.quota = max(l.quota, l.reserve + 3 * (members(s) + 1) * seg);
	return l;
}

static u64 sum_reserves(const struct sim *s)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < SIM_TENANTS; i++)
		sum += s->tenants[i].state == T_LIVE ? s->tenants[i].limits.reserve : 0;
	return sum;
}

void op_limit(struct sim *s)
{
	u32 i = rng_below(&s->quota_rng, SIM_TENANTS);
	struct mtenant *t = &s->tenants[i];
	struct kvc_limits before = t->limits, l = draw(s, before);
	struct window win;
	int r;

	if (super_busy(s) || s->depth || t->state != T_LIVE || !tenant_settled(t))
		return;
	t->limits = l;
	s->admin = true;
	window_begin(s, &win, NULL);
	r = kvc_tenant_limit(s->pool, t->name, &l);
	window_end(s, &win);
	s->admin = false;
	sim_check(r == 0 || r == -ENOSPC, "limits of tenant %s: %d", t->name, r);
	sim_check(r == 0 || l.reserve > before.reserve || (l.quota && !before.quota), "limits of tenant %s: -ENOSPC",
		  t->name);
	sim_check(r != 0 || l.reserve <= before.reserve || sum_reserves(s) / 4 * 5 <= capacity(s),
		  "reserves of %llu in a pool of %llu", (unsigned long long)sum_reserves(s),
		  (unsigned long long)capacity(s));
	sim_trace(s, "tenant %s: quota %llu, reserve %llu: %d", t->name, (unsigned long long)l.quota,
		  (unsigned long long)l.reserve, r);
	if (r) {
		t->limits = before;
		s->n.limits_refused++;
		return;
	}
	t->over = true;
	t->bounded |= before.quota != 0;
	s->n.limits_set++;
	s->tenant_op = i;
	super_write(s, SUPER_TENANT);
}

/* Is what the reserves are kept in there as it was when they were set, and no member preferred? */
static bool sound(const struct sim *s)
{
	const struct sim_cfg *c = &s->cfg;

	return c->scatters && !c->vanish && !c->member_fails && !c->grow && !c->corrupts && !c->misreads && !c->io_errors;
}

/* Pages of the tenant were evicted. Reserves are bytes, in segments that are full; or segments. */
void quota_evicted(struct sim *s, u32 tenant)
{
	const struct mtenant *t = &s->tenants[tenant];
	u64 reserve = t->limits.reserve, bytes = model_bytes(s, tenant);

	if (!reserve || !sound(s) || s->step_windows || t->state != T_LIVE)
		return;
	s->n.reserves_seen++;
	sim_check(bytes >= reserve || model_segments(s, tenant) >= reserve / s->cfg.segment_size,
		  "tenant %u is left with %llu bytes of %llu, in %u segments", tenant, (unsigned long long)bytes,
		  (unsigned long long)reserve, model_segments(s, tenant));
}

/*
 * A tenant that is not over its quota comes to have no more than two segments on each member above it: one that was open
 * when the quota was used up, and one that was opened for what reclaim moves.
 */
static void check_quota(struct sim *s, u32 tenant)
{
	struct mtenant *t = &s->tenants[tenant];
	u64 quota = max(t->limits.quota, s->cfg.segment_size), bytes;

	if (t->state != T_LIVE || !t->limits.quota)
		return;
	bytes = model_bytes(s, tenant);
	t->over &= bytes > quota;
	s->n.quotas_seen++;
	s->n.quotas_full += bytes >= quota;
	sim_check(t->over || bytes <= quota || bytes - quota <= 2 * members(s) * s->cfg.segment_size, "tenant %u has %llu bytes of %llu",
		  tenant, (unsigned long long)bytes, (unsigned long long)quota);
}

/* A page of the tenant's was stored. */
void quota_stored(struct sim *s, u32 tenant)
{
	if (s->cfg.quotas && !s->step_windows)
		check_quota(s, tenant);
}

/* Nothing is left to do, so nobody is over a quota. */
void quota_settled(struct sim *s)
{
	u32 i;

	for (i = 0; i < SIM_TENANTS; i++) {
		s->tenants[i].over = s->tenants[i].bounded = false;
		check_quota(s, i);
	}
}

bool quota_limits(const struct sim *s, u32 tenant)
{
	return s->tenants[tenant].limits.quota;
}

bool quota_limited(const struct sim *s, u32 tenant)
{
	return quota_limits(s, tenant) || s->tenants[tenant].bounded;
}

/* May the tenant's quota be full of pages on a member that leaves? Those on members that are gone do not count. */
bool quota_lost(const struct sim *s, u32 tenant)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++)
		if (grow_leaving(s, i))
			return quota_limits(s, tenant);
	return false;
}

/* Leases do not yield for a quota's sake, nor where a reserve keeps the same segment: of that more than fits goes later. */
bool quota_leased(const struct sim *s, u32 tenant)
{
	u32 i;

	for (i = 0; i < SIM_TENANTS && s->nr_leases; i++)
		if (s->tenants[i].state == T_LIVE && s->tenants[i].limits.reserve)
			return true;
	return s->nr_leases && quota_limits(s, tenant);
}
