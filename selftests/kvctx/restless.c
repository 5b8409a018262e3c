// SPDX-License-Identifier: GPL-2.0
/*
 * Stores pages from memory that another thread writes to all the time. For stable.sh.
 *
 *	restless N      prints "stored=N errors=N loaded=N unverified=N", the latter two of loads of what was stored
 */
#include <pthread.h>
#include <stdatomic.h>

#include "ktest.h"

#define PAGE (256U << 10)
#define BATCH 8U

static atomic_bool over;

static void *scribble(void *arg)
{
	volatile uint64_t *p = arg;
	uint64_t n = 0;

	while (!over)
		for (size_t i = 0; i < BATCH * PAGE / sizeof(*p); i += 64)
			p[i] = n++;
	return NULL;
}

/* How many of the batch have that result? Others go to *others */
static unsigned int batch(struct kt *k, uint8_t opcode, uint64_t from, size_t at, int want, unsigned int *others)
{
	struct kvctx_sqe sqes[BATCH];
	struct kvctx_seg segs[BATCH];
	struct kvctx_cqe cqe;
	unsigned int right = 0;

	for (unsigned int i = 0; i < BATCH; i++) {
		segs[i] = kt_seg(KVCTX_MEM_ARENA, at + i * PAGE, PAGE);
		sqes[i] = kt_io(opcode, kt_key(from + i), &segs[i], 1);
	}
	if (kt_submit(k, sqes, BATCH, BATCH) != (int)BATCH)
		exit(1);
	for (unsigned int i = 0; i < BATCH; i++) {
		if (!kt_reap(k, &cqe))
			exit(1);
		if (cqe.res == want)
			right++;
		else
			++*others;
	}
	return right;
}

int main(int argc, char **argv)
{
	unsigned int nr = argc == 2 ? (unsigned int)atoi(argv[1]) / BATCH * BATCH : 0, n;
	unsigned int stored = 0, errors = 0, loaded = 0, unverified = 0;
	pthread_t thread;
	struct kt k;

	if (!nr || kt_open(&k, O_RDWR, 0x45, 2UL * BATCH * PAGE, 64)) {
		fprintf(stderr, "usage: restless N\n");
		return 2;
	}
	if (pthread_create(&thread, NULL, scribble, k.arena))
		return 1;
	for (n = 0; n < nr; n += BATCH)
		stored += batch(&k, KVCTX_OP_STORE, n, 0, PAGE, &errors);
	over = true;
	pthread_join(thread, NULL);
	for (n = 0; n < nr; n += BATCH)
		loaded += batch(&k, KVCTX_OP_LOAD, n, BATCH * PAGE, PAGE, &unverified);
	printf("stored=%u errors=%u loaded=%u unverified=%u\n", stored, errors, loaded, unverified);
	kt_close(&k);
	return 0;
}
