/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The command line: the options that both programs have, beside those of each, which it gives as a table. One row says
 * all of an option, so that limits, defaults, help and checks cannot disagree. argp does the rest.
 */
#ifndef KVCTX_WORKLOAD_CMDLINE_H
#define KVCTX_WORKLOAD_CMDLINE_H

#include <argp.h>
#include <stddef.h>
#include <stdint.h>

#define CMD_OPTIONS_MAX	40

struct cmd_option {
	const char *name;	/* NULL: @help is the heading of what follows, or the table ends */
	const char *arg;	/* what help calls the argument; NULL: there is none */
	const char *help;
	size_t at;		/* offset of what it sets: a bool, with a @max a uint64_t, else a const char * */
	uint64_t min, max;
	const char *usual;	/* of a number that is not given, as it would be given; NULL: 0 */
	const char *(*take)(void *options, const char *text);	/* sets it instead; NULL, or what "'text' is" */
};

struct cmdline {
	const char *version;	/* "program version" */
	const char *usage;	/* beside [OPTION...] */
	const char *help;	/* as of argp: what comes before the options, \v, what comes after them */
	const struct cmd_option *options;
	void (*check)(struct argp_state *state, void *options);	/* argp_error() when they do not go together */
};

/* Set @options, which start with a struct workload and are zero. What is wrong ends the program, as --help does */
void cmdline_parse(const struct cmdline *c, void *options, int argc, char **argv);

#endif
