// SPDX-License-Identifier: GPL-2.0
/*
 * Allocation failures: the n-th allocation fails, for n = 1, 2, ... until the scenario passes untouched. Each run has
 * to end in -ENOMEM or in success, with nothing half done and nothing leaked (the leak checker looks at exit; the
 * count here looks at each run).
 */
#include "test.h"

static u32 countdown;		/* the allocation that fails; 0: none */
static bool failed;

static bool fail_nth(size_t size)
{
	(void)size;
	if (countdown && --countdown == 0) {
		failed = true;
		return true;
	}
	return false;
}

static struct kvc_super *sample_super(void)
{
	struct kvc_super *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	s->seq = 1;
	strcpy(s->pool_name, "sweep");
	s->segment_size = KVC_SEGMENT_MIN;
	s->chunk_size = KVC_CHUNK_MIN;
	s->nr_members = 2;
	s->members[0].nr_segments = s->members[1].nr_segments = 6;
	s->members[1].uuid[0] = 1;
	strcpy(s->tenants[0].name, "default");
	s->tenants[0].flags = KVC_TENANT_USED;
	return s;
}

/* With the n-th allocation of @scenario refused; true when that many were not made. */
static bool run_nth(struct rig *r, int (*scenario)(struct rig *r), u32 n)
{
	int ret;

	countdown = n;
	failed = false;
	os_alloc_fault = fail_nth;
	ret = scenario(r);
	os_alloc_fault = NULL;
	countdown = 0;
	if (failed)
		assert_int_equal(ret, -ENOMEM);
	else
		assert_int_equal(ret, 0);
	return !failed;
}

static void ignore_kick(void *owner, u32 member)
{
	(void)owner;
	(void)member;
}

static void ignore_space(void *owner)
{
	(void)owner;
}

static int create(struct rig *r)
{
	static const struct kvc_ops ops = { ignore_kick, ignore_space };
	struct kvc_pool *p = NULL;
	int ret = kvc_pool_create(r->super, 1, &ops, NULL, &p);

	if (ret) {
		assert_null(p);
		return ret;
	}
	kvc_pool_destroy(p);
	return 0;
}

static void sweep_create(void **state)
{
	struct rig r = { .super = sample_super() };
	u32 n = 1;

	(void)state;
	while (!run_nth(&r, create, n))
		n++;
	assert_true(n > 5);
	free(r.super);
}

/* A store of a keyspace of its own: domain, entry block, CRC block */
static u32 next_keyspace;

static int one_store(struct rig *r)
{
	struct kvc_domain *d = rig_domain(r, 0, next_keyspace++);
	u64 pages = rig_stats(r).pages;
	int ret;

	if (!d)
		return -ENOMEM;
	ret = rig_store(r, d, 1, 7, 30000);
	assert_int_equal(rig_load(r, d, 1, 7), ret ? -ENOENT : 0);
	assert_int_equal(rig_stats(r).pages, pages + (ret == 0));
	kvc_domain_put(r->pool, d);
	return ret;
}

static void sweep_store(void **state)
{
	struct rig *r = rig_small(2);
	u32 round, n, faults = 0;

	(void)state;
	/* Often enough to meet every kind of growth */
	for (round = 0; round < 40; round++) {
		for (n = 1; !run_nth(r, one_store, n); n++)
			faults++;
		rig_work(r);
	}
	assert_true(faults > 40);
	rig_free(r);
}

static int one_delete(struct rig *r)
{
	int ret = rig_delete(r, r->d, next_keyspace);

	if (ret == -EAGAIN)
		return 0;
	if (ret == -ENOMEM)
		assert_int_equal(rig_load(r, r->d, next_keyspace, next_keyspace), 0);
	else
		assert_int_equal(rig_query(r, r->d, next_keyspace), -ENOENT);
	return ret;
}

static void sweep_delete(void **state)
{
	struct rig *r = rig_small(1);
	u32 n, faults = 0;

	(void)state;
	rig_fill(r, 0, 100, 200);
	rig_flush(r);
	for (next_keyspace = 0; next_keyspace < 200; next_keyspace++) {
		for (n = 1; !run_nth(r, one_delete, n); n++)
			faults++;
		rig_work(r);
		/* One that found no room */
		if (rig_query(r, r->d, next_keyspace) > 0)
			assert_int_equal(rig_delete(r, r->d, next_keyspace), 0);
	}
	assert_true(faults > 0);
	rig_flush(r);
	rig_again(r);
	assert_int_equal(rig_stats(r).pages, 0);
	rig_free(r);
}

/* Work while memory is short: every n-th allocation fails, work is asked for again, nothing is lost. */
static u32 every, calls;

static bool fail_every(size_t size)
{
	(void)size;
	return ++calls % every == 0;
}

static void try_work(struct rig *r)
{
	struct kvc_work w;
	int ret;

	do {
		ret = kvc_work_next(r->pool, 0, &w);
		if (ret == 1)
			kvc_work_done(r->pool, &w, rig_exec(r, &w));
	} while (ret == 1 || ret == -ENOMEM);
	assert_int_equal(ret, 0);
}

static void short_of_memory(void **state)
{
	u32 i, hot = 5;
	int ret;

	(void)state;
	for (every = 2; every < 8; every++) {
		struct rig *r = rig_small(1);

		rig_fill(r, 9000, 3000, hot);
		os_alloc_fault = fail_every;
		for (i = 0; i < 400; i++) {
			do {
				ret = rig_store(r, r->d, i, i, 30000);
				if (ret == -EAGAIN)
					try_work(r);
			} while (ret == -EAGAIN || ret == -ENOMEM);
			assert_int_equal(ret, 0);
			assert_int_equal(rig_load(r, r->d, 9000 + i % hot, 9000 + i % hot), 0);
			if (i % 50 == 7) {
				do {
					ret = rig_delete(r, r->d, i);
				} while (ret == -ENOMEM);
				assert_int_equal(ret, 0);
			}
		}
		os_alloc_fault = NULL;
		assert_true(rig_stats(r).moved_pages > 0);
		rig_flush(r);
		rig_detach(r);
		rig_recover(r);
		assert_int_equal(rig_load(r, r->d, 399, 399), 0);
		for (i = 0; i < hot; i++)
			assert_int_equal(rig_load(r, r->d, 9000 + i, 9000 + i), 0);
		rig_free(r);
	}
}

/* Recovery: -ENOMEM from feed, then destroy; or, when every so many fail, the same again */
static int recover_all(struct rig *r, struct kvc_pool *p, u8 *buf)
{
	struct kvc_recover rec;
	u32 i;
	int ret = 0;

	for (i = 0; i < kvc_nr_members(p) * kvc_nr_segments(p, 0) && !ret; i++) {
		kvc_recover_start(p, i % kvc_nr_members(p), i / kvc_nr_members(p), &rec);
		do {
			dev_pread(r->devs[rec.member], rec.offset, buf, rec.len);
			ret = kvc_recover_feed(p, &rec, buf, 0);
			if (ret == -ENOMEM && every)
				ret = 1;
		} while (ret == 1);
	}
	return ret;
}

static int attach(struct rig *r)
{
	static const struct kvc_ops ops = { ignore_kick, ignore_space };
	u8 *buf = malloc(KVC_RECOVER_IO);
	struct kvc_pool *p;
	struct kvc_stats st;
	int ret;

	assert_non_null(buf);
	ret = kvc_pool_create(r->super, 1, &ops, NULL, &p);
	if (!ret) {
		ret = recover_all(r, p, buf);
		if (!ret) {
			kvc_recover_finish(p);
			kvc_stats_get(p, &st);
			assert_int_equal(st.pages, 300);
		}
		kvc_pool_destroy(p);
	}
	free(buf);
	return ret;
}

static void sweep_recovery(void **state)
{
	struct rig *r = rig_new(1, 12, KVC_SEGMENT_MIN, KVC_CHUNK_MIN);
	u32 n = 1;

	(void)state;
	rig_fill(r, 0, 2000, 300);
	rig_flush(r);
	rig_detach(r);
	every = 0;
	while (!run_nth(r, attach, n))
		n++;
	assert_true(n > 10);
	/* Again after each failure, in the same pool */
	os_alloc_fault = fail_every;
	for (every = 50; every < 53; every++)
		while (attach(r) == -ENOMEM)
			calls++;
	os_alloc_fault = NULL;
	rig_free(r);
}

/*
 * Together they fill a segment of 256 KiB but for the block that ends the log; a second time there is no room for the
 * first of them.
 */
static const u32 filling[] = { 40000, 40000, 40000, 40000, 40000, 32000, 1 };

#define FULL	((u32)ARRAY_SIZE(filling))

/* All segments, with the n-th allocation refused, fed again after that; true when fewer were made. */
static bool recover_again(struct rig *r, u8 *buf, u32 n)
{
	static const struct kvc_ops ops = { ignore_kick, ignore_space };
	struct kvc_pool *p;
	struct kvc_stats st;

	assert_int_equal(kvc_pool_create(r->super, 1, &ops, NULL, &p), 0);
	every = 1;
	countdown = n;
	failed = false;
	os_alloc_fault = fail_nth;
	assert_int_equal(recover_all(r, p, buf), 0);
	os_alloc_fault = NULL;
	kvc_recover_finish(p);
	kvc_stats_get(p, &st);
	assert_int_equal(st.pages, FULL);
	assert_int_equal(st.recover_skipped, 0);
	kvc_pool_destroy(p);
	return !failed;
}

/* A full segment of which every record takes an allocation: fed again it needs no more room than it had. */
static void full_segment_fed_again(void **state)
{
	struct rig *r = rig_new(1, 5, KVC_SEGMENT_MIN, KVC_CHUNK_MIN);
	u8 *buf = malloc(KVC_RECOVER_IO);
	struct kvc_domain *d;
	u32 i, n = 1;

	(void)state;
	assert_non_null(buf);
	for (i = 0; i < FULL; i++) {
		d = rig_domain(r, 0, 10 + i);
		assert_int_equal(rig_store(r, d, i, i, filling[i]), 0);
		kvc_domain_put(r->pool, d);
	}
	rig_flush(r);
	rig_detach(r);
	while (!recover_again(r, buf, n))
		n++;
	assert_true(n > FULL);
	free(buf);
	rig_free(r);
}

/* Also after a failed test */
static int no_faults(void **state)
{
	(void)state;
	os_alloc_fault = NULL;
	return 0;
}

static const struct CMUnitTest sweep_tests[] = {
	cmocka_unit_test_teardown(sweep_create, no_faults),
	cmocka_unit_test_teardown(sweep_store, no_faults),
	cmocka_unit_test_teardown(sweep_delete, no_faults),
	cmocka_unit_test_teardown(short_of_memory, no_faults),
	cmocka_unit_test_teardown(sweep_recovery, no_faults),
	cmocka_unit_test_teardown(full_segment_fed_again, no_faults),
};

TEST_GROUP(sweep);
