// SPDX-License-Identifier: GPL-2.0
/*
 * Pages in many pieces: as few requests as the device's queue allows, and bounce blocks only where pieces meet.
 *
 * $KT_DEVICE is the block device of the one member of the pool. Its request counter and the pool's counter of
 * bounced blocks are read before and after, so nothing else may use either meanwhile.
 */
#include "harness.h"
#include "ktest.h"

#define NR_SEGS		188	/* 94 layers, K and V */
#define MANY		4096	/* what a list may have at least */
#define ARENA		((64 + 1) * KT_MIB)
#define NO_CHECK	KVCTX_OP_NO_VERIFY

static uint64_t queue_limit(const char *name)
{
	char path[128];
	uint64_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/block/%s/queue/%s", strrchr(getenv("KT_DEVICE"), '/') + 1, name);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%lu", &n) != 1)
		n = 0;
	if (f)
		fclose(f);
	return n;
}

/* Requests the device has completed: reads and writes */
static uint64_t requests(void)
{
	uint64_t reads = 0, writes = 0;
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "/sys/block/%s/stat", strrchr(getenv("KT_DEVICE"), '/') + 1);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%lu %*u %*u %*u %lu", &reads, &writes) != 2)
		return ~0ULL;
	fclose(f);
	return reads + writes;
}

static uint64_t bounced(void)
{
	FILE *f = popen("kvctxctl stat t -o json", "r");
	uint64_t n = ~0ULL;
	char line[4096];
	char *at;

	while (f && fgets(line, sizeof(line), f)) {
		at = strstr(line, "\"bounced_blocks\":");
		if (at && sscanf(at, "\"bounced_blocks\":%lu", &n) == 1)
			break;
	}
	if (f)
		pclose(f);
	return n;
}

FIXTURE(scatter)
{
	struct kt k;
	struct kvctx_seg segs[MANY];
	uint32_t nr;
	uint32_t length;
};

FIXTURE_SETUP(scatter)
{
	ASSERT_NE(NULL, getenv("KT_DEVICE"));
	ASSERT_EQ(0, kt_open(&self->k, O_RDWR, 0x5c, ARENA, 8));
}

FIXTURE_TEARDOWN(scatter)
{
	kt_close(&self->k);
}

/*
 * Lay pieces out over the arena, none beside its predecessor, each at an address that agrees with its position in the
 * page modulo 4096; lengths from 8 KiB to 128 KiB, of which @odd bytes more.
 */
static void lay_out(FIXTURE_DATA(scatter) *self, uint32_t odd)
{
	uint32_t i, slot;

	self->length = 0;
	self->nr = NR_SEGS;
	for (i = 0; i < NR_SEGS; i++) {
		slot = (i * 101) % NR_SEGS;
		self->segs[i] = kt_seg(KVCTX_MEM_ARENA, (uint64_t)slot * (160 << 10) + self->length % 4096,
				       (8 + i * 37 % 121 / 4 * 4) * 1024 + odd * (i % 7));
		self->length += self->segs[i].length;
	}
}

/* The same with as many pieces as a list may have, of 4 KiB to 12 KiB and @odd bytes more */
static void lay_out_many(FIXTURE_DATA(scatter) *self, uint32_t odd)
{
	uint32_t i, slot;

	self->length = 0;
	self->nr = MANY;
	for (i = 0; i < MANY; i++) {
		slot = (i * 101) % MANY;
		self->segs[i] = kt_seg(KVCTX_MEM_ARENA, (uint64_t)slot * (16 << 10) + self->length % 4096,
				       (1 + i % 3) * 4096 - odd * (i % 7));
		self->length += self->segs[i].length;
	}
}

static void fill(FIXTURE_DATA(scatter) *self, uint64_t seed)
{
	for (uint32_t i = 0; i < self->nr; i++)
		kt_fill(self->k.arena + self->segs[i].offset, self->segs[i].length, seed + i);
}

/* First piece with a wrong byte, or -1 */
static int wrong(FIXTURE_DATA(scatter) *self, uint64_t seed)
{
	for (uint32_t i = 0; i < self->nr; i++)
		if (kt_check(self->k.arena + self->segs[i].offset, self->segs[i].length, seed + i) != -1)
			return i;
	return -1;
}

static int run(FIXTURE_DATA(scatter) *self, enum kvctx_opcode op, struct kvctx_key key, uint32_t flags)
{
	struct kvctx_sqe sqe = kt_io(op, key, self->segs, self->nr);

	sqe.flags = flags;
	return kt_do(&self->k, &sqe, NULL);
}

/* Requests that these pieces need under the queue's limits, filled up one after the other */
static uint64_t fewest(FIXTURE_DATA(scatter) *self)
{
	uint64_t bytes_max = queue_limit("max_sectors_kb") << 10, vecs_max = queue_limit("max_segments");
	uint64_t piece_max = queue_limit("max_segment_size"), n = 1, bytes = 0, vecs = 0;

	for (int i = 0; i < NR_SEGS; i++) {
		uint64_t left = self->segs[i].length, part;

		for (; left; left -= part) {
			if (bytes == bytes_max || vecs == vecs_max) {
				n++;
				bytes = 0;
				vecs = 0;
			}
			part = left < piece_max ? left : piece_max;
			part = part < bytes_max - bytes ? part : bytes_max - bytes;
			bytes += part;
			vecs++;
		}
	}
	return n;
}

TEST_F(scatter, few_requests)
{
	uint64_t before, used;

	lay_out(self, 0);
	fill(self, 7);
	before = bounced();
	ASSERT_NE(~0ULL, before);
	ASSERT_EQ(self->length, run(self, KVCTX_OP_STORE, kt_key(1), 0));
	memset(self->k.arena, 0, ARENA);
	used = requests();
	ASSERT_EQ(self->length, run(self, KVCTX_OP_LOAD, kt_key(1), 0));
	used = requests() - used;
	EXPECT_EQ(-1, wrong(self, 7));
	/* one more where the last vector of a request is cut at a block of the device */
	EXPECT_GE(fewest(self) + 1, used) TH_LOG("%lu requests, %lu would do", used, fewest(self));
	EXPECT_EQ(before, bounced());
}

TEST_F(scatter, only_seams_are_bounced)
{
	uint64_t before, store, load;

	lay_out(self, 13);
	fill(self, 8);
	before = bounced();
	ASSERT_EQ(self->length, run(self, KVCTX_OP_STORE, kt_key(2), 0));
	store = bounced() - before;
	memset(self->k.arena, 0, ARENA);
	before = bounced();
	ASSERT_EQ(self->length, run(self, KVCTX_OP_LOAD, kt_key(2), 0));
	load = bounced() - before;
	EXPECT_EQ(-1, wrong(self, 8));
	/* a block for each seam that lies inside one, and one for the end of the page */
	EXPECT_LT(0, store);
	EXPECT_GE(NR_SEGS, store);
	EXPECT_LT(0, load);
	EXPECT_GE(NR_SEGS, load);
}

TEST_F(scatter, unverified_load_needs_no_other_way)
{
	lay_out(self, 13);
	fill(self, 9);
	ASSERT_EQ(self->length, run(self, KVCTX_OP_STORE, kt_key(3), 0));
	memset(self->k.arena, 0, ARENA);
	ASSERT_EQ(self->length, run(self, KVCTX_OP_LOAD, kt_key(3), NO_CHECK));
	EXPECT_EQ(-1, wrong(self, 9));
}

TEST_F(scatter, the_longest_list)
{
	struct kvctx_info info = { .size = sizeof(info) };

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_INFO, &info));
	ASSERT_LE(MANY, info.segs_max);
	for (uint32_t odd = 0; odd < 2; odd++) {
		lay_out_many(self, 13 * odd);
		fill(self, 10 + odd);
		ASSERT_EQ(self->length, run(self, KVCTX_OP_STORE, kt_key(4 + odd), 0));
		memset(self->k.arena, 0, ARENA);
		ASSERT_EQ(self->length, run(self, KVCTX_OP_LOAD, kt_key(4 + odd), 0));
		EXPECT_EQ(-1, wrong(self, 10 + odd));
	}
}

TEST_HARNESS_MAIN
