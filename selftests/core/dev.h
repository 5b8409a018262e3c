/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Simulated block devices with a volatile cache, on one bus that delivers completions in random order.
 *
 * What a device promises is what a real one does:
 *   - a write without FUA that completed is read back, but survives a power cut only after a later flush
 *   - DEV_PREFLUSH makes durable what had completed before the write was submitted, before the write itself begins
 *   - DEV_FUA: the write is durable when it completes
 *   - at a power cut every unit of a write that was not flushed is new or old, in any mixture; a unit is 512 bytes, or
 *     4 KiB on devices that promise so (dev_unit())
 *   - a discarded block reads as zeros or as before, the device's choice
 * Beyond that it may be told to lie: lost, misdirected and flipped blocks ("corruption", remembered as taint); reads
 * that return a block with a flipped bit, as it was before the last write, or another one, and the right one when they are
 * repeated; superblocks that are said to be durable and are not; all of it as it was some time ago. It may
 * fail: I/O errors that pass, blocks that cannot be read before they are written again, or all of it: a device that
 * vanished loses its cache as in a power cut, answers nothing but -ENODEV or -EIO, and comes back with what it had.
 *
 * What the bus checks of its user, each a failure of the test: I/O beyond the device or unaligned, I/O in flight that
 * overlaps other I/O in flight (unless both read), a buffer that changes while it is written.
 */
#ifndef DEV_H
#define DEV_H

#include "media/format.h"
#include "rng.h"

#define DEV_SECTOR	512U
#define DEV_PREFLUSH	1U
#define DEV_FUA		2U

struct dev;
struct bus;

typedef void (*dev_done_fn)(void *arg, int err);

/* Chances, of 10,000, for each I/O */
struct bus_faults {
	u32	read_error, write_error;
	u32	lost, misdirected;		/* of writes to the data area */
	u32	flip;				/* of completions: a bit somewhere on that device */
	u32	bad;				/* of completions: a block somewhere becomes unreadable */
	u32	misread;			/* of reads: they return something else, once */
	u32	lying;				/* of forced writes of superblocks to bus_liar(): not durable */
};

struct bus_counts {
	u64	torn, torn_forced, lost, misdirected, flips, bad;
	u64	read_errors, write_errors, bad_reads, gone;
	u64	misreads, lies;
};

struct bus *bus_new(struct rng *rng);
void bus_free(struct bus *b);
void bus_faults(struct bus *b, const struct bus_faults *f);
const struct bus_counts *bus_counts(struct bus *b);
struct dev *bus_add(struct bus *b, u64 bytes);
/* Bytes that the device writes whole: DEV_SECTOR, where nothing else is said, or KVC_BLOCK */
void dev_unit(struct dev *d, u32 bytes);
/* Its superblocks may not be where it says; NULL: nobody's */
void bus_liar(struct bus *b, struct dev *d);
/* Writes with FUA stay in flight until the stall is over. */
void dev_stall(struct dev *d, bool on);

/* Asynchronous I/O; @buf must stay. */
void dev_read(struct dev *d, u64 offset, void *buf, u32 len, dev_done_fn done, void *arg);
/* The same, and what is read is what is there */
void dev_read_again(struct dev *d, u64 offset, void *buf, u32 len, dev_done_fn done, void *arg);
void dev_write(struct dev *d, u64 offset, const void *buf, u32 len, u32 flags, dev_done_fn done, void *arg);
void dev_discard(struct dev *d, u64 offset, u64 len, dev_done_fn done, void *arg);

u32 bus_inflight(const struct bus *b);
/* Complete one I/O, any; false when none is in flight */
bool bus_step(struct bus *b);
/* Power cut: caches are lost as described above, what is in flight ends with -EIO. */
void bus_power_cut(struct bus *b);

/* From now on, and back again */
void dev_vanish(struct dev *d);
void dev_return(struct dev *d);
bool dev_gone(const struct dev *d);
bool dev_busy(const struct dev *d);	/* I/O of it is in flight */

/* Synchronous: what an I/O would do now. Writes are durable at once and free of faults. */
void dev_pread(struct dev *d, u64 offset, void *buf, u32 len);
void dev_pwrite(struct dev *d, u64 offset, const void *buf, u32 len);
/* What dev_pread() would give, in place until the next write */
const void *dev_peek(struct dev *d, u64 offset, u32 len);
/* @buf holds what was read; now something else. */
void dev_misread(struct dev *d, struct rng *rng, u64 offset, u8 *buf, u32 len);
/* Remember all of it as it is, for certain; and go back there, all of it tainted. False: nothing was remembered. */
void dev_remember(struct dev *d);
bool dev_go_back(struct dev *d);
/* Is there a block in the range that cannot be read? */
bool dev_bad(const struct dev *d, u64 offset, u64 len);

u64 dev_bytes(const struct dev *d);
/* Was anything in the range hit by corruption, ever? */
bool dev_tainted(const struct dev *d, u64 offset, u64 len);
void dev_taint(struct dev *d, u64 offset, u64 len);
/* Corrupt a block on purpose */
void dev_flip(struct dev *d, u64 offset, u32 bit);

/* What a power cut would leave for certain, in place; was it changed since it was asked the last time? */
const u8 *dev_durable(const struct dev *d, u64 offset);
bool dev_changed(struct dev *d, u64 offset, u64 len);

/* The writes that the cache holds and a power cut may take */
u32 dev_cached(const struct dev *d);

/* Where every failed check of the test code ends. Set by the program; does not return. */
extern void (*harness_fail)(const char *what);
void harness_failf(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
