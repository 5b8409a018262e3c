/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Fuzzing of what reads media. A target is a function that takes any bytes:
 *
 *	super	a superblock slot
 *	header	a segment's header, extent 0
 *	extent	a summary extent
 *	image	the devices of a small pool: superblocks are chosen, the pool is recovered, then used
 *
 * The bytes are a program of 16-byte operations that begins with sound media and changes it: fields are set, bits
 * flipped, logs written record by record. Checksums are put right afterwards unless the program says otherwise, else
 * nothing would come past the first check. So a short program reaches deep, two programs can be joined, and what is
 * found is readable. Any bytes are a valid program.
 *
 * Whatever is accepted has to be usable: sizes in range, records inside their segment, pages readable, what is stored
 * then comes back. The sanitizers see the rest.
 *
 *	fuzz.c		a loop of our own around the targets, which tries corpus/ first
 *	fuzz_lib.c	the targets as libFuzzer takes them
 *	fuzz_mutate.c	changes a program
 *	fuzz_media.c	super, header, extent
 *	fuzz_image.c	builds the devices of an image
 *	fuzz_pool.c	attaches and uses it
 */
#ifndef FUZZ_H
#define FUZZ_H

#include "rig.h"

#define FUZZ_OP_BYTES	16U
#define FUZZ_OPS_MAX	256U		/* what comes behind is ignored */

struct fuzz_op {
	u8	op, a, b, c;
	u32	x;
	u64	y;
};

struct fuzz_program {
	const u8 *data;
	size_t	left;
	u32	done;
};

/* The next operation; false at the end */
bool fuzz_next(struct fuzz_program *p, struct fuzz_op *op);

/*
 * Change [@buf, @buf + @len) at op->x, by the kind op->a: 1, 2, 4 or 8 bytes become op->y, a bit is flipped, or op->b
 * bytes are copied from op->y.
 */
void fuzz_patch(u8 *buf, u32 len, const struct fuzz_op *op);

/* Ends the program. */
void fuzz_fail(const char *what);

void fuzz_super(const u8 *data, size_t size);
void fuzz_header(const u8 *data, size_t size);
void fuzz_extent(const u8 *data, size_t size);
void fuzz_image(const u8 *data, size_t size);

/* The devices of an image; what follows of the program is for who uses them. rig_free() them. */
struct rig *fuzz_image_build(struct fuzz_program *p);
/* Write the devices of an image to @dir/0, @dir/1, ...: 0, or -1 with errno */
int fuzz_image_write(const u8 *data, size_t size, const char *dir);

/* Change the program in @data, which may grow to @max bytes; returns its new size. */
size_t fuzz_mutate(struct rng *rng, u8 *data, size_t size, size_t max);

#endif
