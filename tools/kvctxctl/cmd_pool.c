// SPDX-License-Identifier: GPL-2.0
/*
 * pool detach, list, show, set; the paths to peers' memory are in peers.c.
 */
#include <string.h>

#include "../../kmod/core/media/format.h"
#include "nl.h"
#include "out.h"

static const struct out_column list_columns[] = {
	{ "name", "POOL", FORM_TEXT },
	{ "state", "STATE", FORM_TEXT },
	{ "nr_members", "MEMBERS", FORM_NUMBER },
	{ "capacity", "CAPACITY", FORM_SIZE },
	{ "free", "FREE", FORM_SIZE },
	{ "segment_size", "SEGMENT", FORM_SIZE },
	{ NULL }
};

static const struct out_column show_columns[] = {
	{ "name", "pool", FORM_TEXT },
	{ "uuid", "uuid", FORM_TEXT },
	{ "state", "state", FORM_TEXT },
	{ "capacity", "capacity", FORM_SIZE },
	{ "free", "free", FORM_SIZE },
	{ "segment_size", "segment size", FORM_SIZE },
	{ "chunk_size", "chunk size", FORM_SIZE },
	{ "page_len_max", "longest page", FORM_SIZE },
	{ "attach_bytes", "attach read", FORM_SIZE },
	{ "attach_us", "attach took us", FORM_NUMBER },
	{ "discard", "discard", FORM_TEXT },
	{ "budget", "write budget", FORM_TEXT },
	{ NULL }
};

static const struct out_column member_columns[] = {
	{ "index", "MEMBER", FORM_NUMBER },
	{ "size", "SIZE", FORM_SIZE },
	{ "segments", "SEGMENTS", FORM_NUMBER },
	{ "segments_free", "FREE", FORM_NUMBER },
	{ "state", "STATE", FORM_TEXT },
	{ "device", "DEVICE", FORM_TEXT },
	{ NULL }
};

static void settings_text(struct json_object *pool)
{
	uint64_t rate = out_get_number(pool, "discard_rate"), budget = out_get_number(pool, "write_budget");
	char text[80], size[32], left[32];

	out_size_text(rate, size, sizeof(size));
	snprintf(text, sizeof(text), "%s/s", size);
	if (out_get(pool, "discard_rate"))
		out_text(pool, "discard", rate ? text : "off");
	out_size_text(budget, size, sizeof(size));
	out_size_text(out_get_number(pool, "write_budget_left"), left, sizeof(left));
	snprintf(text, sizeof(text), "%s a day, %s left now", size, left);
	if (out_get(pool, "write_budget"))
		out_text(pool, "budget", budget ? text : "off");
}

int pool_put(const struct ctl *c, struct json_object *pools, const char *headline)
{
	struct json_object *pool = json_object_array_get_idx(pools, 0), *root;

	if (!pool) {
		json_object_put(pools);
		ctl_command_error(c, "the kernel sent no answer");
		return CTL_FAILED;
	}
	if (c->json) {
		root = out_root();
		out_add(root, "pool", json_object_get(pool));
		out_json(root);
		json_object_put(root);
	} else {
		if (headline)
			puts(headline);
		settings_text(pool);
		out_fields(pool, show_columns);
		putchar('\n');
		out_table(out_get(pool, "members"), member_columns);
		peers_put(pool);
	}
	json_object_put(pools);
	return CTL_OK;
}

int cmd_pool_detach(struct ctl *c)
{
	struct nl_request rq = { .cmd = KVCTX_CMD_POOL_DETACH, .pool = c->args[0] };
	struct json_object *none = out_array(), *root;
	int status = nl_request(c, &rq, none);

	json_object_put(none);
	if (status)
		return status;
	if (!c->json) {
		printf("Pool %s detached.\n", c->args[0]);
		return CTL_OK;
	}
	root = out_root();
	out_text(root, "detached", c->args[0]);
	out_json(root);
	json_object_put(root);
	return CTL_OK;
}

int cmd_pool_set(struct ctl *c)
{
	struct ctl_value rate = c->opt[OPT_DISCARD];
	struct nl_request rq = {
		.cmd = KVCTX_CMD_POOL_SET, .pool = c->args[0],
		.discard_rate = &rate, .write_budget = &c->opt[OPT_WRITE_BUDGET],
	};
	struct json_object *none, *root;
	int status;

	if (!rate.set && !c->opt[OPT_WRITE_BUDGET].set) {
		ctl_command_error(c, "give --discard, --write-budget or both");
		fputs("Try 'kvctxctl pool set --help'.\n", stderr);
		return CTL_USAGE;
	}
	if (rate.num == CTL_DEFAULT)
		rate.num = KVC_DISCARD_DEFAULT;
	none = out_array();
	status = nl_request(c, &rq, none);
	json_object_put(none);
	if (status)
		return status;
	if (!c->json) {
		printf("Pool %s set.\n", c->args[0]);
		return CTL_OK;
	}
	root = out_root();
	out_text(root, "set", c->args[0]);
	out_json(root);
	json_object_put(root);
	return CTL_OK;
}

static void list_text(struct json_object *pools)
{
	for (size_t i = 0; i < json_object_array_length(pools); i++) {
		struct json_object *pool = json_object_array_get_idx(pools, i);

		out_number(pool, "nr_members", json_object_array_length(out_get(pool, "members")));
	}
	out_table(pools, list_columns);
}

int cmd_pool_list(struct ctl *c)
{
	struct nl_request rq = { .cmd = KVCTX_CMD_POOL_GET, .dump = true, .object = object_pool };
	struct json_object *root = out_root(), *pools = out_array();
	int status;

	out_add(root, "pools", pools);
	status = nl_request(c, &rq, pools);
	if (!status && c->json)
		out_json(root);
	else if (!status)
		list_text(pools);
	json_object_put(root);
	return status;
}

int cmd_pool_show(struct ctl *c)
{
	struct nl_request rq = { .cmd = KVCTX_CMD_POOL_GET, .pool = c->args[0], .object = object_pool };
	struct json_object *pools = out_array();
	int status = nl_request(c, &rq, pools);

	if (!status)
		status = peers_get(c, json_object_array_get_idx(pools, 0));
	if (!status)
		return pool_put(c, pools, NULL);
	json_object_put(pools);
	return status;
}
