// SPDX-License-Identifier: LGPL-2.1-or-later
/* Synchronous calls of one thread, and memory. */
#include "test.h"

static const uint8_t text[] = "a page of a cache";

static void any_buffer(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(7, 1);
	uint8_t out[sizeof(text)] = { 0 };
	uint32_t flags = 99;

	(void)state;
	/* memory that nobody registered is registered for the call, and no longer */
	assert_int_equal(kvctx_store(ctx, &key, text, sizeof(text), &flags), sizeof(text));
	assert_int_equal(flags, 0);
	assert_int_equal(fake.registered, 1);
	assert_int_equal(fake.registrations, 0);
	assert_int_equal(kvctx_load(ctx, &key, out, sizeof(out), &flags), sizeof(out));
	assert_int_equal(flags, KVCTX_CQE_VERIFIED);
	assert_memory_equal(out, text, sizeof(text));
	assert_int_equal(fake.registered, 2);
	assert_int_equal(fake.registrations, 0);
	assert_int_equal(kvctx_store(ctx, &key, text, sizeof(text), &flags), sizeof(text));
	assert_int_equal(flags, KVCTX_CQE_DEDUP);
}

static void memory_that_cannot_be_pinned(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(7, 2);
	uint8_t out[sizeof(text)] = { 0 };

	(void)state;
	fake.unpinnable = text;
	assert_int_equal(kvctx_store(ctx, &key, text, sizeof(text), NULL), sizeof(text));
	assert_int_equal(fake.registrations, 0);
	assert_int_equal(kvctx_load(ctx, &key, out, sizeof(out), NULL), sizeof(out));
	assert_memory_equal(out, text, sizeof(text));
	fake.unpinnable = out;
	assert_int_equal(kvctx_load(ctx, &key, out, sizeof(out), NULL), -EFAULT);
	fake.fail_register = -ENOMEM;
	key.qualifier++;
	assert_int_equal(kvctx_store(ctx, &key, text, sizeof(text), NULL), -ENOMEM);
	assert_int_equal(fake_pages(), 1);
}

static void known_memory_is_used_as_it_is(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(7, 3);
	uint8_t out[300] = { 0 }, *arena;
	uint32_t id, id2;
	size_t len;

	(void)state;
	arena = kvctx_arena(ctx, &len);
	assert_int_equal(len, ARENA);
	memcpy(arena + len - sizeof(text), text, sizeof(text));
	assert_int_equal(kvctx_store(ctx, &key, arena + len - sizeof(text), sizeof(text), NULL),
			 sizeof(text));
	assert_int_equal(kvctx_load(ctx, &key, arena, sizeof(text), NULL), sizeof(text));
	assert_memory_equal(arena, text, sizeof(text));
	assert_int_equal(fake.registered, 0);

	assert_int_equal(kvctx_mem_register(ctx, out, 100, &id), 0);
	assert_int_equal(kvctx_mem_register(ctx, out + 200, 100, &id2), 0);
	assert_int_not_equal(id, id2);
	fake.fail_register = -ENOMEM;	/* no further registration could succeed */
	assert_int_equal(kvctx_load(ctx, &key, out + 95, 5, NULL), 5);
	assert_memory_equal(out + 95, text, 5);
	assert_int_equal(kvctx_load(ctx, &key, out + 200, 6, NULL), 6);
	assert_memory_equal(out + 200, text, 6);
	/* one byte behind, between and before them is other memory */
	assert_int_equal(kvctx_load(ctx, &key, out + 96, 5, NULL), -ENOMEM);
	assert_int_equal(kvctx_load(ctx, &key, out + 199, 5, NULL), -ENOMEM);
	assert_int_equal(kvctx_load(ctx, &key, arena + len - 4, 5, NULL), -ENOMEM);
	assert_int_equal(kvctx_load(ctx, &key, arena - 1, 5, NULL), -ENOMEM);
	assert_int_equal(kvctx_mem_unregister(ctx, id), 0);
	assert_int_equal(kvctx_mem_unregister(ctx, id), -EINVAL);
	assert_int_equal(kvctx_load(ctx, &key, out, 5, NULL), -ENOMEM);
	assert_int_equal(kvctx_load(ctx, &key, out + 200, 5, NULL), 5);
	assert_int_equal(kvctx_mem_unregister(ctx, id2), 0);
}

static void registrations(void **state)
{
	uint8_t buf[64];
	uint32_t id, ids[63], i;

	(void)state;
	assert_int_equal(kvctx_mem_register(ctx, buf, 0, &id), -EINVAL);
	fake.unpinnable = buf;
	assert_int_equal(kvctx_mem_register(ctx, buf, 64, &id), -EFAULT);
	fake.unpinnable = NULL;
	for (i = 0; i < 63; i++)
		assert_int_equal(kvctx_mem_register(ctx, buf + i, 1, &ids[i]), 0);
	assert_int_equal(kvctx_mem_register(ctx, buf, 64, &id), -ENOMEM);
	/* what the kernel refuses to let go stays known */
	fake.fail_unregister = -EBUSY;
	assert_int_equal(kvctx_mem_unregister(ctx, ids[5]), -EBUSY);
	fake.fail_unregister = 0;
	for (i = 0; i < 63; i++)
		assert_int_equal(kvctx_mem_unregister(ctx, ids[(i + 20) % 63]), 0);
	assert_int_equal(kvctx_mem_unregister(ctx, KVCTX_MEM_ARENA), -EINVAL);
}

static void results(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(8, 0);
	uint8_t buf[100] = { 1 };

	(void)state;
	assert_int_equal(kvctx_load(ctx, &key, buf, sizeof(buf), NULL), -ENOENT);
	assert_int_equal(kvctx_query(ctx, &key), -ENOENT);
	assert_int_equal(kvctx_delete(ctx, &key), -ENOENT);
	assert_int_equal(kvctx_store(ctx, &key, buf, 0, NULL), -EINVAL);
	assert_int_equal(kvctx_store(ctx, &key, kvctx_arena(ctx, NULL), 0, NULL), -EINVAL);
	assert_int_equal(kvctx_store(ctx, &key, buf, (1 << 20) + 1, NULL), -E2BIG);
	assert_int_equal(kvctx_load(ctx, &key, buf, (1 << 20) + 1, NULL), -ERANGE);
	assert_int_equal(kvctx_store(ctx, &key, buf, sizeof(buf), NULL), sizeof(buf));
	assert_int_equal(kvctx_query(ctx, &key), sizeof(buf));
	assert_int_equal(kvctx_load(ctx, &key, buf, 101, NULL), -ERANGE);
	assert_int_equal(kvctx_flush(ctx), 0);
	fake.fail_op = -EIO;
	assert_int_equal(kvctx_flush(ctx), -EIO);
	fake.fail_op = -EBADMSG;
	assert_int_equal(kvctx_load(ctx, &key, buf, 1, NULL), -EBADMSG);
	fake.fail_op = -ENOSPC;
	assert_int_equal(kvctx_store(ctx, &key, buf, 1, NULL), -ENOSPC);
	fake.fail_submit = -ENODEV;
	assert_int_equal(kvctx_query(ctx, &key), -ENODEV);
	assert_int_equal(kvctx_load(ctx, &key, buf, 1, NULL), -ENODEV);
	fake.fail_submit = 0;
	/* calls that were not taken are forgotten; this looks for one of that number */
	assert_int_equal(queue(~0ULL, 1), 1);
	assert_int_equal(kvctx_submit(ctx), 1);
	expect_cqes(~0ULL, 1);
	assert_int_equal(kvctx_delete(ctx, &key), 0);
	assert_int_equal(fake_pages(), 0);
}

static void matches_and_leases(void **state)
{
	struct kvctx_key keys[3] = {
		kvctx_key_from_u64(8, 0), kvctx_key_from_u64(9, 0), kvctx_key_from_u64(8, 1),
	};
	uint32_t lens[3] = { 0 }, lease = 77;
	uint8_t buf[100] = { 1 };

	(void)state;
	assert_int_equal(kvctx_match(ctx, keys, 3, NULL, 1000, &lease), 0);
	assert_int_equal(lease, 0);
	assert_int_equal(kvctx_lease(ctx, keys, 50, &lease), -ENOENT);
	assert_int_equal(kvctx_store(ctx, &keys[0], buf, sizeof(buf), NULL), sizeof(buf));
	assert_int_equal(kvctx_store(ctx, &keys[1], buf, 10, NULL), 10);
	assert_int_equal(kvctx_match(ctx, keys, 3, lens, 0, NULL), 2);
	assert_int_equal(lens[0], 100);
	assert_int_equal(lens[1], 10);
	assert_int_equal(lens[2], 0);
	assert_int_equal(kvctx_match(ctx, keys, 0, NULL, 0, NULL), -EINVAL);
	assert_int_equal(kvctx_match(ctx, keys, 3, NULL, 1000, NULL), -EINVAL);
	assert_int_equal(kvctx_match(ctx, keys, 1, NULL, 1000, &lease), 1);
	assert_int_not_equal(lease, 0);
	assert_int_equal(kvctx_release(ctx, lease), 0);
	fake.fail_match = -ENODEV;
	assert_int_equal(kvctx_match(ctx, keys, 3, NULL, 0, NULL), -ENODEV);
	assert_int_equal(kvctx_lease(ctx, keys, 50, &lease), 0);
	assert_int_equal(kvctx_release(ctx, lease), 0);
	assert_int_equal(kvctx_release(ctx, 1000), -EINVAL);
}

/* Signals and failing waits do not make a call return before its operation has completed */
static void waits_that_fail(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(10, 0);
	uint8_t buf[10] = { 3 };

	(void)state;
	fake.hold_calls = true;
	fake_disk_start(1);
	for (fake.fail_waits = 0; fake.fail_waits < 6; fake.fail_waits++) {
		unsigned int waits = fake.fail_waits;

		key.qualifier++;
		fake.fail_wait = waits & 1 ? -EINTR : -EFAULT;
		assert_int_equal(kvctx_store(ctx, &key, buf, sizeof(buf), NULL), sizeof(buf));
		fake.fail_waits = waits;
	}
	fake_disk_stop();
	assert_int_equal(fake_pages(), 6);
	fake.fail_waits = 0;
}

static void read_only_sessions(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(11, 0);
	uint8_t buf[10] = { 3 }, out[10] = { 0 };
	int i;

	(void)state;
	assert_int_equal(kvctx_store(ctx, &key, buf, sizeof(buf), NULL), sizeof(buf));
	reopen(O_RDONLY, 8, 16);
	for (i = 0; i < 100; i++) {	/* several times around the ring */
		assert_int_equal(kvctx_load(ctx, &key, out, sizeof(out), NULL), sizeof(out));
		assert_int_equal(queue(i * 3, 3), 3);
		assert_int_equal(kvctx_submit_and_wait(ctx, 3, KVCTX_TIMEOUT_NONE), 3);
		expect_cqes(i * 3, 3);
	}
	assert_memory_equal(out, buf, sizeof(buf));
	assert_int_equal(kvctx_load(ctx, &key, kvctx_arena(ctx, NULL), 10, NULL), 10);
	assert_memory_equal(kvctx_arena(ctx, NULL), buf, sizeof(buf));
	key.qualifier = 1;
	assert_int_equal(kvctx_store(ctx, &key, buf, sizeof(buf), NULL), -EACCES);
	assert_int_equal(kvctx_delete(ctx, &key), -EACCES);
}

/* What could not be published is, the next time */
static void read_only_sessions_publish_again(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(11, 0);
	int i;

	(void)state;
	reopen(O_RDONLY, 2, 4);
	for (i = 0; i < 40; i++) {
		fake.fail_consume = i % 3 ? -ENODEV : 0;
		assert_int_equal(kvctx_query(ctx, &key), -ENOENT);
	}
}

static void closing_ends_registrations(void **state)
{
	uint8_t buf[16];
	uint32_t id;
	int i;

	(void)state;
	for (i = 0; i < 10; i++) {	/* the leak sanitizer misses what a stale pointer finds */
		assert_int_equal(kvctx_mem_register(ctx, buf, sizeof(buf), &id), 0);
		assert_int_equal(kvctx_mem_register(ctx, buf, 1, &id), 0);
		reopen(O_RDWR, 4, 1024);
		assert_int_equal(fake.registrations, 0);
	}
}

/* This kernel has none, and INFO does not promise any. */
static void events_of_a_kernel_without(void **state)
{
	struct kvctx_event event;
	uint64_t lost = 7;

	(void)state;
	assert_int_equal(kvctx_events(ctx, &event, 1, &lost), -EOPNOTSUPP);
	assert_int_equal(lost, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(any_buffer),
		TEST(memory_that_cannot_be_pinned),
		TEST(known_memory_is_used_as_it_is),
		TEST(registrations),
		TEST(results),
		TEST(matches_and_leases),
		TEST(waits_that_fail),
		TEST(read_only_sessions),
		TEST(read_only_sessions_publish_again),
		TEST(closing_ends_registrations),
		TEST(events_of_a_kernel_without),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
