// SPDX-License-Identifier: GPL-2.0
/*
 * Waiting for space and for turns: who goes when, in which order, and who gives up with what.
 */
#include "parts.h"
#include "session/wait.h"

#define MIB	(1U << 20)
#define OPS	12U
#define MANY	20000U

static struct op ops[OPS];
static const int a_session, another;

static struct op *op_new(u32 i, u8 prio)
{
	ops[i] = (struct op){
		.req = { .user_data = i, .prio = prio, .deadline = OS_NEVER }, .session = &a_session,
	};
	return &ops[i];
}

/* Space: each attempt takes one, and is an end. What it completes with is its place among all. */

static struct kvctx_park space;
static struct os_atomic room;
static s32 order;

static int take_room(struct op *op)
{
	if (!os_atomic_read(&room))
		return -EAGAIN;
	os_atomic_dec(&room);
	kvctx_req_complete(&op->req, order++, 0);
	return 0;
}

static int fail(struct op *op)
{
	(void)op;
	return -EIO;
}

/* Is nobody parked? */
static bool space_idle(void)
{
	u32 i;

	for (i = 0; i < KVC_TENANTS_MAX; i++)
		if (os_atomic_read(&space.of[i].waiting) || os_atomic_read(&space.of[i].passed))
			return false;
	return true;
}

/* As a server does. 1: it waits */
static int attempt(struct op *op, bool behind)
{
	int err = -EAGAIN;

	if (kvctx_park_at_once(&space, &op->req, behind))
		err = op->attempt(op);
	if (err != -EAGAIN)
		return err;
	err = kvctx_park(&space, &op->req);
	return err ? err : 1;
}

static int store(u32 i)
{
	struct op *op = op_new(i, KVCTX_PRIO_NORMAL);

	op->attempt = take_room;
	return attempt(op, true);
}

/* Only into members that have room of their own, one of @members at a time */

static u32 rooms[3];

static int take_member(struct op *op)
{
	u32 m;

	for (m = 0; m < ARRAY_SIZE(rooms); m++) {
		if (op->req.barred & 1ULL << m || !rooms[m])
			continue;
		rooms[m]--;
		kvctx_req_complete(&op->req, order++, 0);
		return 0;
	}
	return -EAGAIN;
}

/* 0: any */
static int store_into(u32 i, u64 members)
{
	struct op *op = op_new(i, KVCTX_PRIO_NORMAL);

	op->attempt = take_member;
	op->req.barred = members ? ~members : 0;
	return attempt(op, true);
}

/* From a tenant, each of which has room of its own */

static u32 shares[3];

static int take_share(struct op *op)
{
	if (!shares[op->req.tenant])
		return -EAGAIN;
	shares[op->req.tenant]--;
	kvctx_req_complete(&op->req, order++, 0);
	return 0;
}

static int store_of(u32 i, u16 tenant, int (*take)(struct op *op))
{
	struct op *op = op_new(i, KVCTX_PRIO_NORMAL);

	op->attempt = take;
	op->req.tenant = tenant;
	return attempt(op, true);
}

static bool waits(u32 i)
{
	return !os_atomic_read(&ops[i].completions);
}

static void begin_space(u32 n)
{
	os_clock = 0;
	os_atomic_set(&room, n);
	order = 0;
	space = (struct kvctx_park){};
	kvctx_park_init(&space);
}

static void test_space(void)
{
	begin_space(1);
	EXPECT(!store(0) && ended(&ops[0], 0));
	EXPECT(store(1) == 1 && store(2) == 1 && waits(1) && waits(2));
	EXPECT(kvctx_park_retry(&space) && waits(1));
	/* there is space, but others came before; who does not queue up takes it */
	os_atomic_set(&room, 1);
	EXPECT(store(3) == 1);
	op_new(4, KVCTX_PRIO_NORMAL)->attempt = take_room;
	EXPECT(!attempt(&ops[4], false) && ended(&ops[4], 1));
	op_new(5, KVCTX_PRIO_NORMAL)->attempt = take_room;
	ops[5].req.flags = KVCTX_OP_NOWAIT;
	EXPECT(attempt(&ops[5], true) == -EAGAIN);
	/* in order, and the one that finds none stays the first */
	os_atomic_set(&room, 2);
	EXPECT(kvctx_park_retry(&space) && ended(&ops[1], 2) && ended(&ops[2], 3) && waits(3));
	EXPECT(store(6) == 1);
	os_atomic_set(&room, 3);
	EXPECT(!kvctx_park_retry(&space) && ended(&ops[3], 4) && ended(&ops[6], 5));
	EXPECT(!store(7) && ended(&ops[7], 6));
	/* other errors */
	op_new(0, 0)->attempt = fail;
	EXPECT(attempt(&ops[0], true) == -EIO);
	EXPECT(store(1) == 1);
	ops[1].attempt = fail;
	EXPECT(!kvctx_park_retry(&space) && ended(&ops[1], -EIO));
}

/* Who can go to full members only is in nobody else's way, and keeps its place among its like. */
static void test_passing(void)
{
	begin_space(0);
	memset(rooms, 0, sizeof(rooms));
	EXPECT(store_into(0, 1) == 1 && store_into(1, 1) == 1 && store_into(2, 2) == 1 && store_into(3, 0) == 1);
	EXPECT(store_into(4, 1) == 1);
	rooms[2] = 2;
	EXPECT(kvctx_park_retry(&space) && ended(&ops[3], 0) && waits(0) && waits(1) && waits(2) && waits(4));
	/* those that come do not wait for them, but behind their like */
	EXPECT(!store_into(5, 0) && ended(&ops[5], 1));
	rooms[0] = 1;
	EXPECT(store_into(6, 1) == 1 && waits(6));
	EXPECT(kvctx_park_retry(&space) && ended(&ops[0], 2) && waits(1));
	rooms[0] = 1;
	rooms[1] = 1;
	EXPECT(kvctx_park_retry(&space) && ended(&ops[1], 3) && ended(&ops[2], 4) && waits(4) && waits(6));
	/* the first of those that may go anywhere keeps up all of these, until it goes */
	EXPECT(store_into(7, 0) == 1 && store_into(3, 0) == 1);
	EXPECT(kvctx_park_retry(&space) && waits(7) && waits(3));
	rooms[0] = 4;
	EXPECT(!kvctx_park_retry(&space) && ended(&ops[4], 5) && ended(&ops[6], 6) && ended(&ops[7], 7) && ended(&ops[3], 8));
	EXPECT(space_idle());
}

/* A tenant without room of its own keeps up nobody but itself. */
static void test_tenants(void)
{
	begin_space(0);
	memset(shares, 0, sizeof(shares));
	EXPECT(!space.some && store_of(0, 0, take_share) == 1 && space.some && store_of(1, 0, take_share) == 1);
	/* those of others that come do not wait, but behind their like */
	shares[1] = 1;
	EXPECT(!store_of(2, 1, take_share) && ended(&ops[2], 0));
	EXPECT(store_of(3, 1, take_share) == 1 && store_of(4, 1, take_share) == 1);
	shares[1] = 2;
	EXPECT(store_of(5, 1, take_share) == 1);
	/* in order */
	EXPECT(kvctx_park_retry(&space) && ended(&ops[3], 1) && ended(&ops[4], 2) && waits(5) && waits(0) && waits(1));
	shares[1] = 2;
	EXPECT(kvctx_park_retry(&space) && ended(&ops[5], 3) && waits(0) && waits(1));
	EXPECT(!store_of(2, 1, take_share) && ended(&ops[2], 4));
	shares[0] = 1;
	EXPECT(store_of(6, 0, take_share) == 1);
	EXPECT(kvctx_park_retry(&space) && ended(&ops[0], 5) && waits(1) && waits(6));
	EXPECT(space.some);
	shares[0] = 2;
	EXPECT(!kvctx_park_retry(&space) && ended(&ops[1], 6) && ended(&ops[6], 7) && !space.some);
}

/* One who has no member to go to neither, though it may be another's */
static void test_tenants_passing(void)
{
	begin_space(0);
	memset(rooms, 0, sizeof(rooms));
	op_new(0, KVCTX_PRIO_NORMAL)->attempt = take_share;
	ops[0].req.barred = ~1ULL;
	EXPECT(attempt(&ops[0], true) == 1);
	EXPECT(kvctx_park_retry(&space) && waits(0));
	op_new(1, KVCTX_PRIO_NORMAL)->attempt = take_member;
	ops[1].req.barred = ~1ULL;
	ops[1].req.tenant = 1;
	rooms[0] = 1;
	EXPECT(!attempt(&ops[1], true) && ended(&ops[1], 0));
	op_new(1, KVCTX_PRIO_NORMAL)->attempt = take_member;
	ops[1].req.barred = ~1ULL;
	ops[1].req.tenant = 1;
	EXPECT(attempt(&ops[1], true) == 1);
	rooms[0] = 1;
	EXPECT(kvctx_park_retry(&space) && ended(&ops[1], 1) && waits(0));
}

/* Room that is everybody's goes to the tenants in turn, one after the other, and none is left out. */
static void test_tenants_turns(void)
{
	static const u16 tenants[] = { 0, 0, 0, 1, 1, 239 };
	u32 i;

	begin_space(0);
	for (i = 0; i < ARRAY_SIZE(tenants); i++)
		EXPECT(store_of(i, tenants[i], take_room) == 1);
	os_atomic_set(&room, 2);
	EXPECT(kvctx_park_retry(&space) && ended(&ops[0], 0) && ended(&ops[3], 1) && waits(1) && waits(4) && waits(5));
	os_atomic_set(&room, 1);
	EXPECT(kvctx_park_retry(&space) && ended(&ops[5], 2));
	/* none in between */
	EXPECT(kvctx_park_retry(&space));
	os_atomic_set(&room, 1);
	EXPECT(kvctx_park_retry(&space) && ended(&ops[1], 3) && waits(4));
	/* who comes again is not before who was there, more than once */
	EXPECT(store_of(6, 0, take_room) == 1 && store_of(7, 239, take_room) == 1);
	os_atomic_set(&room, 5);
	EXPECT(!kvctx_park_retry(&space) && ended(&ops[4], 4) && ended(&ops[7], 5) && ended(&ops[2], 6) && ended(&ops[6], 7));
}

/* Room for one at a time, as often as that; how many of the tenant's operations, of OPS / 2 each, went? */
static u32 went_of(u32 first, u32 rounds)
{
	u32 i, n = 0;

	for (i = 0; i < rounds; i++) {
		os_atomic_set(&room, 1);
		kvctx_park_retry(&space);
	}
	for (i = first; i < first + OPS / 2; i++)
		n += !waits(i);
	return n;
}

/* Two tenants that wait: the second one's operations are so long, and the first one has such a weight. */
static void two_wait(u32 weight, u32 length)
{
	u32 i;

	begin_space(0);
	for (i = 0; i < OPS; i++) {
		op_new(i, KVCTX_PRIO_NORMAL)->attempt = take_room;
		ops[i].req.tenant = i >= OPS / 2;
		ops[i].req.length = i >= OPS / 2 ? length : 1U << 20;
		ops[i].weight = i >= OPS / 2 ? 0 : weight;
		EXPECT(attempt(&ops[i], true) == 1);
	}
}

/* What is made for all is theirs by weight, in bytes. */
static void test_tenants_weights(void)
{
	u32 i;

	two_wait(100, 1U << 20);
	EXPECT(went_of(0, 4) == 2);
	two_wait(300, 1U << 20);
	EXPECT(went_of(0, 4) == 3);
	two_wait(100, 3U << 20);
	EXPECT(went_of(0, 4) == 3);
	/* who had little weight is not made to pay for it when he has more */
	two_wait(1, 1U << 20);
	EXPECT(went_of(0, 2) == 1);
	for (i = 0; i < OPS / 2; i++)
		ops[i].weight = 20000;
	EXPECT(went_of(0, 2) == 3);
	/* who had nothing to wait for, or no room of his own, has saved up nothing */
	two_wait(100, 1U << 20);
	kvctx_queue_cancel_all(&space.of[1], &a_session, (const u64[]){ 6, 7, 8, 9, 10, 11 }, 6);
	EXPECT(went_of(0, 4) == 4);
	for (i = OPS / 2; i < OPS; i++) {
		EXPECT(store_of(i, 1, take_room) == 1);
		ops[i].req.length = 1U << 20;
	}
	EXPECT(went_of(0, 2) == 5 && !waits(6) && waits(7));
	two_wait(100, 1U << 20);
	for (i = OPS / 2; i < OPS; i++)
		ops[i].attempt = take_share;
	shares[1] = 0;
	EXPECT(went_of(0, 4) == 4);
	for (i = OPS / 2; i < OPS; i++)
		ops[i].attempt = take_room;
	EXPECT(went_of(0, 2) == 5);
}

/* So do deadlines, CANCEL, and those that are not wanted any more. */
static void test_giving_up_passed(void)
{
	begin_space(0);
	memset(rooms, 0, sizeof(rooms));
	EXPECT(store_into(0, 1) == 1 && store_into(1, 1) == 1 && store_into(2, 2) == 1);
	ops[1].req.deadline = 10;
	kvctx_park_weed(&space);
	EXPECT(kvctx_park_retry(&space));
	EXPECT(kvctx_queue_cancel(&space.of[0], &a_session, 0) == 1 && ended(&ops[0], -ECANCELED));
	os_clock = 10;
	EXPECT(kvctx_park_retry(&space) && ended(&ops[1], -ETIME));
	ops[2].unwanted = -ENODEV;
	kvctx_park_weed(&space);
	EXPECT(ended(&ops[2], -ENODEV));
	EXPECT(!kvctx_park_retry(&space) && space_idle());
	rooms[0] = 1;
	EXPECT(!store_into(3, 1) && ended(&ops[3], 0));
}

static void test_giving_up(void)
{
	u32 i;

	begin_space(0);
	for (i = 0; i < OPS; i++)
		EXPECT(store(i) == 1);
	/* deadlines, of which the queue knows the first only if it came before */
	begin_space(0);
	for (i = 0; i < 5; i++) {
		op_new(i, KVCTX_PRIO_NORMAL)->attempt = take_room;
		ops[i].req.deadline = i < 2 ? 20 - 10 * i : OS_NEVER;
		EXPECT(attempt(&ops[i], true) == 1);
	}
	os_clock = 9;
	EXPECT(kvctx_park_retry(&space) && waits(0) && waits(1));
	os_clock = 10;
	EXPECT(kvctx_park_retry(&space) && waits(0) && ended(&ops[1], -ETIME));
	os_clock = 20;
	EXPECT(kvctx_park_retry(&space) && ended(&ops[0], -ETIME));
	/* what nobody wants any more goes when somebody says so, and does not come in */
	ops[3].unwanted = -ECANCELED;
	EXPECT(kvctx_park_retry(&space) && waits(3));
	kvctx_park_weed(&space);
	EXPECT(ended(&ops[3], -ECANCELED) && waits(2));
	op_new(5, KVCTX_PRIO_NORMAL)->attempt = take_room;
	ops[5].unwanted = -ENODEV;
	EXPECT(attempt(&ops[5], true) == -ENODEV);
	/* CANCEL, by session and name */
	EXPECT(!kvctx_queue_cancel(&space.of[0], &another, 2) && !kvctx_queue_cancel(&space.of[0], &a_session, 9) && waits(2));
	EXPECT(kvctx_queue_cancel(&space.of[0], &a_session, 2) == 1 && ended(&ops[2], -ECANCELED) && waits(4));
	os_atomic_set(&room, 1);
	EXPECT(!kvctx_park_retry(&space) && ended(&ops[4], 0));
}

static int cancelled_meanwhile(struct op *op)
{
	EXPECT(!kvctx_queue_cancel(&space.of[0], &a_session, op->req.user_data));
	return take_room(op);
}

/* A CANCEL that comes while an operation is in the hands of who tries it again: it starts, or does not wait on. */
static void test_cancel_of_the_tried(void)
{
	begin_space(0);
	EXPECT(store(0) == 1 && store(1) == 1 && store(2) == 1);
	ops[0].attempt = cancelled_meanwhile;
	EXPECT(kvctx_park_retry(&space) && ended(&ops[0], -ECANCELED) && waits(1) && waits(2));
	ops[1].attempt = cancelled_meanwhile;
	os_atomic_set(&room, 1);
	EXPECT(kvctx_park_retry(&space) && ended(&ops[1], 0) && waits(2));
	/* that was not about those that come after it, though they have its name */
	EXPECT(store(1) == 1);
	EXPECT(kvctx_park_retry(&space) && waits(1) && waits(2));
	os_atomic_set(&room, 2);
	EXPECT(!kvctx_park_retry(&space) && ended(&ops[2], 1) && ended(&ops[1], 2) && space_idle());
	/* nor of those that can go to full members only */
	memset(rooms, 0, sizeof(rooms));
	EXPECT(store_into(3, 1) == 1);
	ops[3].attempt = cancelled_meanwhile;
	EXPECT(!kvctx_park_retry(&space) && ended(&ops[3], -ECANCELED) && space_idle());
}

/* Several names at once, also such as nobody has */
static void test_many_names(void)
{
	static const u64 all[] = { 1, 3, 4, 7, 11 };
	u32 i;

	begin_space(0);
	for (i = 0; i < 8; i++)
		EXPECT(store(i) == 1);
	EXPECT(!kvctx_queue_cancel_all(&space.of[0], &a_session, all, 0));
	EXPECT(!kvctx_queue_cancel_all(&space.of[0], &another, all, ARRAY_SIZE(all)));
	EXPECT(kvctx_queue_cancel_all(&space.of[0], &a_session, all, ARRAY_SIZE(all)) == 4);
	for (i = 0; i < 8; i++)
		EXPECT(i == 1 || i == 3 || i == 4 || i == 7 ? ended(&ops[i], -ECANCELED) : waits(i));
	kvctx_queue_cancel_all(&space.of[0], &a_session, (const u64[]){ 0, 2, 5, 6 }, 4);
	EXPECT(space_idle());
}

/* Turns. What goes is in flight until the test ends it. */

static struct kvctx_turn turn;

static void goes(struct op *op, int err)
{
	kvctx_req_complete(&op->req, err, 0);
}

static int enter(u32 i, u8 prio, u32 bytes)
{
	op_new(i, prio)->go = goes;
	return kvctx_turn_enter(&turn, &ops[i].req, bytes);
}

static void begin_turns(void)
{
	os_clock = 0;
	turn = (struct kvctx_turn){};
	kvctx_turn_init(&turn);
}

static void end_turns(void)
{
	EXPECT(!os_atomic64_read(&turn.urgent) && !os_atomic64_read(&turn.bytes));
	EXPECT(!os_atomic_read(&turn.queue.waiting) && !kvctx_turn_run(&turn));
}

static void test_turns(void)
{
	begin_turns();
	/* alone, nobody waits */
	EXPECT(enter(0, KVCTX_PRIO_NORMAL, 8 * MIB) == 1 && enter(1, KVCTX_PRIO_BACKGROUND, MIB) == 1);
	/* beside an urgent one, few bytes go: 4 MiB, 1 MiB of those that can wait longest */
	EXPECT(enter(2, KVCTX_PRIO_URGENT, MIB) == 1);
	EXPECT(!enter(3, KVCTX_PRIO_BACKGROUND, 1) && !enter(4, KVCTX_PRIO_NORMAL, 1));
	EXPECT(kvctx_turn_run(&turn) && waits(3) && waits(4));
	EXPECT(kvctx_turn_leave(&turn, KVCTX_PRIO_NORMAL, 8 * MIB));
	EXPECT(kvctx_turn_run(&turn) && ended(&ops[4], 0) && waits(3));
	/* one behind another of its rank waits, though there is room */
	EXPECT(!enter(5, KVCTX_PRIO_BACKGROUND, 1) && enter(6, KVCTX_PRIO_NORMAL, 1) == 1);
	kvctx_turn_leave(&turn, KVCTX_PRIO_BACKGROUND, MIB);
	EXPECT(kvctx_turn_run(&turn) == false && ended(&ops[3], 0) && ended(&ops[5], 0));
	/* the last goes, and leaves nobody */
	EXPECT(!kvctx_turn_leave(&turn, KVCTX_PRIO_URGENT, MIB));
	EXPECT(os_atomic64_read(&turn.bytes) == 4);
	kvctx_turn_leave(&turn, KVCTX_PRIO_NORMAL, 4);
	end_turns();
}

static void test_long_turns(void)
{
	begin_turns();
	EXPECT(enter(0, KVCTX_PRIO_URGENT, 1) == 1 && enter(1, KVCTX_PRIO_NORMAL, 4 * MIB) == 1);
	EXPECT(!enter(2, KVCTX_PRIO_NORMAL, 1) && !enter(3, KVCTX_PRIO_NORMAL, 1) && !enter(4, KVCTX_PRIO_NORMAL, 1));
	ops[4].req.deadline = 7;
	EXPECT(!enter(5, KVCTX_PRIO_NORMAL, 1));
	/* recalled once; who gives up ends, without being in flight */
	EXPECT(kvctx_turn_recall(&turn, &ops[3].req) && !kvctx_turn_recall(&turn, &ops[3].req) && waits(3));
	ops[5].unwanted = -ECANCELED;
	kvctx_queue_weed(&turn.queue, false);
	EXPECT(ended(&ops[5], -ECANCELED));
	EXPECT(os_atomic64_read(&turn.bytes) == 4 * MIB);
	/* nothing starves */
	os_clock = 50 * KVCTX_NSEC_PER_MS - 1;
	EXPECT(kvctx_turn_run(&turn) && waits(2));
	os_clock++;
	EXPECT(!kvctx_turn_run(&turn) && ended(&ops[2], 0));
	EXPECT(os_atomic64_read(&turn.bytes) == 4 * MIB + 1);
	kvctx_turn_leave(&turn, KVCTX_PRIO_NORMAL, 4 * MIB + 1);
	/* the last urgent one lets all go */
	EXPECT(enter(1, KVCTX_PRIO_NORMAL, 4 * MIB) == 1 && !enter(2, KVCTX_PRIO_NORMAL, 1));
	EXPECT(kvctx_turn_leave(&turn, KVCTX_PRIO_URGENT, 1));
	EXPECT(!kvctx_turn_run(&turn) && ended(&ops[2], 0));
	kvctx_turn_leave(&turn, KVCTX_PRIO_NORMAL, 4 * MIB + 1);
	end_turns();
}

/* So much is in flight, and no more, whatever its priority and however long it takes */
static void test_full_turns(void)
{
	begin_turns();
	EXPECT(enter(0, KVCTX_PRIO_URGENT, KVCTX_TURN_MAX_BYTES - 1) == 1 && enter(1, KVCTX_PRIO_URGENT, MIB) == 1);
	EXPECT(!enter(2, KVCTX_PRIO_URGENT, MIB) && !enter(3, KVCTX_PRIO_URGENT, MIB));
	/* the others have room of their own */
	EXPECT(!enter(4, KVCTX_PRIO_NORMAL, KVCTX_TURN_MAX_BYTES));
	os_clock = 50 * KVCTX_NSEC_PER_MS;
	EXPECT(kvctx_turn_run(&turn) && ended(&ops[4], 0) && waits(2) && waits(3));
	EXPECT(!enter(4, KVCTX_PRIO_NORMAL, 1));
	os_clock = 200 * KVCTX_NSEC_PER_MS;
	EXPECT(kvctx_turn_run(&turn) && waits(2) && waits(3) && waits(4));
	EXPECT(!kvctx_turn_is_due(&turn));
	/* who waits gives up as ever, and goes in order */
	ops[2].unwanted = -ECANCELED;
	kvctx_queue_weed(&turn.queue, false);
	EXPECT(ended(&ops[2], -ECANCELED));
	EXPECT(kvctx_turn_leave(&turn, KVCTX_PRIO_URGENT, MIB) && kvctx_turn_is_due(&turn));
	EXPECT(!enter(5, KVCTX_PRIO_URGENT, 1));
	EXPECT(kvctx_turn_run(&turn) && ended(&ops[3], 0) && waits(5) && waits(4));
	EXPECT(kvctx_turn_leave(&turn, KVCTX_PRIO_URGENT, KVCTX_TURN_MAX_BYTES - 1));
	EXPECT(kvctx_turn_run(&turn) && ended(&ops[5], 0) && waits(4));
	EXPECT(kvctx_turn_leave(&turn, KVCTX_PRIO_URGENT, MIB + 1) && !kvctx_turn_is_due(&turn));
	EXPECT(kvctx_turn_leave(&turn, KVCTX_PRIO_NORMAL, KVCTX_TURN_MAX_BYTES) && kvctx_turn_is_due(&turn));
	EXPECT(!kvctx_turn_run(&turn) && ended(&ops[4], 0));
	/* alone, the others have a limit too */
	EXPECT(enter(0, KVCTX_PRIO_BACKGROUND, KVCTX_TURN_MAX_BYTES) == 1 && !enter(1, KVCTX_PRIO_NORMAL, 1));
	kvctx_turn_leave(&turn, KVCTX_PRIO_BACKGROUND, KVCTX_TURN_MAX_BYTES);
	EXPECT(!kvctx_turn_run(&turn) && ended(&ops[1], 0));
	kvctx_turn_leave(&turn, KVCTX_PRIO_NORMAL, 2);
	end_turns();
}

/* Threads: one lets go on who waits, and makes space; the others take turns, cancel, and store. */

static struct os_atomic running;

static void went(struct op *op, int err)
{
	if (!err)
		kvctx_turn_leave(&turn, op->req.prio, 2 * MIB);
	kvctx_req_complete(&op->req, err, 0);
}

static int stores(struct op *op)
{
	if (!os_atomic_read(&room))
		return -EAGAIN;
	kvctx_req_complete(&op->req, 0, 0);
	return 0;
}

static void serve(void)
{
	while (os_atomic_read(&running) || os_atomic_read(&turn.queue.waiting) || !space_idle()) {
		WRITE_ONCE(os_clock, READ_ONCE(os_clock) + KVCTX_NSEC_PER_MS);
		os_atomic_set(&room, os_atomic_read(&running) ? os_now() / KVCTX_NSEC_PER_MS % 3 : 1);
		kvctx_turn_run(&turn);
		kvctx_park_retry(&space);
	}
}

static void contend(u32 thread)
{
	static const u8 prios[] = { KVCTX_PRIO_URGENT, KVCTX_PRIO_NORMAL, KVCTX_PRIO_BACKGROUND };
	struct op *mine, *op, *flies = NULL;	/* URGENT, while others come */
	u32 seed = thread, i;
	int ret;

	if (!thread) {
		serve();
		return;
	}
	mine = calloc(MANY, sizeof(*mine));
	for (i = 0; i < MANY; i++) {
		op = &mine[i];
		*op = (struct op){
			.req = { .user_data = draw(&seed, 100), .prio = prios[draw(&seed, 3)], .deadline = OS_NEVER },
			.session = &a_session, .go = went, .attempt = stores,
		};
		if (!draw(&seed, 3))
			op->req.barred = 1 + draw(&seed, 3);
		op->req.tenant = (u16)draw(&seed, 3);
		if (!draw(&seed, 10))
			op->req.deadline = os_now() + draw(&seed, 5) * KVCTX_NSEC_PER_MS;
		ret = draw(&seed, 2) ? kvctx_turn_enter(&turn, &op->req, 2 * MIB) :
				       attempt(op, draw(&seed, 2)) - 1;
		if (flies && !draw(&seed, 4)) {
			went(flies, 0);
			flies = NULL;
		}
		if (ret == 1 && !flies && op->req.prio == KVCTX_PRIO_URGENT)
			flies = op;
		else if (ret == 1)
			went(op, 0);
		if (!draw(&seed, 20))
			kvctx_queue_cancel(&turn.queue, &a_session, draw(&seed, 100));
		if (!draw(&seed, 20))
			kvctx_queue_cancel(&space.of[draw(&seed, 3)], &a_session, draw(&seed, 100));
	}
	if (flies)
		went(flies, 0);
	os_atomic_dec(&running);
	for (i = 0; i < MANY; i++)
		while (!os_atomic_read(&mine[i].completions))
			sched_yield();
	free(mine);
}

void test_waits(void)
{
	test_space();
	test_passing();
	test_tenants();
	test_tenants_passing();
	test_tenants_turns();
	test_tenants_weights();
	test_giving_up();
	test_giving_up_passed();
	test_cancel_of_the_tried();
	test_many_names();
	test_turns();
	test_long_turns();
	test_full_turns();
	begin_space(0);
	begin_turns();
	os_atomic_set(&running, 3);
	in_threads(4, contend);
	EXPECT(space_idle());
	end_turns();
}
