// SPDX-License-Identifier: GPL-2.0
/*
 * pool rejoin: members that were lost return while the pool is in service.
 *
 * The module looks at what a device holds, and takes it for what it is. Without devices those are looked for that are
 * members of the pool which it has lost; and again after each round in which one has returned, as another may have
 * come meanwhile.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nl.h"
#include "out.h"
#include "scan.h"

static int rejoin_device(struct ctl *c, const char *device)
{
	char *path = path_absolute(device);
	struct nl_request rq = { .cmd = KVCTX_CMD_POOL_REJOIN, .pool = c->args[0], .devices = &path, .nr_devices = 1 };
	struct json_object *none = out_array();
	int status = CTL_FAILED;

	if (path)
		status = nl_request(c, &rq, none);
	else
		ctl_command_error(c, "%s", strerror(errno));
	if (!status && !c->json)
		printf("%s is back in pool %s.\n", path, c->args[0]);
	json_object_put(none);
	free(path);
	return status;
}

static const struct found *rejoin_pool(const struct scan *s, const char *name)
{
	for (u32 i = 0; i < s->nr_pools; i++)
		if (s->pool[i].state == FOUND_ATTACHED && scan_is_called(s->pool[i].super, name))
			return &s->pool[i];
	return NULL;
}

/*
 * The device that the member had, if that is there, or another one; NULL: none. What kvctxd serves need not be a block
 * device, and keeps its name.
 */
static const char *rejoin_path(const struct scan *s, const struct found *p, struct json_object *m)
{
	u32 index = (u32)out_get_number(m, "index");
	const char *had = out_get_text(m, "device");

	if (!s)
		return had;
	for (u32 i = 0; p && i < s->nr && had; i++)
		if (scan_of_pool(&s->find[i], p) && s->find[i].super->member_index == index && !strcmp(s->find[i].path, had))
			return had;
	return p && p->member[index] ? p->member[index]->path : NULL;
}

/* One round: every lost member whose device is there. @s: NULL, of kvctxd's. @nr: how many returned; @lost: how many not */
static int rejoin_round(struct ctl *c, struct json_object *attached, const struct scan *s, u32 *nr, u32 *lost)
{
	struct json_object *pool = scan_attached_as(attached, c->args[0]), *members = out_get(pool, "members");
	const struct found *p = s ? rejoin_pool(s, c->args[0]) : NULL;
	int status = CTL_OK;

	*nr = *lost = 0;
	if (!pool) {
		ctl_error(c->args[0], "no pool of this name is attached");
		return CTL_NODEV;
	}
	for (size_t i = 0; i < json_object_array_length(members); i++) {
		struct json_object *m = json_object_array_get_idx(members, i);
		const char *path;
		int one;

		if (strcmp(out_get_text(m, "state"), "failed"))
			continue;
		++*lost;
		path = rejoin_path(s, p, m);
		if (!path)
			continue;
		one = rejoin_device(c, path);
		status = status ?: one;
		*nr += !one;
		*lost -= !one;
	}
	return status;
}

/* As rejoin_round(), with what is there now */
static int rejoin_look(struct ctl *c, u32 *nr, u32 *lost)
{
	struct json_object *attached;
	struct scan s;
	int status;

	if (nl_socket_path(c)) {
		attached = scan_attached(c, &status);
		status = attached ? rejoin_round(c, attached, NULL, nr, lost) : status;
		json_object_put(attached);
		return status;
	}
	status = scan_start_for(&s, c, c->args[0]);
	status = status ?: rejoin_round(c, s.attached, &s, nr, lost);
	scan_end(&s);
	return status;
}

/* What was refused may not be after another one has returned, so what the last round says counts. */
static int rejoin_found(struct ctl *c)
{
	u32 nr, lost, all = 0, rounds = 0;
	int status;

	do {
		nr = lost = 0;
		status = rejoin_look(c, &nr, &lost);
		all += nr;
	} while (nr && lost && ++rounds < KVC_MEMBERS_MAX);
	if (!status && lost)
		ctl_error(c->args[0], "of %u lost member%s no device is there", lost, lost == 1 ? "" : "s");
	else if (!status && !all && !c->json)
		printf("Pool %s has lost no member.\n", c->args[0]);
	return status ?: lost && !all ? CTL_NODEV : CTL_OK;
}

int cmd_pool_rejoin(struct ctl *c)
{
	int status = CTL_OK;

	if (c->nr_args == 1)
		status = rejoin_found(c);
	for (int i = 1; i < c->nr_args && !status; i++)
		status = rejoin_device(c, c->args[i]);
	return status || !c->json ? status : cmd_pool_show(c);
}
