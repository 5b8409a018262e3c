// SPDX-License-Identifier: GPL-2.0
/*
 * Events: what the netlink family tells its listeners of pools, members and tenants, and of pages.
 *
 * The former are sent by those to whom things happen, on floors below the family's requests (genl.c), which says here
 * which family it is before it is registered. A removal is told while the object can still be described.
 *
 * Pages are told of in arrears (session/watch.h), by a work item of the pool that is queued when the engine wakes it. A
 * pool is watched from when somebody asks for the group until nobody has heard of its pages for a while: netlink tells
 * of those who come, before they are there, but not of all who go.
 *
 * Being in a group does not make one a listener: netlink lets anybody into one that is no family's yet, and a
 * namespace's root into any. So each message looks at whom it reaches.
 */
#include "ctrl.h"
#include "session/watch.h"

#include <net/sock.h>

#define KVCTX_PAGES_UNHEARD	50	/* looks at pages that came and went, until nobody is expected to listen */

/* Of a pool; there since it was watched for the first time */
struct kvctx_pages {
	struct kvctx_pool *pool;
	struct delayed_work work;
	bool on;			/* kvctx_mutex; it is watched */
	u32 unheard;			/* kvctx_mutex; looks since somebody heard, or was to come */
	struct kvctx_watch watch;	/* of the work */
};

static bool kvctx_pages_wanted;		/* kvctx_mutex; pools that come are watched */

static struct genl_family *kvctx_family __ro_after_init;
static DECLARE_RWSEM(kvctx_events_lock);	/* innermost */
static bool kvctx_events_over;			/* kvctx_events_lock */

void __init kvctx_events_init(struct genl_family *family)
{
	kvctx_family = family;
}

/* Its groups may soon be another's. */
void kvctx_events_stop(void)
{
	down_write(&kvctx_events_lock);
	kvctx_events_over = true;
	up_write(&kvctx_events_lock);
}

/* Is anybody in the group? */
static bool kvctx_heard(u32 group)
{
	return genl_has_listeners(kvctx_family, &init_net, group);
}

static struct sk_buff *kvctx_event_new(u32 group, u8 cmd, size_t size, void **hdr)
{
	struct sk_buff *skb;

	if (!kvctx_heard(group))
		return NULL;
	skb = genlmsg_new(size, GFP_KERNEL);
	if (!skb)
		return NULL;
	*hdr = genlmsg_put(skb, 0, 0, kvctx_family, 0, cmd);
	return skb;
}

/* Netlink's filter: may the socket not have it? Who opened it decides, as that of a request does. */
static int kvctx_event_refuse(struct sock *sk, struct sk_buff *skb, void *nr_told)
{
	const struct socket *sock = READ_ONCE(sk->sk_socket);	/* there until @sk is in no group */

	if (!sock || !sock->file || !file_ns_capable(sock->file, &init_user_ns, CAP_NET_ADMIN))
		return 1;
	(*(u32 *)nr_told)++;
	return 0;
}

/*
 * Send it when it was filled without @err; was it for anybody? A listener who misses one is told so by its socket
 * (ENOBUFS).
 */
static bool kvctx_event_send(u32 group, struct sk_buff *skb, void *hdr, int err)
{
	u32 nr_told = 0;

	down_read(&kvctx_events_lock);
	if (err || kvctx_events_over) {
		nlmsg_free(skb);
	} else {
		genlmsg_end(skb, hdr);
		genlmsg_multicast_netns_filtered(kvctx_family, &init_net, skb, 0, group, GFP_KERNEL, kvctx_event_refuse,
						 &nr_told);
	}
	up_read(&kvctx_events_lock);
	return nr_told;
}

void kvctx_event_pool(u8 cmd, struct kvctx_pool *p)
{
	struct sk_buff *skb;
	void *hdr;

	skb = kvctx_event_new(KVCTX_GROUP_MGMT, cmd, kvctx_msg_pool_size(p->nr_members), &hdr);
	if (skb)
		kvctx_event_send(KVCTX_GROUP_MGMT, skb, hdr, kvctx_msg_pool(skb, p));
}

void kvctx_event_tenant(u8 cmd, struct kvctx_tenant *t)
{
	struct sk_buff *skb;
	void *hdr;

	skb = kvctx_event_new(KVCTX_GROUP_MGMT, cmd, NLMSG_GOODSIZE, &hdr);
	if (skb)
		kvctx_event_send(KVCTX_GROUP_MGMT, skb, hdr, kvctx_msg_tenant(skb, t));
}

void kvctx_event_member(u8 cmd, struct kvctx_member *m)
{
	struct sk_buff *skb;
	void *hdr;
	int err;

	skb = kvctx_event_new(KVCTX_GROUP_MGMT, cmd, kvctx_msg_pool_size(1), &hdr);
	if (!skb)
		return;
	err = nla_put_string(skb, KVCTX_A_POOL, m->pool->name);
	kvctx_event_send(KVCTX_GROUP_MGMT, skb, hdr, err ? err : kvctx_msg_member(skb, m));
}

static int kvctx_msg_pages(struct sk_buff *skb, const struct kvctx_pool *p, const struct kvctx_watch *w)
{
	if (nla_put_string(skb, KVCTX_A_POOL, p->name) ||
	    nla_put_string(skb, KVCTX_A_TENANT, w->tenant) ||
	    nla_put(skb, KVCTX_A_KEYSPACE, KVC_KEYSPACE_LEN, w->keyspace) ||
	    nla_put(skb, KVCTX_A_PAGES, w->nr_pages * sizeof(*w->pages), w->pages))
		return -EMSGSIZE;
	return w->lost && nla_put_u64_64bit(skb, KVCTX_A_LOST, w->lost, KVCTX_A_PAD) ? -EMSGSIZE : 0;
}

/* Does anybody hear? */
static bool kvctx_event_pages(struct kvctx_pool *p, struct kvctx_watch *w)
{
	const size_t size = 2 * nla_total_size(KVCTX_NAME_MAX) + nla_total_size(KVC_KEYSPACE_LEN) +
			    nla_total_size(w->nr_pages * sizeof(*w->pages)) + nla_total_size_64bit(sizeof(u64));
	struct sk_buff *skb;
	bool heard;
	void *hdr;

	if (!kvctx_heard(KVCTX_GROUP_PAGES))
		return false;
	skb = kvctx_event_new(KVCTX_GROUP_PAGES, KVCTX_CMD_PAGES, size, &hdr);
	if (!skb) {
		w->lost += w->nr_pages;
		return true;
	}
	heard = kvctx_event_send(KVCTX_GROUP_PAGES, skb, hdr, kvctx_msg_pages(skb, p, w));
	w->lost = 0;
	return heard;
}

static void kvctx_pages_wake(struct kvc_watcher *w)
{
	struct kvctx_pages *pages = container_of(w, struct kvctx_pages, watch.watcher);

	queue_delayed_work(pages->pool->io_wq, &pages->work, msecs_to_jiffies(KVCTX_WATCH_MS));
}

/* Is it still watched, after a look at what came and went? Not when nobody hears and none is to come. */
static bool kvctx_pages_stay(struct kvctx_pages *pages, bool heard)
{
	bool on;

	mutex_lock(&kvctx_mutex);
	pages->unheard = heard ? 0 : pages->unheard + 1;
	if (pages->unheard > KVCTX_PAGES_UNHEARD) {
		kvctx_pages_wanted = false;
		pages->on = false;
		kvc_unwatch(pages->pool->core);
	}
	on = pages->on;
	mutex_unlock(&kvctx_mutex);
	return on;
}

static void kvctx_pages_work(struct work_struct *work)
{
	struct kvctx_pages *pages = container_of(work, struct kvctx_pages, work.work);
	struct kvctx_watch *w = &pages->watch;
	bool more = kvctx_watch_take(pages->pool->core, w), heard = false;

	while (kvctx_watch_next(pages->pool->core, w))
		heard |= kvctx_event_pages(pages->pool, w);
	if (!heard)
		w->lost = 0;
	if (more && kvctx_pages_stay(pages, heard))
		kvctx_pages_wake(&w->watcher);
}

static int kvctx_pages_start(struct kvctx_pool *p)
{
	struct kvctx_pages *pages = p->pages;

	if (!pages) {
		pages = kvzalloc(sizeof(*pages), GFP_KERNEL);
		if (!pages)
			return -ENOMEM;
		pages->pool = p;
		pages->watch.watcher.wake = kvctx_pages_wake;
		INIT_DELAYED_WORK(&pages->work, kvctx_pages_work);
		p->pages = pages;
	}
	pages->unheard = 0;
	if (!pages->on)
		kvc_watch(p->core, &pages->watch.watcher);
	pages->on = true;
	return 0;
}

/* Those who would hear nothing do not even make it cost something. What is returned stops nobody. */
int kvctx_pages_bind(int group)
{
	struct kvctx_pool *p;
	int err = 0, one;

	if (group != KVCTX_GROUP_PAGES)
		return 0;
	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	mutex_lock(&kvctx_mutex);
	kvctx_pages_wanted = true;
	list_for_each_entry(p, &kvctx_pools, node) {
		one = kvctx_pages_start(p);
		err = err ?: one;
	}
	mutex_unlock(&kvctx_mutex);
	return err;
}

/* Of a pool without memory for it nothing is told. */
void kvctx_pages_begin(struct kvctx_pool *p)
{
	lockdep_assert_held(&kvctx_mutex);
	if (kvctx_pages_wanted)
		kvctx_pages_start(p);
}

void kvctx_pages_end(struct kvctx_pool *p)
{
	if (!p->pages)
		return;
	kvc_unwatch(p->core);
	cancel_delayed_work_sync(&p->pages->work);
	kvfree(p->pages);
	p->pages = NULL;
}
