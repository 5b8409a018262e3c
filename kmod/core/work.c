// SPDX-License-Identifier: GPL-2.0-only OR LGPL-2.1-or-later
/*
 * Work items: what a member's worker does next, and what its end means.
 */
#include "log/log.h"

/* 0, -EAGAIN (there is no room yet for what it has to carry), -ENOMEM */
static int settle(struct kvc_member *m)
{
	int r = unlikely(READ_ONCE(m->torn)) && !READ_ONCE(m->offline) ? kvc_return_carry(m) : 0;

	return r == -ENODEV ? 0 : r;
}

/* Space first: what waits for it are stores. Then summaries, then what makes more space. */
int kvc_work_next(struct kvc_pool *p, u32 member, struct kvc_work *w)
{
	struct kvc_member *m = &p->members[member];
	int r;

	/* what follows makes room */
	if (settle(m) == -ENOMEM)
		return -ENOMEM;
	do {
		if (READ_ONCE(m->leaving)) {
			r = kvc_leave_next(m, w);
			continue;
		}
		if (READ_ONCE(m->offline))
			return 0;
		r = kvc_header_next(m, w);
		if (!r)
			r = kvc_summary_due(m, w);
		if (!r)
			r = kvc_reclaim_next(m, w);
	} while (r == -EAGAIN);
	return r;
}

static bool adjoins(const struct kvc_work *w, const struct kvc_work *next)
{
	u64 padded = kvc_padded(next->len);

	return next->type == KVC_WORK_MOVE && next->member == w->member && next->src_member == w->src_member &&
	       next->offset + padded == w->offset && next->src_offset + padded == w->src_offset;
}

int kvc_run_next(struct kvc_pool *p, u32 member, struct kvc_run *run)
{
	struct kvc_work *w = run->w;
	int r = kvc_work_next(p, member, w);

	if (r != 1)
		return r;
	run->nr = 1;
	run->together = 1;
	run->bytes = kvc_padded(w->len);
	if (w->type != KVC_WORK_MOVE)
		return 1;
	while (run->together == run->nr && run->nr < KVC_RUN_MOVES && run->bytes < KVC_RUN_BYTES &&
	       kvc_work_next(p, member, ++w) == 1) {
		run->nr++;
		if (adjoins(w - 1, w) && run->bytes + kvc_padded(w->len) <= KVC_RUN_BYTES) {
			run->together++;
			run->bytes += kvc_padded(w->len);
		}
	}
	return 1;
}

int kvc_flush_next(struct kvc_pool *p, u32 member, struct kvc_work *w)
{
	struct kvc_member *m = &p->members[member];
	int r = settle(m);

	if (likely(!r))
		return kvc_summary_any(m, w);
	/* a header may be the room; else reclaim has to make some before anybody can be told that all is durable */
	if (r == -EAGAIN && !kvc_header_next(m, w))
		return -EIO;
	return r == -EAGAIN ? 1 : r;
}

u64 kvc_flush_mark(struct kvc_pool *p, u32 member)
{
	struct kvc_member *m = &p->members[member];
	u64 mark;

	os_lock(&m->lock);
	mark = m->commits;
	os_unlock(&m->lock);
	return mark;
}

bool kvc_flushed(struct kvc_pool *p, u32 member, u64 mark)
{
	struct kvc_member *m = &p->members[member];
	bool r;

	os_lock(&m->lock);
	r = m->offline || (!READ_ONCE(m->torn) && kvc_member_logged(m, max(mark, m->carried)));
	os_unlock(&m->lock);
	return r;
}

u32 kvc_work_crc(struct kvc_pool *p, const struct kvc_work *w, u32 chunk)
{
	return kvc_load_crc(p, &w->src, chunk);
}

int kvc_work_check(struct kvc_pool *p, const struct kvc_work *w, const u8 *buf, u32 pos, u32 len)
{
	u32 chunk = pos / p->chunk_size, done, n;

	if (pos + len == w->len)
		len = w->src.summed - pos;
	for (done = 0; done < len && !w->no_crcs; done += n, chunk++) {
		n = min(len - done, p->chunk_size);
		if (kvc_crc_finish(kvc_crc_feed(KVC_CRC_INIT, buf + done, n)) != kvc_work_crc(p, w, chunk))
			return -EBADMSG;
	}
	return 0;
}

int kvc_run_check(struct kvc_pool *p, const struct kvc_run *run, const u8 *buf)
{
	const struct kvc_work *w;
	int err = 0;

	for (w = run->w; w <= kvc_run_front(run) && !err; w++)
		err = kvc_work_check(p, w, buf + (w->src_offset - kvc_run_front(run)->src_offset), 0, w->len);
	return err;
}

void kvc_work_done(struct kvc_pool *p, struct kvc_work *w, int err)
{
	struct kvc_member *m = &p->members[w->member];

	switch (w->kind) {
	case KVC_W_HEADER:
		kvc_header_done(m, w, err);
		break;
	case KVC_W_EXTENT:
		kvc_summary_done(m, w, err);
		break;
	case KVC_W_MOVE:
		kvc_move_done(m, w, err);
		break;
	case KVC_W_DISCARD:
		kvc_discard_done(m, w);
		break;
	}
}
