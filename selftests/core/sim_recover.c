// SPDX-License-Identifier: GPL-2.0
/*
 * Recovery of a pool from the devices, with read errors, and with power cuts in the middle of it. See sim.h.
 */
#include "engine.h"
#include "sim.h"

/* A recovery in progress: of one segment */
struct job {
	struct kvc_recover r;
	bool busy;
	u8	*keep;
};

#define JOBS 6

/* What numbers near their limits go on from may be in it. */
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

/* An older header is as good as one: what it leads to was true once, and what the engine does about it may be wrong. */
static bool another_header(const struct sim *s, const struct kvc_recover *r, const u8 *got, const u8 *real)
{
	struct kvc_seg_id id = { .member = r->member, .segment = (u32)segment_of(s, r->offset) };
	u32 bytes, blocks = (u32)(s->cfg.segment_size >> KVC_BLOCK_SHIFT);
	struct kvc_extent_reader xr;

	if ((r->offset - KVC_DATA_OFFSET) % s->cfg.segment_size || !memcmp(got, real, KVC_BLOCK))
		return false;
	memcpy(id.pool_uuid, s->super->pool_uuid, KVC_UUID_LEN);
	return kvc_extent_peek(got, &bytes) == KVC_OK &&
	       kvc_extent_open(&xr, got, bytes, &id, 0, blocks, s->cfg.chunk_size) == KVC_OK;
}

/* A block of a log, or the header in front of it: in its first half, where records are */
static void choose_misread(struct sim *s)
{
	u32 m, segment;

	s->misread.on = s->cfg.misreads && rng_chance(&s->fault_rng, 4000);
	if (!s->misread.on)
		return;
	do
		m = rng_below(&s->fault_rng, s->cfg.nr_members);
	while (s->hole[m]);
	segment = rng_below(&s->fault_rng, s->cfg.nr_segs[m]);
	s->misread.member = m;
	s->misread.offset = KVC_DATA_OFFSET + segment * s->cfg.segment_size +
			    rng_below(&s->fault_rng, 6) * KVC_BLOCK + rng_below(&s->fault_rng, 512);
	s->misread.flips = (u8)(1U << rng_below(&s->fault_rng, 8));
}

/* The same again and again, until the next attach */
static void misread_always(struct sim *s, const struct kvc_recover *r, u8 *got)
{
	const struct misread *mr = &s->misread;

	if (!mr->on || r->member != mr->member || mr->offset < r->offset || mr->offset >= r->offset + r->len)
		return;
	got[mr->offset - r->offset] ^= mr->flips;
	s->n.misread++;
	s->unread[r->member] |= BIT_ULL(segment_of(s, r->offset));
}

/* Now and then the device returns something else. */
static void misread(struct sim *s, const struct kvc_recover *r, u8 *got, const u8 *real)
{
	u32 len = r->len;

	if (!s->cfg.misreads || !rng_chance(&s->fault_rng, 400))
		return;
	/* more often than not in the log */
	if (rng_chance(&s->fault_rng, 7000))
		len = min(len, KVC_BLOCK * rng_range(&s->fault_rng, 1, 4));
	dev_misread(s->devs[r->member], &s->fault_rng, r->offset, got, len);
	if (!memcmp(got, real, r->len))
		return;
	s->n.misread++;
	s->unread[r->member] |= BIT_ULL(segment_of(s, r->offset));
	s->scarred |= another_header(s, r, got, real);
}

/* As the kernel does it, into what is kept, or alone, and then into memory whose end AddressSanitizer sees */
static void read_and_feed(struct sim *s, struct job *j)
{
	const u8 *real = dev_peek(s->devs[j->r.member], j->r.offset, j->r.len);
	int err = read_error(s, &j->r);
	u8 *buf = j->r.keep;

	sim_check(j->r.len > 0 && j->r.at + j->r.len <= KVC_RECOVER_IO, "recovery reads %u bytes", j->r.len);
	sim_check(buf || !j->r.at, "recovery keeps %u bytes of nothing", j->r.at);
	if (!buf)
		buf = malloc(j->r.len);
	if (!buf)
		sim_fail("the test itself is out of memory");
	if (err == -EIO)
		note_unread(s, &j->r);
	if (!err) {
		memcpy(buf + j->r.at, real, j->r.len);
		misread(s, &j->r, buf + j->r.at, real);
		misread_always(s, &j->r, buf + j->r.at);
	}
	j->busy = feed(s, j, buf, err) == 1;
	if (buf != j->keep)
		free(buf);
}

/* Those of a member that is not there are left alone. */
static u32 segments(const struct sim *s, u32 member)
{
	return s->missing & BIT(member) ? 0 : kvc_nr_segments(s->pool, member);
}

static void start_job(struct sim *s, struct job *j, u32 segment)
{
	u32 member = 0;

	while (segment >= segments(s, member))
		segment -= segments(s, member++);
	kvc_recover_start(s->pool, member, segment, &j->r);
	if (rng_chance(&s->rng, 9000))
		j->r.keep = j->keep;
	j->busy = true;
}

/* All segments, several at a time, in any order; the power may go after @reads of them. False: it went. */
static bool recover(struct sim *s, u32 reads)
{
	static u8 keep[JOBS][KVC_RECOVER_IO];
	struct job jobs[JOBS] = { 0 };
	u32 n = 0, next = 0, i, start;
	bool any = true;

	memset(s->unread, 0, sizeof(s->unread));
	choose_misread(s);
	for (i = 0; i < JOBS; i++)
		jobs[i].keep = keep[i];
	for (i = 0; i < s->cfg.nr_members; i++)
		n += segments(s, i);
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

static void crowd(struct sim *s)
{
	s->crowd = s->cfg.crowded && rng_chance(&s->rng, 5000) ? rng_range(&s->rng, 1, 3) : 0;
	if (!s->crowd)
		return;
	s->n.crowds++;
	sim_trace(s, "room for %u keyspaces", s->crowd);
	s->pool->domains.max = s->crowd;
	s->pool->domains.sure = 0;
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
	crowd(s);
	if (s->cfg.memory && s->index_bytes && rng_chance(&s->rng, 6000))
		kvc_index_limit(s->pool, s->index_bytes / 100 * rng_range(&s->rng, 60, 110));
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
	s->pool->domains.max = KVC_DOMAINS_MAX;
	kvc_stats_get(s->pool, &s->stats);
	s->dropped = s->stats.recover_dropped != 0;
	s->n.dropped += s->stats.recover_dropped;
	budget_begin(s);
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
	u32 i;

	s->n.cuts_recovery++;
	if (!super_catch_up(s, true)) {
		bus_power_cut(s->bus);
		return;
	}
	create(s);
	if (recover(s, rng_below(&s->rng, s->cfg.nr_members * 8)))
		for (i = 0; i < s->cfg.nr_members; i++)
			if (rng_chance(&s->rng, 5000))
				sim_write_super(s, kvc_super_of(s->pool), i, 1);
	kvc_pool_destroy(s->pool);
	bus_power_cut(s->bus);
}
