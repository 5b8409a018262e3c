/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers for tests that write media by hand: samples, and checksums put right after a change.
 */
#ifndef MEDIA_H
#define MEDIA_H

#include "media/format.h"

/* A superblock with two members and three tenants */
void media_sample_super(struct kvc_super *s);
void media_sample_limits(struct kvc_super *s);		/* beside them, or not */
/* Identity of segment 3 of member 1 */
void media_sample_id(struct kvc_seg_id *id);
/* An extent with two pages and a tombstone at block 5; returns its bytes. Chunks of 64 KiB, segments of 256 blocks. */
u32 media_sample_extent(const struct kvc_seg_id *id, void *buf, u32 cap);

void media_fix_super(void *slot);
/* Fixes the CRC of as many bytes as the header says, if they are within @cap. */
void media_fix_extent(void *buf, u32 cap);

#endif
