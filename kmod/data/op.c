// SPDX-License-Identifier: GPL-2.0
/*
 * Operations: their memory, their end, and where they go on when they cannot where they are.
 * op.h has the structure, and the states that it passes.
 *
 * The pieces of an operation hold the registrations they lie in: one count for each row of pieces in the same
 * registration. Memory of operations that ended is kept in the completion queue for the next ones, which takes it in
 * the critical section that the end of an operation needs anyway: so neither end has to ask the allocator.
 */
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "op.h"

static struct kmem_cache *op_cache;

/* A new operation, in the memory of one that ended if there is some in *@spare. */
struct kvctx_op *kvctx_op_alloc(struct kvctx_session *s, struct kvctx_op **spare)
{
	struct kvctx_op *op = *spare;

	if (op)
		*spare = op->spare;
	else
		op = kmem_cache_alloc(op_cache, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!op)
		return NULL;
	memset(op, 0, offsetof(struct kvctx_op, inline_pieces));
	op->session = s;
	op->call.tenant = s->slot;
	op->mem.user = op->inline_pieces + 1;
	return op;
}

/* Free the memory of an operation that has ended or never begun. */
void kvctx_op_discard(struct kvctx_op *op)
{
	kmem_cache_free(op_cache, op);
}

void kvctx_op_discard_all(struct kvctx_op *spare)
{
	struct kvctx_op *op;

	while ((op = spare)) {
		spare = op->spare;
		kvctx_op_discard(op);
	}
}

static void op_free_work(struct work_struct *work)
{
	vfree(work);
}

/* Freeing what was mapped may sleep, and transfers may end under their driver's locks. Few have anything to free. */
static noinline void op_free(struct kvctx_op *op, void *p)
{
	struct work_struct *work = p;

	if (!is_vmalloc_addr(p)) {
		kfree(p);
		return;
	}
	INIT_WORK(work, op_free_work);
	queue_work(op->session->pool->io_wq, work);
}

/* Let go of the registrations and of the lists. */
void kvctx_op_put_pieces(struct kvctx_op *op)
{
	struct kvctx_mem *mem, *last = NULL;
	u32 i;

	for (i = 0; i < op->mem.nr; i++) {
		mem = op->mem.user[i].mem;
		if (mem != last)
			kvctx_mem_put(op->session, mem);
		last = mem;
	}
	/* few have any of them, and freeing nothing costs more than looking */
	if (!op->mem.borrowed && !op->mem.list && !op->call.crcs)
		return;
	op_free(op, op->mem.borrowed);
	op_free(op, op->mem.list);
	op_free(op, op->call.crcs);
}

/* Is a peer gone whose memory it names? There may be thousands of pieces: they are looked at when some peer went. */
static bool op_lost_peer(struct kvctx_op *op)
{
	u32 left = kvctx_peers_left(), i;

	if (left == op->mem.peers_left)
		return false;
	for (i = 0; i < op->mem.nr; i++)
		if (kvctx_peer_gone(op->mem.user[i].mem))
			return true;
	op->mem.peers_left = left;
	return false;
}

/* Would nobody take the result any more, or is its memory gone? Then it shall not wait: 0 or why. */
int kvctx_req_unwanted(struct kvctx_req *req)
{
	struct kvctx_op *op = kvctx_op_of(req);

	if (READ_ONCE(op->session->dying) || (op->to.uring && READ_ONCE(op->to.uring->cancelled)))
		return -ECANCELED;
	return op->mem.p2p && op_lost_peer(op) ? -ENODEV : 0;
}

/* Apart, as few have a pace */
static noinline void op_leave_pace(struct kvctx_op *op)
{
	bool again = op->call.pace.state == KVCTX_PACE_AGAIN;
	struct kvctx_pool *p = op->session->pool;

	if (kvctx_pace_leave(&p->pace, &op->call, op->io.bytes))
		mod_delayed_work(p->io_wq, &p->pace_work, 0);
	/* the next one of such */
	if (again && p->space.some)
		mod_delayed_work(p->io_wq, &p->space_work, 0);
}

/* Apart, as few have somebody else who takes their result. Fills of slots are nobody's operations. */
static noinline void op_done(struct kvctx_op *op, s32 res, u32 flags)
{
	if (op->to.uring)
		kvctx_tally_count(op->session->tally, &op->call, res, flags, os_now());
	op->to.done(op, res, flags);
}

/* The end of an operation that was started. The session may be gone on return. Any context. */
void kvctx_op_complete(struct kvctx_op *op, s32 res, u32 flags)
{
	u64 now;

	os_trace_op(op_completed, &op->call, -1, res);
	if (unlikely(op->call.pace.state))
		op_leave_pace(op);
	kvctx_op_put_pieces(op);
	if (unlikely(op->to.done)) {
		op_done(op, res, flags);
	} else {
		/* what else is wanted is looked up behind this call, to be in registers that it does not save */
		now = os_now();
		kvctx_tally_count(op->session->tally, &op->call, res, flags, now);
		op = kvctx_cq_post(op->session, op->call.user_data, res, flags, op);
	}
	if (op)
		kvctx_op_discard(op);
}

void kvctx_req_complete(struct kvctx_req *req, s32 res, u32 flags)
{
	kvctx_op_complete(kvctx_op_of(req), res, flags);
}

int kvctx_req_attempt(struct kvctx_req *req)
{
	struct kvctx_op *op = kvctx_op_of(req);

	return op->kind->attempt(op);
}

void kvctx_req_go(struct kvctx_req *req, int err)
{
	struct kvctx_op *op = kvctx_op_of(req);

	op->kind->go(op, err);
}

u32 kvctx_req_weight(const struct kvctx_req *req)
{
	const struct kvctx_op *op = container_of(req, struct kvctx_op, call);

	return kvc_tenant_weight(op->session->pool->core, req->tenant);
}

struct kvc_pace kvctx_req_pace(const struct kvctx_req *req)
{
	const struct kvctx_op *op = container_of(req, struct kvctx_op, call);

	return kvc_tenant_pace(op->session->pool->core, req->tenant);
}

/* What slots and single commands of io_uring are told of has no user_data. */
const void *kvctx_req_owner(const struct kvctx_req *req)
{
	const struct kvctx_op *op = container_of(req, struct kvctx_op, call);

	return !op->to.done || (op->to.uring && op->to.uring->batch) ? op->session : NULL;
}

/* Go on with an operation in process context. */
void kvctx_op_process(struct kvctx_op *op, work_func_t fn)
{
	INIT_WORK(&op->run.work, fn);
	queue_work(op->session->pool->io_wq, &op->run.work);
}

/* Call kind->finish() again, in softirq context: together with others that ended meanwhile. */
void kvctx_op_bottom(struct kvctx_op *op)
{
	struct kvctx_pool *p = op->session->pool;

	if (llist_add(&op->run.bottom, &p->bottom))
		queue_work(system_bh_wq, &p->bottom_work);
}

void kvctx_bottom_work(struct work_struct *work)
{
	struct kvctx_pool *p = container_of(work, struct kvctx_pool, bottom_work);
	struct llist_node *ops = llist_reverse_order(llist_del_all(&p->bottom));
	struct kvctx_op *op, *next;

	llist_for_each_entry_safe(op, next, ops, run.bottom)
		op->kind->finish(op);
}

int kvctx_op_init(void)
{
	op_cache = KMEM_CACHE(kvctx_op, SLAB_ACCOUNT);
	return op_cache ? 0 : -ENOMEM;
}

void kvctx_op_exit(void)
{
	kmem_cache_destroy(op_cache);
}
