// SPDX-License-Identifier: GPL-2.0
/*
 * Messages of wire.h at the daemon's end.
 *
 * A long body lies in a memfd that comes with the message. It is read with pread(), which cannot make us sleep or fault
 * whatever the other side does to the file meanwhile; any other kind of file is refused. PARCELS of them are in memory
 * at a time, as nobody is charged for them: more wait, for what takes no longer than a copy and a request.
 *
 * A long reply is memory of ours until it is read, and a socket takes hundreds: who asks for one more before that is
 * hung up on.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "kvctxd.h"

#define PARCELS		16U

static pthread_mutex_t parcels_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t parcels_fewer = PTHREAD_COND_INITIALIZER;
static uint32_t parcels;

static void parcel_begin(void)
{
	pthread_mutex_lock(&parcels_lock);
	while (parcels == PARCELS)
		pthread_cond_wait(&parcels_fewer, &parcels_lock);
	parcels++;
	pthread_mutex_unlock(&parcels_lock);
}

static void parcel_end(void)
{
	pthread_mutex_lock(&parcels_lock);
	parcels--;
	pthread_cond_signal(&parcels_fewer);
	pthread_mutex_unlock(&parcels_lock);
}

int kvd_message_init(struct kvd_message *m)
{
	memset(m, 0, sizeof(*m));
	m->inline_body = malloc(WIRE_INLINE_MAX);
	return m->inline_body ? 0 : -ENOMEM;
}

void kvd_message_let_go(struct kvd_message *m)
{
	for (uint32_t i = 0; i < m->nr_fds; i++)
		if (m->fds[i] >= 0)
			close(m->fds[i]);
	m->nr_fds = 0;
	if (m->parcel) {
		munmap(m->parcel, m->parcel_bytes);
		parcel_end();
	}
	m->parcel = NULL;
}

void kvd_message_free(struct kvd_message *m)
{
	kvd_message_let_go(m);
	free(m->inline_body);
}

static void message_keep_fds(struct kvd_message *m, struct msghdr *msg)
{
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		/* there is room for one control message with no more than these */
		m->nr_fds = (uint32_t)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(m->fds, CMSG_DATA(c), m->nr_fds * sizeof(int));
	}
}

static int message_unpack(struct kvd_message *m)
{
	uint64_t done = 0;
	void *p;

	if (m->nr_fds != 1 || m->head.bytes > WIRE_BODY_MAX || fcntl(m->fds[0], F_GET_SEALS) < 0)
		return -EPROTO;
	/* the system has it back with the message; malloc() might keep it */
	m->parcel_bytes = m->head.bytes + 1;
	parcel_begin();
	p = mmap(NULL, m->parcel_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		parcel_end();
		return -ENOMEM;
	}
	m->parcel = p;
	while (done < m->head.bytes) {
		ssize_t n = pread(m->fds[0], m->parcel + done, m->head.bytes - done, (off_t)done);

		if (n <= 0)
			return -EPROTO;
		done += (uint64_t)n;
	}
	m->body = m->parcel;
	return 0;
}

int kvd_receive(int sock, struct kvd_message *m, bool parcels)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(KVD_FDS * sizeof(int))];
	} control;
	struct iovec iov[] = {
		{ &m->head, sizeof(m->head) }, { m->inline_body, WIRE_INLINE_MAX },
	};
	struct msghdr msg = {
		.msg_iov = iov, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof(control),
	};
	ssize_t n;

	do {
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	message_keep_fds(m, &msg);
	if (!n && !m->nr_fds)
		return 0;
	if ((size_t)n < sizeof(m->head) || msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		return -EPROTO;
	m->body = m->inline_body;
	m->bytes = m->head.bytes;
	if (m->head.flags & WIRE_PARCEL)
		return parcels ? message_unpack(m) ?: 1 : -EPROTO;
	return m->bytes == (size_t)n - sizeof(m->head) ? 1 : -EPROTO;
}

/* A memfd with the body */
static int reply_parcel(int sock, const struct kvd_reply *r)
{
	const struct iovec iov[] = { { (void *)r->arg, r->arg_bytes }, { r->rest, r->rest_bytes } };
	int fd, unread = 0;
	ssize_t n;

	if (ioctl(sock, SIOCOUTQ, &unread) || unread)
		return -EPROTO;
	fd = memfd_create("kvctxd", MFD_CLOEXEC);
	n = fd < 0 ? -1 : pwritev(fd, iov, 2, 0);
	if (n == (ssize_t)(r->arg_bytes + r->rest_bytes))
		return fd;
	if (fd >= 0)
		close(fd);
	return -ENOMEM;
}

int kvd_send(int sock, struct kvd_reply *r)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(KVD_FDS * sizeof(int))];
	} control = { 0 };
	struct wire_reply head = { .ret = r->ret, .bytes = r->arg_bytes + r->rest_bytes };
	struct iovec iov[] = {
		{ &head, sizeof(head) }, { (void *)r->arg, r->arg_bytes }, { r->rest, r->rest_bytes },
	};
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 3 };
	int parcel = -1, err = 0;

	if (head.bytes > WIRE_INLINE_MAX) {
		parcel = reply_parcel(sock, r);
		if (parcel < 0) {
			free(r->rest);
			return parcel;
		}
		head.flags = WIRE_PARCEL;
		msg.msg_iovlen = 1;
		r->fds[0] = parcel;
		r->nr_fds = 1;
	}
	if (r->nr_fds) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(r->nr_fds * sizeof(int));
		control.align = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(r->nr_fds * sizeof(int)),
		};
		memcpy(CMSG_DATA(&control.align), r->fds, r->nr_fds * sizeof(int));
	}
	while (sendmsg(sock, &msg, MSG_NOSIGNAL) < 0 && !err)
		err = errno == EINTR ? 0 : -errno;
	if (parcel >= 0)
		close(parcel);
	free(r->rest);
	return err;
}
