// SPDX-License-Identifier: GPL-2.0
/*
 * Netlink transport.
 *
 * libnl reports an error's number only; the sentence that comes with it (extended acknowledgment) is taken from
 * the raw message here: behind the error in NLMSG_ERROR, behind the status in the NLMSG_DONE of a dump.
 *
 * A dump that the kernel says was interrupted by a change is asked for again.
 */
#include <errno.h>
#include <linux/kvctx_genl.h>
#include <linux/netlink.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <string.h>
#include <sys/socket.h>

#include "nl.h"
#include "out.h"

#define DUMP_TRIES	8

struct answer {
	const struct nl_request *rq;
	struct json_object *objects;
	bool done;
	int err;			/* positive errno */
	char why[512];			/* the kernel's sentence; empty: none */
};

static const struct nla_policy policy[KVCTX_A_MAX + 1] = {
	[KVCTX_A_POOL] = { .type = NLA_NUL_STRING },
	[KVCTX_A_TENANT] = { .type = NLA_NUL_STRING },
	[KVCTX_A_UID] = { .type = NLA_U32 },
	[KVCTX_A_GID] = { .type = NLA_U32 },
	[KVCTX_A_MODE] = { .type = NLA_U32 },
	[KVCTX_A_SESSIONS] = { .type = NLA_U32 },
	[KVCTX_A_DEV_MAJOR] = { .type = NLA_U32 },
	[KVCTX_A_DEV_MINOR] = { .type = NLA_U32 },
	[KVCTX_A_UUID] = { .minlen = 16 },
	[KVCTX_A_CAPACITY] = { .type = NLA_U64 },
	[KVCTX_A_SEGMENT_SIZE] = { .type = NLA_U64 },
	[KVCTX_A_CHUNK_SIZE] = { .type = NLA_U32 },
	[KVCTX_A_PAGE_LEN_MAX] = { .type = NLA_U64 },
	[KVCTX_A_STATE] = { .type = NLA_U32 },
	[KVCTX_A_STATS] = { .type = NLA_NESTED },
	[KVCTX_A_TENANT_FLAGS] = { .type = NLA_U32 },
	[KVCTX_A_PEER] = { .type = NLA_NUL_STRING },
	[KVCTX_A_DISCARD_RATE] = { .type = NLA_U64 },
	[KVCTX_A_WRITE_BUDGET] = { .type = NLA_U64 },
	[KVCTX_A_WRITE_BUDGET_LEFT] = { .type = NLA_U64 },
	[KVCTX_A_TENANT_PAGES] = { .type = NLA_U64 },
	[KVCTX_A_TENANT_BYTES] = { .type = NLA_U64 },
	[KVCTX_A_LIMITS] = { .type = NLA_NESTED },
	[KVCTX_A_TENANT_PINNED] = { .type = NLA_U64 },
	[KVCTX_A_TENANT_LEASED] = { .type = NLA_U64 },
	[KVCTX_A_TENANT_KEYSPACES] = { .type = NLA_U32 },
	[KVCTX_A_TENANT_STATS] = { .type = NLA_NESTED },
	[KVCTX_A_TENANT_KEY] = { .type = NLA_NUL_STRING },
	[KVCTX_A_KEYSPACE] = { .minlen = 16 },
	[KVCTX_A_LOST] = { .type = NLA_U64 },
	[KVCTX_A_TENANT_KEY_STATE] = { .type = NLA_U32 },
};

static int on_object(struct nl_msg *msg, void *arg)
{
	struct nlmsghdr *nlh = nlmsg_hdr(msg);
	struct answer *a = arg;
	struct nl_object o;

	if (!a->rq->object)
		return NL_OK;
	if (genlmsg_parse(nlh, 0, o.attrs, KVCTX_A_MAX, policy) < 0) {
		a->err = EBADMSG;
		return NL_OK;
	}
	o.head = genlmsg_attrdata(nlmsg_data(nlh), 0);
	o.len = genlmsg_attrlen(nlmsg_data(nlh), 0);
	out_append(a->objects, a->rq->object(&o));
	return NL_OK;
}

static void take_sentence(struct answer *a, const struct nlmsghdr *nlh, size_t skip)
{
	struct nlattr *attrs[NLMSGERR_ATTR_MAX + 1];
	int len = nlmsg_datalen(nlh) - (int)NLMSG_ALIGN(skip);
	struct nlattr *head = (struct nlattr *)((char *)nlmsg_data(nlh) + NLMSG_ALIGN(skip));

	if (!(nlh->nlmsg_flags & NLM_F_ACK_TLVS) || len <= 0 ||
	    nla_parse(attrs, NLMSGERR_ATTR_MAX, head, len, NULL) < 0)
		return;
	if (attrs[NLMSGERR_ATTR_MSG])
		nla_strlcpy(a->why, attrs[NLMSGERR_ATTR_MSG], sizeof(a->why));
}

static int on_error(struct sockaddr_nl *from, struct nlmsgerr *e, void *arg)
{
	const struct nlmsghdr *nlh = (const struct nlmsghdr *)e - 1;
	size_t skip = sizeof(*e);
	struct answer *a = arg;

	(void)from;
	if (!(nlh->nlmsg_flags & NLM_F_CAPPED))
		skip += NLMSG_ALIGN(e->msg.nlmsg_len) - sizeof(e->msg);
	a->err = -e->error;
	a->done = true;
	take_sentence(a, nlh, skip);
	return NL_STOP;
}

static int on_ack(struct nl_msg *msg, void *arg)
{
	struct answer *a = arg;

	(void)msg;
	a->done = true;
	return NL_STOP;
}

static int on_finish(struct nl_msg *msg, void *arg)
{
	const struct nlmsghdr *nlh = nlmsg_hdr(msg);
	struct answer *a = arg;
	int status;

	a->done = true;
	if (nlmsg_datalen(nlh) < (int)sizeof(status))
		return NL_STOP;
	memcpy(&status, nlmsg_data(nlh), sizeof(status));
	if (status < 0) {
		a->err = -status;
		take_sentence(a, nlh, sizeof(status));
	}
	return NL_STOP;
}

static size_t request_size(const struct nl_request *rq)
{
	size_t size = 1024;

	for (int i = 0; i < rq->nr_devices; i++)
		size += strlen(rq->devices[i]) + 16;
	return size;
}

static int put_value(struct nl_msg *msg, int attr, const struct ctl_value *v)
{
	return v && v->set ? nla_put_u32(msg, attr, (uint32_t)v->num) : 0;
}

static int put_long(struct nl_msg *msg, int attr, const struct ctl_value *v)
{
	return v && v->set ? nla_put_u64(msg, attr, v->num) : 0;
}

/* Those that are set */
static int put_limits(struct nl_msg *msg, const struct ctl_value *opt)
{
	const struct ctl_value no_urgent = {
		.set = opt[OPT_NO_URGENT].set || opt[OPT_URGENT].set,
		.num = opt[OPT_NO_URGENT].set ? KVCTX_LIMIT_NO_URGENT : 0,
	};
	struct nlattr *nest = nla_nest_start(msg, KVCTX_A_LIMITS);
	int err;

	if (!nest)
		return -NLE_NOMEM;
	err = put_long(msg, KVCTX_L_QUOTA, &opt[OPT_QUOTA]);
	err = err ?: put_long(msg, KVCTX_L_RESERVE, &opt[OPT_RESERVE]);
	err = err ?: put_long(msg, KVCTX_L_WRITE_BUDGET, &opt[OPT_WRITE_BUDGET]);
	err = err ?: put_long(msg, KVCTX_L_PINNED, &opt[OPT_MAX_PINNED]);
	err = err ?: put_long(msg, KVCTX_L_LEASED, &opt[OPT_MAX_LEASED]);
	err = err ?: put_value(msg, KVCTX_L_KEYSPACES, &opt[OPT_MAX_KEYSPACES]);
	err = err ?: put_value(msg, KVCTX_L_FLAGS, &no_urgent);
	err = err ?: put_long(msg, KVCTX_L_BANDWIDTH, &opt[OPT_BANDWIDTH]);
	err = err ?: put_value(msg, KVCTX_L_INFLIGHT, &opt[OPT_MAX_INFLIGHT]);
	err = err ?: put_value(msg, KVCTX_L_WEIGHT, &opt[OPT_WEIGHT]);
	nla_nest_end(msg, nest);	/* takes an empty one away again */
	return err;
}

static struct nl_msg *build(const struct nl_request *rq, int family)
{
	struct nl_msg *msg = nlmsg_alloc_size(request_size(rq));
	int flags = NLM_F_REQUEST | (rq->dump ? NLM_F_DUMP : 0);	/* libnl adds NLM_F_ACK */
	int err = 0;

	if (!msg)
		return NULL;
	if (!genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, family, 0, flags, rq->cmd, KVCTX_GENL_VERSION))
		err = -NLE_NOMEM;
	for (int i = 0; i < rq->nr_devices && !err; i++)
		err = nla_put_string(msg, KVCTX_A_DEVICE, rq->devices[i]);
	if (rq->pool && !err)
		err = nla_put_string(msg, KVCTX_A_POOL, rq->pool);
	if (rq->tenant && !err)
		err = nla_put_string(msg, KVCTX_A_TENANT, rq->tenant);
	if (rq->key && !err)
		err = nla_put_string(msg, KVCTX_A_TENANT_KEY, rq->key);
	if (rq->unlock && !err)
		err = nla_put_flag(msg, KVCTX_A_TENANT_UNLOCK);
	if (rq->degraded && !err)
		err = nla_put_flag(msg, KVCTX_A_DEGRADED);
	if (rq->move && !err)
		err = nla_put_flag(msg, KVCTX_A_MOVE);
	if (rq->dry_run && !err)
		err = nla_put_flag(msg, KVCTX_A_DRY_RUN);
	err = err ?: put_value(msg, KVCTX_A_INDEX, rq->index);
	err = err ?: put_value(msg, KVCTX_A_UID, rq->uid);
	err = err ?: put_value(msg, KVCTX_A_GID, rq->gid);
	err = err ?: put_value(msg, KVCTX_A_MODE, rq->mode);
	err = err ?: put_value(msg, KVCTX_A_TENANT_FLAGS, rq->flags);
	if (rq->limits)
		err = err ?: put_limits(msg, rq->limits);
	err = err ?: put_long(msg, KVCTX_A_DISCARD_RATE, rq->discard_rate);
	err = err ?: put_long(msg, KVCTX_A_WRITE_BUDGET, rq->write_budget);
	err = err ?: put_long(msg, KVCTX_A_CAPACITY, rq->capacity);
	if (err) {
		nlmsg_free(msg);
		return NULL;
	}
	return msg;
}

/* 0 or a libnl error; what the kernel said is in @a */
static int exchange(struct nl_sock *sk, struct nl_cb *cb, int family, struct answer *a)
{
	struct nl_msg *msg = build(a->rq, family);
	int ret;

	if (!msg)
		return -NLE_NOMEM;
	ret = nl_send_auto(sk, msg);
	nlmsg_free(msg);
	while (ret >= 0 && !a->done)
		ret = nl_recvmsgs(sk, cb);
	return a->done && ret != -NLE_DUMP_INTR ? 0 : ret;
}

static int exchange_again(struct nl_sock *sk, int family, struct answer *a)
{
	struct nl_cb *own = nl_socket_get_cb(sk), *cb = nl_cb_clone(own);
	size_t before = json_object_array_length(a->objects);
	int ret = -NLE_DUMP_INTR;

	nl_cb_put(own);
	if (!cb)
		return -NLE_NOMEM;
	nl_cb_set(cb, NL_CB_VALID, NL_CB_CUSTOM, on_object, a);
	nl_cb_set(cb, NL_CB_ACK, NL_CB_CUSTOM, on_ack, a);
	nl_cb_set(cb, NL_CB_FINISH, NL_CB_CUSTOM, on_finish, a);
	nl_cb_err(cb, NL_CB_CUSTOM, on_error, a);
	for (int i = 0; i < DUMP_TRIES && ret == -NLE_DUMP_INTR; i++) {
		size_t n = json_object_array_length(a->objects);

		json_object_array_del_idx(a->objects, before, n - before);
		a->done = false;
		ret = exchange(sk, cb, family, a);
	}
	nl_cb_put(cb);
	return ret;
}

static int open_family(const struct ctl *c, struct nl_sock *sk, int *family)
{
	int one = 1, err = genl_connect(sk);

	if (err) {
		ctl_command_error(c, "netlink: %s", nl_geterror(err));
		return CTL_FAILED;
	}
	nl_socket_enable_msg_peek(sk);
	/* An old kernel without it just gives no sentences */
	setsockopt(nl_socket_get_fd(sk), SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one));
	*family = genl_ctrl_resolve(sk, KVCTX_GENL_NAME);
	if (*family >= 0)
		return CTL_OK;
	if (*family == -NLE_OBJ_NOTFOUND)
		ctl_command_error(c, "the kernel module is not loaded; load it with 'kvctxctl load', as root%s",
				  nl_socket_try(NL_DAEMON_SOCKET) ? "" : "; or ask the kvctxd that runs: --socket " NL_DAEMON_SOCKET);
	else
		ctl_command_error(c, "netlink: %s", nl_geterror(*family));
	return *family == -NLE_OBJ_NOTFOUND ? CTL_NODEV : CTL_FAILED;
}

static int report(const struct ctl *c, const struct answer *a, int ret)
{
	const char *why = a->why;

	if (ret == -NLE_NODEV && nl_socket_path(c)) {
		ctl_command_error(c, "kvctxd has ended");
		return CTL_NODEV;
	}
	if (ret) {
		ctl_command_error(c, "netlink: %s", nl_geterror(ret));
		return CTL_FAILED;
	}
	if (a->rq->refusal && a->err == (a->rq->refused ?: EOPNOTSUPP)) {
		snprintf(a->rq->refusal, REFUSAL_MAX, "%s", *why ? why : "this module does not tell");
		return ctl_status_of(a->err);
	}
	if (a->err == EPERM && !*why)
		why = "not permitted; this needs CAP_SYS_ADMIN (root)";
	if (a->err)
		ctl_command_error(c, "%s", *why ? why : strerror(a->err));
	return ctl_status_of(a->err);
}

int nl_request(const struct ctl *c, const struct nl_request *rq, struct json_object *objects)
{
	struct answer a = { .rq = rq, .objects = objects };
	struct nl_sock *sk = nl_socket_alloc();
	int family, status;

	if (!sk) {
		ctl_command_error(c, "%s", strerror(ENOMEM));
		return CTL_FAILED;
	}
	status = nl_socket_path(c) ? nl_socket_open(c, sk, &family) : open_family(c, sk, &family);
	if (!status)
		status = report(c, &a, exchange_again(sk, family, &a));
	nl_socket_close();
	nl_socket_free(sk);
	return status;
}

struct hearing {
	bool (*event)(void *arg, uint8_t cmd, const struct nl_object *o);
	bool (*lost)(void *arg);
	void *arg;
	bool pages, more;
};

static int on_event(struct nl_msg *msg, void *arg)
{
	struct nlmsghdr *nlh = nlmsg_hdr(msg);
	struct hearing *h = arg;
	struct nl_object o;

	if (genlmsg_parse(nlh, 0, o.attrs, KVCTX_A_MAX, policy) < 0)
		return NL_OK;
	o.head = genlmsg_attrdata(nlmsg_data(nlh), 0);
	o.len = genlmsg_attrlen(nlmsg_data(nlh), 0);
	h->more = h->event(h->arg, ((struct genlmsghdr *)nlmsg_data(nlh))->cmd, &o);
	return h->more ? NL_OK : NL_STOP;
}

#define PAGES_RCVBUF	(4 << 20)	/* bytes; of the pages of a tenth of a second the kernel keeps 66 KiB a pool, and more */

/*
 * As a member of the group, or of both. 0 or a libnl error. Who is in one is told of what happens at once: that is no
 * answer to what number the other has.
 */
static int join(struct nl_sock *sk, bool with_pages)
{
	int mgmt = genl_ctrl_resolve_grp(sk, KVCTX_GENL_NAME, KVCTX_GENL_MCGRP_MGMT), pages = 0, room = PAGES_RCVBUF, ret;

	if (mgmt >= 0 && with_pages)
		pages = genl_ctrl_resolve_grp(sk, KVCTX_GENL_NAME, KVCTX_GENL_MCGRP_PAGES);
	if (mgmt < 0 || pages < 0)
		return mgmt < 0 ? mgmt : pages;
	/* for those who may listen it succeeds */
	if (with_pages)
		setsockopt(nl_socket_get_fd(sk), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
	ret = nl_socket_add_membership(sk, mgmt);
	return ret < 0 || !with_pages ? ret : nl_socket_add_membership(sk, pages);
}

/* kvctxd's way to say that some did not fit */
static int on_overrun(struct nl_msg *msg, void *arg)
{
	struct hearing *h = arg;

	(void)msg;
	h->more = h->lost(h->arg);
	return h->more ? NL_SKIP : NL_STOP;
}

static int hear(const struct ctl *c, struct nl_sock *sk, struct hearing *h)
{
	int ret = nl_socket_path(c) ? nl_socket_listen(sk, h->pages) : join(sk, h->pages);

	nl_socket_disable_seq_check(sk);
	nl_socket_modify_cb(sk, NL_CB_VALID, NL_CB_CUSTOM, on_event, h);
	nl_socket_modify_cb(sk, NL_CB_OVERRUN, NL_CB_CUSTOM, on_overrun, h);
	while (ret >= 0 && h->more) {
		ret = nl_recvmsgs_default(sk);
		/* ENOBUFS: some did not fit into the socket */
		if (ret == -NLE_NOMEM) {
			h->more = h->lost(h->arg);
			ret = 0;
		}
	}
	if (ret == -NLE_PERM) {
		ctl_command_error(c, "not permitted; this needs CAP_NET_ADMIN (root)");
		return CTL_NODEV;
	}
	if (ret == -NLE_NODEV && nl_socket_path(c)) {
		ctl_command_error(c, "kvctxd has ended");
		return CTL_NODEV;
	}
	if (ret < 0)
		ctl_command_error(c, "netlink: %s", nl_geterror(ret));
	return ret < 0 ? CTL_FAILED : CTL_OK;
}

int nl_events(const struct ctl *c, bool pages, bool (*event)(void *arg, uint8_t cmd, const struct nl_object *o),
	      bool (*lost)(void *arg), void *arg)
{
	struct hearing h = { .event = event, .lost = lost, .arg = arg, .pages = pages, .more = true };
	struct nl_sock *sk;
	int family, status;

	sk = nl_socket_alloc();
	if (!sk) {
		ctl_command_error(c, "%s", strerror(ENOMEM));
		return CTL_FAILED;
	}
	status = nl_socket_path(c) ? nl_socket_open(c, sk, &family) : open_family(c, sk, &family);
	if (!status)
		status = hear(c, sk, &h);
	nl_socket_close();
	nl_socket_free(sk);
	return status;
}
