// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Staging: an operation on memory that its member or the server does not reach is done on a slot, a part of the arena
 * or of a registration, and a function copies between the slot and the caller's memory.
 *
 * An operation that may be staged has a struct kvctx_staged, from kvctx_stage() or of a batch, until its end is told to
 * @done, and is in one of these places:
 *   first    queued, or in the kernel, as the caller made it
 *   waiting  for a slot: it completed with -EREMOTEIO, or its memory is in no registration. On a list, in the order of
 *	      arrival
 *   again    in the kernel, on a slot
 *   here     a LOAD has reached its slot: on the list of those to be copied
 *
 * Lists move in kvctx_stage_step(), which reaping calls make, those of batches, and synchronous ones that take a slot
 * or give one back (sync.c): what waits for a copy first, since it gives a slot back, then what waits
 * for a slot. No operation needs a second slot, so all get theirs in turn, however many wait. No lock is held over a
 * copy or a system call; one that is on no list meanwhile belongs to the thread that took it.
 *
 * Slots may be moved to other memory while none is taken and nobody waits for one.
 *
 * Asynchronous operations are busy all the time, in the sense of handle.h: the ready list has room for them.
 */
#include <stdlib.h>

#include "copy.h"
#include "handle.h"

/* An operation of kvctx_stage() */
struct record {
	struct kvctx_pending pending;	/* first: record_seen() gets this */
	struct kvctx_staged staged;
	struct kvctx_sqe sqe;		/* as the caller made it */
	struct record *next;
};

struct list {
	struct kvctx_staged *first, **end;
};

struct kvctx_stage {
	kvctx_copy_fn copy;		/* NULL: kvctx_copy_page() */
	void *copy_ctx;
	uint8_t *memory;		/* of slot 0 */
	uint32_t mem;			/* that it is in, and where */
	uint64_t offset;
	struct kvctx_reg *reg;		/* held; NULL: the arena */
	uint32_t slot_bytes, nr_slots;
	uint32_t *free_slots, nr_free;
	struct record *records, *free;
	struct list waiting, here;
	unsigned int working;		/* threads that have an operation in their hands */
};

static void list_init(struct list *l)
{
	l->first = NULL;
	l->end = &l->first;
}

static void list_add(struct list *l, struct kvctx_staged *st)
{
	st->next = NULL;
	*l->end = st;
	l->end = &st->next;
}

static void list_add_front(struct list *l, struct kvctx_staged *st)
{
	st->next = l->first;
	if (!l->first)
		l->end = &st->next;
	l->first = st;
}

/* Of one that is not empty */
static struct kvctx_staged *list_take(struct list *l)
{
	struct kvctx_staged *st = l->first;

	l->first = st->next;
	if (!l->first)
		l->end = &l->first;
	return st;
}

/* Begin and end */

static void stage_free(struct kvctx_stage *s)
{
	if (!s)
		return;
	free(s->free_slots);
	free(s->records);
	free(s);
}

void kvctx_stage_free(struct kvctx *ctx)
{
	stage_free(ctx->stage);
	ctx->stage = NULL;
}

static struct kvctx_stage *stage_alloc(const struct kvctx *ctx)
{
	uint32_t i, nr_records = ctx->limit + ctx->queue_len;
	struct kvctx_stage *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	list_init(&s->waiting);
	list_init(&s->here);
	s->records = calloc(nr_records, sizeof(*s->records));
	if (!s->records) {
		stage_free(s);
		return NULL;
	}
	for (i = 0; i < nr_records; i++) {
		s->records[i].next = s->free;
		s->free = &s->records[i];
	}
	return s;
}

/* What is constant while a slot is taken. With ctx->lock held; @to has the new fields, and gets the old ones */
static int stage_swap(struct kvctx *ctx, struct kvctx_stage *to)
{
	struct kvctx_stage *s = ctx->stage, old = *s;

	if (s->nr_free != s->nr_slots || s->waiting.first)
		return -EBUSY;
	to->records = s->records;
	to->free = s->free;
	to->working = s->working;
	*s = *to;
	list_init(&s->waiting);
	list_init(&s->here);
	*to = old;
	return 0;
}

/* Slots there from now on. @reg: held for them; NULL: they are in the arena. Takes over @reg, also when it fails */
static int stage_set(struct kvctx *ctx, struct kvctx_stage *to, struct kvctx_reg *reg, uint32_t slots)
{
	struct kvctx_stage *fresh = NULL;
	int ret = -ENOMEM;
	uint32_t i;

	to->reg = reg;
	to->free_slots = calloc(slots + 1UL, sizeof(*to->free_slots));
	for (i = 0; to->free_slots && i < slots; i++)
		to->free_slots[to->nr_free++] = i;
	to->nr_slots = slots;
	if (!ctx->stage)
		fresh = stage_alloc(ctx);
	pthread_mutex_lock(&ctx->lock);
	if (!ctx->stage) {
		ctx->stage = fresh;
		fresh = NULL;
	}
	if (ctx->stage && to->free_slots)
		ret = stage_swap(ctx, to);
	pthread_mutex_unlock(&ctx->lock);
	stage_free(fresh);
	free(to->free_slots);
	if (to->reg)
		kvctx_mem_put(ctx, to->reg);
	return ret;
}

int kvctx_stage_init_at(struct kvctx *ctx, kvctx_copy_fn copy, void *copy_ctx, void *memory, uint32_t slots,
			uint32_t slot_bytes)
{
	struct kvctx_stage to = { .copy = copy, .copy_ctx = copy_ctx, .memory = memory, .slot_bytes = slot_bytes };
	size_t len = (size_t)slots * slot_bytes;
	struct kvctx_reg *reg;

	if (!slots != !slot_bytes)
		return -EINVAL;
	if (!slots)
		return stage_set(ctx, &to, NULL, 0);
	reg = kvctx_mem_get(ctx, memory, len);
	if (reg) {
		to.mem = reg->id;
		to.offset = (uintptr_t)memory - reg->addr;
	} else if (kvctx_mem_find(ctx, memory, len, &to.mem, &to.offset) || to.mem != KVCTX_MEM_ARENA) {
		return -EINVAL;
	}
	return stage_set(ctx, &to, reg, slots);
}

int kvctx_stage_init(struct kvctx *ctx, kvctx_copy_fn copy, void *copy_ctx, uint64_t offset,
		     uint32_t slots, uint32_t slot_bytes)
{
	if (!copy || !slots || !slot_bytes)
		return -EINVAL;
	if (ctx->stage)
		return -EEXIST;
	return kvctx_stage_init_at(ctx, copy, copy_ctx, (uint8_t *)ctx->arena + offset, slots, slot_bytes);
}

/* Copies */

static void *slot_memory(const struct kvctx *ctx, uint32_t slot)
{
	return ctx->stage->memory + (uint64_t)slot * ctx->stage->slot_bytes;
}

/* A positive number may be an error of a runtime that the caller forgot to translate */
static int copy(const struct kvctx_stage *s, void *mem, void *slot, size_t bytes, bool store)
{
	int ret;

	if (!s->copy) {
		if (bytes)
			kvctx_copy_page(store ? slot : mem, store ? mem : slot, bytes);
		return 0;
	}
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

	if (seg->mem == KVCTX_MEM_ADDRESS)
		return copy(ctx->stage, (void *)(uintptr_t)seg->offset, slot, seg->length, store);
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

	if (store && ctx->rdonly)
		return -EACCES;
	for (i = 0; i < nr && !ret; i++) {
		if (!segs[i].length)
			ret = -EINVAL;	/* to a copy function it is the end */
		else if (segs[i].length > sqe->length - pos)
			ret = -EMSGSIZE;
		else
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

	again.mem = ctx->stage->mem;
	again.segs = ctx->stage->offset + (uint64_t)slot * ctx->stage->slot_bytes;
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
	return ctx->stage && (ctx->stage->working || ctx->stage->waiting.first || ctx->stage->here.first);
}

/* Whether a page of so many bytes can be staged; what is longer than any page is refused in its turn */
bool kvctx_stage_fits(const struct kvctx *ctx, uint64_t bytes)
{
	return ctx->stage && (bytes <= ctx->stage->slot_bytes || bytes > ctx->info.page_len_max);
}

static uint32_t take_slot(struct kvctx_stage *s)
{
	return s->free_slots[--s->nr_free];
}

static void free_slot(struct kvctx_stage *s, uint32_t slot)
{
	s->free_slots[s->nr_free++] = slot;
}

/* What the caller gets is in its completion */
static void finish(struct kvctx *ctx, struct kvctx_staged *st)
{
	if (st->has_slot)
		free_slot(ctx->stage, st->slot);
	st->done(ctx, st);
}

/* The completion of an operation that may be staged */
void kvctx_stage_seen(struct kvctx *ctx, struct kvctx_staged *st, const struct kvctx_cqe *cqe)
{
	struct kvctx_stage *s = ctx->stage;

	st->cqe.res = cqe->res;
	st->cqe.flags = cqe->flags;
	if (st->again)
		st->cqe.flags |= KVCTX_CQE_STAGED;
	if (!st->again && cqe->res == -EREMOTEIO && st->sqe->length <= s->slot_bytes)
		list_add(&s->waiting, st);
	else if (st->again && cqe->res >= 0 && st->sqe->opcode == KVCTX_OP_LOAD)
		list_add(&s->here, st);
	else
		finish(ctx, st);
}

/* To be done on a slot at once: kvctx_stage_step() begins it */
void kvctx_stage_add(struct kvctx *ctx, struct kvctx_staged *st)
{
	list_add(&ctx->stage->waiting, st);
}

static bool record_seen(struct kvctx *ctx, struct kvctx_pending *p, const struct kvctx_cqe *cqe)
{
	kvctx_stage_seen(ctx, &((struct record *)p)->staged, cqe);
	return true;
}

static void record_done(struct kvctx *ctx, struct kvctx_staged *st)
{
	struct record *r = (struct record *)((uint8_t *)st - offsetof(struct record, staged));

	kvctx_ready_add(ctx, &st->cqe);
	kvctx_pending_remove(ctx, &r->pending);
	r->next = ctx->stage->free;
	ctx->stage->free = r;
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
	*r = (struct record){ .sqe = *sqe, .pending.done = record_seen };
	kvctx_pending_add(ctx, &r->pending);
	r->staged = (struct kvctx_staged){
		.sqe = &r->sqe, .tag = r->pending.tag, .cqe.user_data = sqe->user_data, .done = record_done,
	};
	pthread_mutex_unlock(&ctx->lock);
	sqe->user_data = r->pending.tag;
	return 0;
}

static int copy_unlocked(struct kvctx *ctx, const struct kvctx_staged *st)
{
	int ret;

	pthread_mutex_unlock(&ctx->lock);
	ret = copy_segs(ctx, st->sqe, st->slot);
	pthread_mutex_lock(&ctx->lock);
	return ret;
}

/* One that waited, given to the kernel on a slot: 1, or -EAGAIN when it has no room for it now */
static int step_waiting(struct kvctx *ctx, struct kvctx_staged *st)
{
	bool store = st->sqe->opcode == KVCTX_OP_STORE;
	struct kvctx_sqe again;
	int ret = 0;

	if (st->sqe->length > ctx->info.page_len_max) {
		ret = store ? -E2BIG : -ERANGE;
	} else if (!st->has_slot) {
		st->slot = take_slot(ctx->stage);
		st->has_slot = true;
		if (store)
			ret = copy_unlocked(ctx, st);
	}
	if (!ret) {
		again = kvctx_stage_on_slot(ctx, st->sqe, st->slot);
		again.user_data = st->tag;
		st->again = true;	/* before, since its completion can come while we are away */
		ret = kvctx_ring_submit(ctx, &again, 1, 0, 0);
		if (ret == -EAGAIN) {
			st->again = false;
			list_add_front(&ctx->stage->waiting, st);
			return ret;
		}
	}
	if (ret < 0) {
		st->cqe.res = ret;
		finish(ctx, st);
	}
	return 1;
}

/* One that has reached its slot */
static int step_here(struct kvctx *ctx, struct kvctx_staged *st)
{
	int ret = copy_unlocked(ctx, st);

	if (ret)
		st->cqe.res = ret;
	finish(ctx, st);
	return 1;
}

/*
 * Bring one staged operation a step further. With ctx->lock held, which is dropped meanwhile.
 * Returns 1 when one was, 0 when none can be, -EAGAIN when the kernel has no room.
 */
int kvctx_stage_step(struct kvctx *ctx)
{
	struct kvctx_stage *s = ctx->stage;
	struct kvctx_staged *st;
	int ret;

	if (!s)
		return 0;
	if (s->here.first)
		st = list_take(&s->here);
	else if (s->waiting.first && (s->waiting.first->has_slot || s->nr_free))
		st = list_take(&s->waiting);
	else
		return 0;
	s->working++;
	ret = st->again ? step_here(ctx, st) : step_waiting(ctx, st);
	s->working--;
	kvctx_wake_ready(ctx);
	kvctx_ring_pull(ctx);
	return ret;
}

/* End those that wait for a slot and whose completions would have this user_data. How many; with ctx->lock held */
int kvctx_stage_cancel(struct kvctx *ctx, uint64_t user_data)
{
	struct kvctx_stage *s = ctx->stage;
	struct list all;
	int n = 0;

	if (!s || !s->waiting.first)
		return 0;
	all = s->waiting;
	list_init(&s->waiting);
	while (all.first) {
		struct kvctx_staged *st = list_take(&all);

		if (st->cqe.user_data != user_data) {
			list_add(&s->waiting, st);
			continue;
		}
		st->cqe.res = -ECANCELED;
		finish(ctx, st);
		n++;
	}
	kvctx_wake_ready(ctx);
	return n;
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
