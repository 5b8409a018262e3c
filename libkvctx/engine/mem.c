// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Memory that operations move pages from and to: the arena and the slots, which are ours, and registrations, which are
 * the caller's; and how to walk over pieces of it.
 *
 * What is ours is shared memory without a name, mapped once here and once for each mmap() of the caller. What he may
 * only read is sealed: he gets no mapping that could be written, nor can he make one of it. A child has no mapping.
 *
 * The ring knows memory in buffers of at most 1 GiB. Where it takes no more, be it for RLIMIT_MEMLOCK, memory is used
 * without: transfers are slower then, and nothing else.
 */
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

#include "huge.h"
#include "session.h"

unsigned int kve_mem_order = 30;

#define MEM_BUFFER	(1UL << kve_mem_order)

static int map_memfd(size_t bytes, bool rdonly, void **addr)
{
	unsigned int seals = F_SEAL_SHRINK | F_SEAL_GROW | (rdonly ? F_SEAL_FUTURE_WRITE : 0) | F_SEAL_SEAL;
	int fd = memfd_create("kvctx", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return fd;
	*addr = MAP_FAILED;
	if (!ftruncate(fd, (off_t)bytes))
		*addr = kve_huge_map(fd, bytes, PROT_READ | PROT_WRITE, 0);
	if (*addr != MAP_FAILED && !fcntl(fd, F_ADD_SEALS, seals) && !madvise(*addr, bytes, MADV_DONTFORK) &&
	    !kve_fork_own(fd))
		return fd;
	if (*addr != MAP_FAILED)
		munmap(*addr, bytes);
	close(fd);
	return -1;
}

int kve_map_create(struct kve_map *map, size_t bytes, bool rdonly)
{
	void *addr;
	int fd;

	kve_fork_lock();
	fd = map_memfd(bytes, rdonly, &addr);
	kve_fork_unlock();
	if (fd < 0)
		return -ENOMEM;
	madvise(addr, bytes, MADV_HUGEPAGE);
	*map = (struct kve_map){ .addr = addr, .bytes = bytes, .fd = fd };
	return 0;
}

void kve_map_free(struct kve_map *map)
{
	if (!map->addr)
		return;
	munmap(map->addr, map->bytes);
	kve_fd_close(&map->fd);
	map->addr = NULL;
}

void kve_fd_close(int *fd)
{
	if (*fd < 0)
		return;
	kve_fork_lock();
	kve_fork_disown(*fd);
	close(*fd);
	kve_fork_unlock();
	*fd = -1;
}

/* Map part of it for the caller. */
int kve_map_share(const struct kve_map *map, size_t len, int prot, u64 offset, void **out)
{
	void *addr;

	if (!map->addr || !len || offset > map->bytes || len > map->bytes - offset)
		return -EINVAL;
	addr = kve_huge_map(map->fd, len, prot, offset);
	if (addr == MAP_FAILED)
		return errno == EPERM ? -EACCES : -errno;
	madvise(addr, len, MADV_DONTFORK);
	*out = addr;
	return 0;
}

/*
 * Can [@start, @end), whole pages, be written? Pages are brought there as by writing to them, but no signal is raised
 * where that cannot be. Kernels before 5.14 cannot tell; there it is enough that something is mapped.
 */
static int mem_probe(u8 *start, u8 *end)
{
	static _Alignas(4096) u8 good[4096];
	size_t bytes = (size_t)(end - start);
	int err = 0;

	while (madvise(start, bytes, MADV_POPULATE_WRITE)) {
		if (errno == EINTR || errno == EAGAIN)
			continue;
		err = errno;
		break;
	}
	if (!err)
		return 0;
	if (msync(start, bytes, MS_ASYNC))
		return -EFAULT;
	if (err == EINVAL && madvise(good, sizeof(good), MADV_POPULATE_WRITE))
		return 0;
	return err == ENOMEM ? -ENOMEM : -EFAULT;
}

/* Have the ring know it, all or nothing. It pins all of it, so @ours may be there, in huge pages, before that. */
static void mem_buffers_add(struct kve_session *s, struct kve_mem *mem, u32 nr, bool ours)
{
	u64 at = 0;

	for (; mem->nr_buffers < nr; mem->nr_buffers++, at += MEM_BUFFER) {
		s32 *b = &mem->buffers[mem->nr_buffers];
		u64 bytes = min(mem->length - at, (u64)MEM_BUFFER);

		if (ours && !s->ring->kind->threads)
			kve_huge_collapse(mem->addr + at, bytes);
		*b = s->ring->kind->buffer_add(s->ring, mem->addr + at, bytes);
		if (*b >= 0)
			continue;
		__atomic_add_fetch(&s->unregistered, *b != -EOPNOTSUPP, __ATOMIC_RELAXED);
		while (mem->nr_buffers)
			s->ring->kind->buffer_remove(s->ring, mem->buffers[--mem->nr_buffers]);
		return;
	}
}

static struct kve_mem *mem_new(struct kve_session *s, void *addr, u64 length, bool ours)
{
	u32 nr = (u32)((length + MEM_BUFFER - 1) / MEM_BUFFER);
	struct kve_mem *mem = malloc(sizeof(*mem) + nr * sizeof(mem->buffers[0]));

	if (!mem)
		return NULL;
	*mem = (struct kve_mem){ .addr = addr, .length = length };
	mem_buffers_add(s, mem, nr, ours);
	return mem;
}

struct kve_mem *kve_mem_of_map(struct kve_session *s, const struct kve_map *map)
{
	return mem_new(s, map->addr, map->bytes, true);
}

void kve_mem_free(struct kve_session *s, struct kve_mem *mem)
{
	if (!mem)
		return;
	while (mem->nr_buffers)
		s->ring->kind->buffer_remove(s->ring, mem->buffers[--mem->nr_buffers]);
	if (mem->pinned)
		kvc_tenant_unpin(s->pool->core, s->slot, mem->pinned);
	free(mem);
}

/* The ring's buffer that all of [@addr, + @len) lies in, or -1. */
s32 kve_mem_buffer(const struct kve_mem *mem, const void *addr, size_t len)
{
	u64 at = (u64)((const u8 *)addr - mem->addr);
	u64 i = at / MEM_BUFFER;

	if (i >= mem->nr_buffers || (at + len - 1) / MEM_BUFFER != i)
		return -1;
	return mem->buffers[i];
}

/* A free id, with room for it in the table; 0: there is none. */
static u32 mem_id(struct kve_session *s)
{
	u32 id, nr = min_t(u32, max(2 * s->nr_mems, 16U), KVCTX_MEM_MAX + 1);
	struct kve_mem **mems;

	for (id = 1; id < s->nr_mems; id++)
		if (!s->mems[id])
			return id;
	if (nr <= s->nr_mems)
		return 0;
	mems = realloc(s->mems, nr * sizeof(struct kve_mem *));
	if (!mems)
		return 0;
	memset(mems + s->nr_mems, 0, (nr - s->nr_mems) * sizeof(struct kve_mem *));
	s->mems = mems;
	id = max(s->nr_mems, 1U);
	s->nr_mems = nr;
	return id;
}

int kve_mem_register(struct kve_session *s, u64 addr, u64 length)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE), end = addr + length, start = addr & ~(page - 1), pinned;
	struct kve_mem *mem;
	int err;

	if (!length || end < addr || end > ULONG_MAX - page)
		return -EINVAL;
	pinned = ((end + page - 1) & ~(page - 1)) - start;
	err = kvc_tenant_pin(s->pool->core, s->slot, pinned);
	if (err)
		return err;
	/* before it is brought there in small pages, which the ring then pins */
	if (!s->ring->kind->threads)
		kve_huge_collapse((u8 *)addr, length);
	err = mem_probe((u8 *)start, (u8 *)start + pinned);
	mem = err ? NULL : mem_new(s, (void *)addr, length, false);
	if (!mem) {
		kvc_tenant_unpin(s->pool->core, s->slot, pinned);
		return err ? err : -ENOMEM;
	}
	mem->pinned = pinned;
	pthread_mutex_lock(&s->lock);
	mem->id = mem_id(s);
	if (mem->id)
		s->mems[mem->id] = mem;
	err = mem->id ? (int)mem->id : -ENOMEM;
	pthread_mutex_unlock(&s->lock);
	if (err < 0)
		kve_mem_free(s, mem);
	return err;
}

int kve_mem_unregister(struct kve_session *s, u32 id)
{
	struct kve_mem *mem = NULL;
	int err = -EINVAL;

	pthread_mutex_lock(&s->lock);
	if (id && id < s->nr_mems)
		mem = s->mems[id];
	if (mem)
		err = mem->users ? -EBUSY : 0;
	if (!err)
		s->mems[id] = NULL;
	pthread_mutex_unlock(&s->lock);
	if (!err)
		kve_mem_free(s, mem);
	return err;
}

void kve_vec_gather(void *to, const struct iovec *vec, u32 nr)
{
	u8 *at = to;

	for (; nr; nr--, vec++) {
		memcpy(at, vec->iov_base, vec->iov_len);
		at += vec->iov_len;
	}
}

void kve_vec_scatter(const struct iovec *vec, const void *from, u32 nr)
{
	const u8 *at = from;

	for (; nr; nr--, vec++) {
		memcpy(vec->iov_base, at, vec->iov_len);
		at += vec->iov_len;
	}
}

void kve_vec_zero(const struct iovec *vec, u32 nr)
{
	for (; nr; nr--, vec++)
		memset(vec->iov_base, 0, vec->iov_len);
}

/* Up to @max bytes at the cursor, which moves behind them. */
static void *mem_cursor_next(struct kve_cursor *c, u32 max, u32 *n)
{
	void *at = (u8 *)c->vec->iov_base + c->done;

	*n = (u32)min((size_t)max, c->vec->iov_len - c->done);
	c->done += *n;
	if (c->done == c->vec->iov_len) {
		c->vec++;
		c->done = 0;
	}
	return at;
}

u32 kve_cursor_crc(struct kve_cursor *c, u32 n)
{
	u32 crc = KVC_CRC_INIT, step;
	void *at;

	for (; n; n -= step) {
		at = mem_cursor_next(c, n, &step);
		crc = kvc_crc_feed(crc, at, step);
	}
	return kvc_crc_finish(crc);
}

void kve_cursor_write(struct kve_cursor *c, const void *from, u32 n)
{
	const u8 *at = from;
	void *to;
	u32 step;

	for (; n; n -= step, at += step) {
		to = mem_cursor_next(c, n, &step);
		memcpy(to, at, step);
	}
}
