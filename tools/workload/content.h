/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a page holds. Every byte follows from (seed, id of the page, offset), so any part of any page can be made or
 * checked alone, and bytes of another page, another offset or another seed are never right.
 */
#ifndef KVCTX_WORKLOAD_CONTENT_H
#define KVCTX_WORKLOAD_CONTENT_H

#include <stddef.h>
#include <stdint.h>
#include <linux/kvctx.h>

/* Start of a page's stream; the other functions take it as @base */
uint64_t content_base(uint64_t seed, uint64_t id);

/* Bytes @offset..@offset + @len of the page into @buf */
void content_fill(void *buf, size_t len, uint64_t base, uint64_t offset);

/* Compare; returns the index in @buf of the first byte that differs, @len when none does */
size_t content_check(const void *buf, size_t len, uint64_t base, uint64_t offset);

uint8_t content_byte(uint64_t base, uint64_t offset);

/* The page's name, distinct for distinct ids */
void content_key(uint64_t id, struct kvctx_key *key);

/* Keyspace of a replay: pages of another seed or size do not exist for it */
void content_keyspace(uint64_t seed, uint64_t page_size, uint8_t keyspace[KVCTX_KEYSPACE_LEN]);

#endif
