/* SPDX-License-Identifier: GPL-2.0 */
/* What a simulation showed, as a table and as JSON: see FIGURES OF A SIMULATION in kvctx-replay(1). */
#ifndef KVCTX_REPLAY_SIMREPORT_H
#define KVCTX_REPLAY_SIMREPORT_H

#include <stdio.h>

#include "simulate.h"

/* What was played to the end */
void simreport_table(const struct simulation *s, FILE *out);

/* 0 or -errno */
int simreport_json(const struct simulation *s, FILE *out);

#endif
