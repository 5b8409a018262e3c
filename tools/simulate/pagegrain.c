// SPDX-License-Identifier: GPL-2.0
/*
 * Page-grain caches, see pagegrain.h.
 *
 * LRU and FIFO keep their pages in a list, newest first; they differ in whether a page that is used again moves to the
 * front. The optimum knows the trace; a heap orders its pages by their next use. Every use puts a new element into the
 * heap, and the old one stays there, out of date, until it comes to the top.
 *
 * Furthest next use finds as many pages as any rule can. That more of them are leading pages is possible, but no rule
 * for that is known that can be computed.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pagegrain.h"

#define NONE	UINT32_MAX

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The place of its id among all of them is a page's number */
static int number_pages(struct refs *r)
{
	const struct trace *t = r->trace;
	uint64_t *ids = malloc(t->nr_ids * sizeof(*ids));
	size_t i;

	if (!ids)
		return -ENOMEM;
	memcpy(ids, t->ids, t->nr_ids * sizeof(*ids));
	qsort(ids, t->nr_ids, sizeof(*ids), compare);
	for (i = 0; i < t->nr_ids; i++) {
		if (!i || ids[i] != ids[r->nr_pages - 1])
			ids[r->nr_pages++] = ids[i];
	}
	for (i = 0; i < t->nr_ids; i++)
		r->pages[i] = (uint64_t *)bsearch(&t->ids[i], ids, r->nr_pages, sizeof(*ids), compare) - ids;
	free(ids);
	return 0;
}

/* From the end of the trace; last: the request before which each page was met, which is later in the trace */
static int link_requests(struct refs *r)
{
	const struct trace *t = r->trace;
	uint32_t *last = malloc(r->nr_pages * sizeof(*last));
	size_t i, j;

	if (!last)
		return -ENOMEM;
	memset(last, 0xff, r->nr_pages * sizeof(*last));
	for (i = t->nr_requests; i-- > 0;) {
		const struct trace_request *q = &t->requests[i];

		for (j = q->first; j < q->first + q->nr; j++)
			r->next[j] = last[r->pages[j]];
		for (j = q->first; j < q->first + q->nr; j++)
			last[r->pages[j]] = i;
	}
	free(last);
	return 0;
}

int refs_init(struct refs *r, const struct trace *t)
{
	int ret;

	memset(r, 0, sizeof(*r));
	if (t->nr_ids >= NONE)
		return -EOVERFLOW;
	r->trace = t;
	r->pages = malloc(t->nr_ids * sizeof(*r->pages));
	r->next = malloc(t->nr_ids * sizeof(*r->next));
	ret = r->pages && r->next ? number_pages(r) : -ENOMEM;
	if (!ret)
		ret = link_requests(r);
	if (ret)
		refs_free(r);
	return ret;
}

void refs_free(struct refs *r)
{
	free(r->pages);
	free(r->next);
	memset(r, 0, sizeof(*r));
}

/* The pages that are present, as a ring through @head, which is a page that there is not */
struct list {
	uint32_t *newer, *older;	/* NONE: not present */
	uint32_t head;
};

static void list_unlink(struct list *l, uint32_t page)
{
	l->newer[l->older[page]] = l->newer[page];
	l->older[l->newer[page]] = l->older[page];
	l->older[page] = NONE;
}

static void list_add(struct list *l, uint32_t page)
{
	uint32_t newest = l->older[l->head];

	l->older[page] = newest;
	l->newer[page] = l->head;
	l->newer[newest] = page;
	l->older[l->head] = page;
}

static uint32_t list_oldest(const struct list *l)
{
	return l->newer[l->head];
}

static int list_init(struct list *l, size_t nr_pages)
{
	size_t bytes = (nr_pages + 1) * sizeof(*l->newer);

	l->newer = malloc(bytes);
	l->older = malloc(bytes);
	if (!l->newer || !l->older)
		return -ENOMEM;
	memset(l->older, 0xff, bytes);
	l->head = nr_pages;
	l->newer[l->head] = l->head;
	l->older[l->head] = l->head;
	return 0;
}

static void list_free(struct list *l)
{
	free(l->newer);
	free(l->older);
}

/* Uses of pages; of the element on top the next use is furthest, and among equals it was used first */
struct heap {
	uint64_t *uses;
	size_t nr;
};

static uint64_t heap_use(uint32_t next, uint32_t number)
{
	return (uint64_t)next << 32 | (uint32_t)~number;
}

static uint32_t use_next(uint64_t use)
{
	return use >> 32;
}

static uint32_t use_number(uint64_t use)
{
	return ~(uint32_t)use;
}

static void heap_push(struct heap *h, uint64_t use)
{
	size_t at = h->nr++;

	for (; at && h->uses[(at - 1) / 2] < use; at = (at - 1) / 2)
		h->uses[at] = h->uses[(at - 1) / 2];
	h->uses[at] = use;
}

static void heap_pop(struct heap *h)
{
	uint64_t last = h->uses[--h->nr];
	size_t at = 0, child;

	for (; (child = 2 * at + 1) < h->nr; at = child) {
		if (child + 1 < h->nr && h->uses[child + 1] > h->uses[child])
			child++;
		if (h->uses[child] <= last)
			break;
		h->uses[at] = h->uses[child];
	}
	h->uses[at] = last;
}

struct cache {
	const struct refs *refs;
	size_t capacity;
	size_t nr;		/* pages present */
	/* FIFO, LRU */
	struct list list;
	uint32_t *missing;	/* pages of a request */
	/* Optimum: a use has the number of its reference */
	uint32_t *used;		/* number of the last use of a page, NONE: not present */
	struct heap heap;
};

static bool in_list(const struct cache *c, uint32_t page)
{
	return c->list.older[page] != NONE;
}

static void put_newest(struct cache *c, uint32_t page)
{
	list_add(&c->list, page);
	if (c->nr < c->capacity)
		c->nr++;
	else
		list_unlink(&c->list, list_oldest(&c->list));
}

static void put_fifo(struct cache *c, const struct trace_request *q)
{
	const uint32_t *pages = c->refs->pages + q->first;
	size_t nr = 0, i;

	for (i = 0; i < q->nr; i++) {
		if (!in_list(c, pages[i]))
			c->missing[nr++] = pages[i];
	}
	for (i = 0; i < nr; i++) {
		if (!in_list(c, c->missing[i]))
			put_newest(c, c->missing[i]);
	}
}

static void put_lru(struct cache *c, const struct trace_request *q)
{
	const uint32_t *pages = c->refs->pages + q->first;
	size_t i;

	for (i = q->nr; i-- > 0;) {
		if (in_list(c, pages[i])) {
			list_unlink(&c->list, pages[i]);
			c->nr--;
		}
		put_newest(c, pages[i]);
	}
}

static bool is_used(const struct cache *c, uint32_t page)
{
	return c->used[page] != NONE;
}

/* Page of the use on top that is up to date. There is one */
static uint32_t furthest(struct cache *c)
{
	uint32_t number = use_number(c->heap.uses[0]);

	while (c->used[c->refs->pages[number]] != number) {
		heap_pop(&c->heap);
		number = use_number(c->heap.uses[0]);
	}
	return c->refs->pages[number];
}

static void drop(struct cache *c, uint32_t page)
{
	c->used[page] = NONE;
	c->nr--;
}

/* Is there room, or a page to give way to one that is needed by request @next? */
static bool make_way(struct cache *c, uint32_t next)
{
	uint32_t page;

	if (c->nr < c->capacity)
		return true;
	page = furthest(c);
	if (use_next(c->heap.uses[0]) <= next)
		return false;
	drop(c, page);
	return true;
}

static void put_optimum(struct cache *c, const struct trace_request *q)
{
	size_t i;

	for (i = q->first; i < q->first + q->nr; i++) {
		uint32_t page = c->refs->pages[i], next = c->refs->next[i];

		if (is_used(c, page))
			drop(c, page);
		if (!make_way(c, next))
			continue;
		c->used[page] = i;
		c->nr++;
		heap_push(&c->heap, heap_use(next, i));
	}
}

struct rule {
	bool (*present)(const struct cache *c, uint32_t page);
	void (*put)(struct cache *c, const struct trace_request *q);
};

static const struct rule rules[NR_PAGEGRAIN] = {
	[PAGEGRAIN_FIFO]	= { in_list, put_fifo },
	[PAGEGRAIN_LRU]		= { in_list, put_lru },
	[PAGEGRAIN_OPTIMUM]	= { is_used, put_optimum },
};

static size_t play_request(struct cache *c, const struct rule *rule, const struct trace_request *q)
{
	size_t hits = 0;

	while (hits < q->nr && rule->present(c, c->refs->pages[q->first + hits]))
		hits++;
	rule->put(c, q);
	return hits;
}

static int cache_init(struct cache *c, const struct refs *r, size_t capacity)
{
	memset(c, 0, sizeof(*c));
	c->refs = r;
	c->capacity = capacity;
	c->missing = malloc(r->trace->longest * sizeof(*c->missing));
	c->used = malloc(r->nr_pages * sizeof(*c->used));
	c->heap.uses = malloc(r->trace->nr_ids * sizeof(*c->heap.uses));
	if (!c->missing || !c->used || !c->heap.uses)
		return -ENOMEM;
	memset(c->used, 0xff, r->nr_pages * sizeof(*c->used));
	return list_init(&c->list, r->nr_pages);
}

static void cache_free(struct cache *c)
{
	list_free(&c->list);
	free(c->missing);
	free(c->used);
	free(c->heap.uses);
}

int pagegrain_hits(const struct refs *r, enum pagegrain which, size_t capacity, const volatile sig_atomic_t *stop,
		   uint64_t *hits)
{
	const struct trace *t = r->trace;
	struct cache c;
	size_t i;
	int ret;

	*hits = 0;
	ret = cache_init(&c, r, capacity);
	for (i = 0; !ret && i < t->nr_requests; i++) {
		*hits += play_request(&c, &rules[which], &t->requests[i]);
		if (*stop)
			ret = -EINTR;
	}
	cache_free(&c);
	return ret;
}
