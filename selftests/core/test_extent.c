// SPDX-License-Identifier: GPL-2.0
/*
 * Summary extents: round trip, every reason for a refusal, every damaged byte, golden bytes, fit.
 */
#include "media/format_media.h"
#include "golden.h"
#include "media.h"
#include "test.h"

#define SEG_BLOCKS	256U
#define CHUNK		(64U << 10)
#define FIRST		5U

struct fixture {
	struct kvc_seg_id id, expect;
	struct kvc_extent_reader r;
	struct kvc_rec rec;
	u32	bytes;
	union {
		u8	buf[16 * KVC_BLOCK];
		struct kvc_media_extent media;
	};
};

static int make(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	media_sample_id(&f->id);
	f->expect = f->id;
	f->bytes = media_sample_extent(&f->id, f->buf, sizeof(f->buf));
	*state = f;
	return 0;
}

static int unmake(void **state)
{
	free(*state);
	return 0;
}

static enum kvc_reason open_at(struct fixture *f, u32 first)
{
	return kvc_extent_open(&f->r, f->buf, f->bytes, &f->expect, first, SEG_BLOCKS, CHUNK);
}

/* Where reading this extent ends: KVC_NR_REASONS when all records are good */
static enum kvc_reason read_all(struct fixture *f)
{
	enum kvc_reason why = open_at(f, FIRST);

	while (why == KVC_OK)
		why = kvc_extent_next(&f->r, &f->rec);
	return why;
}

static struct kvc_media_rec *record(struct fixture *f, u32 n)
{
	u8 *p = f->buf + KVC_EXTENT_HEADER;

	while (n--)
		p += kvc_rec_bytes(le32_to_cpu(((struct kvc_media_rec *)p)->nr_crcs));
	return (struct kvc_media_rec *)p;
}

static void round_trip(void **state)
{
	struct fixture *f = *state;
	u8 key[KVC_KEY_LEN];
	u32 bytes, i;

	assert_int_equal(kvc_extent_peek(f->buf, &bytes), KVC_OK);
	assert_int_equal(bytes, KVC_BLOCK);
	assert_int_equal(open_at(f, FIRST), KVC_OK);
	assert_int_equal(kvc_extent_next(&f->r, &f->rec), KVC_OK);
	key_make(key, 1);
	assert_memory_equal(f->rec.key, key, KVC_KEY_LEN);
	assert_int_equal(f->rec.type, KVC_REC_PAGE);
	assert_int_equal(f->rec.block, 255);
	assert_int_equal(f->rec.length, 1);
	assert_int_equal(f->rec.nr_crcs, 1);
	assert_int_equal(kvc_extent_next(&f->r, &f->rec), KVC_OK);
	assert_int_equal(f->rec.type, KVC_REC_TOMBSTONE);
	assert_int_equal(f->rec.victim_gen, 0x123456788ULL);
	assert_int_equal(f->rec.block, 9);
	assert_int_equal(f->rec.length, 1);
	assert_int_equal(kvc_extent_next(&f->r, &f->rec), KVC_OK);
	keyspace_make(key, 7);
	assert_memory_equal(f->rec.keyspace, key, KVC_KEYSPACE_LEN);
	assert_int_equal(f->rec.tenant, 7);
	assert_int_equal(f->rec.epoch, 3);
	assert_int_equal(f->rec.seq, 1007);
	assert_int_equal(f->rec.depth, 17);
	assert_int_equal(f->rec.nr_crcs, 4);
	for (i = 0; i < 4; i++)
		assert_int_equal(kvc_rec_crc(&f->rec, i), 0xc0ffee00 + i);
	assert_int_equal(kvc_extent_next(&f->r, &f->rec), KVC_NR_REASONS);
	assert_int_equal(kvc_extent_next(&f->r, &f->rec), KVC_NR_REASONS);
}

static void golden(void **state)
{
	struct fixture *f = *state;

	assert_true(golden_same("extent", f->buf, f->bytes));
}

static void every_byte_counts(void **state)
{
	struct fixture *f = *state;
	enum kvc_reason why;
	u32 i;

	for (i = 0; i < f->bytes; i++) {
		f->buf[i] ^= (u8)(1U << i % 8);
		why = open_at(f, FIRST);
		if (i < 4)
			assert_int_equal(why, KVC_BAD_MAGIC);
		else if (i >= 8 && i < 12)
			assert_int_equal(why, KVC_BAD_VERSION);
		else if (i >= 12 && i < 16)
			assert_int_equal(why, KVC_BAD_GEOMETRY);
		else
			assert_int_equal(why, KVC_BAD_CRC);
		f->buf[i] ^= (u8)(1U << i % 8);
	}
	assert_int_equal(read_all(f), KVC_NR_REASONS);
}

#define REFUSED(f, reason, change)						\
	do {									\
		media_sample_extent(&(f)->id, (f)->buf, sizeof((f)->buf));	\
		change;								\
		media_fix_extent((f)->buf, (f)->bytes);				\
		assert_int_equal(read_all(f), reason);				\
	} while (0)

static void refused_header(void **state)
{
	struct fixture *f = *state;
	struct kvc_media_extent *m = &f->media;

	REFUSED(f, KVC_NR_REASONS, (void)0);
	REFUSED(f, KVC_BAD_MAGIC, m->magic = 0);
	REFUSED(f, KVC_BAD_VERSION, m->version = cpu_to_le32(2));
	REFUSED(f, KVC_BAD_GEOMETRY, m->bytes = cpu_to_le32(KVC_BLOCK + 8));
	REFUSED(f, KVC_BAD_GEOMETRY, m->bytes = cpu_to_le32(2 * KVC_BLOCK));
	REFUSED(f, KVC_BAD_GEOMETRY, m->bytes = cpu_to_le32(KVC_EXTENT_MAX + KVC_BLOCK));
	REFUSED(f, KVC_BAD_GEOMETRY, m->bytes = 0);
	REFUSED(f, KVC_BAD_GEOMETRY, m->used = cpu_to_le32(KVC_EXTENT_HEADER - 1));
	REFUSED(f, KVC_BAD_GEOMETRY, m->used = cpu_to_le32(KVC_BLOCK + 1));
	REFUSED(f, KVC_BAD_GEOMETRY, m->nr_records = cpu_to_le32(~0U));
	REFUSED(f, KVC_BAD_GEOMETRY, m->nr_records = cpu_to_le32(KVC_BLOCK / KVC_REC_FIXED));
	REFUSED(f, KVC_BAD_RECORD, m->used = cpu_to_le32(le32_to_cpu(m->used) - 8));
	REFUSED(f, KVC_BAD_GEOMETRY, m->nr_records = cpu_to_le32(4));
	REFUSED(f, KVC_NR_REASONS, m->nr_records = cpu_to_le32(2));
}

static void refused_identity(void **state)
{
	struct fixture *f = *state;
	struct kvc_media_extent *m = &f->media;

	REFUSED(f, KVC_BAD_IDENTITY, m->pool_uuid[15] ^= 1);
	REFUSED(f, KVC_BAD_IDENTITY, m->member = 0);
	REFUSED(f, KVC_BAD_IDENTITY, m->segment = cpu_to_le32(2));
	REFUSED(f, KVC_BAD_IDENTITY, m->first_block = cpu_to_le32(4));
	REFUSED(f, KVC_BAD_IDENTITY, m->generation = cpu_to_le64(0x1234567891ULL));
	REFUSED(f, KVC_BAD_IDENTITY, m->salt = 0);
	media_sample_extent(&f->id, f->buf, sizeof(f->buf));
	assert_int_equal(open_at(f, 4), KVC_BAD_IDENTITY);
	assert_int_equal(open_at(f, SEG_BLOCKS), KVC_BAD_GEOMETRY);
	assert_int_equal(open_at(f, ~0U), KVC_BAD_GEOMETRY);
	f->bytes = 512;
	assert_int_equal(open_at(f, FIRST), KVC_BAD_GEOMETRY);
}

static void refused_page(void **state)
{
	struct fixture *f = *state;

	REFUSED(f, KVC_BAD_RECORD, record(f, 0)->type = 0);
	REFUSED(f, KVC_BAD_RECORD, record(f, 0)->type = cpu_to_le16(3));
	REFUSED(f, KVC_BAD_RECORD, record(f, 0)->flags = cpu_to_le16(4));
	REFUSED(f, KVC_BAD_RECORD, record(f, 0)->tenant = cpu_to_le32(KVC_TENANTS_MAX));
	REFUSED(f, KVC_BAD_RECORD, record(f, 0)->seq = cpu_to_le64(1ULL << 62));
	REFUSED(f, KVC_BAD_RECORD, record(f, 0)->length = 0);
	REFUSED(f, KVC_BAD_RECORD, record(f, 0)->length = cpu_to_le32(KVC_PAGE_MAX + 1));
	REFUSED(f, KVC_BAD_RECORD, record(f, 0)->length = cpu_to_le32(KVC_BLOCK + 1));
	REFUSED(f, KVC_NR_REASONS, record(f, 0)->length = cpu_to_le32(KVC_BLOCK));
	REFUSED(f, KVC_BAD_RECORD, record(f, 0)->block = 0);
	REFUSED(f, KVC_BAD_RECORD, record(f, 0)->block = cpu_to_le32(SEG_BLOCKS));
	REFUSED(f, KVC_BAD_RECORD, record(f, 0)->block = cpu_to_le32(~0U));
	REFUSED(f, KVC_BAD_RECORD, record(f, 0)->victim_gen = cpu_to_le64(1));
	REFUSED(f, KVC_BAD_RECORD, record(f, 0)->nr_crcs = 0);
	REFUSED(f, KVC_BAD_RECORD, record(f, 0)->nr_crcs = cpu_to_le32(0x40000001));
	REFUSED(f, KVC_BAD_RECORD, record(f, 2)->nr_crcs = cpu_to_le32(3));
	REFUSED(f, KVC_BAD_RECORD, record(f, 2)->length = cpu_to_le32(192U << 10));
	REFUSED(f, KVC_BAD_RECORD, record(f, 2)->block = cpu_to_le32(SEG_BLOCKS - 48));
	REFUSED(f, KVC_NR_REASONS, record(f, 2)->block = cpu_to_le32(SEG_BLOCKS - 49));
}

static void refused_tombstone(void **state)
{
	struct fixture *f = *state;

	REFUSED(f, KVC_BAD_RECORD, record(f, 1)->nr_crcs = cpu_to_le32(1));
	REFUSED(f, KVC_BAD_RECORD, record(f, 1)->length = cpu_to_le32(KVC_MEMBERS_MAX));
	REFUSED(f, KVC_BAD_RECORD, record(f, 1)->block = cpu_to_le32(KVC_SEGMENTS_END));
	REFUSED(f, KVC_BAD_RECORD, record(f, 1)->victim_gen = cpu_to_le64(1ULL << 62));
	REFUSED(f, KVC_BAD_RECORD, record(f, 1)->flags = cpu_to_le16(1));
	REFUSED(f, KVC_NR_REASONS, record(f, 1)->victim_gen = 0);
}

/* Block 0: the header. It gives the identity and has no records. */
static void header_extent(void **state)
{
	struct fixture *f = *state;
	struct kvc_extent_writer w;

	kvc_extent_begin(&w, f->buf, sizeof(f->buf));
	f->bytes = kvc_extent_end(&w, &f->id, 0);
	assert_int_equal(f->bytes, KVC_BLOCK);
	f->expect.generation = 0;
	f->expect.salt = 0;
	assert_int_equal(open_at(f, 0), KVC_OK);
	assert_int_equal(f->expect.generation, f->id.generation);
	assert_int_equal(f->expect.salt, f->id.salt);
	assert_int_equal(kvc_extent_next(&f->r, &f->rec), KVC_NR_REASONS);

	f->id.generation = 0;
	kvc_extent_begin(&w, f->buf, sizeof(f->buf));
	kvc_extent_end(&w, &f->id, 0);
	assert_int_equal(open_at(f, 0), KVC_BAD_IDENTITY);
	f->id.generation = 1ULL << 62;
	kvc_extent_begin(&w, f->buf, sizeof(f->buf));
	kvc_extent_end(&w, &f->id, 0);
	assert_int_equal(open_at(f, 0), KVC_BAD_IDENTITY);

	media_sample_id(&f->id);
	media_sample_extent(&f->id, f->buf, sizeof(f->buf));
	f->media.first_block = 0;
	media_fix_extent(f->buf, f->bytes);
	assert_int_equal(open_at(f, 0), KVC_BAD_RECORD);
}

/* As many records as fit, no more; what was written before does not shine through the padding. */
static void writer_fills(void **state)
{
	struct fixture *f = *state;
	struct kvc_rec r = { .type = KVC_REC_TOMBSTONE };
	struct kvc_extent_writer w;
	u32 n = 0, i;

	memset(f->buf, 0xee, sizeof(f->buf));
	kvc_extent_begin(&w, f->buf, 2 * KVC_BLOCK);
	while (kvc_extent_add(&w, &r, NULL))
		n++;
	assert_int_equal(n, (2 * KVC_BLOCK - KVC_EXTENT_HEADER) / KVC_REC_FIXED);
	f->bytes = kvc_extent_end(&w, &f->id, FIRST);
	assert_int_equal(f->bytes, 2 * KVC_BLOCK);
	assert_int_equal(read_all(f), KVC_NR_REASONS);
	for (i = w.used; i < f->bytes; i++)
		assert_int_equal(f->buf[i], 0);
	assert_int_equal(f->buf[f->bytes], 0xee);
}

static void record_sizes(void **state)
{
	(void)state;
	assert_int_equal(kvc_rec_bytes(0), KVC_REC_FIXED);
	assert_int_equal(kvc_rec_bytes(1), KVC_REC_FIXED + 8);
	assert_int_equal(kvc_rec_bytes(2), KVC_REC_FIXED + 8);
	assert_int_equal(kvc_rec_bytes(3), KVC_REC_FIXED + 16);
	assert_int_equal(kvc_blocks(0), 0);
	assert_int_equal(kvc_blocks(1), 1);
	assert_int_equal(kvc_blocks(KVC_BLOCK), 1);
	assert_int_equal(kvc_blocks(KVC_BLOCK + 1), 2);
}

static const struct CMUnitTest extent_tests[] = {
	cmocka_unit_test_setup_teardown(round_trip, make, unmake),
	cmocka_unit_test_setup_teardown(golden, make, unmake),
	cmocka_unit_test_setup_teardown(every_byte_counts, make, unmake),
	cmocka_unit_test_setup_teardown(refused_header, make, unmake),
	cmocka_unit_test_setup_teardown(refused_identity, make, unmake),
	cmocka_unit_test_setup_teardown(refused_page, make, unmake),
	cmocka_unit_test_setup_teardown(refused_tombstone, make, unmake),
	cmocka_unit_test_setup_teardown(header_extent, make, unmake),
	cmocka_unit_test_setup_teardown(writer_fills, make, unmake),
	cmocka_unit_test(record_sizes),
};

TEST_GROUP(extent);

/* CRC32C: the vectors of RFC 3720, appendix B.4, and the usual check value */
static u32 crc(const void *p, size_t n)
{
	return kvc_crc_finish(kvc_crc_feed(KVC_CRC_INIT, p, n));
}

static void crc_vectors(void **state)
{
	u8 buf[32];
	u32 i;

	(void)state;
	assert_int_equal(crc("123456789", 9), 0xe3069283);
	assert_int_equal(crc("", 0), 0);
	memset(buf, 0, sizeof(buf));
	assert_int_equal(crc(buf, 32), 0x8a9136aa);
	memset(buf, 0xff, sizeof(buf));
	assert_int_equal(crc(buf, 32), 0x62a8ab43);
	for (i = 0; i < 32; i++)
		buf[i] = (u8)i;
	assert_int_equal(crc(buf, 32), 0x46dd794e);
	for (i = 0; i < 32; i++)
		buf[i] = (u8)(31 - i);
	assert_int_equal(crc(buf, 32), 0x113fdb5c);
}

static void crc_in_pieces(void **state)
{
	u8 buf[300];
	u32 cut, whole, c;

	(void)state;
	page_bytes(buf, 9, 0, sizeof(buf));
	whole = crc(buf, sizeof(buf));
	for (cut = 0; cut <= sizeof(buf); cut++) {
		c = kvc_crc_feed(KVC_CRC_INIT, buf, cut);
		c = kvc_crc_feed(c, buf + cut, sizeof(buf) - cut);
		assert_int_equal(kvc_crc_finish(c), whole);
	}
}

static const struct CMUnitTest crc_tests[] = {
	cmocka_unit_test(crc_vectors),
	cmocka_unit_test(crc_in_pieces),
};

TEST_GROUP(crc);
