// SPDX-License-Identifier: GPL-2.0
/*
 * The runs of a simulation, see simulate.h.
 *
 * Every pool is planned, and every output is tried, before the first request is played. The capacities are played one
 * after the other, each with the caches of single pages first and then on a pool of its own.
 */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "outfile.h"
#include "plot.h"
#include "progress.h"
#include "simreport.h"
#include "simulate.h"
#include "util.h"

struct job {
	struct simulation *simulation;
	struct refs refs;
	struct progress progress;
	const volatile sig_atomic_t *stop;
	uint64_t pages_done;		/* referenced, of all runs */
};

static int fail(const char *what, const char *why)
{
	warnx("%s: %s", what, why);
	return -EINVAL;
}

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
	return s->distinct * c->share / CAPACITY_ALL;
}

static int plan_capacity(struct simulation *s, const struct capacity *given)
{
	struct sim_capacity *c = &s->capacities[s->nr_capacities];
	char what[80];
	int ret;

	snprintf(what, sizeof(what), "--capacity %.60s", given->text);
	*c = (struct sim_capacity){ .given = given, .pages = pages_of(s, given) };
	c->plan.page_size = s->options->page_size;
	c->plan.segment_size = s->options->segment_size;
	c->plan.members = s->options->members;
	ret = simpool_plan(&c->plan, c->pages);
	if (ret == -EINVAL)
		return fail("--page-size", s->options->segment_size ? "more than a page of such segments" :
			    "more than the longest page");
	if (ret == -ERANGE && !c->plan.segments)
		return fail(what, "less than a segment");
	if (ret == -ERANGE)
		return fail(what, "no pool has so few segments, or so many");
	if (ret)
		return fail(what, strerror(-ret));
	s->nr_capacities++;
	return 0;
}

static int plan_all(struct simulation *s)
{
	size_t i;
	int ret = 0;

	for (i = 0; !ret && i < s->options->nr_capacities; i++)
		ret = plan_capacity(s, &s->options->capacities[i]);
	return ret;
}

static void tell_progress(struct job *j, const struct sim_capacity *c)
{
	struct simulation *s = j->simulation;
	double all = (double)s->trace->nr_ids * s->options->nr_capacities;

	progress_line(&j->progress, (double)j->pages_done, all, "%s, %.0f %% of all", c->given->text,
		      j->pages_done / all * 100);
}

static int play_requests(struct job *j, struct simpool *pool, const struct sim_capacity *c)
{
	const struct trace *t = j->simulation->trace;
	size_t i;
	int ret = 0;

	for (i = 0; !ret && i < t->nr_requests; i++) {
		ret = simpool_request(pool, trace_ids(t, &t->requests[i]), t->requests[i].nr,
				      !j->simulation->options->no_match);
		j->pages_done += t->requests[i].nr;
		if (*j->stop)
			return -EINTR;
		if (progress_due(&j->progress))
			tell_progress(j, c);
	}
	return ret ? ret : simpool_flush(pool);
}

static int run_pool(struct job *j, struct sim_capacity *c)
{
	const struct simulation *s = j->simulation;
	struct simpool *pool;
	uint64_t start;
	int ret = simpool_open(&pool, &c->plan, s->options->seed, s->trace->longest);

	if (ret)
		return ret;
	start = time_ns(CLOCK_PROCESS_CPUTIME_ID);
	ret = play_requests(j, pool, c);
	c->ns = time_ns(CLOCK_PROCESS_CPUTIME_ID) - start;
	simpool_counters_get(pool, &c->counters);
	simpool_close(pool);
	c->played = !ret;
	return ret;
}

static int run_capacity(struct job *j, struct sim_capacity *c)
{
	size_t i;
	int ret = 0;

	for (i = 0; !ret && i < NR_PAGEGRAIN; i++)
		ret = pagegrain_hits(&j->refs, i, c->pages, j->stop, &c->grain[i]);
	return ret ? ret : run_pool(j, c);
}

static int run_all(struct job *j)
{
	struct simulation *s = j->simulation;
	size_t i;
	int ret;

	ret = pagegrain_hits(&j->refs, PAGEGRAIN_LRU, s->distinct, j->stop, &s->unbounded);
	progress_init(&j->progress, !s->options->no_progress);
	for (i = 0; !ret && i < s->nr_capacities; i++)
		ret = run_capacity(j, &s->capacities[i]);
	progress_end(&j->progress);
	return ret;
}

struct outputs {
	struct outfile json, plot;
};

static int open_output(struct outfile *out, const char *path)
{
	int ret = path ? outfile_open(out, path) : 0;

	return ret ? fail(path, strerror(-ret)) : 0;
}

static int open_outputs(struct outputs *out, const struct options *o)
{
	int ret = open_output(&out->json, o->json);

	if (!ret)
		ret = open_output(&out->plot, o->plot);
	if (!ret && o->plot && plot_possible())
		ret = fail("--plot", "gnuplot cannot be run; is it installed?");
	return ret;
}

static int tell_in(struct outfile *out, const char *path, int (*tell)(const struct simulation *s, FILE *out),
		   const struct simulation *s)
{
	int ret;

	if (!path)
		return 0;
	ret = tell(s, out->stream);
	if (!ret)
		ret = outfile_commit(out);
	return ret ? fail(path, strerror(-ret)) : 0;
}

/* A simulation that was interrupted has a table only: who reads the files may count on all of it */
static int run_and_tell(struct job *j, struct outputs *out)
{
	const struct simulation *s = j->simulation;
	int ret = run_all(j);

	if (ret && ret != -EINTR)
		return fail("simulation", strerror(-ret));
	simreport_table(s, options_table(s->options));
	if (ret)
		return ret;
	ret = tell_in(&out->json, s->options->json, simreport_json, s);
	return ret ? ret : tell_in(&out->plot, s->options->plot, plot_draw, s);
}

static int status_of(int ret)
{
	if (ret == -EINTR)
		return EXIT_INTERRUPTED;
	return ret ? EXIT_FAILURE : EXIT_SUCCESS;
}

int simulate(const struct trace *t, const struct options *o, const volatile sig_atomic_t *stop)
{
	struct simulation *s = calloc(1, sizeof(*s));
	struct job j = { .simulation = s, .stop = stop };
	struct outputs out = { 0 };
	int ret = s ? refs_init(&j.refs, t) : -ENOMEM;

	if (ret) {
		free(s);
		fail("simulation", strerror(-ret));
		return EXIT_FAILURE;
	}
	s->options = o;
	s->trace = t;
	s->distinct = j.refs.nr_pages;
	ret = plan_all(s) ? EXIT_USAGE : EXIT_SUCCESS;
	if (!ret) {
		ret = open_outputs(&out, o);
		ret = status_of(ret ? ret : run_and_tell(&j, &out));
	}
	outfile_abort(&out.json);
	outfile_abort(&out.plot);
	refs_free(&j.refs);
	free(s);
	return ret;
}
