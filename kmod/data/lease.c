// SPDX-License-Identifier: GPL-2.0
/*
 * Leases: pages that reclaim leaves alone for a while; and MATCH, which finds the pages of a prefix and may lease them,
 * and have them read ahead (slots.c). As an operation it is answered on pool->io_wq, to the caller's registered memory.
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

/* @l in as much memory as its pages need: there may be many leases, each of a long prompt of which little was found. */
static struct lease *lease_fit(struct lease *l)
{
	size_t bytes = struct_size(l, pages, l->nr);
	struct lease *fit = kvmalloc(bytes, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);

	if (!fit)
		return l;
	memcpy(fit, l, bytes);
	kvfree(l);
	return fit;
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
	/* of a MATCH that is answered while the session closes: behind kvctx_lease_exit() nobody ends it */
	if (READ_ONCE(s->dying) || l->nr > KVCTX_LEASES_MAX - s->lease_pages) {
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

/* The session is dying: no lease is added any more. */
void kvctx_lease_exit(struct kvctx_session *s)
{
	lease_expire(s, KTIME_MAX);
	cancel_delayed_work_sync(&s->lease_work);
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

/* What a MATCH asks for, and what it finds */
struct lease_match {
	u32 flags;			/* KVCTX_MATCH_* */
	u32 nr_keys;
	u32 lease_ms;
	struct kvctx_key *keys;
	u64 *present;			/* kvc_bits(nr_keys) words of zeros; without ALL not used */
	u32 *lens;			/* or NULL */
	u32 nr_present, nr_prefetched, lease;
};

/* The first of the pages that were found. The keys are not in their places afterwards. */
static u32 lease_prefetch(struct kvctx_session *s, struct lease_match *m)
{
	u32 i, n = 0;

	for (i = 0; m->flags & KVCTX_MATCH_ALL && i < m->nr_keys; i++)
		if (m->present[i / 64] & BIT_ULL(i % 64))
			m->keys[n++] = m->keys[i];
	return s->slots ? kvctx_slots_prefetch(s->slots, m->keys, m->nr_present, m->lease_ms, NULL) : 0;
}

/* All keys at once: to the engine they are a request, whose last pages say as much as its first. 0 or -ENOMEM */
static int lease_match(struct kvctx_session *s, struct lease_match *m)
{
	struct lease *l = NULL;
	struct blk_plug plug;
	s32 id;
	u32 i;

	if (m->flags & KVCTX_MATCH_LEASE) {
		l = lease_alloc(m->nr_keys);
		if (!l)
			return -ENOMEM;
	}
	for (i = 0; i < m->nr_keys; i++)
		kvctx_key_bytes(&m->keys[i]);
	m->nr_present = kvc_match(s->pool->core, s->domain, (const u8 (*)[KVC_KEY_LEN])m->keys, m->nr_keys,
				  m->flags & KVCTX_MATCH_ALL ? m->present : NULL, m->lens, l ? l->pages : NULL);
	if (l)
		l->nr = m->nr_present;
	if (m->flags & KVCTX_MATCH_PREFETCH) {
		blk_start_plug(&plug);
		m->nr_prefetched = lease_prefetch(s, m);
		blk_finish_plug(&plug);
	}
	if (l && l->nr) {
		if (l->nr < m->nr_keys)
			l = lease_fit(l);
		id = lease_add(s, l, m->lease_ms);
		if (id > 0) {
			m->lease = id;
			l = NULL;
		}
	}
	lease_end(s, l);
	return 0;
}

/* What was found, to the caller's arrays */
static int lease_match_tell(const struct lease_match *m, u64 present, u64 lens)
{
	bool all = m->flags & KVCTX_MATCH_ALL;
	u32 nr = all ? m->nr_keys : m->nr_present;

	if (all && copy_to_user(u64_to_user_ptr(present), m->present, kvc_bits(nr) * sizeof(*m->present)))
		return -EFAULT;
	return lens && copy_to_user(u64_to_user_ptr(lens), m->lens, nr * sizeof(*m->lens)) ? -EFAULT : 0;
}

static long lease_match_user(struct kvctx_session *s, struct kvctx_match *arg, struct lease_match *m)
{
	int err;

	if (copy_from_user(m->keys, u64_to_user_ptr(arg->keys), m->nr_keys * sizeof(*m->keys)))
		return -EFAULT;
	err = lease_match(s, m);
	if (err)
		return err;
	/* when the leases have an end: the caller's memory may keep us waiting */
	err = lease_match_tell(m, arg->present, arg->lens);
	if (err)
		lease_release(s, m->lease);
	arg->nr_present = m->nr_present;
	arg->nr_prefetched = m->nr_prefetched;
	arg->lease = m->lease;
	return err;
}

long kvctx_match(struct kvctx_session *s, struct kvctx_match *arg)
{
	struct lease_match m = { .flags = arg->flags, .nr_keys = arg->nr_keys, .lease_ms = arg->lease_ms };
	bool all = arg->flags & KVCTX_MATCH_ALL;
	long ret;

	ret = kvctx_match_check(arg);
	if (ret)
		return ret;
	m.keys = kvmalloc_array(m.nr_keys, sizeof(*m.keys), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (arg->lens)
		m.lens = kvcalloc(m.nr_keys, sizeof(*m.lens), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (all)
		m.present = kvcalloc(kvc_bits(m.nr_keys), sizeof(*m.present), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (m.keys && (m.lens || !arg->lens) && (m.present || !all))
		ret = lease_match_user(s, arg, &m);
	else
		ret = -ENOMEM;
	kvfree(m.present);
	kvfree(m.lens);
	kvfree(m.keys);
	return ret;
}

/* To where a LOAD's bytes would go; what does not fit is left out. */
static void lease_match_answer(struct kvctx_op *op, const struct lease_match *m)
{
	struct kvctx_found found = {
		.nr_present = m->nr_present, .nr_prefetched = m->nr_prefetched, .lease = m->lease,
	};
	u32 left = op->call.length - sizeof(found), n;
	struct kvctx_cursor c;

	kvctx_cursor_init(&c, op->mem.user);
	kvctx_cursor_write(&c, &found, sizeof(found));
	n = min_t(u32, left, kvc_bits(m->nr_keys) * sizeof(*m->present));
	kvctx_cursor_write(&c, m->present, n);
	n = min_t(u32, left - n, m->nr_keys * sizeof(*m->lens));
	kvctx_cursor_write(&c, m->lens, n);
}

static s32 lease_match_op(struct kvctx_op *op, struct lease_match *m)
{
	u32 words = kvc_bits(m->nr_keys), i;
	int err;

	err = kvctx_op_unwanted(op);
	if (!err && op->call.deadline <= os_now())
		err = -ETIME;
	if (err)
		return err;
	m->present = kvzalloc(words * sizeof(*m->present) + m->nr_keys * sizeof(*m->lens),
			      GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!m->present)
		return -ENOMEM;
	m->lens = (u32 *)(m->present + words);
	err = lease_match(op->session, m);
	for (i = 0; !(m->flags & KVCTX_MATCH_ALL) && i < m->nr_present; i++)
		m->present[i / 64] |= BIT_ULL(i % 64);
	if (!err)
		lease_match_answer(op, m);
	kvfree(m->present);
	return err ?: (s32)m->nr_present;
}

static void lease_match_work(struct work_struct *work)
{
	struct kvctx_op *op = container_of(work, struct kvctx_op, run.work);
	struct lease_match m = {
		.flags = op->call.flags >> KVCTX_OP_MATCH_SHIFT, .nr_keys = op->call.nr_keys,
		.lease_ms = op->call.lease_ms, .keys = op->call.keys,
	};

	kvctx_op_complete(op, lease_match_op(op, &m), 0);
}

/* Many keys take their time: not that of who submits. */
int kvctx_match_start(struct kvctx_op *op)
{
	if (op->mem.p2p)
		return -EREMOTEIO;
	kvctx_op_process(op, lease_match_work);
	return 0;
}
