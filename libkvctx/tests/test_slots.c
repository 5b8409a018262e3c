// SPDX-License-Identifier: LGPL-2.1-or-later
/* Pages read ahead into slots: opening with them, synchronous calls, helpers for queued operations. */
#include "test.h"

#define SLOTS	4
#define SLOT	8192

static const uint8_t text[] = "a page of a cache";

static int open_slots(uint32_t nr, uint32_t bytes, int flags)
{
	struct kvctx_params p = {
		.size = sizeof(p), .cq_entries = LIMIT, .nr_slots = nr, .slot_bytes = bytes,
	};

	if (ctx)
		close_handle();
	return kvctx_open(FAKE_PATH, flags, &p, &ctx);
}

static struct kvctx_key stored(uint64_t n, const void *page, size_t len)
{
	struct kvctx_key key = kvctx_key_from_u64(n, 1);

	assert_int_equal(kvctx_store(ctx, &key, page, len, NULL), len);
	return key;
}

static void where_they_are(void **state)
{
	size_t bytes = 1;
	uint32_t nr = 1;

	(void)state;
	assert_null(kvctx_slots(ctx, &bytes, &nr));
	assert_int_equal(bytes, 0);
	assert_int_equal(nr, 0);
	assert_int_equal(open_slots(SLOTS, SLOT - 100, O_RDWR), 0);
	assert_int_equal(fake.setup.slot_bytes, SLOT - 100);
	assert_int_equal(fake.setup.nr_slots, SLOTS);
	assert_non_null(kvctx_slots(ctx, &bytes, &nr));
	assert_int_equal(bytes, SLOT);
	assert_int_equal(nr, SLOTS);
	assert_non_null(kvctx_slots(ctx, NULL, NULL));
	assert_int_equal(open_slots(SLOTS, SLOT, O_RDONLY), 0);
	assert_non_null(kvctx_slots(ctx, NULL, NULL));
}

static void opening_fails(void **state)
{
	(void)state;
	/* the module refuses it */
	assert_int_equal(open_slots(1, 0, O_RDWR), -EINVAL);
	assert_int_equal(fake.fds, 0);
	/* ring, then slots: no room for the second mapping */
	fake.mmaps_left = 1;
	assert_int_equal(open_slots(SLOTS, SLOT, O_RDWR), -ENOMEM);
	assert_int_equal(fake.maps, 0);
	assert_int_equal(fake.fds, 0);
	fake.mmaps_left = -1;
	assert_int_equal(open_slots(SLOTS, SLOT, O_RDWR), 0);
}

static void prefetch_and_get(void **state)
{
	const uint8_t *page = NULL, *same = NULL;
	const uint8_t *slots;
	struct kvctx_key key, none = kvctx_key_from_u64(99, 9);
	uint32_t flags = 0;
	int64_t slot;

	(void)state;
	assert_int_equal(open_slots(SLOTS, SLOT, O_RDWR), 0);
	slots = kvctx_slots(ctx, NULL, NULL);
	key = stored(1, text, sizeof(text));
	stored(2, slots, 1);
	assert_int_equal(kvctx_prefetch(ctx, &key, 1000, &flags), sizeof(text));
	assert_int_equal(flags, KVCTX_CQE_VERIFIED);
	assert_int_equal(kvctx_prefetch(ctx, &key, 1000, NULL), sizeof(text));
	slot = kvctx_get(ctx, &key, 1000, (const void **)&page, &flags);
	assert_in_range(slot, 0, SLOTS - 1);
	assert_int_equal(flags, KVCTX_CQE_VERIFIED | KVCTX_CQE_FROM_DRAM);
	assert_ptr_equal(page, slots + slot * SLOT);
	assert_memory_equal(page, text, sizeof(text));
	assert_int_equal(kvctx_get(ctx, &key, 1000, (const void **)&same, NULL), slot);
	assert_ptr_equal(same, page);
	assert_int_equal(kvctx_get(ctx, &key, 1000, NULL, NULL), slot);
	assert_int_equal(kvctx_get(ctx, &none, 1000, (const void **)&same, NULL), -ENOENT);
	assert_ptr_equal(same, page);
	assert_int_equal(kvctx_prefetch(ctx, &none, 1000, NULL), -ENOENT);
	for (int i = 0; i < 3; i++)
		assert_int_equal(kvctx_put(ctx, (uint32_t)slot), 0);
	assert_int_equal(kvctx_put(ctx, (uint32_t)slot), -EINVAL);
	assert_int_equal(kvctx_put(ctx, SLOTS), -EINVAL);
}

static void limits(void **state)
{
	uint8_t big[SLOT + 1] = { 1 };
	struct kvctx_key key;
	const void *page;

	(void)state;
	key = stored(3, big, sizeof(big));
	/* no slots: the handle of setup() */
	assert_int_equal(kvctx_prefetch(ctx, &key, 10, NULL), -EOPNOTSUPP);
	assert_int_equal(kvctx_get(ctx, &key, 10, &page, NULL), -EOPNOTSUPP);
	assert_int_equal(kvctx_put(ctx, 0), -EOPNOTSUPP);
	assert_int_equal(open_slots(2, SLOT, O_RDWR), 0);
	assert_int_equal(kvctx_prefetch(ctx, &key, 10, NULL), -E2BIG);
	for (int i = 0; i < 2; i++) {
		key = stored(10 + (uint64_t)i, big, 100);
		assert_int_equal(kvctx_get(ctx, &key, 10, &page, NULL), i);
	}
	key = stored(12, big, 100);
	assert_int_equal(kvctx_get(ctx, &key, 10, &page, NULL), -ENOSPC);
	assert_int_equal(kvctx_put(ctx, 1), 0);
	assert_int_equal(kvctx_get(ctx, &key, 10, &page, NULL), 1);
	fake.fail_op = -ETIME;
	assert_int_equal(kvctx_prefetch(ctx, &key, 10, NULL), -ETIME);
}

static void the_time_limit_is_passed_on(void **state)
{
	struct kvctx_params p = {
		.size = sizeof(p), .cq_entries = LIMIT, .nr_slots = 1, .slot_bytes = SLOT, .timeout_ns = 77,
	};
	struct kvctx_key key;

	(void)state;
	close_handle();
	assert_int_equal(kvctx_open(FAKE_PATH, O_RDWR, &p, &ctx), 0);
	key = stored(4, text, sizeof(text));
	fake.timeout_ns = 0;
	assert_int_equal(kvctx_prefetch(ctx, &key, 10, NULL), sizeof(text));
	assert_int_equal(fake.timeout_ns, 77);
	fake.timeout_ns = 0;
	assert_int_equal(kvctx_get(ctx, &key, 10, NULL, NULL), 0);
	assert_int_equal(fake.timeout_ns, 77);
}

static void match_with_prefetch(void **state)
{
	struct kvctx_key keys[6];
	uint32_t lens[6] = { 0 }, ahead = 99;
	uint64_t i;

	(void)state;
	assert_int_equal(open_slots(SLOTS, SLOT, O_RDWR), 0);
	for (i = 0; i < 5; i++)
		keys[i] = stored(20 + i, text, 1 + i);
	keys[5] = kvctx_key_from_u64(98, 9);
	assert_int_equal(kvctx_match_prefetch(ctx, keys, 6, lens, 1000, &ahead), 5);
	assert_int_equal(ahead, SLOTS);
	assert_int_equal(lens[4], 5);
	assert_int_equal(kvctx_match_prefetch(ctx, keys, 2, NULL, 1000, &ahead), 2);
	assert_int_equal(ahead, 2);
	assert_int_equal(kvctx_match_prefetch(ctx, keys, 6, NULL, 1000, NULL), 5);
	assert_int_equal(kvctx_match_prefetch(ctx, keys, 0, NULL, 1000, &ahead), -EINVAL);
	assert_int_equal(ahead, 2);
	fake.fail_match = -ENODEV;
	assert_int_equal(kvctx_match_prefetch(ctx, keys, 6, NULL, 1000, &ahead), -ENODEV);
}

static void queued_operations(void **state)
{
	struct kvctx_cqe cqe[3];
	struct kvctx_sqe *sqe;
	struct kvctx_key key;

	(void)state;
	assert_int_equal(open_slots(SLOTS, SLOT, O_RDWR), 0);
	key = stored(30, text, sizeof(text));
	sqe = kvctx_get_sqe(ctx);
	kvctx_prep_prefetch(sqe, &key, 500);
	kvctx_sqe_set_prio(sqe, KVCTX_PRIO_NORMAL);
	assert_int_equal(sqe->prio, KVCTX_PRIO_NORMAL);
	sqe = kvctx_get_sqe(ctx);
	kvctx_prep_get(sqe, &key, 500);
	assert_int_equal(sqe->lease_ms, 500);
	assert_int_equal(kvctx_submit(ctx), 2);
	assert_int_equal(kvctx_take(ctx, cqe, 3), 2);
	assert_int_equal(cqe[0].res, sizeof(text));
	assert_in_range(cqe[1].res, 0, SLOTS - 1);
	sqe = kvctx_get_sqe(ctx);
	kvctx_prep_put(sqe, (uint32_t)cqe[1].res);
	assert_int_equal(kvctx_submit(ctx), 1);
	assert_int_equal(kvctx_take(ctx, cqe, 3), 1);
	assert_int_equal(cqe[0].res, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(where_they_are), TEST(opening_fails), TEST(prefetch_and_get), TEST(limits),
		TEST(the_time_limit_is_passed_on), TEST(match_with_prefetch), TEST(queued_operations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
