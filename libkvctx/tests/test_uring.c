// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Entries of a ring, byte by byte: places and numbers stand here once more, as they are in
 * <linux/io_uring.h> and <linux/kvctx.h>. No ring is needed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kvctx_uring.h"

#define SQE	64	/* where the entry is in the memory below */
#define CMD	48	/* where the command begins in the entry */
#define OLD	0xa5

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/* An entry of 128 bytes between others, in memory that was used before */
struct entry {
	uint8_t b[256];
};

static struct entry got, want;

static struct io_uring_sqe *sqe(void)
{
	memset(&got, OLD, sizeof(got));
	memset(&want, OLD, sizeof(want));
	return (struct io_uring_sqe *)(void *)(got.b + SQE);
}

static void put(unsigned int at, uint64_t value, unsigned int bytes)
{
	memcpy(want.b + SQE + at, &value, bytes);
}

/* What every command begins with */
static void want_command(unsigned int bytes, int fd, uint32_t cmd_op, uint64_t user_data)
{
	memset(want.b + SQE, 0, bytes);
	put(0, 46, 1);
	put(4, (uint32_t)fd, 4);
	put(8, cmd_op, 4);
	put(32, user_data, 8);
}

static void want_op(int fd, const struct kvctx_sqe *op, uint32_t arg)
{
	want_command(128, fd, 0xb540, op->user_data);
	put(CMD, op->opcode, 1);
	put(CMD + 1, op->prio, 1);
	put(CMD + 4, op->flags, 4);
	memcpy(want.b + SQE + CMD + 8, &op->key, 40);
	put(CMD + 56, op->timeout_ns, 8);
	put(CMD + 64, op->offset, 4);
	put(CMD + 68, op->length, 4);
	put(CMD + 72, arg, 4);
}

static void want_memory(uint64_t addr, uint16_t nr_segs, uint32_t mem)
{
	put(CMD + 2, nr_segs, 2);
	put(CMD + 48, addr, 8);
	put(CMD + 76, mem, 4);
}

static void compare(void)
{
	assert_memory_equal(got.b, want.b, sizeof(got.b));
}

static struct kvctx_key some_key(void)
{
	struct kvctx_key key = kvctx_key_from_u64(0x1122334455667788, 0x99aabbccddeeff00);

	key.digest[31] = 0x31;
	return key;
}

static void each_opcode(void **state)
{
	struct kvctx_seg segs[2] = { { 1, 2, 3 }, { 4, 5, 6 } };
	const uint64_t list = (uintptr_t)segs;
	struct kvctx_key key = some_key();
	struct kvctx_sqe op = { .user_data = 0xfedcba9876543210 };

	(void)state;
	kvctx_prep_store_at(&op, &key, 0x80000007, 0x123456789abc, 0x10000, 77);
	kvctx_sqe_set_flags(&op, KVCTX_OP_NOWAIT | KVCTX_OP_NO_VERIFY);
	kvctx_sqe_set_prio(&op, KVCTX_PRIO_BACKGROUND);
	kvctx_sqe_set_timeout(&op, 0x1000200030004000);
	assert_int_equal(kvctx_uring_prep(sqe(), 9, &op), 0);
	want_op(9, &op, 77);
	want_memory(0x123456789abc, 0, 0x80000007);
	compare();

	memset(&op, 0, sizeof(op));
	kvctx_prep_load(&op, &key, segs, 2, UINT32_MAX, UINT32_MAX);
	assert_int_equal(kvctx_uring_prep(sqe(), 0, &op), 0);
	want_op(0, &op, 0);
	want_memory(list, 2, 0);
	compare();

	memset(&op, 0, sizeof(op));
	kvctx_prep_delete(&op, &key);
	kvctx_sqe_set_flags(&op, KVCTX_OP_NOWAIT);
	assert_int_equal(kvctx_uring_prep(sqe(), 1, &op), 0);
	want_op(1, &op, 0);
	want_memory(0, 0, 0);
	compare();

	/* memory that is none of the opcode's is the kernel's to refuse */
	memset(&op, 0, sizeof(op));
	kvctx_prep_query(&op, &key);
	op.segs = list;
	op.nr_segs = 1;
	op.mem = 1;
	assert_int_equal(kvctx_uring_prep(sqe(), 1, &op), 0);
	want_op(1, &op, 0);
	want_memory(list, 1, 1);
	compare();
}

/* Those with a number of their own, or with none */
static void each_number(void **state)
{
	struct kvctx_key key = some_key();
	struct kvctx_sqe op[7];
	unsigned int i;

	(void)state;
	memset(op, 0, sizeof(op));
	kvctx_prep_query(&op[0], &key);
	kvctx_prep_prefetch(&op[1], &key, 1001);
	kvctx_prep_lease(&op[2], &key, 1002);
	kvctx_prep_get(&op[3], &key, 1003);
	kvctx_prep_release(&op[4], 1004);
	kvctx_prep_put(&op[5], 1005);
	kvctx_prep_flush(&op[6]);
	for (i = 0; i < 7; i++) {
		op[i].user_data = i;
		assert_int_equal(kvctx_uring_prep(sqe(), 3, &op[i]), 0);
		want_op(3, &op[i], i % 6 ? 1000 + i : 0);
		want_memory(0, 0, 0);
		compare();
	}
}

static void registered_memory(void **state)
{
	struct kvctx_key key = some_key();
	struct kvctx_sqe op = { .user_data = 12 };
	uint8_t buf[16];
	int load;

	(void)state;
	for (load = 0; load < 2; load++) {
		if (load)
			kvctx_prep_load(&op, &key, NULL, 0, 512, 16);
		else
			kvctx_prep_store(&op, &key, NULL, 0, 16, 3);
		assert_int_equal(kvctx_uring_prep_fixed(sqe(), 4, &op, buf, 0x8001), 0);
		want_op(4, &op, load ? 0 : 3);
		want_memory((uintptr_t)buf, 0, 0);
		put(28, 1, 4);
		put(40, 0x8001, 2);
		compare();
		op.depth = 0;
	}
}

static void a_batch(void **state)
{
	struct kvctx_sqe ops[3];

	(void)state;
	kvctx_uring_prep_submit(sqe(), 5, ops, 3);
	want_command(64, 5, 0xb541, 0);
	put(CMD, (uintptr_t)ops, 8);
	put(CMD + 8, 3, 4);
	compare();
}

/* One field more than the good operation of that opcode, or one less: both kinds of entry refuse it */
static void refusals(void **state)
{
	static const struct {
		struct kvctx_sqe op;
		int res;
	} cases[] = {
		{ { .opcode = 0 }, -EINVAL },
		{ { .opcode = 11 }, -EINVAL },
		{ { .opcode = 255 }, -EINVAL },
		{ { .opcode = KVCTX_OP_LOAD, .length = 1, .crcs = 1 }, -EOPNOTSUPP },
		{ { .opcode = KVCTX_OP_STORE, .length = 1, .crcs = 1 }, -EOPNOTSUPP },
		{ { .opcode = KVCTX_OP_LOAD, .length = 1, .offset = 1ULL << 32 }, -EOPNOTSUPP },
		{ { .opcode = KVCTX_OP_LOAD, .length = 1ULL << 32 }, -EOPNOTSUPP },
		{ { .opcode = KVCTX_OP_MATCH, .length = 16, .keys = 1, .nr_keys = 1 }, -EOPNOTSUPP },
		{ { .opcode = KVCTX_OP_MATCH, .length = 16 }, -EINVAL },
		{ { .opcode = KVCTX_OP_LOAD, .length = 1, .reserved2 = 1 }, -EINVAL },
		{ { .opcode = KVCTX_OP_LOAD, .length = 1, .depth = 1 }, -EINVAL },
		{ { .opcode = KVCTX_OP_STORE, .length = 1, .lease_ms = 1 }, -EINVAL },
		{ { .opcode = KVCTX_OP_STORE, .length = 1, .lease = 1 }, -EINVAL },
		{ { .opcode = KVCTX_OP_PREFETCH, .lease_ms = 1, .depth = 1 }, -EINVAL },
		{ { .opcode = KVCTX_OP_LEASE, .lease_ms = 1, .lease = 1 }, -EINVAL },
		{ { .opcode = KVCTX_OP_GET, .lease_ms = 1, .depth = 1 }, -EINVAL },
		{ { .opcode = KVCTX_OP_RELEASE, .lease = 1, .lease_ms = 1 }, -EINVAL },
		{ { .opcode = KVCTX_OP_PUT, .lease = 1, .depth = 1 }, -EINVAL },
		{ { .opcode = KVCTX_OP_DELETE, .lease = 1 }, -EINVAL },
		{ { .opcode = KVCTX_OP_QUERY, .lease_ms = 1 }, -EINVAL },
		{ { .opcode = KVCTX_OP_FLUSH, .depth = 1 }, -EINVAL },
	};
	unsigned int i;
	uint8_t byte = 0;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct kvctx_sqe op = cases[i].op;

		if (kvctx_uring_prep_fixed(sqe(), 3, &op, &byte, 0) != cases[i].res)
			fail_msg("case %u, registered memory", i);
		compare();
		if (kvctx_uring_prep(sqe(), 3, &op) != cases[i].res)
			fail_msg("case %u", i);
		compare();
	}
}

/* Memory beside the ring's, and an opcode that moves none */
static void refusals_of_memory(void **state)
{
	struct kvctx_sqe op = { .opcode = KVCTX_OP_LOAD, .length = 1 };
	uint8_t byte = 0;

	(void)state;
	op.segs = 1;
	assert_int_equal(kvctx_uring_prep_fixed(sqe(), 3, &op, &byte, 0), -EINVAL);
	compare();
	op.segs = 0;
	op.nr_segs = 1;
	assert_int_equal(kvctx_uring_prep_fixed(sqe(), 3, &op, &byte, 0), -EINVAL);
	compare();
	op.nr_segs = 0;
	op.mem = 1;
	assert_int_equal(kvctx_uring_prep_fixed(sqe(), 3, &op, &byte, 0), -EINVAL);
	compare();
	memset(&op, 0, sizeof(op));
	kvctx_prep_flush(&op);
	assert_int_equal(kvctx_uring_prep_fixed(sqe(), 3, &op, &byte, 0), -EINVAL);
	compare();
}

static void completion_flags(void **state)
{
	static const __u64 cqe[4] = { 1, 2, KVCTX_CQE_VERIFIED | KVCTX_CQE_P2P, 4 };

	(void)state;
	assert_int_equal(kvctx_uring_cqe_flags((const void *)cqe), KVCTX_CQE_VERIFIED | KVCTX_CQE_P2P);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_opcode),
		cmocka_unit_test(each_number),
		cmocka_unit_test(registered_memory),
		cmocka_unit_test(a_batch),
		cmocka_unit_test(refusals),
		cmocka_unit_test(refusals_of_memory),
		cmocka_unit_test(completion_flags),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
