// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Recovery: the index from what media says.
 *
 * Each segment's log is read extent by extent until one fails a check. Of several records of a key the newest counts;
 * equal sequences are copies of one page. Tombstones take part in the index until kvc_recover_finish(). A segment
 * whose log holds anything is SEALED afterwards and not reopened for pages; one with a header only, or none, is BLANK
 * and gets a new header before it is used: behind a damaged extent others of the same generation may lie, which must
 * never follow a new one. So what tombstones add to an old log has its end with it, see summary.c. A log that ends
 * within an extent, at a record that does not count, is not written on: those before it do.
 *
 * A log that an extent of its own calls closed has no pages behind its end. Others may: a head, when the power was cut,
 * but also a log of which an extent was not read as it is, or its header was not, so that the segment looks unused.
 * Another attach may read it well. Such a segment is believed as far as it goes, and reclaimed first; until it has a
 * new header it is taken for one that leads to pages of any age (kvc_seg_doubt()). Nothing is added to its log, as that
 * would take the place of what was not found; nor to a closed one whose end shows traces of a damaged extent, of
 * tombstones then. An extent whose checksum is wrong is read once more, as it is not always the medium that is wrong,
 * and so is what stands behind a log that is not closed: if it does look unused, it is written over soon.
 *
 * A segment that holds a record which lost, unless to a tombstone naming that very segment, is undead: see tomb.c.
 *
 * Media is hostile. The records of a segment and their CRCs are no more than when it is written, so memory is bounded
 * by the size of the pool; its log counts up to the one that is too many. Those that lost are counted too, or what
 * another segment says would decide. Records of other tenants, epochs or members than there are do not count.
 */
#include "log/log.h"

/*
 * Counters begin at as many gaps as the superblock's sequence says, which counts the attaches, and nobody counts a gap
 * in one attach. So they are above everything that was ever counted, also where that cannot be read now, or is on a
 * member that is missing. Whatever media says beyond that they leave as far behind.
 *
 * Nobody counts to half of the range; who claims so is not believed, or the counters could not go on. What is counted
 * behind a claim just below that has to be believed by the attaches that follow: each believes two gaps more.
 */
#define RECOVER_GAP	BIT_ULL(32)
#define RECOVER_ATTACHES	BIT_ULL(28)

os_static_assert(2 * RECOVER_ATTACHES * RECOVER_GAP <= KVC_COUNTER_END / 2, "room for what is believed");

/* What the attaches before this one have left room for */
static u64 gaps(const struct kvc_pool *p)
{
	return min(p->super.seq, RECOVER_ATTACHES - 1) * RECOVER_GAP;
}

static bool believed(const struct kvc_pool *p, u64 counter)
{
	return counter < KVC_COUNTER_END / 2 + 2 * gaps(p);
}

/*
 * Ask for the extent at next_block, of which @least bytes are needed and the buffer has @kept already. A step is read
 * when the need is smaller, or not known, unless it was read before.
 */
static void want(const struct kvc_member *m, struct kvc_recover *r, u32 least, u32 kept)
{
	u32 left = ((m->pool->seg_blocks - r->next_block) << KVC_BLOCK_SHIFT) - kept;

	r->first_block = r->next_block;
	r->offset = kvc_seg_offset(m, r->gseg) + ((u64)r->next_block << KVC_BLOCK_SHIFT) + kept;
	r->len = min(min(max(least - kept, r->again ? 0 : KVC_RECOVER_STEP), left), KVC_RECOVER_IO - kept);
	r->at = kept;
}

/* An extent of @bytes at @pos of the buffer is there but for its end; @have: bytes in the buffer. */
static void want_rest(const struct kvc_member *m, struct kvc_recover *r, u32 pos, u32 have, u32 bytes)
{
	u32 kept = r->keep ? have - pos : 0;

	if (kept)
		memmove(r->keep, (u8 *)r->keep + pos, kept);
	want(m, r, bytes, kept);
}

void kvc_recover_start(struct kvc_pool *p, u32 member, u32 segment, struct kvc_recover *r)
{
	struct kvc_member *m = &p->members[member];

	memset(r, 0, sizeof(*r));
	r->gseg = kvc_gseg_of(member, segment);
	r->member = m->index;
	memcpy(r->id.pool_uuid, p->super.pool_uuid, KVC_UUID_LEN);
	r->id.member = m->index;
	r->id.segment = segment;
	want(m, r, KVC_BLOCK, 0);
}

/* Room in the segment's memory: 0 or -ENOMEM. Member locked. */
static int make_room(struct kvc_member *m, struct kvc_seg *seg, u32 nr_crcs)
{
	int r;

	do {
		r = kvc_seg_grow(m, seg, nr_crcs);
	} while (r > 0);
	return r;
}

static bool names(const struct kvc_pool *p, const struct kvc_entry *tomb, u32 gseg)
{
	return tomb->state == KVC_E_TOMB && kvc_tomb_victim(tomb) == gseg &&
	       kvc_tomb_gen(tomb) == READ_ONCE(kvc_seg(p, gseg)->generation);
}

/* A record of the page in @gseg lost against @winner. */
static void lost(struct kvc_pool *p, u32 gseg, const struct kvc_entry *winner)
{
	if (!names(p, winner, gseg))
		kvc_seg_undead(p, kvc_seg(p, gseg));
}

/* Take @old out of the index; @winner comes. Shard locked. */
static void supersede(struct kvc_pool *p, u32 bucket, u32 old, const struct kvc_entry *winner)
{
	u32 gseg = kvc_eblock(p, old)->gseg;

	if (kvc_entry(p, old)->state == KVC_E_LIVE) {
		kvc_page_drop(p, bucket, old);
		lost(p, gseg, winner);
	} else {
		kvc_index_remove(p, bucket, old);
	}
}

/* Does it stand before a tombstone in the index? Then an older page might be taken for the newest if it went. */
static bool hides_tomb(const struct kvc_entry *e)
{
	return e->state == KVC_E_TOMB || e->copy;
}

/* Member and shard locked, room made. */
static void add_page(struct kvc_pool *p, struct kvc_seg *seg, struct kvc_domain *d, const struct kvc_rec *rec,
		     u32 bucket)
{
	u32 old = kvc_index_find(p, bucket, d, rec->key), entry, i;
	struct kvc_entry *e;

	if (old != KVC_NONE && kvc_entry(p, old)->seq >= rec->seq) {
		lost(p, kvc_gseg(p, seg), kvc_entry(p, old));
		return;
	}
	entry = kvc_seg_append(p, seg, d, rec->key);
	e = kvc_entry(p, entry);
	e->seq = rec->seq;
	e->block = rec->block;
	e->length = rec->length;
	e->depth = min_t(u32, rec->depth, KVC_DEPTH_MAX);
	e->crc_base = seg->nr_crcs;
	e->no_crcs = !!(rec->flags & KVC_REC_NO_CRCS);
	e->logged = 1;
	e->copy = old != KVC_NONE && hides_tomb(kvc_entry(p, old));
	for (i = 0; i < rec->nr_crcs; i++)
		*kvc_crc_slot(seg, seg->nr_crcs + i) = kvc_rec_crc(rec, i);
	seg->nr_crcs += rec->nr_crcs;
	if (unlikely(d->encrypted))
		memcpy(kvc_nonce(p, entry), rec->nonce, KVC_NONCE_LEN);
	if (old != KVC_NONE)
		supersede(p, bucket, old, e);
	kvc_index_insert(p, bucket, entry);
	kvc_page_publish(p, kvc_shard(p, bucket), entry);
}

/* Does the newer of two tombstones of a key do all that the older one does? Copies of one do. */
static bool covers(const struct kvc_entry *a, const struct kvc_entry *b)
{
	return a->seq == b->seq || (kvc_tomb_victim(a) == kvc_tomb_victim(b) && kvc_tomb_gen(a) == kvc_tomb_gen(b));
}

static bool victim_exists(const struct kvc_pool *p, const struct kvc_rec *rec)
{
	return rec->length < kvc_nr_members(p) && rec->block < p->members[rec->length].nr_segs;
}

/*
 * A tombstone is an entry whether it won or not, unless another covers it: reclaim copies it while it may be needed.
 * One that names a segment which is not there, as its member was removed, names none: its own, generation 0.
 */
static void add_tomb(struct kvc_pool *p, struct kvc_seg *seg, struct kvc_domain *d, const struct kvc_rec *rec,
		     u32 bucket)
{
	u32 old = kvc_index_find(p, bucket, d, rec->key);
	u32 entry = kvc_seg_append(p, seg, d, rec->key);
	struct kvc_entry *e = kvc_entry(p, entry);
	struct kvc_entry *o;

	e->state = KVC_E_TOMB;
	e->seq = rec->seq;
	if (victim_exists(p, rec))
		kvc_tomb_set(e, kvc_gseg_of(rec->length, rec->block), rec->victim_gen);
	else
		kvc_tomb_set(e, kvc_gseg(p, seg), 0);
	e->logged = 1;
	if (old != KVC_NONE) {
		o = kvc_entry(p, old);
		if (o->seq > rec->seq || (o->seq == rec->seq && o->state == KVC_E_TOMB)) {
			if (o->state == KVC_E_TOMB && covers(o, e))
				e->state = KVC_E_DEAD;
			else if (o->state == KVC_E_LIVE)
				o->copy = 1;
			return;
		}
		supersede(p, bucket, old, e);
		if (o->state == KVC_E_TOMB && covers(o, e))
			o->state = KVC_E_DEAD;
	}
	kvc_index_insert(p, bucket, entry);
	os_atomic_inc(&p->nr_tombs_chained);
}

/* A record of a domain that there is: 0, -ENOMEM; 1: grow the index. Member locked. */
static int add_known(struct kvc_member *m, struct kvc_seg *seg, struct kvc_domain *d, const struct kvc_rec *rec,
		     u32 bucket)
{
	struct kvc_pool *p = m->pool;
	struct kvc_shard *sh = kvc_shard(p, bucket);
	int r = make_room(m, seg, rec->nr_crcs);

	if (r)
		return r;
	os_lock(&sh->lock);
	if (!kvc_index_room(p, bucket))
		r = 1;
	else if (rec->type == KVC_REC_PAGE)
		add_page(p, seg, d, rec, bucket);
	else
		add_tomb(p, seg, d, rec, bucket);
	os_unlock(&sh->lock);
	return r;
}

/*
 * There is no room for the record's domain, or no memory for its page. The page is not found; the tombstone cannot be
 * copied, and kills nothing in this attach, as nothing of the domain is there, but the next attach may need it.
 */
static void leave_out(struct kvc_pool *p, struct kvc_seg *seg, const struct kvc_rec *rec)
{
	if (rec->type == KVC_REC_PAGE)
		kvc_seg_undead(p, seg);
	else
		WRITE_ONCE(seg->rooted, true);
}

/* A record that counts. @d: NULL when its domain does not, or it was left out */
static int take_record(struct kvc_member *m, struct kvc_seg *seg, struct kvc_domain *d, const struct kvc_rec *rec)
{
	u32 bucket = d ? kvc_bucket(m->pool, d, rec->key) : 0;
	int r = d ? kvc_index_grow(m->pool, bucket) : 0;

	os_lock(&m->lock);
	if (!d)
		m->recover_skipped++;
	else if (!r)
		r = add_known(m, seg, d, rec, bucket);
	m->recovered_seq = max(m->recovered_seq, rec->seq);
	m->recovered_gen = max(m->recovered_gen, rec->victim_gen);
	if (rec->type == KVC_REC_PAGE) {
		seg->data_start = min(seg->data_start, rec->block);
		WRITE_ONCE(seg->min_seq, min(seg->min_seq, rec->seq));
	}
	os_unlock(&m->lock);
	return r;
}

/* Is the segment one of those whose pages there is no memory for? */
static bool too_old(const struct kvc_pool *p, u64 generation)
{
	return generation < READ_ONCE(p->memory.floor);
}

/* A page as nobody stored one: the tenant has a key and it is not encrypted, or the other way round */
static bool strange(const struct kvc_domain *d, const struct kvc_rec *rec)
{
	return d->encrypted != !!(rec->flags & KVC_REC_ENCRYPTED);
}

/* 0, -ENOMEM, or -EINVAL: the log does not count from here on */
static int add_record(struct kvc_member *m, struct kvc_recover *rc, struct kvc_seg *seg, const struct kvc_rec *rec)
{
	struct kvc_pool *p = m->pool;
	struct kvc_domain *d;
	int r;

	if (!believed(p, rec->seq) || !believed(p, rec->victim_gen))
		return -EINVAL;
	r = kvc_domain_of_record(p, rec, &rc->domain);
	if (r == -ENOMEM)
		return r;
	d = rc->domain;
	if (d && rec->type == KVC_REC_PAGE && too_old(p, rc->id.generation)) {
		os_atomic64_add(&p->memory.dropped, 1);
		d = NULL;
	}
	if (d && rec->type == KVC_REC_PAGE && strange(d, rec))
		d = NULL;
	if (r == -EDQUOT || d != rc->domain)
		leave_out(p, seg, rec);
	do {
		r = take_record(m, seg, d, rec);
	} while (r == 1);
	return r;
}

static bool in_share(const struct kvc_pool *p, const struct kvc_recover *r, const struct kvc_rec *rec)
{
	return r->nr_records < kvc_seg_entries_max(p) && rec->nr_crcs <= p->seg_blocks - r->nr_crcs;
}

/*
 * Everything in an extent that passed kvc_extent_open(). After -ENOMEM it goes on with the record that failed: the
 * others have taken their room in the segment already.
 */
static int add_extent(struct kvc_member *m, struct kvc_recover *r, struct kvc_extent_reader *xr)
{
	struct kvc_seg *seg = kvc_seg(m->pool, r->gseg);
	enum kvc_reason why;
	struct kvc_rec rec;
	u32 i;
	int err;

	for (i = 0;; i++) {
		why = kvc_extent_next(xr, &rec);
		if (why == KVC_NR_REASONS)
			break;
		if (i < r->next_record)
			continue;
		err = why == KVC_OK && in_share(m->pool, r, &rec) ? add_record(m, r, seg, &rec) : -EINVAL;
		if (err)
			return err;
		r->next_record++;
		r->nr_records++;
		r->nr_crcs += rec.nr_crcs;
	}
	r->next_record = 0;
	return 0;
}

static void skipped(struct kvc_member *m)
{
	os_lock(&m->lock);
	m->recover_skipped++;
	os_unlock(&m->lock);
}

/* 0; -EAGAIN: read it once more; -EINVAL: the log ends here; -ENOMEM */
static int take_extent(struct kvc_member *m, struct kvc_recover *r, const void *buf, u32 bytes)
{
	struct kvc_pool *p = m->pool;
	struct kvc_seg *seg = kvc_seg(p, r->gseg);
	struct kvc_extent_reader xr;
	enum kvc_reason why;
	int ret;

	why = kvc_extent_open(&xr, buf, bytes, &r->id, r->next_block, p->seg_blocks, p->chunk_size);
	if (why == KVC_BAD_CRC && !r->again)
		return -EAGAIN;
	if (why == KVC_BAD_CRC) {
		skipped(m);
		/* whatever it seems to be an extent of */
		r->cut = true;
	}
	if (why != KVC_OK || !believed(p, r->id.generation))
		return -EINVAL;
	if (r->next_block == 0) {
		os_lock(&m->lock);
		WRITE_ONCE(seg->generation, r->id.generation);
		WRITE_ONCE(seg->believed, r->id.generation);
		seg->salt = r->id.salt;
		seg->open_seq = r->id.generation;
		m->recovered_gen = max(m->recovered_gen, r->id.generation);
		os_unlock(&m->lock);
	}
	ret = add_extent(m, r, &xr);
	if (ret == -EINVAL) {
		skipped(m);
		r->cut = true;
	}
	if (!ret) {
		r->next_block += bytes >> KVC_BLOCK_SHIFT;
		r->closed |= xr.flags & KVC_EXTENT_CLOSED;
		r->again = false;
	}
	return ret;
}

/*
 * The log ends in front of @block: what does that say of it? False: nothing before it was read once more, as pages may
 * be behind it.
 */
static bool look_behind(struct kvc_recover *r, const u8 *block)
{
	u32 i;

	for (i = 0; !r->next_block && !r->again && i < KVC_BLOCK && !block[i]; i++)
		;
	/* a step was read */
	r->unused = i == KVC_BLOCK && !kvc_extent_sibling(block + KVC_BLOCK, &r->id);
	if (!r->again && !r->closed && !r->unused && !r->cut)
		return false;
	if (r->next_block)
		r->cut |= kvc_extent_trace(block, &r->id);
	return true;
}

static int read_again(const struct kvc_member *m, struct kvc_recover *r, u32 bytes)
{
	r->again = true;
	want(m, r, bytes, 0);
	return 1;
}

static void end_of_log(struct kvc_member *m, struct kvc_recover *r, int err)
{
	struct kvc_seg *seg = kvc_seg(m->pool, r->gseg);

	os_lock(&m->lock);
	if (err) {
		seg->broken = true;
	} else if (r->next_block > 1 || seg->nr_entries) {
		seg->used = true;
		seg->log_end = r->next_block;
		seg->old = true;
		seg->closed = true;
		/* one block less: for the end of the log */
		seg->data_start = max(seg->data_start - 1, seg->log_end);
		if (r->cut || !r->closed)
			kvc_seg_end_log(seg);
		seg->log_cursor.index = seg->nr_entries;
		seg->nr_strays = r->nr_records - seg->nr_entries;
		kvc_seg_set_state(m, seg, KVC_S_SEALED);
	}
	if (!err && !r->closed && !r->unused)
		kvc_seg_doubt(m, seg);
	os_unlock(&m->lock);
	if (r->domain)
		kvc_domain_put(m->pool, r->domain);
	r->domain = NULL;
}

/* Shard locked. */
static void drop_page(struct kvc_pool *p, u32 bucket, u32 entry)
{
	struct kvc_entry *e = kvc_entry(p, entry);
	bool hides = hides_tomb(e);

	kvc_page_drop(p, bucket, entry);
	os_atomic64_add(&p->memory.dropped, 1);
	if (!hides)
		return;
	e->state = KVC_E_TOMB;
	e->copy = 0;
	kvc_tomb_set(e, kvc_eblock(p, entry)->gseg, 0);
	kvc_index_insert(p, bucket, entry);
	os_atomic_inc(&p->nr_tombs_chained);
}

/*
 * The pages of a segment that was read leave the index as if it had been evicted. Its tombstones stay, and what stood
 * before one becomes another, of nothing, so that what is older stays out.
 */
static void drop_pages(struct kvc_pool *p, struct kvc_seg *seg)
{
	struct kvc_member *m = kvc_member_of(p, kvc_gseg(p, seg));
	struct kvc_cursor c;
	u32 entry, bucket;

	kvc_seg_undead(p, seg);
	kvc_cursor_init(&c);
	while ((entry = kvc_cursor_entry(p, seg, &c)) != KVC_NONE) {
		bucket = kvc_entry_bucket(p, entry);
		os_lock(&kvc_shard(p, bucket)->lock);
		if (kvc_entry(p, entry)->state == KVC_E_LIVE)
			drop_page(p, bucket, entry);
		os_unlock(&kvc_shard(p, bucket)->lock);
		c.index++;
	}
	kvc_seg_free_dead(p, seg);
	os_lock(&m->lock);
	kvc_cursor_init(&seg->log_cursor);
	seg->log_cursor.index = seg->nr_entries;
	os_unlock(&m->lock);
}

/* Of those that were read, and may be dropped. Member locked. */
static bool droppable(const struct kvc_seg *seg, u64 floor)
{
	return seg->state == KVC_S_SEALED && !seg->dropped && seg->open_seq < floor;
}

static u64 bytes_below(struct kvc_pool *p, u64 floor)
{
	u64 bytes = 0;
	u32 i, j;

	for (i = 0; i < kvc_nr_members(p); i++) {
		struct kvc_member *m = &p->members[i];

		os_lock(&m->lock);
		for (j = 0; j < m->nr_segs; j++)
			if (droppable(&m->segs[j], floor))
				bytes += kvc_seg_bytes(p, &m->segs[j]);
		os_unlock(&m->lock);
		os_relax();
	}
	return bytes;
}

/* The lowest that lets an eighth of the limit go, or all that there is; 0: nothing */
static u64 next_floor(struct kvc_pool *p)
{
	u64 low = 0, high = KVC_COUNTER_END, mid, wanted = min(bytes_below(p, high), p->memory.limit / 8 + 1);

	if (!wanted)
		return 0;
	while (high - low > 1) {
		mid = low + (high - low) / 2;
		if (bytes_below(p, mid) >= wanted)
			high = mid;
		else
			low = mid;
	}
	return high;
}

static void drop_below(struct kvc_pool *p, struct kvc_member *m, u64 floor)
{
	bool drop;
	u32 i;

	for (i = 0; i < m->nr_segs; i++) {
		os_lock(&m->lock);
		drop = droppable(&m->segs[i], floor);
		m->segs[i].dropped |= drop;
		os_unlock(&m->lock);
		if (drop)
			drop_pages(p, &m->segs[i]);
	}
}

/* A segment was read: is there memory for its pages, and for those of all others? One thread at a time makes some. */
static void make_memory(struct kvc_pool *p, struct kvc_seg *seg)
{
	struct kvc_member *m = kvc_member_of(p, kvc_gseg(p, seg));
	u64 floor = READ_ONCE(p->memory.floor);
	bool drop;
	u32 i;

	os_lock(&m->lock);
	drop = droppable(seg, floor);
	seg->dropped |= drop;
	os_unlock(&m->lock);
	if (drop)
		drop_pages(p, seg);
	while (kvc_memory_full(p) && !os_atomic_xchg(&p->memory.raising, 1)) {
		floor = next_floor(p);
		if (floor)
			WRITE_ONCE(p->memory.floor, floor);
		for (i = 0; i < kvc_nr_members(p); i++)
			drop_below(p, &p->members[i], floor);
		os_atomic_xchg(&p->memory.raising, 0);
		if (!floor)
			break;
	}
}

int kvc_recover_feed(struct kvc_pool *p, struct kvc_recover *r, const void *buf, int err)
{
	struct kvc_member *m = &p->members[r->member];
	u32 bytes, pos, left;
	int ret;

	while (!err && r->next_block < p->seg_blocks) {
		pos = (r->next_block - r->first_block) << KVC_BLOCK_SHIFT;
		left = r->at + r->len - pos;
		if (left < KVC_BLOCK) {
			want(m, r, KVC_BLOCK, 0);
			return 1;
		}
		if (kvc_extent_peek((const u8 *)buf + pos, &bytes) != KVC_OK ||
		    kvc_blocks(bytes) > p->seg_blocks - r->next_block) {
			if (!look_behind(r, (const u8 *)buf + pos))
				return read_again(m, r, KVC_BLOCK);
			break;
		}
		if (bytes > left) {
			want_rest(m, r, pos, r->at + r->len, bytes);
			return 1;
		}
		ret = take_extent(m, r, (const u8 *)buf + pos, bytes);
		if (ret == -ENOMEM)
			return ret;
		if (ret == -EAGAIN)
			return read_again(m, r, bytes);
		if (ret) {
			if (!look_behind(r, (const u8 *)buf + pos))
				return read_again(m, r, bytes);
			break;
		}
	}
	end_of_log(m, r, err);
	make_memory(p, kvc_seg(p, r->gseg));
	return 0;
}

static bool is_tomb(const struct kvc_pool *p, const struct kvc_entry *e)
{
	(void)p;
	return e->state == KVC_E_TOMB;
}

/* What was found before a read error does not count: the rest of the log may have taken it back. */
static void drop_segment(struct kvc_pool *p, struct kvc_seg *seg)
{
	struct kvc_member *m = kvc_member_of(p, kvc_gseg(p, seg));
	struct kvc_cursor c;
	u32 entry, bucket;

	kvc_cursor_init(&c);
	while ((entry = kvc_cursor_entry(p, seg, &c)) != KVC_NONE) {
		bucket = kvc_entry_bucket(p, entry);
		os_lock(&kvc_shard(p, bucket)->lock);
		if (kvc_entry(p, entry)->state == KVC_E_LIVE)
			kvc_page_drop(p, bucket, entry);
		os_unlock(&kvc_shard(p, bucket)->lock);
		c.index++;
	}
	kvc_seg_free_entries(p, seg);
	os_lock(&m->lock);
	kvc_seg_doubt(m, seg);
	kvc_seg_set_state(m, seg, KVC_S_UNUSABLE);
	os_unlock(&m->lock);
}

static void drop_broken(struct kvc_member *m)
{
	u32 i;

	for (i = 0; i < m->nr_segs; i++)
		if (m->segs[i].broken)
			drop_segment(m->pool, &m->segs[i]);
}

/* Nobody knows how old the records of a member that was not read are. */
static void set_unknown(struct kvc_member *m)
{
	u32 i;

	m->unknown = true;
	os_atomic_inc(&m->pool->nr_unknown);
	for (i = 0; i < m->nr_segs; i++)
		WRITE_ONCE(m->segs[i].min_seq, 0);
}

static u64 first_count(const struct kvc_pool *p, u64 seen)
{
	u64 first = gaps(p);

	return seen < first ? first : seen + RECOVER_GAP;
}

void kvc_recover_finish(struct kvc_pool *p)
{
	u64 seq = 0, gen = 0;
	struct kvc_stats st;
	u32 i;

	kvc_domains_recovered(p);
	if (os_atomic_read(&p->nr_tombs_chained))
		kvc_index_sweep(p, is_tomb);
	for (i = 0; i < kvc_nr_members(p); i++) {
		struct kvc_member *m = &p->members[i];

		drop_broken(m);
		if (m->offline && m->nr_segs)
			set_unknown(m);
		seq = max(seq, m->recovered_seq);
		gen = max(gen, m->recovered_gen);
	}
	p->super.ro_compat |= KVC_RO_COMPAT_CLOSED;
	kvc_super_touch(p);
	os_atomic64_set(&p->seq, first_count(p, seq));
	os_atomic64_set(&p->generation, first_count(p, gen));
	os_atomic64_set(&p->open_seq, first_count(p, gen));
	kvc_stats_get(p, &st);
	p->recovered_pages = st.pages;
	os_lock(&p->domains.lock);
	kvc_quota_plan(p);
	os_unlock(&p->domains.lock);
	for (i = 0; i < kvc_nr_members(p); i++)
		kvc_kick(&p->members[i]);
}
