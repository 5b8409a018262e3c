// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Memory of entries and CRCs.
 *
 * A segment owns a chain of entry blocks (one memory page each) and an array of pointers to blocks of CRCs. Both grow
 * while the segment takes pages and are freed together when it is reclaimed, so memory follows the pages that media
 * holds and never fragments.
 */
#include "index/index.h"

/* Hand @eb, already numbered, to @seg. Member locked. */
static void add_eblock(struct kvc_pool *p, struct kvc_seg *seg, struct kvc_eblock *eb)
{
	eb->gseg = kvc_gseg(p, seg);
	eb->next = KVC_NONE;
	if (seg->nr_eblocks == 0)
		seg->first_eblock = eb->id;
	else
		((struct kvc_eblock *)kvc_table_get(&p->eblocks, seg->last_eblock))->next = eb->id;
	seg->last_eblock = eb->id;
	seg->nr_eblocks++;
	seg->nr_nonces += !!eb->nonces;
}

/* Did @seg stay what it was while the lock was dropped? A drained segment's memory is freed without the lock. */
static bool same_life(const struct kvc_seg *seg, u64 generation)
{
	return seg->generation == generation && seg->state != KVC_S_DRAINING;
}

/* With its place in the table */
#define EBLOCK_BYTES	(sizeof(struct kvc_eblock) + sizeof(void *))
#define NONCES_BYTES	1024U		/* of one block's entries, as allocators have it */

os_static_assert(NONCES_BYTES >= KVC_NONCE_LEN * KVC_EBLOCK_ENTRIES, "nonces of an entry block");

static size_t eblock_bytes(const struct kvc_eblock *eb)
{
	return EBLOCK_BYTES + (eb->nonces ? NONCES_BYTES : 0);
}

void kvc_eblock_free(void *eblock)
{
	struct kvc_eblock *eb = eblock;

	os_free(eb->nonces);
	os_free(eb);
}

static struct kvc_eblock *new_eblock(struct kvc_pool *p)
{
	struct kvc_eblock *eb = os_zalloc(sizeof(*eb));

	if (!eb)
		return NULL;
	if (unlikely(READ_ONCE(p->nonces))) {
		eb->nonces = os_zalloc(NONCES_BYTES);
		if (!eb->nonces)
			goto err;
	}
	if (kvc_table_add(&p->eblocks, eb, &eb->id))
		goto err;
	os_atomic64_add(&p->memory.bytes, eblock_bytes(eb));
	return eb;

err:
	kvc_eblock_free(eb);
	return NULL;
}

static void del_eblock(struct kvc_pool *p, struct kvc_eblock *eb)
{
	kvc_table_del(&p->eblocks, eb->id);
	os_atomic64_sub(&p->memory.bytes, eblock_bytes(eb));
	kvc_eblock_free(eb);
}

/* Of a segment's array of pointers to blocks of CRCs */
static size_t crcs_bytes(const struct kvc_pool *p)
{
	return sizeof(u32 *) * (p->seg_blocks / KVC_CBLOCK_CRCS + 1);
}

static size_t cblock_bytes(void)
{
	return sizeof(u32) * KVC_CBLOCK_CRCS;
}

u64 kvc_seg_bytes(const struct kvc_pool *p, const struct kvc_seg *seg)
{
	return seg->nr_eblocks * EBLOCK_BYTES + (u64)seg->nr_nonces * NONCES_BYTES +
	       (u64)seg->crc_room / KVC_CBLOCK_CRCS * cblock_bytes() + (seg->crcs ? crcs_bytes(p) : 0);
}

/*
 * One call adds one thing, as the lock was dropped for it; the caller comes back until nothing lacks. What turns out
 * not to be needed any more is freed with the lock dropped once more.
 */
static int grow_entries(struct kvc_member *m, struct kvc_seg *seg, u64 generation)
	os_must_hold(&m->lock)
{
	struct kvc_pool *p = m->pool;
	struct kvc_eblock *eb;
	bool used;

	os_unlock(&m->lock);
	eb = new_eblock(p);
	os_lock(&m->lock);
	if (!eb)
		return -ENOMEM;
	used = same_life(seg, generation) && kvc_seg_lacks_eblock(seg) && (eb->nonces || !READ_ONCE(p->nonces));
	if (used)
		add_eblock(p, seg, eb);
	os_unlock(&m->lock);
	if (!used)
		del_eblock(p, eb);
	os_lock(&m->lock);
	return 1;
}

/* The last entry block of a head, @seg, from before there were nonces; NULL: there is none. Member locked. */
static struct kvc_eblock *without_nonces(struct kvc_member *m, struct kvc_seg **seg)
{
	struct kvc_eblock *eb;
	u32 i;

	for (i = 0; i < KVC_ALL_HEADS; i++) {
		if (!m->head[i] || kvc_seg_lacks_eblock(m->head[i]))
			continue;
		*seg = m->head[i];
		eb = kvc_table_get(&m->pool->eblocks, (*seg)->last_eblock);
		if (!eb->nonces)
			return eb;
	}
	return NULL;
}

/* What is on its way from before notices under the lock of its member, in grow_entries(). */
int kvc_nonces_begin(struct kvc_pool *p)
{
	struct kvc_eblock *eb;
	struct kvc_seg *seg;
	void *nonces = NULL;
	u32 i;

	WRITE_ONCE(p->nonces, true);
	for (i = 0; i < kvc_nr_members(p); i++) {
		do {
			if (!nonces)
				nonces = os_zalloc(NONCES_BYTES);
			if (!nonces)
				return -ENOMEM;
			os_lock(&p->members[i].lock);
			eb = without_nonces(&p->members[i], &seg);
			if (eb) {
				seg->nr_nonces++;
				os_publish(&eb->nonces, nonces);
				os_atomic64_add(&p->memory.bytes, NONCES_BYTES);
				nonces = NULL;
			}
			os_unlock(&p->members[i].lock);
		} while (eb);
	}
	os_free(nonces);
	return 0;
}

static int grow_crcs(struct kvc_member *m, struct kvc_seg *seg, u64 generation, u32 nr_crcs)
	os_must_hold(&m->lock)
{
	struct kvc_pool *p = m->pool;
	bool array = !seg->crcs;
	size_t size = array ? crcs_bytes(p) : cblock_bytes();
	void *mem;

	os_unlock(&m->lock);
	mem = os_zalloc(size);
	os_lock(&m->lock);
	if (!mem)
		return -ENOMEM;
	if (same_life(seg, generation) && array == !seg->crcs && kvc_seg_lacks_cblock(seg, nr_crcs)) {
		if (array) {
			seg->crcs = mem;
		} else {
			seg->crcs[seg->crc_room / KVC_CBLOCK_CRCS] = mem;
			seg->crc_room += KVC_CBLOCK_CRCS;
		}
		os_atomic64_add(&p->memory.bytes, size);
		mem = NULL;
	}
	os_unlock(&m->lock);
	os_free(mem);
	os_lock(&m->lock);
	return 1;
}

int kvc_seg_grow(struct kvc_member *m, struct kvc_seg *seg, u32 nr_crcs)
{
	if (kvc_seg_lacks_eblock(seg))
		return grow_entries(m, seg, seg->generation);
	if (kvc_seg_lacks_cblock(seg, nr_crcs))
		return grow_crcs(m, seg, seg->generation, nr_crcs);
	return 0;
}

u32 kvc_seg_append(struct kvc_pool *p, struct kvc_seg *seg, struct kvc_domain *d, const u8 *key)
{
	u32 slot = seg->nr_entries % KVC_EBLOCK_ENTRIES;
	u32 entry = seg->last_eblock << KVC_EBLOCK_SHIFT | slot;
	struct kvc_entry *e = kvc_entry(p, entry);

	os_assert_locked(&kvc_member_of(p, kvc_gseg(p, seg))->lock);
	memset(e, 0, sizeof(*e));
	memcpy(e->key, key, KVC_KEY_LEN);
	e->domain = d->id;
	os_atomic_inc(&d->refs);
	seg->nr_entries++;
	return entry;
}

bool kvc_seg_pair(struct kvc_pool *p, struct kvc_seg *seg, struct kvc_domain *d, const u8 *key)
{
	if (seg->nr_entries % KVC_EBLOCK_ENTRIES != KVC_EBLOCK_ENTRIES - 1)
		return true;
	kvc_entry(p, kvc_seg_append(p, seg, d, key))->state = KVC_E_DEAD;
	return false;
}

static void free_eblock(struct kvc_pool *p, struct kvc_eblock *eb, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		kvc_domain_put(p, kvc_domain(p, eb->e[i].domain));
	del_eblock(p, eb);
}

static void free_crcs(struct kvc_pool *p, struct kvc_seg *seg)
{
	u32 i, nr = seg->crc_room / KVC_CBLOCK_CRCS;

	for (i = 0; i < nr; i++)
		os_free(seg->crcs[i]);
	if (seg->crcs)
		os_atomic64_sub(&p->memory.bytes, nr * cblock_bytes() + crcs_bytes(p));
	os_free(seg->crcs);
	seg->crcs = NULL;
	seg->nr_crcs = 0;
	seg->crc_room = 0;
}

static bool none_in_index(const struct kvc_eblock *eb, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (eb->e[i].state != KVC_E_DEAD)
			return false;
	return true;
}

void kvc_seg_free_dead(struct kvc_pool *p, struct kvc_seg *seg)
{
	u32 id = seg->first_eblock, blocks = seg->nr_eblocks, left = seg->nr_entries;
	struct kvc_eblock *eb;
	u32 i, nr;

	free_crcs(p, seg);
	seg->nr_eblocks = 0;
	seg->nr_nonces = 0;
	seg->nr_entries = 0;
	for (i = 0; i < blocks; i++) {
		eb = kvc_table_get(&p->eblocks, id);
		nr = min(left, KVC_EBLOCK_ENTRIES);
		id = eb->next;
		left -= nr;
		if (none_in_index(eb, nr)) {
			seg->nr_strays += nr;
			free_eblock(p, eb, nr);
		} else {
			add_eblock(p, seg, eb);
			seg->nr_entries += nr;
		}
	}
}

void kvc_seg_free_entries(struct kvc_pool *p, struct kvc_seg *seg)
{
	u32 id = seg->first_eblock, left = seg->nr_entries, i;

	for (i = 0; i < seg->nr_eblocks; i++) {
		struct kvc_eblock *eb = kvc_table_get(&p->eblocks, id);
		u32 nr = min(left, KVC_EBLOCK_ENTRIES);

		id = eb->next;
		left -= nr;
		free_eblock(p, eb, nr);
	}
	free_crcs(p, seg);
	seg->nr_entries = 0;
	seg->nr_strays = 0;
	seg->nr_eblocks = 0;
	seg->nr_nonces = 0;
}

void kvc_cursor_init(struct kvc_cursor *c)
{
	c->index = 0;
	c->blockno = 0;
	c->block = KVC_NONE;
}

/* The entry under the cursor, KVC_NONE behind the last. */
u32 kvc_cursor_entry(const struct kvc_pool *p, const struct kvc_seg *seg, struct kvc_cursor *c)
{
	u32 blockno = c->index / KVC_EBLOCK_ENTRIES;

	if (c->index >= seg->nr_entries)
		return KVC_NONE;
	if (c->block == KVC_NONE)
		c->block = seg->first_eblock;
	for (; c->blockno < blockno; c->blockno++)
		c->block = ((struct kvc_eblock *)kvc_table_get(&p->eblocks, c->block))->next;
	return c->block << KVC_EBLOCK_SHIFT | c->index % KVC_EBLOCK_ENTRIES;
}
