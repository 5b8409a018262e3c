// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Batches: many pages in one call, one completion behind the last of them.
 *
 * Every operation of a batch has a user_data of the library's own, which says the batch's place in ctx->batches and the
 * page, so that its completion goes to the result without a search. Operations of a batch are busy like those of the
 * queue; all but one stop being so when they complete, and that one is the batch's own completion, until it is taken.
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
	if (b->flags || b->user_data >= KVCTX_USER_DATA_END || (b->offset && b->opcode != KVCTX_OP_LOAD))
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
	uint64_t pieces = batch_pieces(b);
	struct kvctx_batch_work *w;

	if (pieces > SIZE_MAX / 2 / sizeof(*w->segs))
		return NULL;
	w = malloc(sizeof(*w) + b->nr * sizeof(*w->sqes) + pieces * sizeof(*w->segs));
	if (!w)
		return NULL;
	w->b = *b;
	w->left = b->nr + 1;
	w->busy = run ? 0 : b->nr;
	w->good = 0;
	w->sent = 0;
	w->run = run;
	w->segs = (struct kvctx_seg *)(w->sqes + b->nr);
	return w;
}

/* The pieces of page @i, which begin with piece @at, in @segs; returns their bytes, or -EFAULT. Locked. */
static int64_t batch_segs(struct kvctx *ctx, const struct kvctx_batch *b, uint32_t i, uint64_t at,
			  struct kvctx_seg *segs)
{
	uint32_t nr = b->pieces ? b->pieces[i] : 1, n;
	int64_t sum = 0;
	uint64_t offset;

	for (n = 0; n < nr; n++) {
		if (kvctx_mem_locate(ctx, (uintptr_t)b->addrs[at + n], b->lens[at + n], &segs[n].mem, &offset))
			return -EFAULT;
		segs[n].offset = offset;
		segs[n].length = b->lens[at + n];
		sum += b->lens[at + n];
	}
	return sum;
}

/* 0, or -EFAULT: some memory is in no registration. Locked. */
static int batch_fill(struct kvctx *ctx, struct kvctx_batch_work *w)
{
	const struct kvctx_batch *b = &w->b;
	struct kvctx_seg *segs = w->segs, one;
	uint64_t at = 0;
	uint32_t i, nr;

	for (i = 0; i < b->nr; i++) {
		struct kvctx_sqe *sqe = &w->sqes[i];
		int64_t length;

		nr = b->pieces ? b->pieces[i] : 1;
		if (nr > UINT16_MAX)
			return -E2BIG;
		length = batch_segs(ctx, b, i, at, nr == 1 ? &one : segs);
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

static bool batch_done(struct kvctx *ctx, const struct kvctx_cqe *cqe)
{
	uint32_t at = (uint32_t)(cqe->user_data - KVCTX_BATCH_TAG), place = at >> BATCH_SHIFT;

	/* a program that does not keep below KVCTX_USER_DATA_END gets its own back */
	if (place >= ctx->nr_batches || !ctx->batches[place]) {
		kvctx_ready_add(ctx, cqe);
		return true;
	}
	return batch_result(ctx, ctx->batches[place], at & (BATCH_MAX - 1), cqe->res, cqe->flags);
}

/* Who waits for it may sleep in the call that submits, if nobody else needs the ring meanwhile. Locked. */
static uint32_t batch_sleep(const struct kvctx *ctx, const struct kvctx_batch_work *w, uint32_t nr)
{
	bool alone = !ctx->sleepers && !ctx->busy && ctx->nr_pending == 1 && nr == w->b.nr;

	return w->run && alone && nr <= ctx->entries - ctx->limit ? nr : 0;
}

/* What the kernel does not take has its error for a result. Locked; dropped meanwhile. */
static void batch_send(struct kvctx *ctx, struct kvctx_batch_work *w)
{
	uint32_t max = ctx->info.batch_max, at = 0, nr;
	int ret;

	while (at < w->b.nr) {
		nr = w->b.nr - at < max ? w->b.nr - at : max;
		ret = kvctx_ring_submit(ctx, w->sqes + at, nr, batch_sleep(ctx, w, nr), KVCTX_TIMEOUT_NONE);
		if (ret == -EAGAIN)
			kvctx_wait_room(ctx);
		else if (ret >= 0)
			at += (uint32_t)ret;
		for (; ret < 0 && ret != -EAGAIN && at < w->b.nr; at++)
			batch_result(ctx, w, at, ret, 0);
		w->sent = at;
	}
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

/* Whether an operation names this registration that the server does not have yet: it cannot keep it there. Locked. */
static bool batch_uses(const struct kvctx *ctx, uint32_t mem)
{
	const struct kvctx_batch_work *w;
	uint32_t place, i;

	for (place = 0; place < ctx->nr_batches; place++) {
		w = ctx->batches[place];
		for (i = w ? w->sent : 0; w && i < w->b.nr; i++)
			if (batch_sqe_uses(&w->sqes[i], mem))
				return true;
	}
	return false;
}

/* Everything up to the results. 0, or why nothing was done. */
static int batch_start(struct kvctx *ctx, struct kvctx_batch_work *w)
{
	int ret = batch_enter(ctx, w);

	if (ret)
		return ret;
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
