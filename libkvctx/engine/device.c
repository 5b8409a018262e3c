// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Files and block devices, opened for this process alone.
 *
 * One owner. Both get an flock(), which tells who has it (/proc/locks). A block device is opened with O_EXCL too: that
 * keeps the module, file systems and partitioning tools out.
 *
 * I/O goes past the page cache (O_DIRECT). A file system that cannot do that would answer a load from memory and lose
 * at a power cut what a flush had promised on time, so it is refused. Writes that have to be durable are what PREFLUSH
 * and FUA are to the module: all that was written before is flushed, then this.
 *
 * Discards are for block devices alone. What punching a hole in a file gives back is the file's own space, and the next
 * store there would meet a full file system; zeroing a range keeps the space, but tells the device nothing and makes
 * each later write convert an extent.
 *
 * A file that can tell when a transfer would have to wait (RWF_NOWAIT) is asked by an io_uring, which then has others
 * wait. One that cannot, but knows poll(), is asked that instead. FUSE is such a one, says that all is ready, and lets
 * who submits wait behind a dozen requests, or a write of somebody else. So which files can tell is found out here.
 *
 * A write beyond RLIMIT_FSIZE would send a signal to a program that is not ours, so that is looked at before.
 */
#include <fcntl.h>
#include <linux/blkzoned.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine.h"

#define DEVICE_LINGER	(2 * KVE_NSEC)

/* Who holds an flock() on this inode; 0: nobody that can be seen from here */
static int device_owner(const struct stat *st)
{
	unsigned int major_nr, minor_nr;
	unsigned long ino;
	char line[256];
	int pid, owner = 0;
	FILE *f = fopen("/proc/locks", "re");

	while (f && !owner && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%lu", &pid, &major_nr, &minor_nr, &ino) == 4 &&
		    major_nr == major(st->st_dev) && minor_nr == minor(st->st_dev) && ino == st->st_ino && pid > 0)
			owner = pid;
	if (f)
		fclose(f);
	return owner;
}

/*
 * Transfers of a process that ended are on the way still, and its io_uring keeps the locks until they are over, which is
 * soon. Or the owner cannot be seen from here.
 */
static bool device_lingers(const struct stat *st)
{
	int pid = device_owner(st);

	return !pid || (kill(pid, 0) && errno == ESRCH);
}

static int device_busy(const char *path, const struct stat *st, char *why)
{
	int pid = device_owner(st);

	if (pid == getpid())
		return kve_refuse(why, -EBUSY, "%s: in use by this process", path);
	if (pid)
		return kve_refuse(why, -EBUSY, "%s: in use by process %d; kvctxd lets processes share a pool", path, pid);
	return kve_refuse(why, -EBUSY, "%s: in use: by a process that cannot be seen from here, mounted, or part of "
			  "something else", path);
}

static int device_open_fd(struct kve_device *d, const struct stat *st, char *why)
{
	int fd = open(d->path, O_RDWR | O_DIRECT | O_CLOEXEC | (d->block ? O_EXCL : 0)), err = errno;

	if (fd < 0 && err == EBUSY)
		return device_busy(d->path, st, why);
	if (fd < 0 && err == EINVAL)
		return kve_refuse(why, -EOPNOTSUPP, "%s: its file system has no direct I/O (O_DIRECT)", d->path);
	if (fd < 0)
		return kve_refuse(why, -err, "%s: cannot be opened: %s", d->path, strerror(err));
	err = kve_fork_own(fd);
	if (err) {
		close(fd);
		return kve_refuse(why, err, "%s: out of memory", d->path);
	}
	d->fd = fd;
	return 0;
}

static int device_lock(struct kve_device *d, char *why)
{
	struct stat st;

	if (!flock(d->fd, LOCK_EX | LOCK_NB))
		return 0;
	if (errno != EWOULDBLOCK)
		return kve_refuse(why, -errno, "%s: cannot be locked: %s", d->path, strerror(errno));
	if (fstat(d->fd, &st))
		return kve_refuse(why, -EBUSY, "%s: in use", d->path);
	return device_busy(d->path, &st, why);
}

/* A file's place in memory and offsets; where nobody tells, whole blocks are right everywhere */
static u32 device_align_of_file(int fd)
{
	struct statx sx;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) || !(sx.stx_mask & STATX_DIOALIGN) ||
	    !sx.stx_dio_offset_align)
		return KVC_BLOCK;
	return max(sx.stx_dio_mem_align, sx.stx_dio_offset_align);
}

static int device_measure_block(struct kve_device *d, char *why)
{
	unsigned int zone = 0;
	int block;

	if (ioctl(d->fd, BLKGETSIZE64, &d->bytes) || ioctl(d->fd, BLKSSZGET, &block))
		return kve_refuse(why, -errno, "%s: its size cannot be read: %s", d->path, strerror(errno));
	if (!ioctl(d->fd, BLKGETZONESZ, &zone) && zone)
		return kve_refuse(why, -EOPNOTSUPP, "%s: zoned devices are not supported", d->path);
	d->align = (u32)block;
	d->discards = true;
	return 0;
}

static int device_measure_file(struct kve_device *d, char *why)
{
	struct rlimit limit;
	struct stat st;

	if (fstat(d->fd, &st))
		return kve_refuse(why, -errno, "%s: its size cannot be read: %s", d->path, strerror(errno));
	d->bytes = (u64)st.st_size;
	d->align = device_align_of_file(d->fd);
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < d->bytes)
		return kve_refuse(why, -EFBIG, "%s: larger than the files that this process may write (RLIMIT_FSIZE)",
				  d->path);
	return 0;
}

/* Whatever else is wrong with it, who reads in earnest finds out */
static bool device_tells(int fd)
{
	_Alignas(KVC_BLOCK) u8 block[KVC_BLOCK];
	struct iovec v = { block, sizeof(block) };

	return preadv2(fd, &v, 1, 0, RWF_NOWAIT) >= 0 || errno == EAGAIN;
}

static int device_measure(struct kve_device *d, char *why)
{
	int err = d->block ? device_measure_block(d, why) : device_measure_file(d, why);

	d->tells = device_tells(d->fd);
	if (!err && d->align > KVC_BLOCK)
		return kve_refuse(why, -EOPNOTSUPP, "%s: wants transfers of whole %u bytes, at most %u can be", d->path,
				  d->align, KVC_BLOCK);
	return err;
}

void kve_device_let_go(struct kve_device *d)
{
	if (d->fd < 0)
		return;
	/* a child that was forked just now may not have come to close it yet */
	flock(d->fd, LOCK_UN);
	kve_fork_lock();
	kve_fork_disown(d->fd);
	close(d->fd);
	kve_fork_unlock();
	d->fd = -1;
}

static int device_take(struct kve_device *d, const struct stat *st, char *why)
{
	int err;

	kve_fork_lock();
	err = device_open_fd(d, st, why);
	kve_fork_unlock();
	if (!err)
		err = device_lock(d, why);
	if (err)
		kve_device_let_go(d);
	return err;
}

int kve_device_open(struct kve_device *d, const char *path, char *why)
{
	struct stat st;
	u64 until;
	int err;

	*d = (struct kve_device){ .fd = -1 };
	if (stat(path, &st))
		return kve_refuse(why, -errno, "%s: %s", path, strerror(errno));
	d->block = S_ISBLK(st.st_mode);
	if (!d->block && !S_ISREG(st.st_mode))
		return kve_refuse(why, -EMEDIUMTYPE, "%s: neither a file nor a block device", path);
	d->path = strdup(path);
	if (!d->path)
		return kve_refuse(why, -ENOMEM, "%s: out of memory", path);
	until = kve_now() + DEVICE_LINGER;
	while ((err = device_take(d, &st, why)) == -EBUSY && device_lingers(&st) && kve_now() < until)
		usleep(10000);
	if (!err)
		err = device_measure(d, why);
	if (err)
		kve_device_close(d);
	return err;
}

void kve_device_close(struct kve_device *d)
{
	kve_device_let_go(d);
	free(d->path);
	*d = (struct kve_device){ .fd = -1 };
}

bool kve_device_is(const struct kve_device *d, const char *path)
{
	struct stat ours, st;

	if (fstat(d->fd, &ours) || stat(path, &st))
		return false;
	/* one device may have several nodes */
	if (d->block)
		return S_ISBLK(st.st_mode) && st.st_rdev == ours.st_rdev;
	return st.st_dev == ours.st_dev && st.st_ino == ours.st_ino;
}

typedef ssize_t (*device_call)(int fd, const struct iovec *v, int nr, off_t offset, int flags);

/* All of it by @call, which may do so in parts */
static int device_move(const struct kve_device *d, device_call call, void *buf, size_t len, u64 offset, int flags)
{
	struct iovec v = { buf, len };

	while (v.iov_len) {
		ssize_t n = call(d->fd, &v, 1, (off_t)offset, flags);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EIO;
		v.iov_base = (char *)v.iov_base + n;
		v.iov_len -= (size_t)n;
		offset += (u64)n;
	}
	return 0;
}

int kve_device_read(const struct kve_device *d, void *buf, size_t len, u64 offset)
{
	return device_move(d, preadv2, buf, len, offset, 0);
}

int kve_device_write(const struct kve_device *d, const void *buf, size_t len, u64 offset, bool durable)
{
	if (durable && fdatasync(d->fd))
		return -EIO;
	return device_move(d, pwritev2, (void *)(uintptr_t)buf, len, offset, durable ? RWF_DSYNC : 0);
}

int kve_device_discard(const struct kve_device *d, u64 offset, u64 len)
{
	u64 range[2] = { offset, len };

	return d->discards && !ioctl(d->fd, BLKDISCARD, range) ? 0 : -EOPNOTSUPP;
}
