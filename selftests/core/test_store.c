// SPDX-License-Identifier: GPL-2.0
/*
 * Store, load, query: the life of a page in one attach.
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

static void store_then_load(void **state)
{
	struct rig *r = *state;
	struct kvc_stats st;

	assert_int_equal(rig_load(r, r->d, 1, 1), -ENOENT);
	assert_int_equal(rig_store(r, r->d, 1, 100, 5000), 0);
	assert_int_equal(rig_load(r, r->d, 1, 100), 0);
	assert_int_equal(rig_query(r, r->d, 1), 5000);
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
	st = rig_stats(r);
	assert_int_equal(st.pages, 1);
	assert_int_equal(st.bytes, 5000);
	assert_int_equal(st.stores, 1);
	assert_int_equal(st.store_bytes, 5000);
	assert_int_equal(st.loads, 1);
	assert_int_equal(st.load_bytes, 5000);
	assert_int_equal(st.misses, 1);
}

static void dedup(void **state)
{
	struct rig *r = *state;

	assert_int_equal(rig_store(r, r->d, 1, 100, 5000), 0);
	assert_int_equal(rig_store(r, r->d, 1, 101, 6000), -EEXIST);
	assert_int_equal(rig_load(r, r->d, 1, 100), 0);
	assert_int_equal(rig_stats(r).dedups, 1);
}

/* A pending page is a duplicate to stores, and not there for anybody else. */
static void pending(void **state)
{
	struct rig *r = *state;
	struct kvc_store st, other;
	struct kvc_lease l;
	u8 key[1][KVC_KEY_LEN];

	assert_int_equal(rig_begin(r, r->d, 1, 5000, &st), 0);
	assert_int_equal(st.length, 5000);
	assert_int_equal(st.nr_chunks, 2);
	assert_int_equal(st.offset % KVC_BLOCK, 0);
	assert_int_equal(rig_begin(r, r->d, 1, 5000, &other), -EINPROGRESS);
	assert_int_equal(rig_load(r, r->d, 1, 100), -ENOENT);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
	assert_int_equal(rig_delete(r, r->d, 1), -ENOENT);
	assert_int_equal(rig_lease(r, r->d, 1, &l), -ENOENT);
	key_make(key[0], 1);
	assert_int_equal(kvc_match(r->pool, r->d, (const u8 (*)[KVC_KEY_LEN])key, 1, NULL, NULL, NULL), 0);
	assert_int_equal(rig_stats(r).pages, 0);
	rig_write_page(r, &st, 100);
	kvc_store_commit(r->pool, &st);
	assert_int_equal(rig_load(r, r->d, 1, 100), 0);
	assert_int_equal(rig_stats(r).dedups, 1);
}

/* What was not committed is not there after a flush and another attach either. */
static void pending_is_not_flushed(void **state)
{
	struct rig *r = *state;
	struct kvc_store st;

	assert_int_equal(rig_begin(r, r->d, 1, 5000, &st), 0);
	rig_write_page(r, &st, 100);
	rig_flush(r);
	kvc_store_abort(r->pool, &st);
	rig_again(r);
	assert_int_equal(rig_load(r, r->d, 1, 100), -ENOENT);
}

static void abort_then_store(void **state)
{
	struct rig *r = *state;
	struct kvc_store st;

	assert_int_equal(rig_begin(r, r->d, 1, 5000, &st), 0);
	kvc_store_abort(r->pool, &st);
	assert_int_equal(rig_load(r, r->d, 1, 100), -ENOENT);
	assert_int_equal(rig_store(r, r->d, 1, 101, 300), 0);
	assert_int_equal(rig_load(r, r->d, 1, 101), 0);
	assert_int_equal(rig_stats(r).stores, 1);
}

/* Pages begun together neither overlap nor touch summaries; they take turns on the members. */
static void places_differ(void **state)
{
	struct rig *r = *state;
	struct kvc_store st[20];
	u32 i, j, on[2] = { 0 };

	for (i = 0; i < 20; i++) {
		assert_int_equal(rig_begin(r, r->d, i, 4097 + i * 100, &st[i]), 0);
		on[st[i].member]++;
		assert_true(st[i].offset >= KVC_DATA_OFFSET + KVC_BLOCK);
		for (j = 0; j < i; j++)
			if (st[i].member == st[j].member)
				assert_true(st[i].offset + 2 * KVC_BLOCK <= st[j].offset ||
					    st[j].offset + 2 * KVC_BLOCK <= st[i].offset);
	}
	assert_int_equal(on[0], 10);
	assert_int_equal(on[1], 10);
	for (i = 20; i-- > 0;) {
		rig_write_page(r, &st[i], 1000 + i);
		kvc_store_commit(r->pool, &st[i]);
	}
	rig_flush(r);
	for (i = 0; i < 20; i++)
		assert_int_equal(rig_load(r, r->d, i, 1000 + i), 0);
}

static int begin_on(struct rig *r, u32 id, u64 members, struct kvc_store *st)
{
	u8 key[KVC_KEY_LEN];

	key_make(key, id);
	return kvc_store_begin(r->pool, r->d, key, 5000, 0, members, st);
}

/* A store goes to a member that the caller can reach, or is told why not, whatever the others have. */
static void members_wanted(void **state)
{
	struct rig *r = *state;
	struct kvc_store st;
	u32 i;

	for (i = 0; i < 10; i++) {
		assert_int_equal(begin_on(r, i, BIT_ULL(i % 2), &st), 0);
		assert_int_equal(st.member, i % 2);
		rig_write_page(r, &st, i);
		kvc_store_commit(r->pool, &st);
		assert_int_equal(rig_load(r, r->d, i, i), 0);
	}
	for (i = 100; begin_on(r, i, BIT_ULL(1), &st) == 0; i++)
		kvc_store_abort(r->pool, &st);
	assert_int_equal(begin_on(r, i, BIT_ULL(1), &st), -EAGAIN);
	assert_int_equal(begin_on(r, i, KVC_ANY_MEMBER, &st), 0);
	assert_int_equal(st.member, 0);
	kvc_store_abort(r->pool, &st);
	kvc_member_fail(r->pool, 1);
	assert_int_equal(begin_on(r, i, BIT_ULL(1), &st), -ENODEV);
	assert_int_equal(begin_on(r, i, 0, &st), -ENODEV);
	assert_int_equal(begin_on(r, i, BIT_ULL(0) | BIT_ULL(1), &st), 0);
	kvc_store_abort(r->pool, &st);
}

static bool has_crcs(struct rig *r, u32 id)
{
	struct kvc_load ld;

	place_of(r, id, &ld);
	return !ld.no_crcs;
}

/* That a page cannot be checked is remembered, also on media, and of that page only. */
static void stored_without_crcs(void **state)
{
	struct rig *r = *state;
	struct kvc_store st;

	assert_int_equal(rig_begin(r, r->d, 1, 5000, &st), 0);
	assert_false(st.no_crcs);
	rig_write_page(r, &st, 100);
	st.no_crcs = true;
	kvc_store_commit(r->pool, &st);
	assert_int_equal(rig_store(r, r->d, 2, 101, 5000), 0);
	assert_false(has_crcs(r, 1));
	assert_true(has_crcs(r, 2));
	rig_flush(r);
	rig_again(r);
	assert_false(has_crcs(r, 1));
	assert_true(has_crcs(r, 2));
	assert_int_equal(rig_load(r, r->d, 1, 100), 0);
	assert_int_equal(rig_load(r, r->d, 2, 101), 0);
}

static void lengths_refused(void **state)
{
	struct rig *r = *state;
	u32 max = kvc_page_max(r->pool);

	assert_int_equal(rig_store(r, r->d, 1, 1, 0), -EINVAL);
	assert_int_equal(rig_store(r, r->d, 1, 1, max + 1), -EINVAL);
	assert_int_equal(rig_store(r, r->d, 1, 1, ~0U), -EINVAL);
	assert_int_equal(rig_store(r, r->d, 1, 1, max), 0);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	/* A segment of 256 KiB takes most of itself. */
	assert_true(max >= KVC_SEGMENT_MIN - 4 * KVC_BLOCK && max < KVC_SEGMENT_MIN);
}

/* Without any work done there is no free segment yet; the stores come through when the headers are written. */
static void first_segments(void **state)
{
	struct rig *r = *state;
	struct kvc_store st;
	u32 i;

	rig_detach(r);
	memset(r->written, 0, sizeof(r->written));
	rig_attach(r);
	/* Headers are written ahead, and only as many as are kept in stock. */
	assert_true(r->written[KVC_WORK_WRITE] >= 4 && r->written[KVC_WORK_WRITE] <= 8);
	for (i = 0; rig_begin(r, r->d, i, kvc_page_max(r->pool), &st) == 0; i++)
		kvc_store_abort(r->pool, &st);
	assert_int_equal(rig_begin(r, r->d, i, 1, &st), -EAGAIN);
	assert_true(i >= 2);
	i = r->spaces;
	rig_work(r);
	assert_true(r->spaces > i);
	assert_int_equal(rig_store(r, r->d, 99, 99, 1), 0);
}

static u64 allocated;

static bool count_bytes(size_t size)
{
	allocated += size;
	return false;
}

/* 96 bytes a page of 256 KiB are promised, everything included; the hash table takes less than 3 of them. */
static void memory_of_a_page(void **state)
{
	struct rig *r = rig_new(2, 6, KVC_SEGMENT_DEFAULT, KVC_CHUNK_DEFAULT);
	u32 n = 8000, i;

	(void)state;
	for (i = 0; i < n; i++) {
		struct kvc_store st;
		int ret;

		if (i == n / 2)
			os_alloc_fault = count_bytes;
		while ((ret = rig_begin(r, r->d, i, 256U << 10, &st)) == -EAGAIN)
			rig_work(r);
		assert_int_equal(ret, 0);
		kvc_store_commit(r->pool, &st);
	}
	os_alloc_fault = NULL;
	assert_true(allocated > n / 2 * 72);
	assert_true(allocated < n / 2 * (96 - 3));
	rig_free(r);
}

static const struct CMUnitTest store_tests[] = {
	cmocka_unit_test_setup_teardown(store_then_load, make, unmake),
	cmocka_unit_test_setup_teardown(dedup, make, unmake),
	cmocka_unit_test_setup_teardown(pending, make, unmake),
	cmocka_unit_test_setup_teardown(pending_is_not_flushed, make, unmake),
	cmocka_unit_test_setup_teardown(abort_then_store, make, unmake),
	cmocka_unit_test_setup_teardown(places_differ, make, unmake),
	cmocka_unit_test_setup_teardown(members_wanted, make, unmake),
	cmocka_unit_test_setup_teardown(stored_without_crcs, make, unmake),
	cmocka_unit_test_setup_teardown(lengths_refused, make, unmake),
	cmocka_unit_test_setup_teardown(first_segments, make, unmake),
	cmocka_unit_test(memory_of_a_page),
};

TEST_GROUP(store);

/* Load */

static void damaged_page(void **state)
{
	struct rig *r = *state;
	struct kvc_load ld;

	assert_int_equal(rig_store(r, r->d, 1, 100, 9000), 0);
	assert_int_equal(rig_hold(r, r->d, 1, &ld), 0);
	assert_int_equal(ld.length, 9000);
	assert_int_equal(ld.nr_chunks, 3);
	kvc_load_end(r->pool, &ld, 0);
	dev_flip(r->devs[ld.member], ld.offset + 8999, 3);
	assert_int_equal(rig_load(r, r->d, 1, 100), -EBADMSG);
	assert_int_equal(rig_load(r, r->d, 1, 100), -ENOENT);
	assert_int_equal(rig_stats(r).bad_pages, 1);
	assert_int_equal(rig_stats(r).pages, 0);
	assert_int_equal(rig_store(r, r->d, 1, 101, 9000), 0);
	assert_int_equal(rig_load(r, r->d, 1, 101), 0);
}

/* Only -EBADMSG drops a page. */
static void failed_load(void **state)
{
	struct rig *r = *state;
	struct kvc_load ld;

	assert_int_equal(rig_store(r, r->d, 1, 100, 9000), 0);
	assert_int_equal(rig_hold(r, r->d, 1, &ld), 0);
	kvc_load_end(r->pool, &ld, -EIO);
	assert_int_equal(rig_load(r, r->d, 1, 100), 0);
}

/* Two loads find the same damage; between them the key was stored anew: the new page stays. */
static void damaged_twice(void **state)
{
	struct rig *r = *state;
	struct kvc_load a, b;

	assert_int_equal(rig_store(r, r->d, 1, 100, 9000), 0);
	assert_int_equal(rig_hold(r, r->d, 1, &a), 0);
	assert_int_equal(rig_hold(r, r->d, 1, &b), 0);
	kvc_load_end(r->pool, &a, -EBADMSG);
	assert_int_equal(rig_store(r, r->d, 1, 101, 800), 0);
	kvc_load_end(r->pool, &b, -EBADMSG);
	assert_int_equal(rig_load(r, r->d, 1, 101), 0);
	assert_int_equal(rig_stats(r).pages, 1);
}

/* Every chunk has a CRC of its own, the last one of the bytes that there are. */
static void chunk_edges(void **state)
{
	static const u32 lens[] = { 1, 4095, 4096, 4097, 8191, 8192, 8193, 12288, 65535, 65537 };
	struct rig *r = *state;
	struct kvc_load ld;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		assert_int_equal(rig_store(r, r->d, i, 500 + i, lens[i]), 0);
		assert_int_equal(rig_hold(r, r->d, i, &ld), 0);
		assert_int_equal(ld.nr_chunks, (lens[i] + 4095) / 4096);
		assert_int_equal(ld.length, lens[i]);
		kvc_load_end(r->pool, &ld, 0);
		assert_int_equal(rig_load(r, r->d, i, 500 + i), 0);
	}
	rig_flush(r);
	rig_again(r);
	for (i = 0; i < ARRAY_SIZE(lens); i++)
		assert_int_equal(rig_load(r, r->d, i, 500 + i), 0);
}

static const struct CMUnitTest load_tests[] = {
	cmocka_unit_test_setup_teardown(damaged_page, make, unmake),
	cmocka_unit_test_setup_teardown(failed_load, make, unmake),
	cmocka_unit_test_setup_teardown(damaged_twice, make, unmake),
	cmocka_unit_test_setup_teardown(chunk_edges, make, unmake),
};

TEST_GROUP(load);
