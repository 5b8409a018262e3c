// SPDX-License-Identifier: GPL-2.0
/*
 * check: is a pool sound? Reads only, and goes about it as an attach does.
 *
 *   gather    open the devices, read their superblocks, find the newest configuration
 *   arrange   which device is which member; missing ones are noted and left out
 *   recover   walk the log of each segment, and feed it to the engine too
 *   look      walk the logs once more: which records are the pages that the engine has; with --data, are their bytes
 *             what their checksums say
 *
 * What is found wrong is put on a list, "damage". A pool without any is sound.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "../../kmod/core/media/format_media.h"
#include "check.h"
#include "out.h"

#define DAMAGE_MAX		1000U		/* listed; all are counted */
#define MISSING_SEGMENTS_MAX	(1U << 20)	/* of members that are not there to prove it */
#define DATA_PIECE		KVC_CHUNK_MAX

/* Damage */

static struct json_object *damaged(struct check *k, const char *device, const char *what)
{
	struct json_object *d;

	if (++k->nr_damage > DAMAGE_MAX)
		return NULL;
	d = out_object();
	if (device)
		out_text(d, "device", device);
	out_text(d, "what", what);
	out_append(k->damage, d);
	return d;
}

static void damaged_segment(struct check *k, const struct media_log *l, const char *what, const char *reason)
{
	struct json_object *d = damaged(k, l->d->path, what);

	k->tally[l->id.member].damaged++;
	if (!d)
		return;
	out_number(d, "segment", l->id.segment);
	out_number(d, "block", l->block);
	out_text(d, "reason", reason);
}

static void damaged_page(struct check *k, const struct media_log *l, const struct kvc_rec *rec, u32 chunk,
			 const char *reason)
{
	struct json_object *d = damaged(k, l->d->path, "page");

	k->bad_pages++;
	if (!d)
		return;
	out_hex(d, "key", rec->key, KVC_KEY_LEN);
	out_number(d, "segment", l->id.segment);
	out_number(d, "block", rec->block);
	out_number(d, "chunk", chunk);
	out_text(d, "reason", reason);
}

/* Gathering and arranging */

static int refused(const struct media *d, const char *why)
{
	ctl_error(d->path, "%s", why);
	return CTL_NODEV;
}

static int check_twice(const struct check *k, int i)
{
	for (int j = 0; j < i; j++) {
		if (!media_same(&k->dev[i], &k->dev[j]))
			continue;
		ctl_error(k->dev[i].path, "the same device as %s", k->dev[j].path);
		fputs("Try 'kvctxctl check --help'.\n", stderr);
		return CTL_USAGE;
	}
	return CTL_OK;
}

static int gather(struct check *k)
{
	int status = CTL_OK;

	for (int i = 0; i < k->nr && !status; i++) {
		struct media *d = &k->dev[i];
		const struct kvc_super *s;

		status = media_open(d, k->c->args[i], k->c->opt[OPT_FORCE].set) ?: check_twice(k, i) ?:
			 media_read_supers(d);
		if (status)
			break;
		if (d->chosen == KVC_SUPER_SLOTS)
			return media_no_super(d);
		s = &d->super[d->chosen];
		if (i && memcmp(s->pool_uuid, k->super->pool_uuid, KVC_UUID_LEN)) {
			ctl_error(d->path, "of another pool, %s", s->pool_name);
			return CTL_NODEV;
		}
		if (!i || kvc_super_newer(s, k->super))
			*k->super = *s;
	}
	return status;
}

static int arrange_device(struct check *k, const struct media *d)
{
	const struct kvc_super *s = &d->super[d->chosen];
	u32 i = s->member_index;
	char why[64];

	if (i >= k->super->nr_members || memcmp(s->members[i].uuid, k->super->members[i].uuid, KVC_UUID_LEN))
		return refused(d, "no member of the pool any more");
	snprintf(why, sizeof(why), "member %u, and so is another device", i);
	if (k->member[i])
		return refused(d, why);
	if (d->size < kvc_device_bytes(k->super->members[i].nr_segments, k->super->segment_size)) {
		ctl_error(d->path, "too small, the pool needs %llu bytes",
			  (unsigned long long)kvc_device_bytes(k->super->members[i].nr_segments,
							       k->super->segment_size));
		return CTL_FAILED;
	}
	k->member[i] = d;
	return CTL_OK;
}

/* The engine has memory for each segment: a superblock may not claim any number of them on devices that nobody sees. */
static int note_missing(struct check *k)
{
	u64 claimed = 0;
	char what[64];

	for (u32 i = 0; i < k->super->nr_members; i++) {
		if (k->member[i] || kvc_super_hole(k->super, i))
			continue;
		claimed += k->super->members[i].nr_segments;
		snprintf(what, sizeof(what), "member %u of %u is missing", i, k->super->nr_members);
		damaged(k, NULL, what);
	}
	if (claimed <= MISSING_SEGMENTS_MAX)
		return CTL_OK;
	ctl_command_error(k->c, "the missing members have %llu segments, too many to go on without them",
			  (unsigned long long)claimed);
	return CTL_FAILED;
}

static void note_supers(struct check *k)
{
	char what[64];

	for (int i = 0; i < k->nr; i++) {
		const struct media *d = &k->dev[i];

		for (u32 slot = 0; slot < KVC_SUPER_SLOTS; slot++) {
			struct json_object *item;

			if (d->why[slot] == KVC_OK)
				continue;
			snprintf(what, sizeof(what), "superblock slot %u", slot);
			item = damaged(k, d->path, what);
			if (item)
				out_text(item, "reason", d->err[slot] ? strerror(d->err[slot]) :
									kvc_reason_str(d->why[slot]));
		}
	}
}

/* Attached without some of its members, then without the others: attach refuses all of them together. */
static void note_history(struct check *k)
{
	struct kvc_witness w[KVC_MEMBERS_MAX];

	for (int i = 0; i < k->nr; i++) {
		const struct kvc_super *s = &k->dev[i].super[k->dev[i].chosen];

		w[i] = (struct kvc_witness){ s->member_index, s->seq, s->members };
	}
	if (!kvc_one_history(w, (u32)k->nr))
		damaged(k, NULL, "these members were attached without each other");
}

static int arrange(struct check *k)
{
	int status = CTL_OK;

	for (int i = 0; i < k->nr && !status; i++)
		status = arrange_device(k, &k->dev[i]);
	if (!status) {
		note_supers(k);
		note_history(k);
	}
	return status ?: note_missing(k);
}

/* Recovering */

static void on_kick(void *owner, u32 member)
{
	(void)owner;
	(void)member;
}

static void on_space(void *owner)
{
	(void)owner;
}

static const struct kvc_ops check_ops = {
	.kick = on_kick,
	.space = on_space,
};

static u64 skipped_so_far(const struct check *k)
{
	struct kvc_stats st;

	kvc_stats_get(k->pool, &st);
	return st.recover_skipped;
}

/* What the engine takes from a segment; the number of records and extents that it refused, or -ENOMEM */
static s64 feed_engine(struct check *k, u32 member, u32 segment)
{
	u64 before = skipped_so_far(k);
	struct kvc_recover r;
	int ret;

	kvc_recover_start(k->pool, member, segment, &r);
	do {
		int err = media_read(k->member[member], k->buf, r.len, r.offset);

		ret = kvc_recover_feed(k->pool, &r, k->buf, -err);
	} while (ret == 1);
	return ret ? ret : (s64)(skipped_so_far(k) - before);
}

static bool tenant_there(const struct check *k, const struct kvc_rec *rec)
{
	const struct kvc_super_tenant *t = &k->super->tenants[rec->tenant];

	return t->flags & KVC_TENANT_USED && t->epoch == rec->epoch;
}

/* Count an extent's records; those of removed tenants into @dead. The reason of a bad one, else KVC_OK. */
static enum kvc_reason count_records(struct check *k, struct media_log *l, u64 *dead)
{
	struct tally *t = &k->tally[l->id.member];
	enum kvc_reason why;
	struct kvc_rec rec;

	while ((why = kvc_extent_next(&l->xr, &rec)) == KVC_OK) {
		if (rec.type == KVC_REC_PAGE)
			t->pages++;
		else
			t->tombstones++;
		*dead += !tenant_there(k, &rec);
	}
	return why == KVC_NR_REASONS ? KVC_OK : why;
}

static void judge_end(struct check *k, const struct media_log *l)
{
	char what[64];

	if (l->end == END_LOST) {
		snprintf(what, sizeof(what), "log: another extent follows at block %u", l->lost);
		damaged_segment(k, l, what, kvc_reason_str(l->why));
	} else if (l->end == END_DAMAGED) {
		damaged_segment(k, l, l->nr_extents ? "log" : "header",
				l->err ? strerror(l->err) : kvc_reason_str(l->why));
	}
}

static void count_segment(struct check *k, const struct media_log *l)
{
	struct tally *t = &k->tally[l->id.member];

	if (l->nr_extents == 0)
		t->blank++;
	else if (l->nr_extents == 1)
		t->empty++;
	else
		t->logs++;
}

static int check_segment(struct check *k, u32 member, u32 segment)
{
	s64 refused = feed_engine(k, member, segment);
	enum kvc_reason why = KVC_OK;
	struct media_log l;
	u64 dead = 0, before = k->nr_damage;

	if (refused < 0) {
		ctl_command_error(k->c, "%s", strerror(ENOMEM));
		return CTL_FAILED;
	}
	media_log_start(&l, k->member[member], k->super, member, segment, k->buf);
	while (why == KVC_OK && media_log_next(&l))
		why = count_records(k, &l, &dead);
	if (why != KVC_OK)
		damaged_segment(k, &l, "log", kvc_reason_str(why));
	else
		judge_end(k, &l);
	/* The engine looks at more than one record can tell */
	if (k->nr_damage == before && (u64)refused > dead + (l.why == KVC_BAD_CRC))
		damaged_segment(k, &l, "log", kvc_reason_str(KVC_BAD_RECORD));
	count_segment(k, &l);
	k->tally[member].refused += (u64)refused;
	return CTL_OK;
}

static int recover(struct check *k)
{
	int err = kvc_pool_create(k->super, 1, &check_ops, k, &k->pool);

	if (err) {
		ctl_command_error(k->c, "%s", strerror(-err));
		return CTL_FAILED;
	}
	for (u32 i = 0; i < k->super->nr_members; i++) {
		if (!k->member[i]) {
			kvc_member_fail(k->pool, i);
			continue;
		}
		for (u32 j = 0; j < k->super->members[i].nr_segments; j++) {
			int status = check_segment(k, i, j);

			if (status)
				return status;
		}
	}
	kvc_recover_finish(k->pool);
	return CTL_OK;
}

/* Looking */

static void show_progress(struct check *k, u64 bytes)
{
	int percent = bytes ? (int)(k->data_bytes * 100 / bytes) : 100;

	if (percent == k->percent || !isatty(STDERR_FILENO))
		return;
	k->percent = percent;
	fprintf(stderr, percent < 100 ? "\r%3d %%" : "\r     \r", percent);
}

/* One piece of a page is in the buffer: the first chunk that is not what its checksum says, or KVC_NONE */
static u32 bad_chunk(struct check *k, const struct kvc_load *ld, u32 from, u32 len)
{
	u32 size = k->super->chunk_size;

	for (u32 at = 0; at < len; at += size) {
		u32 crc = kvc_crc_finish(kvc_crc_feed(KVC_CRC_INIT, k->data + at, min(size, len - at)));

		if (crc != kvc_load_crc(k->pool, ld, (from + at) / size))
			return (from + at) / size;
	}
	return KVC_NONE;
}

static void check_page(struct check *k, const struct media_log *l, const struct kvc_rec *rec, const struct kvc_load *ld)
{
	u32 len, bad;

	k->data_pages++;
	k->unverifiable += ld->no_crcs;
	for (u32 at = 0; at < ld->summed; at += len) {
		int err;

		len = min(DATA_PIECE, ld->summed - at);
		err = media_read(l->d, k->data, len, ld->offset + at);
		bad = err || ld->no_crcs ? KVC_NONE : bad_chunk(k, ld, at, len);
		if (err || bad != KVC_NONE) {
			damaged_page(k, l, rec, err ? at / k->super->chunk_size : bad,
				     err ? strerror(err) : kvc_reason_str(KVC_BAD_CRC));
			break;
		}
	}
	k->data_bytes += ld->length;
}

/* Is the record of a page the one that the engine has taken? Then the page is there. */
static int look_record(struct check *k, const struct media_log *l, const struct kvc_rec *rec)
{
	struct kvc_domain *d;
	struct kvc_load ld;
	int ret;

	if (rec->type != KVC_REC_PAGE || !tenant_there(k, rec))
		return 0;
	ret = kvc_domain_open(k->pool, rec->tenant, rec->keyspace, &d);
	if (ret)
		return ret == -ENOMEM ? ret : 0;
	if (!kvc_load_begin(k->pool, d, rec->key, &ld)) {
		if (ld.seq == rec->seq && ld.member == l->id.member &&
		    ld.offset == l->offset + (u64)rec->block * KVC_BLOCK) {
			k->tenant[rec->tenant].pages++;
			k->tenant[rec->tenant].bytes += ld.length;
			if (k->c->opt[OPT_DATA].set)
				check_page(k, l, rec, &ld);
		}
		kvc_load_end(k->pool, &ld, 0);
	}
	kvc_domain_put(k->pool, d);
	return 0;
}

static int look_segment(struct check *k, u32 member, u32 segment)
{
	struct media_log l;
	struct kvc_rec rec;
	int err = 0;

	media_log_start(&l, k->member[member], k->super, member, segment, k->buf);
	while (!err && media_log_next(&l))
		while (!err && kvc_extent_next(&l.xr, &rec) == KVC_OK)
			err = look_record(k, &l, &rec);
	return err;
}

static int look(struct check *k)
{
	struct kvc_stats st;
	int err = 0;

	kvc_stats_get(k->pool, &st);
	for (u32 i = 0; i < k->super->nr_members; i++) {
		for (u32 j = 0; k->member[i] && !err && j < k->super->members[i].nr_segments; j++) {
			err = look_segment(k, i, j);
			if (k->c->opt[OPT_DATA].set)
				show_progress(k, st.bytes);
		}
	}
	if (err)
		ctl_command_error(k->c, "%s", strerror(-err));
	return err ? CTL_FAILED : CTL_OK;
}

static int check(struct check *k)
{
	int status = gather(k) ?: arrange(k) ?: recover(k) ?: look(k);

	if (!status)
		check_report(k);
	return status ?: k->nr_damage ? CTL_FAILED : CTL_OK;
}

int cmd_check(struct ctl *c)
{
	struct check k = { .c = c, .nr = c->nr_args, .percent = -1 };
	int status = CTL_FAILED;

	if (k.nr > KVC_MEMBERS_MAX) {
		ctl_command_error(c, "a pool has at most %d devices", KVC_MEMBERS_MAX);
		fputs("Try 'kvctxctl check --help'.\n", stderr);
		return CTL_USAGE;
	}
	k.dev = calloc((size_t)k.nr, sizeof(*k.dev));
	k.super = calloc(1, sizeof(*k.super));
	k.buf = malloc(KVC_RECOVER_IO);
	k.data = malloc(DATA_PIECE);
	k.damage = out_array();
	for (int i = 0; k.dev && i < k.nr; i++)
		k.dev[i].fd = -1;
	if (k.dev && k.super && k.buf && k.data)
		status = check(&k);
	else
		ctl_command_error(c, "%s", strerror(ENOMEM));
	for (int i = 0; k.dev && i < k.nr; i++)
		media_close(&k.dev[i]);
	if (k.pool)
		kvc_pool_destroy(k.pool);
	json_object_put(k.damage);
	free(k.data);
	free(k.buf);
	free(k.super);
	free(k.dev);
	return status;
}
