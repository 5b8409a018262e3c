// SPDX-License-Identifier: GPL-2.0
/*
 * EVENTS: what comes and goes in the session's keyspace, as the engine tells it. One caller at a time reads.
 */
#include <linux/uaccess.h>

#include "op.h"

static_assert(KVC_EVENTS_MAX == KVCTX_EVENTS_MAX);

static void events_work(struct work_struct *work)
{
	eventfd_signal(container_of(work, struct kvctx_session, events_work)->cq.eventfd);
}

/* Under locks of the engine: what hangs on the eventfd may be much, and is the caller's choice. */
static void events_wake(struct kvc_listener *l)
{
	struct kvctx_session *s = container_of(l, struct kvctx_session, listener);

	if (s->cq.eventfd)
		queue_work(s->pool->io_wq, &s->events_work);
}

static bool events_give(void *arg, const struct kvc_event *events, u32 nr)
{
	struct kvctx_event __user **to = arg;
	struct kvctx_event event;
	u32 i;

	for (i = 0; i < nr; i++) {
		kvctx_event_from(&event, &events[i]);
		if (copy_to_user(&(*to)[i], &event, sizeof(event)))
			return false;
	}
	*to += nr;
	return true;
}

static int events_read(struct kvctx_session *s, struct kvctx_events *arg)
{
	struct kvctx_event __user *to = u64_to_user_ptr(arg->events);
	u64 lost = 0;
	int nr = 0;

	if (s->listens) {
		nr = kvc_events_take(&s->listener, arg->nr, &lost, events_give, &to);
	} else {
		INIT_WORK(&s->events_work, events_work);
		s->listener.wake = events_wake;
		nr = kvc_listen(s->pool->core, s->domain, &s->listener);
		s->listens = !nr;
	}
	if (nr < 0)
		return nr;
	arg->nr = nr;
	arg->lost = lost;
	return 0;
}

long kvctx_events(struct kvctx_session *s, struct kvctx_events *arg)
{
	int err = kvctx_events_check(arg);

	if (err)
		return err;
	err = mutex_lock_killable(&s->setup_lock);
	if (err)
		return -EINTR;
	err = events_read(s, arg);
	mutex_unlock(&s->setup_lock);
	return err;
}

/* Nobody calls on the session any more. */
void kvctx_events_exit(struct kvctx_session *s)
{
	if (!s->listens)
		return;
	kvc_unlisten(s->pool->core, &s->listener);
	cancel_work_sync(&s->events_work);
}
