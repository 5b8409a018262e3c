// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The helpers of kvctx.h as symbols, for languages that bind to the library and cannot read its header: there they are
 * inline, here the same text defines functions.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <linux/kvctx.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define static
#define inline

#include "kvctx.h"
