// SPDX-License-Identifier: GPL-2.0
/*
 * Slots: their pinned memory, and what moves into it and out of it. What they are, and who gets which, says
 * session/slots.c.
 *
 * A fill goes the way of a LOAD (load.c). The session counts it in cq.background, so that close waits for it.
 */
#include <linux/mm.h>

#include "op.h"

#define COPY_HERE_MAX	(256U << 10)	/* longer copies are left to pool->io_wq */

static void slot_copy(struct kvctx_op *op)
{
	struct kvctx_session *s = op->session;
	struct kvctx_piece piece = {
		.mem = s->slots_mem, .offset = kvctx_slot_offset(s->slots, op->call.slot) + op->call.offset,
		.length = op->call.length,
	};
	struct kvctx_cursor from, to;

	kvctx_cursor_init(&from, &piece);
	kvctx_cursor_init(&to, op->mem.user);
	kvctx_cursor_copy(&to, &from, op->call.length);
	kvctx_slot_copied(s->slots, &op->call);
}

static void slot_copy_work(struct work_struct *work)
{
	slot_copy(container_of(work, struct kvctx_op, run.work));
}

static void slot_copy_start(struct kvctx_req *load)
{
	struct kvctx_op *op = kvctx_op_of(load);

	if (load->length <= COPY_HERE_MAX)
		slot_copy(op);
	else
		kvctx_op_process(op, slot_copy_work);
}

/* The fill's turn. */
static void slot_fill_go(struct kvctx_op *fill, int err)
{
	if (!err && !kvctx_slot_wanted(fill->session->slots, &fill->call)) {
		kvctx_turn_end(fill);
		err = -ETIME;
	}
	if (!err && unlikely(READ_ONCE(*fill->session->paced)))
		kvctx_pace_charge(&fill->session->pool->pace, &fill->call, fill->io.bytes);
	kvctx_load_go(fill, err);
}

/* The end of a fill, to.done. The session may be gone on return. */
static void slot_fill_done(struct kvctx_op *fill, s32 res, u32 flags)
{
	struct kvctx_session *s = fill->session;

	kvctx_slot_filled(s->slots, &fill->call, res, flags);
	kvctx_cq_background(s, -1);
}

static const struct kvctx_op_kind slot_fill_kind = { .go = slot_fill_go, .finish = kvctx_load_finish };

static struct kvctx_req *slot_fill_new(struct kvctx_slots *t, const struct kvc_load *page, void *batch)
{
	struct kvctx_op *spare = NULL, *fill = kvctx_op_alloc(t->session, &spare);

	if (!fill)
		return NULL;
	fill->load.verify = true;
	fill->load.page = *page;
	fill->to.done = slot_fill_done;
	fill->kind = &slot_fill_kind;
	return &fill->call;
}

static void slot_fill_discard(struct kvctx_req *fill)
{
	kvctx_op_discard(kvctx_op_of(fill));
}

static void slot_fill_begin(struct kvctx_req *req)
{
	struct kvctx_op *fill = kvctx_op_of(req);
	struct kvctx_session *s = fill->session;

	kvctx_cq_background(s, 1);
	percpu_counter_inc(&s->pool->counters.prefetches);
	*fill->mem.user = (struct kvctx_piece){
		.mem = s->slots_mem, .offset = kvctx_slot_offset(s->slots, req->slot), .length = req->length,
	};
	fill->mem.nr = 1;
	atomic_inc(&s->slots_mem->users);
	kvctx_load_move(fill);
}

static bool slot_fill_recall(struct kvctx_req *fill)
{
	struct kvctx_op *op = kvctx_op_of(fill);

	/* it may not have a frame yet */
	return kvctx_turn_take_back(op, op->load.page.member);
}

static void slot_fill_hurry(struct kvctx_req *fill)
{
	kvctx_turn_take(kvctx_op_of(fill));
}

static void slot_hit(struct kvctx_slots *t)
{
	struct kvctx_session *s = t->session;

	percpu_counter_inc(&s->pool->counters.slot_hits);
}

static bool slot_may_read_ahead(struct kvctx_slots *t)
{
	struct kvctx_session *s = t->session;
	struct kvc_pace limit;

	if (likely(!READ_ONCE(*s->paced)))
		return true;
	limit = kvc_tenant_pace(s->pool->core, s->slot);
	return kvctx_pace_has_room(&s->pool->pace, s->slot, &limit);
}

static const struct kvctx_slots_ops slot_ops = {
	.fill = slot_fill_new, .discard = slot_fill_discard, .begin = slot_fill_begin, .recall = slot_fill_recall,
	.hurry = slot_fill_hurry, .copy = slot_copy_start, .hit = slot_hit,
	.may_read_ahead = slot_may_read_ahead,
};

/* PREFETCH, GET */
int kvctx_prefetch_start(struct kvctx_op *op)
{
	struct kvctx_slots *t = op->session->slots;

	return t ? kvctx_slot_start(t, &op->call, NULL) : -EOPNOTSUPP;
}

s32 kvctx_put(struct kvctx_session *s, const struct kvctx_sqe *sqe)
{
	return s->slots ? kvctx_slot_put(s->slots, sqe->lease) : -EOPNOTSUPP;
}

/* LOAD: from a slot, or from the device */
int kvctx_load_start(struct kvctx_op *op)
{
	struct kvctx_slots *t = op->session->slots;
	int err = kvctx_load_begin(op);

	if (err)
		return err;
	if (t && !op->mem.p2p && !(op->call.flags & KVCTX_OP_NO_SLOT) &&
	    kvctx_slot_load(t, &op->call, &op->load.page))
		return 0;
	kvctx_load_move(op);
	return 0;
}

int kvctx_slots_mmap(struct kvctx_session *s, struct vm_area_struct *vma, u64 offset)
{
	if (!s->slots)
		return -EINVAL;
	if (vma->vm_flags & VM_WRITE)
		return -EACCES;
	vm_flags_clear(vma, VM_MAYWRITE);
	return kvctx_mem_mmap(s->slots_mem, vma, offset);
}

/* At SETUP: @nr slots of *@slot_bytes, which is rounded up. */
int kvctx_slots_setup(struct kvctx_session *s, u32 *slot_bytes, u32 nr)
{
	struct kvctx_slots *t = kvctx_slots_new(PAGE_ALIGN(*slot_bytes), nr);

	if (!t)
		return -ENOMEM;
	s->slots_mem = kvctx_mem_alloc((u64)nr * t->bytes, s->tenant);
	if (IS_ERR(s->slots_mem)) {
		os_free(t);
		return PTR_ERR(s->slots_mem);
	}
	t->ops = &slot_ops;
	t->session = s;
	t->core = s->pool->core;
	t->domain = s->domain;
	*slot_bytes = t->bytes;
	s->slots = t;
	return 0;
}

/* No operation and no fill is left. */
void kvctx_slots_free(struct kvctx_session *s)
{
	if (!s->slots)
		return;
	kvctx_mem_free(s->slots_mem);
	os_free(s->slots);
	s->slots = NULL;
}
