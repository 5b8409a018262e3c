// SPDX-License-Identifier: GPL-2.0
/*
 * Members that were lost and return to the pool that went on without them.
 */
#include "engine.h"
#include "log/log.h"
#include "test.h"

static int make(void **state)
{
	struct rig *r = rig_small(3);

	rig_write_super(r);
	*state = r;
	return 0;
}

static int unmake(void **state)
{
	rig_free(*state);
	return 0;
}

static void lose(struct rig *r, u32 member)
{
	kvc_member_fail(r->pool, member);
	assert_false(kvc_member_online(r->pool, member));
}

/* Are the segments as they were left? */
static int recheck(struct rig *r, u32 member)
{
	u8 *buf = malloc(KVC_RECOVER_IO);
	struct kvc_recheck c;
	u32 i;
	int ret = 0;

	for (i = 0; i < kvc_nr_segments(r->pool, member) && !ret; i++) {
		ret = kvc_recheck_start(r->pool, member, i, &c);
		while (ret == 1) {
			assert_true(c.len && c.len <= KVC_RECOVER_IO);
			dev_pread(r->devs[member], c.offset, buf, c.len);
			ret = kvc_recheck_feed(r->pool, &c, buf);
		}
	}
	free(buf);
	return ret;
}

/* As its superblock is the newest, or is not */
static int come_back_as(struct rig *r, u32 member, bool newest)
{
	int ret = kvc_member_may_return(r->pool, member, newest);
	u32 rooms;

	if (!ret)
		ret = recheck(r, member);
	if (!ret)
		ret = kvc_member_return(r->pool, member, newest);
	if (!ret) {
		assert_int_equal(kvc_super_of(r->pool)->members[member].flags, 0);
		rooms = os_atomic_read(&r->pool->rooms);
		kvc_member_returned(r->pool, member);
		assert_true(kvc_member_online(r->pool, member) && r->kicked[member]);
		assert_true(os_atomic_read(&r->pool->rooms) > rooms);
	}
	return ret;
}

static int come_back(struct rig *r, u32 member)
{
	return come_back_as(r, member, false);
}

/* What is placed anywhere goes to member 1. */
static void others_leave(struct rig *r, bool leave)
{
	r->pool->members[0].leaving = leave;
	r->pool->members[2].leaving = leave;
}

/* Tombstones on member 1 of pages 0 to @nr - 1, which are elsewhere */
static void deleted_there(struct rig *r, u32 nr)
{
	u32 id;

	others_leave(r, true);
	for (id = 0; id < nr; id++)
		assert_int_equal(rig_delete(r, r->d, id), 0);
	others_leave(r, false);
}

/* Its next summary fails, though it may be on media, and it comes back */
static void summary_fails(struct rig *r, bool written)
{
	struct kvc_work w;

	assert_int_equal(kvc_flush_next(r->pool, 1, &w), 1);
	if (written)
		assert_int_equal(rig_exec(r, &w), 0);
	kvc_work_done(r->pool, &w, -EIO);
	assert_false(kvc_member_online(r->pool, 1));
	assert_int_equal(come_back(r, 1), 0);
}

static void what_was_durable_returns(void **state)
{
	struct rig *r = *state;
	u64 pages, seq;
	u32 id;

	for (id = 0; id < 30; id++)
		assert_int_equal(rig_store_on(r, id % 3, id, id, 5000), 0);
	rig_flush(r);
	pages = rig_stats(r).pages;
	assert_int_equal(come_back(r, 1), -EINVAL);
	lose(r, 1);
	assert_int_equal(rig_load(r, r->d, 1, 1), -ENODEV);
	seq = kvc_super_of(r->pool)->seq;
	assert_int_equal(come_back(r, 1), 0);
	assert_true(kvc_super_of(r->pool)->seq > seq);
	for (id = 0; id < 30; id++)
		assert_int_equal(rig_load(r, r->d, id, id), 0);
	assert_int_equal(rig_stats(r).pages, pages);
	assert_int_equal(os_atomic_read(&r->pool->nr_offline), 0);
	/* it is used as before, more than once */
	assert_int_equal(rig_store_on(r, 1, 100, 100, 5000), 0);
	rig_flush(r);
	lose(r, 1);
	assert_int_equal(come_back(r, 1), 0);
	assert_int_equal(rig_load(r, r->d, 100, 100), 0);
	rig_write_super(r);
	rig_cut(r);
	rig_attach(r);
	for (id = 0; id < 30; id++)
		assert_int_equal(rig_load(r, r->d, id, id), 0);
	assert_int_equal(rig_load(r, r->d, 100, 100), 0);
}

/* Nobody knows whether the bytes of what was in no summary got there. */
static void what_was_not_does_not(void **state)
{
	struct rig *r = *state;

	assert_int_equal(rig_store_on(r, 1, 1, 1, 5000), 0);
	rig_flush(r);
	assert_int_equal(rig_store_on(r, 1, 2, 2, 5000), 0);
	lose(r, 1);
	assert_int_equal(come_back(r, 1), 0);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	assert_int_equal(rig_query(r, r->d, 2), -ENOENT);
	assert_int_equal(rig_store_on(r, 1, 2, 20, 5000), 0);
	assert_int_equal(rig_store_on(r, 1, 3, 3, 5000), 0);
	rig_flush(r);
	rig_cut(r);
	rig_attach(r);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	assert_int_equal(rig_load(r, r->d, 2, 20), 0);
	assert_int_equal(rig_load(r, r->d, 3, 3), 0);
}

/* Deleted, stored anew, replaced: it holds on, also when what did it is evicted again, and after an attach. */
static void what_went_meanwhile_stays_away(void **state)
{
	struct rig *r = *state;
	u32 id, round;

	for (id = 0; id < 9; id++)
		assert_int_equal(rig_store_on(r, 1, id, id, 5000), 0);
	rig_flush(r);
	lose(r, 1);
	for (id = 0; id < 3; id++)
		assert_int_equal(rig_delete(r, r->d, id), 0);
	for (id = 3; id < 6; id++)
		assert_int_equal(rig_store_on(r, 0, id, 100 + id, 5000), 0);
	rig_flush(r);
	assert_int_equal(come_back(r, 1), 0);
	rig_write_super(r);
	for (id = 0; id < 3; id++)
		assert_int_equal(rig_query(r, r->d, id), -ENOENT);
	for (id = 3; id < 6; id++)
		assert_int_equal(rig_load(r, r->d, id, 100 + id), 0);
	for (id = 6; id < 9; id++)
		assert_int_equal(rig_load(r, r->d, id, id), 0);
	/* those stored anew are deleted, too: only the tombstones keep the old ones away */
	for (id = 3; id < 6; id++)
		assert_int_equal(rig_delete(r, r->d, id), 0);
	rig_flush(r);
	for (round = 1; round < 4; round++) {
		for (id = 0; id < 400; id++)
			rig_store_on(r, 0, 1000 * round + id, 1, 20000);
		rig_flush(r);
		rig_cut(r);
		rig_attach(r);
		for (id = 0; id < 6; id++)
			assert_int_equal(rig_query(r, r->d, id), -ENOENT);
		for (id = 6; id < 9; id++)
			assert_int_equal(rig_load(r, r->d, id, id), 0);
	}
}

/*
 * A summary that was not written, or was: its segment is not continued, and none of the summary's pages is believed. What
 * it deleted stays so.
 */
static void torn_segment(struct rig *r, bool written, bool reclaims)
{
	struct kvc_work w;
	u64 mark;
	u32 id;

	for (id = 0; id < 4; id++)
		assert_int_equal(rig_store_on(r, 0, id, id, 5000), 0);
	rig_flush(r);
	/* a page that is durable; then tombstones of others, and a page, in one summary that fails */
	assert_int_equal(rig_store_on(r, 1, 10, 10, 5000), 0);
	rig_flush(r);
	deleted_there(r, 2);
	assert_int_equal(rig_store_on(r, 1, 11, 11, 5000), 0);
	summary_fails(r, written);
	rig_write_super(r);
	assert_int_equal(rig_query(r, r->d, 11), -ENOENT);
	assert_int_equal(rig_load(r, r->d, 10, 10), 0);
	assert_int_equal(rig_load(r, r->d, 2, 2), 0);
	/* a flush is of its deletes, too */
	mark = kvc_flush_mark(r->pool, 1);
	assert_false(kvc_flushed(r->pool, 1, mark));
	assert_int_equal(kvc_flush_next(r->pool, 1, &w), 1);
	assert_false(kvc_flushed(r->pool, 1, mark));
	kvc_work_done(r->pool, &w, rig_exec(r, &w));
	assert_true(kvc_flushed(r->pool, 1, mark));
	rig_flush(r);
	if (!reclaims) {
		rig_cut(r);
		rig_attach(r);
		for (id = 0; id < 2; id++)
			assert_int_equal(rig_query(r, r->d, id), -ENOENT);
		assert_int_equal(rig_load(r, r->d, 10, 10), 0);
		return;
	}
	/* the page of that summary may be on media: another one of its key needs a tombstone until that has gone */
	assert_int_equal(rig_store_on(r, 0, 11, 20, 5000), 0);
	rig_flush(r);
	assert_int_equal(rig_delete(r, r->d, 11), 0);
	rig_flush(r);
	for (id = 0; id < 400; id++)
		rig_store_on(r, 0, 3000 + id, 1, 20000);
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_query(r, r->d, 11), -ENOENT);
	/* until the segment has gone, the first of all */
	for (id = 0; id < 400; id++)
		rig_store_on(r, 1, 1000 + id, 1, 20000);
	rig_flush(r);
	rig_cut(r);
	rig_attach(r);
	for (id = 0; id < 2; id++)
		assert_int_equal(rig_query(r, r->d, id), -ENOENT);
	for (id = 10; id < 12; id++)
		assert_int_equal(rig_query(r, r->d, id), -ENOENT);
}

static void torn(void **state)
{
	torn_segment(*state, false, false);
}

static void torn_and_written(void **state)
{
	torn_segment(*state, true, false);
}

static void torn_and_reclaimed(void **state)
{
	torn_segment(*state, true, true);
}

/* As the shells flush a member. 0, or what kvc_flush_next() said */
static int flush_member(struct rig *r, u32 member)
{
	u64 mark = kvc_flush_mark(r->pool, member);
	struct kvc_work w;
	int ret;

	while (!kvc_flushed(r->pool, member, mark)) {
		ret = kvc_flush_next(r->pool, member, &w);
		if (ret <= 0)
			return ret;
		kvc_work_done(r->pool, &w, rig_exec(r, &w));
	}
	return 0;
}

/* Many deletes in a summary that fails on a member that is full: no flush is done before they are in another one. */
static void torn_without_room(void **state)
{
	struct rig *r = *state;
	struct kvc_store st;
	struct kvc_work w;
	u32 id;

	for (id = 0; id < 300; id++)
		assert_int_equal(rig_store_on(r, 0, id, id, 100), 0);
	rig_flush(r);
	deleted_there(r, 300);
	others_leave(r, true);
	while (!rig_begin(r, r->d, id, 60000, &st)) {
		assert_int_equal(st.member, 1);
		rig_write_page(r, &st, id++);
		kvc_store_commit(r->pool, &st);
	}
	others_leave(r, false);
	summary_fails(r, false);
	assert_int_equal(kvc_member_leave(r->pool, 1, true), -EBUSY);
	while (flush_member(r, 1))
		assert_true(rig_step(r, 1, &w));
	assert_int_equal(kvc_member_leave(r->pool, 2, true), 0);
	rig_cut(r);
	rig_attach(r);
	for (id = 0; id < 300; id++)
		assert_int_equal(rig_query(r, r->d, id), -ENOENT);
}

/* Two deletes are in a summary that fails, and its member has returned. */
static void tear_deletes(struct rig *r)
{
	u32 id;

	for (id = 0; id < 2; id++)
		assert_int_equal(rig_store_on(r, 0, id, id, 100), 0);
	rig_flush(r);
	deleted_there(r, 2);
	summary_fails(r, false);
}

static void deletes_hold(struct rig *r)
{
	u32 id;

	rig_cut(r);
	rig_attach(r);
	for (id = 0; id < 2; id++)
		assert_int_equal(rig_query(r, r->d, id), -ENOENT);
}

static bool no_memory(size_t size)
{
	(void)size;
	return true;
}

static void torn_without_memory(void **state)
{
	struct rig *r = *state;

	tear_deletes(r);
	os_alloc_fault = no_memory;
	assert_int_equal(flush_member(r, 1), -ENOMEM);
	assert_int_equal(flush_member(r, 1), -ENOMEM);
	os_alloc_fault = NULL;
	assert_int_equal(flush_member(r, 1), 0);
	deletes_hold(r);
}

/* Lost once more before that */
static void torn_twice(void **state)
{
	struct rig *r = *state;

	tear_deletes(r);
	lose(r, 1);
	assert_int_equal(flush_member(r, 1), 0);
	assert_int_equal(come_back(r, 1), 0);
	assert_int_equal(flush_member(r, 1), 0);
	deletes_hold(r);
}

/* Tombstones that a reclaim has copied, and not written, are copied again: the victim does not go before. */
static void reclaim_begins_anew(void **state)
{
	struct rig *r = *state;
	struct kvc_reclaim *rc = &r->pool->members[1].reclaim;
	struct kvc_work w;
	u32 id;

	for (id = 0; id < 20; id++)
		assert_int_equal(rig_store_on(r, 0, id, id, 5000), 0);
	rig_flush(r);
	/* the tombstones come first on member 1, and so to its oldest segment */
	for (id = 0; id < 10; id++)
		assert_int_equal(rig_store_on(r, 1, 50 + id, 1, 5000), 0);
	deleted_there(r, 10);
	rig_flush(r);
	/* until one is being reclaimed and has nothing left to copy */
	for (id = 100; rc->phase != KVC_R_LOG; id++) {
		if (rig_store_on(r, 1, id, id, 60000) && id > 2000)
			break;
		while (rc->phase != KVC_R_LOG && kvc_work_next(r->pool, 1, &w) == 1)
			kvc_work_done(r->pool, &w, rig_exec(r, &w));
	}
	assert_int_equal(rc->phase, KVC_R_LOG);
	lose(r, 1);
	assert_int_equal(come_back(r, 1), 0);
	assert_int_equal(rc->phase, KVC_R_IDLE);
	rig_write_super(r);
	rig_fill(r, 5000, 60000, 300);
	rig_flush(r);
	rig_cut(r);
	rig_attach(r);
	for (id = 0; id < 10; id++)
		assert_int_equal(rig_query(r, r->d, id), -ENOENT);
}

/* Headers failed before it was known to be lost: their segments are not lost for it, and nothing is evicted for want. */
static void headers_are_written_anew(void **state)
{
	struct rig *r = *state;
	struct kvc_member *m = &r->pool->members[1];
	u32 avail = kvc_avail(m), failed = 0, id;
	struct kvc_work w;

	for (id = 0; id < 10; id++)
		assert_int_equal(rig_store_on(r, 1, id, id, 10000), 0);
	while (kvc_work_next(r->pool, 1, &w) == 1) {
		failed += w.kind == KVC_W_HEADER;
		kvc_work_done(r->pool, &w, w.kind == KVC_W_HEADER ? -EIO : rig_exec(r, &w));
	}
	assert_int_equal(flush_member(r, 1), 0);
	assert_true(failed && m->list[KVC_S_UNUSABLE].count == failed);
	lose(r, 1);
	assert_int_equal(come_back(r, 1), 0);
	assert_int_equal(m->list[KVC_S_UNUSABLE].count, 0);
	while (rig_step(r, 1, &w))
		;
	assert_true(kvc_avail(m) + 4 > avail);
	for (id = 0; id < 10; id++)
		assert_int_equal(rig_load(r, r->d, id, id), 0);
	rig_cut(r);
	rig_attach(r);
	for (id = 0; id < 10; id++)
		assert_int_equal(rig_load(r, r->d, id, id), 0);
}

/* What was begun on it before has to end: it might write where others' pages are by then. */
static void what_is_under_way(void **state)
{
	struct rig *r = *state;
	struct kvc_store st;
	struct kvc_load ld;

	do {
		assert_int_equal(rig_begin(r, r->d, 1, 5000, &st), 0);
		if (st.member != 1)
			kvc_store_abort(r->pool, &st);
	} while (st.member != 1);
	lose(r, 1);
	assert_int_equal(come_back(r, 1), -EBUSY);
	rig_write_page(r, &st, 1);
	kvc_store_commit(r->pool, &st);
	assert_true(st.lost);
	assert_int_equal(come_back(r, 1), 0);
	assert_int_equal(rig_query(r, r->d, 1), -ENOENT);
	/* a load's end on the device that it had may say that this is gone */
	assert_int_equal(rig_store_on(r, 1, 1, 1, 5000), 0);
	rig_flush(r);
	assert_int_equal(rig_hold(r, r->d, 1, &ld), 0);
	lose(r, 1);
	assert_int_equal(come_back(r, 1), -EBUSY);
	kvc_load_end(r->pool, &ld, -EIO);
	assert_int_equal(come_back(r, 1), 0);
	/* nor may it while it leaves */
	lose(r, 1);
	assert_int_equal(kvc_member_leave(r->pool, 1, false), 0);
	assert_int_equal(come_back(r, 1), -EBUSY);
	assert_int_equal(kvc_member_may_return(r->pool, 7, true), -EINVAL);
	assert_int_equal(kvc_member_may_return(r->pool, 0, true), -EINVAL);
}

/* One that was missing at the attach was not read: only another attach does that. */
static void missing_at_the_attach(void **state)
{
	struct rig *r = *state;

	rig_detach(r);
	r->missing = BIT_ULL(2);
	rig_attach(r);
	assert_int_equal(come_back(r, 2), -EINVAL);
}

/* Another header, another extent, an earlier end */
static void not_as_it_was_left(void **state)
{
	struct rig *r = *state;
	struct kvc_member *m = &r->pool->members[1];
	u8 was[KVC_BLOCK], other[KVC_BLOCK];
	u64 header, last;
	struct kvc_seg *seg;
	u32 id;

	for (id = 0; id < 5; id++) {
		assert_int_equal(rig_store_on(r, 1, id, id, 5000), 0);
		rig_flush(r);
	}
	seg = m->head[KVC_HEAD_NEW];
	header = KVC_DATA_OFFSET + (u64)(seg - m->segs) * KVC_SEGMENT_MIN;
	last = header + (seg->log_end - 1) * KVC_BLOCK;
	lose(r, 1);
	dev_pread(r->devs[1], last, was, KVC_BLOCK);
	memset(other, 0, sizeof(other));
	dev_pwrite(r->devs[1], last, other, KVC_BLOCK);
	assert_int_equal(come_back(r, 1), -ESTALE);
	dev_pwrite(r->devs[1], last, was, KVC_BLOCK);
	/* a bit of it */
	dev_flip(r->devs[1], last + 100, 3);
	assert_int_equal(come_back(r, 1), -ESTALE);
	dev_pwrite(r->devs[1], last, was, KVC_BLOCK);
	/* another segment's header */
	dev_pread(r->devs[1], header, was, KVC_BLOCK);
	dev_pread(r->devs[1], header == KVC_DATA_OFFSET ? header + KVC_SEGMENT_MIN : KVC_DATA_OFFSET, other, KVC_BLOCK);
	dev_pwrite(r->devs[1], header, other, KVC_BLOCK);
	assert_int_equal(come_back(r, 1), -ESTALE);
	/* the same one, of another generation */
	seg->generation++;
	dev_pwrite(r->devs[1], header, was, KVC_BLOCK);
	assert_int_equal(come_back(r, 1), -ESTALE);
	seg->generation--;
	seg->salt++;
	assert_int_equal(come_back(r, 1), -ESTALE);
	seg->salt--;
	/* an empty one that has a header too */
	seg = &m->segs[kvc_gseg_local(m->list[KVC_S_FREE].first)];
	header = KVC_DATA_OFFSET + (u64)(seg - m->segs) * KVC_SEGMENT_MIN;
	dev_pread(r->devs[1], header, was, KVC_BLOCK);
	memset(other, 0, sizeof(other));
	dev_pwrite(r->devs[1], header, other, KVC_BLOCK);
	assert_int_equal(come_back(r, 1), -ESTALE);
	dev_pwrite(r->devs[1], header, was, KVC_BLOCK);
	seg->generation++;
	assert_int_equal(come_back(r, 1), -ESTALE);
	seg->generation--;
	seg->salt++;
	assert_int_equal(come_back(r, 1), -ESTALE);
	seg->salt--;
	assert_int_equal(come_back(r, 1), 0);
	for (id = 0; id < 5; id++)
		assert_int_equal(rig_load(r, r->d, id, id), 0);
}

/* Of all that were lost the one that has the newest superblock begins; who was added since does not count for it. */
static void all_were_lost(void **state)
{
	struct rig *r = *state;
	u32 id;

	for (id = 0; id < 9; id++)
		assert_int_equal(rig_store_on(r, id % 3, id, id, 5000), 0);
	rig_flush(r);
	lose(r, 0);
	lose(r, 1);
	lose(r, 2);
	assert_int_equal(come_back(r, 0), -ESTALE);
	assert_int_equal(rig_add_member(r, 16), 3);
	kvc_member_join(r->pool, 3);
	assert_true(kvc_member_online(r->pool, 3));
	assert_int_equal(come_back(r, 0), -ESTALE);
	assert_int_equal(come_back_as(r, 2, true), 0);
	assert_int_equal(come_back(r, 0), 0);
	assert_int_equal(come_back(r, 1), 0);
	for (id = 0; id < 9; id++)
		assert_int_equal(rig_load(r, r->d, id, id), 0);
	/* and one that came while there was an heir is one */
	assert_int_equal(rig_add_member(r, 16), 4);
	kvc_member_join(r->pool, 4);
	lose(r, 0);
	lose(r, 1);
	lose(r, 2);
	assert_int_equal(come_back(r, 1), 0);
}

static void stays_lost(void **state)
{
	struct rig *r = *state;

	assert_int_equal(rig_store_on(r, 1, 1, 1, 5000), 0);
	rig_flush(r);
	lose(r, 1);
	assert_int_equal(kvc_member_return(r->pool, 1, false), 0);
	kvc_member_stay_lost(r->pool, 1);
	assert_int_equal(kvc_super_of(r->pool)->members[1].flags, KVC_MEMBER_ABSENT);
	assert_int_equal(rig_query(r, r->d, 1), -ENODEV);
	assert_int_equal(rig_store_on(r, 1, 2, 2, 5000), -ENODEV);
	assert_int_equal(come_back(r, 1), 0);
	assert_int_equal(rig_load(r, r->d, 1, 1), 0);
	/* the last heir goes in the midst of it */
	lose(r, 0);
	lose(r, 1);
	assert_int_equal(kvc_member_may_return(r->pool, 1, false), 0);
	lose(r, 2);
	assert_int_equal(kvc_member_return(r->pool, 1, false), -ESTALE);
	assert_int_equal(kvc_super_of(r->pool)->members[1].flags, KVC_MEMBER_ABSENT);
	assert_false(kvc_member_online(r->pool, 1));
}

#define T(test) cmocka_unit_test_setup_teardown(test, make, unmake)

static const struct CMUnitTest return_tests[] = {
	T(what_was_durable_returns),
	T(what_was_not_does_not),
	T(what_went_meanwhile_stays_away),
	T(torn),
	T(torn_and_written),
	T(torn_and_reclaimed),
	T(torn_without_room),
	T(torn_without_memory),
	T(torn_twice),
	T(reclaim_begins_anew),
	T(headers_are_written_anew),
	T(what_is_under_way),
	T(missing_at_the_attach),
	T(not_as_it_was_left),
	T(all_were_lost),
	T(stays_lost),
};

TEST_GROUP(return);
