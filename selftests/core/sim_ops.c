// SPDX-License-Identifier: GPL-2.0
/*
 * Users of the pool: store, load, query, delete, match, lease, flush, tenants. Each operation is begun, and ends when
 * its I/O has completed, with others in between. See sim.h.
 */
#include "sim.h"

u32 padded(u32 length)
{
	return kvc_blocks(length) << KVC_BLOCK_SHIFT;
}

struct kvc_domain *sim_domain(struct sim *s, const struct mkey *k)
{
	u8 keyspace[KVC_KEYSPACE_LEN];
	struct kvc_domain *d;

	keyspace_make(keyspace, k->keyspace);
	sim_alloc_fails(s, false);
	d = kvc_domain_get(s->pool, s->tenants[k->tenant].slot, keyspace);
	sim_alloc_fails(s, true);
	sim_check(d != NULL, "no domain for %s", model_name(k));
	return d;
}

static struct op *op_new(struct sim *s, enum op_type type, struct mkey *k)
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

static void op_free(struct op *op)
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
static void note_failures(struct sim *s)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members && !s->ending; i++)
		if (!s->failed[i] && !kvc_member_online(s->pool, i))
			model_member_failed(s, i);
}

/* Store */

static void store_end(struct op *op)
{
	struct sim *s = op->sim;
	struct mkey *k = op->key;
	bool lost;

	/* A store that ends after its tenant or member went is as good as aborted. */
	lost = s->ending || op->err || op->killed || s->failed[op->st.member] ||
	       s->tenants[k->tenant].state != T_LIVE;
	if (op->err || op->killed || s->ending)
		kvc_store_abort(s->pool, &op->st);
	else
		kvc_store_commit(s->pool, &op->st);
	k->pending = false;
	if (lost) {
		s->n.ioerrs += op->err != 0;
		sim_trace(s, "store %s v%u aborted (%d)", model_name(k), op->version, op->err);
	} else {
		model_event(s, k, (struct mstate){ op->version, op->length }, false);
		k->at = (struct place){ op->st.member, op->st.offset };
		k->gone = false;
		s->n.stores++;
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

static void store_crcs(struct op *op)
{
	u32 chunk = op->sim->cfg.chunk_size, i;

	for (i = 0; i < op->st.nr_chunks; i++) {
		u32 from = i * chunk, len = min(chunk, op->length - from);

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

static void store_began(struct op *op)
{
	struct sim *s = op->sim;

	sim_check(op->st.length == op->length && op->st.nr_chunks == (op->length - 1) / s->cfg.chunk_size + 1,
		  "store of %u bytes: length %u, %u chunks", op->length, op->st.length, op->st.nr_chunks);
	sim_check(!s->failed[op->st.member], "store on failed member %u", op->st.member);
	check_place(s, op->st.member, op->st.offset, op->length, "store");
	op->version = model_new_version(s, op->key, op->length);
	op->key->pending = true;
	s->newest[op->st.member] = (struct place){ op->st.member, op->st.offset };
	s->placed += kvc_blocks(op->length);
	sim_trace(s, "store %s v%u length %u at member %u, %llu", model_name(op->key), op->version, op->length,
		  op->st.member, (unsigned long long)op->st.offset);
	store_write(op);
}

static bool all_failed(const struct sim *s)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++)
		if (!s->failed[i])
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

static void store_try(struct op *op)
{
	struct sim *s = op->sim;
	struct mkey *k = op->key;
	struct kvc_domain *d = sim_domain(s, k);
	u8 key[KVC_KEY_LEN];
	bool space = s->space;
	int r;

	key_make(key, k->id);
	s->space = false;
	r = kvc_store_begin(s->pool, d, key, op->length, op->depth, &op->st);
	kvc_domain_put(s->pool, d);
	if (r != -EAGAIN)
		s->space |= space;
	note_failures(s);
	if (r == -ENOMEM && s->cfg.alloc_fails) {
		s->n.nomem++;
		op_free(op);
		return;
	}
	if (op->length == 0 || op->length > kvc_page_max(s->pool)) {
		sim_check(r == -EINVAL, "store of %u bytes: %d", op->length, r);
	} else if (k->pending) {
		sim_check(r == -EINPROGRESS, "store of pending %s: %d", model_name(k), r);
	} else if (k->cur.version) {
		sim_check(r == -EEXIST, "store of present %s: %d", model_name(k), r);
	} else if (r == -ENODEV) {
		sim_check(all_failed(s), "store of %s: -ENODEV", model_name(k));
	} else if (r == -ENOSPC) {
		sim_check(s->nr_leases || s->n.ioerrs || s->read_errors, "store of %s: -ENOSPC", model_name(k));
	} else if (r == -EAGAIN) {
		sim_check(!s->cfg.roomy || s->nr_ops > 1 || s->workers[0].kicked, "store of %s: -EAGAIN",
			  model_name(k));
		store_waits(op);
		return;
	} else {
		sim_check(r == 0, "store of %s: %d", model_name(k), r);
		store_began(op);
		return;
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

static void op_store(struct sim *s)
{
	struct mkey *k = model_random_key(s);
	struct op *op;

	if (!k)
		return;
	op = op_new(s, OP_STORE, k);
	op->length = random_length(s);
	op->depth = rng_below(&s->rng, 100);
	op->killed = rng_chance(&s->rng, 200);
	store_try(op);
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

/* Load */

/* Damage is told from a wrong page by the taint of the segment. */
static int load_check(struct op *op)
{
	struct sim *s = op->sim;
	u32 chunk = s->cfg.chunk_size, i, len, bad;

	for (i = op->first_chunk; i < op->first_chunk + op->nr_chunks; i++) {
		u32 from = i * chunk;
		u8 *at = op->buf + (from - op->first_chunk * chunk);

		len = min(chunk, op->length - from);
		if (page_crc(at, len) != kvc_load_crc(s->pool, &op->ld, i)) {
			sim_check(segment_tainted(s, (struct place){ op->ld.member, op->ld.offset }),
				  "load of %s v%u: chunk %u is damaged", model_name(op->key), op->version, i);
			return -EBADMSG;
		}
		bad = page_compare(at, op->version, from, len);
		sim_check(bad == len, "load of %s v%u: wrong byte at %u passed the CRC", model_name(op->key),
			  op->version, from + bad);
	}
	return 0;
}

static void load_end(struct op *op)
{
	struct sim *s = op->sim;
	int r = op->err;

	if (!r && !s->ending)
		r = load_check(op);
	kvc_load_end(s->pool, &op->ld, r);
	if (r == -EBADMSG) {
		s->n.bad++;
		sim_trace(s, "load %s v%u: damaged", model_name(op->key), op->version);
		if (op->key->cur.version == op->version && op->key->at.offset == op->ld.offset &&
		    op->key->at.member == op->ld.member)
			model_event(s, op->key, (struct mstate){ 0 }, true);
	}
	s->n.ioerrs += op->err != 0;
	s->n.loads++;
	op_free(op);
}

static void load_io_done(void *arg, int err)
{
	struct op *op = arg;

	op->err = err;
	load_end(op);
}

static bool present(const struct sim *s, const struct mkey *k)
{
	return k->cur.version && s->tenants[k->tenant].state == T_LIVE;
}

static void check_miss(const struct mkey *k, int r, const char *what)
{
	sim_check(!k->cur.version, "%s of present %s v%u: %d", what, model_name(k), k->cur.version, r);
	sim_check(r == -ENOENT || (r == -ENODEV && k->gone), "%s of absent %s: %d", what, model_name(k), r);
}

/* More often than not one that is there */
static struct mkey *stored_key(struct sim *s)
{
	struct mkey *k = NULL;
	u32 i, tries = rng_below(&s->rng, 6);

	for (i = 0; i <= tries; i++) {
		k = model_random_key(s);
		if (k && k->cur.version)
			break;
	}
	return k;
}

static void op_load(struct sim *s)
{
	struct mkey *k = stored_key(s);
	struct kvc_domain *d;
	u8 key[KVC_KEY_LEN];
	struct kvc_load ld;
	struct op *op;
	u32 bytes;
	int r;

	if (!k)
		return;
	key_make(key, k->id);
	d = sim_domain(s, k);
	r = kvc_load_begin(s->pool, d, key, &ld);
	kvc_domain_put(s->pool, d);
	if (r) {
		check_miss(k, r, "load");
		return;
	}
	sim_check(present(s, k) && ld.length == k->cur.length, "load of %s v%u: length %u, should be %u",
		  model_name(k), k->cur.version, ld.length, k->cur.length);
	sim_check(!k->at.offset || (ld.member == k->at.member && ld.offset == k->at.offset),
		  "load of %s v%u: at member %u, %llu, should be %u, %llu", model_name(k), k->cur.version, ld.member,
		  (unsigned long long)ld.offset, k->at.member, (unsigned long long)k->at.offset);
	op = op_new(s, OP_LOAD, k);
	op->ld = ld;
	op->version = k->cur.version;
	op->length = ld.length;
	op->nr_chunks = rng_range(&s->rng, 1, ld.nr_chunks);
	op->first_chunk = rng_below(&s->rng, ld.nr_chunks - op->nr_chunks + 1);
	bytes = min(op->nr_chunks * s->cfg.chunk_size, op->length - op->first_chunk * s->cfg.chunk_size);
	op->buf_len = padded(bytes);
	op->buf = malloc(op->buf_len);
	if (!op->buf)
		sim_fail("the test itself is out of memory");
	dev_read(s->devs[ld.member], ld.offset + (u64)op->first_chunk * s->cfg.chunk_size, op->buf, op->buf_len,
		 load_io_done, op);
}

static void op_query(struct sim *s)
{
	struct mkey *k = model_random_key(s);
	struct kvc_domain *d;
	u8 key[KVC_KEY_LEN];
	int r;

	if (!k)
		return;
	key_make(key, k->id);
	d = sim_domain(s, k);
	r = kvc_query(s->pool, d, key);
	kvc_domain_put(s->pool, d);
	if (r < 0)
		check_miss(k, r, "query");
	else
		sim_check((u32)r == k->cur.length, "query of %s: %d, should be %u", model_name(k), r, k->cur.length);
}

/* Delete */

static void op_delete(struct sim *s)
{
	struct mkey *k = rng_chance(&s->rng, 5000) ? stored_key(s) : model_random_key(s);
	struct kvc_domain *d;
	u8 key[KVC_KEY_LEN];
	int r;

	if (!k)
		return;
	key_make(key, k->id);
	d = sim_domain(s, k);
	r = kvc_delete(s->pool, d, key);
	kvc_domain_put(s->pool, d);
	note_failures(s);
	if (r == -ENOMEM && s->cfg.alloc_fails) {
		s->n.nomem++;
	} else if (r == -EAGAIN || r == -ENOSPC) {
		sim_check(present(s, k), "delete of absent %s: %d", model_name(k), r);
	} else if (r == 0) {
		sim_check(present(s, k) || k->gone, "delete of absent %s succeeded", model_name(k));
		s->n.deletes++;
		model_event(s, k, (struct mstate){ 0 }, false);
		k->gone = false;
		sim_trace(s, "delete %s, event %llu", model_name(k), (unsigned long long)s->event);
	} else {
		check_miss(k, r, "delete");
	}
}

/* Match and leases */

static void lease_add(struct sim *s, const struct mkey *k, struct kvc_lease lease)
{
	if (s->nr_leases == s->leases_room) {
		s->leases_room = s->leases_room ? s->leases_room * 2 : 64;
		s->leases = realloc(s->leases, sizeof(*s->leases) * s->leases_room);
		if (!s->leases)
			sim_fail("the test itself is out of memory");
	}
	sim_check(k->at.offset != 0, "%s was leased and has no place", model_name(k));
	s->leases[s->nr_leases++] = (struct mlease){ lease, k->at.member, segment_of(s, k->at.offset) };
	s->n.leases++;
}

static void lease_put(struct sim *s, u32 i)
{
	struct kvc_lease lease = s->leases[i].lease;

	s->leases[i] = s->leases[--s->nr_leases];
	kvc_lease_put(s->pool, &lease);
}

void ops_drop_leases(struct sim *s)
{
	while (s->nr_leases)
		lease_put(s, s->nr_leases - 1);
}

#define MATCH_MAX 24

/* Keys in a row, so that there are long matches; the first miss has to be one. */
static void op_match(struct sim *s)
{
	struct mkey *k = model_random_key(s), *m;
	u8 keys[MATCH_MAX][KVC_KEY_LEN];
	struct kvc_lease leases[MATCH_MAX];
	u32 lens[MATCH_MAX], nr, n, i;
	bool lease;
	struct kvc_domain *d;

	if (!k)
		return;
	lease = s->cfg.leases && s->nr_leases < 200 && rng_chance(&s->rng, 3000);
	nr = min(rng_range(&s->rng, 1, MATCH_MAX), s->cfg.nr_keys - k->id);
	for (i = 0; i < nr; i++)
		key_make(keys[i], k->id + i);
	d = sim_domain(s, k);
	n = kvc_match(s->pool, d, (const u8 (*)[KVC_KEY_LEN])keys, nr, lens, lease ? leases : NULL);
	kvc_domain_put(s->pool, d);
	s->n.matches++;
	for (i = 0; i < n; i++) {
		m = k + i;
		sim_check(present(s, m) && lens[i] == m->cur.length, "match of %s: length %u, should be %u",
			  model_name(m), lens[i], m->cur.length);
		if (lease)
			lease_add(s, m, leases[i]);
	}
	/* A page of a segment that is about to be reclaimed cannot be leased. */
	if (n < nr && !lease)
		sim_check(!present(s, k + n), "match ended at present %s", model_name(k + n));
}

static void op_lease(struct sim *s)
{
	struct mkey *k = model_random_key(s);
	struct kvc_lease lease;
	struct kvc_domain *d;
	u8 key[KVC_KEY_LEN];
	int r;

	if (s->nr_leases && rng_chance(&s->rng, 5500)) {
		lease_put(s, rng_below(&s->rng, s->nr_leases));
		return;
	}
	if (!k || s->nr_leases > 200)
		return;
	key_make(key, k->id);
	d = sim_domain(s, k);
	r = kvc_lease_get(s->pool, d, key, &lease);
	kvc_domain_put(s->pool, d);
	if (!r) {
		sim_check(present(s, k), "lease of absent %s", model_name(k));
		lease_add(s, k, lease);
	} else if (!present(s, k)) {
		check_miss(k, r, "lease");
	} else {
		sim_check(r == -ENOENT, "lease of present %s: %d", model_name(k), r);
	}
}

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
	return false;
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
		note_failures(s);
		sim_trace(s, "flushed event %llu", (unsigned long long)op->start_event);
		model_flushed(s, op->start_event);
		s->n.flushes++;
		op_free(op);
	}
}

/* Tenants: a change is made, then written to all members; meanwhile nobody uses the tenant. */

static void super_end(struct op *op)
{
	struct sim *s = op->sim;
	struct mtenant *t = &s->tenants[op->tenant];
	u32 i;

	if (s->ending) {
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
		for (i = 0; i < s->nr_keys; i++)
			if (s->keys[i].tenant == op->tenant)
				model_forget_key(&s->keys[i]);
	}
	op_free(op);
}

static void super_io_done(void *arg, int err)
{
	struct op *op = arg;

	if (err)
		op->err = err;
	if (--op->ios == 0)
		super_end(op);
}

static void super_write(struct sim *s, u32 tenant)
{
	const struct kvc_super *super = kvc_super_of(s->pool);
	struct op *op = op_new(s, OP_SUPER, NULL);
	u32 i;

	op->tenant = tenant;
	op->super_seq = super->seq;
	op->ios = s->cfg.nr_members;
	op->buf = calloc(s->cfg.nr_members, KVC_SUPER_BYTES);
	if (!op->buf)
		sim_fail("the test itself is out of memory");
	for (i = 0; i < s->cfg.nr_members; i++) {
		u8 *buf = op->buf + (size_t)i * KVC_SUPER_BYTES;

		kvc_super_encode(super, i, buf);
		dev_write(s->devs[i], kvc_super_slot_offset(super->seq), buf, KVC_SUPER_BYTES,
			  DEV_PREFLUSH | DEV_FUA, super_io_done, op);
	}
}

static bool super_busy(const struct sim *s)
{
	u32 i;

	for (i = 0; i < SIM_TENANTS; i++)
		if (s->tenants[i].state == T_ADDING || s->tenants[i].state == T_REMOVING)
			return true;
	return false;
}

static void op_tenant(struct sim *s)
{
	u32 i = rng_below(&s->rng, SIM_TENANTS);
	struct mtenant *t = &s->tenants[i];
	int r;

	if (super_busy(s))
		return;
	if (t->state == T_NONE) {
		r = kvc_tenant_add(s->pool, t->name, i, i, 0600);
		sim_check(r >= 0, "add of tenant %s: %d", t->name, r);
		t->slot = (u32)r;
		t->epoch = kvc_super_of(s->pool)->tenants[r].epoch;
		t->state = T_ADDING;
	} else {
		if (rng_chance(&s->rng, 7000))
			return;
		r = kvc_tenant_add(s->pool, t->name, i, i, 0600);
		sim_check(r == -EEXIST, "second add of tenant %s: %d", t->name, r);
		model_tenant_removed(s, i);
		r = kvc_tenant_remove(s->pool, t->name);
		sim_check(r == 0, "removal of tenant %s: %d", t->name, r);
		t->state = T_REMOVING;
	}
	sim_trace(s, "tenant %u %s", i, t->state == T_ADDING ? "added" : "removed");
	super_write(s, i);
}

void ops_random(struct sim *s)
{
	u32 n = rng_below(&s->rng, 1000);

	if (n < 420) {
		if (s->cfg.roomy && s->placed > kvc_capacity(s->pool) / KVC_BLOCK / 5)
			op_load(s);
		else
			op_store(s);
	} else if (n < 640) {
		op_load(s);
	} else if (n < 700) {
		op_query(s);
	} else if (n < 830) {
		op_delete(s);
	} else if (n < 910) {
		op_match(s);
	} else if (n < 950) {
		if (s->cfg.leases)
			op_lease(s);
	} else if (n < 990) {
		ops_flush(s);
	} else if (s->cfg.tenants && n < 995) {
		op_tenant(s);
	} else if (s->cfg.member_fails && rng_chance(&s->rng, 2000) && s->cfg.nr_members > 1) {
		n = rng_below(&s->rng, s->cfg.nr_members);
		kvc_member_fail(s->pool, n);
		model_member_failed(s, n);
	}
}
