// SPDX-License-Identifier: GPL-2.0
/*
 * Bios to a member's device, without waiting for it.
 *
 * A device has places for so many requests (tags) and gives none while it is frozen. Who submits must not wait for one:
 * it may be a caller that is to be killed, a thread that serves all members, or one that holds a lock of io_uring. So a
 * bio is sent with REQ_NOWAIT. One that would have to wait comes back, and so do one that the block layer would have to
 * split, which it does not do then, and those to a device that does not know REQ_NOWAIT.
 *
 * Those bios wait in the member's list, in order, and later ones behind them. The member's submitter, a work item,
 * takes one after the other and sends it for good: it alone waits for the device, for as long as that takes. In its
 * hands a bio is with the device.
 *
 * Until then it can be taken out: when its operation gives up, for the reasons of session/queue.c. The operation ends
 * with the reason when what the device has of it has ended. Deadlines are looked after by the tick of data/wait.c.
 *
 * An operation has bios here only after its turn, and session/turn.c limits the bytes of those that have had it. So a
 * device that does not answer costs so much memory and no more.
 *
 * Who changes what kvctx_req_unwanted() looks at calls kvctx_send_weed() afterwards; who lets a bio wait looks under
 * the lock. So none slips in behind. An operation that has given up has its error in io.error, set under the lock: no
 * bio of it waits any more, neither one that is made later nor one that comes back from the device later.
 *
 * A transport may send in the context of who submits. NVMe/TCP does, in Linux 6.12 without MSG_NOSIGNAL, and a socket
 * that the target has closed has a SIGPIPE for who writes to it: it would end a client for what a target did. So
 * callers send between kvctx_sending_begin() and _end(). Where a member may be such a device the signal is blocked
 * there, and what came of it taken away. io_uring sends what its commands submit when they have all returned, out of
 * our hands.
 */
#include <linux/sched/signal.h>

#include "op.h"

/* false: there is nothing to restore */
bool kvctx_signals_block(sigset_t *blocked)
{
	sigset_t pipe;

	if (sigismember(&current->blocked, SIGPIPE))
		return false;
	siginitset(&pipe, sigmask(SIGPIPE));
	sigprocmask(SIG_BLOCK, &pipe, blocked);
	return true;
}

/* One SIGPIPE that this thread was sent, and nobody else */
static void signals_take(void)
{
	struct sighand_struct *sighand = rcu_dereference_protected(current->sighand, true);
	kernel_siginfo_t info;
	enum pid_type type;
	sigset_t others;

	siginitsetinv(&others, sigmask(SIGPIPE));
	spin_lock_irq(&sighand->siglock);
	dequeue_signal(&others, &info, &type);
	spin_unlock_irq(&sighand->siglock);
}

void kvctx_signals_restore(sigset_t *blocked)
{
	if (unlikely(sigismember(&current->pending.signal, SIGPIPE)))
		signals_take();
	sigprocmask(SIG_SETMASK, blocked, NULL);
}

/* Ended without the device; @b may be gone */
static void send_drop(struct kvctx_bio *b)
{
	b->bio.bi_status = BLK_STS_IOERR;
	b->bio.bi_end_io(&b->bio);
}

/* Has the operation given up, or failed otherwise? Then it shall not wait: 0 or why. */
static int send_ended(struct kvctx_op *op)
{
	int err = READ_ONCE(op->io.error);

	return err ? err : kvctx_req_unwanted(&op->call);
}

/* Let it wait, or tell why it shall not: then that is the operation's error. Any context. */
static int send_wait(struct kvctx_bio *b)
{
	struct kvctx_op *op = b->op;
	struct kvctx_member *m = &op->session->pool->members[op->io.member];
	u64 deadline = op->call.deadline;
	unsigned long flags;
	int err;

	spin_lock_irqsave(&m->send.lock, flags);
	err = send_ended(op);
	if (!err) {
		atomic_inc(&m->send.waiting);
		list_add_tail(&b->node, &m->send.bios);
		m->send.until = min(m->send.until, deadline);
		queue_work(m->pool->send_wq, &m->send.work);
		if (deadline != OS_NEVER)
			queue_delayed_work(m->pool->io_wq, &m->turn_work, msecs_to_jiffies(KVCTX_TICK_MS));
	}
	/* without the lock both may be gone, and their pool */
	spin_unlock_irqrestore(&m->send.lock, flags);
	if (err)
		cmpxchg(&op->io.error, 0, err);
	return err;
}

/* Others wait at the member: behind them. */
void kvctx_send_behind(struct kvctx_bio *b)
{
	if (send_wait(b))
		send_drop(b);
}

/* A bio has failed. true: only because it would have had to wait, and now it does. Any context. */
bool kvctx_send_again(struct kvctx_bio *b)
{
	blk_status_t status = b->bio.bi_status;

	/* a device that does not know it says so */
	if (!(b->bio.bi_opf & REQ_NOWAIT) || (status != BLK_STS_AGAIN && status != BLK_STS_NOTSUPP))
		return false;
	return !send_wait(b);
}

/*
 * As it was before it was sent, but that it may wait: what it passed may have changed it. It stays charged to the
 * control group of who began it, which is not the submitter's.
 */
static void send_reset(struct kvctx_bio *b)
{
	struct bio *bio = &b->bio, group;
	blk_opf_t opf = bio->bi_opf & ~(REQ_NOWAIT | REQ_DRV);
	unsigned short prio = bio->bi_ioprio, vecs = bio->bi_vcnt, i;
	bio_end_io_t *end = bio->bi_end_io;
	struct kvctx_op *op = b->op;

	/* what keeps the group meanwhile: a bio that is never sent */
	bio_init(&group, bio->bi_bdev, NULL, 0, opf);
	bio_clone_blkg_association(&group, bio);
	bio_reset(bio, op->session->pool->members[op->io.member].bdev, opf);
	bio_clone_blkg_association(bio, &group);
	bio_uninit(&group);
	bio->bi_end_io = end;
	bio->bi_ioprio = prio;
	bio->bi_iter.bi_sector = b->sector;
	for (i = 0; i < vecs; i++)
		bio->bi_iter.bi_size += bio->bi_io_vec[i].bv_len;
	bio->bi_vcnt = vecs;
	if (op_is_write(opf))
		kvctx_bio_stream(bio, op->io.stream);
}

static struct kvctx_bio *send_first(struct kvctx_member *m)
{
	struct kvctx_bio *b;

	spin_lock_irq(&m->send.lock);
	b = list_first_entry_or_null(&m->send.bios, struct kvctx_bio, node);
	if (b)
		list_del(&b->node);
	spin_unlock_irq(&m->send.lock);
	return b;
}

/* The submitter. What it has in its hands counts as waiting: nobody passes it. */
static void send_work(struct work_struct *work)
{
	struct kvctx_member *m = container_of(work, struct kvctx_member, send.work);
	struct kvctx_bio *b;
	struct blk_plug plug;

	blk_start_plug(&plug);
	while ((b = send_first(m))) {
		send_reset(b);
		submit_bio(&b->bio);
		atomic_dec(&m->send.waiting);
		cond_resched();
	}
	blk_finish_plug(&plug);
}

static int send_gives_up(struct kvctx_op *op, u64 now)
{
	int err = kvctx_req_unwanted(&op->call);

	return !err && op->call.deadline <= now ? -ETIME : err;
}

static void send_out_to(struct kvctx_member *m, struct kvctx_bio *b, struct list_head *out)
{
	atomic_dec(&m->send.waiting);
	list_move_tail(&b->node, out);
}

static void send_drop_all(struct list_head *out)
{
	struct kvctx_bio *b, *next;

	list_for_each_entry_safe(b, next, out, node)
		send_drop(b);
}

/*
 * Take out the bios of operations that give up. @late: only if a deadline has passed. true: some that are left have
 * one, again on the tick. Process context.
 */
bool kvctx_send_weed(struct kvctx_member *m, bool late)
{
	u64 now = os_now(), until = OS_NEVER;
	struct kvctx_bio *b, *next;
	LIST_HEAD(out);
	int err;

	spin_lock_irq(&m->send.lock);
	if (late && m->send.until > now) {
		until = m->send.until;
		goto out;
	}
	list_for_each_entry_safe(b, next, &m->send.bios, node) {
		err = send_gives_up(b->op, now);
		if (err) {
			cmpxchg(&b->op->io.error, 0, err);
			send_out_to(m, b, &out);
		} else {
			until = min(until, b->op->call.deadline);
		}
	}
	m->send.until = until;
out:
	spin_unlock_irq(&m->send.lock);
	send_drop_all(&out);
	return until != OS_NEVER;
}

/* End the operations of a session under that user_data of which a part waits here. How many? Process context. */
u32 kvctx_send_cancel(struct kvctx_member *m, const struct kvctx_session *s, u64 user_data)
{
	struct kvctx_bio *b, *next;
	LIST_HEAD(out);
	u32 nr = 0;

	if (!atomic_read(&m->send.waiting))
		return 0;
	spin_lock_irq(&m->send.lock);
	list_for_each_entry_safe(b, next, &m->send.bios, node) {
		if (b->op->call.user_data != user_data || kvctx_req_owner(&b->op->call) != s)
			continue;
		/* once, however many of its bios are here */
		nr += !cmpxchg(&b->op->io.error, 0, -ECANCELED);
		send_out_to(m, b, &out);
	}
	spin_unlock_irq(&m->send.lock);
	send_drop_all(&out);
	return nr;
}

void kvctx_send_init(struct kvctx_member *m)
{
	spin_lock_init(&m->send.lock);
	INIT_LIST_HEAD(&m->send.bios);
	m->send.until = OS_NEVER;
	atomic_set(&m->send.waiting, 0);
	INIT_WORK(&m->send.work, send_work);
}
