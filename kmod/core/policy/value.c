// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * What pages are worth: how many returns their room gives, learned from requests that return and that do not.
 *
 * Requests fall into classes, by the turn of their conversation and by the pages that they added. Counted are, for each
 * class, its requests and those that were continued, and the ages at which they were. Pages that more than one
 * conversation asked for have classes of their own, by how often that was. While a class is small, its return
 * probability and its ages are drawn towards those of all. From both comes the chance that a page of a class returns at
 * an age which it has reached. Its value is the highest rate of returns that keeping it for any time gives, the index
 * of J. C. Gittins, "Bandit Processes and Dynamic Allocation Indices", Journal of the Royal Statistical Society B 41
 * (1979): what returns soon and likely is worth its room, what should have returned long ago is not.
 *
 * Ages are parts of the capacity that were written since, in bins that grow. All in integers: probabilities are in
 * units of 1/65536, shares of ages in 1/2^20. A value of 65536 is one return while the capacity is written once.
 *
 * Counters are guarded by requests->lock; the table of values is made by one caller of kvc_values_refresh() at a time
 * beside the one in use, and read without a lock.
 */
#include "index/index.h"

#define BINS		KVC_BINS
#define BINS_EVEN	16U		/* as wide as the first */
#define BIN_FIRST	(KVC_AGE_UNITS / 128)
#define ONE		65536U
#define SHARE		(1U << 20)
#define P_MAX		(ONE - ONE / 50)
#define PRIOR		30U		/* requests of each class, that return as those of all classes do */
#define PRIOR_RETURNS	9U		/* of PRIOR requests, before anything is known */
#define PRIOR_AGES	10U		/* returns of all classes */
#define PRIOR_MEDIAN	(KVC_AGE_UNITS / 4)
#define CLASS_AGES	300U		/* returns of each class, at ages as those of all classes */
#define HISTORY		8192U		/* requests, before they begin to count half */
#define HISTORY_STRAYS	(1U << 20)	/* the same of strays */
#define NR_TAILS	KVC_CLASS_SHARED
#define PRIOR_LOADED	(ONE * 9 / 10)	/* return probability of a stray that was loaded, before anything is known */
#define ENDS		30U		/* returns before ends are judged */
#define AGAIN		3U		/* of so many that came back one does so after as long again */
#define STALE		100U		/* requests until the values are made again */

struct counts {
	u32	seen[KVC_CLASSES], back[KVC_CLASSES]; /* requests, rows of shared pages, or strays */
	u32	ages[NR_TAILS][BINS], all_ages[BINS];
	u32	returns, whole;		/* of requests; of these with the end of the prompt */
};

struct kvc_values {
	u32	edge[BINS + 1];		/* immutable */
	/* requests->lock */
	struct counts now;
	u32	fresh;			/* requests since the values were made; STALE before the first time */
	bool	making;
	/* of the one who is making values */
	struct counts then;
	u32	common[BINS], share[BINS], risk[BINS];
	/* no lock */
	u32	in_use;
	u32	worth[2][KVC_CLASSES][BINS];
};

static u32 sum_of(const u32 *n, u32 nr)
{
	u32 sum = 0, i;

	for (i = 0; i < nr; i++)
		sum += n[i];
	return sum;
}

/* What is supposed of ages before any is known: a Pareto distribution, of which the young are always worth more */
static u32 prior_share(const struct kvc_values *v, u32 bin)
{
	u64 before = (u64)SHARE * PRIOR_MEDIAN / (PRIOR_MEDIAN + v->edge[bin]);
	u64 behind = (u64)SHARE * PRIOR_MEDIAN / (PRIOR_MEDIAN + v->edge[bin + 1]);

	return (u32)(before - behind);
}

/* How the ages of all returns are distributed */
static void make_common(struct kvc_values *v)
{
	u64 all = (u64)sum_of(v->then.all_ages, BINS) + PRIOR_AGES;
	u32 i;

	for (i = 0; i < BINS; i++)
		v->common[i] = (u32)(((u64)v->then.all_ages[i] * SHARE + (u64)PRIOR_AGES * prior_share(v, i)) / all);
}

/*
 * The same of a class. Of shared pages only those returns are seen that came before eviction; of strays nothing is
 * known.
 */
static void make_shares(struct kvc_values *v, u32 class)
{
	u64 own, all = class < NR_TAILS ? (u64)sum_of(v->then.ages[class], BINS) + CLASS_AGES : 0;
	u32 i;

	for (i = 0; i < BINS; i++) {
		if (all) {
			own = (u64)v->then.ages[class][i] * SHARE;
			v->share[i] = (u32)((own + (u64)CLASS_AGES * v->common[i]) / all);
		} else {
			v->share[i] = class < KVC_CLASS_STRAY ? v->common[i] : prior_share(v, i);
		}
	}
}

/* The chance of a class's requests to return in each bin, having come to it */
static void make_risks(struct kvc_values *v, u32 p)
{
	u32 left = SHARE, part, i;

	for (i = 0; i < BINS; i++) {
		part = (u32)((u64)p * v->share[i] / ONE);
		v->risk[i] = (u32)min_t(u64, ((u64)part * ONE) / max(left, 1U), ONE);
		left -= min(part, left);
	}
}

/* The best rate from the bin on: returns for room, over the bins for which it is kept */
static u32 best_rate(const struct kvc_values *v, u32 bin)
{
	u64 survive = ONE, returns = 0, room = 0, best = 0;
	u32 i;

	for (i = bin; i < BINS; i++) {
		returns += survive * v->risk[i] / ONE;
		room += survive * (v->edge[i + 1] - v->edge[i]) * (2 * ONE - v->risk[i]) / (2 * ONE);
		best = max(best, returns * KVC_AGE_UNITS * ONE / max_t(u64, room, 1));
		survive = survive * (ONE - v->risk[i]) / ONE;
	}
	return (u32)min_t(u64, best, U32_MAX);
}

static u32 return_chance(const struct kvc_values *v, u32 class)
{
	const struct counts *c = &v->then;
	u64 requests = sum_of(c->seen, NR_TAILS), returns = sum_of(c->back, NR_TAILS), chance;

	chance = (returns + PRIOR_RETURNS) * ONE / (requests + PRIOR);
	if (class >= KVC_CLASS_LOADED)
		chance = PRIOR_LOADED;
	chance = (c->back[class] * (u64)ONE + PRIOR * chance) / (c->seen[class] + PRIOR);
	return (u32)min_t(u64, chance, P_MAX);
}

static void make_values(struct kvc_values *v, u32 (*worth)[BINS])
{
	bool blank = !sum_of(v->then.seen, KVC_CLASS_STRAY);
	u32 class, bin;

	make_common(v);
	for (class = 0; class < KVC_CLASSES; class++) {
		/* in the beginning they are all the same */
		if (blank && class && class < KVC_CLASS_STRAY) {
			memcpy(worth[class], worth[0], sizeof(worth[0]));
			continue;
		}
		make_shares(v, class);
		make_risks(v, return_chance(v, class));
		for (bin = 0; bin < BINS; bin++)
			WRITE_ONCE(worth[class][bin], best_rate(v, bin));
	}
}

static void halve(u32 *n, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		n[i] /= 2;
}

static void forget_half(struct counts *c)
{
	u32 i;

	if (sum_of(c->seen + NR_TAILS, KVC_SHARED_CLASSES) > HISTORY) {
		halve(c->seen + NR_TAILS, KVC_SHARED_CLASSES);
		halve(c->back + NR_TAILS, KVC_SHARED_CLASSES);
	}
	if (sum_of(c->seen + KVC_CLASS_STRAY, KVC_STRAY_CLASSES) > HISTORY_STRAYS) {
		halve(c->seen + KVC_CLASS_STRAY, KVC_STRAY_CLASSES);
		halve(c->back + KVC_CLASS_STRAY, KVC_STRAY_CLASSES);
	}
	if (sum_of(c->seen, NR_TAILS) <= HISTORY)
		return;
	halve(c->seen, NR_TAILS);
	halve(c->back, NR_TAILS);
	for (i = 0; i < NR_TAILS; i++)
		halve(c->ages[i], BINS);
	halve(c->all_ages, BINS);
	WRITE_ONCE(c->returns, c->returns / 2);
	WRITE_ONCE(c->whole, c->whole / 2);
}

struct kvc_values *kvc_values_new(void)
{
	struct kvc_values *v = os_zalloc(sizeof(*v));
	u32 width = BIN_FIRST, i;

	if (!v)
		return NULL;
	for (i = 0; i < BINS; i++) {
		if (i >= BINS_EVEN)
			width += width / 5;
		v->edge[i + 1] = v->edge[i] + width;
	}
	v->fresh = STALE;
	return v;
}

u32 kvc_bin_of(const struct kvc_values *v, u32 age)
{
	u32 low = 0, high = BINS - 1, middle;

	while (low < high) {
		middle = (low + high + 1) / 2;
		if (v->edge[middle] <= age)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

/* By turns: first, second, third and fourth, later; by new pages: to 3, 15, 63, more */
u32 kvc_class(u32 turn, u32 fresh)
{
	u32 turns = turn < 3 ? turn - 1 : turn < 5 ? 2 : 3;
	u32 pages = fresh < 4 ? 0 : fresh < 16 ? 1 : fresh < 64 ? 2 : 3;

	return 4 * turns + pages;
}

/* The class of pages that were shared so often, at least once */
u32 kvc_class_shared(u32 shared)
{
	return KVC_CLASS_SHARED + (shared < 2 ? 0 : shared < 4 ? 1 : shared < 8 ? 2 : 3);
}

/* The class of a stray with this mark, by how often it was loaded */
u32 kvc_class_stray(u32 mark)
{
	u32 loads = kvc_mark_shared(mark);

	return loads ? KVC_CLASS_LOADED - KVC_CLASS_SHARED + kvc_class_shared(loads) : KVC_CLASS_STRAY;
}

/* So many strays were stored. Locked. */
void kvc_values_strays(struct kvc_values *v, u32 stored)
{
	v->now.seen[KVC_CLASS_STRAY] += min(stored, HISTORY_STRAYS);
	v->fresh = min_t(u64, (u64)v->fresh + stored, STALE);
}

/* @weight strays of the class were loaded, and are of the class @next now. Locked. */
void kvc_values_loaded(struct kvc_values *v, u32 class, u32 next, u32 weight)
{
	v->now.back[class] += weight;
	v->now.seen[next] += weight;
	v->fresh += weight;
}

/* A request of the class. Locked. */
void kvc_values_seen(struct kvc_values *v, u32 class)
{
	v->now.seen[class]++;
	v->fresh++;
}

/* A request of the class was continued at an age; @whole: with the end of its prompt. Locked. */
void kvc_values_returned(struct kvc_values *v, u32 class, u32 age, bool whole)
{
	u32 bin = kvc_bin_of(v, age);

	v->now.back[class]++;
	v->now.ages[class][bin]++;
	v->now.all_ages[bin]++;
	WRITE_ONCE(v->now.returns, v->now.returns + 1);
	WRITE_ONCE(v->now.whole, v->now.whole + whole);
}

/* Rows of shared pages that were found, by their classes before and now. Locked. */
void kvc_values_shared(struct kvc_values *v, const u32 *back, const u32 *seen)
{
	u32 i;

	for (i = 0; i < KVC_SHARED_CLASSES; i++) {
		v->now.back[KVC_CLASS_SHARED + i] += back[i];
		v->now.seen[KVC_CLASS_SHARED + i] += seen[i];
	}
}

void kvc_values_refresh(struct kvc_pool *p)
{
	struct kvc_requests *rq = &p->requests;
	struct kvc_values *v = rq->values;
	bool make;

	os_lock(&rq->lock);
	make = v->fresh >= STALE && !v->making;
	if (make) {
		v->making = true;
		v->fresh = 0;
		v->then = v->now;
		forget_half(&v->now);
	}
	os_unlock(&rq->lock);
	if (!make)
		return;
	make_values(v, v->worth[!v->in_use]);
	os_lock(&rq->lock);
	WRITE_ONCE(v->in_use, !v->in_use);
	v->making = false;
	os_unlock(&rq->lock);
}

u32 kvc_worth(const struct kvc_values *v, u32 class, u32 age)
{
	return READ_ONCE(v->worth[READ_ONCE(v->in_use)][class][kvc_bin_of(v, age)]);
}

/*
 * The least value of what came back after @gap, 0: it did not. One of AGAIN does so again, a quarter later at most; for
 * longer than the capacity lasts nothing is kept. Its class may say less: of documents that are asked about one after
 * the other it has seen none return until all have become as old, and takes them for conversations that are over.
 */
u32 kvc_worth_again(u32 gap, u32 age)
{
	return gap && gap <= KVC_AGE_UNITS && age <= gap + gap / 4 ? ONE * (KVC_AGE_UNITS / AGAIN) / gap : 0;
}

/* Do the ends of prompts come back with them? Supposed until a few have not. */
bool kvc_ends_return(const struct kvc_values *v)
{
	return 2 * READ_ONCE(v->now.whole) + ENDS >= READ_ONCE(v->now.returns);
}
