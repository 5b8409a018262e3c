// SPDX-License-Identifier: GPL-2.0
/* The command line: sizes, defaults, and every way to be wrong. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../common/size.h"
#include "options.h"
#include "simpool.h"
#include "unit.h"

#define ARGS_MAX	16

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
	"--simulate",
	"--trace t --simulate --device /dev/x",
	"--trace t --simulate --capacity many",
	"--trace t --simulate --capacity 0%",
	"--trace t --simulate --segment-size 1M1",
	"--trace t --simulate --segment-size 100K",
	"--trace t --simulate --segment-size 2G",
	"--trace t --simulate --segment-size 1000001",
	"--trace t --simulate --members 0",
	"--trace t --simulate --members 65",
	"--trace t --simulate --depth 5",
	"--trace t --simulate --arena 5M",
	"--trace t --simulate --lease-ms 5",
	"--trace t --simulate --stall 5",
	"--trace t --simulate --verify",
	"--trace t --simulate --json - --plot -",
	"--trace t --device /dev/x --capacity 5%",
	"--trace t --device /dev/x --segment-size 1M",
	"--trace t --device /dev/x --members 1",
	"--trace t --device /dev/x --plot p",
	"--trace t --device /dev/x --no-match",
	"--trace t --simulate --load documents",
	"--generate 5 --simulate --load nothing",
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

static void simulates(void **state)
{
	struct options o;

	(void)state;
	assert_int_equal(parse(&o, "--trace t --simulate"), OPTIONS_RUN);
	assert_true(o.simulate);
	assert_int_equal(o.page_size, 32 << 20);
	assert_int_equal(o.segment_size, 0);
	assert_int_equal(o.members, 1);
	assert_int_equal(o.nr_capacities, 5);
	assert_string_equal(o.capacities[0].text, "2%");
	assert_int_equal(o.capacities[4].share, CAPACITY_ALL / 2);
	assert_int_equal(parse(&o, "--trace t --simulate --page-size 5 --segment-size 1M"), OPTIONS_RUN);
	assert_int_equal(o.page_size, 5);
	assert_int_equal(o.segment_size, 1 << 20);
	assert_int_equal(parse(&o, "--generate 9 --simulate --capacity 7 --capacity 3% --members 2 --no-match --plot p"),
			 OPTIONS_RUN);
	assert_int_equal(o.nr_capacities, 2);
	assert_int_equal(o.capacities[0].pages, 7);
	assert_int_equal(o.capacities[1].share, CAPACITY_ALL / 100 * 3);
	assert_int_equal(o.members, 2);
	assert_true(o.no_match);
	assert_string_equal(o.plot, "p");
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
		cmocka_unit_test(parses_capacities),
		cmocka_unit_test(refuses),
		cmocka_unit_test(defaults),
		cmocka_unit_test(takes_all),
		cmocka_unit_test(simulates),
		cmocka_unit_test(answers),
	};

	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
