/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A session as tests drive one: with an arena, without the library. Pages have bytes that follow from their key.
 */
#ifndef SESS_H
#define SESS_H

#include <sys/mman.h>

#include "rig.h"
#include "session.h"

#define ARENA		(8U << 20)
#define ENTRIES		256U
#define PAGE		100000U
#define LIMIT		(60 * KVE_NSEC)

struct sess {
	struct kve_session *s;
	struct kvctx_cq_ring *ring;
	u8 *arena;
	struct kvctx_setup setup;
};

static inline int ioctl_of(struct sess *k, unsigned long nr, void *arg)
{
	return kve_session_ioctl(k->s, nr, arg);
}

/* Of the tenant; what SETUP gives. Open only if that is 0 */
static inline int sess_try(struct sess *k, const char *tenant, u32 nr_slots, int eventfd)
{
	void *map;
	int err;

	assert_int_equal(kve_session_open(rig_dir, tenant, false, &k->s), 0);
	k->setup = (struct kvctx_setup){
		.size = sizeof(k->setup), .arena_bytes = ARENA, .cq_entries = ENTRIES, .nr_slots = nr_slots,
		.slot_bytes = nr_slots ? 128U << 10 : 0,
	};
	if (eventfd >= 0) {
		k->setup.flags = KVCTX_SETUP_EVENTFD;
		k->setup.eventfd = eventfd;
	}
	err = ioctl_of(k, KVCTX_IOC_SETUP, &k->setup);
	if (err) {
		kve_session_close(k->s, NULL, NULL);
		return err;
	}
	assert_int_equal(kve_session_mmap(k->s, k->setup.cq_bytes, PROT_READ | PROT_WRITE, KVCTX_MMAP_CQ, &map), 0);
	k->ring = map;
	assert_int_equal(kve_session_mmap(k->s, ARENA, PROT_READ | PROT_WRITE, KVCTX_MMAP_ARENA, &map), 0);
	k->arena = map;
	return 0;
}

static inline void sess_start(struct sess *k, u32 nr_slots, int eventfd)
{
	assert_int_equal(sess_try(k, "default", nr_slots, eventfd), 0);
}

static inline void sess_open(struct sess *k)
{
	rig_make(rig_dir, 1);
	sess_start(k, 0, -1);
}

static inline void sess_close(struct sess *k)
{
	munmap(k->ring, k->setup.cq_bytes);
	munmap(k->arena, ARENA);
	kve_session_close(k->s, NULL, NULL);
}

static inline struct kvctx_sqe sqe_of(enum kvctx_opcode op, u64 key, u64 at, u32 length)
{
	return (struct kvctx_sqe){
		.opcode = op, .key.qualifier = key, .user_data = key, .segs = at, .length = length,
	};
}

static inline int submit(struct sess *k, const struct kvctx_sqe *sqes, u32 nr, u32 wait)
{
	struct kvctx_submit s = {
		.size = sizeof(s), .sqes = (u64)sqes, .nr = nr, .wait_nr = wait, .timeout_ns = wait ? LIMIT : 0,
	};

	return ioctl_of(k, KVCTX_IOC_SUBMIT, &s);
}

static inline int wait_for(struct sess *k, u32 min, u64 timeout_ns)
{
	struct kvctx_wait w = { .size = sizeof(w), .min = min, .timeout_ns = timeout_ns };

	return ioctl_of(k, KVCTX_IOC_WAIT, &w);
}

static inline bool reap(struct sess *k, struct kvctx_cqe *cqe)
{
	u32 head = k->ring->head;

	if (head == os_load_acquire(&k->ring->tail))
		return false;
	*cqe = k->ring->cqes[head & (ENTRIES - 1)];
	os_store_release(&k->ring->head, head + 1);
	kve_cq_consumed(k->s);
	return true;
}

/* The result of one operation, in the order of the ring */
static inline s32 result_of(struct sess *k, u32 *flags)
{
	struct kvctx_cqe cqe = { .res = -EPROTO };

	wait_for(k, 1, LIMIT);
	assert_true(reap(k, &cqe));
	if (flags)
		*flags = cqe.flags;
	return cqe.res;
}

static inline s32 run(struct sess *k, struct kvctx_sqe sqe, u32 *flags)
{
	assert_int_equal(submit(k, &sqe, 1, 1), 1);
	return result_of(k, flags);
}

static inline void fill(u8 *p, u32 n, u32 seed)
{
	u32 i;

	for (i = 0; i < n; i++)
		p[i] = (u8)(seed * 31 + i + i / 251);
}

static inline bool right(const u8 *p, u32 n, u32 seed)
{
	u32 i;

	for (i = 0; i < n && p[i] == (u8)(seed * 31 + i + i / 251); i++)
		;
	return i == n;
}

static inline s32 store(struct sess *k, u64 key, u32 length)
{
	fill(k->arena, length, (u32)key);
	return run(k, sqe_of(KVCTX_OP_STORE, key, 0, length), NULL);
}

/* Loads to another place, and looks at it */
static inline s32 load(struct sess *k, u64 key, u32 length)
{
	u8 *to = k->arena + (1 << 20);
	s32 res;

	memset(to, 0x5a, length);
	res = run(k, sqe_of(KVCTX_OP_LOAD, key, 1 << 20, length), NULL);
	return res == (s32)length && !right(to, length, (u32)key) ? -EILSEQ : res;
}

static inline void limit_tenant(struct sess *k, const struct kvc_limits *l)
{
	pthread_mutex_lock(&k->s->pool->config_lock);
	assert_int_equal(kvc_tenant_limit(k->s->pool->core, k->s->tenant, l), 0);
	pthread_mutex_unlock(&k->s->pool->config_lock);
}

#endif
