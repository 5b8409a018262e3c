// SPDX-License-Identifier: GPL-2.0
/*
 * Objects of the control plane in JSON. A field is left out when the kernel did not send it.
 */
#include <linux/kvctx.h>
#include <linux/kvctx_genl.h>
#include <netlink/attr.h>

#include "../common/limits.h"
#include "nl.h"
#include "out.h"

const struct stat_name stat_names[KVCTX_S_MAX + 1] = {
	[KVCTX_S_PAGES] = { "pages", "Pages in the index.", true },
	[KVCTX_S_BYTES] = { "bytes", "Bytes of the pages in the index.", true },
	[KVCTX_S_STORES] = { "stores", "Pages written." },
	[KVCTX_S_STORE_BYTES] = { "store_bytes", "Bytes of pages written." },
	[KVCTX_S_DEDUPS] = { "dedups", "Stores that found the page." },
	[KVCTX_S_LOADS] = { "loads", "Pages or parts of pages read." },
	[KVCTX_S_LOAD_BYTES] = { "load_bytes", "Bytes read." },
	[KVCTX_S_MISSES] = { "misses", "Loads that found no page." },
	[KVCTX_S_DELETES] = { "deletes", "Pages deleted by their users." },
	[KVCTX_S_BAD_PAGES] = { "bad_pages", "Pages that failed verification and were dropped." },
	[KVCTX_S_IO_ERRORS] = { "io_errors", "Transfers that a member failed." },
	[KVCTX_S_FLUSHES] = { "flushes", "Flushes." },
	[KVCTX_S_EVICTED_PAGES] = { "evicted_pages", "Pages dropped to make room." },
	[KVCTX_S_MOVED_PAGES] = { "moved_pages", "Pages rewritten by reclaim." },
	[KVCTX_S_MOVED_BYTES] = { "moved_bytes", "Bytes of pages rewritten by reclaim." },
	[KVCTX_S_SEGMENTS_SEALED] = { "segments_sealed", "Segments that became full." },
	[KVCTX_S_SEGMENTS_RECLAIMED] = { "segments_reclaimed", "Segments made free again." },
	[KVCTX_S_SUMMARY_WRITES] = { "summary_writes", "Writes of summaries." },
	[KVCTX_S_STORE_WAITS] = { "store_waits", "Stores and deletes that waited for space." },
	[KVCTX_S_RECOVERED_PAGES] = { "recovered_pages", "Pages found at attach." },
	[KVCTX_S_RECOVER_SKIPPED] = { "recover_skipped", "Records and segments refused at attach." },
	[KVCTX_S_BOUNCED_BLOCKS] = { "bounced_blocks", "Blocks copied because memory was not aligned." },
	[KVCTX_S_SESSIONS] = { "sessions", "Open sessions.", true },
	[KVCTX_S_INFLIGHT] = { "inflight", "Operations on their way.", true },
	[KVCTX_S_REREADS] = { "rereads", "Chunks that failed their check and were read once more." },
	[KVCTX_S_TURN_WAITS] = { "turn_waits", "Operations that waited for more urgent ones, or for a member that has enough." },
	[KVCTX_S_SLOT_HITS] = { "slot_hits", "Operations that found their page in a slot." },
	[KVCTX_S_PREFETCHES] = { "prefetches", "Pages read into slots." },
	[KVCTX_S_HOST_WRITTEN_BYTES] = { "host_written_bytes", "Bytes sent to the devices: stored pages." },
	[KVCTX_S_RECLAIM_WRITTEN_BYTES] = { "reclaim_written_bytes", "Bytes sent to the devices: pages moved by reclaim." },
	[KVCTX_S_META_WRITTEN_BYTES] = { "meta_written_bytes", "Bytes sent to the devices: headers, summaries, superblocks." },
	[KVCTX_S_DISCARDED_BYTES] = { "discarded_bytes", "Bytes discarded." },
	[KVCTX_S_UNADMITTED] = { "unadmitted", "Stores that the write budget turned away." },
	[KVCTX_S_INDEX_BYTES] = { "index_bytes", "Bytes of memory of the index.", true },
	[KVCTX_S_INDEX_LIMIT] = { "index_limit", "Bytes of memory that the index may take.", true },
	[KVCTX_S_RECOVER_DROPPED] = { "recover_dropped", "Pages that the index had no memory for at attach." },
};

const int nr_stat_names = KVCTX_S_MAX + 1;

static const struct nla_policy member_policy[KVCTX_M_MAX + 1] = {
	[KVCTX_M_INDEX] = { .type = NLA_U32 },
	[KVCTX_M_DEVICE] = { .type = NLA_NUL_STRING },
	[KVCTX_M_UUID] = { .minlen = 16 },
	[KVCTX_M_SIZE] = { .type = NLA_U64 },
	[KVCTX_M_STATE] = { .type = NLA_U32 },
	[KVCTX_M_SEGMENTS] = { .type = NLA_U32 },
	[KVCTX_M_SEGMENTS_FREE] = { .type = NLA_U32 },
	[KVCTX_M_BYTES] = { .type = NLA_U64 },
	[KVCTX_M_INFLIGHT] = { .type = NLA_U64 },
	[KVCTX_M_WAITING] = { .type = NLA_U32 },
};

static void add_text(struct json_object *obj, const char *key, struct nlattr *a)
{
	if (a)
		out_text(obj, key, nla_get_string(a));
}

static void add_u32(struct json_object *obj, const char *key, struct nlattr *a)
{
	if (a)
		out_number(obj, key, nla_get_u32(a));
}

static void add_u64(struct json_object *obj, const char *key, struct nlattr *a)
{
	if (a)
		out_number(obj, key, nla_get_u64(a));
}

static void add_uuid(struct json_object *obj, const char *key, struct nlattr *a)
{
	if (a)
		out_uuid(obj, key, nla_data(a));
}

static const char *const pool_states[] = {
	[KVCTX_POOL_ONLINE] = "online",
	[KVCTX_POOL_DEGRADED] = "degraded",
};

static const char *const member_states[] = {
	[KVCTX_MEMBER_STATE_ONLINE] = "online",
	[KVCTX_MEMBER_STATE_FAILED] = "failed",
	[KVCTX_MEMBER_STATE_MISSING] = "missing",
	[KVCTX_MEMBER_STATE_LEAVING] = "leaving",
	[KVCTX_MEMBER_STATE_STUCK] = "stuck",
};

static void add_state(struct json_object *obj, struct nlattr *a, const char *const *names, size_t nr)
{
	if (a)
		out_text(obj, "state", nla_get_u32(a) < nr ? names[nla_get_u32(a)] : "unknown");
}

static struct json_object *object_member(struct nlattr *nest)
{
	struct json_object *obj = out_object();
	struct nlattr *m[KVCTX_M_MAX + 1];

	if (nla_parse_nested(m, KVCTX_M_MAX, nest, member_policy) < 0)
		return obj;
	add_u32(obj, "index", m[KVCTX_M_INDEX]);
	add_text(obj, "device", m[KVCTX_M_DEVICE]);
	add_uuid(obj, "uuid", m[KVCTX_M_UUID]);
	add_u64(obj, "size", m[KVCTX_M_SIZE]);
	add_state(obj, m[KVCTX_M_STATE], member_states, sizeof(member_states) / sizeof(*member_states));
	add_u32(obj, "segments", m[KVCTX_M_SEGMENTS]);
	add_u32(obj, "segments_free", m[KVCTX_M_SEGMENTS_FREE]);
	add_u64(obj, "bytes", m[KVCTX_M_BYTES]);
	add_u64(obj, "inflight_bytes", m[KVCTX_M_INFLIGHT]);
	add_u32(obj, "waiting", m[KVCTX_M_WAITING]);
	return obj;
}

struct json_object *object_pool(const struct nl_object *o)
{
	struct json_object *obj = out_object(), *members = out_array();
	uint64_t segments_free = 0;
	struct nlattr *a;
	int rem;

	add_text(obj, "name", o->attrs[KVCTX_A_POOL]);
	add_uuid(obj, "uuid", o->attrs[KVCTX_A_UUID]);
	add_state(obj, o->attrs[KVCTX_A_STATE], pool_states, sizeof(pool_states) / sizeof(*pool_states));
	add_u64(obj, "segment_size", o->attrs[KVCTX_A_SEGMENT_SIZE]);
	add_u32(obj, "chunk_size", o->attrs[KVCTX_A_CHUNK_SIZE]);
	add_u64(obj, "page_len_max", o->attrs[KVCTX_A_PAGE_LEN_MAX]);
	add_u64(obj, "capacity", o->attrs[KVCTX_A_CAPACITY]);
	add_u64(obj, "attach_bytes", o->attrs[KVCTX_A_ATTACH_BYTES]);
	add_u64(obj, "attach_us", o->attrs[KVCTX_A_ATTACH_US]);
	add_u64(obj, "discard_rate", o->attrs[KVCTX_A_DISCARD_RATE]);
	add_u64(obj, "write_budget", o->attrs[KVCTX_A_WRITE_BUDGET]);
	add_u64(obj, "write_budget_left", o->attrs[KVCTX_A_WRITE_BUDGET_LEFT]);
	nla_for_each_attr(a, o->head, o->len, rem) {
		struct json_object *member;

		if (nla_type(a) != KVCTX_A_MEMBER)
			continue;
		member = object_member(a);
		segments_free += out_get_number(member, "segments_free");
		out_append(members, member);
	}
	out_number(obj, "free", segments_free * out_get_number(obj, "segment_size"));
	out_add(obj, "members", members);
	return obj;
}

static void add_limits(struct json_object *obj, struct nlattr *nest)
{
	struct nlattr *l[KVCTX_L_MAX + 1];

	if (!nest || nla_parse_nested(l, KVCTX_L_MAX, nest, limits_policy) < 0)
		return;
	add_u64(obj, "quota", l[KVCTX_L_QUOTA]);
	add_u64(obj, "reserve", l[KVCTX_L_RESERVE]);
	add_u64(obj, "write_budget", l[KVCTX_L_WRITE_BUDGET]);
	add_u64(obj, "max_pinned", l[KVCTX_L_PINNED]);
	add_u64(obj, "max_leased", l[KVCTX_L_LEASED]);
	add_u32(obj, "max_keyspaces", l[KVCTX_L_KEYSPACES]);
	add_u64(obj, "bandwidth", l[KVCTX_L_BANDWIDTH]);
	add_u32(obj, "max_inflight", l[KVCTX_L_INFLIGHT]);
	add_u32(obj, "weight", l[KVCTX_L_WEIGHT]);
	if (l[KVCTX_L_FLAGS])
		out_bool(obj, "no_urgent", nla_get_u32(l[KVCTX_L_FLAGS]) & KVCTX_LIMIT_NO_URGENT);
}

static void add_key(struct json_object *obj, const struct nl_object *o)
{
	static const char *const states[] = {
		[KVCTX_KEY_MISSING] = "missing", [KVCTX_KEY_USED] = "used", [KVCTX_KEY_ENDED] = "ended",
	};
	uint32_t state;

	if (!o->attrs[KVCTX_A_TENANT_KEY] || !o->attrs[KVCTX_A_TENANT_KEY_STATE])
		return;
	state = nla_get_u32(o->attrs[KVCTX_A_TENANT_KEY_STATE]);
	add_text(obj, "key", o->attrs[KVCTX_A_TENANT_KEY]);
	out_text(obj, "key_state", state < sizeof(states) / sizeof(*states) ? states[state] : "unknown");
}

struct json_object *object_tenant(const struct nl_object *o)
{
	struct json_object *obj = out_object();
	char node[128];

	add_text(obj, "pool", o->attrs[KVCTX_A_POOL]);
	add_text(obj, "tenant", o->attrs[KVCTX_A_TENANT]);
	add_u32(obj, "uid", o->attrs[KVCTX_A_UID]);
	add_u32(obj, "gid", o->attrs[KVCTX_A_GID]);
	add_u32(obj, "mode", o->attrs[KVCTX_A_MODE]);
	add_u32(obj, "sessions", o->attrs[KVCTX_A_SESSIONS]);
	add_u64(obj, "pages", o->attrs[KVCTX_A_TENANT_PAGES]);
	add_u64(obj, "bytes", o->attrs[KVCTX_A_TENANT_BYTES]);
	add_u64(obj, "pinned", o->attrs[KVCTX_A_TENANT_PINNED]);
	add_u64(obj, "leased", o->attrs[KVCTX_A_TENANT_LEASED]);
	add_u32(obj, "keyspaces", o->attrs[KVCTX_A_TENANT_KEYSPACES]);
	add_u32(obj, "major", o->attrs[KVCTX_A_DEV_MAJOR]);
	add_u32(obj, "minor", o->attrs[KVCTX_A_DEV_MINOR]);
	if (o->attrs[KVCTX_A_TENANT_FLAGS])
		out_bool(obj, "require_verified", nla_get_u32(o->attrs[KVCTX_A_TENANT_FLAGS]) & KVCTX_TENANT_VERIFIED);
	add_u64(obj, "write_budget_left", o->attrs[KVCTX_A_WRITE_BUDGET_LEFT]);
	add_key(obj, o);
	add_limits(obj, o->attrs[KVCTX_A_LIMITS]);
	nl_node(out_get_text(obj, "pool"), out_get_text(obj, "tenant"), node, sizeof(node));
	out_text(obj, "node", node);
	return obj;
}

static const struct nla_policy path_policy[KVCTX_P_MAX + 1] = {
	[KVCTX_P_MEMBER] = { .type = NLA_U32 },
	[KVCTX_P_REASON] = { .type = NLA_U32 },
	[KVCTX_P_DISTANCE] = { .type = NLA_S32 },
};

static const char *const path_reasons[] = {
	[KVCTX_PATH_DIRECT] = "direct",
	[KVCTX_PATH_NO_QUEUE] = "no_queue",
	[KVCTX_PATH_NO_ROUTE] = "no_route",
	[KVCTX_PATH_NO_PCI] = "no_pci",
	[KVCTX_PATH_GONE] = "gone",
};

static struct json_object *object_path(struct nlattr *nest)
{
	struct json_object *obj = out_object();
	struct nlattr *p[KVCTX_P_MAX + 1];
	uint32_t reason;

	if (nla_parse_nested(p, KVCTX_P_MAX, nest, path_policy) < 0 || !p[KVCTX_P_REASON])
		return obj;
	reason = nla_get_u32(p[KVCTX_P_REASON]);
	add_u32(obj, "member", p[KVCTX_P_MEMBER]);
	out_text(obj, "reason", reason < sizeof(path_reasons) / sizeof(*path_reasons) ? path_reasons[reason] : "unknown");
	if (p[KVCTX_P_DISTANCE] && reason == KVCTX_PATH_DIRECT)
		out_number(obj, "distance", (uint64_t)nla_get_s32(p[KVCTX_P_DISTANCE]));
	return obj;
}

struct json_object *object_peer(const struct nl_object *o)
{
	struct json_object *obj = out_object(), *paths = out_array();
	struct nlattr *a;
	int rem;

	add_text(obj, "peer", o->attrs[KVCTX_A_PEER]);
	nla_for_each_attr(a, o->head, o->len, rem)
		if (nla_type(a) == KVCTX_A_PATH)
			out_append(paths, object_path(a));
	out_add(obj, "paths", paths);
	return obj;
}

/* All that was written over what was asked for; nothing before anything was */
static void add_amplification(struct json_object *obj)
{
	uint64_t host = out_get_number(obj, "host_written_bytes");
	uint64_t more = out_get_number(obj, "reclaim_written_bytes") + out_get_number(obj, "meta_written_bytes");

	if (host)
		out_ratio(obj, "write_amplification", 1 + (double)more / (double)host);
}

struct json_object *object_stats(const struct nl_object *o)
{
	struct json_object *obj = out_object();
	struct nlattr *s[KVCTX_S_MAX + 1];

	add_text(obj, "pool", o->attrs[KVCTX_A_POOL]);
	if (!o->attrs[KVCTX_A_STATS] || nla_parse_nested(s, KVCTX_S_MAX, o->attrs[KVCTX_A_STATS], NULL) < 0)
		return obj;
	for (int i = 0; i < nr_stat_names; i++)
		if (stat_names[i].key && s[i] && nla_len(s[i]) >= (int)sizeof(uint64_t))
			add_u64(obj, stat_names[i].key, s[i]);
	add_amplification(obj);
	return obj;
}
