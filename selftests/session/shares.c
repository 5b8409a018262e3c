// SPDX-License-Identifier: GPL-2.0
/*
 * Turns that tenants share: what each gets of a member whose device is the bottleneck. The device is a model that moves
 * RATE bytes a second, one operation after the other in the order in which they went to it; callers keep so many
 * operations going, the next when one ends. Time is the model's.
 */
#include "parts.h"
#include "session/wait.h"

#define KIB		1024U
#define MIB		(1U << 20)
#define RATE		1000ULL		/* bytes a microsecond */
#define SECOND		(1000 * KVCTX_NSEC_PER_MS)
#define OPS		1024U

struct caller {
	u16 tenant;
	u8 prio;
	u32 weight;
	u32 bytes;			/* of an operation */
	u32 depth;			/* that it keeps going */
	u64 from, until;		/* when it calls; 0: to the end */
	/* what it got */
	u64 moved;			/* bytes */
	u64 longest;			/* nanoseconds that one operation took */
	u32 going;
};

/* An operation of the model */
struct moves {
	struct op op;
	struct caller *caller;
	struct list_head node;		/* in the device, or free */
	u64 began;
};

static struct kvctx_turn turn;
static struct moves *all;
static struct list_head device, idle;
static u32 ran_dry;			/* times that nothing was in the device while somebody waited */
static u32 in_device, most_in_device;	/* bytes */
static bool callers_first, due;		/* who calls is there before who lets others go on; that is to come */

static void device_add(struct op *op, int err)
{
	struct moves *m = container_of(op, struct moves, op);

	if (err) {
		m->caller->going--;
		list_add(&m->node, &idle);
		return;
	}
	in_device += m->caller->bytes;
	most_in_device = max(most_in_device, in_device);
	list_add_tail(&m->node, &device);
}

static void call(struct caller *c)
{
	struct moves *m = container_of(idle.next, struct moves, node);

	list_del(&m->node);
	m->op = (struct op){
		.req = { .user_data = c->tenant, .prio = c->prio, .tenant = c->tenant, .deadline = OS_NEVER },
		.session = c, .weight = c->weight, .go = device_add,
	};
	m->caller = c;
	m->began = os_clock;
	c->going++;
	if (kvctx_turn_enter(&turn, &m->op.req, c->bytes) == 1)
		device_add(&m->op, 0);
}

static void calls(struct caller *c, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		while (os_clock >= c[i].from && (!c[i].until || os_clock < c[i].until) && c[i].going < c[i].depth)
			call(&c[i]);
}

/* The first in the device is over. */
static void device_ends(void)
{
	struct moves *m = container_of(device.next, struct moves, node);
	struct caller *c = m->caller;

	list_del(&m->node);
	ran_dry += list_empty(&device) && os_atomic_read(&turn.queue.waiting);
	os_clock += c->bytes * 1000ULL / RATE;
	in_device -= c->bytes;
	c->moved += c->bytes;
	c->longest = max(c->longest, os_clock - m->began);
	c->going--;
	list_add(&m->node, &idle);
	due = kvctx_turn_leave(&turn, c->prio, c->bytes) && kvctx_turn_is_due(&turn);
}

static void run_if_due(void)
{
	if (due)
		kvctx_turn_run(&turn);
	due = false;
}

static void play(struct caller *c, u32 nr, u64 until)
{
	calls(c, nr);
	while (os_clock < until) {
		if (!list_empty(&device)) {
			device_ends();
			if (!callers_first)
				run_if_due();
		} else {
			ran_dry += !!os_atomic_read(&turn.queue.waiting);
			os_clock += KVCTX_TICK_MS * KVCTX_NSEC_PER_MS;
			kvctx_turn_run(&turn);
		}
		calls(c, nr);
		run_if_due();
	}
}

static void begin(void)
{
	u32 i;

	INIT_LIST_HEAD(&device);
	INIT_LIST_HEAD(&idle);
	all = calloc(OPS, sizeof(*all));
	for (i = 0; i < OPS; i++)
		list_add(&all[i].node, &idle);
	os_clock = 0;
	ran_dry = 0;
	callers_first = due = false;
	in_device = most_in_device = 0;
	turn = (struct kvctx_turn){};
	kvctx_turn_init(&turn);
}

static void end(struct caller *c, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		c[i].until = 1;
	play(c, nr, os_clock + 10 * SECOND);
	EXPECT(list_empty(&device) && !os_atomic_read(&turn.queue.waiting) && !kvctx_turn_run(&turn));
	EXPECT(!os_atomic64_read(&turn.urgent) && !os_atomic64_read(&turn.bytes));
	free(all);
}

/* What they got up to now, when more may have been in the device than later, does not count. */
static void count_anew(struct caller *c, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		c[i].moved = c[i].longest = 0;
	most_in_device = in_device;
}

/* Did @a get @of times as much as @b, but for five per cent? */
static bool shares(const struct caller *a, const struct caller *b, u32 of)
{
	u64 want = b->moved * of;

	return a->moved >= want - want / 20 && a->moved <= want + want / 20;
}

static void test_equal(u8 prio)
{
	struct caller c[] = {
		{ .tenant = 0, .prio = prio, .bytes = 256 * KIB, .depth = 16 },
		{ .tenant = 7, .prio = prio, .bytes = 256 * KIB, .depth = 500 },
	};

	begin();
	play(c, 2, 10 * SECOND);
	EXPECT(shares(&c[0], &c[1], 1));
	EXPECT(c[0].moved + c[1].moved >= 9990 * MIB / 1024 * 1000 && !ran_dry);
	/* the device has no long queue: who waits, waits here */
	EXPECT(most_in_device <= 5 * MIB);
	end(c, 2);
}

/* Weights, also where operations differ in length; three tenants; one comes late, and has no more for it */
static void test_weights(void)
{
	struct caller c[] = {
		{ .tenant = 3, .prio = KVCTX_PRIO_NORMAL, .weight = 300, .bytes = 64 * KIB, .depth = 300 },
		{ .tenant = 4, .prio = KVCTX_PRIO_NORMAL, .bytes = 2 * MIB, .depth = 8 },
		{ .tenant = 239, .prio = KVCTX_PRIO_NORMAL, .weight = 500, .bytes = 12 * MIB, .depth = 4,
		  .from = 5 * SECOND },
	};

	begin();
	play(c, 3, 5 * SECOND);
	EXPECT(shares(&c[0], &c[1], 3));
	count_anew(c, 3);
	play(c, 3, 35 * SECOND);
	EXPECT(shares(&c[0], &c[1], 3) && shares(&c[2], &c[1], 5));
	EXPECT(!ran_dry);
	end(c, 3);
}

/* What one does not want the others have; and when he wants it again, he gets his share and no more */
static void test_idle(void)
{
	struct caller c[] = {
		{ .tenant = 0, .prio = KVCTX_PRIO_NORMAL, .bytes = MIB, .depth = 64 },
		{ .tenant = 1, .prio = KVCTX_PRIO_NORMAL, .bytes = MIB, .depth = 64, .until = 2 * SECOND },
	};

	begin();
	play(c, 2, SECOND);
	count_anew(c, 2);
	play(c, 2, 2 * SECOND);
	EXPECT(shares(&c[0], &c[1], 1));
	/* alone, and after a while nothing is held back any more */
	play(c, 2, 8 * SECOND);
	EXPECT(in_device == 64 * MIB && !ran_dry);
	count_anew(c, 2);
	c[1].until = 0;
	play(c, 2, 12 * SECOND);
	EXPECT(shares(&c[0], &c[1], 1));
	end(c, 2);
}

/* One at a time beside a flood: an operation is as long on its way as what may be in the device takes, and itself */
static void test_light(void)
{
	struct caller c[] = {
		{ .tenant = 0, .prio = KVCTX_PRIO_NORMAL, .bytes = MIB, .depth = 256 },
		{ .tenant = 1, .prio = KVCTX_PRIO_NORMAL, .bytes = 64 * KIB, .depth = 1, .from = SECOND },
		{ .tenant = 2, .prio = KVCTX_PRIO_URGENT, .bytes = 64 * KIB, .depth = 1, .from = 3 * SECOND },
	};

	begin();
	play(c, 3, 2 * SECOND);
	count_anew(c, 3);
	play(c, 3, 5 * SECOND);
	EXPECT(c[1].longest <= 7 * KVCTX_NSEC_PER_MS && c[2].longest <= 6 * KVCTX_NSEC_PER_MS);
	EXPECT(c[1].moved && c[2].moved && !ran_dry);
	end(c, 3);
}

/* A tenant's own NORMAL ones go before its BACKGROUND ones, of which some go; those of another have their share */
static void test_background(void)
{
	struct caller c[] = {
		{ .tenant = 0, .prio = KVCTX_PRIO_NORMAL, .bytes = MIB, .depth = 64 },
		{ .tenant = 0, .prio = KVCTX_PRIO_BACKGROUND, .bytes = MIB, .depth = 64 },
		{ .tenant = 1, .prio = KVCTX_PRIO_BACKGROUND, .bytes = MIB, .depth = 64 },
	};
	u64 own;

	begin();
	play(c, 3, SECOND);
	count_anew(c, 3);
	play(c, 3, 11 * SECOND);
	own = c[1].moved;
	EXPECT(own >= 150 * MIB && own <= 250 * MIB);
	c[0].moved += own;
	EXPECT(shares(&c[0], &c[2], 1) && !ran_dry);
	end(c, 3);
}

/* Whose operations come just when there is room have no more for it than those that wait, whatever their priority. */
static void test_coming(u8 prio)
{
	struct caller c[] = {
		{ .tenant = 0, .prio = KVCTX_PRIO_NORMAL, .bytes = MIB, .depth = 4 },
		{ .tenant = 1, .prio = prio, .bytes = 256 * KIB, .depth = 200 },
	};

	begin();
	callers_first = true;
	play(c, 2, SECOND);
	count_anew(c, 2);
	play(c, 2, 11 * SECOND);
	EXPECT(shares(&c[0], &c[1], 1) && !ran_dry);
	end(c, 2);
}

/* What they had may be more than a number holds. */
static void test_wrapped(void)
{
	struct caller c[] = {
		{ .tenant = 0, .prio = KVCTX_PRIO_NORMAL, .bytes = MIB, .depth = 64 },
		{ .tenant = 1, .prio = KVCTX_PRIO_NORMAL, .bytes = MIB, .depth = 64 },
		{ .tenant = 2, .prio = KVCTX_PRIO_NORMAL, .bytes = MIB, .depth = 64, .from = 2 * SECOND },
	};
	u32 i;

	begin();
	for (i = 0; i < 2; i++)
		turn.of[i].pass[1] = turn.pass[1] = 0ULL - SECOND / 2;
	play(c, 3, SECOND / 4);
	count_anew(c, 3);
	play(c, 3, 2 * SECOND);
	EXPECT(shares(&c[0], &c[1], 1) && turn.pass[1] < U64_MAX / 2);
	count_anew(c, 3);
	play(c, 3, 5 * SECOND);
	EXPECT(shares(&c[0], &c[1], 1) && shares(&c[0], &c[2], 1));
	end(c, 3);
}

/* Who cancels what waits has not had it */
static void test_cancelled(void)
{
	struct caller c[] = {
		{ .tenant = 0, .prio = KVCTX_PRIO_NORMAL, .bytes = MIB, .depth = 32 },
		{ .tenant = 1, .prio = KVCTX_PRIO_NORMAL, .bytes = MIB, .depth = 600, .until = 1 },
	};

	begin();
	play(c, 2, SECOND);
	EXPECT(kvctx_queue_cancel(&turn.queue, &c[1], 1) > 50);
	count_anew(c, 2);
	c[1].until = 0;
	c[1].depth = 32;
	play(c, 2, 3 * SECOND);
	EXPECT(shares(&c[0], &c[1], 1));
	end(c, 2);
}

/* What waits counts as much as what comes: none has the member alone meanwhile. */
static void test_waiting(void)
{
	struct caller c[] = {
		{ .tenant = 0, .prio = KVCTX_PRIO_NORMAL, .bytes = MIB, .depth = 32 },
		{ .tenant = 1, .prio = KVCTX_PRIO_NORMAL, .bytes = 2 * MIB, .depth = 900, .until = 1 },
	};

	begin();
	play(c, 2, SECOND);
	count_anew(c, 2);
	play(c, 2, 3 * SECOND);
	EXPECT(shares(&c[0], &c[1], 1) && most_in_device <= 6 * MIB && c[1].going > 100);
	end(c, 2);
}

/* Long operations make it deeper while they come. */
static void test_long(void)
{
	struct caller c[] = {
		{ .tenant = 0, .prio = KVCTX_PRIO_NORMAL, .bytes = 256 * KIB, .depth = 400 },
		{ .tenant = 1, .prio = KVCTX_PRIO_NORMAL, .bytes = 20 * MIB, .depth = 2, .until = SECOND },
		{ .tenant = 2, .prio = KVCTX_PRIO_NORMAL, .bytes = 256 * KIB, .depth = 400 },
	};

	begin();
	play(c, 3, SECOND);
	count_anew(c, 3);
	c[1].until = 2 * SECOND;
	play(c, 3, 2 * SECOND);
	EXPECT(most_in_device >= 40 * MIB && shares(&c[0], &c[2], 1));
	play(c, 3, 4 * SECOND);
	count_anew(c, 3);
	play(c, 3, 5 * SECOND);
	EXPECT(most_in_device <= 5 * MIB && shares(&c[0], &c[2], 1) && !ran_dry);
	end(c, 3);
}

void test_shares(void)
{
	test_equal(KVCTX_PRIO_URGENT);
	test_equal(KVCTX_PRIO_NORMAL);
	test_equal(KVCTX_PRIO_BACKGROUND);
	test_weights();
	test_idle();
	test_light();
	test_background();
	test_coming(KVCTX_PRIO_NORMAL);
	test_coming(KVCTX_PRIO_BACKGROUND);
	test_wrapped();
	test_cancelled();
	test_waiting();
	test_long();
}
