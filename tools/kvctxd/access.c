// SPDX-License-Identifier: GPL-2.0
/*
 * Who may open a tenant: as the kernel decides by owner, group and mode of a device node.
 *
 * connect() needs write permission on the socket, so the socket lets in all who may read, and here is decided who may
 * read and who may write too. The identity is the one that connect() was called with, as the kernel vouches.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "kvctxd.h"

int kvd_peer_get(int sock, struct kvd_peer *peer)
{
	struct ucred cred;
	socklen_t len = sizeof(cred), room = 0;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return -errno;
	/* with no room it tells how much it needs */
	if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, NULL, &room) && errno != ERANGE)
		return -errno;
	peer->uid = cred.uid;
	peer->groups = malloc(sizeof(gid_t) + room);
	if (!peer->groups)
		return -ENOMEM;
	peer->groups[0] = cred.gid;
	if (room && getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, peer->groups + 1, &room)) {
		free(peer->groups);
		return -errno;
	}
	peer->nr_groups = 1 + room / sizeof(gid_t);
	return 0;
}

void kvd_peer_put(struct kvd_peer *peer)
{
	free(peer->groups);
}

static bool access_in_group(const struct kvd_peer *peer, gid_t gid)
{
	for (size_t i = 0; i < peer->nr_groups; i++)
		if (peer->groups[i] == gid)
			return true;
	return false;
}

bool kvd_may_open(const struct kvd_peer *peer, uid_t uid, gid_t gid, mode_t mode, int flags)
{
	mode_t wanted = (flags & O_ACCMODE) == O_RDWR ? 06 : 04;

	if (!peer->uid)
		return true;
	if (peer->uid == uid)
		mode >>= 6;
	else if (access_in_group(peer, gid))
		mode >>= 3;
	return (mode & wanted) == wanted;
}

mode_t kvd_socket_mode(mode_t mode)
{
	return (mode & 0444) >> 1;
}
