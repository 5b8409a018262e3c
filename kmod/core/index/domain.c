// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Domains.
 *
 * A domain is what a key is looked up in: tenant slot, epoch of the slot, keyspace. Entries name it by id and hold a
 * reference, as sessions do; the last reference frees it. What becomes of it when its tenant is removed: tenant.c.
 *
 * domains.lock guards the hash and the last reference.
 */
#include "index/index.h"

int kvc_domains_init(struct kvc_pool *p)
{
	os_lock_init(&p->domains.lock);
	return kvc_table_init(&p->domains.table, KVC_DOMAINS_MAX);
}

void kvc_domains_destroy(struct kvc_pool *p)
{
	kvc_table_destroy(&p->domains.table, os_free);
}

static struct kvc_domain **bucket_of(struct kvc_pool *p, u32 slot, const u8 *keyspace)
{
	u64 w[2];

	memcpy(w, keyspace, KVC_KEYSPACE_LEN);
	return &p->domains.bucket[kvc_mix64(w[0] ^ kvc_mix64(w[1] ^ slot ^ p->salt_seed)) % KVC_DOMAIN_BUCKETS];
}

/* Find and take a reference. Locked. */
static struct kvc_domain *find(struct kvc_pool *p, u32 slot, u32 epoch, const u8 *keyspace)
{
	struct kvc_domain *d = *bucket_of(p, slot, keyspace);

	while (d && (d->slot != slot || d->epoch != epoch || memcmp(d->keyspace, keyspace, KVC_KEYSPACE_LEN)))
		d = d->next;
	if (d)
		os_atomic_inc(&d->refs);
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
	return d;
}

static void unmake(struct kvc_pool *p, struct kvc_domain *d)
{
	kvc_table_del(&p->domains.table, d->id);
	os_free(d);
}

/* The domain of a used slot, made if need be. @epoch: the wanted one, or NULL for the present one. */
static int get(struct kvc_pool *p, u32 slot, const u32 *epoch, const u8 *keyspace, struct kvc_domain **out)
{
	const struct kvc_super_tenant *t = &p->super.tenants[slot];
	struct kvc_domain *fresh = NULL, *d, **bucket;

	for (;;) {
		os_lock(&p->domains.lock);
		d = NULL;
		if (!(t->flags & KVC_TENANT_USED) || (epoch && *epoch != t->epoch))
			break;
		d = find(p, slot, t->epoch, keyspace);
		if (d)
			break;
		if (fresh) {
			bucket = bucket_of(p, slot, keyspace);
			fresh->epoch = t->epoch;
			fresh->next = *bucket;
			*bucket = fresh;
			d = fresh;
			fresh = NULL;
			break;
		}
		os_unlock(&p->domains.lock);
		fresh = make(p, slot, keyspace);
		if (!fresh)
			return -ENOMEM;
	}
	os_unlock(&p->domains.lock);
	if (fresh)
		unmake(p, fresh);
	*out = d;
	return 0;
}

struct kvc_domain *kvc_domain_get(struct kvc_pool *p, u32 tenant_slot, const u8 keyspace[KVC_KEYSPACE_LEN])
{
	struct kvc_domain *d;

	if (tenant_slot >= KVC_TENANTS_MAX || get(p, tenant_slot, NULL, keyspace, &d))
		return NULL;
	return d;
}

int kvc_domain_of_record(struct kvc_pool *p, const struct kvc_rec *rec, struct kvc_domain **out)
{
	return get(p, rec->tenant, &rec->epoch, rec->keyspace, out);
}

void kvc_domain_put(struct kvc_pool *p, struct kvc_domain *d)
{
	struct kvc_domain **link;
	bool last;

	if (os_atomic_dec_unless_last(&d->refs))
		return;
	os_lock(&p->domains.lock);
	last = os_atomic_dec_and_test(&d->refs);
	if (last) {
		link = bucket_of(p, d->slot, d->keyspace);
		while (*link != d)
			link = &(*link)->next;
		*link = d->next;
	}
	os_unlock(&p->domains.lock);
	if (last)
		unmake(p, d);
}
