// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Operations in flight, and the near ring.
 *
 * The daemon knows an operation by its record's wire name. Room in both rings: records in flight and completions not
 * consumed never exceed the entries, and the far ring's are published as free before the daemon gets more. A session
 * opened read-only cannot write the far ring's head; a message without a reply does it.
 *
 * Light. The daemon makes it readable when tail of the far ring moves off its head. It has to be readable as long as
 * there is something for the caller, in either ring; who finds both empty takes the byte, looks once more, and has the
 * daemon send it again if something came meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "socket.h"

#define NO_RECORD	UINT32_MAX

/* The near ring: what the caller maps, as the kernel's */
int kvs_ring_setup(struct socket_file *s)
{
	unsigned int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | (s->rdonly ? F_SEAL_FUTURE_WRITE : 0);
	void *p = MAP_FAILED;

	s->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->near_fd = memfd_create("kvctx-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (s->near_fd < 0 || s->kick_fd < 0)
		return -ENOMEM;
	if (!ftruncate(s->near_fd, (off_t)s->ring_bytes))
		p = mmap(NULL, s->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->near_fd, 0);
	s->records = calloc(s->entries, sizeof(*s->records));
	if (p == MAP_FAILED || !s->records || fcntl(s->near_fd, F_ADD_SEALS, seals))
		return -ENOMEM;
	madvise(p, s->ring_bytes, MADV_DONTFORK);
	s->near = p;
	s->near->entries = s->entries;
	for (uint32_t i = 0; i < s->entries; i++)
		s->records[i].next = i + 1 < s->entries ? i + 1 : NO_RECORD;
	return 0;
}

void kvs_ring_free(struct socket_file *s)
{
	for (uint32_t i = 0; s->records && i < s->entries; i++) {
		free(s->records[i].segs);
		free(s->records[i].addrs);
	}
	free(s->records);
	if (s->near)
		munmap(s->near, s->ring_bytes);
	if (s->far)
		munmap(s->far, s->ring_bytes);
}

/* Completions in the near ring; more than the entries when the caller's head is wrong */
static uint32_t ring_ready(const struct socket_file *s)
{
	return s->tail - __atomic_load_n(&s->near->head, __ATOMIC_ACQUIRE);
}

uint32_t kvs_ring_consumable(const struct socket_file *s)
{
	uint32_t nr = ring_ready(s);

	return nr < s->entries ? nr : s->entries;
}

int kvs_ring_consume(struct socket_file *s, uint32_t nr)
{
	if (nr > kvs_ring_consumable(s))
		return -EINVAL;
	__atomic_store_n(&s->near->head, s->near->head + nr, __ATOMIC_RELEASE);
	return 0;
}

void kvs_ring_wake(struct socket_file *s)
{
	if (!s->sleepers)
		return;
	if (s->watched)
		eventfd_write(s->kick_fd, 1);
	__atomic_add_fetch(&s->rounds, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &s->rounds, FUTEX_WAKE_PRIVATE, INT_MAX);
}

/* Records */

int kvs_record_take(struct socket_file *s, uint64_t user_data)
{
	uint32_t nr = s->free, used = ring_ready(s);

	/* two steps: a wrong head may make the sum wrap */
	if (nr == NO_RECORD || used > s->entries - s->inflight || used + s->inflight == s->entries)
		return -EAGAIN;
	s->free = s->records[nr].next;
	s->records[nr] = (struct record){
		.state = RECORD_NEW, .user_data = user_data, .uses = s->records[nr].uses + 1,
	};
	s->inflight++;
	return (int)nr;
}

uint64_t kvs_record_name(const struct socket_file *s, uint32_t nr)
{
	return (uint64_t)s->records[nr].uses << 32 | nr;
}

static bool record_flies(const struct socket_file *s, uint64_t name)
{
	uint32_t nr = (uint32_t)name;

	return nr < s->entries && s->records[nr].state == RECORD_FLYING && name == kvs_record_name(s, nr);
}

uint32_t kvs_records_named(const struct socket_file *s, uint64_t user_data, uint32_t *from, uint64_t *names,
			   uint32_t max)
{
	uint32_t nr = 0;

	for (; *from < s->entries && nr < max; ++*from)
		if (s->records[*from].state == RECORD_FLYING && s->records[*from].user_data == user_data)
			names[nr++] = kvs_record_name(s, *from);
	return nr;
}

void kvs_record_drop(struct socket_file *s, uint32_t nr)
{
	struct record *r = &s->records[nr];

	kvs_stage_end(s, r);
	r->state = RECORD_FREE;
	r->next = s->free;
	s->free = nr;
	s->inflight--;
}

static void record_post(struct socket_file *s, uint32_t nr, int32_t res, uint32_t flags)
{
	struct record *r = &s->records[nr];

	s->near->cqes[s->tail & (s->entries - 1)] = (struct kvctx_cqe){
		.user_data = r->user_data, .res = res, .flags = flags,
	};
	__atomic_store_n(&s->near->tail, ++s->tail, __ATOMIC_RELEASE);
	kvs_record_drop(s, nr);
}

void kvs_record_complete(struct socket_file *s, uint32_t nr, int32_t res)
{
	record_post(s, nr, res, 0);
	kvs_ring_wake(s);
}

/* The far ring */

static uint32_t far_tail(const struct socket_file *s)
{
	return __atomic_load_n(&s->far->tail, __ATOMIC_ACQUIRE);
}

int kvs_ring_publish(struct socket_file *s)
{
	struct kvctx_wait w = { .size = sizeof(w), .consumed = s->seen - s->published };
	struct packet p;
	int err;

	if (!s->rdonly || !w.consumed)
		return 0;
	kvs_packet_begin(&p, KVCTX_IOC_WAIT, WIRE_QUIET);
	kvs_packet_add(&p, &w, sizeof(w));
	err = kvs_packet_send(s, &p);
	if (!err)
		s->published = s->seen;
	return err;
}

/* Its bytes, if they are in the stage, go where they belong; lock dropped meanwhile */
static void ring_end(struct socket_file *s, uint32_t nr, const struct kvctx_cqe *cqe)
{
	struct record *r = &s->records[nr];
	uint64_t bytes = cqe->res < 0 ? 0 : r->load ? (uint32_t)cqe->res : r->answer;
	uint32_t flags = cqe->flags;

	if (r->segs) {
		flags |= KVCTX_CQE_STAGED;
		if (bytes) {
			r->state = RECORD_ENDING;
			pthread_mutex_unlock(&s->lock);
			kvs_stage_copy_out(s, r, bytes);
			pthread_mutex_lock(&s->lock);
		}
	}
	record_post(s, nr, cqe->res, flags);
}

/* Nothing comes any more */
static void ring_bury(struct socket_file *s)
{
	s->buried = true;
	for (uint32_t i = 0; i < s->entries; i++)
		if (s->records[i].state == RECORD_FLYING)
			record_post(s, i, -ENODEV, 0);
}

void kvs_ring_harvest(struct socket_file *s)
{
	bool gone = __atomic_load_n(&s->gone, __ATOMIC_ACQUIRE);
	uint32_t before = s->tail;

	while (s->seen != far_tail(s)) {
		struct kvctx_cqe cqe = s->far->cqes[s->seen++ & (s->entries - 1)];

		if (!s->rdonly)
			__atomic_store_n(&s->far->head, s->seen, __ATOMIC_SEQ_CST);
		if (record_flies(s, cqe.user_data))
			ring_end(s, (uint32_t)cqe.user_data, &cqe);
	}
	if (gone && !s->buried)
		ring_bury(s);
	if (s->tail != before)
		kvs_ring_wake(s);
}

uint32_t kvs_door_tail(const struct socket_file *s)
{
	return __atomic_load_n(&s->door->tail, __ATOMIC_SEQ_CST);
}

bool kvs_ring_idle(const struct socket_file *s)
{
	return !ring_ready(s) && s->seen == far_tail(s) && (int32_t)(kvs_door_tail(s) - s->seen) <= 0;
}

void kvs_ring_settle(struct socket_file *s)
{
	bool again = false;

	if (!__atomic_load_n(&s->polled, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&s->lock);
	if (kvs_ring_idle(s)) {
		kvs_drain(s, WIRE_FD_LIGHT);
		again = !kvs_ring_idle(s);
	}
	pthread_mutex_unlock(&s->lock);
	if (again)
		kvs_packet_ask(s, WIRE_LIGHT);
}
