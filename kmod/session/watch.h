/* SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later */
/*
 * What the watcher of a pool's pages tells, in messages of one tenant and keyspace each. See watch.c.
 */
#ifndef KVCTX_WATCH_H
#define KVCTX_WATCH_H

#include "core.h"

#include <linux/kvctx.h>

#define KVCTX_WATCH_MS		100U	/* so long what comes and goes is gathered */
#define KVCTX_WATCH_PAGES	256U	/* of a message */

struct kvctx_watch {
	struct kvc_watcher watcher;	/* its owner sets wake */
	u64 lost;			/* that nobody was told of yet */
	u32 nr;				/* taken */
	u32 at;				/* all before it are told */
	struct kvc_watched taken[KVC_WATCHED_MAX];	/* kind 0: told */
	/* the message */
	char tenant[KVC_NAME_MAX];
	u8 keyspace[KVC_KEYSPACE_LEN];
	u32 nr_pages;
	struct kvctx_event pages[KVCTX_WATCH_PAGES];
};

/*
 * Take what came since; false: nothing, and the watcher will be woken. Then next puts a message together of what was
 * taken, until it returns false. One thread at a time. No lock is held.
 */
bool kvctx_watch_take(struct kvc_pool *p, struct kvctx_watch *w);
bool kvctx_watch_next(struct kvc_pool *p, struct kvctx_watch *w);

#endif
