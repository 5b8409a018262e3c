/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A trace: requests in the order of arrival, each a list of page ids in prefix order. On disk it is JSON Lines, one
 * request a line, as published with Mooncake (FAST'25):
 *
 *   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353, 2354]}
 *
 * Equal ids mean an equal prefix up to and including that block. Only hash_ids is needed to replay.
 */
#ifndef KVCTX_WORKLOAD_TRACE_H
#define KVCTX_WORKLOAD_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_ABSENT	UINT64_MAX		/* a length or timestamp that the trace does not tell */
#define TRACE_LINE_MAX	(16UL << 20)		/* longest line in bytes */
#define TRACE_REASON	256			/* bytes of a reason, with its NUL */

struct trace_request {
	uint64_t timestamp;	/* milliseconds */
	uint64_t input_length;	/* tokens */
	uint64_t output_length;
	size_t first;		/* index of its first id in trace.ids */
	size_t nr;		/* ids, at least 1 */
};

struct trace {
	struct trace_request *requests;
	size_t nr_requests;
	size_t room_requests;
	uint64_t *ids;
	size_t nr_ids;
	size_t room_ids;
	size_t longest;		/* ids of the longest request */
};

/* A parse stopped at @line (from 1) because of @reason, which starts in lower case and ends without a stop */
struct trace_error {
	size_t line;
	char reason[TRACE_REASON];
};

void trace_init(struct trace *t);
void trace_free(struct trace *t);

static inline const uint64_t *trace_ids(const struct trace *t, const struct trace_request *r)
{
	return t->ids + r->first;
}

/* Room for one more element in a growing array of @nr. 0 or -ENOMEM */
int make_room(void **array, size_t nr, size_t *room, size_t size);

/*
 * Start a request and add ids to it; readers and generators use these. 0 or -ENOMEM, after which the trace can only
 * be freed.
 */
int trace_begin(struct trace *t, uint64_t timestamp, uint64_t input_length, uint64_t output_length);
int trace_add_id(struct trace *t, uint64_t id);

/* Forget all but the first @nr requests */
void trace_cut(struct trace *t, size_t nr);

/*
 * Read at most @limit requests (0: all) of @in, which is only read as far as that. 0; -EINVAL with @err filled in when
 * a line is malformed, when there is no request at all or when reading fails; -ENOMEM, also with @err. On failure
 * nothing is to be used of the trace; free it.
 */
int trace_read(struct trace *t, FILE *in, size_t limit, struct trace_error *err);

/* 0 or -errno */
int trace_write(const struct trace *t, FILE *out);

#endif
