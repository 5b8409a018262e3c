// SPDX-License-Identifier: GPL-2.0
/*
 * Stores that replace: old bytes until the end, new ones afterwards, never a mixture.
 */
#include <pthread.h>

#include "ktest.h"
#include "harness.h"

#define ARENA		(8 * KT_MIB)
#define PAGE		(256U << 10)

FIXTURE(replace)
{
	struct kt k;
};

FIXTURE_SETUP(replace)
{
	ASSERT_EQ(0, kt_open_slots(&self->k, O_RDWR, 0x5e, ARENA, 64, PAGE, 4));
}

FIXTURE_TEARDOWN(replace)
{
	kt_close(&self->k);
}

/* Of @length bytes at @at; the result */
static int replace(struct kt *k, struct kvctx_key key, uint64_t at, uint32_t length, uint32_t *flags)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_STORE, key);

	sqe.flags = KVCTX_OP_REPLACE;
	sqe.segs = at;
	sqe.length = length;
	return kt_do(k, &sqe, flags);
}

TEST_F(replace, takes_the_key)
{
	struct kvctx_key key = kt_key(1);
	uint8_t *arena = self->k.arena;
	uint32_t flags = 0;

	kt_fill(arena, PAGE, 1);
	kt_fill(arena + PAGE, 5000, 2);
	ASSERT_EQ(PAGE, kt_store(&self->k, key, 0, PAGE, NULL));
	ASSERT_EQ(5000, kt_store(&self->k, key, PAGE, 5000, &flags));
	EXPECT_TRUE(flags & KVCTX_CQE_DEDUP);
	EXPECT_EQ(PAGE, kt_op(&self->k, KVCTX_OP_QUERY, key));
	ASSERT_EQ(5000, replace(&self->k, key, PAGE, 5000, &flags));
	EXPECT_EQ(0, flags & KVCTX_CQE_DEDUP);
	EXPECT_EQ(5000, kt_op(&self->k, KVCTX_OP_QUERY, key));
	memset(arena, 0, PAGE);
	EXPECT_EQ(5000, kt_load(&self->k, key, 0, 5000, NULL));
	EXPECT_EQ(-1, kt_check(arena, 5000, 2));
	EXPECT_EQ(-ERANGE, kt_load(&self->k, key, 0, 5001, NULL));
	EXPECT_EQ(0, kt_op(&self->k, KVCTX_OP_DELETE, key));
	EXPECT_EQ(-ENOENT, kt_op(&self->k, KVCTX_OP_DELETE, key));
}

TEST_F(replace, of_what_is_not_there)
{
	struct kvctx_key key = kt_key(2);

	kt_fill(self->k.arena, PAGE, 3);
	ASSERT_EQ(PAGE, replace(&self->k, key, 0, PAGE, NULL));
	EXPECT_EQ(PAGE, kt_load(&self->k, key, PAGE, PAGE, NULL));
	EXPECT_EQ(-1, kt_check(self->k.arena + PAGE, PAGE, 3));
}

/* One that fails leaves what was there. */
TEST_F(replace, a_failed_one_changes_nothing)
{
	struct kvctx_key key = kt_key(3);
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_STORE, key);
	uint32_t wrong[4] = { 1, 2, 3, 4 };
	struct kt ro;

	kt_fill(self->k.arena, PAGE, 4);
	ASSERT_EQ(PAGE, kt_store(&self->k, key, 0, PAGE, NULL));
	sqe.flags = KVCTX_OP_REPLACE;
	sqe.segs = PAGE;
	sqe.length = PAGE;
	sqe.crcs = (uintptr_t)wrong;
	EXPECT_EQ(-EILSEQ, kt_do(&self->k, &sqe, NULL));
	ASSERT_EQ(0, kt_open(&ro, O_RDONLY, 0x5e, KT_MIB, 8));
	EXPECT_EQ(-EACCES, replace(&ro, key, 0, 4096, NULL));
	kt_close(&ro);
	memset(self->k.arena, 0, PAGE);
	EXPECT_EQ(PAGE, kt_load(&self->k, key, 0, PAGE, NULL));
	EXPECT_EQ(-1, kt_check(self->k.arena, PAGE, 4));
}

/* What lies in a slot is the old page: nobody gets it any more. */
TEST_F(replace, slots_do_not_serve_the_old_page)
{
	struct kvctx_key key = kt_key(4);
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_PREFETCH, key);
	uint32_t flags = 0;

	kt_fill(self->k.arena, PAGE, 5);
	ASSERT_EQ(PAGE, kt_store(&self->k, key, 0, PAGE, NULL));
	sqe.lease_ms = 30000;
	ASSERT_EQ(PAGE, kt_do(&self->k, &sqe, NULL));
	ASSERT_EQ(PAGE, kt_load(&self->k, key, PAGE, PAGE, &flags));
	ASSERT_TRUE(flags & KVCTX_CQE_FROM_DRAM);
	kt_fill(self->k.arena, PAGE, 6);
	ASSERT_EQ(PAGE, replace(&self->k, key, 0, PAGE, NULL));
	ASSERT_EQ(PAGE, kt_load(&self->k, key, PAGE, PAGE, NULL));
	EXPECT_EQ(-1, kt_check(self->k.arena + PAGE, PAGE, 6));
}

#define ROUNDS	200
#define VERSIONS	8

struct reader {
	struct kt k;
	struct kvctx_key key;
	bool stop;	/* atomically */
	int loads, misses, wrong;
};

static void *read_all_the_time(void *arg)
{
	struct reader *r = arg;

	while (!__atomic_load_n(&r->stop, __ATOMIC_RELAXED)) {
		int res = kt_load(&r->k, r->key, 0, PAGE, NULL);
		int v = 0;

		r->loads++;
		r->misses += res != (int)PAGE;
		while (v < VERSIONS && kt_check(r->k.arena, PAGE, 100 + v) != -1)
			v++;
		r->wrong += res == (int)PAGE && v == VERSIONS;
	}
	return NULL;
}

/* The key is there all the time, with the bytes of one version. */
TEST_F(replace, readers_see_one_version_or_another)
{
	struct reader r = { .key = kt_key(5) };
	struct kvctx_sqe sqes[VERSIONS];
	struct kvctx_cqe cqe;
	pthread_t thread;

	for (int v = 0; v < VERSIONS; v++)
		kt_fill(self->k.arena + v * PAGE, PAGE, 100 + v);
	ASSERT_EQ(PAGE, kt_store(&self->k, r.key, 0, PAGE, NULL));
	ASSERT_EQ(0, kt_open(&r.k, O_RDWR, 0x5e, KT_MIB, 8));
	ASSERT_EQ(0, pthread_create(&thread, NULL, read_all_the_time, &r));
	for (int round = 0; round < ROUNDS; round++) {
		for (int v = 0; v < VERSIONS; v++) {
			sqes[v] = kt_sqe(KVCTX_OP_STORE, r.key);
			sqes[v].flags = KVCTX_OP_REPLACE;
			sqes[v].segs = v * PAGE;
			sqes[v].length = PAGE;
		}
		ASSERT_EQ(VERSIONS, kt_submit(&self->k, sqes, VERSIONS, VERSIONS));
		for (int v = 0; v < VERSIONS; v++) {
			ASSERT_TRUE(kt_reap(&self->k, &cqe));
			EXPECT_EQ(PAGE, cqe.res);
		}
	}
	__atomic_store_n(&r.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	EXPECT_LT(0, r.loads);
	EXPECT_EQ(0, r.misses);
	EXPECT_EQ(0, r.wrong);
	kt_close(&r.k);
}

TEST_HARNESS_MAIN
