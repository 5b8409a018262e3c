// SPDX-License-Identifier: GPL-2.0
/*
 * Slots: who gets a page, who waits for it, and when a slot is taken for another. Fills end when the test says so.
 * What a slot has in it is the sequence number of its page.
 */
#include "parts.h"
#include "session/slots.h"

#define SLOTS		4U
#define SLOT_BYTES	150U		/* page 51 and those behind it are longer */
#define OPS		64U

struct fill {
	struct kvctx_req req;
	struct list_head node;		/* in fills, when it has begun */
	struct kvc_load page;
};

static struct kvctx_slots *slots;
static u64 content[SLOTS];
static pthread_mutex_t fills_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list_head fills;
static struct os_atomic hits, hurried, wrong;
static bool no_memory, waits_for_turn, copy_later;
static u32 batch;

static struct fill *fill_of(struct kvctx_req *req)
{
	return container_of(req, struct fill, req);
}

static struct kvctx_req *fill_new(struct kvctx_slots *t, const struct kvc_load *page, void *with)
{
	struct fill *f = no_memory ? NULL : calloc(1, sizeof(*f));

	if (t != slots || with != &batch)
		os_atomic_inc(&wrong);
	if (!f)
		return NULL;
	f->page = *page;
	return &f->req;
}

static void fill_discard(struct kvctx_req *fill)
{
	free(fill_of(fill));
}

static void fill_begin(struct kvctx_req *fill)
{
	pthread_mutex_lock(&fills_lock);
	list_add_tail(&fill_of(fill)->node, &fills);
	pthread_mutex_unlock(&fills_lock);
}

static bool fill_recall(struct kvctx_req *fill)
{
	(void)fill;
	return waits_for_turn;
}

static void fill_hurry(struct kvctx_req *fill)
{
	EXPECT(fill->prio == KVCTX_PRIO_URGENT);
	os_atomic_inc(&hurried);
}

static void slot_copy(struct kvctx_req *load)
{
	if (copy_later)
		return;
	if (content[load->slot - slots->slot] != load->user_data)
		os_atomic_inc(&wrong);
	kvctx_slot_copied(slots, load);
}

static void slot_hit(struct kvctx_slots *t)
{
	(void)t;
	os_atomic_inc(&hits);
}

static bool no_reading_ahead;

static bool may_read_ahead(struct kvctx_slots *t)
{
	(void)t;
	return !no_reading_ahead;
}

static const struct kvctx_slots_ops ops = {
	.fill = fill_new, .discard = fill_discard, .begin = fill_begin, .recall = fill_recall, .hurry = fill_hurry,
	.copy = slot_copy, .hit = slot_hit, .may_read_ahead = may_read_ahead,
};

/* The first that began, if any, ends so. */
static bool fill_end(s32 res)
{
	struct fill *f;

	pthread_mutex_lock(&fills_lock);
	f = list_first_entry_or_null(&fills, struct fill, node);
	if (f)
		list_del(&f->node);
	pthread_mutex_unlock(&fills_lock);
	if (!f)
		return false;
	if (res >= 0 && !kvctx_slot_wanted(slots, &f->req))
		res = -ETIME;
	if (res >= 0)
		content[f->req.slot - slots->slot] = f->page.seq;
	kvc_load_end(NULL, &f->page, 0);
	kvctx_slot_filled(slots, &f->req, res < 0 ? res : (s32)f->req.length, KVCTX_CQE_VERIFIED);
	free(f);
	return true;
}

static void begin(void)
{
	pages_reset();
	INIT_LIST_HEAD(&fills);
	os_clock = 0;
	slots = kvctx_slots_new(SLOT_BYTES, SLOTS);
	slots->ops = &ops;
}

static void end(void)
{
	EXPECT(list_empty(&fills));
	EXPECT(pages_free());
	EXPECT(!os_atomic_read(&wrong));
	os_free(slots);
}

/* Submits, in @op. What SUBMIT would complete with, or 0 */
static int submit(struct op *op, u8 opcode, u32 page)
{
	struct kvctx_key key = key_of(page);
	struct kvc_load load;
	int err;

	*op = (struct op){ .req = {
		.opcode = opcode, .prio = opcode == KVCTX_OP_PREFETCH ? KVCTX_PRIO_BACKGROUND : KVCTX_PRIO_URGENT,
		.lease_ms = opcode == KVCTX_OP_LOAD ? 0 : 10, .deadline = OS_NEVER,
	} };
	memcpy(op->req.key, &key, sizeof(key));
	if (opcode != KVCTX_OP_LOAD)
		return kvctx_slot_start(slots, &op->req, &batch);
	err = kvc_load_begin(NULL, NULL, op->req.key, &load);
	if (err)
		return err;
	op->req.length = load.length;
	op->req.user_data = load.seq;
	if (kvctx_slot_load(slots, &op->req, &load))
		return 0;
	kvc_load_end(NULL, &load, 0);
	return -ENODATA;			/* it goes to the device */
}

static void test_ways(void)
{
	struct op a, b, c;

	begin();
	EXPECT(submit(&a, KVCTX_OP_LOAD, 1) == -ENODATA);
	/* two come for a page on its way, and one for it when it is there */
	EXPECT(!submit(&a, KVCTX_OP_PREFETCH, 1) && !submit(&b, KVCTX_OP_LOAD, 1));
	EXPECT(!os_atomic_read(&a.completions) && !os_atomic_read(&b.completions));
	EXPECT(fill_end(0) && !fill_end(0));
	EXPECT(ended(&a, 101) && a.flags == KVCTX_CQE_VERIFIED);
	EXPECT(ended(&b, 101) && b.flags == (KVCTX_CQE_FROM_DRAM | KVCTX_CQE_VERIFIED));
	EXPECT(!submit(&c, KVCTX_OP_LOAD, 1) && ended(&c, 101));
	/* other bytes under the key */
	pages[1].seq = 77;
	EXPECT(submit(&c, KVCTX_OP_LOAD, 1) == -ENODATA);
	EXPECT(!submit(&c, KVCTX_OP_PREFETCH, 1) && fill_end(0) && ended(&c, 101));
	EXPECT(!submit(&c, KVCTX_OP_LOAD, 1) && ended(&c, 101));
	/* the same number, another key */
	pages[2].seq = 77;
	EXPECT(submit(&c, KVCTX_OP_LOAD, 2) == -ENODATA);
	end();
}

static void test_refusals(void)
{
	struct op a;

	begin();
	EXPECT(submit(&a, KVCTX_OP_GET, 51) == -E2BIG);
	pages[3].no_crcs = true;
	EXPECT(submit(&a, KVCTX_OP_GET, 3) == -EOPNOTSUPP);
	pages[4].seq = 0;
	EXPECT(submit(&a, KVCTX_OP_PREFETCH, 4) == -ENOENT);
	no_memory = true;
	EXPECT(submit(&a, KVCTX_OP_PREFETCH, 5) == -ENOMEM);
	no_memory = false;
	a.req.lease_ms = 0;
	EXPECT(kvctx_slot_start(slots, &a.req, &batch) == -EINVAL);
	a.req.lease_ms = KVCTX_LEASE_MS_MAX + 1;
	EXPECT(kvctx_slot_start(slots, &a.req, &batch) == -EINVAL);
	EXPECT(kvctx_slot_put(slots, 0) == -EINVAL && kvctx_slot_put(slots, SLOTS) == -EINVAL);
	end();
}

/* Slots are taken for others when leases are over and GETs are PUT. */
static void test_reuse(void)
{
	struct op get, op;
	u32 i;

	begin();
	EXPECT(!submit(&get, KVCTX_OP_GET, 0) && fill_end(0));
	EXPECT(os_atomic_read(&get.completions) == 1 && get.res >= 0);
	for (i = 1; i < SLOTS; i++)
		EXPECT(!submit(&op, KVCTX_OP_PREFETCH, i) && fill_end(0));
	os_clock = 10 * KVCTX_NSEC_PER_MS - 1;
	EXPECT(submit(&op, KVCTX_OP_PREFETCH, 9) == -ENOSPC);
	/* this one is asked for again, so it stays longer */
	EXPECT(!submit(&op, KVCTX_OP_PREFETCH, 1));
	os_clock++;
	for (i = 2; i < SLOTS; i++)
		EXPECT(!submit(&op, KVCTX_OP_PREFETCH, 8 + i) && fill_end(0));
	EXPECT(submit(&op, KVCTX_OP_PREFETCH, 20) == -ENOSPC);
	EXPECT(!submit(&op, KVCTX_OP_LOAD, 0) && !submit(&op, KVCTX_OP_LOAD, 1));
	EXPECT(submit(&op, KVCTX_OP_LOAD, 2) == -ENODATA);
	EXPECT(!kvctx_slot_put(slots, (u32)get.res) && kvctx_slot_put(slots, (u32)get.res) == -EINVAL);
	EXPECT(!submit(&op, KVCTX_OP_PREFETCH, 20) && fill_end(0));
	EXPECT(submit(&op, KVCTX_OP_LOAD, 0) == -ENODATA);
	end();
}

/* Nor while they are copied from. */
static void test_copying(void)
{
	struct op load, op;
	u32 i;

	begin();
	EXPECT(!submit(&op, KVCTX_OP_PREFETCH, 0) && fill_end(0));
	copy_later = true;
	EXPECT(!submit(&load, KVCTX_OP_LOAD, 0) && !os_atomic_read(&load.completions));
	copy_later = false;
	os_clock = 10 * KVCTX_NSEC_PER_MS;
	for (i = 1; i < SLOTS; i++)
		EXPECT(!submit(&op, KVCTX_OP_PREFETCH, i) && fill_end(0));
	EXPECT(submit(&op, KVCTX_OP_PREFETCH, SLOTS) == -ENOSPC);
	slot_copy(&load.req);
	EXPECT(ended(&load, 100));
	EXPECT(!submit(&op, KVCTX_OP_PREFETCH, SLOTS) && fill_end(0));
	end();
}

/* A fill that fails, one that nobody waits for any more, one that has to hurry */
static void test_waiting(void)
{
	struct op a, b, c;

	begin();
	EXPECT(!submit(&a, KVCTX_OP_PREFETCH, 1) && !submit(&b, KVCTX_OP_LOAD, 1));
	EXPECT(fill_end(-EIO) && ended(&a, -EIO) && ended(&b, -EIO));
	EXPECT(submit(&a, KVCTX_OP_LOAD, 1) == -ENODATA);

	EXPECT(!submit(&a, KVCTX_OP_PREFETCH, 1) && !submit(&b, KVCTX_OP_LOAD, 1));
	a.req.deadline = 5;
	os_clock = 5;
	EXPECT(fill_end(0) && ended(&a, -ETIME) && ended(&b, 101));
	EXPECT(!submit(&a, KVCTX_OP_PREFETCH, 2));
	a.req.deadline = 5;
	EXPECT(fill_end(0) && ended(&a, -ETIME));
	EXPECT(submit(&a, KVCTX_OP_LOAD, 2) == -ENODATA);

	os_atomic_set(&hurried, 0);
	waits_for_turn = true;
	EXPECT(!submit(&a, KVCTX_OP_PREFETCH, 3) && !submit(&b, KVCTX_OP_PREFETCH, 3));
	EXPECT(!os_atomic_read(&hurried));
	EXPECT(!submit(&c, KVCTX_OP_LOAD, 3) && os_atomic_read(&hurried) == 1);
	waits_for_turn = false;
	EXPECT(fill_end(0) && ended(&a, 103) && ended(&b, 103) && ended(&c, 103));
	end();
}

static void test_prefetch(void)
{
	struct kvctx_key keys[] = { key_of(1), key_of(2), key_of(1), key_of(3), key_of(4) };
	struct op op;

	begin();
	pages[3].seq = 0;
	os_atomic_set(&hits, 0);
	/* up to the first that is not there; nobody waits, so it is no hit */
	EXPECT(kvctx_slots_prefetch(slots, keys, 5, 10, &batch) == 3 && !os_atomic_read(&hits));
	EXPECT(fill_end(0) && fill_end(0) && !fill_end(0));
	EXPECT(!submit(&op, KVCTX_OP_LOAD, 1) && !submit(&op, KVCTX_OP_LOAD, 2) && os_atomic_read(&hits) == 2);
	/* a hint, and the tenant has other use for its bytes */
	no_reading_ahead = true;
	keys[0] = key_of(4);
	EXPECT(!kvctx_slots_prefetch(slots, keys, 1, 10, &batch) && !fill_end(0));
	no_reading_ahead = false;
	end();
}

/* Threads that come for few pages, and end fills; time goes on, and pages get other bytes. */
static void contend(u32 thread)
{
	static const u8 opcodes[] = { KVCTX_OP_LOAD, KVCTX_OP_LOAD, KVCTX_OP_PREFETCH, KVCTX_OP_GET };
	struct op *mine = calloc(OPS, sizeof(*mine));
	u32 seed = thread, round, i;

	for (round = 0; round < 300; round++) {
		for (i = 0; i < OPS; i++) {
			u32 page = draw(&seed, 2 * SLOTS);

			if (!draw(&seed, 50))
				WRITE_ONCE(pages[page].seq, 2000 + (round * OPS + i) * 8 + thread);
			if (submit(&mine[i], opcodes[draw(&seed, 4)], page))
				os_atomic_set(&mine[i].completions, 1);
			if (!draw(&seed, 3))
				fill_end(draw(&seed, 8) ? 0 : -EIO);
			WRITE_ONCE(os_clock, READ_ONCE(os_clock) + KVCTX_NSEC_PER_MS);
		}
		for (i = 0; i < OPS; i++) {
			while (!os_atomic_read(&mine[i].completions))
				fill_end(0);
			if (mine[i].req.opcode == KVCTX_OP_GET && mine[i].res >= 0 && mine[i].req.slot &&
			    kvctx_slot_put(slots, (u32)mine[i].res))
				os_atomic_inc(&wrong);
		}
	}
	free(mine);
}

void test_slots(void)
{
	u32 i;

	test_ways();
	test_refusals();
	test_reuse();
	test_copying();
	test_waiting();
	test_prefetch();
	begin();
	in_threads(4, contend);
	while (fill_end(0))
		;
	for (i = 0; i < SLOTS; i++)
		EXPECT(!slots->slot[i].gets && !slots->slot[i].copies);
	end();
}
