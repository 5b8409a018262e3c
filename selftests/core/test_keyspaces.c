// SPDX-License-Identifier: GPL-2.0
/*
 * Keyspaces: how many of them a tenant may have, and attaches without room for all that media has.
 */
#include "log/log.h"
#include "test.h"

static int make(void **state)
{
	*state = rig_small(2);
	return 0;
}

static int unmake(void **state)
{
	rig_free(*state);
	return 0;
}

static int get(struct rig *r, int slot, u32 n, struct kvc_domain **d)
{
	u8 keyspace[KVC_KEYSPACE_LEN] = { 0 };

	memcpy(keyspace, &n, sizeof(n));
	return kvc_domain_open(r->pool, (u32)slot, keyspace, d);
}

/* Hold keyspaces of @slot from @n on until one is refused, which is the answer. */
static u32 get_all(struct rig *r, int slot, u32 n)
{
	struct kvc_domain *d;
	int ret;

	do {
		ret = get(r, slot, n++, &d);
	} while (!ret);
	assert_int_equal(ret, -EDQUOT);
	return n - 1;
}

static void put(struct rig *r, int slot, u32 n)
{
	struct kvc_domain *d;

	assert_int_equal(get(r, slot, n, &d), 0);
	kvc_domain_put(r->pool, d);
	kvc_domain_put(r->pool, d);
}

static int add_tenant(struct rig *r, const char *name, u32 keyspaces)
{
	const struct kvc_limits l = { .keyspaces = keyspaces };
	int slot = kvc_tenant_add(r->pool, name, 0, 0, 0600, 0);

	assert_true(slot > 0);
	assert_int_equal(kvc_tenant_limit(r->pool, name, &l), 0);
	return slot;
}

/* A tenant has as many as it may, and no other one misses them. */
static void a_tenants_share(void **state)
{
	struct rig *r = *state;
	int slot = add_tenant(r, "one", 0);
	struct kvc_domain *d;

	assert_int_equal(get_all(r, slot, 0), KVC_KEYSPACES);
	assert_int_equal(kvc_tenant_keyspaces(r->pool, (u32)slot), KVC_KEYSPACES);
	assert_int_equal(get(r, add_tenant(r, "two", 0), 0, &d), 0);
	/* those that it has are found as before, and what it gives up it may have again */
	put(r, slot, 77);
	assert_int_equal(kvc_tenant_keyspaces(r->pool, (u32)slot), KVC_KEYSPACES - 1);
	assert_int_equal(get(r, slot, KVC_KEYSPACES, &d), 0);
	assert_int_equal(get(r, slot, 77, &d), -EDQUOT);
	assert_null(d);
}

static void limits(void **state)
{
	const struct kvc_limits more = { .keyspaces = 5 }, less = { .keyspaces = 2 };
	struct rig *r = *state;
	int slot = add_tenant(r, "one", 3);
	struct kvc_domain *d;

	assert_int_equal(get_all(r, slot, 0), 3);
	assert_int_equal(kvc_tenant_limit(r->pool, "one", &more), 0);
	assert_int_equal(get_all(r, slot, 3), 5);
	assert_int_equal(kvc_tenant_limit(r->pool, "one", &less), 0);
	put(r, slot, 4);
	put(r, slot, 3);
	assert_int_equal(get(r, slot, 3, &d), -EDQUOT);
	put(r, slot, 2);
	assert_int_equal(get(r, slot, 2, &d), -EDQUOT);
	put(r, slot, 1);
	assert_int_equal(get(r, slot, 2, &d), 0);
	assert_int_equal(get(r, 239, 0, &d), -ENODEV);
	assert_int_equal(get(r, KVC_TENANTS_MAX, 0, &d), -ENODEV);
}

/* A keyspace counts as long as there is a page of it. */
static void pages_keep_it(void **state)
{
	struct rig *r = *state;
	int slot = add_tenant(r, "one", 1);
	struct kvc_domain *d, *other;

	assert_int_equal(get(r, slot, 0, &d), 0);
	assert_int_equal(rig_store(r, d, 1, 1, 100), 0);
	kvc_domain_put(r->pool, d);
	assert_int_equal(get(r, slot, 1, &other), -EDQUOT);
	rig_fill(r, 100, 30000, 500);
	assert_int_equal(get(r, slot, 1, &other), 0);
	kvc_domain_put(r->pool, other);
	assert_int_equal(kvc_tenant_keyspaces(r->pool, (u32)slot), 0);
}

/* Those of all that are there to be shared may be taken, but each tenant has some for sure. */
static void all_together(void **state)
{
	struct rig *r = *state;
	int one = add_tenant(r, "one", 1000), two = add_tenant(r, "two", 1000), three = add_tenant(r, "three", 0), again;
	struct kvc_domains *all = &r->pool->domains;

	all->sure = 2;
	all->max = 2 * KVC_TENANTS_MAX + 20;
	/* the rig's own is sure */
	assert_int_equal(get_all(r, one, 0), 2 + 20);
	assert_int_equal(get_all(r, two, 0), 2);
	assert_int_equal(get_all(r, three, 0), 2);
	put(r, one, 0);
	assert_int_equal(get_all(r, three, 2), 3);
	/* what a removed tenant held is as good as taken, but not by who comes after it */
	assert_int_equal(kvc_tenant_remove(r->pool, "one"), 0);
	again = add_tenant(r, "again", 1000);
	assert_int_equal(again, one);
	assert_int_equal(kvc_tenant_keyspaces(r->pool, (u32)again), 0);
	assert_int_equal(get_all(r, again, 0), 2);
	assert_int_equal(all->nr, 1 + 21 + 2 + 3 + 2);
	assert_int_equal(all->shared, 21 + 1);
}

/* What a removed tenant had ends with its last holders, and is room for others then. */
static void room_of_the_dead(void **state)
{
	struct rig *r = *state;
	int slot = add_tenant(r, "one", 0), two;
	struct kvc_domain *d[8];
	u32 i;

	r->pool->domains.sure = 0;
	r->pool->domains.max = 9;
	for (i = 0; i < 8; i++)
		assert_int_equal(get(r, slot, i, &d[i]), 0);
	two = add_tenant(r, "two", 0);
	assert_int_equal(get_all(r, two, 0), 0);
	assert_int_equal(kvc_tenant_remove(r->pool, "one"), 0);
	assert_int_equal(get_all(r, two, 0), 0);
	for (i = 0; i < 8; i++)
		kvc_domain_put(r->pool, d[i]);
	assert_int_equal(get_all(r, two, 0), 8);
}

static int load_in(struct rig *r, u32 n)
{
	struct kvc_domain *d;
	int ret = get(r, 0, n, &d);

	if (ret)
		return ret;
	ret = rig_load(r, d, n, n);
	kvc_domain_put(r->pool, d);
	return ret;
}

/* A page in each of @nr keyspaces of tenant "default" */
static void store_each(struct rig *r, u32 nr)
{
	struct kvc_domain *d;
	u32 n;

	for (n = 0; n < nr; n++) {
		assert_int_equal(get(r, 0, n, &d), 0);
		assert_int_equal(rig_store(r, d, n, n, 100), 0);
		kvc_domain_put(r->pool, d);
	}
	rig_flush(r);
}

static u32 found(struct rig *r, u32 nr)
{
	u32 n, count = 0;

	for (n = 0; n < nr; n++)
		count += !load_in(r, n);
	return count;
}

/* An attach takes what it has room for. The limit of a tenant is not its affair. */
static void full_at_attach(void **state)
{
	const struct kvc_limits one = { .keyspaces = 1 };
	struct rig *r = *state;

	store_each(r, 10);
	assert_int_equal(kvc_tenant_limit(r->pool, "default", &one), 0);
	rig_write_super(r);
	rig_detach(r);
	r->domains_max = 4;
	rig_recover(r);
	assert_int_equal(rig_stats(r).pages, 4);
	assert_int_equal(rig_stats(r).recover_skipped, 6);
	rig_detach(r);
	r->domains_max = 0;
	rig_attach(r);
	assert_int_equal(rig_stats(r).recover_skipped, 0);
	assert_int_equal(found(r, 10), 10);
}

/* Stores until every segment that can go has gone */
static void turn_over(struct rig *r)
{
	u32 i, tries;
	int ret;

	for (i = 0; i < 2000; i++) {
		for (tries = 0; tries < 100; tries++) {
			ret = rig_store(r, r->d, 1000 + i, i, 30000);
			if (ret != -EAGAIN)
				break;
			rig_work(r);
		}
		if (ret)
			break;
	}
	assert_true(ret == 0 || ret == -ENOSPC);
	rig_flush(r);
	rig_work(r);
}

/*
 * A tombstone that an attach had no room for is not copied by reclaim, so it stays where it is: what it killed is away
 * in this attach and in those that follow.
 */
static void deleted_stays_deleted(void **state)
{
	struct rig *r = *state;
	struct kvc_lease l[2];
	struct kvc_domain *d;
	u32 n, gseg;

	/* one on each member keeps the pages' segment where it is */
	assert_int_equal(rig_store(r, r->d, 0, 0, 100), 0);
	assert_int_equal(rig_store(r, r->d, 1, 0, 100), 0);
	store_each(r, 8);
	rig_again(r);
	for (n = 0; n < 8; n++) {
		assert_int_equal(get(r, 0, n, &d), 0);
		assert_int_equal(rig_delete(r, d, n), 0);
		kvc_domain_put(r->pool, d);
	}
	rig_flush(r);
	rig_detach(r);
	r->domains_max = 3;
	rig_attach(r);
	assert_int_equal(rig_stats(r).pages, 2);
	assert_int_equal(rig_stats(r).recover_skipped, 2 * 6);
	assert_int_equal(rig_lease(r, r->d, 0, &l[0]), 0);
	assert_int_equal(rig_lease(r, r->d, 1, &l[1]), 0);
	for (n = 0; n < r->nr_members; n++)
		for (gseg = 0; gseg < 16; gseg++)
			if (r->pool->members[n].segs[gseg].rooted)
				assert_int_equal(r->pool->members[n].segs[gseg].state, KVC_S_SEALED);
	turn_over(r);
	kvc_lease_put(r->pool, &l[0]);
	kvc_lease_put(r->pool, &l[1]);
	rig_detach(r);
	r->domains_max = 0;
	rig_attach(r);
	assert_int_equal(found(r, 8), 0);
}

/* A page that an attach had no room for comes back, but not behind a delete of its key. */
static void deleted_stays_deleted_of_left_out(void **state)
{
	struct rig *r = *state;
	struct kvc_domain *d;

	store_each(r, 3);
	/* logs that are closed hide nothing else */
	kvc_pool_rest(r->pool);
	rig_flush(r);
	rig_detach(r);
	r->domains_max = 2;
	rig_attach(r);
	r->pool->domains.max = 4;
	assert_int_equal(load_in(r, 2), -ENOENT);
	assert_int_equal(get(r, 0, 2, &d), 0);
	assert_int_equal(rig_store(r, d, 2, 77, 100), 0);
	assert_int_equal(rig_delete(r, d, 2), 0);
	kvc_domain_put(r->pool, d);
	rig_flush(r);
	rig_detach(r);
	r->domains_max = 0;
	rig_attach(r);
	assert_int_equal(found(r, 3), 2);
}

/* The member that has such a tombstone cannot leave. */
static void keeper_stays(void **state)
{
	struct rig *r = *state;
	struct kvc_domain *d;
	u32 n, keepers = 0;

	store_each(r, 8);
	for (n = 0; n < 8; n++) {
		assert_int_equal(get(r, 0, n, &d), 0);
		assert_int_equal(rig_delete(r, d, n), 0);
		kvc_domain_put(r->pool, d);
	}
	rig_flush(r);
	rig_detach(r);
	r->domains_max = 1;
	rig_attach(r);
	for (n = 0; n < 32; n++)
		keepers |= r->pool->members[n / 16].segs[n % 16].rooted ? BIT(n / 16) : 0;
	assert_int_not_equal(keepers, 0);
	n = keepers & 1 ? 0 : 1;
	assert_int_equal(kvc_member_leave(r->pool, n, false), -EBUSY);
	rig_detach(r);
	r->domains_max = 0;
	rig_attach(r);
	assert_int_equal(kvc_member_leave(r->pool, n, false), 0);
}

/* Nothing of a keyspace counts in an attach when its first record did not, even if there is room meanwhile. */
static void refused_stays_refused(void **state)
{
	struct rig *r = *state;
	struct kvc_rec rec = { .tenant = 0 };
	struct kvc_domain *d = NULL;

	rig_detach(r);
	assert_int_equal(kvc_pool_create(r->super, 42, &(struct kvc_ops){ 0 }, r, &r->pool), 0);
	r->d = NULL;
	r->pool->domains.max = 1;
	r->pool->domains.sure = 0;
	assert_int_equal(kvc_domain_of_record(r->pool, &rec, &d), 0);
	rec.keyspace[0] = 1;
	/* gives up the first one */
	assert_int_equal(kvc_domain_of_record(r->pool, &rec, &d), 0);
	rec.keyspace[0] = 2;
	assert_int_equal(get(r, 0, 0, &r->d), -EDQUOT);
	assert_int_equal(kvc_domain_of_record(r->pool, &rec, &d), -EDQUOT);
	assert_null(d);
	assert_int_equal(r->pool->domains.nr, 0);
	assert_int_equal(kvc_domain_of_record(r->pool, &rec, &d), -EDQUOT);
	rec.epoch = 1;
	assert_int_equal(kvc_domain_of_record(r->pool, &rec, &d), -ENODEV);
}

static const struct CMUnitTest keyspaces_tests[] = {
	cmocka_unit_test_setup_teardown(a_tenants_share, make, unmake),
	cmocka_unit_test_setup_teardown(limits, make, unmake),
	cmocka_unit_test_setup_teardown(pages_keep_it, make, unmake),
	cmocka_unit_test_setup_teardown(all_together, make, unmake),
	cmocka_unit_test_setup_teardown(room_of_the_dead, make, unmake),
	cmocka_unit_test_setup_teardown(full_at_attach, make, unmake),
	cmocka_unit_test_setup_teardown(deleted_stays_deleted, make, unmake),
	cmocka_unit_test_setup_teardown(deleted_stays_deleted_of_left_out, make, unmake),
	cmocka_unit_test_setup_teardown(keeper_stays, make, unmake),
	cmocka_unit_test_setup_teardown(refused_stays_refused, make, unmake),
};

TEST_GROUP(keyspaces);
