/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * What pages are worth: request.c says whose they are, value.c what that is worth,
 * victim.c which segment goes; quota.c whose may, budget.c which stores are worth a write. Included by engine.h, which
 * has the locks.
 *
 * By the floors of engine.h it calls the index, and of the log what tells of segments and tombstones (segment.c,
 * tomb.c); nothing of the format. The log does what is decided here.
 *
 * Vocabulary
 *   request	a prompt, as MATCH named its keys; has an id
 *   mark	in a page's entry: the id of its request, and how often the page was shared, or, a stray, loaded
 *   stray	a page that no MATCH asked for lately, and the request of all such pages that were stored or loaded
 *		at one time
 *   class	of requests, or of shared pages: what returns are counted for
 *   part	the pages of a segment that are of one request and one class
 */
#ifndef KVC_POLICY_H
#define KVC_POLICY_H

#include "core.h"

struct kvc_bucket;
struct kvc_budget;
struct kvc_domain;
struct kvc_entry;
struct kvc_member;
struct kvc_seg;
struct kvc_values;

/* request.c */
#define KVC_ID_BITS		22U		/* of a page's mark; above it is how often the page was shared */
#define KVC_STRAY		BIT(21)		/* in an id: no MATCH asked for it */
#define KVC_SHARED_MAX		15U
#define KVC_CLASS_SHARED	16U		/* the first of KVC_SHARED_CLASSES; those before are of requests */
#define KVC_SHARED_CLASSES	4U
#define KVC_CLASS_STRAY		20U
#define KVC_CLASS_LOADED	21U		/* the first of those of strays that were loaded */
#define KVC_STRAY_CLASSES	5U
#define KVC_CLASSES		25U
#define KVC_AGE_UNITS		4096U		/* of an age: the time in which the capacity is written once */
#define KVC_AGE_MAX		(1U << 20)

struct kvc_request {
	u32	id;
	u32	pages;			/* keys of the prompt */
	u32	reach;			/* depth of the deepest page that was found or stored */
	u32	cut;			/* lowest depth of a page that was lost since, U32_MAX: none was */
	u32	tail, last;		/* hashes of the last key but one, or of the only one, and of the last */
	u32	gap;			/* the age at which the one before returned, 0: none did */
	u8	class, turn;
	u8	continued;		/* by so many requests, at most 2 */
	u64	when;			/* on the pool's clock */
};

struct kvc_requests {
	struct os_lock lock;
	u32	nr;			/* of the ring, a power of two */
	u32	nr_tails, nr_awaited;	/* powers of two */
	u32	last_id;
	u64	capacity;		/* blocks; read without the lock */
	u32	stray;			/* id of the strays of now; read without the lock */
	u64	strays;			/* stored, that were counted */
	u64	lately;			/* on the clock: since when a MATCH was just now; read without the lock */
	struct kvc_request *ring;
	u64	*tails, *awaited;
	struct kvc_values *values;
};

/* A MATCH on its way */
struct kvc_asker {
	u32	id, pages, tail, last;	/* of the request */
	u32	tenant;			/* slot */
	u32	anchor;			/* hash of a key of other prompts, which go on from the middle of this one */
	bool	anchored;
	bool	same;			/* the same keys as the request had before */
	bool	repeated;		/* and at another time */
	bool	branch;			/* not the next turn of a conversation: the pages found are shared */
	bool	tail_shared;		/* the page of the tail already was */
	u32	fresh;			/* pages that are new since the turn before */
	u32	class, age;		/* repeated: of the last time */
	u32	asked;			/* pages found */
	u32	back_run, seen_run;	/* class of the last shared page, before and now */
	u32	back[KVC_SHARED_CLASSES], seen[KVC_SHARED_CLASSES];
};

os_static_assert(KVC_ID_BITS + 4 == 26, "bits of a mark");
os_static_assert(KVC_TENANTS_MAX <= 1U << (32 - KVC_ID_BITS), "with an id in a table");

static inline u32 kvc_mark_id(u32 mark)
{
	return mark & (BIT(KVC_ID_BITS) - 1);
}

static inline u32 kvc_mark_shared(u32 mark)
{
	return mark >> KVC_ID_BITS;
}

static inline u32 kvc_mark(u32 id, u32 shared)
{
	return shared << KVC_ID_BITS | id;
}

/* victim.c */
#define KVC_PARTS		64U
#define KVC_BINS		48U		/* of ages */
#define KVC_GROUP		64U		/* segments that share an entry of m->floors */
#define KVC_CREDIT		5U		/* a fifth of what is stored may be rewritten */
#define KVC_CREDIT_SEGMENTS	4U		/* and is saved up to so many segments */

struct kvc_part {
	u32	id, own_class;		/* the request, and its class */
	u32	class;			/* that of the shared pages that these are, or 0 */
	u32	worth, own;		/* the value of a block here, and of those of the request behind */
	u64	gain;			/* of moving a block: its value, and some of those behind */
	u8	bin;			/* of a stray's age */
	bool	fresh;			/* strays that were loaded since the capacity was written once */
	bool	rest;			/* stands for all that found no part any more */
	u32	first, last;		/* lowest depth here, U32_MAX: unknown; deepest */
	u32	end;			/* the deepest of the request that has all before it */
	u32	tail;			/* depth of the last page, which does not come back; or 0 */
	u32	pages, blocks;		/* here, that are worth something */
	u32	moved;			/* of these, by the plan, from the first on */
};

struct kvc_survey {
	u64	bytes[KVC_TENANTS_MAX];	/* of the victim's pages that go, while they do */
	u64	now;
	u64	stale;			/* older tombstones are not needed, but for what they name */
	bool	stale_known;
	u32	tombs;			/* that must be carried */
	bool	ends;			/* ends of prompts come back */
	u32	nr;
	struct kvc_part part[KVC_PARTS];
	u8	strays[KVC_STRAY_CLASSES][KVC_BINS];	/* 1 + number of their part, 0: none yet */
	u32	next;			/* segment to be surveyed in turn */
	u32	rounds;			/* of all segments */
	u64	least;			/* what the last one cost that went */
	bool	begun;
};

/* request.c. get: inner lock held or not; the others with no lock but for lost, under a shard's. */
int kvc_requests_init(struct kvc_pool *p);
void kvc_requests_destroy(struct kvc_pool *p);
void kvc_requests_resize(struct kvc_pool *p);
u64 kvc_clock(const struct kvc_pool *p);
void kvc_request_strays(struct kvc_pool *p);
void kvc_request_begin(struct kvc_pool *p, const struct kvc_domain *d, const u8 keys[][KVC_KEY_LEN], u32 nr,
		       struct kvc_asker *a);
void kvc_request_end(struct kvc_pool *p, const struct kvc_domain *d, const u8 keys[][KVC_KEY_LEN], u32 found,
		     const u64 *present, struct kvc_asker *a);
u32 kvc_request_awaits(const struct kvc_pool *p, u32 hash);
u32 kvc_request_asks(struct kvc_asker *a, u32 mark);	/* the mark of a page found, in order */
bool kvc_request_get(struct kvc_pool *p, u32 id, struct kvc_request *out);
void kvc_request_claims(struct kvc_pool *p, struct kvc_entry *e, u32 id);
bool kvc_request_lasts(struct kvc_pool *p, u32 id, u32 depth);
void kvc_request_lost(struct kvc_pool *p, u32 id, u32 depth);
void kvc_page_lose(struct kvc_pool *p, u32 bucket, u32 entry);	/* leaves the index, not replaced; shard locked */
/* Unless it is leased, if @leases of its segment are given: a lease is taken with the shard's lock. Did it leave? */
bool kvc_page_evict(struct kvc_pool *p, u32 entry, const struct os_atomic *leases);
void kvc_request_loads(struct kvc_pool *p, struct kvc_entry *e, u32 bucket);
u32 kvc_request_age(struct kvc_pool *p, u32 id, u64 now);	/* U32_MAX: forgotten */
u32 kvc_request_worth(const struct kvc_pool *p, const struct kvc_request *r, u32 class, u64 now);

/* value.c. seen, returned: requests locked */
struct kvc_values *kvc_values_new(void);		/* allocates */
void kvc_values_seen(struct kvc_values *v, u32 class);
void kvc_values_returned(struct kvc_values *v, u32 class, u32 age, bool whole);
void kvc_values_strays(struct kvc_values *v, u32 stored);
void kvc_values_loaded(struct kvc_values *v, u32 class, u32 next, u32 weight);
void kvc_values_shared(struct kvc_values *v, const u32 *back, const u32 *seen);
void kvc_values_refresh(struct kvc_pool *p);
u32 kvc_class(u32 turn, u32 fresh);
u32 kvc_class_shared(u32 shared);
u32 kvc_class_stray(u32 mark);
u32 kvc_bin_of(const struct kvc_values *v, u32 age);
u32 kvc_worth(const struct kvc_values *v, u32 class, u32 age);
u32 kvc_worth_again(u32 gap, u32 age);
bool kvc_ends_return(const struct kvc_values *v);

/* victim.c */
void kvc_move_credit(struct kvc_member *m, u32 stored);
u32 kvc_move_budget(const struct kvc_member *m);
u32 kvc_victim_floors(u32 nr_segs);
void kvc_victim_cost(struct kvc_member *m, u32 n, u64 cost);
bool kvc_victim_may_be(const struct kvc_member *m, const struct kvc_seg *seg);
struct kvc_seg *kvc_victim_choose(struct kvc_member *m);
void kvc_victim_plan(struct kvc_member *m, struct kvc_seg *seg);
bool kvc_victim_keeps(const struct kvc_member *m, const struct kvc_entry *e);

/* quota.c */
u32 kvc_quota_keepable(const struct kvc_member *m);
bool kvc_quota_plan(struct kvc_pool *p);
void kvc_quota_replan(struct kvc_pool *p);
bool kvc_quota_full(const struct kvc_pool *p, u32 slot);
bool kvc_quota_beyond(const struct kvc_pool *p, u32 slot, u32 length);
bool kvc_quota_over(const struct kvc_pool *p, u32 slot);
bool kvc_quota_keeps(const struct kvc_pool *p, const struct kvc_seg *seg);
bool kvc_quota_guards(const struct kvc_pool *p, const struct kvc_seg *victim, u32 slot);
bool kvc_quota_leave(struct kvc_pool *p, const struct kvc_seg *victim, const struct kvc_survey *sv, u32 whose);
void kvc_quota_left(struct kvc_pool *p, const struct kvc_survey *sv);
u32 kvc_quota_head(const struct kvc_pool *p, u32 slot, u32 shared);
u64 kvc_quota_some_homes(const struct kvc_pool *p, u32 slot, u64 members);
void kvc_quota_seg(struct kvc_member *m, u32 slot, bool goes);	/* one of its own; member locked */
void kvc_quota_pend_own(struct kvc_pool *p, const struct kvc_seg *seg, u32 length, bool ends);

/* budget.c */
void kvc_budget_init(struct kvc_budget *b);
void kvc_budget_destroy(struct kvc_budget *b);
void kvc_budget_limit(struct kvc_pool *p, struct kvc_bucket *k, u64 per_day);
int kvc_budget_remember(struct kvc_pool *p);		/* allocates */
void kvc_budget_note(struct kvc_pool *p, const struct kvc_domain *d, const u8 *key);
bool kvc_budget_admits(struct kvc_pool *p, const struct kvc_domain *d, const u8 *key);
void kvc_budget_charge(struct kvc_pool *p, const struct kvc_domain *d, u64 bytes);

#endif
