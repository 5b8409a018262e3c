// SPDX-License-Identifier: GPL-2.0
/*
 * The messages of the control plane to kvctxd, over a Unix socket: one a packet, with the headers that they have on the
 * way to the kernel. libnl builds, numbers and parses them; sending and receiving are ours, for which libnl gives no
 * argument: hence the descriptor here.
 */
#include <errno.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <netlink/msg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "nl.h"

#define FAMILY		NLMSG_MIN_TYPE	/* there is nobody to ask for its number */
#define MESSAGE_MAX	65536
/* kvctxd's requests to be told of what happens, the second of pages too */
#define LISTEN		255
#define LISTEN_PAGES	254

static int socket_fd = -1;
static const char *socket_path;

const char *nl_socket_path(const struct ctl *c)
{
	const char *path = c->opt[OPT_SOCKET].set ? c->opt[OPT_SOCKET].text : getenv("KVCTX_SOCKET");

	socket_path = path && *path ? path : NULL;
	return socket_path;
}

struct ctl nl_to_module(const struct ctl *c)
{
	struct ctl module = *c;

	module.opt[OPT_SOCKET] = (struct ctl_value){ .set = true, .text = "" };
	return module;
}

/* A packet as libnl takes it from the kernel */
static int socket_take(struct nl_sock *sk, struct sockaddr_nl *from, unsigned char **buf, struct ucred **creds)
{
	ssize_t n;

	(void)sk;
	(void)creds;
	*buf = malloc(MESSAGE_MAX);
	if (!*buf)
		return -NLE_NOMEM;
	do {
		n = recv(socket_fd, *buf, MESSAGE_MAX, 0);
	} while (n < 0 && errno == EINTR);
	if (n <= 0) {
		free(*buf);
		*buf = NULL;
		return -NLE_NODEV;
	}
	memset(from, 0, sizeof(*from));
	from->nl_family = AF_NETLINK;
	return (int)n;
}

static int socket_give(struct nl_sock *sk, struct nl_msg *msg)
{
	const struct nlmsghdr *nlh = nlmsg_hdr(msg);
	ssize_t n = send(socket_fd, nlh, nlh->nlmsg_len, MSG_NOSIGNAL);

	(void)sk;
	return n < 0 ? -NLE_NODEV : (int)n;
}

static int socket_refused(const struct ctl *c, int err)
{
	if (err == ECONNREFUSED || err == ENOENT)
		ctl_command_error(c, "%s: there is no kvctxd", socket_path);
	else
		ctl_command_error(c, "%s: %s", socket_path, strerror(err));
	return err == ECONNREFUSED ? CTL_NODEV : ctl_status_of(err);
}

/* A descriptor or -errno */
static int socket_connect(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd, err;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd >= 0 && !connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		return fd;
	err = errno;
	if (fd >= 0)
		close(fd);
	return -err;
}

int nl_socket_try(const char *path)
{
	int fd = socket_connect(path);

	if (fd < 0)
		return -fd;
	close(fd);
	return 0;
}

int nl_socket_open(const struct ctl *c, struct nl_sock *sk, int *family)
{
	struct nl_cb *cb;

	socket_fd = socket_connect(socket_path);
	if (socket_fd < 0)
		return socket_refused(c, -socket_fd);
	cb = nl_socket_get_cb(sk);
	nl_cb_overwrite_recv(cb, socket_take);
	nl_cb_overwrite_send(cb, socket_give);
	nl_cb_put(cb);
	*family = FAMILY;
	return CTL_OK;
}

int nl_socket_listen(struct nl_sock *sk, bool pages)
{
	return genl_send_simple(sk, FAMILY, pages ? LISTEN_PAGES : LISTEN, KVCTX_GENL_VERSION, 0);
}

void nl_socket_close(void)
{
	if (socket_fd >= 0)
		close(socket_fd);
	socket_fd = -1;
}

/* Beside the socket of the daemon's control plane are directories of pools, with a socket a tenant */
void nl_node(const char *pool, const char *tenant, char *node, size_t size)
{
	const char *slash = socket_path ? strrchr(socket_path, '/') : NULL;

	if (!socket_path)
		snprintf(node, size, "/dev/kvctx/%s/%s", pool, tenant);
	else
		snprintf(node, size, "%.*s%s/%s", slash ? (int)(slash + 1 - socket_path) : 0, socket_path, pool, tenant);
}
