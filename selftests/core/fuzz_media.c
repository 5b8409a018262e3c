// SPDX-License-Identifier: GPL-2.0
/*
 * Fuzz targets for single structures: superblock slot, segment header, summary extent. See fuzz.h.
 *
 * Each begins with a sound one. Operations are patches; the odd one says how the structure is read instead.
 */
#include "media/format_media.h"
#include "fuzz.h"
#include "media.h"

#define EXTENT_CAP	(4 * KVC_BLOCK)

static void *must(void *p)
{
	if (!p)
		fuzz_fail("the fuzzer itself is out of memory");
	return p;
}

/* Superblock */

static void check_super(const struct kvc_super *s)
{
	struct kvc_super *again = must(malloc(sizeof(*again)));
	u8 *buf = must(malloc(KVC_SUPER_BYTES));
	u32 i;

	if (kvc_super_check(s) != KVC_OK)
		fuzz_fail("a decoded superblock fails its own check");
	for (i = 0; i < s->nr_members; i++)
		if (!kvc_super_hole(s, i) &&
		    kvc_device_bytes(s->members[i].nr_segments, s->segment_size) < s->segment_size)
			fuzz_fail("an accepted size overflows");
	kvc_super_encode(s, s->member_index, buf);
	if (kvc_super_decode(buf, again) != KVC_OK || memcmp(s, again, sizeof(*s)))
		fuzz_fail("an accepted superblock does not survive a round trip");
	free(buf);
	free(again);
}

static void encode_limited(const struct kvc_super *sample, u32 member, u8 *slot)
{
	struct kvc_super *s = must(malloc(sizeof(*s)));

	*s = *sample;
	media_sample_limits(s);
	kvc_super_encode(s, member, slot);
	free(s);
}

/* op 0..13: patch; 14: member, with limits where b is odd; 15: leave the checksum */
void fuzz_super(const u8 *data, size_t size)
{
	struct fuzz_program p = { .data = data, .left = size };
	struct kvc_super *s = must(malloc(sizeof(*s)));
	/* Exactly the slot, so that reading beyond it is seen */
	u8 *slot = must(malloc(KVC_SUPER_BYTES));
	struct fuzz_op op;
	bool fix = true;

	media_sample_super(s);
	kvc_super_encode(s, 1, slot);
	while (fuzz_next(&p, &op)) {
		if (op.op % 16 < 14)
			fuzz_patch(slot, op.op % 2 ? 256 : sizeof(struct kvc_media_super), &op);
		else if (op.op % 16 == 14 && op.b % 2)
			encode_limited(s, op.a, slot);
		else if (op.op % 16 == 14)
			kvc_super_encode(s, op.a, slot);
		else
			fix = false;
	}
	if (fix)
		media_fix_super(slot);
	if (kvc_super_decode(slot, s) == KVC_OK)
		check_super(s);
	free(slot);
	free(s);
}

/* Extents */

/* How an extent is read */
struct reading {
	u32	first, seg_blocks, chunk;
	u32	bytes;		/* 0: as the header says */
	bool	fix;
};

static void check_record(const struct kvc_rec *rec, const struct reading *how, const u8 *buf, u32 bytes)
{
	u32 i;

	if (rec->type == KVC_REC_PAGE) {
		if (!rec->length || rec->block == 0 || (u64)rec->block + kvc_blocks(rec->length) > how->seg_blocks ||
		    rec->nr_crcs != (rec->length - 1) / how->chunk + 1)
			fuzz_fail("an accepted page does not fit its segment");
	} else if (rec->nr_crcs != 0) {
		fuzz_fail("an accepted tombstone has CRCs");
	}
	if (rec->nr_crcs && ((const u8 *)rec->crcs < buf ||
			     (const u8 *)rec->crcs + (size_t)rec->nr_crcs * 4 > buf + bytes))
		fuzz_fail("CRCs lie outside of the extent");
	for (i = 0; i < rec->nr_crcs; i++)
		(void)kvc_rec_crc(rec, i);
	if (rec->tenant >= KVC_TENANTS_MAX)
		fuzz_fail("an accepted record names no tenant slot");
}

static void use_extent(const u8 *buf, u32 bytes, const struct reading *how)
{
	struct kvc_extent_reader r;
	struct kvc_seg_id id;
	struct kvc_rec rec;
	u32 n = 0;

	media_sample_id(&id);
	if (kvc_extent_open(&r, buf, bytes, &id, how->first, how->seg_blocks, how->chunk) != KVC_OK)
		return;
	if (id.generation == 0 || id.generation >= KVC_COUNTER_END)
		fuzz_fail("an accepted extent has no generation");
	while (kvc_extent_next(&r, &rec) == KVC_OK) {
		if (how->first == 0)
			fuzz_fail("an accepted header has records");
		check_record(&rec, how, buf, bytes);
		if (++n > bytes / KVC_REC_FIXED)
			fuzz_fail("more records than fit");
	}
}

/* op 0..11: patch of the header, the records, all; 12: nothing, see fuzz_extent(); 13: segment and chunks; 14: bytes and place; 15: leave the checksum */
static void run_extent(struct fuzz_program *p, u8 *buf, u32 bytes, struct reading *how)
{
	u32 cap = bytes, peeked;
	struct fuzz_op op;

	while (fuzz_next(p, &op)) {
		switch (op.op % 16) {
		case 12:
			break;
		case 13:
			how->seg_blocks = op.x % 300 + 1;
			how->chunk = KVC_CHUNK_MIN << op.a % 9;
			break;
		case 14:
			how->bytes = op.x % EXTENT_CAP + 1;
			how->first = op.a;
			break;
		case 15:
			how->fix = false;
			break;
		default:
			fuzz_patch(buf, op.op % 2 ? KVC_EXTENT_HEADER : op.op % 4 ? 700 : cap, &op);
		}
	}
	if (how->fix)
		media_fix_extent(buf, EXTENT_CAP);
	if (kvc_extent_peek(buf, &peeked) == KVC_OK && peeked <= EXTENT_CAP)
		bytes = peeked;
	if (how->bytes)
		bytes = how->bytes;
	/* Exactly what is read, so that reading beyond it is seen */
	buf = must(realloc(buf, bytes));
	use_extent(buf, bytes, how);
	free(buf);
}

void fuzz_header(const u8 *data, size_t size)
{
	struct reading how = { .first = 0, .seg_blocks = 256, .chunk = 64U << 10, .fix = true };
	struct fuzz_program p = { .data = data, .left = size };
	u8 *buf = must(malloc(EXTENT_CAP));
	struct kvc_extent_writer w;
	struct kvc_seg_id id;
	u32 bytes;

	memset(buf, 0x77, EXTENT_CAP);
	media_sample_id(&id);
	kvc_extent_begin(&w, buf, KVC_BLOCK);
	bytes = kvc_extent_end(&w, &id, 0);
	run_extent(&p, buf, bytes, &how);
}

/* Begins with up to 64 records of its own if the first operation is 12: of pages, or tombstones where x is odd. */
static u32 make_extent(struct fuzz_program *p, const struct kvc_seg_id *id, u8 *buf)
{
	struct fuzz_program ahead = *p;
	struct kvc_extent_writer w;
	struct kvc_rec rec = { 0 };
	struct fuzz_op op;
	u32 i;

	if (!fuzz_next(&ahead, &op) || op.op % 16 != 12)
		return media_sample_extent(id, buf, EXTENT_CAP);
	rec.type = op.x & 1 ? KVC_REC_TOMBSTONE : KVC_REC_PAGE;
	rec.block = op.b;
	rec.length = op.x & 1 ? op.c % 64 : op.x;
	rec.seq = op.y;
	rec.nr_crcs = op.x & 1 ? 0 : (op.x - 1) / (64U << 10) + 1;
	kvc_extent_begin(&w, buf, EXTENT_CAP);
	for (i = 0; i <= op.a % 64; i++)
		kvc_extent_add(&w, &rec, NULL);
	return kvc_extent_end(&w, id, 5);
}

void fuzz_extent(const u8 *data, size_t size)
{
	struct reading how = { .first = 5, .seg_blocks = 256, .chunk = 64U << 10, .fix = true };
	struct fuzz_program p = { .data = data, .left = size };
	u8 *buf = must(malloc(EXTENT_CAP));
	struct kvc_seg_id id;
	u32 bytes;

	memset(buf, 0x77, EXTENT_CAP);
	media_sample_id(&id);
	bytes = make_extent(&p, &id, buf);
	run_extent(&p, buf, bytes, &how);
}
