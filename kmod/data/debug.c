// SPDX-License-Identifier: GPL-2.0
/*
 * What waits, and where: /sys/kernel/debug/kvctx/POOL/waiting, a line an operation, for whoever finds that something
 * does not end. It says nothing of keys. Reading it takes the queues' locks one after the other, so it is no snapshot.
 *
 *   WHERE   paced    for what its tenant may have in flight, or move in a second     (session/pace.c)
 *           parked   for space, or those before it do                                (session/park.c)
 *           queued   for its turn at the member                                      (session/turn.c)
 *           sending  its bios for a place in the member's queue                      (send.c)
 *   MS      since SUBMIT took it; LEFT: until its deadline, in ms, - is none
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "op.h"

#define DEBUG_LINES	256U		/* of a queue */

static struct dentry *debug_dir;

static const char *const debug_ops[KVCTX_OPS] = {
	[KVCTX_OP_STORE] = "STORE", [KVCTX_OP_LOAD] = "LOAD", [KVCTX_OP_DELETE] = "DELETE",
	[KVCTX_OP_PREFETCH] = "PREFETCH", [KVCTX_OP_GET] = "GET",
};

static const char *const debug_prios[] = { "-", "urgent", "normal", "background" };

static void debug_line(struct seq_file *m, const char *where, int member, const struct kvctx_req *req, u64 now)
{
	const char *op = req->opcode < KVCTX_OPS ? debug_ops[req->opcode] : NULL;
	const char *prio = req->prio < ARRAY_SIZE(debug_prios) ? debug_prios[req->prio] : "-";

	seq_printf(m, "%-7s %6d %6u %-8s %-10s %10u %8llu ", where, member, req->tenant, op ?: "?", prio, req->length,
		   (now - req->since) / KVCTX_NSEC_PER_MS);
	if (req->deadline == OS_NEVER)
		seq_puts(m, "       -\n");
	else
		seq_printf(m, "%8lld\n", (s64)(req->deadline - now) / (s64)KVCTX_NSEC_PER_MS);
}

static void debug_queue(struct seq_file *m, const char *where, int member, struct kvctx_queue *q)
{
	struct kvctx_req *req;
	u64 now = os_now();
	u32 i, nr = 0;

	if (!os_atomic_read(&q->waiting) && !os_atomic_read(&q->passed))
		return;
	os_lock_task(&q->lock);
	for (i = 0; i < ARRAY_SIZE(q->reqs); i++)
		list_for_each_entry(req, &q->reqs[i], wait.node)
			if (nr++ < DEBUG_LINES)
				debug_line(m, where, member, req, now);
	os_unlock_task(&q->lock);
	if (nr > DEBUG_LINES)
		seq_printf(m, "%-7s %6d and %u more\n", where, member, nr - DEBUG_LINES);
}

static void debug_sending(struct seq_file *m, struct kvctx_member *member)
{
	u64 now = os_now();
	struct kvctx_bio *b;
	u32 nr = 0;

	spin_lock_irq(&member->send.lock);
	list_for_each_entry(b, &member->send.bios, node)
		if (nr++ < DEBUG_LINES)
			debug_line(m, "sending", member->index, &b->op->call, now);
	spin_unlock_irq(&member->send.lock);
	if (nr > DEBUG_LINES)
		seq_printf(m, "%-7s %6u and %u more\n", "sending", member->index, nr - DEBUG_LINES);
}

static int waiting_show(struct seq_file *m, void *v)
{
	struct kvctx_pool *p = m->private;
	u32 i;

	seq_puts(m, "WHERE   MEMBER TENANT OP       PRIORITY        BYTES       MS     LEFT\n");
	for (i = 0; i < KVC_TENANTS_MAX; i++) {
		debug_queue(m, "paced", -1, &p->pace.of[i].queue);
		debug_queue(m, "parked", -1, &p->space.of[i]);
	}
	for (i = 0; i < kvctx_nr_members(p); i++) {
		debug_queue(m, "queued", i, &p->members[i].turn.queue);
		debug_sending(m, &p->members[i]);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(waiting);

/* Of a pool that serves. What fails here is missed by nobody. */
void kvctx_debug_add(struct kvctx_pool *p)
{
	p->debug = debugfs_create_dir(p->name, debug_dir);
	debugfs_create_file("waiting", 0400, p->debug, p, &waiting_fops);
}

/* Nobody reads it any more on return. */
void kvctx_debug_remove(struct kvctx_pool *p)
{
	debugfs_remove(p->debug);
	p->debug = NULL;
}

void kvctx_debug_init(void)
{
	debug_dir = debugfs_create_dir("kvctx", NULL);
}

void kvctx_debug_exit(void)
{
	debugfs_remove(debug_dir);
}
