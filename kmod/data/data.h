/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The data side: sessions of a tenant's node, and their operations; what others may call of it.
 *
 * Here lives what serves an open file: its ioctl table, mmap and poll (session.c), io_uring commands (uring.c),
 * operations from the caller's entry to the completion (submit.c, op.c, store.c, load.c, io.c, send.c), what lets those
 * go on that wait (wait.c) and shows them (debug.c), pages read ahead (slots.c), leases (lease.c), events (events.c),
 * the memory that pages move from and to (mem.c, register.c) and the paths of peers to members (path.c). op.h is for
 * these files alone.
 *
 * It calls the engine and what is in kvctx.h. It does not call the control side, which sits on top of it: what it wants
 * from there (a loss, a flush) it asks for through base.c.
 */
#ifndef KVCTX_DATA_H
#define KVCTX_DATA_H

#include "kvctx.h"

extern const struct file_operations kvctx_fops;
int kvctx_data_init(void);				/* caches; at module load */
void kvctx_data_exit(void);
int kvctx_data_pool_init(struct kvctx_pool *p);		/* io_wq, queues, counters */
void kvctx_data_pool_exit(struct kvctx_pool *p);
void kvctx_debug_add(struct kvctx_pool *p);		/* what waits, in debugfs */
void kvctx_debug_remove(struct kvctx_pool *p);		/* may sleep */
struct pci_dev *kvctx_provider_next(struct pci_dev *from);	/* may sleep */
void kvctx_peers_member(struct kvctx_member *m);	/* it came, or its device goes */
void kvctx_provider_path(struct pci_dev *pdev, const struct kvctx_member *m, struct kvctx_path *row);

#endif
