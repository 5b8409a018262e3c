/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * Tables of pointers by number: of entry blocks, and of domains.
 */
#ifndef KVC_TABLE_H
#define KVC_TABLE_H

#include "os.h"

/* id -> pointer, for ids handed out by the table itself. get needs no lock as long as the id is in use. */
struct kvc_table {
	struct os_lock lock;
	void	***leaves;
	u32	max, used;		/* ids below used were handed out at least once */
	u32	free;			/* chain of returned ids */
};

#define KVC_LEAF_SHIFT		9
#define KVC_LEAF_SLOTS		512U

int kvc_table_init(struct kvc_table *t, u32 max);
void kvc_table_destroy(struct kvc_table *t, void (*drop)(void *obj));
int kvc_table_add(struct kvc_table *t, void *obj, u32 *id);	/* allocates */
void kvc_table_del(struct kvc_table *t, u32 id);

static inline void *kvc_table_get(const struct kvc_table *t, u32 id)
{
	return t->leaves[id >> KVC_LEAF_SHIFT][id & (KVC_LEAF_SLOTS - 1)];
}

/* Where an id's pointer is, and what is there now: of any id that was ever handed out, but it may be anything. */
static inline void *const *kvc_table_place(const struct kvc_table *t, u32 id)
{
	void *const *leaf = os_load_acquire(&t->leaves[id >> KVC_LEAF_SHIFT]);

	return &leaf[id & (KVC_LEAF_SLOTS - 1)];
}

static inline const void *kvc_table_peek(const struct kvc_table *t, u32 id)
{
	return READ_ONCE(*kvc_table_place(t, id));
}

os_static_assert(KVC_LEAF_SLOTS >> KVC_LEAF_SHIFT == 1, "slots of a leaf");

#endif
