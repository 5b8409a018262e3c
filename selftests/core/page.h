/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Keys and page bytes, derived from numbers: whoever knows a page's version knows every byte of it.
 */
#ifndef PAGE_H
#define PAGE_H

#include "media/format.h"

/*
 * Key number @id. Keys are close to each other on purpose: they are one base pattern in which one byte, whose place
 * goes round with the number, is another; so each byte of the comparison is needed to tell some of them apart.
 */
void key_make(u8 key[KVC_KEY_LEN], u32 id);

/* Keyspace number @id; the same habit */
void keyspace_make(u8 keyspace[KVC_KEYSPACE_LEN], u32 id);

/* The bytes [@from, @from + @len) of the page with this version */
void page_bytes(void *buf, u64 version, u64 from, u32 len);

/* First offset at which @buf is not what page_bytes() gives; @len when none is. */
u32 page_compare(const void *buf, u64 version, u64 from, u32 len);

u32 page_crc(const void *buf, u32 len);

#endif
