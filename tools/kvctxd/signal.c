// SPDX-License-Identifier: GPL-2.0
/*
 * A client's eventfd, which is signalled in threads that must not sleep whatever the client does.
 *
 * It could be full, and a write() to it then sleeps, so the kernel signals it: as the one registered with a ring of
 * io_uring, to which we hand a request that does nothing. Where io_uring is forbidden it is the one that a read of
 * nothing by Linux's older asynchronous I/O names; of that there is a number for all of the machine (aio-max-nr), of
 * which each context takes some for each processor.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/aio_abi.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kvctxd.h"

struct kvd_signal {
	bool by_ring;
	struct io_uring ring;
	/* else */
	aio_context_t aio;
	int eventfd, null;		/* ours, and /dev/null */
};

static int signal_read(const struct kvd_signal *sig, int null)
{
	struct iocb iocb = {
		.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (uint32_t)null,
		.aio_flags = IOCB_FLAG_RESFD, .aio_resfd = (uint32_t)sig->eventfd,
	};
	struct iocb *one = &iocb;

	return syscall(SYS_io_submit, sig->aio, 1L, &one) == 1 ? 0 : -errno;
}

/* A read of what is open for writing alone fails, but an eventfd that is none is found before */
static int signal_try(const struct kvd_signal *sig)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	int err = null >= 0 ? signal_read(sig, null) : -errno;

	if (null >= 0)
		close(null);
	return err == -EBADF ? 0 : err == -EINVAL ? -EINVAL : -EOPNOTSUPP;
}

static int signal_by_aio(struct kvd_signal *sig, int eventfd)
{
	if (syscall(SYS_io_setup, 1L, &sig->aio))
		return -EOPNOTSUPP;
	sig->eventfd = fcntl(eventfd, F_DUPFD_CLOEXEC, 0);
	sig->null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return sig->eventfd < 0 || sig->null < 0 ? -errno : signal_try(sig);
}

int kvd_signal_new(int eventfd, struct kvd_signal **out)
{
	struct kvd_signal *sig = calloc(1, sizeof(*sig));
	int err;

	if (!sig)
		return -ENOMEM;
	sig->eventfd = -1;
	sig->null = -1;
	sig->by_ring = !io_uring_queue_init(1, &sig->ring, 0);
	if (!sig->by_ring)
		err = signal_by_aio(sig, eventfd);
	else
		err = io_uring_register_eventfd(&sig->ring, eventfd) ? -EINVAL : 0;
	if (err)
		kvd_signal_free(sig);
	else
		*out = sig;
	return err;
}

void kvd_signal_free(struct kvd_signal *sig)
{
	if (!sig)
		return;
	if (sig->by_ring)
		io_uring_queue_exit(&sig->ring);
	if (sig->aio)
		syscall(SYS_io_destroy, sig->aio);
	if (sig->eventfd >= 0)
		close(sig->eventfd);
	if (sig->null >= 0)
		close(sig->null);
	free(sig);
}

/* Its completion is what the kernel signals. */
static void signal_ring(struct kvd_signal *sig)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&sig->ring);

	if (sqe) {
		io_uring_prep_nop(sqe);
		io_uring_submit(&sig->ring);
	}
	io_uring_cq_advance(&sig->ring, io_uring_cq_ready(&sig->ring));
}

void kvd_signal_send(struct kvd_signal *sig)
{
	struct timespec none = {};
	struct io_event event;

	if (sig->by_ring) {
		signal_ring(sig);
		return;
	}
	signal_read(sig, sig->null);
	syscall(SYS_io_getevents, sig->aio, 0L, 1L, &event, &none);
}
