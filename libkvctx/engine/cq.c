// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Completion queue: a ring in memory shared with the caller, and who is told of completions.
 *
 * The caller owns one field of the ring, head. Everything else is written from our own copies. A hostile head is
 * compared, never used as an index, so it can only make room appear or vanish for its owner.
 *
 * Room: in flight + (tail - head) never exceeds the entries. It is taken when an operation is accepted, so posting
 * cannot fail.
 *
 * Callers in WAIT are woken when what they wait for is there, not at each completion: by a semaphore of their own, or,
 * for the one who sleeps in the session's ring (reap.c), by a poke.
 */
#include <sys/eventfd.h>
#include <unistd.h>

#include "session.h"

int kve_cq_setup(struct kve_session *s, u32 entries)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = sizeof(*s->cq.ring) + entries * sizeof(struct kvctx_cqe);
	struct kve_cq *cq = &s->cq;
	int err;

	err = kve_map_create(&cq->map, (bytes + page - 1) & ~(page - 1), s->rights.rdonly);
	if (err)
		return err;
	cq->ring = cq->map.addr;
	cq->ring->entries = entries;
	cq->entries = entries;
	return 0;
}

void kve_cq_free(struct kve_session *s)
{
	kve_map_free(&s->cq.map);
	s->cq.ring = NULL;
	kve_fd_close(&s->cq.eventfd);
}

/* Completions that the caller has not consumed; more than entries when its head lies. */
static u32 cq_ready(const struct kve_cq *cq)
{
	return cq->tail - os_load_acquire(&cq->ring->head);
}

/* The same for telling it to the caller. */
u32 kve_cq_consumable(const struct kve_cq *cq)
{
	return min(cq_ready(cq), cq->entries);
}

/* Nothing moves any more, nor will anything. */
bool kve_cq_drained(const struct kve_cq *cq)
{
	return !cq->inflight && !cq->background && !cq->touching;
}

bool kve_cq_enough(const struct kve_cq *cq, u32 min)
{
	return kve_cq_consumable(cq) >= min || !cq->inflight;
}

/* Off the list it goes. */
void kve_waiter_wake(struct kve_waiter **link)
{
	struct kve_waiter *w = *link;

	*link = w->next;
	w->woken = true;
	sem_post(&w->sem);
}

/* Somebody wants to know of each completion: who sleeps in the ring shall not sleep for several. */
void kve_cq_hurry(struct kve_session *s)
{
	struct kve_waiter *w = s->cq.sleeper;

	if (!w || w->eager)
		return;
	w->eager = true;
	kve_poke(s);
}

/* After a completion, or after something that waited for completions has ended. */
static void cq_wake(struct kve_session *s)
{
	struct kve_cq *cq = &s->cq;
	struct kve_waiter **link = &cq->waiters;

	while (*link) {
		if (kve_cq_enough(cq, (*link)->min))
			kve_waiter_wake(link);
		else
			link = &(*link)->next;
	}
	if (cq->sleeper && kve_cq_enough(cq, cq->sleeper->min)) {
		cq->sleeper = NULL;
		kve_poke(s);
	}
	if (cq->pollfd >= 0 && !cq->readable && cq_ready(cq)) {
		cq->readable = true;
		eventfd_write(cq->pollfd, 1);
	}
	if (kve_cq_drained(cq))
		pthread_cond_signal(&cq->drained);
}

bool kve_touch(struct kve_session *s)
{
	bool there;

	pthread_mutex_lock(&s->lock);
	there = !s->orphaned;
	s->cq.touching += there;
	pthread_mutex_unlock(&s->lock);
	return there;
}

/* The session may be gone on return. */
void kve_untouch(struct kve_session *s)
{
	pthread_mutex_lock(&s->lock);
	if (!--s->cq.touching)
		pthread_cond_signal(&s->cq.drained);
	pthread_mutex_unlock(&s->lock);
}

void kve_cq_later(struct kve_op *op)
{
	struct kve_session *s = op->session;
	struct kve_cq *cq = &s->cq;

	op->later.next = NULL;
	op->later.came = true;
	pthread_mutex_lock(&s->lock);
	if (!cq->later) {
		cq->later_end = &cq->later;
		/* who goes into the ring later looks before he sleeps */
		if (cq->reaping)
			kve_poke(s);
		else
			pthread_cond_signal(&cq->wake);
	}
	*cq->later_end = op;
	cq->later_end = &op->later.next;
	pthread_mutex_unlock(&s->lock);
}

/* Operations are in flight: somebody has to see to them. */
static void cq_rouse(struct kve_cq *cq)
{
	if (!cq->idle)
		return;
	cq->idle = false;
	pthread_cond_signal(&cq->wake);
}

/* Take room for up to @nr operations; returns for how many there was some. */
u32 kve_cq_reserve(struct kve_session *s, u32 nr)
{
	struct kve_cq *cq = &s->cq;
	u32 used;

	pthread_mutex_lock(&s->lock);
	used = cq_ready(cq);
	/* two steps: a lying head may make the sum wrap */
	nr = used > cq->entries - cq->inflight ? 0 : min(nr, cq->entries - cq->inflight - used);
	cq->inflight += nr;
	cq_rouse(cq);
	pthread_mutex_unlock(&s->lock);
	return nr;
}

/* The end of an accepted operation. */
void kve_cq_post(struct kve_session *s, u64 user_data, s32 res, u32 flags)
{
	struct kve_cq *cq = &s->cq;

	cq->ring->cqes[cq->tail & (cq->entries - 1)] = (struct kvctx_cqe){
		.user_data = user_data, .res = res, .flags = flags,
	};
	/* pairs with the caller's acquire of tail */
	os_store_release(&cq->ring->tail, ++cq->tail);
	cq->inflight--;
	if (cq->eventfd >= 0)
		eventfd_write(cq->eventfd, 1);
	if (cq->posted)
		cq->posted(cq->posted_arg);
	cq_wake(s);
}

/* Of something else than a completion: the caller's eventfd, or who signals for him. */
void kve_cq_signal(struct kve_session *s)
{
	pthread_mutex_lock(&s->lock);
	if (s->cq.eventfd >= 0)
		eventfd_write(s->cq.eventfd, 1);
	if (s->cq.signalled)
		s->cq.signalled(s->cq.posted_arg);
	pthread_mutex_unlock(&s->lock);
}

void kve_cq_posted(struct kve_session *s, void (*fn)(void *arg), void (*signalled)(void *arg), void *arg)
{
	pthread_mutex_lock(&s->lock);
	s->cq.posted_arg = arg;
	s->cq.posted = fn;
	s->cq.signalled = signalled;
	cq_rouse(&s->cq);
	pthread_mutex_unlock(&s->lock);
}

/* Something @more that close has to wait for, or less. After one less the session may be gone. */
void kve_cq_background(struct kve_session *s, int more)
{
	pthread_mutex_lock(&s->lock);
	s->cq.background += (u32)more;
	if (more > 0)
		cq_rouse(&s->cq);
	else
		cq_wake(s);
	pthread_mutex_unlock(&s->lock);
}

/* The caller has moved head: is there nothing left to be read? Lock held. */
static void cq_settle(struct kve_cq *cq)
{
	eventfd_t count;

	if (cq->readable && !cq_ready(cq) && !eventfd_read(cq->pollfd, &count))
		cq->readable = false;
}

/* Advance head for a caller who cannot. */
int kve_cq_consume(struct kve_session *s, u32 nr)
{
	struct kve_cq *cq = &s->cq;
	int err = 0;

	if (!nr)
		return 0;
	pthread_mutex_lock(&s->lock);
	if (nr <= kve_cq_consumable(cq))
		WRITE_ONCE(cq->ring->head, READ_ONCE(cq->ring->head) + nr);
	else
		err = -EINVAL;
	cq_settle(cq);
	pthread_mutex_unlock(&s->lock);
	return err;
}

/* The caller reads tail where he has mapped it. The thread sanitizer does not know that this is the tail written here. */
#ifdef __SANITIZE_THREAD__
#define CQ_ORDERED	0
#else
#define CQ_ORDERED	1
#endif

void kve_cq_consumed(struct kve_session *s)
{
	if (CQ_ORDERED && READ_ONCE(s->cq.pollfd) < 0)
		return;
	pthread_mutex_lock(&s->lock);
	cq_settle(&s->cq);
	pthread_mutex_unlock(&s->lock);
}

int kve_cq_pollfd(struct kve_session *s)
{
	int fd;

	pthread_mutex_lock(&s->lock);
	if (s->cq.pollfd < 0) {
		kve_fork_lock();
		fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (fd >= 0 && kve_fork_own(fd)) {
			close(fd);
			fd = -1;
		}
		kve_fork_unlock();
		WRITE_ONCE(s->cq.pollfd, fd);
	}
	fd = s->cq.pollfd;
	kve_cq_hurry(s);
	if (s->cq.ring)
		cq_wake(s);
	pthread_mutex_unlock(&s->lock);
	return fd;
}

