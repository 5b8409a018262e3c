// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A device that does not answer: who closes does not wait for it, and what it holds stays until it lets go. Each test
 * runs on an io_uring and on threads, but for those without a session's transfers.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "rig.h"
#include "session.h"

#define PAGE		20000U
#define PAGES		40U			/* more than there are threads for transfers */
#define BYTES		(2 * PAGES * 32768U)

struct stuck {
	struct kve_session *s;
	struct kvctx_cq_ring *ring;
	size_t ring_bytes;
	u8 *memory;				/* registered */
	u32 id;
	bool ended;				/* atomically */
};

static void stuck_open(struct stuck *k)
{
	struct kvctx_setup setup = { .size = sizeof(setup), .cq_entries = 256, .nr_slots = 4, .slot_bytes = 32768 };
	struct kvctx_mem_register reg = { .size = sizeof(reg), .length = BYTES };
	void *map;

	*k = (struct stuck){ 0 };
	assert_int_equal(kve_session_open(rig_dir, "default", false, &k->s), 0);
	assert_int_equal(kve_session_ioctl(k->s, KVCTX_IOC_SETUP, &setup), 0);
	k->ring_bytes = setup.cq_bytes;
	assert_int_equal(kve_session_mmap(k->s, setup.cq_bytes, PROT_READ | PROT_WRITE, KVCTX_MMAP_CQ, &map), 0);
	k->ring = map;
	k->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(k->memory, MAP_FAILED);
	reg.addr = (u64)k->memory;
	assert_int_equal(kve_session_ioctl(k->s, KVCTX_IOC_MEM_REGISTER, &reg), 0);
	k->id = reg.id;
}

/* For how long this thread waited in vain, of what it asked for: a machine that stands still does not count */
static __thread u64 waited_in_vain;

int __real_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *lock, const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *lock, const struct timespec *until);

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *lock, const struct timespec *until)
{
	s64 left = (s64)(until->tv_sec * (s64)KVE_NSEC + until->tv_nsec - (s64)kve_now());
	int err = __real_pthread_cond_timedwait(c, lock, until);

	if (err == ETIMEDOUT && left > 0)
		waited_in_vain += (u64)left;
	return err;
}

static void stuck_ended(void *arg)
{
	struct stuck *k = arg;

	__atomic_store_n(&k->ended, true, __ATOMIC_RELEASE);
}

/* How long it took; what the caller had is gone then */
static u64 stuck_close(struct stuck *k)
{
	u64 start = kve_now();

	munmap(k->ring, k->ring_bytes);
	kve_session_close(k->s, stuck_ended, k);
	start = kve_now() - start;
	munmap(k->memory, BYTES);
	return start;
}

static void stuck_submit(struct stuck *k, enum kvctx_opcode opcode, u32 first, u32 nr, u32 wait)
{
	struct kvctx_sqe sqes[PAGES] = { 0 };
	struct kvctx_submit s = {
		.size = sizeof(s), .sqes = (u64)sqes, .nr = nr, .wait_nr = wait, .timeout_ns = wait ? KVE_NEVER : 0,
	};
	u32 i;

	for (i = 0; i < nr; i++)
		sqes[i] = (struct kvctx_sqe){
			.opcode = opcode, .key.qualifier = first + i, .mem = k->id, .segs = (first + i) * 32768,
			.length = opcode == KVCTX_OP_PREFETCH ? 0 : PAGE,
		};
	assert_int_equal(kve_session_ioctl(k->s, KVCTX_IOC_SUBMIT, &s), nr);
}

/* The device holds what it has: that is waited for, once */
static void stuck_close_waits(struct stuck *k)
{
	waited_in_vain = 0;
	assert_true(stuck_close(k) >= KVE_PATIENCE);
	assert_true(waited_in_vain <= KVE_PATIENCE);
}

static void stuck_close_at_once(struct stuck *k)
{
	waited_in_vain = 0;
	stuck_close(k);
	assert_int_equal(waited_in_vain, 0);
}

/* How many of these there are */
static u32 stuck_found(u32 first, u32 nr)
{
	struct stuck k;
	u32 i, found = 0;

	stuck_open(&k);
	stuck_submit(&k, KVCTX_OP_LOAD, first, nr, nr);
	for (i = 0; i < nr; i++)
		found += k.ring->cqes[i].res == PAGE;
	stuck_close(&k);
	return found;
}

static void let_go(struct stuck *k)
{
	WRITE_ONCE(rig_held, false);
	while (!__atomic_load_n(&k->ended, __ATOMIC_ACQUIRE))
		usleep(1000);
}

/* Loads, stores, and a read into a slot that more loads wait for, at a device that holds all of them */
static void close_leaves_what_a_device_holds(void **state)
{
	int before = rig_descriptors();
	struct stuck k;

	(void)state;
	rig_make(rig_dir, 1);
	stuck_open(&k);
	stuck_submit(&k, KVCTX_OP_STORE, 0, PAGES, PAGES);
	WRITE_ONCE(rig_held, true);
	stuck_submit(&k, KVCTX_OP_LOAD, 0, PAGES, 0);
	stuck_submit(&k, KVCTX_OP_STORE, PAGES, PAGES, 0);
	stuck_submit(&k, KVCTX_OP_PREFETCH, 1, 2, 0);
	stuck_submit(&k, KVCTX_OP_LOAD, 1, 2, 0);
	stuck_close_waits(&k);
	assert_false(__atomic_load_n(&k.ended, __ATOMIC_ACQUIRE));
	assert_true(rig_descriptors() > before);
	let_go(&k);
	assert_int_equal(rig_descriptors(), before);
	/* nobody heard that the second ones were stored, and their memory was free meanwhile */
	assert_int_equal(stuck_found(0, PAGES), PAGES);
	assert_int_equal(stuck_found(PAGES, PAGES), 0);
}

/* One session is stuck, and others of the pool go on */
static void others_go_on(void **state)
{
	struct stuck k, other;

	(void)state;
	rig_make(rig_dir, 1);
	stuck_open(&other);
	stuck_open(&k);
	stuck_submit(&k, KVCTX_OP_STORE, 0, 1, 1);
	WRITE_ONCE(rig_held, true);
	stuck_submit(&k, KVCTX_OP_LOAD, 0, 1, 0);
	stuck_close_waits(&k);
	let_go(&k);
	stuck_submit(&other, KVCTX_OP_LOAD, 0, 1, 1);
	assert_int_equal(other.ring->cqes[0].res, PAGE);
	stuck_close_at_once(&other);
	assert_true(__atomic_load_n(&other.ended, __ATOMIC_ACQUIRE));
}

/* Who waited for the device did so for the next */
static void sessions_share_the_wait(void **state)
{
	struct kve_pool *p;
	struct stuck k[3];
	u64 start;
	u32 i;

	(void)state;
	rig_make(rig_dir, 1);
	for (i = 0; i < 3; i++)
		stuck_open(&k[i]);
	p = k[0].s->pool;
	stuck_submit(&k[0], KVCTX_OP_STORE, 0, 1, 1);
	WRITE_ONCE(rig_held, true);
	for (i = 0; i < 3; i++)
		stuck_submit(&k[i], KVCTX_OP_LOAD, 0, 1, 0);
	start = kve_now();
	stuck_close_waits(&k[0]);
	/* the others are closed soon after, however long that takes here */
	assert_true(__atomic_load_n(&p->impatient_until, __ATOMIC_RELAXED) >= start + 2 * KVE_PATIENCE);
	__atomic_store_n(&p->impatient_until, KVE_NEVER, __ATOMIC_RELAXED);
	for (i = 1; i < 3; i++)
		stuck_close_at_once(&k[i]);
	for (i = 0; i < 3; i++)
		let_go(&k[i]);
	assert_int_equal(stuck_found(0, 1), 1);
}

/* The last write of a pool does not come to an end */
static void detach_goes_on_behind(void **state)
{
	struct kve_pool *p;
	struct stuck k;

	(void)state;
	rig_make(rig_dir, 1);
	stuck_open(&k);
	stuck_submit(&k, KVCTX_OP_STORE, 0, 1, 1);
	WRITE_ONCE(rig_stalled, true);
	stuck_close_waits(&k);
	rig_refused(-EBUSY, "still being detached");
	WRITE_ONCE(rig_stalled, false);
	p = rig_attach();
	assert_true(kve_pool_put(p));
	assert_int_equal(stuck_found(0, 1), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(close_leaves_what_a_device_holds),
		BOTH(others_go_on),
		BOTH(sessions_share_the_wait),
		TEST(detach_goes_on_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
