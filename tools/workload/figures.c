// SPDX-License-Identifier: GPL-2.0
/* Figures, see figures.h. */
#include <errno.h>

#include "figures.h"
#include "workload.h"

void figure_count(struct json_object *o, const char *key, uint64_t value)
{
	json_object_object_add(o, key, json_object_new_uint64(value));
}

void figure_real(struct json_object *o, const char *key, double value, int decimals)
{
	char text[64];

	snprintf(text, sizeof(text), "%.*f", decimals, value);
	json_object_object_add(o, key, json_object_new_double_s(value, text));
}

void figure_text(struct json_object *o, const char *key, const char *value)
{
	json_object_object_add(o, key, json_object_new_string(value));
}

void figure_flag(struct json_object *o, const char *key, bool value)
{
	json_object_object_add(o, key, json_object_new_boolean(value));
}

int figures_commit(struct json_object *figures, struct outfile *out, const char *path)
{
	const char *text;
	int ret = 0;

	if (out->stream) {
		text = json_object_to_json_string_ext(figures, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
							       JSON_C_TO_STRING_NOSLASHESCAPE);
		ret = text && fprintf(out->stream, "%s\n", text) > 0 ? outfile_commit(out) : -EIO;
	}
	json_object_put(figures);
	return ret ? failed(path, ret) : 0;
}
