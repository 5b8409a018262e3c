// SPDX-License-Identifier: GPL-2.0
/*
 * The hash table of a shard while it grows: alone, with hashes as they come, and in a pool.
 */
#include "log/log.h"
#include "test.h"

#define ENTRIES		20000U		/* in one shard: some two thousand buckets, forty chunks, four directories */

static u32 hashes[ENTRIES];
static struct os_lock lock;
static struct os_atomic64 allocated;

static u32 hash_of(const void *arg, u32 entry)
{
	assert_ptr_equal(arg, hashes);
	return hashes[entry];
}

static void draw_hashes(u64 seed)
{
	struct rng rng = { .state = seed };
	u32 i;

	for (i = 0; i < ENTRIES; i++)
		hashes[i] = (u32)rng_u64(&rng) << KVC_SHARD_BITS;
}

/* How often the entry is in the bucket that its hash leads to, by tags as a lookup goes */
static u32 times_there(const struct kvc_buckets *t, u32 entry)
{
	const struct kvc_line *line = kvc_bucket_line(t, kvc_bucket_number(t->nr, t->mask, hashes[entry]));
	u32 n = 0, i, bits;

	for (; line; line = kvc_next_line(t, line))
		for (i = 0; i < KVC_LINE_TAGS; i++)
			for (bits = kvc_tags_equal(line->tags[i], kvc_tag(hashes[entry])); bits; bits &= bits - 1)
				n += line->slot[kvc_tagged_slot(i, bits)] == entry + 1;
	return n;
}

static void check_all(const struct kvc_buckets *t, const bool *in)
{
	u32 i, sum = 0;

	for (i = 0; i < ENTRIES; i++) {
		assert_int_equal(times_there(t, i), in[i]);
		sum += in[i];
	}
	assert_int_equal(t->entries, sum);
}

/* Every slot of every bucket: packed, each bucket no longer than it has to be, and no line lost */
static void check_lines(const struct kvc_buckets *t)
{
	u32 lines = 0, spares = 0, slots = 0, number, i;

	for (number = 0; number < t->nr; number++) {
		const struct kvc_line *line = kvc_bucket_line(t, number);
		bool ended = false;

		for (; line; line = kvc_next_line(t, line)) {
			assert_false(ended);
			lines++;
			for (i = 0; i < KVC_LINE_SLOTS; i++) {
				assert_false(ended && line->slot[i]);
				ended |= !line->slot[i];
				slots += !!line->slot[i];
			}
			assert_true(line->slot[0] || line == kvc_bucket_line(t, number));
		}
	}
	assert_int_equal(slots, t->entries);
	for (i = t->spare; i; i = kvc_numbered_line(t, i)->next)
		spares++;
	assert_int_equal(spares, t->nr_spares);
	assert_int_equal(lines - t->nr + spares, t->nr_chunks * (KVC_CHUNK_LINES - KVC_CHUNK_BUCKETS));
}

static void insert(struct kvc_buckets *t, u32 entry)
{
	if (t->hungry)
		assert_int_equal(kvc_buckets_grow(t, &lock), 0);
	os_lock(&lock);
	assert_true(kvc_buckets_room(t));
	kvc_buckets_insert(t, hashes[entry], entry);
	kvc_buckets_settle(t, hash_of, hashes);
	os_unlock(&lock);
}

static void table_grows(void **state)
{
	static bool in[ENTRIES];
	struct kvc_buckets t;
	u32 i, nr = 1;

	(void)state;
	draw_hashes(1);
	memset(in, 0, sizeof(in));
	os_lock_init(&lock);
	kvc_buckets_init(&t, &allocated);
	check_all(&t, in);
	/* What the first chunk has is there at once. */
	insert(&t, 0);
	assert_int_equal(t.nr, KVC_CHUNK_BUCKETS);
	assert_int_equal(t.nr_chunks, 1);
	assert_false(t.hungry);
	os_lock(&lock);
	kvc_buckets_remove(&t, hashes[0], 0);
	os_unlock(&lock);
	for (i = 0; i < ENTRIES; i++) {
		insert(&t, i);
		in[i] = true;
		/* After each of the first splits, then now and then */
		if (t.nr != nr && (t.nr < 100 || i % 64 == 0)) {
			check_all(&t, in);
			check_lines(&t);
		}
		nr = t.nr;
	}
	check_all(&t, in);
	check_lines(&t);
	/* As much memory as promised: ten bytes an entry, with directories, old and new */
	assert_true(t.nr_chunks * (sizeof(struct kvc_chunk) + 2 * sizeof(void *)) < 10 * ENTRIES);
	assert_true(t.entries <= 9 * t.nr);
	kvc_buckets_free(&t);
}

/* In and out at random: lines come back, nothing is lost, and memory stays what the most entries needed. */
static void table_in_and_out(void **state)
{
	static bool in[ENTRIES];
	struct rng rng = { .state = 3 };
	struct kvc_buckets t;
	u32 i, n, chunks;

	(void)state;
	draw_hashes(2);
	memset(in, 0, sizeof(in));
	os_lock_init(&lock);
	kvc_buckets_init(&t, &allocated);
	for (i = 0; i < 6 * ENTRIES; i++) {
		n = rng_below(&rng, ENTRIES);
		if (in[n]) {
			os_lock(&lock);
			kvc_buckets_remove(&t, hashes[n], n);
			os_unlock(&lock);
		} else {
			insert(&t, n);
		}
		in[n] = !in[n];
		if (i % 4096 == 0) {
			check_all(&t, in);
			check_lines(&t);
		}
	}
	chunks = t.nr_chunks;
	for (i = 0; i < ENTRIES; i++) {
		if (!in[i])
			continue;
		os_lock(&lock);
		kvc_buckets_remove(&t, hashes[i], i);
		os_unlock(&lock);
		in[i] = false;
	}
	check_all(&t, in);
	check_lines(&t);
	assert_int_equal(t.nr_chunks, chunks);
	assert_int_equal(t.nr_spares, chunks * (KVC_CHUNK_LINES - KVC_CHUNK_BUCKETS));
	kvc_buckets_free(&t);
}

static bool refuse(size_t size)
{
	(void)size;
	return true;
}

/* Without memory the table takes what it has lines for, finds all of it, and grows on when there is memory. */
static void table_without_memory(void **state)
{
	static bool in[ENTRIES];
	u32 i = 0, chunks, stop, refused = 0;
	struct kvc_buckets t;

	(void)state;
	draw_hashes(4);
	memset(in, 0, sizeof(in));
	os_lock_init(&lock);
	kvc_buckets_init(&t, &allocated);
	for (stop = 500; stop < ENTRIES; stop += 500) {
		for (; i < stop; i++) {
			insert(&t, i);
			in[i] = true;
		}
		chunks = t.nr_chunks;
		os_alloc_fault = refuse;
		for (; !t.hungry || !kvc_buckets_grow(&t, &lock); i++) {
			assert_true(i < ENTRIES);
			os_lock(&lock);
			kvc_buckets_insert(&t, hashes[i], i);
			kvc_buckets_settle(&t, hash_of, hashes);
			os_unlock(&lock);
			in[i] = true;
			if (i >= ENTRIES - 1)
				break;
		}
		if (i >= ENTRIES - 1)
			break;
		assert_int_equal(kvc_buckets_grow(&t, &lock), -ENOMEM);
		assert_int_equal(t.nr_spares, 0);
		assert_int_equal(t.nr_chunks, chunks);
		/* The one that was removed has room, whatever else has none. */
		os_lock(&lock);
		kvc_buckets_remove(&t, hashes[7], 7);
		kvc_buckets_insert(&t, hashes[7], 7);
		kvc_buckets_settle(&t, hash_of, hashes);
		os_unlock(&lock);
		check_all(&t, in);
		check_lines(&t);
		os_alloc_fault = NULL;
		refused++;
		stop = max(stop, i);
	}
	os_alloc_fault = NULL;
	assert_true(refused > 3);
	check_all(&t, in);
	check_lines(&t);
	kvc_buckets_free(&t);
}

static u32 allow;

static bool refuse_later(size_t size)
{
	(void)size;
	return allow-- == 0;
}

/* The first directory comes, its chunk does not: lookups go on as before. */
static void directory_without_chunk(void **state)
{
	static bool none[ENTRIES];
	struct kvc_buckets t;

	(void)state;
	draw_hashes(5);
	os_lock_init(&lock);
	kvc_buckets_init(&t, &allocated);
	allow = 1;
	os_alloc_fault = refuse_later;
	assert_int_equal(kvc_buckets_grow(&t, &lock), -ENOMEM);
	os_alloc_fault = NULL;
	assert_non_null(kvc_bucket_line(&t, 0));
	check_all(&t, none);
	assert_int_equal(kvc_buckets_grow(&t, &lock), 0);
	check_all(&t, none);
	insert(&t, 3);
	assert_int_equal(times_there(&t, 3), 1);
	kvc_buckets_free(&t);
}

/* A lookup without the lock is led to the same line once nothing changes. */
static void peek_is_find(void **state)
{
	struct kvc_buckets t;
	u32 i;

	(void)state;
	draw_hashes(6);
	os_lock_init(&lock);
	kvc_buckets_init(&t, &allocated);
	for (i = 0; i < ENTRIES; i++) {
		insert(&t, i);
		assert_ptr_equal(kvc_bucket_peek(&t, hashes[i / 2]),
				 kvc_bucket_line(&t, kvc_bucket_number(t.nr, t.mask, hashes[i / 2])));
	}
	kvc_buckets_free(&t);
}

/*
 * Pages of a pool, all of them in a few shards: elsewhere it would take a hundred thousand for each shard to have more
 * buckets than those of its first chunk.
 */
#define PAGES		6000U
#define PAGE_SHARDS	8U

static u32 ids[PAGES];

/* The next id from @id on whose key leads to one of those shards */
static u32 next_id(struct rig *r, struct kvc_domain *d, u32 id)
{
	u8 key[KVC_KEY_LEN];

	for (;; id++) {
		key_make(key, id);
		if (kvc_bucket(r->pool, d, key) % KVC_SHARDS < PAGE_SHARDS)
			return id;
	}
}

static u32 shard_buckets(struct rig *r)
{
	u32 most = 0, i;

	for (i = 0; i < PAGE_SHARDS; i++)
		most = max(most, r->pool->shards[i].table.nr);
	return most;
}

static int page_length(u32 i)
{
	return (int)(1 + i % 100);
}

static void store_page(struct rig *r, struct kvc_domain *d, u32 i)
{
	int ret;

	ids[i] = next_id(r, d, i ? ids[i - 1] + 1 : 0);
	ret = rig_store(r, d, ids[i], i, (u32)page_length(i));
	if (ret == -EAGAIN) {
		rig_work(r);
		ret = rig_store(r, d, ids[i], i, (u32)page_length(i));
	}
	assert_int_equal(ret, 0);
}

static void pages_grow(void **state)
{
	struct rig *r = rig_new(1, 16, 4U << 20, KVC_CHUNK_MIN);
	u8 keys[64][KVC_KEY_LEN];
	u32 i, j;

	(void)state;
	for (i = 0; i < PAGES; i++) {
		store_page(r, r->d, i);
		if (i % 500 == 0)
			for (j = 0; j <= i; j++)
				assert_int_equal(rig_query(r, r->d, ids[j]), page_length(j));
	}
	assert_true(shard_buckets(r) > KVC_CHUNK_BUCKETS);
	for (i = 0; i < PAGES; i += 2)
		assert_int_equal(rig_delete(r, r->d, ids[i]), 0);
	for (i = 0; i < PAGES; i++)
		assert_int_equal(rig_query(r, r->d, ids[i]), i % 2 ? page_length(i) : -ENOENT);
	assert_int_equal(rig_stats(r).pages, PAGES / 2);
	/* A match of every length up to 64, with the first missing page everywhere */
	for (i = 0; i < 64; i++) {
		for (j = 0; j < 64; j++)
			key_make(keys[j], ids[j == i ? 2 : 1 + 2 * (7 * i + j)]);
		assert_int_equal(kvc_match(r->pool, r->d, (const u8 (*)[KVC_KEY_LEN])keys, 64, NULL, NULL, NULL), i);
		assert_int_equal(kvc_match(r->pool, r->d, (const u8 (*)[KVC_KEY_LEN])keys, i, NULL, NULL, NULL), i);
	}
	rig_flush(r);
	rig_again(r);
	for (i = 1; i < PAGES; i += 2)
		assert_int_equal(rig_load(r, r->d, ids[i], i), 0);
	assert_int_equal(rig_stats(r).pages, PAGES / 2);
	rig_free(r);
}

/* A removed tenant's pages leave every bucket, and no other tenant's does. */
static void sweep_of_many(void **state)
{
	struct rig *r = rig_new(1, 16, 4U << 20, KVC_CHUNK_MIN);
	struct kvc_domain *guest;
	u32 i;

	(void)state;
	assert_int_equal(kvc_tenant_add(r->pool, "guest", 0, 0, 0600, 0), 1);
	guest = rig_domain(r, 1, 0);
	for (i = 0; i < PAGES; i++)
		store_page(r, i % 3 ? guest : r->d, i);
	assert_true(shard_buckets(r) > KVC_CHUNK_BUCKETS);
	assert_int_equal(rig_stats(r).pages, PAGES);
	assert_int_equal(kvc_tenant_remove(r->pool, "guest"), 0);
	kvc_tenants_gone(r->pool);
	assert_int_equal(rig_stats(r).pages, PAGES / 3);
	for (i = 0; i < PAGES; i += 3)
		assert_int_equal(rig_query(r, r->d, ids[i]), page_length(i));
	kvc_domain_put(r->pool, guest);
	rig_free(r);
}

static int no_faults(void **state)
{
	(void)state;
	os_alloc_fault = NULL;
	return 0;
}

/* Where a key of one domain would be found, another domain finds nothing, whatever its hash may be. */
static void same_hash_of_another_domain(void **state)
{
	struct rig *r = rig_small(1);
	struct kvc_domain *other = rig_domain(r, 0, 1);
	u8 key[KVC_KEY_LEN];
	u32 bucket;

	(void)state;
	assert_int_equal(rig_store(r, r->d, 5, 5, 100), 0);
	key_make(key, 5);
	bucket = kvc_bucket(r->pool, r->d, key);
	assert_int_not_equal(kvc_index_find(r->pool, bucket, r->d, key), KVC_NONE);
	assert_int_equal(kvc_index_find(r->pool, bucket, other, key), KVC_NONE);
	kvc_domain_put(r->pool, other);
	rig_free(r);
}

static const struct CMUnitTest index_tests[] = {
	cmocka_unit_test(table_grows),
	cmocka_unit_test(table_in_and_out),
	cmocka_unit_test_teardown(table_without_memory, no_faults),
	cmocka_unit_test_teardown(directory_without_chunk, no_faults),
	cmocka_unit_test(peek_is_find),
	cmocka_unit_test(pages_grow),
	cmocka_unit_test(sweep_of_many),
	cmocka_unit_test(same_hash_of_another_domain),
};

TEST_GROUP(index);
