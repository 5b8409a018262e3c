/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a replay counts.
 *
 * Every page that a request names is referenced once. The leading ones that MATCH reports are hits; of these, each is
 * loaded, lost, bad or failed with an error. Each page that was not loaded is stored, with the outcome stored, dedup,
 * unadmitted or error. wrong_pages counts loads whose bytes differ, in content or in number, from what was stored.
 */
#ifndef KVCTX_REPLAY_STATS_H
#define KVCTX_REPLAY_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hist.h"

#define STATS_REASONS	16

/* Errors of one kind; the last row of a full table takes all further kinds as code 0 */
struct reason {
	int code;		/* errno, positive */
	uint64_t count;
};

struct stats {
	uint64_t requests;
	uint64_t pages_referenced;
	uint64_t pages_hit;
	uint64_t pages_loaded;
	uint64_t pages_stored;
	uint64_t bytes_loaded;
	uint64_t bytes_stored;
	uint64_t wrong_pages;
	uint64_t bad_pages;		/* LOAD: -EBADMSG */
	uint64_t lost_pages;		/* LOAD: -ENOENT */
	uint64_t dedup_pages;		/* STORE: DEDUP */
	uint64_t unadmitted_pages;	/* STORE: UNADMITTED, not written */
	uint64_t unverified_pages;	/* LOAD without VERIFIED */
	uint64_t errors;
	uint64_t retries;		/* STORE: -EAGAIN, tried again */
	uint64_t load_ns;		/* in load phases */
	uint64_t store_ns;		/* in store phases */
	uint64_t flush_ns;
	uint64_t elapsed_ns;
	bool completed;
	struct reason reasons[STATS_REASONS];
	struct hist match;		/* nanoseconds of one request's MATCH */
	struct hist load;		/* nanoseconds of one page, submit to completion */
	struct hist store;		/* of pages that are in the pool then: stored or dedup */
};

/* Count an error; @code is a negative errno */
void stats_error(struct stats *s, int code);

double stats_hit_ratio(const struct stats *s);

/* @bytes in @ns as 10^6 bytes a second; 0 when no time passed */
double stats_mbps(uint64_t bytes, uint64_t ns);

/* Whether the replay may end with exit status 0 */
bool stats_good(const struct stats *s, bool verify);

#endif
