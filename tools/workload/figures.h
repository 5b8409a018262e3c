/* SPDX-License-Identifier: GPL-2.0 */
/* What a program found, as JSON. */
#ifndef KVCTX_WORKLOAD_FIGURES_H
#define KVCTX_WORKLOAD_FIGURES_H

#include <json-c/json.h>
#include <stdint.h>

#include "outfile.h"

void figure_count(struct json_object *o, const char *key, uint64_t value);
void figure_real(struct json_object *o, const char *key, double value, int decimals);
void figure_text(struct json_object *o, const char *key, const char *value);
void figure_flag(struct json_object *o, const char *key, bool value);

/* Put them into @out, of @path, and make that appear, unless it is not open. 0; or -errno, with the reason told */
int figures_commit(struct json_object *figures, struct outfile *out, const char *path);

#endif
