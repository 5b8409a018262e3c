// SPDX-License-Identifier: GPL-2.0
/*
 * Operations on a pool of which one member has no place for a further request, or gives no answer. For tags.sh and
 * reread.sh, which fill the pool by "pages" and make a member stuck.
 *
 *	tags load N             submits N loads, then cancels those that do not end, and stays until it is killed
 *	tags ring N             the same by io_uring, without the cancelling
 *	tags late N             loads with a deadline
 *	tags store FROM N       stores with a deadline
 *	tags cut FROM N         submits N loads of large pages, each in many bios; another thread cancels those that begin
 *				to wait, once, while their other bios are still being made: "told=N ended=N of N",
 *				how many CANCEL said that it ended, and how many did
 *	tags flood FROM N       submits N loads of 16 large pages into memory that no device takes as it is, and stays
 *	tags parts FROM N       submits N loads of a byte of 16 large pages, which takes a chunk of each, and stays
 *	tags twice FROM N       loads of small pages whose list names the same bytes twice: all have to be read again
 *
 * The others print "submitted: N" when the system call has returned, then "right=N late=N canceled=N other=N of N", with what
 * has ended; "load" before and behind its cancelling.
 */
#include <pthread.h>

#include "kvctx_uring.h"
#include "ktest.h"

#define PAGE 100000U			/* as tags.sh stores them */
#define SLOT (128UL << 10)
#define ARENA (256 * SLOT)
#define MAX 4096U
#define LATE (KT_SEC / 2 * patience)	/* a deadline */
#define QUIET (2 * KT_SEC * patience)	/* nothing has ended for so long: nothing will */
#define LARGE 1000000U			/* a page of "cut" */
#define LARGE_SLOT (2U << 20)
#define PIECES (LARGE / 512 + 1)
#define SMALL 16384U			/* a page of "twice" */
#define LARGE_PAGES (ARENA / LARGE_SLOT)

static struct kvctx_sqe sqes[MAX];
static struct kvctx_seg segs[MAX];
static bool ended[MAX];
static unsigned int right, late, canceled, other;
static unsigned int patience;

/* Neighbours on media are no neighbours here: they shall not become one request. */
static uint64_t shuffled(unsigned int i, unsigned int nr)
{
	return (uint64_t)i * 37 % nr;
}

/* The pages of "pages", in its keyspace */
static void prepare(uint8_t opcode, uint64_t from, unsigned int nr, uint64_t timeout_ns, struct kt *k)
{
	for (unsigned int i = 0; i < nr; i++) {
		uint64_t n = from + shuffled(i, nr);
		struct kvctx_key key = kt_page_key(n);

		if (opcode == KVCTX_OP_STORE)
			kt_fill(k->arena + i * SLOT, PAGE, n);
		segs[i] = kt_seg(KVCTX_MEM_ARENA, i * SLOT, PAGE);
		sqes[i] = kt_io(opcode, key, &segs[i], 1);
		sqes[i].timeout_ns = timeout_ns;
		sqes[i].user_data = i;
	}
}

static void count(struct kt *k, uint64_t i, int res, unsigned int nr)
{
	if (i >= nr)
		return;
	ended[i] = true;
	if (res == -ETIME)
		late++;
	else if (res == -ECANCELED)
		canceled++;
	else if (res == (int)PAGE && (sqes[i].opcode == KVCTX_OP_STORE ||
				      kt_check(k->arena + i * SLOT, PAGE, shuffled((unsigned int)i, nr)) == -1))
		right++;
	else
		other++;
}

static void tell(unsigned int nr)
{
	printf("right=%u late=%u canceled=%u other=%u of %u\n", right, late, canceled, other, nr);
	fflush(stdout);
}

static void submitted(int nr)
{
	printf("submitted: %d\n", nr);
	fflush(stdout);
}

/* Until all have ended, or none has for a while; also what came when that was over */
static void reap(struct kt *k, unsigned int nr)
{
	struct kvctx_cqe cqe;
	bool more;

	do {
		more = right + late + canceled + other < nr && kt_wait(k, 1, QUIET) > 0;
		while (kt_reap(k, &cqe)) {
			count(k, cqe.user_data, cqe.res, nr);
			more = true;
		}
	} while (more);
	tell(nr);
}

static void cancel(struct kt *k, unsigned int nr)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_CANCEL, (struct kvctx_key){ 0 });

	sqe.user_data = MAX;
	for (unsigned int i = 0; i < nr; i++) {
		sqe.offset = i;
		if (!ended[i] && kt_submit(k, &sqe, 1, 0) != 1)
			exit(1);
	}
	reap(k, nr);
}

static int ring(struct kt *k, unsigned int nr)
{
	struct __kernel_timespec limit = { .tv_sec = QUIET / KT_SEC };
	struct io_uring_cqe *cqe;
	struct io_uring r;

	if (io_uring_queue_init(256, &r, IORING_SETUP_SQE128))
		return 1;
	for (unsigned int i = 0; i < nr; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&r);

		/* the one segment, named by the operation itself */
		sqes[i].segs = segs[i].offset;
		sqes[i].nr_segs = 0;
		if (!sqe || kvctx_uring_prep(sqe, kt_fd(k), &sqes[i]))
			return 1;
		sqe->user_data = i;
	}
	submitted(io_uring_submit(&r));
	while (right + late + other < nr && (!io_uring_wait_cqe_timeout(&r, &cqe, &limit) ||
					     !io_uring_peek_cqe(&r, &cqe))) {
		count(k, cqe->user_data, cqe->res, nr);
		io_uring_cqe_seen(&r, cqe);
	}
	tell(nr);
	return 0;
}

/* Pieces of 512 bytes that are no neighbours: no bio has room for all of them. */
static void prepare_large(uint64_t from, unsigned int nr)
{
	static struct kvctx_seg pieces[LARGE_PAGES][PIECES];

	for (unsigned int i = 0; i < nr; i++) {
		struct kvctx_key key = kt_page_key(from + i);

		for (unsigned int j = 0; j < PIECES; j++)
			pieces[i][j] = kt_seg(KVCTX_MEM_ARENA, i * LARGE_SLOT + j * 1024U,
					      j < PIECES - 1 ? 512 : LARGE % 512);
		sqes[i] = kt_io(KVCTX_OP_LOAD, key, pieces[i], PIECES);
		sqes[i].user_data = i;
	}
}

struct cut {
	struct kt *k;
	unsigned int nr;
	bool submitted;		/* all of them */
	bool told[LARGE_PAGES];
	unsigned int ends;
};

/* true: something has ended */
static bool cut_reap(struct cut *c)
{
	struct kvctx_cqe cqe;
	bool any = false;

	while (kt_reap(c->k, &cqe)) {
		any = true;
		if (cqe.user_data >= MAX) {
			c->told[cqe.user_data - MAX] |= cqe.res > 0;
		} else {
			ended[cqe.user_data] = true;
			c->ends++;
		}
	}
	return any;
}

static void *cut_thread(void *arg)
{
	struct kvctx_sqe sqe = kt_sqe(KVCTX_OP_CANCEL, (struct kvctx_key){ 0 });
	struct cut *c = arg;
	bool all;

	do {
		all = __atomic_load_n(&c->submitted, __ATOMIC_ACQUIRE);
		for (unsigned int i = 0; i < c->nr; i++) {
			if (c->told[i] || ended[i])
				continue;
			sqe.offset = i;
			sqe.user_data = MAX + i;
			if (kt_submit(c->k, &sqe, 1, 0) != 1)
				exit(1);
			cut_reap(c);
		}
	} while (!all);
	return NULL;
}

static int cut(struct kt *k, unsigned int nr)
{
	struct cut c = { .k = k, .nr = nr };
	unsigned int told = 0, done = 0;
	pthread_t thread;
	bool more;

	if (pthread_create(&thread, NULL, cut_thread, &c))
		return 1;
	submitted(kt_submit(k, sqes, nr, 0));
	__atomic_store_n(&c.submitted, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	do {
		more = c.ends < nr && kt_wait(k, 1, QUIET) > 0;
		more |= cut_reap(&c);
	} while (more);
	for (unsigned int i = 0; i < nr; i++) {
		told += c.told[i];
		done += c.told[i] && ended[i];
	}
	printf("told=%u ended=%u of %u\n", told, done, nr);
	return 0;
}

/*
 * Every block of it needs a copy; or, of a part, the chunk round it memory of the kernel's. What is read is of no interest:
 * all of them have the same memory.
 */
static void flood(struct kt *k, uint64_t from, unsigned int nr, bool part)
{
	uint32_t length = part ? 1 : LARGE;
	struct kvctx_cqe cqe;
	bool more;

	segs[0] = kt_seg(KVCTX_MEM_ARENA, 1, length);
	for (unsigned int i = 0; i < nr; i++) {
		struct kvctx_key key = kt_page_key(from + i % LARGE_PAGES);

		sqes[i] = kt_io(KVCTX_OP_LOAD, key, segs, 1);
		sqes[i].flags = part ? 0 : KVCTX_OP_NO_VERIFY;
		sqes[i].offset = part ? LARGE / 2 : 0;
	}
	submitted(kt_submit(k, sqes, nr, 0));
	do {
		more = right < nr && kt_wait(k, 1, QUIET) > 0;
		while (kt_reap(k, &cqe)) {
			right += cqe.res == (int)length;
			more = true;
		}
	} while (more);
	tell(nr);
	pause();
}

/* Both halves of the page go to the same place, so what is there is never the page. */
static int twice(struct kt *k, uint64_t from, unsigned int nr)
{
	static struct kvctx_seg halves[MAX][2];
	struct kvctx_cqe cqe;

	for (unsigned int i = 0; i < nr; i++) {
		struct kvctx_key key = kt_page_key(from + i);

		halves[i][0] = kt_seg(KVCTX_MEM_ARENA, i * (SMALL / 2), SMALL / 2);
		halves[i][1] = halves[i][0];
		sqes[i] = kt_io(KVCTX_OP_LOAD, key, halves[i], 2);
	}
	submitted(kt_submit(k, sqes, nr, 0));
	while (right + other < nr && kt_wait(k, 1, KT_LIMIT) > 0)
		while (kt_reap(k, &cqe))
			*(cqe.res == (int)SMALL ? &right : &other) += 1;
	tell(nr);
	return 0;
}

/* The most operations of a verb, whose pages have places of their own in the arena; 0: there is none */
static unsigned int most(const char *verb, bool from)
{
	if (!strcmp(verb, "cut") && from)
		return LARGE_PAGES;
	if ((!strcmp(verb, "flood") || !strcmp(verb, "parts") || !strcmp(verb, "twice")) && from)
		return MAX;
	return from == !strcmp(verb, "store") ? ARENA / SLOT : 0;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 2 ? argv[1] : "";
	uint64_t from = argc == 4 ? (uint64_t)atoi(argv[2]) : 0;
	unsigned int nr = argc > 2 ? (unsigned int)atoi(argv[argc - 1]) : 0;
	bool store = !strcmp(verb, "store");
	struct kt k;

	patience = kt_patience();
	if (argc < 3 || argc > 4 || !nr || nr > most(verb, argc == 4) || kt_open(&k, O_RDWR, 0x77, ARENA, 2 * MAX)) {
		fprintf(stderr, "usage: tags load|ring|late N | store|cut|flood|parts|twice FROM N\n");
		return 2;
	}
	if (!strcmp(verb, "cut")) {
		prepare_large(from, nr);
		return cut(&k, nr);
	}
	if (!strcmp(verb, "twice"))
		return twice(&k, from, nr);
	if (!strcmp(verb, "flood") || !strcmp(verb, "parts"))
		flood(&k, from, nr, !strcmp(verb, "parts"));
	prepare(store ? KVCTX_OP_STORE : KVCTX_OP_LOAD, from, nr,
		store || !strcmp(verb, "late") ? LATE : 0, &k);
	if (!strcmp(verb, "ring"))
		return ring(&k, nr);
	submitted(kt_submit(&k, sqes, nr, 0));
	reap(&k, nr);
	if (!strcmp(verb, "load")) {
		cancel(&k, nr);
		pause();
	}
	kt_close(&k);
	return 0;
}
