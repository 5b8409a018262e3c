// SPDX-License-Identifier: GPL-2.0
/*
 * Flushes, and tenants that come and go. See sim.h.
 */
#include "sim.h"

/* Flush */

void ops_flush(struct sim *s)
{
	struct op *op = op_new(s, OP_FLUSH, NULL);
	u32 i;

	op->start_event = s->event;
	for (i = 0; i < s->cfg.nr_members; i++)
		op->marks[i] = kvc_flush_mark(s->pool, i);
	sim_trace(s, "flush of event %llu", (unsigned long long)op->start_event);
}

bool ops_flush_wants(struct sim *s, u32 member)
{
	const struct op *op;

	for (op = s->ops; op; op = op->next)
		if (op->type == OP_FLUSH && !kvc_flushed(s->pool, member, op->marks[member]))
			return true;
	return grow_wants_flush(s, member);
}

void ops_flush_look(struct sim *s)
{
	struct op *op, *next;
	u32 i;

	for (op = s->ops; op && !s->ending; op = next) {
		next = op->next;
		if (op->type != OP_FLUSH)
			continue;
		for (i = 0; i < s->cfg.nr_members; i++)
			if (!kvc_flushed(s->pool, i, op->marks[i]))
				break;
		if (i < s->cfg.nr_members)
			continue;
		ops_note_failures(s);
		sim_trace(s, "flushed event %llu", (unsigned long long)op->start_event);
		model_flushed(s, op->start_event);
		s->n.flushes++;
		op_free(op);
	}
}

/* Tenants: a change is made, then written to all members; meanwhile nobody uses the tenant. */

bool tenant_busy(const struct sim *s)
{
	u32 i;

	for (i = 0; i < SIM_TENANTS; i++)
		if (s->tenants[i].state != T_NONE && s->tenants[i].state != T_LIVE)
			return true;
	return false;
}

/* One copy that has it is enough: the newest superblock counts. Without any nobody knows until the next attach. */
void tenant_super_end(struct sim *s, bool written)
{
	struct mtenant *t = &s->tenants[s->tenant_op];
	u32 i;

	if (!written)
		return;
	t->flags_before = t->flags;
	t->limits_before = t->limits;
	if (t->state == T_ADDING) {
		t->state = T_LIVE;
	} else if (t->state == T_REMOVING) {
		struct window win;

		t->state = T_GONE;
		s->lost = true;
		for (i = 0; i < s->nr_keys; i++)
			if (s->keys[i].tenant == s->tenant_op)
				model_forget_key(&s->keys[i]);
		s->admin = true;
		window_begin(s, &win, NULL);
		kvc_tenants_gone(s->pool);
		window_end(s, &win);
		s->admin = false;
		model_look(s);
		t->state = T_NONE;
		s->n.removals++;
	}
}

/* One tenant of three has a key, which depends on nothing that was drawn. */
const struct kvc_super_key *sim_key(struct sim *s, u32 tenant, u64 life)
{
	static const struct kvc_super_key key = { .name = "sim", .check = "check of the key" };

	sim_check(kvc_key_name_ok(key.name) && !kvc_key_name_ok("of two words"), "name of a key: %s", key.name);
	return (s->seed + tenant + life) % 3 ? NULL : &key;
}

/* False: there was no memory */
static bool add_tenant(struct sim *s, u32 i)
{
	struct mtenant *t = &s->tenants[i];
	int r;

	t->flags = rng_chance(&s->rng, 5000) ? KVC_TENANT_VERIFIED : 0;
	t->flags |= sim_key(s, i, s->n.removals) ? KVC_TENANT_ENCRYPTED : 0;
	t->flags_before = t->flags;
	memset(&t->limits, 0, sizeof(t->limits));
	t->limits_before = t->limits;
	leases_look(s);
	r = kvc_tenant_add_keyed(s->pool, t->name, i, i, 0600, t->flags & ~KVC_TENANT_ENCRYPTED,
				 sim_key(s, i, s->n.removals));
	if (r == -ENOMEM && s->cfg.alloc_fails)
		return false;
	sim_check(r >= 0, "add of tenant %s: %d", t->name, r);
	t->slot = (u32)r;
	t->epoch = kvc_super_of(s->pool)->tenants[r].epoch;
	t->state = T_ADDING;
	return true;
}

static void remove_tenant(struct sim *s, u32 i)
{
	struct mtenant *t = &s->tenants[i];
	struct window win;
	int r;

	r = kvc_tenant_add(s->pool, t->name, i, i, 0600, 0);
	sim_check(r == -EEXIST, "second add of tenant %s: %d", t->name, r);
	model_tenant_removed(s, i);
	kvc_tenant_unpin(s->pool, t->slot, t->pinned);
	t->pinned = 0;
	leases_look(s);
	budget_tenant_changed(s, i, 0);
	t->state = T_REMOVING;
	s->admin = true;
	window_begin(s, &win, NULL);
	r = kvc_tenant_remove(s->pool, t->name);
	window_end(s, &win);
	s->admin = false;
	sim_check(r == 0, "removal of tenant %s: %d", t->name, r);
	/* meanwhile room is needed, and the superblock takes its time */
	s->phase.kind = PHASE_STORES;
	s->phase.left = 200;
	if (rng_chance(&s->rng, 7000))
		phase_stall(s, rng_below(&s->rng, s->cfg.nr_members));
}

static void set_tenant(struct sim *s, u32 i)
{
	struct mtenant *t = &s->tenants[i];
	int r;

	t->flags ^= KVC_TENANT_VERIFIED;
	r = kvc_tenant_set(s->pool, t->name, t->flags & KVC_TENANT_VERIFIED);
	sim_check(r == 0, "flags of tenant %s: %d", t->name, r);
}

/* Now and then none; of those that are refused the pool keeps nothing */
static bool limit_tenant(struct sim *s, u32 i)
{
	const struct kvc_limits bad = { .quota = 1, .reserve = 2 };
	struct mtenant *t = &s->tenants[i];
	struct kvc_limits l = { .quota = t->limits.quota, .reserve = t->limits.reserve };
	int r;

	if (rng_chance(&s->rng, 7000)) {
		l.bandwidth = rng_below(&s->rng, 1U << 30);
		l.inflight = rng_below(&s->rng, 1U << 16);
		l.weight = rng_below(&s->rng, KVC_WEIGHT_MAX + 1);
		l.flags = rng_below(&s->rng, 2) * KVC_LIMIT_NO_URGENT;
		l.pinned = rng_below(&s->rng, 1000);
		if (s->cfg.budget)
			l.write_budget = KVC_BUDGET_MIN << rng_below(&s->rng, 4);
	}
	r = kvc_tenant_limit(s->pool, t->name, &bad);
	sim_check(r == -EINVAL && !kvc_limits_ok(&bad) && kvc_limits_ok(&l), "bad limits of tenant %s: %d", t->name, r);
	r = kvc_tenant_limit(s->pool, t->name, &l);
	if (r == -ENOMEM && s->cfg.alloc_fails)
		return false;
	sim_check(r == 0, "limits of tenant %s: %d", t->name, r);
	budget_tenant_changed(s, i, l.write_budget);
	t->limits = l;
	return true;
}

/* Who holds all that a tenant may have knows how many there are. */
static void check_keyspaces(struct sim *s, u32 tenant)
{
	struct kvc_domain *d[SIM_KEYSPACES];
	u32 nr, i;

	for (i = 0; i < SIM_KEYSPACES; i++)
		d[i] = sim_domain(s, model_key(s, tenant, i, 0));
	nr = kvc_tenant_keyspaces(s->pool, s->tenants[tenant].slot);
	sim_check(nr == SIM_KEYSPACES, "tenant %s has %u keyspaces", s->tenants[tenant].name, nr);
	for (i = 0; i < SIM_KEYSPACES; i++)
		kvc_domain_put(s->pool, d[i]);
}

/* What the caller is told, for him to keep to */
static void check_told(struct sim *s, const struct mtenant *t)
{
	struct kvc_pace pace = kvc_tenant_pace(s->pool, t->slot);

	sim_check(*kvc_tenant_no_urgent(s->pool, t->slot) == !!(t->limits.flags & KVC_LIMIT_NO_URGENT),
		  "urgency of tenant %s", t->name);
	sim_check(pace.bandwidth == t->limits.bandwidth && pace.inflight == t->limits.inflight &&
		  *kvc_tenant_paced(s->pool, t->slot) == (pace.bandwidth || pace.inflight),
		  "pace of tenant %s", t->name);
	sim_check(kvc_tenant_weight(s->pool, t->slot) == (t->limits.weight ? t->limits.weight : KVC_WEIGHT),
		  "weight of tenant %s", t->name);
}

/* Sessions pin memory and let go of it; nobody is asked who has too much already. And what else a tenant has */
void op_pin(struct sim *s)
{
	u32 i = rng_below(&s->rng, SIM_TENANTS);
	struct mtenant *t = &s->tenants[i];
	u64 bytes = rng_below(&s->rng, 700), most = t->limits.pinned ? t->limits.pinned : ~0ULL;
	int r;

	if (t->state != T_LIVE || memcmp(&t->limits, &t->limits_before, sizeof(t->limits)))
		return;
	check_told(s, t);
	if (rng_chance(&s->rng, 5000)) {
		bytes = min(bytes, t->pinned);
		kvc_tenant_unpin(s->pool, t->slot, bytes);
		t->pinned -= bytes;
	} else {
		r = kvc_tenant_pin(s->pool, t->slot, bytes);
		sim_check(r == (t->pinned + bytes > most ? -EDQUOT : 0), "tenant %s, which has %llu of %llu, pins %llu: %d",
			  t->name, (unsigned long long)t->pinned, (unsigned long long)most, (unsigned long long)bytes, r);
		t->pinned += r ? 0 : bytes;
	}
	sim_check(kvc_tenant_pinned(s->pool, t->slot) == t->pinned, "tenant %s has %llu pinned, not %llu", t->name,
		  (unsigned long long)kvc_tenant_pinned(s->pool, t->slot), (unsigned long long)t->pinned);
	check_keyspaces(s, i);
}

/* Is what its superblocks say of it known? A change that nobody took is settled by the next attach. */
bool tenant_settled(const struct mtenant *t)
{
	return t->flags == t->flags_before && !memcmp(&t->limits, &t->limits_before, sizeof(t->limits));
}

void op_tenant(struct sim *s)
{
	u32 i = rng_below(&s->rng, SIM_TENANTS);
	struct mtenant *t = &s->tenants[i];
	bool changed = true;

	/* no user of a tenant is left when it is removed */
	if (super_busy(s) || s->depth)
		return;
	if (t->state == T_NONE)
		changed = add_tenant(s, i);
	else if (rng_chance(&s->rng, 3000))
		remove_tenant(s, i);
	else if (!tenant_settled(t))
		return;
	else if (rng_chance(&s->rng, 5000))
		changed = limit_tenant(s, i);
	else
		set_tenant(s, i);
	if (!changed)
		return;
	s->tenant_op = i;
	sim_trace(s, "tenant %u %s", i, t->state == T_ADDING ? "added" : t->state == T_REMOVING ? "removed" : "set");
	super_write(s, SUPER_TENANT);
}

/* Settings */

void op_settings(struct sim *s)
{
	static const struct kvc_settings bad = { .discard_rate = 1 };
	struct kvc_settings set = { 0 };
	int r;

	/* one that nobody took is settled by the next attach */
	if (super_busy(s) || s->depth || memcmp(&s->settings, &s->settings_before, sizeof(s->settings)))
		return;
	if (rng_chance(&s->rng, 5000))
		set.discard_rate = KVC_DISCARD_MIN << rng_below(&s->rng, 12);
	if (s->cfg.budget && rng_chance(&s->rng, 7000))
		set.write_budget = KVC_BUDGET_MIN << rng_below(&s->rng, 6);
	sim_check(!kvc_settings_ok(&bad) && kvc_pool_set(s->pool, &bad) == -EINVAL, "settings out of range%s", "");
	sim_check(kvc_settings_ok(&set), "settings %llu, %llu", (unsigned long long)set.discard_rate,
		  (unsigned long long)set.write_budget);
	r = kvc_pool_set(s->pool, &set);
	if (r == -ENOMEM && s->cfg.alloc_fails)
		return;
	sim_check(r == 0, "settings: %d", r);
	budget_changed(s, set.write_budget);
	s->settings_before = s->settings;
	s->settings = set;
	sim_trace(s, "discard rate %llu, write budget %llu", (unsigned long long)set.discard_rate,
		  (unsigned long long)set.write_budget);
	super_write(s, SUPER_SETTINGS);
}
