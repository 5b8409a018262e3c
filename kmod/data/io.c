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
 * So each bio vector is a whole number of blocks. A bio is as large as the device's queue takes one (its limits, gaps
 * that a PRP list cannot express), so that the block layer need not split it; where it does, it splits between blocks.
 *
 * Counting: io.pending is 1 for who submits and 1 for each bio (STORE adds one for its CRCs). Whoever takes it to
 * zero calls kind->finish(), in any context. A transfer that fits the bio inside the operation takes that one. Others
 * are allocated, sent (send.c) as they fill, and freed as they end.
 *
 * Completing a transfer allocates nothing; only the second look at a chunk that failed its check does (load.c).
 */
#include <linux/io.h>
#include <linux/ioprio.h>
#include <linux/slab.h>

#include "op.h"

#define BOUNCE_PARTS	8
#define IO_VECS_MAX	((u32)((PAGE_SIZE - sizeof(struct kvctx_bio)) / sizeof(struct bio_vec)))
#define IO_BIO_MAX	(1U << 30)	/* bytes */
#define IO_GONE		(-ENXIO)	/* io.error: the device is; -ENODEV may be a peer */

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
	struct kvctx_member *member;
	struct block_device *bdev;
	blk_opf_t opf;
	u32 unit;
	unsigned long gaps;		/* offsets at which a request has no gap between two vectors */
	struct kvctx_cursor cursor;
	u64 pos;			/* bytes handed to bios */
	phys_addr_t end;		/* of the last vector of the bio */
	u32 room;			/* bytes that the bio can take still, or the next one */
	u32 vecs;			/* how many vectors what is not in earlier bios may need */
	u32 bio_vecs;			/* how many the next bio gets at most */
	bool small;			/* the operation's own bio will do */
	struct kvctx_bio *bio;
	struct kvctx_bounce *last;
};

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
static __always_inline void io_put(struct kvctx_op *op)
{
	if (atomic_dec_and_test(&op->io.pending)) {
		os_trace_op(op_answered, &op->call, (s32)op->io.member, op->io.error);
		kvctx_turn_end(op);
		op->kind->finish(op);
	}
}

void kvctx_io_put(struct kvctx_op *op)
{
	io_put(op);
}

static void io_bio_free(struct kvctx_bio *b)
{
	bio_uninit(&b->bio);
	if (b != &b->op->bio)
		kfree(b);
}

static void io_bio_done(struct bio *bio)
{
	struct kvctx_bio *b = container_of(bio, struct kvctx_bio, bio);
	struct kvctx_op *op = b->op;

	if (unlikely(bio->bi_status)) {
		if (kvctx_send_again(b))
			return;
		cmpxchg(&op->io.error, 0, bio->bi_status == BLK_STS_OFFLINE ? IO_GONE : -EIO);
	}
	io_bio_free(b);
	io_put(op);
}

/* NULL: no memory. It is not waited for others to end: they may be of a member that does not answer. */
static struct kvctx_bio *io_bio_new(struct io_transfer *t)
{
	struct kvctx_bio *b = &t->op->bio;
	u32 vecs;

	if (t->small) {
		bio_init(&b->bio, t->bdev, t->op->vecs, KVCTX_INLINE_VECS, t->opf);
		/* it is taken: another one, should this be full, is allocated */
		t->small = false;
	} else {
		vecs = min3(max(t->vecs, 1U), t->bio_vecs, (u32)queue_max_segments(bdev_get_queue(t->bdev)));
		b = kmalloc(sizeof(*b) + vecs * sizeof(struct bio_vec),
			    GFP_KERNEL_ACCOUNT | __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
		if (!b)
			return NULL;
		bio_init(&b->bio, t->bdev, (struct bio_vec *)(b + 1), vecs, t->opf);
	}
	b->op = t->op;
	b->bio.bi_end_io = io_bio_done;
	return b;
}

static void io_bio_send(struct io_transfer *t)
{
	struct kvctx_bio *b = t->bio;

	t->bio = NULL;
	if (!b)
		return;
	atomic_inc(&t->op->io.pending);
	kvctx_send(t->member, b);
}

/*
 * Bytes of a bio that begins at the transfer's position: what the device takes as one request. Bios that would have to
 * be split are not sent at once (send.c).
 */
static inline u32 io_room(const struct io_transfer *t)
{
	struct request_queue *q = bdev_get_queue(t->bdev);
	u32 room = min_t(u32, queue_max_sectors(q), IO_BIO_MAX >> SECTOR_SHIFT) << SECTOR_SHIFT;
	u32 chunk = q->limits.chunk_sectors;
	sector_t sector;

	if (likely(!chunk))
		return room;
	sector = get_start_sect(t->bdev) + ((t->op->io.offset + t->pos) >> SECTOR_SHIFT);
	room = min_t(u64, room, (u64)blk_boundary_sectors_left(sector, chunk) << SECTOR_SHIFT);
	return max(room, t->unit);
}

/* The bio is full. The next one will not need far more vectors: what ends a bio, like a gap, ends others as well. */
static noinline void io_bio_next(struct io_transfer *t)
{
	t->vecs -= min_t(u32, t->vecs, t->bio->bio.bi_vcnt);
	t->bio_vecs = clamp(2U * t->bio->bio.bi_vcnt, (u32)KVCTX_INLINE_VECS, IO_VECS_MAX);
	io_bio_send(t);
	t->room = io_room(t);
}

static bool io_gap(const struct io_transfer *t, u32 offset)
{
	const struct bio *bio = &t->bio->bio;
	const struct bio_vec *last = &bio->bi_io_vec[bio->bi_vcnt - 1];

	return (offset | (last->bv_offset + last->bv_len)) & t->gaps;
}

/* As bio_add_page(), which looks for more than can be: what is not contiguous is one vector more. */
static inline bool io_bio_take(struct io_transfer *t, struct page *page, u32 n, u32 offset)
{
	struct bio *bio = &t->bio->bio;

	if (t->end != page_to_phys(page) + offset) {
		if (t->gaps && io_gap(t, offset))
			return false;
		if (bio->bi_vcnt == bio->bi_max_vecs)
			return false;
		if (likely(!t->op->mem.p2p)) {
			__bio_add_page(bio, page, n, offset);
			return true;
		}
	}
	return bio_add_page(bio, page, n, offset) == n;
}

/* What a device that knows priorities is told */
static u16 io_prio(const struct kvctx_op *op)
{
	u32 level = op->call.prio == KVCTX_PRIO_URGENT ? 0 : op->call.prio == KVCTX_PRIO_BACKGROUND ? 7 : 4;

	return IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, level);
}

/* A new bio, at the transfer's position */
static int io_bio_begin(struct io_transfer *t)
{
	struct bio *bio;

	t->bio = io_bio_new(t);
	if (!t->bio)
		return -ENOMEM;
	bio = &t->bio->bio;
	bio->bi_ioprio = io_prio(t->op);
	if (op_is_write(t->opf))
		kvctx_bio_stream(bio, t->op->io.stream);
	t->bio->sector = (t->op->io.offset + t->pos) >> SECTOR_SHIFT;
	bio->bi_iter.bi_sector = t->bio->sector;
	return 0;
}

/* @n: at most t->room */
static int io_add(struct io_transfer *t, struct page *page, u32 n, u32 offset)
{
	int err;

	if (!t->bio || !io_bio_take(t, page, n, offset)) {
		if (t->bio)
			io_bio_next(t);
		err = io_bio_begin(t);
		if (err)
			return err;
		__bio_add_page(&t->bio->bio, page, n, offset);
	}
	t->end = page_to_phys(page) + offset + n;
	t->pos += n;
	t->room -= n;
	if (t->room < t->unit)
		io_bio_next(t);
	return 0;
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
	b->used += n;
	return io_add(t, b->page, n, b->part[i].offset);
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
	n = round_down(min(run.length, t->room), t->unit);
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
	return io_add(t, run.page, n, run.offset);
}

/* How many vectors the transfer may take: two for each run. What is far more than fill a bio is not counted. */
static u32 io_count_vecs(const struct kvctx_op *op, u64 bytes)
{
	struct kvctx_cursor c;
	struct kvctx_run run;
	u32 vecs = 1;

	/* many, so that it does not matter how many exactly */
	if (op->mem.nr > KVCTX_INLINE_VECS)
		return 2 * op->mem.nr + (bytes >> PAGE_SHIFT) + 1;
	kvctx_cursor_init(&c, op->io.pieces);
	while (bytes && vecs < BIO_MAX_VECS) {
		kvctx_cursor_run(&c, &run);
		kvctx_cursor_advance(&c, run.length);
		bytes -= min_t(u64, bytes, run.length);
		vecs += 2;
	}
	return vecs + 2 * (bytes >> PAGE_SHIFT);
}

/* A transfer that lies in one run the device can take is one vector: the common case, made short. */
static bool io_whole(struct io_transfer *t, u64 bytes)
{
	struct kvctx_run run;

	kvctx_cursor_run(&t->cursor, &run);
	if (!run.page || run.length < bytes || t->room < bytes || !io_aligned(t, &run))
		return false;
	/* which it has room for */
	t->small = true;
	io_bio_begin(t);
	__bio_add_page(&t->bio->bio, run.page, bytes, run.offset);
	return true;
}

static int io_parts(struct io_transfer *t, u64 bytes)
{
	u32 steps = 0;
	int err = 0;

	t->gaps = queue_virt_boundary(bdev_get_queue(t->bdev));
	t->bio_vecs = IO_VECS_MAX;
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
	struct kvctx_member *m = &op->session->pool->members[op->io.member];
	u64 bytes = op->io.bytes;
	struct io_transfer t = {
		.op = op, .member = m, .bdev = m->bdev, .opf = opf | REQ_SYNC | REQ_IDLE | REQ_NOWAIT,
		.unit = kvctx_io_unit(m->bdev),
	};
	int err = 0;

	os_trace_op(op_sent, &op->call, (s32)op->io.member, 0);
	kvctx_cursor_init(&t.cursor, op->io.pieces);
	t.room = io_room(&t);
	if (!io_whole(&t, bytes))
		err = io_parts(&t, bytes);
	if (op->io.bounced)
		percpu_counter_add(&op->session->pool->counters.bounced_blocks, op->io.bounced);
	if (!err) {
		io_bio_send(&t);
		return;
	}
	if (t.bio)
		io_bio_free(t.bio);
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

void kvctx_io_free_bounces(struct kvctx_op *op)
{
	struct kvctx_bounce *b;

	while ((b = op->io.bounces)) {
		op->io.bounces = b->next;
		__free_page(b->page);
		kfree(b);
	}
}

/*
 * What became of the operation: 0, -EIO, -ENODEV, or the error that was found on this side of the device. Counts a
 * failed transfer, and reports a member that is gone.
 */
int kvctx_io_result(struct kvctx_op *op)
{
	struct kvctx_pool *p = op->session->pool;
	struct kvctx_member *m = &p->members[op->io.member];

	if (op->io.error != -EIO && op->io.error != IO_GONE)
		return op->io.error;
	percpu_counter_inc(&p->counters.io_errors);
	if (op->io.error == IO_GONE || test_bit(GD_DEAD, &m->bdev->bd_disk->state)) {
		kvctx_member_failed(m);
		return -ENODEV;
	}
	return -EIO;
}
