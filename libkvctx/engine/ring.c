// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Rings: which one a session gets.
 */
#include "session.h"

#define RING_VARIABLE	"KVCTX_IO"	/* "threads": do without io_uring */

int kve_ring_open(struct kve_ring **out, u32 entries)
{
	const char *wanted = secure_getenv(RING_VARIABLE);
	int err = -ENOSYS;

	if (!wanted || strcmp(wanted, "threads"))
		err = kve_uring_open(out, entries);
	if (err != -ENOSYS)
		return err;
	if (!wanted)
		kve_log(LOG_NOTICE, "io_uring is not available: transfers are made by threads");
	return kve_iothreads_open(out);
}
