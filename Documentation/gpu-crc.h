/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * CRC32C of a chunk by many threads, in arithmetic that a GPU and a CPU do alike: gpu-crc.cu runs it on the one, a test
 * of the library on the other.
 *
 * Each thread takes a slice of the chunk and makes its CRC by a table of 256 words. Two neighbours are put together by
 *
 *	crc(A and B) = crc(A) * x^(8 * bytes of B)  +  crc(B)
 *
 * over GF(2), modulo the polynomial: the operator of crc32_combine() in zlib, by Mark Adler, which calculates the power
 * of x by squaring (zlib 1.2.12 and later). A tree of such steps ends with the chunk's CRC at the first thread. Bits are
 * reflected: the highest bit of a word is x^0.
 */
#ifndef KVCTX_GPU_CRC_H
#define KVCTX_GPU_CRC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define GPU_CRC	static inline __host__ __device__
#else
#define GPU_CRC	static inline
#endif

#define GPU_CRC_POLY	0x82f63b78U	/* Castagnoli */
#define GPU_CRC_TABLE	256

/* One CRC and the bytes it covers */
struct gpu_crc {
	uint32_t crc, bytes;
};

/* Word @n of the table */
GPU_CRC uint32_t gpu_crc_table(uint32_t n)
{
	for (int bit = 0; bit < 8; bit++)
		n = n & 1 ? n >> 1 ^ GPU_CRC_POLY : n >> 1;
	return n;
}

/* a * b modulo the polynomial */
GPU_CRC uint32_t gpu_crc_multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; a; a <<= 1) {
		if (a & 0x80000000U)
			product ^= b;
		b = b & 1 ? b >> 1 ^ GPU_CRC_POLY : b >> 1;
	}
	return product;
}

/* x^(8 * bytes) modulo the polynomial */
GPU_CRC uint32_t gpu_crc_power(uint32_t bytes)
{
	uint32_t power = 0x80000000U, square = 0x00800000U;	/* x^0, x^8 */

	for (; bytes; bytes >>= 1) {
		if (bytes & 1)
			power = gpu_crc_multiply(square, power);
		square = gpu_crc_multiply(square, square);
	}
	return power;
}

/* The CRC of the bytes of @a followed by those of @b */
GPU_CRC struct gpu_crc gpu_crc_join(struct gpu_crc a, struct gpu_crc b)
{
	a.crc = gpu_crc_multiply(gpu_crc_power(b.bytes), a.crc) ^ b.crc;
	a.bytes += b.bytes;
	return a;
}

/* The slice of thread @t of @threads: 16 bytes or a multiple of it, the last ones shorter or empty */
GPU_CRC struct gpu_crc gpu_crc_slice(const uint32_t *table, const uint8_t *chunk, uint32_t bytes, uint32_t t,
				     uint32_t threads)
{
	uint32_t each = ((bytes + threads - 1) / threads + 15) & ~15U;
	uint32_t from = t * each < bytes ? t * each : bytes;
	uint32_t end = bytes - from < each ? bytes : from + each;
	struct gpu_crc c = { 0, end - from };
	uint32_t crc = ~0U;

	for (; from < end; from++)
		crc = crc >> 8 ^ table[(crc ^ chunk[from]) & 0xff];
	c.crc = ~crc;
	return c;
}

#endif
