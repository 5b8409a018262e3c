// SPDX-License-Identifier: GPL-2.0
/*
 * The netlink family seen from below kvctxctl: requests that it would never send, dumps in parts, events.
 *
 *	ctl_genl table           send malformed requests to a kernel with the pool "t" attached; TAP
 *	ctl_genl dump            dump all tenants; print how many there were, in how many parts, and if interrupted
 *	ctl_genl events N SECS   print N events of the group "mgmt", or what came within the time
 *	ctl_genl overhear        join all groups that there may be, tell the number, and print what comes, until it is ended
 */
#include <errno.h>
#include <linux/kvctx.h>
#include <linux/kvctx_genl.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/genetlink.h>

static struct nl_sock *sk;
static int family;

static void check_nl(const char *what, int err)
{
	if (err >= 0)
		return;
	fprintf(stderr, "ctl_genl: %s: %s\n", what, nl_geterror(err));
	exit(1);
}

/* One attribute of a request; several rows make one */
struct attr {
	int type;
	const void *data;
	int len;
};

#define STR(type, s)	{ type, s, sizeof(s) }
#define NUM(type, ...)	{ type, (const __u32[]){ __VA_ARGS__ }, sizeof(__u32) }

/* A limit of four bytes, and two of eight: the attributes inside, by halves of words */
#define LIMIT(type, n)	{ KVCTX_A_LIMITS | NLA_F_NESTED, (const __u16[]){ 8, type, n, 0 }, 8 }
#define LIMIT64(type, n, type2, n2) \
	{ KVCTX_A_LIMITS | NLA_F_NESTED, (const __u16[]){ 12, type, n, 0, 0, 0, 12, type2, n2, 0, 0, 0 }, 24 }

struct request {
	const char *what;
	int cmd;
	int flags;
	int want;			/* errno, or 0 */
	const char *says;		/* part of the message, NULL: any */
	struct attr attrs[8];
};

#define LONG_NAME	"a-name-of-thirty-two-characters."
#define UNTERMINATED(type)	{ type, "tttt", 4 }

static const struct request requests[] = {
	{ "attach without a device", KVCTX_CMD_POOL_ATTACH, 0, EINVAL, "devices", { } },
	{ "attach with an empty path", KVCTX_CMD_POOL_ATTACH, 0, EINVAL, "cannot be opened", { STR(KVCTX_A_DEVICE, "") } },
	{ "attach with an unterminated path", KVCTX_CMD_POOL_ATTACH, 0, EINVAL, NULL, { UNTERMINATED(KVCTX_A_DEVICE) } },
	{ "attach with a foreign attribute", KVCTX_CMD_POOL_ATTACH, 0, EINVAL, NULL,
	  { STR(KVCTX_A_DEVICE, "/dev/null"), STR(KVCTX_A_POOL, "t") } },
	{ "detach without a pool", KVCTX_CMD_POOL_DETACH, 0, EINVAL, "name of the pool", { } },
	{ "detach an unknown pool", KVCTX_CMD_POOL_DETACH, 0, ENOENT, "no pool named x", { STR(KVCTX_A_POOL, "x") } },
	{ "a pool's name too long", KVCTX_CMD_POOL_GET, 0, EINVAL, NULL, { STR(KVCTX_A_POOL, LONG_NAME) } },
	{ "a pool's name of 31 characters", KVCTX_CMD_POOL_GET, 0, ENOENT, "no pool",
	  { STR(KVCTX_A_POOL, "a-name-of-thirty-one-characters") } },
	{ "a pool's name not terminated", KVCTX_CMD_POOL_GET, 0, EINVAL, NULL, { UNTERMINATED(KVCTX_A_POOL) } },
	{ "an empty pool's name", KVCTX_CMD_POOL_GET, 0, ENOENT, "no pool", { STR(KVCTX_A_POOL, "") } },
	{ "an attribute behind the last", KVCTX_CMD_POOL_GET, 0, EINVAL, NULL,
	  { STR(KVCTX_A_POOL, "t"), NUM(KVCTX_A_MAX + 1, 1) } },
	{ "add without a pool", KVCTX_CMD_TENANT_ADD, 0, EINVAL, "name of the pool", { STR(KVCTX_A_TENANT, "a") } },
	{ "add without a tenant", KVCTX_CMD_TENANT_ADD, 0, EINVAL, "name of the tenant", { STR(KVCTX_A_POOL, "t") } },
	{ "add with a bad name", KVCTX_CMD_TENANT_ADD, 0, EINVAL, "name is",
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "../x") } },
	{ "add with a name that hides", KVCTX_CMD_TENANT_ADD, 0, EINVAL, "name is",
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, ".x") } },
	{ "add with an empty name", KVCTX_CMD_TENANT_ADD, 0, EINVAL, "name is",
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "") } },
	{ "add with a mode of more bits", KVCTX_CMD_TENANT_ADD, 0, EINVAL, NULL,
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "a"), NUM(KVCTX_A_MODE, 04755) } },
	{ "add with no user id", KVCTX_CMD_TENANT_ADD, 0, EINVAL, "no user id",
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "a"), NUM(KVCTX_A_UID, ~0U) } },
	{ "add with no group id", KVCTX_CMD_TENANT_ADD, 0, EINVAL, "no group id",
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "a"), NUM(KVCTX_A_GID, ~0U) } },
	{ "add with a short number", KVCTX_CMD_TENANT_ADD, 0, EINVAL, NULL,
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "a"), { KVCTX_A_UID, "\1\0", 2 } } },
	{ "add what exists", KVCTX_CMD_TENANT_ADD, 0, EEXIST, "exists already",
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "default") } },
	{ "add with unknown flags", KVCTX_CMD_TENANT_ADD, 0, EINVAL, NULL,
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "a"), NUM(KVCTX_A_TENANT_FLAGS, 2) } },
	{ "set without a tenant", KVCTX_CMD_TENANT_SET, 0, EINVAL, "name of the tenant",
	  { STR(KVCTX_A_POOL, "t"), NUM(KVCTX_A_TENANT_FLAGS, 1) } },
	{ "set of an unknown tenant", KVCTX_CMD_TENANT_SET, 0, ENOENT, "no tenant named x",
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "x"), NUM(KVCTX_A_TENANT_FLAGS, 1) } },
	{ "set without flags", KVCTX_CMD_TENANT_SET, 0, EINVAL, "flags of the tenant",
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "default") } },
	{ "set with unknown flags", KVCTX_CMD_TENANT_SET, 0, EINVAL, NULL,
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "default"), NUM(KVCTX_A_TENANT_FLAGS, 2) } },
	{ "set with what add takes", KVCTX_CMD_TENANT_SET, 0, EINVAL, NULL,
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "default"), NUM(KVCTX_A_TENANT_FLAGS, 1),
	    NUM(KVCTX_A_MODE, 0600) } },
	{ "set with unknown flags of limits", KVCTX_CMD_TENANT_SET, 0, EINVAL, NULL,
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "default"), LIMIT(KVCTX_L_FLAGS, 2) } },
	{ "set with a short limit", KVCTX_CMD_TENANT_SET, 0, EINVAL, NULL,
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "default"), LIMIT(KVCTX_L_QUOTA, 2) } },
	{ "set with a limit behind the last", KVCTX_CMD_TENANT_SET, 0, EINVAL, NULL,
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "default"), LIMIT(KVCTX_L_MAX + 1, 2) } },
	{ "set with a reserve above the quota", KVCTX_CMD_TENANT_SET, 0, EINVAL, "reserve: at most the quota",
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "default"), LIMIT64(KVCTX_L_QUOTA, 2, KVCTX_L_RESERVE, 3) } },
	{ "add with a write budget of a byte", KVCTX_CMD_TENANT_ADD, 0, EINVAL, "write budget: 1M to 1E",
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "a"), LIMIT64(KVCTX_L_WRITE_BUDGET, 1, KVCTX_L_RESERVE, 0) } },
	{ "set of limits of an unknown tenant", KVCTX_CMD_TENANT_SET, 0, ENOENT, "no tenant named x",
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "x"), LIMIT(KVCTX_L_KEYSPACES, 2) } },
	{ "remove without a tenant", KVCTX_CMD_TENANT_REMOVE, 0, EINVAL, "name of the tenant",
	  { STR(KVCTX_A_POOL, "t") } },
	{ "remove an unknown tenant", KVCTX_CMD_TENANT_REMOVE, 0, ENOENT, "no tenant named x",
	  { STR(KVCTX_A_POOL, "t"), STR(KVCTX_A_TENANT, "x") } },
	{ "dump tenants of an unknown pool", KVCTX_CMD_TENANT_GET, NLM_F_DUMP, ENOENT, "no pool",
	  { STR(KVCTX_A_POOL, "x") } },
	{ "dump statistics of an unknown pool", KVCTX_CMD_STATS_GET, NLM_F_DUMP, ENOENT, "no pool",
	  { STR(KVCTX_A_POOL, "x") } },
	{ "one peer", KVCTX_CMD_PEER_GET, 0, EOPNOTSUPP, NULL, { STR(KVCTX_A_POOL, "t") } },
	{ "one tenant", KVCTX_CMD_TENANT_GET, 0, EOPNOTSUPP, NULL, { STR(KVCTX_A_POOL, "t") } },
	{ "a dump of attach", KVCTX_CMD_POOL_ATTACH, NLM_F_DUMP, EOPNOTSUPP, NULL, { } },
	{ "an event's number", KVCTX_CMD_MEMBER_LOST, 0, EOPNOTSUPP, NULL, { } },
	{ "an unknown command", KVCTX_CMD_MAX + 1, 0, EOPNOTSUPP, NULL, { } },
	{ "the pool itself, for comparison", KVCTX_CMD_POOL_GET, 0, 0, NULL, { STR(KVCTX_A_POOL, "t") } },
};

/* What the kernel answered */
struct answer {
	int done, err;
	char text[256];
	int parts, objects, interrupted;
};

static void take_text(struct answer *a, struct nlmsghdr *nlh, struct nlmsgerr *e)
{
	int skip = (int)sizeof(*e), rem;
	struct nlattr *attr;

	if (!(nlh->nlmsg_flags & NLM_F_ACK_TLVS))
		return;
	if (!(nlh->nlmsg_flags & NLM_F_CAPPED))
		skip += (int)(e->msg.nlmsg_len - sizeof(e->msg));
	rem = (int)nlh->nlmsg_len - NLMSG_HDRLEN - skip;
	for (attr = (void *)((char *)e + skip); nla_ok(attr, rem); attr = nla_next(attr, &rem))
		if (nla_type(attr) == NLMSGERR_ATTR_MSG)
			snprintf(a->text, sizeof(a->text), "%s", (char *)nla_data(attr));
}

static void take(struct answer *a, struct nlmsghdr *nlh)
{
	struct nlmsgerr *e = nlmsg_data(nlh);

	if (nlh->nlmsg_flags & NLM_F_DUMP_INTR)
		a->interrupted = 1;
	if (nlh->nlmsg_type == NLMSG_ERROR) {
		a->done = 1;
		a->err = -e->error;
		take_text(a, nlh, e);
	} else if (nlh->nlmsg_type == NLMSG_DONE) {
		a->done = 1;
	} else {
		a->objects++;
	}
}

/* Send a request and take everything that belongs to it */
static struct answer ask(int cmd, int flags, const struct attr *attrs, int nr)
{
	static char buf[4096];	/* small, so that dumps come in parts */
	struct answer a = { 0 };
	struct nl_msg *msg = nlmsg_alloc();
	int i;

	if (!msg || !genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, family, 0, NLM_F_REQUEST | NLM_F_ACK | flags,
				 (__u8)cmd, KVCTX_GENL_VERSION))
		exit(1);
	for (i = 0; i < nr && attrs[i].type; i++)
		check_nl("put", nla_put(msg, attrs[i].type, attrs[i].len, attrs[i].data));
	check_nl("send", nl_send_auto(sk, msg));
	nlmsg_free(msg);
	while (!a.done) {
		ssize_t n = recv(nl_socket_get_fd(sk), buf, sizeof(buf), 0);
		struct nlmsghdr *nlh = (void *)buf;
		int rem = (int)n;

		if (n <= 0) {
			perror("ctl_genl: recv");
			exit(1);
		}
		a.parts++;
		for (; nlmsg_ok(nlh, rem); nlh = nlmsg_next(nlh, &rem))
			take(&a, nlh);
	}
	return a;
}

static int run_table(void)
{
	int i, nr = sizeof(requests) / sizeof(*requests), failed = 0;

	for (i = 0; i < nr; i++) {
		const struct request *r = &requests[i];
		struct answer a = ask(r->cmd, r->flags, r->attrs, 8);
		int good = a.err == r->want && (!r->says || strstr(a.text, r->says));

		printf("%sok %d %s\n", good ? "" : "not ", i + 1, r->what);
		if (!good) {
			printf("# wanted %d (%s), got %d (%s)\n", r->want, r->says ? r->says : "anything", a.err, a.text);
			failed = 1;
		}
	}
	printf("1..%d\n", nr);
	return failed;
}

static int run_dump(void)
{
	struct answer a = ask(KVCTX_CMD_TENANT_GET, NLM_F_DUMP, NULL, 0);

	printf("objects=%d parts=%d interrupted=%d err=%d\n", a.objects, a.parts, a.interrupted, a.err);
	return a.err != 0;
}

static const char *const names[] = {
	[KVCTX_CMD_POOL_ATTACH]		= "POOL_ATTACH",
	[KVCTX_CMD_POOL_DETACH]		= "POOL_DETACH",
	[KVCTX_CMD_TENANT_ADD]		= "TENANT_ADD",
	[KVCTX_CMD_TENANT_SET]		= "TENANT_SET",
	[KVCTX_CMD_TENANT_REMOVE]	= "TENANT_REMOVE",
	[KVCTX_CMD_MEMBER_LOST]		= "MEMBER_LOST",
	[KVCTX_CMD_POOL_REJOIN]		= "POOL_REJOIN",
};

static int seen, wanted;

static int show_event(struct nl_msg *msg, void *arg)
{
	struct nlattr *attrs[KVCTX_A_MAX + 1], *member[KVCTX_M_MAX + 1];
	struct nlmsghdr *nlh = nlmsg_hdr(msg);
	int cmd = genlmsg_hdr(nlh)->cmd;

	(void)arg;
	check_nl("parse", genlmsg_parse(nlh, 0, attrs, KVCTX_A_MAX, NULL));
	printf("%s", cmd <= KVCTX_CMD_MAX && names[cmd] ? names[cmd] : "?");
	if (attrs[KVCTX_A_POOL])
		printf(" pool=%s", nla_get_string(attrs[KVCTX_A_POOL]));
	if (attrs[KVCTX_A_TENANT])
		printf(" tenant=%s", nla_get_string(attrs[KVCTX_A_TENANT]));
	if (cmd == KVCTX_CMD_TENANT_SET)
		printf(" flags=%u", nla_get_u32(attrs[KVCTX_A_TENANT_FLAGS]));
	if (attrs[KVCTX_A_MEMBER]) {
		check_nl("parse", nla_parse_nested(member, KVCTX_M_MAX, attrs[KVCTX_A_MEMBER], NULL));
		printf(" member=%u state=%u", nla_get_u32(member[KVCTX_M_INDEX]), nla_get_u32(member[KVCTX_M_STATE]));
	}
	putchar('\n');
	fflush(stdout);
	seen++;
	return NL_OK;
}

static int run_events(int nr, int seconds)
{
	struct pollfd pfd = { .events = POLLIN };
	time_t end = time(NULL) + seconds;
	int group = genl_ctrl_resolve_grp(sk, KVCTX_GENL_NAME, KVCTX_GENL_MCGRP_MGMT);

	check_nl("group", group);
	nl_socket_disable_seq_check(sk);
	check_nl("join", nl_socket_add_membership(sk, group));
	check_nl("callback", nl_socket_modify_cb(sk, NL_CB_VALID, NL_CB_CUSTOM, show_event, NULL));
	puts("listening");
	fflush(stdout);
	wanted = nr;
	pfd.fd = nl_socket_get_fd(sk);
	while (seen < wanted && time(NULL) < end)
		if (poll(&pfd, 1, 200) > 0)
			check_nl("receive", nl_recvmsgs_default(sk));
	return seen < wanted;
}

#define GROUPS_MAX	64	/* so many numbers has the generic netlink while few families are there */

/* As somebody would who may not listen. The controller's own groups are for all. */
static int run_overhear(void)
{
	static char buf[1 << 16];
	const struct nlmsghdr *nlh = (const struct nlmsghdr *)buf;
	int fd, group, nr = 0;
	ssize_t n;

	fd = nl_socket_get_fd(sk);
	for (group = 1; group <= GROUPS_MAX; group++)
		nr += !setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group));
	printf("in %d groups\n", nr);
	do {
		fflush(stdout);
		n = recv(fd, buf, sizeof(buf), 0);
		if (n > 0 && nlh->nlmsg_type != GENL_ID_CTRL)
			printf("overheard: family %u, command %u\n", nlh->nlmsg_type, ((const struct genlmsghdr *)NLMSG_DATA(nlh))->cmd);
	} while (n >= 0 || errno == ENOBUFS);
	return 1;
}

int main(int argc, char **argv)
{
	int one = 1;

	sk = nl_socket_alloc();
	if (!sk)
		return 1;
	check_nl("connect", genl_connect(sk));
	if (argc == 2 && !strcmp(argv[1], "overhear"))
		return run_overhear();
	setsockopt(nl_socket_get_fd(sk), SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one));
	family = genl_ctrl_resolve(sk, KVCTX_GENL_NAME);
	check_nl("family", family);
	/* the kernel makes parts as long as the longest buffer that this socket ever received with: take a fresh one */
	if (argc == 2) {
		nl_socket_free(sk);
		sk = nl_socket_alloc();
		check_nl("connect", genl_connect(sk));
		setsockopt(nl_socket_get_fd(sk), SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one));
	}
	if (argc == 2 && !strcmp(argv[1], "table"))
		return run_table();
	if (argc == 2 && !strcmp(argv[1], "dump"))
		return run_dump();
	if (argc == 4 && !strcmp(argv[1], "events"))
		return run_events(atoi(argv[2]), atoi(argv[3]));
	fprintf(stderr, "usage: ctl_genl table | dump | events N SECONDS | overhear\n");
	return 2;
}
