// SPDX-License-Identifier: GPL-2.0
/*
 * Members that are added and removed while the pool is used, as kmod does it: the superblock with a new member goes to
 * that one first, a member that has left is removed once the others are flushed. Whatever cuts that, the next attach
 * has to find either the old pool or the new one. See sim.h.
 */
#include "sim.h"

bool grow_leaving(const struct sim *s, u32 member)
{
	return s->grow.state >= G_LEAVING && s->grow.member == member;
}

bool grow_held(const struct sim *s, u32 member)
{
	return grow_leaving(s, member) && s->grow.held && !s->settling;
}

/* What is on a member that is leaving and cannot be moved goes. */
bool grow_may_drop(const struct sim *s)
{
	return s->grow.state == G_LEAVING && (!s->grow.move || s->cfg.io_errors || s->cfg.member_fails);
}

/* The model forgot the pages of the member when it failed, the engine does when it leaves. */
bool grow_forgets(const struct sim *s)
{
	return s->grow.state == G_LEAVING && s->failed[s->grow.member];
}

/* Add */

static void wipe(struct sim *s, u32 member)
{
	static const u8 zeros[KVC_SUPER_BYTES];
	struct dev *d = s->devs[member];
	u32 i;

	for (i = 0; i < KVC_SUPER_SLOTS; i++)
		dev_pwrite(d, kvc_super_offset(i, dev_bytes(d)), zeros, KVC_SUPER_BYTES);
}

/* Another device, or the one that was there: of that only what looks like a segment is cleared. */
static void give_device(struct sim *s, u32 n, u32 segs)
{
	static const u8 zeros[KVC_BLOCK];
	u64 bytes = kvc_device_bytes(segs, s->cfg.segment_size);
	u32 i;

	sim_check(kvc_device_segments(bytes, s->cfg.segment_size) == segs, "%llu bytes are not %u segments",
		  (unsigned long long)bytes, segs);
	if (n >= s->cfg.nr_members || dev_bytes(s->devs[n]) < bytes || rng_chance(&s->rng, 4000)) {
		s->devs[n] = bus_add(s->bus, bytes);
		dev_unit(s->devs[n], rng_chance(&s->rng, 5000) ? KVC_BLOCK : DEV_SECTOR);
		sim_litter(s, s->devs[n]);
		return;
	}
	wipe(s, n);
	for (i = 0; i < segs; i++)
		dev_pwrite(s->devs[n], KVC_DATA_OFFSET + i * s->cfg.segment_size, zeros, KVC_BLOCK);
}

static void add(struct sim *s)
{
	u32 segs = s->cfg.roomy ? rng_range(&s->rng, 48, 64) : rng_range(&s->rng, KVC_SEGMENTS_MIN, 12), n;
	u8 uuid[KVC_UUID_LEN];
	int r;

	if (kvc_nr_members(s->pool) >= SIM_MEMBERS_MAX || !kvc_member_room(s->pool))
		return;
	page_bytes(uuid, s->seed + 1000 + s->uuids++, 0, KVC_UUID_LEN);
	r = kvc_member_add(s->pool, uuid, segs);
	if (r == -ENOMEM && s->cfg.alloc_fails)
		return;
	sim_check(r >= 0 && r < SIM_MEMBERS_MAX && (r >= (int)s->cfg.nr_members || s->hole[r]),
		  "add of a member: %d", r);
	n = (u32)r;
	give_device(s, n, segs);
	s->cfg.nr_members = max(s->cfg.nr_members, n + 1);
	s->cfg.nr_segs[n] = segs;
	s->hole[n] = false;
	s->failed[n] = true;
	s->newest[n] = (struct place){ 0 };
	s->grow = (struct grow){ G_ADDING, .member = n };
	sim_trace(s, "member %u is added, %u segments", n, segs);
	super_write(s, SUPER_GROW);
}

/* Remove */

static bool others_online(const struct sim *s, u32 member)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++)
		if (i != member && !s->failed[i])
			return true;
	return false;
}

static bool room_without(const struct sim *s, u32 member)
{
	u64 left = kvc_capacity(s->pool) - s->cfg.nr_segs[member] * s->cfg.segment_size;

	return s->placed < left / KVC_BLOCK / 10;
}

/* Of some of its pages it is known that somebody needs them. */
static void lease_some(struct sim *s, u32 member)
{
	u32 n = s->cfg.leases ? rng_below(&s->rng, 6) : 0, i;

	for (i = rng_below(&s->rng, s->nr_keys); n && i < s->nr_keys; i++) {
		struct mkey *k = &s->keys[i];

		if (!k->cur.version || k->at.member != member || k->busy || !ops_present(s, k))
			continue;
		ops_lease_key(s, k);
		n--;
	}
}

/* What its users delete meanwhile needs tombstones, which go to others. */
static void delete_some(struct sim *s, u32 member)
{
	u32 chance = 2500 * rng_below(&s->rng, 5), i;

	for (i = 0; i < s->nr_keys; i++) {
		struct mkey *k = &s->keys[i];

		if (k->cur.version && k->at.member == member && !k->busy && !k->pending &&
		    ops_present(s, k) && rng_chance(&s->rng, chance))
			ops_delete_key(s, k);
	}
	ops_flush(s);
}

static void leave(struct sim *s)
{
	u32 m = rng_below(&s->rng, s->cfg.nr_members), i;
	bool move = rng_chance(&s->rng, s->cfg.leaves ? 5000 : 7000);
	int r;

	if (s->cfg.roomy && !room_without(s, m))
		return;
	r = kvc_member_leave(s->pool, m, move);
	if (s->hole[m] || !others_online(s, m)) {
		sim_check(r == (s->hole[m] ? -EINVAL : -EBUSY), "member %u is to leave: %d", m, r);
		return;
	}
	/* it keeps tombstones of keyspaces that there was no room for */
	if (r == -EBUSY && s->crowd)
		return;
	sim_check(r == 0, "member %u is to leave: %d", m, r);
	sim_check(kvc_member_leave(s->pool, m, move) == -EALREADY, "member %u is to leave twice", m);
	s->grow = (struct grow){ G_LEAVING, .member = m, .move = move, .held = rng_below(&s->rng, 800) };
	sim_trace(s, "member %u leaves, its pages are %s", m, move ? "moved" : "dropped");
	/* its tombstones go to any of the others */
	for (i = 0; i < s->nr_keys; i++)
		if (s->keys[i].tombs & BIT(m))
			s->keys[i].tombs |= BIT(SIM_MEMBERS_MAX) - 1;
	lease_some(s, m);
	delete_some(s, m);
	s->phase.left = 200;
	s->phase.kind = rng_range(&s->rng, PHASE_DELETES, PHASE_STORES);
	s->phase.members = 0;
}

/* What was hit on it may have hidden tombstones. What was to come back with it does not. */
static void forget(struct sim *s, u32 member)
{
	struct dev *d = s->devs[member];
	u32 i;

	s->scarred |= dev_tainted(d, KVC_DATA_OFFSET, dev_bytes(d) - KVC_DATA_OFFSET);
	for (i = 0; i < s->nr_keys; i++) {
		struct mkey *k = &s->keys[i];

		if (k->away && s->versions[k->away].member == member)
			k->away = 0;
	}
}

static void removed(struct sim *s)
{
	u32 m = s->grow.member, i;

	model_look(s);
	s->n.left_failed += s->failed[m];
	s->failed[m] = true;
	kvc_member_forget(s->pool, m);
	for (i = 0; i < s->nr_keys; i++)
		sim_check(!ops_present(s, &s->keys[i]) || s->keys[i].busy || s->keys[i].at.member != m,
			  "%s is on member %u, removed", model_name(&s->keys[i]), m);
	s->n.left++;
	s->hole[m] = true;
	forget(s, m);
	/* or the power went just before, and nobody did later */
	if (rng_chance(&s->rng, 8000))
		wipe(s, m);
}

/* What nobody took is tried again, as long as there is somebody. */
void grow_super_end(struct sim *s, bool written)
{
	struct grow *g = &s->grow;

	if (!written && g->state == G_ADDING) {
		kvc_member_cancel(s->pool, g->member);
		g->state = G_CANCELLING;
		s->n.add_fails++;
		super_write(s, SUPER_GROW);
		return;
	}
	if (!written) {
		g->lost = true;
		return;
	}
	if (g->state == G_ADDING) {
		kvc_member_join(s->pool, g->member);
		s->failed[g->member] = false;
		s->n.added++;
	} else if (g->state == G_CANCELLING) {
		s->hole[g->member] = true;
	} else {
		removed(s);
	}
	g->state = G_NONE;
}

bool grow_super_busy(const struct sim *s)
{
	return s->grow.state == G_ADDING || s->grow.state == G_CANCELLING || s->grow.state == G_REMOVING;
}

void op_grow(struct sim *s)
{
	if (s->grow.state != G_NONE || super_busy(s) || (s->cfg.leaves && !s->n.evicted))
		return;
	if (rng_chance(&s->rng, s->cfg.leaves ? 2000 : 5000))
		add(s);
	else
		leave(s);
}

bool grow_wants_flush(const struct sim *s, u32 member)
{
	return s->grow.state == G_FLUSHING && !kvc_flushed(s->pool, member, s->grow.marks[member]);
}

static bool flushed(const struct sim *s)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++)
		if (grow_wants_flush(s, i))
			return false;
	return true;
}

void grow_look(struct sim *s)
{
	struct grow *g = &s->grow;
	u32 i;

	g->held -= !!g->held;
	if (g->state == G_LEAVING && kvc_member_left(s->pool, g->member) && !s->workers[g->member].task &&
	    !s->workers[g->member].moving && !s->workers[g->member].asking) {
		for (i = 0; i < s->cfg.nr_members; i++)
			g->marks[i] = kvc_flush_mark(s->pool, i);
		s->lost |= grow_forgets(s);
		g->state = G_FLUSHING;
		sim_trace(s, "member %u has left", g->member);
	}
	if (g->state != G_FLUSHING || !flushed(s) || super_busy(s) || (g->held && !s->settling))
		return;
	if (!kvc_member_left(s->pool, g->member)) {
		g->state = G_LEAVING;
		return;
	}
	kvc_member_remove(s->pool, g->member);
	g->state = G_REMOVING;
	super_write(s, SUPER_GROW);
}

/*
 * A member of the fewest segments that loses one to an error cannot reclaim the rest when they are full of tombstones
 * that are needed: so it takes no more of them from who leaves.
 */
static bool grow_crowded(const struct sim *s)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++)
		if (i != s->grow.member && kvc_member_online(s->pool, i) && s->cfg.nr_segs[i] > KVC_SEGMENTS_MIN)
			return false;
	return s->cfg.io_errors;
}

/*
 * Nothing is to be done any more: whoever was leaving has left, unless another member was lost. When all others were
 * there is nobody who takes a superblock, that of a tenant neither, which it waits for.
 */
void grow_settled(struct sim *s)
{
	struct grow *g = &s->grow;
	bool stays = g->state == G_LEAVING && !kvc_member_leaves(s->pool, g->member);

	sim_check(g->state == G_NONE || g->lost || stays || grow_crowded(s) || !others_online(s, g->member),
		  "member %u never left, or came: %d", g->member, g->state);
}

void grow_end_of_life(struct sim *s)
{
	s->n.add_cuts += s->grow.state == G_ADDING;
	s->n.stuck += s->grow.state == G_LEAVING && !kvc_member_leaves(s->pool, s->grow.member);
	s->n.leave_cuts += s->grow.state >= G_LEAVING;
	s->grow = (struct grow){ 0 };
}

/* Each member that the newest superblock names has one itself: the pool can be attached. */
static void check_member(struct sim *s, u32 member)
{
	const struct kvc_super *found = super_read(s, member, NULL);

	sim_check(found && !memcmp(found->members[member].uuid, s->super->members[member].uuid, KVC_UUID_LEN),
		  "member %u has no superblock", member);
}

void grow_adopt(struct sim *s)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++) {
		s->hole[i] = i >= s->super->nr_members || kvc_super_hole(s->super, i);
		s->cfg.nr_segs[i] = s->hole[i] ? 0 : s->super->members[i].nr_segments;
		if (s->hole[i])
			forget(s, i);
		else if (!s->cfg.corrupts && !s->cfg.io_errors)
			check_member(s, i);
	}
	s->cfg.nr_members = s->super->nr_members;
}
