/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The line on standard error that tells how far a program is: rewritten in place on a terminal, a new line every few
 * seconds elsewhere. Messages go through here too, so that they do not run into the line.
 */
#ifndef KVCTX_WORKLOAD_PROGRESS_H
#define KVCTX_WORKLOAD_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "util.h"

struct progress {
	bool on;
	bool terminal;
	bool line_open;		/* the cursor stands behind a line without an end */
	uint64_t started;
	uint64_t told;		/* when the last line was written */
};

void progress_init(struct progress *p, bool on);

/* Whether it is time to tell something */
bool progress_due(const struct progress *p);

/* Tell it, and when the rest of @all will be done, of which @done is: "..., 1:05 left" */
void __printf(4, 5) progress_line(struct progress *p, double done, double all, const char *format, ...);

/* The program's name and a message on a line of its own */
void __printf(2, 3) progress_message(struct progress *p, const char *format, ...);

/* Leave the place where the line was */
void progress_end(struct progress *p);

#endif
