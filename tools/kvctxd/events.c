// SPDX-License-Identifier: GPL-2.0
/*
 * Who listens on the control socket is told what happens to pools, members and tenants, in the messages of the kernel's
 * group "mgmt" (kmod/control/event.c), and of pages if he likes (pages.c).
 *
 * A listener's connection is its thread's (control.c), which gives it here for as long as it lasts; messages are sent by
 * whoever makes what they tell of, so they may not wait for who does not read. What did not fit into his socket is made
 * good for by one NLMSG_OVERRUN before the next message that does.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "control.h"
#include "engine.h"

static struct kvd_listener *events_listeners;		/* events_lock, the innermost */
static pthread_mutex_t events_lock = PTHREAD_MUTEX_INITIALIZER;

int kvd_events_listen(struct kvd_listener *l, int sock, bool pages)
{
	if (l->sock >= 0)
		return -EBUSY;
	l->sock = sock;
	l->pages = pages;
	l->lost = false;
	pthread_mutex_lock(&events_lock);
	l->next = events_listeners;
	events_listeners = l;
	pthread_mutex_unlock(&events_lock);
	return 0;
}

void kvd_events_unlisten(struct kvd_listener *l)
{
	struct kvd_listener **at;

	if (l->sock < 0)
		return;
	pthread_mutex_lock(&events_lock);
	for (at = &events_listeners; *at != l; at = &(*at)->next)
		;
	*at = l->next;
	pthread_mutex_unlock(&events_lock);
}

bool kvd_events_heard(bool pages)
{
	const struct kvd_listener *l;

	pthread_mutex_lock(&events_lock);
	for (l = events_listeners; l && pages && !l->pages; l = l->next)
		;
	pthread_mutex_unlock(&events_lock);
	return l;
}

static bool events_give(const struct kvd_listener *l, const struct nlmsghdr *nlh)
{
	return send(l->sock, nlh, nlh->nlmsg_len, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

static bool events_of_pages(struct nl_msg *msg)
{
	return ((const struct genlmsghdr *)nlmsg_data(nlmsg_hdr(msg)))->cmd == KVCTX_CMD_PAGES;
}

static void events_send(struct nl_msg *msg)
{
	static const struct nlmsghdr overrun = { .nlmsg_len = NLMSG_HDRLEN, .nlmsg_type = NLMSG_OVERRUN };
	bool pages = events_of_pages(msg);
	struct kvd_listener *l;

	pthread_mutex_lock(&events_lock);
	for (l = events_listeners; l; l = l->next) {
		if (pages && !l->pages)
			continue;
		if (l->lost && events_give(l, &overrun))
			l->lost = false;
		if (l->lost || !events_give(l, nlmsg_hdr(msg)))
			l->lost = true;
	}
	pthread_mutex_unlock(&events_lock);
}

/* NULL: nobody listens, or no memory: an event that is lost for all */
struct nl_msg *kvd_event_new(uint8_t cmd)
{
	struct nl_msg *msg = kvd_events_heard(cmd == KVCTX_CMD_PAGES) ? nlmsg_alloc_size(KVD_MESSAGE_MAX) : NULL;

	if (msg && !genlmsg_put(msg, 0, 0, KVD_FAMILY, 0, 0, cmd, KVCTX_GENL_VERSION)) {
		nlmsg_free(msg);
		msg = NULL;
	}
	return msg;
}

static struct nl_msg *events_filled(struct nl_msg *msg, int nle)
{
	if (!nle)
		return msg;
	nlmsg_free(msg);
	return NULL;
}

struct nl_msg *kvd_event_pool(uint8_t cmd, struct kvd_pool *p)
{
	struct nl_msg *msg = kvd_event_new(cmd);

	return msg ? events_filled(msg, kvd_report_pool(msg, p)) : NULL;
}

struct nl_msg *kvd_event_tenant(uint8_t cmd, struct kvd_pool *p, const char *name)
{
	struct nl_msg *msg = kvd_event_new(cmd);
	struct kvd_tenant *t;
	int nle = -NLE_OBJ_NOTFOUND;

	if (!msg)
		return NULL;
	pthread_mutex_lock(&kvd_lock);
	t = kvd_tenant_find(p, name);
	if (t)
		nle = kvd_report_tenant(msg, t);
	pthread_mutex_unlock(&kvd_lock);
	return events_filled(msg, nle);
}

void kvd_event_send(struct nl_msg *msg)
{
	if (!msg)
		return;
	events_send(msg);
	nlmsg_free(msg);
}

void kvd_event_member(struct kve_member *m, enum kve_member_news news)
{
	static const uint8_t cmds[] = {
		[KVE_MEMBER_WAS_LOST] = KVCTX_CMD_MEMBER_LOST, [KVE_MEMBER_HAS_LEFT] = KVCTX_CMD_POOL_REMOVE,
		[KVE_MEMBER_IS_BACK] = KVCTX_CMD_POOL_REJOIN,
	};
	struct nl_msg *msg = kvd_event_new(cmds[news]);

	if (msg)
		kvd_event_send(events_filled(msg, kvd_report_member(msg, m)));
}
