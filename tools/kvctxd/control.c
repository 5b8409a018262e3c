// SPDX-License-Identifier: GPL-2.0
/*
 * Requests of kvctxctl, as kmod/control/genl.c has them for the kernel.
 *
 * Who may connect may do everything: the socket is that of the daemon's own user, and root. Requests are served one at a
 * time, under kvd_admin.
 */
#include <errno.h>
#include <limits.h>
#include <linux/kvctx_genl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach.h"
#include "control.h"
#include "engine.h"
#include "pools.h"

#define CONTROL_MAX	64U		/* connections */

struct control_request {
	int sock;
	const struct nlmsghdr *nlh;
	const struct genlmsghdr *genl;
	struct nlattr *attrs[KVCTX_A_MAX + 1];
	char why[KVD_WHY];
};

static int control_sock = -1;
static int control_conns[CONTROL_MAX];		/* kvd_lock; -1: free */
static uint32_t control_nr;
static pthread_cond_t control_gone = PTHREAD_COND_INITIALIZER;

static struct nla_policy control_policy[KVCTX_A_MAX + 1] = {
	[KVCTX_A_POOL] = { .type = NLA_NUL_STRING, .maxlen = KVCTX_NAME_MAX },
	[KVCTX_A_DEVICE] = { .type = NLA_NUL_STRING, .maxlen = PATH_MAX },
	[KVCTX_A_TENANT] = { .type = NLA_NUL_STRING, .maxlen = KVCTX_NAME_MAX },
	[KVCTX_A_UID] = { .type = NLA_U32 },
	[KVCTX_A_GID] = { .type = NLA_U32 },
	[KVCTX_A_MODE] = { .type = NLA_U32 },
	[KVCTX_A_TENANT_FLAGS] = { .type = NLA_U32 },
	[KVCTX_A_DEGRADED] = { .type = NLA_FLAG },
	[KVCTX_A_DISCARD_RATE] = { .type = NLA_U64 },
	[KVCTX_A_WRITE_BUDGET] = { .type = NLA_U64 },
	[KVCTX_A_INDEX] = { .type = NLA_U32 },
	[KVCTX_A_MOVE] = { .type = NLA_FLAG },
	[KVCTX_A_DRY_RUN] = { .type = NLA_FLAG },
	[KVCTX_A_CAPACITY] = { .type = NLA_U64 },
	[KVCTX_A_LIMITS] = { .type = NLA_NESTED },
};

static struct nla_policy control_limits_policy[KVCTX_L_MAX + 1] = {
	[KVCTX_L_QUOTA] = { .type = NLA_U64 },
	[KVCTX_L_RESERVE] = { .type = NLA_U64 },
	[KVCTX_L_WRITE_BUDGET] = { .type = NLA_U64 },
	[KVCTX_L_PINNED] = { .type = NLA_U64 },
	[KVCTX_L_LEASED] = { .type = NLA_U64 },
	[KVCTX_L_KEYSPACES] = { .type = NLA_U32 },
	[KVCTX_L_FLAGS] = { .type = NLA_U32 },
};

/* Answers */

static void control_send(struct control_request *rq, struct nl_msg *msg)
{
	const struct nlmsghdr *nlh = nlmsg_hdr(msg);

	send(rq->sock, nlh, nlh->nlmsg_len, MSG_NOSIGNAL);
	nlmsg_free(msg);
}

static struct nl_msg *control_message(struct control_request *rq, int type, int flags)
{
	struct nl_msg *msg = nlmsg_alloc_size(KVD_MESSAGE_MAX);

	if (msg && !nlmsg_put(msg, rq->nlh->nlmsg_pid, rq->nlh->nlmsg_seq, type, 0, flags)) {
		nlmsg_free(msg);
		msg = NULL;
	}
	return msg;
}

/* The end of a request: an acknowledgment, or the end of a dump. @err: 0 or -errno */
static void control_end(struct control_request *rq, int err)
{
	bool dump = rq->nlh->nlmsg_flags & NLM_F_DUMP, tells = err && *rq->why;
	struct nl_msg *msg = control_message(rq, dump ? NLMSG_DONE : NLMSG_ERROR,
					     (dump ? NLM_F_MULTI : NLM_F_CAPPED) | (tells ? NLM_F_ACK_TLVS : 0));
	struct nlmsgerr e = { .error = err, .msg = *rq->nlh };

	if (!msg)
		return;
	if (dump)
		nlmsg_append(msg, &err, sizeof(err), NLMSG_ALIGNTO);
	else
		nlmsg_append(msg, &e, sizeof(e), NLMSG_ALIGNTO);
	if (tells)
		nla_put_string(msg, NLMSGERR_ATTR_MSG, rq->why);
	control_send(rq, msg);
}

static int control_refuse(struct control_request *rq, int err, const char *what)
{
	snprintf(rq->why, sizeof(rq->why), "%s", what);
	return err;
}

/* Room for an object of the request's answer */
static struct nl_msg *control_object(struct control_request *rq)
{
	struct nl_msg *msg = nlmsg_alloc_size(KVD_MESSAGE_MAX);
	int flags = rq->nlh->nlmsg_flags & NLM_F_DUMP ? NLM_F_MULTI : 0;

	if (msg && !genlmsg_put(msg, rq->nlh->nlmsg_pid, rq->nlh->nlmsg_seq, KVD_FAMILY, 0, flags, rq->genl->cmd,
				KVCTX_GENL_VERSION)) {
		nlmsg_free(msg);
		msg = NULL;
	}
	return msg;
}

static int control_put(struct control_request *rq, struct nl_msg *msg, int err)
{
	if (!err) {
		control_send(rq, msg);
		return 0;
	}
	nlmsg_free(msg);
	return -EMSGSIZE;
}

static int control_put_pool(struct control_request *rq, struct kvd_pool *p)
{
	struct nl_msg *msg = control_object(rq);

	return msg ? control_put(rq, msg, kvd_report_pool(msg, p)) : -ENOMEM;
}

static int control_put_tenants(struct control_request *rq, struct kvd_pool *p)
{
	int err = 0;

	for (struct kvd_tenant *t = p->tenants; t && !err; t = t->next) {
		struct nl_msg *msg = control_object(rq);

		err = msg ? control_put(rq, msg, kvd_report_tenant(msg, t)) : -ENOMEM;
	}
	return err;
}

static int control_put_stats(struct control_request *rq, struct kvd_pool *p)
{
	struct nl_msg *msg = control_object(rq);

	return msg ? control_put(rq, msg, kvd_report_stats(msg, p)) : -ENOMEM;
}

/* What a request names */

static const char *control_text(const struct control_request *rq, int attr)
{
	return rq->attrs[attr] ? nla_get_string(rq->attrs[attr]) : NULL;
}

static uint32_t control_number(const struct control_request *rq, int attr, uint32_t otherwise)
{
	return rq->attrs[attr] ? nla_get_u32(rq->attrs[attr]) : otherwise;
}

static int control_pool(struct control_request *rq, struct kvd_pool **out)
{
	const char *name = control_text(rq, KVCTX_A_POOL);

	if (!name)
		return control_refuse(rq, -EINVAL, "the request lacks the name of the pool");
	*out = kvd_pool_find(name);
	return *out ? 0 : kvd_refuse(rq->why, -ENOENT, "no pool named %s is attached", name);
}

static int control_tenant(struct control_request *rq, struct kvd_tenant **out)
{
	const char *name = control_text(rq, KVCTX_A_TENANT);
	struct kvd_pool *p;
	int err = control_pool(rq, &p);

	if (err)
		return err;
	if (!name)
		return control_refuse(rq, -EINVAL, "the request lacks the name of the tenant");
	*out = kvd_tenant_find(p, name);
	return *out ? 0 : kvd_refuse(rq->why, -ENOENT, "no tenant named %s", name);
}

/* Requests */

static int control_attach(struct control_request *rq)
{
	const char *devices[KVC_MEMBERS_MAX];
	struct kvd_pool *p;
	struct nlattr *a;
	uint32_t nr = 0;
	int rem, err;

	nla_for_each_attr(a, genlmsg_attrdata(rq->genl, 0), genlmsg_attrlen(rq->genl, 0), rem) {
		if (nla_type(a) != KVCTX_A_DEVICE)
			continue;
		if (nr == KVC_MEMBERS_MAX)
			return control_refuse(rq, -E2BIG, "too many devices");
		if (nla_len(a) < 2 || ((const char *)nla_data(a))[nla_len(a) - 1])
			return -EINVAL;
		devices[nr++] = nla_data(a);
	}
	if (!nr)
		return control_refuse(rq, -EINVAL, "the request lacks the devices of the pool");
	err = kvd_attach_devices(devices, nr, rq->attrs[KVCTX_A_DEGRADED], &p, rq->why);
	return err ? err : control_put_pool(rq, p);
}

static int control_detach(struct control_request *rq)
{
	struct kvd_pool *p;
	int err = control_pool(rq, &p);
	char *dir;

	if (err)
		return err;
	dir = strdup(p->dir);
	if (!dir)
		return -ENOMEM;
	err = kvd_pool_detach(p, rq->why);
	if (!err || err == -EINPROGRESS)
		kvd_attach_forget(dir);
	free(dir);
	return err;
}

/* The superblock of all members; kvd_admin is the only one that changes what it says of tenants */
static int control_write_super(struct kve_pool *p)
{
	return kve_members_write_super(p);
}

static int control_set_pool(struct control_request *rq)
{
	const struct nlattr *rate = rq->attrs[KVCTX_A_DISCARD_RATE], *budget = rq->attrs[KVCTX_A_WRITE_BUDGET];
	struct kvc_settings settings;
	struct kve_pool *engine;
	struct kvd_pool *p;
	int err = control_pool(rq, &p);

	if (err)
		return err;
	if (!rate && !budget)
		return control_refuse(rq, -EINVAL, "the request lacks the settings of the pool");
	engine = p->engine;
	pthread_mutex_lock(&engine->super_lock);
	settings = kvc_super_of(engine->core)->settings;
	if (rate)
		settings.discard_rate = nla_get_u64(rate);
	if (budget)
		settings.write_budget = nla_get_u64(budget);
	pthread_mutex_lock(&engine->config_lock);
	err = kvc_pool_set(engine->core, &settings);
	pthread_mutex_unlock(&engine->config_lock);
	if (err)
		control_refuse(rq, err, err == -EINVAL ? "discard rate: 1M to 1T, write budget: from 1M" : "out of memory");
	else if (control_write_super(engine))
		err = control_refuse(rq, -EIO, "set until detach: no superblock could be written");
	pthread_mutex_unlock(&engine->super_lock);
	for (uint32_t i = 0; i < kve_nr_members(engine) && !err; i++)
		kve_member_kick(&engine->members[i]);
	return err;
}

/* The rules for paths are those of an attach by devices */
static int control_add_member(struct control_request *rq)
{
	const struct nlattr *bytes = rq->attrs[KVCTX_A_CAPACITY];
	const char *device = control_text(rq, KVCTX_A_DEVICE);
	struct kvd_pool *p;
	int err = control_pool(rq, &p);

	if (err)
		return err;
	if (!device)
		return control_refuse(rq, -EINVAL, "the request lacks the device");
	if (*device != '/')
		return kvd_refuse(rq->why, -EINVAL, "%s: not an absolute path", device);
	if (bytes && !nla_get_u64(bytes))
		return kvd_refuse(rq->why, -EINVAL, "%s: a file of no bytes", device);
	return kve_pool_add(p->engine, device, bytes ? nla_get_u64(bytes) : 0, rq->attrs[KVCTX_A_DRY_RUN], rq->why);
}

static int control_remove_member(struct control_request *rq)
{
	struct kvd_pool *p;
	int err = control_pool(rq, &p);

	if (err)
		return err;
	if (!rq->attrs[KVCTX_A_INDEX])
		return control_refuse(rq, -EINVAL, "the request lacks the number of the member");
	return kve_pool_remove(p->engine, nla_get_u32(rq->attrs[KVCTX_A_INDEX]), rq->attrs[KVCTX_A_MOVE], rq->why);
}

static int control_get_pool(struct control_request *rq)
{
	struct kvd_pool *p;

	return control_pool(rq, &p) ?: control_put_pool(rq, p);
}

static int control_refuse_add(struct control_request *rq, struct kvd_pool *p, const char *name, int err)
{
	switch (err) {
	case -EEXIST:
		return kvd_refuse(rq->why, err, "tenant %s exists already", name);
	case -ENOSPC:
		return kvd_refuse(rq->why, err, "pool %s has no room for another tenant", p->name);
	case -EINVAL:
		return kvd_refuse(rq->why, err, "a tenant's name is 1 to 31 of A-Z a-z 0-9 . _ -");
	default:
		return kvd_refuse(rq->why, err, "tenant %s cannot be added, error %d", name, -err);
	}
}

static void control_forget_tenant(struct kve_pool *p, const char *name)
{
	pthread_mutex_lock(&p->config_lock);
	kvc_tenant_remove(p->core, name);
	pthread_mutex_unlock(&p->config_lock);
}

static void control_take_u64(u64 *value, struct nlattr *attr)
{
	if (attr)
		*value = nla_get_u64(attr);
}

/* The limits in @l with what the request gives instead */
static int control_limits(struct control_request *rq, struct kvc_limits *l)
{
	struct nlattr *a[KVCTX_L_MAX + 1];

	if (!rq->attrs[KVCTX_A_LIMITS])
		return 0;
	if (nla_parse_nested(a, KVCTX_L_MAX, rq->attrs[KVCTX_A_LIMITS], control_limits_policy) < 0)
		return control_refuse(rq, -EINVAL, "the limits are malformed");
	control_take_u64(&l->quota, a[KVCTX_L_QUOTA]);
	control_take_u64(&l->reserve, a[KVCTX_L_RESERVE]);
	control_take_u64(&l->write_budget, a[KVCTX_L_WRITE_BUDGET]);
	control_take_u64(&l->pinned, a[KVCTX_L_PINNED]);
	control_take_u64(&l->leased, a[KVCTX_L_LEASED]);
	if (a[KVCTX_L_KEYSPACES])
		l->keyspaces = nla_get_u32(a[KVCTX_L_KEYSPACES]);
	if (a[KVCTX_L_FLAGS]) {
		if (nla_get_u32(a[KVCTX_L_FLAGS]) & ~KVCTX_LIMIT_NO_URGENT)
			return control_refuse(rq, -EINVAL, "an unknown flag of limits");
		l->flags = nla_get_u32(a[KVCTX_L_FLAGS]) ? KVC_LIMIT_NO_URGENT : 0;
	}
	return kvc_limits_ok(l) ? 0 :
	       control_refuse(rq, -EINVAL, "reserve: at most the quota, write budget: 1M to 1E");
}

/* In force at once; the caller, who holds super_lock, writes the superblocks */
static int control_limit(struct control_request *rq, struct kve_pool *p, const char *name,
			 const struct kvc_limits *limits)
{
	int err;

	pthread_mutex_lock(&p->config_lock);
	err = kvc_tenant_limit(p->core, name, limits);
	pthread_mutex_unlock(&p->config_lock);
	if (err == -ENOSPC)
		return kvd_refuse(rq->why, err,
				  "the pool cannot keep all reserves, or cannot give %s segments of its own", name);
	return err ? kvd_refuse(rq->why, err, "limits of %s cannot be set, error %d", name, -err) : 0;
}

static int control_write_tenant(struct control_request *rq, struct kve_pool *p)
{
	return control_write_super(p) ? control_refuse(rq, -EIO, "no superblock could be written") : 0;
}

/*
 * In the configuration and on media, or neither. Its slot. Limits are another change, with a superblock of its own: the
 * slots on media alternate.
 */
static int control_make_tenant(struct control_request *rq, struct kvd_pool *p, const char *name,
			       const struct kvc_limits *limits)
{
	uint32_t flags = control_number(rq, KVCTX_A_TENANT_FLAGS, 0);
	struct kve_pool *engine = p->engine;
	int slot, err = 0;

	pthread_mutex_lock(&engine->super_lock);
	pthread_mutex_lock(&engine->config_lock);
	slot = kvc_tenant_add(engine->core, name, control_number(rq, KVCTX_A_UID, 0),
			      control_number(rq, KVCTX_A_GID, 0), control_number(rq, KVCTX_A_MODE, 0600),
			      flags & KVCTX_TENANT_VERIFIED ? KVC_TENANT_VERIFIED : 0);
	pthread_mutex_unlock(&engine->config_lock);
	if (slot >= 0)
		err = control_write_tenant(rq, engine);
	if (slot >= 0 && !err && rq->attrs[KVCTX_A_LIMITS])
		err = control_limit(rq, engine, name, limits) ?: control_write_tenant(rq, engine);
	if (err) {
		control_forget_tenant(engine, name);
		control_write_super(engine);
	}
	pthread_mutex_unlock(&engine->super_lock);
	if (slot < 0)
		return control_refuse_add(rq, p, name, slot);
	return err ?: slot;
}

static int control_unmake_tenant(struct control_request *rq, struct kvd_pool *p, const char *name)
{
	struct kve_pool *engine = p->engine;
	int err;

	pthread_mutex_lock(&engine->super_lock);
	control_forget_tenant(engine, name);
	err = control_write_super(engine);
	if (!err)
		kvc_tenants_gone(engine->core);
	pthread_mutex_unlock(&engine->super_lock);
	return err ? control_refuse(rq, -EIO, "removed until detach: no superblock could be written") : 0;
}

static int control_add_tenant(struct control_request *rq)
{
	const char *name = control_text(rq, KVCTX_A_TENANT);
	struct kvc_limits limits = {};
	struct kvd_pool *p;
	int err = control_pool(rq, &p), slot;

	if (err)
		return err;
	if (!name)
		return control_refuse(rq, -EINVAL, "the request lacks the name of the tenant");
	if (control_number(rq, KVCTX_A_MODE, 0) & ~0777U ||
	    control_number(rq, KVCTX_A_TENANT_FLAGS, 0) & ~KVCTX_TENANT_VERIFIED)
		return -EINVAL;
	err = control_limits(rq, &limits);
	if (err)
		return err;
	slot = control_make_tenant(rq, p, name, &limits);
	if (slot < 0)
		return slot;
	err = kvd_tenant_show(p, (uint32_t)slot, rq->why);
	if (err) {
		struct control_request silent = *rq;

		control_unmake_tenant(&silent, p, name);
	}
	return err;
}

static int control_busy(struct control_request *rq, const struct kvd_tenant *t)
{
	return kvd_refuse(rq->why, -EBUSY, "%u sessions of tenant %s are open", t->sessions, t->name);
}

static int control_keep(struct control_request *rq, struct kve_pool *p)
{
	if (control_write_super(p))
		return control_refuse(rq, -EIO, "set until detach: no superblock could be written");
	return 0;
}

/* In the configuration and on media, unless somebody counts on them; super_lock held */
static int control_set_flags(struct control_request *rq, struct kvd_tenant *t, uint32_t flags)
{
	struct kve_pool *p = t->pool->engine;
	int err = 0;

	/* who connects from now on finds the new flags */
	pthread_mutex_lock(&kvd_lock);
	pthread_mutex_lock(&p->config_lock);
	if (t->sessions)
		err = control_busy(rq, t);
	else
		kvc_tenant_set(p->core, t->name, flags ? KVC_TENANT_VERIFIED : 0);
	pthread_mutex_unlock(&p->config_lock);
	pthread_mutex_unlock(&kvd_lock);
	return err ?: control_keep(rq, p);
}

static int control_set_tenant(struct control_request *rq)
{
	uint32_t flags = control_number(rq, KVCTX_A_TENANT_FLAGS, 0);
	struct kvc_limits limits;
	struct kvd_tenant *t;
	struct kve_pool *p;
	int err = control_tenant(rq, &t);

	if (err)
		return err;
	if (!rq->attrs[KVCTX_A_TENANT_FLAGS] && !rq->attrs[KVCTX_A_LIMITS])
		return control_refuse(rq, -EINVAL, "the request lacks the limits or flags of the tenant");
	if (flags & ~KVCTX_TENANT_VERIFIED)
		return -EINVAL;
	p = t->pool->engine;
	limits = kvc_super_of(p->core)->limits[t->slot];
	err = control_limits(rq, &limits);
	if (err)
		return err;
	pthread_mutex_lock(&p->super_lock);
	if (rq->attrs[KVCTX_A_TENANT_FLAGS])
		err = control_set_flags(rq, t, flags);
	if (!err && rq->attrs[KVCTX_A_LIMITS])
		err = control_limit(rq, p, t->name, &limits) ?: control_keep(rq, p);
	pthread_mutex_unlock(&p->super_lock);
	return err;
}

static int control_remove_tenant(struct control_request *rq)
{
	char name[KVCTX_NAME_MAX];
	struct kvd_tenant *t;
	struct kvd_pool *p;
	int err = control_tenant(rq, &t);

	if (err)
		return err;
	p = t->pool;
	memcpy(name, t->name, sizeof(name));
	pthread_mutex_lock(&kvd_lock);
	if (t->sessions)
		err = control_busy(rq, t);
	else
		kvd_tenant_hide(t);
	pthread_mutex_unlock(&kvd_lock);
	return err ? err : control_unmake_tenant(rq, p, name);
}

static int control_no_peers(struct control_request *rq)
{
	return control_refuse(rq, -EOPNOTSUPP, "kvctxd does not serve memory of PCI peers");
}

/* The table */

static const struct {
	uint8_t cmd;
	int (*run)(struct control_request *rq);
	int (*each)(struct control_request *rq, struct kvd_pool *p);	/* of a dump */
} control_requests[] = {
	{ KVCTX_CMD_POOL_ATTACH, control_attach, NULL },
	{ KVCTX_CMD_POOL_DETACH, control_detach, NULL },
	{ KVCTX_CMD_POOL_SET, control_set_pool, NULL },
	{ KVCTX_CMD_POOL_ADD, control_add_member, NULL },
	{ KVCTX_CMD_POOL_REMOVE, control_remove_member, NULL },
	{ KVCTX_CMD_POOL_GET, control_get_pool, control_put_pool },
	{ KVCTX_CMD_TENANT_ADD, control_add_tenant, NULL },
	{ KVCTX_CMD_TENANT_SET, control_set_tenant, NULL },
	{ KVCTX_CMD_TENANT_REMOVE, control_remove_tenant, NULL },
	{ KVCTX_CMD_TENANT_GET, NULL, control_put_tenants },
	{ KVCTX_CMD_STATS_GET, NULL, control_put_stats },
	{ KVCTX_CMD_PEER_GET, control_no_peers, NULL },
};

static int control_dump(struct control_request *rq, int (*each)(struct control_request *rq, struct kvd_pool *p))
{
	struct kvd_pool *only = NULL;
	int err = rq->attrs[KVCTX_A_POOL] ? control_pool(rq, &only) : 0;

	for (struct kvd_pool *p = kvd_pools; p && !err; p = p->next)
		if (!only || p == only)
			err = each(rq, p);
	return err;
}

static int control_dispatch(struct control_request *rq)
{
	bool dump = rq->nlh->nlmsg_flags & NLM_F_DUMP;

	if (genlmsg_parse((struct nlmsghdr *)rq->nlh, 0, rq->attrs, KVCTX_A_MAX, control_policy) < 0)
		return -EINVAL;
	for (uint32_t i = 0; i < ARRAY_SIZE(control_requests); i++) {
		if (control_requests[i].cmd != rq->genl->cmd)
			continue;
		if (dump && control_requests[i].each)
			return control_dump(rq, control_requests[i].each);
		if (control_requests[i].run)
			return control_requests[i].run(rq);
	}
	return control_refuse(rq, -EOPNOTSUPP, "kvctxd does not do this");
}

/* One packet. false: it is no request */
static bool control_serve(int sock, void *buf, ssize_t bytes)
{
	struct control_request rq = { .sock = sock, .nlh = buf };
	int err;

	if (bytes < (ssize_t)(NLMSG_HDRLEN + GENL_HDRLEN) || !nlmsg_ok(rq.nlh, (int)bytes) ||
	    nlmsg_datalen(rq.nlh) < (int)GENL_HDRLEN || rq.nlh->nlmsg_type != KVD_FAMILY)
		return false;
	rq.genl = nlmsg_data(rq.nlh);
	pthread_mutex_lock(&kvd_admin);
	err = control_dispatch(&rq);
	pthread_mutex_unlock(&kvd_admin);
	control_end(&rq, err);
	return true;
}

static void *control_run(void *arg)
{
	int *slot = arg, sock = *slot;
	void *buf = malloc(KVD_MESSAGE_MAX);
	ssize_t n;

	while (buf && (n = recv(sock, buf, KVD_MESSAGE_MAX, 0)) > 0)
		if (!control_serve(sock, buf, n))
			break;
	free(buf);
	pthread_mutex_lock(&kvd_lock);
	close(sock);
	*slot = -1;
	control_nr--;
	pthread_cond_broadcast(&control_gone);
	pthread_mutex_unlock(&kvd_lock);
	return NULL;
}

/* A thread for it; kvd_lock held */
static bool control_begin(int sock)
{
	pthread_attr_t attr;
	pthread_t thread;
	uint32_t i;
	int err;

	for (i = 0; i < CONTROL_MAX && control_conns[i] >= 0; i++)
		;
	if (i == CONTROL_MAX)
		return false;
	control_conns[i] = sock;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &attr, control_run, &control_conns[i]);
	pthread_attr_destroy(&attr);
	if (err)
		control_conns[i] = -1;
	else
		control_nr++;
	return !err;
}

void kvd_control_accept(void)
{
	int sock = accept4(control_sock, NULL, NULL, SOCK_CLOEXEC);

	if (sock < 0)
		return;
	pthread_mutex_lock(&kvd_lock);
	if (!control_begin(sock))
		close(sock);
	pthread_mutex_unlock(&kvd_lock);
}

static void control_path(char *path)
{
	snprintf(path, PATH_MAX, "%s/control", kvd_run);
}

int kvd_control_start(char *why)
{
	char path[PATH_MAX];

	for (uint32_t i = 0; i < CONTROL_MAX; i++)
		control_conns[i] = -1;
	control_path(path);
	control_sock = kvd_listen(path, geteuid(), getegid(), 0600, why);
	return control_sock < 0 ? control_sock : kvd_watch(control_sock, KVD_ID_CONTROL);
}

void kvd_control_stop(void)
{
	char path[PATH_MAX];

	if (control_sock >= 0) {
		control_path(path);
		unlink(path);
		close(control_sock);
	}
	control_sock = -1;
	pthread_mutex_lock(&kvd_lock);
	for (uint32_t i = 0; i < CONTROL_MAX; i++)
		if (control_conns[i] >= 0)
			shutdown(control_conns[i], SHUT_RDWR);
	while (control_nr)
		pthread_cond_wait(&control_gone, &kvd_lock);
	pthread_mutex_unlock(&kvd_lock);
}
