// SPDX-License-Identifier: GPL-2.0
#include "limits.h"

const struct nla_policy limits_policy[KVCTX_L_MAX + 1] = {
	[KVCTX_L_QUOTA] = { .type = NLA_U64 },
	[KVCTX_L_RESERVE] = { .type = NLA_U64 },
	[KVCTX_L_WRITE_BUDGET] = { .type = NLA_U64 },
	[KVCTX_L_PINNED] = { .type = NLA_U64 },
	[KVCTX_L_LEASED] = { .type = NLA_U64 },
	[KVCTX_L_KEYSPACES] = { .type = NLA_U32 },
	[KVCTX_L_FLAGS] = { .type = NLA_U32 },
	[KVCTX_L_BANDWIDTH] = { .type = NLA_U64 },
	[KVCTX_L_INFLIGHT] = { .type = NLA_U32 },
	[KVCTX_L_WEIGHT] = { .type = NLA_U32 },
};
