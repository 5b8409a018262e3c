// SPDX-License-Identifier: GPL-2.0
/*
 * Pools, members, tenants and counters in the text format of Prometheus (version 0.0.4), from the objects that the other
 * commands print as JSON.
 *
 * A family is all samples of one name, below its HELP and TYPE. Names and labels are an interface as the JSON is: they
 * stay, and families are only added. What the kernel does not tell is left out.
 */
#include <string.h>

#include "metrics.h"
#include "nl.h"
#include "out.h"

#define LABELS_MAX	8192	/* a device's path, each byte of it escaped */

struct family {
	const char *name;		/* behind kvctx_ */
	const char *key;		/* of the object */
	const char *help;
};

static const struct family pool_families[] = {
	{ "pool_capacity_bytes", "capacity", "Bytes of all segments." },
	{ "pool_free_bytes", "free", "Bytes of segments that hold nothing." },
	{ "pool_discard_rate_bytes", "discard_rate", "Bytes a second that are discarded at most on each member, 0: off." },
	{ "pool_write_budget_bytes", "write_budget", "Bytes a day that may be written, 0: no limit." },
	{ "pool_write_budget_left_bytes", "write_budget_left", "Bytes that may be written now." },
	{ NULL }
};

static const struct family member_families[] = {
	{ "member_size_bytes", "size", "Bytes of its segments." },
	{ "member_page_bytes", "bytes", "Bytes of the pages on it." },
	{ "member_segments", "segments", "All segments." },
	{ "member_segments_free", "segments_free", "Segments that hold nothing." },
	{ NULL }
};

static const struct family tenant_families[] = {
	{ "tenant_sessions", "sessions", "Open sessions." },
	{ "tenant_pages", "pages", "Pages in the index." },
	{ "tenant_bytes", "bytes", "Bytes of these pages." },
	{ "tenant_pinned_bytes", "pinned", "Bytes of memory that its sessions have pinned." },
	{ "tenant_leased_bytes", "leased", "Bytes of the segments that its leases keep." },
	{ "tenant_keyspaces", "keyspaces", "Keyspaces that it has." },
	{ "tenant_quota_bytes", "quota", "Bytes of pages that it may have, 0: no limit." },
	{ "tenant_reserve_bytes", "reserve", "Bytes of its pages that no other tenant evicts, 0: none." },
	{ "tenant_max_pinned_bytes", "max_pinned", "Bytes of memory that its sessions may pin, 0: no limit." },
	{ "tenant_max_leased_bytes", "max_leased", "Bytes of segments that its leases may keep, 0: no limit." },
	{ "tenant_max_keyspaces", "max_keyspaces", "Keyspaces that it may have, 0: no limit." },
	{ "tenant_bandwidth_bytes", "bandwidth", "Bytes a second that it may move, 0: no limit." },
	{ "tenant_max_inflight", "max_inflight", "Operations that it may have in flight, 0: no limit." },
	{ "tenant_weight", "weight", "Of its turns where tenants share a member." },
	{ NULL }
};

static const struct family tenant_counters[] = {
	{ "tenant_stores", "stores", "Pages written." },
	{ "tenant_store_bytes", "store_bytes", "Bytes of these pages." },
	{ "tenant_dedups", "dedups", "STOREs that found the page." },
	{ "tenant_unadmitted", "unadmitted", "STOREs that a write budget turned away." },
	{ "tenant_loads", "loads", "LOADs and GETs that found the page." },
	{ "tenant_load_bytes", "load_bytes", "Bytes that these read." },
	{ "tenant_from_dram", "from_dram", "Of these LOADs and GETs, from a slot." },
	{ "tenant_misses", "misses", "LOADs and GETs that found no page." },
	{ "tenant_failed", "failed", "Operations with any other error." },
	{ "tenant_evicted_pages", "evicted_pages", "Its pages that reclaim dropped." },
	{ NULL }
};

static const struct family tenant_stat_gauges[] = {
	{ "tenant_inflight", "inflight", "Operations that count against its limit, when it has one." },
	{ "tenant_waiting", "waiting", "Operations that wait since it has a limit." },
	{ NULL }
};

static void put_head(FILE *to, const char *name, const char *suffix, const char *type, const char *help)
{
	fprintf(to, "# HELP kvctx_%s%s %s\n# TYPE kvctx_%s%s %s\n", name, suffix, help, name, suffix, type);
}

/* label="value", after @before; returns how many bytes were added */
static size_t put_label(char *to, size_t size, const char *before, const char *label, const char *value)
{
	size_t n = (size_t)snprintf(to, size, "%s%s=\"", before, label);

	for (; *value && n + 4 < size; value++) {
		if (*value == '\\' || *value == '"' || *value == '\n')
			to[n++] = '\\';
		to[n++] = *value == '\n' ? 'n' : *value;
	}
	to[n++] = '"';
	to[n] = 0;
	return n;
}

static void pool_labels(char *to, size_t size, const char *key, struct json_object *pool)
{
	put_label(to, size, "", "pool", out_get_text(pool, key));
}

static void member_labels(char *to, size_t size, struct json_object *pool, struct json_object *member)
{
	char number[24];
	size_t n;

	snprintf(number, sizeof(number), "%llu", (unsigned long long)out_get_number(member, "index"));
	n = put_label(to, size, "", "pool", out_get_text(pool, "name"));
	n += put_label(to + n, size - n, ",", "member", number);
	if (out_get(member, "device"))
		put_label(to + n, size - n, ",", "device", out_get_text(member, "device"));
}

static void tenant_labels(char *to, size_t size, struct json_object *tenant)
{
	size_t n = put_label(to, size, "", "pool", out_get_text(tenant, "pool"));

	put_label(to + n, size - n, ",", "tenant", out_get_text(tenant, "tenant"));
}

static void put_sample(FILE *to, const char *name, const char *suffix, const char *labels, uint64_t value)
{
	fprintf(to, "kvctx_%s%s{%s} %llu\n", name, suffix, labels, (unsigned long long)value);
}

static void put_field(FILE *to, const struct family *f, const char *suffix, const char *labels, struct json_object *obj)
{
	if (out_get(obj, f->key))
		put_sample(to, f->name, suffix, labels, out_get_number(obj, f->key));
}

/* A family a state would be many: one has the state for a label */
static void put_state(FILE *to, const char *name, char *labels, size_t size, struct json_object *obj)
{
	size_t n = strlen(labels);

	if (!out_get(obj, "state"))
		return;
	put_label(labels + n, size - n, ",", "state", out_get_text(obj, "state"));
	put_sample(to, name, "", labels, 1);
	labels[n] = 0;
}

static void put_pools(FILE *to, struct json_object *pools)
{
	size_t nr = json_object_array_length(pools);
	char labels[LABELS_MAX];

	put_head(to, "pool_state", "", "gauge", "1 with the state of the pool: online, or degraded.");
	for (size_t i = 0; i < nr; i++) {
		pool_labels(labels, sizeof(labels), "name", json_object_array_get_idx(pools, i));
		put_state(to, "pool_state", labels, sizeof(labels), json_object_array_get_idx(pools, i));
	}
	for (const struct family *f = pool_families; f->name; f++) {
		put_head(to, f->name, "", "gauge", f->help);
		for (size_t i = 0; i < nr; i++) {
			struct json_object *pool = json_object_array_get_idx(pools, i);

			pool_labels(labels, sizeof(labels), "name", pool);
			put_field(to, f, "", labels, pool);
		}
	}
}

/* @f: a family, or NULL: the states */
static void put_members_of(FILE *to, const struct family *f, struct json_object *pool)
{
	struct json_object *members = out_get(pool, "members");
	char labels[LABELS_MAX];

	for (size_t i = 0; i < json_object_array_length(members); i++) {
		struct json_object *m = json_object_array_get_idx(members, i);

		member_labels(labels, sizeof(labels), pool, m);
		if (f)
			put_field(to, f, "", labels, m);
		else
			put_state(to, "member_state", labels, sizeof(labels), m);
	}
}

static void put_members(FILE *to, struct json_object *pools)
{
	size_t nr = json_object_array_length(pools);

	put_head(to, "member_state", "", "gauge",
		 "1 with the state of the member: online, failed, missing, leaving, or stuck.");
	for (size_t i = 0; i < nr; i++)
		put_members_of(to, NULL, json_object_array_get_idx(pools, i));
	for (const struct family *f = member_families; f->name; f++) {
		put_head(to, f->name, "", "gauge", f->help);
		for (size_t i = 0; i < nr; i++)
			put_members_of(to, f, json_object_array_get_idx(pools, i));
	}
}

/* @families: all gauges, or with a @suffix all counters */
static void put_tenants(FILE *to, const struct family *families, const char *suffix, struct json_object *tenants)
{
	char labels[LABELS_MAX];

	for (const struct family *f = families; f->name; f++) {
		put_head(to, f->name, suffix, *suffix ? "counter" : "gauge", f->help);
		for (size_t i = 0; i < json_object_array_length(tenants); i++) {
			struct json_object *t = json_object_array_get_idx(tenants, i);

			tenant_labels(labels, sizeof(labels), t);
			put_field(to, f, suffix, labels, t);
		}
	}
}

/* Cumulative, an octave a bucket: of the kernel's four to one */
static void put_latency(FILE *to, char *labels, size_t size, struct json_object *latency)
{
	struct json_object *buckets = out_get(latency, "buckets");
	size_t n = strlen(labels), nr = json_object_array_length(buckets);
	uint64_t sum = 0;
	char end[32];

	n += put_label(labels + n, size - n, ",", "operation", out_get_text(latency, "operation"));
	n += put_label(labels + n, size - n, ",", "priority", out_get_text(latency, "priority"));
	for (size_t i = 0; i < nr; i++) {
		sum += json_object_get_uint64(json_object_array_get_idx(buckets, i));
		if (i % 4 && i < nr - 1)
			continue;
		snprintf(end, sizeof(end), "%.9g", (double)latency_end(i) / 1e9);
		put_label(labels + n, size - n, ",", "le", i < nr - 1 ? end : "+Inf");
		put_sample(to, "tenant_latency_seconds", "_bucket", labels, sum);
	}
	labels[n] = 0;
	put_sample(to, "tenant_latency_seconds", "_count", labels, sum);
}

static void put_latencies(FILE *to, struct json_object *tenants)
{
	char labels[LABELS_MAX];

	put_head(to, "tenant_latency_seconds", "", "histogram", "From SUBMIT to the end of the tenant's LOADs and STOREs.");
	for (size_t i = 0; i < json_object_array_length(tenants); i++) {
		struct json_object *t = json_object_array_get_idx(tenants, i), *all = out_get(t, "latencies");

		for (size_t k = 0; k < json_object_array_length(all); k++) {
			tenant_labels(labels, sizeof(labels), t);
			put_latency(to, labels, sizeof(labels), json_object_array_get_idx(all, k));
		}
	}
}

static void put_counter(FILE *to, const struct stat_name *s, struct json_object *stats)
{
	const char *suffix = s->now ? "" : "_total";
	char name[64], labels[LABELS_MAX];

	snprintf(name, sizeof(name), "pool_%s", s->key);
	put_head(to, name, suffix, s->now ? "gauge" : "counter", s->help);
	for (size_t i = 0; i < json_object_array_length(stats); i++) {
		struct json_object *pool = json_object_array_get_idx(stats, i);

		if (!out_get(pool, s->key))
			continue;
		pool_labels(labels, sizeof(labels), "pool", pool);
		put_sample(to, name, suffix, labels, out_get_number(pool, s->key));
	}
}

static int get(const struct ctl *c, uint8_t cmd, struct json_object *(*object)(const struct nl_object *o),
	       struct json_object **out)
{
	char refusal[REFUSAL_MAX];
	struct nl_request rq = { .cmd = cmd, .dump = true, .object = object, .refusal = refusal };
	int status;

	*out = out_array();
	status = nl_request(c, &rq, *out);
	return status == CTL_NOSUPP ? CTL_OK : status;
}

int metrics_put(const struct ctl *c, FILE *to)
{
	struct json_object *pools = NULL, *tenants = NULL, *tenant_stats = NULL, *stats = NULL;
	int status = get(c, KVCTX_CMD_POOL_GET, object_pool, &pools) ?:
		     get(c, KVCTX_CMD_TENANT_GET, object_tenant, &tenants) ?:
		     get(c, KVCTX_CMD_TENANT_STATS_GET, object_tenant_stats, &tenant_stats) ?:
		     get(c, KVCTX_CMD_STATS_GET, object_stats, &stats);

	if (!status) {
		put_pools(to, pools);
		put_members(to, pools);
		put_tenants(to, tenant_families, "", tenants);
		put_tenants(to, tenant_counters, "_total", tenant_stats);
		put_tenants(to, tenant_stat_gauges, "", tenant_stats);
		put_latencies(to, tenant_stats);
		for (int i = 0; i < nr_stat_names; i++)
			if (stat_names[i].key)
				put_counter(to, &stat_names[i], stats);
	}
	json_object_put(pools);
	json_object_put(tenants);
	json_object_put(tenant_stats);
	json_object_put(stats);
	return status;
}
