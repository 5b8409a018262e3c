// SPDX-License-Identifier: GPL-2.0
/*
 * What goes in comes out, and nothing else: sizes, scatter lists, byte ranges, keys, keyspaces, duplicates.
 */
#include "ktest.h"
#include "harness.h"

#define ARENA (96 * KT_MIB)

FIXTURE(data)
{
	struct kt k;
};

FIXTURE_SETUP(data)
{
	ASSERT_EQ(0, kt_open(&self->k, O_RDWR, 0x11, ARENA, 512));
}

FIXTURE_TEARDOWN(data)
{
	kt_close(&self->k);
}

static const uint32_t sizes[] = {
	1, 2, 511, 512, 513, 4095, 4096, 4097, 18432, 65535, 65536, 65537, 131072, 262144, 1048577, 1124352, 5242880,
};

#define NR_SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* Store from arena offset @from, load to @to; fences around the destination stay as they were */
static void round_trip(struct __test_metadata *_metadata, struct kt *k, uint64_t n, uint32_t size, uint64_t from,
		       uint64_t to)
{
	uint8_t *dst = k->arena + to;
	uint32_t flags = 0;

	kt_fill(k->arena + from, size, n);
	ASSERT_EQ((int)size, kt_store(k, kt_key(n), from, size, &flags)) TH_LOG("size %u", size);
	ASSERT_EQ(0, flags);
	ASSERT_EQ((int)size, kt_op(k, KVCTX_OP_QUERY, kt_key(n)));
	memset(dst - 64, 0x5a, size + 128);
	ASSERT_EQ((int)size, kt_load(k, kt_key(n), to, size, &flags)) TH_LOG("size %u", size);
	ASSERT_EQ(KVCTX_CQE_VERIFIED, flags);
	ASSERT_EQ(-1, kt_check(dst, size, n)) TH_LOG("size %u byte %ld", size, kt_check(dst, size, n));
	for (int i = 1; i <= 64; i++) {
		ASSERT_EQ(0x5a, dst[-i]) TH_LOG("size %u fence -%d", size, i);
		ASSERT_EQ(0x5a, dst[size + i - 1]) TH_LOG("size %u fence +%d", size, i);
	}
}

TEST_F(data, sizes_aligned)
{
	for (size_t i = 0; i < NR_SIZES; i++)
		round_trip(_metadata, &self->k, 100 + i, sizes[i], 0, 48 * KT_MIB);
}

TEST_F(data, sizes_at_odd_addresses)
{
	for (size_t i = 0; i < NR_SIZES; i++)
		round_trip(_metadata, &self->k, 200 + i, sizes[i], 1 + i, 48 * KT_MIB + 4093 - i);
}

TEST_F(data, page_of_80_mib)
{
	uint32_t size = 80 * KT_MIB, flags;

	kt_fill(self->k.arena, size, 300);
	ASSERT_EQ((int)size, kt_store(&self->k, kt_key(300), 0, size, NULL));
	memset(self->k.arena, 0, size);
	ASSERT_EQ((int)size, kt_load(&self->k, kt_key(300), 0, size, &flags));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
	EXPECT_EQ(-1, kt_check(self->k.arena, size, 300));
}

/* Cut [0, total) into @nr pieces of @sizes[], spread over three memories in an order that is not the page's */
static uint32_t scatter(struct kvctx_seg *segs, unsigned int nr, const uint32_t *piece, unsigned int nr_piece,
			const uint32_t *mem, uint32_t gap)
{
	uint64_t at[3] = { 0, 0, 0 };
	uint32_t total = 0;

	for (unsigned int i = 0; i < nr; i++) {
		unsigned int m = (i * 7 + i / 5) % 3;
		uint32_t length = piece[i % nr_piece];

		segs[i] = kt_seg(mem[m], at[m], length);
		at[m] += length + gap;
		total += length;
	}
	return total;
}

static uint8_t *seg_ptr(struct kt *k, uint8_t **base, const uint32_t *mem, const struct kvctx_seg *s)
{
	for (int m = 0; m < 3; m++)
		if (mem[m] == s->mem)
			return base[m] + s->offset;
	return k->arena;
}

/* @nr pieces: the page is right, the gaps between the pieces stay as they were, and it loads in one piece too */
static void scattered(struct __test_metadata *_metadata, struct kt *k, uint64_t n, unsigned int nr, const uint32_t *piece,
		      unsigned int nr_piece, uint32_t gap)
{
	struct kvctx_seg *segs = calloc(nr, sizeof(*segs));
	uint32_t mem[3] = { KVCTX_MEM_ARENA }, total, pos = 0, flags;
	uint8_t *base[3] = { k->arena }, *whole = k->arena + 48 * KT_MIB;
	struct kvctx_sqe sqe;

	for (int m = 1; m < 3; m++) {
		struct kvctx_mem_register reg = { .size = sizeof(reg), .length = 16 * KT_MIB };

		base[m] = (uint8_t *)malloc(16 * KT_MIB + 16) + 8 * m;
		reg.addr = (uintptr_t)base[m];
		ASSERT_EQ(0, kt_ioctl(k->file, KVCTX_IOC_MEM_REGISTER, &reg));
		mem[m] = reg.id;
	}
	total = scatter(segs, nr, piece, nr_piece, mem, gap);
	kt_fill(whole, total, n);
	for (unsigned int i = 0; i < nr; pos += segs[i++].length)
		memcpy(seg_ptr(k, base, mem, &segs[i]), whole + pos, segs[i].length);
	sqe = kt_io(KVCTX_OP_STORE, kt_key(n), segs, nr);
	ASSERT_EQ((int)total, kt_do(k, &sqe, NULL));

	memset(whole, 0, total);
	ASSERT_EQ((int)total, kt_load(k, kt_key(n), 48 * KT_MIB, total, NULL));
	ASSERT_EQ(-1, kt_check(whole, total, n));

	memset(k->arena, 0xee, 16 * KT_MIB);
	memset(base[1], 0xee, 16 * KT_MIB);
	memset(base[2], 0xee, 16 * KT_MIB);
	sqe = kt_io(KVCTX_OP_LOAD, kt_key(n), segs, nr);
	ASSERT_EQ((int)total, kt_do(k, &sqe, &flags));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
	pos = 0;
	for (unsigned int i = 0; i < nr; pos += segs[i++].length) {
		uint8_t *p = seg_ptr(k, base, mem, &segs[i]);

		ASSERT_EQ(0, memcmp(p, whole + pos, segs[i].length)) TH_LOG("piece %u", i);
		for (uint32_t g = 0; g < gap; g++) {
			ASSERT_EQ(0xee, p[segs[i].length + g]) TH_LOG("gap behind piece %u", i);
		}
	}
	for (int m = 1; m < 3; m++) {
		struct kvctx_mem_unregister un = { .size = sizeof(un), .id = mem[m] };

		ASSERT_EQ(0, kt_ioctl(k->file, KVCTX_IOC_MEM_UNREGISTER, &un));
		free(base[m] - 8 * m);
	}
	free(segs);
}

TEST_F(data, scatter_188_aligned)
{
	static const uint32_t piece[] = { 8192, 131072, 65536, 16384 };

	scattered(_metadata, &self->k, 400, 188, piece, 4, 0);
	scattered(_metadata, &self->k, 401, 188, piece, 4, 4096);
}

TEST_F(data, scatter_188_unaligned)
{
	static const uint32_t mla[] = { 18432 }, odd[] = { 1, 4097, 511, 3, 20000, 513, 7, 65535 };

	scattered(_metadata, &self->k, 402, 188, mla, 1, 0);
	scattered(_metadata, &self->k, 403, 188, mla, 1, 512);
	scattered(_metadata, &self->k, 404, 188, odd, 8, 5);
}

/* As many pieces as an operation may have, none beside the one before it */
TEST_F(data, scatter_as_many_as_there_may_be)
{
	static const uint32_t blocks[] = { 4096, 8192 }, odd[] = { 1, 4097, 511, 3, 8000, 513, 7, 4096 };
	struct kvctx_info info = { .size = sizeof(info) };

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_INFO, &info));
	ASSERT_LE(4096, info.segs_max);
	/* then a third of it has room in each of the memories */
	ASSERT_GE(5000, info.segs_max);
	scattered(_metadata, &self->k, 405, info.segs_max, blocks, 2, 0);
	scattered(_metadata, &self->k, 406, info.segs_max, odd, 8, 5);
}

TEST_F(data, ranges)
{
	const uint32_t size = 300001;
	struct kvctx_seg seg;
	struct kvctx_sqe sqe;
	uint8_t *ref = self->k.arena, *dst = self->k.arena + KT_MIB;
	uint32_t flags;

	kt_fill(ref, size, 500);
	ASSERT_EQ((int)size, kt_store(&self->k, kt_key(500), 0, size, NULL));
	srand(1);
	for (int i = 0; i < 60; i++) {
		uint32_t from = i < 4 ? (uint32_t[]){ 0, size - 1, 65535, 65536 }[i] : rand() % size;
		uint32_t len = i < 4 ? (uint32_t[]){ 1, 1, 2, 65536 }[i] : 1 + rand() % (size - from);

		memset(dst, 0x77, size + 2);
		seg = kt_seg(KVCTX_MEM_ARENA, KT_MIB + 1, len);
		sqe = kt_io(KVCTX_OP_LOAD, kt_key(500), &seg, 1);
		sqe.offset = from;
		ASSERT_EQ((int)len, kt_do(&self->k, &sqe, &flags)) TH_LOG("range %u+%u", from, len);
		EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
		ASSERT_EQ(0, memcmp(dst + 1, ref + from, len)) TH_LOG("range %u+%u", from, len);
		ASSERT_EQ(0x77, dst[0]);
		ASSERT_EQ(0x77, dst[len + 1]);
	}
	seg = kt_seg(KVCTX_MEM_ARENA, KT_MIB, 2);
	sqe = kt_io(KVCTX_OP_LOAD, kt_key(500), &seg, 1);
	sqe.offset = size - 1;
	EXPECT_EQ(-ERANGE, kt_do(&self->k, &sqe, NULL));
	sqe.offset = ~0ULL;
	EXPECT_EQ(-ERANGE, kt_do(&self->k, &sqe, NULL));
}

TEST_F(data, verification_can_be_left_out)
{
	struct kvctx_seg seg = kt_seg(KVCTX_MEM_ARENA, 0, 4096);
	struct kvctx_sqe sqe;
	uint32_t flags;

	kt_fill(self->k.arena, 4096, 510);
	ASSERT_EQ(4096, kt_store(&self->k, kt_key(510), 0, 4096, NULL));
	sqe = kt_io(KVCTX_OP_LOAD, kt_key(510), &seg, 1);
	sqe.flags = KVCTX_OP_NO_VERIFY;
	EXPECT_EQ(4096, kt_do(&self->k, &sqe, &flags));
	EXPECT_EQ(0, flags);
	EXPECT_EQ(-1, kt_check(self->k.arena, 4096, 510));
}

/* All 40 bytes of a key count */
TEST_F(data, keys_differ_in_one_byte)
{
	struct kvctx_key base = kt_key(600), key;
	uint32_t flags;

	for (int i = -1; i < 40; i++) {
		key = base;
		if (i >= 0)
			((uint8_t *)&key)[i] ^= 0x80;
		kt_fill(self->k.arena, 1000, 600 + i);
		ASSERT_EQ(1000, kt_store(&self->k, key, 0, 1000, &flags));
		EXPECT_EQ(0, flags) TH_LOG("byte %d: taken for another key", i);
	}
	for (int i = -1; i < 40; i++) {
		key = base;
		if (i >= 0)
			((uint8_t *)&key)[i] ^= 0x80;
		ASSERT_EQ(1000, kt_load(&self->k, key, 0, 1000, NULL));
		EXPECT_EQ(-1, kt_check(self->k.arena, 1000, 600 + i)) TH_LOG("byte %d", i);
	}
}

TEST_F(data, keyspaces_do_not_see_each_other)
{
	struct kt other;
	uint32_t flags;

	ASSERT_EQ(0, kt_open(&other, O_RDWR, 0x12, KT_MIB, 8));
	kt_fill(self->k.arena, 5000, 1);
	ASSERT_EQ(5000, kt_store(&self->k, kt_key(700), 0, 5000, NULL));
	EXPECT_EQ(-ENOENT, kt_op(&other, KVCTX_OP_QUERY, kt_key(700)));
	EXPECT_EQ(-ENOENT, kt_load(&other, kt_key(700), 0, 5000, NULL));
	EXPECT_EQ(-ENOENT, kt_op(&other, KVCTX_OP_DELETE, kt_key(700)));
	kt_fill(other.arena, 5000, 2);
	EXPECT_EQ(5000, kt_store(&other, kt_key(700), 0, 5000, &flags));
	EXPECT_EQ(0, flags);
	EXPECT_EQ(5000, kt_load(&self->k, kt_key(700), 0, 5000, NULL));
	EXPECT_EQ(-1, kt_check(self->k.arena, 5000, 1));
	kt_close(&other);
}

TEST_F(data, second_store_is_a_dedup)
{
	uint32_t flags;

	kt_fill(self->k.arena, 3000, 1);
	ASSERT_EQ(3000, kt_store(&self->k, kt_key(710), 0, 3000, NULL));
	kt_fill(self->k.arena, 3000, 2);
	EXPECT_EQ(3000, kt_store(&self->k, kt_key(710), 0, 3000, &flags));
	EXPECT_EQ(KVCTX_CQE_DEDUP, flags);
	EXPECT_EQ(3000, kt_load(&self->k, kt_key(710), 0, 3000, NULL));
	EXPECT_EQ(-1, kt_check(self->k.arena, 3000, 1));
}

TEST_F(data, delete_then_store_again)
{
	EXPECT_EQ(-ENOENT, kt_op(&self->k, KVCTX_OP_DELETE, kt_key(720)));
	for (int i = 0; i < 3; i++) {
		kt_fill(self->k.arena, 3000, i);
		ASSERT_EQ(3000, kt_store(&self->k, kt_key(720), 0, 3000, NULL));
		EXPECT_EQ(3000, kt_load(&self->k, kt_key(720), 4096, 3000, NULL));
		EXPECT_EQ(-1, kt_check(self->k.arena + 4096, 3000, i));
		EXPECT_EQ(0, kt_op(&self->k, KVCTX_OP_DELETE, kt_key(720)));
		EXPECT_EQ(-ENOENT, kt_load(&self->k, kt_key(720), 0, 3000, NULL));
		EXPECT_EQ(-ENOENT, kt_op(&self->k, KVCTX_OP_QUERY, kt_key(720)));
	}
}

/* What one batch replaces: many keys, each by DELETE and STORE side by side, or all DELETEs first */
static void replace_all(struct __test_metadata *_metadata, struct kt *k, int round)
{
	enum { NR = 128 };
	static struct kvctx_sqe sqes[2 * NR];
	static struct kvctx_seg segs[NR];
	struct kvctx_cqe cqe;

	for (int i = 0; i < NR; i++) {
		int del = round % 2 ? i : 2 * i, store = round % 2 ? NR + i : 2 * i + 1;

		segs[i] = kt_seg(KVCTX_MEM_ARENA, i * 8192ULL, 5000 + i);
		kt_fill(k->arena + i * 8192, 5000 + i, 1000 * round + i);
		sqes[del] = kt_sqe(KVCTX_OP_DELETE, kt_key(7300 + i));
		sqes[store] = kt_io(KVCTX_OP_STORE, kt_key(7300 + i), &segs[i], 1);
		sqes[store].user_data = 1;
	}
	ASSERT_EQ(2 * NR, kt_submit(k, sqes, 2 * NR, 2 * NR));
	for (int i = 0; i < 2 * NR; i++) {
		ASSERT_TRUE(kt_reap(k, &cqe));
		if (cqe.user_data)
			EXPECT_EQ(0, cqe.flags) TH_LOG("round %d: not replaced", round);
	}
	for (int i = 0; i < NR; i++) {
		ASSERT_EQ(5000 + i, kt_load(k, kt_key(7300 + i), 4 * KT_MIB, 5000 + i, NULL));
		EXPECT_EQ(-1, kt_check(k->arena + 4 * KT_MIB, 5000 + i, 1000 * round + i));
	}
}

/* Operations of a batch are started in its order: DELETE, then STORE replaces a page */
TEST_F(data, delete_then_store_in_one_batch)
{
	for (int round = 0; round < 20; round++)
		replace_all(_metadata, &self->k, round);
}

/* 256 operations in flight, one of them bad: its neighbours do not notice */
TEST_F(data, batch_of_256_with_a_bad_one)
{
	static struct kvctx_sqe sqes[256];
	static struct kvctx_seg segs[256];
	struct kvctx_cqe cqe;

	for (int op = KVCTX_OP_STORE; op <= KVCTX_OP_LOAD; op++) {
		int bad = op == KVCTX_OP_STORE ? 100 : 31;
		bool seen[256] = { false };

		for (int i = 0; i < 256; i++) {
			segs[i] = kt_seg(KVCTX_MEM_ARENA, i * 65536ULL, 30000 + i);
			if (op == KVCTX_OP_STORE)
				kt_fill(self->k.arena + i * 65536ULL, 30000 + i, 8000 + i);
			sqes[i] = kt_io(op, kt_key(8000 + i), &segs[i], 1);
			sqes[i].user_data = i;
		}
		segs[bad].mem = 999;
		if (op == KVCTX_OP_LOAD)
			memset(self->k.arena, 0, 256 * 65536);
		ASSERT_EQ(256, kt_submit(&self->k, sqes, 256, 256));
		for (int n = 0; n < 256; n++) {
			int i;

			ASSERT_TRUE(kt_reap(&self->k, &cqe)) TH_LOG("only %d completions", n);
			i = cqe.user_data;
			ASSERT_LT(i, 256);
			ASSERT_FALSE(seen[i]);
			seen[i] = true;
			if (i == bad) {
				EXPECT_EQ(-EINVAL, cqe.res);
			} else if (op == KVCTX_OP_LOAD && i == 100) {
				EXPECT_EQ(-ENOENT, cqe.res);
			} else {
				EXPECT_EQ(30000 + i, cqe.res) TH_LOG("operation %d", i);
			}
			if (op == KVCTX_OP_LOAD && cqe.res > 0) {
				EXPECT_EQ(-1, kt_check(self->k.arena + i * 65536ULL, cqe.res, 8000 + i));
			}
		}
		EXPECT_FALSE(kt_reap(&self->k, &cqe));
	}
}

TEST_F(data, match_counts_leading_pages)
{
	struct kvctx_key keys[600];
	uint32_t lens[600];
	struct kvctx_match m = {
		.size = sizeof(m), .keys = (uintptr_t)keys, .lens = (uintptr_t)lens, .nr_keys = 600,
	};

	for (int i = 0; i < 600; i++)
		keys[i] = kt_key(9000 + i);
	EXPECT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
	EXPECT_EQ(0, m.nr_present);
	for (int i = 0; i < 400; i++)
		if (i != 300) {
			ASSERT_EQ(100 + i, kt_store(&self->k, keys[i], 0, 100 + i, NULL));
		}
	memset(lens, 0xff, sizeof(lens));
	EXPECT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
	EXPECT_EQ(300, m.nr_present);
	EXPECT_EQ(0, m.lease);
	for (int i = 0; i < 300; i++) {
		EXPECT_EQ(100 + i, lens[i]);
	}
	ASSERT_EQ(0, kt_op(&self->k, KVCTX_OP_DELETE, keys[0]));
	EXPECT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
	EXPECT_EQ(0, m.nr_present);
}

TEST_F(data, flush_completes)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_FLUSH, (struct kvctx_key){ 0 });

	ASSERT_EQ(77, kt_store(&self->k, kt_key(730), 0, 77, NULL));
	EXPECT_EQ(0, kt_do(&self->k, &sqe, NULL));
	EXPECT_EQ(0, kt_do(&self->k, &sqe, NULL));
	EXPECT_EQ(77, kt_load(&self->k, kt_key(730), 0, 77, NULL));
}

TEST_F(data, read_only_sessions_cannot_write)
{
	struct kt ro;

	kt_fill(self->k.arena, 999, 1);
	ASSERT_EQ(999, kt_store(&self->k, kt_key(740), 0, 999, NULL));
	ASSERT_EQ(0, kt_open(&ro, O_RDONLY, 0x11, KT_MIB, 8));
	EXPECT_EQ(999, kt_load(&ro, kt_key(740), 0, 999, NULL));
	EXPECT_EQ(-1, kt_check(ro.arena, 999, 1));
	EXPECT_EQ(999, kt_op(&ro, KVCTX_OP_QUERY, kt_key(740)));
	EXPECT_EQ(-EACCES, kt_store(&ro, kt_key(741), 0, 999, NULL));
	EXPECT_EQ(-EACCES, kt_op(&ro, KVCTX_OP_DELETE, kt_key(740)));
	EXPECT_EQ(999, kt_op(&self->k, KVCTX_OP_QUERY, kt_key(740)));
	EXPECT_EQ(-ENOENT, kt_op(&self->k, KVCTX_OP_QUERY, kt_key(741)));
	kt_close(&ro);
}

TEST_HARNESS_MAIN
