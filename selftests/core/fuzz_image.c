// SPDX-License-Identifier: GPL-2.0
/*
 * From a program to the devices of a pool: superblocks, then logs, extent by extent. See fuzz.h.
 *
 * The first operation says how large all is, and by y how it is attached: without which members (bits 0 to 2), with
 * recovery's buffer kept between reads or not (3), with discards or not (4), with a segment that cannot be read (from 8
 * on). Of those after it, op % 8 is
 *
 *	0 log		begin the log of segment b of member a with a header: generation y, salt c, next block x
 *	1 page		a record of key a, tenant and keyspace b, c blocks from the segment's end, x bytes, sequence y;
 *			its bytes are written too, as far as they have a place; op / 8 more of the keys behind it
 *	2 tombstone	of key a, tenant and keyspace b: segment x of member c, sequence and generation in y
 *	3 patch		change the extent when it is done
 *	4 end		of the extent: write it, put the checksum right unless a is odd, begin the next
 *	5 super		change slot b of member a; the checksum is put right unless c is odd
 *	6 bytes		change any bytes of member a
 *	7 use		the rest of the program is for the pool
 */
#include <errno.h>

#include "media/format_media.h"
#include "fuzz.h"
#include "media.h"

#define PATCHES_MAX	8U
#define EXTENT_CAP	(128U << 10)
#define WRITTEN_MAX	(64U << 10)		/* longest page whose bytes are written */

struct image {
	struct rig *r;
	u32	seg_blocks, block;		/* where in the segment the next extent goes */
	struct kvc_seg_id id;
	struct kvc_extent_writer w;
	u8	*buf;
	struct fuzz_op patches[PATCHES_MAX];
	u32	nr_patches;
};

static u64 segment_at(const struct image *m)
{
	return KVC_DATA_OFFSET + m->id.segment * m->r->super->segment_size;
}

static void write_extent(struct image *m, bool fix)
{
	u32 bytes = kvc_extent_end(&m->w, &m->id, m->block), blocks = bytes / KVC_BLOCK, i;

	for (i = 0; i < m->nr_patches; i++)
		fuzz_patch(m->buf, m->patches[i].op % 2 ? KVC_EXTENT_HEADER : bytes, &m->patches[i]);
	if (fix)
		media_fix_extent(m->buf, EXTENT_CAP);
	if (m->block < m->seg_blocks && blocks <= m->seg_blocks - m->block) {
		dev_pwrite(m->r->devs[m->id.member], segment_at(m) + (u64)m->block * KVC_BLOCK, m->buf, bytes);
		m->block += blocks;
	}
	m->nr_patches = 0;
	kvc_extent_begin(&m->w, m->buf, EXTENT_CAP);
}

static void begin_log(struct image *m, const struct fuzz_op *op)
{
	const struct kvc_super *s = m->r->super;

	m->id.member = op->a % s->nr_members;
	m->id.segment = op->b % s->members[m->id.member].nr_segments;
	m->id.generation = op->y + 1;
	m->id.salt = op->c;
	m->block = 0;
	kvc_extent_begin(&m->w, m->buf, EXTENT_CAP);
	write_extent(m, true);
	if (op->x)
		m->block = op->x % m->seg_blocks;
}

static void name_record(struct kvc_rec *rec, const struct fuzz_op *op)
{
	static const u32 epochs[4] = { 0, 0, 5, 0 };

	key_make(rec->key, op->a % 64);
	keyspace_make(rec->keyspace, (op->b >> 2) & 1);
	rec->tenant = op->b & 3;
	rec->epoch = epochs[rec->tenant] + ((op->b >> 3) & 1);
}

/* The page's bytes, and their checksums in the record, while there is a place for them */
static void write_page(struct image *m, const struct kvc_rec *rec, u32 version, void *crcs)
{
	u32 chunk = m->r->super->chunk_size, padded = kvc_blocks(rec->length) * KVC_BLOCK, i;
	u8 *buf;

	if (rec->length > WRITTEN_MAX || rec->block >= m->seg_blocks ||
	    kvc_blocks(rec->length) > m->seg_blocks - rec->block)
		return;
	buf = calloc(1, padded);
	if (!buf)
		fuzz_fail("the fuzzer itself is out of memory");
	page_bytes(buf, version, 0, rec->length);
	for (i = 0; i < rec->nr_crcs; i++)
		kvc_put_crc(crcs, i, page_crc(buf + (size_t)i * chunk, min(chunk, rec->length - i * chunk)));
	dev_pwrite(m->r->devs[m->id.member], segment_at(m) + (u64)rec->block * KVC_BLOCK, buf, padded);
	free(buf);
}

static void add_page(struct image *m, const struct fuzz_op *op, bool written)
{
	struct kvc_rec rec = {
		.type = KVC_REC_PAGE, .flags = (u16)(op->y >> 63), .length = op->x, .depth = op->c,
		.block = m->seg_blocks - 1 - op->c % m->seg_blocks, .seq = op->y & ~(1ULL << 63),
	};
	void *crcs;

	name_record(&rec, op);
	if (rec.length)
		rec.nr_crcs = (rec.length - 1) / m->r->super->chunk_size + 1;
	if (kvc_extent_add(&m->w, &rec, &crcs) && rec.length && written)
		write_page(m, &rec, op->a % 64, crcs);
}

static void add_pages(struct image *m, const struct fuzz_op *op)
{
	struct fuzz_op next = *op;
	u32 i;

	for (i = 0; i <= op->op / 8; i++) {
		add_page(m, &next, i == 0);
		next.a++;
	}
}

static void add_tomb(struct image *m, const struct fuzz_op *op)
{
	struct kvc_rec rec = {
		.type = KVC_REC_TOMBSTONE, .block = op->x, .length = op->c,
		.seq = op->y & 0xffffffff, .victim_gen = (op->y >> 32) + 1,
	};

	name_record(&rec, op);
	kvc_extent_add(&m->w, &rec, NULL);
}

static void change_super(struct image *m, const struct fuzz_op *op)
{
	struct dev *d = m->r->devs[op->a % m->r->nr_members];
	u64 at = kvc_super_offset(op->b % KVC_SUPER_SLOTS, dev_bytes(d));
	u8 *slot = malloc(KVC_SUPER_BYTES);
	struct fuzz_op patch = *op;

	if (!slot)
		fuzz_fail("the fuzzer itself is out of memory");
	dev_pread(d, at, slot, KVC_SUPER_BYTES);
	patch.a = op->c >> 1;
	patch.b = (u8)(op->c >> 4);
	fuzz_patch(slot, op->op & 8 ? 256 : sizeof(struct kvc_media_super), &patch);
	if (!(op->c & 1))
		media_fix_super(slot);
	dev_pwrite(d, at, slot, KVC_SUPER_BYTES);
	free(slot);
}

static void change_bytes(struct image *m, const struct fuzz_op *op)
{
	struct dev *d = m->r->devs[op->a % m->r->nr_members];
	u8 block[KVC_BLOCK];
	u64 at = ((u64)op->x * 8) % dev_bytes(d) & ~(u64)(KVC_BLOCK - 1);
	struct fuzz_op patch = *op;

	dev_pread(d, at, block, KVC_BLOCK);
	patch.x = op->x * 8 % KVC_BLOCK;
	patch.a = op->b;
	patch.b = op->c;
	fuzz_patch(block, KVC_BLOCK, &patch);
	dev_pwrite(d, at, block, KVC_BLOCK);
}

static void execute(struct image *m, const struct fuzz_op *op)
{
	switch (op->op % 8) {
	case 0:
		begin_log(m, op);
		break;
	case 1:
		add_pages(m, op);
		break;
	case 2:
		add_tomb(m, op);
		break;
	case 3:
		if (m->nr_patches < PATCHES_MAX)
			m->patches[m->nr_patches++] = *op;
		break;
	case 4:
		write_extent(m, !(op->a & 1));
		break;
	case 5:
		change_super(m, op);
		break;
	default:
		change_bytes(m, op);
	}
}

static struct rig *empty_image(struct fuzz_program *p)
{
	struct fuzz_op op = { 0 };
	struct kvc_super *s;
	struct rig *r;

	fuzz_next(p, &op);
	r = rig_format(op.a % 3 + 1, KVC_SEGMENTS_MIN + op.b % 3, KVC_SEGMENT_MIN + op.x % 4 * 3 * KVC_BLOCK,
		       KVC_CHUNK_MIN << op.c % 9);
	s = r->super;
	r->missing = op.y & (BIT_ULL(r->nr_members) - 1);
	if (r->missing == BIT_ULL(r->nr_members) - 1)
		r->missing = 0;
	r->forgetful = op.y & 8;
	r->discard_max = op.y & 16 ? 16 * KVC_BLOCK : 0;
	if (op.y >> 8 & 0xff)
		r->unreadable = (u32)(op.y >> 8 & 7) | (u32)(op.y >> 12 & 3) << 24;
	strcpy(s->tenants[1].name, "one");
	s->tenants[1].flags = KVC_TENANT_USED | KVC_TENANT_VERIFIED;
	strcpy(s->tenants[2].name, "two");
	s->tenants[2].flags = KVC_TENANT_USED;
	s->tenants[2].epoch = 5;
	return r;
}

static void write_supers(struct rig *r)
{
	u8 *slot = malloc(KVC_SUPER_BYTES);
	u32 i, n;

	if (!slot)
		fuzz_fail("the fuzzer itself is out of memory");
	for (i = 0; i < r->nr_members; i++) {
		for (n = 0; n < KVC_SUPER_SLOTS; n++) {
			r->super->seq = 2 - n % 2;
			kvc_super_encode(r->super, i, slot);
			dev_pwrite(r->devs[i], kvc_super_offset(n, dev_bytes(r->devs[i])), slot, KVC_SUPER_BYTES);
		}
	}
	r->super->seq = 2;
	free(slot);
}

struct rig *fuzz_image_build(struct fuzz_program *p)
{
	struct image m = { .r = empty_image(p) };
	struct fuzz_op op, first = { 0 };

	m.seg_blocks = (u32)(m.r->super->segment_size / KVC_BLOCK);
	m.buf = malloc(EXTENT_CAP);
	if (!m.buf)
		fuzz_fail("the fuzzer itself is out of memory");
	memcpy(m.id.pool_uuid, m.r->super->pool_uuid, KVC_UUID_LEN);
	write_supers(m.r);
	begin_log(&m, &first);
	while (fuzz_next(p, &op) && op.op % 8 != 7)
		execute(&m, &op);
	free(m.buf);
	return m.r;
}

static int write_device(struct dev *d, const char *path)
{
	static u8 block[KVC_BLOCK];
	FILE *f = fopen(path, "w");
	u64 at;

	if (!f)
		return -1;
	for (at = 0; at < dev_bytes(d); at += KVC_BLOCK) {
		dev_pread(d, at, block, KVC_BLOCK);
		if (block[0] || memcmp(block, block + 1, KVC_BLOCK - 1)) {
			if (fseeko(f, (off_t)at, SEEK_SET) || fwrite(block, KVC_BLOCK, 1, f) != 1)
				break;
		}
	}
	/* The last block, so that the file is as long as the device */
	if (at == dev_bytes(d) && (fseeko(f, (off_t)(at - KVC_BLOCK), SEEK_SET) || fwrite(block, KVC_BLOCK, 1, f) != 1))
		at = 0;
	return fclose(f) || at != dev_bytes(d) ? -1 : 0;
}

int fuzz_image_write(const u8 *data, size_t size, const char *dir)
{
	struct fuzz_program p = { .data = data, .left = size };
	struct rig *r = fuzz_image_build(&p);
	char path[512];
	int ret = 0;
	u32 i;

	for (i = 0; i < r->nr_members && !ret; i++) {
		snprintf(path, sizeof(path), "%s/%u", dir, i);
		ret = write_device(r->devs[i], path);
	}
	rig_free(r);
	return ret;
}
