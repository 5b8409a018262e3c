/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SplitMix64: a counter (a Weyl sequence) put through a bijective mixer. Steele, Lea, Flood: "Fast Splittable
 * Pseudorandom Number Generators", OOPSLA 2014; the mixer's constants are David Stafford's variant 13, which that
 * paper's later users settled on.
 *
 * Because the state is a counter, the n-th number is found without the n - 1 before it: page content can be checked
 * from any byte on (content.c). Because all is integer arithmetic, the same seed gives the same numbers on every
 * machine, compiler and C library.
 */
#ifndef KVCTX_WORKLOAD_RNG_H
#define KVCTX_WORKLOAD_RNG_H

#include <stdint.h>

#define RNG_GAMMA	0x9e3779b97f4a7c15ULL	/* 2^64 divided by the golden ratio, odd */

static inline uint64_t rng_mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/* The n-th number (from 0) of the stream that starts at @base */
static inline uint64_t rng_at(uint64_t base, uint64_t n)
{
	return rng_mix(base + (n + 1) * RNG_GAMMA);
}

static inline uint64_t rng_next(uint64_t *state)
{
	*state += RNG_GAMMA;
	return rng_mix(*state);
}

/* 0..@end - 1. The bias of at most @end / 2^32 does not matter here */
static inline uint32_t rng_below(uint64_t *state, uint32_t end)
{
	return (rng_next(state) >> 32) * end >> 32;
}

#endif
