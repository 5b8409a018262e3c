// SPDX-License-Identifier: LGPL-2.1-or-later
/* The queue of operations and the completion ring, of one thread. */
#include "test.h"

static void many_rounds_cross_the_ring_and_its_counters(void **state)
{
	uint64_t at = 0;
	unsigned int n;
	int round;

	(void)state;
	for (n = 1; n <= 16; n++) {
		for (round = 0; round < 20; round++, at += n) {
			assert_int_equal(queue(at, n), n);
			assert_int_equal(kvctx_submit(ctx), n);
			expect_cqes(at, n);
		}
	}
	expect_cqes(0, 0);
	assert_int_equal(fake.waits, 0);	/* completions cost no system call */
	assert_int_equal(fake.submits, 16 * 20);
}

static void the_queue_holds_a_batch(void **state)
{
	(void)state;
	assert_int_equal(queue(0, 100), 16);
	assert_int_equal(kvctx_submit(ctx), 16);
	assert_int_equal(kvctx_submit(ctx), 0);
	expect_cqes(0, 16);
	reopen(O_RDWR, 5, 1024);
	assert_int_equal(queue(0, 100), 5);
	assert_int_equal(kvctx_submit(ctx), 5);
	expect_cqes(0, 5);
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
	assert_int_equal(kvctx_submit(ctx), 4);		/* LIMIT */
	assert_int_equal(kvctx_submit(ctx), -EAGAIN);
	assert_int_equal(kvctx_submit_and_wait(ctx, 1, KVCTX_TIMEOUT_NONE), -EAGAIN);
	assert_int_equal(kvctx_take(ctx, cqe, 5), 5);
	assert_int_equal(cqe[4].user_data, 4);
	assert_int_equal(kvctx_submit(ctx), 5);
	expect_cqes(5, 32);
	fake.fail_submit = -ENODEV;
	assert_int_equal(kvctx_submit(ctx), -ENODEV);
	fake.fail_submit = 0;
	assert_int_equal(kvctx_submit(ctx), 1);
	expect_cqes(37, 1);
}

/* The kernel itself may take fewer than it has room for */
static void partial_submits_of_the_kernel(void **state)
{
	int i;

	(void)state;
	fake.submit_max = 3;
	assert_int_equal(queue(0, 16), 16);
	for (i = 0; i < 5; i++)
		assert_int_equal(kvctx_submit_and_wait(ctx, 16, 1000), 3);
	assert_int_equal(kvctx_submit(ctx), 1);
	expect_cqes(0, 16);
}

static void waiting(void **state)
{
	(void)state;
	assert_int_equal(kvctx_wait(ctx, 3, KVCTX_TIMEOUT_NONE), 0);	/* nothing in flight */
	assert_int_equal(kvctx_wait(ctx, 3, 0), 0);
	fake.hold = true;
	assert_int_equal(kvctx_wait(ctx, 0, 0), 0);
	assert_int_equal(queue(0, 8), 8);
	assert_int_equal(kvctx_submit(ctx), 8);
	assert_int_equal(kvctx_wait(ctx, 0, KVCTX_TIMEOUT_NONE), 0);
	fake.waits = 0;
	assert_int_equal(kvctx_wait(ctx, 3, 0), -ETIME);		/* only looks */
	assert_int_equal(fake.waits, 0);
	assert_int_equal(kvctx_wait(ctx, 3, 1000), -ETIME);
	fake_release(2);
	assert_int_equal(kvctx_wait(ctx, 3, 1000), -ETIME);
	assert_int_equal(kvctx_wait(ctx, 2, KVCTX_TIMEOUT_NONE), 2);
	fake.fail_wait = -EINTR;
	fake.fail_waits = 1;
	assert_int_equal(kvctx_wait(ctx, 3, KVCTX_TIMEOUT_NONE), -EINTR);
	expect_cqes(0, 2);
	fake_release(1);
	assert_int_equal(kvctx_wait(ctx, 1, 0), 1);
	expect_cqes(2, 1);
	fake_disk_start(2);
	assert_int_equal(kvctx_wait(ctx, 5, KVCTX_TIMEOUT_NONE), 5);
	assert_int_equal(kvctx_wait(ctx, 9, 1000000000000), 5);		/* no more in flight */
	fake_disk_stop();
}

static void submitting_and_waiting(void **state)
{
	struct kvctx_cqe cqe[8];

	(void)state;
	fake.hold = true;
	assert_int_equal(queue(0, 8), 8);
	assert_int_equal(kvctx_submit_and_wait(ctx, 8, 1000), 8);	/* time passes */
	expect_cqes(0, 0);
	assert_int_equal(queue(8, 2), 2);
	fake_disk_start(3);
	fake.waits = 0;
	assert_int_equal(kvctx_submit_and_wait(ctx, 10, KVCTX_TIMEOUT_NONE), 2);
	assert_int_equal(fake.waits, 0);		/* one system call for both */
	assert_int_equal(kvctx_wait(ctx, 10, 0), 10);
	/* nothing is queued, and there is nothing to wait for */
	assert_int_equal(kvctx_submit_and_wait(ctx, 11, KVCTX_TIMEOUT_NONE), 0);
	assert_int_equal(kvctx_take(ctx, cqe, 8), 8);
	/* nothing is queued, and something is there to wait for */
	assert_int_equal(queue(10, 3), 3);
	assert_int_equal(kvctx_submit(ctx), 3);
	assert_int_equal(kvctx_submit_and_wait(ctx, 5, KVCTX_TIMEOUT_NONE), 0);
	assert_int_equal(kvctx_take(ctx, cqe, 8), 5);
	fake_disk_stop();
	/* of two to wait for one is there and another comes; two more never do */
	assert_int_equal(queue(13, 3), 3);
	assert_int_equal(kvctx_submit(ctx), 3);
	fake_release(1);
	assert_int_equal(kvctx_wait(ctx, 1, 0), 1);
	fake.hold = false;
	assert_int_equal(queue(16, 1), 1);
	assert_int_equal(kvctx_submit_and_wait(ctx, 2, KVCTX_TIMEOUT_NONE), 1);
	assert_int_equal(kvctx_take(ctx, cqe, 8), 2);
}

/* With all of cq_max for the queue the wait is done in small steps */
static void waiting_in_the_longest_queue(void **state)
{
	(void)state;
	reopen(O_RDWR, 16, 16);
	fake.hold = true;
	fake_disk_start(4);
	for (int i = 0; i < 20; i++) {
		struct kvctx_cqe cqe[16];

		assert_int_equal(queue(0, 16), 16);
		assert_int_equal(kvctx_submit_and_wait(ctx, 16, KVCTX_TIMEOUT_NONE), 16);
		assert_int_equal(kvctx_take(ctx, cqe, 16), 16);
	}
	fake_disk_stop();
}

/* A synchronous call that meets others' completions keeps them, in order, however many there are */
static void synchronous_calls_between(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(2, 2);
	int round, i;

	(void)state;
	for (round = 0; round < 50; round++) {
		for (i = 0; i < 2; i++) {
			assert_int_equal(queue(round * 32ULL + i * 16, 16), 16);
			assert_int_equal(kvctx_submit(ctx), 16);
			assert_int_equal(kvctx_query(ctx, &key), -ENOENT);
		}
		assert_int_equal(queue(0, 1), 1);
		assert_int_equal(kvctx_submit(ctx), -EAGAIN);
		for (i = 0; i < 100; i++)
			assert_int_equal(kvctx_query(ctx, &key), -ENOENT);
		assert_int_equal(kvctx_wait(ctx, 32, KVCTX_TIMEOUT_NONE), 32);
		expect_cqes(round * 32ULL, 32);
		assert_int_equal(kvctx_submit(ctx), 1);
		expect_cqes(0, 1);
	}
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
	kvctx_sqe_set_flags(sqe, KVCTX_OP_NOWAIT);
	assert_int_equal(sqe->depth, 4);
	assert_int_equal(sqe->flags, KVCTX_OP_NOWAIT);
	assert_int_equal(kvctx_submit(ctx), 1);
	assert_int_equal(fake.timeout_ns, 1000);
	segs[0] = (struct kvctx_seg){ .offset = 200, .length = 4 };
	sqe = kvctx_get_sqe(ctx);
	assert_int_equal(sqe->depth + sqe->timeout_ns + sqe->flags, 0);
	kvctx_prep_load(sqe, &key, segs, 1, 6, 4);
	kvctx_sqe_set_flags(sqe, KVCTX_OP_NO_VERIFY);
	kvctx_prep_lease(kvctx_get_sqe(ctx), &key, 10);
	kvctx_prep_flush(kvctx_get_sqe(ctx));
	assert_int_equal(kvctx_submit(ctx), 3);
	assert_int_equal(kvctx_take(ctx, cqe, 4), 4);
	assert_int_equal(cqe[0].res, 11);
	assert_int_equal(cqe[1].res, 4);
	assert_int_equal(cqe[1].flags, 0);
	assert_memory_equal(arena + 200, "worl", 4);
	kvctx_prep_release(kvctx_get_sqe(ctx), (uint32_t)cqe[2].res);
	kvctx_prep_delete(kvctx_get_sqe(ctx), &key);
	assert_int_equal(kvctx_submit(ctx), 2);
	assert_int_equal(kvctx_take(ctx, cqe, 4), 2);
	assert_int_equal(cqe[0].res, 0);
	assert_int_equal(cqe[1].res, 0);
	assert_int_equal(fake_pages(), 0);
}

/* One bad operation fails alone */
static void bad_operations(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(4, 4);
	struct kvctx_seg outside = { .offset = ARENA - 1, .length = 2 }, good = { .length = 2 };
	struct kvctx_seg unknown = { .mem = 9, .length = 2 };
	struct kvctx_cqe cqe[4];

	(void)state;
	kvctx_prep_store(kvctx_get_sqe(ctx), &key, &outside, 1, 2, 0);
	kvctx_prep_store(kvctx_get_sqe(ctx), &key, &unknown, 1, 2, 0);
	kvctx_prep_store(kvctx_get_sqe(ctx), &key, &good, 1, 3, 0);
	kvctx_prep_store(kvctx_get_sqe(ctx), &key, &good, 1, 2, 0);
	assert_int_equal(kvctx_submit(ctx), 4);
	assert_int_equal(kvctx_take(ctx, cqe, 4), 4);
	assert_int_equal(cqe[0].res, -EFAULT);
	assert_int_equal(cqe[1].res, -EINVAL);
	assert_int_equal(cqe[2].res, -EMSGSIZE);
	assert_int_equal(cqe[3].res, 2);
}

/* A caller who does what it should not gets its completion all the same */
static void user_data_of_the_library(void **state)
{
	(void)state;
	assert_int_equal(queue(KVCTX_USER_DATA_END, 1), 1);
	assert_int_equal(kvctx_submit(ctx), 1);
	expect_cqes(KVCTX_USER_DATA_END, 1);
}

/* What a ring's command does */
static int submit_past(uint64_t from, unsigned int n)
{
	struct kvctx_key key = kvctx_key_from_u64(1, 1);
	struct kvctx_sqe ops[16];
	struct kvctx_submit s = { .size = sizeof(s), .sqes = (uintptr_t)ops, .nr = n };
	unsigned int i;

	memset(ops, 0, sizeof(ops));
	for (i = 0; i < n; i++) {
		kvctx_prep_query(&ops[i], &key);
		kvctx_sqe_set_data(&ops[i], from + i);
	}
	return kvctx_sys_ioctl(ctx->file, KVCTX_IOC_SUBMIT, &s);
}

/* Operations that come to the kernel past the library, between its own */
static void operations_of_a_ring(void **state)
{
	int round;

	(void)state;
	assert_int_equal(kvctx_expect(ctx, LIMIT + 1), -EAGAIN);
	assert_int_equal(kvctx_expect(ctx, -1), -EINVAL);
	for (round = 0; round < 5; round++) {
		assert_int_equal(kvctx_expect(ctx, 16), 0);
		assert_int_equal(kvctx_wait(ctx, 16, KVCTX_TIMEOUT_NONE), 0);	/* nothing in flight */
		assert_int_equal(submit_past(0, 16), 16);
		assert_int_equal(queue(16, 12), 12);
		assert_int_equal(kvctx_submit(ctx), 12);
		assert_int_equal(kvctx_expect(ctx, 5), -EAGAIN);
		assert_int_equal(kvctx_expect(ctx, 4), 0);
		assert_int_equal(queue(32, 1), 1);
		assert_int_equal(kvctx_submit(ctx), -EAGAIN);
		assert_int_equal(submit_past(28, 4), 4);
		assert_int_equal(kvctx_wait(ctx, LIMIT, KVCTX_TIMEOUT_NONE), LIMIT);
		assert_int_equal(kvctx_expect(ctx, -1), -EINVAL);
		expect_cqes(0, LIMIT);
		assert_int_equal(kvctx_submit(ctx), 1);
		expect_cqes(32, 1);
	}
	/* the kernel takes a part */
	fake.submit_max = 3;
	assert_int_equal(kvctx_expect(ctx, 8), 0);
	assert_int_equal(submit_past(0, 8), 3);
	assert_int_equal(kvctx_wait(ctx, 8, KVCTX_TIMEOUT_NONE), 3);
	assert_int_equal(kvctx_expect(ctx, -6), -EINVAL);
	assert_int_equal(kvctx_expect(ctx, -5), 0);
	expect_cqes(0, 3);
	assert_int_equal(kvctx_expect(ctx, LIMIT), 0);
	assert_int_equal(kvctx_expect(ctx, -LIMIT), 0);
}

/* A server without a kernel's interrupts is asked to look, and only when there is nothing else */
static void completions_by_looking(void **state)
{
	struct kvctx_cqe cqe[4];

	(void)state;
	fake.hold = true;
	fake.by_looking = true;
	assert_int_equal(queue(0, 3), 3);
	assert_int_equal(kvctx_submit(ctx), 3);
	assert_int_equal(kvctx_take(ctx, cqe, 2), 2);
	assert_int_equal(fake.looks, 1);
	expect_cqes(2, 1);
	assert_int_equal(fake.looks, 1);
	assert_int_equal(queue(3, 1), 1);
	assert_int_equal(kvctx_submit(ctx), 1);
	assert_int_equal(kvctx_wait(ctx, 1, 0), 1);
	assert_int_equal(fake.looks, 2);
	assert_int_equal(fake.waits, 0);
	expect_cqes(3, 1);
}

/* The server is told of all that was seen, so that its descriptor can stop being readable */
static void the_descriptor_is_readable_until_all_is_seen(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(1, 1);
	int flags;

	(void)state;
	for (flags = O_RDONLY; flags <= O_RDWR; flags += O_RDWR - O_RDONLY) {
		reopen(flags, LIMIT, 1024);
		assert_false(fake_readable());
		assert_int_equal(queue(0, 3), 3);
		assert_int_equal(kvctx_submit(ctx), 3);
		assert_true(fake_readable());
		assert_int_equal(kvctx_query(ctx, &key), -ENOENT);
		assert_false(fake_readable());
		expect_cqes(0, 3);
		assert_int_equal(queue(3, 1), 1);
		assert_int_equal(kvctx_submit(ctx), 1);
		assert_true(fake_readable());
		expect_cqes(3, 1);
		assert_false(fake_readable());
	}
}

/* Another thread, while the kernel had no room */
static void fill_up(void)
{
	fake.on_wait = NULL;
	fake.fail_submit = 0;
	assert_int_equal(kvctx_expect(ctx, LIMIT - 2), 0);
}

static void room_is_taken_while_waiting_for_some(void **state)
{
	(void)state;
	fake.on_wait = fill_up;
	fake.fail_submit = -EAGAIN;
	assert_int_equal(queue(0, 5), 5);
	assert_int_equal(kvctx_submit(ctx), 2);
	assert_int_equal(kvctx_submit(ctx), -EAGAIN);
	assert_int_equal(kvctx_expect(ctx, 1), -EAGAIN);
	expect_cqes(0, 2);
	assert_int_equal(kvctx_submit(ctx), 2);
	assert_int_equal(submit_past(4, LIMIT / 2), LIMIT / 2);
	assert_int_equal(submit_past(4 + LIMIT / 2, LIMIT / 2 - 2), LIMIT / 2 - 2);
	expect_cqes(2, LIMIT);
	assert_int_equal(kvctx_submit(ctx), 1);
	expect_cqes(4, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(many_rounds_cross_the_ring_and_its_counters),
		TEST(the_queue_holds_a_batch),
		TEST(partial_submits_keep_the_rest),
		TEST(partial_submits_of_the_kernel),
		TEST(waiting),
		TEST(submitting_and_waiting),
		TEST(waiting_in_the_longest_queue),
		TEST(synchronous_calls_between),
		TEST(prepared_operations),
		TEST(bad_operations),
		TEST(user_data_of_the_library),
		TEST(operations_of_a_ring),
		TEST(completions_by_looking),
		TEST(the_descriptor_is_readable_until_all_is_seen),
		TEST(room_is_taken_while_waiting_for_some),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
