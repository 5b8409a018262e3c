// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Copies of pages, between the memory of who calls and that which a device or a daemon reaches.
 *
 * A page is used once on its way, mostly by a device. To write it in the usual way has each cache line read from memory
 * first, only to be overwritten; and what was in the cache has to go. So lines are written whole, with stores that are
 * not temporal (Intel 64 and IA-32 Architectures Optimization Reference Manual, 9.4: non-temporal stores). That the C
 * library does so too, from a good part of the last cache on, is for who copies once: pages are below it, and many.
 */
#include <string.h>

#include "copy.h"

/* Sanitizers know memcpy(), not what a stream writes */
#if defined(__SSE2__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <emmintrin.h>
#include <stdint.h>

#define LINE		64U
#define STREAM_BYTES	(64U << 10)	/* below, to fetch it again costs more than is spared */

/* @to is at a line's begin */
static void stream(uint8_t *to, const uint8_t *from, size_t lines)
{
	for (; lines; lines--, to += LINE, from += LINE) {
		__m128i a = _mm_loadu_si128((const __m128i *)from);
		__m128i b = _mm_loadu_si128((const __m128i *)(from + 16));
		__m128i c = _mm_loadu_si128((const __m128i *)(from + 32));
		__m128i d = _mm_loadu_si128((const __m128i *)(from + 48));

		_mm_stream_si128((__m128i *)to, a);
		_mm_stream_si128((__m128i *)(to + 16), b);
		_mm_stream_si128((__m128i *)(to + 32), c);
		_mm_stream_si128((__m128i *)(to + 48), d);
	}
	_mm_sfence();
}

void kvctx_copy_page(void *to, const void *from, size_t bytes)
{
	size_t head = -(uintptr_t)to % LINE, lines = bytes < STREAM_BYTES ? 0 : (bytes - head) / LINE, done = 0;

	if (lines) {
		memcpy(to, from, head);
		stream((uint8_t *)to + head, (const uint8_t *)from + head, lines);
		done = head + lines * LINE;
	}
	memcpy((uint8_t *)to + done, (const uint8_t *)from + done, bytes - done);
}
#else
void kvctx_copy_page(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}
#endif
