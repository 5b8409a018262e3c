// SPDX-License-Identifier: GPL-2.0
/*
 * What flash is spared: discards at a bounded rate, streams, an account of what is written.
 *
 * Discards. A member's worker discards the old pages of reclaimed segments when it has nothing else to do, a part at a
 * time: what the pool's rate allows in a thirty-second of a second, 1 to 32 MiB. After each part it stays away from
 * discards for as long as the part takes at that rate, whatever the device needed for it: in between, loads have the
 * device to themselves. The worker does not wait meanwhile; it is woken then, or earlier for other work. A segment that
 * is wanted before its turn comes is used as it is (core/discard.c). A device that refuses a discard is not asked again
 * until the next attach.
 *
 * Streams. The engine says which stream a write belongs to; the device is told by a write stream where it has any (NVMe
 * with flexible data placement), and by a write life time hint.
 *
 * Accounts. Bytes are counted where they are sent, and charged to the write budget there.
 */
#include "ctrl.h"

#define KVCTX_DISCARD_STEP_MIN	(1ULL << 20)
#define KVCTX_DISCARD_STEP_MAX	(32ULL << 20)
#define KVCTX_DISCARD_PARTS	32		/* of a second */
#define KVCTX_COUNT_BATCH	(16 << 20)	/* bytes that a processor keeps to itself */

/* Accounts */

void kvctx_count_written(struct kvctx_pool *p, struct percpu_counter *c, u64 bytes)
{
	percpu_counter_add_batch(c, (s64)bytes, KVCTX_COUNT_BATCH);
	kvc_budget_spend(p->core, bytes);
}

/* Streams */

void kvctx_bio_stream(struct bio *bio, u32 stream)
{
	u32 max = kvctx_max_write_streams(bio->bi_bdev), pages = max > 2 ? max - 1 : max;

	/* new pages live shorter than moved ones; the engine's structures are few, and have the last stream of three */
	if (stream == KVC_STREAM_META) {
		bio->bi_write_hint = WRITE_LIFE_SHORT;
		kvctx_set_write_stream(bio, max);
	} else {
		bio->bi_write_hint = min_t(u32, WRITE_LIFE_MEDIUM + stream - KVC_STREAM_NEW, WRITE_LIFE_EXTREME);
		kvctx_set_write_stream(bio, min(stream, pages));
	}
}

/* Discards */

/* 1: @w is to be executed; 0: nothing to discard now */
int kvctx_discard_next(struct kvctx_member *m, struct kvc_work *w)
{
	u64 rate = READ_ONCE(m->pool->discard_rate), step;

	if (!rate || m->no_discard || !bdev_max_discard_sectors(m->bdev) || ktime_before(ktime_get(), m->discard_at))
		return 0;
	step = clamp(rate / KVCTX_DISCARD_PARTS, KVCTX_DISCARD_STEP_MIN, KVCTX_DISCARD_STEP_MAX);
	return kvc_discard_next(m->pool->core, m->index, round_down(step, KVC_BLOCK), w);
}

/* A favour to the device: no harm when it fails. */
void kvctx_discard(struct kvctx_member *m, const struct kvc_work *w)
{
	u64 rate = max(READ_ONCE(m->pool->discard_rate), KVC_DISCARD_MIN);

	if (blkdev_issue_discard(m->bdev, w->offset >> SECTOR_SHIFT, w->discard_len >> SECTOR_SHIFT, GFP_NOIO))
		m->no_discard = true;
	else
		percpu_counter_add_batch(&m->pool->counters.discarded, (s64)w->discard_len, KVCTX_COUNT_BATCH);
	m->discard_at = ktime_add_ns(ktime_get(), div64_u64(w->discard_len * NSEC_PER_SEC, rate));
}

/* Jiffies until the worker should look for discards again; 0: it need not */
unsigned long kvctx_discard_delay(struct kvctx_member *m)
{
	s64 ns = ktime_to_ns(ktime_sub(m->discard_at, ktime_get()));

	return ns > 0 && !m->no_discard ? nsecs_to_jiffies(ns) + 1 : 0;
}
