// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Members: how they come to their places and are lost, and how their superblocks are written.
 *
 * A loss begins anywhere (KVE_MEMBER_FAILED) and is completed by the member's worker (kve_member_lose()): the engine
 * forgets the pages, pool->losses counts, and LOST lets flushes of the member end. Flushes wait between the two, so none
 * reports success for what was just lost. Then the other members note who is missing: whoever attached the lost one
 * alone, and then all of them, would have two histories in one.
 */
#include <syslog.h>

#include "pools.h"

void kve_members_init(struct kve_pool *p)
{
	u32 i;

	for (i = 0; i < KVC_MEMBERS_MAX; i++) {
		p->members[i].pool = p;
		p->members[i].index = i;
		p->members[i].state = KVE_MEMBER_FAILED | KVE_MEMBER_LOST | KVE_MEMBER_REMOVED;
		kve_cond_init(&p->members[i].wake);
	}
}

void kve_members_exit(struct kve_pool *p)
{
	u32 i;

	for (i = 0; i < KVC_MEMBERS_MAX; i++)
		pthread_cond_destroy(&p->members[i].wake);
}

void kve_member_enter(struct kve_member *m, struct kve_device *dev)
{
	m->dev = dev;
	/* pairs with the acquire in kve_member_state(): who sees that somebody is here sees the device */
	os_store_release(&m->state, 0);
}

void kve_member_kick(struct kve_member *m)
{
	/* it looks for work after it has cleared this: who finds it set need not wake it */
	if (__atomic_exchange_n(&m->kicked, true, __ATOMIC_SEQ_CST))
		return;
	pthread_mutex_lock(&m->pool->lock);
	pthread_cond_signal(&m->wake);
	pthread_mutex_unlock(&m->pool->lock);
}

void kve_member_failed(struct kve_member *m)
{
	if (!(__atomic_fetch_or(&m->state, KVE_MEMBER_FAILED, __ATOMIC_SEQ_CST) & KVE_MEMBER_FAILED))
		kve_member_kick(m);
}

/* Write the engine's configuration to both ends of a member, one after the other. 0 when one of them took it. */
int kve_member_write_super(struct kve_member *m)
{
	struct kve_pool *p = m->pool;
	const struct kvc_super *super = kvc_super_of(p->core);
	u32 copy, written = 0;

	kvc_super_encode(super, m->index, p->super_buf);
	for (copy = 0; copy < KVC_SUPER_COPIES; copy++) {
		u64 offset = kvc_super_offset(kvc_super_slot(super->seq, copy), m->dev->bytes);

		os_atomic64_add(&p->counters.meta_written, KVC_SUPER_BYTES);
		if (!kve_device_write(m->dev, p->super_buf, KVC_SUPER_BYTES, offset, true)) {
			written++;
			continue;
		}
		os_atomic64_add(&p->counters.io_errors, 1);
		kve_log(LOG_WARNING, "pool %s: %s: superblock at the %s not written", p->name, m->dev->path,
			copy ? "end" : "front");
	}
	if (!written)
		return -EIO;
	m->super_seq = super->seq;
	p->super_seq = super->seq;
	return 0;
}

/*
 * Write the engine's configuration to every member that is there. One that cannot be written is lost: it must not come
 * back with an older configuration unnoticed. -EIO: nobody took it.
 */
int kve_members_write_super(struct kve_pool *p)
{
	u32 i, nr = kve_nr_members(p), written = 0;

	for (i = 0; i < nr; i++) {
		struct kve_member *m = &p->members[i];

		/* who is being removed is no member by now */
		if ((kve_member_state(m) & KVE_MEMBER_FAILED) || kvc_super_hole(kvc_super_of(p->core), i))
			continue;
		if (!kve_member_write_super(m))
			written++;
		else
			kve_member_failed(m);
	}
	return written ? 0 : -EIO;
}

void kve_leave_look(struct kve_pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->leave_look = true;
	pthread_cond_signal(&p->leave);
	pthread_mutex_unlock(&p->lock);
}

void kve_holder_add(struct kve_pool *p, struct kve_holder *h)
{
	pthread_mutex_lock(&p->holders_lock);
	h->next = p->holders;
	p->holders = h;
	pthread_mutex_unlock(&p->holders_lock);
}

void kve_holder_remove(struct kve_pool *p, struct kve_holder *h)
{
	struct kve_holder **at;

	pthread_mutex_lock(&p->holders_lock);
	for (at = &p->holders; *at != h; at = &(*at)->next)
		;
	*at = h->next;
	pthread_mutex_unlock(&p->holders_lock);
}

void kve_holders_let_go(struct kve_pool *p, u32 member)
{
	struct kve_holder *h;

	pthread_mutex_lock(&p->holders_lock);
	for (h = p->holders; h; h = h->next)
		h->let_go(h, member);
	pthread_mutex_unlock(&p->holders_lock);
}

/* Another member was lost: none of those that were leaving will. */
static void member_leave_stops(struct kve_pool *p)
{
	u32 i, nr = kve_nr_members(p);

	for (i = 0; i < nr; i++)
		if ((kve_member_state(&p->members[i]) & KVE_MEMBER_LEAVING) && !kvc_member_leaves(p->core, i))
			kve_log(LOG_WARNING, "pool %s: member %u stays until the next attach, another one was lost",
				p->name, i);
}

void (*kve_member_told)(struct kve_member *m, enum kve_member_news news);

void kve_member_lose(struct kve_member *m)
{
	struct kve_pool *p = m->pool;

	if (kve_broken())
		return;
	kvc_member_fail(p->core, m->index);
	os_atomic_inc(&p->losses);
	/* who sees LOST sees the loss counted */
	__atomic_fetch_or(&m->state, KVE_MEMBER_LOST, __ATOMIC_SEQ_CST);
	kve_log(LOG_ERR, "pool %s: member %u (%s) lost: its pages are gone until it returns", p->name, m->index,
		m->dev->path);
	member_leave_stops(p);
	pthread_mutex_lock(&p->super_lock);
	pthread_mutex_lock(&p->config_lock);
	kvc_super_touch(p->core);
	pthread_mutex_unlock(&p->config_lock);
	kve_members_write_super(p);
	if (kve_member_told)
		kve_member_told(m, KVE_MEMBER_WAS_LOST);
	m->told = true;
	pthread_mutex_unlock(&p->super_lock);
}
