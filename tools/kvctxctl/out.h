/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Output: a command fills a JSON object; it is printed as such, or a table is made from parts of it.
 *
 * The objects' fields are the tool's interface for programs: names and meanings stay, fields are only added, and
 * OUT_FORMAT is raised then. See the man page.
 */
#ifndef CTL_OUT_H
#define CTL_OUT_H

#include <json-c/json.h>

#include "ctl.h"

#define OUT_FORMAT	1
#define OUT_COLUMNS_MAX	66	/* 64 members, a title, the end */

enum out_form {
	FORM_TEXT,
	FORM_NUMBER,
	FORM_SIZE,		/* bytes, shown with a unit */
	FORM_MODE,		/* permission bits, shown in octal */
};

struct out_column {
	const char *key;	/* field of the row; NULL ends the columns */
	const char *title;
	enum out_form form;
};

/* All abort on lack of memory: a few kilobytes, nothing to undo */
struct json_object *out_object(void);
struct json_object *out_root(void);	/* with "format" */
struct json_object *out_array(void);
void out_add(struct json_object *obj, const char *key, struct json_object *val);	/* takes val */
void out_text(struct json_object *obj, const char *key, const char *text);
void out_uuid(struct json_object *obj, const char *key, const uint8_t *uuid);
#define OUT_HEX_MAX	64U
void out_hex(struct json_object *obj, const char *key, const void *bytes, size_t n);	/* up to OUT_HEX_MAX, in lower case */
void out_number(struct json_object *obj, const char *key, uint64_t num);
void out_ratio(struct json_object *obj, const char *key, double ratio);		/* three decimals */
void out_bool(struct json_object *obj, const char *key, bool yes);
void out_append(struct json_object *array, struct json_object *val);			/* takes val */

const char *out_get_text(struct json_object *obj, const char *key);
uint64_t out_get_number(struct json_object *obj, const char *key);
struct json_object *out_get(struct json_object *obj, const char *key);

void out_size_text(uint64_t bytes, char *buf, size_t size);
void out_json(struct json_object *root);
void out_json_line(struct json_object *root);
void out_table(struct json_object *array, const struct out_column *columns);
void out_fields(struct json_object *obj, const struct out_column *columns);	/* one line a field */

#endif
