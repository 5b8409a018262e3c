// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * A treap: a search tree by key and address that is a heap by ranks, which are drawn by chance when a node is added. So
 * its shape is that of a tree whose nodes came in no order, whatever order they came in: keys are the caller's choice,
 * and no caller can foretell a rank.
 */
#include "tree.h"

static bool tree_less(const struct kvctx_tree_node *a, const struct kvctx_tree_node *b)
{
	return a->key != b->key ? a->key < b->key : a < b;
}

static u32 tree_rank(struct kvctx_tree *t)
{
	while (!t->seed)
		t->seed = os_random64();
	/* Knuth's MMIX; the upper bits are the better ones */
	t->seed = t->seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (u32)(t->seed >> 32);
}

/* It stands where the first node of a lower rank stood, which is split into what is less and what is not. */
void kvctx_tree_add(struct kvctx_tree *t, struct kvctx_tree_node *n)
{
	struct kvctx_tree_node **link = &t->root, **left = &n->left, **right = &n->right, *at;

	n->rank = tree_rank(t);
	n->in = true;
	while (*link && (*link)->rank >= n->rank)
		link = tree_less(n, *link) ? &(*link)->left : &(*link)->right;
	for (at = *link; at; ) {
		if (tree_less(at, n)) {
			*left = at;
			left = &at->right;
			at = *left;
		} else {
			*right = at;
			right = &at->left;
			at = *right;
		}
	}
	*left = NULL;
	*right = NULL;
	*link = n;
}

void kvctx_tree_remove(struct kvctx_tree *t, struct kvctx_tree_node *n)
{
	struct kvctx_tree_node **link = &t->root, *left = n->left, *right = n->right;

	while (*link != n)
		link = tree_less(n, *link) ? &(*link)->left : &(*link)->right;
	while (left && right) {
		if (left->rank > right->rank) {
			*link = left;
			link = &left->right;
			left = *link;
		} else {
			*link = right;
			link = &right->left;
			right = *link;
		}
	}
	*link = left ? left : right;
	n->in = false;
}

struct kvctx_tree_node *kvctx_tree_first(const struct kvctx_tree *t)
{
	struct kvctx_tree_node *n = t->root;

	while (n && n->left)
		n = n->left;
	return n;
}

struct kvctx_tree_node *kvctx_tree_find(const struct kvctx_tree *t, u64 key)
{
	struct kvctx_tree_node *n = t->root;

	while (n && n->key != key)
		n = key < n->key ? n->left : n->right;
	return n;
}
