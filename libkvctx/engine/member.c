// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Members: how they are lost, and how their superblocks are written.
 *
 * A loss begins anywhere (KVE_MEMBER_FAILED) and is completed by the member's worker (kve_member_lose()): the engine
 * forgets the pages, pool->losses counts, and LOST lets flushes of the member end. Flushes wait between the two, so none
 * reports success for what was just lost. Then the other members note who is missing: whoever attached the lost one
 * alone, and then all of them, would have two histories in one.
 */
#include <syslog.h>

#include "pools.h"

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
	return written ? 0 : -EIO;
}

/*
 * Write the engine's configuration to every member that is there. One that cannot be written is lost: it must not come
 * back with an older configuration unnoticed. -EIO: nobody took it.
 */
int kve_members_write_super(struct kve_pool *p)
{
	u32 i, written = 0;

	for (i = 0; i < p->nr_members; i++) {
		struct kve_member *m = &p->members[i];

		if (kve_member_state(m) & KVE_MEMBER_FAILED)
			continue;
		if (!kve_member_write_super(m))
			written++;
		else
			kve_member_failed(m);
	}
	return written ? 0 : -EIO;
}

void kve_member_lose(struct kve_member *m)
{
	struct kve_pool *p = m->pool;

	if (kve_broken())
		return;
	kvc_member_fail(p->core, m->index);
	os_atomic_inc(&p->losses);
	/* who sees LOST sees the loss counted */
	__atomic_fetch_or(&m->state, KVE_MEMBER_LOST, __ATOMIC_SEQ_CST);
	kve_log(LOG_ERR, "pool %s: member %u (%s) lost: its pages are gone until the next attach", p->name, m->index,
		m->dev->path);
	pthread_mutex_lock(&p->super_lock);
	kvc_super_touch(p->core);
	kve_members_write_super(p);
	pthread_mutex_unlock(&p->super_lock);
}
