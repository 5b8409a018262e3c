// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Buckets of a shard: linear hashing (W. Litwin, "Linear hashing: a new tool for file and table addressing", 1980).
 *
 * The table grows by one bucket at a time. With n buckets, 2^k < n <= 2^(k+1), a hash leads to the bucket of its lowest
 * k+1 bits, or where there is none yet, of its lowest k. A new bucket takes its share from the one whose number lacks
 * the highest bit. So a growing table never stops anybody for longer than it takes to divide one bucket, and a sweep in
 * the order of the numbers misses nothing: what moves, moves to a higher one.
 *
 * It begins with all buckets of one chunk. It grows when buckets hold more than FILL entries on average, or when few
 * spares are left: with buckets of very different fill, which there are halfway between two powers of two, lines are
 * used up before the average is reached. That keeps both the memory and the share of entries that are not in the first
 * line of their bucket within bounds. It does not shrink: the most pages that a pool ever held it will hold again.
 *
 * Nothing is allocated under the lock. A shard that needs a chunk is hungry; who is about to insert feeds it
 * first. If memory is short the spares make buckets longer; only without any left an insertion is refused.
 */
#include "index/bucket.h"

#define FILL		9U
#define SPARES_LOW	3U
#define SPLITS		2U		/* after one insertion, at most */
#define SPARES		(KVC_CHUNK_LINES - KVC_CHUNK_BUCKETS)
#define FIRST_MASK	63U

os_static_assert(KVC_CHUNK_BUCKETS > FIRST_MASK / 2 && KVC_CHUNK_BUCKETS <= FIRST_MASK + 1, "buckets of one chunk");

/* All shards begin with this one bucket, which has no room. Never written. */
static struct kvc_chunk no_chunk;
static struct kvc_directory no_directory = { .room = 1, .chunk = { &no_chunk } };

void kvc_buckets_init(struct kvc_buckets *t, struct os_atomic64 *bytes)
{
	memset(t, 0, sizeof(*t));
	t->bytes = bytes;
	t->dir = &no_directory;
	t->nr = 1;
	t->hungry = true;
}

void kvc_buckets_free(struct kvc_buckets *t)
{
	struct kvc_directory *dir = t->dir, *older;
	u32 i;

	for (i = 0; i < t->nr_chunks; i++)
		os_free(dir->chunk[i]);
	for (; dir && dir != &no_directory; dir = older) {
		older = dir->older;
		os_free(dir);
	}
}

static struct kvc_line *line_of(const struct kvc_buckets *t, u32 hash)
{
	return kvc_bucket_line(t, kvc_bucket_number(t->nr, t->mask, hash));
}

static void set_slot(struct kvc_line *line, u32 i, u32 slot, u32 tag)
{
	u32 shift = i % 4 * 8;

	WRITE_ONCE(line->tags[i / 4], (line->tags[i / 4] & ~(0xffU << shift)) | tag << shift);
	os_store_release(&line->slot[i], slot);
}

static u32 tag_at(const struct kvc_line *line, u32 i)
{
	return line->tags[i / 4] >> i % 4 * 8 & 0xff;
}

os_static_assert(KVC_LINE_SLOTS == 12, "halves of a line");

static u32 used_slots(const struct kvc_line *line)
{
	u32 n = line->slot[7] ? 8 : 0;

	/* the used ones come first */
	if (line->slot[n + 3])
		n += 4;
	if (n == KVC_LINE_SLOTS)
		return n;
	if (line->slot[n + 1])
		n += 2;
	return line->slot[n] ? n + 1 : n;
}

static u32 take_spare(struct kvc_buckets *t)
{
	u32 number = t->spare;
	struct kvc_line *line = kvc_numbered_line(t, number);

	t->spare = line->next;
	t->nr_spares--;
	WRITE_ONCE(line->next, 0);
	return number;
}

static void give_spare(struct kvc_buckets *t, u32 number)
{
	WRITE_ONCE(kvc_numbered_line(t, number)->next, t->spare);
	t->spare = number;
	t->nr_spares++;
}

/* Put @slot where @hash leads; false when that takes a line and there is none */
static bool put(struct kvc_buckets *t, u32 hash, u32 slot)
{
	struct kvc_line *line = line_of(t, hash);

	while (line->next)
		line = kvc_next_line(t, line);
	if (line->slot[KVC_LINE_SLOTS - 1]) {
		if (!t->nr_spares)
			return false;
		WRITE_ONCE(line->next, take_spare(t));
		line = kvc_next_line(t, line);
	}
	set_slot(line, used_slots(line), slot, kvc_tag(hash));
	return true;
}

void kvc_buckets_insert(struct kvc_buckets *t, u32 hash, u32 entry)
{
	if (KVC_WARN_ONCE(!put(t, hash, entry + 1)))
		return;
	t->entries++;
}

/* The last slot of the bucket fills the gap. */
void kvc_buckets_remove(struct kvc_buckets *t, u32 hash, u32 entry)
{
	struct kvc_line *line = line_of(t, hash), *last = line, *before = NULL, *gap = NULL;
	u32 i, at = 0;

	for (; line; line = kvc_next_line(t, line)) {
		for (i = 0; i < KVC_LINE_SLOTS && !gap; i++) {
			if (line->slot[i] == entry + 1) {
				gap = line;
				at = i;
			}
		}
		if (line->next)
			before = line;
		last = line;
	}
	if (KVC_WARN_ONCE(!gap))
		return;
	i = used_slots(last) - 1;
	set_slot(gap, at, last->slot[i], tag_at(last, i));
	set_slot(last, i, 0, 0);
	if (i == 0 && before) {
		give_spare(t, before->next);
		WRITE_ONCE(before->next, 0);
	}
	t->entries--;
}

/* Is it time for one bucket more? */
static bool due(const struct kvc_buckets *t)
{
	return t->entries > FILL * t->nr || t->nr_spares < SPARES_LOW;
}

static bool lacks_bucket(const struct kvc_buckets *t)
{
	return t->nr >= t->nr_chunks * KVC_CHUNK_BUCKETS;
}

static void look_for_hunger(struct kvc_buckets *t)
{
	WRITE_ONCE(t->hungry, (due(t) && lacks_bucket(t)) || t->nr_spares < SPARES_LOW + t->promised);
}

void kvc_buckets_promise(struct kvc_buckets *t)
{
	t->promised++;
	look_for_hunger(t);
}

void kvc_buckets_kept(struct kvc_buckets *t)
{
	t->promised--;
	look_for_hunger(t);
}

static void put_all(struct kvc_buckets *t, const struct kvc_line *old, u32 (*hash_of)(const void *arg, u32 entry),
		    const void *arg)
{
	u32 hash[KVC_LINE_SLOTS], nr = used_slots(old), i;

	/* All first: it waits for memory once. */
	for (i = 0; i < nr; i++)
		hash[i] = hash_of(arg, old->slot[i] - 1);
	for (i = 0; i < nr; i++)
		KVC_WARN_ONCE(!put(t, hash[i], old->slot[i]));
}

/*
 * One bucket more. Lines are given back before what they held is put again, so it never takes more than there are: two
 * buckets that share what k full lines held need no more than k + 1.
 */
static void split(struct kvc_buckets *t, u32 (*hash_of)(const void *arg, u32 entry), const void *arg)
{
	u32 mask = t->nr > t->mask ? 2 * t->mask + 1 : t->mask, number = 0, i;
	struct kvc_line *line = kvc_bucket_line(t, t->nr & (mask >> 1)), old;

	WRITE_ONCE(t->mask, mask);
	WRITE_ONCE(t->nr, t->nr + 1);
	for (;;) {
		old = *line;
		for (i = 0; i < KVC_LINE_SLOTS; i++)
			WRITE_ONCE(line->slot[i], 0);
		WRITE_ONCE(line->next, 0);
		if (number)
			give_spare(t, number);
		put_all(t, &old, hash_of, arg);
		number = old.next;
		if (!number)
			break;
		line = kvc_numbered_line(t, number);
	}
}

void kvc_buckets_settle(struct kvc_buckets *t, u32 (*hash_of)(const void *arg, u32 entry), const void *arg)
{
	u32 i;

	for (i = 0; i < SPLITS && due(t) && !lacks_bucket(t); i++)
		split(t, hash_of, arg);
	look_for_hunger(t);
}

static bool lacks_directory(const struct kvc_buckets *t)
{
	return t->nr_chunks == 0 ? t->dir == &no_directory : t->nr_chunks == t->dir->room;
}

/* Room for more chunks, and those that there are, which may be no_chunk. Locked, dropped to allocate. */
static bool grow_directory(struct kvc_buckets *t, struct os_lock *lock)
	os_must_hold(lock)
{
	u32 room = t->nr_chunks ? 2 * t->dir->room + 2 : 6;
	struct kvc_directory *dir;

	os_unlock(lock);
	dir = os_zalloc(sizeof(*dir) + room * sizeof(*dir->chunk));
	os_lock(lock);
	if (!dir)
		return false;
	if (lacks_directory(t)) {
		dir->room = room;
		dir->older = t->dir;
		memcpy(dir->chunk, t->dir->chunk, t->dir->room * sizeof(*dir->chunk));
		os_store_release(&t->dir, dir);
		os_atomic64_add(t->bytes, sizeof(*dir) + room * sizeof(*dir->chunk));
		return true;
	}
	os_unlock(lock);
	os_free(dir);
	os_lock(lock);
	return true;
}

/* Its spares are in use from now on, and the buckets of the first one: nothing has to be divided for them. */
static void add_chunk(struct kvc_buckets *t, struct kvc_chunk *chunk)
{
	u32 number = t->nr_chunks * KVC_CHUNK_LINES + KVC_CHUNK_BUCKETS, i;

	os_store_release(&t->dir->chunk[t->nr_chunks], chunk);
	os_atomic64_add(t->bytes, sizeof(*chunk));
	if (t->nr_chunks++ == 0) {
		WRITE_ONCE(t->mask, FIRST_MASK);
		WRITE_ONCE(t->nr, KVC_CHUNK_BUCKETS);
	}
	for (i = 0; i < SPARES; i++)
		give_spare(t, number + i);
	look_for_hunger(t);
}

/* The same for one more chunk. */
static bool grow_lines(struct kvc_buckets *t, struct os_lock *lock)
	os_must_hold(lock)
{
	struct kvc_chunk *chunk;

	os_unlock(lock);
	chunk = os_zalloc(sizeof(*chunk));
	os_lock(lock);
	if (!chunk)
		return false;
	if (t->hungry && !lacks_directory(t)) {
		add_chunk(t, chunk);
		return true;
	}
	os_unlock(lock);
	os_free(chunk);
	os_lock(lock);
	return true;
}

int kvc_buckets_grow(struct kvc_buckets *t, struct os_lock *lock)
{
	bool memory = true, room;

	os_lock(lock);
	while (memory && t->hungry)
		memory = lacks_directory(t) ? grow_directory(t, lock) : grow_lines(t, lock);
	room = kvc_buckets_room(t);
	os_unlock(lock);
	return room ? 0 : -ENOMEM;
}
