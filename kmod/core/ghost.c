// SPDX-License-Identifier: GPL-2.0
/*
 * Ghosts: which pages were evicted not long ago.
 *
 * A table of hashes of keys, each with one place that it can be in: a newer ghost takes the place of an older one, so
 * ghosts last, on average, as long as it takes to evict as many pages as there are places. A hash that two keys share
 * makes a page look known that is not, which costs nothing but its place.
 *
 * A place belongs to the shard of the hashes that lead to it and is guarded by its lock.
 */
#include "engine.h"

#define GHOST_BYTES	(256U << 10)	/* of capacity for each place: 4 bytes for a page of that length */
#define GHOST_BYTES_MIN	(16U << 10)	/* the same of small pools */
#define GHOSTS_SMALL	(1U << 20)	/* pools up to so many places count as small */
#define GHOSTS_MIN	4096U

int kvc_ghosts_init(struct kvc_pool *p)
{
	u64 bytes = kvc_capacity(p), nr;
	u32 i;

	nr = max(bytes / GHOST_BYTES, min(bytes / GHOST_BYTES_MIN, (u64)GHOSTS_SMALL));
	p->nr_ghosts = (u32)min_t(u64, max_t(u64, nr, GHOSTS_MIN) / KVC_SHARDS, U32_MAX / KVC_SHARDS);
	p->ghosts = os_zalloc(sizeof(*p->ghosts) * p->nr_ghosts * KVC_SHARDS);
	if (!p->ghosts)
		return -ENOMEM;
	for (i = 0; i < KVC_SHARDS; i++)
		p->shards[i].ghosts = p->ghosts + (size_t)i * p->nr_ghosts;
	return 0;
}

void kvc_ghosts_destroy(struct kvc_pool *p)
{
	u32 i;

	for (i = 0; i < KVC_SHARDS; i++)
		p->shards[i].ghosts = NULL;
	os_free(p->ghosts);
	p->ghosts = NULL;
}

/* The place of a hash; 0 stands for none, so no hash is taken for it. */
static u32 *place(struct kvc_pool *p, u32 bucket)
{
	u32 *ghosts = kvc_shard(p, bucket)->ghosts;

	return ghosts ? &ghosts[bucket / KVC_SHARDS % p->nr_ghosts] : NULL;
}

void kvc_ghost_add(struct kvc_pool *p, u32 bucket)
{
	u32 *at = place(p, bucket);

	os_assert_locked(&kvc_shard(p, bucket)->lock);
	if (at)
		*at = bucket;
}

bool kvc_ghost_seen(struct kvc_pool *p, u32 bucket)
{
	const u32 *at = place(p, bucket);

	os_assert_locked(&kvc_shard(p, bucket)->lock);
	return at && bucket && *at == bucket;
}

void kvc_ghost_forget(struct kvc_pool *p, u32 bucket)
{
	if (kvc_ghost_seen(p, bucket))
		*place(p, bucket) = 0;
}
