// SPDX-License-Identifier: GPL-2.0
/*
 * The command line: one row of a table for each option that takes a number, so that limits, defaults, help and checks
 * cannot disagree.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generate.h"
#include "options.h"

enum number {
	NR_GENERATE,
	NR_REQUESTS,
	NR_PAGE_SIZE,
	NR_DEPTH,
	NR_ARENA,
	NR_SEED,
	NR_LEASE,
	NR_STALL,
	NR_NUMBERS,
};

struct number_option {
	const char *name;
	uint64_t initial;
	uint64_t min;
	uint64_t max;
};

static const struct number_option numbers[NR_NUMBERS] = {
	[NR_GENERATE]	= { "generate",		0,		1, GENERATE_MAX },
	[NR_REQUESTS]	= { "requests",		0,		1, INT64_MAX },
	[NR_PAGE_SIZE]	= { "page-size",	256 << 10,	1, 1 << 30 },
	[NR_DEPTH]	= { "depth",		32,		1, 65536 },
	[NR_ARENA]	= { "arena",		64 << 20,	1, 1ULL << 40 },
	[NR_SEED]	= { "seed",		1,		0, UINT64_MAX },
	[NR_LEASE]	= { "lease-ms",		60000,		1, UINT32_MAX },
	[NR_STALL]	= { "stall",		120,		1, 86400 },
};

static const char help[] =
"Usage: kvctx-replay --trace FILE | --generate N  --device NODE [OPTION]...\n"
"Play inference requests against a kvctx tenant: match the prefix, load what is there, store the rest.\n"
"\n"
"What to play\n"
"  --trace FILE       requests from a JSON Lines file, each with \"hash_ids\": [ids in prefix order]\n"
"  --generate N       N requests of made-up multi-turn conversations\n"
"  --requests N       only the first N requests\n"
"  --seed S           seed of generated conversations and of page contents (default 1)\n"
"  --dump-trace FILE  write the requests as JSON Lines; without --device, do nothing else\n"
"Against what\n"
"  --device NODE      the tenant's node, /dev/kvctx/POOL/TENANT\n"
"  --page-size SIZE   bytes of a page (default 256K)\n"
"  --depth N          pages in flight (default 32)\n"
"  --arena SIZE       pinned memory to stay within, if one page and the depth allow (default 64M)\n"
"  --lease-ms N       time limit of the lease on matched pages (default 60000)\n"
"  --stall SECONDS    give up after so long without a completion (default 120)\n"
"  --verify           compare every loaded byte, and require the kernel's own verification\n"
"What to tell\n"
"  --json FILE        figures as JSON ('-': standard output; the table goes to standard error then)\n"
"  --no-progress      no progress line\n"
"  --help, --version\n"
"\n"
"SIZE takes a suffix K, M or G (powers of 1024). FILE may be '-' for output.\n"
"Exit status: 0 all pages right; 1 wrong pages, errors or a bad trace; 2 usage; 3 no device or no permission;\n"
"130 interrupted.\n";

enum {
	OPT_NUMBER,		/* OPT_NUMBER + enum number */
	OPT_TRACE = NR_NUMBERS,
	OPT_DEVICE,
	OPT_JSON,
	OPT_DUMP_TRACE,
	OPT_VERIFY,
	OPT_NO_PROGRESS,
	OPT_HELP,
	OPT_VERSION,
};

static const struct option longopts[] = {
	{ "generate",	 required_argument, NULL, OPT_NUMBER + NR_GENERATE },
	{ "requests",	 required_argument, NULL, OPT_NUMBER + NR_REQUESTS },
	{ "page-size",	 required_argument, NULL, OPT_NUMBER + NR_PAGE_SIZE },
	{ "depth",	 required_argument, NULL, OPT_NUMBER + NR_DEPTH },
	{ "arena",	 required_argument, NULL, OPT_NUMBER + NR_ARENA },
	{ "seed",	 required_argument, NULL, OPT_NUMBER + NR_SEED },
	{ "lease-ms",	 required_argument, NULL, OPT_NUMBER + NR_LEASE },
	{ "stall",	 required_argument, NULL, OPT_NUMBER + NR_STALL },
	{ "trace",	 required_argument, NULL, OPT_TRACE },
	{ "device",	 required_argument, NULL, OPT_DEVICE },
	{ "json",	 required_argument, NULL, OPT_JSON },
	{ "dump-trace",	 required_argument, NULL, OPT_DUMP_TRACE },
	{ "verify",	 no_argument,	    NULL, OPT_VERIFY },
	{ "no-progress", no_argument,	    NULL, OPT_NO_PROGRESS },
	{ "help",	 no_argument,	    NULL, OPT_HELP },
	{ "version",	 no_argument,	    NULL, OPT_VERSION },
	{ NULL }
};

static unsigned int suffix_shift(char c)
{
	switch (toupper((unsigned char)c)) {
	case 'K':
		return 10;
	case 'M':
		return 20;
	case 'G':
		return 30;
	}
	return 0;
}

int parse_size(const char *text, uint64_t *bytes)
{
	unsigned int shift;
	uint64_t value;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno)
		return -ERANGE;
	shift = suffix_shift(*end);
	if (shift)
		end++;
	if (*end)
		return -EINVAL;
	if (value > UINT64_MAX >> shift)
		return -ERANGE;
	*bytes = value << shift;
	return 0;
}

static enum options_result wrong(const char *what, const char *why)
{
	fprintf(stderr, "kvctx-replay: %s: %s\nTry 'kvctx-replay --help'.\n", what, why);
	return OPTIONS_USAGE;
}

static enum options_result take_number(uint64_t *values, enum number nr, const char *text)
{
	const struct number_option *row = &numbers[nr];
	char what[64], why[160];
	int ret = parse_size(text, &values[nr]);

	if (!ret && values[nr] >= row->min && values[nr] <= row->max)
		return OPTIONS_RUN;
	snprintf(what, sizeof(what), "--%s", row->name);
	if (ret == -EINVAL)
		snprintf(why, sizeof(why), "'%.40s' is not a number", text);
	else
		snprintf(why, sizeof(why), "'%.40s' is not within %" PRIu64 "..%" PRIu64, text, row->min, row->max);
	return wrong(what, why);
}

static enum options_result take_word(struct options *o, int opt)
{
	switch (opt) {
	case OPT_TRACE:
		o->trace = optarg;
		break;
	case OPT_DEVICE:
		o->device = optarg;
		break;
	case OPT_JSON:
		o->json = optarg;
		break;
	case OPT_DUMP_TRACE:
		o->dump_trace = optarg;
		break;
	case OPT_VERIFY:
		o->verify = true;
		break;
	case OPT_NO_PROGRESS:
		o->no_progress = true;
		break;
	case OPT_HELP:
		fputs(help, stdout);
		return OPTIONS_DONE;
	case OPT_VERSION:
		puts("kvctx-replay " KVCTX_VERSION);
		return OPTIONS_DONE;
	default:		/* getopt_long() has said what is wrong */
		fputs("Try 'kvctx-replay --help'.\n", stderr);
		return OPTIONS_USAGE;
	}
	return OPTIONS_RUN;
}

static enum options_result check(const struct options *o)
{
	if (!o->trace && !o->generate)
		return wrong("nothing to play", "give --trace or --generate");
	if (o->trace && o->generate)
		return wrong("--trace, --generate", "only one of them");
	if (!o->device && !o->dump_trace)
		return wrong("nothing to play against", "give --device (or only --dump-trace)");
	if (!o->device && o->json)
		return wrong("--json", "needs --device");
	if (o->json && o->dump_trace && !strcmp(o->json, "-") && !strcmp(o->dump_trace, "-"))
		return wrong("--json, --dump-trace", "only one of them can be standard output");
	return OPTIONS_RUN;
}

static void set_numbers(struct options *o, const uint64_t *values)
{
	o->generate = values[NR_GENERATE];
	o->requests = values[NR_REQUESTS];
	o->page_size = values[NR_PAGE_SIZE];
	o->depth = values[NR_DEPTH];
	o->arena = values[NR_ARENA];
	o->seed = values[NR_SEED];
	o->lease_ms = values[NR_LEASE];
	o->stall_s = values[NR_STALL];
}

enum options_result options_parse(struct options *o, int argc, char **argv)
{
	enum options_result result = OPTIONS_RUN;
	uint64_t values[NR_NUMBERS];
	int opt, i;

	memset(o, 0, sizeof(*o));
	for (i = 0; i < NR_NUMBERS; i++)
		values[i] = numbers[i].initial;
	while (result == OPTIONS_RUN) {
		opt = getopt_long(argc, argv, "", longopts, NULL);
		if (opt < 0)
			break;
		if (opt < NR_NUMBERS)
			result = take_number(values, opt, optarg);
		else
			result = take_word(o, opt);
	}
	if (result != OPTIONS_RUN)
		return result;
	if (optind < argc)
		return wrong(argv[optind], "unexpected argument");
	set_numbers(o, values);
	return check(o);
}
