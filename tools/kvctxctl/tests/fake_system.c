// SPDX-License-Identifier: GPL-2.0
/*
 * System calls of the tool, wrapped by the linker.
 *
 *	FAKE_LOG		file to append to
 *	FAKE_ROOT		where /dev and /sys are for access() and opendir(), and /sys and /proc for open() and
 *				fopen(). What is in its /dev is a block device for stat(), open() and ioctl()
 *	FAKE_BUSY		block devices in use, "NAME NAME"
 *	FAKE_DENIED		block devices that may not be opened
 *	FAKE_ACCESS_ERRNO	access() to a node that is there fails so when it asks for writing
 *	FAKE_OPEN_ERRNO		open() fails so
 *	FAKE_NO_TMPFILE		1: a file system that knows no file without a name
 *	FAKE_FALLOCATE_ERRNO	fallocate() fails so
 *	FAKE_FALLOCATE_SIGNAL	fallocate() is interrupted by this signal
 *	FAKE_PWRITE_FAIL	the n-th pwrite() fails with EIO
 *	FAKE_FSYNC_FAIL		the n-th fsync() fails with EIO
 *	FAKE_FAIL_FROM		1: all of them from the n-th on
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"

long fake_number(const char *name, long other)
{
	const char *text = getenv(name);

	return text ? strtol(text, NULL, 0) : other;
}

bool fake_is(const char *name, const char *text)
{
	const char *value = getenv(name);

	return value && !strcmp(value, text);
}

void fake_log(const char *fmt, ...)
{
	const char *path = getenv("FAKE_LOG");
	FILE *f = path ? fopen(path, "a") : NULL;
	va_list ap;

	if (!f)
		return;
	va_start(ap, fmt);
	vfprintf(f, fmt, ap);
	va_end(ap);
	fputc('\n', f);
	fclose(f);
}

static const char *moved(const char *path, char *buf, size_t size)
{
	const char *root = getenv("FAKE_ROOT");

	if (strncmp(path, "/dev/", 5) && strncmp(path, "/sys/", 5) && strncmp(path, "/proc/", 6))
		return path;
	snprintf(buf, size, "%s%s", root ? root : "/nowhere", path);
	return buf;
}

void fake_make(const char *path)
{
	char full[512];
	int fd;

	moved(path, full, sizeof(full));
	for (char *p = full + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		mkdir(full, 0755);
		*p = '/';
	}
	fd = __real_open64(full, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		abort();
	close(fd);
}

int __wrap_access(const char *path, int mode)
{
	char buf[512];
	int ret = __real_access(moved(path, buf, sizeof(buf)), mode);

	if (!ret && mode & W_OK && getenv("FAKE_ACCESS_ERRNO")) {
		errno = (int)fake_number("FAKE_ACCESS_ERRNO", 0);
		return -1;
	}
	return ret;
}

DIR *__wrap_opendir(const char *path)
{
	char buf[512];

	fake_namespaces_appear();
	return __real_opendir(moved(path, buf, sizeof(buf)));
}

/* The file that is the block device @path; or @path */
static const char *block_file(const char *path, char *buf, size_t size)
{
	return !strncmp(path, "/dev/", 5) && !__real_access(moved(path, buf, size), F_OK) ? buf : path;
}

/* Is this file of block_file()'s? */
static bool is_block(const struct stat *st)
{
	char path[512], file[1024];
	struct stat other;
	struct dirent *e;
	bool yes = false;
	DIR *dir = __real_opendir(moved("/dev/", path, sizeof(path)));

	while (dir && !yes && (e = readdir(dir))) {
		snprintf(file, sizeof(file), "%s%s", path, e->d_name);
		yes = !__real_stat64(file, &other) && S_ISREG(other.st_mode) && other.st_dev == st->st_dev &&
		      other.st_ino == st->st_ino;
	}
	if (dir)
		closedir(dir);
	return yes;
}

static void make_block(struct stat *st)
{
	if (!S_ISREG(st->st_mode) || !is_block(st))
		return;
	st->st_mode = (st->st_mode & ~(mode_t)S_IFMT) | S_IFBLK;
	st->st_rdev = st->st_ino;
	st->st_size = 0;
}

int __wrap_stat64(const char *path, struct stat *st)
{
	char buf[512];
	int ret = __real_stat64(block_file(path, buf, sizeof(buf)), st);

	if (!ret)
		make_block(st);
	return ret;
}

int __wrap_fstat64(int fd, struct stat *st)
{
	int ret = __real_fstat64(fd, st);

	if (!ret)
		make_block(st);
	return ret;
}

int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
	struct stat st;

	if (__real_fstat64(fd, &st) || !S_ISREG(st.st_mode) || !is_block(&st))
		return __real_ioctl(fd, request, arg);
	if (request == BLKGETSIZE64)
		*(uint64_t *)arg = (uint64_t)st.st_size;
	else if (request == BLKSSZGET)
		*(int *)arg = 512;
	else
		abort();
	return 0;
}

static bool is_listed(const char *name, const char *path)
{
	const char *list = getenv(name), *base = strrchr(path, '/'), *at;
	size_t len = base ? strlen(++base) : 0;

	for (at = list && len ? list : ""; (at = strstr(at, base)); at += len)
		if ((at == list || at[-1] == ' ') && (!at[len] || at[len] == ' '))
			return true;
	return false;
}

/* Held by somebody, all the time or for the first FAKE_BUSY_OPENS opens */
static bool is_busy(const char *path)
{
	static long opens;

	return is_listed("FAKE_BUSY", path) && (!getenv("FAKE_BUSY_OPENS") || opens++ < fake_number("FAKE_BUSY_OPENS", 0));
}

int __wrap_open64(const char *path, int flags, ...)
{
	bool block = !strncmp(path, "/dev/", 5);
	char buf[512];

	if (getenv("FAKE_OPEN_ERRNO")) {
		errno = (int)fake_number("FAKE_OPEN_ERRNO", 0);
		return -1;
	}
	if (block && flags & O_EXCL && is_busy(path)) {
		errno = EBUSY;
		return -1;
	}
	if (block && is_listed("FAKE_DENIED", path)) {
		errno = EACCES;
		return -1;
	}
	if ((flags & O_TMPFILE) == O_TMPFILE && getenv("FAKE_NO_TMPFILE")) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return __real_open64(block ? block_file(path, buf, sizeof(buf)) : moved(path, buf, sizeof(buf)), flags, 0600);
}

int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len)
{
	errno = (int)fake_number("FAKE_FALLOCATE_ERRNO", 0);
	if (errno)
		return -1;
	if (getenv("FAKE_FALLOCATE_SIGNAL"))
		raise((int)fake_number("FAKE_FALLOCATE_SIGNAL", 0));
	return __real_fallocate64(fd, mode, offset, len);
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
	char buf[512];

	return __real_fopen64(strncmp(path, "/proc/", 6) ? path : moved(path, buf, sizeof(buf)), mode);
}

static bool fault(const char *name, long *nr)
{
	long which = fake_number(name, 0);

	++*nr;
	return which && (*nr == which || (*nr > which && fake_number("FAKE_FAIL_FROM", 0)));
}

ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t offset)
{
	static long nr;

	if (fault("FAKE_PWRITE_FAIL", &nr)) {
		errno = EIO;
		return -1;
	}
	/* Short now and then, as a file may */
	return __real_pwrite64(fd, buf, len > 40000 && nr % 3 == 0 ? 40000 : len, offset);
}

int __wrap_fsync(int fd)
{
	static long nr;

	if (fault("FAKE_FSYNC_FAIL", &nr)) {
		errno = EIO;
		return -1;
	}
	return __real_fsync(fd);
}
