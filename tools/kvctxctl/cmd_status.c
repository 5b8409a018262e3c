// SPDX-License-Identifier: GPL-2.0
/*
 * status: one screen. Who serves pools here, how these are, which others there are, and what there is to do.
 *
 * Each thing that somebody should do is a sentence of "advice"; a host without any is well.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "nl.h"
#include "out.h"
#include "scan.h"

struct status {
	struct ctl module, daemon;	/* the command, to be asked of either */
	bool daemon_runs;
	struct json_object *pools, *found, *advice;
};

static const struct out_column pool_columns[] = {
	{ "pool", "POOL", FORM_TEXT },		{ "served_by", "SERVED BY", FORM_TEXT },
	{ "state", "STATE", FORM_TEXT },	{ "members_text", "MEMBERS", FORM_TEXT },
	{ "capacity", "CAPACITY", FORM_SIZE },	{ "bytes", "PAGES", FORM_SIZE },
	{ "tenants", "TENANTS", FORM_NUMBER },	{ "sessions", "SESSIONS", FORM_NUMBER },
	{ NULL }
};

static const struct out_column found_columns[] = {
	{ "name", "NOT ATTACHED", FORM_TEXT },	{ "state", "STATE", FORM_TEXT },
	{ "missing", "MISSING", FORM_NUMBER },	{ "uuid", "UUID", FORM_TEXT },
	{ NULL }
};

static __printf(2, 3) void advise(struct status *s, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	out_append(s->advice, json_object_new_string(text));
}

/* Of a pool in service */

static bool is_of(struct json_object *o, const char *pool)
{
	return !strcmp(out_get_text(o, "pool"), pool);
}

static bool is_online(struct json_object *member)
{
	const char *state = out_get_text(member, "state");

	return !strcmp(state, "online") || !strcmp(state, "leaving");
}

/* The last one cannot be taken out */
static void advise_member(struct status *s, const char *pool, struct json_object *m, u64 online)
{
	unsigned long long index = out_get_number(m, "index");
	char remove[128] = "";

	if (is_online(m))
		return;
	if (online)
		snprintf(remove, sizeof(remove), "; or take it out: kvctxctl pool remove %.64s %llu", pool, index);
	advise(s, "%s: member %llu (%s) is %s, its pages are misses. Put it right, then detach and attach the pool%s", pool,
	       index, out_get_text(m, "device"), out_get_text(m, "state"), remove);
}

static u64 members_online(struct status *s, const char *pool, struct json_object *members)
{
	size_t nr = json_object_array_length(members);
	u64 online = 0;

	for (size_t i = 0; i < nr; i++)
		online += is_online(json_object_array_get_idx(members, i));
	for (size_t i = 0; i < nr; i++)
		advise_member(s, pool, json_object_array_get_idx(members, i), online);
	return online;
}

static void add_tenants(struct status *s, struct json_object *row, const char *pool, struct json_object *tenants)
{
	u64 nr = 0, sessions = 0;

	for (size_t i = 0; i < json_object_array_length(tenants); i++) {
		struct json_object *t = json_object_array_get_idx(tenants, i);

		if (!is_of(t, pool))
			continue;
		nr++;
		sessions += out_get_number(t, "sessions");
		if (out_get(t, "key_state") && strcmp(out_get_text(t, "key_state"), "used"))
			advise(s, "%s/%s: its key is %s, so its pages are misses. With the key in your keyrings: kvctxctl "
				  "tenant set %s %s --unlock", pool, out_get_text(t, "tenant"),
			       out_get_text(t, "key_state"), pool, out_get_text(t, "tenant"));
	}
	out_number(row, "tenants", nr);
	out_number(row, "sessions", sessions);
}

static void add_counters(struct status *s, struct json_object *row, const char *pool, struct json_object *stats)
{
	static const char *const shown[] = { "pages", "bytes", "bad_pages", "io_errors", "recover_dropped" };

	for (size_t i = 0; i < json_object_array_length(stats); i++) {
		struct json_object *o = json_object_array_get_idx(stats, i);

		for (size_t j = 0; is_of(o, pool) && j < sizeof(shown) / sizeof(*shown); j++)
			if (out_get(o, shown[j]))
				out_number(row, shown[j], out_get_number(o, shown[j]));
	}
	if (out_get_number(row, "bad_pages"))
		advise(s, "%s: %llu pages failed verification since attach, and were dropped. A device damages what it "
			  "keeps; kvctxctl check --data tells where, when the pool is detached", pool,
		       (unsigned long long)out_get_number(row, "bad_pages"));
	if (out_get_number(row, "io_errors"))
		advise(s, "%s: %llu transfers failed since attach; the kernel's log says of which device", pool,
		       (unsigned long long)out_get_number(row, "io_errors"));
	if (out_get_number(row, "recover_dropped"))
		advise(s, "%s: %llu pages found no place in the index at attach; its limit is index_limit in kvctxctl stat",
		       pool, (unsigned long long)out_get_number(row, "recover_dropped"));
}

/* What the module, or kvctxd, serves */
static int ask(struct status *s, const struct ctl *c, const char *served_by)
{
	struct nl_request pool_rq = { .cmd = KVCTX_CMD_POOL_GET, .dump = true, .object = object_pool };
	struct nl_request tenant_rq = { .cmd = KVCTX_CMD_TENANT_GET, .dump = true, .object = object_tenant };
	struct nl_request stats_rq = { .cmd = KVCTX_CMD_STATS_GET, .dump = true, .object = object_stats };
	struct json_object *pools = out_array(), *tenants = out_array(), *stats = out_array();
	int status = nl_request(c, &pool_rq, pools) ?: nl_request(c, &tenant_rq, tenants) ?:
		     nl_request(c, &stats_rq, stats);

	for (size_t i = 0; !status && i < json_object_array_length(pools); i++) {
		struct json_object *p = json_object_array_get_idx(pools, i), *row = out_object();
		const char *name = out_get_text(p, "name");

		out_text(row, "pool", name);
		out_text(row, "uuid", out_get_text(p, "uuid"));
		out_text(row, "served_by", served_by);
		out_text(row, "state", out_get_text(p, "state"));
		out_number(row, "members", json_object_array_length(out_get(p, "members")));
		out_number(row, "members_online", members_online(s, name, out_get(p, "members")));
		out_number(row, "capacity", out_get_number(p, "capacity"));
		add_tenants(s, row, name, tenants);
		add_counters(s, row, name, stats);
		out_append(s->pools, row);
	}
	json_object_put(pools);
	json_object_put(tenants);
	json_object_put(stats);
	return status;
}

/* One that was named has to be there */
static int ask_daemon(struct status *s, bool named)
{
	int err = named ? 0 : nl_socket_try(s->daemon.opt[OPT_SOCKET].text), status;

	if (err == EACCES)
		advise(s, "the socket of kvctxd may not be opened: ask again as root, and its pools are shown");
	if (err)
		return CTL_OK;
	status = ask(s, &s->daemon, "kvctxd");
	s->daemon_runs = !status;
	return status;
}

/* Of a pool that is not in service */

static bool is_served(const struct status *s, const char *uuid)
{
	for (size_t i = 0; i < json_object_array_length(s->pools); i++)
		if (!strcmp(out_get_text(json_object_array_get_idx(s->pools, i), "uuid"), uuid))
			return true;
	return false;
}

/* One that is in use as a whole is served by a process, which is well */
static void add_found(struct status *s, const struct scan *scan, const struct found *p)
{
	bool used = scan_is_used(scan, p);
	const char *name = p->super->pool_name;
	struct json_object *row;
	char uuid[37];

	ctl_uuid_text(p->super->pool_uuid, uuid);
	if (is_served(s, uuid))
		return;
	row = out_object();
	out_text(row, "name", name);
	out_text(row, "uuid", uuid);
	out_text(row, "state", used ? "in_use" : scan_pool_text(p->state));
	out_number(row, "missing", used ? 0 : p->missing);
	out_append(s->found, row);
	if (used)
		return;
	if (p->state == FOUND_COMPLETE)
		advise(s, "%s: all its members are here, and it is not attached: kvctxctl pool attach %s", name, name);
	else
		advise(s, "%s: not attached, and %s: kvctxctl pool scan tells of its members", name,
		       scan_pool_text(p->state));
}

/* Looked for where we may: who is not root hears that he has not seen all */
static int look(struct status *s)
{
	struct scan scan;
	int status = scan_start(&scan, &s->module, NULL, 0);

	for (u32 i = 0; !status && i < scan.nr_pools; i++)
		if (scan.pool[i].state != FOUND_ATTACHED)
			add_found(s, &scan, &scan.pool[i]);
	if (!status && scan.denied)
		advise(s, geteuid() ? "%u block devices may not be opened: ask again as root, and pools that are not attached are shown" :
		       "%u block devices may not be opened, by root either: does a device cgroup or a container forbid it?",
		       scan.denied);
	scan_end(&scan);
	return status;
}

static void advise_beginner(struct status *s, enum module_state module)
{
	if (module == MODULE_ABSENT && !s->daemon_runs)
		advise(s, "nothing serves pools: no module is installed for the running kernel (kvctx-dkms builds it), and "
			  "no kvctxd runs (systemctl enable --now kvctxd)");
	else if (!json_object_array_length(s->pools) && !json_object_array_length(s->found))
		advise(s, "there is no pool yet: kvctxctl pool format NAME DEVICE..., then kvctxctl pool attach NAME");
}

/* Output */

static void put_text(struct status *s, enum module_state module)
{
	static const char *const modules[] = {
		[MODULE_ABSENT] = "not installed", [MODULE_INSTALLED] = "not loaded", [MODULE_LOADED] = "loaded",
	};

	printf("module  %s\nkvctxd  %s\n", modules[module], s->daemon_runs ? "runs" : "does not run");
	for (size_t i = 0; i < json_object_array_length(s->pools); i++) {
		struct json_object *row = json_object_array_get_idx(s->pools, i);
		char text[64];

		snprintf(text, sizeof(text), "%llu of %llu", (unsigned long long)out_get_number(row, "members_online"),
			 (unsigned long long)out_get_number(row, "members"));
		out_text(row, "members_text", text);
	}
	if (json_object_array_length(s->pools)) {
		putchar('\n');
		out_table(s->pools, pool_columns);
	}
	if (json_object_array_length(s->found)) {
		putchar('\n');
		out_table(s->found, found_columns);
	}
	putchar('\n');
	for (size_t i = 0; i < json_object_array_length(s->advice); i++)
		printf("- %s.\n", json_object_get_string(json_object_array_get_idx(s->advice, i)));
	if (!json_object_array_length(s->advice))
		puts("All is well.");
}

static void put_json(struct status *s, enum module_state module)
{
	struct json_object *root = out_root(), *o = out_object();

	out_bool(o, "module_installed", module != MODULE_ABSENT);
	out_bool(o, "module_loaded", module == MODULE_LOADED);
	out_bool(o, "daemon", s->daemon_runs);
	out_add(o, "pools", json_object_get(s->pools));
	out_add(o, "found", json_object_get(s->found));
	out_add(o, "advice", json_object_get(s->advice));
	out_add(root, "status", o);
	out_json(root);
	json_object_put(root);
}

int cmd_status(struct ctl *c)
{
	struct status s = {
		.module = nl_to_module(c), .daemon = *c,
		.pools = out_array(), .found = out_array(), .advice = out_array(),
	};
	enum module_state module = module_look();
	const char *socket = nl_socket_path(c);
	int status = CTL_OK;

	s.daemon.opt[OPT_SOCKET] = (struct ctl_value){ .set = true, .text = socket ?: NL_DAEMON_SOCKET };
	if (module == MODULE_LOADED)
		status = ask(&s, &s.module, "module");
	status = status ?: ask_daemon(&s, socket) ?: look(&s);
	if (!status) {
		advise_beginner(&s, module);
		if (c->json)
			put_json(&s, module);
		else
			put_text(&s, module);
	}
	json_object_put(s.pools);
	json_object_put(s.found);
	json_object_put(s.advice);
	return status;
}
