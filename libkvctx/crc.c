// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * CRC32C: polynomial 0x1edc6f41 (Castagnoli), reflected, initial value and final exclusive-or all
 * ones, as RFC 3720 (iSCSI) has it.
 *
 * With the processor's instruction where there is one (SSE4.2), otherwise by tables, eight bytes at
 * a time: M. E. Kounavis and F. L. Berry, "A Systematic Approach to Building High Performance
 * Software-Based CRC Generators", ISCC 2005.
 */
#include "handle.h"

#define POLY	0x82f63b78U	/* reflected */

static uint32_t table[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t (*feed)(uint32_t crc, const uint8_t *p, size_t len);

static uint64_t read_le64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap64(v);
#endif
	return v;
}

/* table[n][b]: what the byte b does to the CRC when n more bytes of zeros follow */
static void fill_table(void)
{
	uint32_t crc, n, b, bit;

	for (b = 0; b < 256; b++) {
		crc = b;
		for (bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ POLY : crc >> 1;
		table[0][b] = crc;
	}
	for (n = 1; n < 8; n++)
		for (b = 0; b < 256; b++)
			table[n][b] = table[n - 1][b] >> 8 ^ table[0][table[n - 1][b] & 0xff];
}

static uint32_t feed_table(uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t v;

	for (; len >= 8; p += 8, len -= 8) {
		v = read_le64(p) ^ crc;
		crc = table[7][v & 0xff] ^ table[6][v >> 8 & 0xff] ^ table[5][v >> 16 & 0xff] ^
		      table[4][v >> 24 & 0xff] ^ table[3][v >> 32 & 0xff] ^ table[2][v >> 40 & 0xff] ^
		      table[1][v >> 48 & 0xff] ^ table[0][v >> 56];
	}
	for (; len; p++, len--)
		crc = crc >> 8 ^ table[0][(crc ^ *p) & 0xff];
	return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2")))
static uint32_t feed_sse42(uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t c = crc;

	for (; len >= 8; p += 8, len -= 8)
		c = __builtin_ia32_crc32di(c, read_le64(p));
	for (; len; p++, len--)
		c = __builtin_ia32_crc32qi((uint32_t)c, *p);
	return (uint32_t)c;
}

static bool has_sse42(void)
{
	return __builtin_cpu_supports("sse4.2");
}
#else
#define feed_sse42	feed_table
static bool has_sse42(void)
{
	return false;
}
#endif

/* Also for tests, which compare both ways */
void kvctx_crc_choose(bool instruction)
{
	fill_table();
	feed = instruction && has_sse42() ? feed_sse42 : feed_table;
}

static void choose(void)
{
	kvctx_crc_choose(true);
}

uint32_t kvctx_crc32c(uint32_t crc, const void *buf, size_t len)
{
	pthread_once(&once, choose);
	return ~feed(~crc, buf, len);
}

int kvctx_check_crcs(const void *buf, size_t len, uint32_t chunk_size, const uint32_t *crcs)
{
	const uint8_t *p = buf;
	size_t n;

	if (!chunk_size)
		return -EINVAL;
	for (; len; p += n, len -= n) {
		n = len < chunk_size ? len : chunk_size;
		if (kvctx_crc32c(0, p, n) != *crcs++)
			return -EBADMSG;
	}
	return 0;
}
