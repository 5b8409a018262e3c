// SPDX-License-Identifier: LGPL-2.1-or-later
/* Who serves a path, and what is said of one that is nobody's, or of a liar's. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../socket/wire.h"
#include "test.h"

static char dir[] = "/tmp/kvctx-paths-XXXXXX";

static int refusal(const char *path)
{
	struct kvctx *c = NULL;
	int err = kvctx_open(path, O_RDWR, NULL, &c);

	assert_null(c);
	return err;
}

static int refusal_of(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return refusal(path);
}

static void devices(void **state)
{
	(void)state;
	assert_int_equal(refusal("/dev/null"), -ENOTTY);
}

static void sockets(void **state)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	(void)state;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/socket", dir);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(refusal_of("socket"), -ENOTTY);
	unlink(addr.sun_path);
	close(fd);
}

/* Whatever it is asked, the answer is in a descriptor that does not come. */
static void *answer_without_its_descriptor(void *listener)
{
	struct wire_reply reply = { .flags = WIRE_PARCEL, .bytes = 8 };
	int fd = accept(*(int *)listener, NULL, NULL);
	char request[256];

	if (recv(fd, request, sizeof(request), 0) > 0)
		send(fd, &reply, sizeof(reply), MSG_NOSIGNAL);
	close(fd);
	return NULL;
}

static void parcel_without_a_descriptor(void **state)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	pthread_t daemon;

	(void)state;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/liar", dir);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(pthread_create(&daemon, NULL, answer_without_its_descriptor, &fd), 0);
	assert_int_equal(refusal_of("liar"), -ENODEV);
	pthread_join(daemon, NULL);
	unlink(addr.sun_path);
	close(fd);
}

/* None of these directories is a pool's, and what is in them stays as it is */
static void other_files(void **state)
{
	(void)state;
	assert_int_equal(refusal("/nowhere"), -ENOENT);
	assert_int_equal(refusal("/dev/nothing"), -ENOENT);
	assert_int_equal(refusal("nothing"), -ENOENT);
	assert_int_equal(refusal_of("nothing"), -ENOENT);
	assert_int_equal(refusal_of("no/thing"), -ENOENT);
	assert_int_equal(refusal(""), -ENOENT);
	assert_int_equal(refusal("/proc/self/exe"), -ENOTTY);
	assert_int_equal(refusal("/"), -ENOTTY);
	assert_int_equal(refusal("/proc/self/exe/thing"), -ENOTDIR);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices),
		cmocka_unit_test(sockets),
		cmocka_unit_test(parcel_without_a_descriptor),
		cmocka_unit_test(other_files),
	};

	return mkdtemp(dir) ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
