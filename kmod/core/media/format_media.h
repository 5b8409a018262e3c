/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * The structures as they lie on media, private to the encoders and decoders. All fields are little-endian, all
 * structures packed: they are read in place from buffers of any alignment.
 */
#ifndef KVC_FORMAT_MEDIA_H
#define KVC_FORMAT_MEDIA_H

#include "media/format.h"

/* Counters on media (sequences, generations) stay below this, so that what was read can always be counted up. */
#define KVC_COUNTER_BITS	62
#define KVC_COUNTER_END		BIT_ULL(KVC_COUNTER_BITS)
#define KVC_SUPER_SEQ_END	(KVC_COUNTER_END / 2)	/* what is believed can be raised as often again */
/* Segments of one member */
#define KVC_SEGMENTS_END	(16U << 20)

#define KVC_SUPER_MAGIC		"KVCTXSB\n"
#define KVC_EXTENT_MAGIC	0x7478766bU		/* "kvxt" */

struct kvc_media_member {
	u8	uuid[KVC_UUID_LEN];
	__le32	nr_segments;
	__le32	flags;
} __packed;

struct kvc_media_tenant {
	char	name[KVC_NAME_MAX];
	__le32	flags;
	__le32	epoch;
	__le32	uid;
	__le32	gid;
	__le32	mode;
	u8	reserved[12];
} __packed;

struct kvc_media_limits {
	__le64	quota;
	__le64	reserve;
	__le64	write_budget;
	__le64	bandwidth;
	__le64	pinned;
	__le64	leased;
	__le32	inflight;
	__le32	keyspaces;
	__le32	weight;
	__le32	flags;
} __packed;

struct kvc_media_key {
	char	name[KVC_KEY_NAME_MAX];
	u8	check[KVC_KEY_CHECK];
} __packed;

struct kvc_media_host {
	u8	reserved[64];	/* owners of segments, once hosts share a pool; 0 */
} __packed;

struct kvc_media_super {
	u8	magic[8];
	__le32	version;
	__le32	crc;		/* of the whole slot with this field 0 */
	__le64	seq;
	__le64	compat;
	__le64	ro_compat;
	__le64	incompat;
	u8	pool_uuid[KVC_UUID_LEN];
	char	pool_name[KVC_NAME_MAX];
	__le64	segment_size;
	__le32	chunk_size;
	__le32	nr_members;
	__le32	member_index;
	__le32	reserved1;
	__le64	discard_rate;	/* bytes a second on each member; 0: off */
	__le64	write_budget;	/* bytes a day; 0: off */
	__le32	reserved2[30];
	struct kvc_media_member members[KVC_MEMBERS_MAX];
	struct kvc_media_host hosts[KVC_MEMBERS_MAX];
	struct kvc_media_tenant tenants[KVC_TENANTS_MAX];
	struct kvc_media_limits limits[KVC_TENANTS_MAX];	/* with KVC_RO_COMPAT_LIMITS */
	struct kvc_media_key keys[KVC_TENANTS_MAX];		/* with KVC_INCOMPAT_KEYS */
} __packed;

struct kvc_media_extent {
	__le32	magic;
	__le32	crc;		/* of the whole extent with this field 0 */
	__le32	version;
	__le32	bytes;		/* of the extent, whole blocks */
	__le32	used;		/* bytes up to the end of the last record */
	__le32	nr_records;
	__le32	first_block;	/* where in the segment this extent lies */
	__le32	member;
	__le32	segment;
	__le32	owner;		/* host slot; 0 */
	__le64	generation;
	__le64	salt;
	u8	pool_uuid[KVC_UUID_LEN];
	__le32	flags;
	u8	reserved[20];
} __packed;

/* Followed by nr_crcs little-endian CRCs, padded to 8 bytes */
struct kvc_media_rec {
	u8	key[KVC_KEY_LEN];
	u8	keyspace[KVC_KEYSPACE_LEN];
	__le16	type;
	__le16	flags;
	__le32	tenant;
	__le32	epoch;
	__le32	block;
	__le64	seq;
	__le32	length;
	__le32	depth;
	__le64	victim_gen;
	__le32	nr_crcs;
	u8	nonce[KVC_NONCE_LEN];
} __packed;

#define KVC_ASSERT_SIZE(type, bytes) \
	os_static_assert(sizeof(type) == (bytes), "size of " #type)
#define KVC_ASSERT_OFFSET(type, field, bytes) \
	os_static_assert(offsetof(type, field) == (bytes), "offset of " #field)

os_static_assert(BIT(KVC_BLOCK_SHIFT) == KVC_BLOCK, "block size");

KVC_ASSERT_SIZE(struct kvc_media_member, 24);
KVC_ASSERT_OFFSET(struct kvc_media_member, nr_segments, 16);
KVC_ASSERT_OFFSET(struct kvc_media_member, flags, 20);

KVC_ASSERT_SIZE(struct kvc_media_tenant, 64);
KVC_ASSERT_OFFSET(struct kvc_media_tenant, flags, 32);
KVC_ASSERT_OFFSET(struct kvc_media_tenant, epoch, 36);
KVC_ASSERT_OFFSET(struct kvc_media_tenant, uid, 40);
KVC_ASSERT_OFFSET(struct kvc_media_tenant, gid, 44);
KVC_ASSERT_OFFSET(struct kvc_media_tenant, mode, 48);

KVC_ASSERT_SIZE(struct kvc_media_key, 64);
KVC_ASSERT_OFFSET(struct kvc_media_key, check, 48);

KVC_ASSERT_SIZE(struct kvc_media_limits, 64);
KVC_ASSERT_OFFSET(struct kvc_media_limits, reserve, 8);
KVC_ASSERT_OFFSET(struct kvc_media_limits, write_budget, 16);
KVC_ASSERT_OFFSET(struct kvc_media_limits, bandwidth, 24);
KVC_ASSERT_OFFSET(struct kvc_media_limits, pinned, 32);
KVC_ASSERT_OFFSET(struct kvc_media_limits, leased, 40);
KVC_ASSERT_OFFSET(struct kvc_media_limits, inflight, 48);
KVC_ASSERT_OFFSET(struct kvc_media_limits, keyspaces, 52);
KVC_ASSERT_OFFSET(struct kvc_media_limits, weight, 56);
KVC_ASSERT_OFFSET(struct kvc_media_limits, flags, 60);

KVC_ASSERT_SIZE(struct kvc_media_host, 64);

KVC_ASSERT_SIZE(struct kvc_media_super, 256 + 64 * 24 + 64 * 64 + 3 * 240 * 64);
KVC_ASSERT_OFFSET(struct kvc_media_super, version, 8);
KVC_ASSERT_OFFSET(struct kvc_media_super, crc, 12);
KVC_ASSERT_OFFSET(struct kvc_media_super, seq, 16);
KVC_ASSERT_OFFSET(struct kvc_media_super, compat, 24);
KVC_ASSERT_OFFSET(struct kvc_media_super, ro_compat, 32);
KVC_ASSERT_OFFSET(struct kvc_media_super, incompat, 40);
KVC_ASSERT_OFFSET(struct kvc_media_super, pool_uuid, 48);
KVC_ASSERT_OFFSET(struct kvc_media_super, pool_name, 64);
KVC_ASSERT_OFFSET(struct kvc_media_super, segment_size, 96);
KVC_ASSERT_OFFSET(struct kvc_media_super, chunk_size, 104);
KVC_ASSERT_OFFSET(struct kvc_media_super, nr_members, 108);
KVC_ASSERT_OFFSET(struct kvc_media_super, member_index, 112);
KVC_ASSERT_OFFSET(struct kvc_media_super, discard_rate, 120);
KVC_ASSERT_OFFSET(struct kvc_media_super, write_budget, 128);
KVC_ASSERT_OFFSET(struct kvc_media_super, members, 256);
KVC_ASSERT_OFFSET(struct kvc_media_super, hosts, 1792);
KVC_ASSERT_OFFSET(struct kvc_media_super, tenants, 5888);
KVC_ASSERT_OFFSET(struct kvc_media_super, limits, 21248);
KVC_ASSERT_OFFSET(struct kvc_media_super, keys, 36608);
os_static_assert(sizeof(struct kvc_media_super) <= KVC_SUPER_BYTES, "the superblock fits its slot");

KVC_ASSERT_SIZE(struct kvc_media_extent, KVC_EXTENT_HEADER);
KVC_ASSERT_OFFSET(struct kvc_media_extent, crc, 4);
KVC_ASSERT_OFFSET(struct kvc_media_extent, version, 8);
KVC_ASSERT_OFFSET(struct kvc_media_extent, bytes, 12);
KVC_ASSERT_OFFSET(struct kvc_media_extent, used, 16);
KVC_ASSERT_OFFSET(struct kvc_media_extent, nr_records, 20);
KVC_ASSERT_OFFSET(struct kvc_media_extent, first_block, 24);
KVC_ASSERT_OFFSET(struct kvc_media_extent, member, 28);
KVC_ASSERT_OFFSET(struct kvc_media_extent, segment, 32);
KVC_ASSERT_OFFSET(struct kvc_media_extent, owner, 36);
KVC_ASSERT_OFFSET(struct kvc_media_extent, generation, 40);
KVC_ASSERT_OFFSET(struct kvc_media_extent, salt, 48);
KVC_ASSERT_OFFSET(struct kvc_media_extent, pool_uuid, 56);
KVC_ASSERT_OFFSET(struct kvc_media_extent, flags, 72);

KVC_ASSERT_SIZE(struct kvc_media_rec, KVC_REC_FIXED);
KVC_ASSERT_OFFSET(struct kvc_media_rec, keyspace, 40);
KVC_ASSERT_OFFSET(struct kvc_media_rec, type, 56);
KVC_ASSERT_OFFSET(struct kvc_media_rec, flags, 58);
KVC_ASSERT_OFFSET(struct kvc_media_rec, tenant, 60);
KVC_ASSERT_OFFSET(struct kvc_media_rec, epoch, 64);
KVC_ASSERT_OFFSET(struct kvc_media_rec, block, 68);
KVC_ASSERT_OFFSET(struct kvc_media_rec, seq, 72);
KVC_ASSERT_OFFSET(struct kvc_media_rec, length, 80);
KVC_ASSERT_OFFSET(struct kvc_media_rec, depth, 84);
KVC_ASSERT_OFFSET(struct kvc_media_rec, victim_gen, 88);
KVC_ASSERT_OFFSET(struct kvc_media_rec, nr_crcs, 96);
KVC_ASSERT_OFFSET(struct kvc_media_rec, nonce, 100);

#endif
