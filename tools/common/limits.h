/* SPDX-License-Identifier: GPL-2.0 */
/* A tenant's limits (enum kvctx_genl_limit), as they are parsed at either end: see limits.c. */
#ifndef KVCTX_TOOLS_LIMITS_H
#define KVCTX_TOOLS_LIMITS_H

#include <linux/kvctx_genl.h>
#include <netlink/attr.h>

extern const struct nla_policy limits_policy[KVCTX_L_MAX + 1];

#endif
