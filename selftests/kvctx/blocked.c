// SPDX-License-Identifier: GPL-2.0
/*
 * Calls that touch memory of the caller's which is not there, and comes only when the test wants it to
 * (userfaultfd): they hold nothing meanwhile that others wait for, no registration and no lease without an end.
 */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "ktest.h"
#include "harness.h"

#define REG	65536U
#define MANY	40U		/* segments: more than an operation has room for */
#define PAGE	kt_page()

/* An ioctl in a thread of its own */
struct call {
	pthread_t thread;
	struct kvctx_file *file;
	unsigned long cmd;
	void *arg;
	int ret;
};

FIXTURE(blocked)
{
	struct kt k;
	struct kvctx_mem_register reg;
	int uffd;
	uint8_t *mem;		/* two pages, the second is not there */
	struct call call;
};

FIXTURE_SETUP(blocked)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	uint8_t *buf;

	ASSERT_EQ(0, kt_open(&self->k, O_RDWR, 0x41, KT_MIB, 64));
	ASSERT_EQ(0, posix_memalign((void **)&buf, PAGE, REG));
	self->reg = (struct kvctx_mem_register){ .size = sizeof(self->reg), .addr = (uintptr_t)buf, .length = REG };
	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &self->reg));
	self->mem = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->mem);
	self->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	ASSERT_LE(0, self->uffd);
	ASSERT_EQ(0, ioctl(self->uffd, UFFDIO_API, &api));
	range.range.start = (uintptr_t)self->mem + PAGE;
	range.range.len = PAGE;
	ASSERT_EQ(0, ioctl(self->uffd, UFFDIO_REGISTER, &range));
	ASSERT_EQ((int)REG, kt_store(&self->k, kt_key(1), 0, REG, NULL));
}

FIXTURE_TEARDOWN(blocked)
{
	close(self->uffd);
	kt_close(&self->k);
	free((void *)(uintptr_t)self->reg.addr);
	munmap(self->mem, 2 * PAGE);
}

static void *call_it(void *arg)
{
	struct call *c = arg;

	c->ret = kt_ioctl(c->file, c->cmd, c->arg);
	return NULL;
}

/* Returns when the call waits for the page. */
static bool call_begin(struct call *c, int uffd, struct kvctx_file *f, unsigned long cmd, void *arg)
{
	struct pollfd p = { .fd = uffd, .events = POLLIN };
	struct uffd_msg msg;

	*c = (struct call){ .file = f, .cmd = cmd, .arg = arg };
	return !pthread_create(&c->thread, NULL, call_it, c) && poll(&p, 1, (int)(KT_LIMIT / 1000000)) == 1 &&
	       read(uffd, &msg, sizeof(msg)) == sizeof(msg) && msg.event == UFFD_EVENT_PAGEFAULT;
}

/* Let the page be there; its result. */
static int call_end(struct call *c, int uffd, uint8_t *page)
{
	struct uffdio_zeropage zero = { .range = { .start = (uintptr_t)page, .len = PAGE } };

	if (ioctl(uffd, UFFDIO_ZEROPAGE, &zero))
		return -EPROTO;
	pthread_join(c->thread, NULL);
	return c->ret;
}

static int unregister(const struct kt *k, uint32_t id)
{
	struct kvctx_mem_unregister un = { .size = sizeof(un), .id = id };

	return kt_ioctl(k->file, KVCTX_IOC_MEM_UNREGISTER, &un);
}

/* Submit it: while it waits its registration can be taken back, which it finds afterwards. */
static bool lets_go(struct kt *k, uint32_t reg, struct call *c, int uffd, uint8_t *page, const struct kvctx_sqe *sqe)
{
	struct kvctx_submit s = {
		.size = sizeof(s), .sqes = (uintptr_t)sqe, .nr = 1, .wait_nr = 1, .timeout_ns = KT_LIMIT,
	};
	struct kvctx_cqe cqe;
	int busy;

	if (!call_begin(c, uffd, k->file, KVCTX_IOC_SUBMIT, &s))
		return false;
	busy = unregister(k, reg);
	if (call_end(c, uffd, page) != 1 || !kt_reap(k, &cqe))
		return false;
	if (busy || cqe.res != -EINVAL)
		printf("# unregister: %d, the operation: %d\n", busy, cqe.res);
	return !busy && cqe.res == -EINVAL;
}

TEST_F(blocked, load_with_checksums)
{
	struct kvctx_seg seg = kt_seg(self->reg.id, 0, REG);
	struct kvctx_sqe sqe = kt_io(KVCTX_OP_LOAD, kt_key(1), &seg, 1);

	sqe.crcs = (uintptr_t)self->mem + PAGE;
	EXPECT_TRUE(lets_go(&self->k, self->reg.id, &self->call, self->uffd, self->mem + PAGE, &sqe));
}

TEST_F(blocked, store_with_checksums)
{
	struct kvctx_seg seg = kt_seg(self->reg.id, 0, REG);
	struct kvctx_sqe sqe = kt_io(KVCTX_OP_STORE, kt_key(2), &seg, 1);

	sqe.flags = KVCTX_OP_NO_VERIFY;
	sqe.crcs = (uintptr_t)self->mem + PAGE;
	EXPECT_TRUE(lets_go(&self->k, self->reg.id, &self->call, self->uffd, self->mem + PAGE, &sqe));
}

TEST_F(blocked, segments)
{
	struct kvctx_seg *segs = (struct kvctx_seg *)(self->mem + PAGE) - MANY / 2;
	struct kvctx_sqe sqe = kt_io(KVCTX_OP_LOAD, kt_key(1), NULL, 0);

	for (uint32_t i = 0; i < MANY / 2; i++)
		segs[i] = kt_seg(self->reg.id, i * 1024, 1024);
	sqe.segs = (uintptr_t)segs;
	sqe.nr_segs = MANY;
	sqe.length = REG;
	EXPECT_TRUE(lets_go(&self->k, self->reg.id, &self->call, self->uffd, self->mem + PAGE, &sqe));
}

TEST_F(blocked, paths)
{
	struct kvctx_paths p = {
		.size = sizeof(p), .mem = self->reg.id, .nr = 1, .paths = (uintptr_t)self->mem + PAGE,
	};

	ASSERT_TRUE(call_begin(&self->call, self->uffd, self->k.file, KVCTX_IOC_PATHS, &p));
	EXPECT_EQ(0, unregister(&self->k, self->reg.id));
	EXPECT_EQ(0, call_end(&self->call, self->uffd, self->mem + PAGE));
	EXPECT_LE(1, p.nr);
}

/* The leases end in time, whenever the caller hears of them. */
TEST_F(blocked, leases)
{
	struct kvctx_key key = kt_key(1);
	struct kvctx_match m = {
		.size = sizeof(m), .flags = KVCTX_MATCH_LEASE, .keys = (uintptr_t)&key, .nr_keys = 1, .lease_ms = 50,
		.lens = (uintptr_t)self->mem + PAGE,
	};
	struct kvctx_sqe release = kt_sqe(KVCTX_OP_RELEASE, (struct kvctx_key){});

	ASSERT_TRUE(call_begin(&self->call, self->uffd, self->k.file, KVCTX_IOC_MATCH, &m));
	usleep(500000);
	ASSERT_EQ(0, call_end(&self->call, self->uffd, self->mem + PAGE));
	EXPECT_EQ(1, m.nr_present);
	release.lease = m.lease;
	EXPECT_EQ(-EINVAL, kt_do(&self->k, &release, NULL));
}

/* Memory that has only to be made present is: the CRCs come. */
TEST_F(blocked, memory_that_was_never_touched)
{
	uint32_t *crcs = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvctx_seg seg = kt_seg(KVCTX_MEM_ARENA, 0, REG);
	struct kvctx_sqe sqe = kt_io(KVCTX_OP_LOAD, kt_key(1), &seg, 1);

	ASSERT_NE(MAP_FAILED, crcs);
	sqe.crcs = (uintptr_t)crcs;
	EXPECT_EQ((int)REG, kt_do(&self->k, &sqe, NULL));
	EXPECT_NE(0, crcs[0]);
	ASSERT_EQ(0, mprotect(crcs, PAGE, PROT_READ));
	EXPECT_EQ(-EFAULT, kt_do(&self->k, &sqe, NULL));
	munmap(crcs, PAGE);
	EXPECT_EQ(-EFAULT, kt_do(&self->k, &sqe, NULL));
}

TEST_HARNESS_MAIN
