/* SPDX-License-Identifier: GPL-2.0 */
/* The closing table and the JSON of a replay; kvctx-replay(1) says what each figure means. */
#ifndef KVCTX_REPLAY_REPORT_H
#define KVCTX_REPLAY_REPORT_H

#include <stdint.h>
#include <stdio.h>

#include "figures.h"
#include "options.h"
#include "stats.h"

#define REPORT_FORMAT	1	/* grows when a key changes its meaning or goes */

struct report {
	const struct options *options;
	const struct stats *stats;
	const char *pool;
	const char *tenant;
	uint64_t total_requests;
};

void report_table(const struct report *r, FILE *out);

struct json_object *report_figures(const struct report *r);

#endif
