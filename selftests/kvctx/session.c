// SPDX-License-Identifier: GPL-2.0
/*
 * What belongs to a session and dies with it: mappings, registrations, the completion queue, leases, operations in
 * flight; forks, threads' worth of processes, and clients that are killed.
 */
#include <pthread.h>
#include <sched.h>

#include "ktest.h"
#include "harness.h"

FIXTURE(session)
{
	struct kt k;
};

FIXTURE_SETUP(session)
{
	ASSERT_EQ(0, kt_open(&self->k, O_RDWR, 0x21, 16 * KT_MIB, 64));
}

FIXTURE_TEARDOWN(session)
{
	kt_close(&self->k);
}

static void *map(struct kt *k, size_t length, uint64_t offset)
{
	return kt_map(k->file, length, PROT_READ | PROT_WRITE, offset);
}

TEST_F(session, mmap_stays_inside)
{
	const size_t page = kt_page();
	struct kt *k = &self->k;
	uint8_t *part;

	EXPECT_EQ(MAP_FAILED, map(k, k->arena_bytes + page, KVCTX_MMAP_ARENA));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, map(k, 2 * page, KVCTX_MMAP_ARENA + k->arena_bytes - page));
	EXPECT_EQ(MAP_FAILED, map(k, page, KVCTX_MMAP_ARENA + k->arena_bytes));
	EXPECT_EQ(MAP_FAILED, map(k, page, 1ULL << 43));
	EXPECT_EQ(MAP_FAILED, map(k, page, KVCTX_MMAP_ARENA - page));
	EXPECT_EQ(MAP_FAILED, map(k, k->cq_bytes + page, KVCTX_MMAP_CQ));

	part = map(k, page, KVCTX_MMAP_ARENA + 2 * page);
	ASSERT_NE(MAP_FAILED, (void *)part);
	part[7] = 0x42;
	EXPECT_EQ(0x42, k->arena[2 * page + 7]);
	kvctx_sys_munmap(k->file, part, page);
}

/* What the owner of a mapping can do to it: nothing */
TEST_F(session, mappings_are_special)
{
	const size_t page = kt_page();
	struct kt *k = &self->k;
	uint8_t *part;

	EXPECT_EQ(MAP_FAILED, mmap(NULL, page, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE, kt_fd(k),
				   KVCTX_MMAP_ARENA + (1ULL << 60)));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, page, PROT_READ, MAP_PRIVATE, kt_fd(k), KVCTX_MMAP_ARENA));
	EXPECT_EQ(EINVAL, errno);
	part = map(k, page, KVCTX_MMAP_ARENA + 2 * page);
	ASSERT_NE(MAP_FAILED, (void *)part);
	EXPECT_EQ(MAP_FAILED, mremap(part, page, 1 << 20, MREMAP_MAYMOVE));
	kvctx_sys_munmap(k->file, part, page);
}

/* The arena is made of pages that other interfaces can pin: here, another registration */
TEST_F(session, arena_can_be_registered)
{
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (uintptr_t)self->k.arena + 4096, .length = 8192 };
	struct kvctx_seg seg;
	struct kvctx_sqe sqe;

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg));
	kt_fill(self->k.arena + 4096, 8192, 3);
	seg = kt_seg(reg.id, 0, 8192);
	sqe = kt_io(KVCTX_OP_STORE, kt_key(10), &seg, 1);
	ASSERT_EQ(8192, kt_do(&self->k, &sqe, NULL));
	ASSERT_EQ(8192, kt_load(&self->k, kt_key(10), 65536, 8192, NULL));
	EXPECT_EQ(-1, kt_check(self->k.arena + 65536, 8192, 3));
}

TEST_F(session, registrations_end)
{
	uint8_t *buf = malloc(65536);
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (uintptr_t)buf, .length = 65536 };
	struct kvctx_mem_unregister un = { .size = sizeof(un) };
	struct kvctx_seg seg;
	struct kvctx_sqe sqe;

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg));
	ASSERT_NE(KVCTX_MEM_ARENA, reg.id);
	kt_fill(buf, 65536, 4);
	seg = kt_seg(reg.id, 0, 65536);
	sqe = kt_io(KVCTX_OP_STORE, kt_key(11), &seg, 1);
	ASSERT_EQ(65536, kt_do(&self->k, &sqe, NULL));
	ASSERT_EQ(65536, kt_load(&self->k, kt_key(11), 0, 65536, NULL));
	EXPECT_EQ(-1, kt_check(self->k.arena, 65536, 4));
	un.id = reg.id;
	EXPECT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_UNREGISTER, &un));
	EXPECT_EQ(-EINVAL, kt_ioctl(self->k.file, KVCTX_IOC_MEM_UNREGISTER, &un));
	EXPECT_EQ(-EINVAL, kt_do(&self->k, &sqe, NULL));
	free(buf);
}

/* Its pages stay pinned */
TEST_F(session, memory_outlives_its_mapping)
{
	uint8_t *buf = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (uintptr_t)buf, .length = 65536 };
	struct kvctx_seg seg;
	struct kvctx_sqe sqe;

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg));
	kt_fill(buf, 65536, 4);
	munmap(buf, 65536);
	seg = kt_seg(reg.id, 0, 65536);
	sqe = kt_io(KVCTX_OP_STORE, kt_key(14), &seg, 1);
	ASSERT_EQ(65536, kt_do(&self->k, &sqe, NULL));
	ASSERT_EQ(65536, kt_load(&self->k, kt_key(14), 0, 65536, NULL));
	EXPECT_EQ(-1, kt_check(self->k.arena, 65536, 4));
}

TEST_F(session, registrations_are_limited)
{
	struct kvctx_info info = { .size = sizeof(info) };
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (uintptr_t)&info, .length = 8 };
	unsigned int n;

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_INFO, &info));
	for (n = 0; n < info.mem_max; n++) {
		ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg)) TH_LOG("%u", n);
	}
	EXPECT_EQ(-ENOMEM, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg));
}

/* RLIMIT_MEMLOCK binds whoever lacks CAP_IPC_LOCK, and what is given back counts again */
TEST_F(session, memlock_is_accounted)
{
	pid_t pid = fork();
	int status;

	ASSERT_LE(0, pid);
	if (!pid) {
		struct rlimit rl = { 8 * KT_MIB, 8 * KT_MIB };
		uint8_t *buf = mmap(NULL, 6 * KT_MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct kvctx_mem_register reg = {
			.size = sizeof(reg), .addr = (uintptr_t)buf, .length = 6 * KT_MIB,
		};
		struct kvctx_mem_unregister un = { .size = sizeof(un) };
		struct kt k;

		if (chmod(kt_node(), 0666) || setrlimit(RLIMIT_MEMLOCK, &rl) || setuid(65534))
			_exit(10);
		if (kt_open(&k, O_RDWR, 1, 16 * KT_MIB, 8) != -ENOMEM)
			_exit(1);
		if (kt_open(&k, O_RDWR, 1, 4 * KT_MIB, 8))
			_exit(2);
		if (kt_ioctl(k.file, KVCTX_IOC_MEM_REGISTER, &reg) != -ENOMEM)
			_exit(3);
		kt_close(&k);
		if (kt_open(&k, O_RDWR, 1, 0, 8))
			_exit(4);
		for (int i = 0; i < 3; i++) {
			if (kt_ioctl(k.file, KVCTX_IOC_MEM_REGISTER, &reg))
				_exit(5);
			un.id = reg.id;
			if (kt_ioctl(k.file, KVCTX_IOC_MEM_UNREGISTER, &un))
				_exit(6);
		}
		_exit(0);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	chmod(kt_node(), 0600);
	EXPECT_EQ(0, status) TH_LOG("child: exit %d", WEXITSTATUS(status));
}

static int register_6_mib(struct kt *k)
{
	uint8_t *buf = mmap(NULL, 6 * KT_MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (uintptr_t)buf, .length = 6 * KT_MIB };

	return kt_ioctl(k->file, KVCTX_IOC_MEM_REGISTER, &reg);
}

/* The child of who registered has the session, and is alone. What went wrong, 0: nothing */
static int heir(struct kt *of_parent, pid_t parent)
{
	struct kt k;

	while (getppid() == parent)
		usleep(1000);
	if (kt_open(&k, O_RDWR, 2, 0, 8))
		return 11;
	if (register_6_mib(&k) != -ENOMEM)
		return 12;
	if (close(kt_fd(of_parent)))
		return 13;
	return register_6_mib(&k) ? 14 : 0;
}

/* What is pinned counts for its user as long as it is, whoever has the descriptor. */
TEST_F(session, memlock_outlives_its_process)
{
	struct rlimit rl = { 8 * KT_MIB, 8 * KT_MIB };
	int ends[2], result = -1, status;
	struct kt k;
	pid_t pid;

	ASSERT_EQ(0, pipe(ends));
	ASSERT_EQ(0, chmod(kt_node(), 0666));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		pid = getpid();
		if (setrlimit(RLIMIT_MEMLOCK, &rl) || setuid(65534) || kt_open(&k, O_RDWR, 1, 0, 8) ||
		    register_6_mib(&k))
			_exit(10);
		if (fork())
			_exit(0);
		result = heir(&k, pid);
		_exit(write(ends[1], &result, sizeof(result)) < 0);
	}
	close(ends[1]);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(sizeof(result), read(ends[0], &result, sizeof(result)));
	EXPECT_EQ(0, result);
	close(ends[0]);
	chmod(kt_node(), 0600);
}

TEST_F(session, fork_keeps_the_parents_session)
{
	pid_t pid;
	int status;

	kt_fill(self->k.arena, 4096, 5);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		uint8_t vec;

		/* neither arena nor ring is inherited */
		_exit(mincore(self->k.arena, 4096, &vec) == -1 && errno == ENOMEM ? 0 : 1);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	ASSERT_EQ(4096, kt_store(&self->k, kt_key(12), 0, 4096, NULL));
	ASSERT_EQ(4096, kt_load(&self->k, kt_key(12), 4096, 4096, NULL));
	EXPECT_EQ(-1, kt_check(self->k.arena + 4096, 4096, 5));
}

/* A child that writes to registered memory after a fork does not change what the parent stores */
TEST_F(session, fork_does_not_share_registered_memory)
{
	uint8_t *buf = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (uintptr_t)buf, .length = 4096 };
	struct kvctx_seg seg;
	struct kvctx_sqe sqe;
	pid_t pid;

	kt_fill(buf, 4096, 6);
	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		memset(buf, 0, 4096);
		_exit(0);
	}
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	buf[0] ^= 1;		/* the parent's own write reaches the pinned page */
	seg = kt_seg(reg.id, 0, 4096);
	sqe = kt_io(KVCTX_OP_STORE, kt_key(13), &seg, 1);
	ASSERT_EQ(4096, kt_do(&self->k, &sqe, NULL));
	ASSERT_EQ(4096, kt_load(&self->k, kt_key(13), 0, 4096, NULL));
	self->k.arena[0] ^= 1;
	EXPECT_EQ(-1, kt_check(self->k.arena, 4096, 6));
}

TEST_F(session, completion_queue_full)
{
	struct kvctx_sqe sqes[100];
	struct kvctx_cqe cqe;
	unsigned int room = self->k.cq->entries;

	ASSERT_EQ(64, room);
	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < 100; i++) {
			sqes[i] = kt_sqe(KVCTX_OP_QUERY, kt_key(20));
			sqes[i].user_data = i;
		}
		ASSERT_EQ(64, kt_submit(&self->k, sqes, 100, 64));
		ASSERT_EQ(-EAGAIN, kt_submit(&self->k, sqes, 1, 0));
		for (int i = 0; i < 64; i++) {
			ASSERT_TRUE(kt_reap(&self->k, &cqe));
			ASSERT_EQ(-ENOENT, cqe.res);
		}
		ASSERT_FALSE(kt_reap(&self->k, &cqe));
	}
}

TEST_F(session, partial_batch_when_sqes_end)
{
	uint8_t *p = mmap(NULL, 2 * kt_page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvctx_sqe *sqes;
	struct kvctx_cqe cqe;

	ASSERT_EQ(0, mprotect(p + kt_page(), kt_page(), PROT_NONE));
	sqes = (struct kvctx_sqe *)(p + kt_page()) - 3;
	for (int i = 0; i < 3; i++)
		sqes[i] = kt_sqe(KVCTX_OP_QUERY, kt_key(21));
	EXPECT_EQ(3, kt_submit(&self->k, sqes, 5, 3));
	for (int i = 0; i < 3; i++) {
		EXPECT_TRUE(kt_reap(&self->k, &cqe));
	}
	EXPECT_FALSE(kt_reap(&self->k, &cqe));
}

/* A head that lies costs its owner completions and nobody else anything */
TEST_F(session, hostile_head)
{
	static const uint32_t heads[] = { 1, 63, 64, 65, 0x7fffffff, 0x80000000, 0xffffffff };
	struct kvctx_sqe sqe;

	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		__atomic_store_n(&self->k.cq->head, heads[i], __ATOMIC_RELEASE);
		for (int n = 0; n < 200; n++) {
			int ret;

			sqe = kt_sqe(KVCTX_OP_QUERY, kt_key(22));
			ret = kt_submit(&self->k, &sqe, 1, 0);
			ASSERT_TRUE(ret == 1 || ret == -EAGAIN) TH_LOG("%d", ret);
		}
		kt_wait(&self->k, 1, 1000);
	}
	kt_close(&self->k);
	ASSERT_EQ(0, kt_open(&self->k, O_RDWR, 0x21, 16 * KT_MIB, 64));
	ASSERT_EQ(100, kt_store(&self->k, kt_key(22), 0, 100, NULL));
}

TEST_F(session, wait_poll_and_eventfd)
{
	struct pollfd pfd = { .fd = kt_fd(&self->k), .events = POLLIN };
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_QUERY, kt_key(23));
	struct kvctx_cqe cqe;
	uint64_t t = kt_now();

	/* nothing in flight: WAIT has nothing to wait for */
	EXPECT_EQ(0, kt_wait(&self->k, 1, KVCTX_TIMEOUT_NONE));
	EXPECT_EQ(0, kt_wait(&self->k, 0, 0));
	EXPECT_EQ(0, poll(&pfd, 1, 0));
	ASSERT_EQ(1, kt_submit(&self->k, &sqe, 1, 0));
	EXPECT_EQ(1, poll(&pfd, 1, 60000));
	EXPECT_EQ(POLLIN, pfd.revents);
	EXPECT_EQ(1, kt_wait(&self->k, 1, KVCTX_TIMEOUT_NONE));
	EXPECT_TRUE(kt_reap(&self->k, &cqe));
	EXPECT_EQ(0, poll(&pfd, 1, 0));
	EXPECT_GT(KT_LIMIT, kt_now() - t);
}

TEST(eventfd_counts_completions)
{
	struct kvctx_setup s = { .size = sizeof(s), .flags = KVCTX_SETUP_EVENTFD, .cq_entries = 8 };
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_QUERY, kt_key(24));
	struct kt k = { 0 };
	uint64_t n = 0;

	ASSERT_EQ(0, kt_file(O_RDWR, &k.file));
	s.eventfd = 12345;
	EXPECT_EQ(-EINVAL, kt_ioctl(k.file, KVCTX_IOC_SETUP, &s));
	s.eventfd = open("/dev/null", O_RDWR | O_CLOEXEC);	/* a file, but no eventfd */
	EXPECT_EQ(-EINVAL, kt_ioctl(k.file, KVCTX_IOC_SETUP, &s));
	close(s.eventfd);
	s.eventfd = eventfd(0, EFD_CLOEXEC);
	ASSERT_EQ(0, kt_ioctl(k.file, KVCTX_IOC_SETUP, &s));
	ASSERT_EQ(1, kt_submit(&k, &sqe, 1, 1));
	ASSERT_EQ(1, kt_submit(&k, &sqe, 1, 2));
	ASSERT_EQ(8, read(s.eventfd, &n, 8));
	EXPECT_EQ(2, n);
	close(s.eventfd);
	kt_close(&k);
}

static int lease(struct kt *k, uint64_t n, uint32_t ms)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_LEASE, kt_key(n));

	sqe.lease_ms = ms;
	return kt_do(k, &sqe, NULL);
}

static int release(struct kt *k, int id)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_RELEASE, (struct kvctx_key){ 0 });

	sqe.lease = id;
	return kt_do(k, &sqe, NULL);
}

TEST_F(session, leases_end)
{
	struct kvctx_key key = kt_key(30);
	struct kvctx_match m = {
		.size = sizeof(m), .flags = KVCTX_MATCH_LEASE, .keys = (uintptr_t)&key, .nr_keys = 1,
		.lease_ms = 60000,
	};
	int a, b;

	ASSERT_EQ(10, kt_store(&self->k, key, 0, 10, NULL));
	a = lease(&self->k, 30, 60000);
	b = lease(&self->k, 30, 60000);
	EXPECT_LT(0, a);
	EXPECT_LT(0, b);
	EXPECT_NE(a, b);
	EXPECT_EQ(0, release(&self->k, a));
	EXPECT_EQ(-EINVAL, release(&self->k, a));
	EXPECT_EQ(0, release(&self->k, b));
	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m));
	EXPECT_EQ(1, m.nr_present);
	EXPECT_NE(0, m.lease);
	EXPECT_EQ(0, release(&self->k, m.lease));
	/* one that runs out is gone by itself; one left over ends with close */
	a = lease(&self->k, 30, 20);
	EXPECT_LT(0, a);
	sleep(3);
	EXPECT_EQ(-EINVAL, release(&self->k, a));
	EXPECT_LT(0, lease(&self->k, 30, 60000));
}

/* What a leased page is now: itself, or a miss. Its lease is there until @end, whether it has yielded or not. */
static int leased_page(struct kt *k, uint64_t n, int id, uint64_t end)
{
	int res = kt_load(k, kt_key(n), 0, 4096, NULL);
	int released = release(k, id);

	if (released && (released != -EINVAL || kt_now() < end))
		return -EPROTO;
	if (res == 4096 && kt_check(k->arena, 4096, n) != -1)
		return -EPROTO;
	return res;
}

/* Who has a page in each segment, and leases it, stops nobody's stores: leases yield. */
TEST_F_TIMEOUT(session, leases_yield, 580)
{
	struct kvctx_info info = { .size = sizeof(info) };
	enum { LEASES = 1024 };
	int ids[LEASES], nr = 0, missed = 0, res;
	uint64_t ends[LEASES];
	struct kt other;

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_INFO, &info));
	if (info.capacity > LEASES * 3 * KT_MIB)
		SKIP(return, "the pool is too large to be filled");
	ASSERT_EQ(0, kt_open(&other, O_RDWR, 0x24, 4 * KT_MIB, 64));
	for (uint64_t n = 0; n * 4 * KT_MIB < info.capacity + info.capacity / 4; n++) {
		kt_fill(self->k.arena, 4096, 70000 + nr);
		ASSERT_EQ(4096, kt_store(&self->k, kt_key(70000 + nr), 0, 4096, NULL));
		ends[nr] = kt_now() + 60 * KT_SEC;
		ids[nr] = lease(&self->k, 70000 + nr, 60000);
		ASSERT_LT(0, ids[nr++]);
		ASSERT_EQ((int)(4 * KT_MIB), kt_store(&other, kt_key(80000 + n), 0, 4 * KT_MIB, NULL))
			TH_LOG("store %lu, with %d leases", (unsigned long)n, nr);
	}
	for (int i = 0; i < nr; i++) {
		res = leased_page(&self->k, 70000 + i, ids[i], ends[i]);
		EXPECT_TRUE(res == 4096 || res == -ENOENT) TH_LOG("page %d: %d", i, res);
		missed += res == -ENOENT;
	}
	EXPECT_NE(0, missed);
	kt_close(&other);
}

/* Keeps a registration in use: batches of stores from it, one after the other. */
struct user {
	struct kt *k;
	uint32_t mem;
	bool stop;
	unsigned int wrong;
};

static void *keep_in_use(void *arg)
{
	static struct kvctx_sqe sqes[8];
	static struct kvctx_seg segs[8];
	struct user *u = arg;
	struct kvctx_cqe cqe;

	for (uint64_t n = 1000; !__atomic_load_n(&u->stop, __ATOMIC_RELAXED); n += 8) {
		for (int i = 0; i < 8; i++) {
			segs[i] = kt_seg(__atomic_load_n(&u->mem, __ATOMIC_RELAXED), i * KT_MIB, KT_MIB);
			sqes[i] = kt_io(KVCTX_OP_STORE, kt_key(n + i), &segs[i], 1);
		}
		if (kt_submit(u->k, sqes, 8, 0) != 8 || kt_wait(u->k, 8, KT_LIMIT) != 8) {
			u->wrong++;
			break;
		}
		/* -EINVAL: there was none just then */
		while (kt_reap(u->k, &cqe))
			u->wrong += cqe.res != (int)KT_MIB && cqe.res != -EINVAL;
	}
	return NULL;
}

/* Unregister while operations use the memory: refused until they are done, and never harmful */
TEST_F(session, unregister_in_use)
{
	uint8_t *buf = mmap(NULL, 8 * KT_MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (uintptr_t)buf, .length = 8 * KT_MIB };
	struct kvctx_mem_unregister un = { .size = sizeof(un) };
	struct user user = { .k = &self->k };
	uint64_t end = kt_now() + KT_LIMIT;
	bool busy = false;
	pthread_t thread;
	int ret;

	ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg));
	user.mem = reg.id;
	ASSERT_EQ(0, pthread_create(&thread, NULL, keep_in_use, &user));
	while (!busy && kt_now() < end) {
		un.id = reg.id;
		ret = kt_ioctl(self->k.file, KVCTX_IOC_MEM_UNREGISTER, &un);
		ASSERT_TRUE(ret == 0 || ret == -EBUSY) TH_LOG("%d", ret);
		busy = ret == -EBUSY;
		if (!busy) {
			ASSERT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_REGISTER, &reg));
			__atomic_store_n(&user.mem, reg.id, __ATOMIC_RELAXED);
			/* a batch from it shall be under way */
			usleep(1000);
		}
	}
	__atomic_store_n(&user.stop, true, __ATOMIC_RELAXED);
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_TRUE(busy);
	EXPECT_EQ(0, user.wrong);
	EXPECT_EQ(0, kt_ioctl(self->k.file, KVCTX_IOC_MEM_UNREGISTER, &un));
}

/* Two processes store and load the same keys at once: every page is one of the two versions, whole */
TEST_F(session, two_processes_share_a_tenant)
{
	int status, bad = 0;
	pid_t pid;

	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		struct kt k;

		if (kt_open(&k, O_RDWR, 0x21, KT_MIB, 8))
			_exit(1);
		for (int i = 0; i < 300; i++) {
			kt_fill(k.arena, 20000, i);
			if (kt_store(&k, kt_key(2000 + i), 0, 20000, NULL) != 20000)
				_exit(2);
		}
		_exit(0);
	}
	for (int i = 0; i < 300; i++) {
		kt_fill(self->k.arena, 20000, i);
		if (kt_store(&self->k, kt_key(2000 + i), 0, 20000, NULL) != 20000)
			bad++;
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	for (int i = 0; i < 300; i++)
		if (kt_load(&self->k, kt_key(2000 + i), 0, 20000, NULL) != 20000 ||
		    kt_check(self->k.arena, 20000, i) != -1)
			bad++;
	EXPECT_EQ(0, bad);
}

/* kill -9 with operations in flight: nothing hangs, and what others stored is as it was */
TEST_F(session, killed_clients)
{
	struct kvctx_sqe lease = kt_sqe(KVCTX_OP_LEASE, kt_key(40));

	kt_fill(self->k.arena, 100000, 9);
	ASSERT_EQ(100000, kt_store(&self->k, kt_key(40), 0, 100000, NULL));
	/* what is stored until somebody is killed may be more than the pool has room for */
	lease.lease_ms = 60000;
	ASSERT_LT(0, kt_do(&self->k, &lease, NULL));
	for (int round = 0; round < 20; round++) {
		pid_t pid = fork();
		int status;

		ASSERT_LE(0, pid);
		if (!pid) {
			static struct kvctx_sqe sqes[64];
			static struct kvctx_seg segs[64];
			struct kvctx_cqe cqe;
			struct kt k;

			if (kt_open(&k, O_RDWR, 0x22, 64 * KT_MIB, 256))
				_exit(1);
			for (uint64_t n = 0;; n++) {
				for (int i = 0; i < 64; i++) {
					/* what is in flight at once shares no memory */
					segs[i] = kt_seg(0, i * KT_MIB + n % 4 * (KT_MIB / 4), 200000);
					sqes[i] = kt_io(n % 2 ? KVCTX_OP_LOAD : KVCTX_OP_STORE,
							kt_key(50000 + n / 2 * 64 + i), &segs[i], 1);
				}
				kt_submit(&k, sqes, 64, n % 4 == 3 ? 256 : 0);
				while (kt_reap(&k, &cqe))
					;
			}
		}
		usleep(10000 + round * 7000);
		kill(pid, SIGKILL);
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_TRUE(WIFSIGNALED(status));
	}
	ASSERT_EQ(100000, kt_load(&self->k, kt_key(40), 0, 100000, NULL));
	EXPECT_EQ(-1, kt_check(self->k.arena, 100000, 9));
}

TEST_HARNESS_MAIN
