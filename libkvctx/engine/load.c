// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * LOAD: from the device into the caller's memory, then verify. What is read beside the caller's range says struct
 * kvctx_frame.
 *
 * A chunk that fails its check is read once more, into memory of ours, before the page is condemned. The caller can
 * write to the destination while we check it, or name the same bytes twice in its list; without the second look a
 * session that may only read could make the pool drop good pages. If the second copy is right it is delivered, and
 * what the completion says is true of it; the page is dropped only if the medium is wrong.
 *
 * Bytes that failed are never left behind: an operation that does not succeed after its transfer began completes
 * with its destination zeroed.
 *
 * Reclaim waits for the hold that kvc_load_begin() takes; no lock is held meanwhile.
 */
#include "session.h"

static u32 load_align(const struct kve_op *op, u32 member)
{
	return op->session->cipher ? KVC_BLOCK : op->session->pool->members[member].dev->align;
}

/* Decide what to read, and where it goes. */
static int load_frame(struct kve_op *op)
{
	const struct kvc_load *ld = &op->load.page;
	struct kvctx_frame *f = &op->load.frame;
	u32 chunk = op->load.verify ? kvc_chunk_size(op->session->pool->core) : 0;

	*f = kvctx_frame_of((u32)op->call.offset, op->call.length, ld->summed, chunk, load_align(op, ld->member));
	op->io.member = ld->member;
	op->io.offset = ld->offset + f->start;
	op->io.bytes = f->bytes;
	return kve_io_frame(op, f->head, f->bytes - f->head - op->call.length, false);
}

/* A chunk did not match: what does the medium say? @c: where its @n bytes, @at inside the transfer, belong. */
static int load_again(struct kve_op *op, struct kve_cursor c, u32 at, u32 n, u32 crc)
{
	struct kve_pool *p = op->session->pool;
	u32 bytes = (n + KVC_BLOCK - 1) & ~(KVC_BLOCK - 1);
	void *copy = aligned_alloc(KVC_BLOCK, bytes);
	int err = 0;

	if (!copy)
		return -ENOMEM;
	os_atomic64_add(&p->counters.rereads, 1);
	if (kve_device_read(p->members[op->io.member].dev, copy, bytes, op->io.offset + at))
		err = -EIO;
	else if (kvc_crc_finish(kvc_crc_feed(KVC_CRC_INIT, copy, n)) != crc)
		err = -EBADMSG;
	else
		kve_cursor_write(&c, copy, n);
	free(copy);
	return err;
}

static int load_verify(struct kve_op *op)
{
	struct kvc_pool *core = op->session->pool->core;
	u32 size = kvc_chunk_size(core), pos, n, crc;
	u32 chunk = op->load.frame.start / size;
	struct kve_cursor c = { .vec = op->io.io.vec }, start;
	int err;

	for (pos = 0; pos < op->load.frame.span; pos += n, chunk++) {
		n = min(size, op->load.frame.span - pos);
		start = c;
		crc = kvc_load_crc(core, &op->load.page, chunk);
		if (unlikely(kve_cursor_crc(&c, n) != crc)) {
			err = load_again(op, start, pos, n, crc);
			if (err)
				return err;
		}
	}
	return 0;
}

/* In memory of ours, where all of it is */
static int load_decrypt(struct kve_op *op)
{
	struct kve_session *s = op->session;

	return kve_cipher_run(s->cipher, false, kvc_load_nonce(s->pool->core, &op->load.page),
			      op->load.frame.start / KVC_BLOCK, op->io.bounce, op->io.bytes);
}

static void load_end(struct kve_op *op, int err)
{
	kvc_load_end(op->session->pool->core, &op->load.page, err);
	kve_io_free(op);
}

void kve_load_finish(struct kve_op *op)
{
	int err = kve_io_result(op);

	if (!err && op->load.verify)
		err = load_verify(op);
	if (!err && unlikely(op->session->cipher))
		err = load_decrypt(op);
	if (!err)
		kve_io_deliver(op, op->load.frame.head);
	else
		kve_vec_zero(op->mem.vec, op->mem.nr);
	load_end(op, err);
	if (err)
		kve_op_complete(op, err, 0);
	else
		kve_op_complete(op, (s32)op->call.length, op->load.verify ? KVCTX_CQE_VERIFIED : 0);
}

/* Can the page be had in this way? */
static int load_allowed(const struct kve_op *op)
{
	const struct kvc_load *ld = &op->load.page;

	if (op->call.offset > ld->length || op->call.length > ld->length - op->call.offset)
		return -ERANGE;
	if (op->call.crcs_to && ld->no_crcs)
		return -EOPNOTSUPP;
	if (!op->load.verify && op->session->rights.verified)
		return -EPERM;
	return 0;
}

/* The CRCs of the chunks that the range touches. */
static void load_tell_crcs(struct kve_op *op)
{
	struct kvc_pool *core = op->session->pool->core;
	u32 size = kvc_chunk_size(core), chunk = (u32)op->call.offset / size, i;
	u32 end = ((u32)op->call.offset + op->call.length - 1) / size + 1, *to = (u32 *)op->call.crcs_to;

	for (i = 0; chunk + i < end; i++)
		to[i] = kvc_load_crc(core, &op->load.page, chunk + i);
}

/*
 * The operation's turn has come: the device fills its memory. Or it will not come, and @err ends the operation. A fill
 * of a slot may be over, and its session closed, before who started it has left the ring: it is kept for him too.
 */
void kve_load_go(struct kve_op *op, int err)
{
	struct kve_session *s = op->session;
	bool late = !kve_op_batch(op);		/* not in SUBMIT */

	if (!err && late && unlikely(s->cipher) && !kve_cipher_valid(s->cipher)) {
		kve_turn_end(op);
		err = -ENOKEY;
	}
	if (!err && late && !kve_touch(s)) {
		kve_turn_end(op);
		err = -ECANCELED;
	}
	if (!err) {
		kve_io_start(op, false, 1);
		if (late)
			kve_untouch(s);
		return;
	}
	load_end(op, err);
	op->io.bytes = 0;	/* nothing moved */
	kve_op_complete(op, err, 0);
}

static const struct kve_op_kind load_kind = { .go = kve_load_go, .finish = kve_load_finish };

/* The page was found: can it be had in this way? Tell its CRCs, unless the caller has those of another. */
static int load_found(struct kve_op *op)
{
	int err;

	op->load.verify = !(op->call.flags & KVCTX_OP_NO_VERIFY) && !op->load.page.no_crcs;
	err = load_allowed(op);
	if (err || !op->call.crcs_to)
		return err;
	if (op->load.told)
		return op->load.told == op->load.page.seq ? 0 : -ENOENT;
	load_tell_crcs(op);
	return 0;
}

/* Find the page, and see that it can be had in this way. An error ends op->load. */
int kve_load_begin(struct kve_op *op)
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
 * Tell the CRCs of the page now, while the caller waits, of an operation that may begin later: it moves that page then
 * or none.
 */
int kve_load_tell(struct kve_op *op)
{
	int err = kvc_load_look(op->session->pool->core, op->session->domain, op->call.key, &op->load.page);

	if (err)
		return err;
	err = load_found(op);
	op->load.told = op->load.page.seq;
	kvc_load_end(op->session->pool->core, &op->load.page, 0);
	return err;
}

/* Read the page that was begun into its pieces, when it is its turn. 0: taken over; an error ends op->load. */
int kve_load_move(struct kve_op *op)
{
	int err = load_frame(op);

	if (err) {
		load_end(op, err);
		return err;
	}
	/* of a part of chunks whole ones are read */
	if (unlikely(op->call.pace.state))
		kvctx_pace_charge(&op->session->waits->pace, &op->call, op->io.bytes);
	kve_turn_take(op);
	return 0;
}
