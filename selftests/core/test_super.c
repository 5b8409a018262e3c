// SPDX-License-Identifier: GPL-2.0
/*
 * Superblock: round trip, every reason for a refusal, every damaged byte, golden bytes, device sizes, names.
 */
#include "media/format_media.h"
#include "golden.h"
#include "media.h"
#include "test.h"

struct fixture {
	struct kvc_super in, out;
	union {
		u8	buf[KVC_SUPER_BYTES];
		struct kvc_media_super media;
	};
};

static int make(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	media_sample_super(&f->in);
	kvc_super_encode(&f->in, 1, f->buf);
	*state = f;
	return 0;
}

static int unmake(void **state)
{
	free(*state);
	return 0;
}

static void round_trip(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(kvc_super_decode(f->buf, &f->out), KVC_OK);
	f->in.member_index = 1;
	assert_memory_equal(&f->in, &f->out, sizeof(f->in));
}

static void golden(void **state)
{
	struct fixture *f = *state;

	assert_true(golden_same("super", f->buf, KVC_SUPER_BYTES));
}

/* The table of limits, and the feature that says that there is one */
static void limits(void **state)
{
	struct fixture *f = *state;
	const struct kvc_media_super *m = &f->media;

	assert_int_equal(le64_to_cpu(m->ro_compat), 0);
	media_sample_limits(&f->in);
	kvc_super_encode(&f->in, 1, f->buf);
	assert_int_equal(le64_to_cpu(m->ro_compat), KVC_RO_COMPAT_LIMITS);
	assert_true(golden_same("limits", f->buf, KVC_SUPER_BYTES));
	round_trip(state);
	/* a single one, of the last byte of the last row */
	memset(f->in.limits, 0, sizeof(f->in.limits));
	f->in.limits[KVC_TENANTS_MAX - 1].flags = KVC_LIMIT_NO_URGENT;
	kvc_super_encode(&f->in, 1, f->buf);
	assert_int_equal(le64_to_cpu(m->ro_compat), KVC_RO_COMPAT_LIMITS);
	round_trip(state);
	/* when there is none any more, older programs may write it again */
	memset(f->in.limits, 0, sizeof(f->in.limits));
	kvc_super_encode(&f->in, 1, f->buf);
	assert_true(golden_same("super", f->buf, KVC_SUPER_BYTES));
}

static void every_byte_counts(void **state)
{
	struct fixture *f = *state;
	u32 i;

	for (i = 0; i < KVC_SUPER_BYTES; i++) {
		f->buf[i] ^= (u8)(1U << i % 8);
		assert_int_equal(kvc_super_decode(f->buf, &f->out), i < 8 ? KVC_BAD_MAGIC : KVC_BAD_CRC);
		f->buf[i] ^= (u8)(1U << i % 8);
	}
	assert_int_equal(kvc_super_decode(f->buf, &f->out), KVC_OK);
}

/* A change of the media with a right checksum has to be refused for this reason. */
#define REFUSED(f, reason, change)								\
	do {											\
		kvc_super_encode(&(f)->in, 1, (f)->buf);					\
		change;										\
		media_fix_super((f)->buf);							\
		assert_int_equal(kvc_super_decode((f)->buf, &(f)->out), reason);		\
	} while (0)

static void refused_header(void **state)
{
	struct fixture *f = *state;
	struct kvc_media_super *m = &f->media;

	REFUSED(f, KVC_BAD_VERSION, m->version = cpu_to_le32(2));
	REFUSED(f, KVC_BAD_VERSION, m->version = 0);
	REFUSED(f, KVC_BAD_FEATURES, m->incompat = cpu_to_le64(1ULL << 63));
	REFUSED(f, KVC_BAD_FEATURES, m->ro_compat = cpu_to_le64(KVC_RO_COMPAT_KNOWN + 1));
	REFUSED(f, KVC_OK, m->ro_compat = cpu_to_le64(KVC_RO_COMPAT_KNOWN));
	REFUSED(f, KVC_OK, m->compat = cpu_to_le64(~0ULL));
	REFUSED(f, KVC_BAD_GEOMETRY, m->seq = cpu_to_le64(1ULL << 61));
	REFUSED(f, KVC_OK, m->seq = cpu_to_le64((1ULL << 61) - 1));
	REFUSED(f, KVC_BAD_GEOMETRY, m->pool_name[0] = 0);
	REFUSED(f, KVC_BAD_GEOMETRY, m->pool_name[0] = '/');
	REFUSED(f, KVC_BAD_GEOMETRY, memset(m->pool_name, 'a', KVC_NAME_MAX));
}

static void refused_sizes(void **state)
{
	struct fixture *f = *state;
	struct kvc_media_super *m = &f->media;

	REFUSED(f, KVC_BAD_GEOMETRY, m->segment_size = cpu_to_le64(KVC_SEGMENT_MIN - KVC_BLOCK));
	REFUSED(f, KVC_OK, m->segment_size = cpu_to_le64(KVC_SEGMENT_MIN));
	REFUSED(f, KVC_OK, m->segment_size = cpu_to_le64(KVC_SEGMENT_MAX));
	REFUSED(f, KVC_BAD_GEOMETRY, m->segment_size = cpu_to_le64(KVC_SEGMENT_MAX + KVC_BLOCK));
	REFUSED(f, KVC_BAD_GEOMETRY, m->segment_size = cpu_to_le64(KVC_SEGMENT_MIN + 512));
	REFUSED(f, KVC_BAD_GEOMETRY, m->segment_size = 0);
	REFUSED(f, KVC_BAD_GEOMETRY, m->chunk_size = 0);
	REFUSED(f, KVC_BAD_GEOMETRY, m->chunk_size = cpu_to_le32(KVC_CHUNK_MIN / 2));
	REFUSED(f, KVC_BAD_GEOMETRY, m->chunk_size = cpu_to_le32(KVC_CHUNK_MAX * 2));
	REFUSED(f, KVC_BAD_GEOMETRY, m->chunk_size = cpu_to_le32(KVC_CHUNK_MIN * 3));
	REFUSED(f, KVC_OK, m->chunk_size = cpu_to_le32(KVC_CHUNK_MAX));
}

static void refused_settings(void **state)
{
	struct fixture *f = *state;
	struct kvc_media_super *m = &f->media;

	REFUSED(f, KVC_OK, m->discard_rate = 0);
	REFUSED(f, KVC_OK, m->discard_rate = cpu_to_le64(KVC_DISCARD_MIN));
	REFUSED(f, KVC_OK, m->discard_rate = cpu_to_le64(KVC_DISCARD_MAX));
	REFUSED(f, KVC_BAD_GEOMETRY, m->discard_rate = cpu_to_le64(KVC_DISCARD_MIN - 1));
	REFUSED(f, KVC_BAD_GEOMETRY, m->discard_rate = cpu_to_le64(KVC_DISCARD_MAX + 1));
	REFUSED(f, KVC_BAD_GEOMETRY, m->discard_rate = cpu_to_le64(~0ULL));
	REFUSED(f, KVC_OK, m->write_budget = 0);
	REFUSED(f, KVC_OK, m->write_budget = cpu_to_le64(KVC_BUDGET_MIN));
	REFUSED(f, KVC_OK, m->write_budget = cpu_to_le64(KVC_BUDGET_MAX));
	REFUSED(f, KVC_BAD_GEOMETRY, m->write_budget = cpu_to_le64(KVC_BUDGET_MIN - 1));
	REFUSED(f, KVC_BAD_GEOMETRY, m->write_budget = cpu_to_le64(KVC_BUDGET_MAX + 1));
}

static void refused_members(void **state)
{
	struct fixture *f = *state;
	struct kvc_media_super *m = &f->media;

	REFUSED(f, KVC_BAD_GEOMETRY, m->nr_members = 0);
	REFUSED(f, KVC_BAD_GEOMETRY, m->nr_members = cpu_to_le32(KVC_MEMBERS_MAX + 1));
	REFUSED(f, KVC_BAD_GEOMETRY, m->nr_members = cpu_to_le32(~0U));
	REFUSED(f, KVC_BAD_GEOMETRY, m->nr_members = cpu_to_le32(1));
	REFUSED(f, KVC_BAD_GEOMETRY, m->member_index = cpu_to_le32(2));
	REFUSED(f, KVC_OK, m->member_index = 0);
	REFUSED(f, KVC_BAD_GEOMETRY, m->members[1].nr_segments = cpu_to_le32(KVC_SEGMENTS_MIN - 1));
	REFUSED(f, KVC_BAD_GEOMETRY, m->members[1].nr_segments = cpu_to_le32(KVC_SEGMENTS_END + 1));
	REFUSED(f, KVC_BAD_GEOMETRY, memcpy(m->members[1].uuid, m->members[0].uuid, KVC_UUID_LEN));
	/* A third member that is all zero: the last is no hole, nor is this one */
	REFUSED(f, KVC_BAD_GEOMETRY, m->nr_members = cpu_to_le32(3));
}

/* A member that was removed leaves a hole. */
static void holes(void **state)
{
	struct fixture *f = *state;
	struct kvc_media_super *m = &f->media;

	REFUSED(f, KVC_OK, memset(&m->members[0], 0, sizeof(m->members[0])));
	assert_true(kvc_super_hole(&f->out, 0));
	REFUSED(f, KVC_BAD_GEOMETRY, memset(&m->members[1], 0, sizeof(m->members[1])));
	REFUSED(f, KVC_BAD_GEOMETRY, m->members[0].nr_segments = 0);
	REFUSED(f, KVC_BAD_GEOMETRY, memset(&m->members[0], 0, sizeof(m->members[0])); m->members[0].flags = cpu_to_le32(1));
	REFUSED(f, KVC_BAD_GEOMETRY, memset(&m->members[0], 0, sizeof(m->members[0])); m->member_index = 0);
}

static void refused_tenants(void **state)
{
	struct fixture *f = *state;
	struct kvc_media_super *m = &f->media;

	REFUSED(f, KVC_BAD_TENANT, m->tenants[0].flags = cpu_to_le32(5));
	REFUSED(f, KVC_BAD_TENANT, m->tenants[8].flags = cpu_to_le32(2));
	REFUSED(f, KVC_BAD_TENANT, m->tenants[0].name[0] = 0);
	REFUSED(f, KVC_BAD_TENANT, m->tenants[0].name[0] = '.');
	REFUSED(f, KVC_BAD_TENANT, m->tenants[KVC_TENANTS_MAX - 1].name[KVC_NAME_MAX - 1] = 'x');
	REFUSED(f, KVC_BAD_TENANT, m->tenants[0].mode = cpu_to_le32(01000));
	REFUSED(f, KVC_BAD_TENANT, strcpy(m->tenants[7].name, "default"));
	REFUSED(f, KVC_OK, m->tenants[7].flags = 0; strcpy(m->tenants[7].name, "default"));
}

static void refused_limits(void **state)
{
	struct fixture *f = *state;
	struct kvc_media_super *m = &f->media;
	struct kvc_media_limits *last = &m->limits[KVC_TENANTS_MAX - 1];
	struct kvc_limits none[KVC_TENANTS_MAX] = { 0 };

	/* without the feature nobody looks at the table, and nobody keeps what lies there */
	REFUSED(f, KVC_OK, memset(m->limits, 0xff, sizeof(m->limits)));
	assert_memory_equal(f->out.limits, none, sizeof(none));
	REFUSED(f, KVC_OK, m->ro_compat = cpu_to_le64(KVC_RO_COMPAT_LIMITS));
	media_sample_limits(&f->in);
	REFUSED(f, KVC_OK, m->ro_compat = 0);
	assert_memory_equal(f->out.limits, none, sizeof(none));
	REFUSED(f, KVC_BAD_TENANT, memset(m->limits, 0xff, sizeof(m->limits)));
	REFUSED(f, KVC_BAD_TENANT, m->limits[1].quota = cpu_to_le64(1));
	REFUSED(f, KVC_BAD_TENANT, m->limits[8].inflight = cpu_to_le32(1));
	REFUSED(f, KVC_BAD_TENANT, m->tenants[0].flags = 0);
	REFUSED(f, KVC_BAD_TENANT, last->flags = cpu_to_le32(2));
	REFUSED(f, KVC_BAD_TENANT, last->weight = cpu_to_le32(KVC_WEIGHT_MAX + 1));
	REFUSED(f, KVC_BAD_TENANT, m->limits[0].reserve = cpu_to_le64((1ULL << 40) + 1));
	REFUSED(f, KVC_OK, m->limits[0].quota = 0);
	REFUSED(f, KVC_BAD_TENANT, last->write_budget = cpu_to_le64(KVC_BUDGET_MIN - 1));
	REFUSED(f, KVC_BAD_TENANT, last->write_budget = cpu_to_le64(KVC_BUDGET_MAX + 1));
	REFUSED(f, KVC_OK, last->write_budget = 0);
}

static void slots_alternate(void **state)
{
	(void)state;
	assert_int_equal(kvc_super_slot(2, 0), 0);
	assert_int_equal(kvc_super_slot(3, 0), 1);
	assert_int_equal(kvc_super_slot(2, 1), 2);
	assert_int_equal(kvc_super_slot((1ULL << 62) - 1, 1), 3);
}

static void slots_at_both_ends(void **state)
{
	u64 size = kvc_device_bytes(4, KVC_SEGMENT_MIN);

	(void)state;
	assert_int_equal(kvc_super_offset(0, size), 0);
	assert_int_equal(kvc_super_offset(1, size), KVC_SUPER_BYTES);
	assert_int_equal(kvc_super_offset(2, size), KVC_DATA_OFFSET + 4 * KVC_SEGMENT_MIN);
	assert_int_equal(kvc_super_offset(3, size), size - KVC_SUPER_BYTES);
	assert_int_equal(kvc_super_offset(3, size + KVC_BLOCK - 1), size - KVC_SUPER_BYTES);
	assert_int_equal(kvc_super_offset(2, KVC_DEVICE_MIN), KVC_DATA_OFFSET);
}

/* What four slots say, and which of them counts */
struct slots {
	struct kvc_super s[KVC_SUPER_SLOTS];
	enum kvc_reason why[KVC_SUPER_SLOTS];
};

static struct slots *slots_with(struct fixture *f, const int *seqs)
{
	static struct slots t;
	u32 i;

	for (i = 0; i < KVC_SUPER_SLOTS; i++) {
		f->in.seq = seqs[i] < 0 ? 0 : (u64)seqs[i];
		kvc_super_encode(&f->in, 1, f->buf);
		if (seqs[i] < 0)
			memset(f->buf, 0, KVC_BLOCK);
		t.why[i] = kvc_super_read(f->buf, i, &t.s[i]);
	}
	return &t;
}

static void either_copy_suffices(void **state)
{
	static const struct {
		int seqs[KVC_SUPER_SLOTS];	/* -1: overwritten */
		u32 chosen, worn;
	} rows[] = {
		{ { 2, 1, 2, 1 }, 0, 0 },
		{ { 2, 3, 2, 3 }, 1, 0 },
		{ { -1, -1, 2, 3 }, 3, 3 },	/* the front is lost */
		{ { 2, 3, -1, -1 }, 1, 12 },	/* the end */
		{ { -1, 3, 4, -1 }, 2, 9 },	/* a partition table */
		{ { -1, 3, 2, -1 }, 1, 9 },
		{ { 4, 3, 2, 3 }, 0, 4 },	/* cut between the two writes */
		{ { 4, -1, 4, 3 }, 0, 2 },	/* a torn write of 5 */
		{ { 2, 1, 4, 3 }, 2, 3 },	/* the front was not written for long */
		{ { -1, -1, -1, 1 }, 3, 7 },
		{ { -1, -1, -1, -1 }, KVC_SUPER_SLOTS, 0 },
		{ { 3, 2, 3, 2 }, KVC_SUPER_SLOTS, 0 },	/* each in the other's place */
	};
	struct slots *t;
	u32 i, chosen;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		t = slots_with(*state, rows[i].seqs);
		chosen = kvc_super_choose(t->s, t->why);
		assert_int_equal(chosen, rows[i].chosen);
		if (chosen < KVC_SUPER_SLOTS)
			assert_int_equal(kvc_super_worn(t->s, t->why, chosen), rows[i].worn);
	}
}

/* What a device held at its end before it became a member of this pool does not count. */
static void front_wins_over_others(void **state)
{
	static const int seqs[] = { 2, 1, 8, 9 };
	struct slots *t = slots_with(*state, seqs);

	assert_int_equal(kvc_super_choose(t->s, t->why), 3);
	t->s[3].pool_uuid[5] ^= 1;
	assert_int_equal(kvc_super_choose(t->s, t->why), 0);
	assert_int_equal(kvc_super_worn(t->s, t->why, 0), 12);
	t = slots_with(*state, seqs);
	t->s[3].members[1].uuid[0] ^= 1;
	assert_int_equal(kvc_super_choose(t->s, t->why), 0);
	t = slots_with(*state, seqs);
	t->s[3].members[1].nr_segments--;
	assert_int_equal(kvc_super_choose(t->s, t->why), 0);
	t = slots_with(*state, seqs);
	t->s[3].member_index = 0;
	assert_int_equal(kvc_super_choose(t->s, t->why), 0);
	t = slots_with(*state, seqs);
	t->s[3].segment_size *= 2;
	assert_int_equal(kvc_super_choose(t->s, t->why), 0);
	/* unless it says nothing */
	t->why[0] = KVC_BAD_MAGIC;
	t->why[1] = KVC_BAD_CRC;
	assert_int_equal(kvc_super_choose(t->s, t->why), 3);
}

static void newer_format_forbids(void **state)
{
	static const int seqs[] = { 2, 1, 2, 1 };
	struct slots *t = slots_with(*state, seqs);

	t->why[3] = KVC_BAD_VERSION;
	assert_int_equal(kvc_super_choose(t->s, t->why), KVC_SUPER_SLOTS);
	t->why[3] = KVC_BAD_FEATURES;
	assert_int_equal(kvc_super_choose(t->s, t->why), KVC_SUPER_SLOTS);
	t->why[3] = KVC_BAD_GEOMETRY;
	assert_int_equal(kvc_super_choose(t->s, t->why), 0);
}

static void device_sizes(void **state)
{
	u64 size = KVC_SEGMENT_DEFAULT;

	(void)state;
	assert_int_equal(kvc_device_bytes(4, size), KVC_DEVICE_MIN + 4 * size);
	assert_int_equal(kvc_device_bytes(70000, KVC_SEGMENT_MAX), KVC_DEVICE_MIN + 70000ULL * KVC_SEGMENT_MAX);
	assert_int_equal(kvc_device_segments(0, size), 0);
	assert_int_equal(kvc_device_segments(KVC_DEVICE_MIN - 1, size), 0);
	/* never into the copy at the end, also of a device of odd size */
	assert_int_equal(kvc_device_segments(KVC_DATA_OFFSET + 5 * size + KVC_BLOCK - 1, size), 4);
	assert_int_equal(kvc_device_segments(kvc_device_bytes(3, size), size), 0);
	assert_int_equal(kvc_device_segments(kvc_device_bytes(4, size) - 1, size), 0);
	assert_int_equal(kvc_device_segments(kvc_device_bytes(4, size), size), 4);
	assert_int_equal(kvc_device_segments(kvc_device_bytes(5, size) - 1, size), 4);
	assert_int_equal(kvc_device_segments(~0ULL, KVC_SEGMENT_MIN), KVC_SEGMENTS_END);
	assert_int_equal(kvc_device_segments(1ULL << 40, 0), 0);
}

static void names(void **state)
{
	static const char *const good[] = { "a", "Z9", "a.b", "a-b_c", "_x", "0", "a-name-of-thirty-one-characters" };
	static const char *const bad[] = { "", ".", "..", ".a", "-a", "a b", "a/b", "a\n", "\xc3\xa4", "a:b", "*",
					   "a-name-of-thirty-two-characters.", "a\x7f" };
	u32 i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(kvc_name_ok(good[i]));
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(kvc_name_ok(bad[i]));
}

static void reasons_have_text(void **state)
{
	u32 i, j;

	(void)state;
	for (i = 0; i < KVC_NR_REASONS; i++) {
		assert_true(strlen(kvc_reason_str(i)) > 4);
		for (j = 0; j < i; j++)
			assert_string_not_equal(kvc_reason_str(i), kvc_reason_str(j));
	}
	assert_string_equal(kvc_reason_str(KVC_NR_REASONS), "unknown");
}

static const struct CMUnitTest super_tests[] = {
	cmocka_unit_test_setup_teardown(round_trip, make, unmake),
	cmocka_unit_test_setup_teardown(golden, make, unmake),
	cmocka_unit_test_setup_teardown(limits, make, unmake),
	cmocka_unit_test_setup_teardown(every_byte_counts, make, unmake),
	cmocka_unit_test_setup_teardown(refused_header, make, unmake),
	cmocka_unit_test_setup_teardown(refused_sizes, make, unmake),
	cmocka_unit_test_setup_teardown(refused_settings, make, unmake),
	cmocka_unit_test_setup_teardown(refused_members, make, unmake),
	cmocka_unit_test_setup_teardown(holes, make, unmake),
	cmocka_unit_test_setup_teardown(refused_tenants, make, unmake),
	cmocka_unit_test_setup_teardown(refused_limits, make, unmake),
	cmocka_unit_test(slots_alternate),
	cmocka_unit_test(slots_at_both_ends),
	cmocka_unit_test_setup_teardown(either_copy_suffices, make, unmake),
	cmocka_unit_test_setup_teardown(front_wins_over_others, make, unmake),
	cmocka_unit_test_setup_teardown(newer_format_forbids, make, unmake),
	cmocka_unit_test(device_sizes),
	cmocka_unit_test(names),
	cmocka_unit_test(reasons_have_text),
};

TEST_GROUP(super);
