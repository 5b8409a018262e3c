// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A ring that is a few threads, for where io_uring is forbidden. Each takes a transfer and makes it, step by step.
 */
#include <semaphore.h>
#include <time.h>

#include "session.h"

#define IOTHREADS	16

struct iothreads {
	struct kve_ring ring;
	pthread_mutex_t lock;		/* all below */
	pthread_cond_t work;
	struct kve_io *todo, **todo_end;
	struct kve_io *over;
	bool poked, stop;
	sem_t event;			/* something is over, or poked */
	u32 nr;
	pthread_t threads[IOTHREADS];
};

static struct iothreads *iothreads_of(struct kve_ring *r)
{
	return (struct iothreads *)r;
}

static void iothreads_move(struct kve_io *io)
{
	int fd = io->member->dev->fd;
	struct iovec *vec;
	ssize_t res;
	u32 nr;

	do {
		nr = kve_io_next(io, &vec);
		res = -1;
		errno = ECANCELED;
		if (kve_io_orphaned(io))
			continue;
		if (io->write)
			res = pwritev2(fd, vec, (int)nr, (off_t)(io->offset + io->done), 0);
		else
			res = preadv2(fd, vec, (int)nr, (off_t)(io->offset + io->done), 0);
	} while (!kve_io_step(io, res < 0 ? -errno : res));
}

static void *iothreads_main(void *arg)
{
	struct iothreads *r = arg;
	struct kve_io *io;

	pthread_mutex_lock(&r->lock);
	while (!r->stop) {
		io = r->todo;
		if (!io) {
			pthread_cond_wait(&r->work, &r->lock);
			continue;
		}
		r->todo = io->next;
		if (!r->todo)
			r->todo_end = &r->todo;
		pthread_mutex_unlock(&r->lock);
		iothreads_move(io);
		pthread_mutex_lock(&r->lock);
		io->next = r->over;
		r->over = io;
		if (!io->next)
			sem_post(&r->event);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static void iothreads_queue(struct kve_ring *ring, struct kve_io *io)
{
	struct iothreads *r = iothreads_of(ring);

	io->next = NULL;
	pthread_mutex_lock(&r->lock);
	*r->todo_end = io;
	r->todo_end = &io->next;
	pthread_cond_signal(&r->work);
	pthread_mutex_unlock(&r->lock);
}

static bool iothreads_send(struct kve_ring *ring)
{
	(void)ring;
	return false;
}

/* true: something came */
static bool iothreads_take(struct iothreads *r, struct kve_io **over)
{
	bool came;

	pthread_mutex_lock(&r->lock);
	came = r->over || r->poked;
	*over = r->over;
	r->over = NULL;
	r->poked = false;
	pthread_mutex_unlock(&r->lock);
	return came;
}

static int iothreads_wait(struct kve_ring *ring, u64 until, u32 want, struct kve_io **over)
{
	struct timespec ts = { .tv_sec = (time_t)(until / KVE_NSEC), .tv_nsec = (long)(until % KVE_NSEC) };
	struct iothreads *r = iothreads_of(ring);
	int err = 0;

	(void)want;
	while (!iothreads_take(r, over) && until && !err) {
		if (until == KVE_NEVER)
			err = sem_wait(&r->event) ? errno : 0;
		else
			err = sem_clockwait(&r->event, CLOCK_MONOTONIC, &ts) ? errno : 0;
	}
	return err == EINTR ? -EINTR : 0;
}

static bool iothreads_poke(struct kve_ring *ring)
{
	struct iothreads *r = iothreads_of(ring);

	pthread_mutex_lock(&r->lock);
	r->poked = true;
	sem_post(&r->event);
	pthread_mutex_unlock(&r->lock);
	return false;
}

static s32 iothreads_buffer_add(struct kve_ring *ring, void *addr, size_t len)
{
	(void)ring, (void)addr, (void)len;
	return -EOPNOTSUPP;
}

static void iothreads_buffer_remove(struct kve_ring *ring, s32 buffer)
{
	(void)ring, (void)buffer;
}

/* It holds on to none */
static void iothreads_let_go(struct kve_ring *ring, u32 member)
{
	(void)ring, (void)member;
}

static void iothreads_close(struct kve_ring *ring)
{
	struct iothreads *r = iothreads_of(ring);

	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_broadcast(&r->work);
	pthread_mutex_unlock(&r->lock);
	while (r->nr)
		pthread_join(r->threads[--r->nr], NULL);
	pthread_cond_destroy(&r->work);
	pthread_mutex_destroy(&r->lock);
	sem_destroy(&r->event);
	free(r);
}

static const struct kve_ring_kind iothreads_kind = {
	.threads = true, .queue = iothreads_queue, .send = iothreads_send, .wait = iothreads_wait,
	.poke = iothreads_poke, .buffer_add = iothreads_buffer_add, .buffer_remove = iothreads_buffer_remove,
	.let_go = iothreads_let_go, .close = iothreads_close,
};

int kve_iothreads_open(struct kve_ring **out)
{
	struct iothreads *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->ring.kind = &iothreads_kind;
	r->todo_end = &r->todo;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->work, NULL);
	sem_init(&r->event, 0, 0);
	while (r->nr < IOTHREADS && !kve_thread_start(&r->threads[r->nr], iothreads_main, r, "kvctx-io"))
		r->nr++;
	if (!r->nr) {
		iothreads_close(&r->ring);
		return -ENOMEM;
	}
	*out = &r->ring;
	return 0;
}
