// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A new file with all its space. See format.h.
 *
 * Space that was allocated is there for every later write, so a pool never meets a full file system. fallocate() does
 * that at once; where a file system cannot, the C library writes to every block instead.
 *
 * The file without a name (O_TMPFILE) gets it by link(), which does not replace what has it already. Its stand-in is
 * locked by who makes the file. Who finds one that nobody has locked goes on with it: its maker was killed.
 */
#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format.h"

/* The directory that @path is in; to be freed */
static char *file_directory(const char *path)
{
	char *copy = strdup(path), *dir = copy ? strdup(dirname(copy)) : NULL;

	free(copy);
	return dir;
}

/* What it is called until it has its name: ".NAME.new" beside it */
static char *file_temp(const char *path)
{
	const char *base = strrchr(path, '/');
	char *temp;

	base = base ? base + 1 : path;
	return asprintf(&temp, "%.*s.%s.new", (int)(base - path), path, base) < 0 ? NULL : temp;
}

static int file_open_nameless(struct kve_file *f)
{
	char *dir = file_directory(f->path);
	int err = dir ? 0 : -ENOMEM;

	if (dir) {
		f->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		err = f->fd < 0 ? -errno : 0;
	}
	free(dir);
	return err;
}

static int file_same(int fd, const char *path)
{
	struct stat a, b;

	return !fstat(fd, &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* The lock may be got from one who has published the file meanwhile: then another one has to be made. */
static int file_open_temp(struct kve_file *f)
{
	char *temp = file_temp(f->path);

	if (!temp)
		return -ENOMEM;
	do {
		if (f->fd >= 0)
			close(f->fd);
		f->fd = open(temp, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (f->fd < 0 || flock(f->fd, LOCK_EX | LOCK_NB)) {
			int err = errno == EWOULDBLOCK ? -EBUSY : -errno;

			free(temp);
			return err;
		}
	} while (!file_same(f->fd, temp));
	/* from here on it is ours */
	f->temp = temp;
	return ftruncate(f->fd, 0) ? -errno : 0;
}

/* A write beyond the limit would be answered by a signal. */
static int file_check_limit(u64 bytes)
{
	struct rlimit limit;

	return !getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < bytes ? -EFBIG : 0;
}

static int file_allocate(int fd, u64 bytes)
{
	int err;

	do {
		err = fallocate(fd, 0, 0, (off_t)bytes) ? errno : 0;
	} while (err == EINTR);
	return err == EOPNOTSUPP ? -posix_fallocate(fd, 0, (off_t)bytes) : -err;
}

int kve_file_begin(struct kve_file *f, const char *path, u64 bytes)
{
	struct stat st;
	int err;

	*f = (struct kve_file){ .fd = -1 };
	if (!lstat(path, &st))
		return -EEXIST;
	err = file_check_limit(bytes);
	if (err)
		return err;
	f->path = strdup(path);
	if (!f->path)
		return -ENOMEM;
	err = file_open_nameless(f);
	if (err == -EOPNOTSUPP || err == -EISDIR || err == -EINVAL)
		err = file_open_temp(f);
	if (!err)
		err = file_allocate(f->fd, bytes);
	if (err)
		kve_file_drop(f);
	return err;
}

int kve_sync_directory_of(const char *path)
{
	char *dir = file_directory(path);
	int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	int err = fd < 0 || fsync(fd) ? -errno : 0;

	if (fd >= 0)
		close(fd);
	free(dir);
	return err;
}

int kve_file_publish(struct kve_file *f)
{
	char self[32];
	int err;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", f->fd);
	if (linkat(AT_FDCWD, f->temp ?: self, AT_FDCWD, f->path, f->temp ? 0 : AT_SYMLINK_FOLLOW))
		return -errno;
	if (f->temp)
		unlink(f->temp);
	free(f->temp);
	f->temp = NULL;
	err = kve_sync_directory_of(f->path);
	if (err)
		unlink(f->path);
	return err;
}

void kve_file_drop(struct kve_file *f)
{
	if (f->temp)
		unlink(f->temp);
	if (f->fd >= 0)
		close(f->fd);
	free(f->temp);
	free(f->path);
	*f = (struct kve_file){ .fd = -1 };
}

static bool dir_skips(const char *name, const char *path)
{
	struct stat st;

	return *name == '.' || (!lstat(path, &st) && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode));
}

int kve_dir_each(const char *dir, int (*fn)(void *arg, const char *path), void *arg)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int err = 0;
	char *path;

	if (!d)
		return -errno;
	while (!err && (e = readdir(d))) {
		if (asprintf(&path, "%s/%s", dir, e->d_name) < 0) {
			err = -ENOMEM;
			break;
		}
		if (!dir_skips(e->d_name, path))
			err = fn(arg, path);
		free(path);
	}
	closedir(d);
	return err;
}
