// SPDX-License-Identifier: GPL-2.0
/*
 * Tenants and their device nodes /dev/kvctx/<pool>/<tenant>.
 *
 * All minors belong to one character device; open() finds the tenant by minor. A tenant is in the table exactly as long
 * as its node exists, both change under kvctx_mutex, and so does the count of sessions that keeps them.
 *
 * Containers get nodes by number, made with mknod, and device cgroups allow numbers. A minor that was given back is
 * therefore not given out again soon, and the first one is random: a node that was forgotten somewhere opens nothing
 * rather than another tenant.
 *
 * The node's struct device has a life of its own, since sysfs may hold on to it: it knows what devtmpfs asks for and
 * points to nothing of ours.
 */
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/uidgid.h>
#include <linux/xarray.h>

#include "ctrl.h"

#define KVCTX_MINORS		(1U << MINORBITS)

struct kvctx_node {
	struct device dev;		/* named <pool>!<tenant> */
	kuid_t uid;
	kgid_t gid;
	umode_t mode;
};

static dev_t kvctx_devt;
static struct cdev kvctx_cdev;
static u32 kvctx_next_minor;				/* where to look for a free one; kvctx_mutex */

static const struct class kvctx_class = {
	.name	= "kvctx",
};

static char *kvctx_node_path(const struct device *dev, umode_t *mode, kuid_t *uid, kgid_t *gid)
{
	const struct kvctx_node *node = container_of_const(dev, struct kvctx_node, dev);
	char *path;

	if (mode)
		*mode = node->mode;
	if (uid)
		*uid = node->uid;
	if (gid)
		*gid = node->gid;
	/* without a path the driver core takes the name for one, and makes a node there, or leaves ours behind */
	path = kasprintf(GFP_KERNEL | __GFP_NOFAIL, "kvctx/%s", dev_name(dev));
	strreplace(path, '!', '/');
	return path;
}

static void kvctx_node_release(struct device *dev)
{
	kfree(container_of(dev, struct kvctx_node, dev));
}

static const struct device_type kvctx_node_type = {
	.name		= "kvctx_tenant",
	.devnode	= kvctx_node_path,
	.release	= kvctx_node_release,
};

static struct device *kvctx_node_create(const char *pool, const struct kvc_super_tenant *config, u32 minor)
{
	struct kvctx_node *node = kzalloc(sizeof(*node), GFP_KERNEL);
	int err;

	if (!node)
		return ERR_PTR(-ENOMEM);
	device_initialize(&node->dev);
	node->dev.class = &kvctx_class;
	node->dev.type = &kvctx_node_type;
	node->dev.devt = MKDEV(MAJOR(kvctx_devt), minor);
	/* media may hold an id that is none */
	node->uid = make_kuid(&init_user_ns, config->uid);
	if (!uid_valid(node->uid))
		node->uid = GLOBAL_ROOT_UID;
	node->gid = make_kgid(&init_user_ns, config->gid);
	if (!gid_valid(node->gid))
		node->gid = GLOBAL_ROOT_GID;
	node->mode = config->mode;
	err = dev_set_name(&node->dev, "%s!%s", pool, config->name);
	if (!err)
		err = device_add(&node->dev);
	if (err) {
		put_device(&node->dev);
		return ERR_PTR(err);
	}
	return &node->dev;
}

static void kvctx_tenant_destroy(struct kvctx_tenant *t)
{
	lockdep_assert_held(&kvctx_mutex);
	xa_erase(&kvctx_minors, t->minor);
	device_unregister(t->dev);
	list_del(&t->node);
	kfree(t);
	kvctx_generation++;
}

static struct kvctx_tenant *kvctx_tenant_create(struct kvctx_pool *p, u32 slot)
{
	const struct kvc_super_tenant *config = &kvc_super_of(p->core)->tenants[slot];
	struct kvctx_tenant *t = kzalloc(sizeof(*t), GFP_KERNEL);
	int err = -ENOMEM;

	lockdep_assert_held(&kvctx_mutex);
	if (!t)
		return ERR_PTR(-ENOMEM);
	t->pool = p;
	t->slot = slot;
	t->flags = config->flags & KVC_TENANT_VERIFIED ? KVCTX_TENANT_VERIFIED : 0;
	strscpy(t->name, config->name);
	err = xa_alloc_cyclic(&kvctx_minors, &t->minor, t, XA_LIMIT(0, KVCTX_MINORS - 1), &kvctx_next_minor,
			      GFP_KERNEL);
	if (err < 0)
		goto err_free;
	/* who opens the node before we are done waits for the mutex */
	t->dev = kvctx_node_create(p->name, config, t->minor);
	if (IS_ERR(t->dev)) {
		err = PTR_ERR(t->dev);
		goto err_minor;
	}
	list_add_tail(&t->node, &p->tenants);
	kvctx_generation++;
	return t;

err_minor:
	xa_erase(&kvctx_minors, t->minor);
err_free:
	kfree(t);
	return ERR_PTR(err);
}

void kvctx_tenants_destroy(struct kvctx_pool *p)
{
	struct kvctx_tenant *t, *next;

	list_for_each_entry_safe(t, next, &p->tenants, node)
		kvctx_tenant_destroy(t);
}

/* Nodes for all tenants of the superblock, or for none */
int kvctx_tenants_create(struct kvctx_pool *p)
{
	const struct kvc_super *super = kvc_super_of(p->core);
	struct kvctx_tenant *t;
	u32 slot;

	for (slot = 0; slot < KVC_TENANTS_MAX; slot++) {
		if (!(super->tenants[slot].flags & KVC_TENANT_USED))
			continue;
		t = kvctx_tenant_create(p, slot);
		if (IS_ERR(t)) {
			kvctx_tenants_destroy(p);
			return PTR_ERR(t);
		}
	}
	return 0;
}

struct kvctx_tenant *kvctx_tenant_find(struct kvctx_pool *p, const char *name)
{
	struct kvctx_tenant *t;

	list_for_each_entry(t, &p->tenants, node)
		if (!strcmp(t->name, name))
			return t;
	return NULL;
}

static int kvctx_refuse_add(struct kvctx_pool *p, const char *name, int err, struct netlink_ext_ack *extack)
{
	switch (err) {
	case -EEXIST:
		return kvctx_refuse(extack, NULL, err, "tenant %s exists already", name);
	case -ENOSPC:
		return kvctx_refuse(extack, NULL, err, "pool %s has no room for another tenant", p->name);
	case -EINVAL:
		return kvctx_refuse(extack, NULL, err, "a tenant's name is 1 to 31 of A-Z a-z 0-9 . _ -");
	default:
		return kvctx_refuse(extack, NULL, err, "tenant %s cannot be added, error %d", name, -err);
	}
}

static u32 kvctx_media_flags(u32 flags)
{
	return flags & KVCTX_TENANT_VERIFIED ? KVC_TENANT_VERIFIED : 0;
}

/* Take a tenant out of the configuration again, on media too. */
static void kvctx_tenant_forget(struct kvctx_pool *p, const char *name)
{
	mutex_lock(&kvctx_mutex);
	kvc_tenant_remove(p->core, name);
	mutex_unlock(&kvctx_mutex);
	if (!kvctx_members_write_super(p))
		kvc_tenants_gone(p->core);
}

/* In force at once; the caller writes the superblocks */
static int kvctx_limit(struct kvctx_pool *p, const char *name, const struct kvc_limits *limits,
		       struct netlink_ext_ack *extack)
{
	int err;

	mutex_lock(&kvctx_mutex);
	err = kvc_tenant_limit(p->core, name, limits);
	kvctx_generation++;
	mutex_unlock(&kvctx_mutex);
	if (err == -ENOSPC)
		return kvctx_refuse(extack, NULL, err,
				    "pool %s cannot keep all reserves, or cannot give %s segments of its own", p->name,
				    name);
	if (err)
		return kvctx_refuse(extack, NULL, err, "limits of %s cannot be set, error %d", name, -err);
	return 0;
}

static int kvctx_tenant_write(struct kvctx_pool *p, struct netlink_ext_ack *extack)
{
	if (kvctx_members_write_super(p))
		return kvctx_refuse(extack, NULL, -EIO, "no superblock could be written");
	return 0;
}

/*
 * In the configuration and on media, or neither. Its slot. Limits are another change, with a superblock of its own: the
 * slots on media alternate.
 */
static int kvctx_tenant_record(struct kvctx_pool *p, const struct kvctx_tenant_params *params,
			       struct netlink_ext_ack *extack)
{
	static const struct kvc_limits none;
	int slot, err;

	mutex_lock(&kvctx_mutex);
	slot = kvc_tenant_add(p->core, params->name, params->uid, params->gid, params->mode,
			      kvctx_media_flags(params->flags));
	mutex_unlock(&kvctx_mutex);
	if (slot < 0)
		return kvctx_refuse_add(p, params->name, slot, extack);
	err = kvctx_tenant_write(p, extack);
	if (!err && memcmp(&params->limits, &none, sizeof(none)))
		err = kvctx_limit(p, params->name, &params->limits, extack) ?: kvctx_tenant_write(p, extack);
	if (!err)
		return slot;
	kvctx_tenant_forget(p, params->name);
	return err;
}

/* On media first: a node that can be opened is that of a tenant which will be there after a reboot. */
struct kvctx_tenant *kvctx_tenant_add(struct kvctx_pool *p, const struct kvctx_tenant_params *params,
				      struct netlink_ext_ack *extack)
{
	int slot = kvctx_tenant_record(p, params, extack);
	struct kvctx_tenant *t;

	if (slot < 0)
		return ERR_PTR(slot);
	mutex_lock(&kvctx_mutex);
	t = kvctx_tenant_create(p, (u32)slot);
	mutex_unlock(&kvctx_mutex);
	if (IS_ERR(t)) {
		kvctx_tenant_forget(p, params->name);
		kvctx_refuse_add(p, params->name, (int)PTR_ERR(t), extack);
	}
	return t;
}

static int kvctx_tenant_busy(struct kvctx_tenant *t, struct netlink_ext_ack *extack)
{
	return kvctx_refuse(extack, NULL, -EBUSY, "%u sessions of tenant %s are open", t->sessions, t->name);
}

/* Change the flags unless a session is open, which counts on them. */
static int kvctx_tenant_flags(struct kvctx_tenant *t, u32 flags, struct netlink_ext_ack *extack)
{
	int err = 0;

	mutex_lock(&kvctx_mutex);
	if (t->sessions) {
		err = kvctx_tenant_busy(t, extack);
	} else {
		kvc_tenant_set(t->pool->core, t->name, kvctx_media_flags(flags));
		t->flags = flags;
		kvctx_generation++;
	}
	mutex_unlock(&kvctx_mutex);
	return err;
}

int kvctx_tenant_set(struct kvctx_tenant *t, u32 flags, struct netlink_ext_ack *extack)
{
	int err = kvctx_tenant_flags(t, flags, extack);

	if (err)
		return err;
	if (kvctx_members_write_super(t->pool))
		return kvctx_refuse(extack, NULL, -EIO, "set until detach: no superblock could be written");
	return 0;
}

/* Sessions need not be closed: who is over a new limit gets no more until he is below it. */
int kvctx_tenant_limit(struct kvctx_tenant *t, const struct kvc_limits *limits, struct netlink_ext_ack *extack)
{
	int err = kvctx_limit(t->pool, t->name, limits, extack);

	if (!err && kvctx_members_write_super(t->pool))
		err = kvctx_refuse(extack, NULL, -EIO, "set until detach: no superblock could be written");
	return err;
}

/* Its pages are dead with the write of the superblocks; what they take goes after that, and nobody waits for it. */
int kvctx_tenant_remove(struct kvctx_tenant *t, struct netlink_ext_ack *extack)
{
	struct kvctx_pool *p = t->pool;
	int err = 0;

	mutex_lock(&kvctx_mutex);
	if (t->sessions) {
		err = kvctx_tenant_busy(t, extack);
	} else {
		kvctx_event_tenant(KVCTX_CMD_TENANT_REMOVE, t);
		kvc_tenant_remove(p->core, t->name);
		kvctx_tenant_destroy(t);
	}
	mutex_unlock(&kvctx_mutex);
	if (err)
		return err;
	if (kvctx_members_write_super(p))
		return kvctx_refuse(extack, NULL, -EIO, "removed until detach: no superblock could be written");
	kvc_tenants_gone(p->core);
	return 0;
}

int kvctx_nodes_init(const struct file_operations *fops)
{
	int err;

	kvctx_next_minor = get_random_u32_below(KVCTX_MINORS);
	err = class_register(&kvctx_class);
	if (err)
		return err;
	err = alloc_chrdev_region(&kvctx_devt, 0, KVCTX_MINORS, "kvctx");
	if (err)
		goto err_class;
	cdev_init(&kvctx_cdev, fops);
	kvctx_cdev.owner = THIS_MODULE;
	err = cdev_add(&kvctx_cdev, kvctx_devt, KVCTX_MINORS);
	if (err)
		goto err_region;
	return 0;

err_region:
	unregister_chrdev_region(kvctx_devt, KVCTX_MINORS);
err_class:
	class_unregister(&kvctx_class);
	return err;
}

void kvctx_nodes_exit(void)
{
	cdev_del(&kvctx_cdev);
	unregister_chrdev_region(kvctx_devt, KVCTX_MINORS);
	class_unregister(&kvctx_class);
	xa_destroy(&kvctx_minors);
}
