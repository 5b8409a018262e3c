// SPDX-License-Identifier: GPL-2.0
/*
 * Figures of the engine alone, without I/O: CRC32C, lookups, match, stores, memory of a page. Nothing is asserted about time.
 *
 *	core-bench [--pages N[,N...]] [--json FILE]
 *
 * Each pool is large enough for its pages; their bytes are never written. Members are simulated by doing what
 * recovery and the work items need: nothing is read back but headers that are not there.
 *
 * Times are processor time of the one thread, the best of several rounds. A lookup is a page of a kvc_match() of BATCH
 * random keys, all of them present. In the kernel the engine's memory is mapped by huge pages; to have it so here needs
 * GLIBC_TUNABLES=glibc.malloc.hugetlb=1, as `make bench-core` sets it. What became of that is printed.
 */
#include <getopt.h>
#include <malloc.h>
#include <time.h>

#include "core.h"
#include "page.h"
#include "rng.h"

#define PAGE		(256U << 10)
#define MATCHED		10000U
#define BATCH		128U
#define BATCHES		64U
#define ROUNDS		7U
#define LOOKUPS		(1U << 20)	/* of a round */
#define CRCS		(16U << 10)	/* as well */

static struct kvc_pool *pool;
static struct kvc_domain *domain;
static u32 nr_pages;
static u8 keys[BATCHES * BATCH][KVC_KEY_LEN];

/* What --json tells, of the sizes that it knows */
static struct result {
	const char *name;
	u32	pages;
	double	ns, bytes;
} results[] = {
	{ "64k", 64U << 10, 0, 0 },
	{ "16m", 16U << 20, 0, 0 },
	{ "64m", 64U << 20, 0, 0 },
};

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

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
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

/* A chunk that is in the cache; the library's functions compute it with the same code. */
static void bench_crc(void)
{
	static u8 chunk[KVC_CHUNK_DEFAULT];
	double best = 1e9, t;
	u32 round, i;

	page_bytes(chunk, 1, 0, sizeof(chunk));
	for (round = 0; round < ROUNDS; round++) {
		t = now();
		for (i = 0; i < CRCS; i++)
			chunk[0] = (u8)os_crc32c(~0U, chunk, sizeof(chunk));
		t = now() - t;
		best = t < best ? t : best;
	}
	printf("CRC32C                 %8.1f GB/s, chunks of 64 KiB\n", CRCS * sizeof(chunk) / best / 1e9);
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
	if (!domain)
		abort();
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

static void progress(u32 done)
{
	if (nr_pages >= 4U << 20 && done % (nr_pages / 8) == 0)
		fprintf(stderr, "bench: %u of %u pages stored\n", done, nr_pages);
}

/* Of what this process has in memory, percent */
static double huge_share(void)
{
	double rss = 0, huge = 0, kb;
	char line[128];
	FILE *f = fopen("/proc/self/smaps_rollup", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "Rss: %lf", &kb) == 1)
			rss = kb;
		if (sscanf(line, "AnonHugePages: %lf", &kb) == 1)
			huge = kb;
	}
	if (f)
		fclose(f);
	return rss > 0 ? 100 * huge / rss : 0;
}

static double bench_stores(void)
{
	size_t before = heap();
	double t = now(), bytes;
	u32 i;

	make_pool();
	for (i = 0; i < nr_pages; i++) {
		progress(i);
		store(i);
	}
	do_work();
	t = now() - t;
	bytes = (double)(heap() - before) / nr_pages;
	printf("store begin + commit   %8.0f ns each, with work in between\n", t / nr_pages * 1e9);
	printf("memory                 %8.1f bytes a page of 256 KiB, everything included; %.0f %% in huge pages\n", bytes,
	       huge_share());
	return bytes;
}

static void match_batches(void)
{
	u32 lens[BATCH], i;

	for (i = 0; i < BATCHES; i++)
		if (kvc_match(pool, domain, (const u8 (*)[KVC_KEY_LEN])&keys[i * BATCH], BATCH, NULL, lens, NULL) != BATCH)
			abort();
}

static void lease_batches(void)
{
	struct kvc_lease leases[BATCH];
	u32 i, j;

	for (i = 0; i < BATCHES; i++) {
		if (kvc_match(pool, domain, (const u8 (*)[KVC_KEY_LEN])&keys[i * BATCH], BATCH, NULL, NULL, leases) != BATCH)
			abort();
		for (j = 0; j < BATCH; j++)
			kvc_lease_put(pool, &leases[j]);
	}
}

static void query_each(void)
{
	u32 i;

	for (i = 0; i < BATCHES * BATCH; i++)
		if (kvc_query(pool, domain, keys[i]) != (int)PAGE)
			abort();
}

static void load_each(void)
{
	struct kvc_load ld;
	u32 i;

	for (i = 0; i < BATCHES * BATCH; i++) {
		if (kvc_load_begin(pool, domain, keys[i], &ld))
			abort();
		kvc_load_end(pool, &ld, 0);
	}
}

static void miss_each(void)
{
	u32 i;

	for (i = 0; i < BATCHES * BATCH; i++)
		if (kvc_query(pool, domain, keys[i]) != -ENOENT)
			abort();
}

/* ns for each of keys[], drawn anew for each @run from the pages from @first on: the best round */
static double measure(void (*run)(void), u32 first)
{
	static struct rng rng = { .state = 5 };
	double best = 1e9, t, sum;
	u32 round, n, i;

	for (round = 0; round < ROUNDS; round++) {
		for (n = 0, sum = 0; n < LOOKUPS; n += BATCHES * BATCH) {
			for (i = 0; i < BATCHES * BATCH; i++)
				digest(keys[i], first + rng_below(&rng, nr_pages));
			t = now();
			run();
			sum += now() - t;
		}
		best = sum / n < best ? sum / n : best;
	}
	return best * 1e9;
}

static double bench_lookups(void)
{
	double ns = measure(match_batches, 0), leased = measure(lease_batches, 0), one = measure(query_each, 0);

	printf("lookups                %8.2f million/s, %.0f ns each (matches of %u random pages, one thread)\n", 1e3 / ns, ns,
	       BATCH);
	printf("    with a lease       %8.2f million/s, %.0f ns each\n", 1e3 / leased, leased);
	printf("    one by one         %8.2f million/s, %.0f ns each\n", 1e3 / one, one);
	printf("load begin + end       %8.0f ns each\n", measure(load_each, 0));
	printf("misses                 %8.0f ns each, one by one\n", measure(miss_each, nr_pages));
	return ns;
}

static void bench_match(void)
{
	u8 (*all)[KVC_KEY_LEN] = malloc(sizeof(*all) * MATCHED);
	u32 *lens = malloc(sizeof(*lens) * MATCHED);
	struct kvc_lease *leases = malloc(sizeof(*leases) * MATCHED);
	double plain = 1e9, leased = 1e9, t;
	u32 i, round, n = min(MATCHED, nr_pages);

	if (!all || !lens || !leases)
		abort();
	for (round = 0; round < 20; round++) {
		for (i = 0; i < n; i++)
			digest(all[i], (round * n + i) % nr_pages);
		t = now();
		if (kvc_match(pool, domain, (const u8 (*)[KVC_KEY_LEN])all, n, NULL, lens, NULL) != n)
			abort();
		t = now() - t;
		plain = t < plain ? t : plain;
		t = now();
		if (kvc_match(pool, domain, (const u8 (*)[KVC_KEY_LEN])all, n, NULL, lens, leases) != n)
			abort();
		t = now() - t;
		leased = t < leased ? t : leased;
		for (i = 0; i < n; i++)
			kvc_lease_put(pool, &leases[i]);
	}
	printf("match of %u keys    %8.0f us, with leases %.0f us (best of 20)\n", n, plain * 1e6, leased * 1e6);
	free(all);
	free(lens);
	free(leases);
}

/* One size: its own pool, made, measured and taken down. */
static void bench(u32 pages)
{
	double bytes, ns;
	u32 i;

	nr_pages = pages;
	printf("%u pages of 256 KiB, chunks of 64 KiB\n", nr_pages);
	bytes = bench_stores();
	ns = bench_lookups();
	bench_match();
	fflush(stdout);
	for (i = 0; i < ARRAY_SIZE(results); i++) {
		if (results[i].pages == pages) {
			results[i].ns = ns;
			results[i].bytes = bytes;
		}
	}
	kvc_domain_put(pool, domain);
	kvc_pool_destroy(pool);
	malloc_trim(0);
}

static void put_figure(FILE *f, const char *name, const char *size, double v, const char *end)
{
	fprintf(f, "  \"%s%s\": ", name, size);
	if (v > 0)
		fprintf(f, "%.2f%s\n", v, end);
	else
		fprintf(f, "null%s\n", end);
}

/* What was not measured is null. */
static int write_json(const char *path)
{
	const struct result *big = &results[1];
	FILE *f = fopen(path, "w");
	u32 i;

	if (!f) {
		perror(path);
		return 1;
	}
	fprintf(f, "{\n");
	put_figure(f, "lookup_Mops", "", big->ns > 0 ? 1e3 / big->ns : 0, ",");
	put_figure(f, "bytes_per_page", "", big->bytes, ",");
	for (i = 0; i < ARRAY_SIZE(results); i++)
		put_figure(f, "lookup_ns_", results[i].name, results[i].ns, i + 1 < ARRAY_SIZE(results) ? "," : "");
	fprintf(f, "}\n");
	return fclose(f) != 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "pages", required_argument, NULL, 'n' }, { "json", required_argument, NULL, 'j' },
		{ NULL, 0, NULL, 0 },
	};
	const char *sizes = "200000", *json = NULL;
	char *end;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'n')
			sizes = optarg;
		else if (c == 'j')
			json = optarg;
		else
			return 2;
	}
	bench_crc();
	for (;; sizes = end + 1) {
		unsigned long n = strtoul(sizes, &end, 0);

		if (!n || n > 1U << 30 || (*end && *end != ','))
			return 2;
		bench((u32)n);
		if (!*end)
			break;
	}
	return json ? write_json(json) : 0;
}
