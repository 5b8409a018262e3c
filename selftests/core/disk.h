/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a simulated device holds. Only for dev.c, which is the device; see dev.h.
 *
 * "view" is what reads see, "disk" what survives a power cut; they differ only where the cache has something. Memory is
 * kept from one device to the next: a simulation makes thousands a minute.
 */
#ifndef DISK_H
#define DISK_H

#include "media/format.h"
#include "rng.h"

#define DISK_TOUCHED	1U	/* was written once: the other blocks are zeros */
#define DISK_TAINTED	2U	/* hit by corruption */
#define DISK_BAD	4U	/* cannot be read until it is written */
#define DISK_CHANGED	8U	/* what survives a power cut was written */

/* A completed write in the cache */
struct cached {
	u64	offset;
	u32	len;
	u8	*data;		/* NULL: zeros */
	struct cached *next;
};

struct disk {
	u64	bytes, nr_blocks;
	u8	*view, *disk;
	u8	*older;		/* what reads saw of each block before the last write */
	u8	*image;		/* NULL, or the disk as it was once */
	u8	*flags;		/* of each block */
	u32	*touched, nr_touched;
	u64	nr_tainted;
	u32	nr_bad;
	struct cached *first, **last;
	u64	cached_first, cached_end;	/* numbers of the cached writes */
	u64	room;		/* bytes, what the memory is good for */
	u32	unit;		/* bytes that are written whole or not at all */
	u64	torn;		/* writes of which a part was lost */
	struct disk *next;	/* of those kept */
};

struct disk *disk_new(u64 bytes);
void disk_free(struct disk *k);

/* @data NULL: zeros. Writes to the view, and to the disk. */
void disk_put_view(struct disk *k, u64 offset, const u8 *data, u64 len);
void disk_put(struct disk *k, u64 offset, const u8 *data, u64 len);

/* A write that completed in the cache; takes @data. */
void disk_cache(struct disk *k, u64 offset, u8 *data, u32 len);
/* FUA: to the disk, past older writes that the cache still holds of the same place */
void disk_force(struct disk *k, u64 offset, const u8 *data, u64 len);
/* What was cached before the write with number @end becomes durable. */
void disk_flush(struct disk *k, u64 end);
/* Some of a write that nobody had promised reaches the disk; the view is not told. */
void disk_tear(struct disk *k, struct rng *rng, u64 offset, const u8 *data, u64 len);
/* The view is what the disk is. */
void disk_revert(struct disk *k, u64 offset, u64 len);
/* The power is gone: cached writes are torn, in any order. */
void disk_lose_cache(struct disk *k, struct rng *rng);

/* Remember the disk as it is, and go back there; false: nothing was remembered. */
void disk_remember(struct disk *k);
bool disk_go_back(struct disk *k);

void disk_flag(struct disk *k, u64 offset, u64 len, u8 flag);
/* Take it back. Did any block have it? Not for the two that are counted. */
bool disk_unflag(struct disk *k, u64 offset, u64 len, u8 flag);
bool disk_flagged(const struct disk *k, u64 offset, u64 len, u8 flag);

#endif
