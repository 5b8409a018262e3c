// SPDX-License-Identifier: GPL-2.0
/*
 * What both sides stand on: who is there, and how a file asks for the work of one above it.
 *
 * Pools and tenants are found here, and sessions counted, whoever made them.
 *
 * To ask is to queue a work item that its owner has set up: a loss (control/member.c), the worker of a member and the
 * flushes it serves (control/worker.c), the end of a removal (control/grow.c), the retry of what waits for space
 * (data/wait.c). So a device that goes away, or the end of a bio, needs to know nobody above it.
 */
#include "kvctx.h"

DEFINE_MUTEX(kvctx_mutex);		/* lists, counts, configuration; never over I/O */
LIST_HEAD(kvctx_pools);
u32 kvctx_generation = 1;
DEFINE_XARRAY_ALLOC(kvctx_minors);	/* minor -> tenant */
static DECLARE_WAIT_QUEUE_HEAD(kvctx_session_gone);

struct kvctx_pool *kvctx_pool_find(const char *name)
{
	struct kvctx_pool *p;

	list_for_each_entry(p, &kvctx_pools, node)
		if (!strcmp(p->name, name))
			return p;
	return NULL;
}

struct kvctx_tenant *kvctx_tenant_get(u32 minor)
{
	struct kvctx_tenant *t;

	mutex_lock(&kvctx_mutex);
	t = xa_load(&kvctx_minors, minor);
	if (t) {
		t->sessions++;
		t->pool->sessions++;
	}
	mutex_unlock(&kvctx_mutex);
	return t;
}

void kvctx_tenant_put(struct kvctx_tenant *t)
{
	mutex_lock(&kvctx_mutex);
	t->sessions--;
	t->pool->sessions--;
	wake_up_all(&kvctx_session_gone);
	mutex_unlock(&kvctx_mutex);
}

/* Until no session is left. Only worth it when nobody can open one any more. */
void kvctx_tenants_wait(struct kvctx_pool *p)
{
	wait_event(kvctx_session_gone, !READ_ONCE(p->sessions));
}

void kvctx_member_failed(struct kvctx_member *m)
{
	if (!test_and_set_bit(KVCTX_MEMBER_FAILED, &m->state))
		queue_work(m->pool->bg_wq, &m->lost_work);
}

void kvctx_worker_kick(struct kvctx_member *m)
{
	mod_delayed_work(m->pool->bg_wq, &m->work, 0);
}

/* A removal may have come to its end, or a loss has to be noted. */
void kvctx_leave_look(struct kvctx_pool *p)
{
	queue_delayed_work(kvctx_system_wq, &p->leave_work, 0);
}

/* ops->space of the engine: any context, no sleep. */
void kvctx_space(struct kvctx_pool *p)
{
	if (READ_ONCE(p->space.some))
		mod_delayed_work(p->io_wq, &p->space_work, 0);
}

void kvctx_flush_start(struct kvctx_flush *f)
{
	struct kvctx_pool *p = f->pool;
	u32 i, nr = f->nr;

	f->err = 0;
	f->losses_before = f->losses_seen ? READ_ONCE(*f->losses_seen) : 0;
	atomic_set(&f->pending, nr);
	/* the last round of this loop may end @f */
	for (i = 0; i < nr; i++) {
		struct kvctx_member *m = &p->members[i];

		f->on[i].flush = f;
		spin_lock(&m->flush_lock);
		list_add_tail(&f->on[i].node, &m->flushes);
		spin_unlock(&m->flush_lock);
		kvctx_worker_kick(m);
	}
}
