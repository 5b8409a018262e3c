// SPDX-License-Identifier: LGPL-2.1-or-later
/* kvctxd as a server; see sys_socket.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine.h"
#include "huge.h"
#include "session/session.h"
#include "socket.h"

#define LOOKS_GONE	256U

static struct socket_file *socket_of(struct kvctx_file *f)
{
	return (struct socket_file *)f;
}

/* A child of fork() has none of its parent's sessions: their descriptors are closed, their memory is not mapped */
static bool socket_forked(const struct socket_file *s)
{
	return s->owner != getpid();
}

/* A child of fork() has it closed */
static int socket_own(int fd)
{
	return fd < 0 ? 0 : kve_fork_own(fd);
}

static void socket_disown(int fd)
{
	if (fd < 0)
		return;
	kve_fork_lock();
	kve_fork_disown(fd);
	close(fd);
	kve_fork_unlock();
}

/* SETUP */

static int setup_map_one(int fd, uint64_t bytes, int prot, void **out)
{
	void *p = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -ENOMEM;
	madvise(p, bytes, MADV_DONTFORK);
	*out = p;
	return 0;
}

static int setup_map(struct socket_file *s, const struct kvctx_setup *arg)
{
	int prot = s->rdonly ? PROT_READ : PROT_READ | PROT_WRITE;
	void *far, *door;

	s->entries = arg->cq_entries;
	s->ring_bytes = arg->cq_bytes;
	s->arena_bytes = arg->arena_bytes;
	s->slots_bytes = (uint64_t)arg->slot_bytes * arg->nr_slots;
	if (setup_map_one(s->fds[WIRE_FD_RING], arg->cq_bytes, prot, &far))
		return -ENOMEM;
	s->far = far;
	if (setup_map_one(s->fds[WIRE_FD_DOOR], WIRE_DOOR_BYTES, PROT_READ | PROT_WRITE, &door))
		return -ENOMEM;
	s->door = door;
	return kvs_ring_setup(s);
}

/* Arena and slots come if there are any */
static bool setup_keep_fds(struct socket_file *s, const struct kvctx_setup *arg, struct answer *a)
{
	uint32_t nr = WIRE_FD_ARENA;

	if (a->nr_fds != nr + !!arg->arena_bytes + !!arg->nr_slots)
		return false;
	memcpy(s->fds, a->fds, nr * sizeof(int));
	if (arg->arena_bytes)
		s->fds[WIRE_FD_ARENA] = a->fds[nr++];
	if (arg->nr_slots)
		s->fds[WIRE_FD_SLOTS] = a->fds[nr];
	a->nr_fds = 0;
	return true;
}

static int socket_setup(struct socket_file *s, struct kvctx_setup *arg)
{
	struct answer a;
	struct packet p;
	int ret;

	kvs_packet_begin(&p, KVCTX_IOC_SETUP, 0);
	kvs_packet_add(&p, arg, sizeof(*arg));
	if (arg->flags & KVCTX_SETUP_EVENTFD) {
		if (fcntl(arg->eventfd, F_GETFD) < 0)
			return -EINVAL;
		p.fd = arg->eventfd;
	}
	kve_fork_lock();
	ret = kvs_packet_exchange(s, &p, &a);
	if (ret >= 0) {
		kvs_answer_arg(&a, arg, sizeof(*arg));
		ret = setup_keep_fds(s, arg, &a) ? setup_map(s, arg) : -ENODEV;
		s->signals = arg->flags & KVCTX_SETUP_EVENTFD;
		for (int i = 0; i < WIRE_FDS && !ret; i++)
			ret = socket_own(s->fds[i]);
		ret = ret ? ret : socket_own(s->near_fd) ?: socket_own(s->kick_fd);
		__atomic_store_n(&s->ready, !ret, __ATOMIC_RELEASE);
	}
	kvs_answer_free(&a);
	kve_fork_unlock();
	return ret;
}

/* Calls whose structures point to more */

static int socket_match(struct socket_file *s, struct kvctx_match *arg)
{
	const uint64_t keys = arg->keys, lens = arg->lens, present = arg->present;
	const uint32_t nr_keys = arg->nr_keys, flags = arg->flags;
	bool all = flags & KVCTX_MATCH_ALL;
	struct answer a;
	struct packet p;
	uint64_t at;
	int ret;

	ret = kvctx_match_check(arg);
	if (!ret && all && !present)
		ret = -EFAULT;
	if (ret)
		return ret;
	kvs_packet_begin(&p, KVCTX_IOC_MATCH, 0);
	kvs_packet_add(&p, arg, sizeof(*arg));
	kvs_packet_add(&p, (const void *)(uintptr_t)keys, nr_keys * sizeof(struct kvctx_key));
	ret = kvs_packet_exchange(s, &p, &a);
	if (ret >= 0) {
		at = kvs_answer_arg(&a, arg, sizeof(*arg));
		/* what the daemon says of these is not believed */
		arg->keys = keys;
		arg->lens = lens;
		arg->present = present;
		arg->nr_keys = nr_keys;
		arg->flags = flags;
		if (arg->nr_present > nr_keys)
			arg->nr_present = nr_keys;
		kvs_answer_rest(&a, at, (void *)(uintptr_t)lens, (all ? nr_keys : arg->nr_present) * sizeof(uint32_t));
		if (lens)
			at += wire_pad(nr_keys * sizeof(uint32_t));
		if (all)
			kvs_answer_rest(&a, at, (void *)(uintptr_t)present, wire_bitmap(nr_keys));
	}
	kvs_answer_free(&a);
	return ret;
}

/* An array of the caller's that the daemon fills: @array and @nr are of @arg. @nr: in: rows; out: as told */
static int socket_rows(struct socket_file *s, unsigned long call, void *arg, size_t size, __u64 *array, __u32 *nr,
		       size_t row)
{
	const uint64_t rows = *array;
	const uint32_t room = *nr;
	struct answer a;
	struct packet p;
	uint64_t at;
	int ret;

	kvs_packet_begin(&p, call, 0);
	kvs_packet_add(&p, arg, size);
	ret = kvs_packet_exchange(s, &p, &a);
	if (ret >= 0) {
		at = kvs_answer_arg(&a, arg, size);
		kvs_answer_rest(&a, at, (void *)(uintptr_t)rows, (uint64_t)(*nr < room ? *nr : room) * row);
		*array = rows;
	}
	kvs_answer_free(&a);
	return ret;
}

/* More members than fit are told, more events are none that the caller has */
static int socket_events(struct socket_file *s, struct kvctx_events *arg)
{
	const uint32_t room = arg->nr;
	int ret;

	ret = socket_rows(s, KVCTX_IOC_EVENTS, arg, sizeof(*arg), &arg->events, &arg->nr, sizeof(struct kvctx_event));
	if (arg->nr > room)
		arg->nr = room;
	return ret;
}

/* Being told of completions */

static void socket_look(struct kvctx_file *f)
{
	struct socket_file *s = socket_of(f);

	if (!__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE))
		return;
	pthread_mutex_lock(&s->lock);
	kvs_ring_harvest(s);
	/* who only ever looks has to hear of the daemon's end too */
	if (s->inflight && kvs_ring_idle(s) && !(++s->looks % LOOKS_GONE))
		kvs_look(s, WIRE_FD_BELL);
	pthread_mutex_unlock(&s->lock);
	kvs_ring_settle(s);
	if (!kvs_gone(s))
		return;
	pthread_mutex_lock(&s->lock);
	kvs_ring_harvest(s);
	pthread_mutex_unlock(&s->lock);
}

static void socket_consumed(struct kvctx_file *f)
{
	kvs_ring_settle(socket_of(f));
}

static int socket_poll_fd(struct kvctx_file *f)
{
	struct socket_file *s = socket_of(f);
	bool idle;

	if (!s->ready)
		return s->sock;
	if (!__atomic_exchange_n(&s->polled, true, __ATOMIC_RELAXED)) {
		__atomic_store_n(&s->door->lit, 1, __ATOMIC_SEQ_CST);
		pthread_mutex_lock(&s->lock);
		idle = kvs_ring_idle(s);
		pthread_mutex_unlock(&s->lock);
		if (!idle)
			kvs_packet_ask(s, WIRE_LIGHT);
	}
	return s->fds[WIRE_FD_LIGHT];
}

static int socket_wait(struct socket_file *s, struct kvctx_wait *arg)
{
	int ret;

	pthread_mutex_lock(&s->lock);
	ret = kvs_ring_consume(s, arg->consumed);
	pthread_mutex_unlock(&s->lock);
	if (ret)
		return ret;
	if (arg->consumed)
		kvs_ring_settle(s);
	ret = kvs_sleep(s, arg->min, &arg->timeout_ns);
	if (ret == -EINTR)
		arg->consumed = 0;
	return ret;
}

/* The calls */

static int socket_call(struct socket_file *s, unsigned long nr, union kvctx_arg *arg, uint32_t size)
{
	int ret;

	switch (nr) {
	case KVCTX_IOC_INFO:
		ret = kvs_packet_plain(s, nr, arg, size, -1);
		return ret;
	case KVCTX_IOC_SETUP:
		return socket_setup(s, &arg->setup);
	case KVCTX_IOC_MEM_REGISTER:
		return kvs_register(s, &arg->reg);
	case KVCTX_IOC_MEM_UNREGISTER:
		/* of completions that lie there we cannot say that they are in flight */
		socket_look(&s->file);
		return kvs_unregister(s, &arg->unreg);
	case KVCTX_IOC_SUBMIT:
		ret = kvctx_submit_check(&arg->submit);
		return ret ? ret : kvs_submit(s, &arg->submit);
	case KVCTX_IOC_WAIT:
		return socket_wait(s, &arg->wait);
	case KVCTX_IOC_MATCH:
		return socket_match(s, &arg->match);
	case KVCTX_IOC_PATHS:
		return socket_rows(s, nr, &arg->paths, sizeof(arg->paths), &arg->paths.paths, &arg->paths.nr,
				   sizeof(struct kvctx_path));
	case KVCTX_IOC_EVENTS:
		return socket_events(s, &arg->events);
	default:
		return kvs_packet_plain(s, nr, arg, size, -1);
	}
}

/* As the kernel takes a structure that is longer or shorter than it knows */
static int socket_get_arg(const struct kvctx_call *call, const void *from, union kvctx_arg *arg)
{
	const uint8_t *bytes = from;
	uint32_t size;

	memcpy(&size, from, sizeof(size));
	if (size < call->min)
		return -EINVAL;
	if (size > WIRE_ARG_MAX)
		return -E2BIG;
	for (uint32_t i = call->known; i < size; i++)
		if (bytes[i])
			return -E2BIG;
	memset(arg, 0, sizeof(*arg));
	memcpy(arg, from, size < call->known ? size : call->known);
	arg->size = call->known;
	return arg->flags & ~call->flags ? -EINVAL : 0;
}

static int socket_ioctl(struct kvctx_file *f, unsigned long nr, void *user)
{
	struct socket_file *s = socket_of(f);
	const struct kvctx_call *call;
	union kvctx_arg arg;
	uint32_t size;
	int ret;

	if (socket_forked(s))
		return -EBADF;
	if (_IOC_TYPE(nr) != KVCTX_IOC_TYPE || _IOC_NR(nr) >= KVCTX_CALLS || nr != _IO(KVCTX_IOC_TYPE, _IOC_NR(nr)))
		return -ENOTTY;
	call = &kvctx_calls[_IOC_NR(nr)];
	if (!call->known)
		return -ENOTTY;
	ret = socket_get_arg(call, user, &arg);
	if (ret)
		return ret;
	if (call->ready && !__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE))
		return -EBADFD;
	ret = socket_call(s, nr, &arg, call->known);
	if ((ret >= 0 && call->out) || (nr == KVCTX_IOC_WAIT && ret == -EINTR)) {
		memcpy(&size, user, sizeof(size));
		arg.size = size;
		memcpy(user, &arg, size < call->known ? size : call->known);
	}
	return ret;
}

static int socket_mmap(struct kvctx_file *f, size_t len, int prot, uint64_t offset, void **out)
{
	struct socket_file *s = socket_of(f);
	uint64_t bytes = s->ring_bytes, from = offset;
	int fd = s->near_fd;
	void *p;

	if (socket_forked(s))
		return -EBADF;
	if (!s->ready)
		return -EBADFD;
	if (offset >= KVCTX_MMAP_SLOTS) {
		fd = s->fds[WIRE_FD_SLOTS];
		bytes = s->slots_bytes;
		from -= KVCTX_MMAP_SLOTS;
	} else if (offset >= KVCTX_MMAP_ARENA) {
		fd = s->fds[WIRE_FD_ARENA];
		bytes = s->arena_bytes;
		from -= KVCTX_MMAP_ARENA;
	}
	if (fd < 0 || !len || from > bytes || len > bytes - from)
		return -EINVAL;
	p = kve_huge_map(fd, len, prot, from);
	if (p == MAP_FAILED)
		return errno == EPERM ? -EACCES : -errno;
	madvise(p, len, MADV_DONTFORK);
	*out = p;
	return 0;
}

static void socket_munmap(struct kvctx_file *f, void *p, size_t len)
{
	struct socket_file *s = socket_of(f);

	/* a child of fork() has nothing there, or something else by now */
	if (!socket_forked(s))
		munmap(p, len);
}

/* Open and close */

static int socket_connect(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int sock;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return -errno;
	if (!connect(sock, (struct sockaddr *)&addr, sizeof(addr)))
		return sock;
	/* a socket that nobody has, of a daemon that is gone; or of somebody else's protocol */
	sock = (close(sock), errno);
	return sock == ECONNREFUSED ? -ENODEV : sock == EPROTOTYPE ? -ENOTTY : -sock;
}

static int socket_hello(struct socket_file *s, int flags)
{
	const struct wire_open open = { .version = WIRE_VERSION, .flags = (uint32_t)(flags & O_ACCMODE) };
	struct answer a;
	struct packet p;
	int ret;

	kvs_packet_begin(&p, WIRE_OPEN, 0);
	kvs_packet_add(&p, &open, sizeof(open));
	ret = kvs_packet_exchange(s, &p, &a);
	if (!ret)
		kvs_answer_arg(&a, &s->limits, sizeof(s->limits));
	if (!ret && !s->limits.chunk_size)
		ret = -EPROTO;
	kvs_answer_free(&a);
	return ret;
}

static void socket_free(struct socket_file *s)
{
	for (int i = 0; i < WIRE_FDS; i++)
		socket_disown(s->fds[i]);
	socket_disown(s->near_fd);
	socket_disown(s->kick_fd);
	kvs_ring_free(s);
	kvs_mem_free(s);
	if (s->door)
		munmap(s->door, WIRE_DOOR_BYTES);
	socket_disown(s->sock);
	pthread_mutex_destroy(&s->call);
	pthread_mutex_destroy(&s->stage_lock);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static int socket_open(const char *path, int flags, struct kvctx_file **out)
{
	struct socket_file *s;
	int ret;

	if ((flags & O_ACCMODE) == O_WRONLY)
		return -EACCES;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->file.server = &kvctx_daemon;
	s->rdonly = (flags & O_ACCMODE) == O_RDONLY;
	s->owner = getpid();
	s->sock = -1;
	s->near_fd = -1;
	s->kick_fd = -1;
	pthread_mutex_init(&s->call, NULL);
	pthread_mutex_init(&s->stage_lock, NULL);
	pthread_mutex_init(&s->lock, NULL);
	for (int i = 0; i < WIRE_FDS; i++)
		s->fds[i] = -1;
	kve_fork_lock();
	s->sock = socket_connect(path);
	ret = s->sock < 0 ? s->sock : socket_own(s->sock);
	kve_fork_unlock();
	if (!ret)
		ret = socket_hello(s, flags);
	if (ret) {
		socket_free(s);
		return ret;
	}
	*out = &s->file;
	return 0;
}

/* Until the daemon has closed its side, it may still move pages */
static void socket_close(struct kvctx_file *f)
{
	struct socket_file *s = socket_of(f);
	char byte;

	if (socket_forked(s))
		return;
	shutdown(s->sock, SHUT_WR);
	do {
		errno = 0;
	} while (recv(s->sock, &byte, 1, 0) > 0 || errno == EINTR);
	socket_free(s);
}

const struct kvctx_server kvctx_daemon = {
	.open = socket_open,
	.ioctl = socket_ioctl,
	.mmap = socket_mmap,
	.munmap = socket_munmap,
	.poll_fd = socket_poll_fd,
	.close = socket_close,
	.look = socket_look,
	.consumed = socket_consumed,
};
