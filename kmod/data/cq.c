// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queue: a ring in memory shared with the caller, and waiting for it.
 *
 * The caller owns one field of the ring, head. Everything else is written from our own copies: tail, the number of
 * entries and the operations in flight live in struct kvctx_cq. A hostile head is compared, never used as an index,
 * so it can only make room appear or vanish for its owner.
 *
 * Room: in flight + (tail - head) never exceeds the entries. It is taken when an operation is accepted, so posting
 * cannot fail.
 *
 * Posting and the end of an operation are one critical section of cq.lock: who sees nothing in flight under the lock
 * also sees every completion, and after the last section of a dying session nobody touches the session but the
 * thread that closes it or the teardown work queued here. The release order on tail pairs with the caller's acquire.
 *
 * The same section hands out memory of operations that ended to those that are accepted, so that neither end has to
 * ask the allocator.
 *
 * Those in WAIT sit on cq.waiters and are woken when what they wait for is there, not at each completion. Going to
 * sleep is one section of the lock, and who was woken needs none.
 */
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/vmalloc.h>

#include "op.h"

#define WAIT_SLACK_NS	50000
#define SPARE_MAX	128U

struct workqueue_struct *kvctx_session_wq;

void kvctx_cq_init(struct kvctx_cq *cq)
{
	spin_lock_init(&cq->lock);
	init_waitqueue_head(&cq->wait);
	INIT_LIST_HEAD(&cq->waiters);
}

int kvctx_cq_setup(struct kvctx_cq *cq, u32 entries)
{
	size_t bytes = PAGE_ALIGN(struct_size(cq->ring, cqes, entries));

	cq->ring = __vmalloc(bytes, GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!cq->ring)
		return -ENOMEM;
	cq->bytes = bytes;
	cq->entries = entries;
	cq->ring->entries = entries;
	return 0;
}

void kvctx_cq_free(struct kvctx_cq *cq)
{
	vfree(cq->ring);
	cq->ring = NULL;
	if (cq->eventfd)
		eventfd_ctx_put(cq->eventfd);
	cq->eventfd = NULL;
}

int kvctx_cq_mmap(struct kvctx_cq *cq, struct vm_area_struct *vma, u64 offset)
{
	unsigned long addr;
	int err;

	if (offset > cq->bytes || vma->vm_end - vma->vm_start > cq->bytes - offset)
		return -EINVAL;
	for (addr = vma->vm_start; addr < vma->vm_end; addr += PAGE_SIZE, offset += PAGE_SIZE) {
		err = vm_insert_page(vma, addr, vmalloc_to_page((void *)cq->ring + offset));
		if (err)
			return err;
	}
	return 0;
}

/* Completions that the caller has not consumed; more than entries when its head lies. */
static u32 cq_ready(const struct kvctx_cq *cq)
{
	lockdep_assert_held(&cq->lock);
	return cq->tail - READ_ONCE(cq->ring->head);
}

/* The same for telling it to the caller. */
static u32 cq_consumable(const struct kvctx_cq *cq)
{
	return min(cq_ready(cq), cq->entries);
}

static bool cq_enough(const struct kvctx_cq *cq, u32 min)
{
	return cq_consumable(cq) >= min || !cq->inflight;
}

/* On cq.waiters, under the lock, from when it sees too little until it is woken or gives up. */
struct kvctx_waiter {
	struct list_head node;
	struct task_struct *task;
	u32 min;
	u32 consumable;		/* when it was woken */
	bool woken;		/* off the list; set with release order */
};

/* A waiter may be gone as soon as it is told that it was woken. */
static void cq_wake_waiters(struct kvctx_cq *cq)
{
	struct kvctx_waiter *w, *tmp;
	struct task_struct *task;

	list_for_each_entry_safe(w, tmp, &cq->waiters, node) {
		if (!cq_enough(cq, w->min))
			continue;
		list_del(&w->node);
		w->consumable = cq_consumable(cq);
		task = get_task_struct(w->task);
		/* pairs with cq_wait_woken() */
		smp_store_release(&w->woken, true);
		wake_up_process(task);
		put_task_struct(task);
	}
}

static void cq_wake(struct kvctx_session *s)
{
	struct kvctx_cq *cq = &s->cq;

	lockdep_assert_held(&cq->lock);
	cq_wake_waiters(cq);
	/* who polls enters the queue before it looks, and looks under the lock: no barrier needed */
	if (waitqueue_active(&cq->wait))
		wake_up_poll(&cq->wait, EPOLLIN | EPOLLRDNORM);
	if (cq->orphaned && !cq->inflight && !cq->background)
		queue_work(kvctx_session_wq, &s->teardown);
}

/* Up to @nr spare operations, chained. */
static struct kvctx_op *cq_spare_take(struct kvctx_cq *cq, u32 nr)
{
	struct kvctx_op *first = cq->spare, *last = NULL, *op;

	for (op = first; nr && op; op = op->spare, nr--, cq->nr_spare--)
		last = op;
	if (!last)
		return NULL;
	cq->spare = last->spare;
	last->spare = NULL;
	return first;
}

/* Keep @op for the next operation; returns it when there are enough. */
static struct kvctx_op *cq_spare_give(struct kvctx_cq *cq, struct kvctx_op *op)
{
	if (!op || cq->nr_spare == SPARE_MAX)
		return op;
	op->spare = cq->spare;
	cq->spare = op;
	cq->nr_spare++;
	return NULL;
}

/* Take room for up to @nr operations; returns for how many there was some, and memory for at most as many. */
u32 kvctx_cq_reserve(struct kvctx_session *s, u32 nr, struct kvctx_op **spare)
{
	struct kvctx_cq *cq = &s->cq;
	unsigned long flags;
	u32 used;

	spin_lock_irqsave(&cq->lock, flags);
	used = cq_ready(cq);
	/* two steps: a lying head may make the sum wrap */
	nr = used > cq->entries - cq->inflight ? 0 : min(nr, cq->entries - cq->inflight - used);
	cq->inflight += nr;
	*spare = cq_spare_take(cq, nr);
	spin_unlock_irqrestore(&cq->lock, flags);
	if (nr)
		percpu_counter_add(&s->pool->counters.inflight, nr);
	return nr;
}

/* Give room back that no operation was found for. */
void kvctx_cq_unreserve(struct kvctx_session *s, u32 nr)
{
	unsigned long flags;

	percpu_counter_sub(&s->pool->counters.inflight, nr);
	spin_lock_irqsave(&s->cq.lock, flags);
	s->cq.inflight -= nr;
	cq_wake(s);
	spin_unlock_irqrestore(&s->cq.lock, flags);
}

/*
 * The end of an accepted operation, whose memory was @op, if any. Returns it when there is enough of that. The session
 * may be gone on return. Any context.
 */
struct kvctx_op *kvctx_cq_post(struct kvctx_session *s, u64 user_data, s32 res, u32 cqe_flags, struct kvctx_op *op)
{
	struct kvctx_cq *cq = &s->cq;
	struct kvctx_cqe *cqe;
	unsigned long flags;

	percpu_counter_dec(&s->pool->counters.inflight);
	spin_lock_irqsave(&cq->lock, flags);
	cqe = &cq->ring->cqes[cq->tail & (cq->entries - 1)];
	cqe->user_data = user_data;
	cqe->res = res;
	cqe->flags = cqe_flags;
	/* pairs with the caller's acquire of tail */
	smp_store_release(&cq->ring->tail, ++cq->tail);
	cq->inflight--;
	op = cq_spare_give(cq, op);
	if (cq->eventfd)
		eventfd_signal(cq->eventfd);
	cq_wake(s);
	spin_unlock_irqrestore(&cq->lock, flags);
	return op;
}

/*
 * A read into a slot @more, or one less: like an operation in flight, but nobody waits for its completion. After one
 * less the session may be gone.
 */
void kvctx_cq_background(struct kvctx_session *s, int more)
{
	unsigned long flags;

	spin_lock_irqsave(&s->cq.lock, flags);
	s->cq.background += more;
	cq_wake(s);
	spin_unlock_irqrestore(&s->cq.lock, flags);
}

/* Advance head for a caller who cannot. */
int kvctx_cq_consume(struct kvctx_session *s, u32 nr)
{
	struct kvctx_cq *cq = &s->cq;
	unsigned long flags;
	int err = 0;

	if (!nr)
		return 0;
	spin_lock_irqsave(&cq->lock, flags);
	if (nr <= cq_consumable(cq))
		WRITE_ONCE(cq->ring->head, READ_ONCE(cq->ring->head) + nr);
	else
		err = -EINVAL;
	spin_unlock_irqrestore(&cq->lock, flags);
	return err;
}

bool kvctx_cq_readable(struct kvctx_session *s)
{
	unsigned long flags;
	bool readable;

	spin_lock_irqsave(&s->cq.lock, flags);
	readable = cq_ready(&s->cq);
	spin_unlock_irqrestore(&s->cq.lock, flags);
	return readable;
}

bool kvctx_cq_drained(struct kvctx_session *s)
{
	unsigned long flags;
	bool drained;

	spin_lock_irqsave(&s->cq.lock, flags);
	drained = !s->cq.inflight && !s->cq.background;
	spin_unlock_irqrestore(&s->cq.lock, flags);
	return drained;
}

/* Is there enough, or no time to wait? Otherwise @w is on the list, and the task about to sleep. */
static bool cq_wait_begin(struct kvctx_cq *cq, struct kvctx_waiter *w, u64 timeout_ns)
{
	unsigned long flags;
	bool done;

	spin_lock_irqsave(&cq->lock, flags);
	w->consumable = cq_consumable(cq);
	done = cq_enough(cq, w->min) || !timeout_ns;
	if (!done) {
		list_add_tail(&w->node, &cq->waiters);
		set_current_state(TASK_INTERRUPTIBLE);
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	return done;
}

static bool cq_wait_woken(const struct kvctx_waiter *w)
{
	/* pairs with cq_wake_waiters() */
	return smp_load_acquire(&w->woken);
}

/* Returns whether it was woken meanwhile. */
static bool cq_wait_give_up(struct kvctx_cq *cq, struct kvctx_waiter *w)
{
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	if (!w->woken)
		list_del(&w->node);
	spin_unlock_irqrestore(&cq->lock, flags);
	return w->woken;
}

/*
 * Until @w is woken or @until (NULL: for ever); 0, -ERESTARTNOHAND or -ETIME. What looks like a signal may be work that
 * io_uring has for this task, on which what is waited for may depend: it is done on the way out and back.
 */
static int cq_wait_sleep(struct kvctx_waiter *w, ktime_t *until)
{
	int err = 0;

	while (!cq_wait_woken(w) && !err) {
		if (signal_pending(current))
			err = -ERESTARTNOHAND;
		else if (!schedule_hrtimeout_range(until, WAIT_SLACK_NS, HRTIMER_MODE_ABS))
			err = -ETIME;
		set_current_state(TASK_INTERRUPTIBLE);
	}
	__set_current_state(TASK_RUNNING);
	return err;
}

/*
 * Wait until @min completions can be consumed or nothing is in flight. Returns how many can be, or -ETIME, or
 * -ERESTARTNOHAND with what is left of *@timeout_ns. With *@timeout_ns 0 it tells the number without waiting.
 */
int kvctx_cq_wait(struct kvctx_session *s, u32 min, u64 *timeout_ns)
{
	struct kvctx_waiter w = { .task = current, .min = min };
	bool ever = *timeout_ns == KVCTX_TIMEOUT_NONE;
	ktime_t until = 0;
	int err;

	if (*timeout_ns && !ever)
		until = ktime_add_safe(ktime_get(), ns_to_ktime(min_t(u64, *timeout_ns, KTIME_MAX)));
	if (cq_wait_begin(&s->cq, &w, *timeout_ns))
		return w.consumable;
	err = cq_wait_sleep(&w, ever ? NULL : &until);
	if (cq_wait_woken(&w) || cq_wait_give_up(&s->cq, &w))
		return w.consumable;
	if (err == -ERESTARTNOHAND && !ever)
		*timeout_ns = max(ktime_to_ns(ktime_sub(until, ktime_get())), 1);
	return err;
}
