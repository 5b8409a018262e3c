/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A pool of the engine itself (kmod/core) without devices: what it asks to be written is counted and not written. All
 * calls into the engine are in simpool.c.
 */
#ifndef KVCTX_SIMULATE_SIMPOOL_H
#define KVCTX_SIMULATE_SIMPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace.h"

#define SIMPOOL_MEMBERS_MAX	64
#define SIMPOOL_SEGMENT_MIN	(256U << 10)	/* bytes */
#define SIMPOOL_SEGMENT_MAX	(1024U << 20)
#define SIMPOOL_SEGMENT_ALIGN	4096U

struct simpool_plan {
	uint64_t page_size;	/* bytes */
	uint64_t segment_size;	/* bytes */
	uint64_t segment_pages;	/* that a segment takes */
	uint64_t segments;	/* of all members */
	uint64_t pages;		/* that all segments take */
	uint32_t members;
};

/*
 * Segments for about @pages pages. In: page_size, members, and segment_size or 0 to have it chosen. Out: the others;
 * pages is within half a segment of @pages. 0; -EINVAL: a page is longer than a segment takes; -ERANGE: too few pages
 * for the least number of segments, or too many; -ENOMEM.
 */
int simpool_plan(struct simpool_plan *plan, uint64_t pages);

/* What became of the pages, and what would have been written */
struct simpool_counters {
	uint64_t hits;		/* leading pages found */
	uint64_t stored;
	uint64_t dedups;	/* stores of pages that were there, behind a hole */
	uint64_t refused;	/* stores that the engine had no room for */
	uint64_t moved;
	uint64_t evicted;
	uint64_t host_bytes;	/* of stores, in whole blocks */
	uint64_t moved_bytes;
	uint64_t summary_bytes;	/* of segment headers and summaries */
};

struct simpool;

/* A blank pool after recovery. 0 or -errno */
int simpool_open(struct simpool **out, const struct simpool_plan *plan, uint64_t seed, size_t longest);
void simpool_close(struct simpool *s);

/*
 * Match the pages of a request, or not, load the leading ones that are there, store the others, then do all work that is
 * due. At most as many pages as @longest said. 0; or -errno, when the pool is of no more use.
 */
int simpool_request(struct simpool *s, const uint64_t *ids, size_t nr, bool match);

/* Make everything durable. 0 or -errno */
int simpool_flush(struct simpool *s);

void simpool_counters_get(struct simpool *s, struct simpool_counters *c);

/* (host + moved + summaries) / host; 1 when nothing was stored */
double simpool_amplification(const struct simpool_counters *c);

#endif
