// SPDX-License-Identifier: GPL-2.0
/*
 * tenant add, set, remove, list.
 */
#include <linux/kvctx.h>

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
	{ "node", "NODE", FORM_TEXT },
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

int cmd_tenant_add(struct ctl *c)
{
	const struct ctl_value flags = { .set = c->opt[OPT_REQUIRE_VERIFIED].set, .num = KVCTX_TENANT_VERIFIED };
	struct nl_request rq = {
		.cmd = KVCTX_CMD_TENANT_ADD, .pool = c->args[0], .tenant = c->args[1],
		.uid = &c->opt[OPT_UID], .gid = &c->opt[OPT_GID], .mode = &c->opt[OPT_MODE],
		.flags = &flags,
	};

	return change(c, &rq) ?: done(c, "added");
}

int cmd_tenant_set(struct ctl *c)
{
	bool require = c->opt[OPT_REQUIRE_VERIFIED].set;
	const struct ctl_value flags = { .set = true, .num = require ? KVCTX_TENANT_VERIFIED : 0 };
	struct nl_request rq = {
		.cmd = KVCTX_CMD_TENANT_SET, .pool = c->args[0], .tenant = c->args[1], .flags = &flags,
	};

	if (require == c->opt[OPT_ALLOW_UNVERIFIED].set) {
		ctl_command_error(c, "give one of --require-verified and --allow-unverified");
		fputs("Try 'kvctxctl tenant set --help'.\n", stderr);
		return CTL_USAGE;
	}
	return change(c, &rq) ?: done(c, "set");
}

int cmd_tenant_remove(struct ctl *c)
{
	struct nl_request rq = {
		.cmd = KVCTX_CMD_TENANT_REMOVE, .pool = c->args[0], .tenant = c->args[1],
	};

	return change(c, &rq) ?: done(c, "removed");
}

static void list_text(struct json_object *tenants)
{
	for (size_t i = 0; i < json_object_array_length(tenants); i++) {
		struct json_object *t = json_object_array_get_idx(tenants, i);

		if (json_object_get_boolean(out_get(t, "require_verified")))
			out_text(t, "verified", "required");
	}
	out_table(tenants, columns);
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
