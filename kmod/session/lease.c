// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Leases: pages that reclaim leaves alone for a while.
 *
 * A lease of a session is a set of pages under one id with one end: RELEASE, its time limit, or the session's close,
 * whichever comes first. leases->lock guards the trees of ids and of ends, and the number of pages. Who takes a lease
 * out under that lock ends it, outside the lock.
 */
#include "session/lease.h"

struct kvctx_lease {
	struct kvctx_tree_node id, end;
	u32 nr;
	struct kvc_lease pages[];
};

static size_t lease_bytes(u32 nr)
{
	return sizeof(struct kvctx_lease) + nr * sizeof(struct kvc_lease);
}

struct kvctx_lease *kvctx_lease_alloc(u32 nr)
{
	struct kvctx_lease *l = os_alloc_charged(lease_bytes(nr));

	if (l)
		l->nr = nr;
	return l;
}

struct kvc_lease *kvctx_lease_pages(struct kvctx_lease *l)
{
	return l->pages;
}

/* It is in no tree: let go of its pages, and of it. */
static void lease_end(struct kvctx_leases *t, struct kvctx_lease *l)
{
	u32 i;

	for (i = 0; i < l->nr; i++)
		kvc_lease_put(t->core, &l->pages[i]);
	os_free(l);
}

static struct kvctx_lease *lease_first(struct kvctx_leases *t)
{
	struct kvctx_tree_node *n = kvctx_tree_first(&t->ends);

	return n ? container_of(n, struct kvctx_lease, end) : NULL;
}

static void lease_unlink(struct kvctx_leases *t, struct kvctx_lease *l)
{
	os_assert_locked(&t->lock);
	kvctx_tree_remove(&t->ids, &l->id);
	kvctx_tree_remove(&t->ends, &l->end);
	t->pages -= l->nr;
}

/* A free id, from 1 to S32_MAX, given in turn: one that was used lately is not used again so soon. */
static u32 lease_id(struct kvctx_leases *t)
{
	os_assert_locked(&t->lock);
	do {
		t->last_id = t->last_id % INT_MAX + 1;
	} while (kvctx_tree_find(&t->ids, t->last_id));
	return t->last_id;
}

static s32 lease_add(struct kvctx_leases *t, struct kvctx_lease *l, u32 ms)
{
	u64 end = os_now() + ms * KVCTX_NSEC_PER_MS;
	s32 id = -ENOSPC;

	os_lock_task(&t->lock);
	if (!t->closed && l->nr <= KVCTX_LEASES_MAX - t->pages) {
		id = (s32)lease_id(t);
		l->id.key = (u64)id;
		l->end.key = end;
		kvctx_tree_add(&t->ids, &l->id);
		kvctx_tree_add(&t->ends, &l->end);
		t->pages += l->nr;
		if (lease_first(t) == l)
			t->arm(t, end);
	}
	os_unlock_task(&t->lock);
	return id;
}

/* @l in as much memory as its pages need: there may be many leases, each of a long prompt of which little was found. */
static struct kvctx_lease *lease_fit(struct kvctx_lease *l, u32 nr)
{
	struct kvctx_lease *fit = nr < l->nr ? kvctx_lease_alloc(nr) : NULL;

	l->nr = nr;
	if (!fit)
		return l;
	memcpy(fit, l, lease_bytes(nr));
	os_free(l);
	return fit;
}

/* Enter a lease of @nr pages, which are held already. Its id; or -ENOSPC, and it is ended. */
s32 kvctx_lease_enter(struct kvctx_leases *t, struct kvctx_lease *l, u32 nr, u32 ms)
{
	s32 id;

	l = lease_fit(l, nr);
	id = nr ? lease_add(t, l, ms) : -ENOSPC;
	if (id < 0)
		lease_end(t, l);
	return id;
}

/* End what is due at @now. */
void kvctx_leases_expire(struct kvctx_leases *t, u64 now)
{
	struct kvctx_lease *l;

	do {
		os_lock_task(&t->lock);
		l = lease_first(t);
		if (l && l->end.key > now) {
			t->arm(t, l->end.key);
			l = NULL;
		}
		if (l)
			lease_unlink(t, l);
		os_unlock_task(&t->lock);
		if (l)
			lease_end(t, l);
		os_relax();
	} while (l);
}

/* End all; the timer is not armed any more. A MATCH may still be answered meanwhile. */
void kvctx_leases_close(struct kvctx_leases *t)
{
	os_lock_task(&t->lock);
	t->closed = true;
	os_unlock_task(&t->lock);
	kvctx_leases_expire(t, OS_NEVER);
}

s32 kvctx_lease_one(struct kvctx_leases *t, struct kvc_domain *d, const struct kvctx_sqe *sqe)
{
	struct kvctx_key key = sqe->key;
	struct kvctx_lease *l;
	s32 err;

	if (!sqe->lease_ms || sqe->lease_ms > KVCTX_LEASE_MS_MAX)
		return -EINVAL;
	l = kvctx_lease_alloc(1);
	if (!l)
		return -ENOMEM;
	err = kvc_lease_get(t->core, d, kvctx_key_bytes(&key), l->pages);
	if (err) {
		os_free(l);
		return err;
	}
	return kvctx_lease_enter(t, l, 1, sqe->lease_ms);
}

int kvctx_lease_release(struct kvctx_leases *t, u32 id)
{
	struct kvctx_tree_node *n;

	os_lock_task(&t->lock);
	n = kvctx_tree_find(&t->ids, id);
	if (n)
		lease_unlink(t, container_of(n, struct kvctx_lease, id));
	os_unlock_task(&t->lock);
	if (!n)
		return -EINVAL;
	lease_end(t, container_of(n, struct kvctx_lease, id));
	return 0;
}

void kvctx_leases_init(struct kvctx_leases *t)
{
	os_lock_init(&t->lock);
}
