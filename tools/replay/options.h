/* SPDX-License-Identifier: GPL-2.0 */
/* The command line. */
#ifndef KVCTX_REPLAY_OPTIONS_H
#define KVCTX_REPLAY_OPTIONS_H

#include "workload.h"

#define EXIT_NO_DEVICE		3	/* no device, or no permission */

struct options {
	struct workload workload;
	const char *device;	/* NULL: only write the trace */
	const char *dump_trace;
	uint64_t page_size;	/* bytes */
	uint64_t depth;		/* pages in flight */
	uint64_t arena;		/* bytes of pinned memory to stay within */
	uint64_t lease_ms;
	uint64_t stall_s;	/* seconds without a completion after which to give up */
	bool verify;
};

/* Into @o, which is zero; what is wrong ends the program, as --help does */
void options_parse(struct options *o, int argc, char **argv);

#endif
