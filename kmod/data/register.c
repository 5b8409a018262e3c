// SPDX-License-Identifier: GPL-2.0
/*
 * Registrations: memory of the caller that stays pinned, and what is special about that of a peer, a PCI device.
 *
 * A session's registrations are in session->mems, whose lock guards finding, holding and removing them.
 *
 * Which members reach a peer's memory (path.c) is decided at registration, and only looked up afterwards.
 *
 * The provider's driver may let go of the device at any time, and then waits for the last pin of its pages. The driver
 * core calls us before: the registration is marked gone, which refuses new operations; what waits for space is
 * completed, what runs is waited for; then the pins go. The registration stays behind empty, until unregistered.
 *
 * A registration made while the driver is leaving would come too late for that call, and its pins would hold up the
 * driver for ever. The device's lock is held while a driver leaves, so a registration is entered under that lock. Who
 * does not get it lets go of his pins, waits for it without them, and pins again what is there then. Not for long, as
 * the driver may be waiting for him: until he unmaps the memory, or closes the driver's file.
 *
 * Locks: device lock of the provider -> peers_lock, which guards the list of peers and, with peer->revoking, that a
 * peer is not freed while it is being revoked. peers_lock is not held over a wait for DMA.
 *
 * gone and users: who uses a memory counts himself and looks at gone after that; revoking sets gone and looks at the
 * count after that. Full barriers between the two steps on both sides let at least one see the other.
 */
#include <linux/delay.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "op.h"

#define PEER_WAIT	(2 * HZ)	/* for a driver that comes or goes */

struct kvctx_peer {
	struct list_head node;		/* peers, or those being revoked */
	struct kvctx_mem *mem;
	struct kvctx_pool *pool;
	struct pci_dev *pdev;		/* NULL: revoked */
	char name[sizeof_field(struct kvctx_path, peer)];
	bool gone;			/* no new operations */
	bool revoking;			/* under peers_lock */
	u64 members;			/* with a path, by number */
	struct kvctx_path_found found[];	/* one a member */
};

static DEFINE_MUTEX(peers_lock);
static LIST_HEAD(peers);
static DECLARE_WAIT_QUEUE_HEAD(peers_wait);	/* for the last user, for the end of revoking */
static atomic_t peers_left;			/* drivers that let go of peers */

/* Peers */

/* The one device that provides all of @mem, referenced; NULL: there is none. */
static struct pci_dev *peer_provider(const struct kvctx_mem *mem)
{
	struct pci_dev *pdev = NULL;
	u32 i;

	for (i = 0; i < mem->nr_extents; i++) {
		phys_addr_t addr = page_to_phys(mem->extents[i].page);
		u64 bytes = (u64)kvctx_mem_extent_pages(mem, i) << PAGE_SHIFT;

		if (!i)
			pdev = kvctx_path_device(addr, bytes);
		else if (!kvctx_path_holds(pdev, addr, bytes))
			goto err_put;
		if (!pdev)
			return NULL;
	}
	return pdev;

err_put:
	pci_dev_put(pdev);
	return NULL;
}

/* What is between the peer and a member, or a place where none is. Device locked. */
static void peer_member(struct kvctx_peer *peer, const struct kvctx_member *m)
{
	u32 i = (u32)(m - peer->pool->members);

	kvctx_path_find(&peer->found[i], peer->pdev, m);
	if (peer->found[i].reason == KVCTX_PATH_DIRECT)
		WRITE_ONCE(peer->members, peer->members | BIT_ULL(i));
	else
		WRITE_ONCE(peer->members, peer->members & ~BIT_ULL(i));
}

static struct kvctx_peer *peer_new(struct kvctx_pool *p, struct kvctx_mem *mem, struct pci_dev *pdev)
{
	struct kvctx_peer *peer = kzalloc(struct_size(peer, found, KVC_MEMBERS_MAX), GFP_KERNEL_ACCOUNT);
	u32 i;

	if (!peer)
		return NULL;
	peer->mem = mem;
	peer->pool = p;
	peer->pdev = pdev;
	strscpy(peer->name, pci_name(pdev), sizeof(peer->name));
	for (i = 0; i < KVC_MEMBERS_MAX; i++)
		peer_member(peer, &p->members[i]);
	return peer;
}

/* Device locked. Takes over the reference on @pdev unless it fails. */
static int peer_enter(struct kvctx_pool *p, struct kvctx_mem *mem, struct pci_dev *pdev)
{
	if (!pdev->dev.driver)
		return -ENODEV;
	mutex_lock(&peers_lock);
	mem->peer = peer_new(p, mem, pdev);
	if (!mem->peer) {
		mutex_unlock(&peers_lock);
		return -ENOMEM;
	}
	list_add_tail(&mem->peer->node, &peers);
	mutex_unlock(&peers_lock);
	return 0;
}

void kvctx_peers_member(struct kvctx_member *m)
{
	struct kvctx_peer *peer;

	mutex_lock(&peers_lock);
	list_for_each_entry(peer, &peers, node)
		if (peer->pool == m->pool && !peer->gone)
			peer_member(peer, m);
	mutex_unlock(&peers_lock);
}

/* -EAGAIN: the driver of *@busy, referenced, may be coming or going */
static int peer_attach(struct kvctx_pool *p, struct kvctx_mem *mem, struct pci_dev **busy)
{
	struct pci_dev *pdev = peer_provider(mem);
	int err;

	if (!pdev)
		return -EFAULT;
	if (!device_trylock(&pdev->dev)) {
		*busy = pdev;
		return -EAGAIN;
	}
	err = peer_enter(p, mem, pdev);
	device_unlock(&pdev->dev);
	if (err)
		pci_dev_put(pdev);
	return err;
}

/* Until nobody has the lock of @busy, whose reference is taken over: 0, -ENODEV, -ERESTARTNOHAND */
static int peer_await(struct pci_dev *busy, unsigned long until)
{
	int err = 0;

	while (!err && !device_trylock(&busy->dev)) {
		if (time_after(jiffies, until))
			err = -ENODEV;
		else if (msleep_interruptible(1))
			err = -ERESTARTNOHAND;
	}
	if (!err)
		device_unlock(&busy->dev);
	pci_dev_put(busy);
	return err;
}

/* @mem is about to be freed: nobody uses it. */
static void peer_remove(struct kvctx_mem *mem)
{
	struct kvctx_peer *peer = mem->peer;

	if (!peer)
		return;
	mutex_lock(&peers_lock);
	while (peer->revoking) {
		mutex_unlock(&peers_lock);
		wait_event(peers_wait, !READ_ONCE(peer->revoking));
		mutex_lock(&peers_lock);
	}
	list_del(&peer->node);
	mutex_unlock(&peers_lock);
	pci_dev_put(peer->pdev);
	kfree(peer);
	mem->peer = NULL;
}

/* The peer's driver has let go, or is about to. */
bool kvctx_peer_gone(const struct kvctx_mem *mem)
{
	return mem->peer && READ_ONCE(mem->peer->gone);
}

/* Another number than before: some have gone since. */
u32 kvctx_peers_left(void)
{
	/* pairs with peers_revoke(): who sees the number sees which */
	return atomic_read_acquire(&peers_left);
}

/* What a row of KVCTX_IOC_PATHS says of memory @mem and member @m. */
void kvctx_peer_path(const struct kvctx_mem *mem, const struct kvctx_member *m, struct kvctx_path *row)
{
	const struct kvctx_peer *peer = mem->peer;
	struct block_device *bdev;

	*row = (struct kvctx_path){ .member = m->index };
	rcu_read_lock();
	bdev = READ_ONCE(m->bdev);
	if (bdev)
		snprintf(row->device, sizeof(row->device), "%pg", bdev);
	rcu_read_unlock();
	if (!peer)
		return;
	memcpy(row->peer, peer->name, sizeof(row->peer));
	row->reason = READ_ONCE(peer->gone) ? KVCTX_PATH_GONE : peer->found[m->index].reason;
	row->distance = row->reason ? -1 : peer->found[m->index].distance;
}

/* The members that reach all of a peer's memory, by number */
u64 kvctx_peer_members(const struct kvctx_mem *mem)
{
	return mem->peer->members;
}

/* Registrations */

/* Pin [addr, addr + length) of the caller, and know the peer if it is one's. */
static struct kvctx_mem *reg_pin(struct kvctx_session *s, u64 addr, u64 length)
{
	unsigned long until = jiffies + PEER_WAIT;
	struct kvctx_mem *mem;
	struct pci_dev *pdev;
	int err;

	for (;;) {
		mem = kvctx_mem_pin(s->tenant, addr, length);
		if (IS_ERR(mem) || !mem->foreign)
			return mem;
		err = peer_attach(s->pool, mem, &pdev);
		if (!err)
			return mem;
		kvctx_mem_free(mem);
		if (err == -EAGAIN)
			err = peer_await(pdev, until);
		if (err)
			return ERR_PTR(err);
	}
}

static void reg_free(struct kvctx_mem *mem)
{
	peer_remove(mem);
	kvctx_mem_free(mem);
}

/* Pin [addr, addr + length) of the caller; its id, or an error. */
int kvctx_register(struct kvctx_session *s, u64 addr, u64 length)
{
	struct kvctx_mem *mem = reg_pin(s, addr, length);
	int ret;

	if (IS_ERR(mem))
		return PTR_ERR(mem);
	xa_lock(&s->mems);
	ret = __xa_alloc(&s->mems, &mem->id, mem, XA_LIMIT(1, KVCTX_MEM_MAX), GFP_KERNEL_ACCOUNT) ? -ENOMEM : mem->id;
	xa_unlock(&s->mems);
	if (ret < 0)
		reg_free(mem);
	return ret;
}

int kvctx_unregister(struct kvctx_session *s, u32 id)
{
	struct kvctx_mem *mem;
	int err = 0;

	xa_lock(&s->mems);
	mem = xa_load(&s->mems, id);
	if (!mem)
		err = -EINVAL;
	else if (atomic_read(&mem->users))
		err = -EBUSY;
	else
		__xa_erase(&s->mems, mem->id);
	xa_unlock(&s->mems);
	if (!err)
		reg_free(mem);
	return err;
}

/* No operation is left. */
void kvctx_unregister_all(struct kvctx_session *s)
{
	struct kvctx_mem *mem;
	unsigned long id;

	xa_for_each(&s->mems, id, mem)
		reg_free(mem);
	xa_destroy(&s->mems);
}

/* Hold the registration of that id; @gone: also when its peer is gone. -EINVAL, -ENODEV */
struct kvctx_mem *kvctx_registered_get(struct kvctx_session *s, u32 id, bool gone)
{
	struct kvctx_mem *mem;

	xa_lock(&s->mems);
	mem = xa_load(&s->mems, id);
	if (mem)
		atomic_inc(&mem->users);
	xa_unlock(&s->mems);
	if (!mem)
		return ERR_PTR(-EINVAL);
	if (!mem->foreign || gone)
		return mem;
	/* pairs with peers_revoke() */
	smp_mb__after_atomic();
	if (!kvctx_peer_gone(mem))
		return mem;
	kvctx_registered_put(mem);
	return ERR_PTR(-ENODEV);
}

void kvctx_registered_put(struct kvctx_mem *mem)
{
	bool foreign = mem->foreign;

	/* the last user of a peer's memory: it may be freed. Pairs with the wait in peer_revoke() */
	if (atomic_dec_and_test(&mem->users) && foreign && wq_has_sleeper(&peers_wait))
		wake_up_all(&peers_wait);
}

/* Revoking */

static void peer_revoke(struct kvctx_peer *peer)
{
	struct kvctx_mem *mem = peer->mem;

	queue_work(peer->pool->io_wq, &peer->pool->sweep);
	wait_event(peers_wait, !atomic_read(&mem->users));
	kvctx_mem_unpin(mem);
}

/* The driver of @pdev is about to be unbound; device locked. */
static void peers_revoke(struct pci_dev *pdev)
{
	struct kvctx_peer *peer, *next;
	LIST_HEAD(list);

	mutex_lock(&peers_lock);
	list_for_each_entry_safe(peer, next, &peers, node) {
		if (peer->pdev != pdev)
			continue;
		peer->revoking = true;
		WRITE_ONCE(peer->gone, true);
		list_move_tail(&peer->node, &list);
	}
	/* the barrier in it pairs with kvctx_registered_get(): see the head of this file */
	atomic_inc_return(&peers_left);
	while ((peer = list_first_entry_or_null(&list, struct kvctx_peer, node))) {
		mutex_unlock(&peers_lock);
		peer_revoke(peer);
		mutex_lock(&peers_lock);
		list_del_init(&peer->node);
		peer->pdev = NULL;
		WRITE_ONCE(peer->revoking, false);
		pci_dev_put(pdev);
		wake_up_all(&peers_wait);
	}
	mutex_unlock(&peers_lock);
}

static int peers_notify(struct notifier_block *nb, unsigned long action, void *data)
{
	if (action == BUS_NOTIFY_UNBIND_DRIVER)
		peers_revoke(to_pci_dev(data));
	return NOTIFY_DONE;
}

static struct notifier_block peers_nb = { .notifier_call = peers_notify };

int kvctx_peers_init(void)
{
	return bus_register_notifier(&pci_bus_type, &peers_nb);
}

void kvctx_peers_exit(void)
{
	bus_unregister_notifier(&pci_bus_type, &peers_nb);
}
