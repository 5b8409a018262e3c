/* SPDX-License-Identifier: GPL-2.0 */
/* What can be generated: conversations (generate.c), and what else eviction has to cope with (loads.c). */
#ifndef KVCTX_WORKLOAD_LOADS_H
#define KVCTX_WORKLOAD_LOADS_H

#include <stddef.h>
#include <stdint.h>

#include "trace.h"

struct load {
	const char *name;
	/* Append @nr requests to the empty @t; the same on every machine for the same @nr and @seed. 0 or -ENOMEM */
	int (*make)(struct trace *t, size_t nr, uint64_t seed);
};

extern const struct load loads[];		/* the first is the default; without a name: the end */
const struct load *load_find(const char *name);	/* or NULL */

#endif
