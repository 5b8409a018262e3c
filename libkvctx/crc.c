// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * CRC32C: polynomial 0x1edc6f41 (Castagnoli), reflected, initial value and final exclusive-or all
 * ones, as RFC 3720 (iSCSI) has it.
 */
#include "../kmod/core/os-native/user.h"
#include "handle.h"

uint32_t kvctx_crc32c(uint32_t crc, const void *buf, size_t len)
{
	return ~os_crc32c(~crc, buf, len);
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
