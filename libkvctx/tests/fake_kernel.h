/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A kvctx kernel in memory, in place of sys.c: one node, pages in a list, a real completion ring. Operations complete
 * when the test says so (fake.hold) or at once.
 */
#ifndef FAKE_KERNEL_H
#define FAKE_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "handle.h"

struct fake {
	bool hold;		/* completions are kept back until fake_release() */
	bool rdonly;
	int fail_open, fail_info, fail_setup, fail_register, fail_match;	/* -errno, or 0 */
	int fail_op;		/* res of the next operation, or 0 */
	int mmaps_left;		/* -1: no limit */
	uint32_t abi_version;
	unsigned int submits, waits;	/* system calls made */
	unsigned int registrations;	/* now */
	unsigned int maps, fds;		/* now */
};

extern struct fake fake;

void fake_reset(void);
void fake_release(unsigned int n);	/* let n held completions into the ring */
unsigned int fake_pages(void);

#endif
