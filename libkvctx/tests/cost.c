// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What the library adds to a batch: the processor's time for a whole call less that inside the server, a page.
 *
 *	cost DIR	make the pool DIR, and print the figures, of batches of 1,024
 *
 * With pages that are not there nothing but the calls is measured; where pages are moved the processor's caches are cold.
 * python/tests/cost.py has the same of Python, above the library. Nothing is asserted about time.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "handle.h"

#define PAGES	1024U
#define PAGE	4096U
#define ROUNDS	15U

static struct kvctx_key there[PAGES], absent[PAGES];
static void *addrs[PAGES];
static uint32_t lens[PAGES];
static int32_t res[PAGES];
static uint32_t flags[PAGES];

static const struct kvctx_server *server;	/* whose time is taken off */
static int64_t inside;

static void die(const char *what, int64_t err)
{
	fprintf(stderr, "cost: %s: %s\n", what, kvctx_strerror((int)err));
	exit(1);
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int timed_ioctl(struct kvctx_file *f, unsigned long nr, void *arg)
{
	int64_t began = now();
	int ret = server->ioctl(f, nr, arg);

	inside += now() - began;
	return ret;
}

static void timed_look(struct kvctx_file *f)
{
	int64_t began = now();

	server->look(f);
	inside += now() - began;
}

static struct kvctx *open_pool(const char *dir)
{
	struct kvctx_pool_params pool = { .size = sizeof(pool), .bytes = 64 << 20 };
	struct kvctx_params params = { .size = sizeof(params), .cq_entries = 4 * PAGES };
	static struct kvctx_server clock;
	char path[PATH_MAX];
	struct kvctx *ctx;
	int err;

	err = kvctx_pool_create(dir, &pool);
	if (err)
		die(dir, err);
	snprintf(path, sizeof(path), "%s/default", dir);
	err = kvctx_open(path, O_RDWR, &params, &ctx);
	if (err)
		die(path, err);
	server = ctx->file->server;
	clock = *server;
	clock.ioctl = timed_ioctl;
	clock.look = timed_look;
	ctx->file->server = &clock;
	return ctx;
}

static void make_pages(struct kvctx *ctx)
{
	char *memory;
	uint32_t i, id;
	int err;

	if (posix_memalign((void **)&memory, PAGE, PAGES * PAGE) ||
	    getrandom(there, sizeof(there), 0) != (ssize_t)sizeof(there))
		die("pages", -ENOMEM);
	memset(memory, 1, PAGES * PAGE);
	err = kvctx_mem_register(ctx, memory, PAGES * PAGE, &id);
	if (err)
		die("memory", err);
	for (i = 0; i < PAGES; i++) {
		absent[i] = there[i];
		absent[i].qualifier++;
		addrs[i] = memory + i * PAGE;
		lens[i] = PAGE;
	}
}

/* The completion of a batch that was submitted */
static int64_t take(struct kvctx *ctx)
{
	struct kvctx_cqe cqe;
	int ret = kvctx_wait(ctx, 1, KVCTX_TIMEOUT_NONE);

	return ret > 0 && kvctx_take(ctx, &cqe, 1) ? cqe.res : -EIO;
}

/* ns a page of one batch, of which @good succeed */
static double measure(struct kvctx *ctx, uint8_t opcode, const struct kvctx_key *keys, bool submit, uint32_t good)
{
	const struct kvctx_batch b = {
		.size = sizeof(b), .opcode = opcode, .nr = PAGES, .keys = keys, .addrs = addrs, .lens = lens, .res = res,
		.cqe_flags = flags,
	};
	int64_t began = now(), took, ret;

	inside = 0;
	ret = submit ? kvctx_batch_submit(ctx, &b) : kvctx_batch_run(ctx, &b);
	took = now() - began - inside;
	if (submit && !ret)
		ret = take(ctx);
	if (ret != good)
		die("batch", ret < 0 ? ret : -EIO);
	return (double)took / PAGES;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void show(struct kvctx *ctx, const char *what, const struct kvctx_key *keys, bool submit)
{
	double took[ROUNDS];
	uint32_t i;

	for (i = 0; i < ROUNDS; i++)
		took[i] = measure(ctx, KVCTX_OP_LOAD, keys, submit, keys == there ? PAGES : 0);
	qsort(took, ROUNDS, sizeof(took[0]), compare);
	printf("%-27s %6.1f ns a page\n", what, took[ROUNDS / 2]);
}

int main(int argc, char **argv)
{
	struct kvctx *ctx;

	if (argc != 2) {
		fprintf(stderr, "usage: cost DIR\n");
		return 2;
	}
	ctx = open_pool(argv[1]);
	make_pages(ctx);
	measure(ctx, KVCTX_OP_STORE, there, false, PAGES);
	show(ctx, "kvctx_batch_run, absent", absent, false);
	show(ctx, "kvctx_batch_submit, absent", absent, true);
	show(ctx, "kvctx_batch_run", there, false);
	show(ctx, "kvctx_batch_submit", there, true);
	kvctx_close(ctx);
	return 0;
}
