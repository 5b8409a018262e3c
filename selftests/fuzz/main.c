// SPDX-License-Identifier: GPL-2.0
/*
 * libFuzzer's side: one input after the other, each from a clean beginning: no session is open, no ring, and the pool is
 * attached with its tenants. Pages stay; so an input may find what another one has left.
 *
 * FUZZ_LAST names a file that has the newest inputs, for the day the kernel goes with them: 64 places of 4 KiB, by turns,
 * each a number that counts up, a length and the bytes. The program last takes them apart.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

#define LAST_PLACES	64
#define LAST_BYTES	4096

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int main_last = -1;
static timer_t main_often;

void fuzz_die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "fuzz: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	exit(1);
}

static void main_ignore(int signal)
{
	(void)signal;
}

/* What ends waits; libFuzzer has SIGALRM */
static void main_timer(void)
{
	struct sigaction action = { .sa_handler = main_ignore };
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1 };

	event._sigev_un._tid = gettid();
	if (sigaction(SIGUSR1, &action, NULL) || timer_create(CLOCK_MONOTONIC, &event, &main_often))
		fuzz_die("no timer: %s", strerror(errno));
}

/* Only while an input runs: libFuzzer's own calls are not to be interrupted */
static void main_interrupts(bool yes)
{
	struct itimerspec often = { { 0, yes ? 10000000 : 0 }, { 0, yes ? 10000000 : 0 } };

	timer_settime(main_often, 0, &often, NULL);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *last = getenv("FUZZ_LAST");

	(void)argc;
	(void)argv;
	if (last)
		main_last = open(last, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (last && main_last < 0)
		fuzz_die("%s: %s", last, strerror(errno));
	fuzz_memory_init();
	fuzz_control_init();
	fuzz_control_mend();
	main_timer();
	fuzz_kcov_init();
	return 0;
}

static void main_remember(const uint8_t *data, size_t size)
{
	static uint64_t turn;
	uint32_t length = (uint32_t)(size < LAST_BYTES - 12 ? size : LAST_BYTES - 12);
	uint8_t place[LAST_BYTES] = { 0 };

	if (main_last < 0)
		return;
	turn++;
	memcpy(place, &turn, 8);
	memcpy(place + 8, &length, 4);
	memcpy(place + 12, data, length);
	if (pwrite(main_last, place, sizeof(place), (off_t)(turn % LAST_PLACES * LAST_BYTES)) < 0)
		fuzz_die("the newest input cannot be kept: %s", strerror(errno));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = { data, data + size };

	main_remember(data, size);
	fuzz_memory_begin();
	main_interrupts(true);
	fuzz_kcov_begin();
	while (in.at < in.end) {
		uint8_t kind = fuzz_byte(&in);

		if (kind < 190)
			fuzz_session(&in);
		else if (kind < 235)
			fuzz_ring(&in);
		else
			fuzz_control(&in);
	}
	fuzz_ring_end();
	fuzz_sessions_end();
	fuzz_kcov_end();
	main_interrupts(false);
	fuzz_control_mend();
	return 0;
}
