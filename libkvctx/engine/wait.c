// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * What lets operations go on that wait for their tenant's pace (kmod/session/pace.c), for space (kmod/session/park.c)
 * or for a turn at a member's device (kmod/session/turn.c): one job of the attendant's for all of a pool. They give up
 * when their session closes or a CANCEL names them.
 */
#include "session.h"

static struct kvctx_turn *turn_of(const struct kve_op *op)
{
	return &op->session->waits->turns[op->io.member];
}

static void wait_tick(struct kve_pool *p)
{
	kve_job_queue(p, &p->space, kve_now() + KVCTX_TICK_MS * KVCTX_NSEC_PER_MS);
}

/*
 * Try an operation for the first time. 0: it was taken over; otherwise it completes with the error. @behind: behind
 * those of its tenant that wait already.
 */
int kve_attempt(struct kve_op *op, bool behind)
{
	struct kve_waits *w = op->session->waits;
	int err = -EAGAIN;

	if (kvctx_park_at_once(&w->space, &op->call, behind))
		err = op->kind->attempt(op);
	if (err != -EAGAIN)
		return err;
	kvctx_pace_park(&w->pace, &op->call);
	err = kvctx_park(&w->space, &op->call);
	if (err)
		return err;
	os_atomic64_add(&w->pool->counters.store_waits, 1);
	wait_tick(w->pool);
	return 0;
}

/*
 * Call kind->attempt() when its tenant's pace lets @op begin. 0: it was taken over; otherwise it completes with the
 * error.
 */
int kve_pace(struct kve_op *op)
{
	struct kve_pool *p = op->session->pool;
	int ret = kvctx_pace_enter(&p->waits->pace, &op->call);

	if (ret < 0)
		return ret;
	if (!ret) {
		/* @op may be gone */
		wait_tick(p);
		return 0;
	}
	ret = op->kind->attempt(op);
	if (ret) {
		kvctx_pace_leave(&p->waits->pace, &op->call, false);
		op->call.pace.state = KVCTX_PACE_NONE;
	}
	return ret;
}

/*
 * Call kind->go() when it is the turn of @op to move io.bytes from or to io.member. kve_turn_end() follows when the
 * transfer has ended, unless go() was called with an error.
 */
void kve_turn_take(struct kve_op *op)
{
	struct kve_pool *p = op->session->pool;
	int ret = kvctx_turn_enter(turn_of(op), &op->call, op->io.bytes);

	if (ret) {
		op->kind->go(op, min(ret, 0));
		return;
	}
	/* @op may be gone */
	os_atomic64_add(&p->counters.turn_waits, 1);
	wait_tick(p);
}

void kve_turn_end(struct kve_op *op)
{
	struct kvctx_turn *t = turn_of(op);

	if (kvctx_turn_leave(t, op->call.prio, op->io.bytes) && kvctx_turn_is_due(t))
		kve_job_queue(op->session->pool, &op->session->pool->space, kve_now());
}

/* If it waits for its turn at that member */
bool kve_turn_take_back(struct kve_op *op, u32 member)
{
	return kvctx_turn_recall(&op->session->waits->turns[member], &op->call);
}

/* Those called by one of @nr_names user_data, which ascend. How many? */
u32 kve_cancel_all(struct kve_session *s, const u64 *names, u32 nr_names)
{
	/* in the order in which operations pass them */
	u32 i, nr = kvctx_queue_cancel_all(&s->waits->pace.of[s->slot].queue, s, names, nr_names);

	nr += kvctx_queue_cancel_all(&s->waits->space.of[s->slot], s, names, nr_names);
	for (i = 0; i < KVC_MEMBERS_MAX; i++)
		nr += kvctx_queue_cancel_all(&s->waits->turns[i].queue, s, names, nr_names);
	return nr;
}

s32 kve_cancel(struct kve_session *s, const struct kvctx_sqe *sqe)
{
	const u64 name = sqe->offset;

	return (s32)kve_cancel_all(s, &name, 1);
}

/* Some of the operations that wait may have given up. */
void kve_sweep(struct kve_waits *w)
{
	u32 i;

	kvctx_pace_weed(&w->pace);
	kvctx_park_weed(&w->space);
	for (i = 0; i < KVC_MEMBERS_MAX; i++)
		kvctx_queue_weed(&w->turns[i].queue, false);
}

/* The attendant's: who may go on, in all of the pool? */
static void wait_work(struct kve_job *job)
{
	struct kve_pool *p = container_of(job, struct kve_pool, space);
	struct kve_waits *w = p->waits;
	bool again = kvctx_pace_run(&w->pace);
	u32 i;

	again |= kvctx_park_retry(&w->space);
	for (i = 0; i < KVC_MEMBERS_MAX; i++)
		if (os_atomic_read(&w->turns[i].queue.waiting))
			again |= kvctx_turn_run(&w->turns[i]);
	if (again)
		wait_tick(p);
}

/* What the operations of the tenant in that slot came to: of the one there now, not of one that was removed */
struct kvctx_tally *kve_tally_get(struct kve_pool *p, u32 slot)
{
	struct kvctx_tally *t;
	u32 epoch;

	pthread_mutex_lock(&p->config_lock);
	epoch = kvc_super_of(p->core)->tenants[slot].epoch;
	if (p->accounts[slot].epoch != epoch) {
		os_free(p->accounts[slot].tally);
		p->accounts[slot].tally = NULL;
	}
	if (!p->accounts[slot].tally)
		p->accounts[slot].tally = kvctx_tally_new();
	p->accounts[slot].epoch = epoch;
	t = p->accounts[slot].tally;
	pthread_mutex_unlock(&p->config_lock);
	return t;
}

/* What a pool's operations wait in, made for the first of its sessions. NULL: no memory */
struct kve_waits *kve_waits_get(struct kve_pool *p)
{
	u32 i;

	pthread_mutex_lock(&kve_admin_lock);
	if (!p->waits)
		p->waits = calloc(1, sizeof(*p->waits));
	if (p->waits && !p->waits->pool) {
		p->waits->pool = p;
		kvctx_pace_init(&p->waits->pace);
		kvctx_park_init(&p->waits->space);
		for (i = 0; i < KVC_MEMBERS_MAX; i++)
			kvctx_turn_init(&p->waits->turns[i]);
		/* pairs with the engine's ops->space */
		os_store_release(&p->space.fn, wait_work);
	}
	pthread_mutex_unlock(&kve_admin_lock);
	return p->waits;
}
