// SPDX-License-Identifier: GPL-2.0
/*
 * Pace: how many operations of a tenant are in flight, how many bytes a second go, and who waits for that and gives up.
 * Operations are in flight until the test ends them.
 */
#include "parts.h"
#include "session/pace.h"

#define KIB	1024U
#define MIB	(1U << 20)
#define OPS	512U
#define MS	KVCTX_NSEC_PER_MS
#define SECOND	(1000 * MS)
#define MANY	20000U

static struct kvctx_pace pace;
static struct op *ops;
static u32 order[OPS], went;		/* by user_data */
static const int a_session, another;

static int goes(struct op *op)
{
	order[went++ % OPS] = (u32)op->req.user_data;
	return 0;
}

static int misses(struct op *op)
{
	(void)op;
	return -ENOENT;
}

/* A limit that differs is another one. */
static struct op *op_new(u32 i, u32 length, struct kvc_pace limit)
{
	limit.generation += (u32)limit.bandwidth + limit.inflight;
	ops[i] = (struct op){
		.req = { .user_data = i, .prio = KVCTX_PRIO_NORMAL, .length = length, .deadline = OS_NEVER },
		.session = &a_session, .pace = limit, .attempt = goes,
	};
	return &ops[i];
}

/* As a server does. 1: it waits */
static int enter(struct op *op)
{
	int ret = kvctx_pace_enter(&pace, &op->req);


	if (ret <= 0)
		return ret ?: 1;
	ret = op->attempt(op);
	if (ret)
		kvctx_pace_leave(&pace, &op->req, false);
	return ret;
}

static bool waits(u32 i)
{
	return !os_atomic_read(&ops[i].completions) && !ops[i].req.pace.state;
}

static bool leave(u32 i, bool moved)
{
	return kvctx_pace_leave(&pace, &ops[i].req, moved);
}

static void begin(void)
{
	os_clock = 100 * SECOND;
	went = 0;
	ops = calloc(OPS, sizeof(*ops));
	pace = (struct kvctx_pace){};
	kvctx_pace_init(&pace);
}

static bool idle(void)
{
	u32 i;

	for (i = 0; i < KVC_TENANTS_MAX; i++)
		if (os_atomic_read(&pace.of[i].inflight) || os_atomic_read(&pace.of[i].again) || os_atomic_read(&pace.of[i].queue.waiting))
			return false;
	return true;
}

static void end(void)
{
	EXPECT(!kvctx_pace_run(&pace) && idle());
	free(ops);
}

static void test_inflight(void)
{
	const struct kvc_pace two = { .inflight = 2 };

	begin();
	EXPECT(!enter(op_new(0, MIB, two)) && !enter(op_new(1, MIB, two)));
	EXPECT(enter(op_new(2, MIB, two)) == 1 && waits(2));
	/* those of others are not among them */
	op_new(3, MIB, two)->req.tenant = 1;
	EXPECT(!enter(&ops[3]));
	/* who may not wait does not */
	op_new(4, MIB, two)->req.flags = KVCTX_OP_NOWAIT;
	EXPECT(enter(&ops[4]) == -EAGAIN);
	/* more urgent ones first, else in order; one ends, one goes */
	op_new(5, MIB, two)->req.prio = KVCTX_PRIO_BACKGROUND;
	op_new(6, MIB, two)->req.prio = KVCTX_PRIO_URGENT;
	EXPECT(enter(&ops[5]) == 1 && enter(&ops[6]) == 1 && enter(op_new(7, MIB, two)) == 1);
	EXPECT(kvctx_pace_run(&pace) && went == 3);
	EXPECT(leave(0, true));
	/* who comes now does not pass those that wait */
	EXPECT(enter(op_new(8, MIB, two)) == 1 && kvctx_queue_cancel(&pace.of[0].queue, &a_session, 8) == 1);
	EXPECT(kvctx_pace_run(&pace) && went == 4 && order[3] == 6);
	EXPECT(leave(6, true) && kvctx_pace_run(&pace) && went == 5 && order[4] == 2);
	/* who fails at once makes room for the next */
	ops[7].attempt = misses;
	EXPECT(leave(1, true));
	kvctx_pace_run(&pace);
	EXPECT(ended(&ops[7], -ENOENT) && ops[7].req.pace.state);
	EXPECT(leave(7, false) && !kvctx_pace_run(&pace) && went == 6 && order[5] == 5);
	EXPECT(!leave(2, true) && !leave(5, true) && !leave(3, true));
	/* no limit any more: all go */
	EXPECT(!enter(op_new(0, MIB, two)) && !enter(op_new(1, MIB, two)) && enter(op_new(2, MIB, two)) == 1);
	ops[2].pace = (struct kvc_pace){};
	EXPECT(!kvctx_pace_run(&pace) && went == 9);
	leave(0, true);
	leave(1, true);
	leave(2, true);
	end();
}

static void test_giving_up(void)
{
	const struct kvc_pace one = { .inflight = 1 };

	begin();
	EXPECT(!enter(op_new(0, MIB, one)));
	op_new(1, MIB, one)->req.deadline = os_clock + 5;
	op_new(2, MIB, one);
	op_new(3, MIB, one);
	op_new(4, MIB, one)->unwanted = -ECANCELED;
	EXPECT(enter(&ops[1]) == 1 && enter(&ops[2]) == 1 && enter(&ops[3]) == 1 && enter(&ops[4]) == -ECANCELED);
	EXPECT(!kvctx_queue_cancel(&pace.of[0].queue, &another, 2));
	EXPECT(kvctx_queue_cancel(&pace.of[0].queue, &a_session, 2) == 1 && ended(&ops[2], -ECANCELED));
	os_clock += 5;
	EXPECT(kvctx_pace_run(&pace) && ended(&ops[1], -ETIME) && waits(3));
	ops[3].unwanted = -ENODEV;
	kvctx_pace_weed(&pace);
	EXPECT(ended(&ops[3], -ENODEV) && went == 1);
	EXPECT(!leave(0, true));
	end();
}

/* What goes in @nr ticks while there are always some that want to? In bytes */
static u64 bytes_in(u32 ticks, u32 length, struct kvc_pace limit, bool moved)
{
	u32 i, n, next = 0, before = went;

	for (i = 0; i < ticks; i++) {
		for (n = 0; os_atomic_read(&pace.of[0].queue.waiting) < 64 && n < OPS; n++)
			enter(op_new(next++ % OPS, length, limit));
		kvctx_pace_run(&pace);
		for (; before < went; before++) {
			kvctx_req_complete(&ops[order[before % OPS]].req, 0, 0);
			leave(order[before % OPS], moved);
		}
		os_clock += KVCTX_TICK_MS * MS;
	}
	return (u64)went * length;
}

/* Bytes of ten seconds, within a page or five per cent; of odd lengths, whole blocks count */
static void test_bandwidth(void)
{
	static const struct {
		u64 rate;
		u32 length;
	} rows[] = {
		{ 100 * MIB, 64 * KIB }, { 7 * MIB, 4 * KIB }, { 3333333, MIB }, { 2000ULL * MIB, 2 * MIB },
		{ 1, 4 * KIB },
	};
	u64 got, want;
	u32 i, n;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		begin();
		got = bytes_in(1000, rows[i].length, (struct kvc_pace){ .bandwidth = rows[i].rate }, true);
		want = rows[i].rate * 10;
		EXPECT(got <= want + max_t(u64, want / 20, rows[i].length));
		EXPECT(got + max_t(u64, want / 20, rows[i].length) >= want);
		for (n = 0; n < OPS; n++)
			ops[n].unwanted = -ECANCELED;
		kvctx_pace_weed(&pace);
		end();
	}
}

/* What does not move does not count; nobody saves up what he did not take */
static void test_unused(void)
{
	const struct kvc_pace slow = { .bandwidth = MIB };
	u32 i;

	begin();
	for (i = 0; i < 100; i++) {
		EXPECT(!enter(op_new(i, MIB, slow)));
		leave(i, false);
	}
	os_clock += 1000 * SECOND;
	EXPECT(!enter(op_new(0, MIB, slow)) && enter(op_new(1, MIB, slow)) == 1);
	os_clock += SECOND - 21 * MS;
	EXPECT(kvctx_pace_run(&pace));
	os_clock += 2 * MS;
	EXPECT(!kvctx_pace_run(&pace));
	leave(0, true);
	leave(1, true);
	/* what an operation did not tell before counts as well */
	os_clock += 10 * SECOND;
	EXPECT(!enter(op_new(0, 0, slow)));
	EXPECT(kvctx_pace_has_room(&pace, 0, &slow));
	kvctx_pace_charge(&pace, &ops[0].req, 4 * MIB);
	EXPECT(!kvctx_pace_has_room(&pace, 0, &slow) && kvctx_pace_has_room(&pace, 1, &slow));
	EXPECT(enter(op_new(1, 0, slow)) == 1);
	os_clock += 4 * SECOND;
	EXPECT(!kvctx_pace_run(&pace) && kvctx_pace_has_room(&pace, 0, &slow));
	leave(0, true);
	leave(1, true);
	/* another limit is not kept from those it is for by what the one before it cost, nor by what that gives back */
	EXPECT(!enter(op_new(0, MIB, (struct kvc_pace){ .bandwidth = 1 })));
	EXPECT(enter(op_new(1, MIB, slow)) == 0 && enter(op_new(2, MIB, slow)) == 1);
	leave(0, false);
	os_clock += SECOND;
	EXPECT(!kvctx_pace_run(&pace));
	EXPECT(enter(op_new(3, MIB, slow)) == 1);
	leave(1, true);
	leave(2, true);
	os_clock += SECOND;
	EXPECT(!kvctx_pace_run(&pace));
	leave(3, true);
	/* nor is the next tenant that has the slot, with the same limit */
	os_clock += 2 * SECOND;
	EXPECT(!enter(op_new(0, 100 * MIB, slow)) && enter(op_new(1, MIB, slow)) == 1);
	ops[1].pace.generation++;
	EXPECT(!kvctx_pace_run(&pace));
	leave(0, true);
	leave(1, true);
	end();
}

/* However many more urgent ones come, the others go, too. */
static void test_late(void)
{
	const struct kvc_pace slow = { .bandwidth = 4 * MIB };
	u32 i, n, next = 1, before = 0;

	begin();
	EXPECT(!enter(op_new(0, MIB, slow)));
	op_new(1, 64 * KIB, slow)->req.prio = KVCTX_PRIO_BACKGROUND;
	EXPECT(enter(&ops[1]) == 1);
	for (i = 0; i < 100; i++) {
		for (n = 0; os_atomic_read(&pace.of[0].queue.waiting) < 8 && n < 8; n++) {
			next = next % (OPS - 1) + 2;
			op_new(next % OPS ?: 2, MIB, slow)->req.prio = KVCTX_PRIO_URGENT;
			enter(&ops[next % OPS ?: 2]);
		}
		kvctx_pace_run(&pace);
		for (; before < went; before++)
			leave(order[before % OPS], true);
		os_clock += KVCTX_TICK_MS * MS;
	}
	EXPECT(!waits(1));
	for (n = 0; n < OPS; n++)
		ops[n].unwanted = -ECANCELED;
	kvctx_pace_weed(&pace);
	end();
}

/* Who waits for space is not in flight; with its place it is, beside the others, but no more of such than may be. */
static void test_parked(void)
{
	const struct kvc_pace two = { .inflight = 2 };
	u32 i;

	begin();
	for (i = 0; i < 5; i++) {
		EXPECT(!enter(op_new(i, MIB, two)));
		kvctx_pace_park(&pace, &ops[i].req);
	}
	EXPECT(!os_atomic_read(&pace.of[0].inflight));
	EXPECT(!enter(op_new(5, MIB, two)) && !enter(op_new(6, MIB, two)) && enter(op_new(7, MIB, two)) == 1);
	EXPECT(kvctx_pace_may_resume(&pace, &ops[5].req));
	for (i = 0; i < 2; i++) {
		EXPECT(kvctx_pace_may_resume(&pace, &ops[i].req));
		kvctx_pace_resume(&pace, &ops[i].req);
	}
	EXPECT(!kvctx_pace_may_resume(&pace, &ops[2].req));
	EXPECT(leave(0, true) && kvctx_pace_run(&pace) && waits(7));
	EXPECT(kvctx_pace_may_resume(&pace, &ops[2].req));
	kvctx_pace_resume(&pace, &ops[2].req);
	/* one that gives up there had no place */
	EXPECT(leave(3, false) && kvctx_pace_run(&pace) && waits(7));
	EXPECT(leave(5, true) && !kvctx_pace_run(&pace) && !waits(7));
	/* without a limit they all have theirs */
	pace.of[0].limit.inflight = 0;
	EXPECT(kvctx_pace_may_resume(&pace, &ops[4].req));
	for (i = 1; i < 8; i++)
		if (i != 3 && i != 5)
			leave(i, true);
	EXPECT(!os_atomic_read(&pace.of[0].again));
	end();
}

/* What is read of chunks, for a part of one, is charged when it is known, and given back as a whole. */
static void test_parts(void)
{
	const struct kvc_pace slow = { .bandwidth = MIB };
	u64 before;

	begin();
	EXPECT(!enter(op_new(0, 1, slow)));
	before = os_atomic64_read(&pace.of[0].next) - os_clock;
	EXPECT((s64)before < 4 * (s64)MS);
	kvctx_pace_charge(&pace, &ops[0].req, 64 * KIB);
	kvctx_pace_charge(&pace, &ops[0].req, 64 * KIB);
	EXPECT((s64)(os_atomic64_read(&pace.of[0].next) - os_clock - 60 * MS) > -20 * (s64)MS);
	EXPECT((s64)(os_atomic64_read(&pace.of[0].next) - os_clock - 63 * MS) < 0);
	leave(0, false);
	EXPECT((s64)(os_atomic64_read(&pace.of[0].next) - os_clock) <= 0);
	end();
}

/* Who has an operation for each that ends at once keeps up nobody else. */
static int comes_again(struct op *op)
{
	struct op *next = op_new((u32)op->req.user_data + 1, MIB, op->pace);

	next->attempt = comes_again;
	went++;
	EXPECT(enter(next) == 1);
	leave((u32)op->req.user_data, false);
	kvctx_req_complete(&op->req, 0, 0);
	return 0;
}

static void test_lane_that_never_ends(void)
{
	const struct kvc_pace one = { .inflight = 1 };
	u32 last = 1, i;

	begin();
	EXPECT(!enter(op_new(0, MIB, one)) && enter(op_new(1, MIB, one)) == 1);
	ops[1].attempt = comes_again;
	op_new(400, MIB, one)->req.tenant = 7;
	op_new(401, MIB, one)->req.tenant = 7;
	EXPECT(!enter(&ops[400]) && enter(&ops[401]) == 1);
	leave(0, true);
	leave(400, true);
	EXPECT(kvctx_pace_run(&pace) && ops[401].req.pace.state);
	EXPECT(went == 4);
	for (i = 2; i < OPS; i++)
		if (ops[i].session && waits(i) && i < 400)
			last = i;
	ops[last].unwanted = -ECANCELED;
	kvctx_pace_weed(&pace);
	leave(401, true);
	end();
}

/* A CANCEL that comes while one is on its way from here to where it waits next */
static struct kvctx_park space;

static int parks(struct op *op)
{
	kvctx_queue_cancel(&pace.of[0].queue, &a_session, op->req.user_data);
	kvctx_queue_cancel(&space.of[0], &a_session, op->req.user_data);
	went++;
	return kvctx_park(&space, &op->req);
}

static void test_cancel_between(void)
{
	const struct kvc_pace one = { .inflight = 1 };

	begin();
	kvctx_park_init(&space);
	EXPECT(!enter(op_new(0, MIB, one)) && enter(op_new(1, MIB, one)) == 1 && enter(op_new(2, MIB, one)) == 1);
	ops[1].attempt = parks;
	leave(0, true);
	kvctx_pace_run(&pace);
	EXPECT(went == 2 && ended(&ops[1], -ECANCELED));
	/* it was not about another one, nor does it last */
	ops[1].req.user_data = 77;
	leave(1, false);
	EXPECT(!kvctx_pace_run(&pace) && went == 3);
	ops[2].req.pace.on_way = false;
	EXPECT(!kvctx_park(&space, &ops[2].req));
	EXPECT(kvctx_queue_cancel(&space.of[0], &a_session, 2) == 1);
	leave(2, true);
	end();
}

/* What is left for reading ahead: nothing, while the tenant's own operations wait, or are as many as may be */
static void test_room(void)
{
	const struct kvc_pace one = { .inflight = 1 }, none = {};

	begin();
	EXPECT(kvctx_pace_has_room(&pace, 0, &one) && !enter(op_new(0, MIB, one)));
	EXPECT(!kvctx_pace_has_room(&pace, 0, &one) && kvctx_pace_has_room(&pace, 0, &none));
	EXPECT(enter(op_new(1, MIB, one)) == 1 && !kvctx_pace_has_room(&pace, 0, &none));
	leave(0, true);
	EXPECT(!kvctx_pace_run(&pace));
	leave(1, true);
	end();
}

/* Many at a time after a pause are due for what they move, and not for the pause. */
static void charge_many(u32 thread)
{
	struct op mine = { .req = { .length = 1 }, .pace = { .bandwidth = 1000ULL * MIB, .generation = 1 } };
	u32 i;

	(void)thread;
	for (i = 1; i <= 1000; i++)
		kvctx_pace_charge(&pace, &mine.req, i * 4 * KIB);
}

static void test_charges(void)
{
	u64 most = 4ULL * 4 * KIB * 1000 * SECOND / (1000ULL * MIB), due;
	u32 i;

	begin();
	for (i = 0; i < 50; i++) {
		os_clock += 1000 * SECOND;
		in_threads(4, charge_many);
		due = os_atomic64_read(&pace.of[0].next) - os_clock;
		EXPECT((s64)due <= (s64)most && due > most / 2);
	}
	end();
}

/* Threads: one lets go on who waits and ends who is in flight, the others come, end some, and cancel. */

static struct os_atomic running, now_inflight, times[4];	/* so often so many were in flight */
static struct op *flying[4];

static void ends(struct op **of, struct op *next)
{
	struct op *op = __atomic_exchange_n(of, next, __ATOMIC_ACQ_REL);

	if (!op)
		return;
	os_atomic_dec(&now_inflight);
	kvctx_pace_leave(&pace, &op->req, op->req.user_data % 2);
	kvctx_req_complete(&op->req, 0, 0);
}

static int flies(struct op *op)
{
	u32 n = os_atomic_inc_return(&now_inflight);

	os_atomic_inc(&times[min(n, 3U)]);
	ends(&flying[op->req.user_data % ARRAY_SIZE(flying)], op);
	return 0;
}

static void serve(void)
{
	u32 i = 0;

	while (os_atomic_read(&running) || os_atomic_read(&pace.of[0].queue.waiting) || os_atomic_read(&now_inflight)) {
		WRITE_ONCE(os_clock, READ_ONCE(os_clock) + MS);
		kvctx_pace_run(&pace);
		ends(&flying[i++ % ARRAY_SIZE(flying)], NULL);
	}
}

static void contend(u32 thread)
{
	struct op *mine;
	u32 seed = thread, i;
	int ret;

	if (!thread) {
		serve();
		return;
	}
	mine = calloc(MANY, sizeof(*mine));
	for (i = 0; i < MANY; i++) {
		mine[i] = (struct op){
			.req = { .user_data = draw(&seed, 100), .prio = (u8)(1 + draw(&seed, 3)), .length = 64 * KIB,
				 .deadline = draw(&seed, 10) ? OS_NEVER : os_now() + 3 * MS },
			.session = &a_session, .attempt = flies,
			.pace = { .generation = 1, .inflight = 2, .bandwidth = 64ULL * 1000 * MIB },
		};
		ret = kvctx_pace_enter(&pace, &mine[i].req);
		if (ret == 1)
			flies(&mine[i]);
		if (!draw(&seed, 20))
			kvctx_queue_cancel(&pace.of[0].queue, &a_session, draw(&seed, 100));
	}
	os_atomic_dec(&running);
	for (i = 0; i < MANY; i++)
		while (!os_atomic_read(&mine[i].completions))
			sched_yield();
	free(mine);
}

void test_pace(void)
{
	test_inflight();
	test_giving_up();
	test_bandwidth();
	test_late();
	test_parked();
	test_unused();
	test_parts();
	test_lane_that_never_ends();
	test_cancel_between();
	test_room();
	test_charges();
	begin();
	os_atomic_set(&running, 3);
	in_threads(4, contend);
	EXPECT(os_atomic_read(&times[2]) && !os_atomic_read(&times[3]));
	end();
}
