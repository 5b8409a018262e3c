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

#include "kvctxd.h"

#define PATHS_MAX	256U

/* What an engine would take for a pointer that it may not follow */
#define NOWHERE		8U

/* Bytes of a structure up to a field. As first published: what is shorter no engine looks into */
#define FIRST(type, last)	(offsetof(struct type, last) + sizeof(((struct type *)0)->last))

struct request {
	struct kvd_session *s;
	struct kvd_message *m;
	struct kvd_reply *r;
	uint8_t *at;			/* what is left of the body */
	uint64_t left;
	union {
		struct {
			uint32_t size, flags;
		};
		struct kvctx_setup setup;
		struct kvctx_mem_register reg;
		struct kvctx_mem_unregister unreg;
		struct kvctx_submit submit;
		struct kvctx_wait wait;
		struct kvctx_match match;
		struct kvctx_paths paths;
	} *arg;
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

static int request_setup(struct request *rq)
{
	struct kvctx_setup *arg = &rq->arg->setup;
	bool signals = arg->flags & KVCTX_SETUP_EVENTFD;
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
		ret = request_ioctl(rq);
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
	ret = kvd_memory_map(rq->m->fds[0], offset, arg->length, &m, &addr);
	if (!ret) {
		arg->addr = (uintptr_t)addr;
		ret = request_ioctl(rq);
		arg->addr = offset;
		if (ret) {
			kvd_memory_unmap(m);
		} else {
			m->id = arg->id;
			m->next = rq->s->memories;
			rq->s->memories = m;
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
		kvd_memory_unmap(m);
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
		uint64_t segs = wire_segs(sqe, l), crcs = wire_crcs_in(sqe, l);

		if (sqe->opcode < 64 && WIRE_NOT_SERVED >> sqe->opcode & 1)
			sqe->opcode = 0;
		if (sqe->nr_segs)
			sqe->segs = segs ? (uintptr_t)request_take(rq, segs) : NOWHERE;
		if (sqe->crcs)
			sqe->crcs = crcs ? (uintptr_t)request_take(rq, crcs) : NOWHERE;
		if ((sqe->nr_segs && !sqe->segs) || (crcs && !sqe->crcs))
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
	/* nobody will hear of it but by the end of the connection */
	return rq->m->head.flags & WIRE_QUIET && rq->r->ret != (int)arg->nr ? -EPROTO : 0;
}

static int request_wait(struct request *rq)
{
	rq->arg->wait.min = 0;
	rq->arg->wait.timeout_ns = 0;
	return request_plain(rq);
}

/* Room for the answer, which @arg points to from now on */
static int request_match_room(struct request *rq, struct kvctx_match *arg)
{
	struct kvctx_match most = *arg;
	uint64_t lens, present;

	most.nr_present = most.nr_keys;
	lens = wire_match_lens(&most);
	present = wire_match_present(&most);
	if (!lens && !present)
		return 0;
	rq->r->rest = calloc(1, lens + present);
	if (!rq->r->rest)
		return -ENOMEM;
	if (lens)
		arg->lens = (uintptr_t)rq->r->rest;
	if (present)
		arg->present = (uintptr_t)rq->r->rest + lens;
	return 0;
}

static int request_match(struct request *rq)
{
	struct kvctx_match *arg = &rq->arg->match;
	int err;

	/* where an engine does not see the place for the answer, it would have none */
	if (arg->flags & KVCTX_MATCH_ALL && arg->size < FIRST(kvctx_match, present)) {
		rq->r->ret = -EINVAL;
		return 0;
	}
	if (arg->nr_keys && arg->nr_keys <= rq->s->limits.match_max) {
		arg->keys = (uintptr_t)request_take(rq, arg->nr_keys * sizeof(struct kvctx_key));
		if (!arg->keys)
			return -EPROTO;
		err = request_match_room(rq, arg);
		if (err)
			return err;
	}
	rq->r->ret = request_ioctl(rq);
	if (!rq->r->ret && arg->nr_present <= arg->nr_keys)
		rq->r->rest_bytes = wire_match_lens(arg) + wire_match_present(arg);
	return 0;
}

static int request_paths(struct request *rq)
{
	struct kvctx_paths *arg = &rq->arg->paths;
	uint32_t room = arg->nr < PATHS_MAX ? arg->nr : PATHS_MAX;

	rq->r->rest = calloc(room + 1, sizeof(struct kvctx_path));
	if (!rq->r->rest)
		return -ENOMEM;
	arg->paths = (uintptr_t)rq->r->rest;
	arg->nr = room;
	rq->r->ret = request_ioctl(rq);
	if (!rq->r->ret)
		rq->r->rest_bytes = (arg->nr < room ? arg->nr : room) * sizeof(struct kvctx_path);
	return 0;
}

static const struct {
	uint32_t nr;
	bool out;			/* the structure goes back */
	uint32_t first;			/* bytes */
	int (*run)(struct request *rq);
} requests[] = {
	{ KVCTX_IOC_INFO,		true,	0,	request_plain },
	{ KVCTX_IOC_SETUP,		true,	FIRST(kvctx_setup, reserved), request_setup },
	{ KVCTX_IOC_MEM_REGISTER,	true,	FIRST(kvctx_mem_register, reserved), request_register },
	{ KVCTX_IOC_MEM_UNREGISTER,	false,	FIRST(kvctx_mem_unregister, reserved), request_unregister },
	{ KVCTX_IOC_SUBMIT,		false,	FIRST(kvctx_submit, reserved), request_submit },
	{ KVCTX_IOC_WAIT,		true,	FIRST(kvctx_wait, timeout_ns), request_wait },
	{ KVCTX_IOC_MATCH,		true,	FIRST(kvctx_match, lease), request_match },
	{ KVCTX_IOC_PATHS,		true,	FIRST(kvctx_paths, paths), request_paths },
};

/* Copy the structure to @arg, with zeros behind a short one. */
static int request_dispatch(struct request *rq, uint32_t i, void *arg)
{
	const uint32_t *given = (const void *)rq->at;
	uint32_t size;
	void *p;
	int err;

	if (rq->left < 8)
		return -EPROTO;
	size = *given;
	p = size < 8 || size > WIRE_ARG_MAX ? NULL : request_take(rq, size);
	if (!p)
		return -EPROTO;
	memset(arg, 0, size < 256 ? 256 : size);
	memcpy(arg, p, size);
	rq->arg = arg;
	err = size < requests[i].first ? request_plain(rq) : requests[i].run(rq);
	if (!err && requests[i].out && rq->r->ret >= 0) {
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
	for (uint32_t i = 0; i < ARRAY_SIZE(requests); i++)
		if (requests[i].nr == m->head.nr)
			err = request_dispatch(&rq, i, arg);
	if (err || r->ret < 0 || m->head.flags & WIRE_QUIET) {
		free(r->rest);
		r->rest = NULL;
		r->rest_bytes = 0;
	}
	return err;
}
