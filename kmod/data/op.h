/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the data side share: sessions and operations.
 *
 * Vocabulary
 *   memory    struct kvctx_mem: pages that stay where they are: the arena, a registration, scratch of one operation
 *   extent    a physically contiguous part of a memory
 *   piece     one element of an operation's list: a byte range of a memory, or a gap, which is no memory at all:
 *             it reads as zeros and what is written to it is dropped
 *   run       a physically contiguous part of a piece
 *   cursor    a position in a list of pieces; to the CPU, peer memory at the cursor is a gap
 *   block     unit that a member's device transfers, see io.c
 *
 * Life of an operation (struct kvctx_op). It has one owner at a time and no lock. Operations without I/O complete
 * inside SUBMIT; a LOAD that finds its page in a slot, or on its way there, is served by slots.c; the others pass some
 * of these states, where op->kind says what comes next:
 *
 *   state    owner      entered by               left when                              by calling
 *   NEW      submit.c   kvctx_op_alloc()         room, memory and pieces are there      the start of its opcode
 *   PACED    wait.c     kvctx_pace()             its tenant may have more               kind->attempt()
 *                                                it gives up (wait.c)                   kvctx_op_complete()
 *   PARKED   wait.c     kvctx_attempt()          there may be space                     kind->attempt()
 *                                                it gives up (wait.c)                   kvctx_op_complete()
 *   QUEUED   wait.c     kvctx_turn_take()        it is its turn, or it gives up         kind->go()
 *   MOVING   io.c       kvctx_io_submit()        io.pending comes to zero               kind->finish()
 *                                                (what waits in send.c gives up)
 *   ENDED    op.c       kvctx_op_complete()      at once                                to.done(), or kvctx_cq_post()
 *
 * Contexts: who reports last calls kind->finish(), maybe from a hard interrupt. What can end there ends there; the rest
 * goes on in a softirq (kvctx_op_bottom(): the engine's locks) or on pool->io_wq (kvctx_op_process(): checksums,
 * copies, failures).
 *
 * Locks: session->setup_lock is a mutex, outside of all others. cq.lock and member->send.lock are taken in any context.
 * mems.xa_lock is a spinlock of process context; slots->lock, leases.lock and those of queues are of the engine's kind.
 * None of them is taken inside another, but that of a member's turn inside slots->lock.
 */
#ifndef KVCTX_OP_H
#define KVCTX_OP_H

#include <linux/bio.h>
#include <linux/eventfd.h>
#include <linux/ktime.h>
#include <linux/poll.h>
#include <linux/uio.h>
#include <linux/xarray.h>

#include "data.h"
#include "session/lease.h"

/* mem.c */

struct kvctx_op;

struct kvctx_extent {
	unsigned long index;		/* of its first page inside the memory */
	struct page *page;
};

struct kvctx_mem {
	u32 id;
	u32 first;			/* offset of byte 0 inside the first page */
	u64 length;			/* bytes */
	bool pinned;			/* the caller's pages, not ours */
	bool foreign;			/* pinned: pages of a peer, which the CPU does not touch */
	struct kvctx_peer *peer;	/* whose, see register.c */
	atomic_t users;			/* operations that hold it */
	unsigned long nr_pages;
	unsigned long accounted;	/* pages charged to @mm, and to @user unless that is NULL */
	struct mm_struct *mm;
	struct kvctx_tenant *payer;	/* counts them too */
	struct user_struct *user;
	u32 nr_extents, max_extents;
	struct kvctx_extent *extents;	/* by index; the last ends at nr_pages */
};

struct kvctx_piece {
	struct kvctx_mem *mem;		/* NULL: gap */
	u64 offset;
	u32 length;			/* at least 1 */
};

struct kvctx_cursor {
	const struct kvctx_piece *piece;
	u32 done;			/* bytes of the piece behind us */
	u32 extent;			/* guess: where the last run lay */
};

struct kvctx_run {
	struct page *page;		/* first page, NULL: gap */
	u32 offset;			/* inside that page */
	u32 length;
};

/* @payer: whose limit it counts against, and the caller's; NULL: nobody's */
struct kvctx_mem *kvctx_mem_alloc(u64 bytes, struct kvctx_tenant *payer);
struct kvctx_mem *kvctx_mem_pin(struct kvctx_tenant *payer, u64 addr, u64 length);
struct kvctx_mem *kvctx_mem_borrow(const struct iov_iter *iter);
void kvctx_mem_unpin(struct kvctx_mem *mem);
void kvctx_mem_free(struct kvctx_mem *mem);
unsigned long kvctx_mem_extent_pages(const struct kvctx_mem *mem, u32 i);
int kvctx_mem_mmap(struct kvctx_mem *mem, struct vm_area_struct *vma, u64 offset);

void kvctx_cursor_init(struct kvctx_cursor *c, const struct kvctx_piece *pieces);
void kvctx_cursor_run(struct kvctx_cursor *c, struct kvctx_run *run);
void kvctx_cursor_advance(struct kvctx_cursor *c, u64 n);
void kvctx_cursor_read(struct kvctx_cursor *c, void *buf, u32 n);
void kvctx_cursor_write(struct kvctx_cursor *c, const void *buf, u32 n);
void kvctx_cursor_zero(struct kvctx_cursor *c, u64 n);
void kvctx_cursor_copy(struct kvctx_cursor *to, struct kvctx_cursor *from, u32 n);
u32 kvctx_cursor_crc(struct kvctx_cursor *c, u32 n);
int kvctx_cursor_crypt(struct kvctx_cursor *c, struct kvctx_cipher *cipher, bool encrypt, const u8 *nonce, u32 block,
		       u64 n);

/* debug.c */
void kvctx_debug_init(void);
void kvctx_debug_exit(void);

/* path.c */
struct kvctx_path_found {
	u32 reason;			/* enum kvctx_path_reason */
	s32 distance;
};

struct pci_dev *kvctx_path_device(phys_addr_t addr, u64 bytes);
bool kvctx_path_holds(struct pci_dev *pdev, phys_addr_t addr, u64 bytes);
void kvctx_path_find(struct kvctx_path_found *f, struct pci_dev *provider, const struct kvctx_member *m);

/* register.c */
struct kvctx_session;

int kvctx_register(struct kvctx_session *s, u64 addr, u64 length);
int kvctx_unregister(struct kvctx_session *s, u32 id);
void kvctx_unregister_all(struct kvctx_session *s);
struct kvctx_mem *kvctx_registered_get(struct kvctx_session *s, u32 id, bool gone);
void kvctx_registered_put(struct kvctx_mem *mem);
bool kvctx_peer_gone(const struct kvctx_mem *mem);
u32 kvctx_peers_left(void);
void kvctx_peer_path(const struct kvctx_mem *mem, const struct kvctx_member *m, struct kvctx_path *row);
u64 kvctx_peer_members(const struct kvctx_mem *mem);
int kvctx_peers_init(void);
void kvctx_peers_exit(void);

/* cq.c */

extern struct workqueue_struct *kvctx_session_wq;	/* teardown, ends of leases */

struct kvctx_cq {
	spinlock_t lock;		/* posting, room, head and tail, spare operations */
	struct list_head waiters;	/* in WAIT; under lock */
	wait_queue_head_t wait;		/* poll, the closing thread */
	struct kvctx_cq_ring *ring;
	size_t bytes;
	u32 entries;			/* a power of two */
	u32 tail;			/* under lock; the ring's copy is for the caller */
	u32 inflight;			/* accepted and without a completion; under lock */
	u32 background;			/* reads into slots; they have no room in the ring; under lock */
	bool orphaned;			/* under lock: nobody waits, the last completion tears down */
	u32 nr_spare;			/* under lock */
	struct kvctx_op *spare;		/* under lock: memory of operations that ended, for the next ones */
	struct eventfd_ctx *eventfd;
};

struct kvctx_session {
	struct kvctx_tenant *tenant;
	struct kvctx_pool *pool;
	const bool *no_urgent, *paced;	/* the engine's word on this tenant */
	struct kvctx_tally_shard *tally;	/* where its operations count */
	u16 slot;			/* the tenant's */
	u32 losses_seen;		/* of members, see struct kvctx_flush */
	struct kvctx_rights rights;
	struct kvctx_cipher *cipher;	/* of a tenant whose pages are encrypted, from SETUP on; else NULL */
	bool ready;			/* published by SETUP with release order */
	bool dying;			/* set by close; nothing is parked any more */
	struct mutex setup_lock;	/* SETUP, EVENTS */
	struct kvc_domain *domain;
	struct kvctx_cq cq;
	struct work_struct teardown;
	struct kvc_listener listener;	/* setup_lock, as the next */
	bool listens;
	struct work_struct events_work;

	struct kvctx_mem *arena;	/* NULL: none */
	struct kvctx_slots *slots;	/* NULL: none */
	struct kvctx_mem *slots_mem;
	struct xarray mems;		/* registrations by id; its lock guards finding, holding, removing them */

	struct kvctx_leases leases;
	struct delayed_work lease_work;	/* ends those that are due */
};

/* May its operations be urgent? */
static inline bool kvctx_session_urgent(const struct kvctx_session *s)
{
	return !READ_ONCE(*s->no_urgent);
}

/* The memory of that id, held if it is a registration. @gone: also when its peer is gone. -EINVAL, -ENODEV */
static inline struct kvctx_mem *kvctx_mem_get(struct kvctx_session *s, u32 id, bool gone)
{
	if (id == KVCTX_MEM_ARENA)
		return s->arena ?: ERR_PTR(-EINVAL);
	return kvctx_registered_get(s, id, gone);
}

static inline void kvctx_mem_put(struct kvctx_session *s, struct kvctx_mem *mem)
{
	if (mem != s->arena)
		kvctx_registered_put(mem);
}

void kvctx_cq_init(struct kvctx_cq *cq);
int kvctx_cq_setup(struct kvctx_cq *cq, u32 entries);
void kvctx_cq_free(struct kvctx_cq *cq);
int kvctx_cq_mmap(struct kvctx_cq *cq, struct vm_area_struct *vma, u64 offset);
u32 kvctx_cq_reserve(struct kvctx_session *s, u32 nr, struct kvctx_op **spare);
void kvctx_cq_unreserve(struct kvctx_session *s, u32 nr);
struct kvctx_op *kvctx_cq_post(struct kvctx_session *s, u64 user_data, s32 res, u32 flags, struct kvctx_op *spare);
int kvctx_cq_consume(struct kvctx_session *s, u32 nr);
int kvctx_cq_wait(struct kvctx_session *s, u32 min, u64 *timeout_ns);
bool kvctx_cq_readable(struct kvctx_session *s);
bool kvctx_cq_drained(struct kvctx_session *s);
void kvctx_cq_background(struct kvctx_session *s, int more);

/* events.c */
long kvctx_events(struct kvctx_session *s, struct kvctx_events *arg);
void kvctx_events_exit(struct kvctx_session *s);

/* op.c */

#define KVCTX_INLINE_VECS	8
#define KVCTX_INLINE_PIECES	8
#define KVCTX_SPARE_PIECES	3	/* room around the caller's pieces: one in front, two behind */

struct kvctx_bounce;

/* A bio on its way to a member's device, see send.c; its vectors behind it, or those of the operation */
struct kvctx_bio {
	struct kvctx_op *op;
	struct list_head node;		/* in member->send.bios */
	sector_t sector;		/* where it begins */
	struct bio bio;
};

/* State of an io_uring command, inside it; see uring.c */
struct kvctx_uring {
	struct io_uring_cmd *cmd;
	void (*done)(struct kvctx_op *op, s32 res, u32 flags);
	atomic_t left;			/* operations, and who submits them, that have not reported */
	s32 res;
	u16 flags;			/* KVCTX_CQE_* */
	bool cqe32;
	bool batch;			/* its operations complete in the session's queue, under their user_data */
	bool cancelled;			/* its operations are parked no more, as those of a dying session */
};

/* How an operation came, when not by the ioctl */
struct kvctx_from {
	struct kvctx_uring *uring;
	bool may_wait;			/* it was marked to be cancelled, if it has to */
	/* The caller's pieces; NULL: they are what sqe->segs says */
	int (*pieces)(struct kvctx_op *op, struct kvctx_from *from);
};

/* What an operation of one kind does in the states of the table above */
struct kvctx_op_kind {
	int (*attempt)(struct kvctx_op *op);		/* 0: taken over; -EAGAIN: again when there is space */
	void (*go)(struct kvctx_op *op, int err);	/* its turn came, or never will */
	void (*finish)(struct kvctx_op *op);		/* all that io.pending counts have reported; any context */
};

struct kvctx_op {
	struct kvctx_req call;			/* what was asked for */
	struct kvctx_session *session;
	const struct kvctx_op_kind *kind;	/* set by who starts it */

	struct {				/* the caller's memory */
		bool p2p;			/* a piece is peer memory: no checksums, no bounce blocks */
		u32 peers_left;			/* kvctx_peers_left() when they were looked at last */
		u32 nr;				/* pieces */
		struct kvctx_piece *user;	/* the first */
		struct kvctx_piece *list;	/* allocated, when they do not fit in here */
		struct kvctx_mem *borrowed;	/* of io_uring, for this operation */
	} mem;

	struct {				/* who takes the result; neither: the completion queue */
		void (*done)(struct kvctx_op *op, s32 res, u32 flags);	/* the operation is freed behind it */
		struct kvctx_uring *uring;	/* the command that it came by */
	} to;

	struct {				/* the transfer, see io.c */
		u32 member;
		u32 bytes;			/* whole blocks */
		u64 offset;			/* on the device */
		u32 stream;			/* of a write */
		struct kvctx_piece *pieces;	/* what it begins with: mem.user, or the one in front */
		atomic_t pending;
		int error;			/* first failure */
		u32 bounced;			/* blocks */
		struct kvctx_bounce *bounces;
	} io;

	struct {				/* elsewhere than where the transfer ended */
		struct llist_node bottom;	/* in pool->bottom */
		struct work_struct work;	/* on pool->io_wq */
	} run;

	union {
		struct {
			struct kvc_store page;
			struct kvctx_mem *copy;	/* what is written instead of the caller's memory */
			struct kvctx_piece copied;	/* all of it */
		} store;
		struct {
			struct kvc_load page;
			bool verify;		/* the chunks are checked */
			u64 told;		/* seq of the page whose CRCs its caller has; 0: none */
			u32 head;		/* bytes read in front of the caller's range */
			u32 span;		/* bytes read, without padding */
			struct kvctx_mem *scratch;
			struct kvctx_piece sealed;	/* all of it, when the page is encrypted */
			struct kvctx_load_again *again;	/* a chunk is read once more */
		} load;
	};

	/* Not zeroed from here on */
	struct kvctx_piece inline_pieces[KVCTX_INLINE_PIECES + KVCTX_SPARE_PIECES];
	struct kvctx_bio bio;			/* the only one of a small transfer */
	struct bio_vec vecs[KVCTX_INLINE_VECS];
	struct kvctx_op *spare;			/* next in session->cq.spare */
};

static inline struct kvctx_op *kvctx_op_of(struct kvctx_req *req)
{
	return container_of(req, struct kvctx_op, call);
}

struct kvctx_op *kvctx_op_alloc(struct kvctx_session *s, struct kvctx_op **spare);
void kvctx_op_put_pieces(struct kvctx_op *op);
void kvctx_op_complete(struct kvctx_op *op, s32 res, u32 flags);
void kvctx_op_process(struct kvctx_op *op, work_func_t fn);
void kvctx_op_bottom(struct kvctx_op *op);
void kvctx_op_discard(struct kvctx_op *op);
void kvctx_op_discard_all(struct kvctx_op *spare);
void kvctx_bottom_work(struct work_struct *work);
int kvctx_op_init(void);
void kvctx_op_exit(void);

/* send.c */
void kvctx_send_behind(struct kvctx_bio *b);
bool kvctx_send_again(struct kvctx_bio *b);
bool kvctx_send_weed(struct kvctx_member *m, bool late);
u32 kvctx_send_cancel(struct kvctx_member *m, const struct kvctx_session *s, u64 user_data);
void kvctx_send_init(struct kvctx_member *m);

bool kvctx_signals_block(sigset_t *blocked);
void kvctx_signals_restore(sigset_t *blocked);

/* A caller sends: bios are gathered, and no transport's signal reaches it */
struct kvctx_sending {
	struct blk_plug plug;
	sigset_t blocked;		/* the caller's signals, when guarded */
	bool guarded;
};

static inline void kvctx_sending_begin(struct kvctx_sending *s, const struct kvctx_pool *p)
{
	blk_start_plug(&s->plug);
	s->guarded = unlikely(READ_ONCE(p->may_signal)) && kvctx_signals_block(&s->blocked);
}

static inline void kvctx_sending_end(struct kvctx_sending *s)
{
	blk_finish_plug(&s->plug);
	if (unlikely(s->guarded))
		kvctx_signals_restore(&s->blocked);
}

/*
 * Send a bio that is complete, with REQ_NOWAIT, of an operation that moves. Its end, in any context, may come before
 * this returns. Never waits for the device.
 */
static inline void kvctx_send(struct kvctx_member *m, struct kvctx_bio *b)
{
	if (unlikely(atomic_read(&m->send.waiting)))
		kvctx_send_behind(b);
	else
		submit_bio(&b->bio);
}

/* wait.c */
void kvctx_wait_init(struct kvctx_pool *p);
void kvctx_wait_exit(struct kvctx_pool *p);
int kvctx_attempt(struct kvctx_op *op, bool behind);
int kvctx_pace(struct kvctx_op *op);
void kvctx_turn_take(struct kvctx_op *op);
void kvctx_turn_end(struct kvctx_op *op);
bool kvctx_turn_take_back(struct kvctx_op *op, u32 member);
void kvctx_sweep(struct kvctx_pool *p);
s32 kvctx_cancel(struct kvctx_session *s, const struct kvctx_sqe *sqe);

/* io.c */
u32 kvctx_io_unit(struct block_device *bdev);
u64 kvctx_io_members(struct kvctx_op *op);
void kvctx_io_submit(struct kvctx_op *op, blk_opf_t opf);
void kvctx_io_put(struct kvctx_op *op);
int kvctx_io_result(struct kvctx_op *op);
void kvctx_io_scatter(struct kvctx_op *op);
void kvctx_io_free_bounces(struct kvctx_op *op);

/* Few transfers have anything to free. */
static inline void kvctx_io_free(struct kvctx_op *op)
{
	if (unlikely(op->io.bounces))
		kvctx_io_free_bounces(op);
}

/*
 * store.c, load.c: start an operation, in the context of its caller. 0: taken over; an error completes it
 */
int kvctx_store_start(struct kvctx_op *op);
int kvctx_delete_start(struct kvctx_op *op);
int kvctx_flush_op_start(struct kvctx_op *op);
int kvctx_load_begin(struct kvctx_op *op);
int kvctx_load_tell(struct kvctx_op *op);
void kvctx_load_move(struct kvctx_op *op);
void kvctx_load_go(struct kvctx_op *op, int err);
void kvctx_load_finish(struct kvctx_op *op);

/* slots.c */
int kvctx_slots_setup(struct kvctx_session *s, u32 *slot_bytes, u32 nr_slots);
void kvctx_slots_free(struct kvctx_session *s);
int kvctx_slots_mmap(struct kvctx_session *s, struct vm_area_struct *vma, u64 offset);
int kvctx_prefetch_start(struct kvctx_op *op);
s32 kvctx_put(struct kvctx_session *s, const struct kvctx_sqe *sqe);
int kvctx_load_start(struct kvctx_op *op);

/* lease.c */
void kvctx_lease_init(struct kvctx_session *s);
void kvctx_lease_exit(struct kvctx_session *s);
s32 kvctx_lease(struct kvctx_session *s, const struct kvctx_sqe *sqe);
s32 kvctx_release(struct kvctx_session *s, const struct kvctx_sqe *sqe);
long kvctx_match(struct kvctx_session *s, struct kvctx_match *arg);
int kvctx_match_start(struct kvctx_op *op);

/* submit.c */
long kvctx_submit(struct kvctx_session *s, const struct kvctx_submit *arg, struct kvctx_from *from);
s32 kvctx_submit_sqe(struct kvctx_session *s, const struct kvctx_sqe *sqe, struct kvctx_from *from);

/* uring.c */
int kvctx_uring_cmd(struct kvctx_session *s, struct io_uring_cmd *cmd, unsigned int issue_flags);

#endif
