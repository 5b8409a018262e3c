/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * What a session is without I/O, for whoever serves the contract of uapi/linux/kvctx.h.
 *
 * Here lives what such a server decides before it moves anything: which operations are valid (sqe.c), and the limits
 * that it reports. The module and user space build the same files: their platform is the engine's os.h, they name no
 * other header of the kernel's, and they call nothing.
 */
#ifndef KVCTX_SESSION_H
#define KVCTX_SESSION_H

#include "os.h"

#include <linux/kvctx.h>

/* Limits that INFO reports */
#define KVCTX_SEGS_MAX		256U
#define KVCTX_BATCH_MAX		4096U
#define KVCTX_CQ_MAX		65536U
#define KVCTX_MATCH_MAX		65536U
#define KVCTX_LEASE_MS_MAX	60000U
#define KVCTX_LEASES_MAX	65536U
#define KVCTX_MEM_MAX		1024U
#define KVCTX_SLOTS_MAX		65536U

/* What sets one session's operations apart from another's; does not change while it is open */
struct kvctx_rights {
	bool rdonly;			/* it may not write */
	bool verified;			/* the tenant refuses what would not verify */
	u32 page_max;			/* bytes of the longest page */
};

/* What an opcode may use */
struct kvctx_rule {
	bool known;
	bool writes;			/* refused in a read-only session */
	u8 prio;			/* what KVCTX_PRIO_DEFAULT means */
	u32 flags;			/* KVCTX_OP_* */
	u32 fields;			/* of those that not every opcode uses, see sqe.c */
};

#define KVCTX_OPS		(KVCTX_OP_PUT + 1)

extern const struct kvctx_rule kvctx_rules[KVCTX_OPS];		/* by opcode */

void kvctx_rule_masks(u64 *ops, u64 *flags);
int kvctx_sqe_check(const struct kvctx_sqe *sqe, const struct kvctx_rule *rule, const struct kvctx_rights *rights);

#endif
