// SPDX-License-Identifier: GPL-2.0
/*
 * Priorities: what passes what on the way to the device. Runs in slots.sh, which puts the pool on the device "slow"
 * (slow.sh).
 *
 * The device is stuck while a batch is submitted, so that nothing ends before everything has taken its place: what may
 * go to the device stands there in order, the rest waits for its turn, for 50 ms at most. A try in which SUBMIT took
 * that long says nothing and is not counted. What ends together is verified by several threads, whose order is not
 * quite that of the device, the less so the more a host takes the guest's CPUs away. So tries are counted until those
 * of one kind, good or bad, lead by LEAD: a sequential test, which errs with (p / (1 - p)) ^ LEAD when a try misleads
 * with probability p.
 */
#include "ktest.h"
#include "harness.h"

#define ARENA		(64 * KT_MIB)
#define SLOT		(64U << 10)
#define STORED		(256U << 10)	/* bytes of a STORE */
#define NR		60U		/* less urgent operations: more than go beside an urgent one */
#define NR_MAX		64U
#define NR_PASSED	10		/* of those that wait, at least; without turns it is a few, by chance */
#define TRIES		100
#define LEAD		6
#define QUICK_NS	(KT_SEC / 25)	/* a SUBMIT after which nobody has waited long */

FIXTURE(prio)
{
	struct kt k;
	struct kvctx_sqe sqes[NR_MAX];
	struct kvctx_seg segs[NR_MAX];
	struct kvctx_cqe cqes[NR_MAX];
	unsigned int place[NR_MAX];	/* in the order of completions */
	unsigned int nr;
	bool quick;			/* the last batch was submitted before anybody had waited long */
	uint64_t page;			/* the next one */
};

static const uint64_t first_page = 1000;

FIXTURE_SETUP(prio)
{
	/* a test before that took too long was killed, maybe while the device was stuck */
	ASSERT_LE(0, kt_slow("resume"));
	ASSERT_EQ(0, kt_open_slots(&self->k, O_RDWR, 0x52, ARENA, 512, SLOT, 512));
	for (uint64_t n = first_page; n < first_page + 3 * NR; n++) {
		kt_fill(self->k.arena, SLOT, n);
		ASSERT_EQ((int)SLOT, kt_store(&self->k, kt_key(n), 0, SLOT, NULL));
	}
	self->page = first_page;
}

FIXTURE_TEARDOWN(prio)
{
	kt_close(&self->k);
}

/* The next operation of the batch; its number */
static unsigned int add(FIXTURE_DATA(prio) *self, enum kvctx_opcode op, uint64_t n, enum kvctx_prio prio)
{
	unsigned int i = self->nr++;
	uint32_t length = op == KVCTX_OP_STORE ? STORED : SLOT;

	if (op == KVCTX_OP_PREFETCH || op == KVCTX_OP_GET) {
		self->sqes[i] = kt_sqe(op, kt_key(n));
		self->sqes[i].lease_ms = 60000;
	} else {
		self->segs[i] = kt_seg(KVCTX_MEM_ARENA, i * (uint64_t)KT_MIB, length);
		self->sqes[i] = kt_io(op, kt_key(n), &self->segs[i], 1);
		/* without checksums, which take SUBMIT longer than all else */
		if (op == KVCTX_OP_STORE)
			self->sqes[i].flags = KVCTX_OP_NO_VERIFY;
	}
	self->sqes[i].prio = prio;
	self->sqes[i].user_data = i;
	return i;
}

static void reap(FIXTURE_DATA(prio) *self)
{
	unsigned int place = 0;
	struct kvctx_cqe cqe;

	kt_wait(&self->k, self->nr, KT_LIMIT);
	while (kt_reap(&self->k, &cqe)) {
		self->cqes[cqe.user_data] = cqe;
		self->place[cqe.user_data] = place++;
	}
}

/* Run the batch through the stuck device */
static int run(FIXTURE_DATA(prio) *self)
{
	uint64_t start;

	if (kt_slow("stuck") < 0)
		return -1;
	start = kt_now();
	if (kt_submit(&self->k, self->sqes, self->nr, 0) != (int)self->nr)
		return -1;
	self->quick = kt_now() - start < QUICK_NS;
	if (kt_slow("resume") < 0)
		return -1;
	reap(self);
	return 0;
}

/* How many of operations [from, from + NR) completed after operation @i */
static unsigned int passed(FIXTURE_DATA(prio) *self, unsigned int i, unsigned int from)
{
	unsigned int n = 0;

	for (unsigned int j = from; j < from + NR; j++)
		n += self->place[j] > self->place[i];
	return n;
}

/* One urgent LOAD, NR of @op, then @last of page or number @n: how many of the NR does it pass? */
static int overtake(FIXTURE_DATA(prio) *self, enum kvctx_opcode op, enum kvctx_prio prio, enum kvctx_opcode last,
		    enum kvctx_prio last_prio, unsigned int *last_nr)
{
	static uint64_t fresh = 1 << 20;
	unsigned int i, from;

	self->nr = 0;
	add(self, KVCTX_OP_LOAD, first_page + 3 * NR - 1, KVCTX_PRIO_DEFAULT);
	from = self->nr;
	for (i = 0; i < NR; i++)
		add(self, op, op == KVCTX_OP_STORE ? fresh++ : self->page++, prio);
	*last_nr = add(self, last, last == KVCTX_OP_STORE ? fresh++ : first_page + 3 * NR - 2, last_prio);
	if (run(self))
		return -1;
	for (i = 0; i < self->nr; i++)
		if (self->cqes[i].res < 0)
			return -1;
	return passed(self, *last_nr, from);
}

/* Slots are as many as pages: a fresh session has none of them yet */
static int renew(FIXTURE_DATA(prio) *self)
{
	kt_close(&self->k);
	self->page = first_page;
	return kt_open_slots(&self->k, O_RDWR, 0x52, ARENA, 512, SLOT, 512);
}

/* The result of tries, so far */
struct tries {
	unsigned int nr;
	int lead;	/* good ones less bad ones */
};

static bool undecided(const struct tries *t)
{
	return t->nr < TRIES && abs(t->lead) < LEAD;
}

static void tried(FIXTURE_DATA(prio) *self, struct tries *t, unsigned int passed)
{
	t->nr++;
	if (!self->quick)
		return;
	t->lead += passed >= NR_PASSED ? 1 : -1;
}

#define EXPECT_PASSES(op, prio, last, last_prio)						\
	do {											\
		struct tries t = { 0 };								\
		unsigned int nr;								\
												\
		while (undecided(&t)) {								\
			int got;								\
												\
			ASSERT_EQ(0, renew(self));						\
			got = overtake(self, op, prio, last, last_prio, &nr);			\
			ASSERT_LE(0, got);							\
			tried(self, &t, got);							\
		}										\
		EXPECT_EQ(LEAD, t.lead) TH_LOG("%u tries", t.nr);		\
	} while (0)

TEST_F(prio, load_passes_prefetches)
{
	EXPECT_PASSES(KVCTX_OP_PREFETCH, KVCTX_PRIO_DEFAULT, KVCTX_OP_LOAD, KVCTX_PRIO_DEFAULT);
}

TEST_F(prio, load_passes_stores)
{
	EXPECT_PASSES(KVCTX_OP_STORE, KVCTX_PRIO_DEFAULT, KVCTX_OP_LOAD, KVCTX_PRIO_DEFAULT);
}

TEST_F(prio, get_and_urgent_prefetch_pass_prefetches)
{
	EXPECT_PASSES(KVCTX_OP_PREFETCH, KVCTX_PRIO_DEFAULT, KVCTX_OP_GET, KVCTX_PRIO_DEFAULT);
	EXPECT_PASSES(KVCTX_OP_PREFETCH, KVCTX_PRIO_DEFAULT, KVCTX_OP_PREFETCH, KVCTX_PRIO_URGENT);
}

TEST_F(prio, normal_passes_background)
{
	EXPECT_PASSES(KVCTX_OP_PREFETCH, KVCTX_PRIO_DEFAULT, KVCTX_OP_STORE, KVCTX_PRIO_DEFAULT);
	EXPECT_PASSES(KVCTX_OP_STORE, KVCTX_PRIO_BACKGROUND, KVCTX_OP_LOAD, KVCTX_PRIO_NORMAL);
}

/* Among equals there is order, whatever it is called */
TEST_F(prio, equals_do_not_pass)
{
	static const enum kvctx_prio prios[] = { KVCTX_PRIO_URGENT, KVCTX_PRIO_NORMAL, KVCTX_PRIO_BACKGROUND };
	unsigned int nr;

	for (size_t i = 0; i < 3; i++) {
		struct tries t = { 0 };

		while (undecided(&t)) {
			int got;

			ASSERT_EQ(0, renew(self));
			got = overtake(self, KVCTX_OP_LOAD, prios[i], KVCTX_OP_LOAD, prios[i], &nr);
			ASSERT_LE(0, got);
			t.nr++;
			t.lead += got < (int)NR / 2 ? 1 : -1;
		}
		EXPECT_EQ(LEAD, t.lead) TH_LOG("priority %u, %u tries", prios[i], t.nr);
	}
}

/* An urgent LOAD of a page whose read-ahead waits for its turn takes that along */
TEST_F(prio, load_hurries_the_fill_it_waits_for)
{
	unsigned int i, from, nr;
	struct tries t = { 0 };

	while (undecided(&t)) {
		ASSERT_EQ(0, renew(self));
		self->nr = 0;
		add(self, KVCTX_OP_LOAD, first_page + 3 * NR - 1, KVCTX_PRIO_DEFAULT);
		from = self->nr;
		for (i = 0; i < NR; i++)
			add(self, KVCTX_OP_PREFETCH, self->page++, KVCTX_PRIO_DEFAULT);
		nr = add(self, KVCTX_OP_LOAD, self->page - 1, KVCTX_PRIO_DEFAULT);
		ASSERT_EQ(0, run(self));
		ASSERT_EQ(SLOT, self->cqes[nr].res);
		ASSERT_EQ(KVCTX_CQE_FROM_DRAM | KVCTX_CQE_VERIFIED, self->cqes[nr].flags);
		ASSERT_EQ(-1, kt_check(self->k.arena + self->segs[nr].offset, SLOT, self->page - 1));
		tried(self, &t, passed(self, nr, from));
	}
	EXPECT_EQ(LEAD, t.lead) TH_LOG("%u tries", t.nr);
}

/* What waits for its turn past its deadline never starts */
static void deadlines(struct __test_metadata *_metadata, FIXTURE_DATA(prio) *self, enum kvctx_opcode op)
{
	unsigned int i, late = 0, done = 0, from;
	static uint64_t fresh = 1 << 21;
	uint32_t length = op == KVCTX_OP_STORE ? STORED : SLOT;

	/* a slow machine is past a short deadline before anything has begun */
	for (int try = 0; try < 8 && (late < NR / 2 || !done); try++) {
		ASSERT_EQ(0, renew(self));
		self->nr = 0;
		add(self, KVCTX_OP_LOAD, first_page + 3 * NR - 1, KVCTX_PRIO_DEFAULT);
		from = self->nr;
		for (i = 0; i < NR; i++)
			self->sqes[add(self, op, op == KVCTX_OP_STORE ? fresh++ : self->page++, 0)].timeout_ns = 20000000ULL << try;
		/* they end while the device is stuck */
		ASSERT_LE(0, kt_slow("stuck"));
		ASSERT_EQ((int)self->nr, kt_submit(&self->k, self->sqes, self->nr, 0));
		kt_wait(&self->k, NR / 2, KT_SEC);
		ASSERT_LE(0, kt_slow("resume"));
		reap(self);
		late = 0;
		done = 0;
		for (i = from; i < from + NR; i++) {
			late += self->cqes[i].res == -ETIME;
			done += self->cqes[i].res == (int)length;
		}
		ASSERT_EQ(NR, late + done);
		ASSERT_EQ(SLOT, self->cqes[0].res);
	}
	EXPECT_LE(NR / 2, late);
	EXPECT_LT(0, done);
}

TEST_F(prio, deadlines_of_prefetches)
{
	deadlines(_metadata, self, KVCTX_OP_PREFETCH);
	/* the slots of those that were late are free: all others fit */
	for (uint64_t n = first_page; n < first_page + NR; n++) {
		struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_PREFETCH, kt_key(n));

		sqe.lease_ms = 1000;
		EXPECT_EQ((int)SLOT, kt_do(&self->k, &sqe, NULL));
	}
}

TEST_F(prio, deadlines_of_stores)
{
	deadlines(_metadata, self, KVCTX_OP_STORE);
	/* a place that was given back is given again */
	for (unsigned int i = 1; i <= NR; i++)
		if (self->cqes[i].res == -ETIME) {
			struct kvctx_sqe sqe = self->sqes[i];

			sqe.timeout_ns = 0;
			EXPECT_EQ((int)STORED, kt_do(&self->k, &sqe, NULL));
		}
}

/* Behind an urgent operation that does not end, all go after a while */
TEST_F(prio, nothing_starves)
{
	unsigned int under_way = 0;
	uint64_t start;

	/* until it is told to end */
	ASSERT_LE(0, kt_slow("delay 60000"));
	self->nr = 0;
	add(self, KVCTX_OP_LOAD, first_page + 3 * NR - 1, KVCTX_PRIO_DEFAULT);
	for (unsigned int i = 0; i < NR; i++)
		add(self, KVCTX_OP_PREFETCH, self->page++, KVCTX_PRIO_DEFAULT);
	start = kt_now();
	ASSERT_EQ((int)self->nr, kt_submit(&self->k, self->sqes, self->nr, 0));
	while (kt_now() < start + 20 * KT_SEC && under_way < NR + 1)
		under_way = kt_slow("delayed");
	EXPECT_EQ(NR + 1, under_way);
	EXPECT_EQ(0, kt_wait(&self->k, 1, 0));
	ASSERT_LE(0, kt_slow("delay 0"));
	reap(self);
	for (unsigned int i = 0; i < self->nr; i++) {
		EXPECT_EQ(SLOT, self->cqes[i].res) TH_LOG("operation %u", i);
	}
}

/* The session ends with operations in every queue: by close and by kill */
TEST_F(prio, end_of_session_with_a_queue)
{
	int status;
	pid_t pid;

	for (int kill = 0; kill < 2; kill++) {
		ASSERT_LE(0, kt_slow("stuck"));
		pid = fork();
		ASSERT_LE(0, pid);
		if (!pid) {
			struct kvctx_match m = { .size = sizeof(m), .flags = KVCTX_MATCH_PREFETCH, .lease_ms = 1000 };
			struct kvctx_key keys[NR];

			for (unsigned int i = 0; i < NR; i++)
				keys[i] = kt_key(first_page + NR + i);
			m.keys = (uintptr_t)keys;
			m.nr_keys = NR;
			if (renew(self))
				_exit(1);
			self->nr = 0;
			add(self, KVCTX_OP_LOAD, first_page + 3 * NR - 1, KVCTX_PRIO_DEFAULT);
			for (unsigned int i = 0; i < 20; i++) {
				add(self, KVCTX_OP_PREFETCH, self->page++, KVCTX_PRIO_DEFAULT);
				add(self, KVCTX_OP_STORE, (1 << 22) + kill * 100 + i, KVCTX_PRIO_DEFAULT);
			}
			if (kt_submit(&self->k, self->sqes, self->nr, 0) != (int)self->nr ||
			    kt_ioctl(self->k.file, KVCTX_IOC_MATCH, &m) || m.nr_prefetched != NR)
				_exit(1);
			if (kill)
				raise(SIGKILL);
			kt_close(&self->k);
			_exit(0);
		}
		if (!kill) {
			usleep(500000);
			ASSERT_LE(0, kt_slow("resume"));
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		if (kill) {
			EXPECT_TRUE(WIFSIGNALED(status));
			ASSERT_LE(0, kt_slow("resume"));
		} else {
			EXPECT_EQ(0, status);
		}
	}
	ASSERT_EQ(0, renew(self));
	for (uint64_t n = first_page; n < first_page + 2 * NR; n++) {
		ASSERT_EQ((int)SLOT, kt_load(&self->k, kt_key(n), 0, SLOT, NULL));
		ASSERT_EQ(-1, kt_check(self->k.arena, SLOT, n));
	}
}

/* The member fails with operations in every queue, and is lost. The last test: nothing is there any more */
TEST_F(prio, member_lost_with_a_queue)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_PREFETCH, kt_key(first_page));
	struct kvctx_key none = { 0 };
	uint64_t end = kt_now() + 10 * KT_SEC;
	int res;

	sqe.lease_ms = 60000;
	ASSERT_EQ((int)SLOT, kt_do(&self->k, &sqe, NULL));
	self->nr = 0;
	self->page++;
	add(self, KVCTX_OP_LOAD, first_page + 3 * NR - 1, KVCTX_PRIO_DEFAULT);
	for (unsigned int i = 0; i < 20; i++) {
		add(self, KVCTX_OP_PREFETCH, self->page++, KVCTX_PRIO_DEFAULT);
		add(self, KVCTX_OP_STORE, (1 << 23) + i, KVCTX_PRIO_DEFAULT);
	}
	ASSERT_LE(0, kt_slow("stuck"));
	ASSERT_EQ((int)self->nr, kt_submit(&self->k, self->sqes, self->nr, 0));
	ASSERT_LE(0, kt_slow("error"));
	reap(self);
	for (unsigned int i = 0; i < self->nr; i++) {
		EXPECT_TRUE(self->cqes[i].res == -EIO || self->cqes[i].res == -ENODEV) TH_LOG("operation %u: %d", i,
												self->cqes[i].res);
	}
	EXPECT_GT(0, kt_op(&self->k, KVCTX_OP_DELETE, kt_key(first_page + 1)) ?: kt_op(&self->k, KVCTX_OP_FLUSH, none));
	/* the page in its slot is the member's all the same */
	do {
		res = kt_load(&self->k, kt_key(first_page), 0, SLOT, NULL);
	} while (res >= 0 && kt_now() < end);
	EXPECT_EQ(-ENODEV, res);
	EXPECT_EQ(-ENODEV, kt_do(&self->k, &sqe, NULL));
}

TEST_HARNESS_MAIN
