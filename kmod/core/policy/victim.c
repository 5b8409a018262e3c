// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Which segment goes, when pages have values: the one whose pages are missed least for the room that it gives.
 *
 * A survey goes over a segment's entries and sorts them into parts, one for each request that has pages there. What a
 * part costs when it goes is the value of its pages and of those that come behind its first one in the prompt, wherever
 * they are: without it they are worth nothing. The most valuable parts may be moved first, as far as the member's
 * credit goes. What is moved takes room elsewhere, as do tombstones that are carried, these at the price that room had
 * lately: a segment of nothing else would go again and again.
 *
 * Each segment is surveyed when it was sealed, then now and then in turn, and before it is taken: what it costs changes
 * slowly, and one that has become dearer is found out.
 *
 * Only the thread that executes the member's work comes here, so entries stay where they are. Requests of entries are
 * read without their shard's lock: values are guesses anyway.
 */
#include "log/log.h"

#define IN_TURN		96U	/* segments looked at for each that goes */
#define FAR		2U	/* so many times as dear as the last that went: surveyed in one of ROUNDS turns only */
#define ROUNDS		6U
#define BEHIND		4U	/* so many pages behind others count as one that is here */
#define LEAST		4096U	/* what is worth less is not moved: one return while the capacity is written 16 times */

/* How many floors a member with @nr_segs segments has */
u32 kvc_victim_floors(u32 nr_segs)
{
	return (nr_segs + KVC_GROUP - 1) / KVC_GROUP;
}

/* Note what segment @n costs, 0: not known yet */
void kvc_victim_cost(struct kvc_member *m, u32 n, u64 cost)
{
	u32 group = n / KVC_GROUP, end = min(m->nr_segs, (group + 1) * KVC_GROUP), i;
	u64 *floor = &m->floors[group];
	bool rises = cost > *floor && m->costs[n] == *floor;

	m->costs[n] = cost;
	*floor = rises ? U64_MAX : min(*floor, cost);
	for (i = group * KVC_GROUP; rises && i < end; i++)
		*floor = min(*floor, m->costs[i]);
}

/* Strays of a class and of about one age are a part; NULL: there is none, or they were forgotten. *age: out */
static struct kvc_part *stray_part_of(struct kvc_pool *p, struct kvc_survey *s, u32 mark, u32 *age)
{
	u32 number;

	*age = kvc_request_age(p, kvc_mark_id(mark), s->now);
	if (*age == U32_MAX)
		return NULL;
	number = s->strays[kvc_class_stray(mark) - KVC_CLASS_STRAY][kvc_bin_of(p->requests.values, *age)];
	return number && number <= s->nr ? &s->part[number - 1] : NULL;
}

/* Of shared pages, else 0 */
static u32 class_of(u32 mark)
{
	return kvc_mark_shared(mark) ? kvc_class_shared(kvc_mark_shared(mark)) : 0;
}

/* The newest part is looked at first: pages come in rows. */
static struct kvc_part *part_of(struct kvc_survey *s, u32 mark)
{
	u32 id = kvc_mark_id(mark), class = class_of(mark), i;

	for (i = s->nr; i--;)
		if (s->part[i].id == id && s->part[i].class == class)
			return &s->part[i];
	return NULL;
}

/* There are too many: the last one stands for all others, without what is behind them. */
static struct kvc_part *last_part(struct kvc_survey *s)
{
	struct kvc_part *part = &s->part[KVC_PARTS - 1];

	part->id |= KVC_STRAY;
	part->rest = true;
	return part;
}

static struct kvc_part *stray_part(struct kvc_pool *p, struct kvc_survey *s, u32 mark)
{
	u32 class = kvc_class_stray(mark), age;
	struct kvc_part *part = stray_part_of(p, s, mark, &age);

	if (part || age == U32_MAX)
		return part;
	if (s->nr == KVC_PARTS)
		return last_part(s);
	part = &s->part[s->nr++];
	*part = (struct kvc_part){
		.id = KVC_STRAY,
		.own_class = class,
		.worth = kvc_worth(p->requests.values, class, age),
		.first = U32_MAX,
		.bin = (u8)kvc_bin_of(p->requests.values, age),
		.fresh = class != KVC_CLASS_STRAY && age < KVC_AGE_UNITS,
	};
	s->strays[class - KVC_CLASS_STRAY][part->bin] = (u8)s->nr;
	return part;
}

static struct kvc_part *new_part(struct kvc_pool *p, struct kvc_survey *s, u32 mark)
{
	u32 id = kvc_mark_id(mark), class = class_of(mark);
	struct kvc_part *part;
	struct kvc_request r;
	u32 own;

	if (!kvc_request_get(p, id, &r))
		return NULL;
	if (s->nr == KVC_PARTS)
		return last_part(s);
	own = kvc_request_worth(p, &r, r.class, s->now);
	part = &s->part[s->nr++];
	*part = (struct kvc_part){
		.id = id,
		.class = class,
		.own_class = r.class,
		.worth = class ? kvc_request_worth(p, &r, class, s->now) : own,
		.own = own,
		.first = U32_MAX,
		.end = min(r.cut - 1, min(r.reach, r.pages)),
		.tail = !s->ends && !class && r.pages > 1 ? r.pages : 0,
	};
	return part;
}

static os_racy void survey_entry(struct kvc_pool *p, struct kvc_survey *s, const struct kvc_seg *seg,
				 const struct kvc_entry *e)
{
	u32 mark = e->mark, blocks = kvc_blocks(e->length), depth = kvc_known_depth(e);
	struct kvc_part *part;

	if (e->state == KVC_E_TOMB) {
		if (!s->stale_known)
			s->stale = kvc_oldest_stale(p, NULL, NULL);
		s->stale_known = true;
		s->tombs += kvc_tomb_needed(p, seg, NULL, s->stale, e);
		return;
	}
	if (!mark || e->state != KVC_E_LIVE)
		return;
	if (kvc_mark_id(mark) & KVC_STRAY)
		part = stray_part(p, s, mark);
	else
		part = part_of(s, mark);
	if (!part && !(kvc_mark_id(mark) & KVC_STRAY))
		part = new_part(p, s, mark);
	if (!part || (depth && !(part->id & KVC_STRAY) && (depth > part->end || depth == part->tail)))
		return;
	part->pages++;
	part->blocks += blocks;
	if (depth) {
		part->first = min(part->first, depth);
		part->last = max(part->last, depth);
	}
}

/* The first depth that is not moved, of a part whose depths are known: with several members every so many are here. */
static u64 goes_from(const struct kvc_part *part)
{
	return part->first + (u64)part->moved * (part->last - part->first + 1) / part->pages;
}

/* What is behind the pages of the part's request that go, and is not in this segment; in blocks */
static u64 behind(const struct kvc_survey *s, const struct kvc_part *part)
{
	u64 first = U32_MAX;
	u32 pages = 0, i;

	for (i = 0; i < s->nr; i++) {
		const struct kvc_part *other = &s->part[i];

		if (other->id != part->id || other->moved == other->pages)
			continue;
		if (other < part)
			return 0;
		if (other->first != U32_MAX)
			first = min(first, goes_from(other));
		pages += other->pages - other->moved;
	}
	if (first > part->end || part->end - first + 1 <= pages)
		return 0;
	return (u64)(part->end - first + 1 - pages) * (part->blocks / part->pages);
}

/*
 * Before anything is moved. What is behind counts little: it is lost once, and found again when what was before it is
 * stored anew; on each member its share.
 */
static void note_gains(const struct kvc_pool *p, struct kvc_survey *s)
{
	u32 share = BEHIND * kvc_nr_members(p), i;
	struct kvc_part *part;

	for (i = 0; i < s->nr; i++) {
		part = &s->part[i];
		part->gain = part->worth;
		if (part->pages && !(part->id & KVC_STRAY))
			part->gain += part->own * behind(s, part) / ((u64)share * part->blocks);
	}
}

static void sort_parts(struct kvc_survey *s)
{
	struct kvc_part t;
	u32 i, j;

	for (i = 1; i < s->nr; i++) {
		t = s->part[i];
		for (j = i; j && s->part[j - 1].gain < t.gain; j--)
			s->part[j] = s->part[j - 1];
		s->part[j] = t;
	}
	for (i = 0; i < s->nr; i++)
		if (s->part[i].id == KVC_STRAY)
			s->strays[s->part[i].own_class - KVC_CLASS_STRAY][s->part[i].bin] = (u8)(i + 1);
}

/* Entries below @nr; those that come later are tombstones. */
static void survey(struct kvc_member *m, const struct kvc_seg *seg, u32 nr, struct kvc_survey *s)
{
	const struct kvc_eblock *eb = NULL;
	struct kvc_pool *p = m->pool;
	u32 i;

	s->nr = 0;
	s->tombs = 0;
	memset(s->strays, 0, sizeof(s->strays));
	s->ends = kvc_ends_return(p->requests.values);
	for (i = 0; i < nr; i++) {
		if (i % KVC_EBLOCK_ENTRIES == 0)
			eb = kvc_table_get(&p->eblocks, eb ? eb->next : seg->first_eblock);
		survey_entry(p, s, seg, &eb->e[i % KVC_EBLOCK_ENTRIES]);
		if (i % 1024 == 1023)
			os_relax();
	}
	note_gains(p, s);
	sort_parts(s);
}

/*
 * What a page has to be worth more than to be moved, unless it was loaded lately: the dearer the less credit is left.
 * No worth is enough before there is a price.
 */
static u64 threshold(const struct kvc_member *m, u32 budget)
{
	u64 most = (u64)KVC_CREDIT_SEGMENTS * m->pool->seg_blocks;

	if (!m->reclaim.price)
		return U64_MAX;
	return max_t(u64, m->reclaim.price * (15 * most - 9 * min_t(u64, budget, most)) / (5 * most), LEAST);
}

/*
 * The cost of a block that the segment gives, in values; up to @budget blocks are moved before. Each part's moved pages
 * are noted. *lost: the value of the pages in the segment that go, for each block.
 */
static u64 cost_of(const struct kvc_member *m, struct kvc_survey *s, u32 budget, u64 *lost)
{
	u32 room = m->pool->seg_blocks, tombs = kvc_blocks((u64)s->tombs * KVC_REC_FIXED);
	u32 left = min(budget, room / 4 * 3);
	u64 least = threshold(m, budget), cost = tombs * m->reclaim.price, gone = 0;
	u32 i, each;

	for (i = 0; i < s->nr; i++) {
		struct kvc_part *part = &s->part[i];

		part->moved = 0;
		if (!part->pages)
			continue;
		each = part->blocks / part->pages;
		if (part->fresh || (part->gain > least && part->own_class != KVC_CLASS_STRAY && !part->rest))
			part->moved = min(left / each, part->pages);
		left -= part->moved * each;
		room -= part->moved * each;
		gone += (u64)part->worth * (part->pages - part->moved) * each;
	}
	for (i = 0; i < s->nr; i++)
		if (s->part[i].moved < s->part[i].pages && !(s->part[i].id & KVC_STRAY))
			cost += s->part[i].own * behind(s, &s->part[i]);
	*lost = gone / room;
	return tombs < room ? (cost + gone) / (room - tombs) : U64_MAX;
}

/* Member locked. */
void kvc_move_credit(struct kvc_member *m, u32 stored)
{
	WRITE_ONCE(m->credit, min(m->credit + stored, KVC_CREDIT * KVC_CREDIT_SEGMENTS * m->pool->seg_blocks));
}

/* Blocks that may be moved: of all that is stored one in KVC_CREDIT */
u32 kvc_move_budget(const struct kvc_member *m)
{
	return READ_ONCE(m->credit) / KVC_CREDIT;
}

/* Could the segment go, or if @leased those who lease it let it go? *nr: entries that it has. */
static bool open_to(struct kvc_member *m, struct kvc_seg *seg, bool leased, u32 *nr)
{
	bool open;

	os_lock(&m->lock);
	open = leased ? kvc_seg_could_go(m, seg) : kvc_seg_evictable(m, seg);
	*nr = seg->nr_entries;
	os_unlock(&m->lock);
	return open;
}

/* Survey the segment; false when it cannot go. */
static bool consider(struct kvc_member *m, struct kvc_seg *seg, bool leased, u64 *lost)
{
	u32 nr;

	if (READ_ONCE(seg->state) != KVC_S_SEALED || !open_to(m, seg, leased, &nr))
		return false;
	survey(m, seg, nr, m->survey);
	kvc_victim_cost(m, (u32)(seg - m->segs), cost_of(m, m->survey, kvc_move_budget(m), lost));
	return true;
}

/* Is it the segment's turn, the @n-th of the member's? Hardly is one taken soon that is much dearer than others. */
static bool has_turn(const struct kvc_survey *s, const struct kvc_member *m, u32 n)
{
	return m->costs[n] <= FAR * s->least || (n + s->rounds) % ROUNDS == 0;
}

/* The first entries are on their way to the caches. */
static os_racy void look_ahead(const struct kvc_member *m, u32 n)
{
	const struct kvc_seg *seg = &m->segs[n];
	const struct kvc_eblock *eb;
	u32 i;

	if (READ_ONCE(seg->state) != KVC_S_SEALED || !seg->nr_eblocks)
		return;
	eb = kvc_table_get(&m->pool->eblocks, seg->first_eblock);
	for (i = 0; i < 8; i++)
		os_prefetch(&eb->e[i]);
}

/* The next ones in turn, in the beginning all */
static void consider_some(struct kvc_member *m)
{
	struct kvc_survey *s = m->survey;
	u32 nr = s->begun ? min(m->nr_segs, IN_TURN) : m->nr_segs, i;
	u64 lost;

	for (i = 0; i < nr; i++) {
		if (++s->next >= m->nr_segs) {
			s->next = 0;
			s->rounds++;
		}
		if (!has_turn(s, m, s->next))
			continue;
		if (s->next + 1 < m->nr_segs && has_turn(s, m, s->next + 1))
			look_ahead(m, s->next + 1);
		consider(m, &m->segs[s->next], false, &lost);
		os_relax();
	}
	s->begun = true;
}

/* Of who has to evict his own, nothing else goes. */
bool kvc_victim_may_be(const struct kvc_member *m, const struct kvc_seg *seg)
{
	u32 whose = m->reclaim.whose;

	return whose ? kvc_seg_owner(seg) == whose && kvc_seg_evictable(m, seg) : kvc_seg_can_go(m, seg);
}

/* The oldest among equals, or NULL. What was stored just now stays, where there is room for that. */
static struct kvc_seg *cheapest(const struct kvc_member *m, const struct kvc_seg *newest)
{
	struct kvc_seg *best = NULL, *seg;
	u64 least = U64_MAX;
	u32 i;

	for (i = 0; i < m->nr_segs; i++) {
		if (i % KVC_GROUP == 0 && m->floors[i / KVC_GROUP] > least) {
			i += KVC_GROUP - 1;
			continue;
		}
		if (m->costs[i] > least)
			continue;
		seg = &m->segs[i];
		if (!kvc_victim_may_be(m, seg) || seg == newest ||
		    (m->costs[i] == least && best && best->open_seq < seg->open_seq))
			continue;
		least = m->costs[i];
		best = seg;
	}
	return best;
}

/* The first victim says what the price is, and is planned anew. Room that costs nothing says nothing about it. */
static void note_price(struct kvc_member *m, u64 lost)
{
	u64 *price = &m->reclaim.price;

	if (*price && lost)
		*price = max_t(u64, (*price * 19 + lost) / 20, 1);
	if (*price)
		return;
	cost_of(m, m->survey, 0, price);
	cost_of(m, m->survey, kvc_move_budget(m), &lost);
}

/* What is asked for from now on is kept, whatever the surveys see: so it is later than survey->now. */
static void look_out(struct kvc_member *m)
{
	m->survey->now = kvc_clock(m->pool);
	m->survey->stale_known = false;
	kvc_values_refresh(m->pool);
	kvc_request_strays(m->pool);
}

/* Plan what to move of a segment that goes whatever it costs. No lock held. */
void kvc_victim_plan(struct kvc_member *m, struct kvc_seg *seg)
{
	u64 lost;

	look_out(m);
	consider(m, seg, true, &lost);
}

/* The segment that goes next, with the plan what to move of it; NULL: none was found. No lock held. */
struct kvc_seg *kvc_victim_choose(struct kvc_member *m)
{
	struct kvc_seg *seg, *newest;
	u64 before, lost;
	u32 tries;

	look_out(m);
	consider_some(m);
	os_lock(&m->lock);
	newest = m->nr_segs < KVC_SEGMENTS_FEW ? NULL : m->newest;
	os_unlock(&m->lock);
	for (tries = 0; tries < IN_TURN; tries++) {
		os_relax();
		seg = cheapest(m, newest);
		if (!seg)
			break;
		before = m->costs[seg - m->segs];
		if (!consider(m, seg, false, &lost) || m->costs[seg - m->segs] > before)
			continue;
		if (m->reclaim.whose)
			return seg;
		note_price(m, lost);
		m->survey->least = before;
		return seg;
	}
	return NULL;
}

/* Is the page to be moved, by the plan, or because somebody asked for it since? Its shard is locked. */
bool kvc_victim_keeps(const struct kvc_member *m, const struct kvc_entry *e)
{
	u32 id = kvc_mark_id(e->mark), depth = kvc_known_depth(e), age;
	const struct kvc_part *part;
	struct kvc_request r;

	if (id & KVC_STRAY)
		part = stray_part_of(m->pool, m->survey, e->mark, &age);
	else
		part = part_of(m->survey, e->mark);
	if ((!part || part->own_class >= KVC_CLASS_LOADED) && kvc_request_get(m->pool, id, &r) &&
	    r.when >= m->survey->now)
		return !(id & KVC_STRAY) || kvc_mark_shared(e->mark);
	if (!part)
		return false;
	if (!depth || part->id & KVC_STRAY)
		return part->moved;
	return depth != part->tail && depth >= part->first && part->pages && depth < goes_from(part);
}
