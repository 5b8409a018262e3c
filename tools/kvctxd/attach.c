// SPDX-License-Identifier: GPL-2.0
/*
 * Attach by devices, as kvctxctl asks for it, or by a directory, or its name. The engine attaches directories: one of
 * links to the devices is made in the run directory, and removed when the pool is detached, or when the next daemon
 * finds it there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach.h"

#define ATTACH_PREFIX	".pool-"

static bool attach_is_directory(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int attach_link(const char *dir, const char *device, uint32_t nr)
{
	char path[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/%u", dir, nr);
	return symlink(device, path) ? -errno : 0;
}

/* Also what of it a failure has left */
static void attach_remove(const char *dir)
{
	struct dirent *entry;
	DIR *d = opendir(dir);

	while (d && (entry = readdir(d)))
		unlinkat(dirfd(d), entry->d_name, 0);
	if (d)
		closedir(d);
	rmdir(dir);
}

/* The engine takes a pool with members missing where it finds this */
static int attach_allow_missing(const char *dir)
{
	char path[PATH_MAX + 16];
	int fd;

	snprintf(path, sizeof(path), "%s/.degraded", dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int attach_links(const char *dir, const char *const *devices, uint32_t nr, bool degraded)
{
	int err = degraded ? attach_allow_missing(dir) : 0;

	for (uint32_t i = 0; i < nr && !err; i++)
		err = attach_link(dir, devices[i], i);
	return err;
}

/* The same node or file as an earlier one. What cannot be looked at, the engine refuses with the reason. */
static bool attach_same(const char *const *devices, uint32_t nr)
{
	struct stat one, other;

	if (stat(devices[nr], &one))
		return false;
	for (uint32_t i = 0; i < nr; i++)
		if (!stat(devices[i], &other) && other.st_mode == one.st_mode &&
		    (S_ISBLK(one.st_mode) ? other.st_rdev == one.st_rdev :
		     other.st_dev == one.st_dev && other.st_ino == one.st_ino))
			return true;
	return false;
}

/* The engine speaks of links in a directory that nobody has heard of: say what they stand for */
static void attach_translate(const char *dir, const char *const *devices, char *why)
{
	char said[KVD_WHY], *from = said, *at;
	FILE *to;

	memcpy(said, why, sizeof(said));
	at = strstr(said, "; make ");
	if (at && strstr(at, "/.degraded"))
		strcpy(at, "; --degraded goes on without it");
	to = fmemopen(why, KVD_WHY - 1, "w");
	if (!to)
		return;
	while ((at = strstr(from, dir))) {
		fwrite(from, 1, (size_t)(at - from), to);
		from = at + strlen(dir);
		if (*from == '/')
			fputs(devices[strtoul(from + 1, &from, 10)], to);
		else
			from += strspn(from, ": ");
	}
	fputs(from, to);
	fclose(to);
	why[KVD_WHY - 1] = 0;
}

static int attach_directory(const char *dir, bool degraded, struct kvd_pool **out, char *why)
{
	if (degraded)
		return kvd_refuse(why, -EINVAL, "%s: name the members, or put a file .degraded there", dir);
	return kvd_pool_attach(dir, out, why);
}

/* One of those that are looked through at start */
static int attach_named(const char *name, bool degraded, struct kvd_pool **out, char *why)
{
	char dir[PATH_MAX];
	int err;

	if (!kvd_pools_dir)
		return kvd_refuse(why, -ENOENT, "kvctxd has no --pools to look for directory %s in", name);
	if (!*name || *name == '.' ||
	    snprintf(dir, sizeof(dir), "%s/%s", kvd_pools_dir, name) >= (int)sizeof(dir) || !attach_is_directory(dir))
		return kvd_refuse(why, -ENOENT, "kvctxd has no directory %s in %s", name, kvd_pools_dir);
	err = attach_directory(dir, degraded, out, why);
	return err == -ENOENT ? -ENXIO : err;	/* of something in it */
}

int kvd_attach_devices(const char *const *devices, uint32_t nr, bool degraded, struct kvd_pool **out, char *why)
{
	char dir[PATH_MAX];
	int err;

	if (nr == 1 && !strchr(devices[0], '/'))
		return attach_named(devices[0], degraded, out, why);
	for (uint32_t i = 0; i < nr; i++)
		if (*devices[i] != '/')
			return kvd_refuse(why, -EINVAL, "%s: not an absolute path", devices[i]);
		else if (attach_same(devices, i))
			return kvd_refuse(why, -EINVAL, "%s: given twice", devices[i]);
	if (nr == 1 && attach_is_directory(devices[0]))
		return attach_directory(devices[0], degraded, out, why);
	snprintf(dir, sizeof(dir), "%s/" ATTACH_PREFIX "XXXXXX", kvd_run);
	if (!mkdtemp(dir))
		return kvd_refuse(why, -errno, "%s: %s", dir, strerror(errno));
	err = attach_links(dir, devices, nr, degraded);
	if (err)
		kvd_refuse(why, err, "%s: %s", dir, strerror(-err));
	else
		err = kvd_pool_attach(dir, out, why);
	if (err) {
		attach_translate(dir, devices, why);
		attach_remove(dir);
	}
	return err;
}

static bool attach_ours(const char *dir)
{
	const char *slash = strrchr(dir, '/');

	return slash && !strncmp(slash + 1, ATTACH_PREFIX, strlen(ATTACH_PREFIX));
}

void kvd_attach_forget(const char *dir)
{
	if (attach_ours(dir))
		attach_remove(dir);
}

void kvd_attach_forget_all(void)
{
	struct dirent *entry;
	DIR *d = opendir(kvd_run);
	char path[PATH_MAX];

	while (d && (entry = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", kvd_run, entry->d_name);
		kvd_attach_forget(path);
	}
	if (d)
		closedir(d);
}
