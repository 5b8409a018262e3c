// SPDX-License-Identifier: GPL-2.0
#include <stdlib.h>
#include <string.h>

#include "out.h"

static void *need(void *p)
{
	if (!p)
		abort();
	return p;
}

struct json_object *out_object(void)
{
	return need(json_object_new_object());
}

struct json_object *out_root(void)
{
	struct json_object *root = out_object();

	out_number(root, "format", OUT_FORMAT);
	return root;
}

struct json_object *out_array(void)
{
	return need(json_object_new_array());
}

void out_add(struct json_object *obj, const char *key, struct json_object *val)
{
	if (json_object_object_add(obj, key, val))
		abort();
}

void out_append(struct json_object *array, struct json_object *val)
{
	if (json_object_array_add(array, val))
		abort();
}

void out_text(struct json_object *obj, const char *key, const char *text)
{
	out_add(obj, key, need(json_object_new_string(text)));
}

void out_uuid(struct json_object *obj, const char *key, const uint8_t *uuid)
{
	char text[37];

	ctl_uuid_text(uuid, text);
	out_text(obj, key, text);
}

void out_hex(struct json_object *obj, const char *key, const void *bytes, size_t n)
{
	char text[2 * OUT_HEX_MAX + 1] = "";

	for (size_t i = 0; i < n && i < OUT_HEX_MAX; i++)
		sprintf(text + 2 * i, "%02x", ((const uint8_t *)bytes)[i]);
	out_text(obj, key, text);
}

void out_number(struct json_object *obj, const char *key, uint64_t num)
{
	out_add(obj, key, need(json_object_new_uint64(num)));
}

void out_bool(struct json_object *obj, const char *key, bool yes)
{
	out_add(obj, key, need(json_object_new_boolean(yes)));
}

void out_ratio(struct json_object *obj, const char *key, double ratio)
{
	char text[32];

	snprintf(text, sizeof(text), "%.3f", ratio);
	out_add(obj, key, need(json_object_new_double_s(ratio, text)));
}

struct json_object *out_get(struct json_object *obj, const char *key)
{
	struct json_object *val = NULL;

	json_object_object_get_ex(obj, key, &val);
	return val;
}

const char *out_get_text(struct json_object *obj, const char *key)
{
	struct json_object *val = out_get(obj, key);

	return val ? json_object_get_string(val) : "-";
}

uint64_t out_get_number(struct json_object *obj, const char *key)
{
	return json_object_get_uint64(out_get(obj, key));
}

void out_json(struct json_object *root)
{
	puts(json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
						  JSON_C_TO_STRING_NOSLASHESCAPE));
}

void out_json_line(struct json_object *root)
{
	puts(json_object_to_json_string_ext(root, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
}

void out_size_text(uint64_t bytes, char *buf, size_t size)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double v = (double)bytes;
	unsigned int u = 0;

	while (v >= 1024 && u < 6) {
		v /= 1024;
		u++;
	}
	snprintf(buf, size, u ? "%.1f %s" : "%.0f %s", v, units[u]);
}

/* The text of a cell: the string itself, or @buf */
static const char *cell(struct json_object *row, const struct out_column *col, char *buf, size_t size)
{
	uint64_t num;

	if (!out_get(row, col->key) || col->form == FORM_TEXT)
		return out_get_text(row, col->key);
	if (json_object_is_type(out_get(row, col->key), json_type_string))
		return out_get_text(row, col->key);
	num = out_get_number(row, col->key);
	if (col->form == FORM_SIZE)
		out_size_text(num, buf, size);
	else
		snprintf(buf, size, col->form == FORM_MODE ? "%04llo" : "%llu", (unsigned long long)num);
	return buf;
}

static int column_width(struct json_object *array, const struct out_column *col)
{
	size_t width = strlen(col->title);
	char buf[32];

	for (size_t i = 0; i < json_object_array_length(array); i++) {
		size_t n = strlen(cell(json_object_array_get_idx(array, i), col, buf, sizeof(buf)));

		width = n > width ? n : width;
	}
	return (int)width;
}

/* Text to the left, numbers to the right; nothing after the last text column, so that lines do not end in spaces */
static void put_cell(const char *text, const struct out_column *col, int width)
{
	bool last = !col[1].key;

	if (col->form != FORM_TEXT)
		printf("%*s", width, text);
	else
		printf("%-*s", last ? 0 : width, text);
	fputs(last ? "\n" : "  ", stdout);
}

void out_table(struct json_object *array, const struct out_column *columns)
{
	int width[OUT_COLUMNS_MAX], n = 0;
	char buf[32];

	for (const struct out_column *c = columns; c->key && n < OUT_COLUMNS_MAX; c++)
		width[n++] = column_width(array, c);
	for (int i = 0; i < n; i++)
		put_cell(columns[i].title, &columns[i], width[i]);
	for (size_t r = 0; r < json_object_array_length(array); r++) {
		for (int i = 0; i < n; i++) {
			struct json_object *row = json_object_array_get_idx(array, r);

			put_cell(cell(row, &columns[i], buf, sizeof(buf)), &columns[i], width[i]);
		}
	}
}

void out_fields(struct json_object *obj, const struct out_column *columns)
{
	char buf[32];
	int width = 0;

	for (const struct out_column *c = columns; c->key; c++)
		if ((int)strlen(c->title) > width)
			width = (int)strlen(c->title);
	for (const struct out_column *c = columns; c->key; c++)
		printf("%-*s  %s\n", width, c->title, cell(obj, c, buf, sizeof(buf)));
}
