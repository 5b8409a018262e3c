// SPDX-License-Identifier: GPL-2.0
/*
 * What changes the pool: STORE, DELETE, FLUSH.
 *
 * STORE reserves its place, submits its bios and queues the computing of its CRCs at once: that goes on while the
 * device writes, on whatever CPU is free. The page is committed when bios and CRCs are both done, by whoever is last,
 * and becomes visible with that. A page whose memory changes meanwhile has CRCs that do not match; it is found out when
 * it is loaded.
 *
 * Some devices compute something over what they send, and fail when it changes meanwhile, for all who use them (stable
 * writes: NVMe/TCP with digests, protection information, parity). They are sent a copy, and the CRCs are its.
 *
 * A page of a tenant with a key is copied too, and what is sent and has CRCs is the copy, encrypted (cipher.c). Its
 * nonce is drawn here, for each STORE.
 *
 * Pages from peer memory, and those of callers who say so (NO_VERIFY), are not read by the CPU: they get the CRCs that
 * the caller sent, or none. Otherwise the caller's CRCs are compared.
 *
 * A STORE of a key that is present, or on its way, completes at once as a duplicate, unless it is to replace that page;
 * one that the write budget turns away completes at once with nothing stored.
 *
 * STORE and DELETE may find no space and wait (wait.c). FLUSH is started at once and never waits to be started, so
 * it has no deadline to miss.
 */
#include <linux/random.h>
#include <linux/slab.h>

#include "op.h"

/* Shall nobody be able to change what the device is sent? Of a peer's memory there is no copy. */
static bool store_copies(const struct kvctx_op *op)
{
	return op->session->cipher ||
	       (bdev_stable_writes(op->session->pool->members[op->io.member].bdev) && !op->mem.p2p);
}

/* Does the CPU read the page, to compute its CRCs? */
static bool store_reads(const struct kvctx_op *op)
{
	return op->session->cipher || (!op->mem.p2p && !(op->call.flags & KVCTX_OP_NO_VERIFY));
}

static void store_crcs(struct kvctx_op *op)
{
	struct kvc_pool *core = op->session->pool->core;
	u32 size = kvc_chunk_size(core), left = op->store.page.summed, chunk, n, crc;
	struct kvctx_cursor c;

	kvctx_cursor_init(&c, op->io.pieces);
	for (chunk = 0; left; chunk++, left -= n) {
		n = min(size, left);
		crc = kvctx_cursor_crc(&c, n);
		if (op->call.crcs && op->call.crcs[chunk] != crc)
			cmpxchg(&op->io.error, 0, -EILSEQ);
		kvc_store_crc(core, &op->store.page, chunk, crc);
		cond_resched();
	}
}

/* Of a page that the CPU does not read */
static void store_given_crcs(struct kvctx_op *op)
{
	struct kvc_store *st = &op->store.page;
	u32 chunk;

	st->no_crcs = !op->call.crcs;
	for (chunk = 0; op->call.crcs && chunk < st->nr_chunks; chunk++)
		kvc_store_crc(op->session->pool->core, st, chunk, op->call.crcs[chunk]);
}

static void store_failed(struct work_struct *work)
{
	struct kvctx_op *op = container_of(work, struct kvctx_op, run.work);
	int err = kvctx_io_result(op);

	kvctx_mem_free(op->store.copy);
	kvctx_io_free(op);
	kvc_store_abort(op->session->pool->core, &op->store.page);
	kvctx_op_complete(op, err, 0);
}

static void store_finish(struct kvctx_op *op);

/* Freeing may sleep. */
static void store_free_copy(struct work_struct *work)
{
	struct kvctx_op *op = container_of(work, struct kvctx_op, run.work);

	kvctx_mem_free(op->store.copy);
	op->store.copy = NULL;
	store_finish(op);
}

/* Any context; the engine's locks are not for hard interrupts. */
static void store_finish(struct kvctx_op *op)
{
	struct kvc_pool *core = op->session->pool->core;
	s32 res = op->call.length;

	if (op->io.error) {
		kvctx_op_process(op, store_failed);
		return;
	}
	if (unlikely(op->store.copy)) {
		kvctx_op_process(op, store_free_copy);
		return;
	}
	if (in_hardirq() || irqs_disabled()) {
		kvctx_op_bottom(op);
		return;
	}
	kvctx_io_free(op);
	kvc_store_commit(core, &op->store.page);
	/* the flush that told of it may be over */
	if (op->store.page.lost)
		res = -ENODEV;
	kvctx_op_complete(op, res, op->mem.p2p && res >= 0 ? KVCTX_CQE_P2P : 0);
}

static void store_crc_work(struct work_struct *work)
{
	struct kvctx_op *op = container_of(work, struct kvctx_op, run.work);

	store_crcs(op);
	kvctx_io_put(op);
}

static int store_copy(struct kvctx_op *op)
{
	struct kvctx_pool *p = op->session->pool;
	struct kvctx_cursor from, to;

	op->store.copy = kvctx_mem_alloc(op->io.bytes, NULL);
	if (IS_ERR(op->store.copy)) {
		op->store.copy = NULL;
		return -ENOMEM;
	}
	op->store.copied = (struct kvctx_piece){ .mem = op->store.copy, .length = op->io.bytes };
	kvctx_cursor_init(&from, op->io.pieces);
	kvctx_cursor_init(&to, &op->store.copied);
	kvctx_cursor_copy(&to, &from, op->io.bytes);
	op->io.pieces = &op->store.copied;
	percpu_counter_add(&p->counters.bounced_blocks,
			   op->io.bytes / kvctx_io_unit(p->members[op->io.member].bdev));
	return 0;
}

static int store_encrypt(struct kvctx_op *op)
{
	u8 nonce[KVC_NONCE_LEN];
	struct kvctx_cursor c;

	if (!op->session->cipher)
		return 0;
	get_random_bytes(nonce, sizeof(nonce));
	kvc_store_nonce(op->session->pool->core, &op->store.page, nonce);
	kvctx_cursor_init(&c, &op->store.copied);
	return kvctx_cursor_crypt(&c, op->session->cipher, true, nonce, 0, op->io.bytes);
}

/* Send, and compute or take over the CRCs. The caller holds a count of io.pending. */
static inline void store_send(struct kvctx_op *op)
{
	if (!store_reads(op))
		store_given_crcs(op);
	kvctx_io_submit(op, REQ_OP_WRITE);
	kvctx_count_written(op->session->pool, &op->session->pool->counters.host_written, op->io.bytes);
}

static void store_copy_work(struct work_struct *work)
{
	struct kvctx_op *op = container_of(work, struct kvctx_op, run.work);
	int err = store_copy(op) ?: store_encrypt(op);

	if (err) {
		cmpxchg(&op->io.error, 0, err);
	} else {
		store_send(op);
		if (store_reads(op))
			store_crcs(op);
	}
	kvctx_io_put(op);
}

/* The operation's turn has come: its bytes go to the device. Or it will not come, and @err ends the operation. */
static void store_go(struct kvctx_op *op, int err)
{
	if (err) {
		kvc_store_abort(op->session->pool->core, &op->store.page);
		op->io.bytes = 0;
		kvctx_op_complete(op, err, 0);
		return;
	}
	if (unlikely(store_copies(op))) {
		atomic_set(&op->io.pending, 1);
		kvctx_op_process(op, store_copy_work);
		return;
	}
	atomic_set(&op->io.pending, store_reads(op) ? 2 : 1);
	store_send(op);
	if (store_reads(op))
		kvctx_op_process(op, store_crc_work);
	kvctx_io_put(op);
}

static int store_begin(struct kvctx_op *op)
{
	struct kvctx_session *s = op->session;

	if (unlikely(op->call.flags & KVCTX_OP_REPLACE))
		return kvc_replace_begin(s->pool->core, s->domain, op->call.key, op->call.length, op->call.depth,
					 ~op->call.barred, &op->store.page);
	return kvc_store_begin(s->pool->core, s->domain, op->call.key, op->call.length, op->call.depth,
			       ~op->call.barred, &op->store.page);
}

/* Who takes the operation's peer memory? */
static int store_reach(struct kvctx_op *op)
{
	op->call.barred = ~kvctx_io_members(op);
	return ~op->call.barred ? 0 : -EREMOTEIO;
}

/*
 * A member may have returned as another device since that was asked, which takes peer memory where the other did not,
 * or does not where it did. It does not once the operation has a page on it. Apart, as few have peer memory.
 */
static noinline int store_begin_reached(struct kvctx_op *op)
{
	int err = op->call.wait.waited ? store_reach(op) : 0;

	while (!err) {
		err = store_begin(op);
		if (err || kvctx_io_members(op) & BIT_ULL(op->store.page.member))
			break;
		kvc_store_abort(op->session->pool->core, &op->store.page);
		err = store_reach(op);
	}
	return err;
}

static int store_attempt(struct kvctx_op *op)
{
	struct kvctx_session *s = op->session;
	int err;

	if (unlikely(op->call.pace.state) && !kvctx_pace_may_resume(&s->pool->pace, &op->call))
		return -EAGAIN;
	if (READ_ONCE(s->pool->write_budget))
		kvc_budget_tick(s->pool->core, (u64)ktime_get_boottime_seconds());
	err = unlikely(op->mem.p2p) ? store_begin_reached(op) : store_begin(op);
	if (err == -EEXIST || err == -EINPROGRESS) {
		kvctx_op_complete(op, op->call.length, KVCTX_CQE_DEDUP | (err == -EEXIST ? 0 : KVCTX_CQE_PENDING));
		return 0;
	}
	if (err == -EDQUOT) {
		kvctx_op_complete(op, 0, KVCTX_CQE_UNADMITTED);
		return 0;
	}
	if (err)
		return err;
	if (unlikely(op->call.pace.state))
		kvctx_pace_resume(&s->pool->pace, &op->call);
	op->io.bytes = kvc_blocks(op->call.length) << KVC_BLOCK_SHIFT;
	if (op->io.bytes > op->call.length)
		op->mem.user[op->mem.nr] = (struct kvctx_piece){ .length = op->io.bytes - op->call.length };
	op->io.pieces = op->mem.user;
	op->io.member = op->store.page.member;
	op->io.offset = op->store.page.offset;
	op->io.stream = op->store.page.stream;
	kvctx_turn_take(op);
	return 0;
}

static const struct kvctx_op_kind store_kind = {
	.attempt = store_attempt, .go = store_go, .finish = store_finish,
};

int kvctx_store_start(struct kvctx_op *op)
{
	if (op->mem.p2p && op->session->cipher)
		return -EREMOTEIO;
	if (op->mem.p2p) {
		int err = store_reach(op);

		if (err)
			return err;
		if (!op->call.crcs && op->session->rights.verified)
			return -EPERM;
	}
	op->kind = &store_kind;
	return kvctx_attempt(op, true);
}

static int store_delete(struct kvctx_op *op)
{
	struct kvctx_session *s = op->session;
	int err = kvc_delete(s->pool->core, s->domain, op->call.key);

	if (!err)
		kvctx_op_complete(op, 0, 0);
	return err;
}

static const struct kvctx_op_kind delete_kind = { .attempt = store_delete };

int kvctx_delete_start(struct kvctx_op *op)
{
	op->kind = &delete_kind;
	return kvctx_attempt(op, false);
}

struct store_flush {
	struct kvctx_op *op;
	struct kvctx_flush flush;
};

static void store_flush_done(struct kvctx_flush *flush)
{
	struct store_flush *f = container_of(flush, struct store_flush, flush);
	struct kvctx_op *op = f->op;
	int err = flush->err;

	kfree(f);
	kvctx_op_complete(op, err, 0);
}

int kvctx_flush_op_start(struct kvctx_op *op)
{
	struct kvctx_pool *p = op->session->pool;
	u32 nr = kvctx_nr_members(p);
	struct store_flush *f = kzalloc(struct_size(f, flush.on, nr), GFP_KERNEL_ACCOUNT);

	if (!f)
		return -ENOMEM;
	f->flush.nr = nr;
	percpu_counter_inc(&p->counters.flushes);
	f->op = op;
	f->flush.pool = p;
	f->flush.done = store_flush_done;
	f->flush.losses_seen = &op->session->losses_seen;
	kvctx_flush_start(&f->flush);
	return 0;
}
