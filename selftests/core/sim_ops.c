// SPDX-License-Identifier: GPL-2.0
/*
 * Users of the pool: store and delete, and what is asked for next. Each operation is begun, and ends when its I/O has
 * completed, with others in between. See sim.h.
 */
#include "sim.h"

u32 padded(u32 length)
{
	return (u32)kvc_padded(length);
}

void sim_keyspace(const struct sim *s, u8 keyspace[KVC_KEYSPACE_LEN], u32 n)
{
	keyspace_make(keyspace, s->cfg.first_keyspace + n);
}

struct kvc_domain *sim_domain(struct sim *s, const struct mkey *k)
{
	u8 keyspace[KVC_KEYSPACE_LEN];
	struct kvc_domain *d;
	int ret;

	sim_keyspace(s, keyspace, k->keyspace);
	sim_alloc_fails(s, false);
	ret = kvc_domain_open(s->pool, s->tenants[k->tenant].slot, keyspace, &d);
	sim_alloc_fails(s, true);
	sim_check(!ret, "no domain for %s: %d", model_name(k), ret);
	return d;
}

struct op *op_new(struct sim *s, enum op_type type, struct mkey *k)
{
	struct op *op = calloc(1, sizeof(*op));

	if (!op)
		sim_fail("the test itself is out of memory");
	op->sim = s;
	op->type = type;
	op->key = k;
	op->next = s->ops;
	s->ops = op;
	s->nr_ops++;
	return op;
}

void op_free(struct op *op)
{
	struct op **link = &op->sim->ops;

	while (*link != op)
		link = &(*link)->next;
	*link = op->next;
	op->sim->nr_ops--;
	free(op->buf);
	free(op);
}

/* A store that waits for space is in no list. */
static void op_unlink(struct op *op)
{
	struct op **link = &op->sim->ops;

	while (*link != op)
		link = &(*link)->next;
	*link = op->next;
	op->next = NULL;
	op->sim->nr_ops--;
}

/* The engine's member_fail() may come from within. */
void ops_note_failures(struct sim *s)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members && !s->ending; i++)
		if (!s->failed[i] && !kvc_member_online(s->pool, i))
			model_member_failed(s, i);
}

/* Store */

/* The key is another's: whose store is pending will find so at its end. */
static void store_takes_key(struct sim *s, struct mkey *k)
{
	struct op *op;

	for (op = s->ops; op; op = op->next) {
		if (op->type != OP_STORE || op->key != k || op->replace || !op->version)
			continue;
		s->n.taken += !op->taken;
		op->taken = true;
	}
	k->takes++;
	k->pending = false;
}

static void store_end(struct op *op)
{
	struct sim *s = op->sim;
	struct mkey *k = op->key;
	bool same_tenant, lost;
	u64 mark;

	/* A store that ends after its tenant or member went is as good as aborted. Another tenant may have the slot. */
	same_tenant = s->tenants[k->tenant].epoch == op->epoch;
	lost = s->ending || op->err || op->killed || op->taken || s->failed[op->st.member] || !same_tenant ||
	       s->tenants[k->tenant].state != T_LIVE;
	/* what is evicted by now is not what it replaces */
	if (op->replace && !s->ending)
		model_look_at(s, k);
	mark = kvc_flush_mark(s->pool, op->st.member);
	if (op->err || op->killed || s->ending)
		kvc_store_abort(s->pool, &op->st);
	else
		kvc_store_commit(s->pool, &op->st);
	mark = kvc_flush_mark(s->pool, op->st.member) - mark;
	if (same_tenant && !op->replace && !op->taken)
		k->pending = false;
	if (lost) {
		s->n.ioerrs += op->err != 0;
		sim_trace(s, "store %s v%u aborted (%d)", model_name(k), op->version, op->err);
	} else {
		if (op->replace) {
			sim_check(mark == 1 || mark == 2, "replacement of %s wrote %llu records", model_name(k),
				  (unsigned long long)mark);
			store_takes_key(s, k);
			model_replaced(s, k, (struct mstate){ op->version, op->length },
				       mark == 2 ? BIT(op->st.member) : 0);
			s->n.replaced++;
		} else {
			model_event(s, k, (struct mstate){ op->version, op->length }, false);
		}
		s->versions[op->version].committed = s->event;
		k->before = (struct place){ 0 };
		k->at = (struct place){ op->st.member, op->st.offset };
		k->gone = false;
		s->n.stores++;
		quota_stored(s, k->tenant);
		sim_trace(s, "store %s v%u committed, event %llu", model_name(k), op->version,
			  (unsigned long long)s->event);
	}
	op_free(op);
}

static void store_io_done(void *arg, int err)
{
	struct op *op = arg;

	if (err)
		op->err = err;
	if (--op->ios == 0)
		store_end(op);
}

/* Where nothing is damaged, pages that nobody can check are right as well. */
bool sim_no_crcs(const struct sim *s, u32 version)
{
	return !s->cfg.corrupts && !s->cfg.misreads && version % 5 == 0;
}

bool sim_encrypted(const struct sim *s, u32 tenant)
{
	return s->tenants[tenant].flags & KVC_TENANT_ENCRYPTED;
}

static void nonce_of(u32 version, u8 *nonce)
{
	page_bytes(nonce, BIT_ULL(40) + version, 0, KVC_NONCE_LEN);
}

void sim_check_nonce(struct sim *s, const struct mkey *k, const struct kvc_load *ld, u32 version)
{
	u8 nonce[KVC_NONCE_LEN];

	nonce_of(version, nonce);
	sim_check(!sim_encrypted(s, k->tenant) || !memcmp(kvc_load_nonce(s->pool, ld), nonce, KVC_NONCE_LEN),
		  "%s v%u has another nonce", model_name(k), version);
}

static void store_crcs(struct op *op)
{
	u32 chunk = kvc_chunk_size(op->sim->pool), i;
	u8 nonce[KVC_NONCE_LEN];

	if (op->encrypted) {
		nonce_of(op->version, nonce);
		kvc_store_nonce(op->sim->pool, &op->st, nonce);
	}

	op->st.no_crcs = sim_no_crcs(op->sim, op->version);
	for (i = 0; i < op->st.nr_chunks && !op->st.no_crcs; i++) {
		u32 from = i * chunk, len = min(chunk, op->st.summed - from);

		kvc_store_crc(op->sim->pool, &op->st, i, page_crc(op->buf + from, len));
	}
}

/* One to three writes, whatever their order of completion */
static void store_write(struct op *op)
{
	struct sim *s = op->sim;
	u32 blocks = kvc_blocks(op->length), parts = min(blocks, rng_range(&s->rng, 1, 3)), i, from = 0, to;

	op->buf_len = padded(op->length);
	op->buf = calloc(1, op->buf_len);
	if (!op->buf)
		sim_fail("the test itself is out of memory");
	page_bytes(op->buf, op->version, 0, op->length);
	store_crcs(op);
	op->ios = parts;
	budget_spend(s, op->buf_len);
	for (i = 0; i < parts; i++, from = to) {
		to = i + 1 == parts ? blocks : from + max(blocks / parts, 1U);
		dev_write(s->devs[op->st.member], op->st.offset + ((u64)from << KVC_BLOCK_SHIFT),
			  op->buf + (from << KVC_BLOCK_SHIFT), (to - from) << KVC_BLOCK_SHIFT, 0, store_io_done, op);
	}
}

static void check_place(struct sim *s, u32 member, u64 offset, u32 length, const char *what)
{
	u64 seg;

	sim_check(member < s->cfg.nr_members && offset >= KVC_DATA_OFFSET && offset % KVC_BLOCK == 0,
		  "%s at member %u, %llu", what, member, (unsigned long long)offset);
	seg = segment_of(s, offset);
	sim_check(seg < s->cfg.nr_segs[member] && segment_of(s, offset + padded(length) - 1) == seg,
		  "%s of %u bytes at %llu crosses the end of its segment", what, length, (unsigned long long)offset);
	model_check_free(s, member, offset, padded(length), what);
}

/*
 * The engine has made the key pending, but a replacement had its end since, or just before: true when that is not known,
 * as its page is gone too.
 */
static bool store_lost_key(struct op *op, u32 takes)
{
	const struct mkey *k = op->key;

	if (op->replace || k->takes == takes)
		return false;
	model_look(op->sim);
	op->taken = k->cur.version;
	return !op->taken;
}

static void store_began(struct op *op, bool ran)
{
	struct sim *s = op->sim;

	sim_check(op->st.summed == (op->encrypted ? padded(op->length) : op->length), "store of %u bytes: CRCs of %u", op->length,
		  op->st.summed);
	sim_check(op->st.length == op->length && op->st.nr_chunks == (op->length - 1) / s->cfg.chunk_size + 1,
		  "store of %u bytes: length %u, %u chunks", op->length, op->st.length, op->st.nr_chunks);
	sim_check(op->members & BIT_ULL(op->st.member), "store on member %u, unasked", op->st.member);
	sim_check(!s->failed[op->st.member] || ran, "store on failed member %u", op->st.member);
	check_place(s, op->st.member, op->st.offset, op->length, "store");
	op->version = model_new_version(s, op->key, op->length, op->st.member);
	op->epoch = s->tenants[op->key->tenant].epoch;
	op->key->pending |= !op->replace && !op->taken;
	/* others may have got their place after this one */
	s->newest[op->st.member] = (struct place){ op->st.member, ran ? 0 : op->st.offset };
	s->placed += kvc_blocks(op->length);
	s->hot.placed[op->st.member] += kvc_blocks(op->length);
	sim_trace(s, "%s %s v%u length %u at member %u, %llu", op->replace ? "replace" : op->taken ? "store, in vain," : "store",
		  model_name(op->key), op->version, op->length,
		  op->st.member, (unsigned long long)op->st.offset);
	store_write(op);
}

static bool all_failed(const struct sim *s, u64 members)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++)
		if (members & BIT_ULL(i) && !s->failed[i] && !grow_leaving(s, i))
			return false;
	return true;
}

static void store_waits(struct op *op)
{
	struct sim *s = op->sim;

	op_unlink(op);
	if (s->nr_waiters == SIM_WAITERS_MAX) {
		free(op);
		return;
	}
	s->n.waits++;
	s->waiters[s->nr_waiters++] = op;
}

static bool any_kicked(const struct sim *s)
{
	u32 i;

	for (i = 0; i < SIM_MEMBERS_MAX; i++)
		if (s->workers[i].kicked)
			return true;
	return false;
}

static void store_try(struct op *op)
{
	struct sim *s = op->sim;
	struct mkey *k = op->key;
	struct kvc_domain *d = sim_domain(s, k);
	bool space = s->space, pending = k->pending, present = k->cur.version, spent, ran;
	u8 key[KVC_KEY_LEN];
	u32 takes = k->takes, goes = k->goes;
	struct window win;
	int r;

	key_make(key, k->id);
	op->encrypted = sim_encrypted(s, k->tenant);
	s->space = false;
	window_begin(s, &win, k);
	budget_tick(s);
	spent = budget_spent(s, k);
	if (op->replace)
		r = kvc_replace_begin(s->pool, d, key, op->length, op->depth, op->members, &op->st);
	else
		r = kvc_store_begin(s->pool, d, key, op->length, op->depth, op->members, &op->st);
	ran = window_end(s, &win);
	kvc_domain_put(s->pool, d);
	ops_note_failures(s);
	if (ran && ((present && r != -EEXIST) || (pending && r != -EINPROGRESS))) {
		/* it went before the engine looked, whoever came then, or the other store ended */
		model_look(s);
		present = k->cur.version && k->goes == goes;
		pending = k->pending;
	}
	/* a replacement ended, and its member may have gone since */
	if (ran && r == -EEXIST) {
		present = true;
		pending = false;
	}
	if (op->replace) {
		sim_check(r != -EEXIST && r != -EINPROGRESS, "replacement of %s: %d", model_name(k), r);
		sim_check(r != -EDQUOT || !present, "replacement of present %s: -EDQUOT", model_name(k));
		present = false;
		pending = false;
	}
	/* others in line, in the middle of whose call this one was made, may have been told of space */
	if (r != -EAGAIN || s->depth)
		s->space |= space;
	if (r == -ENOMEM && s->cfg.alloc_fails) {
		k->touched = true;
		s->n.nomem++;
		op_free(op);
		return;
	}
	budget_judge(s, k, op->length, r, spent, ran);
	if (op->length == 0 || op->length > kvc_page_max(s->pool)) {
		sim_check(r == -EINVAL, "store of %u bytes: %d", op->length, r);
	} else if (pending) {
		sim_check(r == -EINPROGRESS, "store of pending %s: %d", model_name(k), r);
	} else if (present) {
		sim_check(r == -EEXIST, "store of present %s: %d", model_name(k), r);
	} else if (r == -EDQUOT) {
		sim_check(!pending && !present, "store of %s, which is there: -EDQUOT", model_name(k));
	} else if (r == -ENODEV) {
		sim_check(all_failed(s, op->members) || ran, "store of %s: -ENODEV", model_name(k));
	} else if (r == -ENOSPC) {
		/* a segment may keep tombstones of keyspaces that there was no room for */
		sim_check(s->n.ioerrs || s->read_errors || s->n.vanished || (ran && s->cfg.leases) || s->crowd ||
			  s->cfg.memory || quota_lost(s, k->tenant) || quota_leased(s, k->tenant),
			  "store of %s: -ENOSPC", model_name(k));
	} else if (r == -EAGAIN) {
		sim_check(!s->cfg.roomy || s->cfg.grow || ran || s->nr_ops > 1 || any_kicked(s), "store of %s: -EAGAIN",
			  model_name(k));
		store_waits(op);
		return;
	} else {
		sim_check(r == 0, "store of %s: %d", model_name(k), r);
		/* it takes the place of one that is out of reach, whatever becomes of it */
		if (!op->replace)
			k->lost = (struct mstate){ 0 };
		if (!store_lost_key(op, takes)) {
			store_began(op, ran);
			return;
		}
		kvc_store_abort(s->pool, &op->st);
	}
	op_free(op);
}

static u32 random_length(struct sim *s)
{
	u32 n = rng_below(&s->rng, 100), max = kvc_page_max(s->pool), edge;

	if (n < 45)
		return rng_range(&s->rng, 1, s->cfg.typical_len / 4 + 1);
	if (n < 85)
		return rng_range(&s->rng, 1, s->cfg.typical_len);
	if (n < 96) {
		edge = rng_chance(&s->rng, 5000) ? s->cfg.chunk_size : KVC_BLOCK;
		edge *= rng_range(&s->rng, 1, 4);
		return min(max, edge + rng_below(&s->rng, 3) - 1);
	}
	if (n < 98)
		return rng_range(&s->rng, max / 4, max);
	if (n < 99)
		return max;
	return rng_chance(&s->rng, 5000) ? 0 : max + 1;
}

void ops_store_key(struct sim *s, struct mkey *k)
{
	struct op *op = op_new(s, OP_STORE, k);

	op->length = random_length(s);
	op->depth = rng_below(&s->rng, 100);
	op->members = s->phase.members ?: KVC_ANY_MEMBER;
	op->killed = rng_chance(&s->rng, 200);
	op->replace = rng_chance(&s->rng, 1500);
	store_try(op);
}

static void op_store(struct sim *s)
{
	struct mkey *k = model_random_key(s);

	if (k)
		ops_store_key(s, k);
}

void ops_retry(struct sim *s)
{
	u32 i = rng_below(&s->rng, s->nr_waiters);
	struct op *op = s->waiters[i];

	s->waiters[i] = s->waiters[--s->nr_waiters];
	op->next = s->ops;
	s->ops = op;
	s->nr_ops++;
	if (s->tenants[op->key->tenant].state == T_LIVE)
		store_try(op);
	else
		op_free(op);
}

void ops_drop_waiters(struct sim *s)
{
	while (s->nr_waiters)
		free(s->waiters[--s->nr_waiters]);
}

/* Delete */

void ops_delete_key(struct sim *s, struct mkey *k)
{
	u64 marks[SIM_MEMBERS_MAX] = { 0 };	/* of a member that is added meanwhile: nothing */
	bool present, pending, ran;
	u32 takes;
	struct kvc_domain *d;
	u8 key[KVC_KEY_LEN];
	struct window win;
	u32 i, tombs = 0;
	int r;

	key_make(key, k->id);
	d = sim_domain(s, k);
	for (i = 0; i < s->cfg.nr_members; i++)
		marks[i] = kvc_flush_mark(s->pool, i);
	present = ops_present(s, k) || k->gone;
	pending = k->pending;
	takes = k->takes;
	window_begin(s, &win, k);
	r = kvc_delete(s->pool, d, key);
	ran = window_end(s, &win);
	kvc_domain_put(s->pool, d);
	ops_note_failures(s);
	if (ran && r != 0)
		model_look(s);
	if (r == -ENOMEM && s->cfg.alloc_fails) {
		s->n.nomem++;
	} else if (r == -EAGAIN || r == -ENOSPC ||
		   (r == -ENODEV && present && (all_failed(s, KVC_ANY_MEMBER) || ran))) {
		sim_check(present || k->takes != takes, "delete of absent %s: %d", model_name(k), r);
	} else if (r == 0) {
		/* or a replacement ended before the engine looked */
		sim_check(present || k->takes != takes, "delete of absent %s succeeded", model_name(k));
		s->n.deletes++;
		s->n.deleted_out += k->gone;
		for (i = 0; i < s->cfg.nr_members; i++)
			tombs |= marks[i] != kvc_flush_mark(s->pool, i) ? BIT(i) : 0;
		/* the replacement may have ended after it, and be evicted by now */
		if (k->takes != takes && !ops_in_index(s, k))
			model_look_deleted(s, k);
		if (k->takes != takes && (ops_in_index(s, k) || !k->cur.version)) {
			k->tombs |= tombs;
			return;
		}
		s->n.buried_away += k->cur.version && tombs && !(tombs & BIT(k->at.member));
		model_deleted(s, k, tombs, ran);
		k->gone = false;
		sim_trace(s, "delete %s, event %llu, tombstone on %x", model_name(k), (unsigned long long)s->event,
			  tombs);
	} else if (!ran || (present && !pending && k->takes == takes)) {
		/* what was not there then may be now: a store ended meanwhile */
		ops_check_miss(s, k, r, "delete");
	}
}

static void op_delete(struct sim *s)
{
	struct mkey *k = rng_chance(&s->rng, 5000) ? ops_stored_key(s) : model_random_key(s);
	u32 tries = s->cfg.vanish ? rng_below(&s->rng, 12) : 0;

	/* Deletes of what is out of reach have to hold when it is back. */
	for (; k && !k->gone && tries; tries--)
		k = model_random_key(s);
	if (k)
		ops_delete_key(s, k);
}

/* What is asked for, of 1,000; the rest is rare */
static const struct mix {
	u32	store, load, query, delete, match, lease, flush;
} mixes[NR_PHASES] = {
	[PHASE_MIXED]	= { 420, 215, 50, 130, 80, 40, 40 },
	[PHASE_DELETES]	= { 250,  60, 10, 450, 30, 20, 160 },
	[PHASE_STORES]	= { 700,  60, 10,  80, 80, 20, 30 },
};

/* Nothing is read but what sim_hot.c says */
static const struct mix mix_unread = { .store = 850, .query = 20, .delete = 60, .flush = 60 };

static void op_rare(struct sim *s)
{
	if (rng_chance(&s->rng, 1000))
		op_settings(s);
	else if (s->cfg.tenants && rng_chance(&s->rng, 5000)) {
		op_tenant(s);
	} else if (s->cfg.member_fails && rng_chance(&s->rng, 2000) && s->cfg.nr_members > 1) {
		sim_fail_member(s, rng_below(&s->rng, s->cfg.nr_members));
	} else {
		op_pin(s);
	}
}

void ops_random(struct sim *s)
{
	const struct mix *m = s->cfg.hot ? &mix_unread : &mixes[s->phase.kind];
	u32 n = rng_below(&s->rng, 1000);

	if (s->cfg.grow && !s->admin && rng_chance(&s->rng, 200)) {
		op_grow(s);
		return;
	}
	if (n < m->store) {
		if (s->cfg.roomy && s->placed > kvc_capacity(s->pool) / KVC_BLOCK / 12)
			op_load(s);
		else
			op_store(s);
	} else if ((n -= m->store) < m->load) {
		op_load(s);
	} else if ((n -= m->load) < m->query) {
		op_query(s);
	} else if ((n -= m->query) < m->delete) {
		op_delete(s);
	} else if ((n -= m->delete) < m->match) {
		op_match(s);
	} else if ((n -= m->match) < m->lease) {
		if (s->cfg.leases)
			op_lease(s);
	} else if ((n -= m->lease) < m->flush) {
		ops_flush(s);
	} else {
		op_rare(s);
	}
}
