/* SPDX-License-Identifier: GPL-2.0 */
/*
 * --simulate: a trace on pools without devices, one for each capacity, beside caches of single pages.
 */
#ifndef KVCTX_REPLAY_SIMULATE_H
#define KVCTX_REPLAY_SIMULATE_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"
#include "pagegrain.h"
#include "simpool.h"
#include "trace.h"

struct sim_capacity {
	const struct capacity *given;
	uint64_t pages;			/* what was asked for */
	struct simpool_plan plan;	/* the pool that comes nearest to it */
	uint64_t grain[NR_PAGEGRAIN];	/* hits of caches of exactly @pages */
	struct simpool_counters counters;
	uint64_t ns;			/* of processor time */
	bool played;			/* to the end */
};

struct simulation {
	const struct options *options;
	const struct trace *trace;
	size_t distinct;
	uint64_t unbounded;		/* hits of a cache that holds everything */
	struct sim_capacity capacities[CAPACITIES_MAX];
	size_t nr_capacities;		/* that were planned */
};

/* Simulate what @o says and tell it. Returns the exit status. */
int simulate(const struct trace *t, const struct options *o, const volatile sig_atomic_t *stop);

double sim_ratio(const struct simulation *s, uint64_t hits);
double sim_pages_per_second(const struct simulation *s, const struct sim_capacity *c);

#endif
