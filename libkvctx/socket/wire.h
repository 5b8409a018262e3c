/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What library and kvctxd say to each other over a Unix socket (SOCK_SEQPACKET), one connection a session.
 *
 * A request is a head and a body: the number of an ioctl of <linux/kvctx.h>, its structure by value, and behind it what
 * the structure's pointers name, in this order, each piece padded to 8 bytes:
 *   SUBMIT	sqes; then, operation by operation, segments, the CRCs that a STORE brings, the keys of a MATCH
 *   MATCH	keys
 * Pointers of the structures say only whether there is something. MEM_REGISTER names memory by a descriptor that comes
 * with the message: a memfd that cannot shrink; @addr is an offset in it. SETUP brings the caller's eventfd, if any.
 *
 * A reply is a head and a body: the structure as the ioctl leaves it, if it leaves anything, and behind it
 *   SUBMIT	for each LOAD with @crcs, in order, its CRCs
 *   MATCH	nr_keys lengths, if asked for; with ALL, the bitmap
 *   PATHS	rows
 *   EVENTS	nr events
 * A request that wants no reply (WIRE_QUIET) gets none; when it fails the daemon ends the connection. Nobody but a
 * misbehaving caller sees that: what the library sends so cannot fail but by operation, and operations have completions.
 *
 * CANCEL is a message of its own: it names operations by the caller's user_data, which the daemon does not know. The body
 * is the caller's sqe, and behind it the user_data that the operations have on the wire, 8 bytes each.
 *
 * A body longer than WIRE_INLINE_MAX comes in a memfd that goes with the message (WIRE_PARCEL), and is read from there.
 * A reply so long is sent only to a caller who has read all before it.
 *
 * The reply to SETUP brings descriptors, see enum wire_fd. Completions are read from the ring; KVCTX_IOC_WAIT needs the
 * daemon only to consume in a session opened read-only. Who sleeps asks on the door (struct wire_door) to have the bell
 * rung. Bell and light are sockets, since nothing that the other side does to a socket can make our sending sleep.
 *
 * The daemon's end: end of file on the socket, and on bell and light. The caller's: the same. A caller that ends a
 * session in order shuts its side down, and knows by the end of file that nothing moves any more.
 */
#ifndef KVS_WIRE_H
#define KVS_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include <linux/kvctx.h>

#define WIRE_VERSION		1U
#define WIRE_INLINE_MAX		65536U
#define WIRE_BODY_MAX		(16U << 20)
#define WIRE_ARG_MAX		4096U		/* longest structure, as a page is the kernel's limit */

/* Requests beside the ioctls, whose numbers are larger */
#define WIRE_OPEN		1U		/* first, once; struct wire_open. 0, -EACCES, -EPROTONOSUPPORT */
#define WIRE_LIGHT		2U		/* quiet: send a byte on the light */
#define WIRE_CANCEL		3U		/* see below; how many, or why none */
#define WIRE_CANCEL_MAX		4096U		/* names */

#define WIRE_QUIET		(1U << 0)
#define WIRE_PARCEL		(1U << 1)

struct wire_request {
	uint32_t nr;
	uint32_t flags;				/* WIRE_* */
	uint64_t bytes;				/* of the body */
};

struct wire_reply {
	int32_t ret;
	uint32_t flags;				/* WIRE_PARCEL */
	uint64_t bytes;
};

struct wire_open {
	uint32_t version;
	uint32_t flags;				/* O_RDONLY, O_RDWR */
};

/* Bytes of what a client stages through, which it registers as memory */
#define WIRE_STAGE_MIN		(32U << 20)
#define WIRE_STAGE_MAX		(128U << 20)

/* The reply to WIRE_OPEN: limits by which both sides know the lengths of what follows a structure */
struct wire_limits {
	uint64_t page_max;			/* bytes */
	uint64_t stage_max;			/* from WIRE_STAGE_MIN to WIRE_STAGE_MAX */
	uint32_t chunk_size, segs_max, batch_max, match_max, mem_max, events_max;
};

/* Descriptors of the reply to SETUP, in this order */
enum wire_fd {
	WIRE_FD_RING,
	WIRE_FD_DOOR,				/* one struct wire_door, writable */
	WIRE_FD_BELL,				/* readable: the door was answered */
	WIRE_FD_LIGHT,				/* readable: head and tail of the ring differ; once asked for */
	WIRE_FD_ARENA,				/* these two if there are any */
	WIRE_FD_SLOTS,
	WIRE_FDS
};

#define WIRE_DOOR_BYTES		4096U

/*
 * Before the caller sleeps it sets @wanted and looks at @tail; the daemon moves @tail and then takes @wanted. Both in
 * sequential consistency, so one of them sees the other's; the same with @lit, and with head of the ring. @tail follows the ring's, when the eventfd has been signalled.
 */
struct wire_door {
	uint64_t wanted;			/* 0, or WIRE_WANTED and the position from which on tail is wanted */
	uint32_t lit;				/* not 0: the light is in use */
	uint32_t tail;				/* by the daemon */
};

#define WIRE_WANTED		(1ULL << 32)

static inline uint64_t wire_pad(uint64_t bytes)
{
	return (bytes + 7) & ~7ULL;
}

static inline bool wire_moves(const struct kvctx_sqe *sqe, const struct wire_limits *l)
{
	return (sqe->opcode == KVCTX_OP_STORE || sqe->opcode == KVCTX_OP_LOAD || sqe->opcode == KVCTX_OP_MATCH) &&
	       sqe->length && sqe->length <= l->page_max && sqe->nr_segs <= l->segs_max;
}

/* Bytes of an operation's segments behind the structure; none of one that is refused whatever they are */
static inline uint64_t wire_segs(const struct kvctx_sqe *sqe, const struct wire_limits *l)
{
	return wire_moves(sqe, l) ? sqe->nr_segs * sizeof(struct kvctx_seg) : 0;
}

/* Bytes of the CRCs that a STORE brings */
static inline uint64_t wire_crcs_in(const struct kvctx_sqe *sqe, const struct wire_limits *l)
{
	if (!sqe->crcs || sqe->opcode != KVCTX_OP_STORE || !wire_moves(sqe, l))
		return 0;
	return ((sqe->length - 1) / l->chunk_size + 1) * sizeof(uint32_t);
}

/* Bytes of the keys of a MATCH */
static inline uint64_t wire_keys(const struct kvctx_sqe *sqe, const struct wire_limits *l)
{
	if (sqe->opcode != KVCTX_OP_MATCH || sqe->nr_keys > l->match_max || !wire_moves(sqe, l))
		return 0;
	return sqe->nr_keys * sizeof(struct kvctx_key);
}

static inline uint64_t wire_bitmap(uint32_t nr_keys)
{
	return ((uint64_t)nr_keys + 63) / 64 * sizeof(uint64_t);
}

/* Bytes of the CRCs that a LOAD gets */
static inline uint64_t wire_crcs_out(const struct kvctx_sqe *sqe, const struct wire_limits *l)
{
	if (!sqe->crcs || sqe->opcode != KVCTX_OP_LOAD || !wire_moves(sqe, l))
		return 0;
	return ((sqe->offset % l->chunk_size + sqe->length - 1) / l->chunk_size + 1) * sizeof(uint32_t);
}

#endif
