// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that clients register: a memfd that they share with us, mapped here too, so that pages move without a copy.
 *
 * It has to be sealed against shrinking, or a client could have us fault behind its end; in a hole that he punches we
 * find zeros. It can be as much as he likes: so much of it a session is limited (kvd_registered_max). Memory of hugetlbfs is refused:
 * its client can take a page out that we could then not get back, with the same effect.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "kvctxd.h"

static int memory_check(int fd, uint64_t offset, uint64_t length)
{
	int seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);
	struct statfs fs;
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC)
		return -EREMOTEIO;
	if (flags < 0 || (flags & O_ACCMODE) != O_RDWR || seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
		return -EFAULT;
	if (fstat(fd, &st) || offset > (uint64_t)st.st_size || length > (uint64_t)st.st_size - offset)
		return -EFAULT;
	return 0;
}

int kvd_memory_map(int fd, uint64_t offset, uint64_t length, struct kvd_memory **out, void **addr)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skip = offset % page;
	struct kvd_memory *m;
	int err;

	if (!length)
		return -EINVAL;
	err = memory_check(fd, offset, length);
	if (err)
		return err;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->bytes = skip + length;
	m->map = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - skip));
	if (m->map == MAP_FAILED) {
		free(m);
		return -ENOMEM;
	}
	madvise(m->map, m->bytes, MADV_DONTDUMP);
	*addr = (uint8_t *)m->map + skip;
	*out = m;
	return 0;
}

void kvd_memory_unmap(struct kvd_memory *m)
{
	munmap(m->map, m->bytes);
	free(m);
}
