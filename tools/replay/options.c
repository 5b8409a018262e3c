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
#include <string.h>

#include "../common/size.h"
#include "generate.h"
#include "loads.h"
#include "options.h"
#include "simpool.h"
#include "util.h"

enum number {
	NR_GENERATE,
	NR_REQUESTS,
	NR_PAGE_SIZE,
	NR_DEPTH,
	NR_ARENA,
	NR_SEED,
	NR_LEASE,
	NR_STALL,
	NR_SEGMENT_SIZE,
	NR_MEMBERS,
	NR_NUMBERS,
};

/* What an option is for */
#define PLAYS		1U	/* --device */
#define SIMULATES	2U	/* --simulate */

struct number_option {
	const char *name;
	uint64_t initial;
	uint64_t min;
	uint64_t max;
	unsigned int use;	/* 0: any */
};

static const struct number_option numbers[NR_NUMBERS] = {
	[NR_GENERATE]	= { "generate",		0,		1, GENERATE_MAX },
	[NR_REQUESTS]	= { "requests",		0,		1, INT64_MAX },
	[NR_PAGE_SIZE]	= { "page-size",	256 << 10,	1, 1 << 30 },
	[NR_DEPTH]	= { "depth",		32,		1, 65536,		PLAYS },
	[NR_ARENA]	= { "arena",		64 << 20,	1, 1ULL << 40,		PLAYS },
	[NR_SEED]	= { "seed",		1,		0, UINT64_MAX },
	[NR_LEASE]	= { "lease-ms",		60000,		1, UINT32_MAX,		PLAYS },
	[NR_STALL]	= { "stall",		120,		1, 86400,		PLAYS },
	[NR_SEGMENT_SIZE] = { "segment-size",	0, SIMPOOL_SEGMENT_MIN, SIMPOOL_SEGMENT_MAX, SIMULATES },
	[NR_MEMBERS]	= { "members",		1,		1, SIMPOOL_MEMBERS_MAX,	SIMULATES },
};

#define PERCENT_MAX	1000ULL
#define SIMULATED_PAGE	(32U << 20)	/* default of --page-size with --simulate */

/* Capacities that are simulated when none are given */
static const char *const usual_capacities[] = { "2%", "5%", "10%", "25%", "50%" };

static const char help[] =
"Usage: kvctx-replay --trace FILE | --generate N  --device NODE | --simulate [OPTION]...\n"
"Play inference requests against a kvctx tenant: match the prefix, load what is there, store the rest.\n"
"Or simulate them: compare the eviction of kvctx, on pools without devices, with LRU and the optimum.\n"
"\n"
"What to play\n"
"  --trace FILE       requests from a JSON Lines file, each with \"hash_ids\": [ids in prefix order]\n"
"  --generate N       N made-up requests, of multi-turn conversations unless --load says otherwise\n"
"  --load NAME        what to generate instead: documents, single pages by Zipf (pages), or 32 hot pages beside a\n"
"                     flood (hot)\n"
"  --requests N       only the first N requests\n"
"  --seed S           seed of generated conversations and of page contents (default 1)\n"
"  --dump-trace FILE  write the requests as JSON Lines; alone, do nothing else\n"
"  --page-size SIZE   bytes of a page (default 256K; 32M with --simulate)\n"
"Against what\n"
"  --device NODE      the tenant's node, /dev/kvctx/POOL/TENANT\n"
"  --depth N          pages in flight (default 32)\n"
"  --arena SIZE       pinned memory to stay within, if one page and the depth allow (default 64M)\n"
"  --lease-ms N       time limit of the lease on matched pages (default 60000)\n"
"  --stall SECONDS    give up after so long without a completion (default 120)\n"
"  --verify           compare every loaded byte, and require the kernel's own verification\n"
"What to simulate\n"
"  --simulate         no device: the engine alone, without I/O\n"
"  --capacity C       room: N% of the trace's distinct pages, SIZE with a suffix, or pages; again for more\n"
"                     (default 2%, 5%, 10%, 25%, 50%)\n"
"  --segment-size SIZE  bytes of a segment (default: chosen for each capacity)\n"
"  --members N        members of the pool (default 1)\n"
"  --no-match         load pages without asking for them by MATCH first\n"
"What to tell\n"
"  --json FILE        figures as JSON ('-': standard output; the table goes to standard error then)\n"
"  --plot FILE        with --simulate: curves of the hit ratios as SVG, drawn by gnuplot\n"
"  --no-progress      no progress line\n"
"  --help, --version\n"
"\n"
"SIZE takes a unit K, M, G or T, as 256K or 256KiB (powers of 1024). FILE may be '-' for output.\n"
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
	OPT_SIMULATE,
	OPT_CAPACITY,
	OPT_PLOT,
	OPT_NO_MATCH,
	OPT_LOAD,
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
	{ "segment-size", required_argument, NULL, OPT_NUMBER + NR_SEGMENT_SIZE },
	{ "members",	 required_argument, NULL, OPT_NUMBER + NR_MEMBERS },
	{ "trace",	 required_argument, NULL, OPT_TRACE },
	{ "device",	 required_argument, NULL, OPT_DEVICE },
	{ "json",	 required_argument, NULL, OPT_JSON },
	{ "dump-trace",	 required_argument, NULL, OPT_DUMP_TRACE },
	{ "verify",	 no_argument,	    NULL, OPT_VERIFY },
	{ "no-progress", no_argument,	    NULL, OPT_NO_PROGRESS },
	{ "simulate",	 no_argument,	    NULL, OPT_SIMULATE },
	{ "capacity",	 required_argument, NULL, OPT_CAPACITY },
	{ "plot",	 required_argument, NULL, OPT_PLOT },
	{ "no-match",	 no_argument,	    NULL, OPT_NO_MATCH },
	{ "load",	 required_argument, NULL, OPT_LOAD },
	{ "help",	 no_argument,	    NULL, OPT_HELP },
	{ "version",	 no_argument,	    NULL, OPT_VERSION },
	{ NULL }
};

/* "2.5" percent as 2500000 of CAPACITY_ALL */
static int parse_percent(const char *text, size_t len, uint64_t *share)
{
	uint64_t value = 0, unit = CAPACITY_ALL / 100;
	bool point = false;
	size_t i;

	if (!len || !isdigit((unsigned char)text[0]) || !isdigit((unsigned char)text[len - 1]))
		return -EINVAL;
	for (i = 0; i < len; i++) {
		if (text[i] == '.' && !point) {
			point = true;
			continue;
		}
		if (!isdigit((unsigned char)text[i]))
			return -EINVAL;
		value = value * 10 + (text[i] - '0');
		if (point)
			unit /= 10;
		if (!unit || value * unit > PERCENT_MAX * (CAPACITY_ALL / 100))
			return -ERANGE;
	}
	*share = value * unit;
	return *share ? 0 : -ERANGE;
}

int parse_capacity(const char *text, struct capacity *c)
{
	size_t len = strlen(text);
	uint64_t value;
	int ret;

	memset(c, 0, sizeof(*c));
	c->text = text;
	if (len && text[len - 1] == '%')
		return parse_percent(text, len - 1, &c->share);
	ret = parse_size(text, &value);
	if (ret)
		return ret;
	if (isdigit((unsigned char)text[len - 1]))
		c->pages = value;
	else
		c->bytes = value;
	return value ? 0 : -ERANGE;
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

static enum options_result take_load(struct options *o, const char *name)
{
	o->load = load_find(name);
	return o->load ? OPTIONS_RUN : wrong("--load", "no such load; there are conversations, documents, pages, hot");
}

static enum options_result take_capacity(struct options *o, const char *text)
{
	char why[160];
	int ret;

	if (o->nr_capacities == CAPACITIES_MAX)
		return wrong("--capacity", "too many of them");
	ret = parse_capacity(text, &o->capacities[o->nr_capacities++]);
	if (!ret)
		return OPTIONS_RUN;
	snprintf(why, sizeof(why), "'%.40s' is %s", text,
		 ret == -EINVAL ? "neither N% nor a size nor a number of pages" : "out of range");
	return wrong("--capacity", why);
}

static enum options_result take_word(struct options *o, int opt)
{
	switch (opt) {
	case OPT_SIMULATE:
		o->simulate = true;
		break;
	case OPT_CAPACITY:
		return take_capacity(o, optarg);
	case OPT_PLOT:
		o->plot = optarg;
		break;
	case OPT_LOAD:
		return take_load(o, optarg);
	case OPT_NO_MATCH:
		o->no_match = true;
		break;
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

/* Options that say nothing about what is to be done; @given: a bit for each number */
static enum options_result check_use(const struct options *o, uint64_t given)
{
	char what[64];
	int i;

	for (i = 0; i < NR_NUMBERS; i++) {
		if (!(given & 1ULL << i) || !numbers[i].use || numbers[i].use == (o->simulate ? SIMULATES : PLAYS))
			continue;
		snprintf(what, sizeof(what), "--%s", numbers[i].name);
		return wrong(what, o->simulate ? "not with --simulate" : "needs --simulate");
	}
	if (o->simulate && o->verify)
		return wrong("--verify", "not with --simulate");
	if (!o->simulate && (o->nr_capacities || o->plot || o->no_match))
		return wrong("--capacity, --plot, --no-match", "need --simulate");
	if (o->segment_size % SIMPOOL_SEGMENT_ALIGN)
		return wrong("--segment-size", "not a multiple of 4K");
	return OPTIONS_RUN;
}

static bool is_stdout(const char *path)
{
	return path && !strcmp(path, "-");
}

FILE *options_table(const struct options *o)
{
	return is_stdout(o->json) || is_stdout(o->dump_trace) || is_stdout(o->plot) ? stderr : stdout;
}

static enum options_result check(const struct options *o)
{
	if (!o->trace && !o->generate)
		return wrong("nothing to play", "give --trace or --generate");
	if (o->trace && o->generate)
		return wrong("--trace, --generate", "only one of them");
	if (o->load && !o->generate)
		return wrong("--load", "needs --generate");
	if (o->device && o->simulate)
		return wrong("--device, --simulate", "only one of them");
	if (!o->device && !o->simulate && !o->dump_trace)
		return wrong("nothing to play against", "give --device or --simulate (or only --dump-trace)");
	if (!o->device && !o->simulate && o->json)
		return wrong("--json", "needs --device or --simulate");
	if (is_stdout(o->json) + is_stdout(o->dump_trace) + is_stdout(o->plot) > 1)
		return wrong("--json, --dump-trace, --plot", "only one of them can be standard output");
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
	o->segment_size = values[NR_SEGMENT_SIZE];
	o->members = values[NR_MEMBERS];
}

/* What --simulate does unless it is told */
static void set_usual(struct options *o, uint64_t given)
{
	size_t i;

	if (!(given & 1ULL << NR_PAGE_SIZE))
		o->page_size = SIMULATED_PAGE;
	for (i = 0; !o->nr_capacities && i < ARRAY_SIZE(usual_capacities); i++)
		parse_capacity(usual_capacities[i], &o->capacities[i]);
	if (!o->nr_capacities)
		o->nr_capacities = i;
}

enum options_result options_parse(struct options *o, int argc, char **argv)
{
	enum options_result result = OPTIONS_RUN;
	uint64_t values[NR_NUMBERS], given = 0;
	int opt, i;

	memset(o, 0, sizeof(*o));
	for (i = 0; i < NR_NUMBERS; i++)
		values[i] = numbers[i].initial;
	while (result == OPTIONS_RUN) {
		opt = getopt_long(argc, argv, "", longopts, NULL);
		if (opt < 0)
			break;
		if (opt < NR_NUMBERS) {
			result = take_number(values, opt, optarg);
			given |= 1ULL << opt;
		} else {
			result = take_word(o, opt);
		}
	}
	if (result != OPTIONS_RUN)
		return result;
	if (optind < argc)
		return wrong(argv[optind], "unexpected argument");
	set_numbers(o, values);
	result = check(o);
	if (result == OPTIONS_RUN)
		result = check_use(o, given);
	if (result == OPTIONS_RUN && o->simulate)
		set_usual(o, given);
	return result;
}
