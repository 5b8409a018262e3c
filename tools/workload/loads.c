// SPDX-License-Identifier: GPL-2.0
/*
 * Loads other than conversations, see loads.h.
 *
 *	documents	few turns: more than half of the requests share nothing; a third are questions about a
 *			document, nearly the whole of an earlier prompt, after a short pause or a long one; a third of
 *			all pages are used three times or more
 *	pages		requests of single pages by Zipf's law: the n-th is asked for 1/n as often as the first
 *	hot		every other request is of one of 32 pages, the others of pages that nobody asks for again
 *
 * The latter two are what users ask for who know nothing of prompts (--no-match). Integers only, as in generate.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "generate.h"
#include "loads.h"
#include "rng.h"
#include "util.h"

#define DOCUMENTS	64U	/* that questions are asked about at a time */
#define DOCUMENTS_NEAR	8U	/* of these, about which half of the questions are */
#define DOCUMENT_LIFE	6U	/* questions about one, on average */
#define DOCUMENT_PAGES	24U	/* the least; some have 15 times as many */
#define QUESTION_PAGES	5U	/* the most */
#define ALONE_PAGES	11U	/* the most of a prompt that shares nothing */
#define ALONE_SHARE	550U	/* of these prompts, in thousandths */
#define PAGES_EACH	5U	/* requests for each page that there is */
#define HOT_PAGES	32U

struct loader {
	struct trace *t;
	uint64_t rng;
	uint64_t next_id;
};

struct document {
	uint64_t first;
	uint32_t pages;		/* 0: none yet */
};

static int loader_add_row(struct loader *l, uint64_t first, uint32_t pages)
{
	int ret = 0;
	uint32_t i;

	for (i = 0; !ret && i < pages; i++)
		ret = trace_add_id(l->t, first + i);
	return ret;
}

/* Pages that are named for the first time */
static int loader_add_new(struct loader *l, uint32_t pages)
{
	l->next_id += pages;
	return loader_add_row(l, l->next_id - pages, pages);
}

static int loader_begin(struct loader *l)
{
	return trace_begin(l->t, l->t->nr_requests, 0, 0);
}

/* From DOCUMENT_PAGES to 16 times that, the longer the rarer: the least of three draws */
static void document_begin(struct loader *l, struct document *d)
{
	uint32_t most = 15 * DOCUMENT_PAGES, a = rng_below(&l->rng, most), b = rng_below(&l->rng, most);
	uint32_t c = rng_below(&l->rng, most);

	d->pages = DOCUMENT_PAGES + (a < b ? (a < c ? a : c) : (b < c ? b : c));
	d->first = l->next_id;
	l->next_id += d->pages;
}

static int document_ask(struct loader *l, struct document *documents)
{
	struct document *d = &documents[rng_below(&l->rng, rng_below(&l->rng, 2) ? DOCUMENTS : DOCUMENTS_NEAR)];
	int ret;

	/* in the beginning there is none, later another one takes its place now and then */
	if (!d->pages || !rng_below(&l->rng, DOCUMENT_LIFE))
		document_begin(l, d);
	ret = loader_add_row(l, d->first, d->pages);
	return ret ? ret : loader_add_new(l, 1 + rng_below(&l->rng, QUESTION_PAGES));
}

static int make_documents(struct trace *t, size_t nr, uint64_t seed)
{
	struct loader l = { .t = t, .rng = rng_mix(seed) };
	struct document documents[DOCUMENTS] = { 0 };
	int ret = 0;

	while (!ret && t->nr_requests < nr) {
		ret = loader_begin(&l);
		if (ret)
			break;
		if (rng_below(&l.rng, 1000) < ALONE_SHARE)
			ret = loader_add_new(&l, 1 + rng_below(&l.rng, ALONE_PAGES));
		else
			ret = document_ask(&l, documents);
	}
	return ret;
}

/* The first number whose sum is more than @u */
static size_t sums_find(const uint64_t *sums, size_t nr, uint64_t u)
{
	size_t low = 0, high = nr - 1, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (sums[middle] > u)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static int make_pages(struct trace *t, size_t nr, uint64_t seed)
{
	struct loader l = { .t = t, .rng = rng_mix(seed) };
	size_t pages = nr / PAGES_EACH + 1, i;
	uint64_t *sums = calloc(pages, sizeof(*sums)), sum = 0;
	int ret = sums ? 0 : -ENOMEM;

	for (i = 0; !ret && i < pages; i++) {
		sum += (1ULL << 32) / (i + 1);
		sums[i] = sum;
	}
	while (!ret && t->nr_requests < nr) {
		ret = loader_begin(&l);
		if (!ret)
			ret = trace_add_id(t, sums_find(sums, pages, rng_next(&l.rng) % sum));
	}
	free(sums);
	return ret;
}

static int make_hot(struct trace *t, size_t nr, uint64_t seed)
{
	struct loader l = { .t = t, .rng = rng_mix(seed), .next_id = HOT_PAGES };
	int ret = 0;

	while (!ret && t->nr_requests < nr) {
		ret = loader_begin(&l);
		if (ret)
			break;
		if (t->nr_requests % 2)
			ret = trace_add_id(t, rng_below(&l.rng, HOT_PAGES));
		else
			ret = loader_add_new(&l, 1);
	}
	return ret;
}

const struct load loads[] = {
	{ "conversations",	generate },
	{ "documents",		make_documents },
	{ "pages",		make_pages },
	{ "hot",		make_hot },
	{ NULL },
};

const struct load *load_find(const char *name)
{
	const struct load *l;

	for (l = loads; l->name; l++) {
		if (!strcmp(l->name, name))
			return l;
	}
	return NULL;
}
