// SPDX-License-Identifier: GPL-2.0
/*
 * Reading and writing traces, see trace.h.
 *
 * A trace is someone else's file: every line is checked whole before anything of it is used. A line is one JSON object
 * (strict JSON, UTF-8); hash_ids is an array, not empty, of integers 0..2^63 - 1; timestamp, input_length and
 * output_length may be missing, and are non-negative numbers otherwise (timestamp may have a fraction, which is cut);
 * other members are ignored. A request without ids is refused, since it has no meaning for a cache and most likely
 * shows that the file is something else. Lines of blanks only are skipped.
 */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "trace.h"
#include "util.h"

static int __printf(2, 3) fail(struct trace_error *err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(err->reason, sizeof(err->reason), format, args);
	va_end(args);
	return -EINVAL;
}

static int fail_memory(struct trace_error *err)
{
	fail(err, "out of memory");
	return -ENOMEM;
}

void trace_init(struct trace *t)
{
	memset(t, 0, sizeof(*t));
}

void trace_free(struct trace *t)
{
	free(t->requests);
	free(t->ids);
	trace_init(t);
}

int make_room(void **array, size_t nr, size_t *room, size_t size)
{
	size_t wanted = *room ? *room * 2 : 1024;
	void *grown;

	if (nr < *room)
		return 0;
	grown = reallocarray(*array, wanted, size);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*room = wanted;
	return 0;
}

int trace_begin(struct trace *t, uint64_t timestamp, uint64_t input_length, uint64_t output_length)
{
	int ret = make_room((void **)&t->requests, t->nr_requests, &t->room_requests, sizeof(*t->requests));

	if (ret)
		return ret;
	t->requests[t->nr_requests++] = (struct trace_request){
		.timestamp = timestamp,
		.input_length = input_length,
		.output_length = output_length,
		.first = t->nr_ids,
	};
	return 0;
}

int trace_add_id(struct trace *t, uint64_t id)
{
	struct trace_request *r = &t->requests[t->nr_requests - 1];
	int ret = make_room((void **)&t->ids, t->nr_ids, &t->room_ids, sizeof(*t->ids));

	if (ret)
		return ret;
	t->ids[t->nr_ids++] = id;
	r->nr++;
	if (r->nr > t->longest)
		t->longest = r->nr;
	return 0;
}

void trace_cut(struct trace *t, size_t nr)
{
	size_t i;

	if (nr >= t->nr_requests)
		return;
	t->nr_ids = t->requests[nr].first;
	t->nr_requests = nr;
	t->longest = 0;
	for (i = 0; i < nr; i++) {
		if (t->requests[i].nr > t->longest)
			t->longest = t->requests[i].nr;
	}
}

/* An integer 0..2^63 - 1; json-c cuts larger and smaller ones off at the ends of int64_t and uint64_t */
static const char *get_integer(struct json_object *value, uint64_t *number)
{
	if (!json_object_is_type(value, json_type_int))
		return "is not an integer";
	if (json_object_get_int64(value) < 0)
		return "is negative";
	*number = json_object_get_uint64(value);
	if (*number > INT64_MAX)
		return "is 2^63 or more";
	return NULL;
}

static const char *get_number(struct json_object *value, uint64_t *number)
{
	double d;

	if (!json_object_is_type(value, json_type_double))
		return get_integer(value, number);
	d = json_object_get_double(value);
	if (!(d >= 0))
		return "is negative";
	if (!(d < 0x1p63))
		return "is 2^63 or more";
	*number = d;
	return NULL;
}

struct member {
	const char *name;
	const char *(*get)(struct json_object *value, uint64_t *number);
};

static const struct member members[] = {
	{ "timestamp",		get_number },
	{ "input_length",	get_integer },
	{ "output_length",	get_integer },
};

static int read_members(struct json_object *line, uint64_t numbers[ARRAY_SIZE(members)], struct trace_error *err)
{
	struct json_object *value;
	const char *why;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(members); i++) {
		numbers[i] = TRACE_ABSENT;
		if (!json_object_object_get_ex(line, members[i].name, &value))
			continue;
		why = members[i].get(value, &numbers[i]);
		if (why)
			return fail(err, "%s %s", members[i].name, why);
	}
	return 0;
}

static int read_ids(struct trace *t, struct json_object *ids, struct trace_error *err)
{
	size_t i, nr = json_object_array_length(ids);
	const char *why;
	uint64_t id;

	for (i = 0; i < nr; i++) {
		why = get_integer(json_object_array_get_idx(ids, i), &id);
		if (why)
			return fail(err, "hash_ids[%zu] %s", i, why);
		if (trace_add_id(t, id))
			return fail_memory(err);
	}
	return 0;
}

static int read_request(struct trace *t, struct json_object *line, struct trace_error *err)
{
	uint64_t numbers[ARRAY_SIZE(members)];
	struct json_object *ids;
	int ret;

	if (!json_object_is_type(line, json_type_object))
		return fail(err, "not a JSON object");
	if (!json_object_object_get_ex(line, "hash_ids", &ids))
		return fail(err, "no hash_ids");
	if (!json_object_is_type(ids, json_type_array))
		return fail(err, "hash_ids is not an array");
	if (!json_object_array_length(ids))
		return fail(err, "hash_ids is empty");
	ret = read_members(line, numbers, err);
	if (ret)
		return ret;
	if (trace_begin(t, numbers[0], numbers[1], numbers[2]))
		return fail_memory(err);
	return read_ids(t, ids, err);
}

static int read_line(struct trace *t, struct json_tokener *tok, const char *text, size_t len, struct trace_error *err)
{
	struct json_object *line;
	enum json_tokener_error why;
	int ret;

	if (memchr(text, '\0', len))
		return fail(err, "a NUL byte");
	json_tokener_reset(tok);
	/* With its NUL, so that an object cut short is an error now and not a request for more */
	line = json_tokener_parse_ex(tok, text, (int)len + 1);
	why = json_tokener_get_error(tok);
	if (why != json_tokener_success)
		ret = fail(err, "%s at byte %zu", json_tokener_error_desc(why),
			   json_tokener_get_parse_end(tok) + 1);
	else
		ret = read_request(t, line, err);
	json_object_put(line);
	return ret;
}

/* The line being read: @bytes holds @len bytes and a NUL */
struct text {
	char *bytes;
	size_t len;
	size_t room;
};

/*
 * Next line without its end. 1, or 0 at the end of the file; -E2BIG as soon as the line is too long, so that a file
 * without line ends cannot take all memory.
 */
static int next_line(struct text *text, FILE *in)
{
	int c;

	text->len = 0;
	for (;;) {
		if (make_room((void **)&text->bytes, text->len, &text->room, 1))
			return -ENOMEM;
		c = getc_unlocked(in);
		if (c == EOF || c == '\n')
			break;
		if (text->len == TRACE_LINE_MAX)
			return -E2BIG;
		text->bytes[text->len++] = c;
	}
	if (c == EOF && ferror(in))
		return -errno;
	return c == '\n' || text->len;
}

static void drop_blanks(struct text *text)
{
	while (text->len && strchr(" \t\r", text->bytes[text->len - 1]) && text->bytes[text->len - 1])
		text->len--;
	text->bytes[text->len] = '\0';
}

static int read_lines(struct trace *t, FILE *in, size_t limit, struct json_tokener *tok, struct text *text,
		      struct trace_error *err)
{
	int ret;

	while (!limit || t->nr_requests < limit) {
		err->line++;
		ret = next_line(text, in);
		if (ret == -E2BIG)
			return fail(err, "the line is longer than %lu bytes", TRACE_LINE_MAX);
		if (ret < 0)
			return fail(err, "cannot be read: %s", strerror(-ret));
		if (!ret)
			break;
		drop_blanks(text);
		if (!text->len)
			continue;
		ret = read_line(t, tok, text->bytes, text->len, err);
		if (ret)
			return ret;
	}
	if (!t->nr_requests)
		return fail(err, "no request in the trace");
	return 0;
}

int trace_read(struct trace *t, FILE *in, size_t limit, struct trace_error *err)
{
	struct json_tokener *tok = json_tokener_new();
	struct text text = { 0 };
	int ret;

	err->line = 0;
	err->reason[0] = '\0';
	if (!tok)
		return fail_memory(err);
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	ret = read_lines(t, in, limit, tok, &text, err);
	free(text.bytes);
	json_tokener_free(tok);
	return ret;
}

static void write_member(FILE *out, const char *name, uint64_t number)
{
	if (number != TRACE_ABSENT)
		fprintf(out, "\"%s\": %" PRIu64 ", ", name, number);
}

int trace_write(const struct trace *t, FILE *out)
{
	size_t i, j;

	for (i = 0; i < t->nr_requests; i++) {
		const struct trace_request *r = &t->requests[i];

		fputc('{', out);
		write_member(out, "timestamp", r->timestamp);
		write_member(out, "input_length", r->input_length);
		write_member(out, "output_length", r->output_length);
		fputs("\"hash_ids\": [", out);
		for (j = 0; j < r->nr; j++)
			fprintf(out, "%s%" PRIu64, j ? ", " : "", trace_ids(t, r)[j]);
		fputs("]}\n", out);
	}
	return fflush(out) || ferror(out) ? -EIO : 0;
}
