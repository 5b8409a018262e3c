// SPDX-License-Identifier: GPL-2.0
/*
 * What a simulated device holds. See disk.h.
 */
#include <sys/mman.h>

#include "dev.h"
#include "disk.h"

#define KEPT_MAX 8

static struct disk *kept;
static u32 nr_kept;

static void *must(void *p)
{
	if (!p)
		harness_failf("the test itself is out of memory");
	return p;
}

/* Zeros, and no memory before they are written */
static void *map(u64 bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return must(p == MAP_FAILED ? NULL : p);
}

static struct disk *take_kept(u64 bytes)
{
	struct disk **link = &kept, *k;

	for (; *link; link = &(*link)->next)
		if ((*link)->room >= bytes)
			break;
	k = *link;
	if (k) {
		*link = k->next;
		nr_kept--;
	}
	return k;
}

static struct disk *make(u64 bytes)
{
	struct disk *k = must(calloc(1, sizeof(*k)));

	k->room = max_t(u64, bytes, 8U << 20);
	k->view = map(k->room);
	k->disk = map(k->room);
	k->older = map(k->room);
	k->flags = map(k->room >> KVC_BLOCK_SHIFT);
	k->touched = map((k->room >> KVC_BLOCK_SHIFT) * sizeof(*k->touched));
	return k;
}

static void unmake(struct disk *k)
{
	munmap(k->view, k->room);
	munmap(k->disk, k->room);
	munmap(k->older, k->room);
	munmap(k->flags, k->room >> KVC_BLOCK_SHIFT);
	munmap(k->touched, (k->room >> KVC_BLOCK_SHIFT) * sizeof(*k->touched));
	free(k);
}

struct disk *disk_new(u64 bytes)
{
	struct disk *k = take_kept(bytes);

	if (!k)
		k = make(bytes);
	k->bytes = bytes;
	k->nr_blocks = bytes >> KVC_BLOCK_SHIFT;
	k->last = &k->first;
	k->unit = DEV_SECTOR;
	return k;
}

static void pop_cached(struct disk *k)
{
	struct cached *c = k->first;

	k->first = c->next;
	if (!k->first)
		k->last = &k->first;
	k->cached_first++;
	free(c->data);
	free(c);
}

static void wipe(struct disk *k)
{
	u32 i;

	for (i = 0; i < k->nr_touched; i++) {
		memset(k->view + ((u64)k->touched[i] << KVC_BLOCK_SHIFT), 0, KVC_BLOCK);
		memset(k->disk + ((u64)k->touched[i] << KVC_BLOCK_SHIFT), 0, KVC_BLOCK);
		memset(k->older + ((u64)k->touched[i] << KVC_BLOCK_SHIFT), 0, KVC_BLOCK);
	}
	memset(k->flags, 0, k->nr_blocks);
	k->nr_touched = 0;
	k->nr_tainted = 0;
	k->nr_bad = 0;
	k->torn = 0;
	k->cached_first = 0;
	k->cached_end = 0;
}

void disk_free(struct disk *k)
{
	while (k->first)
		pop_cached(k);
	if (k->image)
		munmap(k->image, k->room);
	k->image = NULL;
	if (nr_kept == KEPT_MAX) {
		struct disk *old = kept;

		kept = old->next;
		nr_kept--;
		unmake(old);
	}
	wipe(k);
	k->next = kept;
	kept = k;
	nr_kept++;
}

static void touch(struct disk *k, u64 offset, u64 len)
{
	u64 i;

	for (i = offset >> KVC_BLOCK_SHIFT; i < kvc_blocks(offset + len); i++) {
		if (k->flags[i] & DISK_TOUCHED)
			continue;
		k->flags[i] |= DISK_TOUCHED;
		k->touched[k->nr_touched++] = (u32)i;
	}
}

static void copy(u8 *to, const u8 *data, u64 len)
{
	if (data)
		memcpy(to, data, len);
	else
		memset(to, 0, len);
}

/* What was written can be read. */
static void heal(struct disk *k, u64 offset, u64 len)
{
	u64 i;

	for (i = offset >> KVC_BLOCK_SHIFT; k->nr_bad && i < kvc_blocks(offset + len); i++) {
		k->nr_bad -= !!(k->flags[i] & DISK_BAD);
		k->flags[i] &= (u8)~DISK_BAD;
	}
}

void disk_put_view(struct disk *k, u64 offset, const u8 *data, u64 len)
{
	touch(k, offset, len);
	heal(k, offset, len);
	memcpy(k->older + offset, k->view + offset, len);
	copy(k->view + offset, data, len);
}

void disk_put(struct disk *k, u64 offset, const u8 *data, u64 len)
{
	touch(k, offset, len);
	disk_flag(k, offset, len, DISK_CHANGED);
	copy(k->disk + offset, data, len);
}

void disk_cache(struct disk *k, u64 offset, u8 *data, u32 len)
{
	struct cached *c = must(malloc(sizeof(*c)));

	*c = (struct cached){ .offset = offset, .len = len, .data = data };
	*k->last = c;
	k->last = &c->next;
	k->cached_end++;
}

void disk_force(struct disk *k, u64 offset, const u8 *data, u64 len)
{
	struct cached *c;

	for (c = k->first; c; c = c->next) {
		u64 from = max(offset, c->offset), to = min(offset + len, c->offset + c->len);

		if (from >= to)
			continue;
		if (!c->data)
			c->data = must(calloc(1, c->len));
		memcpy(c->data + (from - c->offset), data + (from - offset), to - from);
	}
	disk_put(k, offset, data, len);
}

void disk_flush(struct disk *k, u64 end)
{
	while (k->first && k->cached_first < end) {
		disk_put(k, k->first->offset, k->first->data, k->first->len);
		pop_cached(k);
	}
}

enum tearing { TEAR_ALL, TEAR_NONE, TEAR_PREFIX, TEAR_SUFFIX, TEAR_ANY };

/* Whole units reach the disk, or do not: all, none, the first, the last, any. */
void disk_tear(struct disk *k, struct rng *rng, u64 offset, const u8 *data, u64 len)
{
	static const enum tearing hows[] = { TEAR_ALL, TEAR_ALL, TEAR_NONE, TEAR_PREFIX, TEAR_SUFFIX, TEAR_ANY };
	enum tearing how = hows[rng_below(rng, ARRAY_SIZE(hows))];
	u64 start = offset / k->unit, units = (offset + len - 1) / k->unit - start + 1, i, lost = 0;
	u64 edge = rng_u64(rng) % (units + 1), from, to;
	bool in;

	for (i = 0; i < units; i++) {
		if (how == TEAR_PREFIX)
			in = i < edge;
		else if (how == TEAR_SUFFIX)
			in = i >= edge;
		else if (how == TEAR_ANY)
			in = rng_chance(rng, 5000);
		else
			in = how == TEAR_ALL;
		lost += !in;
		if (!in)
			continue;
		from = max((start + i) * k->unit, offset);
		to = min((start + i + 1) * k->unit, offset + len);
		disk_put(k, from, data ? data + (from - offset) : NULL, to - from);
	}
	k->torn += lost && lost < units;
}

void disk_revert(struct disk *k, u64 offset, u64 len)
{
	touch(k, offset, len);
	memcpy(k->view + offset, k->disk + offset, len);
}

/* Take a random one until none is left. */
void disk_lose_cache(struct disk *k, struct rng *rng)
{
	u64 n = k->cached_end - k->cached_first;
	struct cached *c;

	for (c = k->first; c; c = c->next)
		disk_revert(k, c->offset, c->len);
	while (n) {
		struct cached **link = &k->first;
		u64 skip = rng_u64(rng) % min_t(u64, n--, 64);

		while (skip--)
			link = &(*link)->next;
		c = *link;
		*link = c->next;
		disk_tear(k, rng, c->offset, c->data, c->len);
		disk_revert(k, c->offset, c->len);
		free(c->data);
		free(c);
	}
	k->first = NULL;
	k->last = &k->first;
	k->cached_first = k->cached_end;
}

void disk_remember(struct disk *k)
{
	u32 i;

	if (!k->image)
		k->image = map(k->room);
	for (i = 0; i < k->nr_touched; i++) {
		u64 at = (u64)k->touched[i] << KVC_BLOCK_SHIFT;

		memcpy(k->image + at, k->disk + at, KVC_BLOCK);
	}
}

bool disk_go_back(struct disk *k)
{
	u32 i;

	if (!k->image)
		return false;
	for (i = 0; i < k->nr_touched; i++) {
		u64 at = (u64)k->touched[i] << KVC_BLOCK_SHIFT;

		disk_put(k, at, k->image + at, KVC_BLOCK);
		disk_put_view(k, at, k->image + at, KVC_BLOCK);
	}
	return true;
}

void disk_flag(struct disk *k, u64 offset, u64 len, u8 flag)
{
	u64 i;

	for (i = offset >> KVC_BLOCK_SHIFT; i < kvc_blocks(offset + len); i++) {
		if (k->flags[i] & flag)
			continue;
		k->nr_tainted += flag == DISK_TAINTED;
		k->nr_bad += flag == DISK_BAD;
		k->flags[i] |= flag;
	}
}

bool disk_flagged(const struct disk *k, u64 offset, u64 len, u8 flag)
{
	u64 i;

	if ((flag == DISK_TAINTED && !k->nr_tainted) || (flag == DISK_BAD && !k->nr_bad))
		return false;
	for (i = offset >> KVC_BLOCK_SHIFT; i < kvc_blocks(offset + len); i++)
		if (k->flags[i] & flag)
			return true;
	return false;
}

bool disk_unflag(struct disk *k, u64 offset, u64 len, u8 flag)
{
	bool any = false;
	u64 i;

	for (i = offset >> KVC_BLOCK_SHIFT; i < kvc_blocks(offset + len); i++) {
		any |= k->flags[i] & flag;
		k->flags[i] &= (u8)~flag;
	}
	return any;
}
