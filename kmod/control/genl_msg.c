// SPDX-License-Identifier: GPL-2.0
/*
 * The objects of the netlink family, as attributes: pools, tenants, statistics.
 */
#include <linux/pci.h>

#include "ctrl.h"

static bool kvctx_member_removed(const struct kvctx_member *m)
{
	return test_bit(KVCTX_MEMBER_REMOVED, &m->state);
}

static bool kvctx_pool_degraded(struct kvctx_pool *p)
{
	u32 i;

	for (i = 0; i < p->nr_members; i++)
		if (!kvctx_member_removed(&p->members[i]) && !kvc_member_online(p->core, i))
			return true;
	return false;
}

static u32 kvctx_member_state(const struct kvctx_member *m)
{
	if (test_bit(KVCTX_MEMBER_LEAVING, &m->state))
		return kvc_member_leaves(m->pool->core, m->index) ? KVCTX_MEMBER_STATE_LEAVING :
								    KVCTX_MEMBER_STATE_STUCK;
	if (test_bit(KVCTX_MEMBER_MISSING, &m->state))
		return KVCTX_MEMBER_STATE_MISSING;
	return kvc_member_online(m->pool->core, m->index) ? KVCTX_MEMBER_STATE_ONLINE : KVCTX_MEMBER_STATE_FAILED;
}

int kvctx_msg_member(struct sk_buff *skb, struct kvctx_member *m)
{
	const struct kvc_super *super = kvc_super_of(m->pool->core);
	u64 size = super->members[m->index].nr_segments * super->segment_size;
	struct nlattr *nest = nla_nest_start(skb, KVCTX_A_MEMBER);
	u32 segments, free;

	if (!nest)
		return -EMSGSIZE;
	kvc_member_segments(m->pool->core, m->index, &segments, &free);
	if (nla_put_u32(skb, KVCTX_M_INDEX, m->index) ||
	    (m->dev && nla_put_string(skb, KVCTX_M_DEVICE, m->dev->path)) ||
	    nla_put(skb, KVCTX_M_UUID, KVC_UUID_LEN, super->members[m->index].uuid) ||
	    nla_put_u64_64bit(skb, KVCTX_M_SIZE, size, KVCTX_M_PAD) ||
	    nla_put_u32(skb, KVCTX_M_STATE, kvctx_member_state(m)) ||
	    nla_put_u32(skb, KVCTX_M_SEGMENTS, segments) ||
	    nla_put_u32(skb, KVCTX_M_SEGMENTS_FREE, free) ||
	    nla_put_u64_64bit(skb, KVCTX_M_BYTES, kvc_member_bytes(m->pool->core, m->index), KVCTX_M_PAD) ||
	    nla_put_u64_64bit(skb, KVCTX_M_INFLIGHT, kvctx_turn_inflight(&m->turn), KVCTX_M_PAD) ||
	    nla_put_u32(skb, KVCTX_M_WAITING, os_atomic_read(&m->turn.queue.waiting)))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

/* Enough for the pool object with so many members and the longest paths */
size_t kvctx_msg_pool_size(u32 nr_members)
{
	size_t member = nla_total_size(0) + 5 * nla_total_size(4) + nla_total_size(KVCTX_PATH_MAX) +
			nla_total_size(KVC_UUID_LEN) + 3 * nla_total_size_64bit(8);

	return nla_total_size(KVCTX_NAME_MAX) + nla_total_size(KVC_UUID_LEN) + 8 * nla_total_size_64bit(8) +
	       2 * nla_total_size(4) + nr_members * member;
}

int kvctx_msg_pool(struct sk_buff *skb, struct kvctx_pool *p)
{
	const struct kvc_super *super = kvc_super_of(p->core);
	u32 state = kvctx_pool_degraded(p) ? KVCTX_POOL_DEGRADED : KVCTX_POOL_ONLINE;
	u32 i;
	int err = 0;

	if (nla_put_string(skb, KVCTX_A_POOL, p->name) ||
	    nla_put(skb, KVCTX_A_UUID, KVC_UUID_LEN, super->pool_uuid) ||
	    nla_put_u64_64bit(skb, KVCTX_A_CAPACITY, kvc_capacity(p->core), KVCTX_A_PAD) ||
	    nla_put_u64_64bit(skb, KVCTX_A_SEGMENT_SIZE, super->segment_size, KVCTX_A_PAD) ||
	    nla_put_u32(skb, KVCTX_A_CHUNK_SIZE, super->chunk_size) ||
	    nla_put_u64_64bit(skb, KVCTX_A_PAGE_LEN_MAX, kvc_page_max(p->core), KVCTX_A_PAD) ||
	    nla_put_u32(skb, KVCTX_A_STATE, state) ||
	    nla_put_u64_64bit(skb, KVCTX_A_ATTACH_BYTES, p->attach_bytes, KVCTX_A_PAD) ||
	    nla_put_u64_64bit(skb, KVCTX_A_ATTACH_US, p->attach_us, KVCTX_A_PAD) ||
	    nla_put_u64_64bit(skb, KVCTX_A_DISCARD_RATE, super->settings.discard_rate, KVCTX_A_PAD) ||
	    nla_put_u64_64bit(skb, KVCTX_A_WRITE_BUDGET, super->settings.write_budget, KVCTX_A_PAD))
		return -EMSGSIZE;
	if (super->settings.write_budget &&
	    nla_put_u64_64bit(skb, KVCTX_A_WRITE_BUDGET_LEFT, kvc_budget_left(p->core), KVCTX_A_PAD))
		return -EMSGSIZE;
	for (i = 0; i < p->nr_members && !err; i++)
		if (!kvctx_member_removed(&p->members[i]))
			err = kvctx_msg_member(skb, &p->members[i]);
	return err;
}

static int kvctx_msg_limits(struct sk_buff *skb, const struct kvc_limits *l)
{
	struct nlattr *nest = nla_nest_start(skb, KVCTX_A_LIMITS);

	if (!nest || nla_put_u64_64bit(skb, KVCTX_L_QUOTA, l->quota, KVCTX_L_PAD) ||
	    nla_put_u64_64bit(skb, KVCTX_L_RESERVE, l->reserve, KVCTX_L_PAD) ||
	    nla_put_u64_64bit(skb, KVCTX_L_WRITE_BUDGET, l->write_budget, KVCTX_L_PAD) ||
	    nla_put_u64_64bit(skb, KVCTX_L_PINNED, l->pinned, KVCTX_L_PAD) ||
	    nla_put_u64_64bit(skb, KVCTX_L_LEASED, l->leased, KVCTX_L_PAD) ||
	    nla_put_u32(skb, KVCTX_L_KEYSPACES, l->keyspaces) ||
	    nla_put_u32(skb, KVCTX_L_FLAGS, l->flags & KVC_LIMIT_NO_URGENT ? KVCTX_LIMIT_NO_URGENT : 0) ||
	    nla_put_u64_64bit(skb, KVCTX_L_BANDWIDTH, l->bandwidth, KVCTX_L_PAD) ||
	    nla_put_u32(skb, KVCTX_L_INFLIGHT, l->inflight) ||
	    nla_put_u32(skb, KVCTX_L_WEIGHT, l->weight ?: KVC_WEIGHT))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int kvctx_msg_latencies(struct sk_buff *skb, const struct kvctx_tally *t)
{
	struct kvctx_genl_latency l;
	u32 kind, prio;

	for (kind = 0; kind < KVCTX_TALLY_KINDS; kind++)
		for (prio = 0; prio < KVCTX_TALLY_PRIOS; prio++)
			if (kvctx_tally_latency(t, kind, prio, &l) && nla_put(skb, KVCTX_T_LATENCY, sizeof(l), &l))
				return -EMSGSIZE;
	return 0;
}

/* What the message of one tenant may need */
u32 kvctx_msg_tenant_stats_size(void)
{
	return 2 * nla_total_size(KVCTX_NAME_MAX) + nla_total_size(KVCTX_T_MAX * nla_total_size_64bit(sizeof(u64))) +
	       KVCTX_TALLY_KINDS * KVCTX_TALLY_PRIOS * nla_total_size(sizeof(struct kvctx_genl_latency));
}

int kvctx_msg_tenant_stats(struct sk_buff *skb, struct kvctx_tenant *t)
{
	const struct kvctx_lane *lane = &t->pool->pace.of[t->slot];
	struct nlattr *nest;
	u32 i;

	if (nla_put_string(skb, KVCTX_A_POOL, t->pool->name) || nla_put_string(skb, KVCTX_A_TENANT, t->name))
		return -EMSGSIZE;
	nest = nla_nest_start(skb, KVCTX_A_TENANT_STATS);
	if (!nest)
		return -EMSGSIZE;
	for (i = KVCTX_T_STORES; i < KVCTX_TALLY_NR; i++)
		if (nla_put_u64_64bit(skb, i, kvctx_tally_sum(t->tally, i), KVCTX_T_PAD))
			return -EMSGSIZE;
	if (nla_put_u64_64bit(skb, KVCTX_T_EVICTED_PAGES, kvc_tenant_evicted(t->pool->core, t->slot), KVCTX_T_PAD) ||
	    nla_put_u64_64bit(skb, KVCTX_T_INFLIGHT, os_atomic_read(&lane->inflight), KVCTX_T_PAD) ||
	    nla_put_u64_64bit(skb, KVCTX_T_WAITING, os_atomic_read(&lane->queue.waiting), KVCTX_T_PAD) ||
	    kvctx_msg_latencies(skb, t->tally))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static u32 kvctx_key_state(const struct kvctx_tenant *t)
{
	if (!t->cipher)
		return KVCTX_KEY_MISSING;
	return kvctx_cipher_valid(t->cipher) ? KVCTX_KEY_USED : KVCTX_KEY_ENDED;
}

static int kvctx_msg_key(struct sk_buff *skb, const struct kvctx_tenant *t)
{
	if (!(t->flags & KVCTX_TENANT_ENCRYPTED))
		return 0;
	return nla_put_string(skb, KVCTX_A_TENANT_KEY, kvc_super_of(t->pool->core)->keys[t->slot].name) ?:
	       nla_put_u32(skb, KVCTX_A_TENANT_KEY_STATE, kvctx_key_state(t));
}

int kvctx_msg_tenant(struct sk_buff *skb, struct kvctx_tenant *t)
{
	struct kvc_pool *core = t->pool->core;
	const struct kvc_super_tenant *config = &kvc_super_of(core)->tenants[t->slot];
	u64 pages, bytes;

	kvc_tenant_usage(core, t->slot, &pages, &bytes);
	if (nla_put_string(skb, KVCTX_A_POOL, t->pool->name) ||
	    nla_put_string(skb, KVCTX_A_TENANT, t->name) ||
	    nla_put_u32(skb, KVCTX_A_UID, config->uid) ||
	    nla_put_u32(skb, KVCTX_A_GID, config->gid) ||
	    nla_put_u32(skb, KVCTX_A_MODE, config->mode) ||
	    nla_put_u32(skb, KVCTX_A_SESSIONS, t->sessions) ||
	    nla_put_u32(skb, KVCTX_A_DEV_MAJOR, MAJOR(t->dev->devt)) ||
	    nla_put_u32(skb, KVCTX_A_DEV_MINOR, MINOR(t->dev->devt)) ||
	    nla_put_u32(skb, KVCTX_A_TENANT_FLAGS, t->flags) ||
	    nla_put_u64_64bit(skb, KVCTX_A_TENANT_PAGES, pages, KVCTX_A_PAD) ||
	    nla_put_u64_64bit(skb, KVCTX_A_TENANT_BYTES, bytes, KVCTX_A_PAD) ||
	    nla_put_u64_64bit(skb, KVCTX_A_TENANT_PINNED, kvc_tenant_pinned(core, t->slot), KVCTX_A_PAD) ||
	    nla_put_u64_64bit(skb, KVCTX_A_TENANT_LEASED, kvc_tenant_leased(core, t->slot), KVCTX_A_PAD) ||
	    nla_put_u32(skb, KVCTX_A_TENANT_KEYSPACES, kvc_tenant_keyspaces(core, t->slot)) ||
	    kvctx_msg_key(skb, t) ||
	    (kvc_super_of(core)->limits[t->slot].write_budget &&
	     nla_put_u64_64bit(skb, KVCTX_A_WRITE_BUDGET_LEFT, kvc_tenant_budget_left(core, t->slot), KVCTX_A_PAD)))
		return -EMSGSIZE;
	return kvctx_msg_limits(skb, &kvc_super_of(core)->limits[t->slot]);
}

static int kvctx_msg_path(struct sk_buff *skb, const struct kvctx_path *path)
{
	struct nlattr *nest = nla_nest_start(skb, KVCTX_A_PATH);

	if (!nest || nla_put_u32(skb, KVCTX_P_MEMBER, path->member) || nla_put_u32(skb, KVCTX_P_REASON, path->reason) ||
	    nla_put_s32(skb, KVCTX_P_DISTANCE, path->distance))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

/* What is between the memory of @pdev and each member */
int kvctx_msg_peer(struct sk_buff *skb, struct kvctx_pool *p, struct pci_dev *pdev)
{
	struct kvctx_path path;
	int err = 0;
	u32 i;

	if (nla_put_string(skb, KVCTX_A_POOL, p->name))
		return -EMSGSIZE;
	if (nla_put_string(skb, KVCTX_A_PEER, pci_name(pdev)))
		return -EMSGSIZE;
	for (i = 0; i < p->nr_members && !err; i++) {
		if (kvctx_member_removed(&p->members[i]))
			continue;
		kvctx_provider_path(pdev, &p->members[i], &path);
		if (!err)
			err = kvctx_msg_path(skb, &path);
	}
	return err;
}

int kvctx_msg_stats(struct sk_buff *skb, struct kvctx_pool *p)
{
	struct kvctx_counters *c = &p->counters;
	struct kvc_stats st;

	kvc_stats_get(p->core, &st);

	const struct {
		int type;
		u64 value;
	} rows[] = {
		{ KVCTX_S_PAGES,		st.pages },
		{ KVCTX_S_BYTES,		st.bytes },
		{ KVCTX_S_STORES,		st.stores },
		{ KVCTX_S_STORE_BYTES,		st.store_bytes },
		{ KVCTX_S_DEDUPS,		st.dedups },
		{ KVCTX_S_LOADS,		st.loads },
		{ KVCTX_S_LOAD_BYTES,		st.load_bytes },
		{ KVCTX_S_MISSES,		st.misses },
		{ KVCTX_S_DELETES,		st.deletes },
		{ KVCTX_S_BAD_PAGES,		st.bad_pages },
		{ KVCTX_S_IO_ERRORS,		percpu_counter_sum_positive(&c->io_errors) },
		{ KVCTX_S_FLUSHES,		percpu_counter_sum_positive(&c->flushes) },
		{ KVCTX_S_EVICTED_PAGES,	st.evicted_pages },
		{ KVCTX_S_MOVED_PAGES,		st.moved_pages },
		{ KVCTX_S_MOVED_BYTES,		st.moved_bytes },
		{ KVCTX_S_SEGMENTS_SEALED,	st.segments_sealed },
		{ KVCTX_S_SEGMENTS_RECLAIMED,	st.segments_reclaimed },
		{ KVCTX_S_SUMMARY_WRITES,	st.summary_writes },
		{ KVCTX_S_STORE_WAITS,		percpu_counter_sum_positive(&c->store_waits) },
		{ KVCTX_S_RECOVERED_PAGES,	st.recovered_pages },
		{ KVCTX_S_RECOVER_SKIPPED,	st.recover_skipped },
		{ KVCTX_S_BOUNCED_BLOCKS,	percpu_counter_sum_positive(&c->bounced_blocks) },
		{ KVCTX_S_SESSIONS,		p->sessions },
		{ KVCTX_S_INFLIGHT,		percpu_counter_sum_positive(&c->inflight) },
		{ KVCTX_S_REREADS,		percpu_counter_sum_positive(&c->rereads) },
		{ KVCTX_S_TURN_WAITS,		percpu_counter_sum_positive(&c->turn_waits) },
		{ KVCTX_S_SLOT_HITS,		percpu_counter_sum_positive(&c->slot_hits) },
		{ KVCTX_S_PREFETCHES,		percpu_counter_sum_positive(&c->prefetches) },
		{ KVCTX_S_HOST_WRITTEN_BYTES,	percpu_counter_sum_positive(&c->host_written) },
		{ KVCTX_S_RECLAIM_WRITTEN_BYTES, percpu_counter_sum_positive(&c->reclaim_written) },
		{ KVCTX_S_META_WRITTEN_BYTES,	percpu_counter_sum_positive(&c->meta_written) },
		{ KVCTX_S_DISCARDED_BYTES,	percpu_counter_sum_positive(&c->discarded) },
		{ KVCTX_S_UNADMITTED,		st.unadmitted },
		{ KVCTX_S_INDEX_BYTES,		st.index_bytes },
		{ KVCTX_S_INDEX_LIMIT,		st.index_limit },
		{ KVCTX_S_RECOVER_DROPPED,	st.recover_dropped },
	};
	struct nlattr *nest;
	u32 i;

	if (nla_put_string(skb, KVCTX_A_POOL, p->name))
		return -EMSGSIZE;
	nest = nla_nest_start(skb, KVCTX_A_STATS);
	if (!nest)
		return -EMSGSIZE;
	for (i = 0; i < ARRAY_SIZE(rows); i++)
		if (nla_put_u64_64bit(skb, rows[i].type, rows[i].value, KVCTX_S_PAD))
			return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}
