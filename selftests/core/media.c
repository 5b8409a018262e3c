// SPDX-License-Identifier: GPL-2.0
/*
 * Helpers for tests that write media by hand. See media.h.
 */
#include "media/format_media.h"
#include "media.h"
#include "page.h"

void media_sample_super(struct kvc_super *s)
{
	memset(s, 0, sizeof(*s));
	s->seq = 0x1122334455ULL;
	s->compat = 0x8000000000000001ULL;
	page_bytes(s->pool_uuid, 1, 0, KVC_UUID_LEN);
	strcpy(s->pool_name, "pool-0.a_B");
	s->segment_size = 1U << 20;
	s->chunk_size = 64U << 10;
	s->nr_members = 2;
	s->settings = (struct kvc_settings){ KVC_DISCARD_DEFAULT, 5ULL << 40 };
	page_bytes(s->members[0].uuid, 2, 0, KVC_UUID_LEN);
	page_bytes(s->members[1].uuid, 3, 0, KVC_UUID_LEN);
	s->members[0].nr_segments = 4;
	s->members[1].nr_segments = 70000;
	strcpy(s->tenants[0].name, "default");
	s->tenants[0] = (struct kvc_super_tenant){ "default", KVC_TENANT_USED, 0, 0, 0, 0600 };
	s->tenants[7] = (struct kvc_super_tenant){ "seven", KVC_TENANT_USED, 3, 1000, 100, 0660 };
	s->tenants[KVC_TENANTS_MAX - 1] =
		(struct kvc_super_tenant){ "a-name-of-thirty-one-characters", KVC_TENANT_USED, 0xfffffffe, 1, 2, 0777 };
	s->tenants[8].epoch = 9;
}

/* Some for the first and the last tenant */
void media_sample_limits(struct kvc_super *s)
{
	s->limits[0] = (struct kvc_limits){ .quota = 1ULL << 40, .reserve = 1ULL << 40, .keyspaces = 7 };
	s->limits[KVC_TENANTS_MAX - 1] = (struct kvc_limits) {
		.quota = ~0ULL, .reserve = 0x1122334455667788ULL, .write_budget = KVC_BUDGET_MAX, .bandwidth = 3,
		.pinned = 1ULL << 33, .leased = 5, .inflight = 0x99aabbcc, .keyspaces = ~0U, .weight = KVC_WEIGHT_MAX,
		.flags = KVC_LIMIT_NO_URGENT,
	};
}

void media_sample_id(struct kvc_seg_id *id)
{
	page_bytes(id->pool_uuid, 1, 0, KVC_UUID_LEN);
	id->member = 1;
	id->segment = 3;
	id->generation = 0x1234567890ULL;
	id->salt = 0xfedcba9876543210ULL;
}

static void add_page(struct kvc_extent_writer *w, u32 id, u32 block, u32 length)
{
	struct kvc_rec r = {
		.type = KVC_REC_PAGE, .tenant = id, .epoch = 3, .seq = 1000 + id, .block = block, .length = length,
		.depth = 17, .nr_crcs = (length - 1) / (64U << 10) + 1,
	};
	void *crcs;
	u32 i;

	key_make(r.key, id);
	keyspace_make(r.keyspace, id);
	if (!kvc_extent_add(w, &r, &crcs))
		abort();
	for (i = 0; i < r.nr_crcs; i++)
		kvc_put_crc(crcs, i, 0xc0ffee00 + i);
}

u32 media_sample_extent(const struct kvc_seg_id *id, void *buf, u32 cap)
{
	struct kvc_rec tomb = {
		.type = KVC_REC_TOMBSTONE, .tenant = 2, .epoch = 1, .seq = 2000, .block = 9, .length = 1,
		.victim_gen = 0x123456788ULL,
	};
	struct kvc_extent_writer w;

	kvc_extent_begin(&w, buf, cap);
	add_page(&w, 1, 255, 1);
	key_make(tomb.key, 5);
	keyspace_make(tomb.keyspace, 5);
	if (!kvc_extent_add(&w, &tomb, NULL))
		abort();
	add_page(&w, 7, 200, (192U << 10) + 1);
	return kvc_extent_end(&w, id, 5);
}

static u32 crc_around(const u8 *p, u32 bytes, u32 field)
{
	u32 zero = 0, crc = KVC_CRC_INIT;

	crc = kvc_crc_feed(crc, p, field);
	crc = kvc_crc_feed(crc, &zero, 4);
	crc = kvc_crc_feed(crc, p + field + 4, bytes - field - 4);
	return kvc_crc_finish(crc);
}

void media_fix_super(void *slot)
{
	struct kvc_media_super *m = slot;

	m->crc = cpu_to_le32(crc_around(slot, KVC_SUPER_BYTES, offsetof(struct kvc_media_super, crc)));
}

void media_fix_extent(void *buf, u32 cap)
{
	struct kvc_media_extent *m = buf;
	u32 bytes = le32_to_cpu(m->bytes);

	if (bytes >= KVC_BLOCK && bytes <= cap)
		m->crc = cpu_to_le32(crc_around(buf, bytes, offsetof(struct kvc_media_extent, crc)));
}
