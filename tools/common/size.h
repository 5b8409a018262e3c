/* SPDX-License-Identifier: GPL-2.0 */
/* How the tools read a size: one grammar, which the manual page of each says. */
#ifndef KVCTX_TOOLS_SIZE_H
#define KVCTX_TOOLS_SIZE_H

#include <stdint.h>

/*
 * Digits, and a unit or none: K, M, G, T or KiB, MiB, GiB, TiB, powers of 1024, in either case. KB and MB, which mean
 * 1000 to some, are refused. Returns 0; -EINVAL: no size; -ERANGE: 2^64 or more.
 */
int parse_size(const char *text, uint64_t *bytes);

#endif
