// SPDX-License-Identifier: GPL-2.0
/*
 * dump: one structure of a device, field by field.
 *
 * A superblock slot with the right magic is shown as it lies there, whatever is wrong with it, and what is wrong beside
 * it; extents and records as far as the core's decoder goes along the log. Nothing that was read is used as a number
 * of things without being bounded, nor printed as text without being looked at.
 */
#include <errno.h>
#include <string.h>

#include "../../kmod/core/media/format_media.h"
#include "media.h"
#include "out.h"

struct dump {
	const struct ctl *c;
	struct media dev;
	u8 *buf;			/* KVC_EXTENT_MAX */
	bool damaged;			/* something that was shown is */
};

static void add_hex_number(struct json_object *o, const char *key, u64 num)
{
	char text[24];

	snprintf(text, sizeof(text), "0x%llx", (unsigned long long)num);
	out_text(o, key, text);
}

/* A name as it lies there: what is no printable character is shown as \xNN */
static void add_name(struct json_object *o, const char *key, const char *name)
{
	char text[4 * KVC_NAME_MAX + 1] = "";
	size_t n = 0;

	for (int i = 0; i < KVC_NAME_MAX && name[i]; i++) {
		unsigned char ch = (unsigned char)name[i];
		bool plain = ch > ' ' && ch < 0x7f && ch != '\\';

		n += (size_t)sprintf(text + n, plain ? "%c" : "\\x%02x", ch);
	}
	out_text(o, key, text);
}

/* Superblock */

static struct json_object *members_json(const struct kvc_media_super *m)
{
	struct json_object *members = out_array();

	for (u32 i = 0; i < KVC_MEMBERS_MAX && i < le32_to_cpu(m->nr_members); i++) {
		struct json_object *o = out_object();

		out_number(o, "index", i);
		out_uuid(o, "uuid", m->members[i].uuid);
		out_number(o, "segments", le32_to_cpu(m->members[i].nr_segments));
		out_bool(o, "absent", le32_to_cpu(m->members[i].flags) & KVC_MEMBER_ABSENT);
		out_append(members, o);
	}
	return members;
}

static void add_limits(struct json_object *o, const struct kvc_media_limits *l)
{
	out_number(o, "quota", le64_to_cpu(l->quota));
	out_number(o, "reserve", le64_to_cpu(l->reserve));
	out_number(o, "write_budget", le64_to_cpu(l->write_budget));
	out_number(o, "bandwidth", le64_to_cpu(l->bandwidth));
	out_number(o, "max_pinned", le64_to_cpu(l->pinned));
	out_number(o, "max_leased", le64_to_cpu(l->leased));
	out_number(o, "max_inflight", le32_to_cpu(l->inflight));
	out_number(o, "max_keyspaces", le32_to_cpu(l->keyspaces));
	out_number(o, "weight", le32_to_cpu(l->weight));
	add_hex_number(o, "limit_flags", le32_to_cpu(l->flags));
}

static void add_key(struct json_object *o, const struct kvc_media_key *k)
{
	char name[KVC_KEY_NAME_MAX + 1] = "";

	memcpy(name, k->name, KVC_KEY_NAME_MAX);
	out_text(o, "key", name);
	out_hex(o, "key_check", k->check, KVC_KEY_CHECK);
}

/* The slots that are used, or were */
static struct json_object *tenants_json(const struct kvc_media_super *m)
{
	struct json_object *tenants = out_array();

	for (u32 i = 0; i < KVC_TENANTS_MAX; i++) {
		const struct kvc_media_tenant *t = &m->tenants[i];
		struct json_object *o;

		if (!t->flags && !t->epoch)
			continue;
		o = out_object();
		out_number(o, "slot", i);
		add_name(o, "tenant", t->name);
		add_hex_number(o, "flags", le32_to_cpu(t->flags));
		out_number(o, "epoch", le32_to_cpu(t->epoch));
		out_number(o, "uid", le32_to_cpu(t->uid));
		out_number(o, "gid", le32_to_cpu(t->gid));
		out_number(o, "mode", le32_to_cpu(t->mode));
		if (le64_to_cpu(m->ro_compat) & KVC_RO_COMPAT_LIMITS)
			add_limits(o, &m->limits[i]);
		if (le64_to_cpu(m->incompat) & KVC_INCOMPAT_KEYS && m->keys[i].name[0])
			add_key(o, &m->keys[i]);
		out_append(tenants, o);
	}
	return tenants;
}

static void add_super(struct json_object *o, const struct kvc_media_super *m)
{
	out_number(o, "version", le32_to_cpu(m->version));
	add_hex_number(o, "crc", le32_to_cpu(m->crc));
	out_number(o, "seq", le64_to_cpu(m->seq));
	add_hex_number(o, "compat", le64_to_cpu(m->compat));
	add_hex_number(o, "ro_compat", le64_to_cpu(m->ro_compat));
	add_hex_number(o, "incompat", le64_to_cpu(m->incompat));
	out_uuid(o, "uuid", m->pool_uuid);
	add_name(o, "pool", m->pool_name);
	out_number(o, "segment_size", le64_to_cpu(m->segment_size));
	out_number(o, "chunk_size", le32_to_cpu(m->chunk_size));
	out_number(o, "discard_rate", le64_to_cpu(m->discard_rate));
	out_number(o, "write_budget", le64_to_cpu(m->write_budget));
	out_number(o, "nr_members", le32_to_cpu(m->nr_members));
	out_number(o, "member_index", le32_to_cpu(m->member_index));
	out_add(o, "members", members_json(m));
	out_add(o, "tenants", tenants_json(m));
}

static struct json_object *slot_json(struct dump *u, u32 slot)
{
	const struct kvc_media_super *m = (const void *)u->buf;
	u64 offset = kvc_super_offset(slot, u->dev.size);
	int err = media_read(&u->dev, u->buf, KVC_SUPER_BYTES, offset);
	struct json_object *o = out_object();

	out_number(o, "slot", slot);
	out_number(o, "offset", offset);
	out_bool(o, "valid", !err && u->dev.why[slot] == KVC_OK);
	if (err || u->dev.why[slot] != KVC_OK)
		out_text(o, "reason", err ? strerror(err) : kvc_reason_str(u->dev.why[slot]));
	out_bool(o, "counts", slot == u->dev.chosen);
	u->damaged |= err || u->dev.why[slot] != KVC_OK;
	if (!err && u->dev.why[slot] != KVC_BAD_MAGIC)
		add_super(o, m);
	return o;
}

static int dump_super(struct dump *u, struct json_object *root)
{
	struct json_object *slots = out_array();
	bool any = false;

	for (u32 i = 0; i < KVC_SUPER_SLOTS; i++)
		any |= u->dev.why[i] != KVC_BAD_MAGIC;
	if (!any) {
		json_object_put(slots);
		return media_no_super(&u->dev);
	}
	for (u32 i = 0; i < KVC_SUPER_SLOTS; i++)
		out_append(slots, slot_json(u, i));
	out_add(root, "superblocks", slots);
	return CTL_OK;
}

/* Segments */

static struct json_object *crcs_json(const struct kvc_rec *rec)
{
	struct json_object *crcs = out_array();
	char text[12];

	for (u32 i = 0; i < rec->nr_crcs; i++) {
		snprintf(text, sizeof(text), "%08x", kvc_rec_crc(rec, i));
		out_append(crcs, json_object_new_string(text));
	}
	return crcs;
}

static struct json_object *record_json(const struct kvc_rec *rec)
{
	struct json_object *o = out_object();
	bool page = rec->type == KVC_REC_PAGE;

	out_text(o, "type", page ? "page" : "tombstone");
	out_hex(o, "key", rec->key, KVC_KEY_LEN);
	out_hex(o, "keyspace", rec->keyspace, KVC_KEYSPACE_LEN);
	out_number(o, "tenant", rec->tenant);
	out_number(o, "epoch", rec->epoch);
	out_number(o, "seq", rec->seq);
	if (!page) {
		out_number(o, "victim_member", rec->length);
		out_number(o, "victim_segment", rec->block);
		out_number(o, "victim_generation", rec->victim_gen);
		return o;
	}
	out_number(o, "block", rec->block);
	out_number(o, "length", rec->length);
	out_number(o, "depth", rec->depth);
	out_bool(o, "no_crcs", rec->flags & KVC_REC_NO_CRCS);
	if (rec->flags & KVC_REC_ENCRYPTED)
		out_hex(o, "nonce", rec->nonce, KVC_NONCE_LEN);
	out_add(o, "crcs", crcs_json(rec));
	return o;
}

static struct json_object *extent_json(struct dump *u, struct media_log *l)
{
	const struct kvc_media_extent *m = (const void *)l->buf;
	struct json_object *o = out_object(), *records = out_array();
	enum kvc_reason why;
	struct kvc_rec rec;

	out_number(o, "block", l->block);
	out_number(o, "bytes", le32_to_cpu(m->bytes));
	out_number(o, "used", le32_to_cpu(m->used));
	add_hex_number(o, "crc", le32_to_cpu(m->crc));
	out_number(o, "nr_records", le32_to_cpu(m->nr_records));
	add_hex_number(o, "flags", le32_to_cpu(m->flags));
	while ((why = kvc_extent_next(&l->xr, &rec)) == KVC_OK)
		out_append(records, record_json(&rec));
	out_add(o, "records", records);
	if (why != KVC_NR_REASONS) {
		out_text(o, "damage", kvc_reason_str(why));
		u->damaged = true;
	}
	return o;
}

static void add_end(struct dump *u, struct json_object *o, const struct media_log *l)
{
	out_number(o, "log_end", l->block);
	if (l->end != END_FULL)
		out_text(o, "behind_it", l->err ? strerror(l->err) : kvc_reason_str(l->why));
	if (l->end != END_LOST && l->end != END_DAMAGED)
		return;
	out_text(o, "damage", l->end == END_LOST ? "an extent is lost" : "an extent is damaged");
	u->damaged = true;
}

static int usage(const char *what, const char *why)
{
	ctl_error(what, "%s", why);
	fputs("Try 'kvctxctl dump --help'.\n", stderr);
	return CTL_USAGE;
}

static int dump_segment(struct dump *u, struct json_object *root)
{
	const struct kvc_super *s = &u->dev.super[u->dev.chosen];
	u32 nr = s->members[s->member_index].nr_segments;
	struct json_object *o, *extents;
	struct ctl_value v;
	struct media_log l;

	if (u->c->nr_args != 3)
		return usage("segment", "needs one number");
	if (ctl_value_parse(KIND_NUMBER, u->c->args[2], &v) || v.num >= nr) {
		ctl_error(u->c->args[2], "no segment of this member, which has 0 to %u", nr - 1);
		return CTL_USAGE;
	}
	o = out_object();
	extents = out_array();
	media_log_start(&l, &u->dev, s, s->member_index, (u32)v.num, u->buf);
	while (media_log_next(&l))
		out_append(extents, extent_json(u, &l));
	out_number(o, "member", l.id.member);
	out_number(o, "segment", l.id.segment);
	out_number(o, "offset", l.offset);
	out_text(o, "state", l.nr_extents > 1 ? "log" : l.nr_extents ? "empty" : "blank");
	if (l.nr_extents) {
		out_number(o, "generation", l.id.generation);
		add_hex_number(o, "salt", l.id.salt);
	}
	add_end(u, o, &l);
	out_add(o, "extents", extents);
	out_add(root, "segment", o);
	return CTL_OK;
}

/* Pages */

/* The first bytes of a key in hexadecimal; their number, 0 when it is none */
static size_t parse_key(const char *text, u8 *key)
{
	size_t n = strlen(text) / 2;

	if (!n || strlen(text) % 2 || n > KVC_KEY_LEN || text[strspn(text, "0123456789abcdefABCDEF")])
		return 0;
	for (size_t i = 0; i < n; i++) {
		char byte[3] = { text[2 * i], text[2 * i + 1], 0 };

		key[i] = (u8)strtoul(byte, NULL, 16);
	}
	return n;
}

static void find_in_segment(struct dump *u, struct json_object *found, u32 segment, const u8 *key, size_t n)
{
	const struct kvc_super *s = &u->dev.super[u->dev.chosen];
	struct json_object *o;
	struct media_log l;
	struct kvc_rec rec;

	media_log_start(&l, &u->dev, s, s->member_index, segment, u->buf);
	while (media_log_next(&l)) {
		while (kvc_extent_next(&l.xr, &rec) == KVC_OK) {
			if (memcmp(rec.key, key, n))
				continue;
			o = record_json(&rec);
			out_number(o, "segment", segment);
			out_number(o, "extent", l.block);
			if (rec.type == KVC_REC_PAGE)
				out_number(o, "offset", l.offset + rec.block * (u64)KVC_BLOCK);
			out_append(found, o);
		}
	}
}

static int dump_pages(struct dump *u, struct json_object *root)
{
	const struct kvc_super *s = &u->dev.super[u->dev.chosen];
	struct json_object *found = out_array();
	int status = CTL_OK;

	if (u->c->nr_args < 3)
		status = usage("page", "needs a key");
	for (int i = 2; i < u->c->nr_args && !status; i++) {
		size_t before = json_object_array_length(found), n;
		u8 key[KVC_KEY_LEN];

		n = parse_key(u->c->args[i], key);
		if (!n)
			status = usage(u->c->args[i], "not a key, or the begin of one, in hexadecimal");
		for (u32 j = 0; n && j < s->members[s->member_index].nr_segments; j++)
			find_in_segment(u, found, j, key, n);
		if (n && json_object_array_length(found) == before) {
			ctl_error(u->c->args[i], "no record of this key on %s", u->dev.path);
			status = CTL_FAILED;
		}
	}
	if (status)
		json_object_put(found);
	else
		out_add(root, "records", found);
	return status;
}

/* Text: everything that the JSON has. An object whose fields are all plain is a line where it is one of several. */

static bool is_plain(struct json_object *v)
{
	if (json_object_is_type(v, json_type_object))
		return false;
	if (!json_object_is_type(v, json_type_array))
		return true;
	return !json_object_array_length(v) ||
	       json_object_is_type(json_object_array_get_idx(v, 0), json_type_string);
}

/* Permission bits are read in octal */
static void print_plain(const char *key, struct json_object *v)
{
	if (!strcmp(key, "mode")) {
		printf("%04llo", (unsigned long long)json_object_get_uint64(v));
		return;
	}
	if (!json_object_is_type(v, json_type_array)) {
		fputs(json_object_get_string(v), stdout);
		return;
	}
	for (size_t i = 0; i < json_object_array_length(v); i++)
		printf("%s%s", i ? " " : "", json_object_get_string(json_object_array_get_idx(v, i)));
}

static bool is_line(struct json_object *o)
{
	json_object_object_foreach(o, key, val) {
		(void)key;
		if (!is_plain(val))
			return false;
	}
	return true;
}

static void print_line(struct json_object *o, int depth)
{
	printf("%*s-", depth, "");
	json_object_object_foreach(o, key, val) {
		printf(" %s ", key);
		print_plain(key, val);
	}
	putchar('\n');
}

static void print_object(struct json_object *o, int depth);

static void print_array(struct json_object *array, int depth)
{
	for (size_t i = 0; i < json_object_array_length(array); i++) {
		struct json_object *o = json_object_array_get_idx(array, i);

		if (is_line(o)) {
			print_line(o, depth);
			continue;
		}
		if (i)
			putchar('\n');
		print_object(o, depth);
	}
}

static void print_object(struct json_object *o, int depth)
{
	json_object_object_foreach(o, key, val) {
		printf("%*s%s:", depth, "", key);
		if (is_plain(val)) {
			putchar(' ');
			print_plain(key, val);
			putchar('\n');
			continue;
		}
		putchar('\n');
		if (json_object_is_type(val, json_type_array))
			print_array(val, depth + 2);
		else
			print_object(val, depth + 2);
	}
}

/* Everything but superblocks can only be found with one */
static int dump(struct dump *u, struct json_object *root)
{
	const char *what = u->c->nr_args > 1 ? u->c->args[1] : "super";
	int status;

	if (strcmp(what, "super") && strcmp(what, "segment") && strcmp(what, "page"))
		return usage(what, "not super, segment or page");
	if (!strcmp(what, "super") && u->c->nr_args > 2)
		return usage(u->c->args[2], "one argument too many");
	status = media_open(&u->dev, u->c->args[0], u->c->opt[OPT_FORCE].set) ?: media_read_supers(&u->dev);
	if (status)
		return status;
	if (!strcmp(what, "super"))
		return dump_super(u, root);
	if (u->dev.chosen == KVC_SUPER_SLOTS)
		return media_no_super(&u->dev);
	return strcmp(what, "page") ? dump_segment(u, root) : dump_pages(u, root);
}

int cmd_dump(struct ctl *c)
{
	struct dump u = { .c = c, .dev.fd = -1, .buf = malloc(KVC_EXTENT_MAX) };
	struct json_object *root = out_root();
	int status = CTL_FAILED;

	if (u.buf)
		status = dump(&u, root);
	else
		ctl_command_error(c, "%s", strerror(ENOMEM));
	if (!status && c->json) {
		out_json(root);
	} else if (!status) {
		json_object_object_del(root, "format");
		print_object(root, 0);
	}
	json_object_put(root);
	media_close(&u.dev);
	free(u.buf);
	return status ?: u.damaged ? CTL_FAILED : CTL_OK;
}
