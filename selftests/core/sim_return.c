// SPDX-License-Identifier: GPL-2.0
/*
 * Members that were lost and return while the pool is used, as kmod does it: they have the superblock that was written
 * to them last, and their logs are as they were left. See sim.h.
 *
 * Of the pages that were on it when it was lost those are there again that nobody has stored or deleted since, unless no
 * summary that was written has taken them. So it may be with a copy, though what it was made from was durable.
 */
#include "engine.h"
#include "sim.h"

/*
 * Nobody gets it whose superblock is not the last one that it is known to have taken. @newest: it was there then, and
 * nobody has taken a later one
 */
static bool has_its_super(struct sim *s, u32 member, bool *newest)
{
	const struct kvc_super *found = super_read(s, member, NULL);

	if (!found || found->seq != s->super_on[member])
		return false;
	*newest = found->seq == s->super_seq_durable && !(found->members[member].flags & KVC_MEMBER_ABSENT);
	return true;
}

static bool damaged(const struct sim *s, u32 member, u32 segment)
{
	u64 start = KVC_DATA_OFFSET + segment * s->cfg.segment_size;

	return s->n.rolled_back || s->scarred || dev_tainted(s->devs[member], start, s->cfg.segment_size) ||
	       dev_bad(s->devs[member], start, s->cfg.segment_size);
}

/* Are its segments as they were left? */
static bool recheck(struct sim *s, u32 member, u32 segment)
{
	struct kvc_recheck c;
	u8 *buf;
	int r;

	if (!kvc_recheck_start(s->pool, member, segment, &c))
		return true;
	do {
		sim_check(c.len && c.len <= KVC_RECOVER_IO, "a check reads %u bytes", c.len);
		/* memory whose end AddressSanitizer sees */
		buf = malloc(c.len);
		if (!buf)
			sim_fail("the test itself is out of memory");
		memcpy(buf, dev_peek(s->devs[member], c.offset, c.len), c.len);
		r = kvc_recheck_feed(s->pool, &c, buf);
		free(buf);
	} while (r == 1);
	sim_check(!r || (r == -ESTALE && damaged(s, member, segment)), "segment %u of member %u is not as it was left: %d",
		  segment, member, r);
	return !r;
}

/* The one that says that it is there, to it and then to the others: the power may go after each. */
static bool write_supers(struct sim *s, u32 member)
{
	const struct kvc_super *super = kvc_super_of(s->pool);
	u32 i, from = rng_below(&s->return_rng, s->cfg.nr_members);

	sim_write_super(s, super, member, KVC_SUPER_COPIES);
	s->super_seq_durable = max(s->super_seq_durable, super->seq);
	for (i = 0; i < s->cfg.nr_members; i++) {
		u32 n = (from + i) % s->cfg.nr_members;

		if (rng_chance(&s->return_rng, 300)) {
			s->cut = true;
			return false;
		}
		if (n != member && !s->failed[n])
			sim_write_super(s, super, n, KVC_SUPER_COPIES);
	}
	return true;
}

/* What the engine has of the key on the member again; it was lost with it. */
static void find_again(struct sim *s, struct mkey *k, u32 member)
{
	struct kvc_domain *d = sim_domain(s, k);
	struct mstate lost = k->lost;
	u8 key[KVC_KEY_LEN];
	struct kvc_load ld;
	bool here;
	int r;

	key_make(key, k->id);
	r = kvc_load_look(s->pool, d, key, &ld);
	kvc_domain_put(s->pool, d);
	here = !r && ld.member == member;
	if (here) {
		sim_check(lost.version && s->versions[lost.version].member == member && !k->cur.version,
			  "%s returned with member %u, and was not lost with it", model_name(k), member);
		sim_check(ld.length == lost.length && life_has_version(s, &ld, lost.version),
			  "%s v%u was lost with member %u, and another page has returned", model_name(k), lost.version, member);
		model_returned(s, k, lost, (struct place){ member, ld.offset });
		s->n.back_pages++;
	} else if (k->away && k->away == lost.version && s->versions[lost.version].member == member) {
		sim_check(k->lost_copy || model_damaged(s), "%s: v%u was durable, and did not return with member %u", model_name(k),
			  k->away, member);
	}
	if (k->away && s->versions[k->away].member == member)
		k->away = 0;
	if (!r)
		kvc_load_end(s->pool, &ld, 0);
}

/* It is used from now on. */
static void join(struct sim *s, u32 member)
{
	u32 i;

	kvc_member_returned(s->pool, member);
	s->failed[member] = false;
	s->workers[member].kicked = true;
	/* a torn segment goes, whatever is on it */
	s->newest[member].offset = 0;
	s->n.back++;
	for (i = 0; i < s->nr_keys; i++)
		if (s->tenants[s->keys[i].tenant].state == T_LIVE)
			find_again(s, &s->keys[i], member);
	/* what has left the index is no eviction */
	s->lost = true;
	sim_trace(s, "member %u has returned", member);
}

static void return_member(struct sim *s, u32 member, bool newest)
{
	struct window win;
	int r = kvc_member_may_return(s->pool, member, newest);
	u32 i;

	sim_check(r == 0 || r == -EBUSY || r == -ESTALE, "member %u may return: %d", member, r);
	for (i = 0; !r && i < s->cfg.nr_segs[member]; i++)
		if (!recheck(s, member, i))
			return;
	if (r)
		return;
	sim_trace(s, "member %u returns", member);
	for (i = 0; i < s->cfg.nr_segs[member]; i++)
		s->n.back_torn += s->pool->members[member].segs[i].torn;
	if (!newest) {
		sim_write_super(s, kvc_super_of(s->pool), member, KVC_SUPER_COPIES);
		s->super_seq_durable = max(s->super_seq_durable, kvc_super_of(s->pool)->seq);
	}
	s->admin = true;
	window_begin(s, &win, NULL);
	r = kvc_member_return(s->pool, member, newest);
	window_end(s, &win);
	s->admin = false;
	model_look(s);
	sim_check(r == 0 || r == -ESTALE, "member %u returns: %d", member, r);
	s->loss_unwritten |= r;
	if (r)
		return;
	if (rng_chance(&s->return_rng, 1000)) {
		sim_trace(s, "member %u stays lost", member);
		kvc_member_stay_lost(s->pool, member);
		sim_check(kvc_super_of(s->pool)->members[member].flags & KVC_MEMBER_ABSENT, "member %u is there", member);
		s->loss_unwritten = true;
		return;
	}
	if (write_supers(s, member))
		join(s, member);
}

void return_look(struct sim *s)
{
	u32 member = rng_below(&s->return_rng, s->cfg.nr_members);
	bool newest;

	if (!rng_chance(&s->return_rng, 200) || !s->failed[member] || s->hole[member] || s->missing & BIT(member) ||
	    super_busy(s) || s->depth || s->settling || s->cut || s->grow.member == member || dev_busy(s->devs[member]))
		return;
	dev_return(s->devs[member]);
	if (has_its_super(s, member, &newest))
		return_member(s, member, newest);
}
