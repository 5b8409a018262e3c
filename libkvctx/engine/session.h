/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sessions of a pool in the process: what their files share.
 *
 * kmod/data is the model: the same states, decisions and errors. Here each session has one mutex and one ring, and
 * there are three kinds of threads: callers, the session's reaper, and the pool's attendant.
 *
 * Vocabulary
 *   memory    struct kve_mem: addresses that operations name by id: the arena, a registration, the slots
 *   piece     one part of an operation's memory, as an iovec
 *   transfer  struct kve_io: pieces from or to one place of one member
 *   ring      what carries transfers: an io_uring, or threads where that is forbidden
 *   reap      take transfers that are over off the ring, and end their operations. One thread at a time sleeps in the
 *             ring; see cq.c
 *   batch     operations of one SUBMIT, whose transfers are sent together
 *
 * Life of an operation (struct kve_op). It has one owner at a time and no lock. Operations without I/O complete inside
 * SUBMIT; a LOAD that finds its page in a slot, or on its way there, is served by slots.c; the others pass some of these
 * states, where op->kind says what comes next:
 *
 *   state    owner      entered by             left when                              by calling
 *   NEW      submit.c   kve_op_alloc()         memory and pieces are there            the start of its opcode
 *   PARKED   wait.c     kve_attempt()          there may be space                     kind->attempt()
 *                                              it gives up (wait.c)                   kve_op_complete()
 *   QUEUED   wait.c     kve_turn_take()        it is its turn, or it gives up         kind->go()
 *   MOVING   ring       kve_io_start()         io.pending comes to zero               kind->finish()
 *   ENDED    op.c       kve_op_complete()      at once                                op->done(), or kve_cq_post()
 *
 * Floors, lowest first; a file calls only what is below it. They stand on those of engine.h.
 *   1  transfer cipher
 *   2  ring_threads ring_uring
 *   3  ring mem
 *   4  cq
 *   5  op
 *   6  wait
 *   7  io
 *   8  reap store load events match
 *   9  slots
 *   10 submit
 *   11 session
 *   12 server
 *
 * Locks, outermost first: session->lock; those of slots, of leases and of what operations wait in; the ring's. Nothing is
 * copied, checked or transferred under any but the last, and no operation is completed under those in the middle.
 */
#ifndef KVE_SESSION_H
#define KVE_SESSION_H

#include <semaphore.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "engine.h"
#include "session/lease.h"
#include "session/pace.h"
#include "session/tally.h"

struct kve_op;
struct kve_session;

/* cipher.c */
struct kve_cipher;

int kve_cipher_find(const char *name, struct kve_cipher **out);
int kve_cipher_of(const struct kvc_super_key *key, struct kve_cipher **out);
void kve_cipher_free(struct kve_cipher *c);
bool kve_cipher_valid(const struct kve_cipher *c);
int kve_cipher_check(const struct kve_cipher *c, u8 check[KVC_KEY_CHECK]);
bool kve_cipher_nonce(u8 nonce[KVC_NONCE_LEN]);
int kve_cipher_run(const struct kve_cipher *c, bool encrypt, const u8 *nonce, u32 block, void *at, u32 bytes);

/* ring.c, ring_uring.c, ring_threads.c */

struct kve_io {
	struct kve_io *next;		/* the ring's, then of those that are over */
	struct kve_member *member;
	struct iovec *vec;		/* of whole blocks, not changed until it is over */
	u32 nr;
	u32 bytes;
	u64 offset;			/* on the device */
	bool write;
	u8 level;			/* of its I/O priority, 0..7 */
	const bool *orphaned;		/* the session's: then no further step is made; atomically */
	s32 buffer;			/* of the ring, that the only piece lies in; -1: none */
	int err;			/* when it is over */
	/* private */
	u32 done, at, skip;		/* bytes; pieces, and bytes of the next, that are done */
	struct iovec rest;
};

struct kve_ring {
	const struct kve_ring_kind *kind;
};

#define KVE_RING_AGAIN	(KVE_NSEC / 1000)	/* what the kernel did not take is tried so soon */

struct kve_ring_kind {
	bool threads;
	void (*queue)(struct kve_ring *r, struct kve_io *io);
	bool (*send)(struct kve_ring *r);
	int (*wait)(struct kve_ring *r, u64 until, u32 want, struct kve_io **over);
	bool (*poke)(struct kve_ring *r);
	s32 (*buffer_add)(struct kve_ring *r, void *addr, size_t len);
	void (*buffer_remove)(struct kve_ring *r, s32 buffer);
	void (*let_go)(struct kve_ring *r, u32 member);		/* of its device; any thread */
	void (*close)(struct kve_ring *r);
};

/* 0; -ENOSYS: the kernel has no io_uring for us; -ENOMEM. @entries: of transfers at once, a hint */
int kve_uring_open(struct kve_ring **out, u32 entries);
int kve_iothreads_open(struct kve_ring **out);
int kve_ring_open(struct kve_ring **out, u32 entries);
/* For the two: the next step of a transfer, of at most IOV_MAX pieces */
u32 kve_io_next(struct kve_io *io, struct iovec **vec);
/* It ended with @res. true: the transfer is over; false: it has to go on */
bool kve_io_step(struct kve_io *io, s64 res);
/* May none be made? Then it ends as one does that was not made */
bool kve_io_orphaned(const struct kve_io *io);

/*
 * Queue a transfer, send what is queued: any thread. true: the kernel has no memory for what is left, and it has to be
 * sent once more. See kve_send()
 */
static inline void kve_ring_queue(struct kve_ring *r, struct kve_io *io)
{
	r->kind->queue(r, io);
}

static inline bool kve_ring_send(struct kve_ring *r)
{
	return r->kind->send(r);
}

/*
 * Sleep until a transfer is over, it is poked or the time is @until (0: do not sleep). One thread at a time. A ring that
 * can sleeps until @want transfers are over, if so many are on their way. *@over gets those that are over. 0, -EINTR.
 */
static inline int kve_ring_wait(struct kve_ring *r, u64 until, u32 want, struct kve_io **over)
{
	return r->kind->wait(r, until, want, over);
}

/* Who sleeps, or sleeps next, returns from kve_ring_wait(). true: when kve_ring_send() was called once more */
static inline bool kve_ring_poke(struct kve_ring *r)
{
	return r->kind->poke(r);
}

/* The same two of a session's ring. What the kernel has no memory for is sent by the attendant as soon as it has */
void kve_send(struct kve_session *s);
void kve_poke(struct kve_session *s);
void kve_send_work(struct kve_job *job);

/* mem.c */

struct kve_map {
	void *addr;			/* NULL: none */
	size_t bytes;
	int fd;
};

struct kve_mem {
	u32 id;
	u8 *addr;
	u64 length;
	u64 pinned;			/* bytes that count against the tenant's limit */
	u32 users;			/* operations; session->lock */
	u32 nr_buffers;			/* of the ring, of 1 << kve_mem_order bytes; 0: the ring does not know it */
	s32 buffers[];
};

extern unsigned int kve_mem_order;	/* of the ring's buffers: 1 GiB; only tests change it */

int kve_map_create(struct kve_map *map, size_t bytes, bool rdonly);	/* @rdonly: to the caller. 0, -ENOMEM */
void kve_map_free(struct kve_map *map);
void kve_fd_close(int *fd);			/* one that was kve_fork_own()ed, or -1 */
int kve_map_share(const struct kve_map *map, size_t len, int prot, u64 offset, void **out);
int kve_mem_register(struct kve_session *s, u64 addr, u64 length);	/* its id, or an error */
int kve_mem_unregister(struct kve_session *s, u32 id);
struct kve_mem *kve_mem_of_map(struct kve_session *s, const struct kve_map *map);	/* NULL: no memory */
void kve_mem_free(struct kve_session *s, struct kve_mem *mem);
s32 kve_mem_buffer(const struct kve_mem *mem, const void *addr, size_t len);

/* Walking over pieces */
void kve_vec_gather(void *to, const struct iovec *vec, u32 nr);
void kve_vec_scatter(const struct iovec *vec, const void *from, u32 nr);
void kve_vec_zero(const struct iovec *vec, u32 nr);

struct kve_cursor {
	const struct iovec *vec;
	size_t done;			/* bytes of it behind us */
};

u32 kve_cursor_crc(struct kve_cursor *c, u32 n);	/* of the next bytes */
void kve_cursor_write(struct kve_cursor *c, const void *from, u32 n);

/* cq.c */

/* A caller in WAIT */
struct kve_waiter {
	struct kve_waiter *next;
	u32 min;
	bool woken;			/* off the list */
	bool eager;			/* in the ring it wakes at each transfer's end, for others want to know */
	sem_t sem;
};

struct kve_cq {				/* under session->lock */
	struct kve_map map;
	struct kvctx_cq_ring *ring;
	u32 entries;			/* a power of two; never changes */
	u32 tail;			/* the ring's copy is for the caller */
	u32 inflight;			/* accepted and without a completion */
	u32 background;			/* reads into slots, and who else needs the session; they have no room */
	int eventfd;			/* the caller's, -1: none */
	void (*posted)(void *arg);	/* share.h; NULL: nobody */
	void *posted_arg;
	void (*signalled)(void *arg);	/* share.h; NULL: nobody. Gets posted_arg too */
	int pollfd;			/* ours, -1: nobody polls */
	bool readable;			/* pollfd is */
	struct kve_waiter *waiters;	/* in WAIT, not in the ring */
	struct kve_waiter *sleeper;	/* in WAIT, asleep in the ring */
	bool reaping;			/* somebody is in the ring */
	struct kve_op *later, **later_end;	/* go on in the thread that reaps, see kve_cq_later() */
	u64 visits;			/* of callers who reap, or wish they could */
	bool idle;			/* the reaper sleeps for long */
	bool stop;
	u32 touching;			/* who has the caller's memory or the ring in hand, see kve_touch() */
	pthread_t reaper;
	void (*end)(struct kve_session *orphan);
	pthread_cond_t wake;		/* the reaper */
	pthread_cond_t drained;		/* who closes */
};

struct kve_session {
	struct kve_pool *pool;
	struct kve_waits *waits;	/* the pool's */
	struct kve_ring *ring;
	struct kve_job send_job;	/* sends what the ring could not */
	struct kve_holder holder;	/* on the pool's list while there is a ring */
	char tenant[KVCTX_NAME_MAX];
	u32 slot;			/* of the tenant */
	u32 tenant_flags;
	u32 losses_seen;		/* see struct kve_flush */
	struct kvctx_tally_shard *tally; /* where its operations count */
	struct kvctx_rights rights;
	struct kve_cipher *cipher;	/* of a tenant whose pages are encrypted, from SETUP on; else NULL */
	bool ready;			/* published by SETUP with release order */
	bool dying;			/* set by close; nothing waits any more */
	bool orphaned;			/* closed before the last transfer's end; changes under lock, read atomically */
	void (*ended)(void *arg);	/* after the end, by whoever comes to it; or NULL */
	void *ended_arg;
	pthread_mutex_t setup_lock;	/* SETUP, EVENTS; outside of all others */
	pthread_mutex_t lock;
	struct kvc_domain *domain;
	struct kve_cq cq;

	struct kve_map arena_map;
	u64 pinned;			/* bytes of the arena and the slots, which count against the tenant's limit */
	struct kve_mem **mems;		/* by id; room for nr_mems; id 0 is the arena */
	u32 nr_mems;
	u32 unregistered;		/* atomically; memories that the ring does not know, though it knows others */
	struct kvctx_slots *slots;	/* NULL: none */
	struct kve_mem *slots_mem;
	struct kve_map slots_map;

	struct kvctx_leases leases;
	struct kve_job lease_job;	/* ends those that are due */

	struct kvc_listener listener;	/* setup_lock, as the next */
	bool listens;
	struct kve_job events_job;
};

int kve_cq_setup(struct kve_session *s, u32 entries);
void kve_cq_free(struct kve_session *s);
u32 kve_cq_reserve(struct kve_session *s, u32 nr);
void kve_cq_post(struct kve_session *s, u64 user_data, s32 res, u32 flags);	/* lock held */
void kve_cq_posted(struct kve_session *s, void (*fn)(void *arg), void (*signalled)(void *arg), void *arg);
void kve_cq_signal(struct kve_session *s);
void kve_cq_background(struct kve_session *s, int more);
int kve_cq_consume(struct kve_session *s, u32 nr);
void kve_cq_consumed(struct kve_session *s);
int kve_cq_pollfd(struct kve_session *s);
u32 kve_cq_consumable(const struct kve_cq *cq);		/* lock held, as in the next three */
bool kve_cq_drained(const struct kve_cq *cq);
bool kve_cq_enough(const struct kve_cq *cq, u32 min);
void kve_waiter_wake(struct kve_waiter **link);
void kve_cq_hurry(struct kve_session *s);		/* lock held */
/*
 * For threads of the engine's: between these the caller's memory is there, and the session's ring, since close() waits
 * for the second. false: the memory may be gone, and the operation ends without it
 */
bool kve_touch(struct kve_session *s);
void kve_untouch(struct kve_session *s);
/*
 * kind->go() of an operation whose turn has come once more, with later.came set, in the thread that reaps: for what takes
 * long, in threads that others wait for. No lock held; the operation may be gone on return.
 */
void kve_cq_later(struct kve_op *op);

/* op.c */

#define KVE_INLINE_PIECES	8

struct kve_batch {
	struct kve_op *stores;		/* sent, and still to be checksummed */
	struct kve_op **last;
	bool no_key;			/* the session's may not be used any more */
};

/* What an operation of one kind does in the states of the table above */
struct kve_op_kind {
	int (*attempt)(struct kve_op *op);		/* 0: taken over; -EAGAIN: again when there is space */
	void (*go)(struct kve_op *op, int err);		/* its turn came, or never will */
	void (*finish)(struct kve_op *op);		/* all that io.pending counts have reported */
};

struct kve_op {
	struct kvctx_req call;			/* what was asked for */
	struct kve_session *session;
	const struct kve_op_kind *kind;
	struct kve_batch *batch;		/* see kve_op_batch() */
	struct {
		struct kve_op *next;		/* of cq->later */
		bool came;			/* it was there */
	} later;

	struct {				/* the caller's memory */
		u32 nr;				/* pieces */
		struct iovec *vec;		/* the first; there is room for one in front and one behind */
		u32 *ids;			/* of the memories, one for each piece */
		void *list;			/* allocated, when they do not fit in here */
		s32 buffer;			/* of the ring, that the only piece lies in; -1: none */
	} mem;

	void (*done)(struct kve_op *op, s32 res, u32 flags);	/* takes the result; NULL: the completion queue */

	struct {
		struct kve_io io;
		u32 member;
		u64 offset;			/* on the device */
		u32 bytes;			/* whole blocks */
		struct os_atomic pending;
		int error;			/* first failure */
		void *bounce;			/* memory of ours: of the whole transfer, or of what frames it */
		bool whole;
	} io;

	union {
		struct {
			struct kvc_store page;
			struct kve_op *next;	/* of the batch */
		} store;
		struct {
			struct kvc_load page;
			bool verify;		/* the chunks are checked */
			u64 told;		/* seq of the page whose CRCs its caller has; 0: none */
			struct kvctx_frame frame;
		} load;
		struct kve_flush *flush;
		struct kve_job match;
	};

	/* Not zeroed from here on */
	u32 inline_ids[KVE_INLINE_PIECES];
	struct iovec inline_vecs[KVE_INLINE_PIECES + 2];
};

static inline struct kve_op *kve_op_of(struct kvctx_req *req)
{
	return container_of(req, struct kve_op, call);
}

/* The batch that it came with, until it waits */
static inline struct kve_batch *kve_op_batch(const struct kve_op *op)
{
	return op->call.wait.waited ? NULL : op->batch;
}

struct kve_op *kve_op_alloc(struct kve_session *s);
void kve_op_discard(struct kve_op *op);
int kve_op_pieces(struct kve_op *op, const struct kvctx_seg *segs, u32 nr);
void kve_op_put_pieces(struct kve_op *op);	/* lock held */
void kve_op_complete(struct kve_op *op, s32 res, u32 flags);

/* wait.c: what waits in a pool */

struct kve_waits {
	struct kve_pool *pool;
	struct kvctx_pace pace;			/* what may not begin yet */
	struct kvctx_park space;		/* STORE and DELETE */
	struct kvctx_turn turns[KVC_MEMBERS_MAX];
};

struct kve_waits *kve_waits_get(struct kve_pool *p);	/* NULL: no memory */
struct kvctx_tally *kve_tally_get(struct kve_pool *p, u32 slot);	/* of the tenant there; NULL: no memory */
int kve_attempt(struct kve_op *op, bool behind);
int kve_pace(struct kve_op *op);
void kve_turn_take(struct kve_op *op);
void kve_turn_end(struct kve_op *op);
bool kve_turn_take_back(struct kve_op *op, u32 member);
void kve_sweep(struct kve_waits *w);
u32 kve_cancel_all(struct kve_session *s, const u64 *names, u32 nr_names);
s32 kve_cancel(struct kve_session *s, const struct kvctx_sqe *sqe);

/* io.c */
int kve_io_frame(struct kve_op *op, u32 head, u32 tail, bool write);
void kve_io_start(struct kve_op *op, bool write, u32 pending);
void kve_io_deliver(struct kve_op *op, u32 head);
void kve_io_put(struct kve_op *op);
int kve_io_result(struct kve_op *op);
void kve_io_free(struct kve_op *op);
void kve_io_over(struct kve_io *io);

/* reap.c */
int kve_cq_wait(struct kve_session *s, u32 min, u64 *timeout_ns);
void kve_cq_look(struct kve_session *s);
bool kve_cq_drain(struct kve_session *s);		/* false: the session is an orphan now, and its reaper's */
int kve_reaper_start(struct kve_session *s, void (*end)(struct kve_session *orphan));
void kve_reaper_stop(struct kve_session *s);

/* Start an operation. 0: taken over; an error completes it */
int kve_store_start(struct kve_op *op);
void kve_store_crcs(struct kve_batch *b);
int kve_delete_start(struct kve_op *op);
int kve_flush_op_start(struct kve_op *op);
int kve_load_begin(struct kve_op *op);
int kve_load_tell(struct kve_op *op);
int kve_load_move(struct kve_op *op);
void kve_load_go(struct kve_op *op, int err);
void kve_load_finish(struct kve_op *op);

/* events.c */
int kve_events(struct kve_session *s, struct kvctx_events *arg);
void kve_events_exit(struct kve_session *s);

/* slots.c */
int kve_slots_setup(struct kve_session *s, u32 *slot_bytes, u32 nr);
void kve_slots_free(struct kve_session *s);
const struct kve_map *kve_slots_map(const struct kve_session *s);
int kve_prefetch_start(struct kve_op *op);
s32 kve_put(struct kve_session *s, const struct kvctx_sqe *sqe);
int kve_load_start(struct kve_op *op);

/* match.c */
void kve_lease_init(struct kve_session *s);
void kve_lease_exit(struct kve_session *s);
s32 kve_lease(struct kve_session *s, const struct kvctx_sqe *sqe);
s32 kve_release(struct kve_session *s, const struct kvctx_sqe *sqe);
int kve_match(struct kve_session *s, struct kvctx_match *arg);
int kve_match_start(struct kve_op *op);

/* submit.c */
int kve_submit(struct kve_session *s, const struct kvctx_submit *arg);

/* session.c */
int kve_session_open(const char *dir, const char *tenant, bool rdonly, struct kve_session **out);
int kve_session_ioctl(struct kve_session *s, unsigned long nr, void *arg);
const struct kve_map *kve_session_area(struct kve_session *s, u64 *offset);
int kve_session_mmap(struct kve_session *s, size_t len, int prot, u64 offset, void **out);
/* @ended: called when nothing of it moves any more, maybe before this returns, else by a thread of the engine; or NULL */
void kve_session_close(struct kve_session *s, void (*ended)(void *arg), void *arg);

#endif
