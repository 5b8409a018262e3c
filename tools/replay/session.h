/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A tenant's node as the player uses it: match a prefix, run a list of operations with so many of them in flight. All
 * calls into libkvctx are in session.c.
 *
 * The arena is divided into slots of one page each, so a page in memory is a slot number.
 */
#ifndef KVCTX_REPLAY_SESSION_H
#define KVCTX_REPLAY_SESSION_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/kvctx.h>

#include "options.h"

struct kvctx;

/* One operation: what to do, and how it went */
struct io {
	uint8_t opcode;		/* KVCTX_OP_STORE, _LOAD or _FLUSH */
	uint32_t depth;		/* STORE: position in the prefix, from 1 */
	size_t slot;
	struct kvctx_key key;
	int res;		/* as in struct kvctx_cqe; -ECANCELED: never submitted */
	uint32_t flags;
	uint64_t ns;		/* submit: the time; afterwards: what it took */
};

struct session {
	struct kvctx *ctx;
	uint8_t *arena;
	size_t stride;		/* bytes from slot to slot */
	size_t slots;
	uint64_t page_size;
	unsigned int depth;
	unsigned int lease_ms;
	uint64_t stall_ns;
	unsigned int match_max;
	uint32_t *leases;	/* held, of the last session_match() */
	size_t nr_leases;
	char pool[KVCTX_NAME_MAX];
	char tenant[KVCTX_NAME_MAX];
	const volatile sig_atomic_t *stop;	/* not zero: submit nothing more */
};

/*
 * Open @o->device for requests of at most @longest pages. 0; or the exit status, with the reason told on stderr.
 */
int session_open(struct session *s, const struct options *o, size_t longest,
		 const volatile sig_atomic_t *stop);
void session_close(struct session *s);

static inline uint8_t *session_slot(const struct session *s, size_t slot)
{
	return s->arena + slot * s->stride;
}

/*
 * Leading pages of @keys that are present, leased as far as the kernel has leases left; or -errno. The leases of the
 * match before have to be released first.
 */
long session_match(struct session *s, const struct kvctx_key *keys, size_t nr);

/* Release what session_match() leased. 0 or -errno */
int session_release(struct session *s);

/*
 * Run @nr operations in order, at most s->depth in flight, and wait for those submitted. 0 when each io tells how it
 * went; -errno when the session is of no more use: then operations may still be in flight, and only session_close()
 * may follow. -ETIMEDOUT: nothing completed for so long.
 */
int session_run(struct session *s, struct io *ios, size_t nr);

/* Make everything stored durable. 0 or -errno */
int session_flush(struct session *s);

#endif
