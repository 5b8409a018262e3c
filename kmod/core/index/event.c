// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Events: what listeners are told of the pages of a domain, and the pool's watcher of those of all.
 *
 * A domain that somebody listens to has a ring of its newest events, whose positions are free-running; each listener
 * has a position of its own in it. Who adds one waits for nobody: the oldest is overwritten. All of it, the ring's
 * existence too, is under domain->lock, which is held for as long as it takes to copy a few events. The chain of all
 * rings is under domains.lock. The watcher has its own ring, under watch_lock.
 */
#include "index/index.h"

#define EVENTS_STEP	16U		/* taken under one lock, by way of the stack */

struct kvc_events {
	struct kvc_events *next;	/* domains.lock */
	struct kvc_domain *domain;
	struct kvc_listener *listeners;
	u64	end;			/* position behind the newest */
	bool	idle;			/* some listener is */
	struct kvc_event ring[KVC_EVENTS_MAX];
};

os_static_assert((KVC_EVENTS_MAX & (KVC_EVENTS_MAX - 1)) == 0, "places of a ring");

/* Domain locked. */
static void wake_idle(struct kvc_events *ev)
{
	struct kvc_listener *l;

	for (l = ev->listeners; l; l = l->next) {
		if (!l->idle)
			continue;
		l->idle = false;
		if (l->wake)
			l->wake(l);
	}
	ev->idle = false;
}

static void add(struct kvc_domain *d, const struct kvc_event *event)
{
	struct kvc_events *ev;

	os_lock_inner(&d->lock);
	ev = d->events;
	if (ev) {
		ev->ring[ev->end++ % KVC_EVENTS_MAX] = *event;
		if (ev->idle)
			wake_idle(ev);
	}
	os_unlock_inner(&d->lock);
}

static void add_watched(struct kvc_pool *p, const struct kvc_domain *d, const struct kvc_event *event)
{
	struct kvc_watched *to;
	struct kvc_watcher *w;

	os_lock_inner(&p->domains.watch_lock);
	w = p->domains.watcher;
	if (w) {
		to = &w->ring[w->end++ % KVC_WATCHED_MAX];
		to->slot = d->slot;
		to->epoch = d->epoch;
		memcpy(to->keyspace, d->keyspace, KVC_KEYSPACE_LEN);
		to->event = *event;
		if (w->idle)
			w->wake(w);
		w->idle = false;
	}
	os_unlock_inner(&p->domains.watch_lock);
}

void kvc_event_add(struct kvc_pool *p, struct kvc_domain *d, enum kvc_event_kind kind, const struct kvc_entry *e)
{
	struct kvc_event event = { .kind = kind, .length = e->length };

	memcpy(event.key, e->key, KVC_KEY_LEN);
	if (READ_ONCE(d->events))
		add(d, &event);
	if (READ_ONCE(p->domains.watcher))
		add_watched(p, d, &event);
}

void kvc_event_lost(struct kvc_pool *p)
{
	static const struct kvc_event event = { .kind = KVC_EVENT_MEMBER_LOST };
	struct kvc_events *ev;

	os_lock(&p->domains.lock);
	for (ev = p->domains.events; ev; ev = ev->next)
		add(ev->domain, &event);
	os_unlock(&p->domains.lock);
}

/* Domains locked. */
static void update_heard(struct kvc_pool *p)
{
	WRITE_ONCE(p->heard, p->domains.events || p->domains.watcher);
}

static void set_watcher(struct kvc_pool *p, struct kvc_watcher *w)
{
	os_lock(&p->domains.lock);
	os_lock_inner(&p->domains.watch_lock);
	WRITE_ONCE(p->domains.watcher, w);
	if (w) {
		w->end = 0;
		w->seen = 0;
		w->idle = true;
	}
	os_unlock_inner(&p->domains.watch_lock);
	update_heard(p);
	os_unlock(&p->domains.lock);
}

void kvc_watch(struct kvc_pool *p, struct kvc_watcher *w)
{
	set_watcher(p, w);
}

void kvc_unwatch(struct kvc_pool *p)
{
	set_watcher(p, NULL);
}

u32 kvc_watched_take(struct kvc_pool *p, struct kvc_watcher *w, struct kvc_watched *out, u32 max, u64 *lost)
{
	u64 ahead;
	u32 n, i;

	os_lock(&p->domains.watch_lock);
	ahead = w->end - w->seen;
	if (ahead > KVC_WATCHED_MAX) {
		*lost += ahead - KVC_WATCHED_MAX;
		ahead = KVC_WATCHED_MAX;
		w->seen = w->end - ahead;
	}
	n = min_t(u64, ahead, max);
	for (i = 0; i < n; i++)
		out[i] = w->ring[w->seen++ % KVC_WATCHED_MAX];
	w->idle = !n;
	os_unlock(&p->domains.watch_lock);
	return n;
}

int kvc_listen(struct kvc_pool *p, struct kvc_domain *d, struct kvc_listener *l)
{
	struct kvc_events *fresh = os_alloc_charged(sizeof(*fresh));

	if (!fresh)
		return -ENOMEM;
	os_lock(&p->domains.lock);
	os_lock_inner(&d->lock);
	if (!d->events) {
		fresh->domain = d;
		fresh->listeners = NULL;
		fresh->end = 0;
		fresh->next = p->domains.events;
		p->domains.events = fresh;
		WRITE_ONCE(d->events, fresh);
		update_heard(p);
		fresh = NULL;
	}
	l->domain = d;
	l->seen = d->events->end;
	l->lost = 0;
	l->idle = true;
	l->next = d->events->listeners;
	d->events->listeners = l;
	d->events->idle = true;
	os_unlock_inner(&d->lock);
	os_unlock(&p->domains.lock);
	os_free(fresh);
	return 0;
}

void kvc_unlisten(struct kvc_pool *p, struct kvc_listener *l)
{
	struct kvc_events *unheard = NULL, **chain = &p->domains.events;
	struct kvc_domain *d = l->domain;
	struct kvc_listener **link;

	os_lock(&p->domains.lock);
	os_lock_inner(&d->lock);
	for (link = &d->events->listeners; *link != l; link = &(*link)->next)
		;
	*link = l->next;
	if (!d->events->listeners) {
		unheard = d->events;
		WRITE_ONCE(d->events, NULL);
		while (*chain != unheard)
			chain = &(*chain)->next;
		*chain = unheard->next;
		update_heard(p);
	}
	os_unlock_inner(&d->lock);
	os_unlock(&p->domains.lock);
	os_free(unheard);
}

/* Copy up to @max that @l has not seen; without any it is idle. */
static u32 look(struct kvc_listener *l, struct kvc_event *out, u32 max)
{
	struct kvc_domain *d = l->domain;
	struct kvc_events *ev;
	u64 ahead;
	u32 n, i;

	os_lock(&d->lock);
	ev = d->events;
	ahead = ev->end - l->seen;
	if (ahead > KVC_EVENTS_MAX) {
		l->lost += ahead - KVC_EVENTS_MAX;
		ahead = KVC_EVENTS_MAX;
		l->seen = ev->end - ahead;
	}
	n = min_t(u64, ahead, max);
	for (i = 0; i < n; i++)
		out[i] = ev->ring[(l->seen + i) % KVC_EVENTS_MAX];
	if (!n) {
		l->idle = true;
		ev->idle = true;
	}
	os_unlock(&d->lock);
	return n;
}

int kvc_events_take(struct kvc_listener *l, u32 max, u64 *lost,
		    bool (*give)(void *arg, const struct kvc_event *events, u32 nr), void *arg)
{
	struct kvc_event some[EVENTS_STEP];
	u32 taken = 0, n;

	while (taken < max) {
		n = look(l, some, min(max - taken, EVENTS_STEP));
		if (!n)
			break;
		if (!give(arg, some, n)) {
			if (!taken)
				return -EFAULT;
			/* the rest is not read, but who read less than he asked for waits for the wake-up */
			if (l->wake)
				l->wake(l);
			break;
		}
		l->seen += n;
		taken += n;
		os_relax();
	}
	*lost = l->lost;
	l->lost = 0;
	return (int)taken;
}
