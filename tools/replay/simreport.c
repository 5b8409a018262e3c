// SPDX-License-Identifier: GPL-2.0
/* The table and the JSON of a simulation, see simreport.h. */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>

#include "simreport.h"
#include "util.h"

static const char *const grain_names[NR_PAGEGRAIN] = {
	[PAGEGRAIN_FIFO]	= "FIFO, page by page",
	[PAGEGRAIN_LRU]		= "LRU, page by page",
	[PAGEGRAIN_OPTIMUM]	= "optimum, page by page",
};

static const char *trace_name(const struct simulation *s)
{
	return s->options->trace ? s->options->trace : "generated";
}

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

void simreport_table(const struct simulation *s, FILE *out)
{
	bool complete = true;
	size_t i;

	fprintf(out, "%s: %zu requests, %zu pages referenced, %zu of them distinct, hits without bounds %.4f\n",
		trace_name(s), s->trace->nr_requests, s->trace->nr_ids, s->distinct, sim_ratio(s, s->unbounded));
	for (i = 0; i < s->nr_capacities; i++) {
		if (s->capacities[i].played)
			print_capacity(s, &s->capacities[i], out);
		complete &= s->capacities[i].played;
	}
	if (!complete)
		fputs("\nstopped before the end\n", out);
	fflush(out);
}

static void add_count(struct json_object *o, const char *key, uint64_t value)
{
	json_object_object_add(o, key, json_object_new_uint64(value));
}

static void add_real(struct json_object *o, const char *key, double value)
{
	char text[64];

	snprintf(text, sizeof(text), "%.6f", value);
	json_object_object_add(o, key, json_object_new_double_s(value, text));
}

static void add_string(struct json_object *o, const char *key, const char *value)
{
	json_object_object_add(o, key, json_object_new_string(value));
}

static void add_ratios(struct json_object *o, const struct simulation *s, const struct sim_capacity *c)
{
	add_real(o, "prefix_hit_ratio", sim_ratio(s, c->counters.hits));
	add_real(o, "lru_hit_ratio", sim_ratio(s, c->grain[PAGEGRAIN_LRU]));
	add_real(o, "fifo_hit_ratio", sim_ratio(s, c->grain[PAGEGRAIN_FIFO]));
	add_real(o, "optimum_hit_ratio", sim_ratio(s, c->grain[PAGEGRAIN_OPTIMUM]));
	add_real(o, "unbounded_hit_ratio", sim_ratio(s, s->unbounded));
	add_real(o, "write_amplification", simpool_amplification(&c->counters));
}

static void add_counters(struct json_object *o, const struct simpool_counters *n)
{
	add_count(o, "host_bytes", n->host_bytes);
	add_count(o, "reclaim_bytes", n->moved_bytes);
	add_count(o, "summary_bytes", n->summary_bytes);
	add_count(o, "pages_hit", n->hits);
	add_count(o, "pages_stored", n->stored);
	add_count(o, "pages_moved", n->moved);
	add_count(o, "pages_evicted", n->evicted);
	add_count(o, "pages_refused", n->refused);
	add_count(o, "dedup_pages", n->dedups);
}

static void add_setup(struct json_object *o, const struct simulation *s, const struct sim_capacity *c)
{
	add_count(o, "pool_pages", c->plan.pages);
	add_count(o, "segments", c->plan.segments);
	add_count(o, "segment_pages", c->plan.segment_pages);
	add_count(o, "segment_size", c->plan.segment_size);
	add_count(o, "page_size", c->plan.page_size);
	add_count(o, "members", c->plan.members);
	add_count(o, "seed", s->options->seed);
	add_string(o, "trace", trace_name(s));
	add_count(o, "requests", s->trace->nr_requests);
	add_count(o, "pages_referenced", s->trace->nr_ids);
	add_count(o, "pages_distinct", s->distinct);
	add_string(o, "version", KVCTX_VERSION);
}

static struct json_object *pool_object(const struct simulation *s, const struct sim_capacity *c)
{
	struct json_object *o = json_object_new_object();

	add_string(o, "policy", "prefix");
	add_string(o, "capacity", c->given->text);
	add_count(o, "capacity_pages", c->pages);
	add_ratios(o, s, c);
	add_counters(o, &c->counters);
	add_real(o, "pages_per_second", sim_pages_per_second(s, c));
	add_setup(o, s, c);
	return o;
}

int simreport_json(const struct simulation *s, FILE *out)
{
	struct json_object *list = json_object_new_array();
	const char *text;
	size_t i;
	int ret;

	for (i = 0; i < s->nr_capacities; i++)
		json_object_array_add(list, pool_object(s, &s->capacities[i]));
	text = json_object_to_json_string_ext(list, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
						    JSON_C_TO_STRING_NOSLASHESCAPE);
	ret = text && fprintf(out, "%s\n", text) > 0 ? 0 : -EIO;
	json_object_put(list);
	return ret;
}
