// SPDX-License-Identifier: GPL-2.0
/*
 * Recovery of a pool from the devices, with read errors, and with power cuts in the middle of it. See sim.h.
 */
#include "sim.h"

/* A recovery in progress: of one segment */
struct job {
	struct kvc_recover r;
	bool busy;
};

#define JOBS 6

/* As good as damaged: nothing in it is promised any more. What numbers near their limits go on from may be in it. */
static void note_unread(struct sim *s, const struct kvc_recover *r)
{
	s->read_errors++;
	s->n.unread++;
	s->unread[r->member] |= BIT_ULL(segment_of(s, r->offset));
	s->scarred |= s->cfg.limits;
}

static int read_error(struct sim *s, const struct kvc_recover *r)
{
	if (dev_gone(s->devs[r->member]))
		return -ENODEV;
	if (dev_bad(s->devs[r->member], r->offset, r->len))
		return -EIO;
	return s->cfg.io_errors && rng_chance(&s->fault_rng, 10) ? -EIO : 0;
}

static int feed(struct sim *s, struct job *j, const void *buf, int err)
{
	int r;

	do {
		r = kvc_recover_feed(s->pool, &j->r, buf, err);
	} while (r == -ENOMEM && s->cfg.alloc_fails);
	sim_check(r == 0 || r == 1, "recovery: %d", r);
	return r;
}

static void read_and_feed(struct sim *s, struct job *j)
{
	const void *buf = dev_peek(s->devs[j->r.member], j->r.offset, j->r.len);
	int err = read_error(s, &j->r);
	void *exact = NULL;

	sim_check(j->r.len > 0 && j->r.len <= KVC_RECOVER_IO, "recovery reads %u bytes", j->r.len);
	if (err == -EIO) {
		note_unread(s, &j->r);
	} else if (!err && rng_chance(&s->fault_rng, 300)) {
		/* For AddressSanitizer, which cannot see where a part of the device ends */
		exact = malloc(j->r.len);
		if (!exact)
			sim_fail("the test itself is out of memory");
		memcpy(exact, buf, j->r.len);
	}
	j->busy = feed(s, j, exact ? exact : buf, err) == 1;
	free(exact);
}

static void start_job(struct sim *s, struct job *j, u32 segment)
{
	u32 member = 0;

	while (segment >= s->cfg.nr_segs[member])
		segment -= s->cfg.nr_segs[member++];
	kvc_recover_start(s->pool, member, segment, &j->r);
	j->busy = true;
}

/* All segments, several at a time, in any order; the power may go after @reads of them. False: it went. */
static bool recover(struct sim *s, u32 reads)
{
	struct job jobs[JOBS] = { 0 };
	u32 n = 0, next = 0, i, start;
	bool any = true;

	for (i = 0; i < s->cfg.nr_members; i++)
		n += s->cfg.nr_segs[i];
	start = rng_below(&s->rng, n);
	while (any) {
		struct job *j = &jobs[rng_below(&s->rng, JOBS)];

		if (!j->busy && next < n) {
			start_job(s, j, (start + next++) % n);
		} else if (j->busy) {
			if (!reads--)
				return false;
			read_and_feed(s, j);
		}
		for (i = 0, any = next < n; i < JOBS; i++)
			any |= jobs[i].busy;
	}
	kvc_recover_finish(s->pool);
	return true;
}

static void create(struct sim *s)
{
	u64 salt = rng_u64(&s->rng);
	u32 i;
	int r;

	for (i = 0; i < SIM_MEMBERS_MAX; i++)
		s->workers[i] = (struct worker){ .sim = s, .member = i };
	memset(s->newest, 0, sizeof(s->newest));
	do {
		r = kvc_pool_create(s->super, salt, &sim_ops, s, &s->pool);
	} while (r == -ENOMEM && s->cfg.alloc_fails);
	sim_check(r == 0, "pool create: %d", r);
	for (i = 0; i < s->cfg.nr_members; i++) {
		s->failed[i] = s->hole[i] || s->missing & BIT(i);
		if (s->failed[i])
			kvc_member_fail(s->pool, i);
	}
}

void sim_attach(struct sim *s)
{
	create(s);
	recover(s, U32_MAX);
	kvc_stats_get(s->pool, &s->stats);
	s->unexplained = 0;
}

void sim_attached(struct sim *s)
{
	*s->super = *kvc_super_of(s->pool);
	sim_write_supers(s);
	s->super_seq_durable = s->super->seq;
}

void sim_attach_cut(struct sim *s)
{
	u64 unread[SIM_MEMBERS_MAX];
	u32 i;

	memcpy(unread, s->unread, sizeof(unread));
	create(s);
	s->n.cuts_recovery++;
	if (recover(s, rng_below(&s->rng, s->cfg.nr_members * 8)))
		for (i = 0; i < s->cfg.nr_members; i++)
			if (rng_chance(&s->rng, 5000))
				sim_write_super(s, kvc_super_of(s->pool), i, 1);
	kvc_pool_destroy(s->pool);
	bus_power_cut(s->bus);
	memcpy(s->unread, unread, sizeof(unread));
}
