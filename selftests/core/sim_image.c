// SPDX-License-Identifier: GPL-2.0
/*
 * What is on media, looked at as a recovery would if the power went now. See sim.h.
 *
 * The logs of all segments are decoded from what survives for certain. A header that is on its way may get there or
 * not: what is in such a segment counts against the engine where it may hurt, and not for it where it may help.
 *
 * The rule: of a key that was deleted, durably, and not stored since, no page record may be believed that no tombstone
 * with a higher sequence covers. The tombstone is in the same segment, or in one that stays.
 */
#include "sim.h"

struct rec {
	u32	slot, epoch, keyspace, id;
	u64	seq;
	bool	tomb;
};

struct log {
	struct rec *recs;
	u32	nr, room;
	u32	watched;		/* blocks that were looked at */
};

struct image {
	struct log *logs[SIM_MEMBERS_MAX];
	u32	nr_logs[SIM_MEMBERS_MAX];
	struct dev *devs[SIM_MEMBERS_MAX];
	u64	*covered;		/* of each key, by a tombstone that stays */
	u32	*ids, mask;		/* hash of a key -> its number + 1 */
	u8	(*keys)[KVC_KEY_LEN];
	u8	keyspaces[SIM_KEYSPACES][KVC_KEYSPACE_LEN];
};

static void *must(void *p)
{
	if (!p)
		sim_fail("the test itself is out of memory");
	return p;
}

/* Keys by their bytes */

static u32 hash(const u8 *key)
{
	return page_crc(key, KVC_KEY_LEN);
}

static u32 find_id(const struct image *im, const u8 *key)
{
	u32 at = hash(key) & im->mask;

	for (; im->ids[at]; at = (at + 1) & im->mask)
		if (!memcmp(im->keys[im->ids[at] - 1], key, KVC_KEY_LEN))
			return im->ids[at] - 1;
	return U32_MAX;
}

static u32 find_keyspace(const struct image *im, const u8 *keyspace)
{
	u32 i;

	for (i = 0; i < SIM_KEYSPACES; i++)
		if (!memcmp(im->keyspaces[i], keyspace, KVC_KEYSPACE_LEN))
			return i;
	return U32_MAX;
}

void image_init(struct sim *s)
{
	struct image *im = must(calloc(1, sizeof(*im)));
	u32 i, at;

	for (im->mask = 63; im->mask < 3 * s->cfg.nr_keys; im->mask = 2 * im->mask + 1)
		;
	im->ids = must(calloc(im->mask + 1, sizeof(*im->ids)));
	im->keys = must(calloc(s->cfg.nr_keys, sizeof(*im->keys)));
	im->covered = must(calloc(s->nr_keys, sizeof(*im->covered)));
	for (i = 0; i < s->cfg.nr_keys; i++) {
		key_make(im->keys[i], i);
		for (at = hash(im->keys[i]) & im->mask; im->ids[at]; at = (at + 1) & im->mask)
			;
		im->ids[at] = i + 1;
	}
	for (i = 0; i < SIM_KEYSPACES; i++)
		sim_keyspace(s, im->keyspaces[i], i);
	s->image = im;
}

static void forget_logs(struct image *im, u32 member)
{
	u32 i;

	for (i = 0; i < im->nr_logs[member]; i++)
		free(im->logs[member][i].recs);
	free(im->logs[member]);
	im->logs[member] = NULL;
	im->nr_logs[member] = 0;
}

void image_free(struct sim *s)
{
	struct image *im = s->image;
	u32 i;

	for (i = 0; i < SIM_MEMBERS_MAX; i++)
		forget_logs(im, i);
	free(im->ids);
	free(im->keys);
	free(im->covered);
	free(im);
}

/* Decoding */

static void note(const struct image *im, struct log *l, const struct kvc_rec *r)
{
	u32 id = find_id(im, r->key), keyspace = find_keyspace(im, r->keyspace);

	if (id == U32_MAX || keyspace == U32_MAX)
		return;
	if (l->nr == l->room) {
		l->room = l->room ? l->room * 2 : 16;
		l->recs = must(realloc(l->recs, l->room * sizeof(*l->recs)));
	}
	l->recs[l->nr++] = (struct rec){
		.slot = r->tenant, .epoch = r->epoch, .keyspace = keyspace, .id = id, .seq = r->seq,
		.tomb = r->type == KVC_REC_TOMBSTONE,
	};
}

/* The whole log, as far as it is one */
static void decode(const struct sim *s, struct log *l, u32 member, u32 segment)
{
	u32 blocks = (u32)(s->cfg.segment_size >> KVC_BLOCK_SHIFT), block = 0, bytes = 0;
	u64 start = KVC_DATA_OFFSET + segment * s->cfg.segment_size;
	struct kvc_seg_id id = { .member = member, .segment = segment };
	struct kvc_extent_reader xr;
	struct kvc_rec r;
	const u8 *at;

	memcpy(id.pool_uuid, s->super->pool_uuid, KVC_UUID_LEN);
	for (l->nr = 0; block < blocks; block += kvc_blocks(bytes)) {
		at = dev_durable(s->devs[member], start + ((u64)block << KVC_BLOCK_SHIFT));
		bytes = KVC_BLOCK;
		if (kvc_extent_peek(at, &bytes) != KVC_OK || kvc_blocks(bytes) > blocks - block)
			break;
		if (kvc_extent_open(&xr, at, bytes, &id, block, blocks, s->cfg.chunk_size) != KVC_OK)
			break;
		while (kvc_extent_next(&xr, &r) == KVC_OK)
			note(s->image, l, &r);
	}
	l->watched = min(block + kvc_blocks(bytes), blocks);
}

static void refresh(struct sim *s, u32 member)
{
	struct image *im = s->image;
	u32 nr = s->cfg.nr_segs[member], i;

	if (im->devs[member] != s->devs[member] || im->nr_logs[member] != nr) {
		forget_logs(im, member);
		im->logs[member] = must(calloc(nr + 1, sizeof(struct log)));
		im->nr_logs[member] = nr;
		im->devs[member] = s->devs[member];
	}
	for (i = 0; i < nr; i++) {
		struct log *l = &im->logs[member][i];
		u64 start = KVC_DATA_OFFSET + i * s->cfg.segment_size;

		if (!l->watched || dev_changed(s->devs[member], start, (u64)l->watched << KVC_BLOCK_SHIFT))
			decode(s, l, member, i);
	}
}

/* Looking */

static struct mkey *key_of(struct sim *s, const struct rec *r)
{
	u32 i;

	for (i = 0; i < SIM_TENANTS; i++) {
		const struct mtenant *t = &s->tenants[i];

		/* one that is being removed may be there again after a power cut */
		if (t->slot == r->slot && t->epoch == r->epoch && (t->state == T_LIVE || t->state == T_REMOVING))
			return model_key(s, i, r->keyspace, r->id);
	}
	return NULL;
}

static bool part_of_pool(const struct sim *s, u32 member)
{
	return !s->hole[member];
}

/* The superblock without it is on its way: all of it goes, or nothing. */
static bool removing(const struct sim *s, u32 member)
{
	return s->grow.state == G_REMOVING && s->grow.member == member;
}

/* May what is in the segment go, with a header that is on its way, or with its member? */
static bool going(const struct sim *s, u32 member, u32 segment)
{
	const struct worker *wk = &s->workers[member];

	if (removing(s, member))
		return true;
	return work_header(s, member) && segment_of(s, wk->task->w.offset) == segment;
}

/* @read: by those in logs that recovery has read as they are; else by those that stay */
static void cover(struct sim *s, bool read)
{
	struct image *im = s->image;
	u32 m, i, j;

	memset(im->covered, 0, s->nr_keys * sizeof(*im->covered));
	for (m = 0; m < s->cfg.nr_members; m++)
		for (i = 0; part_of_pool(s, m) && i < im->nr_logs[m]; i++) {
			const struct log *l = &im->logs[m][i];

			if (read ? s->unread[m] & BIT_ULL(i) || dev_gone(s->devs[m]) : going(s, m, i))
				continue;
			for (j = 0; j < l->nr; j++) {
				const struct mkey *k = l->recs[j].tomb ? key_of(s, &l->recs[j]) : NULL;

				if (k)
					im->covered[k - s->keys] = max(im->covered[k - s->keys], l->recs[j].seq);
			}
		}
}

static bool covered_here(const struct log *l, const struct rec *page)
{
	u32 i;

	for (i = 0; i < l->nr; i++) {
		const struct rec *r = &l->recs[i];

		if (r->tomb && r->seq > page->seq && r->id == page->id && r->keyspace == page->keyspace &&
		    r->slot == page->slot && r->epoch == page->epoch)
			return true;
	}
	return false;
}

/* For whoever has to find out */
static void tell(struct sim *s, const struct mkey *k)
{
	u32 m, i, j;

	for (m = 0; m < s->cfg.nr_members; m++)
		for (i = 0; part_of_pool(s, m) && i < s->image->nr_logs[m]; i++)
			for (j = 0; j < s->image->logs[m][i].nr; j++) {
				const struct rec *r = &s->image->logs[m][i].recs[j];

				if (key_of(s, r) == k)
					sim_trace(s, "%s: %s with seq %llu in segment %u of member %u%s", model_name(k),
						  r->tomb ? "tombstone" : "page", (unsigned long long)r->seq, i, m,
						  going(s, m, i) ? ", which may go" : "");
			}
}

/* By a tombstone that goes only together with the page */
static bool goes_too(const struct sim *s, u32 member, u32 segment, const struct rec *page)
{
	const struct log *logs = s->image->logs[member];
	u32 i;

	if (!removing(s, member))
		return covered_here(&logs[segment], page);
	for (i = 0; i < s->image->nr_logs[member]; i++)
		if (covered_here(&logs[i], page))
			return true;
	return false;
}

static void check_log(struct sim *s, u32 member, u32 segment)
{
	const struct log *l = &s->image->logs[member][segment];
	struct mkey *k;
	u32 i;

	for (i = 0; i < l->nr; i++) {
		const struct rec *r = &l->recs[i];

		k = r->tomb ? NULL : key_of(s, r);
		if (!k || !model_buried(s, k))
			continue;
		s->n.buried++;
		if (r->seq < s->image->covered[k - s->keys] || goes_too(s, member, segment, r))
			continue;
		tell(s, k);
		sim_fail("%s was deleted, and its page is on media, in segment %u of member %u, with seq %llu and"
			 " no newer tombstone", model_name(k), segment, member, (unsigned long long)r->seq);
	}
}

void image_changed(struct sim *s)
{
	u32 m, i;

	if (!s->cfg.images || s->cfg.corrupts || s->cfg.limits || s->ending || rng_below(&s->window_rng, s->cfg.images))
		return;
	s->n.images++;
	for (m = 0; m < s->cfg.nr_members; m++)
		if (part_of_pool(s, m))
			refresh(s, m);
	cover(s, false);
	for (m = 0; m < s->cfg.nr_members; m++)
		for (i = 0; part_of_pool(s, m) && i < s->image->nr_logs[m]; i++)
			check_log(s, m, i);
}

/*
 * Keys of which this recovery may not have seen all that matters: a page record that no tombstone covers among those
 * that were read well, if the page or a tombstone that covers it was not. What is on members that are not there is
 * another matter.
 */
static void hide_behind(struct sim *s, const struct rec *page, bool seen)
{
	struct mkey *k = key_of(s, page);
	bool covered = false;
	u32 m, i;

	if (!k || page->seq < s->image->covered[k - s->keys])
		return;
	for (m = 0; seen && !covered && m < s->cfg.nr_members; m++)
		for (i = 0; part_of_pool(s, m) && i < s->image->nr_logs[m]; i++)
			covered |= s->unread[m] & BIT_ULL(i) && covered_here(&s->image->logs[m][i], page);
	k->hidden |= !seen || covered;
}

void image_hidden(struct sim *s)
{
	struct image *im = s->image;
	bool any = false;
	u32 m, i, j;

	for (i = 0; i < s->nr_keys; i++)
		s->keys[i].hidden = false;
	for (m = 0; m < s->cfg.nr_members; m++)
		any |= s->unread[m] != 0;
	if (!any)
		return;
	for (m = 0; m < s->cfg.nr_members; m++)
		if (part_of_pool(s, m))
			refresh(s, m);
	cover(s, true);
	for (m = 0; m < s->cfg.nr_members; m++)
		for (i = 0; part_of_pool(s, m) && i < im->nr_logs[m]; i++)
			for (j = 0; j < im->logs[m][i].nr; j++)
				if (!im->logs[m][i].recs[j].tomb)
					hide_behind(s, &im->logs[m][i].recs[j], !(s->unread[m] & BIT_ULL(i)));
}
