// SPDX-License-Identifier: GPL-2.0
/*
 * Processor time, for the bench.
 *
 *	cputime PID...		print the nanoseconds that these processes have used, all their threads together
 *	cputime crc		print the nanoseconds that CRC32C of a GiB takes, by the library that libkvctx uses, over
 *				memory that is too large for the processor's caches
 *
 * Ticks of /proc are too coarse for runs of less than a second.
 */
#include <errno.h>
#include <isa-l/crc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CRC_BYTES	(256UL << 20)
#define CRC_CHUNK	(64UL << 10)

static unsigned long long ns_of(clockid_t clock)
{
	struct timespec t;

	if (clock_gettime(clock, &t))
		return 0;
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static int print_crc(void)
{
	unsigned char *buf = malloc(CRC_BYTES);
	unsigned long long start;
	volatile unsigned int sum = 0;
	size_t at;

	if (!buf)
		return 1;
	memset(buf, 1, CRC_BYTES);
	start = ns_of(CLOCK_PROCESS_CPUTIME_ID);
	for (at = 0; at < CRC_BYTES; at += CRC_CHUNK)
		sum ^= crc32_iscsi(buf + at, CRC_CHUNK, ~0U);
	printf("%llu\n", (ns_of(CLOCK_PROCESS_CPUTIME_ID) - start) * ((1UL << 30) / CRC_BYTES));
	free(buf);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned long long sum = 0;
	clockid_t clock;
	int i, err;

	if (argc == 2 && !strcmp(argv[1], "crc"))
		return print_crc();
	for (i = 1; i < argc; i++) {
		err = clock_getcpuclockid(atoi(argv[i]), &clock);
		if (err) {
			fprintf(stderr, "cputime: %s: %s\n", argv[i], strerror(err));
			return 1;
		}
		sum += ns_of(clock);
	}
	printf("%llu\n", sum);
	return 0;
}
