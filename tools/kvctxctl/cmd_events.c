// SPDX-License-Identifier: GPL-2.0
/*
 * events: what happens to pools, members and tenants, as it happens.
 */
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
	[KVCTX_CMD_TENANT_ADD] = { "tenant_added", object_tenant },
	[KVCTX_CMD_TENANT_SET] = { "tenant_set", object_tenant },
	[KVCTX_CMD_TENANT_REMOVE] = { "tenant_removed", object_tenant },
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

static bool on_event(void *arg, uint8_t cmd, const struct nl_object *o)
{
	struct seen *s = arg;
	const struct ctl *c = s->c;
	struct json_object *obj;
	char when[40];

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

	return enough(&s) ? CTL_OK : nl_events(c, on_event, on_lost, &s);
}
