// SPDX-License-Identifier: GPL-2.0
/*
 * events: what happens to pools, members, tenants and pages, as it happens.
 */
#include <endian.h>
#include <linux/kvctx.h>
#include <linux/kvctx_genl.h>
#include <string.h>
#include <time.h>

#include "nl.h"
#include "out.h"

static const struct {
	const char *name;
	struct json_object *(*object)(const struct nl_object *o);
} events[KVCTX_CMD_MAX + 1] = {
	[KVCTX_CMD_POOL_ATTACH] = { "pool_attached", object_pool },
	[KVCTX_CMD_POOL_DETACH] = { "pool_detached", object_pool },
	[KVCTX_CMD_POOL_SET] = { "pool_set", object_pool },
	[KVCTX_CMD_POOL_ADD] = { "member_added", object_pool },
	[KVCTX_CMD_POOL_REMOVE] = { "member_removed", object_pool },
	[KVCTX_CMD_MEMBER_LOST] = { "member_lost", object_pool },
	[KVCTX_CMD_POOL_REJOIN] = { "member_back", object_pool },
	[KVCTX_CMD_TENANT_ADD] = { "tenant_added", object_tenant },
	[KVCTX_CMD_TENANT_SET] = { "tenant_set", object_tenant },
	[KVCTX_CMD_TENANT_REMOVE] = { "tenant_removed", object_tenant },
};

static const char *const kinds[] = {
	[KVCTX_EVENT_STORED] = "page_stored",
	[KVCTX_EVENT_EVICTED] = "page_evicted",
	[KVCTX_EVENT_DELETED] = "page_deleted",
	[KVCTX_EVENT_DROPPED] = "page_dropped",
};

struct seen {
	const struct ctl *c;
	uint64_t nr;
};

static void put_time(char text[40])
{
	time_t now = time(NULL);
	struct tm tm;

	localtime_r(&now, &tm);
	strftime(text, 40, "%Y-%m-%dT%H:%M:%S%z", &tm);
}

static const char *pool_of(struct json_object *obj)
{
	return out_get(obj, "pool") ? out_get_text(obj, "pool") : out_get(obj, "name") ? out_get_text(obj, "name") : "";
}

/* Of a member that came or went, which one: an object of a pool has all of them, one of a member only that */
static void put_text(const char *when, const char *name, struct json_object *obj)
{
	struct json_object *members = out_get(obj, "members"), *m;

	printf("%s %-14s %s", when, name, pool_of(obj));
	if (out_get(obj, "tenant"))
		printf("/%s", out_get_text(obj, "tenant"));
	if (members && json_object_array_length(members) == 1 && strstr(name, "member")) {
		m = json_object_array_get_idx(members, 0);
		printf(" member %llu %s", (unsigned long long)out_get_number(m, "index"),
		       out_get(m, "device") ? out_get_text(m, "device") : "");
	}
	putchar('\n');
}

static void put_json(const char *when, const char *name, const char *pool, struct json_object *obj)
{
	struct json_object *root = out_root();

	out_text(root, "time", when);
	out_text(root, "event", name);
	out_text(root, "pool", pool);
	if (obj)
		out_add(root, "object", json_object_get(obj));
	out_json_line(root);
	json_object_put(root);
}

/* False: no more */
static bool enough(const struct seen *s)
{
	const struct ctl_value *count = &s->c->opt[OPT_COUNT];

	return (count->set && s->nr >= count->num) || ferror(stdout);
}

/* As the records of media have it: dump shows the same */
static struct json_object *object_page(const struct nl_object *o, const struct kvctx_event *e)
{
	struct json_object *obj = json_object_new_object();
	struct kvctx_key key = e->key;

	key.qualifier = htole64(key.qualifier);
	out_text(obj, "tenant", nla_get_string(o->attrs[KVCTX_A_TENANT]));
	out_hex(obj, "keyspace", nla_data(o->attrs[KVCTX_A_KEYSPACE]), KVCTX_KEYSPACE_LEN);
	out_hex(obj, "key", &key, sizeof(key));
	out_number(obj, "bytes", e->length);
	return obj;
}

static void put_page(const struct seen *s, const char *when, const char *pool, const char *name, struct json_object *obj)
{
	if (s->c->json)
		put_json(when, name, pool, obj);
	else
		printf("%s %-14s %s/%s %s %s %llu\n", when, name, pool, out_get_text(obj, "tenant"),
		       out_get_text(obj, "keyspace"), out_get_text(obj, "key"),
		       (unsigned long long)out_get_number(obj, "bytes"));
	json_object_put(obj);
}

static void put_untold(const struct seen *s, const char *when, const char *pool, uint64_t nr)
{
	struct json_object *obj;

	if (!s->c->json) {
		printf("%s %-14s %s %llu events of pages were not told: too many\n", when, "lost", pool,
		       (unsigned long long)nr);
		return;
	}
	obj = json_object_new_object();
	out_number(obj, "events", nr);
	put_json(when, "lost", pool, obj);
	json_object_put(obj);
}

static bool on_pages(struct seen *s, const struct nl_object *o)
{
	const struct nlattr *pages = o->attrs[KVCTX_A_PAGES];
	const char *pool = o->attrs[KVCTX_A_POOL] ? nla_get_string(o->attrs[KVCTX_A_POOL]) : "";
	struct kvctx_event e;
	char when[40];
	int at;

	if (!pages || !o->attrs[KVCTX_A_TENANT] || !o->attrs[KVCTX_A_KEYSPACE] ||
	    (s->c->nr_args && strcmp(pool, s->c->args[0])))
		return true;
	put_time(when);
	if (o->attrs[KVCTX_A_LOST])
		put_untold(s, when, pool, nla_get_u64(o->attrs[KVCTX_A_LOST]));
	for (at = 0; at + (int)sizeof(e) <= nla_len(pages) && !enough(s); at += (int)sizeof(e)) {
		memcpy(&e, (const char *)nla_data(pages) + at, sizeof(e));
		if (!e.kind || e.kind >= sizeof(kinds) / sizeof(*kinds))
			continue;
		put_page(s, when, pool, kinds[e.kind], object_page(o, &e));
		s->nr++;
	}
	fflush(stdout);
	return !enough(s);
}

static bool on_event(void *arg, uint8_t cmd, const struct nl_object *o)
{
	struct seen *s = arg;
	const struct ctl *c = s->c;
	struct json_object *obj;
	char when[40];

	if (cmd == KVCTX_CMD_PAGES)
		return on_pages(s, o);
	if (cmd > KVCTX_CMD_MAX || !events[cmd].object)
		return true;
	obj = events[cmd].object(o);
	if (!c->nr_args || !strcmp(pool_of(obj), c->args[0])) {
		put_time(when);
		if (c->json)
			put_json(when, events[cmd].name, pool_of(obj), obj);
		else
			put_text(when, events[cmd].name, obj);
		fflush(stdout);
		s->nr++;
	}
	json_object_put(obj);
	return !enough(s);
}

/* Some were not told, since nobody read them in time */
static bool on_lost(void *arg)
{
	struct seen *s = arg;
	char when[40];

	put_time(when);
	if (s->c->json)
		put_json(when, "lost", "", NULL);
	else
		printf("%s lost           some events were not told: the reader was too slow\n", when);
	fflush(stdout);
	return !ferror(stdout);
}

int cmd_events(struct ctl *c)
{
	struct seen s = { .c = c };

	return enough(&s) ? CTL_OK : nl_events(c, c->opt[OPT_PAGES].set, on_event, on_lost, &s);
}
