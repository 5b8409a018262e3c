/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * On-media format of a pool member: structures, encoders, decoders and validators.
 *
 *	format.c	extents and their records		format_super.c	superblocks
 *
 * Nothing here knows of a pool in memory, or calls anything of the engine: it is given bytes, and gives bytes. Who
 * includes it sees the CPU's form; the structures on media are format_media.h's, for the encoders and their sizes.
 *
 * A member is laid out as
 *
 *	0              superblock slot 0 (64 KiB: header, members, tenants, their limits and keys)
 *	64 KiB         superblock slot 1
 *	1 MiB          segment 0, segment 1, ... each segment_size bytes
 *	end - 128 KiB  superblock slot 2
 *	end - 64 KiB   superblock slot 3
 *
 * The end is that of the device, rounded down to whole blocks. The superblock is there twice, at both ends; each copy
 * has two slots, which are written alternately: sequence n goes to slots n mod 2 and 2 + n mod 2, first the one, then
 * the other. So at any time three slots are whole, and a copy can be lost with all that is near it. The valid slot with
 * the highest sequence counts, but at the end only if it is of the pool and member that the front is of, or the front
 * is of none. Every member holds the whole pool configuration.
 *
 * A partition table (GPT) overwrites slots 0 and 3: the newest and the one before are left, one at each end.
 *
 * A segment is filled from both ends:
 *
 *	[ extent 0 | extent 1 | ... >            free            < ... | page 1 | page 0 ]
 *
 * Pages are appended downwards from the segment's end, each KVC_BLOCK aligned. The summary log grows upwards from its
 * start: a row of extents, each a whole number of blocks under one CRC32C. Extent 0 is the segment header: it has no
 * records and gives the segment a new (generation, salt) pair, which every later extent repeats. The log ends at the
 * first extent that fails a check. Extents are never rewritten, so a torn write can only lose what was not yet
 * acknowledged; a new header kills all older extents at once.
 *
 * All fields are little-endian. Media content is hostile input: no field is used before it was validated.
 */
#ifndef KVC_FORMAT_H
#define KVC_FORMAT_H

#include "os.h"

#define KVC_BLOCK_SHIFT		12
#define KVC_BLOCK		4096U		/* alignment of pages and extents, bytes */
#define KVC_SUPER_BYTES		(64U << 10)		/* one superblock slot */
#define KVC_SUPER_COPIES	2			/* at the front, at the end */
#define KVC_SUPER_SLOTS		4			/* two of each copy */
#define KVC_DATA_OFFSET		(1024ULL << 10)	/* first segment */
#define KVC_TAIL_BYTES		(2 * KVC_SUPER_BYTES)	/* the copy at the end */

#define KVC_KEY_LEN		40
#define KVC_KEYSPACE_LEN	16
#define KVC_UUID_LEN		16
#define KVC_NAME_MAX		32			/* with its NUL */
#define KVC_MEMBERS_MAX		64
#define KVC_TENANTS_MAX		240
#define KVC_PAGE_MAX		(128U << 20)		/* longest page, bytes */
#define KVC_SEGMENT_MIN		(256U << 10)
#define KVC_SEGMENT_MAX		(1024U << 20)
#define KVC_SEGMENT_DEFAULT	(256U << 20)
#define KVC_CHUNK_MIN		(4U << 10)
#define KVC_CHUNK_MAX		(1024U << 10)
#define KVC_CHUNK_DEFAULT	(64U << 10)
#define KVC_SEGMENTS_MIN	4			/* fewest segments of a member */
#define KVC_EXTENT_MAX		(1024U << 10)	/* longest summary extent, bytes */
#define KVC_DISCARD_MIN		(1ULL << 20)	/* rate of discards, bytes a second */
#define KVC_DISCARD_MAX		(1ULL << 40)
#define KVC_DISCARD_DEFAULT	(1ULL << 30)
#define KVC_BUDGET_MIN		(1ULL << 20)	/* bytes written a day */
#define KVC_BUDGET_MAX		(1ULL << 60)

#define KVC_FORMAT_VERSION	1

/* Feature bits of the superblock; an unknown incompat bit refuses the attach, an unknown ro_compat bit too (there is
 * no read-only attach), unknown compat bits are ignored and kept.
 */
#define KVC_COMPAT_KNOWN	0ULL
#define KVC_RO_COMPAT_CLOSED	BIT_ULL(0)	/* logs of full segments say where pages end; every attach sets it */
#define KVC_RO_COMPAT_LIMITS	BIT_ULL(1)	/* the table of limits holds some; in struct kvc_super it is not set */
#define KVC_RO_COMPAT_KNOWN	(KVC_RO_COMPAT_CLOSED | KVC_RO_COMPAT_LIMITS)
#define KVC_INCOMPAT_KEYS	BIT_ULL(0)	/* some tenant has, or had, a key: records may be of encrypted pages */
#define KVC_INCOMPAT_KNOWN	KVC_INCOMPAT_KEYS

/* Why a block was refused. The text of each is kvc_reason_str(). */
enum kvc_reason {
	KVC_OK,
	KVC_BAD_MAGIC,		/* not ours */
	KVC_BAD_CRC,		/* ours, damaged */
	KVC_BAD_VERSION,	/* newer format */
	KVC_BAD_FEATURES,	/* unknown incompatible features */
	KVC_BAD_GEOMETRY,	/* sizes out of range or inconsistent */
	KVC_BAD_IDENTITY,	/* of another pool, member, segment or generation */
	KVC_BAD_RECORD,		/* a record with a field out of range */
	KVC_BAD_TENANT,		/* tenant or its limits with a field out of range, or a double name */
	KVC_NR_REASONS,
};

const char *kvc_reason_str(enum kvc_reason r);

#define KVC_MEMBER_ABSENT	1U	/* was not there when this was written */

/* One member, as every superblock lists all of them. All zero: a hole, where one was removed; the last is none. */
struct kvc_super_member {
	u8	uuid[KVC_UUID_LEN];
	u32	nr_segments;
	u32	flags;		/* KVC_MEMBER_* */
};

#define KVC_TENANT_USED		1U
#define KVC_TENANT_VERIFIED	2U	/* serves pages only to those who verify them */
#define KVC_TENANT_ENCRYPTED	4U	/* all its pages are; the table of keys says by which */
#define KVC_TENANT_KNOWN	(KVC_TENANT_USED | KVC_TENANT_VERIFIED | KVC_TENANT_ENCRYPTED)

/* What a tenant may take from others. 0 is the default, which does not restrict a tenant that has the pool alone */
struct kvc_limits {
	u64	quota;			/* bytes of pages in the index */
	u64	reserve;		/* bytes of pages that nobody else evicts */
	u64	write_budget;		/* bytes a day */
	u64	bandwidth;		/* bytes a second */
	u64	pinned;			/* bytes of registered memory */
	u64	leased;			/* bytes of the segments that leases keep */
	u32	inflight;		/* operations */
	u32	keyspaces;
	u32	weight;			/* of its turns, 1 to KVC_WEIGHT_MAX; 0: KVC_WEIGHT */
	u32	flags;			/* KVC_LIMIT_* */
};

#define KVC_LIMIT_NO_URGENT	1U	/* its operations wait for their turn whatever priority they ask for */
#define KVC_WEIGHT		100U
#define KVC_WEIGHT_MAX		10000U

/* One tenant slot. The epoch counts how often the slot was given away: records carry (slot, epoch), so removing a
 * tenant kills its pages at once.
 */
struct kvc_super_tenant {
	char	name[KVC_NAME_MAX];
	u32	flags;		/* KVC_TENANT_* */
	u32	epoch;		/* raised when the tenant is removed */
	u32	uid, gid, mode;	/* of the device node */
};

#define KVC_KEY_NAME_MAX	48			/* with its NUL */
#define KVC_KEY_CHECK		16U

/* By which key a tenant's pages are encrypted. The key itself is never here: who has one sees by @check if it is it. */
struct kvc_super_key {
	char	name[KVC_KEY_NAME_MAX];	/* under which a keyring has it */
	u8	check[KVC_KEY_CHECK];	/* what it makes of zeros, where no page's block is */
};

/* What an operator may change while the pool is attached */
struct kvc_settings {
	u64	discard_rate;		/* bytes a second on each member, KVC_DISCARD_MIN..MAX; 0: no discards */
	u64	write_budget;		/* bytes a day, KVC_BUDGET_MIN..MAX; 0: no limit */
};

/* The superblock in CPU form. About 43 KiB: allocate it, do not put it on a stack. */
struct kvc_super {
	u64	seq;				/* raised at each write */
	u64	compat, ro_compat, incompat;
	u8	pool_uuid[KVC_UUID_LEN];
	char	pool_name[KVC_NAME_MAX];
	u64	segment_size;			/* bytes, multiple of KVC_BLOCK */
	u32	chunk_size;			/* bytes under one CRC32C, power of two */
	u32	nr_members;
	u32	member_index;			/* of the device this was read from */
	struct kvc_settings settings;
	struct kvc_super_member members[KVC_MEMBERS_MAX];
	struct kvc_super_tenant tenants[KVC_TENANTS_MAX];
	struct kvc_limits limits[KVC_TENANTS_MAX];	/* by tenant slot; of an unused one all zeros */
	struct kvc_super_key keys[KVC_TENANTS_MAX];	/* likewise; of one that is not encrypted all zeros */
};

/* Bytes that nr_segments segments need on a device, and how many fit on one. */
u64 kvc_device_bytes(u32 nr_segments, u64 segment_size);
u32 kvc_device_segments(u64 device_bytes, u64 segment_size);	/* 0 when fewer than KVC_SEGMENTS_MIN fit */

bool kvc_settings_ok(const struct kvc_settings *s);
bool kvc_limits_ok(const struct kvc_limits *l);
bool kvc_key_name_ok(const char *name);	/* 1..47 printable characters of ASCII, no spaces */
bool kvc_super_hole(const struct kvc_super *s, u32 member);

/* Fields in range and consistent? Called by encode's users before writing and by decode after reading. */
enum kvc_reason kvc_super_check(const struct kvc_super *s);

/*
 * Write @s as member @member into @buf (KVC_SUPER_BYTES). It goes to the slots of s->seq, copy after copy, each with
 * PREFLUSH and FUA; one of them is enough.
 */
void kvc_super_encode(const struct kvc_super *s, u32 member, void *buf);
enum kvc_reason kvc_super_decode(const void *buf, struct kvc_super *s);

/* The slot that sequence @seq has in a copy, and where a slot is on a device of at least KVC_DEVICE_MIN bytes */
#define KVC_DEVICE_MIN		(KVC_DATA_OFFSET + KVC_TAIL_BYTES)
u32 kvc_super_slot(u64 seq, u32 copy);
u64 kvc_super_offset(u32 slot, u64 device_bytes);

/* Decode what was read from slot @slot; one of another slot is refused. */
enum kvc_reason kvc_super_read(const void *buf, u32 slot, struct kvc_super *s);

/*
 * Which of a device's slots counts: @s and @why are what kvc_super_read() says of each. KVC_SUPER_SLOTS: none, also
 * when one is of a newer format. kvc_super_worn(): the slots, as bits, that do not hold what they should beside
 * @chosen: they are damaged, of something else, or a write did not reach them.
 */
u32 kvc_super_choose(const struct kvc_super s[KVC_SUPER_SLOTS], const enum kvc_reason why[KVC_SUPER_SLOTS]);
u32 kvc_super_worn(const struct kvc_super s[KVC_SUPER_SLOTS], const enum kvc_reason why[KVC_SUPER_SLOTS], u32 chosen);

/*
 * History. A pool may be attached without some of its members. Once it was also attached without the others it is
 * split: what is newer of one key cannot be told by numbers any more. Such members are not attached together.
 *
 * The order in which superblocks are written: an attach finds the newest one of the members that are given. Whoever has
 * another one (kvc_super_behind()) gets the newest as it is. When all have that, and not before, the sequence is raised
 * and the next one is written, to the members in any order. It says who is there. The pool is used when all have it; if
 * a member cannot be written the attach fails. So
 *
 *   a superblock says that a member was there only if that member knew of all that was before, whether it has it or not
 *   a superblock was never used if a member that was there, as it says, has another one of the same sequence
 *
 * Two superblocks are of one history if a member that was there in the older one has the newer one, or was there in
 * it: it knew of all that was before the older one, which nobody used without it. Two of the same sequence are if a
 * member that was there in the one has the other: that one counts. (The engine's tests try all that small pools can
 * become.) Whoever is not connected with the newest was attached without the others.
 *
 * Who brought a member up to date, and then was cut and is missing, cannot be told from who was never there: when that
 * member is used alone next, both are refused.
 */
struct kvc_witness {
	u32	member;
	u64	seq;
	const struct kvc_super_member *members;	/* all KVC_MEMBERS_MAX of its superblock */
};

/* Of two superblocks of one pool, does @a count rather than @b? */
bool kvc_super_newer(const struct kvc_super *a, const struct kvc_super *b);
/* Does @w have to get @now before the sequence is raised? */
bool kvc_super_behind(const struct kvc_super *now, const struct kvc_witness *w);
bool kvc_one_history(const struct kvc_witness *w, u32 nr);

/* Name rule of pools and tenants: 1..31 of [A-Za-z0-9._-], not beginning with '.' or '-'. */
bool kvc_name_ok(const char *name);

/* Identity that every extent of a segment repeats */
struct kvc_seg_id {
	u8	pool_uuid[KVC_UUID_LEN];
	u32	member;
	u32	segment;	/* number on this member */
	u64	generation;
	u64	salt;		/* random, drawn when the header is made */
};

enum kvc_rec_type {
	KVC_REC_PAGE		= 1,
	KVC_REC_TOMBSTONE	= 2,	/* the page died: older records of the key do not count */
};

#define KVC_REC_NO_CRCS		1U	/* PAGE: stored from memory that the CPU does not read; the CRCs are zeros */
#define KVC_REC_ENCRYPTED	2U	/* PAGE: with the tenant's key and @nonce; the CRCs are of what is on media */
#define KVC_NONCE_LEN		12U

/* One record of a summary extent in CPU form */
struct kvc_rec {
	u8	key[KVC_KEY_LEN];
	u8	keyspace[KVC_KEYSPACE_LEN];
	u16	type;		/* enum kvc_rec_type */
	u16	flags;		/* PAGE: KVC_REC_*; TOMBSTONE: zero */
	u32	tenant, epoch;
	u64	seq;		/* pool-wide order of stores and deletes; the newest record of a key counts */
	u32	block;		/* PAGE: first block of the page inside the segment; TOMBSTONE: victim's segment */
	u32	length;		/* PAGE: bytes; TOMBSTONE: victim's member */
	u64	victim_gen;	/* TOMBSTONE: generation of the victim's segment; PAGE: 0 */
	u32	depth;		/* prefix position hint */
	u32	nr_crcs;	/* PAGE: chunks; TOMBSTONE: 0 */
	u8	nonce[KVC_NONCE_LEN];	/* random, of an encrypted page; else zeros */
	const void *crcs;	/* little-endian u32[nr_crcs], may be unaligned; read with kvc_rec_crc() */
};

/* Bytes of a record with @nr_crcs CRCs, and of an extent's header */
#define KVC_REC_FIXED		112U
#define KVC_EXTENT_HEADER	96U

static inline u32 kvc_rec_bytes(u32 nr_crcs)
{
	return KVC_REC_FIXED + ((nr_crcs * 4 + 7) & ~7U);
}

u32 kvc_rec_crc(const struct kvc_rec *r, u32 i);

/* Blocks that page bytes, or summary payload bytes, occupy */
static inline u32 kvc_blocks(u64 bytes)
{
	return (u32)((bytes + KVC_BLOCK - 1) >> KVC_BLOCK_SHIFT);
}

static inline u64 kvc_padded(u64 bytes)
{
	return (u64)kvc_blocks(bytes) << KVC_BLOCK_SHIFT;
}

#define KVC_EXTENT_CLOSED	1U	/* no extent behind this one has a record of a page */

/* Extent writer: begin, add records, end. @buf holds @cap bytes, a multiple of KVC_BLOCK. */
struct kvc_extent_writer {
	u8	*buf;
	u32	cap, used, nr_records;
	u32	flags;		/* KVC_EXTENT_*, none at first */
};

void kvc_extent_begin(struct kvc_extent_writer *w, void *buf, u32 cap);
/* Reserve a record; false when it does not fit. @crcs_out: where to put kvc_put_crc() values, NULL for none. */
bool kvc_extent_add(struct kvc_extent_writer *w, const struct kvc_rec *r, void **crcs_out);
void kvc_put_crc(void *crcs, u32 i, u32 crc);
/* Pad to whole blocks, stamp identity, first block number and CRC. Returns the bytes to write. */
u32 kvc_extent_end(struct kvc_extent_writer *w, const struct kvc_seg_id *id, u32 first_block);

/*
 * Extent reader. kvc_extent_peek() needs the first KVC_BLOCK bytes and gives the extent's length in bytes;
 * kvc_extent_open() needs all of them and checks CRC and identity: pool, member, segment and first_block must match;
 * generation and salt too unless first_block is 0, where they are returned in @id. kvc_extent_next() returns KVC_OK
 * with a record whose own fields fit together and fit the segment (@seg_blocks, chunk size), KVC_NR_REASONS at the
 * end, or the reason of the failed check.
 */
struct kvc_extent_reader {
	const u8 *buf;
	u32	pos, end;
	u32	nr_records, done;
	u32	flags;		/* KVC_EXTENT_*, and what later versions may add */
	u32	seg_blocks;
	u32	chunk_size;
};

enum kvc_reason kvc_extent_peek(const void *block, u32 *bytes);
enum kvc_reason kvc_extent_open(struct kvc_extent_reader *r, const void *buf, u32 bytes, struct kvc_seg_id *id,
				u32 first_block, u32 seg_blocks, u32 chunk_size);
enum kvc_reason kvc_extent_next(struct kvc_extent_reader *r, struct kvc_rec *rec);
/* Is this block, which was refused, what is left of an extent of the segment's present use? */
bool kvc_extent_trace(const void *block, const struct kvc_seg_id *id);
/* Does this block begin an extent of the segment, of whatever use? */
bool kvc_extent_sibling(const void *block, const struct kvc_seg_id *id);

/* CRC32C (Castagnoli) as iSCSI has it: start with kvc_crc_init, feed, finish. */
#define KVC_CRC_INIT		(~0U)
static inline u32 kvc_crc_feed(u32 crc, const void *p, size_t n)
{
	return os_crc32c(crc, p, n);
}

static inline u32 kvc_crc_finish(u32 crc)
{
	return ~crc;
}

#endif
