// SPDX-License-Identifier: GPL-2.0
/*
 * The control plane as the tool sees it through libnl: requests are taken and answers given where libnl would use
 * its socket, so messages are built and parsed by the real code on both sides.
 *
 * Pools: ctx0, two members of which the second failed, and ctx1, one member. Tenants: default in both, llama in
 * ctx0. Counter n of a pool is n * 1000 in the first answer, twice that in the second and so on.
 *
 *	FAKE_FAMILY	"no": there is none
 *	FAKE_CONNECT	"no": the socket cannot be made
 *	FAKE_POOLS	"no": nothing is attached
 *	FAKE_ERRNO	requests fail so
 *	FAKE_UUID	of ctx0, 32 hexadecimal digits
 *	FAKE_SEGMENT_SIZE	of the pools (default: 256 MiB)
 *	FAKE_NO_ADD	"1": POOL_ADD is refused
 *	FAKE_WHY	sentence that goes with it; sent only to a socket that asked for sentences
 *	FAKE_CAPPED	"1": the error does not repeat the request
 *	FAKE_IN_DONE	"1": a dump's error comes at its end
 *	FAKE_INTERRUPTED	so many dumps are interrupted by a change
 *	FAKE_OLD	"1": a kernel that knows no counters but the first, no flags of tenants and no settings of pools
 *	FAKE_PEERS	"no": no device has memory for peers; "none": the kernel knows nothing of it
 *	FAKE_REASON	why the second peer has no path to the first member
 *	FAKE_BAD	"1": answers with attributes of a wrong size
 *	FAKE_JOIN	"no": nobody may hear of events
 */
#include <errno.h>
#include <linux/kvctx.h>
#include <linux/kvctx_genl.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "fake.h"

#define FAMILY		29
#define GROUP		31
#define GROUP_PAGES	32
#define QUEUE		256

static struct {
	unsigned char *buf;
	int len;
} queue[QUEUE];
static int queued, taken;
static bool sentences, joined;

static void push(struct nl_msg *msg)
{
	struct nlmsghdr *nlh = nlmsg_hdr(msg);

	if (queued == QUEUE)
		abort();
	queue[queued].len = (int)nlh->nlmsg_len;
	queue[queued].buf = malloc(nlh->nlmsg_len);
	memcpy(queue[queued++].buf, nlh, nlh->nlmsg_len);
	nlmsg_free(msg);
}

static int take(struct nl_sock *sk, struct sockaddr_nl *from, unsigned char **buf, struct ucred **creds)
{
	if (taken == queued && joined)
		return -NLE_BAD_SOCK;
	if (taken == queued)
		abort();	/* the tool waits for ever */
	if (!queue[taken].buf) {
		taken++;
		return -NLE_NOMEM;
	}
	memset(from, 0, sizeof(*from));
	from->nl_family = AF_NETLINK;
	*buf = queue[taken].buf;
	return queue[taken++].len;
}

static struct nl_msg *message(const struct nlmsghdr *rq, int type, int flags)
{
	struct nl_msg *msg = nlmsg_alloc();

	nlmsg_put(msg, rq->nlmsg_pid, rq->nlmsg_seq, type, 0, flags);
	return msg;
}

static void append(struct nl_msg *msg, const void *data, size_t len)
{
	nlmsg_append(msg, (void *)data, len, NLMSG_ALIGNTO);
}

/* NLMSG_ERROR: the answer to a request that wanted an acknowledgment, or to a wrong one */
static void push_status(const struct nlmsghdr *rq, int err, const char *why)
{
	bool capped = !err || fake_is("FAKE_CAPPED", "1");
	bool tell = err && why && sentences;
	struct nlmsgerr e = { .error = -err, .msg = *rq };
	struct nl_msg *msg = message(rq, NLMSG_ERROR, (capped ? NLM_F_CAPPED : 0) | (tell ? NLM_F_ACK_TLVS : 0));

	append(msg, &e, sizeof(e));
	if (!capped)
		append(msg, rq + 1, rq->nlmsg_len - sizeof(*rq));
	if (tell) {
		nla_put_u32(msg, NLMSGERR_ATTR_OFFS, 20);
		nla_put_string(msg, NLMSGERR_ATTR_MSG, why);
	}
	push(msg);
}

static void push_done(const struct nlmsghdr *rq, int err, int flags)
{
	const char *why = getenv("FAKE_WHY");
	bool tell = err && why && sentences;
	struct nl_msg *msg = message(rq, NLMSG_DONE, NLM_F_MULTI | flags | (tell ? NLM_F_ACK_TLVS : 0));

	err = -err;
	append(msg, &err, sizeof(err));
	if (tell)
		nla_put_string(msg, NLMSGERR_ATTR_MSG, why);
	push(msg);
}

static struct nl_msg *object(const struct nlmsghdr *rq, int flags)
{
	const struct genlmsghdr *g = nlmsg_data(rq);
	struct nl_msg *msg = nlmsg_alloc_size(16384);

	genlmsg_put(msg, rq->nlmsg_pid, rq->nlmsg_seq, FAMILY, 0, flags, g->cmd, KVCTX_GENL_VERSION);
	return msg;
}

static void put_uuid(struct nl_msg *msg, int attr, int first)
{
	unsigned char uuid[16];

	for (int i = 0; i < 16; i++)
		uuid[i] = (unsigned char)(first + i);
	nla_put(msg, attr, sizeof(uuid), uuid);
}

static void put_member(struct nl_msg *msg, int index, const char *device, int state)
{
	struct nlattr *nest = nla_nest_start(msg, KVCTX_A_MEMBER);

	nla_put_u32(msg, KVCTX_M_INDEX, index);
	if (state != KVCTX_MEMBER_STATE_MISSING)
		nla_put_string(msg, KVCTX_M_DEVICE, device);
	put_uuid(msg, KVCTX_M_UUID, 16 * (index + 2));
	nla_put_u64(msg, KVCTX_M_SIZE, 40ULL << 28);
	nla_put_u32(msg, KVCTX_M_STATE, state);
	nla_put_u32(msg, KVCTX_M_SEGMENTS, 40);
	nla_put_u32(msg, KVCTX_M_SEGMENTS_FREE, 10 + index);
	nla_nest_end(msg, nest);
}

static void put_pool_uuid(struct nl_msg *msg, bool first)
{
	const char *text = getenv("FAKE_UUID");
	unsigned char uuid[16];

	if (!text || !first) {
		put_uuid(msg, KVCTX_A_UUID, 0);
		return;
	}
	for (int i = 0; i < 16; i++)
		if (sscanf(text + 2 * i, "%2hhx", &uuid[i]) != 1)
			abort();
	nla_put(msg, KVCTX_A_UUID, sizeof(uuid), uuid);
}

static bool removed;	/* a member, by an earlier request */
static int rejoins;	/* requests */

static void push_pool(const struct nlmsghdr *rq, const char *name, int flags)
{
	bool two = !strcmp(name, "ctx0");
	struct nl_msg *msg = object(rq, flags);

	nla_put_string(msg, KVCTX_A_POOL, name);
	put_pool_uuid(msg, two);
	nla_put_u64(msg, KVCTX_A_CAPACITY, (two ? 80ULL : 40ULL) << 28);
	nla_put_u64(msg, KVCTX_A_SEGMENT_SIZE, (uint64_t)fake_number("FAKE_SEGMENT_SIZE", 1L << 28));
	if (fake_is("FAKE_BAD", "1"))
		nla_put_u16(msg, KVCTX_A_CHUNK_SIZE, 1);
	else
		nla_put_u32(msg, KVCTX_A_CHUNK_SIZE, 65536);
	nla_put_u64(msg, KVCTX_A_PAGE_LEN_MAX, 128ULL << 20);
	nla_put_u64(msg, KVCTX_A_ATTACH_BYTES, 3 << 20);
	nla_put_u64(msg, KVCTX_A_ATTACH_US, 4000);
	nla_put_u32(msg, KVCTX_A_STATE, two ? KVCTX_POOL_DEGRADED : KVCTX_POOL_ONLINE);
	if (!fake_is("FAKE_OLD", "1")) {
		nla_put_u64(msg, KVCTX_A_DISCARD_RATE, two ? 512ULL << 20 : 0);
		nla_put_u64(msg, KVCTX_A_WRITE_BUDGET, two ? 2ULL << 40 : 0);
		if (two)
			nla_put_u64(msg, KVCTX_A_WRITE_BUDGET_LEFT, 1ULL << 40);
	}
	if (!(fake_is("FAKE_GONE", "1") && removed))
		put_member(msg, 0, "/dev/nvme1n1", fake_is("FAKE_FIRST_LOST", "1") && rejoins < 3 ?
			   KVCTX_MEMBER_STATE_FAILED : KVCTX_MEMBER_STATE_ONLINE);
	if (two)
		put_member(msg, 1, getenv("FAKE_DEVICE") ?: "/dev/nvme2n1",
			   (int)fake_number("FAKE_MEMBER", rejoins ? KVCTX_MEMBER_STATE_ONLINE : KVCTX_MEMBER_STATE_FAILED));
	push(msg);
}

static void push_lost(const struct nlmsghdr *rq, const char *name)
{
	struct nl_msg *msg = object(rq, 0);

	nla_put_string(msg, KVCTX_A_POOL, name);
	put_member(msg, 3, "/dev/nvme5n1", KVCTX_MEMBER_STATE_FAILED);
	push(msg);
}

/* None for the first tenant */
static void put_limits(struct nl_msg *msg, int minor)
{
	struct nlattr *nest = nla_nest_start(msg, KVCTX_A_LIMITS);

	nla_put_u64(msg, KVCTX_L_QUOTA, (uint64_t)minor << 30);
	nla_put_u64(msg, KVCTX_L_RESERVE, (uint64_t)minor << 20);
	nla_put_u64(msg, KVCTX_L_WRITE_BUDGET, (uint64_t)minor << 40);
	nla_put_u64(msg, KVCTX_L_PINNED, (uint64_t)minor << 31);
	nla_put_u64(msg, KVCTX_L_LEASED, (uint64_t)minor << 21);
	nla_put_u32(msg, KVCTX_L_KEYSPACES, (uint32_t)minor * 7);
	nla_put_u32(msg, KVCTX_L_FLAGS, minor & 1);
	nla_put_u64(msg, KVCTX_L_BANDWIDTH, (uint64_t)minor << 22);
	nla_put_u32(msg, KVCTX_L_INFLIGHT, (uint32_t)minor * 5);
	nla_put_u32(msg, KVCTX_L_WEIGHT, 100 + (uint32_t)minor);
	nla_nest_end(msg, nest);
}

static void push_tenant(const struct nlmsghdr *rq, const char *pool, const char *tenant, int minor)
{
	struct nl_msg *msg = object(rq, NLM_F_MULTI);

	nla_put_string(msg, KVCTX_A_POOL, pool);
	nla_put_string(msg, KVCTX_A_TENANT, tenant);
	nla_put_u32(msg, KVCTX_A_UID, 1000 + minor);
	nla_put_u32(msg, KVCTX_A_GID, 2000 + minor);
	nla_put_u32(msg, KVCTX_A_MODE, 0640);
	nla_put_u32(msg, KVCTX_A_SESSIONS, minor);
	nla_put_u32(msg, KVCTX_A_DEV_MAJOR, 240);
	nla_put_u32(msg, KVCTX_A_DEV_MINOR, minor);
	if (!fake_is("FAKE_OLD", "1")) {
		nla_put_u32(msg, KVCTX_A_TENANT_FLAGS, minor & 1);
		nla_put_u64(msg, KVCTX_A_TENANT_PAGES, 10 + minor);
		nla_put_u64(msg, KVCTX_A_TENANT_BYTES, (10 + minor) * 4096);
		nla_put_u64(msg, KVCTX_A_TENANT_PINNED, (uint64_t)minor << 12);
		nla_put_u64(msg, KVCTX_A_TENANT_LEASED, (uint64_t)minor << 19);
		nla_put_u32(msg, KVCTX_A_TENANT_KEYSPACES, (uint32_t)minor * 3);
		put_limits(msg, minor);
	}
	push(msg);
}

/* 0000:03:00.0 reaches the first member, 0000:04:00.0 none, the second is no PCI device's */
static void push_peer(const struct nlmsghdr *rq, const char *pool, const char *peer, int reason)
{
	struct nl_msg *msg = object(rq, NLM_F_MULTI);
	struct nlattr *nest;

	nla_put_string(msg, KVCTX_A_POOL, pool);
	nla_put_string(msg, KVCTX_A_PEER, peer);
	for (int i = 0; i < 2; i++) {
		nest = nla_nest_start(msg, KVCTX_A_PATH);
		nla_put_u32(msg, KVCTX_P_MEMBER, i);
		nla_put_u32(msg, KVCTX_P_REASON, i ? 1 : reason);
		nla_put_s32(msg, KVCTX_P_DISTANCE, i || reason ? -1 : 4);
		nla_nest_end(msg, nest);
	}
	push(msg);
}

static void push_stats(const struct nlmsghdr *rq, const char *pool, unsigned int nth)
{
	struct nl_msg *msg = object(rq, NLM_F_MULTI);
	int end = fake_is("FAKE_OLD", "1") ? KVCTX_S_PAGES : KVCTX_S_MAX;
	struct nlattr *nest;

	nla_put_string(msg, KVCTX_A_POOL, pool);
	nest = nla_nest_start(msg, KVCTX_A_STATS);
	for (int i = KVCTX_S_PAGES; i <= end; i++)
		nla_put_u64(msg, i, 1000ULL * i * nth);
	nla_nest_end(msg, nest);
	push(msg);
}

/* Counters as those of pools; a hundred loads a dump, all but one of 1.5 us, a store of any length that there may be */
static void push_tenant_stats(const struct nlmsghdr *rq, const char *pool, const char *tenant, unsigned int nth)
{
	struct kvctx_genl_latency load = { .opcode = KVCTX_OP_LOAD, .prio = KVCTX_PRIO_URGENT };
	struct kvctx_genl_latency store = { .opcode = KVCTX_OP_STORE, .prio = KVCTX_PRIO_NORMAL };
	struct nl_msg *msg = object(rq, NLM_F_MULTI);
	struct nlattr *nest;

	load.nr[3] = 99ULL * nth;
	load.nr[41] = nth;
	for (int i = 0; i < KVCTX_LATENCIES; i++)
		store.nr[i] = nth;
	nla_put_string(msg, KVCTX_A_POOL, pool);
	nla_put_string(msg, KVCTX_A_TENANT, tenant);
	nest = nla_nest_start(msg, KVCTX_A_TENANT_STATS);
	for (int i = KVCTX_T_STORES; i < KVCTX_T_LATENCY; i++)
		nla_put_u64(msg, i, 1000ULL * i * nth);
	nla_put(msg, KVCTX_T_LATENCY, sizeof(load), &load);
	nla_put(msg, KVCTX_T_LATENCY, sizeof(store), &store);
	nla_nest_end(msg, nest);
	push(msg);
}

static void push_dump(const struct nlmsghdr *rq, const char *pool)
{
	const struct genlmsghdr *g = nlmsg_data(rq);
	static unsigned int dumps;
	static long interrupted;
	bool first = !pool || !strcmp(pool, "ctx0"), second = !pool || !strcmp(pool, "ctx1");

	dumps++;
	first &= !fake_is("FAKE_POOLS", "no");
	second &= !fake_is("FAKE_POOLS", "no");
	if (g->cmd == KVCTX_CMD_POOL_GET && first)
		push_pool(rq, "ctx0", NLM_F_MULTI);
	if (g->cmd == KVCTX_CMD_POOL_GET && second)
		push_pool(rq, "ctx1", NLM_F_MULTI);
	if (g->cmd == KVCTX_CMD_TENANT_GET && first) {
		push_tenant(rq, "ctx0", "default", 0);
		push_tenant(rq, "ctx0", "llama", 1);
	}
	if (g->cmd == KVCTX_CMD_TENANT_GET && second)
		push_tenant(rq, "ctx1", "default", 2);
	if (g->cmd == KVCTX_CMD_PEER_GET && first && !fake_is("FAKE_PEERS", "no")) {
		push_peer(rq, "ctx0", "0000:03:00.0", 0);
		push_peer(rq, "ctx0", "0000:04:00.0", (int)fake_number("FAKE_REASON", 2));
	}
	if (g->cmd == KVCTX_CMD_TENANT_STATS_GET && first) {
		push_tenant_stats(rq, "ctx0", "default", dumps);
		push_tenant_stats(rq, "ctx0", "llama", dumps * 10);
	}
	if (g->cmd == KVCTX_CMD_TENANT_STATS_GET && second)
		push_tenant_stats(rq, "ctx1", "default", dumps);
	if (g->cmd == KVCTX_CMD_STATS_GET && first)
		push_stats(rq, "ctx0", dumps);
	if (g->cmd == KVCTX_CMD_STATS_GET && second)
		push_stats(rq, "ctx1", dumps * 10);
	push_done(rq, (int)fake_number("FAKE_ERRNO", 0),
		  interrupted++ < fake_number("FAKE_INTERRUPTED", 0) ? NLM_F_DUMP_INTR : 0);
}

static const char *text(struct nlattr *a)
{
	return a ? nla_get_string(a) : NULL;
}

static void log_number(const char *name, struct nlattr *a)
{
	if (a)
		fake_log("  %s=%u", name, nla_get_u32(a));
}

static void log_long(const char *name, struct nlattr *a)
{
	if (a)
		fake_log("  %s=%llu", name, (unsigned long long)nla_get_u64(a));
}

static void log_limits(struct nlattr *nest)
{
	struct nlattr *l[KVCTX_L_MAX + 1];

	if (!nest)
		return;
	if (nla_parse_nested(l, KVCTX_L_MAX, nest, NULL) < 0)
		abort();
	log_long("limit quota", l[KVCTX_L_QUOTA]);
	log_long("limit reserve", l[KVCTX_L_RESERVE]);
	log_long("limit write_budget", l[KVCTX_L_WRITE_BUDGET]);
	log_long("limit pinned", l[KVCTX_L_PINNED]);
	log_long("limit leased", l[KVCTX_L_LEASED]);
	log_number("limit keyspaces", l[KVCTX_L_KEYSPACES]);
	log_number("limit flags", l[KVCTX_L_FLAGS]);
	log_long("limit bandwidth", l[KVCTX_L_BANDWIDTH]);
	log_number("limit inflight", l[KVCTX_L_INFLIGHT]);
	log_number("limit weight", l[KVCTX_L_WEIGHT]);
}

static void log_request(const struct nlmsghdr *rq, struct nlattr **a)
{
	static const char *const names[] = {
		"?", "attach", "detach", "pool", "tenant-add", "tenant-remove", "tenants", "stats", "lost",
		"tenant-set", "peers", "pool-set", "pool-add", "pool-remove",
		"tenant-stats", "pages", "pool-rejoin",
	};
	const struct genlmsghdr *g = nlmsg_data(rq);
	struct nlattr *d;
	int rem;

	/* libnl waits for an acknowledgment of all but dumps */
	if (!(rq->nlmsg_flags & NLM_F_ACK))
		abort();
	fake_log("%s%s version %d", names[g->cmd < sizeof(names) / sizeof(*names) ? g->cmd : 0],
		 (rq->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP ? " dump" : "", g->version);
	if (a[KVCTX_A_POOL])
		fake_log("  pool=%s", text(a[KVCTX_A_POOL]));
	if (a[KVCTX_A_TENANT])
		fake_log("  tenant=%s", text(a[KVCTX_A_TENANT]));
	nla_for_each_attr(d, genlmsg_attrdata(g, 0), genlmsg_attrlen(g, 0), rem)
		if (nla_type(d) == KVCTX_A_DEVICE)
			fake_log("  device=%s", text(d));
	if (a[KVCTX_A_DEGRADED])
		fake_log("  degraded");
	if (a[KVCTX_A_MOVE])
		fake_log("  move");
	if (a[KVCTX_A_DRY_RUN])
		fake_log("  dry-run");
	log_number("index", a[KVCTX_A_INDEX]);
	log_number("uid", a[KVCTX_A_UID]);
	log_number("gid", a[KVCTX_A_GID]);
	log_number("mode", a[KVCTX_A_MODE]);
	log_number("flags", a[KVCTX_A_TENANT_FLAGS]);
	log_limits(a[KVCTX_A_LIMITS]);
	log_long("discard_rate", a[KVCTX_A_DISCARD_RATE]);
	log_long("write_budget", a[KVCTX_A_WRITE_BUDGET]);
}

static void request(const struct nlmsghdr *rq)
{
	const struct genlmsghdr *g = nlmsg_data(rq);
	bool dump = (rq->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
	int err = (int)fake_number("FAKE_ERRNO", 0);
	struct nlattr *a[KVCTX_A_MAX + 1];

	genlmsg_parse((struct nlmsghdr *)rq, 0, a, KVCTX_A_MAX, NULL);
	log_request(rq, a);
	if (err && !(dump && fake_is("FAKE_IN_DONE", "1"))) {
		push_status(rq, err, getenv("FAKE_WHY"));
		return;
	}
	if (dump && g->cmd == KVCTX_CMD_PEER_GET && (fake_is("FAKE_PEERS", "none") || fake_is("FAKE_OLD", "1"))) {
		push_status(rq, EOPNOTSUPP, fake_is("FAKE_OLD", "1") ? NULL :
			    "this kernel has no PCI peer-to-peer DMA");
		return;
	}
	if (g->cmd == KVCTX_CMD_POOL_ADD && fake_is("FAKE_NO_ADD", "1")) {
		push_status(rq, ENOTBLK, "not a block device");
		return;
	}
	if (dump) {
		push_dump(rq, text(a[KVCTX_A_POOL]));
		return;
	}
	if (g->cmd == KVCTX_CMD_POOL_ATTACH)
		push_pool(rq, "ctx0", 0);
	if (g->cmd == KVCTX_CMD_POOL_REMOVE)
		removed = true;
	if (g->cmd == KVCTX_CMD_POOL_REJOIN && ++rejoins == 1 && fake_is("FAKE_FIRST_LOST", "1")) {
		push_status(rq, ESTALE, "others were lost later");
		return;
	}
	if (g->cmd == KVCTX_CMD_POOL_GET)
		push_pool(rq, text(a[KVCTX_A_POOL]), 0);
	push_status(rq, 0, NULL);
}

/* The controller: which number has the family? */
static void resolve(const struct nlmsghdr *rq)
{
	struct nlattr *a[CTRL_ATTR_MAX + 1], *groups, *group;
	struct nl_msg *msg;

	genlmsg_parse((struct nlmsghdr *)rq, 0, a, CTRL_ATTR_MAX, NULL);
	if (fake_is("FAKE_FAMILY", "no") || !a[CTRL_ATTR_FAMILY_NAME] ||
	    strcmp(text(a[CTRL_ATTR_FAMILY_NAME]), KVCTX_GENL_NAME)) {
		push_status(rq, ENOENT, NULL);
		return;
	}
	msg = nlmsg_alloc();
	genlmsg_put(msg, rq->nlmsg_pid, rq->nlmsg_seq, GENL_ID_CTRL, 0, 0, CTRL_CMD_NEWFAMILY, 2);
	nla_put_string(msg, CTRL_ATTR_FAMILY_NAME, KVCTX_GENL_NAME);
	nla_put_u16(msg, CTRL_ATTR_FAMILY_ID, FAMILY);
	nla_put_u32(msg, CTRL_ATTR_VERSION, KVCTX_GENL_VERSION);
	groups = nla_nest_start(msg, CTRL_ATTR_MCAST_GROUPS);
	group = nla_nest_start(msg, 1);
	nla_put_u32(msg, CTRL_ATTR_MCAST_GRP_ID, GROUP);
	nla_put_string(msg, CTRL_ATTR_MCAST_GRP_NAME, KVCTX_GENL_MCGRP_MGMT);
	nla_nest_end(msg, group);
	group = nla_nest_start(msg, 2);
	nla_put_u32(msg, CTRL_ATTR_MCAST_GRP_ID, GROUP_PAGES);
	nla_put_string(msg, CTRL_ATTR_MCAST_GRP_NAME, KVCTX_GENL_MCGRP_PAGES);
	nla_nest_end(msg, group);
	nla_nest_end(msg, groups);
	push(msg);
	push_status(rq, 0, NULL);
}

static int send_to_us(struct nl_sock *sk, struct nl_msg *msg)
{
	const struct nlmsghdr *rq = nlmsg_hdr(msg);

	if (rq->nlmsg_type == GENL_ID_CTRL)
		resolve(rq);
	else if (rq->nlmsg_type == FAMILY)
		request(rq);
	else
		abort();
	return (int)rq->nlmsg_len;
}

int __wrap_genl_connect(struct nl_sock *sk)
{
	struct nl_cb *cb = nl_socket_get_cb(sk);

	if (fake_is("FAKE_CONNECT", "no")) {
		nl_cb_put(cb);
		return -NLE_AF_NOSUPPORT;
	}
	sentences = false;
	nl_cb_overwrite_recv(cb, take);
	nl_cb_overwrite_send(cb, send_to_us);
	nl_cb_put(cb);
	return 0;
}

/* What happens to those who hear of it: a pool comes, a tenant of it, some are missed, a member of another is lost */
static void push_events(void)
{
	struct {
		struct nlmsghdr nlh;
		struct genlmsghdr genl;
	} rq = { .genl.cmd = KVCTX_CMD_POOL_ATTACH };

	push_pool(&rq.nlh, "ctx0", 0);
	rq.genl.cmd = KVCTX_CMD_TENANT_ADD;
	push_tenant(&rq.nlh, "ctx0", "llama", 1);
	queue[queued++].buf = NULL;
	rq.genl.cmd = KVCTX_CMD_MEMBER_LOST;
	push_lost(&rq.nlh, "ctx1");
	rq.genl.cmd = 200;
	push_tenant(&rq.nlh, "ctx1", "unknown", 1);
	rq.genl.cmd = KVCTX_CMD_POOL_DETACH;
	push_pool(&rq.nlh, "ctx1", 0);
}

static void push_some_pages(const char *pool, const char *tenant, uint64_t lost, const struct kvctx_event *pages, int nr)
{
	struct {
		struct nlmsghdr nlh;
		struct genlmsghdr genl;
	} rq = { .genl.cmd = KVCTX_CMD_PAGES };
	struct nl_msg *msg = object(&rq.nlh, 0);
	uint8_t keyspace[KVCTX_KEYSPACE_LEN] = { 0xab, [15] = 1 };

	nla_put_string(msg, KVCTX_A_POOL, pool);
	nla_put_string(msg, KVCTX_A_TENANT, tenant);
	nla_put(msg, KVCTX_A_KEYSPACE, sizeof(keyspace), keyspace);
	nla_put(msg, KVCTX_A_PAGES, nr * (int)sizeof(*pages), pages);
	if (lost)
		nla_put_u64(msg, KVCTX_A_LOST, lost);
	push(msg);
}

/* Of pages: one comes and goes, one of a kind that nobody knows yet, others were not told */
static void push_pages(void)
{
	struct kvctx_event pages[] = {
		{ .kind = KVCTX_EVENT_STORED, .length = 4096 }, { .kind = 77, .length = 1 },
		{ .kind = KVCTX_EVENT_EVICTED, .length = 4096 },
	};

	for (size_t i = 0; i < sizeof(pages) / sizeof(*pages); i++)
		pages[i].key = (struct kvctx_key){ .digest = { 0xfe, [31] = 7 }, .qualifier = 0x102 };
	push_some_pages("ctx0", "llama", 0, pages, 3);
	pages[0].kind = KVCTX_EVENT_DELETED;
	push_some_pages("ctx1", "llama", 12345, pages, 1);
}

int __wrap_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
	if (level == SOL_NETLINK && name == NETLINK_EXT_ACK)
		sentences = *(const int *)val;
	return 0;
}

int __wrap_nl_socket_add_membership(struct nl_sock *sk, int group)
{
	if (fake_is("FAKE_JOIN", "no"))
		return -NLE_PERM;
	fake_log("joins %d", group);
	joined = true;
	if (group == GROUP_PAGES)
		push_pages();
	else
		push_events();
	return 0;
}
