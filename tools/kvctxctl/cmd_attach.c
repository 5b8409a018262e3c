// SPDX-License-Identifier: GPL-2.0
/*
 * pool attach: looks at the devices, then the module takes them. A name is kvctxd's to find first, where there is one.
 *
 * Either copy of the superblock is enough for the module, and it writes both anew. A device that was put to another use
 * since may have one of ours left. So what libblkid names as anything else is refused here, before the module sees it.
 * What else there is to refuse the module tells in its own words; a device that is not there, in use or without a
 * superblock is left to it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nl.h"
#include "out.h"
#include "scan.h"

#define LOOK_AGAIN_MS	500

static int attach_foreign(const char *path, const char *what, const struct kvc_super *s)
{
	ctl_error(path, "holds %s now, over a member of pool %s: 'kvctxctl pool destroy %s' erases what is left of the "
		  "pool, or wipefs the other, if it is the pool that counts", what, s->pool_name, path);
	return CTL_FAILED;
}

/* An exit status; what is refused was told */
static int attach_look_at(struct media *d)
{
	char what[SIGNATURE_TEXT];
	int err = media_try_supers(d);

	if (!err && d->chosen == KVC_SUPER_SLOTS)
		return CTL_OK;
	err = err ?: signature_foreign(d, what);
	if (err) {
		ctl_error(d->path, "cannot look for other signatures: %s", strerror(err));
		return ctl_status_of(err);
	}
	return *what ? attach_foreign(d->path, what, &d->super[d->chosen]) : CTL_OK;
}

static int attach_look(const char *path)
{
	struct media d;
	int err = media_try_open(&d, path, 0), status = CTL_OK;

	if (!err) {
		status = attach_look_at(&d);
	} else if (err != EBUSY && err != ENOTBLK && err != ENOENT && err != ENXIO && err != ENODEV) {
		ctl_error(path, "cannot look for other signatures: %s", strerror(err));
		status = ctl_status_of(err);
	}
	media_close(&d);
	return status;
}

static int attach_paths(struct ctl *c, char **paths, int nr)
{
	struct json_object *pools = out_array();
	struct nl_request rq = {
		.cmd = KVCTX_CMD_POOL_ATTACH, .devices = paths, .nr_devices = nr, .object = object_pool,
		.degraded = c->opt[OPT_DEGRADED].set,
	};
	int status = CTL_OK;

	for (int i = 0; i < nr && !status; i++)
		status = attach_look(paths[i]);
	status = status ?: nl_request(c, &rq, pools);
	if (!status)
		return pool_put(c, pools, "Attached.");
	json_object_put(pools);
	return status;
}

/* The devices as given, as paths that hold in every directory */
static int attach_given(struct ctl *c)
{
	char **paths = calloc((size_t)c->nr_args, sizeof(*paths));
	int status = CTL_FAILED, i;

	for (i = 0; paths && i < c->nr_args; i++) {
		paths[i] = path_absolute(c->args[i]);
		if (!paths[i])
			break;
	}
	if (i == c->nr_args)
		status = attach_paths(c, paths, i);
	else
		ctl_command_error(c, "%s", strerror(errno));
	for (i = 0; paths && i < c->nr_args; i++)
		free(paths[i]);
	free(paths);
	return status;
}

/* One path to each member. Without --degraded a member that was put to another use is what the operator has to hear of. */
static int attach_found(struct ctl *c, const struct scan *s, const struct found *p)
{
	char *paths[KVC_MEMBERS_MAX];
	int status = scan_check(s, p), nr = 0;

	for (u32 i = 0; i < s->nr && !status; i++) {
		const struct find *f = &s->find[i];
		const struct find *member = p->member[f->super->member_index];

		if (!scan_of_pool(f, p))
			continue;
		if (f->state == FIND_PATH)
			ctl_error(f->path, "left out: another path to %s", member->path);
		else if (f->state == FIND_FOREIGN && !member && !c->opt[OPT_DEGRADED].set)
			status = attach_foreign(f->path, f->what, f->super);
		else if (f == member)
			paths[nr++] = f->path;
	}
	if (!status && !nr) {
		ctl_error(p->super->pool_name, "none of its members can be attached; 'kvctxctl pool scan' shows them");
		return CTL_FAILED;
	}
	return status ?: attach_paths(c, paths, nr);
}

/* For members that are missing; not for what no other device mends */
static bool attach_waits(const struct scan *s, const char *name)
{
	for (u32 i = 0; i < s->nr_pools; i++)
		if (scan_is_called(s->pool[i].super, name) && s->pool[i].state != FOUND_DEGRADED &&
		    s->pool[i].state != FOUND_UNUSABLE)
			return false;
	return true;
}

/* Who waits for a pool has what he wants when another one has attached it */
static int attach_already(struct ctl *c, struct json_object *pool)
{
	struct json_object *pools = out_array();

	out_append(pools, json_object_get(pool));
	return pool_put(c, pools, "Attached already.");
}

/* kvctxd knows where directories of pools are. CTL_NODEV with @why: there is none of this name */
static int attach_directory(struct ctl *c, char why[REFUSAL_MAX])
{
	struct nl_request rq = {
		.cmd = KVCTX_CMD_POOL_ATTACH, .devices = c->args, .nr_devices = 1, .object = object_pool,
		.degraded = c->opt[OPT_DEGRADED].set, .refusal = why, .refused = ENOENT,
	};
	struct json_object *pools = out_array();
	int status = nl_request(c, &rq, pools);

	if (!status)
		return pool_put(c, pools, "Attached.");
	json_object_put(pools);
	return status;
}

/* The same of who may wait: there is no need to when it is attached */
static int attach_by_daemon(struct ctl *c, char why[REFUSAL_MAX])
{
	struct json_object *attached, *pool;
	int status;

	if (!c->opt[OPT_WAIT].set)
		return attach_directory(c, why);
	attached = scan_attached(c, &status);
	pool = attached ? scan_attached_as(attached, c->args[0]) : NULL;
	if (attached)
		status = pool ? attach_already(c, pool) : attach_directory(c, why);
	json_object_put(attached);
	return status;
}

static int attach_by_name(struct ctl *c)
{
	uint64_t end = ctl_now_ms() + c->opt[OPT_WAIT].num;
	char why[REFUSAL_MAX] = "";
	struct found *p = NULL;
	struct scan s;
	int status;

	if (nl_socket_path(c)) {
		status = attach_by_daemon(c, why);
		if (status != CTL_NODEV || !*why)
			return status;
	}
	while (!(status = scan_start_for(&s, c, c->args[0])) && attach_waits(&s, c->args[0]) && ctl_now_ms() < end) {
		scan_end(&s);
		ctl_sleep_ms(LOOK_AGAIN_MS);
	}
	status = status ?: scan_choose(&s, c->args[0], *why ? why : SCAN_HINT, &p);
	if (!status && c->opt[OPT_WAIT].set && p->state == FOUND_ATTACHED) {
		status = attach_already(c, scan_attached_of(s.attached, p->super));
	} else {
		status = status ?: attach_found(c, &s, p);
	}
	scan_end(&s);
	return status;
}

int cmd_pool_attach(struct ctl *c)
{
	bool by_name;
	int status = scan_by_name(c, &by_name);

	if (!status && c->opt[OPT_WAIT].set && !by_name) {
		ctl_error("--wait", "needs the name of a pool, or its UUID");
		fputs("Try 'kvctxctl pool attach --help'.\n", stderr);
		status = CTL_USAGE;
	}
	if (status)
		return status;
	return by_name ? attach_by_name(c) : attach_given(c);
}
