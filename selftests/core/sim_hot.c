// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that are loaded again and again, by users who never ask with MATCH, while others store what nobody reads: what was
 * loaded stays for at least a part of the time in which its member is written once, as long as these pages together are
 * few enough to be rewritten whenever their segment's turn comes. Not before all members were written once since the
 * attach, its own too, which may be long after the others: until reclaim is at work there it knows of no ages, and may
 * rewrite nothing. See sim.h.
 */
#include "sim.h"

#define BETWEEN		8U	/* loads of a page: of its member, that part is stored meanwhile */
#define STAYS		4U	/* so is that part after its last load, and it is still there */
#define FEW		12U	/* they are, when they take no more than that part */

/* Blocks of the smallest member: where stores go to one alone it is written so much sooner */
static u64 room(const struct sim *s)
{
	u32 least = s->cfg.nr_segs[0], i;

	for (i = 1; i < s->cfg.nr_members; i++)
		least = min(least, s->cfg.nr_segs[i]);
	return least * (s->cfg.segment_size / KVC_BLOCK);
}

/* May they all be rewritten when their segments' turn comes? A page that fills most of one is not. */
static bool few(struct sim *s)
{
	u64 blocks = 0;
	u32 i, n;

	for (i = 0; i < s->cfg.hot; i++) {
		n = kvc_blocks(model_key(s, 0, 0, i)->cur.length);
		if (n > s->cfg.segment_size / KVC_BLOCK / 2)
			return false;
		blocks += n;
	}
	return blocks <= room(s) / FEW;
}

/* Nobody knows what was loaded before. */
void hot_begin(struct sim *s)
{
	u32 i;

	for (i = 0; i < s->nr_keys; i++)
		s->keys[i].loaded = (struct mload){ 0 };
	s->hot.next = s->placed;
	s->hot.begun = s->placed;
	memset(s->hot.placed, 0, sizeof(s->hot.placed));
}

/* Is it time for the next of them? */
void hot_step(struct sim *s)
{
	struct mkey *k;

	if (!s->cfg.hot || s->placed < s->hot.next)
		return;
	s->hot.next = s->placed + room(s) / BETWEEN / s->cfg.hot;
	k = model_key(s, 0, 0, s->hot.turn++ % s->cfg.hot);
	if (ops_present(s, k)) {
		ops_load_key(s, k);
		s->n.hot_loads++;
	} else {
		ops_store_key(s, k);
	}
}

void hot_loaded(struct sim *s, struct mkey *k)
{
	struct mload *l = &k->loaded;

	if (!s->cfg.hot)
		return;
	if (l->version != k->cur.version || s->placed - l->last > room(s) / STAYS)
		*l = (struct mload){ .version = k->cur.version, .first = s->placed };
	l->last = s->placed;
}

void hot_evicted(struct sim *s, struct mkey *k)
{
	if (k->tenant || k->keyspace || k->id >= s->cfg.hot || k->loaded.version != k->cur.version)
		return;
	s->n.hot_evicted++;
	if (s->placed - s->hot.begun < room(s) * s->cfg.nr_members)
		return;
	if (s->hot.placed[k->at.member] < s->cfg.nr_segs[k->at.member] * (s->cfg.segment_size / KVC_BLOCK))
		return;
	/* who is known for too short a time may be on its way out */
	sim_check(k->loaded.last - k->loaded.first < room(s) / STAYS || s->placed - k->loaded.last > room(s) / STAYS || !few(s),
		  "%s v%u was evicted %llu blocks after it was loaded, as it was for %llu", model_name(k), k->cur.version,
		  (unsigned long long)(s->placed - k->loaded.last),
		  (unsigned long long)(k->loaded.last - k->loaded.first));
}
