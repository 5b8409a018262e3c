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

struct kvctx_key page_key(struct job *j, const struct io_u *io_u)
{
	struct kvctx_key key = { .qualifier = 0 };
	uint64_t words[4];

	if (j->named != io_u->file) {
		j->named = io_u->file;
		j->name[0] = name_hash(io_u->file->file_name, 0xcbf29ce484222325ULL);
		j->name[1] = name_hash(io_u->file->file_name, 0x84222325cbf29ce4ULL);
	}
	words[0] = j->name[0];
	words[1] = j->name[1];
	words[2] = io_u->offset / j->page;
	words[3] = j->page;
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

bool op_fits(const struct job *j, const struct io_u *io_u)
{
	uint64_t at;

	if (ddir_sync(io_u->ddir))
		return true;
	at = io_u->offset % j->page;
	if (io_u->ddir == DDIR_READ)
		return at + io_u->xfer_buflen <= j->page;
	return !at && io_u->xfer_buflen == j->page;
}

void op_make(struct job *j, struct io_u *io_u, struct kvctx_sqe *sqe)
{
	uint64_t len = io_u->xfer_buflen, at = (uint8_t *)io_u->xfer_buf - j->base, in_page = io_u->offset % j->page;
	const struct unit *u = io_u->engine_data;
	bool one = j->o->segments == 1;
	struct kvctx_key key;

	if (ddir_sync(io_u->ddir)) {
		kvctx_prep_flush(sqe);
		return;
	}
	key = page_key(j, io_u);
	if (io_u->ddir == DDIR_TRIM) {
		kvctx_prep_delete(sqe, &key);
		return;
	}
	if (io_u->ddir == DDIR_READ && one)
		kvctx_prep_load_at(sqe, &key, j->mem, at, in_page, len);
	else if (io_u->ddir == DDIR_READ)
		kvctx_prep_load(sqe, &key, u->segs, scatter(j, io_u), in_page, len);
	else if (one)
		kvctx_prep_store_at(sqe, &key, j->mem, at, len, 0);
	else
		kvctx_prep_store(sqe, &key, u->segs, scatter(j, io_u), len, 0);
	sqe->flags = j->flags;
	sqe->prio = j->o->prio;
	sqe->timeout_ns = j->o->timeout_ms * 1000000ULL;
}
