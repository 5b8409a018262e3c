// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Domains.
 *
 * A domain is what a key is looked up in: tenant slot, epoch of the slot, keyspace. Entries name it by id and hold a
 * reference, as sessions do; the last reference frees it. What becomes of it when its tenant is removed: tenant.c. Of a
 * slot's domains none or those of one epoch are not dead, so who looks for one need not ask which epoch that is.
 *
 * They are found in shards, each a table of ids that grows (bucket.c) under a lock of its own. What comes and goes
 * does so under domains.lock too, which guards their numbers:
 *
 *	limit	a tenant makes no more of them than it may. Recovery does not ask: what is on media was made once
 *	sure	so many are kept for each tenant whatever all others have
 *	dead	those of removed tenants are in nobody's way, but count
 *
 * In a recovery a slot that was refused one is refused all others that are not there yet: else a record could count and
 * the tombstone that comes later, or came before, not.
 */
#include "index/index.h"

#define ON_THE_WAY	4096U		/* ids of those that are being made, or unmade, and are not counted */

int kvc_domains_init(struct kvc_pool *p)
{
	struct kvc_domains *all = &p->domains;
	u32 i;

	os_lock_init(&all->lock);
	os_lock_init(&all->watch_lock);
	all->max = KVC_DOMAINS_MAX - ON_THE_WAY;
	all->sure = KVC_KEYSPACES_SURE;
	INIT_LIST_HEAD(&all->dead);
	for (i = 0; i < KVC_TENANTS_MAX; i++)
		INIT_LIST_HEAD(&all->slot[i].domains);
	for (i = 0; i < KVC_DOMAIN_SHARDS; i++) {
		os_lock_init(&all->shard[i].lock);
		kvc_buckets_init(&all->shard[i].table, &p->memory.bytes);
	}
	return kvc_table_init(&all->table, KVC_DOMAINS_MAX);
}

void kvc_domains_destroy(struct kvc_pool *p)
{
	u32 i;

	for (i = 0; i < KVC_DOMAIN_SHARDS; i++)
		kvc_buckets_free(&p->domains.shard[i].table);
	kvc_table_destroy(&p->domains.table, os_free);
}

static u32 hash_of(const struct kvc_pool *p, u32 slot, const u8 *keyspace)
{
	u64 w[2];

	memcpy(w, keyspace, KVC_KEYSPACE_LEN);
	return (u32)(kvc_mix64(w[0] ^ kvc_mix64(w[1] ^ kvc_mix64(slot ^ p->salt_seed))) >> 32);
}

static u32 hash_of_domain(const void *p, u32 id)
{
	const struct kvc_domain *d = kvc_domain(p, id);

	return hash_of(p, d->slot, d->keyspace);
}

static struct kvc_domain_shard *shard_of(struct kvc_pool *p, u32 hash)
{
	return &p->domains.shard[hash % KVC_DOMAIN_SHARDS];
}

static bool is(const struct kvc_domain *d, u32 slot, const u8 *keyspace)
{
	return d->slot == slot && !READ_ONCE(d->dead) && !memcmp(d->keyspace, keyspace, KVC_KEYSPACE_LEN);
}

/* Shard locked. */
static struct kvc_domain *look_up(struct kvc_pool *p, const struct kvc_buckets *t, u32 hash, u32 slot,
				  const u8 *keyspace)
{
	const struct kvc_line *line = kvc_bucket_line(t, kvc_bucket_number(t->nr, t->mask, hash));
	struct kvc_domain *d;
	u32 i, bits, id;

	for (; line; line = kvc_next_line(t, line)) {
		for (i = 0; i < KVC_LINE_TAGS; i++) {
			bits = kvc_tags_equal(line->tags[i], kvc_tag(hash));
			for (; bits; bits &= bits - 1) {
				id = line->slot[kvc_tagged_slot(i, bits)];
				d = id ? kvc_domain(p, id - 1) : NULL;
				if (d && is(d, slot, keyspace))
					return d;
			}
		}
	}
	return NULL;
}

/* With a reference */
static struct kvc_domain *find(struct kvc_pool *p, u32 hash, u32 slot, const u8 *keyspace)
{
	struct kvc_domain_shard *sh = shard_of(p, hash);
	struct kvc_domain *d;

	os_lock(&sh->lock);
	d = look_up(p, &sh->table, hash, slot, keyspace);
	if (d)
		os_atomic_inc(&d->refs);
	os_unlock(&sh->lock);
	return d;
}

static struct kvc_domain *make(struct kvc_pool *p, u32 slot, const u8 *keyspace)
{
	struct kvc_domain *d = os_zalloc(sizeof(*d));

	if (!d)
		return NULL;
	d->slot = slot;
	memcpy(d->keyspace, keyspace, KVC_KEYSPACE_LEN);
	os_atomic_set(&d->refs, 1);
	os_lock_init(&d->lock);
	if (kvc_table_add(&p->domains.table, d, &d->id)) {
		os_free(d);
		return NULL;
	}
	os_atomic64_add(&p->memory.bytes, sizeof(*d));
	return d;
}

static void unmake(struct kvc_pool *p, struct kvc_domain *d)
{
	kvc_table_del(&p->domains.table, d->id);
	os_free(d);
	os_atomic64_sub(&p->memory.bytes, sizeof(*d));
}

static u32 limit_of(const struct kvc_pool *p, u32 slot)
{
	u32 limit = p->super.limits[slot].keyspaces;

	return limit ? limit : KVC_KEYSPACES;
}

/*
 * Of the present epoch of the slot, or of @epoch if that is the present one: 0; -ENODEV: there is no such tenant;
 * -EDQUOT. Locked.
 */
static int may_make(struct kvc_pool *p, u32 slot, const u32 *epoch)
{
	const struct kvc_super_tenant *t = &p->super.tenants[slot];
	struct kvc_domains *all = &p->domains;
	struct kvc_slot_domains *of = &all->slot[slot];

	os_assert_locked(&all->lock);
	if (!(t->flags & KVC_TENANT_USED) || (epoch && *epoch != t->epoch))
		return -ENODEV;
	if (all->recovered ? of->nr >= limit_of(p, slot) : of->refused)
		return -EDQUOT;
	if (all->nr < all->max && (of->nr < all->sure || all->shared < all->max - KVC_TENANTS_MAX * all->sure))
		return 0;
	of->refused = true;
	return -EDQUOT;
}

/* Locked. */
static void count(struct kvc_pool *p, struct kvc_domain *d)
{
	struct kvc_domains *all = &p->domains;
	struct kvc_slot_domains *of = &all->slot[d->slot];

	all->nr++;
	all->shared += of->nr++ >= all->sure;
	list_add_tail(&d->node, &of->domains);
}

/* Locked. */
static void uncount(struct kvc_pool *p, struct kvc_domain *d)
{
	struct kvc_domains *all = &p->domains;
	struct kvc_slot_domains *of = &all->slot[d->slot];

	all->nr--;
	all->shared -= d->dead || --of->nr >= all->sure;
	list_del(&d->node);
}

void kvc_domains_kill(struct kvc_pool *p, u32 slot)
{
	struct kvc_domains *all = &p->domains;
	struct kvc_slot_domains *of = &all->slot[slot];
	struct kvc_domain *d;

	os_assert_locked(&all->lock);
	list_for_each_entry(d, &of->domains, node)
		WRITE_ONCE(d->dead, true);
	list_splice_tail_init(&of->domains, &all->dead);
	all->shared += min(of->nr, all->sure);
	of->nr = 0;
}

/*
 * @fresh takes its place, unless another one has it, or nobody may: 0, with the one that is there now and @fresh empty
 * if it is that; 1: the shard lacks room.
 */
static int enter(struct kvc_pool *p, u32 hash, const u32 *epoch, struct kvc_domain **fresh, struct kvc_domain **out)
{
	struct kvc_domain_shard *sh = shard_of(p, hash);
	struct kvc_domain *d = *fresh;
	int r;

	os_lock(&p->domains.lock);
	r = may_make(p, d->slot, epoch);
	os_lock_inner(&sh->lock);
	*out = look_up(p, &sh->table, hash, d->slot, d->keyspace);
	if (*out) {
		os_atomic_inc(&(*out)->refs);
		r = 0;
	} else if (!r && !kvc_buckets_room(&sh->table)) {
		r = 1;
	} else if (!r) {
		d->epoch = p->super.tenants[d->slot].epoch;
		d->encrypted = p->super.tenants[d->slot].flags & KVC_TENANT_ENCRYPTED;
		count(p, d);
		kvc_buckets_insert(&sh->table, hash, d->id);
		kvc_buckets_settle(&sh->table, hash_of_domain, p);
		*out = d;
		*fresh = NULL;
	}
	os_unlock_inner(&sh->lock);
	os_unlock(&p->domains.lock);
	return r;
}

static int make_and_enter(struct kvc_pool *p, u32 hash, u32 slot, const u32 *epoch, const u8 *keyspace,
			  struct kvc_domain **out)
{
	struct kvc_domain_shard *sh = shard_of(p, hash);
	struct kvc_domain *fresh;
	int r;

	os_lock(&p->domains.lock);
	r = may_make(p, slot, epoch);
	os_unlock(&p->domains.lock);
	if (r) {
		/* another thread may have taken the last place for the same */
		*out = find(p, hash, slot, keyspace);
		return *out ? 0 : r;
	}
	fresh = make(p, slot, keyspace);
	if (!fresh)
		return -ENOMEM;
	do {
		r = READ_ONCE(sh->table.hungry) ? kvc_buckets_grow(&sh->table, &sh->lock) : 0;
		if (!r)
			r = enter(p, hash, epoch, &fresh, out);
	} while (r == 1);
	if (fresh)
		unmake(p, fresh);
	return r;
}

int kvc_domain_open(struct kvc_pool *p, u32 tenant_slot, const u8 keyspace[KVC_KEYSPACE_LEN], struct kvc_domain **out)
{
	u32 hash = hash_of(p, tenant_slot, keyspace);

	*out = NULL;
	if (tenant_slot >= KVC_TENANTS_MAX)
		return -ENODEV;
	*out = find(p, hash, tenant_slot, keyspace);
	return *out ? 0 : make_and_enter(p, hash, tenant_slot, NULL, keyspace, out);
}

int kvc_domain_of_record(struct kvc_pool *p, const struct kvc_rec *rec, struct kvc_domain **d)
{
	u32 hash = hash_of(p, rec->tenant, rec->keyspace);

	if (*d && is(*d, rec->tenant, rec->keyspace) && (*d)->epoch == rec->epoch)
		return 0;
	if (*d)
		kvc_domain_put(p, *d);
	*d = find(p, hash, rec->tenant, rec->keyspace);
	if (!*d)
		return make_and_enter(p, hash, rec->tenant, &rec->epoch, rec->keyspace, d);
	if ((*d)->epoch == rec->epoch)
		return 0;
	kvc_domain_put(p, *d);
	*d = NULL;
	return -ENODEV;
}

void kvc_domains_recovered(struct kvc_pool *p)
{
	os_lock(&p->domains.lock);
	p->domains.recovered = true;
	os_unlock(&p->domains.lock);
}

u32 kvc_tenant_keyspaces(struct kvc_pool *p, u32 slot)
{
	u32 nr;

	os_lock(&p->domains.lock);
	nr = p->domains.slot[slot].nr;
	os_unlock(&p->domains.lock);
	return nr;
}

void kvc_domain_put(struct kvc_pool *p, struct kvc_domain *d)
{
	struct kvc_domain_shard *sh;
	bool last;
	u32 hash;

	if (os_atomic_dec_unless_last(&d->refs))
		return;
	hash = hash_of_domain(p, d->id);
	sh = shard_of(p, hash);
	os_lock(&p->domains.lock);
	os_lock_inner(&sh->lock);
	last = os_atomic_dec_and_test(&d->refs);
	if (last) {
		kvc_buckets_remove(&sh->table, hash, d->id);
		uncount(p, d);
	}
	os_unlock_inner(&sh->lock);
	os_unlock(&p->domains.lock);
	if (last)
		unmake(p, d);
}
