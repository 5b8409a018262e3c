// SPDX-License-Identifier: GPL-2.0
/*
 * Every failure of every operation of a session: each is done again and again, its first, second, ... allocation or
 * copy failing (fault.h), until it needs no more. What it may answer then stands in its test; after each, a page that
 * was there before has to be right.
 *
 * For faults.sh, on the debug kernel.
 */
#include <liburing.h>

#include "kvctx_uring.h"
#include "fault.h"
#include "ktest.h"
#include "harness.h"

#define PAGE	100001
#define KEPT	77		/* key of the page that has to stay right */
#define MAX	1000

FIXTURE(faults)
{
	struct kt k;
	uint64_t next;		/* a new key for each STORE */
	uint8_t *mem;
	struct io_uring ring;
};

FIXTURE_SETUP(faults)
{
	ASSERT_EQ(0, kt_open_slots(&self->k, O_RDWR, 0x41, 8 * KT_MIB, 64, 256 << 10, 8));
	kt_fill(self->k.arena, PAGE, KEPT);
	ASSERT_EQ(PAGE, kt_store(&self->k, kt_key(KEPT), 0, PAGE, NULL));
	self->next = 1000;
	self->mem = mmap(NULL, 4 * KT_MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)self->mem);
	ASSERT_EQ(0, io_uring_queue_init(8, &self->ring, IORING_SETUP_SQE128 | IORING_SETUP_CQE32));
}

FIXTURE_TEARDOWN(faults)
{
	io_uring_queue_exit(&self->ring);
	munmap(self->mem, 4 * KT_MIB);
	kt_close(&self->k);
}

/* Is the page right that was there before? */
static bool kept(struct kt *k)
{
	memset(k->arena + 4 * KT_MIB, 0, PAGE);
	return kt_load(k, kt_key(KEPT), 4 * KT_MIB, PAGE, NULL) == PAGE &&
	       kt_check(k->arena + 4 * KT_MIB, PAGE, KEPT) == -1;
}

/*
 * What a call or a completion may say when something was short. -EIO: the device's driver had no memory, or a part of
 * the operation that nobody can name any more failed.
 */
static bool excused(int res)
{
	return res == -ENOMEM || res == -EFAULT || res == -EAGAIN || res == -EIO;
}

/* One operation with its @n-th failure; whether that came, and the result */
typedef int (*fault_op)(FIXTURE_DATA(faults) *self);

static void sweep(struct __test_metadata *_metadata, FIXTURE_DATA(faults) *self, const char *what, fault_op op,
		  int want)
{
	unsigned int n, refused = 0;
	bool came = true;

	for (n = 1; came; n++) {
		int res;

		fault_arm(n);
		res = op(self);
		came = fault_came(getpid());
		fault_arm(0);
		ASSERT_TRUE(res == want || (came && excused(res))) {
			TH_LOG("%s: failure %u: %d", what, n, res);
		}
		refused += res != want;
		ASSERT_TRUE(kept(&self->k)) {
			TH_LOG("%s: failure %u: the kept page", what, n);
		}
		ASSERT_GT(MAX, n);
	}
	TH_LOG("%s: failures=%u refused=%u", what, n - 2, refused);
}

#define SWEEP(op, want) sweep(_metadata, self, #op, op, want)

static int open_close(FIXTURE_DATA(faults) *self)
{
	struct kt k;
	int ret = kt_open_slots(&k, O_RDWR, 0x42, 3 * KT_MIB, 64, 64 << 10, 8);

	(void)self;
	if (!ret)
		kt_close(&k);
	return ret;
}

TEST_F(faults, open_and_close)
{
	SWEEP(open_close, 0);
}

static int mem_register(FIXTURE_DATA(faults) *self)
{
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (uintptr_t)self->mem, .length = 4 * KT_MIB };
	int ret = kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg);

	if (!ret) {
		struct kvctx_mem_unregister un = { .size = sizeof(un), .id = reg.id };

		do {
			ret = kt_ioctl(self->k.file, KVCTX_IOC_MEM_UNREGISTER, &un);
		} while (ret == -EFAULT);
	}
	return ret;
}

static int info(FIXTURE_DATA(faults) *self)
{
	struct kvctx_info info = { .size = sizeof(info) };

	return kt_ioctl(self->k.file, KVCTX_IOC_INFO, &info);
}

static int paths(FIXTURE_DATA(faults) *self)
{
	struct kvctx_path rows[64];
	struct kvctx_paths p = { .size = sizeof(p), .nr = 64, .paths = (uintptr_t)rows };

	return kt_ioctl(self->k.file, KVCTX_IOC_PATHS, &p);
}

/* On a session of its own, so that each begins */
static int events(FIXTURE_DATA(faults) *self)
{
	struct kvctx_event got[4];
	struct kvctx_events e = { .size = sizeof(e), .nr = 4, .events = (uintptr_t)got };
	struct kt k;
	int ret = kt_open(&k, O_RDWR, 0x41, 0, 8);

	if (ret)
		return ret;
	ret = kt_ioctl(k.file, KVCTX_IOC_EVENTS, &e);
	if (!ret) {
		self->k.arena[0]++;
		ret = kt_store(&self->k, kt_key(self->next++), 0, 100, NULL);
		ret = ret == 100 ? 0 : ret;
		e.nr = 4;
	}
	if (!ret)
		ret = kt_ioctl(k.file, KVCTX_IOC_EVENTS, &e);
	kt_close(&k);
	return ret ? ret : (int)e.nr;
}

TEST_F(faults, registration_and_questions)
{
	SWEEP(mem_register, 0);
	SWEEP(info, 0);
	SWEEP(paths, 0);
	SWEEP(events, 1);
}

static int store(FIXTURE_DATA(faults) *self)
{
	uint64_t key = self->next++;

	kt_fill(self->k.arena, PAGE, key);
	return kt_store(&self->k, kt_key(key), 0, PAGE, NULL);
}

/* The pieces of a page that no device takes as they are */
static unsigned int pieces(struct kvctx_seg *segs, uint64_t at)
{
	unsigned int i;

	for (i = 0; i < 5; i++)
		segs[i] = kt_seg(KVCTX_MEM_ARENA, at + i * 70003, 20001);
	return i;
}

static int store_pieces(FIXTURE_DATA(faults) *self)
{
	struct kvctx_seg segs[8];
	unsigned int i, nr = pieces(segs, 1);
	uint64_t key = self->next++;
	struct kvctx_sqe sqe = kt_io(KVCTX_OP_STORE, kt_key(key), segs, nr);

	for (i = 0; i < nr; i++)
		kt_fill(self->k.arena + segs[i].offset, segs[i].length, i);
	return kt_do(&self->k, &sqe, NULL);
}

static int load(FIXTURE_DATA(faults) *self)
{
	int ret;

	memset(self->k.arena, 0, PAGE);
	ret = kt_load(&self->k, kt_key(KEPT), 0, PAGE, NULL);
	return ret == PAGE && kt_check(self->k.arena, PAGE, KEPT) != -1 ? -EPROTO : ret;
}

static int load_pieces(FIXTURE_DATA(faults) *self)
{
	struct kvctx_seg segs[8];
	unsigned int nr = pieces(segs, 1);
	struct kvctx_sqe sqe = kt_io(KVCTX_OP_LOAD, kt_key(KEPT), segs, nr - 1);
	int ret;

	sqe.offset = 16000;
	memset(self->k.arena, 0, KT_MIB);
	ret = kt_do(&self->k, &sqe, NULL);
	if (ret == 4 * 20001 && memcmp(self->k.arena + segs[0].offset, self->mem + 16000, 20001))
		return -EPROTO;
	return ret;
}

TEST_F(faults, store_and_load)
{
	kt_fill(self->mem, PAGE, KEPT);
	SWEEP(store, PAGE);
	SWEEP(store_pieces, 100005);
	SWEEP(load, PAGE);
	SWEEP(load_pieces, 80004);
}

static int delete(FIXTURE_DATA(faults) *self)
{
	int ret = kt_op(&self->k, KVCTX_OP_DELETE, kt_key(10));

	/* the last one may have told of its failure after it was done */
	return ret == -ENOENT ? 0 : ret;
}

static int lease(FIXTURE_DATA(faults) *self)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_LEASE, kt_key(KEPT));
	int ret;

	sqe.lease_ms = 1000;
	ret = kt_do(&self->k, &sqe, NULL);
	if (ret <= 0)
		return ret ?: -EPROTO;
	sqe = kt_sqe(KVCTX_OP_RELEASE, (struct kvctx_key){ 0 });
	sqe.lease = ret;
	return kt_do(&self->k, &sqe, NULL);
}

static int match(FIXTURE_DATA(faults) *self)
{
	struct kvctx_key keys[3] = { kt_key(KEPT), kt_key(KEPT), kt_key(5) };
	uint32_t lens[3];
	struct kvctx_match m = {
		.size = sizeof(m), .flags = KVCTX_MATCH_LEASE | KVCTX_MATCH_PREFETCH, .keys = (uintptr_t)keys,
		.lens = (uintptr_t)lens, .nr_keys = 3, .lease_ms = 1,
	};
	int ret = kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m);

	return ret ? ret : m.nr_present == 2 ? 0 : -EPROTO;
}

static int flush(FIXTURE_DATA(faults) *self)
{
	return kt_op(&self->k, KVCTX_OP_FLUSH, (struct kvctx_key){ 0 });
}

TEST_F(faults, keys)
{
	kt_fill(self->k.arena, PAGE, 10);
	ASSERT_EQ(PAGE, kt_store(&self->k, kt_key(10), 0, PAGE, NULL));
	SWEEP(delete, 0);
	SWEEP(lease, 0);
	SWEEP(match, 0);
	SWEEP(flush, 0);
}

static int get_put(FIXTURE_DATA(faults) *self)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_GET, kt_key(KEPT));
	int ret;

	sqe.lease_ms = 1;
	ret = kt_do(&self->k, &sqe, NULL);
	if (ret < 0)
		return ret;
	if (kt_check(self->k.slots + (size_t)ret * (256 << 10), PAGE, KEPT) != -1)
		return -EPROTO;
	sqe = kt_sqe(KVCTX_OP_PUT, (struct kvctx_key){ 0 });
	sqe.lease = ret;
	do {
		ret = kt_do(&self->k, &sqe, NULL);
	} while (ret == -EFAULT || ret == -ENOMEM);
	return ret;
}

static int prefetch(FIXTURE_DATA(faults) *self)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_PREFETCH, kt_key(KEPT));

	sqe.lease_ms = 1;
	return kt_do(&self->k, &sqe, NULL);
}

TEST_F(faults, slots)
{
	SWEEP(get_put, 0);
	SWEEP(prefetch, PAGE);
}

static int ring_op(FIXTURE_DATA(faults) *self, const struct kvctx_sqe *op, bool fixed)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&self->ring);
	struct io_uring_cqe *cqe;
	int ret;

	if (!sqe || (fixed ? kvctx_uring_prep_fixed(sqe, kt_fd(&self->k), op, self->mem, 0) :
			     kvctx_uring_prep(sqe, kt_fd(&self->k), op)))
		return -EPROTO;
	do {
		ret = io_uring_submit_and_wait(&self->ring, 1);
	} while (ret == -EINTR);
	if (ret < 0)
		return ret;
	ret = io_uring_wait_cqe(&self->ring, &cqe);
	if (ret)
		return ret;
	ret = cqe->res;
	io_uring_cqe_seen(&self->ring, cqe);
	return ret;
}

static int ring_store(FIXTURE_DATA(faults) *self)
{
	struct kvctx_sqe op = { .opcode = KVCTX_OP_STORE, .key = kt_key(self->next++), .length = PAGE };

	return ring_op(self, &op, false);
}

static int ring_load(FIXTURE_DATA(faults) *self)
{
	struct kvctx_sqe op = { .opcode = KVCTX_OP_LOAD, .key = kt_key(KEPT), .length = PAGE };
	int ret;

	memset(self->k.arena, 0, PAGE);
	ret = ring_op(self, &op, false);
	return ret == PAGE && kt_check(self->k.arena, PAGE, KEPT) != -1 ? -EPROTO : ret;
}

static int ring_fixed(FIXTURE_DATA(faults) *self)
{
	struct kvctx_sqe op = { .opcode = KVCTX_OP_LOAD, .key = kt_key(KEPT), .length = PAGE };
	int ret;

	memset(self->mem, 0, PAGE);
	ret = ring_op(self, &op, true);
	return ret == PAGE && kt_check(self->mem, PAGE, KEPT) != -1 ? -EPROTO : ret;
}

TEST_F(faults, io_uring)
{
	struct iovec iov = { .iov_base = self->mem, .iov_len = 4 * KT_MIB };

	ASSERT_EQ(0, io_uring_register_buffers(&self->ring, &iov, 1));
	SWEEP(ring_store, PAGE);
	SWEEP(ring_load, PAGE);
	SWEEP(ring_fixed, PAGE);
}

TEST_HARNESS_MAIN
