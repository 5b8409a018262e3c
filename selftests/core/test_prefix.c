// SPDX-License-Identifier: GPL-2.0
/*
 * The prefix policy: whose prompt a page belongs to, what it is worth, and who goes.
 *
 * Prompts are rows of key numbers. serve() does what a server does: match all keys, load what is there, store the rest.
 */
#include <pthread.h>

#include "log/log.h"
#include "test.h"

#define PAGE		30000U
#define PROMPT_MAX	64U

struct prompt {
	u32	id[PROMPT_MAX];
	u32	nr;
};

static int make(void **state)
{
	*state = rig_segments(16);
	return 0;
}

static int unmake(void **state)
{
	rig_free(*state);
	return 0;
}

/* Append @count keys from @id on */
static void extend(struct prompt *t, u32 id, u32 count)
{
	while (count--) {
		assert_true(t->nr < PROMPT_MAX);
		t->id[t->nr++] = id++;
	}
}

static struct prompt row(u32 id, u32 count)
{
	struct prompt t = { .nr = 0 };

	extend(&t, id, count);
	return t;
}

static u32 match(struct rig *r, const struct prompt *t)
{
	u8 keys[PROMPT_MAX][KVC_KEY_LEN];
	u32 i;

	for (i = 0; i < t->nr; i++)
		key_make(keys[i], t->id[i]);
	return kvc_match(r->pool, r->d, (const u8 (*)[KVC_KEY_LEN])keys, t->nr, NULL, NULL, NULL);
}

static int begin(struct rig *r, u32 id, u32 depth, struct kvc_store *st)
{
	u8 key[KVC_KEY_LEN];
	int ret;

	key_make(key, id);
	while ((ret = kvc_store_begin(r->pool, r->d, key, PAGE, depth, KVC_ANY_MEMBER, st)) == -EAGAIN)
		rig_work(r);
	return ret;
}

/* The pages found; the stream that the last page was stored in, in *stream */
static u32 serve_to(struct rig *r, const struct prompt *t, u32 *stream)
{
	u32 found = match(r, t), i;
	struct kvc_store st;

	for (i = 0; i < found; i++)
		assert_int_equal(rig_load(r, r->d, t->id[i], t->id[i]), 0);
	for (; i < t->nr; i++) {
		int ret = begin(r, t->id[i], i + 1, &st);

		if (ret == -EEXIST)
			continue;
		assert_int_equal(ret, 0);
		*stream = st.stream;
		rig_write_page(r, &st, t->id[i]);
		kvc_store_commit(r->pool, &st);
	}
	rig_work(r);
	return found;
}

static u32 serve(struct rig *r, const struct prompt *t)
{
	u32 stream;

	return serve_to(r, t, &stream);
}

static u32 whole_mark(struct rig *r, u32 id)
{
	u8 key[KVC_KEY_LEN];
	u32 entry;

	key_make(key, id);
	entry = kvc_index_find(r->pool, kvc_bucket(r->pool, r->d, key), r->d, key);
	assert_int_not_equal(entry, KVC_NONE);
	return kvc_entry(r->pool, entry)->mark;
}

static u32 mark_of(struct rig *r, u32 id)
{
	return kvc_mark_id(whole_mark(r, id));
}

static u32 shared(struct rig *r, u32 id)
{
	return kvc_mark_shared(whole_mark(r, id));
}

static struct kvc_request request_of(struct rig *r, u32 id)
{
	struct kvc_request q;

	assert_true(kvc_request_get(r->pool, mark_of(r, id), &q));
	return q;
}

static u32 present(struct rig *r, const struct prompt *t)
{
	u32 i, n = 0;

	for (i = 0; i < t->nr; i++)
		n += rig_query(r, r->d, t->id[i]) > 0;
	return n;
}

/* Pages belong to the last request that asked for them, found or stored; strays to none. */
static void whose_page(void **state)
{
	struct prompt a = row(100, 6), b = row(100, 4);
	struct rig *r = *state;
	u32 i;

	extend(&b, 200, 3);
	serve(r, &a);
	for (i = 1; i < a.nr; i++)
		assert_int_equal(mark_of(r, a.id[i]), mark_of(r, a.id[0]));
	assert_int_equal(request_of(r, 100).pages, 6);
	assert_int_equal(serve(r, &b), 4);
	for (i = 1; i < b.nr; i++)
		assert_int_equal(mark_of(r, b.id[i]), mark_of(r, b.id[0]));
	assert_int_equal(request_of(r, 200).pages, 7);
	assert_int_equal(request_of(r, 105).pages, 6);
	assert_int_equal(rig_store(r, r->d, 300, 1, PAGE), 0);
	assert_true(mark_of(r, 300) & KVC_STRAY);
	assert_int_equal(kvc_class_stray(whole_mark(r, 300)), KVC_CLASS_STRAY);
	assert_int_equal(rig_load(r, r->d, 300, 1), 0);
	assert_int_equal(kvc_class_stray(whole_mark(r, 300)), KVC_CLASS_LOADED);
	/* Loads do not take a page from a request that asked for it just now; later they do. */
	assert_int_equal(rig_load(r, r->d, 200, 200), 0);
	assert_int_equal(request_of(r, 200).pages, 7);
	rig_fill(r, 1000, PAGE, 20);
	kvc_request_strays(r->pool);
	assert_int_equal(rig_load(r, r->d, 200, 200), 0);
	assert_int_equal(kvc_class_stray(whole_mark(r, 200)), KVC_CLASS_LOADED);
	assert_int_equal(request_of(r, 201).pages, 7);
	/* Loads are counted, though not more often than strays get another request. */
	assert_int_equal(rig_load(r, r->d, 200, 200), 0);
	assert_int_equal(kvc_mark_shared(whole_mark(r, 200)), 1);
	rig_fill(r, 2000, PAGE, 1);
	kvc_request_strays(r->pool);
	assert_int_equal(rig_load(r, r->d, 200, 200), 0);
	assert_int_equal(kvc_mark_shared(whole_mark(r, 200)), 2);
	/* Who asks for it by MATCH gets it back, and is the first to share it. */
	assert_int_equal(match(r, &b), 7);
	assert_int_equal(request_of(r, 200).pages, 7);
	assert_int_equal(shared(r, 200), 1);
}

/* The same prompt once more is the same request; another with the same tail is not. */
static void asked_again(void **state)
{
	struct prompt a = row(100, 6), b = row(100, 5);
	struct rig *r = *state;
	u32 first;

	extend(&b, 700, 1);
	serve(r, &a);
	first = mark_of(r, 100);
	assert_int_equal(match(r, &a), 6);
	assert_int_equal(mark_of(r, 103), first);
	serve(r, &b);
	assert_int_not_equal(mark_of(r, 103), first);
}

/* Turn by turn the last page is replaced. Who goes on from the middle of another's prompt is nobody's next turn. */
static void turns(void **state)
{
	struct prompt a = row(100, 6), b = row(100, 5), c, d = row(100, 5), e = row(100, 3);
	struct rig *r = *state;

	serve(r, &a);
	assert_int_equal(request_of(r, 100).turn, 1);
	assert_int_equal(request_of(r, 100).class, kvc_class(1, 6));
	extend(&b, 200, 4);
	serve(r, &b);
	assert_int_equal(request_of(r, 100).turn, 2);
	assert_int_equal(request_of(r, 100).class, kvc_class(2, 4));
	c = b;
	c.nr--;
	extend(&c, 300, 20);
	serve(r, &c);
	assert_int_equal(request_of(r, 100).turn, 3);
	assert_int_equal(request_of(r, 100).class, kvc_class(3, 21));
	/* A second one that goes on where the first turn ended: a shared prefix */
	extend(&d, 400, 4);
	serve(r, &d);
	assert_int_equal(request_of(r, 400).turn, 1);
	extend(&e, 500, 4);
	serve(r, &e);
	assert_int_equal(request_of(r, 500).turn, 1);
	assert_int_equal(request_of(r, 500).class, kvc_class(1, 7));
}

/* A prompt of @count keys and a question of its own behind them */
static struct prompt question(u32 id, u32 count, u32 own, u32 pages)
{
	struct prompt t = row(id, count);

	extend(&t, own, pages);
	return t;
}

/*
 * A document comes back behind other questions of any length: each continues the one before, whichever it is, and what
 * has only half of it in common is nobody's next turn.
 */
static void asked_about(void **state)
{
	struct prompt first = question(100, 20, 1000, 3), second = question(100, 20, 2000, 1);
	struct prompt third = question(100, 20, 3000, 2), fourth = question(100, 20, 4000, 1);
	struct prompt half = question(100, 10, 5000, 10), few = question(100, 4, 6000, 3);
	struct prompt longer = question(100, 20, 7000, 40), fifth = question(100, 20, 8000, 2);
	struct rig *r = *state;

	serve(r, &first);
	assert_int_equal(request_of(r, 100).turn, 1);
	serve(r, &second);
	assert_int_equal(request_of(r, 100).turn, 2);
	serve(r, &third);
	assert_int_equal(request_of(r, 100).turn, 3);
	serve(r, &fourth);
	assert_int_equal(request_of(r, 100).turn, 4);
	assert_int_equal(request_of(r, 4000).class, kvc_class(4, 1));
	serve(r, &half);
	assert_int_equal(request_of(r, 5000).turn, 1);
	serve(r, &few);
	assert_int_equal(request_of(r, 6000).turn, 1);
	/* nor does it come back as a whole that had much more behind */
	serve(r, &longer);
	assert_int_equal(request_of(r, 7000).turn, 5);
	serve(r, &fifth);
	assert_int_equal(request_of(r, 8000).turn, 1);
}

/* What others than the next turn ask for is shared, and that is counted; the next turn's own pages are not. */
static void shared_pages(void **state)
{
	struct prompt first = row(100, 8), next = row(100, 7);
	struct rig *r = *state;
	u32 i;

	serve(r, &first);
	extend(&next, 200, 3);
	serve(r, &next);
	assert_int_equal(shared(r, 100), 0);
	for (i = 1; i < 20; i++) {
		struct prompt other = row(100, 4);

		extend(&other, 1000 * i, 3);
		serve(r, &other);
		assert_int_equal(shared(r, 103), min(i, KVC_SHARED_MAX));
		assert_int_equal(shared(r, 104), 0);
		assert_int_equal(shared(r, 1000 * i), 0);
	}
	assert_int_equal(rig_load(r, r->d, 100, 100), 0);
	assert_int_equal(shared(r, 100), KVC_SHARED_MAX);
}

/* Without its first page a prompt goes before an older one that is whole. */
static void behind_a_hole(void **state)
{
	struct prompt a = row(100, 21), b = row(200, 21);
	struct rig *r = *state;
	u32 n = 1000;

	serve(r, &a);
	serve(r, &b);
	assert_int_equal(rig_delete(r, r->d, 200), 0);
	/* the rest is in an open segment */
	while (present(r, &b) > 7)
		n = rig_fill(r, n, PAGE, 7);
	assert_int_equal(present(r, &a), 21);
}

/* Match all of the prompt, store the first @count pages of it. */
static void serve_some(struct rig *r, const struct prompt *t, u32 count)
{
	struct kvc_store st;
	u32 i;

	match(r, t);
	for (i = 0; i < count; i++) {
		assert_int_equal(begin(r, t->id[i], i + 1, &st), 0);
		rig_write_page(r, &st, t->id[i]);
		kvc_store_commit(r->pool, &st);
	}
	rig_work(r);
}

/* A request reaches as far as pages of it were found or stored, by whomever. */
static void reach(void **state)
{
	struct prompt a = row(100, 14), b = row(100, 8), c = row(100, 14);
	struct rig *r = *state;
	struct kvc_store st;

	serve_some(r, &a, 5);
	assert_int_equal(request_of(r, 100).pages, 14);
	assert_int_equal(request_of(r, 100).reach, 5);
	extend(&b, 200, 3);
	assert_int_equal(match(r, &b), 5);
	assert_int_equal(request_of(r, 100).reach, 5);
	assert_int_equal(begin(r, 100, 1, &st), -EEXIST);
	assert_int_equal(request_of(r, 100).reach, 5);
	/* named last by a new one; stored before that matched, so it is there by the time of its own store */
	c.id[13] = 999;
	assert_int_equal(begin(r, 105, 6, &st), 0);
	assert_int_equal(match(r, &c), 5);
	rig_write_page(r, &st, 105);
	kvc_store_commit(r->pool, &st);
	assert_int_equal(request_of(r, 100).reach, 5);
	assert_int_equal(begin(r, 105, 6, &st), -EEXIST);
	assert_int_equal(request_of(r, 100).reach, 6);
}

/* What was named and not stored is not behind anything: the oldest goes first, though it named as much as the others. */
static void named_only(void **state)
{
	struct prompt a = row(100, 14), b = row(200, 14);
	struct rig *r = *state;
	u32 n = 0;

	serve_some(r, &a, 7);
	serve(r, &b);
	while (present(r, &a) == 7 && present(r, &b) == 14) {
		struct prompt t = row(1000 * ++n, 14);

		serve(r, &t);
	}
	assert_int_equal(present(r, &a), 0);
}

/* The end of a prompt goes before its beginning, though both were stored at once and the beginning first. */
static void ends_first(void **state)
{
	struct rig *r = *state;
	u32 n = 0, i;

	while (!rig_stats(r).evicted_pages) {
		struct prompt t = row(1000 * ++n, 28);

		serve(r, &t);
	}
	for (i = 1; i <= n; i++) {
		struct prompt head = row(1000 * i, 14), end = row(1000 * i + 14, 14);

		assert_true(present(r, &head) >= present(r, &end));
	}
}

/* A conversation of two turns; the second replaces the end of the first, or does not. Is its end among the lasting? */
static bool end_is_lasting(struct rig *r, u32 id, bool replaced)
{
	struct prompt t = row(id, 4);
	u32 stream;

	serve(r, &t);
	t.nr -= replaced;
	extend(&t, id + 100, 2);
	serve_to(r, &t, &stream);
	return stream == KVC_STREAM_NEW + KVC_HEAD_LONG;
}

/* Where ends are replaced, they are kept apart from what lives longer; where they come back, they are not. */
static void ends_apart(void **state)
{
	struct rig *r = *state;
	u32 i, lasting;

	assert_true(end_is_lasting(r, 1000, true));
	for (i = 0, lasting = 0; i < 60; i++)
		lasting += end_is_lasting(r, 10000 + 1000 * i, true);
	assert_in_range(lasting, 20, 40);
	for (i = 0; i < 60; i++)
		end_is_lasting(r, 100000 + 1000 * i, false);
	for (i = 0, lasting = 0; i < 20; i++)
		lasting += end_is_lasting(r, 200000 + 1000 * i, false);
	assert_in_range(lasting, 15, 20);
}

/* The pages of a removed tenant are the first to go, whatever they were worth. */
static void removed_tenant(void **state)
{
	struct prompt a = row(100, 21);
	struct rig *r = *state;
	int slot = kvc_tenant_add(r->pool, "one", 0, 0, 0600, 0);
	struct kvc_domain *d = rig_domain(r, (u32)slot, 0), *own = r->d;
	struct prompt b = row(200, 42);
	u32 i;

	serve(r, &a);
	r->d = d;
	for (i = 0; i < 20; i++)
		serve(r, &b);
	r->d = own;
	kvc_domain_put(r->pool, d);
	assert_int_equal(kvc_tenant_remove(r->pool, "one"), 0);
	kvc_tenants_gone(r->pool);
	rig_fill(r, 1000, PAGE, 60);
	assert_true(rig_stats(r).segments_reclaimed > 3);
	assert_int_equal(present(r, &a), 21);
	for (i = 0; i < 60; i++)
		assert_true(rig_query(r, r->d, 1000 + i) > 0);
	assert_int_equal(rig_stats(r).moved_pages, 0);
}

/* Though the young are worth more than the old: what hardly ever comes back is not worth to be written again. */
static void what_hardly_returns_is_not_moved(void **state)
{
	struct rig *r = rig_segments(40);
	struct prompt t;
	u64 moved = 0;
	u32 i;

	(void)state;
	for (i = 0; i < 6000; i++) {
		if (i == 3000)
			moved = rig_stats(r).moved_pages;
		/* one of 200 is continued soon */
		t = row(1000 + 16 * i, 4);
		serve(r, &t);
		if (i % 200)
			continue;
		extend(&t, 1000 + 16 * i + 8, 4);
		serve(r, &t);
	}
	assert_true(rig_stats(r).segments_reclaimed > 100);
	assert_int_equal(rig_stats(r).moved_pages, moved);
	rig_free(r);
}

/* What was stored just now stays, though all else is worth more. */
static void newest_stays(void **state)
{
	struct rig *r = *state;
	u32 i, j;

	/* nobody loads strays, but for those just before the newest */
	rig_fill(r, 50000, PAGE, 400);
	for (i = 1; i <= 40; i++) {
		struct prompt t = row(1000 * i, 7);

		serve(r, &t);
		serve(r, &t);
	}
	/* no worker runs */
	for (i = 90000; !rig_store(r, r->d, i, i, PAGE); i++)
		;
	for (j = 90000; j < i - 7; j++)
		assert_int_equal(rig_load(r, r->d, j, j), 0);
	rig_work(r);
	assert_true(rig_query(r, r->d, i - 1) > 0);
}

/* However much is worth keeping, of five bytes stored no more than one is rewritten. */
static void rewriting_has_a_limit(void **state)
{
	/* so few segments that all pages share them */
	struct rig *r = rig_segments(11);
	struct kvc_stats st;
	u32 i;

	(void)state;
	for (i = 0; i < 200; i++) {
		struct prompt t = row(100, min(i / 4 + 1, 24U));

		serve(r, &t);
		rig_fill(r, 1000 + 5 * i, PAGE, 5);
	}
	st = rig_stats(r);
	rig_free(r);
	assert_true(st.moved_bytes > 0);
	assert_true(5 * st.moved_bytes <= st.store_bytes + 5 * KVC_SEGMENT_MIN);
}

/* What a cache of @room pages would do that evicts the page not used for longest; the newest is the last. */
struct lru {
	u32	id[512];
	u32	nr, room;
};

/* Was the page there? Now it is. */
static bool lru_use(struct lru *c, u32 id)
{
	bool there;
	u32 i;

	for (i = 0; i < c->nr && c->id[i] != id; i++)
		;
	there = i < c->nr;
	if (!there && c->nr < c->room)
		c->nr++;
	else if (!there)
		i = 0;
	memmove(&c->id[i], &c->id[i + 1], (c->nr - 1 - i) * sizeof(c->id[0]));
	c->id[c->nr - 1] = id;
	return there;
}

/* Leading pages found */
static u32 lru_serve(struct lru *c, const struct prompt *t)
{
	u32 found = 0, i, j;

	for (i = t->nr; i--;) {
		for (j = 0; j < c->nr && c->id[j] != t->id[i]; j++)
			;
		found = j == c->nr ? 0 : found + 1;
	}
	for (i = t->nr; i--;)
		lru_use(c, t->id[i]);
	return found;
}

/* The same of pages that are loaded all the time and are more than the credit is for: some go. */
static void moves_of_hot_pages_have_a_limit(void **state)
{
	struct rig *r = rig_segments(16);
	u32 n = 1000, i, j;
	struct kvc_stats st;

	(void)state;
	for (i = 0; i < 60; i++) {
		for (j = 0; j < 50; j++)
			if (rig_load(r, r->d, j, j))
				rig_fill(r, j, PAGE, 1);
		n = rig_fill(r, n, PAGE, 7);
	}
	st = rig_stats(r);
	rig_free(r);
	assert_true(st.moved_bytes > 0);
	assert_true(5 * st.moved_bytes <= st.store_bytes + 5 * KVC_SEGMENT_MIN);
}

/* Conversations that go on for a while, each prompt of theirs between two long ones that nobody asks for again */
static void conversations_stay(void **state)
{
	struct rig *r = rig_segments(40);
	struct lru lru = { .room = 40 * 7 };
	u32 hits = 0, lru_hits = 0, n = 10000, i;
	struct prompt talk[8];

	(void)state;
	for (i = 0; i < 8; i++)
		talk[i] = row(100000 * (i + 1), 4);
	for (i = 0; i < 400; i++) {
		struct prompt *t = &talk[i % 8], once = row(n, 16);

		hits += serve(r, t);
		lru_hits += lru_serve(&lru, t);
		/* the end is replaced; after ten turns another one begins */
		t->nr--;
		extend(t, t->id[0] + 1000 * (i / 8 + 1), 3);
		if (t->nr > 24)
			*t = row(t->id[0] + 50000, 4);
		n += 16;
		serve(r, &once);
		lru_serve(&lru, &once);
	}
	rig_free(r);
	assert_true(10 * hits >= 12 * lru_hits);
}

#define HOT		32U
#define FLOOD		20000U

/* What happens to a pool at the same time; without I/O: nobody looks at the bytes. */
struct busy {
	struct rig *r;
	struct os_atomic ended;		/* the flood has */
	u32	nr_members, lost;
};

/* *seg: which of its member it goes to, from any number on; unless it fails */
static int store_bare_to(struct rig *r, u32 id, u32 length, u64 *seg)
{
	struct kvc_store st;
	u8 key[KVC_KEY_LEN];
	int ret;

	key_make(key, id);
	ret = kvc_store_begin(r->pool, r->d, key, length, 0, KVC_ANY_MEMBER, &st);
	if (ret)
		return ret;
	st.no_crcs = true;
	*seg = st.offset / KVC_SEGMENT_MIN;
	kvc_store_commit(r->pool, &st);
	return 0;
}

static int store_bare(struct rig *r, u32 id, u32 length)
{
	u64 seg;

	return store_bare_to(r, id, length, &seg);
}

static void *load_hot(void *arg)
{
	struct busy *b = arg;
	struct kvc_load ld;
	u32 i;

	for (i = 0; !os_atomic_read(&b->ended) && !b->lost; i++) {
		if (rig_hold(b->r, b->r->d, i % HOT, &ld))
			b->lost++;
		else
			kvc_load_end(b->r->pool, &ld, 0);
	}
	return NULL;
}

static void *store_flood(void *arg)
{
	struct busy *b = arg;
	u32 id = 100000;

	while (id < 100000 + FLOOD)
		id += store_bare(b->r, id, 4096) == 0;
	os_atomic_inc(&b->ended);
	return NULL;
}

static void work_bare(struct busy *b)
{
	struct kvc_work w;
	u32 i;

	for (i = 0; i < b->nr_members; i++)
		while (kvc_work_next(b->r->pool, i, &w) == 1)
			kvc_work_done(b->r->pool, &w, 0);
}

/* Pages that are loaded all the time stay, whatever else is stored meanwhile that nobody loads. */
static void hot_beside_flood(u32 members)
{
	struct busy b = { .r = rig_new(members, 40, KVC_SEGMENT_MIN, KVC_CHUNK_MIN), .nr_members = members };
	pthread_t loads, stores;
	u32 i;

	for (i = 0; i < 256; i++) {
		assert_int_equal(store_bare(b.r, i, 4096), 0);
		work_bare(&b);
	}
	assert_int_equal(pthread_create(&loads, NULL, load_hot, &b), 0);
	assert_int_equal(pthread_create(&stores, NULL, store_flood, &b), 0);
	while (!os_atomic_read(&b.ended))
		work_bare(&b);
	pthread_join(stores, NULL);
	pthread_join(loads, NULL);
	assert_true(rig_stats(b.r).evicted_pages > FLOOD / 2);
	rig_free(b.r);
	assert_int_equal(b.lost, 0);
}

static void hot_pages_of_one_member(void **state)
{
	(void)state;
	hot_beside_flood(1);
}

static void hot_pages_of_two_members(void **state)
{
	(void)state;
	hot_beside_flood(2);
}

static struct busy *in_window;

/* Now and then when the engine has dropped its locks: a store, and loads of all hot pages */
static void store_and_load(void)
{
	static u32 id = 500000, turn;
	struct busy *b = in_window;
	struct kvc_load ld;
	u32 i;

	if (++turn % 61)
		return;
	os_window = NULL;
	id += store_bare(b->r, id, 4096) == 0;
	for (i = 0; i < HOT; i++) {
		if (rig_hold(b->r, b->r->d, i, &ld))
			b->lost++;
		else
			kvc_load_end(b->r->pool, &ld, 0);
	}
	os_window = store_and_load;
}

/* The same at any point of the work on victims: what is loaded between survey and move stays, too. */
static void hot_pages_in_windows(void **state)
{
	struct busy b = { .r = rig_segments(40), .nr_members = 1 };
	u32 i;

	(void)state;
	in_window = &b;
	for (i = 0; i < 4000; i++) {
		store_bare(b.r, i, 4096);
		os_window = i < HOT ? NULL : store_and_load;
		work_bare(&b);
		os_window = NULL;
	}
	assert_true(rig_stats(b.r).evicted_pages > 1000);
	rig_free(b.r);
	assert_int_equal(b.lost, 0);
}

#define OVERTAKEN	1200U
#define APART		60U	/* pages from one that is hot to the next: in another segment */

/*
 * When the engine drops its locks for the so-manieth time in the choice of a victim all is leased that does not lie beside one hot page, until it
 * drops them again. Where a page lies its store told: a look would be a load.
 */
static struct {
	struct rig *r;
	u32	hot, left, stored, nr;
	u64	seg[OVERTAKEN];
	struct kvc_lease lease[OVERTAKEN];
} overtaking;

static bool end_leases(void)
{
	bool any = overtaking.nr;

	while (overtaking.nr)
		kvc_lease_put(overtaking.r->pool, &overtaking.lease[--overtaking.nr]);
	return any;
}

static void lease_all_cold(void)
{
	struct rig *r = overtaking.r;
	u32 i;

	if (r->pool->members[0].reclaim.victim || r->pool->members[0].survey->now != kvc_clock(r->pool))
		return;
	if (overtaking.left) {
		overtaking.left--;
		return;
	}
	os_window = NULL;
	if (end_leases())
		return;
	for (i = 1; i < overtaking.stored; i++)
		if (overtaking.seg[i] != overtaking.seg[overtaking.hot] &&
		    !rig_lease(r, r->d, i, &overtaking.lease[overtaking.nr]))
			overtaking.nr++;
	os_window = lease_all_cold;
}

/* @left: which of the times. How many hot pages were missed */
static u32 hot_pages_overtaken(u32 left)
{
	struct busy b = { .r = rig_segments(16), .nr_members = 1 };
	struct kvc_load ld;
	u32 i, hot;

	overtaking.r = b.r;
	for (i = 0; i < OVERTAKEN; i++) {
		store_bare_to(b.r, i, 4096, &overtaking.seg[i]);
		for (hot = 0; hot < i && hot < 10 * APART; hot += APART) {
			b.lost += rig_query(b.r, b.r->d, hot) < 0;
			/* not all the time: what was loaded since the segment was chosen stays anyway */
			if (i % 37 == 0 && !rig_hold(b.r, b.r->d, hot, &ld))
				kvc_load_end(b.r->pool, &ld, 0);
		}
		overtaking.hot = i % 10 * APART;
		overtaking.left = left;
		overtaking.stored = i;
		os_window = i < 10 * APART ? NULL : lease_all_cold;
		work_bare(&b);
		os_window = NULL;
		end_leases();
	}
	assert_true(rig_stats(b.r).evicted_pages > 100);
	rig_free(b.r);
	return b.lost;
}

/* The segment that was to go is leased before it is taken, as are all others but that of a hot page: this one stays. */
static void hot_pages_when_overtaken(void **state)
{
	u32 i;

	(void)state;
	for (i = 0; i < 40; i++)
		assert_int_equal(hot_pages_overtaken(i), 0);
}

#define AGAIN	400U

/*
 * Who does not ask by MATCH stores pages again that he needs, whether they are there or not, then loads some of them, and
 * then stores much else, half of the room. What was stored again is there when all of it was.
 */
static void stored_again_stays(void **state)
{
	struct busy b = { .r = rig_segments(24), .nr_members = 1 };
	u32 round, i, next = 10000, again = 0;
	struct kvc_load ld;
	int ret;

	(void)state;
	for (round = 0; round < 8; round++) {
		for (i = 0; i < AGAIN; i++) {
			while ((ret = store_bare(b.r, i, 4096)) == -EAGAIN)
				work_bare(&b);
			assert_true(ret == 0 || ret == -EEXIST);
			again += ret == -EEXIST;
			work_bare(&b);
		}
		for (i = 0; i < AGAIN; i++) {
			assert_true(rig_query(b.r, b.r->d, i) > 0);
			if (rng_chance(&b.r->rng, 4000)) {
				assert_int_equal(rig_hold(b.r, b.r->d, i, &ld), 0);
				kvc_load_end(b.r->pool, &ld, 0);
			}
		}
		for (i = 0; i < 600; i++) {
			while (store_bare(b.r, next, 4096) == -EAGAIN)
				work_bare(&b);
			next++;
			work_bare(&b);
		}
	}
	assert_true(rig_stats(b.r).evicted_pages > 2000 && again > 4 * AGAIN);
	rig_free(b.r);
}

/*
 * What came back after a long time is expected after that time again, whatever became of others of its class; not when
 * it is late, nor if nothing can be kept for so long.
 */
static void back_after_long(void **state)
{
	struct prompt first = question(100, 20, 1000, 1), second = question(100, 20, 2000, 1);
	struct prompt talk = question(300, 20, 3000, 1), next = question(300, 20, 4000, 1), same = row(500, 3);
	struct rig *r = rig_segments(40);
	struct kvc_values *v = r->pool->requests.values;
	struct kvc_request late, soon;
	u32 n = 10000, i;

	(void)state;
	serve(r, &first);
	serve(r, &same);
	n = rig_fill(r, n, PAGE, 90);
	serve(r, &second);
	serve(r, &same);
	serve(r, &talk);
	serve(r, &next);
	late = request_of(r, 100);
	soon = request_of(r, 300);
	assert_int_equal(late.class, soon.class);
	assert_in_range(late.gap, KVC_AGE_UNITS / 4, KVC_AGE_UNITS / 2);
	assert_in_range(request_of(r, 500).gap, KVC_AGE_UNITS / 4, KVC_AGE_UNITS / 2);
	assert_true(soon.gap < KVC_AGE_UNITS / 8);
	os_lock(&r->pool->requests.lock);
	for (i = 0; i < 1000; i++)
		kvc_values_seen(v, late.class);
	os_unlock(&r->pool->requests.lock);
	kvc_values_refresh(r->pool);
	n = rig_fill(r, n, PAGE, 70);
	assert_true(kvc_request_worth(r->pool, &late, late.class, kvc_clock(r->pool)) >
		    4 * kvc_request_worth(r->pool, &soon, soon.class, kvc_clock(r->pool)));
	rig_fill(r, n, PAGE, 70);
	assert_true(kvc_request_worth(r->pool, &late, late.class, kvc_clock(r->pool)) <=
		    kvc_request_worth(r->pool, &soon, soon.class, kvc_clock(r->pool)));
	rig_free(r);
	assert_int_equal(kvc_worth_again(0, 0), 0);
	assert_true(kvc_worth_again(KVC_AGE_UNITS, KVC_AGE_UNITS));
	assert_int_equal(kvc_worth_again(KVC_AGE_UNITS + 1, 0), 0);
}

/* Of pages that are worth the same those are moved that have more behind them elsewhere. */
static void moved_for_what_is_behind(void **state)
{
	struct prompt a = row(100, 24), b = row(200, 4);
	struct rig *r = *state;
	struct kvc_member *m = &r->pool->members[0];
	struct kvc_store st;
	struct kvc_load ld;
	u32 i;

	serve_some(r, &a, 3);
	serve(r, &b);
	for (i = 3; i < a.nr; i++) {
		assert_int_equal(begin(r, a.id[i], i + 1, &st), 0);
		rig_write_page(r, &st, a.id[i]);
		kvc_store_commit(r->pool, &st);
		rig_work(r);
	}
	rig_flush(r);
	assert_int_equal(rig_hold(r, r->d, 200, &ld), 0);
	kvc_load_end(r->pool, &ld, 0);
	m->credit = KVC_CREDIT * 3 * kvc_blocks(PAGE);
	m->reclaim.price = 1;
	kvc_victim_plan(m, kvc_seg(r->pool, ld.gseg));
	assert_int_equal(m->survey->nr, 2);
	for (i = 0; i < 2; i++) {
		const struct kvc_part *part = &m->survey->part[i];

		assert_int_equal(part->moved, part->id == mark_of(r, 100) ? 3 : 0);
	}
}

/* Store pages of a prompt that was matched, from @i on, as long as there is room; what the next one is told in *ret */
static u32 store_row(struct rig *r, const struct prompt *t, u32 i, enum kvc_head head, int *ret)
{
	struct kvc_store st;
	u8 key[KVC_KEY_LEN];

	for (; i < t->nr; i++) {
		key_make(key, t->id[i]);
		*ret = kvc_store_begin(r->pool, r->d, key, PAGE, i + 1, KVC_ANY_MEMBER, &st);
		if (*ret)
			return i;
		rig_write_page(r, &st, t->id[i]);
		kvc_store_commit(r->pool, &st);
		if (st.stream != KVC_STREAM_NEW + head)
			return i;
	}
	return i;
}

/* Pages of one kind wait for room rather than go among those of the other, unless none is to come. */
static void kinds_wait(void **state)
{
	struct prompt a = row(100, 60);
	struct rig *r = rig_segments(40);
	struct kvc_lease l;
	u32 i, j;
	int ret;

	(void)state;
	rig_fill(r, 1000, PAGE, 300);
	match(r, &a);
	i = store_row(r, &a, 0, KVC_HEAD_LONG, &ret);
	assert_in_range(i, 7, a.nr - 1);
	assert_int_equal(ret, -EAGAIN);
	rig_work(r);
	j = store_row(r, &a, i, KVC_HEAD_LONG, &ret);
	assert_true(j > i);
	assert_int_equal(ret, -EAGAIN);
	rig_keep_leases(r);
	for (i = 1000; i < 1300; i++)
		rig_lease(r, r->d, i, &l);
	rig_flush(r);
	while (ret == -EAGAIN) {
		rig_work(r);
		j = store_row(r, &a, j, KVC_HEAD_LONG, &ret);
		for (i = 100; i < 160; i++)
			rig_lease(r, r->d, i, &l);
	}
	assert_int_equal(ret, 0);
	assert_true(j < a.nr);
	rig_free(r);
}

/* More requests than are remembered: what was forgotten is worth nothing, and goes. */
static void forgotten(void **state)
{
	struct prompt a = row(100, 14), b = row(200, 14), once;
	struct rig *r = *state;
	struct kvc_request q;
	u32 i;

	serve(r, &a);
	for (i = 0; i < r->pool->requests.nr; i++) {
		once = row(100000 + i, 1);
		match(r, &once);
	}
	assert_false(kvc_request_get(r->pool, mark_of(r, 100), &q));
	serve(r, &b);
	while (present(r, &a) > 0) {
		assert_int_equal(present(r, &b), 14);
		rig_fill(r, 200000 + 100 * i++, PAGE, 7);
	}
}

/* The classes that requests fall into, at their edges */
static void classes(void **state)
{
	(void)state;
	assert_int_equal(kvc_class(1, 0), 0);
	assert_int_equal(kvc_class(1, 3), 0);
	assert_int_equal(kvc_class(1, 4), 1);
	assert_int_equal(kvc_class(1, 16), 2);
	assert_int_equal(kvc_class(2, 64), 7);
	assert_int_equal(kvc_class(3, 1), kvc_class(4, 1));
	assert_int_equal(kvc_class(5, 1), kvc_class(8, 1));
	assert_true(kvc_class(8, U32_MAX) < KVC_CLASS_STRAY);
}

/* While nobody returned the young are worth more. When all return at one age, those past it are worth little. */
static void worth_of_ages(void **state)
{
	struct rig *r = *state;
	struct kvc_values *v = r->pool->requests.values;
	u32 class = kvc_class(1, 5), age, i;

	kvc_values_refresh(r->pool);
	for (age = 64; age < 8 * KVC_AGE_UNITS; age *= 2)
		assert_true(kvc_worth(v, class, age / 2) > kvc_worth(v, class, age));
	assert_true(kvc_worth(v, KVC_CLASS_LOADED, 0) > kvc_worth(v, KVC_CLASS_STRAY, 0));
	os_lock(&r->pool->requests.lock);
	for (i = 0; i < 1000; i++) {
		kvc_values_seen(v, class);
		kvc_values_seen(v, class + 1);
		if (i % 2)
			kvc_values_returned(v, class, KVC_AGE_UNITS / 2, false);
	}
	os_unlock(&r->pool->requests.lock);
	kvc_values_refresh(r->pool);
	assert_true(kvc_worth(v, class, KVC_AGE_UNITS / 4) > kvc_worth(v, class, 0));
	assert_true(kvc_worth(v, class, KVC_AGE_UNITS / 4) > 10 * kvc_worth(v, class, KVC_AGE_UNITS));
	assert_true(kvc_worth(v, class, 0) > 10 * kvc_worth(v, class + 1, 0));
}

/* The floor of a group is the least cost of its segments, whatever becomes dearer or cheaper. */
static void floors(void **state)
{
	struct rig *r = rig_segments(150);
	struct kvc_member *m = &r->pool->members[0];
	struct rng rng = { 1 };
	u64 least;
	u32 i, n;

	(void)state;
	for (i = 0; i < 5000; i++) {
		kvc_victim_cost(m, rng_below(&rng, m->nr_segs), rng_below(&rng, 200));
		for (least = U64_MAX, n = 0; n < m->nr_segs; n++) {
			least = min(least, m->costs[n]);
			if (n % KVC_GROUP != KVC_GROUP - 1 && n + 1 < m->nr_segs)
				continue;
			assert_int_equal(m->floors[n / KVC_GROUP], least);
			least = U64_MAX;
		}
	}
	rig_free(r);
}

#define TEST(name)	cmocka_unit_test_setup_teardown(name, make, unmake)

static const struct CMUnitTest prefix_tests[] = {
	TEST(whose_page),
	TEST(asked_again),
	TEST(turns),
	TEST(asked_about),
	TEST(shared_pages),
	TEST(behind_a_hole),
	TEST(reach),
	TEST(named_only),
	TEST(ends_first),
	TEST(ends_apart),
	TEST(removed_tenant),
	cmocka_unit_test(what_hardly_returns_is_not_moved),
	TEST(newest_stays),
	TEST(forgotten),
	TEST(worth_of_ages),
	TEST(moved_for_what_is_behind),
	cmocka_unit_test(kinds_wait),
	cmocka_unit_test(back_after_long),
	cmocka_unit_test(rewriting_has_a_limit),
	cmocka_unit_test(moves_of_hot_pages_have_a_limit),
	cmocka_unit_test(conversations_stay),
	cmocka_unit_test(hot_pages_of_one_member),
	cmocka_unit_test(hot_pages_of_two_members),
	cmocka_unit_test(hot_pages_in_windows),
	cmocka_unit_test(hot_pages_when_overtaken),
	cmocka_unit_test(stored_again_stays),
	cmocka_unit_test(floors),
	cmocka_unit_test(classes),
};

TEST_GROUP(prefix);
