// SPDX-License-Identifier: GPL-2.0
/*
 * Reclaim policies: what defines each of them.
 */
#include "test.h"

static void names(void **state)
{
	u32 i, j;

	(void)state;
	for (i = 0; kvc_policies[i]; i++) {
		assert_ptr_equal(kvc_policy_find(kvc_policies[i]->name), kvc_policies[i]);
		for (j = 0; j < i; j++)
			assert_string_not_equal(kvc_policies[i]->name, kvc_policies[j]->name);
	}
	assert_true(i >= 2);
	assert_null(kvc_policy_find("nothing"));
	assert_null(kvc_policy_find(""));
}

/* A policy is chosen before there are pages, not later. */
static void chosen_in_time(void **state)
{
	const struct kvc_policy *fifo = kvc_policy_find("fifo");
	struct rig *r = rig_small(1);

	(void)state;
	assert_int_equal(kvc_pool_set_policy(r->pool, fifo), 0);
	assert_int_equal(rig_store(r, r->d, 1, 1, 100), 0);
	assert_int_equal(kvc_pool_set_policy(r->pool, fifo), -EBUSY);
	rig_free(r);
}

static u32 pick(const struct kvc_policy *p, const struct kvc_victim_view *v, u32 nr)
{
	return p->victim(v, nr);
}

static void oldest_first(void **state)
{
	const struct kvc_policy *both[] = { kvc_policy_find("fifo"), kvc_policy_find("clock") };
	u32 i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct kvc_victim_view v[] = { { 1, 30, 0, 0 }, { 2, 10, 5, 1 }, { 3, 20, 9, 0 }, { 4, 40, 0, 0 } };
		const struct kvc_policy *p = both[i];

		assert_int_equal(pick(p, v, 0), KVC_NONE);
		assert_int_equal(pick(p, v, 4), 2);
		v[1].leases = 0;
		assert_int_equal(pick(p, v, 4), 1);
		assert_int_equal(pick(p, v, 1), 0);
		v[0].leases = 1;
		assert_int_equal(pick(p, v, 1), KVC_NONE);
	}
}

static void what_is_kept(void **state)
{
	(void)state;
	assert_false(kvc_policy_find("clock")->keep(0, 0, 1));
	assert_true(kvc_policy_find("clock")->keep(1, 0, 1));
	assert_false(kvc_policy_find("fifo")->keep(1, 0, 1));
}

static const struct CMUnitTest policy_tests[] = {
	cmocka_unit_test(names),
	cmocka_unit_test(chosen_in_time),
	cmocka_unit_test(oldest_first),
	cmocka_unit_test(what_is_kept),
};

TEST_GROUP(policy);
