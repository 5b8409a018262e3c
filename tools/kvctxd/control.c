// SPDX-License-Identifier: GPL-2.0
/*
 * Who connects to the control socket, and the table of requests.
 *
 * Who may connect may do everything: the socket is that of the daemon's own user, and root. A connection is served by a
 * thread of its own, also that of one who listens (events.c). Changes of a pool wait for each other, which may take as long as its devices do, and those of other
 * pools do not; who only asks waits for nobody.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control.h"
#include "media/format.h"

#define CONTROL_MAX	64U		/* connections */

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
	[KVCTX_A_TENANT_KEY] = { .type = NLA_NUL_STRING, .maxlen = KVC_KEY_NAME_MAX },
	[KVCTX_A_TENANT_UNLOCK] = { .type = NLA_FLAG },
};

/* Requests */

static int control_no_peers(struct control_request *rq)
{
	return kvd_answer_refuse(rq, -EOPNOTSUPP, "kvctxd does not serve memory of PCI peers");
}

static const struct control_verb {
	uint8_t cmd;
	bool one;							/* tells of a single pool, too */
	int (*any)(struct control_request *rq);
	int (*change)(struct control_request *rq, struct kvd_pool *p);
	int (*tell)(struct control_request *rq, struct kvd_pool *p);
} control_verbs[] = {
	{ KVCTX_CMD_POOL_ATTACH, .any = kvd_control_attach },
	{ KVCTX_CMD_POOL_DETACH, .change = kvd_control_detach },
	{ KVCTX_CMD_POOL_SET, .change = kvd_control_set_pool },
	{ KVCTX_CMD_POOL_ADD, .change = kvd_control_add_member },
	{ KVCTX_CMD_POOL_REJOIN, .change = kvd_control_rejoin },
	{ KVCTX_CMD_POOL_REMOVE, .change = kvd_control_remove_member },
	{ KVCTX_CMD_POOL_GET, .one = true, .tell = kvd_control_put_pool },
	{ KVCTX_CMD_TENANT_ADD, .change = kvd_control_add_tenant },
	{ KVCTX_CMD_TENANT_SET, .change = kvd_control_set_tenant },
	{ KVCTX_CMD_TENANT_REMOVE, .change = kvd_control_remove_tenant },
	{ KVCTX_CMD_TENANT_GET, .tell = kvd_control_put_tenants },
	{ KVCTX_CMD_TENANT_STATS_GET, .tell = kvd_control_put_tenant_stats },
	{ KVCTX_CMD_STATS_GET, .tell = kvd_control_put_stats },
	{ KVCTX_CMD_PEER_GET, .any = control_no_peers },
};

/* What a change is told of as: a pool, or a tenant; of members that are removed or return the engine tells */
static struct nl_msg *control_event(const struct control_request *rq, struct kvd_pool *p)
{
	const char *tenant = control_text(rq, KVCTX_A_TENANT);

	switch (rq->genl->cmd) {
	case KVCTX_CMD_TENANT_ADD:
	case KVCTX_CMD_TENANT_SET:
	case KVCTX_CMD_TENANT_REMOVE:
		return tenant ? kvd_event_tenant(rq->genl->cmd, p, tenant) : NULL;
	case KVCTX_CMD_POOL_REMOVE:
	case KVCTX_CMD_POOL_REJOIN:
		return NULL;
	default:
		return rq->attrs[KVCTX_A_DRY_RUN] ? NULL : kvd_event_pool(rq->genl->cmd, p);
	}
}

static int control_change(struct control_request *rq, const struct control_verb *v, struct kvd_pool *p)
{
	bool ends = v->cmd == KVCTX_CMD_POOL_DETACH || v->cmd == KVCTX_CMD_TENANT_REMOVE;
	struct nl_msg *event = ends ? control_event(rq, p) : NULL;
	int err = v->change(rq, p);

	if (!err)
		kvd_event_send(ends ? event : control_event(rq, p));
	else
		nlmsg_free(event);
	return err;
}

static int control_of_pool(struct control_request *rq, const struct control_verb *v)
{
	const char *name = control_text(rq, KVCTX_A_POOL);
	struct kvd_pool *p;
	int err;

	if (!name)
		return kvd_answer_refuse(rq, -EINVAL, "the request lacks the name of the pool");
	p = kvd_pool_hold(name, v->change);
	if (!p)
		return kvd_refuse(rq->why, -ENOENT, "no pool named %s is attached", name);
	err = v->change ? control_change(rq, v, p) : v->tell(rq, p);
	kvd_pool_put(p, v->change);
	return err;
}

static int control_of_all(struct control_request *rq, const struct control_verb *v)
{
	struct kvd_pool **pools;
	int nr = kvd_pools_hold(&pools), err = 0;

	for (int i = 0; i < nr; i++) {
		err = err ?: v->tell(rq, pools[i]);
		kvd_pool_put(pools[i], false);
	}
	if (nr < 0)
		return nr;
	free(pools);
	return err;
}

static int control_dispatch(struct control_request *rq)
{
	bool dump = rq->nlh->nlmsg_flags & NLM_F_DUMP;
	const struct control_verb *v = control_verbs;

	if (genlmsg_parse((struct nlmsghdr *)rq->nlh, 0, rq->attrs, KVCTX_A_MAX, control_policy) < 0)
		return -EINVAL;
	while (v < control_verbs + ARRAY_SIZE(control_verbs) && v->cmd != rq->genl->cmd)
		v++;
	if (v == control_verbs + ARRAY_SIZE(control_verbs) || (v->tell && !v->one && !dump))
		return kvd_answer_refuse(rq, -EOPNOTSUPP, "kvctxd does not do this");
	if (v->any)
		return v->any(rq);
	return v->tell && dump && !rq->attrs[KVCTX_A_POOL] ? control_of_all(rq, v) : control_of_pool(rq, v);
}

/* Connections */

static int control_listen(struct kvd_listener *l, int sock, bool pages)
{
	int err = kvd_events_listen(l, sock, pages);

	return err || !pages ? err : kvd_pages_begin_all();
}

/* One packet. false: it is no request, or nobody reads the answer. @l listens from the request for it on */
static bool control_serve(int sock, void *buf, ssize_t bytes, struct kvd_listener *l)
{
	struct control_request rq = { .nlh = buf };
	int err;

	if (bytes < (ssize_t)(NLMSG_HDRLEN + GENL_HDRLEN) || !nlmsg_ok(rq.nlh, (int)bytes) ||
	    nlmsg_datalen(rq.nlh) < (int)GENL_HDRLEN || rq.nlh->nlmsg_type != KVD_FAMILY)
		return false;
	rq.genl = nlmsg_data(rq.nlh);
	if (rq.genl->cmd == KVD_CMD_LISTEN || rq.genl->cmd == KVD_CMD_LISTEN_PAGES)
		err = control_listen(l, sock, rq.genl->cmd == KVD_CMD_LISTEN_PAGES);
	else
		err = control_dispatch(&rq);
	kvd_answer_end(&rq, err);
	return kvd_answer_send(&rq, sock);
}

static void *control_run(void *arg)
{
	int *slot = arg, sock = *slot;
	void *buf = malloc(KVD_MESSAGE_MAX);
	struct kvd_listener l = { .sock = -1 };
	ssize_t n;

	while (buf && (n = recv(sock, buf, KVD_MESSAGE_MAX, 0)) > 0)
		if (!control_serve(sock, buf, n, &l))
			break;
	kvd_events_unlisten(&l);
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
