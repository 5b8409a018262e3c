// SPDX-License-Identifier: GPL-2.0
/*
 * CANCEL: what has not been started ends, once, and what has goes on.
 */
#include "ktest.h"
#include "harness.h"

#define URGENT		24
#define WAITING		64
#define LARGE		(1U << 20)
#define SMALL		(256U << 10)
#define ARENA		(URGENT * LARGE + WAITING * SMALL)
#define NAME		4711
#define ROUNDS		50

FIXTURE(cancel)
{
	struct kt k;
};

FIXTURE_SETUP(cancel)
{
	ASSERT_EQ(0, kt_open(&self->k, O_RDWR, 0xca, ARENA, 256));
}

FIXTURE_TEARDOWN(cancel)
{
	kt_close(&self->k);
}

static struct kvctx_sqe cancel_of(uint64_t user_data)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_CANCEL, (struct kvctx_key){ 0 });

	sqe.offset = user_data;
	sqe.user_data = 1;
	return sqe;
}

TEST_F(cancel, nothing_of_that_name)
{
	struct kvctx_sqe sqe = cancel_of(NAME);

	EXPECT_EQ(0, kt_do(&self->k, &sqe, NULL));
	sqe.length = 1;
	EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
	sqe = cancel_of(NAME);
	sqe.key = kt_key(1);
	EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
}

static struct kvctx_sqe load(uint64_t n, uint64_t at, uint32_t length, uint8_t prio, uint64_t user_data)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_LOAD, kt_key(n));

	sqe.segs = at;
	sqe.length = length;
	sqe.prio = prio;
	sqe.user_data = user_data;
	return sqe;
}

/*
 * Urgent loads are in flight, others wait for their turn; those of one name are cancelled. Each operation completes
 * once, as many with -ECANCELED as CANCEL says, and what was read is right. How many were cancelled?
 */
static int cancel_round(struct __test_metadata *_metadata, struct kt *k)
{
	static struct kvctx_sqe sqes[URGENT + WAITING + 1];
	int said = -1, canceled = 0, seen = 0;
	struct kvctx_cqe cqe;

	for (int i = 0; i < URGENT; i++)
		sqes[i] = load(i, (uint64_t)i * LARGE, LARGE, KVCTX_PRIO_URGENT, 1000 + i);
	for (int i = 0; i < WAITING; i++)
		sqes[URGENT + i] = load(100 + i, URGENT * (uint64_t)LARGE + (uint64_t)i * SMALL, SMALL,
					KVCTX_PRIO_BACKGROUND, i % 2 ? NAME : 2000 + i);
	sqes[URGENT + WAITING] = cancel_of(NAME);
	memset(k->arena, 0, ARENA);
	EXPECT_EQ(URGENT + WAITING + 1, kt_submit(k, sqes, URGENT + WAITING + 1, URGENT + WAITING + 1));
	while (kt_reap(k, &cqe)) {
		seen++;
		if (cqe.user_data == 1)
			said = cqe.res;
		else if (cqe.res == -ECANCELED)
			canceled += cqe.user_data == NAME ? 1 : 1000;
		else if (cqe.user_data >= 1000 && cqe.user_data < 2000)
			EXPECT_EQ(LARGE, cqe.res);
		else
			EXPECT_EQ(SMALL, cqe.res);
	}
	EXPECT_EQ(URGENT + WAITING + 1, seen);
	EXPECT_EQ(said, canceled);
	for (int i = 0; i < WAITING; i += 2) {
		EXPECT_EQ(-1, kt_check(k->arena + URGENT * (size_t)LARGE + (size_t)i * SMALL, SMALL, 100 + i));
	}
	return said;
}

TEST_F(cancel, what_waits_for_its_turn)
{
	int canceled = 0;

	for (int i = 0; i < URGENT; i++) {
		kt_fill(self->k.arena, LARGE, i);
		ASSERT_EQ(LARGE, kt_store(&self->k, kt_key(i), 0, LARGE, NULL));
	}
	for (int i = 0; i < WAITING; i++) {
		kt_fill(self->k.arena, SMALL, 100 + i);
		ASSERT_EQ(SMALL, kt_store(&self->k, kt_key(100 + i), 0, SMALL, NULL));
	}
	for (int i = 0; i < ROUNDS && !canceled; i++)
		canceled = cancel_round(_metadata, &self->k);
	if (!canceled)
		SKIP(return, "nothing ever waits for this device; parked.c has one that it does");
	EXPECT_LT(0, canceled);
}

TEST_HARNESS_MAIN
