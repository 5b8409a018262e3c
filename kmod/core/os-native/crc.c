// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * CRC32C in user space, by a library that knows the processor.
 */
#include <isa-l/crc.h>

#include "user.h"

/* The library takes an int; a page is shorter, a test's buffer may not be. */
u32 os_crc32c(u32 crc, const void *p, size_t n)
{
	const u8 *b = p;

	while (n > 0) {
		int step = n > INT_MAX ? INT_MAX : (int)n;

		crc = crc32_iscsi((unsigned char *)(uintptr_t)b, step, crc);
		b += step;
		n -= (size_t)step;
	}
	return crc;
}
