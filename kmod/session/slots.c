// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Slots: pages read ahead into memory of the server's. PREFETCH, GET and PUT; LOADs that find their page here; what
 * MATCH has read ahead.
 *
 * A session's slots are one memory, cut into equal parts, mapped by the caller for reading only: what stands in a slot
 * is what was verified. A slot names the page it holds, or is about to, by key and the engine's sequence number. Who
 * asks for a page asks the engine first; a slot whose page was deleted or replaced meanwhile has another number, and is
 * never found again.
 *
 *   FREE      nothing in it
 *   FILLING   named, a read is on its way (slot->fill); operations that came for the page wait in slot->waiters
 *   READY     the page is there
 *
 * A slot is taken for another page when it is not FILLING, its lease is over, and nobody uses it: no GET without its
 * PUT, no LOAD that copies. Those that nobody uses stand in slots->idle by the end of their lease, so the first one is
 * the next to be taken. slot_become() is the one place where a slot changes its state and its place there.
 *
 * A fill is an operation of its own, which goes the way of a LOAD, always with verification, and nobody waits for its
 * completion but the slot. The server sees to it that a session does not go before its fills. If it fails, all who
 * wait get its error. When an urgent operation waits for a fill that waits for its turn at the device, the fill goes
 * at once.
 *
 * slots->lock guards everything in a slot, and the trees. Nothing is copied or completed under it.
 */
#include "session/slots.h"

/* A page that somebody wants to have in a slot */
struct slot_want {
	const u8 *key;
	struct kvc_load load;		/* begun */
	u32 lease_ms;			/* 0: leave the lease as it is */
	u8 prio;
	struct kvctx_req *req;		/* waits for it; NULL: nobody does */
	void *batch;
};

/* After each change of the users and of the end too. */
static void slot_become(struct kvctx_slots *t, struct kvctx_slot *slot, enum kvctx_slot_state to)
{
	os_assert_locked(&t->lock);
	if (slot->idle.in)
		kvctx_tree_remove(&t->idle, &slot->idle);
	slot->state = to;
	if (to == KVCTX_SLOT_FILLING || slot->gets || slot->copies)
		return;
	slot->idle.key = slot->end;
	kvctx_tree_add(&t->idle, &slot->idle);
}

/* The slot that has the page, or will. */
static struct kvctx_slot *slot_find(struct kvctx_slots *t, const struct slot_want *w)
{
	struct kvctx_tree_node *n;

	os_assert_locked(&t->lock);
	n = kvctx_tree_find(&t->pages, w->load.seq);
	if (!n || memcmp(container_of(n, struct kvctx_slot, name)->key, w->key, KVC_KEY_LEN))
		return NULL;
	return container_of(n, struct kvctx_slot, name);
}

static void slot_unname(struct kvctx_slots *t, struct kvctx_slot *slot)
{
	os_assert_locked(&t->lock);
	if (slot->name.in)
		kvctx_tree_remove(&t->pages, &slot->name);
}

/* @req gets what it came for: it counts as a user until served, or until PUT. */
static void slot_use(struct kvctx_slots *t, struct kvctx_slot *slot, struct kvctx_req *req)
{
	os_assert_locked(&t->lock);
	req->slot = slot;
	if (req->opcode == KVCTX_OP_LOAD)
		slot->copies++;
	else if (req->opcode == KVCTX_OP_GET)
		slot->gets++;
}

/* Complete @req, whose page is in its slot. @flags: KVCTX_CQE_* that a PREFETCH or GET completes with. */
static void slot_serve(struct kvctx_slots *t, struct kvctx_req *req, u32 flags)
{
	if (req->opcode == KVCTX_OP_PREFETCH)
		/* not a user: the slot may be another page's by now */
		kvctx_req_complete(req, (s32)req->length, flags);
	else if (req->opcode == KVCTX_OP_GET)
		kvctx_req_complete(req, (s32)(req->slot - t->slot), flags);
	else
		t->ops->copy(req);
}

/* The server has copied the page, and uses the slot no more. */
void kvctx_slot_copied(struct kvctx_slots *t, struct kvctx_req *load)
{
	os_lock_task(&t->lock);
	load->slot->copies--;
	slot_become(t, load->slot, load->slot->state);
	os_unlock_task(&t->lock);
	kvctx_req_complete(load, (s32)load->length, KVCTX_CQE_FROM_DRAM | KVCTX_CQE_VERIFIED);
}

/*
 * The turn of a fill has come. Drops the operations that waited for it until after their deadline. false: nobody is
 * left, nor will anybody come.
 */
bool kvctx_slot_wanted(struct kvctx_slots *t, struct kvctx_req *fill)
{
	struct kvctx_slot *slot = fill->slot;
	struct kvctx_req *req, *next;
	struct list_head late;
	u64 now = os_now();
	bool left;

	INIT_LIST_HEAD(&late);
	os_lock_task(&t->lock);
	list_for_each_entry_safe(req, next, &slot->waiters, wait.node)
		if (req->deadline <= now)
			list_move_tail(&req->wait.node, &late);
	left = slot->asked || !list_empty(&slot->waiters);
	if (!left)
		slot_unname(t, slot);
	os_unlock_task(&t->lock);
	list_for_each_entry_safe(req, next, &late, wait.node)
		kvctx_req_complete(req, -ETIME, 0);
	return left;
}

/* The end of a fill, with what a LOAD would complete with. */
void kvctx_slot_filled(struct kvctx_slots *t, struct kvctx_req *fill, s32 res, u32 flags)
{
	struct kvctx_slot *slot = fill->slot;
	struct kvctx_req *req, *next;
	struct list_head waiters;

	INIT_LIST_HEAD(&waiters);
	os_lock_task(&t->lock);
	list_splice_tail_init(&slot->waiters, &waiters);
	slot->fill = NULL;
	if (res < 0) {
		slot_unname(t, slot);
		slot->end = 0;
		slot_become(t, slot, KVCTX_SLOT_FREE);
	} else {
		slot->end = os_now() + slot->lease_ms * KVCTX_NSEC_PER_MS;
		list_for_each_entry(req, &waiters, wait.node)
			slot_use(t, slot, req);
		slot_become(t, slot, KVCTX_SLOT_READY);
	}
	os_unlock_task(&t->lock);
	list_for_each_entry_safe(req, next, &waiters, wait.node) {
		if (res < 0)
			kvctx_req_complete(req, res, 0);
		else
			slot_serve(t, req, flags);
	}
}

/* Somebody came for a page that a slot has, or will. Returns a fill that has to hurry for him. */
static struct kvctx_req *slot_enter(struct kvctx_slots *t, struct kvctx_slot *slot, const struct slot_want *w)
{
	struct kvctx_req *raise = NULL;

	os_assert_locked(&t->lock);
	slot->lease_ms = max(slot->lease_ms, w->lease_ms);
	if (w->lease_ms)
		slot->end = max(slot->end, os_now() + w->lease_ms * KVCTX_NSEC_PER_MS);
	if (!w->req) {
		slot->asked = true;
	} else if (slot->state == KVCTX_SLOT_READY) {
		slot_use(t, slot, w->req);
	} else {
		list_add_tail(&w->req->wait.node, &slot->waiters);
		if (w->prio < slot->fill->prio && t->ops->recall(slot->fill))
			raise = slot->fill;
	}
	slot_become(t, slot, slot->state);
	return raise;
}

/*
 * Give w->req the page, or let it wait, if a slot has it or is being filled with it. false: none is. With true, w->req
 * may be gone.
 */
static bool slot_join(struct kvctx_slots *t, const struct slot_want *w)
{
	struct kvctx_req *raise = NULL;
	struct kvctx_slot *slot;
	bool ready = false;

	os_lock_task(&t->lock);
	slot = slot_find(t, w);
	if (slot) {
		ready = slot->state == KVCTX_SLOT_READY;
		raise = slot_enter(t, slot, w);
	}
	os_unlock_task(&t->lock);
	if (slot && w->req)
		t->ops->hit(t);
	if (raise) {
		raise->prio = w->prio;
		t->ops->hurry(raise);
	}
	if (w->req && ready)
		slot_serve(t, w->req, KVCTX_CQE_FROM_DRAM | KVCTX_CQE_VERIFIED);
	return slot;
}

/* A slot for @fill. -EEXIST: there is one by now; -ENOSPC. */
static int slot_take(struct kvctx_slots *t, struct kvctx_req *fill, const struct slot_want *w)
{
	struct kvctx_tree_node *n;
	struct kvctx_slot *slot;

	os_assert_locked(&t->lock);
	if (slot_find(t, w))
		return -EEXIST;
	n = kvctx_tree_first(&t->idle);
	if (!n || n->key > os_now())
		return -ENOSPC;
	slot = container_of(n, struct kvctx_slot, idle);
	slot_unname(t, slot);
	memcpy(slot->key, w->key, sizeof(slot->key));
	slot->name.key = w->load.seq;
	kvctx_tree_add(&t->pages, &slot->name);
	slot->lease_ms = w->lease_ms;
	slot->asked = !w->req;
	slot->fill = fill;
	if (w->req)
		list_add_tail(&w->req->wait.node, &slot->waiters);
	slot_become(t, slot, KVCTX_SLOT_FILLING);
	fill->slot = slot;
	return 0;
}

/* Begin to read the page into a slot, for w->req. 0: taken over, with w->load; or slot_take()'s errors, -ENOMEM. */
static int slot_fill(struct kvctx_slots *t, const struct slot_want *w)
{
	struct kvctx_req *fill = t->ops->fill(t, &w->load, w->batch);
	int err;

	if (!fill)
		return -ENOMEM;
	fill->opcode = KVCTX_OP_LOAD;
	fill->prio = w->prio;
	memcpy(fill->key, w->key, sizeof(fill->key));
	fill->length = w->load.length;
	fill->since = os_now();
	fill->deadline = OS_NEVER;
	os_lock_task(&t->lock);
	err = slot_take(t, fill, w);
	os_unlock_task(&t->lock);
	if (err)
		t->ops->discard(fill);
	else
		t->ops->begin(fill);
	return err;
}

/* 0: somebody takes care of w->req; an error completes it. w->load is not the caller's any more either way. */
static int slot_want(struct kvctx_slots *t, const struct slot_want *w)
{
	struct kvc_load load = w->load;
	int err;

	do {
		if (slot_join(t, w)) {
			err = 0;
			break;
		}
		err = -EOPNOTSUPP;
		if (!w->load.no_crcs)
			err = w->load.length > t->bytes ? -E2BIG : slot_fill(t, w);
		if (!err)
			return 0;
	} while (err == -EEXIST);
	kvc_load_end(t->core, &load, 0);
	return err;
}

/* PREFETCH, GET. 0: taken over; an error completes it */
int kvctx_slot_start(struct kvctx_slots *t, struct kvctx_req *req, void *batch)
{
	struct slot_want w = {
		.key = req->key, .lease_ms = req->lease_ms, .prio = req->prio, .req = req, .batch = batch,
	};
	int err;

	if (!req->lease_ms || req->lease_ms > KVCTX_LEASE_MS_MAX)
		return -EINVAL;
	err = kvc_load_begin(t->core, t->domain, req->key, &w.load);
	if (err)
		return err;
	req->length = w.load.length;
	return slot_want(t, &w);
}

/*
 * A LOAD that was begun. true: it is served from a slot, now or when that is filled; @req may be gone, and the hold on
 * @page is. false: it goes to the device.
 */
bool kvctx_slot_load(struct kvctx_slots *t, struct kvctx_req *req, const struct kvc_load *page)
{
	struct slot_want w = { .key = req->key, .prio = req->prio, .req = req, .load = *page };

	if (!slot_join(t, &w))
		return false;
	kvc_load_end(t->core, &w.load, 0);
	return true;
}

/* For MATCH: have pages read ahead, from the first on. Returns how many are in slots or on their way. */
u32 kvctx_slots_prefetch(struct kvctx_slots *t, const struct kvctx_key *keys, u32 nr, u32 lease_ms, void *batch)
{
	u32 i;

	for (i = 0; i < nr && t->ops->may_read_ahead(t); i++) {
		struct slot_want w = {
			.key = (const u8 *)&keys[i], .lease_ms = lease_ms, .prio = KVCTX_PRIO_BACKGROUND,
			.batch = batch,
		};

		if (kvc_load_begin(t->core, t->domain, w.key, &w.load) || slot_want(t, &w))
			break;
		os_relax();
	}
	return i;
}

/* PUT of a GET. */
s32 kvctx_slot_put(struct kvctx_slots *t, u32 nr)
{
	struct kvctx_slot *slot;
	s32 err = 0;

	if (nr >= t->nr)
		return -EINVAL;
	slot = &t->slot[os_index(nr, t->nr)];
	os_lock_task(&t->lock);
	if (slot->gets) {
		slot->gets--;
		slot_become(t, slot, slot->state);
	} else {
		err = -EINVAL;
	}
	os_unlock_task(&t->lock);
	return err;
}

struct kvctx_slots *kvctx_slots_new(u32 bytes, u32 nr)
{
	struct kvctx_slots *t = os_zalloc_charged(sizeof(*t) + nr * sizeof(t->slot[0]));
	u32 i;

	if (!t)
		return NULL;
	os_lock_init(&t->lock);
	t->bytes = bytes;
	t->nr = nr;
	for (i = 0; i < nr; i++) {
		INIT_LIST_HEAD(&t->slot[i].waiters);
		/* nobody else is here, but it says that it wants the lock */
		os_lock_task(&t->lock);
		slot_become(t, &t->slot[i], KVCTX_SLOT_FREE);
		os_unlock_task(&t->lock);
	}
	return t;
}
