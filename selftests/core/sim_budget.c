// SPDX-License-Identifier: GPL-2.0
/*
 * The write budget, reckoned once more: what is left of it has to be what the engine says, as long as that is more than
 * nothing. Past it a key of which the engine cannot know is refused, and one that was refused or evicted lately is not.
 * See sim.h. So with the tenants' own, of which the engine does not tell what is left: nothing is expected of them near
 * that point.
 *
 * What is left is counted in parts of a byte, as many as a day has seconds.
 */
#include "sim.h"

#define DAY		86400
#define LATELY		64U		/* notes, of which more than a few never meet in one place of the engine's memory */

/* At attach, before anything is stored */
void budget_begin(struct sim *s)
{
	s64 limit = (s64)s->super->settings.write_budget;
	u32 i;

	s->budget = (struct mbudget){ .limit = limit, .left = limit * DAY, .remembers = limit != 0 };
	for (i = 0; i < SIM_TENANTS; i++) {
		const struct mtenant *t = &s->tenants[i];

		limit = t->state == T_LIVE ? (s64)s->super->limits[t->slot].write_budget : 0;
		s->budgets[i] = (struct mbudget){ .limit = limit, .left = limit * DAY };
		s->budget.remembers |= limit != 0;
	}
	for (i = 0; i < s->nr_keys; i++)
		s->keys[i].noted = false;
}

static s64 whole_bytes(s64 parts)
{
	return parts / DAY - (parts % DAY < 0);
}

static void check_left(struct sim *s)
{
	const struct mbudget *b = &s->budget;
	s64 left = b->limit ? max_t(s64, whole_bytes(b->left), 0) : 0, got = (s64)kvc_budget_left(s->pool);

	/* a change forgets what is less than a byte, and so does the engine where the day is full */
	sim_check(got - left <= 1 + b->changes && left - got <= 1 + b->changes, "%lld of the write budget left, not %lld",
		  (long long)got, (long long)left);
}

/* Of the tenants' own: what stores spend in the middle of which others have their turn may be known later */
static void check_tenants(struct sim *s)
{
	u32 i;

	for (i = 0; i < SIM_TENANTS; i++) {
		const struct mbudget *b = &s->budgets[i];
		s64 left = b->limit ? max_t(s64, whole_bytes(b->left), 0) : 0, got;

		if (s->tenants[i].state != T_LIVE || s->depth)
			continue;
		got = (s64)kvc_tenant_budget_left(s->pool, s->tenants[i].slot);
		sim_check(got - left <= 2 + b->changes && left - got <= 2 + b->changes,
			  "%lld of the write budget of tenant %u left, not %lld", (long long)got, i, (long long)left);
	}
}

static void change(struct sim *s, struct mbudget *b, s64 limit)
{
	if (limit == b->limit)
		return;
	b->left = b->limit && limit ? b->left + (limit - b->limit) * DAY : limit * DAY;
	b->limit = limit;
	s->budget.remembers |= limit != 0;
	b->changes++;
}

void budget_changed(struct sim *s, u64 per_day)
{
	change(s, &s->budget, (s64)per_day);
	check_left(s);
}

void budget_tenant_changed(struct sim *s, u32 tenant, u64 per_day)
{
	change(s, &s->budgets[tenant], (s64)per_day);
}

/* Some time goes by: the day's bytes come back, evenly, up to as many; no debt is larger than that. */
static void fill(struct sim *s, struct mbudget *b)
{
	if (b->limit && b->started && s->now > b->now) {
		b->left = max(b->left, -b->limit * DAY) + (s64)min_t(u64, s->now - b->now, 2 * DAY) * b->limit;
		b->left = min(b->left, b->limit * DAY);
	}
	b->now = b->started ? max(b->now, s->now) : s->now;
	b->started = true;
}

/* First the model: others may have their turn in the call. */
void budget_tick(struct sim *s)
{
	u32 i;

	s->now += rng_below(&s->rng, s->cfg.budget ? 300 : 2);
	fill(s, &s->budget);
	for (i = 0; i < SIM_TENANTS; i++)
		fill(s, &s->budgets[i]);
	kvc_budget_tick(s->pool, s->now);
	check_left(s);
	check_tenants(s);
}

void budget_spend(struct sim *s, u64 bytes)
{
	kvc_budget_spend(s->pool, bytes);
	if (s->budget.limit)
		s->budget.left -= (s64)bytes * DAY;
}

/* Of a tenant's, by so much less than a byte, for sure */
static bool below(const struct mbudget *b, s64 bytes)
{
	return b->limit && b->left < bytes * DAY;
}

/* For sure; else who knows */
bool budget_spent(const struct sim *s, const struct mkey *k)
{
	const struct mbudget *b = &s->budgets[k->tenant];

	return (s->budget.limit && !kvc_budget_left(s->pool)) || below(b, -2 - b->changes);
}

/* How many keys the engine has remembered so far */
static u64 notes(const struct sim *s)
{
	struct kvc_stats st;

	kvc_stats_get(s->pool, &st);
	return st.unadmitted + st.evicted_pages;
}

/* @before: what notes() was then, or less */
static void note(struct sim *s, struct mkey *k, u64 before)
{
	k->noted = s->budget.remembers;
	k->noted_at = before;
}

/* s->stats are of a time before that. */
void budget_evicted(struct sim *s, struct mkey *k)
{
	note(s, k, s->stats.unadmitted + s->stats.evicted_pages);
}

/* What a store of @length bytes was told; @spent: and had to be expected. @ran: others had their turn meanwhile */
void budget_judge(struct sim *s, struct mkey *k, u32 length, int r, bool spent, bool ran)
{
	struct mbudget *b = &s->budgets[k->tenant];

	if (r == -EDQUOT) {
		sim_check((s->budget.limit || b->limit) && (ran || spent || below(b, 2 + b->changes)),
			  "store of %s: -EDQUOT", model_name(k));
		sim_check(!k->noted || notes(s) - k->noted_at > LATELY, "store of %s, seen lately: -EDQUOT",
			  model_name(k));
		note(s, k, notes(s) - 1);
		s->n.unadmitted++;
	} else if (r == 0 || r == -EAGAIN) {
		sim_check(!spent || k->touched || ran, "store of %s, never seen, past the write budget: %d",
			  model_name(k), r);
	}
	if (!r && b->limit)
		b->left -= (s64)kvc_padded(length) * DAY;
	k->touched = true;
}
