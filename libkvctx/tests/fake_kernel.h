/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A kvctx kernel in memory, a server in place of sys.c's: one tenant with its pages, and sessions with a real
 * completion ring, whose memory is mapped as the kernel would map it. Stricter than needed where
 * the library could go wrong unseen: what the module refuses as malformed ends the test.
 *
 * Operations complete while they are submitted, or when the test says so (@hold, fake_release()),
 * or in random order at random times (fake_disk_start()). What they do, they do when they complete.
 */
#ifndef FAKE_KERNEL_H
#define FAKE_KERNEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "handle.h"

#define FAKE_PATH	"/dev/kvctx/p/t"

struct fake {
	/* what the test wants; plain numbers, changed while no other thread runs */
	bool hold;			/* operations of the queue are kept back */
	bool hold_calls;		/* those of synchronous calls, too */
	bool by_looking;		/* what is kept back completes when the library looks */
	int fail_open, fail_info, fail_setup, fail_register, fail_unregister, fail_match, fail_submit;
	int fail_consume;		/* -errno of WAITs that consume */
	int fail_wait;			/* -errno of the next fail_waits waits that would sleep */
	unsigned int fail_waits;
	int fail_op;			/* result of the next operation that is no query */
	unsigned int submit_max;	/* most operations that one SUBMIT takes; 0: no limit */
	void (*on_wait)(void);		/* called in each WAIT that may sleep */
	void (*on_info)(void);		/* and in each INFO */
	uint64_t features;		/* that INFO tells of */
	int mmaps_left;			/* -1: no limit */
	uint32_t abi_version, cq_max;
	const void *unpinnable;		/* memory that cannot be registered */
	const uint8_t *peer;		/* peer memory, not mapped, whose bytes are at @peer_bytes */
	uint8_t *peer_bytes;
	size_t peer_len;
	bool no_path;			/* no member reaches it */
	bool budget_spent;		/* pages that are not there are not admitted */
	int fail_paths;

	/* what the test may look at */
	struct kvctx_setup setup;	/* of the newest session */
	int open_flags;
	unsigned int submits, waits;	/* system calls made; not those WAITs that only consume */
	unsigned int looks;
	unsigned int registered;	/* system calls made */
	unsigned int registrations, maps, fds;	/* there are now */
	uint64_t timeout_ns;		/* of the newest operation */
};

extern struct fake fake;

void fake_reset(void);
void fake_release(unsigned int n);	/* let the n oldest that are kept back complete, in order */
void fake_release_newest(void);
bool fake_readable(void);		/* is the descriptor, by what the library has told */
void fake_await_kept(unsigned int n);	/* until n are kept back */
void fake_await_sleepers(unsigned int n);	/* until n threads sleep in WAIT or SUBMIT */
void fake_stall_submit(int err);	/* SUBMIT stays in the kernel until fake_go_on(), then fails */
void fake_await_stalled(void);
void fake_go_on(void);
void fake_disk_start(unsigned int seed);	/* a thread that lets any of them complete, any time */
void fake_disk_stop(void);
unsigned int fake_pages(void);
unsigned int fake_waits(void);	/* fake.waits, while other threads run */

/* fake_pages.c, for fake_kernel.c */
struct fake_op {
	struct kvctx_sqe sqe;
	struct kvctx_seg segs[8];
};

struct fake_memory {
	uint8_t *addr;
	uint64_t len;
	unsigned int users;
	bool peer;
};

#define FAKE_CHUNK	4096
#define FAKE_MEMORIES	64

#define FAKE_SLOTS	16

struct fake_slots {
	uint8_t *addr;
	uint32_t bytes, nr;
	unsigned int gets[FAKE_SLOTS];
	bool full[FAKE_SLOTS];
	struct kvctx_key key[FAKE_SLOTS];
};

extern struct fake_slots fake_slots;
extern struct fake_memory fake_memories[FAKE_MEMORIES];	/* [0] is the arena */

int fake_do_op(const struct fake_op *op, bool rdonly, uint32_t *flags);
void fake_match(struct kvctx_match *m);
void fake_drop_pages(void);

#endif
