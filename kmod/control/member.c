// SPDX-License-Identifier: GPL-2.0
/*
 * Members: how they are lost, and their superblocks.
 *
 * A loss begins anywhere (the block layer says that the device is gone, a summary or superblock could not be written)
 * with the bit FAILED, and is completed in lost_work: the engine forgets the pages, pool->losses counts, the bit LOST
 * lets flushes of the member end, the world is told. Flushes wait between the two bits, so none reports success for
 * what was just lost.
 */
#include <linux/blk-mq.h>
#include <linux/slab.h>

#include "ctrl.h"

/* Another member was lost: none of those that were leaving will. */
static void kvctx_leave_stops(struct kvctx_pool *p)
{
	u32 nr = kvctx_nr_members(p), i;

	for (i = 0; i < nr; i++)
		if (test_bit(KVCTX_MEMBER_LEAVING, &p->members[i].state) && !kvc_member_leaves(p->core, i))
			pr_warn("kvctx: pool %s: member %u stays until the next attach, another one was lost\n",
				p->name, i);
}

static void kvctx_member_lost(struct work_struct *work)
{
	struct kvctx_member *m = container_of(work, struct kvctx_member, lost_work);
	struct kvctx_pool *p = m->pool;

	/* pairs with the release in kvctx_members_online(), which looks at FAILED once more */
	if (!smp_load_acquire(&p->online) || test_bit(KVCTX_MEMBER_LOST, &m->state))
		return;
	kvc_member_fail(p->core, m->index);
	atomic_inc(&p->losses);
	/* who sees LOST, as kvctx_serve_flushes() does, sees the loss counted */
	smp_mb__before_atomic();
	set_bit(KVCTX_MEMBER_LOST, &m->state);
	kvctx_worker_kick(m);
	pr_warn("kvctx: pool %s: member %u (%s) lost\n", p->name, m->index, m->dev->path);
	kvctx_leave_stops(p);
	kvctx_event_member(KVCTX_CMD_MEMBER_LOST, m);
	/* queueing the work makes it known to the work */
	WRITE_ONCE(p->loss_unwritten, true);
	kvctx_leave_look(p);
}

/* Make a place for a member: nobody is there. */
int kvctx_member_alloc(struct kvctx_pool *p, u32 index)
{
	struct kvctx_member *m = &p->members[index];

	m->pool = p;
	m->index = index;
	m->state = BIT(KVCTX_MEMBER_FAILED) | BIT(KVCTX_MEMBER_LOST) | BIT(KVCTX_MEMBER_REMOVED);
	INIT_WORK(&m->lost_work, kvctx_member_lost);
	return kvctx_worker_init(m);
}

/*
 * Is it NVMe/TCP, which sends by a socket (data/send.c), or may that be below? Its requests may sleep, those of other
 * transports do not. What has no requests (multipath, device mapper) may stand on it.
 */
static bool kvctx_may_signal(struct block_device *bdev)
{
	struct request_queue *q = bdev_get_queue(bdev);

	return !queue_is_mq(q) ||
	       (q->tag_set->flags & BLK_MQ_F_BLOCKING && !strncmp(bdev->bd_disk->disk_name, "nvme", 4));
}

/* It is the member's from now on; kvctx_mutex, or nobody knows of it yet */
void kvctx_member_device(struct kvctx_member *m, struct kvctx_device *dev)
{
	m->dev = dev;
	WRITE_ONCE(m->bdev, dev->bdev);
	m->no_discard = false;
	m->super_seq = dev->seq;
	if (kvctx_may_signal(dev->bdev))
		WRITE_ONCE(m->pool->may_signal, true);
}

/* A member takes its place, which was allocated. @dev is NULL if it is missing. */
void kvctx_member_enter(struct kvctx_pool *p, u32 index, struct kvctx_device *dev)
{
	struct kvctx_member *m = &p->members[index];

	if (dev) {
		kvctx_member_device(m, dev);
		/* pairs with the acquire in kvctx_failed() */
		smp_store_release(&m->state, 0);
	} else if (!kvc_super_hole(kvc_super_of(p->core), index)) {
		WRITE_ONCE(m->state, BIT(KVCTX_MEMBER_FAILED) | BIT(KVCTX_MEMBER_LOST) | BIT(KVCTX_MEMBER_MISSING));
		kvc_member_fail(p->core, index);
		pr_warn("kvctx: pool %s: member %u is missing\n", p->name, index);
	}
	if (index >= p->nr_members) {
		/* pairs with the acquire in kvctx_nr_members() */
		smp_store_release(&p->nr_members, index + 1);
	}
}

/* Recovery is over. Losses that began meanwhile can be completed, background work begins. */
void kvctx_members_online(struct kvctx_pool *p)
{
	u32 i;

	/* pairs with the acquire in kvctx_member_lost() */
	smp_store_release(&p->online, true);
	/* pairs with the bit set in kvctx_member_failed(): a loss that saw us offline is seen here */
	smp_mb();
	for (i = 0; i < p->nr_members; i++) {
		if (test_bit(KVCTX_MEMBER_FAILED, &p->members[i].state))
			queue_work(p->bg_wq, &p->members[i].lost_work);
		kvctx_worker_kick(&p->members[i]);
	}
}

/*
 * Write the engine's configuration to both ends of a member that is there, one after the other. 0 when one of them took
 * it.
 */
int kvctx_member_write_super(struct kvctx_member *m)
{
	struct kvctx_pool *p = m->pool;
	const struct kvc_super *super = kvc_super_of(p->core);
	u32 copy, written = 0;
	int err = 0;

	lockdep_assert_held(&p->admin_lock);
	kvc_super_encode(super, m->index, p->super_buf);
	for (copy = 0; copy < KVC_SUPER_COPIES; copy++) {
		u64 offset = kvc_super_offset(kvc_super_slot(super->seq, copy), bdev_nr_bytes(m->bdev));
		int r = kvctx_io(m->bdev, REQ_OP_WRITE | REQ_SYNC | REQ_META | REQ_PREFLUSH | REQ_FUA, offset,
				 p->super_buf, KVC_SUPER_BYTES);

		kvctx_count_written(p, &p->counters.meta_written, KVC_SUPER_BYTES);
		if (!r) {
			written++;
			continue;
		}
		err = r;
		percpu_counter_inc(&p->counters.io_errors);
		if (!test_and_set_bit(KVCTX_MEMBER_WORN, &m->state))
			pr_warn("kvctx: pool %s: member %u (%s): superblock at the %s not written, error %d\n",
				p->name, m->index, m->dev->path, copy ? "end" : "front", -r);
	}
	if (!written)
		return err;
	m->super_seq = super->seq;
	p->super_seq = super->seq;
	return 0;
}

/*
 * Write the engine's configuration to every member that is there. One that cannot be written is lost: it must not come
 * back with an older configuration unnoticed. -EIO: nobody took it.
 */
int kvctx_members_write_super(struct kvctx_pool *p)
{
	const struct kvc_super *super = kvc_super_of(p->core);
	u32 i, written = 0;

	for (i = 0; i < p->nr_members; i++) {
		struct kvctx_member *m = &p->members[i];
		int err;

		if (test_bit(KVCTX_MEMBER_FAILED, &m->state) || kvc_super_hole(super, i))
			continue;
		err = kvctx_member_write_super(m);
		if (!err) {
			written++;
			continue;
		}
		pr_err_ratelimited("kvctx: pool %s: superblock of member %u not written, error %d\n",
				   p->name, i, -err);
		kvctx_member_failed(m);
	}
	return written ? 0 : -EIO;
}
