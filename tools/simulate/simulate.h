/* SPDX-License-Identifier: GPL-2.0 */
/* A trace on pools without devices, one for each capacity, beside caches of single pages. */
#ifndef KVCTX_SIMULATE_SIMULATE_H
#define KVCTX_SIMULATE_SIMULATE_H

#include "options.h"
#include "pagegrain.h"
#include "progress.h"
#include "simpool.h"

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
	const volatile sig_atomic_t *stop;
	struct refs refs;		/* of @trace; the following is zero in the beginning */
	uint64_t unbounded;		/* hits of a cache that holds everything */
	struct sim_capacity capacities[CAPACITIES_MAX];
	size_t nr_capacities;		/* that were planned */
	struct progress progress;
	uint64_t pages_done;		/* referenced, of all runs */
};

/* Plan a pool for each capacity. 0; or -errno, with the reason told: there is no such pool */
int simulation_plan(struct simulation *s);

/* Play on all of them. 0; or -errno: -EINTR when it was stopped */
int simulation_run(struct simulation *s);

double sim_ratio(const struct simulation *s, uint64_t hits);
double sim_pages_per_second(const struct simulation *s, const struct sim_capacity *c);

#endif
