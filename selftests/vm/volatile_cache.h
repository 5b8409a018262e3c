/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A disk with a volatile write cache: its client may be killed at any moment, and then what it had not flushed is lost,
 * or not, as a seed decides. Served by volatile.c to virtual machines and by volatile_fs.c to processes of this one.
 *
 * The image is the medium. Writes go to a private view of it, which is what reads see; each unit written is remembered
 * until a flush, a write with FUA, or the cache's own whim brings it to the medium. At the power cut some of the units
 * that are left reach the medium, the others do not. Which, is one of three rules: each by chance, only those written
 * first, only those written last; with a grain of a unit or more, so that writes are torn at any unit.
 *
 * Requests overtake each other: a flush takes up to @delay milliseconds, as may a write, and a flush covers the writes
 * that were complete when it came, no others.
 *
 * The host's page cache is no substitute for this: it survives the death of any process.
 */
#ifndef VOLATILE_CACHE_H
#define VOLATILE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

/* Set before volatile_open() */
struct volatile_config {
	const char *image, *report;	/* the report tells what the power cut has lost */
	uint64_t seed;
	unsigned int unit;		/* 512 or 4096 */
	unsigned int delay;		/* milliseconds */
	int (*sleep)(unsigned int us);	/* not 0: the client has gone */
};

extern struct volatile_config volatile_config;

int volatile_open(void);		/* 0 or -errno */
uint64_t volatile_bytes(void);		/* of the disk: whole blocks of 4 KiB */
void volatile_read(void *buf, uint32_t count, uint64_t offset);
/* Write @buf, or zeros; a unit of which a part is written is lost or kept as a whole. Not 0: the power is off, as for flush */
int volatile_write(const void *buf, uint32_t count, uint64_t offset, bool fua);
int volatile_flush(void);
void volatile_cut(void);		/* the power cut; what is under way has no effect any more. Once */

#endif
