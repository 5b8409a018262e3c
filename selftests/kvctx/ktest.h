/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests of the contract in uapi/linux/kvctx.h share: a session opened through the raw ABI, page contents,
 * one-operation calls.
 *
 * The tests speak to whoever serves $KVCTX_NODE, by default /dev/kvctx/t/default, with the calls of libkvctx's seam
 * (sys.h: for a node these are the system calls) and not through what stands on it, so that they prove the ABI itself.
 * excused.c has what a server need not do. The pool must be at least 512 MiB with segments that take pages of 80 MiB.
 */
#ifndef KTEST_H
#define KTEST_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/kvctx.h>

#include "sys.h"

#define KT_MIB	(1UL << 20)
#define KT_SEC	1000000000ULL
#define KT_LIMIT (120 * KT_SEC)	/* longest wait for anything; a test that needs it has failed */

/* Of memory here; another machine's may be 64 KiB */
static inline size_t kt_page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

struct kt {
	struct kvctx_file *file;	/* NULL: none */
	bool rdonly;
	struct kvctx_cq_ring *cq;
	size_t cq_bytes;
	uint8_t *arena;
	size_t arena_bytes;
	uint8_t *slots;		/* mapped for reading */
	size_t slots_bytes;	/* of all of them */
};

const char *kt_node(void);

/* Open and set up; 0 or -errno. @keyspace fills all 16 bytes. */
int kt_open(struct kt *k, int flags, uint8_t keyspace, size_t arena_bytes, unsigned int cq_entries);
/* The same with slots for pages read ahead */
int kt_open_slots(struct kt *k, int flags, uint8_t keyspace, size_t arena_bytes, unsigned int cq_entries,
		  uint32_t slot_bytes, uint32_t nr_slots);
void kt_close(struct kt *k);

/* Only open; 0 or -errno. To be ended with kvctx_sys_close() */
int kt_file(int flags, struct kvctx_file **f);
int kt_ioctl(struct kvctx_file *f, unsigned long nr, void *arg);
/* MAP_FAILED with errno, as mmap() */
void *kt_map(struct kvctx_file *f, size_t len, int prot, uint64_t offset);
/* To poll; and of a node, for io_uring and mmap() with flags of its own */
int kt_fd(const struct kt *k);

int kt_submit(struct kt *k, const struct kvctx_sqe *sqes, unsigned int nr, unsigned int wait_nr);
int kt_wait(struct kt *k, unsigned int min, uint64_t timeout_ns);
/* Take one completion without a system call; false: none */
bool kt_reap(struct kt *k, struct kvctx_cqe *cqe);
/* Submit one operation, wait for its completion; the result, and the flags in *flags unless NULL */
int kt_do(struct kt *k, const struct kvctx_sqe *sqe, uint32_t *flags);

/* A key that no other test process run in this boot uses */
struct kvctx_key kt_key(uint64_t n);

/* That of page @n of the test scripts, the same in every run (pages.c) */
struct kvctx_key kt_page_key(uint64_t n);

struct kvctx_sqe kt_sqe(enum kvctx_opcode op, struct kvctx_key key);
/* STORE or LOAD of @seg; kt_range() adds more than one piece */
struct kvctx_sqe kt_io(enum kvctx_opcode op, struct kvctx_key key, const struct kvctx_seg *segs, unsigned int nr_segs);
struct kvctx_seg kt_seg(uint32_t mem, uint64_t offset, uint32_t length);

/* Whole page at arena offset @at */
int kt_store(struct kt *k, struct kvctx_key key, uint64_t at, uint32_t length, uint32_t *flags);
int kt_load(struct kt *k, struct kvctx_key key, uint64_t at, uint32_t length, uint32_t *flags);
int kt_op(struct kt *k, enum kvctx_opcode op, struct kvctx_key key);

/* Fill with bytes that depend on seed and position; index of the first wrong byte, or -1 */
void kt_fill(void *p, size_t n, uint64_t seed);
long kt_check(const void *p, size_t n, uint64_t seed);

/*
 * Do that with the device "slow": by slow.sh in $KVCTX_SCRIPTS, or in this process (slow_here.c, where it is linked); the
 * number it tells, -1 when it fails
 */
long kt_slow(const char *verb);
long kt_slow_here(const char *verb) __attribute__((weak));

uint64_t kt_now(void);	/* ns */

/* How many times as long things may take here: $KVCTX_PATIENCE, 1 unless told otherwise */
unsigned int kt_patience(void);

#endif
