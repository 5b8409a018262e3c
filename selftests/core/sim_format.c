// SPDX-License-Identifier: GPL-2.0
/*
 * What lies on the devices before the first life. See sim.h.
 */
#include "media/format_media.h"
#include "sim.h"

void sim_write_super(struct sim *s, const struct kvc_super *super, u32 member, u32 copies)
{
	struct dev *d = s->devs[member];
	static u8 buf[KVC_SUPER_BYTES];
	u32 i;

	if (kvc_super_hole(super, member) || dev_gone(d))
		return;
	kvc_super_encode(super, member, buf);
	if (copies == KVC_SUPER_COPIES)
		s->super_on[member] = super->seq;
	for (i = 0; i < copies; i++)
		dev_pwrite(d, kvc_super_offset(kvc_super_slot(super->seq, i), dev_bytes(d)), buf, KVC_SUPER_BYTES);
}

void sim_write_supers(struct sim *s)
{
	u32 i;

	for (i = 0; i < s->cfg.nr_members; i++)
		sim_write_super(s, s->super, i, KVC_SUPER_COPIES);
}

/* Old data of other owners lies on the devices. */
void sim_litter(struct sim *s, struct dev *d)
{
	u32 n = rng_below(&s->rng, 8), i;
	u8 block[KVC_BLOCK];
	u64 at;

	for (i = 0; i < n; i++) {
		at = rng_u64(&s->rng) % (dev_bytes(d) / KVC_BLOCK);
		page_bytes(block, rng_u64(&s->rng), 0, KVC_BLOCK);
		dev_pwrite(d, at * KVC_BLOCK, block, KVC_BLOCK);
	}
}

/* Where what recovery believes ends, two gaps further with each attach, and how many attaches count; see recover.c. */
#define BELIEVED_END	(KVC_COUNTER_END / 2)
#define GAP		BIT_ULL(32)
#define ATTACHES	BIT_ULL(28)

/* A segment by hand: its header, and an extent with one record, of a page. @behind: what the extent says it is of */
static void plant_as(struct sim *s, u32 member, u32 segment, const struct kvc_seg_id *id,
		     const struct kvc_seg_id *behind, struct kvc_rec *rec)
{
	u64 at = KVC_DATA_OFFSET + segment * s->cfg.segment_size;
	struct kvc_extent_writer w;
	u8 buf[KVC_BLOCK];
	void *crcs;

	kvc_extent_begin(&w, buf, sizeof(buf));
	dev_pwrite(s->devs[member], at, buf, kvc_extent_end(&w, id, 0));
	kvc_extent_begin(&w, buf, sizeof(buf));
	rec->type = KVC_REC_PAGE;
	rec->block = 9;
	rec->length = 1000;
	rec->nr_crcs = 1;
	if (!kvc_extent_add(&w, rec, &crcs))
		sim_fail("no room for a record");
	kvc_put_crc(crcs, 0, 0);
	dev_pwrite(s->devs[member], at + KVC_BLOCK, buf, kvc_extent_end(&w, behind, 1));
}

static void plant(struct sim *s, u32 member, u32 segment, u64 generation, struct kvc_rec *rec)
{
	struct kvc_seg_id id = { .member = member, .segment = segment, .generation = generation };

	memcpy(id.pool_uuid, s->super->pool_uuid, KVC_UUID_LEN);
	id.salt = rng_u64(&s->rng);
	plant_as(s, member, segment, &id, &id, rec);
}

/*
 * Segments of another pool, of another member, of another place: devices, or parts of them, that were swapped; and what
 * another use of the segment has left behind its header, told by its generation or by its salt.
 */
static void plant_foreign(struct sim *s)
{
	u32 m = rng_below(&s->rng, s->cfg.nr_members), seg = rng_below(&s->rng, s->cfg.nr_segs[m]);
	struct kvc_seg_id id = { .member = m, .segment = seg, .generation = 1 + rng_below(&s->rng, 10) };
	struct kvc_rec rec = { .tenant = s->tenants[0].slot, .seq = BIT_ULL(40) };
	struct kvc_seg_id behind;
	u32 how = rng_below(&s->rng, 5);

	memcpy(id.pool_uuid, s->super->pool_uuid, KVC_UUID_LEN);
	id.pool_uuid[0] += how == 0;
	id.member += how == 1;
	id.segment += how == 2;
	id.salt = rng_u64(&s->rng);
	behind = id;
	behind.generation += how == 3;
	behind.salt += how == 4;
	key_make(rec.key, rng_below(&s->rng, s->cfg.nr_keys));
	sim_keyspace(s, rec.keyspace, 0);
	plant_as(s, m, seg, &id, &behind, &rec);
}

/*
 * A superblock that was written as often as attaches count; or media whose numbers are the last that are believed, and
 * segments with numbers beyond those, of a page that the simulation would find.
 */
static void plant_limits(struct sim *s)
{
	u64 last = BELIEVED_END + 2 * GAP * rng_below(&s->rng, 2) * s->super->seq - 1 - rng_below(&s->rng, 3);
	u64 beyond = BELIEVED_END + (rng_u64(&s->rng) % BELIEVED_END | 1000 * GAP);
	u32 m = s->cfg.nr_members - 1;
	struct kvc_rec rec = { 0 };

	s->n.limits++;
	if (rng_chance(&s->rng, 3000)) {
		s->super->seq = ATTACHES - rng_below(&s->rng, 6);
		return;
	}
	rec.tenant = KVC_TENANTS_MAX - 1;
	rec.seq = last;
	plant(s, 0, 0, last, &rec);
	rec.tenant = s->tenants[0].slot;
	key_make(rec.key, 0);
	sim_keyspace(s, rec.keyspace, 0);
	rec.seq = 1;
	plant(s, m, 1, beyond, &rec);
	rec.seq = beyond;
	plant(s, m, 2, 1, &rec);
}

void life_format(struct sim *s)
{
	struct kvc_super *super = calloc(1, sizeof(*super));
	u32 i;

	if (!super)
		sim_fail("the test itself is out of memory");
	s->super = super;
	super->seq = 1;
	page_bytes(super->pool_uuid, s->seed, 0, KVC_UUID_LEN);
	strcpy(super->pool_name, "sim");
	super->segment_size = s->cfg.segment_size;
	super->chunk_size = s->cfg.chunk_size;
	super->nr_members = s->cfg.nr_members;
	if (s->cfg.budget)
		super->settings.write_budget = KVC_BUDGET_MIN << rng_below(&s->rng, 6);
	s->settings = super->settings;
	s->settings_before = super->settings;
	for (i = 0; i < s->cfg.nr_members; i++) {
		page_bytes(super->members[i].uuid, s->seed + i + 1, 0, KVC_UUID_LEN);
		super->members[i].nr_segments = s->cfg.nr_segs[i];
		s->devs[i] = bus_add(s->bus, kvc_device_bytes(s->cfg.nr_segs[i], s->cfg.segment_size));
		dev_unit(s->devs[i], rng_chance(&s->rng, 5000) ? KVC_BLOCK : DEV_SECTOR);
		sim_litter(s, s->devs[i]);
	}
	for (i = 0; i < SIM_TENANTS; i++) {
		struct kvc_super_tenant *t = &super->tenants[i * 3];

		snprintf(s->tenants[i].name, KVC_NAME_MAX, "tenant%u", i);
		s->tenants[i].slot = i * 3;
		if (i && s->cfg.tenants)
			continue;
		strcpy(t->name, s->tenants[i].name);
		s->tenants[i].flags = i % 2 ? KVC_TENANT_VERIFIED : 0;
		if (sim_key(s, i, 0)) {
			s->tenants[i].flags |= KVC_TENANT_ENCRYPTED;
			super->keys[i * 3] = *sim_key(s, i, 0);
		}
		s->tenants[i].flags_before = s->tenants[i].flags;
		t->flags = KVC_TENANT_USED | s->tenants[i].flags;
		t->mode = 0600;
		if (s->cfg.budget && rng_chance(&s->rng, 5000))
			super->limits[i * 3].write_budget = KVC_BUDGET_MIN << rng_below(&s->rng, 4);
		s->tenants[i].limits = super->limits[i * 3];
		s->tenants[i].limits_before = super->limits[i * 3];
		s->tenants[i].state = T_LIVE;
	}
	if (s->cfg.lies)
		bus_liar(s->bus, s->devs[rng_below(&s->rng, s->cfg.nr_members)]);
	for (i = rng_below(&s->rng, 4); i; i--)
		plant_foreign(s);
	if (s->cfg.limits)
		plant_limits(s);
	s->super_seq_durable = super->seq;
	sim_write_supers(s);
}
