// SPDX-License-Identifier: GPL-2.0
/* The options of kvctx-replay: what is taken, and what is not given. */
#include <string.h>

#include "options.h"
#include "unit.h"

static void parse(struct options *o, int argc, char **argv)
{
	memset(o, 0, sizeof(*o));
	options_parse(o, argc, argv);
}

static void defaults(void **state)
{
	struct options o;

	(void)state;
	parse(&o, ARGS("--trace", "t", "--device", "/dev/x"));
	assert_string_equal(o.workload.trace, "t");
	assert_string_equal(o.device, "/dev/x");
	assert_int_equal(o.page_size, 262144);
	assert_int_equal(o.depth, 32);
	assert_int_equal(o.arena, 64 << 20);
	assert_int_equal(o.lease_ms, 60000);
	assert_int_equal(o.stall_s, 120);
	assert_false(o.verify);
	assert_null(o.dump_trace);
}

static void takes_all(void **state)
{
	struct options o;

	(void)state;
	parse(&o, ARGS("--generate", "7", "--device", "d", "--page-size=1000003", "--depth", "3", "--arena", "1M"));
	assert_int_equal(o.workload.generate, 7);
	assert_int_equal(o.page_size, 1000003);
	assert_int_equal(o.depth, 3);
	assert_int_equal(o.arena, 1 << 20);
	parse(&o, ARGS("--generate", "7", "--dump-trace", "-", "--verify", "--lease-ms", "50", "--stall", "5"));
	assert_string_equal(o.dump_trace, "-");
	assert_null(o.device);
	assert_true(o.verify);
	assert_int_equal(o.lease_ms, 50);
	assert_int_equal(o.stall_s, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),
		cmocka_unit_test(takes_all),
	};

	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
