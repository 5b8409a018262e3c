// SPDX-License-Identifier: GPL-2.0
/*
 * The device "slow" (slow.sh) of a pool that is served in this process, by threads (KVCTX_IO=threads): the test program's transfers come
 * here, as the linker was told to (--wrap), and are held back or delayed before they go on. A broken one fails reads only:
 * the engine writes when it likes, and a write that fails costs the member.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/uio.h>

#include "ktest.h"

ssize_t __real_preadv64v2(int fd, const struct iovec *iov, int nr, off_t at, int flags);
ssize_t __wrap_preadv64v2(int fd, const struct iovec *iov, int nr, off_t at, int flags);
ssize_t __real_pwritev64v2(int fd, const struct iovec *iov, int nr, off_t at, int flags);
ssize_t __wrap_pwritev64v2(int fd, const struct iovec *iov, int nr, off_t at, int flags);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool stuck, broken;
static unsigned int delay_ms;
static long reads;

/* Returns when the device may do it; false: a read fails */
static bool slow_pass(void)
{
	struct timespec end;
	bool fine;

	pthread_mutex_lock(&lock);
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_nsec += delay_ms % 1000 * 1000000L;
	end.tv_sec += delay_ms / 1000 + end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	while (stuck)
		pthread_cond_wait(&changed, &lock);
	while (delay_ms && pthread_cond_timedwait(&changed, &lock, &end) != ETIMEDOUT)
		;
	fine = !broken;
	pthread_mutex_unlock(&lock);
	return fine;
}

ssize_t __wrap_preadv64v2(int fd, const struct iovec *iov, int nr, off_t at, int flags)
{
	ssize_t ret = -1;

	if (slow_pass())
		ret = __real_preadv64v2(fd, iov, nr, at, flags);
	else
		errno = EIO;
	pthread_mutex_lock(&lock);
	reads += ret > 0;
	pthread_mutex_unlock(&lock);
	return ret;
}

ssize_t __wrap_pwritev64v2(int fd, const struct iovec *iov, int nr, off_t at, int flags)
{
	slow_pass();
	return __real_pwritev64v2(fd, iov, nr, at, flags);
}

long kt_slow_here(const char *verb)
{
	long ret = 0;

	if (!getenv("KVCTX_IO"))	/* an io_uring goes past us */
		return -1;
	pthread_mutex_lock(&lock);
	if (!strcmp(verb, "reads")) {
		ret = reads;
	} else if (!strcmp(verb, "stuck")) {
		stuck = true;
	} else if (!strcmp(verb, "resume")) {
		stuck = false;
	} else if (!strcmp(verb, "error")) {
		broken = true;
		stuck = false;
	} else if (!strncmp(verb, "delay ", 6)) {	/* which another table comes with */
		delay_ms = (unsigned int)atoi(verb + 6);
		broken = false;
	} else {
		ret = -1;
	}
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return ret;
}
