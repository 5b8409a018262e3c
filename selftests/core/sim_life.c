// SPDX-License-Identifier: GPL-2.0
/*
 * Lives: format, attach (superblocks, recovery, comparison with the model), power cut, detach. See sim.h.
 */
#include "sim.h"

static void write_supers(struct sim *s)
{
	u8 *buf = malloc(KVC_SUPER_BYTES);
	u32 i, copy;

	if (!buf)
		sim_fail("the test itself is out of memory");
	for (i = 0; i < s->cfg.nr_members; i++) {
		kvc_super_encode(s->super, i, buf);
		for (copy = 0; copy < KVC_SUPER_COPIES; copy++)
			dev_pwrite(s->devs[i], kvc_super_offset(kvc_super_slot(s->super->seq, copy),
								dev_bytes(s->devs[i])), buf, KVC_SUPER_BYTES);
	}
	free(buf);
}

/* Old data of other owners lies on the devices. */
static void litter(struct sim *s, struct dev *d)
{
	u32 n = rng_below(&s->rng, 20), i;
	u8 block[KVC_BLOCK];
	u64 at;

	for (i = 0; i < n; i++) {
		at = rng_u64(&s->rng) % (dev_bytes(d) / KVC_BLOCK);
		page_bytes(block, rng_u64(&s->rng), 0, KVC_BLOCK);
		dev_pwrite(d, at * KVC_BLOCK, block, KVC_BLOCK);
	}
}

void life_format(struct sim *s)
{
	struct kvc_super *super = calloc(1, sizeof(*super));
	u32 i;

	if (!super)
		sim_fail("the test itself is out of memory");
	s->super = super;
	super->seq = 1;
	page_bytes(super->pool_uuid, s->seed, 0, KVC_UUID_LEN);
	strcpy(super->pool_name, "sim");
	super->segment_size = s->cfg.segment_size;
	super->chunk_size = s->cfg.chunk_size;
	super->nr_members = s->cfg.nr_members;
	for (i = 0; i < s->cfg.nr_members; i++) {
		page_bytes(super->members[i].uuid, s->seed + i + 1, 0, KVC_UUID_LEN);
		super->members[i].nr_segments = s->cfg.nr_segs[i];
		s->devs[i] = bus_add(s->bus, kvc_device_bytes(s->cfg.nr_segs[i], s->cfg.segment_size));
		litter(s, s->devs[i]);
	}
	for (i = 0; i < SIM_TENANTS; i++) {
		struct kvc_super_tenant *t = &super->tenants[i * 3];

		snprintf(s->tenants[i].name, KVC_NAME_MAX, "tenant%u", i);
		s->tenants[i].slot = i * 3;
		if (i && s->cfg.tenants)
			continue;
		strcpy(t->name, s->tenants[i].name);
		t->flags = KVC_TENANT_USED | (i % 2 ? KVC_TENANT_VERIFIED : 0);
		t->mode = 0600;
		s->tenants[i].state = T_LIVE;
	}
	s->super_seq_durable = 1;
	write_supers(s);
}

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

/* The superblock of a member, as attach finds it */
static bool read_member_super(struct sim *s, u32 member, struct kvc_super *found, u8 *buf)
{
	struct dev *d = s->devs[member];
	enum kvc_reason why[KVC_SUPER_SLOTS];
	u32 i;

	for (i = 0; i < KVC_SUPER_SLOTS; i++) {
		dev_pread(d, kvc_super_offset(i, dev_bytes(d)), buf, KVC_SUPER_BYTES);
		why[i] = kvc_super_read(buf, i, &found[i]);
	}
	i = kvc_super_choose(found, why);
	if (i == KVC_SUPER_SLOTS)
		return false;
	if (i)
		found[0] = found[i];
	sim_check(found->member_index == member, "superblock of member %u on %u", found->member_index, member);
	return true;
}

/*
 * The newest valid superblock of all members. Where every superblock that was durable is in both copies of its members
 * one of them may be lost meanwhile; all are written again then.
 */
static void read_super(struct sim *s)
{
	bool either = !s->cfg.io_errors && !s->cfg.corrupts && !s->cfg.member_fails;
	struct kvc_super *found = calloc(KVC_SUPER_SLOTS, sizeof(*found));
	u8 *buf = malloc(KVC_SUPER_BYTES);
	bool lost = false;
	u64 best = 0;
	u32 i;

	if (!found || !buf)
		sim_fail("the test itself is out of memory");
	for (i = 0; i < s->cfg.nr_members; i++) {
		if (either && rng_chance(&s->rng, 3000)) {
			lose_end(s, s->devs[i]);
			lost = true;
		}
		if (read_member_super(s, i, found, buf) && found->seq > best) {
			best = found->seq;
			*s->super = *found;
		}
	}
	sim_check(best >= s->super_seq_durable, "superblock %llu found, %llu was written", (unsigned long long)best,
		  (unsigned long long)s->super_seq_durable);
	for (i = 0; lost && i < KVC_SUPER_SLOTS / KVC_SUPER_COPIES; i++) {
		s->super->seq++;
		write_supers(s);
	}
	s->super_seq_durable = s->super->seq;
	free(found);
	free(buf);
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
		sim_check(!there || !(st->flags & KVC_TENANT_VERIFIED) == !(i % 2), "flags of tenant %u changed", i);
		if (!there)
			for (j = 0; j < s->nr_keys; j++)
				if (s->keys[j].tenant == i)
					model_forget_key(&s->keys[j]);
		t->state = there ? T_LIVE : T_NONE;
	}
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

/* Read a found page whole. True when it is intact. */
static bool read_page(struct sim *s, struct mkey *k, const struct kvc_load *ld, u32 *version)
{
	u8 *buf = malloc(padded(ld->length));
	bool *bad = calloc(ld->nr_chunks, sizeof(*bad)), intact = true;
	u32 i, chunk = s->cfg.chunk_size;

	if (!buf || !bad)
		sim_fail("the test itself is out of memory");
	dev_pread(s->devs[ld->member], ld->offset, buf, padded(ld->length));
	for (i = 0; i < ld->nr_chunks; i++) {
		bad[i] = !ld->no_crcs && page_crc(buf + i * chunk, min(chunk, ld->length - i * chunk)) !=
					 kvc_load_crc(s->pool, ld, i);
		intact &= !bad[i];
	}
	*version = find_version(s, k, ld, buf, bad);
	free(buf);
	free(bad);
	return intact;
}

static void check_missing(struct sim *s, struct mkey *k, const char *what)
{
	if (!model_allows(k, (struct mstate){ 0 })) {
		sim_check(model_excused(s, k), "%s v%u is %s after recovery", model_name(k), k->events[0].state.version,
			  what);
		s->n.missing_excused++;
	}
	if (k->events[0].state.version)
		sim_trace(s, "%s: %s v%u", what, model_name(k), k->events[0].state.version);
	model_recovered(s, k, (struct mstate){ 0 }, (struct place){ 0 });
}

static void check_found(struct sim *s, struct mkey *k, const struct kvc_load *ld)
{
	struct place at = { ld->member, ld->offset };
	struct mstate state = { 0, ld->length };

	if (!read_page(s, k, ld, &state.version)) {
		sim_check(segment_tainted(s, at), "%s v%u at member %u, %llu is damaged after recovery",
			  model_name(k), state.version, ld->member, (unsigned long long)ld->offset);
		check_missing(s, k, "damaged");
		/* It is in the index all the same, until somebody loads it. */
	} else if (!model_allows(k, state)) {
		sim_check(sim_corrupted(s) && (!k->events[0].state.version || model_excused(s, k)),
			  "%s: v%u was found, v%u was durable", model_name(k), state.version,
			  k->events[0].state.version);
		k->doubtful = true;
		s->n.missing_excused++;
	}
	sim_check(ld->no_crcs == sim_no_crcs(s, state.version), "%s v%u found: no_crcs is %d", model_name(k),
		  state.version, ld->no_crcs);
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
	key_make(key, k->id);
	r = kvc_load_begin(s->pool, d, key, &ld);
	kvc_domain_put(s->pool, d);
	sim_check(r == 0 || r == -ENOENT, "load of %s after recovery: %d", model_name(k), r);
	if (r) {
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
		sim_check(r == -ENOENT ? !k->cur.version : r == (int)k->cur.length,
			  "%s v%u: second recovery says %d", model_name(k), k->cur.version, r);
	}
}

/*
 * The first pool is only compared, so that loads do not make every page hot. The second is recovered in the same
 * order: of two copies of a page the first that is found counts, so all pages are where they were.
 */
void life_attach(struct sim *s)
{
	struct rng rng, fault_rng;

	read_super(s);
	settle_tenants(s);
	while (rng_chance(&s->rng, 500))
		sim_attach_cut(s);
	rng = s->rng;
	fault_rng = s->fault_rng;
	sim_attach(s);
	compare(s);
	kvc_pool_destroy(s->pool);
	if (rng_chance(&s->bus_rng, 1000)) {
		bus_power_cut(s->bus);
		s->n.cuts_attached++;
	}
	s->rng = rng;
	s->fault_rng = fault_rng;
	sim_attach(s);
	compare_again(s);
	*s->super = *kvc_super_of(s->pool);
	write_supers(s);
	s->super_seq_durable = s->super->seq;
	sim_trace(s, "attached: %llu pages", (unsigned long long)s->stats.pages);
}

static void check_stats(struct sim *s)
{
	struct kvc_stats st;
	u64 pages = 0, bytes = 0;
	u32 i, total, free;

	for (i = 0; i < s->cfg.nr_members; i++) {
		kvc_member_segments(s->pool, i, &total, &free);
		sim_check(total == s->cfg.nr_segs[i] && free <= total, "member %u: %u of %u segments free", i, free,
			  total);
		if (s->failed[i])
			return;
	}
	for (i = 0; i < s->nr_keys; i++) {
		pages += s->keys[i].cur.version != 0;
		bytes += s->keys[i].cur.length;
	}
	kvc_stats_get(s->pool, &st);
	sim_check(st.pages == pages && st.bytes == bytes, "%llu pages, %llu bytes in the index; should be %llu, %llu",
		  (unsigned long long)st.pages, (unsigned long long)st.bytes, (unsigned long long)pages,
		  (unsigned long long)bytes);
}

/* The life ends: power cut at any point, or detach, with or without a flush. */
void life_end(struct sim *s)
{
	u32 how = rng_below(&s->rng, 4);

	sim_trace(s, "end of life: %s", how < 2 ? "power cut" : how == 2 ? "detach" : "detach without flush");
	if (how >= 2) {
		sim_settle(s);
		if (how == 2)
			ops_flush(s);
		sim_settle(s);
		check_stats(s);
		s->n.detaches++;
	} else {
		s->n.cuts++;
	}
	s->ending = true;
	if (how < 2)
		bus_power_cut(s->bus);
	ops_drop_waiters(s);
	ops_drop_leases(s);
	while (s->ops) {
		struct op *op = s->ops;

		sim_check(op->type == OP_FLUSH, "operation of type %d still under way", op->type);
		s->ops = op->next;
		s->nr_ops--;
		free(op);
	}
	kvc_pool_destroy(s->pool);
	s->pool = NULL;
	s->ending = false;
}
