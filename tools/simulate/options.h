/* SPDX-License-Identifier: GPL-2.0 */
/* The command line. */
#ifndef KVCTX_SIMULATE_OPTIONS_H
#define KVCTX_SIMULATE_OPTIONS_H

#include <stddef.h>

#include "workload.h"

#define CAPACITIES_MAX		64

/* Room for pages, in one of three units */
struct capacity {
	const char *text;	/* as given */
	uint64_t pages;		/* either this ... */
	uint64_t bytes;		/* ... or this ... */
	uint64_t share;		/* ... or this share of a trace's distinct pages, CAPACITY_ALL being all of them */
};

#define CAPACITY_ALL		100000000ULL

struct options {
	struct workload workload;
	struct capacity capacities[CAPACITIES_MAX];
	size_t nr_capacities;
	uint64_t page_size;	/* bytes */
	uint64_t segment_size;	/* 0: to be chosen */
	uint64_t members;
	bool no_match;		/* pages are loaded without being asked for by MATCH */
};

/* Into @o, which is zero; what is wrong ends the program, as --help does */
void options_parse(struct options *o, int argc, char **argv);

/* "5%" or "2.5%" of the distinct pages, "4G" bytes, "9139" pages. 0, -EINVAL or -ERANGE */
int parse_capacity(const char *text, struct capacity *c);

#endif
