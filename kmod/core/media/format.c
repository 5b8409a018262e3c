// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Summary extents: writing, reading, validating.
 *
 * The reader takes hostile bytes: peek trusts nothing, open trusts the bytes once their CRC and identity fit, next
 * checks each record for itself and against the segment's size. What a record claims beyond that (its tenant, its
 * victim, whether pages overlap) is for the engine to judge; a page that overlaps another fails its own CRCs.
 */
#include "media/format_media.h"

static const char * const reasons[KVC_NR_REASONS] = {
	[KVC_OK]		= "valid",
	[KVC_BAD_MAGIC]		= "not a kvctx structure",
	[KVC_BAD_CRC]		= "checksum mismatch",
	[KVC_BAD_VERSION]	= "format version not supported",
	[KVC_BAD_FEATURES]	= "unknown incompatible feature",
	[KVC_BAD_GEOMETRY]	= "sizes out of range or inconsistent",
	[KVC_BAD_IDENTITY]	= "belongs to another pool, member, segment or generation",
	[KVC_BAD_RECORD]	= "record with a field out of range",
	[KVC_BAD_TENANT]	= "tenant or its limits with a field out of range",
};

const char *kvc_reason_str(enum kvc_reason r)
{
	if ((u32)r >= KVC_NR_REASONS)
		return "unknown";
	return reasons[r];
}

u32 kvc_rec_crc(const struct kvc_rec *r, u32 i)
{
	__le32 v;

	memcpy(&v, (const u8 *)r->crcs + (size_t)i * 4, sizeof(v));
	return le32_to_cpu(v);
}

void kvc_put_crc(void *crcs, u32 i, u32 crc)
{
	__le32 v = cpu_to_le32(crc);

	memcpy((u8 *)crcs + (size_t)i * 4, &v, sizeof(v));
}

/* CRC of a structure of @bytes at @buf whose 4-byte CRC field at @field counts as zero */
static u32 crc_without_field(const void *buf, u32 bytes, u32 field)
{
	static const u8 zero[4];
	const u8 *p = buf;
	u32 crc = KVC_CRC_INIT;

	crc = kvc_crc_feed(crc, p, field);
	crc = kvc_crc_feed(crc, zero, sizeof(zero));
	crc = kvc_crc_feed(crc, p + field + 4, bytes - field - 4);
	return kvc_crc_finish(crc);
}

void kvc_extent_begin(struct kvc_extent_writer *w, void *buf, u32 cap)
{
	w->buf = buf;
	w->cap = cap;
	w->used = KVC_EXTENT_HEADER;
	w->nr_records = 0;
	w->flags = 0;
}

bool kvc_extent_add(struct kvc_extent_writer *w, const struct kvc_rec *r, void **crcs_out)
{
	u32 bytes = kvc_rec_bytes(r->nr_crcs);
	struct kvc_media_rec *m;

	if (bytes > w->cap - w->used)
		return false;
	m = (struct kvc_media_rec *)(w->buf + w->used);
	memset(m, 0, bytes);
	memcpy(m->key, r->key, KVC_KEY_LEN);
	memcpy(m->keyspace, r->keyspace, KVC_KEYSPACE_LEN);
	m->type = cpu_to_le16(r->type);
	m->flags = cpu_to_le16(r->flags);
	m->tenant = cpu_to_le32(r->tenant);
	m->epoch = cpu_to_le32(r->epoch);
	m->block = cpu_to_le32(r->block);
	m->seq = cpu_to_le64(r->seq);
	m->length = cpu_to_le32(r->length);
	m->depth = cpu_to_le32(r->depth);
	m->victim_gen = cpu_to_le64(r->victim_gen);
	m->nr_crcs = cpu_to_le32(r->nr_crcs);
	memcpy(m->nonce, r->nonce, KVC_NONCE_LEN);
	if (crcs_out)
		*crcs_out = m + 1;
	w->used += bytes;
	w->nr_records++;
	return true;
}

u32 kvc_extent_end(struct kvc_extent_writer *w, const struct kvc_seg_id *id, u32 first_block)
{
	struct kvc_media_extent *m = (struct kvc_media_extent *)w->buf;
	u32 bytes = kvc_blocks(w->used) << KVC_BLOCK_SHIFT;

	memset(m, 0, sizeof(*m));
	memset(w->buf + w->used, 0, bytes - w->used);
	m->magic = cpu_to_le32(KVC_EXTENT_MAGIC);
	m->version = cpu_to_le32(KVC_FORMAT_VERSION);
	m->bytes = cpu_to_le32(bytes);
	m->used = cpu_to_le32(w->used);
	m->nr_records = cpu_to_le32(w->nr_records);
	m->first_block = cpu_to_le32(first_block);
	m->member = cpu_to_le32(id->member);
	m->segment = cpu_to_le32(id->segment);
	m->generation = cpu_to_le64(id->generation);
	m->salt = cpu_to_le64(id->salt);
	memcpy(m->pool_uuid, id->pool_uuid, KVC_UUID_LEN);
	m->flags = cpu_to_le32(w->flags);
	m->crc = cpu_to_le32(crc_without_field(m, bytes, offsetof(struct kvc_media_extent, crc)));
	return bytes;
}

enum kvc_reason kvc_extent_peek(const void *block, u32 *bytes)
{
	const struct kvc_media_extent *m = block;
	u32 n;

	if (le32_to_cpu(m->magic) != KVC_EXTENT_MAGIC)
		return KVC_BAD_MAGIC;
	if (le32_to_cpu(m->version) != KVC_FORMAT_VERSION)
		return KVC_BAD_VERSION;
	n = le32_to_cpu(m->bytes);
	if (n < KVC_BLOCK || n > KVC_EXTENT_MAX || n % KVC_BLOCK)
		return KVC_BAD_GEOMETRY;
	*bytes = n;
	return KVC_OK;
}

static enum kvc_reason check_identity(const struct kvc_media_extent *m, struct kvc_seg_id *id, u32 first_block)
{
	u64 generation = le64_to_cpu(m->generation), salt = le64_to_cpu(m->salt);

	if (memcmp(m->pool_uuid, id->pool_uuid, KVC_UUID_LEN) || le32_to_cpu(m->member) != id->member ||
	    le32_to_cpu(m->segment) != id->segment || le32_to_cpu(m->first_block) != first_block)
		return KVC_BAD_IDENTITY;
	if (first_block == 0) {
		if (generation == 0 || generation >= KVC_COUNTER_END)
			return KVC_BAD_IDENTITY;
		id->generation = generation;
		id->salt = salt;
	}
	if (generation != id->generation || salt != id->salt)
		return KVC_BAD_IDENTITY;
	return KVC_OK;
}

enum kvc_reason kvc_extent_open(struct kvc_extent_reader *r, const void *buf, u32 bytes, struct kvc_seg_id *id,
				u32 first_block, u32 seg_blocks, u32 chunk_size)
{
	const struct kvc_media_extent *m = buf;
	u32 len, used, nr_records;
	enum kvc_reason why;

	if (bytes < KVC_BLOCK)
		return KVC_BAD_GEOMETRY;
	why = kvc_extent_peek(buf, &len);
	if (why != KVC_OK)
		return why;
	if (len != bytes || first_block >= seg_blocks || kvc_blocks(len) > seg_blocks - first_block)
		return KVC_BAD_GEOMETRY;
	if (crc_without_field(m, len, offsetof(struct kvc_media_extent, crc)) != le32_to_cpu(m->crc))
		return KVC_BAD_CRC;
	used = le32_to_cpu(m->used);
	nr_records = le32_to_cpu(m->nr_records);
	if (used < KVC_EXTENT_HEADER || used > len || nr_records > (used - KVC_EXTENT_HEADER) / KVC_REC_FIXED)
		return KVC_BAD_GEOMETRY;
	if (first_block == 0 && nr_records != 0)
		return KVC_BAD_RECORD;
	why = check_identity(m, id, first_block);
	if (why != KVC_OK)
		return why;
	r->buf = buf;
	r->pos = KVC_EXTENT_HEADER;
	r->end = used;
	r->nr_records = nr_records;
	r->done = 0;
	r->flags = le32_to_cpu(m->flags);
	r->seg_blocks = seg_blocks;
	r->chunk_size = chunk_size;
	return KVC_OK;
}

bool kvc_extent_trace(const void *block, const struct kvc_seg_id *id)
{
	const struct kvc_media_extent *m = block;

	return !memcmp(m->pool_uuid, id->pool_uuid, KVC_UUID_LEN) &&
	       le64_to_cpu(m->generation) == id->generation && le64_to_cpu(m->salt) == id->salt;
}

bool kvc_extent_sibling(const void *block, const struct kvc_seg_id *id)
{
	const struct kvc_media_extent *m = block;

	return le32_to_cpu(m->magic) == KVC_EXTENT_MAGIC && !memcmp(m->pool_uuid, id->pool_uuid, KVC_UUID_LEN) &&
	       le32_to_cpu(m->member) == id->member && le32_to_cpu(m->segment) == id->segment;
}

static bool page_ok(const struct kvc_extent_reader *r, const struct kvc_rec *rec)
{
	if (rec->length == 0 || rec->length > KVC_PAGE_MAX || rec->victim_gen != 0 ||
	    rec->flags & ~(KVC_REC_NO_CRCS | KVC_REC_ENCRYPTED))
		return false;
	if (rec->block == 0 || rec->block >= r->seg_blocks ||
	    kvc_blocks(rec->length) > r->seg_blocks - rec->block)
		return false;
	return rec->nr_crcs == (rec->length - 1) / r->chunk_size + 1;
}

static bool tombstone_ok(const struct kvc_rec *rec)
{
	return rec->flags == 0 && rec->nr_crcs == 0 && rec->block < KVC_SEGMENTS_END && rec->length < KVC_MEMBERS_MAX &&
	       rec->victim_gen < KVC_COUNTER_END;
}

enum kvc_reason kvc_extent_next(struct kvc_extent_reader *r, struct kvc_rec *rec)
{
	const struct kvc_media_rec *m;
	bool ok = false;

	if (r->done == r->nr_records)
		return KVC_NR_REASONS;
	if (r->end - r->pos < KVC_REC_FIXED)
		return KVC_BAD_RECORD;
	m = (const struct kvc_media_rec *)(r->buf + r->pos);
	memcpy(rec->key, m->key, KVC_KEY_LEN);
	memcpy(rec->keyspace, m->keyspace, KVC_KEYSPACE_LEN);
	rec->type = le16_to_cpu(m->type);
	rec->flags = le16_to_cpu(m->flags);
	rec->tenant = le32_to_cpu(m->tenant);
	rec->epoch = le32_to_cpu(m->epoch);
	rec->block = le32_to_cpu(m->block);
	rec->seq = le64_to_cpu(m->seq);
	rec->length = le32_to_cpu(m->length);
	rec->depth = le32_to_cpu(m->depth);
	rec->victim_gen = le64_to_cpu(m->victim_gen);
	rec->nr_crcs = le32_to_cpu(m->nr_crcs);
	memcpy(rec->nonce, m->nonce, KVC_NONCE_LEN);
	rec->crcs = m + 1;

	if (rec->type == KVC_REC_PAGE)
		ok = page_ok(r, rec);
	else if (rec->type == KVC_REC_TOMBSTONE)
		ok = tombstone_ok(rec);
	if (!ok || rec->tenant >= KVC_TENANTS_MAX || rec->seq >= KVC_COUNTER_END)
		return KVC_BAD_RECORD;
	/* A page's nr_crcs was compared with its length: no overflow here. */
	if (kvc_rec_bytes(rec->nr_crcs) > r->end - r->pos)
		return KVC_BAD_RECORD;
	r->pos += kvc_rec_bytes(rec->nr_crcs);
	r->done++;
	return KVC_OK;
}
