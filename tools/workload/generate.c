// SPDX-License-Identifier: GPL-2.0
/*
 * Conversations as a chat service sees them.
 *
 * The figures are those of the conversation trace published with R. Qin et al., "Mooncake: Trading More Storage for
 * Less Computation", FAST '25 (traces/conversation_trace.jsonl of its release): 12,031 requests in an hour, 12,035
 * prompt tokens and 343 output tokens a request on average, blocks of 512 tokens, prefix hit ratio of an unbounded
 * cache 0.37. The tables below are quantiles measured on that trace after linking each request to the one whose whole
 * prompt it extends; 70 % of the requests start a conversation, 22 % of the conversations have a second turn, and the
 * longer a conversation is the more likely it goes on. The chances to go on are set some points higher than measured,
 * because the trace's hour cuts conversations at both ends, and so that the hit ratio comes out near the published one.
 *
 * How it works: conversations start at random times, spread so that the @nr requests fill an hour however many they
 * are; a conversation whose turn is over comes back after its think time, with its prompt grown by the answer and a
 * message. A prompt of n tokens has ceil(n / 512) blocks. A full block keeps its id for ever; the id of a last,
 * partial block is of no use to the next turn, which gets a new one. Ids count up in order of first appearance.
 *
 * Integers only: libm differs between machines in its last bits, and a seed has to mean one trace.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "generate.h"
#include "rng.h"
#include "util.h"

#define SPAN_MS		3600000ULL	/* what the requests are spread over */
#define TURNS_X100	152ULL		/* mean turns of a conversation, times 100 */
#define NR_TEMPLATES	24
#define TEMPLATE_SHARE	130		/* conversations, in thousandths, that share more than the system prompt */
#define SYSTEM_BLOCKS	1		/* full blocks that all conversations share */

/* A row of an inverse distribution function: @share 1/1000 of the values are at most @value */
struct quantile {
	uint32_t share;
	uint32_t value;
};

static const struct quantile first_prompt[] = {		/* tokens */
	{ 0, 891 }, { 10, 894 }, { 100, 909 }, { 250, 1457 }, { 500, 5534 }, { 750, 13797 }, { 900, 25601 },
	{ 950, 37356 }, { 990, 86473 }, { 1000, 126195 },
};

static const struct quantile message[] = {		/* tokens that the user adds, attachments included */
	{ 0, 1 }, { 250, 9 }, { 500, 27 }, { 750, 437 }, { 900, 4386 }, { 950, 7107 }, { 990, 16705 },
	{ 999, 38787 }, { 1000, 91467 },
};

static const struct quantile answer[] = {		/* output tokens */
	{ 0, 1 }, { 10, 3 }, { 50, 10 }, { 100, 24 }, { 250, 156 }, { 500, 350 }, { 750, 472 }, { 900, 597 },
	{ 950, 698 }, { 990, 1120 }, { 1000, 2000 },
};

static const struct quantile think[] = {		/* milliseconds from turn to turn */
	{ 0, 5999 }, { 50, 29999 }, { 100, 42000 }, { 250, 69000 }, { 500, 126000 }, { 750, 270000 },
	{ 900, 483000 }, { 950, 615000 }, { 990, 1488000 }, { 1000, 3030000 },
};

static const struct quantile template_blocks[] = {	/* shared blocks, system prompt included */
	{ 0, 2 }, { 500, 2 }, { 580, 3 }, { 680, 5 }, { 800, 9 }, { 900, 15 }, { 960, 20 }, { 1000, 25 },
};

/* Exponential distribution of mean 1000, for the gaps between conversations that start */
static const struct quantile gap[] = {
	{ 0, 0 }, { 100, 105 }, { 200, 223 }, { 300, 357 }, { 400, 511 }, { 500, 693 }, { 600, 916 }, { 700, 1204 },
	{ 800, 1609 }, { 900, 2303 }, { 950, 2996 }, { 990, 4605 }, { 1000, 6908 },
};

/* Thousandths of the conversations with n turns (from 1) that have one more; the last holds for all after it */
static const uint32_t goes_on[] = { 265, 430, 510, 590, 640, 680, 730, 750 };

struct conversation {
	uint64_t at;		/* milliseconds, of its next turn */
	uint64_t number;	/* in order of start; ties of @at are broken by it */
	uint64_t tokens;	/* of its next prompt */
	unsigned int turn;	/* from 1 */
	uint64_t *ids;		/* full blocks so far */
	size_t nr_ids;
};

/* A shared prompt start; ids are given when it is first used */
struct template {
	uint64_t ids[32];
	size_t nr;
};

struct generator {
	struct trace *t;
	uint64_t rng;
	uint64_t next_id;
	uint64_t next_start;	/* milliseconds, when another conversation starts */
	uint64_t mean_gap;	/* microseconds between starts */
	uint64_t started;
	struct template system;
	struct template templates[NR_TEMPLATES];
	struct conversation **heap;	/* waiting for their next turn; the earliest at 0 */
	size_t nr_heap;
	size_t room_heap;
};

static uint64_t draw(struct generator *g, const struct quantile *row)
{
	uint64_t u = rng_below(&g->rng, 1000000);

	while (u >= row[1].share * 1000ULL)
		row++;
	u -= row[0].share * 1000ULL;
	return row[0].value + (row[1].value - row[0].value) * u / ((row[1].share - row[0].share) * 1000ULL);
}

static int earlier(const struct conversation *a, const struct conversation *b)
{
	return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static int heap_push(struct generator *g, struct conversation *c)
{
	size_t i, up;

	if (make_room((void **)&g->heap, g->nr_heap, &g->room_heap, sizeof(*g->heap)))
		return -ENOMEM;
	for (i = g->nr_heap++; i; i = up) {
		up = (i - 1) / 2;
		if (!earlier(c, g->heap[up]))
			break;
		g->heap[i] = g->heap[up];
	}
	g->heap[i] = c;
	return 0;
}

static struct conversation *heap_pop(struct generator *g)
{
	struct conversation *top = g->heap[0], *last = g->heap[--g->nr_heap];
	size_t i = 0, down;

	for (;;) {
		down = 2 * i + 1;
		if (down >= g->nr_heap)
			break;
		if (down + 1 < g->nr_heap && earlier(g->heap[down + 1], g->heap[down]))
			down++;
		if (!earlier(g->heap[down], last))
			break;
		g->heap[i] = g->heap[down];
		i = down;
	}
	g->heap[i] = last;
	return top;
}

static void conversation_free(struct conversation *c)
{
	free(c->ids);
	free(c);
}

/* The lesser of two even draws makes the first templates the popular ones */
static const struct template *choose_template(struct generator *g)
{
	struct template *chosen;
	uint32_t a, b;

	if (rng_below(&g->rng, 1000) >= TEMPLATE_SHARE)
		return &g->system;
	a = rng_below(&g->rng, NR_TEMPLATES);
	b = rng_below(&g->rng, NR_TEMPLATES);
	chosen = &g->templates[a < b ? a : b];
	if (chosen->nr)
		return chosen;
	*chosen = g->system;
	for (a = draw(g, template_blocks); chosen->nr < a;)
		chosen->ids[chosen->nr++] = g->next_id++;
	return chosen;
}

static struct conversation *start_conversation(struct generator *g)
{
	struct conversation *c = calloc(1, sizeof(*c));
	const struct template *shared;

	if (!c)
		return NULL;
	c->ids = calloc(GENERATE_CONTEXT / GENERATE_BLOCK + 1, sizeof(*c->ids));
	if (!c->ids) {
		free(c);
		return NULL;
	}
	shared = choose_template(g);
	memcpy(c->ids, shared->ids, shared->nr * sizeof(*c->ids));
	c->nr_ids = shared->nr;
	c->at = g->next_start / 1000;
	c->number = g->started++;
	c->turn = 1;
	c->tokens = draw(g, first_prompt);
	if (c->tokens <= shared->nr * GENERATE_BLOCK)
		c->tokens += shared->nr * GENERATE_BLOCK;
	g->next_start += draw(g, gap) * g->mean_gap / 1000;
	return c;
}

/* Append the turn to the trace */
static int emit(struct generator *g, struct conversation *c, uint64_t output)
{
	size_t full = c->tokens / GENERATE_BLOCK, i;
	int ret = trace_begin(g->t, c->at, c->tokens, output);

	while (c->nr_ids < full)
		c->ids[c->nr_ids++] = g->next_id++;
	for (i = 0; !ret && i < full; i++)
		ret = trace_add_id(g->t, c->ids[i]);
	if (!ret && c->tokens % GENERATE_BLOCK)
		ret = trace_add_id(g->t, g->next_id++);
	return ret;
}

/* Prepare the next turn; 0 when the conversation is over */
static int next_turn(struct generator *g, struct conversation *c, uint64_t output)
{
	size_t last = ARRAY_SIZE(goes_on) - 1;
	size_t row = c->turn - 1 < last ? c->turn - 1 : last;

	if (rng_below(&g->rng, 1000) >= goes_on[row])
		return 0;
	c->tokens += output + draw(g, message);
	c->at += draw(g, think);
	c->turn++;
	return c->tokens <= GENERATE_CONTEXT;
}

/* The conversation whose turn is next: one that waits, or a new one */
static struct conversation *next_conversation(struct generator *g)
{
	if (g->nr_heap && g->heap[0]->at <= g->next_start / 1000)
		return heap_pop(g);
	return start_conversation(g);
}

static int generate_one(struct generator *g)
{
	struct conversation *c = next_conversation(g);
	uint64_t output = draw(g, answer);
	int ret;

	if (!c)
		return -ENOMEM;
	ret = emit(g, c, output);
	if (!ret && next_turn(g, c, output)) {
		ret = heap_push(g, c);
		if (!ret)
			return 0;
	}
	conversation_free(c);
	return ret;
}

int generate(struct trace *t, size_t nr, uint64_t seed)
{
	struct generator *g = calloc(1, sizeof(*g));
	int ret = 0;

	if (!g)
		return -ENOMEM;
	g->t = t;
	g->rng = rng_mix(seed);
	g->mean_gap = nr ? SPAN_MS * 1000 * TURNS_X100 / 100 / nr : 0;
	while (g->system.nr < SYSTEM_BLOCKS)
		g->system.ids[g->system.nr++] = g->next_id++;
	while (!ret && t->nr_requests < nr)
		ret = generate_one(g);
	while (g->nr_heap)
		conversation_free(heap_pop(g));
	free(g->heap);
	free(g);
	return ret;
}
