// SPDX-License-Identifier: GPL-2.0
/*
 * A disk over two namespaces that are one medium, for the crash test: what has to reach the medium at once (FUA) goes
 * through the second, everything else through the first.
 *
 * QEMU's SSD takes the FUA bit of a write and forgets it; outside, all writes of a namespace look alike. With this each
 * way has writes of one kind, so the medium outside knows them apart.
 *
 * A write with PREFLUSH and FUA is a flush of the first namespace, then the write through the second.
 *
 *	modprobe kvctx_twin devices=/dev/nvme0n1,/dev/nvme0n2[,/dev/nvme1n1,/dev/nvme1n2...]
 *
 * makes /dev/twin0, /dev/twin1...
 */
#include <linux/blkdev.h>
#include <linux/module.h>
#include <linux/slab.h>

#define TWINS_MAX 4

struct twin {
	struct gendisk	*disk;
	struct file	*way[2];
};

struct twin_flush {
	struct work_struct work;
	struct twin	*twin;
	struct bio	*bio;		/* to be written behind the flush */
};

static char *devices[2 * TWINS_MAX];
static int nr_devices;
module_param_array(devices, charp, &nr_devices, 0444);
MODULE_PARM_DESC(devices, "two namespaces for each disk");

static struct twin twins[TWINS_MAX];

static void twin_pass(struct twin *t, struct bio *bio, int way)
{
	bio_set_dev(bio, file_bdev(t->way[way]));
	submit_bio_noacct(bio);
}

static void twin_flushed_work(struct work_struct *work)
{
	struct twin_flush *f = container_of(work, struct twin_flush, work);

	f->bio->bi_opf &= ~REQ_PREFLUSH;
	twin_pass(f->twin, f->bio, 1);
	kfree(f);
}

static void twin_flushed(struct bio *flush)
{
	struct twin_flush *f = flush->bi_private;

	f->bio->bi_status = flush->bi_status;
	bio_put(flush);
	if (f->bio->bi_status) {
		bio_endio(f->bio);
		kfree(f);
		return;
	}
	queue_work(system_highpri_wq, &f->work);
}

static void twin_flush_first(struct twin *t, struct bio *bio)
{
	struct twin_flush *f = kmalloc(sizeof(*f), GFP_NOIO);
	struct bio *flush;

	if (!f) {
		bio_io_error(bio);
		return;
	}
	INIT_WORK(&f->work, twin_flushed_work);
	f->twin = t;
	f->bio = bio;
	flush = bio_alloc(file_bdev(t->way[0]), 0, REQ_OP_WRITE | REQ_SYNC | REQ_PREFLUSH, GFP_NOIO);
	flush->bi_private = f;
	flush->bi_end_io = twin_flushed;
	submit_bio(flush);
}

static void twin_submit(struct bio *bio)
{
	struct twin *t = bio->bi_bdev->bd_disk->private_data;

	if (!(bio->bi_opf & REQ_FUA))
		twin_pass(t, bio, 0);
	else if (bio->bi_opf & REQ_PREFLUSH)
		twin_flush_first(t, bio);
	else
		twin_pass(t, bio, 1);
}

static const struct block_device_operations twin_ops = {
	.owner		= THIS_MODULE,
	.submit_bio	= twin_submit,
};

static void twin_destroy(struct twin *t)
{
	int i;

	if (t->disk) {
		del_gendisk(t->disk);
		put_disk(t->disk);
	}
	for (i = 0; i < 2; i++)
		if (t->way[i])
			bdev_fput(t->way[i]);
}

static int twin_open(struct twin *t, char **paths)
{
	int i;

	for (i = 0; i < 2; i++) {
		struct file *file = bdev_file_open_by_path(paths[i], BLK_OPEN_READ | BLK_OPEN_WRITE, t, NULL);

		if (IS_ERR(file))
			return PTR_ERR(file);
		t->way[i] = file;
	}
	return 0;
}

static int twin_create(struct twin *t, int index)
{
	struct queue_limits lim;
	struct gendisk *disk;
	int err;

	err = twin_open(t, &devices[2 * index]);
	if (err)
		return err;
	blk_set_stacking_limits(&lim);
	queue_limits_stack_bdev(&lim, file_bdev(t->way[0]), 0, "twin");
	disk = blk_alloc_disk(&lim, NUMA_NO_NODE);
	if (IS_ERR(disk))
		return PTR_ERR(disk);
	disk->fops = &twin_ops;
	disk->private_data = t;
	snprintf(disk->disk_name, sizeof(disk->disk_name), "twin%d", index);
	set_capacity(disk, bdev_nr_sectors(file_bdev(t->way[0])));
	err = add_disk(disk);
	if (err) {
		put_disk(disk);
		return err;
	}
	t->disk = disk;
	return 0;
}

static void twin_exit(void)
{
	int i;

	for (i = 0; i < TWINS_MAX; i++)
		twin_destroy(&twins[i]);
}

static int __init twin_init(void)
{
	int i, err = 0;

	if (!nr_devices || nr_devices % 2)
		return -EINVAL;
	for (i = 0; i < nr_devices / 2 && !err; i++)
		err = twin_create(&twins[i], i);
	if (err)
		twin_exit();
	return err;
}

module_init(twin_init);
module_exit(twin_exit);
MODULE_DESCRIPTION("test disk whose FUA writes take a way of their own");
MODULE_LICENSE("GPL");
