/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * Segments, and what happens to them.
 *
 *	segment.c	states, heads				summary.c	headers and extents
 *	room.c		who is refused				lease.c		what is kept, and what yields
 *	store.c load.c delete.c	what users do			tomb.c		tombstones, and when they may go
 *	reclaim.c	one segment after the other		leave.c		a member's, until it is empty
 *	member.c	made, lost, added, removed		recover.c	all of it from what media says
 *	discard.c	old pages				own.c		those of one tenant alone
 *	memory.c	who finds no memory in the index	return.c	a lost member comes back
 *
 * Calls the index, the policy and the format.
 */
#ifndef KVC_LOG_H
#define KVC_LOG_H

#include "index/index.h"

/* member.c */
int kvc_member_init(struct kvc_pool *p, u32 index, u32 nr_segs);
void kvc_member_exit(struct kvc_member *m);
void kvc_member_joining(struct kvc_member *m, bool joining);
bool kvc_member_heirs(const struct kvc_pool *p);	/* is one of them online? */

/* store.c */
int kvc_copy_prepare(struct kvc_member *m, enum kvc_head which, u32 slot, u32 length, struct kvc_seg **seg);

/* segment.c: states, heads. Member locked. */
bool kvc_state_leasable(u32 state);
void kvc_seg_set_state(struct kvc_member *m, struct kvc_seg *seg, enum kvc_seg_state to);
void kvc_seg_undead(struct kvc_pool *p, struct kvc_seg *seg);	/* no lock needed */
void kvc_seg_doubt(struct kvc_member *m, struct kvc_seg *seg);
void kvc_seg_reset(struct kvc_pool *p, struct kvc_seg *seg);
u32 kvc_log_blocks(const struct kvc_pool *p, u32 rec_bytes);
void kvc_seg_check(const struct kvc_pool *p, const struct kvc_seg *seg);
bool kvc_seg_fits(const struct kvc_pool *p, const struct kvc_seg *seg, u32 blocks, u32 rec_bytes);
void kvc_seg_retire(struct kvc_member *m, enum kvc_head which);
void kvc_seg_end_log(struct kvc_seg *seg);
void kvc_seg_try_seal(struct kvc_member *m, struct kvc_seg *seg);
void kvc_seg_count(struct kvc_member *m, struct kvc_seg *seg, struct kvc_entry *e, u32 rec_bytes);
/* Open a segment as head @which; NULL: none is ready. */
struct kvc_seg *kvc_head_open(struct kvc_member *m, enum kvc_head which);
/*
 * A head with room for a page of @blocks (0: a tombstone) with @nr_crcs and records of @beside bytes, opening a segment
 * if need be. The lock may be dropped meanwhile, but is held from the last check on. 0, -EAGAIN (no room), -ENOBUFS (no
 * room in the index), -ENODEV, -ENOMEM.
 */
int kvc_head_prepare(struct kvc_member *m, enum kvc_head which, u32 blocks, u32 nr_crcs, u32 beside,
		     struct kvc_seg **out);
u32 kvc_seg_reserve_page(struct kvc_member *m, struct kvc_seg *seg, struct kvc_domain *d, const u8 *key, u32 length,
			 u32 depth, u32 request);
/* End of a reservation: the record counts as unlogged (commit), or not. */
void kvc_seg_end_page(struct kvc_member *m, struct kvc_seg *seg, struct kvc_entry *e, bool commit);
/* Room for a tombstone behind the record of the page @e, reserved just before; it ends, counted if it is one, first. */
void kvc_seg_reserve_beside(struct kvc_member *m, struct kvc_seg *seg, const struct kvc_entry *e);
void kvc_seg_end_beside(struct kvc_member *m, struct kvc_seg *seg, const struct kvc_entry *e, struct kvc_entry *beside);
bool kvc_seg_could_go(const struct kvc_member *m, const struct kvc_seg *seg);
bool kvc_seg_evictable(const struct kvc_member *m, const struct kvc_seg *seg);	/* and it is not leased */
bool kvc_seg_can_go(const struct kvc_member *m, const struct kvc_seg *seg);	/* and no reserve keeps it */
bool kvc_room_coming(const struct kvc_member *m);
u32 kvc_ready(const struct kvc_member *m);
struct kvc_seg *kvc_ready_take(struct kvc_member *m);
u32 kvc_avail(const struct kvc_member *m);
struct kvc_seg *kvc_move_head(const struct kvc_member *m);

/* lease.c. Who leases pages, some of them maybe in one segment */
#define KVC_LEASING_LAST	8U
struct kvc_leasing {
	struct kvc_keep *spare;
	struct kvc_keep *last[KVC_LEASING_LAST];	/* by member */
};

void kvc_leasing_prepare(struct kvc_leasing *by);
int kvc_lease_take(struct kvc_pool *p, u32 gseg, const struct kvc_domain *d, struct kvc_leasing *by,
		   struct kvc_lease *l);
void kvc_leasing_end(struct kvc_leasing *by);
bool kvc_seg_leased(struct kvc_member *m, const struct kvc_seg *seg);
struct kvc_seg *kvc_lease_next(struct kvc_member *m, bool last);
bool kvc_lease_yield(struct kvc_member *m, struct kvc_seg *seg, bool last);
bool kvc_lease_end(struct kvc_member *m, struct kvc_seg *seg);
void kvc_keeps_free(struct kvc_seg *seg);

/* room.c. May waiting help who was refused? Notes that somebody was. Member locked. */
bool kvc_member_hope(struct kvc_member *m);
int kvc_refusal(struct kvc_pool *p, u64 members);
struct kvc_seg *kvc_spilled(const struct kvc_member *m);
bool kvc_spill(struct kvc_pool *p, u64 members);	/* not locked */

/* memory.c. Member locked, but for the last two. */
struct kvc_seg *kvc_memory_victim(struct kvc_member *m);
bool kvc_memory_despair(struct kvc_member *m);
void kvc_memory_going(struct kvc_member *m, u64 bytes);
int kvc_memory_refusal(struct kvc_pool *p);
void kvc_memory_back(struct kvc_pool *p);

/* Fill the private and public fields of a load or store from an entry */
void kvc_fill_load(struct kvc_pool *p, u32 entry, struct kvc_load *ld);
void kvc_fill_store(struct kvc_pool *p, u32 entry, struct kvc_store *st);
void kvc_hold_put(struct kvc_pool *p, u32 gseg);

/* tomb.c */
struct kvc_tomb {
	struct kvc_domain *domain;
	const u8 *key;
	u64	seq;
	u32	victim;			/* gseg */
	u64	victim_gen;
};

/* As kvc_head_prepare(), for a tombstone: wherever it fits, else in a new segment as head @which */
int kvc_tomb_prepare(struct kvc_member *m, enum kvc_head which, struct kvc_seg **out);
void kvc_tomb_append(struct kvc_member *m, struct kvc_seg *seg, const struct kvc_tomb *t);
bool kvc_tomb_wanted(const struct kvc_pool *p, const struct kvc_entry *e);
u64 kvc_oldest_stale(const struct kvc_pool *p, const struct kvc_seg *victim, const struct kvc_member *without);
bool kvc_tomb_needed(const struct kvc_pool *p, const struct kvc_seg *victim, const struct kvc_member *without,
		     u64 stale, const struct kvc_entry *e);
int kvc_tomb_carry(struct kvc_member *m, enum kvc_head which, u32 entry);
bool kvc_tombs_fill(struct kvc_member *m);
int kvc_tombs_carry(struct kvc_member *m, bool leaves, int (*carry)(struct kvc_member *m, u32 entry));

/* The victim of a tombstone: 30 bits of gseg and 62 of generation, in the fields of a page */
static inline void kvc_tomb_set(struct kvc_entry *e, u32 gseg, u64 generation)
{
	e->length = generation & (BIT(28) - 1);
	e->mark = generation >> 28 & (BIT(26) - 1);
	e->crc_base = generation >> 54;
	e->block = gseg & (BIT(18) - 1);
	e->depth = gseg >> 18;
}

static inline u32 kvc_tomb_victim(const struct kvc_entry *e)
{
	return (u32)e->depth << 18 | (u32)e->block;
}

static inline u64 kvc_tomb_gen(const struct kvc_entry *e)
{
	return (u64)e->crc_base << 54 | (u64)e->mark << 28 | e->length;
}

os_static_assert(KVC_COUNTER_BITS == 28 + 26 + 8, "generation in a tombstone");
os_static_assert((u64)KVC_MEMBERS_MAX << KVC_GSEG_SHIFT <= BIT(18 + 12), "gseg in a tombstone");

void kvc_drop_bad(struct kvc_pool *p, u32 entry);

/* A key is in no entry: is it nowhere? */
static inline int kvc_not_found(const struct kvc_pool *p)
{
	return os_atomic_read(&p->nr_unknown) ? -ENODEV : -ENOENT;
}

/* summary.c */
bool kvc_member_logged(const struct kvc_member *m, u64 mark);
int kvc_summary_next(struct kvc_member *m, struct kvc_seg *seg, struct kvc_work *w);
int kvc_summary_any(struct kvc_member *m, struct kvc_work *w);
int kvc_summary_due(struct kvc_member *m, struct kvc_work *w);
void kvc_summary_done(struct kvc_member *m, struct kvc_work *w, int err);
int kvc_header_next(struct kvc_member *m, struct kvc_work *w);
void kvc_header_done(struct kvc_member *m, struct kvc_work *w, int err);

/* own.c */
u32 kvc_own_count(struct kvc_member *m, u32 slot, bool *closing);
bool kvc_own_trim(struct kvc_member *m, u32 slot);
void kvc_own_adopt(struct kvc_member *m);
bool kvc_own_ask(struct kvc_pool *p, u32 slot);
void kvc_own_unask(struct kvc_member *m, u32 slot);

/* discard.c */
void kvc_discard_done(struct kvc_member *m, struct kvc_work *w);

/* reclaim.c */
int kvc_reclaim_next(struct kvc_member *m, struct kvc_work *w);
void kvc_move_done(struct kvc_member *m, struct kvc_work *w, int err);
void kvc_victim_let_go(struct kvc_member *m);
int kvc_victim_evict(struct kvc_member *m);
int kvc_victim_finish(struct kvc_member *m);
int kvc_move_start(struct kvc_member *m, enum kvc_head which, u32 entry, u32 length, struct kvc_work *w);

/* return.c */
int kvc_return_carry(struct kvc_member *m);

/* leave.c */
int kvc_leave_next(struct kvc_member *m, struct kvc_work *w);

#endif
