// SPDX-License-Identifier: LGPL-2.1-or-later
/* See huge.h. Nothing here is state: any thread. */
#include <sys/mman.h>
#include <unistd.h>

#include "huge.h"

#define HUGE_BYTES	((size_t)2 << 20)
#define HUGE_COLLAPSE	25		/* MADV_COLLAPSE of Linux 6.1, which headers of the C library may lack */

void *kve_huge_map(int fd, size_t bytes, int prot, uint64_t offset)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), room = bytes + HUGE_BYTES;
	uint8_t *all, *at, *end;

	if (bytes < HUGE_BYTES || offset % HUGE_BYTES)
		return mmap(NULL, bytes, prot, MAP_SHARED, fd, (off_t)offset);
	all = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (all == MAP_FAILED)
		return MAP_FAILED;
	at = (uint8_t *)(((uintptr_t)all + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
	if (mmap(at, bytes, prot, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) == MAP_FAILED) {
		munmap(all, room);
		return MAP_FAILED;
	}
	end = at + ((bytes + page - 1) & ~(page - 1));
	if (at > all)
		munmap(all, (size_t)(at - all));
	if (end < all + room)
		munmap(end, (size_t)(all + room - end));
	return at;
}

void kve_huge_collapse(void *addr, size_t bytes)
{
	size_t head = -(uintptr_t)addr % HUGE_BYTES;
	uint8_t *at = (uint8_t *)addr + head;

	if (bytes < head)
		return;
	for (bytes -= head; bytes >= HUGE_BYTES; at += HUGE_BYTES, bytes -= HUGE_BYTES)
		/* one page has to be there: the kernel does not collapse nothing */
		if (madvise(at, 1, MADV_POPULATE_WRITE) || madvise(at, HUGE_BYTES, HUGE_COLLAPSE))
			return;
}
