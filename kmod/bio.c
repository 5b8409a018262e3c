// SPDX-License-Identifier: GPL-2.0
/*
 * What the bios of both sides need: streams, accounts; and synchronous I/O of a buffer.
 *
 * Streams. The engine says which stream a write belongs to; the device is told by a write stream where it has any (NVMe
 * with flexible data placement), and by a write life time hint.
 *
 * Accounts. Bytes are counted where they are sent, and charged to the write budget there.
 */
#include <linux/bio.h>
#include <linux/highmem.h>

#include "kvctx.h"

void kvctx_count_written(struct kvctx_pool *p, struct percpu_counter *c, u64 bytes)
{
	percpu_counter_add_batch(c, (s64)bytes, KVCTX_COUNT_BATCH);
	kvc_budget_spend(p->core, bytes);
}

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

/* Add as much of the buffer as fits; returns the bytes. */
static size_t kvctx_bio_fill(struct bio *bio, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		void *p = buf + done;
		struct page *page = is_vmalloc_addr(p) ? vmalloc_to_page(p) : virt_to_page(p);
		unsigned int n = min_t(size_t, len - done, PAGE_SIZE - offset_in_page(p));

		if (bio_add_page(bio, page, n, offset_in_page(p)) != n)
			break;
		done += n;
	}
	return done;
}

/*
 * Read or write a buffer of kvmalloc() and wait. Whole blocks; the buffer begins at a block's alignment. With
 * REQ_PREFLUSH the device's cache is flushed before the first byte. @stream: of a write.
 */
int kvctx_io_stream(struct block_device *bdev, blk_opf_t opf, u32 stream, u64 offset, void *buf, size_t len)
{
	while (len) {
		struct bio *bio;
		size_t done;
		int err;

		bio = bio_alloc(bdev, bio_max_segs(DIV_ROUND_UP(len, PAGE_SIZE)), opf, GFP_NOIO);
		bio->bi_iter.bi_sector = offset >> SECTOR_SHIFT;
		if (op_is_write(opf))
			kvctx_bio_stream(bio, stream);
		done = kvctx_bio_fill(bio, buf, len);
		if (op_is_write(opf) && is_vmalloc_addr(buf))
			flush_kernel_vmap_range(buf, done);
		err = submit_bio_wait(bio);
		bio_put(bio);
		if (err)
			return err;
		if (!op_is_write(opf) && is_vmalloc_addr(buf))
			invalidate_kernel_vmap_range(buf, done);
		opf &= ~REQ_PREFLUSH;
		offset += done;
		buf += done;
		len -= done;
	}
	return 0;
}
