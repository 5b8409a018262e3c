// SPDX-License-Identifier: GPL-2.0
/* The closing table and the JSON of a replay, see report.h. */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
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

static const char *trace_name(const struct report *r)
{
	return r->options->trace ? r->options->trace : "generated";
}

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

	fprintf(out, "\n%s on pool %s, tenant %s\n", trace_name(r), r->pool, r->tenant);
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

static void add_count(struct json_object *o, const char *key, uint64_t value)
{
	json_object_object_add(o, key, json_object_new_uint64(value));
}

static void add_real(struct json_object *o, const char *key, double value, const char *format)
{
	char text[64];

	snprintf(text, sizeof(text), format, value);
	json_object_object_add(o, key, json_object_new_double_s(value, text));
}

static void add_string(struct json_object *o, const char *key, const char *value)
{
	json_object_object_add(o, key, json_object_new_string(value));
}

static void add_flag(struct json_object *o, const char *key, bool value)
{
	json_object_object_add(o, key, json_object_new_boolean(value));
}

static void add_latency(struct json_object *o, const char *key, const struct hist *h)
{
	struct json_object *inner = json_object_new_object();
	size_t i;

	for (i = 0; i < ARRAY_SIZE(quantiles); i++)
		add_real(inner, quantiles[i].name, microseconds(hist_quantile(h, quantiles[i].per_100000)), "%.3f");
	add_real(inner, "max", microseconds(h->max), "%.3f");
	add_real(inner, "mean", microseconds(hist_mean(h)), "%.3f");
	add_count(inner, "count", h->count);
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
		add_count(inner, s->reasons[i].code && name ? name : "other", s->reasons[i].count);
	}
	json_object_object_add(o, "errors_by_reason", inner);
}

static void add_setup(struct json_object *o, const struct report *r)
{
	const struct options *opt = r->options;

	add_count(o, "format", REPORT_FORMAT);
	add_string(o, "version", KVCTX_VERSION);
	add_string(o, "trace", trace_name(r));
	add_string(o, "device", opt->device);
	add_string(o, "pool", r->pool);
	add_string(o, "tenant", r->tenant);
	add_count(o, "page_size", opt->page_size);
	add_count(o, "depth", opt->depth);
	add_count(o, "seed", opt->seed);
	add_flag(o, "verify", opt->verify);
}

static void add_counters(struct json_object *o, const struct report *r)
{
	const struct stats *s = r->stats;

	add_flag(o, "completed", s->completed);
	add_flag(o, "good", stats_good(s, r->options->verify));
	add_count(o, "requests_total", r->total_requests);
	add_count(o, "requests", s->requests);
	add_count(o, "pages_referenced", s->pages_referenced);
	add_count(o, "pages_hit", s->pages_hit);
	add_real(o, "prefix_hit_ratio", stats_hit_ratio(s), "%.6f");
	add_count(o, "pages_loaded", s->pages_loaded);
	add_count(o, "pages_stored", s->pages_stored);
	add_count(o, "bytes_loaded", s->bytes_loaded);
	add_count(o, "bytes_stored", s->bytes_stored);
	add_count(o, "wrong_pages", s->wrong_pages);
	add_count(o, "bad_pages", s->bad_pages);
	add_count(o, "lost_pages", s->lost_pages);
	add_count(o, "unverified_pages", s->unverified_pages);
	add_count(o, "dedup_pages", s->dedup_pages);
	add_count(o, "unadmitted_pages", s->unadmitted_pages);
	add_count(o, "retries", s->retries);
	add_count(o, "errors", s->errors);
	add_reasons(o, s);
}

static void add_times(struct json_object *o, const struct stats *s)
{
	add_latency(o, "match_us", &s->match);
	add_latency(o, "load_us", &s->load);
	add_latency(o, "store_us", &s->store);
	add_real(o, "load_MBps", stats_mbps(s->bytes_loaded, s->load_ns), "%.3f");
	add_real(o, "store_MBps", stats_mbps(s->bytes_stored, s->store_ns), "%.3f");
	add_real(o, "load_s", seconds(s->load_ns), "%.6f");
	add_real(o, "store_s", seconds(s->store_ns), "%.6f");
	add_real(o, "flush_s", seconds(s->flush_ns), "%.6f");
	add_real(o, "elapsed_s", seconds(s->elapsed_ns), "%.6f");
}

int report_json(const struct report *r, FILE *out)
{
	struct json_object *o = json_object_new_object();
	const char *text;
	int ret;

	if (!o)
		return -ENOMEM;
	add_setup(o, r);
	add_counters(o, r);
	add_times(o, r->stats);
	text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
						 JSON_C_TO_STRING_NOSLASHESCAPE);
	ret = text && fprintf(out, "%s\n", text) > 0 ? 0 : -EIO;
	json_object_put(o);
	return ret;
}
