// SPDX-License-Identifier: GPL-2.0
/* The histogram against exact quantiles of the same values. */
#include <stdlib.h>
#include <string.h>

#include "hist.h"
#include "rng.h"
#include "unit.h"

static const uint32_t shares[] = { 0, 1, 1000, 10000, 50000, 90000, 99000, 99900, 99999, 100000 };

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The ceil(nr * share)-th smallest, which is what a quantile is defined as here */
static uint64_t exact(const uint64_t *sorted, size_t nr, uint32_t share)
{
	size_t rank = (nr * share + 99999) / 100000;

	return sorted[rank ? rank - 1 : 0];
}

static void compare_with_exact(struct hist *h, uint64_t *values, size_t nr)
{
	size_t i;

	memset(h, 0, sizeof(*h));
	for (i = 0; i < nr; i++)
		hist_add(h, values[i]);
	qsort(values, nr, sizeof(*values), compare);
	for (i = 0; i < ARRAY_SIZE(shares); i++) {
		uint64_t want = exact(values, nr, shares[i]), got = hist_quantile(h, shares[i]);

		assert_true(got >= want);
		assert_true(got - want <= want / HIST_SUB);
	}
	assert_int_equal(h->max, values[nr - 1]);
	assert_int_equal(hist_quantile(h, 100000), values[nr - 1]);
	assert_int_equal(h->count, nr);
}

static void random_values(void **state)
{
	static const unsigned int bits[] = { 1, 7, 8, 9, 16, 20, 33, 48, 63, 64 };
	static const size_t counts[] = { 1, 2, 3, 999, 1000, 50000 };
	uint64_t rng = 42, *values = malloc(50000 * sizeof(*values));
	struct hist *h = malloc(sizeof(*h));
	size_t b, c, i;

	(void)state;
	for (b = 0; b < ARRAY_SIZE(bits); b++) {
		for (c = 0; c < ARRAY_SIZE(counts); c++) {
			/* A second shift spreads them over the magnitudes */
			for (i = 0; i < counts[c]; i++)
				values[i] = rng_next(&rng) >> (64 - bits[b]) >> rng_next(&rng) % bits[b];
			compare_with_exact(h, values, counts[c]);
		}
	}
	free(h);
	free(values);
}

/* Each value alone, around every boundary between buckets */
static void boundaries(void **state)
{
	struct hist *h = malloc(sizeof(*h));
	unsigned int shift;
	int step;

	(void)state;
	for (shift = 0; shift < 64; shift++) {
		for (step = -2; step <= 2; step++) {
			uint64_t value = (1ULL << shift) + step, got;

			memset(h, 0, sizeof(*h));
			hist_add(h, value);
			hist_add(h, UINT64_MAX);
			got = hist_quantile(h, 50000);
			assert_true(got >= value && got - value <= value / HIST_SUB);
		}
	}
	free(h);
}

static void small_values_are_exact(void **state)
{
	struct hist *h = malloc(sizeof(*h));
	uint32_t i;

	(void)state;
	memset(h, 0, sizeof(*h));
	for (i = 1; i <= 100; i++)
		hist_add(h, i);
	for (i = 1; i <= 100; i++)
		assert_int_equal(hist_quantile(h, i * 1000), i);
	assert_int_equal(hist_mean(h), 50);
	free(h);
}

static void empty(void **state)
{
	struct hist *h = malloc(sizeof(*h));

	(void)state;
	memset(h, 0, sizeof(*h));
	assert_int_equal(hist_quantile(h, 50000), 0);
	assert_int_equal(hist_mean(h), 0);
	assert_int_equal(h->max, 0);
	free(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_values),
		cmocka_unit_test(boundaries),
		cmocka_unit_test(small_values_are_exact),
		cmocka_unit_test(empty),
	};

	return cmocka_run_group_tests_name("hist", tests, NULL, NULL);
}
