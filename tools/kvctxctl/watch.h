/* SPDX-License-Identifier: GPL-2.0 */
/* Samples of objects with counters, once or again and again: see watch.c. */
#ifndef CTL_WATCH_H
#define CTL_WATCH_H

#include "nl.h"
#include "out.h"

#define WATCH_MIB	(1024 * 1024.0)	/* rates of bytes are in the unit of sizes */

struct sample {
	uint64_t time_ms;
	struct json_object *objects;	/* array */
};

/* What a command watches */
struct watch {
	const struct ctl *c;
	const char *name;		/* of the array in JSON */
	int (*take)(const struct ctl *c, struct json_object *objects);	/* an exit status; has told what is wrong */
	void (*once)(struct json_object *object);			/* as text */
	void (*header)(void);						/* of the lines of rates */
	struct json_object *(*before)(const struct sample *was, struct json_object *is);	/* the same one then; or NULL */
	void (*rates)(struct json_object *was, struct json_object *is, double seconds);	/* a line; @was may be NULL */
};

int watch_run(const struct watch *w);
uint64_t watch_since(struct json_object *was, struct json_object *is, const char *key);
double watch_hits(struct json_object *was, struct json_object *is);
void watch_put_counter(const char *key, uint64_t num);
struct json_object *watch_find(const struct sample *s, struct json_object *is, const char *key1, const char *key2);

#endif
