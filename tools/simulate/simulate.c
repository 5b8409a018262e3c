// SPDX-License-Identifier: GPL-2.0
/*
 * The runs of a simulation, see simulate.h. The capacities are played one after the other, each with the caches of
 * single pages first and then on a pool of its own.
 */
#include <err.h>
#include <errno.h>
#include <string.h>

#include "simulate.h"

double sim_ratio(const struct simulation *s, uint64_t hits)
{
	return (double)hits / (double)s->trace->nr_ids;
}

double sim_pages_per_second(const struct simulation *s, const struct sim_capacity *c)
{
	return c->ns ? (double)s->trace->nr_ids * (double)NS_PER_SEC / (double)c->ns : 0;
}

static uint64_t pages_of(const struct simulation *s, const struct capacity *c)
{
	if (c->pages)
		return c->pages;
	if (c->bytes)
		return c->bytes / s->options->page_size;
	return s->refs.nr_pages * c->share / CAPACITY_ALL;
}

static int plan_capacity(struct simulation *s, const struct capacity *given)
{
	struct sim_capacity *c = &s->capacities[s->nr_capacities];
	int ret;

	*c = (struct sim_capacity){ .given = given, .pages = pages_of(s, given) };
	c->plan.page_size = s->options->page_size;
	c->plan.segment_size = s->options->segment_size;
	c->plan.members = s->options->members;
	ret = simpool_plan(&c->plan, c->pages);
	if (!ret)
		s->nr_capacities++;
	else if (ret == -EINVAL)
		warnx("--page-size: %s", s->options->segment_size ? "more than a page of such segments" :
		      "more than the longest page");
	else
		warnx("--capacity %.60s: %s", given->text, ret != -ERANGE ? strerror(-ret) :
		      c->plan.segments ? "no pool has so few segments, or so many" : "less than a segment");
	return ret;
}

int simulation_plan(struct simulation *s)
{
	size_t i;
	int ret = 0;

	for (i = 0; !ret && i < s->options->nr_capacities; i++)
		ret = plan_capacity(s, &s->options->capacities[i]);
	return ret;
}

static void tell_progress(struct simulation *s, const struct sim_capacity *c)
{
	double all = (double)s->trace->nr_ids * s->options->nr_capacities;

	progress_line(&s->progress, (double)s->pages_done, all, "%s, %.0f %% of all", c->given->text,
		      s->pages_done / all * 100);
}

static int play_requests(struct simulation *s, struct simpool *pool, const struct sim_capacity *c)
{
	const struct trace *t = s->trace;
	size_t i;
	int ret = 0;

	for (i = 0; !ret && i < t->nr_requests; i++) {
		ret = simpool_request(pool, trace_ids(t, &t->requests[i]), t->requests[i].nr, !s->options->no_match);
		s->pages_done += t->requests[i].nr;
		if (*s->stop)
			return -EINTR;
		if (progress_due(&s->progress))
			tell_progress(s, c);
	}
	return ret ? ret : simpool_flush(pool);
}

static int run_pool(struct simulation *s, struct sim_capacity *c)
{
	struct simpool *pool;
	uint64_t start;
	int ret = simpool_open(&pool, &c->plan, s->options->workload.seed, s->trace->longest);

	if (ret)
		return ret;
	start = time_ns(CLOCK_PROCESS_CPUTIME_ID);
	ret = play_requests(s, pool, c);
	c->ns = time_ns(CLOCK_PROCESS_CPUTIME_ID) - start;
	simpool_counters_get(pool, &c->counters);
	simpool_close(pool);
	c->played = !ret;
	return ret;
}

static int run_capacity(struct simulation *s, struct sim_capacity *c)
{
	size_t i;
	int ret = 0;

	for (i = 0; !ret && i < NR_PAGEGRAIN; i++)
		ret = pagegrain_hits(&s->refs, i, c->pages, s->stop, &c->grain[i]);
	return ret ? ret : run_pool(s, c);
}

int simulation_run(struct simulation *s)
{
	size_t i;
	int ret;

	ret = pagegrain_hits(&s->refs, PAGEGRAIN_LRU, s->refs.nr_pages, s->stop, &s->unbounded);
	progress_init(&s->progress, !s->options->workload.no_progress);
	for (i = 0; !ret && i < s->nr_capacities; i++)
		ret = run_capacity(s, &s->capacities[i]);
	progress_end(&s->progress);
	return ret;
}
