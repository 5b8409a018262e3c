// SPDX-License-Identifier: GPL-2.0
/* The command line, see cmdline.h. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "../common/size.h"
#include "cmdline.h"
#include "generate.h"
#include "loads.h"
#include "workload.h"

#define KEY		256	/* argp's, of the first option: no character */
#define AT(field)	.at = offsetof(struct workload, field)

struct line {
	const struct cmdline *program;
	void *options;
	const struct cmd_option *rows[CMD_OPTIONS_MAX];
	struct argp_option told[CMD_OPTIONS_MAX + 1];	/* each row as argp has it */
	int nr;
};

static const char *take_load(void *options, const char *name)
{
	struct workload *w = options;

	w->load = load_find(name);
	return w->load ? NULL : "no load; there are conversations, documents, pages, hot";
}

static const struct cmd_option of_both[] = {
	{ .help = "What to play:" },
	{ "trace", "FILE", "requests from a JSON Lines file, each with \"hash_ids\": [ids in prefix order]",
	  AT(trace) },
	{ "generate", "N", "N made-up requests, of multi-turn conversations unless --load says otherwise",
	  AT(generate), 1, GENERATE_MAX },
	{ "load", "NAME",
	  "what to generate instead: documents, single pages by Zipf (pages), or 32 hot pages beside a flood (hot)",
	  .take = take_load },
	{ "requests", "N", "only the first N requests", AT(requests), 1, INT64_MAX },
	{ "seed", "S", "seed of generated requests and of page contents", AT(seed), 0, UINT64_MAX, "1" },
	{ .help = "What to tell:" },
	{ "json", "FILE", "figures as JSON ('-': standard output; the table goes to standard error then)",
	  AT(json) },
	{ "no-progress", NULL, "no progress line", AT(no_progress) },
	{ }
};

static void take_number(struct argp_state *state, const struct cmd_option *row, const char *text, uint64_t *value)
{
	int ret = parse_size(text, value);

	if (ret == -EINVAL)
		argp_error(state, "--%s: '%.40s' is not a number", row->name, text);
	else if (ret || *value < row->min || *value > row->max)
		argp_error(state, "--%s: '%.40s' is not within %" PRIu64 "..%" PRIu64, row->name, text, row->min,
			   row->max);
}

static void take(struct argp_state *state, const struct line *l, const struct cmd_option *row, const char *text)
{
	void *at = (char *)l->options + row->at;
	const char *why;

	if (row->take) {
		why = row->take(l->options, text);
		if (why)
			argp_error(state, "--%s: '%.40s' is %s", row->name, text, why);
	} else if (row->max) {
		take_number(state, row, text, at);
	} else if (row->arg) {
		*(const char **)at = text;
	} else {
		*(bool *)at = true;
	}
}

static void check(struct argp_state *state, const struct line *l)
{
	const struct workload *w = l->options;

	if (!w->trace && !w->generate)
		argp_error(state, "nothing to play: give --trace or --generate");
	if (w->trace && w->generate)
		argp_error(state, "--trace, --generate: only one of them");
	if (w->load && !w->generate)
		argp_error(state, "--load: needs --generate");
	l->program->check(state, l->options);
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	const struct line *l = state->input;

	if (key == ARGP_KEY_ARG)
		argp_error(state, "%s: unexpected argument", text);
	else if (key == ARGP_KEY_END)
		check(state, l);
	else if (key >= KEY && key < KEY + l->nr)
		take(state, l, l->rows[key - KEY], text);
	else
		return ARGP_ERR_UNKNOWN;
	return 0;
}

/* Help for an option tells its default. The last of all is told here, too */
static char *with_usual(int key, const char *text, void *input)
{
	const struct line *l = input;
	const char *usual = key >= KEY && key < KEY + l->nr ? l->rows[key - KEY]->usual : NULL;
	char *all;

	if (key == ARGP_KEY_HELP_EXTRA)
		return strdup("SIZE takes a unit K, M, G or T, as 256K or 256KiB (powers of 1024). "
			      "FILE may be '-' for output.");
	return usual && asprintf(&all, "%s (default %s)", text, usual) > 0 ? all : (char *)text;
}

static void add_rows(struct line *l, const struct cmd_option *row)
{
	for (; row->help; row++) {
		assert(l->nr < CMD_OPTIONS_MAX);
		l->told[l->nr] = (struct argp_option){ .name = row->name, .arg = row->arg, .doc = row->help };
		l->told[l->nr].key = row->name ? KEY + l->nr : 0;
		l->rows[l->nr++] = row;
		if (row->usual)
			take(NULL, l, row, row->usual);
	}
}

void cmdline_parse(const struct cmdline *c, void *options, int argc, char **argv)
{
	struct line l = { .program = c, .options = options };
	struct argp argp = { l.told, parse, c->usage, c->help, NULL, with_usual, NULL };

	add_rows(&l, of_both);
	add_rows(&l, c->options);
	argp_err_exit_status = EXIT_USAGE;
	argp_program_version = c->version;
	argp_parse(&argp, argc, argv, 0, NULL, &l);
}
