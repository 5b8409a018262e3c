// SPDX-License-Identifier: GPL-2.0
/*
 * pool format: makes the devices of a new pool members of it, or files that it creates for that.
 *
 * All devices are opened and checked before one is written; libkvctx/engine/format.c writes, and takes back what it
 * wrote if not all of it can be. A file is created with all its space, and gets its name when it is a member: whatever
 * goes wrong before leaves nothing. --dry-run is all of that but the writing: its files had their space, too.
 */
#include <errno.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../../libkvctx/engine/format.h"
#include "media.h"
#include "out.h"

#define HELD_TEXT	(SIGNATURE_TEXT + 64)

struct format {
	const struct ctl *c;
	struct media *dev;
	char (*held)[HELD_TEXT];	/* of each device: what it held; empty: nothing that is known */
	struct kve_format new;
};

/* Those being created; static, as a signal may come */
static struct kve_file files[KVC_MEMBERS_MAX];
static int nr_files;

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
	f->new.super->segment_size = s;
	f->new.super->chunk_size = (u32)n;
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

/* A new file has no name yet. */
static int create_file(struct media *d, const char *path, u64 size)
{
	struct kve_file *file = &files[nr_files++];
	int err = kve_file_begin(file, path, size);

	*d = (struct media){ .path = path, .fd = -1, .size = size };
	if (err == -EEXIST)
		ctl_error(path, "is there already; without --size it is formatted as it is");
	else if (err)
		ctl_error(path, "cannot be created: %s", err == -ENOENT ? "there is no such directory" : strerror(-err));
	if (err)
		return ctl_status_of(-err);
	d->fd = dup(file->fd);
	return d->fd < 0 || fstat(d->fd, &d->st) ? failed(d, "cannot be created", errno) : CTL_OK;
}

static int check_size(const struct format *f, const struct media *d)
{
	u64 segment = f->new.super->segment_size;
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

/* What is in use may be so by ourselves. */
static int open_device(struct format *f, int i, const char *path)
{
	struct media *d = &f->dev[i];
	int err = media_try_open(d, path, MEDIA_WRITE), status = CTL_OK;
	char why[MEDIA_WHY];

	if (!err || err == EBUSY)
		status = check_twice(f, i);
	if (!err || status)
		return status;
	media_why(err, why);
	ctl_error(path, "%s", why);
	return ctl_status_of(err);
}

/* The superblock of an older pool, or of what looks like one */
static void note_member(const struct media *d, char held[HELD_TEXT])
{
	for (u32 slot = 0; slot < KVC_SUPER_SLOTS && !*held; slot++) {
		if (d->err[slot] || d->why[slot] == KVC_BAD_MAGIC)
			continue;
		if (d->why[slot] == KVC_OK)
			snprintf(held, HELD_TEXT, "member of the pool %s", d->super[slot].pool_name);
		else
			snprintf(held, HELD_TEXT, "member of a pool (%s)", kvc_reason_str(d->why[slot]));
	}
}

static int note_signatures(const struct media *d, char held[HELD_TEXT])
{
	size_t used = strlen(held);
	char what[SIGNATURE_TEXT];
	int err = signature_find(d, what);

	if (!err && *what)
		snprintf(held + used, HELD_TEXT - used, "%s%s", used ? ", " : "", what);
	return err;
}

/* What the device holds, as far as that can be told: with --force it is no reason, nor is what cannot */
static int check_held(const struct format *f, struct media *d, char held[HELD_TEXT])
{
	bool force = f->c->opt[OPT_FORCE].set;
	int err = media_try_supers(d);

	if (err)
		return failed(d, "cannot read its superblocks", err);
	for (u32 slot = 0; slot < KVC_SUPER_SLOTS && !force; slot++)
		if (d->err[slot])
			return failed(d, "cannot read", d->err[slot]);
	note_member(d, held);
	err = note_signatures(d, held);
	if (force)
		return CTL_OK;
	if (err)
		return failed(d, "cannot look for signatures", err);
	if (*held)
		ctl_error(d->path, "holds something (%s); --force formats it anyway", held);
	return *held ? CTL_FAILED : CTL_OK;
}

/* A member has only so many segments: no error, but nobody should find out later */
static void tell_unused(const struct format *f, const struct media *d)
{
	u64 segment = f->new.super->segment_size;
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
	const struct ctl_value *size = &f->c->opt[OPT_SIZE];
	struct media *d = &f->dev[i];
	int status = size->set ? create_file(d, path, size->num) : open_device(f, i, path);

	status = status ?: check_size(f, d);
	if (!status && !size->set)
		status = check_held(f, d, f->held[i]);
	if (!status)
		tell_unused(f, d);
	return status;
}

static int wipe_signatures(struct kve_format *new, u32 i)
{
	const struct format *f = new->owner;

	new->doing = "cannot wipe its signatures";
	return -signature_wipe(&f->dev[i]);
}

/* Where a device is to be written, now that all were checked */
static void set_places(struct format *f)
{
	for (u32 i = 0; i < f->new.nr; i++)
		f->new.place[i] = (struct kve_place){ f->dev[i].fd, f->dev[i].size };
	f->new.owner = f;
	f->new.wipe = f->c->opt[OPT_FORCE].set ? wipe_signatures : NULL;
}

static int tell_failure(const struct format *f, int err)
{
	int status = failed(&f->dev[f->new.at], f->new.doing, -err);

	for (u32 i = 0; i < f->new.nr; i++)
		if (f->new.tainted & 1ULL << i)
			ctl_error(f->dev[i].path, "may still hold a superblock of the pool that was not made");
	return status;
}

static int describe(struct format *f)
{
	struct kvc_super *s = f->new.super;
	int err;

	set_places(f);
	snprintf(s->pool_name, sizeof(s->pool_name), "%s", f->c->args[0]);
	err = kve_format_describe(&f->new);
	if (!err)
		return CTL_OK;
	ctl_command_error(f->c, "%s", err == -EINVAL ? kvc_reason_str(kvc_super_check(s)) : strerror(-err));
	return CTL_FAILED;
}

/* The files get their names, or none does. */
static int publish_files(const struct format *f)
{
	int i, err = 0;

	for (i = 0; i < nr_files && !err; i++)
		err = kve_file_publish(&files[i]);
	if (!err)
		return CTL_OK;
	failed(&f->dev[i - 1], "cannot get its name", -err);
	while (--i > 0)
		unlink(files[i - 1].path);
	return ctl_status_of(-err);
}

/* Not to be interrupted half-way */
static int write_pool(struct format *f)
{
	sigset_t all, before;
	int err, status;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	err = kve_format_write(&f->new);
	status = err ? tell_failure(f, err) : publish_files(f);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return status;
}

/* A file that has a name before it is finished, as some file systems want it, goes when the tool does. */
static void drop_files(void)
{
	while (nr_files)
		kve_file_drop(&files[--nr_files]);
}

static void interrupted(int sig)
{
	for (int i = 0; i < nr_files; i++)
		if (files[i].temp)
			unlink(files[i].temp);
	raise(sig);
}

static void clean_up_at_signals(void)
{
	struct sigaction sa = { .sa_handler = interrupted, .sa_flags = (int)SA_RESETHAND | SA_NODEFER };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
}

static void add_uuid(const struct format *f, struct json_object *o, const u8 *uuid)
{
	/* Another one the next time */
	if (!f->c->opt[OPT_DRY_RUN].set)
		out_uuid(o, "uuid", uuid);
}

static struct json_object *pool_json(const struct format *f)
{
	const struct kvc_super *s = f->new.super;
	struct json_object *pool = out_object(), *members = out_array();
	u64 segments = 0;

	out_text(pool, "name", s->pool_name);
	add_uuid(f, pool, s->pool_uuid);
	out_number(pool, "segment_size", s->segment_size);
	out_number(pool, "chunk_size", s->chunk_size);
	for (u32 i = 0; i < s->nr_members; i++) {
		struct json_object *m = out_object();

		out_number(m, "index", i);
		out_text(m, "device", f->dev[i].path);
		add_uuid(f, m, s->members[i].uuid);
		out_number(m, "size", s->members[i].nr_segments * s->segment_size);
		out_number(m, "segments", s->members[i].nr_segments);
		if (*f->held[i])
			out_text(m, "held", f->held[i]);
		out_append(members, m);
		segments += s->members[i].nr_segments;
	}
	out_number(pool, "segments", segments);
	out_number(pool, "capacity", segments * s->segment_size);
	out_add(pool, "members", members);
	return pool;
}

static void put_text(const struct format *f, struct json_object *pool)
{
	bool dry = f->c->opt[OPT_DRY_RUN].set;
	char segment[32], capacity[32];

	out_size_text(f->new.super->segment_size, segment, sizeof(segment));
	out_size_text(out_get_number(pool, "capacity"), capacity, sizeof(capacity));
	printf("Pool %s %s: %u member%s, %llu segments of %s, %s.\n", f->new.super->pool_name,
	       dry ? "would be formatted" : "formatted", f->new.nr, f->new.nr == 1 ? "" : "s",
	       (unsigned long long)out_get_number(pool, "segments"), segment, capacity);
	for (u32 i = 0; i < f->new.nr; i++)
		if (*f->held[i])
			printf("%s: what it %s: %s.\n", f->dev[i].path, dry ? "holds would be lost" : "held is lost",
			       f->held[i]);
	if (dry)
		puts("Nothing was written.");
}

static void report(const struct format *f)
{
	struct json_object *root = out_root(), *pool = pool_json(f);

	out_add(root, "pool", pool);
	if (f->c->opt[OPT_DRY_RUN].set)
		out_bool(root, "dry_run", true);
	if (f->c->json)
		out_json(root);
	else
		put_text(f, pool);
	json_object_put(root);
}

static int format(struct format *f)
{
	int status = set_sizes(f);

	if (f->c->opt[OPT_SIZE].set)
		clean_up_at_signals();
	for (u32 i = 0; i < f->new.nr && !status; i++)
		status = check_device(f, (int)i, f->c->args[i + 1]);
	status = status ?: describe(f);
	if (!status && !f->c->opt[OPT_DRY_RUN].set)
		status = write_pool(f);
	if (!status)
		report(f);
	return status;
}

int cmd_pool_format(struct ctl *c)
{
	struct format f = { .c = c, .new.nr = (u32)c->nr_args - 1 };
	int status = CTL_FAILED;

	if (f.new.nr > KVC_MEMBERS_MAX) {
		ctl_command_error(c, "a pool has at most %d devices", KVC_MEMBERS_MAX);
		return CTL_USAGE;
	}
	f.dev = calloc(f.new.nr, sizeof(*f.dev));
	f.held = calloc(f.new.nr, sizeof(*f.held));
	f.new.super = calloc(1, sizeof(*f.new.super));
	for (u32 i = 0; f.dev && i < f.new.nr; i++)
		f.dev[i].fd = -1;
	if (f.dev && f.held && f.new.super)
		status = format(&f);
	else
		ctl_command_error(c, "%s", strerror(ENOMEM));
	for (u32 i = 0; f.dev && i < f.new.nr; i++)
		media_close(&f.dev[i]);
	drop_files();
	free(f.new.super);
	free(f.held);
	free(f.dev);
	return status;
}

/* For a device that becomes a member of an attached pool: the checks of format, then its ends are cleared. */
int format_clear_device(struct ctl *c, const char *path, uint64_t segment_size)
{
	struct media d = { .fd = -1 };
	char held[1][HELD_TEXT] = { "" };
	struct format f = { .c = c, .new.nr = 1, .dev = &d, .held = held };
	int status = CTL_FAILED, err;

	f.new.super = calloc(1, sizeof(*f.new.super));
	if (f.new.super) {
		f.new.super->segment_size = segment_size;
		status = check_device(&f, 0, path);
	} else {
		ctl_command_error(c, "%s", strerror(ENOMEM));
	}
	if (!status) {
		set_places(&f);
		err = kve_format_clear(&f.new);
		status = err ? tell_failure(&f, err) : CTL_OK;
	}
	media_close(&d);
	free(f.new.super);
	return status;
}
