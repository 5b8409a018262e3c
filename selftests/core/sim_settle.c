// SPDX-License-Identifier: GPL-2.0
/*
 * Nobody asks for anything new, until nothing is left to do: what does not end then, never would. See sim.h.
 */
#include "sim.h"

/* I/O ends one by one, and workers get as far as they can before the next: what it ends has to wake them. */
static bool settle_step(struct sim *s)
{
	bool any = false;
	u32 i;

	s->step_windows = 0;
	s->lost = false;
	for (i = 0; i < s->cfg.nr_members; i++)
		any |= work_step(s, i);
	/* who was told of space may come while others are at it */
	if (s->nr_waiters && s->space && rng_chance(&s->rng, 5000)) {
		ops_retry(s);
		any = true;
	}
	if (!any)
		any = bus_step(s->bus);
	if (s->step_windows)
		model_look(s);
	ops_flush_look(s);
	grow_look(s);
	if (!any)
		any = ops_renew_leases(s);
	if (!any && s->nr_waiters) {
		sim_check(s->space, "%u stores wait for space, and nobody will tell them", s->nr_waiters);
		ops_retry(s);
		any = true;
	}
	return any;
}

static void settle(struct sim *s)
{
	u32 rounds = 0;

	while (settle_step(s))
		sim_check(++rounds < 100000, "no end of work: %u stores wait", s->nr_waiters);
}

/*
 * Who could go on with a victim was kicked for it. With leases nobody may have been waiting for it. Summaries can wait
 * for a flush.
 */
static void check_idle(struct sim *s)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members && !s->cfg.leases; i++) {
		s->workers[i].kicked = true;
		work_step(s, i);
		/* near the limit of memory reclaim begins with the next store */
		sim_check(!work_header(s, i) || s->cfg.memory, "member %u has emptied a segment, and nobody had kicked it", i);
	}
	settle(s);
}

/* What is there can be leased, when nothing is on its way out. */
static void check_leasable(struct sim *s)
{
	struct kvc_lease lease;
	struct kvc_domain *d;
	u8 key[KVC_KEY_LEN];
	struct mkey *k;
	u32 i;
	int r;

	for (i = 0; i < 8; i++) {
		k = ops_stored_key(s);
		if (!k || !k->cur.version)
			continue;
		key_make(key, k->id);
		d = sim_domain(s, k);
		r = kvc_lease_get(s->pool, d, key, &lease);
		kvc_domain_put(s->pool, d);
		if (r == -ENOMEM && s->cfg.alloc_fails)
			continue;
		sim_check(r == 0, "lease of %s, with nothing else to do: %d", model_name(k), r);
		kvc_lease_put(s->pool, &lease);
	}
}

void sim_settle(struct sim *s)
{
	ops_drop_leases(s, true);
	phase_end(s);
	s->settling = true;
	grow_look(s);
	settle(s);
	check_idle(s);
	sim_check(s->nr_ops == 0, "%u operations never ended", s->nr_ops);
	s->settling = false;
	grow_settled(s);
	quota_settled(s);
	check_leasable(s);
}
