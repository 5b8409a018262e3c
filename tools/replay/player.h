/* SPDX-License-Identifier: GPL-2.0 */
/* Plays a trace against a session and counts. */
#ifndef KVCTX_REPLAY_PLAYER_H
#define KVCTX_REPLAY_PLAYER_H

#include "options.h"
#include "progress.h"
#include "session.h"
#include "stats.h"
#include "trace.h"

/*
 * Play all requests of @t in order, then flush. How it went is in @stats, which holds for the requests played so far
 * whatever happens; stats->completed tells whether that was all of them.
 */
void play(struct session *session, const struct trace *t, const struct options *o, struct stats *stats,
	  struct progress *progress);

#endif
