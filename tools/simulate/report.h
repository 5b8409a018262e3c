/* SPDX-License-Identifier: GPL-2.0 */
/* What a simulation showed: the table, and the list of figures. kvctx-simulate(1) says what they mean. */
#ifndef KVCTX_SIMULATE_REPORT_H
#define KVCTX_SIMULATE_REPORT_H

#include <stdio.h>

#include "figures.h"
#include "simulate.h"

/* What was played to the end */
void report_table(const struct simulation *s, FILE *out);

struct json_object *report_figures(const struct simulation *s);

#endif
