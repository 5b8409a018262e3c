// SPDX-License-Identifier: GPL-2.0
/*
 * Pools, and the sockets of their tenants: RUN/POOL/TENANT, with the tenant's owner and group.
 *
 * The run directory belongs to one daemon, which holds a lock on it. What a killed one has left there is removed when
 * its place is taken.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "control.h"
#include "engine.h"

pthread_mutex_t kvd_lock = PTHREAD_MUTEX_INITIALIZER;
struct kvd_pool *kvd_pools;
int kvd_loop = -1;

char kvd_run[KVD_RUN_MAX];
const char *kvd_pools_dir;
static int pools_lock_fd = -1;
static uint64_t pools_next_id = KVD_ID_TENANTS;
static pthread_cond_t pools_changed = PTHREAD_COND_INITIALIZER;		/* somebody has let go of one */
static pthread_mutex_t pools_arrive = PTHREAD_MUTEX_INITIALIZER;	/* one at a time; outside of kvd_lock */

int kvd_refuse(char *why, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, KVD_WHY, fmt, ap);
	va_end(ap);
	return err;
}

/* The run directory */

int kvd_run_open(const char *dir, char *why)
{
	char path[PATH_MAX];

	if (strlen(dir) >= sizeof(kvd_run))
		return kvd_refuse(why, -ENAMETOOLONG, "%s: too long a path for sockets below it", dir);
	if (mkdir(dir, 0755) && errno != EEXIST)
		return kvd_refuse(why, -errno, "%s: %s", dir, strerror(errno));
	snprintf(path, sizeof(path), "%s/.lock", dir);
	pools_lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (pools_lock_fd < 0)
		return kvd_refuse(why, -errno, "%s: %s", path, strerror(errno));
	if (flock(pools_lock_fd, LOCK_EX | LOCK_NB))
		return kvd_refuse(why, -EBUSY, "%s: another kvctxd has it", dir);
	strcpy(kvd_run, dir);
	return 0;
}

void kvd_run_close(void)
{
	if (pools_lock_fd >= 0)
		close(pools_lock_fd);
	pools_lock_fd = -1;
}

/* Sockets */

int kvd_listen(const char *path, uid_t uid, gid_t gid, mode_t mode, char *why)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err;

	if (sock < 0)
		return kvd_refuse(why, -errno, "%s: %s", path, strerror(errno));
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	unlink(path);
	/* nobody connects before it has its owner and mode: what is made by bind() has that of the socket */
	err = fchmod(sock, 0) || bind(sock, (struct sockaddr *)&addr, sizeof(addr)) ? -errno : 0;
	if (!err && (uid != geteuid() || gid != getegid()) && chown(path, uid, gid))
		err = -errno;
	if (!err && (chmod(path, mode) || listen(sock, SOMAXCONN)))
		err = -errno;
	if (!err)
		return sock;
	close(sock);
	return kvd_refuse(why, err, "%s: %s", path, strerror(-err));
}

int kvd_watch(int fd, uint64_t id)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = id };

	return epoll_ctl(kvd_loop, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

/* Tenants */

static void tenant_path(const struct kvd_pool *p, const char *name, char *path)
{
	snprintf(path, KVD_PATH_MAX, "%s/%s/%s", kvd_run, p->name, name);
}

struct kvd_tenant *kvd_tenant_find(struct kvd_pool *p, const char *name)
{
	struct kvd_tenant *t;

	for (t = p->tenants; t && strcmp(t->name, name); t = t->next)
		;
	return t;
}

struct kvd_tenant *kvd_tenant_by_id(uint64_t id)
{
	struct kvd_tenant *t = NULL;
	struct kvd_pool *p;

	for (p = kvd_pools; p && !t; p = p->next)
		for (t = p->tenants; t && t->id != id; t = t->next)
			;
	return t;
}

int kvd_tenant_show(struct kvd_pool *p, uint32_t slot, char *why)
{
	const struct kvc_super_tenant *from = &kvc_super_of(p->engine->core)->tenants[slot];
	struct kvd_tenant *t = calloc(1, sizeof(*t));
	char path[KVD_PATH_MAX];

	if (!t)
		return kvd_refuse(why, -ENOMEM, "out of memory");
	t->pool = p;
	t->slot = slot;
	t->uid = from->uid;
	t->gid = from->gid;
	t->mode = (mode_t)from->mode;
	snprintf(t->name, sizeof(t->name), "%s", from->name);
	tenant_path(p, t->name, path);
	t->sock = kvd_listen(path, t->uid, t->gid, kvd_socket_mode(t->mode), why);
	if (t->sock < 0) {
		int err = t->sock;

		free(t);
		return err;
	}
	pthread_mutex_lock(&kvd_lock);
	t->id = pools_next_id++;
	t->next = p->tenants;
	p->tenants = t;
	kvd_watch(t->sock, t->id);
	pthread_mutex_unlock(&kvd_lock);
	return 0;
}

/* No session of it is open, and kvd_lock is held */
void kvd_tenant_hide(struct kvd_tenant *t)
{
	struct kvd_tenant **link;
	char path[KVD_PATH_MAX];

	for (link = &t->pool->tenants; *link != t; link = &(*link)->next)
		;
	*link = t->next;
	tenant_path(t->pool, t->name, path);
	unlink(path);
	close(t->sock);
	free(t);
}

/* Pools */

/* kvd_lock held */
static struct kvd_pool *pool_find(const char *name)
{
	struct kvd_pool *p;

	for (p = kvd_pools; p && strcmp(p->name, name); p = p->next)
		;
	return p;
}

struct kvd_pool *kvd_pool_hold(const char *name, bool alone)
{
	struct kvd_pool *p;

	pthread_mutex_lock(&kvd_lock);
	while ((p = pool_find(name)) && alone && p->changes)
		pthread_cond_wait(&pools_changed, &kvd_lock);
	if (p) {
		p->users++;
		p->changes |= alone;
	}
	pthread_mutex_unlock(&kvd_lock);
	return p;
}

int kvd_pools_hold(struct kvd_pool ***out)
{
	struct kvd_pool *p;
	int nr = 0;

	pthread_mutex_lock(&kvd_lock);
	for (p = kvd_pools; p; p = p->next)
		nr++;
	*out = calloc((size_t)nr + 1, sizeof(**out));
	nr = 0;
	for (p = kvd_pools; p && *out; p = p->next) {
		p->users++;
		(*out)[nr++] = p;
	}
	pthread_mutex_unlock(&kvd_lock);
	return *out ? nr : -ENOMEM;
}

void kvd_pool_put(struct kvd_pool *p, bool alone)
{
	bool last;

	pthread_mutex_lock(&kvd_lock);
	p->users--;
	if (alone)
		p->changes = false;
	last = p->gone && !p->users;
	pthread_cond_broadcast(&pools_changed);
	pthread_mutex_unlock(&kvd_lock);
	if (!last)
		return;
	free(p->dir);
	free(p);
}

static void pool_directory(const struct kvd_pool *p, char *path)
{
	snprintf(path, KVD_PATH_MAX, "%s/%s", kvd_run, p->name);
}

static int pool_show(struct kvd_pool *p, char *why)
{
	const struct kvc_super *super = kvc_super_of(p->engine->core);
	char path[KVD_PATH_MAX];
	int err = 0;

	pool_directory(p, path);
	if (mkdir(path, 0755) && errno != EEXIST)
		return kvd_refuse(why, -errno, "%s: %s", path, strerror(errno));
	for (uint32_t slot = 0; slot < KVC_TENANTS_MAX && !err; slot++)
		if (super->tenants[slot].flags & KVC_TENANT_USED)
			err = kvd_tenant_show(p, slot, why);
	return err;
}

static void pool_hide_tenants(struct kvd_pool *p)
{
	struct kvd_tenant *t, *next;

	for (t = p->tenants; t; t = next) {
		next = t->next;
		kvd_tenant_hide(t);
	}
}

static void pool_hide(struct kvd_pool *p)
{
	char path[KVD_PATH_MAX];

	pool_hide_tenants(p);
	pool_directory(p, path);
	rmdir(path);
}

/* Not on the list any more, without tenants: clean on media when it returns, or when the devices have answered */
static int pool_let_go(struct kvd_pool *p, char *why)
{
	bool left = kve_pool_put(p->engine);

	return left ? 0 : kvd_refuse(why, -EINPROGRESS, "pool %s is detached when a device answers, which it does not now",
				     p->name);
}

static int pool_start(struct kvd_pool *p, char *why)
{
	int err = kve_pool_get(p->dir, &p->engine, why);
	bool there;

	if (err)
		return err;
	snprintf(p->name, sizeof(p->name), "%s", p->engine->name);
	pthread_mutex_lock(&kvd_lock);
	there = pool_find(p->name);
	pthread_mutex_unlock(&kvd_lock);
	if (there)
		err = kvd_refuse(why, -EEXIST, "a pool named %s is attached already", p->name);
	else
		err = pool_show(p, why);
	if (!err)
		return 0;
	pthread_mutex_lock(&kvd_lock);
	pool_hide_tenants(p);
	pthread_mutex_unlock(&kvd_lock);
	kve_pool_put(p->engine);
	return err;
}

int kvd_pool_attach(const char *dir, struct kvd_pool **out, char *why)
{
	struct kvd_pool *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return kvd_refuse(why, -ENOMEM, "%s: %s", dir, strerror(ENOMEM));
	p->users = 1;
	p->dir = realpath(dir, NULL);
	pthread_mutex_lock(&pools_arrive);
	err = p->dir ? pool_start(p, why) : kvd_refuse(why, -errno, "%s: %s", dir, strerror(errno));
	if (!err) {
		pthread_mutex_lock(&kvd_lock);
		p->next = kvd_pools;
		kvd_pools = p;
		pthread_mutex_unlock(&kvd_lock);
		*out = p;
	}
	pthread_mutex_unlock(&pools_arrive);
	if (err) {
		free(p->dir);
		free(p);
	}
	return err;
}

int kvd_pool_detach(struct kvd_pool *p, char *why)
{
	struct kvd_pool **link;
	uint32_t sessions = 0;

	pthread_mutex_lock(&kvd_lock);
	for (struct kvd_tenant *t = p->tenants; t; t = t->next)
		sessions += t->sessions;
	if (sessions) {
		pthread_mutex_unlock(&kvd_lock);
		return kvd_refuse(why, -EBUSY, "%u sessions of pool %s are open", sessions, p->name);
	}
	pool_hide(p);
	for (link = &kvd_pools; *link != p; link = &(*link)->next)
		;
	*link = p->next;
	p->gone = true;
	/* who reads */
	while (p->users > 1)
		pthread_cond_wait(&pools_changed, &kvd_lock);
	pthread_mutex_unlock(&kvd_lock);
	if (p->pages)
		p->end_pages(p);
	return pool_let_go(p, why);
}
