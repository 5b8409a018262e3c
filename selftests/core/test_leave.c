// SPDX-License-Identifier: GPL-2.0
/*
 * Members that are added to a pool in use, and removed from it, their pages moved or dropped.
 */
#include "test.h"

static struct rig *pool_of(u32 members)
{
	struct rig *r = rig_small(members);

	rig_write_super(r);
	return r;
}

static int make(void **state)
{
	*state = pool_of(2);
	return 0;
}

static int unmake(void **state)
{
	rig_free(*state);
	return 0;
}

static void pages_are_there(struct rig *r, u32 from, u32 count)
{
	u32 i;

	for (i = from; i < from + count; i++)
		assert_int_equal(rig_load(r, r->d, i, i), 0);
}

static u32 pages_on(struct rig *r, u32 member, u32 count)
{
	struct kvc_load ld;
	u32 n = 0, i;

	for (i = 0; i < count; i++) {
		if (rig_hold(r, r->d, i, &ld))
			continue;
		n += ld.member == member;
		kvc_load_end(r->pool, &ld, 0);
	}
	return n;
}

static void add_member(void **state)
{
	struct rig *r = *state;
	u32 n;

	rig_fill(r, 0, 5000, 40);
	rig_flush(r);
	n = (u32)rig_add_member(r, 16);
	assert_int_equal(n, 2);
	assert_int_equal(rig_store_on(r, 2, 500, 500, 5000), -ENODEV);	/* not yet */
	rig_write_super(r);
	assert_int_equal(kvc_super_check(kvc_super_of(r->pool)), KVC_OK);
	assert_int_equal(kvc_super_of(r->pool)->members[2].flags, 0);
	kvc_member_join(r->pool, 2);
	rig_work(r);
	assert_int_equal(kvc_capacity(r->pool), 48 * KVC_SEGMENT_MIN);
	assert_int_equal(rig_store_on(r, 2, 500, 500, 5000), 0);
	rig_fill(r, 40, 5000, 60);
	assert_true(pages_on(r, 2, 100) >= 15);
	rig_flush(r);
	rig_cut(r);
	rig_attach(r);
	pages_are_there(r, 0, 100);
	assert_int_equal(rig_load(r, r->d, 500, 500), 0);
}

/* The superblock with the new member was not written any more: the pool is what it was. */
static void add_is_cut(void **state)
{
	struct rig *r = *state;

	rig_fill(r, 0, 5000, 40);
	rig_flush(r);
	assert_int_equal(rig_add_member(r, 16), 2);
	rig_cut(r);
	rig_attach(r);
	assert_int_equal(kvc_nr_members(r->pool), 2);
	pages_are_there(r, 0, 40);
}

static void add_is_cancelled(void **state)
{
	struct rig *r = *state;

	assert_int_equal(rig_add_member(r, 2), -EINVAL);
	assert_int_equal(rig_add_member(r, 16), 2);
	kvc_member_cancel(r->pool, 2);
	assert_int_equal(kvc_super_of(r->pool)->nr_members, 2);
	assert_int_equal(kvc_super_check(kvc_super_of(r->pool)), KVC_OK);
	assert_false(kvc_member_online(r->pool, 2));
	/* the number is not used again before the next attach */
	assert_int_equal(rig_add_member(r, 16), 3);
	assert_true(kvc_super_hole(kvc_super_of(r->pool), 2));
	assert_int_equal(kvc_super_check(kvc_super_of(r->pool)), KVC_OK);
	kvc_member_join(r->pool, 3);
	rig_work(r);
	assert_int_equal(rig_fill(r, 0, 5000, 60), 60);
}

static void leave(struct rig *r, u32 member, bool move)
{
	assert_int_equal(kvc_member_leave(r->pool, member, move), 0);
	rig_work(r);
	assert_true(kvc_member_left(r->pool, member));
	assert_int_equal(kvc_member_bytes(r->pool, member), 0);
	rig_flush(r);
}

static void take_out(struct rig *r, u32 member)
{
	kvc_member_remove(r->pool, member);
	rig_write_super(r);
	kvc_member_forget(r->pool, member);
}

static void move_and_remove(void **state)
{
	struct rig *r = pool_of(3);
	u32 i;

	(void)state;
	rig_fill(r, 0, 5000, 90);
	assert_true(pages_on(r, 1, 90) > 20);
	leave(r, 1, true);
	assert_int_equal(pages_on(r, 1, 90), 0);
	assert_int_equal(rig_stats(r).evicted_pages, 0);
	pages_are_there(r, 0, 90);
	assert_in_range(pages_on(r, 0, 90), 44, 46);	/* and as many on the last one */
	/* until the superblock without it is written the pool is what it was */
	rig_cut(r);
	rig_attach(r);
	pages_are_there(r, 0, 90);
	leave(r, 1, true);
	take_out(r, 1);
	assert_int_equal(kvc_super_of(r->pool)->nr_members, 3);
	assert_true(kvc_super_hole(kvc_super_of(r->pool), 1));
	assert_int_equal(kvc_super_check(kvc_super_of(r->pool)), KVC_OK);
	rig_fill(r, 90, 5000, 30);
	for (i = 0; i < 10; i++)
		assert_int_equal(rig_delete(r, r->d, i), 0);
	rig_flush(r);
	rig_cut(r);
	rig_attach(r);
	pages_are_there(r, 10, 110);
	for (i = 0; i < 10; i++)
		assert_int_equal(rig_query(r, r->d, i), -ENOENT);
	/* another one takes its place */
	assert_int_equal(rig_add_member(r, 8), 1);
	rig_write_super(r);
	kvc_member_join(r->pool, 1);
	rig_work(r);
	assert_int_equal(rig_store_on(r, 1, 400, 400, 5000), 0);
	rig_flush(r);
	rig_again(r);
	pages_are_there(r, 10, 110);
	pages_are_there(r, 400, 1);
	rig_free(r);
}

/* Who is not there leaves no gap, whose turns its neighbour would get. */
static void turns_without(void **state)
{
	struct rig *r = pool_of(5);
	u32 i;

	(void)state;
	kvc_member_fail(r->pool, 1);
	leave(r, 2, true);
	assert_int_equal(rig_fill(r, 0, 5000, 90), 90);
	for (i = 0; i < 5; i++)
		assert_int_equal(pages_on(r, i, 90), i == 1 || i == 2 ? 0 : 30);
	rig_free(r);
}

static void drop_and_remove(void **state)
{
	struct rig *r = pool_of(3);
	u64 mark;
	u32 lost;

	(void)state;
	rig_fill(r, 0, 5000, 90);
	rig_flush(r);
	lost = pages_on(r, 1, 90);
	leave(r, 1, false);
	assert_int_equal(rig_stats(r).pages, 90 - lost);
	take_out(r, 1);
	assert_int_equal(kvc_capacity(r->pool), 32 * KVC_SEGMENT_MIN);
	/* its records are none any more: a delete of what nobody knows needs no tombstone */
	assert_int_equal(rig_store_on(r, 0, 500, 500, 5000), 0);
	mark = kvc_flush_mark(r->pool, 0) + kvc_flush_mark(r->pool, 2);
	assert_int_equal(rig_delete(r, r->d, 500), 0);
	assert_int_equal(kvc_flush_mark(r->pool, 0) + kvc_flush_mark(r->pool, 2), mark);
	rig_again(r);
	assert_int_equal(rig_stats(r).recovered_pages, 90 - lost);
	/* the last one goes: the superblock is as if it had never been */
	leave(r, 2, true);
	take_out(r, 2);
	assert_int_equal(kvc_super_of(r->pool)->nr_members, 1);
	rig_again(r);
	assert_int_equal(rig_stats(r).recovered_pages, 90 - lost);
	assert_int_equal(kvc_member_leave(r->pool, 0, true), -EBUSY);
	rig_free(r);
}

/* A tombstone on the member that leaves, for a page whose records are on others: it outlives the member. */
static void tombstones_stay(void **state)
{
	struct rig *r = pool_of(3);
	u32 i;

	(void)state;
	/* old records of the keys on member 0, taken out by newer pages on member 1, which are deleted there */
	for (i = 0; i < 5; i++)
		assert_int_equal(rig_store_on(r, 0, i, i, 5000), 0);
	rig_flush(r);
	for (i = 0; i < 5; i++) {
		struct kvc_load ld;

		assert_int_equal(rig_hold(r, r->d, i, &ld), 0);
		kvc_load_end(r->pool, &ld, -EBADMSG);
		assert_int_equal(rig_store_on(r, 1, i, 50 + i, 5000), 0);
	}
	rig_flush(r);
	for (i = 0; i < 5; i++)
		assert_int_equal(rig_delete(r, r->d, i), 0);
	rig_flush(r);
	leave(r, 1, true);
	take_out(r, 1);
	rig_cut(r);
	rig_attach(r);
	for (i = 0; i < 5; i++)
		assert_int_equal(rig_query(r, r->d, i), -ENOENT);
	/* reclaim looks at the tombstones, which name segments that are not there any more */
	rig_fill(r, 1000, 20000, 400);
	rig_flush(r);
	rig_again(r);
	for (i = 0; i < 5; i++)
		assert_int_equal(rig_query(r, r->d, i), -ENOENT);
	rig_free(r);
}

static void holds_and_leases_delay(void **state)
{
	struct rig *r = pool_of(3);
	struct kvc_lease l;
	struct kvc_load ld;

	(void)state;
	assert_int_equal(rig_store_on(r, 1, 1, 1, 5000), 0);
	assert_int_equal(rig_hold(r, r->d, 1, &ld), 0);
	assert_int_equal(rig_lease(r, r->d, 1, &l), 0);
	assert_int_equal(kvc_member_leave(r->pool, 1, false), 0);
	assert_int_equal(kvc_member_leave(r->pool, 1, false), -EALREADY);
	assert_int_equal(rig_store_on(r, 1, 2, 2, 5000), -ENODEV);
	rig_work(r);
	assert_false(kvc_member_left(r->pool, 1));
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	kvc_lease_put(r->pool, &l);
	rig_work(r);
	assert_false(kvc_member_left(r->pool, 1));
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
	kvc_load_end(r->pool, &ld, 0);
	rig_work(r);
	assert_true(kvc_member_left(r->pool, 1));
	rig_free(r);
}

/* Work of @member until a move is handed out */
static void until_move(struct rig *r, u32 member, struct kvc_work *w)
{
	assert_int_equal(kvc_work_next(r->pool, member, w), 1);
	while (w->type != KVC_WORK_MOVE) {
		kvc_work_done(r->pool, w, rig_exec(r, w));
		assert_int_equal(kvc_work_next(r->pool, member, w), 1);
	}
}

/* Who renews a lease as often as he may keeps no member from leaving: the page is a miss to him until it has moved. */
static void renewed_leases(void **state)
{
	struct kvc_lease old, l;
	struct kvc_work w;
	u32 move;

	(void)state;
	for (move = 0; move < 2; move++) {
		struct rig *r = pool_of(3);

		assert_int_equal(rig_store_on(r, 1, 1, 1, 5000), 0);
		rig_flush(r);
		assert_int_equal(rig_lease(r, r->d, 1, &old), 0);
		assert_int_equal(kvc_member_leave(r->pool, 1, move), 0);
		rig_work(r);
		assert_int_equal(rig_lease(r, r->d, 1, &l), -ENOENT);
		assert_int_equal(rig_load(r, r->d, 1, 1), 0);
		kvc_lease_put(r->pool, &old);
		if (move) {
			until_move(r, 1, &w);
			assert_int_equal(rig_lease(r, r->d, 1, &old), 0);
			kvc_work_done(r->pool, &w, rig_exec(r, &w));
			rig_work(r);
			assert_int_equal(rig_lease(r, r->d, 1, &l), -ENOENT);
			kvc_lease_put(r->pool, &old);
		}
		rig_work(r);
		assert_true(kvc_member_left(r->pool, 1));
		assert_int_equal(rig_lease(r, r->d, 1, &l), move ? 0 : -ENOENT);
		if (move)
			kvc_lease_put(r->pool, &l);
		rig_free(r);
	}
}

/* The work has stopped for good, so leases are given again. */
static void leases_after_a_loss(void **state)
{
	struct rig *r = pool_of(3);
	struct kvc_lease l;

	(void)state;
	assert_int_equal(rig_store_on(r, 1, 1, 1, 5000), 0);
	rig_flush(r);
	assert_int_equal(rig_lease(r, r->d, 1, &l), 0);
	assert_int_equal(kvc_member_leave(r->pool, 1, true), 0);
	rig_work(r);
	kvc_lease_put(r->pool, &l);
	kvc_member_fail(r->pool, 2);
	rig_work(r);
	assert_false(kvc_member_left(r->pool, 1));
	assert_int_equal(rig_lease(r, r->d, 1, &l), 0);
	kvc_lease_put(r->pool, &l);
	rig_free(r);
}

/* A page that is leased while it is moved stays, and is moved later. */
static void leased_while_it_moves(void **state)
{
	struct rig *r = pool_of(3);
	struct kvc_lease l;
	struct kvc_work w;
	struct kvc_load ld;

	(void)state;
	assert_int_equal(rig_store_on(r, 1, 1, 1, 5000), 0);
	assert_int_equal(rig_store_on(r, 1, 2, 2, 5000), 0);
	rig_flush(r);
	assert_int_equal(kvc_member_leave(r->pool, 1, true), 0);
	until_move(r, 1, &w);
	assert_int_equal(rig_lease(r, r->d, 1, &l), 0);
	kvc_work_done(r->pool, &w, rig_exec(r, &w));
	rig_work(r);
	assert_false(kvc_member_left(r->pool, 1));
	kvc_lease_put(r->pool, &l);
	rig_work(r);
	assert_true(kvc_member_left(r->pool, 1));
	pages_are_there(r, 1, 2);
	assert_int_equal(rig_stats(r).evicted_pages, 0);
	/* also when the lease ends before the others have moved */
	place_of(r, 1, &ld);
	assert_int_equal(kvc_member_leave(r->pool, ld.member, true), 0);
	until_move(r, ld.member, &w);
	assert_int_equal(rig_lease(r, r->d, 1, &l), 0);
	kvc_work_done(r->pool, &w, rig_exec(r, &w));
	kvc_lease_put(r->pool, &l);
	rig_work(r);
	pages_are_there(r, 1, 2);
	assert_int_equal(rig_stats(r).evicted_pages, 0);
	rig_free(r);
}

/* A move that fails is tried with other members; at last the page is given up. */
static void moves_fail(void **state)
{
	struct rig *r = pool_of(3);
	u64 tried = 0;
	struct kvc_work w;
	u32 n;

	(void)state;
	assert_int_equal(rig_store_on(r, 1, 1, 1, 5000), 0);
	rig_flush(r);
	assert_int_equal(kvc_member_leave(r->pool, 1, true), 0);
	until_move(r, 1, &w);
	tried |= BIT_ULL(w.member);
	kvc_work_done(r->pool, &w, -EIO);
	until_move(r, 1, &w);
	tried |= BIT_ULL(w.member);
	assert_int_equal(tried, 5);
	kvc_work_done(r->pool, &w, rig_exec(r, &w));
	rig_work(r);
	pages_are_there(r, 1, 1);
	take_out(r, 1);
	n = pages_on(r, 0, 2) ? 0 : 2;
	assert_int_equal(kvc_member_leave(r->pool, n, true), 0);
	while (kvc_work_next(r->pool, n, &w) == 1)
		kvc_work_done(r->pool, &w, w.type == KVC_WORK_MOVE ? -EIO : rig_exec(r, &w));
	assert_true(kvc_member_left(r->pool, n));
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
	assert_int_equal(rig_stats(r).pages, 0);
	rig_free(r);
}

/* The last member that could take its pages goes: what is left of it stays where it is. */
static void nobody_to_move_to(void **state)
{
	struct rig *r = rig_small(2);
	struct kvc_work w;

	(void)state;
	rig_fill(r, 0, 5000, 60);
	rig_flush(r);
	assert_int_equal(kvc_member_leave(r->pool, 1, true), 0);
	until_move(r, 1, &w);
	kvc_member_fail(r->pool, 0);
	kvc_work_done(r->pool, &w, -EIO);
	rig_work(r);
	assert_false(kvc_member_left(r->pool, 1));
	assert_int_equal(pages_on(r, 1, 60), 30);
	r->missing = 1;
	rig_again(r);
	assert_int_equal(pages_on(r, 1, 60), 30);
	r->missing = 0;
	rig_again(r);
	pages_are_there(r, 0, 60);
	rig_free(r);
}

/* Copies may have gone with the one that is lost: who was leaving stays, with all it had. */
static void loss_while_leaving(void **state)
{
	struct rig *r = pool_of(3);
	struct kvc_work w;
	u32 i;

	(void)state;
	rig_fill(r, 0, 5000, 90);
	rig_flush(r);
	assert_int_equal(kvc_member_leave(r->pool, 1, true), 0);
	for (i = 0; i < 10; i++) {
		until_move(r, 1, &w);
		kvc_work_done(r->pool, &w, rig_exec(r, &w));
	}
	assert_true(kvc_member_leaves(r->pool, 1));
	kvc_member_fail(r->pool, 2);
	assert_false(kvc_member_leaves(r->pool, 1));
	rig_work(r);
	assert_false(kvc_member_left(r->pool, 1));
	assert_true(pages_on(r, 1, 90) > 0);
	rig_cut(r);
	rig_attach(r);
	pages_are_there(r, 0, 90);
	/* the same when it has left, and the copies are not yet flushed */
	assert_int_equal(kvc_member_leave(r->pool, 1, true), 0);
	rig_work(r);
	assert_true(kvc_member_left(r->pool, 1));
	kvc_member_fail(r->pool, 2);
	assert_false(kvc_member_left(r->pool, 1));
	rig_cut(r);
	rig_attach(r);
	pages_are_there(r, 0, 90);
	/* its own loss is no reason to stay */
	assert_int_equal(kvc_member_leave(r->pool, 1, true), 0);
	kvc_member_fail(r->pool, 1);
	assert_true(kvc_member_leaves(r->pool, 1));
	rig_work(r);
	assert_true(kvc_member_left(r->pool, 1));
	rig_free(r);
}

/* Who lives long keeps to itself: what a request waited for shares no segment with strays elsewhere either. */
static void heads_move_along(void **state)
{
	struct rig *r = pool_of(3);
	u32 lasting = 0, fresh = 0;
	u8 keys[1][KVC_KEY_LEN];
	struct kvc_work w;

	(void)state;
	rig_fill(r, 0, 30000, 30);
	key_make(keys[0], 1000);
	assert_int_equal(kvc_match(r->pool, r->d, (const u8 (*)[KVC_KEY_LEN])keys, 1, NULL, NULL, NULL), 0);
	assert_int_equal(rig_store_on(r, 1, 1000, 1, 5000), 0);
	/* room for all of it */
	assert_int_equal(rig_add_member(r, 64), 3);
	kvc_member_join(r->pool, 3);
	rig_work(r);
	assert_int_equal(kvc_member_leave(r->pool, 1, true), 0);
	while (kvc_work_next(r->pool, 1, &w) == 1) {
		if (w.type == KVC_WORK_MOVE && w.len == 5000)
			lasting = w.stream;
		else if (w.type == KVC_WORK_MOVE)
			fresh = max(fresh, w.stream);
		kvc_work_done(r->pool, &w, rig_exec(r, &w));
		while (rig_step(r, 3, &w))
			;
	}
	assert_int_equal(fresh, KVC_STREAM_NEW);
	assert_int_equal(lasting, KVC_STREAM_NEW + 1);
	assert_int_equal(rig_load(r, r->d, 1000, 1), 0);
	rig_free(r);
}

/* That it was loaded is known of it there, too: it outlives what was not. */
static void loads_move_along(void **state)
{
	struct rig *r = rig_small(2);

	(void)state;
	assert_int_equal(rig_store_on(r, 1, 1, 1, 5000), 0);
	assert_int_equal(rig_store_on(r, 1, 2, 2, 5000), 0);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	leave(r, 1, true);
	rig_fill(r, 1000, 30000, 120);
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	rig_free(r);
}

/* As far as there is room: the others are full, so nothing of theirs is evicted for it. */
static void no_room_to_move(void **state)
{
	struct rig *r = rig_small(2);
	u64 pages;
	u32 id;

	(void)state;
	id = rig_fill(r, 0, 20000, 400);
	pages = rig_stats(r).pages;
	assert_true(rig_stats(r).evicted_pages > 0);
	leave(r, 1, true);
	assert_true(rig_stats(r).pages >= pages / 2 - 30 && rig_stats(r).pages < pages);
	take_out(r, 1);
	rig_fill(r, id, 20000, 100);
	rig_again(r);
	assert_true(rig_stats(r).recovered_pages > 50);
	rig_free(r);
}

/* One that failed, or was never there, can be removed, too. */
static void lost_member_leaves(void **state)
{
	struct rig *r = pool_of(3);
	u32 lost;

	(void)state;
	rig_fill(r, 0, 5000, 60);
	rig_flush(r);
	lost = pages_on(r, 1, 60);
	rig_fill(r, 60, 5000, 9);
	kvc_member_fail(r->pool, 1);
	leave(r, 1, true);
	take_out(r, 1);
	assert_int_equal(rig_query(r, r->d, 1000), -ENOENT);
	rig_again(r);
	assert_true(rig_stats(r).recovered_pages >= 60 - lost);
	r->missing = BIT_ULL(2);
	rig_again(r);
	assert_int_equal(rig_query(r, r->d, 1000), -ENODEV);
	leave(r, 2, false);
	take_out(r, 2);
	assert_int_equal(rig_query(r, r->d, 1000), -ENOENT);
	r->missing = 0;
	rig_again(r);
	rig_fill(r, 2000, 5000, 10);
	rig_free(r);
}

static const struct CMUnitTest leave_tests[] = {
	cmocka_unit_test_setup_teardown(add_member, make, unmake),
	cmocka_unit_test_setup_teardown(add_is_cut, make, unmake),
	cmocka_unit_test_setup_teardown(add_is_cancelled, make, unmake),
	cmocka_unit_test(move_and_remove),
	cmocka_unit_test(turns_without),
	cmocka_unit_test(drop_and_remove),
	cmocka_unit_test(tombstones_stay),
	cmocka_unit_test(holds_and_leases_delay),
	cmocka_unit_test(renewed_leases),
	cmocka_unit_test(leases_after_a_loss),
	cmocka_unit_test(leased_while_it_moves),
	cmocka_unit_test(moves_fail),
	cmocka_unit_test(nobody_to_move_to),
	cmocka_unit_test(loss_while_leaving),
	cmocka_unit_test(heads_move_along),
	cmocka_unit_test(loads_move_along),
	cmocka_unit_test(no_room_to_move),
	cmocka_unit_test(lost_member_leaves),
};

TEST_GROUP(leave);
