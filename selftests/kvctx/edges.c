// SPDX-License-Identifier: GPL-2.0
/*
 * Corners of the data path: destinations that change under the verification, overlapping scatter lists, deadlines,
 * huge pages, many threads on one session, read-only sessions, what a refused call leaves behind.
 */
#include <pthread.h>
#include <sys/mount.h>

#include "ktest.h"
#include "harness.h"

FIXTURE(edges)
{
	struct kt k;
};

FIXTURE_SETUP(edges)
{
	ASSERT_EQ(0, kt_open(&self->k, O_RDWR, 0x31, 32 * KT_MIB, 256));
}

FIXTURE_TEARDOWN(edges)
{
	kt_close(&self->k);
}

/* The same bytes named twice cannot hold both halves; the page is not at fault and stays */
TEST_F(edges, overlapping_destination_does_not_condemn_the_page)
{
	struct kvctx_seg segs[2] = { kt_seg(0, 8 * KT_MIB, 100000), kt_seg(0, 8 * KT_MIB + 50000, 100000) };
	struct kvctx_sqe sqe = kt_io(KVCTX_OP_LOAD, kt_key(1), segs, 2);

	kt_fill(self->k.arena, 200000, 1);
	ASSERT_EQ(200000, kt_store(&self->k, kt_key(1), 0, 200000, NULL));
	EXPECT_EQ(200000, kt_do(&self->k, &sqe, NULL));
	EXPECT_EQ(200000, kt_op(&self->k, KVCTX_OP_QUERY, kt_key(1)));
	ASSERT_EQ(200000, kt_load(&self->k, kt_key(1), KT_MIB, 200000, NULL));
	EXPECT_EQ(-1, kt_check(self->k.arena + KT_MIB, 200000, 1));
}

struct scribbler {
	volatile uint8_t *p;
	size_t n;
	volatile bool stop, wrote;
};

/* What it does to others is no news to the thread sanitizer */
__attribute__((__no_sanitize__("thread")))
static void *scribble(void *arg)
{
	struct scribbler *s = arg;

	for (size_t i = 0; !s->stop; i = (i + 4099) % s->n) {
		s->p[i]++;
		s->wrote = true;
	}
	return NULL;
}

/* Nor do bytes that change while they are verified, not even through a read-only session */
TEST_F(edges, scribbling_does_not_condemn_the_page)
{
	struct scribbler s = { .n = 4 * KT_MIB };
	struct kvctx_mem_register reg = { .size = sizeof(reg), .length = 4 * KT_MIB };
	struct kvctx_seg seg;
	struct kvctx_sqe sqe;
	pthread_t thread;
	struct kt ro;

	s.p = mmap(NULL, s.n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	kt_fill(self->k.arena, s.n, 2);
	ASSERT_EQ((int)s.n, kt_store(&self->k, kt_key(2), 0, s.n, NULL));
	ASSERT_EQ(0, kt_open(&ro, O_RDONLY, 0x31, 0, 8));
	reg.addr = (uintptr_t)s.p;
	ASSERT_EQ(0, kt_ioctl(ro.file, KVCTX_IOC_MEM_REGISTER, &reg));
	seg = kt_seg(reg.id, 0, s.n);
	ASSERT_EQ(0, pthread_create(&thread, NULL, scribble, &s));
	for (int i = 0; i < 10; i++) {
		sqe = kt_io(KVCTX_OP_LOAD, kt_key(2), &seg, 1);
		EXPECT_EQ((int)s.n, kt_do(&ro, &sqe, NULL));
	}
	s.stop = true;
	pthread_join(thread, NULL);
	kt_close(&ro);
	EXPECT_EQ((int)s.n, kt_load(&self->k, kt_key(2), 8 * KT_MIB, s.n, NULL));
	EXPECT_EQ(-1, kt_check(self->k.arena + 8 * KT_MIB, s.n, 2));
}

/* A page whose source changed while it was stored is found out, and its destination holds nothing of it */
TEST_F(edges, page_that_changed_while_it_was_stored)
{
	struct scribbler s = { .p = self->k.arena, .n = 4 * KT_MIB };
	uint64_t end = kt_now() + KT_LIMIT;
	uint8_t *dst = self->k.arena + 16 * KT_MIB;
	uint32_t flags;
	pthread_t thread;
	int res, bad = 0;

	ASSERT_EQ(0, pthread_create(&thread, NULL, scribble, &s));
	for (int i = 0; !bad && kt_now() < end; i++) {
		/* it has a processor */
		for (s.wrote = false; !s.wrote && kt_now() < end;)
			sched_yield();
		ASSERT_EQ((int)s.n, kt_store(&self->k, kt_key(100 + i), 0, s.n, NULL));
		memset(dst, 0x66, s.n);
		res = kt_load(&self->k, kt_key(100 + i), 16 * KT_MIB, s.n, &flags);
		if (res == (int)s.n) {
			EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
			continue;
		}
		EXPECT_EQ(-EBADMSG, res);
		EXPECT_EQ(0, flags);
		EXPECT_EQ(0, dst[0] | memcmp(dst, dst + 1, s.n - 1));
		EXPECT_EQ(-ENOENT, kt_op(&self->k, KVCTX_OP_QUERY, kt_key(100 + i)));
		bad++;
	}
	s.stop = true;
	pthread_join(thread, NULL);
	EXPECT_EQ(1, bad);
}

static int store_unread(struct kt *k, uint64_t n, uint32_t *crcs)
{
	struct kvctx_seg seg = kt_seg(KVCTX_MEM_ARENA, 0, 4096);
	struct kvctx_sqe sqe = kt_io(KVCTX_OP_STORE, kt_key(n), &seg, 1);

	kt_fill(k->arena, 4096, n);
	sqe.flags = KVCTX_OP_NO_VERIFY;
	sqe.crcs = (uintptr_t)crcs;
	return kt_do(k, &sqe, NULL);
}

TEST_F(edges, store_can_leave_checksums_to_the_caller)
{
	struct kvctx_seg seg = kt_seg(KVCTX_MEM_ARENA, 8192, 4096);
	struct kvctx_sqe sqe;
	uint32_t crc = 0, flags;

	/* none: loaded as it is, and nobody says that it was verified */
	ASSERT_EQ(4096, store_unread(&self->k, 520, NULL));
	EXPECT_EQ(4096, kt_load(&self->k, kt_key(520), 4096, 4096, &flags));
	EXPECT_EQ(0, flags);
	EXPECT_EQ(-1, kt_check(self->k.arena + 4096, 4096, 520));
	/* those of the kernel for the same bytes: it verifies */
	kt_fill(self->k.arena, 4096, 521);
	ASSERT_EQ(4096, kt_store(&self->k, kt_key(522), 0, 4096, NULL));
	sqe = kt_io(KVCTX_OP_LOAD, kt_key(522), &seg, 1);
	sqe.crcs = (uintptr_t)&crc;
	ASSERT_EQ(4096, kt_do(&self->k, &sqe, NULL));
	ASSERT_EQ(4096, store_unread(&self->k, 521, &crc));
	EXPECT_EQ(4096, kt_load(&self->k, kt_key(521), 4096, 4096, &flags));
	EXPECT_EQ(KVCTX_CQE_VERIFIED, flags);
	/* wrong ones are taken, and found out when it is loaded */
	crc ^= 1;
	ASSERT_EQ(4096, store_unread(&self->k, 523, &crc));
	EXPECT_EQ(-EBADMSG, kt_load(&self->k, kt_key(523), 4096, 4096, NULL));
}

/* One nanosecond is over before anything starts */
TEST_F(edges, deadline_in_the_past)
{
	static const uint8_t ops[] = { KVCTX_OP_STORE, KVCTX_OP_LOAD, KVCTX_OP_DELETE, KVCTX_OP_QUERY };
	struct kvctx_seg seg = kt_seg(0, 0, 4096);
	struct kvctx_sqe sqe;

	ASSERT_EQ(4096, kt_store(&self->k, kt_key(3), 0, 4096, NULL));
	for (size_t i = 0; i < sizeof(ops); i++) {
		bool io = ops[i] == KVCTX_OP_STORE || ops[i] == KVCTX_OP_LOAD;

		sqe = io ? kt_io(ops[i], kt_key(ops[i] == KVCTX_OP_STORE ? 4 : 3), &seg, 1) : kt_sqe(ops[i], kt_key(3));
		sqe.timeout_ns = 1;
		EXPECT_EQ(-ETIME, kt_do(&self->k, &sqe, NULL)) TH_LOG("opcode %u", ops[i]);
		sqe.timeout_ns = ~0ULL;
		if (ops[i] == KVCTX_OP_LOAD) {
			EXPECT_EQ(4096, kt_do(&self->k, &sqe, NULL));
		}
	}
	EXPECT_EQ(4096, kt_op(&self->k, KVCTX_OP_QUERY, kt_key(3)));
	EXPECT_EQ(-ENOENT, kt_op(&self->k, KVCTX_OP_QUERY, kt_key(4)));
}

TEST_F(edges, unverified_ranges)
{
	const uint32_t size = 200003;
	struct kvctx_seg seg;
	struct kvctx_sqe sqe;
	uint8_t *dst = self->k.arena + KT_MIB;

	kt_fill(self->k.arena, size, 5);
	ASSERT_EQ((int)size, kt_store(&self->k, kt_key(5), 0, size, NULL));
	for (uint32_t from = 0; from < size; from += 6007) {
		uint32_t len = 1 + from * 7 % (size - from);

		memset(dst, 0x11, size + 8);
		seg = kt_seg(0, KT_MIB + 3, len);
		sqe = kt_io(KVCTX_OP_LOAD, kt_key(5), &seg, 1);
		sqe.flags = KVCTX_OP_NO_VERIFY;
		sqe.offset = from;
		ASSERT_EQ((int)len, kt_do(&self->k, &sqe, NULL)) TH_LOG("range %u+%u", from, len);
		ASSERT_EQ(0, memcmp(dst + 3, self->k.arena + from, len)) TH_LOG("range %u+%u", from, len);
		ASSERT_EQ(0x11, dst[2]);
		ASSERT_EQ(0x11, dst[len + 3]);
	}
}

/* Huge pages, entered in the middle */
TEST_F(edges, huge_pages)
{
	uint8_t *buf = mmap(NULL, 12 * KT_MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *at = (uint8_t *)(((uintptr_t)buf + 2 * KT_MIB - 1) & ~(2 * KT_MIB - 1)) + 5000;
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (uintptr_t)at, .length = 8 * KT_MIB };
	struct kvctx_seg seg;
	struct kvctx_sqe sqe;

	madvise(buf, 12 * KT_MIB, MADV_HUGEPAGE);
	kt_fill(at, 8 * KT_MIB, 6);
	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg));
	seg = kt_seg(reg.id, 1000, 8 * KT_MIB - 1000);
	sqe = kt_io(KVCTX_OP_STORE, kt_key(6), &seg, 1);
	ASSERT_EQ((int)seg.length, kt_do(&self->k, &sqe, NULL));
	memset(at, 0, 8 * KT_MIB);
	sqe = kt_io(KVCTX_OP_LOAD, kt_key(6), &seg, 1);
	ASSERT_EQ((int)seg.length, kt_do(&self->k, &sqe, NULL));
	memset(self->k.arena, 0, 1000);
	kt_fill(self->k.arena, 8 * KT_MIB, 6);
	EXPECT_EQ(0, memcmp(at + 1000, self->k.arena + 1000, seg.length));
	for (int i = 0; i < 1000; i++) {
		ASSERT_EQ(0, at[i]);
	}
}

/* Write @text to a file of the kernel; false: it did not want it */
static bool tell(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	close(fd);
	return ok;
}

static long ask(const char *file)
{
	FILE *f = fopen(file, "r");
	long n = -1;

	if (f && fscanf(f, "%ld", &n) != 1)
		n = -1;
	if (f)
		fclose(f);
	return n;
}

/* Put ourselves into a control group of our own, where memory is counted */
static bool own_group(void)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	mkdir("/tmp/cgroup", 0700);
	if (mount("none", "/tmp/cgroup", "cgroup2", 0, NULL) && errno != EBUSY)
		return false;
	mkdir("/tmp/cgroup/edges", 0700);
	return tell("/tmp/cgroup/cgroup.subtree_control", "+memory") && tell("/tmp/cgroup/edges/cgroup.procs", pid);
}

/* The memory that a registration costs goes by huge pages, not by small ones (4 MiB a GiB at 16 bytes each) */
TEST_F(edges, cost_of_registering_huge_pages)
{
	enum { NR = 64 };
	struct kvctx_mem_register reg = { .size = sizeof(reg) };
	long pages, before, after;
	uint64_t start, ns;
	uint8_t *buf;
	double gib;

	tell("/proc/sys/vm/nr_hugepages", "128");
	pages = ask("/proc/sys/vm/nr_hugepages");
	if (pages < 16 || !own_group())
		SKIP(return, "%ld huge pages, or no control groups", pages);
	buf = mmap(NULL, pages * 2 * KT_MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)buf);
	reg.addr = (uintptr_t)buf;
	reg.length = pages * 2 * KT_MIB;
	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg));
	before = ask("/tmp/cgroup/edges/memory.current");
	start = kt_now();
	for (int i = 0; i < NR; i++)
		ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg));
	ns = kt_now() - start;
	after = ask("/tmp/cgroup/edges/memory.current");
	gib = (double)NR * reg.length / (1 << 30);
	TH_LOG("%.0f GiB registered: %.1f KiB and %.1f ms a GiB", gib, (after - before) / 1024 / gib, ns / 1e6 / gib);
	EXPECT_LT((after - before) / gib, 64 << 10);
	munmap(buf, reg.length);
	kt_close(&self->k);
	tell("/proc/sys/vm/nr_hugepages", "0");
	EXPECT_EQ(0, ask("/proc/sys/vm/nr_hugepages"));
	ASSERT_EQ(0, kt_open(&self->k, O_RDWR, 0x31, KT_MIB, 8));
}

struct submitter {
	struct kt *k;
	int base, failed;
};

/* Stores and loads of its own keys; completions are taken by the main thread */
static void *submitter(void *arg)
{
	struct submitter *s = arg;

	for (int i = 0; i < 200; i++) {
		struct kvctx_seg seg = kt_seg(0, s->base * KT_MIB + i % 16 * 65536, 5000 + i);
		struct kvctx_sqe sqe = kt_io(i % 2 ? KVCTX_OP_LOAD : KVCTX_OP_STORE, kt_key(s->base * 1000 + i / 2), &seg, 1);
		int ret;

		do
			ret = kt_submit(s->k, &sqe, 1, 0);
		while (ret == -EAGAIN);
		s->failed += ret != 1;
	}
	return NULL;
}

TEST_F(edges, threads_share_a_session)
{
	struct submitter s[4];
	pthread_t thread[4];
	struct kvctx_cqe cqe;
	int n = 0;

	for (int i = 0; i < 4; i++) {
		s[i] = (struct submitter){ .k = &self->k, .base = 1 + i };
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, submitter, &s[i]));
	}
	for (uint64_t end = kt_now() + KT_LIMIT; n < 800 && kt_now() < end;) {
		kt_wait(&self->k, 1, KT_SEC / 10);
		for (; kt_reap(&self->k, &cqe); n++) {
			/* a load may overtake its store, or find fewer bytes than it asks for */
			EXPECT_TRUE(cqe.res >= 5000 || cqe.res == -ENOENT || cqe.res == -ERANGE) TH_LOG("%d", cqe.res);
		}
	}
	EXPECT_EQ(800, n);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		EXPECT_EQ(0, s[i].failed);
	}
	EXPECT_EQ(0, kt_wait(&self->k, 1, KVCTX_TIMEOUT_NONE));
}

TEST_F(edges, read_only_session)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_FLUSH, (struct kvctx_key){ 0 });
	struct kvctx_info info = { .size = sizeof(info) };
	struct kvctx_wait w = { .size = sizeof(w) };
	struct kvctx_sqe sqes[2];
	struct kt ro;

	ASSERT_EQ(0, kt_open(&ro, O_RDONLY, 0x31, KT_MIB, 8));
	ASSERT_EQ(0, kt_ioctl(ro.file, KVCTX_IOC_INFO, &info));
	EXPECT_EQ(KVCTX_SESSION_RDONLY | KVCTX_SESSION_READY, info.session_flags);
	EXPECT_EQ(-EACCES, kt_do(&ro, &sqe, NULL));
	EXPECT_EQ(MAP_FAILED, kt_map(ro.file, 4096, PROT_READ | PROT_WRITE, KVCTX_MMAP_ARENA));
	EXPECT_EQ(EACCES, errno);
	for (int round = 0; round < 20; round++) {
		sqes[0] = kt_sqe(KVCTX_OP_QUERY, kt_key(7));
		sqes[1] = sqes[0];
		ASSERT_EQ(2, kt_submit(&ro, sqes, 2, 2));
		w.consumed = 3;
		EXPECT_EQ(-EINVAL, kt_ioctl(ro.file, KVCTX_IOC_WAIT, &w));
		w.consumed = 1;
		EXPECT_EQ(1, kt_ioctl(ro.file, KVCTX_IOC_WAIT, &w));
		EXPECT_EQ(0, kt_ioctl(ro.file, KVCTX_IOC_WAIT, &w));
	}
	kt_close(&ro);
}

TEST_F(edges, read_only_mappings_stay_so)
{
	struct kt ro;

	ASSERT_EQ(0, kt_open(&ro, O_RDONLY, 0x31, KT_MIB, 8));
	EXPECT_EQ(-1, mprotect(ro.arena, 4096, PROT_READ | PROT_WRITE));
	kt_close(&ro);
}

TEST_F(edges, write_only_files_are_refused)
{
	struct kvctx_file *f;

	EXPECT_EQ(-EACCES, kt_file(O_WRONLY, &f));
}

/* A result that cannot be written is noticed before anything was done */
TEST_F(edges, unwritable_argument_does_nothing)
{
	struct kvctx_mem_register *reg = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvctx_mem_register ok;

	*reg = (struct kvctx_mem_register){ .size = sizeof(*reg), .addr = (uintptr_t)reg, .length = 8 };
	ASSERT_EQ(0, mprotect(reg, 4096, PROT_READ));
	for (int i = 0; i < 2000; i++) {
		ASSERT_EQ(-EFAULT, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, reg));
	}
	ok = (struct kvctx_mem_register){ .size = sizeof(ok), .addr = (uintptr_t)&ok, .length = 8 };
	EXPECT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &ok));
}

/* Memory that the caller may not write cannot be registered, whatever LOAD would do with it */
TEST_F(edges, only_writable_memory_is_registered)
{
	uint8_t *ro = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *file = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 0);
	struct kvctx_mem_register reg = { .size = sizeof(reg), .length = 4096 };

	reg.addr = (uintptr_t)ro;
	EXPECT_EQ(-EFAULT, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg));
	ASSERT_NE(MAP_FAILED, (void *)file);
	reg.addr = (uintptr_t)file;
	EXPECT_EQ(-EFAULT, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg));
}

/* Nor keeps a MATCH any lease that it cannot deliver */
TEST_F(edges, match_that_cannot_deliver)
{
	struct kvctx_key keys[256];
	struct kvctx_match m = {
		.size = sizeof(m), .flags = KVCTX_MATCH_LEASE, .keys = (uintptr_t)keys, .nr_keys = 256, .lease_ms = 60000,
		.lens = 1,
	};

	ASSERT_EQ(10, kt_store(&self->k, kt_key(9), 0, 10, NULL));
	for (int i = 0; i < 256; i++)
		keys[i] = kt_key(9);
	for (int i = 0; i < 300; i++) {
		ASSERT_EQ(-EFAULT, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
	}
	m.lens = 0;
	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
	EXPECT_EQ(256, m.nr_present);
	EXPECT_NE(0, m.lease);
}

/* Leases are limited in pages */
TEST_F(edges, match_and_the_limit_of_leases)
{
	static struct kvctx_key keys[256];
	struct kvctx_match m = {
		.size = sizeof(m), .flags = KVCTX_MATCH_LEASE, .keys = (uintptr_t)keys, .nr_keys = 256, .lease_ms = 60000,
	};
	struct kvctx_info info = { .size = sizeof(info) };
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_LEASE, kt_key(8));

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_INFO, &info));
	ASSERT_EQ(10, kt_store(&self->k, kt_key(8), 0, 10, NULL));
	for (int i = 0; i < 256; i++)
		keys[i] = kt_key(8);
	for (uint32_t n = 0; n < info.leases_max; n += 256) {
		ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
		ASSERT_EQ(256, m.nr_present);
		ASSERT_NE(0, m.lease) TH_LOG("after %u pages", n);
	}
	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
	EXPECT_EQ(256, m.nr_present);
	EXPECT_EQ(0, m.lease);
	sqe.lease_ms = 1000;
	EXPECT_EQ(-ENOSPC, kt_do(&self->k, &sqe, NULL));
}

TEST_HARNESS_MAIN
