/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * The hash table of a shard: hash -> entry ids. bucket.c grows it, index.c knows what the ids mean.
 *
 *   line       a cache line of slots. Slots hold an entry's id and eight bits of its hash, the tag, so that what is
 *              looked at in memory is nearly always the one entry that is wanted, and none for a key that is absent
 *   bucket     a line and those behind it: the used slots come first, only its last line has free ones
 *   chunk      a page of lines: most are the first lines of buckets, the last few are spares for full buckets
 *   directory  the chunks of a shard
 *
 * Chunks and directories are never freed before the pool goes: who holds no lock may read them, to prefetch.
 */
#ifndef KVC_BUCKET_H
#define KVC_BUCKET_H

#include "os.h"

#define KVC_SHARD_BITS		8
#define KVC_SHARDS		256U

#define KVC_LINE_SLOTS		12U
#define KVC_LINE_TAGS		(KVC_LINE_SLOTS / 4)
#define KVC_CHUNK_LINES		64U
#define KVC_CHUNK_BUCKETS	54U

struct kvc_line {
	u32	slot[KVC_LINE_SLOTS];	/* entry id + 1; 0: free */
	u32	tags[KVC_LINE_TAGS];	/* a byte for each slot, the lowest first */
	u32	next;			/* number of the line behind this one, 0: none */
};

struct kvc_chunk {
	struct kvc_line line[KVC_CHUNK_LINES];
};

struct kvc_directory {
	struct kvc_directory *older;	/* a smaller one, which somebody may still read */
	u32	room;
	struct kvc_chunk *chunk[];
};

os_static_assert(1U << KVC_SHARD_BITS == KVC_SHARDS, "bits of a shard");
os_static_assert(sizeof(struct kvc_line) == 64, "a line is a cache line");
os_static_assert(sizeof(struct kvc_chunk) == 4096, "a chunk is one page");

/* Shard lock. Without it: only to prefetch. */
struct kvc_buckets {
	struct kvc_directory *dir;
	u32	nr, mask;		/* buckets; one less than the next power of two */
	u32	nr_chunks;
	u32	entries;
	u32	spare, nr_spares;	/* list of free lines */
	u32	promised;		/* insertions to come, each of which may take one */
	bool	hungry;			/* kvc_buckets_grow() is wanted */
	struct os_atomic64 *bytes;	/* what it has allocated is added here */
};

void kvc_buckets_init(struct kvc_buckets *t, struct os_atomic64 *bytes);
void kvc_buckets_free(struct kvc_buckets *t);

/*
 * May one more be inserted, or promised? There is always room for what was promised, and for an entry whose hash is
 * that of one removed just now. Locked.
 */
static inline bool kvc_buckets_room(const struct kvc_buckets *t)
{
	return t->nr_spares > t->promised;
}

/* Keep room for an entry that comes later, at a moment when nothing can be allocated. Locked. */
void kvc_buckets_promise(struct kvc_buckets *t);
/* It comes now, or will not. Locked. */
void kvc_buckets_kept(struct kvc_buckets *t);

void kvc_buckets_insert(struct kvc_buckets *t, u32 hash, u32 entry);
void kvc_buckets_remove(struct kvc_buckets *t, u32 hash, u32 entry);

/* After an insertion: divide buckets if that is due. @hash_of tells an entry's hash. Locked. */
void kvc_buckets_settle(struct kvc_buckets *t, u32 (*hash_of)(const void *arg, u32 entry), const void *arg);

/* A chunk more, if @t is still hungry. Lock not held. 0, or -ENOMEM: and there is no room either. Allocates. */
int kvc_buckets_grow(struct kvc_buckets *t, struct os_lock *lock);

/* Growing never changes a bucket's number, but part of it moves to a higher one. */
static inline u32 kvc_bucket_number(u32 nr, u32 mask, u32 hash)
{
	u32 n = (hash >> KVC_SHARD_BITS) & mask;

	return n < nr ? n : n & (mask >> 1);
}

static inline struct kvc_line *kvc_bucket_line(const struct kvc_buckets *t, u32 bucket)
{
	return &t->dir->chunk[bucket / KVC_CHUNK_BUCKETS]->line[bucket % KVC_CHUNK_BUCKETS];
}

static inline struct kvc_line *kvc_numbered_line(const struct kvc_buckets *t, u32 line)
{
	return &t->dir->chunk[line / KVC_CHUNK_LINES]->line[line % KVC_CHUNK_LINES];
}

static inline struct kvc_line *kvc_next_line(const struct kvc_buckets *t, const struct kvc_line *line)
{
	return line->next ? kvc_numbered_line(t, line->next) : NULL;
}

static inline u32 kvc_tag(u32 hash)
{
	return hash >> 24;
}

/* Bit 7 of each byte of @tags that equals @tag, and now and then of one behind such a byte */
static inline u32 kvc_tags_equal(u32 tags, u32 tag)
{
	u32 x = tags ^ tag * 0x01010101U;

	return (x - 0x01010101U) & ~x & 0x80808080U;
}

/* Slot of the lowest bit that kvc_tags_equal() set in the n-th word of tags */
static inline u32 kvc_tagged_slot(u32 n, u32 bits)
{
	return 4 * n + (u32)__builtin_ctz(bits) / 8;
}

/* Without the lock, to prefetch: chunks and lines, or NULL. What they hold may be changing. */
static inline struct kvc_chunk *const *kvc_chunk_place(const struct kvc_buckets *t, u32 chunk)
{
	const struct kvc_directory *dir = os_load_acquire(&t->dir);

	return chunk < dir->room ? &dir->chunk[chunk] : NULL;
}

static inline u32 kvc_bucket_peek_number(const struct kvc_buckets *t, u32 hash)
{
	u32 nr = READ_ONCE(t->nr);

	return kvc_bucket_number(nr, READ_ONCE(t->mask), hash);
}

static inline const struct kvc_line *kvc_chunk_peek(const struct kvc_buckets *t, u32 chunk, u32 line)
{
	struct kvc_chunk *const *place = kvc_chunk_place(t, chunk);
	const struct kvc_chunk *c = place ? os_load_acquire(place) : NULL;

	return c ? &c->line[line] : NULL;
}

static inline const struct kvc_line *kvc_bucket_peek(const struct kvc_buckets *t, u32 hash)
{
	u32 bucket = kvc_bucket_peek_number(t, hash);

	return kvc_chunk_peek(t, bucket / KVC_CHUNK_BUCKETS, bucket % KVC_CHUNK_BUCKETS);
}

static inline const struct kvc_line *kvc_next_peek(const struct kvc_buckets *t, const struct kvc_line *line)
{
	u32 next = READ_ONCE(line->next);

	return next ? kvc_chunk_peek(t, next / KVC_CHUNK_LINES, next % KVC_CHUNK_LINES) : NULL;
}

#endif
