// SPDX-License-Identifier: GPL-2.0
/*
 * Block devices: opening them for ourselves alone, superblocks.
 *
 * The holder of a device is its struct kvctx_device, so that opening the same one twice is refused, and so that the
 * block layer can tell us when it goes away. That call may come at any time between open and close, also before the
 * device is a member: it is remembered.
 */
#include <linux/file.h>
#include <linux/slab.h>

#include "ctrl.h"

int kvctx_refuse(struct netlink_ext_ack *extack, const char *path, int err, const char *fmt, ...)
{
	char text[NETLINK_MAX_FMTMSG_LEN], why[NETLINK_MAX_FMTMSG_LEN];
	size_t room, len;
	va_list args;

	va_start(args, fmt);
	len = vscnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	if (!path) {
		NL_SET_ERR_MSG_FMT(extack, "%s", why);
		return err;
	}
	room = sizeof(text) - 1 - min_t(size_t, len, 60) - 2;
	len = strlen(path);
	if (len <= room)
		scnprintf(text, sizeof(text), "%s: %s", path, why);
	else
		scnprintf(text, sizeof(text), "...%s: %s", path + len - (room - 3), why);
	NL_SET_ERR_MSG_FMT(extack, "%s", text);
	return err;
}

/* Called with bd_holder_lock held, which it has to drop */
static void kvctx_device_dead(struct block_device *bdev, bool surprise)
{
	struct kvctx_device *dev = bdev->bd_holder;

	dev->gone = true;
	if (dev->member)
		kvctx_member_failed(dev->member);
	mutex_unlock(&bdev->bd_holder_lock);
}

static const struct blk_holder_ops kvctx_holder_ops = {
	.mark_dead	= kvctx_device_dead,
};

static const char *kvctx_open_error(int err)
{
	switch (err) {
	case -EBUSY:
		return "in use (mounted, or opened exclusively)";
	case -ENOENT:
		return "no such device node";
	case -ENOTBLK:
		return "not a block device";
	case -ENXIO:
	case -ENODEV:
		return "no device behind this node";
	case -EACCES:
	case -EROFS:
	case -EPERM:
		return "may not be written";
	default:
		return NULL;
	}
}

int kvctx_device_open(struct kvctx_device *dev, struct netlink_ext_ack *extack)
{
	blk_mode_t mode = BLK_OPEN_READ | BLK_OPEN_WRITE | BLK_OPEN_RESTRICT_WRITES;
	const char *why;
	struct file *file;
	int err;

	file = bdev_file_open_by_path(dev->path, mode, dev, &kvctx_holder_ops);
	if (IS_ERR(file)) {
		err = PTR_ERR(file);
		why = kvctx_open_error(err);
		if (why)
			return kvctx_refuse(extack, dev->path, err, "%s", why);
		return kvctx_refuse(extack, dev->path, err, "cannot be opened, error %d", -err);
	}
	dev->file = file;
	dev->bdev = file_bdev(file);
	if (bdev_logical_block_size(dev->bdev) > KVC_BLOCK)
		return kvctx_refuse(extack, dev->path, -EINVAL, "logical blocks of %u bytes, at most %u",
				    bdev_logical_block_size(dev->bdev), KVC_BLOCK);
	if (bdev_is_zoned(dev->bdev))
		return kvctx_refuse(extack, dev->path, -EOPNOTSUPP, "zoned devices are not supported");
	return 0;
}

/* From now on the member is told when the device goes away. False: it is gone already. */
bool kvctx_device_bind(struct kvctx_device *dev, struct kvctx_member *m)
{
	bool gone;

	mutex_lock(&dev->bdev->bd_holder_lock);
	dev->member = m;
	gone = dev->gone;
	mutex_unlock(&dev->bdev->bd_holder_lock);
	return !gone;
}

/* Gives up the claim at once: nothing of us is called any more, and others may open the device. */
void kvctx_device_close(struct kvctx_device *dev)
{
	if (dev->file)
		bdev_fput(dev->file);
}

void kvctx_device_free(struct kvctx_device *dev)
{
	kfree(dev->path);
	kfree(dev);
}

/* What the slots of a device say */
struct kvctx_super_slots {
	struct kvc_super super[KVC_SUPER_SLOTS];
	enum kvc_reason why[KVC_SUPER_SLOTS];
	int err;				/* a slot could not be read */
};

static void kvctx_read_slots(struct kvctx_device *dev, struct kvctx_super_slots *s, void *buf)
{
	u32 i;

	for (i = 0; i < KVC_SUPER_SLOTS; i++) {
		u64 offset = kvc_super_offset(i, bdev_nr_bytes(dev->bdev));
		int err = kvctx_io(dev->bdev, REQ_OP_READ, offset, buf, KVC_SUPER_BYTES);

		if (err)
			s->err = err;
		s->why[i] = err ? KVC_BAD_CRC : kvc_super_read(buf, i, &s->super[i]);
	}
}

/* No slot is good: which reason tells most */
static int kvctx_refuse_slots(struct kvctx_device *dev, const struct kvctx_super_slots *s,
			      struct netlink_ext_ack *extack)
{
	u32 i;

	if (s->err)
		return kvctx_refuse(extack, dev->path, s->err, "superblock cannot be read, error %d", -s->err);
	for (i = 0; i < KVC_SUPER_SLOTS; i++)
		if (s->why[i] == KVC_BAD_VERSION || s->why[i] == KVC_BAD_FEATURES)
			return kvctx_refuse(extack, dev->path, -EOPNOTSUPP, "superblock: %s",
					    kvc_reason_str(s->why[i]));
	for (i = 0; i < KVC_SUPER_SLOTS; i++)
		if (s->why[i] != KVC_BAD_MAGIC)
			return kvctx_refuse(extack, dev->path, -EUCLEAN, "superblock damaged: %s",
					    kvc_reason_str(s->why[i]));
	return kvctx_refuse(extack, dev->path, -EMEDIUMTYPE, "no kvctx superblock");
}

/* Fill @super and the device's own facts from the slot that counts. */
int kvctx_device_read_super(struct kvctx_device *dev, struct kvc_super *super, struct netlink_ext_ack *extack)
{
	const struct kvc_super *best;
	struct kvctx_super_slots *slots;
	int err = -ENOMEM;
	u32 chosen;
	void *buf;

	if (bdev_nr_bytes(dev->bdev) < KVC_DEVICE_MIN)
		return kvctx_refuse(extack, dev->path, -EMEDIUMTYPE, "no kvctx superblock, too small for one");
	slots = kvzalloc(sizeof(*slots), GFP_KERNEL);
	buf = kvmalloc(KVC_SUPER_BYTES, GFP_KERNEL);
	if (!slots || !buf)
		goto out;
	kvctx_read_slots(dev, slots, buf);
	chosen = kvc_super_choose(slots->super, slots->why);
	if (chosen == KVC_SUPER_SLOTS) {
		err = kvctx_refuse_slots(dev, slots, extack);
		goto out;
	}
	best = &slots->super[chosen];
	*super = *best;
	dev->seq = best->seq;
	dev->worn = kvc_super_worn(slots->super, slots->why, chosen);
	memcpy(dev->was, best->members, sizeof(dev->was));
	dev->index = best->member_index;
	memcpy(dev->uuid, best->members[dev->index].uuid, KVC_UUID_LEN);
	err = 0;
out:
	kvfree(buf);
	kvfree(slots);
	return err;
}
