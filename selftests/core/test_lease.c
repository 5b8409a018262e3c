// SPDX-License-Identifier: GPL-2.0
/*
 * Leases are a promise with a limit: what they keep from others, and which of them yield.
 */
#include "engine.h"
#include "log/log.h"
#include "test.h"

#define PAGE	60000U
#define SEGS	64U

static struct kvc_domain *tenant(struct rig *r, const char *name)
{
	int slot = kvc_tenant_add(r->pool, name, 0, 0, 0600, 0);
	struct kvc_domain *d;

	assert_true(slot > 0);
	d = rig_domain(r, (u32)slot, 0);
	assert_non_null(d);
	return d;
}

static void store(struct rig *r, struct kvc_domain *d, u32 id, u32 length)
{
	int ret;

	while ((ret = rig_store(r, d, id, id, length)) == -EAGAIN)
		rig_work(r);
	assert_int_equal(ret, 0);
	rig_work(r);
}

/* A page as long as a segment, so that it is alone there, and sealed; leased. */
static void keep(struct rig *r, struct kvc_domain *d, u32 id, struct kvc_lease *l)
{
	store(r, d, id, kvc_page_max(r->pool));
	rig_flush(r);
	rig_work(r);
	assert_int_equal(rig_lease(r, d, id, l), 0);
}

static u32 kept(struct rig *r, const struct kvc_domain *d)
{
	return (u32)(kvc_tenant_leased(r->pool, d->slot) / KVC_SEGMENT_MIN);
}

static u32 lasting(const struct kvc_lease *l, u32 nr)
{
	u32 n = 0, i;

	for (i = 0; i < nr; i++)
		n += kvc_lease_lasts(&l[i]);
	return n;
}

static void put_all(struct rig *r, struct kvc_lease *l, u32 nr)
{
	while (nr)
		kvc_lease_put(r->pool, &l[--nr]);
}

static void drop(struct rig *r, struct kvc_domain *d)
{
	assert_int_equal(kept(r, d), 0);
	kvc_domain_put(r->pool, d);
}

/*
 * A tenant that has a small page in each segment, and leases them all, stops nobody's stores; nor does it leave others
 * so little that what they have stored goes at once.
 */
static void flood_of_single_pages(void **state)
{
	struct rig *r = rig_new(1, SEGS, KVC_SEGMENT_MIN, KVC_CHUNK_MIN);
	struct kvc_domain *flood = tenant(r, "flood");
	struct kvc_lease l[300];
	u32 id, n = 0, i;

	(void)state;
	for (id = 0; n < ARRAY_SIZE(l); id++) {
		store(r, r->d, id, PAGE);
		store(r, flood, id, 500);
		assert_int_equal(rig_lease(r, flood, id, &l[n++]), 0);
	}
	assert_true(kept(r, flood) > SEGS / 2 + 10);
	rig_fill(r, 10000, PAGE, 300);
	assert_int_equal(kept(r, flood), SEGS / 2);
	for (i = 10000, id = 0; i < 10300; i++)
		id += rig_query(r, r->d, i) == PAGE;
	assert_true(id >= 4 * (SEGS / 2 - 12));
	put_all(r, l, n);
	drop(r, flood);
	rig_free(r);
}

/*
 * A tenant alone may lease all there is. Only who is refused has leases yield, the longest-held first; that they can is
 * hope enough, also before the worker has looked.
 */
static void alone(void **state)
{
	struct rig *r = rig_new(1, SEGS, KVC_SEGMENT_MIN, KVC_CHUNK_MIN);
	struct kvc_lease l[SEGS];
	struct kvc_store st;
	struct kvc_work w;
	u32 n = 0, last, i;
	int ret;

	(void)state;
	while ((ret = rig_begin(r, r->d, n, kvc_page_max(r->pool), &st)) == 0) {
		rig_write_page(r, &st, n);
		kvc_store_commit(r->pool, &st);
		rig_flush(r);
		rig_work(r);
		assert_int_equal(rig_lease(r, r->d, n, &l[n]), 0);
		n++;
	}
	assert_int_equal(ret, -EAGAIN);
	assert_int_equal(lasting(l, n), n);
	assert_int_equal(kept(r, r->d), n);
	assert_true(n > SEGS - 6);
	assert_int_equal(rig_stats(r).evicted_pages, 0);
	while (r->pool->members[0].list[KVC_S_SEALING].count)
		assert_true(rig_step(r, 0, &w));
	assert_int_equal(lasting(l, n), n);
	assert_int_equal(rig_begin(r, r->d, n, kvc_page_max(r->pool), &st), -EAGAIN);
	rig_work(r);
	last = lasting(l, n);
	assert_in_range(n - last, 1, 4);
	for (i = 0; i < n; i++)
		assert_int_equal(kvc_lease_lasts(&l[i]), i >= n - last);
	assert_int_equal(kept(r, r->d), last);
	rig_fill(r, 1000, PAGE, 300);
	/* that was all the room it took */
	assert_true(lasting(l, n) >= last - 1);
	for (i = n - last + 1; i < n; i++)
		assert_int_equal(rig_load(r, r->d, i, i), 0);
	put_all(r, l, n);
	rig_free(r);
}

/* Of several tenants the one goes first that is most over its share, then all who are; who is within it keeps all. */
static void most_over_share(void **state)
{
	struct rig *r = rig_new(1, SEGS, KVC_SEGMENT_MIN, KVC_CHUNK_MIN);
	struct kvc_domain *a = tenant(r, "a"), *b = tenant(r, "b"), *c = tenant(r, "c");
	struct kvc_lease la[30], more[8], lb[12], lc[4], ld[16];
	u32 i, left;

	(void)state;
	/* four tenants: four segments each */
	for (i = 0; i < ARRAY_SIZE(lc); i++)
		keep(r, c, i, &lc[i]);
	for (i = 0; i < ARRAY_SIZE(lb); i++)
		keep(r, b, i, &lb[i]);
	for (i = 0; i < ARRAY_SIZE(la); i++)
		keep(r, a, i, &la[i]);
	rig_fill(r, 0, PAGE, 300);
	assert_int_equal(kept(r, a), SEGS / 2 - 16);
	left = lasting(la, ARRAY_SIZE(la));
	assert_int_equal(left, SEGS / 2 - 16);
	for (i = 0; i < ARRAY_SIZE(la); i++)
		assert_int_equal(kvc_lease_lasts(&la[i]), i >= ARRAY_SIZE(la) - left);
	assert_int_equal(lasting(lb, ARRAY_SIZE(lb)), ARRAY_SIZE(lb));
	/* four over the half go, and b has come to be as much over its share */
	for (i = 0; i < 8; i++)
		keep(r, a, 100 + i, &more[i]);
	rig_fill(r, 1000, PAGE, 300);
	assert_int_equal(kept(r, a), SEGS / 2 - 16);
	for (i = 0; i < 8; i++)
		assert_true(kvc_lease_lasts(&more[i]));
	/* the operator lets b keep what it has, and a nothing to speak of */
	assert_int_equal(kvc_tenant_limit(r->pool, "b", &(struct kvc_limits){ .leased = 12 * KVC_SEGMENT_MIN }), 0);
	assert_int_equal(kvc_tenant_limit(r->pool, "a", &(struct kvc_limits){ .leased = 1 }), 0);
	for (i = 0; i < 16; i++)
		keep(r, r->d, 5000 + i, &ld[i]);
	rig_fill(r, 2000, PAGE, 300);
	assert_int_equal(lasting(lb, ARRAY_SIZE(lb)), ARRAY_SIZE(lb));
	assert_int_equal(lasting(lc, ARRAY_SIZE(lc)), ARRAY_SIZE(lc));
	assert_int_equal(kept(r, a) + kept(r, r->d), SEGS / 2 - 16);
	assert_in_range(kept(r, r->d) - kept(r, a), 2, 4);
	for (i = 0; i < ARRAY_SIZE(lc); i++)
		assert_int_equal(rig_load(r, c, i, i), 0);
	put_all(r, la, ARRAY_SIZE(la));
	put_all(r, more, ARRAY_SIZE(more));
	put_all(r, lb, ARRAY_SIZE(lb));
	put_all(r, lc, ARRAY_SIZE(lc));
	put_all(r, ld, ARRAY_SIZE(ld));
	drop(r, a);
	drop(r, b);
	drop(r, c);
	rig_free(r);
}

/* A segment that somebody keeps who is within his share does not yield. */
static void shared_segments(void **state)
{
	struct rig *r = rig_new(1, SEGS, KVC_SEGMENT_MIN, KVC_CHUNK_MIN);
	struct kvc_domain *a = tenant(r, "a"), *b = tenant(r, "b");
	struct kvc_lease la[50], lb[3], ld[8];
	u32 i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(la); i++) {
		if (i < ARRAY_SIZE(lb))
			store(r, b, i, 28000);
		store(r, a, i, kvc_page_max(r->pool) - 36864);
		/* whoever came first */
		if (i < ARRAY_SIZE(lb) && i % 2)
			assert_int_equal(rig_lease(r, b, i, &lb[i]), 0);
		assert_int_equal(rig_lease(r, a, i, &la[i]), 0);
		if (i < ARRAY_SIZE(lb) && !(i % 2))
			assert_int_equal(rig_lease(r, b, i, &lb[i]), 0);
	}
	assert_int_equal(kept(r, b), 3);
	rig_fill(r, 0, PAGE, 300);
	assert_int_equal(lasting(lb, ARRAY_SIZE(lb)), 3);
	assert_int_equal(lasting(la, 3), 3);
	assert_false(kvc_lease_lasts(&la[3]));
	put_all(r, lb, ARRAY_SIZE(lb));
	for (i = 0; i < 8; i++)
		keep(r, r->d, 9000 + i, &ld[i]);
	rig_fill(r, 1000, PAGE, 300);
	assert_int_equal(lasting(la, 3), 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(rig_query(r, a, i), -ENOENT);
	put_all(r, la, ARRAY_SIZE(la));
	put_all(r, ld, ARRAY_SIZE(ld));
	drop(r, a);
	drop(r, b);
	rig_free(r);
}

/* Until no more than @nr of the leases last */
static void press(struct rig *r, const struct kvc_lease *l, u32 nr, u32 *id)
{
	struct kvc_work w;

	while (lasting(l, nr) == nr)
		if (!rig_step(r, 0, &w) && rig_store(r, r->d, (*id)++, 0, PAGE) == -EAGAIN)
			kvc_kick(&r->pool->members[0]);
}

/*
 * A lease that has yielded: its page is a miss, to load and to lease. A load that had begun has its bytes until it
 * ends. The end of the lease changes nothing of what the segment is then.
 */
static void after_it_yielded(void **state)
{
	struct rig *r = rig_segments(16);
	struct kvc_domain *a = tenant(r, "a");
	struct kvc_lease l[10], again;
	u32 id = 1000, gseg, i;
	struct kvc_seg *seg;
	struct kvc_load ld;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(l); i++)
		keep(r, a, i, &l[i]);
	assert_int_equal(rig_hold(r, a, 0, &ld), 0);
	gseg = ld.gseg;
	seg = kvc_seg(r->pool, gseg);
	press(r, l, ARRAY_SIZE(l), &id);
	assert_false(kvc_lease_lasts(&l[0]));
	assert_int_equal(lasting(l, ARRAY_SIZE(l)), ARRAY_SIZE(l) - 1);
	assert_int_equal(kept(r, a), ARRAY_SIZE(l) - 1);
	assert_int_equal(rig_lease(r, a, 0, &again), -ENOENT);
	rig_work(r);
	assert_int_equal(seg->state, KVC_S_DRAINING);
	assert_int_equal(rig_load(r, a, 0, 0), -ENOENT);
	for (i = 0; i < 20; i++)
		rig_store(r, r->d, id++, 0, PAGE);
	rig_work(r);
	assert_int_equal(seg->state, KVC_S_DRAINING);
	kvc_load_end(r->pool, &ld, 0);
	/* somebody else's page comes there, and is leased */
	do {
		rig_work(r);
		id++;
		if (rig_store(r, r->d, id, id, PAGE))
			continue;
		assert_int_equal(rig_hold(r, r->d, id, &ld), 0);
		kvc_load_end(r->pool, &ld, 0);
	} while (ld.gseg != gseg);
	assert_int_equal(rig_lease(r, r->d, id, &again), 0);
	assert_int_equal(os_atomic_read(&seg->leases), 1);
	kvc_lease_put(r->pool, &l[0]);
	assert_int_equal(os_atomic_read(&seg->leases), 1);
	assert_int_equal(kept(r, r->d), 1);
	rig_fill(r, 5000, PAGE, 100);
	assert_int_equal(rig_load(r, r->d, id, id), 0);
	kvc_lease_put(r->pool, &again);
	assert_int_equal(kept(r, r->d), 0);
	put_all(r, &l[1], ARRAY_SIZE(l) - 1);
	drop(r, a);
	rig_free(r);
}

/*
 * A victim that is leased while its pages move gets away; not so where there are other tenants, and who leases is over
 * his share: he could do that again and again.
 */
static void leased_as_a_victim(void **state)
{
	u32 tenants, id, i;

	(void)state;
	for (tenants = 1; tenants < 3; tenants++) {
		struct rig *r = rig_segments(16);
		struct kvc_lease l[8];
		struct kvc_seg *victim;
		struct kvc_work w;

		if (tenants == 2)
			drop(r, tenant(r, "b"));
		for (i = 0; i < 6; i++)
			keep(r, r->d, 9000 + i, &l[i]);
		for (id = 0;; id++) {
			if (!rig_store(r, r->d, id, id, PAGE)) {
				rig_load(r, r->d, id, id);
				rig_load(r, r->d, id, id);
			}
			if (kvc_work_next(r->pool, 0, &w) != 1)
				continue;
			if (w.type == KVC_WORK_MOVE)
				break;
			kvc_work_done(r->pool, &w, rig_exec(r, &w));
		}
		victim = r->pool->members[0].reclaim.victim;
		assert_int_equal(victim->state, KVC_S_VICTIM);
		for (i = 0; i < id; i++) {
			struct kvc_load ld;

			if (rig_hold(r, r->d, i, &ld))
				continue;
			kvc_load_end(r->pool, &ld, 0);
			if (kvc_seg(r->pool, ld.gseg) == victim)
				break;
		}
		assert_int_equal(rig_lease(r, r->d, i, &l[6]), 0);
		kvc_work_done(r->pool, &w, rig_exec(r, &w));
		while (r->pool->members[0].reclaim.victim == victim && victim->state == KVC_S_VICTIM)
			assert_true(rig_step(r, 0, &w));
		assert_int_equal(kvc_lease_lasts(&l[6]), tenants == 1);
		assert_int_equal(rig_query(r, r->d, i), tenants == 1 ? (int)PAGE : -ENOENT);
		put_all(r, l, 7);
		rig_free(r);
	}
}

/* A victim that is leased once it has been chosen yields by the shares as they are then, not as they last counted. */
static void shares_change_meanwhile(void **state)
{
	struct rig *r = rig_segments(16);
	struct kvc_domain *a = tenant(r, "a");
	struct kvc_member *m = &r->pool->members[0];
	struct kvc_lease l[3];
	struct kvc_seg *seg;
	u32 i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(l); i++)
		keep(r, a, i, &l[i]);
	os_lock(&m->lock);
	seg = kvc_lease_next(m, true);
	os_unlock(&m->lock);
	assert_non_null(seg);
	assert_int_equal(kvc_tenant_limit(r->pool, "a", &(struct kvc_limits){ .leased = 3 * KVC_SEGMENT_MIN }), 0);
	os_lock(&m->lock);
	assert_false(kvc_lease_yield(m, seg, false));
	os_unlock(&m->lock);
	assert_int_equal(seg->state, KVC_S_SEALED);
	assert_int_equal(lasting(l, ARRAY_SIZE(l)), ARRAY_SIZE(l));
	assert_int_equal(kvc_tenant_limit(r->pool, "a", &(struct kvc_limits){ .leased = 1 }), 0);
	os_lock(&m->lock);
	assert_true(kvc_lease_yield(m, seg, false));
	os_unlock(&m->lock);
	assert_int_equal(lasting(l, ARRAY_SIZE(l)), ARRAY_SIZE(l) - 1);
	put_all(r, l, ARRAY_SIZE(l));
	drop(r, a);
	rig_free(r);
}

/* The leases of a removed tenant have no share; who gets its slot has one of his own, and what he leases is his. */
static void removed_tenant(void **state)
{
	struct rig *r = rig_new(1, SEGS, KVC_SEGMENT_MIN, KVC_CHUNK_MIN);
	struct kvc_domain *a = tenant(r, "a"), *b;
	struct kvc_lease la[3], lb[4], l[40];
	u32 i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(l); i++)
		keep(r, r->d, i, &l[i]);
	for (i = 0; i < ARRAY_SIZE(la); i++)
		keep(r, a, i, &la[i]);
	assert_int_equal(kvc_tenant_remove(r->pool, "a"), 0);
	kvc_tenants_gone(r->pool);
	b = tenant(r, "b");
	assert_int_equal(b->slot, a->slot);
	for (i = 0; i < ARRAY_SIZE(lb); i++)
		keep(r, b, i, &lb[i]);
	rig_fill(r, 1000, PAGE, 300);
	assert_int_equal(lasting(la, ARRAY_SIZE(la)), 0);
	assert_int_equal(lasting(lb, ARRAY_SIZE(lb)), ARRAY_SIZE(lb));
	assert_int_equal(kept(r, r->d), SEGS / 2 - 4);
	assert_int_equal(kept(r, b), 4);
	put_all(r, la, ARRAY_SIZE(la));
	assert_int_equal(kept(r, b), 4);
	put_all(r, lb, ARRAY_SIZE(lb));
	put_all(r, l, ARRAY_SIZE(l));
	drop(r, b);
	kvc_domain_put(r->pool, a);
	rig_free(r);
}

/* What the leases of a removed tenant keep, and others keep too, is not held against who gets its slot. */
static void heir_of_a_slot(void **state)
{
	struct rig *r = rig_new(1, SEGS, KVC_SEGMENT_MIN, KVC_CHUNK_MIN);
	struct kvc_domain *a = tenant(r, "a"), *b, *c = tenant(r, "c");
	struct kvc_lease la[5], lb[5], lc[5], l[30];
	u32 i;

	(void)state;
	/* c and whoever has the other slot may keep five segments each */
	assert_int_equal(kvc_tenant_limit(r->pool, "default", &(struct kvc_limits){ .leased = 30 * KVC_SEGMENT_MIN }), 0);
	for (i = 0; i < ARRAY_SIZE(lc); i++) {
		store(r, a, i, 28000);
		assert_int_equal(rig_lease(r, a, i, &la[i]), 0);
		store(r, c, i, kvc_page_max(r->pool) - 36864);
		assert_int_equal(rig_lease(r, c, i, &lc[i]), 0);
	}
	assert_int_equal(kvc_tenant_remove(r->pool, "a"), 0);
	kvc_tenants_gone(r->pool);
	b = tenant(r, "b");
	assert_int_equal(b->slot, a->slot);
	assert_int_equal(kept(r, b), 0);
	for (i = 0; i < ARRAY_SIZE(lb); i++)
		keep(r, b, i, &lb[i]);
	assert_int_equal(kept(r, b), ARRAY_SIZE(lb));
	for (i = 0; i < ARRAY_SIZE(l); i++)
		keep(r, r->d, i, &l[i]);
	rig_fill(r, 1000, PAGE, 300);
	assert_int_equal(lasting(lb, ARRAY_SIZE(lb)), ARRAY_SIZE(lb));
	assert_int_equal(lasting(lc, ARRAY_SIZE(lc)), ARRAY_SIZE(lc));
	assert_int_equal(lasting(l, ARRAY_SIZE(l)), ARRAY_SIZE(l));
	/* when they end, none of its own ends with them */
	put_all(r, la, ARRAY_SIZE(la));
	assert_int_equal(kept(r, b), ARRAY_SIZE(lb));
	put_all(r, lb, ARRAY_SIZE(lb));
	put_all(r, lc, ARRAY_SIZE(lc));
	put_all(r, l, ARRAY_SIZE(l));
	drop(r, b);
	drop(r, c);
	kvc_domain_put(r->pool, a);
	rig_free(r);
}

static bool no_memory(size_t size)
{
	(void)size;
	return true;
}

static void no_memory_to_lease(void **state)
{
	struct rig *r = rig_small(1);
	u8 keys[2][KVC_KEY_LEN];
	struct kvc_lease l[2];
	u32 i;

	(void)state;
	for (i = 0; i < 2; i++) {
		store(r, r->d, i, 500);
		key_make(keys[i], i);
	}
	os_alloc_fault = no_memory;
	assert_int_equal(rig_lease(r, r->d, 0, l), -ENOMEM);
	assert_int_equal(kvc_match(r->pool, r->d, (const u8 (*)[KVC_KEY_LEN])keys, 2, NULL, NULL, l), 2);
	os_alloc_fault = NULL;
	assert_int_equal(lasting(l, 2), 0);
	put_all(r, l, 2);
	assert_int_equal(kept(r, r->d), 0);
	assert_int_equal(kvc_match(r->pool, r->d, (const u8 (*)[KVC_KEY_LEN])keys, 2, NULL, NULL, l), 2);
	assert_int_equal(kept(r, r->d), 1);
	put_all(r, l, 2);
	assert_int_equal(kept(r, r->d), 0);
	rig_free(r);
}

static const struct CMUnitTest lease_tests[] = {
	cmocka_unit_test(flood_of_single_pages),
	cmocka_unit_test(alone),
	cmocka_unit_test(most_over_share),
	cmocka_unit_test(shared_segments),
	cmocka_unit_test(after_it_yielded),
	cmocka_unit_test(leased_as_a_victim),
	cmocka_unit_test(shares_change_meanwhile),
	cmocka_unit_test(removed_tenant),
	cmocka_unit_test(heir_of_a_slot),
	cmocka_unit_test(no_memory_to_lease),
};
TEST_GROUP(lease);
