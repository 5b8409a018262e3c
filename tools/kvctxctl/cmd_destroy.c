// SPDX-License-Identifier: GPL-2.0
/*
 * pool destroy: erases the superblocks of a pool, so that nothing finds it any more.
 *
 * All devices are opened for ourselves and checked, and the operator has agreed, before the first is written. A slot whose
 * checksum is right is ours as a whole, and zeroed as a whole. Of one that is damaged only the magic is ours for sure,
 * which is enough for it to be none: the rest may be what has been written over it. Nothing else on the device is touched.
 *
 * A device that fails does not stop the others: what was erased is told, and what may be left.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../kmod/core/media/format_media.h"
#include "nl.h"
#include "out.h"
#include "scan.h"

#define MAGIC_BYTES	(sizeof(KVC_SUPER_MAGIC) - 1)

struct destroy {
	const struct ctl *c;
	const struct kvc_super *super;		/* of the pool; NULL: every one that was found is damaged */
	struct media *dev;
	u32 *erased;				/* slots, of each */
	u32 nr;
	u32 members, left;			/* of the pool; and those of them that were not among the devices */
};

static int destroy_refused(const char *path, const char *why, int status)
{
	ctl_error(path, "%s", why);
	return status;
}

/* Any slot may be newer, or attached; which pool the device is of the one that counts tells. */
static int destroy_check(struct destroy *k, const struct media *d, struct json_object *attached)
{
	const struct kvc_super *s = d->chosen < KVC_SUPER_SLOTS ? &d->super[d->chosen] : NULL;

	for (u32 i = 0; i < KVC_SUPER_SLOTS; i++) {
		/* A newer format may have more to erase than we know of */
		if (d->why[i] == KVC_BAD_VERSION || d->why[i] == KVC_BAD_FEATURES)
			return destroy_refused(d->path, kvc_reason_str(d->why[i]), CTL_NOSUPP);
		if (d->why[i] == KVC_OK && scan_attached_of(attached, &d->super[i]))
			return destroy_refused(d->path, "of a pool that is attached", CTL_FAILED);
	}
	if (s && k->super && memcmp(s->pool_uuid, k->super->pool_uuid, KVC_UUID_LEN)) {
		ctl_error(d->path, "of another pool, %s", s->pool_name);
		return CTL_FAILED;
	}
	if (s && (!k->super || s->seq > k->super->seq))
		k->super = s;
	if (media_has_super(d))
		return CTL_OK;
	return destroy_refused(d->path, "no kvctx superblock", CTL_NODEV);
}

/* A device that was given twice is opened once: for the second time we are who uses it */
static bool destroy_has(const struct destroy *k, const struct media *d)
{
	for (u32 i = 0; i < k->nr; i++)
		if (media_same(d, &k->dev[i]))
			return true;
	return false;
}

static int destroy_open(struct destroy *k, const char *path, struct json_object *attached)
{
	struct media *d = &k->dev[k->nr];
	int err = media_try_open(d, path, MEDIA_WRITE);
	char why[MEDIA_WHY];

	if (destroy_has(k, d)) {
		media_close(d);
		return CTL_OK;
	}
	if (err) {
		media_close(d);
		media_why(err, why);
		return destroy_refused(path, why, ctl_status_of(err));
	}
	k->nr++;
	err = media_try_supers(d);
	return err ? destroy_refused(path, strerror(err), CTL_FAILED) : destroy_check(k, d, attached);
}

/* Which members of the pool the devices are not */
static void destroy_count(struct destroy *k)
{
	u64 there = 0;

	for (u32 i = 0; i < k->nr; i++)
		if (k->dev[i].chosen < KVC_SUPER_SLOTS)
			there |= 1ULL << k->dev[i].super[k->dev[i].chosen].member_index;
	for (u32 i = 0; k->super && i < k->super->nr_members; i++) {
		k->members += !kvc_super_hole(k->super, i);
		k->left += !kvc_super_hole(k->super, i) && !(there & 1ULL << i);
	}
}

static int destroy_ask(const struct destroy *k)
{
	char answer[16] = "", uuid[37] = "";

	if (k->c->opt[OPT_FORCE].set)
		return CTL_OK;
	if (!isatty(STDIN_FILENO)) {
		ctl_command_error(k->c, "asks on a terminal, and there is none: --force goes without");
		fputs("Try 'kvctxctl pool destroy --help'.\n", stderr);
		return CTL_USAGE;
	}
	if (k->super)
		ctl_uuid_text(k->super->pool_uuid, uuid);
	fprintf(stderr, "Destroy pool %s %s on", k->super ? k->super->pool_name : "(damaged)", uuid);
	for (u32 i = 0; i < k->nr; i++)
		fprintf(stderr, "%s %s", i ? "," : "", k->dev[i].path);
	fputs("? All its pages are lost. [y/N] ", stderr);
	if (fgets(answer, sizeof(answer), stdin) && (!strcmp(answer, "y\n") || !strcmp(answer, "yes\n")))
		return CTL_OK;
	ctl_command_error(k->c, "not agreed to; nothing was erased");
	return CTL_FAILED;
}

/* 0 or an errno */
static int destroy_slot(const struct media *d, u32 slot, const u8 *zeros)
{
	size_t len = d->why[slot] == KVC_OK ? KVC_SUPER_BYTES : MAGIC_BYTES;

	return media_write(d, zeros, len, kvc_super_offset(slot, d->size));
}

static int destroy_device(struct destroy *k, u32 nr, const u8 *zeros)
{
	const struct media *d = &k->dev[nr];
	int err = 0;

	for (u32 slot = 0; slot < KVC_SUPER_SLOTS; slot++) {
		int e = d->err[slot];

		if (!e && d->why[slot] != KVC_BAD_MAGIC) {
			e = destroy_slot(d, slot, zeros);
			k->erased[nr] += !e;
		}
		err = err ?: e;
	}
	if (fsync(d->fd))
		err = err ?: errno;
	if (err)
		ctl_error(d->path, "may still hold a superblock of the pool: %s", strerror(err));
	return err ? CTL_FAILED : CTL_OK;
}

/* Not to be interrupted half-way */
static int destroy_all(struct destroy *k)
{
	u8 *zeros = calloc(1, KVC_SUPER_BYTES);
	sigset_t all, before;
	int status = CTL_OK;

	if (!zeros)
		return destroy_refused("memory", strerror(ENOMEM), CTL_FAILED);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	for (u32 i = 0; i < k->nr; i++)
		status = destroy_device(k, i, zeros) ?: status;
	sigprocmask(SIG_SETMASK, &before, NULL);
	free(zeros);
	return status;
}

static void destroy_report_text(const struct destroy *k, const char *name)
{
	for (u32 i = 0; i < k->nr; i++)
		printf("%s: %u superblock%s erased\n", k->dev[i].path, k->erased[i], k->erased[i] == 1 ? "" : "s");
	if (k->left)
		printf("Pool %s: %u of %u members not among them.\n", name, k->left, k->members);
	else
		printf("Pool %s destroyed.\n", name);
}

static void destroy_report(const struct destroy *k)
{
	const char *name = k->super ? k->super->pool_name : "(damaged)";
	struct json_object *root, *o, *devices;
	char uuid[37];

	if (!k->c->json) {
		destroy_report_text(k, name);
		return;
	}
	root = out_root();
	o = out_object();
	devices = out_array();
	if (k->super) {
		ctl_uuid_text(k->super->pool_uuid, uuid);
		out_text(o, "pool", name);
		out_text(o, "uuid", uuid);
		out_number(o, "left", k->left);
	}
	for (u32 i = 0; i < k->nr; i++) {
		struct json_object *dev = out_object();

		out_text(dev, "device", k->dev[i].path);
		out_number(dev, "superblocks", k->erased[i]);
		out_append(devices, dev);
	}
	out_add(o, "devices", devices);
	out_add(root, "destroyed", o);
	out_json(root);
	json_object_put(root);
}

/* @super: of the pool that the devices have to be of; NULL: one pool, whichever */
static int destroy(const struct ctl *c, char *const *paths, u32 nr, const struct kvc_super *super,
		   struct json_object *attached)
{
	struct destroy k = { .c = c, .super = super, .dev = calloc(nr, sizeof(*k.dev)), .erased = calloc(nr, sizeof(*k.erased)) };
	int status = k.dev && k.erased ? CTL_OK : destroy_refused("memory", strerror(ENOMEM), CTL_FAILED);

	for (u32 i = 0; i < nr && !status; i++)
		status = destroy_open(&k, paths[i], attached);
	if (!status) {
		destroy_count(&k);
		status = destroy_ask(&k);
	}
	if (!status) {
		status = destroy_all(&k);
		if (!status)
			destroy_report(&k);
	}
	for (u32 i = 0; i < k.nr; i++)
		media_close(&k.dev[i]);
	free(k.erased);
	free(k.dev);
	return status;
}

/* Does the device only show what a member that is there is erased with? So do the disks below it, and another path. */
static bool destroy_spares(const struct found *p, const struct find *f)
{
	if (f->state == FIND_FOREIGN || f->state == FIND_BUSY)
		return p->member[f->super->member_index];
	return f->state == FIND_PATH;
}

/* All devices of the pool */
static int destroy_found(const struct scan *s, const struct found *p)
{
	char **paths = calloc(s->nr, sizeof(*paths));
	int status = paths ? scan_check(s, p) : CTL_FAILED;
	u32 nr = 0;

	for (u32 i = 0; i < s->nr && !status; i++) {
		const struct find *f = &s->find[i];

		if (scan_of_pool(f, p) && !destroy_spares(p, f))
			paths[nr++] = f->path;
	}
	status = status ?: destroy(s->c, paths, nr, p->super, s->attached);
	free(paths);
	return status;
}

static int destroy_by_name(const struct ctl *c)
{
	const char *hint = nl_socket_path(c) ? "of one in a directory, name its members: DIR/member0" : SCAN_HINT;
	struct found *p = NULL;
	struct scan s;
	int status = scan_start(&s, c, NULL, 0);

	status = status ?: scan_choose(&s, c->args[0], hint, &p) ?: destroy_found(&s, p);
	scan_end(&s);
	return status;
}

int cmd_pool_destroy(struct ctl *c)
{
	struct json_object *attached;
	bool by_name;
	int status = scan_by_name(c, &by_name);

	if (status || by_name)
		return status ?: destroy_by_name(c);
	attached = scan_attached(c, &status);
	if (attached)
		status = destroy(c, c->args, (u32)c->nr_args, NULL, attached);
	json_object_put(attached);
	return status;
}
