// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Slots: pages read ahead into memory of ours. PREFETCH, GET and PUT; LOADs that find their page here; what MATCH has
 * read ahead.
 *
 * A session's slots are one memory, cut into equal parts, mapped by the caller for reading only: what stands in a slot
 * is what was verified. A slot names the page it holds, or is about to, by key and the engine's sequence number. Who
 * asks for a page asks the engine first; a slot whose page was deleted or replaced meanwhile has another number, and is
 * not served. It loses its name when the key is read ahead again.
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
 * session->lock guards everything in a slot, the table and the heap.
 */
#include <unistd.h>

#include "session.h"

#define SLOT_MS		(KVE_NSEC / 1000)

enum slot_state {
	SLOT_FREE,
	SLOT_FILLING,
	SLOT_READY,
};

struct kve_slot {
	struct kve_heap_node idle;	/* by the end of the lease */
	struct kve_slot *next;		/* of the same place in slots->pages */
	enum slot_state state;
	bool named;			/* in slots->pages */
	bool asked;			/* FILLING: by MATCH, which does not wait */
	u8 key[KVC_KEY_LEN];
	u64 seq;
	u32 length;			/* of the page */
	u32 lease_ms;			/* the longest asked for */
	u64 end;			/* of the lease */
	unsigned long gets, copies;	/* users */
	struct kve_op *fill;		/* FILLING */
	struct kve_ops waiters;
};

struct kve_slots {
	struct kve_map map;
	struct kve_mem *mem;
	u32 bytes;			/* of a slot */
	u32 nr;
	u32 mask;			/* of places in @pages */
	struct kve_slot **pages;	/* by key */
	struct kve_heap idle;
	struct kve_slot slot[];
};

/* A page that somebody wants to have in a slot */
struct slot_want {
	const u8 *key;
	struct kvc_load load;		/* begun */
	u32 lease_ms;			/* 0: leave the lease as it is */
	u8 prio;
	struct kve_op *op;		/* waits for it; NULL: nobody does */
	struct kve_batch *batch;
};

static u8 *slot_addr(const struct kve_slots *t, const struct kve_slot *slot)
{
	return t->mem->addr + (u64)(slot - t->slot) * t->bytes;
}

/* After each change of the users and of the end too. */
static void slot_become(struct kve_slots *t, struct kve_slot *slot, enum slot_state to)
{
	if (slot->idle.at)
		kve_heap_remove(&t->idle, &slot->idle);
	slot->state = to;
	if (to == SLOT_FILLING || slot->gets || slot->copies)
		return;
	slot->idle.key = slot->end;
	kve_heap_add(&t->idle, &slot->idle);
}

static struct kve_slot **slot_place(struct kve_slots *t, const u8 *key)
{
	return &t->pages[~os_crc32c(KVC_CRC_INIT, key, KVC_KEY_LEN) & t->mask];
}

/* The slot that is named so. */
static struct kve_slot *slot_find(struct kve_slots *t, const u8 *key)
{
	struct kve_slot *slot = *slot_place(t, key);

	while (slot && memcmp(slot->key, key, KVC_KEY_LEN))
		slot = slot->next;
	return slot;
}

static void slot_unname(struct kve_slots *t, struct kve_slot *slot)
{
	struct kve_slot **link;

	if (!slot->named)
		return;
	for (link = slot_place(t, slot->key); *link != slot; link = &(*link)->next)
		;
	*link = slot->next;
	slot->named = false;
}

static void slot_name(struct kve_slots *t, struct kve_slot *slot, const u8 *key)
{
	struct kve_slot **link = slot_place(t, key);

	memcpy(slot->key, key, sizeof(slot->key));
	slot->next = *link;
	*link = slot;
	slot->named = true;
}

/* @op gets what it came for: it counts as a user until served, or until PUT. */
static void slot_use(struct kve_slot *slot, struct kve_op *op)
{
	op->slot = slot;
	if (op->call.opcode == KVCTX_OP_LOAD)
		slot->copies++;
	else if (op->call.opcode == KVCTX_OP_GET)
		slot->gets++;
}

static void slot_copy(struct kve_op *op)
{
	struct kve_session *s = op->session;
	struct kve_slot *slot = op->slot;

	kve_vec_scatter(op->mem.vec, slot_addr(s->slots, slot) + op->call.offset, op->mem.nr);
	pthread_mutex_lock(&s->lock);
	slot->copies--;
	slot_become(s->slots, slot, slot->state);
	pthread_mutex_unlock(&s->lock);
	kve_op_complete(op, (s32)op->call.length, KVCTX_CQE_FROM_DRAM | KVCTX_CQE_VERIFIED);
}

/* Complete @op, whose page is in its slot. @flags: KVCTX_CQE_* that a PREFETCH or GET completes with. */
static void slot_serve(struct kve_op *op, u32 flags)
{
	if (op->call.opcode == KVCTX_OP_PREFETCH)
		/* not a user: the slot may be another page's by now */
		kve_op_complete(op, (s32)op->call.length, flags);
	else if (op->call.opcode == KVCTX_OP_GET)
		kve_op_complete(op, (s32)(op->slot - op->session->slots->slot), flags);
	else
		slot_copy(op);
}

/*
 * Drop the operations that waited for the fill until after their deadline. false: nobody is left, nor will anybody
 * come.
 */
static bool slot_drop_late(struct kve_session *s, struct kve_slot *slot)
{
	struct kve_ops late = TAILQ_HEAD_INITIALIZER(late);
	struct kve_op *op, *next;
	u64 now = kve_now();
	bool left;

	pthread_mutex_lock(&s->lock);
	for (op = TAILQ_FIRST(&slot->waiters); op; op = next) {
		next = TAILQ_NEXT(op, wait.node);
		if (op->call.deadline > now)
			continue;
		TAILQ_REMOVE(&slot->waiters, op, wait.node);
		TAILQ_INSERT_TAIL(&late, op, wait.node);
	}
	left = slot->asked || !TAILQ_EMPTY(&slot->waiters);
	if (!left)
		slot_unname(s->slots, slot);
	pthread_mutex_unlock(&s->lock);
	while ((op = TAILQ_FIRST(&late))) {
		TAILQ_REMOVE(&late, op, wait.node);
		kve_op_complete(op, -ETIME, 0);
	}
	return left;
}

/* The fill's turn. */
static void slot_fill_go(struct kve_op *fill, int err)
{
	if (!err && !slot_drop_late(fill->session, fill->slot)) {
		kve_turn_end(fill);
		err = -ETIME;
	}
	kve_load_go(fill, err);
}

/* The end of a fill. The session may be gone on return. */
static void slot_fill_done(struct kve_op *fill, s32 res, u32 flags)
{
	struct kve_ops waiters = TAILQ_HEAD_INITIALIZER(waiters);
	struct kve_session *s = fill->session;
	struct kve_slot *slot = fill->slot;
	struct kve_op *op;

	pthread_mutex_lock(&s->lock);
	TAILQ_CONCAT(&waiters, &slot->waiters, wait.node);
	slot->fill = NULL;
	if (res < 0) {
		slot_unname(s->slots, slot);
		slot->end = 0;
		slot_become(s->slots, slot, SLOT_FREE);
	} else {
		slot->end = kve_now() + slot->lease_ms * SLOT_MS;
		TAILQ_FOREACH(op, &waiters, wait.node)
			slot_use(slot, op);
		slot_become(s->slots, slot, SLOT_READY);
	}
	pthread_mutex_unlock(&s->lock);
	while ((op = TAILQ_FIRST(&waiters))) {
		TAILQ_REMOVE(&waiters, op, wait.node);
		if (res < 0)
			kve_op_complete(op, res, 0);
		else
			slot_serve(op, flags);
	}
	kve_cq_background(s, -1);
}

static const struct kve_op_kind slot_fill_kind = { .go = slot_fill_go, .finish = kve_load_finish };

static struct kve_op *slot_fill_alloc(struct kve_session *s, const struct slot_want *w)
{
	struct kve_op *fill = kve_op_alloc(s);

	if (!fill)
		return NULL;
	fill->batch = w->batch;
	fill->call.opcode = KVCTX_OP_LOAD;
	fill->call.prio = w->prio;
	memcpy(fill->call.key, w->key, sizeof(fill->call.key));
	fill->call.length = w->load.length;
	fill->load.verify = true;
	fill->load.page = w->load;
	fill->io.member = w->load.member;
	fill->call.deadline = KVE_NEVER;
	fill->done = slot_fill_done;
	fill->kind = &slot_fill_kind;
	return fill;
}

/* A slot for @fill; lock held. -EEXIST: there is one by now; -ENOSPC. */
static int slot_take(struct kve_slots *t, struct kve_op *fill, const struct slot_want *w)
{
	struct kve_slot *slot, *old = slot_find(t, w->key);

	if (old && old->seq == w->load.seq)
		return -EEXIST;
	slot = (struct kve_slot *)kve_heap_first(&t->idle);
	if (!slot || slot->end > kve_now())
		return -ENOSPC;
	if (old)
		slot_unname(t, old);
	slot_unname(t, slot);
	slot_name(t, slot, w->key);
	slot->seq = w->load.seq;
	slot->length = w->load.length;
	slot->lease_ms = w->lease_ms;
	slot->asked = !w->op;
	slot->fill = fill;
	if (w->op)
		TAILQ_INSERT_TAIL(&slot->waiters, w->op, wait.node);
	slot_become(t, slot, SLOT_FILLING);
	fill->slot = slot;
	return 0;
}

/* Begin to read the page into a slot, for w->op. 0: taken over, with w->load; or slot_take()'s errors, -ENOMEM. */
static int slot_fill(struct kve_session *s, const struct slot_want *w)
{
	struct kve_op *fill = slot_fill_alloc(s, w);
	struct kve_slots *t = s->slots;
	int err;

	if (!fill)
		return -ENOMEM;
	pthread_mutex_lock(&s->lock);
	err = slot_take(t, fill, w);
	pthread_mutex_unlock(&s->lock);
	if (err) {
		kve_op_discard(fill);
		return err;
	}
	kve_cq_background(s, 1);
	os_atomic64_add(&s->pool->counters.prefetches, 1);
	*fill->mem.vec = (struct iovec){ .iov_base = slot_addr(t, fill->slot), .iov_len = fill->call.length };
	fill->mem.nr = 1;
	fill->mem.buffer = kve_mem_buffer(t->mem, fill->mem.vec->iov_base, fill->call.length);
	err = kve_load_move(fill);
	if (err)
		kve_op_complete(fill, err, 0);
	return 0;
}

/*
 * Give w->op the page, or let it wait, if a slot has it or is being filled with it. false: none is. With true, w->op
 * may be gone.
 */
static bool slot_join(struct kve_session *s, const struct slot_want *w)
{
	struct kve_op *raise = NULL;
	struct kve_slot *slot;
	bool ready;

	pthread_mutex_lock(&s->lock);
	slot = slot_find(s->slots, w->key);
	if (!slot || slot->seq != w->load.seq) {
		pthread_mutex_unlock(&s->lock);
		return false;
	}
	ready = slot->state == SLOT_READY;
	slot->lease_ms = max(slot->lease_ms, w->lease_ms);
	if (w->lease_ms)
		slot->end = max(slot->end, (u64)(kve_now() + w->lease_ms * SLOT_MS));
	if (!w->op) {
		slot->asked = true;
	} else if (ready) {
		slot_use(slot, w->op);
	} else {
		TAILQ_INSERT_TAIL(&slot->waiters, w->op, wait.node);
		if (w->prio < slot->fill->call.prio && kve_turn_recall(slot->fill))
			raise = slot->fill;
	}
	slot_become(s->slots, slot, slot->state);
	pthread_mutex_unlock(&s->lock);
	if (w->op)
		os_atomic64_add(&s->pool->counters.slot_hits, 1);
	if (raise) {
		raise->call.prio = w->prio;
		kve_turn_take(raise);
	}
	if (w->op && ready)
		slot_serve(w->op, KVCTX_CQE_FROM_DRAM | KVCTX_CQE_VERIFIED);
	return true;
}

/* 0: somebody takes care of w->op; an error completes it. w->load is not the caller's any more either way. */
static int slot_want(struct kve_session *s, const struct slot_want *w)
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
int kve_prefetch_start(struct kve_op *op)
{
	struct kve_session *s = op->session;
	struct slot_want w = {
		.key = op->call.key, .lease_ms = op->call.lease_ms, .prio = op->call.prio, .op = op, .batch = op->batch,
	};
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

s32 kve_slot_put(struct kve_session *s, const struct kvctx_sqe *sqe)
{
	struct kve_slots *t = s->slots;
	struct kve_slot *slot;
	s32 err = 0;

	if (!t)
		return -EOPNOTSUPP;
	if (sqe->lease >= t->nr)
		return -EINVAL;
	slot = &t->slot[sqe->lease];
	pthread_mutex_lock(&s->lock);
	if (slot->gets) {
		slot->gets--;
		slot_become(t, slot, slot->state);
	} else {
		err = -EINVAL;
	}
	pthread_mutex_unlock(&s->lock);
	return err;
}

/*
 * A LOAD that was begun. true: it is served from a slot, now or when that is filled; @op may be gone. false: it goes to
 * the device.
 */
static bool slot_load(struct kve_op *op)
{
	struct kve_session *s = op->session;
	struct slot_want w = { .key = op->call.key, .prio = op->call.prio, .op = op };

	if (!s->slots || op->call.flags & KVCTX_OP_NO_SLOT)
		return false;
	w.load = op->load.page;
	if (!slot_join(s, &w))
		return false;
	kvc_load_end(s->pool->core, &w.load, 0);
	return true;
}

/* LOAD: from a slot, or from the device */
int kve_load_start(struct kve_op *op)
{
	int err = kve_load_begin(op);

	return err || slot_load(op) ? err : kve_load_move(op);
}

/* For MATCH: have pages read ahead, from the first on. Returns how many are in slots or on their way. */
u32 kve_slots_prefetch(struct kve_session *s, const struct kvctx_key *keys, u32 nr, u32 lease_ms)
{
	struct kve_batch batch = { .last = &batch.stores };
	u32 i;

	if (!s->slots)
		return 0;
	for (i = 0; i < nr; i++) {
		struct slot_want w = {
			.key = (const u8 *)&keys[i], .lease_ms = lease_ms, .prio = KVCTX_PRIO_BACKGROUND, .batch = &batch,
		};

		if (kvc_load_begin(s->pool->core, s->domain, w.key, &w.load) || slot_want(s, &w))
			break;
	}
	kve_ring_send(s->ring);
	return i;
}

/* NULL: there are none. */
const struct kve_map *kve_slots_map(const struct kve_session *s)
{
	return s->slots ? &s->slots->map : NULL;
}

/* Also of what a failed setup left */
void kve_slots_free(struct kve_session *s)
{
	struct kve_slots *t = s->slots;

	if (!t)
		return;
	s->slots = NULL;
	kve_mem_free(s, t->mem);
	kve_map_free(&t->map);
	free(t->pages);
	free(t->idle.nodes);
	free(t);
}

/* At SETUP: @nr slots of *@slot_bytes, which is rounded up. */
int kve_slots_setup(struct kve_session *s, u32 *slot_bytes, u32 nr)
{
	u32 page = (u32)sysconf(_SC_PAGESIZE), places = 1, i;
	struct kve_slots *t = calloc(1, sizeof(*t) + nr * sizeof(t->slot[0]));

	if (!t)
		return -ENOMEM;
	s->slots = t;
	while (places < nr)
		places *= 2;
	t->nr = nr;
	t->mask = places - 1;
	t->bytes = (*slot_bytes + page - 1) & ~(page - 1);
	t->pages = calloc(places, sizeof(struct kve_slot *));
	if (t->pages && !kve_heap_room(&t->idle, nr) && !kve_map_create(&t->map, (size_t)nr * t->bytes, true))
		t->mem = kve_mem_of_map(s, &t->map);
	if (!t->mem) {
		kve_slots_free(s);
		return -ENOMEM;
	}
	for (i = 0; i < nr; i++) {
		TAILQ_INIT(&t->slot[i].waiters);
		slot_become(t, &t->slot[i], SLOT_FREE);
	}
	*slot_bytes = t->bytes;
	return 0;
}
