// SPDX-License-Identifier: GPL-2.0
/*
 * Delete, tombstones, flush, seal.
 */
#include "test.h"

static int make(void **state)
{
	*state = rig_small(1);
	return 0;
}

static int unmake(void **state)
{
	rig_free(*state);
	return 0;
}

static void delete_is_a_miss(void **state)
{
	struct rig *r = *state;

	assert_int_equal(rig_delete(r, r->d, 1), -ENOENT);
	assert_int_equal(rig_store(r, r->d, 1, 100, 500), 0);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	assert_int_equal(rig_load(r, r->d, 1, 100), -ENOENT);
	assert_int_equal(rig_delete(r, r->d, 1), -ENOENT);
	assert_int_equal(rig_stats(r).pages, 0);
	assert_int_equal(rig_stats(r).deletes, 1);
	assert_int_equal(rig_store(r, r->d, 1, 101, 600), 0);
	assert_int_equal(rig_load(r, r->d, 1, 101), 0);
}

static void flushed_delete_is_durable(void **state)
{
	struct rig *r = *state;

	assert_int_equal(rig_store(r, r->d, 1, 100, 500), 0);
	assert_int_equal(rig_store(r, r->d, 2, 200, 500), 0);
	rig_flush(r);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	rig_flush(r);
	rig_cut(r);
	rig_attach(r);
	assert_int_equal(rig_load(r, r->d, 1, 100), -ENOENT);
	assert_int_equal(rig_load(r, r->d, 2, 200), 0);
	assert_int_equal(rig_stats(r).recovered_pages, 1);
}

/* Not flushed, a delete need not have happened. */
static void unflushed_delete(void **state)
{
	struct rig *r = *state;

	assert_int_equal(rig_store(r, r->d, 1, 100, 500), 0);
	rig_flush(r);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	rig_cut(r);
	rig_attach(r);
	assert_int_equal(rig_load(r, r->d, 1, 100), 0);
}

/* A page that no summary names needs no tombstone: a flush has nothing to write. */
static void unlogged_needs_no_tombstone(void **state)
{
	struct rig *r = *state;
	u32 before;

	assert_int_equal(rig_store(r, r->d, 1, 100, 500), 0);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	before = r->written[KVC_WORK_WRITE];
	rig_flush(r);
	assert_int_equal(r->written[KVC_WORK_WRITE], before);
}

static void stored_again(void **state)
{
	struct rig *r = *state;
	u32 i;

	for (i = 0; i < 6; i++) {
		assert_int_equal(rig_store(r, r->d, 1, 100 + i, 500 + i), 0);
		rig_flush(r);
		if (i < 5)
			assert_int_equal(rig_delete(r, r->d, 1), 0);
		rig_flush(r);
	}
	rig_again(r);
	assert_int_equal(rig_load(r, r->d, 1, 105), 0);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
}

/* The tombstone outlives its segment as long as the page it killed lies on media. */
static void tombstone_is_carried(void **state)
{
	struct rig *r = *state;
	struct kvc_lease l;
	u32 next, round;

	assert_int_equal(rig_store(r, r->d, 1, 100, 500), 0);
	assert_int_equal(rig_store(r, r->d, 2, 200, 500), 0);
	/* This lease keeps the first segment, whatever comes after it. */
	assert_int_equal(rig_lease(r, r->d, 2, &l), 0);
	rig_flush(r);
	next = rig_fill(r, 1000, 60000, 5);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	rig_flush(r);
	for (round = 0; round < 4; round++) {
		next = rig_fill(r, next, 60000, 60);
		rig_flush(r);
	}
	assert_true(rig_stats(r).segments_reclaimed > 30);
	kvc_lease_put(r->pool, &l);
	rig_cut(r);
	rig_attach(r);
	assert_int_equal(rig_load(r, r->d, 2, 200), 0);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
}

/* A full pool takes deletes: there is always room for a tombstone, sooner or later. */
static void delete_from_a_full_pool(void **state)
{
	struct rig *r = *state;
	u32 i, next, deleted = 0;
	int ret;

	next = rig_fill(r, 0, 4000, 2000);
	rig_flush(r);
	for (i = 0; i < next; i++) {
		while ((ret = rig_delete(r, r->d, i)) == -EAGAIN)
			rig_work(r);
		assert_true(ret == 0 || ret == -ENOENT);
		deleted += ret == 0;
	}
	assert_true(deleted > 100);
	assert_int_equal(rig_stats(r).pages, 0);
	rig_work(r);
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_stats(r).pages, 0);
	rig_fill(r, 0, 4000, 100);
}

/* A page replaced a lost one, and goes before any summary named it: the lost one must not come back. */
static void delete_after_member_loss(void **state)
{
	struct rig *r = rig_small(2);
	struct kvc_load ld;
	u32 lost;

	(void)state;
	assert_int_equal(rig_store(r, r->d, 1, 100, 500), 0);
	rig_flush(r);
	assert_int_equal(rig_hold(r, r->d, 1, &ld), 0);
	lost = ld.member;
	kvc_load_end(r->pool, &ld, 0);
	kvc_member_fail(r->pool, lost);
	assert_int_equal(rig_store(r, r->d, 1, 101, 600), 0);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
	rig_free(r);
}

/* The same with a page that was damaged and dropped */
static void delete_after_damage(void **state)
{
	struct rig *r = *state;
	struct kvc_load ld;

	assert_int_equal(rig_store(r, r->d, 1, 100, 500), 0);
	rig_flush(r);
	assert_int_equal(rig_hold(r, r->d, 1, &ld), 0);
	kvc_load_end(r->pool, &ld, -EBADMSG);
	assert_int_equal(rig_store(r, r->d, 1, 101, 600), 0);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
}

static const struct CMUnitTest delete_tests[] = {
	cmocka_unit_test_setup_teardown(delete_is_a_miss, make, unmake),
	cmocka_unit_test_setup_teardown(flushed_delete_is_durable, make, unmake),
	cmocka_unit_test_setup_teardown(unflushed_delete, make, unmake),
	cmocka_unit_test_setup_teardown(unlogged_needs_no_tombstone, make, unmake),
	cmocka_unit_test_setup_teardown(stored_again, make, unmake),
	cmocka_unit_test_setup_teardown(tombstone_is_carried, make, unmake),
	cmocka_unit_test_setup_teardown(delete_from_a_full_pool, make, unmake),
	cmocka_unit_test(delete_after_member_loss),
	cmocka_unit_test_setup_teardown(delete_after_damage, make, unmake),
};

TEST_GROUP(delete);

/* Flush */

static void flushed_page_survives(void **state)
{
	struct rig *r = *state;
	u32 i;

	for (i = 0; i < 5; i++)
		assert_int_equal(rig_store(r, r->d, i, 100 + i, 5000), 0);
	rig_flush(r);
	assert_int_equal(rig_store(r, r->d, 9, 109, 5000), 0);
	rig_cut(r);
	rig_attach(r);
	for (i = 0; i < 5; i++)
		assert_int_equal(rig_load(r, r->d, i, 100 + i), 0);
	assert_int_equal(rig_load(r, r->d, 9, 109), -ENOENT);
}

/* Page bytes are made durable by the summary's PREFLUSH: nothing else did it. */
static void summary_flushes_pages(void **state)
{
	struct rig *r = *state;

	assert_int_equal(rig_store(r, r->d, 1, 100, 50000), 0);
	assert_true(dev_cached(r->devs[0]) > 0);
	rig_flush(r);
	assert_int_equal(dev_cached(r->devs[0]), 0);
}

static void flush_marks(void **state)
{
	struct rig *r = *state;
	struct kvc_work w;
	u64 before, after;

	before = kvc_flush_mark(r->pool, 0);
	assert_true(kvc_flushed(r->pool, 0, before));
	assert_int_equal(kvc_flush_next(r->pool, 0, &w), 0);
	assert_int_equal(rig_store(r, r->d, 1, 100, 5000), 0);
	after = kvc_flush_mark(r->pool, 0);
	assert_true(kvc_flushed(r->pool, 0, before));
	assert_false(kvc_flushed(r->pool, 0, after));
	assert_int_equal(kvc_flush_next(r->pool, 0, &w), 1);
	assert_int_equal(w.type, KVC_WORK_WRITE);
	assert_int_equal(w.len, KVC_BLOCK);
	/* On its way is not durable. */
	assert_false(kvc_flushed(r->pool, 0, after));
	kvc_work_done(r->pool, &w, rig_exec(r, &w));
	assert_true(kvc_flushed(r->pool, 0, after));
	assert_int_equal(kvc_flush_next(r->pool, 0, &w), 0);
}

/* Thousands of one-byte pages, flushed one by one: the log takes its blocks from the segment and all are found. */
static void flush_of_each(void **state)
{
	struct rig *r = *state;
	u32 i;

	for (i = 0; i < 300; i++) {
		while (rig_store(r, r->d, i, i, 1) == -EAGAIN)
			rig_work(r);
		rig_flush(r);
	}
	assert_true(rig_stats(r).segments_sealed > 5);
	rig_cut(r);
	rig_attach(r);
	for (i = 0; i < 300; i++)
		assert_int_equal(rig_load(r, r->d, i, i), 0);
	assert_int_equal(rig_stats(r).evicted_pages, 0);
}

/* One extent takes what there is: 50 pages are one write. */
static void one_write_for_many(void **state)
{
	struct rig *r = *state;
	u32 i, before;

	for (i = 0; i < 30; i++)
		assert_int_equal(rig_store(r, r->d, i, i, 100), 0);
	before = r->written[KVC_WORK_WRITE];
	rig_flush(r);
	assert_int_equal(r->written[KVC_WORK_WRITE], before + 1);
}

/* A full segment is summarized without being asked. */
static void sealed_by_itself(void **state)
{
	struct rig *r = *state;
	u32 i;

	for (i = 0; i < 10; i++) {
		while (rig_store(r, r->d, i, i, 50000) == -EAGAIN)
			rig_work(r);
		rig_work(r);
	}
	assert_true(rig_stats(r).segments_sealed >= 2);
	rig_cut(r);
	rig_attach(r);
	for (i = 0; i < 5; i++)
		assert_int_equal(rig_load(r, r->d, i, i), 0);
}

static const struct CMUnitTest flush_tests[] = {
	cmocka_unit_test_setup_teardown(flushed_page_survives, make, unmake),
	cmocka_unit_test_setup_teardown(summary_flushes_pages, make, unmake),
	cmocka_unit_test_setup_teardown(flush_marks, make, unmake),
	cmocka_unit_test_setup_teardown(flush_of_each, make, unmake),
	cmocka_unit_test_setup_teardown(one_write_for_many, make, unmake),
	cmocka_unit_test_setup_teardown(sealed_by_itself, make, unmake),
};

TEST_GROUP(flush);
