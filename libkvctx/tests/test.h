/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the test programs share: one handle, opened before and closed after each test. */
#ifndef TEST_H
#define TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "fake_kernel.h"

#define TEST(f)		cmocka_unit_test_setup_teardown(f, setup, teardown)
#define LIMIT		32	/* of the handle */
#define ARENA		65536

static struct kvctx *ctx;

/* Sanitizers are slow, and the machine may be busy */
static inline unsigned int patience(unsigned int seconds)
{
	const char *times = getenv("KVCTX_PATIENCE");

	return seconds * (times ? (unsigned int)atoi(times) : 1);
}

static inline int setup(void **state)
{
	struct kvctx_params p = { .size = sizeof(p), .arena_bytes = ARENA, .cq_entries = LIMIT };

	(void)state;
	alarm(patience(120));	/* a hang is a failure */
	fake_reset();
	return kvctx_open(FAKE_PATH, O_RDWR, &p, &ctx);
}

static inline void close_handle(void)
{
	kvctx_close(ctx);
	ctx = NULL;
	assert_int_equal(fake.maps, 0);
	assert_int_equal(fake.fds, 0);
}

static inline int teardown(void **state)
{
	(void)state;
	assert_int_equal(fake.registrations, 0);
	close_handle();
	fake_reset();
	return 0;
}

static inline void reopen(int flags, uint32_t cq_entries, uint32_t cq_max)
{
	struct kvctx_params p = { .size = sizeof(p), .arena_bytes = ARENA, .cq_entries = cq_entries };

	close_handle();
	fake.cq_max = cq_max;
	assert_int_equal(kvctx_open(FAKE_PATH, flags, &p, &ctx), 0);
}

/* Queue n queries of a page that is not there, with user_data from @from; how many fitted */
static inline unsigned int queue(uint64_t from, unsigned int n)
{
	struct kvctx_key key = kvctx_key_from_u64(1, 1);
	struct kvctx_sqe *sqe;
	unsigned int i;

	for (i = 0; i < n; i++) {
		sqe = kvctx_get_sqe(ctx);
		if (!sqe)
			break;
		kvctx_prep_query(sqe, &key);
		kvctx_sqe_set_data(sqe, from + i);
	}
	return i;
}

/* Exactly these completions are there, in this order */
static inline void expect_cqes(uint64_t from, unsigned int n)
{
	struct kvctx_cqe cqe[64];
	unsigned int i;

	assert_int_equal(kvctx_take(ctx, cqe, 64), n);
	for (i = 0; i < n; i++) {
		assert_int_equal(cqe[i].user_data, from + i);
		assert_int_equal(cqe[i].res, -ENOENT);
	}
}

#endif
