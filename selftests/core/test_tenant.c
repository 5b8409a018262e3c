// SPDX-License-Identifier: GPL-2.0
/*
 * Loss of members; tenants that come and go.
 */
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

/* Members that fail */

static void pages_of_a_lost_member(void **state)
{
	struct rig *r = *state;
	struct kvc_load ld;
	u32 i, lost = 0;

	for (i = 0; i < 20; i++)
		assert_int_equal(rig_store(r, r->d, i, i, 3000), 0);
	rig_flush(r);
	assert_true(kvc_member_online(r->pool, 1));
	kvc_member_fail(r->pool, 1);
	kvc_member_fail(r->pool, 1);
	assert_false(kvc_member_online(r->pool, 1));
	assert_true(kvc_member_online(r->pool, 0));
	for (i = 0; i < 20; i++) {
		int ret = rig_hold(r, r->d, i, &ld);

		assert_true(ret == 0 || ret == -ENODEV);
		if (ret == 0) {
			assert_int_equal(ld.member, 0);
			kvc_load_end(r->pool, &ld, 0);
			continue;
		}
		assert_int_equal(rig_query(r, r->d, i), -ENODEV);
		lost++;
		/* It may be stored anew, and goes elsewhere. */
		if (i < 10) {
			assert_int_equal(rig_store(r, r->d, i, 500 + i, 3000), 0);
			assert_int_equal(rig_load(r, r->d, i, 500 + i), 0);
		}
	}
	assert_int_equal(lost, 10);
	rig_flush(r);
	rig_again(r);
	/* With the next attach the others are back, and what was stored meanwhile is newer. */
	for (i = 0; i < 20; i++)
		assert_true(rig_query(r, r->d, i) == 3000);
	for (i = 10; i < 20; i++)
		assert_int_equal(rig_load(r, r->d, i, i), 0);
}

static void all_members_lost(void **state)
{
	struct rig *r = *state;
	struct kvc_store st;
	struct kvc_work w;

	assert_int_equal(rig_store(r, r->d, 1, 1, 3000), 0);
	assert_int_equal(rig_begin(r, r->d, 2, 3000, &st), 0);
	kvc_member_fail(r->pool, 0);
	kvc_member_fail(r->pool, 1);
	kvc_store_commit(r->pool, &st);
	assert_int_equal(rig_load(r, r->d, 1, 1), -ENODEV);
	assert_int_equal(rig_load(r, r->d, 2, 2), -ENOENT);
	assert_int_equal(rig_store(r, r->d, 3, 3, 10), -ENODEV);
	assert_int_equal(kvc_work_next(r->pool, 0, &w), 0);
	assert_int_equal(kvc_flush_next(r->pool, 0, &w), 0);
	assert_true(kvc_flushed(r->pool, 0, kvc_flush_mark(r->pool, 0)));
}

/* A summary that could not be written: the member goes, the pool stays. */
static void failed_summary(void **state)
{
	struct rig *r = *state;
	struct kvc_work w;
	u32 i;

	for (i = 0; i < 10; i++)
		assert_int_equal(rig_store(r, r->d, i, i, 3000), 0);
	assert_int_equal(kvc_flush_next(r->pool, 0, &w), 1);
	kvc_work_done(r->pool, &w, -EIO);
	assert_false(kvc_member_online(r->pool, 0));
	assert_true(kvc_member_online(r->pool, 1));
	rig_flush(r);
	rig_fill(r, 100, 3000, 100);
}

static const struct CMUnitTest fail_tests[] = {
	cmocka_unit_test_setup_teardown(pages_of_a_lost_member, make, unmake),
	cmocka_unit_test_setup_teardown(all_members_lost, make, unmake),
	cmocka_unit_test_setup_teardown(failed_summary, make, unmake),
};

TEST_GROUP(fail);

/* Tenants */

static void add_and_remove(void **state)
{
	struct rig *r = *state;
	const struct kvc_super *s = kvc_super_of(r->pool);
	u64 seq = s->seq;
	int slot;

	slot = kvc_tenant_add(r->pool, "one", 5, 6, 0640, 0);
	assert_true(slot > 0 && slot < KVC_TENANTS_MAX);
	assert_int_equal(s->seq, seq + 1);
	assert_string_equal(s->tenants[slot].name, "one");
	assert_int_equal(s->tenants[slot].uid, 5);
	assert_int_equal(s->tenants[slot].gid, 6);
	assert_int_equal(s->tenants[slot].mode, 0640);
	assert_int_equal(kvc_super_check(s), KVC_OK);
	assert_int_equal(kvc_tenant_add(r->pool, "one", 0, 0, 0600, 0), -EEXIST);
	assert_int_equal(kvc_tenant_add(r->pool, "", 0, 0, 0600, 0), -EINVAL);
	assert_int_equal(kvc_tenant_add(r->pool, "a/b", 0, 0, 0600, 0), -EINVAL);
	assert_int_equal(kvc_tenant_add(r->pool, "two", 0, 0, 01600, 0), -EINVAL);
	assert_int_equal(kvc_tenant_remove(r->pool, "two"), -ENOENT);
	assert_int_equal(s->seq, seq + 1);
	assert_int_equal(kvc_tenant_remove(r->pool, "one"), 0);
	assert_int_equal(s->seq, seq + 2);
	assert_int_equal(s->tenants[slot].flags, 0);
	assert_int_equal(s->tenants[slot].epoch, 1);
	assert_int_equal(kvc_super_check(s), KVC_OK);
	assert_null(rig_domain(r, (u32)slot, 0));
}

/* Limits stay until others are set, are checked, and go with their tenant. */
static void limits_of_a_tenant(void **state)
{
	struct rig *r = *state;
	const struct kvc_super *s = kvc_super_of(r->pool);
	const struct kvc_limits none = {};
	struct kvc_limits l = { .quota = 8ULL << 30, .reserve = 1ULL << 20, .keyspaces = 7, .weight = KVC_WEIGHT_MAX };
	int slot = kvc_tenant_add(r->pool, "one", 0, 0, 0600, 0);
	u64 seq = s->seq;

	assert_int_equal(kvc_tenant_limit(r->pool, "two", &l), -ENOENT);
	assert_int_equal(kvc_tenant_limit(r->pool, "one", &l), 0);
	assert_int_equal(s->seq, seq + 1);
	assert_memory_equal(&s->limits[slot], &l, sizeof(l));
	l.reserve = l.quota + 1;
	assert_int_equal(kvc_tenant_limit(r->pool, "one", &l), -EINVAL);
	l.reserve = 0;
	l.weight = KVC_WEIGHT_MAX + 1;
	assert_int_equal(kvc_tenant_limit(r->pool, "one", &l), -EINVAL);
	l.weight = 0;
	l.flags = ~KVC_LIMIT_NO_URGENT;
	assert_int_equal(kvc_tenant_limit(r->pool, "one", &l), -EINVAL);
	l.flags = 0;
	l.write_budget = KVC_BUDGET_MIN - 1;
	assert_int_equal(kvc_tenant_limit(r->pool, "one", &l), -EINVAL);
	assert_int_equal(s->seq, seq + 1);
	assert_int_equal(kvc_tenant_remove(r->pool, "one"), 0);
	assert_memory_equal(&s->limits[slot], &none, sizeof(none));
}

/* A detach, and an attach with what the members' superblocks say then */
static void reattach(struct rig *r)
{
	u8 *slot = malloc(KVC_SUPER_BYTES);

	rig_write_super(r);
	kvc_super_encode(r->super, 0, slot);
	memset(r->super, 0, sizeof(*r->super));
	assert_int_equal(kvc_super_decode(slot, r->super), KVC_OK);
	free(slot);
	rig_again(r);
}

/* What a tenant requires is kept on media, and goes with it. */
static void flags_of_a_tenant(void **state)
{
	struct rig *r = *state;
	u64 seq = kvc_super_of(r->pool)->seq;
	int slot = kvc_tenant_add(r->pool, "one", 0, 0, 0600, KVC_TENANT_VERIFIED);

	reattach(r);
	assert_int_equal(kvc_super_of(r->pool)->tenants[slot].flags, KVC_TENANT_USED | KVC_TENANT_VERIFIED);
	assert_int_equal(kvc_super_of(r->pool)->tenants[0].flags, KVC_TENANT_USED);
	assert_int_equal(kvc_tenant_set(r->pool, "one", 0), 0);
	assert_int_equal(kvc_tenant_set(r->pool, "default", KVC_TENANT_VERIFIED), 0);
	/* the attach raised it, too */
	assert_int_equal(kvc_super_of(r->pool)->seq, seq + 4);
	assert_int_equal(kvc_super_check(kvc_super_of(r->pool)), KVC_OK);
	reattach(r);
	assert_int_equal(kvc_super_of(r->pool)->tenants[slot].flags, KVC_TENANT_USED);
	assert_int_equal(kvc_super_of(r->pool)->tenants[0].flags, KVC_TENANT_USED | KVC_TENANT_VERIFIED);
	assert_int_equal(kvc_tenant_set(r->pool, "two", 0), -ENOENT);
	assert_int_equal(kvc_tenant_set(r->pool, "one", KVC_TENANT_USED), -EINVAL);
	assert_int_equal(kvc_tenant_set(r->pool, "one", 4), -EINVAL);
	assert_int_equal(kvc_tenant_add(r->pool, "two", 0, 0, 0600, KVC_TENANT_USED), -EINVAL);
	assert_int_equal(kvc_super_of(r->pool)->seq, seq + 5);
	assert_int_equal(kvc_tenant_remove(r->pool, "default"), 0);
	assert_int_equal(kvc_super_of(r->pool)->tenants[0].flags, 0);
	assert_int_equal(kvc_tenant_add(r->pool, "two", 0, 0, 0600, 0), 0);
	assert_int_equal(kvc_super_of(r->pool)->tenants[0].flags, KVC_TENANT_USED);
}

static void slots_run_out(void **state)
{
	struct rig *r = *state;
	char name[KVC_NAME_MAX];
	u32 i;

	for (i = 1; i < KVC_TENANTS_MAX; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		assert_int_equal(kvc_tenant_add(r->pool, name, 0, 0, 0600, 0), i);
	}
	assert_int_equal(kvc_tenant_add(r->pool, "more", 0, 0, 0600, 0), -ENOSPC);
	assert_int_equal(kvc_tenant_remove(r->pool, "t77"), 0);
	assert_int_equal(kvc_tenant_add(r->pool, "more", 0, 0, 0600, 0), 77);
}

/* A page of one tenant is none of another, with the same key and keyspace. */
static void tenants_are_apart(void **state)
{
	struct rig *r = *state;
	int slot = kvc_tenant_add(r->pool, "one", 0, 0, 0600, 0);
	struct kvc_domain *d = rig_domain(r, (u32)slot, 0);

	assert_int_equal(rig_store(r, r->d, 1, 100, 50), 0);
	assert_int_equal(rig_load(r, d, 1, 100), -ENOENT);
	assert_int_equal(rig_store(r, d, 1, 200, 50), 0);
	assert_int_equal(rig_load(r, d, 1, 200), 0);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	assert_int_equal(rig_load(r, d, 1, 200), 0);
	kvc_domain_put(r->pool, d);
}

/* Removed, with a session that still has the domain, a store on its way and a load in flight */
static void removed_tenant(void **state)
{
	struct rig *r = *state;
	int slot = kvc_tenant_add(r->pool, "one", 0, 0, 0600, 0), again;
	struct kvc_domain *old = rig_domain(r, (u32)slot, 0), *fresh;
	struct kvc_store st, st2;
	struct kvc_lease l;
	struct kvc_load ld;

	rig_write_super(r);
	assert_int_equal(rig_store(r, old, 1, 100, 50), 0);
	assert_int_equal(rig_begin(r, old, 2, 50, &st), 0);
	assert_int_equal(rig_hold(r, old, 1, &ld), 0);
	rig_flush(r);
	assert_int_equal(kvc_tenant_remove(r->pool, "one"), 0);
	assert_int_equal(rig_load(r, old, 1, 100), -ENOENT);
	kvc_tenants_gone(r->pool);
	assert_int_equal(rig_stats(r).pages, 0);
	kvc_store_commit(r->pool, &st);
	kvc_load_end(r->pool, &ld, 0);
	assert_int_equal(rig_load(r, old, 1, 100), -ENOENT);
	assert_int_equal(rig_load(r, old, 2, 100), -ENOENT);
	assert_int_equal(rig_query(r, old, 1), -ENOENT);
	assert_int_equal(rig_delete(r, old, 1), -ENOENT);
	assert_int_equal(rig_lease(r, old, 1, &l), -ENOENT);
	assert_int_equal(rig_begin(r, old, 3, 50, &st2), -ENODEV);
	again = kvc_tenant_add(r->pool, "one", 0, 0, 0600, 0);
	assert_int_equal(again, slot);
	fresh = rig_domain(r, (u32)slot, 0);
	assert_ptr_not_equal(fresh, old);
	assert_int_equal(rig_load(r, fresh, 1, 100), -ENOENT);
	rig_write_super(r);
	kvc_domain_put(r->pool, old);
	kvc_domain_put(r->pool, fresh);
	rig_flush(r);
	rig_again(r);
	fresh = rig_domain(r, (u32)slot, 0);
	assert_int_equal(rig_load(r, fresh, 1, 100), -ENOENT);
	assert_int_equal(rig_load(r, fresh, 2, 100), -ENOENT);
	assert_int_equal(rig_stats(r).pages, 0);
	assert_true(rig_stats(r).recover_skipped >= 1);
	kvc_domain_put(r->pool, fresh);
}

/* The space of a removed tenant's pages is used again. */
static void space_of_a_removed_tenant(void **state)
{
	struct rig *r = *state;
	int slot = kvc_tenant_add(r->pool, "one", 0, 0, 0600, 0);
	struct kvc_domain *d = rig_domain(r, (u32)slot, 0);
	u32 i;

	for (i = 0; i < 100; i++) {
		while (rig_store(r, d, i, i, 30000) == -EAGAIN)
			rig_work(r);
		rig_load(r, d, i, i);
	}
	kvc_domain_put(r->pool, d);
	assert_int_equal(kvc_tenant_remove(r->pool, "one"), 0);
	rig_fill(r, 0, 30000, 500);
	assert_int_equal(rig_stats(r).moved_pages, 0);
}

/* A slot whose epochs are used up is not given away again. */
static void epochs_end(void **state)
{
	struct rig *r = *state;

	rig_detach(r);
	r->super->tenants[1].epoch = 0xffffffff;
	rig_attach(r);
	assert_int_equal(kvc_tenant_add(r->pool, "one", 0, 0, 0600, 0), 2);
}

/* What a tenant's sessions pin sums to its limit at most. */
static void memory_of_a_tenant(void **state)
{
	struct rig *r = *state;
	struct kvc_limits l = { .pinned = 100 };
	u32 slot = (u32)kvc_tenant_add(r->pool, "one", 0, 0, 0600, 0);

	assert_int_equal(kvc_tenant_pin(r->pool, slot, ~0ULL), 0);
	assert_int_equal(kvc_tenant_pin(r->pool, slot, 1), -EDQUOT);
	kvc_tenant_unpin(r->pool, slot, ~0ULL);
	assert_int_equal(kvc_tenant_limit(r->pool, "one", &l), 0);
	assert_int_equal(kvc_tenant_pin(r->pool, slot, ~0ULL), -EDQUOT);
	assert_int_equal(kvc_tenant_pin(r->pool, slot, 101), -EDQUOT);
	assert_int_equal(kvc_tenant_pin(r->pool, slot, 60), 0);
	assert_int_equal(kvc_tenant_pin(r->pool, slot, 41), -EDQUOT);
	assert_int_equal(kvc_tenant_pinned(r->pool, slot), 60);
	/* another one's is another's */
	assert_int_equal(kvc_tenant_pin(r->pool, 0, 1000), 0);
	assert_int_equal(kvc_tenant_pin(r->pool, slot, 40), 0);
	/* a limit below what is there */
	l.pinned = 50;
	assert_int_equal(kvc_tenant_limit(r->pool, "one", &l), 0);
	kvc_tenant_unpin(r->pool, slot, 51);
	assert_int_equal(kvc_tenant_pinned(r->pool, slot), 49);
	assert_int_equal(kvc_tenant_pin(r->pool, slot, 2), -EDQUOT);
	assert_int_equal(kvc_tenant_pin(r->pool, slot, 1), 0);
	kvc_tenant_unpin(r->pool, slot, 50);
	kvc_tenant_unpin(r->pool, 0, 1000);
}

/* Operations may be urgent unless the tenant was told otherwise, until it is gone. */
static void urgency_of_a_tenant(void **state)
{
	struct rig *r = *state;
	struct kvc_limits l = { .flags = KVC_LIMIT_NO_URGENT };
	u32 slot = (u32)kvc_tenant_add(r->pool, "one", 0, 0, 0600, 0);

	assert_false(*kvc_tenant_no_urgent(r->pool, slot));
	assert_int_equal(kvc_tenant_limit(r->pool, "one", &l), 0);
	assert_true(*kvc_tenant_no_urgent(r->pool, slot));
	assert_false(*kvc_tenant_no_urgent(r->pool, 0));
	reattach(r);
	assert_true(*kvc_tenant_no_urgent(r->pool, slot));
	l.flags = 0;
	assert_int_equal(kvc_tenant_limit(r->pool, "one", &l), 0);
	assert_false(*kvc_tenant_no_urgent(r->pool, slot));
	l.flags = KVC_LIMIT_NO_URGENT;
	assert_int_equal(kvc_tenant_limit(r->pool, "one", &l), 0);
	assert_int_equal(kvc_tenant_remove(r->pool, "one"), 0);
	assert_false(*kvc_tenant_no_urgent(r->pool, slot));
}

/* So are limits; who gets the slot next has none. */
static void limits_stay(void **state)
{
	struct rig *r = *state;
	const struct kvc_limits l = { .quota = 8ULL << 30, .pinned = 3, .inflight = 4, .flags = KVC_LIMIT_NO_URGENT }, none = { 0 };
	int slot = kvc_tenant_add(r->pool, "one", 0, 0, 0600, 0);

	assert_int_equal(kvc_tenant_limit(r->pool, "one", &l), 0);
	reattach(r);
	assert_memory_equal(&kvc_super_of(r->pool)->limits[slot], &l, sizeof(l));
	assert_int_equal(kvc_tenant_remove(r->pool, "one"), 0);
	reattach(r);
	assert_int_equal(kvc_tenant_add(r->pool, "two", 0, 0, 0600, 0), slot);
	assert_memory_equal(&kvc_super_of(r->pool)->limits[slot], &none, sizeof(none));
}

static const struct CMUnitTest tenant_tests[] = {
	cmocka_unit_test_setup_teardown(add_and_remove, make, unmake),
	cmocka_unit_test_setup_teardown(limits_of_a_tenant, make, unmake),
	cmocka_unit_test_setup_teardown(limits_stay, make, unmake),
	cmocka_unit_test_setup_teardown(memory_of_a_tenant, make, unmake),
	cmocka_unit_test_setup_teardown(urgency_of_a_tenant, make, unmake),
	cmocka_unit_test_setup_teardown(flags_of_a_tenant, make, unmake),
	cmocka_unit_test_setup_teardown(slots_run_out, make, unmake),
	cmocka_unit_test_setup_teardown(tenants_are_apart, make, unmake),
	cmocka_unit_test_setup_teardown(removed_tenant, make, unmake),
	cmocka_unit_test_setup_teardown(space_of_a_removed_tenant, make, unmake),
	cmocka_unit_test_setup_teardown(epochs_end, make, unmake),
};

TEST_GROUP(tenant);
