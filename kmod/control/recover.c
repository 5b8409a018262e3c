// SPDX-License-Identifier: GPL-2.0
/*
 * Recovery at attach: reads the summaries of every segment.
 *
 * A few readers share each member; a reader takes the next segment of its member, reads what the engine asks for, and
 * feeds it. All of them run at the same time, so the devices have work and so have the processors. A fatal signal to
 * the attaching process ends it early.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "ctrl.h"

#define KVCTX_READERS		16U	/* in total, if that gives each member at least one */
#define KVCTX_READERS_MEMBER	4U	/* of one member at most */

struct kvctx_recovery;

struct kvctx_reader {
	struct work_struct work;
	struct kvctx_recovery *recovery;
	struct kvctx_member *member;
	void *buf;
	u64 bytes;			/* read so far */
};

struct kvctx_recovery {
	struct kvctx_pool *pool;
	struct completion done;
	atomic_t running;
	int err;			/* ends it early */
	u32 nr_readers;
	struct {
		u32 nr;
		atomic_t next;
	} members[KVC_MEMBERS_MAX];
	struct kvctx_reader readers[];
};

static int kvctx_recover_segment(struct kvctx_reader *r, u32 segment)
{
	struct kvc_pool *core = r->recovery->pool->core;
	struct kvc_recover at;
	int ret;

	kvc_recover_start(core, r->member->index, segment, &at);
	at.keep = r->buf;
	do {
		int err = kvctx_io(r->member->bdev, REQ_OP_READ, at.offset, r->buf + at.at, at.len);

		r->bytes += at.len;
		if (err) {
			percpu_counter_inc(&r->recovery->pool->counters.io_errors);
			pr_err_ratelimited("kvctx: pool %s: member %u not read at %llu, error %d\n",
					   r->recovery->pool->name, r->member->index, at.offset, -err);
		}
		ret = kvc_recover_feed(core, &at, r->buf, err);
		cond_resched();
	} while (ret == 1 && !READ_ONCE(r->recovery->err));
	return min(ret, 0);
}

static void kvctx_reader(struct work_struct *work)
{
	struct kvctx_reader *r = container_of(work, struct kvctx_reader, work);
	struct kvctx_recovery *rec = r->recovery;
	u32 m = r->member->index;

	while (!READ_ONCE(rec->err)) {
		u32 segment = (u32)atomic_fetch_inc(&rec->members[m].next);
		int err;

		if (segment >= rec->members[m].nr || !r->member->bdev)
			break;
		err = kvctx_recover_segment(r, segment);
		if (err)
			WRITE_ONCE(rec->err, err);
	}
	if (atomic_dec_and_test(&rec->running))
		complete(&rec->done);
}

static void kvctx_recovery_free(struct kvctx_recovery *rec)
{
	u32 i;

	for (i = 0; i < rec->nr_readers; i++)
		kvfree(rec->readers[i].buf);
	kvfree(rec);
}

static struct kvctx_recovery *kvctx_recovery_alloc(struct kvctx_pool *p)
{
	u32 each = clamp(KVCTX_READERS / p->nr_members, 1U, KVCTX_READERS_MEMBER);
	struct kvctx_recovery *rec;
	u32 i;

	rec = kvzalloc(struct_size(rec, readers, each * p->nr_members), GFP_KERNEL);
	if (!rec)
		return NULL;
	rec->pool = p;
	init_completion(&rec->done);
	for (i = 0; i < p->nr_members; i++)
		rec->members[i].nr = kvc_nr_segments(p->core, i);
	for (i = 0; i < each * p->nr_members; i++) {
		struct kvctx_reader *r = &rec->readers[i];

		INIT_WORK(&r->work, kvctx_reader);
		r->recovery = rec;
		r->member = &p->members[i % p->nr_members];
		r->buf = kvmalloc(KVC_RECOVER_IO, GFP_KERNEL);
		rec->nr_readers++;
		if (!r->buf) {
			kvctx_recovery_free(rec);
			return NULL;
		}
	}
	atomic_set(&rec->running, (int)rec->nr_readers);
	return rec;
}

int kvctx_recover(struct kvctx_pool *p, struct netlink_ext_ack *extack)
{
	struct kvctx_recovery *rec = kvctx_recovery_alloc(p);
	ktime_t start = ktime_get();
	int err;
	u32 i;

	if (!rec)
		return kvctx_refuse(extack, NULL, -ENOMEM, "no memory to read the summaries");
	for (i = 0; i < rec->nr_readers; i++)
		queue_work(p->bg_wq, &rec->readers[i].work);
	if (wait_for_completion_killable(&rec->done)) {
		WRITE_ONCE(rec->err, -EINTR);
		wait_for_completion(&rec->done);
	}
	err = rec->err;
	for (i = 0; i < rec->nr_readers; i++)
		p->attach_bytes += rec->readers[i].bytes;
	kvctx_recovery_free(rec);
	if (err == -ENOMEM)
		return kvctx_refuse(extack, NULL, err, "no memory for the index");
	if (err)
		return err;
	kvc_recover_finish(p->core);
	p->attach_us = (u64)ktime_us_delta(ktime_get(), start);
	return 0;
}
