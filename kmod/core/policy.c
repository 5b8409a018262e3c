// SPDX-License-Identifier: GPL-2.0
/*
 * The reclaim policies.
 *
 *	clock	segments go in the order in which they were opened; pages that were loaded since they were stored or
 *		last moved get another round
 *	fifo	the same order, and nothing gets another round
 */
#include "engine.h"

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

static bool keep_none(u32 hits, u32 depth, u32 length)
{
	(void)hits;
	(void)depth;
	(void)length;
	return false;
}

static const struct kvc_policy clock_policy = {
	.name = "clock",
	.victim = oldest_victim,
	.keep = keep_hit,
};

static const struct kvc_policy fifo_policy = {
	.name = "fifo",
	.victim = oldest_victim,
	.keep = keep_none,
};

const struct kvc_policy *const kvc_policies[] = { &clock_policy, &fifo_policy, NULL };

const struct kvc_policy *kvc_policy_find(const char *name)
{
	u32 i;

	for (i = 0; kvc_policies[i]; i++)
		if (!strncmp(kvc_policies[i]->name, name, KVC_NAME_MAX))
			return kvc_policies[i];
	return NULL;
}

int kvc_pool_set_policy(struct kvc_pool *p, const struct kvc_policy *policy)
{
	if (p->eblocks.used)
		return -EBUSY;
	p->policy = policy;
	return 0;
}
