// SPDX-License-Identifier: GPL-2.0
/*
 * Which blocks of the module this thread's calls run, for libFuzzer: it looks at a section of this name beside its own
 * counters (FuzzerExtraCountersLinux.cpp). The kernel tells addresses (Documentation/dev-tools/kcov.rst); only the module
 * is built to, and is smaller than what the counters' indices tell apart.
 */
#include <fcntl.h>
#include <linux/kcov.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "fuzz.h"

#define KCOV_WORDS	(1U << 18)
#define KCOV_COUNTERS	(1U << 16)

__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t kcov_counters[KCOV_COUNTERS];

static uint64_t *kcov_area;

void fuzz_kcov_init(void)
{
	int fd = open("/sys/kernel/debug/kcov", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		fuzz_die("kcov: the kernel has none");
	if (ioctl(fd, KCOV_INIT_TRACE, (unsigned long)KCOV_WORDS))
		fuzz_die("kcov: no room for what it tells");
	kcov_area = mmap(NULL, KCOV_WORDS * sizeof(*kcov_area), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (kcov_area == MAP_FAILED)
		fuzz_die("kcov: cannot be mapped");
	if (ioctl(fd, KCOV_ENABLE, KCOV_TRACE_PC))
		fuzz_die("kcov: cannot be enabled");
}

void fuzz_kcov_begin(void)
{
	__atomic_store_n(&kcov_area[0], 0, __ATOMIC_RELAXED);
}

void fuzz_kcov_end(void)
{
	uint64_t nr = __atomic_load_n(&kcov_area[0], __ATOMIC_RELAXED);

	for (uint64_t i = 1; i <= nr && i < KCOV_WORDS; i++) {
		uint8_t *counter = &kcov_counters[(kcov_area[i] >> 2) % KCOV_COUNTERS];

		if (*counter != 0xff)
			++*counter;
	}
}
