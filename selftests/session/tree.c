// SPDX-License-Identifier: GPL-2.0
/*
 * The tree: whatever comes and goes, against a list that is searched from end to end; and how deep it gets.
 */
#include "parts.h"
#include "session/tree.h"

#define NODES	512U

static struct kvctx_tree_node nodes[NODES];

static u64 least(void)
{
	u64 key = U64_MAX;
	u32 i;

	for (i = 0; i < NODES; i++)
		if (nodes[i].in)
			key = min(key, nodes[i].key);
	return key;
}

static bool there(u64 key)
{
	u32 i;

	for (i = 0; i < NODES; i++)
		if (nodes[i].in && nodes[i].key == key)
			return true;
	return false;
}

static bool agrees(const struct kvctx_tree *t, u64 key)
{
	const struct kvctx_tree_node *first = kvctx_tree_first(t), *found = kvctx_tree_find(t, key);

	return (first ? first->key : U64_MAX) == least() && !found == !there(key) &&
	       (!found || (found->in && found->key == key));
}

static u32 depth(const struct kvctx_tree_node *n)
{
	return n ? 1 + max(depth(n->left), depth(n->right)) : 0;
}

/* @keys: how many different ones; many nodes share one where they are few. */
static void test_any(u32 keys)
{
	struct kvctx_tree t = {};
	u32 seed = keys, i, n;
	bool right = true;

	for (i = 0; i < 20000; i++) {
		n = draw(&seed, NODES);
		if (nodes[n].in) {
			kvctx_tree_remove(&t, &nodes[n]);
		} else {
			nodes[n].key = draw(&seed, keys);
			kvctx_tree_add(&t, &nodes[n]);
		}
		right = right && agrees(&t, draw(&seed, keys));
	}
	EXPECT(right);
	for (n = 0; n < NODES; n++)
		if (nodes[n].in)
			kvctx_tree_remove(&t, &nodes[n]);
	EXPECT(!t.root);
}

static void test_ordered(void)
{
	struct kvctx_tree t = {};
	u32 i;

	for (i = 0; i < NODES; i++) {
		nodes[i].key = i;
		kvctx_tree_add(&t, &nodes[i]);
	}
	/* a list of them would be 512 deep, the best tree is 10 */
	EXPECT(depth(t.root) < 40);
	for (i = 0; i < NODES; i++)
		kvctx_tree_remove(&t, &nodes[i]);
}

/* Keys in the order of the ranks of a tree that somebody thinks he knows, which would make a list of it */
static void test_chosen(u64 guess)
{
	struct kvctx_tree t = {};
	u32 i;

	for (i = 0; i < NODES; i++) {
		guess = guess * 6364136223846793005ULL + 1442695040888963407ULL;
		nodes[i].key = guess >> 32;
		kvctx_tree_add(&t, &nodes[i]);
	}
	EXPECT(depth(t.root) < 40);
	for (i = 0; i < NODES; i++)
		kvctx_tree_remove(&t, &nodes[i]);
}

void test_trees(void)
{
	test_any(3);
	test_any(NODES);
	test_any(1U << 30);
	test_ordered();
	test_chosen(0);
	test_chosen(1);
}
