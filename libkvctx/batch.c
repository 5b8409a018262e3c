// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Batches: many pages in one call, one completion behind the last of them.
 *
 * Every operation of a batch has a user_data of the library's own, which says the batch's place in ctx->batches and the
 * page, so that its completion goes to the result without a search. Operations of a batch are busy like those of the
 * queue; all but one stop being so when they complete, and that one is the batch's own completion, until it is taken.
 *
 * A page is away when some of its memory is in no registration: it is not submitted with the others but given to
 * stage.c, which does it on a slot. Its pieces then have addresses instead of offsets. What stage.c holds of a batch is
 * part of it, so there is room for all however many there are.
 */
#include <stdlib.h>

#include "handle.h"

#define BATCH_MAX		(1U << BATCH_SHIFT)	/* as many pages as their numbers have room for */
#define BATCH_SHIFT		16
#define BATCH_PLACES		(1U << 15)		/* as their names have room for */
#define BATCH_SIZE_FIRST	(offsetof(struct kvctx_batch, user_data) + sizeof(uint64_t))

/* Somebody who waits for a batch */
struct batch_run {
	struct kvctx_waiter waiter;
	bool done;
	uint32_t good;
};

struct kvctx_batch_work {
	struct kvctx_batch b;		/* a copy; its arrays are the caller's own */
	uint32_t place;			/* in ctx->batches */
	uint32_t left;			/* operations without a result, and who submits them */
	uint32_t busy;			/* that it counts for */
	uint32_t good;
	uint32_t sent;			/* operations that the server has, or has refused */
	struct batch_run *run;		/* NULL: it is told by a completion */
	struct kvctx_seg *segs;		/* of pages with many pieces */
	struct kvctx_staged *staged;	/* of each page; NULL: none may be */
	struct kvctx_sqe sqes[];
};

/* The batch as this version knows it, from that of an earlier or later one */
static int batch_read(const struct kvctx_batch *from, struct kvctx_batch *b)
{
	const uint8_t *bytes = (const uint8_t *)from;
	size_t i;

	if (from->size < BATCH_SIZE_FIRST)
		return -EINVAL;
	for (i = sizeof(*b); i < from->size; i++)
		if (bytes[i])
			return -E2BIG;
	memset(b, 0, sizeof(*b));
	memcpy(b, from, from->size < sizeof(*b) ? from->size : sizeof(*b));
	return 0;
}

static int batch_check(const struct kvctx_batch *b, uint32_t most)
{
	if (b->flags & ~KVCTX_BATCH_STAGE || b->user_data >= KVCTX_USER_DATA_END)
		return -EINVAL;
	if (b->offset && b->opcode != KVCTX_OP_LOAD)
		return -EINVAL;
	if (b->opcode != KVCTX_OP_STORE && b->opcode != KVCTX_OP_LOAD)
		return -EINVAL;
	if (!b->nr || b->reserved || b->reserved2)
		return -EINVAL;
	return b->nr > most || b->nr > BATCH_MAX ? -E2BIG : 0;
}

static uint64_t batch_pieces(const struct kvctx_batch *b)
{
	uint64_t n = 0;
	uint32_t i;

	for (i = 0; b->pieces && i < b->nr; i++)
		n += b->pieces[i];
	return n;
}

static struct kvctx_batch_work *batch_alloc(const struct kvctx_batch *b, struct batch_run *run)
{
	uint64_t pieces = batch_pieces(b), staged = b->flags & KVCTX_BATCH_STAGE ? b->nr : 0;
	struct kvctx_batch_work *w;

	if (pieces > SIZE_MAX / 2 / sizeof(*w->segs))
		return NULL;
	w = malloc(sizeof(*w) + b->nr * sizeof(*w->sqes) + staged * sizeof(*w->staged) + pieces * sizeof(*w->segs));
	if (!w)
		return NULL;
	w->b = *b;
	w->left = b->nr + 1;
	w->busy = run ? 0 : b->nr;
	w->good = 0;
	w->sent = 0;
	w->run = run;
	w->staged = (struct kvctx_staged *)(w->sqes + b->nr);
	w->segs = (struct kvctx_seg *)(w->staged + staged);
	if (!staged)
		w->staged = NULL;
	return w;
}

static bool batch_away(const struct kvctx_batch_work *w, uint32_t page)
{
	return w->sqes[page].mem == KVCTX_MEM_ADDRESS;
}

/* The pieces of page @i, which begin with piece @at, in @segs; returns their bytes, or -EFAULT. Locked. */
static int64_t batch_segs(struct kvctx *ctx, const struct kvctx_batch *b, uint32_t i, uint64_t at,
			  struct kvctx_seg *segs, bool *away)
{
	uint32_t nr = b->pieces ? b->pieces[i] : 1, n;
	int64_t sum = 0;
	uint64_t offset;

	for (n = 0; n < nr; n++) {
		segs[n].mem = KVCTX_MEM_ADDRESS;
		if (kvctx_mem_locate(ctx, (uintptr_t)b->addrs[at + n], b->lens[at + n], &segs[n].mem, &offset))
			*away = true;
		else
			segs[n].offset = offset;
		segs[n].length = b->lens[at + n];
		sum += b->lens[at + n];
	}
	/* while it waits, registrations may go and others get their numbers; the arena may be one that we cannot write */
	for (n = 0; *away && n < nr; n++) {
		if (segs[n].mem == KVCTX_MEM_ARENA)
			continue;
		segs[n].mem = KVCTX_MEM_ADDRESS;
		segs[n].offset = (uintptr_t)b->addrs[at + n];
	}
	return *away && !(b->flags & KVCTX_BATCH_STAGE && kvctx_stage_fits(ctx, (uint64_t)sum)) ? -EFAULT : sum;
}

static void batch_staged_done(struct kvctx *ctx, struct kvctx_staged *st);

/* 0, or -EFAULT: some memory is in no registration, and cannot be staged. Locked. */
static int batch_fill(struct kvctx *ctx, struct kvctx_batch_work *w)
{
	const struct kvctx_batch *b = &w->b;
	struct kvctx_seg *segs = w->segs, one;
	uint64_t at = 0;
	uint32_t i, nr;

	for (i = 0; i < b->nr; i++) {
		struct kvctx_sqe *sqe = &w->sqes[i];
		bool away = false;
		int64_t length;

		nr = b->pieces ? b->pieces[i] : 1;
		if (nr > UINT16_MAX)
			return -E2BIG;
		length = batch_segs(ctx, b, i, at, nr == 1 ? &one : segs, &away);
		if (length < 0)
			return (int)length;
		memset(sqe, 0, sizeof(*sqe));
		sqe->opcode = b->opcode;
		sqe->flags = b->op_flags;
		sqe->prio = b->prio;
		sqe->user_data = KVCTX_BATCH_TAG | (uint64_t)w->place << BATCH_SHIFT | i;
		sqe->key = b->keys[i];
		sqe->offset = b->offset;
		sqe->length = (uint64_t)length;
		sqe->timeout_ns = ctx->timeout_ns;
		if (b->opcode == KVCTX_OP_STORE && b->depth)
			sqe->depth = b->depth + i;
		if (nr == 1) {
			sqe->mem = one.mem;
			sqe->segs = one.offset;
		} else {
			sqe->segs = (uintptr_t)segs;
			sqe->nr_segs = (uint16_t)nr;
			segs += nr;
		}
		if (away)
			sqe->mem = KVCTX_MEM_ADDRESS;
		if (w->staged)
			w->staged[i] = (struct kvctx_staged){
				.sqe = sqe, .tag = sqe->user_data, .done = batch_staged_done,
				.cqe.user_data = w->run ? sqe->user_data : b->user_data,
			};
		at += nr;
	}
	return 0;
}

/* A place in ctx->batches: 0, -ENOMEM, -EAGAIN. Locked. */
static int batch_enter(struct kvctx *ctx, struct kvctx_batch_work *w)
{
	uint32_t i, room;
	void *more;

	for (i = 0; i < ctx->nr_batches && ctx->batches[i]; i++)
		;
	if (i == BATCH_PLACES)
		return -EAGAIN;
	if (i == ctx->nr_batches) {
		room = ctx->nr_batches ? 2 * ctx->nr_batches : 4;
		more = realloc(ctx->batches, room * sizeof(*ctx->batches));
		if (!more)
			return -ENOMEM;
		ctx->batches = more;
		memset(ctx->batches + i, 0, (room - i) * sizeof(*ctx->batches));
		ctx->nr_batches = room;
	}
	ctx->batches[i] = w;
	w->place = i;
	return 0;
}

/* One result, or the submitter, less. Whether those who wait on the ready list have to look. Locked. */
static bool batch_put(struct kvctx *ctx, struct kvctx_batch_work *w)
{
	struct kvctx_cqe cqe = { .user_data = w->b.user_data, .res = (int32_t)w->good };
	struct batch_run *run = w->run;

	if (--w->left)
		return false;
	ctx->batches[w->place] = NULL;
	ctx->nr_pending--;
	free(w);
	if (!run) {
		kvctx_ready_add(ctx, &cqe);
		return true;
	}
	run->good = (uint32_t)cqe.res;
	run->done = true;
	if (run->waiter.listed)
		pthread_cond_signal(&run->waiter.cond);
	return false;
}

static bool batch_result(struct kvctx *ctx, struct kvctx_batch_work *w, uint32_t page, int32_t res, uint32_t flags)
{
	w->b.res[page] = res;
	if (w->b.cqe_flags)
		w->b.cqe_flags[page] = flags;
	w->good += res >= 0;
	/* the last one stays busy until the batch's completion is taken */
	if (w->busy > 1) {
		w->busy--;
		ctx->busy--;
	}
	return batch_put(ctx, w);
}

static void batch_staged_done(struct kvctx *ctx, struct kvctx_staged *st)
{
	uint32_t at = (uint32_t)(st->tag - KVCTX_BATCH_TAG);

	batch_result(ctx, ctx->batches[at >> BATCH_SHIFT], at & (BATCH_MAX - 1), st->cqe.res, st->cqe.flags);
}

static bool batch_done(struct kvctx *ctx, const struct kvctx_cqe *cqe)
{
	uint32_t at = (uint32_t)(cqe->user_data - KVCTX_BATCH_TAG), place = at >> BATCH_SHIFT;
	struct kvctx_batch_work *w;

	/* a program that does not keep below KVCTX_USER_DATA_END gets its own back */
	if (place >= ctx->nr_batches || !ctx->batches[place]) {
		kvctx_ready_add(ctx, cqe);
		return true;
	}
	w = ctx->batches[place];
	if (!w->staged)
		return batch_result(ctx, w, at & (BATCH_MAX - 1), cqe->res, cqe->flags);
	kvctx_stage_seen(ctx, &w->staged[at & (BATCH_MAX - 1)], cqe);
	return true;
}

/* Who waits for it may sleep in the call that submits, if nobody else needs the ring meanwhile. Locked. */
static uint32_t batch_sleep(const struct kvctx *ctx, const struct kvctx_batch_work *w, uint32_t nr)
{
	bool alone = !ctx->sleepers && !ctx->busy && ctx->nr_pending == 1 && nr == w->b.nr;

	return w->run && alone && nr <= ctx->entries - ctx->limit ? nr : 0;
}

/* From @at on, so many pages that are not away; no more than one submission takes */
static uint32_t batch_direct(const struct kvctx_batch_work *w, uint32_t at, uint32_t max)
{
	uint32_t nr = w->b.nr - at < max ? w->b.nr - at : max, i;

	for (i = 0; w->staged && i < nr; i++)
		if (batch_away(w, at + i))
			return i;
	return nr;
}

/* What the kernel does not take has its error for a result. Locked; dropped meanwhile. */
static void batch_send(struct kvctx *ctx, struct kvctx_batch_work *w)
{
	uint32_t max = ctx->info.batch_max, at = 0, nr;
	int ret;

	while (at < w->b.nr) {
		nr = batch_direct(w, at, max);
		if (!nr) {
			at++;
			continue;
		}
		ret = kvctx_ring_submit(ctx, w->sqes + at, nr, batch_sleep(ctx, w, nr), KVCTX_TIMEOUT_NONE);
		if (ret == -EAGAIN)
			kvctx_wait_room(ctx);
		else if (ret >= 0)
			at += (uint32_t)ret;
		for (; ret < 0 && ret != -EAGAIN && at < w->b.nr; at++)
			batch_result(ctx, w, at, ret, 0);
		w->sent = at;
	}
	while (w->staged && kvctx_stage_step(ctx) > 0)
		;
	if (batch_put(ctx, w))
		kvctx_wake_ready(ctx);
}

static bool batch_sqe_uses(const struct kvctx_sqe *sqe, uint32_t mem)
{
	const struct kvctx_seg *segs = (const struct kvctx_seg *)(uintptr_t)sqe->segs;
	uint32_t i;

	for (i = 0; i < sqe->nr_segs; i++)
		if (segs[i].mem == mem)
			return true;
	return !sqe->nr_segs && sqe->mem == mem;
}

/* Whether an operation names this registration that the server may not have, and cannot keep it for. Locked. */
static bool batch_uses(const struct kvctx *ctx, uint32_t mem)
{
	const struct kvctx_batch_work *w;
	uint32_t place, i;

	for (place = 0; place < ctx->nr_batches; place++) {
		w = ctx->batches[place];
		for (i = w && !w->staged ? w->sent : 0; w && i < w->b.nr; i++)
			if (batch_sqe_uses(&w->sqes[i], mem))
				return true;
	}
	return false;
}

/* Everything up to the results. 0, or why nothing was done. */
static int batch_start(struct kvctx *ctx, struct kvctx_batch_work *w)
{
	int ret = batch_enter(ctx, w);
	uint32_t i;

	if (ret)
		return ret;
	if (!ctx->stage)
		w->staged = NULL;
	ret = batch_fill(ctx, w);
	if (!ret && w->busy > ctx->limit - ctx->busy)
		ret = -EAGAIN;
	if (ret) {
		ctx->batches[w->place] = NULL;
		return ret;
	}
	ctx->batch_done = batch_done;
	ctx->batch_uses = batch_uses;
	ctx->nr_pending++;
	ctx->busy += w->busy;
	for (i = 0; w->staged && i < w->b.nr; i++)
		if (batch_away(w, i))
			kvctx_stage_add(ctx, &w->staged[i]);
	batch_send(ctx, w);
	return 0;
}

static int batch_go(struct kvctx *ctx, const struct kvctx_batch *from, struct batch_run *run)
{
	struct kvctx_batch_work *w;
	struct kvctx_batch b;
	int ret;

	ret = batch_read(from, &b);
	if (!ret)
		ret = batch_check(&b, run ? BATCH_MAX : ctx->limit);
	if (ret)
		return ret;
	w = batch_alloc(&b, run);
	if (!w)
		return -ENOMEM;
	if (run)
		run->waiter.wants_ready = b.flags & KVCTX_BATCH_STAGE;
	pthread_mutex_lock(&ctx->lock);
	ret = batch_start(ctx, w);
	if (!ret && run)
		kvctx_wait_done(ctx, &run->waiter, &run->done);
	pthread_mutex_unlock(&ctx->lock);
	if (ret)
		free(w);
	return ret;
}

int kvctx_batch_submit(struct kvctx *ctx, const struct kvctx_batch *b)
{
	return batch_go(ctx, b, NULL);
}

int64_t kvctx_batch_run(struct kvctx *ctx, const struct kvctx_batch *b)
{
	struct batch_run run = { .done = false };
	int ret = batch_go(ctx, b, &run);

	return ret ? ret : (int64_t)run.good;
}

static int cancel(struct kvctx *ctx, uint64_t user_data)
{
	struct kvctx_sqe sqe = { 0 };

	kvctx_prep_cancel(&sqe, user_data);
	return (int)kvctx_call(ctx, &sqe, NULL);
}

/* Each page under its own name, while the batch is kept from ending: its place might be another's. Locked. */
static int batch_cancel(struct kvctx *ctx, struct kvctx_batch_work *w)
{
	uint64_t tag = KVCTX_BATCH_TAG | (uint64_t)w->place << BATCH_SHIFT;
	int n = 0, ret = 0;
	uint32_t i;

	w->left++;
	pthread_mutex_unlock(&ctx->lock);
	for (i = 0; i < w->b.nr && ret >= 0; i++) {
		ret = cancel(ctx, tag | i);
		n += ret > 0 ? ret : 0;
	}
	pthread_mutex_lock(&ctx->lock);
	if (batch_put(ctx, w))
		kvctx_wake_ready(ctx);
	return n;
}

int kvctx_cancel(struct kvctx *ctx, uint64_t user_data)
{
	struct kvctx_batch_work *w;
	uint32_t place;
	int n, ret;

	pthread_mutex_lock(&ctx->lock);
	n = kvctx_stage_cancel(ctx, user_data);
	for (place = 0; place < ctx->nr_batches; place++) {
		w = ctx->batches[place];
		if (w && !w->run && w->b.user_data == user_data)
			n += batch_cancel(ctx, w);
	}
	pthread_mutex_unlock(&ctx->lock);
	ret = cancel(ctx, user_data);
	return ret < 0 ? ret : n + ret;
}
