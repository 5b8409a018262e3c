// SPDX-License-Identifier: GPL-2.0
/*
 * A tenant's node as the player uses it, see session.h.
 *
 * Operations carry their index in the caller's list as user_data. The list is only left when every operation handed to
 * the library has completed, or when the session is given up: so no completion can ever meet another list.
 */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvctx.h>

#include "content.h"
#include "session.h"
#include "util.h"

#define WAIT_SLICE_NS	(500 * NS_PER_MSEC)	/* how long a stall or a signal can stay unseen */
#define SLOT_ALIGN	4096ULL
#define REAP_MAX	64

/* State of one session_run() */
struct run {
	struct io *ios;
	size_t nr;
	size_t next;		/* first one not given to the library */
	size_t queued;		/* given to the library, not taken by the kernel */
	size_t running;		/* taken by the kernel */
	uint64_t moved;		/* when something completed last */
};

static int refuse(const char *what, const char *why)
{
	warnx("%s: %s", what, why);
	return EXIT_USAGE;
}

static int open_failed(const char *device, int ret)
{
	warnx("%s: %s%s", device, strerror(-ret),
	      ret == -ENOMEM ? " (pinned memory is limited by 'ulimit -l'; see --arena)" : "");
	switch (-ret) {
	case ENOENT:
	case ENXIO:
	case ENODEV:
	case ENOTDIR:
	case EISDIR:
	case ENOTTY:		/* something else than a tenant's node */
	case EACCES:
	case EPERM:
	case EROFS:
		return EXIT_NO_DEVICE;
	}
	return EXIT_FAILURE;
}

/* What the device allows, asked before a session is set up with it */
static int probe(const struct options *o, struct kvctx_info *info)
{
	struct kvctx *ctx;
	int ret = kvctx_open(o->device, O_RDWR, NULL, &ctx);

	if (ret)
		return open_failed(o->device, ret);
	*info = *kvctx_get_info(ctx);
	kvctx_close(ctx);
	return 0;
}

/* Divide the arena: a whole request if --arena allows, else at least what keeps the depth busy */
static int plan(struct session *s, const struct options *o, size_t longest, const struct kvctx_info *info)
{
	uint64_t slots;

	if (o->page_size > info->page_len_max)
		return refuse("--page-size", "more than the device's longest page");
	if (o->depth > info->cq_max)
		return refuse("--depth", "more operations than the device takes");
	s->stride = (o->page_size + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
	slots = o->arena / s->stride;
	if (slots < o->depth)
		slots = o->depth;
	if (slots > longest)
		slots = longest;
	if (slots > info->arena_max / s->stride)
		slots = info->arena_max / s->stride;
	if (!slots)
		return refuse("--page-size", "no such page fits into the device's largest arena");
	s->slots = slots;
	s->page_size = o->page_size;
	s->depth = o->depth;
	s->stall_ns = o->stall_s * NS_PER_SEC;
	s->match_max = info->match_max;
	s->lease_ms = o->lease_ms < info->lease_ms_max ? o->lease_ms : info->lease_ms_max;
	memcpy(s->pool, info->pool, sizeof(s->pool));
	memcpy(s->tenant, info->tenant, sizeof(s->tenant));
	return 0;
}

static int start(struct session *s, const struct options *o, size_t longest)
{
	struct kvctx_params params = {
		.size = sizeof(params),
		.arena_bytes = s->slots * s->stride,
		.cq_entries = s->depth,
	};
	int ret;

	content_keyspace(o->workload.seed, o->page_size, params.keyspace);
	s->leases = calloc(longest / s->match_max + 1, sizeof(*s->leases));
	ret = s->leases ? kvctx_open(o->device, O_RDWR, &params, &s->ctx) : -ENOMEM;
	if (ret)
		return open_failed(o->device, ret);
	s->arena = kvctx_arena(s->ctx, NULL);
	return 0;
}

int session_open(struct session *s, const struct options *o, size_t longest, const volatile sig_atomic_t *stop)
{
	struct kvctx_info info = { 0 };
	int status;

	memset(s, 0, sizeof(*s));
	s->stop = stop;
	status = probe(o, &info);
	if (!status)
		status = plan(s, o, longest, &info);
	if (!status)
		status = start(s, o, longest);
	if (status)
		session_close(s);
	return status;
}

void session_close(struct session *s)
{
	kvctx_close(s->ctx);
	free(s->leases);
	memset(s, 0, sizeof(*s));
}

long session_match(struct session *s, const struct kvctx_key *keys, size_t nr)
{
	size_t first, part;
	int64_t present;
	uint32_t lease;

	for (first = 0; first < nr; first += part) {
		part = nr - first < s->match_max ? nr - first : s->match_max;
		present = kvctx_match(s->ctx, keys + first, part, NULL, s->lease_ms, &lease);
		if (present < 0)
			return present;
		if (lease)
			s->leases[s->nr_leases++] = lease;
		if ((size_t)present < part)
			return first + present;
	}
	return nr;
}

int session_release(struct session *s)
{
	int ret = 0, one;

	while (s->nr_leases) {
		one = kvctx_release(s->ctx, s->leases[--s->nr_leases]);
		/* -EINVAL: it ran out meanwhile */
		if (one && one != -EINVAL)
			ret = one;
	}
	return ret;
}

static void fill(struct session *s, struct kvctx_sqe *sqe, const struct io *io)
{
	uint64_t at = io->slot * s->stride;

	if (io->opcode == KVCTX_OP_STORE)
		kvctx_prep_store_at(sqe, &io->key, KVCTX_MEM_ARENA, at, s->page_size, io->depth);
	else if (io->opcode == KVCTX_OP_LOAD)
		kvctx_prep_load_at(sqe, &io->key, KVCTX_MEM_ARENA, at, 0, s->page_size);
	else
		kvctx_prep_flush(sqe);
}

/* Give the library as many operations as the depth allows */
static void queue(struct session *s, struct run *r)
{
	uint64_t now = clock_ns();
	struct kvctx_sqe *sqe;

	while (r->next < r->nr && r->queued + r->running < s->depth && !*s->stop) {
		sqe = kvctx_get_sqe(s->ctx);
		if (!sqe)
			return;
		fill(s, sqe, &r->ios[r->next]);
		kvctx_sqe_set_data(sqe, r->next);
		r->ios[r->next].ns = now;
		r->next++;
		r->queued++;
	}
}

static int wait_slice(struct session *s)
{
	int ret = kvctx_wait(s->ctx, 1, WAIT_SLICE_NS);

	return ret == -ETIME || ret == -EINTR || ret >= 0 ? 0 : ret;
}

/* Hand over what is queued, and wait until something has completed or the slice is over */
static int submit_and_wait(struct session *s, struct run *r)
{
	int ret;

	if (!r->queued)
		return wait_slice(s);
	ret = kvctx_submit_and_wait(s->ctx, 1, WAIT_SLICE_NS);
	if (ret == -EAGAIN && r->running)	/* the kernel takes no more before something has completed */
		return wait_slice(s);
	if (ret < 0)
		return ret;
	r->queued -= ret;
	r->running += ret;
	return 0;
}

static int complete(struct run *r, const struct kvctx_cqe *cqe, uint64_t now)
{
	struct io *io;

	if (cqe->user_data >= r->next || !r->running)
		return -EPROTO;
	io = &r->ios[cqe->user_data];
	if (io->res != -ECANCELED)
		return -EPROTO;
	io->res = cqe->res;
	io->flags = cqe->flags;
	io->ns = now - io->ns;
	r->running--;
	r->moved = now;
	return 0;
}

static int reap(struct session *s, struct run *r)
{
	struct kvctx_cqe cqes[REAP_MAX];
	unsigned int i, nr;
	uint64_t now;
	int ret = 0;

	do {
		nr = kvctx_take(s->ctx, cqes, REAP_MAX);
		now = clock_ns();
		for (i = 0; i < nr && !ret; i++)
			ret = complete(r, &cqes[i], now);
	} while (nr == REAP_MAX && !ret);
	return ret;
}

int session_run(struct session *s, struct io *ios, size_t nr)
{
	struct run r = { .ios = ios, .nr = nr, .moved = clock_ns() };
	size_t i;
	int ret;

	for (i = 0; i < nr; i++)
		ios[i].res = -ECANCELED;
	for (;;) {
		queue(s, &r);
		if (!r.queued && !r.running)
			return 0;
		ret = submit_and_wait(s, &r);
		if (!ret)
			ret = reap(s, &r);
		if (ret)
			return ret;
		if (clock_ns() - r.moved > s->stall_ns)
			return -ETIMEDOUT;
	}
}

/* An operation like others, so that a device that hangs is noticed here, too; not to be left out on a signal */
int session_flush(struct session *s)
{
	static const volatile sig_atomic_t go_on;
	const volatile sig_atomic_t *stop = s->stop;
	struct io io = { .opcode = KVCTX_OP_FLUSH };
	int ret;

	s->stop = &go_on;
	ret = session_run(s, &io, 1);
	s->stop = stop;
	return ret ? ret : io.res;
}
