// SPDX-License-Identifier: GPL-2.0
/* Caches of single pages on traces small enough to be played by hand; test_program.py compares larger ones. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pagegrain.h"
#include "unit.h"

static const volatile sig_atomic_t go_on;

struct row {
	const char *trace;	/* ids, requests end with | */
	size_t capacity;
	uint64_t fifo, lru, optimum;
};

static const struct row rows[] = {
	/* LRU and the optimum keep the first pages, FIFO the last, which are of no use */
	{ "1 2 3 | 1 2 3 |", 2, 0, 2, 2 },
	{ "1 2 3 | 1 2 3 |", 1, 0, 1, 1 },
	{ "1 2 3 | 1 2 3 |", 3, 3, 3, 3 },
	{ "1 2 3 | 1 2 3 |", 99, 3, 3, 3 },
	/* A use saves page 1 from 3, if use counts */
	{ "1 | 2 | 1 | 3 | 1 |", 2, 1, 2, 2 },
	/* The optimum leaves 2 and 3 out to keep 1 */
	{ "1 | 2 | 3 | 1 | 2 |", 1, 0, 0, 1 },
	/* 2 is present in the end, but 1 is not */
	{ "1 2 | 2 | 3 | 1 2 |", 2, 1, 1, 3 },
	{ "1 2 3 | 5 | 1 2 |", 3, 0, 2, 2 },
	/* FIFO: 1 is there when 3 is found missing, goes for it, and does not come back */
	{ "1 | 2 | 3 1 | 1 |", 2, 0, 1, 1 },
	/* All are needed by the last request: 1 and 2 were there first and stay, 3 does not drive out its equals */
	{ "1 | 2 | 3 | 1 2 3 |", 2, 0, 0, 2 },
	/* 4 is needed sooner than 1 and 2; of these equals 1 was used first, and goes */
	{ "1 | 2 | 4 | 4 | 1 2 |", 2, 1, 1, 1 },
	/* What is no longer needed makes way at once */
	{ "1 | 2 | 1 | 3 | 2 | 3 |", 2, 3, 2, 3 },
	/* Looked up before it is put: twice in one request is no hit. The next use of 5 is in the last request */
	{ "5 5 |", 2, 0, 0, 0 },
	{ "5 5 | 5 5 |", 1, 2, 2, 2 },
	{ "5 5 | 6 | 6 | 6 | 5 |", 1, 2, 2, 2 },
	{ "7 |", 1, 0, 0, 0 },
};

static void make_trace(struct trace *t, const char *text)
{
	bool first = true;

	trace_init(t);
	for (; *text; text++) {
		if (*text == ' ')
			continue;
		if (*text == '|') {
			first = true;
			continue;
		}
		if (first)
			assert_int_equal(trace_begin(t, TRACE_ABSENT, TRACE_ABSENT, TRACE_ABSENT), 0);
		first = false;
		/* Ids far apart and close together */
		assert_int_equal(trace_add_id(t, (uint64_t)(*text - '0') << (*text % 2 ? 60 : 0)), 0);
	}
}

static void by_hand(void **state)
{
	struct refs refs;
	struct trace t;
	size_t i, j;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const uint64_t want[] = { rows[i].fifo, rows[i].lru, rows[i].optimum };
		uint64_t hits;

		make_trace(&t, rows[i].trace);
		assert_int_equal(refs_init(&refs, &t), 0);
		for (j = 0; j < NR_PAGEGRAIN; j++) {
			assert_int_equal(pagegrain_hits(&refs, j, rows[i].capacity, &go_on, &hits), 0);
			if (hits != want[j])
				fail_msg("'%s', %zu pages, cache %zu: %llu", rows[i].trace, rows[i].capacity, j,
					 (unsigned long long)hits);
		}
		refs_free(&refs);
		trace_free(&t);
	}
}

static void numbers_pages(void **state)
{
	static const uint32_t pages[] = { 3, 0, 1, 3, 1, 1, 2, 1 };
	static const uint32_t next[] = { REFS_NEVER, REFS_NEVER, 1, REFS_NEVER, 2, 2, REFS_NEVER, REFS_NEVER };
	struct refs refs;
	struct trace t;

	(void)state;
	make_trace(&t, "8 2 4 8 | 4 4 | 6 4 |");
	assert_int_equal(refs_init(&refs, &t), 0);
	assert_int_equal(refs.nr_pages, 4);
	assert_memory_equal(refs.pages, pages, sizeof(pages));
	assert_memory_equal(refs.next, next, sizeof(next));
	refs_free(&refs);
	trace_free(&t);
}

static void stops(void **state)
{
	static const volatile sig_atomic_t stop = 1;
	struct refs refs;
	struct trace t;
	uint64_t hits;

	(void)state;
	make_trace(&t, "1 | 2 |");
	assert_int_equal(refs_init(&refs, &t), 0);
	assert_int_equal(pagegrain_hits(&refs, PAGEGRAIN_LRU, 1, &stop, &hits), -EINTR);
	refs_free(&refs);
	trace_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_hand),
		cmocka_unit_test(numbers_pages),
		cmocka_unit_test(stops),
	};

	return cmocka_run_group_tests_name("pagegrain", tests, NULL, NULL);
}
