// SPDX-License-Identifier: GPL-2.0
/*
 * What lets operations go on that wait for their tenant's pace (session/pace.c), for space (session/park.c) or for a
 * turn at a member's device (session/turn.c): two work items of the pool, and one of each member. The latter looks
 * after the deadlines of bios, too (send.c). None of them ever waits for a device: a member that does not answer keeps
 * up nobody who wants another one.
 *
 * Who waits gives up (session/queue.c) with -ECANCELED when its session closes, a CANCEL names it, or its io_uring
 * command was cancelled; with -ENODEV when it names memory of a peer that is gone.
 */
#include "op.h"

static struct kvctx_turn *turn_of(const struct kvctx_op *op)
{
	return &op->session->pool->members[op->io.member].turn;
}

static void wait_tick(struct kvctx_pool *p, struct delayed_work *work)
{
	queue_delayed_work(p->io_wq, work, msecs_to_jiffies(KVCTX_TICK_MS));
}

/*
 * Try an operation for the first time. 0: it was taken over; otherwise it completes with the error. @behind: behind
 * those of its tenant that wait already.
 */
int kvctx_attempt(struct kvctx_op *op, bool behind)
{
	struct kvctx_pool *p = op->session->pool;
	int err = -EAGAIN;

	if (kvctx_park_at_once(&p->space, &op->call, behind))
		err = op->kind->attempt(op);
	if (err != -EAGAIN)
		return err;
	kvctx_pace_park(&p->pace, &op->call);
	err = kvctx_park(&p->space, &op->call);
	if (err)
		return err;
	percpu_counter_inc(&p->counters.store_waits);
	wait_tick(p, &p->space_work);
	return 0;
}

/*
 * Call kind->attempt() when its tenant's pace lets @op begin. 0: it was taken over; otherwise it completes with the
 * error.
 */
int kvctx_pace(struct kvctx_op *op)
{
	struct kvctx_pool *p = op->session->pool;
	int ret = kvctx_pace_enter(&p->pace, &op->call);

	if (ret < 0)
		return ret;
	if (!ret) {
		/* @op may be gone */
		wait_tick(p, &p->pace_work);
		return 0;
	}
	ret = op->kind->attempt(op);
	if (ret) {
		kvctx_pace_leave(&p->pace, &op->call, false);
		op->call.pace.state = KVCTX_PACE_NONE;
	}
	return ret;
}

static void wait_pace_work(struct work_struct *work)
{
	struct kvctx_pool *p = container_of(to_delayed_work(work), struct kvctx_pool, pace_work);
	struct blk_plug plug;
	bool again;

	blk_start_plug(&plug);
	again = kvctx_pace_run(&p->pace);
	blk_finish_plug(&plug);
	if (again)
		wait_tick(p, &p->pace_work);
}

static void wait_space_work(struct work_struct *work)
{
	struct kvctx_pool *p = container_of(to_delayed_work(work), struct kvctx_pool, space_work);
	struct blk_plug plug;
	bool again;

	blk_start_plug(&plug);
	again = kvctx_park_retry(&p->space);
	blk_finish_plug(&plug);
	if (again)
		wait_tick(p, &p->space_work);
}

/* Apart, and small in what most pass by: these are instructions of each operation. */
static noinline void wait_turn(struct kvctx_op *op, struct kvctx_turn *t)
{
	struct kvctx_pool *p = op->session->pool;
	int ret = kvctx_turn_enter(t, &op->call, op->io.bytes);

	if (ret) {
		op->kind->go(op, min(ret, 0));
		return;
	}
	/* @op may be gone */
	percpu_counter_inc(&p->counters.turn_waits);
	wait_tick(p, &container_of(t, struct kvctx_member, turn)->turn_work);
}

/*
 * Call kind->go() when it is the turn of @op to move io.bytes from or to io.member. kvctx_turn_end() follows when the
 * transfer has ended, unless go() was called with an error.
 */
void kvctx_turn_take(struct kvctx_op *op)
{
	struct kvctx_turn *t = turn_of(op);

	if (unlikely(!kvctx_turn_at_once(t, &op->call))) {
		wait_turn(op, t);
		return;
	}
	kvctx_turn_begin(t, op->call.prio, op->io.bytes);
	op->kind->go(op, 0);
}

static noinline void wait_turn_ended(struct kvctx_member *m)
{
	if (kvctx_turn_is_due(&m->turn))
		mod_delayed_work(m->pool->io_wq, &m->turn_work, 0);
}

/* Any context. */
void kvctx_turn_end(struct kvctx_op *op)
{
	struct kvctx_turn *t = turn_of(op);

	if (kvctx_turn_leave(t, op->call.prio, op->io.bytes))
		wait_turn_ended(container_of(t, struct kvctx_member, turn));
}

/* If it waits for its turn at that member */
bool kvctx_turn_take_back(struct kvctx_op *op, u32 member)
{
	return kvctx_turn_recall(&op->session->pool->members[member].turn, &op->call);
}

static void wait_turn_work(struct work_struct *work)
{
	struct kvctx_member *m = container_of(to_delayed_work(work), struct kvctx_member, turn_work);
	struct blk_plug plug;
	bool again;

	blk_start_plug(&plug);
	again = kvctx_turn_run(&m->turn);
	blk_finish_plug(&plug);
	again |= kvctx_send_weed(m, true);
	if (again)
		wait_tick(m->pool, &m->turn_work);
}

s32 kvctx_cancel(struct kvctx_session *s, const struct kvctx_sqe *sqe)
{
	struct kvctx_pool *p = s->pool;
	/* in the order in which operations pass them */
	u32 i, nr = kvctx_queue_cancel(&p->pace.of[s->slot].queue, s, sqe->offset);

	nr += kvctx_queue_cancel(&p->space.of[s->slot], s, sqe->offset);
	for (i = 0; i < KVC_MEMBERS_MAX; i++) {
		nr += kvctx_queue_cancel(&p->members[i].turn.queue, s, sqe->offset);
		nr += kvctx_send_cancel(&p->members[i], s, sqe->offset);
	}
	return nr;
}

/* Some of the operations that wait may have given up. */
void kvctx_sweep(struct kvctx_pool *p)
{
	u32 i;

	kvctx_pace_weed(&p->pace);
	kvctx_park_weed(&p->space);
	for (i = 0; i < KVC_MEMBERS_MAX; i++) {
		kvctx_queue_weed(&p->members[i].turn.queue, false);
		kvctx_send_weed(&p->members[i], false);
	}
}

static void wait_sweep_work(struct work_struct *work)
{
	kvctx_sweep(container_of(work, struct kvctx_pool, sweep));
}

void kvctx_wait_init(struct kvctx_pool *p)
{
	u32 i;

	kvctx_pace_init(&p->pace);
	kvctx_park_init(&p->space);
	INIT_DELAYED_WORK(&p->space_work, wait_space_work);
	INIT_DELAYED_WORK(&p->pace_work, wait_pace_work);
	INIT_WORK(&p->sweep, wait_sweep_work);
	for (i = 0; i < KVC_MEMBERS_MAX; i++) {
		kvctx_turn_init(&p->members[i].turn);
		INIT_DELAYED_WORK(&p->members[i].turn_work, wait_turn_work);
		kvctx_send_init(&p->members[i]);
	}
}

/* Nothing waits, nor is in flight, any more. */
void kvctx_wait_exit(struct kvctx_pool *p)
{
	u32 i;

	cancel_delayed_work_sync(&p->pace_work);
	cancel_delayed_work_sync(&p->space_work);
	for (i = 0; i < KVC_MEMBERS_MAX; i++) {
		cancel_work_sync(&p->members[i].send.work);
		cancel_delayed_work_sync(&p->members[i].turn_work);
	}
}
