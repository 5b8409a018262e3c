// SPDX-License-Identifier: GPL-2.0
/*
 * Operations as io_uring commands.
 *
 *	single    KVCTX_URING_OP: one operation inside the submission entry
 *	batch     KVCTX_URING_SUBMIT: what the ioctl SUBMIT takes
 *
 * The entry lies in memory shared with the caller: it is copied once, a single operation is made a struct kvctx_sqe,
 * and from there on both go the way of SUBMIT (submit.c). Nothing is handed to io_uring's worker threads: like the
 * ioctl, issuing sleeps only for memory, never for a device (send.c). -EAGAIN as a result is therefore never returned,
 * which would mean just that, but completed.
 *
 * struct kvctx_uring lies in the command. Its count, left, holds the operations that have not reported, and for a
 * batch the thread that submits it. An operation reports in any context: whoever is last queues task work, and only
 * that completes the command, since taking a command off its ring's list of those that can be cancelled sleeps.
 *
 * Life. A command holds its file until it is completed, so close() of the session, with the teardown behind it, cannot
 * run while a command has operations: they need no place in the session's count of operations in flight. A ring that
 * dies waits for its commands, thereby for DMA. A registered buffer belongs to the command for as long; the operation
 * borrows its pages.
 *
 * Cancelling. io_uring asks for it when the ring dies, or its task begins another program (but not for
 * IORING_OP_ASYNC_CANCEL), with the ring locked. The command cannot be completed meanwhile, but its operations can end:
 * they are not looked up by address, then, but searched in the queues, where they name their command. A command says
 * first that it is cancelled and then has the queues searched, by one work item for all of them: there may be many. Who
 * queues an operation looks under the queue's lock. What does not wait goes on to its end, and so do URGENT commands
 * that wait for a place in a device's queue, or for their turn there: the device has others of the kind. Commands that
 * may wait, for their tenant's pace too, are marked for it before they start, and from then on completed, never
 * returned. Those that are not marked do not wait for their pace, should it have changed meanwhile.
 */
#include <linux/uaccess.h>

#include "op.h"

/* A single operation on its way to submit.c */
struct uring_single {
	struct kvctx_from from;
	unsigned int issue_flags;
	int dir;
	u64 addr;			/* inside the registered buffer */
};

static_assert(sizeof(struct kvctx_uring_op) == 80 && sizeof(struct kvctx_uring_submit) == 16);

static struct kvctx_uring *uring_of(struct io_uring_cmd *cmd)
{
	return io_uring_cmd_to_pdu(cmd, struct kvctx_uring);
}

/* Copy the entry's payload, reading each word once. */
static void uring_payload(const struct io_uring_cmd *cmd, void *to, size_t bytes)
{
	const u64 *words = (const u64 *)cmd->sqe->cmd;
	u64 *out = to;
	size_t i;

	for (i = 0; i < bytes / sizeof(*out); i++)
		out[i] = READ_ONCE(words[i]);
}

static void uring_finish(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct kvctx_uring *u = uring_of(cmd);

	kvctx_uring_done(cmd, u->res, u->flags, u->cqe32, issue_flags);
}

KVCTX_URING_TASK_WORK(uring_task_work, uring_finish)

/* One has reported. The command, and with it the session, may be gone on return. Any context. */
static void uring_put(struct kvctx_uring *u)
{
	if (atomic_dec_and_test(&u->left))
		io_uring_cmd_do_in_task_lazy(u->cmd, uring_task_work);
}

static void uring_init(struct io_uring_cmd *cmd, unsigned int issue_flags,
		       void (*done)(struct kvctx_op *op, s32 res, u32 flags))
{
	*uring_of(cmd) = (struct kvctx_uring){
		.cmd = cmd, .done = done, .cqe32 = issue_flags & IO_URING_F_CQE32,
	};
}

/* The end of a command that was marked as one that can be cancelled, or whose result io_uring would mistake */
static int uring_end(struct io_uring_cmd *cmd, s32 res, unsigned int issue_flags)
{
	uring_of(cmd)->res = res;
	uring_finish(cmd, issue_flags);
	return -EIOCBQUEUED;
}

static void uring_single_done(struct kvctx_op *op, s32 res, u32 flags)
{
	struct kvctx_uring *u = op->to.uring;

	percpu_counter_dec(&op->session->pool->counters.inflight);
	u->res = res;
	u->flags = flags;
	uring_put(u);
}

/* from->pieces: part of the ring's registered buffer */
static int uring_single_fixed(struct kvctx_op *op, struct kvctx_from *from)
{
	struct uring_single *one = container_of(from, struct uring_single, from);
	struct iov_iter iter;
	int err;

	err = kvctx_uring_import(op->to.uring->cmd, one->addr, op->call.length, one->dir, &iter, one->issue_flags);
	if (err)
		return err;
	op->mem.borrowed = kvctx_mem_borrow(&iter);
	if (IS_ERR(op->mem.borrowed)) {
		err = PTR_ERR(op->mem.borrowed);
		op->mem.borrowed = NULL;
		return err;
	}
	atomic_set(&op->mem.borrowed->users, 1);
	*op->mem.user = (struct kvctx_piece){ .mem = op->mem.borrowed, .length = op->call.length };
	op->mem.nr = 1;
	return 0;
}

/* What the entry says, as SUBMIT would have it. @one gets the part of a registered buffer. */
static int uring_single_read(const struct kvctx_uring_op *u, bool fixed, struct kvctx_sqe *sqe,
			     struct uring_single *one)
{
	bool moves = u->opcode == KVCTX_OP_STORE || u->opcode == KVCTX_OP_LOAD;

	*sqe = (struct kvctx_sqe){
		.opcode = u->opcode, .prio = u->prio, .nr_segs = u->nr_segs, .flags = u->flags, .key = u->key,
		.offset = u->offset, .length = u->length, .segs = u->addr, .mem = u->mem, .timeout_ns = u->timeout_ns,
	};
	if (fixed) {
		if (!moves || u->nr_segs || u->mem)
			return -EINVAL;
		one->from.pieces = uring_single_fixed;
		one->addr = u->addr;
		one->dir = u->opcode == KVCTX_OP_LOAD ? ITER_DEST : ITER_SOURCE;
	}
	switch (u->opcode) {
	case KVCTX_OP_STORE:
		sqe->depth = u->arg;
		return 0;
	case KVCTX_OP_LEASE:
	case KVCTX_OP_PREFETCH:
	case KVCTX_OP_GET:
		sqe->lease_ms = u->arg;
		return 0;
	case KVCTX_OP_RELEASE:
	case KVCTX_OP_PUT:
		sqe->lease = u->arg;
		return 0;
	default:
		return u->arg ? -EINVAL : 0;
	}
}

/*
 * For its tenant's pace, for space, or in a queue at the device. What waits for a page on its way to a slot does not
 * wait long.
 */
static bool uring_single_may_wait(const struct kvctx_session *s, const struct kvctx_sqe *sqe)
{
	return sqe->opcode == KVCTX_OP_STORE || sqe->opcode == KVCTX_OP_DELETE || sqe->prio > KVCTX_PRIO_URGENT ||
	       !kvctx_session_urgent(s) || READ_ONCE(*s->paced);
}

static int uring_single(struct kvctx_session *s, struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct uring_single one = { .from.uring = uring_of(cmd), .issue_flags = issue_flags };
	struct percpu_counter *inflight = &s->pool->counters.inflight;
	struct kvctx_uring_op payload;
	struct kvctx_sqe sqe;
	bool marked;
	s32 res;

	if (!(issue_flags & IO_URING_F_SQE128))
		return -EINVAL;
	uring_payload(cmd, &payload, sizeof(payload));
	res = uring_single_read(&payload, cmd->flags & IORING_URING_CMD_FIXED, &sqe, &one);
	if (res)
		return res;
	uring_init(cmd, issue_flags, uring_single_done);
	marked = uring_single_may_wait(s, &sqe);
	one.from.may_wait = marked;
	if (marked)
		io_uring_cmd_mark_cancelable(cmd, issue_flags);
	percpu_counter_inc(inflight);
	res = kvctx_submit_sqe(s, &sqe, &one.from);
	if (res == -EIOCBQUEUED)
		return res;
	percpu_counter_dec(inflight);
	return marked || res == -EAGAIN ? uring_end(cmd, res, issue_flags) : res;
}

static void uring_batch_done(struct kvctx_op *op, s32 res, u32 flags)
{
	kvctx_cq_post(op->session, op->call.user_data, res, flags, NULL);
	uring_put(op->to.uring);
}

static int uring_batch(struct kvctx_session *s, struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct kvctx_uring *u = uring_of(cmd);
	struct kvctx_from from = { .uring = u, .may_wait = true };
	struct kvctx_uring_submit payload;
	struct kvctx_submit arg;

	uring_payload(cmd, &payload, sizeof(payload));
	if (cmd->flags & IORING_URING_CMD_FIXED || payload.reserved)
		return -EINVAL;
	arg = (struct kvctx_submit){ .sqes = payload.sqes, .nr = payload.nr };
	uring_init(cmd, issue_flags, uring_batch_done);
	u->batch = true;
	/* ours, so that nobody completes the command before we know how many were taken */
	atomic_set(&u->left, 1);
	io_uring_cmd_mark_cancelable(cmd, issue_flags);
	u->res = kvctx_submit(s, &arg, &from);
	if (!atomic_dec_and_test(&u->left))
		return -EIOCBQUEUED;
	return uring_end(cmd, u->res, issue_flags);
}

int kvctx_uring_cmd(struct kvctx_session *s, struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	if (issue_flags & IO_URING_F_CANCEL) {
		/* what waits will be taken out, and ends with -ECANCELED */
		WRITE_ONCE(uring_of(cmd)->cancelled, true);
		queue_work(s->pool->io_wq, &s->pool->sweep);
		return 0;
	}
	/* a command that gives many completions would never give its last one */
	if (cmd->flags & IORING_URING_CMD_MASK & ~IORING_URING_CMD_FIXED)
		return -EINVAL;
	switch (cmd->cmd_op) {
	case KVCTX_URING_OP:
		return uring_single(s, cmd, issue_flags);
	case KVCTX_URING_SUBMIT:
		return uring_batch(s, cmd, issue_flags);
	default:
		return -ENOTTY;
	}
}
