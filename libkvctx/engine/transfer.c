// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * A transfer's way through a ring, in steps: of at most IOV_MAX pieces, and again from where the last one ended, be it
 * short or cut off.
 */
#include <limits.h>

#include "session.h"

/* What the next step moves, from io->offset + io->done: *@vec, and how many of them. */
u32 kve_io_next(struct kve_io *io, struct iovec **vec)
{
	if (!io->skip) {
		*vec = &io->vec[io->at];
		return min_t(u32, io->nr - io->at, IOV_MAX);
	}
	/* the rest of a piece alone, so that the caller's list stays as it is */
	io->rest.iov_base = (u8 *)io->vec[io->at].iov_base + io->skip;
	io->rest.iov_len = io->vec[io->at].iov_len - io->skip;
	*vec = &io->rest;
	return 1;
}

static void io_advance(struct kve_io *io, u32 n)
{
	u32 left;

	io->done += n;
	while (n) {
		left = (u32)io->vec[io->at].iov_len - io->skip;
		if (n < left) {
			io->skip += n;
			return;
		}
		n -= left;
		io->skip = 0;
		io->at++;
	}
}

bool kve_io_orphaned(const struct kve_io *io)
{
	return io->orphaned && __atomic_load_n(io->orphaned, __ATOMIC_ACQUIRE);
}

/* It has to go on, but may not? */
static bool io_cut_off(struct kve_io *io)
{
	io->err = kve_io_orphaned(io) ? -ECANCELED : 0;
	return io->err;
}

/* What a device that is gone says */
static bool io_gone(s64 err)
{
	return err == -ENODEV || err == -ENXIO || err == -ESHUTDOWN;
}

/*
 * A step ended with @res, bytes or -errno. One that its submitting thread has taken with it when it ended, or that
 * found a queue full, is made again.
 */
bool kve_io_step(struct kve_io *io, s64 res)
{
	if (res == -EINTR || res == -ECANCELED || res == -EAGAIN)
		return io_cut_off(io);
	if (res <= 0) {
		/* no bytes: the file is shorter than it was */
		io->err = res == -EFAULT || res == -ENOMEM ? (int)res : io_gone(res) ? -ENODEV : -EIO;
		return true;
	}
	io_advance(io, (u32)res);
	return io->done == io->bytes || io_cut_off(io);
}
