// SPDX-License-Identifier: GPL-2.0
/*
 * fio engine of kvctx: read is LOAD, write is STORE, trim is DELETE, sync is FLUSH.
 *
 * Each job has a session of its own. queue() only prepares operations; commit() hands them over in one call, so
 * iodepth_batch is the batch of a SUBMIT. getevents() takes completions from the ring in memory and enters the kernel
 * only to wait. Nothing is allocated for an I/O.
 *
 * A write that replaces a page is two operations, DELETE and STORE, in that order in one batch; the completion of the
 * first is dropped. Hence twice iodepth places in the completion queue.
 */
#include <stdarg.h>

#include "engine.h"

#define NOBODY	0	/* user_data of operations that no io_u waits for */

int fail(struct thread_data *td, int err, const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	log_err("kvctx: %s: %s: %s\n", td->o.name, text, strerror(err));
	td_verror(td, err, "kvctx");
	return 1;
}

/* One file per name, as large as size= says: pages have no size before they are written */
static int engine_setup(struct thread_data *td)
{
	struct fio_file *f;
	unsigned int i;

	if (!td->o.size) {
		log_err("kvctx: %s: needs size=: bytes of pages a job works on\n", td->o.name);
		return 1;
	}
	if (!td->files_index) {
		add_file(td, td->o.filename ? td->o.filename : "pages", 0, 0);
		td->o.nr_files = td->o.nr_files ? td->o.nr_files : 1;
		td->o.open_files++;
	}
	for_each_file(td, f, i) {
		f->filetype = FIO_TYPE_BLOCK;
		f->real_file_size = td->o.size / td->o.nr_files;
		fio_file_set_size_known(f);
	}
	return 0;
}

/* As many as iodepth needs; too many are refused by check_limits(), which knows the limit */
static unsigned int cq_entries(const struct thread_data *td)
{
	return min(2 * td->o.iodepth + 2, 65536U);
}

static int open_session(struct thread_data *td, struct job *j, const char *path, size_t arena)
{
	struct kvctx_params params = { .size = sizeof(params), .cq_entries = cq_entries(td) };
	int err;

	if (strlen(j->o->keyspace) > sizeof(params.keyspace))
		return fail(td, EINVAL, "keyspace=%s: longer than %zu", j->o->keyspace, sizeof(params.keyspace));
	memcpy(params.keyspace, j->o->keyspace, strlen(j->o->keyspace));
	params.arena_bytes = arena;
	/* also to read: a read-only session pays a system call for what it reaps, and cannot write to its arena */
	err = kvctx_open(path, O_RDWR, &params, &j->ctx);
	if (err == -EACCES && !arena && !td_write(td) && !td_trim(td))
		err = kvctx_open(path, O_RDONLY, &params, &j->ctx);
	switch (err) {
	case 0:
		return 0;
	case -ENOENT:
		return fail(td, -err, "no such pool or tenant: %s", path);
	case -ENOMEM:
		return fail(td, -err, "memory=arena: %zu bytes (see ulimit -l)", arena);
	default:
		return fail(td, -err, "%s", path);
	}
}

static int check_limits(struct thread_data *td, struct job *j)
{
	const struct kvctx_info *info = kvctx_get_info(j->ctx);

	if (2 * td->o.iodepth + 2 > info->cq_max)
		return fail(td, E2BIG, "iodepth=%u: at most %u", td->o.iodepth, (info->cq_max - 2) / 2);
	j->page = j->o->page ? j->o->page : td_max_bs(td);
	if (j->page > info->page_len_max)
		return fail(td, E2BIG, "page=%llu or bs: pages of this pool have at most %llu bytes",
			    (unsigned long long)j->page, (unsigned long long)info->page_len_max);
	if (td_write(td) && (td->o.min_bs[DDIR_WRITE] != j->page || td->o.max_bs[DDIR_WRITE] != j->page))
		return fail(td, EINVAL, "bs=%llu: writes have the size of a page, %llu bytes",
			    td->o.min_bs[DDIR_WRITE], (unsigned long long)j->page);
	if (j->o->segments > info->segs_max)
		return fail(td, E2BIG, "segments=%u: at most %u", j->o->segments, info->segs_max);
	/* an io_uring takes all that iodepth allows, a SUBMIT has a limit of its own */
	j->places = j->o->entry == ENTRY_URING ? 2 * td->o.iodepth : min(2 * td->o.iodepth, info->batch_max);
	j->room = j->places;
	return 0;
}

static int alloc_tables(struct job *j, unsigned int depth)
{
	j->queued = calloc(depth, sizeof(*j->queued));
	j->done = calloc(depth, sizeof(*j->done));
	j->cqes = calloc(2 * depth, sizeof(*j->cqes));
	return j->queued && j->done && j->cqes ? 0 : ENOMEM;
}

static void job_free(struct job *j)
{
	uring_close(j);
	kvctx_close(j->ctx);
	free(j->queued);
	free(j->done);
	free(j->cqes);
	free(j);
}

/* The path that the options tell */
static int session_path(struct thread_data *td, const struct options *o, char *path, size_t room)
{
	int len;

	if (!o->path == !o->pool)
		return fail(td, EINVAL, "needs path= or pool=, one of them");
	if (o->path)
		len = snprintf(path, room, "%s", o->path);
	else
		len = snprintf(path, room, "/dev/kvctx/%s/%s", o->pool, o->tenant);
	return len < (int)room ? 0 : fail(td, ENAMETOOLONG, "%s", o->path ? "path=" : "pool=");
}

static int engine_init(struct thread_data *td)
{
	const struct options *o = td->eo;
	size_t arena = o->memory == MEMORY_ARENA ? whole_huge((td->o.iodepth * td_max_bs(td)) + 4 * page_size) : 0;
	char path[PATH_MAX];
	struct job *j;

	if (session_path(td, o, path, sizeof(path)))
		return 1;
	j = calloc(1, sizeof(*j));
	if (!j || alloc_tables(j, td->o.iodepth))
		goto no_memory;
	j->o = o;
	/* no two jobs, nor two runs of one, use the same */
	j->generation = ((uint64_t)time(NULL) << 32) ^ ((uint64_t)td->thread_number << 48) ^ (uint64_t)getpid() << 20;
	j->flags = o->verify_load ? 0 : KVCTX_OP_NO_VERIFY;
	if (open_session(td, j, path, arena) || check_limits(td, j) ||
	    (o->entry == ENTRY_URING && uring_open(td, j, td->o.iodepth)))
		goto err_job;
	td->io_ops_data = j;
	return 0;

no_memory:
	fail(td, ENOMEM, "iodepth=%u", td->o.iodepth);
err_job:
	if (j)
		job_free(j);
	return 1;
}

static void engine_cleanup(struct thread_data *td)
{
	struct job *j = td->io_ops_data;

	td->io_ops_data = NULL;
	if (j)
		job_free(j);
}

static int engine_io_u_init(struct thread_data *td, struct io_u *io_u)
{
	const struct options *o = td->eo;
	struct unit *u = calloc(1, sizeof(*u) + o->segments * sizeof(u->segs[0]));

	if (!u)
		return 1;
	u->io_u = io_u;
	io_u->engine_data = u;
	return 0;
}

static void engine_io_u_free(struct thread_data *td, struct io_u *io_u)
{
	free(io_u->engine_data);
	io_u->engine_data = NULL;
}

/* A cleared operation in the entry point's queue; there is room. queue_end() follows. */
static struct kvctx_sqe *queue_next(struct job *j)
{
	if (!j->ring)
		return kvctx_get_sqe(j->ctx);
	memset(&j->op, 0, sizeof(j->op));
	return &j->op;
}

static void queue_end(struct job *j, struct kvctx_sqe *op, uint64_t user_data)
{
	op->user_data = user_data;
	if (j->ring)
		uring_queue(j, op, user_data);
}

static enum fio_q_status engine_queue(struct thread_data *td, struct io_u *io_u)
{
	struct job *j = td->io_ops_data;
	bool replaces = io_u->ddir == DDIR_WRITE && j->o->overwrite == OVERWRITE_REPLACE;
	unsigned int places = replaces ? 2 : 1;
	struct kvctx_sqe *op, *del;
	struct kvctx_key key;

	fio_ro_check(td, io_u);
	if (j->nr_queued == td->o.iodepth || j->room < places)
		return FIO_Q_BUSY;
	if (!op_fits(j, io_u)) {
		io_u->error = EINVAL;
		td_verror(td, EINVAL, "kvctx: an I/O has to stay inside a page");
		return FIO_Q_COMPLETED;
	}
	if (replaces) {
		key = page_key(j, io_u);
		del = queue_next(j);
		kvctx_prep_delete(del, &key);
		queue_end(j, del, NOBODY);
	}
	op = queue_next(j);
	op_make(j, io_u, op);
	queue_end(j, op, (uintptr_t)io_u);
	j->queued[j->nr_queued++] = io_u;
	j->room -= places;
	return FIO_Q_QUEUED;
}

/* fio wants to know when an I/O was really issued. */
static void note_issue(struct thread_data *td, struct job *j)
{
	struct timespec now;
	unsigned int i;

	if (fio_fill_issue_time(td)) {
		fio_gettime(&now, NULL);
		for (i = 0; i < j->nr_queued; i++) {
			j->queued[i]->issue_time = now;
			io_u_queued(td, j->queued[i]);
		}
	}
	j->nr_queued = 0;
	j->room = j->places;
}

static int engine_commit(struct thread_data *td)
{
	struct job *j = td->io_ops_data;
	int ret;

	if (!j->nr_queued)
		return 0;
	note_issue(td, j);
	if (j->ring)
		return uring_submit(j);
	/* the completion queue has room for all that iodepth allows, so all of them are taken */
	ret = kvctx_submit(j->ctx);
	return ret < 0 ? ret : 0;
}

void finish(struct job *j, struct io_u *io_u, int res)
{
	io_u->error = 0;
	io_u->resid = 0;
	if (res == -ENOENT && io_u->ddir == DDIR_TRIM)
		return;
	if (!res && io_u->ddir == DDIR_WRITE)	/* not admitted */
		res = -EDQUOT;
	if (res == -ENOENT && j->o->miss == MISS_IGNORE) {
		io_u->resid = io_u->xfer_buflen;
	} else if (res < 0) {
		io_u->error = -res;
		if (res == -ENOENT && io_u->ddir == DDIR_READ)
			log_err("kvctx: %s: the page at offset %llu is absent: run a write job first\n",
				io_u->file->file_name, io_u->offset);
	}
}

/* Completions of the ring that are io_us', to j->done from number @nr on. Returns the new number. */
static unsigned int take(struct job *j, unsigned int nr, unsigned int max)
{
	unsigned int got, i;

	got = kvctx_take(j->ctx, j->cqes, max - nr);
	for (i = 0; i < got; i++) {
		struct io_u *io_u = (struct io_u *)(uintptr_t)j->cqes[i].user_data;

		if (!io_u)
			continue;
		finish(j, io_u, j->cqes[i].res);
		j->done[nr++] = io_u;
	}
	/* a ring full of completions that nobody waits for must not look empty */
	return got && !nr ? take(j, nr, max) : nr;
}

/* Are there completions that belong to no io_u? */
static bool drops(struct thread_data *td, struct job *j)
{
	return j->o->overwrite == OVERWRITE_REPLACE && td_write(td);
}

static int engine_getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *t)
{
	struct job *j = td->io_ops_data;
	uint64_t limit = t ? t->tv_sec * 1000000000ULL + t->tv_nsec : KVCTX_TIMEOUT_NONE;
	unsigned int nr = 0;
	int ret;

	if (j->ring)
		return uring_take(j, min, max, t);
	for (;;) {
		nr = take(j, nr, max);
		if (nr >= min)
			return nr;
		/* completions of DELETEs count too, so one at a time where there are some */
		ret = kvctx_wait(j->ctx, drops(td, j) ? 1 : min - nr, limit);
		if (ret == -ETIME)
			return nr;
		if (ret < 0 && ret != -EINTR)
			return ret;
	}
}

static struct io_u *engine_event(struct thread_data *td, int event)
{
	struct job *j = td->io_ops_data;

	return j->done[event];
}

static char *engine_errdetails(struct io_u *io_u)
{
	if (io_u->error == EDQUOT)	/* see finish() */
		return strdup("not written: the pool's write budget is spent");
	return strdup(kvctx_strerror(-(int)io_u->error));
}

static int nothing(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

struct ioengine_ops ioengine = {
	.name			= "kvctx",
	.version		= FIO_IOOPS_VERSION,
	.flags			= FIO_DISKLESSIO | FIO_NOEXTEND | FIO_RAWIO | FIO_NODISKUTIL |
				  FIO_ASYNCIO_SETS_ISSUE_TIME,
	.setup			= engine_setup,
	.init			= engine_init,
	.cleanup		= engine_cleanup,
	.queue			= engine_queue,
	.commit			= engine_commit,
	.getevents		= engine_getevents,
	.event			= engine_event,
	.errdetails		= engine_errdetails,
	.open_file		= nothing,
	.close_file		= nothing,
	.invalidate		= nothing,
	.iomem_alloc		= memory_alloc,
	.iomem_free		= memory_free,
	.io_u_init		= engine_io_u_init,
	.io_u_free		= engine_io_u_free,
	.options		= kvctx_fio_options,
	.option_struct_size	= sizeof(struct options),
};
