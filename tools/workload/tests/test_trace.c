// SPDX-License-Identifier: GPL-2.0
/* The parser: what it takes, what it refuses and with which words, and that mutated input never gets through harm. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "generate.h"
#include "rng.h"
#include "trace.h"
#include "unit.h"

static int parse(struct trace *t, const char *text, size_t len, size_t limit, struct trace_error *err)
{
	FILE *in = fmemopen((void *)text, len, "r");
	int ret;

	trace_init(t);
	ret = trace_read(t, in, limit, err);
	fclose(in);
	return ret;
}

struct good {
	const char *text;
	size_t requests;
	size_t ids;
	uint64_t last_id;
};

static const struct good goods[] = {
	{ "{\"hash_ids\": [5]}\n", 1, 1, 5 },
	{ "{\"hash_ids\": [5]}", 1, 1, 5 },
	{ "{\"hash_ids\":[0,9223372036854775807]}\r\n", 1, 2, INT64_MAX },
	{ "\n  \t\n{\"hash_ids\": [1, 1, 2]}\n\n{\"hash_ids\": [3]}\n \n", 2, 4, 3 },
	{ " { \"hash_ids\" : [ 7 ] , \"other\": {\"a\": [null, true, \"\\u00e9\"]} } ", 1, 1, 7 },
	{ "{\"timestamp\": 12.75, \"input_length\": 1, \"output_length\": 0, \"hash_ids\": [8]}", 1, 1, 8 },
	{ "{\"timestamp\": 1e3, \"hash_ids\": [8]}", 1, 1, 8 },
};

static void takes(void **state)
{
	struct trace_error err;
	struct trace t;
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(goods); i++) {
		assert_int_equal(parse(&t, goods[i].text, strlen(goods[i].text), 0, &err), 0);
		assert_int_equal(t.nr_requests, goods[i].requests);
		assert_int_equal(t.nr_ids, goods[i].ids);
		assert_int_equal(t.ids[t.nr_ids - 1], goods[i].last_id);
		trace_free(&t);
	}
}

struct bad {
	const char *text;
	size_t line;
	const char *reason;	/* how it starts */
};

#define OK	"{\"hash_ids\": [5]}\n"

static const struct bad bads[] = {
	{ "\n", 2, "no request in the trace" },
	{ "{}\n", 1, "no hash_ids" },
	{ OK "{\"timestamp\": 1}\n" OK, 2, "no hash_ids" },
	{ OK OK "{\"hash_ids\": []}\n", 3, "hash_ids is empty" },
	{ "{\"hash_ids\": 5}\n", 1, "hash_ids is not an array" },
	{ "{\"hash_ids\": {\"0\": 1}}\n", 1, "hash_ids is not an array" },
	{ "{\"hash_ids\": null}\n", 1, "hash_ids is not an array" },
	{ "{\"hash_ids\": [1, \"2\"]}\n", 1, "hash_ids[1] is not an integer" },
	{ "{\"hash_ids\": [1, 2, null]}\n", 1, "hash_ids[2] is not an integer" },
	{ "{\"hash_ids\": [true]}\n", 1, "hash_ids[0] is not an integer" },
	{ "{\"hash_ids\": [[1]]}\n", 1, "hash_ids[0] is not an integer" },
	{ "{\"hash_ids\": [1.5]}\n", 1, "hash_ids[0] is not an integer" },
	{ "{\"hash_ids\": [1e2]}\n", 1, "hash_ids[0] is not an integer" },
	{ "{\"hash_ids\": [-1]}\n", 1, "hash_ids[0] is negative" },
	{ "{\"hash_ids\": [-9223372036854775808]}\n", 1, "hash_ids[0] is negative" },
	{ "{\"hash_ids\": [9223372036854775808]}\n", 1, "hash_ids[0] is 2^63 or more" },
	{ "{\"hash_ids\": [18446744073709551615]}\n", 1, "hash_ids[0] is 2^63 or more" },
	{ "{\"timestamp\": -5, \"hash_ids\": [5]}\n", 1, "timestamp is negative" },
	{ "{\"timestamp\": -0.5, \"hash_ids\": [5]}\n", 1, "timestamp is negative" },
	{ "{\"timestamp\": 1e30, \"hash_ids\": [5]}\n", 1, "timestamp is 2^63 or more" },
	{ "{\"timestamp\": \"now\", \"hash_ids\": [5]}\n", 1, "timestamp is not an integer" },
	{ "{\"timestamp\": null, \"hash_ids\": [5]}\n", 1, "timestamp is not an integer" },
	{ "{\"input_length\": 1.5, \"hash_ids\": [5]}\n", 1, "input_length is not an integer" },
	{ "{\"output_length\": -1, \"hash_ids\": [5]}\n", 1, "output_length is negative" },
	{ "[1, 2]\n", 1, "not a JSON object" },
	{ "5\n", 1, "not a JSON object" },
	{ "null\n", 1, "not a JSON object" },
	{ "hello\n", 1, "unexpected character at byte 1" },
	{ "{\"hash_ids\": [5,]}\n", 1, "unexpected character" },
	{ "{\"hash_ids\": [5]},\n", 1, "unexpected character" },
	{ "{\"hash_ids\": [5]} {\"hash_ids\": [6]}\n", 1, "unexpected character" },
	{ "/* no */ {\"hash_ids\": [5]}\n", 1, "unexpected character" },
	{ OK "{\"hash_ids\": [5\n]}\n", 2, "unexpected end of data at byte " },
	{ OK "{\"hash_ids\": [5], \"a\n", 2, "unexpected end of data at byte " },
	{ "{\"hash_ids\": [5], \"a\": \"\xff\xfe\"}\n", 1, "invalid utf-8 string" },
	{ "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n", 1, "nesting too deep" },
};

static void refuses(void **state)
{
	struct trace_error err;
	struct trace t;
	size_t i;
	int ret;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(bads); i++) {
		ret = parse(&t, bads[i].text, strlen(bads[i].text), 0, &err);
		if (ret != -EINVAL || err.line != bads[i].line ||
		    strncmp(err.reason, bads[i].reason, strlen(bads[i].reason)))
			fail_msg("row %zu: %d, line %zu, %s", i, ret, err.line, err.reason);
		trace_free(&t);
	}
}

/* Beyond 64 bits: some versions of json-c refuse them, others cut them off; the words differ, the outcome must not */
static void refuses_huge_numbers(void **state)
{
	static const char *const texts[] = {
		"{\"hash_ids\": [-9223372036854775809]}\n",
		"{\"hash_ids\": [18446744073709551616]}\n",
		"{\"hash_ids\": [99999999999999999999999]}\n",
	};
	struct trace_error err;
	struct trace t;
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_int_equal(parse(&t, texts[i], strlen(texts[i]), 0, &err), -EINVAL);
		assert_int_equal(err.line, 1);
		trace_free(&t);
	}
}

static void refuses_nul(void **state)
{
	static const char text[] = "{\"hash_ids\": [5]}\0\n";
	struct trace_error err;
	struct trace t;

	(void)state;
	assert_int_equal(parse(&t, text, sizeof(text) - 1, 0, &err), -EINVAL);
	assert_string_equal(err.reason, "a NUL byte");
	trace_free(&t);
}

static void refuses_endless_line(void **state)
{
	size_t len = TRACE_LINE_MAX + 2;
	char *text = malloc(len);
	struct trace_error err;
	struct trace t;

	(void)state;
	memset(text, ' ', len);
	assert_int_equal(parse(&t, text, len, 0, &err), -EINVAL);
	assert_non_null(strstr(err.reason, "longer than"));
	trace_free(&t);
	free(text);
}

static void refuses_directory(void **state)
{
	FILE *in = fopen("/", "r");
	struct trace_error err;
	struct trace t;

	(void)state;
	trace_init(&t);
	assert_int_equal(trace_read(&t, in, 0, &err), -EINVAL);
	assert_non_null(strstr(err.reason, "cannot be read"));
	trace_free(&t);
	fclose(in);
}

/* What is behind the limit is not looked at, what is before is */
static void stops_at_limit(void **state)
{
	static const char text[] = OK OK "broken\n";
	struct trace_error err;
	struct trace t;

	(void)state;
	assert_int_equal(parse(&t, text, strlen(text), 2, &err), 0);
	assert_int_equal(t.nr_requests, 2);
	trace_free(&t);
	assert_int_equal(parse(&t, text, strlen(text), 3, &err), -EINVAL);
	assert_int_equal(err.line, 3);
	trace_free(&t);
}

static void absent_members(void **state)
{
	static const char text[] = "{\"hash_ids\": [5, 6], \"input_length\": 600}\n{\"hash_ids\": [5]}\n";
	struct trace_error err;
	struct trace t;

	(void)state;
	assert_int_equal(parse(&t, text, strlen(text), 0, &err), 0);
	assert_int_equal(t.requests[0].timestamp, TRACE_ABSENT);
	assert_int_equal(t.requests[0].input_length, 600);
	assert_int_equal(t.requests[0].output_length, TRACE_ABSENT);
	assert_int_equal(t.longest, 2);
	trace_cut(&t, 1);
	assert_int_equal(t.nr_requests, 1);
	assert_int_equal(t.nr_ids, 2);
	trace_free(&t);
}

static char *written(const struct trace *t, size_t *len)
{
	char *text;
	FILE *out = open_memstream(&text, len);

	assert_int_equal(trace_write(t, out), 0);
	fclose(out);
	return text;
}

static void round_trip(void **state)
{
	struct trace_error err;
	struct trace t, back;
	size_t len, len_back;
	char *text, *text_back;

	(void)state;
	trace_init(&t);
	assert_int_equal(generate(&t, 500, 3), 0);
	text = written(&t, &len);
	assert_int_equal(parse(&back, text, len, 0, &err), 0);
	assert_int_equal(back.nr_ids, t.nr_ids);
	assert_int_equal(back.longest, t.longest);
	assert_memory_equal(back.ids, t.ids, t.nr_ids * sizeof(*t.ids));
	text_back = written(&back, &len_back);
	assert_int_equal(len, len_back);
	assert_memory_equal(text, text_back, len);
	free(text);
	free(text_back);
	trace_free(&t);
	trace_free(&back);
}

static void mutate(char *text, size_t len, uint64_t *rng)
{
	static const char bytes[] = "{}[]\",:0-9eE.+\\/ntu\n\r\t \xff\x80\x01";
	unsigned int n = 1 + rng_next(rng) % 4;
	size_t at, from, run;

	while (n--) {
		at = rng_next(rng) % len;
		if (rng_next(rng) % 4) {
			text[at] = bytes[rng_next(rng) % sizeof(bytes)];
			continue;
		}
		from = rng_next(rng) % len;
		run = rng_next(rng) % 32;
		run = run < len - (at > from ? at : from) ? run : len - (at > from ? at : from);
		memmove(text + at, text + from, run);
	}
}

/* Whatever comes: refused with a line and a reason, or every request has ids and every id is in range */
static void check_outcome(const struct trace *t, int ret, const struct trace_error *err)
{
	size_t i, ids = 0;

	if (ret) {
		assert_int_equal(ret, -EINVAL);
		assert_true(err->line > 0);
		assert_true(strlen(err->reason) > 0);
		return;
	}
	assert_true(t->nr_requests > 0);
	for (i = 0; i < t->nr_requests; i++) {
		assert_int_equal(t->requests[i].first, ids);
		assert_true(t->requests[i].nr > 0);
		ids += t->requests[i].nr;
	}
	assert_int_equal(ids, t->nr_ids);
	for (i = 0; i < t->nr_ids; i++)
		assert_true(t->ids[i] <= INT64_MAX);
}

static void mutated_input(void **state)
{
	static const char text[] =
		"{\"timestamp\": 0, \"input_length\": 1758, \"output_length\": 500, \"hash_ids\": [0, 1, 2, 3]}\n"
		"{\"timestamp\": 5.5, \"hash_ids\": [0, 9223372036854775807, 4], \"x\": {\"y\": [\"\\u1234\"]}}\n"
		"{\"hash_ids\": [12345]}\n";
	size_t len = sizeof(text) - 1, accepted = 0, refused = 0;
	uint64_t seed, rng;
	struct trace_error err;
	struct trace t;
	char *copy = malloc(len);
	int ret;

	(void)state;
	for (seed = 0; seed < 20000; seed++) {
		rng = rng_mix(seed);
		memcpy(copy, text, len);
		mutate(copy, len, &rng);
		ret = parse(&t, copy, len - (seed % 3 ? 0 : rng_next(&rng) % len), 0, &err);
		check_outcome(&t, ret, &err);
		*(ret ? &refused : &accepted) += 1;
		trace_free(&t);
	}
	free(copy);
	/* Both ways have to be well travelled for this to mean anything */
	assert_true(accepted > 500);
	assert_true(refused > 5000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes),
		cmocka_unit_test(refuses),
		cmocka_unit_test(refuses_huge_numbers),
		cmocka_unit_test(refuses_nul),
		cmocka_unit_test(refuses_endless_line),
		cmocka_unit_test(refuses_directory),
		cmocka_unit_test(stops_at_limit),
		cmocka_unit_test(absent_members),
		cmocka_unit_test(round_trip),
		cmocka_unit_test(mutated_input),
	};

	return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
