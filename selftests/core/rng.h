/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Random numbers that repeat: one 64-bit state, nothing from the time or from addresses.
 */
#ifndef RNG_H
#define RNG_H

#include "os.h"

struct rng {
	u64	state;
};

static inline u64 rng_mix(u64 x)
{
	x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
	x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
	return x ^ (x >> 33);
}

static inline u64 rng_u64(struct rng *r)
{
	r->state += 0x9e3779b97f4a7c15ULL;
	return rng_mix(r->state);
}

/* [0, n); n > 0 */
static inline u32 rng_below(struct rng *r, u32 n)
{
	return (u32)(rng_u64(r) % n);
}

/* [lo, hi] */
static inline u32 rng_range(struct rng *r, u32 lo, u32 hi)
{
	return lo + rng_below(r, hi - lo + 1);
}

/* True n times in 10,000 */
static inline bool rng_chance(struct rng *r, u32 n)
{
	return rng_below(r, 10000) < n;
}

#endif
