/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The control side: pools, members and tenants, as the operator asks for them; what its files share.
 *
 * Here lives what serves the netlink family's requests (genl.c, genl_msg.c, event.c): attach and detach of a pool
 * (pool.c, recover.c), its devices and members (device.c, member.c, grow.c, rejoin.c), the worker of each member, which
 * executes what the engine hands out (worker.c), tenants and their nodes (tenant.c).
 *
 * It calls the engine, the data side (data/data.h) and what is in kvctx.h. Only main.c calls it.
 *
 * Vocabulary
 *   device    an opened block device and what its superblocks say (device.c)
 *   member    the part of a pool that a device plays
 *   loss      of a member: its pages are gone until it returns as it was left, or until the next attach
 *   refusal   a request turned down; the caller gets an error and a sentence
 *
 * Locks: a pool's admin_lock serializes everything that changes the pool, its tenants and superblocks, and is held over
 * I/O; nobody holds two of them, so a device that does not answer holds up its pool alone. Lists, session counts and
 * the configuration inside the engine change under kvctx_mutex too, which is taken inside it and never held over I/O:
 * so opening and closing a node, dumps, and finding a pool never wait for a device. Who only reads what is of one pool
 * needs one of the two. Everything below is called with the pool's admin_lock held unless it says otherwise.
 *
 * Who waits for an admin_lock holds a reference on the structure, for the pool may be detached meanwhile.
 */
#ifndef KVCTX_CTRL_H
#define KVCTX_CTRL_H

#include <net/genetlink.h>

#include "data/data.h"

#define KVCTX_PATH_MAX		256	/* of a device, with its NUL */
#define KVCTX_TENANT_DEFAULT	"default"
#define KVCTX_TENANT_MODE	0600

/* device.c */
struct kvctx_device {
	char *path;			/* as given at attach */
	struct file *file;
	struct block_device *bdev;
	/* under bdev->bd_holder_lock */
	bool gone;
	struct kvctx_member *member;	/* NULL until it is one */
	/* what the superblock that counts says */
	u64 seq;
	u32 worn;			/* slots that need to be written again, see kvc_super_worn() */
	struct kvc_super_member was[KVC_MEMBERS_MAX];	/* members, as its superblock has them */
	u32 index;
	u8 uuid[KVC_UUID_LEN];
};

/*
 * Say why, with the device's path (or NULL) in front, and return @err. The netlink core cuts sentences at 79
 * characters, so a long path is shortened from its front; keep reasons under 50.
 */
__printf(4, 5)
int kvctx_refuse(struct netlink_ext_ack *extack, const char *path, int err, const char *fmt, ...);

int kvctx_device_open(struct kvctx_device *dev, struct netlink_ext_ack *extack);
int kvctx_device_read_super(struct kvctx_device *dev, struct kvc_super *super, struct netlink_ext_ack *extack);
bool kvctx_device_bind(struct kvctx_device *dev, struct kvctx_member *m);
void kvctx_device_close(struct kvctx_device *dev);
void kvctx_device_free(struct kvctx_device *dev);

/* member.c */
int kvctx_member_alloc(struct kvctx_pool *p, u32 index);
void kvctx_member_enter(struct kvctx_pool *p, u32 index, struct kvctx_device *dev);
void kvctx_member_device(struct kvctx_member *m, struct kvctx_device *dev);
void kvctx_members_online(struct kvctx_pool *p);
int kvctx_members_write_super(struct kvctx_pool *p);
int kvctx_member_write_super(struct kvctx_member *m);

/* grow.c */
void kvctx_grow_init(struct kvctx_pool *p);
int kvctx_pool_add(struct kvctx_pool *p, const struct nlattr *device, bool dry_run, struct netlink_ext_ack *extack);
int kvctx_pool_remove(struct kvctx_pool *p, u32 member, bool move, struct netlink_ext_ack *extack);
void kvctx_write_losses(struct kvctx_pool *p);

/* rejoin.c */
int kvctx_pool_rejoin(struct kvctx_pool *p, const struct nlattr *device, struct netlink_ext_ack *extack);

/* worker.c */
extern const struct kvc_ops kvctx_core_ops;
int kvctx_worker_init(struct kvctx_member *m);
void kvctx_worker_free(struct kvctx_member *m);
int kvctx_pool_flush(struct kvctx_pool *p);

/* recover.c */
int kvctx_recover(struct kvctx_pool *p, struct netlink_ext_ack *extack);

/* pool.c */
int kvctx_pool_lock(struct kvctx_pool *p);		/* kvctx_mutex, which it drops. -EINTR; -ENODEV: detached */
void kvctx_pool_unlock(struct kvctx_pool *p);
/* No lock; the pool is locked */
struct kvctx_pool *kvctx_pool_attach(struct nlattr **devices, u32 nr, bool degraded, struct netlink_ext_ack *extack);
int kvctx_pool_detach(struct kvctx_pool *p, struct netlink_ext_ack *extack);
int kvctx_pool_set(struct kvctx_pool *p, const struct kvc_settings *settings, struct netlink_ext_ack *extack);
void kvctx_pools_exit(void);					/* no lock; waits for sessions */

/* tenant.c */
struct kvctx_tenant_params {
	char name[KVCTX_NAME_MAX];
	u32 uid, gid, mode;
	u32 flags;			/* KVCTX_TENANT_* */
	struct kvc_limits limits;
	const char *key;		/* its name; NULL: the tenant's pages are not encrypted */
};

struct kvctx_tenant_change {
	const u32 *flags;		/* NULL: they stay */
	const struct kvc_limits *limits;	/* the same */
	bool unlock;			/* by the key that the caller has */
};

int kvctx_nodes_init(const struct file_operations *fops);	/* of the nodes; no lock */
void kvctx_nodes_exit(void);					/* no lock */
struct kvctx_cipher **kvctx_tenants_keys(struct kvctx_pool *p);	/* the pool is locked */
void kvctx_tenants_keys_free(struct kvctx_cipher **keys);	/* no lock */
int kvctx_tenants_create(struct kvctx_pool *p, struct kvctx_cipher **keys);	/* kvctx_mutex, too */
void kvctx_tenants_destroy(struct kvctx_pool *p);		/* kvctx_mutex, too */
struct kvctx_tenant *kvctx_tenant_find(struct kvctx_pool *p, const char *name);	/* or kvctx_mutex */
struct kvctx_tenant *kvctx_tenant_add(struct kvctx_pool *p, const struct kvctx_tenant_params *params,
				      struct netlink_ext_ack *extack);
int kvctx_tenant_set(struct kvctx_tenant *t, const struct kvctx_tenant_change *to, struct netlink_ext_ack *extack);
int kvctx_tenant_remove(struct kvctx_tenant *t, struct netlink_ext_ack *extack);

/* genl.c */
int kvctx_genl_init(void);					/* no lock */
void kvctx_genl_exit(void);					/* no lock */

/* event.c */
enum {
	KVCTX_GROUP_MGMT,
	KVCTX_GROUP_PAGES,
};

void kvctx_events_init(struct genl_family *family);		/* no lock */
void kvctx_events_stop(void);					/* no lock; none is sent any more */
void kvctx_event_pool(u8 cmd, struct kvctx_pool *p);
void kvctx_event_tenant(u8 cmd, struct kvctx_tenant *t);
void kvctx_event_member(u8 cmd, struct kvctx_member *m);	/* no lock */
/* Somebody will be in the group; no lock. Netlink's; 0, -EPERM, -ENOMEM */
int kvctx_pages_bind(int group);
void kvctx_pages_begin(struct kvctx_pool *p);			/* kvctx_mutex, too */
void kvctx_pages_end(struct kvctx_pool *p);			/* it is in no list any more */

/* genl_msg.c: attributes of the objects; -EMSGSIZE when @skb is full. Or kvctx_mutex */
size_t kvctx_msg_pool_size(u32 nr_members);
int kvctx_msg_pool(struct sk_buff *skb, struct kvctx_pool *p);
int kvctx_msg_tenant_stats(struct sk_buff *skb, struct kvctx_tenant *t);
u32 kvctx_msg_tenant_stats_size(void);
int kvctx_msg_tenant(struct sk_buff *skb, struct kvctx_tenant *t);
int kvctx_msg_peer(struct sk_buff *skb, struct kvctx_pool *p, struct pci_dev *pdev);
int kvctx_msg_stats(struct sk_buff *skb, struct kvctx_pool *p);
int kvctx_msg_member(struct sk_buff *skb, struct kvctx_member *m);	/* no lock */

#endif
