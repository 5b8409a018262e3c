// SPDX-License-Identifier: LGPL-2.1-or-later
/* MATCH: finds the leading pages of a prefix, and may lease them (lease.c) and have them read ahead (slots.c). */
#include "session.h"

/* All keys at once: to the engine they are a request, whose last pages say as much as its first. */
static void match_find(struct kve_session *s, struct kvctx_match *arg, struct kvctx_key *keys, struct kve_lease *l)
{
	u32 i;

	memcpy(keys, (const void *)arg->keys, arg->nr_keys * sizeof(*keys));
	for (i = 0; i < arg->nr_keys; i++)
		kve_key_bytes(&keys[i]);
	arg->nr_present = kvc_match(s->pool->core, s->domain, (const u8 (*)[KVC_KEY_LEN])keys, arg->nr_keys,
				    NULL, (u32 *)arg->lens, l ? kve_lease_pages(l) : NULL);
	if (arg->flags & KVCTX_MATCH_PREFETCH)
		arg->nr_prefetched = kve_slots_prefetch(s, keys, arg->nr_present, arg->lease_ms);
}

int kve_match(struct kve_session *s, struct kvctx_match *arg)
{
	struct kve_lease *l = NULL;
	struct kvctx_key *keys;
	s32 id = -ENOSPC;
	int err = kvctx_match_check(arg);

	if (err)
		return err;
	arg->lease = 0;
	arg->nr_prefetched = 0;
	keys = malloc(arg->nr_keys * sizeof(*keys));
	if (arg->flags & KVCTX_MATCH_LEASE)
		l = kve_lease_alloc(arg->nr_keys);
	if (!keys || (!l && arg->flags & KVCTX_MATCH_LEASE)) {
		free(l);
		free(keys);
		return -ENOMEM;
	}
	match_find(s, arg, keys, l);
	free(keys);
	if (!l)
		return 0;
	if (arg->nr_present)
		id = kve_lease_add(s, l, arg->nr_present, arg->lease_ms);
	if (id > 0)
		arg->lease = (u32)id;
	else
		kve_lease_drop(s, l, arg->nr_present);
	return 0;
}
