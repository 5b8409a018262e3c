/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * Nodes inside other structures, ordered by a number: the first one, one of a number, and any of them out again, each
 * in logarithmic time and without memory of its own. Nodes of one number have no order. Who has the tree locks it.
 */
#ifndef KVCTX_TREE_H
#define KVCTX_TREE_H

#include "os.h"

struct kvctx_tree_node {
	struct kvctx_tree_node *left, *right;
	u64 key;			/* does not change while it is in a tree */
	u32 rank;			/* not below those of the nodes under it */
	bool in;			/* a tree */
};

struct kvctx_tree {
	struct kvctx_tree_node *root;	/* all zero: empty */
	u64 seed;			/* of the ranks; 0: to be drawn */
};

void kvctx_tree_add(struct kvctx_tree *t, struct kvctx_tree_node *n);
void kvctx_tree_remove(struct kvctx_tree *t, struct kvctx_tree_node *n);
struct kvctx_tree_node *kvctx_tree_first(const struct kvctx_tree *t);		/* the least; NULL: empty */
struct kvctx_tree_node *kvctx_tree_find(const struct kvctx_tree *t, u64 key);	/* NULL: none */

#endif
