// SPDX-License-Identifier: GPL-2.0
/*
 * The buffers of a job: in the session's arena, in memory of fio that is registered, or in peer memory.
 */
#include <sys/mman.h>

#include "engine.h"

static int arena(struct thread_data *td, struct job *j, size_t bytes)
{
	size_t len;

	j->base = kvctx_arena(j->ctx, &len);
	if (!j->base || len < bytes)
		return fail(td, ENOMEM, "memory=arena: the arena has %zu bytes, fio wants %zu", len, bytes);
	j->mem = KVCTX_MEM_ARENA;
	return 0;
}

static int registered(struct thread_data *td, struct job *j, size_t bytes)
{
	int err;

	j->bytes = whole_huge(bytes);
	j->base = mmap(NULL, j->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (j->base == MAP_FAILED) {
		j->base = NULL;
		return fail(td, errno, "memory=registered: %zu bytes", j->bytes);
	}
	madvise(j->base, j->bytes, MADV_HUGEPAGE);
	err = kvctx_mem_register(j->ctx, j->base, j->bytes, &j->mem);
	if (err)
		return fail(td, -err, "memory=registered: %zu bytes cannot be registered%s", j->bytes,
			    err == -ENOMEM ? " (see ulimit -l)" : "");
	return 0;
}

static int peer(struct thread_data *td, struct job *j, size_t bytes)
{
	int fd, err;

	if (!j->o->peer_file)
		return fail(td, EINVAL, "memory=peer: needs peer_file=");
	fd = open(j->o->peer_file, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return fail(td, errno, "peer_file=%s", j->o->peer_file);
	j->bytes = (bytes + page_mask) & ~page_mask;
	j->base = mmap(NULL, j->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	err = errno;
	close(fd);
	if (j->base == MAP_FAILED) {
		j->base = NULL;
		return fail(td, err, "peer_file=%s: cannot map %zu bytes", j->o->peer_file, j->bytes);
	}
	err = kvctx_mem_register(j->ctx, j->base, j->bytes, &j->mem);
	if (err)
		return fail(td, -err, "peer_file=%s: cannot be registered", j->o->peer_file);
	return 0;
}

int memory_alloc(struct thread_data *td, size_t bytes)
{
	struct job *j = td->io_ops_data;
	int ret;

	switch (j->o->memory) {
	case MEMORY_REGISTERED:
		ret = registered(td, j, bytes);
		break;
	case MEMORY_PEER:
		ret = peer(td, j, bytes);
		break;
	default:
		ret = arena(td, j, bytes);
	}
	td->orig_buffer = ret ? NULL : (char *)j->base;
	return ret;
}

/* Registrations end with the session; the arena's mapping too. */
void memory_free(struct thread_data *td)
{
	struct job *j = td->io_ops_data;

	if (j && j->bytes && j->base) {
		if (j->mem != KVCTX_MEM_ARENA)
			kvctx_mem_unregister(j->ctx, j->mem);
		munmap(j->base, j->bytes);
		j->base = NULL;
	}
	td->orig_buffer = NULL;
}
