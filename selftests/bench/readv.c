// SPDX-License-Identifier: GPL-2.0
/*
 * Scattered reads and writes of a block device or file through io_uring READV and WRITEV, which fio cannot ask for.
 *
 *	readv DEVICE load|store SIZE DEPTH COUNT SEGMENTS SPAN
 *
 * COUNT operations of SIZE bytes at random multiples of it in the first SPAN bytes, DEPTH at a time, each with SEGMENTS
 * pieces of memory, no two of which touch in the list's order. A COUNT that ends in "ms" is for how long it goes on.
 * Batches as fio's with iodepth_batch_complete_min of half the depth. Prints "BYTES NANOSECONDS CPU", CPU being the
 * nanoseconds of the processors.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct work {
	struct io_uring ring;
	bool store;
	uint32_t size, depth, count, segments;
	uint64_t end;		/* when to stop; 0: after count operations */
	uint64_t places;	/* pages in the span */
	uint64_t random;
	struct iovec *iovecs;	/* segments of each place in the queue */
	uint32_t *free;
	uint32_t nr_free;
};

static void die(const char *what, int err)
{
	fprintf(stderr, "readv: %s: %s\n", what, strerror(err));
	exit(1);
}

static uint64_t next_place(struct work *w)
{
	/* constants of Knuth's MMIX generator */
	w->random = w->random * 6364136223846793005ULL + 1442695040888963407ULL;
	return (w->random >> 33) % w->places;
}

static void prepare(struct work *w)
{
	uint32_t piece = w->size / w->segments, slot, i;
	uint8_t *buf;

	if (posix_memalign((void **)&buf, 2 << 20, (size_t)w->size * w->depth))
		die("memory", ENOMEM);
	memset(buf, 1, (size_t)w->size * w->depth);
	w->iovecs = calloc((size_t)w->depth * w->segments, sizeof(*w->iovecs));
	w->free = calloc(w->depth, sizeof(*w->free));
	if (!w->iovecs || !w->free)
		die("memory", ENOMEM);
	for (slot = 0; slot < w->depth; slot++) {
		w->free[w->nr_free++] = slot;
		for (i = 0; i < w->segments; i++)
			w->iovecs[slot * w->segments + i] = (struct iovec){
				buf + (size_t)slot * w->size + (size_t)(w->segments - 1 - i) * piece, piece };
	}
}

static void queue_one(struct work *w)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&w->ring);
	uint32_t slot = w->free[--w->nr_free];
	struct iovec *v = w->iovecs + (size_t)slot * w->segments;
	uint64_t at = next_place(w) * w->size;

	if (w->store)
		io_uring_prep_writev(sqe, 0, v, w->segments, at);
	else
		io_uring_prep_readv(sqe, 0, v, w->segments, at);
	sqe->flags |= IOSQE_FIXED_FILE;
	sqe->user_data = slot;
}

static uint32_t take_completions(struct work *w)
{
	struct io_uring_cqe *cqe;
	unsigned int head;
	uint32_t n = 0;

	io_uring_for_each_cqe(&w->ring, head, cqe) {
		if (cqe->res != (int)w->size)
			die("transfer", cqe->res < 0 ? -cqe->res : EIO);
		w->free[w->nr_free++] = cqe->user_data;
		n++;
	}
	io_uring_cq_advance(&w->ring, n);
	return n;
}

static uint64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

/* Returns how many operations there were. */
static uint32_t run(struct work *w)
{
	uint32_t queued = 0, done = 0, want, left;
	int n;

	while (done < w->count) {
		if (w->end && now(CLOCK_MONOTONIC) >= w->end)
			w->count = queued;
		while (w->nr_free && queued < w->count) {
			queue_one(w);
			queued++;
		}
		left = w->count - done;
		want = (w->depth + 1) / 2;
		n = io_uring_submit_and_wait(&w->ring, left < want ? left : want);
		if (n < 0)
			die("submit", -n);
		done += take_completions(w);
	}
	return done;
}

static void set_end(struct work *w, const char *text)
{
	char *unit;

	w->count = strtoul(text, &unit, 0);
	if (strcmp(unit, "ms"))
		return;
	w->end = now(CLOCK_MONOTONIC) + w->count * 1000000ULL;
	w->count = UINT32_MAX;
}

int main(int argc, char **argv)
{
	struct work w = { .random = 1 };
	uint64_t start, cpu, moved;
	int fd, err;

	if (argc != 8) {
		fprintf(stderr, "usage: readv DEVICE load|store SIZE DEPTH COUNT SEGMENTS SPAN\n");
		return 2;
	}
	w.store = !strcmp(argv[2], "store");
	w.size = strtoul(argv[3], NULL, 0);
	w.depth = strtoul(argv[4], NULL, 0);
	w.segments = strtoul(argv[6], NULL, 0);
	if (!w.size || !w.depth || !w.segments || w.size % w.segments)
		die("sizes", EINVAL);
	w.places = strtoull(argv[7], NULL, 0) / w.size;
	if (!w.places)
		die("span", EINVAL);
	prepare(&w);
	fd = open(argv[1], O_RDWR | O_DIRECT);
	if (fd < 0)
		die(argv[1], errno);
	err = io_uring_queue_init(w.depth, &w.ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
	if (!err)
		err = io_uring_register_files(&w.ring, &fd, 1);
	if (err)
		die("io_uring", -err);
	set_end(&w, argv[5]);
	start = now(CLOCK_MONOTONIC);
	cpu = now(CLOCK_PROCESS_CPUTIME_ID);
	moved = (uint64_t)run(&w) * w.size;
	cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	printf("%llu %llu %llu\n", (unsigned long long)moved, (unsigned long long)(now(CLOCK_MONOTONIC) - start),
	       (unsigned long long)cpu);
	return 0;
}
