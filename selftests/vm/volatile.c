// SPDX-License-Identifier: GPL-2.0
/*
 * A disk with a volatile write cache, as a plugin of nbdkit: QEMU's client may be killed at any moment, and then what
 * it had not flushed is lost, or not, as a seed decides.
 *
 *	nbdkit -f -U SOCKET volatile.so image=FILE seed=N unit=512|4096 report=FILE [delay=MS]
 *
 * FILE is the medium. Writes go to a private view of it, which is what reads see; each unit written is remembered until
 * a flush, a write with FUA, or the cache's own whim brings it to the medium. The end of the connection is the power
 * cut: some of the units that are left reach the medium, the others do not. Which, is one of three rules: each by
 * chance, only those written first, only those written last; with a grain of a unit or more, so that writes are torn
 * at any unit. Then nbdkit ends, having written to the report what was lost.
 *
 * QEMU's SSD forgets the FUA of a write. A connection to the export "fua" is to the same medium, and every write through
 * it is one with FUA: see selftests/kvctx/twin.
 *
 * Requests overtake each other: a flush takes up to MS milliseconds (30), as may a write, and a flush covers the writes
 * that were complete when it came, no others.
 *
 * One mutex guards it all; it is not held while a request waits.
 *
 * The host's page cache is no substitute for this: it survives the death of any process.
 */
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

static const char *image, *report;
static uint64_t seed;
static unsigned int unit = 512, delay = 30;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint8_t *medium, *view;
static uint64_t bytes;
static uint32_t *written;	/* by unit: when it was written last, 0: the medium has it */
static uint32_t clock_now;
static unsigned int flushing;	/* flushes under way */
static bool powered = true;
static char plain, through;	/* handles of connections; all writes of the second kind are with FUA */
static uint64_t lo = UINT64_MAX, hi;	/* units outside of [lo, hi) are clean */

static uint64_t chance(void)
{
	uint64_t z = seed += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static int volatile_config(const char *key, const char *value)
{
	if (!strcmp(key, "image")) {
		image = value;
		return 0;
	}
	if (!strcmp(key, "report")) {
		report = value;
		return 0;
	}
	if (!strcmp(key, "seed"))
		return nbdkit_parse_uint64_t(key, value, &seed);
	if (!strcmp(key, "delay"))
		return nbdkit_parse_unsigned(key, value, &delay);
	if (!strcmp(key, "unit") && !nbdkit_parse_unsigned(key, value, &unit))
		return unit == 512 || unit == 4096 ? 0 : -1;
	nbdkit_error("unknown parameter %s=%s", key, value);
	return -1;
}

static int volatile_config_complete(void)
{
	if (image && report)
		return 0;
	nbdkit_error("image and report are needed");
	return -1;
}

static int volatile_get_ready(void)
{
	int fd = open(image, O_RDWR | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || st.st_size < 4096) {
		nbdkit_error("%s: %s", image, errno ? strerror(errno) : "too small");
		return -1;
	}
	bytes = (uint64_t)st.st_size & ~4095ULL;
	medium = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	/* what was never written shows the medium, also as a flush has changed it */
	view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
	written = mmap(NULL, bytes / unit * sizeof(*written), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	close(fd);
	if (medium != MAP_FAILED && view != MAP_FAILED && written != MAP_FAILED)
		return 0;
	nbdkit_error("%s: cannot be mapped", image);
	return -1;
}

static void to_medium(uint64_t u)
{
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
	if (delay && !(maybe && chance() % 8))
		us = (unsigned int)(chance() % (delay * 1000));
	pthread_mutex_unlock(&lock);
	/* it ends early when the client does */
	if (us && nbdkit_nanosleep(us / 1000000, us % 1000000 * 1000)) {
		pthread_mutex_lock(&lock);
		powered = false;
		pthread_mutex_unlock(&lock);
	}
}

/* Write @buf, or zeros, to the view; whole units, as block_size says */
static int put(void *handle, const void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	bool fua = handle == &through || flags & NBDKIT_FLAG_FUA;
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

static int volatile_pread(void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	(void)handle, (void)flags;
	pthread_mutex_lock(&lock);
	memcpy(buf, view + offset, count);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int volatile_pwrite(void *handle, const void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	return put(handle, buf, count, offset, flags);
}

static int volatile_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	return put(handle, NULL, count, offset, flags);
}

static int volatile_flush(void *handle, uint32_t flags)
{
	uint64_t first = UINT64_MAX, end = 0;
	uint32_t covers;
	bool done;

	(void)handle, (void)flags;
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

static int64_t volatile_get_size(void *handle)
{
	(void)handle;
	return (int64_t)bytes;
}

static int volatile_block_size(void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
	(void)handle;
	*minimum = unit;
	*preferred = 4096;
	*maximum = 0xffffffff;
	return 0;
}

static int volatile_can_fua(void *handle)
{
	(void)handle;
	return NBDKIT_FUA_NATIVE;
}

static void *volatile_open(int readonly)
{
	const char *name = nbdkit_export_name();

	(void)readonly;
	return name && !strcmp(name, "fua") ? &through : &plain;
}

/* The power cut; what is under way has no effect any more */
static void power_cut(void)
{
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
	f = fopen(report, "w");
	if (f) {
		fprintf(f, "lost %llu of %llu KiB, %s kept\n", (unsigned long long)(lost * unit >> 10),
			(unsigned long long)(dirty * unit >> 10), rules[rule]);
		fclose(f);
	}
}

/* Both connections end at once: the client is dead */
static void volatile_close(void *handle)
{
	static bool was_cut;

	(void)handle;
	pthread_mutex_lock(&lock);
	powered = false;
	if (!was_cut)
		power_cut();
	was_cut = true;
	pthread_mutex_unlock(&lock);
	nbdkit_shutdown();
}

static struct nbdkit_plugin plugin = {
	.name			= "volatile",
	.longname		= "disk with a volatile write cache",
	.config			= volatile_config,
	.config_complete	= volatile_config_complete,
	.config_help		= "image=FILE seed=N unit=512|4096 report=FILE [delay=MS]",
	.get_ready		= volatile_get_ready,
	.open			= volatile_open,
	.close			= volatile_close,
	.get_size		= volatile_get_size,
	.block_size		= volatile_block_size,
	.can_fua		= volatile_can_fua,
	.pread			= volatile_pread,
	.pwrite			= volatile_pwrite,
	.zero			= volatile_zero,
	.trim			= volatile_zero,
	.flush			= volatile_flush,
};

NBDKIT_REGISTER_PLUGIN(plugin)
