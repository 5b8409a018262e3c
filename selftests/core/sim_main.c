// SPDX-License-Identifier: GPL-2.0
/*
 * The simulation's program: options, what a seed means, what happens next. See sim.h.
 *
 *	sim [--seed N] [--seconds S] [--seed-base N|random] [--count N] [--verbose] [--digest]
 *
 * Without --seed, seeds run from the base on until the time is over. --digest prints nothing but a number made of all
 * that happened: it is the same wherever the same seeds run.
 */
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

static struct sim *running;
static const char *program;

static void on_fail(const char *what)
{
	fflush(stdout);
	fprintf(stderr, "sim: seed %llu: %s\n", (unsigned long long)running->seed, what);
	fprintf(stderr, "sim: repeat with: %s --seed %llu --verbose (or make sim SEED=%llu VERBOSE=1)\n", program,
		(unsigned long long)running->seed, (unsigned long long)running->seed);
	_exit(1);
}

/* An invariant of the engine, or a sanitizer, ended the program. */
static void on_abort(int sig)
{
	signal(sig, SIG_DFL);
	on_fail("aborted");
}

/* Of one core; the longest history takes a second, under sanitizers some. */
#define HISTORY_SECONDS	30

static void on_time(int sig)
{
	(void)sig;
	on_fail("does not end");
}

static void set_timer(void)
{
	const struct itimerval t = { .it_value.tv_sec = HISTORY_SECONDS };

	if (setitimer(ITIMER_PROF, &t, NULL))
		abort();
}

const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

const char *__asan_default_options(void)
{
	return "abort_on_error=1";
}

const char *__ubsan_default_options(void)
{
	return "abort_on_error=1";
}

void sim_trace(const struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (!s->verbose)
		return;
	printf("%6llu ", (unsigned long long)s->n.steps);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static bool alloc_fault(size_t size)
{
	(void)size;
	return rng_chance(&running->fault_rng, 500);
}

void sim_alloc_fails(struct sim *s, bool on)
{
	os_alloc_fault = on && s->cfg.alloc_fails ? alloc_fault : NULL;
}

void sim_fail_member(struct sim *s, u32 member)
{
	if (s->hole[member] || (s->grow.state == G_ADDING && s->grow.member == member))
		return;
	kvc_member_fail(s->pool, member);
	model_member_failed(s, member);
}

/* Members vanish, and sooner or later somebody tells the engine; or are lost while another one leaves. */
static void lose_members(struct sim *s)
{
	u32 i;

	if (s->cfg.member_fails && s->grow.state == G_LEAVING && rng_chance(&s->fault_rng, s->cfg.leaves ? 150 : 20))
		sim_fail_member(s, rng_below(&s->fault_rng, s->cfg.nr_members));
	if (!s->cfg.vanish)
		return;
	if (rng_chance(&s->fault_rng, 40))
		life_vanish(s);
	for (i = 0; i < s->cfg.nr_members; i++) {
		if (!dev_gone(s->devs[i]) || s->failed[i] || !rng_chance(&s->fault_rng, 500))
			continue;
		sim_fail_member(s, i);
	}
}

void phase_end(struct sim *s)
{
	if (s->phase.stalled)
		dev_stall(s->phase.stalled, false);
	s->phase = (struct phase){ 0 };
}

void phase_stall(struct sim *s, u32 member)
{
	if (s->phase.stalled || s->settling)
		return;
	s->phase.stalled = s->devs[member];
	s->phase.left = max(s->phase.left, 60U);
	dev_stall(s->phase.stalled, true);
	s->n.stalls++;
}

/* A stall ends with the device getting on again, or with the power. */
static void phase_step(struct sim *s)
{
	struct phase *ph = &s->phase;

	if (ph->left && --ph->left)
		return;
	if (ph->stalled && rng_chance(&s->rng, 1500)) {
		s->cut = true;
		s->n.stall_cuts++;
	}
	phase_end(s);
	if (s->cut)
		return;
	ph->left = rng_range(&s->rng, 20, 200);
	/* deletes of what is hidden behind a misread extent, and stores that make reclaim forget them */
	ph->kind = s->cfg.misreads ? rng_range(&s->rng, PHASE_DELETES, PHASE_STORES) : rng_below(&s->rng, NR_PHASES);
	if (!s->cfg.roomy && rng_chance(&s->rng, 3000))
		ph->members = BIT_ULL(rng_below(&s->rng, s->cfg.nr_members));
	if (s->cfg.scatters || s->cfg.hot)
		ph->members = 0;
	if (rng_chance(&s->rng, 3000))
		phase_stall(s, rng_below(&s->rng, s->cfg.nr_members));
}

/* One thing that may happen next */
static void step(struct sim *s)
{
	u32 n = s->early ? 35 + rng_below(&s->rng, 65) : rng_below(&s->rng, 100), i;

	s->n.steps++;
	s->step_windows = 0;
	s->lost = false;
	phase_step(s);
	lose_members(s);
	return_look(s);
	hot_step(s);
	if (s->cfg.memory && rng_chance(&s->rng, 200))
		kvc_index_limit(s->pool, kvc_index_bytes(s->pool) / 100 * rng_range(&s->rng, 90, 120));
	if (n < 35) {
		if (s->nr_ops < 64)
			ops_random(s);
	} else if (n < 75) {
		bus_step(s->bus);
	} else if (n < 97) {
		i = rng_below(&s->rng, s->cfg.nr_members);
		/* who leaves takes long, compared with the others */
		if (!grow_leaving(s, i) || rng_chance(&s->rng, 2500))
			work_step(s, i);
	} else if (s->nr_waiters && s->space) {
		ops_retry(s);
	} else {
		for (i = 0; i < s->cfg.nr_members; i++)
			while (!grow_leaving(s, i) && work_step(s, i))
				;
	}
	if (s->step_windows)
		model_look(s);
	if (s->cfg.quotas && !s->early && rng_chance(&s->quota_rng, 60))
		op_limit(s);
	ops_flush_look(s);
	grow_look(s);
	if (rng_chance(&s->rng, 1000))
		super_look(s);
	if (!s->early && rng_chance(&s->rng, 10))
		sim_settle(s);
}

/* Sums and the digest, of all seeds so far */
struct total {
	struct sim_counts sum;
	u64	digest;
};

static void add_up(struct sim *s, struct total *t)
{
	const u64 *from = (const u64 *)&s->n;
	u64 *to = (u64 *)&t->sum;
	u32 i;

	s->n.bus = *bus_counts(s->bus);
	for (i = 0; i < sizeof(t->sum) / sizeof(u64); i++) {
		to[i] += from[i];
		t->digest = rng_mix(t->digest + from[i] + i);
	}
	t->digest = rng_mix(t->digest ^ s->rng.state);
	t->digest = rng_mix(t->digest ^ s->bus_rng.state);
	t->digest = rng_mix(t->digest ^ s->fault_rng.state);
}

static void run_seed(u64 seed, bool verbose, struct total *total)
{
	struct sim *s = calloc(1, sizeof(*s));
	u32 life, steps;

	if (!s)
		abort();
	running = s;
	set_timer();
	s->seed = seed;
	s->verbose = verbose;
	s->rng.state = rng_mix(seed + 1);
	s->bus_rng.state = rng_mix(seed + 2);
	s->fault_rng.state = rng_mix(seed + 3);
	s->window_rng.state = rng_mix(seed + 4);
	s->quota_rng.state = rng_mix(seed + 5);
	s->memory_rng.state = rng_mix(seed + 6);
	s->hot_rng.state = rng_mix(seed + 7);
	s->return_rng.state = rng_mix(seed + 8);
	s->bus = bus_new(&s->bus_rng);
	sim_configure(s);
	sim_trace(s, "%u members, segments of %llu, chunks of %u, %s%s%s%s%s%s%s%s%s%s%s", s->cfg.nr_members,
		  (unsigned long long)s->cfg.segment_size, s->cfg.chunk_size,
		  s->cfg.windows ? "windows " : "", s->cfg.roomy ? "roomy " : "",
		  s->cfg.leases ? "leases " : "", s->cfg.tenants ? "tenants " : "",
		  s->cfg.member_fails ? "failures " : "", s->cfg.alloc_fails ? "nomem " : "",
		  s->cfg.corrupts ? "corruption " : "", s->cfg.io_errors ? "errors " : "",
		  s->cfg.vanish ? "vanish " : "", s->cfg.grow ? "grow " : "", s->cfg.limits ? "limits" : "");
	model_init(s);
	image_init(s);
	life_format(s);
	sim_alloc_fails(s, true);
	for (life = 0; life < s->cfg.lives; life++) {
		life_attach(s);
		s->early = rng_chance(&s->rng, 1500);
		steps = rng_range(&s->rng, 1, s->early ? 30 : s->cfg.steps);
		while (steps-- && !s->cut)
			step(s);
		life_end(s);
	}
	life_attach(s);
	sim_settle(s);
	sim_unlisten(s);
	kvc_pool_destroy(s->pool);
	sim_alloc_fails(s, false);
	add_up(s, total);
	bus_free(s->bus);
	model_free(s);
	image_free(s);
	free(s->super);
	free(s);
}

static void print_counts(u64 seeds, u64 first, const struct sim_counts *n)
{
	printf("sim: %llu seeds from %llu: %llu steps, %llu power cuts, %llu detaches\n", (unsigned long long)seeds,
	       (unsigned long long)first, (unsigned long long)n->steps, (unsigned long long)n->cuts,
	       (unsigned long long)n->detaches);
	printf("sim: %llu stores, %llu loads, %llu deletes, %llu matches, %llu flushes, %llu leases (%llu yielded), "
	       "%llu waits\n",
	       (unsigned long long)n->stores, (unsigned long long)n->loads, (unsigned long long)n->deletes,
	       (unsigned long long)n->matches, (unsigned long long)n->flushes, (unsigned long long)n->leases,
	       (unsigned long long)n->yielded, (unsigned long long)n->waits);
	printf("sim: %llu pages recovered, %llu evicted, %llu moved; %llu tenants removed, %llu members failed\n",
	       (unsigned long long)n->recovered, (unsigned long long)n->evicted, (unsigned long long)n->moved,
	       (unsigned long long)n->removals, (unsigned long long)n->fails);
	printf("sim: %llu I/O errors, %llu pages damaged, %llu lost by that, %llu allocations refused, %llu discards\n",
	       (unsigned long long)n->ioerrs, (unsigned long long)n->bad, (unsigned long long)n->missing_excused,
	       (unsigned long long)n->nomem, (unsigned long long)n->discards);
}

static void print_faults(const struct sim_counts *n)
{
	printf("sim: power went in %llu recoveries, after %llu, while %llu headers and %llu summaries were written\n",
	       (unsigned long long)n->cuts_recovery, (unsigned long long)n->cuts_attached,
	       (unsigned long long)n->cuts_header, (unsigned long long)n->cuts_summary);
	printf("sim: %llu writes torn, %llu with FUA; %llu lost, %llu misdirected, %llu failed; %llu bits flipped\n",
	       (unsigned long long)n->bus.torn, (unsigned long long)n->bus.torn_forced,
	       (unsigned long long)n->bus.lost, (unsigned long long)n->bus.misdirected,
	       (unsigned long long)n->bus.write_errors, (unsigned long long)n->bus.flips);
	printf("sim: %llu blocks went bad, %llu reads met them, %llu others failed, %llu segments not recovered\n",
	       (unsigned long long)n->bus.bad, (unsigned long long)n->bus.bad_reads,
	       (unsigned long long)n->bus.read_errors, (unsigned long long)n->unread);
	printf("sim: %llu members vanished, %llu came back with %llu pages, %llu deleted meanwhile; %llu degraded\n",
	       (unsigned long long)n->vanished, (unsigned long long)n->came_back, (unsigned long long)n->returned,
	       (unsigned long long)n->deleted_out, (unsigned long long)n->degraded);
	printf("sim: %llu members returned with %llu torn segments and %llu pages\n", (unsigned long long)n->back,
	       (unsigned long long)n->back_torn, (unsigned long long)n->back_pages);
	printf("sim: %llu members added, %llu removed (%llu failed) with %llu pages moved; %llu adds cut, %llu failed;"
	       " %llu leaves cut, %llu stuck\n", (unsigned long long)n->added, (unsigned long long)n->left,
	       (unsigned long long)n->left_failed, (unsigned long long)n->went, (unsigned long long)n->add_cuts,
	       (unsigned long long)n->add_fails, (unsigned long long)n->leave_cuts, (unsigned long long)n->stuck);
	printf("sim: %llu reads and %llu recoveries got something else, %llu superblocks were not where it was said,"
	       " %llu members were rolled back\n", (unsigned long long)n->bus.misreads, (unsigned long long)n->misread,
	       (unsigned long long)n->bus.lies, (unsigned long long)n->rolled_back);
	printf("sim: %llu stores over the write budget, %llu attaches of members that had been without each other\n",
	       (unsigned long long)n->unadmitted, (unsigned long long)n->histories);
	printf("sim: others had their turn in %llu windows; %llu stalls, %llu of them cut, %llu changes of superblocks\n",
	       (unsigned long long)n->windows, (unsigned long long)n->stalls, (unsigned long long)n->stall_cuts,
	       (unsigned long long)n->super_cuts);
	printf("sim: %llu moves in one transfer with others\n", (unsigned long long)n->beside);
	printf("sim: %llu looks at media, %llu deleted pages there; %llu tombstones on other members\n",
	       (unsigned long long)n->images, (unsigned long long)n->buried, (unsigned long long)n->buried_away);
	printf("sim: %llu stores replaced what was there, %llu lost their key so\n", (unsigned long long)n->replaced,
	       (unsigned long long)n->taken);
	printf("sim: %llu attaches without room for all keyspaces\n", (unsigned long long)n->crowds);
	printf("sim: %llu limits of tenants set, %llu refused; %llu quotas looked at, %llu used up, %llu evictions with a"
	       " reserve\n", (unsigned long long)n->limits_set, (unsigned long long)n->limits_refused,
	       (unsigned long long)n->quotas_seen, (unsigned long long)n->quotas_full,
	       (unsigned long long)n->reserves_seen);
	printf("sim: %llu pages dropped in attaches for want of memory\n", (unsigned long long)n->dropped);
	printf("sim: %llu loads of hot pages, of which %llu were evicted later\n", (unsigned long long)n->hot_loads,
	       (unsigned long long)n->hot_evicted);
	printf("sim: %llu pools with numbers near their limits and beyond\n", (unsigned long long)n->limits);
}

static double now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static u64 seed_base(const char *text)
{
	u64 v = 0;

	if (strcmp(text, "random"))
		return strtoull(text, NULL, 0);
	if (getentropy(&v, sizeof(v)))
		abort();
	return v % 1000000000000ULL;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "seconds", required_argument, NULL, 't' },
		{ "seed-base", required_argument, NULL, 'b' },
		{ "count", required_argument, NULL, 'n' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "digest", no_argument, NULL, 'd' },
		{ NULL, 0, NULL, 0 },
	};
	u64 base = 1, count = U64_MAX, seconds = 10, i;
	struct total total = { 0 };
	bool verbose = false, one = false, digest = false;
	double end, used;
	int c;

	/* Page buffers come and go: their memory stays. */
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 256 << 20);
	program = argv[0];
	harness_fail = on_fail;
	signal(SIGABRT, on_abort);
	signal(SIGPROF, on_time);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's') {
			base = strtoull(optarg, NULL, 0);
			one = true;
		} else if (c == 't') {
			seconds = strtoull(optarg, NULL, 0);
		} else if (c == 'b') {
			base = seed_base(optarg);
		} else if (c == 'n') {
			count = strtoull(optarg, NULL, 0);
		} else if (c == 'v') {
			verbose = true;
		} else if (c == 'd') {
			digest = true;
		} else {
			fprintf(stderr, "usage: %s [--seed N | --seconds S --seed-base N|random --count N]"
				" [--verbose] [--digest]\n", argv[0]);
			return 2;
		}
	}
	end = now(CLOCK_MONOTONIC) + (double)seconds;
	for (i = 0; i == 0 || (!one && i < count && now(CLOCK_MONOTONIC) < end); i++)
		run_seed(base + i, verbose, &total);
	if (digest) {
		printf("%016llx\n", (unsigned long long)total.digest);
		return 0;
	}
	print_counts(i, base, &total.sum);
	print_faults(&total.sum);
	used = now(CLOCK_PROCESS_CPUTIME_ID);
	printf("sim: %.1f s of one core: %.0f histories a minute\n", used, (double)i * 60 / used);
	return 0;
}
