/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef KVCTX_COPY_H
#define KVCTX_COPY_H

#include <stddef.h>

/*
 * As memcpy(), and much goes past the caches. Who sees what is written after it sees it, too.
 */
void kvctx_copy_page(void *to, const void *from, size_t bytes);

#endif
