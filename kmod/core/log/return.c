// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * A member that was lost returns, as it was left, to the pool that went on without it.
 *
 * Nothing of it left the index but what was deleted, replaced or stored again meanwhile, with tombstones or undead
 * segments as on any other member; and nothing was written to it. So memory is what recovery would find, but for what
 * was on its way: pages that are in no extent are dropped, as nobody knows whether their bytes got there, and so are
 * those of an extent that failed, which may be on media or not. Where one did the segment is torn: its log is not
 * continued, it is undead, and reclaimed first. Tombstones stay in memory, where they are logged as ever; those of the
 * extent that failed, and those behind it, are carried to another segment as soon as the member is back and has room,
 * and no flush is done before. (A page that replaced another and is dropped has left its tombstone: neither is
 * found.)
 *
 * Segments whose header could not be written, as is likely before anybody knows that the device has gone, get one now.
 *
 * A reclaim that was at work begins anew, as copies that it counts on may be among what is dropped; unless pages have
 * left the index already, which they did when all of that was durable. What such a copy was made from is on media
 * still, and not found before the next attach.
 *
 * That it is as it was left is seen by its logs: each is read to the end that memory knows, and has to be of the
 * generation and salt that it had. What is behind is not looked at, nor is what no log leads to.
 *
 * History (media/format.h) is one as long as somebody is online who has all of it: an heir, who was there at the
 * attach, or came, or returned, while an heir was online. Without one it is the member that was lost last with which it
 * goes on.
 */
#include "log/log.h"

/* Is there a header of ours that counts? */
static bool has_log(const struct kvc_seg *seg)
{
	return seg->state != KVC_S_BLANK && seg->state != KVC_S_UNUSABLE;
}

static void want(struct kvc_pool *p, struct kvc_recheck *c, u32 least)
{
	c->offset = kvc_seg_offset(kvc_member_of(p, c->gseg), c->gseg) + ((u64)c->block << KVC_BLOCK_SHIFT);
	c->len = min(max(least, KVC_RECOVER_STEP), min(c->end - c->block, KVC_RECOVER_IO >> KVC_BLOCK_SHIFT)
							   << KVC_BLOCK_SHIFT);
}

bool kvc_recheck_start(struct kvc_pool *p, u32 member, u32 segment, struct kvc_recheck *c)
{
	struct kvc_member *m = &p->members[member];
	const struct kvc_seg *seg = &m->segs[segment];
	bool any;

	memset(c, 0, sizeof(*c));
	os_lock(&m->lock);
	any = has_log(seg);
	c->gseg = kvc_gseg_of(member, segment);
	c->end = seg->torn || seg->endless ? 1 : seg->log_end;
	memcpy(c->id.pool_uuid, p->super.pool_uuid, KVC_UUID_LEN);
	c->id.member = m->index;
	c->id.segment = segment;
	c->id.generation = seg->generation;
	c->id.salt = seg->salt;
	os_unlock(&m->lock);
	if (any)
		want(p, c, KVC_BLOCK);
	return any;
}

/* Is this extent, which is all there, the one that was left here? */
static bool is_ours(const struct kvc_pool *p, const struct kvc_recheck *c, const u8 *buf, u32 bytes)
{
	struct kvc_seg_id id = c->id;
	struct kvc_extent_reader xr;

	return kvc_extent_open(&xr, buf, bytes, &id, c->block, p->seg_blocks, p->chunk_size) == KVC_OK &&
	       id.generation == c->id.generation && id.salt == c->id.salt;
}

int kvc_recheck_feed(struct kvc_pool *p, struct kvc_recheck *c, const void *buf)
{
	u32 pos = 0, bytes;

	while (c->block < c->end) {
		bytes = KVC_BLOCK;
		if (pos < c->len && (kvc_extent_peek((const u8 *)buf + pos, &bytes) != KVC_OK ||
				     kvc_blocks(bytes) > c->end - c->block))
			return -ESTALE;
		if (bytes > c->len - pos) {
			want(p, c, bytes);
			return 1;
		}
		if (!is_ours(p, c, (const u8 *)buf + pos, bytes))
			return -ESTALE;
		pos += bytes;
		c->block += kvc_blocks(bytes);
	}
	return 0;
}

/* Nothing that was begun on it before it was lost is under way any more. Member locked. */
static bool is_quiet(const struct kvc_member *m)
{
	bool quiet = !m->reclaim.moving && !m->discarding;
	u32 i;

	for (i = 0; i < m->nr_segs && quiet; i++)
		quiet = !m->segs[i].pending && !m->segs[i].writing && !os_atomic_read(&m->segs[i].holds);
	return quiet;
}

/* Take pages of the segment out of the index that are in no extent that was written. */
static void drop_pages(struct kvc_pool *p, const struct kvc_seg *seg)
{
	struct kvc_cursor c;
	u32 entry, bucket;

	kvc_cursor_init(&c);
	while ((entry = kvc_cursor_entry(p, seg, &c)) != KVC_NONE) {
		struct kvc_entry *e = kvc_entry(p, entry);

		bucket = kvc_entry_bucket(p, entry);
		os_lock(&kvc_shard(p, bucket)->lock);
		/* what is dead is skipped by the next summary */
		if (e->state == KVC_E_LIVE && e->counted)
			kvc_page_drop(p, bucket, entry);
		os_unlock(&kvc_shard(p, bucket)->lock);
		if (++c.index % 1024 == 0)
			os_relax();
	}
}

/* A torn segment */
static void give_up(struct kvc_member *m, struct kvc_seg *seg)
{
	u32 i;

	WRITE_ONCE(m->torn, true);
	os_lock(&m->lock);
	kvc_seg_undead(m->pool, seg);
	seg->hiding = true;
	for (i = 0; i < m->nr_heads; i++)
		if (m->head[i] == seg)
			kvc_seg_retire(m, i);
	os_unlock(&m->lock);
	drop_pages(m->pool, seg);
	os_lock(&m->lock);
	seg->unlogged = 0;
	seg->closed = true;
	kvc_seg_end_log(seg);
	kvc_seg_try_seal(m, seg);
	os_unlock(&m->lock);
}

/* Is the entry a tombstone that has to be in a summary still? Then it is not, or is again, as its copy is @counted. */
static bool count_tomb(struct kvc_pool *p, u32 entry, bool counted)
{
	struct kvc_shard *sh = kvc_shard(p, kvc_entry_bucket(p, entry));
	struct kvc_entry *e = kvc_entry(p, entry);
	bool due;

	os_lock(&sh->lock);
	due = e->state == KVC_E_TOMB && (e->counted || counted);
	e->counted = due && counted;
	os_unlock(&sh->lock);
	return due;
}

/* 0, or what kvc_tomb_carry() said of the first that could not be carried */
static int carry_tombs(struct kvc_member *m, struct kvc_seg *seg)
{
	struct kvc_cursor c;
	u32 entry;
	int r;

	kvc_cursor_init(&c);
	while ((entry = kvc_cursor_entry(m->pool, seg, &c)) != KVC_NONE) {
		r = count_tomb(m->pool, entry, false) ? kvc_tomb_carry(m, KVC_HEAD_MOVE, entry) : 0;
		if (r) {
			count_tomb(m->pool, entry, true);
			return r;
		}
		if (++c.index % 1024 == 0)
			os_relax();
	}
	seg->torn = false;
	return 0;
}

/* In the thread that executes the member's work: the segments' memory stays meanwhile. 0, -EAGAIN, -ENODEV, -ENOMEM */
int kvc_return_carry(struct kvc_member *m)
{
	int r = 0;
	u32 i;

	for (i = 0; i < m->nr_segs && !r; i++)
		if (m->segs[i].torn)
			r = carry_tombs(m, &m->segs[i]);
	if (r)
		return r;
	os_lock(&m->lock);
	m->carried = m->commits;
	os_unlock(&m->lock);
	WRITE_ONCE(m->torn, false);
	return 0;
}

/* Member locked. */
static void begin_reclaim_anew(struct kvc_member *m)
{
	if (m->reclaim.phase != KVC_R_IDLE && m->reclaim.phase != KVC_R_WAIT)
		kvc_victim_let_go(m);
	m->headers_failed = 0;
	m->hopeless = false;
	m->no_memory = false;
}

/* But for those that recovery could not read. Member locked. */
static void retry_headers(struct kvc_member *m)
{
	u32 i;

	for (i = 0; i < m->nr_segs; i++)
		if (m->segs[i].state == KVC_S_UNUSABLE && !m->segs[i].broken)
			kvc_seg_set_state(m, &m->segs[i], KVC_S_BLANK);
}

int kvc_member_may_return(struct kvc_pool *p, u32 member, bool newest)
{
	struct kvc_member *m = &p->members[member];
	bool may;

	if (member >= kvc_nr_members(p) || kvc_super_hole(&p->super, member) || !m->lost || m->unknown)
		return -EINVAL;
	os_lock(&m->lock);
	may = !m->leaving && is_quiet(m);
	os_unlock(&m->lock);
	if (!may)
		return -EBUSY;
	return newest || kvc_member_heirs(p) ? 0 : -ESTALE;
}

void kvc_member_stay_lost(struct kvc_pool *p, u32 member)
{
	kvc_member_joining(&p->members[member], false);
	kvc_super_touch(p);
}

/* Does the superblock say that an heir is there, beside @member? */
static bool tells_of_heir(const struct kvc_pool *p, u32 member)
{
	u32 i;

	for (i = 0; i < p->super.nr_members; i++)
		if (i != member && READ_ONCE(p->members[i].heir) && !kvc_super_hole(&p->super, i) &&
		    !(p->super.members[i].flags & KVC_MEMBER_ABSENT))
			return true;
	return false;
}

int kvc_member_return(struct kvc_pool *p, u32 member, bool newest)
{
	struct kvc_member *m = &p->members[member];
	u32 i;

	os_lock(&m->lock);
	begin_reclaim_anew(m);
	retry_headers(m);
	os_unlock(&m->lock);
	for (i = 0; i < m->nr_segs; i++) {
		if (m->segs[i].torn)
			give_up(m, &m->segs[i]);
		else if (m->segs[i].unlogged)
			drop_pages(p, &m->segs[i]);
	}
	kvc_member_joining(m, true);
	kvc_super_touch(p);
	if (newest || tells_of_heir(p, member))
		return 0;
	/* the last one was lost meanwhile */
	kvc_member_stay_lost(p, member);
	return -ESTALE;
}

void kvc_member_returned(struct kvc_pool *p, u32 member)
{
	u32 nr = kvc_nr_members(p), i;

	kvc_member_join(p, member);
	/* tombstones for its sake need not stay, on whichever member */
	os_atomic_inc(&p->rooms);
	for (i = 0; i < nr; i++)
		kvc_kick(&p->members[i]);
}
