// SPDX-License-Identifier: GPL-2.0
/*
 * Connections: a thread each, which receives a request, has it done and replies, until its client is gone.
 *
 * A client that has been killed has closed its socket: that is the end of its session, as close() of a device's file is.
 * Where a device holds on to memory of the session the thread ends without it, and the connection remains, without a
 * socket, to be counted until the session has ended.
 * No more than so many connections are served at once, of one user and in all; one more is closed unheard.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kvctxd.h"

#define CONN_STACK	(256U << 10)

struct conn {
	struct conn *next;
	struct kvd_tenant *tenant;	/* stays while it has sessions */
	int sock;			/* -1: closed; kvd_lock */
	struct kvd_peer peer;
	char path[PATH_MAX];		/* for the engine */
	struct kvd_message message;
	bool ended;			/* the session or the thread is gone; kvd_lock */
	uint64_t arg[WIRE_ARG_MAX / sizeof(uint64_t)];
};

uint32_t kvd_conns_max = 1024, kvd_conns_user = 512;

static struct conn *conns;		/* kvd_lock */
static uint32_t nr_conns, nr_serving;		/* and those with a thread; kvd_lock */
static pthread_cond_t conns_gone = PTHREAD_COND_INITIALIZER;

static int conn_open(struct conn *c, struct kvd_session **out)
{
	const struct wire_open *open = (const void *)c->message.body;

	if (c->message.head.nr != WIRE_OPEN || c->message.bytes != sizeof(*open) || c->message.head.flags)
		return -EPROTO;
	if (open->version != WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (open->flags != O_RDONLY && open->flags != O_RDWR)
		return -EINVAL;
	if (!kvd_may_open(&c->peer, c->tenant->uid, c->tenant->gid, c->tenant->mode, (int)open->flags))
		return -EACCES;
	return kvd_session_open(c->path, (int)open->flags, c->peer.uid, out);
}

/* The first request. 0 with a session that works */
static int conn_begin(struct conn *c, struct kvd_session **out)
{
	struct kvd_reply r = { 0 };
	int err;

	*out = NULL;
	/* it is not known yet whether the client may be here */
	if (kvd_receive(c->sock, &c->message, false) <= 0)
		return -EPROTO;
	r.ret = conn_open(c, out);
	kvd_message_let_go(&c->message);
	if (r.ret == -EPROTO)
		return r.ret;
	if (!r.ret) {
		r.arg = &(*out)->limits;
		r.arg_bytes = sizeof((*out)->limits);
	}
	err = kvd_send(c->sock, &r);
	return err ?: r.ret;
}

static void conn_serve(struct conn *c, struct kvd_session *s)
{
	struct kvd_reply r;
	int err = 0;

	while (!err && kvd_receive(c->sock, &c->message, true) > 0) {
		err = kvd_request(s, &c->message, &r, c->arg);
		/* the end of the session may take long */
		kvd_message_let_go(&c->message);
		if (!err && !(c->message.head.flags & WIRE_QUIET) && kvd_send(c->sock, &r))
			break;
	}
}

/* The session is gone, or there is none; or the thread is. True: both are, and the caller frees c. kvd_lock held */
static bool conn_part_ended(struct conn *c)
{
	struct conn **link;

	if (!c->ended) {
		c->ended = true;
		return false;
	}
	for (link = &conns; *link != c; link = &(*link)->next)
		;
	*link = c->next;
	c->tenant->sessions--;
	nr_conns--;
	return true;
}

static void conn_free(struct conn *c)
{
	kvd_peer_put(&c->peer);
	free(c);
}

/* The end of the session. With the thread still there the rest is left to it. */
static void conn_ended(void *arg)
{
	struct conn *c = arg;
	bool last;

	pthread_mutex_lock(&kvd_lock);
	last = conn_part_ended(c);
	pthread_mutex_unlock(&kvd_lock);
	if (last)
		conn_free(c);
}

/* The end of the thread, of which the client knows by the end of the socket: it is not counted then any more. */
static void conn_hung_up(struct conn *c)
{
	bool last;

	kvd_message_free(&c->message);
	pthread_mutex_lock(&kvd_lock);
	close(c->sock);
	c->sock = -1;
	last = conn_part_ended(c);
	pthread_mutex_unlock(&kvd_lock);
	if (last)
		conn_free(c);
	pthread_mutex_lock(&kvd_lock);
	nr_serving--;
	pthread_cond_broadcast(&conns_gone);
	pthread_mutex_unlock(&kvd_lock);
}

static void *conn_run(void *arg)
{
	struct kvd_session *s;
	struct conn *c = arg;

	if (!conn_begin(c, &s))
		conn_serve(c, s);
	if (s)
		kvd_session_close(s, conn_ended, c);
	else
		c->ended = true;	/* nobody else has it */
	conn_hung_up(c);
	return NULL;
}

static bool conn_room(uid_t uid)
{
	uint32_t nr = 0;

	for (struct conn *c = conns; c; c = c->next)
		nr += c->peer.uid == uid;
	return nr < kvd_conns_user && nr_conns < kvd_conns_max;
}

/* kvd_lock held */
static struct conn *conn_new(struct kvd_tenant *t, int sock)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->tenant = t;
	c->sock = sock;
	if (snprintf(c->path, sizeof(c->path), "%s/%s", t->pool->dir, t->name) < (int)sizeof(c->path) &&
	    !kvd_peer_get(sock, &c->peer)) {
		if (conn_room(c->peer.uid) && !kvd_message_init(&c->message))
			return c;
		kvd_peer_put(&c->peer);
	}
	free(c);
	return NULL;
}

/* kvd_lock held */
static bool conn_start(struct conn *c)
{
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, CONN_STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &attr, conn_run, c);
	pthread_attr_destroy(&attr);
	if (err)
		return false;
	c->next = conns;
	conns = c;
	nr_conns++;
	nr_serving++;
	c->tenant->sessions++;
	return true;
}

void kvd_accept(uint64_t id)
{
	struct kvd_tenant *t;
	struct conn *c = NULL;
	int sock = -1;

	pthread_mutex_lock(&kvd_lock);
	t = kvd_tenant_by_id(id);
	if (t)
		sock = accept4(t->sock, NULL, NULL, SOCK_CLOEXEC);
	if (sock >= 0) {
		c = conn_new(t, sock);
		if (!c || !conn_start(c)) {
			if (c) {
				kvd_message_free(&c->message);
				kvd_peer_put(&c->peer);
				free(c);
			}
			close(sock);
		}
	}
	pthread_mutex_unlock(&kvd_lock);
}

void kvd_hang_up(void)
{
	pthread_mutex_lock(&kvd_lock);
	for (struct conn *c = conns; c; c = c->next)
		if (c->sock >= 0)
			shutdown(c->sock, SHUT_RDWR);
	while (nr_serving)
		pthread_cond_wait(&conns_gone, &kvd_lock);
	pthread_mutex_unlock(&kvd_lock);
}
