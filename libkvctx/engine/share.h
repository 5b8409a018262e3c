/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * For who serves sessions of the engine to other processes (kvctxd): what these can map, and when to tell them. After
 * SETUP, and for files that kvctx_sys_open() has opened in this process.
 */
#ifndef KVE_SHARE_H
#define KVE_SHARE_H

#include <linux/kvctx.h>
#include <linux/types.h>

#include "sys.h"

/* Bytes that SETUP takes for arena and slots, each whole pages of memory. @arg's sizes are within what INFO tells. */
uint64_t kve_share_setup_bytes(const struct kvctx_setup *arg);

/*
 * The memfd of the area at KVCTX_MMAP_*, the session's own: of a fixed size for ever, and for those who get it now not
 * writable unless the caller may write the area. -EINVAL: there is none.
 */
int kve_share_fd(struct kvctx_file *f, uint64_t offset);

/*
 * Have @fn called whenever tail of the ring was moved, and @signalled when the client's eventfd is to be signalled for
 * events, by any thread, one of both at a time; they must not sleep nor call back.
 * From now on a thread of the engine's sees to completions at once, as nobody in this process waits for them.
 */
void kve_share_posted(struct kvctx_file *f, void (*fn)(void *arg), void (*signalled)(void *arg), void *arg);

/* What CANCELs of these user_data do, which ascend: how many were cancelled. All queues are walked once. */
uint32_t kve_share_cancel(struct kvctx_file *f, const __u64 *names, uint32_t nr);

/*
 * kvctx_sys_close(), which may return while a device that does not answer holds on to memory of the file's. @ended is
 * called when nothing moves any more: before this returns, or later by a thread of the engine's. Until then registered
 * memory stays where it is.
 */
void kve_share_close(struct kvctx_file *f, void (*ended)(void *arg), void *arg);

#endif
