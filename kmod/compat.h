/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The only place for differences between kernels. The rest of the module is written for the newest one.
 *
 * Each entry tells what changed, since when, and when it can go. The presence of an interface is asked for rather than
 * a version where the preprocessor can see it, since stable kernels take changes back.
 */
#ifndef KVCTX_COMPAT_H
#define KVCTX_COMPAT_H

#endif
