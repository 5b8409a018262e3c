/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * What a session is without I/O, for whoever serves the contract of uapi/linux/kvctx.h.
 *
 * Here lives what such a server decides before it moves anything: which operations are valid (sqe.c), which calls are
 * (call.c), the limits that it reports, what of a page is read for a LOAD; who waits for space or a turn (wait.h), who
 * gets a slot (slots.c), what is leased (lease.c) and what a MATCH finds (match.c). The module and user space build the
 * same files: their platform is the engine's os.h, they name no other header of the kernel's, and they call the engine
 * and what req.h says the server has.
 */
#ifndef KVCTX_SESSION_H
#define KVCTX_SESSION_H

#include "os.h"

#include <linux/kvctx.h>

/* Limits that INFO reports */
#define KVCTX_SEGS_MAX		4096U
#define KVCTX_BATCH_MAX		4096U
#define KVCTX_CQ_MAX		65536U
#define KVCTX_MATCH_MAX		65536U
#define KVCTX_LEASE_MS_MAX	60000U
#define KVCTX_LEASES_MAX	65536U
#define KVCTX_MEM_MAX		1024U
#define KVCTX_SLOTS_MAX		65536U
#define KVCTX_EVENTS_MAX	32768U		/* of the engine, too */

/* What sets one session's operations apart from another's; does not change while it is open */
struct kvctx_rights {
	bool rdonly;			/* it may not write */
	bool verified;			/* the tenant refuses what would not verify */
	bool encrypted;			/* its pages are: what is on media has CRCs, what callers see has none */
	u32 page_max;			/* bytes of the longest page */
};

/* What an opcode may use */
struct kvctx_rule {
	bool known;
	bool writes;			/* refused in a read-only session */
	bool keyed;			/* refused when the key of an encrypted tenant may not be used any more */
	u8 prio;			/* what KVCTX_PRIO_DEFAULT means */
	u32 flags;			/* KVCTX_OP_* */
	u32 fields;			/* of those that not every opcode uses, see sqe.c */
};

#define KVCTX_OPS		(KVCTX_OP_CANCEL + 1)

/* Of MATCH's flags in those of the operation */
#define KVCTX_OP_MATCH_SHIFT	8

extern const struct kvctx_rule kvctx_rules[KVCTX_OPS];		/* by opcode */

/* The priority that an operation has; @urgent: the tenant's may be */
static inline u8 kvctx_prio_of(const struct kvctx_rule *rule, u8 asked, bool urgent)
{
	u8 prio = asked ? asked : rule->prio;

	return prio == KVCTX_PRIO_URGENT && !urgent ? KVCTX_PRIO_NORMAL : prio;
}

void kvctx_rule_masks(u64 *ops, u64 *flags);
int kvctx_match_keys_check(u32 flags, u32 nr_keys, u32 lease_ms);
int kvctx_sqe_check(const struct kvctx_sqe *sqe, const struct kvctx_rule *rule, const struct kvctx_rights *rights);

/* An ioctl: its structure, and when it may be called */
struct kvctx_call {
	u32 min;			/* first published size of the structure */
	u32 known;
	u32 flags;
	bool ready;			/* only after SETUP */
	bool out;			/* the structure is copied back */
};

union kvctx_arg {
	struct {
		u32 size;
		u32 flags;
	};
	struct kvctx_info info;
	struct kvctx_setup setup;
	struct kvctx_mem_register reg;
	struct kvctx_mem_unregister unreg;
	struct kvctx_submit submit;
	struct kvctx_wait wait;
	struct kvctx_match match;
	struct kvctx_paths paths;
	struct kvctx_events events;
};

#define KVCTX_CALLS		(_IOC_NR(KVCTX_IOC_EVENTS) + 1)

extern const struct kvctx_call kvctx_calls[KVCTX_CALLS];	/* row n is _IO(KVCTX_IOC_TYPE, n) */

void kvctx_info_limits(struct kvctx_info *info);
int kvctx_setup_check(const struct kvctx_setup *setup, u64 memory_max, u64 slot_bytes_max, u32 page);
int kvctx_match_check(const struct kvctx_match *match);
int kvctx_events_check(const struct kvctx_events *events);

static inline int kvctx_submit_check(const struct kvctx_submit *submit)
{
	if (submit->reserved || !submit->nr || submit->nr > KVCTX_BATCH_MAX)
		return -EINVAL;
	return submit->timeout_ns && !submit->wait_nr ? -EINVAL : 0;
}

/*
 * What is read of a page for a LOAD
 *
 *	|<------------------------- span, read ------------------------>|
 *	| head   |            the caller's range             | tail     | padding
 *	^ start: chunk boundary                               chunk boundary or the page's end
 */
struct kvctx_frame {
	u32 start;			/* inside the page */
	u32 head, tail;			/* bytes that the caller did not ask for */
	u32 span;
	u32 bytes;			/* with the padding: whole blocks */
};

/*
 * To read [@from, + @length) of a page. @chunk: widen it to whole chunks, of so many bytes, for their check; 0: to
 * whole blocks, of @unit bytes, and what is read behind the range is padding. Both are powers of two, and a page is
 * far from 4 GiB.
 */
static inline struct kvctx_frame kvctx_frame_of(u32 from, u32 length, u32 page_length, u32 chunk, u32 unit)
{
	u32 step = chunk ? chunk : unit, end = from + length, stop = end;
	struct kvctx_frame f = { .start = from & ~(step - 1) };

	if (chunk)
		stop = min((end + step - 1) & ~(step - 1), page_length);
	f.head = from - f.start;
	f.tail = stop - end;
	f.span = stop - f.start;
	f.bytes = (f.span + unit - 1) & ~(unit - 1);
	return f;
}

#endif
