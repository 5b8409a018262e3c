// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * What is written by the engine itself: segment headers and summary extents.
 *
 * An extent takes the records of one segment that are committed and not yet logged, in the order of the entries, and is
 * placed at the end of the segment's log. One extent of a member is on its way at a time, in the member's buffer, and
 * each is durable before the next is made: the log never has holes. If writing one fails, whatever follows it in the
 * log could not be found again, so the member is given up.
 *
 * The extent that takes the last page of a full segment says so, or one without records does that was added for it: a
 * log that recovery finds without has an end that it did not find. Tombstones may follow.
 *
 * Behind the log that a segment had when the pool was attached anything may lie, also extents that followed one that is
 * damaged now. A block of zeros is written with each extent there, or they would follow this one; the next takes its
 * place.
 */
#include "log/log.h"

static void seg_id(const struct kvc_member *m, const struct kvc_seg *seg, struct kvc_seg_id *id)
{
	const struct kvc_pool *p = m->pool;

	memcpy(id->pool_uuid, p->super.pool_uuid, KVC_UUID_LEN);
	id->member = m->index;
	id->segment = kvc_gseg_local(kvc_gseg(p, seg));
	id->generation = seg->generation;
	id->salt = seg->salt;
}

/* The record of an entry that is to be logged. Shard locked. */
static void fill_rec(const struct kvc_pool *p, u32 entry, struct kvc_rec *r)
{
	const struct kvc_entry *e = kvc_entry(p, entry);
	const struct kvc_domain *d = kvc_domain(p, e->domain);

	memset(r, 0, sizeof(*r));
	memcpy(r->key, e->key, KVC_KEY_LEN);
	memcpy(r->keyspace, d->keyspace, KVC_KEYSPACE_LEN);
	r->tenant = d->slot;
	r->epoch = d->epoch;
	r->seq = e->seq;
	if (e->state == KVC_E_TOMB) {
		u32 victim = kvc_tomb_victim(e);

		r->type = KVC_REC_TOMBSTONE;
		r->block = kvc_gseg_local(victim);
		r->length = kvc_member_of(p, victim)->index;
		r->victim_gen = kvc_tomb_gen(e);
	} else {
		r->type = KVC_REC_PAGE;
		r->block = e->block;
		r->length = e->length;
		r->depth = e->depth;
		r->nr_crcs = kvc_chunks(p, e->length);
		r->flags = e->no_crcs ? KVC_REC_NO_CRCS : 0;
		if (unlikely(d->encrypted)) {
			r->flags |= KVC_REC_ENCRYPTED;
			memcpy(r->nonce, kvc_nonce(p, entry), KVC_NONCE_LEN);
		}
	}
}

static bool add_rec(const struct kvc_pool *p, const struct kvc_seg *seg, u32 entry, struct kvc_extent_writer *xw)
{
	struct kvc_rec r;
	void *crcs;
	u32 i;

	fill_rec(p, entry, &r);
	if (!kvc_extent_add(xw, &r, &crcs))
		return false;
	for (i = 0; i < r.nr_crcs; i++)
		kvc_put_crc(crcs, i, *kvc_crc_slot(seg, kvc_entry(p, entry)->crc_base + i));
	return true;
}

/*
 * Log one entry if it is due. False when the extent is full. @settled: nothing will ever be due here again. Member
 * locked.
 */
static bool log_entry(struct kvc_pool *p, struct kvc_seg *seg, u32 entry, struct kvc_extent_writer *xw, bool *settled)
{
	struct kvc_shard *sh = kvc_shard(p, kvc_entry_bucket(p, entry));
	struct kvc_entry *e = kvc_entry(p, entry);
	bool room = true;
	u32 bytes;

	os_lock_inner(&sh->lock);
	*settled = e->state != KVC_E_PENDING && e->state != KVC_E_COPYING;
	if (e->counted) {
		bytes = e->state == KVC_E_TOMB ? KVC_REC_FIXED : 0;
		if (!bytes)
			bytes = kvc_page_rec_bytes(p, e->length);
		if (e->state != KVC_E_DEAD)
			room = add_rec(p, seg, entry, xw);
		if (room) {
			e->logged = e->state != KVC_E_DEAD;
			e->counted = 0;
			seg->unlogged -= bytes;
		} else {
			*settled = false;
		}
	}
	os_unlock_inner(&sh->lock);
	return room;
}

static void log_entries(struct kvc_pool *p, struct kvc_seg *seg, struct kvc_extent_writer *xw)
{
	struct kvc_cursor c = seg->log_cursor;
	bool settled, behind = true, room = true;
	u32 entry;

	while (room && seg->unlogged) {
		entry = kvc_cursor_entry(p, seg, &c);
		if (KVC_WARN_ONCE(entry == KVC_NONE))
			break;
		room = log_entry(p, seg, entry, xw, &settled);
		c.index++;
		behind &= settled;
		if (behind)
			seg->log_cursor = c;
	}
}

/* Verify what goes to media as a recovery would. */
static void check_extent(const struct kvc_pool *p, const struct kvc_work *w, u32 block, const struct kvc_seg_id *id)
{
	struct kvc_seg_id expect = *id;
	struct kvc_extent_reader r;
	enum kvc_reason why;
	struct kvc_rec rec;

	why = kvc_extent_open(&r, w->buf, w->len, &expect, block, p->seg_blocks, p->chunk_size);
	while (why == KVC_OK)
		why = kvc_extent_next(&r, &rec);
	KVC_WARN_ONCE(why != KVC_NR_REASONS);
}

static void end_log(struct kvc_work *w)
{
	memset((u8 *)w->buf + w->len, 0, KVC_BLOCK);
	w->len += KVC_BLOCK;
}

/* Is it known, but not said by the log, that no page follows? Member locked. */
static bool due_close(const struct kvc_seg *seg)
{
	return seg->state == KVC_S_SEALING && !seg->pending && !seg->closed;
}

/* Make an extent of what @seg has unlogged, or to end its log: 1, or 0 when there is nothing to be said any more. */
int kvc_summary_next(struct kvc_member *m, struct kvc_seg *seg, struct kvc_work *w)
{
	struct kvc_pool *p = m->pool;
	struct kvc_extent_writer xw;
	struct kvc_seg_id id;
	bool old, write;
	u32 block;

	kvc_extent_begin(&xw, m->extent, p->extent_max);
	os_lock(&m->lock);
	block = seg->log_end;
	old = seg->old;
	seg->writing_since = seg->dirty_since;
	log_entries(p, seg, &xw);
	if (due_close(seg) && !seg->unlogged) {
		xw.flags = KVC_EXTENT_CLOSED;
		seg->closed = true;
	}
	write = xw.nr_records || xw.flags;
	if (write) {
		seg->writing = true;
		seg->log_end += kvc_blocks(xw.used);
		kvc_seg_check(p, seg);
	}
	kvc_seg_try_seal(m, seg);
	seg_id(m, seg, &id);
	os_unlock(&m->lock);
	if (!write)
		return 0;
	kvc_work_init(m, seg, w, KVC_WORK_WRITE, KVC_W_EXTENT, block);
	w->buf = m->extent;
	w->count = xw.nr_records;
	w->len = kvc_extent_end(&xw, &id, block);
	if (OS_SELF_CHECKS)
		check_extent(p, w, block, &id);
	if (old)
		end_log(w);
	return 1;
}

/*
 * What was in the extent is in none, as if nothing had taken it: the segment is torn. Its records are in the order of
 * the entries. Nobody else looks at what is counted, as the member is lost.
 */
static void tear(struct kvc_member *m, struct kvc_seg *seg)
{
	struct kvc_pool *p = m->pool;
	struct kvc_extent_reader xr;
	struct kvc_seg_id id;
	struct kvc_cursor c;
	struct kvc_rec rec;
	u32 entry, bytes;

	seg->torn = true;
	seg_id(m, seg, &id);
	if (kvc_extent_peek(m->extent, &bytes) != KVC_OK ||
	    kvc_extent_open(&xr, m->extent, bytes, &id, seg->log_end - kvc_blocks(bytes), p->seg_blocks,
			    p->chunk_size) != KVC_OK || kvc_extent_next(&xr, &rec) != KVC_OK)
		return;
	kvc_cursor_init(&c);
	while ((entry = kvc_cursor_entry(p, seg, &c)) != KVC_NONE) {
		struct kvc_shard *sh = kvc_shard(p, kvc_entry_bucket(p, entry));
		struct kvc_entry *e = kvc_entry(p, entry);
		bool here;

		os_lock(&sh->lock);
		/* logged: not a copy that failed, of a page that was copied again */
		here = e->logged && e->seq == rec.seq && !memcmp(e->key, rec.key, KVC_KEY_LEN);
		if (here)
			e->counted = 1;
		os_unlock(&sh->lock);
		if (here && kvc_extent_next(&xr, &rec) != KVC_OK)
			return;
		if (++c.index % 1024 == 0)
			os_relax();
	}
}

void kvc_summary_done(struct kvc_member *m, struct kvc_work *w, int err)
{
	struct kvc_seg *seg = kvc_seg(m->pool, w->gseg);

	/* first: nobody may take what is not on its way any more for durable */
	if (err) {
		kvc_member_fail(m->pool, m->index);
		tear(m, seg);
	}
	os_lock(&m->lock);
	seg->writing = false;
	m->summary_writes++;
	if (!err)
		kvc_seg_try_seal(m, seg);
	os_unlock(&m->lock);
}

/* Calls @due of the segments that may hold unlogged records; the first that it wants. Member locked. */
static struct kvc_seg *pick(struct kvc_member *m, bool (*due)(const struct kvc_seg *seg))
{
	struct kvc_pool *p = m->pool;
	u32 gseg, i;

	for (gseg = m->list[KVC_S_SEALING].first; gseg != KVC_NONE; gseg = kvc_seg(p, gseg)->next)
		if (due(kvc_seg(p, gseg)))
			return kvc_seg(p, gseg);
	for (i = 0; i < m->nr_heads; i++)
		if (m->head[i] && due(m->head[i]))
			return m->head[i];
	return NULL;
}

static int next_of(struct kvc_member *m, struct kvc_work *w, bool (*due)(const struct kvc_seg *seg))
{
	struct kvc_seg *seg;

	for (;;) {
		os_lock(&m->lock);
		seg = m->offline ? NULL : pick(m, due);
		os_unlock(&m->lock);
		if (!seg)
			return 0;
		if (kvc_summary_next(m, seg, w))
			return 1;
	}
}

static bool due_flush(const struct kvc_seg *seg)
{
	return seg->unlogged > 0 || due_close(seg);
}

/* A segment that is being sealed waits for its last store, to need one extent only. */
static bool due_unasked(const struct kvc_seg *seg)
{
	if (seg->state == KVC_S_SEALING && !seg->pending)
		return due_flush(seg);
	return seg->unlogged >= KVC_LOG_THRESHOLD;
}

int kvc_summary_any(struct kvc_member *m, struct kvc_work *w)
{
	return next_of(m, w, due_flush);
}

int kvc_summary_due(struct kvc_member *m, struct kvc_work *w)
{
	return next_of(m, w, due_unasked);
}

static bool logged(const struct kvc_pool *p, const struct kvc_seg *seg, u64 mark)
{
	if (seg->unlogged && seg->dirty_since <= mark)
		return false;
	if (READ_ONCE(p->resting) && due_close(seg))
		return false;
	return !seg->writing || seg->writing_since > mark;
}

/* Is every record that was committed on @m before @mark durable? Member locked. */
bool kvc_member_logged(const struct kvc_member *m, u64 mark)
{
	const struct kvc_pool *p = m->pool;
	u32 gseg, i;

	for (gseg = m->list[KVC_S_SEALING].first; gseg != KVC_NONE; gseg = kvc_seg(p, gseg)->next)
		if (!logged(p, kvc_seg(p, gseg), mark))
			return false;
	for (i = 0; i < m->nr_heads; i++)
		if (m->head[i] && !logged(p, m->head[i], mark))
			return false;
	return true;
}

/* Headers: of old segments at once, so that recovery forgets them; of others to keep a stock of free segments. */
int kvc_header_next(struct kvc_member *m, struct kvc_work *w)
{
	struct kvc_pool *p = m->pool;
	struct kvc_extent_writer xw;
	struct kvc_seg *seg = NULL;
	struct kvc_seg_id id;

	os_lock(&m->lock);
	if (!m->offline && m->list[KVC_S_BLANK].count) {
		seg = kvc_seg(p, m->list[KVC_S_BLANK].first);
		if (!os_atomic_read(&seg->undead) && m->list[KVC_S_FREE].count >= m->low)
			seg = NULL;
	}
	if (seg) {
		WRITE_ONCE(seg->generation, os_atomic64_inc_return(&p->generation));
		seg->salt = kvc_mix64(p->salt_seed ^ kvc_mix64(os_atomic64_inc_return(&p->salts)));
		seg_id(m, seg, &id);
	}
	os_unlock(&m->lock);
	if (!seg)
		return 0;
	kvc_work_init(m, seg, w, KVC_WORK_WRITE, KVC_W_HEADER, 0);
	kvc_extent_begin(&xw, m->extent, p->extent_max);
	w->buf = m->extent;
	w->len = kvc_extent_end(&xw, &id, 0);
	if (OS_SELF_CHECKS)
		check_extent(p, w, 0, &id);
	return 1;
}

void kvc_header_done(struct kvc_member *m, struct kvc_work *w, int err)
{
	struct kvc_pool *p = m->pool;
	struct kvc_seg *seg = kvc_seg(p, w->gseg);

	os_lock(&m->lock);
	WRITE_ONCE(m->headers_failed, err ? m->headers_failed + 1 : 0);
	if (err) {
		/* Old or new header, nobody knows which one recovery will see. */
		kvc_seg_undead(p, seg);
		kvc_seg_set_state(m, seg, KVC_S_UNUSABLE);
		kvc_space(p);
	} else {
		if (os_atomic_xchg(&seg->undead, 0))
			os_atomic_dec_and_test(&p->nr_undead);
		WRITE_ONCE(seg->believed, seg->generation);
		kvc_seg_reset(p, seg);
		kvc_victim_cost(m, kvc_gseg_local(w->gseg), 0);
		kvc_seg_set_state(m, seg, seg->used ? KVC_S_HEADED : KVC_S_FREE);
		kvc_space_made(m);
	}
	os_unlock(&m->lock);
}
