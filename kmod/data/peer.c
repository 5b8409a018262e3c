// SPDX-License-Identifier: GPL-2.0
/*
 * Peers: PCI devices whose memory was registered, and which members reach it.
 *
 *	provider   the PCI device in whose BAR the registered pages lie
 *	client     the PCI device that a member's transfers are made by
 *	path       what is between the two: decided once, at registration, and only looked up afterwards
 *
 * Which device provides a page is not told by any exported call; the BAR that holds its address is. The client of an
 * NVMe namespace is an ancestor of its disk. The disk of a multipath head has none: its controllers are found by the
 * name of the path's disk, nvmeScCnN below controller C for the head nvmeSnN, and the worst of them counts.
 *
 * The provider's driver may let go of the device at any time, and then waits for the last pin of its pages. The driver
 * core calls us before: the registration is marked gone, which refuses new operations; what waits for space is
 * completed, what runs is waited for; then the pins go. The registration stays behind empty, until unregistered.
 *
 * A registration made while the driver is leaving would come too late for that call, and its pins would hold up the
 * driver for ever. The device's lock is held while a driver leaves, so a registration is entered under that lock; who
 * does not get it at once lets go of his pins, waits for it without them, and pins again what is there then.
 *
 * Locks: device lock of the provider -> peers_lock, which guards the list of peers and, with peer->revoking, that a
 * peer is not freed while it is being revoked. peers_lock is not held over a wait for DMA.
 *
 * gone and users: who uses a memory counts himself and looks at gone after that; revoking sets gone and looks at the
 * count after that. Full barriers between the two steps on both sides let at least one see the other.
 */
#include <linux/cleanup.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>
#include <linux/slab.h>

#include "data.h"

struct kvctx_path_found {
	u32 reason;			/* enum kvctx_path_reason */
	s32 distance;
};

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

/* Which device */

static bool bar_holds(struct pci_dev *pdev, phys_addr_t addr, u64 bytes)
{
	int i;

	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		resource_size_t start = pci_resource_start(pdev, i), len = pci_resource_len(pdev, i);

		if (pci_resource_flags(pdev, i) & IORESOURCE_MEM && addr >= start && addr - start < len &&
		    bytes <= len - (addr - start))
			return true;
	}
	return false;
}

/* The PCI device with a BAR around these bytes, referenced; NULL: none. */
static struct pci_dev *device_of(phys_addr_t addr, u64 bytes)
{
	struct pci_dev *pdev = NULL;

	for_each_pci_dev(pdev)
		if (bar_holds(pdev, addr, bytes))
			break;
	return pdev;
}

/* Is this physical address one of a PCI device? */
bool kvctx_peer_address(phys_addr_t addr)
{
	struct pci_dev *pdev = device_of(addr, PAGE_SIZE);

	pci_dev_put(pdev);
	return pdev;
}

/* The one device that provides all of @mem, referenced; NULL: there is none. */
static struct pci_dev *provider_of(const struct kvctx_mem *mem)
{
	struct pci_dev *pdev = NULL;
	u32 i;

	for (i = 0; i < mem->nr_extents; i++) {
		phys_addr_t addr = page_to_phys(mem->extents[i].page);
		u64 bytes = (u64)kvctx_mem_extent_pages(mem, i) << PAGE_SHIFT;

		if (!i)
			pdev = device_of(addr, bytes);
		else if (!bar_holds(pdev, addr, bytes))
			goto err_put;
		if (!pdev)
			return NULL;
	}
	return pdev;

err_put:
	pci_dev_put(pdev);
	return NULL;
}

/* Paths */

static struct device *pci_ancestor(struct device *dev)
{
	while (dev && !dev_is_pci(dev))
		dev = dev->parent;
	return dev;
}

/* The worst of the paths so far */
static void path_worse(struct kvctx_path_found *f, u32 reason, s32 distance)
{
	if (f->reason == KVCTX_PATH_DIRECT)
		*f = (struct kvctx_path_found){ reason, reason ? -1 : max(distance, f->distance) };
}

static void path_to(struct kvctx_path_found *f, struct pci_dev *provider, struct device *client)
{
	int distance = pci_p2pdma_distance_many(provider, &client, 1, false);

	path_worse(f, distance < 0 ? KVCTX_PATH_NO_ROUTE : KVCTX_PATH_DIRECT, distance);
}

/* Controllers of a multipath head */
struct head_search {
	struct pci_dev *provider;
	u32 subsys, ns;			/* numbers in the head's name */
	struct kvctx_path_found *found;
	u32 controllers;
};

static int head_controller(struct device *ctrl, void *data)
{
	char disk[sizeof_field(struct gendisk, disk_name)];
	struct head_search *search = data;
	struct device *path;
	u32 n;

	if (sscanf(dev_name(ctrl), "nvme%u", &n) != 1)
		return 0;
	snprintf(disk, sizeof(disk), "nvme%uc%un%u", search->subsys, n, search->ns);
	path = device_find_child_by_name(ctrl, disk);
	if (!path)
		return 0;
	put_device(path);
	search->controllers++;
	path_to(search->found, search->provider, pci_ancestor(ctrl));
	return 0;
}

static void path_head(struct kvctx_path_found *f, struct pci_dev *provider, const char *head)
{
	struct head_search search = { .provider = provider, .found = f };
	struct pci_dev *pdev = NULL;

	if (sscanf(head, "nvme%un%u", &search.subsys, &search.ns) == 2)
		while ((pdev = pci_get_class(PCI_CLASS_STORAGE_EXPRESS, pdev)))
			device_for_each_child(&pdev->dev, &search, head_controller);
	if (!search.controllers)
		path_worse(f, KVCTX_PATH_NO_PCI, -1);
}

static void path_find(struct kvctx_path_found *f, struct pci_dev *provider, struct block_device *bdev)
{
	struct device *client = pci_ancestor(disk_to_dev(bdev->bd_disk));

	*f = (struct kvctx_path_found){ KVCTX_PATH_DIRECT, 0 };
	if (!blk_queue_pci_p2pdma(bdev_get_queue(bdev)))
		path_worse(f, KVCTX_PATH_NO_QUEUE, -1);
	else if (client)
		path_to(f, provider, client);
	else
		path_head(f, provider, bdev->bd_disk->disk_name);
}

/* For the control side: the next device that has memory for peers. The reference moves on from @from, NULL to begin. */
struct pci_dev *kvctx_provider_next(struct pci_dev *from)
{
	while ((from = pci_get_device(PCI_ANY_ID, PCI_ANY_ID, from)))
		if (kvctx_has_peer_memory(from))
			break;
	return from;
}

/* What is between memory of @pdev, none of which needs to be registered, and a member */
void kvctx_provider_path(struct pci_dev *pdev, const struct kvctx_member *m, struct kvctx_path *row)
{
	struct block_device *bdev = READ_ONCE(m->bdev);
	struct kvctx_path_found f = { KVCTX_PATH_GONE, -1 };

	if (bdev)
		path_find(&f, pdev, bdev);
	*row = (struct kvctx_path){ .member = m->index, .reason = f.reason, .distance = f.distance };
	strscpy(row->peer, pci_name(pdev));
}

/* Registrations */

/* What is between the peer and a member, or a place where none is. Device locked. */
static void peer_member(struct kvctx_peer *peer, const struct kvctx_member *m)
{
	u32 i = (u32)(m - peer->pool->members);
	struct block_device *bdev = READ_ONCE(m->bdev);
	struct kvctx_path_found f = { KVCTX_PATH_GONE, -1 };

	if (bdev)
		path_find(&f, peer->pdev, bdev);
	peer->found[i] = f;
	if (f.reason == KVCTX_PATH_DIRECT)
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

/* -EAGAIN: the driver of *@busy, referenced, is coming or going */
static int peer_attach(struct kvctx_pool *p, struct kvctx_mem *mem, struct pci_dev **busy)
{
	struct pci_dev *pdev = provider_of(mem);
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

/* Pin [addr, addr + length) of the caller, and know the peer if it is one's. */
struct kvctx_mem *kvctx_mem_register(struct kvctx_pool *p, u64 addr, u64 length)
{
	struct kvctx_mem *mem;
	struct pci_dev *pdev;
	int err;

	for (;;) {
		mem = kvctx_mem_pin(addr, length);
		if (IS_ERR(mem) || !mem->foreign)
			return mem;
		err = peer_attach(p, mem, &pdev);
		if (!err)
			return mem;
		kvctx_mem_free(mem);
		if (err != -EAGAIN)
			return ERR_PTR(err);
		err = device_lock_interruptible(&pdev->dev);
		if (!err)
			device_unlock(&pdev->dev);
		pci_dev_put(pdev);
		if (err)
			return ERR_PTR(-ERESTARTNOHAND);
	}
}

/* @mem is about to be freed: nobody uses it. */
void kvctx_peer_remove(struct kvctx_mem *mem)
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

/* The last user of a peer's memory has gone; @mem may be freed. */
void kvctx_peer_idle(void)
{
	/* pairs with the wait in revoke(): the count was dropped before we look for who waits */
	if (wq_has_sleeper(&peers_wait))
		wake_up_all(&peers_wait);
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

/*
 * The members that can move all of the operation's peer memory as it is: by path, and because each run of it is whole
 * blocks of theirs at an address that they can take. Peer memory has no bounce blocks.
 */
u64 kvctx_peer_members(const struct kvctx_op *op)
{
	const struct kvctx_pool *p = op->session->pool;
	u64 members = KVC_ANY_MEMBER, pos = op->offset, blocks = 0, addrs = 0;
	struct kvctx_cursor c;
	struct kvctx_run run;
	u32 i, left;

	for (i = 0; i < op->nr_pieces; i++) {
		const struct kvctx_piece *piece = &op->user[i];

		left = piece->mem->peer ? piece->length : 0;
		if (left)
			members &= piece->mem->peer->members;
		else
			pos += piece->length;
		for (kvctx_cursor_init(&c, piece); left; left -= run.length) {
			kvctx_cursor_run(&c, &run);
			blocks |= pos | run.length;
			addrs |= page_to_phys(run.page) + run.offset;
			kvctx_cursor_advance(&c, run.length);
			pos += run.length;
		}
	}
	rcu_read_lock();
	for (i = 0; i < KVC_MEMBERS_MAX; i++) {
		struct block_device *bdev = READ_ONCE(p->members[i].bdev);

		if (!bdev || blocks & (kvctx_io_unit(bdev) - 1) || addrs & bdev_dma_alignment(bdev))
			members &= ~BIT_ULL(i);
	}
	rcu_read_unlock();
	return members;
}

/* Unbinding */

static void revoke(struct kvctx_peer *peer)
{
	struct kvctx_mem *mem = peer->mem;

	kvctx_park_revoke(peer->pool);
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
	/* pairs with kvctx_mem_get(): see the head of this file */
	smp_mb();
	while ((peer = list_first_entry_or_null(&list, struct kvctx_peer, node))) {
		mutex_unlock(&peers_lock);
		revoke(peer);
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
