// SPDX-License-Identifier: GPL-2.0
/*
 * pool attach: looks at the devices, then the module takes them.
 *
 * Either copy of the superblock is enough for the module, and it writes both anew. A device that was put to another use
 * since may have one of ours left. So what libblkid names as anything else is refused here, before the module sees it.
 * What else there is to refuse the module tells in its own words; a device that is not there, in use or without a
 * superblock is left to it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "media.h"
#include "nl.h"
#include "out.h"

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
	if (!*what)
		return CTL_OK;
	ctl_error(d->path, "holds %s now, over a member of pool %s: wipefs erases that, if it is the pool that counts", what,
		  d->super[d->chosen].pool_name);
	return CTL_FAILED;
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

int cmd_pool_attach(struct ctl *c)
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
