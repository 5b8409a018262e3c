// SPDX-License-Identifier: GPL-2.0
/*
 * How long crc32c() alone takes in this kernel: what the bench holds the cost of verification against.
 *
 * Reading the parameter ns_per_mib measures: 32 MiB of memory, as cold as that of pages just read, in chunks of 4 KiB.
 */
#include <linux/crc32c.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>

#define CRC_CHUNK	4096
#define CRC_PIECES	32		/* of 1 MiB */

static u8 *pieces[CRC_PIECES];
static u32 sum;				/* keeps the compiler from leaving the work out */

static void crc_piece(const u8 *p)
{
	unsigned long at;

	for (at = 0; at < SZ_1M; at += CRC_CHUNK)
		sum ^= crc32c(~0U, p + at, CRC_CHUNK);
	cond_resched();
}

static int crc_get(char *buffer, const struct kernel_param *kp)
{
	u64 start = ktime_get_ns();
	unsigned int i;

	for (i = 0; i < CRC_PIECES; i++)
		crc_piece(pieces[i]);
	return sysfs_emit(buffer, "%llu\n", div_u64(ktime_get_ns() - start, CRC_PIECES));
}

static const struct kernel_param_ops crc_ops = {
	.get = crc_get,
};

module_param_cb(ns_per_mib, &crc_ops, NULL, 0400);
MODULE_PARM_DESC(ns_per_mib, "read: nanoseconds that crc32c() takes for one MiB");

static void crc_free(void)
{
	unsigned int i;

	for (i = 0; i < CRC_PIECES; i++)
		kvfree(pieces[i]);
}

static int __init crc_init(void)
{
	unsigned int i;

	for (i = 0; i < CRC_PIECES; i++) {
		pieces[i] = kvzalloc(SZ_1M, GFP_KERNEL);
		if (!pieces[i]) {
			crc_free();
			return -ENOMEM;
		}
	}
	return 0;
}

static void __exit crc_exit(void)
{
	crc_free();
}

module_init(crc_init);
module_exit(crc_exit);
MODULE_DESCRIPTION("Time that crc32c() takes");
MODULE_LICENSE("GPL");
