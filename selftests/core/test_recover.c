// SPDX-License-Identifier: GPL-2.0
/*
 * Recovery, loss of members, tenants.
 */
#include "format_media.h"
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
	assert_int_equal(kvc_nr_gsegs(r->pool), 32);
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
	assert_int_equal(rig_hold(r, r->d, 0, &ld), 0);
	kvc_load_end(r->pool, &ld, 0);
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
	assert_int_equal(rig_hold(r, r->d, 1, &ld), 0);
	kvc_load_end(r->pool, &ld, 0);
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
	assert_int_equal(rig_hold(r, r->d, 1, &ld), 0);
	kvc_load_end(r->pool, &ld, 0);
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
	assert_int_equal(rig_hold(r, r->d, 0, &ld), 0);
	kvc_load_end(r->pool, &ld, 0);
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

static const struct CMUnitTest recover_tests[] = {
	cmocka_unit_test_setup_teardown(empty_pool, make, unmake),
	cmocka_unit_test_setup_teardown(bad_super_is_refused, make, unmake),
	cmocka_unit_test_setup_teardown(again_and_again, make, unmake),
	cmocka_unit_test(damaged_extent),
	cmocka_unit_test_setup_teardown(foreign_segments, make, unmake),
	cmocka_unit_test_setup_teardown(salt_tells_lives_apart, make, unmake),
	cmocka_unit_test_setup_teardown(newest_record_counts, make, unmake),
	cmocka_unit_test(unreadable_segment),
};

TEST_GROUP(recover);

/* Members that fail */

static void pages_of_a_lost_member(void **state)
{
	struct rig *r = *state;
	struct kvc_load ld;
	u32 i, lost = 0;

	for (i = 0; i < 20; i++)
		assert_int_equal(rig_store(r, r->d, i, i, 3000), 0);
	rig_flush(r);
	assert_true(kvc_member_online(r->pool, 1));
	kvc_member_fail(r->pool, 1);
	kvc_member_fail(r->pool, 1);
	assert_false(kvc_member_online(r->pool, 1));
	assert_true(kvc_member_online(r->pool, 0));
	for (i = 0; i < 20; i++) {
		int ret = rig_hold(r, r->d, i, &ld);

		assert_true(ret == 0 || ret == -ENODEV);
		if (ret == 0) {
			assert_int_equal(ld.member, 0);
			kvc_load_end(r->pool, &ld, 0);
			continue;
		}
		assert_int_equal(rig_query(r, r->d, i), -ENODEV);
		lost++;
		/* It may be stored anew, and goes elsewhere. */
		if (i < 10) {
			assert_int_equal(rig_store(r, r->d, i, 500 + i, 3000), 0);
			assert_int_equal(rig_load(r, r->d, i, 500 + i), 0);
		}
	}
	assert_int_equal(lost, 10);
	rig_flush(r);
	rig_again(r);
	/* With the next attach the others are back, and what was stored meanwhile is newer. */
	for (i = 0; i < 20; i++)
		assert_true(rig_query(r, r->d, i) == 3000);
	for (i = 10; i < 20; i++)
		assert_int_equal(rig_load(r, r->d, i, i), 0);
}

static void all_members_lost(void **state)
{
	struct rig *r = *state;
	struct kvc_store st;
	struct kvc_work w;

	assert_int_equal(rig_store(r, r->d, 1, 1, 3000), 0);
	assert_int_equal(rig_begin(r, r->d, 2, 3000, &st), 0);
	kvc_member_fail(r->pool, 0);
	kvc_member_fail(r->pool, 1);
	kvc_store_commit(r->pool, &st);
	assert_int_equal(rig_load(r, r->d, 1, 1), -ENODEV);
	assert_int_equal(rig_load(r, r->d, 2, 2), -ENOENT);
	assert_int_equal(rig_store(r, r->d, 3, 3, 10), -ENODEV);
	assert_int_equal(kvc_work_next(r->pool, 0, &w), 0);
	assert_int_equal(kvc_flush_next(r->pool, 0, &w), 0);
	assert_true(kvc_flushed(r->pool, 0, kvc_flush_mark(r->pool, 0)));
}

/* A summary that could not be written: the member goes, the pool stays. */
static void failed_summary(void **state)
{
	struct rig *r = *state;
	struct kvc_work w;
	u32 i;

	for (i = 0; i < 10; i++)
		assert_int_equal(rig_store(r, r->d, i, i, 3000), 0);
	assert_int_equal(kvc_flush_next(r->pool, 0, &w), 1);
	kvc_work_done(r->pool, &w, -EIO);
	assert_false(kvc_member_online(r->pool, 0));
	assert_true(kvc_member_online(r->pool, 1));
	rig_flush(r);
	rig_fill(r, 100, 3000, 100);
}

static const struct CMUnitTest fail_tests[] = {
	cmocka_unit_test_setup_teardown(pages_of_a_lost_member, make, unmake),
	cmocka_unit_test_setup_teardown(all_members_lost, make, unmake),
	cmocka_unit_test_setup_teardown(failed_summary, make, unmake),
};

TEST_GROUP(fail);

/* Tenants */

static void add_and_remove(void **state)
{
	struct rig *r = *state;
	const struct kvc_super *s = kvc_super_of(r->pool);
	u64 seq = s->seq;
	int slot;

	slot = kvc_tenant_add(r->pool, "one", 5, 6, 0640);
	assert_true(slot > 0 && slot < KVC_TENANTS_MAX);
	assert_int_equal(s->seq, seq + 1);
	assert_string_equal(s->tenants[slot].name, "one");
	assert_int_equal(s->tenants[slot].uid, 5);
	assert_int_equal(s->tenants[slot].gid, 6);
	assert_int_equal(s->tenants[slot].mode, 0640);
	assert_int_equal(kvc_super_check(s), KVC_OK);
	assert_int_equal(kvc_tenant_add(r->pool, "one", 0, 0, 0600), -EEXIST);
	assert_int_equal(kvc_tenant_add(r->pool, "", 0, 0, 0600), -EINVAL);
	assert_int_equal(kvc_tenant_add(r->pool, "a/b", 0, 0, 0600), -EINVAL);
	assert_int_equal(kvc_tenant_add(r->pool, "two", 0, 0, 01600), -EINVAL);
	assert_int_equal(kvc_tenant_remove(r->pool, "two"), -ENOENT);
	assert_int_equal(s->seq, seq + 1);
	assert_int_equal(kvc_tenant_remove(r->pool, "one"), 0);
	assert_int_equal(s->seq, seq + 2);
	assert_int_equal(s->tenants[slot].flags, 0);
	assert_int_equal(s->tenants[slot].epoch, 1);
	assert_int_equal(kvc_super_check(s), KVC_OK);
	assert_null(rig_domain(r, (u32)slot, 0));
}

static void slots_run_out(void **state)
{
	struct rig *r = *state;
	char name[KVC_NAME_MAX];
	u32 i;

	for (i = 1; i < KVC_TENANTS_MAX; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		assert_int_equal(kvc_tenant_add(r->pool, name, 0, 0, 0600), i);
	}
	assert_int_equal(kvc_tenant_add(r->pool, "more", 0, 0, 0600), -ENOSPC);
	assert_int_equal(kvc_tenant_remove(r->pool, "t77"), 0);
	assert_int_equal(kvc_tenant_add(r->pool, "more", 0, 0, 0600), 77);
}

/* A page of one tenant is none of another, with the same key and keyspace. */
static void tenants_are_apart(void **state)
{
	struct rig *r = *state;
	int slot = kvc_tenant_add(r->pool, "one", 0, 0, 0600);
	struct kvc_domain *d = rig_domain(r, (u32)slot, 0);

	assert_int_equal(rig_store(r, r->d, 1, 100, 50), 0);
	assert_int_equal(rig_load(r, d, 1, 100), -ENOENT);
	assert_int_equal(rig_store(r, d, 1, 200, 50), 0);
	assert_int_equal(rig_load(r, d, 1, 200), 0);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	assert_int_equal(rig_load(r, d, 1, 200), 0);
	kvc_domain_put(r->pool, d);
}

/* Removed, with a session that still has the domain, a store on its way and a load in flight */
static void removed_tenant(void **state)
{
	struct rig *r = *state;
	int slot = kvc_tenant_add(r->pool, "one", 0, 0, 0600), again;
	struct kvc_domain *old = rig_domain(r, (u32)slot, 0), *fresh;
	struct kvc_store st, st2;
	struct kvc_lease l;
	struct kvc_load ld;

	rig_write_super(r);
	assert_int_equal(rig_store(r, old, 1, 100, 50), 0);
	assert_int_equal(rig_begin(r, old, 2, 50, &st), 0);
	assert_int_equal(rig_hold(r, old, 1, &ld), 0);
	rig_flush(r);
	assert_int_equal(kvc_tenant_remove(r->pool, "one"), 0);
	assert_int_equal(rig_stats(r).pages, 0);
	kvc_store_commit(r->pool, &st);
	kvc_load_end(r->pool, &ld, 0);
	assert_int_equal(rig_load(r, old, 1, 100), -ENOENT);
	assert_int_equal(rig_load(r, old, 2, 100), -ENOENT);
	assert_int_equal(rig_query(r, old, 1), -ENOENT);
	assert_int_equal(rig_delete(r, old, 1), -ENOENT);
	assert_int_equal(rig_lease(r, old, 1, &l), -ENOENT);
	assert_int_equal(rig_begin(r, old, 3, 50, &st2), -ENODEV);
	again = kvc_tenant_add(r->pool, "one", 0, 0, 0600);
	assert_int_equal(again, slot);
	fresh = rig_domain(r, (u32)slot, 0);
	assert_ptr_not_equal(fresh, old);
	assert_int_equal(rig_load(r, fresh, 1, 100), -ENOENT);
	rig_write_super(r);
	kvc_domain_put(r->pool, old);
	kvc_domain_put(r->pool, fresh);
	rig_flush(r);
	rig_again(r);
	fresh = rig_domain(r, (u32)slot, 0);
	assert_int_equal(rig_load(r, fresh, 1, 100), -ENOENT);
	assert_int_equal(rig_load(r, fresh, 2, 100), -ENOENT);
	assert_int_equal(rig_stats(r).pages, 0);
	assert_true(rig_stats(r).recover_skipped >= 1);
	kvc_domain_put(r->pool, fresh);
}

/* The space of a removed tenant's pages is used again. */
static void space_of_a_removed_tenant(void **state)
{
	struct rig *r = *state;
	int slot = kvc_tenant_add(r->pool, "one", 0, 0, 0600);
	struct kvc_domain *d = rig_domain(r, (u32)slot, 0);
	u32 i;

	for (i = 0; i < 100; i++) {
		while (rig_store(r, d, i, i, 30000) == -EAGAIN)
			rig_work(r);
		rig_load(r, d, i, i);
	}
	kvc_domain_put(r->pool, d);
	assert_int_equal(kvc_tenant_remove(r->pool, "one"), 0);
	rig_fill(r, 0, 30000, 500);
	assert_int_equal(rig_stats(r).moved_pages, 0);
}

/* A slot whose epochs are used up is not given away again. */
static void epochs_end(void **state)
{
	struct rig *r = *state;

	rig_detach(r);
	r->super->tenants[1].epoch = 0xffffffff;
	rig_attach(r);
	assert_int_equal(kvc_tenant_add(r->pool, "one", 0, 0, 0600), 2);
}

static const struct CMUnitTest tenant_tests[] = {
	cmocka_unit_test_setup_teardown(add_and_remove, make, unmake),
	cmocka_unit_test_setup_teardown(slots_run_out, make, unmake),
	cmocka_unit_test_setup_teardown(tenants_are_apart, make, unmake),
	cmocka_unit_test_setup_teardown(removed_tenant, make, unmake),
	cmocka_unit_test_setup_teardown(space_of_a_removed_tenant, make, unmake),
	cmocka_unit_test_setup_teardown(epochs_end, make, unmake),
};

TEST_GROUP(tenant);
