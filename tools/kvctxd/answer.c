// SPDX-License-Identifier: GPL-2.0
/*
 * What a request of kvctxctl is answered with: messages that are collected, and sent together at its end.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "control.h"

static int answer_room(struct control_request *rq, size_t bytes)
{
	size_t room = rq->room ? rq->room : 4096;
	uint8_t *more;

	while (room - rq->bytes < bytes)
		room *= 2;
	if (room == rq->room)
		return 0;
	more = realloc(rq->answer, room);
	if (!more)
		return -ENOMEM;
	rq->answer = more;
	rq->room = room;
	return 0;
}

/* Behind the others. Takes @msg */
static int answer_add(struct control_request *rq, struct nl_msg *msg)
{
	const struct nlmsghdr *nlh = nlmsg_hdr(msg);
	size_t bytes = NLMSG_ALIGN(nlh->nlmsg_len);
	int err = answer_room(rq, bytes);

	if (!err) {
		memset(rq->answer + rq->bytes, 0, bytes);
		memcpy(rq->answer + rq->bytes, nlh, nlh->nlmsg_len);
		rq->bytes += bytes;
	}
	nlmsg_free(msg);
	return err;
}

struct nl_msg *kvd_answer_object(struct control_request *rq)
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

int kvd_answer_put(struct control_request *rq, struct nl_msg *msg, int nle)
{
	if (!nle)
		return answer_add(rq, msg);
	nlmsg_free(msg);
	return -EMSGSIZE;
}

int kvd_answer_refuse(struct control_request *rq, int err, const char *what)
{
	snprintf(rq->why, sizeof(rq->why), "%s", what);
	return err;
}

void kvd_answer_end(struct control_request *rq, int err)
{
	bool dump = rq->nlh->nlmsg_flags & NLM_F_DUMP, tells = err && *rq->why;
	struct nlmsgerr e = { .error = err, .msg = *rq->nlh };
	struct nl_msg *msg = nlmsg_alloc_size(KVD_MESSAGE_MAX);
	int flags = (dump ? NLM_F_MULTI : NLM_F_CAPPED) | (tells ? NLM_F_ACK_TLVS : 0);

	if (!msg)
		return;
	if (!nlmsg_put(msg, rq->nlh->nlmsg_pid, rq->nlh->nlmsg_seq, dump ? NLMSG_DONE : NLMSG_ERROR, 0, flags)) {
		nlmsg_free(msg);
		return;
	}
	if (dump)
		nlmsg_append(msg, &err, sizeof(err), NLMSG_ALIGNTO);
	else
		nlmsg_append(msg, &e, sizeof(e), NLMSG_ALIGNTO);
	if (tells)
		nla_put_string(msg, NLMSGERR_ATTR_MSG, rq->why);
	answer_add(rq, msg);
}

bool kvd_answer_send(struct control_request *rq, int sock)
{
	bool sent = rq->bytes;
	size_t at = 0;

	while (at < rq->bytes && sent) {
		const struct nlmsghdr *nlh = (const void *)(rq->answer + at);

		sent = send(sock, nlh, nlh->nlmsg_len, MSG_NOSIGNAL) >= 0;
		at += NLMSG_ALIGN(nlh->nlmsg_len);
	}
	free(rq->answer);
	rq->answer = NULL;
	rq->bytes = rq->room = 0;
	return sent;
}
