/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the programs about peer memory share. $KVCTX_PEER is the sysfs file that peer memory is mapped from,
 * $KVCTX_PEER_NAME the device's PCI name.
 */
#ifndef PEER_H
#define PEER_H

#include "ktest.h"

#define CHUNKS_MAX	1024
#define MEMBERS_MAX	64

/* The CRC32Cs of a page's chunks; how many */
uint32_t page_crcs(const uint8_t *p, size_t n, uint32_t chunk, uint32_t *crcs);

/* NULL: cannot be mapped */
void *map_peer(size_t bytes);

/* One ioctl each; 0 or -errno */
int reg(struct kt *k, const void *p, size_t bytes, uint32_t *id);
int unreg(struct kt *k, uint32_t id);
int paths(struct kt *k, uint32_t mem, struct kvctx_path *rows, uint32_t nr, uint32_t *members);
void info(struct kt *k, struct kvctx_info *i);

#endif
