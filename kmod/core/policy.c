// SPDX-License-Identifier: GPL-2.0
/*
 * The reclaim policies.
 *
 *	clock	segments go in the order in which they were opened; pages that were loaded since they were stored or
 *		last moved get another round
 *	fifo	the same order, and nothing gets another round
 *	s3fifo	pages that were never loaded leave early: after J. Yang et al., "FIFO Queues are All You Need for Cache
 *		Eviction", SOSP 2023. Its small queue is KVC_QUEUE_NEW, its main queue KVC_QUEUE_LONG: pages that
 *		were loaded while they were in the first are moved to the second, and those that come back after
 *		their eviction start there. The small queue gets half of the room instead of a tenth: pages of
 *		conversations come back late, and what is not moved is lost by whole segments.
 */
#include "engine.h"

static bool keep_hit(const struct kvc_page_view *page)
{
	return page->hits > 0;
}

static bool keep_none(const struct kvc_page_view *page)
{
	(void)page;
	return false;
}

static u32 half_hits(const struct kvc_page_view *page)
{
	return page->hits / 2;
}

static enum kvc_queue larger_half(const u32 segments[KVC_NR_QUEUES])
{
	return segments[KVC_QUEUE_NEW] > segments[KVC_QUEUE_LONG] ? KVC_QUEUE_NEW : KVC_QUEUE_LONG;
}

/* From the small queue a page comes new into the main one; a round in the main one takes a hit. */
static u32 s3fifo_hits(const struct kvc_page_view *page)
{
	return page->queue == KVC_QUEUE_NEW || !page->hits ? 0 : page->hits - 1;
}

static const struct kvc_policy clock_policy = {
	.name = "clock",
	.keep = keep_hit,
	.moved_hits = half_hits,
};

static const struct kvc_policy fifo_policy = {
	.name = "fifo",
	.keep = keep_none,
	.moved_hits = half_hits,
};

static const struct kvc_policy s3fifo_policy = {
	.name = "s3fifo",
	.ghosts = true,
	.queues = true,
	.victim = larger_half,
	.keep = keep_hit,
	.moved_hits = s3fifo_hits,
};

static const struct kvc_policy prefix_policy = {
	.name = "prefix",
	.queues = true,
	.requests = true,
	.keep = keep_none,
	.moved_hits = half_hits,
};

const struct kvc_policy *const kvc_policies[] = { &prefix_policy, &clock_policy, &fifo_policy, &s3fifo_policy, NULL };

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
	int r = 0;

	if (p->eblocks.used)
		return -EBUSY;
	kvc_ghosts_destroy(p);
	kvc_requests_destroy(p);
	p->policy = policy;
	if (policy->ghosts)
		r = kvc_ghosts_init(p);
	if (!r && policy->requests)
		r = kvc_requests_init(p);
	return r;
}
