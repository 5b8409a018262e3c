// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Slots: their memory, and what moves into it and out of it. What they are, and who gets which, says
 * kmod/session/slots.c.
 *
 * A fill goes the way of a LOAD (load.c). The session counts it in cq.background, so that close waits for it.
 */
#include <unistd.h>

#include "session.h"

static u8 *slot_addr(const struct kve_session *s, const struct kvctx_slot *slot)
{
	return s->slots_mem->addr + kvctx_slot_offset(s->slots, slot);
}

static void slot_copy(struct kvctx_req *load)
{
	struct kve_op *op = kve_op_of(load);
	struct kve_session *s = op->session;

	kve_vec_scatter(op->mem.vec, slot_addr(s, load->slot) + load->offset, op->mem.nr);
	kvctx_slot_copied(s->slots, load);
}

/* The fill's turn. */
static void slot_fill_go(struct kve_op *fill, int err)
{
	if (!err && !kvctx_slot_wanted(fill->session->slots, &fill->call)) {
		kve_turn_end(fill);
		err = -ETIME;
	}
	if (!err && READ_ONCE(*kvc_tenant_paced(fill->session->pool->core, fill->call.tenant)))
		kvctx_pace_charge(&fill->session->waits->pace, &fill->call, fill->io.bytes);
	kve_load_go(fill, err);
}

/* The end of a fill. The session may be gone on return. */
static void slot_fill_done(struct kve_op *fill, s32 res, u32 flags)
{
	struct kve_session *s = fill->session;

	kvctx_slot_filled(s->slots, &fill->call, res, flags);
	kve_cq_background(s, -1);
}

static const struct kve_op_kind slot_fill_kind = { .go = slot_fill_go, .finish = kve_load_finish };

static struct kvctx_req *slot_fill(struct kvctx_slots *t, const struct kvc_load *page, void *batch)
{
	struct kve_op *fill = kve_op_alloc(t->session);

	if (!fill)
		return NULL;
	fill->batch = batch;
	fill->load.verify = true;
	fill->load.page = *page;
	fill->done = slot_fill_done;
	fill->kind = &slot_fill_kind;
	return &fill->call;
}

static void slot_fill_discard(struct kvctx_req *fill)
{
	kve_op_discard(kve_op_of(fill));
}

static void slot_fill_begin(struct kvctx_req *req)
{
	struct kve_op *fill = kve_op_of(req);
	struct kve_session *s = fill->session;
	int err;

	kve_cq_background(s, 1);
	os_atomic64_add(&s->pool->counters.prefetches, 1);
	*fill->mem.vec = (struct iovec){ .iov_base = slot_addr(s, req->slot), .iov_len = req->length };
	fill->mem.nr = 1;
	fill->mem.buffer = kve_mem_buffer(s->slots_mem, fill->mem.vec->iov_base, req->length);
	err = kve_load_move(fill);
	if (err)
		kve_op_complete(fill, err, 0);
}

static bool slot_fill_recall(struct kvctx_req *fill)
{
	struct kve_op *op = kve_op_of(fill);

	/* it may not have a frame yet */
	return kve_turn_take_back(op, op->load.page.member);
}

static void slot_fill_hurry(struct kvctx_req *fill)
{
	kve_turn_take(kve_op_of(fill));
}

static void slot_hit(struct kvctx_slots *t)
{
	struct kve_session *s = t->session;

	os_atomic64_add(&s->pool->counters.slot_hits, 1);
}

static bool slot_may_read_ahead(struct kvctx_slots *t)
{
	struct kve_session *s = t->session;
	struct kvc_pace limit = kvc_tenant_pace(s->pool->core, s->slot);

	return kvctx_pace_has_room(&s->waits->pace, s->slot, &limit);
}

static const struct kvctx_slots_ops slot_ops = {
	.fill = slot_fill, .discard = slot_fill_discard, .begin = slot_fill_begin, .recall = slot_fill_recall,
	.hurry = slot_fill_hurry, .copy = slot_copy, .hit = slot_hit,
	.may_read_ahead = slot_may_read_ahead,
};

/* PREFETCH, GET */
int kve_prefetch_start(struct kve_op *op)
{
	struct kvctx_slots *t = op->session->slots;

	return t ? kvctx_slot_start(t, &op->call, kve_op_batch(op)) : -EOPNOTSUPP;
}

s32 kve_put(struct kve_session *s, const struct kvctx_sqe *sqe)
{
	return s->slots ? kvctx_slot_put(s->slots, sqe->lease) : -EOPNOTSUPP;
}

static int slot_load_start(struct kve_op *op)
{
	struct kvctx_slots *t = op->session->slots;
	int err = kve_load_begin(op);

	if (err)
		return err;
	if (t && !(op->call.flags & KVCTX_OP_NO_SLOT) && kvctx_slot_load(t, &op->call, &op->load.page))
		return 0;
	return kve_load_move(op);
}

/* LOAD: from a slot, or from the device. One that waited for its pace comes here from another thread. */
int kve_load_start(struct kve_op *op)
{
	struct kve_session *s = op->session;
	int err;

	if (kve_op_batch(op))
		return slot_load_start(op);
	if (!kve_touch(s))
		return -ECANCELED;
	err = slot_load_start(op);
	kve_untouch(s);
	return err;
}

/* NULL: there are none. */
const struct kve_map *kve_slots_map(const struct kve_session *s)
{
	return s->slots ? &s->slots_map : NULL;
}

/* Also of what a failed setup left */
void kve_slots_free(struct kve_session *s)
{
	kve_mem_free(s, s->slots_mem);
	kve_map_free(&s->slots_map);
	os_free(s->slots);
	s->slots_mem = NULL;
	s->slots = NULL;
}

/* At SETUP: @nr slots of *@slot_bytes, which is rounded up. */
int kve_slots_setup(struct kve_session *s, u32 *slot_bytes, u32 nr)
{
	u32 page = (u32)sysconf(_SC_PAGESIZE), bytes = (*slot_bytes + page - 1) & ~(page - 1);
	struct kvctx_slots *t = kvctx_slots_new(bytes, nr);

	s->slots = t;
	if (t && !kve_map_create(&s->slots_map, (size_t)nr * bytes, true))
		s->slots_mem = kve_mem_of_map(s, &s->slots_map);
	if (!t || !s->slots_mem) {
		kve_slots_free(s);
		return -ENOMEM;
	}
	t->ops = &slot_ops;
	t->session = s;
	t->core = s->pool->core;
	t->domain = s->domain;
	*slot_bytes = bytes;
	return 0;
}
