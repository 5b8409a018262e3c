/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef KVCTX_COPY_H
#define KVCTX_COPY_H

#include <stddef.h>

/*
 * As memcpy(). Much goes past the caches; it is in memory when this returns, in order with what is written after it.
 */
void kvctx_copy_page(void *to, const void *from, size_t bytes);

#endif
