// SPDX-License-Identifier: GPL-2.0
/*
 * What the device is spared: discards at the caller's pace, streams, the write budget.
 */
#include "log/log.h"
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
	rig_keep_leases(r);
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

/* Nor is it taken for what is moved, which may have the last. */
static void discarding_is_not_the_last(void **state)
{
	struct rig *r = *state;
	struct kvc_member *m = &r->pool->members[0];
	struct kvc_seg *seg;
	struct kvc_work w;

	r->discard_max = 0;
	rig_fill(r, 0, PAGE, 500);
	assert_int_equal(kvc_discard_next(r->pool, 0, KVC_BLOCK, &w), 1);
	os_lock(&m->lock);
	while ((seg = kvc_ready_take(m))) {
		assert_ptr_not_equal(seg, m->discarding);
		kvc_seg_set_state(m, seg, KVC_S_OPEN);
	}
	assert_int_equal(kvc_ready(m), 0);
	os_unlock(&m->lock);
	kvc_work_done(r->pool, &w, rig_exec(r, &w));
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

#define DAY	86400U
#define BUDGET	(8ULL << 20)

static void set_budget(struct rig *r, u64 bytes)
{
	assert_int_equal(kvc_pool_set(r->pool, &(struct kvc_settings){ .write_budget = bytes }), 0);
}

/* A store as a caller with a clock does it: everything written is spent. */
static int paid_store(struct rig *r, u32 id, u64 now)
{
	struct kvc_store st;
	int ret;

	kvc_budget_tick(r->pool, now);
	while ((ret = rig_begin(r, r->d, id, PAGE, &st)) == -EAGAIN)
		rig_work(r);
	if (ret)
		return ret;
	rig_write_page(r, &st, id);
	kvc_store_commit(r->pool, &st);
	kvc_budget_spend(r->pool, kvc_blocks(PAGE) * (u64)KVC_BLOCK);
	return 0;
}

/* Stores new pages until one is refused; how many were not */
static u32 spend_all(struct rig *r, u32 *id, u64 now)
{
	u32 n = 0;
	int ret;

	while (!(ret = paid_store(r, (*id)++, now)))
		n++;
	assert_int_equal(ret, -EDQUOT);
	return n;
}

#define COST	(8U * KVC_BLOCK)	/* of a page */

/* A day's bytes at once, a tenth more after a tenth of a day, another day's after any time. */
static void budget_of_a_day(void **state)
{
	u64 now = 1000000, before;
	struct rig *r = *state;
	u32 id = 0;

	set_budget(r, BUDGET);
	assert_int_equal(kvc_budget_left(r->pool), BUDGET);
	assert_int_equal(spend_all(r, &id, now), BUDGET / COST);
	assert_int_equal(kvc_budget_left(r->pool), 0);
	assert_int_equal(rig_stats(r).unadmitted, 1);
	/* Nothing comes of asking often. */
	for (before = id; id < before + 100; )
		assert_int_equal(paid_store(r, id++, now), -EDQUOT);
	now += DAY / 10;
	assert_in_range(spend_all(r, &id, now), BUDGET / COST / 10, BUDGET / COST / 10 + 1);
	now += 100 * DAY;
	assert_int_equal(spend_all(r, &id, now), BUDGET / COST);
	/* The clock does not go back. */
	assert_int_equal(spend_all(r, &id, now - DAY), 0);
	assert_int_equal(rig_stats(r).pages + rig_stats(r).evicted_pages, rig_stats(r).stores);
}

/* A tenant's own, of what it stores; nobody else's is spent by it, and the pool's not twice. */
static void budget_of_a_tenant(void **state)
{
	const struct kvc_limits l = { .write_budget = BUDGET / 2 };
	struct rig *r = *state;
	struct kvc_domain *d;
	u64 now = 1000000;
	u32 id = 0;

	set_budget(r, BUDGET);
	assert_int_equal(kvc_tenant_limit(r->pool, "default", &l), 0);
	assert_int_equal(spend_all(r, &id, now), BUDGET / COST / 2);
	assert_int_equal(kvc_budget_left(r->pool), BUDGET / 2);
	/* seen before: admitted all the same, and paid for */
	assert_int_equal(paid_store(r, id - 1, now), 0);
	assert_int_equal(paid_store(r, id++, now), -EDQUOT);
	/* moves, and what others write, are the pool's alone */
	kvc_budget_spend(r->pool, COST);
	now += DAY / 10;
	assert_in_range(spend_all(r, &id, now), BUDGET / COST / 20 - 1, BUDGET / COST / 20);
	/* another one has what the pool has */
	d = r->d;
	r->d = rig_domain(r, (u32)kvc_tenant_add(r->pool, "one", 0, 0, 0600, 0), 0);
	assert_true(spend_all(r, &id, now) > BUDGET / COST / 3);
	kvc_domain_put(r->pool, r->d);
	r->d = d;
	/* without the pool's, and without both */
	set_budget(r, 0);
	assert_int_equal(paid_store(r, id++, now), -EDQUOT);
	now += 2 * DAY;
	assert_int_equal(spend_all(r, &id, now), BUDGET / COST / 2);
	assert_int_equal(kvc_tenant_limit(r->pool, "default", &(struct kvc_limits){}), 0);
	assert_int_equal(paid_store(r, id++, now), 0);
}

/* Fractions of a byte a second add up: a small budget, filled each second, over ten days. */
static void budget_loses_nothing(void **state)
{
	u64 now = 5, given = 0, left;
	struct rig *r = *state;
	u32 i;

	set_budget(r, KVC_BUDGET_MIN);
	kvc_budget_tick(r->pool, now);
	kvc_budget_spend(r->pool, KVC_BUDGET_MIN);
	for (i = 0; i < 10 * DAY; i++) {
		kvc_budget_tick(r->pool, ++now);
		left = kvc_budget_left(r->pool);
		assert_in_range(left, KVC_BUDGET_MIN / DAY, KVC_BUDGET_MIN / DAY + 1);
		kvc_budget_spend(r->pool, left);
		given += left;
	}
	assert_int_equal(given, 10 * KVC_BUDGET_MIN);
}

/* The largest budget does not overflow, and debts are forgiven beyond a day. */
static void budget_extremes(void **state)
{
	struct rig *r = *state;
	u32 i;

	set_budget(r, KVC_BUDGET_MAX);
	kvc_budget_tick(r->pool, 1);
	for (i = 0; i < 5; i++)
		kvc_budget_spend(r->pool, KVC_BUDGET_MAX);
	assert_int_equal(kvc_budget_left(r->pool), 0);
	kvc_budget_tick(r->pool, 2);
	kvc_budget_tick(r->pool, 2 + DAY);
	assert_in_range(kvc_budget_left(r->pool), 0, KVC_BUDGET_MAX / DAY);
	kvc_budget_tick(r->pool, 2 + DAY + DAY / 2);
	assert_in_range(kvc_budget_left(r->pool), KVC_BUDGET_MAX / 2, KVC_BUDGET_MAX / 2 + KVC_BUDGET_MAX / DAY);
	kvc_budget_tick(r->pool, ~0ULL);
	assert_int_equal(kvc_budget_left(r->pool), KVC_BUDGET_MAX);
}

/* What was refused once, or evicted, is stored; what is there is a duplicate as ever. */
static void seen_pages_pass(void **state)
{
	struct kvc_domain *other;
	struct rig *r = *state;
	u32 id = 0, gone, n;

	set_budget(r, BUDGET);
	n = spend_all(r, &id, 1);
	assert_int_equal(paid_store(r, id - 1, 1), 0);
	assert_int_equal(paid_store(r, id - 1, 1), -EEXIST);
	assert_int_equal(paid_store(r, n - 1, 1), -EEXIST);
	assert_int_equal(rig_load(r, r->d, id - 1, id - 1), 0);
	/* The same key elsewhere was not. */
	other = rig_domain(r, 0, 1);
	assert_int_equal(rig_store(r, other, id - 1, 0, PAGE), -EDQUOT);
	assert_int_equal(rig_store(r, other, id - 1, 0, PAGE), 0);
	kvc_domain_put(r->pool, other);
	/* The newest that reclaim has dropped is remembered. */
	for (gone = 0; rig_query(r, r->d, gone + 1) == -ENOENT; gone++)
		;
	assert_true(gone > 50);
	assert_int_equal(paid_store(r, gone, 1), 0);
	assert_int_equal(paid_store(r, 70000, 1), -EDQUOT);
}

/* Off is off; a change counts what was spent already; all of it is on media. */
static void budget_is_changed(void **state)
{
	struct rig *r = *state;
	u64 seq = kvc_super_of(r->pool)->seq;
	u32 id = 0;

	set_budget(r, BUDGET);
	assert_int_equal(kvc_super_of(r->pool)->seq, seq + 1);
	spend_all(r, &id, 1);
	set_budget(r, 2 * BUDGET);
	assert_int_equal(spend_all(r, &id, 1), BUDGET / COST);
	set_budget(r, BUDGET);
	assert_int_equal(spend_all(r, &id, 1 + DAY / 2), 0);
	set_budget(r, 0);
	assert_int_equal(kvc_budget_left(r->pool), 0);
	rig_fill(r, 100000, PAGE, 300);
	assert_int_equal(kvc_pool_set(r->pool, &(struct kvc_settings){ .write_budget = 1 }), -EINVAL);
	assert_int_equal(kvc_pool_set(r->pool, &(struct kvc_settings){ .discard_rate = 1 }), -EINVAL);
	set_budget(r, BUDGET);
	rig_write_super(r);
	rig_again(r);
	assert_int_equal(kvc_super_of(r->pool)->settings.write_budget, BUDGET);
	id = 200000;
	assert_int_equal(spend_all(r, &id, 1), BUDGET / COST);
}

static const struct CMUnitTest flash_tests[] = {
	cmocka_unit_test_setup_teardown(without_discards, make, unmake),
	cmocka_unit_test_setup_teardown(in_parts, make, unmake),
	cmocka_unit_test_setup_teardown(discarding_is_left_alone, make, unmake),
	cmocka_unit_test_setup_teardown(discarding_is_not_the_last, make, unmake),
	cmocka_unit_test_setup_teardown(failed_discards, make, unmake),
	cmocka_unit_test_setup_teardown(streams, make, unmake),
	cmocka_unit_test_setup_teardown(budget_of_a_day, make, unmake),
	cmocka_unit_test_setup_teardown(budget_of_a_tenant, make, unmake),
	cmocka_unit_test_setup_teardown(budget_loses_nothing, make, unmake),
	cmocka_unit_test_setup_teardown(budget_extremes, make, unmake),
	cmocka_unit_test_setup_teardown(seen_pages_pass, make, unmake),
	cmocka_unit_test_setup_teardown(budget_is_changed, make, unmake),
};

TEST_GROUP(flash);
