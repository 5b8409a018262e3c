// SPDX-License-Identifier: GPL-2.0
/* Counting, see stats.h. */
#include "stats.h"

void stats_error(struct stats *s, int code)
{
	struct reason *r = s->reasons, *last = &s->reasons[STATS_REASONS - 1];

	s->errors++;
	while (r < last && r->count && r->code != -code)
		r++;
	r->code = r == last ? 0 : -code;
	r->count++;
}

double stats_hit_ratio(const struct stats *s)
{
	return s->pages_referenced ? (double)s->pages_hit / (double)s->pages_referenced : 0;
}

double stats_mbps(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes * 1000 / (double)ns : 0;
}

bool stats_good(const struct stats *s, bool verify)
{
	if (!s->completed || s->errors || s->wrong_pages || s->bad_pages)
		return false;
	return !verify || !s->unverified_pages;
}
