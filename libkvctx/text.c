// SPDX-License-Identifier: LGPL-2.1-or-later
/* Words for numbers. */
#include <inttypes.h>
#include <stdio.h>

#include "handle.h"

static const struct {
	int err;
	const char *text;
} errors[] = {
	{ ENOENT, "not here: no such page, or no such node" },
	{ EBADMSG, "the page failed verification and was dropped" },
	{ EIO, "the member failed this transfer" },
	{ ENODEV, "the member, the whole pool, or the peer, is gone" },
	{ ETIME, "the time limit passed" },
	{ EREMOTEIO, "no peer-to-peer path between this memory and this member" },
	{ EDQUOT, "the tenant is at its limit" },
	{ ENOSPC, "nothing can be evicted, too many leases, or no slot is free" },
	{ EAGAIN, "no room now, try again" },
	{ EMSGSIZE, "scatter list and byte range differ in length" },
	{ ERANGE, "the byte range ends behind the page's end" },
	{ E2BIG, "page too long, too many segments, or a structure newer than the module" },
	{ EACCES, "the session is read-only, or permission for the node is missing" },
	{ EPERM, "the tenant requires verified pages, and this would not verify" },
	{ EILSEQ, "the bytes do not have the CRCs that came with them" },
	{ ECANCELED, "cancelled before it was started" },
	{ EINVAL, "invalid argument" },
	{ EFAULT, "memory that cannot be read or written, or a segment that leaves its memory" },
	{ EOPNOTSUPP, "not served: the session has no slots, or the page no CRCs" },
	{ ENOMEM, "out of memory, or over RLIMIT_MEMLOCK" },
	{ EBADFD, "the session was not set up" },
	{ EEXIST, "the session was set up before" },
	{ EBUSY, "operations in flight, or another process, use it" },
	{ EMEDIUMTYPE, "something in the pool's directory is no member of the pool" },
	{ EUCLEAN, "a member of the pool is damaged or missing" },
	{ EFBIG, "larger than the files that this process may write" },
	{ EINTR, "a signal came" },
	{ ENOTTY, "not a node of kvctx, or a call that the module does not know" },
	{ EPROTO, "the module speaks another version of the ABI" },
};

const char *kvctx_strerror(int res)
{
	size_t i;

	if (res >= 0)
		return "success";
	for (i = 0; i < ARRAY_SIZE(errors); i++)
		if (errors[i].err == -res)
			return errors[i].text;
	return "an error without a meaning in kvctx";
}

static const char * const flag_names[] = {
	"VERIFIED", "P2P", "STAGED", "DEDUP", "FROM_DRAM", "PENDING", "UNADMITTED",
};

#define KNOWN_FLAGS	((1U << ARRAY_SIZE(flag_names)) - 1)

static int append(char *buf, size_t len, int at, const char *divider, const char *text)
{
	size_t used = (size_t)at < len ? (size_t)at : len;

	return at + snprintf(len ? buf + used : NULL, len - used, "%s%s", divider, text);
}

int kvctx_cqe_flags_str(uint32_t flags, char *buf, size_t len)
{
	char rest[sizeof("0xffffffff")];
	int n = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(flag_names); i++)
		if (flags & (1U << i))
			n = append(buf, len, n, n ? "|" : "", flag_names[i]);
	if (flags & ~KNOWN_FLAGS) {
		snprintf(rest, sizeof(rest), "0x%" PRIx32, flags & ~KNOWN_FLAGS);
		n = append(buf, len, n, n ? "|" : "", rest);
	}
	return n ? n : append(buf, len, 0, "", "-");
}

const char *kvctx_version(void)
{
	return KVCTX_VERSION;
}
