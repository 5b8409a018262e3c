// SPDX-License-Identifier: GPL-2.0
/*
 * MATCH that goes on behind what is missing, and MATCH as an operation.
 */
#include <sys/sysinfo.h>

#include "ktest.h"
#include "harness.h"

#define ARENA		(1 * KT_MIB)
#define NR		200
#define ANSWER		(sizeof(struct kvctx_found) + 4 * sizeof(uint64_t) + NR * sizeof(uint32_t))
#define AT_ANSWER	(ARENA / 2)
#define LONG		65536
#define LEASES		500

FIXTURE(match)
{
	struct kt k;
	struct kvctx_key keys[NR];
	uint32_t lens[NR];
	uint64_t present[4];
};

static bool here(int i)
{
	return i % 3 && i != 64 && i != 127;
}

static int count(void)
{
	int n = 0;

	for (int i = 0; i < NR; i++)
		n += here(i);
	return n;
}

FIXTURE_SETUP(match)
{
	ASSERT_EQ(0, kt_open_slots(&self->k, O_RDWR, 0x4d, ARENA, 64, 4096, 16));
	for (int i = 0; i < NR; i++) {
		self->keys[i] = kt_key(100 + i);
		if (here(i)) {
			ASSERT_EQ(100 + i, kt_store(&self->k, self->keys[i], 0, 100 + i, NULL));
		}
	}
	memset(self->lens, 0xff, sizeof(self->lens));
	memset(self->present, 0xff, sizeof(self->present));
}

FIXTURE_TEARDOWN(match)
{
	kt_close(&self->k);
}

static struct kvctx_match match_of(FIXTURE_DATA(match) *self, uint32_t flags, uint32_t lease_ms)
{
	return (struct kvctx_match){
		.size = sizeof(struct kvctx_match), .flags = flags, .lease_ms = lease_ms, .nr_keys = NR,
		.keys = (uintptr_t)self->keys, .lens = (uintptr_t)self->lens,
		.present = flags & KVCTX_MATCH_ALL ? (uintptr_t)self->present : 0,
	};
}

/* The same as an operation, its answer in one piece */
static struct kvctx_sqe op_of(FIXTURE_DATA(match) *self, uint32_t flags, uint32_t lease_ms)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_MATCH, (struct kvctx_key){ 0 });

	sqe.flags = flags;
	sqe.lease_ms = lease_ms;
	sqe.keys = (uintptr_t)self->keys;
	sqe.nr_keys = NR;
	sqe.segs = AT_ANSWER;
	sqe.length = ANSWER;
	return sqe;
}

static int release(struct kt *k, uint32_t lease)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_RELEASE, (struct kvctx_key){ 0 });

	sqe.lease = lease;
	return kt_do(k, &sqe, NULL);
}

TEST_F(match, all_that_are_here)
{
	struct kvctx_match m = match_of(self, KVCTX_MATCH_ALL, 0);

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
	EXPECT_EQ(count(), m.nr_present);
	EXPECT_EQ(0, m.lease);
	for (int i = 0; i < NR; i++) {
		EXPECT_EQ(here(i), self->present[i / 64] >> (i % 64) & 1);
		EXPECT_EQ(here(i) ? 100 + i : 0, self->lens[i]);
	}
	EXPECT_EQ(0, self->present[3] >> (NR - 192));
	m = match_of(self, 0, 0);
	m.keys += sizeof(self->keys[0]);
	m.nr_keys--;
	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
	EXPECT_EQ(2, m.nr_present);
}

TEST_F(match, leases_those_and_reads_them_ahead)
{
	uint32_t flags = KVCTX_MATCH_ALL | KVCTX_MATCH_LEASE | KVCTX_MATCH_PREFETCH, cqe_flags = 0;
	struct kvctx_match m = match_of(self, flags, 30000);

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
	EXPECT_EQ(count(), m.nr_present);
	EXPECT_NE(0, m.lease);
	EXPECT_EQ(16, m.nr_prefetched);
	/* of those that are here the first sixteen */
	for (int i = 0, n = 0; n < 16; n += here(i), i++) {
		if (!here(i))
			continue;
		EXPECT_EQ(100 + i, kt_load(&self->k, self->keys[i], 0, 100 + i, &cqe_flags));
		EXPECT_TRUE(cqe_flags & KVCTX_CQE_FROM_DRAM) TH_LOG("page %d", i);
	}
	EXPECT_EQ(0, release(&self->k, m.lease));
	EXPECT_EQ(-EINVAL, release(&self->k, m.lease));
}

static uint64_t memory_free(void)
{
	struct sysinfo info;

	return sysinfo(&info) ? 0 : (uint64_t)info.freeram * info.mem_unit;
}

/* Of a long prompt only the beginning is here: many leases of that do not take memory for the rest. */
TEST_F(match, leases_take_what_they_hold)
{
	struct kvctx_sqe sqe = op_of(self, KVCTX_OP_MATCH_LEASE, 60000);
	struct kvctx_key *keys = calloc(LONG, sizeof(*keys));
	uint64_t before;

	ASSERT_NE(NULL, keys);
	for (int i = 0; i < LONG; i++)
		keys[i] = kt_key(100000 + i);
	keys[0] = self->keys[1];
	sqe.keys = (uintptr_t)keys;
	sqe.nr_keys = LONG;
	EXPECT_EQ(1, kt_do(&self->k, &sqe, NULL));
	before = memory_free();
	for (int i = 0; i < LEASES; i++)
		EXPECT_EQ(1, kt_do(&self->k, &sqe, NULL));
	/* a page's lease is eight bytes; what else goes on takes memory too */
	EXPECT_LT(before, memory_free() + (uint64_t)LEASES * LONG);
	free(keys);
}

TEST_F(match, bad_pointers)
{
	struct kvctx_match m = match_of(self, KVCTX_MATCH_ALL, 0);
	struct kvctx_sqe sqe = op_of(self, 0, 0);

	m.present = 1;
	EXPECT_EQ(-EFAULT, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
	m.present = 0;
	EXPECT_EQ(-EFAULT, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
	sqe.keys = 1;
	EXPECT_EQ(-EFAULT, kt_do(&self->k, &sqe, NULL));
}

TEST_F(match, refusals)
{
	struct kvctx_match m = match_of(self, 0, 0);

	m.present = (uintptr_t)self->present;
	EXPECT_EQ(-EINVAL, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
	m = match_of(self, KVCTX_MATCH_ALL, 1);
	EXPECT_EQ(-EINVAL, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
}

TEST_F(match, refusals_of_operations)
{
	struct kvctx_sqe sqe = op_of(self, 0, 0);

	sqe.length = sizeof(struct kvctx_found) - 1;
	EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
	sqe = op_of(self, 0, 0);
	sqe.nr_keys = 0;
	EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
	sqe.nr_keys = 65537;
	EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
	sqe = op_of(self, 0, 0);
	sqe.segs = ARENA - 1;
	EXPECT_EQ(-EFAULT, kt_do(&self->k, &sqe, NULL));
	sqe = op_of(self, 0, 0);
	sqe.mem = 77;
	EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
	sqe = op_of(self, KVCTX_OP_MATCH_LEASE, 0);
	EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
	sqe = op_of(self, KVCTX_OP_MATCH_ALL, 1);
	EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
}

/* What the answer at @found has to be */
static void check_answer(struct __test_metadata *_metadata, const struct kvctx_found *found, bool all)
{
	const uint32_t *lens = (const uint32_t *)(found->present + 4);
	int nr = all ? NR : 0;

	EXPECT_EQ(all ? count() : 0, found->nr_present);
	EXPECT_EQ(0, found->reserved);
	for (int i = 0; i < nr; i++) {
		EXPECT_EQ(here(i), found->present[i / 64] >> (i % 64) & 1);
		EXPECT_EQ(here(i) ? 100 + i : 0, lens[i]);
	}
}

TEST_F(match, as_an_operation)
{
	struct kvctx_found *found = (void *)(self->k.arena + AT_ANSWER);
	struct kvctx_sqe sqe = op_of(self, KVCTX_OP_MATCH_ALL, 0);

	memset(found, 0xee, ANSWER + 1);
	EXPECT_EQ(count(), kt_do(&self->k, &sqe, NULL));
	check_answer(_metadata, found, true);
	EXPECT_EQ(0, found->lease);
	EXPECT_EQ(0xee, ((uint8_t *)found)[ANSWER]);
	sqe = op_of(self, KVCTX_OP_MATCH_ALL | KVCTX_OP_MATCH_LEASE, 1000);
	EXPECT_EQ(count(), kt_do(&self->k, &sqe, NULL));
	EXPECT_NE(0, found->lease);
	EXPECT_EQ(0, release(&self->k, found->lease));
	/* only what leads, and its bits are there too */
	sqe = op_of(self, 0, 0);
	sqe.keys += sizeof(self->keys[0]);
	sqe.nr_keys = 8;
	EXPECT_EQ(2, kt_do(&self->k, &sqe, NULL));
	EXPECT_EQ(2, found->nr_present);
	EXPECT_EQ(3, found->present[0]);
	EXPECT_EQ(101, ((uint32_t *)(found->present + 1))[0]);
	EXPECT_EQ(0, ((uint32_t *)(found->present + 1))[2]);
}

/* An answer in pieces, with room for less than all of it: what is behind the room is left alone. */
TEST_F(match, answers_in_pieces)
{
	struct kvctx_seg segs[3] = {
		kt_seg(KVCTX_MEM_ARENA, AT_ANSWER, 5), kt_seg(KVCTX_MEM_ARENA, AT_ANSWER + 4096, 23),
		kt_seg(KVCTX_MEM_ARENA, AT_ANSWER + 8192, sizeof(struct kvctx_found) + 4 * 8 + 2 * 4 - 5 - 23),
	};
	struct kvctx_sqe sqe = op_of(self, KVCTX_OP_MATCH_ALL, 0);
	uint8_t *at = self->k.arena + AT_ANSWER;
	struct kvctx_found found;
	uint64_t all[12] = { 0 };

	memset(at, 0xee, 3 * 4096);
	sqe.segs = (uintptr_t)segs;
	sqe.nr_segs = 3;
	sqe.length = segs[0].length + segs[1].length + segs[2].length;
	EXPECT_EQ(count(), kt_do(&self->k, &sqe, NULL));
	memcpy(all, at, 5);
	memcpy((uint8_t *)all + 5, at + 4096, 23);
	memcpy((uint8_t *)all + 28, at + 8192, segs[2].length);
	memcpy(&found, all, sizeof(found));
	EXPECT_EQ(count(), found.nr_present);
	for (int i = 0; i < NR; i++) {
		EXPECT_EQ(here(i), all[2 + i / 64] >> (i % 64) & 1);
	}
	EXPECT_EQ(0, (uint32_t)all[6]);
	EXPECT_EQ(101, all[6] >> 32);
	EXPECT_EQ(0xee, at[5]);
	EXPECT_EQ(0xee, at[4096 + 23]);
	EXPECT_EQ(0xee, at[8192 + segs[2].length]);
}

/* Many at once, beside other operations: each completes once with its own number. */
TEST_F(match, many_in_flight)
{
	struct kvctx_sqe sqes[32];
	struct kvctx_cqe cqe;
	uint32_t seen = 0;

	for (int i = 0; i < 32; i++) {
		sqes[i] = op_of(self, KVCTX_OP_MATCH_ALL, 0);
		sqes[i].user_data = i;
		sqes[i].nr_keys = 1 + i;
		sqes[i].segs += i * 4096;
		sqes[i].length = sizeof(struct kvctx_found);
	}
	ASSERT_EQ(32, kt_submit(&self->k, sqes, 32, 32));
	for (int i = 0; i < 32; i++) {
		int want = 0;

		ASSERT_TRUE(kt_reap(&self->k, &cqe));
		for (uint32_t n = 0; n <= cqe.user_data; n++)
			want += here(n);
		EXPECT_EQ(want, cqe.res);
		seen |= 1U << cqe.user_data;
	}
	EXPECT_EQ(~0U, seen);
}

/* A session that closes while it is being answered takes the leases along; nothing is left behind. */
TEST_F(match, close_while_in_flight)
{
	static struct kvctx_key many[65536];
	struct kvctx_sqe sqes[16];
	struct kt k;

	for (int i = 0; i < 65536; i++)
		many[i] = self->keys[1 + i % 2];
	for (int round = 0; round < 20; round++) {
		ASSERT_EQ(0, kt_open(&k, O_RDWR, 0x4d, KT_MIB, 64));
		for (int i = 0; i < 16; i++) {
			sqes[i] = op_of(self, KVCTX_OP_MATCH_LEASE, 60000);
			sqes[i].keys = (uintptr_t)many;
			sqes[i].nr_keys = 2000;
			sqes[i].length = sizeof(struct kvctx_found);
		}
		EXPECT_EQ(16, kt_submit(&k, sqes, 16, 0));
		kt_close(&k);
	}
}

TEST_HARNESS_MAIN
