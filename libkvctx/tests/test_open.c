// SPDX-License-Identifier: LGPL-2.1-or-later
/* Opening, what can fail in it, and what a handle tells. */
#include <stdio.h>

#include <sys/wait.h>

#include "test.h"

/* The allocations of the library, which the linker sends here; the one with that number fails */
static int fail_alloc = -1;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

static bool alloc_fails(void)
{
	if (fail_alloc >= 0)
		fail_alloc--;
	return fail_alloc == 0;
}

void *__wrap_calloc(size_t n, size_t size)
{
	return alloc_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_malloc(size_t size)
{
	return alloc_fails() ? NULL : __real_malloc(size);
}

static void refuse(int flags, const struct kvctx_params *p, int err)
{
	struct kvctx *c = NULL;

	assert_int_equal(kvctx_open(FAKE_PATH, flags, p, &c), err);
	assert_null(c);
	assert_int_equal(fake.fds, 0);
	assert_int_equal(fake.maps, 0);
}

static void flags_and_parameters(void **state)
{
	struct { struct kvctx_params p; uint64_t later; } long_params = { .p.size = sizeof(long_params) };
	struct kvctx_params p = { .size = sizeof(p) };
	struct kvctx *c;

	(void)state;
	fake_reset();
	refuse(O_WRONLY, NULL, -EINVAL);
	refuse(O_RDWR | O_TRUNC, NULL, -EINVAL);
	p.size = offsetof(struct kvctx_params, slot_bytes) - 1;
	refuse(O_RDWR, &p, -EINVAL);
	/* of a program that knows no slots: what lies behind is not its */
	p = (struct kvctx_params){ .size = offsetof(struct kvctx_params, slot_bytes), .slot_bytes = 1, .nr_slots = ~0U };
	assert_int_equal(kvctx_open(FAKE_PATH, O_RDWR, &p, &c), 0);
	kvctx_close(c);
	p = (struct kvctx_params){ .size = sizeof(p), .flags = 1 };
	refuse(O_RDWR, &p, -EINVAL);
	p = (struct kvctx_params){ .size = sizeof(p), .eventfd = -2 };
	refuse(O_RDWR, &p, -EINVAL);
	p = (struct kvctx_params){ .size = sizeof(p), .eventfd = -1 };
	assert_int_equal(kvctx_open(FAKE_PATH, O_RDWR, &p, &c), 0);
	assert_int_equal(fake.setup.flags + fake.setup.eventfd, 0);
	kvctx_close(c);
	p = (struct kvctx_params){ .size = sizeof(p), .cq_entries = 1025 };
	refuse(O_RDWR, &p, -EINVAL);
	long_params.later = 1;
	refuse(O_RDWR, &long_params.p, -E2BIG);
	long_params.later = 0;
	assert_int_equal(kvctx_open(FAKE_PATH, O_RDWR | O_CLOEXEC, &long_params.p, &c), 0);
	kvctx_close(c);
	kvctx_close(NULL);
}

static void parameters_arrive(void **state)
{
	struct kvctx_params p = {
		.size = sizeof(p), .keyspace = "0123456789abcde", .arena_bytes = 5000, .cq_entries = 100,
		.eventfd = 9, .timeout_ns = 12345,
	};
	struct kvctx_key key = kvctx_key_from_u64(1, 1);
	struct kvctx *c;
	size_t len = 1;

	(void)state;
	fake_reset();
	assert_int_equal(kvctx_open(FAKE_PATH, O_RDWR, &p, &c), 0);
	assert_memory_equal(fake.setup.keyspace, p.keyspace, sizeof(p.keyspace));
	assert_int_equal(fake.setup.flags, KVCTX_SETUP_EVENTFD);
	assert_int_equal(fake.setup.eventfd, 9);
	assert_int_equal(fake.setup.cq_entries, 200);	/* room for synchronous calls as well */
	assert_non_null(kvctx_arena(c, &len));
	assert_int_equal(len, 8192);
	assert_int_equal(kvctx_fd(c), 77);
	assert_int_equal(kvctx_get_info(c)->batch_max, 16);
	assert_int_equal(kvctx_flush(c), 0);
	assert_int_equal(fake.timeout_ns, 12345);
	fake.timeout_ns = 0;
	assert_int_equal(kvctx_store(c, &key, &key, sizeof(key), NULL), sizeof(key));
	assert_int_equal(fake.timeout_ns, 12345);
	fake.timeout_ns = 0;
	assert_int_equal(kvctx_delete(c, &key), 0);
	assert_int_equal(fake.timeout_ns, 12345);
	kvctx_close(c);

	assert_int_equal(kvctx_open(FAKE_PATH, O_RDONLY, NULL, &c), 0);
	assert_int_equal(fake.setup.flags + fake.setup.eventfd + fake.setup.arena_bytes, 0);
	assert_int_equal(fake.setup.cq_entries, 512);
	assert_null(kvctx_arena(c, &len));
	assert_int_equal(len, 0);
	kvctx_close(c);

	fake.cq_max = 100;
	p = (struct kvctx_params){ .size = sizeof(p), .cq_entries = 60 };
	assert_int_equal(kvctx_open(FAKE_PATH, O_RDWR, &p, &c), 0);
	assert_int_equal(fake.setup.cq_entries, 100);
	kvctx_close(c);
	assert_int_equal(kvctx_open(FAKE_PATH, O_RDWR, NULL, &c), 0);
	assert_int_equal(fake.setup.cq_entries, 100);
	kvctx_close(c);
}

static void failures_leave_nothing(void **state)
{
	struct kvctx_params p = { .size = sizeof(p), .arena_bytes = 4096 };
	struct kvctx *c;

	(void)state;
	fake_reset();
	assert_int_equal(kvctx_open("/dev/kvctx/p/other", O_RDWR, NULL, &c), -ENOENT);
	fake.fail_open = -EACCES;
	refuse(O_RDWR, &p, -EACCES);
	fake.fail_open = 0;
	fake.fail_info = -ENOTTY;
	refuse(O_RDWR, &p, -ENOTTY);
	fake.fail_info = 0;
	fake.abi_version++;
	refuse(O_RDWR, &p, -EPROTO);
	fake.abi_version--;
	fake.fail_setup = -ENODEV;
	refuse(O_RDWR, &p, -ENODEV);
	fake.fail_setup = 0;
	fake.mmaps_left = 0;
	refuse(O_RDWR, &p, -ENOMEM);
	fake.mmaps_left = 1;
	refuse(O_RDWR, &p, -ENOMEM);
}

static void every_allocation_of_open_may_fail(void **state)
{
	struct kvctx *c = NULL;
	int n;

	(void)state;
	fake_reset();
	for (n = 1; n < 10; n++) {
		fail_alloc = n;
		if (!kvctx_open(FAKE_PATH, O_RDWR, NULL, &c))
			break;
		assert_null(c);
		assert_true(fail_alloc <= 0);	/* it was used */
		assert_int_equal(fake.fds + fake.maps, 0);
		fail_alloc = -1;
	}
	fail_alloc = -1;
	assert_int_equal(n, 4);		/* handle, queue, ready list */
	kvctx_close(c);
}

static void allocations_of_calls_may_fail(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(1, 2);
	uint8_t buf[100] = { 0 };
	uint32_t id;

	(void)state;
	fail_alloc = 1;
	assert_int_equal(kvctx_mem_register(ctx, buf, sizeof(buf), &id), -ENOMEM);
	fail_alloc = -1;
	assert_int_equal(fake.registered, 0);
	/* a page in memory that cannot be pinned is copied */
	fake.unpinnable = buf;
	fail_alloc = 1;
	assert_int_equal(kvctx_store(ctx, &key, buf, sizeof(buf), NULL), -ENOMEM);
	fail_alloc = -1;
	assert_int_equal(fake_pages(), 0);
	assert_int_equal(kvctx_store(ctx, &key, buf, sizeof(buf), NULL), sizeof(buf));
}

static void errors_have_texts(void **state)
{
	static const int errnos[] = {
		ENOENT, EBADMSG, EIO, ENODEV, ETIME, EREMOTEIO, EDQUOT, ENOSPC, EAGAIN, EMSGSIZE,
		ERANGE, E2BIG, EACCES, EINVAL, EFAULT, EOPNOTSUPP, ENOMEM, EBADFD, EEXIST, EBUSY,
		EINTR, ENOTTY, EPROTO, EMEDIUMTYPE, EUCLEAN, EFBIG,
	};
	char version[20];
	size_t i, j;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(errnos); i++) {
		assert_string_not_equal(kvctx_strerror(-errnos[i]), kvctx_strerror(-12345));
		for (j = 0; j < i; j++)
			assert_string_not_equal(kvctx_strerror(-errnos[i]), kvctx_strerror(-errnos[j]));
	}
	assert_non_null(strstr(kvctx_strerror(-ENOSPC), "slot"));
	assert_non_null(strstr(kvctx_strerror(-EOPNOTSUPP), "CRCs"));
	assert_string_equal(kvctx_strerror(0), "success");
	assert_string_equal(kvctx_strerror(ENOENT), "success");
	assert_string_equal(kvctx_version(), KVCTX_VERSION);
	snprintf(version, sizeof(version), "%d.%d.", KVCTX_LIB_VERSION_MAJOR, KVCTX_LIB_VERSION_MINOR);
	assert_memory_equal(kvctx_version(), version, strlen(version));
}

static void expect_flags(uint32_t flags, const char *text)
{
	char buf[97], cut[5];

	memset(buf, 'x', sizeof(buf));
	assert_int_equal(kvctx_cqe_flags_str(flags, buf, 96), strlen(text));
	assert_string_equal(buf, text);
	assert_int_equal(buf[96], 'x');
	assert_int_equal(kvctx_cqe_flags_str(flags, cut, sizeof(cut)), strlen(text));
	assert_memory_equal(cut, text, strlen(text) < 4 ? strlen(text) + 1 : 4);
	assert_int_equal(cut[strlen(text) < 4 ? strlen(text) : 4], 0);
	assert_int_equal(kvctx_cqe_flags_str(flags, NULL, 0), strlen(text));
}

static void completion_flags_have_names(void **state)
{
	(void)state;
	expect_flags(0, "-");
	expect_flags(KVCTX_CQE_VERIFIED, "VERIFIED");
	expect_flags(KVCTX_CQE_P2P, "P2P");
	expect_flags(KVCTX_CQE_STAGED, "STAGED");
	expect_flags(KVCTX_CQE_DEDUP | KVCTX_CQE_PENDING, "DEDUP|PENDING");
	expect_flags(KVCTX_CQE_FROM_DRAM, "FROM_DRAM");
	expect_flags(KVCTX_CQE_UNADMITTED, "UNADMITTED");
	expect_flags(0x80000000, "0x80000000");
	expect_flags(~0U, "VERIFIED|P2P|STAGED|DEDUP|FROM_DRAM|PENDING|UNADMITTED|0xffffff80");
}

static void keys_of_64_bits(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(0x1122334455667788, 5), want = { .qualifier = 5 };
	uint64_t hash = 0x1122334455667788;

	(void)state;
	memcpy(want.digest, &hash, sizeof(hash));
	assert_memory_equal(&key, &want, sizeof(key));
}

/* What programs were compiled with does not change */
_Static_assert(offsetof(struct kvctx_params, flags) == 8, "layout");
_Static_assert(offsetof(struct kvctx_params, keyspace) == 16, "layout");
_Static_assert(offsetof(struct kvctx_params, arena_bytes) == 32, "layout");
_Static_assert(offsetof(struct kvctx_params, cq_entries) == 40, "layout");
_Static_assert(offsetof(struct kvctx_params, eventfd) == 44, "layout");
_Static_assert(offsetof(struct kvctx_params, timeout_ns) == 48, "layout");
_Static_assert(offsetof(struct kvctx_params, slot_bytes) == 56, "layout");
_Static_assert(sizeof(struct kvctx_params) == 64, "layout");

/* A child closes the descriptor, and touches neither mappings nor locks, which are the parent's. */
static void closing_in_a_child(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(1, 1);
	int status = -1;
	pid_t child;

	(void)state;
	pthread_mutex_lock(&ctx->lock);
	child = fork();
	if (!child) {
		unsigned int maps = fake.maps;

		kvctx_close(ctx);
		_exit(fake.fds != 0 || fake.maps != maps);
	}
	pthread_mutex_unlock(&ctx->lock);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(kvctx_query(ctx, &key), -ENOENT);
}

/* The vectors of FIPS 180-4, and what Python's hashlib says of the last one */
static void names_from_bytes(void **state)
{
	static const uint8_t abc[] = {
		0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
		0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad,
	};
	static const uint8_t none[] = { 0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14 };
	uint8_t keyspace[KVCTX_KEYSPACE_LEN], same[KVCTX_KEYSPACE_LEN];
	struct kvctx_key key;

	(void)state;
	kvctx_key_from_bytes(&key, "abc", 3, 77);
	assert_memory_equal(key.digest, abc, sizeof(abc));
	assert_int_equal(key.qualifier, 77);
	kvctx_key_from_bytes(&key, NULL, 0, 0);
	assert_memory_equal(key.digest, none, sizeof(none));
	kvctx_keyspace_from_string(keyspace, "abc");
	assert_memory_equal(keyspace, abc, sizeof(keyspace));
	kvctx_keyspace_from_bytes(keyspace, "a longer text than 16 bytes, one", 32);
	kvctx_keyspace_from_bytes(same, "a longer text than 16 bytes, two", 32);
	assert_memory_not_equal(keyspace, same, sizeof(same));
}

static void finding_memory(void **state)
{
	static uint8_t mem[100];
	uint8_t *arena = kvctx_arena(ctx, NULL);
	uint64_t at = 0;
	uint32_t id, found = 7;

	(void)state;
	assert_int_equal(kvctx_mem_find(ctx, arena + 5, ARENA - 5, &found, &at), 0);
	assert_int_equal(found, KVCTX_MEM_ARENA);
	assert_int_equal(at, 5);
	assert_int_equal(kvctx_mem_find(ctx, arena + 5, ARENA - 4, &found, &at), -EFAULT);
	assert_int_equal(kvctx_mem_find(ctx, mem, 1, &found, &at), -EFAULT);
	assert_int_equal(kvctx_mem_register(ctx, mem + 10, 50, &id), 0);
	assert_int_equal(kvctx_mem_find(ctx, mem + 20, 40, &found, &at), 0);
	assert_int_equal(found, id);
	assert_int_equal(at, 10);
	assert_int_equal(kvctx_mem_find(ctx, mem + 20, 41, &found, &at), -EFAULT);
	assert_int_equal(kvctx_mem_find(ctx, mem + 9, 2, &found, &at), -EFAULT);
	assert_int_equal(kvctx_mem_find(ctx, mem + 20, 0, &found, &at), -EFAULT);
	assert_int_equal(kvctx_mem_unregister(ctx, id), 0);
	assert_int_equal(kvctx_mem_find(ctx, mem + 20, 1, &found, &at), -EFAULT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flags_and_parameters),
		cmocka_unit_test(parameters_arrive),
		cmocka_unit_test(failures_leave_nothing),
		cmocka_unit_test(every_allocation_of_open_may_fail),
		TEST(allocations_of_calls_may_fail),
		cmocka_unit_test(errors_have_texts),
		cmocka_unit_test(completion_flags_have_names),
		cmocka_unit_test(keys_of_64_bits),
		cmocka_unit_test(names_from_bytes),
		TEST(closing_in_a_child),
		TEST(finding_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
