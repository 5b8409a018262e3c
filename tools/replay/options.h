/* SPDX-License-Identifier: GPL-2.0 */
/* The command line. */
#ifndef KVCTX_REPLAY_OPTIONS_H
#define KVCTX_REPLAY_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Exit statuses */
#define EXIT_USAGE		2	/* wrong command line */
#define EXIT_NO_DEVICE		3	/* no device, or no permission */
#define EXIT_INTERRUPTED	130	/* SIGINT or SIGTERM came */

#define CAPACITIES_MAX		64

struct load;

/* Room for pages, in one of three units */
struct capacity {
	const char *text;	/* as given */
	uint64_t pages;		/* either this ... */
	uint64_t bytes;		/* ... or this ... */
	uint64_t share;		/* ... or this share of a trace's distinct pages, CAPACITY_ALL being all of them */
};

#define CAPACITY_ALL		100000000ULL

struct options {
	const char *trace;	/* either this ... */
	size_t generate;	/* ... or this many generated requests ... */
	const struct load *load;	/* ... of this load */
	const char *device;	/* NULL: only write the trace */
	const char *json;
	const char *dump_trace;
	size_t requests;	/* 0: all */
	uint64_t page_size;	/* bytes */
	uint64_t arena;		/* bytes of pinned memory to stay within */
	uint64_t seed;
	unsigned int depth;	/* pages in flight */
	unsigned int lease_ms;
	unsigned int stall_s;	/* seconds without a completion after which to give up */
	bool verify;
	bool no_progress;
	bool simulate;		/* on pools without devices instead of @device */
	struct capacity capacities[CAPACITIES_MAX];
	size_t nr_capacities;
	uint64_t segment_size;	/* 0: to be chosen */
	unsigned int members;
	bool no_match;		/* pages are loaded without being asked for by MATCH */
	const char *plot;
};

enum options_result {
	OPTIONS_RUN,
	OPTIONS_DONE,		/* --help or --version was answered */
	OPTIONS_USAGE,		/* wrong, and said why on stderr */
};

enum options_result options_parse(struct options *o, int argc, char **argv);

/* Where the table goes: what stands on standard output alone has to be all of it */
FILE *options_table(const struct options *o);

/* "5%" or "2.5%" of the distinct pages, "4G" bytes, "9139" pages. 0, -EINVAL or -ERANGE */
int parse_capacity(const char *text, struct capacity *c);

#endif
