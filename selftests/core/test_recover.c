// SPDX-License-Identifier: GPL-2.0
/*
 * Recovery: what media says, damaged media, foreign media.
 */
#include "log/log.h"
#include "media/format_media.h"
#include "media.h"
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

static u64 segment_start(const struct rig *r, u64 offset)
{
	u64 size = r->super->segment_size;

	return KVC_DATA_OFFSET + (offset - KVC_DATA_OFFSET) / size * size;
}

static void empty_pool(void **state)
{
	struct rig *r = *state;
	u32 total, free;

	assert_int_equal(rig_stats(r).pages, 0);
	assert_int_equal(rig_stats(r).recovered_pages, 0);
	assert_int_equal(kvc_nr_members(r->pool), 2);
	assert_int_equal(kvc_nr_segments(r->pool, 0), 16);
	assert_int_equal(kvc_nr_segments(r->pool, 1), 16);
	assert_int_equal(kvc_chunk_size(r->pool), KVC_CHUNK_MIN);
	assert_int_equal(kvc_capacity(r->pool), 32 * KVC_SEGMENT_MIN);
	kvc_member_segments(r->pool, 1, &total, &free);
	assert_int_equal(total, 16);
	assert_int_equal(free, 16);
	assert_int_equal(rig_store(r, r->d, 1, 1, 10), 0);
	rig_flush(r);
}

static void bad_super_is_refused(void **state)
{
	struct rig *r = *state;
	struct kvc_ops ops = { 0 };
	struct kvc_pool *p = NULL;

	r->super->chunk_size = 5000;
	assert_int_equal(kvc_pool_create(r->super, 1, &ops, NULL, &p), -EINVAL);
	assert_null(p);
	r->super->chunk_size = KVC_CHUNK_MIN;
}

/* Many attaches, each adds a page, and deletes the one before the last */
static void again_and_again(void **state)
{
	struct rig *r = *state;
	u32 i;

	for (i = 0; i < 60; i++) {
		while (rig_store(r, r->d, i, i, 7000) == -EAGAIN)
			rig_work(r);
		if (i > 1)
			assert_int_equal(rig_delete(r, r->d, i - 2), 0);
		rig_flush(r);
		if (i % 2)
			rig_cut(r);
		else
			rig_detach(r);
		rig_attach(r);
		assert_int_equal(rig_load(r, r->d, i, i), 0);
		if (i > 0)
			assert_int_equal(rig_load(r, r->d, i - 1, i - 1), 0);
		assert_int_equal(rig_stats(r).pages, i ? 2 : 1);
	}
}

/* The log counts up to the first damaged extent, and is not written on behind it. */
static void damaged_extent(void **state)
{
	struct rig *r = rig_small(1);
	struct kvc_load ld;
	u64 log;
	u32 i;

	(void)state;
	for (i = 0; i < 4; i++) {
		assert_int_equal(rig_store(r, r->d, i, i, 100), 0);
		rig_flush(r);
	}
	place_of(r, 0, &ld);
	log = segment_start(r, ld.offset) + KVC_BLOCK;
	dev_flip(r->devs[0], log + 2 * KVC_BLOCK + 300, 1);
	rig_again(r);
	assert_int_equal(rig_load(r, r->d, 0, 0), 0);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
	assert_int_equal(rig_query(r, r->d, 3), -ENOENT);
	assert_int_equal(rig_stats(r).recover_skipped, 1);
	assert_int_equal(rig_store(r, r->d, 2, 22, 100), 0);
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_load(r, r->d, 0, 0), 0);
	assert_int_equal(rig_load(r, r->d, 2, 22), 0);
	assert_int_equal(rig_query(r, r->d, 3), -ENOENT);
	rig_free(r);
}

/* A tombstone may take a damaged extent's place in the log, but what lies behind does not follow it. */
static void damaged_extent_replaced(void **state)
{
	struct rig *r = rig_small(1);
	struct kvc_load ld;
	u32 i;

	(void)state;
	for (i = 0; i < 4; i++) {
		assert_int_equal(rig_store(r, r->d, i, i, 100), 0);
		rig_flush(r);
	}
	place_of(r, 0, &ld);
	dev_flip(r->devs[0], segment_start(r, ld.offset) + 3 * KVC_BLOCK + 300, 1);
	rig_again(r);
	assert_int_equal(rig_query(r, r->d, 3), -ENOENT);
	assert_int_equal(rig_delete(r, r->d, 0), 0);
	assert_int_equal(rig_store(r, r->d, 3, 33, 100), 0);
	assert_int_equal(rig_delete(r, r->d, 3), 0);
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_query(r, r->d, 0), -ENOENT);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	assert_int_equal(rig_query(r, r->d, 3), -ENOENT);
	rig_free(r);
}

/*
 * Of two extents of tombstones behind a closed log the first was lost, so the log ends there. What is added then takes its
 * place, and has a block of zeros behind it: the second does not follow it.
 */
static void lost_extent_replaced(void **state)
{
	struct rig *r = rig_small(1);
	u8 block[KVC_BLOCK] = { 0 }, zeros[KVC_BLOCK] = { 0 };
	struct kvc_seg *seg;
	struct kvc_load ld;
	u64 lost;
	u32 i;

	(void)state;
	for (i = 0; i < 3; i++)
		assert_int_equal(rig_store(r, r->d, i, i, 100), 0);
	kvc_pool_rest(r->pool);
	rig_flush(r);
	place_of(r, 0, &ld);
	rig_again(r);
	for (i = 0; i < 2; i++) {
		assert_int_equal(rig_delete(r, r->d, i), 0);
		rig_flush(r);
	}
	seg = kvc_seg(r->pool, ld.gseg);
	lost = segment_start(r, ld.offset) + (u64)(seg->log_end - 2) * KVC_BLOCK;
	dev_pwrite(r->devs[0], lost, zeros, KVC_BLOCK);
	rig_again(r);
	assert_int_equal(rig_load(r, r->d, 2, 2), 0);
	assert_int_equal(rig_delete(r, r->d, 2), 0);
	rig_flush(r);
	dev_pread(r->devs[0], lost, block, KVC_BLOCK);
	assert_memory_not_equal(block, zeros, KVC_BLOCK);
	dev_pread(r->devs[0], lost + KVC_BLOCK, block, KVC_BLOCK);
	assert_memory_equal(block, zeros, KVC_BLOCK);
	rig_again(r);
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
	rig_free(r);
}

/* A segment copied elsewhere, or kept from another time, is not believed. */
static void foreign_segments(void **state)
{
	struct rig *r = *state;
	u8 *copy = malloc(KVC_SEGMENT_MIN);
	struct kvc_load ld;
	u64 at;

	assert_non_null(copy);
	assert_int_equal(rig_store(r, r->d, 1, 100, 5000), 0);
	rig_flush(r);
	place_of(r, 1, &ld);
	at = segment_start(r, ld.offset);
	dev_pread(r->devs[ld.member], at, copy, KVC_SEGMENT_MIN);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	rig_flush(r);
	rig_detach(r);
	/* Another member, another place of the same one */
	dev_pwrite(r->devs[!ld.member], at, copy, KVC_SEGMENT_MIN);
	dev_pwrite(r->devs[ld.member], at + 9 * KVC_SEGMENT_MIN, copy, KVC_SEGMENT_MIN);
	rig_attach(r);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
	assert_int_equal(rig_stats(r).pages, 0);
	rig_detach(r);
	/* Another pool on the same devices */
	dev_pwrite(r->devs[ld.member], at, copy, KVC_SEGMENT_MIN);
	r->super->pool_uuid[3] ^= 1;
	rig_attach(r);
	assert_int_equal(rig_stats(r).pages, 0);
	free(copy);
}

/* The salt: a header that was lost gives its generation number away a second time; the old log is not continued. */
static void salt_tells_lives_apart(void **state)
{
	struct rig *r = *state;
	u8 *copy = malloc(KVC_SEGMENT_MIN);
	struct kvc_media_extent *m = (struct kvc_media_extent *)copy;
	struct kvc_load ld;
	u64 at;

	assert_non_null(copy);
	assert_int_equal(rig_store(r, r->d, 1, 100, 5000), 0);
	rig_flush(r);
	place_of(r, 1, &ld);
	rig_detach(r);
	at = segment_start(r, ld.offset);
	dev_pread(r->devs[ld.member], at, copy, KVC_BLOCK);
	m->salt ^= cpu_to_le64(1);
	media_fix_extent(copy, KVC_BLOCK);
	dev_pwrite(r->devs[ld.member], at, copy, KVC_BLOCK);
	rig_attach(r);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
	free(copy);
}

/* Recovery in any order of segments gives the newest of several records of a key. */
static void newest_record_counts(void **state)
{
	struct rig *r = *state;
	u32 i;

	for (i = 0; i < 30; i++) {
		while (rig_store(r, r->d, 1, 100 + i, 40000 + i) == -EAGAIN)
			rig_work(r);
		rig_flush(r);
		if (i == 29)
			break;
		while (rig_delete(r, r->d, 1) == -EAGAIN)
			rig_work(r);
	}
	rig_flush(r);
	rig_cut(r);
	rig_attach(r);
	assert_int_equal(rig_query(r, r->d, 1), 40029);
	assert_int_equal(rig_load(r, r->d, 1, 129), 0);
	assert_int_equal(rig_stats(r).pages, 1);
}

/* A segment that cannot be read costs its own pages only. */
static void unreadable_segment(void **state)
{
	struct rig *r = rig_small(1);
	u32 i, missing = 0;
	struct kvc_load ld;

	(void)state;
	rig_fill(r, 0, 30000, 30);
	rig_flush(r);
	place_of(r, 0, &ld);
	rig_detach(r);
	r->unreadable = (u32)((ld.offset - KVC_DATA_OFFSET) / KVC_SEGMENT_MIN);
	rig_attach(r);
	assert_int_equal(rig_query(r, r->d, 0), -ENOENT);
	for (i = 0; i < 30; i++) {
		int ret = rig_load(r, r->d, i, i);

		assert_true(ret == 0 || ret == -ENOENT);
		missing += ret != 0;
	}
	assert_true(missing >= 6 && missing <= 8);
	assert_int_equal(rig_stats(r).pages, 30 - missing);
	/* It is left alone. */
	rig_fill(r, 100, 30000, 200);
	r->unreadable = KVC_NONE;
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_load(r, r->d, 0, 0), 0);
	rig_free(r);
}

/* Nobody knows what it holds: tombstones are kept as long as it cannot be read. */
static void unreadable_victim(void **state)
{
	struct rig *r = rig_small(1);
	struct kvc_load ld;

	(void)state;
	rig_fill(r, 0, 30000, 30);
	rig_flush(r);
	place_of(r, 0, &ld);
	assert_int_equal(rig_delete(r, r->d, 0), 0);
	rig_flush(r);
	rig_detach(r);
	r->unreadable = (u32)((ld.offset - KVC_DATA_OFFSET) / KVC_SEGMENT_MIN);
	rig_attach(r);
	rig_fill(r, 100, 30000, 400);
	rig_flush(r);
	r->unreadable = KVC_NONE;
	rig_detach(r);
	rig_recover(r);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	assert_int_equal(rig_query(r, r->d, 0), -ENOENT);
	rig_free(r);
}

/* Put another sequence or generation into the header and the one record of the log at @at. */
static void claim(struct rig *r, u64 at, u64 seq, u64 generation)
{
	u8 *log = malloc(2 * KVC_BLOCK);
	struct kvc_media_extent *m = (struct kvc_media_extent *)log, *second = (struct kvc_media_extent *)(log + KVC_BLOCK);

	assert_non_null(log);
	dev_pread(r->devs[0], at, log, 2 * KVC_BLOCK);
	if (seq)
		((struct kvc_media_rec *)(second + 1))->seq = cpu_to_le64(seq);
	if (generation) {
		m->generation = cpu_to_le64(generation);
		second->generation = m->generation;
	}
	media_fix_extent(m, KVC_BLOCK);
	media_fix_extent(second, KVC_BLOCK);
	dev_pwrite(r->devs[0], at, log, 2 * KVC_BLOCK);
	free(log);
}

/*
 * Found by fuzzing: what was counted behind the highest counter that is believed was not believed by the next attach,
 * so all pages were lost that were stored after a hostile record had been read.
 */
static void counters_go_on_behind_a_claim(void **state)
{
	u64 high = KVC_COUNTER_END / 2 - 1;
	struct kvc_load ld;
	u32 what, i;

	(void)state;
	for (what = 0; what < 2; what++) {
		struct rig *r = rig_small(1);

		assert_int_equal(rig_store(r, r->d, 1, 1, 5000), 0);
		rig_flush(r);
		place_of(r, 1, &ld);
		rig_detach(r);
		claim(r, segment_start(r, ld.offset), what ? 0 : high, what ? high : 0);
		for (i = 2; i < 10; i++) {
			rig_attach(r);
			rig_write_super(r);
			assert_int_equal(rig_load(r, r->d, 1, 1), 0);
			if (i > 2)
				assert_int_equal(rig_load(r, r->d, i - 1, i - 1), 0);
			assert_int_equal(rig_store(r, r->d, i, i, 5000), 0);
			rig_flush(r);
			rig_detach(r);
		}
		rig_free(r);
	}
}

/* Beyond half of the range nobody is believed; at its end the counters could not go on. */
static void claims_of_too_much(void **state)
{
	struct kvc_load ld;
	u32 what;

	(void)state;
	for (what = 0; what < 2; what++) {
		struct rig *r = rig_small(1);
		u64 high = KVC_COUNTER_END - 1;

		assert_int_equal(rig_store(r, r->d, 1, 1, 5000), 0);
		rig_flush(r);
		place_of(r, 1, &ld);
		rig_detach(r);
		claim(r, segment_start(r, ld.offset), what ? 0 : high, what ? high : 0);
		rig_attach(r);
		assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
		assert_int_equal(rig_stats(r).recover_skipped, what ? 0 : 1);
		rig_free(r);
	}
}

/* In the block of a log at @at, which has the record of one page: one more, of key 2, at the same place */
static void claim_twice(struct rig *r, u64 at)
{
	u8 *log = malloc(KVC_BLOCK);
	struct kvc_media_extent *m = (struct kvc_media_extent *)log;
	struct kvc_media_rec *first = (struct kvc_media_rec *)(m + 1), *second;
	u32 bytes;

	assert_non_null(log);
	dev_pread(r->devs[0], at, log, KVC_BLOCK);
	bytes = kvc_rec_bytes(le32_to_cpu(first->nr_crcs));
	second = (struct kvc_media_rec *)((u8 *)first + bytes);
	memcpy(second, first, bytes);
	key_make(second->key, 2);
	m->nr_records = cpu_to_le32(2);
	m->used = cpu_to_le32(le32_to_cpu(m->used) + bytes);
	media_fix_extent(m, KVC_BLOCK);
	dev_pwrite(r->devs[0], at, log, KVC_BLOCK);
	free(log);
}

/*
 * Found by fuzzing: a record that lost was not counted as one of its segment's, so a page behind it that was one too
 * many was there or not, depending on whether the tombstone was recovered before it.
 */
static void what_lost_counts(void **state)
{
	struct kvc_load ld;
	u32 i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct rig *r = rig_small(1);

		/* fills a segment, whose log will have the tombstone */
		assert_int_equal(rig_store(r, r->d, 3, 3, 200000), 0);
		assert_int_equal(rig_store(r, r->d, 1, 1, 160000), 0);
		rig_flush(r);
		place_of(r, 1, &ld);
		rig_detach(r);
		claim_twice(r, segment_start(r, ld.offset) + KVC_BLOCK);
		rig_attach(r);
		assert_int_equal(rig_load(r, r->d, 1, 1), 0);
		assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
		assert_int_equal(rig_stats(r).recover_skipped, 1);
		assert_int_equal(rig_delete(r, r->d, 1), 0);
		rig_flush(r);
		rig_detach(r);
		r->backwards = i;
		rig_attach(r);
		assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
		assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
		rig_free(r);
	}
}

/* The last extent of the log at @at has a record that is none behind those that it had: the log ends in the middle. */
static void spoil(struct rig *r, u64 at)
{
	u8 *log = malloc(KVC_BLOCK);
	struct kvc_media_extent *m = (struct kvc_media_extent *)log;

	assert_non_null(log);
	dev_pread(r->devs[0], at, log, KVC_BLOCK);
	m->nr_records = cpu_to_le32(le32_to_cpu(m->nr_records) + 1);
	m->used = cpu_to_le32(le32_to_cpu(m->used) + KVC_REC_FIXED);
	media_fix_extent(m, KVC_BLOCK);
	dev_pwrite(r->devs[0], at, log, KVC_BLOCK);
	free(log);
}

/*
 * Found by fuzzing: the next tombstone was written over an extent that had counted up to a bad record, so its pages
 * were gone with the next attach.
 */
static void bad_record(void **state)
{
	struct rig *r = rig_small(1);
	struct kvc_load ld;

	(void)state;
	assert_int_equal(rig_store(r, r->d, 1, 1, 5000), 0);
	assert_int_equal(rig_store(r, r->d, 2, 2, 5000), 0);
	rig_flush(r);
	place_of(r, 1, &ld);
	rig_detach(r);
	spoil(r, segment_start(r, ld.offset) + KVC_BLOCK);
	rig_attach(r);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	assert_int_equal(rig_load(r, r->d, 2, 2), 0);
	assert_int_equal(rig_stats(r).recover_skipped, 1);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
	assert_int_equal(rig_load(r, r->d, 2, 2), 0);
	rig_free(r);
}

/* Tombstones of later attaches share a segment's log with records that have no entry any more, of a tenant removed. */
static void log_with_removed_tenant(void **state)
{
	struct rig *r = rig_small(1);
	struct kvc_domain *d;
	u32 i;

	(void)state;
	assert_int_equal(kvc_tenant_add(r->pool, "one", 0, 0, 0600, 0), 1);
	d = rig_domain(r, 1, 0);
	for (i = 0; i < 25; i++)
		assert_int_equal(rig_store(r, d, i, i, 100), 0);
	rig_flush(r);
	for (i = 0; i < 25; i++)
		assert_int_equal(rig_delete(r, d, i), 0);
	/* so that the log has an end, and tombstones may follow */
	kvc_pool_rest(r->pool);
	rig_flush(r);
	kvc_domain_put(r->pool, d);
	rig_write_super(r);
	rig_again(r);
	assert_int_equal(kvc_tenant_remove(r->pool, "one"), 0);
	rig_write_super(r);
	rig_fill(r, 0, 100, 250);
	rig_flush(r);
	rig_again(r);
	for (i = 0; i < 250; i++)
		assert_int_equal(rig_delete(r, r->d, i), 0);
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_stats(r).pages, 0);
	rig_free(r);
}

static const struct CMUnitTest recover_tests[] = {
	cmocka_unit_test_setup_teardown(empty_pool, make, unmake),
	cmocka_unit_test_setup_teardown(bad_super_is_refused, make, unmake),
	cmocka_unit_test_setup_teardown(again_and_again, make, unmake),
	cmocka_unit_test(damaged_extent),
	cmocka_unit_test(damaged_extent_replaced),
	cmocka_unit_test(lost_extent_replaced),
	cmocka_unit_test_setup_teardown(foreign_segments, make, unmake),
	cmocka_unit_test_setup_teardown(salt_tells_lives_apart, make, unmake),
	cmocka_unit_test_setup_teardown(newest_record_counts, make, unmake),
	cmocka_unit_test(unreadable_segment),
	cmocka_unit_test(unreadable_victim),
	cmocka_unit_test(counters_go_on_behind_a_claim),
	cmocka_unit_test(claims_of_too_much),
	cmocka_unit_test(what_lost_counts),
	cmocka_unit_test(bad_record),
	cmocka_unit_test(log_with_removed_tenant),
};

TEST_GROUP(recover);
