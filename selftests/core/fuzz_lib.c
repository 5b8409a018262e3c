// SPDX-License-Identifier: GPL-2.0
/*
 * One target as libFuzzer takes it. FUZZ_TARGET is its function. See fuzz.h.
 *
 * Half of the mutations know what a program of operations is, the others are libFuzzer's own.
 */
#include "fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size);
size_t LLVMFuzzerCustomMutator(u8 *data, size_t size, size_t max, unsigned int seed);
size_t LLVMFuzzerMutate(u8 *data, size_t size, size_t max);	/* libFuzzer's */

void fuzz_fail(const char *what)
{
	fprintf(stderr, "fuzz: %s\n", what);
	abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	harness_fail = fuzz_fail;
	return 0;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	FUZZ_TARGET(data, size);
	return 0;
}

size_t LLVMFuzzerCustomMutator(u8 *data, size_t size, size_t max, unsigned int seed)
{
	struct rng rng = { .state = seed };

	if (rng_chance(&rng, 5000))
		return LLVMFuzzerMutate(data, size, max);
	return fuzz_mutate(&rng, data, size, max);
}
