// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Sessions in the process: what the tests of the contract cannot see. Who makes progress, what happens below the ring,
 * forks, threads that end, what waits. Each test runs on an io_uring and on threads.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "huge.h"
#include "sess.h"

#define USER_ROOM	45056U			/* for a page of a thread */
#define PIPED		8192U			/* a page that a pipe holds */
#define CROWD		7U			/* loads, see crowd() */

/* Nobody is in WAIT: the eventfd is written all the same, and the descriptor for poll() becomes readable */
static void progress_without_a_waiter(void **state)
{
	int fd = eventfd(0, EFD_CLOEXEC), pollfd, i;
	struct pollfd p = { .events = POLLIN };
	struct kvctx_cqe cqe;
	struct sess k;
	u64 n;

	(void)state;
	rig_make(rig_dir, 1);
	sess_start(&k, 0, fd);
	fill(k.arena, PAGE, 1);
	for (i = 0; i < 3; i++) {
		struct kvctx_sqe sqe = sqe_of(i ? KVCTX_OP_LOAD : KVCTX_OP_STORE, 1, 0, PAGE);

		assert_int_equal(submit(&k, &sqe, 1, 0), 1);
		assert_int_equal(read(fd, &n, sizeof(n)), sizeof(n));
		assert_int_equal(n, 1);
		assert_true(reap(&k, &cqe));
		assert_int_equal(cqe.res, PAGE);
		/* the second one meets a reaper that has gone to sleep for long */
		usleep(i ? 0 : 300000);
	}
	pollfd = kve_cq_pollfd(k.s);
	p.fd = pollfd;
	assert_int_equal(poll(&p, 1, 0), 0);
	{
		struct kvctx_sqe sqes[2] = { sqe_of(KVCTX_OP_LOAD, 1, 0, PAGE), sqe_of(KVCTX_OP_FLUSH, 0, 0, 0) };

		assert_int_equal(submit(&k, sqes, 2, 0), 2);
	}
	for (i = 0; i < 2; i++) {
		assert_int_equal(poll(&p, 1, 60000), 1);
		assert_true(reap(&k, &cqe));
		assert_true(cqe.res >= 0);
	}
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(kve_cq_pollfd(k.s), pollfd);
	sess_close(&k);
	close(fd);
}

struct user {
	struct sess *k;
	u32 id, bad;
};

/* Submits, waits for whatever comes, and leaves it in the ring. No memory is used again while it may be in flight */
static void *user_main(void *arg)
{
	struct user *u = arg;
	u32 i;

	for (i = 0; i < 100; i++) {
		struct kvctx_sqe sqe = sqe_of(i % 2 ? KVCTX_OP_LOAD : KVCTX_OP_STORE, u->id * 1000 + i / 2,
					      ((u->id - 1) * 50 + i / 2) * USER_ROOM, 40000 + u->id);
		int ret;

		while ((ret = submit(u->k, &sqe, 1, i % 3)) == -EAGAIN)
			usleep(50);
		u->bad += ret != 1;
	}
	return NULL;
}

static void threads_share_a_session(void **state)
{
	struct user users[3];
	pthread_t threads[3];
	struct kvctx_cqe cqe;
	struct sess k;
	u32 i, n = 0;

	(void)state;
	sess_open(&k);
	for (i = 0; i < 3; i++) {
		users[i] = (struct user){ .k = &k, .id = i + 1 };
		assert_int_equal(pthread_create(&threads[i], NULL, user_main, &users[i]), 0);
	}
	while (n < 300) {
		assert_true(wait_for(&k, 1, LIMIT) >= 0);
		for (; reap(&k, &cqe); n++)
			/* a load may overtake its store; the pool is small, so pages go */
			assert_true(cqe.res >= 40000 || cqe.res == -ENOENT);
	}
	for (i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(users[i].bad, 0);
	}
	assert_int_equal(wait_for(&k, 1, KVCTX_TIMEOUT_NONE), 0);
	sess_close(&k);
}

static void *submit_and_end(void *arg)
{
	struct sess *k = arg;
	struct kvctx_sqe sqes[32];
	u32 i;

	for (i = 0; i < 32; i++)
		sqes[i] = sqe_of(KVCTX_OP_LOAD, i % 8, i * 131072, PAGE);
	return (void *)(long)submit(k, sqes, 32, 0);
}

/* What a thread has submitted goes on when it has ended */
static void a_thread_that_ends(void **state)
{
	struct kvctx_cqe cqe;
	pthread_t thread;
	struct sess k;
	void *ret;
	u32 i, round;

	(void)state;
	sess_open(&k);
	for (i = 0; i < 8; i++)
		assert_int_equal(store(&k, i, PAGE), PAGE);
	for (round = 0; round < 20; round++) {
		assert_int_equal(pthread_create(&thread, NULL, submit_and_end, &k), 0);
		pthread_join(thread, &ret);
		assert_int_equal((long)ret, 32);
		assert_int_equal(wait_for(&k, 32, LIMIT), 32);
		for (i = 0; i < 32; i++) {
			assert_true(reap(&k, &cqe));
			assert_int_equal(cqe.res, PAGE);
			assert_int_equal(cqe.flags, KVCTX_CQE_VERIFIED);
		}
		for (i = 0; i < 32; i++)
			assert_true(right(k.arena + i * 131072, PAGE, i % 8));
	}
	sess_close(&k);
}

/* Tells whether a descriptor of ours is still open in a child */
static bool shares_descriptors(void)
{
	char link[64], to[64];
	int fd;

	for (fd = 0; fd < 256; fd++) {
		ssize_t n;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, to, sizeof(to) - 1);
		if (n <= 0)
			continue;
		to[n] = 0;
		if (strstr(to, "io_uring") || strstr(to, "memfd:kvctx") || strstr(to, rig_dir))
			return true;
	}
	return false;
}

static void a_child_owns_nothing(void **state)
{
	struct kvctx_info info = { .size = sizeof(info) };
	u8 vec;
	struct sess k;
	int status;
	pid_t pid;

	(void)state;
	sess_open(&k);
	assert_int_equal(store(&k, 1, PAGE), PAGE);
	kve_cq_pollfd(k.s);
	pid = fork();
	if (!pid) {
		void *map;

		if (shares_descriptors())
			_exit(1);
		if (mincore(k.arena, 4096, &vec) != -1 || mincore(k.ring, 4096, &vec) != -1 ||
		    mincore(k.s->arena_map.addr, 4096, &vec) != -1 || mincore(k.s->cq.ring, 4096, &vec) != -1)
			_exit(2);
		if (ioctl_of(&k, KVCTX_IOC_INFO, &info) != -EBADF)
			_exit(3);
		if (kve_session_mmap(k.s, 4096, PROT_READ, KVCTX_MMAP_CQ, &map) != -EBADF)
			_exit(4);
		kve_session_close(k.s, NULL, NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(load(&k, 1, PAGE), PAGE);
	sess_close(&k);
}

static u32 short_calls;

/* Half of it, as often as not, and now and then taken with it by a thread that ends */
static s64 made_short(s64 res)
{
	u32 n = __atomic_add_fetch(&short_calls, 1, __ATOMIC_RELAXED);

	if (n % 5 == 1)
		return n % 2 ? -EINTR : -ECANCELED;
	return n % 2 && res > 8192 ? res / 2 & ~4095 : res;
}

static void short_transfers(void **state)
{
	struct kvctx_seg segs[64];
	struct kvctx_sqe sqe;
	struct sess k;
	u32 i;

	(void)state;
	sess_open(&k);
	rig_tell(made_short);
	short_calls = 0;
	for (i = 1; i <= 6; i++) {
		assert_int_equal(store(&k, i, 36000 * i), 36000 * i);
		assert_int_equal(load(&k, i, 36000 * i), 36000 * i);
	}
	/* scattered, in whole blocks: not copied, and cut off inside pieces */
	for (i = 0; i < 48; i++)
		segs[i] = (struct kvctx_seg){ .offset = (4 << 20) + (47 - i) * 8192, .length = 4096 };
	fill(k.arena, 48 * 4096, 77);
	assert_int_equal(run(&k, sqe_of(KVCTX_OP_STORE, 77, 0, 48 * 4096), NULL), 48 * 4096);
	sqe = sqe_of(KVCTX_OP_LOAD, 77, (u64)segs, 48 * 4096);
	sqe.nr_segs = 48;
	for (i = 0; i < 10; i++) {
		memset(k.arena + (4 << 20), 0, 1 << 20);
		assert_int_equal(run(&k, sqe, NULL), 48 * 4096);
	}
	for (i = 0; i < 48; i++)
		assert_memory_equal(k.arena + (4 << 20) + (47 - i) * 8192, k.arena + i * 4096, 4096);
	assert_true(short_calls > 40);
	sess_close(&k);
}

static s64 made_bad(s64 res)
{
	(void)res;
	return -EIO;
}

static void errors_of_the_device(void **state)
{
	struct sess k;
	u8 *to;
	u32 i;

	(void)state;
	sess_open(&k);
	assert_int_equal(store(&k, 1, PAGE), PAGE);
	rig_tell(made_bad);
	to = k.arena + (1 << 20);
	for (i = 0; i < 2; i++) {
		/* as it is, and by way of memory of ours */
		assert_int_equal(load(&k, 1, PAGE - i), -EIO);
		assert_true(!to[0] && !memcmp(to, to + 1, PAGE - 2));
	}
	assert_int_equal(store(&k, 2, PAGE), -EIO);
	rig_tell(NULL);
	assert_int_equal(run(&k, sqe_of(KVCTX_OP_QUERY, 2, 0, 0), NULL), -ENOENT);
	assert_int_equal(load(&k, 1, PAGE), PAGE);
	assert_int_equal(os_atomic64_read(&k.s->pool->counters.io_errors), 3);
	sess_close(&k);
}

/* More pieces than one call takes: what the ring does with a transfer */
static void many_pieces(void **state)
{
	enum { NR = 2500 };
	static struct iovec vec[NR];
	struct kve_io io, *over = NULL;
	struct kve_ring *ring;
	struct kve_pool *p;
	u8 *mem = aligned_alloc(4096, 2 * NR * 4096);
	u32 i, align;

	(void)state;
	rig_make(rig_dir, 1);
	p = rig_attach();
	align = p->members[0].dev->align;
	assert_int_equal(kve_ring_open(&ring, 8), 0);
	for (i = 0; i < NR * align; i++)
		mem[i] = (u8)(i * 7 + i / align);
	for (i = 0; i < NR; i++)
		vec[i] = (struct iovec){ mem + (NR - 1 - i) * align, align };
	rig_tell(made_short);
	for (i = 0; i < 2; i++) {
		io = (struct kve_io){
			.member = &p->members[0], .vec = vec, .nr = NR, .bytes = NR * align, .write = !i, .buffer = -1,
			.offset = RIG_BYTES - ((NR * align + RIG_SEGMENT - 1) & ~(RIG_SEGMENT - 1)),
		};
		kve_ring_queue(ring, &io);
		kve_ring_send(ring);
		while (!over)
			kve_ring_wait(ring, KVE_NEVER, 1, &over);
		assert_ptr_equal(over, &io);
		assert_int_equal(io.err, 0);
		over = NULL;
		if (!i)
			memcpy(mem + NR * 4096, mem, NR * align);
		if (!i)
			memset(mem, 0, NR * align);
	}
	assert_memory_equal(mem, mem + NR * 4096, NR * align);
	rig_tell(NULL);
	ring->kind->close(ring);
	kve_pool_put(p);
	free(mem);
}

struct sleeper {
	struct kve_ring *ring;
	u32 want;
	struct kve_io *over;
	pthread_t thread;
	u32 back;			/* atomically */
};

static void *sleeper_main(void *arg)
{
	struct sleeper *s = arg;

	kve_ring_wait(s->ring, KVE_NEVER, s->want, &s->over);
	__atomic_store_n(&s->back, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* He sleeps, or is back: a poke had come before */
static void sleeper_start(struct sleeper *s, u32 want)
{
	u32 before = __atomic_load_n(&rig_sleeps, __ATOMIC_ACQUIRE);

	s->want = want;
	s->back = 0;
	assert_int_equal(pthread_create(&s->thread, NULL, sleeper_main, s), 0);
	while (__atomic_load_n(&rig_sleeps, __ATOMIC_ACQUIRE) == before && !__atomic_load_n(&s->back, __ATOMIC_ACQUIRE))
		usleep(100);
}

/* A sleeper in an io_uring is woken by the last of the transfers that he waits for, and by a poke at any time. */
static void sleeps_for_several(void **state)
{
	struct kve_device dev = { .align = 1 };
	struct kve_member member = { .dev = &dev };
	struct kve_io ios[3];
	struct sleeper s = { .want = 1 };
	u64 words[3], sent[2] = { 1, 2 };
	struct iovec vecs[3];
	int fds[2];
	u32 i;

	(void)state;
	if (kve_uring_open(&s.ring, 8))
		skip();
	/* reads that end when the test says so */
	assert_int_equal(pipe(fds), 0);
	dev.fd = fds[0];
	for (i = 0; i < 3; i++) {
		vecs[i] = (struct iovec){ &words[i], sizeof(words[i]) };
		ios[i] = (struct kve_io){ .member = &member, .vec = &vecs[i], .nr = 1, .bytes = sizeof(u64), .buffer = -1 };
		kve_ring_queue(s.ring, &ios[i]);
	}
	kve_ring_send(s.ring);
	sleeper_start(&s, 3);
	assert_int_equal(write(fds[1], sent, sizeof(sent[0])), sizeof(sent[0]));
	usleep(50000);
	assert_int_equal(__atomic_load_n(&s.back, __ATOMIC_ACQUIRE), 0);
	kve_ring_poke(s.ring);
	pthread_join(s.thread, NULL);
	assert_true(s.over && !s.over->next && !s.over->err);

	/* more than are on their way */
	sleeper_start(&s, 30);
	assert_int_equal(write(fds[1], sent, sizeof(sent)), sizeof(sent));
	pthread_join(s.thread, NULL);
	assert_true(s.over && s.over->next && !s.over->next->next);

	/* none is on its way, and one who pokes before he sleeps */
	kve_ring_poke(s.ring);
	sleeper_start(&s, 30);
	pthread_join(s.thread, NULL);
	assert_null(s.over);
	s.ring->kind->close(s.ring);
	close(fds[0]);
	close(fds[1]);
}

/* What the kernel had not taken when its session became an orphan is not made, whether it was offered or not. */
static void an_orphan_begins_nothing(void **state)
{
	struct kve_device dev = { .align = 1 };
	struct kve_member member = { .dev = &dev };
	struct kve_io ios[20], *over;
	struct kve_ring *ring;
	struct iovec vecs[20];
	bool orphaned = false;
	u64 words[20] = { 0 };
	u32 i, nr = 0;

	(void)state;
	if (kve_uring_open(&ring, 8))
		skip();
	dev.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_true(dev.fd >= 0);
	WRITE_ONCE(rig_full, true);
	for (i = 0; i < 20; i++) {
		vecs[i] = (struct iovec){ &words[i], sizeof(words[i]) };
		ios[i] = (struct kve_io){
			.member = &member, .vec = &vecs[i], .nr = 1, .bytes = sizeof(u64), .buffer = -1,
			.orphaned = &orphaned,
		};
		kve_ring_queue(ring, &ios[i]);
	}
	kve_ring_send(ring);
	orphaned = true;
	WRITE_ONCE(rig_full, false);
	kve_ring_send(ring);
	kve_ring_poke(ring);
	while (nr < 20) {
		kve_ring_wait(ring, KVE_NEVER, 1, &over);
		for (; over; over = over->next, nr++)
			assert_true(over->err);
	}
	for (i = 0; i < 20; i++)
		assert_int_equal(words[i], 0);
	ring->kind->close(ring);
	close(dev.fd);
}

static void *closer_main(void *arg)
{
	sess_close(arg);
	return NULL;
}

static void nobody_told(void *arg)
{
	(void)arg;
}

/* The session's reaper sleeps in the ring, as it does where callers are other processes */
static void reaper_to_sleep(struct sess *k)
{
	bool reaping = false;
	u32 i;

	kve_cq_posted(k->s, nobody_told, NULL, NULL);
	for (i = 0; i < 5000 && !reaping; i++) {
		usleep(1000);
		pthread_mutex_lock(&k->s->lock);
		reaping = k->s->cq.reaping;
		pthread_mutex_unlock(&k->s->lock);
	}
	assert_true(reaping);
	usleep(20000);
}

/* What an io_uring has no memory for is given again, though who sleeps in it knows of nothing: transfers, and pokes */
static void what_is_not_taken_is_given_again(void **state)
{
	struct kvctx_sqe sqe = sqe_of(KVCTX_OP_LOAD, 1, 0, PAGE);
	struct timespec until;
	pthread_t closer;
	struct sess k;
	u32 i;

	(void)state;
	sess_open(&k);
	if (k.s->ring->kind->threads) {
		sess_close(&k);
		skip();
	}
	assert_int_equal(store(&k, 1, PAGE), PAGE);
	reaper_to_sleep(&k);
	for (i = 0; i < 3; i++) {
		WRITE_ONCE(rig_full, true);
		assert_int_equal(submit(&k, &sqe, 1, 0), 1);
		WRITE_ONCE(rig_full, false);
		assert_int_equal(wait_for(&k, 1, 5 * KVE_NSEC), 1);
		assert_int_equal(result_of(&k, NULL), PAGE);
		usleep(20000);
	}
	WRITE_ONCE(rig_full, true);
	assert_int_equal(pthread_create(&closer, NULL, closer_main, &k), 0);
	usleep(50000);
	WRITE_ONCE(rig_full, false);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 5;
	assert_int_equal(pthread_timedjoin_np(closer, NULL, &until), 0);
}

/* A poke that finds no room, since nothing was taken, comes when there is some; transfers are not what wakes */
static void a_poke_comes_later(void **state)
{
	enum { NR = 20 };
	struct kve_device dev = { .align = 1 };
	struct kve_member member = { .dev = &dev };
	struct sleeper s = { .want = 1 };
	struct kve_io ios[NR], *over = NULL;
	u64 words[NR], sent[NR] = { 0 };
	struct iovec vecs[NR];
	int fds[2];
	u32 i, nr = 0;

	(void)state;
	if (kve_uring_open(&s.ring, 8))
		skip();
	assert_int_equal(pipe(fds), 0);
	dev.fd = fds[0];
	sleeper_start(&s, 1);
	WRITE_ONCE(rig_full, true);
	for (i = 0; i < NR; i++) {
		vecs[i] = (struct iovec){ &words[i], sizeof(words[i]) };
		ios[i] = (struct kve_io){
			.member = &member, .vec = &vecs[i], .nr = 1, .bytes = sizeof(u64), .buffer = -1,
		};
		kve_ring_queue(s.ring, &ios[i]);
	}
	assert_true(kve_ring_send(s.ring));
	assert_true(kve_ring_poke(s.ring));
	WRITE_ONCE(rig_full, false);
	assert_false(kve_ring_send(s.ring));
	pthread_join(s.thread, NULL);
	assert_null(s.over);
	assert_int_equal(write(fds[1], sent, sizeof(sent)), sizeof(sent));
	while (nr < NR) {
		kve_ring_wait(s.ring, KVE_NEVER, 1, &over);
		for (; over; over = over->next, nr++)
			assert_int_equal(over->err, 0);
	}
	s.ring->kind->close(s.ring);
	close(fds[0]);
	close(fds[1]);
}

struct several {
	struct sess *k;
	const struct kvctx_sqe *sqes;
	int ret;
	u32 back;			/* atomically */
};

static void *several_main(void *arg)
{
	struct several *w = arg;

	/* the reaper shall not be in the ring first */
	kve_cq_look(w->k->s);
	w->ret = submit(w->k, w->sqes, 2, 2);
	__atomic_store_n(&w->back, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Two operations are in flight, and somebody waits for them */
static bool waits_for_two(struct sess *k)
{
	const struct kve_cq *cq = &k->s->cq;
	bool waits;

	pthread_mutex_lock(&k->s->lock);
	waits = cq->inflight == 2 && (cq->sleeper || cq->waiters);
	pthread_mutex_unlock(&k->s->lock);
	return waits;
}

/* One waits for two completions, in the ring; another for one. He is told of the first. */
static void waits_for_fewer(void **state)
{
	struct kvctx_sqe sqes[2] = { sqe_of(KVCTX_OP_LOAD, 1, 0, PIPED), sqe_of(KVCTX_OP_LOAD, 2, PIPED, PIPED) };
	static const u8 bytes[PIPED];
	struct several w = { 0 };
	int fds[2], device, saved;
	pthread_t thread;
	struct sess k;

	(void)state;
	sess_open(&k);
	sqes[0].flags = sqes[1].flags = KVCTX_OP_NO_VERIFY;
	if (k.s->ring->kind->threads) {
		sess_close(&k);
		skip();
	}
	assert_int_equal(store(&k, 1, PIPED), PIPED);
	assert_int_equal(store(&k, 2, PIPED), PIPED);
	/* another session, whose ring reads from a pipe instead of the device: nothing is there until the test says so */
	sess_close(&k);
	sess_start(&k, 0, -1);
	/* nor may the worker write there: to it the device would be broken, and the pages go to make space */
	WRITE_ONCE(k.s->pool->stopping, true);
	assert_int_equal(rig_flush(k.s->pool, NULL), 0);
	assert_int_equal(pipe(fds), 0);
	device = k.s->pool->members[0].dev->fd;
	saved = dup(device);
	assert_true(saved >= 0 && dup2(fds[0], device) == device);
	w.k = &k;
	w.sqes = sqes;
	assert_int_equal(pthread_create(&thread, NULL, several_main, &w), 0);
	while (!waits_for_two(&k))
		usleep(1000);
	assert_int_equal(write(fds[1], bytes, PIPED), PIPED);
	assert_int_equal(wait_for(&k, 1, 5 * KVE_NSEC), 1);
	assert_int_equal(__atomic_load_n(&w.back, __ATOMIC_ACQUIRE), 0);
	assert_int_equal(write(fds[1], bytes, PIPED), PIPED);
	pthread_join(thread, NULL);
	assert_int_equal(w.ret, 2);
	assert_int_equal(dup2(saved, device), device);
	close(saved);
	sess_close(&k);
	close(fds[0]);
	close(fds[1]);
}

/* Pieces that no device takes as they are, between those that it does */
static void odd_pieces(void **state)
{
	struct kvctx_seg segs[100];
	struct kvctx_sqe sqe;
	struct sess k;
	u32 i, total = 0, at = 0;

	(void)state;
	sess_open(&k);
	for (i = 0; i < 100; i++) {
		segs[i] = (struct kvctx_seg){ .offset = (2 << 20) + at, .length = 1 + i * 41 % 4097 };
		at += segs[i].length + i % 3;
		total += segs[i].length;
	}
	fill(k.arena, total, 5);
	assert_int_equal(run(&k, sqe_of(KVCTX_OP_STORE, 5, 0, total), NULL), total);
	memset(k.arena + (2 << 20), 0xee, 1 << 20);
	sqe = sqe_of(KVCTX_OP_LOAD, 5, (u64)segs, total);
	sqe.nr_segs = 100;
	assert_int_equal(run(&k, sqe, NULL), total);
	for (i = 0, at = 0; i < 100; at += segs[i++].length) {
		assert_memory_equal(k.arena + segs[i].offset, k.arena + at, segs[i].length);
		if (i % 3)
			assert_int_equal(k.arena[segs[i].offset + segs[i].length], 0xee);
	}
	assert_true(os_atomic64_read(&k.s->pool->counters.bounced) > 0);
	sess_close(&k);
}

static u32 no_space;			/* how often there was none for a store; atomically */

int __real_kvc_store_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], u32 len, u32 depth,
			   u64 members, struct kvc_store *st);
int __wrap_kvc_store_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], u32 len, u32 depth,
			   u64 members, struct kvc_store *st);

int __wrap_kvc_store_begin(struct kvc_pool *p, struct kvc_domain *d, const u8 key[KVC_KEY_LEN], u32 len, u32 depth,
			   u64 members, struct kvc_store *st)
{
	int err = __real_kvc_store_begin(p, d, key, len, depth, members, st);

	if (err == -EAGAIN)
		__atomic_add_fetch(&no_space, 1, __ATOMIC_RELEASE);
	return err;
}

/* Does the store wait that was submitted last? It has a completion otherwise */
static bool store_waits(struct sess *k)
{
	u32 before = 0;
	bool stuck = false;

	while (wait_for(k, 1, KVE_NSEC / 1000) == -ETIME) {
		if (!stuck) {
			/* what was being written when that began still made some, until here */
			stuck = __atomic_load_n(&rig_stuck, __ATOMIC_SEQ_CST);
			before = __atomic_load_n(&no_space, __ATOMIC_ACQUIRE);
		} else if (__atomic_load_n(&no_space, __ATOMIC_ACQUIRE) - before > 1) {
			/* the first of these may have begun before */
			return true;
		}
	}
	return false;
}

/* Stores until one waits for space, and goes on to: the pool cannot write, so it makes none */
static void fill_up(struct sess *k)
{
	struct kvctx_cqe cqe;
	u32 i;

	WRITE_ONCE(rig_stalled, true);
	for (i = 0; i < 200; i++) {
		struct kvctx_sqe sqe = sqe_of(KVCTX_OP_STORE, 100 + i, 0, 200000);

		assert_int_equal(submit(k, &sqe, 1, 0), 1);
		if (store_waits(k))
			return;
		assert_true(reap(k, &cqe));
		assert_int_equal(cqe.res, 200000);
	}
	fail_msg("there is always space");
}

static void stores_wait_for_space(void **state)
{
	struct kvctx_sqe sqe = sqe_of(KVCTX_OP_STORE, 7, 0, 200000);
	struct sess k;
	u32 i;

	(void)state;
	sess_open(&k);
	fill_up(&k);
	sqe.flags = KVCTX_OP_NOWAIT;
	assert_int_equal(run(&k, sqe, NULL), -EAGAIN);
	sqe = sqe_of(KVCTX_OP_STORE, 8, 0, 200000);
	sqe.timeout_ns = KVE_NSEC / 20;
	assert_int_equal(run(&k, sqe, NULL), -ETIME);
	/* those that come now wait behind, and all of them are stored in the end */
	for (i = 0; i < 5; i++) {
		sqe = sqe_of(KVCTX_OP_STORE, 500 + i, 0, 200000);
		assert_int_equal(submit(&k, &sqe, 1, 0), 1);
	}
	assert_int_equal(wait_for(&k, 1, KVE_NSEC / 50), -ETIME);
	WRITE_ONCE(rig_stalled, false);
	for (i = 0; i < 6; i++)
		assert_int_equal(result_of(&k, NULL), 200000);
	sess_close(&k);
}

/* A session may be closed before an operation that waits for space can go on, or gets its turn: it looks first */
static void who_waited_looks_for_the_memory(void **state)
{
	struct kvctx_sqe sqes[9];
	struct sess k;
	u32 i;

	(void)state;
	sess_open(&k);
	assert_int_equal(store(&k, 1, 200000), 200000);
	WRITE_ONCE(rig_held, true);
	for (i = 0; i < 9; i++) {
		sqes[i] = sqe_of(KVCTX_OP_LOAD, 1, i << 18, 200000);
		sqes[i].prio = i ? KVCTX_PRIO_BACKGROUND : KVCTX_PRIO_URGENT;
	}
	/* the eighth waits, and so does the last */
	sqes[7] = sqe_of(KVCTX_OP_STORE, 2, 7 << 18, 200000);
	sqes[7].prio = KVCTX_PRIO_BACKGROUND;
	WRITE_ONCE(rig_gone, true);
	assert_int_equal(submit(&k, sqes, 9, 0), 9);
	assert_int_equal(wait_for(&k, 2, 5 * KVE_NSEC), 2);
	for (i = 0; i < 2; i++)
		assert_int_equal(result_of(&k, NULL), -ECANCELED);
	WRITE_ONCE(rig_held, false);
	WRITE_ONCE(rig_gone, false);
	for (i = 0; i < 7; i++)
		assert_int_equal(result_of(&k, NULL), 200000);

	fill_up(&k);
	WRITE_ONCE(rig_gone, true);
	WRITE_ONCE(rig_stalled, false);
	assert_int_equal(result_of(&k, NULL), -ECANCELED);
	sess_close(&k);
}

/* Loads at a device that holds them: of what comes now, and is not urgent, nothing gets its turn at once */
static void crowd(struct sess *k)
{
	struct kvctx_sqe sqes[CROWD];
	u32 i;

	WRITE_ONCE(rig_held, true);
	for (i = 0; i < CROWD; i++) {
		sqes[i] = sqe_of(KVCTX_OP_LOAD, 1, i << 18, 200000);
		sqes[i].prio = i ? KVCTX_PRIO_BACKGROUND : KVCTX_PRIO_URGENT;
	}
	assert_int_equal(submit(k, sqes, CROWD, 0), CROWD);
}

static void fill_waits(struct sess *k)
{
	struct kvctx_sqe sqe = sqe_of(KVCTX_OP_PREFETCH, 2, 0, 0);

	sqe.lease_ms = 1000;
	sqe.prio = KVCTX_PRIO_BACKGROUND;
	assert_int_equal(submit(k, &sqe, 1, 0), 1);
}

/* A read into a slot looks too: who came for the page is told, and the next one gets it */
static void a_fill_that_waited_looks(void **state)
{
	struct sess k;
	u32 i;

	(void)state;
	rig_make(rig_dir, 1);
	sess_start(&k, 1, -1);
	assert_int_equal(store(&k, 1, 200000), 200000);
	assert_int_equal(store(&k, 2, PAGE), PAGE);
	crowd(&k);
	WRITE_ONCE(rig_gone, true);
	fill_waits(&k);
	assert_int_equal(wait_for(&k, 1, 5 * KVE_NSEC), 1);
	assert_int_equal(result_of(&k, NULL), -ECANCELED);
	WRITE_ONCE(rig_held, false);
	WRITE_ONCE(rig_gone, false);
	for (i = 0; i < CROWD; i++)
		assert_int_equal(result_of(&k, NULL), 200000);
	fill_waits(&k);
	assert_int_equal(result_of(&k, NULL), PAGE);
	sess_close(&k);
}

/* A ring whose transfers are sent slowly by the attendant */
static struct {
	struct kve_ring_kind kind;
	bool (*send)(struct kve_ring *r);
	void (*close)(struct kve_ring *r);
	bool on, sending, closed, late;		/* atomically */
} slow;

static bool slow_send(struct kve_ring *r)
{
	char name[16] = "";
	u32 i;

	pthread_getname_np(pthread_self(), name, sizeof(name));
	if (READ_ONCE(slow.on) && !strcmp(name, "kvctx-attend")) {
		__atomic_store_n(&slow.sending, true, __ATOMIC_RELEASE);
		for (i = 0; i < 500 && !__atomic_load_n(&slow.closed, __ATOMIC_ACQUIRE); i++)
			usleep(1000);
		if (i < 500) {
			__atomic_store_n(&slow.late, true, __ATOMIC_RELEASE);
			return false;
		}
	}
	return slow.send(r);
}

static void slow_close(struct kve_ring *r)
{
	__atomic_store_n(&slow.closed, true, __ATOMIC_RELEASE);
	slow.close(r);
}

static void slow_down(struct kve_ring *r)
{
	slow.kind = *r->kind;
	slow.send = r->kind->send;
	slow.close = r->kind->close;
	slow.kind.send = slow_send;
	slow.kind.close = slow_close;
	slow.on = slow.sending = slow.closed = slow.late = false;
	r->kind = &slow.kind;
}

/* A read into a slot may be over before the attendant, who began it, has left the ring: close waits for him */
static void close_waits_for_who_sends(void **state)
{
	struct sess k;
	u32 i;

	(void)state;
	rig_make(rig_dir, 1);
	sess_start(&k, 1, -1);
	slow_down(k.s->ring);
	assert_int_equal(store(&k, 1, 200000), 200000);
	assert_int_equal(store(&k, 2, PAGE), PAGE);
	WRITE_ONCE(slow.on, true);
	crowd(&k);
	fill_waits(&k);
	for (i = 0; i < 5000 && !__atomic_load_n(&slow.sending, __ATOMIC_ACQUIRE); i++)
		usleep(1000);
	assert_true(i < 5000);
	/* who reaps sends what is queued */
	WRITE_ONCE(rig_held, false);
	assert_int_equal(wait_for(&k, CROWD + 1, LIMIT), CROWD + 1);
	for (i = 0; i < CROWD + 1; i++)
		assert_true(result_of(&k, NULL) >= (s32)PAGE);
	assert_false(__atomic_load_n(&slow.closed, __ATOMIC_ACQUIRE));
	sess_close(&k);
	assert_true(slow.closed);
	assert_false(slow.late);
}

static bool unstalled;			/* atomically */

static void *unstall(void *arg)
{
	(void)arg;
	usleep(200000);
	__atomic_store_n(&unstalled, true, __ATOMIC_RELEASE);
	WRITE_ONCE(rig_stalled, false);
	return NULL;
}

/* Who sleeps in the ring is woken by what does not come by it */
static void a_flush_wakes_who_waits(void **state)
{
	struct kvctx_sqe sqe = sqe_of(KVCTX_OP_FLUSH, 0, 0, 0);
	struct sess k;
	pthread_t thread;
	u32 i;

	(void)state;
	sess_open(&k);
	for (i = 0; i < 3; i++) {
		assert_int_equal(store(&k, i, PAGE), PAGE);
		unstalled = false;
		WRITE_ONCE(rig_stalled, true);
		assert_int_equal(pthread_create(&thread, NULL, unstall, NULL), 0);
		assert_int_equal(submit(&k, &sqe, 1, 0), 1);
		/* for ever, if nobody wakes him */
		assert_int_equal(wait_for(&k, 1, KVCTX_TIMEOUT_NONE), 1);
		assert_true(__atomic_load_n(&unstalled, __ATOMIC_ACQUIRE));
		assert_int_equal(result_of(&k, NULL), 0);
		pthread_join(thread, NULL);
	}
	sess_close(&k);
}

/* Transfers on the way, and a store that waits for space */
static void close_with_all_under_way(void **state)
{
	struct kvctx_sqe sqes[64];
	pthread_t thread;
	struct sess k, other;
	int before;
	u32 i;

	(void)state;
	sess_open(&k);
	sess_start(&other, 0, -1);
	before = rig_descriptors();
	sess_close(&other);
	assert_int_equal(store(&k, 1, PAGE), PAGE);
	sess_start(&other, 4, -1);
	fill_up(&other);
	for (i = 0; i < 64; i++)
		sqes[i] = sqe_of(i % 2 ? KVCTX_OP_LOAD : KVCTX_OP_PREFETCH, 1, i % 2 * i * 122880, i % 2 * PAGE);
	for (i = 0; i < 64; i += 2)
		sqes[i].lease_ms = 1000;
	assert_int_equal(submit(&other, sqes, 64, 0), 64);
	sess_close(&other);
	sess_start(&other, 0, -1);
	assert_int_equal(rig_descriptors(), before);
	sess_close(&other);
	pthread_create(&thread, NULL, unstall, NULL);
	pthread_join(thread, NULL);
	assert_int_equal(load(&k, 1, PAGE), PAGE);
	sess_close(&k);
}

/* Less urgent ones wait while an urgent one is on the way, and all come to an end */
static void turns(void **state)
{
	struct kvctx_sqe sqes[200];
	struct kvctx_cqe cqe = { .res = -EPROTO };
	struct sess k;
	u32 i, round, good = 0;

	(void)state;
	rig_make(rig_dir, 1);
	sess_start(&k, 8, -1);
	for (i = 0; i < 8; i++)
		assert_int_equal(store(&k, i, 36000), 36000);
	/* where every load is done before the next one comes nobody waits */
	for (round = 0; round < 5 || (round < 500 && !os_atomic64_read(&k.s->pool->counters.turn_waits)); round++) {
		for (i = 0; i < 200; i++) {
			sqes[i] = sqe_of(KVCTX_OP_LOAD, i % 8, i * 40960, 36000);
			sqes[i].flags = KVCTX_OP_NO_SLOT;
			sqes[i].prio = i % 4 ? KVCTX_PRIO_BACKGROUND : KVCTX_PRIO_URGENT;
			sqes[i].timeout_ns = i % 50 == 49 ? 1000 : 0;
		}
		assert_int_equal(submit(&k, sqes, 200, 200), 200);
		for (i = 0; i < 200; i++) {
			assert_true(reap(&k, &cqe));
			assert_true(cqe.res == 36000 || cqe.res == -ETIME);
			good += cqe.res == 36000;
		}
	}
	assert_true(good >= round * 190);
	assert_true(os_atomic64_read(&k.s->pool->counters.turn_waits) > 0);
	sess_close(&k);
}

/* Where no operation is urgent nobody waits for one. */
static void no_urgent_turns(void **state)
{
	struct kvctx_sqe sqes[200];
	struct kvctx_cqe cqe;
	struct sess k;
	u32 i, round;
	u64 waits;

	(void)state;
	rig_make(rig_dir, 1);
	sess_start(&k, 8, -1);
	limit_tenant(&k, &(struct kvc_limits){ .flags = KVC_LIMIT_NO_URGENT });
	for (i = 0; i < 8; i++)
		assert_int_equal(store(&k, i, 36000), 36000);
	waits = (u64)os_atomic64_read(&k.s->pool->counters.turn_waits);
	for (round = 0; round < 5; round++) {
		for (i = 0; i < 200; i++) {
			sqes[i] = sqe_of(i % 4 ? KVCTX_OP_LOAD : KVCTX_OP_GET, i % 8, i % 4 ? i * 40960 : 0, i % 4 ? 36000 : 0);
			sqes[i].lease_ms = i % 4 ? 0 : 1000;
			sqes[i].flags = i % 4 ? KVCTX_OP_NO_SLOT : 0;
			sqes[i].prio = i % 4 == 1 ? KVCTX_PRIO_BACKGROUND : i % 4 == 2 ? KVCTX_PRIO_URGENT : 0;
		}
		assert_int_equal(submit(&k, sqes, 200, 200), 200);
		for (i = 0; i < 200; i++)
			assert_true(reap(&k, &cqe));
	}
	assert_int_equal(os_atomic64_read(&k.s->pool->counters.turn_waits), waits);
	sess_close(&k);
}

/* Arenas, slots and registrations of all sessions of a tenant sum to its limit at most. */
static void memory_of_the_tenant(void **state)
{
	struct kvctx_setup setup = { .size = sizeof(setup), .arena_bytes = 4096, .cq_entries = 8 };
	u8 *mine = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kvctx_mem_register reg = { .size = sizeof(reg), .addr = (u64)mine + 100, .length = 8192 };
	struct kvctx_mem_unregister unreg = { .size = sizeof(unreg) };
	struct kvc_limits l = { .pinned = ARENA + 4096 + 3 * 4096 };
	struct kve_session *other;
	struct kvc_pool *core;
	struct sess k;

	(void)state;
	sess_open(&k);
	core = k.s->pool->core;
	limit_tenant(&k, &l);
	assert_int_equal(kvc_tenant_pinned(core, k.s->slot), ARENA);
	assert_int_equal(kve_session_open(rig_dir, "default", false, &other), 0);
	/* the whole of a page counts, and a SETUP that is refused leaves nothing */
	setup.arena_bytes = 5 * 4096;
	assert_int_equal(kve_session_ioctl(other, KVCTX_IOC_SETUP, &setup), -EDQUOT);
	setup = (struct kvctx_setup){
		.size = sizeof(setup), .arena_bytes = 1, .cq_entries = 8, .slot_bytes = 4096, .nr_slots = 4,
	};
	assert_int_equal(kve_session_ioctl(other, KVCTX_IOC_SETUP, &setup), -EDQUOT);
	assert_int_equal(kvc_tenant_pinned(core, k.s->slot), ARENA);
	setup.nr_slots = 0;
	setup.slot_bytes = 0;
	assert_int_equal(kve_session_ioctl(other, KVCTX_IOC_SETUP, &setup), 0);
	assert_int_equal(ioctl_of(&k, KVCTX_IOC_MEM_REGISTER, &reg), 0);
	assert_int_equal(kvc_tenant_pinned(core, k.s->slot), l.pinned);
	unreg.id = reg.id;
	assert_int_equal(kve_session_ioctl(other, KVCTX_IOC_MEM_REGISTER, &reg), -EDQUOT);
	reg.length = 1;
	assert_int_equal(kve_session_ioctl(other, KVCTX_IOC_MEM_REGISTER, &reg), -EDQUOT);
	assert_int_equal(ioctl_of(&k, KVCTX_IOC_MEM_UNREGISTER, &unreg), 0);
	assert_int_equal(kve_session_ioctl(other, KVCTX_IOC_MEM_REGISTER, &reg), 0);
	/* what cannot be registered does not count */
	munmap(mine, 1 << 20);
	assert_int_equal(ioctl_of(&k, KVCTX_IOC_MEM_REGISTER, &reg), -EFAULT);
	assert_int_equal(kvc_tenant_pinned(core, k.s->slot), ARENA + 2 * 4096);
	kve_session_close(other, NULL, NULL);
	assert_int_equal(kvc_tenant_pinned(core, k.s->slot), ARENA);
	/* below what is there: no more, and operations go on */
	limit_tenant(&k, &(struct kvc_limits){ .pinned = 1 });
	assert_int_equal(ioctl_of(&k, KVCTX_IOC_MEM_REGISTER, &reg), -EDQUOT);
	assert_int_equal(store(&k, 1, PAGE), PAGE);
	assert_int_equal(load(&k, 1, PAGE), PAGE);
	sess_close(&k);
}

static void on_signal(int sig)
{
	(void)sig;
}

struct waiter {
	struct sess *k;
	int ret;
	u64 left;
	pthread_t thread;
};

static void *waiter_main(void *arg)
{
	struct kvctx_wait w = { .size = sizeof(w), .min = ENTRIES, .timeout_ns = LIMIT };
	struct waiter *me = arg;

	me->ret = ioctl_of(me->k, KVCTX_IOC_WAIT, &w);
	me->left = w.timeout_ns;
	return NULL;
}

/* One sleeps in the ring, others do not: a signal ends the wait of each, and tells what is left of it */
static void signals(void **state)
{
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	struct waiter waiters[3];
	struct sess k;
	u32 i;

	(void)state;
	assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
	sess_open(&k);
	fill_up(&k);
	for (i = 0; i < 3; i++) {
		waiters[i] = (struct waiter){ .k = &k };
		assert_int_equal(pthread_create(&waiters[i].thread, NULL, waiter_main, &waiters[i]), 0);
	}
	usleep(100000);
	for (i = 0; i < 3; i++) {
		/* one that comes before it waits does not count */
		do {
			pthread_kill(waiters[i].thread, SIGUSR1);
			usleep(20000);
		} while (pthread_tryjoin_np(waiters[i].thread, NULL));
		assert_int_equal(waiters[i].ret, -EINTR);
		assert_true(waiters[i].left > LIMIT / 2 && waiters[i].left < LIMIT);
	}
	WRITE_ONCE(rig_stalled, false);
	assert_int_equal(result_of(&k, NULL), 200000);
	sess_close(&k);
}

/* Beyond RLIMIT_MEMLOCK memory is used as it is. In a child, which gives up its privileges */
static void memory_over_the_limit(void **state)
{
	struct rlimit limit = { 1 << 20, 1 << 20 };
	struct kvctx_info info = { .size = sizeof(info) };
	struct sess k;
	int status;
	pid_t pid;

	(void)state;
	rig_make(rig_dir, 1);
	pid = fork();
	if (!pid) {
		struct kve_pool *p;

		if (rig_get(&p) || setrlimit(RLIMIT_MEMLOCK, &limit) || setuid(65534))
			_exit(1);
		sess_start(&k, 0, -1);
		if (store(&k, 1, PAGE) != PAGE || load(&k, 1, PAGE) != PAGE)
			_exit(2);
		if (ioctl_of(&k, KVCTX_IOC_INFO, &info))
			_exit(3);
		if (!(info.features & KVCTX_FEAT_PROCESS) || !(info.features & (KVCTX_FEAT_UNREGISTERED | KVCTX_FEAT_IOTHREADS)))
			_exit(4);
		sess_close(&k);
		kve_pool_put(p);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* Bytes of memory that this process has mapped as huge pages; @kind: as smaps calls them */
static u64 mapped_huge_as(const char *kind)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	u64 sum = 0, kib;
	char line[512];
	size_t n = strlen(kind);

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, kind, n) && sscanf(line + n, ": %llu kB", &kib) == 1)
			sum += kib << 10;
	fclose(f);
	return sum;
}

static u64 mapped_huge(void)
{
	return mapped_huge_as("ShmemPmdMapped");
}

/* Does the system have a huge page for a memfd at all? */
static bool huge_pages_are_given(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	void *p = MAP_FAILED;
	bool given;

	if (!ftruncate(fd, 4 << 20))
		p = kve_huge_map(fd, 4 << 20, PROT_READ | PROT_WRITE, 0);
	assert_true(p != MAP_FAILED);
	kve_huge_collapse(p, 4 << 20);
	given = mapped_huge() == 4 << 20;
	munmap(p, 4 << 20);
	close(fd);
	return given;
}

/* Though the system gives shared memory none by itself */
static void the_arena_is_in_huge_pages(void **state)
{
	struct sess k;

	(void)state;
	if (!huge_pages_are_given())
		skip();
	assert_int_equal(mapped_huge(), 0);
	sess_open(&k);
	assert_in_range(mapped_huge(), ARENA, 2 * ARENA);
	/* and by the caller's address too */
	assert_int_equal((uintptr_t)k.arena % (2 << 20), 0);
	assert_int_equal(store(&k, 1, PAGE), PAGE);
	assert_int_equal(load(&k, 1, PAGE), PAGE);
	sess_close(&k);
	assert_int_equal(mapped_huge(), 0);
}

/* Is it open nowhere, in the kernel neither? A lease for writing is given then */
static bool open_nowhere(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC), ret = fcntl(fd, F_SETLEASE, F_WRLCK);

	close(fd);
	return !ret;
}

/* A ring knows the device of a member as a file of its own */
static void a_member_that_left_is_let_go(void **state)
{
	struct kve_pool *p;
	char path[300];
	struct sess k;
	u64 i, nr;

	(void)state;
	sess_open(&k);
	p = k.s->pool;
	mkdir(rig_path(".out"), 0700);
	snprintf(path, sizeof(path), "%s", rig_path(".out/a"));
	rig_file(path, "", 0, RIG_BYTES);
	assert_int_equal(kve_pool_add(p, path, 0, false, rig_why), 0);
	/* its first segment may take a moment */
	for (nr = 0; nr < 20 && kvc_member_bytes(p->core, 1) < PAGE; nr++) {
		assert_int_equal(store(&k, nr, PAGE), PAGE);
		assert_int_equal(load(&k, nr, PAGE), PAGE);
	}
	assert_false(open_nowhere(path));
	assert_int_equal(kve_pool_remove(p, 1, true, rig_why), 0);
	while (!(kve_member_state(&p->members[1]) & KVE_MEMBER_REMOVED))
		usleep(1000);
	/* the kernel may take a moment */
	for (i = 0; i < 500 && !open_nowhere(path); i++)
		usleep(10000);
	assert_true(i < 500);
	for (i = 0; i < nr; i++)
		assert_int_equal(load(&k, i, PAGE), PAGE);
	sess_close(&k);
}

/* As far as it lies so, and whether or not it was touched before */
static void callers_memory_is_in_huge_pages(void **state)
{
	const size_t huge = 2 << 20, bytes = 4 * huge;
	u64 before = mapped_huge_as("AnonHugePages");
	struct sess k;
	u8 *p;
	int id;

	(void)state;
	if (!huge_pages_are_given())
		skip();
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(p != MAP_FAILED);
	memset(p, 'x', bytes / 2 + 1);
	sess_open(&k);
	id = kve_mem_register(k.s, (uintptr_t)p + 1, bytes - 2);
	assert_true(id > 0);
	assert_in_range(mapped_huge_as("AnonHugePages"), before + 2 * huge, before + bytes);
	assert_int_equal(p[bytes / 2], 'x');
	assert_int_equal(p[bytes / 2 + 1], 0);
	assert_int_equal(kve_mem_unregister(k.s, (u32)id), 0);
	sess_close(&k);
	munmap(p, bytes);
}

/* A page lies anywhere in memory that the ring knows in several buffers, which are small here: in one, or across borders */
static void across_buffers(void **state)
{
	enum { BUFFER = 64 << 10, BYTES = 3 * BUFFER + 8192 };
	static const u32 lens[] = { 32 << 10, BUFFER, 160 << 10 };
	/* the first begins where no multiple of a buffer's size is */
	u8 *map = mmap(NULL, BYTES + BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *p, *to;
	unsigned int was = kve_mem_order;
	struct kvctx_sqe sqe;
	struct kve_mem *mem;
	u32 i, at, len, id, flags;
	struct sess k;
	bool known;

	(void)state;
	assert_true(map != MAP_FAILED);
	p = map + ((uintptr_t)map % BUFFER ? 0 : 4096);
	sess_open(&k);
	kve_mem_order = 16;
	id = (u32)kve_mem_register(k.s, (uintptr_t)p, BYTES);
	assert_in_range(id, 1, KVCTX_MEM_MAX);
	mem = k.s->mems[id];
	known = mem->nr_buffers;
	for (i = 0; known && i < ARRAY_SIZE(lens); i++) {
		len = lens[i];
		assert_int_equal(mem->nr_buffers, 4);
		for (at = 0; at + len <= BYTES; at += 4096) {
			fill(p + at, len, at + i);
			assert_int_equal(kve_mem_buffer(mem, p + at, len) >= 0, at / BUFFER == (at + len - 1) / BUFFER);
			sqe = sqe_of(KVCTX_OP_STORE, at + i, at, len);
			sqe.mem = id;
			assert_int_equal(run(&k, sqe, NULL), len);
			/* to as far from the end as it was from the beginning */
			to = p + (BYTES - len - at);
			memset(p, 0x5a, BYTES);
			sqe.opcode = KVCTX_OP_LOAD;
			sqe.segs = (u64)(to - p);
			assert_int_equal(run(&k, sqe, &flags), len);
			assert_int_equal(flags, KVCTX_CQE_VERIFIED);
			assert_true(right(to, len, at + i));
			assert_true(to == p || to[-1] == 0x5a);
			assert_true(!at || to[len] == 0x5a);
		}
	}
	kve_mem_order = was;
	assert_int_equal(kve_mem_unregister(k.s, id), 0);
	sess_close(&k);
	munmap(map, BYTES + BUFFER);
	if (!known)
		skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* first: a process that has used the engine has children that may not */
		BOTH(memory_over_the_limit),
		BOTH(progress_without_a_waiter),
		BOTH(threads_share_a_session),
		BOTH(a_thread_that_ends),
		BOTH(a_child_owns_nothing),
		BOTH(short_transfers),
		BOTH(errors_of_the_device),
		BOTH(many_pieces),
		URING(the_arena_is_in_huge_pages),
		URING(callers_memory_is_in_huge_pages),
		URING(across_buffers),
		TEST(sleeps_for_several),
		TEST(an_orphan_begins_nothing),
		URING(what_is_not_taken_is_given_again),
		TEST(a_poke_comes_later),
		BOTH(waits_for_fewer),
		BOTH(odd_pieces),
		BOTH(stores_wait_for_space),
		BOTH(who_waited_looks_for_the_memory),
		BOTH(a_fill_that_waited_looks),
		BOTH(close_waits_for_who_sends),
		BOTH(a_flush_wakes_who_waits),
		BOTH(close_with_all_under_way),
		BOTH(turns),
		BOTH(no_urgent_turns),
		TEST(memory_of_the_tenant),
		BOTH(signals),
		BOTH(a_member_that_left_is_let_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
