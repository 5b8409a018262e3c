// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * The write budget: bytes a day that may be written, pages and the engine's own structures, moved or new. Past it only
 * pages that were seen before are stored.
 *
 * It is a bucket that holds one day's bytes and is filled evenly over the day, full in the beginning: what was not
 * written yesterday may be written today, not what was left of the day before. Admitted pages and reclaim may overdraw
 * it, by another day's bytes at most; that is paid back before a new page is admitted.
 *
 * A tenant may have a bucket of its own beside the pool's: of what its stores write, also where that comes to nothing;
 * who moves its pages later spends the pool's. A page is stored when neither is empty.
 *
 * Seen before are the keys that were refused, or evicted, lately: a table of fingerprints in small sets, newest first.
 * It is read and written without a lock. Two keys of one fingerprint, or one that a race has lost, cost a page admitted
 * or refused, nothing more.
 *
 * The engine has no clock: the caller tells the time in seconds, from any origin, at most going forward.
 *
 * budget->lock is innermost, and guards all buckets: left is changed by everybody, the rest under the lock; per_day may
 * be read without.
 */
#include "index/index.h"

#define DAY		86400U		/* seconds */
#define WAYS		8U		/* fingerprints of a set */
#define SETS_MIN	1024U
#define SETS_MAX	(256U << 10)

static s64 left(const struct kvc_bucket *k)
{
	return (s64)os_atomic64_read(&k->left);
}

static void spend(struct kvc_bucket *k, u64 bytes)
{
	if (READ_ONCE(k->per_day))
		os_atomic64_sub(&k->left, bytes);
}

static bool is_spent(const struct kvc_bucket *k)
{
	return READ_ONCE(k->per_day) && left(k) <= 0;
}

void kvc_budget_init(struct kvc_budget *b)
{
	os_lock_init(&b->lock);
}

void kvc_budget_destroy(struct kvc_budget *b)
{
	os_free(b->seen);
}

/* Fill for @seconds of the day; part carries what is less than a byte. Locked. */
static void fill(struct kvc_bucket *k, u64 seconds)
{
	u64 limit = k->per_day, more;
	s64 n = left(k);

	if (!limit)
		return;
	seconds = min_t(u64, seconds, 2 * DAY);
	k->part += seconds * (limit % DAY);
	more = seconds * (limit / DAY) + k->part / DAY;
	k->part %= DAY;
	if (n < -(s64)limit)
		os_atomic64_add(&k->left, (u64)(-(s64)limit - n));
	n = max_t(s64, n, -(s64)limit);
	os_atomic64_add(&k->left, (u64)min_t(s64, (s64)more, (s64)limit - n));
}

void kvc_budget_tick(struct kvc_pool *p, u64 now)
{
	struct kvc_budget *b = &p->budget;
	u32 i;

	if (READ_ONCE(b->started) && now <= READ_ONCE(b->now))
		return;
	os_lock(&b->lock);
	if (b->started && now > b->now) {
		fill(&b->pool, now - b->now);
		for (i = 0; i < KVC_TENANTS_MAX; i++)
			fill(&p->accounts[i].budget, now - b->now);
	}
	if (!b->started || now > b->now)
		WRITE_ONCE(b->now, now);
	WRITE_ONCE(b->started, true);
	os_unlock(&b->lock);
}

/* What was spent of the old one today counts against the new one. */
void kvc_budget_limit(struct kvc_pool *p, struct kvc_bucket *k, u64 per_day)
{
	if (READ_ONCE(k->per_day) == per_day)
		return;
	os_lock(&p->budget.lock);
	if (k->per_day && per_day)
		os_atomic64_add(&k->left, per_day - k->per_day);
	else
		os_atomic64_set(&k->left, per_day);
	k->part = 0;
	WRITE_ONCE(k->per_day, per_day);
	os_unlock(&p->budget.lock);
}

void kvc_budget_spend(struct kvc_pool *p, u64 bytes)
{
	spend(&p->budget.pool, bytes);
}

static u64 bytes_left(const struct kvc_bucket *k)
{
	return READ_ONCE(k->per_day) ? (u64)max_t(s64, left(k), 0) : 0;
}

u64 kvc_budget_left(const struct kvc_pool *p)
{
	return bytes_left(&p->budget.pool);
}

u64 kvc_tenant_budget_left(const struct kvc_pool *p, u32 slot)
{
	return bytes_left(&p->accounts[slot].budget);
}

/* Memory of keys, for a pool that has none yet: about one for each 256 KiB. */
int kvc_budget_remember(struct kvc_pool *p)
{
	u64 sets = kvc_capacity(p) / (256U << 10) / WAYS;
	struct kvc_budget *b = &p->budget;
	u32 *seen;

	if (b->seen)
		return 0;
	sets = max_t(u64, SETS_MIN, min_t(u64, sets, SETS_MAX));
	seen = os_zalloc(sets * WAYS * sizeof(*seen));
	if (!seen)
		return -ENOMEM;
	b->nr_sets = (u32)sets;
	/* pairs with the acquire in set_of() */
	os_publish(&b->seen, seen);
	return 0;
}

/* The set of a key, and its fingerprint, which is not 0; NULL: nothing is remembered */
static u32 *set_of(const struct kvc_pool *p, const struct kvc_domain *d, const u8 *key, u32 *print)
{
	u32 *seen = os_published(&p->budget.seen);
	u64 h = p->salt_seed, word;
	u32 i;

	if (!seen)
		return NULL;
	for (i = 0; i < KVC_KEY_LEN; i += 8) {
		memcpy(&word, key + i, 8);
		h = kvc_mix64(h ^ word);
	}
	for (i = 0; i < KVC_KEYSPACE_LEN; i += 8) {
		memcpy(&word, d->keyspace + i, 8);
		h = kvc_mix64(h ^ word);
	}
	h = kvc_mix64(h ^ ((u64)d->slot << 32 | d->epoch));
	*print = (u32)(h >> 32) | 1;
	return seen + (u64)((u32)h % p->budget.nr_sets) * WAYS;
}

/* In front of the others of its set; the last one is forgotten. */
void kvc_budget_note(struct kvc_pool *p, const struct kvc_domain *d, const u8 *key)
{
	u32 print, carry, next, i, *set = set_of(p, d, key, &print);

	if (!set)
		return;
	for (i = 0, carry = print; i < WAYS; i++) {
		next = READ_ONCE(set[i]);
		WRITE_ONCE(set[i], carry);
		if (next == print)
			break;
		carry = next;
	}
}

static bool seen_before(const struct kvc_pool *p, const struct kvc_domain *d, const u8 *key)
{
	u32 print, i, *set = set_of(p, d, key, &print);

	for (i = 0; set && i < WAYS; i++)
		if (READ_ONCE(set[i]) == print)
			return true;
	return false;
}

/* May a page of this key, which is not here, be written? If not, it may the next time. */
bool kvc_budget_admits(struct kvc_pool *p, const struct kvc_domain *d, const u8 *key)
{
	if (!is_spent(&p->budget.pool) && !is_spent(&p->accounts[d->slot].budget))
		return true;
	if (seen_before(p, d, key))
		return true;
	kvc_budget_note(p, d, key);
	return false;
}

/* A store of @bytes has begun. */
void kvc_budget_charge(struct kvc_pool *p, const struct kvc_domain *d, u64 bytes)
{
	spend(&p->accounts[d->slot].budget, bytes);
}
