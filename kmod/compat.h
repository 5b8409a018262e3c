/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The only place for differences between kernels. The rest of the module is written for the newest one.
 *
 * Each entry tells what changed, since when, and when it can go. The presence of an interface is asked for rather than
 * a version where the preprocessor can see it, since stable kernels take changes back.
 */
#ifndef KVCTX_COMPAT_H
#define KVCTX_COMPAT_H

#include <linux/pci.h>

/*
 * Does a device's driver offer memory to peers? pci_has_p2pmem() told so in 6.12 and is gone in 7.2; the field is used
 * only with CONFIG_PCI_P2PDMA. Can go when a kernel has a call for it again.
 */
#ifdef CONFIG_PCI_P2PDMA
#define kvctx_has_peer_memory(pdev)	rcu_access_pointer((pdev)->p2pdma)
#else
#define kvctx_has_peer_memory(pdev)	((void)(pdev), false)
#endif

#endif
