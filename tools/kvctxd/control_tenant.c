// SPDX-License-Identifier: GPL-2.0
/*
 * Requests of kvctxctl about tenants, as kmod/control/tenant.c has them for the kernel.
 *
 * What is said of a tenant is in the engine's configuration, and in force from then on, before it is on media; where no
 * superblock can be written the caller is told what that means.
 */
#include <errno.h>
#include <string.h>

#include "../common/limits.h"
#include "control.h"
#include "engine.h"
#include "pools.h"
#include "share.h"

static int control_tenant(struct control_request *rq, struct kvd_pool *p, struct kvd_tenant **out)
{
	const char *name = control_text(rq, KVCTX_A_TENANT);

	if (!name) {
		kvd_answer_refuse(rq, -EINVAL, "the request lacks the name of the tenant");
		return -EINVAL;
	}
	*out = kvd_tenant_find(p, name);
	if (*out)
		return 0;
	kvd_refuse(rq->why, -ENOENT, "no tenant named %s", name);
	return -ENOENT;
}

static int control_refuse_add(struct control_request *rq, struct kvd_pool *p, const char *name, int err)
{
	switch (err) {
	case -EEXIST:
		return kvd_refuse(rq->why, err, "tenant %s exists already", name);
	case -ENOSPC:
		return kvd_refuse(rq->why, err, "pool %s has no room for another tenant", p->name);
	case -EINVAL:
		return kvd_refuse(rq->why, err, "a tenant's name is 1 to 31 of A-Z a-z 0-9 . _ -");
	default:
		return kvd_refuse(rq->why, err, "tenant %s cannot be added, error %d", name, -err);
	}
}

static void control_forget_tenant(struct kve_pool *p, const char *name)
{
	pthread_mutex_lock(&p->config_lock);
	kvc_tenant_remove(p->core, name);
	pthread_mutex_unlock(&p->config_lock);
}

static void control_take_u64(u64 *value, struct nlattr *attr)
{
	if (attr)
		*value = nla_get_u64(attr);
}

static void control_take_u32(u32 *value, struct nlattr *attr)
{
	if (attr)
		*value = nla_get_u32(attr);
}

/* The limits in @l with what the request gives instead */
static int control_limits(struct control_request *rq, struct kvc_limits *l)
{
	struct nlattr *a[KVCTX_L_MAX + 1];

	if (!rq->attrs[KVCTX_A_LIMITS])
		return 0;
	if (nla_parse_nested(a, KVCTX_L_MAX, rq->attrs[KVCTX_A_LIMITS], limits_policy) < 0)
		return kvd_answer_refuse(rq, -EINVAL, "the limits are malformed");
	control_take_u64(&l->quota, a[KVCTX_L_QUOTA]);
	control_take_u64(&l->reserve, a[KVCTX_L_RESERVE]);
	control_take_u64(&l->write_budget, a[KVCTX_L_WRITE_BUDGET]);
	control_take_u64(&l->pinned, a[KVCTX_L_PINNED]);
	control_take_u64(&l->leased, a[KVCTX_L_LEASED]);
	control_take_u64(&l->bandwidth, a[KVCTX_L_BANDWIDTH]);
	control_take_u32(&l->keyspaces, a[KVCTX_L_KEYSPACES]);
	control_take_u32(&l->inflight, a[KVCTX_L_INFLIGHT]);
	control_take_u32(&l->weight, a[KVCTX_L_WEIGHT]);
	if (a[KVCTX_L_FLAGS]) {
		if (nla_get_u32(a[KVCTX_L_FLAGS]) & ~KVCTX_LIMIT_NO_URGENT)
			return kvd_answer_refuse(rq, -EINVAL, "an unknown flag of limits");
		l->flags = nla_get_u32(a[KVCTX_L_FLAGS]) ? KVC_LIMIT_NO_URGENT : 0;
	}
	return kvc_limits_ok(l) ? 0 :
	       kvd_answer_refuse(rq, -EINVAL, "reserve: at most the quota, write budget: 1M to 1E, weight: at most 10000");
}

/* In force at once; the caller, who holds super_lock, writes the superblocks */
static int control_limit(struct control_request *rq, struct kve_pool *p, const char *name,
			 const struct kvc_limits *limits)
{
	int err;

	pthread_mutex_lock(&p->config_lock);
	err = kvc_tenant_limit(p->core, name, limits);
	pthread_mutex_unlock(&p->config_lock);
	if (err == -ENOSPC)
		return kvd_refuse(rq->why, err,
				  "the pool cannot keep all reserves, or cannot give %s segments of its own", name);
	return err ? kvd_refuse(rq->why, err, "limits of %s cannot be set, error %d", name, -err) : 0;
}

#define SET	"set until detach: "

/* Of all members; super_lock held. @otherwise: what it means when nobody took it */
static int control_write(char *why, struct kve_pool *p, const char *otherwise)
{
	return kve_members_write_super(p) ? kvd_refuse(why, -EIO, "%sno superblock could be written", otherwise) : 0;
}

static int control_refuse_key(struct control_request *rq, const char *name, int err)
{
	switch (err) {
	case -ENOKEY:
		return kvd_refuse(rq->why, err, "kvctxd's keyrings have no key %s of type user that it can read", name);
	case -EKEYREVOKED:
	case -EKEYEXPIRED:
		return kvd_refuse(rq->why, err, "key %s was revoked, or has expired", name);
	case -EKEYREJECTED:
		return kvd_refuse(rq->why, err, "key %s is not 64 bytes for AES-256-XTS", name);
	default:
		return kvd_refuse(rq->why, err, "key %s cannot be used, error %d", name, -err);
	}
}

/* Is the tenant's key there? Sessions look for it by themselves. */
static int control_unlock(struct control_request *rq, struct kvd_tenant *t)
{
	struct kve_pool *p = t->pool->engine;
	struct kvc_super_key key;
	int err;

	pthread_mutex_lock(&p->config_lock);
	key = kvc_super_of(p->core)->keys[t->slot];
	pthread_mutex_unlock(&p->config_lock);
	if (!key.name[0])
		return kvd_refuse(rq->why, -EINVAL, "pages of tenant %s are not encrypted", t->name);
	err = kve_share_has_key(&key);
	if (err == -EKEYREJECTED)
		return kvd_refuse(rq->why, err, "key %s is not the one that tenant %s was added with", key.name, t->name);
	return err ? control_refuse_key(rq, key.name, err) : 0;
}

/*
 * In the configuration and on media, or neither. Its slot. Limits are another change, with a superblock of its own: the
 * slots on media alternate.
 */
static int control_make_tenant(struct control_request *rq, struct kvd_pool *p, const char *name,
			       const struct kvc_limits *limits, const struct kvc_super_key *key)
{
	uint32_t flags = control_number(rq, KVCTX_A_TENANT_FLAGS, 0);
	struct kve_pool *engine = p->engine;
	int slot, err = 0;

	pthread_mutex_lock(&engine->super_lock);
	pthread_mutex_lock(&engine->config_lock);
	slot = kvc_tenant_add_keyed(engine->core, name, control_number(rq, KVCTX_A_UID, 0),
				    control_number(rq, KVCTX_A_GID, 0), control_number(rq, KVCTX_A_MODE, 0600),
				    flags & KVCTX_TENANT_VERIFIED ? KVC_TENANT_VERIFIED : 0, key);
	pthread_mutex_unlock(&engine->config_lock);
	if (slot >= 0)
		err = control_write(rq->why, engine, "");
	if (slot >= 0 && !err && rq->attrs[KVCTX_A_LIMITS])
		err = control_limit(rq, engine, name, limits) ?: control_write(rq->why, engine, "");
	if (err) {
		control_forget_tenant(engine, name);
		kve_members_write_super(engine);
	}
	pthread_mutex_unlock(&engine->super_lock);
	if (slot < 0)
		return control_refuse_add(rq, p, name, slot);
	return err ?: slot;
}

static int control_unmake_tenant(char *why, struct kve_pool *p, const char *name)
{
	int err;

	pthread_mutex_lock(&p->super_lock);
	control_forget_tenant(p, name);
	err = control_write(why, p, "removed until detach: ");
	if (!err)
		kvc_tenants_gone(p->core);
	pthread_mutex_unlock(&p->super_lock);
	return err;
}

int kvd_control_add_tenant(struct control_request *rq, struct kvd_pool *p)
{
	const char *name = control_text(rq, KVCTX_A_TENANT), *key_name = control_text(rq, KVCTX_A_TENANT_KEY);
	struct kvc_limits limits = {};
	struct kvc_super_key key;
	char unheard[KVD_WHY];
	int err, slot;

	if (!name)
		return kvd_answer_refuse(rq, -EINVAL, "the request lacks the name of the tenant");
	if (control_number(rq, KVCTX_A_MODE, 0) & ~0777U ||
	    control_number(rq, KVCTX_A_TENANT_FLAGS, 0) & ~KVCTX_TENANT_VERIFIED)
		return -EINVAL;
	err = control_limits(rq, &limits);
	if (err)
		return err;
	if (key_name && !kvc_key_name_ok(key_name))
		return kvd_refuse(rq->why, -EINVAL, "a key's name is 1 to 47 printable characters, no spaces");
	err = key_name ? kve_share_key(key_name, &key) : 0;
	if (err)
		return control_refuse_key(rq, key_name, err);
	slot = control_make_tenant(rq, p, name, &limits, key_name ? &key : NULL);
	if (slot < 0)
		return slot;
	err = kvd_tenant_show(p, (uint32_t)slot, rq->why);
	if (err)
		control_unmake_tenant(unheard, p->engine, name);
	return err;
}

static int control_busy(struct control_request *rq, const struct kvd_tenant *t)
{
	return kvd_refuse(rq->why, -EBUSY, "%u sessions of tenant %s are open", t->sessions, t->name);
}

/* In the configuration, unless somebody counts on them; super_lock held. @dry_run: could they be set? */
static int control_flags(struct control_request *rq, struct kvd_tenant *t, uint32_t flags, bool dry_run)
{
	struct kve_pool *p = t->pool->engine;
	int err = 0;

	/* who connects from now on finds the new flags */
	pthread_mutex_lock(&kvd_lock);
	pthread_mutex_lock(&p->config_lock);
	if (t->sessions)
		err = control_busy(rq, t);
	else if (!dry_run)
		kvc_tenant_set(p->core, t->name, flags ? KVC_TENANT_VERIFIED : 0);
	pthread_mutex_unlock(&p->config_lock);
	pthread_mutex_unlock(&kvd_lock);
	return err;
}

/* All of it, in the configuration and on media, or nothing; NULL stays as it is. super_lock held */
static int control_change(struct control_request *rq, struct kvd_tenant *t, const uint32_t *flags,
			  const struct kvc_limits *limits)
{
	struct kve_pool *p = t->pool->engine;
	const struct kvc_limits before = kvc_super_of(p->core)->limits[t->slot];
	/* not even for a moment: a quota could cost pages */
	int err = flags ? control_flags(rq, t, *flags, true) : 0;

	if (!err && limits)
		err = control_limit(rq, p, t->name, limits) ?: control_write(rq->why, p, SET);
	if (err || !flags)
		return err;
	err = control_flags(rq, t, *flags, false);
	if (!err)
		return control_write(rq->why, p, SET);
	if (limits) {
		control_limit(rq, p, t->name, &before);
		kve_members_write_super(p);
	}
	return err;
}

int kvd_control_set_tenant(struct control_request *rq, struct kvd_pool *pool)
{
	uint32_t flags = control_number(rq, KVCTX_A_TENANT_FLAGS, 0);
	struct kve_pool *p = pool->engine;
	struct kvc_limits limits;
	struct kvd_tenant *t;
	int err = control_tenant(rq, pool, &t);

	if (err)
		return err;
	if (!rq->attrs[KVCTX_A_TENANT_FLAGS] && !rq->attrs[KVCTX_A_LIMITS] && !rq->attrs[KVCTX_A_TENANT_UNLOCK])
		return kvd_answer_refuse(rq, -EINVAL, "the request lacks the limits or flags of the tenant");
	if (flags & ~KVCTX_TENANT_VERIFIED)
		return -EINVAL;
	limits = kvc_super_of(p->core)->limits[t->slot];
	err = control_limits(rq, &limits);
	if (err)
		return err;
	if (rq->attrs[KVCTX_A_TENANT_UNLOCK])
		err = control_unlock(rq, t);
	if (err)
		return err;
	pthread_mutex_lock(&p->super_lock);
	err = control_change(rq, t, rq->attrs[KVCTX_A_TENANT_FLAGS] ? &flags : NULL,
			     rq->attrs[KVCTX_A_LIMITS] ? &limits : NULL);
	pthread_mutex_unlock(&p->super_lock);
	return err;
}

int kvd_control_remove_tenant(struct control_request *rq, struct kvd_pool *p)
{
	char name[KVCTX_NAME_MAX];
	struct kvd_tenant *t;
	int err = control_tenant(rq, p, &t);

	if (err)
		return err;
	memcpy(name, t->name, sizeof(name));
	pthread_mutex_lock(&kvd_lock);
	if (t->sessions)
		err = control_busy(rq, t);
	else
		kvd_tenant_hide(t);
	pthread_mutex_unlock(&kvd_lock);
	return err ? err : control_unmake_tenant(rq->why, p->engine, name);
}

static int control_put_each(struct control_request *rq, struct kvd_pool *p,
			    int (*report)(struct nl_msg *msg, struct kvd_tenant *t))
{
	int err = 0;

	pthread_mutex_lock(&kvd_lock);
	for (struct kvd_tenant *t = p->tenants; t && !err; t = t->next) {
		struct nl_msg *msg = kvd_answer_object(rq);

		err = msg ? kvd_answer_put(rq, msg, report(msg, t)) : -ENOMEM;
	}
	pthread_mutex_unlock(&kvd_lock);
	return err;
}

int kvd_control_put_tenants(struct control_request *rq, struct kvd_pool *p)
{
	return control_put_each(rq, p, kvd_report_tenant);
}

int kvd_control_put_tenant_stats(struct control_request *rq, struct kvd_pool *p)
{
	return control_put_each(rq, p, kvd_report_tenant_stats);
}
