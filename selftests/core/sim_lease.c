// SPDX-License-Identifier: GPL-2.0
/*
 * Leases in the model: which segments they keep, and which of them may yield. See sim.h.
 */
#include "sim.h"

#define SLOTS	8U	/* tenants have one of the first */

/* Segments of a member that a tenant's leases keep */
struct keeps {
	u32	slot, epoch, member;
	u64	segments;		/* a mask */
	bool	yielded;		/* some have, since the last look */
};

struct census {
	struct keeps of[64];
	u32	nr;
};

static struct keeps *keeps_of(struct census *c, const struct mlease *l)
{
	u32 i;

	for (i = 0; i < c->nr; i++)
		if (c->of[i].slot == l->slot && c->of[i].epoch == l->epoch && c->of[i].member == l->member)
			return &c->of[i];
	sim_check(c->nr < ARRAY_SIZE(c->of), "%u tenants with leases", c->nr);
	c->of[c->nr] = (struct keeps){ .slot = l->slot, .epoch = l->epoch, .member = l->member };
	return &c->of[c->nr++];
}

/* Who had the slot before is another tenant. */
static u32 segments(const struct census *c, u32 slot, u32 epoch, u32 member)
{
	u32 i, n = 0;

	for (i = 0; i < c->nr; i++)
		if (c->of[i].slot == slot && c->of[i].epoch == epoch && (member == KVC_NONE || c->of[i].member == member))
			n += (u32)__builtin_popcountll(c->of[i].segments);
	return n;
}

/* What a tenant may keep of the member whoever wants room */
static u32 share(const struct sim *s, const struct keeps *k)
{
	const struct kvc_super *super = kvc_super_of(s->pool);
	u32 nr_segs = kvc_nr_segments(s->pool, k->member), nr = 0, i;

	for (i = 0; i < KVC_TENANTS_MAX; i++)
		nr += super->tenants[i].flags & KVC_TENANT_USED;
	if (!(super->tenants[k->slot].flags & KVC_TENANT_USED) || super->tenants[k->slot].epoch != k->epoch)
		return 0;
	return nr_segs < 8 ? 0 : nr_segs / 4 / nr;
}

/* Leases of moves are in no list, and are of one segment of a member. */
static bool moves_leased(const struct sim *s, u32 member)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++)
		if (s->workers[i].leased && (member == KVC_NONE || i == member))
			return true;
	return false;
}

static void census(struct sim *s, struct census *c)
{
	struct mlease *l;
	struct keeps *k;
	bool lasts;
	u32 i;

	c->nr = 0;
	for (i = 0; i < s->nr_leases; i++) {
		l = &s->leases[i];
		k = keeps_of(c, l);
		lasts = kvc_lease_lasts(&l->lease);
		sim_check(!l->yielded || !lasts, "a lease of member %u has yielded, and lasts", l->member);
		if (lasts)
			k->segments |= BIT_ULL(l->segment);
		k->yielded |= !lasts && !l->yielded;
		s->n.yielded += !lasts && !l->yielded;
		l->yielded = !lasts;
	}
}

/* Before what anybody keeps changes, or his share: leases that have yielded were beyond it. */
void leases_look(struct sim *s)
{
	struct census c;
	u32 i;

	if (!s->nr_leases)
		return;
	census(s, &c);
	for (i = 0; i < c.nr; i++)
		sim_check(!c.of[i].yielded ||
			  segments(&c, c.of[i].slot, c.of[i].epoch, c.of[i].member) +
			  moves_leased(s, c.of[i].member) >= share(s, &c.of[i]),
			  "leases of tenant %u have yielded on member %u, which were within its share", c.of[i].slot,
			  c.of[i].member);
}

/* The engine counts the same. */
void leases_check(struct sim *s)
{
	struct census c;
	u32 i, n;
	u64 kept;

	leases_look(s);
	if (moves_leased(s, KVC_NONE) || s->ending)
		return;
	census(s, &c);
	for (i = 0; i < SLOTS; i++) {
		n = segments(&c, i, kvc_super_of(s->pool)->tenants[i].epoch, KVC_NONE);
		kept = kvc_tenant_leased(s->pool, i);
		sim_check(kept == n * s->cfg.segment_size, "tenant %u keeps %llu bytes by leases, should be %u segments", i,
			  (unsigned long long)kept, n);
	}
}

/* Leases on the segment that last */
u32 model_leases(const struct sim *s, u32 member, u64 segment)
{
	u32 i, n = 0;

	for (i = 0; i < s->nr_leases; i++)
		n += s->leases[i].member == member && s->leases[i].segment == segment &&
		     kvc_lease_lasts(&s->leases[i].lease);
	return n;
}
