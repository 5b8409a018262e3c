// SPDX-License-Identifier: GPL-2.0
/*
 * stat: counters of pools, once or as rates again and again.
 *
 * A rate is the difference of two samples of the same pool over the time between them. A pool that was attached
 * again in between has started from zero: its rates are those since then.
 */
#include <string.h>

#include "nl.h"
#include "out.h"

#define INTERVAL_MS	1000
#define HEADER_EVERY	20		/* reports */

struct sample {
	uint64_t time_ms;
	struct json_object *pools;	/* array */
};

static int take(const struct ctl *c, struct sample *s)
{
	struct nl_request rq = {
		.cmd = KVCTX_CMD_STATS_GET, .dump = true, .object = object_stats,
		.pool = c->nr_args ? c->args[0] : NULL,
	};
	int status;

	s->pools = out_array();
	s->time_ms = ctl_now_ms();
	status = nl_request(c, &rq, s->pools);
	if (!status && c->nr_args && !json_object_array_length(s->pools)) {
		ctl_command_error(c, "no such pool");
		status = CTL_NODEV;
	}
	if (status)
		json_object_put(s->pools);
	return status;
}

static struct json_object *report_json(const struct sample *s)
{
	struct json_object *root = out_root();

	out_add(root, "stats", json_object_get(s->pools));
	return root;
}

static void put_counters(struct json_object *pool)
{
	printf("pool %s\n", out_get_text(pool, "pool"));
	for (int i = 0; i < nr_stat_names; i++) {
		const char *key = stat_names[i].key;
		char size[32] = "";
		uint64_t num;

		if (!key || !out_get(pool, key))
			continue;
		num = out_get_number(pool, key);
		if (strstr(key, "bytes"))
			out_size_text(num, size, sizeof(size));
		printf("  %-21s %20llu%s%s%s\n", key, (unsigned long long)num, *size ? "  (" : "", size,
		       *size ? ")" : "");
	}
	if (out_get(pool, "write_amplification"))
		printf("  %-21s %20s\n", "write_amplification", out_get_text(pool, "write_amplification"));
}

static void put_once(const struct ctl *c, const struct sample *s)
{
	struct json_object *root;

	if (c->json) {
		root = report_json(s);
		out_json(root);
		json_object_put(root);
		return;
	}
	for (size_t i = 0; i < json_object_array_length(s->pools); i++)
		put_counters(json_object_array_get_idx(s->pools, i));
}

static struct json_object *find_pool(const struct sample *s, const char *name)
{
	for (size_t i = 0; i < json_object_array_length(s->pools); i++) {
		struct json_object *pool = json_object_array_get_idx(s->pools, i);

		if (!strcmp(out_get_text(pool, "pool"), name))
			return pool;
	}
	return NULL;
}

static uint64_t since(struct json_object *was, struct json_object *is, const char *key)
{
	uint64_t before = was ? out_get_number(was, key) : 0, now = out_get_number(is, key);

	return now >= before ? now - before : now;
}

static void put_rates(struct json_object *was, struct json_object *is, double s)
{
	uint64_t loads = since(was, is, "loads"), misses = since(was, is, "misses");
	char hit[16] = "-";

	if (loads + misses)
		snprintf(hit, sizeof(hit), "%.1f", 100.0 * (double)loads / (double)(loads + misses));
	printf("%-16s %10llu %10.0f %10.1f %10.0f %10.1f %6s %8.0f %8llu %8llu\n", out_get_text(is, "pool"),
	       (unsigned long long)out_get_number(is, "pages"),
	       (double)loads / s, (double)since(was, is, "load_bytes") / s / 1e6,
	       (double)since(was, is, "stores") / s, (double)since(was, is, "store_bytes") / s / 1e6,
	       hit, (double)since(was, is, "evicted_pages") / s,
	       (unsigned long long)(since(was, is, "bad_pages") + since(was, is, "io_errors")),
	       (unsigned long long)out_get_number(is, "inflight"));
}

static void put_report(const struct ctl *c, const struct sample *was, const struct sample *is, uint64_t nr)
{
	double seconds = (double)(is->time_ms - was->time_ms) / 1000;
	struct json_object *root;

	if (c->json) {
		root = report_json(is);
		out_add(root, "seconds", json_object_new_double(seconds));
		out_json_line(root);
		json_object_put(root);
	} else {
		if (nr % HEADER_EVERY == 0)
			printf("%-16s %10s %10s %10s %10s %10s %6s %8s %8s %8s\n", "POOL", "PAGES", "LOADS/s",
			       "LOAD-MB/s", "STORES/s", "STORE-MB/s", "HIT-%", "EVICT/s", "ERRORS", "INFLIGHT");
		for (size_t i = 0; i < json_object_array_length(is->pools); i++) {
			struct json_object *pool = json_object_array_get_idx(is->pools, i);

			put_rates(find_pool(was, out_get_text(pool, "pool")), pool, seconds);
		}
	}
	fflush(stdout);
}

static int watch(const struct ctl *c, struct sample *was)
{
	uint64_t interval = c->opt[OPT_WATCH].text ? c->opt[OPT_WATCH].num : INTERVAL_MS;
	uint64_t count = c->opt[OPT_COUNT].num, next = was->time_ms;
	int status = CTL_OK;

	for (uint64_t nr = 0; !c->opt[OPT_COUNT].set || nr < count; nr++) {
		struct sample is;
		uint64_t now = ctl_now_ms();

		/* On the beat, unless the kernel took longer than that */
		next = next + interval > now ? next + interval : now + 1;
		ctl_sleep_ms(next - now);
		status = take(c, &is);
		if (status)
			break;
		put_report(c, was, &is, nr);
		json_object_put(was->pools);
		*was = is;
		if (ferror(stdout))
			break;
	}
	return status;
}

int cmd_stat(struct ctl *c)
{
	struct sample first;
	int status;

	if (c->opt[OPT_COUNT].set && !c->opt[OPT_WATCH].set) {
		ctl_command_error(c, "--count: needs --watch");
		fputs("Try 'kvctxctl stat --help'.\n", stderr);
		return CTL_USAGE;
	}
	status = take(c, &first);
	if (status)
		return status;
	if (c->opt[OPT_WATCH].set)
		status = watch(c, &first);
	else
		put_once(c, &first);
	json_object_put(first.pools);
	return status;
}
