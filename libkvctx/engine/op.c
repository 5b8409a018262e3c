// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Operations: their memory and their end. session.h has the structure, and the states that it passes.
 *
 * The pieces of an operation hold the memories they lie in: one count for each row of pieces in the same memory.
 */
#include "session.h"

struct kve_op *kve_op_alloc(struct kve_session *s)
{
	struct kve_op *op = malloc(sizeof(*op));

	if (!op)
		return NULL;
	memset(op, 0, offsetof(struct kve_op, inline_ids));
	op->session = s;
	op->call.tenant = (u16)s->slot;
	op->mem.vec = op->inline_vecs + 1;
	op->mem.ids = op->inline_ids;
	op->mem.buffer = -1;
	return op;
}

/* Free the memory of an operation that has ended or never begun. */
void kve_op_discard(struct kve_op *op)
{
	free(op->mem.list);
	free(op->call.crcs);
	free(op);
}

static int op_room(struct kve_op *op, u32 nr)
{
	if (nr <= KVE_INLINE_PIECES)
		return 0;
	op->mem.list = malloc((nr + 2) * sizeof(struct iovec) + nr * sizeof(u32));
	if (!op->mem.list)
		return -ENOMEM;
	op->mem.vec = (struct iovec *)op->mem.list + 1;
	op->mem.ids = (u32 *)((struct iovec *)op->mem.list + nr + 2);
	return 0;
}

/* The next piece; session->lock held. */
static int op_add_piece(struct kve_op *op, const struct kvctx_seg *seg)
{
	struct kve_session *s = op->session;
	u32 i = op->mem.nr;
	struct kve_mem *mem;

	if (!seg->length || seg->mem >= s->nr_mems || !s->mems[seg->mem])
		return -EINVAL;
	mem = s->mems[seg->mem];
	if (seg->offset > mem->length || seg->length > mem->length - seg->offset)
		return -EFAULT;
	if (!i || op->mem.ids[i - 1] != seg->mem)
		mem->users++;
	op->mem.ids[i] = seg->mem;
	op->mem.vec[i] = (struct iovec){ .iov_base = mem->addr + seg->offset, .iov_len = seg->length };
	op->mem.buffer = i ? -1 : kve_mem_buffer(mem, op->mem.vec[i].iov_base, seg->length);
	op->mem.nr++;
	return 0;
}

/* Resolve the caller's segments, @nr of them, and hold their memories. Each is read once. */
int kve_op_pieces(struct kve_op *op, const struct kvctx_seg *segs, u32 nr)
{
	u64 sum = 0;
	int err = op_room(op, nr);

	if (err)
		return err;
	pthread_mutex_lock(&op->session->lock);
	while (!err && op->mem.nr < nr) {
		struct kvctx_seg seg = segs[op->mem.nr];

		err = op_add_piece(op, &seg);
		sum += seg.length;
	}
	pthread_mutex_unlock(&op->session->lock);
	if (err)
		return err;
	return sum == op->call.length ? 0 : -EMSGSIZE;
}

/* Let go of the memories. */
void kve_op_put_pieces(struct kve_op *op)
{
	u32 i;

	for (i = 0; i < op->mem.nr; i++)
		if (!i || op->mem.ids[i] != op->mem.ids[i - 1])
			op->session->mems[op->mem.ids[i]]->users--;
	op->mem.nr = 0;
}

static void op_leave_pace(struct kve_op *op)
{
	bool again = op->call.pace.state == KVCTX_PACE_AGAIN;
	struct kve_pool *p = op->session->pool;

	/* also the next one of those that wait for space */
	if (kvctx_pace_leave(&p->waits->pace, &op->call, op->io.bytes) || again)
		kve_job_queue(p, &p->space, kve_now());
}

/* The end of an operation that was started. The session may be gone on return. */
void kve_op_complete(struct kve_op *op, s32 res, u32 flags)
{
	struct kve_session *s = op->session;

	KVE_TRACE_SESSION(op_completed, op, &op->call, s, res);
	if (unlikely(op->call.pace.state))
		op_leave_pace(op);
	if (op->done) {
		op->done(op, res, flags);
	} else {
		kvctx_tally_count(s->tally, &op->call, res, flags, os_now());
		pthread_mutex_lock(&s->lock);
		kve_op_put_pieces(op);
		kve_cq_post(s, op->call.user_data, res, flags);
		pthread_mutex_unlock(&s->lock);
	}
	kve_op_discard(op);
}

void kvctx_req_complete(struct kvctx_req *req, s32 res, u32 flags)
{
	kve_op_complete(kve_op_of(req), res, flags);
}

int kvctx_req_attempt(struct kvctx_req *req)
{
	struct kve_op *op = kve_op_of(req);

	return op->kind->attempt(op);
}

void kvctx_req_go(struct kvctx_req *req, int err)
{
	struct kve_op *op = kve_op_of(req);

	op->kind->go(op, err);
}

int kvctx_req_unwanted(struct kvctx_req *req)
{
	return READ_ONCE(kve_op_of(req)->session->dying) ? -ECANCELED : 0;
}

u32 kvctx_req_weight(const struct kvctx_req *req)
{
	const struct kve_op *op = container_of(req, struct kve_op, call);

	return kvc_tenant_weight(op->session->pool->core, req->tenant);
}

struct kvc_pace kvctx_req_pace(const struct kvctx_req *req)
{
	const struct kve_op *op = container_of(req, struct kve_op, call);

	return kvc_tenant_pace(op->session->pool->core, req->tenant);
}

/* What slots are told of has no user_data. */
const void *kvctx_req_owner(const struct kvctx_req *req)
{
	const struct kve_op *op = container_of(req, struct kve_op, call);

	return op->done ? NULL : op->session;
}
