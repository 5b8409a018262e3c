/* SPDX-License-Identifier: GPL-2.0 */
/*
 * kvctxd: one index for all processes of a host, without a module.
 *
 * The daemon has pools attached by the engine of the library (libkvctx/engine), and is nothing but a user of it: each
 * connection to a tenant's socket is one session of the engine, and the requests of libkvctx/socket/wire.h are the engine's
 * calls. Completions, arena and slots are memfds of the engine's that the client maps too.
 *
 *	access.c	who may open a tenant, and how
 *	sock.c		messages with descriptors over a socket
 *	session.c	a session of the engine: its shared memory, and telling the client of completions
 *	signal.c	telling it by an eventfd of its own
 *	memory.c	memory that clients register
 *	request.c	a request: what it names is found in the message, checked, and handed to the engine
 *	pools.c		pools and their tenants' sockets
 *	conn.c		a connection, in a thread of its own
 *	attach.c	a pool whose members are told one by one
 *	control.c	requests of kvctxctl, as the kernel's generic netlink has them: connections, and the table
 *	control_pool.c	those about pools, and
 *	control_tenant.c  about tenants
 *	answer.c	what is answered: the messages, and
 *	report.c	the objects in them: pools, tenants, counters
 *	events.c	who listens is told what happened
 *	pages.c		and, if he likes, which pages come and go
 *	main.c		options, signals, the loop that accepts
 *
 * Floors, lowest first; a file calls only what is below it.
 *   1  access sock memory signal
 *   2  session
 *   3  request
 *   4  pools
 *   5  conn attach report answer
 *   6  events
 *   7  pages
 *   8  control_pool control_tenant
 *   9  control
 *  10  main
 *
 * Clients are hostile. A message is received into memory of ours before anything of it is looked at. Shared memory is
 * only ever the ring's head and the door, both read once and trusted for nothing but the client's own completions, and
 * bytes of pages. No descriptor of a client's is written to or read from, but memfds with pread(): a thread of ours
 * cannot be made to sleep but its own.
 *
 * Locks: kvd_lock guards pools, tenants and the list of connections; a connection's thread takes it to come and to go,
 * and holds none while it works. Nothing that waits for a device is done under it: who has a pool in his hands holds it
 * (users), and who changes it or its tenants is the only one who does (changes).
 */
#ifndef KVCTXD_H
#define KVCTXD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

#include "sys.h"
#include "socket/wire.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/* access.c */

struct kvd_peer {
	uid_t uid;
	gid_t *groups;			/* its own first */
	size_t nr_groups;
};

int kvd_peer_get(int sock, struct kvd_peer *peer);
void kvd_peer_put(struct kvd_peer *peer);
/* May @peer open what @uid and @gid own with @mode for this? @flags: O_RDONLY or O_RDWR */
bool kvd_may_open(const struct kvd_peer *peer, uid_t uid, gid_t gid, mode_t mode, int flags);
/* Of a socket that all may connect to who may open the tenant for anything */
mode_t kvd_socket_mode(mode_t mode);

/* sock.c */

#define KVD_FDS		WIRE_FDS	/* of a message */

struct kvd_message {
	uint8_t *body;			/* 8-aligned */
	uint64_t bytes;
	struct wire_request head;
	int fds[KVD_FDS];		/* -1: taken out by who wants to keep it */
	uint32_t nr_fds;
	/* private */
	uint8_t *inline_body, *parcel;
	uint64_t parcel_bytes;
};

/* A reply under way; what it points to is freed by kvd_send() but for @arg */
struct kvd_reply {
	int32_t ret;
	const void *arg;
	uint64_t arg_bytes;
	void *rest;			/* malloc()ed */
	uint64_t rest_bytes;
	int fds[KVD_FDS];		/* lent */
	uint32_t nr_fds;
};

int kvd_message_init(struct kvd_message *m);
void kvd_message_free(struct kvd_message *m);
/* Its body and its descriptors are done with: nobody waits for the next message with them, they are counted nowhere */
void kvd_message_let_go(struct kvd_message *m);
/* Into @m, which holds none: 1, 0 at the end of the connection, -errno. @m->body is ours alone. @parcels: may come */
int kvd_receive(int sock, struct kvd_message *m, bool parcels);
int kvd_send(int sock, struct kvd_reply *r);

/* memory.c */

struct kvd_memory {
	struct kvd_memory *next;
	uint32_t id;
	void *map;
	size_t bytes;			/* of the map */
	uint64_t length;		/* as registered */
};

/*
 * Map @length bytes at @offset of the memfd @fd. 0; -EREMOTEIO: it is none, or can shrink; -EFAULT: it is shorter, or
 * not open for writing
 */
int kvd_memory_map(int fd, uint64_t offset, uint64_t length, struct kvd_memory **out, void **addr);
void kvd_memory_unmap(struct kvd_memory *m);

/* session.c */

struct kvd_session {
	struct kvctx_file *file;
	struct wire_limits limits;
	bool rdonly;
	uid_t uid;			/* of the client */
	struct kvd_memory *memories;
	uint64_t registered;		/* bytes of @memories */
	struct kvd_session *next;	/* of all; with what follows under a lock of session.c's */
	uint64_t bytes;			/* of arena, slots and events */
	uint32_t maps;			/* @memories, and what is about to be one */
	bool listens;
	uint64_t arena_max;		/* what the engine takes at most, of either */
	/* from SETUP on */
	struct kvctx_cq_ring *ring;
	size_t ring_bytes;
	struct wire_door *door;
	int fds[WIRE_FDS];		/* the client's ends; those that are ours to close, but for bell and light */
	int bell, light;		/* our ends */
	struct kvd_signal *signal;	/* the client's eventfd, or NULL */
	void (*ended)(void *arg);	/* from close on */
	void *ended_arg;
	pthread_mutex_t lock;		/* what follows */
	uint32_t told;			/* tail when the hook was last called */
};

extern uint64_t kvd_memory_user;	/* most bytes of one user's arenas, slots and events */
extern uint64_t kvd_registered_max;	/* most bytes that one session may register */

/* Most registrations of one user: each is a mapping, of which Linux lets a process have 65,530 (vm.max_map_count). */
#define KVD_MAPS_USER	16384U

int kvd_session_open(const char *path, int flags, uid_t uid, struct kvd_session **out);
/* Before the engine does: take memory and mappings for the client; 0, -ENOMEM. And give it back, if that failed */
int kvd_session_take(struct kvd_session *s, uint64_t bytes, uint32_t maps);
void kvd_session_give(struct kvd_session *s, uint64_t bytes, uint32_t maps);
/*
 * @ended: called when nothing of it moves any more, before this returns or by a thread of the engine. A device that
 * does not answer is waited for no longer than a few seconds
 */
void kvd_session_close(struct kvd_session *s, void (*ended)(void *arg), void *arg);
/* signal.c: a client's @eventfd, which stays the caller's. 0, -EINVAL: it is none; -ENOMEM, -EOPNOTSUPP. send does not wait */
int kvd_signal_new(int eventfd, struct kvd_signal **out);
void kvd_signal_free(struct kvd_signal *sig);		/* NULL does nothing */
void kvd_signal_send(struct kvd_signal *sig);		/* one thread at a time */

/* Before SETUP by the engine: the client's eventfd, or -1. As kvd_signal_new() */
int kvd_session_signal(struct kvd_session *s, int eventfd);
/* After it. @fds: WIRE_FDS, lent; returns how many, or -errno */
int kvd_session_share(struct kvd_session *s, const struct kvctx_setup *arg, int *fds);
void kvd_session_light(struct kvd_session *s);

/* request.c */

/* 0: send @r, unless the request is quiet; -errno: nobody honest sends that, end the connection */
int kvd_request(struct kvd_session *s, struct kvd_message *m, struct kvd_reply *r, void *arg);

/* pools.c */

struct kve_pool;

struct kvd_tenant {
	struct kvd_tenant *next;
	struct kvd_pool *pool;
	char name[KVCTX_NAME_MAX];
	uint32_t slot;			/* in the superblock, which also has these, for as long as it is there */
	uid_t uid;
	gid_t gid;
	mode_t mode;
	uint64_t id;			/* of what the loop listens on */
	int sock;
	uint32_t sessions;
};

struct kvd_pool {
	struct kvd_pool *next;
	char name[KVCTX_NAME_MAX];
	char *dir;
	struct kve_pool *engine;
	struct kvd_tenant *tenants;
	uint32_t users;			/* who holds it; kvd_lock, as the next */
	bool changes, gone;		/* somebody changes it; it is on the list no more */
	struct kvd_pages *pages;	/* see pages.c; NULL, or it is ended when nobody holds the pool any more, nor will */
	void (*end_pages)(struct kvd_pool *p);
};

extern pthread_mutex_t kvd_lock;
extern struct kvd_pool *kvd_pools;
extern int kvd_loop;			/* epoll descriptor; data is an id */

#define KVD_WHY		256

/* Of a socket, RUN/POOL/TENANT */
#define KVD_PATH_MAX	(sizeof(((struct sockaddr_un *)0)->sun_path))
#define KVD_RUN_MAX	(KVD_PATH_MAX - 2 * KVCTX_NAME_MAX)

extern char kvd_run[KVD_RUN_MAX];
extern const char *kvd_pools_dir;	/* of directories of pools; NULL: none was named */

/* Ids of what the loop waits for; tenants from KVD_ID_TENANTS */
enum {
	KVD_ID_SIGNAL,
	KVD_ID_CONTROL,
	KVD_ID_TENANTS,
};

/* These return 0, or -errno with a sentence in @why */
int kvd_run_open(const char *dir, char *why);
int kvd_listen(const char *path, uid_t uid, gid_t gid, mode_t mode, char *why);	/* a descriptor */
int kvd_pool_attach(const char *dir, struct kvd_pool **out, char *why);		/* held */
/* By who holds it alone, and still does. -EINPROGRESS: gone, but a device does not answer */
int kvd_pool_detach(struct kvd_pool *p, char *why);
int kvd_tenant_show(struct kvd_pool *p, uint32_t slot, char *why);	/* its socket, of one that the engine has */
/* @err, with the sentence */
int kvd_refuse(char *why, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

void kvd_run_close(void);
int kvd_watch(int fd, uint64_t id);
/* Hold it, until kvd_pool_put(); @alone: to change it, when nobody else does any more. NULL: none of that name */
struct kvd_pool *kvd_pool_hold(const char *name, bool alone);
void kvd_pool_put(struct kvd_pool *p, bool alone);
int kvd_pools_hold(struct kvd_pool ***out);		/* all; how many, in an array to be freed, or -ENOMEM */
struct kvd_tenant *kvd_tenant_find(struct kvd_pool *p, const char *name);	/* the pool is held alone */
struct kvd_tenant *kvd_tenant_by_id(uint64_t id);
void kvd_tenant_hide(struct kvd_tenant *t);				/* kvd_lock held */

/* conn.c */

extern uint32_t kvd_conns_max, kvd_conns_user;	/* at once, in all and of one user */

/* Somebody is at the socket of the tenant @id, which may be gone by now */
void kvd_accept(uint64_t id);
/* Close all sessions and wait for it; not for what a device holds on to, whose sessions are counted on */
void kvd_hang_up(void);

#endif
