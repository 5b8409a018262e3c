// SPDX-License-Identifier: LGPL-2.1-or-later
/* Which members a memory reaches, and why not. */
#include <inttypes.h>
#include <stdio.h>

#include "handle.h"

int kvctx_paths(struct kvctx *ctx, uint32_t mem, struct kvctx_path *paths, uint32_t nr)
{
	struct kvctx_paths arg = {
		.size = sizeof(arg),
		.mem = mem,
		.nr = paths ? nr : 0,
		.paths = (uintptr_t)paths,
	};
	int ret = kvctx_sys_ioctl(ctx->file, KVCTX_IOC_PATHS, &arg);

	return ret ? ret : (int)arg.nr;
}

int kvctx_path_text(const struct kvctx_path *p, char *buf, size_t len)
{
	int device = (int)strnlen(p->device, sizeof(p->device));
	int peer = (int)strnlen(p->peer, sizeof(p->peer));

	switch (p->reason) {
	case KVCTX_PATH_DIRECT:
		if (!peer)
			return snprintf(buf, len, "%.*s: host memory", device, p->device);
		return snprintf(buf, len, "%.*s: direct from %.*s, %" PRId32 " hops", device, p->device, peer,
				p->peer, p->distance);
	case KVCTX_PATH_NO_QUEUE:
		return snprintf(buf, len, "%.*s: takes no peer memory, as NVMe/TCP", device, p->device);
	case KVCTX_PATH_NO_ROUTE:
		return snprintf(buf, len, "%.*s: no common switch with %.*s", peer, p->peer, device, p->device);
	case KVCTX_PATH_NO_PCI:
		return snprintf(buf, len, "%.*s: not a PCI device", device, p->device);
	case KVCTX_PATH_GONE:
		return snprintf(buf, len, "%.*s: its driver has let go of it", peer, p->peer);
	}
	return snprintf(buf, len, "%.*s: no path from %.*s, reason %" PRIu32, device, p->device, peer, p->peer,
			p->reason);
}
