// SPDX-License-Identifier: GPL-2.0
/*
 * One operation's pieces to bios.
 *
 * The page is contiguous on media, its pieces are anywhere in memory. The unit in which a device takes them is the
 * block: its logical block size, or the alignment it wants for DMA where that is larger.
 *
 *   direct    the part of a run that covers whole blocks at an address the device can take goes into the bio as it is
 *   bounce    every other block (two pieces meet in it, or a piece is misaligned) goes through memory of ours: gathered
 *             before a write, scattered after a read
 *   zeros     whole blocks of a gap are written from the zero page
 *
 * So each bio vector is a whole number of blocks, and wherever the block layer splits a bio (queue limits, gaps
 * that a PRP list cannot express), it splits between blocks.
 *
 * Counting: io.pending is 1 for who submits and 1 for each bio (STORE adds one for its CRCs). Whoever takes it to
 * zero calls kind->finish(), in any context. A transfer that fits the bio inside the operation takes that one. Others
 * are submitted as they fill and freed as they end; an operation never keeps one while it waits for another, so a
 * small mempool is enough for progress.
 *
 * Completing a transfer allocates nothing; only the second look at a chunk that failed its check does (load.c).
 */
#include <linux/io.h>
#include <linux/ioprio.h>
#include <linux/slab.h>

#include "op.h"

#define BOUNCE_PARTS	8

/* A page of bounced blocks: parts of the transfer, in its order */
struct kvctx_bounce {
	struct kvctx_bounce *next;
	struct page *page;
	u32 used;			/* bytes of the page */
	u32 nr;
	struct {
		u64 pos;		/* inside the transfer */
		u32 offset;		/* inside the page */
		u32 length;
	} part[BOUNCE_PARTS];
};

/* A transfer while its bios are made */
struct io_transfer {
	struct kvctx_op *op;
	struct block_device *bdev;
	blk_opf_t opf;
	u32 unit;
	struct kvctx_cursor cursor;
	u64 pos;			/* bytes handed to bios */
	u32 vecs;			/* how many vectors the rest may need */
	bool small;			/* the operation's own bio will do */
	struct bio *bio;
	struct kvctx_bounce *last;
};

static struct bio_set kvctx_bios;

int kvctx_io_init(void)
{
	return bioset_init(&kvctx_bios, BIO_POOL_SIZE, 0, BIOSET_NEED_BVECS);
}

void kvctx_io_exit(void)
{
	bioset_exit(&kvctx_bios);
}

/* Bytes of a block, and the alignment at which it moves without a bounce. */
u32 kvctx_io_unit(struct block_device *bdev)
{
	return clamp(max(bdev_logical_block_size(bdev), bdev_dma_alignment(bdev) + 1), (u32)SECTOR_SIZE, KVC_BLOCK);
}

/*
 * The members that can move all of the operation's peer memory as it is: by path, and because each run of it is whole
 * blocks of theirs at an address that they can take. Peer memory has no bounce blocks. The peers are there, or it will
 * be found out when the operation has to wait.
 */
u64 kvctx_io_members(struct kvctx_op *op)
{
	const struct kvctx_pool *p = op->session->pool;
	u64 members = KVC_ANY_MEMBER, pos = op->call.offset, blocks = 0, addrs = 0;
	u32 i, left, peers_left = kvctx_peers_left();
	struct kvctx_cursor c;
	struct kvctx_run run;
	bool gone = false;

	for (i = 0; i < op->mem.nr; i++) {
		const struct kvctx_piece *piece = &op->mem.user[i];

		gone |= kvctx_peer_gone(piece->mem);
		left = piece->mem->peer ? piece->length : 0;
		if (left)
			members &= kvctx_peer_members(piece->mem);
		else
			pos += piece->length;
		for (kvctx_cursor_init(&c, piece); left; left -= run.length) {
			kvctx_cursor_run(&c, &run);
			blocks |= pos | run.length;
			addrs |= page_to_phys(run.page) + run.offset;
			kvctx_cursor_advance(&c, run.length);
			pos += run.length;
		}
	}
	if (!gone)
		op->mem.peers_left = peers_left;
	rcu_read_lock();
	for (i = 0; i < KVC_MEMBERS_MAX; i++) {
		struct block_device *bdev = READ_ONCE(p->members[i].bdev);

		if (!bdev || blocks & (kvctx_io_unit(bdev) - 1) || addrs & bdev_dma_alignment(bdev))
			members &= ~BIT_ULL(i);
	}
	rcu_read_unlock();
	return members;
}

/* One of those that io.pending counts has reported. */
void kvctx_io_put(struct kvctx_op *op)
{
	if (atomic_dec_and_test(&op->io.pending)) {
		os_trace_op(op_answered, &op->call, (s32)op->io.member, op->io.error);
		kvctx_turn_end(op);
		op->kind->finish(op);
	}
}

static void io_bio_done(struct bio *bio)
{
	struct kvctx_op *op = bio->bi_private;

	if (unlikely(bio->bi_status))
		cmpxchg(&op->io.error, 0, bio->bi_status == BLK_STS_OFFLINE ? -ENODEV : -EIO);
	if (bio == &op->bio)
		bio_uninit(bio);
	else
		bio_put(bio);
	kvctx_io_put(op);
}

static struct bio *io_bio_new(struct io_transfer *t)
{
	if (!t->small)
		return bio_alloc_bioset(t->bdev, min(t->vecs, BIO_MAX_VECS), t->opf, GFP_NOIO, &kvctx_bios);
	bio_init(&t->op->bio, t->bdev, t->op->vecs, KVCTX_INLINE_VECS, t->opf);
	/* it is taken: another one, should this be full, comes from the pool */
	t->small = false;
	return &t->op->bio;
}

static void io_bio_drop(struct io_transfer *t)
{
	if (t->bio == &t->op->bio)
		bio_uninit(t->bio);
	else if (t->bio)
		bio_put(t->bio);
}

static void io_bio_send(struct io_transfer *t)
{
	struct bio *bio = t->bio;

	t->bio = NULL;
	if (!bio)
		return;
	bio->bi_private = t->op;
	bio->bi_end_io = io_bio_done;
	atomic_inc(&t->op->io.pending);
	submit_bio(bio);
}

/* As bio_add_page(), which looks for more than can be: what is not contiguous is one vector more. */
static bool io_bio_take(struct io_transfer *t, struct page *page, u32 n, u32 offset)
{
	struct bio *bio = t->bio;
	const struct bio_vec *last;

	if (t->op->mem.p2p || !bio->bi_vcnt)
		return bio_add_page(bio, page, n, offset) == n;
	last = &bio->bi_io_vec[bio->bi_vcnt - 1];
	if (bvec_phys(last) + last->bv_len == page_to_phys(page) + offset)
		return bio_add_page(bio, page, n, offset) == n;
	if (bio->bi_vcnt == bio->bi_max_vecs || bio->bi_iter.bi_size > UINT_MAX - n)
		return false;
	__bio_add_page(bio, page, n, offset);
	return true;
}

/* What a device that knows priorities is told */
static u16 io_prio(const struct kvctx_op *op)
{
	u32 level = op->call.prio == KVCTX_PRIO_URGENT ? 0 : op->call.prio == KVCTX_PRIO_BACKGROUND ? 7 : 4;

	return IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, level);
}

static void io_add(struct io_transfer *t, struct page *page, u32 n, u32 offset)
{
	if (!t->bio || !io_bio_take(t, page, n, offset)) {
		io_bio_send(t);
		t->bio = io_bio_new(t);
		t->bio->bi_ioprio = io_prio(t->op);
		if (op_is_write(t->opf))
			kvctx_bio_stream(t->bio, t->op->io.stream);
		t->bio->bi_iter.bi_sector = (t->op->io.offset + t->pos) >> SECTOR_SHIFT;
		__bio_add_page(t->bio, page, n, offset);
	}
	t->vecs = max(t->vecs, 2U) - 1;
	t->pos += n;
}

static struct kvctx_bounce *io_bounce_new(struct io_transfer *t)
{
	struct kvctx_bounce *b = kmalloc(sizeof(*b), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);

	if (!b)
		return NULL;
	*b = (struct kvctx_bounce){ .page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_NOWARN | __GFP_RETRY_MAYFAIL) };
	if (!b->page) {
		kfree(b);
		return NULL;
	}
	if (t->last)
		t->last->next = b;
	else
		t->op->io.bounces = b;
	t->last = b;
	return b;
}

/* Move the next @n bytes, whole blocks, through a bounce page; fewer when the page ends. */
static int io_bounce(struct io_transfer *t, u32 n)
{
	struct kvctx_bounce *b = t->last;
	u32 i;

	if (!b || b->nr == BOUNCE_PARTS || b->used + t->unit > PAGE_SIZE) {
		b = io_bounce_new(t);
		if (!b)
			return -ENOMEM;
	}
	n = min_t(u32, n, round_down((u32)PAGE_SIZE - b->used, t->unit));
	i = b->nr++;
	b->part[i].pos = t->pos;
	b->part[i].offset = b->used;
	b->part[i].length = n;
	if (op_is_write(t->opf))
		kvctx_cursor_read(&t->cursor, page_address(b->page) + b->used, n);
	else
		kvctx_cursor_advance(&t->cursor, n);
	t->op->io.bounced += n / t->unit;
	io_add(t, b->page, n, b->used);
	b->used += n;
	return 0;
}

static bool io_aligned(const struct io_transfer *t, const struct kvctx_run *run)
{
	return !((page_to_phys(run->page) + run->offset) & bdev_dma_alignment(t->bdev));
}

/* The next bytes of the transfer, as many as go the same way. */
static int io_step(struct io_transfer *t)
{
	struct kvctx_run run;
	u32 n;

	kvctx_cursor_run(&t->cursor, &run);
	n = round_down(run.length, t->unit);
	if (!n)
		return io_bounce(t, t->unit);
	if (!run.page) {
		if (!op_is_write(t->opf))
			return io_bounce(t, n);
		n = min_t(u32, n, PAGE_SIZE);
		run.page = ZERO_PAGE(0);
	} else if (!io_aligned(t, &run)) {
		return io_bounce(t, n);
	}
	kvctx_cursor_advance(&t->cursor, n);
	io_add(t, run.page, n, run.offset);
	return 0;
}

/* How many vectors the transfer may take: two for each run, but no more than fill a bio. */
static u32 io_count_vecs(const struct kvctx_op *op, u64 bytes)
{
	struct kvctx_cursor c;
	struct kvctx_run run;
	u32 vecs = 1;

	/* many, so that it does not matter how many exactly */
	if (op->mem.nr > KVCTX_INLINE_VECS)
		return min_t(u64, 2 * op->mem.nr + (bytes >> PAGE_SHIFT) + 1, BIO_MAX_VECS);
	kvctx_cursor_init(&c, op->io.pieces);
	while (bytes && vecs < BIO_MAX_VECS) {
		kvctx_cursor_run(&c, &run);
		kvctx_cursor_advance(&c, run.length);
		bytes -= min_t(u64, bytes, run.length);
		vecs += 2;
	}
	return vecs;
}

/* A transfer that lies in one run the device can take is one vector: the common case, made short. */
static bool io_whole(struct io_transfer *t, u64 bytes)
{
	struct kvctx_run run;

	kvctx_cursor_run(&t->cursor, &run);
	if (!run.page || run.length < bytes || !io_aligned(t, &run))
		return false;
	t->small = true;
	io_add(t, run.page, bytes, run.offset);
	return true;
}

static int io_parts(struct io_transfer *t, u64 bytes)
{
	u32 steps = 0;
	int err = 0;

	t->vecs = io_count_vecs(t->op, bytes);
	t->small = t->vecs <= KVCTX_INLINE_VECS;
	while (!err && t->pos < bytes) {
		err = io_step(t);
		if (!(++steps % 256))
			cond_resched();
	}
	return err;
}

/*
 * Move op->io.pieces, which are exactly io.bytes long, whole blocks, from or to io.offset of io.member. The caller
 * holds a count of io.pending. Failures are found in io.error when kind->finish() is called.
 */
void kvctx_io_submit(struct kvctx_op *op, blk_opf_t opf)
{
	struct block_device *bdev = op->session->pool->members[op->io.member].bdev;
	u64 bytes = op->io.bytes;
	struct io_transfer t = {
		.op = op, .bdev = bdev, .opf = opf | REQ_SYNC | REQ_IDLE, .unit = kvctx_io_unit(bdev),
	};
	int err = 0;

	os_trace_op(op_sent, &op->call, (s32)op->io.member, 0);
	kvctx_cursor_init(&t.cursor, op->io.pieces);
	if (!io_whole(&t, bytes))
		err = io_parts(&t, bytes);
	if (op->io.bounced)
		percpu_counter_add(&op->session->pool->counters.bounced_blocks, op->io.bounced);
	if (!err) {
		io_bio_send(&t);
		return;
	}
	io_bio_drop(&t);
	cmpxchg(&op->io.error, 0, err);
}

/* After a read: hand the bounced blocks to their pieces. */
void kvctx_io_scatter(struct kvctx_op *op)
{
	struct kvctx_bounce *b;
	struct kvctx_cursor c;
	u64 pos = 0;
	u32 i;

	kvctx_cursor_init(&c, op->io.pieces);
	for (b = op->io.bounces; b; b = b->next) {
		for (i = 0; i < b->nr; i++) {
			kvctx_cursor_advance(&c, b->part[i].pos - pos);
			kvctx_cursor_write(&c, page_address(b->page) + b->part[i].offset, b->part[i].length);
			pos = b->part[i].pos + b->part[i].length;
		}
		cond_resched();
	}
}

void kvctx_io_free(struct kvctx_op *op)
{
	struct kvctx_bounce *b;

	while ((b = op->io.bounces)) {
		op->io.bounces = b->next;
		__free_page(b->page);
		kfree(b);
	}
}

/*
 * What became of the operation: 0, -ENOMEM, -EILSEQ, -EIO, -ENODEV. Counts a failed transfer, and reports a member that
 * is gone.
 */
int kvctx_io_result(struct kvctx_op *op)
{
	struct kvctx_pool *p = op->session->pool;
	struct kvctx_member *m = &p->members[op->io.member];

	if (!op->io.error || op->io.error == -ENOMEM || op->io.error == -EILSEQ)
		return op->io.error;
	percpu_counter_inc(&p->counters.io_errors);
	if (op->io.error == -ENODEV || test_bit(GD_DEAD, &m->bdev->bd_disk->state)) {
		kvctx_member_failed(m);
		return -ENODEV;
	}
	return -EIO;
}
