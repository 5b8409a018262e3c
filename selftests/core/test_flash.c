// SPDX-License-Identifier: GPL-2.0
/*
 * What the device is spared: discards at the caller's pace, and streams.
 */
#include "test.h"

#define PAGE	30000U		/* eight blocks; seven such pages fill a segment of 256 KiB */

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

static u64 segment_start(u64 offset)
{
	return KVC_DATA_OFFSET + (offset - KVC_DATA_OFFSET) / KVC_SEGMENT_MIN * KVC_SEGMENT_MIN;
}

/* Nobody discards: segments are reused all the same, and nothing is lost that would not be lost with discards. */
static void without_discards(void **state)
{
	struct rig *r = *state;
	struct kvc_lease l[200];
	u32 n, i;
	int ret;

	r->discard_max = 0;
	n = rig_fill(r, 0, PAGE, 500);
	for (i = n - 70; i < n; i++)
		assert_int_equal(rig_load(r, r->d, i, i), 0);
	assert_int_equal(r->written[KVC_WORK_DISCARD], 0);
	/* All leased: segments that wait for a discard do not count as hope. */
	for (i = 0; i < 200; i++) {
		while ((ret = rig_store(r, r->d, 10000 + i, i, PAGE)) == -EAGAIN)
			rig_work(r);
		if (ret)
			break;
		assert_int_equal(rig_lease(r, r->d, 10000 + i, &l[i]), 0);
	}
	assert_int_equal(ret, -ENOSPC);
	while (i)
		kvc_lease_put(r->pool, &l[--i]);
}

/* Everything but headers of a segment, in parts that end at multiples of what was asked for. */
static void in_parts(void **state)
{
	const u64 max = 48 << 10;
	struct rig *r = *state;
	u64 start = 0, at = 0;
	struct kvc_work w;
	u32 segments = 0;

	r->discard_max = 0;
	rig_fill(r, 0, PAGE, 16 * 7);
	while (kvc_discard_next(r->pool, 0, max, &w)) {
		assert_int_equal(w.type, KVC_WORK_DISCARD);
		assert_true(w.discard_len > 0 && w.discard_len <= max);
		if (at == start) {
			start = segment_start(w.offset);
			at = start + KVC_BLOCK;
		}
		assert_int_equal(w.offset, at);
		at += w.discard_len;
		assert_true(at == start + KVC_SEGMENT_MIN || (at - start) % max == 0);
		if (at == start + KVC_SEGMENT_MIN) {
			start = at = 0;
			segments++;
		}
		kvc_work_done(r->pool, &w, rig_exec(r, &w));
	}
	assert_int_equal(at, 0);
	assert_true(segments > 0);
	/* They are what reclaim had made ready, and nothing is discarded twice. */
	assert_int_equal(segments, rig_stats(r).segments_reclaimed);
	assert_int_equal(kvc_discard_next(r->pool, 0, max, &w), 0);
}

/* While a part is out, its segment takes no page, even when there is no other. When it is back, it does. */
static void discarding_is_left_alone(void **state)
{
	struct rig *r = *state;
	u32 n, spaces, total, ready;
	struct kvc_work w;
	int ret;

	r->discard_max = 0;
	n = rig_fill(r, 0, PAGE, 500);
	assert_int_equal(kvc_discard_next(r->pool, 0, KVC_BLOCK, &w), 1);
	assert_int_equal(w.discard_len, KVC_BLOCK);
	/* No worker runs now. */
	for (;;) {
		struct kvc_store st;

		ret = rig_begin(r, r->d, n++, PAGE, &st);
		if (ret)
			break;
		assert_int_not_equal(segment_start(st.offset), segment_start(w.offset));
		rig_write_page(r, &st, n - 1);
		kvc_store_commit(r->pool, &st);
	}
	assert_int_equal(ret, -EAGAIN);
	kvc_member_segments(r->pool, 0, &total, &ready);
	assert_true(ready >= 1);
	spaces = r->spaces;
	kvc_work_done(r->pool, &w, rig_exec(r, &w));
	assert_true(r->spaces > spaces);
	rig_fill(r, 5000, PAGE, 100);
}

/* A device that fails all discards costs nothing. */
static void failed_discards(void **state)
{
	struct rig *r = *state;
	struct kvc_work w;
	u32 n = 0, failed = 0;

	r->discard_max = 0;
	while (failed < 20) {
		n = rig_fill(r, n, PAGE, 1);
		if (!kvc_discard_next(r->pool, 0, 1 << 20, &w))
			continue;
		kvc_work_done(r->pool, &w, -EIO);
		failed++;
	}
	assert_true(kvc_member_online(r->pool, 0));
	assert_int_equal(rig_load(r, r->d, n - 1, n - 1), 0);
}

/* New pages, moved pages and the engine's own writes are told apart. */
static void streams(void **state)
{
	bool moved = false, meta = false;
	struct rig *r = *state;
	struct kvc_work w;
	u32 n = 0;

	assert_int_equal(rig_store(r, r->d, 90000, 1, PAGE), 0);
	while (!moved) {
		struct kvc_store st;
		int ret = rig_begin(r, r->d, n, PAGE, &st);

		if (!ret) {
			assert_int_equal(st.stream, KVC_STREAM_NEW);
			rig_write_page(r, &st, n++);
			kvc_store_commit(r->pool, &st);
		}
		assert_int_equal(rig_load(r, r->d, 90000, 1), 0);
		while (kvc_work_next(r->pool, 0, &w)) {
			if (w.type == KVC_WORK_WRITE)
				assert_int_equal(w.stream, KVC_STREAM_META);
			if (w.type == KVC_WORK_MOVE)
				assert_true(w.stream > KVC_STREAM_NEW);
			meta |= w.type == KVC_WORK_WRITE;
			moved |= w.type == KVC_WORK_MOVE;
			kvc_work_done(r->pool, &w, rig_exec(r, &w));
		}
	}
	assert_true(meta);
}

static const struct CMUnitTest flash_tests[] = {
	cmocka_unit_test_setup_teardown(without_discards, make, unmake),
	cmocka_unit_test_setup_teardown(in_parts, make, unmake),
	cmocka_unit_test_setup_teardown(discarding_is_left_alone, make, unmake),
	cmocka_unit_test_setup_teardown(failed_discards, make, unmake),
	cmocka_unit_test_setup_teardown(streams, make, unmake),
};

TEST_GROUP(flash);
