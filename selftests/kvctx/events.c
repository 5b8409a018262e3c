// SPDX-License-Identifier: GPL-2.0
/*
 * Events: what a session is told of the pages that come and go in its keyspace.
 */
#include <pthread.h>

#include "ktest.h"
#include "harness.h"

#define ARENA		(8 * KT_MIB)
#define KEYSPACE	((uint8_t)getpid())	/* of one test: pages of others may have to go meanwhile */
#define ROOM		256

FIXTURE(events)
{
	struct kt k;		/* does things */
	struct kt ear;		/* hears of them */
	struct kvctx_event got[ROOM];
	uint64_t lost;
};

/* Events that the session has not seen, at most @nr; or -errno */
static int hear(struct kt *k, struct kvctx_event *to, uint32_t nr, uint64_t *lost)
{
	struct kvctx_events arg = { .size = sizeof(arg), .events = (uintptr_t)to, .nr = nr, .lost = 77 };
	int ret = kt_ioctl(k->file, KVCTX_IOC_EVENTS, &arg);

	if (ret)
		return ret;
	*lost = arg.lost;
	return arg.nr;
}

static bool is(const struct kvctx_event *e, struct kvctx_key key, enum kvctx_event_kind kind, uint32_t length)
{
	return !memcmp(&e->key, &key, sizeof(key)) && e->kind == kind && e->length == length;
}

FIXTURE_SETUP(events)
{
	ASSERT_EQ(0, kt_open(&self->k, O_RDWR, KEYSPACE, ARENA, 4096));
	ASSERT_EQ(0, kt_open(&self->ear, O_RDWR, KEYSPACE, KT_MIB, 8));
	ASSERT_EQ(KT_MIB, kt_store(&self->k, kt_key(1000000), 0, KT_MIB, NULL));
	ASSERT_EQ(0, hear(&self->ear, self->got, ROOM, &self->lost));
	ASSERT_EQ(0, self->lost);
}

FIXTURE_TEARDOWN(events)
{
	kt_close(&self->ear);
	kt_close(&self->k);
}

/* Pages that another test of this number has left may have to go. */
static bool ours(const struct kvctx_event *e)
{
	struct kvctx_key key = kt_key(e->key.qualifier);

	return !memcmp(&e->key, &key, sizeof(key));
}

static int replace(struct kt *k, struct kvctx_key key, uint32_t length)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_STORE, key);

	sqe.flags = KVCTX_OP_REPLACE;
	sqe.length = length;
	return kt_do(k, &sqe, NULL);
}

/* Each is told before its completion is seen; what finds its page present, or fails, is not. */
TEST_F(events, what_happened)
{
	struct kvctx_key a = kt_key(1), b = kt_key(2);
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_STORE, b);
	uint32_t wrong = 1;

	a.qualifier = 0x0102030405060708;
	ASSERT_EQ(5000, kt_store(&self->k, a, 0, 5000, NULL));
	ASSERT_EQ(1, hear(&self->ear, self->got, ROOM, &self->lost));
	EXPECT_TRUE(is(&self->got[0], a, KVCTX_EVENT_STORED, 5000));

	sqe.length = 100;
	sqe.crcs = (uintptr_t)&wrong;
	EXPECT_EQ(-EILSEQ, kt_do(&self->k, &sqe, NULL));
	EXPECT_EQ(5000, kt_store(&self->k, a, 0, 5000, NULL));
	EXPECT_EQ(-ENOENT, kt_op(&self->k, KVCTX_OP_DELETE, b));
	EXPECT_EQ(5000, kt_load(&self->k, a, 0, 5000, NULL));
	EXPECT_EQ(0, hear(&self->ear, self->got, ROOM, &self->lost));

	ASSERT_EQ(300, replace(&self->k, a, 300));
	ASSERT_EQ(0, kt_op(&self->k, KVCTX_OP_DELETE, a));
	ASSERT_EQ(100, replace(&self->k, b, 100));
	ASSERT_EQ(3, hear(&self->ear, self->got, ROOM, &self->lost));
	EXPECT_TRUE(is(&self->got[0], a, KVCTX_EVENT_STORED, 300));
	EXPECT_TRUE(is(&self->got[1], a, KVCTX_EVENT_DELETED, 300));
	EXPECT_TRUE(is(&self->got[2], b, KVCTX_EVENT_STORED, 100));
	EXPECT_EQ(0, self->lost);
}

/* A page that was deleted after a FLUSH leaves by way of a tombstone. */
TEST_F(events, of_a_page_that_is_durable)
{
	struct kvctx_key key = kt_key(1);

	ASSERT_EQ(200, kt_store(&self->k, key, 0, 200, NULL));
	ASSERT_EQ(0, kt_op(&self->k, KVCTX_OP_FLUSH, (struct kvctx_key){ 0 }));
	ASSERT_EQ(0, kt_op(&self->k, KVCTX_OP_DELETE, key));
	ASSERT_EQ(2, hear(&self->ear, self->got, ROOM, &self->lost));
	EXPECT_TRUE(is(&self->got[1], key, KVCTX_EVENT_DELETED, 200));
}

/* Some at a time, the oldest first; a session that stores may listen too, and each has a place of its own. */
TEST_F(events, each_listener_at_its_own_pace)
{
	struct kt reader;

	ASSERT_EQ(0, kt_open(&reader, O_RDONLY, KEYSPACE, 4096, 8));
	for (int i = 0; i < 100; i++) {
		if (i == 50)
			ASSERT_EQ(0, hear(&reader, NULL, 0, &self->lost));
		ASSERT_EQ(100 + i, kt_store(&self->k, kt_key(i), 0, 100 + i, NULL));
		if (i == 80)
			ASSERT_EQ(0, hear(&self->k, NULL, 0, &self->lost));
	}
	for (int i = 0; i < 100; i += 20) {
		ASSERT_EQ(20, hear(&self->ear, self->got, 20, &self->lost));
		for (int j = 0; j < 20; j++)
			EXPECT_TRUE(is(&self->got[j], kt_key(i + j), KVCTX_EVENT_STORED, 100 + i + j));
	}
	EXPECT_EQ(0, hear(&self->ear, self->got, 20, &self->lost));
	ASSERT_EQ(50, hear(&reader, self->got, ROOM, &self->lost));
	EXPECT_TRUE(is(&self->got[0], kt_key(50), KVCTX_EVENT_STORED, 150));
	ASSERT_EQ(19, hear(&self->k, self->got, ROOM, &self->lost));
	EXPECT_TRUE(is(&self->got[0], kt_key(81), KVCTX_EVENT_STORED, 181));
	kt_close(&reader);
}

/* Who listens no more keeps nobody from hearing, and what happened while nobody did is gone. */
TEST_F(events, listeners_come_and_go)
{
	struct kt other;

	ASSERT_EQ(0, kt_open(&other, O_RDWR, KEYSPACE, 4096, 8));
	ASSERT_EQ(0, hear(&other, NULL, 0, &self->lost));
	kt_close(&self->ear);
	ASSERT_EQ(100, kt_store(&self->k, kt_key(1), 0, 100, NULL));
	EXPECT_EQ(1, hear(&other, self->got, ROOM, &self->lost));
	kt_close(&other);
	ASSERT_EQ(100, kt_store(&self->k, kt_key(2), 0, 100, NULL));
	ASSERT_EQ(0, kt_open(&self->ear, O_RDWR, KEYSPACE, 4096, 8));
	ASSERT_EQ(0, hear(&self->ear, self->got, ROOM, &self->lost));
	ASSERT_EQ(0, hear(&self->ear, self->got, ROOM, &self->lost));
	ASSERT_EQ(100, kt_store(&self->k, kt_key(3), 0, 100, NULL));
	ASSERT_EQ(1, hear(&self->ear, self->got, ROOM, &self->lost));
	EXPECT_TRUE(is(&self->got[0], kt_key(3), KVCTX_EVENT_STORED, 100));
}

/* Keys of another keyspace are none of the listener's business. */
TEST_F(events, of_no_other_keyspace)
{
	struct kt other;

	ASSERT_EQ(0, kt_open(&other, O_RDWR, (uint8_t)~KEYSPACE, KT_MIB, 8));
	ASSERT_EQ(0, hear(&other, NULL, 0, &self->lost));
	ASSERT_EQ(100, kt_store(&other, kt_key(1), 0, 100, NULL));
	ASSERT_EQ(0, kt_op(&other, KVCTX_OP_DELETE, kt_key(1)));
	EXPECT_EQ(0, hear(&self->ear, self->got, ROOM, &self->lost));
	ASSERT_EQ(200, kt_store(&self->k, kt_key(1), 0, 200, NULL));
	ASSERT_EQ(2, hear(&other, self->got, ROOM, &self->lost));
	EXPECT_TRUE(is(&self->got[0], kt_key(1), KVCTX_EVENT_STORED, 100));
	EXPECT_TRUE(is(&self->got[1], kt_key(1), KVCTX_EVENT_DELETED, 100));
	kt_close(&other);
}

TEST_F(events, limits)
{
	struct kvctx_info info = { .size = sizeof(info) };
	struct kvctx_events arg = { .size = sizeof(arg), .reserved = 1 };

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_INFO, &info));
	EXPECT_TRUE(info.features & KVCTX_FEAT_EVENTS);
	EXPECT_EQ(0, info.reserved);
	ASSERT_GT(info.events_max, ROOM);
	EXPECT_EQ(-EINVAL, hear(&self->ear, self->got, info.events_max + 1, &self->lost));
	EXPECT_EQ(-EINVAL, hear(&self->ear, self->got, UINT32_MAX, &self->lost));
	EXPECT_EQ(-EINVAL, kt_ioctl(self->ear.file, KVCTX_IOC_EVENTS, &arg));
}

/* @nr pages of 512 bytes, keys from @first on */
static bool store_many(struct kt *k, uint64_t first, uint32_t nr)
{
	struct kvctx_sqe sqes[1024];
	struct kvctx_cqe cqe;

	for (uint32_t i = 0, n; i < nr; i += n) {
		n = nr - i < 1024 ? nr - i : 1024;
		for (uint32_t j = 0; j < n; j++) {
			sqes[j] = kt_sqe(KVCTX_OP_STORE, kt_key(first + i + j));
			sqes[j].length = 512;
		}
		if (kt_submit(k, sqes, n, n) != (int)n)
			return false;
		for (uint32_t j = 0; j < n; j++)
			if (!kt_reap(k, &cqe) || cqe.res != 512)
				return false;
	}
	return true;
}

/* The newest are kept, and the others counted: compared with what one hears who keeps up. */
TEST_F(events, more_than_are_kept)
{
	struct kvctx_info info = { .size = sizeof(info) };
	struct kvctx_event *all, *late;
	uint32_t max, nr = 0;
	int n;

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_INFO, &info));
	max = info.events_max;
	all = calloc(3 * max, sizeof(*all));
	late = calloc(max, sizeof(*late));
	ASSERT_TRUE(all && late);
	ASSERT_EQ(0, hear(&self->k, NULL, 0, &self->lost));
	for (uint32_t i = 0; i < max + 777; i += 1024) {
		ASSERT_TRUE(store_many(&self->k, i, 1024));
		n = hear(&self->k, all + nr, max, &self->lost);
		ASSERT_GE(n, 1024);
		ASSERT_EQ(0, self->lost);
		nr += n;
		ASSERT_GT(2 * max, nr);
	}
	ASSERT_EQ(100, hear(&self->ear, late, 100, &self->lost));
	EXPECT_EQ(nr - max, self->lost);
	EXPECT_EQ(0, memcmp(late, all + nr - max, 100 * sizeof(*all)));
	/* nothing is lost twice, and what was taken has made room */
	ASSERT_EQ(512, replace(&self->k, kt_key(0), 512));
	n = hear(&self->k, all + nr, max, &self->lost);
	ASSERT_GE(n, 1);
	ASSERT_EQ(max - 100 + n, hear(&self->ear, late, max, &self->lost));
	EXPECT_EQ(0, self->lost);
	EXPECT_EQ(0, memcmp(late, all + nr - max + 100, (max - 100 + n) * sizeof(*all)));
	free(all);
	free(late);
}

/* Is this event that page @nr was stored? Or one of before that went. */
static bool is_stored(struct __test_metadata *_metadata, const struct kvctx_event *e, uint32_t nr, bool *gone,
		      uint32_t *evicted)
{
	uint64_t key = e->key.qualifier;

	if (!ours(e) || key == 1000000)
		return false;
	if (e->kind == KVCTX_EVENT_STORED) {
		EXPECT_EQ(nr, key);
		return true;
	}
	EXPECT_EQ(KVCTX_EVENT_EVICTED, e->kind);
	EXPECT_GT(nr, key);
	if (key >= nr)
		return false;
	EXPECT_EQ(ARENA - key, e->length);
	EXPECT_FALSE(gone[key]);
	gone[key] = true;
	++*evicted;
	return false;
}

/* What had to make room is told, and nothing else: a page is here unless it is said to have gone. */
TEST_F(events, evictions)
{
	struct kvctx_info info = { .size = sizeof(info) };
	uint32_t evicted = 0, stored = 0, nr, max;
	bool *gone;
	int n;

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_INFO, &info));
	max = 3 * info.capacity / ARENA;
	gone = calloc(max, sizeof(*gone));
	ASSERT_NE(NULL, gone);
	for (nr = 0; nr < max && (!evicted || nr < info.capacity / ARENA + 10); nr++) {
		ASSERT_EQ(ARENA - nr, kt_store(&self->k, kt_key(nr), 0, ARENA - nr, NULL));
		/* many pages that were left in a keyspace of this number may go at once */
		do {
			n = hear(&self->ear, self->got, ROOM, &self->lost);
			ASSERT_GE(n, 0);
			ASSERT_EQ(0, self->lost);
			for (int i = 0; i < n; i++)
				stored += is_stored(_metadata, &self->got[i], nr, gone, &evicted);
		} while (n == ROOM);
		EXPECT_EQ(nr + 1, stored);
	}
	EXPECT_GT(evicted, 0);
	/* reclaim may go on; then it says so */
	for (uint32_t i = 0; i < nr; i++) {
		int res = kt_op(&self->k, KVCTX_OP_QUERY, kt_key(i));

		n = hear(&self->ear, self->got, ROOM, &self->lost);
		for (int j = 0; j < n; j++)
			if (ours(&self->got[j]))
				gone[self->got[j].key.qualifier % max] = true;
		if (res == -ENOENT)
			EXPECT_TRUE(gone[i]);
		else
			EXPECT_EQ(ARENA - i, res);
	}
	free(gone);
}

/* The eventfd of SETUP: once for what comes after a call that took all there was */
TEST_F(events, eventfd)
{
	int fd = eventfd(0, EFD_NONBLOCK);
	struct kvctx_setup setup = {
		.size = sizeof(setup), .flags = KVCTX_SETUP_EVENTFD, .cq_entries = 8, .eventfd = fd,
	};
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	struct kt k = { 0 };
	uint64_t count;

	ASSERT_GE(fd, 0);
	memset(setup.keyspace, KEYSPACE, sizeof(setup.keyspace));
	ASSERT_EQ(0, kt_file(O_RDWR, &k.file));
	ASSERT_EQ(0, kt_ioctl(k.file, KVCTX_IOC_SETUP, &setup));
	ASSERT_EQ(100, kt_store(&self->k, kt_key(10000), 0, 100, NULL));
	EXPECT_EQ(0, poll(&poll_fd, 1, 50));
	ASSERT_EQ(0, hear(&k, NULL, 0, &self->lost));
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 5; i++)
			ASSERT_EQ(100, kt_store(&self->k, kt_key(100 * round + i), 0, 100 , NULL)) TH_LOG("%d", i);
		ASSERT_EQ(1, poll(&poll_fd, 1, 10000));
		usleep(round ? 0 : 50000);
		ASSERT_EQ(8, read(fd, &count, sizeof(count)));
		EXPECT_EQ(1, count);
		/* there are more, which need no signal */
		ASSERT_EQ(5, hear(&k, self->got, 5, &self->lost));
		ASSERT_EQ(100, kt_store(&self->k, kt_key(100 * round + 10), 0, 100 , NULL));
		EXPECT_EQ(0, poll(&poll_fd, 1, round ? 0 : 50));
		ASSERT_EQ(1, hear(&k, self->got, 5, &self->lost));
	}
	kvctx_sys_close(k.file);
	close(fd);
}

/* What cannot be written is not taken, and not lost either. */
TEST_F(events, bad_pointers)
{
	struct kvctx_event *page = mmap(NULL, 2 * kt_page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvctx_event *last = (void *)((uint8_t *)page + kt_page() - 20 * sizeof(*page));

	ASSERT_NE(MAP_FAILED, (void *)page);
	ASSERT_EQ(0, mprotect((uint8_t *)page + kt_page(), kt_page(), PROT_READ));
	for (int i = 0; i < 100; i++)
		ASSERT_EQ(100, kt_store(&self->k, kt_key(i), 0, 100, NULL));
	EXPECT_EQ(-EFAULT, hear(&self->ear, NULL, 100, &self->lost));
	EXPECT_EQ(-EFAULT, hear(&self->ear, (void *)1, 100, &self->lost));
	EXPECT_EQ(-EFAULT, hear(&self->ear, (void *)((uint8_t *)page + kt_page()), 100, &self->lost));
	EXPECT_EQ(16, hear(&self->ear, last, 100, &self->lost));
	EXPECT_EQ(0, self->lost);
	EXPECT_TRUE(is(&last[15], kt_key(15), KVCTX_EVENT_STORED, 100));
	EXPECT_EQ(84, hear(&self->ear, self->got, 100, &self->lost));
	EXPECT_TRUE(is(&self->got[0], kt_key(16), KVCTX_EVENT_STORED, 100));
	munmap(page, 8192);
}

#define WRITERS		4
#define KEYS		16
#define TURNS		400

struct writer {
	pthread_t thread;
	uint32_t nr;
	int err;
	const struct kvctx_key *keys;
};

static void *write_and_delete(void *arg)
{
	struct writer *w = arg;
	uint32_t seed = w->nr;
	struct kt k;

	w->err = kt_open(&k, O_RDWR, KEYSPACE, 64 << 10, 8);
	for (int i = 0; i < TURNS && !w->err; i++) {
		const struct kvctx_key *key = &w->keys[rand_r(&seed) % KEYS];
		uint32_t length = 1 + rand_r(&seed) % 1000;
		int res;

		switch (rand_r(&seed) % 3) {
		case 0:
			res = kt_store(&k, *key, 0, length, NULL);
			break;
		case 1:
			res = replace(&k, *key, length);
			break;
		default:
			res = kt_op(&k, KVCTX_OP_DELETE, *key);
		}
		if (res < 0 && res != -ENOENT)
			w->err = res;
		if (i % 100 == 50) {	/* listeners come and go meanwhile */
			uint64_t lost;
			struct kt other;

			w->err = w->err ?: kt_open(&other, O_RDONLY, KEYSPACE, 0, 8);
			w->err = w->err ?: hear(&other, NULL, 0, &lost);
			kt_close(&other);
		}
	}
	kt_close(&k);
	return NULL;
}

/* Of each page in the order in which it happened: who hears all knows what is here. */
TEST_F(events, tell_the_state)
{
	struct kvctx_key keys[KEYS];
	struct writer writers[WRITERS];
	int here[KEYS], n, rest = 0;

	for (int i = 0; i < KEYS; i++) {
		keys[i] = kt_key(i);
		here[i] = -ENOENT;
	}
	for (int i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){ .nr = i, .keys = keys };
		ASSERT_EQ(0, pthread_create(&writers[i].thread, NULL, write_and_delete, &writers[i]));
	}
	do {
		/* the last look comes when all have ended */
		bool last = rest == WRITERS;

		if (!last && !pthread_tryjoin_np(writers[rest].thread, NULL))
			rest++;
		n = hear(&self->ear, self->got, ROOM, &self->lost);
		ASSERT_GE(n, 0);
		ASSERT_EQ(0, self->lost);
		for (int i = 0; i < n; i++) {
			const struct kvctx_event *e = &self->got[i];

			/* what the setup stored, or another test in a keyspace of this number, may have to go */
			if (e->key.qualifier >= KEYS) {
				EXPECT_EQ(KVCTX_EVENT_EVICTED, e->kind);
				continue;
			}
			if (e->kind == KVCTX_EVENT_DELETED)
				EXPECT_EQ(here[e->key.qualifier], e->length);
			here[e->key.qualifier] = e->kind == KVCTX_EVENT_STORED ? (int)e->length : -ENOENT;
		}
		if (last && !n)
			break;
	} while (true);
	for (int i = 0; i < WRITERS; i++)
		EXPECT_EQ(0, writers[i].err);
	for (int i = 0; i < KEYS; i++)
		EXPECT_EQ(here[i], kt_op(&self->k, KVCTX_OP_QUERY, keys[i])) TH_LOG("key %d", i);
}

TEST_HARNESS_MAIN
