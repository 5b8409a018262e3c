// SPDX-License-Identifier: GPL-2.0
/*
 * pool format: writes the superblocks of a new pool.
 *
 * Three steps: open and check all devices; clear what identifies their old content; write all superblock slots, at both
 * ends, of all members. A device is written only after all were checked. If writing fails, or cannot be made durable, the
 * slots of all devices begun are cleared again, so that none looks like a member of a pool that does not exist.
 *
 * Old pages need no clearing: they carry the old pool's UUID.
 */
#include <errno.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "media.h"
#include "out.h"

#define CLEAR_BYTES	KVC_DATA_OFFSET		/* superblocks and whatever stood there before */

struct format {
	const struct ctl *c;
	int nr;
	int begun;			/* devices that may have been written, the first ones */
	struct media *dev;
	struct kvc_super *super;	/* of the new pool */
	u8 *buf;			/* CLEAR_BYTES */
};

static int sizes_usage(const char *option, const char *why)
{
	ctl_error(option, "%s", why);
	fputs("Try 'kvctxctl pool format --help'.\n", stderr);
	return CTL_USAGE;
}

static int set_sizes(struct format *f)
{
	const struct ctl_value *segment = &f->c->opt[OPT_SEGMENT_SIZE], *chunk = &f->c->opt[OPT_CHUNK_SIZE];
	u64 s = segment->set ? segment->num : KVC_SEGMENT_DEFAULT;
	u64 n = chunk->set ? chunk->num : KVC_CHUNK_DEFAULT;

	if (s < KVC_SEGMENT_MIN || s > KVC_SEGMENT_MAX || s % KVC_BLOCK)
		return sizes_usage("--segment-size", "not a multiple of 4K between 256K and 1G");
	if (n < KVC_CHUNK_MIN || n > KVC_CHUNK_MAX || n & (n - 1))
		return sizes_usage("--chunk-size", "not a power of two between 4K and 1M");
	f->super->segment_size = s;
	f->super->chunk_size = (u32)n;
	return CTL_OK;
}

static int failed(const struct media *d, const char *doing, int err)
{
	ctl_error(d->path, "%s: %s", doing, strerror(err));
	return ctl_status_of(err);
}

static int refused(const struct media *d, const char *why)
{
	ctl_error(d->path, "%s", why);
	return CTL_FAILED;
}

static int open_device(struct media *d, const char *path)
{
	int err = media_try_open(d, path, MEDIA_WRITE);
	char why[MEDIA_WHY];

	if (!err)
		return CTL_OK;
	media_why(err, why);
	ctl_error(path, "%s", why);
	return ctl_status_of(err);
}

static int check_size(const struct format *f, const struct media *d)
{
	u64 segment = f->super->segment_size;
	char has[32], needs[32];
	int block = KVC_BLOCK;

	if (S_ISBLK(d->st.st_mode) && ioctl(d->fd, BLKSSZGET, &block))
		return failed(d, "cannot read the size of its blocks", errno);
	if (block > (int)KVC_BLOCK)
		return refused(d, "its blocks are larger than 4 KiB");
	if (kvc_device_segments(d->size, segment))
		return CTL_OK;
	out_size_text(d->size, has, sizeof(has));
	out_size_text(kvc_device_bytes(KVC_SEGMENTS_MIN, segment), needs, sizeof(needs));
	ctl_error(d->path, "too small: has %s, needs %s for %d segments (see --segment-size)", has, needs,
		  KVC_SEGMENTS_MIN);
	return CTL_FAILED;
}

static int check_twice(const struct format *f, int i)
{
	for (int j = 0; j < i; j++) {
		if (!media_same(&f->dev[i], &f->dev[j]))
			continue;
		ctl_error(f->dev[i].path, "the same device as %s", f->dev[j].path);
		return CTL_USAGE;
	}
	return CTL_OK;
}

/* The superblock of an older pool? */
static int check_member(struct media *d)
{
	int status = media_read_supers(d);

	for (u32 slot = 0; slot < KVC_SUPER_SLOTS && !status; slot++) {
		if (d->err[slot])
			return failed(d, "cannot read", d->err[slot]);
		if (d->why[slot] == KVC_BAD_MAGIC)
			continue;
		ctl_error(d->path, d->why[slot] == KVC_OK ? "member of the pool %s; --force formats it anyway" :
							    "member of a pool (%s); --force formats it anyway",
			  d->why[slot] == KVC_OK ? d->super[slot].pool_name : kvc_reason_str(d->why[slot]));
		return CTL_FAILED;
	}
	return status;
}

static int check_signature(const struct media *d)
{
	char what[SIGNATURE_TEXT];
	int err = signature_find(d, what);

	if (err) {
		ctl_error(d->path, "cannot look for signatures: %s", strerror(err));
		return CTL_FAILED;
	}
	if (*what)
		ctl_error(d->path, "holds something (%s); --force formats it anyway", what);
	return *what ? CTL_FAILED : CTL_OK;
}

/* A member has only so many segments: no error, but nobody should find out later */
static void tell_unused(const struct format *f, const struct media *d)
{
	u64 segment = f->super->segment_size;
	u32 nr = kvc_device_segments(d->size, segment);
	char used[32], whole[32];

	if (d->size < kvc_device_bytes(nr, segment) + segment)
		return;
	out_size_text(nr * segment, used, sizeof(used));
	out_size_text(d->size, whole, sizeof(whole));
	ctl_error(d->path, "only %s of %s are used, %u segments; larger ones (--segment-size) use all of it", used,
		  whole, nr);
}

static int check_device(struct format *f, int i, const char *path)
{
	struct media *d = &f->dev[i];
	int status = open_device(d, path) ?: check_twice(f, i) ?: check_size(f, d);

	if (!status && !f->c->opt[OPT_FORCE].set)
		status = check_member(d) ?: check_signature(d);
	if (!status)
		tell_unused(f, d);
	return status;
}

static int write_all(const struct media *d, const void *buf, size_t len, u64 offset)
{
	int err = media_write(d, buf, len, offset);

	return err ? failed(d, "cannot write", err) : CTL_OK;
}

static int wipe_signatures(const struct media *d)
{
	int err = signature_wipe(d);

	if (err)
		ctl_error(d->path, "cannot wipe its signatures: %s", strerror(err));
	return err ? CTL_FAILED : CTL_OK;
}

static int clear_ends(struct format *f, const struct media *d)
{
	memset(f->buf, 0, CLEAR_BYTES);
	return write_all(d, f->buf, CLEAR_BYTES, 0) ?:
	       write_all(d, f->buf, KVC_TAIL_BYTES, kvc_super_offset(KVC_SUPER_SLOTS / KVC_SUPER_COPIES, d->size));
}

static int sync_all(const struct format *f)
{
	for (int i = 0; i < f->nr; i++)
		if (fsync(f->dev[i].fd))
			return failed(&f->dev[i], "cannot make it durable", errno);
	return CTL_OK;
}

static int clear_all(struct format *f)
{
	int status = CTL_OK;

	for (int i = 0; i < f->nr && !status; i++) {
		f->begun = i + 1;
		if (f->c->opt[OPT_FORCE].set)
			status = wipe_signatures(&f->dev[i]);
		status = status ?: clear_ends(f, &f->dev[i]);
	}
	return status ?: sync_all(f);
}

static int write_super(struct format *f, u32 member)
{
	const struct media *d = &f->dev[member];
	int status = CTL_OK;

	kvc_super_encode(f->super, member, f->buf);
	for (u32 copy = 0; copy < KVC_SUPER_COPIES && !status; copy++)
		status = write_all(d, f->buf, KVC_SUPER_BYTES,
				   kvc_super_offset(kvc_super_slot(f->super->seq, copy), d->size));
	return status;
}

static int write_supers(struct format *f)
{
	int status = CTL_OK;

	for (f->super->seq = 1; f->super->seq <= KVC_SUPER_SLOTS / KVC_SUPER_COPIES; f->super->seq++)
		for (int i = 0; i < f->nr && !status; i++)
			status = write_super(f, (u32)i);
	return status ?: sync_all(f);
}

/* After a failure: every device that was begun, whatever the others say */
static void take_back(struct format *f)
{
	for (int i = 0; i < f->begun; i++)
		if (clear_ends(f, &f->dev[i]) || fsync(f->dev[i].fd))
			ctl_error(f->dev[i].path, "may still hold a superblock of the pool that was not made");
}

/* Not to be interrupted half-way */
static int write_pool(struct format *f)
{
	sigset_t all, before;
	int status;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	status = clear_all(f) ?: write_supers(f);
	if (status)
		take_back(f);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return status;
}

static int describe(struct format *f)
{
	struct kvc_super *s = f->super;
	struct kvc_super_tenant *t = &s->tenants[0];
	enum kvc_reason why;
	int err = ctl_uuid_random(s->pool_uuid);

	snprintf(s->pool_name, sizeof(s->pool_name), "%s", f->c->args[0]);
	s->nr_members = (u32)f->nr;
	for (int i = 0; i < f->nr && !err; i++) {
		s->members[i].nr_segments = kvc_device_segments(f->dev[i].size, s->segment_size);
		err = ctl_uuid_random(s->members[i].uuid);
	}
	snprintf(t->name, sizeof(t->name), "default");
	t->flags = KVC_TENANT_USED;
	t->mode = 0600;
	s->settings.discard_rate = KVC_DISCARD_DEFAULT;
	why = kvc_super_check(s);
	if (!err && why == KVC_OK)
		return CTL_OK;
	ctl_command_error(f->c, "%s", err ? strerror(-err) : kvc_reason_str(why));
	return CTL_FAILED;
}

static struct json_object *pool_json(const struct format *f)
{
	const struct kvc_super *s = f->super;
	struct json_object *pool = out_object(), *members = out_array();
	u64 segments = 0;
	char uuid[37];

	ctl_uuid_text(s->pool_uuid, uuid);
	out_text(pool, "name", s->pool_name);
	out_text(pool, "uuid", uuid);
	out_number(pool, "segment_size", s->segment_size);
	out_number(pool, "chunk_size", s->chunk_size);
	for (u32 i = 0; i < s->nr_members; i++) {
		struct json_object *m = out_object();

		ctl_uuid_text(s->members[i].uuid, uuid);
		out_number(m, "index", i);
		out_text(m, "device", f->dev[i].path);
		out_text(m, "uuid", uuid);
		out_number(m, "size", s->members[i].nr_segments * s->segment_size);
		out_number(m, "segments", s->members[i].nr_segments);
		out_append(members, m);
		segments += s->members[i].nr_segments;
	}
	out_number(pool, "segments", segments);
	out_number(pool, "capacity", segments * s->segment_size);
	out_add(pool, "members", members);
	return pool;
}

static void report(const struct format *f)
{
	struct json_object *root = out_root(), *pool = pool_json(f);
	char segment[32], capacity[32];

	out_add(root, "pool", pool);
	out_size_text(f->super->segment_size, segment, sizeof(segment));
	out_size_text(out_get_number(pool, "capacity"), capacity, sizeof(capacity));
	if (f->c->json)
		out_json(root);
	else
		printf("Pool %s formatted: %d member%s, %llu segments of %s, %s.\n", f->super->pool_name, f->nr,
		       f->nr == 1 ? "" : "s", (unsigned long long)out_get_number(pool, "segments"), segment,
		       capacity);
	json_object_put(root);
}

static int format(struct format *f)
{
	int status = set_sizes(f);

	for (int i = 0; i < f->nr && !status; i++) {
		status = check_device(f, i, f->c->args[i + 1]);
	}
	status = status ?: describe(f) ?: write_pool(f);
	if (!status)
		report(f);
	return status;
}

int cmd_pool_format(struct ctl *c)
{
	struct format f = { .c = c, .nr = c->nr_args - 1 };
	int status = CTL_FAILED;

	if (f.nr > KVC_MEMBERS_MAX) {
		ctl_command_error(c, "a pool has at most %d devices", KVC_MEMBERS_MAX);
		return CTL_USAGE;
	}
	f.dev = calloc((size_t)f.nr, sizeof(*f.dev));
	f.super = calloc(1, sizeof(*f.super));
	f.buf = malloc(CLEAR_BYTES);
	for (int i = 0; f.dev && i < f.nr; i++)
		f.dev[i].fd = -1;
	if (f.dev && f.super && f.buf)
		status = format(&f);
	else
		ctl_command_error(c, "%s", strerror(ENOMEM));
	for (int i = 0; f.dev && i < f.nr; i++)
		media_close(&f.dev[i]);
	free(f.buf);
	free(f.super);
	free(f.dev);
	return status;
}

/* For a device that becomes a member of an attached pool: the checks of format, then its ends are cleared. */
int format_clear_device(struct ctl *c, const char *path, uint64_t segment_size)
{
	struct media d = { .fd = -1 };
	struct format f = { .c = c, .nr = 1, .dev = &d };
	int status = CTL_FAILED;

	f.super = calloc(1, sizeof(*f.super));
	f.buf = malloc(CLEAR_BYTES);
	if (f.super && f.buf) {
		f.super->segment_size = segment_size;
		status = check_device(&f, 0, path) ?: clear_all(&f);
	} else {
		ctl_command_error(c, "%s", strerror(ENOMEM));
	}
	media_close(&d);
	free(f.buf);
	free(f.super);
	return status;
}
