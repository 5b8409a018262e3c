// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * The pool's superblock, and the tenants in it. Removing a tenant raises its slot's epoch: its domains are dead from
 * then on, which nobody finds pages in, and gone when the superblocks say so, so that no recovery believes a record of
 * theirs. Until then a power cut may bring the tenant back, and what it had deleted has to stay deleted.
 *
 * domains.lock guards the tenants of the superblock too.
 */
#include "index/index.h"

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

/* What is known of a slot's limits outside of the superblock. Domains locked, or nobody else is there. */
static void know_limits(struct kvc_pool *p, u32 slot)
{
	const struct kvc_limits *l = &p->super.limits[slot];

	WRITE_ONCE(p->accounts[slot].no_urgent, l->flags & KVC_LIMIT_NO_URGENT);
	WRITE_ONCE(p->accounts[slot].weight, l->weight ?: KVC_WEIGHT);
	WRITE_ONCE(p->accounts[slot].pace.bandwidth, l->bandwidth);
	WRITE_ONCE(p->accounts[slot].pace.inflight, l->inflight);
	/* pairs with kvc_tenant_pace() */
	os_store_release(&p->accounts[slot].pace.generation, p->accounts[slot].pace.generation + 1);
	WRITE_ONCE(p->accounts[slot].paced, l->bandwidth || l->inflight);
}

/* Its bucket, full at first; 0, -ENOMEM. Allocates, takes budget.lock */
static int limit_budget(struct kvc_pool *p, u32 slot, u64 per_day)
{
	int r = per_day ? kvc_budget_remember(p) : 0;

	if (!r)
		kvc_budget_limit(p, &p->accounts[slot].budget, per_day);
	return r;
}

int kvc_tenants_init(struct kvc_pool *p)
{
	u32 i;
	int r = 0;

	for (i = 0; i < KVC_TENANTS_MAX && !r; i++) {
		know_limits(p, i);
		r = limit_budget(p, i, p->super.limits[i].write_budget);
		p->nonces |= p->super.tenants[i].flags & KVC_TENANT_ENCRYPTED;
	}
	return r;
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

static void set_key(struct kvc_pool *p, int slot, const struct kvc_super_key *key)
{
	struct kvc_super_key *k = &p->super.keys[slot];

	memset(k, 0, sizeof(*k));
	if (!key)
		return;
	memcpy(k->name, key->name, strnlen(key->name, KVC_KEY_NAME_MAX - 1));
	memcpy(k->check, key->check, KVC_KEY_CHECK);
}

int kvc_tenant_add_keyed(struct kvc_pool *p, const char *name, u32 uid, u32 gid, u32 mode, u32 flags,
			 const struct kvc_super_key *key)
{
	struct kvc_super_tenant *t;
	int i;

	if (!kvc_name_ok(name) || (mode & ~0777U) || (flags & ~KVC_TENANT_VERIFIED) ||
	    (key && !kvc_key_name_ok(key->name)))
		return -EINVAL;
	if (find_tenant(p, name) >= 0)
		return -EEXIST;
	if (key && kvc_nonces_begin(p))
		return -ENOMEM;
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
		t->flags = KVC_TENANT_USED | flags | (key ? KVC_TENANT_ENCRYPTED : 0);
		set_key(p, i, key);
		if (key)
			p->super.incompat |= KVC_INCOMPAT_KEYS;
		kvc_super_raise(p);
		os_unlock(&p->domains.lock);
		return i;
	}
	return -ENOSPC;
}

int kvc_tenant_add(struct kvc_pool *p, const char *name, u32 uid, u32 gid, u32 mode, u32 flags)
{
	return kvc_tenant_add_keyed(p, name, uid, gid, mode, flags, NULL);
}

int kvc_tenant_set(struct kvc_pool *p, const char *name, u32 flags)
{
	int slot = find_tenant(p, name);

	if (slot < 0)
		return slot;
	if (flags & ~KVC_TENANT_VERIFIED)
		return -EINVAL;
	os_lock(&p->domains.lock);
	p->super.tenants[slot].flags = (p->super.tenants[slot].flags & ~KVC_TENANT_VERIFIED) | flags;
	kvc_super_raise(p);
	os_unlock(&p->domains.lock);
	return 0;
}

/* Of what a pool has only so much of */
static bool asks_more(const struct kvc_limits *before, const struct kvc_limits *limits)
{
	return limits->reserve > before->reserve || (limits->quota && !before->quota);
}

int kvc_tenant_limit(struct kvc_pool *p, const char *name, const struct kvc_limits *limits)
{
	int slot = find_tenant(p, name), r;
	struct kvc_limits before;
	u32 i;

	if (slot < 0)
		return slot;
	if (!kvc_limits_ok(limits))
		return -EINVAL;
	r = limit_budget(p, (u32)slot, limits->write_budget);
	if (r)
		return r;
	os_lock(&p->domains.lock);
	before = p->super.limits[slot];
	p->super.limits[slot] = *limits;
	if (!kvc_quota_plan(p) && asks_more(&before, limits)) {
		p->super.limits[slot] = before;
		kvc_quota_plan(p);
		r = -ENOSPC;
	} else {
		know_limits(p, (u32)slot);
		kvc_super_raise(p);
	}
	os_unlock(&p->domains.lock);
	if (r)
		kvc_budget_limit(p, &p->accounts[slot].budget, before.write_budget);
	for (i = 0; i < kvc_nr_members(p); i++)
		kvc_kick(&p->members[i]);
	kvc_space(p);
	return r;
}

int kvc_tenant_remove(struct kvc_pool *p, const char *name)
{
	int slot = find_tenant(p, name);
	struct kvc_super_tenant *t;

	if (slot < 0)
		return slot;
	t = &p->super.tenants[slot];
	os_lock(&p->domains.lock);
	kvc_domains_kill(p, (u32)slot);
	t->flags = 0;
	memset(&p->super.limits[slot], 0, sizeof(p->super.limits[slot]));
	set_key(p, slot, NULL);
	know_limits(p, (u32)slot);
	os_atomic64_set(&p->accounts[slot].evicted, 0);
	if (READ_ONCE(p->quota.on))
		kvc_quota_plan(p);
	if (t->epoch < U32_MAX)
		t->epoch++;
	memset(t->name, 0, KVC_NAME_MAX);
	kvc_super_raise(p);
	os_unlock(&p->domains.lock);
	kvc_budget_limit(p, &p->accounts[slot].budget, 0);
	return 0;
}

bool kvc_tenant_name(struct kvc_pool *p, u32 slot, u32 epoch, char name[KVC_NAME_MAX])
{
	const struct kvc_super_tenant *t = &p->super.tenants[slot];
	bool found;

	os_lock(&p->domains.lock);
	found = (t->flags & KVC_TENANT_USED) && t->epoch == epoch;
	if (found)
		memcpy(name, t->name, KVC_NAME_MAX);
	os_unlock(&p->domains.lock);
	return found;
}

u64 kvc_tenant_evicted(const struct kvc_pool *p, u32 slot)
{
	return os_atomic64_read(&p->accounts[slot].evicted);
}

const bool *kvc_tenant_no_urgent(const struct kvc_pool *p, u32 slot)
{
	return &p->accounts[slot].no_urgent;
}

u32 kvc_tenant_weight(const struct kvc_pool *p, u32 slot)
{
	return READ_ONCE(p->accounts[slot].weight);
}

const bool *kvc_tenant_paced(const struct kvc_pool *p, u32 slot)
{
	return &p->accounts[slot].paced;
}

struct kvc_pace kvc_tenant_pace(const struct kvc_pool *p, u32 slot)
{
	const struct kvc_pace *pace = &p->accounts[slot].pace;
	struct kvc_pace now;

	/* pairs with know_limits(): the limits are of this generation, or newer, and then so is the next look */
	now.generation = os_load_acquire(&pace->generation);
	now.bandwidth = READ_ONCE(pace->bandwidth);
	now.inflight = READ_ONCE(pace->inflight);
	return now;
}

int kvc_tenant_pin(struct kvc_pool *p, u32 slot, u64 bytes)
{
	struct kvc_account *a = &p->accounts[slot];
	u64 most;
	int r = -EDQUOT;

	os_lock(&p->domains.lock);
	most = p->super.limits[slot].pinned ?: U64_MAX;
	/* a limit may be set below what is pinned already */
	if (bytes <= most && a->pinned <= most - bytes) {
		a->pinned += bytes;
		r = 0;
	}
	os_unlock(&p->domains.lock);
	return r;
}

void kvc_tenant_unpin(struct kvc_pool *p, u32 slot, u64 bytes)
{
	os_lock(&p->domains.lock);
	p->accounts[slot].pinned -= bytes;
	os_unlock(&p->domains.lock);
}

u64 kvc_tenant_pinned(struct kvc_pool *p, u32 slot)
{
	u64 n;

	os_lock(&p->domains.lock);
	n = p->accounts[slot].pinned;
	os_unlock(&p->domains.lock);
	return n;
}

static bool of_gone_domain(const struct kvc_pool *p, const struct kvc_entry *e)
{
	return e->state == KVC_E_LIVE && READ_ONCE(kvc_domain(p, e->domain)->gone);
}

void kvc_tenants_gone(struct kvc_pool *p)
{
	struct kvc_domain *d;
	bool any = false;

	os_lock(&p->domains.lock);
	list_for_each_entry(d, &p->domains.dead, node) {
		any |= !d->gone;
		WRITE_ONCE(d->gone, true);
	}
	os_unlock(&p->domains.lock);
	if (any)
		kvc_index_sweep(p, of_gone_domain);
}
