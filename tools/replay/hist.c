// SPDX-License-Identifier: GPL-2.0
/*
 * Log-linear histogram, see hist.h. Bucket numbers: values below 2 * HIST_SUB have a bucket each; above, with
 * shift = floor(log2(value)) - HIST_SUB_BITS, the bucket is shift * HIST_SUB + (value >> shift), which goes on
 * without a gap because value >> shift lies in HIST_SUB..2 * HIST_SUB - 1.
 */
#include "hist.h"

static unsigned int bucket_of(uint64_t value)
{
	unsigned int shift;

	if (value < 2 * HIST_SUB)
		return value;
	shift = 63 - __builtin_clzll(value) - HIST_SUB_BITS;
	return shift * HIST_SUB + (value >> shift);
}

/* Largest value of a bucket */
static uint64_t bucket_last(unsigned int bucket)
{
	unsigned int shift;

	if (bucket < 2 * HIST_SUB)
		return bucket;
	shift = bucket / HIST_SUB - 1;
	return ((uint64_t)(bucket - shift * HIST_SUB) << shift) + ((1ULL << shift) - 1);
}

void hist_add(struct hist *h, uint64_t value)
{
	h->buckets[bucket_of(value)]++;
	h->count++;
	h->sum += value;
	if (value > h->max)
		h->max = value;
}

/* Rank, from 1, of the quantile among @count sorted values: ceil(count * q), without overflow */
static uint64_t rank_of(uint64_t count, uint32_t per_100000)
{
	uint64_t rank = count / 100000 * per_100000 + (count % 100000 * per_100000 + 99999) / 100000;

	return rank ? rank : 1;
}

uint64_t hist_quantile(const struct hist *h, uint32_t per_100000)
{
	uint64_t rank, seen = 0, last;
	unsigned int i;

	if (!h->count)
		return 0;
	rank = rank_of(h->count, per_100000);
	for (i = 0; i < HIST_BUCKETS - 1; i++) {
		seen += h->buckets[i];
		if (seen >= rank)
			break;
	}
	last = bucket_last(i);
	return last < h->max ? last : h->max;
}

uint64_t hist_mean(const struct hist *h)
{
	return h->count ? h->sum / h->count : 0;
}
