// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The pools of this process: one engine serves each, for all that ask for its directory.
 *
 * The first one who asks attaches it. It is on the list meanwhile, so others who ask for it wait, and nobody else does.
 *
 * The last one who lets go of a pool has it detached by a thread, for which he waits no longer than KVE_PATIENCE: the
 * last writes may go to a device that does not answer. The pool is on the list meanwhile, and nobody gets it.
 */
#include <sys/stat.h>

#include <linux/kvctx.h>

#include "pools.h"

pthread_mutex_t kve_admin_lock = PTHREAD_MUTEX_INITIALIZER;

static struct kve_pool *pool_list;		/* kve_admin_lock */
static u64 pool_number;				/* of the last one; kve_admin_lock */
static pthread_once_t pool_once = PTHREAD_ONCE_INIT;
static pthread_cond_t pool_changed;		/* one of them has been attached, or not, or detached */

static void pool_init(void)
{
	kve_cond_init(&pool_changed);
}

static struct kve_pool *pool_find(const struct stat *st)
{
	struct kve_pool *p;

	for (p = pool_list; p && (p->dir_dev != st->st_dev || p->dir_ino != st->st_ino); p = p->next)
		;
	return p;
}

static void pool_free(struct kve_pool *p)
{
	u32 i;

	kve_members_exit(p);
	pthread_cond_destroy(&p->leave);
	pthread_cond_destroy(&p->attend);
	pthread_mutex_destroy(&p->holders_lock);
	pthread_mutex_destroy(&p->config_lock);
	pthread_mutex_destroy(&p->super_lock);
	pthread_mutex_destroy(&p->lock);
	free(p->waits);
	for (i = 0; i < KVC_TENANTS_MAX; i++)
		os_free(p->accounts[i].tally);
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
	/* its entries change while it is in use, wherever the program is then */
	p->dir = realpath(dir, NULL);
	pthread_mutex_init(&p->lock, NULL);
	pthread_mutex_init(&p->super_lock, NULL);
	pthread_mutex_init(&p->config_lock, NULL);
	pthread_mutex_init(&p->holders_lock, NULL);
	kve_members_init(p);
	if (kve_cond_init(&p->attend) || kve_cond_init(&p->leave) || !p->dir) {
		pool_free(p);
		return NULL;
	}
	return p;
}

/* It is gone on return. kve_admin_lock */
static void pool_forget(struct kve_pool *p)
{
	struct kve_pool **at;

	for (at = &pool_list; *at != p; at = &(*at)->next)
		;
	*at = p->next;
	pool_free(p);
	pthread_cond_broadcast(&pool_changed);
}

/* Not on the list yet. kve_admin_lock, but not over the I/O */
static int pool_attach(const char *dir, const struct stat *st, struct kve_pool **out, char *why)
{
	struct kve_pool *p = pool_alloc(dir, st);
	int err;

	if (!p)
		return kve_refuse(why, -ENOMEM, "out of memory");
	p->arriving = true;
	p->number = ++pool_number;
	p->next = pool_list;
	pool_list = p;
	pthread_mutex_unlock(&kve_admin_lock);
	err = kve_attach(p, why);
	pthread_mutex_lock(&kve_admin_lock);
	if (err) {
		pool_forget(p);
		return err;
	}
	p->arriving = false;
	pthread_cond_broadcast(&pool_changed);
	*out = p;
	return 0;
}

/* Wait until it has come or gone; for one that is detached no longer than @until. kve_admin_lock */
static struct kve_pool *pool_settled(const struct stat *st, u64 until)
{
	struct kve_pool *p;

	while ((p = pool_find(st)) && (p->arriving || (p->leaving && kve_now() < until)))
		kve_cond_wait(&pool_changed, &kve_admin_lock, p->arriving ? KVE_NEVER : until);
	return p;
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
	pthread_once(&pool_once, pool_init);
	pthread_mutex_lock(&kve_admin_lock);
	*out = pool_settled(&st, kve_now() + KVE_PATIENCE);
	if (!*out)
		err = pool_attach(dir, &st, out, why);
	else if ((*out)->leaving)
		err = kve_refuse(why, -EBUSY, "%s: still being detached: a device does not answer", dir);
	if (!err)
		(*out)->users++;
	pthread_mutex_unlock(&kve_admin_lock);
	return err;
}

static void *pool_detach(void *arg)
{
	struct kve_pool *p = arg;

	kve_detach(p);
	pthread_mutex_lock(&kve_admin_lock);
	pool_forget(p);
	pthread_mutex_unlock(&kve_admin_lock);
	return NULL;
}

/* Is it on the list, leaving? Another one may have taken its place, also in memory. kve_admin_lock */
static bool pool_leaves(const struct kve_pool *p, u64 number)
{
	const struct kve_pool *each;

	for (each = pool_list; each && (each != p || each->number != number); each = each->next)
		;
	return each;
}

bool kve_pool_put(struct kve_pool *p)
{
	u64 number = p->number, until = kve_now() + KVE_PATIENCE;
	pthread_t thread;
	bool left;

	pthread_mutex_lock(&kve_admin_lock);
	if (--p->users) {
		pthread_mutex_unlock(&kve_admin_lock);
		return true;
	}
	p->leaving = true;
	if (kve_thread_start(&thread, pool_detach, p, "kvctx-detach")) {
		pthread_mutex_unlock(&kve_admin_lock);
		pool_detach(p);
		return true;
	}
	while (pool_leaves(p, number) && kve_now() < until)
		kve_cond_wait(&pool_changed, &kve_admin_lock, until);
	left = !pool_leaves(p, number);
	pthread_mutex_unlock(&kve_admin_lock);
	if (left)
		pthread_join(thread, NULL);
	else
		pthread_detach(thread);
	return left;
}

int kve_pool_tenant(struct kve_pool *p, const char *name, u32 *slot, u32 *flags)
{
	const struct kvc_super_tenant *t = kvc_super_of(p->core)->tenants;
	int err = -ENOENT;
	u32 i;

	pthread_mutex_lock(&p->config_lock);
	for (i = 0; i < KVC_TENANTS_MAX && err; i++) {
		if (!(t[i].flags & KVC_TENANT_USED) || strncmp(t[i].name, name, KVC_NAME_MAX))
			continue;
		*slot = i;
		*flags = (t[i].flags & KVC_TENANT_VERIFIED ? KVCTX_TENANT_VERIFIED : 0) |
			 (t[i].flags & KVC_TENANT_ENCRYPTED ? KVCTX_TENANT_ENCRYPTED : 0);
		err = 0;
	}
	pthread_mutex_unlock(&p->config_lock);
	return err;
}
