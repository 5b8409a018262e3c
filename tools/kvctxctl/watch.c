// SPDX-License-Identifier: GPL-2.0
/*
 * Counters, once or as rates again and again.
 *
 * A rate is the difference of two samples of the same object over the time between them. One that was made again in
 * between has started from zero: its rates are those since then.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "watch.h"

#define INTERVAL_MS	1000
#define HEADER_EVERY	20		/* reports */

static int watch_take(const struct watch *w, struct sample *s)
{
	int status;

	s->objects = out_array();
	s->time_ms = ctl_now_ms();
	status = w->take(w->c, s->objects);
	if (status)
		json_object_put(s->objects);
	return status;
}

static struct json_object *watch_json(const struct watch *w, const struct sample *s)
{
	struct json_object *root = out_root();

	out_add(root, w->name, json_object_get(s->objects));
	return root;
}

static void watch_once(const struct watch *w, const struct sample *s)
{
	struct json_object *root;

	if (w->c->json) {
		root = watch_json(w, s);
		out_json(root);
		json_object_put(root);
		return;
	}
	if (!json_object_array_length(s->objects))
		fputs("no pool is attached\n", stderr);
	for (size_t i = 0; i < json_object_array_length(s->objects); i++)
		w->once(json_object_array_get_idx(s->objects, i));
}

/* The object of @s with the same text as @is under both keys; @key2 may be NULL */
struct json_object *watch_find(const struct sample *s, struct json_object *is, const char *key1, const char *key2)
{
	for (size_t i = 0; i < json_object_array_length(s->objects); i++) {
		struct json_object *one = json_object_array_get_idx(s->objects, i);

		if (!strcmp(out_get_text(one, key1), out_get_text(is, key1)) &&
		    (!key2 || !strcmp(out_get_text(one, key2), out_get_text(is, key2))))
			return one;
	}
	return NULL;
}

uint64_t watch_since(struct json_object *was, struct json_object *is, const char *key)
{
	uint64_t before = was ? out_get_number(was, key) : 0, now = out_get_number(is, key);

	return now >= before ? now - before : now;
}

/* Loads that found their page, in percent; negative: there were none, and no misses */
double watch_hits(struct json_object *was, struct json_object *is)
{
	uint64_t loads = watch_since(was, is, "loads"), all = loads + watch_since(was, is, "misses");

	return all ? 100.0 * (double)loads / (double)all : -1;
}

/* A line for people, bytes also as they read them */
void watch_put_counter(const char *key, uint64_t num)
{
	char size[32] = "";

	if (strstr(key, "bytes") || !strcmp(key, "index_limit"))
		out_size_text(num, size, sizeof(size));
	printf("  %-21s %20llu%s%s%s\n", key, (unsigned long long)num, *size ? "  (" : "", size, *size ? ")" : "");
}

/* May a table of @rows below its header stay where it is? Then lines that are too long for the terminal are cut. */
static bool watch_stays(size_t rows)
{
	const char *term = getenv("TERM");
	struct winsize size;

	return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") &&
	       !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && rows + 2 < size.ws_row;
}

static void watch_table(const struct watch *w, const struct sample *was, const struct sample *is, uint64_t nr, double seconds)
{
	static size_t before;	/* rows of the table that stands there; 0: none that may be written over */
	size_t rows = json_object_array_length(is->objects);
	bool stays = watch_stays(rows);

	if (stays)
		fputs("\033[?7l", stdout);
	if (stays && before)
		printf("\033[%zuA\033[J", before + 1);
	if (stays || nr % HEADER_EVERY == 0)
		w->header();
	for (size_t i = 0; i < rows; i++) {
		struct json_object *one = json_object_array_get_idx(is->objects, i);

		w->rates(w->before(was, one), one, seconds);
	}
	if (stays)
		fputs("\033[?7h", stdout);
	before = stays ? rows : 0;
}

static void watch_report(const struct watch *w, const struct sample *was, const struct sample *is, uint64_t nr)
{
	double seconds = (double)(is->time_ms - was->time_ms) / 1000;
	struct json_object *root;

	if (w->c->json) {
		root = watch_json(w, is);
		out_add(root, "seconds", json_object_new_double(seconds));
		out_json_line(root);
		json_object_put(root);
	} else {
		watch_table(w, was, is, nr, seconds);
	}
	fflush(stdout);
}

static int watch_again(const struct watch *w, struct sample *was)
{
	const struct ctl_value *opt = w->c->opt;
	uint64_t interval = opt[OPT_WATCH].text ? opt[OPT_WATCH].num : INTERVAL_MS;
	uint64_t count = opt[OPT_COUNT].num, next = was->time_ms;
	int status = CTL_OK;

	for (uint64_t nr = 0; !opt[OPT_COUNT].set || nr < count; nr++) {
		struct sample is;
		uint64_t now = ctl_now_ms();

		/* On the beat, unless the kernel took longer than that */
		next = next + interval > now ? next + interval : now + 1;
		ctl_sleep_ms(next - now);
		status = watch_take(w, &is);
		if (status)
			break;
		watch_report(w, was, &is, nr);
		json_object_put(was->objects);
		*was = is;
		if (ferror(stdout))
			break;
	}
	return status;
}

/* As --watch and --count say */
int watch_run(const struct watch *w)
{
	const struct ctl *c = w->c;
	struct sample first;
	int status;

	if (c->opt[OPT_COUNT].set && !c->opt[OPT_WATCH].set) {
		ctl_command_error(c, "--count: needs --watch");
		fprintf(stderr, "Try 'kvctxctl %s%s%s --help'.\n", c->cmd->noun, c->cmd->verb ? " " : "",
			c->cmd->verb ? c->cmd->verb : "");
		return CTL_USAGE;
	}
	status = watch_take(w, &first);
	if (status)
		return status;
	if (c->opt[OPT_WATCH].set)
		status = watch_again(w, &first);
	else
		watch_once(w, &first);
	json_object_put(first.objects);
	return status;
}
