// SPDX-License-Identifier: GPL-2.0
/*
 * Load and unload.
 *
 * The netlink family comes last and goes first: while it is there, everything it can ask for works.
 */
#include <linux/module.h>

#include "control/ctrl.h"

static int __init kvctx_init(void)
{
	int err;

	err = kvctx_data_init();
	if (err)
		return err;
	err = kvctx_nodes_init(&kvctx_fops);
	if (err)
		goto err_data;
	err = kvctx_genl_init();
	if (err)
		goto err_nodes;
	return 0;

err_nodes:
	kvctx_nodes_exit();
err_data:
	kvctx_data_exit();
	return err;
}

static void __exit kvctx_exit(void)
{
	kvctx_genl_exit();
	kvctx_pools_exit();
	kvctx_nodes_exit();
	kvctx_data_exit();
}

module_init(kvctx_init);
module_exit(kvctx_exit);

MODULE_DESCRIPTION("KV cache pages on NVMe and NVMe-oF namespaces");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
