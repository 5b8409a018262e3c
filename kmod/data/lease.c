// SPDX-License-Identifier: GPL-2.0
/*
 * Leases and MATCH: their timer, and the caller's memory. What they are says session/lease.c. As an operation MATCH is
 * answered on pool->io_wq, to the caller's registered memory.
 */
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "op.h"

static void lease_arm(struct kvctx_leases *t, u64 end)
{
	struct kvctx_session *s = container_of(t, struct kvctx_session, leases);
	u64 ms = (max(end, os_now()) - os_now()) / NSEC_PER_MSEC;

	/* a jiffy more, so that the end has passed when the work runs */
	mod_delayed_work(kvctx_session_wq, &s->lease_work, msecs_to_jiffies(ms) + 1);
}

static void lease_work(struct work_struct *work)
{
	kvctx_leases_expire(&container_of(to_delayed_work(work), struct kvctx_session, lease_work)->leases, os_now());
}

void kvctx_lease_init(struct kvctx_session *s)
{
	kvctx_leases_init(&s->leases);
	s->leases.core = s->pool->core;
	s->leases.arm = lease_arm;
	INIT_DELAYED_WORK(&s->lease_work, lease_work);
}

void kvctx_lease_exit(struct kvctx_session *s)
{
	kvctx_leases_close(&s->leases);
	cancel_delayed_work_sync(&s->lease_work);
}

s32 kvctx_lease(struct kvctx_session *s, const struct kvctx_sqe *sqe)
{
	return kvctx_lease_one(&s->leases, s->domain, sqe);
}

s32 kvctx_release(struct kvctx_session *s, const struct kvctx_sqe *sqe)
{
	return kvctx_lease_release(&s->leases, sqe->lease);
}

static struct kvctx_lookup lease_lookup(struct kvctx_session *s)
{
	return (struct kvctx_lookup){ .leases = &s->leases, .slots = s->slots, .domain = s->domain };
}

/* What was found, to the caller's arrays */
static int lease_match_tell(const struct kvctx_lookup *m, u64 present, u64 lens)
{
	bool all = m->flags & KVCTX_MATCH_ALL;
	u32 nr = all ? m->nr_keys : m->found.nr_present;

	if (all && copy_to_user(u64_to_user_ptr(present), m->present, kvc_bits(nr) * sizeof(*m->present)))
		return -EFAULT;
	return lens && copy_to_user(u64_to_user_ptr(lens), m->lens, nr * sizeof(*m->lens)) ? -EFAULT : 0;
}

static long lease_match_user(struct kvctx_session *s, struct kvctx_match *arg, struct kvctx_lookup *m)
{
	struct kvctx_sending sending;
	int err;

	if (copy_from_user(m->keys, u64_to_user_ptr(arg->keys), m->nr_keys * sizeof(*m->keys)))
		return -EFAULT;
	kvctx_sending_begin(&sending, s->pool);
	err = kvctx_match_find(m);
	kvctx_sending_end(&sending);
	if (err)
		return err;
	/* when the leases have an end: the caller's memory may keep us waiting */
	err = lease_match_tell(m, arg->present, arg->lens);
	if (err)
		kvctx_lease_release(&s->leases, m->found.lease);
	arg->nr_present = m->found.nr_present;
	arg->nr_prefetched = m->found.nr_prefetched;
	arg->lease = m->found.lease;
	return err;
}

long kvctx_match(struct kvctx_session *s, struct kvctx_match *arg)
{
	bool all = arg->flags & KVCTX_MATCH_ALL;
	struct kvctx_lookup m = lease_lookup(s);
	long ret;

	ret = kvctx_match_check(arg);
	if (ret)
		return ret;
	if (unlikely(s->cipher) && !kvctx_cipher_valid(s->cipher))
		return -ENOKEY;
	m.flags = arg->flags;
	m.nr_keys = arg->nr_keys;
	m.lease_ms = arg->lease_ms;
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

static s32 lease_match_op(struct kvctx_op *op)
{
	struct kvctx_lookup m = lease_lookup(op->session);
	struct kvctx_found *answer;
	struct kvctx_cursor c;
	struct kvctx_sending sending;
	u32 bytes;
	int err;

	err = kvctx_req_unwanted(&op->call);
	if (err)
		return err;
	if (op->call.deadline <= os_now())
		return -ETIME;
	kvctx_sending_begin(&sending, op->session->pool);
	answer = kvctx_match_answer(&m, &op->call, &bytes);
	kvctx_sending_end(&sending);
	if (!answer)
		return -ENOMEM;
	kvctx_cursor_init(&c, op->mem.user);
	kvctx_cursor_write(&c, answer, bytes);
	os_free(answer);
	return m.found.nr_present;
}

static void lease_match_work(struct work_struct *work)
{
	struct kvctx_op *op = container_of(work, struct kvctx_op, run.work);

	kvctx_op_complete(op, lease_match_op(op), 0);
}

/* Many keys take their time: not that of who submits. */
int kvctx_match_start(struct kvctx_op *op)
{
	if (op->mem.p2p)
		return -EREMOTEIO;
	kvctx_op_process(op, lease_match_work);
	return 0;
}
