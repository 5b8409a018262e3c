// SPDX-License-Identifier: GPL-2.0
/*
 * A client that goes on whatever happens to the members. For outages.sh, which fills the pool by "pages".
 *
 *	outage loads|both N     loads pages 0 to N - 1 again and again, 32 at a time, "both" stores new pages beside them, 32 at
 *				a time. Twice a second, and when SIGTERM has made it wait for what is in flight, it prints
 *				"right=N wrong=N missing=N bad=N eio=N enodev=N other=N stored=N refused=N left=N"
 *
 * missing, bad, eio, enodev (-ENOENT, -EBADMSG, -EIO, -ENODEV) and other are of loads, refused is what became of all stores
 * that failed, left what is in flight. Pages 10,000,000 and up are the stored ones; SIGTERM has them loaded once more, too.
 */
#include "ktest.h"

#define PAGE 100000U			/* as outages.sh stores them */
#define SLOT (128UL << 10)
#define LANES 64U			/* operations in flight */
#define FIRST_STORED 10000000UL

static struct tally {
	unsigned long right, wrong, missing, bad, eio, enodev, other, stored, refused;
} sum;

static struct lane {
	bool store, busy;
	uint64_t page;
} lanes[LANES];

static uint64_t next_load, next_store = FIRST_STORED;
static volatile sig_atomic_t ending;

static void end(int sig)
{
	ending = sig;
}

static unsigned int in_flight(void)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < LANES; i++)
		n += lanes[i].busy;
	return n;
}

static void tell(void)
{
	printf("right=%lu wrong=%lu missing=%lu bad=%lu eio=%lu enodev=%lu other=%lu stored=%lu refused=%lu left=%u\n",
	       sum.right, sum.wrong, sum.missing, sum.bad, sum.eio, sum.enodev, sum.other, sum.stored, sum.refused,
	       in_flight());
	fflush(stdout);
}

static void begin(struct kt *k, unsigned int lane, bool store, uint64_t page)
{
	struct kvctx_seg seg = kt_seg(KVCTX_MEM_ARENA, lane * SLOT, PAGE);
	struct kvctx_sqe sqe = kt_io(store ? KVCTX_OP_STORE : KVCTX_OP_LOAD, kt_page_key(page), &seg, 1);
	int ret;

	if (store)
		kt_fill(k->arena + lane * SLOT, PAGE, page);
	else
		memset(k->arena + lane * SLOT, 0, PAGE);
	sqe.user_data = lane;
	ret = kt_submit(k, &sqe, 1, 0);
	if (ret != 1) {
		printf("SUBMIT: %d\n", ret);
		exit(1);
	}
	lanes[lane] = (struct lane){ store, true, page };
}

static void ended(struct kt *k, const struct kvctx_cqe *cqe)
{
	struct lane *l = &lanes[cqe->user_data % LANES];

	l->busy = false;
	if (l->store)
		*(cqe->res == (int)PAGE || cqe->flags & KVCTX_CQE_UNADMITTED ? &sum.stored : &sum.refused) += 1;
	else if (cqe->res == (int)PAGE)
		*(kt_check(k->arena + cqe->user_data * SLOT, PAGE, l->page) == -1 ? &sum.right : &sum.wrong) += 1;
	else
		*(cqe->res == -ENOENT ? &sum.missing : cqe->res == -EBADMSG ? &sum.bad : cqe->res == -EIO ? &sum.eio :
		  cqe->res == -ENODEV ? &sum.enodev : &sum.other) += 1;
}

static void reap(struct kt *k)
{
	struct kvctx_cqe cqe;

	kt_wait(k, 1, KT_SEC / 10);
	while (kt_reap(k, &cqe))
		ended(k, &cqe);
}

/* Until nothing is in flight, or has ended for long */
static void drain(struct kt *k)
{
	uint64_t limit = kt_now() + KT_LIMIT;

	while (in_flight() && kt_now() < limit)
		reap(k);
}

/* As long as nobody ends it; a refused store is not hurried */
static void work(struct kt *k, bool stores, uint64_t nr)
{
	uint64_t told = 0;

	while (!ending) {
		for (unsigned int i = 0; i < LANES; i++) {
			if (lanes[i].busy)
				continue;
			if (i % 2 == 0)
				begin(k, i, false, next_load++ % nr);
			else if (stores)
				begin(k, i, true, next_store++);
		}
		reap(k);
		if (kt_now() > told + KT_SEC / 2) {
			told = kt_now();
			tell();
		}
	}
}

int main(int argc, char **argv)
{
	bool both = argc == 3 && !strcmp(argv[1], "both");
	uint64_t nr = argc == 3 ? (uint64_t)atoi(argv[2]) : 0;
	struct kt k;

	if (!nr || (!both && strcmp(argv[1], "loads")) || kt_open(&k, O_RDWR, 0x77, LANES * SLOT, 2 * LANES)) {
		fprintf(stderr, "usage: outage loads|both N\n");
		return 2;
	}
	signal(SIGTERM, end);
	work(&k, both, nr);
	drain(&k);
	for (uint64_t page = FIRST_STORED; page < next_store; page++) {
		begin(&k, 0, false, page);
		drain(&k);
	}
	tell();
	kt_close(&k);
	return 0;
}
