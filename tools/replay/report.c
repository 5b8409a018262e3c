// SPDX-License-Identifier: GPL-2.0
/* The closing table and the JSON of a replay, see report.h. */
#include <inttypes.h>
#include <string.h>

#include "report.h"
#include "util.h"

struct quantile_name {
	const char *name;
	uint32_t per_100000;
};

static const struct quantile_name quantiles[] = {
	{ "p50",	50000 },
	{ "p99",	99000 },
	{ "p999",	99900 },
};

static double microseconds(uint64_t ns)
{
	return (double)ns / 1000;
}

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

static void table_latency(FILE *out, const char *name, const struct hist *h)
{
	size_t i;

	fprintf(out, "  %-8s", name);
	for (i = 0; i < ARRAY_SIZE(quantiles); i++)
		fprintf(out, " %11.1f", microseconds(hist_quantile(h, quantiles[i].per_100000)));
	fprintf(out, " %11.1f\n", microseconds(h->max));
}

static void table_moved(FILE *out, const char *name, uint64_t pages, uint64_t bytes, uint64_t ns)
{
	fprintf(out, "  %-18s %10" PRIu64 " pages %12.1f MB %10.1f MB/s\n", name, pages, (double)bytes / 1e6,
		stats_mbps(bytes, ns));
}

static void table_reasons(FILE *out, const struct stats *s)
{
	size_t i;

	for (i = 0; i < STATS_REASONS && s->reasons[i].count; i++)
		fprintf(out, "    %" PRIu64 " x %s\n", s->reasons[i].count,
			s->reasons[i].code ? strerror(s->reasons[i].code) : "others");
}

void report_table(const struct report *r, FILE *out)
{
	const struct stats *s = r->stats;

	fprintf(out, "\n%s on pool %s, tenant %s\n", workload_name(&r->options->workload), r->pool, r->tenant);
	fprintf(out, "  %-18s %10" PRIu64 " of %" PRIu64 " in %.1f s\n", "requests", s->requests, r->total_requests,
		seconds(s->elapsed_ns));
	fprintf(out, "  %-18s %10" PRIu64 " pages of %" PRIu64 " bytes\n", "referenced", s->pages_referenced,
		r->options->page_size);
	fprintf(out, "  %-18s %10" PRIu64 " pages (%.2f %%)\n", "hit", s->pages_hit, stats_hit_ratio(s) * 100);
	table_moved(out, "loaded", s->pages_loaded, s->bytes_loaded, s->load_ns);
	table_moved(out, "stored", s->pages_stored, s->bytes_stored, s->store_ns);
	fprintf(out, "  %-8s %11s %11s %11s %11s\n", "us", "p50", "p99", "p99.9", "max");
	table_latency(out, "match", &s->match);
	table_latency(out, "load", &s->load);
	table_latency(out, "store", &s->store);
	fprintf(out, "  wrong %" PRIu64 ", bad %" PRIu64 ", lost %" PRIu64 ", unverified %" PRIu64 ", dedup %" PRIu64
		", unadmitted %" PRIu64 ", errors %" PRIu64 "\n", s->wrong_pages, s->bad_pages, s->lost_pages,
		s->unverified_pages, s->dedup_pages, s->unadmitted_pages, s->errors);
	table_reasons(out, s);
	fprintf(out, "%s%s\n", stats_good(s, r->options->verify) ? "good: every page was right" : "FAILED",
		s->completed ? "" : ": stopped before the end");
	fflush(out);
}

static void add_latency(struct json_object *o, const char *key, const struct hist *h)
{
	struct json_object *inner = json_object_new_object();
	size_t i;

	for (i = 0; i < ARRAY_SIZE(quantiles); i++)
		figure_real(inner, quantiles[i].name, microseconds(hist_quantile(h, quantiles[i].per_100000)), 3);
	figure_real(inner, "max", microseconds(h->max), 3);
	figure_real(inner, "mean", microseconds(hist_mean(h)), 3);
	figure_count(inner, "count", h->count);
	json_object_object_add(o, key, inner);
}

/* {"EIO": 2, "other": 1} */
static void add_reasons(struct json_object *o, const struct stats *s)
{
	struct json_object *inner = json_object_new_object();
	const char *name;
	size_t i;

	for (i = 0; i < STATS_REASONS && s->reasons[i].count; i++) {
		name = strerrorname_np(s->reasons[i].code);
		figure_count(inner, s->reasons[i].code && name ? name : "other", s->reasons[i].count);
	}
	json_object_object_add(o, "errors_by_reason", inner);
}

static void add_setup(struct json_object *o, const struct report *r)
{
	const struct options *opt = r->options;

	figure_count(o, "format", REPORT_FORMAT);
	figure_text(o, "version", KVCTX_VERSION);
	figure_text(o, "trace", workload_name(&r->options->workload));
	figure_text(o, "device", opt->device);
	figure_text(o, "pool", r->pool);
	figure_text(o, "tenant", r->tenant);
	figure_count(o, "page_size", opt->page_size);
	figure_count(o, "depth", opt->depth);
	figure_count(o, "seed", opt->workload.seed);
	figure_flag(o, "verify", opt->verify);
}

static void add_counters(struct json_object *o, const struct report *r)
{
	const struct stats *s = r->stats;

	figure_flag(o, "completed", s->completed);
	figure_flag(o, "good", stats_good(s, r->options->verify));
	figure_count(o, "requests_total", r->total_requests);
	figure_count(o, "requests", s->requests);
	figure_count(o, "pages_referenced", s->pages_referenced);
	figure_count(o, "pages_hit", s->pages_hit);
	figure_real(o, "prefix_hit_ratio", stats_hit_ratio(s), 6);
	figure_count(o, "pages_loaded", s->pages_loaded);
	figure_count(o, "pages_stored", s->pages_stored);
	figure_count(o, "bytes_loaded", s->bytes_loaded);
	figure_count(o, "bytes_stored", s->bytes_stored);
	figure_count(o, "wrong_pages", s->wrong_pages);
	figure_count(o, "bad_pages", s->bad_pages);
	figure_count(o, "lost_pages", s->lost_pages);
	figure_count(o, "unverified_pages", s->unverified_pages);
	figure_count(o, "dedup_pages", s->dedup_pages);
	figure_count(o, "unadmitted_pages", s->unadmitted_pages);
	figure_count(o, "retries", s->retries);
	figure_count(o, "errors", s->errors);
	add_reasons(o, s);
}

static void add_times(struct json_object *o, const struct stats *s)
{
	add_latency(o, "match_us", &s->match);
	add_latency(o, "load_us", &s->load);
	add_latency(o, "store_us", &s->store);
	figure_real(o, "load_MBps", stats_mbps(s->bytes_loaded, s->load_ns), 3);
	figure_real(o, "store_MBps", stats_mbps(s->bytes_stored, s->store_ns), 3);
	figure_real(o, "load_s", seconds(s->load_ns), 6);
	figure_real(o, "store_s", seconds(s->store_ns), 6);
	figure_real(o, "flush_s", seconds(s->flush_ns), 6);
	figure_real(o, "elapsed_s", seconds(s->elapsed_ns), 6);
}

struct json_object *report_figures(const struct report *r)
{
	struct json_object *o = json_object_new_object();

	add_setup(o, r);
	add_counters(o, r);
	add_times(o, r->stats);
	return o;
}
