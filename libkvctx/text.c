// SPDX-License-Identifier: LGPL-2.1-or-later
/* Words for numbers. */
#include "handle.h"

const char *kvctx_strerror(int res)
{
	switch (res) {
	case -ENOENT: return "page is not here";
	case -EBADMSG: return "page failed verification and was dropped";
	case -EIO: return "the member failed the transfer";
	case -ENODEV: return "the member or the pool is gone";
	case -ETIME: return "the deadline passed";
	case -EREMOTEIO: return "no peer-to-peer path between memory and member";
	case -EDQUOT: return "tenant is over its quota";
	case -ENOSPC: return "nothing can be evicted, or too many leases";
	case -EAGAIN: return "no room yet, try again";
	case -EMSGSIZE: return "scatter list and length differ";
	case -ERANGE: return "range ends behind the page";
	case -E2BIG: return "page too long, too many segments, or a structure too new";
	case -EACCES: return "session is read-only, or no permission for the node";
	case -EINVAL: return "invalid argument";
	case -EFAULT: return "bad address";
	case -EOPNOTSUPP: return "operation not supported";
	case -ENOMEM: return "out of memory, or over RLIMIT_MEMLOCK";
	case -EBADFD: return "session was not set up";
	case -EEXIST: return "session was set up before";
	case -EBUSY: return "in use";
	case -EINTR: return "interrupted by a signal";
	case -ENOTTY: return "not a kvctx node";
	case -EPROTO: return "kernel module speaks another ABI version";
	default: return res < 0 ? "unknown error" : "success";
	}
}

const char *kvctx_version(void)
{
	return KVCTX_VERSION;
}
