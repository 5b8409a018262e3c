// SPDX-License-Identifier: GPL-2.0
/*
 * The generic-netlink family "kvctx": requests and dumps (event.c: events). uapi/linux/kvctx_genl.h describes it.
 *
 * Requests run in parallel with those of other families (an attach may take long) and are serialized for each pool:
 * before one that changes something, kvctx_pre_doit() checks the right to do so and takes the pool's admin_lock.
 *
 * The right is CAP_SYS_ADMIN in the initial user namespace, of the socket's opener and of the sender, since a pool
 * takes block devices and makes device nodes. The family exists in the initial network namespace only: pools and
 * tenants are the host's, and a container that was given a tenant's node need not see the others. Nor need users: who
 * lacks CAP_NET_ADMIN there finds in dumps only tenants whose node was made for him to read, and gets no events.
 *
 * A dump's cursor is a number of objects to skip. When something changes between two parts of a dump its generation
 * differs, and the reader is told that the dump is inconsistent (NLM_F_DUMP_INTR).
 */
#include <linux/pci.h>
#include <linux/uidgid.h>

#include "ctrl.h"

#define KVCTX_CHANGES	1		/* internal_flags: needs the right and the lock */

static struct genl_family kvctx_family;

static const struct genl_multicast_group kvctx_groups[] = {
	[KVCTX_GROUP_MGMT] = { .name = KVCTX_GENL_MCGRP_MGMT, .flags = GENL_MCAST_CAP_NET_ADMIN },
	[KVCTX_GROUP_PAGES] = { .name = KVCTX_GENL_MCGRP_PAGES, .flags = GENL_MCAST_CAP_NET_ADMIN },
};

static const struct nla_policy kvctx_attach_policy[] = {
	[KVCTX_A_DEVICE] = { .type = NLA_NUL_STRING, .len = KVCTX_PATH_MAX - 1 },
	[KVCTX_A_DEGRADED] = { .type = NLA_FLAG },
};

static const struct nla_policy kvctx_pool_add_policy[] = {
	[KVCTX_A_POOL] = { .type = NLA_NUL_STRING, .len = KVCTX_NAME_MAX - 1 },
	[KVCTX_A_DEVICE] = { .type = NLA_NUL_STRING, .len = KVCTX_PATH_MAX - 1 },
	[KVCTX_A_DRY_RUN] = { .type = NLA_FLAG },
};

static const struct nla_policy kvctx_pool_rejoin_policy[] = {
	[KVCTX_A_POOL] = { .type = NLA_NUL_STRING, .len = KVCTX_NAME_MAX - 1 },
	[KVCTX_A_DEVICE] = { .type = NLA_NUL_STRING, .len = KVCTX_PATH_MAX - 1 },
};

static const struct nla_policy kvctx_pool_remove_policy[] = {
	[KVCTX_A_POOL] = { .type = NLA_NUL_STRING, .len = KVCTX_NAME_MAX - 1 },
	[KVCTX_A_INDEX] = { .type = NLA_U32 },
	[KVCTX_A_MOVE] = { .type = NLA_FLAG },
};

static const struct nla_policy kvctx_pool_policy[] = {
	[KVCTX_A_POOL] = { .type = NLA_NUL_STRING, .len = KVCTX_NAME_MAX - 1 },
};

static const struct nla_policy kvctx_pool_set_policy[] = {
	[KVCTX_A_POOL] = { .type = NLA_NUL_STRING, .len = KVCTX_NAME_MAX - 1 },
	[KVCTX_A_DISCARD_RATE] = { .type = NLA_U64 },
	[KVCTX_A_WRITE_BUDGET] = { .type = NLA_U64 },
};

static const struct nla_policy kvctx_tenant_policy[] = {
	[KVCTX_A_POOL] = { .type = NLA_NUL_STRING, .len = KVCTX_NAME_MAX - 1 },
	[KVCTX_A_TENANT] = { .type = NLA_NUL_STRING, .len = KVCTX_NAME_MAX - 1 },
};

static const struct nla_policy kvctx_limits_policy[] = {
	[KVCTX_L_QUOTA] = { .type = NLA_U64 },
	[KVCTX_L_RESERVE] = { .type = NLA_U64 },
	[KVCTX_L_WRITE_BUDGET] = { .type = NLA_U64 },
	[KVCTX_L_PINNED] = { .type = NLA_U64 },
	[KVCTX_L_LEASED] = { .type = NLA_U64 },
	[KVCTX_L_KEYSPACES] = { .type = NLA_U32 },
	[KVCTX_L_FLAGS] = NLA_POLICY_MASK(NLA_U32, KVCTX_LIMIT_NO_URGENT),
	[KVCTX_L_BANDWIDTH] = { .type = NLA_U64 },
	[KVCTX_L_INFLIGHT] = { .type = NLA_U32 },
	[KVCTX_L_WEIGHT] = NLA_POLICY_MAX(NLA_U32, KVC_WEIGHT_MAX),
};

static const struct nla_policy kvctx_tenant_add_policy[] = {
	[KVCTX_A_POOL] = { .type = NLA_NUL_STRING, .len = KVCTX_NAME_MAX - 1 },
	[KVCTX_A_TENANT] = { .type = NLA_NUL_STRING, .len = KVCTX_NAME_MAX - 1 },
	[KVCTX_A_UID] = { .type = NLA_U32 },
	[KVCTX_A_GID] = { .type = NLA_U32 },
	[KVCTX_A_MODE] = NLA_POLICY_MASK(NLA_U32, 0777),
	[KVCTX_A_TENANT_FLAGS] = NLA_POLICY_MASK(NLA_U32, KVCTX_TENANT_VERIFIED),
	[KVCTX_A_LIMITS] = NLA_POLICY_NESTED(kvctx_limits_policy),
	[KVCTX_A_TENANT_KEY] = { .type = NLA_NUL_STRING, .len = KVC_KEY_NAME_MAX - 1 },
};

static const struct nla_policy kvctx_tenant_set_policy[] = {
	[KVCTX_A_POOL] = { .type = NLA_NUL_STRING, .len = KVCTX_NAME_MAX - 1 },
	[KVCTX_A_TENANT] = { .type = NLA_NUL_STRING, .len = KVCTX_NAME_MAX - 1 },
	[KVCTX_A_TENANT_FLAGS] = NLA_POLICY_MASK(NLA_U32, KVCTX_TENANT_VERIFIED),
	[KVCTX_A_LIMITS] = NLA_POLICY_NESTED(kvctx_limits_policy),
	[KVCTX_A_TENANT_UNLOCK] = { .type = NLA_FLAG },
};

/* Before and after each request */

static int kvctx_missing_attr(struct genl_info *info, u32 type, const char *what)
{
	NL_SET_ERR_ATTR_MISS(info->extack, NULL, type);
	return kvctx_refuse(info->extack, NULL, -EINVAL, "the request lacks the %s", what);
}

static int kvctx_no_pool(struct netlink_ext_ack *extack, const struct nlattr *attr)
{
	NL_SET_BAD_ATTR(extack, attr);
	return kvctx_refuse(extack, NULL, -ENOENT, "no pool named %s is attached", (const char *)nla_data(attr));
}

/* The pool that the request names: the locked one, or kvctx_mutex is held */
static struct kvctx_pool *kvctx_pool_of(struct genl_info *info)
{
	const struct nlattr *attr = info->attrs[KVCTX_A_POOL];
	struct kvctx_pool *p = info->user_ptr[0];

	if (p)
		return p;
	if (!attr)
		return ERR_PTR(kvctx_missing_attr(info, KVCTX_A_POOL, "name of the pool"));
	p = kvctx_pool_find(nla_data(attr));
	return p ? p : ERR_PTR(kvctx_no_pool(info->extack, attr));
}

static int kvctx_lock_pool(struct genl_info *info)
{
	struct kvctx_pool *p;
	int err;

	mutex_lock(&kvctx_mutex);
	p = kvctx_pool_of(info);
	if (IS_ERR(p)) {
		mutex_unlock(&kvctx_mutex);
		return PTR_ERR(p);
	}
	err = kvctx_pool_lock(p);
	if (!err)
		info->user_ptr[0] = p;
	return err == -ENODEV ? kvctx_no_pool(info->extack, info->attrs[KVCTX_A_POOL]) : err;
}

/* An attach makes the pool that is unlocked afterwards. */
static int kvctx_pre_doit(const struct genl_split_ops *ops, struct sk_buff *skb, struct genl_info *info)
{
	if (!(ops->internal_flags & KVCTX_CHANGES))
		return 0;
	if (!netlink_capable(skb, CAP_SYS_ADMIN))
		return kvctx_refuse(info->extack, NULL, -EPERM, "this needs CAP_SYS_ADMIN");
	return ops->cmd == KVCTX_CMD_POOL_ATTACH ? 0 : kvctx_lock_pool(info);
}

static void kvctx_post_doit(const struct genl_split_ops *ops, struct sk_buff *skb, struct genl_info *info)
{
	if (info->user_ptr[0])
		kvctx_pool_unlock(info->user_ptr[0]);
}

/* Requests */

/* An answer that is complete but for its object */
static struct sk_buff *kvctx_reply_new(struct genl_info *info, size_t size, void **hdr)
{
	struct sk_buff *skb = genlmsg_new(size, GFP_KERNEL);

	if (!skb)
		return NULL;
	*hdr = genlmsg_put_reply(skb, info, &kvctx_family, 0, info->genlhdr->cmd);
	return skb;
}

static int kvctx_reply_send(struct sk_buff *skb, void *hdr, int err, struct genl_info *info)
{
	if (err) {
		nlmsg_free(skb);
		return err;
	}
	genlmsg_end(skb, hdr);
	return genlmsg_reply(skb, info);
}

static int kvctx_collect_devices(struct genl_info *info, struct nlattr **devices)
{
	struct nlattr *attr;
	int rem, nr = 0;

	nla_for_each_attr(attr, genlmsg_data(info->genlhdr), genlmsg_len(info->genlhdr), rem) {
		if (nla_type(attr) != KVCTX_A_DEVICE)
			continue;
		if (nr == KVC_MEMBERS_MAX)
			return kvctx_refuse(info->extack, NULL, -E2BIG, "a pool has at most %u devices",
					    KVC_MEMBERS_MAX);
		devices[nr++] = attr;
	}
	return nr ? nr : kvctx_missing_attr(info, KVCTX_A_DEVICE, "devices of the pool");
}

static int kvctx_do_attach(struct sk_buff *skb, struct genl_info *info)
{
	struct nlattr *devices[KVC_MEMBERS_MAX];
	struct kvctx_pool *p;
	struct sk_buff *reply;
	void *hdr;
	int nr;

	nr = kvctx_collect_devices(info, devices);
	if (nr < 0)
		return nr;
	reply = kvctx_reply_new(info, kvctx_msg_pool_size(KVC_MEMBERS_MAX), &hdr);
	if (!reply)
		return -ENOMEM;
	p = kvctx_pool_attach(devices, (u32)nr, info->attrs[KVCTX_A_DEGRADED], info->extack);
	if (IS_ERR(p)) {
		nlmsg_free(reply);
		return PTR_ERR(p);
	}
	info->user_ptr[0] = p;
	kvctx_event_pool(KVCTX_CMD_POOL_ATTACH, p);
	return kvctx_reply_send(reply, hdr, kvctx_msg_pool(reply, p), info);
}

static int kvctx_do_detach(struct sk_buff *skb, struct genl_info *info)
{
	struct kvctx_pool *p = kvctx_pool_of(info);

	return IS_ERR(p) ? PTR_ERR(p) : kvctx_pool_detach(p, info->extack);
}

static int kvctx_do_set_pool(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *rate = info->attrs[KVCTX_A_DISCARD_RATE], *budget = info->attrs[KVCTX_A_WRITE_BUDGET];
	struct kvctx_pool *p = kvctx_pool_of(info);
	struct kvc_settings settings;
	int err;

	if (IS_ERR(p))
		return PTR_ERR(p);
	if (!rate && !budget)
		return kvctx_missing_attr(info, KVCTX_A_DISCARD_RATE, "settings of the pool");
	settings = kvc_super_of(p->core)->settings;
	if (rate)
		settings.discard_rate = nla_get_u64(rate);
	if (budget)
		settings.write_budget = nla_get_u64(budget);
	err = kvctx_pool_set(p, &settings, info->extack);
	if (!err)
		kvctx_event_pool(KVCTX_CMD_POOL_SET, p);
	return err;
}

static int kvctx_do_add_member(struct sk_buff *skb, struct genl_info *info)
{
	struct kvctx_pool *p = kvctx_pool_of(info);
	int err;

	if (IS_ERR(p))
		return PTR_ERR(p);
	if (!info->attrs[KVCTX_A_DEVICE])
		return kvctx_missing_attr(info, KVCTX_A_DEVICE, "device");
	err = kvctx_pool_add(p, info->attrs[KVCTX_A_DEVICE], info->attrs[KVCTX_A_DRY_RUN], info->extack);
	if (!err && !info->attrs[KVCTX_A_DRY_RUN])
		kvctx_event_pool(KVCTX_CMD_POOL_ADD, p);
	return err;
}

static int kvctx_do_rejoin(struct sk_buff *skb, struct genl_info *info)
{
	struct kvctx_pool *p = kvctx_pool_of(info);

	if (IS_ERR(p))
		return PTR_ERR(p);
	if (!info->attrs[KVCTX_A_DEVICE])
		return kvctx_missing_attr(info, KVCTX_A_DEVICE, "device");
	return kvctx_pool_rejoin(p, info->attrs[KVCTX_A_DEVICE], info->extack);
}

static int kvctx_do_remove_member(struct sk_buff *skb, struct genl_info *info)
{
	struct kvctx_pool *p = kvctx_pool_of(info);

	if (IS_ERR(p))
		return PTR_ERR(p);
	if (!info->attrs[KVCTX_A_INDEX])
		return kvctx_missing_attr(info, KVCTX_A_INDEX, "number of the member");
	return kvctx_pool_remove(p, nla_get_u32(info->attrs[KVCTX_A_INDEX]), info->attrs[KVCTX_A_MOVE], info->extack);
}

static int kvctx_do_get_pool(struct sk_buff *skb, struct genl_info *info)
{
	struct sk_buff *reply;
	struct kvctx_pool *p;
	void *hdr;
	int err;

	reply = kvctx_reply_new(info, kvctx_msg_pool_size(KVC_MEMBERS_MAX), &hdr);
	if (!reply)
		return -ENOMEM;
	mutex_lock(&kvctx_mutex);
	p = kvctx_pool_of(info);
	err = IS_ERR(p) ? PTR_ERR(p) : kvctx_msg_pool(reply, p);
	mutex_unlock(&kvctx_mutex);
	return kvctx_reply_send(reply, hdr, err, info);
}

static int kvctx_tenant_ids(struct genl_info *info, struct kvctx_tenant_params *params)
{
	struct nlattr **attrs = info->attrs;

	params->uid = attrs[KVCTX_A_UID] ? nla_get_u32(attrs[KVCTX_A_UID]) : 0;
	params->gid = attrs[KVCTX_A_GID] ? nla_get_u32(attrs[KVCTX_A_GID]) : 0;
	params->mode = attrs[KVCTX_A_MODE] ? nla_get_u32(attrs[KVCTX_A_MODE]) : KVCTX_TENANT_MODE;
	params->flags = attrs[KVCTX_A_TENANT_FLAGS] ? nla_get_u32(attrs[KVCTX_A_TENANT_FLAGS]) : 0;
	if (!uid_valid(make_kuid(&init_user_ns, params->uid))) {
		NL_SET_BAD_ATTR(info->extack, attrs[KVCTX_A_UID]);
		return kvctx_refuse(info->extack, NULL, -EINVAL, "%u is no user id", params->uid);
	}
	if (!gid_valid(make_kgid(&init_user_ns, params->gid))) {
		NL_SET_BAD_ATTR(info->extack, attrs[KVCTX_A_GID]);
		return kvctx_refuse(info->extack, NULL, -EINVAL, "%u is no group id", params->gid);
	}
	return 0;
}

static void kvctx_take_u64(u64 *value, const struct nlattr *attr)
{
	if (attr)
		*value = nla_get_u64(attr);
}

static void kvctx_take_u32(u32 *value, const struct nlattr *attr)
{
	if (attr)
		*value = nla_get_u32(attr);
}

/* The limits in @l with what the request gives instead */
static int kvctx_limits_of(struct genl_info *info, struct kvc_limits *l)
{
	struct nlattr *attrs[ARRAY_SIZE(kvctx_limits_policy)];
	const struct nlattr *nest = info->attrs[KVCTX_A_LIMITS];
	int err;

	if (!nest)
		return 0;
	err = nla_parse_nested(attrs, ARRAY_SIZE(attrs) - 1, nest, kvctx_limits_policy, info->extack);
	if (err)
		return err;
	kvctx_take_u64(&l->quota, attrs[KVCTX_L_QUOTA]);
	kvctx_take_u64(&l->reserve, attrs[KVCTX_L_RESERVE]);
	kvctx_take_u64(&l->write_budget, attrs[KVCTX_L_WRITE_BUDGET]);
	kvctx_take_u64(&l->pinned, attrs[KVCTX_L_PINNED]);
	kvctx_take_u64(&l->leased, attrs[KVCTX_L_LEASED]);
	kvctx_take_u64(&l->bandwidth, attrs[KVCTX_L_BANDWIDTH]);
	kvctx_take_u32(&l->keyspaces, attrs[KVCTX_L_KEYSPACES]);
	kvctx_take_u32(&l->inflight, attrs[KVCTX_L_INFLIGHT]);
	kvctx_take_u32(&l->weight, attrs[KVCTX_L_WEIGHT]);
	if (attrs[KVCTX_L_FLAGS])
		l->flags = nla_get_u32(attrs[KVCTX_L_FLAGS]) & KVCTX_LIMIT_NO_URGENT ? KVC_LIMIT_NO_URGENT : 0;
	if (kvc_limits_ok(l))
		return 0;
	NL_SET_BAD_ATTR(info->extack, nest);
	return kvctx_refuse(info->extack, NULL, -EINVAL, "reserve: at most the quota, write budget: 1M to 1E");
}

static int kvctx_key_name_of(struct genl_info *info, struct kvctx_tenant_params *params)
{
	const struct nlattr *attr = info->attrs[KVCTX_A_TENANT_KEY];

	if (!attr)
		return 0;
	params->key = nla_data(attr);
	if (kvc_key_name_ok(params->key))
		return 0;
	NL_SET_BAD_ATTR(info->extack, attr);
	return kvctx_refuse(info->extack, NULL, -EINVAL, "a key's name is 1 to 47 printable characters, no spaces");
}

static int kvctx_do_add_tenant(struct sk_buff *skb, struct genl_info *info)
{
	struct kvctx_tenant_params params = {};
	struct kvctx_pool *p = kvctx_pool_of(info);
	struct kvctx_tenant *t;
	int err;

	if (IS_ERR(p))
		return PTR_ERR(p);
	if (!info->attrs[KVCTX_A_TENANT])
		return kvctx_missing_attr(info, KVCTX_A_TENANT, "name of the tenant");
	nla_strscpy(params.name, info->attrs[KVCTX_A_TENANT], sizeof(params.name));
	err = kvctx_tenant_ids(info, &params);
	if (!err)
		err = kvctx_limits_of(info, &params.limits);
	if (!err)
		err = kvctx_key_name_of(info, &params);
	if (err)
		return err;
	t = kvctx_tenant_add(p, &params, info->extack);
	if (IS_ERR(t))
		return PTR_ERR(t);
	kvctx_event_tenant(KVCTX_CMD_TENANT_ADD, t);
	return 0;
}

/* The tenant that the request names; the pool is locked */
static struct kvctx_tenant *kvctx_tenant_of(struct genl_info *info)
{
	const struct nlattr *attr = info->attrs[KVCTX_A_TENANT];
	struct kvctx_pool *p = kvctx_pool_of(info);
	struct kvctx_tenant *t;
	int err;

	if (IS_ERR(p))
		return ERR_CAST(p);
	if (!attr)
		return ERR_PTR(kvctx_missing_attr(info, KVCTX_A_TENANT, "name of the tenant"));
	t = kvctx_tenant_find(p, nla_data(attr));
	if (t)
		return t;
	NL_SET_BAD_ATTR(info->extack, attr);
	err = kvctx_refuse(info->extack, NULL, -ENOENT, "no tenant named %s", (const char *)nla_data(attr));
	return ERR_PTR(err);
}

static int kvctx_do_set_tenant(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *flags = info->attrs[KVCTX_A_TENANT_FLAGS], *nest = info->attrs[KVCTX_A_LIMITS];
	u32 to_flags = flags ? nla_get_u32(flags) : 0;
	struct kvc_limits limits;
	struct kvctx_tenant_change to = {
		.flags = flags ? &to_flags : NULL, .limits = nest ? &limits : NULL,
		.unlock = info->attrs[KVCTX_A_TENANT_UNLOCK],
	};
	struct kvctx_tenant *t = kvctx_tenant_of(info);
	int err;

	if (IS_ERR(t))
		return PTR_ERR(t);
	if (!flags && !nest && !to.unlock)
		return kvctx_missing_attr(info, KVCTX_A_TENANT_FLAGS, "limits or flags of the tenant");
	limits = kvc_super_of(t->pool->core)->limits[t->slot];
	err = kvctx_limits_of(info, &limits);
	if (!err)
		err = kvctx_tenant_set(t, &to, info->extack);
	if (!err)
		kvctx_event_tenant(KVCTX_CMD_TENANT_SET, t);
	return err;
}

static int kvctx_do_remove_tenant(struct sk_buff *skb, struct genl_info *info)
{
	struct kvctx_tenant *t = kvctx_tenant_of(info);

	return IS_ERR(t) ? PTR_ERR(t) : kvctx_tenant_remove(t, info->extack);
}

/* Dumps */

static int kvctx_dump_start(struct netlink_callback *cb)
{
	const struct nlattr *attr = genl_info_dump(cb)->attrs[KVCTX_A_POOL];
	int err = 0;

	if (!attr)
		return 0;
	mutex_lock(&kvctx_mutex);
	if (!kvctx_pool_find(nla_data(attr)))
		err = kvctx_no_pool(cb->extack, attr);
	mutex_unlock(&kvctx_mutex);
	return err;
}

static int kvctx_dump_start_tenants(struct netlink_callback *cb)
{
	/* args[1]: all of them */
	cb->args[1] = netlink_capable(cb->skb, CAP_NET_ADMIN) || netlink_capable(cb->skb, CAP_SYS_ADMIN);
	return kvctx_dump_start(cb);
}

static int kvctx_dump_start_tenant_stats(struct netlink_callback *cb)
{
	cb->min_dump_alloc = (u32)(NLMSG_ALIGN(GENL_HDRLEN) + NLMSG_HDRLEN + kvctx_msg_tenant_stats_size());
	return kvctx_dump_start_tenants(cb);
}

/* May the caller read the tenant's node, as it was made? */
static bool kvctx_tenant_readable(const struct kvctx_tenant *t)
{
	const struct kvc_super_tenant *config = &kvc_super_of(t->pool->core)->tenants[t->slot];

	if (uid_eq(make_kuid(&init_user_ns, config->uid), current_fsuid()))
		return config->mode & 0400;
	if (in_group_p(make_kgid(&init_user_ns, config->gid)))
		return config->mode & 0040;
	return config->mode & 0004;
}

static int kvctx_dump_start_peers(struct netlink_callback *cb)
{
	if (!IS_ENABLED(CONFIG_PCI_P2PDMA))
		return kvctx_refuse(cb->extack, NULL, -EOPNOTSUPP, "this kernel has no PCI peer-to-peer DMA");
	return kvctx_dump_start(cb);
}

static int kvctx_dump_start_pools(struct netlink_callback *cb)
{
	cb->min_dump_alloc = (u32)(NLMSG_ALIGN(GENL_HDRLEN) + NLMSG_HDRLEN + kvctx_msg_pool_size(KVC_MEMBERS_MAX));
	return 0;
}

/* An object of @p: the device or tenant @what, or the pool itself */
static int kvctx_fill(struct sk_buff *skb, u8 cmd, struct kvctx_pool *p, void *what)
{
	switch (cmd) {
	case KVCTX_CMD_POOL_GET:
		return kvctx_msg_pool(skb, p);
	case KVCTX_CMD_STATS_GET:
		return kvctx_msg_stats(skb, p);
	case KVCTX_CMD_PEER_GET:
		return kvctx_msg_peer(skb, p, what);
	case KVCTX_CMD_TENANT_STATS_GET:
		return kvctx_msg_tenant_stats(skb, what);
	default:
		return kvctx_msg_tenant(skb, what);
	}
}

/* Put the object number @*nr unless it was sent before. */
static int kvctx_dump_one(struct sk_buff *skb, struct netlink_callback *cb, u32 *nr, struct kvctx_pool *p, void *what)
{
	u8 cmd = genl_info_dump(cb)->genlhdr->cmd;
	void *hdr;

	/* args[0]: how many were sent */
	if ((*nr)++ < cb->args[0])
		return 0;
	hdr = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &kvctx_family, NLM_F_MULTI, cmd);
	if (!hdr)
		return -EMSGSIZE;
	genl_dump_check_consistent(cb, hdr);
	if (kvctx_fill(skb, cmd, p, what)) {
		genlmsg_cancel(skb, hdr);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, hdr);
	cb->args[0]++;
	return 0;
}

static int kvctx_each_pool(struct sk_buff *skb, struct netlink_callback *cb, u32 *nr, struct kvctx_pool *p)
{
	struct pci_dev *pdev = NULL;
	struct kvctx_tenant *t;
	int err = 0;

	switch (genl_info_dump(cb)->genlhdr->cmd) {
	case KVCTX_CMD_PEER_GET:
		while (!err && (pdev = kvctx_provider_next(pdev)))
			err = kvctx_dump_one(skb, cb, nr, p, pdev);
		pci_dev_put(pdev);
		return err;
	case KVCTX_CMD_TENANT_GET:
	case KVCTX_CMD_TENANT_STATS_GET:
		list_for_each_entry(t, &p->tenants, node) {
			if (!cb->args[1] && !kvctx_tenant_readable(t))
				continue;
			err = kvctx_dump_one(skb, cb, nr, p, t);
			if (err)
				break;
		}
		return err;
	default:
		return kvctx_dump_one(skb, cb, nr, p, NULL);
	}
}

static int kvctx_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	const struct nlattr *attr = genl_info_dump(cb)->attrs[KVCTX_A_POOL];
	struct kvctx_pool *p;
	u32 nr = 0;
	int err = 0;

	mutex_lock(&kvctx_mutex);
	cb->seq = kvctx_generation;
	list_for_each_entry(p, &kvctx_pools, node) {
		if (attr && strcmp(nla_data(attr), p->name))
			continue;
		err = kvctx_each_pool(skb, cb, &nr, p);
		if (err)
			break;
	}
	mutex_unlock(&kvctx_mutex);
	/* an object that does not fit comes first in the next part; one that never fits is an error */
	return err && !skb->len ? err : skb->len;
}

/* The table of requests, in the order of their numbers */

#define KVCTX_DO(_cmd, _doit, _policy, _internal)	{	\
	.cmd		= (_cmd),				\
	.flags		= GENL_CMD_CAP_DO,			\
	.internal_flags	= (_internal),				\
	.pre_doit	= kvctx_pre_doit,			\
	.doit		= (_doit),				\
	.post_doit	= kvctx_post_doit,			\
	.policy		= (_policy),				\
	.maxattr	= ARRAY_SIZE(_policy) - 1,		\
}

#define KVCTX_DUMP(_cmd, _start, _policy)	{		\
	.cmd		= (_cmd),				\
	.flags		= GENL_CMD_CAP_DUMP,			\
	.start		= (_start),				\
	.dumpit		= kvctx_dump,				\
	.policy		= (_policy),				\
	.maxattr	= ARRAY_SIZE(_policy) - 1,		\
}

static const struct genl_split_ops kvctx_ops[] = {
	KVCTX_DO(KVCTX_CMD_POOL_ATTACH, kvctx_do_attach, kvctx_attach_policy, KVCTX_CHANGES),
	KVCTX_DO(KVCTX_CMD_POOL_DETACH, kvctx_do_detach, kvctx_pool_policy, KVCTX_CHANGES),
	KVCTX_DO(KVCTX_CMD_POOL_GET, kvctx_do_get_pool, kvctx_pool_policy, 0),
	KVCTX_DUMP(KVCTX_CMD_POOL_GET, kvctx_dump_start_pools, kvctx_pool_policy),
	KVCTX_DO(KVCTX_CMD_TENANT_ADD, kvctx_do_add_tenant, kvctx_tenant_add_policy, KVCTX_CHANGES),
	KVCTX_DO(KVCTX_CMD_TENANT_REMOVE, kvctx_do_remove_tenant, kvctx_tenant_policy, KVCTX_CHANGES),
	KVCTX_DUMP(KVCTX_CMD_TENANT_GET, kvctx_dump_start_tenants, kvctx_pool_policy),
	KVCTX_DUMP(KVCTX_CMD_STATS_GET, kvctx_dump_start, kvctx_pool_policy),
	KVCTX_DO(KVCTX_CMD_TENANT_SET, kvctx_do_set_tenant, kvctx_tenant_set_policy, KVCTX_CHANGES),
	KVCTX_DUMP(KVCTX_CMD_PEER_GET, kvctx_dump_start_peers, kvctx_pool_policy),
	KVCTX_DO(KVCTX_CMD_POOL_SET, kvctx_do_set_pool, kvctx_pool_set_policy, KVCTX_CHANGES),
	KVCTX_DO(KVCTX_CMD_POOL_ADD, kvctx_do_add_member, kvctx_pool_add_policy, KVCTX_CHANGES),
	KVCTX_DO(KVCTX_CMD_POOL_REMOVE, kvctx_do_remove_member, kvctx_pool_remove_policy, KVCTX_CHANGES),
	KVCTX_DUMP(KVCTX_CMD_TENANT_STATS_GET, kvctx_dump_start_tenant_stats, kvctx_pool_policy),
	KVCTX_DO(KVCTX_CMD_POOL_REJOIN, kvctx_do_rejoin, kvctx_pool_rejoin_policy, KVCTX_CHANGES),
};

static struct genl_family kvctx_family __ro_after_init = {
	.name		= KVCTX_GENL_NAME,
	.version	= KVCTX_GENL_VERSION,
	.module		= THIS_MODULE,
	.parallel_ops	= true,
	.split_ops	= kvctx_ops,
	.n_split_ops	= ARRAY_SIZE(kvctx_ops),
	.mcgrps		= kvctx_groups,
	.n_mcgrps	= ARRAY_SIZE(kvctx_groups),
	.bind		= kvctx_pages_bind,
	.resv_start_op	= KVCTX_CMD_POOL_ATTACH,
};

int __init kvctx_genl_init(void)
{
	kvctx_events_init(&kvctx_family);
	return genl_register_family(&kvctx_family);
}

void kvctx_genl_exit(void)
{
	kvctx_events_stop();
	genl_unregister_family(&kvctx_family);
}

MODULE_ALIAS_GENL_FAMILY(KVCTX_GENL_NAME);
