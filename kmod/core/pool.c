// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * The pool: making and unmaking it, its numbers.
 */
#include "log/log.h"

/* Longest page for which a fresh segment has room beside its header, its record, and the end of the log */
static u32 longest_page(const struct kvc_pool *p)
{
	u32 blocks = min_t(u32, p->seg_blocks - 1, KVC_PAGE_MAX >> KVC_BLOCK_SHIFT);

	/* with the tombstone of a page that it replaces */
	while (2 + kvc_pending_blocks(kvc_page_rec_bytes(p, blocks << KVC_BLOCK_SHIFT) + KVC_REC_FIXED) + blocks >
	       p->seg_blocks)
		blocks--;
	return blocks << KVC_BLOCK_SHIFT;
}

/*
 * The longest extent written here: at least four of the longest record, so that kvc_log_blocks() need not count more
 * extents than there are, and no more than a quarter of a segment.
 */
static u32 longest_extent(const struct kvc_pool *p)
{
	u64 bytes = max_t(u64, KVC_LOG_THRESHOLD, 4ULL * kvc_page_rec_bytes(p, p->page_max));

	bytes = (u64)kvc_blocks(bytes) << KVC_BLOCK_SHIFT;
	return (u32)min_t(u64, bytes, (p->super.segment_size / 4) & ~(u64)(KVC_BLOCK - 1));
}

static void set_geometry(struct kvc_pool *p)
{
	p->seg_blocks = (u32)(p->super.segment_size >> KVC_BLOCK_SHIFT);
	p->chunk_size = p->super.chunk_size;
	p->page_max = longest_page(p);
	p->extent_max = longest_extent(p);
	p->extent_fill = p->extent_max - KVC_EXTENT_HEADER - kvc_page_rec_bytes(p, p->page_max);
}

static int init_members(struct kvc_pool *p)
{
	u32 i;
	int r;

	p->members = os_zalloc(sizeof(*p->members) * KVC_MEMBERS_MAX);
	if (!p->members)
		return -ENOMEM;
	for (i = 0; i < p->super.nr_members; i++) {
		r = kvc_member_init(p, i, p->super.members[i].nr_segments);
		os_atomic_set(&p->nr_members, i + 1);
		if (r)
			return r;
	}
	return 0;
}

static int alloc_eblocks(struct kvc_pool *p)
{
	return kvc_table_init(&p->eblocks, KVC_EBLOCK_MAX);
}

static int pool_init(struct kvc_pool *p)
{
	int r;

	set_geometry(p);
	kvc_index_init(p);
	kvc_budget_init(&p->budget);
	kvc_budget_limit(p, &p->budget.pool, p->super.settings.write_budget);
	r = kvc_domains_init(p);
	if (!r && p->super.settings.write_budget)
		r = kvc_budget_remember(p);
	if (!r)
		r = kvc_tenants_init(p);
	if (!r)
		r = alloc_eblocks(p);
	if (!r)
		r = init_members(p);
	return r;
}

int kvc_pool_create(const struct kvc_super *super, u64 salt_seed, const struct kvc_ops *ops, void *owner,
		    struct kvc_pool **out)
{
	struct kvc_pool *p;
	int r;

	if (kvc_super_check(super) != KVC_OK)
		return -EINVAL;
	p = os_zalloc(sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->super = *super;
	p->ops = ops;
	p->owner = owner;
	p->salt_seed = salt_seed;
	os_atomic_set(&p->rooms, 1);
	r = pool_init(p);
	if (!r)
		r = kvc_requests_init(p);
	if (r) {
		kvc_pool_destroy(p);
		return r;
	}
	*out = p;
	return 0;
}

void kvc_pool_destroy(struct kvc_pool *p)
{
	u32 i;

	for (i = 0; i < kvc_nr_members(p); i++)
		kvc_member_exit(&p->members[i]);
	kvc_table_destroy(&p->eblocks, kvc_eblock_free);
	kvc_domains_destroy(p);
	kvc_budget_destroy(&p->budget);
	kvc_requests_destroy(p);
	os_free(p->members);
	kvc_index_destroy(p);
	os_free(p);
}

int kvc_pool_set(struct kvc_pool *p, const struct kvc_settings *settings)
{
	int r;

	if (!kvc_settings_ok(settings))
		return -EINVAL;
	r = settings->write_budget ? kvc_budget_remember(p) : 0;
	if (r)
		return r;
	kvc_budget_limit(p, &p->budget.pool, settings->write_budget);
	os_lock(&p->domains.lock);
	p->super.settings = *settings;
	kvc_super_raise(p);
	os_unlock(&p->domains.lock);
	return 0;
}

void kvc_index_limit(struct kvc_pool *p, u64 bytes)
{
	u32 i;

	WRITE_ONCE(p->memory.limit, bytes);
	kvc_memory_back(p);
	for (i = 0; kvc_memory_pressed(p) && i < kvc_nr_members(p); i++)
		kvc_kick(&p->members[i]);
}

u32 kvc_page_max(const struct kvc_pool *p)
{
	return p->page_max;
}

u32 kvc_chunk_size(const struct kvc_pool *p)
{
	return p->chunk_size;
}

u32 kvc_nr_segments(const struct kvc_pool *p, u32 member)
{
	return p->members[member].nr_segs;
}

static void add_shards(struct kvc_pool *p, struct kvc_stats *st)
{
	u32 i;

	for (i = 0; i < KVC_SHARDS; i++) {
		struct kvc_shard *sh = &p->shards[i];

		os_lock(&sh->lock);
		st->pages += sh->pages;
		st->bytes += sh->bytes;
		st->dedups += sh->dedups;
		st->loads += sh->loads;
		st->load_bytes += sh->load_bytes;
		st->misses += sh->misses;
		st->deletes += sh->deletes;
		st->bad_pages += sh->bad_pages;
		st->evicted_pages += sh->evicted;
		st->unadmitted += sh->unadmitted;
		os_unlock(&sh->lock);
	}
}

void kvc_tenant_usage(const struct kvc_pool *p, u32 slot, u64 *pages, u64 *bytes)
{
	u32 i, nr = kvc_nr_members(p);

	*pages = 0;
	*bytes = 0;
	for (i = 0; i < nr; i++) {
		*pages += os_atomic64_read(&p->members[i].stock[slot].pages);
		*bytes += os_atomic64_read(&p->members[i].stock[slot].bytes);
	}
}

void kvc_stats_get(struct kvc_pool *p, struct kvc_stats *st)
{
	u32 i;

	memset(st, 0, sizeof(*st));
	add_shards(p, st);
	st->recovered_pages = p->recovered_pages;
	st->index_bytes = kvc_index_bytes(p);
	st->index_limit = READ_ONCE(p->memory.limit);
	st->recover_dropped = os_atomic64_read(&p->memory.dropped);
	for (i = 0; i < kvc_nr_members(p); i++) {
		struct kvc_member *m = &p->members[i];

		os_lock(&m->lock);
		st->stores += m->stores;
		st->store_bytes += m->store_bytes;
		st->moved_pages += m->moved_pages;
		st->moved_bytes += m->moved_bytes;
		st->segments_sealed += m->sealed;
		st->segments_reclaimed += m->reclaimed;
		st->summary_writes += m->summary_writes;
		st->recover_skipped += m->recover_skipped;
		os_unlock(&m->lock);
	}
}
