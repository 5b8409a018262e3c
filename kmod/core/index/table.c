// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Tables that give objects small numbers: entry blocks and domains.
 *
 * Slots lie in leaves of one page, which are allocated as ids are first used and stay until the table goes. A slot
 * in use holds the object's pointer; a returned one holds the number of the next returned one, shifted left, with the
 * lowest bit set. Lookups take no lock: the caller knows that the id is in use and saw it after it was handed out.
 * Leaves and slots may be read, to prefetch, by those who know nothing of the kind.
 */
#include "index/index.h"

int kvc_table_init(struct kvc_table *t, u32 max)
{
	os_lock_init(&t->lock);
	t->max = max;
	t->used = 0;
	t->free = KVC_NONE;
	t->leaves = os_zalloc(sizeof(*t->leaves) * ((max >> KVC_LEAF_SHIFT) + 1));
	return t->leaves ? 0 : -ENOMEM;
}

void kvc_table_destroy(struct kvc_table *t, void (*drop)(void *obj))
{
	u32 i, j;

	if (!t->leaves)
		return;
	for (i = 0; i <= t->used >> KVC_LEAF_SHIFT; i++) {
		if (!t->leaves[i])
			continue;
		for (j = 0; j < KVC_LEAF_SLOTS; j++)
			if (t->leaves[i][j] && !((unsigned long)t->leaves[i][j] & 1))
				drop(t->leaves[i][j]);
		os_free(t->leaves[i]);
	}
	os_free(t->leaves);
	t->leaves = NULL;
}

static void **slot_of(struct kvc_table *t, u32 id)
{
	return &t->leaves[id >> KVC_LEAF_SHIFT][id & (KVC_LEAF_SLOTS - 1)];
}

/* Take a number for @obj: 0, 1 when the next number lacks its leaf, -ENOMEM when there is none. Locked. */
static int take(struct kvc_table *t, void *obj, u32 *id)
{
	if (t->free != KVC_NONE) {
		*id = t->free;
		t->free = (u32)((unsigned long)*slot_of(t, *id) >> 1);
		if (t->free == KVC_NONE >> 1)
			t->free = KVC_NONE;
	} else {
		if (t->used >= t->max)
			return -ENOMEM;
		if (!t->leaves[t->used >> KVC_LEAF_SHIFT])
			return 1;
		*id = t->used++;
	}
	WRITE_ONCE(*slot_of(t, *id), obj);
	return 0;
}

int kvc_table_add(struct kvc_table *t, void *obj, u32 *id)
{
	void **leaf;
	int r;

	for (;;) {
		os_lock(&t->lock);
		r = take(t, obj, id);
		os_unlock(&t->lock);
		if (r <= 0)
			return r;
		leaf = os_zalloc(sizeof(*leaf) * KVC_LEAF_SLOTS);
		if (!leaf)
			return -ENOMEM;
		os_lock(&t->lock);
		if (t->used < t->max && !t->leaves[t->used >> KVC_LEAF_SHIFT]) {
			os_store_release(&t->leaves[t->used >> KVC_LEAF_SHIFT], leaf);
			leaf = NULL;
		}
		os_unlock(&t->lock);
		os_free(leaf);
	}
}

void kvc_table_del(struct kvc_table *t, u32 id)
{
	unsigned long next;

	os_lock(&t->lock);
	next = t->free == KVC_NONE ? KVC_NONE >> 1 : t->free;
	WRITE_ONCE(*slot_of(t, id), (void *)(next << 1 | 1));
	t->free = id;
	os_unlock(&t->lock);
}
