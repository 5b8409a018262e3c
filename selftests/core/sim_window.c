// SPDX-License-Identifier: GPL-2.0
/*
 * Windows: wherever a call of the engine holds no lock others may get their turn, in the kernel from other threads.
 * Here it is the one thread itself that does what they would do, and then goes on with the call. See sim.h.
 *
 * What happens meanwhile comes before the end of the call. The model knows nothing of what the call has done so far, so
 * the key that it is about is left alone by the others, and what else may have changed is looked at when it has ended.
 * Calls that take their locks once need no windows: what happens at their end may as well happen after it.
 *
 * A member's work is executed by one thread, and so are changes of the superblock: neither begins within itself.
 */
#include "sim.h"

#define DEPTH_MAX	2U		/* of windows within windows */
#define IN_A_STEP	12U

static struct sim *opened;

/* Of 100 turns those of users; the devices and the other members have the rest. */
static void others(struct sim *s, u32 users)
{
	u32 n = rng_below(&s->window_rng, 100);

	if (model_unsure(s))
		model_look(s);
	if (n < users && !s->settling && s->nr_ops < 64)
		ops_random(s);
	else if (n < users + (100 - users) / 3)
		bus_step(s->bus);
	else
		work_step(s, rng_below(&s->window_rng, s->cfg.nr_members));
}

static bool other_asks(const struct sim *s, u32 member)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++)
		if (i != member && s->workers[i].asking)
			return true;
	return false;
}

/* While another one looks for work, who leaves, and did not get on so far, does, as far as it can for now. */
static void empty(struct sim *s)
{
	if (!s->grow.held || !other_asks(s, s->grow.member) || !rng_chance(&s->window_rng, 1000))
		return;
	s->grow.held = 0;
	while (s->grow.state == G_LEAVING && work_step(s, s->grow.member))
		;
	s->grow.held = rng_below(&s->window_rng, 200);
}

/* What they have begun may take long, most of all a new header: as long, the old one counts. */
static void stall(struct sim *s)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++)
		if (work_header(s, i) && rng_chance(&s->window_rng, 4000))
			phase_stall(s, i);
	if (rng_chance(&s->window_rng, 500))
		phase_stall(s, rng_below(&s->window_rng, s->cfg.nr_members));
}

static void window(void)
{
	struct sim *s = opened;
	u32 n, users;

	if (s->step_windows == IN_A_STEP || !rng_chance(&s->window_rng, s->cfg.windows))
		return;
	s->step_windows++;
	os_window = NULL;
	s->depth++;
	s->n.windows++;
	/* what the call has evicted so far */
	model_look(s);
	users = rng_chance(&s->window_rng, 5000) ? 40 : 5;
	for (n = 1U << rng_below(&s->window_rng, 7); n; n--)
		others(s, users);
	empty(s);
	stall(s);
	model_look(s);
	ops_flush_look(s);
	if (!s->admin)
		grow_look(s);
	s->depth--;
	os_window = window;
}

void window_begin(struct sim *s, struct window *w, struct mkey *key)
{
	*w = (struct window){ .key = key, .before = s->n.windows };
	if (key)
		key->busy = true;
	opened = s;
	if (s->cfg.windows && !s->ending && s->depth < DEPTH_MAX)
		os_window = window;
}

bool window_end(struct sim *s, struct window *w)
{
	os_window = NULL;
	if (w->key)
		w->key->busy = false;
	return s->n.windows != w->before;
}
