// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of the index: that it is counted, and what its limit does to stores and to attaches.
 */
#include "log/log.h"
#include "test.h"

#define SLACK		(6U * 4104)	/* blocks of entries and CRCs of a head or two */
#define LENGTH		100U

/* 96 segments of 1 MiB, which small pages fill with five blocks of memory each */
static int make(void **state)
{
	*state = rig_new(1, 96, 1U << 20, KVC_CHUNK_MIN);
	return 0;
}

static int unmake(void **state)
{
	rig_free(*state);
	return 0;
}

static u64 counted_again(struct rig *r)
{
	struct kvc_pool *p = r->pool;
	const struct kvc_directory *dir;
	const struct kvc_buckets *t;
	u64 bytes = p->domains.nr * sizeof(struct kvc_domain);
	u32 i, m;

	for (m = 0; m < kvc_nr_members(p); m++)
		for (i = 0; i < p->members[m].nr_segs; i++)
			bytes += kvc_seg_bytes(p, &p->members[m].segs[i]);
	for (i = 0; i < KVC_SHARDS + KVC_DOMAIN_SHARDS; i++) {
		t = i < KVC_SHARDS ? &p->shards[i].table : &p->domains.shard[i - KVC_SHARDS].table;
		bytes += t->nr_chunks * sizeof(struct kvc_chunk);
		/* the first of all has no elder */
		for (dir = t->dir; dir && dir->older; dir = dir->older)
			bytes += sizeof(*dir) + dir->room * sizeof(*dir->chunk);
	}
	return bytes;
}

static int store_in(struct rig *r, struct kvc_domain *d, u32 id)
{
	u32 tries;
	int ret;

	for (tries = 0; tries < 1000; tries++) {
		ret = rig_store(r, d, id, id, LENGTH);
		if (ret != -EAGAIN)
			break;
		rig_work(r);
	}
	return ret;
}

static int store_small(struct rig *r, u32 id)
{
	return store_in(r, r->d, id);
}

static u32 store_many(struct rig *r, u32 id, u32 count)
{
	while (count--)
		assert_int_equal(store_small(r, id++), 0);
	return id;
}

static u32 free_segments(struct rig *r)
{
	u32 total, free;

	kvc_member_segments(r->pool, 0, &total, &free);
	return free;
}

static u32 present(struct rig *r, u32 first, u32 count)
{
	u32 i, n = 0;

	for (i = 0; i < count; i++)
		n += rig_query(r, r->d, first + i) >= 0;
	return n;
}

static void all_is_counted(void **state)
{
	struct rig *r = *state;
	u32 n;

	assert_int_equal(kvc_index_bytes(r->pool), counted_again(r));
	n = store_many(r, 0, 3000);
	assert_int_equal(kvc_index_bytes(r->pool), counted_again(r));
	assert_true(kvc_index_bytes(r->pool) > 3000 * sizeof(struct kvc_entry));
	/* in and out */
	store_many(r, n, 40000);
	assert_true(rig_stats(r).evicted_pages > 10000);
	assert_int_equal(kvc_index_bytes(r->pool), counted_again(r));
	rig_again(r);
	assert_int_equal(kvc_index_bytes(r->pool), counted_again(r));
}

/* Stores go on at the limit, at the cost of what is there, with room on the member. */
static void limit_evicts(void **state)
{
	struct rig *r = *state;
	u32 n = store_many(r, 0, 5000), i;
	u64 limit = kvc_index_bytes(r->pool);

	kvc_index_limit(r->pool, limit);
	for (i = 0; i < 20000; i++) {
		assert_int_equal(store_small(r, n++), 0);
		assert_true(kvc_index_bytes(r->pool) <= limit + SLACK);
	}
	assert_true(rig_stats(r).evicted_pages > 15000);
	assert_true(free_segments(r) > 50);
	/* and not more than that takes */
	assert_true(rig_stats(r).pages > 3000);
	assert_int_equal(kvc_index_bytes(r->pool), counted_again(r));
}

/* Whose pages are small pays for it. */
static void large_pages_stay(void **state)
{
	struct rig *r = *state;
	u32 n = 0, i;

	for (i = 0; i < 60; i++)
		assert_int_equal(rig_store_on(r, 0, 100000 + i, i, 300000), 0);
	n = store_many(r, n, 5000);
	kvc_index_limit(r->pool, kvc_index_bytes(r->pool));
	store_many(r, n, 10000);
	assert_int_equal(present(r, 100000, 60), 60);
}

/* When nothing can be evicted that is said, and when something can, it is. */
static void nothing_to_evict(void **state)
{
	struct rig *r = *state;
	u32 n = store_many(r, 0, 2000), i, spaces, nr = 0;
	static struct kvc_lease l[2000];

	for (i = 0; i < n; i++)
		nr += !rig_lease(r, r->d, i, &l[nr]);
	assert_int_equal(nr, n);
	kvc_index_limit(r->pool, kvc_index_bytes(r->pool) - 3 * 4104);
	/* what heads have room for */
	for (i = 0; i < 1000; i++) {
		int ret = store_small(r, n + i);

		if (ret) {
			assert_int_equal(ret, -ENOSPC);
			break;
		}
	}
	assert_true(i < 1000);
	spaces = r->spaces;
	for (nr = 0; nr < n; nr++)
		kvc_lease_put(r->pool, &l[nr]);
	rig_work(r);
	assert_int_equal(store_small(r, n + i), 0);
	assert_true(r->spaces > spaces);
}

/* When all else is leased, what the open segments have is evicted, too. */
static void heads_are_evicted(void **state)
{
	struct rig *r = *state;
	u32 n = store_many(r, 0, 3100), i, nr = 0;
	static struct kvc_lease l[3100];
	struct kvc_load newest, ld;

	place_of(r, n - 1, &newest);
	for (i = 0; i < n; i++) {
		place_of(r, i, &ld);
		if (ld.gseg != newest.gseg)
			assert_int_equal(rig_lease(r, r->d, i, &l[nr++]), 0);
	}
	assert_true(nr > 2500);
	kvc_index_limit(r->pool, kvc_index_bytes(r->pool) - 1);
	store_many(r, n, 400);
	assert_true(rig_stats(r).evicted_pages >= n - nr);
	while (nr)
		kvc_lease_put(r->pool, &l[--nr]);
}

/* Leases beyond their tenant's share yield for memory, when nothing else can go. */
static void leases_yield(void **state)
{
	struct rig *r = *state;
	u32 n = store_many(r, 0, 9000), i, lasting = 0;
	static struct kvc_lease l[9000];

	for (i = 0; i < n; i++)
		assert_int_equal(rig_lease(r, r->d, i, &l[i]), 0);
	kvc_index_limit(r->pool, kvc_index_bytes(r->pool) - 3 * 4104);
	store_many(r, n, 250);
	for (i = 0; i < n; i++)
		lasting += kvc_lease_lasts(&l[i]);
	/* and no more of them than are needed */
	assert_in_range(lasting, n - 1000, n - 1);
	for (i = 0; i < n; i++)
		kvc_lease_put(r->pool, &l[i]);
}

/* Others' small pages do not take what a tenant's reserve keeps. When there is nothing else stores are refused. */
static void reserves_stay(void **state)
{
	struct rig *r = *state;
	struct kvc_limits limits = { .reserve = 20U << 20 };
	struct kvc_domain *d;
	u32 i, n = 0;

	assert_int_equal(kvc_tenant_add(r->pool, "other", 0, 0, 0600, 0), 1);
	rig_write_super(r);
	d = rig_domain(r, 1, 0);
	assert_int_equal(kvc_tenant_limit(r->pool, "other", &limits), 0);
	for (i = 0; i < 3000; i++)
		assert_int_equal(store_in(r, d, i), 0);
	n = store_many(r, n, 3000);
	kvc_index_limit(r->pool, kvc_index_bytes(r->pool));
	n = store_many(r, n, 10000);
	assert_true(rig_stats(r).evicted_pages > 8000);
	for (i = 0; i < 3000; i++)
		assert_true(rig_query(r, d, i) >= 0);
	kvc_index_limit(r->pool, kvc_index_bytes(r->pool) / 3);
	for (i = 0; i < 1000 && !store_small(r, n + i); i++)
		;
	assert_int_equal(store_small(r, n + i), -ENOSPC);
	for (i = 0; i < 3000; i++)
		assert_true(rig_query(r, d, i) >= 0);
	kvc_domain_put(r->pool, d);
}

/* Deletes have the memory that they need. */
static void deletes_at_the_limit(void **state)
{
	struct rig *r = *state;
	u32 n = store_many(r, 0, 3000), i;

	rig_flush(r);
	kvc_index_limit(r->pool, 1);
	assert_int_equal(rig_delete(r, r->d, n - 1), 0);
	for (i = 0; i < n - 1; i++) {
		int ret = rig_delete(r, r->d, i);

		if (ret == -EAGAIN) {
			rig_work(r);
			ret = rig_delete(r, r->d, i);
		}
		assert_true(ret == 0 || ret == -ENOENT);
	}
	assert_int_equal(rig_stats(r).pages, 0);
}

static void attach_drops_the_oldest(void **state)
{
	struct rig *r = *state;
	u32 n = store_many(r, 0, 15000), pages, i, round;
	u64 limit;

	rig_flush(r);
	limit = kvc_index_bytes(r->pool) / 10 * 7;
	for (round = 0; round < 2; round++) {
		rig_detach(r);
		r->index_limit = limit;
		r->backwards = round;
		rig_recover(r);
		pages = rig_stats(r).pages;
		assert_true(kvc_index_bytes(r->pool) <= limit);
		assert_int_equal(kvc_index_bytes(r->pool), counted_again(r));
		assert_int_equal(rig_stats(r).recovered_pages, pages);
		assert_int_equal(rig_stats(r).recover_dropped, n - pages);
		assert_true(pages > n / 4 && pages < n);
		assert_int_equal(present(r, n - pages, pages), pages);
	}
	/* and the pool goes on */
	store_many(r, n, 3000);
	rig_flush(r);
	/* with memory for them the others are there again, unless their segments went */
	rig_detach(r);
	r->index_limit = 0;
	rig_attach(r);
	assert_int_equal(rig_stats(r).recover_dropped, 0);
	assert_true(rig_stats(r).pages > pages);
	for (i = n; i < n + 3000; i += 100)
		assert_int_equal(rig_query(r, r->d, i) < 0, false);
}

/* What was deleted stays so, whether its page or its tombstone was in a segment that was dropped. */
static void dropped_and_deleted(void **state)
{
	struct rig *r = *state;
	u32 n = store_many(r, 0, 8000), i;

	rig_flush(r);
	/* tombstones lie among the oldest pages, and behind the newest */
	for (i = 0; i < n; i += 7)
		assert_int_equal(rig_delete(r, r->d, i), 0);
	n = store_many(r, n, 4000);
	for (i = 1; i < n; i += 7)
		assert_int_equal(rig_delete(r, r->d, i), 0);
	kvc_pool_rest(r->pool);
	rig_flush(r);
	r->index_limit = kvc_index_bytes(r->pool) / 10 * 7;
	rig_again(r);
	assert_true(rig_stats(r).recover_dropped > 1000);
	/* a page that was dropped, stored again and deleted */
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
	assert_int_equal(store_small(r, 2), 0);
	assert_int_equal(rig_delete(r, r->d, 2), 0);
	store_many(r, n, 6000);
	rig_flush(r);
	rig_detach(r);
	r->index_limit = 0;
	rig_attach(r);
	for (i = 0; i < 8000; i += 7)
		assert_int_equal(rig_query(r, r->d, i), -ENOENT);
	for (i = 1; i < n; i += 7)
		assert_int_equal(rig_query(r, r->d, i), -ENOENT);
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
}

/*
 * A page that an attach left out, stored once more and deleted before media had it a second time: with memory for it
 * again it stays away.
 */
static void deleted_while_left_out(void **state)
{
	struct rig *r = *state;
	u32 n = store_many(r, 0, 8000), gone;

	kvc_pool_rest(r->pool);
	rig_flush(r);
	r->index_limit = kvc_index_bytes(r->pool) / 10 * 7;
	rig_again(r);
	gone = rig_stats(r).recover_dropped;
	assert_true(gone > 1000 && gone < n);
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
	assert_int_equal(store_small(r, 2), 0);
	assert_int_equal(rig_delete(r, r->d, 2), 0);
	rig_flush(r);
	rig_detach(r);
	r->index_limit = 0;
	rig_attach(r);
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
	assert_int_equal(present(r, 0, n), n - 1);
}

static int make_two(void **state)
{
	*state = rig_new(2, 96, 1U << 20, KVC_CHUNK_MIN);
	return 0;
}

/*
 * What was replaced stays away also when the page that took its place, which stands before its tombstone, goes for want
 * of memory before the old one is read.
 */
static void replaced_behind_a_dropped(void **state)
{
	struct rig *r = *state;
	struct kvc_store st;
	u8 key[KVC_KEY_LEN];
	u32 i;

	/* the old page is in a segment that is opened late, the other in one that was opened early */
	for (i = 0; i < 500; i++)
		assert_int_equal(rig_store_on(r, 0, 1000 + i, i, LENGTH), 0);
	for (i = 0; i < 4000; i++)
		assert_int_equal(rig_store_on(r, 1, 5000 + i, i, LENGTH), 0);
	assert_int_equal(rig_store_on(r, 1, 1, 1, LENGTH), 0);
	rig_flush(r);
	key_make(key, 1);
	assert_int_equal(kvc_replace_begin(r->pool, r->d, key, LENGTH, 1, BIT_ULL(0), &st), 0);
	rig_write_page(r, &st, 2);
	kvc_store_commit(r->pool, &st);
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_load(r, r->d, 1, 2), 0);
	/* which is passed shortly before the last segment is read */
	r->index_limit = kvc_index_bytes(r->pool) - 5 * 4104;
	rig_detach(r);
	rig_recover(r);
	assert_true(rig_stats(r).recover_dropped > 100);
	assert_true(rig_stats(r).pages > 100);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
}

/* Who waits for memory is told when the limit is raised. */
static void limit_rises(void **state)
{
	struct rig *r = *state;
	u32 n = store_many(r, 0, 3000), spaces, i;
	int ret = 0;

	kvc_index_limit(r->pool, kvc_index_bytes(r->pool) - 1);
	for (i = 0; i < 1000 && !ret; i++)
		ret = rig_store(r, r->d, n + i, 1, LENGTH);
	assert_int_equal(ret, -EAGAIN);
	spaces = r->spaces;
	kvc_index_limit(r->pool, 2 * kvc_index_bytes(r->pool));
	assert_int_equal(r->spaces, spaces + 1);
	assert_int_equal(rig_store(r, r->d, n + i, 1, LENGTH), 0);
}

/* Is there a head that has tombstones, and has had nothing else? */
static bool tombs_alone(struct rig *r)
{
	const struct kvc_seg *head = r->pool->members[0].head[KVC_HEAD_NEW];

	return head && head->nr_eblocks && head->data_start == r->pool->seg_blocks;
}

/*
 * A page that takes a segment, where there are a page in another tenant's head, and tombstones that are needed: how often
 * its store is tried, until it succeeds or nothing can be evicted
 */
static u32 store_beside_tombstones(u64 less)
{
	struct kvc_limits limits = { .quota = 1U << 20 };
	struct rig *r = rig_small(2);
	struct kvc_domain *d;
	u32 i, tries;
	int ret;

	assert_int_equal(kvc_tenant_add(r->pool, "other", 0, 0, 0600, 0), 1);
	rig_write_super(r);
	d = rig_domain(r, 1, 0);
	assert_int_equal(kvc_tenant_limit(r->pool, "other", &limits), 0);
	/* an older page may be there */
	assert_int_equal(rig_store_on(r, 1, 0, 0, LENGTH), 0);
	rig_flush(r);
	kvc_member_fail(r->pool, 1);
	assert_int_equal(store_in(r, d, 0), 0);
	for (i = 1; i < 200; i++)
		assert_int_equal(rig_store_on(r, 0, i, i, LENGTH), 0);
	rig_flush(r);
	/* an extent each, until what is sealed has no room for them */
	for (i = 1; !tombs_alone(r); i++) {
		assert_int_equal(rig_delete(r, r->d, i), 0);
		rig_flush(r);
	}
	kvc_index_limit(r->pool, kvc_index_bytes(r->pool) - less);
	for (tries = 0, ret = -EAGAIN; tries < 200 && ret == -EAGAIN; tries++) {
		ret = rig_store(r, r->d, 1000, 1, kvc_page_max(r->pool));
		rig_work(r);
	}
	assert_true(!ret || ret == -ENOSPC);
	kvc_domain_put(r->pool, d);
	rig_free(r);
	return tries;
}

/*
 * Tombstones that are needed, as a member is lost, take as much memory in another segment: they are not carried round and
 * round for it, ahead of a page that leaves no room in its segment for them.
 */
static void tombstones_stay(void **state)
{
	u64 less;

	(void)state;
	for (less = 0; less < 40000; less += 2000)
		assert_in_range(store_beside_tombstones(less), 1, 4);
}

static int make_three(void **state)
{
	*state = rig_new(3, 96, 1U << 20, KVC_CHUNK_MIN);
	rig_write_super(*state);
	return 0;
}

/* What is on a member that was leaving when another was lost stays there: nobody waits for it. */
static void left_half_way(void **state)
{
	struct rig *r = *state;
	int ret = -EAGAIN;
	u32 i;

	for (i = 0; i < 2000; i++)
		assert_int_equal(rig_store_on(r, 1, i, i, LENGTH), 0);
	rig_flush(r);
	assert_int_equal(kvc_member_leave(r->pool, 1, true), 0);
	kvc_member_fail(r->pool, 2);
	kvc_index_limit(r->pool, 1);
	for (i = 0; i < 1000 && (!ret || ret == -EAGAIN); i++)
		ret = store_small(r, 10000 + i);
	assert_int_equal(ret, -ENOSPC);
	assert_int_equal(rig_stats(r).evicted_pages, 0);
}

static const struct CMUnitTest memory_tests[] = {
	cmocka_unit_test_setup_teardown(all_is_counted, make, unmake),
	cmocka_unit_test_setup_teardown(limit_evicts, make, unmake),
	cmocka_unit_test_setup_teardown(large_pages_stay, make, unmake),
	cmocka_unit_test_setup_teardown(nothing_to_evict, make, unmake),
	cmocka_unit_test_setup_teardown(heads_are_evicted, make, unmake),
	cmocka_unit_test_setup_teardown(leases_yield, make, unmake),
	cmocka_unit_test_setup_teardown(reserves_stay, make, unmake),
	cmocka_unit_test_setup_teardown(deletes_at_the_limit, make, unmake),
	cmocka_unit_test_setup_teardown(attach_drops_the_oldest, make, unmake),
	cmocka_unit_test_setup_teardown(dropped_and_deleted, make, unmake),
	cmocka_unit_test_setup_teardown(deleted_while_left_out, make, unmake),
	cmocka_unit_test_setup_teardown(replaced_behind_a_dropped, make_two, unmake),
	cmocka_unit_test(tombstones_stay),
	cmocka_unit_test_setup_teardown(left_half_way, make_three, unmake),
	cmocka_unit_test_setup_teardown(limit_rises, make, unmake),
};

TEST_GROUP(memory);
