/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the files of the library share.
 *
 * Locking: @lock guards everything behind it. It is held across a synchronous operation, so that nobody else takes its
 * completion, but not while kvctx_wait() sleeps: that takes nothing from the ring. The queue of operations (@sqes,
 * @queued) has no lock: one submitter.
 */
#ifndef KVCTX_HANDLE_H
#define KVCTX_HANDLE_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "kvctx.h"

struct kvctx_reg {
	uintptr_t addr;
	size_t len;
	uint32_t id;
};

struct kvctx {
	int fd;
	bool rdonly;
	struct kvctx_info info;
	struct kvctx_cq_ring *ring;
	size_t ring_bytes;
	uint32_t ring_entries;
	void *arena;
	size_t arena_bytes;

	struct kvctx_sqe *sqes;
	uint32_t queued, queue_len;

	pthread_mutex_t lock;
	struct kvctx_reg *regs;
	size_t nr_regs, max_regs;
	/* Completions that a synchronous call met while it looked for its own; room for two rings' worth */
	struct kvctx_cqe *stash;
	uint32_t stash_head, stash_len;
	uint64_t sync_serial;
};

/* The system calls, in one place; tests put their own kernel behind it. Like the calls, but -errno. */
int kvctx_sys_open(const char *path, int flags);
int kvctx_sys_ioctl(int fd, unsigned long nr, void *arg);
void *kvctx_sys_mmap(int fd, size_t len, int prot, uint64_t offset);	/* NULL: errno is set */
void kvctx_sys_munmap(void *p, size_t len);
void kvctx_sys_close(int fd);

/* ring.c; with ctx->lock held */
uint32_t kvctx_ring_count(const struct kvctx *ctx);
int kvctx_ring_take(struct kvctx *ctx, struct kvctx_cqe *cqe);	/* 1, 0: empty, -errno */

/* handle.c; with ctx->lock held */
bool kvctx_find_memory(const struct kvctx *ctx, const void *buf, size_t len, struct kvctx_seg *seg);

#endif
