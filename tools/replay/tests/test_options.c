// SPDX-License-Identifier: GPL-2.0
/* The command line: sizes, defaults, and every way to be wrong. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "options.h"
#include "unit.h"

#define ARGS_MAX	12

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
	{ "18446744073709551615", 0, UINT64_MAX },
	{ "18446744073709551616", -ERANGE, 0 },
	{ "18014398509481983K", 0, UINT64_MAX - 1023 },
	{ "18014398509481984K", -ERANGE, 0 },
	{ "17179869184G", -ERANGE, 0 },
	{ "", -EINVAL, 0 },
	{ "K", -EINVAL, 0 },
	{ "-1", -EINVAL, 0 },
	{ "+1", -EINVAL, 0 },
	{ " 1", -EINVAL, 0 },
	{ "1 ", -EINVAL, 0 },
	{ "1KK", -EINVAL, 0 },
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

/* options_parse() of a line of words, with what it writes thrown away */
static enum options_result parse(struct options *o, const char *line)
{
	static char copy[512];
	char *argv[ARGS_MAX + 1] = { "kvctx-replay" };
	int argc = 1, out = dup(1), err = dup(2), null = open("/dev/null", O_WRONLY);
	enum options_result result;
	char *word;

	snprintf(copy, sizeof(copy), "%s", line);
	for (word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	optind = 0;
	fflush(stdout);
	dup2(null, 1);
	dup2(null, 2);
	result = options_parse(o, argc, argv);
	fflush(stdout);
	dup2(out, 1);
	dup2(err, 2);
	close(out);
	close(err);
	close(null);
	return result;
}

static const char *const wrongs[] = {
	"",
	"--device /dev/x",
	"--trace t",
	"--generate 5",
	"--trace t --generate 5 --device /dev/x",
	"--generate 0 --device /dev/x",
	"--generate 10000001 --device /dev/x",
	"--generate five --device /dev/x",
	"--generate -5 --device /dev/x",
	"--trace t --device /dev/x --requests 0",
	"--trace t --device /dev/x --page-size 0",
	"--trace t --device /dev/x --page-size 2G",
	"--trace t --device /dev/x --page-size 12Q",
	"--trace t --device /dev/x --depth 0",
	"--trace t --device /dev/x --depth 65537",
	"--trace t --device /dev/x --seed -1",
	"--trace t --device /dev/x --stall 0",
	"--trace t --device /dev/x --lease-ms 0",
	"--trace t --device /dev/x --unknown",
	"--trace t --device /dev/x extra",
	"--trace t --device",
	"--trace t --dump-trace o --json j",
	"--trace t --device /dev/x --dump-trace - --json -",
};

static void refuses(void **state)
{
	struct options o;
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(wrongs); i++) {
		if (parse(&o, wrongs[i]) != OPTIONS_USAGE)
			fail_msg("taken: '%s'", wrongs[i]);
	}
}

static void defaults(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, "--trace t --device /dev/x"), OPTIONS_RUN);
	assert_string_equal(o.trace, "t");
	assert_string_equal(o.device, "/dev/x");
	assert_int_equal(o.generate, 0);
	assert_int_equal(o.requests, 0);
	assert_int_equal(o.page_size, 262144);
	assert_int_equal(o.depth, 32);
	assert_int_equal(o.seed, 1);
	assert_false(o.verify);
	assert_false(o.no_progress);
	assert_null(o.json);
	assert_null(o.dump_trace);
}

static void takes_all(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, "--generate 7 --device /dev/x --page-size=1000003 --depth 3"), OPTIONS_RUN);
	assert_int_equal(o.generate, 7);
	assert_int_equal(o.page_size, 1000003);
	assert_int_equal(o.depth, 3);
	assert_int_equal(parse(&o, "--generate 7 --dump-trace - --seed 18446744073709551615"), OPTIONS_RUN);
	assert_true(o.seed == UINT64_MAX);
	assert_int_equal(parse(&o, "--trace t --device d --verify --no-progress --json - --requests 9"), OPTIONS_RUN);
	assert_true(o.verify);
	assert_true(o.no_progress);
	assert_string_equal(o.json, "-");
	assert_int_equal(o.requests, 9);
	assert_int_equal(parse(&o, "--trace t --device d --arena 1M --lease-ms 50 --stall 5"), OPTIONS_RUN);
	assert_int_equal(o.arena, 1 << 20);
	assert_int_equal(o.lease_ms, 50);
	assert_int_equal(o.stall_s, 5);
}

static void answers(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, "--help"), OPTIONS_DONE);
	assert_int_equal(parse(&o, "--version"), OPTIONS_DONE);
	assert_int_equal(parse(&o, "--depth 5 --help --unknown"), OPTIONS_DONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses_sizes),
		cmocka_unit_test(refuses),
		cmocka_unit_test(defaults),
		cmocka_unit_test(takes_all),
		cmocka_unit_test(answers),
	};

	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
