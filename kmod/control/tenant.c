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
	os_free(t->tally);
	kvctx_cipher_put(t->cipher);
	kfree(t);
	kvctx_generation++;
}

/* @cipher: of its key, whose reference it takes over if it is made; or NULL */
static struct kvctx_tenant *kvctx_tenant_create(struct kvctx_pool *p, u32 slot, struct kvctx_cipher *cipher)
{
	const struct kvc_super_tenant *config = &kvc_super_of(p->core)->tenants[slot];
	struct kvctx_tenant *t = kzalloc(sizeof(*t), GFP_KERNEL);
	int err = -ENOMEM;

	lockdep_assert_held(&kvctx_mutex);
	if (!t)
		return ERR_PTR(-ENOMEM);
	t->pool = p;
	t->slot = slot;
	t->flags = (config->flags & KVC_TENANT_VERIFIED ? KVCTX_TENANT_VERIFIED : 0) |
		   (config->flags & KVC_TENANT_ENCRYPTED ? KVCTX_TENANT_ENCRYPTED : 0);
	strscpy(t->name, config->name);
	t->tally = kvctx_tally_new();
	if (!t->tally)
		goto err_free;
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
	t->cipher = cipher;
	list_add_tail(&t->node, &p->tenants);
	kvctx_generation++;
	return t;

err_minor:
	xa_erase(&kvctx_minors, t->minor);
err_free:
	os_free(t->tally);
	kfree(t);
	return ERR_PTR(err);
}

void kvctx_tenants_destroy(struct kvctx_pool *p)
{
	struct kvctx_tenant *t, *next;

	list_for_each_entry_safe(t, next, &p->tenants, node)
		kvctx_tenant_destroy(t);
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

static int kvctx_refuse_key(int err, const char *name, struct netlink_ext_ack *extack)
{
	switch (err) {
	case -ENOKEY:
		return kvctx_refuse(extack, NULL, err, "no key %s in your keyrings: keyctl padd user %s @u", name,
				    name);
	case -EKEYREVOKED:
	case -EKEYEXPIRED:
		return kvctx_refuse(extack, NULL, err, "key %s was revoked, or has expired", name);
	case -EKEYREJECTED:
		return kvctx_refuse(extack, NULL, err, "key %s is not 64 bytes for AES-256-XTS", name);
	case -EOPNOTSUPP:
		return kvctx_refuse(extack, NULL, err, "this kernel has no xts(aes)");
	default:
		return kvctx_refuse(extack, NULL, err, "key %s cannot be used, error %d", name, -err);
	}
}

/* The key of that name, and what tells it from others */
static struct kvctx_cipher *kvctx_key_find(const char *name, u8 check[KVC_KEY_CHECK],
					   struct netlink_ext_ack *extack)
{
	struct kvctx_cipher *c = kvctx_cipher_find(name);
	int err;

	if (IS_ERR(c)) {
		kvctx_refuse_key(PTR_ERR(c), name, extack);
		return c;
	}
	err = kvctx_cipher_check(c, check);
	if (!err)
		return c;
	kvctx_cipher_put(c);
	return ERR_PTR(kvctx_refuse_key(err, name, extack));
}

/* The key that the tenant was added with, if the caller has it; NULL: its pages are not encrypted */
static struct kvctx_cipher *kvctx_tenant_key(struct kvctx_pool *p, u32 slot, struct netlink_ext_ack *extack)
{
	const struct kvc_super *super = kvc_super_of(p->core);
	const struct kvc_super_key *key = &super->keys[slot];
	struct kvctx_cipher *c;
	u8 check[KVC_KEY_CHECK];

	if (!(super->tenants[slot].flags & KVC_TENANT_ENCRYPTED))
		return NULL;
	c = kvctx_key_find(key->name, check, extack);
	if (IS_ERR(c) || !memcmp(check, key->check, sizeof(check)))
		return c;
	kvctx_cipher_put(c);
	return ERR_PTR(kvctx_refuse(extack, NULL, -EKEYREJECTED,
				    "key %s is not the one that tenant %s was added with", key->name,
				    super->tenants[slot].name));
}

/* The tenant is opened with the key from now on; sessions that are open keep what they have. */
static void kvctx_tenant_unlock(struct kvctx_tenant *t, struct kvctx_cipher *key)
{
	mutex_lock(&kvctx_mutex);
	swap(t->cipher, key);
	kvctx_generation++;
	mutex_unlock(&kvctx_mutex);
	kvctx_cipher_put(key);
}

/* Of all tenants of the superblock, those keys that the caller has. To be freed with the next; NULL: no memory. */
struct kvctx_cipher **kvctx_tenants_keys(struct kvctx_pool *p)
{
	struct kvctx_cipher **keys = kcalloc(KVC_TENANTS_MAX, sizeof(*keys), GFP_KERNEL), *c;
	const struct kvc_super *super = kvc_super_of(p->core);
	u32 slot;

	for (slot = 0; keys && slot < KVC_TENANTS_MAX; slot++) {
		c = kvctx_tenant_key(p, slot, NULL);
		if (IS_ERR(c))
			pr_notice("kvctx: %s: tenant %s is locked: its key %s, error %ld\n", p->name,
				  super->tenants[slot].name, super->keys[slot].name, -PTR_ERR(c));
		else
			keys[slot] = c;
	}
	return keys;
}

void kvctx_tenants_keys_free(struct kvctx_cipher **keys)
{
	u32 slot;

	for (slot = 0; slot < KVC_TENANTS_MAX; slot++)
		kvctx_cipher_put(keys[slot]);
	kfree(keys);
}

/* Nodes for all tenants of the superblock, or for none. Takes the @keys that it uses. */
int kvctx_tenants_create(struct kvctx_pool *p, struct kvctx_cipher **keys)
{
	const struct kvc_super *super = kvc_super_of(p->core);
	struct kvctx_tenant *t;
	u32 slot;

	for (slot = 0; slot < KVC_TENANTS_MAX; slot++) {
		if (!(super->tenants[slot].flags & KVC_TENANT_USED))
			continue;
		t = kvctx_tenant_create(p, slot, keys[slot]);
		if (IS_ERR(t)) {
			kvctx_tenants_destroy(p);
			return PTR_ERR(t);
		}
		keys[slot] = NULL;
	}
	return 0;
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

/* @otherwise: what it means when no member took it */
static int kvctx_tenant_write(struct kvctx_pool *p, const char *otherwise, struct netlink_ext_ack *extack)
{
	if (kvctx_members_write_super(p))
		return kvctx_refuse(extack, NULL, -EIO, "%sno superblock could be written", otherwise);
	return 0;
}

/*
 * In the configuration and on media, or neither. Its slot. Limits are another change, with a superblock of its own: the
 * slots on media alternate.
 */
static int kvctx_tenant_record(struct kvctx_pool *p, const struct kvctx_tenant_params *params,
			       const struct kvc_super_key *key, struct netlink_ext_ack *extack)
{
	static const struct kvc_limits none;
	int slot, err;

	mutex_lock(&kvctx_mutex);
	slot = kvc_tenant_add_keyed(p->core, params->name, params->uid, params->gid, params->mode,
				    kvctx_media_flags(params->flags), key);
	mutex_unlock(&kvctx_mutex);
	if (slot < 0)
		return kvctx_refuse_add(p, params->name, slot, extack);
	err = kvctx_tenant_write(p, "", extack);
	if (!err && memcmp(&params->limits, &none, sizeof(none)))
		err = kvctx_limit(p, params->name, &params->limits, extack) ?: kvctx_tenant_write(p, "", extack);
	if (!err)
		return slot;
	kvctx_tenant_forget(p, params->name);
	return err;
}

/* On media first: a node that can be opened is that of a tenant which will be there after a reboot. */
struct kvctx_tenant *kvctx_tenant_add(struct kvctx_pool *p, const struct kvctx_tenant_params *params,
				      struct netlink_ext_ack *extack)
{
	struct kvctx_cipher *cipher = NULL;
	struct kvc_super_key key = {};
	struct kvctx_tenant *t;
	int slot;

	if (params->key) {
		strscpy(key.name, params->key);
		cipher = kvctx_key_find(key.name, key.check, extack);
		if (IS_ERR(cipher))
			return ERR_CAST(cipher);
	}
	slot = kvctx_tenant_record(p, params, cipher ? &key : NULL, extack);
	if (slot < 0) {
		kvctx_cipher_put(cipher);
		return ERR_PTR(slot);
	}
	mutex_lock(&kvctx_mutex);
	t = kvctx_tenant_create(p, (u32)slot, cipher);
	mutex_unlock(&kvctx_mutex);
	if (IS_ERR(t))
		kvctx_cipher_put(cipher);
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

/* Change the flags unless a session is open, which counts on them. @dry_run: could they be changed? */
static int kvctx_tenant_flags(struct kvctx_tenant *t, u32 flags, bool dry_run, struct netlink_ext_ack *extack)
{
	int err = 0;

	mutex_lock(&kvctx_mutex);
	if (t->sessions) {
		err = kvctx_tenant_busy(t, extack);
	} else if (!dry_run) {
		kvc_tenant_set(t->pool->core, t->name, kvctx_media_flags(flags));
		t->flags = flags | (t->flags & KVCTX_TENANT_ENCRYPTED);
		kvctx_generation++;
	}
	mutex_unlock(&kvctx_mutex);
	return err;
}

#define SET_UNTIL_DETACH	"set until detach: "

/* Sessions need not be closed: who is over a new limit gets no more until he is below it. */
static int kvctx_tenant_limit(struct kvctx_tenant *t, const struct kvc_limits *limits, struct netlink_ext_ack *extack)
{
	return kvctx_limit(t->pool, t->name, limits, extack) ?:
	       kvctx_tenant_write(t->pool, SET_UNTIL_DETACH, extack);
}

/* All of it, or nothing; each change has a superblock of its own, as the slots on media alternate. */
int kvctx_tenant_set(struct kvctx_tenant *t, const struct kvctx_tenant_change *to, struct netlink_ext_ack *extack)
{
	const struct kvc_limits before = kvc_super_of(t->pool->core)->limits[t->slot];
	struct kvctx_cipher *key = to->unlock ? kvctx_tenant_key(t->pool, t->slot, extack) : NULL;
	int err = 0;

	if (IS_ERR(key))
		return PTR_ERR(key);
	if (to->unlock && !key)
		return kvctx_refuse(extack, NULL, -EINVAL, "pages of tenant %s are not encrypted", t->name);
	/* not even for a moment: a quota could cost pages */
	if (to->flags)
		err = kvctx_tenant_flags(t, *to->flags, true, extack);
	if (!err && to->limits)
		err = kvctx_tenant_limit(t, to->limits, extack);
	if (!err && to->flags) {
		err = kvctx_tenant_flags(t, *to->flags, false, extack);
		if (!err)
			err = kvctx_tenant_write(t->pool, SET_UNTIL_DETACH, extack);
		else if (to->limits)
			kvctx_tenant_limit(t, &before, NULL);
	}
	if (!err && key)
		kvctx_tenant_unlock(t, key);
	else
		kvctx_cipher_put(key);
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
	err = kvctx_tenant_write(p, "removed until detach: ", extack);
	if (!err)
		kvc_tenants_gone(p->core);
	return err;
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
