// SPDX-License-Identifier: GPL-2.0
/*
 * Leases: pages that reclaim leaves alone for a while; and MATCH, which finds the leading pages of a prefix and may
 * lease them, and have them read ahead (slots.c).
 *
 * A lease of a session is a set of pages under one id with one end: RELEASE, its time limit, or the session's close,
 * whichever comes first. Ids come from session->leases, whose lock guards the table, the tree of ends and the number
 * of pages. Who unlinks a lease under that lock ends it, outside the lock.
 */
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "op.h"

struct lease {
	u32 id;
	u32 nr;
	ktime_t end;
	struct rb_node node;		/* in session->lease_ends */
	struct kvc_lease pages[];
};

static struct lease *lease_alloc(u32 nr)
{
	struct lease *l = kvmalloc(struct_size(l, pages, nr), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);

	if (l)
		l->nr = 0;
	return l;
}

static void lease_end(struct kvctx_session *s, struct lease *l)
{
	u32 i;

	if (!l)
		return;
	for (i = 0; i < l->nr; i++)
		kvc_lease_put(s->pool->core, &l->pages[i]);
	kvfree(l);
}

static bool lease_less(struct rb_node *a, const struct rb_node *b)
{
	return rb_entry(a, struct lease, node)->end < rb_entry(b, struct lease, node)->end;
}

static struct lease *lease_first(struct kvctx_session *s)
{
	return rb_entry_safe(rb_first_cached(&s->lease_ends), struct lease, node);
}

static void lease_unlink(struct kvctx_session *s, struct lease *l)
{
	lockdep_assert_held(&s->leases.xa_lock);
	__xa_erase(&s->leases, l->id);
	rb_erase_cached(&l->node, &s->lease_ends);
	s->lease_pages -= l->nr;
}

static void lease_arm(struct kvctx_session *s, ktime_t end)
{
	s64 ms = max(ktime_to_ms(ktime_sub(end, ktime_get())), 0LL);

	/* a jiffy more, so that the end has passed when the work runs */
	mod_delayed_work(kvctx_session_wq, &s->lease_work, msecs_to_jiffies(ms) + 1);
}

/* Enter a lease of pages that are held already. Its id, or -ENOSPC, -ENOMEM: then the caller ends it. */
static s32 lease_add(struct kvctx_session *s, struct lease *l, u32 ms)
{
	int err;

	l->end = ktime_add_ms(ktime_get(), ms);
	/* keeps the id, shows no lease yet */
	err = xa_alloc_cyclic(&s->leases, &l->id, NULL, XA_LIMIT(1, INT_MAX), &s->lease_next, GFP_KERNEL_ACCOUNT);
	if (err < 0)
		return -ENOMEM;
	xa_lock(&s->leases);
	if (l->nr > KVCTX_LEASES_MAX - s->lease_pages) {
		__xa_erase(&s->leases, l->id);
		xa_unlock(&s->leases);
		return -ENOSPC;
	}
	__xa_store(&s->leases, l->id, l, 0);
	rb_add_cached(&l->node, &s->lease_ends, lease_less);
	s->lease_pages += l->nr;
	if (lease_first(s) == l)
		lease_arm(s, l->end);
	err = l->id;
	xa_unlock(&s->leases);
	return err;
}

/* End what is due at @now. */
static void lease_expire(struct kvctx_session *s, ktime_t now)
{
	struct lease *l;

	for (;;) {
		xa_lock(&s->leases);
		l = lease_first(s);
		if (l && l->end > now) {
			lease_arm(s, l->end);
			l = NULL;
		}
		if (l)
			lease_unlink(s, l);
		xa_unlock(&s->leases);
		if (!l)
			return;
		lease_end(s, l);
		cond_resched();
	}
}

static void lease_work(struct work_struct *work)
{
	lease_expire(container_of(to_delayed_work(work), struct kvctx_session, lease_work), ktime_get());
}

void kvctx_lease_init(struct kvctx_session *s)
{
	xa_init_flags(&s->leases, XA_FLAGS_ALLOC1);
	s->lease_ends = RB_ROOT_CACHED;
	INIT_DELAYED_WORK(&s->lease_work, lease_work);
}

/* The session closes and starts no operation any more. */
void kvctx_lease_exit(struct kvctx_session *s)
{
	cancel_delayed_work_sync(&s->lease_work);
	lease_expire(s, KTIME_MAX);
	xa_destroy(&s->leases);
}

s32 kvctx_lease_one(struct kvctx_session *s, const struct kvctx_sqe *sqe)
{
	struct kvctx_key key = sqe->key;
	struct lease *l;
	s32 ret;

	if (!sqe->lease_ms || sqe->lease_ms > KVCTX_LEASE_MS_MAX)
		return -EINVAL;
	l = lease_alloc(1);
	if (!l)
		return -ENOMEM;
	ret = kvc_lease_get(s->pool->core, s->domain, kvctx_key_bytes(&key), &l->pages[0]);
	if (!ret) {
		l->nr = 1;
		ret = lease_add(s, l, sqe->lease_ms);
	}
	if (ret < 0)
		lease_end(s, l);
	return ret;
}

static int lease_release(struct kvctx_session *s, u32 id)
{
	struct lease *l;

	xa_lock(&s->leases);
	l = xa_load(&s->leases, id);
	if (l)
		lease_unlink(s, l);
	xa_unlock(&s->leases);
	lease_end(s, l);
	return l ? 0 : -EINVAL;
}

s32 kvctx_lease_release(struct kvctx_session *s, const struct kvctx_sqe *sqe)
{
	return lease_release(s, sqe->lease);
}

/* All keys at once: to the engine they are a request, whose last pages say as much as its first. */
static long lease_match(struct kvctx_session *s, struct kvctx_match *arg, struct kvctx_key *keys, u32 *lens,
			struct lease *l)
{
	u32 i, found;

	if (copy_from_user(keys, u64_to_user_ptr(arg->keys), arg->nr_keys * sizeof(*keys)))
		return -EFAULT;
	for (i = 0; i < arg->nr_keys; i++)
		kvctx_key_bytes(&keys[i]);
	found = kvc_match(s->pool->core, s->domain, (const u8 (*)[KVC_KEY_LEN])keys, arg->nr_keys, NULL, lens,
			  l ? l->pages : NULL);
	if (l)
		l->nr = found;
	if (arg->flags & KVCTX_MATCH_PREFETCH)
		arg->nr_prefetched = kvctx_slots_prefetch(s, keys, found, arg->lease_ms);
	arg->nr_present = found;
	return 0;
}

long kvctx_match(struct kvctx_session *s, struct kvctx_match *arg)
{
	bool lease = arg->flags & KVCTX_MATCH_LEASE;
	struct blk_plug plug;
	struct kvctx_key *keys;
	struct lease *l = NULL;
	u32 *lens = NULL;
	long ret;
	s32 id;

	ret = kvctx_match_check(arg);
	if (ret)
		return ret;
	arg->lease = 0;
	arg->nr_prefetched = 0;
	keys = kvmalloc_array(arg->nr_keys, sizeof(*keys), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (arg->lens)
		lens = kvmalloc_array(arg->nr_keys, sizeof(*lens), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (lease)
		l = lease_alloc(arg->nr_keys);
	ret = -ENOMEM;
	if (!keys || (arg->lens && !lens) || (lease && !l))
		goto out;
	blk_start_plug(&plug);
	ret = lease_match(s, arg, keys, lens, l);
	blk_finish_plug(&plug);
	if (l && !ret && l->nr) {
		id = lease_add(s, l, arg->lease_ms);
		if (id > 0) {
			arg->lease = id;
			l = NULL;
		}
	}
	lease_end(s, l);
	l = NULL;
	/* when the leases have an end: the caller's memory may keep us waiting */
	if (!ret && lens && copy_to_user(u64_to_user_ptr(arg->lens), lens, arg->nr_present * sizeof(*lens))) {
		ret = -EFAULT;
		lease_release(s, arg->lease);
	}
out:
	lease_end(s, l);
	kvfree(lens);
	kvfree(keys);
	return ret;
}
