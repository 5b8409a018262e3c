// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * MATCH: finds the pages of a prefix, and may lease them (lease.c) and have them read ahead (slots.c).
 */
#include "session/lease.h"

/* The first of the pages that were found. The keys are not in their places afterwards. */
static u32 match_prefetch(struct kvctx_lookup *m)
{
	u32 i, n = 0;

	if (!(m->flags & KVCTX_MATCH_PREFETCH) || !m->slots)
		return 0;
	for (i = 0; m->flags & KVCTX_MATCH_ALL && i < m->nr_keys; i++)
		if (m->present[i / 64] & BIT_ULL(i % 64))
			m->keys[n++] = m->keys[i];
	return kvctx_slots_prefetch(m->slots, m->keys, m->found.nr_present, m->lease_ms, m->batch);
}

/* All keys at once: to the engine they are a request, whose last pages say as much as its first. 0 or -ENOMEM */
int kvctx_match_find(struct kvctx_lookup *m)
{
	struct kvctx_lease *l = NULL;
	s32 id = 0;
	u32 i;

	if (m->flags & KVCTX_MATCH_LEASE) {
		l = kvctx_lease_alloc(m->nr_keys);
		if (!l)
			return -ENOMEM;
	}
	for (i = 0; i < m->nr_keys; i++)
		kvctx_key_bytes(&m->keys[i]);
	m->found.nr_present = kvc_match(m->leases->core, m->domain, (const u8 (*)[KVC_KEY_LEN])m->keys, m->nr_keys,
					m->flags & KVCTX_MATCH_ALL ? m->present : NULL, m->lens,
					l ? kvctx_lease_pages(l) : NULL);
	m->found.nr_prefetched = match_prefetch(m);
	if (l)
		id = kvctx_lease_enter(m->leases, l, m->found.nr_present, m->lease_ms);
	m->found.lease = id > 0 ? (u32)id : 0;
	return 0;
}

/*
 * The operation: what goes to where a LOAD's bytes would go, of *@bytes, to be os_free()d; NULL: no memory. What does
 * not fit there is left out. @m has what it needs but for what @req says.
 */
struct kvctx_found *kvctx_match_answer(struct kvctx_lookup *m, const struct kvctx_req *req, u32 *bytes)
{
	size_t bits = kvc_bits(req->nr_keys) * sizeof(*m->present), lens = req->nr_keys * sizeof(*m->lens);
	struct kvctx_found *answer = os_zalloc_charged(sizeof(*answer) + bits + lens);
	u32 i;

	if (!answer)
		return NULL;
	m->flags = req->flags >> KVCTX_OP_MATCH_SHIFT;
	m->nr_keys = req->nr_keys;
	m->lease_ms = req->lease_ms;
	m->keys = req->keys;
	m->present = (u64 *)(answer + 1);
	m->lens = (u32 *)((u8 *)m->present + bits);
	if (kvctx_match_find(m)) {
		os_free(answer);
		return NULL;
	}
	for (i = 0; !(m->flags & KVCTX_MATCH_ALL) && i < m->found.nr_present; i++)
		m->present[i / 64] |= BIT_ULL(i % 64);
	*answer = m->found;
	*bytes = min_t(u32, req->length, sizeof(*answer) + bits + lens);
	return answer;
}
