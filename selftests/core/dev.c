// SPDX-License-Identifier: GPL-2.0
/*
 * Simulated block devices. See dev.h.
 *
 * Content is kept in 4 KiB blocks, allocated when first written: "view" is what reads see, "disk" what survives a
 * power cut. Completed writes that are not yet durable are queued in the order of completion with a copy of their data.
 */
#include <stdarg.h>

#include "dev.h"

enum dev_op { OP_READ, OP_WRITE, OP_DISCARD };

/* A completed write in the cache */
struct cached {
	u64	offset;
	u32	len;
	u8	*data;
	struct cached *next;
};

struct io {
	struct dev *dev;
	enum dev_op op;
	u64	offset, len;
	u8	*buf;		/* the user's */
	u8	*copy;		/* of a write, made at submission */
	u32	flags;
	u64	flush_cached;	/* PREFLUSH: cached writes that had completed at submission */
	dev_done_fn done;
	void	*arg;
};

struct dev {
	struct bus *bus;
	u64	bytes, nr_blocks;
	u8	**view, **disk;
	u8	*taint;
	u64	nr_tainted;
	struct cached *first, **last;
	u64	cached_first, cached_end;	/* numbers of the cached writes */
};

struct bus {
	struct rng *rng;
	struct bus_faults faults;
	struct dev **devs;
	u32	nr_devs;
	struct io *ios;
	u32	nr_ios, room;
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

struct dev *bus_add(struct bus *b, u64 bytes)
{
	struct dev *d = must(calloc(1, sizeof(*d)));

	d->bus = b;
	d->bytes = bytes;
	d->nr_blocks = bytes >> KVC_BLOCK_SHIFT;
	d->view = must(calloc(d->nr_blocks, sizeof(*d->view)));
	d->disk = must(calloc(d->nr_blocks, sizeof(*d->disk)));
	d->taint = must(calloc(d->nr_blocks, 1));
	d->last = &d->first;
	b->devs = must(realloc(b->devs, sizeof(*b->devs) * (b->nr_devs + 1)));
	b->devs[b->nr_devs++] = d;
	return d;
}

static void pop_cached(struct dev *d)
{
	struct cached *c = d->first;

	d->first = c->next;
	if (!d->first)
		d->last = &d->first;
	d->cached_first++;
	free(c->data);
	free(c);
}

static void dev_free(struct dev *d)
{
	u64 i;

	while (d->first)
		pop_cached(d);
	for (i = 0; i < d->nr_blocks; i++) {
		free(d->view[i]);
		free(d->disk[i]);
	}
	free(d->view);
	free(d->disk);
	free(d->taint);
	free(d);
}

void bus_free(struct bus *b)
{
	u32 i;

	for (i = 0; i < b->nr_ios; i++)
		free(b->ios[i].copy);
	for (i = 0; i < b->nr_devs; i++)
		dev_free(b->devs[i]);
	free(b->devs);
	free(b->ios);
	free(b);
}

static void put_bytes(u8 **blocks, u64 offset, const u8 *data, u64 len)
{
	while (len) {
		u64 block = offset >> KVC_BLOCK_SHIFT;
		u32 at = (u32)(offset % KVC_BLOCK), n = (u32)min_t(u64, KVC_BLOCK - at, len);

		if (!blocks[block])
			blocks[block] = must(calloc(1, KVC_BLOCK));
		memcpy(blocks[block] + at, data, n);
		offset += n;
		data += n;
		len -= n;
	}
}

static void get_bytes(u8 **blocks, u64 offset, u8 *data, u64 len)
{
	while (len) {
		u64 block = offset >> KVC_BLOCK_SHIFT;
		u32 at = (u32)(offset % KVC_BLOCK), n = (u32)min_t(u64, KVC_BLOCK - at, len);

		if (blocks[block])
			memcpy(data, blocks[block] + at, n);
		else
			memset(data, 0, n);
		offset += n;
		data += n;
		len -= n;
	}
}

static void check_range(const struct dev *d, u64 offset, u64 len, u32 align)
{
	if (!len || offset % align || len % align || offset > d->bytes || len > d->bytes - offset)
		harness_failf("device: I/O at %llu + %llu, device has %llu", (unsigned long long)offset,
			      (unsigned long long)len, (unsigned long long)d->bytes);
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

void dev_write(struct dev *d, u64 offset, const void *buf, u32 len, u32 flags, dev_done_fn done, void *arg)
{
	u8 *copy = must(malloc(len));

	check_range(d, offset, len, DEV_SECTOR);
	memcpy(copy, buf, len);
	submit(&(struct io){ .dev = d, .op = OP_WRITE, .offset = offset, .len = len, .buf = (u8 *)(uintptr_t)buf,
			     .copy = copy, .flags = flags, .flush_cached = d->cached_end, .done = done, .arg = arg });
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

static void cache(struct dev *d, u64 offset, const u8 *data, u32 len)
{
	struct cached *c = must(calloc(1, sizeof(*c)));

	c->offset = offset;
	c->len = len;
	c->data = must(malloc(len));
	memcpy(c->data, data, len);
	*d->last = c;
	d->last = &c->next;
	d->cached_end++;
}

static void flush_cached(struct dev *d, u64 end)
{
	while (d->first && d->cached_first < end) {
		put_bytes(d->disk, d->first->offset, d->first->data, d->first->len);
		pop_cached(d);
	}
}

void dev_taint(struct dev *d, u64 offset, u64 len)
{
	u64 i;

	for (i = offset >> KVC_BLOCK_SHIFT; i < kvc_blocks(offset + len); i++) {
		d->nr_tainted += !d->taint[i];
		d->taint[i] = 1;
	}
}

bool dev_tainted(const struct dev *d, u64 offset, u64 len)
{
	u64 i;

	if (!d->nr_tainted)
		return false;
	for (i = offset >> KVC_BLOCK_SHIFT; i < kvc_blocks(offset + len); i++)
		if (d->taint[i])
			return true;
	return false;
}

void dev_flip(struct dev *d, u64 offset, u32 bit)
{
	u8 byte;

	get_bytes(d->view, offset, &byte, 1);
	byte ^= (u8)(1U << bit);
	put_bytes(d->view, offset, &byte, 1);
	get_bytes(d->disk, offset, &byte, 1);
	byte ^= (u8)(1U << bit);
	put_bytes(d->disk, offset, &byte, 1);
	dev_taint(d, offset, 1);
}

/* A random place in a block of the data area that was written once; false when luck has it otherwise */
static bool written_place(struct dev *d, u64 *offset)
{
	u64 first = KVC_DATA_OFFSET >> KVC_BLOCK_SHIFT;
	u64 block = first + rng_u64(d->bus->rng) % (d->nr_blocks - first);

	*offset = (block << KVC_BLOCK_SHIFT) + rng_below(d->bus->rng, KVC_BLOCK);
	return d->view[block] != NULL;
}

/* Where a write to the data area really goes: true with @offset changed, or false when it is lost. */
static bool misdirect(struct io *io, u64 *offset)
{
	struct bus *b = io->dev->bus;
	struct dev *d = io->dev;

	if (io->offset < KVC_DATA_OFFSET)
		return true;
	if (rng_chance(b->rng, b->faults.lost)) {
		dev_taint(d, io->offset, io->len);
		return false;
	}
	if (rng_chance(b->rng, b->faults.misdirected)) {
		u64 room = d->bytes - KVC_DATA_OFFSET - io->len;

		dev_taint(d, io->offset, io->len);
		*offset = KVC_DATA_OFFSET + ((rng_u64(b->rng) % (room + 1)) & ~(u64)(KVC_BLOCK - 1));
		dev_taint(d, *offset, io->len);
	}
	return true;
}

/* FUA: to the disk, past older writes that the cache still holds of the same place */
static void force(struct dev *d, u64 offset, const u8 *data, u64 len)
{
	struct cached *c;

	for (c = d->first; c; c = c->next) {
		u64 from = max(offset, c->offset), to = min(offset + len, c->offset + c->len);

		if (from < to)
			memcpy(c->data + (from - c->offset), data + (from - offset), to - from);
	}
	put_bytes(d->disk, offset, data, len);
}

static void write_done(struct io *io)
{
	struct dev *d = io->dev;
	u64 offset = io->offset;

	if (memcmp(io->buf, io->copy, io->len))
		harness_failf("device: buffer changed while it was written to %llu", (unsigned long long)offset);
	if (io->flags & DEV_PREFLUSH)
		flush_cached(d, io->flush_cached);
	if (!misdirect(io, &offset))
		return;
	put_bytes(d->view, offset, io->copy, io->len);
	if (io->flags & DEV_FUA)
		force(d, offset, io->copy, io->len);
	else
		cache(d, offset, io->copy, (u32)io->len);
}

/* Each block is zeroed or left; the zeros are cached as writes are. */
static void discard_done(struct io *io)
{
	static const u8 zeros[KVC_BLOCK];
	u64 at;

	for (at = io->offset; at < io->offset + io->len; at += KVC_BLOCK) {
		if (!io->dev->view[at >> KVC_BLOCK_SHIFT] || rng_chance(io->dev->bus->rng, 5000))
			continue;
		put_bytes(io->dev->view, at, zeros, KVC_BLOCK);
		cache(io->dev, at, zeros, KVC_BLOCK);
	}
}

/* Some of the sectors of a write that nobody had promised reach the disk. */
static void tear(struct dev *d, u64 offset, const u8 *data, u64 len)
{
	struct rng *rng = d->bus->rng;
	u32 sectors = (u32)(len / DEV_SECTOR), how = rng_below(rng, 6), prefix = rng_below(rng, sectors + 1), i;
	bool in;

	for (i = 0; i < sectors; i++) {
		if (how <= 1)
			in = true;
		else if (how == 2)
			in = false;
		else if (how == 3)
			in = i < prefix;
		else if (how == 4)
			in = i >= prefix;
		else
			in = rng_chance(rng, 5000);
		if (in)
			put_bytes(d->disk, offset + i * DEV_SECTOR, data + i * DEV_SECTOR, DEV_SECTOR);
	}
}

/* The data of a PREFLUSH write follows its flush; did it come to that? */
static bool begins(struct io *io)
{
	if (!(io->flags & DEV_PREFLUSH))
		return true;
	if (rng_chance(io->dev->bus->rng, 5000))
		return false;
	flush_cached(io->dev, io->flush_cached);
	return true;
}

/* What a failed write leaves is old, new or a mixture. */
static void write_failed(struct io *io)
{
	u64 at;

	if (!begins(io))
		return;
	tear(io->dev, io->offset, io->copy, io->len);
	for (at = 0; at < io->len; at += DEV_SECTOR) {
		get_bytes(io->dev->disk, io->offset + at, io->copy, DEV_SECTOR);
		put_bytes(io->dev->view, io->offset + at, io->copy, DEV_SECTOR);
	}
}

static int perform(struct io *io)
{
	struct bus *b = io->dev->bus;
	u64 at;

	if (rng_chance(b->rng, b->faults.flip) && written_place(io->dev, &at))
		dev_flip(io->dev, at, rng_below(b->rng, 8));
	if (io->op == OP_READ) {
		if (rng_chance(b->rng, b->faults.read_error))
			return -EIO;
		get_bytes(io->dev->view, io->offset, io->buf, io->len);
	} else if (io->op == OP_WRITE) {
		if (rng_chance(b->rng, b->faults.write_error)) {
			write_failed(io);
			return -EIO;
		}
		write_done(io);
	} else {
		discard_done(io);
	}
	return 0;
}

static struct io take(struct bus *b, u32 i)
{
	struct io io = b->ios[i];

	b->ios[i] = b->ios[--b->nr_ios];
	return io;
}

bool bus_step(struct bus *b)
{
	struct io io;
	int err;

	if (!b->nr_ios)
		return false;
	io = take(b, rng_below(b->rng, b->nr_ios));
	err = perform(&io);
	free(io.copy);
	io.done(io.arg, err);
	return true;
}

/* The cached writes, in any order: take a random one until none is left. */
static void lose_cache(struct dev *d)
{
	u64 n = d->cached_end - d->cached_first;

	while (n) {
		struct cached **link = &d->first, *c;
		u64 skip = rng_u64(d->bus->rng) % min_t(u64, n--, 64);

		while (skip--)
			link = &(*link)->next;
		c = *link;
		*link = c->next;
		tear(d, c->offset, c->data, c->len);
		free(c->data);
		free(c);
	}
	d->first = NULL;
	d->last = &d->first;
	d->cached_first = d->cached_end;
}

static void lose_inflight(struct bus *b)
{
	u32 i;

	for (i = 0; i < b->nr_ios; i++) {
		struct io *io = &b->ios[i];

		if (io->op == OP_WRITE && begins(io))
			tear(io->dev, io->offset, io->copy, io->len);
	}
}

static void forget_view(struct dev *d)
{
	u64 i;

	for (i = 0; i < d->nr_blocks; i++) {
		if (!d->view[i])
			continue;
		if (d->disk[i]) {
			memcpy(d->view[i], d->disk[i], KVC_BLOCK);
		} else {
			free(d->view[i]);
			d->view[i] = NULL;
		}
	}
	/* What reached the disk was in the view before, but for torn writes in flight. */
	for (i = 0; i < d->nr_blocks; i++)
		if (d->disk[i] && !d->view[i])
			put_bytes(d->view, i << KVC_BLOCK_SHIFT, d->disk[i], KVC_BLOCK);
}

void bus_power_cut(struct bus *b)
{
	struct io io;
	u32 i;

	lose_inflight(b);
	for (i = 0; i < b->nr_devs; i++) {
		lose_cache(b->devs[i]);
		forget_view(b->devs[i]);
	}
	while (b->nr_ios) {
		io = take(b, b->nr_ios - 1);
		free(io.copy);
		io.done(io.arg, -EIO);
	}
}

void dev_pread(struct dev *d, u64 offset, void *buf, u32 len)
{
	check_range(d, offset, len, 1);
	get_bytes(d->view, offset, buf, len);
}

void dev_pwrite(struct dev *d, u64 offset, const void *buf, u32 len)
{
	check_range(d, offset, len, 1);
	put_bytes(d->view, offset, buf, len);
	put_bytes(d->disk, offset, buf, len);
}

u64 dev_bytes(const struct dev *d)
{
	return d->bytes;
}

u32 dev_cached(const struct dev *d)
{
	return (u32)(d->cached_end - d->cached_first);
}
