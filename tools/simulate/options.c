// SPDX-License-Identifier: GPL-2.0
/* The command line, see cmdline.h. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../common/size.h"
#include "cmdline.h"
#include "options.h"
#include "simpool.h"
#include "util.h"

#define PERCENT_MAX	1000
#define AT(field)	.at = offsetof(struct options, field)

/* Capacities that are simulated when none are given */
static const char *const usual_capacities[] = { "2%", "5%", "10%", "25%", "50%" };

/* "2.5" percent as 2500000 of CAPACITY_ALL */
static int parse_percent(const char *text, size_t len, uint64_t *share)
{
	double percent;
	char *end;

	if (strspn(text, "0123456789.") != len || !isdigit((unsigned char)text[0]) || text[len - 1] == '.')
		return -EINVAL;
	percent = strtod(text, &end);
	if (end != text + len)
		return -EINVAL;
	*share = percent <= PERCENT_MAX ? (uint64_t)(percent * (CAPACITY_ALL / 100) + 0.5) : 0;
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

static const char *take_capacity(void *options, const char *text)
{
	struct options *o = options;

	if (o->nr_capacities == CAPACITIES_MAX)
		return "one too many";
	switch (parse_capacity(text, &o->capacities[o->nr_capacities++])) {
	case -EINVAL:
		return "neither N% nor a size nor a number of pages";
	case -ERANGE:
		return "out of range";
	}
	return NULL;
}

static const struct cmd_option rows[] = {
	{ .help = "What to simulate:" },
	{ "capacity", "C", "room: N% of the trace's distinct pages, SIZE with a suffix, or pages; again for more "
	  "(default 2%, 5%, 10%, 25%, 50%)", .take = take_capacity },
	{ "page-size", "SIZE", "bytes of a page", AT(page_size), 1, 1 << 30, "32M" },
	{ "segment-size", "SIZE", "bytes of a segment (default: chosen for each capacity)", AT(segment_size),
	  SIMPOOL_SEGMENT_MIN, SIMPOOL_SEGMENT_MAX },
	{ "members", "N", "members of the pool", AT(members), 1, SIMPOOL_MEMBERS_MAX, "1" },
	{ "no-match", NULL, "load pages without asking for them by MATCH first", AT(no_match) },
	{ }
};

static void check(struct argp_state *state, void *options)
{
	struct options *o = options;
	size_t i;

	if (o->segment_size % SIMPOOL_SEGMENT_ALIGN)
		argp_error(state, "--segment-size: not a multiple of 4K");
	for (i = 0; !o->nr_capacities && i < ARRAY_SIZE(usual_capacities); i++)
		parse_capacity(usual_capacities[i], &o->capacities[i]);
	if (!o->nr_capacities)
		o->nr_capacities = i;
}

void options_parse(struct options *o, int argc, char **argv)
{
	static const struct cmdline line = {
		.version = "kvctx-simulate " KVCTX_VERSION,
		.usage = "{--trace FILE | --generate N}",
		.help = "Play inference requests on pools without devices: compare the eviction of kvctx with LRU and "
			"the optimum.\vExit status: 0 all was played; 1 a bad trace or errors; 2 usage; 130 "
			"interrupted.",
		.options = rows,
		.check = check,
	};

	cmdline_parse(&line, o, argc, argv);
}
