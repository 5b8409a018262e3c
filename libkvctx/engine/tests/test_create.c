// SPDX-License-Identifier: LGPL-2.1-or-later
/* kvctx_pool_create(): what it makes, and that a failure leaves nothing behind. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvctx.h"
#include "rig.h"

#define MIB		(1ULL << 20)

/* Calls that fail, by the linker's --wrap: the one with that number; and a file system that lacks some */
static int fail_call = -1;
static bool no_tmpfile, no_fallocate;

static bool call_fails(void)
{
	if (fail_call > 0 && !--fail_call) {
		errno = EIO;
		return true;
	}
	return false;
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_fallocate64(int fd, int mode, off_t at, off_t len);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t len);
ssize_t __real_pwrite64(int fd, const void *buf, size_t len, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t at);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_linkat(int from, const char *a, int to, const char *b, int flags);
int __wrap_linkat(int from, const char *a, int to, const char *b, int flags);

int __wrap_open64(const char *path, int flags, ...)
{
	if (no_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return call_fails() ? -1 : __real_open64(path, flags, 0600);
}

int __wrap_fallocate64(int fd, int mode, off_t at, off_t len)
{
	if (no_fallocate) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return call_fails() ? -1 : __real_fallocate64(fd, mode, at, len);
}

ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t at)
{
	return call_fails() ? -1 : __real_pwrite64(fd, buf, len, at);
}

int __wrap_fsync(int fd)
{
	return call_fails() ? -1 : __real_fsync(fd);
}

int __wrap_linkat(int from, const char *a, int to, const char *b, int flags)
{
	return call_fails() ? -1 : __real_linkat(from, a, to, b, flags);
}

static int create(const char *name, u64 bytes)
{
	struct kvctx_pool_params p = { .size = sizeof(p), .bytes = bytes };

	return kvctx_pool_create(rig_path(name), &p);
}

static bool exists(const char *name)
{
	struct stat st;

	return !lstat(rig_path(name), &st);
}

static u32 entries(const char *name)
{
	DIR *d = opendir(rig_path(name));
	u32 n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static void stored_and_found(const char *name)
{
	struct kve_pool *p;

	assert_int_equal(kve_pool_get(rig_path(name), &p, rig_why), 0);
	rig_stored(p, 0, 10);
	kve_pool_put(p);
	assert_int_equal(create(name, 100 * MIB), 0);
	assert_int_equal(kve_pool_get(rig_path(name), &p, rig_why), 0);
	assert_int_equal(rig_found(p, 0, 10), 10);
	kve_pool_put(p);
}

static void a_pool_is_made_and_is_there(void **state)
{
	struct kve_pool *p;
	struct stat st;

	(void)state;
	assert_int_equal(create("kv0", 20 * MIB + 77), 0);
	assert_int_equal(stat(rig_path("kv0"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(rig_path("kv0/member0"), &st), 0);
	assert_int_equal(st.st_size, 20 * MIB);
	/* all of its space is its own */
	assert_true((u64)st.st_blocks * 512 >= 20 * MIB);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(entries("kv0"), 1);
	assert_int_equal(kve_pool_get(rig_path("kv0"), &p, rig_why), 0);
	assert_string_equal(p->name, "kv0");
	assert_true(kvc_capacity(p->core) > 18 * MIB);
	/* also while it is used */
	assert_int_equal(create("kv0", 20 * MIB), 0);
	kve_pool_put(p);
	stored_and_found("kv0");
}

/* What an attach leaves alone is not looked at, and what it refuses is refused wherever it stands */
static void what_else_is_in_the_directory(void **state)
{
	(void)state;
	assert_int_equal(mkdir(rig_path("fs"), 0700), 0);
	assert_int_equal(mkdir(rig_path("fs/lost+found"), 0700), 0);
	rig_file(rig_path("fs/.note"), "x", 1, 1);
	assert_int_equal(create("fs", 20 * MIB), 0);
	stored_and_found("fs");
	rig_file(rig_path("fs/aaa"), "x", 1, 4096);
	assert_int_equal(create("fs", 20 * MIB), -EMEDIUMTYPE);
	assert_int_equal(rename(rig_path("fs/aaa"), rig_path("fs/zzz")), 0);
	assert_int_equal(create("fs", 20 * MIB), -EMEDIUMTYPE);
	assert_true(rig_logged("zzz: no member"));
}

static void parameters(void **state)
{
	struct { struct kvctx_pool_params p; u64 later; } p = { .p = { .size = sizeof(p), .bytes = 20 * MIB } };

	(void)state;
	p.later = 1;
	assert_int_equal(kvctx_pool_create(rig_path("a"), &p.p), -E2BIG);
	p.later = 0;
	p.p.flags = 1;
	assert_int_equal(kvctx_pool_create(rig_path("a"), &p.p), -EINVAL);
	p.p.flags = 0;
	p.p.reserved = 1;
	assert_int_equal(kvctx_pool_create(rig_path("a"), &p.p), -EINVAL);
	p.p.reserved = 0;
	p.p.size = sizeof(p.p) - 1;
	assert_int_equal(kvctx_pool_create(rig_path("a"), &p.p), -EINVAL);
	p.p.size = sizeof(p);
	p.p.chunk_bytes = 5000;
	assert_int_equal(kvctx_pool_create(rig_path("a"), &p.p), -EINVAL);
	p.p.chunk_bytes = 4096;
	p.p.segment_bytes = 8 * MIB;
	assert_int_equal(kvctx_pool_create(rig_path("a"), &p.p), -EINVAL);
	assert_false(exists("a"));
	p.p.segment_bytes = 4 * MIB;
	assert_int_equal(kvctx_pool_create(rig_path("a"), &p.p), 0);
	assert_int_equal(create("b", 2 * MIB), -EINVAL);
	assert_int_equal(create("b", 0), -EINVAL);
	assert_false(exists("b"));
	assert_int_equal(create("b/c", 20 * MIB), -ENOENT);
	rig_file(rig_path("d"), "", 0, 0);
	assert_int_equal(create("d", 20 * MIB), -ENOTDIR);
}

static void what_is_something_else_is_left_alone(void **state)
{
	(void)state;
	mkdir(rig_path("a"), 0700);
	rig_file(rig_path("a/photo"), "photo", 5, 5);
	assert_int_equal(create("a", 20 * MIB), -EMEDIUMTYPE);
	assert_true(rig_logged("photo: no member of a pool"));
	assert_int_equal(entries("a"), 1);
	/* what begins with a dot is none of ours */
	mkdir(rig_path("b"), 0755);
	rig_file(rig_path("b/.keep"), "", 0, 0);
	assert_int_equal(create("b", 20 * MIB), 0);
	stored_and_found("b");
}

/* Where the file system is small, or knows less */
static void a_full_file_system(void **state)
{
	int i;

	(void)state;
	if (mount("none", rig_dir, "tmpfs", 0, "size=24m"))
		skip();
	for (i = 0; i < 2; i++) {
		assert_int_equal(create("a", 40 * MIB), -ENOSPC);
		assert_true(rig_logged("no pool of 41943040 bytes can be made: No space left"));
		assert_int_equal(entries("."), 0);
		no_tmpfile = no_fallocate = true;
	}
	no_fallocate = false;
	mkdir(rig_path("b"), 0700);
	assert_int_equal(create("b", 40 * MIB), -ENOSPC);
	assert_int_equal(entries("b"), 0);
	assert_int_equal(create("b", 20 * MIB), 0);
	no_tmpfile = false;
	umount(rig_dir);
}

static void a_limit_on_files(void **state)
{
	struct rlimit before, limit;

	(void)state;
	getrlimit(RLIMIT_FSIZE, &before);
	limit = before;
	limit.rlim_cur = 20 * MIB - 1;
	setrlimit(RLIMIT_FSIZE, &limit);
	assert_int_equal(create("a", 20 * MIB), -EFBIG);
	setrlimit(RLIMIT_FSIZE, &before);
	assert_int_equal(entries("."), 0);
}

static void a_file_system_that_knows_less(void **state)
{
	struct stat st;

	(void)state;
	no_tmpfile = no_fallocate = true;
	assert_int_equal(create("a", 20 * MIB), 0);
	no_tmpfile = no_fallocate = false;
	assert_int_equal(stat(rig_path("a/member0"), &st), 0);
	assert_true((u64)st.st_blocks * 512 >= 20 * MIB);
	assert_int_equal(entries("a"), 1);
	stored_and_found("a");
}

/* Its maker was killed: what it left is gone on with */
static void a_file_that_was_begun(void **state)
{
	(void)state;
	mkdir(rig_path("a"), 0700);
	rig_file(rig_path("a/.member0.new"), "half of it", 10, 50 * MIB);
	no_tmpfile = true;
	assert_int_equal(create("a", 20 * MIB), 0);
	no_tmpfile = false;
	assert_int_equal(entries("a"), 1);
	stored_and_found("a");
}

/* Each call fails in turn: an error, and nothing is left, until it succeeds untouched */
static int sweep(void)
{
	int n, err;

	for (n = 1; n < 100; n++) {
		fail_call = n;
		err = create("a", 20 * MIB);
		fail_call = -1;
		if (!err)
			return n - 1;
		assert_int_equal(err, -EIO);
		assert_int_equal(entries("."), 0);
	}
	return -1;
}

static void every_call_may_fail(void **state)
{
	(void)state;
	assert_in_range(sweep(), 10, 99);
	stored_and_found("a");
	assert_int_equal(unlink(rig_path("a/member0")), 0);
	assert_int_equal(rmdir(rig_path("a")), 0);
	no_tmpfile = true;
	assert_in_range(sweep(), 10, 99);
	no_tmpfile = false;
	stored_and_found("a");
}

static void *create_one(void *err)
{
	*(int *)err = create("a", 20 * MIB);
	return NULL;
}

static void many_at_once(void **state)
{
	pthread_t t[8];
	int err[8], i;

	(void)state;
	for (i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&t[i], NULL, create_one, &err[i]), 0);
	for (i = 0; i < 8; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(err[i], 0);
	}
	assert_int_equal(entries("a"), 1);
	stored_and_found("a");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_pool_is_made_and_is_there),
		TEST(what_else_is_in_the_directory),
		TEST(parameters),
		TEST(what_is_something_else_is_left_alone),
		TEST(a_full_file_system),
		TEST(a_limit_on_files),
		TEST(a_file_system_that_knows_less),
		TEST(a_file_that_was_begun),
		TEST(every_call_may_fail),
		TEST(many_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
