// SPDX-License-Identifier: GPL-2.0
/*
 * Users that read: load, query, match, lease. See sim.h.
 */
#include "sim.h"

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
		if (!op->ld.no_crcs && page_crc(at, min(chunk, op->ld.summed - from)) != kvc_load_crc(s->pool, &op->ld, i)) {
			if (!op->again)
				return -EBADMSG;
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

static void load_io_done(void *arg, int err);

/* What seems to be damaged is read once more, as in the kernel. */
static void load_end(struct op *op)
{
	struct sim *s = op->sim;
	int r = op->err;

	if (!r && !s->ending)
		r = load_check(op);
	/* or it is misread both times */
	if (!r && !s->ending && s->cfg.misreads && rng_chance(&s->fault_rng, s->cfg.hoards ? 1000 : 100)) {
		op->again = true;
		r = -EBADMSG;
	}
	if (r == -EBADMSG && !op->again) {
		op->again = true;
		dev_read_again(s->devs[op->ld.member],
			       op->ld.offset + (u64)op->first_chunk * s->cfg.chunk_size, op->buf, op->buf_len,
			       load_io_done, op);
		return;
	}
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

bool ops_present(const struct sim *s, const struct mkey *k)
{
	return k->cur.version && s->tenants[k->tenant].state == T_LIVE;
}

bool ops_in_index(struct sim *s, const struct mkey *k)
{
	struct kvc_domain *d = sim_domain(s, k);
	u8 key[KVC_KEY_LEN];
	int r;

	key_make(key, k->id);
	r = kvc_query(s->pool, d, key);
	kvc_domain_put(s->pool, d);
	return r >= 0;
}

void ops_check_miss(const struct sim *s, const struct mkey *k, int r, const char *what)
{
	sim_check(!k->cur.version, "%s of present %s v%u: %d", what, model_name(k), k->cur.version, r);
	sim_check(r == -ENOENT || (r == -ENODEV && (k->gone || s->missing)), "%s of absent %s: %d", what,
		  model_name(k), r);
}

struct mkey *ops_stored_key(struct sim *s)
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

/* Who only looks finds what a load would find. */
static void look_at(struct sim *s, struct mkey *k)
{
	struct kvc_domain *d;
	u8 key[KVC_KEY_LEN];
	struct kvc_load ld;
	int r;

	key_make(key, k->id);
	d = sim_domain(s, k);
	r = kvc_load_look(s->pool, d, key, &ld);
	kvc_domain_put(s->pool, d);
	if (r) {
		ops_check_miss(s, k, r, "look");
		return;
	}
	sim_check(ops_present(s, k) && ld.length == k->cur.length, "look at %s v%u: length %u, should be %u",
		  model_name(k), k->cur.version, ld.length, k->cur.length);
	kvc_load_end(s->pool, &ld, 0);
}

void ops_load_key(struct sim *s, struct mkey *k)
{
	struct kvc_domain *d;
	u8 key[KVC_KEY_LEN];
	struct kvc_load ld;
	struct op *op;
	u32 bytes;
	int r;

	key_make(key, k->id);
	d = sim_domain(s, k);
	r = kvc_load_begin(s->pool, d, key, &ld);
	kvc_domain_put(s->pool, d);
	if (r) {
		ops_check_miss(s, k, r, "load");
		return;
	}
	sim_check(ops_present(s, k) && ld.length == k->cur.length, "load of %s v%u: length %u, should be %u",
		  model_name(k), k->cur.version, ld.length, k->cur.length);
	sim_check(!k->at.offset || (ld.member == k->at.member && ld.offset == k->at.offset),
		  "load of %s v%u: at member %u, %llu, should be %u, %llu", model_name(k), k->cur.version, ld.member,
		  (unsigned long long)ld.offset, k->at.member, (unsigned long long)k->at.offset);
	hot_loaded(s, k);
	op = op_new(s, OP_LOAD, k);
	sim_check(ld.no_crcs == sim_no_crcs(s, k->cur.version), "load of %s v%u: no_crcs is %d", model_name(k),
		  k->cur.version, ld.no_crcs);
	sim_check_nonce(s, k, &ld, k->cur.version);
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

void op_load(struct sim *s)
{
	struct mkey *k = ops_stored_key(s);

	if (k && rng_chance(&s->rng, 1000))
		look_at(s, k);
	else if (k)
		ops_load_key(s, k);
}

void op_query(struct sim *s)
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
		ops_check_miss(s, k, r, "query");
	else
		sim_check((u32)r == k->cur.length, "query of %s: %d, should be %u", model_name(k), r, k->cur.length);
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
	leases_look(s);
	s->leases[s->nr_leases++] = (struct mlease){
		.lease = lease,
		.slot = s->tenants[k->tenant].slot,
		.epoch = s->tenants[k->tenant].epoch,
		.member = k->at.member,
		.segment = segment_of(s, k->at.offset),
		.yielded = !kvc_lease_lasts(&lease),
	};
	sim_check(kvc_lease_lasts(&lease) || s->cfg.alloc_fails, "a lease of %s that lasts not", model_name(k));
	s->n.leases++;
}

static void lease_put(struct sim *s, u32 i)
{
	struct kvc_lease lease = s->leases[i].lease;

	leases_look(s);
	s->leases[i] = s->leases[--s->nr_leases];
	kvc_lease_put(s->pool, &lease);
}

static bool delays(const struct sim *s, const struct mlease *l)
{
	return grow_leaving(s, l->member) && kvc_member_leaves(s->pool, l->member);
}

void ops_drop_leases(struct sim *s, bool renew)
{
	u32 i;

	for (i = s->nr_leases; i-- > 0;)
		if (!renew || !delays(s, &s->leases[i]))
			lease_put(s, i);
}

/* Another lease of the same page, or of its neighbour, ahead of the end of this one */
static void renew(struct sim *s, u32 i)
{
	const struct mlease l = s->leases[i];
	struct kvc_lease lease;
	struct kvc_domain *d;
	u8 key[KVC_KEY_LEN];
	struct mkey *k;
	u32 n;

	for (n = 0; n < s->nr_keys; n++) {
		k = &s->keys[n];
		if (!ops_present(s, k) || k->at.member != l.member || segment_of(s, k->at.offset) != l.segment)
			continue;
		key_make(key, k->id);
		d = sim_domain(s, k);
		if (kvc_lease_get(s->pool, d, key, &lease) == 0)
			lease_add(s, k, lease);
		kvc_domain_put(s->pool, d);
		break;
	}
	lease_put(s, i);
}

bool ops_renew_leases(struct sim *s)
{
	u32 i, nr = s->nr_leases;

	for (i = nr; i-- > 0;)
		if (delays(s, &s->leases[i]))
			renew(s, i);
		else
			lease_put(s, i);
	return nr > 0;
}

#define MATCH_MAX 24

/* Keys in a row, so that there are long matches; what is missed has to be missing. */
void op_match(struct sim *s)
{
	struct mkey *k = model_random_key(s), *m;
	u8 keys[MATCH_MAX][KVC_KEY_LEN];
	struct kvc_lease leases[MATCH_MAX];
	u32 lens[MATCH_MAX], nr, n, i, found = 0;
	struct kvc_domain *d;
	struct window win;
	u64 start, present[1];
	bool lease, all;

	if (!k)
		return;
	lease = s->cfg.leases && s->nr_leases < 200 && rng_chance(&s->rng, 3000);
	all = rng_chance(&s->rng, 3000);
	nr = min(rng_range(&s->rng, 1, MATCH_MAX), s->cfg.nr_keys - k->id);
	for (i = 0; i < nr && !k[i].busy; i++)
		key_make(keys[i], k->id + i);
	nr = i;
	memset(present, 0, kvc_bits(nr) * sizeof(*present));
	d = sim_domain(s, k);
	start = s->event;
	/* a lease that was got ahead of a window would be news to those who move pages */
	if (!lease)
		window_begin(s, &win, NULL);
	n = kvc_match(s->pool, d, (const u8 (*)[KVC_KEY_LEN])keys, nr, all ? present : NULL, lens,
		      lease ? leases : NULL);
	if (!lease)
		window_end(s, &win);
	kvc_domain_put(s->pool, d);
	s->n.matches++;
	for (i = 0; i < nr && (all || i <= n); i++) {
		m = k + i;
		if (all ? !(present[0] & BIT_ULL(i)) : i == n) {
			/* A page of a segment that is about to be reclaimed cannot be leased. */
			sim_check(lease || m->changed > start || !ops_present(s, m), "match missed present %s",
				  model_name(m));
			continue;
		}
		found++;
		if (m->changed > start)
			continue;
		sim_check(ops_present(s, m) && lens[i] == m->cur.length, "match of %s: length %u, should be %u",
			  model_name(m), lens[i], m->cur.length);
		if (lease)
			lease_add(s, m, leases[found - 1]);
	}
	sim_check(found == n, "match found %u, and says %u", found, n);
}

void ops_lease_key(struct sim *s, struct mkey *k)
{
	struct kvc_lease lease;
	struct kvc_domain *d;
	u8 key[KVC_KEY_LEN];
	int r;

	key_make(key, k->id);
	d = sim_domain(s, k);
	r = kvc_lease_get(s->pool, d, key, &lease);
	kvc_domain_put(s->pool, d);
	if (!r) {
		sim_check(ops_present(s, k), "lease of absent %s", model_name(k));
		lease_add(s, k, lease);
	} else if (!ops_present(s, k)) {
		ops_check_miss(s, k, r, "lease");
	} else {
		sim_check(r == -ENOENT || (r == -ENOMEM && s->cfg.alloc_fails), "lease of present %s: %d",
			  model_name(k), r);
	}
}

void op_lease(struct sim *s)
{
	struct mkey *k = model_random_key(s);

	if (s->nr_leases && rng_chance(&s->rng, s->cfg.hoards ? 3000 : 5500))
		lease_put(s, rng_below(&s->rng, s->nr_leases));
	else if (k && s->nr_leases <= 200)
		ops_lease_key(s, k);
}
