// SPDX-License-Identifier: LGPL-2.1-or-later
/* What a session of kvctxd does without asking it: ids of local memory, and looking for completions. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../socket/socket.h"
#include "test.h"

#define LOOKS	1000	/* more than are made before the bell is looked at */

static struct socket_file file;

static int set_up(void **state)
{
	(void)state;
	memset(&file, 0, sizeof(file));
	file.file.server = &kvctx_daemon;
	file.limits.mem_max = 4;
	pthread_mutex_init(&file.lock, NULL);
	pthread_mutex_init(&file.stage_lock, NULL);
	return 0;
}

static uint32_t register_memory(void *p, size_t bytes)
{
	struct kvctx_mem_register arg = { .size = sizeof(arg), .addr = (uintptr_t)p, .length = bytes };

	assert_int_equal(kvs_register(&file, &arg), 0);
	return arg.id;
}

static void unregister_memory(uint32_t id)
{
	struct kvctx_mem_unregister arg = { .size = sizeof(arg), .id = id };

	assert_int_equal(kvs_unregister(&file, &arg), 0);
}

/* Each has its own, also when more were registered and unregistered meanwhile than there are ids */
static void ids_of_local_memory(void **state)
{
	uint8_t *a = malloc(4096), *b = malloc(4096), stage;
	uint32_t first, second, third;

	(void)state;
	file.stage[0].map = &stage;
	file.nr_rooms = 1;
	first = register_memory(a, 4096);
	second = register_memory(b, 4096);
	assert_int_not_equal(first, second);
	unregister_memory(second);
	file.next_local += LOCAL_ID - 2;
	second = register_memory(b, 4096);
	third = register_memory(b, 4096);
	assert_int_not_equal(first, second);
	assert_int_not_equal(first, third);
	assert_int_not_equal(second, third);
	unregister_memory(first);
	unregister_memory(second);
	unregister_memory(third);
	free(a);
	free(b);
}

static void look(void)
{
	for (int i = 0; i < LOOKS; i++)
		kvctx_sys_look(&file.file);
}

/* Who looks takes nothing off the bell, where another thread may be about to sleep, and sees when the daemon is gone */
static void looking_leaves_the_bell(void **state)
{
	struct kvctx_cq_ring far = { 0 }, near = { 0 };
	struct wire_door door = { 0 };
	int bell[2];
	char byte;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, bell), 0);
	file.far = &far;
	file.near = &near;
	file.door = &door;
	file.fds[WIRE_FD_BELL] = bell[0];
	file.inflight = 1;
	file.ready = true;
	assert_int_equal(write(bell[1], "x", 1), 1);
	look();
	assert_false(kvs_gone(&file));
	close(bell[1]);
	look();
	assert_true(kvs_gone(&file));
	assert_int_equal(recv(bell[0], &byte, 1, MSG_DONTWAIT), 1);
	close(bell[0]);
}

/* A session with an eventfd, in whose far ring the test posts, and rings */
static struct {
	struct kvctx_cq_ring *far, *near;
	struct wire_door door;
	struct record records[4];
	int bell[2];
} daemon_side;

static void open_session(void)
{
	size_t bytes = sizeof(struct kvctx_cq_ring) + 4 * sizeof(struct kvctx_cqe);

	memset(&daemon_side, 0, sizeof(daemon_side));
	daemon_side.far = calloc(1, bytes);
	daemon_side.near = calloc(1, bytes);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, daemon_side.bell), 0);
	file.far = daemon_side.far;
	file.near = daemon_side.near;
	file.door = &daemon_side.door;
	file.records = daemon_side.records;
	file.fds[WIRE_FD_BELL] = daemon_side.bell[0];
	file.kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	file.entries = 4;
	file.signals = true;
	file.ready = true;
	for (uint32_t i = 0; i < 4; i++)
		daemon_side.records[i].next = i + 1;
}

static void close_session(void)
{
	close(daemon_side.bell[0]);
	close(daemon_side.bell[1]);
	close(file.kick_fd);
	free(daemon_side.far);
	free(daemon_side.near);
}

static uint64_t begin_operation(void)
{
	int nr = kvs_record_take(&file, 7);

	assert_true(nr >= 0);
	file.records[nr].state = RECORD_FLYING;
	return kvs_record_name(&file, (uint32_t)nr);
}

/* As the engine does, whose eventfd is signalled later */
static void post(uint64_t name)
{
	daemon_side.far->cqes[daemon_side.far->tail & 3] = (struct kvctx_cqe){ .user_data = name };
	__atomic_add_fetch(&daemon_side.far->tail, 1, __ATOMIC_SEQ_CST);
}

/* The eventfd has been signalled */
static void tell(void)
{
	uint32_t tail = __atomic_add_fetch(&daemon_side.door.tail, 1, __ATOMIC_SEQ_CST);
	uint64_t wanted = __atomic_load_n(&daemon_side.door.wanted, __ATOMIC_SEQ_CST);

	if (!wanted || (int32_t)(tail - (uint32_t)wanted) < 0)
		return;
	__atomic_store_n(&daemon_side.door.wanted, 0, __ATOMIC_SEQ_CST);
	assert_int_equal(send(daemon_side.bell[1], "x", 1, 0), 1);
}

static void *wait_for(void *min)
{
	__u64 timeout = KVCTX_TIMEOUT_NONE;

	return (void *)(intptr_t)kvs_sleep(&file, (uint32_t)(uintptr_t)min, &timeout);
}

/* What it has returned; who still waits then was not woken */
static int result_of(pthread_t thread)
{
	struct timespec limit;
	void *ret;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 60;
	assert_int_equal(pthread_timedjoin_np(thread, &ret, &limit), 0);
	return (int)(intptr_t)ret;
}

/* Until so many sleep, and a moment longer, as they do it without the lock */
static void until_asleep(uint32_t nr)
{
	bool asleep = false;

	while (!asleep) {
		pthread_mutex_lock(&file.lock);
		asleep = file.sleepers == nr && file.watched;
		pthread_mutex_unlock(&file.lock);
	}
	usleep(50000);
}

/* One waits for two completions, the other for one, which is there but that its eventfd does not tell of yet */
static void eventfd_that_lags(void **state)
{
	uint64_t first, second;
	pthread_t both, one;

	(void)state;
	open_session();
	first = begin_operation();
	second = begin_operation();
	pthread_create(&both, NULL, wait_for, (void *)2);
	until_asleep(1);
	post(first);
	pthread_create(&one, NULL, wait_for, (void *)1);
	until_asleep(2);
	tell();
	assert_int_equal(result_of(one), 1);
	until_asleep(1);
	post(second);
	tell();
	assert_int_equal(result_of(both), 2);
	close_session();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(ids_of_local_memory, set_up),
		cmocka_unit_test_setup(looking_leaves_the_bell, set_up),
		cmocka_unit_test_setup(eventfd_that_lags, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
