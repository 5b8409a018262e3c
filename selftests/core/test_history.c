// SPDX-License-Identifier: GPL-2.0
/*
 * One history or two: everything that can become of the superblocks of a small pool.
 *
 * From the first state on every attach of every set of members is tried that kvc_one_history() accepts, and in it a cut
 * of power after any of the writes, in whatever order members are written; members that are lost, and that are noted;
 * changes of the configuration that reach some members. Each state is looked at once, and each set of members in it.
 *
 * A use is a time in which a set of members stores pages and acknowledges them: from the end of an attach, or from the
 * note of a loss. Beside the superblock the model knows of each member
 *
 *	knows	the uses that whoever wrote its superblock knew of: later uses have higher numbers than these
 *	used	the uses that it took part in itself
 *	heard	these, and what those that it took part in with had heard of; a superblock that all of its members have
 *		may have been used
 *	met	the same of all attaches, also those that were cut
 *
 * Two members are split when each was used in a way that the other's superblock does not know of: their numbers cannot
 * be compared. They have to be refused. They are one when what one has heard of, and met, is part of what the other has.
 * They have to be accepted if no member is missing. Between the two is a member that was brought up to date in an attach
 * that was cut, and then used alone: either answer is right. And of three members more is refused than has to be when an
 * attach that lacked one was cut, and went on without another one.
 */
#include "test.h"

#define MEMBERS_MAX	4U
#define SEQ_FIRST	2U

struct holding {
	u8 seq, there, version, reserved;	/* the superblock */
	u16 knows, used;
	u16 heard, met;
};

struct state {
	struct holding m[MEMBERS_MAX];
	u16 cut_degraded, reserved[3];	/* what lacked a member was cut */
};

static struct explorer {
	u32 nr;				/* members */
	u64 one, split;			/* sets of members that were judged */
	u32 nr_states, room, nr_slots;
	struct state *states;
	u32 *slots;			/* hash table of states, from 1 */
	struct kvc_super super[MEMBERS_MAX];
} ex;

/* States */

static u32 hash_of(const struct state *s)
{
	return kvc_crc_finish(kvc_crc_feed(KVC_CRC_INIT, s, sizeof(*s)));
}

/*
 * Events are the same if the same members know of them, and make no difference any more if all do: of each kind one is
 * left, in the order of who they are. @of: a mask of each member, and another one of each.
 */
static void reduce_events(u16 *of[2][MEMBERS_MAX])
{
	u8 kinds[1U << 2 * MEMBERS_MAX] = { 0 };
	u32 bit, i, kind, next = 0;

	for (bit = 0; bit < 16; bit++) {
		for (i = 0, kind = 0; i < 2 * ex.nr; i++)
			kind |= (*of[i / ex.nr][i % ex.nr] >> bit & 1U) << i;
		kinds[kind] = 1;
	}
	for (i = 0; i < 2 * ex.nr; i++)
		*of[i / ex.nr][i % ex.nr] = 0;
	for (kind = 1; kind < BIT(2 * ex.nr); kind++) {
		if (!kinds[kind] || (kind & (BIT(ex.nr) - 1)) == BIT(ex.nr) - 1)
			continue;
		assert_true(next < 16);
		for (i = 0; i < 2 * ex.nr; i++)
			*of[i / ex.nr][i % ex.nr] |= (u16)((kind >> i & 1U) << next);
		next++;
	}
}

/* The same but for numbers: what all know of, and what comes before all, is left out. */
static void reduce(struct state *s)
{
	u16 *uses[2][MEMBERS_MAX], *heard[2][MEMBERS_MAX], *met[2][MEMBERS_MAX], none[MEMBERS_MAX] = { 0 };
	u8 least = 255, names[256] = { 0 }, next = 0;
	u32 i;

	for (i = 0; i < ex.nr; i++)
		least = min(least, s->m[i].seq);
	for (i = 0; i < ex.nr; i++) {
		struct holding *h = &s->m[i];

		h->seq = (u8)(h->seq - least + SEQ_FIRST);
		if (!names[h->version])
			names[h->version] = ++next;
		h->version = names[h->version];
	}
	for (i = 0; i < ex.nr; i++) {
		uses[0][i] = &s->m[i].knows;
		uses[1][i] = &s->m[i].used;
		heard[0][i] = &s->m[i].heard;
		heard[1][i] = &none[i];
		met[0][i] = &s->m[i].met;
		met[1][i] = &none[i];
	}
	reduce_events(uses);
	reduce_events(heard);
	reduce_events(met);
}

static void grow_slots(void)
{
	u32 i, at;

	ex.nr_slots = ex.nr_slots ? 4 * ex.nr_slots : 1U << 16;
	free(ex.slots);
	ex.slots = calloc(ex.nr_slots, sizeof(*ex.slots));
	assert_non_null(ex.slots);
	for (i = 0; i < ex.nr_states; i++) {
		for (at = hash_of(&ex.states[i]) % ex.nr_slots; ex.slots[at]; at = (at + 1) % ex.nr_slots)
			;
		ex.slots[at] = i + 1;
	}
}

static void visit(struct state s)
{
	u32 at;

	reduce(&s);
	if (2 * ex.nr_states >= ex.nr_slots)
		grow_slots();
	for (at = hash_of(&s) % ex.nr_slots; ex.slots[at]; at = (at + 1) % ex.nr_slots)
		if (!memcmp(&ex.states[ex.slots[at] - 1], &s, sizeof(s)))
			return;
	if (ex.nr_states == ex.room) {
		ex.room = max(2 * ex.room, 1024U);
		ex.states = realloc(ex.states, ex.room * sizeof(*ex.states));
		assert_non_null(ex.states);
	}
	ex.states[ex.nr_states] = s;
	ex.slots[at] = ++ex.nr_states;
}

static u8 new_version(const struct state *s)
{
	u8 version = 0;
	u32 i;

	for (i = 0; i < ex.nr; i++)
		version = max(version, s->m[i].version);
	return version + 1;
}

static u16 free_bit(u16 taken)
{
	u16 bit = 1;

	while (taken & bit)
		bit = (u16)(bit << 1);
	assert_int_not_equal(bit, 0);
	return bit;
}

/* What is true */

static bool all_pairs(const struct state *s, u32 set, bool (*is)(const struct holding *a, const struct holding *b))
{
	u32 i, j;

	for (i = 0; i < ex.nr; i++)
		for (j = 0; j < i; j++)
			if (set & BIT(i) && set & BIT(j) && !is(&s->m[i], &s->m[j]))
				return false;
	return true;
}

static bool not_split(const struct holding *a, const struct holding *b)
{
	return !(a->used & ~b->knows) || !(b->used & ~a->knows);
}

static bool are_one(const struct holding *a, const struct holding *b)
{
	return (!(a->heard & ~b->heard) || !(b->heard & ~a->heard)) && (!(a->met & ~b->met) || !(b->met & ~a->met));
}

/* What the engine says */

static void describe(const struct state *s)
{
	u32 i, j;

	for (i = 0; i < ex.nr; i++) {
		ex.super[i].seq = s->m[i].seq;
		for (j = 0; j < ex.nr; j++)
			ex.super[i].members[j].flags = s->m[i].there & BIT(j) ? 0 : KVC_MEMBER_ABSENT;
	}
}

/* @down: the devices are given in the opposite order. */
static u32 witnesses(u32 set, bool down, struct kvc_witness *w)
{
	u32 nr = 0, n;

	for (n = 0; n < ex.nr; n++) {
		u32 i = down ? ex.nr - 1 - n : n;

		if (set & BIT(i))
			w[nr++] = (struct kvc_witness){ i, ex.super[i].seq, ex.super[i].members };
	}
	return nr;
}

/* What may follow */

/* The bits of all in @set, and a new one. */
static u16 next_bits(const struct state *s, u32 set, size_t field)
{
	u16 taken = 0, theirs = 0, bits;
	u32 i;

	for (i = 0; i < ex.nr; i++) {
		memcpy(&bits, (const u8 *)&s->m[i] + field, sizeof(bits));
		taken |= bits;
		if (set & BIT(i))
			theirs |= bits;
	}
	return theirs | free_bit(taken);
}

static bool all_have(const struct state *s, u32 set, u8 version)
{
	u32 i;

	for (i = 0; i < ex.nr; i++)
		if (set & BIT(i) && s->m[i].version != version)
			return false;
	return true;
}

static void hear(struct state *s, u32 set)
{
	u16 heard = next_bits(s, set, offsetof(struct holding, heard));
	u32 i;

	for (i = 0; i < ex.nr; i++)
		if (set & BIT(i))
			s->m[i].heard = heard;
}

/* Those in @set get superblock @h. Who gets it knows what it says, and did nothing. */
static struct state write_some(const struct state *s, u32 set, const struct holding *h)
{
	struct state after = *s;
	u32 i;

	for (i = 0; i < ex.nr; i++) {
		if (!(set & BIT(i)))
			continue;
		after.m[i].seq = h->seq;
		after.m[i].there = h->there;
		after.m[i].version = h->version;
		after.m[i].knows = h->knows;
	}
	if (all_have(&after, h->there, h->version) && !all_have(s, h->there, h->version))
		hear(&after, h->there);
	return after;
}

/* All in @set have the same superblock and are used. */
static struct state use(const struct state *s, u32 set)
{
	u16 event = next_bits(s, 0, offsetof(struct holding, knows));
	struct state after = *s;
	u32 i;

	for (i = 0; i < ex.nr; i++)
		if (set & BIT(i)) {
			after.m[i].knows |= event;
			after.m[i].used |= event;
		}
	return after;
}

/* @set is together, whatever comes of it. */
static struct state meet(const struct state *s, u32 set)
{
	u16 met = next_bits(s, set, offsetof(struct holding, met));
	struct state after = *s;
	u32 i;

	for (i = 0; i < ex.nr; i++)
		if (set & BIT(i))
			after.m[i].met = met;
	return after;
}

static void write_cut(const struct state *s, u32 set, const struct holding *h)
{
	u32 some;

	for (some = (set - 1) & set; some; some = (some - 1) & set)
		visit(write_some(s, some, h));
}

static struct holding raised(const struct state *s, const struct holding *from, u32 there)
{
	struct holding h = *from;

	h.seq++;
	h.there = (u8)there;
	h.version = new_version(s);
	return h;
}

static void session(const struct state *s, u32 set, u32 changes);

/* @lost is lost, and the others note it: with the power cut at any write, or used from then on. */
static void lose(const struct state *s, u32 set, u32 lost, const struct holding *from, u32 changes)
{
	u32 left = set & ~lost;
	struct holding h = raised(s, from, left);
	struct state after = meet(s, left);

	after.cut_degraded = 1;
	write_cut(&after, left, &h);
	after = write_some(&after, left, &h);
	after.cut_degraded = s->cut_degraded;
	after = use(&after, left);
	session(&after, left, changes);
}

/* @set is attached. The configuration may be changed, and whoever cannot be written then is lost. */
static void session(const struct state *s, u32 set, u32 changes)
{
	struct holding h = s->m[0];
	struct state after;
	u32 some, i;

	visit(*s);
	if (!changes)
		return;
	for (i = 0; i < ex.nr; i++)
		if (set & BIT(i))
			h = s->m[i];
	for (some = (set - 1) & set; some; some = (some - 1) & set)
		lose(s, set, some, &h, changes - 1);
	h = raised(s, &h, set);
	for (some = (set - 1) & set; some; some = (some - 1) & set) {
		after = write_some(s, some, &h);
		visit(after);
		lose(&after, set, set & ~some, &h, changes - 1);
	}
	after = write_some(s, set, &h);
	session(&after, set, changes - 1);
}

static void attach(const struct state *s, u32 set, u32 member, u32 behind, u32 changes)
{
	struct holding now = s->m[member], next;
	struct state after = meet(s, set);
	u16 cut_degraded = s->cut_degraded;
	u32 i;

	after.cut_degraded |= set != BIT(ex.nr) - 1;
	write_cut(&after, behind, &now);
	after = write_some(&after, behind, &now);
	visit(after);
	next = raised(&after, &now, set);
	for (i = 0; i < ex.nr; i++)
		if (set & BIT(i))
			assert_int_equal(after.m[i].knows & ~now.knows, 0);
	write_cut(&after, set, &next);
	after = write_some(&after, set, &next);
	after.cut_degraded = cut_degraded;
	after = use(&after, set);
	session(&after, set, changes);
}

static void print_state(const struct state *s, u32 set)
{
	u32 i;

	for (i = 0; i < ex.nr; i++)
		print_error("%c member %u: sequence %u, there %x, version %u, knows %x, used %x, heard %x, met %x\n",
			    set & BIT(i) ? '*' : ' ', i, s->m[i].seq, s->m[i].there, s->m[i].version, s->m[i].knows,
			    s->m[i].used, s->m[i].heard, s->m[i].met);
}

static bool judge(const struct state *s, u32 set, const struct kvc_witness *w, u32 nr)
{
	bool split = !all_pairs(s, set, not_split), one = all_pairs(s, set, are_one);
	bool accepted = kvc_one_history(w, nr), needed = set == BIT(ex.nr) - 1 && (ex.nr == 2 || !s->cut_degraded);

	if ((split && accepted) || (one && !accepted && needed)) {
		print_state(s, set);
		fail_msg("%s, and %s", split ? "split" : "one", accepted ? "accepted" : "refused");
	}
	ex.one += one;
	ex.split += split;
	return accepted;
}

static void follow(struct state s, u32 changes)
{
	struct kvc_witness w[MEMBERS_MAX];
	u32 set, nr, i, behind, down;
	const struct kvc_super *now;

	describe(&s);
	for (set = 1; set < BIT(ex.nr); set++)
		for (down = 0; down < 2; down++) {
			nr = witnesses(set, down, w);
			if (!judge(&s, set, w, nr))
				continue;
			now = &ex.super[w[0].member];
			for (i = 1; i < nr; i++)
				if (kvc_super_newer(&ex.super[w[i].member], now))
					now = &ex.super[w[i].member];
			for (i = 0, behind = 0; i < nr; i++)
				if (kvc_super_behind(now, &w[i]))
					behind |= BIT(w[i].member);
			attach(&s, set, now->member_index, behind, changes);
		}
}

/* @depth: attaches one after the other; @changes: losses and changes of the configuration while attached */
static void explore(u32 nr, u32 depth, u32 changes)
{
	struct state first = { 0 };
	u32 i, j, at = 0, end;

	memset(&ex, 0, sizeof(ex));
	ex.nr = nr;
	for (i = 0; i < nr; i++) {
		first.m[i] = (struct holding){ .seq = SEQ_FIRST, .there = (u8)(BIT(nr) - 1), .version = 1 };
		ex.super[i].nr_members = nr;
		ex.super[i].member_index = i;
		for (j = 0; j < nr; j++) {
			ex.super[i].members[j].uuid[0] = (u8)(1 + j);
			ex.super[i].members[j].nr_segments = KVC_SEGMENTS_MIN;
		}
	}
	visit(first);
	for (; depth; depth--) {
		end = ex.nr_states;
		for (; at < end; at++)
			follow(ex.states[at], changes);
	}
	print_message("%u members: %u states, %llu sets are one, %llu are split\n", nr, ex.nr_states,
		      (unsigned long long)ex.one, (unsigned long long)ex.split);
	assert_true(ex.one && ex.split);
	free(ex.states);
	free(ex.slots);
}

static void two_members(void **state)
{
	(void)state;
	explore(2, 8, 3);
}

static void three_members(void **state)
{
	(void)state;
	explore(3, 4, 1);
}

static const struct CMUnitTest history_tests[] = {
	cmocka_unit_test(two_members),
	cmocka_unit_test(three_members),
};

TEST_GROUP(history);
