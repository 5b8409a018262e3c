// SPDX-License-Identifier: GPL-2.0
/*
 * Slots: pages read ahead into pinned memory of the kernel's. PREFETCH, GET and PUT; LOADs that find their page here;
 * what MATCH has read ahead.
 *
 * A session's slots are one memory, cut into equal parts, mapped by the caller for reading only: what stands in a slot
 * is what the kernel has verified. A slot names the page it holds, or is about to, by key and the engine's sequence
 * number. Who asks for a page asks the engine first; a slot whose page was deleted or replaced meanwhile has another
 * number, and is not served. It loses its name when the key is read ahead again.
 *
 *   FREE      nothing in it
 *   FILLING   named, a read is on its way (slot->fill); operations that came for the page wait in slot->waiters
 *   READY     the page is there
 *
 * A slot is taken for another page when it is not FILLING, its lease is over, and nobody uses it: no GET without its
 * PUT, no LOAD that copies. Those that nobody uses stand in slots->idle by the end of their lease, so the first one is
 * the next to be taken. slot_become() is the one place where a slot changes its state and its place there.
 *
 * A fill is an operation of its own, which goes the way of a LOAD (load.c), always with verification, and nobody
 * waits for its completion but the slot. The session counts it in cq.background, so that close waits for it. If it
 * fails, all who wait get its error. When an urgent operation waits for a fill that waits for its turn at the device
 * (turn.c), the fill goes at once.
 *
 * slots->lock guards everything in a slot, the table and the tree. Nothing is copied or completed under it.
 */
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/rhashtable.h>
#include <linux/slab.h>

#include "op.h"

#define COPY_STEP	(64U << 10)
#define COPY_HERE_MAX	(256U << 10)	/* longer copies are left to pool->io_wq */

enum slot_state {
	SLOT_FREE,
	SLOT_FILLING,
	SLOT_READY,
};

struct kvctx_slot {
	struct rhash_head hash;
	struct rb_node idle;
	enum slot_state state;
	bool named;			/* in slots->pages */
	bool asked;			/* FILLING: by MATCH, which does not wait */
	u8 key[KVC_KEY_LEN];
	u64 seq;
	u32 length;			/* of the page */
	u32 lease_ms;			/* the longest asked for */
	ktime_t end;			/* of the lease */
	unsigned long gets, copies;	/* users */
	struct kvctx_op *fill;		/* FILLING */
	struct list_head waiters;
};

struct kvctx_slots {
	spinlock_t lock;		/* all below, but what never changes: mem, bytes, nr */
	struct kvctx_mem *mem;
	u32 bytes;			/* of a slot */
	u32 nr;
	struct rhashtable pages;	/* by key */
	struct rb_root_cached idle;
	struct kvctx_slot slot[];
};

/* A page that somebody wants to have in a slot */
struct want {
	const u8 *key;
	struct kvc_load load;		/* begun */
	u32 lease_ms;			/* 0: leave the lease as it is */
	u8 prio;
	struct kvctx_op *op;		/* waits for it; NULL: nobody does */
};

static const struct rhashtable_params slot_pages_params = {
	.key_len = KVC_KEY_LEN,
	.key_offset = offsetof(struct kvctx_slot, key),
	.head_offset = offsetof(struct kvctx_slot, hash),
};

static u64 slot_offset(const struct kvctx_slots *t, const struct kvctx_slot *slot)
{
	return (u64)(slot - t->slot) * t->bytes;
}

static bool slot_idle_less(struct rb_node *a, const struct rb_node *b)
{
	return rb_entry(a, struct kvctx_slot, idle)->end < rb_entry(b, struct kvctx_slot, idle)->end;
}

/* After each change of the users and of the end too. */
static void slot_become(struct kvctx_slots *t, struct kvctx_slot *slot, enum slot_state to)
{
	lockdep_assert_held(&t->lock);
	if (!RB_EMPTY_NODE(&slot->idle))
		rb_erase_cached(&slot->idle, &t->idle);
	RB_CLEAR_NODE(&slot->idle);
	slot->state = to;
	if (to != SLOT_FILLING && !slot->gets && !slot->copies)
		rb_add_cached(&slot->idle, &t->idle, slot_idle_less);
}

/* The slot that is named so. */
static struct kvctx_slot *slot_find(struct kvctx_slots *t, const u8 *key)
{
	lockdep_assert_held(&t->lock);
	return rhashtable_lookup_fast(&t->pages, key, slot_pages_params);
}

static void slot_unname(struct kvctx_slots *t, struct kvctx_slot *slot)
{
	lockdep_assert_held(&t->lock);
	if (slot->named)
		rhashtable_remove_fast(&t->pages, &slot->hash, slot_pages_params);
	slot->named = false;
}

static int slot_name(struct kvctx_slots *t, struct kvctx_slot *slot, const u8 *key)
{
	lockdep_assert_held(&t->lock);
	memcpy(slot->key, key, sizeof(slot->key));
	if (rhashtable_insert_fast(&t->pages, &slot->hash, slot_pages_params))
		return -ENOMEM;
	slot->named = true;
	return 0;
}

/* @op gets what it came for: it counts as a user until served, or until PUT. */
static void slot_use(struct kvctx_slots *t, struct kvctx_slot *slot, struct kvctx_op *op)
{
	lockdep_assert_held(&t->lock);
	op->slot = slot;
	if (op->call.opcode == KVCTX_OP_LOAD)
		slot->copies++;
	else if (op->call.opcode == KVCTX_OP_GET)
		slot->gets++;
}

static void slot_copy(struct kvctx_op *op)
{
	struct kvctx_slots *t = op->session->slots;
	struct kvctx_slot *slot = op->slot;
	struct kvctx_piece piece = {
		.mem = t->mem, .offset = slot_offset(t, slot) + op->call.offset, .length = op->call.length,
	};
	struct kvctx_cursor from, to;
	struct kvctx_run run;
	u32 left;

	kvctx_cursor_init(&from, &piece);
	kvctx_cursor_init(&to, op->mem.user);
	for (left = op->call.length; left; left -= run.length) {
		kvctx_cursor_run(&from, &run);
		run.length = min(run.length, COPY_STEP);
		kvctx_cursor_advance(&from, run.length);
		kvctx_cursor_write(&to, page_address(run.page) + run.offset, run.length);
		cond_resched();
	}
	spin_lock(&t->lock);
	slot->copies--;
	slot_become(t, slot, slot->state);
	spin_unlock(&t->lock);
	kvctx_op_complete(op, op->call.length, KVCTX_CQE_FROM_DRAM | KVCTX_CQE_VERIFIED);
}

static void slot_copy_work(struct work_struct *work)
{
	slot_copy(container_of(work, struct kvctx_op, run.work));
}

/* Complete @op, whose page is in its slot. @flags: KVCTX_CQE_* that a PREFETCH or GET completes with. */
static void slot_serve(struct kvctx_op *op, u32 flags)
{
	struct kvctx_slot *slot = op->slot;

	if (op->call.opcode == KVCTX_OP_PREFETCH) {
		/* not a user: the slot may be another page's by now */
		kvctx_op_complete(op, op->call.length, flags);
	} else if (op->call.opcode == KVCTX_OP_GET) {
		kvctx_op_complete(op, slot - op->session->slots->slot, flags);
	} else if (op->call.length <= COPY_HERE_MAX) {
		slot_copy(op);
	} else {
		kvctx_op_process(op, slot_copy_work);
	}
}

/*
 * Drop the operations that waited for the fill until after their deadline. false: nobody is left, nor will anybody
 * come.
 */
static bool slot_drop_late(struct kvctx_slots *t, struct kvctx_slot *slot)
{
	ktime_t now = ktime_get();
	struct kvctx_op *op, *tmp;
	LIST_HEAD(late);
	bool left;

	spin_lock(&t->lock);
	list_for_each_entry_safe(op, tmp, &slot->waiters, wait.node)
		if (op->call.deadline <= now)
			list_move_tail(&op->wait.node, &late);
	left = slot->asked || !list_empty(&slot->waiters);
	if (!left)
		slot_unname(t, slot);
	spin_unlock(&t->lock);
	list_for_each_entry_safe(op, tmp, &late, wait.node)
		kvctx_op_complete(op, -ETIME, 0);
	return left;
}

/* The fill's turn. */
static void slot_fill_go(struct kvctx_op *fill, int err)
{
	if (!err && !slot_drop_late(fill->session->slots, fill->slot)) {
		kvctx_turn_end(fill);
		err = -ETIME;
	}
	kvctx_load_go(fill, err);
}

/* The end of a fill, to.done. The session may be gone on return. */
static void slot_fill_done(struct kvctx_op *fill, s32 res, u32 flags)
{
	struct kvctx_session *s = fill->session;
	struct kvctx_slots *t = s->slots;
	struct kvctx_slot *slot = fill->slot;
	struct kvctx_op *op, *tmp;
	LIST_HEAD(waiters);

	spin_lock(&t->lock);
	list_splice_init(&slot->waiters, &waiters);
	slot->fill = NULL;
	if (res < 0) {
		slot_unname(t, slot);
		slot->end = 0;
		slot_become(t, slot, SLOT_FREE);
	} else {
		slot->end = ktime_add_ms(ktime_get(), slot->lease_ms);
		list_for_each_entry(op, &waiters, wait.node)
			slot_use(t, slot, op);
		slot_become(t, slot, SLOT_READY);
	}
	spin_unlock(&t->lock);
	list_for_each_entry_safe(op, tmp, &waiters, wait.node) {
		if (res < 0)
			kvctx_op_complete(op, res, 0);
		else
			slot_serve(op, flags);
	}
	kvctx_cq_background(s, -1);
}

/*
 * Give w->op the page, or let it wait, if a slot has it or is being filled with it. false: none is. With true, w->op
 * may be gone.
 */
static bool slot_join(struct kvctx_session *s, const struct want *w)
{
	struct kvctx_slots *t = s->slots;
	struct kvctx_op *raise = NULL;
	struct kvctx_slot *slot;
	bool ready;

	spin_lock(&t->lock);
	slot = slot_find(t, w->key);
	if (!slot || slot->seq != w->load.seq) {
		spin_unlock(&t->lock);
		return false;
	}
	ready = slot->state == SLOT_READY;
	slot->lease_ms = max(slot->lease_ms, w->lease_ms);
	if (w->lease_ms)
		slot->end = max(slot->end, ktime_add_ms(ktime_get(), w->lease_ms));
	if (!w->op) {
		slot->asked = true;
	} else if (ready) {
		slot_use(t, slot, w->op);
	} else {
		list_add_tail(&w->op->wait.node, &slot->waiters);
		if (w->prio < slot->fill->call.prio && kvctx_turn_recall(slot->fill))
			raise = slot->fill;
	}
	slot_become(t, slot, slot->state);
	spin_unlock(&t->lock);
	if (w->op)
		percpu_counter_inc(&s->pool->counters.slot_hits);
	if (raise) {
		raise->call.prio = w->prio;
		kvctx_turn_take(raise);
	}
	if (w->op && ready)
		slot_serve(w->op, KVCTX_CQE_FROM_DRAM | KVCTX_CQE_VERIFIED);
	return true;
}

static const struct kvctx_op_kind slot_fill_kind = { .go = slot_fill_go, .finish = kvctx_load_finish };

static struct kvctx_op *slot_fill_alloc(struct kvctx_session *s, const struct want *w)
{
	struct kvctx_op *spare = NULL, *fill = kvctx_op_alloc(s, &spare);

	if (!fill)
		return NULL;
	fill->call.opcode = KVCTX_OP_LOAD;
	fill->call.prio = w->prio;
	memcpy(fill->call.key, w->key, sizeof(fill->call.key));
	fill->call.length = w->load.length;
	fill->load.verify = true;
	fill->load.page = w->load;
	fill->io.member = w->load.member;
	fill->call.deadline = KTIME_MAX;
	fill->to.done = slot_fill_done;
	fill->kind = &slot_fill_kind;
	return fill;
}

/* A slot for @fill. -EEXIST: there is one by now; -ENOSPC; -ENOMEM. */
static int slot_take(struct kvctx_slots *t, struct kvctx_op *fill, const struct want *w)
{
	struct kvctx_slot *slot, *old;

	lockdep_assert_held(&t->lock);
	old = slot_find(t, w->key);
	if (old && old->seq == w->load.seq)
		return -EEXIST;
	slot = rb_entry_safe(rb_first_cached(&t->idle), struct kvctx_slot, idle);
	if (!slot || slot->end > ktime_get())
		return -ENOSPC;
	if (old)
		slot_unname(t, old);
	slot_unname(t, slot);
	if (slot_name(t, slot, w->key)) {
		slot_become(t, slot, SLOT_FREE);
		return -ENOMEM;
	}
	slot->seq = w->load.seq;
	slot->length = w->load.length;
	slot->lease_ms = w->lease_ms;
	slot->asked = !w->op;
	slot->fill = fill;
	if (w->op)
		list_add_tail(&w->op->wait.node, &slot->waiters);
	slot_become(t, slot, SLOT_FILLING);
	fill->slot = slot;
	return 0;
}

/* Begin to read the page into a slot, for w->op. 0: taken over, with w->load; or slot_take()'s errors. */
static int slot_fill(struct kvctx_session *s, const struct want *w)
{
	struct kvctx_op *fill = slot_fill_alloc(s, w);
	struct kvctx_slots *t = s->slots;
	int err;

	if (!fill)
		return -ENOMEM;
	spin_lock(&t->lock);
	err = slot_take(t, fill, w);
	spin_unlock(&t->lock);
	if (err) {
		kvctx_op_discard(fill);
		return err;
	}
	kvctx_cq_background(s, 1);
	percpu_counter_inc(&s->pool->counters.prefetches);
	*fill->mem.user = (struct kvctx_piece){
		.mem = t->mem, .offset = slot_offset(t, fill->slot), .length = fill->call.length,
	};
	fill->mem.nr = 1;
	atomic_inc(&t->mem->users);
	err = kvctx_load_move(fill);
	if (err)
		kvctx_op_complete(fill, err, 0);
	return 0;
}

/* 0: somebody takes care of w->op; an error completes it. w->load is not the caller's any more either way. */
static int slot_want(struct kvctx_session *s, const struct want *w)
{
	struct kvc_load load = w->load;
	int err;

	do {
		if (slot_join(s, w)) {
			err = 0;
			break;
		}
		err = -EOPNOTSUPP;
		if (!w->load.no_crcs)
			err = w->load.length > s->slots->bytes ? -E2BIG : slot_fill(s, w);
		if (!err)
			return 0;
	} while (err == -EEXIST);
	kvc_load_end(s->pool->core, &load, 0);
	return err;
}

/* PREFETCH, GET */
int kvctx_prefetch_start(struct kvctx_op *op)
{
	struct kvctx_session *s = op->session;
	struct want w = { .key = op->call.key, .lease_ms = op->call.lease_ms, .prio = op->call.prio, .op = op };
	int err;

	if (!s->slots)
		return -EOPNOTSUPP;
	if (!op->call.lease_ms || op->call.lease_ms > KVCTX_LEASE_MS_MAX)
		return -EINVAL;
	err = kvc_load_begin(s->pool->core, s->domain, op->call.key, &w.load);
	if (err)
		return err;
	op->call.length = w.load.length;
	return slot_want(s, &w);
}

s32 kvctx_slot_put(struct kvctx_session *s, const struct kvctx_sqe *sqe)
{
	struct kvctx_slots *t = s->slots;
	struct kvctx_slot *slot;
	s32 err = 0;

	if (!t)
		return -EOPNOTSUPP;
	if (sqe->lease >= t->nr)
		return -EINVAL;
	slot = &t->slot[array_index_nospec(sqe->lease, t->nr)];
	spin_lock(&t->lock);
	if (slot->gets) {
		slot->gets--;
		slot_become(t, slot, slot->state);
	} else {
		err = -EINVAL;
	}
	spin_unlock(&t->lock);
	return err;
}

/*
 * A LOAD that was begun. true: it is served from a slot, now or when that is filled; @op may be gone. false: it goes to
 * the device.
 */
static bool slot_load(struct kvctx_op *op)
{
	struct kvctx_session *s = op->session;
	struct want w = { .key = op->call.key, .prio = op->call.prio, .op = op };

	if (!s->slots || op->mem.p2p || op->call.flags & KVCTX_OP_NO_SLOT)
		return false;
	w.load = op->load.page;
	if (!slot_join(s, &w))
		return false;
	kvc_load_end(s->pool->core, &w.load, 0);
	return true;
}

/* LOAD: from a slot, or from the device */
int kvctx_load_start(struct kvctx_op *op)
{
	int err = kvctx_load_begin(op);

	return err || slot_load(op) ? err : kvctx_load_move(op);
}

/* For MATCH: have pages read ahead, from the first on. Returns how many are in slots or on their way. */
u32 kvctx_slots_prefetch(struct kvctx_session *s, const struct kvctx_key *keys, u32 nr, u32 lease_ms)
{
	u32 i;

	if (!s->slots)
		return 0;
	for (i = 0; i < nr; i++) {
		struct want w = { .key = (const u8 *)&keys[i], .lease_ms = lease_ms, .prio = KVCTX_PRIO_BACKGROUND };

		if (kvc_load_begin(s->pool->core, s->domain, w.key, &w.load) || slot_want(s, &w))
			break;
		cond_resched();
	}
	return i;
}

int kvctx_slots_mmap(struct kvctx_session *s, struct vm_area_struct *vma, u64 offset)
{
	if (!s->slots)
		return -EINVAL;
	if (vma->vm_flags & VM_WRITE)
		return -EACCES;
	vm_flags_clear(vma, VM_MAYWRITE);
	return kvctx_mem_mmap(s->slots->mem, vma, offset);
}

/* At SETUP: @nr slots of *@slot_bytes, which is rounded up. */
int kvctx_slots_setup(struct kvctx_session *s, u32 *slot_bytes, u32 nr)
{
	struct rhashtable_params params = slot_pages_params;
	struct kvctx_slots *t;
	int err;
	u32 i;

	t = kvzalloc(struct_size(t, slot, nr), GFP_KERNEL_ACCOUNT);
	if (!t)
		return -ENOMEM;
	spin_lock_init(&t->lock);
	t->nr = nr;
	t->bytes = PAGE_ALIGN(*slot_bytes);
	t->idle = RB_ROOT_CACHED;
	for (i = 0; i < nr; i++) {
		INIT_LIST_HEAD(&t->slot[i].waiters);
		RB_CLEAR_NODE(&t->slot[i].idle);
	}
	t->mem = kvctx_mem_alloc((u64)nr * t->bytes, true);
	if (IS_ERR(t->mem)) {
		err = PTR_ERR(t->mem);
		goto err_free;
	}
	params.nelem_hint = nr;
	err = rhashtable_init(&t->pages, &params);
	if (err)
		goto err_mem;
	spin_lock(&t->lock);
	for (i = 0; i < nr; i++)
		slot_become(t, &t->slot[i], SLOT_FREE);
	spin_unlock(&t->lock);
	*slot_bytes = t->bytes;
	s->slots = t;
	return 0;

err_mem:
	kvctx_mem_free(t->mem);
err_free:
	kvfree(t);
	return err;
}

/* No operation and no fill is left. */
void kvctx_slots_free(struct kvctx_session *s)
{
	struct kvctx_slots *t = s->slots;

	if (!t)
		return;
	s->slots = NULL;
	rhashtable_destroy(&t->pages);
	kvctx_mem_free(t->mem);
	kvfree(t);
}
