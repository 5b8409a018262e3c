// SPDX-License-Identifier: GPL-2.0
/*
 * The worker of each member: executes what the engine hands out, and flushes.
 *
 * It is one delayed work item a member, so there is one worker at a time, and it does one thing at a time,
 * synchronously: the order that the engine asks for (next, I/O, done) is the order of the code. Flushes come first. All
 * that wait when a round of summaries begins are served by that round, so many small flushes cost as much as one.
 *
 * A LOAD never waits for the worker: they share no lock but the engine's short ones.
 *
 * A flush on a lost member has nothing left to do: its pages are gone. That somebody's unflushed pages are among them
 * is said once to every session, through kvctx_flush.losses_seen.
 *
 * Discards. The worker discards the old pages of reclaimed segments when it has nothing else to do, a part at a time:
 * what the pool's rate allows in a thirty-second of a second, 1 to 32 MiB. After each part it stays away from discards
 * for as long as the part takes at that rate, whatever the device needed for it: in between, loads have the device to
 * themselves. The worker does not wait meanwhile; it is woken then, or earlier for other work. A segment that is wanted
 * before its turn comes is used as it is (core/log/discard.c). A device that refuses a discard is not asked again until
 * the next attach.
 */
#include <linux/moduleparam.h>
#include <linux/sched/mm.h>

#include "ctrl.h"

static unsigned int member_patience = 30;
module_param(member_patience, uint, 0644);
MODULE_PARM_DESC(member_patience, "Seconds in which a member whose device fails all transfers, but is there, is not lost");

#define KVCTX_RETRY		(HZ / 10)	/* when memory was short, or a device out of reach */

#define KVCTX_DISCARD_STEP_MIN	(1ULL << 20)
#define KVCTX_DISCARD_STEP_MAX	(32ULL << 20)
#define KVCTX_DISCARD_PARTS	32		/* of a second */

static bool kvctx_failed(const struct kvctx_member *m)
{
	/* pairs with the release in kvctx_member_enter(): who is told no sees the device */
	return test_bit_acquire(KVCTX_MEMBER_FAILED, &m->state);
}

/* Flushes */

/* One member is done with @f; the last one ends it. */
static void kvctx_flush_put(struct kvctx_flush *f, int err)
{
	u32 losses;

	if (err)
		cmpxchg(&f->err, 0, err);
	if (!atomic_dec_and_test(&f->pending))
		return;
	losses = atomic_read(&f->pool->losses);
	if (f->losses_seen && losses != f->losses_before) {
		WRITE_ONCE(*f->losses_seen, losses);
		f->err = f->err ?: -EIO;
	}
	f->done(f);
}

static void kvctx_flush_done(struct kvctx_flush *f)
{
	complete(&f->pool->flushed);
}

/* Flush for the control side, which needs no memory. 0, -ENOMEM: not all of it is durable. admin_lock */
int kvctx_pool_flush(struct kvctx_pool *p)
{
	struct kvctx_flush *f = p->last_flush;

	reinit_completion(&p->flushed);
	f->pool = p;
	f->nr = kvctx_nr_members(p);
	f->done = kvctx_flush_done;
	kvctx_flush_start(f);
	wait_for_completion(&p->flushed);
	return f->err;
}

/* Work items */

/*
 * A transfer failed: is that because the device answers nobody, so that it is worth while to try again until @until?
 * One that reads a superblock does answer. Not at detach, which would wait for that.
 */
static bool kvctx_out_of_reach(struct kvctx_member *m, unsigned long until)
{
	return time_before(jiffies, until) && !READ_ONCE(m->pool->stopping) && !kvctx_failed(m) &&
	       kvctx_io(m->bdev, REQ_OP_READ, kvc_super_offset(0, bdev_nr_bytes(m->bdev)), m->move_buf,
			KVC_SUPER_BYTES);
}

/*
 * A summary or a header, which cost the member when they cannot be written: while its device is out of reach each is
 * tried again. The bytes and their place stay, so it does not matter what became of the earlier tries.
 */
static int kvctx_write(struct kvctx_member *m, const struct kvc_work *w)
{
	unsigned long until = jiffies + READ_ONCE(member_patience) * HZ;
	bool told = false;
	int err;

	kvctx_count_written(m->pool, &m->pool->counters.meta_written, w->len);
	while ((err = kvctx_io(m->bdev, REQ_OP_WRITE | REQ_SYNC | REQ_META | REQ_PREFLUSH | REQ_FUA, w->offset, w->buf,
			       w->len)) && kvctx_out_of_reach(m, until)) {
		if (!told)
			pr_warn("kvctx: pool %s: member %u (%s) is out of reach, error %d; lost in %u s\n",
				m->pool->name, m->index, m->dev->path, -err, READ_ONCE(member_patience));
		told = true;
		schedule_timeout_idle(KVCTX_RETRY);
	}
	return err;
}

/* A member that leaves moves its pages to others; its worker does that, with its buffer. */
static int kvctx_move(struct kvctx_member *m, const struct kvc_work *w)
{
	struct block_device *from = m->pool->members[w->src_member].bdev;
	struct block_device *to = m->pool->members[w->member].bdev;
	u8 *buf = m->move_buf;
	u32 pos, n;

	for (pos = 0; pos < w->len; pos += n) {
		u32 padded;
		int err;

		n = min(w->len - pos, KVC_RUN_BYTES);
		padded = round_up(n, KVC_BLOCK);
		err = kvctx_io(from, REQ_OP_READ, w->src_offset + pos, buf, padded);
		if (!err)
			err = kvc_work_check(m->pool->core, w, buf, pos, n);
		if (err)
			return err;
		kvctx_count_written(m->pool, &m->pool->counters.reclaim_written, padded);
		err = kvctx_io_stream(to, REQ_OP_WRITE, w->stream, w->offset + pos, buf, padded);
		if (err)
			return err;
	}
	return 0;
}

/* As one transfer, when all of it is sound */
static int kvctx_move_run(struct kvctx_member *m, const struct kvc_run *run)
{
	const struct kvc_work *front = kvc_run_front(run);
	int err;

	err = kvctx_io(m->pool->members[front->src_member].bdev, REQ_OP_READ, front->src_offset, m->move_buf,
		       run->bytes);
	if (!err)
		err = kvc_run_check(m->pool->core, run, m->move_buf);
	if (err)
		return err;
	kvctx_count_written(m->pool, &m->pool->counters.reclaim_written, run->bytes);
	return kvctx_io_stream(m->pool->members[front->member].bdev, REQ_OP_WRITE, front->stream, front->offset,
			       m->move_buf, run->bytes);
}

/* Discards */

/* A favour to the device: no harm when it fails. 1: a part was discarded, by @w; 0: there is none to discard now */
static int kvctx_discard(struct kvctx_member *m, struct kvc_work *w)
{
	u64 rate = READ_ONCE(m->pool->discard_rate), step;

	if (!rate || m->no_discard || !bdev_max_discard_sectors(m->bdev) || ktime_before(ktime_get(), m->discard_at))
		return 0;
	step = clamp(rate / KVCTX_DISCARD_PARTS, KVCTX_DISCARD_STEP_MIN, KVCTX_DISCARD_STEP_MAX);
	if (!kvc_discard_next(m->pool->core, m->index, round_down(step, KVC_BLOCK), w))
		return 0;
	if (blkdev_issue_discard(m->bdev, w->offset >> SECTOR_SHIFT, w->discard_len >> SECTOR_SHIFT, GFP_NOIO))
		m->no_discard = true;
	else
		percpu_counter_add_batch(&m->pool->counters.discarded, (s64)w->discard_len, KVCTX_COUNT_BATCH);
	m->discard_at = ktime_add_ns(ktime_get(), div64_u64(w->discard_len * NSEC_PER_SEC, rate));
	kvc_work_done(m->pool->core, w, 0);
	return 1;
}

/* Jiffies until the worker should look for discards again; 0: it need not */
static unsigned long kvctx_discard_delay(struct kvctx_member *m)
{
	s64 ns = ktime_to_ns(ktime_sub(m->discard_at, ktime_get()));

	return ns > 0 && !m->no_discard ? nsecs_to_jiffies(ns) + 1 : 0;
}

/* The worker */

static void kvctx_executed(struct kvctx_member *m, struct kvc_work *w, int err)
{
	if (err && err != -EBADMSG)
		percpu_counter_inc(&m->pool->counters.io_errors);
	kvc_work_done(m->pool->core, w, err);
	/* the engine gives up a member whose summary could not be written */
	if (err && !kvc_member_online(m->pool->core, m->index))
		kvctx_member_failed(m);
}

static void kvctx_execute(struct kvctx_member *m, struct kvc_work *w)
{
	kvctx_executed(m, w, w->type == KVC_WORK_MOVE ? kvctx_move(m, w) : kvctx_write(m, w));
}

/* Neighbours go at once; when not all went well, each is moved by itself. */
static void kvctx_execute_run(struct kvctx_member *m, struct kvc_run *run)
{
	int err = run->together > 1 ? kvctx_move_run(m, run) : -EAGAIN;
	u32 i;

	for (i = 0; i < run->nr; i++) {
		if (i < run->together && !err)
			kvctx_executed(m, &run->w[i], 0);
		else
			kvctx_execute(m, &run->w[i]);
	}
}

/* Write the summaries of what is committed now, not of what is added meanwhile. -ENOMEM, or 0 also when it failed. */
static int kvctx_summarize(struct kvctx_member *m)
{
	struct kvc_pool *core = m->pool->core;
	u64 mark = kvc_flush_mark(core, m->index);
	struct kvc_work w;
	int ret;

	while (!kvctx_failed(m) && !kvc_flushed(core, m->index, mark)) {
		ret = kvc_flush_next(core, m->index, &w);
		if (ret <= 0)
			return ret;
		kvctx_execute(m, &w);
	}
	return 0;
}

/* Serve all flushes that wait. Those of a failed member go on waiting until it is lost. */
static void kvctx_serve_flushes(struct kvctx_member *m)
{
	LIST_HEAD(batch);
	int err;

	if (list_empty_careful(&m->flushes))
		return;
	spin_lock(&m->flush_lock);
	list_splice_init(&m->flushes, &batch);
	spin_unlock(&m->flush_lock);
	err = kvctx_summarize(m);
	if (kvctx_failed(m) && !test_bit(KVCTX_MEMBER_LOST, &m->state)) {
		spin_lock(&m->flush_lock);
		list_splice(&batch, &m->flushes);
		spin_unlock(&m->flush_lock);
		return;
	}
	while (!list_empty(&batch)) {
		struct kvctx_flush_part *part = list_first_entry(&batch, struct kvctx_flush_part, node);

		list_del(&part->node);
		kvctx_flush_put(part->flush, err);
	}
}

/* One item of background work. 1: done, 0: nothing to do, -ENOMEM: try later. */
static int kvctx_background(struct kvctx_member *m)
{
	/* looked at once: when it has left, a missing member has no device to go on with */
	bool leaving = test_bit(KVCTX_MEMBER_LEAVING, &m->state);
	struct kvc_run *run = m->run;
	int ret;

	if (READ_ONCE(m->pool->stopping))
		return 0;
	/* one that is lost and leaves has work, but none for its device */
	if (kvctx_failed(m) && (!leaving || !test_bit(KVCTX_MEMBER_LOST, &m->state)))
		return 0;
	ret = kvc_run_next(m->pool->core, m->index, run);
	if (ret == 1)
		kvctx_execute_run(m, run);
	else if (!ret && leaving)
		kvctx_leave_look(m->pool);
	else if (!ret)
		ret = kvctx_discard(m, run->w);
	return ret;
}

static void kvctx_worker(struct work_struct *work)
{
	struct kvctx_member *m = container_of(to_delayed_work(work), struct kvctx_member, work);
	unsigned int flags = memalloc_noio_save();
	unsigned long delay;
	int ret;

	do {
		kvctx_serve_flushes(m);
		ret = kvctx_background(m);
		cond_resched();
	} while (ret == 1);
	memalloc_noio_restore(flags);
	delay = ret == -ENOMEM ? KVCTX_RETRY : kvctx_discard_delay(m);
	if (delay && !READ_ONCE(m->pool->stopping))
		queue_delayed_work(m->pool->bg_wq, &m->work, delay);
}

void kvctx_worker_free(struct kvctx_member *m)
{
	kvfree(m->move_buf);
	kvfree(m->run);
	m->move_buf = NULL;
	m->run = NULL;
}

/* 0 or -ENOMEM */
int kvctx_worker_init(struct kvctx_member *m)
{
	INIT_DELAYED_WORK(&m->work, kvctx_worker);
	spin_lock_init(&m->flush_lock);
	INIT_LIST_HEAD(&m->flushes);
	m->move_buf = kvmalloc(KVC_RUN_BYTES, GFP_KERNEL);
	m->run = kvmalloc(sizeof(*m->run), GFP_KERNEL);
	if (m->move_buf && m->run)
		return 0;
	kvctx_worker_free(m);
	return -ENOMEM;
}

/* What the engine calls. While the pool is being built or taken down there is nobody to call. */

static void kvctx_core_kick(void *owner, u32 member)
{
	struct kvctx_pool *p = owner;

	if (READ_ONCE(p->online))
		kvctx_worker_kick(&p->members[member]);
}

static void kvctx_core_space(void *owner)
{
	struct kvctx_pool *p = owner;

	if (READ_ONCE(p->online))
		kvctx_space(p);
}

const struct kvc_ops kvctx_core_ops = {
	.kick	= kvctx_core_kick,
	.space	= kvctx_core_space,
};
