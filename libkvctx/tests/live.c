// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The library over whoever serves: the module, in the guest, or the library itself. The tenant is
 * $KVCTX_NODE, by default /dev/kvctx/t/default.
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <kvctx_uring.h>

#include "harness.h"

#define ARENA	(4UL << 20)
#define PAGE	65536
#define LIMIT	64

static int open_node(int flags, int efd, struct kvctx **ctx)
{
	const char *node = getenv("KVCTX_NODE");
	struct kvctx_params p = {
		.size = sizeof(p), .keyspace = "libkvctx live", .arena_bytes = ARENA, .cq_entries = LIMIT,
		.eventfd = efd, .timeout_ns = 60000000000,
	};

	return kvctx_open(node ? node : "/dev/kvctx/t/default", flags, &p, ctx);
}

static void fill(uint8_t *buf, size_t len, uint64_t n)
{
	size_t i;

	for (i = 0; i < len; i++)
		buf[i] = (uint8_t)(n * 31 + i * 7 + (i >> 8));
}

static bool is_filled(const uint8_t *buf, size_t len, uint64_t n)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (buf[i] != (uint8_t)(n * 31 + i * 7 + (i >> 8)))
			return false;
	return true;
}

/* Keys that no other test and no earlier run uses */
static struct kvctx_key key_of(uint64_t n)
{
	return kvctx_key_from_u64(((uint64_t)getpid() << 32) + n, (uint64_t)time(NULL));
}

FIXTURE(lib) {
	struct kvctx *ctx;
	uint8_t *arena;
};

FIXTURE_SETUP(lib)
{
	ASSERT_EQ(0, open_node(O_RDWR, 0, &self->ctx));
	self->arena = kvctx_arena(self->ctx, NULL);
	ASSERT_NE(NULL, self->arena);
}

FIXTURE_TEARDOWN(lib)
{
	kvctx_close(self->ctx);
}

TEST_F(lib, any_memory)
{
	static const uint8_t constant[5000] = { 1, 2, 3 };
	uint8_t *heap = malloc(3 * PAGE), *reg = malloc(2 * PAGE);
	struct kvctx_key key;
	uint32_t flags, id;

	key = key_of(1);
	ASSERT_EQ(5000, kvctx_store(self->ctx, &key, constant, 5000, NULL));
	ASSERT_EQ(5000, kvctx_load(self->ctx, &key, heap + 3, 5000, &flags));
	EXPECT_EQ(0, memcmp(heap + 3, constant, 5000));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, flags & ~KVCTX_CQE_STAGED);
	EXPECT_EQ(-EFAULT, kvctx_load(self->ctx, &key, (void *)constant, 5000, NULL));

	key = key_of(2);
	fill(heap + 1, 100001, 2);
	ASSERT_EQ(100001, kvctx_store(self->ctx, &key, heap + 1, 100001, &flags));
	EXPECT_EQ(0, flags & ~KVCTX_CQE_STAGED);
	ASSERT_EQ(100001, kvctx_load(self->ctx, &key, self->arena + 5, 100001, NULL));
	EXPECT_TRUE(is_filled(self->arena + 5, 100001, 2));
	ASSERT_EQ(0, kvctx_mem_register(self->ctx, reg, 2 * PAGE, &id));
	ASSERT_EQ(PAGE, kvctx_load(self->ctx, &key, reg + 77, PAGE, NULL));
	EXPECT_TRUE(is_filled(reg + 77, PAGE, 2));
	EXPECT_EQ(0, kvctx_mem_unregister(self->ctx, id));
	EXPECT_EQ(-EINVAL, kvctx_mem_unregister(self->ctx, id));
	ASSERT_EQ(100001, kvctx_store(self->ctx, &key, self->arena, 100001, &flags));
	EXPECT_EQ(KVCTX_CQE_DEDUP, flags);
	free(heap);
	free(reg);
}

TEST_F(lib, results)
{
	const struct kvctx_info *info = kvctx_get_info(self->ctx);
	struct kvctx_key keys[3] = { key_of(1), key_of(2), key_of(3) };
	uint32_t lens[3], lease;

	EXPECT_EQ(-ENOENT, kvctx_load(self->ctx, &keys[0], self->arena, 1, NULL));
	EXPECT_EQ(-ENOENT, kvctx_query(self->ctx, &keys[0]));
	EXPECT_EQ(-ENOENT, kvctx_delete(self->ctx, &keys[0]));
	EXPECT_EQ(-E2BIG, kvctx_store(self->ctx, &keys[0], self->arena, info->page_len_max + 1, NULL));
	EXPECT_EQ(-EINVAL, kvctx_release(self->ctx, 12345));
	EXPECT_EQ(0, kvctx_match(self->ctx, keys, 3, NULL, 0, NULL));
	ASSERT_EQ(10, kvctx_store(self->ctx, &keys[0], self->arena, 10, NULL));
	ASSERT_EQ(20, kvctx_store(self->ctx, &keys[1], self->arena, 20, NULL));
	EXPECT_EQ(-ERANGE, kvctx_load(self->ctx, &keys[0], self->arena, 11, NULL));
	EXPECT_EQ(20, kvctx_query(self->ctx, &keys[1]));
	EXPECT_EQ(2, kvctx_match(self->ctx, keys, 3, lens, 1000, &lease));
	EXPECT_EQ(10, lens[0]);
	EXPECT_EQ(20, lens[1]);
	EXPECT_EQ(0, kvctx_release(self->ctx, lease));
	EXPECT_EQ(0, kvctx_lease(self->ctx, &keys[0], 1000, &lease));
	EXPECT_EQ(0, kvctx_release(self->ctx, lease));
	EXPECT_EQ(0, kvctx_delete(self->ctx, &keys[0]));
	EXPECT_EQ(0, kvctx_flush(self->ctx));
	EXPECT_EQ(0, kvctx_match(self->ctx, keys, 3, NULL, 0, NULL));
}

TEST_F(lib, many_pages_in_one_call)
{
	const struct kvctx_info *info = kvctx_get_info(self->ctx);
	struct kvctx_found *found = (void *)(self->arena + 3 * PAGE);
	struct kvctx_key keys[16];
	uint32_t lens[32], pieces[16], seen[16], mem = 7;
	uint8_t *heap = malloc(16 * PAGE);
	void *addrs[32];
	uint64_t at = 0, present = 0, before, before_bytes, pages, bytes, limit = 1;
	int32_t res[16];
	struct kvctx_batch b = {
		.size = sizeof(b), .opcode = KVCTX_OP_STORE, .nr = 16, .keys = keys, .addrs = addrs, .lens = lens,
		.res = res, .user_data = 5, .depth = 1,
	};
	struct kvctx_sqe sqe = { 0 };
	struct kvctx_cqe cqe;
	uint32_t id;

	ASSERT_EQ(0, kvctx_mem_register(self->ctx, heap, 16 * PAGE, &id));
	ASSERT_EQ(0, kvctx_mem_find(self->ctx, heap + PAGE, PAGE, &mem, &at));
	EXPECT_EQ(id, mem);
	EXPECT_EQ(PAGE, at);
	for (int i = 0; i < 16; i++) {
		keys[i] = key_of(500 + i);
		addrs[i] = heap + i * PAGE;
		lens[i] = PAGE;
		fill(heap + i * PAGE, PAGE, 500 + i);
	}
	ASSERT_EQ(0, kvctx_usage(self->ctx, &before, &before_bytes, NULL));
	EXPECT_EQ(16, kvctx_batch_run(self->ctx, &b));
	ASSERT_EQ(0, kvctx_usage(self->ctx, &pages, &bytes, &limit));
	EXPECT_EQ(before + 16, pages);
	EXPECT_EQ(before_bytes + 16 * PAGE, bytes);
	EXPECT_EQ(0, limit);
	EXPECT_EQ(0, kvctx_delete(self->ctx, &keys[3]));
	EXPECT_EQ(15, kvctx_match_all(self->ctx, keys, 16, &present, seen, 0, NULL));
	EXPECT_EQ(0xfff7, present);
	EXPECT_EQ(0, seen[3]);
	EXPECT_EQ(PAGE, seen[15]);

	/* loaded in two pieces each, a page that is missing among them */
	memset(heap, 0, 16 * PAGE);
	for (int i = 0; i < 32; i++) {
		addrs[i] = heap + i * (PAGE / 2);
		lens[i] = PAGE / 2;
		pieces[i / 2] = 2;
	}
	b.opcode = KVCTX_OP_LOAD;
	b.depth = 0;
	b.pieces = pieces;
	ASSERT_EQ(0, kvctx_batch_submit(self->ctx, &b));
	ASSERT_EQ(1, kvctx_wait(self->ctx, 1, KVCTX_TIMEOUT_NONE));
	ASSERT_EQ(1, kvctx_take(self->ctx, &cqe, 1));
	EXPECT_EQ(5, cqe.user_data);
	EXPECT_EQ(15, cqe.res);
	for (int i = 0; i < 16; i++) {
		EXPECT_EQ(i == 3 ? -ENOENT : PAGE, res[i]);
		EXPECT_TRUE(i == 3 || is_filled(heap + i * PAGE, PAGE, 500 + i));
	}

	EXPECT_EQ(0, kvctx_mem_unregister(self->ctx, id));
	free(heap);
	if (!(info->op_mask >> KVCTX_OP_MATCH & 1))
		return;
	kvctx_prep_match(&sqe, keys, 16, KVCTX_OP_MATCH_ALL, 0, KVCTX_MEM_ARENA, 3 * PAGE,
			 sizeof(*found) + sizeof(uint64_t));
	kvctx_sqe_set_data(&sqe, 6);
	ASSERT_EQ(1, kvctx_submit_sqes(self->ctx, &sqe, 1));
	EXPECT_EQ(0, kvctx_drain(self->ctx, KVCTX_TIMEOUT_NONE));
	ASSERT_EQ(1, kvctx_take(self->ctx, &cqe, 1));
	EXPECT_EQ(15, cqe.res);
	EXPECT_EQ(0xfff7, found->present[0]);
	EXPECT_EQ(0, kvctx_drain(self->ctx, 0));
	if (info->op_mask >> KVCTX_OP_CANCEL & 1)
		EXPECT_EQ(0, kvctx_cancel(self->ctx, 6));
}

/* Memory that was never registered, eight times the slots; twice with slots in the arena, then in memory of ours */
TEST_F(lib, many_pages_of_any_memory)
{
	const uint32_t nr = 32;
	uint8_t *heap = malloc(nr * PAGE), *slots = malloc(4 * PAGE);
	struct kvctx_key keys[32];
	uint32_t lens[32], flags[32], id;
	void *addrs[32];
	int32_t res[32];
	struct kvctx_batch b = {
		.size = sizeof(b), .flags = KVCTX_BATCH_STAGE, .nr = nr, .keys = keys, .addrs = addrs, .lens = lens,
		.res = res, .cqe_flags = flags, .user_data = 5,
	};
	struct kvctx_cqe cqe;
	int good = 0;

	EXPECT_EQ(0, kvctx_stage_init_at(self->ctx, NULL, NULL, self->arena + PAGE, 4, PAGE));
	ASSERT_EQ(0, kvctx_mem_register(self->ctx, slots, 4 * PAGE, &id));
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < nr; i++) {
			keys[i] = key_of(700 + 100 * round + i);
			addrs[i] = heap + i * PAGE;
			lens[i] = PAGE - 7 * i;
			fill(addrs[i], lens[i], 10 * round + i);
		}
		b.opcode = KVCTX_OP_STORE;
		ASSERT_EQ(nr, kvctx_batch_run(self->ctx, &b));
		memset(heap, 0, nr * PAGE);
		b.opcode = KVCTX_OP_LOAD;
		ASSERT_EQ(0, kvctx_batch_submit(self->ctx, &b));
		ASSERT_EQ(0, kvctx_drain(self->ctx, KVCTX_TIMEOUT_NONE));
		ASSERT_EQ(1, kvctx_take(self->ctx, &cqe, 1));
		ASSERT_EQ(nr, cqe.res);
		for (uint32_t i = 0; i < nr; i++) {
			EXPECT_EQ(lens[i], res[i]);
			EXPECT_TRUE(is_filled(addrs[i], lens[i], 10 * round + i));
			EXPECT_EQ(KVCTX_CQE_STAGED | KVCTX_CQE_VERIFIED, flags[i] & ~KVCTX_CQE_FROM_DRAM);
		}
		if (round == 1)
			ASSERT_EQ(0, kvctx_stage_init_at(self->ctx, NULL, NULL, slots, 4, PAGE));
	}
	EXPECT_EQ(-EBUSY, kvctx_mem_unregister(self->ctx, id));

	/* cancelled: each page is loaded or says so */
	ASSERT_EQ(0, kvctx_batch_submit(self->ctx, &b));
	ASSERT_GE(kvctx_cancel(self->ctx, 5), 0);
	ASSERT_EQ(1, kvctx_wait(self->ctx, 1, KVCTX_TIMEOUT_NONE));
	ASSERT_EQ(1, kvctx_take(self->ctx, &cqe, 1));
	for (uint32_t i = 0; i < nr; i++) {
		EXPECT_TRUE(res[i] == (int32_t)lens[i] || res[i] == -ECANCELED);
		good += res[i] >= 0;
	}
	EXPECT_EQ(good, cqe.res);

	/* closed: the memory is ours again, whatever was under way */
	ASSERT_EQ(0, kvctx_batch_submit(self->ctx, &b));
	kvctx_close(self->ctx);
	free(heap);
	free(slots);
	ASSERT_EQ(0, open_node(O_RDWR, 0, &self->ctx));
}

TEST_F(lib, read_only_session)
{
	struct kvctx_key key = key_of(1);
	uint8_t buf[1000];
	struct kvctx_cqe cqe;
	struct kvctx *ro;
	int i;

	fill(self->arena, sizeof(buf), 9);
	ASSERT_EQ(sizeof(buf), kvctx_store(self->ctx, &key, self->arena, sizeof(buf), NULL));
	ASSERT_EQ(0, open_node(O_RDONLY, 0, &ro));
	for (i = 0; i < 3 * LIMIT; i++) {
		ASSERT_EQ(sizeof(buf), kvctx_load(ro, &key, buf, sizeof(buf), NULL));
		kvctx_prep_query(kvctx_get_sqe(ro), &key);
		ASSERT_EQ(1, kvctx_submit_and_wait(ro, 1, KVCTX_TIMEOUT_NONE));
		ASSERT_EQ(1, kvctx_take(ro, &cqe, 1));
		ASSERT_EQ(sizeof(buf), cqe.res);
	}
	EXPECT_TRUE(is_filled(buf, sizeof(buf), 9));
	ASSERT_EQ(sizeof(buf), kvctx_load(ro, &key, kvctx_arena(ro, NULL), sizeof(buf), NULL));
	EXPECT_TRUE(is_filled(kvctx_arena(ro, NULL), sizeof(buf), 9));
	EXPECT_EQ(-EACCES, kvctx_store(ro, &key, buf, sizeof(buf), NULL));
	EXPECT_EQ(-EACCES, kvctx_delete(ro, &key));
	kvctx_close(ro);
}

TEST_F(lib, full_queue)
{
	struct kvctx_key key = key_of(1);
	struct kvctx_seg seg = { .length = PAGE };
	struct kvctx_cqe cqe[LIMIT];
	int sent = 0, ret;

	ASSERT_EQ(PAGE, kvctx_store(self->ctx, &key, self->arena, PAGE, NULL));
	for (;;) {
		struct kvctx_sqe *sqe;

		while ((sqe = kvctx_get_sqe(self->ctx)))
			kvctx_prep_load(sqe, &key, &seg, 1, 0, PAGE);
		ret = kvctx_submit(self->ctx);
		if (ret == -EAGAIN)
			break;
		ASSERT_GT(ret, 0);
		sent += ret;
	}
	EXPECT_EQ(LIMIT, sent);
	EXPECT_EQ(PAGE, kvctx_query(self->ctx, &key));	/* calls have room */
	EXPECT_EQ(LIMIT, kvctx_wait(self->ctx, LIMIT, KVCTX_TIMEOUT_NONE));
	EXPECT_EQ(LIMIT, kvctx_take(self->ctx, cqe, LIMIT));
	EXPECT_EQ(0, kvctx_wait(self->ctx, 1, KVCTX_TIMEOUT_NONE));
	EXPECT_GT(kvctx_submit(self->ctx), 0);
}

/* A batch that a ring hands over, beside operations of the queue */
TEST_F(lib, batch_of_a_ring)
{
	struct kvctx_seg seg = { .length = PAGE };
	struct kvctx_key key = key_of(1);
	struct kvctx_sqe ops[LIMIT] = { 0 };
	struct kvctx_cqe cqe[LIMIT];
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *done;
	struct io_uring ring;
	uint64_t sum = 0;
	int i;

	ASSERT_EQ(PAGE, kvctx_store(self->ctx, &key, self->arena, PAGE, NULL));
	for (i = 0; i < LIMIT; i++) {
		kvctx_prep_load(&ops[i], &key, &seg, 1, 0, PAGE);
		kvctx_sqe_set_data(&ops[i], i);
	}
	ASSERT_EQ(0, io_uring_queue_init(4, &ring, 0));
	EXPECT_EQ(-EAGAIN, kvctx_expect(self->ctx, LIMIT + 1));
	ASSERT_EQ(0, kvctx_expect(self->ctx, LIMIT - 1));
	sqe = io_uring_get_sqe(&ring);
	ASSERT_NE(NULL, sqe);
	kvctx_uring_prep_submit(sqe, kvctx_fd(self->ctx), ops, LIMIT - 1);
	ASSERT_EQ(1, io_uring_submit(&ring));
	for (i = 0; i < 2; i++)
		*kvctx_get_sqe(self->ctx) = ops[LIMIT - 1];
	EXPECT_EQ(1, kvctx_submit(self->ctx));
	EXPECT_EQ(-EAGAIN, kvctx_submit(self->ctx));
	EXPECT_EQ(PAGE, kvctx_query(self->ctx, &key));	/* calls have room */
	EXPECT_EQ(LIMIT, kvctx_wait(self->ctx, LIMIT, KVCTX_TIMEOUT_NONE));
	ASSERT_EQ(LIMIT, kvctx_take(self->ctx, cqe, LIMIT));
	for (i = 0; i < LIMIT; i++) {
		EXPECT_EQ(PAGE, cqe[i].res);
		sum += cqe[i].user_data;
	}
	EXPECT_EQ(LIMIT * (LIMIT - 1) / 2, sum);
	ASSERT_EQ(0, io_uring_wait_cqe(&ring, &done));
	EXPECT_EQ(LIMIT - 1, done->res);
	EXPECT_EQ(1, kvctx_submit(self->ctx));
	io_uring_queue_exit(&ring);
}

/* INFO says whether commands are served; where they are not, each says so */
TEST_F(lib, commands_are_served_or_refused)
{
	bool served = kvctx_get_info(self->ctx)->features & KVCTX_FEAT_URING;
	struct kvctx_key key = key_of(1);
	struct kvctx_sqe op = { 0 };
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *done;
	struct io_uring ring;

	kvctx_prep_query(&op, &key);
	ASSERT_EQ(0, io_uring_queue_init(4, &ring, IORING_SETUP_SQE128));
	sqe = io_uring_get_sqe(&ring);
	ASSERT_NE(NULL, sqe);
	ASSERT_EQ(0, kvctx_uring_prep(sqe, kvctx_fd(self->ctx), &op));
	ASSERT_EQ(1, io_uring_submit(&ring));
	ASSERT_EQ(0, io_uring_wait_cqe(&ring, &done));
	EXPECT_EQ(served ? -ENOENT : -EOPNOTSUPP, done->res);
	io_uring_queue_exit(&ring);
}

TEST(eventfd_and_poll)
{
	int efd = eventfd(0, EFD_NONBLOCK);
	struct kvctx_key key = key_of(1);
	struct kvctx_cqe cqe;
	struct kvctx *ctx;
	struct pollfd p;
	uint64_t n;

	ASSERT_EQ(0, open_node(O_RDWR, efd, &ctx));
	p = (struct pollfd){ .fd = kvctx_fd(ctx), .events = POLLIN };
	EXPECT_EQ(0, poll(&p, 1, 0));
	kvctx_prep_query(kvctx_get_sqe(ctx), &key);
	ASSERT_EQ(1, kvctx_submit(ctx));
	p.fd = efd;
	EXPECT_EQ(1, poll(&p, 1, 10000));
	EXPECT_EQ(8, read(efd, &n, 8));
	EXPECT_EQ(1, n);
	EXPECT_EQ(1, kvctx_take(ctx, &cqe, 1));
	EXPECT_EQ(-ENOENT, cqe.res);
	p.fd = kvctx_fd(ctx);
	EXPECT_EQ(0, poll(&p, 1, 0));
	kvctx_prep_query(kvctx_get_sqe(ctx), &key);
	ASSERT_EQ(1, kvctx_submit(ctx));
	EXPECT_EQ(1, poll(&p, 1, 10000));
	EXPECT_EQ(1, kvctx_take(ctx, &cqe, 1));
	EXPECT_EQ(0, poll(&p, 1, 0));
	kvctx_close(ctx);
	close(efd);
}

struct worker {
	struct kvctx *ctx;
	uint64_t n;
	int failed;	/* line */
};

#define CHECK(x)	do { if (!(x)) { w->failed = __LINE__; return NULL; } } while (0)

/* Pages of the thread's own, in memory that is pinned for each call */
static void *call(void *arg)
{
	struct worker *w = arg;
	uint8_t *buf = malloc(PAGE);
	int i;

	for (i = 0; i < 20; i++) {
		struct kvctx_key key = key_of(1000 * w->n + i);

		fill(buf, PAGE, w->n + i);
		CHECK(kvctx_store(w->ctx, &key, buf, PAGE, NULL) == PAGE);
		memset(buf, 0, PAGE);
		CHECK(kvctx_load(w->ctx, &key, buf, PAGE, NULL) == PAGE);
		CHECK(is_filled(buf, PAGE, w->n + i));
		CHECK(!kvctx_delete(w->ctx, &key));
	}
	free(buf);
	return NULL;
}

/* Rounds of operations on pieces of the arena, all of which have to complete */
static void *submit(void *arg)
{
	struct worker *w = arg;
	uint8_t *arena = kvctx_arena(w->ctx, NULL);
	struct kvctx_key keys[16];
	struct kvctx_seg segs[16];
	struct kvctx_cqe cqe[16];
	int round, i, n;

	for (round = 0; round < 20; round++) {
		for (i = 0; i < 16; i++) {
			struct kvctx_sqe *sqe = kvctx_get_sqe(w->ctx);

			if (!(round & 1))
				keys[i] = key_of(100000 + round * 16 + i);
			segs[i] = (struct kvctx_seg){ .offset = i * PAGE, .length = PAGE };
			if (round & 1) {
				memset(arena + i * PAGE, 0, PAGE);
				kvctx_prep_load(sqe, &keys[i], &segs[i], 1, 0, PAGE);
			} else {
				fill(arena + i * PAGE, PAGE, i);
				kvctx_prep_store(sqe, &keys[i], &segs[i], 1, PAGE, i + 1);
			}
			kvctx_sqe_set_data(sqe, i);
		}
		CHECK(kvctx_submit_and_wait(w->ctx, 16, KVCTX_TIMEOUT_NONE) == 16);
		CHECK(kvctx_wait(w->ctx, 16, KVCTX_TIMEOUT_NONE) == 16);
		n = kvctx_take(w->ctx, cqe, 16);
		CHECK(n == 16);
		for (i = 0; i < 16; i++) {
			CHECK(cqe[i].res == PAGE);
			CHECK(is_filled(arena + cqe[i].user_data * PAGE, PAGE, cqe[i].user_data));
		}
	}
	return NULL;
}

TEST_F(lib, threads)
{
	struct worker w[5];
	pthread_t t[5];
	int i;

	for (i = 0; i < 5; i++) {
		w[i] = (struct worker){ .ctx = self->ctx, .n = i };
		ASSERT_EQ(0, pthread_create(&t[i], NULL, i ? call : submit, &w[i]));
	}
	for (i = 0; i < 5; i++) {
		pthread_join(t[i], NULL);
		EXPECT_EQ(0, w[i].failed);
	}
}

TEST_F(lib, fork_leaves_the_parent_alone)
{
	struct kvctx_key key = key_of(1);
	int status;
	pid_t pid;

	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid)
		_exit(0);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	fill(self->arena, PAGE, 5);
	EXPECT_EQ(PAGE, kvctx_store(self->ctx, &key, self->arena, PAGE, NULL));
	EXPECT_EQ(PAGE, kvctx_load(self->ctx, &key, self->arena + PAGE, PAGE, NULL));
	EXPECT_TRUE(is_filled(self->arena + PAGE, PAGE, 5));
}

/* Up to @nr events of our pages: those of other tests may have to go meanwhile */
static int hear(struct kvctx *ear, struct kvctx_event *to, int nr, const struct kvctx_key *a, const struct kvctx_key *b)
{
	uint64_t lost = 0;
	int n = 0, ret;

	while (n < nr) {
		ret = kvctx_events(ear, to + n, 1, &lost);
		if (ret < 1)
			return ret < 0 ? ret : n;
		if (lost)
			return -ENOBUFS;
		n += !memcmp(&to[n].key, a, sizeof(*a)) || !memcmp(&to[n].key, b, sizeof(*b));
	}
	return n;
}

/* Another handle hears of what this one does, and is told when there is something to hear. */
TEST_F(lib, events)
{
	struct kvctx_key key = key_of(900), other = key_of(901);
	struct kvctx_event got[8];
	struct kvctx *ear;
	struct pollfd p = { .events = POLLIN };
	uint64_t lost;

	p.fd = eventfd(0, EFD_NONBLOCK);
	ASSERT_EQ(0, open_node(O_RDONLY, p.fd, &ear));
	ASSERT_EQ(0, kvctx_events(ear, got, 8, &lost));
	ASSERT_EQ(PAGE, kvctx_store(self->ctx, &key, self->arena, PAGE, NULL));
	ASSERT_EQ(1, poll(&p, 1, 10000));
	ASSERT_EQ(100, kvctx_store(self->ctx, &other, self->arena, 100, NULL));
	ASSERT_EQ(0, kvctx_delete(self->ctx, &key));
	ASSERT_EQ(3, hear(ear, got, 8, &key, &other));
	EXPECT_EQ(KVCTX_EVENT_STORED, got[0].kind);
	EXPECT_EQ(PAGE, got[0].length);
	EXPECT_EQ(0, memcmp(&key, &got[0].key, sizeof(key)));
	EXPECT_EQ(KVCTX_EVENT_STORED, got[1].kind);
	EXPECT_EQ(0, memcmp(&other, &got[1].key, sizeof(key)));
	EXPECT_EQ(KVCTX_EVENT_DELETED, got[2].kind);
	EXPECT_EQ(0, memcmp(&key, &got[2].key, sizeof(key)));
	EXPECT_EQ(-EINVAL, kvctx_events(ear, got, kvctx_get_info(ear)->events_max + 1, &lost));
	kvctx_close(ear);
	close(p.fd);
}

TEST_HARNESS_MAIN
