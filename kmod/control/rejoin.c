// SPDX-License-Identifier: GPL-2.0
/*
 * A member that was lost returns to its pool, which need not be attached anew: the transport gave its device up, and
 * there is another node for it now; or the device was there all the time, and could not be written.
 *
 * In steps, of which the first change nothing:
 *   open      the device, unless the member has it open still, and read its superblocks: it is that member, and nobody
 *             has written to it since
 *   wait      until what was begun on it has come to its end: what is queued is sent to a dead device, and fails
 *   check     its logs, see core/log/return.c
 *   take      the device: from now on it is the member's, whatever becomes of this, and the one before is closed
 *   write     the superblock that all others have, if there are any, to it; then one that says that the member is
 *             there, to it and then to all
 *   join      it is used
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "ctrl.h"

#define KVCTX_REJOIN_WAIT	(30 * HZ)	/* for what was begun before the loss */
#define KVCTX_REJOIN_LOOK	(HZ / 20)
#define KVCTX_REJOIN_SEGMENTS	256		/* between two looks at what others have become */

/* Open */

/* The device of this node, if a member has it open */
static struct kvctx_device *kvctx_rejoin_kept(struct kvctx_pool *p, const char *path)
{
	dev_t devt;
	u32 i;

	if (lookup_bdev(path, &devt))
		return NULL;			/* opening it will tell */
	for (i = 0; i < p->nr_members; i++) {
		struct kvctx_member *m = &p->members[i];

		if (m->dev && m->bdev->bd_dev == devt && !READ_ONCE(m->dev->gone))
			return m->dev;
	}
	return NULL;
}

/* The device is open, and @super is what it says. Whose is it? */
static int kvctx_rejoin_identify(struct kvctx_pool *p, const struct kvctx_device *dev, bool kept,
				 const struct kvc_super *super, struct netlink_ext_ack *extack)
{
	const struct kvc_super *s = kvc_super_of(p->core);
	const struct kvctx_member *m = &p->members[dev->index];
	u64 need;

	if (memcmp(super->pool_uuid, s->pool_uuid, KVC_UUID_LEN))
		return kvctx_refuse(extack, dev->path, -EXDEV, "of another pool, %s", super->pool_name);
	if (dev->index >= s->nr_members || memcmp(dev->uuid, s->members[dev->index].uuid, KVC_UUID_LEN))
		return kvctx_refuse(extack, dev->path, -EXDEV, "no member of the pool any more");
	if (kvc_member_online(p->core, dev->index))
		return kvctx_refuse(extack, dev->path, -EEXIST, "member %u, which is online", dev->index);
	need = kvc_device_bytes(s->members[dev->index].nr_segments, s->segment_size);
	if (bdev_nr_bytes(dev->bdev) < need)
		return kvctx_refuse(extack, dev->path, -ENOSPC, "too small, the pool needs %llu bytes", need);
	if (test_bit(KVCTX_MEMBER_MISSING, &m->state))
		return kvctx_refuse(extack, dev->path, -EINVAL, "was missing at the attach: attach again");
	if (test_bit(KVCTX_MEMBER_LEAVING, &m->state))
		return kvctx_refuse(extack, dev->path, -EBUSY, "member %u, which leaves", dev->index);
	if (kept && m->dev != dev)
		return kvctx_refuse(extack, dev->path, -EBUSY, "open as the device of another member");
	if (dev->seq != m->super_seq)
		return kvctx_refuse(extack, dev->path, -ESTALE, "not as it was left: attach again");
	return 0;
}

static int kvctx_rejoin_open(struct kvctx_pool *p, struct kvctx_device *dev, bool kept, struct netlink_ext_ack *extack)
{
	struct kvc_super *super = kvzalloc(sizeof(*super), GFP_KERNEL);
	int err = super ? 0 : -ENOMEM;

	if (!err && !kept)
		err = kvctx_device_open(dev, extack);
	if (!err)
		err = kvctx_device_read_super(dev, super, extack);
	if (!err)
		err = kvctx_rejoin_identify(p, dev, kept, super, extack);
	kvfree(super);
	return err;
}

/* Wait, check */

/* Was it there when the last superblock was written that anybody took? */
static bool kvctx_rejoin_newest(const struct kvctx_pool *p, const struct kvctx_device *dev)
{
	return dev->seq == p->super_seq && !(dev->was[dev->index].flags & KVC_MEMBER_ABSENT);
}

/* As kvc_member_may_return(); nor is its worker at something, or its loss not told yet. */
static int kvctx_rejoin_may(struct kvctx_pool *p, const struct kvctx_device *dev)
{
	struct kvctx_member *m = &p->members[dev->index];

	if (!test_bit(KVCTX_MEMBER_LOST, &m->state) || work_busy(&m->work.work) & WORK_BUSY_RUNNING)
		return -EBUSY;
	return kvc_member_may_return(p->core, dev->index, kvctx_rejoin_newest(p, dev));
}

static int kvctx_rejoin_wait(struct kvctx_pool *p, const struct kvctx_device *dev, struct netlink_ext_ack *extack)
{
	unsigned long until = jiffies + KVCTX_REJOIN_WAIT;
	int err;

	while ((err = kvctx_rejoin_may(p, dev)) == -EBUSY && time_before(jiffies, until)) {
		schedule_timeout_killable(KVCTX_REJOIN_LOOK);
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	if (err == -ESTALE)
		return kvctx_refuse(extack, dev->path, err, "others were lost later: these have to return first");
	if (err)
		return kvctx_refuse(extack, dev->path, err, "operations that began before are under way");
	/* it tells of the device that is let go, behind the bit */
	flush_work(&p->members[dev->index].lost_work);
	return 0;
}

static int kvctx_rejoin_segment(struct kvctx_pool *p, const struct kvctx_device *dev, u32 segment, void *buf,
				struct netlink_ext_ack *extack)
{
	struct kvc_recheck at;
	int ret = kvc_recheck_start(p->core, dev->index, segment, &at), err;

	while (ret == 1) {
		err = kvctx_io(dev->bdev, REQ_OP_READ, at.offset, buf, at.len);
		if (err)
			return kvctx_refuse(extack, dev->path, err, "not read at %llu, error %d", at.offset, -err);
		ret = kvc_recheck_feed(p->core, &at, buf);
	}
	if (ret)
		return kvctx_refuse(extack, dev->path, ret, "segment %u not as it was left: attach again", segment);
	return 0;
}

static int kvctx_rejoin_check(struct kvctx_pool *p, const struct kvctx_device *dev, struct netlink_ext_ack *extack)
{
	void *buf = kvmalloc(KVC_RECOVER_IO, GFP_KERNEL);
	u32 nr = kvc_nr_segments(p->core, dev->index), i;
	int err = buf ? 0 : -ENOMEM;

	for (i = 0; i < nr && !err; i++) {
		err = kvctx_rejoin_segment(p, dev, i, buf, extack);
		/* leave_work waits for the lock meanwhile */
		if (i % KVCTX_REJOIN_SEGMENTS == 0)
			kvctx_write_losses(p);
		cond_resched();
		if (!err && fatal_signal_pending(current))
			err = -EINTR;
	}
	kvfree(buf);
	return err;
}

/* Take, write, join */

/* Nothing of the old one is in anybody's hands, as that was waited for, but under RCU and in peers' paths. */
static void kvctx_rejoin_take(struct kvctx_member *m, struct kvctx_device *dev)
{
	struct kvctx_device *old = m->dev;

	if (old == dev)
		return;
	WRITE_ONCE(m->bdev, dev->bdev);
	synchronize_rcu();
	kvctx_peers_member(m);
	mutex_lock(&kvctx_mutex);
	kvctx_member_device(m, dev);
	kvctx_generation++;
	mutex_unlock(&kvctx_mutex);
	kvctx_device_close(old);
	kvctx_device_free(old);
}

static int kvctx_rejoin_stay_lost(struct kvctx_member *m, int err, struct netlink_ext_ack *extack)
{
	mutex_lock(&kvctx_mutex);
	kvc_member_stay_lost(m->pool->core, m->index);
	mutex_unlock(&kvctx_mutex);
	return kvctx_refuse(extack, m->dev->path, err, "its superblock could not be written");
}

/* Nobody but this one looks at the device, as the member is lost. */
static int kvctx_rejoin_write(struct kvctx_member *m, struct netlink_ext_ack *extack)
{
	struct kvctx_pool *p = m->pool;
	bool newest = kvctx_rejoin_newest(p, m->dev);
	int lost = kvc_member_may_return(p->core, m->index, newest), err = 0;

	if (!lost && !newest)
		err = kvctx_member_write_super(m);
	if (!lost && !err) {
		mutex_lock(&kvctx_mutex);
		lost = kvc_member_return(p->core, m->index, newest);
		mutex_unlock(&kvctx_mutex);
	}
	if (!lost && !err)
		err = kvctx_member_write_super(m);
	if (lost)
		err = kvctx_refuse(extack, m->dev->path, lost, "another loss in the midst of this, error %d", -lost);
	else if (err)
		err = kvctx_rejoin_stay_lost(m, err, extack);
	/* who does not take it is lost */
	kvctx_members_write_super(p);
	return err;
}

static void kvctx_rejoin_join(struct kvctx_member *m)
{
	struct kvctx_pool *p = m->pool;

	clear_bit(KVCTX_MEMBER_LOST, &m->state);
	/* pairs with the acquire in kvctx_failed(): who is told no sees the device */
	clear_bit_unlock(KVCTX_MEMBER_FAILED, &m->state);
	if (!kvctx_device_bind(m->dev, m))
		kvctx_member_failed(m);
	kvc_member_returned(p->core, m->index);
	/* a loss before that was none to the engine */
	if (test_bit(KVCTX_MEMBER_FAILED, &m->state))
		kvc_member_fail(p->core, m->index);
	mutex_lock(&kvctx_mutex);
	kvctx_generation++;
	mutex_unlock(&kvctx_mutex);
	/* flushes may have come, that went on waiting */
	kvctx_worker_kick(m);
}

static int kvctx_rejoin_device(struct kvctx_pool *p, struct kvctx_device *dev, bool *taken,
			       struct netlink_ext_ack *extack)
{
	struct kvctx_member *m = &p->members[dev->index];
	int err = kvctx_rejoin_wait(p, dev, extack);

	if (!err)
		err = kvctx_rejoin_check(p, dev, extack);
	if (err)
		return err;
	kvctx_rejoin_take(m, dev);
	*taken = true;
	err = kvctx_rejoin_write(m, extack);
	if (err)
		return err;
	kvctx_rejoin_join(m);
	pr_info("kvctx: pool %s: member %u (%s) is back\n", p->name, m->index, dev->path);
	kvctx_event_member(KVCTX_CMD_POOL_REJOIN, m);
	return 0;
}

/* Losses that have begun are complete, and known to the others. */
static void kvctx_rejoin_losses(struct kvctx_pool *p)
{
	u32 i;

	for (i = 0; i < p->nr_members; i++)
		flush_work(&p->members[i].lost_work);
	kvctx_write_losses(p);
}

int kvctx_pool_rejoin(struct kvctx_pool *p, const struct nlattr *device, struct netlink_ext_ack *extack)
{
	struct kvctx_device *kept, *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	bool taken = false;
	int err;

	lockdep_assert_held(&p->admin_lock);
	if (!dev)
		return -ENOMEM;
	dev->path = nla_strdup(device, GFP_KERNEL);
	kept = dev->path ? kvctx_rejoin_kept(p, dev->path) : NULL;
	kvctx_rejoin_losses(p);
	err = dev->path ? kvctx_rejoin_open(p, kept ?: dev, kept, extack) : -ENOMEM;
	if (!err)
		err = kvctx_rejoin_device(p, kept ?: dev, &taken, extack);
	if (kept || !taken) {
		kvctx_device_close(dev);
		kvctx_device_free(dev);
	}
	return err;
}
