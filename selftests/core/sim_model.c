// SPDX-License-Identifier: GPL-2.0
/*
 * The model: what every key may be. See sim.h.
 */
#include "sim.h"

static void *must(void *p)
{
	if (!p)
		sim_fail("the test itself is out of memory");
	return p;
}

void model_init(struct sim *s)
{
	u32 t, ks, id;

	s->nr_keys = SIM_TENANTS * SIM_KEYSPACES * s->cfg.nr_keys;
	s->keys = must(calloc(s->nr_keys, sizeof(*s->keys)));
	for (t = 0; t < SIM_TENANTS; t++)
		for (ks = 0; ks < SIM_KEYSPACES; ks++)
			for (id = 0; id < s->cfg.nr_keys; id++) {
				struct mkey *k = model_key(s, t, ks, id);

				k->tenant = t;
				k->keyspace = ks;
				k->id = id;
				model_forget_key(k);
			}
	s->nr_versions = 1;
	s->event = 1;
}

void model_free(struct sim *s)
{
	u32 i;

	for (i = 0; i < s->nr_keys; i++) {
		free(s->keys[i].events);
		free(s->keys[i].ghosts);
	}
	free(s->keys);
	free(s->leases);
	free(s->versions);
}

struct mkey *model_key(struct sim *s, u32 tenant, u32 keyspace, u32 id)
{
	return &s->keys[(tenant * SIM_KEYSPACES + keyspace) * s->cfg.nr_keys + id];
}

struct mkey *model_random_key(struct sim *s)
{
	u32 t = rng_below(&s->rng, SIM_TENANTS), key, i;
	struct mkey *k;

	for (i = 0; i < SIM_TENANTS; i++, t = (t + 1) % SIM_TENANTS)
		if (s->tenants[t].state == T_LIVE) {
			/* one after the other, on all machines */
			key = rng_below(&s->rng, s->cfg.nr_keys);
			k = model_key(s, t, rng_below(&s->rng, SIM_KEYSPACES), key);
			return k->busy ? NULL : k;
		}
	return NULL;
}

const char *model_name(const struct mkey *k)
{
	static char text[4][64];
	static u32 turn;
	char *t = text[turn++ % 4];

	snprintf(t, sizeof(text[0]), "t%u.%u.k%u", k->tenant, k->keyspace, k->id);
	return t;
}

static void push(struct event **events, u32 *nr, u32 *room, struct event e)
{
	if (*nr == *room) {
		*room = *room ? *room * 2 : 4;
		*events = must(realloc(*events, sizeof(**events) * *room));
	}
	(*events)[(*nr)++] = e;
}

static void push_event(struct mkey *k, struct event e)
{
	push(&k->events, &k->nr_events, &k->room, e);
}

static void drop_ghosts(struct mkey *k, u64 before)
{
	u32 i, n = 0;

	for (i = 0; i < k->nr_ghosts; i++)
		if (k->ghosts[i].nr >= before)
			k->ghosts[n++] = k->ghosts[i];
	k->nr_ghosts = n;
}

/* Forget what a durable strong event has made impossible. */
static void prune(struct mkey *k, u64 durable)
{
	u32 base = 0, i;

	for (i = 1; i < k->nr_events && k->events[i].nr <= durable; i++) {
		if (k->events[i].weak)
			continue;
		base = i;
		if (k->events[i].state.version && !k->events[i].replaced)
			continue;
		drop_ghosts(k, k->events[i].nr);
		k->unseen = false;
	}
	memmove(k->events, k->events + base, sizeof(*k->events) * (k->nr_events - base));
	k->nr_events -= base;
}

void model_event(struct sim *s, struct mkey *k, struct mstate state, bool weak)
{
	struct event e = { .nr = ++s->event, .state = state, .weak = weak };

	prune(k, s->durable);
	if (weak && k->cur.version)
		push(&k->ghosts, &k->nr_ghosts, &k->ghosts_room, (struct event){ .nr = e.nr, .state = k->cur });
	k->cur = state;
	k->changed = s->event;
	k->doubtful &= weak;
	if (!weak) {
		k->away = 0;
		k->lost = (struct mstate){ 0 };
	}
	if (!state.version) {
		k->at.offset = 0;
		k->before.offset = 0;
	}
	push_event(k, e);
}

void model_settle_key(struct sim *s, struct mkey *k)
{
	prune(k, s->durable);
}

void model_flushed(struct sim *s, u64 event)
{
	s->durable = max(s->durable, event);
}

bool model_allows(const struct mkey *k, struct mstate state)
{
	bool absent = false;
	u32 i;

	for (i = 0; i < k->nr_events; i++) {
		if (k->events[i].state.version == state.version)
			return true;
		absent |= k->events[i].state.version == 0;
	}
	for (i = 0; absent && i < k->nr_ghosts; i++)
		if (k->ghosts[i].state.version == state.version)
			return true;
	return false;
}

bool model_buried(struct sim *s, struct mkey *k)
{
	u32 i;

	prune(k, s->durable);
	for (i = 0; i < k->nr_events; i++)
		if (k->events[i].state.version)
			return false;
	return !k->nr_ghosts && !k->doubtful && !k->unseen && !model_damaged(s) && !(k->tombs & s->missing);
}

void model_forget_key(struct mkey *k)
{
	k->cur = (struct mstate){ 0 };
	k->at = (struct place){ 0 };
	k->before = (struct place){ 0 };
	k->pending = false;
	k->gone = false;
	k->touched = false;
	k->noted = false;
	k->doubtful = false;
	k->unseen = false;
	k->away = 0;
	k->lost = (struct mstate){ 0 };
	k->twice = 0;
	k->tombs = 0;
	k->on = 0;
	k->nr_events = 0;
	k->nr_ghosts = 0;
	push_event(k, (struct event){ 0 });
}

/* Was this version stored on a member that is not there? */
static bool is_out(const struct sim *s, u32 version)
{
	return version && s->missing & BIT(s->versions[version].member);
}

/* Ghosts of a key that was not found lie on members that are not there. */
static void drop_ghosts_here(const struct sim *s, struct mkey *k)
{
	u32 i, n = 0;

	for (i = 0; i < k->nr_ghosts; i++)
		if (is_out(s, k->ghosts[i].state.version))
			k->ghosts[n++] = k->ghosts[i];
	k->nr_ghosts = n;
}

bool model_ghost(const struct mkey *k, struct mstate state)
{
	u32 i;

	for (i = 0; i < k->nr_ghosts; i++)
		if (k->ghosts[i].state.version == state.version)
			return true;
	return false;
}

bool model_may_have(const struct mkey *k)
{
	u32 i;

	for (i = 0; i < k->nr_events; i++)
		if (k->events[i].state.version)
			return true;
	return k->nr_ghosts != 0;
}

/*
 * What recovery found is on media. Older versions may lie behind what was found, and appear when that goes; behind
 * nothing lies nothing. On members that are not there may be older ones, and newer ones, which win when they come back.
 */
void model_recovered(struct sim *s, struct mkey *k, struct mstate state, struct place at)
{
	struct event *before = NULL;
	u32 nr_before = 0, room_before = 0, i;

	prune(k, s->durable);
	for (i = 0; k->hidden && i < k->nr_events + k->nr_ghosts; i++)
		push(&before, &nr_before, &room_before,
		     i < k->nr_events ? k->events[i] : k->ghosts[i - k->nr_events]);
	k->doubtful |= state.version && model_damaged(s) && model_allows(k, (struct mstate){ 0 });
	/* A tombstone that comes back takes it away again. */
	k->doubtful |= state.version && k->tombs & s->missing;
	for (i = 0; i < k->nr_events; i++)
		if (k->events[i].state.version && k->events[i].state.version != state.version)
			push(&k->ghosts, &k->nr_ghosts, &k->ghosts_room, k->events[i]);
	if (!state.version)
		drop_ghosts_here(s, k);
	k->pending = false;
	k->gone = false;
	k->lost = (struct mstate){ 0 };
	k->before = (struct place){ 0 };
	k->nr_events = 1;
	k->events[0] = (struct event){ .nr = s->event, .state = state };
	for (i = 0; state.version && i < k->nr_ghosts; i++) {
		struct event e = { .nr = s->event, .state = k->ghosts[i].state, .weak = true };

		if (is_out(s, e.state.version) &&
		    s->versions[e.state.version].committed > s->versions[state.version].committed)
			push_event(k, e);
	}
	/* What was not read now may be another time. */
	for (i = 0; i < nr_before; i++)
		push_event(k, (struct event){ .nr = s->event, .state = before[i].state, .weak = true });
	if (k->hidden) {
		push_event(k, (struct event){ .nr = s->event, .weak = true });
		k->unseen = true;
	}
	free(before);
	k->cur = state;
	k->at = at;
	/* where a power cut left it, not where it was being moved to */
	if (state.version)
		s->versions[state.version].member = at.member;
	if (k->away == state.version)
		k->away = 0;
}

/*
 * What was there before, as far as that is known, may be back: the delete may not have happened, the replacement is a
 * store like any other. Tombstones of deletes since then need not have stayed: this one killed what is older.
 */
static void weaken(struct mkey *k, u32 event)
{
	u32 i = event;

	if (k->events[event].replaced)
		k->events[event].replaced = false;
	else
		k->events[event].weak = true;
	do {
		struct event ghost = k->events[--i];

		ghost.tombs = 0;
		ghost.nr = k->events[k->nr_events - 1].nr;
		if (ghost.state.version)
			push(&k->ghosts, &k->nr_ghosts, &k->ghosts_room, ghost);
	} while (i && k->events[i].weak);
}

/*
 * Deletes and replacements that no flush covered are weak if their tombstones were on the member; so are those that
 * needed none, as long as it was an earlier one that covered the older records.
 */
static void weaken_deletes(struct mkey *k, u32 member)
{
	bool lost = false;
	u32 i;

	for (i = 1; i < k->nr_events; i++) {
		const struct event *e = &k->events[i];

		if ((e->state.version && !e->replaced) || e->weak)
			continue;
		if (e->tombs)
			lost = e->tombs & BIT(member) || (e->unsure && lost);
		if (lost)
			weaken(k, i);
	}
}

void model_deleted(struct sim *s, struct mkey *k, u32 tombs, bool unsure)
{
	u32 i;

	model_event(s, k, (struct mstate){ 0 }, false);
	k->events[k->nr_events - 1].tombs = tombs;
	k->events[k->nr_events - 1].unsure = unsure;
	k->tombs |= tombs;
	/* lost before the call came back */
	for (i = 0; i < s->cfg.nr_members; i++)
		if (s->failed[i] && tombs & BIT(i))
			weaken_deletes(k, i);
	/* it needed none, for one of an earlier delete that was lost before this call came back */
	if (unsure && !tombs && s->lost)
		weaken(k, k->nr_events - 1);
}

/* Reclaim may take the segment of the old page at once. @tombs: the member of the new one, if it wrote a tombstone there */
void model_replaced(struct sim *s, struct mkey *k, struct mstate state, u32 tombs)
{
	if (k->cur.version)
		model_event(s, k, (struct mstate){ 0 }, true);
	model_event(s, k, state, false);
	k->events[k->nr_events - 1].replaced = true;
	k->events[k->nr_events - 1].tombs = tombs;
	k->tombs |= tombs;
}

/* Nothing but this one version can be on media, and it is. */
static void note_away(const struct sim *s, struct mkey *k, u32 member)
{
	u32 version = k->events[0].state.version;

	if (k->nr_events == 1 && version && !k->doubtful && s->versions[version].member == member)
		k->away = version;
}

void model_missing(struct sim *s)
{
	u32 i, j, m;

	for (i = 0; i < s->nr_keys; i++) {
		struct mkey *k = &s->keys[i];
		bool out = false;

		prune(k, s->durable);
		for (m = 0; m < s->cfg.nr_members; m++)
			if (s->missing & BIT(m))
				note_away(s, k, m);
		for (j = 0; j < k->nr_events; j++)
			out |= is_out(s, k->events[j].state.version);
		if (out)
			push_event(k, (struct event){ .nr = ++s->event, .weak = true });
	}
}

/*
 * The pages of the member are out of reach, and come back with it.
 */
void model_member_failed(struct sim *s, u32 member)
{
	u32 i;

	if (s->failed[member])
		return;
	s->failed[member] = true;
	s->lost = true;
	s->loss_unwritten = true;
	s->n.fails++;
	sim_trace(s, "member %u failed", member);
	for (i = 0; i < s->nr_keys; i++) {
		struct mkey *k = &s->keys[i];

		prune(k, s->durable);
		weaken_deletes(k, member);
		/* what the engine evicted just before is not known to be */
		if (k->cur.version && !s->step_windows)
			note_away(s, k, member);
		if (k->cur.version && k->at.member == member) {
			k->lost = k->cur;
			k->lost_copy = k->before.offset;
			model_event(s, k, (struct mstate){ 0 }, true);
			k->gone = true;
		}
	}
}

/* What was lost is there again, as if it had not been. */
void model_returned(struct sim *s, struct mkey *k, struct mstate state, struct place at)
{
	model_event(s, k, state, true);
	k->lost = (struct mstate){ 0 };
	k->gone = false;
	k->at = at;
}

void model_tenant_removed(struct sim *s, u32 tenant)
{
	u32 i;

	for (i = 0; i < s->nr_keys; i++)
		if (s->keys[i].tenant == tenant) {
			model_event(s, &s->keys[i], (struct mstate){ 0 }, true);
			s->keys[i].away = 0;
		}
}

u32 model_new_version(struct sim *s, struct mkey *k, u32 length, u32 member)
{
	if (s->nr_versions >= s->versions_room) {
		s->versions_room = s->versions_room ? s->versions_room * 2 : 1024;
		s->versions = must(realloc(s->versions, sizeof(*s->versions) * s->versions_room));
	}
	k->on |= BIT(member);
	s->versions[s->nr_versions] = (struct mversion){ .key = k, .length = length, .member = member };
	return s->nr_versions++;
}

void model_check_free(struct sim *s, u32 member, u64 offset, u64 len, const char *what)
{
	u32 i;

	if (model_unsure(s))
		model_look(s);
	for (i = 0; i < s->nr_keys; i++) {
		const struct mkey *k = &s->keys[i];

		if (!k->cur.version || k->busy || !k->at.offset || k->at.member != member)
			continue;
		if (k->at.offset < offset + len && offset < k->at.offset + padded(k->cur.length))
			sim_fail("%s of member %u at %llu + %llu overlaps the page %s at %llu", what, member,
				 (unsigned long long)offset, (unsigned long long)len, model_name(k),
				 (unsigned long long)k->at.offset);
	}
}

u64 segment_of(const struct sim *s, u64 offset)
{
	return (offset - KVC_DATA_OFFSET) / s->cfg.segment_size;
}

bool segment_tainted(const struct sim *s, struct place at)
{
	u64 start = KVC_DATA_OFFSET + segment_of(s, at.offset) * s->cfg.segment_size;

	return s->scarred || dev_tainted(s->devs[at.member], start, s->cfg.segment_size);
}

/* What corruption hit is not known. */
bool model_damaged(const struct sim *s)
{
	u32 i;

	if (s->scarred)
		return true;
	for (i = 0; i < s->cfg.nr_members; i++) {
		if (dev_tainted(s->devs[i], KVC_DATA_OFFSET, dev_bytes(s->devs[i]) - KVC_DATA_OFFSET))
			return true;
	}
	return false;
}

/* May the page be missing because its segment, or the one it was moved from, was hit? */
bool model_excused(const struct sim *s, const struct mkey *k)
{
	/* a member that was rolled back has anything, and hides anything */
	if (k->hidden || s->n.rolled_back)
		return true;
	if (k->twice && k->twice == k->cur.version && model_damaged(s))
		return true;
	if (s->scarred && s->cfg.limits)
		return true;
	if (!k->at.offset || k->doubtful)
		return model_damaged(s) || (k->doubtful && s->degraded);
	return segment_tainted(s, k->at) || (k->before.offset && segment_tainted(s, k->before));
}

/* Segments of which pages were evicted, each a place in it */
struct victims {
	struct place at[64];
	u32	nr;
};

static bool in_segment(const struct sim *s, const struct mkey *k, struct place at)
{
	return k->at.member == at.member && segment_of(s, k->at.offset) == segment_of(s, at.offset);
}

static void vanished(struct sim *s, struct mkey *k, struct victims *v)
{
	u64 seg = segment_of(s, k->at.offset);
	u32 i;

	sim_check(k->at.offset != 0, "%s has no place", model_name(k));
	for (i = 0; i < v->nr && !in_segment(s, k, v->at[i]); i++)
		;
	if (i == v->nr && i < ARRAY_SIZE(v->at))
		v->at[v->nr++] = k->at;
	sim_check(model_leases(s, k->at.member, seg) == 0 || s->step_windows,
		  "%s was evicted from a leased segment", model_name(k));
	/* A member of few segments has hardly more than its heads; one that vanished loses each that it reclaims. */
	if (!s->cfg.leases && !s->cfg.memory && !s->crowd && s->cfg.nr_segs[k->at.member] >= 8 &&
	    s->newest[k->at.member].offset && !grow_leaving(s, k->at.member) &&
	    !dev_gone(s->devs[k->at.member]) && !s->step_windows &&
	    !quota_limited(s, k->tenant))
		sim_check(segment_of(s, s->newest[k->at.member].offset) != seg,
			  "%s was evicted with the newest page of its member", model_name(k));
	sim_trace(s, "evicted %s v%u from member %u segment %llu", model_name(k), k->cur.version, k->at.member,
		  (unsigned long long)seg);
	hot_evicted(s, k);
	model_event(s, k, (struct mstate){ 0 }, true);
	budget_evicted(s, k);
	s->n.evicted++;
}

static bool should_be(const struct sim *s, const struct mkey *k)
{
	return k->cur.version && s->tenants[k->tenant].state == T_LIVE;
}

static void check_rest(struct sim *s, const struct victims *v)
{
	u32 i, j;

	for (i = 0; i < s->nr_keys; i++)
		for (j = 0; j < v->nr && should_be(s, &s->keys[i]); j++)
			sim_check(s->cfg.quotas || !in_segment(s, &s->keys[i], v->at[j]), "%s stayed in an evicted segment",
				  model_name(&s->keys[i]));
}

static bool tenant_going(const struct sim *s)
{
	u32 i;

	for (i = 0; i < SIM_TENANTS; i++)
		if (s->tenants[i].state == T_REMOVING || s->tenants[i].state == T_GONE)
			return true;
	return false;
}

/* Pages that are evicted are not all in the model. */
static bool miscounts(const struct sim *s)
{
	return tenant_going(s) || grow_forgets(s) || s->lost;
}

bool model_unsure(const struct sim *s)
{
	return s->unexplained || (s->step_windows && miscounts(s));
}

/*
 * Pages leave the index by themselves only through eviction, which is counted: as many pages vanished as the count
 * says, whole segments of them, which nobody leased. @all: what is counted by now has an explanation.
 */
static void look(struct sim *s, bool all)
{
	struct victims v = { .nr = 0 };
	u64 before = s->n.evicted, evicted;
	bool of[SIM_TENANTS] = { 0 };
	struct kvc_stats st;
	u32 i;

	ops_note_failures(s);
	leases_check(s);
	kvc_stats_get(s->pool, &st);
	evicted = st.evicted_pages - s->stats.evicted_pages;
	s->unexplained += (s64)evicted;
	if (!model_unsure(s)) {
		if (all)
			s->either = 0;
		return;
	}
	sim_check(!evicted || !s->cfg.roomy || grow_may_drop(s) || tenant_going(s),
		  "%llu pages evicted from a pool with room for all", (unsigned long long)evicted);
	for (i = 0; i < s->nr_keys; i++)
		if (should_be(s, &s->keys[i]) && !s->keys[i].busy && !ops_in_index(s, &s->keys[i])) {
			vanished(s, &s->keys[i], &v);
			of[s->keys[i].tenant] = true;
		}
	for (i = 0; i < SIM_TENANTS; i++)
		if (of[i])
			quota_evicted(s, i);
	s->unexplained -= (s64)(s->n.evicted - before);
	/* nor are pages of a tenant that is being removed, or of a member that was lost meanwhile, in the model */
	if (miscounts(s))
		s->unexplained = 0;
	sim_check(s->unexplained == 0 || (s->unexplained > 0 && (!all || s->unexplained <= s->either)),
		  "%llu pages vanished, %llu were evicted, %lld differ", (unsigned long long)(s->n.evicted - before),
		  (unsigned long long)evicted, (long long)s->unexplained);
	sim_check(v.nr <= st.segments_reclaimed - s->stats.segments_reclaimed + s->cfg.nr_members ||
		  s->step_windows || s->cfg.quotas,
		  "%u segments were evicted, more than were reclaimed", v.nr);
	if (all)
		s->unexplained = s->either = 0;
	/* else who evicts may be in the middle of it, or the segment in use again */
	if (!s->step_windows)
		check_rest(s, &v);
	s->stats = st;
}

void model_look(struct sim *s)
{
	look(s, !s->depth);
}

/* Not in the index: the call that had it in hand took it away, or it was evicted. What is counted may be another's. */
static void gone_either_way(struct sim *s, struct mkey *k)
{
	model_event(s, k, (struct mstate){ 0 }, true);
	k->goes++;
	s->either++;
}

void model_look_at(struct sim *s, struct mkey *k)
{
	model_look(s);
	if (k->busy && s->unexplained > 0 && should_be(s, k) && !ops_in_index(s, k))
		gone_either_way(s, k);
}

void model_look_deleted(struct sim *s, struct mkey *k)
{
	k->busy = true;
	/* the key itself may be the explanation */
	look(s, false);
	k->busy = false;
	if (model_unsure(s) && should_be(s, k))
		gone_either_way(s, k);
}
