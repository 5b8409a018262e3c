// SPDX-License-Identifier: GPL-2.0
/*
 * The built-in reclaim policy, "segment-order": segments go in the order in which they were opened; pages that were
 * loaded since they were stored or last moved get another round.
 */
#include "core.h"

static u32 oldest_victim(const struct kvc_victim_view *v, u32 nr)
{
	u32 best = KVC_NONE, i;

	for (i = 0; i < nr; i++) {
		if (v[i].leases)
			continue;
		if (best == KVC_NONE || v[i].open_seq < v[best].open_seq)
			best = i;
	}
	return best;
}

static bool keep_hit(u32 hits, u32 depth, u32 length)
{
	(void)depth;
	(void)length;
	return hits > 0;
}

const struct kvc_policy kvc_policy_segment_order = {
	.name = "segment-order",
	.victim = oldest_victim,
	.keep = keep_hit,
};
