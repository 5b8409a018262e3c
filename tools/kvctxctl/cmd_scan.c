// SPDX-License-Identifier: GPL-2.0
/*
 * pool scan: shows what scan.c found.
 */
#include "out.h"
#include "scan.h"

static const struct out_column pool_columns[] = {
	{ "name", "pool", FORM_TEXT },
	{ "uuid", "uuid", FORM_TEXT },
	{ "state", "state", FORM_TEXT },
	{ NULL }
};

static const struct out_column member_columns[] = {
	{ "index", "MEMBER", FORM_NUMBER },
	{ "state", "STATE", FORM_TEXT },
	{ "signature", "HOLDS", FORM_TEXT },
	{ "device", "DEVICE", FORM_TEXT },
	{ NULL }
};

static const struct out_column damaged_columns[] = {
	{ "device", "DAMAGED", FORM_TEXT },
	{ "reason", "REASON", FORM_TEXT },
	{ NULL }
};

static const struct out_column skipped_columns[] = {
	{ "device", "SKIPPED", FORM_TEXT },
	{ "reason", "REASON", FORM_TEXT },
	{ NULL }
};

static struct json_object *scan_row(u32 index, const u8 *uuid, const char *state)
{
	struct json_object *o = out_object();

	out_number(o, "index", index);
	out_uuid(o, "uuid", uuid);
	out_text(o, "state", state);
	return o;
}

/* Rows of the finds that say they are member @index, or one that it is missing */
static void scan_rows(const struct scan *s, const struct found *p, u32 index, struct json_object *rows)
{
	bool any = kvc_super_hole(p->super, index) || index >= p->super->nr_members;

	for (u32 i = 0; i < s->nr; i++) {
		const struct find *f = &s->find[i];
		struct json_object *row;

		if (!scan_of_pool(f, p) || f->super->member_index != index)
			continue;
		row = scan_row(index, f->super->members[index].uuid, scan_find_text(f->state));
		out_text(row, "device", f->path);
		if (*f->what)
			out_text(row, "signature", f->what);
		out_append(rows, row);
		any |= f->state != FIND_STALE;
	}
	if (!any)
		out_append(rows, scan_row(index, p->super->members[index].uuid, "missing"));
}

static struct json_object *scan_pool_json(const struct scan *s, const struct found *p)
{
	struct json_object *o = out_object(), *rows = out_array();

	out_text(o, "name", p->super->pool_name);
	out_uuid(o, "uuid", p->super->pool_uuid);
	out_text(o, "state", scan_pool_text(p->state));
	out_number(o, "nr_members", media_members(p->super));
	out_number(o, "missing", p->missing);
	out_number(o, "segment_size", p->super->segment_size);
	for (u32 i = 0; i < KVC_MEMBERS_MAX; i++)
		scan_rows(s, p, i, rows);
	out_add(o, "members", rows);
	return o;
}

static void scan_put_others(struct json_object *devices, const struct out_column *columns)
{
	if (!json_object_array_length(devices))
		return;
	putchar('\n');
	out_table(devices, columns);
}

static void scan_put(const struct scan *s, struct json_object *pools)
{
	for (size_t i = 0; i < json_object_array_length(pools); i++) {
		struct json_object *pool = json_object_array_get_idx(pools, i);

		if (i)
			putchar('\n');
		out_fields(pool, pool_columns);
		putchar('\n');
		out_table(out_get(pool, "members"), member_columns);
	}
	if (!json_object_array_length(pools))
		puts("No pool found.");
	scan_put_others(s->damaged, damaged_columns);
	if (s->c->opt[OPT_VERBOSE].set)
		scan_put_others(s->skipped, skipped_columns);
}

/* What was asked for and could not be looked at is an error; so is the system's list when we may not open all of it. */
static int scan_status(const struct scan *s)
{
	size_t nr = json_object_array_length(s->failed);

	for (size_t i = 0; i < nr; i++) {
		struct json_object *o = json_object_array_get_idx(s->failed, i);

		ctl_error(out_get_text(o, "device"), "%s", out_get_text(o, "reason"));
	}
	if (s->denied && !nr)
		ctl_command_error(s->c, "%u block devices may not be opened; -v tells which", s->denied);
	return nr || s->denied ? CTL_NODEV : CTL_OK;
}

int cmd_pool_scan(struct ctl *c)
{
	struct json_object *root = out_root(), *pools = out_array();
	struct scan s;
	int status = scan_start(&s, c, c->args, c->nr_args);

	out_add(root, "pools", pools);
	for (u32 i = 0; i < s.nr_pools && !status; i++)
		out_append(pools, scan_pool_json(&s, &s.pool[i]));
	out_add(root, "damaged", json_object_get(s.damaged));
	out_add(root, "skipped", json_object_get(s.skipped));
	if (!status && c->json)
		out_json(root);
	else if (!status)
		scan_put(&s, pools);
	status = status ?: scan_status(&s);
	scan_end(&s);
	json_object_put(root);
	return status;
}
