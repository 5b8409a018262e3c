// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Leases: pages that reclaim leaves alone for a while.
 *
 * A lease of a session is a set of pages under one id with one end: RELEASE, its time limit, which the attendant looks
 * after, or the session's close, whichever comes first. The table of ids, the heap of ends and the number of pages are
 * under session->lock; who unlinks a lease ends it, outside the lock.
 */
#include "session.h"

/* More ids than leases, and given in turn: one that was used lately is not used again so soon */
#define LEASE_IDS	(2 * KVCTX_LEASES_MAX)
#define LEASE_MS	(KVE_NSEC / 1000)

struct kve_lease {
	struct kve_heap_node end;	/* in session->lease_ends */
	u32 id;
	u32 nr;
	struct kvc_lease pages[];
};

struct kve_lease *kve_lease_alloc(u32 nr)
{
	return malloc(sizeof(struct kve_lease) + nr * sizeof(struct kvc_lease));
}

struct kvc_lease *kve_lease_pages(struct kve_lease *l)
{
	return l->pages;
}

/* It is in no table: let go of the first @nr of its pages, and of it. */
void kve_lease_drop(struct kve_session *s, struct kve_lease *l, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		kvc_lease_put(s->pool->core, &l->pages[i]);
	free(l);
}

static struct kve_lease *lease_first(struct kve_session *s)
{
	return (struct kve_lease *)kve_heap_first(&s->lease_ends);
}

static void lease_unlink(struct kve_session *s, struct kve_lease *l)
{
	s->leases[l->id] = NULL;
	kve_heap_remove(&s->lease_ends, &l->end);
	s->lease_pages -= l->nr;
}

/* End what is due at @now. When is the next? */
static u64 lease_expire(struct kve_session *s, u64 now)
{
	struct kve_lease *l;
	u64 next;

	for (;;) {
		pthread_mutex_lock(&s->lock);
		l = lease_first(s);
		next = l ? l->end.key : KVE_NEVER;
		if (l && next <= now)
			lease_unlink(s, l);
		else
			l = NULL;
		pthread_mutex_unlock(&s->lock);
		if (!l)
			return next;
		kve_lease_drop(s, l, l->nr);
	}
}

static void lease_work(struct kve_job *job)
{
	struct kve_session *s = (struct kve_session *)((u8 *)job - offsetof(struct kve_session, lease_job));
	u64 next = lease_expire(s, kve_now());

	if (next != KVE_NEVER)
		kve_job_queue(s->pool, job, next);
}

/* A free id, from 1. There is one: each has a page, at least. */
static u32 lease_id(struct kve_session *s)
{
	do {
		s->lease_next = s->lease_next % (LEASE_IDS - 1) + 1;
	} while (s->leases[s->lease_next]);
	return s->lease_next;
}

static int lease_room(struct kve_session *s, u32 nr)
{
	if (nr > KVCTX_LEASES_MAX - s->lease_pages)
		return -ENOSPC;
	if (!s->leases)
		s->leases = calloc(LEASE_IDS, sizeof(struct kve_lease *));
	return s->leases ? kve_heap_room(&s->lease_ends, s->lease_ends.nr + 1) : -ENOMEM;
}

/* Enter a lease of @nr pages, which are held already. Its id, or -ENOSPC, -ENOMEM: then the caller drops it. */
s32 kve_lease_add(struct kve_session *s, struct kve_lease *l, u32 nr, u32 ms)
{
	u64 end = kve_now() + ms * LEASE_MS;
	s32 ret;

	pthread_mutex_lock(&s->lock);
	ret = lease_room(s, nr);
	if (!ret) {
		l->nr = nr;
		l->end.key = end;
		l->id = lease_id(s);
		s->leases[l->id] = l;
		kve_heap_add(&s->lease_ends, &l->end);
		s->lease_pages += nr;
		ret = (s32)l->id;
		s->lease_job.fn = lease_work;
		if (lease_first(s) == l)
			kve_job_queue(s->pool, &s->lease_job, end);
	}
	pthread_mutex_unlock(&s->lock);
	return ret;
}

/* The session closes and starts no operation any more. */
void kve_lease_exit(struct kve_session *s)
{
	kve_job_cancel(s->pool, &s->lease_job);
	lease_expire(s, KVE_NEVER);
	free(s->leases);
	free(s->lease_ends.nodes);
}

s32 kve_lease_one(struct kve_session *s, const struct kvctx_sqe *sqe)
{
	struct kvctx_key key = sqe->key;
	struct kve_lease *l;
	s32 ret;

	if (!sqe->lease_ms || sqe->lease_ms > KVCTX_LEASE_MS_MAX)
		return -EINVAL;
	l = kve_lease_alloc(1);
	if (!l)
		return -ENOMEM;
	ret = kvc_lease_get(s->pool->core, s->domain, kvctx_key_bytes(&key), l->pages);
	if (ret) {
		free(l);
		return ret;
	}
	ret = kve_lease_add(s, l, 1, sqe->lease_ms);
	if (ret < 0)
		kve_lease_drop(s, l, 1);
	return ret;
}

s32 kve_lease_release(struct kve_session *s, const struct kvctx_sqe *sqe)
{
	struct kve_lease *l = NULL;

	pthread_mutex_lock(&s->lock);
	if (s->leases && sqe->lease < LEASE_IDS)
		l = s->leases[sqe->lease];
	if (l)
		lease_unlink(s, l);
	pthread_mutex_unlock(&s->lock);
	if (!l)
		return -EINVAL;
	kve_lease_drop(s, l, l->nr);
	return 0;
}
