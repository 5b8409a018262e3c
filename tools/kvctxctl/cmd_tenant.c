// SPDX-License-Identifier: GPL-2.0
/*
 * tenant add, set, remove, list, show.
 */
#include <linux/kvctx.h>
#include <string.h>

#include "nl.h"
#include "out.h"

static const struct out_column columns[] = {
	{ "pool", "POOL", FORM_TEXT },
	{ "tenant", "TENANT", FORM_TEXT },
	{ "uid", "UID", FORM_NUMBER },
	{ "gid", "GID", FORM_NUMBER },
	{ "mode", "MODE", FORM_MODE },
	{ "sessions", "SESSIONS", FORM_NUMBER },
	{ "verified", "VERIFIED", FORM_TEXT },
	{ "bytes", "BYTES", FORM_SIZE },
	{ "quota", "QUOTA", FORM_SIZE },
	{ "leased", "LEASED", FORM_SIZE },
	{ "keyspaces", "KEYSPACES", FORM_NUMBER },
	{ "node", "NODE", FORM_TEXT },
	{ NULL }
};

static const struct out_column show_columns[] = {
	{ "pool", "pool", FORM_TEXT },
	{ "tenant", "tenant", FORM_TEXT },
	{ "node", "node", FORM_TEXT },
	{ "uid", "uid", FORM_NUMBER },
	{ "gid", "gid", FORM_NUMBER },
	{ "mode", "mode", FORM_MODE },
	{ "sessions", "sessions", FORM_NUMBER },
	{ "verified", "verified", FORM_TEXT },
	{ "encrypted", "encrypted", FORM_TEXT },
	{ "pages", "pages", FORM_NUMBER },
	{ "bytes", "bytes", FORM_SIZE },
	{ "pinned", "memory pinned", FORM_SIZE },
	{ "leased", "leased", FORM_SIZE },
	{ "keyspaces", "keyspaces", FORM_NUMBER },
	{ "quota", "quota", FORM_SIZE },
	{ "reserve", "reserve", FORM_SIZE },
	{ "write_budget", "write budget a day", FORM_SIZE },
	{ "write_budget_left", "left of it", FORM_SIZE },
	{ "max_pinned", "max pinned", FORM_SIZE },
	{ "max_leased", "max leased", FORM_SIZE },
	{ "max_keyspaces", "max keyspaces", FORM_NUMBER },
	{ "bandwidth", "bandwidth a second", FORM_SIZE },
	{ "max_inflight", "max in flight", FORM_NUMBER },
	{ "weight", "weight", FORM_NUMBER },
	{ "urgent", "urgent operations", FORM_TEXT },
	{ NULL }
};

/* Nothing comes back from the kernel but its consent */
static int change(struct ctl *c, const struct nl_request *rq)
{
	struct json_object *none = out_array();
	int status = nl_request(c, rq, none);

	json_object_put(none);
	return status;
}

static struct json_object *names(const struct ctl *c)
{
	struct json_object *obj = out_object();
	char node[128];

	out_text(obj, "pool", c->args[0]);
	out_text(obj, "tenant", c->args[1]);
	nl_node(c->args[0], c->args[1], node, sizeof(node));
	out_text(obj, "node", node);
	return obj;
}

static int done(const struct ctl *c, const char *key)
{
	struct json_object *root = out_root(), *obj = names(c);

	out_add(root, key, obj);
	if (c->json)
		out_json(root);
	else
		printf("%s: %s\n", key, out_get_text(obj, "node"));
	json_object_put(root);
	return CTL_OK;
}

static int usage(const struct ctl *c, const char *what)
{
	ctl_command_error(c, "%s", what);
	fprintf(stderr, "Try 'kvctxctl tenant %s --help'.\n", c->cmd->verb);
	return CTL_USAGE;
}

static bool contradicts(const struct ctl *c)
{
	return c->opt[OPT_NO_URGENT].set && c->opt[OPT_URGENT].set;
}

static bool limits_given(const struct ctl *c)
{
	for (int i = 0; i < OPT_NR; i++)
		if (OPTS_LIMITS >> i & 1 && c->opt[i].set)
			return true;
	return false;
}

int cmd_tenant_add(struct ctl *c)
{
	const struct ctl_value flags = { .set = c->opt[OPT_REQUIRE_VERIFIED].set, .num = KVCTX_TENANT_VERIFIED };
	struct nl_request rq = {
		.cmd = KVCTX_CMD_TENANT_ADD, .pool = c->args[0], .tenant = c->args[1],
		.uid = &c->opt[OPT_UID], .gid = &c->opt[OPT_GID], .mode = &c->opt[OPT_MODE],
		.flags = &flags, .limits = c->opt, .key = c->opt[OPT_KEY].text,
	};

	if (contradicts(c))
		return usage(c, "give --no-urgent or --urgent, not both");
	return change(c, &rq) ?: done(c, "added");
}

int cmd_tenant_set(struct ctl *c)
{
	bool require = c->opt[OPT_REQUIRE_VERIFIED].set, allow = c->opt[OPT_ALLOW_UNVERIFIED].set;
	const struct ctl_value flags = { .set = require || allow, .num = require ? KVCTX_TENANT_VERIFIED : 0 };
	struct nl_request rq = {
		.cmd = KVCTX_CMD_TENANT_SET, .pool = c->args[0], .tenant = c->args[1], .flags = &flags,
		.limits = c->opt, .unlock = c->opt[OPT_UNLOCK].set,
	};

	if (require ? allow : !allow && !rq.unlock && !limits_given(c))
		return usage(c, "give one of --require-verified and --allow-unverified, or limits, or --unlock");
	if (contradicts(c))
		return usage(c, "give --no-urgent or --urgent, not both");
	return change(c, &rq) ?: done(c, "set");
}

int cmd_tenant_remove(struct ctl *c)
{
	struct nl_request rq = {
		.cmd = KVCTX_CMD_TENANT_REMOVE, .pool = c->args[0], .tenant = c->args[1],
	};

	return change(c, &rq) ?: done(c, "removed");
}

/* As people read it: what is off is told so */
static void tenant_text(struct json_object *t)
{
	static const char *const limits[] = {
		"quota", "reserve", "write_budget", "max_pinned", "max_leased", "max_keyspaces", "bandwidth",
		"max_inflight",
	};

	char key[128];

	if (json_object_get_boolean(out_get(t, "require_verified")))
		out_text(t, "verified", "required");
	snprintf(key, sizeof(key), "key %s, %s", out_get_text(t, "key"), out_get_text(t, "key_state"));
	out_text(t, "encrypted", out_get(t, "key") ? key : "no");
	for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
		if (out_get(t, limits[i]) && !out_get_number(t, limits[i]))
			out_text(t, limits[i], "off");
	if (out_get(t, "no_urgent"))
		out_text(t, "urgent", json_object_get_boolean(out_get(t, "no_urgent")) ? "no" : "yes");
}

static void list_text(struct json_object *tenants)
{
	for (size_t i = 0; i < json_object_array_length(tenants); i++)
		tenant_text(json_object_array_get_idx(tenants, i));
	out_table(tenants, columns);
}

static struct json_object *find(struct json_object *tenants, const char *name)
{
	for (size_t i = 0; i < json_object_array_length(tenants); i++) {
		struct json_object *t = json_object_array_get_idx(tenants, i);

		if (!strcmp(out_get_text(t, "tenant"), name))
			return t;
	}
	return NULL;
}

static int show(const struct ctl *c, struct json_object *t)
{
	struct json_object *root;

	if (!t) {
		ctl_command_error(c, "no tenant named %s", c->args[1]);
		return CTL_NODEV;
	}
	if (c->json) {
		root = out_root();
		out_add(root, "tenant", json_object_get(t));
		out_json(root);
		json_object_put(root);
	} else {
		tenant_text(t);
		out_fields(t, show_columns);
	}
	return CTL_OK;
}

int cmd_tenant_show(struct ctl *c)
{
	struct nl_request rq = {
		.cmd = KVCTX_CMD_TENANT_GET, .dump = true, .object = object_tenant, .pool = c->args[0],
	};
	struct json_object *tenants = out_array();
	int status = nl_request(c, &rq, tenants) ?: show(c, find(tenants, c->args[1]));

	json_object_put(tenants);
	return status;
}

int cmd_tenant_list(struct ctl *c)
{
	struct nl_request rq = {
		.cmd = KVCTX_CMD_TENANT_GET, .dump = true, .object = object_tenant,
		.pool = c->nr_args ? c->args[0] : NULL,
	};
	struct json_object *root = out_root(), *tenants = out_array();
	int status;

	out_add(root, "tenants", tenants);
	status = nl_request(c, &rq, tenants);
	if (!status && c->json)
		out_json(root);
	else if (!status)
		list_text(tenants);
	json_object_put(root);
	return status;
}
