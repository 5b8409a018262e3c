// SPDX-License-Identifier: GPL-2.0
/*
 * Reclaim: which segments go, which pages stay, and what waits for whom.
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

/* Much more than fits: no error, the newest stay, in order, and memory of the others is free. */
static void newest_stay(void **state)
{
	struct rig *r = *state;
	u32 n = rig_fill(r, 0, PAGE, 500), i, oldest = 0;
	struct kvc_stats st = rig_stats(r);

	while (rig_query(r, r->d, oldest) == -ENOENT)
		oldest++;
	for (i = oldest; i < n; i++)
		assert_int_equal(rig_load(r, r->d, i, i), 0);
	/* Of 16 segments most hold pages. */
	assert_true(n - oldest >= 10 * 7);
	assert_int_equal(st.evicted_pages, oldest);
	assert_int_equal(st.pages, n - oldest);
	assert_int_equal(st.moved_pages, 0);
	assert_true(st.segments_reclaimed >= oldest / 8);
}

/* Before the pool is full nothing is evicted. */
static void nothing_goes_early(void **state)
{
	struct rig *r = *state;
	u32 n = rig_fill(r, 0, PAGE, 11 * 7), i;

	assert_int_equal(rig_stats(r).evicted_pages, 0);
	for (i = 0; i < n; i++)
		assert_int_equal(rig_load(r, r->d, i, i), 0);
}

/* Pages that are loaded again and again survive what passes by, and a power cut. */
static void hot_pages_survive(void **state)
{
	struct rig *r = *state;
	u32 n = rig_fill(r, 0, PAGE, 4), i, j;

	for (i = 0; i < 40; i++) {
		for (j = 0; j < 2; j++)
			assert_int_equal(rig_load(r, r->d, j, j), 0);
		n = rig_fill(r, n, PAGE, 20);
	}
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
	assert_true(rig_stats(r).moved_pages >= 2);
	rig_flush(r);
	rig_cut(r);
	rig_recover(r);
	for (j = 0; j < 2; j++)
		assert_int_equal(rig_load(r, r->d, j, j), 0);
}

/* Of the segment that the page is in */
static u64 generation_at(struct rig *r, u32 id)
{
	struct kvc_load ld;
	u64 generation;

	assert_int_equal(rig_hold(r, r->d, id, &ld), 0);
	generation = kvc_seg(r->pool, ld.gseg)->generation;
	kvc_load_end(r->pool, &ld, 0);
	return generation;
}

static bool has_generation(const struct kvc_member *m, u64 generation)
{
	u32 i;

	for (i = 0; i < m->nr_segs; i++)
		if (m->segs[i].generation == generation)
			return true;
	return false;
}

/*
 * After a victim whose tombstones were carried the oldest goes that is not leased, whatever it is worth: else the same
 * tombstones would be carried round and round.
 */
static void oldest_after_tombstones(void **state)
{
	struct rig *r = *state;
	struct kvc_member *m = &r->pool->members[0];
	u32 n = rig_fill(r, 0, PAGE, 11 * 7), i;
	u64 first, second, third;
	struct kvc_lease l;
	struct kvc_work w;

	first = generation_at(r, 0);
	second = generation_at(r, 7);
	third = generation_at(r, 14);
	assert_int_equal(rig_lease(r, r->d, 0, &l), 0);
	for (i = 0; i < 14; i++)
		assert_int_equal(rig_load(r, r->d, i, i), 0);
	m->reclaim.carried = true;
	while (!m->reclaimed)
		if (!rig_step(r, 0, &w))
			assert_int_equal(rig_store(r, r->d, n++, 0, PAGE), 0);
	assert_true(has_generation(m, first));
	assert_false(has_generation(m, second));
	assert_true(has_generation(m, third));
	/* what was loaded of it was moved all the same */
	for (i = 7; i < 14; i++)
		assert_int_equal(rig_query(r, r->d, i), PAGE);
	kvc_lease_put(r->pool, &l);
}

/* What was stored just now stays even then: its segment may be the oldest, as that of a head that few pages go to. */
static void newest_after_tombstones(void **state)
{
	struct rig *r = *state;
	struct kvc_member *m = &r->pool->members[0];
	u32 n = rig_fill(r, 0, PAGE, 11 * 7);
	u64 first = generation_at(r, 0), second = generation_at(r, 7);
	struct kvc_work w;
	u32 i;

	for (i = 0; i < m->nr_segs && m->segs[i].generation != first; i++)
		;
	m->reclaim.carried = true;
	while (!m->reclaimed) {
		m->newest = &m->segs[i];
		if (!rig_step(r, 0, &w))
			assert_int_equal(rig_store(r, r->d, n++, 0, PAGE), 0);
	}
	assert_true(has_generation(m, first));
	assert_false(has_generation(m, second));
}

static void leased_pages_stay(void **state)
{
	struct rig *r = *state;
	struct kvc_lease l;

	assert_int_equal(rig_store(r, r->d, 1000, 1, 100), 0);
	assert_int_equal(rig_lease(r, r->d, 1000, &l), 0);
	rig_fill(r, 0, PAGE, 300);
	assert_int_equal(rig_query(r, r->d, 1000), 100);
	kvc_lease_put(r->pool, &l);
	/* It was not loaded: without its lease it is the oldest. */
	rig_fill(r, 2000, PAGE, 20);
	assert_int_equal(rig_query(r, r->d, 1000), -ENOENT);
}

/* All is leased, as it may be: -ENOSPC at last, and space when a lease ends. */
static void all_is_leased(void **state)
{
	struct kvc_lease l[200];
	struct rig *r = *state;
	u32 n = 0, spaces, i;
	int ret;

	rig_keep_leases(r);
	for (;;) {
		ret = rig_store(r, r->d, n, n, PAGE);
		if (ret == -EAGAIN) {
			spaces = r->spaces;
			rig_work(r);
			assert_true(r->spaces > spaces);
			continue;
		}
		if (ret)
			break;
		assert_int_equal(rig_lease(r, r->d, n, &l[n]), 0);
		n++;
	}
	assert_int_equal(ret, -ENOSPC);
	assert_true(n > 70 && n < 200);
	for (i = 0; i < n; i++)
		assert_int_equal(rig_load(r, r->d, i, i), 0);
	spaces = r->spaces;
	for (i = 0; i < n; i++)
		kvc_lease_put(r->pool, &l[i]);
	assert_true(r->spaces > spaces);
	rig_fill(r, 5000, PAGE, 300);
}

/* Is the page still where it was? */
static bool is_at(struct rig *r, u64 offset)
{
	struct kvc_load ld;
	bool same;

	if (rig_hold(r, r->d, 1000, &ld))
		return false;
	same = ld.offset == offset;
	kvc_load_end(r->pool, &ld, 0);
	return same;
}

/* A segment with a load in flight keeps its bytes: its place is given to nobody, and no discard goes there. */
static void holds_are_waited_for(void **state)
{
	struct rig *r = *state;
	struct kvc_load ld;
	u8 block[KVC_BLOCK];
	struct kvc_work w;
	bool gone = false;
	u64 start;
	u32 i;

	assert_int_equal(rig_store(r, r->d, 1000, 77, 100), 0);
	assert_int_equal(rig_hold(r, r->d, 1000, &ld), 0);
	start = ld.offset & ~(u64)(KVC_SEGMENT_MIN - 1);
	for (i = 0; i < 300; i++) {
		struct kvc_store st;
		int ret = rig_begin(r, r->d, i, PAGE, &st);

		if (ret == 0) {
			assert_true(!gone || st.offset < start || st.offset >= start + KVC_SEGMENT_MIN);
			rig_write_page(r, &st, i);
			kvc_store_commit(r->pool, &st);
		}
		while (kvc_work_next(r->pool, 0, &w)) {
			assert_true(w.offset < start || w.offset >= start + KVC_SEGMENT_MIN || !gone);
			kvc_work_done(r->pool, &w, rig_exec(r, &w));
		}
		gone |= !is_at(r, ld.offset);
	}
	assert_true(gone);
	/* It left the index, or was moved; the load in flight reads what it came for. */
	dev_pread(r->devs[0], ld.offset, block, 100);
	assert_int_equal(page_compare(block, 77, 0, 100), 100);
	r->kicked[0] = false;
	kvc_load_end(r->pool, &ld, 0);
	/* The worker was waiting for this. */
	assert_true(r->kicked[0]);
	rig_work(r);
	rig_fill(r, 5000, PAGE, 300);
}

static u32 allocations;

static bool count_them(size_t size)
{
	(void)size;
	allocations++;
	return false;
}

/* Allocations that finding or making the domain of this keyspace takes */
static u32 cost_of_domain(struct rig *r, u32 keyspace)
{
	struct kvc_domain *d;

	allocations = 0;
	os_alloc_fault = count_them;
	d = rig_domain(r, 0, keyspace);
	os_alloc_fault = NULL;
	assert_non_null(d);
	kvc_domain_put(r->pool, d);
	return allocations;
}

/* A keyspace costs memory as long as it has pages, and no longer. */
static void domains_go_with_their_pages(void **state)
{
	struct rig *r = *state;
	struct kvc_domain *d = rig_domain(r, 0, 9);

	assert_int_equal(rig_store(r, d, 1, 1, 100), 0);
	kvc_domain_put(r->pool, d);
	assert_int_equal(cost_of_domain(r, 9), 0);
	rig_fill(r, 0, PAGE, 200);
	assert_true(cost_of_domain(r, 9) > 0);
}

/* The header is replaced before the segment is used, and after that the old pages are forgotten for good. */
static void generations_rise(void **state)
{
	struct rig *r = *state;
	u32 n, i, found;

	n = rig_fill(r, 0, PAGE, 300);
	rig_flush(r);
	rig_cut(r);
	rig_recover(r);
	for (i = 0, found = 0; i < n; i++) {
		int ret = rig_load(r, r->d, i, i);

		assert_true(ret == 0 || ret == -ENOENT);
		found += ret == 0;
	}
	assert_true(found >= 70 && found < 16 * 7);
	assert_int_equal(rig_stats(r).recovered_pages, found);
}

/* Moved, then cut before anything was flushed by the user: the copy was made durable before the original went. */
static void moves_are_durable(void **state)
{
	struct rig *r = *state;
	struct kvc_work w;
	u32 n, round;

	for (round = 0; round < 12; round++) {
		assert_int_equal(rig_store(r, r->d, 9000 + round, round, 5000), 0);
		rig_flush(r);
		assert_int_equal(rig_load(r, r->d, 9000 + round, round), 0);
		n = rig_fill(r, round * 200, PAGE, 60);
		/* Stop after any number of items. */
		for (n = 0; n < round && rig_step(r, 0, &w); n++)
			;
		rig_cut(r);
		rig_recover(r);
		assert_int_equal(rig_load(r, r->d, 9000 + round, round), 0);
		rig_work(r);
	}
}

/* A damaged page is not moved but dropped. */
static void damaged_page_is_not_moved(void **state)
{
	struct rig *r = *state;
	struct kvc_load ld;
	u32 n = 0;

	assert_int_equal(rig_store(r, r->d, 9000, 1, 5000), 0);
	assert_int_equal(rig_load(r, r->d, 9000, 1), 0);
	place_of(r, 9000, &ld);
	dev_flip(r->devs[0], ld.offset + 4999, 0);
	while (rig_hold(r, r->d, 9000, &ld) == 0) {
		/* somebody who does not look at what is loaded */
		kvc_load_end(r->pool, &ld, 0);
		n = rig_fill(r, n, PAGE, 5);
	}
	assert_int_equal(rig_query(r, r->d, 9000), -ENOENT);
	assert_int_equal(rig_stats(r).bad_pages, 1);
}

/*
 * Pages that lie side by side are moved at once: each is in front of the one before it at both ends, so that together
 * they are what is read from there, and they may end in any order. Until all have, their segment does not go, nor is
 * anything begun that counts on them.
 */
static void moves_together(void **state)
{
	struct rig *r = *state;
	struct kvc_member *m = &r->pool->members[0];
	u32 n = rig_fill(r, 0, PAGE, 4), nr = 0, i;
	struct kvc_run run;
	struct kvc_work *w = run.w, more;
	u8 *buf;

	while (nr < 2) {
		for (i = 0; i < 3; i++)
			assert_int_equal(rig_load(r, r->d, i, i), 0);
		assert_int_equal(rig_store(r, r->d, n, n, PAGE), 0);
		n++;
		while (nr < 2 && kvc_run_next(r->pool, 0, &run) == 1) {
			nr = run.together;
			assert_int_equal(run.nr, nr);
			for (i = 0; i < nr && nr < 2; i++)
				kvc_work_done(r->pool, w, rig_exec(r, w));
		}
	}
	assert_int_equal(m->reclaim.moving, nr);
	assert_int_equal(run.bytes, (u64)nr * kvc_padded(PAGE));
	for (i = 1; i < nr; i++) {
		assert_int_equal(w[i].offset + kvc_padded(PAGE), w[i - 1].offset);
		assert_int_equal(w[i].src_offset + kvc_padded(PAGE), w[i - 1].src_offset);
	}
	buf = malloc(run.bytes);
	dev_pread(r->devs[0], kvc_run_front(&run)->src_offset, buf, (u32)run.bytes);
	assert_int_equal(kvc_run_check(r->pool, &run, buf), 0);
	for (i = 0; i < nr; i++) {
		buf[i * kvc_padded(PAGE) + PAGE - 1] ^= 1;
		assert_int_equal(kvc_run_check(r->pool, &run, buf), -EBADMSG);
		buf[i * kvc_padded(PAGE) + PAGE - 1] ^= 1;
	}
	free(buf);
	while (nr--) {
		while (kvc_work_next(r->pool, 0, &more) == 1) {
			assert_int_equal(more.type, KVC_WORK_WRITE);
			kvc_work_done(r->pool, &more, rig_exec(r, &more));
		}
		assert_int_equal(m->reclaim.phase, KVC_R_MOVE);
		kvc_work_done(r->pool, &w[nr], rig_exec(r, &w[nr]));
	}
	rig_work(r);
	rig_flush(r);
	rig_cut(r);
	rig_recover(r);
	for (i = 0; i < 3; i++)
		assert_int_equal(rig_load(r, r->d, i, i), 0);
}

/*
 * All pages are leased, and a tombstone has a segment for itself: to carry it from one segment to the next makes no room.
 * Who waits is told so, and the device is not worn for it.
 */
static void tombstones_alone(void **state)
{
	struct rig *r = *state;
	struct kvc_lease l;
	struct kvc_work w;
	u32 id = 0, steps;
	int ret = 0;

	rig_keep_leases(r);
	while (ret != -ENOSPC) {
		ret = rig_store(r, r->d, id, id, kvc_page_max(r->pool));
		if (!ret) {
			rig_flush(r);
			assert_int_equal(rig_lease(r, r->d, id, &l), 0);
			if (id == 2)
				assert_int_equal(rig_delete(r, r->d, 1), 0);
			id++;
		}
		for (steps = 0; rig_step(r, 0, &w); steps++)
			assert_true(steps < 100);
	}
	assert_int_equal(rig_stats(r).evicted_pages, 0);
}

/*
 * A power cut leaves a segment whose log has no end, so it may hide pages, and until it has gone no tombstone can. It is
 * the youngest, and goes before all others.
 */
static void what_hides_goes_first(void **state)
{
	struct rig *r = *state;
	u32 last = rig_fill(r, 0, kvc_page_max(r->pool), 8) - 1, id = 1000, hiding = 0, i;

	rig_flush(r);
	rig_cut(r);
	rig_attach(r);
	for (i = 0; i < 16; i++)
		hiding += r->pool->members[0].segs[i].hiding;
	assert_int_equal(hiding, 1);
	while (!rig_stats(r).evicted_pages)
		id = rig_fill(r, id, kvc_page_max(r->pool), 1);
	assert_int_equal(rig_query(r, r->d, last), -ENOENT);
	for (i = 0; i < last; i++)
		assert_int_equal(rig_load(r, r->d, i, i), 0);
}

/* Stores pages and does the member's work, but headers cannot be written. What the last store got; *@id: pages stored */
static int store_without_headers(struct rig *r, u32 *id)
{
	struct kvc_work w;
	int ret = 0;
	u32 i;

	for (i = 0; i < 200 && ret != -ENOSPC; i++) {
		ret = rig_store(r, r->d, *id, *id, kvc_page_max(r->pool));
		*id += !ret;
		while (kvc_work_next(r->pool, 0, &w) == 1)
			kvc_work_done(r->pool, &w, w.kind == KVC_W_HEADER ? -EIO : rig_exec(r, &w));
	}
	return ret;
}

/*
 * Headers cannot be written any more. A segment whose header failed is no room, so pages go in vain: few do, then those
 * who want room are told that there is none. When the next attach can write them all is well.
 */
static void headers_fail(void **state)
{
	struct rig *r = *state;
	u32 id, found = 0, i;
	u64 before, evicted;

	id = rig_fill(r, 0, kvc_page_max(r->pool), 20);
	before = rig_stats(r).evicted_pages;
	assert_int_equal(store_without_headers(r, &id), -ENOSPC);
	evicted = rig_stats(r).evicted_pages - before;
	assert_in_range(evicted, 1, 3);
	for (i = 0; i < id; i++)
		found += !rig_load(r, r->d, i, i);
	assert_int_equal(found, rig_stats(r).pages);
	assert_true(found >= 10);
	rig_flush(r);
	rig_again(r);
	rig_fill(r, 1000, kvc_page_max(r->pool), 20);
}

/* A header that was written between others that could not be is reason enough to go on. */
static void some_headers_fail(void **state)
{
	struct rig *r = *state;
	struct kvc_work w;
	u32 id = rig_fill(r, 0, kvc_page_max(r->pool), 20), headers = 0;
	int ret = 0;

	while (headers < 8) {
		ret = rig_store(r, r->d, id, id, kvc_page_max(r->pool));
		assert_int_not_equal(ret, -ENOSPC);
		id += !ret;
		while (kvc_work_next(r->pool, 0, &w) == 1)
			kvc_work_done(r->pool, &w, w.kind == KVC_W_HEADER && headers++ % 2 ? -EIO : rig_exec(r, &w));
	}
}

/*
 * A segment could not be read at attach, so no tombstone can go. When they fill the member, those who want room are told so
 * and nothing is carried round for ever, whether or not anybody waits.
 */
static void tombstones_fill_all(void **state)
{
	struct rig *r = rig_segments(8);
	struct kvc_work w;
	u32 id = 10, steps;
	int ret = 0;

	(void)state;
	assert_int_equal(rig_store(r, r->d, 1, 1, 500), 0);
	rig_flush(r);
	rig_detach(r);
	r->unreadable = 0;
	rig_attach(r);
	for (; ret != -ENOSPC && id < 10000; id++) {
		ret = rig_store(r, r->d, id, id, 500);
		if (!ret)
			ret = rig_delete(r, r->d, id);
		for (steps = 0; rig_step(r, 0, &w); steps++)
			assert_true(steps < 3000);
	}
	rig_free(r);
}

static const struct CMUnitTest reclaim_tests[] = {
	cmocka_unit_test(tombstones_fill_all),
	cmocka_unit_test_setup_teardown(newest_stay, make, unmake),
	cmocka_unit_test_setup_teardown(nothing_goes_early, make, unmake),
	cmocka_unit_test_setup_teardown(hot_pages_survive, make, unmake),
	cmocka_unit_test_setup_teardown(oldest_after_tombstones, make, unmake),
	cmocka_unit_test_setup_teardown(newest_after_tombstones, make, unmake),
	cmocka_unit_test_setup_teardown(leased_pages_stay, make, unmake),
	cmocka_unit_test_setup_teardown(all_is_leased, make, unmake),
	cmocka_unit_test_setup_teardown(tombstones_alone, make, unmake),
	cmocka_unit_test_setup_teardown(holds_are_waited_for, make, unmake),
	cmocka_unit_test_setup_teardown(domains_go_with_their_pages, make, unmake),
	cmocka_unit_test_setup_teardown(generations_rise, make, unmake),
	cmocka_unit_test_setup_teardown(moves_are_durable, make, unmake),
	cmocka_unit_test_setup_teardown(damaged_page_is_not_moved, make, unmake),
	cmocka_unit_test_setup_teardown(moves_together, make, unmake),
	cmocka_unit_test_setup_teardown(what_hides_goes_first, make, unmake),
	cmocka_unit_test_setup_teardown(headers_fail, make, unmake),
	cmocka_unit_test_setup_teardown(some_headers_fail, make, unmake),
};

TEST_GROUP(reclaim);
