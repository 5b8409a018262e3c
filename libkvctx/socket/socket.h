/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * kvctxd as a server, over its tenant's socket; wire.h has the messages. What its files share:
 *
 *	wire.c		requests and replies
 *	mem.c		registrations: memory that the daemon maps, and memory that it cannot
 *	ring.c		operations in flight, and the caller's completion ring
 *	wait.c		WAIT
 *	submit.c	SUBMIT
 *	server.c	the table of the server
 *
 * Floors, lowest first; a file calls only what is below it.
 *   1  wire
 *   2  mem
 *   3  ring
 *   4  wait
 *   5  submit
 *   6  server
 *
 * Vocabulary
 *   far ring	the completion ring that the daemon shares with us
 *   near ring	the caller's: memory of this process. Completions are moved there when somebody looks
 *   local	of registered memory: the daemon cannot map it
 *   stage	rooms, memfds of ours that the daemon maps: operations on local memory move pages from and to a part of one,
 *		and we copy. Their completions say STAGED. Registrations make them, as many as what they register
 *		would fill and the daemon allows; with 32 MiB alone a device runs dry while pages of some MiB are copied
 *   record	an operation from SUBMIT until its completion is in the near ring; by number
 *   wire name	of a record: its number and how often that was used before, so that CANCEL names no other one
 *
 * So a completion is in the near ring when its bytes are where they belong. And when the daemon is gone, which every
 * socket tells, each operation in flight still ends, with -ENODEV; so do calls from then on.
 *
 * Most calls are a request and its reply, one at a time. SUBMIT goes without a reply, unless a LOAD wants CRCs: what may
 * be taken is known here. WAIT needs nobody.
 *
 * Locks: @call, then @lock. A record's operation is its own between those: no lock is held over a copy, or a system call
 * that sleeps.
 */
#ifndef KVS_SOCKET_H
#define KVS_SOCKET_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "sys.h"
#include "wire.h"

#define STAGE_BYTES	WIRE_STAGE_MIN	/* of a room */
#define STAGE_ROOMS	(WIRE_STAGE_MAX / WIRE_STAGE_MIN)
#define STAGE_UNIT	(32U << 10)
#define STAGE_UNITS	(STAGE_BYTES / STAGE_UNIT)	/* of a room; a unit's number tells the room, too */

#define LOCAL_ID	(1U << 20)	/* ids of local memory; the daemon gives small ones */

/* Local memory; on a list of the file */
struct socket_local {
	struct socket_local *next;
	uint32_t id;
	uint8_t *addr;
	uint64_t length;
	uint32_t users;			/* operations */
};

enum record_state {
	RECORD_FREE,
	RECORD_NEW,			/* of the thread in SUBMIT */
	RECORD_FLYING,			/* the daemon has it, or will have */
	RECORD_ENDING,			/* its bytes are being copied */
};

struct record {
	enum record_state state;
	uint32_t next;			/* free one */
	uint32_t uses;			/* the upper half of its wire name */
	uint64_t user_data;
	/* of a staged one: */
	struct kvctx_seg *segs;		/* as the daemon is told, and behind them the caller's; NULL: not staged */
	uint32_t nr_segs;
	uint8_t **addrs;		/* of the local memories of those */
	uint32_t unit, nr_units;	/* of the stage */
	bool counted;			/* as a user of its memories */
	uint64_t answer;		/* bytes of a MATCH's answer */
	bool load;
};

/* Memory of ours that the daemon maps */
struct socket_room {
	uint8_t *map;			/* NULL: none yet */
	uint64_t bytes;
	uint32_t id;
};

struct socket_file {
	struct kvctx_file file;
	int sock;
	pid_t owner;			/* process */
	bool rdonly;
	bool polled;			/* somebody has the light's descriptor */
	bool gone;			/* the daemon; atomically */
	struct wire_limits limits;
	pthread_mutex_t call;		/* one request and its reply */
	pthread_mutex_t stage_lock;	/* making rooms of the stage; above the others */
	struct socket_room stage[STAGE_ROOMS];
	struct socket_room hall;	/* of who has hall_used */

	/* since SETUP */
	bool ready;
	bool signals;			/* the caller has an eventfd */
	uint32_t entries;
	struct kvctx_cq_ring *far, *near;
	int near_fd, kick_fd;		/* the near ring's; an eventfd that wakes the watcher */
	struct wire_door *door;
	uint64_t ring_bytes, arena_bytes, slots_bytes;
	int fds[WIRE_FDS];		/* -1: none */

	pthread_mutex_t lock;		/* what follows */
	struct record *records;		/* @entries */
	uint32_t free;			/* the first of them */
	uint32_t inflight;		/* records that are not free */
	uint32_t tail;			/* of the near ring, whose own is for the caller */
	uint32_t seen, published;	/* of the far ring */
	bool buried;			/* all in flight were ended, as the daemon is gone */
	bool watched;			/* a sleeper is at the bell */
	uint32_t sleepers;		/* the watcher too */
	uint32_t rounds;		/* moved when sleepers should look */
	uint32_t looks;			/* of callers who found nothing */
	struct socket_local *locals;
	uint32_t nr_locals, next_local;
	bool hall_used;
	uint32_t nr_rooms;		/* of the stage: those that are there */
	uint8_t stage_used[STAGE_ROOMS * STAGE_UNITS];
};

/* wire.c */

#define PACKET_PIECES	1000		/* of a message, below IOV_MAX */

struct packet {
	struct wire_request head;
	struct iovec iov[PACKET_PIECES + 2];
	uint32_t nr;
	int fd;				/* goes with it, lent; -1: none */
};

struct answer {
	struct wire_reply head;
	uint8_t *body;
	int fds[WIRE_FDS];
	uint32_t nr_fds;
};

void kvs_packet_begin(struct packet *p, uint32_t nr, uint32_t flags);
void kvs_packet_add(struct packet *p, const void *from, uint64_t bytes);	/* two pieces at most */
int kvs_packet_send(struct socket_file *s, struct packet *p);
/* Send @p; what the daemon returns. @a is to be freed whatever that is */
int kvs_packet_exchange(struct socket_file *s, struct packet *p, struct answer *a);
void kvs_answer_free(struct answer *a);
/* The structure that the body begins with; where the rest begins */
uint64_t kvs_answer_arg(const struct answer *a, void *arg, uint32_t size);
/* Of what is there, at most so many bytes */
void kvs_answer_rest(const struct answer *a, uint64_t at, void *to, uint64_t bytes);
/* A request that is one structure and no more, which the reply brings back. @fd: goes with it, or -1 */
int kvs_packet_plain(struct socket_file *s, unsigned long nr, void *arg, uint32_t size, int fd);
/* One that is a number and no more, without a reply */
void kvs_packet_ask(struct socket_file *s, uint32_t nr);
/* Take what is to be read on bell or light; there one sees it when the daemon is gone */
void kvs_drain(struct socket_file *s, enum wire_fd which);
/* See whether the daemon is gone, and take nothing: what is on the bell is the watcher's, who may be about to sleep */
void kvs_look(struct socket_file *s, enum wire_fd which);
bool kvs_gone(const struct socket_file *s);

/* mem.c */
int kvs_register(struct socket_file *s, struct kvctx_mem_register *arg);
int kvs_unregister(struct socket_file *s, struct kvctx_mem_unregister *arg);
void kvs_mem_free(struct socket_file *s);
/*
 * Make @sqe one that the daemon can do, with memory of the stage instead of local memory, and copy what it stores. 0;
 * -EAGAIN: the stage is full, or what the operation ends with. In any case kvs_stage_end() has to follow.
 */
int kvs_stage_begin(struct socket_file *s, struct record *r, struct kvctx_sqe *sqe);
void kvs_stage_copy_out(struct socket_file *s, struct record *r, uint64_t bytes);
void kvs_stage_end(struct socket_file *s, struct record *r);		/* lock held */

/* ring.c */
int kvs_ring_setup(struct socket_file *s);
void kvs_ring_free(struct socket_file *s);
/* Take a record for the caller's @user_data: its number, or -EAGAIN. Lock held */
int kvs_record_take(struct socket_file *s, uint64_t user_data);
uint64_t kvs_record_name(const struct socket_file *s, uint32_t nr);		/* its wire name; lock held */
/* The wire names of those in flight with the caller's @user_data, @max at most, of the records from *@from on. Lock held */
uint32_t kvs_records_named(const struct socket_file *s, uint64_t user_data, uint32_t *from, uint64_t *names,
			   uint32_t max);
void kvs_record_drop(struct socket_file *s, uint32_t nr);			/* of what was not sent; lock held */
void kvs_record_complete(struct socket_file *s, uint32_t nr, int32_t res);	/* without the daemon; lock held */
/* Move completions to the near ring. Lock held, which is dropped meanwhile if bytes have to be copied */
void kvs_ring_harvest(struct socket_file *s);
uint32_t kvs_ring_consumable(const struct socket_file *s);
int kvs_ring_consume(struct socket_file *s, uint32_t nr);
int kvs_ring_publish(struct socket_file *s);				/* before the daemon gets more; -errno: it may not have it yet. Lock held */
uint32_t kvs_door_tail(const struct socket_file *s);
bool kvs_ring_idle(const struct socket_file *s);				/* nothing for the caller; lock held */
void kvs_ring_settle(struct socket_file *s);				/* the caller has moved head */
void kvs_ring_wake(struct socket_file *s);					/* sleepers look; lock held */

/* wait.c */
int kvs_sleep(struct socket_file *s, uint32_t min, __u64 *timeout_ns);	/* as KVCTX_IOC_WAIT, and so the result */

/* submit.c */
int kvs_submit(struct socket_file *s, const struct kvctx_submit *arg);

#endif
