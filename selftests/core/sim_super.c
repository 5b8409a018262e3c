// SPDX-License-Identifier: GPL-2.0
/*
 * Superblocks, as kmod writes and reads them (control/member.c, pool.c, grow.c, device.c): one change at a time, to one
 * member after the other, to its front and then to its end. A new member gets it first, and then again with all.
 * Members that are lost are passed over, and one that takes neither copy is lost. See sim.h.
 */
#include "sim.h"

static bool goes_to(const struct op *op, u32 member)
{
	const struct sim *s = op->sim;

	if (op->alone)
		return member == s->grow.member;
	if (kvc_super_hole(kvc_super_of(s->pool), member))
		return false;
	return !s->failed[member] || (s->grow.state == G_ADDING && s->grow.member == member);
}

/* Nobody took it: it is as it was until the next attach, or not. */
static void end(struct op *op)
{
	struct sim *s = op->sim;
	enum super_why why = op->why;
	bool written = op->written && (why != SUPER_GROW || op->took_all);

	s->super_op = NULL;
	if (!s->ending) {
		sim_trace(s, "superblock %llu %s", (unsigned long long)op->super_seq,
			  written ? "written" : "not written");
		if (op->written)
			s->super_seq_durable = max(s->super_seq_durable, op->super_seq);
	}
	op_free(op);
	if (s->ending)
		return;
	if (why == SUPER_TENANT)
		tenant_super_end(s, written);
	else if (why == SUPER_GROW)
		grow_super_end(s, written);
	else if (why == SUPER_SETTINGS && written)
		s->settings_before = s->settings;
}

static void io_done(void *arg, int err);

/* To the next copy, of the next member */
static void go_on(struct op *op)
{
	struct sim *s = op->sim;

	for (; !s->ending && op->member < s->cfg.nr_members; op->member++) {
		struct dev *d = s->devs[op->member];

		if (!goes_to(op, op->member))
			continue;
		kvc_super_encode(kvc_super_of(s->pool), op->member, op->buf);
		dev_write(d, kvc_super_offset(kvc_super_slot(op->super_seq, op->copy), dev_bytes(d)), op->buf,
			  KVC_SUPER_BYTES, DEV_PREFLUSH | DEV_FUA, io_done, op);
		return;
	}
	if (op->alone && op->took && !s->ending) {
		op->alone = false;
		op->member = 0;
		op->written = 0;
		go_on(op);
		return;
	}
	end(op);
}

static void io_done(void *arg, int err)
{
	struct op *op = arg;
	struct sim *s = op->sim;

	if (!err)
		s->super_on[op->member] = op->super_seq;
	op->took += !err;
	op->written += !err;
	/* between any two of these writes the power may go */
	if (!s->ending && rng_chance(&s->rng, 200)) {
		s->cut = true;
		s->n.super_cuts++;
	}
	if (++op->copy == KVC_SUPER_COPIES) {
		if (!op->took && !s->ending) {
			/* it must not come back with an older one unnoticed */
			op->took_all &= s->grow.member != op->member;
			kvc_member_fail(s->pool, op->member);
			model_member_failed(s, op->member);
		}
		op->copy = 0;
		if (!op->alone)
			op->took = 0;
		op->member++;
	}
	if (!s->ending)
		image_changed(s);
	go_on(op);
}

void super_write(struct sim *s, enum super_why why)
{
	struct op *op = op_new(s, OP_SUPER, NULL);

	op->why = why;
	op->super_seq = kvc_super_of(s->pool)->seq;
	op->alone = why == SUPER_GROW && s->grow.state == G_ADDING;
	op->took_all = true;
	op->buf = calloc(1, KVC_SUPER_BYTES);
	if (!op->buf)
		sim_fail("the test itself is out of memory");
	s->super_op = op;
	go_on(op);
}

bool super_busy(const struct sim *s)
{
	return s->super_op || s->admin || tenant_busy(s) || grow_super_busy(s);
}

/* The others note who was lost. */
void super_look(struct sim *s)
{
	if (!s->loss_unwritten || super_busy(s) || s->settling)
		return;
	s->loss_unwritten = false;
	kvc_super_touch(s->pool);
	super_write(s, SUPER_LOSS);
}

/* Reading */

/* As attach finds it, until the next call; or NULL. @worn: of its slots those that are to be written again */
const struct kvc_super *super_read(struct sim *s, u32 member, u32 *worn)
{
	static struct kvc_super found[KVC_SUPER_SLOTS];
	struct dev *d = s->devs[member];
	enum kvc_reason why[KVC_SUPER_SLOTS];
	u32 i;

	for (i = 0; i < KVC_SUPER_SLOTS; i++) {
		why[i] = kvc_super_read(dev_peek(d, kvc_super_offset(i, dev_bytes(d)), KVC_SUPER_BYTES), i, &found[i]);
		if (why[i] != KVC_OK)
			sim_trace(s, "slot %u of member %u: %s", i, member, kvc_reason_str(why[i]));
	}
	i = kvc_super_choose(found, why);
	if (i == KVC_SUPER_SLOTS) {
		if (worn)
			*worn = BIT(KVC_SUPER_SLOTS) - 1;
		return NULL;
	}
	if (worn)
		*worn |= kvc_super_worn(found, why, i);
	return &found[i];
}

/*
 * What the members that are there tell, see kvc_one_history(); the newest goes to s->super. It stays until the next
 * call. @worn: see super_read()
 */
static u32 gather(struct sim *s, struct kvc_witness *w, u32 *worn)
{
	static struct kvc_super has[SIM_MEMBERS_MAX];
	const struct kvc_super *found, *newest = NULL;
	u32 nr = 0, i;

	for (i = 0; i < s->cfg.nr_members; i++) {
		found = dev_gone(s->devs[i]) ? NULL : super_read(s, i, worn);
		if (!found)
			continue;
		sim_check(found->member_index == i, "superblock of member %u on %u", found->member_index, i);
		has[i] = *found;
		if (!newest || kvc_super_newer(&has[i], newest))
			newest = &has[i];
		w[nr++] = (struct kvc_witness){ i, has[i].seq, has[i].members };
	}
	s->super->seq = 0;
	if (newest)
		*s->super = *newest;
	return nr;
}

/* Those that were removed meanwhile have no say. */
static u32 drop_removed(const struct sim *s, struct kvc_witness *w, u32 nr)
{
	u32 i, n = 0;

	for (i = 0; i < nr; i++)
		if (w[i].member < s->super->nr_members &&
		    !memcmp(w[i].members[w[i].member].uuid, s->super->members[w[i].member].uuid, KVC_UUID_LEN))
			w[n++] = w[i];
	return n;
}

void super_gather(struct sim *s, u32 *worn)
{
	struct kvc_witness w[SIM_MEMBERS_MAX];

	gather(s, w, worn);
}

/* Were they attached without each other? */
bool super_one_history(struct sim *s)
{
	struct kvc_witness w[SIM_MEMBERS_MAX];
	u32 nr = drop_removed(s, w, gather(s, w, NULL));

	return kvc_one_history(w, nr);
}

bool super_catch_up(struct sim *s, bool cut)
{
	struct kvc_witness w[SIM_MEMBERS_MAX];
	u32 nr = drop_removed(s, w, gather(s, w, NULL)), i;

	for (i = 0; i < nr; i++) {
		if (!kvc_super_behind(s->super, &w[i]))
			continue;
		if (cut && rng_chance(&s->rng, 3000)) {
			sim_write_super(s, s->super, w[i].member, rng_below(&s->rng, KVC_SUPER_COPIES));
			return false;
		}
		sim_write_super(s, s->super, w[i].member, KVC_SUPER_COPIES);
	}
	return true;
}
