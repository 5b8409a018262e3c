// SPDX-License-Identifier: GPL-2.0
/*
 * Stores that replace: what is found until the commit, after it, and after a power cut.
 */
#include "log/log.h"
#include "test.h"

#define MANY	1500U

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

static int begin(struct rig *r, u32 id, u32 length, struct kvc_store *st)
{
	u8 key[KVC_KEY_LEN];

	key_make(key, id);
	return kvc_replace_begin(r->pool, r->d, key, length, id, KVC_ANY_MEMBER, st);
}

static void replace(struct rig *r, u32 id, u32 version, u32 length)
{
	struct kvc_store st;

	assert_int_equal(begin(r, id, length, &st), 0);
	rig_write_page(r, &st, version);
	kvc_store_commit(r->pool, &st);
}

static void old_bytes_until_the_commit(void **state)
{
	struct rig *r = *state;
	struct kvc_load before;
	struct kvc_store st;

	assert_int_equal(rig_store(r, r->d, 1, 100, 5000), 0);
	assert_int_equal(begin(r, 1, 600, &st), 0);
	rig_write_page(r, &st, 101);
	assert_int_equal(rig_load(r, r->d, 1, 100), 0);
	assert_int_equal(rig_store(r, r->d, 1, 102, 700), -EEXIST);
	assert_int_equal(rig_hold(r, r->d, 1, &before), 0);
	kvc_store_commit(r->pool, &st);
	assert_int_equal(rig_load(r, r->d, 1, 101), 0);
	assert_int_equal(rig_query(r, r->d, 1), 600);
	assert_int_equal(before.length, 5000);
	assert_int_not_equal(before.seq, kvc_entry(r->pool, st.entry)->seq);
	kvc_load_end(r->pool, &before, 0);
	assert_int_equal(rig_stats(r).pages, 1);
	assert_int_equal(rig_stats(r).bytes, 600);
}

static void abort_leaves_the_old_page(void **state)
{
	struct rig *r = *state;
	struct kvc_store st;

	assert_int_equal(rig_store(r, r->d, 1, 100, 5000), 0);
	assert_int_equal(begin(r, 1, 600, &st), 0);
	kvc_store_abort(r->pool, &st);
	assert_int_equal(rig_load(r, r->d, 1, 100), 0);
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_load(r, r->d, 1, 100), 0);
}

/* There is nothing to replace: a store like any other */
static void of_an_absent_page(void **state)
{
	struct rig *r = *state;

	replace(r, 1, 100, 5000);
	assert_int_equal(rig_load(r, r->d, 1, 100), 0);
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_load(r, r->d, 1, 100), 0);
}

/* Two at once: the last to be committed has the key. */
static void two_at_once(void **state)
{
	struct rig *r = *state;
	struct kvc_store a, b;

	assert_int_equal(begin(r, 1, 500, &a), 0);
	assert_int_equal(begin(r, 1, 600, &b), 0);
	rig_write_page(r, &a, 100);
	rig_write_page(r, &b, 101);
	kvc_store_commit(r->pool, &b);
	assert_int_equal(rig_load(r, r->d, 1, 101), 0);
	kvc_store_commit(r->pool, &a);
	assert_int_equal(rig_load(r, r->d, 1, 100), 0);
	rig_flush(r);
	rig_cut(r);
	rig_attach(r);
	assert_int_equal(rig_load(r, r->d, 1, 100), 0);
}

/* A store that is pending loses the key, and publishes nothing, whether it ends well or not. */
static void pending_store_loses(void **state)
{
	struct rig *r = *state;
	struct kvc_store plain, st;
	u32 i;

	for (i = 0; i < 2; i++) {
		assert_int_equal(rig_begin(r, r->d, 1 + i, 500, &plain), 0);
		rig_write_page(r, &plain, 100);
		assert_int_equal(begin(r, 1 + i, 600, &st), 0);
		rig_write_page(r, &st, 101);
		assert_int_equal(rig_query(r, r->d, 1 + i), -ENOENT);
		kvc_store_commit(r->pool, &st);
		assert_int_equal(rig_load(r, r->d, 1 + i, 101), 0);
		if (i)
			kvc_store_abort(r->pool, &plain);
		else
			kvc_store_commit(r->pool, &plain);
		assert_int_equal(rig_load(r, r->d, 1 + i, 101), 0);
		assert_int_equal(rig_stats(r).pages, 1 + i);
	}
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_load(r, r->d, 1, 101), 0);
	assert_int_equal(rig_load(r, r->d, 2, 101), 0);
}

/* Deleted while it is being replaced: the new page comes all the same, and can be deleted. */
static void deleted_meanwhile(void **state)
{
	struct rig *r = *state;
	struct kvc_store st;

	assert_int_equal(rig_store(r, r->d, 1, 100, 500), 0);
	rig_flush(r);
	assert_int_equal(begin(r, 1, 600, &st), 0);
	rig_write_page(r, &st, 101);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
	kvc_store_commit(r->pool, &st);
	assert_int_equal(rig_load(r, r->d, 1, 101), 0);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	rig_flush(r);
	rig_cut(r);
	rig_attach(r);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
}

/* Not flushed, it need not have happened; the key is not lost either. */
static void unflushed(void **state)
{
	struct rig *r = *state;

	assert_int_equal(rig_store(r, r->d, 1, 100, 500), 0);
	rig_flush(r);
	replace(r, 1, 101, 600);
	rig_cut(r);
	rig_attach(r);
	assert_int_equal(rig_load(r, r->d, 1, 100), 0);
	replace(r, 1, 102, 700);
	rig_flush(r);
	rig_cut(r);
	rig_attach(r);
	assert_int_equal(rig_load(r, r->d, 1, 102), 0);
}

/* What no summary names needs no tombstone: one record is written. */
static void unlogged_needs_no_tombstone(void **state)
{
	struct rig *r = *state;
	u64 mark;

	assert_int_equal(rig_store(r, r->d, 1, 100, 500), 0);
	mark = kvc_flush_mark(r->pool, 0);
	replace(r, 1, 101, 600);
	assert_int_equal(kvc_flush_mark(r->pool, 0) - mark, 1);
	rig_flush(r);
	mark = kvc_flush_mark(r->pool, 0);
	replace(r, 1, 102, 600);
	assert_int_equal(kvc_flush_mark(r->pool, 0) - mark, 2);
}

/* The new page is evicted, the old one is still on media, in a segment that a lease keeps. */
static void evicted_and_not_back(void **state)
{
	struct rig *r = *state;
	struct kvc_lease l;
	u32 next, round;

	assert_int_equal(rig_store(r, r->d, 1, 100, 500), 0);
	assert_int_equal(rig_store(r, r->d, 2, 200, 500), 0);
	assert_int_equal(rig_lease(r, r->d, 2, &l), 0);
	rig_flush(r);
	next = rig_fill(r, 1000, 60000, 5);
	replace(r, 1, 101, 60000);
	rig_flush(r);
	for (round = 0; round < 4; round++) {
		next = rig_fill(r, next, 60000, 60);
		rig_flush(r);
	}
	assert_true(rig_stats(r).segments_reclaimed > 30);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
	kvc_lease_put(r->pool, &l);
	rig_cut(r);
	rig_attach(r);
	assert_int_equal(rig_load(r, r->d, 2, 200), 0);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
}

/* Find @nr keys of the first shard. */
static void keys_of_a_shard(struct rig *r, u32 *ids, u32 nr)
{
	u8 key[KVC_KEY_LEN];
	u32 id, i = 0;

	for (id = 0; i < nr; id++) {
		key_make(key, id);
		if (kvc_bucket(r->pool, r->d, key) % KVC_SHARDS == 0)
			ids[i++] = id;
	}
}

/* Nothing is there that they replace, and others fill the index meanwhile: each has its room all the same. */
static void many_of_a_shard(void **state)
{
	struct kvc_store *sts = calloc(MANY, sizeof(*sts));
	struct rig *r = rig_segments(96);
	u32 ids[MANY], i;

	(void)state;
	assert_non_null(sts);
	keys_of_a_shard(r, ids, MANY);
	for (i = 0; i < MANY; i++) {
		if (i % 4)
			assert_int_equal(begin(r, ids[i], 500, &sts[i]), 0);
		else
			assert_int_equal(rig_store(r, r->d, ids[i], 100, 500), 0);
		rig_work(r);
	}
	for (i = 0; i < MANY; i++)
		if (i % 8 == 1)
			kvc_store_abort(r->pool, &sts[i]);
		else if (i % 4)
			kvc_store_commit(r->pool, &sts[i]);
	for (i = 0; i < MANY; i++)
		assert_int_equal(rig_query(r, r->d, ids[i]), i % 8 == 1 ? -ENOENT : 500);
	assert_int_equal(kvc_shard(r->pool, 0)->table.promised, 0);
	free(sts);
	rig_free(r);
}

static const struct CMUnitTest replace_tests[] = {
	cmocka_unit_test_setup_teardown(old_bytes_until_the_commit, make, unmake),
	cmocka_unit_test_setup_teardown(abort_leaves_the_old_page, make, unmake),
	cmocka_unit_test_setup_teardown(of_an_absent_page, make, unmake),
	cmocka_unit_test_setup_teardown(two_at_once, make, unmake),
	cmocka_unit_test_setup_teardown(pending_store_loses, make, unmake),
	cmocka_unit_test_setup_teardown(deleted_meanwhile, make, unmake),
	cmocka_unit_test_setup_teardown(unflushed, make, unmake),
	cmocka_unit_test_setup_teardown(unlogged_needs_no_tombstone, make, unmake),
	cmocka_unit_test_setup_teardown(evicted_and_not_back, make, unmake),
	cmocka_unit_test(many_of_a_shard),
};

TEST_GROUP(replace);
