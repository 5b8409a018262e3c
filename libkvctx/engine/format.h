/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Making what was no pool into one: files with their space, and the superblocks of a new pool. The library and kvctxctl
 * share it. I/O here goes through the page cache and ends with fsync().
 */
#ifndef KVE_FORMAT_H
#define KVE_FORMAT_H

#include "media/format.h"

/* 0, or -errno. What ends before @len is -EIO */
int kve_read_all(int fd, void *buf, size_t len, u64 offset);
int kve_write_all(int fd, const void *buf, size_t len, u64 offset);

/* A new pool: format.c */
struct kve_format {
	struct kvc_super *super;	/* the caller sets name and sizes, kve_format_describe() all else */
	u32 nr;
	struct kve_place {
		int fd;
		u64 bytes;
	} place[KVC_MEMBERS_MAX];
	/* Before a place is cleared: wipe what else it holds. 0, -errno, with @doing set. NULL: nothing does */
	int (*wipe)(struct kve_format *f, u32 i);
	void *owner;			/* for wipe() */
	/* After a failure */
	u32 at;				/* the place that it happened at */
	const char *doing;		/* what was being done: "cannot write" */
	u64 tainted;			/* those, as bits, that may still look like a member */
	/* private */
	u32 begun;
	u8 *buf;
};

/* UUIDs, members, the tenant "default", settings. 0, -EINVAL (see kvc_super_check()), what getrandom() gives */
int kve_format_describe(struct kve_format *f);
/* Clear what identifies the old content, at both ends of every place, durably. 0, -errno */
int kve_format_clear(struct kve_format *f);
/* The same, then all superblock slots of all members. If it fails no place looks like a member. 0, -errno */
int kve_format_write(struct kve_format *f);

/*
 * A new file: file.c. It has all its space, and gets its name at last, so whatever ends the process before leaves
 * nothing behind; or, where the file system knows no file without a name, one whose name begins with a dot, which the
 * next one to make this file takes over.
 *
 * begin: 0; -EEXIST (something has the name), -EBUSY (another one is making it), -ENOSPC, -EFBIG (RLIMIT_FSIZE), what
 * open() may give. publish: 0, durable with its directory; -EEXIST. drop: of one that was not published; nothing is left.
 */
struct kve_file {
	int fd;
	char *path;			/* its name */
	char *temp;			/* what it is called meanwhile; NULL: nothing */
};

int kve_file_begin(struct kve_file *f, const char *path, u64 bytes);
int kve_file_publish(struct kve_file *f);
void kve_file_drop(struct kve_file *f);
/* Make what happened to the names in the directory of @path durable. 0, -errno */
int kve_sync_directory_of(const char *path);
/*
 * Call @fn for each member that a pool's directory may have: its files and links whose names do not begin with a dot.
 * Directories and the devices in /dev are nobody's members. What @fn has returned when that was not 0, or -errno
 */
int kve_dir_each(const char *dir, int (*fn)(void *arg, const char *path), void *arg);

#endif
