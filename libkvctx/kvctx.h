/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libkvctx: KV cache pages on NVMe and NVMe-oF namespaces, through /dev/kvctx/<pool>/<tenant>, or
 * without the module, in files and block devices; see kvctx_open().
 *
 * A handle (struct kvctx) is one session of a tenant with one keyspace. Memory that operations move
 * is the session's arena (pinned memory of its own) or memory registered with kvctx_mem_register().
 * <linux/kvctx.h> has the words, limits and errors; "the kernel" there and here is whoever serves
 * the session.
 *
 * Simple callers use the synchronous functions, which take any buffer and may be called by many
 * threads at once. Others fill operations into the handle's queue (kvctx_get_sqe(),
 * kvctx_prep_*()), hand over many with one system call (kvctx_submit()) and take completions
 * without one (kvctx_take()). Both styles may be mixed on one handle: a synchronous call leaves
 * the completions of others alone.
 *
 * Conventions. Functions return 0 or a count, or -errno; <linux/kvctx.h> gives each errno its one
 * meaning and kvctx_strerror() its text. The library never prints, never ends the process and
 * handles no signals. Sizes are bytes. Pointers are the caller's, and not kept after the call
 * unless a function says so.
 *
 * Threads. Each function says one of
 *   "MT-Safe"        any number of threads, also with other MT-Safe calls and one submitter
 *   "One submitter"  these calls, as a group, belong to one thread of a handle at a time; other
 *                    threads have kvctx_submit_sqes() and operations of their own
 *   "MT-Unsafe"      no other call of the handle at the same time
 * Different handles are independent. No function may be called from a signal handler.
 *
 * Fork. A child inherits the descriptor but neither arena nor completion queue; it must not use
 * the handle, but may call kvctx_close(), which closes the descriptor there and does nothing else. The
 * session ends when parent and child have closed it, which O_CLOEXEC does at exec.
 */
#ifndef KVCTX_LIB_H
#define KVCTX_LIB_H

#include "kvctx_session.h"	/* open, close, memory; one page at a time; keys, checksums, texts */
#include "kvctx_queue.h"	/* many at once: batches, the queue, completions */
#include "kvctx_stage.h"	/* memory that members do not reach */

#endif
