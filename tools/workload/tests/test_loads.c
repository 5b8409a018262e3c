// SPDX-License-Identifier: GPL-2.0
/* The other loads: the same for the same seed, and shaped as loads.c says. */
#include <stdlib.h>
#include <string.h>

#include "loads.h"
#include "unit.h"

#define NR	4000

static void make(struct trace *t, const char *name, uint64_t seed)
{
	trace_init(t);
	assert_int_equal(load_find(name)->make(t, NR, seed), 0);
	assert_int_equal(t->nr_requests, NR);
}

static void names(void **state)
{
	const struct load *l;

	(void)state;
	for (l = loads; l->name; l++)
		assert_ptr_equal(load_find(l->name), l);
	assert_null(load_find("nothing"));
}

static void follows_seed(void **state)
{
	struct trace a, b, c;
	const struct load *l;

	(void)state;
	for (l = loads; l->name; l++) {
		make(&a, l->name, 3);
		make(&b, l->name, 3);
		make(&c, l->name, 4);
		assert_int_equal(a.nr_ids, b.nr_ids);
		assert_memory_equal(a.ids, b.ids, a.nr_ids * sizeof(*a.ids));
		assert_true(a.nr_ids != c.nr_ids || memcmp(a.ids, c.ids, a.nr_ids * sizeof(*a.ids)));
		trace_free(&a);
		trace_free(&b);
		trace_free(&c);
	}
}

/* How many pages there are, and how many of them are used @least times or more. Their ids have no gaps */
static size_t count_pages(const struct trace *t, uint32_t least, size_t *often)
{
	uint32_t *uses = calloc(t->nr_ids, sizeof(*uses));
	size_t nr = 0, i;

	assert_non_null(uses);
	for (i = 0; i < t->nr_ids; i++) {
		assert_true(t->ids[i] < t->nr_ids);
		uses[t->ids[i]]++;
	}
	for (*often = 0; nr < t->nr_ids && uses[nr]; nr++)
		*often += uses[nr] >= least;
	for (i = nr; i < t->nr_ids; i++)
		assert_int_equal(uses[i], 0);
	free(uses);
	return nr;
}

/* Most share nothing, a third repeat nearly all of another's, and a third of the pages are used three times or more. */
static void documents(void **state)
{
	uint32_t alone = 0, repeats = 0;
	size_t i, j, top = 0, nr, often;
	struct trace t;

	(void)state;
	make(&t, "documents", 1);
	for (i = 0; i < t.nr_requests; i++) {
		const struct trace_request *q = &t.requests[i];
		size_t old = 0;

		for (j = q->first; j < q->first + q->nr; j++)
			old += t.ids[j] < top;
		for (j = q->first; j < q->first + q->nr; j++)
			top = t.ids[j] + 1 > top ? t.ids[j] + 1 : top;
		alone += !old;
		repeats += old >= q->nr - 5 && old;
	}
	nr = count_pages(&t, 3, &often);
	assert_in_range(alone, NR / 2, NR * 2 / 3);
	assert_in_range(repeats, NR / 3, NR / 2);
	assert_int_equal(alone + repeats, NR);
	assert_in_range(often, nr / 3, nr * 2 / 3);
	trace_free(&t);
}

/* The second page is asked for half as often as the first, the sixth a sixth as often. */
static void pages_by_zipf(void **state)
{
	uint32_t nr[6] = { 0 };
	struct trace t;
	size_t i;

	(void)state;
	make(&t, "pages", 1);
	assert_int_equal(t.nr_ids, NR);
	for (i = 0; i < NR; i++)
		if (t.ids[i] < 6)
			nr[t.ids[i]]++;
	assert_in_range(nr[0], NR / 10, NR / 5);
	assert_in_range(nr[1], nr[0] * 2 / 5, nr[0] * 3 / 5);
	assert_in_range(nr[5], nr[0] / 9, nr[0] / 4);
	trace_free(&t);
}

static void hot_pages(void **state)
{
	struct trace t;
	size_t hot;

	(void)state;
	make(&t, "hot", 1);
	assert_int_equal(count_pages(&t, 2, &hot), 32 + NR / 2);
	assert_int_equal(hot, 32);
	trace_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(follows_seed),
		cmocka_unit_test(documents),
		cmocka_unit_test(pages_by_zipf),
		cmocka_unit_test(hot_pages),
	};

	return cmocka_run_group_tests_name("loads", tests, NULL, NULL);
}
