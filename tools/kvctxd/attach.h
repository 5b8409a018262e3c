/* SPDX-License-Identifier: GPL-2.0 */
/* A pool whose members are told one by one; see attach.c. */
#ifndef KVCTXD_ATTACH_H
#define KVCTXD_ATTACH_H

#include "kvctxd.h"

/*
 * @devices: paths of members, or one of a directory that holds them, or its name below kvd_pools_dir. 0, or -errno with
 * a sentence in @why; -ENOENT: there is no directory of this name
 */
int kvd_attach_devices(const char *const *devices, uint32_t nr, bool degraded, struct kvd_pool **out, char *why);
/* After the pool of @dir was detached; and what a daemon that was killed has left */
void kvd_attach_forget(const char *dir);
void kvd_attach_forget_all(void);

#endif
