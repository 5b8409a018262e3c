// SPDX-License-Identifier: GPL-2.0
/*
 * tenant stat: what tenants' operations came to, and how long they took.
 */
#include <string.h>

#include "watch.h"

/* Those of @objects that are of @tenant; the others go */
static void keep_tenant(struct json_object *objects, const char *tenant)
{
	for (size_t i = json_object_array_length(objects); i--;)
		if (strcmp(out_get_text(json_object_array_get_idx(objects, i), "tenant"), tenant))
			json_object_array_del_idx(objects, i, 1);
}

static int take(const struct ctl *c, struct json_object *tenants)
{
	struct nl_request rq = {
		.cmd = KVCTX_CMD_TENANT_STATS_GET, .dump = true, .object = object_tenant_stats,
		.pool = c->nr_args ? c->args[0] : NULL,
	};
	int status = nl_request(c, &rq, tenants);

	if (status || c->nr_args < 2)
		return status;
	keep_tenant(tenants, c->args[1]);
	if (json_object_array_length(tenants))
		return CTL_OK;
	ctl_command_error(c, "no tenant named %s", c->args[1]);
	return CTL_NODEV;
}

static void put_latencies(struct json_object *all)
{
	for (size_t i = 0; i < json_object_array_length(all); i++) {
		struct json_object *l = json_object_array_get_idx(all, i);

		if (!i)
			printf("  %-24s %12s %12s %12s %12s\n", "latency, us", "count", "p50", "p99", "p99.9");
		printf("  %-5s %-18s %12llu %12.1f %12.1f %12.1f\n", out_get_text(l, "operation"),
		       out_get_text(l, "priority"), (unsigned long long)out_get_number(l, "count"),
		       (double)out_get_number(l, "p50_ns") / 1e3, (double)out_get_number(l, "p99_ns") / 1e3,
		       (double)out_get_number(l, "p999_ns") / 1e3);
	}
}

static void put_counters(struct json_object *t)
{
	printf("tenant %s/%s\n", out_get_text(t, "pool"), out_get_text(t, "tenant"));
	json_object_object_foreach(t, key, value)
		if (json_object_is_type(value, json_type_int))
			watch_put_counter(key, json_object_get_uint64(value));
	put_latencies(out_get(t, "latencies"));
}

static void put_header(void)
{
	printf("%-24s %10s %10s %10s %11s %6s %8s %8s %10s %10s %8s\n", "TENANT", "LOADS/s", "LOAD-MiB/s", "STORES/s",
	       "STORE-MiB/s", "HIT-%", "EVICT/s", "FAILED", "LOAD-p99", "STORE-p99", "WAITING");
}

static struct json_object *before(const struct sample *was, struct json_object *is)
{
	return watch_find(was, is, "pool", "tenant");
}

/* Of loads that are URGENT, of stores that are NORMAL, as they are unless somebody says otherwise; in us, or - */
static void put_p99(struct json_object *was, struct json_object *is, const char *op, const char *prio)
{
	uint64_t ns = latency_p99(was, is, op, prio);

	if (ns)
		printf(" %10.1f", (double)ns / 1e3);
	else
		printf(" %10s", "-");
}

static void put_rates(struct json_object *was, struct json_object *is, double s)
{
	double hits = watch_hits(was, is);
	char name[80], hit[16] = "-";

	snprintf(name, sizeof(name), "%s/%s", out_get_text(is, "pool"), out_get_text(is, "tenant"));
	if (hits >= 0)
		snprintf(hit, sizeof(hit), "%.1f", hits);
	printf("%-24s %10.0f %10.1f %10.0f %11.1f %6s %8.0f %8llu", name, (double)watch_since(was, is, "loads") / s,
	       (double)watch_since(was, is, "load_bytes") / s / WATCH_MIB, (double)watch_since(was, is, "stores") / s,
	       (double)watch_since(was, is, "store_bytes") / s / WATCH_MIB, hit,
	       (double)watch_since(was, is, "evicted_pages") / s, (unsigned long long)watch_since(was, is, "failed"));
	put_p99(was, is, "load", "urgent");
	put_p99(was, is, "store", "normal");
	printf(" %8llu\n", (unsigned long long)out_get_number(is, "waiting"));
}

int cmd_tenant_stat(struct ctl *c)
{
	const struct watch w = {
		.c = c, .name = "tenants", .take = take, .once = put_counters, .header = put_header, .before = before,
		.rates = put_rates,
	};

	return watch_run(&w);
}
