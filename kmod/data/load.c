// SPDX-License-Identifier: GPL-2.0
/*
 * LOAD: from the device straight into the caller's memory, then verify. What is read of the page says struct
 * kvctx_frame.
 *
 * With verification the range is widened to whole chunks, what the caller did not ask for goes to scratch memory, which
 * is there when it is the operation's turn and not before. Without, it is widened to whole blocks and the rest is
 * dropped. The padding behind the page's end belongs to no chunk and is always dropped. A page loaded whole into
 * aligned memory is neither widened nor copied.
 *
 * A chunk that fails its check is read once more, into memory of ours, before the page is condemned. The caller can
 * write to the destination while we check it, or name the same bytes twice in its list; without the second look a
 * session that may only read could make the pool drop good pages. If the second copy is right it is delivered, and
 * what the completion says is true of it; the page is dropped only if the medium is wrong. The second look is a
 * transfer like any other: it waits for its turn and for the device, and gives up, as they do.
 *
 * Bytes that failed are never left behind: an operation that does not succeed after its transfer began completes
 * with its destination zeroed.
 *
 * Peer memory is neither checked nor zeroed: the CPU does not touch it. Its operations are framed as those without
 * verification, and refused where a block would have to be bounced. Pages stored without CRCs are not checked either.
 *
 * Pages of a tenant with a key are read into scratch memory as a whole, as far as they are read: whole blocks, each of
 * which is decrypted there when the chunks have been checked; what was asked for is copied from there.
 *
 * Reclaim waits for the hold that kvc_load_begin() takes; no lock is held meanwhile.
 */
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "op.h"

/* Put @piece before or behind the caller's pieces; empty ones are left out. */
static void load_frame_front(struct kvctx_op *op, struct kvctx_piece piece)
{
	op->io.pieces = op->mem.user;
	if (piece.length)
		*--op->io.pieces = piece;
}

static void load_frame_back(struct kvctx_op *op, u32 *n, struct kvctx_piece piece)
{
	if (piece.length)
		op->mem.user[op->mem.nr + (*n)++] = piece;
}

/* All that is read goes to memory of ours, which is there when it is our turn and not before. */
static int load_seal(struct kvctx_op *op)
{
	op->load.scratch = kvctx_mem_alloc(op->io.bytes, NULL);
	if (IS_ERR(op->load.scratch)) {
		op->load.scratch = NULL;
		return -ENOMEM;
	}
	op->load.sealed = (struct kvctx_piece){ .mem = op->load.scratch, .length = op->io.bytes };
	op->io.pieces = &op->load.sealed;
	return 0;
}

/* And from there, decrypted, to the caller */
static int load_open(struct kvctx_op *op)
{
	u32 block = ((u32)op->call.offset - op->load.head) / KVC_BLOCK;
	struct kvctx_session *s = op->session;
	struct kvctx_cursor from, to;
	int err;

	kvctx_cursor_init(&from, &op->load.sealed);
	err = kvctx_cursor_crypt(&from, s->cipher, false, kvc_load_nonce(s->pool->core, &op->load.page), block,
				 op->load.sealed.length);
	if (err)
		return err;
	kvctx_cursor_init(&from, &op->load.sealed);
	kvctx_cursor_advance(&from, op->load.head);
	kvctx_cursor_init(&to, op->mem.user);
	kvctx_cursor_copy(&to, &from, op->call.length);
	return 0;
}

/* Decide what to read. */
static void load_frame(struct kvctx_op *op)
{
	const struct kvc_load *ld = &op->load.page;
	u32 unit = op->session->cipher ? KVC_BLOCK : kvctx_io_unit(op->session->pool->members[ld->member].bdev);
	u32 chunk = op->load.verify ? kvc_chunk_size(op->session->pool->core) : 0;
	struct kvctx_frame f = kvctx_frame_of(op->call.offset, op->call.length, ld->summed, chunk, unit);

	op->load.head = f.head;
	op->load.span = f.span;
	op->io.member = ld->member;
	op->io.offset = ld->offset + f.start;
	op->io.bytes = f.bytes;
}

/*
 * And, when it is its turn, where the part that is not the caller's goes. In scratch memory the tail lies as it lies
 * inside a page of the transfer, so that only the block where it meets the caller's memory is bounced.
 */
static int load_place(struct kvctx_op *op)
{
	struct kvctx_piece head = { .length = op->load.head };
	struct kvctx_piece tail = { .length = op->load.span - op->load.head - op->call.length };
	u32 n = 0;

	if (op->load.verify && head.length + tail.length) {
		tail.offset = PAGE_ALIGN(head.length) + offset_in_page(head.length + op->call.length);
		op->load.scratch = kvctx_mem_alloc(tail.offset + tail.length, NULL);
		if (IS_ERR(op->load.scratch)) {
			op->load.scratch = NULL;
			return -ENOMEM;
		}
		head.mem = op->load.scratch;
		tail.mem = op->load.scratch;
	}
	load_frame_front(op, head);
	load_frame_back(op, &n, tail);
	load_frame_back(op, &n, (struct kvctx_piece){ .length = op->io.bytes - op->load.span });
	return 0;
}

/* The second look at a chunk */
struct kvctx_load_again {
	struct kvctx_cursor to, next;	/* where the chunk belongs, and the one behind it */
	u32 pos, length;		/* of the chunk inside the first transfer */
	u64 offset;			/* of the first transfer on the device */
	struct kvctx_mem *copy;		/* what is read; NULL: not its turn yet */
	struct kvctx_piece piece;	/* all of it */
};

static u32 load_crc(struct kvctx_op *op, u32 pos)
{
	struct kvc_pool *core = op->session->pool->core;

	return kvc_load_crc(core, &op->load.page,
			    ((u32)op->call.offset - op->load.head + pos) / kvc_chunk_size(core));
}

static const struct kvctx_op_kind load_again_kind;

/* A chunk did not match: what does the medium say? -EINPROGRESS: it is to be read */
static int load_again(struct kvctx_op *op, struct kvctx_cursor to, struct kvctx_cursor next, u32 pos, u32 n)
{
	struct kvctx_pool *p = op->session->pool;
	struct kvctx_load_again *a = op->load.again;

	if (!a) {
		a = kzalloc(sizeof(*a), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
		if (!a)
			return -ENOMEM;
		a->offset = op->io.offset;
		op->load.again = a;
		op->kind = &load_again_kind;
		/* of the first transfer, and back in their pieces */
		kvctx_io_free(op);
		op->io.bounced = 0;
	}
	percpu_counter_inc(&p->counters.rereads);
	a->to = to;
	a->next = next;
	a->pos = pos;
	a->length = n;
	op->io.offset = a->offset + pos;
	op->io.bytes = round_up(n, kvctx_io_unit(p->members[op->io.member].bdev));
	return -EINPROGRESS;
}

/* The chunks from @pos on, at the cursor. 0: all match; -EINPROGRESS: one is to be read again; or what is wrong */
static int load_verify(struct kvctx_op *op, struct kvctx_cursor c, u32 pos)
{
	u32 size = kvc_chunk_size(op->session->pool->core), n;
	struct kvctx_cursor start;

	for (; pos < op->load.span; pos += n) {
		n = min(size, op->load.span - pos);
		start = c;
		if (unlikely(kvctx_cursor_crc(&c, n) != load_crc(op, pos)))
			return load_again(op, start, c, pos, n);
		cond_resched();
	}
	return 0;
}

/* What was read again: is it right? Then it goes where it belongs. */
static int load_deliver(struct kvctx_op *op)
{
	struct kvctx_load_again *a = op->load.again;
	struct kvctx_cursor from, to = a->to;

	kvctx_cursor_init(&from, &a->piece);
	if (kvctx_cursor_crc(&from, a->length) != load_crc(op, a->pos))
		return -EBADMSG;
	kvctx_cursor_init(&from, &a->piece);
	kvctx_cursor_copy(&to, &from, a->length);
	return 0;
}

static void load_end(struct kvctx_op *op, int err)
{
	kvc_load_end(op->session->pool->core, &op->load.page, err);
	kvctx_io_free(op);
	kvctx_mem_free(op->load.scratch);
	kfree(op->load.again);
}

static u32 load_flags(const struct kvctx_op *op)
{
	return (op->load.verify ? KVCTX_CQE_VERIFIED : 0) | (op->mem.p2p ? KVCTX_CQE_P2P : 0);
}

/* The transfer and its check are over, unless a chunk is to be read again. */
static void load_checked(struct kvctx_op *op, int err)
{
	struct kvctx_cursor c;

	if (err == -EINPROGRESS) {
		kvctx_turn_take(op);
		return;
	}
	if (!err && unlikely(op->session->cipher))
		err = load_open(op);
	if (err) {
		kvctx_cursor_init(&c, op->mem.user);
		kvctx_cursor_zero(&c, op->call.length);
	}
	load_end(op, err);
	if (err)
		kvctx_op_complete(op, err, 0);
	else
		kvctx_op_complete(op, op->call.length, load_flags(op));
}

static void load_work(struct work_struct *work)
{
	struct kvctx_op *op = container_of(work, struct kvctx_op, run.work);
	int err = kvctx_io_result(op);
	struct kvctx_cursor c;

	if (!err)
		kvctx_io_scatter(op);
	if (!err && op->load.verify) {
		kvctx_cursor_init(&c, op->io.pieces);
		err = load_verify(op, c, 0);
	}
	load_checked(op, err);
}

static void load_again_work(struct work_struct *work)
{
	struct kvctx_op *op = container_of(work, struct kvctx_op, run.work);
	struct kvctx_load_again *a = op->load.again;
	int err = kvctx_io_result(op);

	if (!err)
		err = load_deliver(op);
	kvctx_mem_free(a->copy);
	a->copy = NULL;
	if (!err)
		err = load_verify(op, a->next, a->pos + a->length);
	load_checked(op, err);
}

/* Any context */
static void load_again_finish(struct kvctx_op *op)
{
	kvctx_op_process(op, load_again_work);
}

/* Its turn to be read again has come, or never will: then @err ends the operation. */
static void load_again_go(struct kvctx_op *op, int err)
{
	struct kvctx_load_again *a = op->load.again;

	if (err) {
		cmpxchg(&op->io.error, 0, err);
		load_again_finish(op);
		return;
	}
	atomic_set(&op->io.pending, 1);
	a->copy = kvctx_mem_alloc(op->io.bytes, NULL);
	if (IS_ERR(a->copy)) {
		a->copy = NULL;
		cmpxchg(&op->io.error, 0, -ENOMEM);
	} else {
		a->piece = (struct kvctx_piece){ .mem = a->copy, .length = op->io.bytes };
		op->io.pieces = &a->piece;
		kvctx_io_submit(op, REQ_OP_READ);
	}
	kvctx_io_put(op);
}

static const struct kvctx_op_kind load_again_kind = { .go = load_again_go, .finish = load_again_finish };

/* Any context */
void kvctx_load_finish(struct kvctx_op *op)
{
	if (op->io.error || op->io.bounces || op->load.verify || op->session->cipher) {
		kvctx_op_process(op, load_work);
		return;
	}
	/* it has nothing else to let go of */
	kvc_load_end(op->session->pool->core, &op->load.page, 0);
	kvctx_op_complete(op, op->call.length, load_flags(op));
}

/* The page was found: can it be had in this way? */
static __always_inline int load_allowed(struct kvctx_op *op)
{
	const struct kvc_load *ld = &op->load.page;

	if (op->call.offset > ld->length || op->call.length > ld->length - op->call.offset)
		return -ERANGE;
	if (op->mem.p2p && (op->session->cipher || !(kvctx_io_members(op) & BIT_ULL(ld->member))))
		return -EREMOTEIO;
	if (op->call.crcs_to && ld->no_crcs)
		return -EOPNOTSUPP;
	/* who loads to a peer and takes the CRCs checks there */
	if (!op->load.verify && !(op->mem.p2p && op->call.crcs_to) && op->session->rights.verified)
		return -EPERM;
	return 0;
}

/*
 * Copy the CRCs of the chunks that the range touches to the caller, whose context this is. A fault could take as
 * long as the caller likes, and nobody could reclaim the segment meanwhile: -ERESTART, and submit.c sees to it first.
 */
static int load_tell_crcs(struct kvctx_op *op)
{
	u32 __user *to = u64_to_user_ptr(op->call.crcs_to);
	u32 size = kvc_chunk_size(op->session->pool->core), batch[32], n, i;
	u32 chunk = (u32)op->call.offset / size, end = ((u32)op->call.offset + op->call.length - 1) / size + 1;

	for (; chunk < end; chunk += n, to += n) {
		n = min_t(u32, end - chunk, ARRAY_SIZE(batch));
		for (i = 0; i < n; i++)
			batch[i] = kvc_load_crc(op->session->pool->core, &op->load.page, chunk + i);
		if (copy_to_user_nofault(to, batch, n * sizeof(*batch)))
			return -ERESTART;
	}
	return 0;
}

/* It has its place, or there is none: @err */
static void load_send(struct kvctx_op *op, int err)
{
	if (err)
		cmpxchg(&op->io.error, 0, err);
	else
		kvctx_io_submit(op, REQ_OP_READ);
	kvctx_io_put(op);
}

static void load_seal_work(struct work_struct *work)
{
	struct kvctx_op *op = container_of(work, struct kvctx_op, run.work);

	load_send(op, load_seal(op));
}

/* The operation's turn has come: the device fills its memory. Or it will not come, and @err ends the operation. */
void kvctx_load_go(struct kvctx_op *op, int err)
{
	if (err) {
		load_end(op, err);
		op->io.bytes = 0;
		kvctx_op_complete(op, err, 0);
		return;
	}
	atomic_set(&op->io.pending, 1);
	/* so much memory is not looked for where others wait for theirs to go on */
	if (unlikely(op->session->cipher))
		kvctx_op_process(op, load_seal_work);
	else
		load_send(op, load_place(op));
}

static const struct kvctx_op_kind load_kind = { .go = kvctx_load_go, .finish = kvctx_load_finish };

/* The page was found: can it be had in this way? Tell its CRCs, unless the caller has those of another. */
static __always_inline int load_found(struct kvctx_op *op)
{
	int err;

	op->load.verify = !(op->call.flags & KVCTX_OP_NO_VERIFY) && !op->mem.p2p && !op->load.page.no_crcs;
	err = load_allowed(op);
	if (err || !op->call.crcs_to)
		return err;
	if (op->load.told)
		return op->load.told == op->load.page.seq ? 0 : -ENOENT;
	return load_tell_crcs(op);
}

/* Find the page, and see that it can be had in this way. An error ends op->load. */
int kvctx_load_begin(struct kvctx_op *op)
{
	int err;

	err = kvc_load_begin(op->session->pool->core, op->session->domain, op->call.key, &op->load.page);
	if (err)
		return err;
	op->kind = &load_kind;
	err = load_found(op);
	if (err)
		load_end(op, err);
	return err;
}

/*
 * Tell the CRCs of the page now, where the caller's memory is, of an operation that may begin later: it moves that page
 * then or none.
 */
int kvctx_load_tell(struct kvctx_op *op)
{
	int err = kvc_load_look(op->session->pool->core, op->session->domain, op->call.key, &op->load.page);

	if (err)
		return err;
	err = load_found(op);
	op->load.told = op->load.page.seq;
	load_end(op, 0);
	return err;
}

/* Read the page that was begun into op->mem, when it is its turn. */
void kvctx_load_move(struct kvctx_op *op)
{
	load_frame(op);
	/* of a part of chunks whole ones are read */
	if (unlikely(op->call.pace.state))
		kvctx_pace_charge(&op->session->pool->pace, &op->call, op->io.bytes);
	kvctx_turn_take(op);
}
