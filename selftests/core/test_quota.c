// SPDX-License-Identifier: GPL-2.0
/*
 * Quotas and reserves: what a tenant may take, what nobody takes from it, and who waits for whom.
 */
#include "log/log.h"
#include "test.h"

#define PAGE	30000U			/* eight blocks; seven such pages fill a segment of 256 KiB */
#define FULL	7U
#define SEGMENT	KVC_SEGMENT_MIN
#define SEGS	48U
#define WIDE	400U

struct two {
	struct rig *rig;
	struct kvc_domain *d[2];
	u32	next[2];		/* number of the next page */
};

static struct two two;

static int make_with(void **state, u32 members, u32 segments)
{
	struct rig *r = rig_new(members, segments, SEGMENT, KVC_CHUNK_MIN);

	two = (struct two){ .rig = r };
	assert_int_equal(kvc_tenant_add(r->pool, "other", 0, 0, 0600, 0), 1);
	rig_write_super(r);
	two.d[0] = rig_domain(r, 0, 0);
	two.d[1] = rig_domain(r, 1, 0);
	*state = &two;
	return 0;
}

static int make(void **state)
{
	return make_with(state, 1, SEGS);
}

static int make_members(void **state)
{
	return make_with(state, 3, SEGS / 2);
}

static int make_small(void **state)
{
	return make_with(state, 1, 12);
}

static int make_small_two(void **state)
{
	return make_with(state, 2, 12);
}

static int make_wide(void **state)
{
	return make_with(state, 1, WIDE);
}

static void put_domains(struct two *t)
{
	kvc_domain_put(t->rig->pool, t->d[0]);
	kvc_domain_put(t->rig->pool, t->d[1]);
}

static int unmake(void **state)
{
	struct two *t = *state;

	put_domains(t);
	rig_free(t->rig);
	return 0;
}

static int limit(struct two *t, u32 who, u64 quota, u64 reserve)
{
	struct kvc_limits l = { .quota = quota, .reserve = reserve };

	return kvc_tenant_limit(t->rig->pool, who ? "other" : "default", &l);
}

/* One page; what store said last, which is not -EAGAIN */
static int store_one(struct two *t, u32 who)
{
	u32 tries = 0;
	int r;

	while ((r = rig_store(t->rig, t->d[who], t->next[who], t->next[who], PAGE)) == -EAGAIN) {
		assert_true(++tries < 100);
		rig_work(t->rig);
	}
	t->next[who]++;
	rig_work(t->rig);
	return r;
}

static void store_some(struct two *t, u32 who, u32 count)
{
	while (count--)
		assert_int_equal(store_one(t, who), 0);
}

static u64 bytes_of(struct two *t, u32 who)
{
	u64 pages, bytes;

	kvc_tenant_usage(t->rig->pool, who, &pages, &bytes);
	return bytes;
}

/* Of pages @from to @end those that are there */
static u32 count_there(struct two *t, u32 who, u32 from, u32 end)
{
	u32 n = 0, i;

	for (i = from; i < end; i++)
		n += rig_load(t->rig, t->d[who], i, i) == 0;
	return n;
}

static void assert_all_there(struct two *t, u32 who, u32 from, u32 end)
{
	assert_int_equal(count_there(t, who, from, end), end - from);
}

/* Nobody else evicts what is within a reserve, however much is stored; what is beyond may go. */
static void reserve_stays(void **state)
{
	struct two *t = *state;

	assert_int_equal(limit(t, 1, 0, 10 * FULL * PAGE), 0);
	store_some(t, 1, 10 * FULL);
	store_some(t, 0, 3 * SEGS * FULL);
	assert_all_there(t, 1, 0, 10 * FULL);
	store_some(t, 1, 10 * FULL);
	store_some(t, 0, 3 * SEGS * FULL);
	assert_true(bytes_of(t, 1) >= 10 * FULL * PAGE);
	assert_true(bytes_of(t, 1) < 13 * FULL * PAGE);
}

/* The same over several members, each of which evicts on its own */
static void reserve_stays_on_members(void **state)
{
	struct two *t = *state;
	u32 i;

	assert_int_equal(limit(t, 1, 0, 24 * FULL * PAGE), 0);
	for (i = 0; i < 5; i++) {
		store_some(t, 1, 12 * FULL);
		store_some(t, 0, SEGS * FULL);
	}
	assert_true(bytes_of(t, 1) >= 24 * FULL * PAGE);
}

/* At its quota a tenant has its own pages evicted, the oldest, and nobody else's. */
static void quota_holds(void **state)
{
	struct two *t = *state;
	u64 evicted, most = 0;
	u32 i;

	assert_int_equal(limit(t, 0, 8 * FULL * PAGE, 8 * FULL * PAGE), 0);
	store_some(t, 1, 20 * FULL);
	for (i = 0; i < 3 * SEGS * FULL; i++) {
		store_some(t, 0, 1);
		most = max(most, bytes_of(t, 0));
	}
	assert_int_equal(most, 8 * FULL * PAGE);
	assert_all_there(t, 1, 0, 20 * FULL);
	assert_all_there(t, 0, t->next[0] - 6 * FULL, t->next[0]);
	assert_int_equal(count_there(t, 0, 0, t->next[0] - 9 * FULL), 0);
	/* nor is there any need for that when all others have the rest of the room */
	store_some(t, 1, 3 * SEGS * FULL);
	evicted = bytes_of(t, 1);
	store_some(t, 0, SEGS * FULL);
	assert_int_equal(bytes_of(t, 1), evicted);
}

/* A small quota has one home: exact to a segment also where there are several members. */
static void quota_of_members(void **state)
{
	struct two *t = *state;
	u32 i, home = RIG_MEMBERS_MAX;
	struct kvc_load ld;

	assert_int_equal(limit(t, 0, 2 * SEGMENT, 0), 0);
	for (i = 0; i < 100; i++) {
		store_some(t, 0, 1);
		assert_true(bytes_of(t, 0) <= 3 * SEGMENT);
		assert_int_equal(rig_hold(t->rig, t->d[0], i, &ld), 0);
		kvc_load_end(t->rig->pool, &ld, 0);
		assert_true(home == RIG_MEMBERS_MAX || home == ld.member);
		home = ld.member;
	}
	assert_int_equal(limit(t, 0, 24 * SEGMENT, 0), 0);
	for (i = 0; i < 3 * SEGS * FULL; i++) {
		store_some(t, 0, 1);
		assert_true(bytes_of(t, 0) <= 27 * SEGMENT);
	}
	assert_true(bytes_of(t, 0) > 20 * FULL * PAGE);
}

/* Less than a segment counts as one. */
static void tiny_quota(void **state)
{
	struct two *t = *state;
	u32 i;

	assert_int_equal(limit(t, 0, 1, 0), 0);
	for (i = 0; i < 5 * FULL; i++) {
		store_some(t, 0, 1);
		assert_true(bytes_of(t, 0) <= 2 * SEGMENT);
		assert_int_equal(rig_load(t->rig, t->d[0], i, i), 0);
	}
}

static u32 windows_left;

/* Whoever comes by so often goes round in circles. No lock is held. */
static void count_windows(void)
{
	if (--windows_left)
		return;
	os_window = NULL;
	fail_msg("a store does not end");
}

/* A quota that is more than there can be, beside what numbers hold, is one that nobody comes to. */
static void quota_of_all_numbers(void **state)
{
	static const u64 quotas[] = {
		U64_MAX, U64_MAX - 1, U64_MAX - SEGMENT, U64_MAX - 4 * SEGMENT, 1ULL << 63, U64_MAX / 8 * 7,
	};
	struct two *t = *state;
	u32 i, j;

	for (i = 0; i < ARRAY_SIZE(quotas); i++) {
		assert_int_equal(limit(t, 0, quotas[i], 0), 0);
		for (j = 0; j < 2 * SEGS * FULL; j++) {
			windows_left = 100000;
			os_window = count_windows;
			store_some(t, 0, 1);
			os_window = NULL;
		}
		assert_true(bytes_of(t, 0) > (SEGS - 8) * FULL * PAGE);
	}
}

/* A reserve that media says is more than the pool has comes to all that can be kept, and not to more. */
static void reserve_of_all_numbers(void **state)
{
	static const u64 reserves[] = { U64_MAX, U64_MAX - SEGMENT, 1ULL << 63, SEGS * SEGMENT * 4ULL };
	struct two *t = *state;
	struct kvc_pool *p = t->rig->pool;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(reserves); i++) {
		os_lock(&p->domains.lock);
		p->super.limits[1].reserve = reserves[i];
		assert_false(kvc_quota_plan(p));
		os_unlock(&p->domains.lock);
		assert_true(p->quota.share[1].reserve <= SEGS * SEGMENT);
		assert_true(p->quota.share[1].reserve_segs <= SEGS * 5 / 4 + 1);
		assert_true(p->quota.share[1].reserve >= SEGS / 2 * SEGMENT);
	}
}

/* What is being written counts: else all of the room could be taken before the first of it is there. */
static void stores_under_way_count(void **state)
{
	struct two *t = *state;
	struct kvc_store st[12 * FULL];
	u32 n = 0;

	assert_int_equal(limit(t, 0, 2 * FULL * PAGE, 0), 0);
	while (n < ARRAY_SIZE(st) && !rig_begin(t->rig, t->d[0], n, PAGE, &st[n])) {
		n++;
		rig_work(t->rig);
	}
	assert_true(n >= 2 * FULL && n <= 3 * FULL);
	while (n--)
		kvc_store_abort(t->rig->pool, &st[n]);
	rig_work(t->rig);
	store_some(t, 0, 2 * FULL);
	assert_all_there(t, 0, 0, 2 * FULL);
}

/* A quota that came later: of what lies beside others' only the tenant's goes. */
static void quota_comes_later(void **state)
{
	struct two *t = *state;
	u32 i;

	for (i = 0; i < 10 * FULL; i++) {
		store_some(t, 0, 1);
		store_some(t, 1, 1);
	}
	store_some(t, 0, 4 * FULL);
	assert_int_equal(limit(t, 0, 6 * FULL * PAGE, 0), 0);
	rig_work(t->rig);
	assert_true(bytes_of(t, 0) <= 6 * FULL * PAGE);
	assert_true(bytes_of(t, 0) >= 4 * FULL * PAGE);
	assert_all_there(t, 1, 0, 10 * FULL);
	store_some(t, 0, SEGS * FULL);
	assert_true(bytes_of(t, 0) <= 6 * FULL * PAGE + SEGMENT);
	assert_all_there(t, 1, 0, 10 * FULL);
}

/* A member that finds segments of a reserve's among its own wakes the others: more may go there than before. */
static void found_elsewhere(void **state)
{
	struct two *t = *state;
	struct rig *r = t->rig;

	store_some(t, 1, 9 * FULL);
	rig_flush(r);
	assert_int_equal(limit(t, 1, 0, 3 * SEGMENT), 0);
	kvc_own_adopt(&r->pool->members[1]);
	memset(r->kicked, 0, sizeof(r->kicked));
	kvc_own_adopt(&r->pool->members[0]);
	assert_true(r->kicked[1]);
	memset(r->kicked, 0, sizeof(r->kicked));
	kvc_own_adopt(&r->pool->members[0]);
	assert_false(r->kicked[1]);
}

/* A reserve that came later: what lies beside others' is moved. */
static void reserve_comes_later(void **state)
{
	struct two *t = *state;
	u32 i;

	for (i = 0; i < 4 * FULL; i++) {
		store_some(t, 0, 1);
		store_some(t, 1, 1);
	}
	assert_int_equal(limit(t, 1, 0, 6 * SEGMENT), 0);
	store_some(t, 0, 3 * SEGS * FULL);
	assert_true(rig_stats(t->rig).moved_pages >= 4 * FULL);
	assert_all_there(t, 1, 0, 4 * FULL);
}

/* Evictions are not on media: what an attach finds beyond a quota goes before anything is stored. */
static void attach_enforces(void **state)
{
	struct two *t = *state;

	store_some(t, 0, 20 * FULL);
	store_some(t, 1, 4 * FULL);
	rig_flush(t->rig);
	assert_int_equal(limit(t, 0, 8 * SEGMENT, 0), 0);
	assert_int_equal(limit(t, 1, 0, 4 * SEGMENT), 0);
	rig_write_super(t->rig);
	put_domains(t);
	rig_cut(t->rig);
	rig_recover(t->rig);
	t->d[0] = rig_domain(t->rig, 0, 0);
	t->d[1] = rig_domain(t->rig, 1, 0);
	assert_int_equal(bytes_of(t, 0), 20 * FULL * PAGE);
	assert_int_equal(rig_store(t->rig, t->d[0], t->next[0], 0, PAGE), -EAGAIN);
	rig_work(t->rig);
	assert_true(bytes_of(t, 0) <= 8 * SEGMENT);
	assert_true(bytes_of(t, 0) >= 6 * FULL * PAGE);
	store_some(t, 0, 3 * SEGS * FULL);
	assert_true(bytes_of(t, 0) <= 9 * SEGMENT);
	/* segments in which all is theirs were found to be their own */
	assert_true(rig_stats(t->rig).moved_pages <= 2 * FULL);
	assert_all_there(t, 1, 0, 4 * FULL);
}

static struct kvc_pool *adopting;
static u32 windows_until;

/* After so many steps of the engine it turns out whose the recovered segments are. */
static void adopt_soon(void)
{
	if (!windows_until || --windows_until)
		return;
	os_window = NULL;
	kvc_own_adopt(&adopting->members[0]);
}

/* Who is at the quota is not refused for good while his segments turn out to be his own. */
static void adoption_keeps_hope(void **state)
{
	struct two *t = *state;
	bool adopted = true;
	u32 i;
	int r;

	store_some(t, 0, 8 * FULL);
	rig_flush(t->rig);
	assert_int_equal(limit(t, 0, 2 * SEGMENT, 0), 0);
	rig_write_super(t->rig);
	for (i = 1; adopted; i++) {
		put_domains(t);
		rig_cut(t->rig);
		rig_recover(t->rig);
		t->d[0] = rig_domain(t->rig, 0, 0);
		t->d[1] = rig_domain(t->rig, 1, 0);
		adopting = t->rig->pool;
		windows_until = i;
		os_window = adopt_soon;
		r = rig_store(t->rig, t->d[0], t->next[0], 0, PAGE);
		os_window = NULL;
		adopted = !windows_until;
		assert_int_equal(r, -EAGAIN);
	}
	assert_true(i > 3);
}

/* Who is at the quota waits while something of his own is on its way out, and is told when nothing is. */
static void leases_end_waiting(void **state)
{
	struct two *t = *state;
	struct kvc_lease l[4 * FULL];
	u32 i, n, spaces;

	assert_int_equal(limit(t, 0, 2 * FULL * PAGE, 0), 0);
	store_some(t, 0, 2 * FULL);
	for (i = 0, n = 0; i < t->next[0]; i++)
		n += rig_lease(t->rig, t->d[0], i, &l[n]) == 0;
	assert_int_equal(n, 2 * FULL);
	assert_int_equal(store_one(t, 0), -ENOSPC);
	store_some(t, 1, 1);
	/* the last lease of a segment ends */
	for (i = 0; i < FULL; i++)
		kvc_lease_put(t->rig->pool, &l[i]);
	assert_int_equal(rig_store(t->rig, t->d[0], 1000, 0, PAGE), -EAGAIN);
	spaces = t->rig->spaces;
	rig_work(t->rig);
	assert_true(t->rig->spaces > spaces);
	assert_int_equal(rig_store(t->rig, t->d[0], 1000, 0, PAGE), 0);
	while (n-- > FULL)
		kvc_lease_put(t->rig->pool, &l[n]);
}

/* Who reads an evicted page keeps its segment, but not the tenant that waits at its quota. */
static void readers_are_not_waited_for(void **state)
{
	struct two *t = *state;
	struct kvc_load ld[2];

	assert_int_equal(limit(t, 0, 2 * FULL * PAGE, 0), 0);
	store_some(t, 0, 2 * FULL);
	assert_int_equal(rig_hold(t->rig, t->d[0], 1, &ld[0]), 0);
	assert_int_equal(rig_hold(t->rig, t->d[0], FULL + 1, &ld[1]), 0);
	assert_int_equal(rig_store(t->rig, t->d[0], 1000, 0, PAGE), -EAGAIN);
	t->rig->spaces = 0;
	/* nothing is moved, for which a segment would be opened, and another one made ready */
	t->rig->pool->members[0].credit = 0;
	rig_work(t->rig);
	assert_true(t->rig->spaces > 0);
	assert_int_equal(rig_store(t->rig, t->d[0], 1000, 0, PAGE), 0);
	kvc_load_end(t->rig->pool, &ld[0], 0);
	kvc_load_end(t->rig->pool, &ld[1], 0);
}

/* A lease that is taken while the victim is on its way ends the waiting too. */
static void lease_of_victim_ends_waiting(void **state)
{
	struct two *t = *state;
	struct kvc_lease l[2];
	u32 spaces;

	assert_int_equal(limit(t, 0, 2 * FULL * PAGE, 0), 0);
	store_some(t, 0, 2 * FULL);
	assert_int_equal(rig_store(t->rig, t->d[0], 1000, 0, PAGE), -EAGAIN);
	spaces = t->rig->spaces;
	assert_int_equal(rig_lease(t->rig, t->d[0], 0, &l[0]), 0);
	assert_int_equal(rig_lease(t->rig, t->d[0], FULL, &l[1]), 0);
	rig_work(t->rig);
	assert_true(t->rig->spaces > spaces);
	assert_int_equal(rig_store(t->rig, t->d[0], 1000, 0, PAGE), -ENOSPC);
	kvc_lease_put(t->rig->pool, &l[0]);
	kvc_lease_put(t->rig->pool, &l[1]);
}

/* What is over a new quota, and leased, goes when the leases end, though nobody stores anything. */
static void quota_outlasts_leases(void **state)
{
	struct two *t = *state;
	struct kvc_lease l[8 * FULL];
	u32 i;

	store_some(t, 0, 8 * FULL);
	for (i = 0; i < 8 * FULL; i++)
		assert_int_equal(rig_lease(t->rig, t->d[0], i, &l[i]), 0);
	assert_int_equal(limit(t, 0, 4 * FULL * PAGE, 0), 0);
	rig_work(t->rig);
	assert_int_equal(bytes_of(t, 0), 8 * FULL * PAGE);
	/* nobody waits for room */
	t->rig->pool->members[0].wanted = false;
	for (i = 0; i < 8 * FULL; i++)
		kvc_lease_put(t->rig->pool, &l[i]);
	rig_work(t->rig);
	assert_true(bytes_of(t, 0) <= 4 * FULL * PAGE);
}

/* Of two victims with a tenant's pages one gets away, when both would leave it with less than its reserve. */
static void victims_of_two_members(void **state)
{
	struct two *t = *state;
	struct rig *r = t->rig;
	struct kvc_member *m;
	struct kvc_work w;
	u32 i, n = 0;

	assert_int_equal(limit(t, 1, 0, 20 * FULL * PAGE), 0);
	store_some(t, 1, 24 * FULL);
	assert_int_equal(limit(t, 1, 0, bytes_of(t, 1) - FULL * PAGE), 0);
	rig_work(r);
	/* both choose; one page for each step */
	for (i = 0; n < 2 && i < 100000; i++) {
		m = &r->pool->members[i % 3];
		m->low = m->nr_segs;
		if (m->reclaim.phase == KVC_R_IDLE || m->reclaim.phase == KVC_R_CARRY)
			rig_step(r, i % 3, &w);
		n = 0;
		for (u32 j = 0; j < 3; j++)
			n += r->pool->members[j].reclaim.victim != NULL;
	}
	for (i = 0; i < 3; i++)
		r->kicked[i] = true;
	rig_work(r);
	assert_true(bytes_of(t, 1) >= r->pool->super.limits[1].reserve);
}

/* A reserve that lies on one member alone does not take all of it. */
static void reserve_leaves_members_to_others(void **state)
{
	struct two *t = *state;
	struct kvc_store st;
	u8 key[KVC_KEY_LEN];
	u32 i, who, tries;
	int r;

	assert_int_equal(limit(t, 1, 0, 30 * FULL * PAGE), 0);
	for (i = 0; i < 2 * SEGS * FULL; i++) {
		who = i < SEGS * FULL;
		key_make(key, i);
		for (tries = 0; tries < 100; tries++) {
			r = kvc_store_begin(t->rig->pool, t->d[who], key, PAGE, 0, BIT_ULL(1), &st);
			if (r != -EAGAIN)
				break;
			rig_work(t->rig);
		}
		assert_int_equal(r, 0);
		rig_write_page(t->rig, &st, i);
		kvc_store_commit(t->rig->pool, &st);
		rig_work(t->rig);
	}
	assert_true(bytes_of(t, 1) > 10 * FULL * PAGE);
}

/* A larger quota, or none, is told to those who wait. */
static void raising_makes_room(void **state)
{
	struct two *t = *state;
	u32 spaces;

	assert_int_equal(limit(t, 0, 2 * FULL * PAGE, 0), 0);
	store_some(t, 0, 2 * FULL);
	assert_int_equal(rig_store(t->rig, t->d[0], 1000, 0, PAGE), -EAGAIN);
	spaces = t->rig->spaces;
	assert_int_equal(limit(t, 0, 0, 0), 0);
	assert_true(t->rig->spaces > spaces);
	assert_int_equal(rig_store(t->rig, t->d[0], 1000, 0, PAGE), 0);
	store_some(t, 0, 20 * FULL);
	assert_all_there(t, 0, 0, t->next[0]);
}

/* What cannot be kept is refused, and nothing changes; less is taken. */
static void what_cannot_be_kept(void **state)
{
	struct two *t = *state;
	const struct kvc_super *s = kvc_super_of(t->rig->pool);
	u64 seq = s->seq;

	assert_int_equal(limit(t, 0, 0, SEGS * SEGMENT), -ENOSPC);
	assert_int_equal(limit(t, 0, 0, U64_MAX), -ENOSPC);
	assert_int_equal(s->seq, seq);
	assert_int_equal(s->limits[0].reserve, 0);
	assert_int_equal(limit(t, 0, 0, SEGS / 2 * SEGMENT), 0);
	assert_int_equal(limit(t, 1, 0, SEGS / 4 * SEGMENT), -ENOSPC);
	assert_int_equal(limit(t, 1, 0, SEGS / 8 * SEGMENT), 0);
	assert_int_equal(limit(t, 0, 0, SEGS / 4 * SEGMENT), 0);
	assert_int_equal(limit(t, 1, 0, SEGS / 4 * SEGMENT), 0);
	assert_int_equal(kvc_tenant_remove(t->rig->pool, "other"), 0);
	assert_int_equal(limit(t, 0, 0, SEGS / 2 * SEGMENT), 0);
}

/* Of a member's segments an eighth may be open for one tenant alone. */
static void too_many_for_few_segments(void **state)
{
	struct two *t = *state;

	assert_int_equal(limit(t, 0, SEGMENT, 0), 0);
	assert_int_equal(limit(t, 1, SEGMENT, 0), -ENOSPC);
	assert_int_equal(limit(t, 0, 0, 0), 0);
	assert_int_equal(limit(t, 1, SEGMENT, 0), 0);
}

/* All that can be kept, is: with both tenants storing, in any order */
static void all_reserves_stay(void **state)
{
	struct two *t = *state;
	u32 i;

	assert_int_equal(limit(t, 0, 0, 20 * FULL * PAGE), 0);
	assert_int_equal(limit(t, 1, 0, 10 * FULL * PAGE), 0);
	store_some(t, 1, 10 * FULL);
	store_some(t, 0, 20 * FULL);
	for (i = 0; i < 6; i++) {
		store_some(t, i % 2, SEGS * FULL);
		assert_true(bytes_of(t, 0) >= 20 * FULL * PAGE);
		assert_true(bytes_of(t, 1) >= 10 * FULL * PAGE);
	}
}

/* Room that deletes left within segments is not held against others for ever. */
static void holes_have_a_bound(void **state)
{
	struct two *t = *state;
	u32 i;

	assert_int_equal(limit(t, 1, 0, 10 * FULL * PAGE), 0);
	for (i = 0; i < 3 * SEGS * FULL; i++) {
		store_some(t, 1, 1);
		if (i % FULL)
			assert_int_equal(rig_delete(t->rig, t->d[1], i), 0);
	}
	store_some(t, 0, 20 * FULL);
	assert_all_there(t, 0, t->next[0] - 20 * FULL, t->next[0]);
}

/* A page that a reserve keeps is not moved for ever where nothing else can go. */
static void kept_page_comes_to_rest(void **state)
{
	struct two *t = *state;
	struct kvc_lease first, l[12 * FULL];
	u32 n = 0, steps = 0;
	struct kvc_work w;

	rig_keep_leases(t->rig);
	store_some(t, 1, 1);
	store_some(t, 0, FULL - 1);
	assert_int_equal(rig_lease(t->rig, t->d[0], 0, &first), 0);
	assert_int_equal(limit(t, 1, 0, SEGMENT), 0);
	while (store_one(t, 0) == 0) {
		assert_true(n < ARRAY_SIZE(l));
		assert_int_equal(rig_lease(t->rig, t->d[0], t->next[0] - 1, &l[n++]), 0);
	}
	/* the segment that it shares with others is the only one that can go, and there is one to move it to */
	kvc_lease_put(t->rig->pool, &first);
	while (rig_step(t->rig, 0, &w))
		assert_true(++steps < 50);
	assert_int_equal(rig_stats(t->rig).moved_pages, 1);
	assert_all_there(t, 1, 0, 1);
	while (n--)
		kvc_lease_put(t->rig->pool, &l[n]);
	store_some(t, 0, 24 * FULL);
	assert_all_there(t, 1, 0, 1);
}

/* Nor are those that fill a segment */
static void kept_pages_come_to_rest(void **state)
{
	struct two *t = *state;
	struct kvc_lease first[2], l[12 * FULL];
	u32 n = 0, steps = 0, i;
	struct kvc_work w;

	rig_keep_leases(t->rig);
	for (i = 0; i < 2; i++) {
		store_some(t, 1, FULL - 2);
		store_some(t, 0, 2);
		assert_int_equal(rig_lease(t->rig, t->d[0], t->next[0] - 1, &first[i]), 0);
	}
	assert_int_equal(limit(t, 1, 0, 2 * SEGMENT), 0);
	while (store_one(t, 0) == 0) {
		assert_true(n < ARRAY_SIZE(l));
		assert_int_equal(rig_lease(t->rig, t->d[0], t->next[0] - 1, &l[n++]), 0);
	}
	for (i = 0; i < 2; i++)
		kvc_lease_put(t->rig->pool, &first[i]);
	while (rig_step(t->rig, 0, &w))
		assert_true(++steps < 100);
	assert_all_there(t, 1, 0, 2 * (FULL - 2));
	while (n--)
		kvc_lease_put(t->rig->pool, &l[n]);
	store_some(t, 0, 24 * FULL);
	assert_all_there(t, 1, 0, 2 * (FULL - 2));
}

/* What lies on a member that is gone is not what a reserve keeps. */
static void lost_pages_do_not_count(void **state)
{
	struct two *t = *state;
	u64 lost;

	assert_int_equal(limit(t, 1, 0, 12 * FULL * PAGE), 0);
	store_some(t, 1, 12 * FULL);
	lost = kvc_member_bytes(t->rig->pool, 2);
	assert_true(lost > 0);
	kvc_member_fail(t->rig->pool, 2);
	rig_work(t->rig);
	store_some(t, 0, 3 * SEGS * FULL);
	assert_int_equal(bytes_of(t, 1), 12 * FULL * PAGE);
	store_some(t, 1, 4 * FULL);
	store_some(t, 0, 3 * SEGS * FULL);
	assert_true(bytes_of(t, 1) >= 12 * FULL * PAGE + lost - 3 * SEGMENT);
}

/* The only member that has pages of the tenant */
static u32 find_home(struct two *t, u32 who)
{
	struct kvc_load ld;

	assert_int_equal(rig_hold(t->rig, t->d[who], t->next[who] - 1, &ld), 0);
	kvc_load_end(t->rig->pool, &ld, 0);
	return ld.member;
}

/* Nor do the segments there count, full or not: who had all that a quota allows there begins anew elsewhere. */
static void lost_segments_do_not_count(void **state)
{
	struct two *t = *state;
	struct kvc_share *s = &t->rig->pool->quota.share[0];
	u32 segs = 0, i;

	assert_int_equal(limit(t, 0, 6 * SEGMENT, 0), 0);
	for (i = 0; !kvc_quota_full(t->rig->pool, 0); i++) {
		assert_true(i < SEGS * FULL);
		store_some(t, 0, 1);
		if (i % FULL)
			assert_int_equal(rig_delete(t->rig, t->d[0], i), 0);
	}
	assert_true(bytes_of(t, 0) < 3 * SEGMENT);
	for (i = 0; i < kvc_nr_members(t->rig->pool); i++)
		segs += os_atomic_read(&t->rig->pool->members[i].stock[0].segs);
	assert_true(segs >= s->quota_segs);
	rig_flush(t->rig);
	kvc_member_fail(t->rig->pool, find_home(t, 0));
	rig_work(t->rig);
	assert_false(kvc_quota_full(t->rig->pool, 0));
	i = t->next[0];
	store_some(t, 0, 5 * FULL);
	assert_all_there(t, 0, i, t->next[0]);
	store_some(t, 0, 10 * FULL);
	assert_all_there(t, 0, t->next[0] - 4 * FULL, t->next[0]);
}

/* Of a reserve's either: what is stored elsewhere then is kept. */
static void lost_segments_keep_no_reserve(void **state)
{
	struct two *t = *state;
	u32 i;

	assert_int_equal(limit(t, 1, 0, 6 * FULL * PAGE), 0);
	for (i = 0; i < 3 * SEGS * FULL; i++) {
		store_some(t, 1, 1);
		if (i % FULL)
			assert_int_equal(rig_delete(t->rig, t->d[1], i), 0);
	}
	rig_flush(t->rig);
	kvc_member_fail(t->rig->pool, 2);
	kvc_member_fail(t->rig->pool, 1);
	rig_work(t->rig);
	i = t->next[1];
	store_some(t, 1, 6 * FULL);
	store_some(t, 0, 3 * SEGS * FULL);
	assert_all_there(t, 1, i, t->next[1]);
}

/*
 * Where a member was lost, there may be no segment of its own for a tenant with a reserve: its pages, which are among
 * others' then, are moved when a victim has some, and do not keep it.
 */
static void reserve_without_a_home(void **state)
{
	struct two *t = *state;
	struct kvc_domain *others = t->d[0], *third;
	struct rig *r = t->rig;
	u32 i;

	assert_int_equal(kvc_tenant_add(r->pool, "third", 0, 0, 0600, 0), 2);
	rig_write_super(r);
	third = rig_domain(r, 2, 0);
	assert_int_equal(limit(t, 0, SEGMENT, 0), 0);
	assert_int_equal(limit(t, 1, 0, 3 * FULL * PAGE), 0);
	kvc_member_fail(r->pool, 1);
	rig_work(r);
	assert_int_equal(r->pool->quota.share[1].homes, 0);
	t->d[0] = third;
	for (i = 0; i < 3 * FULL; i++) {
		store_some(t, 1, 1);
		store_some(t, 0, 3);
	}
	store_some(t, 0, 10 * FULL);
	assert_all_there(t, 1, 0, t->next[1]);
	t->d[0] = others;
	kvc_domain_put(r->pool, third);
}

/* Pages on a member that is gone do not count where they lie beside others' either. */
static void lost_pages_beside_others(void **state)
{
	struct two *t = *state;
	u32 i;

	for (i = 0; i < 12 * FULL; i++) {
		store_some(t, 0, 1);
		store_some(t, 1, 1);
	}
	kvc_member_fail(t->rig->pool, 2);
	rig_work(t->rig);
	assert_int_equal(bytes_of(t, 0), 12 * FULL * PAGE);
	assert_int_equal(limit(t, 0, 9 * FULL * PAGE, 0), 0);
	rig_work(t->rig);
	assert_int_equal(bytes_of(t, 0), 12 * FULL * PAGE);
	assert_int_equal(limit(t, 0, 3 * FULL * PAGE, 0), 0);
	rig_work(t->rig);
	assert_true(bytes_of(t, 0) > 5 * FULL * PAGE);
	store_some(t, 0, 6 * FULL);
	assert_all_there(t, 0, t->next[0] - FULL, t->next[0]);
}

static u32 windows;

static void tally(void)
{
	windows++;
}

/* Who is refused at the quota, again and again, does not look at all that others have stored each time. */
static void refused_without_a_search(void **state)
{
	struct two *t = *state;
	struct kvc_lease l[4 * FULL];
	u32 n;

	/* one page of the tenant's lies beside others', and is leased as all that it has */
	store_some(t, 0, 1);
	store_some(t, 1, (WIDE - 50) * FULL);
	assert_int_equal(limit(t, 0, 2 * FULL * PAGE, 0), 0);
	assert_int_equal(rig_lease(t->rig, t->d[0], 0, &l[0]), 0);
	for (n = 1; store_one(t, 0) == 0; n++)
		assert_int_equal(rig_lease(t->rig, t->d[0], n, &l[n]), 0);
	assert_true(n >= 2 * FULL);
	windows = 0;
	os_window = tally;
	assert_int_equal(rig_store(t->rig, t->d[0], 1000, 0, PAGE), -ENOSPC);
	os_window = NULL;
	assert_in_range(windows, 1, 40);
	while (n--)
		kvc_lease_put(t->rig->pool, &l[n]);
	assert_int_equal(store_one(t, 0), 0);
}

/* Pages that leave one by one, for a quota that came later, are looked for once and not for each from the beginning. */
static void trimming_goes_on(void **state)
{
	struct two *t = *state;
	u32 i;

	for (i = 0; i < (WIDE - 50) * FULL / 2; i++) {
		store_some(t, 0, 1);
		store_some(t, 1, 1);
	}
	assert_int_equal(limit(t, 0, SEGMENT, 0), 0);
	windows = 0;
	os_window = tally;
	rig_work(t->rig);
	os_window = NULL;
	assert_true(bytes_of(t, 0) <= SEGMENT);
	assert_all_there(t, 1, 0, t->next[1]);
	/* four pages of each segment, and some steps */
	assert_in_range(windows, WIDE, 12 * WIDE);
}

static struct two *watched;
static u64 bytes_then;			/* when the first victim was chosen */

static void watch_victim(void)
{
	if (!bytes_then && watched->rig->pool->members[0].reclaim.victim)
		bytes_then = bytes_of(watched, 0);
}

/* And others need not wait until all of them have left. */
static void trimming_holds_up_nobody(void **state)
{
	struct two *t = *state;
	u64 bytes;

	while (rig_stats(t->rig).segments_reclaimed == 0) {
		store_some(t, 0, 1);
		store_some(t, 1, 1);
	}
	while (rig_store(t->rig, t->d[1], t->next[1], 0, PAGE) == 0)
		t->next[1]++;
	rig_flush(t->rig);
	bytes = bytes_of(t, 0);
	assert_int_equal(limit(t, 0, SEGMENT, 0), 0);
	watched = t;
	bytes_then = 0;
	os_window = watch_victim;
	rig_work(t->rig);
	os_window = NULL;
	assert_true(bytes_then > bytes - 10 * SEGMENT);
	assert_true(bytes_of(t, 0) <= SEGMENT);
}

static const struct CMUnitTest quota_tests[] = {
	cmocka_unit_test_setup_teardown(reserve_stays, make, unmake),
	cmocka_unit_test_setup_teardown(reserve_stays_on_members, make_members, unmake),
	cmocka_unit_test_setup_teardown(quota_holds, make, unmake),
	cmocka_unit_test_setup_teardown(quota_of_members, make_members, unmake),
	cmocka_unit_test_setup_teardown(tiny_quota, make, unmake),
	cmocka_unit_test_setup_teardown(quota_of_all_numbers, make, unmake),
	cmocka_unit_test_setup_teardown(reserve_of_all_numbers, make, unmake),
	cmocka_unit_test_setup_teardown(stores_under_way_count, make, unmake),
	cmocka_unit_test_setup_teardown(quota_comes_later, make, unmake),
	cmocka_unit_test_setup_teardown(found_elsewhere, make_members, unmake),
	cmocka_unit_test_setup_teardown(reserve_comes_later, make, unmake),
	cmocka_unit_test_setup_teardown(attach_enforces, make, unmake),
	cmocka_unit_test_setup_teardown(adoption_keeps_hope, make, unmake),
	cmocka_unit_test_setup_teardown(leases_end_waiting, make, unmake),
	cmocka_unit_test_setup_teardown(readers_are_not_waited_for, make, unmake),
	cmocka_unit_test_setup_teardown(lease_of_victim_ends_waiting, make, unmake),
	cmocka_unit_test_setup_teardown(quota_outlasts_leases, make, unmake),
	cmocka_unit_test_setup_teardown(victims_of_two_members, make_members, unmake),
	cmocka_unit_test_setup_teardown(reserve_leaves_members_to_others, make_members, unmake),
	cmocka_unit_test_setup_teardown(raising_makes_room, make, unmake),
	cmocka_unit_test_setup_teardown(what_cannot_be_kept, make, unmake),
	cmocka_unit_test_setup_teardown(too_many_for_few_segments, make_small, unmake),
	cmocka_unit_test_setup_teardown(all_reserves_stay, make, unmake),
	cmocka_unit_test_setup_teardown(holes_have_a_bound, make, unmake),
	cmocka_unit_test_setup_teardown(kept_page_comes_to_rest, make_small, unmake),
	cmocka_unit_test_setup_teardown(kept_pages_come_to_rest, make_small, unmake),
	cmocka_unit_test_setup_teardown(lost_pages_do_not_count, make_members, unmake),
	cmocka_unit_test_setup_teardown(lost_segments_do_not_count, make_members, unmake),
	cmocka_unit_test_setup_teardown(lost_segments_keep_no_reserve, make_members, unmake),
	cmocka_unit_test_setup_teardown(reserve_without_a_home, make_small_two, unmake),
	cmocka_unit_test_setup_teardown(lost_pages_beside_others, make_members, unmake),
	cmocka_unit_test_setup_teardown(refused_without_a_search, make_wide, unmake),
	cmocka_unit_test_setup_teardown(trimming_goes_on, make_wide, unmake),
	cmocka_unit_test_setup_teardown(trimming_holds_up_nobody, make_wide, unmake),
};

TEST_GROUP(quota);
