// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What the superblocks of a device say: which slot counts, or why none does.
 */
#include "pools.h"

struct super_slots {
	struct kvc_super super[KVC_SUPER_SLOTS];
	enum kvc_reason why[KVC_SUPER_SLOTS];
	int err;			/* a slot could not be read */
};

static void super_read_slots(const struct kve_device *d, struct super_slots *s, void *buf)
{
	u32 i;

	for (i = 0; i < KVC_SUPER_SLOTS; i++) {
		int err = kve_device_read(d, buf, KVC_SUPER_BYTES, kvc_super_offset(i, d->bytes));

		if (err)
			s->err = err;
		s->why[i] = err ? KVC_BAD_CRC : kvc_super_read(buf, i, &s->super[i]);
	}
}

/* No slot is good: which reason tells most */
static int super_refuse(const struct kve_device *d, const struct super_slots *s, char *why)
{
	u32 i;

	if (s->err)
		return kve_refuse(why, s->err, "%s: superblock cannot be read", d->path);
	for (i = 0; i < KVC_SUPER_SLOTS; i++)
		if (s->why[i] == KVC_BAD_VERSION || s->why[i] == KVC_BAD_FEATURES)
			return kve_refuse(why, -EOPNOTSUPP, "%s: superblock: %s", d->path, kvc_reason_str(s->why[i]));
	for (i = 0; i < KVC_SUPER_SLOTS; i++)
		if (s->why[i] != KVC_BAD_MAGIC)
			return kve_refuse(why, -EUCLEAN, "%s: superblock damaged: %s", d->path,
					  kvc_reason_str(s->why[i]));
	return kve_refuse(why, -EMEDIUMTYPE, "%s: no member of a pool (kvctx_pool_create() and kvctxctl make them)", d->path);
}

static int super_choose(struct kve_candidate *c, struct super_slots *s, struct kvc_super *super, char *why)
{
	u32 chosen = kvc_super_choose(s->super, s->why);
	const struct kvc_super *best = &s->super[chosen];

	if (chosen == KVC_SUPER_SLOTS)
		return super_refuse(c->dev, s, why);
	*super = *best;
	c->seq = best->seq;
	c->worn = kvc_super_worn(s->super, s->why, chosen);
	memcpy(c->was, best->members, sizeof(c->was));
	c->index = best->member_index;
	memcpy(c->uuid, best->members[c->index].uuid, KVC_UUID_LEN);
	return 0;
}

/* Fill @super and the candidate's own facts from the slot that counts. */
int kve_candidate_read(struct kve_candidate *c, struct kvc_super *super, char *why)
{
	struct super_slots *s;
	int err = -ENOMEM;
	void *buf;

	if (c->dev->bytes < KVC_DEVICE_MIN)
		return kve_refuse(why, -EMEDIUMTYPE, "%s: no member of a pool, too small for one", c->dev->path);
	s = calloc(1, sizeof(*s));
	buf = os_alloc(KVC_SUPER_BYTES);
	if (s && buf) {
		super_read_slots(c->dev, s, buf);
		err = super_choose(c, s, super, why);
	} else {
		kve_refuse(why, err, "out of memory");
	}
	os_free(buf);
	free(s);
	return err;
}
