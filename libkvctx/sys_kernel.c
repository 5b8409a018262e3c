// SPDX-License-Identifier: LGPL-2.1-or-later
/* The kernel as a server: each function is the system call of its name. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sys.h"

struct kernel_file {
	struct kvctx_file file;
	int fd;
};

static int kernel_fd(struct kvctx_file *f)
{
	return ((struct kernel_file *)f)->fd;
}

static int kernel_open(const char *path, int flags, struct kvctx_file **out)
{
	struct kernel_file *k = malloc(sizeof(*k));
	int err;

	if (!k)
		return -ENOMEM;
	k->file.server = &kvctx_kernel;
	k->fd = open(path, flags | O_CLOEXEC);
	if (k->fd < 0) {
		err = -errno;
		free(k);
		return err;
	}
	*out = &k->file;
	return 0;
}

static int kernel_ioctl(struct kvctx_file *f, unsigned long nr, void *arg)
{
	int ret = ioctl(kernel_fd(f), nr, arg);

	return ret < 0 ? -errno : ret;
}

static int kernel_mmap(struct kvctx_file *f, size_t len, int prot, uint64_t offset, void **out)
{
	void *p = mmap(NULL, len, prot, MAP_SHARED, kernel_fd(f), (off_t)offset);

	if (p == MAP_FAILED)
		return -errno;
	*out = p;
	return 0;
}

static void kernel_munmap(struct kvctx_file *f, void *p, size_t len)
{
	(void)f;
	munmap(p, len);
}

static void kernel_close(struct kvctx_file *f)
{
	close(kernel_fd(f));
	free(f);
}

const struct kvctx_server kvctx_kernel = {
	.open = kernel_open,
	.ioctl = kernel_ioctl,
	.mmap = kernel_mmap,
	.munmap = kernel_munmap,
	.poll_fd = kernel_fd,
	.close = kernel_close,
};
