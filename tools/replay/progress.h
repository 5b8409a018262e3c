/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The line that tells how far a replay is: rewritten in place on a terminal, a new line every few seconds elsewhere.
 * Messages go through here too, so that they do not run into the line.
 */
#ifndef KVCTX_REPLAY_PROGRESS_H
#define KVCTX_REPLAY_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "stats.h"
#include "trace.h"
#include "util.h"

struct progress {
	FILE *out;
	bool on;
	bool terminal;
	bool line_open;		/* the cursor stands behind a line without an end */
	uint64_t total_requests;
	uint64_t total_pages;
	uint64_t started;
	uint64_t told;		/* when the last line was written */
	uint64_t told_bytes;	/* moved until then */
};

void progress_init(struct progress *p, FILE *out, const struct trace *t, bool on);

/* Whether it is time to tell something; what it is goes into progress_line() */
bool progress_due(const struct progress *p);
void __printf(2, 3) progress_line(struct progress *p, const char *format, ...);

/* Tell where a replay stands if it is time to */
void progress_update(struct progress *p, const struct stats *s);

/* "kvctx-replay: " and a message on a line of its own */
void __printf(2, 3) progress_message(struct progress *p, const char *format, ...);

/* Leave the place where the line was */
void progress_end(struct progress *p);

/* When @done of @all took @gone seconds: what the rest takes, as 0:59, 1:05 or 1:00:09; "?" while nobody can tell */
void progress_left(char *text, size_t size, double gone, double done, double all);

#endif
