// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Staging: an operation on memory that its member does not reach is done again on a slot, a part of
 * the arena, and the caller's function copies between the slot and his memory.
 *
 * A staged operation has a record from kvctx_stage() until its completion is ready, and is in one of
 * these places:
 *   first    queued, or in the kernel, as the caller made it
 *   refused  it completed with -EREMOTEIO: on the list of refused ones, in the order of completion
 *   again    in the kernel, on a slot
 *   here     a LOAD has reached its slot: on the list of those to be copied
 *
 * Lists move in kvctx_stage_step(), which reaping calls make, and synchronous ones that take a slot
 * or give one back (sync.c): what waits for a copy first, since it gives a slot back, then what waits
 * for a slot. No lock is held over a copy or a system call; a record that is on no list meanwhile
 * belongs to the thread that took it.
 *
 * The operation is busy all the time, in the sense of handle.h: the ready list has room for it.
 */
#include <stdlib.h>

#include "handle.h"

struct record {
	struct kvctx_pending pending;	/* first: record_done() gets this */
	struct record *next;
	struct kvctx_sqe sqe;		/* as the caller made it */
	uint32_t slot;
	bool has_slot, again;
	struct kvctx_cqe cqe;		/* what the caller will get */
};

struct list {
	struct record *first, **end;
};

struct kvctx_stage {
	kvctx_copy_fn copy;
	void *copy_ctx;
	uint64_t offset;		/* of slot 0 in the arena */
	uint32_t slot_bytes;
	uint32_t *free_slots, nr_free;
	struct record *records, *free;
	struct list refused, here;
	unsigned int working;		/* threads that have a record in their hands */
};

static void list_init(struct list *l)
{
	l->first = NULL;
	l->end = &l->first;
}

static void list_add(struct list *l, struct record *r)
{
	r->next = NULL;
	*l->end = r;
	l->end = &r->next;
}

static void list_add_front(struct list *l, struct record *r)
{
	r->next = l->first;
	if (!l->first)
		l->end = &r->next;
	l->first = r;
}

/* Of one that is not empty */
static struct record *list_take(struct list *l)
{
	struct record *r = l->first;

	l->first = r->next;
	if (!l->first)
		l->end = &l->first;
	return r;
}

/* Begin and end */

void kvctx_stage_free(struct kvctx *ctx)
{
	struct kvctx_stage *s = ctx->stage;

	if (!s)
		return;
	free(s->free_slots);
	free(s->records);
	free(s);
	ctx->stage = NULL;
}

static int alloc_stage(struct kvctx *ctx, uint32_t slots)
{
	uint32_t i, nr_records = ctx->limit + ctx->queue_len;
	struct kvctx_stage *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	ctx->stage = s;
	list_init(&s->refused);
	list_init(&s->here);
	s->records = calloc(nr_records, sizeof(*s->records));
	s->free_slots = calloc(slots, sizeof(*s->free_slots));
	if (!s->records || !s->free_slots) {
		kvctx_stage_free(ctx);
		return -ENOMEM;
	}
	for (i = 0; i < nr_records; i++) {
		s->records[i].next = s->free;
		s->free = &s->records[i];
	}
	for (i = 0; i < slots; i++)
		s->free_slots[s->nr_free++] = i;
	return 0;
}

int kvctx_stage_init(struct kvctx *ctx, kvctx_copy_fn copy, void *copy_ctx, uint64_t offset,
		     uint32_t slots, uint32_t slot_bytes)
{
	int ret;

	if (!copy || !slots || !slot_bytes || offset > ctx->arena_bytes ||
	    slots > (ctx->arena_bytes - offset) / slot_bytes)
		return -EINVAL;
	if (ctx->stage)
		return -EEXIST;
	ret = alloc_stage(ctx, slots);
	if (ret)
		return ret;
	ctx->stage->copy = copy;
	ctx->stage->copy_ctx = copy_ctx;
	ctx->stage->offset = offset;
	ctx->stage->slot_bytes = slot_bytes;
	return 0;
}

/* Copies */

static uint64_t slot_offset(const struct kvctx_stage *s, uint32_t slot)
{
	return s->offset + (uint64_t)slot * s->slot_bytes;
}

static void *slot_memory(const struct kvctx *ctx, uint32_t slot)
{
	return (uint8_t *)ctx->arena + slot_offset(ctx->stage, slot);
}

/* A positive number may be an error of a runtime that the caller forgot to translate */
static int copy(const struct kvctx_stage *s, void *mem, void *slot, size_t bytes, bool store)
{
	int ret;

	if (store)
		ret = s->copy(s->copy_ctx, slot, mem, bytes, KVCTX_COPY_TO_HOST);
	else
		ret = s->copy(s->copy_ctx, mem, slot, bytes, KVCTX_COPY_FROM_HOST);
	return ret > 0 ? -EIO : ret;
}

static int copy_seg(struct kvctx *ctx, const struct kvctx_seg *seg, void *slot, bool store)
{
	struct kvctx_reg *reg;
	int ret = -EFAULT;

	if (seg->mem == KVCTX_MEM_ARENA) {
		if (seg->offset > ctx->arena_bytes || seg->length > ctx->arena_bytes - seg->offset)
			return -EFAULT;
		if (ctx->rdonly)	/* we cannot write it */
			return -EREMOTEIO;
		return copy(ctx->stage, (uint8_t *)ctx->arena + seg->offset, slot, seg->length, store);
	}
	reg = kvctx_mem_get_id(ctx, seg->mem);
	if (!reg)
		return -EINVAL;
	if (seg->offset <= reg->len && seg->length <= reg->len - seg->offset)
		ret = copy(ctx->stage, (void *)(reg->addr + seg->offset), slot, seg->length, store);
	kvctx_mem_put(ctx, reg);
	return ret;
}

/* All pieces of an operation, between its memory and a slot; and the call that ends the copy */
static int copy_segs(struct kvctx *ctx, const struct kvctx_sqe *sqe, uint32_t slot)
{
	const struct kvctx_seg own = { .offset = sqe->segs, .length = (uint32_t)sqe->length, .mem = sqe->mem };
	const struct kvctx_seg *segs = sqe->nr_segs ? (const struct kvctx_seg *)(uintptr_t)sqe->segs : &own;
	int ret = 0, end, i, nr = sqe->nr_segs ? sqe->nr_segs : 1;
	bool store = sqe->opcode == KVCTX_OP_STORE;
	uint8_t *mem = slot_memory(ctx, slot);
	uint64_t pos = 0;

	for (i = 0; i < nr && !ret; i++) {
		if (segs[i].length > sqe->length - pos)
			return -EMSGSIZE;
		ret = copy_seg(ctx, &segs[i], mem + pos, store);
		pos += segs[i].length;
	}
	/* also after an error: earlier pieces may still be on their way */
	end = copy(ctx->stage, NULL, NULL, 0, store);
	return ret ? ret : end;
}

/* Between @buf, all of a synchronous operation's memory, and a slot; without ctx->lock */
int kvctx_stage_copy(struct kvctx *ctx, const struct kvctx_sqe *sqe, void *buf, uint32_t slot)
{
	bool store = sqe->opcode == KVCTX_OP_STORE;
	int ret = copy(ctx->stage, buf, slot_memory(ctx, slot), sqe->length, store);
	int end = copy(ctx->stage, NULL, NULL, 0, store);

	return ret ? ret : end;
}

/* The same operation on a slot */
struct kvctx_sqe kvctx_stage_on_slot(const struct kvctx *ctx, const struct kvctx_sqe *sqe, uint32_t slot)
{
	struct kvctx_sqe again = *sqe;

	again.mem = KVCTX_MEM_ARENA;
	again.segs = slot_offset(ctx->stage, slot);
	again.nr_segs = 0;
	return again;
}

/* Asynchronous operations */

bool kvctx_stage_working(const struct kvctx *ctx)
{
	return ctx->stage && ctx->stage->working;
}

bool kvctx_stage_waits(const struct kvctx *ctx)
{
	return ctx->stage && (ctx->stage->working || ctx->stage->refused.first || ctx->stage->here.first);
}

static uint32_t take_slot(struct kvctx_stage *s)
{
	return s->free_slots[--s->nr_free];
}

static void free_slot(struct kvctx_stage *s, uint32_t slot)
{
	s->free_slots[s->nr_free++] = slot;
}

/* What the caller gets is in the record's completion */
static void finish_record(struct kvctx *ctx, struct record *r)
{
	struct kvctx_stage *s = ctx->stage;

	kvctx_ready_add(ctx, &r->cqe);
	kvctx_pending_remove(ctx, &r->pending);
	if (r->has_slot)
		free_slot(s, r->slot);
	r->next = s->free;
	s->free = r;
}

static bool record_done(struct kvctx *ctx, struct kvctx_pending *p, const struct kvctx_cqe *cqe)
{
	struct record *r = (struct record *)p;
	struct kvctx_stage *s = ctx->stage;

	r->cqe = *cqe;
	r->cqe.user_data = r->sqe.user_data;
	if (r->again)
		r->cqe.flags |= KVCTX_CQE_STAGED;
	if (!r->again && cqe->res == -EREMOTEIO && r->sqe.length <= s->slot_bytes)
		list_add(&s->refused, r);
	else if (r->again && cqe->res >= 0 && r->sqe.opcode == KVCTX_OP_LOAD)
		list_add(&s->here, r);
	else
		finish_record(ctx, r);
	return true;
}

int kvctx_stage(struct kvctx *ctx, struct kvctx_sqe *sqe)
{
	struct kvctx_stage *s = ctx->stage;
	struct record *r;

	if (!s || (sqe->opcode != KVCTX_OP_STORE && sqe->opcode != KVCTX_OP_LOAD) ||
	    sqe->user_data >= KVCTX_USER_DATA_END)
		return -EINVAL;
	pthread_mutex_lock(&ctx->lock);
	r = s->free;	/* there is one for each operation that can be queued or busy */
	s->free = r->next;
	*r = (struct record){ .sqe = *sqe, .pending.done = record_done };
	kvctx_pending_add(ctx, &r->pending);
	pthread_mutex_unlock(&ctx->lock);
	sqe->user_data = r->pending.tag;
	return 0;
}

static int copy_unlocked(struct kvctx *ctx, const struct record *r)
{
	int ret;

	pthread_mutex_unlock(&ctx->lock);
	ret = copy_segs(ctx, &r->sqe, r->slot);
	pthread_mutex_lock(&ctx->lock);
	return ret;
}

/* One that was refused, given to the kernel again: 1, or -EAGAIN when it has no room for it now */
static int step_refused(struct kvctx *ctx, struct record *r)
{
	struct kvctx_sqe again;
	int ret = 0;

	if (!r->has_slot) {
		r->slot = take_slot(ctx->stage);
		r->has_slot = true;
		if (r->sqe.opcode == KVCTX_OP_STORE)
			ret = copy_unlocked(ctx, r);
	}
	if (!ret) {
		again = kvctx_stage_on_slot(ctx, &r->sqe, r->slot);
		again.user_data = r->pending.tag;
		r->again = true;	/* before, since its completion can come while we are away */
		ret = kvctx_ring_submit(ctx, &again, 1, 0, 0);
		if (ret == -EAGAIN) {
			r->again = false;
			list_add_front(&ctx->stage->refused, r);
			return ret;
		}
	}
	if (ret < 0) {
		r->cqe.res = ret;
		finish_record(ctx, r);
	}
	return 1;
}

/* One that has reached its slot */
static int step_here(struct kvctx *ctx, struct record *r)
{
	int ret = copy_unlocked(ctx, r);

	if (ret)
		r->cqe.res = ret;
	finish_record(ctx, r);
	return 1;
}

/*
 * Bring one staged operation a step further. With ctx->lock held, which is dropped meanwhile.
 * Returns 1 when one was, 0 when none can be, -EAGAIN when the kernel has no room.
 */
int kvctx_stage_step(struct kvctx *ctx)
{
	struct kvctx_stage *s = ctx->stage;
	struct record *r;
	int ret;

	if (!s)
		return 0;
	if (s->here.first)
		r = list_take(&s->here);
	else if (s->refused.first && (s->refused.first->has_slot || s->nr_free))
		r = list_take(&s->refused);
	else
		return 0;
	s->working++;
	ret = r->again ? step_here(ctx, r) : step_refused(ctx, r);
	s->working--;
	kvctx_wake_ready(ctx);
	kvctx_ring_pull(ctx);
	return ret;
}

/* For synchronous calls: slots */

/* For a page of so many bytes. Returns the slot; -EREMOTEIO: slots are shorter; -EAGAIN: none is free */
int64_t kvctx_stage_take_slot(struct kvctx *ctx, uint64_t bytes)
{
	if (bytes > ctx->stage->slot_bytes)
		return -EREMOTEIO;
	return ctx->stage->nr_free ? (int64_t)take_slot(ctx->stage) : -EAGAIN;
}

void kvctx_stage_give_slot(struct kvctx *ctx, uint32_t slot)
{
	free_slot(ctx->stage, slot);
	kvctx_wake_ready(ctx);
	/* who sleeps in the kernel does not see it: what waits for a slot is our business */
	kvctx_stage_step(ctx);
}
