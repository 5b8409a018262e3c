/* SPDX-License-Identifier: GPL-2.0 */
/* The curves of a simulation, drawn by gnuplot. */
#ifndef KVCTX_REPLAY_PLOT_H
#define KVCTX_REPLAY_PLOT_H

#include <stdio.h>

#include "simulate.h"

/* Whether gnuplot runs: 0 or -errno */
int plot_possible(void);

/* Hit ratio over capacity of the engine, LRU and the optimum, as SVG. 0 or -errno */
int plot_draw(const struct simulation *s, FILE *out);

#endif
