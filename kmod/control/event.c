// SPDX-License-Identifier: GPL-2.0
/*
 * Events: what the netlink family tells its listeners of pools, members and tenants.
 *
 * They are sent by those to whom things happen, on floors below the family's requests (genl.c), which says here which
 * family it is before it is registered. A removal is told while the object can still be described.
 */
#include "ctrl.h"

static struct genl_family *kvctx_family __ro_after_init;

void __init kvctx_events_init(struct genl_family *family)
{
	kvctx_family = family;
}

static struct sk_buff *kvctx_event_new(u8 cmd, size_t size, void **hdr)
{
	struct sk_buff *skb;

	if (!genl_has_listeners(kvctx_family, &init_net, KVCTX_GROUP_MGMT))
		return NULL;
	skb = genlmsg_new(size, GFP_KERNEL);
	if (!skb)
		return NULL;
	*hdr = genlmsg_put(skb, 0, 0, kvctx_family, 0, cmd);
	return skb;
}

/* Send it when it was filled without @err. A listener who misses one is told so by its socket (ENOBUFS). */
static void kvctx_event_send(struct sk_buff *skb, void *hdr, int err)
{
	if (err) {
		nlmsg_free(skb);
		return;
	}
	genlmsg_end(skb, hdr);
	genlmsg_multicast(kvctx_family, skb, 0, KVCTX_GROUP_MGMT, GFP_KERNEL);
}

void kvctx_event_pool(u8 cmd, struct kvctx_pool *p)
{
	struct sk_buff *skb;
	void *hdr;

	skb = kvctx_event_new(cmd, kvctx_msg_pool_size(p->nr_members), &hdr);
	if (skb)
		kvctx_event_send(skb, hdr, kvctx_msg_pool(skb, p));
}

void kvctx_event_tenant(u8 cmd, struct kvctx_tenant *t)
{
	struct sk_buff *skb;
	void *hdr;

	skb = kvctx_event_new(cmd, NLMSG_GOODSIZE, &hdr);
	if (skb)
		kvctx_event_send(skb, hdr, kvctx_msg_tenant(skb, t));
}

void kvctx_event_member(u8 cmd, struct kvctx_member *m)
{
	struct sk_buff *skb;
	void *hdr;
	int err;

	skb = kvctx_event_new(cmd, kvctx_msg_pool_size(1), &hdr);
	if (!skb)
		return;
	err = nla_put_string(skb, KVCTX_A_POOL, m->pool->name);
	kvctx_event_send(skb, hdr, err ? err : kvctx_msg_member(skb, m));
}
