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
#include "pools.h"

#define WORKER_MOVE_BYTES	KVC_CHUNK_MAX	/* a move goes in such steps: whole chunks of any size */
#define WORKER_MOVES		64		/* pages that go at once, when they are neighbours */
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
	u32 i, nr = p->nr_members;

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

/* Work items */

static int work_write(struct kve_member *m, const struct kvc_work *w)
{
	os_atomic64_add(&m->pool->counters.meta_written, w->len);
	return kve_device_write(m->dev, w->buf, w->len, w->offset, true);
}

/* Do the page's bytes from @pos on, in @buf, have the CRCs of their chunks? @pos is a chunk's first byte. */
static int work_check_move(struct kve_member *m, const struct kvc_work *w, const u8 *buf, u32 pos, u32 len)
{
	u32 size = kvc_chunk_size(m->pool->core), chunk = pos / size, done, n;

	for (done = 0; done < len; done += n, chunk++) {
		n = min(len - done, size);
		if (kvc_crc_finish(kvc_crc_feed(KVC_CRC_INIT, buf + done, n)) !=
		    kvc_work_crc(m->pool->core, w, chunk))
			return -EBADMSG;
	}
	return 0;
}

static int work_move(struct kve_member *m, const struct kvc_work *w)
{
	struct kve_pool *p = m->pool;
	u8 *buf = m->move_buf;
	u32 pos, n;

	for (pos = 0; pos < w->len; pos += n) {
		u32 padded;
		int err;

		n = min(w->len - pos, WORKER_MOVE_BYTES);
		padded = kvc_blocks(n) << KVC_BLOCK_SHIFT;
		err = kve_device_read(p->members[w->src_member].dev, buf, padded, w->src_offset + pos);
		if (!err && !w->no_crcs)
			err = work_check_move(m, w, buf, pos, n);
		if (err)
			return err;
		os_atomic64_add(&p->counters.reclaim_written, padded);
		err = kve_device_write(p->members[w->member].dev, buf, padded, w->offset + pos, false);
		if (err)
			return err;
	}
	return 0;
}

/* As one transfer, when all of it is sound: @len bytes of @nr neighbours, the last of which comes first. */
static int work_move_run(struct kve_member *m, const struct kvc_work *w, u32 nr, u32 len)
{
	const struct kvc_work *first = &w[nr - 1];
	struct kve_pool *p = m->pool;
	u8 *buf = m->move_buf;
	int err;
	u32 i;

	err = kve_device_read(p->members[w->src_member].dev, buf, len, first->src_offset);
	for (i = 0; i < nr && !err; i++)
		if (!w[i].no_crcs)
			err = work_check_move(m, &w[i], buf + (w[i].src_offset - first->src_offset), 0, w[i].len);
	if (err)
		return err;
	os_atomic64_add(&p->counters.reclaim_written, len);
	return kve_device_write(p->members[w->member].dev, buf, len, first->offset, false);
}

/* 1: @w is to be executed; 0: nothing to discard now */
static int work_discard_next(struct kve_member *m, struct kvc_work *w)
{
	u64 rate = kvc_super_of(m->pool->core)->settings.discard_rate, step;

	if (!rate || !m->dev->discards || kve_now() < m->discard_at)
		return 0;
	step = max(DISCARD_STEP_MIN, min(DISCARD_STEP_MAX, rate / DISCARD_PARTS));
	return kvc_discard_next(m->pool->core, m->index, step & ~(u64)(KVC_BLOCK - 1), w);
}

/* A favour to the device: no harm when it fails. One that refuses is not asked again. */
static void work_discard(struct kve_member *m, const struct kvc_work *w)
{
	u64 rate = max(kvc_super_of(m->pool->core)->settings.discard_rate, KVC_DISCARD_MIN);

	if (kve_device_discard(m->dev, w->offset, w->discard_len))
		m->dev->discards = false;
	else
		os_atomic64_add(&m->pool->counters.discarded, w->discard_len);
	m->discard_at = kve_now() + w->discard_len * KVE_NSEC / rate;
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
	int err = 0;

	switch (w->type) {
	case KVC_WORK_WRITE:
		err = work_write(m, w);
		break;
	case KVC_WORK_MOVE:
		err = work_move(m, w);
		break;
	case KVC_WORK_DISCARD:
		work_discard(m, w);
		break;
	}
	work_executed(m, w, err);
}

/* The move in w[0], and what else moves from beside it to beside it; see kmod/control/worker.c */
static void work_execute_moves(struct kve_member *m, struct kvc_work *w)
{
	u64 len = kvc_padded(w->len);
	bool more = false;
	u32 nr = 1, i;
	int err;

	while (nr < WORKER_MOVES && len < WORKER_MOVE_BYTES) {
		more = kvc_work_next(m->pool->core, m->index, &w[nr]) == 1;
		if (!more || !kvc_work_adjoins(&w[nr - 1], &w[nr]) ||
		    len + kvc_padded(w[nr].len) > WORKER_MOVE_BYTES)
			break;
		more = false;
		len += kvc_padded(w[nr++].len);
	}
	err = nr > 1 ? work_move_run(m, w, nr, (u32)len) : -EAGAIN;
	for (i = 0; i < nr; i++) {
		if (err)
			work_execute(m, &w[i]);
		else
			work_executed(m, &w[i], 0);
	}
	if (more)
		work_execute(m, &w[nr]);
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
	struct kvc_work *w = m->moves;
	int ret;

	if (READ_ONCE(m->pool->stopping) || worker_failed(m) || kve_broken())
		return 0;
	ret = kvc_work_next(m->pool->core, m->index, w);
	if (!ret)
		ret = work_discard_next(m, w);
	if (ret == 1 && w->type == KVC_WORK_MOVE)
		work_execute_moves(m, w);
	else if (ret == 1)
		work_execute(m, w);
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
	os_free(m->moves);
	m->move_buf = NULL;
	m->moves = NULL;
}

/* 0 or -ENOMEM */
int kve_worker_init(struct kve_member *m)
{
	m->move_buf = os_alloc(WORKER_MOVE_BYTES);
	m->moves = os_alloc(WORKER_MOVES * sizeof(*m->moves));
	if (m->move_buf && m->moves)
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
