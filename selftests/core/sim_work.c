// SPDX-License-Identifier: GPL-2.0
/*
 * The members' workers: they ask the engine for work when it kicked them or when a flush waits, do the I/O and report.
 * See sim.h.
 */
#include "sim.h"

static void on_kick(void *owner, u32 member)
{
	struct sim *s = owner;

	s->workers[member].kicked = true;
}

static void on_space(void *owner)
{
	struct sim *s = owner;

	s->space = true;
}

const struct kvc_ops sim_ops = {
	.kick = on_kick,
	.space = on_space,
};

/*
 * What a place has. A page that a call has in hand may have gone without the model's being told, and another be in its
 * place by now.
 */
static struct mkey *page_at(struct sim *s, u32 member, u64 offset)
{
	struct mkey *k, *busy = NULL;
	u32 i;

	for (i = 0; i < s->nr_keys; i++) {
		k = &s->keys[i];
		if (!k->cur.version || k->at.member != member || k->at.offset != offset)
			continue;
		if (!k->busy)
			return k;
		if (ops_in_index(s, k))
			busy = k;
	}
	return busy;
}

/* Its member leaves, and it was copied to another one. */
static void moved_away(struct sim *s, struct mkey *k)
{
	k->on |= BIT(k->at.member);
	s->versions[k->cur.version].member = k->at.member;
	s->placed += kvc_blocks(k->cur.length);
	s->n.went++;
}

/* The page moved unless somebody leased its segment, or it went meanwhile. */
static void model_moved(struct sim *s, const struct kvc_work *w, struct mkey *k)
{
	if (!k || s->failed[w->member] || s->failed[w->src_member] ||
	    model_leases(s, w->src_member, segment_of(s, w->src_offset)))
		return;
	k->before = k->at;
	k->at = (struct place){ w->member, w->offset };
	k->twice = k->cur.version;
	if (w->member != w->src_member)
		moved_away(s, k);
	s->n.moved++;
	sim_trace(s, "moved %s v%u from %llu of member %u to %llu of member %u", model_name(k), k->cur.version,
		  (unsigned long long)w->src_offset, w->src_member, (unsigned long long)w->offset, w->member);
}

static void model_move_bad(struct sim *s, const struct kvc_work *w, struct mkey *k)
{
	sim_check(s->cfg.misreads || segment_tainted(s, (struct place){ w->src_member, w->src_offset }),
		  "move of an undamaged page at %llu", (unsigned long long)w->src_offset);
	if (k) {
		model_event(s, k, (struct mstate){ 0 }, true);
		s->n.bad++;
	}
}

/* Moves of neighbours, which are one transfer */
struct together {
	struct worker *worker;
	struct task *task[KVC_RUN_MOVES];
	u32	nr;
	u8	*buf;
};

static void work_end(struct task *task, int err)
{
	struct worker *wk = task->worker;
	struct kvc_work *w = &task->w;
	struct sim *s = wk->sim;
	struct window win;
	bool leased = wk->leased != 0;
	/* what moves, as it is in the index before that is done, or before it is dropped */
	struct mkey *k = w->type == KVC_WORK_MOVE ? page_at(s, w->src_member, w->src_offset) : NULL;

	/* a page that moves is in two places at a time: nobody is let in */
	if (w->type != KVC_WORK_MOVE)
		window_begin(s, &win, NULL);
	kvc_work_done(s->pool, w, err);
	if (w->type != KVC_WORK_MOVE)
		window_end(s, &win);
	if (task->leased)
		kvc_lease_put(s->pool, &task->lease);
	wk->leased -= task->leased;
	free(task->buf);
	if (wk->task == task)
		wk->task = NULL;
	else
		wk->moving--;
	wk->kicked = true;
	if (s->ending)
		goto out;
	if (!kvc_member_online(s->pool, wk->member))
		model_member_failed(s, wk->member);
	if (w->type == KVC_WORK_MOVE && !err && !leased)
		model_moved(s, w, k);
	/* lost, with a copy that is not durable yet */
	if (w->type == KVC_WORK_MOVE && w->member != wk->member && s->cfg.member_fails && rng_chance(&s->fault_rng, 200))
		sim_fail_member(s, w->member);
	if (w->type == KVC_WORK_MOVE && err == -EBADMSG)
		model_move_bad(s, w, k);
	s->n.ioerrs += err && err != -EBADMSG;
	if (w->type == KVC_WORK_WRITE)
		image_changed(s);
out:
	free(task);
}

static void plain_done(void *arg, int err)
{
	work_end(arg, err);
}

static void move_read_done(void *arg, int err)
{
	struct task *task = arg;
	struct kvc_work *w = &task->w;
	struct sim *s = task->worker->sim;

	if (!err)
		err = kvc_work_check(s->pool, w, task->buf, 0, w->len);
	if (err)
		work_end(task, err);
	else
		dev_write(s->devs[w->member], w->offset, task->buf, padded(w->len), 0, plain_done, task);
}

static u8 *buffer(u64 bytes)
{
	u8 *buf = calloc(1, bytes);

	if (!buf)
		sim_fail("the test itself is out of memory");
	return buf;
}

static void move(struct task *task)
{
	const struct kvc_work *w = &task->w;

	task->buf = buffer(padded(w->len));
	dev_read(task->worker->sim->devs[w->src_member], w->src_offset, task->buf, padded(w->len), move_read_done, task);
}

/* The neighbours of a run, in one transfer; when not all went well, each by itself. */
static void together_done(void *arg, int err)
{
	struct together *t = arg;
	struct sim *s = t->worker->sim;
	u32 i;

	for (i = 0; i < t->nr; i++) {
		if (err && !s->ending)
			move(t->task[i]);
		else
			work_end(t->task[i], err);
	}
	s->n.beside += err ? 0 : t->nr;
	free(t->buf);
	free(t);
}

static void together_read_done(void *arg, int err)
{
	struct together *t = arg;
	const struct kvc_run *run = &t->worker->run;
	const struct kvc_work *front = kvc_run_front(run);
	struct sim *s = t->worker->sim;

	if (!err)
		err = kvc_run_check(s->pool, run, t->buf);
	if (err)
		together_done(t, err);
	else
		dev_write(s->devs[front->member], front->offset, t->buf, (u32)run->bytes, 0, together_done, t);
}

static void move_together(struct worker *wk, struct task *const *task)
{
	const struct kvc_work *front = kvc_run_front(&wk->run);
	struct together *t = calloc(1, sizeof(*t));
	struct sim *s = wk->sim;

	if (!t)
		sim_fail("the test itself is out of memory");
	t->worker = wk;
	t->nr = wk->run.together;
	memcpy(t->task, task, t->nr * sizeof(*task));
	t->buf = buffer(wk->run.bytes);
	dev_read(s->devs[front->src_member], front->src_offset, t->buf, (u32)wk->run.bytes, together_read_done, t);
}

static void lease_moved(struct task *task)
{
	struct sim *s = task->worker->sim;
	struct mkey *k = page_at(s, task->w.src_member, task->w.src_offset);
	struct kvc_domain *d;
	u8 key[KVC_KEY_LEN];

	if (!k || k->busy || !ops_present(s, k))
		return;
	key_make(key, k->id);
	d = sim_domain(s, k);
	task->leased = kvc_lease_get(s->pool, d, key, &task->lease) == 0;
	task->worker->leased += task->leased;
	kvc_domain_put(s->pool, d);
}

bool work_header(const struct sim *s, u32 member)
{
	const struct worker *wk = &s->workers[member];

	return wk->task && wk->task->w.type == KVC_WORK_WRITE &&
	       (wk->task->w.offset - KVC_DATA_OFFSET) % s->cfg.segment_size == 0;
}

static const char *const names[] = { "write", "move", "discard" };

/* What is asked of it is right? */
static void look_at_work(struct worker *wk, const struct kvc_work *w)
{
	struct sim *s = wk->sim;

	sim_check((w->type == KVC_WORK_MOVE ? w->src_member : w->member) == wk->member, "work of member %u for %u",
		  w->member, wk->member);
	sim_trace(s, "member %u: %s at %llu + %llu", wk->member, names[w->type], (unsigned long long)w->offset,
		  (unsigned long long)(w->type == KVC_WORK_DISCARD ? w->discard_len : w->len));
	sim_check(w->type != KVC_WORK_WRITE || w->stream == KVC_STREAM_META, "summary in stream %u", w->stream);
	sim_check(w->type != KVC_WORK_MOVE || w->src_member != w->member || w->stream > KVC_STREAM_NEW,
		  "move in stream %u", w->stream);
	model_check_free(s, w->member, w->offset, w->type == KVC_WORK_DISCARD ? w->discard_len : padded(w->len),
			 names[w->type]);
}

static struct task *new_task(struct worker *wk, const struct kvc_work *w)
{
	struct task *task = calloc(1, sizeof(*task));
	struct sim *s = wk->sim;

	if (!task)
		sim_fail("the test itself is out of memory");
	task->worker = wk;
	task->w = *w;
	look_at_work(wk, w);
	if (w->type != KVC_WORK_DISCARD)
		budget_spend(s, padded(w->len));
	if (w->type == KVC_WORK_MOVE && w->member != wk->member)
		s->newest[w->member] = (struct place){ w->member, s->cfg.windows ? 0 : w->offset };
	if (w->type == KVC_WORK_MOVE && s->cfg.leases && rng_chance(&s->rng, 500))
		lease_moved(task);
	return task;
}

static void start(struct task *task)
{
	struct kvc_work *w = &task->w;
	struct dev *d = task->worker->sim->devs[task->worker->member];

	switch (w->type) {
	case KVC_WORK_WRITE:
		dev_write(d, w->offset, w->buf, w->len, DEV_PREFLUSH | DEV_FUA, plain_done, task);
		break;
	case KVC_WORK_MOVE:
		move(task);
		break;
	case KVC_WORK_DISCARD:
		dev_discard(d, w->offset, w->discard_len, plain_done, task);
		break;
	}
}

static void start_run(struct worker *wk)
{
	const struct kvc_run *run = &wk->run;
	struct task *task[KVC_RUN_MOVES];
	struct sim *s = wk->sim;
	u32 i;

	for (i = 0; i < run->nr; i++)
		task[i] = new_task(wk, &run->w[i]);
	wk->task = task[run->nr - 1];
	wk->moving = run->nr - 1;
	for (i = 1; i < run->together; i++)
		sim_check(segment_of(s, run->w[i].offset) == segment_of(s, run->w[0].offset) &&
			  segment_of(s, run->w[i].src_offset) == segment_of(s, run->w[0].src_offset),
			  "a run over segments of member %u", wk->member);
	if (run->together > 1)
		move_together(wk, task);
	for (i = run->together > 1 ? run->together : 0; i < run->nr; i++)
		start(task[i]);
}

/* Favours to the device, at any pace */
static int next_discard(struct worker *wk, struct kvc_work *w)
{
	struct sim *s = wk->sim;
	u64 max;
	int r;

	if (!s->cfg.discards || rng_below(&s->rng, s->cfg.discards))
		return 0;
	max = rng_range(&s->rng, 1, (u32)(s->cfg.segment_size >> KVC_BLOCK_SHIFT));
	r = kvc_discard_next(s->pool, wk->member, max << KVC_BLOCK_SHIFT, w);
	s->n.discards += r == 1;
	return r;
}

static int ask(struct worker *wk, bool flush)
{
	struct kvc_run *run = &wk->run;
	struct sim *s = wk->sim;
	struct window win;
	bool ran;
	int r;

	wk->asking = true;
	window_begin(s, &win, NULL);
	run->nr = 1;
	run->together = 1;
	if (flush) {
		r = kvc_flush_next(s->pool, wk->member, run->w);
	} else {
		wk->kicked = false;
		r = kvc_run_next(s->pool, wk->member, run);
		if (r == 0)
			r = next_discard(wk, run->w);
	}
	ran = window_end(s, &win);
	wk->asking = false;
	sim_check(!flush || r != 0 || ran || !ops_flush_wants(s, wk->member),
		  "member %u: nothing to write, not flushed", wk->member);
	return r;
}

/*
 * Flushes and the rest take turns at random; without a kick nothing is asked for, as in the kernel. A member that
 * leaves and is held does what flushes want.
 */
bool work_step(struct sim *s, u32 member)
{
	struct worker *wk = &s->workers[member];
	bool flush;
	int r;

	if (wk->task || wk->moving || wk->asking)
		return false;
	flush = ops_flush_wants(s, member);
	if (!flush && (!wk->kicked || grow_held(s, member)))
		return false;
	if (flush && wk->kicked && !grow_held(s, member))
		flush = rng_chance(&s->rng, 5000);
	r = ask(wk, flush);
	model_look(s);
	if (r == -ENOMEM && s->cfg.alloc_fails) {
		s->n.nomem++;
		wk->kicked = true;
	} else {
		sim_check(r == 0 || r == 1, "member %u: next work: %d", member, r);
	}
	if (r == 1)
		start_run(wk);
	return true;
}
