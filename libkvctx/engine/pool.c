// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The pools of this process: one engine serves each, for all that ask for its directory.
 */
#include <sys/stat.h>

#include <linux/kvctx.h>

#include "pools.h"

pthread_mutex_t kve_admin_lock = PTHREAD_MUTEX_INITIALIZER;

static struct kve_pool *pool_list;		/* kve_admin_lock */

static struct kve_pool *pool_find(const struct stat *st)
{
	struct kve_pool *p;

	for (p = pool_list; p && (p->dir_dev != st->st_dev || p->dir_ino != st->st_ino); p = p->next)
		;
	return p;
}

static void pool_free(struct kve_pool *p)
{
	pthread_cond_destroy(&p->attend);
	pthread_mutex_destroy(&p->super_lock);
	pthread_mutex_destroy(&p->lock);
	free(p->waits);
	free(p->dir);
	free(p);
}

static struct kve_pool *pool_alloc(const char *dir, const struct stat *st)
{
	struct kve_pool *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->dir_dev = st->st_dev;
	p->dir_ino = st->st_ino;
	p->dir = strdup(dir);
	pthread_mutex_init(&p->lock, NULL);
	pthread_mutex_init(&p->super_lock, NULL);
	if (kve_cond_init(&p->attend) || !p->dir) {
		pool_free(p);
		return NULL;
	}
	return p;
}

/* Not attached yet. kve_admin_lock */
static int pool_attach(const char *dir, const struct stat *st, struct kve_pool **out, char *why)
{
	struct kve_pool *p = pool_alloc(dir, st);
	int err;

	if (!p)
		return kve_refuse(why, -ENOMEM, "out of memory");
	err = kve_attach(p, why);
	if (err) {
		pool_free(p);
		return err;
	}
	p->next = pool_list;
	pool_list = p;
	*out = p;
	return 0;
}

int kve_pool_get(const char *dir, struct kve_pool **out, char *why)
{
	struct stat st;
	int err = 0;

	if (kve_forked())
		return kve_refuse(why, -ENODEV, "%s: this process is a fork of one that uses the engine", dir);
	if (kve_broken())
		return kve_refuse(why, -ENODEV, "%s: an invariant of this process's engine is broken", dir);
	if (stat(dir, &st))
		return kve_refuse(why, -errno, "%s: %s", dir, strerror(errno));
	pthread_mutex_lock(&kve_admin_lock);
	*out = pool_find(&st);
	if (!*out)
		err = pool_attach(dir, &st, out, why);
	if (!err)
		(*out)->users++;
	pthread_mutex_unlock(&kve_admin_lock);
	return err;
}

void kve_pool_put(struct kve_pool *p)
{
	struct kve_pool **at;

	pthread_mutex_lock(&kve_admin_lock);
	if (!--p->users) {
		for (at = &pool_list; *at != p; at = &(*at)->next)
			;
		*at = p->next;
		kve_detach(p);
		pool_free(p);
	}
	pthread_mutex_unlock(&kve_admin_lock);
}

int kve_pool_tenant(struct kve_pool *p, const char *name, u32 *slot, u32 *flags)
{
	const struct kvc_super_tenant *t = kvc_super_of(p->core)->tenants;
	int err = -ENOENT;
	u32 i;

	pthread_mutex_lock(&p->super_lock);
	for (i = 0; i < KVC_TENANTS_MAX && err; i++) {
		if (!(t[i].flags & KVC_TENANT_USED) || strncmp(t[i].name, name, KVC_NAME_MAX))
			continue;
		*slot = i;
		*flags = t[i].flags & KVC_TENANT_VERIFIED ? KVCTX_TENANT_VERIFIED : 0;
		err = 0;
	}
	pthread_mutex_unlock(&p->super_lock);
	return err;
}
