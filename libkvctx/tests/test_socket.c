// SPDX-License-Identifier: LGPL-2.1-or-later
/* What a session of kvctxd does without asking it: ids of local memory, and looking for completions. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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
	file.stage.map = &stage;
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
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, bell), 0);
	file.far = &far;
	file.near = &near;
	file.door = &door;
	file.fds[WIRE_FD_BELL] = bell[0];
	file.inflight = 1;
	file.ready = true;
	assert_int_equal(write(bell[1], "x", 1), 1);
	look();
	assert_false(kvs_gone(&file));
	assert_int_equal(recv(bell[0], &byte, 1, MSG_DONTWAIT), 1);
	close(bell[1]);
	look();
	assert_true(kvs_gone(&file));
	close(bell[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(ids_of_local_memory, set_up),
		cmocka_unit_test_setup(looking_leaves_the_bell, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
