// SPDX-License-Identifier: GPL-2.0
/*
 * Sessions: open, ioctls, mmap, close. Up to four are open at once, of three tenants.
 *
 * Nothing here waits for ever: a signal comes every 10 ms (main.c), and each wait may be for as long as that.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvctx.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

#define SESSIONS	4
#define MAPPINGS	8
#define KEYS		16
#define SEGS_MAX	80

static const char *const session_nodes[] = { "/dev/kvctx/t/default", "/dev/kvctx/t/other", "/dev/kvctx/t/strict",
					     "/dev/kvctx/t/secret" };
static struct session {
	int fd, event;
} session_list[SESSIONS] = { { -1, -1 }, { -1, -1 }, { -1, -1 }, { -1, -1 } };
static struct mapping {
	void *at;
	size_t bytes;
} session_mappings[MAPPINGS];

static uint32_t take_size(struct fuzz_in *in, size_t size)
{
	return fuzz_rarely(in) ? (uint32_t)fuzz_number(in) : (uint32_t)size;
}

static void take_key(struct fuzz_in *in, struct kvctx_key *key)
{
	memset(key, 0, sizeof(*key));
	key->digest[0] = fuzz_below(in, KEYS);
	key->qualifier = key->digest[0] & 1;
}

static uint64_t take_keys(struct fuzz_in *in, uint32_t nr)
{
	struct kvctx_key *keys;

	if (nr > 1000 || fuzz_rarely(in))
		return fuzz_address(in, nr * sizeof(*keys));
	keys = fuzz_room(nr * sizeof(*keys));
	for (uint32_t i = 0; i < nr && i < KEYS; i++)
		take_key(in, &keys[i]);
	for (uint32_t i = KEYS; i < nr; i++)
		keys[i].digest[0] = (uint8_t)i;
	return (uintptr_t)keys;
}

/* Bytes of a page: whole blocks, or not; few are long */
static uint64_t take_length(struct fuzz_in *in)
{
	uint8_t kind = fuzz_byte(in);

	if (kind < 160)
		return (kind % 40 + 1) * 4096ULL;
	if (kind < 240)
		return fuzz_raw(in, 2) + 1;
	return fuzz_number(in);
}

/* Pieces that are as long as the page, unless they shall not be */
static uint64_t take_segs(struct fuzz_in *in, uint16_t nr, uint64_t length)
{
	uint64_t left = length, each = length / nr;
	struct kvctx_seg *segs = fuzz_room(nr * sizeof(*segs));

	for (uint16_t i = 0; i < nr; i++) {
		segs[i].mem = fuzz_below(in, 3);
		segs[i].offset = fuzz_rarely(in) ? fuzz_number(in) : fuzz_byte(in) * 4096ULL;
		segs[i].length = (uint32_t)(i == nr - 1 ? left : each);
		if (fuzz_rarely(in))
			segs[i].length = (uint32_t)fuzz_number(in);
		left -= segs[i].length;
	}
	return (uintptr_t)segs;
}

void fuzz_session_sqe(struct fuzz_in *in, struct kvctx_sqe *sqe)
{
	bool moves, matches;

	sqe->opcode = (uint8_t)(fuzz_rarely(in) ? fuzz_byte(in) : 1 + fuzz_below(in, 12));
	moves = sqe->opcode == KVCTX_OP_STORE || sqe->opcode == KVCTX_OP_LOAD;
	matches = sqe->opcode == KVCTX_OP_MATCH;
	sqe->flags = fuzz_flags(in, matches ? 0x700 : moves ? 0xf : 1);
	sqe->user_data = fuzz_below(in, 4);
	if (sqe->opcode != KVCTX_OP_RELEASE && sqe->opcode != KVCTX_OP_PUT && sqe->opcode != KVCTX_OP_FLUSH && !matches &&
	    sqe->opcode != KVCTX_OP_CANCEL)
		take_key(in, &sqe->key);
	if (moves || matches) {
		sqe->length = take_length(in);
		sqe->nr_segs = (uint16_t)(fuzz_byte(in) < 128 ? 0 : fuzz_below(in, SEGS_MAX));
		sqe->segs = sqe->nr_segs ? take_segs(in, sqe->nr_segs, sqe->length) : fuzz_byte(in) * 4096ULL;
		sqe->mem = sqe->nr_segs ? 0 : fuzz_below(in, 3);
	}
	if (moves)
		sqe->prio = fuzz_below(in, 4);
	if (moves && fuzz_rarely(in))
		sqe->crcs = fuzz_address(in, 4096);
	if (matches) {
		sqe->nr_keys = fuzz_below(in, 100);
		sqe->keys = take_keys(in, sqe->nr_keys);
	}
	if (sqe->opcode == KVCTX_OP_PREFETCH || sqe->opcode == KVCTX_OP_LEASE || sqe->opcode == KVCTX_OP_GET || matches)
		sqe->lease_ms = (uint32_t)(fuzz_rarely(in) ? fuzz_number(in) : fuzz_byte(in));
	if (sqe->opcode == KVCTX_OP_RELEASE || sqe->opcode == KVCTX_OP_PUT)
		sqe->lease = (uint32_t)fuzz_number(in);
	if (sqe->opcode == KVCTX_OP_CANCEL)
		sqe->offset = fuzz_below(in, 4);
	if (sqe->opcode == KVCTX_OP_LOAD)
		sqe->offset = fuzz_zero(in);
	sqe->depth = sqe->opcode == KVCTX_OP_STORE ? fuzz_byte(in) : 0;
	sqe->timeout_ns = fuzz_byte(in) * 100000ULL;
	if (fuzz_rarely(in))
		((uint8_t *)sqe)[fuzz_below(in, sizeof(*sqe))] ^= (uint8_t)(1U << fuzz_below(in, 8));
}

/* Calls, each with a session */

static void call_info(struct fuzz_in *in, struct session *s)
{
	struct kvctx_info *a = fuzz_room(sizeof(*a) + 64);

	a->size = take_size(in, sizeof(*a));
	a->flags = (uint32_t)fuzz_zero(in);
	ioctl(s->fd, KVCTX_IOC_INFO, fuzz_rarely(in) ? (void *)fuzz_address(in, sizeof(*a)) : a);
}

static void call_setup(struct fuzz_in *in, struct session *s)
{
	struct kvctx_setup *a = fuzz_room(sizeof(*a) + 64);

	a->size = take_size(in, sizeof(*a));
	a->flags = fuzz_flags(in, KVCTX_SETUP_EVENTFD);
	a->keyspace[0] = fuzz_below(in, 4);
	a->arena_bytes = fuzz_rarely(in) ? fuzz_number(in) : fuzz_byte(in) * 4096ULL;
	a->cq_entries = (uint32_t)(fuzz_rarely(in) ? fuzz_number(in) : 1U + fuzz_byte(in));
	a->nr_slots = (uint32_t)(fuzz_rarely(in) ? fuzz_number(in) : fuzz_below(in, 8));
	a->slot_bytes = a->nr_slots ? (uint32_t)take_length(in) : 0;
	if (a->flags & KVCTX_SETUP_EVENTFD) {
		if (s->event < 0)
			s->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		a->eventfd = fuzz_rarely(in) ? (int)fuzz_number(in) : s->event;
	}
	a->reserved = fuzz_zero(in);
	ioctl(s->fd, KVCTX_IOC_SETUP, a);
}

static void call_register(struct fuzz_in *in, struct session *s)
{
	struct kvctx_mem_register *a = fuzz_room(sizeof(*a) + 64);

	a->size = take_size(in, sizeof(*a));
	a->flags = (uint32_t)fuzz_zero(in);
	a->length = take_length(in);
	a->addr = fuzz_address(in, a->length);
	a->reserved = (uint32_t)fuzz_zero(in);
	ioctl(s->fd, KVCTX_IOC_MEM_REGISTER, a);
}

static void call_unregister(struct fuzz_in *in, struct session *s)
{
	struct kvctx_mem_unregister *a = fuzz_room(sizeof(*a) + 64);

	a->size = take_size(in, sizeof(*a));
	a->flags = (uint32_t)fuzz_zero(in);
	a->id = fuzz_below(in, 4);
	ioctl(s->fd, KVCTX_IOC_MEM_UNREGISTER, a);
}

static void call_submit(struct fuzz_in *in, struct session *s)
{
	struct kvctx_submit *a = fuzz_room(sizeof(*a) + 64);
	uint32_t nr = 1 + fuzz_below(in, 12);
	struct kvctx_sqe *sqes = fuzz_room(nr * sizeof(*sqes));

	for (uint32_t i = 0; i < nr; i++)
		fuzz_session_sqe(in, &sqes[i]);
	a->size = take_size(in, sizeof(*a));
	a->flags = (uint32_t)fuzz_zero(in);
	a->nr = fuzz_rarely(in) ? (uint32_t)fuzz_number(in) : nr;
	a->sqes = fuzz_rarely(in) ? fuzz_address(in, nr * sizeof(*sqes)) : (uintptr_t)sqes;
	a->wait_nr = fuzz_below(in, 3);
	a->timeout_ns = a->wait_nr ? fuzz_byte(in) * 100000ULL : 0;
	a->reserved = fuzz_zero(in);
	ioctl(s->fd, KVCTX_IOC_SUBMIT, a);
}

static void call_wait(struct fuzz_in *in, struct session *s)
{
	struct kvctx_wait *a = fuzz_room(sizeof(*a) + 64);

	a->size = take_size(in, sizeof(*a));
	a->flags = (uint32_t)fuzz_zero(in);
	a->min = (uint32_t)fuzz_number(in);
	a->consumed = (uint32_t)fuzz_number(in);
	a->timeout_ns = fuzz_rarely(in) ? KVCTX_TIMEOUT_NONE : fuzz_byte(in) * 100000ULL;
	ioctl(s->fd, KVCTX_IOC_WAIT, a);
}

static void call_match(struct fuzz_in *in, struct session *s)
{
	struct kvctx_match *a = fuzz_room(sizeof(*a) + 64);

	a->size = take_size(in, sizeof(*a));
	a->flags = fuzz_flags(in, 7);
	a->nr_keys = fuzz_rarely(in) ? (uint32_t)fuzz_number(in) : fuzz_byte(in);
	a->keys = take_keys(in, a->nr_keys);
	a->lens = fuzz_byte(in) < 128 ? 0 : fuzz_address(in, a->nr_keys * 4ULL);
	a->present = a->flags & KVCTX_MATCH_ALL ? fuzz_address(in, a->nr_keys / 8 + 8) : fuzz_zero(in);
	a->lease_ms = a->flags & 3 ? 1U + fuzz_byte(in) : (uint32_t)fuzz_zero(in);
	a->reserved = (uint32_t)fuzz_zero(in);
	ioctl(s->fd, KVCTX_IOC_MATCH, a);
}

static void call_paths(struct fuzz_in *in, struct session *s)
{
	struct kvctx_paths *a = fuzz_room(sizeof(*a) + 64);

	a->size = take_size(in, sizeof(*a));
	a->flags = (uint32_t)fuzz_zero(in);
	a->mem = fuzz_below(in, 4);
	a->nr = (uint32_t)fuzz_number(in);
	a->paths = fuzz_address(in, a->nr * sizeof(struct kvctx_path));
	ioctl(s->fd, KVCTX_IOC_PATHS, a);
}

static void call_events(struct fuzz_in *in, struct session *s)
{
	struct kvctx_events *a = fuzz_room(sizeof(*a) + 64);

	a->size = take_size(in, sizeof(*a));
	a->flags = (uint32_t)fuzz_zero(in);
	a->nr = (uint32_t)fuzz_number(in);
	a->events = fuzz_address(in, a->nr * sizeof(struct kvctx_event));
	a->reserved = (uint32_t)fuzz_zero(in);
	ioctl(s->fd, KVCTX_IOC_EVENTS, a);
}

/* A number and a structure of anybody's */
static void call_any(struct fuzz_in *in, struct session *s)
{
	uint8_t *a = fuzz_room(512);
	uint32_t nr = fuzz_rarely(in) ? (uint32_t)fuzz_raw(in, 4) : KVCTX_IOC_INFO + fuzz_below(in, 12);
	uint32_t bytes = fuzz_below(in, 80);

	for (uint32_t i = 0; i < bytes; i++)
		a[i] = fuzz_byte(in);
	ioctl(s->fd, nr, a);
}

static void mapping_end(struct mapping *m)
{
	if (m->at)
		munmap(m->at, m->bytes);
	m->at = NULL;
}

static void call_mmap(struct fuzz_in *in, struct session *s)
{
	static const uint64_t offsets[] = { KVCTX_MMAP_CQ, KVCTX_MMAP_ARENA, KVCTX_MMAP_SLOTS, 3ULL << 40 };
	uint32_t which = fuzz_below(in, MAPPINGS);
	struct mapping *m = &session_mappings[which];
	uint64_t offset = offsets[fuzz_below(in, 4)];
	int prot = fuzz_rarely(in) ? (int)fuzz_below(in, 8) : fuzz_below(in, 2) ? PROT_READ : PROT_READ | PROT_WRITE;

	if (fuzz_rarely(in))
		offset += fuzz_byte(in) * 4096ULL;
	mapping_end(m);
	m->bytes = fuzz_rarely(in) ? fuzz_number(in) : (1ULL + fuzz_byte(in)) * 4096;
	m->at = mmap(NULL, m->bytes, prot, fuzz_rarely(in) ? MAP_PRIVATE : MAP_SHARED, s->fd, (off_t)offset);
	if (m->at == MAP_FAILED)
		m->at = NULL;
	fuzz_memory_also((int)which, m->at);
}

/* What of a mapping the kernel may do, also to pages that it has not; a place that is given up is nobody else's */
static void call_remap(struct fuzz_in *in, struct session *s)
{
	struct mapping *m = &session_mappings[fuzz_below(in, MAPPINGS)];

	(void)s;
	if (!m->at)
		return;
	switch (fuzz_below(in, 4)) {
	case 0:
		madvise(m->at, m->bytes, (int)fuzz_below(in, 26));
		break;
	case 1:
		mprotect(m->at, 4096, (int)fuzz_below(in, 8));
		break;
	case 2:
		mmap(m->at, 4096, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		break;
	default:
		mapping_end(m);
	}
}

static void call_poll(struct fuzz_in *in, struct session *s)
{
	struct pollfd p = { .fd = s->fd, .events = (short)fuzz_raw(in, 1) };

	poll(&p, 1, (int)fuzz_below(in, 10));
}

static void call_close(struct fuzz_in *in, struct session *s)
{
	(void)in;
	if (s->event >= 0)
		close(s->event);
	close(s->fd);
	s->fd = s->event = -1;
}

static void call_rw(struct fuzz_in *in, struct session *s)
{
	void *at = (void *)fuzz_address(in, 4096);

	if (fuzz_below(in, 2))
		(void)!read(s->fd, at, 4096);
	else
		(void)!write(s->fd, at, 4096);
}

static void (*const session_calls[])(struct fuzz_in *, struct session *) = {
	call_submit, call_submit, call_submit, call_submit, call_wait, call_wait, call_match, call_register, call_unregister,
	call_setup, call_events, call_paths, call_info, call_mmap, call_remap, call_poll, call_close, call_any, call_rw,
};

static struct session *session_open(struct fuzz_in *in)
{
	struct session *s = &session_list[fuzz_below(in, SESSIONS)];
	static const int modes[] = { O_RDWR, O_RDWR, O_RDWR, O_RDONLY, O_WRONLY };

	if (s->fd >= 0)
		return s;
	s->fd = open(session_nodes[fuzz_below(in, 4)], modes[fuzz_below(in, 5)] | O_CLOEXEC);
	if (s->fd >= 0 && !fuzz_rarely(in))
		call_setup(in, s);
	return s;
}

int fuzz_session_fd(struct fuzz_in *in)
{
	return session_open(in)->fd;
}

void fuzz_session(struct fuzz_in *in)
{
	struct session *s = session_open(in);
	uint32_t nr = sizeof(session_calls) / sizeof(session_calls[0]);

	if (s->fd >= 0)
		session_calls[fuzz_below(in, nr)](in, s);
}

void fuzz_sessions_end(void)
{
	struct fuzz_in none = { NULL, NULL };

	for (int i = 0; i < MAPPINGS; i++) {
		mapping_end(&session_mappings[i]);
		fuzz_memory_also(i, NULL);
	}
	for (int i = 0; i < SESSIONS; i++)
		if (session_list[i].fd >= 0)
			call_close(&none, &session_list[i]);
}
