// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A tenant's pace, in the process: what waits for it before it begins. Each test runs on an io_uring and on threads.
 */
#include <unistd.h>

#include "sess.h"

#define SLOW	(1U << 20)		/* bytes a second */

static u32 in_flight(const struct sess *k)
{
	return os_atomic_read(&k->s->waits->pace.of[k->s->slot].inflight);
}

/* Those that waited for space first */
static u32 in_flight_again(const struct sess *k)
{
	return os_atomic_read(&k->s->waits->pace.of[k->s->slot].again);
}

static u32 waiting(const struct sess *k)
{
	return os_atomic_read(&k->s->waits->pace.of[k->s->slot].queue.waiting);
}

/* So many wait, now or soon: who looks after them counts as one that does. */
static void so_many_wait(const struct sess *k, u32 nr)
{
	u64 end = kve_now() + LIMIT;

	while (waiting(k) != nr && kve_now() < end)
		usleep(1000);
	assert_int_equal(waiting(k), nr);
}

/* 200 loads and stores, all submitted: not one of them is in flight beyond the limit, and all are right. */
static void so_many_in_flight(void **state)
{
	struct kvctx_sqe sqes[200];
	struct kvctx_cqe cqe = { .res = -EPROTO };
	struct sess k;
	u32 i, ends = 0;

	(void)state;
	sess_open(&k);
	for (i = 0; i < 8; i++)
		assert_int_equal(store(&k, i, 36000), 36000);
	limit_tenant(&k, &(struct kvc_limits){ .inflight = 3 });
	for (i = 0; i < 200; i++) {
		sqes[i] = sqe_of(i % 5 ? KVCTX_OP_LOAD : KVCTX_OP_STORE, i % 5 ? i % 8 : 1000 + i, i * 40960, 36000);
		if (!(i % 5))
			fill(k.arena + i * 40960, 36000, 1000 + i);
	}
	assert_int_equal(submit(&k, sqes, 200, 0), 200);
	while (ends < 200) {
		assert_true(in_flight(&k) <= 3 && in_flight_again(&k) <= 3);
		wait_for(&k, 1, LIMIT);
		while (reap(&k, &cqe)) {
			assert_int_equal(cqe.res, 36000);
			ends++;
		}
	}
	for (i = 0; i < 200; i++)
		assert_true(right(k.arena + i * 40960, 36000, i % 5 ? i % 8 : 1000 + i));
	assert_int_equal(in_flight(&k) + in_flight_again(&k), 0);
	limit_tenant(&k, &(struct kvc_limits){ 0 });
	for (i = 0; i < 200; i += 5)
		assert_int_equal(load(&k, 1000 + i, 36000), 36000);
	sess_close(&k);
}

/* Stores that wait for space do not keep loads waiting: they are not in flight. */
static void parked_stores(void **state)
{
	struct kvctx_sqe sqes[100], look = sqe_of(KVCTX_OP_LOAD, 1, 1 << 20, PAGE);
	struct kvctx_cqe cqe = { .res = -EPROTO };
	struct sess k;
	u64 end = kve_now() + LIMIT;
	u32 i, ends = 0;

	(void)state;
	sess_open(&k);
	assert_int_equal(store(&k, 1, PAGE), PAGE);
	limit_tenant(&k, &(struct kvc_limits){ .inflight = 2 });
	/* no segment can be begun */
	__atomic_store_n(&rig_stalled, true, __ATOMIC_RELEASE);
	for (i = 0; i < 100; i++)
		sqes[i] = sqe_of(KVCTX_OP_STORE, 1000 + i, 0, PAGE);
	assert_int_equal(submit(&k, sqes, 100, 0), 100);
	while (os_atomic64_read(&k.s->pool->counters.store_waits) < 10 && kve_now() < end)
		usleep(1000);
	assert_int_equal(submit(&k, &look, 1, 0), 1);
	do {
		wait_for(&k, 1, LIMIT);
		assert_true(reap(&k, &cqe));
		ends++;
	} while (cqe.user_data != 1);
	assert_int_equal(cqe.res, PAGE);
	assert_true(ends < 100);
	__atomic_store_n(&rig_stalled, false, __ATOMIC_RELEASE);
	for (; ends < 101; ends++) {
		assert_true(in_flight(&k) <= 2 && in_flight_again(&k) <= 2);
		assert_int_equal(result_of(&k, NULL), PAGE);
	}
	assert_int_equal(in_flight(&k) + in_flight_again(&k), 0);
	sess_close(&k);
}

/* So many bytes are not there earlier than they may be; what is not there costs none. */
static void so_many_bytes(void **state)
{
	struct kvctx_sqe sqes[64];
	struct sess k;
	u64 began;
	u32 i;

	(void)state;
	sess_open(&k);
	limit_tenant(&k, &(struct kvc_limits){ .bandwidth = 4 * SLOW });
	began = kve_now();
	for (i = 0; i < 16; i++)
		assert_int_equal(store(&k, i, 65536), 65536);
	for (i = 0; i < 16; i++)
		sqes[i] = sqe_of(KVCTX_OP_LOAD, i, (1 + i) << 17, 65536);
	assert_int_equal(submit(&k, sqes, 16, 16), 16);
	for (i = 0; i < 16; i++)
		assert_int_equal(result_of(&k, NULL), 65536);
	/* 2 MiB but for the last page, and what a pause may make up for */
	assert_true(kve_now() - began >= 400 * KVCTX_NSEC_PER_MS);
	/* 100 MB that are not there, and 65 that are there already: minutes, if they cost any */
	limit_tenant(&k, &(struct kvc_limits){ .bandwidth = SLOW });
	for (i = 0; i < 1000; i++) {
		assert_int_equal(load(&k, 5000 + i, PAGE), -ENOENT);
		assert_int_equal(store(&k, 1, 65536), 65536);
	}
	assert_true(kve_now() - began < LIMIT);
	sess_close(&k);
}

/* What waits gives up at its deadline, when it is cancelled, and when its session closes; who may not wait does not. */
static void giving_up(void **state)
{
	struct kvctx_sqe sqes[8], cancel = { .opcode = KVCTX_OP_CANCEL, .offset = 3 };
	struct kvctx_sqe late = sqe_of(KVCTX_OP_STORE, 8, 0, PAGE);
	struct kvctx_cqe cqe = { .res = -EPROTO };
	struct sess k;
	u32 i;

	(void)state;
	sess_open(&k);
	limit_tenant(&k, &(struct kvc_limits){ .bandwidth = SLOW / 1024 });
	for (i = 0; i < 8; i++)
		sqes[i] = sqe_of(KVCTX_OP_STORE, i, 0, PAGE);
	sqes[4].flags = KVCTX_OP_NOWAIT;
	assert_int_equal(submit(&k, sqes, 8, 2), 8);
	for (i = 0; i < 2; i++) {
		assert_true(reap(&k, &cqe));
		assert_true(cqe.user_data == 4 ? cqe.res == -EAGAIN : !cqe.user_data && cqe.res == (s32)PAGE);
	}
	so_many_wait(&k, 6);
	late.timeout_ns = 50 * KVCTX_NSEC_PER_MS;
	assert_int_equal(run(&k, late, NULL), -ETIME);
	assert_int_equal(submit(&k, &cancel, 1, 2), 1);
	for (i = 0; i < 2; i++) {
		assert_true(reap(&k, &cqe));
		assert_int_equal(cqe.res, cqe.user_data == 3 ? -ECANCELED : 1);
	}
	so_many_wait(&k, 5);
	sess_close(&k);
}

/* CRCs are told at once, and the bytes that come later are those of that page, or none. */
static void checksums_at_once(void **state)
{
	struct kvctx_sqe sqes[2];
	u32 crcs[64], then[64];
	struct kvctx_cqe cqe = { .res = -EPROTO };
	struct sess k;
	u32 i;

	(void)state;
	sess_open(&k);
	assert_int_equal(store(&k, 1, PAGE), PAGE);
	assert_int_equal(store(&k, 2, PAGE), PAGE);
	for (i = 0; i < 2; i++) {
		sqes[i] = sqe_of(KVCTX_OP_LOAD, 1 + i, (1 + i) << 20, PAGE);
		sqes[i].crcs = (u64)(i ? then : crcs);
	}
	assert_int_equal(run(&k, sqes[0], NULL), PAGE);
	memcpy(then, crcs, sizeof(then));
	/* one that costs minutes: these wait, until the limit is another */
	limit_tenant(&k, &(struct kvc_limits){ .bandwidth = SLOW / 1024 });
	memset(crcs, 0, sizeof(crcs));
	assert_int_equal(submit(&k, (struct kvctx_sqe[]){ sqe_of(KVCTX_OP_STORE, 9, 0, PAGE) }, 1, 1), 1);
	assert_int_equal(result_of(&k, NULL), PAGE);
	sqes[1].crcs = 0;
	assert_int_equal(submit(&k, sqes, 2, 0), 2);
	so_many_wait(&k, 2);
	assert_memory_equal(crcs, then, (PAGE + 4095) / 4096 * 4);
	/* the page goes, and another comes in its place: the one that was promised is not there */
	assert_int_equal(kvc_delete(k.s->pool->core, k.s->domain, (const u8 *)&sqes[0].key), 0);
	limit_tenant(&k, &(struct kvc_limits){ .bandwidth = SLOW });
	for (i = 0; i < 2; i++) {
		wait_for(&k, 1, LIMIT);
		assert_true(reap(&k, &cqe));
		assert_int_equal(cqe.res, cqe.user_data == 1 ? -ENOENT : (s32)PAGE);
	}
	assert_true(right(k.arena + (2 << 20), PAGE, 2));
	sess_close(&k);
}

/* What went to the device counts, whatever became of it, and so do whole chunks of which a part is asked for. */
static void what_moved_counts(void **state)
{
	struct kvctx_sqe wrong = sqe_of(KVCTX_OP_STORE, 1, 0, PAGE), part = sqe_of(KVCTX_OP_LOAD, 2, 1 << 20, 2);
	u32 crcs[64] = { 0 };
	struct sess k;
	u64 began;
	u32 i;

	(void)state;
	sess_open(&k);
	assert_int_equal(store(&k, 2, PAGE), PAGE);
	limit_tenant(&k, &(struct kvc_limits){ .bandwidth = SLOW });
	wrong.crcs = (u64)crcs;
	began = kve_now();
	for (i = 0; i < 5; i++)
		assert_int_equal(run(&k, wrong, NULL), -EILSEQ);
	assert_true(kve_now() - began >= 300 * KVCTX_NSEC_PER_MS);
	began = kve_now();
	/* two chunks of 4 KiB each */
	part.offset = 4095;
	for (i = 0; i < 60; i++)
		assert_int_equal(run(&k, part, NULL), 2);
	assert_true(kve_now() - began >= 400 * KVCTX_NSEC_PER_MS);
	sess_close(&k);
}

/* What is read ahead counts when it is known how much that is. */
static void reading_ahead(void **state)
{
	struct kvctx_sqe get = sqe_of(KVCTX_OP_GET, 1, 0, 0);
	struct sess k;
	u64 began;
	u32 i;

	(void)state;
	rig_make(rig_dir, 1);
	sess_start(&k, 4, -1);
	for (i = 0; i < 4; i++)
		assert_int_equal(store(&k, i, PAGE), PAGE);
	limit_tenant(&k, &(struct kvc_limits){ .bandwidth = SLOW });
	get.lease_ms = 1000;
	began = kve_now();
	for (i = 0; i < 4; i++) {
		get.key.qualifier = i;
		assert_true(run(&k, get, NULL) >= 0);
	}
	assert_true(kve_now() - began >= 250 * KVCTX_NSEC_PER_MS);
	/* from a slot it costs none */
	for (i = 0; i < 64; i++)
		assert_int_equal(load(&k, i % 4, PAGE), PAGE);
	assert_true(kve_now() - began < 5 * KVE_NSEC);
	sess_close(&k);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		BOTH(so_many_in_flight),
		BOTH(parked_stores),
		BOTH(so_many_bytes),
		BOTH(giving_up),
		BOTH(checksums_at_once),
		BOTH(what_moved_counts),
		BOTH(reading_ahead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
