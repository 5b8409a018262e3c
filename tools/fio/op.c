// SPDX-License-Identifier: GPL-2.0
/*
 * From an io_u to an operation.
 *
 * A fio file is a row of pages: the page that holds offset o has number o / page, and its key is made of the file's
 * name and that number. So jobs with the same file name and keyspace see the same pages, as with files.
 */
#include "engine.h"

/* FNV-1a, 64 bit (draft-eastlake-fnv); it only has to tell names apart, and the module hashes keys itself */
static uint64_t name_hash(const char *name, uint64_t h)
{
	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 0x100000001b3ULL;
	return h;
}

static struct kvctx_key page_key(struct job *j, const struct io_u *io_u)
{
	struct kvctx_key key = { .qualifier = 0 };
	const uint64_t words[4] = {
		name_hash(io_u->file->file_name, 0xcbf29ce484222325ULL),
		name_hash(io_u->file->file_name, 0x84222325cbf29ce4ULL), io_u->offset / j->page, j->page,
	};

	memcpy(key.digest, words, sizeof(words));
	if (io_u->ddir == DDIR_WRITE && j->o->overwrite == OVERWRITE_NEW)
		key.qualifier = ++j->generation;
	return key;
}

/* Cut the buffer in segments and name them backwards, so that no two of them are one piece of memory. */
static unsigned int scatter(struct job *j, struct io_u *io_u)
{
	struct unit *u = io_u->engine_data;
	uint64_t len = io_u->xfer_buflen, at = (uint8_t *)io_u->xfer_buf - j->base;
	unsigned int nr = j->o->segments, i;
	uint32_t part;

	if (nr > len)
		nr = len;
	part = len / nr;
	for (i = 0; i < nr; i++) {
		unsigned int from = nr - 1 - i;

		u->segs[i].mem = j->mem;
		u->segs[i].offset = at + (uint64_t)from * part;
		u->segs[i].length = from == nr - 1 ? len - (uint64_t)from * part : part;
	}
	return nr;
}

int op_make(struct job *j, struct io_u *io_u, struct kvctx_sqe *sqe)
{
	const struct unit *u = io_u->engine_data;
	struct kvctx_key key;
	unsigned int nr;

	if (ddir_sync(io_u->ddir)) {
		kvctx_prep_flush(sqe);
		return 0;
	}
	key = page_key(j, io_u);
	switch (io_u->ddir) {
	case DDIR_READ:
		if (io_u->offset % j->page + io_u->xfer_buflen > j->page)
			return EINVAL;
		nr = scatter(j, io_u);
		kvctx_prep_load(sqe, &key, u->segs, nr, io_u->offset % j->page, io_u->xfer_buflen);
		break;
	case DDIR_WRITE:
		if (io_u->offset % j->page || io_u->xfer_buflen != j->page)
			return EINVAL;
		nr = scatter(j, io_u);
		kvctx_prep_store(sqe, &key, u->segs, nr, io_u->xfer_buflen, 0);
		break;
	case DDIR_TRIM:
		if (io_u->offset % j->page || io_u->xfer_buflen != j->page)
			return EINVAL;
		kvctx_prep_delete(sqe, &key);
		return 0;
	default:
		return EINVAL;
	}
	sqe->flags = j->flags;
	sqe->prio = j->o->prio;
	sqe->timeout_ns = j->o->timeout_ms * 1000000ULL;
	return 0;
}
