// SPDX-License-Identifier: GPL-2.0
/*
 * top: tenants and members as they are busy, on a terminal. A table of rates since the last look, sorted by any column;
 * keys are told on the last line.
 *
 * What is shown is taken like that of tenant stat and pool list; a column is a function from the two last samples of an
 * object to a number, and how it is written.
 */
#include <curses.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "watch.h"

#define INTERVAL_MS	1000
#define CELL		32

enum top_form { TOP_NAME, TOP_COUNT, TOP_RATE, TOP_BYTES, TOP_PERCENT, TOP_US };

/* What a number is made of */
struct top_row {
	struct json_object *was, *is;	/* @was: NULL when it is new */
	double seconds;
};

struct top_column {
	const char *title;
	int width;
	enum top_form form;
	const char *key;
	double (*of)(const struct top_row *r, const char *key);	/* negative: none */
};

static double top_now(const struct top_row *r, const char *key)
{
	return out_get(r->is, key) ? (double)out_get_number(r->is, key) : -1;
}

static double top_rate(const struct top_row *r, const char *key)
{
	return (double)watch_since(r->was, r->is, key) / r->seconds;
}

static double top_hits(const struct top_row *r, const char *key)
{
	(void)key;
	return watch_hits(r->was, r->is);
}

/* @key: operation and priority, apart by a blank */
static double top_p99(const struct top_row *r, const char *key)
{
	char op[16];
	const char *prio = strchr(key, ' ') + 1;
	uint64_t ns;

	snprintf(op, sizeof(op), "%.*s", (int)(prio - 1 - key), key);
	ns = latency_p99(r->was, r->is, op, prio);
	return ns ? (double)ns / 1e3 : -1;
}

static double top_used(const struct top_row *r, const char *key)
{
	double size = top_now(r, key);

	return size > 0 ? 100 * top_now(r, "bytes") / size : -1;
}

static const struct top_column tenant_columns[] = {
	{ "TENANT", 24, TOP_NAME, "name", NULL },
	{ "BYTES", 10, TOP_BYTES, "bytes", top_now },
	{ "QUOTA-%", 8, TOP_PERCENT, "quota", top_used },
	{ "LOADS/s", 9, TOP_RATE, "loads", top_rate },
	{ "LOAD/s", 10, TOP_BYTES, "load_bytes", top_rate },
	{ "STORES/s", 9, TOP_RATE, "stores", top_rate },
	{ "STORE/s", 10, TOP_BYTES, "store_bytes", top_rate },
	{ "HIT-%", 6, TOP_PERCENT, NULL, top_hits },
	{ "EVICT/s", 8, TOP_RATE, "evicted_pages", top_rate },
	{ "LOAD-p99", 10, TOP_US, "load urgent", top_p99 },
	{ "STORE-p99", 10, TOP_US, "store normal", top_p99 },
	{ "WAITING", 8, TOP_COUNT, "waiting", top_now },
	{ "FAILED", 7, TOP_COUNT, "failed", top_rate },
	{ NULL }
};

static const struct top_column member_columns[] = {
	{ "MEMBER", 32, TOP_NAME, "name", NULL },
	{ "STATE", 9, TOP_NAME, "state", NULL },
	{ "SIZE", 10, TOP_BYTES, "size", top_now },
	{ "USED-%", 7, TOP_PERCENT, "size", top_used },
	{ "FREE-SEG", 9, TOP_COUNT, "segments_free", top_now },
	{ "IN-FLIGHT", 10, TOP_BYTES, "inflight_bytes", top_now },
	{ "WAITING", 8, TOP_COUNT, "waiting", top_now },
	{ NULL }
};

struct top {
	const struct ctl *c;
	bool members;			/* instead of tenants */
	int sort;			/* by that column */
	bool reverse;
	uint64_t interval_ms;
	struct sample was, is;		/* tenants; objects NULL: not taken yet */
	struct json_object *pools;	/* of the last look */
};

/* Samples */

static int top_dump(const struct ctl *c, uint8_t cmd, struct json_object *(*object)(const struct nl_object *o),
		    struct json_object *to)
{
	struct nl_request rq = { .cmd = cmd, .dump = true, .object = object, .pool = c->nr_args ? c->args[0] : NULL };

	/* all pools come, whatever is named, from the dump of pools */
	if (cmd == KVCTX_CMD_POOL_GET)
		rq.pool = NULL;
	return nl_request(c, &rq, to);
}

/* What the pool says of a tenant, beside what its operations came to */
static void top_join(struct json_object *stats, struct json_object *tenants)
{
	const struct sample all = { .objects = tenants };
	static const char *const keys[] = { "bytes", "quota" };

	for (size_t i = 0; i < json_object_array_length(stats); i++) {
		struct json_object *t = json_object_array_get_idx(stats, i);
		struct json_object *about = watch_find(&all, t, "pool", "tenant");
		char name[80];

		snprintf(name, sizeof(name), "%s/%s", out_get_text(t, "pool"), out_get_text(t, "tenant"));
		out_text(t, "name", name);
		for (size_t k = 0; about && k < sizeof(keys) / sizeof(*keys); k++)
			out_number(t, keys[k], out_get_number(about, keys[k]));
	}
}

static int top_take(struct top *t)
{
	struct json_object *tenants = out_array();
	struct sample s = { .time_ms = ctl_now_ms(), .objects = out_array() };
	struct json_object *pools = out_array();
	int status = top_dump(t->c, KVCTX_CMD_TENANT_STATS_GET, object_tenant_stats, s.objects);

	status = status ?: top_dump(t->c, KVCTX_CMD_TENANT_GET, object_tenant, tenants);
	status = status ?: top_dump(t->c, KVCTX_CMD_POOL_GET, object_pool, pools);
	if (!status)
		top_join(s.objects, tenants);
	json_object_put(tenants);
	if (status) {
		json_object_put(s.objects);
		json_object_put(pools);
		return status;
	}
	json_object_put(t->was.objects);
	json_object_put(t->pools);
	t->was = t->is;
	t->is = s;
	t->pools = pools;
	return CTL_OK;
}

/* All members, with names of their own */
static struct json_object *top_members(const struct top *t)
{
	struct json_object *all = out_array();

	for (size_t i = 0; i < json_object_array_length(t->pools); i++) {
		struct json_object *pool = json_object_array_get_idx(t->pools, i), *members = out_get(pool, "members");
		const char *name = out_get_text(pool, "name");

		if (t->c->nr_args && strcmp(name, t->c->args[0]))
			continue;
		for (size_t j = 0; j < json_object_array_length(members); j++) {
			struct json_object *m = json_object_array_get_idx(members, j);
			const char *device = out_get(m, "device") ? out_get_text(m, "device") : "missing";
			char text[300];

			snprintf(text, sizeof(text), "%s %s", name, device);
			out_text(m, "name", text);
			out_append(all, json_object_get(m));
		}
	}
	return all;
}

/* Rows and cells */

static const struct top_column *top_columns(const struct top *t)
{
	return t->members ? member_columns : tenant_columns;
}

/* One at least */
static int top_nr_columns(const struct top *t)
{
	int n = 1;

	while (top_columns(t)[n].title)
		n++;
	return n;
}

static double top_value(const struct top_column *col, const struct top_row *r)
{
	return col->of ? col->of(r, col->key) : -1;
}

static void top_cell(const struct top_column *col, const struct top_row *r, char text[CELL])
{
	double v = top_value(col, r);

	if (col->form == TOP_NAME)
		snprintf(text, CELL, "%s", out_get_text(r->is, col->key));
	else if (v < 0)
		snprintf(text, CELL, "-");
	else if (col->form == TOP_BYTES)
		out_size_text((uint64_t)v, text, CELL);
	else
		snprintf(text, CELL, col->form == TOP_PERCENT || col->form == TOP_US ? "%.1f" : "%.0f", v);
}

struct top_order {
	const struct top_column *col;
	bool reverse;
};

static int top_compare(const void *a, const void *b, void *arg)
{
	const struct top_order *o = arg;
	const struct top_row *x = a, *y = b;
	int order;

	if (o->col->form == TOP_NAME) {
		order = strcmp(out_get_text(x->is, o->col->key), out_get_text(y->is, o->col->key));
	} else {
		double v = top_value(o->col, x), w = top_value(o->col, y);

		/* busy ones first */
		order = (v < w) - (v > w);
		order = order ? order : strcmp(out_get_text(x->is, "name"), out_get_text(y->is, "name"));
	}
	return o->reverse ? -order : order;
}

/* The rows in order; to be freed. How many? */
static size_t top_rows(const struct top *t, struct json_object *objects, struct top_row **rows)
{
	size_t nr = json_object_array_length(objects);
	double seconds = t->was.objects ? (double)(t->is.time_ms - t->was.time_ms) / 1000 : 1;
	struct top_order order = { .col = &top_columns(t)[t->sort], .reverse = t->reverse };

	*rows = calloc(nr + 1, sizeof(**rows));
	if (!*rows)
		return 0;
	for (size_t i = 0; i < nr; i++) {
		struct json_object *is = json_object_array_get_idx(objects, i);

		(*rows)[i].is = is;
		(*rows)[i].seconds = seconds > 0 ? seconds : 1;
		if (!t->members && t->was.objects)
			(*rows)[i].was = watch_find(&t->was, is, "pool", "tenant");
	}
	qsort_r(*rows, nr, sizeof(**rows), top_compare, &order);
	return nr;
}

/* The screen */

static void top_put(int y, int *x, const struct top_column *col, const char *text, int attr)
{
	attron(attr);
	mvprintw(y, *x, col->form == TOP_NAME ? "%-*.*s" : "%*.*s", col->width, col->width, text);
	attroff(attr);
	*x += col->width + 1;
}

static void top_draw(const struct top *t)
{
	struct json_object *objects = t->members ? top_members(t) : json_object_get(t->is.objects);
	const struct top_column *cols = top_columns(t);
	struct top_row *rows;
	size_t nr = top_rows(t, objects, &rows);
	char text[CELL];
	int x = 0;

	erase();
	for (int i = 0; cols[i].title; i++)
		top_put(0, &x, &cols[i], cols[i].title, i == t->sort ? A_REVERSE : A_BOLD);
	for (size_t row = 0; row < nr && (int)row < LINES - 2; row++) {
		x = 0;
		for (int i = 0; cols[i].title; i++) {
			top_cell(&cols[i], &rows[row], text);
			top_put((int)row + 1, &x, &cols[i], text, A_NORMAL);
		}
	}
	mvprintw(LINES - 1, 0, "%zu %s, every %.1f s   q quit  m %s  < > sort by  r reverse  + - interval", nr,
		 t->members ? "members" : "tenants", (double)t->interval_ms / 1000, t->members ? "tenants" : "members");
	refresh();
	free(rows);
	json_object_put(objects);
}

/* False: quit */
static bool top_key(struct top *t, int key)
{
	int nr = top_nr_columns(t);

	switch (key) {
	case 'q':
	case 'Q':
		return false;
	case 'm':
	case 't':
		t->members = !t->members;
		t->sort = 0;
		break;
	case '<':
	case KEY_LEFT:
		t->sort = (t->sort + nr - 1) % nr;
		break;
	case '>':
	case KEY_RIGHT:
		t->sort = (t->sort + 1) % nr;
		break;
	case 'r':
		t->reverse = !t->reverse;
		break;
	case '+':
		t->interval_ms = t->interval_ms < 60000 ? t->interval_ms * 2 : t->interval_ms;
		break;
	case '-':
		t->interval_ms = t->interval_ms > 250 ? t->interval_ms / 2 : t->interval_ms;
		break;
	default:
		break;
	}
	return true;
}

/* Keys until it is time to look again. False: quit */
static bool top_wait(struct top *t)
{
	uint64_t until = ctl_now_ms() + t->interval_ms, now;
	int key;

	while ((now = ctl_now_ms()) < until) {
		timeout((int)(until - now));
		key = getch();
		if (key == ERR && ferror(stdin))
			return false;
		if (key == ERR)
			continue;
		if (!top_key(t, key))
			return false;
		top_draw(t);
	}
	return true;
}

static int top_loop(struct top *t)
{
	uint64_t count = t->c->opt[OPT_COUNT].num;
	int status = CTL_OK;

	for (uint64_t nr = 0; !t->c->opt[OPT_COUNT].set || nr < count; nr++) {
		top_draw(t);
		if (!top_wait(t))
			break;
		status = top_take(t);
		if (status)
			break;
	}
	return status;
}

int cmd_top(struct ctl *c)
{
	struct top t = {
		.c = c, .sort = 0, .interval_ms = c->opt[OPT_INTERVAL].set ? c->opt[OPT_INTERVAL].num : INTERVAL_MS,
	};
	SCREEN *screen;
	int status;

	if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
		ctl_command_error(c, "not a terminal: 'kvctxctl tenant stat --watch' writes lines");
		return CTL_FAILED;
	}
	/* errors of the first look are told before the screen is ours */
	status = top_take(&t);
	if (!status) {
		setlocale(LC_CTYPE, "");
		screen = newterm(NULL, stdout, stdin);
		if (!screen) {
			ctl_command_error(c, "no such terminal: TERM is %s",
					  getenv("TERM") ? getenv("TERM") : "not set");
			status = CTL_FAILED;
		} else {
			cbreak();
			noecho();
			keypad(stdscr, TRUE);
			curs_set(0);
			status = top_loop(&t);
			endwin();
			delscreen(screen);
			/* what it told is gone with the screen */
			if (status)
				status = top_take(&t);
		}
	}
	json_object_put(t.was.objects);
	json_object_put(t.is.objects);
	json_object_put(t.pools);
	return status;
}
