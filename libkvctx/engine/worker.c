// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The worker of each member: a thread that executes what the engine hands out, flushes, and completes the member's loss.
 *
 * It does one thing at a time, synchronously, so the order that the engine asks for (next, I/O, done) is the order of
 * the code. Flushes come first. All that wait when a round of summaries begins are served by that round, so many small
 * flushes cost as much as one. kmod/control/worker.c is the same with the kernel's means, and explains more.
 *
 * A loss begins anywhere (KVE_MEMBER_FAILED) and is completed here: the engine forgets the pages, pool->losses counts,
 * LOST lets flushes of the member end, the other members' superblocks say who is missing. Flushes wait between the two,
 * so none reports success for what was just lost.
 *
 * Discards go at the pool's rate: after each the worker stays away from them for as long as it takes at that rate.
 */
#include <semaphore.h>

#include "pools.h"

#define WORKER_RETRY		(KVE_NSEC / 10)	/* when memory was short */

#define DISCARD_STEP_MIN	(1ULL << 20)
#define DISCARD_STEP_MAX	(32ULL << 20)
#define DISCARD_PARTS		32		/* of a second */

static bool worker_failed(const struct kve_member *m)
{
	return kve_member_state(m) & KVE_MEMBER_FAILED;
}

/* Flushes */

void kve_flush_start(struct kve_flush *f)
{
	struct kve_pool *p = f->pool;
	u32 i, nr = kve_nr_members(p);

	f->err = 0;
	f->losses_before = f->losses_seen ? READ_ONCE(*f->losses_seen) : 0;
	os_atomic_set(&f->pending, nr);
	/* the last round of this loop may end @f */
	for (i = 0; i < nr; i++) {
		struct kve_member *m = &p->members[i];

		f->on[i].flush = f;
		pthread_mutex_lock(&p->lock);
		f->on[i].next = m->flushes;
		m->flushes = &f->on[i];
		pthread_mutex_unlock(&p->lock);
		kve_member_kick(m);
	}
}

/* One member is done with @f; the last one ends it. */
static void flush_put(struct kve_flush *f, int err)
{
	int none = 0;
	u32 losses;

	if (err)
		__atomic_compare_exchange_n(&f->err, &none, err, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	if (!os_atomic_dec_and_test(&f->pending))
		return;
	losses = os_atomic_read(&f->pool->losses);
	if (f->losses_seen && losses != f->losses_before) {
		WRITE_ONCE(*f->losses_seen, losses);
		f->err = f->err ?: -EIO;
	}
	f->done(f);
}

struct worker_wait {
	struct kve_flush f;
	sem_t over;
};

static void worker_flushed(struct kve_flush *f)
{
	sem_post(&((struct worker_wait *)f)->over);
}

int kve_pool_flush(struct kve_pool *p)
{
	struct worker_wait w = { .f = { .pool = p, .done = worker_flushed } };

	sem_init(&w.over, 0, 0);
	kve_flush_start(&w.f);
	while (sem_wait(&w.over))
		;
	sem_destroy(&w.over);
	return w.f.err;
}

/* Work items */

static int work_write(struct kve_member *m, const struct kvc_work *w)
{
	os_atomic64_add(&m->pool->counters.meta_written, w->len);
	return kve_device_write(m->dev, w->buf, w->len, w->offset, true);
}

static int work_move(struct kve_member *m, const struct kvc_work *w)
{
	struct kve_pool *p = m->pool;
	u8 *buf = m->move_buf;
	u32 pos, n;

	for (pos = 0; pos < w->len; pos += n) {
		u32 padded;
		int err;

		n = min(w->len - pos, KVC_RUN_BYTES);
		padded = kvc_blocks(n) << KVC_BLOCK_SHIFT;
		err = kve_device_read(p->members[w->src_member].dev, buf, padded, w->src_offset + pos);
		if (!err)
			err = kvc_work_check(p->core, w, buf, pos, n);
		if (err)
			return err;
		os_atomic64_add(&p->counters.reclaim_written, padded);
		err = kve_device_write(p->members[w->member].dev, buf, padded, w->offset + pos, false);
		if (err)
			return err;
	}
	return 0;
}

/* As one transfer, when all of it is sound */
static int work_move_run(struct kve_member *m, const struct kvc_run *run)
{
	const struct kvc_work *front = kvc_run_front(run);
	struct kve_pool *p = m->pool;
	int err;

	err = kve_device_read(p->members[front->src_member].dev, m->move_buf, run->bytes, front->src_offset);
	if (!err)
		err = kvc_run_check(p->core, run, m->move_buf);
	if (err)
		return err;
	os_atomic64_add(&p->counters.reclaim_written, run->bytes);
	return kve_device_write(p->members[front->member].dev, m->move_buf, run->bytes, front->offset, false);
}

/* A favour to the device, which is not asked again if it refuses. 1: a part was, by @w; 0: there is none for now */
static int work_discard(struct kve_member *m, struct kvc_work *w)
{
	u64 rate, step;

	pthread_mutex_lock(&m->pool->config_lock);
	rate = kvc_super_of(m->pool->core)->settings.discard_rate;
	pthread_mutex_unlock(&m->pool->config_lock);
	if (!rate || !m->dev->discards || kve_now() < m->discard_at)
		return 0;
	step = max(DISCARD_STEP_MIN, min(DISCARD_STEP_MAX, rate / DISCARD_PARTS));
	if (!kvc_discard_next(m->pool->core, m->index, step & ~(u64)(KVC_BLOCK - 1), w))
		return 0;
	if (kve_device_discard(m->dev, w->offset, w->discard_len))
		m->dev->discards = false;
	else
		os_atomic64_add(&m->pool->counters.discarded, w->discard_len);
	m->discard_at = kve_now() + w->discard_len * KVE_NSEC / rate;
	kvc_work_done(m->pool->core, w, 0);
	return 1;
}

static void work_executed(struct kve_member *m, struct kvc_work *w, int err)
{
	struct kvc_pool *core = m->pool->core;

	if (err && err != -EBADMSG)
		os_atomic64_add(&m->pool->counters.io_errors, 1);
	kvc_work_done(core, w, err);
	/* the engine gives up a member whose summary could not be written */
	if (err && !kvc_member_online(core, m->index))
		kve_member_failed(m);
}

static void work_execute(struct kve_member *m, struct kvc_work *w)
{
	work_executed(m, w, w->type == KVC_WORK_MOVE ? work_move(m, w) : work_write(m, w));
}

/* Neighbours go at once; when not all went well, each is moved by itself. */
static void work_execute_run(struct kve_member *m, struct kvc_run *run)
{
	int err = run->together > 1 ? work_move_run(m, run) : -EAGAIN;
	u32 i;

	for (i = 0; i < run->nr; i++) {
		if (i < run->together && !err)
			work_executed(m, &run->w[i], 0);
		else
			work_execute(m, &run->w[i]);
	}
}

/* The worker */

/*
 * Write the summaries of what is committed now, not of what is added meanwhile. -ENOMEM, -ENODEV (the engine is broken
 * and writes nothing any more), or 0 also when it failed.
 */
static int worker_summarize(struct kve_member *m)
{
	struct kvc_pool *core = m->pool->core;
	struct kvc_work w;
	u64 mark;
	int ret;

	if (kve_broken())
		return -ENODEV;
	mark = kvc_flush_mark(core, m->index);
	while (!worker_failed(m) && !kvc_flushed(core, m->index, mark)) {
		ret = kvc_flush_next(core, m->index, &w);
		if (ret <= 0)
			return ret;
		work_execute(m, &w);
	}
	return 0;
}

/* Serve all flushes that wait. Those of a member that fails meanwhile come again, when it is lost. */
static void worker_serve_flushes(struct kve_member *m)
{
	struct kve_flush_part *part, *next;
	int err;

	pthread_mutex_lock(&m->pool->lock);
	part = m->flushes;
	m->flushes = NULL;
	pthread_mutex_unlock(&m->pool->lock);
	if (!part)
		return;
	err = worker_summarize(m);
	if (worker_failed(m) && !(kve_member_state(m) & KVE_MEMBER_LOST))
		kve_member_lose(m);
	for (; part; part = next) {
		next = part->next;
		flush_put(part->flush, err);
	}
}

/* One item of background work. 1: done, 0: nothing to do, -ENOMEM: try later. */
static int worker_background(struct kve_member *m)
{
	u32 state = kve_member_state(m);
	bool leaving = state & KVE_MEMBER_LEAVING;
	int ret;

	if (READ_ONCE(m->pool->stopping) || kve_broken())
		return 0;
	/* one that is lost and leaves has work, but none for its device */
	if ((state & KVE_MEMBER_FAILED) && (!leaving || !(state & KVE_MEMBER_LOST)))
		return 0;
	ret = kvc_run_next(m->pool->core, m->index, m->run);
	if (ret == 1)
		work_execute_run(m, m->run);
	else if (!ret && leaving)
		kve_leave_look(m->pool);
	else if (!ret)
		ret = work_discard(m, m->run->w);
	return ret;
}

static void worker_round(struct kve_member *m, u64 *until)
{
	u64 now;
	int ret;

	do {
		if (worker_failed(m) && !(kve_member_state(m) & KVE_MEMBER_LOST))
			kve_member_lose(m);
		worker_serve_flushes(m);
		ret = worker_background(m);
	} while (ret == 1);
	now = kve_now();
	*until = KVE_NEVER;
	if (ret == -ENOMEM)
		*until = now + WORKER_RETRY;
	else if (!worker_failed(m) && m->dev->discards && m->discard_at > now)
		*until = m->discard_at;
}

static void *worker(void *arg)
{
	struct kve_member *m = arg;
	struct kve_pool *p = m->pool;
	u64 until = KVE_NEVER;

	pthread_mutex_lock(&p->lock);
	while (!p->quit) {
		if (!__atomic_exchange_n(&m->kicked, false, __ATOMIC_SEQ_CST) && kve_now() < until) {
			kve_cond_wait(&m->wake, &p->lock, until);
			continue;
		}
		pthread_mutex_unlock(&p->lock);
		worker_round(m, &until);
		pthread_mutex_lock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

void kve_worker_free(struct kve_member *m)
{
	os_free(m->move_buf);
	os_free(m->run);
	m->move_buf = NULL;
	m->run = NULL;
}

/* 0 or -ENOMEM */
int kve_worker_init(struct kve_member *m)
{
	m->move_buf = os_alloc(KVC_RUN_BYTES);
	m->run = os_alloc(sizeof(*m->run));
	if (m->move_buf && m->run)
		return 0;
	kve_worker_free(m);
	return -ENOMEM;
}

int kve_worker_start(struct kve_member *m)
{
	char name[16];
	int err;

	snprintf(name, sizeof(name), "kvctx-work/%u", m->index);
	err = kve_thread_start(&m->thread, worker, m, name);
	m->works = !err;
	return err;
}

/* The pool quits. */
void kve_worker_join(struct kve_member *m)
{
	if (!m->works)
		return;
	pthread_mutex_lock(&m->pool->lock);
	pthread_cond_signal(&m->wake);
	pthread_mutex_unlock(&m->pool->lock);
	pthread_join(m->thread, NULL);
}

/* What the engine calls, under locks of its own. While the pool is being built or taken down there is nobody to call. */

static void worker_core_kick(void *owner, u32 member)
{
	struct kve_pool *p = owner;

	if (os_load_acquire(&p->online))
		kve_member_kick(&p->members[member]);
}

static void worker_core_space(void *owner)
{
	struct kve_pool *p = owner;

	if (os_load_acquire(&p->online) && os_load_acquire(&p->space.fn))
		kve_job_queue(p, &p->space, 0);
}

const struct kvc_ops kve_core_ops = {
	.kick	= worker_core_kick,
	.space	= worker_core_space,
};
