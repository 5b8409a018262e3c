/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The only place for differences between kernels. The rest of the module is written for the newest one.
 *
 * Each entry tells what changed, since when, and when it can go. The presence of an interface is asked for rather than
 * a version where the preprocessor can see it, since stable kernels take changes back.
 */
#ifndef KVCTX_COMPAT_H
#define KVCTX_COMPAT_H

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/io_uring/cmd.h>
#include <linux/pci.h>

/*
 * Does a device's driver offer memory to peers? pci_has_p2pmem() told so in 6.12 and is gone in 7.2; the field is used
 * only with CONFIG_PCI_P2PDMA. Can go when a kernel has a call for it again.
 */
#ifdef CONFIG_PCI_P2PDMA
#define kvctx_has_peer_memory(pdev)	rcu_access_pointer((pdev)->p2pdma)
#else
#define kvctx_has_peer_memory(pdev)	((void)(pdev), false)
#endif

/*
 * io_uring commands. Three things changed, not in one version: importing a registered buffer takes the issue flags
 * (between 6.14 and 6.17), completing with a second result is a call of its own, task work gets a request instead of a
 * command (both between 6.17 and 7.0). Kbuild looks for the first two. Each can go with the last kernel before it.
 */
static inline int kvctx_uring_import(struct io_uring_cmd *cmd, u64 addr, u32 length, int dir, struct iov_iter *iter,
				     unsigned int issue_flags)
{
#ifdef KVCTX_URING_IMPORT_FLAGS
	return io_uring_cmd_import_fixed(addr, length, dir, iter, cmd, issue_flags);
#else
	return io_uring_cmd_import_fixed(addr, length, dir, iter, cmd);
#endif
}

static inline void kvctx_uring_done(struct io_uring_cmd *cmd, s32 res, u64 extra, bool cqe32,
				    unsigned int issue_flags)
{
#ifdef KVCTX_URING_DONE32
	if (cqe32)
		io_uring_cmd_done32(cmd, res, extra, issue_flags);
	else
		io_uring_cmd_done(cmd, res, issue_flags);
#else
	io_uring_cmd_done(cmd, res, extra, issue_flags);
#endif
}

/* KVCTX_URING_TASK_WORK(name, fn): define @name for io_uring_cmd_do_in_task_lazy(), it calls fn(cmd, issue_flags). */
#ifdef IO_URING_CMD_TASK_WORK_ISSUE_FLAGS
#define KVCTX_URING_TASK_WORK(name, fn)							\
static void name(struct io_tw_req req, io_tw_token_t token)				\
{											\
	fn(io_uring_cmd_from_tw(req), IO_URING_CMD_TASK_WORK_ISSUE_FLAGS);		\
}
#else
#define KVCTX_URING_TASK_WORK(name, fn)							\
static void name(struct io_uring_cmd *cmd, unsigned int issue_flags)			\
{											\
	fn(cmd, issue_flags);								\
}
#endif

/*
 * The system's queue for work that is bound to no processor. Renamed in 6.18, which Kbuild looks for. Can go with the
 * last kernel before.
 */
#ifdef KVCTX_DFL_WQ
#define kvctx_system_wq		system_dfl_wq
#else
#define kvctx_system_wq		system_unbound_wq
#endif

/*
 * Write streams: a number from 1 to so many as the device has. Since 6.16; a field of struct bio, which Kbuild looks
 * for. Can go when 6.12 does.
 */
#ifdef KVCTX_WRITE_STREAMS
static inline u32 kvctx_max_write_streams(struct block_device *bdev)
{
	return bdev_max_write_streams(bdev);
}

static inline void kvctx_set_write_stream(struct bio *bio, u32 stream)
{
	bio->bi_write_stream = (u8)min(stream, 255U);
}
#else
static inline u32 kvctx_max_write_streams(struct block_device *bdev)
{
	return 0;
}

static inline void kvctx_set_write_stream(struct bio *bio, u32 stream)
{
}
#endif

#endif
