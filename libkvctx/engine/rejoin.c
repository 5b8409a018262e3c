// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A member that was lost returns to its pool, which need not be served anew: kmod/control/rejoin.c is the model. Here the
 * first transfer of the engine's own that fails costs a member, so more often than not it is the file or device that the
 * member has open still.
 *
 * What is read is read without a lock: nothing is written to a lost member. Under super_lock all that was decided from it
 * is looked at once more; then the device is taken, superblocks are written, and the member is used.
 */
#include <syslog.h>
#include <unistd.h>

#include "pools.h"

#define REJOIN_WAIT	(30 * KVE_NSEC)	/* for what was begun before the loss */
#define REJOIN_LOOK	10000U		/* microseconds */

struct returner {
	struct kve_pool *pool;
	const char *path;
	char *why;
	struct kve_device dev;		/* opened for this, unless a member has it open */
	struct kve_candidate c;		/* of that, or of the member's */
	struct kvc_super super;
};

static struct kve_member *returner_member(const struct returner *r)
{
	return &r->pool->members[r->c.index];
}

static bool returner_kept(const struct returner *r)
{
	return r->c.dev != &r->dev;
}

/* The device that @path leads to, if a member has it open */
static struct kve_device *rejoin_kept(struct kve_pool *p, const char *path)
{
	u32 i, nr = kve_nr_members(p);

	for (i = 0; i < nr; i++) {
		struct kve_member *m = &p->members[i];

		if (!(kve_member_state(m) & KVE_MEMBER_REMOVED) && m->dev && kve_device_is(m->dev, path))
			return m->dev;
	}
	return NULL;
}

static int rejoin_open(struct returner *r)
{
	int err = 0;

	r->c.dev = rejoin_kept(r->pool, r->path);
	if (!r->c.dev) {
		err = kve_device_open(&r->dev, r->path, r->why);
		r->c.dev = &r->dev;
	}
	return err ?: kve_candidate_read(&r->c, &r->super, r->why);
}

/* Was it there when the last superblock was written that anybody took? */
static bool rejoin_newest(const struct returner *r)
{
	return r->c.seq == r->pool->super_seq && !(r->c.was[r->c.index].flags & KVC_MEMBER_ABSENT);
}

/* Whose is it, and is that lost? super_lock */
static int rejoin_identify(const struct returner *r)
{
	const struct kvc_super *s = kvc_super_of(r->pool->core);
	const struct kve_member *m = returner_member(r);
	u64 need = kvc_device_bytes(s->members[r->c.index].nr_segments, s->segment_size);

	if (memcmp(r->super.pool_uuid, s->pool_uuid, KVC_UUID_LEN))
		return kve_refuse(r->why, -EXDEV, "%s: of another pool, %s", r->path, r->super.pool_name);
	if (r->c.index >= s->nr_members || memcmp(r->c.uuid, s->members[r->c.index].uuid, KVC_UUID_LEN))
		return kve_refuse(r->why, -EXDEV, "%s: no member of the pool any more", r->path);
	if (kvc_member_online(r->pool->core, r->c.index))
		return kve_refuse(r->why, -EEXIST, "%s: member %u, which is online", r->path, r->c.index);
	if (r->c.dev->bytes < need)
		return kve_refuse(r->why, -ENOSPC, "%s: too small, the pool needs %llu bytes", r->path,
				  (unsigned long long)need);
	if (kve_member_state(m) & KVE_MEMBER_MISSING)
		return kve_refuse(r->why, -EINVAL, "%s: was missing at the attach: attach again", r->path);
	if (kve_member_state(m) & KVE_MEMBER_LEAVING)
		return kve_refuse(r->why, -EBUSY, "%s: member %u, which leaves", r->path, r->c.index);
	if (returner_kept(r) && m->dev != r->c.dev)
		return kve_refuse(r->why, -EBUSY, "%s: open as the device of another member", r->path);
	if (!kve_device_is(r->c.dev, m->dev->path))
		return kve_refuse(r->why, -EINVAL, "%s: the next attach would not find it: %s leads elsewhere", r->path,
				  m->dev->path);
	if (r->c.seq != m->super_seq)
		return kve_refuse(r->why, -ESTALE, "%s: not as it was left: attach again", r->path);
	return 0;
}

/* As kvc_member_may_return(); nor is its loss still to be noted and told. super_lock */
static int rejoin_may(const struct returner *r)
{
	struct kvc_pool *core = r->pool->core;

	if (!returner_member(r)->told)
		return -EBUSY;
	return kvc_member_may_return(core, r->c.index, rejoin_newest(r));
}

static int rejoin_refuse(const struct returner *r, int err)
{
	if (err == -ESTALE)
		return kve_refuse(r->why, err, "%s: others were lost later: these have to return first", r->path);
	return kve_refuse(r->why, err, "%s: operations that began before are under way", r->path);
}

static int rejoin_wait(const struct returner *r)
{
	u64 until = kve_now() + REJOIN_WAIT;
	int err;

	for (;;) {
		pthread_mutex_lock(&r->pool->super_lock);
		err = rejoin_identify(r);
		if (err) {
			pthread_mutex_unlock(&r->pool->super_lock);
			return err;
		}
		err = rejoin_may(r);
		pthread_mutex_unlock(&r->pool->super_lock);
		if (err != -EBUSY || kve_now() >= until)
			return err ? rejoin_refuse(r, err) : 0;
		usleep(REJOIN_LOOK);
	}
}

static int rejoin_segment(const struct returner *r, u32 segment, void *buf)
{
	struct kvc_recheck at;
	int ret = kvc_recheck_start(r->pool->core, r->c.index, segment, &at), err;

	while (ret == 1) {
		err = kve_device_read(r->c.dev, buf, at.len, at.offset);
		if (err)
			return kve_refuse(r->why, err, "%s: not read at %llu", r->path, (unsigned long long)at.offset);
		ret = kvc_recheck_feed(r->pool->core, &at, buf);
	}
	if (ret)
		return kve_refuse(r->why, ret, "%s: segment %u not as it was left: attach again", r->path, segment);
	return 0;
}

static int rejoin_check(const struct returner *r)
{
	u32 nr = kvc_nr_segments(r->pool->core, r->c.index), i;
	void *buf = os_alloc(KVC_RECOVER_IO);
	int err = buf ? 0 : kve_refuse(r->why, -ENOMEM, "out of memory");

	for (i = 0; i < nr && !err; i++)
		err = rejoin_segment(r, i, buf);
	os_free(buf);
	return err;
}

/* Nothing of the old one is in anybody's hands, as that was waited for. What the directory calls it stays. super_lock */
static void rejoin_take(struct returner *r)
{
	struct kve_member *m = returner_member(r);

	if (returner_kept(r))
		return;
	kve_holders_let_go(r->pool, m->index);
	kve_device_let_go(m->dev);
	/* others may be reading what it is called */
	free(r->dev.path);
	r->dev.path = m->dev->path;
	*m->dev = r->dev;
	r->dev = (struct kve_device){ .fd = -1 };
	r->c.dev = m->dev;
}

/* It takes no superblock. */
static int rejoin_stay_lost(const struct returner *r)
{
	struct kve_pool *p = r->pool;

	pthread_mutex_lock(&p->config_lock);
	kvc_member_stay_lost(p->core, r->c.index);
	pthread_mutex_unlock(&p->config_lock);
	return kve_refuse(r->why, -EIO, "%s: no superblock could be written", r->path);
}

/* super_lock */
static int rejoin_write(const struct returner *r)
{
	struct kve_member *m = returner_member(r);
	struct kve_pool *p = r->pool;
	bool newest = rejoin_newest(r), written = newest || !kve_member_write_super(m);
	int err = 0;

	pthread_mutex_lock(&p->config_lock);
	if (written)
		err = kvc_member_return(p->core, m->index, newest);
	pthread_mutex_unlock(&p->config_lock);
	if (err)
		kve_refuse(r->why, err, "%s: another loss in the midst of this", r->path);
	else if (!written || kve_member_write_super(m))
		err = rejoin_stay_lost(r);
	/* who does not take it is lost */
	kve_members_write_super(p);
	return err;
}

static void rejoin_join(struct kve_member *m)
{
	struct kve_pool *p = m->pool;

	m->told = false;
	__atomic_fetch_and(&m->state, ~(u32)(KVE_MEMBER_FAILED | KVE_MEMBER_LOST), __ATOMIC_SEQ_CST);
	kvc_member_returned(p->core, m->index);
	/* a loss before that was none to the engine */
	if (kve_member_state(m) & KVE_MEMBER_FAILED)
		kvc_member_fail(p->core, m->index);
	/* flushes may have come */
	kve_member_kick(m);
	kve_log(LOG_INFO, "pool %s: member %u (%s) is back", p->name, m->index, m->dev->path);
	if (kve_member_told)
		kve_member_told(m, KVE_MEMBER_IS_BACK);
}

/* Who reads the superblock again sees what became of it while its logs were read. super_lock */
static int rejoin_bring(struct returner *r)
{
	int err = kve_candidate_read(&r->c, &r->super, r->why) ?: rejoin_identify(r);

	if (!err) {
		err = rejoin_may(r);
		if (err)
			return rejoin_refuse(r, err);
		rejoin_take(r);
		err = rejoin_write(r);
	}
	if (!err)
		rejoin_join(returner_member(r));
	return err;
}

int kve_pool_rejoin(struct kve_pool *p, const char *path, char *why)
{
	struct returner *r;
	int err;

	if (kve_broken())
		return kve_refuse(why, -ENODEV, "an invariant of this process's engine is broken");
	r = calloc(1, sizeof(*r));
	if (!r)
		return kve_refuse(why, -ENOMEM, "out of memory");
	*r = (struct returner){ .pool = p, .path = path, .why = why, .dev.fd = -1 };
	err = rejoin_open(r) ?: rejoin_wait(r) ?: rejoin_check(r);
	if (!err) {
		pthread_mutex_lock(&p->super_lock);
		err = rejoin_bring(r);
		pthread_mutex_unlock(&p->super_lock);
	}
	kve_device_close(&r->dev);
	free(r);
	return err;
}
