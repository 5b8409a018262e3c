/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * An operation, as far as it concerns the files here: what was asked for, and what it waits in. Whoever serves has it
 * inside a structure of its own, and gives the functions that are declared here as the server's.
 *
 * It has one owner at a time and no lock; while it waits, its owner is what it waits in.
 */
#ifndef KVCTX_REQ_H
#define KVCTX_REQ_H

#include "core.h"
#include "session/session.h"

#define KVCTX_NSEC_PER_MS	1000000ULL

/* Of an operation whose tenant has a limit: is it in flight? */
enum kvctx_pace_state {
	KVCTX_PACE_NONE,		/* it has none, or has not begun */
	KVCTX_PACE_WENT,
	KVCTX_PACE_PARKED,		/* it went, and waits for space since */
	KVCTX_PACE_AGAIN,		/* and has its place now */
};

struct kvctx_req {
	/* What was asked for */
	u64 user_data;
	u32 flags;
	u8 opcode;			/* enum kvctx_opcode */
	u8 prio;			/* enum kvctx_prio, not DEFAULT */
	u16 tenant;			/* the slot of the session's */
	u32 length;
	u64 offset;
	union {
		u32 depth;
		u32 nr_keys;		/* MATCH */
	};
	u32 lease_ms;
	u8 key[KVC_KEY_LEN] __aligned(8);
	u64 since;			/* SUBMIT took it then, os_now() */
	u64 deadline;			/* OS_NEVER: none */
	union {
		u32 *crcs;		/* STORE: the caller's, a copy; NULL: none came */
		struct kvctx_key *keys;	/* MATCH: likewise */
	};
	u64 barred;			/* STORE: members that cannot have it, a bit each */
	u64 crcs_to;			/* LOAD: where the caller wants them, while SUBMIT runs; 0: nowhere */

	struct {			/* under the lock of what it waits in, see wait.h */
		struct list_head node;
		struct list_head turn;	/* among those of its tenant and rank, see turn.c */
		bool queued;
		bool passed;		/* those behind it go before it, see park.c */
		bool waited;		/* it is not in the hands of who submitted it any more */
		int err;		/* why it waits no longer */
		u32 bytes;		/* for a turn: that it will move */
		union {
			u64 since;	/* likewise, and for its pace */
			const struct kvctx_tried *tried;	/* while pace.on_way */
		};
	} wait;
	struct {			/* see pace.c */
		u8 state;		/* enum kvctx_pace_state */
		bool on_way;		/* from its lane to what it waits for next; wait.tried says who that is */
		u32 bytes;		/* that it was charged for, */
		u32 generation;		/* under that limit */
		u64 cost;		/* by so many ns */
	} pace;
	struct kvctx_slot *slot;	/* that it waits for, copies from or fills, see slots.h */
};

/* Of a queue where priorities have a rank each */
static inline u32 kvctx_req_rank(const struct kvctx_req *req)
{
	return req->prio - KVCTX_PRIO_URGENT;
}

/* A key as the engine wants it: the same bytes on every machine. Converts in place. */
static inline const u8 *kvctx_key_bytes(struct kvctx_key *key)
{
	key->qualifier = (__force __u64)cpu_to_le64(key->qualifier);
	return (const u8 *)key;
}

os_static_assert(sizeof(struct kvctx_key) == KVC_KEY_LEN, "a key is the engine's");

/* The engine's events are the caller's, but for the byte order of the key's qualifier. */
static inline void kvctx_event_from(struct kvctx_event *to, const struct kvc_event *from)
{
	memcpy(to, from, sizeof(*to));
	to->key.qualifier = le64_to_cpu((__force __le64)to->key.qualifier);
}

os_static_assert(sizeof(struct kvc_event) == sizeof(struct kvctx_event), "an event is the engine's");
os_static_assert(offsetof(struct kvc_event, kind) == offsetof(struct kvctx_event, kind), "its kind");
os_static_assert(offsetof(struct kvc_event, length) == offsetof(struct kvctx_event, length), "its length");
os_static_assert((u32)KVC_EVENT_STORED == (u32)KVCTX_EVENT_STORED &&
		 (u32)KVC_EVENT_EVICTED == (u32)KVCTX_EVENT_EVICTED &&
		 (u32)KVC_EVENT_DELETED == (u32)KVCTX_EVENT_DELETED &&
		 (u32)KVC_EVENT_DROPPED == (u32)KVCTX_EVENT_DROPPED &&
		 (u32)KVC_EVENT_MEMBER_LOST == (u32)KVCTX_EVENT_MEMBER_LOST, "kinds of events");

/* The server's. No lock is held, but where it says so */
void kvctx_req_complete(struct kvctx_req *req, s32 res, u32 flags);	/* its session may be gone on return */
int kvctx_req_attempt(struct kvctx_req *req);	/* 0: taken over; -EAGAIN: again when there is space; another error */
void kvctx_req_go(struct kvctx_req *req, int err);	/* its turn came, or never will */
/* Would nobody take the result any more, or can it not be had? 0, or why. The lock of what it waits in */
int kvctx_req_unwanted(struct kvctx_req *req);
/* Of its tenant. The same lock, or none */
u32 kvctx_req_weight(const struct kvctx_req *req);	/* never 0 */
struct kvc_pace kvctx_req_pace(const struct kvctx_req *req);
/* The session that knows it by its user_data, or NULL. The same lock, or its owner's */
const void *kvctx_req_owner(const struct kvctx_req *req);

#endif
