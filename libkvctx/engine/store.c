// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What changes the pool: STORE, DELETE, FLUSH.
 *
 * STORE reserves its place, hands its transfer to the ring, and computes its CRCs in the same thread while the device
 * writes; of a batch, when all of it was sent. The page is committed when both are done, by whoever is last, and becomes
 * visible with that. A page whose memory changes meanwhile has CRCs that do not match; it is found out when it is
 * loaded.
 *
 * A page of a tenant with a key is copied, and encrypted, when it is its turn; its CRCs are of what is sent. If it had
 * to wait, the thread that reaps for its session does that.
 *
 * Those of callers who say so (NO_VERIFY) get the CRCs that the caller sent, or none. Otherwise they are compared.
 *
 * A STORE of a key that is present, or on its way, completes at once as a duplicate; one that the write budget turns
 * away completes at once with nothing stored.
 *
 * STORE and DELETE may find no space and wait (wait.c). FLUSH is started at once and never waits to be started, so
 * it has no deadline to miss.
 */
#include "session.h"

/* Are the page's CRCs computed here? */
static bool store_reads(const struct kve_op *op)
{
	return !(op->call.flags & KVCTX_OP_NO_VERIFY) || op->session->cipher;
}

static void store_crcs(struct kve_op *op)
{
	struct kvc_pool *core = op->session->pool->core;
	u32 size = kvc_chunk_size(core), left = op->store.page.summed, chunk, n, crc;
	/* of what is sent, where that is encrypted */
	struct kve_cursor c = { .vec = op->session->cipher ? op->io.io.vec : op->mem.vec };

	for (chunk = 0; left; chunk++, left -= n) {
		n = min(size, left);
		crc = kve_cursor_crc(&c, n);
		if (op->call.crcs && op->call.crcs[chunk] != crc)
			WRITE_ONCE(op->io.error, -EILSEQ);
		kvc_store_crc(core, &op->store.page, chunk, crc);
	}
	kve_io_put(op);
}

/* Of those of a batch, which have been sent */
void kve_store_crcs(struct kve_batch *b)
{
	struct kve_op *op;

	while ((op = b->stores)) {
		b->stores = op->store.next;
		store_crcs(op);
	}
	b->last = &b->stores;
}

/* Of a page that is not read here */
static void store_given_crcs(struct kve_op *op)
{
	struct kvc_store *st = &op->store.page;
	u32 chunk;

	st->no_crcs = !op->call.crcs;
	for (chunk = 0; op->call.crcs && chunk < st->nr_chunks; chunk++)
		kvc_store_crc(op->session->pool->core, st, chunk, op->call.crcs[chunk]);
}

static void store_end(struct kve_op *op, int err)
{
	struct kvc_pool *core = op->session->pool->core;
	s32 res = op->call.length;

	kve_io_free(op);
	if (err) {
		kvc_store_abort(core, &op->store.page);
		res = err;
	} else {
		kvc_store_commit(core, &op->store.page);
		/* the flush that told of it may be over */
		if (op->store.page.lost)
			res = -ENODEV;
	}
	kve_op_complete(op, res, 0);
}

static void store_finish(struct kve_op *op)
{
	store_end(op, kve_io_result(op));
}

static int store_frame(struct kve_op *op)
{
	return kve_io_frame(op, 0, op->io.bytes - op->call.length, true);
}

/* Copied to memory of ours, and there encrypted. Each STORE has a nonce of its own. @late: not in its SUBMIT */
static int store_encrypt(struct kve_op *op, bool late)
{
	struct kve_session *s = op->session;
	u8 nonce[KVC_NONCE_LEN];
	int err;

	if (late && !kve_cipher_valid(s->cipher))
		return -ENOKEY;
	err = store_frame(op);
	if (err)
		return err;
	if (!kve_cipher_nonce(nonce))
		return -EIO;
	kvc_store_nonce(s->pool->core, &op->store.page, nonce);
	return kve_cipher_run(s->cipher, true, nonce, 0, op->io.bounce, op->io.bytes);
}

static void store_move(struct kve_op *op)
{
	struct kve_pool *p = op->session->pool;
	struct kve_batch *b = kve_op_batch(op);

	os_atomic64_add(&p->counters.host_written, op->io.bytes);
	kvc_budget_spend(p->core, op->io.bytes);
	if (!store_reads(op)) {
		store_given_crcs(op);
		kve_io_start(op, true, 1);
		return;
	}
	kve_io_start(op, true, 2);
	if (!b) {
		store_crcs(op);
		return;
	}
	op->store.next = NULL;
	*b->last = op;
	b->last = &op->store.next;
}

/* The operation's turn has come: its bytes go to the device. Or it will not come, and @err ends the operation. */
static void store_go(struct kve_op *op, int err)
{
	struct kve_session *s = op->session;
	bool late = !kve_op_batch(op);		/* not in SUBMIT */
	bool touched = false, turn = !err;

	if (!err && late && unlikely(s->cipher) && !op->later.came) {
		kve_cq_later(op);
		return;
	}
	if (!err && late) {
		touched = kve_touch(s);
		err = touched ? 0 : -ECANCELED;
	}
	if (!err && unlikely(s->cipher))
		err = store_encrypt(op, late);
	if (!err)
		store_move(op);
	else if (turn)
		kve_turn_end(op);
	if (touched)
		kve_untouch(s);
	if (err) {
		op->io.bytes = 0;	/* nothing moved */
		store_end(op, err);
	}
}

static int store_begun(struct kve_op *op)
{
	int err;

	if (unlikely(op->call.pace.state))
		kvctx_pace_resume(&op->session->waits->pace, &op->call);
	op->io.bytes = kvc_blocks(op->call.length) << KVC_BLOCK_SHIFT;
	op->io.member = op->store.page.member;
	op->io.offset = op->store.page.offset;
	err = op->session->cipher ? 0 : store_frame(op);
	if (err)
		kvc_store_abort(op->session->pool->core, &op->store.page);
	else
		kve_turn_take(op);
	return err;
}

static int store_try(struct kve_op *op)
{
	struct kve_session *s = op->session;
	int err;

	if (unlikely(op->call.pace.state) && !kvctx_pace_may_resume(&s->waits->pace, &op->call))
		return -EAGAIN;
	kvc_budget_tick(s->pool->core, kve_now() / KVE_NSEC);
	err = (op->call.flags & KVCTX_OP_REPLACE ? kvc_replace_begin : kvc_store_begin)
		(s->pool->core, s->domain, op->call.key, op->call.length, op->call.depth, KVC_ANY_MEMBER,
		 &op->store.page);
	if (err == -EEXIST || err == -EINPROGRESS) {
		kve_op_complete(op, (s32)op->call.length,
				KVCTX_CQE_DEDUP | (err == -EEXIST ? 0 : KVCTX_CQE_PENDING));
		return 0;
	}
	if (err == -EDQUOT) {
		kve_op_complete(op, 0, KVCTX_CQE_UNADMITTED);
		return 0;
	}
	return err ? err : store_begun(op);
}

static int store_attempt(struct kve_op *op)
{
	struct kve_session *s = op->session;
	int err;

	if (kve_op_batch(op))
		return store_try(op);
	if (!kve_touch(s))
		return -ECANCELED;
	err = store_try(op);
	kve_untouch(s);
	return err;
}

static const struct kve_op_kind store_kind = { .attempt = store_attempt, .go = store_go, .finish = store_finish };

int kve_store_start(struct kve_op *op)
{
	op->kind = &store_kind;
	return kve_attempt(op, true);
}

static int store_delete(struct kve_op *op)
{
	struct kve_session *s = op->session;
	int err = kvc_delete(s->pool->core, s->domain, op->call.key);

	if (!err)
		kve_op_complete(op, 0, 0);
	return err;
}

static const struct kve_op_kind delete_kind = { .attempt = store_delete };

int kve_delete_start(struct kve_op *op)
{
	op->kind = &delete_kind;
	return kve_attempt(op, false);
}

struct store_flush {
	struct kve_op *op;
	struct kve_flush flush;
};

static void store_flush_done(struct kve_flush *flush)
{
	struct store_flush *f = (struct store_flush *)((u8 *)flush - offsetof(struct store_flush, flush));
	struct kve_op *op = f->op;
	int err = flush->err;

	free(f);
	kve_op_complete(op, err, 0);
}

int kve_flush_op_start(struct kve_op *op)
{
	struct kve_pool *p = op->session->pool;
	struct store_flush *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	os_atomic64_add(&p->counters.flushes, 1);
	f->op = op;
	f->flush.pool = p;
	f->flush.done = store_flush_done;
	f->flush.losses_seen = &op->session->losses_seen;
	kve_flush_start(&f->flush);
	return 0;
}
