/* SPDX-License-Identifier: GPL-2.0 */
/* What exporter serves; see metrics.c. */
#ifndef CTL_METRICS_H
#define CTL_METRICS_H

#include "ctl.h"

/* All metrics, to @to. An exit status; when it is not CTL_OK nothing was written, and the user was told why */
int metrics_put(const struct ctl *c, FILE *to);

#endif
