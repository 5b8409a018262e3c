// SPDX-License-Identifier: GPL-2.0
/*
 * What a seed means: the shape of its pool, what its users do, what goes wrong. See sim.h.
 */
#include "sim.h"

static void set_faults(struct sim *s)
{
	struct bus_faults f = { 0 };

	if (s->cfg.corrupts) {
		f.lost = rng_below(&s->fault_rng, 60);
		f.misdirected = rng_below(&s->fault_rng, 30);
		f.flip = rng_below(&s->fault_rng, 80);
	}
	if (s->cfg.io_errors) {
		f.read_error = rng_below(&s->fault_rng, 300);
		f.write_error = rng_below(&s->fault_rng, 60);
		f.bad = rng_below(&s->fault_rng, 150);
	}
	f.misread = s->cfg.misreads ? 200 : 0;
	f.lying = s->cfg.lies ? 5000 : 0;
	bus_faults(s->bus, &f);
}

/*
 * Most histories have the shape that matters: members large enough for a head of each queue, and full. The others are
 * shorter, on pools of few segments, where corners are near.
 */
struct size {
	u32	weight;			/* of 100 */
	u32	lives, steps, members, segs_min, segs, keys;
	u32	lens[4];		/* bytes of a typical page */
};

static const struct size sizes[] = {
	{ 15, 3, 150, 2, KVC_SEGMENTS_MIN, 5, 16, { 2000, 24000, 60000, 120000 } },
	{ 10, 4, 300, 3, KVC_SEGMENTS_MIN, 7, 30, { 2000, 9000, 40000, 65536 } },
	{ 45, 4, 1200, 3, 12, 14, 60, { 24000, 60000, 120000, 200000 } },
	{ 25, 4, 2000, 3, 12, 16, 100, { 9000, 40000, 65536, 120000 } },
	{ 5, 6, 4000, 4, 12, 20, 250, { 2000, 9000, 20000, 65536 } },
};

static const struct size *pick_size(struct rng *r)
{
	u32 n = rng_below(r, 100), i;

	for (i = 0; n >= sizes[i].weight; i++)
		n -= sizes[i].weight;
	return &sizes[i];
}

/* Small members that are full, and nothing that could make tombstones stay but what a history is about */
static void plain(struct sim *s)
{
	struct sim_cfg *c = &s->cfg;
	struct rng *r = &s->rng;
	u32 i;

	c->nr_members = rng_range(r, 2, 3);
	for (i = 0; i < c->nr_members; i++)
		c->nr_segs[i] = rng_range(r, 5, 9);
	c->nr_keys = 60;
	c->typical_len = 60000;
	c->roomy = false;
	c->vanish = false;
	c->member_fails = false;
	c->grow = false;
	c->corrupts = false;
	c->io_errors = false;
	c->misreads = false;
	c->limits = false;
	c->lies = false;
	c->rolls_back = false;
	c->images = 1;
}

/* Members leave: tombstones of their pages lie on the others, which reclaim while they are being emptied. */
static void leavers(struct sim *s)
{
	struct sim_cfg *c = &s->cfg;
	struct rng *r = &s->rng;

	plain(s);
	c->lives = rng_range(r, 1, 2);
	c->steps = rng_range(r, 600, 1200);
	c->member_fails = c->nr_members > 2 && rng_chance(r, 4000);
	c->leaves = true;
	c->grow = true;
	c->windows = 800 << rng_below(r, 3);
}

/* Pages are found damaged, stored anew and deleted, while others keep their segments, which are misread afterwards. */
static void misreaders(struct sim *s)
{
	struct sim_cfg *c = &s->cfg;
	struct rng *r = &s->rng;

	plain(s);
	c->nr_members = rng_range(r, 1, 2);
	c->lives = rng_range(r, 3, 5);
	c->steps = rng_range(r, 400, 1200);
	c->nr_keys = 20;
	c->typical_len = 30000;
	c->misreads = true;
	c->leases = true;
	c->hoards = true;
}

/*
 * Tenants with reserves fill members of many segments, all alike, and nothing gets lost but by eviction. Drawn apart from
 * all else.
 */
static void scatterers(struct sim *s)
{
	struct sim_cfg *c = &s->cfg;
	struct rng *r = &s->quota_rng;
	u32 i;

	c->scatters = true;
	c->vanish = false;
	c->member_fails = false;
	c->grow = false;
	c->leaves = false;
	c->corrupts = false;
	c->io_errors = false;
	c->misreads = false;
	c->lies = false;
	c->rolls_back = false;
	c->limits = false;
	for (i = 0; i < c->nr_members; i++)
		c->nr_segs[i] = rng_range(r, 16, 30);
	c->steps = rng_range(r, 800, 2500);
	c->nr_keys = rng_range(r, 60, 160);
	c->typical_len = rng_range(r, 40000, 120000);
}

/* Some pages are loaded again and again, and nothing keeps them from staying but what is stored. Drawn apart, too. */
static void devotees(struct sim *s)
{
	struct sim_cfg *c = &s->cfg;
	struct rng *r = &s->hot_rng;
	u32 i;

	plain(s);
	c->nr_members = rng_range(r, 1, 2);
	for (i = 0; i < c->nr_members; i++)
		c->nr_segs[i] = rng_range(r, 16, 30);
	c->lives = rng_range(r, 1, 2);
	c->steps = rng_range(r, 1500, 4000);
	c->nr_keys = rng_range(r, 100, 250);
	c->typical_len = rng_range(r, 9000, 60000);
	c->hot = rng_range(r, 1, 5);
	c->alloc_fails = false;
	c->leases = false;
	c->tenants = false;
	c->leaves = false;
	c->hoards = false;
	c->quotas = false;
	c->scatters = false;
	c->budget = false;
	c->crowded = false;
	c->memory = false;
}

void sim_configure(struct sim *s)
{
	struct sim_cfg *c = &s->cfg;
	struct rng *r = &s->rng;
	const struct size *z = pick_size(r);
	bool others;
	u32 i;

	c->lives = rng_range(r, 2, z->lives);
	c->steps = rng_range(r, z->steps / 10, z->steps);
	c->nr_members = rng_range(r, 1, z->members);
	c->segment_size = KVC_SEGMENT_MIN << (z->segs_min < 12 ? rng_below(r, 2) : 0);
	if (rng_chance(r, 3000))
		c->segment_size += KVC_BLOCK * rng_below(r, 64);
	c->chunk_size = KVC_CHUNK_MIN << rng_below(r, 5);
	c->vanish = c->nr_members > 1 && rng_chance(r, 4000);
	if (c->vanish)
		c->lives += rng_below(r, 3);
	c->roomy = !c->vanish && rng_chance(r, 1500);
	for (i = 0; i < c->nr_members; i++)
		c->nr_segs[i] = c->roomy ? rng_range(r, 48, 64) : rng_range(r, z->segs_min, z->segs);
	c->nr_keys = rng_range(r, 4, z->keys);
	/* they differ in their first halves, or in their second ones */
	c->first_keyspace = rng_below(r, 2) * KVC_KEYSPACE_LEN / 2;
	c->typical_len = z->lens[rng_below(r, ARRAY_SIZE(z->lens))];
	c->leases = rng_chance(r, 5000);
	c->tenants = rng_chance(r, 4000);
	c->member_fails = rng_chance(r, 2000);
	c->alloc_fails = rng_chance(r, 2000);
	c->corrupts = rng_chance(r, 2500);
	c->io_errors = rng_chance(r, 2500);
	c->limits = !c->vanish && rng_chance(r, 1000);
	c->discards = rng_below(r, 4);
	c->grow = !c->vanish && !c->limits && rng_chance(r, 4000);
	c->windows = rng_chance(r, 7000) ? 100 << rng_below(r, 6) : 0;
	c->images = rng_chance(r, 8500) ? rng_range(r, 1, 3) : 0;
	c->budget = rng_chance(r, 1500);
	c->misreads = !c->limits && rng_chance(r, 3500);
	c->crowded = rng_chance(r, 1500);
	/* the newest superblock has to be on another member */
	others = c->nr_members > 1 && !c->vanish && !c->member_fails && !c->io_errors && !c->grow;
	c->lies = others && rng_chance(r, 1500);
	c->rolls_back = others && !c->lies && !c->limits && rng_chance(r, 1000);
	c->corrupts |= c->rolls_back;
	if (rng_chance(r, 1000))
		leavers(s);
	else if (rng_chance(r, 1500))
		misreaders(s);
	c->quotas = !c->roomy && rng_chance(&s->quota_rng, 2500);
	if (c->quotas && rng_chance(&s->quota_rng, 7000))
		scatterers(s);
	c->memory = !c->roomy && rng_chance(&s->memory_rng, 1500);
	if (rng_chance(&s->hot_rng, 1000))
		devotees(s);
	set_faults(s);
}
