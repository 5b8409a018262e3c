/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The control plane over a socket: RUN/control, for root and the daemon's own user.
 *
 * Messages are those of the generic-netlink family of <linux/kvctx_genl.h>, one a packet, with the headers, answers and
 * acknowledgments that the kernel would send: NLMSG_ERROR with its sentence, NLMSG_DONE behind a dump. The family's
 * number is KVD_FAMILY, as there is nobody to ask for it.
 *
 * A request is answered in memory, and the answer is sent when the request holds on to nothing any more: who does not
 * read keeps nobody waiting.
 */
#ifndef KVCTXD_CONTROL_H
#define KVCTXD_CONTROL_H

#include <linux/kvctx_genl.h>
#include <netlink/attr.h>
#include <netlink/genl/genl.h>
#include <netlink/msg.h>

#include "engine.h"
#include "kvctxd.h"

#define KVD_FAMILY	NLMSG_MIN_TYPE
/* Requests of kvctxd alone: who sent it hears what the group "mgmt" does, or that and the group "pages" */
#define KVD_CMD_LISTEN	255
#define KVD_CMD_LISTEN_PAGES 254
#define KVD_MESSAGE_MAX	65536U

struct control_request {
	const struct nlmsghdr *nlh;
	const struct genlmsghdr *genl;
	struct nlattr *attrs[KVCTX_A_MAX + 1];
	char why[KVD_WHY];
	/* private to answer.c: messages, one behind the other */
	uint8_t *answer;
	size_t bytes, room;
};

/* answer.c */

/* An object of the answer: room for it, and its end, which takes @msg. @nle: 0, or what kept it from being filled */
struct nl_msg *kvd_answer_object(struct control_request *rq);
int kvd_answer_put(struct control_request *rq, struct nl_msg *msg, int nle);
/* @err, with that sentence */
int kvd_answer_refuse(struct control_request *rq, int err, const char *what);
/* The end of an answer: an acknowledgment, or the end of a dump. @err: 0 or -errno */
void kvd_answer_end(struct control_request *rq, int err);
/* Send and forget it. false: nobody reads it */
bool kvd_answer_send(struct control_request *rq, int sock);

static inline const char *control_text(const struct control_request *rq, int attr)
{
	return rq->attrs[attr] ? nla_get_string(rq->attrs[attr]) : NULL;
}

static inline uint32_t control_number(const struct control_request *rq, int attr, uint32_t otherwise)
{
	return rq->attrs[attr] ? nla_get_u32(rq->attrs[attr]) : otherwise;
}

/* report.c: put an object into a message. 0, -NLE_*. The pool is held; tenants: kvd_lock */
int kvd_report_pool(struct nl_msg *msg, struct kvd_pool *p);
int kvd_report_tenant(struct nl_msg *msg, struct kvd_tenant *t);
int kvd_report_stats(struct nl_msg *msg, struct kvd_pool *p);
int kvd_report_tenant_stats(struct nl_msg *msg, struct kvd_tenant *t);
int kvd_report_member(struct nl_msg *msg, struct kve_member *m);	/* alone, with its pool's name */

/* events.c */

struct kvd_listener {
	struct kvd_listener *next;
	int sock;
	bool pages;			/* he is told of them, too */
	bool lost;			/* events did not fit, and he was not told so */
};

/* @l is the caller's, with @sock -1 until then; until unlisten it is told on @sock. 0, -EBUSY: it is already */
int kvd_events_listen(struct kvd_listener *l, int sock, bool pages);
bool kvd_events_heard(bool pages);				/* by anybody, or by anybody who is told of pages */
void kvd_events_unlisten(struct kvd_listener *l);		/* also of one that never listened */
/* What is told when it has happened. A removal is described before it, so these two steps. NULL: nothing is to be sent */
struct nl_msg *kvd_event_pool(uint8_t cmd, struct kvd_pool *p);
struct nl_msg *kvd_event_tenant(uint8_t cmd, struct kvd_pool *p, const char *name);	/* the pool is held alone */
void kvd_event_send(struct nl_msg *msg);
struct nl_msg *kvd_event_new(uint8_t cmd);			/* to be filled, and sent or freed; NULL: likewise */
/* The engine tells of a member: it has left the pool, or was lost */
void kvd_event_member(struct kve_member *m, enum kve_member_news news);

/* pages.c. 0, -ENOMEM. Nothing happens while nobody listens */
int kvd_pages_begin(struct kvd_pool *p);			/* the pool is held */
int kvd_pages_begin_all(void);

/*
 * control_pool.c, control_tenant.c: what a request asks for. 0, or -errno, with a sentence in @rq->why where there is
 * one. With a pool: it is held. Nobody else changes it meanwhile, unless the function only puts something into the answer
 */
int kvd_control_attach(struct control_request *rq);
int kvd_control_detach(struct control_request *rq, struct kvd_pool *p);
int kvd_control_set_pool(struct control_request *rq, struct kvd_pool *p);
int kvd_control_add_member(struct control_request *rq, struct kvd_pool *p);
int kvd_control_rejoin(struct control_request *rq, struct kvd_pool *p);
int kvd_control_remove_member(struct control_request *rq, struct kvd_pool *p);
int kvd_control_put_pool(struct control_request *rq, struct kvd_pool *p);
int kvd_control_put_stats(struct control_request *rq, struct kvd_pool *p);

int kvd_control_add_tenant(struct control_request *rq, struct kvd_pool *p);
int kvd_control_set_tenant(struct control_request *rq, struct kvd_pool *p);
int kvd_control_remove_tenant(struct control_request *rq, struct kvd_pool *p);
int kvd_control_put_tenants(struct control_request *rq, struct kvd_pool *p);
int kvd_control_put_tenant_stats(struct control_request *rq, struct kvd_pool *p);

/* control.c */
int kvd_control_start(char *why);
void kvd_control_accept(void);
void kvd_control_stop(void);		/* no request is under way when it returns, and none comes */

#endif
