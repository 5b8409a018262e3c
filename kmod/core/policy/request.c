// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Requests: whose prompt a page belongs to, as far as it can be seen.
 *
 * MATCH names the keys of a prompt in prefix order, so each MATCH is taken for a request: the pages it finds become
 * that request's, and so do the pages it misses once they are stored. A page belongs to the last request that asked
 * for it. Pages that no MATCH asked for are strays: they belong to a request of all that are stored or loaded at the
 * time. So do pages that are loaded long after the MATCH that found them, or that waited for them: somebody wants them
 * who does not ask by MATCH.
 *
 * A request continues an earlier one when that one's tail, its last key but one, is the deepest tail among its keys:
 * the last page of a prompt is seldom full, and is replaced when the conversation grows. An earlier request with more
 * than one continuation is a shared prefix and says nothing about conversations. Pages that are found by other requests
 * than the next turn are shared, and that is counted with them.
 *
 * What is kept, all of it bounded and none of it on media: a ring of requests; a table of the tails, which leads from
 * a key's hash to the latest request that has it as its tail; a table of awaited keys, which leads from the hash of a
 * key that was missed to the request. Of both the oldest are forgotten, but who fills a table forgets its own: no
 * tenant has more than half of a set at the cost of others. A wrong hash or a request that was forgotten costs the
 * pages their value (value.c), nothing else.
 *
 * requests->lock guards the ring and the counters. The tables are read and written without, so is a request's reach.
 */
#include "index/index.h"

#define SAMPLED_SHARDS	8U	/* one of so many is looked at */

#define REQUEST_BYTES	(16U << 20)	/* of capacity for each request of the ring */
#define REQUESTS_FEW	(16U << 10)	/* as long as each page of a small pool may be another request's */
#define REQUESTS_MIN	64U
#define REQUESTS_MAX	(256U << 10)
#define PAGE_BYTES	(64U << 10)	/* of a small page */
#define AWAITED_MAX	(64U << 10)	/* keys of requests between MATCH and STORE */
#define WAYS		4U		/* of a table's set */
#define TURNS_MAX	8U
#define ANCHORED	8U		/* pages of a request that has an anchor */
#define AT_ONCE		32U	/* keys hashed, then looked up among the tails */
#define LATELY		128U		/* a part of the capacity */
#define AGE_MIN		(KVC_AGE_UNITS / 128)	/* of a request that is not just asked twice */

static u32 power_of_two(u64 n)
{
	u32 p = 1;

	while (p < n)
		p *= 2;
	return p;
}

int kvc_requests_init(struct kvc_pool *p)
{
	struct kvc_requests *rq = &p->requests;
	u64 pages = max_t(u64, kvc_capacity(p) / PAGE_BYTES, REQUESTS_MIN);
	u64 want = max_t(u64, kvc_capacity(p) / REQUEST_BYTES, min_t(u64, pages, REQUESTS_FEW));
	u32 nr = power_of_two(min_t(u64, want, REQUESTS_MAX));

	os_lock_init(&rq->lock);
	rq->nr_tails = 2 * nr;
	rq->nr_awaited = power_of_two(min_t(u64, pages, AWAITED_MAX));
	rq->ring = os_zalloc(sizeof(*rq->ring) * nr);
	rq->tails = os_zalloc(sizeof(*rq->tails) * rq->nr_tails);
	rq->awaited = os_zalloc(sizeof(*rq->awaited) * rq->nr_awaited);
	rq->values = kvc_values_new();
	if (!rq->ring || !rq->tails || !rq->awaited || !rq->values) {
		kvc_requests_destroy(p);
		return -ENOMEM;
	}
	rq->nr = nr;
	kvc_requests_resize(p);
	kvc_request_strays(p);
	return 0;
}

void kvc_requests_destroy(struct kvc_pool *p)
{
	struct kvc_requests *rq = &p->requests;

	os_free(rq->ring);
	os_free(rq->tails);
	os_free(rq->awaited);
	os_free(rq->values);
	memset(rq, 0, sizeof(*rq));
}

/* The pool's clock: blocks stored since attach. Nobody needs it exactly. */
u64 kvc_clock(const struct kvc_pool *p)
{
	u32 nr = kvc_nr_members(p), i;
	u64 bytes = 0;

	for (i = 0; i < nr; i++)
		bytes += READ_ONCE(p->members[i].store_bytes);
	return bytes >> KVC_BLOCK_SHIFT;
}

/* The capacity is another one. */
void kvc_requests_resize(struct kvc_pool *p)
{
	WRITE_ONCE(p->requests.capacity, max_t(u64, kvc_capacity(p) >> KVC_BLOCK_SHIFT, 1));
}

/* A part of the capacity, 0 to KVC_AGE_MAX */
static u32 age_of(const struct kvc_pool *p, u64 when, u64 now)
{
	u64 age = now > when ? now - when : 0;

	return (u32)min_t(u64, age * KVC_AGE_UNITS / READ_ONCE(p->requests.capacity), KVC_AGE_MAX);
}

static u64 *set_of(u64 *table, u32 nr, u32 hash)
{
	return table + (hash & (nr / WAYS - 1)) * WAYS;
}

static u32 tenant_of(u64 at)
{
	return (u32)at >> KVC_ID_BITS;
}

/* Whose place in a full set @tenant takes: of its own oldest, if it has half of them, or the oldest of who has most */
static u32 oldest(const u64 *at, u32 tenant)
{
	u32 found = 0, most = 0, i, j, n;

	for (i = 0; i < WAYS; i++) {
		for (n = 0, j = 0; j < WAYS; j++)
			n += tenant_of(at[j]) == tenant_of(at[i]);
		if (tenant_of(at[i]) == tenant && n >= WAYS / 2)
			n = WAYS;
		if (n >= most) {
			most = n;
			found = i;
		}
	}
	return found;
}

/* In front of the others of its set; one of a full set is forgotten. */
static void put(u64 *table, u32 nr, u32 hash, const struct kvc_asker *a)
{
	u64 *set = set_of(table, nr, hash), at[WAYS];
	u32 i;

	for (i = 0; i < WAYS; i++) {
		at[i] = READ_ONCE(set[i]);
		if (!at[i] || at[i] >> 32 == hash)
			break;
	}
	if (i == WAYS)
		i = oldest(at, a->tenant);
	for (; i; i--)
		WRITE_ONCE(set[i], at[i - 1]);
	WRITE_ONCE(set[0], (u64)hash << 32 | (u64)a->tenant << KVC_ID_BITS | a->id);
}

/* The id put there for the hash, or 0 */
static u32 look_up(u64 *table, u32 nr, u32 hash)
{
	u64 *set = set_of(table, nr, hash), at;
	u32 i;

	for (i = 0; i < WAYS; i++) {
		at = READ_ONCE(set[i]);
		if (at >> 32 == hash)
			return kvc_mark_id((u32)at);
	}
	return 0;
}

/* NULL when it was forgotten. Locked, unless the caller knows better. */
static os_racy struct kvc_request *get(struct kvc_requests *rq, u32 id)
{
	struct kvc_request *r = &rq->ring[id & (rq->nr - 1)];

	return id && READ_ONCE(r->id) == id ? r : NULL;
}

/* A page that the request named is there. Locked. */
static void reaches(struct kvc_request *r, u32 depth)
{
	if (depth <= r->pages)
		r->reach = max(r->reach, depth);
}

/* In the place of the oldest one. Locked. */
static struct kvc_request *add(struct kvc_requests *rq, u32 kind, u64 now)
{
	struct kvc_request *r;
	u32 id;

	rq->last_id = (rq->last_id + 1) % KVC_STRAY;
	if (!rq->last_id)
		rq->last_id = 1;
	id = rq->last_id;
	r = &rq->ring[id & (rq->nr - 1)];
	*r = (struct kvc_request){
		.id = id | kind,
		.cut = U32_MAX,
		.turn = 1,
		.when = now,
	};
	return r;
}

static u64 strays_stored(const struct kvc_pool *p)
{
	u32 nr = kvc_nr_members(p), i;
	u64 strays = 0;

	for (i = 0; i < nr; i++)
		strays += READ_ONCE(p->members[i].strays);
	return strays;
}

/* From now on strays belong to another request: this tells old ones from new ones. */
void kvc_request_strays(struct kvc_pool *p)
{
	struct kvc_requests *rq = &p->requests;
	u64 now = kvc_clock(p), strays = strays_stored(p);
	struct kvc_request *r;

	os_lock(&rq->lock);
	if (strays > rq->strays) {
		kvc_values_strays(rq->values, (u32)(strays - rq->strays));
		rq->strays = strays;
	}
	r = get(rq, rq->stray);
	if (!r || r->when != now) {
		r = add(rq, KVC_STRAY, now);
		r->class = KVC_CLASS_STRAY;
		WRITE_ONCE(rq->stray, r->id);
		WRITE_ONCE(rq->lately, now - min(now, READ_ONCE(rq->capacity) / LATELY));
	}
	os_unlock(&rq->lock);
}

static u32 hash_of(const struct kvc_pool *p, const struct kvc_domain *d, const u8 keys[][KVC_KEY_LEN],
		   const struct kvc_asker *a, u32 i)
{
	if (i == a->pages - 1)
		return a->last;
	return i == a->pages - 2 ? a->tail : kvc_bucket(p, d, keys[i]);
}

/*
 * The depth of a request's anchor, 0: it has none. An eighth or more of the prompt is behind it, and it has three
 * significant bits, so that prompts of about one length have theirs at one depth.
 */
static u32 anchor_of(u32 pages)
{
	u32 depth = pages - pages / 8 - 1, step = 1;

	if (pages < ANCHORED)
		return 0;
	while (depth / step >= 8)
		step *= 2;
	return depth - depth % step;
}

/* The deepest key of a prompt that is a tail or an anchor */
struct found_tail {
	u32	depth, hash;
	u32	behind;			/* hash of the key behind it */
};

/*
 * The id put for it, or 0: that of the latest turn. Most often it is one of the last two keys; else many are looked up
 * at a time, which takes no longer than one.
 */
static u32 deepest_tail(struct kvc_pool *p, const struct kvc_domain *d, const u8 keys[][KVC_KEY_LEN],
			const struct kvc_asker *a, struct found_tail *f)
{
	struct kvc_requests *rq = &p->requests;
	u32 hash[AT_ONCE], left = a->pages, nr = min(left, 2U), id, i;

	for (; left; left -= nr, nr = min(left, AT_ONCE)) {
		for (i = 0; i < nr; i++) {
			hash[i] = hash_of(p, d, keys, a, left - 1 - i);
			os_prefetch(set_of(rq->tails, rq->nr_tails, hash[i]));
		}
		for (i = 0; i < nr; i++) {
			id = look_up(rq->tails, rq->nr_tails, hash[i]);
			if (id) {
				f->depth = left - i;
				f->hash = hash[i];
				return id;
			}
			f->behind = hash[i];
		}
		os_relax();
	}
	return 0;
}

/* The same prompt once more, as it is asked for again and again. Locked. */
static void repeat(const struct kvc_pool *p, struct kvc_request *r, struct kvc_asker *a, u64 now)
{
	a->class = r->class;
	a->age = age_of(p, r->when, now);
	a->repeated = a->age >= AGE_MIN;
	a->branch = a->repeated;
	if (a->repeated)
		r->gap = a->age;
	r->when = now;
	r->cut = U32_MAX;
	a->id = r->id;
}

/* Is this the next turn of the conversation that @prev was the last turn of? Locked. */
static void go_on(const struct kvc_pool *p, struct kvc_request *r, struct kvc_request *prev, struct kvc_asker *a,
		  const struct found_tail *f)
{
	bool by_tail = f->hash == prev->tail, whole = prev->pages == 1 || prev->last == f->behind;

	a->fresh = a->pages - f->depth;
	/* who goes on from the same key next goes on from this one, which has the pages now */
	if (!by_tail || f->depth >= ANCHORED)
		put(p->requests.tails, p->requests.nr_tails, f->hash, a);
	/* of an earlier one that had more behind what both have only a part is back */
	if (!by_tail && f->depth < anchor_of(prev->pages))
		return;
	if (r->tail != prev->tail && prev->continued < 2)
		prev->continued++;
	if (prev->continued > 1)
		return;
	a->branch = !by_tail;
	r->turn = (u8)min(prev->turn + 1U, TURNS_MAX);
	r->gap = age_of(p, prev->when, r->when);
	kvc_values_returned(p->requests.values, prev->class, r->gap, whole);
}

/* Before the keys are looked up */
void kvc_request_begin(struct kvc_pool *p, const struct kvc_domain *d, const u8 keys[][KVC_KEY_LEN], u32 nr,
		       struct kvc_asker *a)
{
	struct kvc_requests *rq = &p->requests;
	struct kvc_request *r, *prev;
	u64 now = kvc_clock(p);
	struct found_tail f = { 0 };
	u32 id;

	a->tenant = d->slot;
	a->pages = nr;
	a->fresh = nr;
	a->branch = true;
	a->last = kvc_bucket(p, d, keys[nr - 1]);
	a->tail = nr > 1 ? kvc_bucket(p, d, keys[nr - 2]) : a->last;
	id = deepest_tail(p, d, keys, a, &f);
	os_lock(&rq->lock);
	prev = get(rq, id);
	if (prev && prev->pages == nr && prev->tail == a->tail && prev->last == a->last) {
		repeat(p, prev, a, now);
		a->same = true;
	} else {
		r = add(rq, 0, now);
		r->pages = nr;
		r->tail = a->tail;
		r->last = a->last;
		r->class = (u8)kvc_class(1, nr);
		a->id = r->id;
		if (prev && prev != r)
			go_on(p, r, prev, a, &f);
	}
	os_unlock(&rq->lock);
}

/* A page was found. Neighbours of one class of shared pages are a row, which counts once. */
u32 kvc_request_asks(struct kvc_asker *a, u32 mark)
{
	u32 shared = kvc_mark_id(mark) & KVC_STRAY ? 0 : kvc_mark_shared(mark), class;

	if (++a->asked == max(a->pages, 2U) - 1)
		a->tail_shared = shared;
	class = shared ? kvc_class_shared(shared) : a->back_run;
	if (class != a->back_run)
		a->back[class - KVC_CLASS_SHARED]++;
	a->back_run = class;
	if (a->branch && shared < KVC_SHARED_MAX)
		shared++;
	class = shared ? kvc_class_shared(shared) : a->seen_run;
	if (class != a->seen_run)
		a->seen[class - KVC_CLASS_SHARED]++;
	a->seen_run = class;
	return kvc_mark(a->id, shared);
}

/* What the request is known to be once @found is known. Locked. */
static void classify(struct kvc_requests *rq, struct kvc_asker *a, u32 found)
{
	struct kvc_request *r = get(rq, a->id);

	kvc_values_shared(rq->values, a->back, a->seen);
	if (a->repeated && !a->tail_shared) {
		kvc_values_returned(rq->values, a->class, a->age, true);
		kvc_values_seen(rq->values, a->class);
	}
	if (r)
		reaches(r, found);
	if (a->same || !r)
		return;
	if (r->turn == 1)
		a->fresh = min(a->fresh, a->pages - found);
	r->class = (u8)kvc_class(r->turn, a->fresh);
	kvc_values_seen(rq->values, r->class);
	if (a->anchored)
		put(rq->tails, rq->nr_tails, a->anchor, a);
	put(rq->tails, rq->nr_tails, a->tail, a);
}

/* @found of the keys were found, those of @present, or the first ones if that is NULL. The others are awaited. */
void kvc_request_end(struct kvc_pool *p, const struct kvc_domain *d, const u8 keys[][KVC_KEY_LEN], u32 found,
		     const u64 *present, struct kvc_asker *a)
{
	struct kvc_requests *rq = &p->requests;
	u32 anchor = anchor_of(a->pages), i;

	if (anchor)
		a->anchor = kvc_bucket(p, d, keys[anchor - 1]);
	a->anchored = anchor;
	for (i = present ? 0 : found; i < a->pages; i++) {
		if (present && present[i / 64] & BIT_ULL(i % 64))
			continue;
		put(rq->awaited, rq->nr_awaited, kvc_bucket(p, d, keys[i]), a);
		if (i % 1024 == 1023)
			os_relax();
	}
	os_lock(&rq->lock);
	classify(rq, a, found);
	os_unlock(&rq->lock);
}

/* The request that a page of this hash, which is not here, is stored for */
u32 kvc_request_awaits(const struct kvc_pool *p, u32 hash)
{
	const struct kvc_requests *rq = &p->requests;
	u32 id = look_up(rq->awaited, rq->nr_awaited, hash);

	return id ? id : READ_ONCE(rq->stray);
}

/*
 * A page is stored for a request, but is there: it becomes that one's, unless a later one has it. A stray that nobody
 * asked for by MATCH is as new as if it had been stored. Shard locked.
 */
void kvc_request_claims(struct kvc_pool *p, struct kvc_entry *e, u32 id)
{
	struct kvc_requests *rq = &p->requests;
	u32 old = kvc_mark_id(e->mark);
	struct kvc_request *r;

	if (!id)
		return;
	if (id & KVC_STRAY) {
		if (!old || old & KVC_STRAY)
			e->mark = kvc_mark(id, old ? kvc_mark_shared(e->mark) : 0);
		return;
	}
	os_lock_inner(&rq->lock);
	r = get(rq, id);
	if (r)
		reaches(r, kvc_known_depth(e));
	os_unlock_inner(&rq->lock);
	if (!old || old & KVC_STRAY || (id - old) % KVC_STRAY < KVC_STRAY / 2)
		e->mark = kvc_mark(id, old & KVC_STRAY ? 0 : kvc_mark_shared(e->mark));
}

/* Without the lock: a request that takes another's place meanwhile gives another age. */
os_racy u32 kvc_request_age(struct kvc_pool *p, u32 id, u64 now)
{
	const struct kvc_request *r = get(&p->requests, id);

	return r ? age_of(p, READ_ONCE(r->when), now) : U32_MAX;
}

/* Was the page asked for by a MATCH just now? Without the lock: another request in its place was later, too. */
static os_racy bool matched_lately(struct kvc_requests *rq, u32 id)
{
	const struct kvc_request *r = id & KVC_STRAY ? NULL : get(rq, id);

	return r && READ_ONCE(r->when) >= READ_ONCE(rq->lately);
}

/* A stray was loaded, and is of another class from now on: by its marks. */
static void count_load(struct kvc_requests *rq, u32 before, u32 mark)
{
	os_lock_inner(&rq->lock);
	if (get(rq, kvc_mark_id(before)) && get(rq, kvc_mark_id(mark)))
		kvc_values_loaded(rq->values, kvc_class_stray(before), kvc_class_stray(mark), SAMPLED_SHARDS);
	os_unlock_inner(&rq->lock);
}

/*
 * The page is loaded, by whomever. Most often nothing is to be done: it was not long ago, or a MATCH asked for it then.
 * Pages of some shards are counted for those of all: a LOAD should not have to take a lock of the pool. Shard locked.
 */
void kvc_request_loads(struct kvc_pool *p, struct kvc_entry *e, u32 bucket)
{
	struct kvc_requests *rq = &p->requests;
	u32 id = kvc_mark_id(e->mark), now = READ_ONCE(rq->stray), loads = 0;

	if (id & KVC_STRAY)
		loads = kvc_mark_shared(e->mark);
	if ((id == now && loads) || matched_lately(rq, id))
		return;
	e->mark = kvc_mark(now, min(loads + 1, KVC_SHARED_MAX));
	if (id & KVC_STRAY && bucket % SAMPLED_SHARDS == 0)
		count_load(rq, kvc_mark(id, loads), e->mark);
}

/* A copy of the request, unless it was forgotten */
bool kvc_request_get(struct kvc_pool *p, u32 id, struct kvc_request *out)
{
	struct kvc_requests *rq = &p->requests;
	struct kvc_request *r;

	os_lock(&rq->lock);
	r = get(rq, id);
	if (r)
		*out = *r;
	os_unlock(&rq->lock);
	return r;
}

/*
 * A new page is stored for a request: is it for the long-lived? No stray, nor the end of a prompt, which is replaced
 * when the prompt grows. Without the lock: another request may take the place meanwhile, and reaches too far then.
 */
os_racy bool kvc_request_lasts(struct kvc_pool *p, u32 id, u32 depth)
{
	struct kvc_request *r = get(&p->requests, id & KVC_STRAY ? 0 : id);
	u32 pages;

	if (!r)
		return false;
	pages = READ_ONCE(r->pages);
	if (depth <= pages && depth > READ_ONCE(r->reach))
		WRITE_ONCE(r->reach, depth);
	return pages < 2 || depth != pages || kvc_ends_return(p->requests.values);
}

/* A page is gone: those behind it are worth nothing. */
void kvc_request_lost(struct kvc_pool *p, u32 id, u32 depth)
{
	struct kvc_requests *rq = &p->requests;
	struct kvc_request *r;

	if (!depth || !id || id & KVC_STRAY)
		return;
	os_lock_inner(&rq->lock);
	r = get(rq, id);
	if (r)
		r->cut = min(r->cut, depth);
	os_unlock_inner(&rq->lock);
}

/* Of a class of shared pages, or the request's own */
u32 kvc_request_worth(const struct kvc_pool *p, const struct kvc_request *r, u32 class, u64 now)
{
	u32 age = age_of(p, r->when, now);

	return max(kvc_worth(p->requests.values, class, age), kvc_worth_again(r->gap, age));
}

void kvc_page_lose(struct kvc_pool *p, u32 bucket, u32 entry)
{
	const struct kvc_entry *e = kvc_entry(p, entry);

	kvc_request_lost(p, kvc_mark_id(e->mark), kvc_known_depth(e));
	kvc_page_drop(p, bucket, entry);
}

bool kvc_page_evict(struct kvc_pool *p, u32 entry, const struct os_atomic *leases)
{
	u32 bucket = kvc_entry_bucket(p, entry);
	struct kvc_shard *sh = kvc_shard(p, bucket);
	bool leaves;

	os_lock(&sh->lock);
	leaves = kvc_entry(p, entry)->state == KVC_E_LIVE && (!leases || !os_atomic_read(leases));
	if (leaves) {
		struct kvc_domain *d = kvc_domain(p, kvc_entry(p, entry)->domain);

		os_trace(page_evicted, p->super.pool_name, d->slot, kvc_entry_seg(p, entry)->member,
			 kvc_gseg_local(kvc_gseg(p, kvc_entry_seg(p, entry))), -1, (u32)kvc_entry(p, entry)->length, 0);
		kvc_page_lose(p, bucket, entry);
		if (!READ_ONCE(d->dead)) {
			kvc_budget_note(p, d, kvc_entry(p, entry)->key);
			sh->evicted++;
			os_atomic64_add(&(p->accounts + d->slot)->evicted, 1);
			kvc_event(p, d, KVC_EVENT_EVICTED, kvc_entry(p, entry));
		}
	}
	os_unlock(&sh->lock);
	return leaves;
}
