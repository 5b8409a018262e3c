// SPDX-License-Identifier: GPL-2.0
/*
 * Fuzz target for whole pools: the devices of an image are arranged as an attach does it, recovered, and used by the
 * rest of the program. See fuzz.h.
 *
 * What has to hold, whatever media says: recovery finds the same pages when it is run again, and when it takes the
 * segments in another order. Pages lie inside their devices. Pages that are stored afterwards have their own bytes as
 * long as they are there, before and after attaching again and power cuts. What is there after a flush is recovered when
 * the pool is attached again, and only eviction takes it away then, which a pool with hardly a segment to write to needs
 * at once. Reclaim gets through.
 *
 * op % 16: 0 load; 1 store; 2 delete; 3 flush; 4 work; 5 one item of it; 6 lease; 7 return one; 8 begin a store; 9 end
 * one; 10 attach again; 11 power cut; 12 add a tenant; 13 remove one; 14 a member fails; 15 page damaged
 */
#include "fuzz.h"
#include "media/format.h"

#define HOSTILE_KEYS	64U		/* keys that records of an image have */
#define OWN_KEYS	64U		/* keys from 1000 on, stored with their bytes */
#define FILL_KEYS	100U		/* keys from 2000 on, stored to see reclaim at work; nobody writes their bytes */
#define DOMAINS		6U		/* three tenants, two keyspaces */
#define LEASES_MAX	8U
#define STORES_MAX	4U

struct user {
	struct rig *r;
	struct kvc_domain *d[DOMAINS];
	struct kvc_lease leases[LEASES_MAX];
	struct kvc_store stores[STORES_MAX];
	u32	versions[STORES_MAX];
	u32	nr_leases, nr_stores;
};

struct view {
	bool	hostile[DOMAINS][HOSTILE_KEYS];
	bool	own[DOMAINS][OWN_KEYS];
};

static void *must(void *p)
{
	if (!p)
		fuzz_fail("the fuzzer itself is out of memory");
	return p;
}

/* The superblock of a device that counts; false when none does */
static bool read_super(struct dev *d, struct kvc_super *best)
{
	struct kvc_super *s = must(calloc(KVC_SUPER_SLOTS, sizeof(*s)));
	enum kvc_reason why[KVC_SUPER_SLOTS];
	u8 *slot = must(malloc(KVC_SUPER_BYTES));
	u32 i;

	for (i = 0; i < KVC_SUPER_SLOTS; i++) {
		dev_pread(d, kvc_super_offset(i, dev_bytes(d)), slot, KVC_SUPER_BYTES);
		why[i] = kvc_super_read(slot, i, &s[i]);
	}
	i = kvc_super_choose(s, why);
	if (i < KVC_SUPER_SLOTS) {
		if (why[i] != KVC_OK || kvc_super_worn(s, why, i) & BIT(i))
			fuzz_fail("the slot that counts is worn");
		*best = s[i];
	}
	free(slot);
	free(s);
	return i < KVC_SUPER_SLOTS;
}

/* Put the devices in the order of the pool that they make, if they make one. */
static bool arrange(struct rig *r)
{
	struct kvc_super *s = must(calloc(r->nr_members + 1, sizeof(*s))), *best = &s[r->nr_members];
	struct dev *ordered[RIG_MEMBERS_MAX] = { NULL };
	bool ok = true;
	u32 i;

	for (i = 0; i < r->nr_members && ok; i++) {
		ok = read_super(r->devs[i], &s[i]) && !memcmp(s[i].pool_uuid, s[0].pool_uuid, KVC_UUID_LEN);
		if (ok && (i == 0 || kvc_super_newer(&s[i], best)))
			*best = s[i];
	}
	ok = ok && best->nr_members == r->nr_members;
	for (i = 0; i < r->nr_members && ok; i++) {
		u32 at = s[i].member_index;

		ok = at < best->nr_members && !ordered[at] &&
		     !memcmp(s[i].members[at].uuid, best->members[at].uuid, KVC_UUID_LEN) &&
		     kvc_device_bytes(best->members[at].nr_segments, best->segment_size) <= dev_bytes(r->devs[i]);
		if (ok)
			ordered[at] = r->devs[i];
	}
	if (ok) {
		memcpy(r->devs, ordered, sizeof(ordered));
		*r->super = *best;
	}
	free(s);
	return ok;
}

static void get_domains(struct user *u)
{
	u32 i;

	for (i = 0; i < DOMAINS; i++)
		u->d[i] = rig_domain(u->r, i % 3, i / 3);
}

static void put_domains(struct user *u)
{
	u32 i;

	for (i = 0; i < DOMAINS; i++)
		if (u->d[i])
			kvc_domain_put(u->r->pool, u->d[i]);
}

/* What is there, of the keys that an image can name and of those that are stored here */
static void look(struct user *u, struct view *v)
{
	u32 i, j;

	for (i = 0; i < DOMAINS; i++) {
		for (j = 0; j < HOSTILE_KEYS; j++)
			v->hostile[i][j] = u->d[i] && rig_query(u->r, u->d[i], j) > 0;
		for (j = 0; j < OWN_KEYS; j++)
			v->own[i][j] = u->d[i] && rig_query(u->r, u->d[i], 1000 + j) > 0;
	}
}

/* Is all that was there in @a there in @b? */
static bool all_there(const struct view *a, const struct view *b)
{
	const bool *in_a = &a->hostile[0][0], *in_b = &b->hostile[0][0];
	u32 i;

	for (i = 0; i < sizeof(*a); i++)
		if (in_a[i] && !in_b[i])
			return false;
	return true;
}

static void recover_thrice(struct user *u)
{
	static struct view first, again;
	struct rig *r = u->r;
	u32 i;

	for (i = 0; i < 3; i++) {
		r->backwards = i == 1;
		rig_recover(r);
		get_domains(u);
		look(u, i ? &again : &first);
		if (i && memcmp(&first, &again, sizeof(first)))
			fuzz_fail(i == 1 ? "recovery depends on the order of the segments" :
					   "a second recovery finds other pages than the first");
		if (i == 2)
			break;
		put_domains(u);
		rig_detach(r);
	}
	rig_write_super(r);
}

static void release(struct user *u)
{
	while (u->nr_leases)
		kvc_lease_put(u->r->pool, &u->leases[--u->nr_leases]);
	while (u->nr_stores)
		kvc_store_abort(u->r->pool, &u->stores[--u->nr_stores]);
}

/* @recovered: NULL, or gets what is there before the pool does any work */
static void attach_again(struct user *u, bool cut, struct view *recovered)
{
	release(u);
	put_domains(u);
	if (cut)
		rig_cut(u->r);
	else
		rig_detach(u->r);
	rig_recover(u->r);
	get_domains(u);
	if (recovered)
		look(u, recovered);
	rig_work(u->r);
	rig_write_super(u->r);
}

/* Any bytes of the segment may be named; reading them has to be possible, no more. */
static void load_any(struct user *u, u32 domain, u32 id, int status)
{
	struct rig *r = u->r;
	struct kvc_load ld;
	u8 *buf;
	u32 i;

	if (!u->d[domain] || rig_hold(r, u->d[domain], id, &ld))
		return;
	if (ld.length == 0 || ld.length > KVC_PAGE_MAX || ld.member >= r->nr_members)
		fuzz_fail("a recovered page has no place");
	if ((ld.offset - KVC_DATA_OFFSET) % r->super->segment_size + ld.length > r->super->segment_size)
		fuzz_fail("a recovered page spans segments");
	buf = must(malloc(ld.length));
	dev_pread(r->devs[ld.member], ld.offset, buf, ld.length);
	for (i = 0; i < ld.nr_chunks && !ld.no_crcs; i++)
		(void)kvc_load_crc(r->pool, &ld, i);
	free(buf);
	kvc_load_end(r->pool, &ld, status);
}

static void load_own(struct user *u, u32 domain, u32 id)
{
	int ret;

	if (!u->d[domain])
		return;
	ret = rig_load(u->r, u->d[domain], id, id);
	if (ret && ret != -ENOENT && ret != -ENODEV)
		fuzz_fail("a page that was stored here is damaged");
}

static void store(struct user *u, u32 domain, u32 id, u32 length)
{
	if (u->d[domain] && rig_store(u->r, u->d[domain], id, id, length) == -EAGAIN)
		rig_work(u->r);
}

static void begin_store(struct user *u, u32 domain, u32 id, u32 length)
{
	if (!u->d[domain] || u->nr_stores == STORES_MAX ||
	    rig_begin(u->r, u->d[domain], id, length, &u->stores[u->nr_stores]))
		return;
	u->versions[u->nr_stores++] = id;
}

static void end_store(struct user *u, bool commit)
{
	if (!u->nr_stores)
		return;
	u->nr_stores--;
	if (!commit) {
		kvc_store_abort(u->r->pool, &u->stores[u->nr_stores]);
		return;
	}
	rig_write_page(u->r, &u->stores[u->nr_stores], u->versions[u->nr_stores]);
	kvc_store_commit(u->r->pool, &u->stores[u->nr_stores]);
}

static void lease(struct user *u, u32 domain, u32 id)
{
	if (u->d[domain] && u->nr_leases < LEASES_MAX &&
	    !rig_lease(u->r, u->d[domain], id, &u->leases[u->nr_leases]))
		u->nr_leases++;
}

static void change_tenant(struct user *u, bool add, u32 which)
{
	static const char *const names[4] = { "one", "two", "three", "default" };
	struct rig *r = u->r;

	if (add ? kvc_tenant_add(r->pool, names[which % 4], 0, 0, 0600, 0) < 0 :
		  kvc_tenant_remove(r->pool, names[which % 4]) != 0)
		return;
	rig_write_super(r);
	put_domains(u);
	get_domains(u);
}

static void one_item(struct user *u, u32 member)
{
	struct kvc_work w;

	rig_step(u->r, member, &w);
}

static void execute(struct user *u, const struct fuzz_op *op)
{
	u32 domain = op->b % DOMAINS, own = 1000 + op->a % OWN_KEYS, member = op->a % u->r->nr_members;
	u32 length = op->x >> 31 ? op->x : op->x % 12000 + 1;

	switch (op->op % 16) {
	case 0:
		load_own(u, domain, own);
		load_any(u, domain, op->a % HOSTILE_KEYS, 0);
		break;
	case 1:
		store(u, domain, own, length);
		break;
	case 2:
		if (u->d[domain])
			rig_delete(u->r, u->d[domain], op->c & 1 ? own : op->a % HOSTILE_KEYS);
		break;
	case 3:
		rig_flush(u->r);
		break;
	case 4:
		rig_work(u->r);
		break;
	case 5:
		one_item(u, member);
		break;
	case 6:
		lease(u, domain, op->c & 1 ? own : op->a % HOSTILE_KEYS);
		break;
	case 7:
		if (u->nr_leases)
			kvc_lease_put(u->r->pool, &u->leases[--u->nr_leases]);
		break;
	case 8:
		begin_store(u, domain, own, length);
		break;
	case 9:
		end_store(u, op->a & 1);
		break;
	case 10:
	case 11:
		attach_again(u, op->op & 1, NULL);
		break;
	case 12:
	case 13:
		change_tenant(u, !(op->op & 1), op->a);
		break;
	case 14:
		kvc_member_fail(u->r->pool, member);
		break;
	default:
		load_any(u, domain, op->a % HOSTILE_KEYS, -EBADMSG);
	}
}

/* Fill the pool as often as it takes to reclaim all that was there. Only places and records matter. */
static void fill(struct user *u)
{
	u32 length = min(kvc_page_max(u->r->pool) / 3, 80000U), i;
	struct kvc_store st;
	int ret;

	for (i = 0; i < FILL_KEYS; i++) {
		ret = rig_begin(u->r, u->d[0], 2000 + i, length, &st);
		if (ret == -EAGAIN)
			rig_work(u->r);
		if (ret)
			continue;
		st.no_crcs = true;
		kvc_store_commit(u->r->pool, &st);
	}
}

/* What each pool goes through at the end: its pages are read, it is attached again and filled. */
static void finish(struct user *u)
{
	static struct view before, recovered, after;
	u32 i, j;

	for (i = 0; i < DOMAINS; i++)
		for (j = 0; j < HOSTILE_KEYS; j++)
			load_any(u, i, j, 0);
	release(u);
	rig_work(u->r);
	for (i = 0; i < OWN_KEYS / 4; i++)
		store(u, i % DOMAINS, 1000 + i, i % 8 ? 100 : 20000);
	rig_work(u->r);
	rig_flush(u->r);
	look(u, &before);
	attach_again(u, false, &recovered);
	look(u, &after);
	/* Nobody attaches a pool as often as a hostile superblock may say: counters do not go on for ever. */
	if (kvc_super_of(u->r->pool)->seq < BIT_ULL(28) && !all_there(&before, &recovered))
		fuzz_fail("what was flushed is not there after attaching again");
	if (!all_there(&recovered, &after) && !rig_stats(u->r).evicted_pages)
		fuzz_fail("what was recovered is gone, and was not evicted");
	if (u->d[0])
		fill(u);
	for (i = 0; i < OWN_KEYS; i++)
		load_own(u, i % DOMAINS, 1000 + i);
	put_domains(u);
}

void fuzz_image(const u8 *data, size_t size)
{
	struct fuzz_program p = { .data = data, .left = size };
	struct user u = { .r = fuzz_image_build(&p) };
	struct fuzz_op op;

	if (arrange(u.r)) {
		recover_thrice(&u);
		while (fuzz_next(&p, &op))
			execute(&u, &op);
		finish(&u);
	}
	rig_free(u.r);
}
