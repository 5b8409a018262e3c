// SPDX-License-Identifier: GPL-2.0
/* new_pool DIR MIB: make a pool of that many MiB, for pages of up to 128 MiB, to be served in a process. */
#include <stdio.h>
#include <stdlib.h>

#include "kvctx.h"

static void tell(void *arg, int priority, const char *text)
{
	(void)priority;
	fprintf(arg, "new_pool: %s\n", text);
}

int main(int argc, char **argv)
{
	struct kvctx_pool_params p = { .size = sizeof(p), .segment_bytes = 128 << 20 };
	int err;

	if (argc != 3)
		return 2;
	kvctx_set_log(tell, stderr);
	p.bytes = strtoull(argv[2], NULL, 0) << 20;
	err = kvctx_pool_create(argv[1], &p);
	if (err)
		fprintf(stderr, "new_pool: %s: %s\n", argv[1], kvctx_strerror(err));
	return !!err;
}
