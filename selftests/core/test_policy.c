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
		struct kvc_victim_view v[] = { { 1, 30, 0, 0, 0 }, { 2, 10, 5, 1, 0 }, { 3, 20, 9, 0, 0 },
						{ 4, 40, 0, 0, 0 } };
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

static bool keeps(const char *name, u32 hits, enum kvc_queue queue)
{
	return kvc_policy_find(name)->keep(&(struct kvc_page_view){ .hits = hits, .queue = queue, .length = 1 });
}

static u32 moved(const char *name, u32 hits, enum kvc_queue queue)
{
	return kvc_policy_find(name)->moved_hits(&(struct kvc_page_view){ .hits = hits, .queue = queue });
}

static void what_is_kept(void **state)
{
	(void)state;
	assert_false(keeps("clock", 0, KVC_QUEUE_NEW));
	assert_true(keeps("clock", 1, KVC_QUEUE_LONG));
	assert_int_equal(moved("clock", 5, KVC_QUEUE_NEW), 2);
	assert_false(keeps("fifo", 15, KVC_QUEUE_NEW));
	assert_false(keeps("s3fifo", 0, KVC_QUEUE_LONG));
	assert_true(keeps("s3fifo", 1, KVC_QUEUE_NEW));
	/* Into the main queue without a past, and a hit less for each round in it */
	assert_int_equal(moved("s3fifo", 5, KVC_QUEUE_NEW), 0);
	assert_int_equal(moved("s3fifo", 5, KVC_QUEUE_LONG), 4);
	assert_int_equal(moved("s3fifo", 0, KVC_QUEUE_LONG), 0);
}

/* The queue with more segments gives one, its oldest, as long as nobody leased it. */
static void larger_queue_first(void **state)
{
	const struct kvc_policy *p = kvc_policy_find("s3fifo");
	struct kvc_victim_view v[] = {
		{ 1, 40, 0, 0, KVC_QUEUE_NEW }, { 2, 30, 0, 0, KVC_QUEUE_NEW }, { 3, 10, 0, 0, KVC_QUEUE_LONG },
		{ 4, 20, 0, 0, KVC_QUEUE_LONG }, { 5, 50, 0, 0, KVC_QUEUE_LONG },
	};

	(void)state;
	assert_int_equal(pick(p, v, 0), KVC_NONE);
	assert_int_equal(pick(p, v, 5), 2);
	v[2].leases = 1;
	assert_int_equal(pick(p, v, 5), 3);
	v[4].queue = KVC_QUEUE_NEW;
	assert_int_equal(pick(p, v, 5), 1);
	v[0].leases = v[1].leases = v[4].leases = 1;
	assert_int_equal(pick(p, v, 5), 3);
	/* Of two only, whatever they are: the newer one may hold what was stored just now. */
	v[2].leases = 0;
	v[3].queue = KVC_QUEUE_NEW;
	assert_int_equal(pick(p, v + 2, 2), 0);
}

#define PAGE	30000U

static struct rig *rig_with(const char *name, u32 segments)
{
	struct rig *r = rig_new(1, segments, KVC_SEGMENT_MIN, KVC_CHUNK_MIN);

	assert_int_equal(kvc_pool_set_policy(r->pool, kvc_policy_find(name)), 0);
	return r;
}

static u64 segment_at(struct rig *r, u32 id)
{
	struct kvc_load ld;
	u64 segment;

	assert_int_equal(rig_hold(r, r->d, id, &ld), 0);
	segment = (ld.offset - KVC_DATA_OFFSET) / KVC_SEGMENT_MIN;
	kvc_load_end(r->pool, &ld, 0);
	return segment;
}

/* Is a page that was evicted and comes back put elsewhere than one that was never here? */
static bool apart(const char *name, u32 segments)
{
	struct rig *r = rig_with(name, segments);
	u32 n = rig_fill(r, 0, PAGE, segments * 10);
	bool differ;

	assert_int_equal(rig_query(r, r->d, n - segments * 8), -ENOENT);
	assert_int_equal(rig_store(r, r->d, n - segments * 8, 1, 5000), 0);
	assert_int_equal(rig_store(r, r->d, 90000, 1, 5000), 0);
	differ = segment_at(r, 90000) != segment_at(r, n - segments * 8);
	rig_free(r);
	return differ;
}

static void who_returns(void **state)
{
	(void)state;
	assert_true(apart("s3fifo", 16));
	assert_false(apart("s3fifo", 8));
	assert_false(apart("clock", 16));
}

/* What was loaded once outlives a flood of what is never loaded, where FIFO drowns it. */
static bool survives_flood(const char *name)
{
	struct rig *r = rig_with(name, 16);
	bool there;
	u32 n;

	assert_int_equal(rig_store(r, r->d, 90000, 7, PAGE), 0);
	assert_int_equal(rig_load(r, r->d, 90000, 7), 0);
	n = rig_fill(r, 0, PAGE, 16 * 10);
	there = rig_load(r, r->d, 90000, 7) == 0;
	rig_fill(r, n, PAGE, 20);
	rig_free(r);
	return there;
}

static void floods(void **state)
{
	(void)state;
	assert_true(survives_flood("s3fifo"));
	assert_true(survives_flood("clock"));
	assert_false(survives_flood("fifo"));
}

static const struct CMUnitTest policy_tests[] = {
	cmocka_unit_test(names),
	cmocka_unit_test(chosen_in_time),
	cmocka_unit_test(oldest_first),
	cmocka_unit_test(what_is_kept),
	cmocka_unit_test(larger_queue_first),
	cmocka_unit_test(who_returns),
	cmocka_unit_test(floods),
};

TEST_GROUP(policy);
