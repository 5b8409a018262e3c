// SPDX-License-Identifier: LGPL-2.1-or-later
/* Requests to kvctxd and their replies; see wire.h. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "socket.h"

static const uint64_t packet_zeros;

/* Seen once, it stays so */
bool kvs_gone(const struct socket_file *s)
{
	return __atomic_load_n(&s->gone, __ATOMIC_ACQUIRE);
}

static int wire_gone(struct socket_file *s)
{
	__atomic_store_n(&s->gone, true, __ATOMIC_RELEASE);
	return -ENODEV;
}

void kvs_packet_begin(struct packet *p, uint32_t nr, uint32_t flags)
{
	p->head = (struct wire_request){ .nr = nr, .flags = flags };
	p->iov[0] = (struct iovec){ &p->head, sizeof(p->head) };
	p->nr = 1;
	p->fd = -1;
}

/* Two pieces at most */
void kvs_packet_add(struct packet *p, const void *from, uint64_t bytes)
{
	struct iovec *last = &p->iov[p->nr - 1];

	if (!bytes)
		return;
	p->head.bytes += wire_pad(bytes);
	if (p->nr > 1 && (const uint8_t *)last->iov_base + last->iov_len == from)
		last->iov_len += bytes;
	else
		p->iov[p->nr++] = (struct iovec){ (void *)from, bytes };
	if (wire_pad(bytes) != bytes)
		p->iov[p->nr++] = (struct iovec){ (void *)&packet_zeros, wire_pad(bytes) - bytes };
}

/* The body goes to a memfd, which goes instead. Returns its descriptor */
static int packet_wrap(struct packet *p)
{
	int fd = memfd_create("kvctx", MFD_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -ENOMEM;
	n = pwritev(fd, p->iov + 1, (int)p->nr - 1, 0);
	if (n < 0 || (uint64_t)n != p->head.bytes) {
		n = n < 0 && errno == EFAULT ? -EFAULT : -ENOMEM;
		close(fd);
		return (int)n;
	}
	p->head.flags |= WIRE_PARCEL;
	p->nr = 1;
	p->fd = fd;
	return fd;
}

int kvs_packet_send(struct socket_file *s, struct packet *p)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	int wrapped = p->head.bytes > WIRE_INLINE_MAX ? packet_wrap(p) : -1, err = 0;
	struct msghdr msg = { .msg_iov = p->iov, .msg_iovlen = p->nr };

	if (wrapped < -1)
		return wrapped;
	if (p->fd >= 0) {
		control.align = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)),
		};
		memcpy(CMSG_DATA(&control.align), &p->fd, sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
	}
	while (sendmsg(s->sock, &msg, MSG_NOSIGNAL) < 0 && !err)
		if (errno != EINTR)
			err = errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN ? wire_gone(s) : -errno;
	if (wrapped >= 0)
		close(wrapped);
	return err;
}

void kvs_answer_free(struct answer *a)
{
	for (uint32_t i = 0; i < a->nr_fds; i++)
		close(a->fds[i]);
	a->nr_fds = 0;
	free(a->body);
	a->body = NULL;
}

static void answer_keep_fds(struct answer *a, struct msghdr *msg)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);

	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		a->nr_fds = (uint32_t)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(a->fds, CMSG_DATA(c), a->nr_fds * sizeof(int));
	}
}

/* What the daemon did is not known to the caller, so that the session is over: it would count on what is not so */
static int answer_lost(struct socket_file *s)
{
	shutdown(s->sock, SHUT_RDWR);
	return wire_gone(s);
}

static int answer_unwrap(struct socket_file *s, struct answer *a)
{
	ssize_t n;

	if (a->nr_fds != 1 || a->head.bytes > WIRE_BODY_MAX)
		return -ENODEV;
	free(a->body);
	a->body = malloc(a->head.bytes);
	if (!a->body)
		return answer_lost(s);
	n = pread(a->fds[0], a->body, a->head.bytes, 0);
	return n < 0 || (uint64_t)n != a->head.bytes ? -ENODEV : 0;
}

/* The reply, to @a with its room. 0 or -errno; what the daemon says is in it */
static int answer_receive(struct socket_file *s, struct answer *a)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(WIRE_FDS * sizeof(int))];
	} control;
	struct iovec iov[] = { { &a->head, sizeof(a->head) }, { NULL, WIRE_INLINE_MAX } };
	struct msghdr msg = {
		.msg_iov = iov, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof(control),
	};
	ssize_t n;

	iov[1].iov_base = a->body;
	do {
		n = recvmsg(s->sock, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < (ssize_t)sizeof(a->head))
		return wire_gone(s);
	answer_keep_fds(a, &msg);
	if (a->head.flags & WIRE_PARCEL)
		return answer_unwrap(s, a);
	return a->head.bytes == (uint64_t)n - sizeof(a->head) ? 0 : -ENODEV;
}

/* Send @p and get what the daemon answers: its return value. The caller frees @a whatever that is */
int kvs_packet_exchange(struct socket_file *s, struct packet *p, struct answer *a)
{
	int ret;

	/* there before anything is sent: an answer that is not received would be the next call's */
	*a = (struct answer){ .body = malloc(WIRE_INLINE_MAX) };
	if (!a->body)
		return -ENOMEM;
	pthread_mutex_lock(&s->call);
	ret = kvs_packet_send(s, p);
	if (ret >= 0)
		ret = answer_receive(s, a);
	pthread_mutex_unlock(&s->call);
	return ret < 0 ? ret : a->head.ret;
}

/* The structure comes back as the first part of the answer; where the rest begins */
uint64_t kvs_answer_arg(const struct answer *a, void *arg, uint32_t size)
{
	uint64_t at = wire_pad(size);

	if (a->head.bytes < at)
		return a->head.bytes;
	memcpy(arg, a->body, size);
	return at;
}

void kvs_answer_rest(const struct answer *a, uint64_t at, void *to, uint64_t bytes)
{
	if (at > a->head.bytes)
		return;
	if (bytes > a->head.bytes - at)
		bytes = a->head.bytes - at;
	if (to)
		memcpy(to, a->body + at, bytes);
}

void kvs_drain(struct socket_file *s, enum wire_fd which)
{
	ssize_t n;
	char byte;

	do {
		n = recv(s->fds[which], &byte, 1, MSG_DONTWAIT);
	} while (n > 0);
	if (!n)
		wire_gone(s);
}

void kvs_look(struct socket_file *s, enum wire_fd which)
{
	struct pollfd p = { .fd = s->fds[which] };

	/* whatever lies there unread */
	if (poll(&p, 1, 0) > 0 && p.revents & POLLHUP)
		wire_gone(s);
}

int kvs_packet_plain(struct socket_file *s, unsigned long nr, void *arg, uint32_t size, int fd)
{
	struct answer a;
	struct packet p;
	int ret;

	kvs_packet_begin(&p, (uint32_t)nr, 0);
	kvs_packet_add(&p, arg, size);
	p.fd = fd;
	ret = kvs_packet_exchange(s, &p, &a);
	if (ret >= 0)
		kvs_answer_arg(&a, arg, size);
	kvs_answer_free(&a);
	return ret;
}

void kvs_packet_ask(struct socket_file *s, uint32_t nr)
{
	struct packet p;

	kvs_packet_begin(&p, nr, WIRE_QUIET);
	kvs_packet_send(s, &p);
}
