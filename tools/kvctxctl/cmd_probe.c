// SPDX-License-Identifier: GPL-2.0
/*
 * probe: is this device a member of a pool? For udev, which asks it of each block device that holds nothing else, and for
 * people. Opens it beside whoever has it.
 */
#include <string.h>

#include "media.h"
#include "out.h"

static const struct out_column probe_fields[] = {
	{ "pool", "pool", FORM_TEXT },
	{ "pool_uuid", "uuid", FORM_TEXT },
	{ "index", "member", FORM_NUMBER },
	{ "nr_members", "of", FORM_NUMBER },
	{ NULL }
};

/* Properties of the device in udev's form: its own names for what a file system has, and ours */
static void probe_put_udev(struct json_object *o)
{
	puts("ID_FS_USAGE=raid\nID_FS_TYPE=kvctx_member");
	printf("ID_FS_UUID=%s\nID_FS_UUID_SUB=%s\n", out_get_text(o, "pool_uuid"), out_get_text(o, "uuid"));
	printf("KVCTX_POOL=%s\nKVCTX_MEMBER=%s\n", out_get_text(o, "pool"), out_get_text(o, "index"));
}

static void probe_report(const struct ctl *c, const struct kvc_super *s)
{
	struct json_object *root = out_root(), *o = out_object();

	out_add(root, "member", o);
	out_text(o, "pool", s->pool_name);
	out_uuid(o, "pool_uuid", s->pool_uuid);
	out_number(o, "index", s->member_index);
	out_uuid(o, "uuid", s->members[s->member_index].uuid);
	out_number(o, "nr_members", media_members(s));
	if (c->json)
		out_json(root);
	else if (c->opt[OPT_UDEV].set)
		probe_put_udev(o);
	else
		out_fields(o, probe_fields);
	json_object_put(root);
}

static int probe_device(const struct ctl *c, struct media *d)
{
	char what[SIGNATURE_TEXT];
	int status = media_read_supers(d), err;

	if (status)
		return status;
	if (d->chosen == KVC_SUPER_SLOTS)
		return media_no_super(d);
	err = signature_foreign(d, what);
	if (err) {
		ctl_error(d->path, "cannot look for other signatures: %s", strerror(err));
		return ctl_status_of(err);
	}
	if (*what) {
		ctl_error(d->path, "holds %s now, over a member of pool %s", what, d->super[d->chosen].pool_name);
		return CTL_FAILED;
	}
	probe_report(c, &d->super[d->chosen]);
	return CTL_OK;
}

int cmd_probe(struct ctl *c)
{
	struct media d;
	int status = media_open(&d, c->args[0], true) ?: probe_device(c, &d);

	media_close(&d);
	return status;
}
