/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * Slots of a session, see slots.c. The server has their memory, and moves what goes into it and out of it.
 */
#ifndef KVCTX_SLOTS_H
#define KVCTX_SLOTS_H

#include "session/req.h"
#include "session/tree.h"

enum kvctx_slot_state {
	KVCTX_SLOT_FREE,
	KVCTX_SLOT_FILLING,
	KVCTX_SLOT_READY,
};

struct kvctx_slot {
	struct kvctx_tree_node name;	/* in slots->pages, by the page's sequence number */
	struct kvctx_tree_node idle;	/* in slots->idle, by the end of the lease */
	enum kvctx_slot_state state;
	bool asked;			/* FILLING: by MATCH, which does not wait */
	u8 key[KVC_KEY_LEN];
	u32 lease_ms;			/* the longest asked for */
	u64 end;			/* of the lease */
	u64 gets, copies;		/* users */
	struct kvctx_req *fill;		/* FILLING */
	struct list_head waiters;
};

struct kvctx_slots {
	struct os_lock lock;		/* all that changes */
	const struct kvctx_slots_ops *ops;
	void *session;			/* the server's */
	struct kvc_pool *core;
	struct kvc_domain *domain;
	u32 bytes;			/* of a slot */
	u32 nr;
	struct kvctx_tree pages, idle;
	struct kvctx_slot slot[];
};

/* What the server does for them. No lock is held, but where it says so */
struct kvctx_slots_ops {
	/*
	 * A fill is an operation that reads a page, with verification, into its slot. A new one, of that page; NULL: no
	 * memory. @batch: as the caller of ours named it
	 */
	struct kvctx_req *(*fill)(struct kvctx_slots *t, const struct kvc_load *page, void *batch);
	void (*discard)(struct kvctx_req *fill);	/* it does not begin */
	void (*begin)(struct kvctx_req *fill);		/* kvctx_slot_filled() follows */
	bool (*recall)(struct kvctx_req *fill);		/* does it wait for its turn? Not any more. Slots locked */
	void (*hurry)(struct kvctx_req *fill);		/* one that was recalled goes on, with another priority */
	void (*copy)(struct kvctx_req *load);		/* from its slot to the caller; kvctx_slot_copied() follows */
	void (*hit)(struct kvctx_slots *t);		/* counts a page that was here, or on its way */
	bool (*may_read_ahead)(struct kvctx_slots *t);	/* has its tenant bytes left for that? See pace.c */
};

/* NULL: no memory. Freed by os_free() when there is no operation and no fill any more */
struct kvctx_slots *kvctx_slots_new(u32 bytes, u32 nr);

static inline u64 kvctx_slot_offset(const struct kvctx_slots *t, const struct kvctx_slot *slot)
{
	return (u64)(slot - t->slot) * t->bytes;
}

int kvctx_slot_start(struct kvctx_slots *t, struct kvctx_req *req, void *batch);
bool kvctx_slot_load(struct kvctx_slots *t, struct kvctx_req *req, const struct kvc_load *page);
u32 kvctx_slots_prefetch(struct kvctx_slots *t, const struct kvctx_key *keys, u32 nr, u32 lease_ms, void *batch);
s32 kvctx_slot_put(struct kvctx_slots *t, u32 nr);
void kvctx_slot_copied(struct kvctx_slots *t, struct kvctx_req *load);
bool kvctx_slot_wanted(struct kvctx_slots *t, struct kvctx_req *fill);
void kvctx_slot_filled(struct kvctx_slots *t, struct kvctx_req *fill, s32 res, u32 flags);

#endif
