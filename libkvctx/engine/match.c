// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Leases and MATCH: their timer, which the attendant looks after, and the caller's memory. What they are says
 * kmod/session/lease.c.
 *
 * As an operation MATCH is answered to the caller's memory: at once when there are few keys, else by the pool's
 * attendant, so that SUBMIT does not take long.
 */
#include "session.h"

#define MATCH_FEW	256U

static void lease_arm(struct kvctx_leases *t, u64 end)
{
	struct kve_session *s = container_of(t, struct kve_session, leases);

	kve_job_queue(s->pool, &s->lease_job, end);
}

static void lease_work(struct kve_job *job)
{
	kvctx_leases_expire(&container_of(job, struct kve_session, lease_job)->leases, os_now());
}

void kve_lease_init(struct kve_session *s)
{
	kvctx_leases_init(&s->leases);
	s->leases.core = s->pool->core;
	s->leases.arm = lease_arm;
	s->lease_job.fn = lease_work;
}

/* The session closes and starts no operation any more. */
void kve_lease_exit(struct kve_session *s)
{
	kvctx_leases_close(&s->leases);
	kve_job_cancel(s->pool, &s->lease_job);
}

s32 kve_lease(struct kve_session *s, const struct kvctx_sqe *sqe)
{
	return kvctx_lease_one(&s->leases, s->domain, sqe);
}

s32 kve_release(struct kve_session *s, const struct kvctx_sqe *sqe)
{
	return kvctx_lease_release(&s->leases, sqe->lease);
}

static struct kvctx_lookup match_lookup(struct kve_session *s, struct kve_batch *batch)
{
	batch->last = &batch->stores;
	return (struct kvctx_lookup){ .leases = &s->leases, .slots = s->slots, .domain = s->domain, .batch = batch };
}

int kve_match(struct kve_session *s, struct kvctx_match *arg)
{
	struct kve_batch batch = {};
	struct kvctx_lookup m = match_lookup(s, &batch);
	int err = kvctx_match_check(arg);

	if (err)
		return err;
	if (unlikely(s->cipher) && !kve_cipher_valid(s->cipher))
		return -ENOKEY;
	m.flags = arg->flags;
	m.nr_keys = arg->nr_keys;
	m.lease_ms = arg->lease_ms;
	m.present = (u64 *)arg->present;
	m.lens = (u32 *)arg->lens;
	m.keys = malloc(m.nr_keys * sizeof(*m.keys));
	if (!m.keys)
		return -ENOMEM;
	memcpy(m.keys, (const void *)arg->keys, m.nr_keys * sizeof(*m.keys));
	if (m.flags & KVCTX_MATCH_ALL) {
		memset(m.present, 0, kvc_bits(m.nr_keys) * sizeof(*m.present));
		if (m.lens)
			memset(m.lens, 0, m.nr_keys * sizeof(*m.lens));
	}
	err = kvctx_match_find(&m);
	if (m.found.nr_prefetched)
		kve_send(s);
	free(m.keys);
	arg->nr_present = m.found.nr_present;
	arg->nr_prefetched = m.found.nr_prefetched;
	arg->lease = m.found.lease;
	return err;
}

static s32 match_op(struct kve_op *op)
{
	struct kve_batch batch = {};
	struct kvctx_lookup m = match_lookup(op->session, &batch);
	struct kve_cursor c = { .vec = op->mem.vec };
	struct kvctx_found *answer;
	u32 bytes;

	if (op->call.deadline <= kve_now())
		return -ETIME;
	answer = kvctx_match_answer(&m, &op->call, &bytes);
	if (m.found.nr_prefetched)
		kve_send(op->session);
	if (!answer)
		return -ENOMEM;
	kve_cursor_write(&c, answer, bytes);
	os_free(answer);
	return (s32)m.found.nr_present;
}

static void match_work(struct kve_job *job)
{
	struct kve_op *op = container_of(job, struct kve_op, match);

	struct kve_session *s = op->session;
	bool there = kve_touch(s);

	kve_op_complete(op, there ? match_op(op) : -ECANCELED, 0);
	if (there)
		kve_untouch(s);
}

int kve_match_start(struct kve_op *op)
{
	if (op->call.nr_keys <= MATCH_FEW) {
		kve_op_complete(op, match_op(op), 0);
		return 0;
	}
	op->match.fn = match_work;
	kve_job_queue(op->session->pool, &op->match, 0);
	return 0;
}
