/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Shared memory in huge pages.
 *
 * A memfd is of small pages unless the system is set otherwise, and a transfer pays for each page. Memory that is laid
 * out as huge pages are, and pinned as a whole anyway, is therefore collapsed into such pages before that. Where it
 * cannot be it remains as it is, and works.
 */
#ifndef KVE_HUGE_H
#define KVE_HUGE_H

#include <stddef.h>
#include <stdint.h>

/* mmap() of a shared file, at an address where huge pages of its can be shown as such. MAP_FAILED with errno */
void *kve_huge_map(int fd, size_t bytes, int prot, uint64_t offset);
/* Brings all pages of what kve_huge_map() gave there, until one that cannot be huge; nobody has pinned them */
void kve_huge_collapse(void *addr, size_t bytes);

#endif
