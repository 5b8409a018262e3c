/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The fuzzer of the module's ABI: what its parts tell each other.
 *
 * An input is a program: bytes are taken from its front, one says which call is made, the next ones what is in its
 * structures. Whatever the bytes are, that is some program; behind the end come zeros. Structures are mostly right, since
 * one that is wrong at its size is refused before anything interesting.
 *
 *   main.c      libFuzzer's entry; an input runs, and leaves nothing behind
 *   kcov.c      which blocks of the module it ran, for libFuzzer
 *   memory.c    addresses to pass: right ones, read-only ones, borders, none
 *   session.c   ioctls, mmap and close of a tenant's node
 *   ring.c      io_uring commands
 *   control.c   netlink requests
 */
#ifndef KVCTX_FUZZ_H
#define KVCTX_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvctx_sqe;

struct fuzz_in {
	const uint8_t *at, *end;
};

static inline uint8_t fuzz_byte(struct fuzz_in *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static inline uint32_t fuzz_below(struct fuzz_in *in, uint32_t n)
{
	return fuzz_byte(in) % n;
}

/* One of 16 */
static inline bool fuzz_rarely(struct fuzz_in *in)
{
	return fuzz_byte(in) % 16 == 15;
}

static inline uint64_t fuzz_raw(struct fuzz_in *in, unsigned int bytes)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < bytes; i++)
		n |= (uint64_t)fuzz_byte(in) << (8 * i);
	return n;
}

/* Small ones, powers of two and their neighbours, any */
static inline uint64_t fuzz_number(struct fuzz_in *in)
{
	uint8_t kind = fuzz_byte(in);

	if (kind < 96)
		return kind;
	if (kind < 160)
		return 1ULL << (kind - 96);
	if (kind < 224)
		return (1ULL << (kind - 160)) - 1;
	return fuzz_raw(in, kind < 240 ? 4 : 8);
}

static inline uint64_t fuzz_zero(struct fuzz_in *in)
{
	return fuzz_rarely(in) ? fuzz_number(in) : 0;
}

/* Bits of @mask, rarely others */
static inline uint32_t fuzz_flags(struct fuzz_in *in, uint32_t mask)
{
	uint32_t flags = (uint32_t)fuzz_raw(in, mask > 0xff ? 2 : 1) & mask;

	return fuzz_rarely(in) ? flags | 1U << fuzz_below(in, 32) : flags;
}

void fuzz_kcov_init(void);
void fuzz_kcov_begin(void);
void fuzz_kcov_end(void);

void fuzz_memory_init(void);
/* Where @bytes can be read and written, but for rare addresses where they cannot */
uint64_t fuzz_address(struct fuzz_in *in, size_t bytes);
/* Where the program itself may write @bytes of a structure, up to 64 KiB; never refused */
void *fuzz_room(size_t bytes);
void fuzz_memory_begin(void);
/* Given to the kernel at other times by who mapped it; NULL: none */
void fuzz_memory_also(int which, void *at);

void fuzz_session(struct fuzz_in *in);
int fuzz_session_fd(struct fuzz_in *in);
void fuzz_session_sqe(struct fuzz_in *in, struct kvctx_sqe *sqe);
void fuzz_sessions_end(void);

void fuzz_ring(struct fuzz_in *in);
void fuzz_ring_end(void);

void fuzz_control_init(void);
void fuzz_control(struct fuzz_in *in);
/* The pool is attached, and has its tenants, whatever was done to it */
void fuzz_control_mend(void);

/* Cannot go on: says why and ends the program */
void __attribute__((noreturn, format(printf, 1, 2))) fuzz_die(const char *fmt, ...);

#endif
