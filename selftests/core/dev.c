// SPDX-License-Identifier: GPL-2.0
/*
 * Simulated block devices: the bus, what is in flight, what goes wrong. See dev.h; disk.c has the bytes.
 */
#include <stdarg.h>

#include "dev.h"
#include "disk.h"

enum dev_op { OP_READ, OP_WRITE, OP_DISCARD };

struct io {
	struct dev *dev;
	enum dev_op op;
	u64	offset, len;
	u8	*buf;		/* the user's */
	u8	*copy;		/* of a write, made at submission */
	u32	flags;
	bool	sure;		/* a read of what is there */
	u64	flush_cached;	/* PREFLUSH: cached writes that had completed at submission */
	dev_done_fn done;
	void	*arg;
};

struct dev {
	struct bus *bus;
	struct disk *disk;
	bool	gone, stalled;
};

struct bus {
	struct rng *rng;
	struct bus_faults faults;
	struct bus_counts counts;
	struct dev **devs;
	u32	nr_devs;
	struct io *ios;
	u32	nr_ios, room;
	struct dev *liar;
};

void (*harness_fail)(const char *what);

void harness_failf(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (harness_fail)
		harness_fail(text);
	fprintf(stderr, "%s\n", text);
	abort();
}

static void *must(void *p)
{
	if (!p)
		harness_failf("the test itself is out of memory");
	return p;
}

struct bus *bus_new(struct rng *rng)
{
	struct bus *b = must(calloc(1, sizeof(*b)));

	b->rng = rng;
	return b;
}

void bus_faults(struct bus *b, const struct bus_faults *f)
{
	b->faults = *f;
}

const struct bus_counts *bus_counts(struct bus *b)
{
	u32 i;

	for (i = 0, b->counts.torn = 0; i < b->nr_devs; i++)
		b->counts.torn += b->devs[i]->disk->torn;
	return &b->counts;
}

struct dev *bus_add(struct bus *b, u64 bytes)
{
	struct dev *d = must(calloc(1, sizeof(*d)));

	d->bus = b;
	d->disk = disk_new(bytes);
	b->devs = must(realloc(b->devs, sizeof(*b->devs) * (b->nr_devs + 1)));
	b->devs[b->nr_devs++] = d;
	return d;
}

void dev_unit(struct dev *d, u32 bytes)
{
	d->disk->unit = bytes;
}

void bus_liar(struct bus *b, struct dev *d)
{
	b->liar = d;
}

void dev_stall(struct dev *d, bool on)
{
	d->stalled = on;
}

void bus_free(struct bus *b)
{
	u32 i;

	for (i = 0; i < b->nr_ios; i++)
		free(b->ios[i].copy);
	for (i = 0; i < b->nr_devs; i++) {
		disk_free(b->devs[i]->disk);
		free(b->devs[i]);
	}
	free(b->devs);
	free(b->ios);
	free(b);
}

static void check_range(const struct dev *d, u64 offset, u64 len, u32 align)
{
	if (!len || offset % align || len % align || offset > d->disk->bytes || len > d->disk->bytes - offset)
		harness_failf("device: I/O at %llu + %llu, device has %llu", (unsigned long long)offset,
			      (unsigned long long)len, (unsigned long long)d->disk->bytes);
}

/* What is being written or discarded must be left alone by everybody else. */
static void check_overlap(const struct io *io)
{
	struct bus *b = io->dev->bus;
	u32 i;

	for (i = 0; i < b->nr_ios; i++) {
		const struct io *o = &b->ios[i];

		if (o->dev != io->dev || (o->op == OP_READ && io->op == OP_READ))
			continue;
		if (o->offset < io->offset + io->len && io->offset < o->offset + o->len)
			harness_failf("device: %s at %llu + %llu overlaps %s in flight at %llu + %llu",
				      io->op == OP_READ ? "read" : "write", (unsigned long long)io->offset,
				      (unsigned long long)io->len, o->op == OP_READ ? "read" : "write",
				      (unsigned long long)o->offset, (unsigned long long)o->len);
	}
}

static void submit(const struct io *io)
{
	struct bus *b = io->dev->bus;

	check_overlap(io);
	if (b->nr_ios == b->room) {
		b->room = b->room ? b->room * 2 : 64;
		b->ios = must(realloc(b->ios, sizeof(*b->ios) * b->room));
	}
	b->ios[b->nr_ios++] = *io;
}

void dev_read(struct dev *d, u64 offset, void *buf, u32 len, dev_done_fn done, void *arg)
{
	check_range(d, offset, len, DEV_SECTOR);
	submit(&(struct io){ .dev = d, .op = OP_READ, .offset = offset, .len = len, .buf = buf, .done = done,
			     .arg = arg });
}

void dev_read_again(struct dev *d, u64 offset, void *buf, u32 len, dev_done_fn done, void *arg)
{
	check_range(d, offset, len, DEV_SECTOR);
	submit(&(struct io){ .dev = d, .op = OP_READ, .offset = offset, .len = len, .buf = buf, .sure = true,
			     .done = done, .arg = arg });
}

void dev_write(struct dev *d, u64 offset, const void *buf, u32 len, u32 flags, dev_done_fn done, void *arg)
{
	u8 *copy = must(malloc(len));

	check_range(d, offset, len, DEV_SECTOR);
	memcpy(copy, buf, len);
	submit(&(struct io){ .dev = d, .op = OP_WRITE, .offset = offset, .len = len, .buf = (u8 *)(uintptr_t)buf,
			     .copy = copy, .flags = flags, .flush_cached = d->disk->cached_end, .done = done,
			     .arg = arg });
}

void dev_discard(struct dev *d, u64 offset, u64 len, dev_done_fn done, void *arg)
{
	check_range(d, offset, len, KVC_BLOCK);
	submit(&(struct io){ .dev = d, .op = OP_DISCARD, .offset = offset, .len = len, .done = done, .arg = arg });
}

u32 bus_inflight(const struct bus *b)
{
	return b->nr_ios;
}

void dev_taint(struct dev *d, u64 offset, u64 len)
{
	disk_flag(d->disk, offset, len, DISK_TAINTED);
}

bool dev_tainted(const struct dev *d, u64 offset, u64 len)
{
	return disk_flagged(d->disk, offset, len, DISK_TAINTED);
}

bool dev_bad(const struct dev *d, u64 offset, u64 len)
{
	return disk_flagged(d->disk, offset, len, DISK_BAD);
}

void dev_flip(struct dev *d, u64 offset, u32 bit)
{
	u8 byte;

	byte = d->disk->view[offset] ^ (u8)(1U << bit);
	disk_put_view(d->disk, offset, &byte, 1);
	byte = d->disk->disk[offset] ^ (u8)(1U << bit);
	disk_put(d->disk, offset, &byte, 1);
	dev_taint(d, offset, 1);
}

/* Superblocks are spared: either copy suffices, and each may have failed to be written. */
static u64 data_end(const struct dev *d)
{
	return kvc_super_offset(KVC_SUPER_SLOTS / KVC_SUPER_COPIES, d->disk->bytes);
}

/* A random place that was written once; false when there is none in the data area, or luck has it otherwise */
static bool written_place(struct dev *d, u64 *offset)
{
	const struct disk *k = d->disk;
	u32 tries;
	u64 block;

	for (tries = 0; tries < 4 && k->nr_touched; tries++) {
		block = k->touched[rng_below(d->bus->rng, k->nr_touched)];
		*offset = (block << KVC_BLOCK_SHIFT) + rng_below(d->bus->rng, KVC_BLOCK);
		if (*offset >= KVC_DATA_OFFSET && *offset < data_end(d))
			return true;
	}
	return false;
}

/* Where a write to the data area really goes: true with @offset changed, or false when it is lost. */
static bool misdirect(struct io *io, u64 *offset)
{
	struct bus *b = io->dev->bus;
	struct dev *d = io->dev;

	if (io->offset < KVC_DATA_OFFSET || io->offset >= data_end(d))
		return true;
	if (rng_chance(b->rng, b->faults.lost)) {
		b->counts.lost++;
		dev_taint(d, io->offset, io->len);
		return false;
	}
	if (rng_chance(b->rng, b->faults.misdirected)) {
		u64 room = data_end(d) - KVC_DATA_OFFSET - io->len;

		b->counts.misdirected++;
		dev_taint(d, io->offset, io->len);
		*offset = KVC_DATA_OFFSET + ((rng_u64(b->rng) % (room + 1)) & ~(u64)(KVC_BLOCK - 1));
		dev_taint(d, *offset, io->len);
	}
	return true;
}

static bool lies(const struct io *io)
{
	struct bus *b = io->dev->bus;

	if (io->dev != b->liar || (io->offset >= KVC_DATA_OFFSET && io->offset < data_end(io->dev)))
		return false;
	if (!rng_chance(b->rng, b->faults.lying))
		return false;
	b->counts.lies++;
	return true;
}

static void write_done(struct io *io)
{
	struct disk *k = io->dev->disk;
	u64 offset = io->offset;

	if (memcmp(io->buf, io->copy, io->len))
		harness_failf("device: buffer changed while it was written to %llu", (unsigned long long)offset);
	if (io->flags & DEV_PREFLUSH)
		disk_flush(k, io->flush_cached);
	if (!misdirect(io, &offset))
		return;
	disk_put_view(k, offset, io->copy, io->len);
	if (io->flags & DEV_FUA && !lies(io)) {
		disk_force(k, offset, io->copy, io->len);
	} else {
		disk_cache(k, offset, io->copy, (u32)io->len);
		io->copy = NULL;
	}
}

/* Each block is zeroed or left; the zeros are cached as writes are. */
static void discard_done(struct io *io)
{
	struct disk *k = io->dev->disk;
	u64 at;

	for (at = io->offset; at < io->offset + io->len; at += KVC_BLOCK) {
		if (!disk_flagged(k, at, 1, DISK_TOUCHED) || rng_chance(io->dev->bus->rng, 5000))
			continue;
		disk_put_view(k, at, NULL, KVC_BLOCK);
		disk_cache(k, at, NULL, KVC_BLOCK);
	}
}

/* Power goes, or the write fails: what is left of it? The data of a PREFLUSH write follows its flush. */
static void break_off(struct io *io)
{
	struct rng *rng = io->dev->bus->rng;
	struct disk *k = io->dev->disk;
	u64 torn;

	if (io->flags & DEV_PREFLUSH) {
		if (rng_chance(rng, 5000))
			return;
		disk_flush(k, io->flush_cached);
	}
	torn = k->torn;
	disk_tear(k, rng, io->offset, io->copy, io->len);
	disk_revert(k, io->offset, io->len);
	if (io->flags & DEV_FUA)
		io->dev->bus->counts.torn_forced += k->torn - torn;
}

static void rot(struct dev *d)
{
	struct bus *b = d->bus;
	u64 at;

	if (rng_chance(b->rng, b->faults.flip) && written_place(d, &at)) {
		dev_flip(d, at, rng_below(b->rng, 8));
		b->counts.flips++;
	}
	if (rng_chance(b->rng, b->faults.bad) && written_place(d, &at)) {
		disk_flag(d->disk, at, 1, DISK_BAD);
		b->counts.bad++;
	}
}

static int read_done(struct io *io)
{
	struct bus *b = io->dev->bus;

	if (rng_chance(b->rng, b->faults.read_error)) {
		b->counts.read_errors++;
		return -EIO;
	}
	if (dev_bad(io->dev, io->offset, io->len)) {
		b->counts.bad_reads++;
		return -EIO;
	}
	memcpy(io->buf, io->dev->disk->view + io->offset, io->len);
	if (!io->sure && rng_chance(b->rng, b->faults.misread))
		dev_misread(io->dev, b->rng, io->offset, io->buf, (u32)io->len);
	return 0;
}

static int perform(struct io *io)
{
	struct bus *b = io->dev->bus;

	if (io->dev->gone) {
		b->counts.gone++;
		return rng_chance(b->rng, 5000) ? -ENODEV : -EIO;
	}
	rot(io->dev);
	if (io->op == OP_READ)
		return read_done(io);
	if (io->op == OP_DISCARD) {
		discard_done(io);
	} else if (rng_chance(b->rng, b->faults.write_error)) {
		b->counts.write_errors++;
		break_off(io);
		return -EIO;
	} else {
		write_done(io);
	}
	return 0;
}

static struct io take(struct bus *b, u32 i)
{
	struct io io = b->ios[i];

	b->ios[i] = b->ios[--b->nr_ios];
	return io;
}

static bool stalls(const struct io *io)
{
	return io->dev->stalled && (io->flags & DEV_FUA);
}

bool bus_step(struct bus *b)
{
	u32 i, first;
	struct io io;
	int err;

	if (!b->nr_ios)
		return false;
	first = rng_below(b->rng, b->nr_ios);
	for (i = 0; i < b->nr_ios && stalls(&b->ios[(first + i) % b->nr_ios]); i++)
		;
	if (i == b->nr_ios)
		return false;
	io = take(b, (first + i) % b->nr_ios);
	err = perform(&io);
	free(io.copy);
	io.done(io.arg, err);
	return true;
}

/* One device loses power: its writes in flight and its cache end as they may. */
static void lose_power(struct dev *d)
{
	struct bus *b = d->bus;
	u32 i;

	for (i = 0; i < b->nr_ios && !d->gone; i++)
		if (b->ios[i].dev == d && b->ios[i].op == OP_WRITE)
			break_off(&b->ios[i]);
	disk_lose_cache(d->disk, b->rng);
}

void bus_power_cut(struct bus *b)
{
	struct io io;
	u32 i;

	for (i = 0; i < b->nr_devs; i++)
		lose_power(b->devs[i]);
	while (b->nr_ios) {
		io = take(b, b->nr_ios - 1);
		free(io.copy);
		io.done(io.arg, -EIO);
	}
}

void dev_vanish(struct dev *d)
{
	lose_power(d);
	d->gone = true;
}

void dev_return(struct dev *d)
{
	d->gone = false;
}

bool dev_busy(const struct dev *d)
{
	u32 i;

	for (i = 0; i < d->bus->nr_ios; i++)
		if (d->bus->ios[i].dev == d)
			return true;
	return false;
}

bool dev_gone(const struct dev *d)
{
	return d->gone;
}

void dev_pread(struct dev *d, u64 offset, void *buf, u32 len)
{
	check_range(d, offset, len, 1);
	memcpy(buf, d->disk->view + offset, len);
}

void dev_pwrite(struct dev *d, u64 offset, const void *buf, u32 len)
{
	check_range(d, offset, len, 1);
	disk_put_view(d->disk, offset, buf, len);
	disk_put(d->disk, offset, buf, len);
}

const void *dev_peek(struct dev *d, u64 offset, u32 len)
{
	check_range(d, offset, len, 1);
	return d->disk->view + offset;
}

const u8 *dev_durable(const struct dev *d, u64 offset)
{
	return d->disk->disk + offset;
}

bool dev_changed(struct dev *d, u64 offset, u64 len)
{
	return disk_unflag(d->disk, offset, len, DISK_CHANGED);
}

void dev_misread(struct dev *d, struct rng *rng, u64 offset, u8 *buf, u32 len)
{
	const struct disk *k = d->disk;
	u32 at = rng_below(rng, len), start = at & ~(KVC_BLOCK - 1), n = min(KVC_BLOCK, len - start);
	u64 other;

	d->bus->counts.misreads++;
	switch (rng_below(rng, 3)) {
	case 0:
		buf[at] ^= (u8)(1U << rng_below(rng, 8));
		break;
	case 1:
		memcpy(buf + start, k->older + offset + start, n);
		break;
	default:
		other = k->nr_touched ? (u64)k->touched[rng_below(rng, k->nr_touched)] << KVC_BLOCK_SHIFT : 0;
		memcpy(buf + start, k->view + other, n);
	}
}

void dev_remember(struct dev *d)
{
	disk_remember(d->disk);
}

bool dev_go_back(struct dev *d)
{
	if (!disk_go_back(d->disk))
		return false;
	dev_taint(d, 0, d->disk->bytes);
	return true;
}

u64 dev_bytes(const struct dev *d)
{
	return d->disk->bytes;
}

u32 dev_cached(const struct dev *d)
{
	return (u32)(d->disk->cached_end - d->disk->cached_first);
}
