// SPDX-License-Identifier: LGPL-2.1-or-later
/* See fake_kernel.h. What the real kernel refuses is refused here, as far as the library could get it wrong. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fake_kernel.h"

#define MAX_PAGES	256
#define MAX_REGS	64
#define FD		77

struct page {
	struct kvctx_key key;
	uint8_t *data;
	uint32_t len;
};

struct fake fake;

static struct page pages[MAX_PAGES];
static struct { uint64_t addr, len; bool used; } regs[MAX_REGS];
static struct kvctx_cq_ring *ring;
static uint8_t *arena;
static size_t arena_bytes;
static struct kvctx_cqe held[4096];
static unsigned int nr_held;
static uint32_t next_lease;

void fake_reset(void)
{
	for (int i = 0; i < MAX_PAGES; i++)
		free(pages[i].data);
	memset(pages, 0, sizeof(pages));
	memset(regs, 0, sizeof(regs));
	nr_held = 0;
	next_lease = 1;
	fake = (struct fake){ .mmaps_left = -1, .abi_version = KVCTX_ABI_VERSION };
}

unsigned int fake_pages(void)
{
	unsigned int n = 0;

	for (int i = 0; i < MAX_PAGES; i++)
		n += pages[i].data != NULL;
	return n;
}

static struct page *find(const struct kvctx_key *key)
{
	for (int i = 0; i < MAX_PAGES; i++)
		if (pages[i].data && !memcmp(&pages[i].key, key, sizeof(*key)))
			return &pages[i];
	return NULL;
}

static void post(struct kvctx_cqe cqe)
{
	assert(ring->tail - ring->head < ring->entries);
	ring->cqes[ring->tail & (ring->entries - 1)] = cqe;
	__atomic_store_n(&ring->tail, ring->tail + 1, __ATOMIC_RELEASE);
}

void fake_release(unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n && i < nr_held; i++)
		post(held[i]);
	memmove(held, held + i, (nr_held - i) * sizeof(held[0]));
	nr_held -= i;
}

static uint8_t *seg_memory(const struct kvctx_seg *s)
{
	if (s->mem == KVCTX_MEM_ARENA)
		return s->offset + s->length <= arena_bytes ? arena + s->offset : NULL;
	if (s->mem >= MAX_REGS || !regs[s->mem].used || s->offset + s->length > regs[s->mem].len)
		return NULL;
	return (uint8_t *)(uintptr_t)regs[s->mem].addr + s->offset;
}

/* Copy between a page and the scatter list */
static int copy(const struct kvctx_sqe *sqe, uint8_t *data, bool store)
{
	const struct kvctx_seg *segs = (const void *)(uintptr_t)sqe->segs;
	uint64_t pos = 0;

	for (int i = 0; i < sqe->nr_segs; i++) {
		uint8_t *m = seg_memory(&segs[i]);

		if (!m)
			return -EINVAL;
		memcpy(store ? data + pos : m, store ? m : data + pos, segs[i].length);
		pos += segs[i].length;
	}
	return pos == sqe->length ? 0 : -EMSGSIZE;
}

static int store(const struct kvctx_sqe *sqe, uint32_t *flags)
{
	struct page *p = find(&sqe->key);
	int i;

	if (fake.rdonly)
		return -EACCES;
	if (p) {
		*flags = KVCTX_CQE_DEDUP;
		return (int)sqe->length;
	}
	for (i = 0; pages[i].data; i++)
		assert(i + 1 < MAX_PAGES);
	p = &pages[i];
	p->key = sqe->key;
	p->len = (uint32_t)sqe->length;
	p->data = malloc(sqe->length);
	i = copy(sqe, p->data, true);
	if (i) {
		free(p->data);
		p->data = NULL;
		return i;
	}
	return (int)sqe->length;
}

static int run_op(const struct kvctx_sqe *sqe, uint32_t *flags)
{
	struct page *p = find(&sqe->key);
	int ret = fake.fail_op;

	fake.fail_op = 0;
	if (ret)
		return ret;
	switch (sqe->opcode) {
	case KVCTX_OP_STORE:
		return store(sqe, flags);
	case KVCTX_OP_LOAD:
		if (!p)
			return -ENOENT;
		if (sqe->offset + sqe->length > p->len)
			return -ERANGE;
		ret = copy(sqe, p->data + sqe->offset, false);
		*flags = KVCTX_CQE_VERIFIED;
		return ret ? ret : (int)sqe->length;
	case KVCTX_OP_QUERY:
		return p ? (int)p->len : -ENOENT;
	case KVCTX_OP_DELETE:
		if (!p)
			return -ENOENT;
		free(p->data);
		p->data = NULL;
		return 0;
	case KVCTX_OP_LEASE:
		return p ? (int)next_lease++ : -ENOENT;
	case KVCTX_OP_RELEASE:
		return sqe->lease && sqe->lease < next_lease ? 0 : -EINVAL;
	case KVCTX_OP_FLUSH:
		return 0;
	}
	return -EINVAL;
}

static int do_submit(struct kvctx_submit *s)
{
	const struct kvctx_sqe *sqes = (const void *)(uintptr_t)s->sqes;
	uint32_t i;

	fake.submits++;
	for (i = 0; i < s->nr; i++) {
		struct kvctx_cqe cqe = { .user_data = sqes[i].user_data };

		if (ring->tail - ring->head + nr_held == ring->entries)
			break;
		cqe.res = run_op(&sqes[i], &cqe.flags);
		if (fake.hold && cqe.user_data < KVCTX_USER_DATA_END)
			held[nr_held++] = cqe;
		else
			post(cqe);
	}
	return i ? (int)i : -EAGAIN;
}

static int do_wait(struct kvctx_wait *w)
{
	fake.waits++;
	if (w->consumed > ring->tail - ring->head)
		return -EINVAL;
	ring->head += w->consumed;
	if (ring->tail - ring->head < w->min && nr_held && w->timeout_ns != KVCTX_TIMEOUT_NONE)
		return -ETIME;
	if (ring->tail - ring->head < w->min)
		fake_release(w->min - (ring->tail - ring->head));
	return (int)(ring->tail - ring->head);
}

static int do_setup(struct kvctx_setup *s)
{
	if (fake.fail_setup)
		return fake.fail_setup;
	while (s->cq_entries & (s->cq_entries - 1))
		s->cq_entries++;
	s->arena_bytes = (s->arena_bytes + 4095) & ~4095ULL;
	s->cq_bytes = sizeof(*ring) + s->cq_entries * sizeof(struct kvctx_cqe);
	ring = calloc(1, s->cq_bytes);
	ring->entries = s->cq_entries;
	/* close to the end of the counters, so that every test crosses it */
	ring->head = ring->tail = 0U - 3;
	arena_bytes = s->arena_bytes;
	arena = arena_bytes ? calloc(1, arena_bytes) : NULL;
	return 0;
}

static int do_register(struct kvctx_mem_register *r)
{
	if (fake.fail_register)
		return fake.fail_register;
	if (!r->length)
		return -EINVAL;
	for (uint32_t i = 1; i < MAX_REGS; i++) {
		if (regs[i].used)
			continue;
		regs[i].used = true;
		regs[i].addr = r->addr;
		regs[i].len = r->length;
		r->id = i;
		fake.registrations++;
		return 0;
	}
	return -ENOMEM;
}

static int do_unregister(const struct kvctx_mem_unregister *u)
{
	if (!u->id || u->id >= MAX_REGS || !regs[u->id].used)
		return -EINVAL;
	regs[u->id].used = false;
	fake.registrations--;
	return 0;
}

static int do_match(struct kvctx_match *m)
{
	const struct kvctx_key *keys = (const void *)(uintptr_t)m->keys;
	uint32_t *lens = (void *)(uintptr_t)m->lens, i;

	if (fake.fail_match)
		return fake.fail_match;
	for (i = 0; i < m->nr_keys; i++) {
		struct page *p = find(&keys[i]);

		if (!p)
			break;
		if (lens)
			lens[i] = p->len;
	}
	m->nr_present = i;
	m->lease = i && m->flags ? next_lease++ : 0;
	return 0;
}

int kvctx_sys_open(const char *path, int flags)
{
	assert(!strcmp(path, "/dev/kvctx/p/t"));
	if (fake.fail_open)
		return fake.fail_open;
	fake.rdonly = (flags & O_ACCMODE) == O_RDONLY;
	fake.fds++;
	return FD;
}

int kvctx_sys_ioctl(int fd, unsigned long nr, void *arg)
{
	struct kvctx_info *info = arg;

	assert(fd == FD);
	switch (nr) {
	case KVCTX_IOC_INFO:
		assert(info->size == sizeof(*info));
		*info = (struct kvctx_info){
			.size = sizeof(*info), .abi_version = fake.abi_version, .batch_max = 16,
			.page_len_max = 1 << 20,
		};
		return fake.fail_info;
	case KVCTX_IOC_SETUP:
		return do_setup(arg);
	case KVCTX_IOC_MEM_REGISTER:
		return do_register(arg);
	case KVCTX_IOC_MEM_UNREGISTER:
		return do_unregister(arg);
	case KVCTX_IOC_SUBMIT:
		return do_submit(arg);
	case KVCTX_IOC_WAIT:
		return do_wait(arg);
	case KVCTX_IOC_MATCH:
		return do_match(arg);
	}
	return -ENOTTY;
}

void *kvctx_sys_mmap(int fd, size_t len, int prot, uint64_t offset)
{
	assert(fd == FD && len);
	assert(prot == (fake.rdonly ? 1 : 3));
	if (!fake.mmaps_left) {
		errno = ENOMEM;
		return NULL;
	}
	fake.mmaps_left -= fake.mmaps_left > 0;
	fake.maps++;
	return offset == KVCTX_MMAP_CQ ? (void *)ring : arena;
}

void kvctx_sys_munmap(void *p, size_t len)
{
	assert(len);
	fake.maps--;
	if (p == (void *)ring) {
		free(ring);
		ring = NULL;
	} else {
		free(arena);
		arena = NULL;
	}
}

void kvctx_sys_close(int fd)
{
	assert(fd == FD);
	fake.fds--;
	/* what a failed open never mapped */
	if (!fake.maps) {
		free(ring);
		free(arena);
		ring = NULL;
		arena = NULL;
	}
}
