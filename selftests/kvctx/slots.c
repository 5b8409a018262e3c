// SPDX-License-Identifier: GPL-2.0
/*
 * Slots: PREFETCH, GET, PUT, MATCH with prefetch, and LOADs that find their page there. Runs in slots.sh, which puts
 * the pool on the device "slow" (slow.sh).
 */
#include <pthread.h>

#include "ktest.h"
#include "harness.h"

#define ARENA		(16 * KT_MIB)
#define SLOT		(256U << 10)
#define NR_SLOTS	8U
#define PAGE		100000U
#define LONG_MS		60000U
#define HIT		(KVCTX_CQE_FROM_DRAM | KVCTX_CQE_VERIFIED)

FIXTURE(slots)
{
	struct kt k;
	struct kvctx_info info;
};

FIXTURE_SETUP(slots)
{
	ASSERT_EQ(0, kt_open_slots(&self->k, O_RDWR, 0x51, ARENA, 512, SLOT, NR_SLOTS));
	self->info.size = sizeof(self->info);
	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_INFO, &self->info));
}

FIXTURE_TEARDOWN(slots)
{
	kt_close(&self->k);
}

/* Another number of slots */
static int reopen(struct kt *k, uint32_t slot_bytes, uint32_t nr)
{
	kt_close(k);
	return kt_open_slots(k, O_RDWR, 0x51, ARENA, 512, slot_bytes, nr);
}

static struct kvctx_sqe want(enum kvctx_opcode op, uint64_t n, uint32_t ms)
{
	struct kvctx_sqe sqe = kt_sqe(op, kt_key(n));

	sqe.lease_ms = ms;
	return sqe;
}

static int prefetch(struct kt *k, uint64_t n, uint32_t ms, uint32_t *flags)
{
	struct kvctx_sqe sqe = want(KVCTX_OP_PREFETCH, n, ms);

	return kt_do(k, &sqe, flags);
}

static int get(struct kt *k, uint64_t n, uint32_t ms, uint32_t *flags)
{
	struct kvctx_sqe sqe = want(KVCTX_OP_GET, n, ms);

	return kt_do(k, &sqe, flags);
}

static int put(struct kt *k, uint32_t slot)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_PUT, (struct kvctx_key){ 0 });

	sqe.lease = slot;
	return kt_do(k, &sqe, NULL);
}

static int store(struct kt *k, uint64_t n, uint32_t size, uint64_t seed)
{
	kt_fill(k->arena, size, seed);
	return kt_store(k, kt_key(n), 0, size, NULL);
}

/* Load page @n to the middle of the arena; its flags if bytes and length are right */
static int load(struct kt *k, uint64_t n, uint32_t size, uint64_t seed)
{
	uint32_t flags = ~0U;
	int res;

	memset(k->arena + ARENA / 2, 0, size);
	res = kt_load(k, kt_key(n), ARENA / 2, size, &flags);
	if (res != (int)size)
		return res < 0 ? res : -EPROTO;
	return kt_check(k->arena + ARENA / 2, size, seed) == -1 ? (int)flags : -EILSEQ;
}

TEST_F(slots, load_after_prefetch)
{
	struct kt *k = &self->k;
	uint32_t flags = 0;
	struct kvctx_seg seg = kt_seg(KVCTX_MEM_ARENA, ARENA / 2, PAGE);
	struct kvctx_sqe sqe;
	long reads;

	EXPECT_TRUE(self->info.features & KVCTX_FEAT_SLOTS);
	ASSERT_EQ((int)PAGE, store(k, 1, PAGE, 1));
	ASSERT_EQ((int)PAGE, prefetch(k, 1, LONG_MS, &flags));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
	reads = kt_slow("reads");
	ASSERT_LT(0, reads);
	EXPECT_EQ(HIT, load(k, 1, PAGE, 1));
	EXPECT_EQ((int)PAGE, prefetch(k, 1, LONG_MS, &flags));
	EXPECT_EQ(HIT, flags);
	sqe = kt_io(KVCTX_OP_LOAD, kt_key(1), &seg, 1);
	sqe.flags = KVCTX_OP_NO_VERIFY;
	EXPECT_EQ((int)PAGE, kt_do(k, &sqe, &flags));
	EXPECT_EQ(HIT, flags);
	EXPECT_EQ(reads, kt_slow("reads"));
	sqe.flags = KVCTX_OP_NO_SLOT;
	EXPECT_EQ((int)PAGE, kt_do(k, &sqe, &flags));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
	EXPECT_LT(reads, kt_slow("reads"));
}

/* Ranges and scatter lists come from slots as from the device */
TEST_F(slots, parts_of_a_page)
{
	static const struct { uint32_t from, len[3]; } cases[] = {
		{ 0, { 1, 2, 3 } }, { 1, { 4096, 1, 65536 } }, { 65535, { 2, 7, 11 } }, { PAGE - 3, { 1, 1, 1 } },
		{ 70001, { 4095, 4097, 13 } }, { 0, { PAGE - 2, 1, 1 } },
	};
	static uint8_t whole[PAGE];
	struct kt *k = &self->k;
	uint32_t flags;

	kt_fill(whole, PAGE, 2);
	ASSERT_EQ((int)PAGE, store(k, 2, PAGE, 2));
	ASSERT_EQ((int)PAGE, prefetch(k, 2, LONG_MS, NULL));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvctx_seg segs[3];
		struct kvctx_sqe sqe;
		uint32_t at = cases[i].from;

		memset(k->arena, 0x5a, ARENA);
		for (int j = 0; j < 3; j++)
			segs[j] = kt_seg(KVCTX_MEM_ARENA, (3 - j) * KT_MIB + 5 * j, cases[i].len[j]);
		sqe = kt_io(KVCTX_OP_LOAD, kt_key(2), segs, 3);
		sqe.offset = at;
		ASSERT_EQ((int)sqe.length, kt_do(k, &sqe, &flags)) TH_LOG("case %zu", i);
		EXPECT_EQ(HIT, flags);
		for (int j = 0; j < 3; at += segs[j++].length) {
			EXPECT_EQ(0, memcmp(k->arena + segs[j].offset, whole + at, segs[j].length)) TH_LOG("case %zu", i);
			EXPECT_EQ(0x5a, k->arena[segs[j].offset - 1]);
			EXPECT_EQ(0x5a, k->arena[segs[j].offset + segs[j].length]);
		}
		sqe.offset = PAGE - sqe.length + 1;
		EXPECT_EQ(-ERANGE, kt_do(k, &sqe, NULL)) TH_LOG("case %zu", i);
	}
}

TEST_F(slots, refusals)
{
	struct kt *k = &self->k;

	EXPECT_EQ(-ENOENT, prefetch(k, 10, LONG_MS, NULL));
	EXPECT_EQ(-ENOENT, get(k, 10, LONG_MS, NULL));
	ASSERT_EQ((int)SLOT + 1, store(k, 11, SLOT + 1, 11));
	EXPECT_EQ(-E2BIG, prefetch(k, 11, LONG_MS, NULL));
	EXPECT_EQ(-E2BIG, get(k, 11, LONG_MS, NULL));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, load(k, 11, SLOT + 1, 11));
	ASSERT_EQ((int)SLOT, store(k, 12, SLOT, 12));
	EXPECT_EQ(-EINVAL, prefetch(k, 12, 0, NULL));
	EXPECT_EQ(-EINVAL, prefetch(k, 12, self->info.lease_ms_max + 1, NULL));
	EXPECT_EQ(-EINVAL, put(k, 0));
	EXPECT_EQ((int)SLOT, prefetch(k, 12, self->info.lease_ms_max, NULL));
	EXPECT_EQ(HIT, load(k, 12, SLOT, 12));
	for (uint32_t i = 0; i < NR_SLOTS; i++) {
		EXPECT_EQ(-EINVAL, put(k, i));
	}
	EXPECT_EQ(-EINVAL, put(k, NR_SLOTS));
	EXPECT_EQ(-EINVAL, put(k, ~0U));
	ASSERT_EQ(0, reopen(k, 0, 0));
	EXPECT_EQ(-EOPNOTSUPP, prefetch(k, 12, LONG_MS, NULL));
	EXPECT_EQ(-EOPNOTSUPP, get(k, 12, LONG_MS, NULL));
	EXPECT_EQ(-EOPNOTSUPP, put(k, 0));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, load(k, 12, SLOT, 12));
}

TEST_F(slots, limits_of_setup)
{
	/* as many as a small machine has memory for where pages are large */
	const uint32_t room = (256U << 20) / kt_page(), most = room < self->info.slots_max ? room : self->info.slots_max;
	const struct { uint32_t bytes, nr; int want; } cases[] = {
		{ 0, 1, -EINVAL }, { 1, 0, -EINVAL }, { 4096, self->info.slots_max + 1, -EINVAL },
		{ self->info.slot_bytes_max + 1, 1, -EINVAL }, { self->info.slot_bytes_max, self->info.slots_max, -EINVAL },
		{ 1, 1, 0 }, { 4097, 3, 0 }, { 1, most, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct kvctx_setup s = {
			.size = sizeof(s), .cq_entries = 8, .slot_bytes = cases[i].bytes, .nr_slots = cases[i].nr,
		};
		struct kvctx_file *f;

		ASSERT_EQ(0, kt_file(O_RDWR, &f));
		EXPECT_EQ(cases[i].want, kt_ioctl(f, KVCTX_IOC_SETUP, &s)) TH_LOG("case %zu", i);
		if (!cases[i].want) {
			EXPECT_EQ((cases[i].bytes + kt_page() - 1) / kt_page() * kt_page(), s.slot_bytes);
		}
		kvctx_sys_close(f);
	}
}

TEST_F(slots, mappings_are_for_reading)
{
	size_t all = (size_t)SLOT * NR_SLOTS;
	struct kvctx_file *f = self->k.file;
	void *p;

	EXPECT_EQ(MAP_FAILED, kt_map(f, all, PROT_READ | PROT_WRITE, KVCTX_MMAP_SLOTS));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(MAP_FAILED, kt_map(f, all + kt_page(), PROT_READ, KVCTX_MMAP_SLOTS));
	EXPECT_EQ(MAP_FAILED, kt_map(f, kt_page(), PROT_READ, KVCTX_MMAP_SLOTS + all));
	p = kt_map(f, kt_page(), PROT_READ, KVCTX_MMAP_SLOTS + all - kt_page());
	ASSERT_NE(MAP_FAILED, p);
	kvctx_sys_munmap(f, p, kt_page());
	ASSERT_EQ(0, reopen(&self->k, 0, 0));
	EXPECT_EQ(MAP_FAILED, kt_map(self->k.file, kt_page(), PROT_READ, KVCTX_MMAP_SLOTS));
}

/* Whatever their owner does to them */
TEST_F(slots, mappings_stay_for_reading)
{
	size_t all = (size_t)SLOT * NR_SLOTS;
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (uintptr_t)self->k.slots, .length = all };
	int fd;

	EXPECT_EQ(MAP_FAILED, mmap(NULL, all, PROT_READ, MAP_PRIVATE, kt_fd(&self->k), KVCTX_MMAP_SLOTS));
	EXPECT_EQ(-1, mprotect((void *)self->k.slots, kt_page(), PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(-EFAULT, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg));
	/* /proc/self/mem writes where debuggers may */
	fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-1, pwrite(fd, "x", 1, (uintptr_t)self->k.slots));
	close(fd);
	EXPECT_EQ(0, self->k.slots[0]);
}

TEST_F(slots, deleted_and_replaced_pages)
{
	struct kt *k = &self->k;
	uint32_t flags;
	int slot;

	ASSERT_EQ((int)PAGE, store(k, 20, PAGE, 20));
	slot = get(k, 20, LONG_MS, NULL);
	ASSERT_LE(0, slot);
	EXPECT_EQ(HIT, load(k, 20, PAGE, 20));
	ASSERT_EQ(0, kt_op(k, KVCTX_OP_DELETE, kt_key(20)));
	EXPECT_EQ(-ENOENT, load(k, 20, PAGE, 20));
	EXPECT_EQ(-ENOENT, prefetch(k, 20, LONG_MS, NULL));
	/* same length, other bytes */
	ASSERT_EQ((int)PAGE, store(k, 20, PAGE, 21));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, load(k, 20, PAGE, 21));
	EXPECT_EQ((int)PAGE, prefetch(k, 20, LONG_MS, &flags));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
	EXPECT_EQ(HIT, load(k, 20, PAGE, 21));
	/* who holds the old one keeps it */
	EXPECT_EQ(-1, kt_check(k->slots + (size_t)slot * SLOT, PAGE, 20));
	EXPECT_NE(slot, get(k, 20, LONG_MS, NULL));
	EXPECT_EQ(0, put(k, slot));
	EXPECT_EQ(-EINVAL, put(k, slot));
}

TEST_F(slots, get_and_put)
{
	struct kt *k = &self->k;
	uint32_t flags;
	int slot;

	ASSERT_EQ(0, reopen(k, SLOT, 1));
	ASSERT_EQ((int)PAGE, store(k, 30, PAGE, 30));
	ASSERT_EQ((int)PAGE, store(k, 31, PAGE, 31));
	slot = get(k, 30, 1, &flags);
	ASSERT_EQ(0, slot);
	EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
	EXPECT_EQ(-1, kt_check(k->slots, PAGE, 30));
	EXPECT_EQ(0, get(k, 30, 1, &flags));
	EXPECT_EQ(HIT, flags);
	usleep(50000);
	EXPECT_EQ(-ENOSPC, prefetch(k, 31, LONG_MS, NULL));
	EXPECT_EQ(0, put(k, slot));
	EXPECT_EQ(-ENOSPC, get(k, 31, LONG_MS, NULL));
	EXPECT_EQ(-1, kt_check(k->slots, PAGE, 30));
	EXPECT_EQ(0, put(k, slot));
	EXPECT_EQ(-EINVAL, put(k, slot));
	/* the lease is over and the last GET is put: the slot is another page's */
	EXPECT_EQ(0, get(k, 31, LONG_MS, &flags));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
	EXPECT_EQ(-1, kt_check(k->slots, PAGE, 31));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, load(k, 30, PAGE, 30));
}

TEST_F(slots, leases)
{
	struct kt *k = &self->k;
	uint32_t flags, ms = 150;
	int none, again;
	uint64_t start;

	for (int i = 40; i < 44; i++) {
		ASSERT_EQ((int)PAGE, store(k, i, PAGE, i));
	}
	/* the leases shall not be over before their pages are asked for again */
	do {
		ms *= 2;
		ASSERT_EQ(0, reopen(k, SLOT, 2));
		start = kt_now();
		ASSERT_EQ((int)PAGE, prefetch(k, 40, ms, NULL));
		ASSERT_EQ((int)PAGE, prefetch(k, 41, ms + 1, NULL));
		none = prefetch(k, 42, LONG_MS, NULL);
		/* asked for again: kept longer */
		again = prefetch(k, 40, LONG_MS, &flags);
	} while (kt_now() > start + ms * (KT_SEC / 1000) / 2 && ms < LONG_MS / 2);
	EXPECT_EQ(-ENOSPC, none);
	EXPECT_EQ((int)PAGE, again);
	EXPECT_EQ(HIT, flags);
	usleep((ms + 100) * 1000);
	/* over, but nobody needed the slot */
	EXPECT_EQ(HIT, load(k, 41, PAGE, 41));
	EXPECT_EQ((int)PAGE, prefetch(k, 42, LONG_MS, &flags));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
	EXPECT_EQ(HIT, load(k, 40, PAGE, 40));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, load(k, 41, PAGE, 41));
	EXPECT_EQ(HIT, load(k, 42, PAGE, 42));
	EXPECT_EQ(-ENOSPC, prefetch(k, 43, LONG_MS, NULL));
}

static int match(struct kt *k, uint64_t from, uint32_t nr, uint32_t ms, struct kvctx_match *m)
{
	struct kvctx_key keys[200];

	for (uint32_t i = 0; i < nr; i++)
		keys[i] = kt_key(from + i);
	*m = (struct kvctx_match){
		.size = sizeof(*m), .flags = KVCTX_MATCH_PREFETCH, .keys = (uintptr_t)keys, .nr_keys = nr, .lease_ms = ms,
	};
	return kt_ioctl(k->file, KVCTX_IOC_MATCH, m);
}

TEST_F(slots, match_reads_ahead)
{
	struct kt *k = &self->k;
	struct kvctx_match m;
	uint32_t i;

	for (i = 0; i < 12; i++) {
		ASSERT_EQ((int)PAGE, store(k, 50 + i, PAGE, 50 + i));
	}
	EXPECT_EQ(-EINVAL, match(k, 50, 13, 0, &m));
	ASSERT_EQ(0, match(k, 50, 13, LONG_MS, &m));
	EXPECT_EQ(12, m.nr_present);
	EXPECT_EQ(NR_SLOTS, m.nr_prefetched);
	EXPECT_EQ(0, m.lease);
	for (i = 0; i < 12; i++) {
		EXPECT_EQ(i < NR_SLOTS ? HIT : KVCTX_CQE_VERIFIED, (unsigned int)load(k, 50 + i, PAGE, 50 + i));
	}
	ASSERT_EQ(0, match(k, 50, 5, LONG_MS, &m));
	EXPECT_EQ(5, m.nr_prefetched);

	/* both: a lease on the pages too */
	ASSERT_EQ(0, reopen(k, SLOT, 200));
	ASSERT_EQ((int)SLOT + 1, store(k, 62, SLOT + 1, 62));
	ASSERT_EQ((int)PAGE, store(k, 63, PAGE, 63));
	ASSERT_EQ(0, match(k, 50, 14, 1, &m));
	EXPECT_EQ(14, m.nr_present);
	EXPECT_EQ(12, m.nr_prefetched);		/* up to the page that does not fit */
	EXPECT_EQ(KVCTX_CQE_VERIFIED, load(k, 63, PAGE, 63));

	/* more than one batch of keys */
	for (i = 0; i < 150; i++) {
		ASSERT_EQ(600, store(k, 100 + i, 600, 100 + i));
	}
	usleep(50000);
	ASSERT_EQ(0, match(k, 100, 150, LONG_MS, &m));
	EXPECT_EQ(150, m.nr_prefetched);
	for (i = 0; i < 150; i++) {
		EXPECT_EQ(HIT, load(k, 100 + i, 600, 100 + i));
	}

	ASSERT_EQ(0, reopen(k, 0, 0));
	ASSERT_EQ(0, match(k, 50, 12, LONG_MS, &m));
	EXPECT_EQ(12, m.nr_present);
	EXPECT_EQ(0, m.nr_prefetched);
}

/* What a batch came to, by position */
static void reap_all(struct kt *k, const struct kvctx_sqe *sqes, uint32_t nr, struct kvctx_cqe *out)
{
	struct kvctx_cqe cqe;

	kt_wait(k, nr, KT_LIMIT);
	while (kt_reap(k, &cqe))
		for (uint32_t i = 0; i < nr; i++)
			if (sqes[i].user_data == cqe.user_data)
				out[i] = cqe;
}

/* PREFETCH, GET, LOADs of page @n, whole and in part, all at once */
#define NR_WAITERS 5
static void come_for(struct kvctx_sqe *sqes, struct kvctx_seg *segs, struct kvctx_key key)
{
	static const enum kvctx_opcode ops[NR_WAITERS] = {
		KVCTX_OP_PREFETCH, KVCTX_OP_LOAD, KVCTX_OP_GET, KVCTX_OP_LOAD, KVCTX_OP_PREFETCH,
	};

	segs[1] = kt_seg(KVCTX_MEM_ARENA, 1 * KT_MIB, PAGE);
	segs[3] = kt_seg(KVCTX_MEM_ARENA, 2 * KT_MIB, 1000);
	for (int i = 0; i < NR_WAITERS; i++) {
		if (ops[i] == KVCTX_OP_LOAD) {
			sqes[i] = kt_io(ops[i], key, &segs[i], 1);
		} else {
			sqes[i] = kt_sqe(ops[i], key);
			sqes[i].lease_ms = LONG_MS;
		}
	}
	sqes[3].offset = 77777;
}

TEST_F(slots, loads_wait_for_a_fill)
{
	struct kt *k = &self->k;
	struct kvctx_cqe cqes[NR_WAITERS] = { 0 };
	struct kvctx_sqe sqes[NR_WAITERS];
	struct kvctx_seg segs[NR_WAITERS];
	static uint8_t whole[PAGE];
	long before, one;

	kt_fill(whole, PAGE, 70);
	ASSERT_EQ((int)PAGE, store(k, 70, PAGE, 70));
	before = kt_slow("reads");
	EXPECT_EQ(KVCTX_CQE_VERIFIED, load(k, 70, PAGE, 70));
	one = kt_slow("reads") - before;
	ASSERT_LT(0, one);
	come_for(sqes, segs, kt_key(70));
	ASSERT_LE(0, kt_slow("stuck"));
	ASSERT_EQ(NR_WAITERS, kt_submit(k, sqes, NR_WAITERS, 0));
	EXPECT_EQ(-ETIME, kt_wait(k, 1, KT_SEC / 5));
	ASSERT_LE(0, kt_slow("resume"));
	reap_all(k, sqes, NR_WAITERS, cqes);
	EXPECT_EQ(PAGE, cqes[0].res);
	EXPECT_EQ(PAGE, cqes[1].res);
	EXPECT_EQ(HIT, cqes[1].flags);
	EXPECT_EQ(0, memcmp(k->arena + KT_MIB, whole, PAGE));
	EXPECT_LE(0, cqes[2].res);
	EXPECT_EQ(0, memcmp(k->slots + (size_t)cqes[2].res * SLOT, whole, PAGE));
	EXPECT_EQ(1000, cqes[3].res);
	EXPECT_EQ(HIT, cqes[3].flags);
	EXPECT_EQ(0, memcmp(k->arena + 2 * KT_MIB, whole + 77777, 1000));
	EXPECT_EQ(PAGE, cqes[4].res);
	EXPECT_EQ(before + 2 * one, kt_slow("reads"));
	EXPECT_EQ(0, put(k, cqes[2].res));
	EXPECT_EQ(-EINVAL, put(k, cqes[2].res));
}

/* A page that is replaced while it is being read ahead: each gets what was there when it came */
TEST_F(slots, replaced_while_filling)
{
	struct kt *k = &self->k;
	struct kvctx_seg seg = kt_seg(KVCTX_MEM_ARENA, KT_MIB, PAGE);
	struct kvctx_sqe sqes[2], del = kt_sqe(KVCTX_OP_DELETE, kt_key(71));
	struct kvctx_cqe cqe;
	uint32_t flags;

	ASSERT_EQ((int)PAGE, store(k, 71, PAGE, 71));
	sqes[0] = want(KVCTX_OP_PREFETCH, 71, LONG_MS);
	sqes[1] = kt_io(KVCTX_OP_LOAD, kt_key(71), &seg, 1);
	ASSERT_LE(0, kt_slow("stuck"));
	ASSERT_EQ(2, kt_submit(k, sqes, 2, 0));
	EXPECT_EQ(0, kt_ioctl(k->file, KVCTX_IOC_WAIT, &(struct kvctx_wait){ .size = sizeof(struct kvctx_wait) }));
	ASSERT_EQ(1, kt_submit(k, &del, 1, 1));
	ASSERT_TRUE(kt_reap(k, &cqe));
	ASSERT_EQ(del.user_data, cqe.user_data);
	ASSERT_EQ(0, cqe.res);
	ASSERT_LE(0, kt_slow("resume"));
	kt_wait(k, 2, KT_LIMIT);
	while (kt_reap(k, &cqe)) {
		EXPECT_EQ(PAGE, cqe.res);
	}
	EXPECT_EQ(-1, kt_check(k->arena + KT_MIB, PAGE, 71));
	ASSERT_EQ((int)PAGE, store(k, 71, PAGE, 72));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, load(k, 71, PAGE, 72));
	EXPECT_EQ((int)PAGE, prefetch(k, 71, LONG_MS, &flags));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
	EXPECT_EQ(HIT, load(k, 71, PAGE, 72));
}

/* A fill that fails: all who wait get its error, the slot is free again */
static void fail_fill(struct __test_metadata *_metadata, struct kt *k, struct kvctx_key key, const char *broken,
		      int error)
{
	struct kvctx_cqe cqes[NR_WAITERS] = { 0 };
	struct kvctx_sqe sqes[NR_WAITERS];
	struct kvctx_seg segs[NR_WAITERS];

	come_for(sqes, segs, key);
	memset(k->arena, 0x5a, 4 * KT_MIB);
	ASSERT_LE(0, kt_slow("stuck"));
	ASSERT_EQ(NR_WAITERS, kt_submit(k, sqes, NR_WAITERS, 0));
	ASSERT_LE(0, kt_slow(broken));
	reap_all(k, sqes, NR_WAITERS, cqes);
	for (int i = 0; i < NR_WAITERS; i++) {
		EXPECT_EQ(error, cqes[i].res) TH_LOG("operation %d", i);
	}
}

TEST_F(slots, damaged_page)
{
	char command[128];
	struct kvctx_key key = { .digest = "pages of the test scripts", .qualifier = 4242 };
	struct kt *k = &self->k;

	kt_close(k);
	ASSERT_EQ(0, kt_open_slots(k, O_RDWR, 0x77, ARENA, 512, SLOT, 1));
	kt_fill(k->arena, PAGE, 4242);
	ASSERT_EQ((int)PAGE, kt_store(k, key, 0, PAGE, NULL));
	snprintf(command, sizeof(command), "pages flip %s 4242 5000 > /dev/null", getenv("KVCTX_BACKING"));
	ASSERT_EQ(0, system(command));
	fail_fill(_metadata, k, key, "resume", -EBADMSG);
	EXPECT_EQ(-ENOENT, kt_op(k, KVCTX_OP_QUERY, key));
	ASSERT_EQ((int)PAGE, store(k, 80, PAGE, 80));
	EXPECT_EQ((int)PAGE, prefetch(k, 80, LONG_MS, NULL));
	EXPECT_EQ(HIT, load(k, 80, PAGE, 80));
}

TEST_F(slots, device_errors)
{
	struct kt *k = &self->k;

	ASSERT_EQ(0, reopen(k, SLOT, 1));
	ASSERT_EQ((int)PAGE, store(k, 81, PAGE, 81));
	ASSERT_EQ((int)PAGE, store(k, 82, PAGE, 82));
	fail_fill(_metadata, k, kt_key(81), "error", -EIO);
	ASSERT_LE(0, kt_slow("delay 0"));
	EXPECT_EQ((int)PAGE, prefetch(k, 82, LONG_MS, NULL));
	EXPECT_EQ(HIT, load(k, 82, PAGE, 82));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, load(k, 81, PAGE, 81));
}

/* Fills on their way when the session ends: by close */
TEST_F(slots, closed_while_filling)
{
	struct kt *k = &self->k;
	struct kvctx_sqe sqes[NR_WAITERS];
	struct kvctx_seg segs[NR_WAITERS];
	struct kvctx_match m;

	for (int i = 90; i < 96; i++) {
		ASSERT_EQ((int)PAGE, store(k, i, PAGE, i));
	}
	come_for(sqes, segs, kt_key(95));
	ASSERT_LE(0, kt_slow("delay 200"));
	ASSERT_EQ(0, match(k, 90, 4, LONG_MS, &m));
	EXPECT_EQ(4, m.nr_prefetched);
	ASSERT_EQ(NR_WAITERS, kt_submit(k, sqes, NR_WAITERS, 0));
	ASSERT_EQ(0, reopen(k, SLOT, NR_SLOTS));
	ASSERT_LE(0, kt_slow("delay 0"));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, load(k, 95, PAGE, 95));
}

/* And by kill while the device is stuck */
TEST_F(slots, killed_while_filling)
{
	struct kt *k = &self->k;
	struct kvctx_sqe sqes[NR_WAITERS];
	struct kvctx_seg segs[NR_WAITERS];
	struct kvctx_match m;
	int status;
	pid_t pid;

	for (int i = 90; i < 96; i++) {
		ASSERT_EQ((int)PAGE, store(k, i, PAGE, i));
	}
	come_for(sqes, segs, kt_key(95));
	kt_close(k);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		if (kt_open_slots(k, O_RDWR, 0x51, ARENA, 512, SLOT, NR_SLOTS) || kt_slow("stuck") < 0 ||
		    match(k, 90, 4, LONG_MS, &m) || m.nr_prefetched != 4 ||
		    kt_submit(k, sqes, NR_WAITERS, 0) != NR_WAITERS)
			_exit(1);
		raise(SIGKILL);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	ASSERT_LE(0, kt_slow("resume"));
	ASSERT_EQ(0, kt_open_slots(k, O_RDWR, 0x51, ARENA, 512, SLOT, NR_SLOTS));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, load(k, 95, PAGE, 95));
}

TEST_F(slots, read_only_session)
{
	struct kt *k = &self->k;
	int slot;

	ASSERT_EQ((int)PAGE, store(k, 97, PAGE, 97));
	kt_close(k);
	ASSERT_EQ(0, kt_open_slots(k, O_RDONLY, 0x51, ARENA, 64, SLOT, 2));
	slot = get(k, 97, LONG_MS, NULL);
	ASSERT_LE(0, slot);
	EXPECT_EQ(-1, kt_check(k->slots + (size_t)slot * SLOT, PAGE, 97));
	EXPECT_EQ(0, put(k, slot));
}

/* Threads that do everything to a few pages, with fewer slots. The last eight bytes of a page tell its contents. */
#define STRESS_KEYS	12
#define STRESS_MS	3000

struct stress {
	struct kt *k;
	uint32_t id;
	unsigned long ops, hits;
	int bad;
};

static pthread_mutex_t ring_lock = PTHREAD_MUTEX_INITIALIZER;
static struct kvctx_cqe stress_done[512];
static bool stress_seen[512];

/* kt_do() for threads that share a session */
static int stress_do(struct kt *k, struct kvctx_sqe *sqe, uint32_t id, uint32_t *flags)
{
	struct kvctx_cqe cqe;

	sqe->user_data = id;
	if (kt_submit(k, sqe, 1, 0) != 1)
		return -EPROTO;
	for (;;) {
		pthread_mutex_lock(&ring_lock);
		while (kt_reap(k, &cqe)) {
			stress_done[cqe.user_data] = cqe;
			stress_seen[cqe.user_data] = true;
		}
		if (stress_seen[id]) {
			stress_seen[id] = false;
			cqe = stress_done[id];
			pthread_mutex_unlock(&ring_lock);
			*flags = cqe.flags;
			return cqe.res;
		}
		pthread_mutex_unlock(&ring_lock);
		sched_yield();
	}
}

static bool stress_right(const uint8_t *p, uint64_t n)
{
	uint64_t seed;

	memcpy(&seed, p + PAGE - 8, 8);
	return seed >> 32 == n && kt_check(p, PAGE - 8, seed) == -1;
}

static void *stress_thread(void *arg)
{
	struct stress *s = arg;
	uint64_t end = kt_now() + STRESS_MS * (KT_SEC / 1000);
	unsigned int rnd = s->id;
	uint64_t at = (1 + s->id) * KT_MIB;
	uint8_t *buf = s->k->arena + at;
	struct kvctx_seg seg = kt_seg(KVCTX_MEM_ARENA, at, PAGE);

	for (; kt_now() < end && !s->bad; s->ops++) {
		uint64_t n = 1000 + rand_r(&rnd) % STRESS_KEYS, seed = n << 32 | s->ops << 4 | s->id;
		int dice = rand_r(&rnd) % 16, res, slot;
		struct kvctx_sqe sqe;
		uint32_t flags;

		if (dice < 2) {
			kt_fill(buf, PAGE - 8, seed);
			memcpy(buf + PAGE - 8, &seed, 8);
			sqe = kt_io(KVCTX_OP_STORE, kt_key(n), &seg, 1);
			res = stress_do(s->k, &sqe, s->id, &flags);
			s->bad = res != PAGE;
		} else if (dice < 3) {
			sqe = kt_sqe(KVCTX_OP_DELETE, kt_key(n));
			res = stress_do(s->k, &sqe, s->id, &flags);
			s->bad = res && res != -ENOENT;
		} else if (dice < 8) {
			sqe = kt_io(KVCTX_OP_LOAD, kt_key(n), &seg, 1);
			res = stress_do(s->k, &sqe, s->id, &flags);
			s->bad = res == PAGE ? !stress_right(buf, n) : res != -ENOENT;
			s->hits += res == PAGE && flags & KVCTX_CQE_FROM_DRAM;
		} else if (dice < 12) {
			sqe = want(KVCTX_OP_PREFETCH, n, 1 + rand_r(&rnd) % 20);
			res = stress_do(s->k, &sqe, s->id, &flags);
			s->bad = res != PAGE && res != -ENOENT && res != -ENOSPC;
		} else {
			sqe = want(KVCTX_OP_GET, n, 1);
			slot = stress_do(s->k, &sqe, s->id, &flags);
			s->bad = slot < 0 && slot != -ENOENT && slot != -ENOSPC;
			if (slot < 0)
				continue;
			if (!stress_right(s->k->slots + (size_t)slot * SLOT, n))
				s->bad = -1;
			sqe = kt_sqe(KVCTX_OP_PUT, (struct kvctx_key){ 0 });
			sqe.lease = slot;
			if (stress_do(s->k, &sqe, s->id, &flags))
				s->bad = -1;
		}
	}
	return NULL;
}

TEST_F(slots, threads)
{
	struct stress s[4] = { 0 };
	pthread_t threads[4];

	ASSERT_EQ(0, reopen(&self->k, SLOT, 6));
	for (uint32_t i = 0; i < 4; i++) {
		s[i] = (struct stress){ .k = &self->k, .id = i };
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, stress_thread, &s[i]));
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		EXPECT_EQ(0, s[i].bad) TH_LOG("thread %d after %lu operations", i, s[i].ops);
		EXPECT_LT(0, s[i].hits);
		EXPECT_LT(50, s[i].ops);
	}
}

TEST_HARNESS_MAIN
