// SPDX-License-Identifier: GPL-2.0
/*
 * What check has found, as JSON or text. See cmd_check.c.
 */
#include <string.h>

#include "check.h"
#include "out.h"

static struct json_object *slots_json(const struct media *d)
{
	struct json_object *slots = out_array();
	u32 worn = kvc_super_worn(d->super, d->why, d->chosen);

	for (u32 i = 0; i < KVC_SUPER_SLOTS; i++) {
		struct json_object *o = out_object();
		bool valid = d->why[i] == KVC_OK;

		out_number(o, "slot", i);
		out_bool(o, "valid", valid);
		out_bool(o, "current", !(worn & BIT(i)));
		if (valid)
			out_number(o, "seq", d->super[i].seq);
		else
			out_text(o, "reason", d->err[i] ? strerror(d->err[i]) : kvc_reason_str(d->why[i]));
		out_append(slots, o);
	}
	return slots;
}

static struct json_object *member_json(const struct check *k, u32 i)
{
	const struct kvc_super_member *m = &k->super->members[i];
	struct json_object *o = out_object();
	const struct tally *t = &k->tally[i];

	out_number(o, "index", i);
	out_text(o, "device", k->member[i] ? k->member[i]->path : "missing");
	out_uuid(o, "uuid", m->uuid);
	out_number(o, "segments", m->nr_segments);
	if (!k->member[i])
		return o;
	out_number(o, "seq", k->member[i]->super[k->member[i]->chosen].seq);
	out_add(o, "slots", slots_json(k->member[i]));
	out_number(o, "blank", t->blank);
	out_number(o, "empty", t->empty);
	out_number(o, "logs", t->logs);
	out_number(o, "damaged", t->damaged);
	out_number(o, "page_records", t->pages);
	out_number(o, "tombstones", t->tombstones);
	out_number(o, "refused", t->refused);
	return o;
}

static struct json_object *tenants_json(const struct check *k)
{
	struct json_object *tenants = out_array();

	for (u32 i = 0; i < KVC_TENANTS_MAX; i++) {
		const struct kvc_super_tenant *t = &k->super->tenants[i];
		struct json_object *o;

		if (!(t->flags & KVC_TENANT_USED))
			continue;
		o = out_object();
		out_text(o, "tenant", t->name);
		out_number(o, "pages", k->tenant[i].pages);
		out_number(o, "bytes", k->tenant[i].bytes);
		out_number(o, "quota", k->super->limits[i].quota);
		out_number(o, "reserve", k->super->limits[i].reserve);
		out_append(tenants, o);
	}
	return tenants;
}

static struct json_object *data_json(const struct check *k)
{
	struct json_object *o = out_object();

	out_number(o, "pages", k->data_pages);
	out_number(o, "bytes", k->data_bytes);
	out_number(o, "without_checksums", k->unverifiable);
	out_number(o, "bad", k->bad_pages);
	return o;
}

static struct json_object *check_json(const struct check *k)
{
	struct json_object *o = out_object(), *members = out_array();
	struct kvc_stats st;

	kvc_stats_get(k->pool, &st);
	out_text(o, "pool", k->super->pool_name);
	out_uuid(o, "uuid", k->super->pool_uuid);
	out_bool(o, "sound", !k->nr_damage);
	out_number(o, "segment_size", k->super->segment_size);
	out_number(o, "chunk_size", k->super->chunk_size);
	out_number(o, "pages", st.pages);
	out_number(o, "bytes", st.bytes);
	out_number(o, "refused", st.recover_skipped);
	for (u32 i = 0; i < k->super->nr_members; i++)
		if (!kvc_super_hole(k->super, i))
			out_append(members, member_json(k, i));
	out_add(o, "members", members);
	out_add(o, "tenants", tenants_json(k));
	if (k->c->opt[OPT_DATA].set)
		out_add(o, "data", data_json(k));
	out_number(o, "nr_damage", k->nr_damage);
	out_add(o, "damage", json_object_get(k->damage));
	return o;
}

static const struct out_column pool_fields[] = {
	{ "pool", "Pool", FORM_TEXT },			{ "uuid", "UUID", FORM_TEXT },
	{ "segment_size", "Segment", FORM_SIZE },	{ "chunk_size", "Chunk", FORM_SIZE },
	{ "pages", "Pages", FORM_NUMBER },		{ "bytes", "Bytes", FORM_SIZE },
	{ "refused", "Refused", FORM_NUMBER },		{ NULL, NULL, FORM_TEXT },
};

static const struct out_column member_columns[] = {
	{ "index", "MEMBER", FORM_NUMBER },	{ "segments", "SEGMENTS", FORM_NUMBER },
	{ "blank", "BLANK", FORM_NUMBER },	{ "empty", "EMPTY", FORM_NUMBER },
	{ "logs", "LOGS", FORM_NUMBER },	{ "damaged", "DAMAGED", FORM_NUMBER },
	{ "page_records", "RECORDS", FORM_NUMBER }, { "tombstones", "TOMBSTONES", FORM_NUMBER },
	{ "device", "DEVICE", FORM_TEXT },	{ NULL, NULL, FORM_TEXT },
};

static const struct out_column tenant_columns[] = {
	{ "pages", "PAGES", FORM_NUMBER },	{ "bytes", "BYTES", FORM_SIZE },
	{ "quota", "QUOTA", FORM_SIZE },	{ "reserve", "RESERVE", FORM_SIZE },
	{ "tenant", "TENANT", FORM_TEXT },	{ NULL, NULL, FORM_TEXT },
};

static void print_slots(struct json_object *member)
{
	struct json_object *slots = out_get(member, "slots");

	for (size_t i = 0; slots && i < json_object_array_length(slots); i++) {
		struct json_object *o = json_object_array_get_idx(slots, i);

		printf("%s: superblock slot %llu: ", out_get_text(member, "device"),
		       (unsigned long long)out_get_number(o, "slot"));
		if (json_object_get_boolean(out_get(o, "valid")))
			printf("valid, sequence %llu%s\n", (unsigned long long)out_get_number(o, "seq"),
			       json_object_get_boolean(out_get(o, "current")) ? "" : ", not current");
		else
			printf("%s\n", out_get_text(o, "reason"));
	}
}

/* "damage: DEVICE: WHAT: segment 3: block 17: REASON" */
static void print_damage(struct json_object *d)
{
	static const char *const numbers[] = { "segment", "block", "chunk" };

	fputs("damage: ", stdout);
	if (out_get(d, "device"))
		printf("%s: ", out_get_text(d, "device"));
	printf("%s", out_get_text(d, "what"));
	if (out_get(d, "key"))
		printf(" %s", out_get_text(d, "key"));
	for (int i = 0; i < 3; i++)
		if (out_get(d, numbers[i]))
			printf(": %s %llu", numbers[i], (unsigned long long)out_get_number(d, numbers[i]));
	if (out_get(d, "reason"))
		printf(": %s", out_get_text(d, "reason"));
	putchar('\n');
}

static void print_text(struct json_object *o)
{
	struct json_object *members = out_get(o, "members"), *damage = out_get(o, "damage"), *data = out_get(o, "data");
	u64 nr = out_get_number(o, "nr_damage");

	out_fields(o, pool_fields);
	putchar('\n');
	out_table(members, member_columns);
	putchar('\n');
	for (size_t i = 0; i < json_object_array_length(members); i++)
		print_slots(json_object_array_get_idx(members, i));
	putchar('\n');
	out_table(out_get(o, "tenants"), tenant_columns);
	putchar('\n');
	if (data)
		printf("Read %llu pages, %llu of them without checksums: %llu bad.\n",
		       (unsigned long long)out_get_number(data, "pages"),
		       (unsigned long long)out_get_number(data, "without_checksums"),
		       (unsigned long long)out_get_number(data, "bad"));
	for (size_t i = 0; i < json_object_array_length(damage); i++)
		print_damage(json_object_array_get_idx(damage, i));
	if (nr > json_object_array_length(damage))
		printf("... and %llu more\n", (unsigned long long)(nr - json_object_array_length(damage)));
	if (nr)
		printf("Damaged: %llu finding%s.\n", (unsigned long long)nr, nr == 1 ? "" : "s");
	else
		puts("Sound.");
}

void check_report(const struct check *k)
{
	struct json_object *root = out_root(), *o = check_json(k);

	out_add(root, "check", o);
	if (k->c->json)
		out_json(root);
	else
		print_text(o);
	json_object_put(root);
}
