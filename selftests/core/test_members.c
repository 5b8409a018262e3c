// SPDX-License-Identifier: GPL-2.0
/*
 * Members that are missing at attach, and come back stale; what an attach reads.
 */
#include "test.h"

static int make(void **state)
{
	struct rig *r = rig_small(2);

	rig_write_super(r);
	*state = r;
	return 0;
}

static int unmake(void **state)
{
	rig_free(*state);
	return 0;
}

/* The next attach is without these members; it writes its superblock, as all do. */
static void attach_without(struct rig *r, u64 missing)
{
	rig_detach(r);
	r->missing = missing;
	rig_attach(r);
	rig_write_super(r);
}

static void pages_of_a_missing_member(void **state)
{
	struct rig *r = *state;
	u8 keys[3][KVC_KEY_LEN];
	struct kvc_lease l;
	u32 total, free;

	assert_int_equal(rig_store_on(r, 0, 1, 1, 5000), 0);
	assert_int_equal(rig_store_on(r, 1, 2, 2, 5000), 0);
	rig_flush(r);
	attach_without(r, BIT_ULL(1));
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	assert_int_equal(rig_load(r, r->d, 2, 2), -ENODEV);
	assert_int_equal(rig_query(r, r->d, 2), -ENODEV);
	assert_int_equal(rig_lease(r, r->d, 2, &l), -ENODEV);
	assert_int_equal(rig_delete(r, r->d, 2), -ENODEV);
	key_make(keys[0], 1);
	key_make(keys[1], 2);
	key_make(keys[2], 1);
	assert_int_equal(kvc_match(r->pool, r->d, keys, 3, NULL, NULL, NULL), 1);
	assert_false(kvc_member_online(r->pool, 1));
	kvc_member_segments(r->pool, 1, &total, &free);
	assert_int_equal(total, 16);
	assert_int_equal(free, 0);
	assert_int_equal(kvc_super_of(r->pool)->members[1].flags, KVC_MEMBER_ABSENT);
	assert_int_equal(kvc_super_of(r->pool)->members[0].flags, 0);
	/* Stores go to the other; nothing is placed on the missing one. */
	assert_int_equal(rig_store_on(r, 1, 3, 3, 5000), -ENODEV);
	assert_int_equal(rig_fill(r, 10, 5000, 30), 40);
	rig_flush(r);
	attach_without(r, 0);
	assert_int_equal(kvc_super_of(r->pool)->members[1].flags, 0);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	assert_int_equal(rig_load(r, r->d, 2, 2), 0);
	assert_int_equal(rig_query(r, r->d, 3), -ENOENT);
	assert_int_equal(rig_load(r, r->d, 25, 25), 0);
}

/* What was stored again or deleted without the member does not return with it, whatever was reclaimed meanwhile. */
static void stale_member(void **state)
{
	struct rig *r = *state;
	u32 id, round;

	for (id = 0; id < 8; id++)
		assert_int_equal(rig_store_on(r, 1, id, id, 5000), 0);
	rig_flush(r);
	attach_without(r, BIT_ULL(1));
	for (id = 0; id < 4; id++)
		assert_int_equal(rig_store_on(r, 0, id, 100 + id, 5000), 0);
	rig_flush(r);
	assert_int_equal(rig_delete(r, r->d, 2), 0);
	assert_int_equal(rig_delete(r, r->d, 3), 0);
	rig_flush(r);
	for (round = 0; round < 3; round++) {
		rig_fill(r, 1000 * (round + 1), 20000, 400);
		for (id = 0; id < 2; id++)
			if (rig_load(r, r->d, id, 100 + id))
				assert_int_equal(rig_store_on(r, 0, id, 100 + id, 5000), 0);
		rig_flush(r);
		attach_without(r, BIT_ULL(1));
	}
	assert_true(rig_query(r, r->d, 2) == -ENODEV && rig_query(r, r->d, 3) == -ENODEV);
	for (id = 0; id < 2; id++)
		if (rig_query(r, r->d, id) < 0)
			assert_int_equal(rig_store_on(r, 0, id, 100 + id, 5000), 0);
	rig_flush(r);
	attach_without(r, 0);
	assert_int_equal(rig_load(r, r->d, 0, 100), 0);
	assert_int_equal(rig_load(r, r->d, 1, 101), 0);
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
	assert_int_equal(rig_query(r, r->d, 3), -ENOENT);
	for (id = 4; id < 8; id++)
		assert_int_equal(rig_load(r, r->d, id, id), 0);
}

/* All records of some attaches are on the member that is missing then: those made without it are newer all the same. */
static void newest_records_missing(void **state)
{
	struct rig *r = *state;
	u32 i;

	assert_int_equal(rig_store_on(r, 0, 0, 1, 5000), 0);
	rig_flush(r);
	for (i = 0; i < 5; i++) {
		attach_without(r, 0);
		assert_int_equal(rig_store_on(r, 1, 7, 10 + i, 5000), i ? -EEXIST : 0);
		if (i) {
			assert_int_equal(rig_delete(r, r->d, 7), 0);
			assert_int_equal(rig_store_on(r, 1, 7, 10 + i, 5000), 0);
		}
		assert_int_equal(rig_store_on(r, 1, 8, 8, 5000), i ? -EEXIST : 0);
		rig_flush(r);
	}
	attach_without(r, BIT_ULL(1));
	assert_int_equal(rig_store_on(r, 0, 7, 20, 5000), 0);
	assert_int_equal(rig_store_on(r, 0, 8, 21, 5000), 0);
	rig_flush(r);
	assert_int_equal(rig_delete(r, r->d, 8), 0);
	rig_flush(r);
	attach_without(r, 0);
	assert_int_equal(rig_load(r, r->d, 7, 20), 0);
	assert_int_equal(rig_query(r, r->d, 8), -ENOENT);
}

/* A tenant that was removed meanwhile: its pages on the member stay dead, another tenant of its name has none. */
static void tenant_removed_meanwhile(void **state)
{
	struct rig *r = *state;
	int slot = kvc_tenant_add(r->pool, "other", 0, 0, 0600, 0);
	struct kvc_domain *d;

	rig_write_super(r);
	d = rig_domain(r, (u32)slot, 0);
	for (u32 id = 0; id < 6; id++)
		assert_int_equal(rig_store(r, d, id, id, 5000), 0);
	rig_flush(r);
	kvc_domain_put(r->pool, d);
	attach_without(r, BIT_ULL(1));
	assert_int_equal(kvc_tenant_remove(r->pool, "other"), 0);
	rig_write_super(r);
	attach_without(r, 0);
	assert_int_equal(kvc_tenant_add(r->pool, "other", 0, 0, 0600, 0), slot);
	d = rig_domain(r, (u32)slot, 0);
	for (u32 id = 0; id < 6; id++)
		assert_int_equal(rig_query(r, d, id), -ENOENT);
	kvc_domain_put(r->pool, d);
	assert_int_equal(rig_stats(r).pages, 0);
}

struct teller {
	u32 member;
	u64 seq, there;
};

static bool tell_one_history(const struct teller *t, u32 nr)
{
	static struct kvc_super_member members[3][KVC_MEMBERS_MAX];
	struct kvc_witness w[3];
	u32 i, j;

	for (i = 0; i < nr; i++) {
		for (j = 0; j < 3; j++) {
			members[i][j].uuid[0] = (u8)(1 + j);
			members[i][j].nr_segments = KVC_SEGMENTS_MIN;
			members[i][j].flags = t[i].there & BIT(j) ? 0 : KVC_MEMBER_ABSENT;
		}
		w[i] = (struct kvc_witness){ t[i].member, t[i].seq, members[i] };
	}
	return kvc_one_history(w, nr);
}

/* Members that tell (member, sequence, who was there) */
static void histories(void **state)
{
	static const struct {
		u32 nr;
		bool one;
		struct teller t[3];
	} rows[] = {
		{ 1, true, { { 0, 5, 1 } } },
		{ 2, true, { { 0, 5, 3 }, { 1, 5, 3 } } },
		{ 2, true, { { 0, 6, 3 }, { 1, 5, 3 } } },		/* cut between the two */
		{ 2, true, { { 0, 9, 1 }, { 1, 5, 3 } } },		/* the second was missing */
		{ 2, true, { { 1, 5, 3 }, { 0, 9, 1 } } },
		{ 2, true, { { 0, 17, 3 }, { 1, 16, 2 } } },		/* the first came back, cut between the two */
		{ 2, true, { { 0, 16, 2 }, { 1, 17, 3 } } },
		{ 2, false, { { 0, 6, 1 }, { 1, 6, 2 } } },		/* each without the other */
		{ 2, false, { { 0, 9, 1 }, { 1, 6, 2 } } },
		{ 2, true, { { 0, 6, 3 }, { 1, 6, 2 } } },		/* cut between the two, then the second alone */
		{ 2, true, { { 0, 6, 3 }, { 1, 7, 2 } } },
		{ 3, true, { { 0, 5, 3 }, { 1, 6, 6 }, { 2, 6, 6 } } },	/* 0 and 1, then 1 and 2 */
		{ 2, true, { { 0, 5, 3 }, { 2, 6, 6 } } },		/* 1 was in both */
		{ 3, true, { { 0, 5, 3 }, { 1, 6, 6 }, { 2, 7, 4 } } },	/* and then 2 */
		{ 3, false, { { 0, 5, 1 }, { 1, 6, 6 }, { 2, 6, 6 } } },	/* 0, then the others */
		{ 3, false, { { 0, 5, 3 }, { 1, 5, 3 }, { 2, 5, 4 } } },
		{ 3, true, { { 0, 7, 7 }, { 1, 7, 7 }, { 2, 7, 7 } } },
	};
	u32 i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(tell_one_history(rows[i].t, rows[i].nr), rows[i].one);
}

/* Power was cut when the member that is added had its superblock, and the others did not know of it yet. */
static void history_of_an_added_member(void **state)
{
	struct rig *r = rig_small(1);
	struct kvc_super *now = malloc(sizeof(*now));
	struct kvc_witness w[2];

	(void)state;
	assert_non_null(now);
	*now = *r->super;
	now->nr_members = 2;
	now->seq++;
	now->members[1] = now->members[0];
	now->members[1].uuid[0]++;
	w[0] = (struct kvc_witness){ 0, r->super->seq, r->super->members };
	w[1] = (struct kvc_witness){ 1, now->seq, now->members };
	assert_true(kvc_one_history(w, 2));
	free(now);
	rig_free(r);
}

/* What lies in the logs of all segments, as far as they are valid, and how much of it lies behind the first step */
static u64 log_bytes(struct rig *r)
{
	u8 *buf = malloc(KVC_RECOVER_IO);
	u64 sum = 0, at, end;
	u32 i, j, bytes;

	for (i = 0; i < r->nr_members; i++) {
		for (j = 0; j < r->super->members[i].nr_segments; j++) {
			at = KVC_DATA_OFFSET + j * r->super->segment_size;
			end = at + r->super->segment_size;
			for (; at < end; at += bytes, sum += bytes) {
				dev_pread(r->devs[i], at, buf, KVC_BLOCK);
				if (kvc_extent_peek(buf, &bytes) != KVC_OK)
					break;
			}
		}
	}
	free(buf);
	return sum;
}

/* Attach reads the summaries and at most a step more of each segment, whatever the pages are and however many extents. */
static void attach_reads_summaries(void **state)
{
	static const struct { u32 length, pages, flush_every; u64 segment; u32 segments; } rows[] = {
		{ 1,	   20000, 7,	4U << 20, 12 },
		{ 4096,	   4000,  1,	4U << 20, 12 },
		{ 4096,	   4000,  400,	4U << 20, 12 },
		{ 40000,   1000,  30,	4U << 20, 12 },
		{ 3000000, 10,	  1,	4U << 20, 12 },
		{ 100,	   3000,  5,	KVC_SEGMENT_MIN, 16 },
		{ 100,	   0,	  1,	KVC_SEGMENT_MIN, 16 },
	};
	u64 summaries, step;
	struct rig *r;
	u32 i, j;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		r = rig_new(2, rows[i].segments, rows[i].segment, KVC_CHUNK_MIN);
		for (j = 0; j < rows[i].pages; j++) {
			rig_fill(r, j, rows[i].length, 1);
			if (j % rows[i].flush_every == 0)
				rig_flush(r);
		}
		rig_flush(r);
		summaries = log_bytes(r);
		step = 2ULL * rows[i].segments * KVC_RECOVER_STEP;
		rig_detach(r);
		rig_recover(r);
		assert_true(r->read <= summaries + step && r->read + step >= summaries);
		rig_free(r);
	}
}

/* The bytes grow with the number of pages, not with what is in them. */
static void attach_is_linear_in_pages(void **state)
{
	u64 read[3], big;
	struct rig *r;
	u32 i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(read); i++) {
		r = rig_new(2, 64, 1U << 20, KVC_CHUNK_MIN);
		rig_fill(r, 0, 4000, 5000U << i);
		assert_int_equal(rig_stats(r).evicted_pages, 0);
		rig_flush(r);
		rig_detach(r);
		rig_recover(r);
		assert_int_equal(rig_stats(r).recovered_pages, 5000U << i);
		read[i] = r->read;
		rig_free(r);
	}
	/* 5000, 10000 and 20000 pages beside what an empty pool costs, which is a step for each segment */
	assert_true(read[2] - read[1] >= 18 * (read[1] - read[0]) / 10);
	assert_true(read[2] - read[1] <= 22 * (read[1] - read[0]) / 10 + KVC_RECOVER_STEP);
	/* the pages ten times as long, in segments ten times as long */
	r = rig_new(2, 64, 10U << 20, 64U << 10);
	rig_fill(r, 0, 40000, 5000);
	rig_flush(r);
	rig_detach(r);
	rig_recover(r);
	assert_int_equal(rig_stats(r).recovered_pages, 5000);
	big = r->read;
	rig_free(r);
	assert_true(big <= read[0] + KVC_RECOVER_STEP);
}

/* The same is found when the buffer is not kept. */
static void forgetful_reader(void **state)
{
	struct rig *r = rig_new(1, 16, 4U << 20, KVC_CHUNK_MIN);
	u64 read, pages;

	(void)state;
	rig_fill(r, 0, 900, 3000);
	rig_flush(r);
	rig_again(r);
	read = r->read;
	pages = rig_stats(r).recovered_pages;
	r->forgetful = true;
	rig_again(r);
	assert_int_equal(rig_stats(r).recovered_pages, pages);
	assert_true(r->read > read);
	rig_free(r);
}

static struct rig *looked_at;
static bool said_flushed;

/* Between any two steps of the engine: who waits for a flush looks. */
static void look_at_flush(void)
{
	os_window = NULL;
	said_flushed |= kvc_member_online(looked_at->pool, 0) && kvc_flushed(looked_at->pool, 0, 1);
	os_window = look_at_flush;
}

static void failed_summary_is_not_flushed(void **state)
{
	struct rig *r = *state;
	struct kvc_work w;

	assert_int_equal(rig_store_on(r, 0, 1, 1, 5000), 0);
	assert_int_equal(kvc_flush_next(r->pool, 0, &w), 1);
	looked_at = r;
	said_flushed = false;
	os_window = look_at_flush;
	kvc_work_done(r->pool, &w, -EIO);
	os_window = NULL;
	assert_false(kvc_member_online(r->pool, 0));
	assert_false(said_flushed);
}

static const struct CMUnitTest members_tests[] = {
	cmocka_unit_test_setup_teardown(pages_of_a_missing_member, make, unmake),
	cmocka_unit_test_setup_teardown(stale_member, make, unmake),
	cmocka_unit_test_setup_teardown(newest_records_missing, make, unmake),
	cmocka_unit_test_setup_teardown(tenant_removed_meanwhile, make, unmake),
	cmocka_unit_test_setup_teardown(failed_summary_is_not_flushed, make, unmake),
	cmocka_unit_test(histories),
	cmocka_unit_test(history_of_an_added_member),
	cmocka_unit_test(attach_reads_summaries),
	cmocka_unit_test(attach_is_linear_in_pages),
	cmocka_unit_test(forgetful_reader),
};

TEST_GROUP(members);
