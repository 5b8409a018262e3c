/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory in huge pages.
 *
 * A memfd is of small pages unless the system is set otherwise, and so is most memory of callers; a transfer pays for
 * each page. Memory that is pinned as a whole anyway is therefore collapsed into huge pages before that, where it lies
 * as they do. Where it cannot be it remains as it is, and works.
 */
#ifndef KVE_HUGE_H
#define KVE_HUGE_H

#include <stddef.h>
#include <stdint.h>

/* mmap() of a shared file, at an address where huge pages of its can be shown as such. MAP_FAILED with errno */
void *kve_huge_map(int fd, size_t bytes, int prot, uint64_t offset);
/* Brings all huge pages that fit into the memory there, until one that cannot be huge; what others pinned cannot */
void kve_huge_collapse(void *addr, size_t bytes);

#endif
