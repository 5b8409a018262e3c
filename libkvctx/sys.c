// SPDX-License-Identifier: LGPL-2.1-or-later
/* Which server a path is for. */
#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "sys.h"

enum sys_kind {
	SYS_NODE,	/* of the kernel */
	SYS_SOCKET,	/* of a daemon */
	SYS_POOL,	/* a name in a directory that may be a pool's */
	SYS_KINDS
};

/* NULL: not served by this library */
static const struct kvctx_server *const servers[SYS_KINDS] = {
	[SYS_NODE]	= &kvctx_kernel,
	[SYS_SOCKET]	= &kvctx_daemon,
	[SYS_POOL]	= &kve_server,
};

static enum sys_kind sys_kind(mode_t mode)
{
	return S_ISCHR(mode) ? SYS_NODE : S_ISSOCK(mode) ? SYS_SOCKET : SYS_POOL;
}

int kvctx_sys_open(const char *path, int flags, struct kvctx_file **out)
{
	struct stat st = { 0 };
	bool there = !stat(path, &st);
	enum sys_kind kind;
	int ret;

	if (!there && errno != ENOENT)
		return -errno;
	kind = sys_kind(st.st_mode);
	/* a tenant of a pool in a directory is no file there */
	if (kind == SYS_POOL && there)
		ret = -ENOTTY;
	else if (servers[kind])
		ret = servers[kind]->open(path, flags, out);
	else
		ret = kind == SYS_SOCKET ? -EPROTONOSUPPORT : -ENOTTY;
	/* a name that is not there in a directory that is no pool's: as open() would say it */
	return ret == -ENOTTY && !there ? -ENOENT : ret;
}
