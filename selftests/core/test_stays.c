// SPDX-License-Identifier: GPL-2.0
/*
 * What was deleted and flushed stays deleted: the ways in which a tombstone could be dropped too early.
 *
 * In each of them a page lies in a segment that recovery believes, its tombstone in another one that reclaim takes, and
 * something makes the tombstone look unnecessary. Leases keep segments where the case wants them.
 */
#include "media/format_media.h"
#include "test.h"

static u64 header_of(struct rig *r, u32 id, u32 member)
{
	struct kvc_load ld;

	assert_int_equal(rig_hold(r, r->d, id, &ld), 0);
	kvc_load_end(r->pool, &ld, 0);
	assert_int_equal(ld.member, member);
	return ld.offset - (ld.offset - KVC_DATA_OFFSET) % KVC_SEGMENT_MIN;
}

static void lease(struct rig *r, u32 id)
{
	struct kvc_lease l;

	rig_keep_leases(r);
	assert_int_equal(rig_lease(r, r->d, id, &l), 0);
}

/* A page as long as a segment, flushed alone, so that there is no gap for tombstones. Without any work: 0 or -EAGAIN */
static int store_full(struct rig *r, u32 member, u32 id)
{
	struct kvc_store st;
	u8 key[KVC_KEY_LEN];
	int ret;

	key_make(key, id);
	ret = kvc_store_begin(r->pool, r->d, key, kvc_page_max(r->pool), 0, BIT_ULL(member), &st);
	if (ret)
		return ret;
	rig_write_page(r, &st, id);
	kvc_store_commit(r->pool, &st);
	rig_flush(r);
	lease(r, id);
	return 0;
}

static bool no_memory(size_t size)
{
	(void)size;
	return true;
}

/* Fill member 0 with leased segments until its reclaim waits for memory to carry a tombstone. */
static void fill_until_carry(struct rig *r, u32 id)
{
	struct kvc_work w;
	int ret = 0;

	while (ret != -ENOMEM) {
		while (store_full(r, 0, id) == 0)
			id++;
		os_alloc_fault = no_memory;
		ret = kvc_work_next(r->pool, 0, &w);
		os_alloc_fault = NULL;
		if (ret != -ENOMEM) {
			assert_int_equal(ret, 1);
			kvc_work_done(r->pool, &w, rig_exec(r, &w));
		}
	}
}

/* Work of a member until the header at @header is due: true, with @w, which is not done. False: all is done. */
static bool work_until_header(struct rig *r, u32 member, u64 header, struct kvc_work *w)
{
	while (kvc_work_next(r->pool, member, w) == 1) {
		if (w->type == KVC_WORK_WRITE && w->offset == header)
			return true;
		kvc_work_done(r->pool, w, rig_exec(r, w));
	}
	return false;
}

/*
 * The tombstone of a page on member 1 lies on member 0, as there was no room on the other. Reclaim of member 0 knows what
 * is stale, and waits for memory; meanwhile member 1 empties the page's segment, whose old header stays for a while.
 */
static void emptied_in_between(void **state)
{
	struct rig *r = rig_small(2);
	u64 named, victim, mark;
	struct kvc_work w;
	u32 id;

	(void)state;
	for (id = 1; id < 13; id++) {
		assert_int_equal(rig_store_on(r, 1, id, id, kvc_page_max(r->pool)), 0);
		rig_flush(r);
		if (id > 1)
			lease(r, id);
	}
	named = header_of(r, 1, 1);
	assert_false(work_until_header(r, 1, 0, &w));
	while (store_full(r, 1, id) == 0)
		id++;
	/* a segment of member 0 with a page and two tombstones */
	assert_int_equal(rig_store_on(r, 0, 50, 50, 500), 0);
	victim = header_of(r, 50, 0);
	assert_int_equal(rig_delete(r, r->d, 2), 0);
	mark = kvc_flush_mark(r->pool, 0);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	assert_true(kvc_flush_mark(r->pool, 0) > mark);
	rig_flush(r);
	fill_until_carry(r, 100);
	assert_true(work_until_header(r, 1, named, &w));
	assert_true(work_until_header(r, 0, victim, &w));
	kvc_work_done(r->pool, &w, rig_exec(r, &w));
	rig_cut(r);
	rig_recover(r);
	assert_int_equal(rig_load(r, r->d, 3, 3), 0);
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
	rig_free(r);
}

/* A page in a segment that stays, by the lease of another one, and its tombstone in one that goes */
static struct kvc_domain *delete_beside(struct rig *r, u32 slot)
{
	struct kvc_domain *d = rig_domain(r, slot, 0);

	assert_non_null(d);
	assert_int_equal(rig_store(r, d, 2, 2, 500), 0);
	assert_int_equal(rig_store(r, r->d, 1, 1, 500), 0);
	lease(r, 1);
	rig_flush(r);
	rig_fill(r, 1000, 60000, 5);
	assert_int_equal(rig_delete(r, d, 2), 0);
	rig_flush(r);
	return d;
}

static void turn_over(struct rig *r)
{
	u64 before = rig_stats(r).segments_reclaimed;
	u32 next = 2000;

	while (rig_stats(r).segments_reclaimed < before + 40)
		next = rig_fill(r, next, 60000, 20);
	rig_flush(r);
}

/* A tenant is removed, but the power goes before any superblock says so: it is back, its deleted pages are not. */
static void removed_in_memory_only(void **state)
{
	struct rig *r = rig_small(1);
	struct kvc_domain *d;
	int slot = kvc_tenant_add(r->pool, "one", 0, 0, 0600, 0);

	(void)state;
	assert_true(slot > 0);
	rig_write_super(r);
	d = delete_beside(r, (u32)slot);
	assert_int_equal(kvc_tenant_remove(r->pool, "one"), 0);
	turn_over(r);
	kvc_domain_put(r->pool, d);
	rig_cut(r);
	rig_recover(r);
	d = rig_domain(r, (u32)slot, 0);
	assert_non_null(d);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	assert_int_equal(rig_query(r, d, 2), -ENOENT);
	kvc_domain_put(r->pool, d);
	rig_free(r);
}

static void flip_record(u8 *block)
{
	block[KVC_EXTENT_HEADER] ^= 1;
}

static void flip_magic(u8 *block)
{
	block[0] ^= 1;
}

static void read_zeros(u8 *block)
{
	memset(block, 0, KVC_BLOCK);
}

/*
 * Pages 1 and 2 in extents of their own; the second one is misread in one attach, which drops all
 * tombstones that it can, and reads well in the next.
 */
static void misread_once(void (*misread)(u8 *block))
{
	struct rig *r = rig_small(1);
	struct kvc_load ld;
	u64 header;

	assert_int_equal(rig_store(r, r->d, 1, 1, 500), 0);
	rig_flush(r);
	assert_int_equal(rig_store(r, r->d, 2, 2, 500), 0);
	rig_flush(r);
	header = header_of(r, 1, 0);
	/* dropped as if it were damaged, and stored anew: the tombstone names the new place */
	assert_int_equal(rig_hold(r, r->d, 2, &ld), 0);
	kvc_load_end(r->pool, &ld, -EBADMSG);
	rig_fill(r, 1000, 60000, 5);
	assert_int_equal(rig_store(r, r->d, 2, 3, 500), 0);
	assert_int_equal(rig_delete(r, r->d, 2), 0);
	rig_flush(r);
	rig_detach(r);
	rig_misread(r, header + 2 * KVC_BLOCK, misread);
	rig_attach(r);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	lease(r, 1);
	turn_over(r);
	rig_misread(r, 0, NULL);
	rig_cut(r);
	rig_recover(r);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
	rig_free(r);
}

static void misread_records(void **state)
{
	(void)state;
	misread_once(flip_record);
}

static void misread_magic(void **state)
{
	(void)state;
	misread_once(flip_magic);
}

static void misread_as_zeros(void **state)
{
	(void)state;
	misread_once(read_zeros);
}

static u32 flips;

static void flip_first_time(u8 *block)
{
	if (flips++ == 0)
		flip_record(block);
}

/* What is misread once and well the next time costs nothing. */
static void misread_first(u32 block, void (*misread)(u8 *block))
{
	struct rig *r = rig_small(1);
	u64 header;

	assert_int_equal(rig_store(r, r->d, 1, 1, 500), 0);
	rig_flush(r);
	header = header_of(r, 1, 0);
	rig_detach(r);
	flips = 0;
	rig_misread(r, header + block * KVC_BLOCK, misread);
	rig_attach(r);
	assert_true(flips > 1);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	assert_int_equal(rig_stats(r).recover_skipped, 0);
	rig_free(r);
}

static void read_once_more(void **state)
{
	(void)state;
	misread_first(1, flip_first_time);
}

static void flip_magic_first_time(u8 *block)
{
	if (flips++ == 0)
		flip_magic(block);
}

static void header_once_more(void **state)
{
	(void)state;
	misread_first(0, flip_magic_first_time);
}

static void first_extent_once_more(void **state)
{
	(void)state;
	misread_first(1, flip_magic_first_time);
}

/* Does a page that media has no record of need a tombstone? Only as long as something may lie hidden. */
static bool deletes_are_logged(struct rig *r, u32 id)
{
	u32 before;

	assert_int_equal(rig_store(r, r->d, id, id, 500), 0);
	assert_int_equal(rig_delete(r, r->d, id), 0);
	before = r->written[KVC_WORK_WRITE];
	rig_flush(r);
	return r->written[KVC_WORK_WRITE] != before;
}

/* A segment of which the header is misread looks unused, but may hold anything until it has a new one. */
static void misread_header(void **state)
{
	struct rig *r = rig_small(1);
	struct kvc_work w;
	u64 header;

	(void)state;
	rig_fill(r, 1, 60000, 40);
	kvc_pool_rest(r->pool);
	rig_flush(r);
	header = header_of(r, 10, 0);
	rig_detach(r);
	rig_misread(r, header, flip_magic);
	rig_recover(r);
	assert_int_equal(rig_query(r, r->d, 10), -ENOENT);
	assert_true(work_until_header(r, 0, header, &w));
	assert_true(deletes_are_logged(r, 100));
	kvc_work_done(r->pool, &w, rig_exec(r, &w));
	rig_work(r);
	assert_false(deletes_are_logged(r, 101));
	rig_free(r);
}

/* A pool that is put to rest before it is detached has no logs without an end; after a power cut there is one. */
static void logs_at_rest(void **state)
{
	struct rig *r = rig_small(1);

	(void)state;
	assert_int_equal(rig_store(r, r->d, 1, 1, 500), 0);
	rig_flush(r);
	kvc_pool_rest(r->pool);
	assert_false(kvc_flushed(r->pool, 0, kvc_flush_mark(r->pool, 0)));
	rig_flush(r);
	assert_true(kvc_flushed(r->pool, 0, kvc_flush_mark(r->pool, 0)));
	rig_again(r);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	assert_false(deletes_are_logged(r, 2));
	assert_int_equal(rig_store(r, r->d, 3, 3, 500), 0);
	rig_flush(r);
	rig_cut(r);
	rig_attach(r);
	assert_int_equal(rig_load(r, r->d, 3, 3), 0);
	assert_true(deletes_are_logged(r, 4));
	rig_free(r);
}

/*
 * The extent of a tombstone is misread in one attach, at the end of a log that is closed in front of it, or is not.
 * Tombstones of that attach must not take its place.
 */
static void misread_tombstone(bool closed, void (*misread)(u8 *block))
{
	struct rig *r = rig_small(1);
	u64 header;
	u32 id;

	for (id = 1; id < 5; id++)
		assert_int_equal(rig_store(r, r->d, id, id, 500), 0);
	header = header_of(r, 1, 0);
	if (closed)
		kvc_pool_rest(r->pool);
	rig_flush(r);
	if (closed)
		rig_again(r);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	rig_flush(r);
	rig_detach(r);
	rig_misread(r, header + 2 * KVC_BLOCK, misread);
	rig_attach(r);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	assert_int_equal(rig_delete(r, r->d, 2), 0);
	rig_flush(r);
	rig_misread(r, 0, NULL);
	rig_cut(r);
	rig_recover(r);
	assert_int_equal(rig_load(r, r->d, 3, 3), 0);
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
	rig_free(r);
}

static void misread_closed_tombstone(void **state)
{
	(void)state;
	misread_tombstone(true, flip_magic);
}

static void flip_generation(u8 *block)
{
	block[offsetof(struct kvc_media_extent, generation)] ^= 1;
}

static void misread_name_of_tombstone(void **state)
{
	(void)state;
	misread_tombstone(true, flip_generation);
}

static void misread_open_tombstone(void **state)
{
	(void)state;
	misread_tombstone(false, read_zeros);
}

/*
 * The tombstone of a page on member 0 lies on member 1. A header on member 0 is misread as zeros in one attach, while the
 * member has free segments enough: nothing is written over it, and member 1 takes the tombstone for one of nothing.
 */
static void misread_header_as_zeros(void **state)
{
	struct rig *r = rig_small(2);
	struct kvc_lease l[20];
	u32 id, n = 0, i, blocks = kvc_page_max(r->pool) >> KVC_BLOCK_SHIFT;
	u64 header, mark;

	(void)state;
	assert_int_equal(rig_store_on(r, 0, 1, 1, 500), 0);
	rig_flush(r);
	assert_int_equal(rig_store_on(r, 0, 2, 2, (blocks - 2) << KVC_BLOCK_SHIFT), 0);
	rig_flush(r);
	header = header_of(r, 1, 0);
	assert_int_equal(header_of(r, 2, 0), header);
	lease(r, 2);
	for (id = 10; n < 20 && store_full(r, 0, id) == 0; id++) {
		u8 key[KVC_KEY_LEN];

		key_make(key, id);
		assert_int_equal(kvc_lease_get(r->pool, r->d, key, &l[n++]), 0);
		rig_work(r);
		rig_work(r);
	}
	mark = kvc_flush_mark(r->pool, 1);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	assert_true(kvc_flush_mark(r->pool, 1) > mark);
	rig_flush(r);
	for (i = 0; i < n; i++) {
		kvc_lease_put(r->pool, &l[i]);	/* its own and store_full()'s */
		kvc_lease_put(r->pool, &l[i]);
	}
	for (i = 0; i < 5; i++) {
		assert_int_equal(rig_store_on(r, 0, 50 + i, 50 + i, 500), 0);
		rig_work(r);
	}
	kvc_pool_rest(r->pool);
	rig_flush(r);
	rig_detach(r);
	rig_misread(r, header, read_zeros);
	rig_attach(r);
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
	for (id = 100; rig_stats(r).segments_reclaimed < 20; id++)
		assert_int_equal(rig_store_on(r, 1, id, id, 60000), 0);
	rig_flush(r);
	rig_misread(r, 0, NULL);
	rig_cut(r);
	rig_recover(r);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
	rig_free(r);
}

static void unlease(struct rig *r, u32 id)
{
	struct kvc_lease l;

	assert_int_equal(rig_lease(r, r->d, id, &l), 0);
	kvc_lease_put(r->pool, &l);
	kvc_lease_put(r->pool, &l);
}

/* Pages from @id on, each flushed alone, so that there is no gap, until one has another segment: that one is leased. */
static u32 to_next_segment(struct rig *r, u32 id)
{
	u64 first = 0;

	for (;; id++) {
		assert_int_equal(rig_store_on(r, 0, id, id, 500), 0);
		rig_flush(r);
		if (!first)
			first = header_of(r, id, 0);
		if (header_of(r, id, 0) != first)
			break;
	}
	lease(r, id);
	return id;
}

static bool is_header(const struct kvc_work *w)
{
	return w->type == KVC_WORK_WRITE && !((w->offset - KVC_DATA_OFFSET) % KVC_SEGMENT_MIN);
}

/*
 * No room for the tombstones of the only segment that could go, as a header could not be written. When another segment
 * may go, which has none, it does.
 */
static void stuck_until_lease_ends(void **state)
{
	struct rig *r = rig_segments(44);
	u32 id, w1, w2, full = 2000;
	struct kvc_work w;
	int ret = 0;

	(void)state;
	for (id = 1; id < 700; id++) {
		assert_int_equal(rig_store_on(r, 0, id, id, 500), 0);
		rig_flush(r);
		lease(r, id);
	}
	w1 = to_next_segment(r, 1000);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	w2 = to_next_segment(r, w1 + 1);
	assert_int_equal(rig_delete(r, r->d, 2), 0);
	to_next_segment(r, w2 + 1);
	for (id = full; store_full(r, 0, id) == 0; id++)
		rig_work(r);
	rig_work(r);
	unlease(r, w1);
	while (kvc_work_next(r->pool, 0, &w) == 1)
		kvc_work_done(r->pool, &w, is_header(&w) ? -EIO : rig_exec(r, &w));
	assert_int_equal(rig_query(r, r->d, w1), -ENOENT);
	for (id = 3; id < 700 && ret == 0; id++)
		ret = rig_delete(r, r->d, id);
	assert_int_equal(ret, -EAGAIN);
	while (rig_step(r, 0, &w))
		;
	unlease(r, w2);
	while (rig_step(r, 0, &w))
		;
	assert_int_equal(rig_store(r, r->d, 5000, 5000, 500), -ENOSPC);
	assert_int_equal(rig_query(r, r->d, w2), 500);
	for (id = full; id < full + 4; id++)
		unlease(r, id);
	for (id = 0; id < 10; id++) {
		rig_store(r, r->d, 5000, 5000, 500);
		while (rig_step(r, 0, &w))
			;
	}
	assert_int_equal(rig_query(r, r->d, 5000), 500);
	rig_free(r);
}

static const struct CMUnitTest stays_tests[] = {
	cmocka_unit_test(misread_header_as_zeros),
	cmocka_unit_test(emptied_in_between),
	cmocka_unit_test(removed_in_memory_only),
	cmocka_unit_test(misread_records),
	cmocka_unit_test(misread_magic),
	cmocka_unit_test(misread_as_zeros),
	cmocka_unit_test(misread_header),
	cmocka_unit_test(read_once_more),
	cmocka_unit_test(header_once_more),
	cmocka_unit_test(first_extent_once_more),
	cmocka_unit_test(logs_at_rest),
	cmocka_unit_test(misread_closed_tombstone),
	cmocka_unit_test(misread_name_of_tombstone),
	cmocka_unit_test(misread_open_tombstone),
	cmocka_unit_test(stuck_until_lease_ends),
};

TEST_GROUP(stays);
