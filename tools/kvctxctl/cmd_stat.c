// SPDX-License-Identifier: GPL-2.0
/*
 * stat: counters of pools.
 */
#include <string.h>

#include "watch.h"

static int take(const struct ctl *c, struct json_object *pools)
{
	struct nl_request rq = {
		.cmd = KVCTX_CMD_STATS_GET, .dump = true, .object = object_stats,
		.pool = c->nr_args ? c->args[0] : NULL,
	};
	int status = nl_request(c, &rq, pools);

	if (!status && c->nr_args && !json_object_array_length(pools)) {
		ctl_command_error(c, "no such pool");
		status = CTL_NODEV;
	}
	return status;
}

static void put_counters(struct json_object *pool)
{
	printf("pool %s\n", out_get_text(pool, "pool"));
	for (int i = 0; i < nr_stat_names; i++) {
		const char *key = stat_names[i].key;

		if (key && out_get(pool, key))
			watch_put_counter(key, out_get_number(pool, key));
	}
	if (out_get(pool, "write_amplification"))
		printf("  %-21s %20s\n", "write_amplification", out_get_text(pool, "write_amplification"));
}

static void put_header(void)
{
	printf("%-16s %10s %10s %10s %10s %11s %6s %8s %8s %8s\n", "POOL", "PAGES", "LOADS/s", "LOAD-MiB/s", "STORES/s",
	       "STORE-MiB/s", "HIT-%", "EVICT/s", "ERRORS", "INFLIGHT");
}

static struct json_object *before(const struct sample *was, struct json_object *is)
{
	return watch_find(was, is, "pool", NULL);
}

static void put_rates(struct json_object *was, struct json_object *is, double s)
{
	double hits = watch_hits(was, is);
	char hit[16] = "-";

	if (hits >= 0)
		snprintf(hit, sizeof(hit), "%.1f", hits);
	printf("%-16s %10llu %10.0f %10.1f %10.0f %11.1f %6s %8.0f %8llu %8llu\n", out_get_text(is, "pool"),
	       (unsigned long long)out_get_number(is, "pages"),
	       (double)watch_since(was, is, "loads") / s, (double)watch_since(was, is, "load_bytes") / s / WATCH_MIB,
	       (double)watch_since(was, is, "stores") / s, (double)watch_since(was, is, "store_bytes") / s / WATCH_MIB,
	       hit, (double)watch_since(was, is, "evicted_pages") / s,
	       (unsigned long long)(watch_since(was, is, "bad_pages") + watch_since(was, is, "io_errors")),
	       (unsigned long long)out_get_number(is, "inflight"));
}

int cmd_stat(struct ctl *c)
{
	const struct watch w = {
		.c = c, .name = "stats", .take = take, .once = put_counters, .header = put_header, .before = before,
		.rates = put_rates,
	};

	return watch_run(&w);
}
