/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The control plane over a socket: RUN/control, for root and the daemon's own user.
 *
 * Messages are those of the generic-netlink family of <linux/kvctx_genl.h>, one a packet, with the headers, answers and
 * acknowledgments that the kernel would send: NLMSG_ERROR with its sentence, NLMSG_DONE behind a dump. The family's
 * number is KVD_FAMILY, as there is nobody to ask for it.
 */
#ifndef KVCTXD_CONTROL_H
#define KVCTXD_CONTROL_H

#include <netlink/attr.h>
#include <netlink/genl/genl.h>
#include <netlink/msg.h>

#include "kvctxd.h"

#define KVD_FAMILY	NLMSG_MIN_TYPE
#define KVD_MESSAGE_MAX	65536U

/* control.c */
int kvd_control_start(char *why);
void kvd_control_accept(void);
void kvd_control_stop(void);		/* no request is under way when it returns, and none comes */

/* report.c: put an object into a message. 0, -NLE_* */
int kvd_report_pool(struct nl_msg *msg, struct kvd_pool *p);
int kvd_report_tenant(struct nl_msg *msg, struct kvd_tenant *t);
int kvd_report_stats(struct nl_msg *msg, struct kvd_pool *p);

#endif
