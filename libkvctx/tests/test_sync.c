// SPDX-License-Identifier: LGPL-2.1-or-later
/* Opening, memory and the synchronous calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "fake_kernel.h"

#define PATH "/dev/kvctx/p/t"

static struct kvctx *ctx;

static int setup(void **state)
{
	struct kvctx_params p = { .size = sizeof(p), .arena_bytes = 65536, .cq_entries = 8 };

	(void)state;
	fake_reset();
	return kvctx_open(PATH, O_RDWR, &p, &ctx);
}

static int teardown(void **state)
{
	(void)state;
	kvctx_close(ctx);
	ctx = NULL;
	assert_int_equal(fake.maps, 0);
	assert_int_equal(fake.fds, 0);
	assert_int_equal(fake.registrations, 0);
	fake_reset();
	return 0;
}

static void open_failures_leave_nothing(void **state)
{
	struct kvctx_params bad = { .size = sizeof(bad) + 8 }, p = { .size = sizeof(p), .arena_bytes = 4096 };
	struct kvctx *c = NULL;

	(void)state;
	fake_reset();
	assert_int_equal(kvctx_open(PATH, O_RDWR, &bad, &c), -EINVAL);
	bad = (struct kvctx_params){ .size = sizeof(bad), .flags = 1 };
	assert_int_equal(kvctx_open(PATH, O_RDWR, &bad, &c), -EINVAL);
	assert_int_equal(kvctx_open(PATH, O_WRONLY, NULL, &c), -EINVAL);
	assert_int_equal(kvctx_open(PATH, O_RDWR | O_TRUNC, NULL, &c), -EINVAL);
	fake.fail_open = -EACCES;
	assert_int_equal(kvctx_open(PATH, O_RDWR, NULL, &c), -EACCES);
	fake.fail_open = 0;
	fake.fail_info = -ENOTTY;
	assert_int_equal(kvctx_open(PATH, O_RDWR, NULL, &c), -ENOTTY);
	fake.fail_info = 0;
	fake.abi_version++;
	assert_int_equal(kvctx_open(PATH, O_RDWR, NULL, &c), -EPROTO);
	fake.abi_version--;
	fake.fail_setup = -ENOMEM;
	assert_int_equal(kvctx_open(PATH, O_RDWR, NULL, &c), -ENOMEM);
	fake.fail_setup = 0;
	for (fake.mmaps_left = 0; fake.mmaps_left < 2; fake.mmaps_left++) {
		int left = fake.mmaps_left;

		assert_int_equal(kvctx_open(PATH, O_RDWR, &p, &c), -ENOMEM);
		assert_int_equal(fake.maps, 0);
		fake.mmaps_left = left;
	}
	assert_null(c);
	assert_int_equal(fake.fds, 0);
}

static void store_load_anywhere(void **state)
{
	static const uint8_t text[] = "a page of a cache";
	struct kvctx_key key = kvctx_key_from_u64(7, 1);
	uint8_t out[sizeof(text)] = { 0 }, *arena;
	uint32_t flags = 99, id;
	size_t len;

	(void)state;
	/* memory that nobody registered is registered for the call, and no longer */
	assert_int_equal(kvctx_store(ctx, &key, text, sizeof(text), &flags), sizeof(text));
	assert_int_equal(flags, 0);
	assert_int_equal(fake.registrations, 0);
	assert_int_equal(kvctx_load(ctx, &key, out, sizeof(out), &flags), sizeof(out));
	assert_int_equal(flags, KVCTX_CQE_VERIFIED);
	assert_memory_equal(out, text, sizeof(text));
	assert_int_equal(kvctx_store(ctx, &key, text, sizeof(text), &flags), sizeof(text));
	assert_int_equal(flags, KVCTX_CQE_DEDUP);

	/* the arena and registrations are used as they are: no further registration could succeed */
	assert_int_equal(kvctx_mem_register(ctx, out, sizeof(out), &id), 0);
	fake.fail_register = -ENOMEM;
	arena = kvctx_arena(ctx, &len);
	assert_int_equal(len, 65536);
	assert_int_equal(kvctx_load(ctx, &key, arena + 100, sizeof(text), NULL), sizeof(text));
	assert_memory_equal(arena + 100, text, sizeof(text));
	memset(out, 0, sizeof(out));
	assert_int_equal(kvctx_load(ctx, &key, out + 1, 5, NULL), 5);
	assert_memory_equal(out + 1, text, 5);
	/* one byte behind the arena is other memory */
	assert_int_equal(kvctx_load(ctx, &key, arena + 65536 - 4, 5, NULL), -ENOMEM);
	assert_int_equal(kvctx_mem_unregister(ctx, id), 0);
	assert_int_equal(kvctx_mem_unregister(ctx, id), -EINVAL);
	assert_int_equal(kvctx_load(ctx, &key, out, 5, NULL), -ENOMEM);
}

static void results_come_through(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(8, 0), keys[3] = { key, kvctx_key_from_u64(9, 0), kvctx_key_from_u64(8, 1) };
	uint32_t lens[3] = { 0 }, lease = 0;
	uint8_t buf[100] = { 1 };

	(void)state;
	assert_int_equal(kvctx_load(ctx, &key, buf, sizeof(buf), NULL), -ENOENT);
	assert_int_equal(kvctx_query(ctx, &key), -ENOENT);
	assert_int_equal(kvctx_delete(ctx, &key), -ENOENT);
	assert_int_equal(kvctx_store(ctx, &key, buf, (1 << 20) + 1, NULL), -E2BIG);
	assert_int_equal(kvctx_store(ctx, &key, buf, sizeof(buf), NULL), sizeof(buf));
	assert_int_equal(kvctx_store(ctx, &keys[1], buf, 10, NULL), 10);
	assert_int_equal(kvctx_query(ctx, &key), sizeof(buf));
	assert_int_equal(kvctx_load(ctx, &keys[1], buf, 11, NULL), -ERANGE);
	assert_int_equal(kvctx_match(ctx, keys, 3, lens, 0, NULL), 2);
	assert_int_equal(lens[0], 100);
	assert_int_equal(lens[1], 10);
	assert_int_equal(kvctx_match(ctx, keys, 3, NULL, 1000, NULL), -EINVAL);
	assert_int_equal(kvctx_match(ctx, keys, 3, NULL, 1000, &lease), 2);
	assert_int_equal(kvctx_release(ctx, lease), 0);
	fake.fail_match = -ENODEV;
	assert_int_equal(kvctx_match(ctx, keys, 3, NULL, 0, NULL), -ENODEV);
	assert_int_equal(kvctx_lease(ctx, &key, 50, &lease), 0);
	assert_int_equal(kvctx_release(ctx, lease), 0);
	assert_int_equal(kvctx_release(ctx, 1000), -EINVAL);
	assert_int_equal(kvctx_flush(ctx), 0);
	fake.fail_op = -EIO;
	assert_int_equal(kvctx_flush(ctx), -EIO);
	fake.fail_op = -EBADMSG;
	assert_int_equal(kvctx_load(ctx, &key, buf, 1, NULL), -EBADMSG);
	assert_int_equal(kvctx_delete(ctx, &key), 0);
	assert_int_equal(fake_pages(), 1);
}

static void read_only_sessions(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(10, 0);
	uint8_t buf[10] = { 3 }, out[10];
	struct kvctx *ro;

	(void)state;
	assert_int_equal(kvctx_store(ctx, &key, buf, sizeof(buf), NULL), sizeof(buf));
	kvctx_close(ctx);
	ctx = NULL;
	assert_int_equal(kvctx_open(PATH, O_RDONLY, NULL, &ro), 0);
	for (int i = 0; i < 600; i++)	/* twice around the ring */
		assert_int_equal(kvctx_load(ro, &key, out, sizeof(out), NULL), sizeof(out));
	assert_memory_equal(out, buf, sizeof(buf));
	key.qualifier = 1;
	assert_int_equal(kvctx_store(ro, &key, buf, sizeof(buf), NULL), -EACCES);
	kvctx_close(ro);
}

static void every_errno_has_a_text(void **state)
{
	static const int errnos[] = {
		ENOENT, EBADMSG, EIO, ENODEV, ETIME, EREMOTEIO, EDQUOT, ENOSPC, EAGAIN, EMSGSIZE, ERANGE, E2BIG,
		EACCES, EINVAL, EFAULT, EOPNOTSUPP, ENOMEM, EBADFD, EEXIST, EBUSY, EINTR, ENOTTY,
	};

	(void)state;
	for (size_t i = 0; i < sizeof(errnos) / sizeof(errnos[0]); i++) {
		assert_string_not_equal(kvctx_strerror(-errnos[i]), "unknown error");
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(kvctx_strerror(-errnos[i]), kvctx_strerror(-errnos[j]));
	}
	assert_string_equal(kvctx_strerror(-12345), "unknown error");
	assert_string_equal(kvctx_strerror(5), "success");
	assert_string_equal(kvctx_version(), KVCTX_VERSION);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(open_failures_leave_nothing),
		cmocka_unit_test_setup_teardown(store_load_anywhere, setup, teardown),
		cmocka_unit_test_setup_teardown(results_come_through, setup, teardown),
		cmocka_unit_test_setup_teardown(read_only_sessions, setup, teardown),
		cmocka_unit_test(every_errno_has_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
