// SPDX-License-Identifier: GPL-2.0
/*
 * A pool without devices, see simpool.h.
 *
 * The engine does no I/O: it hands out what to write and is told when that was done. Here it is done at once. Stores
 * carry no checksums, loads look at none, moves always succeed; all else is what the module does with the same calls.
 * Chunks are as long as they may be, which spares their empty checksums.
 * One thread, and all work that is due is done after each request, or earlier when a store finds no room.
 *
 * Room. What a segment takes beside its summaries is found by filling one of a small pool, so that it is the engine
 * that says it. Capacity is all segments of the pool times that: the segments that reclaim keeps free, and those being
 * filled, are part of what was asked for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "core.h"
#include "simpool.h"

#define SEGMENTS_AIM	256	/* of a pool whose segment size is chosen here, because it has fewer of the default size */
#define PAGES_AIM_MIN	16	/* of a segment, rather than so many segments */
#define MEMBER_SEGMENTS	8	/* of a member, rather than so many pages of a segment */
#define SPARE_BLOCKS	16	/* of a segment, for summaries that are written before it is full */
#define SEGMENTS_MAX	(1U << 20)	/* of a member */

os_static_assert(SIMPOOL_MEMBERS_MAX == KVC_MEMBERS_MAX, "members");
os_static_assert(SIMPOOL_SEGMENT_MIN == KVC_SEGMENT_MIN && SIMPOOL_SEGMENT_MAX == KVC_SEGMENT_MAX, "segment sizes");
os_static_assert(SIMPOOL_SEGMENT_ALIGN == KVC_BLOCK, "segment alignment");
os_static_assert(sizeof(struct kvctx_key) == KVC_KEY_LEN, "keys");

struct simpool {
	struct kvc_pool *pool;
	struct kvc_domain *domain;
	struct kvctx_key *keys;
	uint32_t page_size;
	uint64_t padded;		/* page_size in whole blocks */
	bool kicked[KVC_MEMBERS_MAX];
	struct simpool_counters counters;
};

static void on_kick(void *owner, u32 member)
{
	((struct simpool *)owner)->kicked[member] = true;
}

/* Stores that found no room are tried again by simpool_request() itself */
static void on_space(void *owner)
{
	(void)owner;
}

static const struct kvc_ops ops = {
	.kick = on_kick,
	.space = on_space,
};

static int create(struct simpool *s, const struct simpool_plan *plan, uint64_t seed)
{
	struct kvc_super *super = calloc(1, sizeof(*super));
	uint32_t i;
	int ret;

	if (!super)
		return -ENOMEM;
	super->seq = 1;
	strcpy(super->pool_name, "simulated");
	super->segment_size = plan->segment_size;
	super->chunk_size = KVC_CHUNK_MAX;
	super->nr_members = plan->members;
	for (i = 0; i < plan->members; i++) {
		memset(super->members[i].uuid, i + 1, KVC_UUID_LEN);
		super->members[i].nr_segments = plan->segments / plan->members + (i < plan->segments % plan->members);
	}
	strcpy(super->tenants[0].name, "default");
	super->tenants[0].flags = KVC_TENANT_USED;
	super->tenants[0].mode = 0600;
	ret = kvc_pool_create(super, seed, &ops, s, &s->pool);
	free(super);
	return ret;
}

/* Media is blank: each segment's first read says so */
static int recover(struct kvc_pool *p)
{
	void *blank = calloc(1, KVC_RECOVER_IO);
	struct kvc_recover r;
	u32 i, j;
	int ret = blank ? 0 : -ENOMEM;

	for (i = 0; !ret && i < kvc_nr_members(p); i++) {
		for (j = 0; !ret && j < kvc_nr_segments(p, i); j++) {
			kvc_recover_start(p, i, j, &r);
			ret = kvc_recover_feed(p, &r, blank, 0);
		}
	}
	free(blank);
	if (!ret)
		kvc_recover_finish(p);
	return ret;
}

static int open_domain(struct simpool *s, uint64_t seed)
{
	uint8_t keyspace[KVC_KEYSPACE_LEN];

	content_keyspace(seed, s->page_size, keyspace);
	return kvc_domain_open(s->pool, 0, keyspace, &s->domain);
}

static void do_work(struct simpool *s, struct kvc_work *w)
{
	if (w->type == KVC_WORK_WRITE)
		s->counters.summary_bytes += w->len;
	if (w->type == KVC_WORK_MOVE)
		s->counters.moved_bytes += (uint64_t)kvc_blocks(w->len) << KVC_BLOCK_SHIFT;
	kvc_work_done(s->pool, w, 0);
}

static int work_of(struct simpool *s, u32 member)
{
	struct kvc_work w;
	int ret;

	while ((ret = kvc_work_next(s->pool, member, &w)) == 1)
		do_work(s, &w);
	return ret;
}

/* Until nobody has asked for more */
static int work(struct simpool *s)
{
	u32 i, nr = kvc_nr_members(s->pool);
	bool any = true;
	int ret = 0;

	while (any && !ret) {
		any = false;
		for (i = 0; !ret && i < nr; i++) {
			if (!s->kicked[i])
				continue;
			s->kicked[i] = false;
			any = true;
			ret = work_of(s, i);
		}
	}
	return ret;
}

int simpool_open(struct simpool **out, const struct simpool_plan *plan, uint64_t seed, size_t longest)
{
	struct simpool *s = calloc(1, sizeof(*s));
	int ret;

	if (!s)
		return -ENOMEM;
	s->page_size = plan->page_size;
	s->padded = (uint64_t)kvc_blocks(plan->page_size) << KVC_BLOCK_SHIFT;
	s->keys = calloc(longest, sizeof(*s->keys));
	ret = s->keys ? create(s, plan, seed) : -ENOMEM;
	if (!ret)
		ret = recover(s->pool);
	if (!ret)
		ret = open_domain(s, seed);
	if (!ret)
		ret = work(s);
	if (ret) {
		simpool_close(s);
		return ret;
	}
	*out = s;
	return 0;
}

void simpool_close(struct simpool *s)
{
	if (s->domain)
		kvc_domain_put(s->pool, s->domain);
	if (s->pool)
		kvc_pool_destroy(s->pool);
	free(s->keys);
	free(s);
}

/* Once the work is done a store finds room or never will: nothing is leased, and nothing is under way */
static int begin(struct simpool *s, const u8 *key, u32 depth, struct kvc_store *st)
{
	int ret = kvc_store_begin(s->pool, s->domain, key, s->page_size, depth, KVC_ANY_MEMBER, st);

	if (ret != -EAGAIN)
		return ret;
	ret = work(s);
	if (ret)
		return ret;
	ret = kvc_store_begin(s->pool, s->domain, key, s->page_size, depth, KVC_ANY_MEMBER, st);
	return ret == -EAGAIN ? -ENOSPC : ret;
}

static int store(struct simpool *s, const struct kvctx_key *key, u32 depth, struct kvc_store *st)
{
	int ret = begin(s, (const u8 *)key, depth, st);

	switch (ret) {
	case 0:
		st->no_crcs = true;
		kvc_store_commit(s->pool, st);
		s->counters.stored++;
		s->counters.host_bytes += s->padded;
		break;
	case -EEXIST:
		s->counters.dedups++;
		break;
	case -ENOSPC:
		s->counters.refused++;
		break;
	default:
		return ret;
	}
	return 0;
}

/* A page that was matched is there: nothing is evicted between the two */
static int load(struct simpool *s, const struct kvctx_key *key)
{
	struct kvc_load ld;
	int ret = kvc_load_begin(s->pool, s->domain, (const u8 *)key, &ld);

	if (!ret)
		kvc_load_end(s->pool, &ld, 0);
	return ret;
}

/* The leading pages that are there are loaded; their number in *present */
static int load_present(struct simpool *s, size_t nr, bool match, size_t *present)
{
	size_t i, end = nr;
	int ret = 0;

	if (match)
		end = kvc_match(s->pool, s->domain, (const u8 (*)[KVC_KEY_LEN])s->keys, nr, NULL, NULL, NULL);
	for (i = 0; !ret && i < end; i++)
		ret = load(s, &s->keys[i]);
	*present = ret ? i - 1 : i;
	return !match && ret == -ENOENT ? 0 : ret;
}

int simpool_request(struct simpool *s, const uint64_t *ids, size_t nr, bool match)
{
	struct kvc_store st;
	size_t i, present;
	int ret;

	for (i = 0; i < nr; i++)
		content_key(ids[i], &s->keys[i]);
	ret = load_present(s, nr, match, &present);
	s->counters.hits += present;
	for (i = present; !ret && i < nr; i++)
		ret = store(s, &s->keys[i], match ? i + 1 : 0, &st);
	return ret ? ret : work(s);
}

int simpool_flush(struct simpool *s)
{
	u32 i, nr = kvc_nr_members(s->pool);
	struct kvc_work w;
	int ret = 0;

	for (i = 0; !ret && i < nr; i++) {
		while ((ret = kvc_flush_next(s->pool, i, &w)) == 1)
			do_work(s, &w);
	}
	return ret ? ret : work(s);
}

void simpool_counters_get(struct simpool *s, struct simpool_counters *c)
{
	struct kvc_stats st;

	kvc_stats_get(s->pool, &st);
	*c = s->counters;
	c->moved = st.moved_pages;
	c->evicted = st.evicted_pages;
}

double simpool_amplification(const struct simpool_counters *c)
{
	if (!c->host_bytes)
		return 1;
	return (double)(c->host_bytes + c->moved_bytes + c->summary_bytes) / (double)c->host_bytes;
}

/* Pages until the first that goes to another segment */
static int fill_segment(struct simpool *s, uint64_t segment_size, uint64_t *pages)
{
	struct kvctx_key key;
	struct kvc_store st;
	uint64_t first = 0, segment = 0;
	int ret = 0;

	for (*pages = 0; !ret && segment == first; ++*pages) {
		content_key(*pages, &key);
		ret = store(s, &key, 0, &st);
		if (ret)
			break;
		segment = (st.offset - KVC_DATA_OFFSET) / segment_size;
		if (!*pages)
			first = segment;
		ret = work(s);
	}
	--*pages;
	return ret;
}

/* What a segment of plan->segment_size takes */
static int probe(struct simpool_plan *plan)
{
	struct simpool_plan small = *plan;
	struct simpool *s;
	int ret;

	small.members = 1;
	small.segments = MEMBER_SEGMENTS;
	ret = simpool_open(&s, &small, 0, 1);
	if (ret)
		return ret;
	if (plan->page_size > kvc_page_max(s->pool))
		ret = -EINVAL;
	else
		ret = fill_segment(s, plan->segment_size, &plan->segment_pages);
	simpool_close(s);
	return ret;
}

/* Pages of a segment: many segments first, then not too few pages, as far as both go */
static uint64_t aim(const struct simpool_plan *plan, uint64_t pages)
{
	uint64_t padded = (uint64_t)kvc_blocks(plan->page_size) << KVC_BLOCK_SHIFT;
	uint64_t want = max(pages / SEGMENTS_AIM, (uint64_t)PAGES_AIM_MIN);

	want = min(want, pages / (MEMBER_SEGMENTS * plan->members));
	want = min(want, (uint64_t)KVC_SEGMENT_DEFAULT / padded);
	return max(want, (uint64_t)1);
}

/* The smallest segment that takes @pages, with something to spare */
static int choose_segment(struct simpool_plan *plan, uint64_t pages)
{
	uint64_t page_blocks = kvc_blocks(plan->page_size);
	uint64_t chunks = (plan->page_size + KVC_CHUNK_MAX - 1) / KVC_CHUNK_DEFAULT;
	uint64_t blocks = pages * page_blocks + kvc_blocks(pages * kvc_rec_bytes(chunks)) + SPARE_BLOCKS;
	int ret;

	blocks = max(blocks, (uint64_t)KVC_SEGMENT_MIN / KVC_BLOCK);
	plan->segment_pages = 0;
	for (;; blocks++) {
		if (blocks > KVC_SEGMENT_MAX / KVC_BLOCK)
			return -EINVAL;
		plan->segment_size = blocks << KVC_BLOCK_SHIFT;
		ret = probe(plan);
		if (!ret && plan->segment_pages >= pages)
			return 0;
		if (ret && ret != -EINVAL)
			return ret;
	}
}

static uint64_t default_segments(const struct simpool_plan *plan, uint64_t pages)
{
	return pages * ((uint64_t)kvc_blocks(plan->page_size) << KVC_BLOCK_SHIFT) / KVC_SEGMENT_DEFAULT;
}

int simpool_plan(struct simpool_plan *plan, uint64_t pages)
{
	int ret;

	if (plan->page_size > KVC_PAGE_MAX)
		return -EINVAL;
	if (!plan->segment_size && default_segments(plan, pages) >= SEGMENTS_AIM)
		plan->segment_size = KVC_SEGMENT_DEFAULT;
	ret = plan->segment_size ? probe(plan) : choose_segment(plan, aim(plan, pages));
	if (ret)
		return ret;
	plan->segments = (pages + plan->segment_pages / 2) / plan->segment_pages;
	plan->pages = plan->segments * plan->segment_pages;
	if (plan->segments < (uint64_t)KVC_SEGMENTS_MIN * plan->members ||
	    plan->segments > (uint64_t)SEGMENTS_MAX * plan->members)
		return -ERANGE;
	return 0;
}
