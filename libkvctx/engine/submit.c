// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * SUBMIT: from the caller's operations to operations under way.
 *
 * Each operation is copied once and validated from the copy (kmod/session/sqe.c). An operation that is refused has done
 * nothing, and completes with the reason like any other: every operation that SUBMIT takes gives exactly one completion.
 *
 * Operations that only ask the engine are answered here. The others get a struct kve_op, and are started; their
 * transfers are sent some at a time.
 */
#include "session.h"

#define SUBMIT_BATCH	32U

/* Who serves an opcode. One of the two */
struct submit_opcode {
	int (*start)(struct kve_op *op);
	s32 (*now)(struct kve_session *s, const struct kvctx_sqe *sqe);
};

/* What begins, of that which moves pages: a tenant's pace may have it wait before */
static const struct kve_op_kind submit_paced[KVCTX_OPS] = {
	[KVCTX_OP_STORE]	= { .attempt = kve_store_start },
	[KVCTX_OP_LOAD]		= { .attempt = kve_load_start },
	[KVCTX_OP_PREFETCH]	= { .attempt = kve_prefetch_start },
	[KVCTX_OP_GET]		= { .attempt = kve_prefetch_start },
};

static s32 submit_query(struct kve_session *s, const struct kvctx_sqe *sqe)
{
	struct kvctx_key key = sqe->key;

	return kvc_query(s->pool->core, s->domain, kvctx_key_bytes(&key));
}

static const struct submit_opcode submit_opcodes[KVCTX_OPS] = {
	[KVCTX_OP_STORE]	= { .start = kve_store_start },
	[KVCTX_OP_LOAD]		= { .start = kve_load_start },
	[KVCTX_OP_DELETE]	= { .start = kve_delete_start },
	[KVCTX_OP_QUERY]	= { .now = submit_query },
	[KVCTX_OP_PREFETCH]	= { .start = kve_prefetch_start },
	[KVCTX_OP_GET]		= { .start = kve_prefetch_start },
	[KVCTX_OP_PUT]		= { .now = kve_put },
	[KVCTX_OP_LEASE]	= { .now = kve_lease },
	[KVCTX_OP_RELEASE]	= { .now = kve_release },
	[KVCTX_OP_FLUSH]	= { .start = kve_flush_op_start },
	[KVCTX_OP_MATCH]	= { .start = kve_match_start },
	[KVCTX_OP_CANCEL]	= { .now = kve_cancel },
};

static int submit_get_pieces(struct kve_op *op, const struct kvctx_sqe *sqe)
{
	struct kvctx_seg one = { .offset = sqe->segs, .length = (u32)sqe->length, .mem = sqe->mem };

	if (sqe->nr_segs)
		return kve_op_pieces(op, (const struct kvctx_seg *)sqe->segs, sqe->nr_segs);
	return sqe->length ? kve_op_pieces(op, &one, 1) : 0;
}

static int submit_copy(void *to, u64 from, size_t bytes)
{
	void *copy = malloc(bytes);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, (const void *)from, bytes);
	memcpy(to, &copy, sizeof(copy));
	return 0;
}

/* LOAD gets its CRCs when the page was found; those of a STORE, and the keys of a MATCH, are copied now. */
static int submit_get_arrays(struct kve_op *op, const struct kvctx_sqe *sqe)
{
	u32 chunk = kvc_chunk_size(op->session->pool->core), nr = (op->call.length + chunk - 1) / chunk;

	if (sqe->nr_keys) {
		op->call.nr_keys = sqe->nr_keys;
		return submit_copy(&op->call.keys, sqe->keys, sqe->nr_keys * sizeof(*op->call.keys));
	}
	if (!sqe->crcs)
		return 0;
	if (sqe->opcode == KVCTX_OP_LOAD) {
		op->call.crcs_to = sqe->crcs;
		return 0;
	}
	return submit_copy(&op->call.crcs, sqe->crcs, nr * sizeof(*op->call.crcs));
}

static int submit_begin(struct kve_op *op)
{
	bool paced = READ_ONCE(*kvc_tenant_paced(op->session->pool->core, op->session->slot));
	int err;

	if (!paced || !submit_paced[op->call.opcode].attempt)
		return submit_opcodes[op->call.opcode].start(op);
	err = op->call.crcs_to ? kve_load_tell(op) : 0;
	if (err)
		return err;
	op->kind = &submit_paced[op->call.opcode];
	return kve_pace(op);
}

/* 0: taken over, and maybe ended */
static int submit_start(struct kve_session *s, const struct kvctx_sqe *sqe, u64 now, u64 deadline,
			struct kve_batch *batch)
{
	struct kve_op *op = kve_op_alloc(s);
	int err;

	if (!op)
		return -ENOMEM;
	op->batch = batch;
	op->call.user_data = sqe->user_data;
	op->call.flags = sqe->flags;
	op->call.opcode = sqe->opcode;
	op->call.prio = kvctx_prio_of(&kvctx_rules[sqe->opcode], sqe->prio,
				      !READ_ONCE(*kvc_tenant_no_urgent(s->pool->core, s->slot)));
	memcpy(op->call.key, &sqe->key, sizeof(op->call.key));
	kvctx_key_bytes((struct kvctx_key *)op->call.key);
	op->call.offset = sqe->offset;
	op->call.length = (u32)sqe->length;
	op->call.depth = sqe->depth;
	op->call.lease_ms = sqe->lease_ms;
	op->call.since = now;
	op->call.deadline = deadline;
	err = submit_get_arrays(op, sqe);
	if (!err)
		err = submit_get_pieces(op, sqe);
	if (!err) {
		KVE_TRACE_SESSION(op_submitted, op, &op->call, s, 0);
		err = submit_begin(op);
	}
	if (err) {
		pthread_mutex_lock(&s->lock);
		kve_op_put_pieces(op);
		pthread_mutex_unlock(&s->lock);
		kve_op_discard(op);
	}
	return err;
}

/* The result of an operation that ends here, or -EINPROGRESS: it will be told. */
static s32 submit_one(struct kve_session *s, const struct kvctx_sqe *sqe, u64 now, struct kve_batch *batch)
{
	u64 deadline = KVE_NEVER;
	s32 res;

	if (sqe->opcode >= KVCTX_OPS)
		return -EINVAL;
	res = kvctx_sqe_check(sqe, &kvctx_rules[sqe->opcode], &s->rights);
	if (res)
		return res;
	if (batch->no_key && kvctx_rules[sqe->opcode].keyed)
		return -ENOKEY;
	if (sqe->timeout_ns) {
		deadline = sqe->timeout_ns < KVE_NEVER - now ? now + sqe->timeout_ns : KVE_NEVER;
		if (kve_now() >= deadline)
			return -ETIME;
	}
	if (submit_opcodes[sqe->opcode].now)
		return submit_opcodes[sqe->opcode].now(s, sqe);
	res = submit_start(s, sqe, now, deadline, batch);
	return res ? res : -EINPROGRESS;
}

int kve_submit(struct kve_session *s, const struct kvctx_submit *arg)
{
	const struct kvctx_sqe *sqes = (const struct kvctx_sqe *)arg->sqes;
	u64 now = kve_now(), timeout_ns = arg->timeout_ns;
	struct kve_batch batch = {
		.last = &batch.stores, .no_key = unlikely(s->cipher) && !kve_cipher_valid(s->cipher),
	};
	u32 nr, i;
	s32 res = kvctx_submit_check(arg);

	if (res)
		return res;
	nr = kve_cq_reserve(s, arg->nr);
	if (!nr)
		return -EAGAIN;
	for (i = 0; i < nr; i++) {
		struct kvctx_sqe sqe = sqes[i];

		res = submit_one(s, &sqe, now, &batch);
		if (res != -EINPROGRESS) {
			KVE_TRACE_SESSION(op_immediate, 0, &sqe, s, res);
			kvctx_tally_refused(s->tally, sqe.opcode, res);
			pthread_mutex_lock(&s->lock);
			kve_cq_post(s, sqe.user_data, res, 0);
			pthread_mutex_unlock(&s->lock);
		}
		if (i % SUBMIT_BATCH == SUBMIT_BATCH - 1)
			kve_send(s);
	}
	kve_send(s);
	/* when all are on the way: who loads does not wait for the checksums of those that store */
	kve_store_crcs(&batch);
	if (arg->wait_nr)
		kve_cq_wait(s, arg->wait_nr, &timeout_ns);
	return (int)nr;
}
