// SPDX-License-Identifier: GPL-2.0
/*
 * entry=uring: the same operations as commands of an io_uring.
 */
#include <liburing.h>

#include "engine.h"
#include "kvctx_uring.h"

int uring_open(struct thread_data *td, struct job *j, unsigned int depth)
{
	struct io_uring_params p = { .flags = IORING_SETUP_SQE128 | IORING_SETUP_SINGLE_ISSUER |
						  IORING_SETUP_DEFER_TASKRUN };
	int fd = kvctx_fd(j->ctx), err;

	j->ring = calloc(1, sizeof(*j->ring));
	if (!j->ring)
		return fail(td, ENOMEM, "entry=uring");
	err = io_uring_queue_init_params(2 * depth + 2, j->ring, &p);
	if (err) {
		free(j->ring);
		j->ring = NULL;
		return fail(td, -err, "entry=uring: io_uring cannot be used");
	}
	if (!(kvctx_get_info(j->ctx)->features & KVCTX_FEAT_URING))
		return fail(td, EOPNOTSUPP, "entry=uring: the module takes no io_uring commands");
	err = io_uring_register_files(j->ring, &fd, 1);
	return err ? fail(td, -err, "entry=uring: registering the session") : 0;
}

void uring_close(struct job *j)
{
	if (!j->ring)
		return;
	io_uring_queue_exit(j->ring);
	free(j->ring);
	j->ring = NULL;
}

void uring_queue(struct job *j, const struct kvctx_sqe *op, uint64_t user_data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(j->ring);

	/* the ring has two places for each io_u, and a command can tell all that op_make() does */
	if (!sqe || kvctx_uring_prep(sqe, 0, op))
		abort();
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	sqe->user_data = user_data;
}

int uring_submit(struct job *j)
{
	int ret = io_uring_submit(j->ring);

	return ret < 0 ? ret : 0;
}

/* The completions that are there, to j->done from number @nr on. Returns the new number. */
static unsigned int take(struct job *j, unsigned int nr, unsigned int max)
{
	struct io_uring_cqe *cqe;

	while (nr < max && !io_uring_peek_cqe(j->ring, &cqe)) {
		struct io_u *io_u = io_uring_cqe_get_data(cqe);

		if (io_u) {
			finish(j, io_u, cqe->res);
			j->done[nr++] = io_u;
		}
		io_uring_cqe_seen(j->ring, cqe);
	}
	return nr;
}

int uring_take(struct job *j, unsigned int min, unsigned int max, const struct timespec *t)
{
	struct __kernel_timespec limit = { .tv_sec = t ? t->tv_sec : 0, .tv_nsec = t ? t->tv_nsec : 0 };
	struct io_uring_cqe *cqe;
	unsigned int nr = 0;
	int ret;

	for (;;) {
		nr = take(j, nr, max);
		if (nr >= min)
			return nr;
		ret = io_uring_wait_cqes(j->ring, &cqe, 1, t ? &limit : NULL, NULL);
		if (ret == -ETIME)
			return nr;
		if (ret < 0 && ret != -EINTR)
			return ret;
	}
}
