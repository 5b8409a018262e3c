// SPDX-License-Identifier: GPL-2.0
/*
 * Devices opened, their superblocks read. See media.h.
 *
 * A log ends at the first extent that fails a check. Whether that is where it was written to, or damage, its header
 * tells: one with the pool's UUID, the segment's number, and the generation and salt of extent 0 is a part of the log.
 * Where nothing of the log is left at its end, the blocks behind it are searched for another extent of it, as far as
 * one may be long: if there is one, the extent in between was lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../../kmod/core/media/format_media.h"
#include "../../libkvctx/engine/format.h"
#include "media.h"

#define UDEV_PATIENCE_MS	3000
#define HOLDER_PATIENCE_MS	1000

static int refused(const struct media *d, const char *why)
{
	ctl_error(d->path, "%s", why);
	return CTL_NODEV;
}

/*
 * udev has a lock on a block device while it looks at it, for a moment: that whoever wrote to it has closed it is reason
 * enough. It is shared, so only who wants to write waits.
 */
static int media_lock(const struct media *d, bool block, u32 how)
{
	uint64_t end = ctl_now_ms() + (block && how & MEDIA_WRITE ? UDEV_PATIENCE_MS : 0);

	while (flock(d->fd, (how & MEDIA_WRITE ? LOCK_EX : LOCK_SH) | LOCK_NB)) {
		if (errno != EWOULDBLOCK)
			return errno;
		if (ctl_now_ms() >= end)
			return EBUSY;
		ctl_sleep_ms(20);
	}
	return 0;
}

/*
 * Others may hold a block device for a moment, too, as an attach does while it looks for signatures, and nothing tells that
 * from a mount: only who wants to write waits. A descriptor; -1: errno
 */
static int media_open_node(const char *path, bool block, u32 how)
{
	int flags = (how & MEDIA_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC | (block && !(how & MEDIA_SHARED) ? O_EXCL : 0);
	uint64_t end = ctl_now_ms() + (block && how & MEDIA_WRITE ? HOLDER_PATIENCE_MS : 0);
	int fd;

	while ((fd = open(path, flags)) < 0 && errno == EBUSY && ctl_now_ms() < end)
		ctl_sleep_ms(20);
	return fd;
}

/*
 * O_EXCL on a block device is refused while it is mounted or held by another one, as by a pool that the module has
 * attached. One that is served by a process has a lock, also on files.
 */
int media_try_open(struct media *d, const char *path, u32 how)
{
	bool block;
	int err;

	memset(d, 0, sizeof(*d));
	d->path = path;
	d->fd = -1;
	d->chosen = KVC_SUPER_SLOTS;
	if (stat(path, &d->st))
		return errno;
	block = S_ISBLK(d->st.st_mode);
	if (!block && !S_ISREG(d->st.st_mode))
		return ENOTBLK;
	d->fd = media_open_node(path, block, how);
	if (d->fd < 0)
		return errno;
	/* What was opened counts, not what stood there before */
	if (fstat(d->fd, &d->st) || S_ISBLK(d->st.st_mode) != block)
		return ESTALE;
	err = how & MEDIA_SHARED ? 0 : media_lock(d, block, how);
	if (err)
		return err;
	d->size = (u64)d->st.st_size;
	if (block && ioctl(d->fd, BLKGETSIZE64, &d->size))
		return errno;
	/* The module does not write through the page cache: what is there may be old */
	posix_fadvise(d->fd, 0, 0, POSIX_FADV_DONTNEED);
	return 0;
}

void media_why(int err, char text[MEDIA_WHY])
{
	if (err == EBUSY)
		snprintf(text, MEDIA_WHY, "in use: mounted, part of another device or of an attached pool");
	else if (err == ENOTBLK)
		snprintf(text, MEDIA_WHY, "neither a block device nor a file");
	else if (err == ESTALE)
		snprintf(text, MEDIA_WHY, "changed while it was opened");
	else
		snprintf(text, MEDIA_WHY, "cannot open: %s", strerror(err));
}

int media_open(struct media *d, const char *path, bool force)
{
	int err = media_try_open(d, path, force ? MEDIA_SHARED : 0);
	char why[MEDIA_WHY];

	if (!err)
		return CTL_OK;
	media_why(err, why);
	ctl_error(path, "%s%s", why, err == EBUSY ? "; --force looks at it anyway" : "");
	return CTL_NODEV;
}

u32 media_members(const struct kvc_super *s)
{
	u32 nr = 0;

	for (u32 i = 0; i < s->nr_members; i++)
		nr += !kvc_super_hole(s, i);
	return nr;
}

void media_close(struct media *d)
{
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
	free(d->super);
	d->super = NULL;
}

int media_read(const struct media *d, void *buf, size_t len, u64 offset)
{
	return -kve_read_all(d->fd, buf, len, offset);
}

int media_write(const struct media *d, const void *buf, size_t len, u64 offset)
{
	return -kve_write_all(d->fd, buf, len, offset);
}

bool media_same(const struct media *a, const struct media *b)
{
	if (S_ISBLK(a->st.st_mode) && S_ISBLK(b->st.st_mode))
		return a->st.st_rdev == b->st.st_rdev;
	return a->st.st_dev == b->st.st_dev && a->st.st_ino == b->st.st_ino;
}

int media_try_supers(struct media *d)
{
	u8 *buf = malloc(KVC_SUPER_BYTES);

	d->super = calloc(KVC_SUPER_SLOTS, sizeof(*d->super));
	if (!buf || !d->super) {
		free(buf);
		return ENOMEM;
	}
	for (u32 i = 0; i < KVC_SUPER_SLOTS; i++) {
		d->why[i] = KVC_BAD_MAGIC;
		if (d->size < KVC_DEVICE_MIN)
			continue;
		d->err[i] = media_read(d, buf, KVC_SUPER_BYTES, kvc_super_offset(i, d->size));
		d->why[i] = d->err[i] ? KVC_BAD_CRC : kvc_super_read(buf, i, &d->super[i]);
	}
	d->chosen = kvc_super_choose(d->super, d->why);
	free(buf);
	return 0;
}

int media_read_supers(struct media *d)
{
	int err = media_try_supers(d);

	if (err) {
		ctl_error(d->path, "cannot read its superblocks: %s", strerror(err));
		return CTL_FAILED;
	}
	return d->size < KVC_DEVICE_MIN ? refused(d, "no kvctx superblock, too small for one") : CTL_OK;
}

bool media_has_super(const struct media *d)
{
	for (u32 i = 0; i < KVC_SUPER_SLOTS; i++)
		if (d->why[i] != KVC_BAD_MAGIC)
			return true;
	return false;
}

int media_super_status(const struct media *d, char text[MEDIA_WHY])
{
	enum kvc_reason why = KVC_BAD_MAGIC;

	for (u32 i = 0; i < KVC_SUPER_SLOTS; i++) {
		if (d->err[i]) {
			snprintf(text, MEDIA_WHY, "superblock cannot be read: %s", strerror(d->err[i]));
			return CTL_NODEV;
		}
		if (d->why[i] == KVC_BAD_VERSION || d->why[i] == KVC_BAD_FEATURES) {
			snprintf(text, MEDIA_WHY, "superblock: %s", kvc_reason_str(d->why[i]));
			return CTL_NOSUPP;
		}
		if (d->why[i] != KVC_BAD_MAGIC && why == KVC_BAD_MAGIC)
			why = d->why[i];
	}
	if (why == KVC_BAD_MAGIC) {
		snprintf(text, MEDIA_WHY, "no kvctx superblock");
		return CTL_NODEV;
	}
	snprintf(text, MEDIA_WHY, "superblock damaged: %s", kvc_reason_str(why));
	return CTL_FAILED;
}

int media_no_super(const struct media *d)
{
	char why[MEDIA_WHY];
	int status = media_super_status(d, why);

	ctl_error(d->path, "%s", why);
	return status;
}

void media_log_start(struct media_log *l, const struct media *d, const struct kvc_super *s, u32 member, u32 segment,
		     void *buf)
{
	memset(l, 0, sizeof(*l));
	l->d = d;
	l->buf = buf;
	l->offset = KVC_DATA_OFFSET + segment * s->segment_size;
	l->seg_blocks = (u32)(s->segment_size >> KVC_BLOCK_SHIFT);
	l->chunk = s->chunk_size;
	memcpy(l->id.pool_uuid, s->pool_uuid, KVC_UUID_LEN);
	l->id.member = member;
	l->id.segment = segment;
}

/* Does this block say that an extent of this log begins here? */
static bool is_ours(const struct media_log *l, const void *block, u32 first)
{
	const struct kvc_media_extent *m = block;

	if (le32_to_cpu(m->magic) != KVC_EXTENT_MAGIC || memcmp(m->pool_uuid, l->id.pool_uuid, KVC_UUID_LEN) ||
	    le32_to_cpu(m->member) != l->id.member || le32_to_cpu(m->segment) != l->id.segment ||
	    le32_to_cpu(m->first_block) != first)
		return false;
	return l->nr_extents == 0 ||
	       (le64_to_cpu(m->generation) == l->id.generation && le64_to_cpu(m->salt) == l->id.salt);
}

static bool end_with(struct media_log *l, enum media_end end, enum kvc_reason why, int err)
{
	l->end = end;
	l->why = why;
	l->err = err;
	return false;
}

/* The block at the log's end is in the buffer, and no extent. */
static bool end_here(struct media_log *l, enum kvc_reason why)
{
	u32 from = l->block + 1, nr = min(KVC_EXTENT_MAX >> KVC_BLOCK_SHIFT, l->seg_blocks - from), i;

	if (is_ours(l, l->buf, l->block))
		return end_with(l, END_DAMAGED, why, 0);
	if (l->nr_extents == 0 || media_read(l->d, l->buf, nr * KVC_BLOCK, l->offset + (u64)from * KVC_BLOCK))
		return end_with(l, END_FREE, why, 0);
	for (i = 0; i < nr; i++) {
		if (!is_ours(l, l->buf + i * KVC_BLOCK, from + i))
			continue;
		l->lost = from + i;
		return end_with(l, END_LOST, why, 0);
	}
	return end_with(l, END_FREE, why, 0);
}

bool media_log_next(struct media_log *l)
{
	u64 at;
	enum kvc_reason why;
	int err;

	l->block += l->bytes >> KVC_BLOCK_SHIFT;
	l->bytes = 0;
	if (l->block >= l->seg_blocks)
		return end_with(l, END_FULL, KVC_OK, 0);
	at = l->offset + (u64)l->block * KVC_BLOCK;
	err = media_read(l->d, l->buf, KVC_BLOCK, at);
	if (err)
		return end_with(l, END_DAMAGED, KVC_OK, err);
	why = kvc_extent_peek(l->buf, &l->bytes);
	if (why == KVC_OK && kvc_blocks(l->bytes) > l->seg_blocks - l->block)
		why = KVC_BAD_GEOMETRY;
	if (why == KVC_OK) {
		err = media_read(l->d, l->buf + KVC_BLOCK, l->bytes - KVC_BLOCK, at + KVC_BLOCK);
		if (err)
			return end_with(l, END_DAMAGED, KVC_OK, err);
		why = kvc_extent_open(&l->xr, l->buf, l->bytes, &l->id, l->block, l->seg_blocks, l->chunk);
	}
	if (why != KVC_OK)
		return end_here(l, why);
	l->nr_extents++;
	return true;
}
