/* SPDX-License-Identifier: GPL-2.0 */
/* What every cmocka test needs, in the order that cmocka asks for. */
#ifndef KVCTX_WORKLOAD_UNIT_H
#define KVCTX_WORKLOAD_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "util.h"

/* argc and argv of a program that is called with these words */
#define ARGS(...)	ARRAY_SIZE(((char *[]){ "program", __VA_ARGS__ })), (char *[]){ "program", __VA_ARGS__, NULL }

#endif
