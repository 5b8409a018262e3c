// SPDX-License-Identifier: LGPL-2.1-or-later
/* The pages, leases and memories of the kernel in memory. Called with its lock held. */
#include <assert.h>
#include <stdlib.h>

#include "fake_kernel.h"

#define MAX_PAGES	1024

struct page {
	struct kvctx_key key;
	uint8_t *data;
	uint32_t len;
};

struct fake_memory fake_memories[FAKE_MEMORIES];
struct fake_slots fake_slots;

static struct page pages[MAX_PAGES];
static uint32_t next_lease = 1;

unsigned int fake_pages(void)
{
	unsigned int n = 0, i;

	for (i = 0; i < MAX_PAGES; i++)
		n += pages[i].data != NULL;
	return n;
}

static struct page *find(const struct kvctx_key *key)
{
	int i;

	for (i = 0; i < MAX_PAGES; i++)
		if (pages[i].data && !memcmp(&pages[i].key, key, sizeof(*key)))
			return &pages[i];
	return NULL;
}

static void drop(struct page *p)
{
	free(p->data);
	p->data = NULL;
}

void fake_drop_pages(void)
{
	int i;

	for (i = 0; i < MAX_PAGES; i++)
		drop(&pages[i]);
	next_lease = 1;
}

/* Between a page and the scatter list; what is wrong with the list is told before a byte moves */
static int copy(const struct fake_op *op, uint8_t *data, bool store)
{
	uint64_t pos = 0;
	int i;

	if (!op->sqe.length)
		return -EINVAL;
	for (i = 0; i < op->sqe.nr_segs; i++) {
		const struct kvctx_seg *s = &op->segs[i];

		if (s->mem >= FAKE_MEMORIES || !fake_memories[s->mem].addr)
			return -EINVAL;
		if (s->offset + s->length > fake_memories[s->mem].len)
			return -EFAULT;
		pos += s->length;
	}
	if (pos != op->sqe.length)
		return -EMSGSIZE;
	for (i = 0; i < op->sqe.nr_segs; i++) {
		const struct kvctx_seg *s = &op->segs[i];
		uint8_t *m = fake_memories[s->mem].addr + s->offset;

		memcpy(store ? data : m, store ? m : data, s->length);
		data += s->length;
	}
	return 0;
}

static bool in_peer(const struct fake_op *op)
{
	int i;

	for (i = 0; i < op->sqe.nr_segs; i++)
		if (fake_memories[op->segs[i].mem % FAKE_MEMORIES].peer)
			return true;
	return false;
}

/* One CRC a chunk of the page that the range touches. Returns whether they were those at @crcs */
static bool crcs(const struct page *p, uint64_t from, uint64_t end, uint32_t *crcs, bool put)
{
	uint64_t at = from - from % FAKE_CHUNK;
	bool same = true;
	uint32_t crc;

	for (; at < end; at += FAKE_CHUNK, crcs++) {
		crc = kvctx_crc32c(0, p->data + at, p->len - at < FAKE_CHUNK ? p->len - at : FAKE_CHUNK);
		same &= crc == *crcs;
		if (put)
			*crcs = crc;
	}
	return same;
}

static int store(const struct fake_op *op, uint32_t *flags)
{
	uint32_t *given = (void *)(uintptr_t)op->sqe.crcs;
	struct page *p = find(&op->sqe.key);
	int i, ret;

	if (in_peer(op) && fake.no_path)
		return -EREMOTEIO;
	if (p) {
		*flags = KVCTX_CQE_DEDUP;
		return (int)op->sqe.length;
	}
	if (fake.budget_spent) {
		*flags = KVCTX_CQE_UNADMITTED;
		return 0;
	}
	for (i = 0; i < MAX_PAGES && pages[i].data; i++)
		;
	if (i == MAX_PAGES)
		return -ENOSPC;
	p = &pages[i];
	p->key = op->sqe.key;
	p->len = (uint32_t)op->sqe.length;
	p->data = malloc(op->sqe.length);
	assert(p->data);
	ret = copy(op, p->data, true);
	if (!ret && given && !in_peer(op) && !crcs(p, 0, p->len, given, false))
		ret = -EILSEQ;
	if (ret)
		drop(p);
	else if (in_peer(op))
		*flags = KVCTX_CQE_P2P;
	return ret ? ret : (int)p->len;
}

static int load(const struct fake_op *op, const struct page *p, uint32_t *flags)
{
	int ret;

	if (op->sqe.offset + op->sqe.length > p->len)
		return -ERANGE;
	if (in_peer(op) && fake.no_path)
		return -EREMOTEIO;
	ret = copy(op, p->data + op->sqe.offset, false);
	if (ret)
		return ret;
	if (op->sqe.crcs)
		crcs(p, op->sqe.offset, op->sqe.offset + op->sqe.length, (void *)(uintptr_t)op->sqe.crcs, true);
	if (in_peer(op))
		*flags = KVCTX_CQE_P2P;
	else if (!(op->sqe.flags & KVCTX_OP_NO_VERIFY))
		*flags = KVCTX_CQE_VERIFIED;
	return (int)op->sqe.length;
}

/* The page's slot, or one that nobody has got: leases are over at once here. Fills it if need be. */
static int ahead(const struct page *p, uint32_t *flags)
{
	struct fake_slots *f = &fake_slots;
	int free = -1;
	uint32_t i;

	if (p->len > f->bytes)
		return -E2BIG;
	*flags = KVCTX_CQE_VERIFIED;
	for (i = 0; i < f->nr; i++) {
		if (f->full[i] && !memcmp(&f->key[i], &p->key, sizeof(p->key))) {
			*flags |= KVCTX_CQE_FROM_DRAM;
			return (int)i;
		}
		if (free < 0 && !f->gets[i])
			free = (int)i;
	}
	if (free < 0)
		return -ENOSPC;
	f->full[free] = true;
	f->key[free] = p->key;
	memcpy(f->addr + (size_t)free * f->bytes, p->data, p->len);
	return free;
}

static int prefetch(const struct page *p, uint32_t *flags)
{
	int slot = ahead(p, flags);

	return slot < 0 ? slot : (int)p->len;
}

static int get(const struct page *p, uint32_t *flags)
{
	int slot = ahead(p, flags);

	if (slot >= 0)
		fake_slots.gets[slot]++;
	return slot;
}

static int put(const struct fake_op *op)
{
	if (op->sqe.lease >= fake_slots.nr || !fake_slots.gets[op->sqe.lease])
		return -EINVAL;
	fake_slots.gets[op->sqe.lease]--;
	return 0;
}

int fake_do_op(const struct fake_op *op, bool rdonly, uint32_t *flags)
{
	struct page *p = find(&op->sqe.key);

	*flags = 0;
	if (rdonly && (op->sqe.opcode == KVCTX_OP_STORE || op->sqe.opcode == KVCTX_OP_DELETE))
		return -EACCES;
	if (!fake_slots.nr && (op->sqe.opcode == KVCTX_OP_PREFETCH || op->sqe.opcode == KVCTX_OP_GET ||
			       op->sqe.opcode == KVCTX_OP_PUT))
		return -EOPNOTSUPP;
	switch (op->sqe.opcode) {
	case KVCTX_OP_STORE:
		return store(op, flags);
	case KVCTX_OP_PUT:
		return put(op);
	case KVCTX_OP_RELEASE:
		return op->sqe.lease && op->sqe.lease < next_lease ? 0 : -EINVAL;
	case KVCTX_OP_FLUSH:
	case KVCTX_OP_CANCEL:	/* what is kept back has been started */
		return 0;
	}
	if (!p)
		return -ENOENT;
	switch (op->sqe.opcode) {
	case KVCTX_OP_LOAD:
		return load(op, p, flags);
	case KVCTX_OP_QUERY:
		return (int)p->len;
	case KVCTX_OP_DELETE:
		drop(p);
		return 0;
	case KVCTX_OP_LEASE:
		return (int)next_lease++;
	case KVCTX_OP_PREFETCH:
		return prefetch(p, flags);
	case KVCTX_OP_GET:
		return get(p, flags);
	}
	return -EINVAL;
}

void fake_match(struct kvctx_match *m)
{
	const struct kvctx_key *keys = (const void *)(uintptr_t)m->keys;
	uint32_t *lens = (void *)(uintptr_t)m->lens, i;
	struct page *p;

	for (i = 0; i < m->nr_keys && (p = find(&keys[i])); i++)
		if (lens)
			lens[i] = p->len;
	m->nr_present = i;
	m->lease = i && m->flags & KVCTX_MATCH_LEASE ? next_lease++ : 0;
	m->nr_prefetched = m->flags & KVCTX_MATCH_PREFETCH ? (i < fake_slots.nr ? i : fake_slots.nr) : 0;
}
