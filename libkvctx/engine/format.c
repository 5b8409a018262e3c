// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The superblocks of a new pool.
 *
 * Three steps: clear what identifies the old content of every place, make that durable, write all superblock slots of
 * all members, at both ends. If one fails, or cannot be made durable, the ends of all places that were begun are cleared
 * again, so that none looks like a member of a pool that does not exist.
 *
 * Old pages need no clearing: they carry the old pool's UUID.
 */
#include <sys/random.h>
#include <unistd.h>

#include "format.h"

#define FORMAT_CLEAR		KVC_DATA_OFFSET		/* superblocks and whatever stood there before */
#define FORMAT_TENANT_MODE	0600

int kve_read_all(int fd, void *buf, size_t len, u64 offset)
{
	while (len) {
		ssize_t n = pread(fd, buf, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		buf = (char *)buf + n;
		len -= (size_t)n;
		offset += (u64)n;
	}
	return 0;
}

int kve_write_all(int fd, const void *buf, size_t len, u64 offset)
{
	while (len) {
		ssize_t n = pwrite(fd, buf, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		buf = (const char *)buf + n;
		len -= (size_t)n;
		offset += (u64)n;
	}
	return 0;
}

/* Random, version 4 */
static int format_uuid(u8 uuid[KVC_UUID_LEN])
{
	if (getrandom(uuid, KVC_UUID_LEN, 0) != KVC_UUID_LEN)
		return -errno;
	uuid[6] = (u8)((uuid[6] & 0x0f) | 0x40);
	uuid[8] = (u8)((uuid[8] & 0x3f) | 0x80);
	return 0;
}

int kve_format_describe(struct kve_format *f)
{
	struct kvc_super *s = f->super;
	struct kvc_super_tenant *t = &s->tenants[0];
	int err = format_uuid(s->pool_uuid);
	u32 i;

	s->nr_members = f->nr;
	for (i = 0; i < f->nr && !err; i++) {
		s->members[i].nr_segments = kvc_device_segments(f->place[i].bytes, s->segment_size);
		err = format_uuid(s->members[i].uuid);
	}
	strcpy(t->name, "default");
	t->flags = KVC_TENANT_USED;
	t->mode = FORMAT_TENANT_MODE;
	s->settings.discard_rate = KVC_DISCARD_DEFAULT;
	return err ?: kvc_super_check(s) == KVC_OK ? 0 : -EINVAL;
}

static int format_error(struct kve_format *f, u32 i, const char *doing, int err)
{
	if (err) {
		f->at = i;
		f->doing = doing;
	}
	return err;
}

static int format_clear_ends(struct kve_format *f, u32 i)
{
	const struct kve_place *p = &f->place[i];

	memset(f->buf, 0, FORMAT_CLEAR);
	return kve_write_all(p->fd, f->buf, FORMAT_CLEAR, 0) ?:
	       kve_write_all(p->fd, f->buf, KVC_TAIL_BYTES,
			     kvc_super_offset(KVC_SUPER_SLOTS / KVC_SUPER_COPIES, p->bytes));
}

static int format_sync(struct kve_format *f)
{
	int err = 0;
	u32 i;

	for (i = 0; i < f->nr && !err; i++)
		err = format_error(f, i, "cannot make it durable", fsync(f->place[i].fd) ? -errno : 0);
	return err;
}

static int format_clear(struct kve_format *f)
{
	int err = 0;
	u32 i;

	f->begun = 0;
	for (i = 0; i < f->nr && !err; i++) {
		f->begun = i + 1;
		if (f->wipe)
			err = format_error(f, i, f->doing, f->wipe(f, i));
		if (!err)
			err = format_error(f, i, "cannot write", format_clear_ends(f, i));
	}
	return err ?: format_sync(f);
}

static int format_super(struct kve_format *f, u32 i)
{
	const struct kve_place *p = &f->place[i];
	int err = 0;
	u32 copy;

	kvc_super_encode(f->super, i, f->buf);
	for (copy = 0; copy < KVC_SUPER_COPIES && !err; copy++)
		err = kve_write_all(p->fd, f->buf, KVC_SUPER_BYTES,
				    kvc_super_offset(kvc_super_slot(f->super->seq, copy), p->bytes));
	return format_error(f, i, "cannot write", err);
}

static int format_supers(struct kve_format *f)
{
	int err = 0;
	u32 i;

	for (f->super->seq = 1; f->super->seq <= KVC_SUPER_SLOTS / KVC_SUPER_COPIES; f->super->seq++)
		for (i = 0; i < f->nr && !err; i++)
			err = format_super(f, i);
	return err ?: format_sync(f);
}

/* Every place that was begun, whatever the others say */
static void format_take_back(struct kve_format *f)
{
	u32 i;

	for (i = 0; i < f->begun; i++)
		if (format_clear_ends(f, i) || fsync(f->place[i].fd))
			f->tainted |= BIT_ULL(i);
}

static int format_with_buffer(struct kve_format *f, bool supers)
{
	int err;

	f->tainted = 0;
	f->buf = malloc(FORMAT_CLEAR);
	if (!f->buf)
		return format_error(f, 0, "cannot write", -ENOMEM);
	err = format_clear(f);
	if (!err && supers)
		err = format_supers(f);
	if (err && supers)
		format_take_back(f);
	free(f->buf);
	return err;
}

int kve_format_clear(struct kve_format *f)
{
	return format_with_buffer(f, false);
}

int kve_format_write(struct kve_format *f)
{
	return format_with_buffer(f, true);
}
