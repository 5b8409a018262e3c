// SPDX-License-Identifier: LGPL-2.1-or-later
/* The queue of operations and the completion ring: full, wrapped, shared with synchronous calls and threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "fake_kernel.h"

static struct kvctx *ctx;

static int setup(void **state)
{
	struct kvctx_params p = { .size = sizeof(p), .arena_bytes = 65536, .cq_entries = 32 };

	(void)state;
	fake_reset();
	return kvctx_open("/dev/kvctx/p/t", O_RDWR, &p, &ctx);
}

static int teardown(void **state)
{
	(void)state;
	kvctx_close(ctx);
	assert_int_equal(fake.maps + fake.fds, 0);
	fake_reset();
	return 0;
}

/* Queue n queries with user_data from, from + 1, ...; how many fitted */
static unsigned int queue(uint64_t from, unsigned int n)
{
	struct kvctx_key key = kvctx_key_from_u64(1, 1);
	unsigned int i;

	for (i = 0; i < n; i++) {
		struct kvctx_sqe *sqe = kvctx_get_sqe(ctx);

		if (!sqe)
			break;
		kvctx_prep_query(sqe, &key);
		kvctx_sqe_set_data(sqe, from + i);
	}
	return i;
}

static void expect_cqes(uint64_t from, unsigned int n)
{
	struct kvctx_cqe cqe[64];

	assert_int_equal(kvctx_peek(ctx, cqe, 64), n);
	for (unsigned int i = 0; i < n; i++) {
		assert_int_equal(cqe[i].user_data, from + i);
		assert_int_equal(cqe[i].res, -ENOENT);
	}
}

static void many_rounds_cross_the_ring_and_its_counters(void **state)
{
	uint64_t at = 0;

	(void)state;
	for (unsigned int n = 1; n <= 16; n++) {
		for (int round = 0; round < 20; round++, at += n) {
			assert_int_equal(queue(at, n), n);
			assert_int_equal(kvctx_submit(ctx), n);
			expect_cqes(at, n);
		}
	}
	expect_cqes(0, 0);
	assert_int_equal(fake.waits, 0);	/* completions cost no system call */
	assert_int_equal(fake.submits, 16 * 20);
}

static void queue_holds_a_batch(void **state)
{
	(void)state;
	assert_int_equal(queue(0, 100), 16);
	assert_int_equal(kvctx_submit(ctx), 16);
	assert_int_equal(kvctx_submit(ctx), 0);
	expect_cqes(0, 16);
}

static void partial_submits_keep_the_rest(void **state)
{
	struct kvctx_cqe cqe[8];

	(void)state;
	assert_int_equal(queue(0, 16), 16);
	assert_int_equal(kvctx_submit(ctx), 16);
	assert_int_equal(queue(16, 12), 12);
	assert_int_equal(kvctx_submit(ctx), 12);
	assert_int_equal(queue(28, 10), 10);
	assert_int_equal(kvctx_submit(ctx), 4);		/* 32 entries */
	assert_int_equal(kvctx_submit(ctx), -EAGAIN);
	assert_int_equal(kvctx_peek(ctx, cqe, 5), 5);
	assert_int_equal(kvctx_submit(ctx), 5);
	expect_cqes(5, 32);
	assert_int_equal(kvctx_submit(ctx), 1);
	expect_cqes(37, 1);
}

static void waiting(void **state)
{
	(void)state;
	fake.hold = true;
	assert_int_equal(kvctx_wait(ctx, 0, 0), 0);
	assert_int_equal(queue(0, 8), 8);
	assert_int_equal(kvctx_submit(ctx), 8);
	assert_int_equal(kvctx_wait(ctx, 3, 1000), -ETIME);
	expect_cqes(0, 0);
	assert_int_equal(kvctx_wait(ctx, 3, KVCTX_TIMEOUT_NONE), 3);
	expect_cqes(0, 3);
	assert_int_equal(queue(8, 2), 2);
	assert_int_equal(kvctx_submit_and_wait(ctx, 7, KVCTX_TIMEOUT_NONE), 2);
	expect_cqes(3, 7);
}

/* A synchronous call that meets others' completions keeps them, in order */
static void synchronous_calls_between(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(2, 2);
	uint64_t done = 0;

	(void)state;
	for (int round = 0; round < 100; round++) {
		assert_int_equal(queue(round * 8ULL, 8), 8);
		assert_int_equal(kvctx_submit(ctx), 8);
		assert_int_equal(kvctx_query(ctx, &key), -ENOENT);
		assert_int_equal(kvctx_wait(ctx, 8, 0), 8);
		expect_cqes(done, 8);
		done += 8;
	}
	/* who never looks at his completions is told so, before any could be lost */
	fake.submits = 0;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(queue(i * 8ULL, 8), 8);
		if (kvctx_submit(ctx) != 8)
			break;
		if (kvctx_query(ctx, &key) == -EAGAIN)
			break;
	}
	assert_int_equal(kvctx_query(ctx, &key), -EAGAIN);
	assert_in_range(kvctx_wait(ctx, 0, 0), 16, 32);
}

static void *hammer(void *arg)
{
	uint8_t buf[64];
	uint64_t n = (uintptr_t)arg;

	for (int i = 0; i < 300; i++) {
		struct kvctx_key key = kvctx_key_from_u64(n, 5);

		memset(buf, (int)n, sizeof(buf));
		if (kvctx_store(ctx, &key, buf, sizeof(buf), NULL) != sizeof(buf))
			return (void *)1;
		memset(buf, 0, sizeof(buf));
		if (kvctx_load(ctx, &key, buf, sizeof(buf), NULL) != sizeof(buf) || buf[63] != (uint8_t)n)
			return (void *)2;
		if (kvctx_delete(ctx, &key))
			return (void *)3;
	}
	return NULL;
}

static void synchronous_calls_of_many_threads(void **state)
{
	pthread_t t[4];
	void *ret;

	(void)state;
	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, hammer, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &ret);
		assert_null(ret);
	}
	assert_int_equal(fake_pages(), 0);
}

static void prepared_operations(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(3, 3);
	struct kvctx_seg segs[2] = { { .length = 5 }, { .offset = 100, .length = 6 } };
	uint8_t *arena = kvctx_arena(ctx, NULL);
	struct kvctx_cqe cqe[4];
	struct kvctx_sqe *sqe;

	(void)state;
	memcpy(arena, "hello", 5);
	memcpy(arena + 100, " world", 6);
	sqe = kvctx_get_sqe(ctx);
	kvctx_prep_store(sqe, &key, segs, 2, 11, 4);
	kvctx_sqe_set_timeout(sqe, 1000);
	assert_int_equal(sqe->depth, 4);
	assert_int_equal(sqe->timeout_ns, 1000);
	assert_int_equal(kvctx_submit(ctx), 1);
	segs[0] = (struct kvctx_seg){ .offset = 200, .length = 4 };
	sqe = kvctx_get_sqe(ctx);
	assert_int_equal(sqe->depth + sqe->timeout_ns, 0);
	kvctx_prep_load(sqe, &key, segs, 1, 6, 4);
	kvctx_prep_lease(kvctx_get_sqe(ctx), &key, 10);
	kvctx_prep_flush(kvctx_get_sqe(ctx));
	assert_int_equal(kvctx_submit(ctx), 3);
	assert_int_equal(kvctx_peek(ctx, cqe, 4), 4);
	assert_int_equal(cqe[0].res, 11);
	assert_int_equal(cqe[1].res, 4);
	assert_memory_equal(arena + 200, "worl", 4);
	kvctx_prep_release(kvctx_get_sqe(ctx), (uint32_t)cqe[2].res);
	kvctx_prep_delete(kvctx_get_sqe(ctx), &key);
	assert_int_equal(kvctx_submit(ctx), 2);
	assert_int_equal(kvctx_peek(ctx, cqe, 4), 2);
	assert_int_equal(cqe[0].res, 0);
	assert_int_equal(cqe[1].res, 0);
	assert_int_equal(fake_pages(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(many_rounds_cross_the_ring_and_its_counters, setup, teardown),
		cmocka_unit_test_setup_teardown(queue_holds_a_batch, setup, teardown),
		cmocka_unit_test_setup_teardown(partial_submits_keep_the_rest, setup, teardown),
		cmocka_unit_test_setup_teardown(waiting, setup, teardown),
		cmocka_unit_test_setup_teardown(synchronous_calls_between, setup, teardown),
		cmocka_unit_test_setup_teardown(synchronous_calls_of_many_threads, setup, teardown),
		cmocka_unit_test_setup_teardown(prepared_operations, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
