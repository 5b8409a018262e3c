// SPDX-License-Identifier: GPL-2.0
/*
 * Requests: the ioctls of the contract, whose pointers are found in the message.
 *
 * A structure is taken out of the message with the length that its caller gives it; the engine judges it as it would
 * judge one in its caller's memory. What its pointers name has to be behind it, all of it, and no pointer of the
 * caller's reaches the engine: they lead into the message, or nowhere.
 *
 * No request sleeps: those that would wait are made such that look. Waiting is the caller's business.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/share.h"
#include "kvctxd.h"
#include "session/session.h"

#define PATHS_MAX	256U

/* What an engine would take for a pointer that it may not follow */
#define NOWHERE		8U

struct request {
	struct kvd_session *s;
	struct kvd_message *m;
	struct kvd_reply *r;
	uint8_t *at;			/* what is left of the body */
	uint64_t left;
	union kvctx_arg *arg;
};

/* The next piece of the body; NULL: it ends before */
static void *request_take(struct request *rq, uint64_t bytes)
{
	uint8_t *p = rq->at;

	if (bytes > rq->left || wire_pad(bytes) > rq->left)
		return NULL;
	rq->at += wire_pad(bytes);
	rq->left -= wire_pad(bytes);
	return p;
}

static int request_ioctl(struct request *rq)
{
	return kvctx_sys_ioctl(rq->s->file, rq->m->head.nr, rq->arg);
}

/* As it is */
static int request_plain(struct request *rq)
{
	rq->r->ret = request_ioctl(rq);
	return 0;
}

/* Bytes of arena and slots; 0 where the engine is to refuse it */
static uint64_t setup_bytes(const struct kvd_session *s, const struct kvctx_setup *arg)
{
	uint64_t bytes = arg->arena_bytes > s->arena_max ? 0 : kve_share_setup_bytes(arg);

	return bytes > 2 * s->arena_max ? 0 : bytes;
}

static int request_setup(struct request *rq)
{
	struct kvctx_setup *arg = &rq->arg->setup;
	bool signals = arg->flags & KVCTX_SETUP_EVENTFD;
	uint64_t bytes = setup_bytes(rq->s, arg);
	int32_t number = arg->eventfd;
	int ret;

	if (signals) {
		if (!rq->m->nr_fds)
			return -EPROTO;
		arg->flags &= ~KVCTX_SETUP_EVENTFD;
		arg->eventfd = 0;
	}
	ret = rq->s->ring ? -EEXIST : kvd_session_signal(rq->s, signals ? rq->m->fds[0] : -1);
	if (!ret)
		ret = kvd_session_take(rq->s, bytes, 0);
	if (!ret) {
		ret = request_ioctl(rq);
		if (ret)
			kvd_session_give(rq->s, bytes, 0);
	}
	if (!ret)
		ret = kvd_session_share(rq->s, arg, rq->r->fds);
	if (signals) {
		arg->flags |= KVCTX_SETUP_EVENTFD;
		arg->eventfd = number;
	}
	rq->r->nr_fds = ret > 0 ? (uint32_t)ret : 0;
	rq->r->ret = ret > 0 ? 0 : ret;
	return 0;
}

static int request_register(struct request *rq)
{
	struct kvctx_mem_register *arg = &rq->arg->reg;
	uint64_t offset = arg->addr;
	struct kvd_memory *m;
	void *addr;
	int ret;

	if (!rq->m->nr_fds)
		return -EPROTO;
	ret = arg->length > kvd_registered_max - rq->s->registered ? -ENOMEM : kvd_session_take(rq->s, 0, 1);
	if (!ret) {
		ret = kvd_memory_map(rq->m->fds[0], offset, arg->length, &m, &addr);
		if (ret)
			kvd_session_give(rq->s, 0, 1);
	}
	if (!ret) {
		arg->addr = (uintptr_t)addr;
		ret = request_ioctl(rq);
		arg->addr = offset;
		if (ret) {
			kvd_memory_unmap(m);
			kvd_session_give(rq->s, 0, 1);
		} else {
			m->id = arg->id;
			m->length = arg->length;
			m->next = rq->s->memories;
			rq->s->memories = m;
			rq->s->registered += m->length;
		}
	}
	rq->r->ret = ret;
	return 0;
}

static int request_unregister(struct request *rq)
{
	struct kvd_memory **link, *m;

	rq->r->ret = request_ioctl(rq);
	if (rq->r->ret)
		return 0;
	for (link = &rq->s->memories; (m = *link); link = &m->next) {
		if (m->id != rq->arg->unreg.id)
			continue;
		*link = m->next;
		rq->s->registered -= m->length;
		kvd_memory_unmap(m);
		kvd_session_give(rq->s, 0, 1);
		break;
	}
	return 0;
}

/* What the operations' pointers name; and how much memory their LOADs' CRCs take */
static int request_operands(struct request *rq, struct kvctx_sqe *sqes, uint32_t nr, uint64_t *out)
{
	const struct wire_limits *l = &rq->s->limits;

	*out = 0;
	for (uint32_t i = 0; i < nr; i++) {
		struct kvctx_sqe *sqe = &sqes[i];
		uint64_t segs = wire_segs(sqe, l), crcs = wire_crcs_in(sqe, l), keys = wire_keys(sqe, l);

		if (sqe->nr_segs)
			sqe->segs = segs ? (uintptr_t)request_take(rq, segs) : NOWHERE;
		if (sqe->crcs)
			sqe->crcs = crcs ? (uintptr_t)request_take(rq, crcs) : NOWHERE;
		if (sqe->keys)
			sqe->keys = keys ? (uintptr_t)request_take(rq, keys) : NOWHERE;
		if ((sqe->nr_segs && !sqe->segs) || (crcs && !sqe->crcs) || (keys && !sqe->keys))
			return -EPROTO;
		*out += wire_pad(wire_crcs_out(sqe, l));
		if (*out > WIRE_BODY_MAX)
			return -EPROTO;
	}
	return 0;
}

static int request_submit(struct request *rq)
{
	struct kvctx_submit *arg = &rq->arg->submit;
	const struct wire_limits *l = &rq->s->limits;
	struct kvctx_sqe *sqes;
	uint8_t *crcs = NULL;
	uint64_t out;

	/* an empty batch, or too large a one, is for the engine to refuse */
	if (!arg->nr || arg->nr > l->batch_max)
		return request_plain(rq);
	sqes = request_take(rq, arg->nr * sizeof(*sqes));
	if (!sqes || request_operands(rq, sqes, arg->nr, &out))
		return -EPROTO;
	if (out) {
		crcs = calloc(1, out);
		if (!crcs)
			return -ENOMEM;
		rq->r->rest = crcs;
		rq->r->rest_bytes = out;
	}
	for (uint32_t i = 0; out && i < arg->nr; i++) {
		uint64_t bytes = wire_crcs_out(&sqes[i], l);

		if (bytes)
			sqes[i].crcs = (uintptr_t)crcs;
		crcs += wire_pad(bytes);
	}
	arg->sqes = (uintptr_t)sqes;
	arg->wait_nr = 0;
	arg->timeout_ns = 0;
	rq->r->ret = request_ioctl(rq);
	return rq->m->head.flags & WIRE_QUIET && rq->r->ret != (int)arg->nr ? -EPROTO : 0;
}

static int by_name(const void *a, const void *b)
{
	const __u64 x = *(const __u64 *)a, y = *(const __u64 *)b;

	return (x > y) - (x < y);
}

/* In a batch it would name operations by what they are called on the wire: it comes by itself */
static int request_cancel(struct request *rq)
{
	const struct kvctx_rights rights = { .rdonly = rq->s->rdonly, .page_max = (uint32_t)rq->s->limits.page_max };
	const struct kvctx_sqe *sqe = request_take(rq, sizeof(*sqe));
	__u64 *names = (void *)rq->at;
	uint64_t nr = rq->left / sizeof(*names);

	if (!sqe || sqe->opcode != KVCTX_OP_CANCEL || !rq->s->ring || rq->left % sizeof(*names) || nr > WIRE_CANCEL_MAX)
		return -EPROTO;
	rq->r->ret = kvctx_sqe_check(sqe, &kvctx_rules[KVCTX_OP_CANCEL], &rights);
	if (rq->r->ret)
		return 0;
	qsort(names, nr, sizeof(*names), by_name);
	rq->r->ret = (int)kve_share_cancel(rq->s->file, names, (uint32_t)nr);
	return 0;
}

static int request_wait(struct request *rq)
{
	rq->arg->wait.min = 0;
	rq->arg->wait.timeout_ns = 0;
	return request_plain(rq);
}

/* Lengths and bitmap of the answer, whether asked for or not: a caller who says no may mean yes in another field */
static int request_match_room(struct request *rq, struct kvctx_match *arg)
{
	uint64_t lens = arg->lens ? wire_pad(arg->nr_keys * sizeof(uint32_t)) : 0;
	uint64_t bitmap = arg->flags & KVCTX_MATCH_ALL ? wire_bitmap(arg->nr_keys) : 0;
	uint8_t *rest = calloc(1, lens + bitmap + 1);

	if (!rest)
		return -ENOMEM;
	rq->r->rest = rest;
	rq->r->rest_bytes = lens + bitmap;
	if (lens)
		arg->lens = (uintptr_t)rest;
	if (bitmap)
		arg->present = (uintptr_t)(rest + lens);
	else if (arg->present)
		arg->present = NOWHERE;
	return 0;
}

static int request_match(struct request *rq)
{
	struct kvctx_match *arg = &rq->arg->match;
	const uint64_t keys = arg->keys, lens = arg->lens, present = arg->present;

	/* where an engine does not see the place for the bitmap, it would have none */
	if (arg->flags & KVCTX_MATCH_ALL && arg->size < sizeof(*arg)) {
		rq->r->ret = -EINVAL;
		return 0;
	}
	/* otherwise for the engine to refuse */
	if (arg->nr_keys && arg->nr_keys <= rq->s->limits.match_max) {
		arg->keys = (uintptr_t)request_take(rq, arg->nr_keys * sizeof(struct kvctx_key));
		if (!arg->keys)
			return -EPROTO;
		if (request_match_room(rq, arg))
			return -ENOMEM;
	} else {
		arg->keys = NOWHERE;
	}
	rq->r->ret = request_ioctl(rq);
	/* ours are nobody's business */
	arg->keys = keys;
	arg->lens = lens;
	arg->present = present;
	return 0;
}

static int request_paths(struct request *rq)
{
	struct kvctx_paths *arg = &rq->arg->paths;
	uint32_t room = arg->nr < PATHS_MAX ? arg->nr : PATHS_MAX;
	const uint64_t paths = arg->paths;

	rq->r->rest = calloc(room + 1, sizeof(struct kvctx_path));
	if (!rq->r->rest)
		return -ENOMEM;
	arg->paths = (uintptr_t)rq->r->rest;
	arg->nr = room;
	rq->r->ret = request_ioctl(rq);
	arg->paths = paths;
	if (!rq->r->ret)
		rq->r->rest_bytes = (arg->nr < room ? arg->nr : room) * sizeof(struct kvctx_path);
	return 0;
}

/* The first call of a session makes the engine keep events, if no other did. */
static int events_ioctl(struct request *rq)
{
	const uint64_t bytes = rq->s->listens ? 0 : rq->s->limits.events_max * sizeof(struct kvctx_event);
	int ret = kvd_session_take(rq->s, bytes, 0);

	if (ret)
		return ret;
	ret = request_ioctl(rq);
	if (ret)
		kvd_session_give(rq->s, bytes, 0);
	else
		rq->s->listens = true;
	return ret;
}

static int request_events(struct request *rq)
{
	struct kvctx_events *arg = &rq->arg->events;
	const uint64_t events = arg->events;

	arg->events = NOWHERE;
	/* more are for the engine to refuse */
	if (arg->nr && arg->nr <= rq->s->limits.events_max) {
		rq->r->rest = malloc(arg->nr * sizeof(struct kvctx_event));
		if (!rq->r->rest)
			return -ENOMEM;
		arg->events = (uintptr_t)rq->r->rest;
	}
	rq->r->ret = events_ioctl(rq);
	arg->events = events;
	if (!rq->r->ret)
		rq->r->rest_bytes = arg->nr * sizeof(struct kvctx_event);
	return 0;
}

/* By number */
static int (*const requests[KVCTX_CALLS])(struct request *rq) = {
	[_IOC_NR(KVCTX_IOC_INFO)]		= request_plain,
	[_IOC_NR(KVCTX_IOC_SETUP)]		= request_setup,
	[_IOC_NR(KVCTX_IOC_MEM_REGISTER)]	= request_register,
	[_IOC_NR(KVCTX_IOC_MEM_UNREGISTER)]	= request_unregister,
	[_IOC_NR(KVCTX_IOC_SUBMIT)]		= request_submit,
	[_IOC_NR(KVCTX_IOC_WAIT)]		= request_wait,
	[_IOC_NR(KVCTX_IOC_MATCH)]		= request_match,
	[_IOC_NR(KVCTX_IOC_PATHS)]		= request_paths,
	[_IOC_NR(KVCTX_IOC_EVENTS)]		= request_events,
};

/*
 * Copy the structure to @arg, with zeros behind a short one. One that is shorter than any published may lack its
 * pointers, so that the engine would look at others: it is refused here.
 */
static int request_dispatch(struct request *rq, void *arg)
{
	const struct kvctx_call *call = &kvctx_calls[_IOC_NR(rq->m->head.nr)];
	const uint32_t *given = (const void *)rq->at;
	uint32_t size;
	void *p;
	int err;

	if (rq->left < 8)
		return -EPROTO;
	size = *given;
	if (size < call->min) {
		rq->r->ret = -EINVAL;
		return 0;
	}
	p = size > WIRE_ARG_MAX ? NULL : request_take(rq, size);
	if (!p)
		return -EPROTO;
	memset(arg, 0, WIRE_ARG_MAX);
	memcpy(arg, p, size);
	rq->arg = arg;
	err = requests[_IOC_NR(rq->m->head.nr)](rq);
	if (!err && call->out && rq->r->ret >= 0) {
		rq->r->arg = arg;
		rq->r->arg_bytes = wire_pad(size);
	}
	return err;
}

/* @arg: WIRE_ARG_MAX bytes for the structure, which @r may point to */
int kvd_request(struct kvd_session *s, struct kvd_message *m, struct kvd_reply *r, void *arg)
{
	struct request rq = { .s = s, .m = m, .r = r, .at = m->body, .left = m->bytes };
	int err = -EPROTO;

	memset(r, 0, sizeof(*r));
	if (m->head.flags & ~(WIRE_QUIET | WIRE_PARCEL))
		return -EPROTO;
	if (m->head.nr == WIRE_LIGHT) {
		kvd_session_light(s);
		return m->head.flags & WIRE_QUIET ? 0 : -EPROTO;
	}
	if (m->head.nr == WIRE_CANCEL)
		err = request_cancel(&rq);
	else if (_IOC_NR(m->head.nr) < KVCTX_CALLS && m->head.nr == _IO(KVCTX_IOC_TYPE, _IOC_NR(m->head.nr)))
		err = request_dispatch(&rq, arg);
	/* nobody will hear of it but by the end of the connection */
	if (!err && r->ret < 0 && m->head.flags & WIRE_QUIET)
		err = -EPROTO;
	if (err || r->ret < 0 || m->head.flags & WIRE_QUIET) {
		free(r->rest);
		r->rest = NULL;
		r->rest_bytes = 0;
	}
	return err;
}
