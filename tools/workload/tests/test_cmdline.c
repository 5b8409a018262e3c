// SPDX-License-Identifier: GPL-2.0
/* Sizes, and the options that both programs have. program.py has the ways to be wrong. */
#include <errno.h>
#include <string.h>

#include "../../common/size.h"
#include "cmdline.h"
#include "loads.h"
#include "unit.h"
#include "workload.h"

struct size_row {
	const char *text;
	int ret;
	uint64_t bytes;
};

static const struct size_row sizes[] = {
	{ "0", 0, 0 },
	{ "1", 0, 1 },
	{ "1000003", 0, 1000003 },
	{ "256K", 0, 256 << 10 },
	{ "256k", 0, 256 << 10 },
	{ "12M", 0, 12 << 20 },
	{ "3G", 0, 3ULL << 30 },
	{ "1g", 0, 1 << 30 },
	{ "2T", 0, 2ULL << 40 },
	{ "256MiB", 0, 256 << 20 },
	{ "256mib", 0, 256 << 20 },
	{ "18446744073709551615", 0, UINT64_MAX },
	{ "18446744073709551616", -ERANGE, 0 },
	{ "18014398509481983K", 0, UINT64_MAX - 1023 },
	{ "18014398509481984K", -ERANGE, 0 },
	{ "17179869184G", -ERANGE, 0 },
	{ "16777215T", 0, 16777215ULL << 40 },
	{ "16777216TiB", -ERANGE, 0 },
	{ "99999999999999999999Q", -EINVAL, 0 },
	{ "", -EINVAL, 0 },
	{ "K", -EINVAL, 0 },
	{ "-1", -EINVAL, 0 },
	{ "+1", -EINVAL, 0 },
	{ " 1", -EINVAL, 0 },
	{ "1 ", -EINVAL, 0 },
	{ "1KK", -EINVAL, 0 },
	{ "1KB", -EINVAL, 0 },
	{ "1Ki", -EINVAL, 0 },
	{ "1KiBs", -EINVAL, 0 },
	{ "1iB", -EINVAL, 0 },
	{ "1B", -EINVAL, 0 },
	{ "1Q", -EINVAL, 0 },
	{ "0x10", -EINVAL, 0 },
	{ "1.5M", -EINVAL, 0 },
};

static void parses_sizes(void **state)
{
	uint64_t bytes;
	size_t i;
	int ret;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		bytes = 0;
		ret = parse_size(sizes[i].text, &bytes);
		if (ret != sizes[i].ret || bytes != sizes[i].bytes)
			fail_msg("'%s': %d, %llu", sizes[i].text, ret, (unsigned long long)bytes);
	}
}

static void check(struct argp_state *state, void *options)
{
	assert_non_null(state);
	assert_non_null(options);
}

static void parse(struct workload *w, int argc, char **argv)
{
	static const struct cmd_option none[] = { { } };
	static const struct cmdline line = { .version = "program 1", .options = none, .check = check };

	memset(w, 0, sizeof(*w));
	cmdline_parse(&line, w, argc, argv);
}

static void defaults(void **state)
{
	struct workload w;

	(void)state;
	parse(&w, ARGS("--trace", "t"));
	assert_string_equal(w.trace, "t");
	assert_int_equal(w.generate, 0);
	assert_int_equal(w.requests, 0);
	assert_int_equal(w.seed, 1);
	assert_null(w.load);
	assert_null(w.json);
	assert_false(w.no_progress);
}

static void takes_all(void **state)
{
	struct workload w;

	(void)state;
	parse(&w, ARGS("--generate", "7", "--seed", "18446744073709551615", "--load=hot"));
	assert_null(w.trace);
	assert_int_equal(w.generate, 7);
	assert_true(w.seed == UINT64_MAX);
	assert_ptr_equal(w.load, load_find("hot"));
	parse(&w, ARGS("--trace", "t", "--no-progress", "--json", "-", "--requests", "1k"));
	assert_true(w.no_progress);
	assert_string_equal(w.json, "-");
	assert_int_equal(w.requests, 1024);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses_sizes),
		cmocka_unit_test(defaults),
		cmocka_unit_test(takes_all),
	};

	return cmocka_run_group_tests_name("cmdline", tests, NULL, NULL);
}
