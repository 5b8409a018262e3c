// SPDX-License-Identifier: GPL-2.0
/*
 * Part of core-threads: a pool whose index grows while it is read. All keys lead to a few shards, so that their tables
 * get chunks, larger directories and many new buckets; nothing is written to any device.
 *
 * Two threads store, and each says how many of its pages are there; two match pages among these, which must be found
 * whatever moves meanwhile, with leases and without.
 */
#include <pthread.h>

#include "log/log.h"
#include "page.h"
#include "rng.h"
#include "threads.h"

#define PAGES		6000U
#define PAGE_SHARDS	2U
#define SEGMENT		(4U << 20)
#define SEGMENTS	16U
#define THREADS		2U
#define MATCHED		48U

static struct kvc_pool *pool;
static struct kvc_domain *domain;
static u8 keys[PAGES][KVC_KEY_LEN];
static u32 stored[THREADS];			/* atomic; thread t stores keys t, t + THREADS, ... */
static pthread_mutex_t work = PTHREAD_MUTEX_INITIALIZER;

static void no_kick(void *owner, u32 member)
{
	(void)owner;
	(void)member;
}

static void no_space(void *owner)
{
	(void)owner;
}

static void must(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "threads: growing index: %s\n", what);
		exit(1);
	}
}

static void do_work(void)
{
	struct kvc_work w;

	pthread_mutex_lock(&work);
	while (kvc_work_next(pool, 0, &w) == 1)
		kvc_work_done(pool, &w, 0);
	pthread_mutex_unlock(&work);
}

static void make_pool(void)
{
	static const struct kvc_ops ops = { no_kick, no_space };
	static u8 zeros[KVC_RECOVER_IO], keyspace[KVC_KEYSPACE_LEN];
	struct kvc_super *s = calloc(1, sizeof(*s));
	struct kvc_recover rec;
	u32 i;

	must(s, "memory");
	s->seq = 1;
	strcpy(s->pool_name, "grows");
	s->segment_size = SEGMENT;
	s->chunk_size = KVC_CHUNK_MIN;
	s->nr_members = 1;
	s->members[0].uuid[0] = 1;
	s->members[0].nr_segments = SEGMENTS;
	strcpy(s->tenants[0].name, "default");
	s->tenants[0].flags = KVC_TENANT_USED;
	must(!kvc_pool_create(s, 11, &ops, NULL, &pool), "create");
	for (i = 0; i < SEGMENTS; i++) {
		kvc_recover_start(pool, 0, i, &rec);
		must(!kvc_recover_feed(pool, &rec, zeros, 0), "recovery");
	}
	kvc_recover_finish(pool);
	free(s);
	do_work();
	must(!kvc_domain_open(pool, 0, keyspace, &domain), "domain");
}

static void make_keys(void)
{
	u32 id = 0, i;

	for (i = 0; i < PAGES; i++) {
		do {
			key_make(keys[i], id++);
		} while (kvc_bucket(pool, domain, keys[i]) % KVC_SHARDS >= PAGE_SHARDS);
	}
}

static void *store_pages(void *arg)
{
	u32 t = (u32)(uintptr_t)arg, i;
	struct kvc_store st;
	int r;

	for (i = t; i < PAGES; i += THREADS) {
		while ((r = kvc_store_begin(pool, domain, keys[i], 1, 0, KVC_ANY_MEMBER, &st)) == -EAGAIN)
			do_work();
		must(!r, "store");
		kvc_store_crc(pool, &st, 0, i);
		kvc_store_commit(pool, &st);
		__atomic_store_n(&stored[t], i / THREADS + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void match_some(struct rng *rng, bool leased)
{
	struct kvc_lease leases[MATCHED];
	u8 some[MATCHED][KVC_KEY_LEN];
	u32 i, t, nr;

	for (i = 0; i < MATCHED; i++) {
		t = rng_below(rng, THREADS);
		nr = __atomic_load_n(&stored[t], __ATOMIC_ACQUIRE);
		if (!nr)
			return;
		memcpy(some[i], keys[t + rng_below(rng, nr) * THREADS], KVC_KEY_LEN);
	}
	nr = kvc_match(pool, domain, (const u8 (*)[KVC_KEY_LEN])some, MATCHED, NULL, NULL, leased ? leases : NULL);
	must(nr == MATCHED, "a page was not found");
	for (i = 0; leased && i < MATCHED; i++)
		kvc_lease_put(pool, &leases[i]);
}

static void *match_pages(void *arg)
{
	struct rng rng = { .state = 70 + (u32)(uintptr_t)arg };
	u32 i, left;

	do {
		match_some(&rng, arg);
		for (i = 0, left = PAGES; i < THREADS; i++)
			left -= __atomic_load_n(&stored[i], __ATOMIC_ACQUIRE);
	} while (left);
	return NULL;
}

void threads_index(void)
{
	pthread_t storers[THREADS], matchers[THREADS];
	u32 i;

	make_pool();
	make_keys();
	for (i = 0; i < THREADS; i++) {
		pthread_create(&matchers[i], NULL, match_pages, (void *)(uintptr_t)i);
		pthread_create(&storers[i], NULL, store_pages, (void *)(uintptr_t)i);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(storers[i], NULL);
		pthread_join(matchers[i], NULL);
	}
	for (i = 0; i < PAGE_SHARDS; i++)
		must(pool->shards[i].table.nr > 4 * KVC_CHUNK_BUCKETS, "it did not grow");
	kvc_domain_put(pool, domain);
	kvc_pool_destroy(pool);
}
