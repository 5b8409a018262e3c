// SPDX-License-Identifier: GPL-2.0
/*
 * Requests of the netlink family: commands with the attributes that they take, and others; what they do to the pool is
 * mended between inputs by requests that are right.
 *
 * The pool t is on /dev/fuzz0 and /dev/fuzz1; /dev/fuzz2 is there to be added; guest.sh makes them.
 */
#include <errno.h>
#include <linux/kvctx.h>
#include <linux/kvctx_genl.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <string.h>
#include <unistd.h>

#include <linux/genetlink.h>

#include "fuzz.h"

#define CONTROL_KEY	"kvctx:fuzz"

static struct nl_sock *control_sock;
static int control_family;
static bool control_touched;		/* since it was mended */

void fuzz_control_init(void)
{
	control_sock = nl_socket_alloc();
	if (!control_sock || genl_connect(control_sock))
		fuzz_die("netlink: no socket");
	control_family = genl_ctrl_resolve(control_sock, KVCTX_GENL_NAME);
	if (control_family < 0)
		fuzz_die("netlink: the module is not loaded");
	nl_socket_disable_auto_ack(control_sock);
	nl_socket_disable_seq_check(control_sock);
	nl_socket_set_buffer_size(control_sock, 1 << 20, 0);
}

static struct nl_msg *control_message(int cmd, int flags)
{
	struct nl_msg *msg = nlmsg_alloc_size(16384);

	if (!msg || !genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, control_family, 0, NLM_F_REQUEST | flags, (uint8_t)cmd,
				 KVCTX_GENL_VERSION))
		fuzz_die("netlink: no memory");
	return msg;
}

/* What comes is not looked at but for its end; a dump of nothing has one too. Returns the error, or 0, also if none is known. */
static int control_send(struct nl_msg *msg)
{
	struct sockaddr_nl from;
	unsigned char *buf;
	int err = nl_send_auto(control_sock, msg), result = 0;
	bool over = false;

	nlmsg_free(msg);
	while (err >= 0 && !over) {
		struct nlmsghdr *nlh;
		int left = nl_recv(control_sock, &from, &buf, NULL);

		if (left <= 0)
			return 0;
		for (nlh = (void *)buf; nlmsg_ok(nlh, left); nlh = nlmsg_next(nlh, &left)) {
			over |= nlh->nlmsg_type == NLMSG_ERROR || nlh->nlmsg_type == NLMSG_DONE;
			if (nlh->nlmsg_type == NLMSG_ERROR)
				result = ((struct nlmsgerr *)nlmsg_data(nlh))->error;
		}
		free(buf);
	}
	return result;
}

static void put_text(struct fuzz_in *in, struct nl_msg *msg, int type)
{
	static const char *const texts[] = {
		"t", "default", "other", "strict", "secret", "x", "y", CONTROL_KEY, "/dev/fuzz0", "/dev/fuzz1", "/dev/fuzz2",
		"/dev/null", "", "a-name-of-thirty-two-characters.", "/dev/../dev/fuzz2", "t",
	};
	const char *text = texts[fuzz_below(in, sizeof(texts) / sizeof(texts[0]))];
	size_t length = strlen(text) + 1;

	nla_put(msg, type, (int)(fuzz_rarely(in) ? length - 1 : length), text);
}

static void put_number(struct fuzz_in *in, struct nl_msg *msg, int type, unsigned int bytes)
{
	uint64_t number = fuzz_number(in);

	nla_put(msg, type, (int)(fuzz_rarely(in) ? fuzz_below(in, 9) : bytes), &number);
}

static void put_limits(struct fuzz_in *in, struct nl_msg *msg)
{
	struct nlattr *nest = nla_nest_start(msg, KVCTX_A_LIMITS | (fuzz_rarely(in) ? 0 : NLA_F_NESTED));

	for (uint32_t nr = fuzz_below(in, 6); nest && nr; nr--) {
		int type = (int)fuzz_below(in, KVCTX_L_MAX + 2);
		bool word = type == KVCTX_L_KEYSPACES || type == KVCTX_L_FLAGS || type == KVCTX_L_INFLIGHT || type == KVCTX_L_WEIGHT;

		put_number(in, msg, type, word ? 4 : 8);
	}
	if (nest)
		nla_nest_end(msg, nest);
}

static void put_one(struct fuzz_in *in, struct nl_msg *msg, int type)
{
	switch (type) {
	case KVCTX_A_POOL:
	case KVCTX_A_DEVICE:
	case KVCTX_A_TENANT:
	case KVCTX_A_TENANT_KEY:
		put_text(in, msg, type);
		break;
	case KVCTX_A_LIMITS:
		put_limits(in, msg);
		break;
	case KVCTX_A_DEGRADED:
	case KVCTX_A_MOVE:
	case KVCTX_A_DRY_RUN:
	case KVCTX_A_TENANT_UNLOCK:
		nla_put(msg, type, fuzz_rarely(in) ? 4 : 0, "abc");
		break;
	case KVCTX_A_DISCARD_RATE:
	case KVCTX_A_WRITE_BUDGET:
	case KVCTX_A_CAPACITY:
		put_number(in, msg, type, 8);
		break;
	default:
		put_number(in, msg, type, 4);
	}
}

/* Which attributes a command is mostly given, the first one with the right pool */
static const uint8_t control_wants[KVCTX_CMD_MAX + 2][8] = {
	[KVCTX_CMD_POOL_ATTACH] = { KVCTX_A_DEVICE, KVCTX_A_DEVICE, KVCTX_A_DEGRADED },
	[KVCTX_CMD_POOL_DETACH] = { KVCTX_A_POOL },
	[KVCTX_CMD_POOL_GET] = { KVCTX_A_POOL },
	[KVCTX_CMD_POOL_SET] = { KVCTX_A_POOL, KVCTX_A_DISCARD_RATE, KVCTX_A_WRITE_BUDGET },
	[KVCTX_CMD_POOL_ADD] = { KVCTX_A_POOL, KVCTX_A_DEVICE, KVCTX_A_DRY_RUN },
	[KVCTX_CMD_POOL_REJOIN] = { KVCTX_A_POOL, KVCTX_A_DEVICE },
	[KVCTX_CMD_POOL_REMOVE] = { KVCTX_A_POOL, KVCTX_A_INDEX, KVCTX_A_MOVE },
	[KVCTX_CMD_TENANT_ADD] = { KVCTX_A_POOL, KVCTX_A_TENANT, KVCTX_A_UID, KVCTX_A_GID, KVCTX_A_MODE, KVCTX_A_TENANT_FLAGS,
				   KVCTX_A_LIMITS, KVCTX_A_TENANT_KEY },
	[KVCTX_CMD_TENANT_SET] = { KVCTX_A_POOL, KVCTX_A_TENANT, KVCTX_A_TENANT_FLAGS, KVCTX_A_LIMITS,
				   KVCTX_A_TENANT_UNLOCK },
	[KVCTX_CMD_TENANT_REMOVE] = { KVCTX_A_POOL, KVCTX_A_TENANT },
	[KVCTX_CMD_TENANT_GET] = { KVCTX_A_POOL },
	[KVCTX_CMD_STATS_GET] = { KVCTX_A_POOL },
	[KVCTX_CMD_TENANT_STATS_GET] = { KVCTX_A_POOL },
	[KVCTX_CMD_PEER_GET] = { KVCTX_A_POOL },
};

void fuzz_control(struct fuzz_in *in)
{
	int cmd = (int)fuzz_below(in, KVCTX_CMD_MAX + 2);
	int kind = fuzz_below(in, 2) ? NLM_F_ACK : NLM_F_DUMP;
	int flags = fuzz_rarely(in) ? NLM_F_ACK | NLM_F_ROOT : kind;
	struct nl_msg *msg = control_message(cmd, flags);
	uint32_t nr = fuzz_below(in, 9);

	if (cmd == KVCTX_CMD_POOL_DETACH && !fuzz_rarely(in))
		nr = 0;		/* an attach takes as long as many inputs */
	for (uint32_t i = 0; i < nr && i < 8 && control_wants[cmd][i]; i++) {
		if (control_wants[cmd][i] == KVCTX_A_POOL && !fuzz_rarely(in))
			nla_put_string(msg, KVCTX_A_POOL, "t");
		else
			put_one(in, msg, control_wants[cmd][i]);
	}
	if (fuzz_rarely(in))
		put_one(in, msg, (int)fuzz_below(in, KVCTX_A_MAX + 3));
	/* what is refused, or a dump, leaves nothing to mend, and mending takes longer than most inputs */
	if (!control_send(msg) && flags != NLM_F_DUMP)
		control_touched = true;
}

static bool mend_attached(void)
{
	struct nl_msg *msg = control_message(KVCTX_CMD_POOL_ATTACH, NLM_F_ACK);

	nla_put_string(msg, KVCTX_A_DEVICE, "/dev/fuzz0");
	nla_put_string(msg, KVCTX_A_DEVICE, "/dev/fuzz1");
	nla_put_flag(msg, KVCTX_A_DEGRADED);
	control_send(msg);
	return !access("/dev/kvctx/t", F_OK);
}

/* Where members went, or came, what there is is formatted anew */
static void mend_attach(void)
{
	if (mend_attached())
		return;
	if (system("kvctxctl pool format t /dev/fuzz0 /dev/fuzz1 --force --segment-size 1M > /dev/null") || !mend_attached())
		fuzz_die("the pool cannot be had again");
}

static const struct {
	const char *name;
	uint32_t flags;
	const char *key;
} control_tenants[] = {
	{ "default", 0, NULL }, { "other", 0, NULL }, { "strict", KVCTX_TENANT_VERIFIED, NULL }, { "secret", 0, CONTROL_KEY },
};

/* No limits: with those that inputs set nothing would go any more after a while */
static void put_no_limits(struct nl_msg *msg)
{
	static const int longs[] = {
		KVCTX_L_QUOTA, KVCTX_L_RESERVE, KVCTX_L_WRITE_BUDGET, KVCTX_L_PINNED, KVCTX_L_LEASED, KVCTX_L_BANDWIDTH,
	};
	static const int words[] = { KVCTX_L_KEYSPACES, KVCTX_L_FLAGS, KVCTX_L_INFLIGHT, KVCTX_L_WEIGHT };
	struct nlattr *nest = nla_nest_start(msg, KVCTX_A_LIMITS | NLA_F_NESTED);

	for (size_t i = 0; i < sizeof(longs) / sizeof(longs[0]); i++)
		nla_put_u64(msg, longs[i], 0);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		nla_put_u32(msg, words[i], 0);
	nla_nest_end(msg, nest);
}

static void mend_tenant(const char *name, uint32_t flags, const char *key)
{
	struct nl_msg *msg;
	char path[64];
	bool there;

	snprintf(path, sizeof(path), "/dev/kvctx/t/%s", name);
	there = !access(path, F_OK);
	if (there && !control_touched)
		return;
	msg = control_message(there ? KVCTX_CMD_TENANT_SET : KVCTX_CMD_TENANT_ADD, NLM_F_ACK);
	nla_put_string(msg, KVCTX_A_POOL, "t");
	nla_put_string(msg, KVCTX_A_TENANT, name);
	nla_put_u32(msg, KVCTX_A_TENANT_FLAGS, flags);
	if (there)
		put_no_limits(msg);
	else if (key)
		nla_put_string(msg, KVCTX_A_TENANT_KEY, key);
	control_send(msg);
}

static void mend_pool(void)
{
	struct nl_msg *msg = control_message(KVCTX_CMD_POOL_SET, NLM_F_ACK);

	nla_put_string(msg, KVCTX_A_POOL, "t");
	nla_put_u64(msg, KVCTX_A_DISCARD_RATE, 0);
	nla_put_u64(msg, KVCTX_A_WRITE_BUDGET, 0);
	control_send(msg);
}

void fuzz_control_mend(void)
{
	if (access("/dev/kvctx/t", F_OK))
		mend_attach();
	for (size_t i = 0; i < sizeof(control_tenants) / sizeof(control_tenants[0]); i++)
		mend_tenant(control_tenants[i].name, control_tenants[i].flags, control_tenants[i].key);
	if (control_touched)
		mend_pool();
	control_touched = false;
}
