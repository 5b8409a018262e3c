// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Superblock: writing, reading, validating; sizes of devices; names.
 */
#include "media/format_media.h"

u64 kvc_device_bytes(u32 nr_segments, u64 segment_size)
{
	return KVC_DEVICE_MIN + nr_segments * segment_size;
}

u32 kvc_device_segments(u64 device_bytes, u64 segment_size)
{
	u64 n;

	device_bytes &= ~(u64)(KVC_BLOCK - 1);
	if (segment_size == 0 || device_bytes < KVC_DEVICE_MIN)
		return 0;
	n = (device_bytes - KVC_DEVICE_MIN) / segment_size;
	if (n < KVC_SEGMENTS_MIN)
		return 0;
	return (u32)min_t(u64, n, KVC_SEGMENTS_END);
}

static struct kvc_witness witness_of(const struct kvc_super *s)
{
	return (struct kvc_witness){ s->member_index, s->seq, s->members };
}

static bool same_super(const struct kvc_witness *a, const struct kvc_witness *b)
{
	return a->seq == b->seq && !memcmp(a->members, b->members, KVC_MEMBERS_MAX * sizeof(*a->members));
}

/* Does @w say that member @i of @members was there? */
static bool says_there(const struct kvc_witness *w, const struct kvc_super_member *members, u32 i)
{
	return w->members[i].nr_segments && !(w->members[i].flags & KVC_MEMBER_ABSENT) &&
	       !memcmp(w->members[i].uuid, members[i].uuid, KVC_UUID_LEN);
}

static bool witness_newer(const struct kvc_witness *a, const struct kvc_witness *b)
{
	if (a->seq != b->seq)
		return a->seq > b->seq;
	return !same_super(a, b) && says_there(b, a->members, a->member);
}

bool kvc_super_newer(const struct kvc_super *a, const struct kvc_super *b)
{
	struct kvc_witness wa = witness_of(a), wb = witness_of(b);

	return witness_newer(&wa, &wb);
}

static const struct kvc_witness *newest_witness(const struct kvc_witness *w, u32 nr)
{
	const struct kvc_witness *newest = w;
	u32 i;

	for (i = 1; i < nr; i++)
		if (witness_newer(&w[i], newest))
			newest = &w[i];
	return newest;
}

bool kvc_super_behind(const struct kvc_super *now, const struct kvc_witness *w)
{
	struct kvc_witness newest = witness_of(now);

	return !same_super(w, &newest);
}

/*
 * Who of the members that @now names was there. Who came later was not missing, unless it came to members that were
 * there without this one.
 */
static u64 were_there(const struct kvc_witness *w, const struct kvc_witness *now)
{
	u64 mask = 0, later = 0;
	bool without = false;
	u32 i;

	for (i = 0; i < KVC_MEMBERS_MAX; i++) {
		if (says_there(w, now->members, i))
			mask |= BIT_ULL(i);
		else if (!w->members[i].nr_segments && now->members[i].nr_segments)
			later |= BIT_ULL(i);
		else if (says_there(now, w->members, i))
			without = true;
	}
	return without ? mask : mask | later;
}

/* The next older sequence, below @below; 0: none */
static u64 next_older(const struct kvc_witness *w, u32 nr, u64 below)
{
	u64 seq = 0;
	u32 i;

	for (i = 0; i < nr; i++)
		if (w[i].seq < below)
			seq = max(seq, w[i].seq);
	return seq;
}

/*
 * Do all superblocks of sequence @seq belong to the history of the newer ones? @fit: the members whose superblocks do,
 * @said: who was there by those that are newer
 */
static bool sequence_fits(const struct kvc_witness *w, u32 nr, const struct kvc_witness *now, u64 seq, u64 *fit,
			  u64 *said)
{
	u64 was, more = 0;
	u32 i;

	do {
		was = *fit;
		for (i = 0; i < nr; i++)
			if (w[i].seq == seq && were_there(&w[i], now) & (*fit | *said))
				*fit |= BIT_ULL(w[i].member);
	} while (*fit != was);
	for (i = 0; i < nr; i++) {
		if (w[i].seq != seq)
			continue;
		if (!(*fit & BIT_ULL(w[i].member)))
			return false;
		more |= were_there(&w[i], now);
	}
	*said |= more;
	return true;
}

bool kvc_one_history(const struct kvc_witness *w, u32 nr)
{
	const struct kvc_witness *now = newest_witness(w, nr);
	u64 fit = 0, said = 0, seq = U64_MAX;
	u32 i;

	for (i = 0; i < nr; i++)
		if (same_super(&w[i], now))
			fit |= BIT_ULL(w[i].member);
	while ((seq = next_older(w, nr, seq)))
		if (!sequence_fits(w, nr, now, seq, &fit, &said))
			return false;
	return true;
}

u32 kvc_super_slot(u64 seq, u32 copy)
{
	return copy * 2 + (u32)(seq % 2);
}

u64 kvc_super_offset(u32 slot, u64 device_bytes)
{
	u64 base = slot < 2 ? 0 : (device_bytes & ~(u64)(KVC_BLOCK - 1)) - KVC_TAIL_BYTES;

	return base + slot % 2 * KVC_SUPER_BYTES;
}

static u32 newest_of(const struct kvc_super *s, const enum kvc_reason *why, u32 copy)
{
	u32 a = copy * 2, b = a + 1;

	if (why[a] != KVC_OK)
		return why[b] == KVC_OK ? b : KVC_SUPER_SLOTS;
	return why[b] == KVC_OK && s[b].seq > s[a].seq ? b : a;
}

/* Of the same member of the same pool? What never changes of a member has to be the same, too. */
static bool same_member(const struct kvc_super *a, const struct kvc_super *b)
{
	const struct kvc_super_member *am = &a->members[a->member_index], *bm = &b->members[b->member_index];

	return !memcmp(a->pool_uuid, b->pool_uuid, KVC_UUID_LEN) && a->member_index == b->member_index &&
	       !memcmp(am->uuid, bm->uuid, KVC_UUID_LEN) && am->nr_segments == bm->nr_segments &&
	       a->segment_size == b->segment_size && a->chunk_size == b->chunk_size;
}

u32 kvc_super_choose(const struct kvc_super s[KVC_SUPER_SLOTS], const enum kvc_reason why[KVC_SUPER_SLOTS])
{
	u32 front, tail, i;

	for (i = 0; i < KVC_SUPER_SLOTS; i++)
		if (why[i] == KVC_BAD_VERSION || why[i] == KVC_BAD_FEATURES)
			return KVC_SUPER_SLOTS;
	front = newest_of(s, why, 0);
	tail = newest_of(s, why, 1);
	if (front == KVC_SUPER_SLOTS || tail == KVC_SUPER_SLOTS)
		return min(front, tail);
	return s[tail].seq > s[front].seq && same_member(&s[front], &s[tail]) ? tail : front;
}

u32 kvc_super_worn(const struct kvc_super s[KVC_SUPER_SLOTS], const enum kvc_reason why[KVC_SUPER_SLOTS], u32 chosen)
{
	const struct kvc_super *c = &s[chosen];
	u32 worn = 0, i;

	for (i = 0; i < KVC_SUPER_SLOTS; i++)
		if (why[i] != KVC_OK || !same_member(&s[i], c) || s[i].seq + (i % 2 != chosen % 2) != c->seq)
			worn |= BIT(i);
	return worn;
}

static bool name_char_ok(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

bool kvc_name_ok(const char *name)
{
	u32 i;

	if (name[0] == '.' || name[0] == '-')
		return false;
	for (i = 0; i < KVC_NAME_MAX && name[i]; i++)
		if (!name_char_ok(name[i]))
			return false;
	return i > 0 && i < KVC_NAME_MAX;
}

bool kvc_super_hole(const struct kvc_super *s, u32 member)
{
	static const struct kvc_super_member none;

	return !memcmp(&s->members[member], &none, sizeof(none));
}

static enum kvc_reason check_members(const struct kvc_super *s)
{
	u32 i, j;

	if (s->nr_members < 1 || s->nr_members > KVC_MEMBERS_MAX || s->member_index >= s->nr_members)
		return KVC_BAD_GEOMETRY;
	if (kvc_super_hole(s, s->member_index) || kvc_super_hole(s, s->nr_members - 1))
		return KVC_BAD_GEOMETRY;
	for (i = 0; i < s->nr_members; i++) {
		const struct kvc_super_member *m = &s->members[i];

		if (kvc_super_hole(s, i))
			continue;
		if (m->nr_segments < KVC_SEGMENTS_MIN || m->nr_segments > KVC_SEGMENTS_END ||
		    m->flags & ~KVC_MEMBER_ABSENT)
			return KVC_BAD_GEOMETRY;
		for (j = 0; j < i; j++)
			if (!memcmp(m->uuid, s->members[j].uuid, KVC_UUID_LEN))
				return KVC_BAD_GEOMETRY;
	}
	return KVC_OK;
}

bool kvc_limits_ok(const struct kvc_limits *l)
{
	return l->weight <= KVC_WEIGHT_MAX && !(l->flags & ~KVC_LIMIT_NO_URGENT) &&
	       (!l->quota || l->reserve <= l->quota) &&
	       (!l->write_budget || (l->write_budget >= KVC_BUDGET_MIN && l->write_budget <= KVC_BUDGET_MAX));
}

static bool limited(const struct kvc_limits *l)
{
	static const struct kvc_limits none;

	return memcmp(l, &none, sizeof(none));
}

bool kvc_key_name_ok(const char *name)
{
	u32 i;

	for (i = 0; i < KVC_KEY_NAME_MAX && name[i]; i++)
		if (name[i] <= ' ' || name[i] > '~')
			return false;
	return i > 0 && i < KVC_KEY_NAME_MAX;
}

static bool keyed(const struct kvc_super_key *k)
{
	static const struct kvc_super_key none;

	return memcmp(k, &none, sizeof(none));
}

/* A key for whose pages are encrypted, and for nobody else */
static bool key_ok(const struct kvc_super_tenant *t, const struct kvc_super_key *k)
{
	return t->flags & KVC_TENANT_ENCRYPTED ? kvc_key_name_ok(k->name) : !keyed(k);
}

static enum kvc_reason check_tenants(const struct kvc_super *s)
{
	u32 i, j;

	for (i = 0; i < KVC_TENANTS_MAX; i++) {
		const struct kvc_super_tenant *t = &s->tenants[i];

		if (!t->flags && !limited(&s->limits[i]) && !keyed(&s->keys[i]))
			continue;
		if (!(t->flags & KVC_TENANT_USED) || (t->flags & ~KVC_TENANT_KNOWN))
			return KVC_BAD_TENANT;
		if (!kvc_name_ok(t->name) || (t->mode & ~0777U) || !kvc_limits_ok(&s->limits[i]) ||
		    !key_ok(t, &s->keys[i]))
			return KVC_BAD_TENANT;
		for (j = 0; j < i; j++)
			if ((s->tenants[j].flags & KVC_TENANT_USED) &&
			    !strncmp(t->name, s->tenants[j].name, KVC_NAME_MAX))
				return KVC_BAD_TENANT;
	}
	return KVC_OK;
}

static bool between(u64 n, u64 lo, u64 hi)
{
	return n >= lo && n <= hi;
}

bool kvc_settings_ok(const struct kvc_settings *s)
{
	return (!s->discard_rate || between(s->discard_rate, KVC_DISCARD_MIN, KVC_DISCARD_MAX)) &&
	       (!s->write_budget || between(s->write_budget, KVC_BUDGET_MIN, KVC_BUDGET_MAX));
}

enum kvc_reason kvc_super_check(const struct kvc_super *s)
{
	enum kvc_reason why;

	if ((s->incompat & ~KVC_INCOMPAT_KNOWN) || (s->ro_compat & ~KVC_RO_COMPAT_KNOWN))
		return KVC_BAD_FEATURES;
	if (s->segment_size < KVC_SEGMENT_MIN || s->segment_size > KVC_SEGMENT_MAX || s->segment_size % KVC_BLOCK)
		return KVC_BAD_GEOMETRY;
	if (s->chunk_size < KVC_CHUNK_MIN || s->chunk_size > KVC_CHUNK_MAX || (s->chunk_size & (s->chunk_size - 1)))
		return KVC_BAD_GEOMETRY;
	if (s->seq >= KVC_SUPER_SEQ_END || !kvc_name_ok(s->pool_name) || !kvc_settings_ok(&s->settings))
		return KVC_BAD_GEOMETRY;
	why = check_members(s);
	if (why != KVC_OK)
		return why;
	return check_tenants(s);
}

static u32 super_crc(const void *slot)
{
	static const u8 zero[4];
	const u32 field = offsetof(struct kvc_media_super, crc);
	const u8 *p = slot;
	u32 crc;

	crc = kvc_crc_feed(KVC_CRC_INIT, p, field);
	crc = kvc_crc_feed(crc, zero, sizeof(zero));
	crc = kvc_crc_feed(crc, p + field + 4, KVC_SUPER_BYTES - field - 4);
	return kvc_crc_finish(crc);
}

static void encode_tenant(const struct kvc_super_tenant *t, struct kvc_media_tenant *mt)
{
	memcpy(mt->name, t->name, KVC_NAME_MAX);
	mt->flags = cpu_to_le32(t->flags);
	mt->epoch = cpu_to_le32(t->epoch);
	mt->uid = cpu_to_le32(t->uid);
	mt->gid = cpu_to_le32(t->gid);
	mt->mode = cpu_to_le32(t->mode);
}

static void decode_tenant(const struct kvc_media_tenant *mt, struct kvc_super_tenant *t)
{
	memcpy(t->name, mt->name, KVC_NAME_MAX);
	t->flags = le32_to_cpu(mt->flags);
	t->epoch = le32_to_cpu(mt->epoch);
	t->uid = le32_to_cpu(mt->uid);
	t->gid = le32_to_cpu(mt->gid);
	t->mode = le32_to_cpu(mt->mode);
}

/* The table and its feature bit, by which an older program knows that it must not write a superblock without it */
static void encode_limits(const struct kvc_super *s, struct kvc_media_super *m)
{
	u32 i;

	for (i = 0; i < KVC_TENANTS_MAX; i++) {
		const struct kvc_limits *l = &s->limits[i];
		struct kvc_media_limits *ml = &m->limits[i];

		if (limited(l))
			m->ro_compat |= cpu_to_le64(KVC_RO_COMPAT_LIMITS);
		ml->quota = cpu_to_le64(l->quota);
		ml->reserve = cpu_to_le64(l->reserve);
		ml->write_budget = cpu_to_le64(l->write_budget);
		ml->bandwidth = cpu_to_le64(l->bandwidth);
		ml->pinned = cpu_to_le64(l->pinned);
		ml->leased = cpu_to_le64(l->leased);
		ml->inflight = cpu_to_le32(l->inflight);
		ml->keyspaces = cpu_to_le32(l->keyspaces);
		ml->weight = cpu_to_le32(l->weight);
		ml->flags = cpu_to_le32(l->flags);
	}
}

static void decode_limits(const struct kvc_media_super *m, struct kvc_super *s)
{
	u32 i;

	if (!(s->ro_compat & KVC_RO_COMPAT_LIMITS))
		return;
	s->ro_compat &= ~KVC_RO_COMPAT_LIMITS;
	for (i = 0; i < KVC_TENANTS_MAX; i++) {
		const struct kvc_media_limits *ml = &m->limits[i];

		s->limits[i] = (struct kvc_limits) {
			.quota = le64_to_cpu(ml->quota),
			.reserve = le64_to_cpu(ml->reserve),
			.write_budget = le64_to_cpu(ml->write_budget),
			.bandwidth = le64_to_cpu(ml->bandwidth),
			.pinned = le64_to_cpu(ml->pinned),
			.leased = le64_to_cpu(ml->leased),
			.inflight = le32_to_cpu(ml->inflight),
			.keyspaces = le32_to_cpu(ml->keyspaces),
			.weight = le32_to_cpu(ml->weight),
			.flags = le32_to_cpu(ml->flags),
		};
	}
}

/*
 * The same for keys. An older program would take what is encrypted for pages, and the log for damaged where the record
 * of one is: so the bit stays when no tenant has a key any more.
 */
static void encode_keys(const struct kvc_super *s, struct kvc_media_super *m)
{
	u32 i;

	for (i = 0; i < KVC_TENANTS_MAX; i++) {
		if (keyed(&s->keys[i]))
			m->incompat |= cpu_to_le64(KVC_INCOMPAT_KEYS);
		memcpy(m->keys[i].name, s->keys[i].name, KVC_KEY_NAME_MAX);
		memcpy(m->keys[i].check, s->keys[i].check, KVC_KEY_CHECK);
	}
}

static void decode_keys(const struct kvc_media_super *m, struct kvc_super *s)
{
	u32 i;

	if (!(s->incompat & KVC_INCOMPAT_KEYS))
		return;
	for (i = 0; i < KVC_TENANTS_MAX; i++) {
		memcpy(s->keys[i].name, m->keys[i].name, KVC_KEY_NAME_MAX);
		memcpy(s->keys[i].check, m->keys[i].check, KVC_KEY_CHECK);
	}
}

void kvc_super_encode(const struct kvc_super *s, u32 member, void *buf)
{
	struct kvc_media_super *m = buf;
	u32 i;

	memset(buf, 0, KVC_SUPER_BYTES);
	memcpy(m->magic, KVC_SUPER_MAGIC, sizeof(m->magic));
	m->version = cpu_to_le32(KVC_FORMAT_VERSION);
	m->seq = cpu_to_le64(s->seq);
	m->compat = cpu_to_le64(s->compat);
	m->ro_compat = cpu_to_le64(s->ro_compat);
	m->incompat = cpu_to_le64(s->incompat);
	memcpy(m->pool_uuid, s->pool_uuid, KVC_UUID_LEN);
	memcpy(m->pool_name, s->pool_name, KVC_NAME_MAX);
	m->segment_size = cpu_to_le64(s->segment_size);
	m->chunk_size = cpu_to_le32(s->chunk_size);
	m->nr_members = cpu_to_le32(s->nr_members);
	m->member_index = cpu_to_le32(member);
	m->discard_rate = cpu_to_le64(s->settings.discard_rate);
	m->write_budget = cpu_to_le64(s->settings.write_budget);
	for (i = 0; i < s->nr_members; i++) {
		memcpy(m->members[i].uuid, s->members[i].uuid, KVC_UUID_LEN);
		m->members[i].nr_segments = cpu_to_le32(s->members[i].nr_segments);
		m->members[i].flags = cpu_to_le32(s->members[i].flags);
	}
	for (i = 0; i < KVC_TENANTS_MAX; i++)
		encode_tenant(&s->tenants[i], &m->tenants[i]);
	encode_limits(s, m);
	encode_keys(s, m);
	m->crc = cpu_to_le32(super_crc(buf));
}

static void decode_fields(const struct kvc_media_super *m, struct kvc_super *s)
{
	u32 i;

	memset(s, 0, sizeof(*s));
	s->seq = le64_to_cpu(m->seq);
	s->compat = le64_to_cpu(m->compat);
	s->ro_compat = le64_to_cpu(m->ro_compat);
	s->incompat = le64_to_cpu(m->incompat);
	memcpy(s->pool_uuid, m->pool_uuid, KVC_UUID_LEN);
	memcpy(s->pool_name, m->pool_name, KVC_NAME_MAX);
	s->segment_size = le64_to_cpu(m->segment_size);
	s->chunk_size = le32_to_cpu(m->chunk_size);
	s->nr_members = le32_to_cpu(m->nr_members);
	s->member_index = le32_to_cpu(m->member_index);
	s->settings.discard_rate = le64_to_cpu(m->discard_rate);
	s->settings.write_budget = le64_to_cpu(m->write_budget);
	for (i = 0; i < KVC_MEMBERS_MAX && i < s->nr_members; i++) {
		memcpy(s->members[i].uuid, m->members[i].uuid, KVC_UUID_LEN);
		s->members[i].nr_segments = le32_to_cpu(m->members[i].nr_segments);
		s->members[i].flags = le32_to_cpu(m->members[i].flags);
	}
	for (i = 0; i < KVC_TENANTS_MAX; i++)
		decode_tenant(&m->tenants[i], &s->tenants[i]);
	decode_limits(m, s);
	decode_keys(m, s);
}

enum kvc_reason kvc_super_decode(const void *buf, struct kvc_super *s)
{
	const struct kvc_media_super *m = buf;

	if (memcmp(m->magic, KVC_SUPER_MAGIC, sizeof(m->magic)))
		return KVC_BAD_MAGIC;
	if (super_crc(buf) != le32_to_cpu(m->crc))
		return KVC_BAD_CRC;
	if (le32_to_cpu(m->version) != KVC_FORMAT_VERSION)
		return KVC_BAD_VERSION;
	decode_fields(m, s);
	return kvc_super_check(s);
}

enum kvc_reason kvc_super_read(const void *buf, u32 slot, struct kvc_super *s)
{
	enum kvc_reason why = kvc_super_decode(buf, s);

	return why == KVC_OK && s->seq % 2 != slot % 2 ? KVC_BAD_IDENTITY : why;
}
