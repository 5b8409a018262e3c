// SPDX-License-Identifier: GPL-2.0
/*
 * Members that come and go while the pool is in use.
 *
 * Add: the device is opened, what may look like a segment of ours is cleared, the new one and then all other members
 * get the superblock with it; only then it is used. A power cut before one of the others has it leaves the old pool.
 *
 * Remove takes as long as its pages take to leave, so it is only begun by the request: the engine hands out the moves
 * as work of the member. When it has none any more leave_work ends it: the other members are flushed, so that all
 * copies are durable, get the superblock without it, and then its own superblocks are wiped and the device is let go.
 * A detach or a power cut before leaves the pool with the member, and its pages where they were.
 *
 * A member that is lost is noted in the superblocks of the others.
 *
 * leave_work does the end of a removal and the note of a loss. It needs admin_lock, whose holder may want to
 * cancel it: it tries, and comes again.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uuid.h>

#include "ctrl.h"

#define KVCTX_LEAVE_RETRY	(HZ / 10)

/* Add */

static int kvctx_check_blank(struct kvctx_device *dev, struct netlink_ext_ack *extack)
{
	struct kvc_super *super = kvzalloc(sizeof(*super), GFP_KERNEL);
	int err;

	if (!super)
		return -ENOMEM;
	err = kvctx_device_read_super(dev, super, NULL);
	if (!err)
		err = kvctx_refuse(extack, dev->path, -EEXIST, "holds a member of pool %s", super->pool_name);
	else if (err == -EMEDIUMTYPE)
		err = 0;
	else
		kvctx_refuse(extack, dev->path, err, "holds something like a pool, error %d", -err);
	kvfree(super);
	return err;
}

/* The device may have been a member of this pool once: no segment may be taken for one of the new member. */
static int kvctx_clear_segments(struct kvctx_pool *p, struct kvctx_device *dev, u32 nr)
{
	u64 size = kvc_super_of(p->core)->segment_size, offset = KVC_DATA_OFFSET;
	void *block = p->super_buf;
	u32 i, bytes;
	int err = 0;

	for (i = 0; i < nr && !err; i++, offset += size) {
		err = kvctx_io(dev->bdev, REQ_OP_READ, offset, block, KVC_BLOCK);
		if (fatal_signal_pending(current))
			return -EINTR;
		if (err || kvc_extent_peek(block, &bytes) != KVC_OK)
			continue;
		memset(block, 0, KVC_BLOCK);
		err = kvctx_io(dev->bdev, REQ_OP_WRITE | REQ_SYNC | REQ_FUA, offset, block, KVC_BLOCK);
		cond_resched();
	}
	return err;
}

/* The member leaves its place. Nothing of it is in flight, and the engine has nothing to do with it. */
static void kvctx_member_exit(struct kvctx_member *m)
{
	struct kvctx_device *dev = m->dev;

	/*
	 * From now on its worker serves flushes, and does nothing to the device. At once for who is asked what there
	 * is: a member that is seen without LEAVING, and not yet as REMOVED, would be one that stays.
	 */
	mutex_lock(&kvctx_mutex);
	set_bit(KVCTX_MEMBER_REMOVED, &m->state);
	set_bit(KVCTX_MEMBER_FAILED, &m->state);
	set_bit(KVCTX_MEMBER_LOST, &m->state);
	clear_bit(KVCTX_MEMBER_LEAVING, &m->state);
	clear_bit(KVCTX_MEMBER_MISSING, &m->state);
	mutex_unlock(&kvctx_mutex);
	cancel_delayed_work_sync(&m->work);
	/* a loss that began before; another one would see LOST */
	cancel_work_sync(&m->lost_work);
	WRITE_ONCE(m->bdev, NULL);
	synchronize_rcu();
	kvctx_peers_member(m);
	mutex_lock(&kvctx_mutex);
	m->dev = NULL;
	kvctx_generation++;
	mutex_unlock(&kvctx_mutex);
	if (dev) {
		kvctx_device_close(dev);
		kvctx_device_free(dev);
	}
	/* flushes may have come */
	kvctx_worker_kick(m);
}

static int kvctx_engine_add(struct kvctx_pool *p, u32 nr, struct netlink_ext_ack *extack)
{
	u8 uuid[KVC_UUID_LEN];
	int n;

	generate_random_uuid(uuid);
	mutex_lock(&kvctx_mutex);
	n = kvc_member_add(p->core, uuid, nr);
	mutex_unlock(&kvctx_mutex);
	if (n < 0)
		return kvctx_refuse(extack, NULL, n, "the engine does not take it, error %d", -n);
	return n;
}

/* The member is none after all: the others forget it too. */
static void kvctx_engine_cancel(struct kvctx_pool *p, u32 n)
{
	mutex_lock(&kvctx_mutex);
	kvc_member_cancel(p->core, n);
	mutex_unlock(&kvctx_mutex);
	kvctx_members_write_super(p);
}

/* @dev becomes member @n, which the engine knows. An error leaves the device to the caller. */
static int kvctx_member_bring(struct kvctx_pool *p, u32 n, struct kvctx_device *dev, struct netlink_ext_ack *extack)
{
	struct kvctx_member *m = &p->members[n];
	int err;

	if (!m->run) {
		err = kvctx_member_alloc(p, n);
		if (err)
			goto err_engine;
	}
	mutex_lock(&kvctx_mutex);
	kvctx_member_enter(p, n, dev);
	mutex_unlock(&kvctx_mutex);
	/* the new one first: as soon as another names it, it has to be found */
	err = kvctx_device_bind(dev, m) ? kvctx_member_write_super(m) : -ENODEV;
	if (!err)
		err = kvctx_members_write_super(p);
	if (!err && !test_bit(KVCTX_MEMBER_FAILED, &m->state))
		return 0;
	err = kvctx_refuse(extack, dev->path, err ?: -EIO, "no superblock could be written");
	kvctx_engine_cancel(p, n);
	kvctx_member_exit(m);
	return err;

err_engine:
	kvctx_engine_cancel(p, n);
	kvctx_device_close(dev);
	kvctx_device_free(dev);
	return err;
}

/* Could it be a member? Opens it; reads and writes nothing. */
static int kvctx_take_device(struct kvctx_pool *p, struct kvctx_device *dev, u32 *nr, struct netlink_ext_ack *extack)
{
	u64 size = kvc_super_of(p->core)->segment_size;
	bool room;
	int err;

	err = kvctx_device_open(dev, extack);
	if (err)
		return err;
	*nr = kvc_device_segments(bdev_nr_bytes(dev->bdev), size);
	if (!*nr)
		return kvctx_refuse(extack, dev->path, -ENOSPC, "too small, a member needs %llu bytes",
				    kvc_device_bytes(KVC_SEGMENTS_MIN, size));
	mutex_lock(&kvctx_mutex);
	room = kvc_member_room(p->core);
	mutex_unlock(&kvctx_mutex);
	if (!room)
		return kvctx_refuse(extack, NULL, -ENOSPC, "pool %s has no place for another member", p->name);
	return 0;
}

/* Returns the number of the new member. */
static int kvctx_add_device(struct kvctx_pool *p, struct kvctx_device *dev, u32 nr, struct netlink_ext_ack *extack)
{
	int err = kvctx_check_blank(dev, extack);

	if (err)
		return err;
	err = kvctx_clear_segments(p, dev, nr);
	if (err)
		return kvctx_refuse(extack, dev->path, err, "cannot be cleared, error %d", -err);
	return kvctx_engine_add(p, nr, extack);
}

int kvctx_pool_add(struct kvctx_pool *p, const struct nlattr *device, bool dry_run, struct netlink_ext_ack *extack)
{
	struct kvctx_device *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	u32 nr = 0;
	int n, err;

	lockdep_assert_held(&p->admin_lock);
	if (!dev)
		return -ENOMEM;
	dev->path = nla_strdup(device, GFP_KERNEL);
	n = dev->path ? kvctx_take_device(p, dev, &nr, extack) : -ENOMEM;
	if (!n && !dry_run)
		n = kvctx_add_device(p, dev, nr, extack);
	if (n < 0 || dry_run) {
		kvctx_device_close(dev);
		kvctx_device_free(dev);
		return n;
	}
	err = kvctx_member_bring(p, (u32)n, dev, extack);
	if (err)
		return err;
	kvctx_peers_member(&p->members[n]);
	mutex_lock(&kvctx_mutex);
	kvctx_generation++;
	mutex_unlock(&kvctx_mutex);
	kvc_member_join(p->core, (u32)n);
	/* a loss before that was none to the engine */
	if (test_bit(KVCTX_MEMBER_FAILED, &p->members[n].state))
		kvc_member_fail(p->core, (u32)n);
	pr_info("kvctx: pool %s: member %d (%s) added\n", p->name, n, dev->path);
	return 0;
}

/* Remove */

/* Its superblocks, at both ends: nobody shall take it for a member any more. */
static void kvctx_wipe(struct kvctx_member *m)
{
	u32 i;
	int err = 0;

	if (!m->bdev || test_bit(KVCTX_MEMBER_FAILED, &m->state))
		return;
	memset(m->pool->super_buf, 0, KVC_SUPER_BYTES);
	for (i = 0; i < KVC_SUPER_SLOTS; i++)
		err = kvctx_io(m->bdev, REQ_OP_WRITE | REQ_SYNC | REQ_PREFLUSH | REQ_FUA,
			       kvc_super_offset(i, bdev_nr_bytes(m->bdev)), m->pool->super_buf, KVC_SUPER_BYTES) ?: err;
	if (err)
		pr_warn("kvctx: pool %s: %s still has superblocks of the pool, error %d\n", m->pool->name,
			m->dev->path, -err);
}

/* Its pages have left it. */
static void kvctx_member_gone(struct kvctx_member *m)
{
	struct kvctx_pool *p = m->pool;

	/* the copies of its pages have to be durable: what failed is tried again */
	if (kvctx_pool_flush(p)) {
		queue_delayed_work(kvctx_system_wq, &p->leave_work, KVCTX_LEAVE_RETRY);
		return;
	}
	if (!kvc_member_left(p->core, m->index))
		return;
	mutex_lock(&kvctx_mutex);
	kvc_member_remove(p->core, m->index);
	mutex_unlock(&kvctx_mutex);
	if (kvctx_members_write_super(p)) {
		pr_err("kvctx: pool %s: member %u not removed, no superblock could be written\n", p->name, m->index);
		return;
	}
	kvc_member_forget(p->core, m->index);
	kvctx_wipe(m);
	kvctx_event_member(KVCTX_CMD_POOL_REMOVE, m);
	pr_info("kvctx: pool %s: member %u (%s) removed\n", p->name, m->index, m->dev ? m->dev->path : "missing");
	kvctx_member_exit(m);
}

/*
 * The others note who is there no more: whoever attaches the lost one alone, and then all of them, would have two
 * histories in one.
 */
void kvctx_write_losses(struct kvctx_pool *p)
{
	lockdep_assert_held(&p->admin_lock);
	if (!xchg(&p->loss_unwritten, false))
		return;
	mutex_lock(&kvctx_mutex);
	kvc_super_touch(p->core);
	mutex_unlock(&kvctx_mutex);
	kvctx_members_write_super(p);
}

static void kvctx_leave(struct work_struct *work)
{
	struct kvctx_pool *p = container_of(to_delayed_work(work), struct kvctx_pool, leave_work);
	u32 i;

	if (!mutex_trylock(&p->admin_lock)) {
		queue_delayed_work(kvctx_system_wq, &p->leave_work, KVCTX_LEAVE_RETRY);
		return;
	}
	if (!p->stopping)
		kvctx_write_losses(p);
	for (i = 0; i < p->nr_members && !p->stopping; i++)
		if (test_bit(KVCTX_MEMBER_LEAVING, &p->members[i].state) && kvc_member_left(p->core, i))
			kvctx_member_gone(&p->members[i]);
	mutex_unlock(&p->admin_lock);
}

void kvctx_grow_init(struct kvctx_pool *p)
{
	INIT_DELAYED_WORK(&p->leave_work, kvctx_leave);
}

int kvctx_pool_remove(struct kvctx_pool *p, u32 member, bool move, struct netlink_ext_ack *extack)
{
	struct kvctx_member *m = &p->members[member];
	int err;

	lockdep_assert_held(&p->admin_lock);
	if (member >= p->nr_members || test_bit(KVCTX_MEMBER_REMOVED, &m->state))
		return kvctx_refuse(extack, NULL, -ENOENT, "pool %s has no member %u", p->name, member);
	err = kvc_member_leave(p->core, member, move);
	if (err == -EBUSY)
		return kvctx_refuse(extack, NULL, err, "no member but %u is online, or it has just returned", member);
	if (err)
		return kvctx_refuse(extack, NULL, err, "member %u is leaving already", member);
	mutex_lock(&kvctx_mutex);
	set_bit(KVCTX_MEMBER_LEAVING, &m->state);
	kvctx_generation++;
	mutex_unlock(&kvctx_mutex);
	kvctx_worker_kick(m);
	return 0;
}
