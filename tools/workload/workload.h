/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What kvctx-replay and kvctx-simulate have in common: the requests that are to be played, and how a program is told
 * and tells. Neither the library nor the engine is known here, nor which of the two programs it is.
 *
 * Vocabulary: a trace is a list of requests in the order of arrival; a request is a list of pages in prefix order, each
 * named by an id. A load is a kind of trace that can be generated. Content is the key and the bytes that follow from an
 * id. Figures are what is told as JSON.
 *
 *	trace.c		traces in memory, and as JSON Lines
 *	generate.c	makes conversations
 *	loads.c		all loads by name, and makes the others
 *	content.c	keys and bytes of pages
 *	outfile.c	files that appear whole or not at all
 *	figures.c	figures
 *	progress.c	the line that tells how far it is
 *	workload.c	the trace that was asked for; failures, signals
 *	cmdline.c	the options of both programs, and of each
 *	rng.h, util.h	random numbers; small things
 *
 * Floors, lowest first; a file calls only what is below it.
 *   1  trace content outfile progress
 *   2  generate
 *   3  loads
 *   4  workload
 *   5  cmdline figures
 */
#ifndef KVCTX_WORKLOAD_WORKLOAD_H
#define KVCTX_WORKLOAD_WORKLOAD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "trace.h"

/* Exit statuses that are no other's */
#define EXIT_USAGE		2	/* wrong command line */
#define EXIT_INTERRUPTED	130	/* SIGINT or SIGTERM came */

/* The options that both programs have */
struct workload {
	const char *trace;		/* either this file ... */
	uint64_t generate;		/* ... or this many generated requests ... */
	const struct load *load;	/* ... of this load */
	uint64_t requests;		/* 0: all */
	uint64_t seed;
	const char *json;
	bool no_progress;
};

/* Read or make the trace; it is to be freed in any case. 0; or -errno, with the reason told */
int workload_trace(const struct workload *w, struct trace *t);

/* What figures and tables call it */
const char *workload_name(const struct workload *w);

/* Tell "program: @what: why". Returns @ret, a negative errno */
int failed(const char *what, int ret);

/* Not zero once SIGINT or SIGTERM came. A second one ends the program at once */
const volatile sig_atomic_t *catch_signals(void);

#endif
