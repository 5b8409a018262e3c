/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The account of a crash test: what has been promised, on a disk of its own that loses nothing.
 *
 * Vocabulary
 *   life      a pool from its format on, over several power cuts
 *   worker    a thread with a session and keys of its own
 *   version   of a key: 1, 2...; each has bytes of its own. A page is only replaced after it was deleted
 *   step      what became of a key so far, as a number that only grows: 2v - 1: version v is stored, 2v: it is deleted
 *
 * Before a worker submits operations it writes an INTENT with the steps that they lead to; after a FLUSH has completed,
 * a PROMISE with the steps that it covers. Each begins with a boot's STATE, one block a worker, written when the pool
 * was verified. Whoever reads the account knows for each key between which steps the pool has to be.
 *
 * On the disk: two halves, used alternately by the boots that got so far. A block is 4096 bytes, under a CRC32C, and
 * written at once. Of a half only what belongs to its newest STATE counts.
 */
#ifndef CRASH_ACCOUNT_H
#define CRASH_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#define CRASH_WORKERS		4
#define CRASH_KEYS		160	/* of one worker */
#define CRASH_BLOCK		4096

enum crash_record {
	CRASH_STATE	= 1,
	CRASH_INTENT	= 2,
	CRASH_PROMISE	= 3,
};

/* What is known of a key. "Durable" means: by a FLUSH, or because it was found after a power cut. */
struct crash_key {
	uint32_t	key;
	uint32_t	least;		/* newest durable step */
	uint32_t	most;		/* newest step that was meant */
	uint32_t	deleted;	/* newest durable step that is a delete */
	uint32_t	version;	/* newest version that was ever meant */
	uint32_t	reserved;
};

struct crash_state {
	struct crash_key	keys[CRASH_WORKERS][CRASH_KEYS];
	uint64_t		stored;		/* bytes that this life's stores have taken on media, at most */
};

/* Open the account's disk; ends the program when it cannot. */
void account_open(const char *path, uint64_t life);
/* What this life's account says; false: it has none */
bool account_read(struct crash_state *s);
/* Begin a new half with this state. */
void account_begin(const struct crash_state *s);
/* Append a record; @stored: see above. False: the half is full. MT-safe, one thread a worker. */
bool account_append(enum crash_record type, unsigned int worker, const struct crash_key *keys, unsigned int nr,
		    uint64_t stored);

#endif
