// SPDX-License-Identifier: GPL-2.0
/* Capacities, and the options of kvctx-simulate: what is taken, and what is not given. */
#include <errno.h>
#include <string.h>

#include "options.h"
#include "unit.h"

struct capacity_row {
	const char *text;
	int ret;
	uint64_t pages, bytes, share;
};

static const struct capacity_row capacities[] = {
	{ "5%", 0, 0, 0, 5000000 },
	{ "100%", 0, 0, 0, CAPACITY_ALL },
	{ "1000%", 0, 0, 0, 10 * CAPACITY_ALL },
	{ "2.5%", 0, 0, 0, 2500000 },
	{ "0.000001%", 0, 0, 0, 1 },
	{ "007.50%", 0, 0, 0, 7500000 },
	{ "9139", 0, 9139, 0, 0 },
	{ "4G", 0, 0, 4ULL << 30, 0 },
	{ "1k", 0, 0, 1024, 0 },
	{ "0", -ERANGE, 0, 0, 0 },
	{ "0%", -ERANGE, 0, 0, 0 },
	{ "0.0%", -ERANGE, 0, 0, 0 },
	{ "0M", -ERANGE, 0, 0, 0 },
	{ "0.0000001%", -ERANGE, 0, 0, 0 },
	{ "1000.1%", -ERANGE, 0, 0, 0 },
	{ "99999999999999999999%", -ERANGE, 0, 0, 0 },
	{ "99999999999999999999", -ERANGE, 0, 0, 0 },
	{ "", -EINVAL, 0, 0, 0 },
	{ "%", -EINVAL, 0, 0, 0 },
	{ ".5%", -EINVAL, 0, 0, 0 },
	{ "5.%", -EINVAL, 0, 0, 0 },
	{ "1.2.3%", -EINVAL, 0, 0, 0 },
	{ "-5%", -EINVAL, 0, 0, 0 },
	{ "5 %", -EINVAL, 0, 0, 0 },
	{ "5%%", -EINVAL, 0, 0, 0 },
	{ "5%x", -EINVAL, 0, 0, 0 },
	{ "many", -EINVAL, 0, 0, 0 },
};

static void parses_capacities(void **state)
{
	struct capacity c;
	size_t i;
	int ret;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(capacities); i++) {
		const struct capacity_row *row = &capacities[i];

		ret = parse_capacity(row->text, &c);
		if (ret != row->ret || (!ret && (c.pages != row->pages || c.bytes != row->bytes ||
						 c.share != row->share || strcmp(c.text, row->text))))
			fail_msg("'%s': %d", row->text, ret);
	}
}

static void parse(struct options *o, int argc, char **argv)
{
	memset(o, 0, sizeof(*o));
	options_parse(o, argc, argv);
}

static void simulates(void **state)
{
	static struct options o;

	(void)state;
	parse(&o, ARGS("--trace", "t"));
	assert_int_equal(o.page_size, 32 << 20);
	assert_int_equal(o.segment_size, 0);
	assert_int_equal(o.members, 1);
	assert_false(o.no_match);
	assert_int_equal(o.nr_capacities, 5);
	assert_string_equal(o.capacities[0].text, "2%");
	assert_int_equal(o.capacities[4].share, CAPACITY_ALL / 2);
	parse(&o, ARGS("--trace", "t", "--page-size", "5", "--segment-size", "1M"));
	assert_int_equal(o.page_size, 5);
	assert_int_equal(o.segment_size, 1 << 20);
	parse(&o, ARGS("--generate", "9", "--capacity", "7", "--capacity", "3%", "--members", "2", "--no-match"));
	assert_int_equal(o.workload.generate, 9);
	assert_int_equal(o.nr_capacities, 2);
	assert_int_equal(o.capacities[0].pages, 7);
	assert_int_equal(o.capacities[1].share, CAPACITY_ALL / 100 * 3);
	assert_int_equal(o.members, 2);
	assert_true(o.no_match);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses_capacities),
		cmocka_unit_test(simulates),
	};

	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
