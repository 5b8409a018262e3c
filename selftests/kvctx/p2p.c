// SPDX-License-Identifier: GPL-2.0
/*
 * Peer-to-peer DMA: pages between the memory of a PCI device and the members of a pool. $KVCTX_PATHS is the reason
 * (enum kvctx_path_reason) expected for each member, e.g. "0 0 1"; one of them must be direct. See also peer.h.
 */
#include "peer.h"
#include "harness.h"

#define PEER_BYTES	(16 * KT_MIB)
#define ARENA_BYTES	(32 * KT_MIB)

FIXTURE(p2p)
{
	struct kt k;
	uint8_t *peer;
	uint32_t id;
	struct kvctx_info info;
	uint32_t reason[MEMBERS_MAX], members, unreachable;
	uint32_t crcs[CHUNKS_MAX], told[CHUNKS_MAX];
};

FIXTURE_SETUP(p2p)
{
	char *text = getenv("KVCTX_PATHS");

	ASSERT_EQ(0, kt_open(&self->k, O_RDWR, 0x41, ARENA_BYTES, 256));
	self->peer = map_peer(PEER_BYTES);
	ASSERT_NE(NULL, self->peer);
	ASSERT_EQ(0, reg(&self->k, self->peer, PEER_BYTES, &self->id));
	info(&self->k, &self->info);
	for (char *end; text && self->members < MEMBERS_MAX; text = end) {
		uint32_t reason = strtoul(text, &end, 10);

		if (end == text)
			break;
		self->reason[self->members++] = reason;
		self->unreachable += reason != KVCTX_PATH_DIRECT;
	}
	ASSERT_LT(self->unreachable, self->members);
}

FIXTURE_TEARDOWN(p2p)
{
	EXPECT_EQ(0, unreg(&self->k, self->id));
	munmap(self->peer, PEER_BYTES);
	kt_close(&self->k);
}

/* One operation between [at, at + n) of a memory and a page, with CRCs or without */
static int one(FIXTURE_DATA(p2p) *self, enum kvctx_opcode op, uint64_t key, uint32_t mem, uint64_t at, uint32_t n,
	       uint32_t *crcs, uint32_t *flags)
{
	struct kvctx_seg seg = kt_seg(mem, at, n);
	struct kvctx_sqe sqe = kt_io(op, kt_key(key), &seg, 1);

	sqe.crcs = (uintptr_t)crcs;
	return kt_do(&self->k, &sqe, flags);
}

TEST_F(p2p, info_says_that_peer_memory_is_taken)
{
	EXPECT_EQ(KVCTX_FEAT_P2P, self->info.features & KVCTX_FEAT_P2P);
	EXPECT_EQ(self->members, self->info.members);
}

TEST_F(p2p, paths_tell_each_member_and_why)
{
	struct kvctx_path rows[MEMBERS_MAX];
	const char *name = getenv("KVCTX_PEER_NAME");
	uint32_t members;

	memset(rows, 0xee, sizeof(rows));
	ASSERT_EQ(0, paths(&self->k, self->id, rows, MEMBERS_MAX, &members));
	ASSERT_EQ(self->members, members);
	for (uint32_t i = 0; i < members; i++) {
		TH_LOG("%s to %s: reason %u, distance %d", rows[i].peer, rows[i].device, rows[i].reason,
		       rows[i].distance);
		EXPECT_EQ(i, rows[i].member);
		EXPECT_EQ(self->reason[i], rows[i].reason);
		EXPECT_STREQ(name, rows[i].peer);
		EXPECT_NE(0, rows[i].device[0]);
		EXPECT_EQ(0, rows[i].reserved);
		EXPECT_EQ(self->reason[i] != KVCTX_PATH_DIRECT, rows[i].distance < 0);
	}
	EXPECT_EQ(0xeeeeeeee, rows[members].member);
}

TEST_F(p2p, paths_of_this_machines_memory)
{
	struct kvctx_path rows[MEMBERS_MAX];
	uint32_t members;

	memset(rows, 0xee, sizeof(rows));
	ASSERT_EQ(0, paths(&self->k, KVCTX_MEM_ARENA, rows, 1, &members));
	EXPECT_EQ(self->members, members);
	EXPECT_EQ(KVCTX_PATH_DIRECT, rows[0].reason);
	EXPECT_EQ(0, rows[0].distance);
	EXPECT_STREQ("", rows[0].peer);
	EXPECT_EQ(0xeeeeeeee, rows[1].member);
	EXPECT_EQ(0, paths(&self->k, self->id, NULL, 0, &members));
	EXPECT_EQ(self->members, members);
	EXPECT_EQ(-EFAULT, paths(&self->k, self->id, NULL, 1, &members));
	EXPECT_EQ(-EINVAL, paths(&self->k, 999, rows, 1, &members));
}

TEST_F(p2p, store_with_crcs_is_verified_by_a_load_to_memory)
{
	uint32_t n = 3 * KT_MIB / 2 + 4096, nr, flags;

	kt_fill(self->k.arena, n, 1);
	nr = page_crcs(self->k.arena, n, self->info.chunk_size, self->crcs);
	memcpy(self->peer, self->k.arena, n);
	memset(self->k.arena, 0, n);
	ASSERT_EQ((int)n, one(self, KVCTX_OP_STORE, 1, self->id, 0, n, self->crcs, &flags));
	EXPECT_EQ(KVCTX_CQE_P2P, flags);
	ASSERT_EQ((int)n, one(self, KVCTX_OP_LOAD, 1, KVCTX_MEM_ARENA, 0, n, self->told, &flags));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
	EXPECT_EQ(-1, kt_check(self->k.arena, n, 1));
	EXPECT_EQ(0, memcmp(self->told, self->crcs, nr * sizeof(*self->crcs)));
	ASSERT_EQ((int)n, one(self, KVCTX_OP_STORE, 1, self->id, 0, n, self->crcs, &flags));
	EXPECT_EQ(KVCTX_CQE_DEDUP, flags);
}

TEST_F(p2p, load_to_peer_tells_the_crcs)
{
	uint32_t n = KT_MIB + 512 * 8, nr, flags;
	uint64_t key = 0;
	int res;

	kt_fill(self->k.arena, n, 2);
	memset(self->peer, 0x55, PEER_BYTES);
	nr = page_crcs(self->k.arena, n, self->info.chunk_size, self->crcs);
	/* a member in its turn may have no path */
	do {
		ASSERT_EQ((int)n, one(self, KVCTX_OP_STORE, ++key, KVCTX_MEM_ARENA, 0, n, NULL, NULL));
		res = one(self, KVCTX_OP_LOAD, key, self->id, 4096, n, self->told, &flags);
	} while (res == -EREMOTEIO && key < self->members);
	ASSERT_EQ((int)n, res);
	EXPECT_EQ(KVCTX_CQE_P2P, flags);
	EXPECT_EQ(-1, kt_check(self->peer + 4096, n, 2));
	EXPECT_EQ(0, memcmp(self->told, self->crcs, nr * sizeof(*self->crcs)));
	EXPECT_EQ(0x55, self->peer[4095]);
	EXPECT_EQ(0x55, self->peer[4096 + n]);
}

/* A page without CRCs never claims to be verified */
TEST_F(p2p, store_without_crcs)
{
	uint32_t n = 256 << 10, flags;

	kt_fill(self->peer, n, 3);
	ASSERT_EQ((int)n, one(self, KVCTX_OP_STORE, 1, self->id, 0, n, NULL, &flags));
	EXPECT_EQ(KVCTX_CQE_P2P, flags);
	ASSERT_EQ((int)n, one(self, KVCTX_OP_LOAD, 1, KVCTX_MEM_ARENA, 0, n, NULL, &flags));
	EXPECT_EQ(0, flags);
	EXPECT_EQ(-1, kt_check(self->k.arena, n, 3));
	EXPECT_EQ(-EOPNOTSUPP, one(self, KVCTX_OP_LOAD, 1, KVCTX_MEM_ARENA, 0, n, self->told, &flags));
	EXPECT_EQ(-EOPNOTSUPP, one(self, KVCTX_OP_LOAD, 1, self->id, KT_MIB, n, self->told, &flags));
	ASSERT_EQ((int)n, one(self, KVCTX_OP_LOAD, 1, self->id, KT_MIB, n, NULL, &flags));
	EXPECT_EQ(KVCTX_CQE_P2P, flags);
	EXPECT_EQ(-1, kt_check(self->peer + KT_MIB, n, 3));
	/* a range of it, at the granularity of blocks */
	ASSERT_EQ((int)n, one(self, KVCTX_OP_LOAD, 1, KVCTX_MEM_ARENA, KT_MIB, n, NULL, &flags));
}

/* What the caller said of the bytes was wrong: a check where they are finds it, and so does the kernel's */
TEST_F(p2p, wrong_crcs_of_peer_memory_are_found)
{
	uint32_t n = 256 << 10, nr, flags;

	kt_fill(self->peer, n, 4);
	nr = page_crcs(self->peer, n, self->info.chunk_size, self->crcs);
	self->crcs[nr - 1] ^= 1;
	ASSERT_EQ((int)n, one(self, KVCTX_OP_STORE, 1, self->id, 0, n, self->crcs, &flags));
	ASSERT_EQ((int)n, one(self, KVCTX_OP_LOAD, 1, self->id, KT_MIB, n, self->told, &flags));
	EXPECT_EQ(KVCTX_CQE_P2P, flags);
	page_crcs(self->peer + KT_MIB, n, self->info.chunk_size, self->crcs);
	EXPECT_EQ(0, memcmp(self->told, self->crcs, (nr - 1) * sizeof(*self->crcs)));
	EXPECT_NE(self->told[nr - 1], self->crcs[nr - 1]);
	EXPECT_EQ(-EBADMSG, one(self, KVCTX_OP_LOAD, 1, KVCTX_MEM_ARENA, 0, n, NULL, &flags));
	EXPECT_EQ(-ENOENT, kt_op(&self->k, KVCTX_OP_QUERY, kt_key(1)));
}

TEST_F(p2p, crcs_of_this_machines_memory_are_compared)
{
	uint32_t n = 200000, nr, flags;

	kt_fill(self->k.arena, n, 5);
	nr = page_crcs(self->k.arena, n, self->info.chunk_size, self->crcs);
	for (uint32_t i = 0; i < nr; i++) {
		self->crcs[i] ^= 0x80000000;
		EXPECT_EQ(-EILSEQ, one(self, KVCTX_OP_STORE, 1, KVCTX_MEM_ARENA, 0, n, self->crcs, &flags));
		EXPECT_EQ(-ENOENT, kt_op(&self->k, KVCTX_OP_QUERY, kt_key(1)));
		self->crcs[i] ^= 0x80000000;
	}
	ASSERT_EQ((int)n, one(self, KVCTX_OP_STORE, 1, KVCTX_MEM_ARENA, 0, n, self->crcs, &flags));
	EXPECT_EQ(0, flags);
	memset(self->told, 0, sizeof(self->told));
	ASSERT_EQ((int)n, one(self, KVCTX_OP_LOAD, 1, KVCTX_MEM_ARENA, KT_MIB, n, self->told, &flags));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
	EXPECT_EQ(0, memcmp(self->told, self->crcs, nr * sizeof(*self->crcs)));
	EXPECT_EQ(0, self->told[nr]);
	EXPECT_EQ(-EFAULT, one(self, KVCTX_OP_STORE, 2, KVCTX_MEM_ARENA, 0, n, (uint32_t *)8, &flags));
	EXPECT_EQ(-ENOENT, kt_op(&self->k, KVCTX_OP_QUERY, kt_key(2)));
	EXPECT_EQ(-EFAULT, one(self, KVCTX_OP_LOAD, 1, KVCTX_MEM_ARENA, 0, n, (uint32_t *)8, &flags));
}

/* The CRCs told are those of the chunks that the range touches, and no more */
TEST_F(p2p, crcs_of_a_range)
{
	uint32_t chunk = self->info.chunk_size, n = 5 * chunk, flags;
	struct kvctx_seg seg = kt_seg(KVCTX_MEM_ARENA, 8 * KT_MIB, chunk + 2);
	struct kvctx_sqe sqe = kt_io(KVCTX_OP_LOAD, kt_key(1), &seg, 1);

	kt_fill(self->k.arena, n, 6);
	page_crcs(self->k.arena, n, chunk, self->crcs);
	ASSERT_EQ((int)n, one(self, KVCTX_OP_STORE, 1, KVCTX_MEM_ARENA, 0, n, NULL, NULL));
	memset(self->told, 0, sizeof(self->told));
	sqe.offset = 2 * chunk - 1;
	sqe.crcs = (uintptr_t)self->told;
	EXPECT_EQ((int)chunk + 2, kt_do(&self->k, &sqe, &flags));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
	EXPECT_EQ(0, memcmp(self->told, self->crcs + 1, 3 * sizeof(*self->crcs)));
	EXPECT_EQ(0, self->told[3]);
}

/* A page in pieces, half of them the peer's */
TEST_F(p2p, scattered_over_peer_and_memory)
{
	uint32_t piece = 8192, nr = 188, n = piece * nr, flags;
	uint8_t *page = self->k.arena + 16 * KT_MIB, *at[188];
	struct kvctx_seg segs[188];
	struct kvctx_sqe sqe;

	kt_fill(page, n, 7);
	for (uint32_t i = 0; i < nr; i++) {
		segs[i] = kt_seg(i % 2 ? self->id : KVCTX_MEM_ARENA, (nr - i) * 2 * piece, piece);
		at[i] = (i % 2 ? self->peer : self->k.arena) + segs[i].offset;
		memcpy(at[i], page + i * piece, piece);
	}
	sqe = kt_io(KVCTX_OP_STORE, kt_key(1), segs, nr);
	ASSERT_EQ((int)n, kt_do(&self->k, &sqe, &flags));
	EXPECT_EQ(KVCTX_CQE_P2P, flags);
	for (uint32_t i = 0; i < nr; i++)
		memset(at[i], 0, piece);
	sqe = kt_io(KVCTX_OP_LOAD, kt_key(1), segs, nr);
	ASSERT_EQ((int)n, kt_do(&self->k, &sqe, &flags));
	EXPECT_EQ(KVCTX_CQE_P2P, flags);
	for (uint32_t i = 0; i < nr; i++)
		memcpy(page + i * piece, at[i], piece);
	EXPECT_EQ(-1, kt_check(page, n, 7));
}

/* There are no bounce blocks for peer memory: what would need one is for the caller to stage */
TEST_F(p2p, pieces_that_are_not_whole_blocks)
{
	struct kvctx_seg segs[3];
	struct kvctx_sqe sqe;
	uint32_t n = 64 << 10;

	kt_fill(self->peer, n, 8);
	EXPECT_EQ(-EREMOTEIO, one(self, KVCTX_OP_STORE, 1, self->id, 0, 1000, NULL, NULL));
	EXPECT_EQ(-EREMOTEIO, one(self, KVCTX_OP_STORE, 1, self->id, 2, 8192, NULL, NULL));
	segs[0] = kt_seg(KVCTX_MEM_ARENA, 0, 100);
	segs[1] = kt_seg(self->id, 0, 8192);
	segs[2] = kt_seg(KVCTX_MEM_ARENA, 100, 8192 - 100);
	sqe = kt_io(KVCTX_OP_STORE, kt_key(1), segs, 3);
	EXPECT_EQ(-EREMOTEIO, kt_do(&self->k, &sqe, NULL));
	EXPECT_EQ(-ENOENT, kt_op(&self->k, KVCTX_OP_QUERY, kt_key(1)));
	ASSERT_EQ((int)n, one(self, KVCTX_OP_STORE, 1, self->id, 0, n, NULL, NULL));
	memset(self->peer + KT_MIB, 0x77, n);
	EXPECT_EQ(-EREMOTEIO, one(self, KVCTX_OP_LOAD, 1, self->id, KT_MIB, 1000, NULL, NULL));
	segs[0] = kt_seg(self->id, KT_MIB, 8192);
	sqe = kt_io(KVCTX_OP_LOAD, kt_key(1), segs, 1);
	sqe.offset = 100;
	EXPECT_EQ(-EREMOTEIO, kt_do(&self->k, &sqe, NULL));
	EXPECT_EQ(0x77, self->peer[KT_MIB]);
	sqe.offset = 4096;
	EXPECT_EQ(8192, kt_do(&self->k, &sqe, NULL));
	EXPECT_EQ(0, memcmp(self->peer + KT_MIB, self->peer + 4096, 8192));
	EXPECT_EQ(0x77, self->peer[KT_MIB + 8192]);
}

/* Stores find a member with a path; loads of pages on others are refused before anything is sent */
TEST_F(p2p, members_without_a_path)
{
	uint32_t n = 128 << 10, pages = 8 * self->members, refused = 0;
	int res;

	for (uint32_t i = 0; i < pages; i++) {
		kt_fill(self->peer, n, 100 + i);
		ASSERT_EQ((int)n, one(self, KVCTX_OP_STORE, i, self->id, 0, n, NULL, NULL));
	}
	for (uint32_t i = 0; i < pages; i++) {
		memset(self->peer, 0, n);
		ASSERT_EQ((int)n, one(self, KVCTX_OP_LOAD, i, self->id, 0, n, NULL, NULL));
		EXPECT_EQ(-1, kt_check(self->peer, n, 100 + i));
	}
	for (uint32_t i = 0; i < pages; i++) {
		kt_fill(self->k.arena, n, 200 + i);
		ASSERT_EQ((int)n, one(self, KVCTX_OP_STORE, 1000 + i, KVCTX_MEM_ARENA, 0, n, NULL, NULL));
		memset(self->peer, 0x33, n);
		res = one(self, KVCTX_OP_LOAD, 1000 + i, self->id, 0, n, NULL, NULL);
		if (res == -EREMOTEIO) {
			refused++;
			EXPECT_EQ(0x33, self->peer[0]);
			EXPECT_EQ(0x33, self->peer[n - 1]);
			continue;
		}
		EXPECT_EQ((int)n, res);
		EXPECT_EQ(-1, kt_check(self->peer, n, 200 + i));
	}
	EXPECT_EQ(pages / self->members * self->unreachable, refused);
}

TEST_F(p2p, many_at_once)
{
	enum { NR = 64 };
	uint32_t n = PEER_BYTES / NR;
	struct kvctx_seg segs[NR];
	struct kvctx_sqe sqes[NR];
	struct kvctx_cqe cqe;

	kt_fill(self->peer, PEER_BYTES, 9);
	for (int op = KVCTX_OP_STORE; op <= KVCTX_OP_LOAD; op++) {
		for (int i = 0; i < NR; i++) {
			segs[i] = kt_seg(self->id, (uint64_t)i * n, n);
			sqes[i] = kt_io(op, kt_key(i), &segs[i], 1);
		}
		ASSERT_EQ(NR, kt_submit(&self->k, sqes, NR, NR));
		for (int i = 0; i < NR; i++) {
			ASSERT_TRUE(kt_reap(&self->k, &cqe));
			EXPECT_EQ((int)n, cqe.res);
			EXPECT_EQ(KVCTX_CQE_P2P, cqe.flags);
		}
		if (op == KVCTX_OP_STORE)
			memset(self->peer, 0, PEER_BYTES);
	}
	EXPECT_EQ(-1, kt_check(self->peer, PEER_BYTES, 9));
}

static long pinned_kib(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[128];
	long kib = -1;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "VmPin: %ld", &kib);
	if (f)
		fclose(f);
	return kib;
}

TEST_F(p2p, registrations)
{
	long pinned = pinned_kib();
	uint8_t *both, *host;
	uint32_t id, other;

	ASSERT_LE(0, pinned);
	ASSERT_EQ(0, reg(&self->k, self->peer + 100, 5000, &id));
	EXPECT_EQ(pinned, pinned_kib());
	EXPECT_EQ(-EFAULT, one(self, KVCTX_OP_STORE, 1, id, 4096, 4096, NULL, NULL));
	EXPECT_EQ(0, unreg(&self->k, id));
	EXPECT_EQ(-EINVAL, one(self, KVCTX_OP_STORE, 1, id, 0, 4096, NULL, NULL));
	host = mmap(NULL, KT_MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)host);
	ASSERT_EQ(0, reg(&self->k, host, KT_MIB, &other));
	EXPECT_EQ(pinned + 1024, pinned_kib());
	EXPECT_EQ(0, unreg(&self->k, other));
	/* a range of both kinds, in either order */
	both = mmap(NULL, 3 * KT_MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)both);
	ASSERT_EQ(both + KT_MIB, mremap(self->peer + 15 * KT_MIB, KT_MIB, KT_MIB, MREMAP_MAYMOVE | MREMAP_FIXED,
					both + KT_MIB));
	EXPECT_EQ(-EFAULT, reg(&self->k, both, 2 * KT_MIB, &id));
	EXPECT_EQ(-EFAULT, reg(&self->k, both + KT_MIB, 2 * KT_MIB, &id));
	EXPECT_EQ(0, reg(&self->k, both + KT_MIB, KT_MIB, &id));
	EXPECT_EQ(pinned, pinned_kib());
	munmap(both, 3 * KT_MIB);
	munmap(host, KT_MIB);
}

/* Slots hold what was verified, and the CPU fills them: neither goes with pages without CRCs, nor with a peer */
TEST_F(p2p, slots_and_peers)
{
	uint32_t n = 128 << 10, flags;
	struct kvctx_seg seg;
	struct kvctx_sqe sqe;
	struct kt k;
	uint32_t id;

	ASSERT_EQ(0, kt_open_slots(&k, O_RDWR, 0x46, KT_MIB, 16, n, 4));
	ASSERT_EQ(0, reg(&k, self->peer, PEER_BYTES, &id));
	kt_fill(self->peer, n, 10);
	page_crcs(self->peer, n, self->info.chunk_size, self->crcs);
	seg = kt_seg(id, 0, n);
	for (uint64_t key = 1; key <= 2; key++) {
		sqe = kt_io(KVCTX_OP_STORE, kt_key(key), &seg, 1);
		sqe.crcs = key == 1 ? 0 : (uintptr_t)self->crcs;
		ASSERT_EQ((int)n, kt_do(&k, &sqe, NULL));
		sqe = kt_sqe(KVCTX_OP_PREFETCH, kt_key(key));
		sqe.lease_ms = 60000;
		EXPECT_EQ(key == 1 ? -EOPNOTSUPP : (int)n, kt_do(&k, &sqe, NULL));
		EXPECT_EQ((int)n, kt_load(&k, kt_key(key), 0, n, &flags));
		EXPECT_EQ(key == 1 ? 0U : KVCTX_CQE_FROM_DRAM | KVCTX_CQE_VERIFIED, flags);
		EXPECT_EQ(-1, kt_check(k.arena, n, 10));
	}
	memset(self->peer, 0, n);
	sqe = kt_io(KVCTX_OP_LOAD, kt_key(2), &seg, 1);
	EXPECT_EQ((int)n, kt_do(&k, &sqe, &flags));
	EXPECT_EQ(KVCTX_CQE_P2P, flags);
	EXPECT_EQ(-1, kt_check(self->peer, n, 10));
	kt_close(&k);
}

/* The session takes its registrations with it, also with operations in flight */
TEST_F(p2p, close_in_flight)
{
	for (int round = 0; round < 20; round++) {
		struct kvctx_seg segs[16];
		struct kvctx_sqe sqes[16];
		struct kt k;
		uint32_t id;

		ASSERT_EQ(0, kt_open(&k, O_RDWR, 0x42, 0, 64));
		ASSERT_EQ(0, reg(&k, self->peer, PEER_BYTES, &id));
		for (int i = 0; i < 16; i++) {
			segs[i] = kt_seg(id, i * KT_MIB, KT_MIB);
			sqes[i] = kt_io(KVCTX_OP_STORE, kt_key(round * 16 + i), &segs[i], 1);
		}
		ASSERT_EQ(16, kt_submit(&k, sqes, 16, 0));
		kt_close(&k);
	}
}

TEST_HARNESS_MAIN
