// SPDX-License-Identifier: GPL-2.0
/*
 * What kvctxctl is told of pools, tenants and counters; as kmod/control/genl_msg.c has it.
 */
#include <linux/kvctx_genl.h>
#include <stdlib.h>

#include "control.h"
#include "engine.h"
#include "session/tally.h"
#include "share.h"

/* @state: as the engine has it */
static u32 report_member_state(const struct kve_member *m, u32 state)
{
	if (state & KVE_MEMBER_LEAVING)
		return kvc_member_leaves(m->pool->core, m->index) ? KVCTX_MEMBER_STATE_LEAVING :
								    KVCTX_MEMBER_STATE_STUCK;
	if (state & KVE_MEMBER_MISSING)
		return KVCTX_MEMBER_STATE_MISSING;
	return kvc_member_online(m->pool->core, m->index) ? KVCTX_MEMBER_STATE_ONLINE : KVCTX_MEMBER_STATE_FAILED;
}

static int report_member(struct nl_msg *msg, struct kve_member *m, u32 state)
{
	struct kvc_pool *core = m->pool->core;
	const struct kvc_super *super = kvc_super_of(core);
	struct nlattr *nest = nla_nest_start(msg, KVCTX_A_MEMBER);
	struct kvc_super_member said;
	u32 segments, unused, waiting;
	__u64 inflight;
	char *device;
	int err;

	if (!nest)
		return -NLE_NOMEM;
	pthread_mutex_lock(&m->pool->config_lock);
	said = super->members[m->index];
	pthread_mutex_unlock(&m->pool->config_lock);
	kvc_member_segments(core, m->index, &segments, &unused);
	err = nla_put_u32(msg, KVCTX_M_INDEX, m->index);
	if (!err && m->dev) {
		device = realpath(m->dev->path, NULL);	/* the directory may be one of links that we have made */
		err = nla_put_string(msg, KVCTX_M_DEVICE, device ? device : m->dev->path);
		free(device);
	}
	err = err ?: nla_put(msg, KVCTX_M_UUID, KVC_UUID_LEN, said.uuid);
	err = err ?: nla_put_u64(msg, KVCTX_M_SIZE, said.nr_segments * super->segment_size);
	err = err ?: nla_put_u32(msg, KVCTX_M_STATE, report_member_state(m, state));
	err = err ?: nla_put_u32(msg, KVCTX_M_SEGMENTS, segments);
	err = err ?: nla_put_u32(msg, KVCTX_M_SEGMENTS_FREE, unused);
	err = err ?: nla_put_u64(msg, KVCTX_M_BYTES, kvc_member_bytes(core, m->index));
	kve_share_turns(m->pool, m->index, &inflight, &waiting);
	err = err ?: nla_put_u64(msg, KVCTX_M_INFLIGHT, inflight);
	err = err ?: nla_put_u32(msg, KVCTX_M_WAITING, waiting);
	nla_nest_end(msg, nest);
	return err;
}

int kvd_report_member(struct nl_msg *msg, struct kve_member *m)
{
	return nla_put_string(msg, KVCTX_A_POOL, m->pool->name) ?: report_member(msg, m, kve_member_state(m));
}

static u32 report_state(const struct kve_pool *p)
{
	for (u32 i = 0; i < kve_nr_members(p); i++)
		if (!(kve_member_state(&p->members[i]) & KVE_MEMBER_REMOVED) && !kvc_member_online(p->core, i))
			return KVCTX_POOL_DEGRADED;
	return KVCTX_POOL_ONLINE;
}

int kvd_report_pool(struct nl_msg *msg, struct kvd_pool *pool)
{
	struct kve_pool *p = pool->engine;
	const struct kvc_super *super = kvc_super_of(p->core);
	struct kvc_settings settings;
	u64 capacity;
	int err;

	pthread_mutex_lock(&p->config_lock);
	settings = super->settings;
	capacity = kvc_capacity(p->core);
	pthread_mutex_unlock(&p->config_lock);
	err = nla_put_string(msg, KVCTX_A_POOL, pool->name);
	err = err ?: nla_put(msg, KVCTX_A_UUID, KVC_UUID_LEN, super->pool_uuid);
	err = err ?: nla_put_u64(msg, KVCTX_A_CAPACITY, capacity);
	err = err ?: nla_put_u64(msg, KVCTX_A_SEGMENT_SIZE, super->segment_size);
	err = err ?: nla_put_u32(msg, KVCTX_A_CHUNK_SIZE, super->chunk_size);
	err = err ?: nla_put_u64(msg, KVCTX_A_PAGE_LEN_MAX, kvc_page_max(p->core));
	err = err ?: nla_put_u32(msg, KVCTX_A_STATE, report_state(p));
	err = err ?: nla_put_u64(msg, KVCTX_A_ATTACH_BYTES, p->attach_bytes);
	err = err ?: nla_put_u64(msg, KVCTX_A_ATTACH_US, p->attach_ns / 1000);
	err = err ?: nla_put_u64(msg, KVCTX_A_DISCARD_RATE, settings.discard_rate);
	err = err ?: nla_put_u64(msg, KVCTX_A_WRITE_BUDGET, settings.write_budget);
	if (!err && settings.write_budget)
		err = nla_put_u64(msg, KVCTX_A_WRITE_BUDGET_LEFT, kvc_budget_left(p->core));
	for (u32 i = 0; i < kve_nr_members(p) && !err; i++) {
		/* looked at once: a member that goes meanwhile would be one that stays, as it is not leaving any more */
		u32 state = kve_member_state(&p->members[i]);

		if (!(state & KVE_MEMBER_REMOVED))
			err = report_member(msg, &p->members[i], state);
	}
	return err;
}

static int report_limits(struct nl_msg *msg, const struct kvc_limits *l)
{
	struct nlattr *nest = nla_nest_start(msg, KVCTX_A_LIMITS);
	int err;

	if (!nest)
		return -NLE_NOMEM;
	err = nla_put_u64(msg, KVCTX_L_QUOTA, l->quota);
	err = err ?: nla_put_u64(msg, KVCTX_L_RESERVE, l->reserve);
	err = err ?: nla_put_u64(msg, KVCTX_L_WRITE_BUDGET, l->write_budget);
	err = err ?: nla_put_u64(msg, KVCTX_L_PINNED, l->pinned);
	err = err ?: nla_put_u64(msg, KVCTX_L_LEASED, l->leased);
	err = err ?: nla_put_u32(msg, KVCTX_L_KEYSPACES, l->keyspaces);
	err = err ?: nla_put_u32(msg, KVCTX_L_FLAGS, l->flags & KVC_LIMIT_NO_URGENT ? KVCTX_LIMIT_NO_URGENT : 0);
	err = err ?: nla_put_u64(msg, KVCTX_L_BANDWIDTH, l->bandwidth);
	err = err ?: nla_put_u32(msg, KVCTX_L_INFLIGHT, l->inflight);
	err = err ?: nla_put_u32(msg, KVCTX_L_WEIGHT, l->weight ?: KVC_WEIGHT);
	nla_nest_end(msg, nest);
	return err;
}

/* Whether a session would have it now */
static int report_key(struct nl_msg *msg, const struct kvc_super_key *key)
{
	int err = kve_share_has_key(key);
	uint32_t state = KVCTX_KEY_MISSING;

	if (!err)
		state = KVCTX_KEY_USED;
	else if (err == -EKEYREVOKED || err == -EKEYEXPIRED)
		state = KVCTX_KEY_ENDED;
	return nla_put_string(msg, KVCTX_A_TENANT_KEY, key->name) ?: nla_put_u32(msg, KVCTX_A_TENANT_KEY_STATE, state);
}

/* A tenant has no node and so no number: these attributes are left out */
int kvd_report_tenant(struct nl_msg *msg, struct kvd_tenant *t)
{
	struct kve_pool *engine = t->pool->engine;
	struct kvc_pool *core = engine->core;
	struct kvc_super_key key;
	struct kvc_limits limits;
	u64 pages, bytes;
	u32 flags;
	int err;

	pthread_mutex_lock(&engine->config_lock);
	flags = kvc_super_of(core)->tenants[t->slot].flags;
	limits = kvc_super_of(core)->limits[t->slot];
	key = kvc_super_of(core)->keys[t->slot];
	pthread_mutex_unlock(&engine->config_lock);
	kvc_tenant_usage(core, t->slot, &pages, &bytes);
	err = nla_put_string(msg, KVCTX_A_POOL, t->pool->name);
	err = err ?: nla_put_string(msg, KVCTX_A_TENANT, t->name);
	err = err ?: nla_put_u32(msg, KVCTX_A_UID, t->uid);
	err = err ?: nla_put_u32(msg, KVCTX_A_GID, t->gid);
	err = err ?: nla_put_u32(msg, KVCTX_A_MODE, t->mode);
	err = err ?: nla_put_u32(msg, KVCTX_A_SESSIONS, t->sessions);
	err = err ?: nla_put_u64(msg, KVCTX_A_TENANT_PAGES, pages);
	err = err ?: nla_put_u64(msg, KVCTX_A_TENANT_BYTES, bytes);
	err = err ?: nla_put_u64(msg, KVCTX_A_TENANT_PINNED, kvc_tenant_pinned(core, t->slot));
	err = err ?: nla_put_u64(msg, KVCTX_A_TENANT_LEASED, kvc_tenant_leased(core, t->slot));
	err = err ?: nla_put_u32(msg, KVCTX_A_TENANT_KEYSPACES, kvc_tenant_keyspaces(core, t->slot));
	err = err ?: nla_put_u32(msg, KVCTX_A_TENANT_FLAGS,
				 (flags & KVC_TENANT_VERIFIED ? KVCTX_TENANT_VERIFIED : 0) |
				 (flags & KVC_TENANT_ENCRYPTED ? KVCTX_TENANT_ENCRYPTED : 0));
	if (flags & KVC_TENANT_ENCRYPTED)
		err = err ?: report_key(msg, &key);
	if (limits.write_budget)
		err = err ?: nla_put_u64(msg, KVCTX_A_WRITE_BUDGET_LEFT, kvc_tenant_budget_left(core, t->slot));
	return err ?: report_limits(msg, &limits);
}

static int report_latencies(struct nl_msg *msg, const struct kvctx_tally *t)
{
	struct kvctx_genl_latency l;
	int err = 0;

	for (u32 kind = 0; kind < KVCTX_TALLY_KINDS; kind++)
		for (u32 prio = 0; prio < KVCTX_TALLY_PRIOS && !err; prio++)
			if (kvctx_tally_latency(t, kind, prio, &l))
				err = nla_put(msg, KVCTX_T_LATENCY, sizeof(l), &l);
	return err;
}

int kvd_report_tenant_stats(struct nl_msg *msg, struct kvd_tenant *t)
{
	struct kve_pool *p = t->pool->engine;
	struct kvctx_tally *tally = kve_share_tally(p, t->slot);
	uint32_t inflight, waiting;
	struct nlattr *nest;
	int err;

	err = nla_put_string(msg, KVCTX_A_POOL, t->pool->name);
	err = err ?: nla_put_string(msg, KVCTX_A_TENANT, t->name);
	nest = nla_nest_start(msg, KVCTX_A_TENANT_STATS);
	if (!nest || !tally)
		return -NLE_NOMEM;
	kve_share_pace(p, t->slot, &inflight, &waiting);
	for (u32 i = KVCTX_T_STORES; i < KVCTX_TALLY_NR; i++)
		err = err ?: nla_put_u64(msg, (int)i, kvctx_tally_sum(tally, i));
	err = err ?: nla_put_u64(msg, KVCTX_T_EVICTED_PAGES, kvc_tenant_evicted(p->core, t->slot));
	err = err ?: nla_put_u64(msg, KVCTX_T_INFLIGHT, inflight);
	err = err ?: nla_put_u64(msg, KVCTX_T_WAITING, waiting);
	err = err ?: report_latencies(msg, tally);
	nla_nest_end(msg, nest);
	return err;
}

static u64 report_sessions(const struct kvd_pool *p)
{
	u64 nr = 0;

	pthread_mutex_lock(&kvd_lock);
	for (struct kvd_tenant *t = p->tenants; t; t = t->next)
		nr += t->sessions;
	pthread_mutex_unlock(&kvd_lock);
	return nr;
}

int kvd_report_stats(struct nl_msg *msg, struct kvd_pool *p)
{
	struct kve_counters *c = &p->engine->counters;
	struct kvc_stats st;

	kvc_stats_get(p->engine->core, &st);

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
		{ KVCTX_S_IO_ERRORS,		os_atomic64_read(&c->io_errors) },
		{ KVCTX_S_FLUSHES,		os_atomic64_read(&c->flushes) },
		{ KVCTX_S_EVICTED_PAGES,	st.evicted_pages },
		{ KVCTX_S_MOVED_PAGES,		st.moved_pages },
		{ KVCTX_S_MOVED_BYTES,		st.moved_bytes },
		{ KVCTX_S_SEGMENTS_SEALED,	st.segments_sealed },
		{ KVCTX_S_SEGMENTS_RECLAIMED,	st.segments_reclaimed },
		{ KVCTX_S_SUMMARY_WRITES,	st.summary_writes },
		{ KVCTX_S_STORE_WAITS,		os_atomic64_read(&c->store_waits) },
		{ KVCTX_S_RECOVERED_PAGES,	st.recovered_pages },
		{ KVCTX_S_RECOVER_SKIPPED,	st.recover_skipped },
		{ KVCTX_S_BOUNCED_BLOCKS,	os_atomic64_read(&c->bounced) },
		{ KVCTX_S_SESSIONS,		report_sessions(p) },
		{ KVCTX_S_REREADS,		os_atomic64_read(&c->rereads) },
		{ KVCTX_S_TURN_WAITS,		os_atomic64_read(&c->turn_waits) },
		{ KVCTX_S_SLOT_HITS,		os_atomic64_read(&c->slot_hits) },
		{ KVCTX_S_PREFETCHES,		os_atomic64_read(&c->prefetches) },
		{ KVCTX_S_HOST_WRITTEN_BYTES,	os_atomic64_read(&c->host_written) },
		{ KVCTX_S_RECLAIM_WRITTEN_BYTES, os_atomic64_read(&c->reclaim_written) },
		{ KVCTX_S_META_WRITTEN_BYTES,	os_atomic64_read(&c->meta_written) },
		{ KVCTX_S_DISCARDED_BYTES,	os_atomic64_read(&c->discarded) },
		{ KVCTX_S_UNADMITTED,		st.unadmitted },
		{ KVCTX_S_INDEX_BYTES,		st.index_bytes },
		{ KVCTX_S_INDEX_LIMIT,		st.index_limit },
		{ KVCTX_S_RECOVER_DROPPED,	st.recover_dropped },
	};
	int err = nla_put_string(msg, KVCTX_A_POOL, p->name);
	struct nlattr *nest = nla_nest_start(msg, KVCTX_A_STATS);

	if (!nest)
		return -NLE_NOMEM;
	for (u32 i = 0; i < ARRAY_SIZE(rows) && !err; i++)
		err = nla_put_u64(msg, rows[i].type, rows[i].value);
	nla_nest_end(msg, nest);
	return err;
}
