// SPDX-License-Identifier: GPL-2.0
/*
 * Reclaim policies: what defines each of them.
 */
#include "test.h"
#include "engine.h"

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

#define PAGE	30000U

/* Fill segments, and note the first page of each of the first @nr and where it is. Returns the next id. */
static u32 fill_segments(struct rig *r, u32 *first, struct kvc_seg **segs, u32 nr)
{
	const struct kvc_member *m = &r->pool->members[0];
	u32 id = 0, n = 0;

	while (n < nr) {
		id = rig_fill(r, id, PAGE, 1);
		if (n && m->head[KVC_HEAD_NEW] == segs[n - 1])
			continue;
		segs[n] = m->head[KVC_HEAD_NEW];
		first[n++] = id - 1;
	}
	return id;
}

/* Fill until a segment went; which of the noted ones was it? */
static u32 which_goes(struct rig *r, const u32 *first, u32 nr, u32 id)
{
	u32 gone = nr, i;

	while (gone == nr) {
		id = rig_fill(r, id, PAGE, 1);
		for (i = 0; i < nr && gone == nr; i++)
			if (rig_query(r, r->d, first[i]) < 0)
				gone = i;
	}
	return gone;
}

static u32 goes_first(const char *name, u32 leases)
{
	struct rig *r = rig_policy(name, 16);
	struct kvc_lease l[4];
	struct kvc_seg *segs[4];
	u32 first[4], id = fill_segments(r, first, segs, 4), gone, i;

	for (i = 0; i < leases; i++)
		assert_int_equal(rig_lease(r, r->d, first[i], &l[i]), 0);
	gone = which_goes(r, first, 4, id);
	for (i = 0; i < leases; i++)
		kvc_lease_put(r->pool, &l[i]);
	rig_free(r);
	return gone;
}

static void oldest_first(void **state)
{
	(void)state;
	assert_int_equal(goes_first("fifo", 0), 0);
	assert_int_equal(goes_first("fifo", 2), 2);
	assert_int_equal(goes_first("clock", 0), 0);
	assert_int_equal(goes_first("clock", 1), 1);
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

#define NOTED	11U

/* Which segment goes when those from @from on are of the main queue, and as many from @lease on leased? */
static u32 goes_of_queues(u32 from, u32 lease, u32 leases)
{
	struct rig *r = rig_policy("s3fifo", 16);
	struct kvc_lease l[NOTED];
	struct kvc_seg *segs[NOTED];
	u32 first[NOTED], id = fill_segments(r, first, segs, NOTED), gone, i;

	for (i = from; i < NOTED; i++)
		segs[i]->head = KVC_HEAD_LONG;
	for (i = 0; i < leases; i++)
		assert_int_equal(rig_lease(r, r->d, first[lease + i], &l[i]), 0);
	gone = which_goes(r, first, NOTED, id);
	for (i = 0; i < leases; i++)
		kvc_lease_put(r->pool, &l[i]);
	rig_free(r);
	return gone;
}

/* The queue with more segments gives one, its oldest, as long as nobody leased it. */
static void larger_queue_first(void **state)
{
	const struct kvc_policy *p = kvc_policy_find("s3fifo");

	(void)state;
	assert_int_equal(p->victim((u32[]){ 5, 4 }), KVC_QUEUE_NEW);
	assert_int_equal(p->victim((u32[]){ 4, 4 }), KVC_QUEUE_LONG);
	assert_int_equal(goes_of_queues(9, 0, 0), 0);
	assert_int_equal(goes_of_queues(9, 0, 2), 2);
	assert_int_equal(goes_of_queues(2, 0, 0), 2);
	assert_int_equal(goes_of_queues(2, 2, 1), 3);
	assert_int_equal(goes_of_queues(2, 2, NOTED - 2), 0);
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
	struct rig *r = rig_policy(name, segments);
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
	struct rig *r = rig_policy(name, 16);
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
