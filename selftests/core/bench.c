// SPDX-License-Identifier: GPL-2.0
/*
 * Figures of the engine alone, without I/O: lookups, match, stores, memory of a page. Nothing is asserted about time.
 *
 *	core-bench [--pages N]
 *
 * The pool is large enough for all pages; their bytes are never written. Members are simulated by doing what
 * recovery and the work items need: nothing is read back but headers that are not there.
 */
#include <getopt.h>
#include <malloc.h>
#include <time.h>

#include "core.h"
#include "page.h"
#include "rng.h"

#define PAGE		(256U << 10)
#define MATCHED		10000U

static struct kvc_pool *pool;
static struct kvc_domain *domain;
static u32 nr_pages = 200000;

static void ignore_kick(void *owner, u32 member)
{
	(void)owner;
	(void)member;
}

static void ignore_space(void *owner)
{
	(void)owner;
}

static const struct kvc_ops ops = { ignore_kick, ignore_space };

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static size_t heap(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* Keys as digests are: random */
static void digest(u8 key[KVC_KEY_LEN], u32 id)
{
	page_bytes(key, id, 0, KVC_KEY_LEN);
}

static void do_work(void)
{
	struct kvc_work w;
	u32 i;

	for (i = 0; i < kvc_nr_members(pool); i++)
		while (kvc_work_next(pool, i, &w) == 1)
			kvc_work_done(pool, &w, 0);
}

static void make_pool(void)
{
	u64 per_member = ((u64)nr_pages * PAGE / KVC_SEGMENT_DEFAULT / 4 + 1) * 5 / 4 + 8;
	struct kvc_super *s = calloc(1, sizeof(*s));
	u8 *zeros = calloc(1, KVC_RECOVER_IO), keyspace[KVC_KEYSPACE_LEN] = { 1 };
	struct kvc_recover rec;
	u32 i;

	if (!s || !zeros)
		abort();
	s->seq = 1;
	strcpy(s->pool_name, "bench");
	s->segment_size = KVC_SEGMENT_DEFAULT;
	s->chunk_size = KVC_CHUNK_DEFAULT;
	s->nr_members = 4;
	for (i = 0; i < 4; i++) {
		s->members[i].uuid[0] = (u8)i;
		s->members[i].nr_segments = (u32)per_member;
	}
	strcpy(s->tenants[0].name, "default");
	s->tenants[0].flags = KVC_TENANT_USED;
	if (kvc_pool_create(s, 99, &ops, NULL, &pool))
		abort();
	for (i = 0; i < 4 * per_member; i++) {
		kvc_recover_start(pool, i % 4, i / 4, &rec);
		if (kvc_recover_feed(pool, &rec, zeros, 0))
			abort();
	}
	kvc_recover_finish(pool);
	do_work();
	domain = kvc_domain_get(pool, 0, keyspace);
	free(zeros);
	free(s);
}

static void store(u32 id)
{
	u8 key[KVC_KEY_LEN];
	struct kvc_store st;
	u32 i;
	int r;

	digest(key, id);
	while ((r = kvc_store_begin(pool, domain, key, PAGE, id, KVC_ANY_MEMBER, &st)) == -EAGAIN)
		do_work();
	if (r)
		abort();
	for (i = 0; i < st.nr_chunks; i++)
		kvc_store_crc(pool, &st, i, id + i);
	kvc_store_commit(pool, &st);
}

static void bench_stores(void)
{
	size_t before = heap();
	double t = now();
	u32 i;

	make_pool();
	for (i = 0; i < nr_pages; i++)
		store(i);
	do_work();
	t = now() - t;
	printf("store begin + commit   %8.0f ns each, with work in between\n", t / nr_pages * 1e9);
	printf("memory                 %8.1f bytes a page of 256 KiB, everything included\n",
	       (double)(heap() - before) / nr_pages);
}

static void bench_lookups(void)
{
	u32 n = 2000000, i, found = 0;
	struct rng rng = { .state = 5 };
	struct kvc_load ld;
	u8 key[KVC_KEY_LEN];
	double t, making;

	t = now();
	for (i = 0; i < n; i++)
		digest(key, rng_below(&rng, nr_pages));
	making = now() - t;
	t = now();
	for (i = 0; i < n; i++) {
		digest(key, rng_below(&rng, nr_pages));
		found += kvc_query(pool, domain, key) == (int)PAGE;
	}
	t = now() - t - making;
	printf("lookups                %8.2f million/s (hits, random keys, one thread)\n", found / t * 1e-6);
	t = now();
	for (i = 0; i < n; i++) {
		digest(key, rng_below(&rng, nr_pages));
		if (!kvc_load_begin(pool, domain, key, &ld))
			kvc_load_end(pool, &ld, 0);
	}
	t = now() - t - making;
	printf("load begin + end       %8.0f ns each\n", t / n * 1e9);
	t = now();
	for (i = 0, found = 0; i < n; i++) {
		digest(key, nr_pages + rng_below(&rng, nr_pages));
		found += kvc_query(pool, domain, key) == -ENOENT;
	}
	t = now() - t - making;
	printf("lookups                %8.2f million/s (misses)\n", found / t * 1e-6);
}

static void bench_match(void)
{
	u8 (*keys)[KVC_KEY_LEN] = malloc(sizeof(*keys) * MATCHED);
	u32 *lens = malloc(sizeof(*lens) * MATCHED);
	struct kvc_lease *leases = malloc(sizeof(*leases) * MATCHED);
	double plain = 1e9, leased = 1e9, t;
	u32 i, round, n = min(MATCHED, nr_pages);

	if (!keys || !lens || !leases)
		abort();
	for (round = 0; round < 20; round++) {
		for (i = 0; i < n; i++)
			digest(keys[i], (round * n + i) % nr_pages);
		t = now();
		if (kvc_match(pool, domain, (const u8 (*)[KVC_KEY_LEN])keys, n, lens, NULL) != n)
			abort();
		t = now() - t;
		plain = t < plain ? t : plain;
		t = now();
		if (kvc_match(pool, domain, (const u8 (*)[KVC_KEY_LEN])keys, n, lens, leases) != n)
			abort();
		t = now() - t;
		leased = t < leased ? t : leased;
		for (i = 0; i < n; i++)
			kvc_lease_put(pool, &leases[i]);
	}
	printf("match of %u keys    %8.0f us, with leases %.0f us (best of 20)\n", n, plain * 1e6, leased * 1e6);
	free(keys);
	free(lens);
	free(leases);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "pages", required_argument, NULL, 'n' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c != 'n')
			return 2;
		nr_pages = (u32)strtoul(optarg, NULL, 0);
	}
	if (!nr_pages)
		return 2;
	printf("%u pages of 256 KiB, chunks of 64 KiB\n", nr_pages);
	bench_stores();
	bench_lookups();
	bench_match();
	kvc_domain_put(pool, domain);
	kvc_pool_destroy(pool);
	return 0;
}
