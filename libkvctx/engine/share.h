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

/* Bytes that the sessions of its tenant may pin together; 0: no limit. Needs no SETUP */
uint64_t kve_share_pinned_max(struct kvctx_file *f);

struct kve_pool;
struct kvc_super_key;

/*
 * The key of that name in this process's keyrings: its name and what tells it from others. 0; -ENOKEY: there is none, or
 * it cannot be read; -EKEYREVOKED, -EKEYEXPIRED; -EKEYREJECTED: it is none for AES-256-XTS; -ENOMEM
 */
int kve_share_key(const char *name, struct kvc_super_key *key);
/* Is the key of that name this one? 0; as above; -EKEYREJECTED also: it is another */
int kve_share_has_key(const struct kvc_super_key *key);

/* What operations of the tenant in a slot came to, see kmod/session/tally.h. NULL: no memory */
struct kvctx_tally *kve_share_tally(struct kve_pool *p, uint32_t slot);
/* How many of them are in flight and how many wait, where it has a limit on that */
void kve_share_pace(struct kve_pool *p, uint32_t slot, uint32_t *inflight, uint32_t *waiting);

/* Bytes on their way to a member or from it, and how many operations wait for their turn there */
void kve_share_turns(struct kve_pool *p, uint32_t member, __u64 *inflight, __u32 *waiting);

/* What CANCELs of these user_data do, which ascend: how many were cancelled. All queues are walked once. */
uint32_t kve_share_cancel(struct kvctx_file *f, const __u64 *names, uint32_t nr);

/*
 * kvctx_sys_close(), which may return while a device that does not answer holds on to memory of the file's. @ended is
 * called when nothing moves any more: before this returns, or later by a thread of the engine's. Until then registered
 * memory stays where it is.
 */
void kve_share_close(struct kvctx_file *f, void (*ended)(void *arg), void *arg);

#endif
