// SPDX-License-Identifier: GPL-2.0
/* The table and the JSON of a simulation, see report.h. */
#include <inttypes.h>

#include "report.h"

static const char *const grain_names[NR_PAGEGRAIN] = {
	[PAGEGRAIN_FIFO]	= "FIFO, page by page",
	[PAGEGRAIN_LRU]		= "LRU, page by page",
	[PAGEGRAIN_OPTIMUM]	= "optimum, page by page",
};

/* "x.xxxx  y.yyy  zz.z %": hits, times those of LRU, share of the way from LRU to the optimum */
static void print_hits(const struct simulation *s, const struct sim_capacity *c, const char *name, uint64_t hits,
		       FILE *out)
{
	uint64_t lru = c->grain[PAGEGRAIN_LRU], best = c->grain[PAGEGRAIN_OPTIMUM];

	fprintf(out, "  %-22s %7.4f", name, sim_ratio(s, hits));
	if (lru)
		fprintf(out, " %7.3f", (double)hits / (double)lru);
	else
		fprintf(out, " %7s", "-");
	if (best > lru)
		fprintf(out, " %7.1f", ((double)hits - (double)lru) / (double)(best - lru) * 100);
	else
		fprintf(out, " %7s", "-");
}

static void print_pool(const struct simulation *s, const struct sim_capacity *c, FILE *out)
{
	const struct simpool_counters *n = &c->counters;

	print_hits(s, c, "prefix", n->hits, out);
	fprintf(out, " %9.2f %9.2f %8.3f %7.4f %9" PRIu64 " %8.2f\n", (double)n->host_bytes / 1e9,
		(double)n->moved_bytes / 1e9, (double)n->summary_bytes / 1e9, simpool_amplification(n), n->evicted,
		sim_pages_per_second(s, c) / 1e6);
	if (n->refused)
		fprintf(out, "    %" PRIu64 " pages found no room\n", n->refused);
}

static void print_capacity(const struct simulation *s, const struct sim_capacity *c, FILE *out)
{
	const struct simpool_plan *p = &c->plan;
	size_t i;

	fprintf(out, "\n%s: %" PRIu64 " pages\n", c->given->text, c->pages);
	fprintf(out, "  Pool of %" PRIu64 " pages: %" PRIu64 " segments of %.1f MiB for %" PRIu64 " pages of %" PRIu64
		" bytes, %" PRIu32 " member%s\n", p->pages, p->segments, (double)p->segment_size / (1 << 20),
		p->segment_pages, p->page_size, p->members, p->members == 1 ? "" : "s");
	fprintf(out, "  %-22s %7s %7s %7s %9s %9s %8s %7s %9s %8s\n", "", "hits", "of LRU", "gap %", "host GB",
		"moved GB", "sums GB", "WA", "evicted", "Mpages/s");
	print_pool(s, c, out);
	for (i = 0; i < NR_PAGEGRAIN; i++) {
		print_hits(s, c, grain_names[i], c->grain[i], out);
		fputc('\n', out);
	}
}

void report_table(const struct simulation *s, FILE *out)
{
	bool complete = true;
	size_t i;

	fprintf(out, "%s: %zu requests, %zu pages referenced, %zu of them distinct, hits without bounds %.4f\n",
		workload_name(&s->options->workload), s->trace->nr_requests, s->trace->nr_ids, s->refs.nr_pages,
		sim_ratio(s, s->unbounded));
	for (i = 0; i < s->nr_capacities; i++) {
		if (s->capacities[i].played)
			print_capacity(s, &s->capacities[i], out);
		complete &= s->capacities[i].played;
	}
	if (!complete)
		fputs("\nstopped before the end\n", out);
	fflush(out);
}

static void add_ratios(struct json_object *o, const struct simulation *s, const struct sim_capacity *c)
{
	figure_real(o, "prefix_hit_ratio", sim_ratio(s, c->counters.hits), 6);
	figure_real(o, "lru_hit_ratio", sim_ratio(s, c->grain[PAGEGRAIN_LRU]), 6);
	figure_real(o, "fifo_hit_ratio", sim_ratio(s, c->grain[PAGEGRAIN_FIFO]), 6);
	figure_real(o, "optimum_hit_ratio", sim_ratio(s, c->grain[PAGEGRAIN_OPTIMUM]), 6);
	figure_real(o, "unbounded_hit_ratio", sim_ratio(s, s->unbounded), 6);
	figure_real(o, "write_amplification", simpool_amplification(&c->counters), 6);
}

static void add_counters(struct json_object *o, const struct simpool_counters *n)
{
	figure_count(o, "host_bytes", n->host_bytes);
	figure_count(o, "reclaim_bytes", n->moved_bytes);
	figure_count(o, "summary_bytes", n->summary_bytes);
	figure_count(o, "pages_hit", n->hits);
	figure_count(o, "pages_stored", n->stored);
	figure_count(o, "pages_moved", n->moved);
	figure_count(o, "pages_evicted", n->evicted);
	figure_count(o, "pages_refused", n->refused);
	figure_count(o, "dedup_pages", n->dedups);
}

static void add_setup(struct json_object *o, const struct simulation *s, const struct sim_capacity *c)
{
	figure_count(o, "pool_pages", c->plan.pages);
	figure_count(o, "segments", c->plan.segments);
	figure_count(o, "segment_pages", c->plan.segment_pages);
	figure_count(o, "segment_size", c->plan.segment_size);
	figure_count(o, "page_size", c->plan.page_size);
	figure_count(o, "members", c->plan.members);
	figure_count(o, "seed", s->options->workload.seed);
	figure_text(o, "trace", workload_name(&s->options->workload));
	figure_count(o, "requests", s->trace->nr_requests);
	figure_count(o, "pages_referenced", s->trace->nr_ids);
	figure_count(o, "pages_distinct", s->refs.nr_pages);
	figure_text(o, "version", KVCTX_VERSION);
}

static struct json_object *pool_object(const struct simulation *s, const struct sim_capacity *c)
{
	struct json_object *o = json_object_new_object();

	figure_text(o, "policy", "prefix");
	figure_text(o, "capacity", c->given->text);
	figure_count(o, "capacity_pages", c->pages);
	add_ratios(o, s, c);
	add_counters(o, &c->counters);
	figure_real(o, "pages_per_second", sim_pages_per_second(s, c), 6);
	add_setup(o, s, c);
	return o;
}

struct json_object *report_figures(const struct simulation *s)
{
	struct json_object *list = json_object_new_array();
	size_t i;

	for (i = 0; i < s->nr_capacities; i++)
		json_object_array_add(list, pool_object(s, &s->capacities[i]));
	return list;
}
