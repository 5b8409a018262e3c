/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes a trace of multi-turn conversations: shared system prompts, turns that extend the prompt of the turn before,
 * think times that interleave the conversations. See generate.c for the shape and where its figures come from.
 */
#ifndef KVCTX_WORKLOAD_GENERATE_H
#define KVCTX_WORKLOAD_GENERATE_H

#include <stddef.h>
#include <stdint.h>

#include "trace.h"

#define GENERATE_BLOCK		512		/* tokens of a block */
#define GENERATE_CONTEXT	126195		/* longest prompt in tokens */
#define GENERATE_MAX		10000000	/* most requests of one call */

/* Append @nr requests to the empty @t; the same on every machine for the same @nr and @seed. 0 or -ENOMEM */
int generate(struct trace *t, size_t nr, uint64_t seed);

#endif
