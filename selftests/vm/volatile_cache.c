// SPDX-License-Identifier: GPL-2.0
/* See volatile_cache.h. One mutex guards it all; it is not held while a request waits. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "volatile_cache.h"

struct volatile_config volatile_config = { .unit = 512, .delay = 30 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint8_t *medium, *view;
static uint64_t bytes;
static uint32_t *written;	/* by unit: when it was written last, 0: the medium has it */
static uint32_t clock_now;
static unsigned int flushing;	/* flushes under way */
static bool powered = true;
static uint64_t lo = UINT64_MAX, hi;	/* units outside of [lo, hi) are clean */

static uint64_t chance(void)
{
	uint64_t z = volatile_config.seed += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

int volatile_open(void)
{
	int fd = open(volatile_config.image, O_RDWR | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || st.st_size < 4096) {
		close(fd);
		return -EINVAL;
	}
	bytes = (uint64_t)st.st_size & ~4095ULL;
	medium = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	/* what was never written shows the medium, also as a flush has changed it */
	view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
	written = mmap(NULL, bytes / volatile_config.unit * sizeof(*written), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	close(fd);
	return medium != MAP_FAILED && view != MAP_FAILED && written != MAP_FAILED ? 0 : -ENOMEM;
}

uint64_t volatile_bytes(void)
{
	return bytes;
}

static void to_medium(uint64_t u)
{
	uint32_t unit = volatile_config.unit;

	if (!written[u])
		return;
	memcpy(medium + u * unit, view + u * unit, unit);
	written[u] = 0;
}

/* The cache makes room for itself now and then: some of a stretch somewhere */
static void whim(void)
{
	uint64_t u, end;

	if (lo >= hi || chance() % 16)
		return;
	u = lo + chance() % (hi - lo);
	end = u + 512 < hi ? u + 512 : hi;
	for (; u < end; u++)
		if (chance() % 2)
			to_medium(u);
}

/* Unlocked: some time passes, or, with @maybe, most often none */
static void wait_some(bool maybe)
{
	unsigned int us = 0;

	pthread_mutex_lock(&lock);
	if (volatile_config.delay && !(maybe && chance() % 8))
		us = (unsigned int)(chance() % (volatile_config.delay * 1000));
	pthread_mutex_unlock(&lock);
	/* it ends early when the client does */
	if (us && volatile_config.sleep(us)) {
		pthread_mutex_lock(&lock);
		powered = false;
		pthread_mutex_unlock(&lock);
	}
}

int volatile_write(const void *buf, uint32_t count, uint64_t offset, bool fua)
{
	uint32_t unit = volatile_config.unit;
	uint64_t first = offset / unit, end = (offset + count + unit - 1) / unit;

	wait_some(true);
	pthread_mutex_lock(&lock);
	if (!powered) {
		pthread_mutex_unlock(&lock);
		return -1;
	}
	/* what a flush under way covers may not be lost with what replaces it */
	for (uint64_t u = first; flushing && u < end; u++)
		to_medium(u);
	if (buf)
		memcpy(view + offset, buf, count);
	else
		memset(view + offset, 0, count);
	clock_now++;
	for (uint64_t u = first; u < end; u++) {
		written[u] = clock_now;
		if (fua)
			to_medium(u);
	}
	lo = first < lo ? first : lo;
	hi = end > hi ? end : hi;
	whim();
	pthread_mutex_unlock(&lock);
	return 0;
}

void volatile_read(void *buf, uint32_t count, uint64_t offset)
{
	pthread_mutex_lock(&lock);
	memcpy(buf, view + offset, count);
	pthread_mutex_unlock(&lock);
}

int volatile_flush(void)
{
	uint64_t first = UINT64_MAX, end = 0;
	uint32_t covers;
	bool done;

	pthread_mutex_lock(&lock);
	covers = clock_now;
	flushing++;
	pthread_mutex_unlock(&lock);
	wait_some(false);
	pthread_mutex_lock(&lock);
	flushing--;
	for (uint64_t u = lo; powered && u < hi; u++) {
		if (!written[u])
			continue;
		if (written[u] <= covers) {
			to_medium(u);
			continue;
		}
		first = u < first ? u : first;
		end = u + 1;
	}
	done = powered;
	if (done) {
		lo = first;
		hi = end;
	}
	pthread_mutex_unlock(&lock);
	return done ? 0 : -1;
}

/* The power cut; what is under way has no effect any more */
static void power_cut(void)
{
	uint32_t unit = volatile_config.unit;
	static const char *const rules[] = { "some", "the oldest", "the newest" };
	static const unsigned int shares[] = { 0, 0, 1, 8, 32, 56, 63 };
	unsigned int rule = (unsigned int)(chance() % 3), share = shares[chance() % 7];
	unsigned int grain = (unsigned int[]){ 512, 4096, 65536 }[chance() % 3];
	uint64_t u, dirty = 0, lost = 0;
	uint32_t border = 0;
	bool keep = false;
	FILE *f;

	if (rule)	/* the clock when about this share of the last writes had come */
		border = clock_now - (uint32_t)((clock_now < 60 ? clock_now : 60) * (uint64_t)(64 - share) / 64);
	for (u = lo; u < hi; u++) {
		if (u == lo || u * unit % grain == 0)
			keep = chance() % 64 < share;
		if (!written[u])
			continue;
		dirty++;
		if (rule == 1)
			keep = written[u] <= border;
		else if (rule == 2)
			keep = written[u] > border;
		if (keep)
			to_medium(u);
		else
			lost++;
	}
	f = fopen(volatile_config.report, "w");
	if (f) {
		fprintf(f, "lost %llu of %llu KiB, %s kept\n", (unsigned long long)(lost * unit >> 10),
			(unsigned long long)(dirty * unit >> 10), rules[rule]);
		fclose(f);
	}
}

void volatile_cut(void)
{
	static bool was_cut;

	pthread_mutex_lock(&lock);
	powered = false;
	if (!was_cut)
		power_cut();
	was_cut = true;
	pthread_mutex_unlock(&lock);
}
