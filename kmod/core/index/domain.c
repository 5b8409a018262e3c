// SPDX-License-Identifier: GPL-2.0
/*
 * Domains and tenants.
 *
 * A domain is what a key is looked up in: tenant slot, epoch of the slot, keyspace. Entries name it by id and hold a
 * reference, as sessions do; the last reference frees it. Removing a tenant raises its slot's epoch: its domains are dead
 * from then on, which nobody finds pages in, and gone when the superblocks say so, so that no recovery believes a record
 * of theirs. Until then a power cut may bring the tenant back, and what it had deleted has to stay deleted.
 *
 * domains.lock guards the hash, the last reference, and the tenants of the pool's superblock.
 */
#include "engine.h"

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

const struct kvc_super *kvc_super_of(const struct kvc_pool *p)
{
	return &p->super;
}

/*
 * The next configuration. It says which members are there now: all that is written of one sequence has to say the same,
 * whoever is lost between two writes. Domains locked.
 */
void kvc_super_raise(struct kvc_pool *p)
{
	u32 i;

	p->super.seq++;
	for (i = 0; i < p->super.nr_members; i++) {
		const struct kvc_member *m = &p->members[i];
		bool there = m->joining || !READ_ONCE(m->offline) || !p->super.members[i].nr_segments;

		p->super.members[i].flags = there ? 0 : KVC_MEMBER_ABSENT;
	}
}

void kvc_super_touch(struct kvc_pool *p)
{
	os_lock(&p->domains.lock);
	kvc_super_raise(p);
	os_unlock(&p->domains.lock);
}

static int find_tenant(const struct kvc_pool *p, const char *name)
{
	int i;

	for (i = 0; i < KVC_TENANTS_MAX; i++)
		if ((p->super.tenants[i].flags & KVC_TENANT_USED) &&
		    !strncmp(p->super.tenants[i].name, name, KVC_NAME_MAX))
			return i;
	return -ENOENT;
}

int kvc_tenant_add(struct kvc_pool *p, const char *name, u32 uid, u32 gid, u32 mode, u32 flags)
{
	struct kvc_super_tenant *t;
	int i;

	if (!kvc_name_ok(name) || (mode & ~0777U) || (flags & ~KVC_TENANT_VERIFIED))
		return -EINVAL;
	if (find_tenant(p, name) >= 0)
		return -EEXIST;
	for (i = 0; i < KVC_TENANTS_MAX; i++) {
		t = &p->super.tenants[i];
		/* A slot whose epochs are used up is never given away again. */
		if ((t->flags & KVC_TENANT_USED) || t->epoch == U32_MAX)
			continue;
		os_lock(&p->domains.lock);
		memset(t->name, 0, KVC_NAME_MAX);
		memcpy(t->name, name, strnlen(name, KVC_NAME_MAX - 1));
		t->uid = uid;
		t->gid = gid;
		t->mode = mode;
		t->flags = KVC_TENANT_USED | flags;
		kvc_super_raise(p);
		os_unlock(&p->domains.lock);
		return i;
	}
	return -ENOSPC;
}

int kvc_tenant_set(struct kvc_pool *p, const char *name, u32 flags)
{
	int slot = find_tenant(p, name);

	if (slot < 0)
		return slot;
	if (flags & ~KVC_TENANT_VERIFIED)
		return -EINVAL;
	os_lock(&p->domains.lock);
	p->super.tenants[slot].flags = KVC_TENANT_USED | flags;
	kvc_super_raise(p);
	os_unlock(&p->domains.lock);
	return 0;
}

static bool of_gone_domain(const struct kvc_pool *p, const struct kvc_entry *e)
{
	return e->state == KVC_E_LIVE && READ_ONCE(kvc_domain(p, e->domain)->gone);
}

int kvc_tenant_remove(struct kvc_pool *p, const char *name)
{
	int slot = find_tenant(p, name);
	struct kvc_super_tenant *t;
	struct kvc_domain *d;
	u32 i;

	if (slot < 0)
		return slot;
	t = &p->super.tenants[slot];
	os_lock(&p->domains.lock);
	for (i = 0; i < KVC_DOMAIN_BUCKETS; i++)
		for (d = p->domains.bucket[i]; d; d = d->next)
			if (d->slot == (u32)slot)
				WRITE_ONCE(d->dead, true);
	t->flags = 0;
	if (t->epoch < U32_MAX)
		t->epoch++;
	memset(t->name, 0, KVC_NAME_MAX);
	kvc_super_raise(p);
	os_unlock(&p->domains.lock);
	return 0;
}

void kvc_tenants_gone(struct kvc_pool *p)
{
	struct kvc_domain *d;
	bool any = false;
	u32 i;

	os_lock(&p->domains.lock);
	for (i = 0; i < KVC_DOMAIN_BUCKETS; i++)
		for (d = p->domains.bucket[i]; d; d = d->next)
			if (d->dead && !d->gone) {
				WRITE_ONCE(d->gone, true);
				any = true;
			}
	os_unlock(&p->domains.lock);
	if (any)
		kvc_index_sweep(p, of_gone_domain);
}
