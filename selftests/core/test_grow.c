// SPDX-License-Identifier: GPL-2.0
/*
 * What members that come and go do to those who know nothing of it: who executes the work, who stores meanwhile, and
 * who reads the superblocks afterwards.
 */
#include <pthread.h>

#include "log/log.h"
#include "test.h"

#define PAGE	100000U

static struct rig *rig;		/* of the hooks below */
static u32 kicks[8];
static u32 spaces;
static bool armed;

static void count_kick(void *owner, u32 member)
{
	(void)owner;
	kicks[member]++;
}

static void count_space(void *owner)
{
	(void)owner;
	spaces++;
}

static const struct kvc_ops counting = { .kick = count_kick, .space = count_space };

/* A pool of one member that has no room left until its work is done. Returns the pages. */
static u32 fill_up(struct rig *r)
{
	u32 id = 0;

	while (!rig_store(r, r->d, id, id, PAGE))
		id++;
	return id;
}

static int refused_store(struct rig *r)
{
	struct kvc_store st;
	int ret = rig_begin(r, r->d, 999999, PAGE, &st);

	assert_true(ret < 0);
	return ret;
}

/* Each allocation of an add is a chance for others to be refused; the one that is too large fails. */
static bool refuse_meanwhile(size_t bytes)
{
	if (armed) {
		armed = false;
		refused_store(rig);
		armed = true;
	}
	return bytes > 1U << 30;
}

/* Nobody executes the work of a member before it has joined, whether it does or not. */
static void not_kicked_before_it_joins(void **state)
{
	static const u8 uuid[KVC_UUID_LEN] = { 7 };

	(void)state;
	rig = rig_small(1);
	fill_up(rig);
	rig->pool->ops = &counting;
	memset(kicks, 0, sizeof(kicks));
	os_alloc_fault = refuse_meanwhile;
	armed = true;
	assert_int_equal(kvc_member_add(rig->pool, uuid, 16U << 20), -ENOMEM);
	refused_store(rig);
	assert_int_equal(kvc_member_add(rig->pool, uuid, 16), 1);
	armed = false;
	os_alloc_fault = NULL;
	refused_store(rig);
	assert_true(kicks[0] > 2);
	assert_int_equal(kicks[1], 0);
	kvc_member_join(rig->pool, 1);
	assert_true(kicks[1] > 0);
	rig_free(rig);
}

static void *join_one(void *arg)
{
	struct kvc_work w;

	(void)arg;
	if (rig_add_member(rig, 16) != 1)
		abort();
	kvc_member_join(rig->pool, 1);
	while (kvc_work_next(rig->pool, 1, &w) == 1)
		kvc_work_done(rig->pool, &w, 0);
	return NULL;
}

/* The first time that the full member is kicked another one joins, and has room at once. */
static void join_at_kick(void *owner, u32 member)
{
	pthread_t thread;

	(void)owner;
	if (member || !armed)
		return;
	armed = false;
	assert_int_equal(pthread_create(&thread, NULL, join_one, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static const struct kvc_ops joining = { .kick = join_at_kick, .space = count_space };

/* Somebody who is being refused while a member joins finds the room there. */
static void room_comes_while_refused(void **state)
{
	struct kvc_lease l[64];
	struct kvc_store st;
	u32 n, i;

	(void)state;
	rig = rig_small(1);
	n = fill_up(rig);
	rig_flush(rig);
	assert_in_range(n, 1, 64);
	for (i = 0; i < n; i++)
		assert_int_equal(rig_lease(rig, rig->d, i, &l[i]), 0);
	rig->pool->ops = &joining;
	armed = true;
	assert_int_equal(rig_begin(rig, rig->d, 999999, PAGE, &st), 0);
	assert_int_equal(st.member, 1);
	kvc_store_abort(rig->pool, &st);
	for (i = 0; i < n; i++)
		kvc_lease_put(rig->pool, &l[i]);
	rig_free(rig);
}

/* What @member gets now; @s: room for it */
static struct kvc_witness witness(struct rig *r, u32 member, struct kvc_super *s)
{
	u8 *buf = calloc(1, KVC_SUPER_BYTES);

	assert_non_null(buf);
	kvc_super_encode(kvc_super_of(r->pool), member, buf);
	assert_int_equal(kvc_super_decode(buf, s), KVC_OK);
	free(buf);
	return (struct kvc_witness){ member, s->seq, s->members };
}

/* A member that is lost while a configuration is written leaves one history, with it and without. */
static void lost_between_two_writes(void **state)
{
	struct kvc_super *s = calloc(3, sizeof(*s));
	struct kvc_witness w[3];
	struct rig *r = rig_small(3);

	(void)state;
	assert_non_null(s);
	w[0] = witness(r, 0, &s[0]);
	assert_int_equal(kvc_tenant_add(r->pool, "t", 0, 0, 0600, 0), 1);
	w[1] = witness(r, 1, &s[1]);
	kvc_member_fail(r->pool, 0);
	w[2] = witness(r, 2, &s[2]);
	assert_int_equal(w[1].seq, w[2].seq);
	assert_true(kvc_one_history(w + 1, 2));
	assert_true(kvc_one_history(w, 3));
	/* and is noted with the next */
	kvc_super_touch(r->pool);
	w[1] = witness(r, 1, &s[1]);
	w[2] = witness(r, 2, &s[2]);
	assert_int_equal(s[1].members[0].flags, KVC_MEMBER_ABSENT);
	assert_int_equal(s[1].members[1].flags | s[1].members[2].flags, 0);
	assert_true(kvc_one_history(w, 3));
	free(s);
	rig_free(r);
}

/*
 * A and B; B was missing and was removed, and N took its number. Then B was attached alone for long: its configuration
 * is the newest, and A knows N, not B.
 */
static void number_of_another(void **state)
{
	struct kvc_super *b = calloc(2, sizeof(*b)), *a = b + 1;
	struct kvc_witness w[2];
	u32 i;

	(void)state;
	assert_non_null(b);
	for (i = 0; i < 2; i++) {
		b[i].nr_members = 2;
		b[i].members[0].nr_segments = 16;
		b[i].members[1].nr_segments = 16;
		memset(b[i].members[0].uuid, 'a', KVC_UUID_LEN);
	}
	memset(b->members[1].uuid, 'b', KVC_UUID_LEN);
	memset(a->members[1].uuid, 'n', KVC_UUID_LEN);
	b->members[0].flags = KVC_MEMBER_ABSENT;
	w[0] = (struct kvc_witness){ 0, 9, a->members };
	w[1] = (struct kvc_witness){ 1, 12, b->members };
	assert_false(kvc_one_history(w, 2));
	free(b);
}

/*
 * A and B; B was lost, N was added, and then B was attached alone. N was not there with B because B does not know it.
 */
static void added_without_another(void **state)
{
	struct kvc_super *a = calloc(2, sizeof(*a)), *b = a + 1;
	struct kvc_witness w[3];
	u32 i;

	(void)state;
	assert_non_null(a);
	for (i = 0; i < 2; i++) {
		memset(a[i].members[0].uuid, 'a', KVC_UUID_LEN);
		memset(a[i].members[1].uuid, 'b', KVC_UUID_LEN);
		a[i].members[0].nr_segments = 16;
		a[i].members[1].nr_segments = 16;
		a[i].members[i ? 0 : 1].flags = KVC_MEMBER_ABSENT;
	}
	memset(a->members[2].uuid, 'n', KVC_UUID_LEN);
	a->members[2].nr_segments = 16;
	w[0] = (struct kvc_witness){ 0, 9, a->members };
	w[1] = (struct kvc_witness){ 1, 8, b->members };
	w[2] = (struct kvc_witness){ 2, 9, a->members };
	assert_false(kvc_one_history(w, 3));
	free(a);
}

/* A was lost, N was added when nobody else was there, and told the loss. */
static void added_after_all_were_lost(void **state)
{
	struct kvc_super *a = calloc(2, sizeof(*a)), *n = a + 1;
	struct kvc_witness w[2];
	u32 i;

	(void)state;
	assert_non_null(a);
	for (i = 0; i < 2; i++) {
		memset(a[i].members[0].uuid, 'a', KVC_UUID_LEN);
		a[i].members[0].nr_segments = 16;
	}
	memset(n->members[1].uuid, 'n', KVC_UUID_LEN);
	n->members[1].nr_segments = 16;
	n->members[0].flags = KVC_MEMBER_ABSENT;
	w[0] = (struct kvc_witness){ 0, 10, a->members };
	w[1] = (struct kvc_witness){ 1, 14, n->members };
	assert_true(kvc_one_history(w, 2));
	free(a);
}

/* All pages leased as they come: work ends, whatever number of segments is kept available. */
static void leases_on_everything(void **state)
{
	static struct kvc_lease l[2000];
	u32 sizes[] = { 100, 300, 900 }, i, n;
	struct kvc_work w;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct rig *r = rig_new(1, sizes[i], KVC_SEGMENT_MIN, KVC_CHUNK_MIN);

		rig_keep_leases(r);
		for (n = 0; !rig_store(r, r->d, n, n, PAGE); n++) {
			assert_true(n < ARRAY_SIZE(l));
			assert_int_equal(rig_lease(r, r->d, n, &l[n]), 0);
			while (rig_step(r, 0, &w))
				;
		}
		assert_true(n > sizes[i]);
		while (n)
			kvc_lease_put(r->pool, &l[--n]);
		rig_free(r);
	}
}

static const struct CMUnitTest grow_tests[] = {
	cmocka_unit_test(not_kicked_before_it_joins),
	cmocka_unit_test(room_comes_while_refused),
	cmocka_unit_test(lost_between_two_writes),
	cmocka_unit_test(number_of_another),
	cmocka_unit_test(added_without_another),
	cmocka_unit_test(added_after_all_were_lost),
	cmocka_unit_test(leases_on_everything),
};

TEST_GROUP(grow);
