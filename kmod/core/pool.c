// SPDX-License-Identifier: GPL-2.0
/*
 * The pool: making and unmaking it, its numbers, its members.
 */
#include "engine.h"

void kvc_kick(struct kvc_member *m)
{
	m->pool->ops->kick(m->pool->owner, m->index);
}

void kvc_space(struct kvc_pool *p)
{
	p->ops->space(p->owner);
}

void kvc_space_made(struct kvc_member *m)
{
	os_assert_locked(&m->lock);
	WRITE_ONCE(m->wanted, false);
	m->stuck = false;
	kvc_space(m->pool);
}

/* Longest page for which a fresh segment has room beside its record */
static u32 longest_page(const struct kvc_pool *p)
{
	u32 blocks = min_t(u32, p->seg_blocks - 1, KVC_PAGE_MAX >> KVC_BLOCK_SHIFT);

	while (1 + kvc_pending_blocks(kvc_page_rec_bytes(p, blocks << KVC_BLOCK_SHIFT)) + blocks > p->seg_blocks)
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

static void set_members(struct kvc_pool *p)
{
	u32 i, n;

	for (i = 0; i < p->super.nr_members; i++) {
		struct kvc_member *m = &p->members[i];

		n = p->super.members[i].nr_segments;
		os_lock_init(&m->lock);
		m->pool = p;
		m->index = i;
		m->nr_segs = n;
		m->low = n < 8 ? 2 : max_t(u32, 3, n / 50);
		m->stock = min_t(u32, m->low, 4);
	}
}

static void set_segments(struct kvc_pool *p)
{
	u32 i, j;

	for (i = 0; i < p->super.nr_members; i++) {
		struct kvc_member *m = &p->members[i];

		for (j = 0; j < KVC_NR_S; j++) {
			m->list[j].first = KVC_NONE;
			m->list[j].last = KVC_NONE;
		}
		os_lock(&m->lock);
		for (j = 0; j < m->nr_segs; j++) {
			struct kvc_seg *seg = &m->segs[j];

			seg->member = (u8)i;
			kvc_seg_reset(p, seg);
			kvc_seg_set_state(m, seg, KVC_S_BLANK);
		}
		os_unlock(&m->lock);
	}
}

static int alloc_members(struct kvc_pool *p)
{
	u32 i;

	p->members = os_zalloc(sizeof(*p->members) * KVC_MEMBERS_MAX);
	if (!p->members)
		return -ENOMEM;
	set_members(p);
	for (i = 0; i < p->super.nr_members; i++) {
		struct kvc_member *m = &p->members[i];

		m->segs = os_zalloc(sizeof(*m->segs) * m->nr_segs);
		m->extent = os_alloc(p->extent_max);
		m->views = os_alloc(sizeof(*m->views) * m->nr_segs);
		if (!m->segs || !m->extent || !m->views)
			return -ENOMEM;
	}
	return 0;
}

static u64 count_segments(const struct kvc_pool *p)
{
	u64 n = 0;
	u32 i;

	for (i = 0; i < p->super.nr_members; i++)
		n += p->super.members[i].nr_segments;
	return n;
}

static int alloc_eblocks(struct kvc_pool *p)
{
	u64 eblocks, per_seg = p->seg_blocks / KVC_EBLOCK_ENTRIES + 1;

	eblocks = min_t(u64, per_seg * count_segments(p) + p->super.nr_members * 64, KVC_EBLOCK_MAX);
	return kvc_table_init(&p->eblocks, (u32)eblocks);
}

static int pool_init(struct kvc_pool *p)
{
	int r;

	set_geometry(p);
	kvc_index_init(p);
	kvc_budget_init(&p->budget);
	kvc_budget_limit(&p->budget, p->super.settings.write_budget);
	r = kvc_domains_init(p);
	if (!r && p->super.settings.write_budget)
		r = kvc_budget_remember(p);
	if (!r)
		r = alloc_eblocks(p);
	if (!r)
		r = alloc_members(p);
	if (!r)
		set_segments(p);
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
	r = pool_init(p);
	if (!r)
		r = kvc_pool_set_policy(p, kvc_policies[0]);
	if (r) {
		kvc_pool_destroy(p);
		return r;
	}
	*out = p;
	return 0;
}

static void free_crcs(struct kvc_seg *seg)
{
	u32 i;

	for (i = 0; i < seg->crc_room / KVC_CBLOCK_CRCS; i++)
		os_free(seg->crcs[i]);
	os_free(seg->crcs);
}

static void free_member(struct kvc_member *m)
{
	u32 i;

	for (i = 0; m->segs && i < m->nr_segs; i++)
		free_crcs(&m->segs[i]);
	os_free(m->segs);
	os_free(m->extent);
	os_free(m->views);
}

void kvc_pool_destroy(struct kvc_pool *p)
{
	u32 i;

	for (i = 0; p->members && i < p->super.nr_members; i++)
		free_member(&p->members[i]);
	kvc_table_destroy(&p->eblocks, os_free);
	kvc_domains_destroy(p);
	kvc_budget_destroy(&p->budget);
	kvc_ghosts_destroy(p);
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
	if (settings->write_budget != p->super.settings.write_budget)
		kvc_budget_limit(&p->budget, settings->write_budget);
	os_lock(&p->domains.lock);
	p->super.settings = *settings;
	p->super.seq++;
	os_unlock(&p->domains.lock);
	return 0;
}

u32 kvc_page_max(const struct kvc_pool *p)
{
	return p->page_max;
}

u32 kvc_nr_members(const struct kvc_pool *p)
{
	return p->super.nr_members;
}

u32 kvc_chunk_size(const struct kvc_pool *p)
{
	return p->chunk_size;
}

u64 kvc_capacity(const struct kvc_pool *p)
{
	return count_segments(p) * p->super.segment_size;
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

void kvc_stats_get(struct kvc_pool *p, struct kvc_stats *st)
{
	u32 i;

	memset(st, 0, sizeof(*st));
	add_shards(p, st);
	st->recovered_pages = p->recovered_pages;
	for (i = 0; i < p->super.nr_members; i++) {
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

void kvc_member_segments(struct kvc_pool *p, u32 member, u32 *total, u32 *free)
{
	struct kvc_member *m = &p->members[member];

	os_lock(&m->lock);
	*total = m->nr_segs;
	*free = m->offline ? 0 : kvc_avail(m);
	os_unlock(&m->lock);
}

bool kvc_member_online(const struct kvc_pool *p, u32 member)
{
	return !READ_ONCE(p->members[member].offline);
}

void kvc_member_fail(struct kvc_pool *p, u32 member)
{
	struct kvc_member *m = &p->members[member];

	os_lock(&m->lock);
	if (!m->offline) {
		WRITE_ONCE(m->offline, true);
		os_atomic_inc(&p->nr_offline);
		kvc_kick(m);
		kvc_space(p);
	}
	os_unlock(&m->lock);
}
