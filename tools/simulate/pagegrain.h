/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What caches that evict single pages would hit: what a simulated pool is measured by.
 *
 * A request's pages are looked up in prefix order until one is missing; those before it are hits. Then all of them are
 * put into the cache.
 */
#ifndef KVCTX_SIMULATE_PAGEGRAIN_H
#define KVCTX_SIMULATE_PAGEGRAIN_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "trace.h"

/* A trace whose pages are numbered from 0 in the order of their ids */
struct refs {
	const struct trace *trace;
	uint32_t *pages;	/* number of each of trace->ids */
	uint32_t *next;		/* the next request that names the page of each of trace->ids, or REFS_NEVER */
	size_t nr_pages;	/* distinct */
};

#define REFS_NEVER	UINT32_MAX

/* 0, -ENOMEM, or -EOVERFLOW: more references than can be counted. @t stays in use until refs_free() */
int refs_init(struct refs *r, const struct trace *t);
void refs_free(struct refs *r);

enum pagegrain {
	/* The page that came first goes; the missing pages of a request come in prefix order */
	PAGEGRAIN_FIFO,
	/* The page not used for longest goes; the pages of a request are used deepest first, so the deepest goes */
	PAGEGRAIN_LRU,
	/*
	 * Furthest next use, with bypass: a page takes the place of one that is needed by a later request than it, or
	 * stays out. Of pages that the same request needs next, the one not used for longest goes.
	 */
	PAGEGRAIN_OPTIMUM,
	NR_PAGEGRAIN,
};

/*
 * Leading pages found by all requests in a cache of @capacity pages. 0, -ENOMEM, or -EINTR when *@stop became non-zero.
 */
int pagegrain_hits(const struct refs *r, enum pagegrain which, size_t capacity, const volatile sig_atomic_t *stop,
		   uint64_t *hits);

#endif
