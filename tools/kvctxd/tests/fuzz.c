// SPDX-License-Identifier: GPL-2.0
/*
 * What a client may say to kvctxd, with libFuzzer: `make fuzz`. With fuzz_main.c instead it takes inputs from files.
 *
 * The daemon's session, socket and requests are linked in, and the engine with a pool below TMPDIR. An input is one client,
 * told as a byte of flags and up to MESSAGES messages. They go through a socket, so all is as the daemon has it, but that
 * one thread does both sides. Kinds of messages, by their first byte:
 *
 *	ioctls		their structure, of the input's bytes, as long as it ought to be unless SIZE says otherwise, and
 *			what is behind it
 *	BATCH		a SUBMIT whose operations, segments, keys and CRCs are where they belong, with the input's values
 *	CANCEL, LIGHT
 *	RAW		any number and flags, any body
 *	SCRIBBLE	no message: the client writes to what it shares with the daemon
 *
 * Fails when a sanitizer does, or an invariant of the engine breaks, or a session does not end.
 */
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../kvctxd.h"
#include "engine.h"
#include "kvctx.h"
#include "session/session.h"

#define MESSAGES	16
#define OPS		4U
#define ARENA		(256U << 10)
#define MEMORY		(64U << 10)	/* of a memfd */
#define WAIT_SECONDS	15

enum { SIZE = 1, QUIET = 2, PARCEL = 4, LONGER = 8 };			/* of a message */
enum { RDONLY = 1, NO_SETUP = 2, SLOTS = 4, SIGNAL = 8 };		/* of a client */
enum { BATCH = KVCTX_CALLS, CANCEL, LIGHT, RAW, SCRIBBLE, KINDS };

struct input {
	const uint8_t *at;
	size_t left;
};

struct client {
	struct input in;
	struct kvd_session *s;
	struct kvd_message message;
	int ours, theirs;
	int shared[WIRE_FDS];			/* those of the reply to SETUP */
	bool over;
};

static char dir[256], path[sizeof(dir) + 16];
static struct kvctx *holder;			/* the pool stays attached */
static sem_t ended;
static uint64_t body[2 * WIRE_INLINE_MAX / 8], arg[WIRE_ARG_MAX / 8];

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_log(void *unused, int priority, const char *text)
{
	(void)unused;
	if (priority <= 2)
		fprintf(stderr, "fuzz: %s\n", text);
}

static void fuzz_broken(void)
{
	abort();
}

static void fuzz_remove(void)
{
	char file[sizeof(path) + 16];

	kvctx_close(holder);
	snprintf(file, sizeof(file), "%s/p/member0", dir);
	unlink(file);
	snprintf(file, sizeof(file), "%s/p", dir);
	rmdir(file);
	rmdir(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct kvctx_pool_params pool = { .size = sizeof(pool), .bytes = 16 << 20, .segment_bytes = 1 << 20 };
	struct kvctx_params params = { .size = sizeof(params), .eventfd = -1 };

	(void)argc;
	(void)argv;
	kvctx_set_log(fuzz_log, NULL);
	kve_broken_told = fuzz_broken;
	kvd_memory_user = 64 << 20;
	kvd_registered_max = 64 << 20;
	sem_init(&ended, 0, 0);
	snprintf(dir, sizeof(dir), "%s/kvctxd-fuzz.XXXXXX", getenv("TMPDIR") ?: "/tmp");
	if (!mkdtemp(dir))
		abort();
	snprintf(path, sizeof(path), "%s/p", dir);
	if (kvctx_pool_create(path, &pool))
		abort();
	strcat(path, "/default");
	if (kvctx_open(path, O_RDWR, &params, &holder))
		abort();
	atexit(fuzz_remove);
	return 0;
}

/* The next @n bytes of the input, with zeros behind its end */
static void take(struct input *in, void *to, size_t n)
{
	size_t some = n < in->left ? n : in->left;

	memcpy(to, in->at, some);
	memset((uint8_t *)to + some, 0, n - some);
	in->at += some;
	in->left -= some;
}

static uint32_t take_number(struct input *in, size_t bytes)
{
	uint32_t n = 0;

	take(in, &n, bytes);
	return n;
}

static int make_memfd(bool sealed)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, MEMORY) || (sealed && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)))
		abort();
	return fd;
}

/* Descriptors that go with a message, to be closed; how many */
static uint32_t make_fds(uint32_t which, int fds[2])
{
	switch (which % 8) {
	case 1:
		fds[0] = make_memfd(true);
		return 1;
	case 2:
		fds[0] = make_memfd(false);
		return 1;
	case 3:
		fds[0] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		return 1;
	case 4:
		fds[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
		return 1;
	case 5:
		fds[0] = make_memfd(true);
		fds[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		return 2;
	default:
		return 0;
	}
}

static void put_shared(struct client *c)
{
	for (int i = 0; i < WIRE_FDS; i++) {
		if (c->shared[i] >= 0)
			close(c->shared[i]);
		c->shared[i] = -1;
	}
}

/* Replies are read, and their descriptors kept if they may be those of SETUP */
static void hear(struct client *c)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(WIRE_FDS * sizeof(int))];
	} control;
	struct wire_reply head;
	struct iovec iov = { &head, sizeof(head) };
	int fds[WIRE_FDS], nr;

	for (;;) {
		struct msghdr msg = {
			.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control),
		};
		struct cmsghdr *cm;

		if (recvmsg(c->ours, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0)
			return;
		cm = CMSG_FIRSTHDR(&msg);
		if (!cm)
			continue;
		nr = (int)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(cm), (size_t)nr * sizeof(int));
		if (nr > WIRE_FD_LIGHT) {
			put_shared(c);
			memcpy(c->shared, fds, (size_t)nr * sizeof(int));
		} else {
			for (int i = 0; i < nr; i++)
				close(fds[i]);
		}
	}
}

/* As the thread of a connection does */
static void serve(struct client *c)
{
	struct kvd_reply r;
	int err;

	if (kvd_receive(c->theirs, &c->message, true) <= 0) {
		c->over = true;
	} else {
		err = kvd_request(c->s, &c->message, &r, arg);
		c->over = err || (!(c->message.head.flags & WIRE_QUIET) && kvd_send(c->theirs, &r));
	}
	kvd_message_let_go(&c->message);
	hear(c);
}

/* A message of body[], and have it served */
static void say(struct client *c, struct wire_request head, uint64_t bytes, uint32_t flags, uint32_t which)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(2 * sizeof(int))];
	} control = { 0 };
	struct iovec iov[] = { { &head, sizeof(head) }, { body, bytes } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
	int fds[2];
	uint32_t nr = make_fds(which, fds);

	head.flags |= flags & QUIET ? WIRE_QUIET : 0;
	head.bytes = bytes + (flags & LONGER ? 8 : 0);
	if (flags & PARCEL) {
		head.flags |= WIRE_PARCEL;
		if (!nr)
			nr = make_fds(1, fds);
		if (write(fds[0], body, bytes) < 0)
			head.bytes++;
		msg.msg_iovlen = 1;
	}
	if (nr) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(nr * sizeof(int));
		control.align = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(nr * sizeof(int)),
		};
		memcpy(CMSG_DATA(&control.align), fds, nr * sizeof(int));
	}
	c->over = sendmsg(c->ours, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0;
	while (nr)
		close(fds[--nr]);
	if (!c->over)
		serve(c);
}

static void say_ioctl(struct client *c, uint32_t number, uint32_t flags, uint32_t which)
{
	uint32_t known = kvctx_calls[number].known;
	size_t bytes = known + take_number(&c->in, 2) % 8192;

	take(&c->in, body, bytes);
	if (!(flags & SIZE))
		memcpy(body, &known, sizeof(known));
	say(c, (struct wire_request){ .nr = _IO(KVCTX_IOC_TYPE, number) }, wire_pad(bytes), flags, which);
}

/* Where a piece of @bytes goes; NULL: it is too long */
static void *put(uint64_t *at, uint64_t bytes)
{
	void *p = (uint8_t *)body + *at;

	if (wire_pad(bytes) > WIRE_INLINE_MAX - *at)
		return NULL;
	memset(p, 0, wire_pad(bytes));
	*at += wire_pad(bytes);
	return p;
}

static void make_op(struct client *c, struct kvctx_sqe *sqe)
{
	static const uint32_t lengths[] = { 0, 1, 4096, 8192, 65536, 65537, 131072, 1 << 20 };
	struct input *in = &c->in;

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = (uint8_t)(take_number(in, 1) % 16);
	sqe->prio = (uint8_t)(take_number(in, 1) % 4);
	sqe->flags = take_number(in, 2);
	sqe->user_data = take_number(in, 1);
	memset(&sqe->key, (int)take_number(in, 1) % 32, sizeof(sqe->key));
	sqe->length = lengths[take_number(in, 1) % 8];
	sqe->offset = take_number(in, 1) * 512;
	sqe->nr_segs = (uint16_t)(take_number(in, 1) % 8);
	sqe->lease_ms = take_number(in, 1);
	sqe->lease = take_number(in, 1);
	sqe->nr_keys = take_number(in, 1) % 16;
	sqe->crcs = take_number(in, 1) & 1;
	sqe->keys = sqe->nr_keys;
	if (sqe->nr_segs)
		sqe->segs = 1;
	/* anything else may be wrong with it, too */
	if (take_number(in, 1) == 255)
		take(in, (uint8_t *)sqe + take_number(in, 1) % sizeof(*sqe), 8);
}

/* What its pointers name. false: no room */
static bool put_operands(struct client *c, const struct kvctx_sqe *sqe, uint64_t *at)
{
	const struct wire_limits *l = &c->s->limits;
	uint64_t crcs = wire_crcs_in(sqe, l), keys = wire_keys(sqe, l);
	uint32_t nr = (uint32_t)(sqe->nr_segs && wire_segs(sqe, l) ? sqe->nr_segs : 0);
	struct kvctx_seg *segs = put(at, nr * sizeof(*segs));
	void *p;

	for (uint32_t i = 0; segs && i < nr; i++) {
		segs[i].mem = take_number(&c->in, 1) % 4;
		segs[i].offset = take_number(&c->in, 1) * 1024;
		segs[i].length = (uint32_t)(i + 1 < nr ? sqe->length / nr : sqe->length - sqe->length / nr * i);
	}
	if (!segs)
		return false;
	p = put(at, crcs);
	if (p && crcs)
		take(&c->in, p, crcs);
	if (p)
		p = put(at, keys);
	if (p && keys)
		take(&c->in, p, keys);
	return p;
}

static void say_batch(struct client *c, uint32_t flags, uint32_t which)
{
	struct kvctx_submit *submit = (void *)body;
	uint64_t at = 0;
	struct kvctx_sqe *sqes;

	put(&at, sizeof(*submit));
	submit->size = sizeof(*submit);
	submit->nr = 1 + take_number(&c->in, 1) % OPS;
	submit->sqes = 1;
	sqes = put(&at, submit->nr * sizeof(*sqes));
	for (uint32_t i = 0; i < submit->nr; i++)
		make_op(c, &sqes[i]);
	for (uint32_t i = 0; i < submit->nr; i++)
		if (!put_operands(c, &sqes[i], &at))
			return;
	say(c, (struct wire_request){ .nr = KVCTX_IOC_SUBMIT }, at, flags, which);
}

static void say_cancel(struct client *c, uint32_t flags)
{
	struct kvctx_sqe *sqe = (void *)body;
	uint64_t at = 0, *names;
	uint32_t nr = take_number(&c->in, 1) % 8;

	put(&at, sizeof(*sqe));
	sqe->opcode = KVCTX_OP_CANCEL;
	sqe->flags = take_number(&c->in, 1);
	names = put(&at, nr * sizeof(*names));
	while (nr)
		names[--nr] = take_number(&c->in, 1);
	say(c, (struct wire_request){ .nr = WIRE_CANCEL }, at, flags, 0);
}

static void say_raw(struct client *c, uint32_t flags, uint32_t which)
{
	struct wire_request head = { .nr = take_number(&c->in, 4) };
	size_t bytes = take_number(&c->in, 2) % 4096;

	head.flags = take_number(&c->in, 1);
	take(&c->in, body, bytes);
	say(c, head, bytes, flags, which);
}

static void scribble(struct client *c, uint32_t which)
{
	uint64_t bytes = 8;
	off_t at = (off_t)take_number(&c->in, 1) * 4;
	uint8_t what[8];

	take(&c->in, what, bytes);
	if (c->shared[which % WIRE_FDS] >= 0 && pwrite(c->shared[which % WIRE_FDS], what, bytes, at) < 0)
		return;
}

static void say_setup(struct client *c, uint32_t flags)
{
	struct kvctx_setup setup = {
		.size = sizeof(setup), .arena_bytes = ARENA, .cq_entries = 16, .slot_bytes = flags & SLOTS ? 65536 : 0,
		.nr_slots = flags & SLOTS ? 2 : 0, .flags = flags & SIGNAL ? KVCTX_SETUP_EVENTFD : 0,
	};

	memcpy(body, &setup, sizeof(setup));
	say(c, (struct wire_request){ .nr = KVCTX_IOC_SETUP }, sizeof(setup), 0, flags & SIGNAL ? 3 : 0);
}

static void say_next(struct client *c)
{
	uint32_t kind = take_number(&c->in, 1) % KINDS, flags = take_number(&c->in, 1), which = take_number(&c->in, 1);

	switch (kind) {
	case BATCH:
		say_batch(c, flags, which);
		break;
	case CANCEL:
		say_cancel(c, flags);
		break;
	case LIGHT:
		say(c, (struct wire_request){ .nr = WIRE_LIGHT }, 0, flags | QUIET, 0);
		break;
	case RAW:
		say_raw(c, flags, which);
		break;
	case SCRIBBLE:
		scribble(c, which);
		break;
	default:
		say_ioctl(c, kind, flags, which);
	}
}

static void session_ended(void *unused)
{
	(void)unused;
	sem_post(&ended);
}

static void client_end(struct client *c)
{
	struct timespec until;

	kvd_session_close(c->s, session_ended, NULL);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_SECONDS;
	while (sem_timedwait(&ended, &until))
		if (errno != EINTR)
			abort();
	kvd_message_free(&c->message);
	put_shared(c);
	close(c->ours);
	close(c->theirs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct client c = { .in = { data, size } };
	uint32_t flags = take_number(&c.in, 1);
	int pair[2];

	memset(c.shared, -1, sizeof(c.shared));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) || kvd_message_init(&c.message) ||
	    kvd_session_open(path, flags & RDONLY ? O_RDONLY : O_RDWR, 0, &c.s))
		abort();
	c.ours = pair[0];
	c.theirs = pair[1];
	if (!(flags & NO_SETUP))
		say_setup(&c, flags);
	for (int i = 0; i < MESSAGES && c.in.left && !c.over; i++)
		say_next(&c);
	client_end(&c);
	return 0;
}
