// SPDX-License-Identifier: GPL-2.0
/*
 * pool add, pool remove: members that come and go while the pool is in service.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nl.h"
#include "out.h"

#define WATCH_MS	500

/* The pool as it is now, an array of one; NULL with @status set when that failed */
static struct json_object *get_pool(struct ctl *c, int *status)
{
	struct nl_request rq = { .cmd = KVCTX_CMD_POOL_GET, .pool = c->args[0], .object = object_pool };
	struct json_object *pools = out_array();

	*status = nl_request(c, &rq, pools);
	if (!*status && json_object_array_length(pools) == 1)
		return pools;
	json_object_put(pools);
	*status = *status ?: CTL_FAILED;
	return NULL;
}

/* kvctxd makes it, and gives it its name when it is a member. */
static int add_file(struct ctl *c, char *path)
{
	struct nl_request rq = {
		.cmd = KVCTX_CMD_POOL_ADD, .pool = c->args[0], .devices = &path, .nr_devices = 1,
		.capacity = &c->opt[OPT_SIZE],
	};
	struct json_object *none = out_array();
	int status = nl_request(c, &rq, none);

	json_object_put(none);
	return status;
}

/* Nothing on the device is touched before the kernel has said that it would take it. */
static int add_device(struct ctl *c, char *path)
{
	struct nl_request rq = {
		.cmd = KVCTX_CMD_POOL_ADD, .pool = c->args[0], .devices = &path, .nr_devices = 1, .dry_run = true,
	};
	struct json_object *none = out_array(), *pools;
	int status;

	pools = get_pool(c, &status);
	if (pools)
		status = nl_request(c, &rq, none);
	if (!status)
		status = format_clear_device(c, path, out_get_number(json_object_array_get_idx(pools, 0),
								     "segment_size"));
	rq.dry_run = false;
	if (!status)
		status = nl_request(c, &rq, none);
	json_object_put(pools);
	json_object_put(none);
	return status;
}

static int done(struct ctl *c, const char *text, const char *what)
{
	struct json_object *root = out_root(), *pools;
	int status = CTL_OK;

	if (c->json) {
		pools = get_pool(c, &status);
		if (pools) {
			out_add(root, "pool", json_object_get(json_object_array_get_idx(pools, 0)));
			out_json(root);
		}
		json_object_put(pools);
	} else {
		printf(text, what, c->args[0]);
	}
	json_object_put(root);
	return status;
}

int cmd_pool_add(struct ctl *c)
{
	const bool files = c->opt[OPT_SIZE].set;
	int status = CTL_OK;

	if (files && !nl_socket_path(c)) {
		ctl_command_error(c, "the module takes block devices; --size makes files, for kvctxd (--socket)");
		return CTL_USAGE;
	}
	for (int i = 1; i < c->nr_args && !status; i++) {
		char *path = path_absolute(c->args[i]);

		if (!path) {
			ctl_command_error(c, "%s", strerror(errno));
			return CTL_FAILED;
		}
		status = files ? add_file(c, path) : add_device(c, path);
		if (!status && (!c->json || i == c->nr_args - 1))
			status = done(c, "%s added to pool %s.\n", path);
		free(path);
	}
	return status;
}

/* The member with this number */
static struct json_object *by_number(struct json_object *pools, uint64_t nr)
{
	struct json_object *members = out_get(json_object_array_get_idx(pools, 0), "members"), *m;

	for (size_t i = 0; i < json_object_array_length(members); i++) {
		m = json_object_array_get_idx(members, i);
		if (out_get_number(m, "index") == nr)
			return m;
	}
	return NULL;
}

/* A member by its number, or by the path that it was attached or added with, or what that leads to */
static struct json_object *find_member(struct json_object *pools, const char *what)
{
	struct json_object *members = out_get(json_object_array_get_idx(pools, 0), "members"), *m, *found = NULL;
	char *path = path_absolute(what), *real = realpath(what, NULL), *end;
	uint64_t nr = strtoull(what, &end, 10);

	for (size_t i = 0; path && i < json_object_array_length(members) && !found; i++) {
		const char *device;

		m = json_object_array_get_idx(members, i);
		device = out_get_text(m, "device");
		if (device && (!strcmp(device, path) || (real && !strcmp(device, real))))
			found = m;
	}
	free(path);
	free(real);
	return found || end == what || *end ? found : by_number(pools, nr);
}

/* Until the member is no member any more; tells how much is left whenever that has changed. */
static int watch(struct ctl *c, uint64_t nr)
{
	uint64_t before = UINT64_MAX;
	struct json_object *pools, *m;
	const char *state;
	bool leaving, stuck;
	char left[32];
	int status;

	for (;;) {
		pools = get_pool(c, &status);
		if (!pools)
			return status;
		m = by_number(pools, nr);
		if (m && !c->json && out_get_number(m, "bytes") != before) {
			before = out_get_number(m, "bytes");
			out_size_text(before, left, sizeof(left));
			printf("%s of pages left\n", left);
			fflush(stdout);
		}
		state = m ? out_get_text(m, "state") : NULL;
		leaving = state && !strcmp(state, "leaving");
		stuck = state && !strcmp(state, "stuck");
		json_object_put(pools);
		if (!m)
			return CTL_OK;
		if (stuck) {
			ctl_error(c->args[1], "stays until the next attach: another member was lost");
			return CTL_FAILED;
		}
		if (!leaving) {
			ctl_error(c->args[1], "does not leave any more: the pool was attached again");
			return CTL_FAILED;
		}
		ctl_sleep_ms(WATCH_MS);
	}
}

int cmd_pool_remove(struct ctl *c)
{
	struct nl_request rq = {
		.cmd = KVCTX_CMD_POOL_REMOVE, .pool = c->args[0], .move = !c->opt[OPT_DROP].set,
	};
	struct json_object *none = out_array(), *pools, *m;
	struct ctl_value index = { .set = true };
	int status;

	if (c->opt[OPT_DROP].set && c->opt[OPT_MOVE].set) {
		ctl_command_error(c, "--drop and --move exclude each other");
		json_object_put(none);
		return CTL_USAGE;
	}
	pools = get_pool(c, &status);
	m = pools ? find_member(pools, c->args[1]) : NULL;
	if (pools && !m) {
		ctl_error(c->args[1], "no member of pool %s", c->args[0]);
		status = CTL_NODEV;
	}
	if (m) {
		index.num = out_get_number(m, "index");
		rq.index = &index;
		status = nl_request(c, &rq, none);
	}
	json_object_put(pools);
	json_object_put(none);
	if (!status && !c->opt[OPT_NO_WAIT].set)
		status = watch(c, index.num);
	if (status)
		return status;
	return done(c, c->opt[OPT_NO_WAIT].set ? "%s leaves pool %s.\n" : "%s removed from pool %s.\n", c->args[1]);
}
