// SPDX-License-Identifier: GPL-2.0
/*
 * Lives: attach (members, superblocks, recovery, comparison with the model), power cut, detach. See sim.h.
 */
#include "sim.h"

/* One end of a member is overwritten, with either copy of the superblock */
static void lose_end(struct sim *s, struct dev *d)
{
	u64 at = rng_chance(&s->rng, 5000) ? 0 : dev_bytes(d) - KVC_TAIL_BYTES;
	u64 len = at ? KVC_TAIL_BYTES : KVC_DATA_OFFSET;
	u8 *buf = calloc(1, len);

	if (!buf)
		sim_fail("the test itself is out of memory");
	dev_pwrite(d, at, buf, (u32)len);
	free(buf);
}

/* Is the superblock of a member newer than s->super? It is s->super then. */
static bool newer_super(struct sim *s, u32 member)
{
	const struct kvc_super *found = super_read(s, member, NULL);

	if (!found || found->seq <= s->super->seq)
		return false;
	sim_check(found->member_index == member, "superblock of member %u on %u", found->member_index, member);
	*s->super = *found;
	return true;
}

/*
 * The newest valid superblock of all members; one that is out comes back if only it has that. Where every superblock
 * that was durable is in both copies of its members, @either may be lost meanwhile; all are written again then.
 */
static void read_super(struct sim *s, bool either)
{
	bool lost = false;
	u32 i;

	s->worn = 0;
	either &= !s->cfg.lies && !s->cfg.io_errors && !s->cfg.corrupts && !s->cfg.member_fails && !s->cfg.vanish;
	for (i = 0; i < s->cfg.nr_members; i++) {
		if (either && rng_chance(&s->rng, 1000)) {
			lose_end(s, s->devs[i]);
			lost = true;
		}
	}
	super_gather(s, &s->worn);
	for (i = 0; i < s->cfg.nr_members; i++)
		if (dev_gone(s->devs[i]) && newer_super(s, i))
			dev_return(s->devs[i]);
	sim_check(s->super->seq >= s->super_seq_durable, "superblock %llu found, %llu was written",
		  (unsigned long long)s->super->seq, (unsigned long long)s->super_seq_durable);
	for (i = 0; lost && i < KVC_SUPER_SLOTS / KVC_SUPER_COPIES; i++) {
		s->super->seq++;
		sim_write_supers(s);
	}
	sim_check(!lost || s->worn, "a superblock is gone, and nobody saw that%s", "");
	if (!super_one_history(s)) {
		/* then only all together say what is true */
		sim_check(s->cfg.vanish || s->cfg.lies || s->cfg.rolls_back, "attached without each other%s", "");
		s->n.histories++;
		for (i = 0; i < s->cfg.nr_members; i++)
			dev_return(s->devs[i]);
		super_gather(s, NULL);
	}
	s->super_seq_durable = s->super->seq;
	grow_adopt(s);
}

static u32 nr_gone(const struct sim *s)
{
	u32 i, n = 0;

	for (i = 0; i < s->cfg.nr_members; i++)
		n += dev_gone(s->devs[i]);
	return n;
}

void life_vanish(struct sim *s)
{
	u32 i = rng_below(&s->fault_rng, s->cfg.nr_members);

	if (dev_gone(s->devs[i]) || nr_gone(s) + 1 == s->cfg.nr_members)
		return;
	dev_vanish(s->devs[i]);
	s->n.vanished++;
	sim_trace(s, "member %u vanished", i);
}

/* Members come back as they were, others are not there this time. */
static void muster(struct sim *s)
{
	u32 i;

	if (!s->cfg.vanish)
		return;
	for (i = 0; i < s->cfg.nr_members; i++) {
		if (!dev_gone(s->devs[i]) || !rng_chance(&s->fault_rng, 4500))
			continue;
		dev_return(s->devs[i]);
		s->n.came_back++;
		sim_trace(s, "member %u is back", i);
	}
	if (rng_chance(&s->fault_rng, 1500))
		life_vanish(s);
}

/* One of the members is as it was some time ago. By its records nobody can tell that from a power cut long ago. */
static void roll_back(struct sim *s)
{
	struct dev *d = s->devs[rng_below(&s->fault_rng, s->cfg.nr_members)];

	if (!s->cfg.rolls_back)
		return;
	if (rng_chance(&s->fault_rng, 3000) && dev_go_back(d)) {
		s->n.rolled_back++;
		sim_trace(s, "a member was rolled back");
	} else if (rng_chance(&s->fault_rng, 5000)) {
		dev_remember(d);
	}
}

static void note_missing(struct sim *s)
{
	u32 i;

	s->missing = 0;
	for (i = 0; i < s->cfg.nr_members; i++)
		if (dev_gone(s->devs[i]))
			s->missing |= BIT(i);
	if (!s->missing)
		return;
	s->degraded = true;
	s->n.degraded++;
	sim_trace(s, "attach without members %x", s->missing);
}

static bool same_limits(const struct kvc_limits *a, const struct kvc_limits *b)
{
	return !memcmp(a, b, sizeof(*a));
}

/* Did the change that was under way at the power cut come through? */
static void settle_tenants(struct sim *s)
{
	u32 i, j;

	for (i = 0; i < SIM_TENANTS; i++) {
		struct mtenant *t = &s->tenants[i];
		const struct kvc_super_tenant *st = &s->super->tenants[t->slot];
		bool there = (st->flags & KVC_TENANT_USED) && !strcmp(st->name, t->name) && st->epoch == t->epoch;

		sim_check(t->state != T_LIVE || there, "tenant %u is gone", i);
		sim_check(t->state != T_NONE || !(st->flags & KVC_TENANT_USED) || strcmp(st->name, t->name),
			  "tenant %u is back", i);
		sim_check(!there || (st->flags & ~KVC_TENANT_USED) == t->flags ||
			  (st->flags & ~KVC_TENANT_USED) == t->flags_before, "flags of tenant %u changed", i);
		sim_check(!there || same_limits(&s->super->limits[t->slot], &t->limits) ||
			  same_limits(&s->super->limits[t->slot], &t->limits_before), "limits of tenant %u changed", i);
		if (there) {
			t->flags = t->flags_before = st->flags & ~KVC_TENANT_USED;
			t->limits = t->limits_before = s->super->limits[t->slot];
		}
		if (!there)
			for (j = 0; j < s->nr_keys; j++)
				if (s->keys[j].tenant == i)
					model_forget_key(&s->keys[j]);
		t->state = there ? T_LIVE : T_NONE;
		t->pinned = 0;
		t->over = true;
	}
}

static bool same_settings(const struct kvc_settings *a, const struct kvc_settings *b)
{
	return a->discard_rate == b->discard_rate && a->write_budget == b->write_budget;
}

static void settle_settings(struct sim *s)
{
	const struct kvc_settings *found = &s->super->settings;

	sim_check(same_settings(found, &s->settings) || same_settings(found, &s->settings_before),
		  "settings: discard rate %llu, write budget %llu", (unsigned long long)found->discard_rate,
		  (unsigned long long)found->write_budget);
	s->settings = *found;
	s->settings_before = *found;
}

/* Do the chunks that are intact have the bytes of this version? */
static bool fits_version(struct sim *s, const struct kvc_load *ld, const u8 *buf, const bool *bad, u32 version)
{
	u32 i, chunk = s->cfg.chunk_size;

	for (i = 0; i < ld->nr_chunks; i++) {
		u32 from = i * chunk, len = min(chunk, ld->length - from);

		if (!bad[i] && page_compare(buf + from, version, from, len) != len)
			return false;
	}
	return true;
}

static u32 find_version(struct sim *s, const struct mkey *k, const struct kvc_load *ld, const u8 *buf, const bool *bad)
{
	u32 i, v;

	/* Of short pages several versions may look alike: one that is allowed is preferred. */
	for (i = 0; i < k->nr_events + k->nr_ghosts; i++) {
		const struct mstate *m = i < k->nr_events ? &k->events[i].state : &k->ghosts[i - k->nr_events].state;

		if (m->version && m->length == ld->length && model_allows(k, *m) &&
		    fits_version(s, ld, buf, bad, m->version))
			return m->version;
	}
	for (v = s->nr_versions - 1; v; v--)
		if (s->versions[v].key == k && s->versions[v].length == ld->length &&
		    fits_version(s, ld, buf, bad, v))
			return v;
	sim_fail("%s: the page that was found, of %u bytes at member %u, %llu, is no version of the key",
		 model_name(k), ld->length, ld->member, (unsigned long long)ld->offset);
}

/* Which chunks of a page are not intact; the caller frees it. */
static bool *bad_chunks(struct sim *s, const struct kvc_load *ld, const u8 *buf, bool *intact)
{
	bool *bad = calloc(ld->nr_chunks, sizeof(*bad));
	u32 i, chunk = s->cfg.chunk_size;

	if (!bad)
		sim_fail("the test itself is out of memory");
	*intact = true;
	for (i = 0; i < ld->nr_chunks; i++) {
		bad[i] = !ld->no_crcs && page_crc(buf + i * chunk, min(chunk, ld->summed - i * chunk)) !=
					 kvc_load_crc(s->pool, ld, i);
		*intact &= !bad[i];
	}
	return bad;
}

/* Read a found page whole. True when it is intact. */
static bool read_page(struct sim *s, struct mkey *k, const struct kvc_load *ld, u32 *version)
{
	const u8 *buf = dev_peek(s->devs[ld->member], ld->offset, padded(ld->length));
	bool intact, *bad = bad_chunks(s, ld, buf, &intact);

	*version = find_version(s, k, ld, buf, bad);
	free(bad);
	return intact;
}

/* Does the page, as far as it is intact, have the bytes of this version? */
bool life_has_version(struct sim *s, const struct kvc_load *ld, u32 version)
{
	const u8 *buf = dev_peek(s->devs[ld->member], ld->offset, padded(ld->length));
	bool intact, *bad = bad_chunks(s, ld, buf, &intact), fits = fits_version(s, ld, buf, bad, version);

	free(bad);
	return fits && (intact || segment_tainted(s, (struct place){ ld->member, ld->offset }));
}

/* What was durable on a member that was out is there with it, if nothing happened to the key meanwhile. */
static void check_away(struct sim *s, struct mkey *k, u32 version)
{
	if (!k->away || s->missing & BIT(s->versions[k->away].member))
		return;
	sim_check(version == k->away || k->doubtful || k->hidden || k->unseen || model_damaged(s),
		  "%s: v%u did not come back with member %u", model_name(k), k->away, s->versions[k->away].member);
	s->n.returned += version == k->away;
	k->away = 0;
}

static void check_missing(struct sim *s, struct mkey *k, const char *what)
{
	check_away(s, k, 0);
	if (!model_allows(k, (struct mstate){ 0 })) {
		sim_check(model_excused(s, k), "%s v%u is %s after recovery", model_name(k), k->events[0].state.version,
			  what);
		s->n.missing_excused++;
	}
	if (k->events[0].state.version)
		sim_trace(s, "%s: %s v%u", what, model_name(k), k->events[0].state.version);
	model_recovered(s, k, (struct mstate){ 0 }, (struct place){ 0 });
}

/* Was what made older versions of the key impossible damaged, or is it on a member that is not there? */
static bool may_be_back(struct sim *s, const struct mkey *k)
{
	if (k->tombs & s->missing || k->hidden || s->n.rolled_back)
		return true;
	return (model_damaged(s) || k->unseen) && (model_allows(k, (struct mstate){ 0 }) || model_excused(s, k));
}

static void check_found(struct sim *s, struct mkey *k, const struct kvc_load *ld)
{
	struct place at = { ld->member, ld->offset };
	struct mstate state = { 0, ld->length };
	bool intact = read_page(s, k, ld, &state.version);

	k->touched = true;
	if (!intact) {
		sim_check(segment_tainted(s, at), "%s v%u at member %u, %llu is damaged after recovery",
			  model_name(k), state.version, ld->member, (unsigned long long)ld->offset);
		check_missing(s, k, "damaged");
		/* It is in the index all the same, until somebody loads it. */
	} else if (!model_allows(k, state)) {
		/* one that was evicted, as the newer one is now */
		sim_check(may_be_back(s, k) || (s->dropped && model_ghost(k, state)),
			  "%s: v%u was found, v%u was durable", model_name(k), state.version,
			  k->events[0].state.version);
		k->doubtful = true;
		s->n.missing_excused++;
	} else {
		check_away(s, k, state.version);
	}
	/* of a page that is damaged as a whole nobody knows which version it was */
	sim_check(!intact || ld->no_crcs == sim_no_crcs(s, state.version), "%s v%u found: no_crcs is %d", model_name(k),
		  state.version, ld->no_crcs);
	if (intact)
		sim_check_nonce(s, k, ld, state.version);
	sim_trace(s, "found %s v%u at member %u, %llu", model_name(k), state.version, at.member,
		  (unsigned long long)at.offset);
	model_recovered(s, k, state, at);
	s->n.recovered++;
}

static void compare_key(struct sim *s, struct mkey *k, u64 *found)
{
	struct kvc_domain *d = sim_domain(s, k);
	u8 key[KVC_KEY_LEN];
	struct kvc_load ld;
	int r;

	model_settle_key(s, k);
	k->touched = false;
	key_make(key, k->id);
	r = kvc_load_begin(s->pool, d, key, &ld);
	kvc_domain_put(s->pool, d);
	sim_check(r == 0 || r == -ENOENT || (r == -ENODEV && s->missing), "load of %s after recovery: %d",
		  model_name(k), r);
	if (r) {
		/* a page may be there, but not one that was deleted */
		k->hidden |= (s->crowd || s->dropped) && model_may_have(k);
		check_missing(s, k, "missing");
		return;
	}
	++*found;
	check_found(s, k, &ld);
	kvc_load_end(s->pool, &ld, 0);
}

static void compare(struct sim *s)
{
	u64 found = 0;
	u32 i;

	image_hidden(s);

	for (i = 0; i < s->nr_keys; i++)
		if (s->tenants[s->keys[i].tenant].state == T_LIVE)
			compare_key(s, &s->keys[i], &found);
	sim_check(found == s->stats.pages && found == s->stats.recovered_pages,
		  "%llu pages found, %llu in the index, %llu recovered", (unsigned long long)found,
		  (unsigned long long)s->stats.pages, (unsigned long long)s->stats.recovered_pages);
	s->durable = s->event;
}

/* Recovery is repeatable: another one finds the same. */
static void compare_again(struct sim *s)
{
	u32 i;

	for (i = 0; i < s->nr_keys; i++) {
		struct mkey *k = &s->keys[i];
		struct kvc_domain *d;
		u8 key[KVC_KEY_LEN];
		int r;

		if (s->tenants[k->tenant].state != T_LIVE)
			continue;
		key_make(key, k->id);
		d = sim_domain(s, k);
		r = kvc_query(s->pool, d, key);
		kvc_domain_put(s->pool, d);
		sim_check(r == -ENOENT || (r == -ENODEV && s->missing) ? !k->cur.version : r == (int)k->cur.length,
			  "%s v%u: second recovery says %d", model_name(k), k->cur.version, r);
	}
}

static bool any_unread(const struct sim *s)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++)
		if (s->unread[i])
			return true;
	return false;
}

/*
 * The first pool is only compared, so that loads do not make every page hot. The second is recovered in the same
 * order: of two copies of a page the first that is found counts, so all pages are where they were.
 */
void life_attach(struct sim *s)
{
	struct rng rng, fault_rng;

	muster(s);
	roll_back(s);
	read_super(s, true);
	note_missing(s);
	settle_tenants(s);
	settle_settings(s);
	if (s->missing)
		model_missing(s);
	while (rng_chance(&s->rng, 500)) {
		sim_attach_cut(s);
		read_super(s, false);
	}
	super_catch_up(s, false);
	rng = s->rng;
	fault_rng = s->fault_rng;
	sim_attach(s);
	compare(s);
	kvc_pool_destroy(s->pool);
	/* Where a header was lost, or misread, its segment's old log may lie behind discards that are not durable. */
	if (!s->cfg.corrupts && rng_chance(&s->bus_rng, 1000) && !any_unread(s)) {
		bus_power_cut(s->bus);
		s->n.cuts_attached++;
	}
	s->rng = rng;
	s->fault_rng = fault_rng;
	sim_attach(s);
	compare_again(s);
	sim_attached(s);
	sim_listen(s);
	hot_begin(s);
	sim_trace(s, "attached: %llu pages", (unsigned long long)s->stats.pages);
}

static void check_stats(struct sim *s)
{
	struct kvc_stats st;
	u64 pages = 0, bytes = 0, of_pages[SIM_TENANTS] = { 0 }, of_bytes[SIM_TENANTS] = { 0 }, sum, evicted = 0;
	u32 i, total, free;

	for (i = 0; i < s->cfg.nr_members; i++) {
		if (s->hole[i])
			continue;
		kvc_member_segments(s->pool, i, &total, &free);
		sim_check(total == s->cfg.nr_segs[i] && free <= total, "member %u: %u of %u segments free", i, free,
			  total);
		if (s->failed[i])
			return;
	}
	for (i = 0; i < s->nr_keys; i++) {
		pages += s->keys[i].cur.version != 0;
		bytes += s->keys[i].cur.length;
		of_pages[s->keys[i].tenant] += s->keys[i].cur.version != 0;
		of_bytes[s->keys[i].tenant] += s->keys[i].cur.length;
	}
	for (i = 0; i < SIM_TENANTS; i++) {
		u64 has_pages, has_bytes;

		if (s->tenants[i].state != T_LIVE)
			continue;
		evicted += kvc_tenant_evicted(s->pool, s->tenants[i].slot);
		kvc_tenant_usage(s->pool, s->tenants[i].slot, &has_pages, &has_bytes);
		sim_check(has_pages == of_pages[i] && has_bytes == of_bytes[i], "tenant %u has %llu pages, %llu bytes", i,
			  (unsigned long long)has_pages, (unsigned long long)has_bytes);
	}
	for (i = 0, sum = 0; i < s->cfg.nr_members; i++)
		sum += kvc_member_bytes(s->pool, i);
	kvc_stats_get(s->pool, &st);
	sim_check(evicted <= st.evicted_pages, "%llu pages of tenants were evicted, of %llu", (unsigned long long)evicted,
		  (unsigned long long)st.evicted_pages);
	sim_check(sum == st.bytes, "%llu bytes on the members, %llu in the index", (unsigned long long)sum,
		  (unsigned long long)st.bytes);
	sim_check(st.pages == pages && st.bytes == bytes, "%llu pages, %llu bytes in the index; should be %llu, %llu",
		  (unsigned long long)st.pages, (unsigned long long)st.bytes, (unsigned long long)pages,
		  (unsigned long long)bytes);
}

/* What the engine was writing when the power went */
static void note_writes(struct sim *s)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++) {
		bool header = work_header(s, i);

		s->n.cuts_header += header;
		s->n.cuts_summary += !header && s->workers[i].task && s->workers[i].task->w.type == KVC_WORK_WRITE;
	}
}

/* The life ends: power cut at any point, or detach, with or without a flush. */
void life_end(struct sim *s)
{
	u32 how = s->early || s->cut ? 0 : rng_below(&s->rng, 4);

	sim_trace(s, "end of life: %s", how < 2 ? "power cut" : how == 2 ? "detach" : "detach without flush");
	if (how >= 2) {
		sim_settle(s);
		if (how == 2) {
			kvc_pool_rest(s->pool);
			ops_flush(s);
		}
		sim_settle(s);
		check_stats(s);
		s->n.detaches++;
	} else {
		s->n.cuts++;
	}
	grow_end_of_life(s);
	s->loss_unwritten = false;
	s->super_op = NULL;
	s->ending = true;
	phase_end(s);
	if (how < 2) {
		note_writes(s);
		bus_power_cut(s->bus);
	}
	ops_drop_waiters(s);
	ops_drop_leases(s, false);
	while (s->ops) {
		struct op *op = s->ops;

		sim_check(op->type == OP_FLUSH, "operation of type %d still under way", op->type);
		s->ops = op->next;
		s->nr_ops--;
		free(op);
	}
	sim_unlisten(s);
	s->index_bytes = kvc_index_bytes(s->pool);
	kvc_pool_destroy(s->pool);
	s->pool = NULL;
	s->ending = false;
	s->cut = false;
}
