// SPDX-License-Identifier: GPL-2.0
/* The generator: the same for the same seed, and shaped as generate.c says. */
#include <stdlib.h>
#include <string.h>

#include "generate.h"
#include "unit.h"

#define NR	6000

static int setup(void **state)
{
	struct trace *t = malloc(sizeof(*t));

	trace_init(t);
	*state = t;
	return generate(t, NR, 1);
}

static int teardown(void **state)
{
	trace_free(*state);
	free(*state);
	return 0;
}

static int same(const struct trace *a, const struct trace *b)
{
	return a->nr_requests == b->nr_requests && a->nr_ids == b->nr_ids &&
	       !memcmp(a->requests, b->requests, a->nr_requests * sizeof(*a->requests)) &&
	       !memcmp(a->ids, b->ids, a->nr_ids * sizeof(*a->ids));
}

static void follows_seed(void **state)
{
	struct trace again, other;

	trace_init(&again);
	trace_init(&other);
	assert_int_equal(generate(&again, NR, 1), 0);
	assert_int_equal(generate(&other, NR, 2), 0);
	assert_true(same(*state, &again));
	assert_false(same(*state, &other));
	trace_free(&again);
	trace_free(&other);
}

/* A fingerprint of one small trace: the same on every machine and compiler */
static void is_portable(void **state)
{
	struct trace t;
	uint64_t sum = 0;
	size_t i;

	(void)state;
	trace_init(&t);
	assert_int_equal(generate(&t, 100, 1), 0);
	for (i = 0; i < t.nr_ids; i++)
		sum = sum * 31 + t.ids[i];
	for (i = 0; i < t.nr_requests; i++)
		sum = sum * 31 + t.requests[i].timestamp * 7 + t.requests[i].input_length * 3 +
		      t.requests[i].output_length;
	assert_int_equal(sum, 0x8ae1bd9fe0183ebdULL);
	trace_free(&t);
}

static void is_well_formed(void **state)
{
	const struct trace *t = *state;
	uint64_t before = 0;
	size_t i;

	assert_int_equal(t->nr_requests, NR);
	for (i = 0; i < NR; i++) {
		const struct trace_request *r = &t->requests[i];

		assert_int_equal(r->nr, (r->input_length + GENERATE_BLOCK - 1) / GENERATE_BLOCK);
		assert_true(r->input_length <= GENERATE_CONTEXT);
		assert_true(r->output_length >= 1);
		assert_true(r->timestamp >= before);
		before = r->timestamp;
	}
}

/*
 * Ids count up in order of first appearance, and an id always has the same predecessor: that is what makes it the
 * name of a prefix.
 */
static void ids_name_prefixes(void **state)
{
	const struct trace *t = *state;
	uint64_t *before = calloc(t->nr_ids, sizeof(*before)), next = 0;
	size_t i, j;

	for (i = 0; i < NR; i++) {
		const uint64_t *ids = trace_ids(t, &t->requests[i]);

		for (j = 0; j < t->requests[i].nr; j++) {
			uint64_t predecessor = j ? ids[j - 1] + 1 : 0;

			assert_true(ids[j] <= next);
			if (ids[j] == next) {
				before[next++] = predecessor;
				continue;
			}
			assert_int_equal(before[ids[j]], predecessor);
		}
	}
	free(before);
}

struct shape {
	double input;		/* means in tokens */
	double output;
	double hit_ratio;	/* of an unbounded prefix cache */
	double later;		/* share of the requests that extend another's prompt by more than a shared start */
	size_t interleaved;	/* ... with requests of others in between */
};

static void measure(const struct trace *t, struct shape *s)
{
	size_t *seen = calloc(t->nr_ids, sizeof(*seen)), i, j, hits = 0, later = 0, interleaved = 0;
	double input = 0, output = 0;

	for (i = 0; i < t->nr_requests; i++) {
		const struct trace_request *r = &t->requests[i];
		const uint64_t *ids = trace_ids(t, r);

		input += r->input_length;
		output += r->output_length;
		for (j = 0; j < r->nr && seen[ids[j]]; j++)
			hits++;
		/* The end of the known part was made by one request alone: the turn before */
		if (j && 2 * j > r->nr && t->requests[seen[ids[j - 1]] - 1].input_length / GENERATE_BLOCK == j) {
			later++;
			interleaved += seen[ids[j - 1]] != i;
		}
		for (j = 0; j < r->nr; j++)
			seen[ids[j]] = i + 1;
	}
	s->input = input / t->nr_requests;
	s->output = output / t->nr_requests;
	s->hit_ratio = (double)hits / t->nr_ids;
	s->later = (double)later / t->nr_requests;
	s->interleaved = interleaved;
	free(seen);
}

/* Published: 12,035 and 343 tokens on average, hit ratio 0.37, 30 % of the requests go on with a conversation */
static void follows_published_figures(void **state)
{
	struct shape s;

	measure(*state, &s);
	if (s.input < 12035 * 0.85 || s.input > 12035 * 1.15)
		fail_msg("mean prompt: %f", s.input);
	if (s.output < 343 * 0.9 || s.output > 343 * 1.1)
		fail_msg("mean output: %f", s.output);
	if (s.hit_ratio < 0.32 || s.hit_ratio > 0.42)
		fail_msg("hit ratio: %f", s.hit_ratio);
	if (s.later < 0.22 || s.later > 0.42)
		fail_msg("later turns: %f", s.later);
	assert_true(s.interleaved > NR / 5);
}

/* Few requests have about the same shape: the span of time is filled whatever their number */
static void few_requests_too(void **state)
{
	struct shape s;
	struct trace t;

	(void)state;
	trace_init(&t);
	assert_int_equal(generate(&t, 400, 1), 0);
	measure(&t, &s);
	if (s.hit_ratio < 0.28 || s.hit_ratio > 0.46)
		fail_msg("hit ratio: %f", s.hit_ratio);
	trace_free(&t);
}

static void smallest(void **state)
{
	struct trace t;

	(void)state;
	trace_init(&t);
	assert_int_equal(generate(&t, 1, 9), 0);
	assert_int_equal(t.nr_requests, 1);
	assert_true(t.requests[0].nr > 0);
	trace_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(follows_seed),
		cmocka_unit_test(is_portable),
		cmocka_unit_test(is_well_formed),
		cmocka_unit_test(ids_name_prefixes),
		cmocka_unit_test(follows_published_figures),
		cmocka_unit_test(few_requests_too),
		cmocka_unit_test(smallest),
	};

	return cmocka_run_group_tests_name("generate", tests, setup, teardown);
}
