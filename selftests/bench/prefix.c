// SPDX-License-Identifier: GPL-2.0
/*
 * A prefix of pages through libkvctx: what MATCH costs, and which system calls a LOAD of the prefix makes.
 *
 *	prefix store PAGES SIZE		store a prefix, and see that it is there
 *	prefix match PAGES ROUNDS	print the nanoseconds of a MATCH of the first PAGES pages, median of ROUNDS
 *	prefix load PAGES SIZE		one MATCH, then LOAD of all pages found, between two calls of getppid()
 *
 * The pool is t, its tenant default. For strace, the calls of getppid() are the marks.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kvctx.h"

#define NODE	"/dev/kvctx/t/default"
#define BATCH	64	/* pages of the arena of a store */

static struct kvctx *ctx;
static struct kvctx_key *keys;

static void die(const char *what, int64_t err)
{
	fprintf(stderr, "prefix: %s: %s\n", what, kvctx_strerror(err));
	exit(1);
}

static void start(uint32_t pages, uint64_t arena)
{
	struct kvctx_params params = {
		.size = sizeof(params), .keyspace = "bench-prefix", .arena_bytes = arena, .cq_entries = pages,
	};
	uint32_t i;
	int err;

	if (params.cq_entries > 4096)
		params.cq_entries = 4096;
	err = kvctx_open(NODE, O_RDWR, &params, &ctx);
	if (err)
		die(NODE, err);
	keys = calloc(pages, sizeof(*keys));
	if (!keys)
		die("keys", -ENOMEM);
	for (i = 0; i < pages; i++)
		memcpy(keys[i].digest, &i, sizeof(i));
}

static void match_all(uint32_t pages)
{
	int64_t n = kvctx_match(ctx, keys, pages, NULL, 0, NULL);

	if (n != pages) {
		fprintf(stderr, "prefix: %lld of %u pages are there\n", (long long)n, pages);
		exit(1);
	}
}

static void take(uint32_t nr, int32_t res)
{
	struct kvctx_cqe cqes[BATCH];
	unsigned int n, i;

	while (nr) {
		n = kvctx_take(ctx, cqes, BATCH);
		if (!n)
			die("completion missing", -EIO);
		for (i = 0; i < n; i++)
			if (cqes[i].res != res)
				die("operation", cqes[i].res);
		nr -= n;
	}
}

/* One batch, stored or loaded; page i at i * @size of the arena */
static void move(bool store, const struct kvctx_key *first, uint32_t nr, uint32_t size)
{
	struct kvctx_seg *segs = calloc(nr, sizeof(*segs));
	struct kvctx_sqe *sqe;
	uint32_t i;
	int n;

	if (!segs)
		die("segments", -ENOMEM);
	for (i = 0; i < nr; i++) {
		segs[i] = (struct kvctx_seg){ .mem = KVCTX_MEM_ARENA, .offset = (uint64_t)i * size, .length = size };
		sqe = kvctx_get_sqe(ctx);
		if (!sqe)
			die("queue", -EAGAIN);
		if (store)
			kvctx_prep_store(sqe, &first[i], &segs[i], 1, size, 0);
		else
			kvctx_prep_load(sqe, &first[i], &segs[i], 1, 0, size);
	}
	n = kvctx_submit_and_wait(ctx, nr, KVCTX_TIMEOUT_NONE);
	if (n != (int)nr)
		die("submit", n < 0 ? n : -EAGAIN);
	take(nr, size);
	free(segs);
}

static void store_prefix(uint32_t pages, uint32_t size)
{
	uint32_t i, n;

	start(pages, (uint64_t)BATCH * size);
	for (i = 0; i < pages; i += n) {
		n = pages - i < BATCH ? pages - i : BATCH;
		move(true, keys + i, n, size);
	}
	match_all(pages);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void time_match(uint32_t pages, uint32_t rounds)
{
	uint64_t *times = calloc(rounds, sizeof(*times));
	uint32_t i;

	start(pages, 0);
	if (!times || !rounds)
		die("rounds", -EINVAL);
	match_all(pages);
	for (i = 0; i < rounds; i++) {
		times[i] = now();
		match_all(pages);
		times[i] = now() - times[i];
	}
	qsort(times, rounds, sizeof(*times), compare);
	printf("%llu\n", (unsigned long long)times[rounds / 2]);
	free(times);
}

static void load_prefix(uint32_t pages, uint32_t size)
{
	start(pages, (uint64_t)pages * size);
	getppid();
	match_all(pages);
	move(false, keys, pages, size);
	getppid();
}

int main(int argc, char **argv)
{
	uint32_t pages = argc == 4 ? strtoul(argv[2], NULL, 0) : 0, arg = argc == 4 ? strtoul(argv[3], NULL, 0) : 0;

	if (pages && arg && !strcmp(argv[1], "store")) {
		store_prefix(pages, arg);
	} else if (pages && arg && !strcmp(argv[1], "match")) {
		time_match(pages, arg);
	} else if (pages && arg && !strcmp(argv[1], "load")) {
		load_prefix(pages, arg);
	} else {
		fprintf(stderr, "usage: prefix store PAGES SIZE | match PAGES ROUNDS | load PAGES SIZE\n");
		return 2;
	}
	kvctx_close(ctx);
	free(keys);
	return 0;
}
