// SPDX-License-Identifier: LGPL-2.1-or-later
/* Many threads on one handle. Threads return NULL or the line where they failed. */
#include <time.h>

#include "test.h"

#define CHECK(x)	do { if (!(x)) return (void *)(uintptr_t)__LINE__; } while (0)

static pthread_t start(void *(*f)(void *), void *arg)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, f, arg), 0);
	return t;
}

static void finish(pthread_t t)
{
	void *ret;

	assert_int_equal(pthread_join(t, &ret), 0);
	assert_int_equal((uintptr_t)ret, 0);
}

#define SUBMITTERS	4
#define SENT		2000

static unsigned int taken[SUBMITTERS][SENT];

/* Operations of the thread's own, on the one handle; completions are whoever's that takes them */
static void *submit_own(void *arg)
{
	uint64_t n = (uintptr_t)arg, i = 0, k;
	struct kvctx_key key = kvctx_key_from_u64(n, 1);
	struct kvctx_cqe cqe[8];

	while (i < SENT) {
		struct kvctx_sqe sqes[4];
		int ret;

		memset(sqes, 0, sizeof(sqes));
		for (k = 0; k < 4; k++) {
			kvctx_prep_query(&sqes[k], &key);
			kvctx_sqe_set_data(&sqes[k], n << 32 | (i + k));
		}
		ret = kvctx_submit_sqes(ctx, sqes, i + 4 > SENT ? SENT - i : 4);
		CHECK(ret > 0 || ret == -EAGAIN);
		i += ret > 0 ? (unsigned int)ret : 0;
		ret = (int)kvctx_take(ctx, cqe, 8);
		for (k = 0; k < (unsigned int)ret; k++) {
			CHECK(cqe[k].res == -ENOENT);
			__atomic_fetch_add(&taken[cqe[k].user_data >> 32][(uint32_t)cqe[k].user_data], 1,
					   __ATOMIC_RELAXED);
		}
	}
	return NULL;
}

static void many_submitters(void **state)
{
	pthread_t t[SUBMITTERS];
	struct kvctx_cqe cqe;
	uintptr_t i, k;

	(void)state;
	memset(taken, 0, sizeof(taken));
	fake.hold = true;
	fake_disk_start(7);
	for (i = 0; i < SUBMITTERS; i++)
		t[i] = start(submit_own, (void *)i);
	for (i = 0; i < SUBMITTERS; i++)
		finish(t[i]);
	while (kvctx_wait(ctx, 1, KVCTX_TIMEOUT_NONE) > 0)
		while (kvctx_take(ctx, &cqe, 1))
			taken[cqe.user_data >> 32][(uint32_t)cqe.user_data]++;
	fake_disk_stop();
	for (i = 0; i < SUBMITTERS; i++)
		for (k = 0; k < SENT; k++)
			assert_int_equal(taken[i][k], 1);
	assert_int_equal(kvctx_submit_sqes(ctx, NULL, 0), 0);
}

/* Store, load and delete pages of the thread's own, in memory of its own */
static void *hammer(void *arg)
{
	uint64_t n = (uintptr_t)arg;
	uint8_t buf[64];
	int i;

	for (i = 0; i < 200; i++) {
		struct kvctx_key key = kvctx_key_from_u64(n, (uint64_t)i);

		memset(buf, (int)n, sizeof(buf));
		CHECK(kvctx_store(ctx, &key, buf, sizeof(buf), NULL) == sizeof(buf));
		memset(buf, 0, sizeof(buf));
		CHECK(kvctx_load(ctx, &key, buf, sizeof(buf), NULL) == sizeof(buf));
		CHECK(buf[0] == (uint8_t)n && buf[63] == (uint8_t)n);
		CHECK(kvctx_match(ctx, &key, 1, NULL, 0, NULL) == 1);
		CHECK(!kvctx_delete(ctx, &key));
	}
	return NULL;
}

static void synchronous_calls_of_many_threads(void **state)
{
	pthread_t t[6];
	uintptr_t i;

	(void)state;
	fake.hold_calls = true;
	fake_disk_start(5);
	for (i = 0; i < 6; i++)
		t[i] = start(hammer, (void *)(i + 1));
	for (i = 0; i < 6; i++)
		finish(t[i]);
	fake_disk_stop();
	assert_int_equal(fake_pages(), 0);
}

/* The same in the smallest queue there is */
static void many_threads_in_a_short_ring(void **state)
{
	pthread_t t[6];
	uintptr_t i;

	(void)state;
	reopen(O_RDWR, 2, 2);
	fake.hold_calls = true;
	fake_disk_start(6);
	for (i = 0; i < 6; i++)
		t[i] = start(hammer, (void *)(i + 1));
	for (i = 0; i < 6; i++)
		finish(t[i]);
	fake_disk_stop();
	assert_int_equal(fake_pages(), 0);
}

struct engine {
	unsigned int rounds, batch, wait;
};

/* Keep operations in flight; each has to complete once */
static void *run_engine(void *arg)
{
	const struct engine *e = arg;
	unsigned int sent = 0, done = 0, total = e->rounds * e->batch, i, n;
	uint8_t *seen = calloc(1, total);
	struct kvctx_cqe cqe[16];
	int ret;

	while (done < total) {
		n = total - sent < e->batch ? total - sent : e->batch;
		sent += queue(sent, n);
		ret = kvctx_submit_and_wait(ctx, e->wait, KVCTX_TIMEOUT_NONE);
		CHECK(ret >= 0 || ret == -EAGAIN);
		n = kvctx_take(ctx, cqe, 16);
		for (i = 0; i < n; i++) {
			CHECK(cqe[i].user_data < total && !seen[cqe[i].user_data]);
			seen[cqe[i].user_data] = 1;
		}
		done += n;
	}
	free(seen);
	return NULL;
}

static void mix(const struct engine *e, unsigned int threads, unsigned int seed)
{
	pthread_t engine, t[4];
	uintptr_t i;

	fake.hold = true;
	fake.hold_calls = true;
	fake_disk_start(seed);
	engine = start(run_engine, (void *)(uintptr_t)e);
	for (i = 0; i < threads; i++)
		t[i] = start(hammer, (void *)(i + 1));
	for (i = 0; i < threads; i++)
		finish(t[i]);
	finish(engine);
	fake_disk_stop();
	expect_cqes(0, 0);
}

static void both_styles_at_once(void **state)
{
	static const struct engine engines[] = { { 300, 1, 1 }, { 100, 16, 1 }, { 100, 16, 16 } };
	unsigned int i;

	(void)state;
	for (i = 0; i < 3; i++)
		mix(&engines[i], 3, 10 + i);
	reopen(O_RDWR, 16, 16);		/* calls and queue share the room */
	for (i = 0; i < 3; i++)
		mix(&engines[i], 2, 20 + i);
	reopen(O_RDWR, 1, 1024);
	mix(&engines[0], 2, 30);
}

static void *store_arena(void *arg)
{
	struct kvctx_key key = kvctx_key_from_u64((uintptr_t)arg, 6);

	CHECK(kvctx_store(ctx, &key, kvctx_arena(ctx, NULL), 1, NULL) == 1);
	return NULL;
}

/* Calls are in flight together, and whose turn ends lets another one look */
static void calls_overlap(void **state)
{
	pthread_t t[4];
	uintptr_t i;

	(void)state;
	fake.hold_calls = true;
	for (i = 0; i < 4; i++) {
		t[i] = start(store_arena, (void *)(i + 1));
		fake_await_kept(i + 1);
	}
	fake_await_sleepers(1);		/* one for all */
	for (i = 0; i < 4; i++) {
		fake_release(1);
		finish(t[i]);
	}
	for (i = 0; i < 4; i++) {
		t[i] = start(store_arena, (void *)(i + 5));
		fake_await_kept(i + 1);
	}
	for (i = 4; i--;) {
		fake_release_newest();
		finish(t[i]);
	}
	assert_int_equal(fake_pages(), 8);
}

static void *wait_for_8(void *arg)
{
	(void)arg;
	CHECK(kvctx_wait(ctx, 8, KVCTX_TIMEOUT_NONE) == 8);
	return NULL;
}

static unsigned int milliseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned int)(t.tv_sec * 1000 + t.tv_nsec / 1000000);
}

/* A thread that sleeps for many completions delays no call, and no call delays it */
static void calls_beside_a_sleeper(void **state)
{
	struct kvctx_key key = kvctx_key_from_u64(1, 6);
	pthread_t sleeper, call;
	unsigned int waits, ms;
	int i;

	(void)state;
	fake.hold = true;
	fake.hold_calls = true;
	assert_int_equal(queue(0, 9), 9);
	assert_int_equal(kvctx_submit(ctx), 9);
	sleeper = start(wait_for_8, NULL);
	fake_await_sleepers(1);
	call = start(store_arena, (void *)1);
	fake_await_kept(10);
	fake_await_sleepers(2);
	ms = milliseconds();
	waits = fake_waits();
	fake_release(3);
	usleep(5000);
	waits = fake_waits() - waits;
	ms = milliseconds() - ms;
	assert_in_range(waits, 0, 15 + ms);	/* nobody spins */
	fake_release_newest();
	finish(call);
	fake.hold_calls = false;
	assert_int_equal(kvctx_query(ctx, &key), 1);
	fake_release(5);
	finish(sleeper);		/* one operation is still in flight */
	sleeper = start(wait_for_8, NULL);
	finish(sleeper);
	expect_cqes(0, 8);
	for (i = 0; i < 1000; i++)	/* many rings' worth */
		assert_int_equal(kvctx_query(ctx, &key), 1);
	fake_release(1);
	expect_cqes(8, 1);
}

static void *submit_and_wait_for_8(void *arg)
{
	(void)arg;
	CHECK(queue(100, 1) == 1);
	CHECK(kvctx_submit_and_wait(ctx, 8, KVCTX_TIMEOUT_NONE) == 1);
	CHECK(kvctx_wait(ctx, 8, KVCTX_TIMEOUT_NONE) >= 8);
	return NULL;
}

/* Each place that the caller may use is taken and nothing completes: calls go on */
static void stuck_queue(uint32_t limit, uint32_t cq_max, bool first_submits)
{
	struct kvctx_key key = kvctx_key_from_u64(1, 6);
	pthread_t sleeper[2];
	int i;

	reopen(O_RDWR, limit, cq_max);
	fake.hold = true;
	assert_int_equal(queue(0, limit - 1), limit - 1);
	assert_int_equal(kvctx_submit(ctx), limit - 1);
	sleeper[0] = start(first_submits ? submit_and_wait_for_8 : wait_for_8, NULL);
	fake_await_sleepers(1);
	for (i = 0; i < 3; i++)
		assert_int_equal(kvctx_query(ctx, &key), -ENOENT);
	sleeper[1] = start(first_submits ? wait_for_8 : submit_and_wait_for_8, NULL);
	fake_await_sleepers(2);
	fake_await_kept(limit);
	for (i = 0; i < 1000; i++)
		assert_int_equal(kvctx_query(ctx, &key), -ENOENT);
	fake_release(8);
	finish(sleeper[0]);
	finish(sleeper[1]);
	fake_release(limit - 8);
}

static void calls_beside_a_full_queue(void **state)
{
	(void)state;
	stuck_queue(8, 1024, true);
	stuck_queue(8, 1024, false);
	stuck_queue(12, 16, true);
	stuck_queue(12, 16, false);
}

static void *submit_8_and_wait(void *arg)
{
	(void)arg;
	CHECK(queue(7, 1) == 1);
	CHECK(kvctx_submit_and_wait(ctx, 8, KVCTX_TIMEOUT_NONE) == 8);
	CHECK(kvctx_wait(ctx, 8, 0) == 8);	/* only looks */
	return NULL;
}

/* Others' completions are not taken for one's own */
static void submitting_beside_a_call(void **state)
{
	pthread_t submitter, caller;

	(void)state;
	fake.hold = true;
	fake.hold_calls = true;
	caller = start(store_arena, (void *)1);
	fake_await_kept(1);
	assert_int_equal(queue(0, 7), 7);
	submitter = start(submit_8_and_wait, NULL);
	fake_await_kept(9);
	fake_release(8);
	finish(caller);
	usleep(2000);
	fake_release(1);
	finish(submitter);
}

/* Who waits for operations that then were not taken is told */
static void *submit_in_vain(void *arg)
{
	(void)arg;
	CHECK(queue(0, 1) == 1);
	CHECK(kvctx_submit(ctx) == -ENODEV);
	return NULL;
}

static void *wait_for_nothing(void *arg)
{
	(void)arg;
	CHECK(kvctx_wait(ctx, 1, KVCTX_TIMEOUT_NONE) == 0);
	return NULL;
}

static void waiting_for_what_was_not_taken(void **state)
{
	pthread_t submitter, caller, waiter;

	(void)state;
	fake.hold_calls = true;
	caller = start(store_arena, (void *)1);
	fake_await_sleepers(1);
	fake_stall_submit(-ENODEV);
	submitter = start(submit_in_vain, NULL);
	fake_await_stalled();
	waiter = start(wait_for_nothing, NULL);
	usleep(2000);
	fake_go_on();
	finish(submitter);
	finish(waiter);
	fake_release(1);
	finish(caller);
}

static void waiting_for_what_a_ring_did_not_take(void **state)
{
	pthread_t caller, waiter;

	(void)state;
	fake.hold_calls = true;
	caller = start(store_arena, (void *)1);
	fake_await_sleepers(1);
	assert_int_equal(kvctx_expect(ctx, 1), 0);
	waiter = start(wait_for_nothing, NULL);
	usleep(2000);
	assert_int_equal(kvctx_expect(ctx, -1), 0);
	finish(waiter);
	fake_release(1);
	finish(caller);
}

static void *query_nothing(void *arg)
{
	struct kvctx_key key = kvctx_key_from_u64((uintptr_t)arg, 7);

	CHECK(kvctx_query(ctx, &key) == -ENOENT);
	return NULL;
}

/* Without room of their own calls wait for the queue */
static void calls_without_room(void **state)
{
	pthread_t t;

	(void)state;
	reopen(O_RDWR, 8, 8);
	fake.hold = true;
	assert_int_equal(queue(0, 8), 8);
	assert_int_equal(kvctx_submit(ctx), 8);
	t = start(query_nothing, NULL);
	fake_await_sleepers(1);
	fake_release(1);
	finish(t);
	fake_release(7);
	expect_cqes(0, 8);
	assert_int_equal(queue(0, 8), 8);
	assert_int_equal(kvctx_submit(ctx), 8);
	fake_release(8);	/* there is room, once the ring was looked at */
	query_nothing((void *)1);
	expect_cqes(0, 8);
}

static void *submit_one(void *arg)
{
	(void)arg;
	CHECK(queue(0, 1) == 1);
	CHECK(kvctx_submit(ctx) == 1);
	return NULL;
}

/* And the queue for calls, when there is nothing else that its owner could wait for */
static void queue_without_room(void **state)
{
	pthread_t t[3];
	uintptr_t i;

	(void)state;
	reopen(O_RDWR, 2, 2);
	fake.hold_calls = true;
	for (i = 0; i < 2; i++) {
		t[i] = start(store_arena, (void *)(i + 1));
		fake_await_kept(i + 1);
	}
	t[2] = start(submit_one, NULL);
	usleep(2000);
	expect_cqes(0, 0);
	fake_release(1);
	finish(t[2]);
	fake_release(1);
	finish(t[0]);
	finish(t[1]);
	expect_cqes(0, 1);
}

/* Who waits while another thread watches has a time limit as well, and is woken in time */
static void waiting_beside_a_watcher(void **state)
{
	pthread_t call, sleeper;

	(void)state;
	fake.hold = true;
	fake.hold_calls = true;
	call = start(store_arena, (void *)1);
	fake_await_sleepers(1);
	assert_int_equal(kvctx_wait(ctx, 1, KVCTX_TIMEOUT_NONE), 0);	/* nothing to wait for */
	assert_int_equal(queue(0, 8), 8);
	assert_int_equal(kvctx_submit(ctx), 8);
	assert_int_equal(kvctx_wait(ctx, 1, 2000000), -ETIME);
	assert_int_equal(kvctx_submit_and_wait(ctx, 1, 2000000), 0);
	sleeper = start(wait_for_8, NULL);
	usleep(2000);
	fake_release(8);		/* the call's is the oldest */
	finish(call);
	usleep(2000);
	fake_release(1);
	finish(sleeper);
	expect_cqes(0, 8);
	/* the other way round: the watcher stays */
	call = start(store_arena, (void *)2);
	fake_await_sleepers(1);
	assert_int_equal(queue(0, 8), 8);
	assert_int_equal(kvctx_submit(ctx), 8);
	sleeper = start(wait_for_8, NULL);
	usleep(2000);
	for (int i = 0; i < 8; i++)
		fake_release_newest();
	finish(sleeper);
	fake_release(1);
	finish(call);
}

static void *load_registered(void *arg)
{
	struct kvctx_key key = kvctx_key_from_u64(1, 6);

	CHECK(kvctx_load(ctx, &key, arg, 1, NULL) == 1);
	return NULL;
}

static void *load_in_vain(void *arg)
{
	struct kvctx_key key = kvctx_key_from_u64(1, 6);

	CHECK(kvctx_load(ctx, &key, arg, 1, NULL) == -ENODEV);
	return NULL;
}

static void memory_in_use_stays_registered(void **state)
{
	uint8_t buf[16];
	pthread_t t;
	uint32_t id;

	(void)state;
	store_arena((void *)1);
	assert_int_equal(kvctx_mem_register(ctx, buf, sizeof(buf), &id), 0);
	fake.hold_calls = true;
	t = start(load_registered, buf + 3);
	fake_await_kept(1);
	assert_int_equal(kvctx_mem_unregister(ctx, id), -EBUSY);
	fake_release(1);
	finish(t);
	/* also before the kernel knows that it is in use */
	fake_stall_submit(-ENODEV);
	t = start(load_in_vain, buf);
	fake_await_stalled();
	assert_int_equal(kvctx_mem_unregister(ctx, id), -EBUSY);
	fake_go_on();
	finish(t);
	assert_int_equal(kvctx_mem_unregister(ctx, id), 0);
}

static void *register_often(void *arg)
{
	uint8_t buf[64];
	uint32_t id;
	int i;

	(void)arg;
	for (i = 0; i < 300; i++) {
		CHECK(!kvctx_mem_register(ctx, buf, sizeof(buf), &id));
		CHECK(!kvctx_mem_unregister(ctx, id));
	}
	return NULL;
}

static void memory_of_many_threads(void **state)
{
	pthread_t t[4];
	uintptr_t i;

	(void)state;
	ctx->info.features = fake.features = KVCTX_FEAT_PROCESS;
	fake.hold_calls = true;
	fake_disk_start(7);
	for (i = 0; i < 4; i++)
		t[i] = start(i & 1 ? hammer : register_often, (void *)(i + 1));
	for (i = 0; i < 4; i++)
		finish(t[i]);
	fake_disk_stop();
}

static unsigned int asked, asked_with_the_lock;

static void see_the_lock(void)
{
	asked++;
	if (pthread_mutex_trylock(&ctx->lock))
		asked_with_the_lock++;
	else
		pthread_mutex_unlock(&ctx->lock);
}

/* A server in user space is asked, and may take its time: others go on meanwhile. */
static void registering_keeps_up_nobody(void **state)
{
	uint8_t buf[64];
	uint32_t id;

	(void)state;
	ctx->info.features = KVCTX_FEAT_PROCESS;
	fake.features = KVCTX_FEAT_PROCESS | KVCTX_FEAT_UNREGISTERED;
	fake.on_info = see_the_lock;
	asked = asked_with_the_lock = 0;
	assert_int_equal(kvctx_mem_register(ctx, buf, sizeof(buf), &id), 0);
	assert_int_equal(asked, 1);
	assert_int_equal(asked_with_the_lock, 0);
	assert_int_equal(kvctx_get_info(ctx)->features, fake.features);
	assert_int_equal(kvctx_mem_unregister(ctx, id), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(synchronous_calls_of_many_threads),
		TEST(many_threads_in_a_short_ring),
		TEST(many_submitters),
		TEST(both_styles_at_once),
		TEST(calls_overlap),
		TEST(calls_beside_a_sleeper),
		TEST(calls_beside_a_full_queue),
		TEST(submitting_beside_a_call),
		TEST(waiting_for_what_was_not_taken),
		TEST(waiting_for_what_a_ring_did_not_take),
		TEST(calls_without_room),
		TEST(queue_without_room),
		TEST(waiting_beside_a_watcher),
		TEST(memory_in_use_stays_registered),
		TEST(memory_of_many_threads),
		TEST(registering_keeps_up_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
