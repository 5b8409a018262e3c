// SPDX-License-Identifier: GPL-2.0
/*
 * Leases and MATCH: what is held and until when, ids, how many, what is said of pages that are there.
 */
#include "parts.h"
#include "session/lease.h"

#define MS	KVCTX_NSEC_PER_MS

static struct kvctx_leases leases;
static u64 armed;

static void arm(struct kvctx_leases *t, u64 end)
{
	EXPECT(t == &leases);
	armed = end;
}

static void begin(void)
{
	pages_reset();
	os_clock = 0;
	armed = 0;
	leases = (struct kvctx_leases){ .arm = arm };
	kvctx_leases_init(&leases);
}

static void end(void)
{
	kvctx_leases_close(&leases);
	EXPECT(!leases.pages && !leases.ids.root && !leases.ends.root);
	EXPECT(pages_free());
}

static s32 lease(u32 page, u32 ms)
{
	struct kvctx_sqe sqe = { .key = key_of(page), .lease_ms = ms };

	return kvctx_lease_one(&leases, NULL, &sqe);
}

static u64 held(u32 page)
{
	return os_atomic64_read(&pages[page].leases);
}

static void test_ends(void)
{
	s32 a, b, c;

	begin();
	EXPECT(lease(1, 0) == -EINVAL && lease(1, KVCTX_LEASE_MS_MAX + 1) == -EINVAL);
	pages[2].seq = 0;
	EXPECT(lease(2, 1) == -ENOENT);
	a = lease(1, 20);
	b = lease(1, 10);
	c = lease(3, 30);
	EXPECT(a > 0 && b > 0 && c > 0 && a != b && b != c && held(1) == 2 && held(3) == 1);
	/* the timer follows the first end */
	EXPECT(armed == 10 * MS);
	kvctx_leases_expire(&leases, 10 * MS - 1);
	EXPECT(held(1) == 2 && armed == 10 * MS);
	kvctx_leases_expire(&leases, 10 * MS);
	EXPECT(held(1) == 1 && armed == 20 * MS);
	EXPECT(kvctx_lease_release(&leases, (u32)b) == -EINVAL && kvctx_lease_release(&leases, 0) == -EINVAL);
	EXPECT(!kvctx_lease_release(&leases, (u32)a) && !held(1) && held(3) == 1);
	EXPECT(kvctx_lease_release(&leases, (u32)a) == -EINVAL);
	end();
	EXPECT(lease(1, 1) == -ENOSPC && !held(1));
}

static bool refuse(size_t size)
{
	(void)size;
	return true;
}

static void test_many(void)
{
	u32 i, bad = 0;
	s32 first;

	begin();
	leases.last_id = INT_MAX - 1;
	first = lease(0, 1);
	EXPECT(first == INT_MAX && lease(0, 1) == 1);
	for (i = 2; i < KVCTX_LEASES_MAX; i++)
		bad += lease(i % PAGES, 1 + i % 100) != (s32)i;
	EXPECT(!bad);
	EXPECT(lease(0, 1) == -ENOSPC);
	EXPECT(!kvctx_lease_release(&leases, 7));
	/* an id that is taken is passed over */
	leases.last_id = 5;
	EXPECT(lease(0, 1) == 7);
	kvctx_leases_expire(&leases, 50 * MS);
	EXPECT(leases.pages == KVCTX_LEASES_MAX / 100 * 50 && armed == 51 * MS);
	os_alloc_fault = refuse;
	EXPECT(lease(0, 1) == -ENOMEM);
	os_alloc_fault = NULL;
	end();
}

static void test_match(void)
{
	struct kvctx_key keys[70];
	struct kvctx_lookup m = { .leases = &leases, .nr_keys = 70, .lease_ms = 5, .keys = keys };
	u32 lens[70] = {}, i;
	u64 present[2] = {};

	begin();
	for (i = 0; i < 70; i++)
		keys[i] = key_of(i % PAGES);
	pages[3].seq = 0;
	m.flags = KVCTX_MATCH_LEASE;
	EXPECT(!kvctx_match_find(&m) && m.found.nr_present == 3 && m.found.lease && leases.pages == 3);
	m.flags = KVCTX_MATCH_LEASE | KVCTX_MATCH_ALL | KVCTX_MATCH_PREFETCH;
	m.present = present;
	m.lens = lens;
	EXPECT(!kvctx_match_find(&m) && m.found.nr_present == 68 && !m.found.nr_prefetched && leases.pages == 71);
	EXPECT(present[0] == ~BIT_ULL(3) && present[1] == (0x3f & ~BIT_ULL(3)));
	EXPECT(lens[2] == 102 && !lens[3] && lens[69] == 105);
	EXPECT(!kvctx_lease_release(&leases, m.found.lease) && leases.pages == 3);
	/* nothing found is no lease */
	keys[0] = key_of(3);
	m.flags = KVCTX_MATCH_LEASE;
	EXPECT(!kvctx_match_find(&m) && !m.found.nr_present && !m.found.lease && leases.pages == 3);
	os_alloc_fault = refuse;
	EXPECT(kvctx_match_find(&m) == -ENOMEM);
	os_alloc_fault = NULL;
	end();
	/* the session closes: pages are found, and not held */
	keys[0] = key_of(1);
	EXPECT(!kvctx_match_find(&m) && m.found.nr_present == 3 && !m.found.lease && pages_free());
}

static void test_answer(void)
{
	struct kvctx_key keys[3] = { key_of(1), key_of(2), key_of(9) };
	struct kvctx_lookup m = { .leases = &leases };
	struct kvctx_req req = {
		.flags = KVCTX_OP_MATCH_LEASE, .nr_keys = 3, .lease_ms = 5, .keys = keys, .length = 1000,
	};
	struct kvctx_found *found;
	u32 bytes, *lens;

	begin();
	pages[9].seq = 0;
	found = kvctx_match_answer(&m, &req, &bytes);
	lens = (u32 *)&found->present[1];
	EXPECT(bytes == sizeof(*found) + 8 + 12);
	EXPECT(found->nr_present == 2 && found->lease && !found->reserved && found->present[0] == 3);
	EXPECT(lens[0] == 101 && lens[1] == 102 && !lens[2]);
	os_free(found);
	req.length = sizeof(*found) + 3;
	found = kvctx_match_answer(&m, &req, &bytes);
	EXPECT(found && bytes == req.length && leases.pages == 4);
	os_free(found);
	end();
}

/* Some lease and release, one lets time pass. */
static s32 shared_id;

static void contend(u32 thread)
{
	u32 seed = thread, i;
	s32 id;

	for (i = 0; i < 3000; i++) {
		if (!thread) {
			WRITE_ONCE(os_clock, os_clock + MS / 4);
			kvctx_leases_expire(&leases, os_now());
			continue;
		}
		id = lease(draw(&seed, PAGES), 1 + draw(&seed, 50));
		kvctx_lease_release(&leases, (u32)__atomic_exchange_n(&shared_id, id, __ATOMIC_RELAXED));
	}
}

static void arm_any(struct kvctx_leases *t, u64 end)
{
	(void)t;
	armed = end;
}

void test_leases(void)
{
	test_ends();
	test_many();
	test_match();
	test_answer();
	begin();
	leases.arm = arm_any;
	in_threads(4, contend);
	end();
}
