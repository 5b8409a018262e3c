// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A ring that is an io_uring: registered files, and registered buffers where a transfer is one piece that lies in one.
 *
 * Any thread submits, under the lock. Transfers are queued in @todo first and sent from there, so a submission queue
 * that is full, or a kernel that cannot take more for now, delays them and nothing else. What is left is sent by who
 * takes completions, and again and again by who goes to sleep in the ring. Who sleeps there already knows nothing of
 * it. Completions that the kernel wants to see taken first (-EBUSY) wake him; if it has no memory, whoever sends, or
 * pokes, is told to see that it is tried again (ring.c). Other errors do not pass.
 *
 * No submission waits for a device: the lock is held over it, and callers have other things to do. A device that cannot
 * tell that it would make somebody wait gets its transfers from threads of the kernel's alone.
 *
 * Who sleeps may do so for several completions, which costs fewer turns of the scheduler than one after the other. He
 * sleeps for no more than are on their way, and a poke brings as many as he sleeps for.
 *
 * Completions are taken by one thread at a time. The lock, which he takes too, is what orders a transfer's submission
 * before its end in the eyes of the program; the kernel does so in fact.
 *
 * Of an orphan nothing is given to the kernel any more. Who closes pokes after he has made it one: what was on its way
 * through the lock is given by then, and what comes later finds it an orphan.
 *
 * Files and buffers are registered under the lock; a member's device when it is first used.
 */
#include <liburing.h>
#include <linux/ioprio.h>
#include <unistd.h>

#include "session.h"

#define URING_SQ_MAX	256U
#define URING_CQ_MAX	16384U
#define URING_BUFFERS	4096U		/* pieces of at most 1 GiB */
#define URING_TAKE	32U		/* completions at once, before somebody looks at them */

struct uring {
	struct kve_ring ring;
	struct io_uring u;
	pthread_mutex_t lock;
	struct kve_io *todo, **todo_end;
	u32 coming;			/* completions of what was given to the kernel, or is about to be */
	u32 nops;			/* pokes among them */
	u32 due;			/* pokes that there was no room for */
	u32 want;			/* that the sleeper waits for */
	u64 files;			/* members that are registered, by number */
	bool has_files, has_buffers;
	u32 buffer_next;
	u8 buffer_used[URING_BUFFERS];
};

static struct uring *uring_of(struct kve_ring *r)
{
	return (struct uring *)r;
}

/* The member's number among the registered files, or -1. */
static int uring_file(struct uring *r, const struct kve_member *m)
{
	if (!r->has_files)
		return -1;
	if (!(r->files & BIT_ULL(m->index))) {
		if (io_uring_register_files_update(&r->u, m->index, &m->dev->fd, 1) != 1)
			return -1;
		r->files |= BIT_ULL(m->index);
	}
	return (int)m->index;
}

static void uring_prepare(struct uring *r, struct io_uring_sqe *sqe, struct kve_io *io)
{
	int file = uring_file(r, io->member), fd = file < 0 ? io->member->dev->fd : file;
	u64 offset = io->offset + io->done;
	struct iovec *vec;
	u32 nr = kve_io_next(io, &vec);

	if (nr > 1 && io->write)
		io_uring_prep_writev(sqe, fd, vec, nr, offset);
	else if (nr > 1)
		io_uring_prep_readv(sqe, fd, vec, nr, offset);
	else if (io->buffer >= 0 && io->write)
		io_uring_prep_write_fixed(sqe, fd, vec->iov_base, (u32)vec->iov_len, offset, io->buffer);
	else if (io->buffer >= 0)
		io_uring_prep_read_fixed(sqe, fd, vec->iov_base, (u32)vec->iov_len, offset, io->buffer);
	else if (io->write)
		io_uring_prep_write(sqe, fd, vec->iov_base, (u32)vec->iov_len, offset);
	else
		io_uring_prep_read(sqe, fd, vec->iov_base, (u32)vec->iov_len, offset);
	if (file >= 0)
		sqe->flags |= IOSQE_FIXED_FILE;
	if (!io->member->dev->tells)
		sqe->flags |= IOSQE_ASYNC;
	sqe->ioprio = IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, io->level);
	io_uring_sqe_set_data(sqe, io);
	r->coming++;
}

/* What was prepared, and not taken by the kernel, of an orphan does nothing. It comes back like any other. */
static void uring_blank(struct uring *r)
{
	u32 at = r->u.sq.sqe_tail - io_uring_sq_ready(&r->u);
	struct io_uring_sqe *sqe;
	struct kve_io *io;

	for (; at != r->u.sq.sqe_tail; at++) {
		sqe = &r->u.sq.sqes[at & r->u.sq.ring_mask];
		io = (struct kve_io *)sqe->user_data;
		if (!io || !kve_io_orphaned(io))
			continue;
		io_uring_prep_nop(sqe);
		io_uring_sqe_set_data(sqe, io);
	}
}

/* Of an orphan those that are queued are over. */
static void uring_cut_off(struct uring *r, struct kve_io **over)
{
	struct kve_io *io;

	if (!r->todo || !kve_io_orphaned(r->todo))
		return;
	while ((io = r->todo)) {
		r->todo = io->next;
		io->err = -ECANCELED;
		io->next = *over;
		*over = io;
	}
	r->todo_end = &r->todo;
}

/* Room for one more. NULL: there is none, and *@err is the kernel's, or 0 */
static struct io_uring_sqe *uring_room(struct uring *r, int *err)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->u);

	*err = 0;
	if (sqe)
		return sqe;
	*err = min(io_uring_submit(&r->u), 0);
	return *err ? NULL : io_uring_get_sqe(&r->u);
}

/* Operations that do nothing come back at once. 0, or the kernel's error */
static int uring_prepare_pokes(struct uring *r)
{
	struct io_uring_sqe *sqe;
	int err = 0;

	while (r->due) {
		sqe = uring_room(r, &err);
		if (!sqe)
			break;
		io_uring_prep_nop(sqe);
		io_uring_sqe_set_data(sqe, NULL);
		r->due--;
		r->coming++;
		r->nops++;
	}
	return err;
}

static int uring_prepare_queued(struct uring *r)
{
	struct io_uring_sqe *sqe;
	struct kve_io *io;
	int err = 0;

	/* for who takes completions to cut off */
	if (r->todo && kve_io_orphaned(r->todo))
		return 0;
	while ((io = r->todo)) {
		sqe = uring_room(r, &err);
		if (!sqe)
			return err;
		r->todo = io->next;
		uring_prepare(r, sqe, io);
	}
	r->todo_end = &r->todo;
	return err;
}

/* Send what is prepared, unless that has met with @err. true: the kernel has no memory for what is left. */
static bool uring_submit(struct uring *r, int err)
{
	int ret = 1;

	/* it stops at one that it refuses */
	while (!err && ret && io_uring_sq_ready(&r->u)) {
		ret = io_uring_submit(&r->u);
		err = min(ret, 0);
	}
	return err == -EAGAIN || err == -ENOMEM;
}

/* Send what is queued, as far as the kernel takes it. true: as above */
static bool uring_flush(struct uring *r)
{
	int err;

	uring_blank(r);
	err = uring_prepare_pokes(r);
	if (!err)
		err = uring_prepare_queued(r);
	return uring_submit(r, err);
}

static void uring_append(struct uring *r, struct kve_io *io)
{
	io->next = NULL;
	*r->todo_end = io;
	r->todo_end = &io->next;
}

static void uring_queue(struct kve_ring *ring, struct kve_io *io)
{
	struct uring *r = uring_of(ring);

	pthread_mutex_lock(&r->lock);
	uring_append(r, io);
	pthread_mutex_unlock(&r->lock);
}

static bool uring_send(struct kve_ring *ring)
{
	struct uring *r = uring_of(ring);
	bool again;

	pthread_mutex_lock(&r->lock);
	again = uring_flush(r);
	pthread_mutex_unlock(&r->lock);
	return again;
}

/* Take completions; true: something came, a poke at least, or is over. */
static bool uring_take(struct uring *r, struct kve_io **over)
{
	struct io_uring_cqe *cqes[URING_TAKE];
	u32 nr = io_uring_peek_batch_cqe(&r->u, cqes, URING_TAKE), i;
	struct kve_io *io;
	bool came;

	pthread_mutex_lock(&r->lock);
	came = nr || r->due;
	r->due = 0;
	for (i = 0; i < nr; i++) {
		io = io_uring_cqe_get_data(cqes[i]);
		if (!io) {
			r->nops--;
			continue;
		}
		if (kve_io_step(io, cqes[i]->res)) {
			io->next = *over;
			*over = io;
		} else {
			uring_append(r, io);
		}
	}
	io_uring_cq_advance(&r->u, nr);
	r->coming -= nr;
	r->want = 1;
	uring_cut_off(r, over);
	if (r->todo || io_uring_sq_ready(&r->u))
		uring_flush(r);
	pthread_mutex_unlock(&r->lock);
	return came || *over;
}

/* For how many completions to sleep, at most @want. *@unsent: is anything queued that the kernel has not taken? */
static u32 uring_sleep_for(struct uring *r, u32 want, bool *unsent)
{
	pthread_mutex_lock(&r->lock);
	*unsent = r->todo || r->due || io_uring_sq_ready(&r->u);
	/* after a poke that has come just now nobody sleeps for more */
	want = *unsent || r->nops ? 1 : min(min(want, r->coming), URING_TAKE);
	r->want = want = max(want, 1U);
	pthread_mutex_unlock(&r->lock);
	return want;
}

static int uring_wait(struct kve_ring *ring, u64 until, u32 want, struct kve_io **over)
{
	struct uring *r = uring_of(ring);
	struct __kernel_timespec ts;
	struct io_uring_cqe *cqe;
	bool unsent;
	u64 now;
	int err;

	*over = NULL;
	if (uring_take(r, over) || !until)
		return 0;
	now = kve_now();
	want = uring_sleep_for(r, want, &unsent);
	if (unsent)
		until = min(until, (u64)(now + KVE_RING_AGAIN));
	if (until <= now)
		return 0;
	ts.tv_sec = (s64)((until - now) / KVE_NSEC);
	ts.tv_nsec = (s64)((until - now) % KVE_NSEC);
	err = io_uring_wait_cqes(&r->u, &cqe, want, until == KVE_NEVER ? NULL : &ts, NULL);
	uring_take(r, over);
	/* forbidden by now (seccomp): what is on the way is found by looking */
	if (err && err != -EINTR && err != -ETIME && err != -EAGAIN && !*over)
		usleep(KVE_RING_AGAIN / 1000);
	return err == -EINTR && !*over ? -EINTR : 0;
}

/* What is queued waits for who sends it: callers have a lock. */
static bool uring_poke(struct kve_ring *ring)
{
	struct uring *r = uring_of(ring);
	bool again;

	pthread_mutex_lock(&r->lock);
	r->due = r->want;
	uring_blank(r);
	again = uring_submit(r, uring_prepare_pokes(r));
	pthread_mutex_unlock(&r->lock);
	return again;
}

static s32 uring_buffer_free(struct uring *r)
{
	u32 i, at;

	for (i = 0; i < URING_BUFFERS; i++) {
		at = (r->buffer_next + i) % URING_BUFFERS;
		if (!r->buffer_used[at])
			return (s32)at;
	}
	return -ENOMEM;
}

static int uring_buffer_set(struct uring *r, s32 buffer, void *addr, size_t len)
{
	struct iovec vec = { .iov_base = addr, .iov_len = len };
	__u64 tag = 0;
	int ret = io_uring_register_buffers_update_tag(&r->u, (u32)buffer, &vec, &tag, 1);

	return ret == 1 ? 0 : ret < 0 ? ret : -ENOMEM;
}

static s32 uring_buffer_add(struct kve_ring *ring, void *addr, size_t len)
{
	struct uring *r = uring_of(ring);
	s32 buffer = -ENOMEM;
	int err;

	pthread_mutex_lock(&r->lock);
	if (r->has_buffers)
		buffer = uring_buffer_free(r);
	if (buffer >= 0) {
		err = uring_buffer_set(r, buffer, addr, len);
		r->buffer_used[buffer] = !err;
		r->buffer_next = (u32)buffer + 1;
		if (err)
			buffer = err;
	}
	pthread_mutex_unlock(&r->lock);
	return buffer;
}

static void uring_buffer_remove(struct kve_ring *ring, s32 buffer)
{
	struct uring *r = uring_of(ring);

	pthread_mutex_lock(&r->lock);
	uring_buffer_set(r, buffer, NULL, 0);
	r->buffer_used[buffer] = 0;
	pthread_mutex_unlock(&r->lock);
}

static void uring_let_go(struct kve_ring *ring, u32 member)
{
	struct uring *r = uring_of(ring);
	int none = -1;

	pthread_mutex_lock(&r->lock);
	if (r->files & BIT_ULL(member))
		io_uring_register_files_update(&r->u, member, &none, 1);
	r->files &= ~BIT_ULL(member);
	pthread_mutex_unlock(&r->lock);
}

static void uring_close(struct kve_ring *ring)
{
	struct uring *r = uring_of(ring);

	/* who poked last may be on his way out */
	pthread_mutex_lock(&r->lock);
	pthread_mutex_unlock(&r->lock);
	kve_fork_lock();
	kve_fork_disown(r->u.ring_fd);
	/* the kernel takes the ring down later; the pool's locks shall not wait for that */
	if (r->has_files)
		io_uring_unregister_files(&r->u);
	io_uring_queue_exit(&r->u);
	kve_fork_unlock();
	pthread_mutex_destroy(&r->lock);
	free(r);
}

static const struct kve_ring_kind uring_kind = {
	.queue = uring_queue, .send = uring_send, .wait = uring_wait, .poke = uring_poke,
	.buffer_add = uring_buffer_add, .buffer_remove = uring_buffer_remove, .let_go = uring_let_go,
	.close = uring_close,
};

/* Waiting with a limit must not need the submission queue, and no completion may be lost. */
static bool uring_fits(const struct uring *r)
{
	const u32 needs = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP;

	return (r->u.features & needs) == needs;
}

static int uring_init(struct uring *r, u32 entries)
{
	u32 sq = 8;
	struct io_uring_params params = { .flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP };
	int err = -ENOSYS;

	while (sq < entries && sq < URING_SQ_MAX)
		sq *= 2;
	for (params.cq_entries = 4 * sq; params.cq_entries < 2 * entries && params.cq_entries < URING_CQ_MAX;)
		params.cq_entries *= 2;
	kve_fork_lock();
	if (!io_uring_queue_init_params(sq, &r->u, &params)) {
		if (uring_fits(r) && !io_uring_ring_dontfork(&r->u))
			err = kve_fork_own(r->u.ring_fd);
		if (err)
			io_uring_queue_exit(&r->u);
	}
	kve_fork_unlock();
	return err;
}

int kve_uring_open(struct kve_ring **out, u32 entries)
{
	struct uring *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	err = uring_init(r, entries);
	if (err) {
		free(r);
		return err;
	}
	r->ring.kind = &uring_kind;
	r->todo_end = &r->todo;
	r->want = 1;
	pthread_mutex_init(&r->lock, NULL);
	r->has_files = !io_uring_register_files_sparse(&r->u, KVC_MEMBERS_MAX);
	r->has_buffers = !io_uring_register_buffers_sparse(&r->u, URING_BUFFERS);
	*out = &r->ring;
	return 0;
}
