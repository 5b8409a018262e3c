// SPDX-License-Identifier: GPL-2.0
/* Pools without devices: as large as asked for, full when they say so, and their counters add up. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "core.h"
#include "generate.h"
#include "pagegrain.h"
#include "simpool.h"
#include "unit.h"

static const volatile sig_atomic_t go_on;

struct plan_row {
	uint64_t pages;
	uint64_t page_size;
	uint64_t segment_size;
	uint32_t members;
	uint64_t least_segments;
};

static const struct plan_row plans[] = {
	{ 3655, 1 << 20, 0, 1, 200 },
	{ 9139, 1 << 20, 0, 1, 250 },
	{ 91395, 1 << 20, 0, 1, 250 },
	{ 9139, 1 << 20, 0, 7, 250 },
	{ 9139, 4096, 0, 1, 100 },
	{ 9139, 1, 0, 1, 100 },
	{ 500, 65537, 0, 3, 20 },
	{ 64, 1 << 20, 0, 1, 8 },
	{ 8, 128 << 20, 0, 1, 8 },
	{ 9139, 256 << 10, 16 << 20, 1, 100 },
	{ 9139, 256 << 10, (16 << 20) + 4096, 1, 100 },
	{ 60000, 1 << 20, 1 << 30, 2, 50 },
};

static void plans_what_was_asked(void **state)
{
	struct simpool_plan plan;
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(plans); i++) {
		const struct plan_row *row = &plans[i];
		uint64_t off;

		plan = (struct simpool_plan){
			.page_size = row->page_size,
			.segment_size = row->segment_size,
			.members = row->members,
		};
		if (simpool_plan(&plan, row->pages))
			fail_msg("row %zu: no plan", i);
		off = plan.pages > row->pages ? plan.pages - row->pages : row->pages - plan.pages;
		if (off > plan.segment_pages / 2 || plan.segments < row->least_segments ||
		    plan.pages != plan.segments * plan.segment_pages ||
		    plan.segment_pages * row->page_size > plan.segment_size)
			fail_msg("row %zu: %llu pages, %llu segments", i, (unsigned long long)plan.pages,
				 (unsigned long long)plan.segments);
		assert_true(!row->segment_size || plan.segment_size == row->segment_size);
	}
}

struct refusal_row {
	uint64_t pages;
	uint64_t page_size;
	uint64_t segment_size;
	uint32_t members;
	int ret;
};

static const struct refusal_row refusals[] = {
	{ 100, 256 << 10, 256 << 10, 1, -EINVAL },
	{ 100, (128 << 20) + 1, 0, 1, -EINVAL },
	{ 0, 4096, 0, 1, -ERANGE },
	{ 3, 1 << 20, 0, 1, -ERANGE },
	{ 255, 1 << 20, 0, 64, -ERANGE },
	{ UINT32_MAX, 128 << 20, 0, 1, -ERANGE },
};

static void refuses(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(refusals); i++) {
		struct simpool_plan plan = {
			.page_size = refusals[i].page_size,
			.segment_size = refusals[i].segment_size,
			.members = refusals[i].members,
		};

		if (simpool_plan(&plan, refusals[i].pages) != refusals[i].ret)
			fail_msg("row %zu", i);
	}
}

/* What is asked of the engine, as long as there is room to write it down */
struct call {
	char what;		/* Match, Load, Store */
	uint32_t number;	/* of pages (M), depth (S) */
	uint8_t key[KVC_KEY_LEN];
};

static struct call calls[16];
static size_t nr_calls;

static void note(char what, uint32_t number, const u8 *key)
{
	if (nr_calls == ARRAY_SIZE(calls))
		return;
	calls[nr_calls].what = what;
	calls[nr_calls].number = number;
	memcpy(calls[nr_calls++].key, key, KVC_KEY_LEN);
}

u32 __real_kvc_match(struct kvc_pool *p, struct kvc_domain *d, const u8 keys[][KVC_KEY_LEN], u32 nr, u64 *present,
		     u32 *lens, struct kvc_lease *leases);
u32 __wrap_kvc_match(struct kvc_pool *p, struct kvc_domain *d, const u8 keys[][KVC_KEY_LEN], u32 nr, u64 *present,
		     u32 *lens, struct kvc_lease *leases);
int __real_kvc_load_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 *key, struct kvc_load *ld);
int __wrap_kvc_load_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 *key, struct kvc_load *ld);
int __real_kvc_store_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 *key, u32 length, u32 depth, u64 members,
			   struct kvc_store *st);
int __wrap_kvc_store_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 *key, u32 length, u32 depth, u64 members,
			   struct kvc_store *st);

u32 __wrap_kvc_match(struct kvc_pool *p, struct kvc_domain *d, const u8 keys[][KVC_KEY_LEN], u32 nr, u64 *present,
		     u32 *lens, struct kvc_lease *leases)
{
	note('M', nr, keys[0]);
	return __real_kvc_match(p, d, keys, nr, present, lens, leases);
}

int __wrap_kvc_load_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 *key, struct kvc_load *ld)
{
	note('L', 0, key);
	return __real_kvc_load_begin(p, d, key, ld);
}

int __wrap_kvc_store_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 *key, u32 length, u32 depth, u64 members,
			   struct kvc_store *st)
{
	note('S', depth, key);
	return __real_kvc_store_begin(p, d, key, length, depth, members, st);
}

static struct simpool *open_pool(uint64_t pages, uint64_t page_size, uint32_t members, struct simpool_plan *plan)
{
	struct simpool *s;

	*plan = (struct simpool_plan){ .page_size = page_size, .members = members };
	assert_int_equal(simpool_plan(plan, pages), 0);
	assert_int_equal(simpool_open(&s, plan, 1, 300), 0);
	return s;
}

struct call_row {
	char what;
	uint32_t number;
	uint64_t id;
};

static void called(const struct call_row *rows, size_t nr)
{
	struct kvctx_key key;
	size_t i;

	assert_int_equal(nr_calls, nr);
	for (i = 0; i < nr; i++) {
		content_key(rows[i].id, &key);
		assert_int_equal(calls[i].what, rows[i].what);
		assert_int_equal(calls[i].number, rows[i].number);
		assert_memory_equal(calls[i].key, &key, sizeof(key));
	}
}

/* The order in which an engine would: match all, load the leading ones, store the others with their positions */
static void asks_as_an_engine(void **state)
{
	static const uint64_t first[] = { 1, 2, 3 }, second[] = { 1, 2, 9, 3 };
	static const struct call_row rows[] = {
		{ 'M', 3, 1 }, { 'S', 1, 1 }, { 'S', 2, 2 }, { 'S', 3, 3 },
		{ 'M', 4, 1 }, { 'L', 0, 1 }, { 'L', 0, 2 }, { 'S', 3, 9 }, { 'S', 4, 3 },
	};
	struct simpool_counters c;
	struct simpool_plan plan;
	struct simpool *s = open_pool(500, 4096, 1, &plan);

	(void)state;
	nr_calls = 0;
	assert_int_equal(simpool_request(s, first, ARRAY_SIZE(first), true), 0);
	assert_int_equal(simpool_request(s, second, ARRAY_SIZE(second), true), 0);
	called(rows, ARRAY_SIZE(rows));
	simpool_counters_get(s, &c);
	assert_int_equal(c.hits, 2);
	assert_int_equal(c.stored, 4);
	assert_int_equal(c.dedups, 1);
	simpool_close(s);
}

/* Who does not ask by MATCH loads until a page is absent, and knows no positions. */
static void asks_without_match(void **state)
{
	static const uint64_t first[] = { 1, 2 }, second[] = { 1, 9, 2 };
	static const struct call_row rows[] = {
		{ 'L', 0, 1 }, { 'S', 0, 1 }, { 'S', 0, 2 }, { 'L', 0, 1 }, { 'L', 0, 9 }, { 'S', 0, 9 }, { 'S', 0, 2 },
	};
	struct simpool_counters c;
	struct simpool_plan plan;
	struct simpool *s = open_pool(500, 4096, 1, &plan);

	(void)state;
	nr_calls = 0;
	assert_int_equal(simpool_request(s, first, ARRAY_SIZE(first), false), 0);
	assert_int_equal(simpool_request(s, second, ARRAY_SIZE(second), false), 0);
	called(rows, ARRAY_SIZE(rows));
	simpool_counters_get(s, &c);
	assert_int_equal(c.hits, 1);
	assert_int_equal(c.stored, 3);
	assert_int_equal(c.dedups, 1);
	simpool_close(s);
}

/* Pages that never come again fill the pool but for the segments that reclaim keeps free, three a member at least */
static void fills(uint32_t members)
{
	struct simpool_counters c = { 0 };
	struct simpool_plan plan;
	struct simpool *s = open_pool(3655, 1 << 20, members, &plan);
	uint64_t id, full = 0;

	for (id = 0; id < 4 * plan.pages; id++) {
		assert_int_equal(simpool_request(s, &id, 1, true), 0);
		simpool_counters_get(s, &c);
		if (!c.evicted)
			full = c.stored;
	}
	if (full < plan.pages - plan.pages / 10 || full > plan.pages - 3 * members * plan.segment_pages)
		fail_msg("evicts at %llu of %llu pages", (unsigned long long)full, (unsigned long long)plan.pages);
	assert_int_equal(c.stored, id);
	assert_int_equal(c.refused + c.dedups + c.hits, 0);
	assert_int_equal(c.host_bytes, id << 20);
	assert_int_equal(c.moved_bytes, c.moved << 20);
	assert_true(c.summary_bytes > 0);
	simpool_close(s);
}

static void fills_as_planned(void **state)
{
	(void)state;
	fills(1);
	fills(3);
}

static uint64_t play(struct simpool *s, const struct trace *t)
{
	struct simpool_counters c;
	size_t i;

	for (i = 0; i < t->nr_requests; i++)
		assert_int_equal(simpool_request(s, trace_ids(t, &t->requests[i]), t->requests[i].nr, true), 0);
	assert_int_equal(simpool_flush(s), 0);
	simpool_counters_get(s, &c);
	return c.hits;
}

/* With room for all, all is hit that there is to hit, and each page is written once */
static void holds_everything(void **state)
{
	struct simpool_counters c;
	struct simpool_plan plan;
	struct simpool *s;
	struct refs refs;
	struct trace t;
	uint64_t hits;

	(void)state;
	trace_init(&t);
	assert_int_equal(generate(&t, 500, 3), 0);
	assert_int_equal(refs_init(&refs, &t), 0);
	assert_int_equal(pagegrain_hits(&refs, PAGEGRAIN_LRU, refs.nr_pages, &go_on, &hits), 0);
	s = open_pool(refs.nr_pages * 2, 5000, 2, &plan);
	assert_int_equal(play(s, &t), hits);
	simpool_counters_get(s, &c);
	assert_int_equal(c.stored, refs.nr_pages);
	assert_int_equal(c.host_bytes, refs.nr_pages * 8192);
	assert_int_equal(c.evicted + c.moved + c.refused, 0);
	assert_int_equal(c.stored + c.dedups + c.hits, t.nr_ids);
	assert_true(simpool_amplification(&c) > 1 && simpool_amplification(&c) < 1.1);
	simpool_close(s);
	refs_free(&refs);
	trace_free(&t);
}

static void follows_seed(void **state)
{
	struct simpool_counters a, b;
	struct simpool_plan plan;
	struct simpool *s;
	struct trace t;

	(void)state;
	trace_init(&t);
	assert_int_equal(generate(&t, 500, 3), 0);
	s = open_pool(500, 1 << 20, 2, &plan);
	play(s, &t);
	simpool_counters_get(s, &a);
	simpool_close(s);
	s = open_pool(500, 1 << 20, 2, &plan);
	play(s, &t);
	simpool_counters_get(s, &b);
	simpool_close(s);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_true(a.evicted > 0);
	trace_free(&t);
}

static unsigned long allocations, refused_at;

static bool refuse_one(size_t size)
{
	(void)size;
	return ++allocations == refused_at;
}

static int try_all(const struct trace *t)
{
	struct simpool_plan plan = { .page_size = 1 << 20, .members = 2 };
	struct simpool *s;
	int ret = simpool_plan(&plan, 200);
	size_t i;

	if (ret)
		return ret;
	ret = simpool_open(&s, &plan, 1, t->longest);
	if (ret)
		return ret;
	for (i = 0; !ret && i < t->nr_requests; i++)
		ret = simpool_request(s, trace_ids(t, &t->requests[i]), t->requests[i].nr, true);
	simpool_close(s);
	return ret;
}

/* The n-th allocation of the engine fails, until there are no more of them */
static void survives_want_of_memory(void **state)
{
	struct trace t;
	int ret;

	(void)state;
	trace_init(&t);
	assert_int_equal(generate(&t, 20, 1), 0);
	os_alloc_fault = refuse_one;
	for (refused_at = 1;; refused_at++) {
		allocations = 0;
		ret = try_all(&t);
		if (allocations < refused_at)
			break;
		assert_int_equal(ret, -ENOMEM);
	}
	os_alloc_fault = NULL;
	assert_int_equal(ret, 0);
	assert_true(refused_at > 20);
	trace_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plans_what_was_asked),
		cmocka_unit_test(refuses),
		cmocka_unit_test(asks_as_an_engine),
		cmocka_unit_test(asks_without_match),
		cmocka_unit_test(fills_as_planned),
		cmocka_unit_test(holds_everything),
		cmocka_unit_test(follows_seed),
		cmocka_unit_test(survives_want_of_memory),
	};

	return cmocka_run_group_tests_name("simpool", tests, NULL, NULL);
}
