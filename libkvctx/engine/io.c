// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * One operation's pieces to a transfer.
 *
 * The page is contiguous on media, its pieces are anywhere in memory. What the device can take as it is, is whole
 * blocks at addresses that are aligned as it wants them: then the transfer is the caller's pieces, with memory of ours
 * in front and behind where more is moved than the caller's bytes. If one piece is not like that, or the page is
 * encrypted, all of the transfer goes through memory of ours.
 *
 * Counting: io.pending is 1 for the transfer (STORE adds one for its CRCs). Whoever takes it to zero calls
 * kind->finish().
 */
#include "session.h"

/* What bounces is as large as a page can be; not for the heap to keep. */
static void *io_alloc(u32 bytes)
{
	return aligned_alloc(KVC_BLOCK, (bytes + KVC_BLOCK - 1) & ~(KVC_BLOCK - 1));
}

static struct kve_member *io_member(const struct kve_op *op)
{
	return &op->session->pool->members[op->io.member];
}

static bool io_aligned(const struct kve_op *op, u32 head, u32 align)
{
	uintptr_t all = head;
	u32 i;

	for (i = 0; i < op->mem.nr; i++)
		all |= (uintptr_t)op->mem.vec[i].iov_base | op->mem.vec[i].iov_len;
	return !(all & (align - 1));
}

static int io_frame_around(struct kve_op *op, u32 head, u32 tail, bool write)
{
	u32 behind = (head + KVC_BLOCK - 1) & ~(KVC_BLOCK - 1);
	struct kve_io *io = &op->io.io;

	io->vec = op->mem.vec;
	io->nr = op->mem.nr;
	if (!(head + tail))
		return 0;
	op->io.bounce = io_alloc(behind + tail);
	if (!op->io.bounce)
		return -ENOMEM;
	if (write)
		memset(op->io.bounce, 0, behind + tail);
	if (head) {
		*--io->vec = (struct iovec){ .iov_base = op->io.bounce, .iov_len = head };
		io->nr++;
	}
	if (tail)
		io->vec[io->nr++] = (struct iovec){ .iov_base = (u8 *)op->io.bounce + behind, .iov_len = tail };
	return 0;
}

/*
 * The transfer of io.bytes: @head bytes, the caller's pieces, @tail bytes. Of a write the others are zeros. 0, -ENOMEM
 */
int kve_io_frame(struct kve_op *op, u32 head, u32 tail, bool write)
{
	u32 align = io_member(op)->dev->align;
	struct kve_io *io = &op->io.io;

	if (likely(!op->session->cipher) && io_aligned(op, head, align))
		return io_frame_around(op, head, tail, write);
	op->io.bounce = io_alloc(op->io.bytes);
	if (!op->io.bounce)
		return -ENOMEM;
	op->io.whole = true;
	os_atomic64_add(&op->session->pool->counters.bounced, op->io.bytes / align);
	if (write) {
		kve_vec_gather(op->io.bounce, op->mem.vec, op->mem.nr);
		memset((u8 *)op->io.bounce + op->io.bytes - tail, 0, tail);
	}
	io->vec = op->mem.vec - 1;
	*io->vec = (struct iovec){ .iov_base = op->io.bounce, .iov_len = op->io.bytes };
	io->nr = 1;
	return 0;
}

/* What was read whole goes to the caller's pieces, from behind @head bytes. */
void kve_io_deliver(struct kve_op *op, u32 head)
{
	if (op->io.whole)
		kve_vec_scatter(op->mem.vec, (u8 *)op->io.bounce + head, op->mem.nr);
}

/* What a device that knows priorities is told */
static u8 io_level(const struct kve_op *op)
{
	return op->call.prio == KVCTX_PRIO_URGENT ? 0 : op->call.prio == KVCTX_PRIO_BACKGROUND ? 7 : 4;
}

/*
 * Move what was framed from or to io.offset of io.member. @pending: who has to report before kind->finish() is called,
 * the transfer among them. Unless there are others, the operation may be gone on return.
 */
void kve_io_start(struct kve_op *op, bool write, u32 pending)
{
	struct kve_session *s = op->session;
	struct kve_io *io = &op->io.io;
	bool batch = kve_op_batch(op);

	io->member = io_member(op);
	io->bytes = op->io.bytes;
	io->offset = op->io.offset;
	io->write = write;
	io->orphaned = &s->orphaned;
	io->level = io_level(op);
	io->buffer = io->nr == 1 && !op->io.bounce ? op->mem.buffer : -1;
	os_atomic_set(&op->io.pending, pending);
	os_trace_op(op_sent, &op->call, op->io.member, 0);
	kve_ring_queue(s->ring, io);
	if (!batch)
		kve_send(s);
}

/* One of those that io.pending counts has reported. */
void kve_io_put(struct kve_op *op)
{
	if (os_atomic_dec_and_test(&op->io.pending)) {
		os_trace_op(op_answered, &op->call, op->io.member, op->io.error);
		kve_turn_end(op);
		op->kind->finish(op);
	}
}

/* A transfer is over. */
void kve_io_over(struct kve_io *io)
{
	struct kve_op *op = (struct kve_op *)((u8 *)io - offsetof(struct kve_op, io.io));

	if (unlikely(io->err))
		WRITE_ONCE(op->io.error, io->err);
	if (unlikely(kve_io_orphaned(io))) {
		/* whatever it came to: the memory may be the caller's for something else by now */
		WRITE_ONCE(op->io.error, -ECANCELED);
		op->mem.nr = 0;
	}
	kve_io_put(op);
}

/*
 * What became of the operation: 0, -ENOMEM, -EFAULT, -EILSEQ, -EIO, -ENODEV. Counts a failed transfer, and reports a
 * member that is gone.
 */
int kve_io_result(struct kve_op *op)
{
	struct kve_pool *p = op->session->pool;

	if (op->io.error != -EIO && op->io.error != -ENODEV)
		return op->io.error;
	os_atomic64_add(&p->counters.io_errors, 1);
	if (op->io.error == -ENODEV)
		kve_member_failed(&p->members[op->io.member]);
	return op->io.error;
}

void kve_io_free(struct kve_op *op)
{
	free(op->io.bounce);
	op->io.bounce = NULL;
}
