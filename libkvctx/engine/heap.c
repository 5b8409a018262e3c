// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A binary heap whose nodes know their places: the least key first, and any node out again, in logarithmic time.
 */
#include "session.h"

/* For @nr nodes in all. */
int kve_heap_room(struct kve_heap *h, u32 nr)
{
	struct kve_heap_node **nodes;
	u32 room = max(nr, 2 * h->room);

	if (nr <= h->room)
		return 0;
	nodes = realloc(h->nodes, ((size_t)room + 1) * sizeof(*nodes));
	if (!nodes)
		return -ENOMEM;
	h->nodes = nodes;
	h->room = room;
	return 0;
}

static void heap_put(struct kve_heap *h, u32 at, struct kve_heap_node *n)
{
	h->nodes[at] = n;
	n->at = at;
}

static void heap_rise(struct kve_heap *h, u32 at, struct kve_heap_node *n)
{
	for (; at > 1 && h->nodes[at / 2]->key > n->key; at /= 2)
		heap_put(h, at, h->nodes[at / 2]);
	heap_put(h, at, n);
}

static void heap_sink(struct kve_heap *h, u32 at, struct kve_heap_node *n)
{
	u32 child;

	for (; (child = 2 * at) <= h->nr; at = child) {
		if (child < h->nr && h->nodes[child + 1]->key < h->nodes[child]->key)
			child++;
		if (h->nodes[child]->key >= n->key)
			break;
		heap_put(h, at, h->nodes[child]);
	}
	heap_put(h, at, n);
}

/* There is room. */
void kve_heap_add(struct kve_heap *h, struct kve_heap_node *n)
{
	heap_rise(h, ++h->nr, n);
}

void kve_heap_remove(struct kve_heap *h, struct kve_heap_node *n)
{
	struct kve_heap_node *last = h->nodes[h->nr--];
	u32 at = n->at;

	n->at = 0;
	if (last == n)
		return;
	if (at > 1 && h->nodes[at / 2]->key > last->key)
		heap_rise(h, at, last);
	else
		heap_sink(h, at, last);
}

struct kve_heap_node *kve_heap_first(const struct kve_heap *h)
{
	return h->nr ? h->nodes[1] : NULL;
}
