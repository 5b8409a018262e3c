// SPDX-License-Identifier: GPL-2.0
/*
 * Print the frequency of this machine's time stamp counter in kHz, measured
 * against CLOCK_MONOTONIC_RAW. An emulated guest reads the same counter, but on a
 * busy machine it cannot measure it: the emulation stands still in between.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct sample {
	uint64_t tsc;
	uint64_t ns;
};

/* Both clocks at one time: the closest of many pairs, as we may be preempted */
static struct sample take(void)
{
	struct sample best = { 0 };
	uint64_t closest = UINT64_MAX;

	for (int i = 0; i < 1000; i++) {
		struct timespec now;
		uint64_t before = __rdtsc(), after;

		clock_gettime(CLOCK_MONOTONIC_RAW, &now);
		after = __rdtsc();
		if (after - before >= closest)
			continue;
		closest = after - before;
		best.tsc = before + closest / 2;
		best.ns = now.tv_sec * 1000000000ULL + now.tv_nsec;
	}
	return best;
}

int main(void)
{
	struct timespec pause = { .tv_nsec = 200000000 };
	struct sample a = take(), b;

	nanosleep(&pause, NULL);
	b = take();
	printf("%.0f\n", (double)(b.tsc - a.tsc) * 1e6 / (double)(b.ns - a.ns));
	return 0;
}
