// SPDX-License-Identifier: GPL-2.0
/*
 * Paths between the memory of PCI devices and members.
 *
 *	provider   the PCI device in whose BAR the memory lies
 *	client     the PCI device that a member's transfers are made by
 *	path       what is between the two
 *
 * Which device provides a page is not told by any exported call; the BAR that holds its address is. The client of an
 * NVMe namespace is an ancestor of its disk. The disk of a multipath head has none: its controllers are found by the
 * name of the path's disk, nvmeScCnN below controller C for the head nvmeSnN, and the worst of them counts.
 */
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>

#include "op.h"

/* Are these bytes in a BAR of the device? */
bool kvctx_path_holds(struct pci_dev *pdev, phys_addr_t addr, u64 bytes)
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
struct pci_dev *kvctx_path_device(phys_addr_t addr, u64 bytes)
{
	struct pci_dev *pdev = NULL;

	for_each_pci_dev(pdev)
		if (kvctx_path_holds(pdev, addr, bytes))
			break;
	return pdev;
}

static struct device *path_client(struct device *dev)
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
struct path_head {
	struct pci_dev *provider;
	u32 subsys, ns;			/* numbers in the head's name */
	struct kvctx_path_found *found;
	u32 controllers;
};

static int path_controller(struct device *ctrl, void *data)
{
	char disk[sizeof_field(struct gendisk, disk_name)];
	struct path_head *search = data;
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
	path_to(search->found, search->provider, path_client(ctrl));
	return 0;
}

static void path_head(struct kvctx_path_found *f, struct pci_dev *provider, const char *head)
{
	struct path_head search = { .provider = provider, .found = f };
	struct pci_dev *pdev = NULL;

	if (sscanf(head, "nvme%un%u", &search.subsys, &search.ns) == 2)
		while ((pdev = pci_get_class(PCI_CLASS_STORAGE_EXPRESS, pdev)))
			device_for_each_child(&pdev->dev, &search, path_controller);
	if (!search.controllers)
		path_worse(f, KVCTX_PATH_NO_PCI, -1);
}

/* What is between memory of @provider and a member, or a place where none is. */
void kvctx_path_find(struct kvctx_path_found *f, struct pci_dev *provider, const struct kvctx_member *m)
{
	struct block_device *bdev = READ_ONCE(m->bdev);
	struct device *client;

	*f = (struct kvctx_path_found){ KVCTX_PATH_GONE, -1 };
	if (!bdev)
		return;
	client = path_client(disk_to_dev(bdev->bd_disk));
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
	struct kvctx_path_found f;

	kvctx_path_find(&f, pdev, m);
	*row = (struct kvctx_path){ .member = m->index, .reason = f.reason, .distance = f.distance };
	strscpy(row->peer, pci_name(pdev));
}
