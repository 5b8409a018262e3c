// SPDX-License-Identifier: GPL-2.0
/* The other loads: the same for the same seed, and shaped as loads.c says. */
#include <stdlib.h>
#include <string.h>

#include "loads.h"
#include "pagegrain.h"
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

/* How often each page is used, by its number; the caller frees it */
static uint32_t *count_uses(const struct refs *refs)
{
	uint32_t *uses = calloc(refs->nr_pages, sizeof(*uses));
	size_t i;

	assert_non_null(uses);
	for (i = 0; i < refs->trace->nr_ids; i++)
		uses[refs->pages[i]]++;
	return uses;
}

/* Most share nothing, a third repeat nearly all of another's, and a third of the pages are used three times or more. */
static void documents(void **state)
{
	uint32_t alone = 0, repeats = 0, often = 0, *uses;
	struct trace t;
	struct refs refs;
	size_t i, j, top = 0;

	(void)state;
	make(&t, "documents", 1);
	assert_int_equal(refs_init(&refs, &t), 0);
	for (i = 0; i < t.nr_requests; i++) {
		const struct trace_request *q = &t.requests[i];
		size_t old = 0;

		for (j = q->first; j < q->first + q->nr; j++)
			old += refs.pages[j] < top;
		for (j = q->first; j < q->first + q->nr; j++)
			top = refs.pages[j] + 1 > top ? refs.pages[j] + 1 : top;
		alone += !old;
		repeats += old >= q->nr - 5 && old;
	}
	uses = count_uses(&refs);
	for (i = 0; i < refs.nr_pages; i++)
		often += uses[i] > 2;
	assert_in_range(alone, NR / 2, NR * 2 / 3);
	assert_in_range(repeats, NR / 3, NR / 2);
	assert_int_equal(alone + repeats, NR);
	assert_in_range(often, refs.nr_pages / 3, refs.nr_pages * 2 / 3);
	free(uses);
	refs_free(&refs);
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
	struct refs refs;
	uint32_t *uses, hot = 0;
	size_t i;

	(void)state;
	make(&t, "hot", 1);
	assert_int_equal(refs_init(&refs, &t), 0);
	uses = count_uses(&refs);
	for (i = 0; i < refs.nr_pages; i++)
		hot += uses[i] > 1;
	assert_int_equal(hot, 32);
	assert_int_equal(refs.nr_pages, 32 + NR / 2);
	free(uses);
	refs_free(&refs);
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
