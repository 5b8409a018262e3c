// SPDX-License-Identifier: GPL-2.0
/*
 * kvctxd-broken: the daemon with an engine that breaks an invariant of its own when a page with the key "break" is stored,
 * in the midst of that, with its locks held.
 *
 * The linker has the engine's calls of kvc_index_insert() come here.
 */
#include "index/index.h"

void __real_kvc_index_insert(struct kvc_pool *p, u32 bucket, u32 entry);
void __wrap_kvc_index_insert(struct kvc_pool *p, u32 bucket, u32 entry);

void __wrap_kvc_index_insert(struct kvc_pool *p, u32 bucket, u32 entry)
{
	static const u8 key[KVC_KEY_LEN] = "break";
	struct kvc_entry *e = kvc_entry(p, entry);

	if (!memcmp(e->key, key, sizeof(key)))
		e->indexed = 1;
	__real_kvc_index_insert(p, bucket, entry);
}
