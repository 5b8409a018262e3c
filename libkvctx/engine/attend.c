// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * The attendant of a pool: the one thread that waits for time, or for space, on behalf of all sessions.
 *
 * Jobs are few (some for a session), so they stand on a list without an order. One that is queued again while it runs
 * runs again. A job is the caller's memory: kve_job_cancel() is what makes it free.
 */
#include <signal.h>
#include <time.h>

#include "pools.h"

u64 kve_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (u64)t.tv_sec * KVE_NSEC + (u64)t.tv_nsec;
}

int kve_cond_init(pthread_cond_t *c)
{
	pthread_condattr_t attr;
	int err;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	err = pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
	return -err;
}

void kve_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, u64 until)
{
	struct timespec t = { (time_t)(until / KVE_NSEC), (long)(until % KVE_NSEC) };

	if (until == KVE_NEVER)
		pthread_cond_wait(c, lock);
	else
		pthread_cond_timedwait(c, lock, &t);
}

/* Signals are the affair of the program's own threads. */
int kve_thread_start(pthread_t *t, void *(*fn)(void *arg), void *arg, const char *name)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(t, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!err)
		pthread_setname_np(*t, name);
	return -err;
}

/* Take @job off the list; false: it was not there. Locked. */
static bool job_unlink(struct kve_pool *p, struct kve_job *job)
{
	struct kve_job **at;

	for (at = &p->jobs; *at && *at != job; at = &(*at)->next)
		;
	if (!*at)
		return false;
	*at = job->next;
	job->queued = false;
	return true;
}

/* The one whose time comes first. Locked. */
static struct kve_job *job_first(const struct kve_pool *p)
{
	struct kve_job *job, *first = p->jobs;

	for (job = p->jobs; job; job = job->next)
		if (job->at < first->at)
			first = job;
	return first;
}

void kve_job_queue(struct kve_pool *p, struct kve_job *job, u64 at)
{
	pthread_mutex_lock(&p->lock);
	if (!job->cancelled && (!job->queued || at < job->at)) {
		if (!job->queued) {
			job->queued = true;
			job->next = p->jobs;
			p->jobs = job;
		}
		job->at = at;
		pthread_cond_broadcast(&p->attend);
	}
	pthread_mutex_unlock(&p->lock);
}

void kve_job_cancel(struct kve_pool *p, struct kve_job *job)
{
	pthread_mutex_lock(&p->lock);
	job->cancelled = true;
	job_unlink(p, job);
	while (p->running == job)
		pthread_cond_wait(&p->attend, &p->lock);
	job->cancelled = false;
	pthread_mutex_unlock(&p->lock);
}

static void *attend(void *arg)
{
	struct kve_pool *p = arg;
	struct kve_job *job;

	pthread_mutex_lock(&p->lock);
	while (!p->quit) {
		job = job_first(p);
		if (!job || job->at > kve_now()) {
			kve_cond_wait(&p->attend, &p->lock, job ? job->at : KVE_NEVER);
			continue;
		}
		job_unlink(p, job);
		p->running = job;
		pthread_mutex_unlock(&p->lock);
		job->fn(job);
		pthread_mutex_lock(&p->lock);
		p->running = NULL;
		pthread_cond_broadcast(&p->attend);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int kve_attendant_start(struct kve_pool *p)
{
	int err = kve_thread_start(&p->attendant, attend, p, "kvctx-attend");

	p->attended = !err;
	return err;
}

/* All jobs were cancelled before. */
void kve_attendant_stop(struct kve_pool *p)
{
	if (!p->attended)
		return;
	pthread_mutex_lock(&p->lock);
	p->quit = true;
	pthread_cond_broadcast(&p->attend);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->attendant, NULL);
}
