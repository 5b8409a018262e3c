// SPDX-License-Identifier: GPL-2.0
/*
 * A session of the engine, and what its client shares with it.
 *
 * The engine calls session_posted() when it has moved the ring's tail, in any of its threads, which therefore must not
 * sleep here whatever the client does. Bell and light are sockets, written with MSG_DONTWAIT; for the client's own
 * eventfd see signal.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kvctxd.h"
#include "engine/share.h"

uint64_t kvd_memory_user, kvd_registered_max;

static pthread_mutex_t sessions_lock = PTHREAD_MUTEX_INITIALIZER;
static struct kvd_session *sessions;

static void session_ring(int sock)
{
	send(sock, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void session_answer_door(struct kvd_session *s, uint32_t tail)
{
	uint64_t wanted = __atomic_load_n(&s->door->wanted, __ATOMIC_SEQ_CST);

	if (wanted & WIRE_WANTED && (int32_t)(tail - (uint32_t)wanted) >= 0 &&
	    __atomic_compare_exchange_n(&s->door->wanted, &wanted, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		session_ring(s->bell);
}

static void session_posted(void *arg)
{
	struct kvd_session *s = arg;
	uint32_t tail, head;

	pthread_mutex_lock(&s->lock);
	tail = __atomic_load_n(&s->ring->tail, __ATOMIC_ACQUIRE);
	if (s->signal)
		kvd_signal_send(s->signal);
	__atomic_store_n(&s->door->tail, tail, __ATOMIC_SEQ_CST);
	/* then what the client writes before it looks at that */
	head = __atomic_load_n(&s->ring->head, __ATOMIC_SEQ_CST);
	session_answer_door(s, tail);
	/* head of a session opened read-only lags behind */
	if (__atomic_load_n(&s->door->lit, __ATOMIC_SEQ_CST) && (s->rdonly || head == s->told))
		session_ring(s->light);
	s->told = tail;
	pthread_mutex_unlock(&s->lock);
}

static void session_signalled(void *arg)
{
	struct kvd_session *s = arg;

	pthread_mutex_lock(&s->lock);
	if (s->signal)
		kvd_signal_send(s->signal);
	pthread_mutex_unlock(&s->lock);
}

void kvd_session_light(struct kvd_session *s)
{
	if (s->light >= 0)
		session_ring(s->light);
}

/* The door: a page of ours that both write */
static int session_make_door(struct kvd_session *s)
{
	int fd = memfd_create("kvctxd-door", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *p;

	if (fd < 0)
		return -ENOMEM;
	s->fds[WIRE_FD_DOOR] = fd;
	if (ftruncate(fd, WIRE_DOOR_BYTES) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return -ENOMEM;
	p = mmap(NULL, WIRE_DOOR_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	s->door = p;
	return 0;
}

static int session_make_socket(int *ours, int *theirs)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	*ours = pair[0];
	*theirs = pair[1];
	return 0;
}

/* Descriptors of the engine's areas, which it keeps; sealed by then */
static int session_lend(struct kvd_session *s, const struct kvctx_setup *arg, int *fds)
{
	uint32_t nr = WIRE_FD_ARENA;

	for (uint32_t i = 0; i < nr; i++)
		fds[i] = s->fds[i];
	fds[WIRE_FD_RING] = kve_share_fd(s->file, KVCTX_MMAP_CQ);
	if (arg->arena_bytes)
		fds[nr++] = kve_share_fd(s->file, KVCTX_MMAP_ARENA);
	if (arg->nr_slots)
		fds[nr++] = kve_share_fd(s->file, KVCTX_MMAP_SLOTS);
	for (uint32_t i = 0; i < nr; i++)
		if (fds[i] < 0)
			return fds[i];
	return (int)nr;
}

/* Before SETUP; again after one that failed */
int kvd_session_signal(struct kvd_session *s, int eventfd)
{
	kvd_signal_free(s->signal);
	s->signal = NULL;
	return eventfd >= 0 ? kvd_signal_new(eventfd, &s->signal) : 0;
}

int kvd_session_share(struct kvd_session *s, const struct kvctx_setup *arg, int *fds)
{
	void *ring;
	int err;

	err = kvctx_sys_mmap(s->file, arg->cq_bytes, PROT_READ, KVCTX_MMAP_CQ, &ring);
	if (err)
		return err;
	s->ring = ring;
	s->ring_bytes = arg->cq_bytes;
	err = session_make_door(s);
	if (!err)
		err = session_make_socket(&s->bell, &s->fds[WIRE_FD_BELL]);
	if (!err)
		err = session_make_socket(&s->light, &s->fds[WIRE_FD_LIGHT]);
	if (err)
		return err;
	kve_share_posted(s->file, session_posted, session_signalled, s);
	return session_lend(s, arg, fds);
}

int kvd_session_take(struct kvd_session *s, uint64_t bytes, uint32_t maps)
{
	uint64_t taken = 0, mapped = 0;
	int err = -ENOMEM;

	pthread_mutex_lock(&sessions_lock);
	for (const struct kvd_session *other = sessions; other; other = other->next) {
		taken += other->uid == s->uid ? other->bytes : 0;
		mapped += other->uid == s->uid ? other->maps : 0;
	}
	if (taken <= kvd_memory_user && bytes <= kvd_memory_user - taken && mapped + maps <= KVD_MAPS_USER) {
		s->bytes += bytes;
		s->maps += maps;
		err = 0;
	}
	pthread_mutex_unlock(&sessions_lock);
	return err;
}

void kvd_session_give(struct kvd_session *s, uint64_t bytes, uint32_t maps)
{
	pthread_mutex_lock(&sessions_lock);
	s->bytes -= bytes;
	s->maps -= maps;
	pthread_mutex_unlock(&sessions_lock);
}

static void session_list(struct kvd_session *s)
{
	pthread_mutex_lock(&sessions_lock);
	s->next = sessions;
	sessions = s;
	pthread_mutex_unlock(&sessions_lock);
}

static void session_unlist(struct kvd_session *s)
{
	struct kvd_session **link;

	pthread_mutex_lock(&sessions_lock);
	for (link = &sessions; *link != s; link = &(*link)->next)
		;
	*link = s->next;
	pthread_mutex_unlock(&sessions_lock);
}

/* A stage beyond the least takes nothing that a limit has for what clients cannot do without */
static void session_limits(struct kvd_session *s, const struct kvctx_info *info)
{
	bool limited = kve_share_pinned_max(s->file) || kvd_registered_max / 16 < WIRE_STAGE_MAX;

	s->limits = (struct wire_limits){
		.page_max = info->page_len_max, .chunk_size = info->chunk_size, .segs_max = info->segs_max,
		.batch_max = info->batch_max, .match_max = info->match_max, .mem_max = info->mem_max,
		.events_max = info->events_max, .stage_max = limited ? WIRE_STAGE_MIN : WIRE_STAGE_MAX,
	};
}

int kvd_session_open(const char *path, int flags, uid_t uid, struct kvd_session **out)
{
	struct kvd_session *s = calloc(1, sizeof(*s));
	struct kvctx_info info = { .size = sizeof(info) };
	int err;

	if (!s)
		return -ENOMEM;
	s->rdonly = (flags & O_ACCMODE) == O_RDONLY;
	s->uid = uid;
	s->bell = -1;
	s->light = -1;
	for (int i = 0; i < WIRE_FDS; i++)
		s->fds[i] = -1;
	pthread_mutex_init(&s->lock, NULL);
	session_list(s);
	err = kvctx_sys_open(path, flags, &s->file);
	if (!err)
		err = kvctx_sys_ioctl(s->file, KVCTX_IOC_INFO, &info);
	if (err) {
		kvd_session_close(s, NULL, NULL);
		return err;
	}
	session_limits(s, &info);
	s->arena_max = info.arena_max;
	*out = s;
	return 0;
}

/* Nothing moves any more, and the hook is not called */
static void session_free(void *arg)
{
	void (*ended)(void *arg);
	struct kvd_session *s = arg;
	struct kvd_memory *m;

	while ((m = s->memories)) {
		s->memories = m->next;
		kvd_memory_unmap(m);
	}
	if (s->ring)
		munmap(s->ring, s->ring_bytes);
	if (s->door)
		munmap(s->door, WIRE_DOOR_BYTES);
	for (int i = 0; i < WIRE_FDS; i++)
		if (s->fds[i] >= 0)
			close(s->fds[i]);
	if (s->bell >= 0)
		close(s->bell);
	if (s->light >= 0)
		close(s->light);
	kvd_signal_free(s->signal);
	session_unlist(s);
	pthread_mutex_destroy(&s->lock);
	ended = s->ended;
	arg = s->ended_arg;
	free(s);
	if (ended)
		ended(arg);
}

void kvd_session_close(struct kvd_session *s, void (*ended)(void *arg), void *arg)
{
	s->ended = ended;
	s->ended_arg = arg;
	if (s->file)
		kve_share_close(s->file, session_free, s);
	else
		session_free(s);
}
