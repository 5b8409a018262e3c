// SPDX-License-Identifier: GPL-2.0
/*
 * Events: who is told of which pages, in which order, and what happens to those that nobody takes.
 */
#include "test.h"

#define ROOM	64U

/* A listener with what it took */
struct ear {
	struct kvc_listener l;		/* first */
	struct kvc_event got[ROOM];
	u32	nr;
	u64	lost;
	u32	wakes;
	u32	refuse;			/* the n-th step of a take, from 1 */
};

static void on_wake(struct kvc_listener *l)
{
	((struct ear *)l)->wakes++;
}

static bool give(void *arg, const struct kvc_event *events, u32 nr)
{
	struct ear *e = arg;

	assert_int_equal(os_locks_held, 0);
	if (e->refuse && !--e->refuse)
		return false;
	assert_true(e->nr + nr <= ROOM);
	memcpy(&e->got[e->nr], events, nr * sizeof(*events));
	e->nr += nr;
	return true;
}

static int hear(struct ear *e, u32 max)
{
	e->nr = 0;
	return kvc_events_take(&e->l, max, &e->lost, give, e);
}

static void listen(struct rig *r, struct kvc_domain *d, struct ear *e)
{
	memset(e, 0, sizeof(*e));
	e->l.wake = on_wake;
	assert_int_equal(kvc_listen(r->pool, d, &e->l), 0);
}

static void expect(const struct ear *e, u32 i, u32 id, enum kvc_event_kind kind, u32 length)
{
	u8 key[KVC_KEY_LEN];

	key_make(key, id);
	assert_true(i < e->nr);
	assert_memory_equal(e->got[i].key, key, KVC_KEY_LEN);
	assert_int_equal(e->got[i].kind, kind);
	assert_int_equal(e->got[i].length, length);
}

static int make(void **state)
{
	*state = rig_small(2);
	return 0;
}

static int unmake(void **state)
{
	rig_free(*state);
	return 0;
}

static void pages_that_come_and_go(void **state)
{
	struct rig *r = *state;
	struct kvc_store st;
	struct ear e;

	assert_int_equal(rig_store(r, r->d, 1, 1, 100), 0);
	listen(r, r->d, &e);
	assert_int_equal(hear(&e, ROOM), 0);
	/* told when it is there, not when it begins; not at all when it fails, or is there already */
	assert_int_equal(rig_begin(r, r->d, 2, 200, &st), 0);
	assert_int_equal(hear(&e, ROOM), 0);
	rig_write_page(r, &st, 2);
	kvc_store_commit(r->pool, &st);
	assert_int_equal(rig_begin(r, r->d, 3, 300, &st), 0);
	kvc_store_abort(r->pool, &st);
	assert_int_equal(rig_store(r, r->d, 1, 1, 100), -EEXIST);
	assert_int_equal(rig_delete(r, r->d, 3), -ENOENT);
	/* without a tombstone, and with one */
	assert_int_equal(rig_delete(r, r->d, 2), 0);
	rig_flush(r);
	assert_int_equal(rig_delete(r, r->d, 1), 0);
	assert_int_equal(hear(&e, ROOM), 3);
	expect(&e, 0, 2, KVC_EVENT_STORED, 200);
	expect(&e, 1, 2, KVC_EVENT_DELETED, 200);
	expect(&e, 2, 1, KVC_EVENT_DELETED, 100);
	assert_int_equal(e.lost, 0);
	kvc_unlisten(r->pool, &e.l);
}

static void what_fails_verification(void **state)
{
	struct rig *r = *state;
	struct kvc_load ld, other;
	struct ear e;

	assert_int_equal(rig_store(r, r->d, 1, 1, 5000), 0);
	listen(r, r->d, &e);
	assert_int_equal(rig_hold(r, r->d, 1, &ld), 0);
	assert_int_equal(rig_hold(r, r->d, 1, &other), 0);
	kvc_load_end(r->pool, &ld, -EBADMSG);
	kvc_load_end(r->pool, &other, -EBADMSG);
	assert_int_equal(hear(&e, ROOM), 1);
	expect(&e, 0, 1, KVC_EVENT_DROPPED, 5000);
	kvc_unlisten(r->pool, &e.l);
}

static void a_replaced_page(void **state)
{
	struct rig *r = *state;
	struct kvc_store st = { 0 }, late;
	u8 key[KVC_KEY_LEN];
	struct ear e;

	key_make(key, 1);
	listen(r, r->d, &e);
	assert_int_equal(rig_store(r, r->d, 1, 1, 100), 0);
	assert_int_equal(kvc_replace_begin(r->pool, r->d, key, 200, 0, KVC_ANY_MEMBER, &st), 0);
	rig_write_page(r, &st, 2);
	assert_int_equal(hear(&e, ROOM), 1);
	kvc_store_commit(r->pool, &st);
	assert_int_equal(hear(&e, ROOM), 1);
	expect(&e, 0, 1, KVC_EVENT_STORED, 200);
	/* a store that was overtaken publishes nothing */
	assert_int_equal(rig_begin(r, r->d, 2, 300, &late), 0);
	rig_write_page(r, &late, 2);
	key_make(key, 2);
	assert_int_equal(kvc_replace_begin(r->pool, r->d, key, 400, 0, KVC_ANY_MEMBER, &st), 0);
	rig_write_page(r, &st, 3);
	kvc_store_commit(r->pool, &st);
	kvc_store_commit(r->pool, &late);
	assert_int_equal(hear(&e, ROOM), 1);
	expect(&e, 0, 2, KVC_EVENT_STORED, 400);
	kvc_unlisten(r->pool, &e.l);
}

/* Another keyspace of the tenant, another tenant's of the same name, and one that came into a removed one's slot */
static void of_nobody_else(void **state)
{
	struct rig *r = *state;
	int slot = kvc_tenant_add(r->pool, "other", 0, 0, 0600, 0);
	struct kvc_domain *space = rig_domain(r, 0, 1), *tenant = rig_domain(r, (u32)slot, 0), *later;
	struct ear e, of_space, of_tenant, of_later;

	listen(r, r->d, &e);
	listen(r, space, &of_space);
	listen(r, tenant, &of_tenant);
	assert_int_equal(rig_store(r, space, 1, 1, 100), 0);
	assert_int_equal(rig_store(r, tenant, 1, 1, 200), 0);
	assert_int_equal(rig_delete(r, space, 1), 0);
	assert_int_equal(hear(&e, ROOM), 0);
	assert_int_equal(e.wakes, 0);
	assert_int_equal(rig_store(r, r->d, 1, 1, 300), 0);
	assert_int_equal(hear(&e, ROOM), 1);
	expect(&e, 0, 1, KVC_EVENT_STORED, 300);
	assert_int_equal(hear(&of_space, ROOM), 2);
	expect(&of_space, 0, 1, KVC_EVENT_STORED, 100);
	expect(&of_space, 1, 1, KVC_EVENT_DELETED, 100);
	assert_int_equal(hear(&of_tenant, ROOM), 1);
	expect(&of_tenant, 0, 1, KVC_EVENT_STORED, 200);

	assert_int_equal(kvc_tenant_remove(r->pool, "other"), 0);
	assert_int_equal(kvc_tenant_add(r->pool, "later", 0, 0, 0600, 0), slot);
	later = rig_domain(r, (u32)slot, 0);
	listen(r, later, &of_later);
	rig_write_super(r);
	assert_int_equal(rig_store(r, later, 1, 1, 400), 0);
	assert_int_equal(hear(&of_tenant, ROOM), 0);
	assert_int_equal(hear(&of_later, ROOM), 1);
	expect(&of_later, 0, 1, KVC_EVENT_STORED, 400);
	kvc_unlisten(r->pool, &of_space.l);
	kvc_unlisten(r->pool, &of_later.l);
	kvc_unlisten(r->pool, &e.l);
	kvc_unlisten(r->pool, &of_tenant.l);
	kvc_domain_put(r->pool, space);
	kvc_domain_put(r->pool, tenant);
	kvc_domain_put(r->pool, later);
}

/* Woken by the first after a take that found the end, or the beginning; and by no other */
static void wakes(void **state)
{
	struct rig *r = *state;
	struct ear a, b;
	u32 i;

	listen(r, r->d, &a);
	listen(r, r->d, &b);
	for (i = 0; i < 40; i++)
		assert_int_equal(rig_store(r, r->d, i, 1, 100 + i), 0);
	assert_int_equal(a.wakes, 1);
	assert_int_equal(b.wakes, 1);
	assert_int_equal(hear(&a, 20), 20);
	expect(&a, 19, 19, KVC_EVENT_STORED, 119);
	assert_int_equal(hear(&a, 20), 20);
	expect(&a, 0, 20, KVC_EVENT_STORED, 120);
	assert_int_equal(rig_store(r, r->d, 50, 1, 100), 0);
	assert_int_equal(a.wakes, 1);
	assert_int_equal(hear(&a, 20), 1);
	assert_int_equal(rig_store(r, r->d, 51, 1, 100), 0);
	assert_int_equal(rig_store(r, r->d, 52, 1, 100), 0);
	assert_int_equal(a.wakes, 2);
	assert_int_equal(b.wakes, 1);
	assert_int_equal(hear(&b, ROOM), 43);
	b.l.wake = NULL;
	assert_int_equal(rig_store(r, r->d, 53, 1, 100), 0);
	assert_int_equal(hear(&b, ROOM), 1);
	kvc_unlisten(r->pool, &a.l);
	assert_int_equal(rig_store(r, r->d, 54, 1, 100), 0);
	assert_int_equal(a.wakes, 2);
	kvc_unlisten(r->pool, &b.l);
}

/* What cannot be given stays, and so does what is known to be lost. */
static void refused_ones_are_not_taken(void **state)
{
	struct rig *r = *state;
	struct ear e;
	u32 i;

	listen(r, r->d, &e);
	for (i = 0; i < 40; i++)
		assert_int_equal(rig_store(r, r->d, i, 1, 100), 0);
	e.refuse = 1;
	assert_int_equal(hear(&e, ROOM), -EFAULT);
	e.refuse = 2;
	i = (u32)hear(&e, ROOM);
	assert_int_equal(i, e.nr);
	assert_in_range(i, 1, 39);
	/* it got less than it asked for, and is told that there is more */
	assert_int_equal(e.wakes, 2);
	assert_int_equal(hear(&e, ROOM), 40 - i);
	expect(&e, 0, i, KVC_EVENT_STORED, 100);
	kvc_unlisten(r->pool, &e.l);
}

static void the_oldest_are_overwritten(void **state)
{
	struct rig *r = *state;
	struct ear e, other;
	u32 i;

	listen(r, r->d, &e);
	listen(r, r->d, &other);
	for (i = 0; i < KVC_EVENTS_MAX / 2 + 5; i++) {
		assert_int_equal(rig_store(r, r->d, 1, i, 10 + i % 100), 0);
		assert_int_equal(rig_delete(r, r->d, 1), 0);
		if (i % 100 == 0)
			rig_work(r);
		if (i == KVC_EVENTS_MAX / 2 - 1) {
			assert_int_equal(hear(&other, 1), 1);
			assert_int_equal(other.lost, 0);
			expect(&other, 0, 1, KVC_EVENT_STORED, 10);
		}
	}
	e.refuse = 1;
	assert_int_equal(hear(&e, 2), -EFAULT);
	assert_int_equal(hear(&e, 2), 2);
	assert_int_equal(e.lost, 10);
	expect(&e, 0, 1, KVC_EVENT_STORED, 15);
	expect(&e, 1, 1, KVC_EVENT_DELETED, 15);
	assert_int_equal(hear(&e, 2), 2);
	assert_int_equal(e.lost, 0);
	expect(&e, 0, 1, KVC_EVENT_STORED, 16);
	assert_int_equal(hear(&other, 1), 1);
	assert_int_equal(other.lost, 9);
	kvc_unlisten(r->pool, &e.l);
	kvc_unlisten(r->pool, &other.l);
}

/* One for all keyspaces that somebody listens to, after what was stored there */
static void a_lost_member(void **state)
{
	static const u8 none[KVC_KEY_LEN];
	struct rig *r = *state;
	struct kvc_domain *space = rig_domain(r, 0, 1);
	struct ear e, other;

	listen(r, r->d, &e);
	listen(r, space, &other);
	assert_int_equal(rig_store(r, r->d, 1, 1, 100), 0);
	kvc_member_fail(r->pool, 1);
	kvc_member_fail(r->pool, 1);
	assert_int_equal(hear(&e, ROOM), 2);
	assert_int_equal(e.got[1].kind, KVC_EVENT_MEMBER_LOST);
	assert_int_equal(e.got[1].length, 0);
	assert_memory_equal(e.got[1].key, none, KVC_KEY_LEN);
	assert_int_equal(hear(&other, ROOM), 1);
	assert_int_equal(other.wakes, 1);
	kvc_unlisten(r->pool, &e.l);
	kvc_member_fail(r->pool, 0);
	assert_int_equal(hear(&other, ROOM), 1);
	kvc_unlisten(r->pool, &other.l);
	kvc_domain_put(r->pool, space);
}

/* A page is there from when it is said to be stored until it is said to have gone; moves are told to nobody. */
static void reclaim_tells(void **state)
{
	struct rig *r = *state;
	u32 lengths[2000] = { 0 }, id, i, evicted = 0;
	u8 key[KVC_KEY_LEN];
	struct kvc_stats s;
	struct ear e;

	listen(r, r->d, &e);
	for (id = 0; id < ARRAY_SIZE(lengths); id++) {
		rig_fill(r, id, 8192 + id, 1);
		/* some are wanted again, and worth moving */
		rig_query(r, r->d, id / 100);
		rig_load(r, r->d, id / 100, id / 100);
		while (hear(&e, ROOM) > 0) {
			assert_int_equal(e.lost, 0);
			for (i = 0; i < e.nr; i++) {
				u32 of = e.got[i].length - 8192;

				assert_in_range(of, 0, id);
				key_make(key, of);
				assert_memory_equal(e.got[i].key, key, KVC_KEY_LEN);
				assert_int_equal(e.got[i].kind, lengths[of] ? KVC_EVENT_EVICTED : KVC_EVENT_STORED);
				evicted += lengths[of] != 0;
				lengths[of] = lengths[of] ? 0 : e.got[i].length;
			}
		}
	}
	for (i = 0; i < id; i++)
		assert_int_equal(rig_query(r, r->d, i), lengths[i] ? (int)lengths[i] : -ENOENT);
	s = rig_stats(r);
	assert_true(s.moved_pages > 0);
	assert_int_equal(evicted, s.evicted_pages);
	kvc_unlisten(r->pool, &e.l);
}

/* Whoever watches, with what it took */
struct eye {
	struct kvc_watcher w;		/* first */
	struct kvc_watched got[ROOM];
	u32	nr;
	u64	lost;
	u32	wakes;
};

static void on_wake_eye(struct kvc_watcher *w)
{
	((struct eye *)w)->wakes++;
}

static struct eye *watch(struct rig *r)
{
	struct eye *eye = calloc(1, sizeof(*eye));

	assert_non_null(eye);
	eye->w.wake = on_wake_eye;
	kvc_watch(r->pool, &eye->w);
	return eye;
}

static u32 see(struct rig *r, struct eye *eye, u32 max)
{
	eye->lost = 0;
	eye->nr = kvc_watched_take(r->pool, &eye->w, eye->got, max, &eye->lost);
	return eye->nr;
}

static void expect_seen(const struct eye *eye, u32 i, int slot, u32 space, u32 id, enum kvc_event_kind kind, u32 length)
{
	u8 key[KVC_KEY_LEN], keyspace[KVC_KEYSPACE_LEN];

	key_make(key, id);
	keyspace_make(keyspace, space);
	assert_true(i < eye->nr);
	assert_int_equal(eye->got[i].slot, slot);
	assert_memory_equal(eye->got[i].keyspace, keyspace, KVC_KEYSPACE_LEN);
	assert_memory_equal(eye->got[i].event.key, key, KVC_KEY_LEN);
	assert_int_equal(eye->got[i].event.kind, kind);
	assert_int_equal(eye->got[i].event.length, length);
}

/* All tenants and keyspaces, also one that began later, beside a listener or without any */
static void a_watcher_sees_all(void **state)
{
	struct rig *r = *state;
	struct kvc_domain *space = rig_domain(r, 0, 1), *later;
	struct eye *eye;
	struct ear e;
	int slot;

	assert_int_equal(rig_store(r, space, 1, 1, 100), 0);
	eye = watch(r);
	assert_int_equal(see(r, eye, ROOM), 0);
	assert_int_equal(rig_store(r, r->d, 1, 1, 200), 0);
	listen(r, space, &e);
	assert_int_equal(rig_delete(r, space, 1), 0);
	slot = kvc_tenant_add(r->pool, "other", 0, 0, 0600, 0);
	assert_true(slot > 0);
	later = rig_domain(r, (u32)slot, 2);
	assert_int_equal(rig_store(r, later, 1, 1, 300), 0);
	kvc_unlisten(r->pool, &e.l);
	assert_int_equal(rig_store(r, space, 2, 1, 400), 0);
	assert_int_equal(see(r, eye, ROOM), 4);
	expect_seen(eye, 0, 0, 0, 1, KVC_EVENT_STORED, 200);
	expect_seen(eye, 1, 0, 1, 1, KVC_EVENT_DELETED, 100);
	expect_seen(eye, 2, slot, 2, 1, KVC_EVENT_STORED, 300);
	expect_seen(eye, 3, 0, 1, 2, KVC_EVENT_STORED, 400);
	assert_int_equal(eye->lost, 0);
	/* woken by the first one; by the next only when nothing was left */
	assert_int_equal(eye->wakes, 1);
	assert_int_equal(rig_store(r, space, 3, 1, 1), 0);
	assert_int_equal(eye->wakes, 1);
	assert_int_equal(see(r, eye, ROOM), 1);
	assert_int_equal(see(r, eye, ROOM), 0);
	assert_int_equal(rig_store(r, space, 4, 1, 1), 0);
	assert_int_equal(eye->wakes, 2);
	kvc_unwatch(r->pool);
	assert_int_equal(rig_store(r, space, 5, 1, 1), 0);
	assert_int_equal(see(r, eye, ROOM), 1);
	assert_int_equal(eye->wakes, 2);
	/* one who listens alone is told, whether somebody watched or not */
	listen(r, space, &e);
	assert_int_equal(rig_store(r, space, 6, 1, 6), 0);
	assert_int_equal(hear(&e, ROOM), 1);
	kvc_unlisten(r->pool, &e.l);
	kvc_domain_put(r->pool, space);
	kvc_domain_put(r->pool, later);
	free(eye);
}

static void what_a_watcher_misses_is_counted(void **state)
{
	struct rig *r = *state;
	struct eye *eye = watch(r);
	u32 i;

	for (i = 0; i < KVC_WATCHED_MAX / 2 + 5; i++) {
		assert_int_equal(rig_store(r, r->d, 1, i, 10 + i % 100), 0);
		assert_int_equal(rig_delete(r, r->d, 1), 0);
		if (i % 100 == 0)
			rig_work(r);
	}
	assert_int_equal(see(r, eye, 1), 1);
	assert_int_equal(eye->lost, 10);
	expect_seen(eye, 0, 0, 0, 1, KVC_EVENT_STORED, 15);
	assert_int_equal(see(r, eye, 1), 1);
	assert_int_equal(eye->lost, 0);
	expect_seen(eye, 0, 0, 0, 1, KVC_EVENT_DELETED, 15);
	/* of a member that is lost its owner tells */
	kvc_member_fail(r->pool, 1);
	while (see(r, eye, ROOM))
		for (i = 0; i < eye->nr; i++)
			assert_int_not_equal(eye->got[i].event.kind, KVC_EVENT_MEMBER_LOST);
	kvc_unwatch(r->pool);
	free(eye);
}

static bool refuse_all(size_t size)
{
	(void)size;
	return true;
}

static void no_memory_to_listen(void **state)
{
	struct rig *r = *state;
	struct ear e = { 0 };

	os_alloc_fault = refuse_all;
	assert_int_equal(kvc_listen(r->pool, r->d, &e.l), -ENOMEM);
	os_alloc_fault = NULL;
	assert_int_equal(rig_store(r, r->d, 1, 1, 100), 0);
	listen(r, r->d, &e);
	kvc_unlisten(r->pool, &e.l);
}

#define T(f) cmocka_unit_test_setup_teardown(f, make, unmake)

static const struct CMUnitTest events_tests[] = {
	T(pages_that_come_and_go),
	T(what_fails_verification),
	T(a_replaced_page),
	T(of_nobody_else),
	T(wakes),
	T(refused_ones_are_not_taken),
	T(the_oldest_are_overwritten),
	T(a_lost_member),
	T(reclaim_tells),
	T(a_watcher_sees_all),
	T(what_a_watcher_misses_is_counted),
	T(no_memory_to_listen),
};

TEST_GROUP(events);
