// SPDX-License-Identifier: GPL-2.0
/* A tenant in memory, see fake_store.h. Nothing here shares code with what it tests. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_store.h"

struct page {
	struct page *chain;		/* in a bucket */
	struct page *next;		/* in order of arrival */
	struct page *prev;
	struct kvctx_key key;
	uint8_t keyspace[KVCTX_KEYSPACE_LEN];
	int leases;
	uint64_t length;
	uint8_t bytes[];
};

#define NR_BUCKETS	(1U << 18)

static struct page *buckets[NR_BUCKETS];
static struct page *oldest, *newest;
static uint64_t nr_pages, nr_loads, nr_stores;
static uint8_t space[KVCTX_KEYSPACE_LEN];
static FILE *operations;

static const char *setting_text(const char *name)
{
	const char *list = getenv("KVCTX_FAKE");
	size_t len = strlen(name);

	while (list && *list) {
		if (!strncmp(list, name, len) && list[len] == '=')
			return list + len + 1;
		list = strchr(list, ',');
		list += list != NULL;
	}
	return NULL;
}

uint64_t fake_setting(const char *name)
{
	const char *text = setting_text(name);

	return text ? strtoull(text, NULL, 10) : 0;
}

/* A setting that is a path; the caller frees it */
static char *fake_path(const char *name)
{
	const char *text = setting_text(name);

	return text ? strndup(text, strcspn(text, ",")) : NULL;
}

/* Whether the @count-th operation is one that setting @name is about */
static bool hits(const char *name, uint64_t count)
{
	uint64_t every = fake_setting(name);

	return every && count % every == 0;
}

static unsigned int bucket_of(const struct kvctx_key *key)
{
	const uint8_t *p = (const uint8_t *)key;
	uint32_t hash = 2166136261u;
	size_t i;

	for (i = 0; i < sizeof(*key); i++)
		hash = (hash ^ p[i]) * 16777619u;
	return hash % NR_BUCKETS;
}

static struct page **find(const struct kvctx_key *key)
{
	struct page **at = &buckets[bucket_of(key)];

	while (*at && (memcmp(&(*at)->key, key, sizeof(*key)) || memcmp((*at)->keyspace, space, sizeof(space))))
		at = &(*at)->chain;
	return at;
}

static void drop(struct page **at)
{
	struct page *page = *at;

	*at = page->chain;
	*(page->prev ? &page->prev->next : &oldest) = page->next;
	*(page->next ? &page->next->prev : &newest) = page->prev;
	free(page);
	nr_pages--;
}

static void add(const struct kvctx_key *key, const uint8_t *keyspace, const void *bytes, uint64_t length)
{
	struct page *page = calloc(1, sizeof(*page) + length);
	unsigned int bucket = bucket_of(key);

	page->key = *key;
	memcpy(page->keyspace, keyspace, sizeof(page->keyspace));
	memcpy(page->bytes, bytes, length);
	page->length = length;
	page->chain = buckets[bucket];
	buckets[bucket] = page;
	page->prev = newest;
	*(newest ? &newest->next : &oldest) = page;
	newest = page;
	nr_pages++;
}

static bool evict_one(void)
{
	struct page *page, **at;

	for (page = oldest; page && page->leases; page = page->next)
		;
	if (!page)
		return false;
	for (at = &buckets[bucket_of(&page->key)]; *at != page;)
		at = &(*at)->chain;
	drop(at);
	return true;
}

static void tell(const char *what, const struct kvctx_key *key, uint32_t depth, int res)
{
	uint64_t word;

	if (!operations)
		return;
	memcpy(&word, key->digest, sizeof(word));
	fprintf(operations, "%s %016" PRIx64 " %u %d\n", what, word, depth, res);
}

static void read_state(const char *path)
{
	FILE *in = fopen(path, "r");
	struct page head;
	uint8_t *bytes;

	if (!in)
		return;
	while (fread(&head, sizeof(head), 1, in) == 1) {
		bytes = malloc(head.length);
		if (fread(bytes, head.length, 1, in) != 1)
			abort();
		add(&head.key, head.keyspace, bytes, head.length);
		free(bytes);
	}
	fclose(in);
}

static void write_state(const char *path)
{
	FILE *out = fopen(path, "w");
	const struct page *page;

	for (page = oldest; page; page = page->next)
		fwrite(page, sizeof(*page) + page->length, 1, out);
	if (fclose(out))
		abort();
}

void fake_store_open(const uint8_t keyspace[KVCTX_KEYSPACE_LEN])
{
	char *state = fake_path("state"), *log = fake_path("log");

	memcpy(space, keyspace, sizeof(space));
	if (state)
		read_state(state);
	if (log)
		operations = fopen(log, "w");
	free(state);
	free(log);
}

void fake_store_close(void)
{
	const struct page *page;

	/* A client has to give back what it leased */
	for (page = oldest; page; page = page->next) {
		if (page->leases && !fake_setting("hang") && !fake_setting("gone")) {
			fputs("fake: a page is still leased at the end\n", stderr);
			abort();
		}
	}
	while (oldest) {
		oldest->leases = 0;
		evict_one();
	}
	if (operations)
		fclose(operations);
	operations = NULL;
}

bool fake_store_present(const struct kvctx_key *key)
{
	return *find(key) != NULL;
}

void fake_store_lease(const struct kvctx_key *keys, size_t nr, int change)
{
	struct page *page;
	size_t i;

	for (i = 0; i < nr; i++) {
		page = *find(&keys[i]);
		if (page)
			page->leases += change;
	}
}

static int load(const struct kvctx_key *key, uint8_t *buf, uint64_t length, uint32_t *flags)
{
	struct page **at = find(key);

	nr_loads++;
	if (*at && (hits("enoent", nr_loads) || hits("ebadmsg", nr_loads))) {
		drop(at);
		return hits("enoent", nr_loads) ? -ENOENT : -EBADMSG;
	}
	if (!*at)
		return -ENOENT;
	if (hits("eio", nr_loads))
		return -EIO;
	if (length > (*at)->length)
		return -ERANGE;
	if (!hits("unread", nr_loads))
		memcpy(buf, (*at)->bytes, length);
	if (hits("flip", nr_loads))
		buf[(nr_loads * 7919 + length - 1) % length] ^= 0x40;
	*flags = hits("unverified", nr_loads) ? 0 : KVCTX_CQE_VERIFIED;
	return hits("short", nr_loads) ? length - 1 : length;
}

static int store(const struct kvctx_key *key, const void *buf, uint64_t length, uint32_t *flags)
{
	uint64_t capacity = fake_setting("capacity");

	nr_stores++;
	if (fake_setting("rdonly"))
		return -EACCES;
	if (hits("eagain", nr_stores))
		return -EAGAIN;
	if (hits("store_eio", nr_stores))
		return -EIO;
	if (*find(key)) {
		*flags = KVCTX_CQE_DEDUP;
		return length;
	}
	if (hits("unadmitted", nr_stores)) {
		*flags = KVCTX_CQE_UNADMITTED;
		return 0;
	}
	while (capacity && nr_pages >= capacity) {
		if (!evict_one())
			return -ENOSPC;
	}
	add(key, space, buf, length);
	return length;
}

int fake_store_load(const struct kvctx_key *key, void *buf, uint64_t length, uint32_t *flags)
{
	int res = load(key, buf, length, flags);

	tell("load", key, 0, res);
	return res;
}

int fake_store_store(const struct kvctx_key *key, const void *buf, uint64_t length, uint32_t depth, uint32_t *flags)
{
	int res = store(key, buf, length, flags);

	tell("store", key, depth, res);
	return res;
}

int fake_store_flush(void)
{
	char *state = fake_path("state");
	int error = fake_setting("flush");

	if (state && !error)
		write_state(state);
	free(state);
	return -error;
}
