// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * kvctx_pool_add(), kvctx_pool_remove(): grow.c for programs that have a pool in their process, by its directory.
 */
#include <unistd.h>

#include "engine.h"
#include "kvctx.h"

#define RESIZE_LOOK_US	10000

static int resize_end(struct kve_pool *p, const char *dir, int err, const char *why)
{
	if (err)
		kve_log(LOG_ERR, "%s: %s", dir, why);
	if (p)
		kve_pool_put(p);
	return err;
}

KVE_PUBLIC int kvctx_pool_add(const char *dir, const char *path, uint64_t bytes)
{
	struct kve_pool *p = NULL;
	char why[KVE_WHY] = "";
	int err = kve_pool_get(dir, &p, why);

	if (err)
		p = NULL;
	else
		err = kve_pool_add(p, path, bytes, false, why);
	return resize_end(p, dir, err, why);
}

/* The number of the member that @path leads to; KVC_MEMBERS_MAX: none */
static u32 resize_find(struct kve_pool *p, const char *path)
{
	u32 i, nr = kve_nr_members(p), found = KVC_MEMBERS_MAX;

	/* a device is closed under this lock, when its member is removed */
	pthread_mutex_lock(&p->super_lock);
	for (i = 0; i < nr && found == KVC_MEMBERS_MAX; i++)
		if (!(kve_member_state(&p->members[i]) & (KVE_MEMBER_REMOVED | KVE_MEMBER_MISSING)) &&
		    kve_device_is(p->members[i].dev, path))
			found = i;
	pthread_mutex_unlock(&p->super_lock);
	return found;
}

static u32 resize_member(struct kve_pool *p, const char *what)
{
	u32 found = resize_find(p, what);
	unsigned long nr;
	char *end;

	if (found < KVC_MEMBERS_MAX)
		return found;
	nr = strtoul(what, &end, 10);
	return *what >= '0' && *what <= '9' && !*end && nr < KVC_MEMBERS_MAX ? (u32)nr : found;
}

static bool resize_removed(const struct kve_member *m)
{
	return kve_member_state(m) & KVE_MEMBER_REMOVED;
}

/* Until the member is none any more, or stays */
static int resize_wait(const struct kve_member *m, char *why)
{
	while (!resize_removed(m)) {
		if (!kvc_member_leaves(m->pool->core, m->index) && !resize_removed(m))
			return kve_refuse(why, -EIO, "member %u stays until the next attach: another one was lost",
					  m->index);
		usleep(RESIZE_LOOK_US);
	}
	return 0;
}

KVE_PUBLIC int kvctx_pool_remove(const char *dir, const char *member, unsigned int flags)
{
	struct kve_pool *p = NULL;
	char why[KVE_WHY] = "";
	int err;
	u32 i;

	if (flags & ~KVCTX_POOL_DROP)
		return -EINVAL;
	err = kve_pool_get(dir, &p, why);
	if (err)
		return resize_end(NULL, dir, err, why);
	i = resize_member(p, member);
	if (i == KVC_MEMBERS_MAX)
		err = kve_refuse(why, -ENOENT, "%s: no member of pool %s", member, p->name);
	else
		err = kve_pool_remove(p, i, !(flags & KVCTX_POOL_DROP), why);
	if (!err)
		err = resize_wait(&p->members[i], why);
	return resize_end(p, dir, err, why);
}
