// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * SUBMIT to kvctxd. A batch goes in as many messages as it needs, its segments and CRCs gathered from where the caller
 * has them; the kernel finds out which of that memory is not there.
 *
 * Operations get records while there is room for them. One whose memory has to be staged waits for the stage if that is
 * full: others in flight have it, and end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "socket.h"

#define LOAD_OPS	128U		/* of a message */
#define LOAD_COPIED	(2U << 20)	/* bytes; then what was copied goes, and the device has work while more is copied */

/* Operations of a message, on their way */
struct load {
	const struct kvctx_sqe *caller;	/* of the first */
	uint32_t nr;
	struct kvctx_sqe sqes[LOAD_OPS];	/* for the daemon */
	uint64_t bytes, crcs;		/* of the body; of the answer */
	uint64_t copied;		/* bytes, to the stage */
	uint32_t pieces;
};

static void load_pack(const struct socket_file *s, struct packet *p, struct kvctx_submit *arg, const struct load *l)
{
	*arg = (struct kvctx_submit){ .size = sizeof(*arg), .nr = l->nr };
	kvs_packet_add(p, arg, sizeof(*arg));
	kvs_packet_add(p, l->sqes, l->nr * sizeof(*l->sqes));
	for (uint32_t i = 0; i < l->nr; i++) {
		const struct kvctx_sqe *sqe = &l->sqes[i];

		kvs_packet_add(p, (const void *)(uintptr_t)sqe->segs, wire_segs(sqe, &s->limits));
		kvs_packet_add(p, (const void *)(uintptr_t)sqe->crcs, wire_crcs_in(sqe, &s->limits));
		kvs_packet_add(p, (const void *)(uintptr_t)sqe->keys, wire_keys(sqe, &s->limits));
	}
}

static void load_give_crcs(const struct socket_file *s, const struct answer *a, const struct load *l)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < l->nr; i++) {
		uint64_t bytes = wire_crcs_out(&l->sqes[i], &s->limits);

		kvs_answer_rest(a, at, (void *)(uintptr_t)l->sqes[i].crcs, bytes);
		at += wire_pad(bytes);
	}
}

/* 0, or why the daemon has none of them */
static int load_send(struct socket_file *s, const struct load *l)
{
	struct kvctx_submit arg;
	struct answer a;
	struct packet p;
	int ret;

	kvs_packet_begin(&p, KVCTX_IOC_SUBMIT, l->crcs ? 0 : WIRE_QUIET);
	load_pack(s, &p, &arg, l);
	if (!l->crcs)
		return kvs_packet_send(s, &p);
	ret = kvs_packet_exchange(s, &p, &a);
	if (ret == (int)l->nr)
		load_give_crcs(s, &a, l);
	kvs_answer_free(&a);
	return ret < 0 ? ret : ret == (int)l->nr ? 0 : -ENODEV;
}

/*
 * From now on their completions may come. -errno: none will, and nothing was sent. Records that are taken lately may be
 * in the room of completions that another thread has harvested just now: so before each message, not once a call.
 */
static int load_fly(struct socket_file *s, const struct load *l)
{
	int err;

	pthread_mutex_lock(&s->lock);
	err = kvs_ring_publish(s);
	if (s->buried)
		err = -ENODEV;
	for (uint32_t i = 0; i < l->nr && !err; i++)
		s->records[(uint32_t)l->sqes[i].user_data].state = RECORD_FLYING;
	pthread_mutex_unlock(&s->lock);
	return err;
}

/*
 * They could not be sent: as if never taken. But if the daemon is gone they may have ended, as all in flight have.
 * Returns how many the caller is to think taken.
 */
static uint32_t load_return(struct socket_file *s, const struct load *l, bool flew)
{
	uint32_t taken = 0;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < l->nr; i++) {
		if (flew && s->buried)
			taken++;
		else
			kvs_record_drop(s, (uint32_t)l->sqes[i].user_data);
	}
	kvs_ring_wake(s);
	pthread_mutex_unlock(&s->lock);
	return taken;
}

/* Would one more fit in the message? */
static bool load_room(const struct socket_file *s, struct load *l, const struct kvctx_sqe *sqe)
{
	uint64_t bytes = sizeof(*sqe) + wire_segs(sqe, &s->limits) + wire_pad(wire_crcs_in(sqe, &s->limits)) +
			 wire_keys(sqe, &s->limits);
	uint64_t crcs = wire_pad(wire_crcs_out(sqe, &s->limits));

	if (l->nr == LOAD_OPS || l->copied >= LOAD_COPIED)
		return false;
	if (l->nr && (l->bytes + bytes > WIRE_INLINE_MAX || l->crcs + crcs > WIRE_INLINE_MAX || l->pieces + 3 > PACKET_PIECES))
		return false;
	l->bytes += bytes;
	l->crcs += crcs;
	l->pieces += 3;
	return true;
}

static void load_begin(struct load *l, const struct kvctx_sqe *sqes)
{
	l->caller = sqes;
	l->nr = 0;
	l->bytes = sizeof(struct kvctx_submit);
	l->crcs = 0;
	l->copied = 0;
	l->pieces = 4;
}

/* A record for @from: its number, or -EAGAIN */
static int load_record(struct socket_file *s, const struct kvctx_sqe *from)
{
	int nr;

	pthread_mutex_lock(&s->lock);
	nr = kvs_record_take(s, from->user_data);
	if (nr < 0) {
		kvs_ring_harvest(s);
		nr = kvs_record_take(s, from->user_data);
	}
	pthread_mutex_unlock(&s->lock);
	return nr;
}

/* 1: it is in the load; 0: it has ended, or is not in it for it has to wait for the stage (*@later); -EAGAIN: no room */
static int load_add(struct socket_file *s, struct load *l, const struct kvctx_sqe *from, bool *later)
{
	struct kvctx_sqe *sqe = &l->sqes[l->nr];
	int nr = load_record(s, from), err;

	if (nr < 0)
		return nr;
	*sqe = *from;
	sqe->user_data = kvs_record_name(s, (uint32_t)nr);
	err = kvs_stage_begin(s, &s->records[nr], sqe);
	if (!err) {
		l->nr++;
		if (s->records[nr].segs && sqe->opcode == KVCTX_OP_STORE)
			l->copied += sqe->length;
		return 1;
	}
	pthread_mutex_lock(&s->lock);
	*later = err == -EAGAIN;
	if (*later)
		kvs_record_drop(s, (uint32_t)nr);
	else
		kvs_record_complete(s, (uint32_t)nr, err);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* Until something has come out of the stage */
static void submit_wait(struct socket_file *s)
{
	__u64 timeout_ns = 10000000;
	uint32_t have;

	pthread_mutex_lock(&s->lock);
	have = kvs_ring_consumable(s);
	pthread_mutex_unlock(&s->lock);
	kvs_sleep(s, have + 1, &timeout_ns);
}

/* Of the records from *@from on as many as a message takes. @names: room for WIRE_CANCEL_MAX */
static int cancel_ask(struct socket_file *s, const struct kvctx_sqe *sqe, uint32_t *from, uint64_t *names)
{
	struct answer a;
	struct packet p;
	uint32_t nr;
	int ret;

	pthread_mutex_lock(&s->lock);
	nr = kvs_records_named(s, sqe->offset, from, names, WIRE_CANCEL_MAX);
	pthread_mutex_unlock(&s->lock);
	kvs_packet_begin(&p, WIRE_CANCEL, 0);
	kvs_packet_add(&p, sqe, sizeof(*sqe));
	kvs_packet_add(&p, names, nr * sizeof(*names));
	ret = kvs_packet_exchange(s, &p, &a);
	kvs_answer_free(&a);
	return ret;
}

/* @names: room for WIRE_CANCEL_MAX. Returns how many the daemon has cancelled of those in flight, or why none */
static int cancel_all(struct socket_file *s, const struct kvctx_sqe *sqe, uint64_t *names)
{
	uint32_t from = 0;
	int nr = 0, ret;

	do {
		ret = cancel_ask(s, sqe, &from, names);
		if (ret < 0)
			return nr ? nr : ret;
		nr += ret;
	} while (from < s->entries);
	return nr;
}

/* A CANCEL: it has ended when this returns 0; -EAGAIN: no room */
static int submit_cancel(struct socket_file *s, const struct kvctx_sqe *sqe)
{
	uint64_t *names = malloc(WIRE_CANCEL_MAX * sizeof(*names));
	int nr = names ? load_record(s, sqe) : -ENOMEM, res;

	if (nr >= 0) {
		res = cancel_all(s, sqe, names);
		pthread_mutex_lock(&s->lock);
		kvs_record_complete(s, (uint32_t)nr, res);
		pthread_mutex_unlock(&s->lock);
	}
	free(names);
	return nr < 0 ? nr : 0;
}

/* Returns how many were taken, or why none was */
static int submit_all(struct socket_file *s, struct load *l, const struct kvctx_sqe *sqes, uint32_t nr)
{
	uint32_t taken = 0, i = 0;
	int err = 0;

	while (i < nr && !err) {
		bool later = false;

		/* those before it have been sent */
		if (sqes[i].opcode == KVCTX_OP_CANCEL) {
			err = submit_cancel(s, &sqes[i]);
			taken = i += !err;
			continue;
		}
		load_begin(l, sqes + i);
		for (; i < nr && sqes[i].opcode != KVCTX_OP_CANCEL && !later && !err && load_room(s, l, &sqes[i]); i += !later && !err)
			err = load_add(s, l, &sqes[i], &later) < 0 ? -EAGAIN : 0;
		if (l->nr) {
			int grounded = load_fly(s, l), unsent = grounded ?: load_send(s, l);

			if (unsent)
				return (int)(i - l->nr + load_return(s, l, !grounded)) ?: unsent;
		}
		taken = i;
		if (later)
			submit_wait(s);
	}
	return taken ? (int)taken : err;
}

int kvs_submit(struct socket_file *s, const struct kvctx_submit *arg)
{
	__u64 timeout_ns = arg->timeout_ns;
	struct load *l;
	int ret;

	if (kvs_gone(s))
		return -ENODEV;
	l = malloc(sizeof(*l));
	if (!l)
		return -ENOMEM;
	ret = submit_all(s, l, (const void *)(uintptr_t)arg->sqes, arg->nr);
	free(l);
	if (ret > 0 && arg->wait_nr)
		kvs_sleep(s, arg->wait_nr, &timeout_ns);
	return ret;
}
