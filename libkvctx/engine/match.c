// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * MATCH: finds the pages of a prefix, and may lease them (lease.c) and have them read ahead (slots.c).
 *
 * As an operation it is answered to the caller's memory: at once when there are few keys, else by the pool's attendant,
 * so that SUBMIT does not take long.
 */
#include "session.h"

#define MATCH_FEW	256U

/* What is asked for, and what is found */
struct match {
	u32 flags;			/* KVCTX_MATCH_* */
	u32 nr_keys;
	u32 lease_ms;
	struct kvctx_key *keys;
	u64 *present;			/* kvc_bits(nr_keys) words of zeros; without ALL not used */
	u32 *lens;			/* or NULL */
	u32 nr_present, nr_prefetched, lease;
};

/* The first of the pages that were found. The keys are not in their places afterwards. */
static u32 match_prefetch(struct kve_session *s, struct match *m)
{
	u32 i, n = 0;

	for (i = 0; m->flags & KVCTX_MATCH_ALL && i < m->nr_keys; i++)
		if (m->present[i / 64] & BIT_ULL(i % 64))
			m->keys[n++] = m->keys[i];
	return kve_slots_prefetch(s, m->keys, m->nr_present, m->lease_ms);
}

/* All keys at once: to the engine they are a request, whose last pages say as much as its first. 0 or -ENOMEM */
static int match_find(struct kve_session *s, struct match *m)
{
	struct kve_lease *l = NULL;
	s32 id = -ENOSPC;
	u32 i;

	if (m->flags & KVCTX_MATCH_LEASE) {
		l = kve_lease_alloc(m->nr_keys);
		if (!l)
			return -ENOMEM;
	}
	for (i = 0; i < m->nr_keys; i++)
		kvctx_key_bytes(&m->keys[i]);
	m->nr_present = kvc_match(s->pool->core, s->domain, (const u8 (*)[KVC_KEY_LEN])m->keys, m->nr_keys,
				  m->flags & KVCTX_MATCH_ALL ? m->present : NULL, m->lens,
				  l ? kve_lease_pages(l) : NULL);
	if (m->flags & KVCTX_MATCH_PREFETCH)
		m->nr_prefetched = match_prefetch(s, m);
	if (!l)
		return 0;
	if (m->nr_present)
		id = kve_lease_add(s, l, m->nr_present, m->lease_ms);
	if (id > 0)
		m->lease = (u32)id;
	else
		kve_lease_drop(s, l, m->nr_present);
	return 0;
}

int kve_match(struct kve_session *s, struct kvctx_match *arg)
{
	struct match m = {
		.flags = arg->flags, .nr_keys = arg->nr_keys, .lease_ms = arg->lease_ms,
		.present = (u64 *)arg->present, .lens = (u32 *)arg->lens,
	};
	int err = kvctx_match_check(arg);

	if (err)
		return err;
	m.keys = malloc(m.nr_keys * sizeof(*m.keys));
	if (!m.keys)
		return -ENOMEM;
	memcpy(m.keys, (const void *)arg->keys, m.nr_keys * sizeof(*m.keys));
	if (m.flags & KVCTX_MATCH_ALL) {
		memset(m.present, 0, kvc_bits(m.nr_keys) * sizeof(*m.present));
		if (m.lens)
			memset(m.lens, 0, m.nr_keys * sizeof(*m.lens));
	}
	err = match_find(s, &m);
	free(m.keys);
	arg->nr_present = m.nr_present;
	arg->nr_prefetched = m.nr_prefetched;
	arg->lease = m.lease;
	return err;
}

/* To where a LOAD's bytes would go; what does not fit is left out. */
static void match_answer(struct kve_op *op, const struct match *m)
{
	struct kvctx_found found = {
		.nr_present = m->nr_present, .nr_prefetched = m->nr_prefetched, .lease = m->lease,
	};
	u32 left = op->call.length - (u32)sizeof(found), n;
	struct kve_cursor c = { .vec = op->mem.vec };

	kve_cursor_write(&c, &found, sizeof(found));
	n = min_t(u32, left, kvc_bits(m->nr_keys) * sizeof(*m->present));
	kve_cursor_write(&c, m->present, n);
	kve_cursor_write(&c, m->lens, min_t(u32, left - n, m->nr_keys * sizeof(*m->lens)));
}

static s32 match_op(struct kve_op *op)
{
	struct match m = {
		.flags = op->call.flags >> KVCTX_OP_MATCH_SHIFT, .nr_keys = op->call.nr_keys,
		.lease_ms = op->call.lease_ms, .keys = op->call.keys,
	};
	u32 words = kvc_bits(m.nr_keys), i;
	int err;

	if (op->call.deadline <= kve_now())
		return -ETIME;
	m.present = calloc(1, words * sizeof(*m.present) + m.nr_keys * sizeof(*m.lens));
	if (!m.present)
		return -ENOMEM;
	m.lens = (u32 *)(m.present + words);
	err = match_find(op->session, &m);
	for (i = 0; !(m.flags & KVCTX_MATCH_ALL) && i < m.nr_present; i++)
		m.present[i / 64] |= BIT_ULL(i % 64);
	if (!err)
		match_answer(op, &m);
	free(m.present);
	return err ? err : (s32)m.nr_present;
}

static void match_work(struct kve_job *job)
{
	struct kve_op *op = (struct kve_op *)((u8 *)job - offsetof(struct kve_op, match));

	kve_op_complete(op, match_op(op), 0);
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
