// SPDX-License-Identifier: GPL-2.0
/*
 * Operations as io_uring commands: what they move, what they refuse, how they end when their ring or their task does.
 *
 * For slots.sh: the pool is small, and its device can be made stuck.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/time.h>

#include "kvctx_uring.h"
#include "ktest.h"
#include "harness.h"

#define PAGE	(192U << 10)
#define ENTRIES	64

struct result {
	int res;
	uint64_t extra;		/* big_cqe[0], on rings that have it */
};

static struct kvctx_uring_op *entry_of(struct io_uring_sqe *sqe)
{
	return (struct kvctx_uring_op *)sqe->cmd;
}

/* An entry of no operation, or of one that the helpers of libkvctx do not make */
static struct io_uring_sqe *entry(struct io_uring *ring, int fd, uint32_t cmd_op)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	memset(sqe, 0, ring->flags & IORING_SETUP_SQE128 ? 2 * sizeof(*sqe) : sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	sqe->cmd_op = cmd_op;
	return sqe;
}

/* An entry with that operation */
static struct io_uring_sqe *add(struct io_uring *ring, const struct kt *k, const struct kvctx_sqe *op)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	if (!sqe || kvctx_uring_prep(sqe, kt_fd(k), op))
		abort();
	return sqe;
}

/* The same; STORE and LOAD in the arena at @at */
static struct io_uring_sqe *op(struct io_uring *ring, struct kt *k, uint8_t opcode, uint64_t key, uint64_t at,
			       uint32_t length)
{
	struct kvctx_sqe op = { .opcode = opcode, .key = kt_key(key), .segs = at, .length = length };

	return add(ring, k, &op);
}

/* STORE or LOAD in the ring's registered buffer @buf_index */
static struct io_uring_sqe *op_fixed(struct io_uring *ring, struct kt *k, uint8_t opcode, uint64_t key, void *p,
				     uint32_t length, uint16_t buf_index)
{
	struct kvctx_sqe op = { .opcode = opcode, .key = kt_key(key), .length = length };
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	if (!sqe || kvctx_uring_prep_fixed(sqe, kt_fd(k), &op, p, buf_index))
		abort();
	return sqe;
}

static void batch(struct io_uring *ring, const struct kt *k, const struct kvctx_sqe *sqes, uint32_t nr)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	if (!sqe)
		abort();
	kvctx_uring_prep_submit(sqe, kt_fd(k), sqes, nr);
}

static struct result reap(struct io_uring *ring)
{
	struct __kernel_timespec limit = { .tv_sec = 60 };
	struct io_uring_cqe *cqe;
	struct result r = { -EPROTO, 0 };

	r.res = io_uring_wait_cqe_timeout(ring, &cqe, &limit);
	if (r.res)
		return (struct result){ -EPROTO, 0 };
	r.res = cqe->res;
	if (ring->flags & IORING_SETUP_CQE32)
		r.extra = kvctx_uring_cqe_flags(cqe);
	io_uring_cqe_seen(ring, cqe);
	return r;
}

static struct result run(struct io_uring *ring)
{
	int n = io_uring_submit(ring);

	/* a polling thread may not have said yet that it took the entry before */
	return n >= 1 ? reap(ring) : (struct result){ -EPROTO, n };
}

static bool quiet(struct io_uring *ring, long ms)
{
	struct __kernel_timespec limit = { .tv_nsec = ms * 1000000 };
	struct io_uring_cqe *cqe;

	return io_uring_wait_cqe_timeout(ring, &cqe, &limit) == -ETIME;
}

FIXTURE(uring) {
	struct kt k;
	struct io_uring ring;
};

FIXTURE_VARIANT(uring) {
	unsigned int flags;
};

FIXTURE_VARIANT_ADD(uring, plain) {
	.flags = IORING_SETUP_CQE32,
};

FIXTURE_VARIANT_ADD(uring, deferred) {
	.flags = IORING_SETUP_CQE32 | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
};

FIXTURE_VARIANT_ADD(uring, sqpoll) {
	.flags = IORING_SETUP_CQE32 | IORING_SETUP_SQPOLL,
};

FIXTURE_VARIANT_ADD(uring, short_completions) {
	.flags = 0,
};

FIXTURE_SETUP(uring)
{
	ASSERT_EQ(0, kt_open(&self->k, O_RDWR, 0x71, 8 * KT_MIB, 256));
	ASSERT_EQ(0, io_uring_queue_init(ENTRIES, &self->ring, variant->flags | IORING_SETUP_SQE128));
}

FIXTURE_TEARDOWN(uring)
{
	if (self->ring.ring_fd > 0)
		io_uring_queue_exit(&self->ring);
	kt_close(&self->k);
}

#define EXPECT_FLAGS(want, r) \
	EXPECT_EQ(self->ring.flags & IORING_SETUP_CQE32 ? (uint64_t)(want) : 0, (r).extra)

TEST_F(uring, announced)
{
	struct kvctx_info info = { .size = sizeof(info) };

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_INFO, &info));
	EXPECT_TRUE(info.features & KVCTX_FEAT_URING);
}

TEST_F(uring, every_operation)
{
	struct kvctx_sqe range = {}, lease = {}, release = {}, flush = {};
	struct kvctx_key key = kt_key(1);
	struct kt *k = &self->k;
	struct result r;

	kt_fill(k->arena, PAGE, 1);
	op(&self->ring, k, KVCTX_OP_STORE, 1, 0, PAGE);
	r = run(&self->ring);
	EXPECT_EQ((int)PAGE, r.res);
	EXPECT_FLAGS(0, r);
	op(&self->ring, k, KVCTX_OP_STORE, 1, 0, PAGE);
	r = run(&self->ring);
	EXPECT_EQ((int)PAGE, r.res);
	EXPECT_FLAGS(KVCTX_CQE_DEDUP, r);
	op(&self->ring, k, KVCTX_OP_LOAD, 1, KT_MIB, PAGE);
	r = run(&self->ring);
	EXPECT_EQ((int)PAGE, r.res);
	EXPECT_FLAGS(KVCTX_CQE_VERIFIED, r);
	EXPECT_EQ(-1, kt_check(k->arena + KT_MIB, PAGE, 1));
	kvctx_prep_load_at(&range, &key, KVCTX_MEM_ARENA, 2 * KT_MIB, 70001, 5000);
	kvctx_sqe_set_flags(&range, KVCTX_OP_NO_VERIFY);
	add(&self->ring, k, &range);
	r = run(&self->ring);
	EXPECT_EQ(5000, r.res);
	EXPECT_FLAGS(0, r);
	EXPECT_EQ(0, memcmp(k->arena + 2 * KT_MIB, k->arena + 70001, 5000));

	op(&self->ring, k, KVCTX_OP_QUERY, 1, 0, 0);
	EXPECT_EQ((int)PAGE, run(&self->ring).res);
	kvctx_prep_lease(&lease, &key, 10000);
	add(&self->ring, k, &lease);
	r = run(&self->ring);
	EXPECT_LT(0, r.res);
	kvctx_prep_release(&release, r.res);
	add(&self->ring, k, &release);
	EXPECT_EQ(0, run(&self->ring).res);
	kvctx_prep_flush(&flush);
	add(&self->ring, k, &flush);
	EXPECT_EQ(0, run(&self->ring).res);
	op(&self->ring, k, KVCTX_OP_DELETE, 1, 0, 0);
	EXPECT_EQ(0, run(&self->ring).res);
	op(&self->ring, k, KVCTX_OP_LOAD, 1, 0, PAGE);
	EXPECT_EQ(-ENOENT, run(&self->ring).res);
	/* nothing of this in the session's own queue */
	EXPECT_EQ(0, kt_wait(k, 0, 0));
}

TEST_F(uring, segments)
{
	static struct kvctx_seg segs[20];
	struct kt *k = &self->k;
	struct kvctx_sqe store, load;
	uint32_t i, sum = 0;

	for (i = 0; i < 20; i++) {
		segs[i] = kt_seg(0, KT_MIB + i * 16384, 4096 + 512 * i);
		kt_fill(k->arena + segs[i].offset, segs[i].length, i);
		sum += segs[i].length;
	}
	store = kt_io(KVCTX_OP_STORE, kt_key(2), segs, 20);
	add(&self->ring, k, &store);
	ASSERT_EQ((int)sum, run(&self->ring).res);
	memset(k->arena + KT_MIB, 0, 20 * 16384);
	load = kt_io(KVCTX_OP_LOAD, kt_key(2), segs, 20);
	add(&self->ring, k, &load);
	ASSERT_EQ((int)sum, run(&self->ring).res);
	for (i = 0; i < 20; i++)
		EXPECT_EQ(-1, kt_check(k->arena + segs[i].offset, segs[i].length, i));
	load.length--;
	add(&self->ring, k, &load);
	EXPECT_EQ(-EMSGSIZE, run(&self->ring).res);
	load.nr_segs = 1;
	add(&self->ring, k, &load);
	EXPECT_EQ(-EMSGSIZE, run(&self->ring).res);
	op(&self->ring, k, KVCTX_OP_DELETE, 2, 0, 0);
	EXPECT_EQ(0, run(&self->ring).res);
}

/* Pages to and from memory that only the ring knows */
TEST_F(uring, registered_buffers)
{
	static const uint32_t at[] = { 0, 4096, 512, 3, 4095, 70001 };
	size_t bytes = 2 * KT_MIB;
	uint8_t *buf = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec iov[2] = { { buf, 4096 }, { buf + 4096, bytes - 4096 } };
	struct kt *k = &self->k;
	struct io_uring_sqe *sqe;
	struct result r;
	uint32_t i;

	ASSERT_NE(MAP_FAILED, buf);
	ASSERT_EQ(0, io_uring_register_buffers(&self->ring, iov, 2));
	for (i = 0; i < sizeof(at) / sizeof(*at); i++) {
		uint8_t *p = buf + 4096 + at[i];

		kt_fill(p, PAGE, 100 + i);
		op_fixed(&self->ring, k, KVCTX_OP_STORE, 100 + i, p, PAGE, 1);
		ASSERT_EQ((int)PAGE, run(&self->ring).res);
		ASSERT_EQ((int)PAGE, kt_load(k, kt_key(100 + i), 0, PAGE, NULL));
		EXPECT_EQ(-1, kt_check(k->arena, PAGE, 100 + i));
		memset(buf, 0xee, bytes);
		op_fixed(&self->ring, k, KVCTX_OP_LOAD, 100 + i, p, PAGE, 1);
		r = run(&self->ring);
		ASSERT_EQ((int)PAGE, r.res);
		EXPECT_FLAGS(KVCTX_CQE_VERIFIED, r);
		EXPECT_EQ(-1, kt_check(p, PAGE, 100 + i));
		EXPECT_EQ(0xee, p[-1]);
		EXPECT_EQ(0xee, p[PAGE]);
		ASSERT_EQ(0, kt_op(k, KVCTX_OP_DELETE, kt_key(100 + i)));
	}
	/* outside of the buffer, partly and wholly; an index that is none; a memory id beside */
	op_fixed(&self->ring, k, KVCTX_OP_STORE, 110, buf + bytes - PAGE + 1, PAGE, 1);
	EXPECT_EQ(-EFAULT, run(&self->ring).res);
	op_fixed(&self->ring, k, KVCTX_OP_STORE, 110, buf, 4097, 0);
	EXPECT_EQ(-EFAULT, run(&self->ring).res);
	op_fixed(&self->ring, k, KVCTX_OP_STORE, 110, buf, 4096, 2);
	EXPECT_EQ(-EFAULT, run(&self->ring).res);
	sqe = op_fixed(&self->ring, k, KVCTX_OP_STORE, 110, buf, 4096, 0);
	entry_of(sqe)->mem = 1;
	EXPECT_EQ(-EINVAL, run(&self->ring).res);
	munmap(buf, bytes);
}

TEST_F(uring, batch)
{
	struct kvctx_seg segs[8];
	struct kvctx_sqe sqes[8];
	struct kt *k = &self->k;
	struct io_uring_sqe *sqe;
	struct kvctx_cqe cqe;
	int i;

	for (i = 0; i < 8; i++) {
		segs[i] = kt_seg(0, i * 65536, 65536);
		kt_fill(k->arena + i * 65536, 65536, 200 + i);
		sqes[i] = kt_io(KVCTX_OP_STORE, kt_key(200 + i), &segs[i], 1);
	}
	sqes[7].opcode = 99;
	batch(&self->ring, k, sqes, 8);
	EXPECT_EQ(8, run(&self->ring).res);
	/* all of them are there by now */
	for (i = 0; i < 8; i++) {
		ASSERT_TRUE(kt_reap(k, &cqe));
		EXPECT_EQ(cqe.user_data == sqes[7].user_data ? -EINVAL : 65536, cqe.res);
	}
	EXPECT_FALSE(kt_reap(k, &cqe));
	batch(&self->ring, k, sqes, 4097);
	EXPECT_EQ(-EINVAL, run(&self->ring).res);
	batch(&self->ring, k, NULL, 1);
	EXPECT_EQ(-EFAULT, run(&self->ring).res);
	sqe = entry(&self->ring, kt_fd(k), KVCTX_URING_SUBMIT);
	*(struct kvctx_uring_submit *)sqe->cmd =
		(struct kvctx_uring_submit){ .sqes = (uintptr_t)sqes, .nr = 1, .reserved = 1 };
	EXPECT_EQ(-EINVAL, run(&self->ring).res);
	for (i = 0; i < 7; i++)
		EXPECT_EQ(0, kt_op(k, KVCTX_OP_DELETE, kt_key(200 + i)));
}

TEST_F(uring, pages_read_ahead)
{
	struct kvctx_sqe ahead = {}, get = {}, put = {};
	struct kvctx_key key = kt_key(250);
	struct result r;
	struct kt k;

	ASSERT_EQ(0, kt_open_slots(&k, O_RDWR, 0x71, KT_MIB, 8, PAGE, 2));
	kt_fill(k.arena, PAGE, 250);
	op(&self->ring, &k, KVCTX_OP_STORE, 250, 0, PAGE);
	ASSERT_EQ((int)PAGE, run(&self->ring).res);
	kvctx_prep_prefetch(&ahead, &key, 60000);
	add(&self->ring, &k, &ahead);
	EXPECT_EQ((int)PAGE, run(&self->ring).res);
	op(&self->ring, &k, KVCTX_OP_LOAD, 250, 0, PAGE);
	r = run(&self->ring);
	EXPECT_EQ((int)PAGE, r.res);
	EXPECT_FLAGS(KVCTX_CQE_FROM_DRAM | KVCTX_CQE_VERIFIED, r);
	kvctx_prep_get(&get, &key, 60000);
	add(&self->ring, &k, &get);
	r = run(&self->ring);
	ASSERT_TRUE(r.res == 0 || r.res == 1);
	EXPECT_EQ(-1, kt_check(k.slots + r.res * PAGE, PAGE, 250));
	kvctx_prep_put(&put, 1 - r.res);
	add(&self->ring, &k, &put);
	EXPECT_EQ(-EINVAL, run(&self->ring).res);
	kvctx_prep_put(&put, r.res);
	add(&self->ring, &k, &put);
	EXPECT_EQ(0, run(&self->ring).res);
	add(&self->ring, &k, &put);
	EXPECT_EQ(-EINVAL, run(&self->ring).res);
	op(&self->ring, &k, KVCTX_OP_DELETE, 250, 0, 0);
	EXPECT_EQ(0, run(&self->ring).res);
	kt_close(&k);
}

TEST_F(uring, refusals)
{
	static const struct {
		struct kvctx_uring_op op;
		bool key, fixed;
		int res;
	} cases[] = {
		{ { .opcode = 0 }, true, false, -EINVAL },
		{ { .opcode = 11 }, true, false, -EINVAL },
		{ { .opcode = 255 }, true, false, -EINVAL },
		{ { .opcode = KVCTX_OP_LOAD }, true, false, -EINVAL },
		{ { .opcode = KVCTX_OP_LOAD, .length = 512, .flags = 1U << 31 }, true, false, -EINVAL },
		{ { .opcode = KVCTX_OP_LOAD, .length = 512, .arg = 1 }, true, false, -EINVAL },
		{ { .opcode = KVCTX_OP_LOAD, .length = 512, .prio = 4 }, true, false, -EINVAL },
		{ { .opcode = KVCTX_OP_LOAD, .length = 512, .mem = 77 }, true, false, -EINVAL },
		{ { .opcode = KVCTX_OP_LOAD, .length = 512, .nr_segs = 1, .mem = 1, .addr = 4096 }, true, false, -EINVAL },
		{ { .opcode = KVCTX_OP_LOAD, .length = 512, .nr_segs = 1, .addr = 1 }, true, false, -EFAULT },
		{ { .opcode = KVCTX_OP_LOAD, .length = 512, .nr_segs = 4097, .addr = 1 }, true, false, -E2BIG },
		{ { .opcode = KVCTX_OP_LOAD, .length = 512, .addr = 8 * KT_MIB - 511 }, true, false, -EFAULT },
		{ { .opcode = KVCTX_OP_LOAD, .length = 512, .addr = ~0ULL }, true, false, -EFAULT },
		{ { .opcode = KVCTX_OP_LOAD, .length = ~0U }, true, false, -ERANGE },
		{ { .opcode = KVCTX_OP_STORE, .length = ~0U }, true, false, -E2BIG },
		{ { .opcode = KVCTX_OP_STORE, .length = 512, .offset = 1 }, true, false, -EINVAL },
		{ { .opcode = KVCTX_OP_STORE, .length = 512, .timeout_ns = 1 }, true, false, -ETIME },
		{ { .opcode = KVCTX_OP_QUERY, .arg = 1 }, true, false, -EINVAL },
		{ { .opcode = KVCTX_OP_QUERY, .mem = 1 }, true, false, -EINVAL },
		{ { .opcode = KVCTX_OP_QUERY, .addr = 1 }, true, false, -EINVAL },
		{ { .opcode = KVCTX_OP_QUERY, .nr_segs = 1 }, true, false, -EINVAL },
		{ { .opcode = KVCTX_OP_QUERY }, true, true, -EINVAL },
		{ { .opcode = KVCTX_OP_LEASE }, true, false, -EINVAL },
		{ { .opcode = KVCTX_OP_RELEASE, .arg = 12345 }, false, false, -EINVAL },
		{ { .opcode = KVCTX_OP_FLUSH, .arg = 1 }, false, false, -EINVAL },
		{ { .opcode = KVCTX_OP_FLUSH }, true, false, -EINVAL },
		{ { .opcode = KVCTX_OP_PUT }, false, false, -EOPNOTSUPP },
	};
	static uint8_t buf[4096];
	struct iovec iov = { buf, sizeof(buf) };
	struct io_uring_sqe *sqe;
	struct kt *k = &self->k;
	unsigned int i;

	ASSERT_EQ(0, io_uring_register_buffers(&self->ring, &iov, 1));
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		sqe = entry(&self->ring, kt_fd(k), KVCTX_URING_OP);
		*entry_of(sqe) = cases[i].op;
		if (cases[i].key)
			entry_of(sqe)->key = kt_key(300);
		if (cases[i].fixed)
			sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
		EXPECT_EQ(cases[i].res, run(&self->ring).res)
			TH_LOG("case %u", i);
	}
	entry(&self->ring, kt_fd(k), KVCTX_IOC_SUBMIT);
	EXPECT_EQ(-ENOTTY, run(&self->ring).res);
	EXPECT_EQ(-ENOENT, kt_op(k, KVCTX_OP_QUERY, kt_key(300)));
}

/* A command that asks for many completions is refused; at any rate it ends. */
TEST_F(uring, no_multishot)
{
	struct io_uring_sqe *sqe = op(&self->ring, &self->k, KVCTX_OP_QUERY, 1, 0, 0);

	int res;

	sqe->uring_cmd_flags = 1U << 1;
	sqe->flags |= IOSQE_BUFFER_SELECT;
	res = run(&self->ring).res;
	/* io_uring itself refuses it where there are no such commands */
	if (res != -EOPNOTSUPP) {
		EXPECT_EQ(-EINVAL, res);
	}
}

/* Entries of 64 bytes hold no operation, but a batch; and no command comes before SETUP */
TEST(other_rings)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_QUERY, kt_key(400));
	struct io_uring_sqe *e;
	struct io_uring ring;
	struct kt k, bare = { 0 };

	ASSERT_EQ(0, kt_open(&k, O_RDWR, 0x71, 0, 8));
	ASSERT_EQ(0, io_uring_queue_init(4, &ring, 0));
	e = entry(&ring, kt_fd(&k), KVCTX_URING_OP);
	*(uint8_t *)e->cmd = KVCTX_OP_FLUSH;
	EXPECT_EQ(-EINVAL, run(&ring).res);
	batch(&ring, &k, &sqe, 1);
	EXPECT_EQ(1, run(&ring).res);
	ASSERT_EQ(0, kt_file(O_RDWR, &bare.file));
	entry(&ring, kt_fd(&bare), KVCTX_URING_SUBMIT);
	EXPECT_EQ(-EBADFD, run(&ring).res);
	kt_close(&bare);
	/* no room for a completion: told, not retried */
	while (kt_submit(&k, &sqe, 1, 0) == 1)
		;
	batch(&ring, &k, &sqe, 1);
	EXPECT_EQ(-EAGAIN, run(&ring).res);
	io_uring_queue_exit(&ring);
	kt_close(&k);
}

struct worker {
	pthread_t thread;
	struct kt *k;
	unsigned int no;
	int bad;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct io_uring ring;
	uint64_t at = w->no * 2 * KT_MIB;
	unsigned int round, i;

	if (io_uring_queue_init(ENTRIES, &ring, IORING_SETUP_SQE128))
		return NULL;
	w->bad = 0;
	for (round = 0; round < 20; round++) {
		uint64_t key = 1000 + w->no * 100 + round % 4 * 8;

		for (i = 0; i < 8; i++) {
			kt_fill(w->k->arena + at + i * 65536, 65536, key + i);
			op(&ring, w->k, KVCTX_OP_STORE, key + i, at + i * 65536, 65536);
		}
		io_uring_submit(&ring);
		for (i = 0; i < 8; i++)
			w->bad += reap(&ring).res != 65536;
		for (i = 0; i < 8; i++)
			op(&ring, w->k, KVCTX_OP_LOAD, key + i, at + KT_MIB + i * 65536, 65536);
		io_uring_submit(&ring);
		for (i = 0; i < 8; i++)
			w->bad += reap(&ring).res != 65536;
		for (i = 0; i < 8; i++)
			w->bad += kt_check(w->k->arena + at + KT_MIB + i * 65536, 65536, key + i) != -1;
	}
	io_uring_queue_exit(&ring);
	return w;
}

TEST(threads_share_a_session)
{
	struct worker w[4];
	struct kt k;
	void *done;
	int i;

	ASSERT_EQ(0, kt_open(&k, O_RDWR, 0x72, 8 * KT_MIB, 8));
	/* its first call is not for threads */
	kt_key(0);
	for (i = 0; i < 4; i++) {
		w[i] = (struct worker){ .k = &k, .no = i, .bad = -1 };
		ASSERT_EQ(0, pthread_create(&w[i].thread, NULL, work, &w[i]));
	}
	for (i = 0; i < 4; i++) {
		pthread_join(w[i].thread, &done);
		EXPECT_EQ(0, w[i].bad);
	}
	kt_close(&k);
}

static void on_signal(int signo)
{
	(void)signo;
}

/* A pool without space whose device is stuck, so that STOREs wait */
FIXTURE(full) {
	struct kt k;
	struct io_uring ring;
	uint64_t next;
};

FIXTURE_SETUP(full)
{
	struct kvctx_seg seg = kt_seg(0, 0, 4 * KT_MIB);
	struct kvctx_sqe sqe;
	struct kvctx_cqe cqe = {};

	ASSERT_EQ(0, kt_open(&self->k, O_RDWR, 0x73, 4 * KT_MIB, 1024));
	ASSERT_EQ(0, io_uring_queue_init(ENTRIES, &self->ring, IORING_SETUP_SQE128));
	ASSERT_LE(0, kt_slow("stuck"));
	for (self->next = 5000; self->next < 5200 && cqe.res != -EAGAIN; self->next++) {
		sqe = kt_io(KVCTX_OP_STORE, kt_key(self->next), &seg, 1);
		sqe.flags = KVCTX_OP_NOWAIT;
		ASSERT_EQ(1, kt_submit(&self->k, &sqe, 1, 0));
		kt_wait(&self->k, 1, KT_SEC / 20);
		kt_reap(&self->k, &cqe);
	}
	ASSERT_EQ(-EAGAIN, cqe.res);
}

FIXTURE_TEARDOWN(full)
{
	kt_slow("resume");
	if (self->ring.ring_fd > 0)
		io_uring_queue_exit(&self->ring);
	kt_close(&self->k);
}

/* What a ring does in the task that waits for the session, every 20 ms, is not a signal; one with a handler is */
TEST_F(full, rings_do_not_end_a_wait)
{
	struct kvctx_wait none = { .size = sizeof(none), .min = 1, .timeout_ns = KVCTX_TIMEOUT_NONE }, w = none;
	struct kvctx_sqe late = kt_io(KVCTX_OP_STORE, kt_key(self->next), &(struct kvctx_seg){ .length = PAGE }, 1);
	struct __kernel_timespec often = { .tv_nsec = KT_SEC / 50 };
	/* again and again: the first one may come before the wait */
	struct itimerval timer = { .it_value.tv_usec = 300000, .it_interval.tv_usec = 300000 }, off = { 0 };
	struct sigaction act = { .sa_handler = on_signal };
	struct io_uring_sqe *sqe = io_uring_get_sqe(&self->ring);

	ASSERT_NE(NULL, sqe);
	memset(sqe, 0, 2 * sizeof(*sqe));
	io_uring_prep_timeout(sqe, &often, 0, IORING_TIMEOUT_MULTISHOT);
	ASSERT_EQ(1, io_uring_submit(&self->ring));
	late.timeout_ns = KT_SEC / 3;
	ASSERT_EQ(1, kt_submit(&self->k, &late, 1, 0));
	ASSERT_EQ(1, kt_ioctl(self->k.file, KVCTX_IOC_WAIT, &w));
	w.consumed = 1;
	w.timeout_ns = KT_SEC / 3;
	EXPECT_EQ(-ETIME, kt_ioctl(self->k.file, KVCTX_IOC_WAIT, &w));
	/* not before the last third of a second has passed, of which this is what was left */
	EXPECT_GT(KT_SEC / 3, w.timeout_ns);
	w = none;
	w.timeout_ns = 3600 * KT_SEC;
	ASSERT_EQ(0, sigaction(SIGALRM, &act, NULL));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &timer, NULL));
	EXPECT_EQ(-EINTR, kt_ioctl(self->k.file, KVCTX_IOC_WAIT, &w));
	EXPECT_GT(3600 * KT_SEC, w.timeout_ns);
	EXPECT_LT(0, w.timeout_ns);
	EXPECT_EQ(0, setitimer(ITIMER_REAL, &off, NULL));
	signal(SIGALRM, SIG_DFL);
}

TEST_F(full, told_at_once_or_in_time)
{
	struct io_uring_sqe *sqe;
	uint64_t start;

	sqe = op(&self->ring, &self->k, KVCTX_OP_STORE, self->next, 0, 4 * KT_MIB);
	entry_of(sqe)->flags = KVCTX_OP_NOWAIT;
	EXPECT_EQ(-EAGAIN, run(&self->ring).res);
	start = kt_now();
	sqe = op(&self->ring, &self->k, KVCTX_OP_STORE, self->next, 0, 4 * KT_MIB);
	entry_of(sqe)->timeout_ns = KT_SEC / 4;
	EXPECT_EQ(-ETIME, run(&self->ring).res);
	EXPECT_LE(KT_SEC / 4, kt_now() - start);
	/* and what waits goes on when the device does */
	op(&self->ring, &self->k, KVCTX_OP_STORE, self->next, 0, 4 * KT_MIB);
	ASSERT_EQ(1, io_uring_submit(&self->ring));
	EXPECT_TRUE(quiet(&self->ring, 200));
	/* io_uring hands on no cancelling by entry */
	sqe = io_uring_get_sqe(&self->ring);
	ASSERT_NE(NULL, sqe);
	memset(sqe, 0, 2 * sizeof(*sqe));
	io_uring_prep_cancel64(sqe, 0, 0);
	EXPECT_EQ(-ENOENT, run(&self->ring).res);
	ASSERT_LE(0, kt_slow("resume"));
	EXPECT_EQ(4 * (int)KT_MIB, reap(&self->ring).res);
}

/* The task that submitted begins another program, and its commands end: a single one and a batch that wait for space */
TEST_F(full, cancelled)
{
	struct kvctx_seg seg = kt_seg(0, 0, 4 * KT_MIB);
	struct kvctx_sqe sqes[3];
	struct kvctx_cqe cqe;
	int i, sum, status;
	pid_t pid;

	for (i = 0; i < 3; i++)
		sqes[i] = kt_io(KVCTX_OP_STORE, kt_key(self->next + i), &seg, 1);
	op(&self->ring, &self->k, KVCTX_OP_STORE, self->next + 3, 0, 4 * KT_MIB);
	batch(&self->ring, &self->k, sqes, 3);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		if (io_uring_submit(&self->ring) != 2 || !quiet(&self->ring, 100))
			_exit(1);
		execl("/bin/true", "true", NULL);
		_exit(2);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_EQ(0, status);
	sum = reap(&self->ring).res;
	sum += reap(&self->ring).res;
	EXPECT_EQ(3 - ECANCELED, sum);
	for (i = 0; i < 3; i++) {
		ASSERT_TRUE(kt_reap(&self->k, &cqe));
		EXPECT_EQ(-ECANCELED, cqe.res);
	}
}

/* A CANCEL ends operations of a batch by their names, and leaves alone a single command, which has none */
TEST_F(full, cancelled_by_name)
{
	struct kvctx_sqe sqes[3], cancel = kt_sqe(KVCTX_OP_CANCEL, (struct kvctx_key){ 0 });
	struct kvctx_seg seg = kt_seg(0, 0, 4 * KT_MIB);
	struct kvctx_cqe cqe;
	int i;

	for (i = 0; i < 3; i++) {
		sqes[i] = kt_io(KVCTX_OP_STORE, kt_key(self->next + i), &seg, 1);
		sqes[i].user_data = i ? 4711 : 4710;
	}
	op(&self->ring, &self->k, KVCTX_OP_STORE, self->next + 3, 0, 4 * KT_MIB);
	batch(&self->ring, &self->k, sqes, 3);
	ASSERT_EQ(2, io_uring_submit(&self->ring));
	EXPECT_TRUE(quiet(&self->ring, 100));
	for (i = 0; i < 3; i++) {
		cancel.offset = i ? 4712 - i : 0;
		cancel.user_data = 1;
		ASSERT_EQ(1, kt_submit(&self->k, &cancel, 1, 0));
		while (kt_reap(&self->k, &cqe) && cqe.user_data != 1) {
			EXPECT_EQ(cancel.offset, cqe.user_data);
			EXPECT_EQ(-ECANCELED, cqe.res);
		}
		EXPECT_EQ(1, cqe.user_data);
		EXPECT_EQ(i == 1 ? 2 : i == 2, cqe.res);
	}
	EXPECT_EQ(3, reap(&self->ring).res);
	EXPECT_TRUE(quiet(&self->ring, 100));
	ASSERT_LE(0, kt_slow("resume"));
	EXPECT_EQ(4 * (int)KT_MIB, reap(&self->ring).res);
}

/* kill -9, and a ring that is closed, with commands that wait for space: neither hangs, and the sessions end */
TEST_F(full, killed_while_waiting)
{
	uint64_t start;
	int status, i;
	pid_t pid;

	for (i = 0; i < 2; i++) {
		pid = fork();
		ASSERT_LE(0, pid);
		if (!pid) {
			struct io_uring ring;
			struct kt k;

			if (kt_open(&k, O_RDWR, 0x73, 4 * KT_MIB, 8) ||
			    io_uring_queue_init(8, &ring, IORING_SETUP_SQE128))
				_exit(1);
			op(&ring, &k, KVCTX_OP_STORE, self->next + 10 + i, 0, 4 * KT_MIB);
			if (io_uring_submit(&ring) != 1 || !quiet(&ring, 100))
				_exit(2);
			if (i == 0)
				raise(SIGKILL);
			io_uring_queue_exit(&ring);
			kt_close(&k);
			_exit(0);
		}
		start = kt_now();
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(i == 0 ? SIGKILL : 0, status);
		EXPECT_GT(20 * KT_SEC, kt_now() - start);
	}
}

/* The same with commands that wait for what their tenant may move, 16 seconds; who may not wait does not */
TEST(killed_while_paced)
{
	int status, i;
	pid_t pid;

	ASSERT_EQ(0, system("kvctxctl tenant set t default --bandwidth 64K > /dev/null"));
	for (i = 0; i < 2; i++) {
		pid = fork();
		ASSERT_LE(0, pid);
		if (!pid) {
			struct kvctx_sqe at_once = {
				.opcode = KVCTX_OP_STORE, .flags = KVCTX_OP_NOWAIT, .key = kt_key(9102), .length = PAGE,
			};
			struct io_uring ring;
			struct kt k;

			if (kt_open(&k, O_RDWR, 0x75, KT_MIB, 8) || io_uring_queue_init(8, &ring, IORING_SETUP_SQE128))
				_exit(1);
			op(&ring, &k, KVCTX_OP_STORE, 9100 + i, 0, KT_MIB);
			if (run(&ring).res != (int)KT_MIB)
				_exit(2);
			op(&ring, &k, KVCTX_OP_LOAD, 9100 + i, 0, KT_MIB);
			if (io_uring_submit(&ring) != 1 || !quiet(&ring, 100))
				_exit(3);
			add(&ring, &k, &at_once);
			if (run(&ring).res != -EAGAIN)
				_exit(4);
			if (i == 0)
				raise(SIGKILL);
			io_uring_queue_exit(&ring);
			kt_close(&k);
			_exit(0);
		}
		EXPECT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(i == 0 ? SIGKILL : 0, status);
	}
	EXPECT_EQ(0, system("kvctxctl tenant set t default --bandwidth off > /dev/null"));
}

/* The same with transfers at the device, which end first */
TEST(killed_in_flight)
{
	struct io_uring ring;
	int status, i, j;
	struct kt k;
	pid_t pid;

	for (i = 0; i < 2; i++) {
		pid = fork();
		ASSERT_LE(0, pid);
		if (!pid) {
			if (kt_open(&k, O_RDWR, 0x74, KT_MIB, 8) ||
			    io_uring_queue_init(8, &ring, IORING_SETUP_SQE128))
				_exit(1);
			if (kt_store(&k, kt_key(9000), 0, 65536, NULL) < 0 || kt_slow("stuck") < 0)
				_exit(2);
			for (j = 0; j < 8; j++)
				op(&ring, &k, KVCTX_OP_LOAD, 9000, j * 65536, 65536);
			if (io_uring_submit(&ring) != 8 || !quiet(&ring, 100))
				_exit(3);
			if (i == 0)
				raise(SIGKILL);
			io_uring_queue_exit(&ring);
			kvctx_sys_close(k.file);
			_exit(0);
		}
		usleep(1500000);
		ASSERT_LE(0, kt_slow("resume"));
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(i == 0 ? SIGKILL : 0, status);
	}
}

TEST_HARNESS_MAIN
