// SPDX-License-Identifier: GPL-2.0
/*
 * The data side's resources: those of the module and those of a pool.
 */
#include "op.h"

int kvctx_data_init(void)
{
	int err;

	err = kvctx_op_init();
	if (err)
		return err;
	kvctx_session_wq = alloc_workqueue("kvctx_session", WQ_UNBOUND, 0);
	if (!kvctx_session_wq) {
		err = -ENOMEM;
		goto err_op;
	}
	err = kvctx_peers_init();
	if (err)
		goto err_wq;
	kvctx_debug_init();
	return 0;

err_wq:
	destroy_workqueue(kvctx_session_wq);
err_op:
	kvctx_op_exit();
	return err;
}

void kvctx_data_exit(void)
{
	kvctx_debug_exit();
	kvctx_peers_exit();
	destroy_workqueue(kvctx_session_wq);
	kvctx_op_exit();
}

#define DATA_NR_COUNTERS	(sizeof(struct kvctx_counters) / sizeof(struct percpu_counter))

int kvctx_data_pool_init(struct kvctx_pool *p)
{
	int err;

	init_llist_head(&p->bottom);
	INIT_WORK(&p->bottom_work, kvctx_bottom_work);
	kvctx_wait_init(p);
	p->impatient_until = jiffies;
	err = percpu_counter_init_many((struct percpu_counter *)&p->counters, 0, GFP_KERNEL, DATA_NR_COUNTERS);
	if (err)
		return err;
	/* unbound: a thread that submits a batch shall not checksum all of it on its own CPU */
	p->io_wq = alloc_workqueue("kvctx_io", WQ_UNBOUND | WQ_MEM_RECLAIM | WQ_FREEZABLE, 0);
	if (!p->io_wq)
		goto err_counters;
	/* apart: an item of it lasts as long as a device does not answer */
	p->send_wq = alloc_workqueue("kvctx_send", WQ_UNBOUND | WQ_MEM_RECLAIM | WQ_FREEZABLE, 0);
	if (!p->send_wq)
		goto err_io_wq;
	return 0;

err_io_wq:
	destroy_workqueue(p->io_wq);
err_counters:
	percpu_counter_destroy_many((struct percpu_counter *)&p->counters, DATA_NR_COUNTERS);
	return -ENOMEM;
}

/* No session exists any more. */
void kvctx_data_pool_exit(struct kvctx_pool *p)
{
	flush_work(&p->bottom_work);
	kvctx_wait_exit(p);
	destroy_workqueue(p->send_wq);
	destroy_workqueue(p->io_wq);
	percpu_counter_destroy_many((struct percpu_counter *)&p->counters, DATA_NR_COUNTERS);
}
