/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Golden bytes: what the encoders wrote when the format was fixed, as text.
 */
#ifndef GOLDEN_H
#define GOLDEN_H

#include "os.h"

/*
 * Compare @len bytes with the file @name. True when they are the same. With KVC_GOLDEN_WRITE in the environment the
 * file is written instead.
 */
bool golden_same(const char *name, const void *bytes, u32 len);

#endif
