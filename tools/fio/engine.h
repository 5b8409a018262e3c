/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The fio engine of kvctx: what its files share.
 *
 * Vocabulary
 *   io_u      fio's unit of I/O: one buffer, one offset, read, write, trim or sync
 *   page      a page of kvctx; page number n of a fio file holds the bytes from n * page on
 *   unit      what the engine keeps for an io_u (struct unit)
 *   job       fio's thread_data: one session of kvctx
 *
 * fio's headers define names and macros freely, so they come first, and libkvctx's after them.
 */
#ifndef KVCTX_FIO_ENGINE_H
#define KVCTX_FIO_ENGINE_H

#include "fio.h"
#include "optgroup.h"

#include "kvctx.h"

struct io_uring;

enum entry { ENTRY_IOCTL, ENTRY_URING };
enum memory { MEMORY_ARENA, MEMORY_REGISTERED, MEMORY_PEER };
enum overwrite { OVERWRITE_REPLACE, OVERWRITE_DEDUP, OVERWRITE_NEW };
enum miss { MISS_ERROR, MISS_IGNORE };

/* What a job's options set; fio fills it by offset. The first member is fio's */
struct options {
	void *pad;
	char *path;
	char *pool;
	char *tenant;
	char *keyspace;
	char *peer_file;
	unsigned long long page;
	unsigned int segments;
	unsigned int entry;
	unsigned int memory;
	unsigned int overwrite;
	unsigned int miss;
	unsigned int verify_load;
	unsigned int prio;
	unsigned int timeout_ms;
};

extern struct fio_option kvctx_fio_options[];

struct unit {
	struct io_u *io_u;
	struct kvctx_seg segs[];
};

struct job {
	struct kvctx *ctx;
	const struct options *o;
	uint64_t page;			/* bytes */
	uint64_t generation;		/* of pages written with overwrite=new */
	uint32_t mem;			/* memory id of the buffers */
	uint8_t *base;			/* of the buffers; offset 0 of that memory */
	size_t bytes;
	uint32_t flags;			/* of every LOAD and STORE */

	struct fio_file *named;		/* that name[] is of */
	uint64_t name[2];

	struct io_u **queued;		/* since the last commit */
	unsigned int nr_queued;
	unsigned int room, places;	/* left in the entry point's queue, and all of them */
	struct io_u **done;		/* of the last getevents */

	struct kvctx_cqe *cqes;		/* room for iodepth of them */

	/* entry=uring */
	struct io_uring *ring;
	struct kvctx_sqe op;		/* before it is made a command */
};

/* Say what is wrong; returns 1, which ends the job */
/* Buffers are whole huge pages, which the kernel then may use */
static inline size_t whole_huge(size_t bytes)
{
	const size_t huge = 2UL << 20;

	return (bytes + huge - 1) & ~(huge - 1);
}

int fail(struct thread_data *td, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* memory.c */
int memory_alloc(struct thread_data *td, size_t bytes);
void memory_free(struct thread_data *td);

/*
 * op.c: the key of an io_u's page; can there be an operation for it? And the operation, without user_data, into a
 * cleared one.
 */
struct kvctx_key page_key(struct job *j, const struct io_u *io_u);
bool op_fits(const struct job *j, const struct io_u *io_u);
void op_make(struct job *j, struct io_u *io_u, struct kvctx_sqe *sqe);

/* Result of an operation for its io_u. engine.c */
void finish(struct job *j, struct io_u *io_u, int res);

/* uring.c */
int uring_open(struct thread_data *td, struct job *j, unsigned int depth);
void uring_close(struct job *j);
void uring_queue(struct job *j, const struct kvctx_sqe *sqe, uint64_t user_data);
int uring_submit(struct job *j);
int uring_take(struct job *j, unsigned int min, unsigned int max, const struct timespec *limit);

#endif
