// SPDX-License-Identifier: GPL-2.0
/*
 * What a tenant's operations came to, in JSON, and quantiles of their latencies.
 */
#include <linux/kvctx.h>
#include <linux/kvctx_genl.h>
#include <netlink/attr.h>
#include <string.h>

#include "nl.h"
#include "out.h"

static const char *const names[KVCTX_T_MAX + 1] = {
	[KVCTX_T_STORES] = "stores",
	[KVCTX_T_STORE_BYTES] = "store_bytes",
	[KVCTX_T_DEDUPS] = "dedups",
	[KVCTX_T_UNADMITTED] = "unadmitted",
	[KVCTX_T_LOADS] = "loads",
	[KVCTX_T_LOAD_BYTES] = "load_bytes",
	[KVCTX_T_FROM_DRAM] = "from_dram",
	[KVCTX_T_MISSES] = "misses",
	[KVCTX_T_FAILED] = "failed",
	[KVCTX_T_EVICTED_PAGES] = "evicted_pages",
	[KVCTX_T_INFLIGHT] = "inflight",
	[KVCTX_T_WAITING] = "waiting",
};

uint64_t latency_end(size_t bucket)
{
	return (1ULL << (10 + bucket / 4)) * (4 + bucket % 4) / 4;
}

static uint64_t nr_of(struct json_object *latency, size_t bucket)
{
	struct json_object *nr = out_get(latency, "buckets");

	return nr ? json_object_get_uint64(json_object_array_get_idx(nr, bucket)) : 0;
}

/* Of how many, since @before, which may be NULL */
static uint64_t nr_since(struct json_object *latency, struct json_object *before, size_t bucket)
{
	uint64_t nr = nr_of(latency, bucket), was = before ? nr_of(before, bucket) : 0;

	return nr >= was ? nr - was : nr;
}

/*
 * Nanoseconds within which so many in a thousand of them ended, or a little less; 0: there are none. Those of @before
 * do not count.
 */
static uint64_t latency_quantile(struct json_object *latency, struct json_object *before, unsigned int permille)
{
	uint64_t all = 0, sum = 0;
	size_t i;

	if (!latency)
		return 0;
	for (i = 0; i < KVCTX_LATENCIES; i++)
		all += nr_since(latency, before, i);
	if (!all)
		return 0;
	for (i = 0; i < KVCTX_LATENCIES - 1; i++) {
		sum += nr_since(latency, before, i);
		if (sum * 1000 >= all * permille)
			break;
	}
	return latency_end(i);
}

static struct json_object *latency_find(struct json_object *stats, const char *op, const char *prio)
{
	struct json_object *all = stats ? out_get(stats, "latencies") : NULL;

	for (size_t i = 0; all && i < json_object_array_length(all); i++) {
		struct json_object *one = json_object_array_get_idx(all, i);

		if (!strcmp(out_get_text(one, "operation"), op) && !strcmp(out_get_text(one, "priority"), prio))
			return one;
	}
	return NULL;
}

/* Nanoseconds within which 99 of a hundred ended since @was, which may be NULL; 0: there were none */
uint64_t latency_p99(struct json_object *was, struct json_object *is, const char *op, const char *prio)
{
	return latency_quantile(latency_find(is, op, prio), latency_find(was, op, prio), 990);
}

static void add_latency(struct json_object *to, struct nlattr *attr)
{
	static const char *const prios[] = { "default", "urgent", "normal", "background" };
	static const struct {
		const char *name;
		unsigned int permille;
	} quantiles[] = { { "p50_ns", 500 }, { "p99_ns", 990 }, { "p999_ns", 999 } };
	struct json_object *obj, *buckets;
	struct kvctx_genl_latency l;
	uint64_t count = 0;

	if (nla_len(attr) < (int)sizeof(l))
		return;
	memcpy(&l, nla_data(attr), sizeof(l));
	obj = out_object();
	buckets = out_array();
	out_text(obj, "operation", l.opcode == KVCTX_OP_STORE ? "store" : "load");
	out_text(obj, "priority", l.prio < sizeof(prios) / sizeof(*prios) ? prios[l.prio] : "unknown");
	for (size_t i = 0; i < KVCTX_LATENCIES; i++) {
		count += l.nr[i];
		out_append(buckets, json_object_new_uint64(l.nr[i]));
	}
	out_number(obj, "count", count);
	out_add(obj, "buckets", buckets);
	for (size_t i = 0; i < sizeof(quantiles) / sizeof(*quantiles); i++)
		out_number(obj, quantiles[i].name, latency_quantile(obj, NULL, quantiles[i].permille));
	out_append(to, obj);
}

struct json_object *object_tenant_stats(const struct nl_object *o)
{
	struct json_object *obj = out_object(), *latencies = out_array();
	struct nlattr *nest = o->attrs[KVCTX_A_TENANT_STATS], *a;
	int left;

	out_text(obj, "pool", o->attrs[KVCTX_A_POOL] ? nla_get_string(o->attrs[KVCTX_A_POOL]) : "");
	out_text(obj, "tenant", o->attrs[KVCTX_A_TENANT] ? nla_get_string(o->attrs[KVCTX_A_TENANT]) : "");
	if (nest)
		nla_for_each_nested(a, nest, left) {
			if (nla_type(a) == KVCTX_T_LATENCY)
				add_latency(latencies, a);
			else if (nla_type(a) <= KVCTX_T_MAX && names[nla_type(a)] && nla_len(a) >= 8)
				out_number(obj, names[nla_type(a)], nla_get_u64(a));
		}
	out_add(obj, "latencies", latencies);
	return obj;
}
