// SPDX-License-Identifier: GPL-2.0
/*
 * client NODE VERB [N]: what run.py has clients of the daemon do.
 *
 *	create		make a pool in the directory NODE
 *	store N		store and flush N pages
 *	check N		load and compare them; prints how many were there
 *	wait		submit LOADs when told by a line on stdin, and wait for them; prints each result, then that of one more
 *			call
 *	poll		the same, sleeping in poll()
 *	call		one synchronous call when told; prints its result
 *	busy		stores and loads until it is killed
 *	ways		pages in memory that the daemon maps are not copied, others are; prints the flags of each
 *	deep N		64 pages of 1 MiB, all at once, in N MiB of memory that the daemon cannot map; prints how many rooms the
 *			stage has
 *	grow		pages of 1 MiB while another thread registers more memory; prints the same
 *	huge		registers 4 MiB that lie as huge pages do; prints how much of it is in such pages then, or that the
 *			kernel has none for it
 *	threads N	so many threads with calls of their own
 *	readers		two threads share a session that only reads; prints how many results were not as they should be
 *
 * Prints "ready" before it waits to be told. Exit status 1 with the error on stdout if something fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kvctx.h"

#define PAGE_BYTES	20000
#define LOADS		8

static struct kvctx *ctx;

static struct kvctx_key key_of(uint64_t n)
{
	struct kvctx_key key = { .qualifier = n };

	memcpy(key.digest, "client", 6);
	return key;
}

static void fill(uint8_t *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}

static int store(uint64_t nr)
{
	uint8_t *buf = malloc(PAGE_BYTES);
	int64_t ret = PAGE_BYTES;

	for (uint64_t i = 0; i < nr && ret == PAGE_BYTES; i++) {
		struct kvctx_key key = key_of(i);

		fill(buf, PAGE_BYTES, i);
		ret = kvctx_store(ctx, &key, buf, PAGE_BYTES, NULL);
	}
	free(buf);
	if (ret != PAGE_BYTES)
		printf("store: %lld\n", (long long)ret);
	else
		printf("flush: %d\n", kvctx_flush(ctx));
	return ret != PAGE_BYTES;
}

static int check(uint64_t nr)
{
	uint8_t *buf = malloc(PAGE_BYTES), *want = malloc(PAGE_BYTES);
	uint64_t there = 0, wrong = 0;

	for (uint64_t i = 0; i < nr; i++) {
		struct kvctx_key key = key_of(i);

		fill(want, PAGE_BYTES, i);
		if (kvctx_load(ctx, &key, buf, PAGE_BYTES, NULL) != PAGE_BYTES)
			continue;
		there++;
		wrong += !!memcmp(buf, want, PAGE_BYTES);
	}
	free(buf);
	free(want);
	printf("there: %llu wrong: %llu\n", (unsigned long long)there, (unsigned long long)wrong);
	return 0;
}

static void await_line(void)
{
	char line[16];

	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(3);
}

static void submit_loads(void)
{
	for (uint32_t i = 0; i < LOADS; i++) {
		struct kvctx_key key = key_of(i);
		struct kvctx_sqe *sqe = kvctx_get_sqe(ctx);

		kvctx_prep_load_at(sqe, &key, KVCTX_MEM_ARENA, i * 32768, 0, PAGE_BYTES);
		sqe->user_data = i;
	}
	printf("submit: %d\n", kvctx_submit(ctx));
	fflush(stdout);
}

static int wait_for_loads(bool polls)
{
	struct pollfd p = { .fd = kvctx_fd(ctx), .events = POLLIN };
	struct kvctx_key key = key_of(0);
	struct kvctx_cqe cqe[LOADS];
	int nr = 0, ret = 0, got;

	await_line();
	submit_loads();
	while (nr < LOADS && ret >= 0) {
		ret = polls ? poll(&p, 1, -1) : kvctx_wait(ctx, LOADS, KVCTX_TIMEOUT_NONE);
		got = (int)kvctx_take(ctx, cqe, LOADS);
		for (int i = 0; i < got; i++)
			printf("op: %d\n", cqe[i].res);
		nr += got;
	}
	printf("then: %lld\n", (long long)kvctx_query(ctx, &key));
	return 0;
}

static int call(void)
{
	uint8_t *buf = malloc(PAGE_BYTES);
	struct kvctx_key key = key_of(0);

	await_line();
	printf("call: %lld\n", (long long)kvctx_load(ctx, &key, buf, PAGE_BYTES, NULL));
	free(buf);
	return 0;
}

static void busy(void)
{
	uint8_t *buf = malloc(PAGE_BYTES);
	struct kvctx_cqe cqe[64];

	puts("ready");
	fflush(stdout);
	for (uint64_t i = 0;; i++) {
		struct kvctx_key key = key_of(1000 + i % 100);
		struct kvctx_sqe *sqe = kvctx_get_sqe(ctx);

		fill(buf, PAGE_BYTES, i);
		kvctx_store(ctx, &key, buf, PAGE_BYTES, NULL);
		if (sqe) {
			kvctx_prep_load_at(sqe, &key, KVCTX_MEM_ARENA, 0, 0, PAGE_BYTES);
			kvctx_submit(ctx);
		}
		if (i % 2)
			kvctx_load(ctx, &key, buf, PAGE_BYTES, NULL);
		if (i % 64 == 63)
			kvctx_take(ctx, cqe, 64);
	}
}

static uint8_t *shared_memory(size_t bytes)
{
	int fd = memfd_create("client", MFD_ALLOW_SEALING);
	uint8_t *p;

	if (ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		return NULL;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return p == MAP_FAILED ? NULL : p;
}

static int rooms_of_the_stage(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	int nr = 0;

	while (f && fgets(line, sizeof(line), f))
		nr += !!strstr(line, "memfd:kvctx-stage");
	if (f)
		fclose(f);
	return nr;
}

/* Store and load @nr pages of 1 MiB at @p, all at once: how many came right, and so both times */
static uint32_t deep_pages(uint8_t *p, uint32_t nr)
{
	const uint32_t bytes = 1 << 20;
	struct kvctx_key *keys = calloc(nr, sizeof(*keys));
	uint32_t *lens = calloc(nr, sizeof(*lens)), right = 0;
	int32_t *res = calloc(nr, sizeof(*res));
	void **addrs = calloc(nr, sizeof(*addrs));
	uint8_t *want = malloc(bytes);
	struct kvctx_batch b = { .size = sizeof(b), .nr = nr, .keys = keys, .addrs = addrs, .lens = lens, .res = res };

	for (uint32_t i = 0; i < nr; i++) {
		keys[i] = key_of(3000 + i);
		addrs[i] = p + (size_t)i * bytes;
		lens[i] = bytes;
		fill(addrs[i], bytes, i);
	}
	b.opcode = KVCTX_OP_STORE;
	if (kvctx_batch_run(ctx, &b) == nr) {
		memset(p, 0, (size_t)nr * bytes);
		b.opcode = KVCTX_OP_LOAD;
		kvctx_batch_run(ctx, &b);
		for (uint32_t i = 0; i < nr; i++) {
			fill(want, bytes, i);
			right += !memcmp(addrs[i], want, bytes);
		}
	}
	free(keys);
	free(lens);
	free(res);
	free(addrs);
	free(want);
	return right;
}

static int deep(size_t mib)
{
	uint8_t *p = malloc(mib << 20);
	uint32_t id;

	if (kvctx_mem_register(ctx, p, mib << 20, &id))
		return 1;
	printf("right: %u ", deep_pages(p, 64));
	printf("rooms: %d\n", rooms_of_the_stage());
	free(p);
	return 0;
}

static void *registrar(void *arg)
{
	uint8_t *p = arg;
	uint32_t id;

	for (int i = 1; i < 5; i++)
		if (kvctx_mem_register(ctx, p + ((size_t)i << 25), 32 << 20, &id))
			return arg;
	return NULL;
}

/* The stage grows while pages pass through it */
static int grow(void)
{
	uint8_t *p = malloc(5UL << 25);
	pthread_t thread;
	void *failed;
	uint32_t id;

	if (kvctx_mem_register(ctx, p, 32 << 20, &id) || pthread_create(&thread, NULL, registrar, p))
		return 1;
	printf("right: %u ", deep_pages(p, 32));
	pthread_join(thread, &failed);
	printf("right: %u rooms: %d\n", deep_pages(p, 32), failed ? -1 : rooms_of_the_stage());
	free(p);
	return 0;
}

/* Of the memory mapped at @p */
static unsigned long huge_bytes(const uint8_t *p)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long start, end, kib, found = 0;
	bool here = false;
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = start == (uintptr_t)p;
		if (here && sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1)
			found = kib << 10;
	}
	if (f)
		fclose(f);
	return found;
}

static int huge(void)
{
	const size_t bytes = 4 << 20, page = 2 << 20;
	uint8_t *p[2], *room = mmap(NULL, 4 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t id;

	for (int i = 0; i < 2; i++) {
		int fd = memfd_create("client", MFD_ALLOW_SEALING);

		p[i] = (uint8_t *)(((uintptr_t)room + i * 2 * bytes + page) & ~(page - 1));
		if (ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) ||
		    mmap(p[i], bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
			return 1;
	}
	memset(p[0], 1, bytes);
	if (madvise(p[0], bytes, 25) || huge_bytes(p[0]) != bytes) {	/* MADV_COLLAPSE */
		printf("none\n");
		return 0;
	}
	memset(p[1], 1, bytes);
	if (kvctx_mem_register(ctx, p[1], bytes, &id))
		return 1;
	for (size_t i = 0; i < bytes; i++)
		if (p[1][i] != 1)
			return 1;
	printf("huge: %lu\n", huge_bytes(p[1]));
	return 0;
}

static int way(const char *name, uint8_t *p, size_t bytes, uint64_t nr)
{
	struct kvctx_key key = key_of(nr);
	uint32_t stored = 0, loaded = 0, id;
	int64_t ret;

	ret = kvctx_mem_register(ctx, p, bytes, &id);
	if (!ret) {
		fill(p, bytes, nr);
		ret = kvctx_store(ctx, &key, p, bytes, &stored);
		memset(p, 0, bytes);
		if (ret == (int64_t)bytes)
			ret = kvctx_load(ctx, &key, p, bytes, &loaded);
	}
	if (ret != (int64_t)bytes) {
		printf("%s: %lld\n", name, (long long)ret);
		return 1;
	}
	for (size_t i = 0; i < bytes; i++)
		if (p[i] != (uint8_t)(nr * 31 + i * 7 + (i >> 8))) {
			printf("%s: wrong bytes\n", name);
			return 1;
		}
	printf("%s: store %#x load %#x\n", name, stored, loaded);
	return kvctx_mem_unregister(ctx, id) ? 1 : 0;
}

static int ways(void)
{
	uint8_t *shared = shared_memory(4 << 20), *heap = malloc(40 << 20);
	uint8_t *nameless = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ret;

	if (nameless == MAP_FAILED)
		return 1;

	ret = way("shared", shared, 3000000, 2001) ?: way("part", shared + 12345, 100000, 2002) ?:
	      way("heap", heap + 5, 3000000, 2003) ?: way("long", heap, 40 << 20, 2004) ?:
	      way("again", heap, 20 << 20, 2005) ?: way("nameless", nameless + 5, 100000, 2006);
	free(heap);
	return ret;
}

static void *worker(void *arg)
{
	uint64_t first = (uint64_t)(uintptr_t)arg * 1000 + ((uint64_t)getpid() << 20);
	uint8_t *buf = malloc(PAGE_BYTES), *want = malloc(PAGE_BYTES);
	uintptr_t bad = 0;

	for (uint64_t i = 0; i < 200; i++) {
		struct kvctx_key key = key_of(10000 + first + i % 50);

		fill(want, PAGE_BYTES, first + i % 50);
		bad += kvctx_store(ctx, &key, want, PAGE_BYTES, NULL) != PAGE_BYTES;
		bad += kvctx_load(ctx, &key, buf, PAGE_BYTES, NULL) != PAGE_BYTES || memcmp(buf, want, PAGE_BYTES);
	}
	free(buf);
	free(want);
	return (void *)bad;
}

static int threads(uint64_t nr)
{
	pthread_t t[64];
	uintptr_t bad = 0;
	void *ret;

	for (uint64_t i = 0; i < nr; i++)
		pthread_create(&t[i], NULL, worker, (void *)(uintptr_t)(i + 1));
	for (uint64_t i = 0; i < nr; i++) {
		pthread_join(t[i], &ret);
		bad += (uintptr_t)ret;
	}
	printf("bad: %lu\n", (unsigned long)bad);
	return 0;
}

static bool taken_enough;

static void *taker(void *arg)
{
	struct kvctx_cqe some[64];

	while (!__atomic_load_n(&taken_enough, __ATOMIC_RELAXED))
		kvctx_take(ctx, some, 64);
	return arg;
}

/* Many loads of pages that are not there in one call, while another thread takes what there is to be taken */
static int readers(void)
{
	enum { NR = 16384, ROUNDS = 5 };
	struct kvctx_batch b = { .size = sizeof(b), .opcode = KVCTX_OP_LOAD, .nr = NR };
	struct kvctx_key *keys = calloc(NR, sizeof(*keys));
	int32_t *res = calloc(NR, sizeof(*res));
	uint32_t *lens = calloc(NR, sizeof(*lens));
	void **addrs = calloc(NR, sizeof(*addrs));
	uint8_t *arena = kvctx_arena(ctx, NULL);
	unsigned int bad = 0;
	pthread_t t;

	b.keys = keys;
	b.addrs = addrs;
	b.lens = lens;
	b.res = res;
	for (uint32_t i = 0; i < NR; i++) {
		keys[i] = key_of(900000 + i);
		addrs[i] = arena + 4096 * (i % 256);
		lens[i] = 4096;
	}
	pthread_create(&t, NULL, taker, NULL);
	for (int round = 0; round < ROUNDS; round++) {
		kvctx_batch_run(ctx, &b);
		for (uint32_t i = 0; i < NR; i++)
			bad += res[i] != -ENOENT;
	}
	__atomic_store_n(&taken_enough, true, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	printf("bad: %u\n", bad);
	free(keys);
	free(res);
	free(lens);
	free(addrs);
	return 0;
}

static int create(const char *dir)
{
	struct kvctx_pool_params p = { .size = sizeof(p), .bytes = 1100UL << 20, .segment_bytes = 128 << 20 };
	int err = kvctx_pool_create(dir, &p);

	if (err)
		printf("create: %d\n", err);
	return !!err;
}

int main(int argc, char **argv)
{
	struct kvctx_params p = { .size = sizeof(p), .keyspace = "client", .arena_bytes = 1 << 20 };
	const char *verb = argc > 2 ? argv[2] : "";
	uint64_t n = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;
	int ret;

	if (!strcmp(verb, "create"))
		return create(argv[1]);
	ret = argc < 3 ? -EINVAL : kvctx_open(argv[1], strcmp(verb, "readers") ? O_RDWR : O_RDONLY, &p, &ctx);
	if (ret) {
		printf("open: %d\n", ret);
		return 1;
	}
	ret = !strcmp(verb, "store") ? store(n) : !strcmp(verb, "check") ? check(n) :
	      !strcmp(verb, "wait") ? wait_for_loads(false) : !strcmp(verb, "poll") ? wait_for_loads(true) :
	      !strcmp(verb, "call") ? call() : !strcmp(verb, "busy") ? (busy(), 1) : !strcmp(verb, "ways") ? ways() :
	      !strcmp(verb, "deep") ? deep(n) :
	      !strcmp(verb, "grow") ? grow() : !strcmp(verb, "huge") ? huge() : !strcmp(verb, "threads") ? threads(n) :
	      !strcmp(verb, "readers") ? readers() : 2;
	kvctx_close(ctx);
	return ret;
}
