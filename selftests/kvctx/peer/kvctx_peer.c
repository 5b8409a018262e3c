// SPDX-License-Identifier: GPL-2.0
/*
 * A stand-in for a GPU, for the tests of peer-to-peer DMA: binds QEMU's ivshmem-plain device and publishes its memory
 * BAR as P2PDMA memory, as a GPU's driver does with its video memory. User space maps it through the device's sysfs
 * file p2pmem/allocate. The machine outside sees the same bytes in the file behind the device.
 *
 * With the parameter "linger" it does not let go of the device before that is cleared, as drivers do that wait for the
 * processes that use theirs.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>

#define MEMORY_BAR	2	/* of ivshmem; docs/specs/ivshmem-spec of QEMU */

static bool linger;
module_param(linger, bool, 0644);
MODULE_PARM_DESC(linger, "keep the device, whoever unbinds it, until this is cleared");

static int peer_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int err = pcim_enable_device(pdev);

	if (err)
		return err;
	pci_set_master(pdev);
	err = pci_p2pdma_add_resource(pdev, MEMORY_BAR, 0, 0);
	if (err)
		return dev_err_probe(&pdev->dev, err, "BAR %d cannot be published\n", MEMORY_BAR);
	pci_p2pmem_publish(pdev, true);
	return 0;
}

static void peer_remove(struct pci_dev *pdev)
{
	while (READ_ONCE(linger))
		msleep(20);
}

static const struct pci_device_id peer_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110) },
	{ }
};
MODULE_DEVICE_TABLE(pci, peer_ids);

static struct pci_driver peer_driver = {
	.name = "kvctx_peer",
	.id_table = peer_ids,
	.probe = peer_probe,
	.remove = peer_remove,
};
module_pci_driver(peer_driver);

MODULE_DESCRIPTION("Test driver: memory of an emulated device as P2PDMA memory");
MODULE_LICENSE("GPL");
