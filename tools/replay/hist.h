/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Log-linear histogram of nanoseconds, after Gil Tene's HdrHistogram (hdrhistogram.org): each power of two is divided
 * into HIST_SUB equal buckets, so a bucket is never wider than 1/HIST_SUB of the values in it, whatever their range.
 * Recording is O(1) and allocates nothing; values 0..2^64 - 1 all have a place.
 */
#ifndef KVCTX_REPLAY_HIST_H
#define KVCTX_REPLAY_HIST_H

#include <stdint.h>

#define HIST_SUB_BITS	7
#define HIST_SUB	(1U << HIST_SUB_BITS)
#define HIST_BUCKETS	((64 - HIST_SUB_BITS + 1) * HIST_SUB)

struct hist {
	uint64_t count;
	uint64_t sum;
	uint64_t max;
	uint64_t buckets[HIST_BUCKETS];
};

/* Into one that was zero in the beginning */
void hist_add(struct hist *h, uint64_t value);

/*
 * The value that @per_100000 hundred-thousandths of the recorded values do not exceed (50000: median, 99900: 99.9th
 * percentile). Never below the exact one and at most 1/HIST_SUB above it; 0 when nothing was recorded.
 */
uint64_t hist_quantile(const struct hist *h, uint32_t per_100000);

/* Rounded down; 0 when nothing was recorded */
uint64_t hist_mean(const struct hist *h);

#endif
