// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Telling who operates a pool which pages come and go: with a lag of KVCTX_WATCH_MS, and no more than KVC_WATCHED_MAX
 * of them each time. What is told of one page keeps its order; what is told of different ones need not.
 */
#include "session/watch.h"
#include "session/req.h"

#define WATCH_STEP	64U		/* taken under one lock */

bool kvctx_watch_take(struct kvc_pool *p, struct kvctx_watch *w)
{
	u32 n;

	w->nr = 0;
	w->at = 0;
	while (w->nr < KVC_WATCHED_MAX) {
		n = kvc_watched_take(p, &w->watcher, w->taken + w->nr, min(KVC_WATCHED_MAX - w->nr, WATCH_STEP),
				     &w->lost);
		if (!n)
			break;
		w->nr += n;
	}
	return w->nr;
}

static bool watch_alike(const struct kvc_watched *a, const struct kvc_watched *b)
{
	return a->slot == b->slot && a->epoch == b->epoch && !memcmp(a->keyspace, b->keyspace, KVC_KEYSPACE_LEN);
}

static void watch_gather(struct kvctx_watch *w, const struct kvc_watched *first)
{
	u32 i;

	memcpy(w->keyspace, first->keyspace, KVC_KEYSPACE_LEN);
	w->nr_pages = 0;
	for (i = w->at; i < w->nr && w->nr_pages < KVCTX_WATCH_PAGES; i++) {
		struct kvc_watched *from = &w->taken[i];

		if (!from->event.kind || !watch_alike(from, first))
			continue;
		kvctx_event_from(&w->pages[w->nr_pages++], &from->event);
		from->event.kind = 0;
	}
}

/* Of a tenant that was removed meanwhile nothing is told: these are lost. */
bool kvctx_watch_next(struct kvc_pool *p, struct kvctx_watch *w)
{
	for (; w->at < w->nr; w->at++) {
		struct kvc_watched first = w->taken[w->at];

		if (!first.event.kind)
			continue;
		watch_gather(w, &first);
		if (kvc_tenant_name(p, first.slot, first.epoch, w->tenant))
			return true;
		w->lost += w->nr_pages;
	}
	return false;
}
