// SPDX-License-Identifier: GPL-2.0
/*
 * Who asks to be told of pages hears what the kernel's group "pages" does (kmod/control/event.c), in the same messages.
 *
 * A pool is watched while somebody listens. What the engine tells is gathered and sent by the pool's attendant.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "engine.h"
#include "pools.h"
#include "session/watch.h"

struct kvd_pages {
	struct kve_job job;
	struct kvd_pool *pool;
	bool on;			/* pages_lock: it is watched */
	struct kvctx_watch watch;	/* of the job */
};

static pthread_mutex_t pages_lock = PTHREAD_MUTEX_INITIALIZER;	/* outside of events.c's, and of the engine's */

static void pages_wake(struct kvc_watcher *w)
{
	struct kvd_pages *pages = container_of(w, struct kvd_pages, watch.watcher);

	kve_job_queue(pages->pool->engine, &pages->job, kve_now() + KVCTX_WATCH_MS * (KVE_NSEC / 1000));
}

static int pages_fill(struct nl_msg *msg, const struct kvd_pool *p, const struct kvctx_watch *w)
{
	int nle = nla_put_string(msg, KVCTX_A_POOL, p->name);

	nle = nle ?: nla_put_string(msg, KVCTX_A_TENANT, w->tenant);
	nle = nle ?: nla_put(msg, KVCTX_A_KEYSPACE, KVC_KEYSPACE_LEN, w->keyspace);
	nle = nle ?: nla_put(msg, KVCTX_A_PAGES, (int)(w->nr_pages * sizeof(*w->pages)), w->pages);
	if (!nle && w->lost)
		nle = nla_put_u64(msg, KVCTX_A_LOST, w->lost);
	return nle;
}

static void pages_tell(struct kvd_pages *pages)
{
	struct kvctx_watch *w = &pages->watch;
	struct nl_msg *msg = kvd_event_new(KVCTX_CMD_PAGES);

	if (!msg || pages_fill(msg, pages->pool, w)) {
		w->lost += w->nr_pages;
		nlmsg_free(msg);
		return;
	}
	kvd_event_send(msg);
	w->lost = 0;
}

static bool pages_stay(struct kvd_pages *pages)
{
	bool heard;

	pthread_mutex_lock(&pages_lock);
	heard = kvd_events_heard(true);
	if (!heard && pages->on)
		kvc_unwatch(pages->pool->engine->core);
	pages->on &= heard;
	pthread_mutex_unlock(&pages_lock);
	return heard;
}

static void pages_work(struct kve_job *job)
{
	struct kvd_pages *pages = container_of(job, struct kvd_pages, job);
	struct kvc_pool *core = pages->pool->engine->core;
	bool more = kvctx_watch_take(core, &pages->watch);

	if (!pages_stay(pages)) {
		pages->watch.lost = 0;
		return;
	}
	while (kvctx_watch_next(core, &pages->watch))
		pages_tell(pages);
	if (more)
		pages_wake(&pages->watch.watcher);
}

static void pages_end(struct kvd_pool *p)
{
	kvc_unwatch(p->engine->core);
	kve_job_cancel(p->engine, &p->pages->job);
	free(p->pages);
	p->pages = NULL;
}

/* pages_lock */
static int pages_start(struct kvd_pool *p)
{
	struct kvd_pages *pages = p->pages;

	if (!pages) {
		pages = calloc(1, sizeof(*pages));
		if (!pages)
			return -ENOMEM;
		pages->pool = p;
		pages->job.fn = pages_work;
		pages->watch.watcher.wake = pages_wake;
		p->end_pages = pages_end;
		p->pages = pages;
	}
	if (!pages->on)
		kvc_watch(p->engine->core, &pages->watch.watcher);
	pages->on = true;
	return 0;
}

int kvd_pages_begin(struct kvd_pool *p)
{
	int err = 0;

	pthread_mutex_lock(&pages_lock);
	if (kvd_events_heard(true))
		err = pages_start(p);
	pthread_mutex_unlock(&pages_lock);
	return err;
}

int kvd_pages_begin_all(void)
{
	struct kvd_pool **pools;
	int nr = kvd_pools_hold(&pools), err = 0;

	for (int i = 0; i < nr; i++) {
		err = err ?: kvd_pages_begin(pools[i]);
		kvd_pool_put(pools[i], false);
	}
	if (nr < 0)
		return nr;
	free(pools);
	return err;
}
