// SPDX-License-Identifier: LGPL-2.1-or-later
/* The system calls that the library makes: the seam at which tests put a kernel of their own. */
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "handle.h"

int kvctx_sys_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int kvctx_sys_ioctl(int fd, unsigned long nr, void *arg)
{
	int ret = ioctl(fd, nr, arg);

	return ret < 0 ? -errno : ret;
}

int kvctx_sys_mmap(int fd, size_t len, int prot, uint64_t offset, void **out)
{
	void *p = mmap(NULL, len, prot, MAP_SHARED, fd, (off_t)offset);

	if (p == MAP_FAILED)
		return -errno;
	*out = p;
	return 0;
}

void kvctx_sys_munmap(void *p, size_t len)
{
	munmap(p, len);
}

void kvctx_sys_close(int fd)
{
	close(fd);
}
