// SPDX-License-Identifier: GPL-2.0
/*
 * io_uring commands: one operation, operations on registered buffers, batches; linked, drained, cancelled, and rings that
 * end while something is in flight.
 *
 * The ring is made again for each input that uses it: what is in flight at its end is then the kernel's to end.
 */
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fuzz.h"
#include "kvctx_uring.h"

#define RING_ENTRIES	16

static struct io_uring ring_it;
static bool ring_there;

static bool ring_open(struct fuzz_in *in)
{
	struct io_uring_params p = { .flags = IORING_SETUP_SQE128 };
	struct iovec buffers[2] = {
		{ (void *)fuzz_address(in, 65536), 65536 },
		{ (void *)fuzz_address(in, 65536), 65536 },
	};

	if (ring_there)
		return true;
	if (fuzz_below(in, 2))
		p.flags |= IORING_SETUP_CQE32;
	if (fuzz_rarely(in))
		p.flags |= IORING_SETUP_IOPOLL;
	if (fuzz_rarely(in))
		p.flags |= IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
	ring_there = !io_uring_queue_init_params(RING_ENTRIES, &ring_it, &p);
	if (ring_there)
		io_uring_register_buffers(&ring_it, buffers, 2);
	return ring_there;
}

static void ring_one(struct fuzz_in *in, struct io_uring_sqe *sqe)
{
	struct kvctx_sqe *op = fuzz_room(sizeof(*op));

	fuzz_session_sqe(in, op);
	__kvctx_uring_fill(sqe, fuzz_session_fd(in), op, op->segs,
			   op->opcode == KVCTX_OP_STORE ? op->depth : op->lease_ms | op->lease);
}

static void ring_batch(struct fuzz_in *in, struct io_uring_sqe *sqe)
{
	struct kvctx_uring_submit *u = __kvctx_uring_cmd(sqe);
	struct kvctx_sqe *ops;

	u->nr = 1 + fuzz_below(in, 8);
	ops = fuzz_room(u->nr * sizeof(*ops));
	for (uint32_t i = 0; i < u->nr; i++)
		fuzz_session_sqe(in, &ops[i]);
	u->sqes = fuzz_rarely(in) ? fuzz_address(in, 4096) : (uintptr_t)ops;
	if (fuzz_rarely(in))
		u->nr = (uint32_t)fuzz_number(in);
	u->reserved = (uint32_t)fuzz_zero(in);
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fuzz_session_fd(in);
}

static void ring_command(struct fuzz_in *in, struct io_uring_sqe *sqe)
{
	uint8_t kind = fuzz_byte(in);
	uint32_t cmd_op = kind < 100 ? KVCTX_URING_OP : kind < 200 ? KVCTX_URING_SUBMIT : KVCTX_URING_OP + fuzz_below(in, 8);

	memset(sqe, 0, 128);
	if (cmd_op == KVCTX_URING_SUBMIT)
		ring_batch(in, sqe);
	else
		ring_one(in, sqe);
	sqe->user_data = fuzz_below(in, 4);
	sqe->cmd_op = cmd_op;
	if (fuzz_below(in, 4) == 3) {
		sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
		sqe->buf_index = fuzz_below(in, 3);
		((struct kvctx_uring_op *)__kvctx_uring_cmd(sqe))->addr = fuzz_address(in, 65536);
	}
	if (fuzz_rarely(in))
		sqe->flags = (uint8_t)(IOSQE_IO_LINK | IOSQE_ASYNC | (fuzz_below(in, 2) ? IOSQE_IO_DRAIN : 0));
}

void fuzz_ring(struct fuzz_in *in)
{
	struct __kernel_timespec soon = { .tv_nsec = 5000000 };
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;
	uint32_t nr = 1 + fuzz_below(in, 6);

	if (!ring_open(in))
		return;
	for (uint32_t i = 0; i < nr; i++) {
		sqe = io_uring_get_sqe(&ring_it);
		if (!sqe)
			break;
		if (fuzz_rarely(in))
			io_uring_prep_cancel64(sqe, fuzz_below(in, 4), 0);
		else
			ring_command(in, sqe);
	}
	io_uring_submit(&ring_it);
	if (fuzz_below(in, 4) == 0)
		return;
	for (uint32_t i = 0; i < nr && !io_uring_wait_cqe_timeout(&ring_it, &cqe, &soon); i++)
		io_uring_cqe_seen(&ring_it, cqe);
}

void fuzz_ring_end(void)
{
	if (ring_there)
		io_uring_queue_exit(&ring_it);
	ring_there = false;
}
