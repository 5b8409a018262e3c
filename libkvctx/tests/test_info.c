// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What a handle tells of who serves it, where that is this process: known only after SETUP, or once memory was registered.
 * Each case is a process of its own, since it gives up rights.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "kvctx.h"

#define PAGE	65536U

static char dir[256], path[300];
static bool told;			/* the log spoke of threads */

/* A line where something was not so */
#define CHECK(x)	do { if (!(x)) return __LINE__; } while (0)

static void hear(void *arg, int level, const char *text)
{
	(void)level;
	(void)arg;
	told |= !!strstr(text, "threads");
}

static int setup(void **state)
{
	struct kvctx_pool_params pool = { .size = sizeof(pool), .bytes = 64 << 20 };
	char self[200] = "";

	(void)state;
	/* where the build is there is a file system that takes O_DIRECT */
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(dir, sizeof(dir), "%s/info-XXXXXX", dirname(self));
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/kv0", dir);
	assert_int_equal(kvctx_pool_create(path, &pool), 0);
	strcat(path, "/default");
	return 0;
}

static int teardown(void **state)
{
	char command[300];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

/* As containers' default profiles do */
static int forbid_io_uring(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof(rules) / sizeof(rules[0]), .filter = rules };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* As an ordinary user with little memory to lock */
static int limit_locked_memory(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];
	struct rlimit limit = { 64 << 10, 64 << 10 };

	if (syscall(SYS_capget, &header, caps))
		return -1;
	caps[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
	caps[CAP_TO_INDEX(CAP_IPC_LOCK)].permitted &= ~CAP_TO_MASK(CAP_IPC_LOCK);
	return syscall(SYS_capset, &header, caps) || setrlimit(RLIMIT_MEMLOCK, &limit);
}

static uint64_t features(const struct kvctx *ctx)
{
	return kvctx_get_info(ctx)->features;
}

static int there_and_back(struct kvctx *ctx)
{
	struct kvctx_key key = kvctx_key_from_u64(1, 1);
	static char page[PAGE], back[PAGE];

	memset(page, 'k', sizeof(page));
	kvctx_store(ctx, &key, page, PAGE, NULL);	/* or it is there already */
	CHECK(kvctx_load(ctx, &key, back, PAGE, NULL) == PAGE && !memcmp(page, back, PAGE));
	return 0;
}

static int without_io_uring(void)
{
	struct kvctx *ctx;
	int bad;

	kvctx_set_log(hear, NULL);
	CHECK(!forbid_io_uring());
	CHECK(!kvctx_open(path, O_RDWR, NULL, &ctx));
	CHECK(told && features(ctx) & KVCTX_FEAT_IOTHREADS && features(ctx) & KVCTX_FEAT_PROCESS);
	bad = there_and_back(ctx);
	kvctx_close(ctx);
	return bad;
}

static int with_io_uring(void)
{
	struct kvctx *ctx;

	CHECK(!kvctx_open(path, O_RDWR, NULL, &ctx));
	/* nor where this machine has none */
	CHECK(!(features(ctx) & KVCTX_FEAT_UNREGISTERED));
	kvctx_close(ctx);
	return 0;
}

static int arena_over_the_limit(void)
{
	struct kvctx_params p = { .size = sizeof(p), .arena_bytes = 8 << 20 };
	struct kvctx *ctx;

	CHECK(!limit_locked_memory());
	CHECK(!kvctx_open(path, O_RDWR, &p, &ctx));
	CHECK(features(ctx) & (KVCTX_FEAT_UNREGISTERED | KVCTX_FEAT_IOTHREADS));
	kvctx_close(ctx);
	return 0;
}

static int memory_over_the_limit(void)
{
	size_t bytes = 8 << 20;
	struct kvctx *ctx;
	uint32_t id;
	void *mem;

	CHECK(!limit_locked_memory());
	mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(mem != MAP_FAILED);
	CHECK(!kvctx_open(path, O_RDWR, NULL, &ctx));
	CHECK(!(features(ctx) & KVCTX_FEAT_UNREGISTERED));
	CHECK(!kvctx_mem_register(ctx, mem, bytes, &id));
	CHECK(features(ctx) & (KVCTX_FEAT_UNREGISTERED | KVCTX_FEAT_IOTHREADS));
	CHECK(!there_and_back(ctx));
	kvctx_close(ctx);
	return 0;
}

/* @test in a process of its own: 0, or the line where it failed, modulo 256 */
static void apart(int (*test)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid)
		_exit(test() & 0xff);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#define APART(name)	static void test_##name(void **state) { (void)state; apart(name); }

APART(with_io_uring)
APART(without_io_uring)
APART(arena_over_the_limit)
APART(memory_over_the_limit)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_with_io_uring),
		cmocka_unit_test(test_without_io_uring),
		cmocka_unit_test(test_arena_over_the_limit),
		cmocka_unit_test(test_memory_over_the_limit),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
