// SPDX-License-Identifier: GPL-2.0
/*
 * Keys, keyspaces, match and leases.
 */
#include "log/log.h"
#include "test.h"

/* 40 bytes, each of which in turn is the only difference: thousands of keys, so that chains hold such pairs. */
#define NEAR_KEYS	(KVC_KEY_LEN * 100)

static int make(void **state)
{
	*state = rig_new(1, 32, 4U << 20, KVC_CHUNK_MIN);
	return 0;
}

static int unmake(void **state)
{
	rig_free(*state);
	return 0;
}

/* Every even round is stored, every odd one must not be found: they differ in one byte, at each of its places. */
static void one_byte_apart(void **state)
{
	struct rig *r = *state;
	u32 i;

	for (i = 0; i < NEAR_KEYS; i++)
		if (i / KVC_KEY_LEN % 2 == 0)
			rig_fill(r, i, 50 + i % 50, 1);
	for (i = 0; i < NEAR_KEYS; i++) {
		if (i / KVC_KEY_LEN % 2 == 0)
			assert_int_equal(rig_load(r, r->d, i, i), 0);
		else
			assert_int_equal(rig_query(r, r->d, i), -ENOENT);
	}
	rig_flush(r);
	rig_again(r);
	for (i = 0; i < NEAR_KEYS; i++) {
		if (i / KVC_KEY_LEN % 2 == 0)
			assert_int_equal(rig_load(r, r->d, i, i), 0);
		else
			assert_int_equal(rig_query(r, r->d, i), -ENOENT);
	}
}

/* The same, for the keyspace: 16 bytes, each the only difference, and enough of them for chains of domains */
#define NEAR_KEYSPACES	(KVC_KEYSPACE_LEN * 64)

static void keyspaces_one_byte_apart(void **state)
{
	struct rig *r = *state;
	static struct kvc_domain *d[NEAR_KEYSPACES];
	u32 i, j, round;

	for (round = 0; round < 2; round++) {
		for (i = 0; i < NEAR_KEYSPACES; i++) {
			d[i] = rig_domain(r, 0, i);
			for (j = 0; j < i; j++)
				if (d[i] == d[j])
					fail_msg("keyspaces %u and %u are one domain", i, j);
		}
		for (i = 0; i < NEAR_KEYSPACES && !round; i += 2)
			assert_int_equal(rig_store(r, d[i], 7, 100 + i, 60 + i), 0);
		for (i = 0; i < NEAR_KEYSPACES; i++)
			assert_int_equal(rig_load(r, d[i], 7, 100 + i), i % 2 ? -ENOENT : 0);
		for (i = 0; i < NEAR_KEYSPACES; i++)
			kvc_domain_put(r->pool, d[i]);
		rig_flush(r);
		rig_again(r);
	}
}

/* Two numbers of the same keyspace are one domain, as long as anybody uses it. */
static void domains_are_shared(void **state)
{
	struct rig *r = *state;
	struct kvc_domain *a = rig_domain(r, 0, 5), *b = rig_domain(r, 0, 5);

	assert_non_null(a);
	assert_ptr_equal(a, b);
	kvc_domain_put(r->pool, a);
	assert_int_equal(rig_store(r, b, 1, 1, 10), 0);
	kvc_domain_put(r->pool, b);
	/* The page keeps its domain. */
	a = rig_domain(r, 0, 5);
	assert_ptr_equal(a, b);
	assert_int_equal(rig_load(r, a, 1, 1), 0);
	kvc_domain_put(r->pool, a);
	assert_null(rig_domain(r, 1, 0));
	assert_null(rig_domain(r, KVC_TENANTS_MAX, 0));
	assert_null(rig_domain(r, ~0U, 0));
}

/* Any one byte zeroed or set, on a key of all zeros and of all ones */
static void extreme_keys(void **state)
{
	struct rig *r = *state;
	struct kvc_store st;
	u8 key[KVC_KEY_LEN];
	u32 i, base;

	for (base = 0; base < 2; base++) {
		memset(key, base ? 0xff : 0, sizeof(key));
		assert_int_equal(kvc_store_begin(r->pool, r->d, key, 10 + base, 0, KVC_ANY_MEMBER, &st), 0);
		rig_write_page(r, &st, 1);
		kvc_store_commit(r->pool, &st);
		for (i = 0; i < KVC_KEY_LEN; i++) {
			key[i] ^= 0x80;
			assert_int_equal(kvc_query(r->pool, r->d, key), -ENOENT);
			key[i] ^= 0x80;
		}
		assert_int_equal(kvc_query(r->pool, r->d, key), 10 + base);
	}
}

static const struct CMUnitTest keys_tests[] = {
	cmocka_unit_test_setup_teardown(one_byte_apart, make, unmake),
	cmocka_unit_test_setup_teardown(keyspaces_one_byte_apart, make, unmake),
	cmocka_unit_test_setup_teardown(domains_are_shared, make, unmake),
	cmocka_unit_test_setup_teardown(extreme_keys, make, unmake),
};

TEST_GROUP(keys);

/* Match */

static u32 match(struct rig *r, u32 first, u32 nr, u32 *lens, struct kvc_lease *leases)
{
	u8 keys[64][KVC_KEY_LEN];
	u32 i;

	for (i = 0; i < nr; i++)
		key_make(keys[i], first + i);
	return kvc_match(r->pool, r->d, (const u8 (*)[KVC_KEY_LEN])keys, nr, NULL, lens, leases);
}

static void leading_pages(void **state)
{
	struct rig *r = *state;
	u32 lens[64], i;

	for (i = 0; i < 40; i++)
		if (i != 17)
			assert_int_equal(rig_store(r, r->d, i, i, 100 + i), 0);
	memset(lens, 0, sizeof(lens));
	assert_int_equal(match(r, 0, 40, lens, NULL), 17);
	for (i = 0; i < 17; i++)
		assert_int_equal(lens[i], 100 + i);
	assert_int_equal(lens[17], 0);
	assert_int_equal(match(r, 0, 17, NULL, NULL), 17);
	assert_int_equal(match(r, 17, 20, lens, NULL), 0);
	assert_int_equal(match(r, 18, 30, lens, NULL), 22);
	assert_int_equal(match(r, 0, 0, lens, NULL), 0);
	/* Matching is not loading. */
	assert_int_equal(rig_stats(r).loads, 0);
}

static void leases_of_a_match(void **state)
{
	struct kvc_lease leases[64];
	struct rig *r = *state;
	u32 i;

	for (i = 0; i < 10; i++)
		assert_int_equal(rig_store(r, r->d, i, i, 100), 0);
	assert_int_equal(match(r, 0, 20, NULL, leases), 10);
	/* A leased page can be deleted. */
	assert_int_equal(rig_delete(r, r->d, 3), 0);
	assert_int_equal(match(r, 0, 20, NULL, NULL), 3);
	for (i = 0; i < 10; i++)
		kvc_lease_put(r->pool, &leases[i]);
}

static u32 match_all(struct rig *r, u32 first, u32 nr, u64 *present, u32 *lens, struct kvc_lease *leases)
{
	u8 keys[200][KVC_KEY_LEN];
	u32 i;

	for (i = 0; i < nr; i++)
		key_make(keys[i], first + i);
	memset(present, 0, sizeof(*present) * kvc_bits(nr));
	return kvc_match(r->pool, r->d, (const u8 (*)[KVC_KEY_LEN])keys, nr, present, lens, leases);
}

/* Is the page that is missing one that a request waits for? */
static bool awaited(struct rig *r, u32 id)
{
	u8 key[KVC_KEY_LEN];

	key_make(key, id);
	return !(kvc_request_awaits(r->pool, kvc_bucket(r->pool, r->d, key)) & KVC_STRAY);
}

static bool here(u32 i)
{
	return i % 3 && i != 64 && i != 127;
}

/* All that are there, wherever others are missing: their bits, their lengths, and leases without gaps */
static void present_pages(void **state)
{
	struct kvc_lease leases[200];
	struct rig *r = *state;
	u32 lens[200], i, n = 0, at = 0;
	u64 present[4];

	for (i = 0; i < 200; i++) {
		if (!here(i))
			continue;
		assert_int_equal(rig_store(r, r->d, i, i, 100 + i), 0);
		n++;
	}
	memset(lens, 0, sizeof(lens));
	memset(leases, 0, sizeof(leases));
	assert_int_equal(match_all(r, 0, 200, present, lens, leases), n);
	for (i = 0; i < 200; i++) {
		assert_int_equal(present[i / 64] >> (i % 64) & 1, here(i));
		assert_int_equal(lens[i], here(i) ? 100 + i : 0);
		at += leases[i].keep != NULL;
	}
	assert_int_equal(present[3] >> (200 - 192), 0);
	/* those of before may be forgotten */
	for (i = 198; i < 200; i++)
		assert_int_equal(awaited(r, i), !here(i));
	assert_int_equal(at, n);
	for (i = 0; i < n; i++)
		kvc_lease_put(r->pool, &leases[i]);
	assert_int_equal(match_all(r, 1000, 65, present, NULL, NULL), 0);
	assert_int_equal(present[0] | present[1], 0);
}

#define LONG	(16U << 10)		/* keys: far more than are awaited at a time in a pool of this size */

static void match_long(struct rig *r, struct kvc_domain *d, u32 first)
{
	u8 (*keys)[KVC_KEY_LEN] = calloc(LONG, KVC_KEY_LEN);
	u32 i;

	for (i = 0; i < LONG; i++)
		key_make(keys[i], first + i);
	assert_int_equal(kvc_match(r->pool, d, (const u8 (*)[KVC_KEY_LEN])keys, LONG, NULL, NULL, NULL), 0);
	free(keys);
}

/* What a tenant waits for is forgotten for its own later prompts, not for those of another. */
static void long_match_of_another(void **state)
{
	struct rig *r = *state;
	int slot = kvc_tenant_add(r->pool, "other", 0, 0, 0600, 0);
	struct kvc_domain *other;
	u64 present[1];
	u32 i;

	assert_true(slot > 0);
	other = rig_domain(r, (u32)slot, 0);
	match_long(r, other, 100000);
	assert_int_equal(match_all(r, 0, 8, present, NULL, NULL), 0);
	for (i = 0; i < 8; i++)
		assert_true(awaited(r, i));
	for (i = 0; i < 8; i++)
		match_long(r, other, 200000 + i * LONG);
	for (i = 0; i < 8; i++)
		assert_true(awaited(r, i));
	match_long(r, r->d, 1000);
	for (i = 0; i < 8; i++)
		assert_false(awaited(r, i));
	kvc_domain_put(r->pool, other);
}

static const struct CMUnitTest match_tests[] = {
	cmocka_unit_test_setup_teardown(long_match_of_another, make, unmake),
	cmocka_unit_test_setup_teardown(present_pages, make, unmake),
	cmocka_unit_test_setup_teardown(leading_pages, make, unmake),
	cmocka_unit_test_setup_teardown(leases_of_a_match, make, unmake),
};

TEST_GROUP(match);

/* Sizes: from one byte to the longest */
static void one_byte_to_128_mib(void **state)
{
	static const u32 lens[] = { 1, 2, 511, 4096, 18432, 1124352, 5U << 20, 12U << 20, (80U << 20) + 1,
				    KVC_PAGE_MAX - 1, KVC_PAGE_MAX };
	struct rig *r = rig_new(2, 8, 256U << 20, KVC_CHUNK_DEFAULT);
	u32 i;

	(void)state;
	assert_int_equal(kvc_page_max(r->pool), KVC_PAGE_MAX);
	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		assert_int_equal(rig_store(r, r->d, i, 70 + i, lens[i]), 0);
		rig_work(r);
	}
	rig_flush(r);
	rig_again(r);
	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		assert_int_equal(rig_query(r, r->d, i), lens[i]);
		assert_int_equal(rig_load(r, r->d, i, 70 + i), 0);
	}
	rig_free(r);
}

/* The longest page of each geometry is stored, summarized and found again. */
static void longest_of_each_geometry(void **state)
{
	static const struct {
		u64	segment;
		u32	chunk, most_wasted;
	} g[] = {
		{ KVC_SEGMENT_MIN, KVC_CHUNK_MIN, 4 },
		{ KVC_SEGMENT_MIN, KVC_CHUNK_MAX, 4 },
		{ KVC_SEGMENT_MIN + KVC_BLOCK, 8192, 4 },
		{ 1U << 20, KVC_CHUNK_MIN, 4 },
		{ 16U << 20, KVC_CHUNK_MIN, 8 },
		{ 16U << 20, KVC_CHUNK_DEFAULT, 8 },
		{ (128U << 20) + 64 * KVC_BLOCK, KVC_CHUNK_MIN, 65 + 64 },
	};
	u32 i, max;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(g); i++) {
		struct rig *r = rig_new(1, 5, g[i].segment, g[i].chunk);

		max = kvc_page_max(r->pool);
		assert_true(max + (u64)g[i].most_wasted * KVC_BLOCK >= min_t(u64, g[i].segment, KVC_PAGE_MAX));
		assert_int_equal(rig_store(r, r->d, 1, 11, max), 0);
		assert_int_equal(rig_store(r, r->d, 2, 12, max + 1), -EINVAL);
		rig_work(r);
		rig_flush(r);
		rig_again(r);
		assert_int_equal(rig_load(r, r->d, 1, 11), 0);
		rig_free(r);
	}
}

static const struct CMUnitTest sizes_tests[] = {
	cmocka_unit_test(one_byte_to_128_mib),
	cmocka_unit_test(longest_of_each_geometry),
};

TEST_GROUP(sizes);
