// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * kvctx_pool_create(): a pool in one file below a directory.
 *
 * The file gets its name when it is a member already, and durably so: who finds it finds a pool. Several may do this at
 * once; one of them makes it, and all have it.
 */
#include <fcntl.h>
#include <libgen.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "engine.h"
#include "format.h"
#include "kvctx.h"

#define CREATE_MEMBER		"member0"
#define CREATE_SEGMENTS		64U		/* that a small pool has */

/* The superblock that counts of the file or device @path. 0, -EMEDIUMTYPE: none */
static int create_look(const char *path)
{
	struct kvc_super *s = calloc(KVC_SUPER_SLOTS, sizeof(*s));
	enum kvc_reason why[KVC_SUPER_SLOTS];
	u8 *buf = malloc(KVC_SUPER_BYTES);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), err = fd < 0 ? -errno : 0;
	off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	u32 i;

	if (!s || !buf)
		err = -ENOMEM;
	else if (!err && end < (off_t)KVC_DEVICE_MIN)
		err = -EMEDIUMTYPE;
	for (i = 0; i < KVC_SUPER_SLOTS && !err; i++) {
		err = kve_read_all(fd, buf, KVC_SUPER_BYTES, kvc_super_offset(i, (u64)end));
		why[i] = err ? KVC_BAD_CRC : kvc_super_read(buf, i, &s[i]);
	}
	if (!err && kvc_super_choose(s, why) == KVC_SUPER_SLOTS)
		err = -EMEDIUMTYPE;
	if (fd >= 0)
		close(fd);
	free(buf);
	free(s);
	return err;
}

struct look {
	u32 members;
	int foreign;			/* -EMEDIUMTYPE: there is an entry that is none */
};

static int create_look_entry(void *arg, const char *path)
{
	struct look *look = arg;
	int err = create_look(path);

	if (err)
		kve_log(LOG_ERR, "%s: %s", path,
			err == -EMEDIUMTYPE ? "no member of a pool, in the directory of one" : strerror(-err));
	if (err != -EMEDIUMTYPE) {
		look->members += !err;
		return err;
	}
	look->foreign = err;
	return 0;
}

/* Is there a pool? 0: all that an attach would look at are members; -ENOENT: there is nothing for it to look at */
static int create_look_for_pool(const char *dir)
{
	struct look look = { 0 };
	int err = kve_dir_each(dir, create_look_entry, &look);

	if (!err)
		err = look.foreign;
	return err ? err : look.members ? 0 : -ENOENT;
}

/* That of the directory, where a pool may be called so */
static void create_name(struct kvc_super *s, const char *dir)
{
	char *path = realpath(dir, NULL), *base = path ? basename(path) : NULL;

	if (base && kvc_name_ok(base))
		strcpy(s->pool_name, base);
	else
		strcpy(s->pool_name, "kvctx");
	free(path);
}

/* Segments as large as by default, unless the pool would have few of them */
static u64 create_segment_size(u64 bytes)
{
	u64 size = KVC_SEGMENT_DEFAULT;

	while (size > KVC_SEGMENT_MIN && bytes / size < CREATE_SEGMENTS)
		size /= 2;
	return size;
}

static int create_format(int fd, const char *dir, const struct kvctx_pool_params *params)
{
	struct kve_format f = { .nr = 1, .place = { { fd, params->bytes } } };
	int err = -ENOMEM;

	f.super = calloc(1, sizeof(*f.super));
	if (f.super) {
		create_name(f.super, dir);
		f.super->segment_size = params->segment_bytes ?: create_segment_size(params->bytes);
		f.super->chunk_size = params->chunk_bytes ?: KVC_CHUNK_DEFAULT;
		err = kve_format_describe(&f) ?: kve_format_write(&f);
	}
	free(f.super);
	return err;
}

static int create_member(const char *dir, const struct kvctx_pool_params *params)
{
	struct kve_file file;
	char *path;
	int err;

	if (asprintf(&path, "%s/" CREATE_MEMBER, dir) < 0)
		return -ENOMEM;
	err = kve_file_begin(&file, path, params->bytes);
	if (!err) {
		err = create_format(file.fd, dir, params) ?: kve_file_publish(&file);
		kve_file_drop(&file);
	}
	free(path);
	return err;
}

static int create_read_params(const struct kvctx_pool_params *from, struct kvctx_pool_params *p)
{
	const u8 *bytes = (const u8 *)from;
	size_t i;

	if (from->size < sizeof(*p))
		return -EINVAL;
	for (i = sizeof(*p); i < from->size; i++)
		if (bytes[i])
			return -E2BIG;
	*p = *from;
	p->bytes &= ~(u64)(KVC_BLOCK - 1);
	return p->flags || p->reserved ? -EINVAL : 0;
}

KVE_PUBLIC int kvctx_pool_create(const char *dir, const struct kvctx_pool_params *params)
{
	struct kvctx_pool_params p;
	bool made;
	int err = create_read_params(params, &p);

	if (err)
		return err;
	made = !mkdir(dir, 0700);
	if (!made && errno != EEXIST)
		return -errno;
	err = made ? kve_sync_directory_of(dir) ?: -ENOENT : create_look_for_pool(dir);
	if (err == -ENOENT) {
		err = create_member(dir, &p);
		if (err == -EEXIST)
			err = create_look_for_pool(dir);
		if (err)
			kve_log(LOG_ERR, "%s: no pool of %llu bytes can be made: %s", dir, (unsigned long long)p.bytes,
				strerror(-err));
	}
	if (err && made)
		rmdir(dir);
	return err;
}
