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

/* One copy that has it is enough: the newest superblock counts. Without any it is tried again. */
static void super_end(struct op *op)
{
	struct sim *s = op->sim;
	struct mtenant *t = &s->tenants[op->tenant];
	u32 i;

	if (s->ending) {
		op_free(op);
		return;
	}
	if (op->tenant == SIM_NO_TENANT) {
		grow_super_end(op);
		return;
	}
	if (!op->written) {
		super_write(s, op->tenant);
		op_free(op);
		return;
	}
	sim_trace(s, "superblock %llu written, tenant %u", (unsigned long long)op->super_seq, op->tenant);
	s->super_seq_durable = op->super_seq;
	if (t->state == T_ADDING) {
		t->state = T_LIVE;
	} else {
		t->state = T_NONE;
		s->n.removals++;
		kvc_tenants_gone(s->pool);
		for (i = 0; i < s->nr_keys; i++)
			if (s->keys[i].tenant == op->tenant)
				model_forget_key(&s->keys[i]);
	}
	op_free(op);
}

static void super_io_done(void *arg, int err);

static bool super_goes_to(const struct op *op, u32 member)
{
	return op->alone ? member == op->sim->grow.member : !kvc_super_hole(kvc_super_of(op->sim->pool), member);
}

static void super_write_copy(struct op *op)
{
	struct sim *s = op->sim;
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++)
		op->ios += super_goes_to(op, i);
	for (i = 0; i < s->cfg.nr_members; i++) {
		if (!super_goes_to(op, i))
			continue;
		dev_write(s->devs[i], kvc_super_offset(kvc_super_slot(op->super_seq, op->copy), dev_bytes(s->devs[i])),
			  op->buf + (size_t)i * KVC_SUPER_BYTES, KVC_SUPER_BYTES, DEV_PREFLUSH | DEV_FUA,
			  super_io_done, op);
	}
}

/* The second copy follows the first. */
static void super_io_done(void *arg, int err)
{
	struct op *op = arg;

	op->written += err == 0;
	if (--op->ios)
		return;
	if (++op->copy == KVC_SUPER_COPIES && op->alone && op->written) {
		op->alone = false;
		op->copy = 0;
	}
	if (op->copy < KVC_SUPER_COPIES && !op->sim->ending)
		super_write_copy(op);
	else
		super_end(op);
}

void super_write(struct sim *s, u32 tenant)
{
	const struct kvc_super *super = kvc_super_of(s->pool);
	struct op *op = op_new(s, OP_SUPER, NULL);
	u32 i;

	op->tenant = tenant;
	op->super_seq = super->seq;
	op->alone = tenant == SIM_NO_TENANT && s->grow.state == G_ADDING;
	op->buf = calloc(s->cfg.nr_members, KVC_SUPER_BYTES);
	if (!op->buf)
		sim_fail("the test itself is out of memory");
	for (i = 0; i < s->cfg.nr_members; i++)
		if (!kvc_super_hole(super, i))
			kvc_super_encode(super, i, op->buf + (size_t)i * KVC_SUPER_BYTES);
	super_write_copy(op);
}

bool super_busy(const struct sim *s)
{
	u32 i;

	if (s->grow.state == G_ADDING || s->grow.state == G_CANCELLING || s->grow.state == G_REMOVING)
		return true;
	for (i = 0; i < SIM_TENANTS; i++)
		if (s->tenants[i].state == T_ADDING || s->tenants[i].state == T_REMOVING)
			return true;
	return false;
}

void op_tenant(struct sim *s)
{
	u32 i = rng_below(&s->rng, SIM_TENANTS);
	struct mtenant *t = &s->tenants[i];
	struct window win;
	int r;

	/* no user of a tenant is left when it is removed */
	if (super_busy(s) || s->depth)
		return;
	if (t->state == T_NONE) {
		r = kvc_tenant_add(s->pool, t->name, i, i, 0600, i % 2 ? KVC_TENANT_VERIFIED : 0);
		sim_check(r >= 0, "add of tenant %s: %d", t->name, r);
		t->slot = (u32)r;
		t->epoch = kvc_super_of(s->pool)->tenants[r].epoch;
		t->state = T_ADDING;
	} else {
		if (rng_chance(&s->rng, 7000))
			return;
		r = kvc_tenant_add(s->pool, t->name, i, i, 0600, 0);
		sim_check(r == -EEXIST, "second add of tenant %s: %d", t->name, r);
		model_tenant_removed(s, i);
		t->state = T_REMOVING;
		s->admin = true;
		window_begin(s, &win, NULL);
		r = kvc_tenant_remove(s->pool, t->name);
		window_end(s, &win);
		s->admin = false;
		sim_check(r == 0, "removal of tenant %s: %d", t->name, r);
	}
	sim_trace(s, "tenant %u %s", i, t->state == T_ADDING ? "added" : "removed");
	super_write(s, i);
}
