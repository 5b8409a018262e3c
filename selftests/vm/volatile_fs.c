// SPDX-License-Identifier: GPL-2.0
/*
 * A disk with a volatile write cache (volatile_cache.h), as a file system with one file, "disk", for programs of this
 * machine that may be killed at any moment.
 *
 *	volatile_fs IMAGE SEED UNIT REPORT DELAY MOUNTPOINT
 *
 * Prints "mounted". SIGTERM is the power cut: it ends, having written to the report what was lost. Send it when the
 * programs that use the file are dead. From SIGUSR1 to SIGUSR2 nothing is answered
 * ("held", "let go"). All reads and writes come here as they were asked for, without a page cache.
 */
#define FUSE_USE_VERSION 35
#include <errno.h>
#include <fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "volatile_cache.h"

#define NAME "/disk"
#define READ_MAX 1048576	/* bytes of a request */
#define TEXT(n) #n
#define TEXT_OF(n) TEXT(n)
#define READ_TEXT TEXT_OF(READ_MAX)

static volatile sig_atomic_t fs_held;

static void fs_hold(int sig)
{
	fs_held = sig == SIGUSR1;
	if (write(STDOUT_FILENO, fs_held ? "held\n" : "let go\n", fs_held ? 5 : 7) < 0)
		fs_held = 0;
}

static void fs_wait(void)
{
	while (fs_held)
		usleep(1000);
}

static int fs_sleep(unsigned int us)
{
	usleep(us);
	return 0;
}

static void *fs_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
	conn->max_read = READ_MAX;
	config->kernel_cache = 0;
	return NULL;
}

static int fs_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	(void)fi;
	memset(st, 0, sizeof(*st));
	st->st_uid = getuid();
	st->st_nlink = 1;
	if (!strcmp(path, "/")) {
		st->st_mode = S_IFDIR | 0700;
		return 0;
	}
	if (strcmp(path, NAME))
		return -ENOENT;
	st->st_mode = S_IFREG | 0600;
	st->st_size = (off_t)volatile_bytes();
	st->st_blocks = st->st_size / 512;
	return 0;
}

static int fs_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *fi,
		      enum fuse_readdir_flags flags)
{
	(void)path, (void)offset, (void)fi, (void)flags;
	return fill(buf, NAME + 1, NULL, 0, 0) ? -ENOMEM : 0;
}

static int fs_open(const char *path, struct fuse_file_info *fi)
{
	if (strcmp(path, NAME))
		return -ENOENT;
	fi->direct_io = 1;
	return 0;
}

static bool fs_within(size_t count, off_t offset)
{
	return (uint64_t)offset <= volatile_bytes() && count <= volatile_bytes() - (uint64_t)offset;
}

static int fs_read(const char *path, char *buf, size_t count, off_t offset, struct fuse_file_info *fi)
{
	(void)path, (void)fi;
	fs_wait();
	if ((uint64_t)offset >= volatile_bytes())
		return 0;
	if (count > volatile_bytes() - (uint64_t)offset)
		count = volatile_bytes() - (uint64_t)offset;
	volatile_read(buf, (uint32_t)count, (uint64_t)offset);
	return (int)count;
}

static int fs_write(const char *path, const char *buf, size_t count, off_t offset, struct fuse_file_info *fi)
{
	(void)path;
	fs_wait();
	if (!fs_within(count, offset))
		return -EINVAL;
	return volatile_write(buf, (uint32_t)count, (uint64_t)offset, fi->flags & O_DSYNC) ? -EIO : (int)count;
}

static int fs_fsync(const char *path, int datasync, struct fuse_file_info *fi)
{
	(void)path, (void)datasync, (void)fi;
	fs_wait();
	return volatile_flush() ? -EIO : 0;
}

static const struct fuse_operations fs_operations = {
	.init		= fs_init,
	.getattr	= fs_getattr,
	.readdir	= fs_readdir,
	.open		= fs_open,
	.read		= fs_read,
	.write		= fs_write,
	.fsync		= fs_fsync,
};

static int fs_serve(const char *mountpoint)
{
	char *argv[] = { "volatile_fs", "-omax_read=" READ_TEXT, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(2, argv);
	struct fuse *fuse = fuse_new(&args, &fs_operations, sizeof(fs_operations), NULL);
	struct fuse_loop_config config = { .max_idle_threads = 8 };
	int err = 1;

	if (!fuse)
		return 1;
	if (!fuse_mount(fuse, mountpoint)) {
		if (!fuse_set_signal_handlers(fuse_get_session(fuse))) {
			puts("mounted");
			fflush(stdout);
			fuse_loop_mt(fuse, &config);
			err = 0;
		}
		volatile_cut();
		fuse_remove_signal_handlers(fuse_get_session(fuse));
		fuse_unmount(fuse);
	}
	fuse_destroy(fuse);
	fuse_opt_free_args(&args);
	return err;
}

int main(int argc, char **argv)
{
	int err;

	if (argc != 7) {
		fprintf(stderr, "usage: volatile_fs IMAGE SEED UNIT REPORT DELAY MOUNTPOINT\n");
		return 2;
	}
	volatile_config = (struct volatile_config){
		.image = argv[1], .seed = strtoull(argv[2], NULL, 0), .unit = (unsigned int)atoi(argv[3]),
		.report = argv[4], .delay = (unsigned int)atoi(argv[5]), .sleep = fs_sleep,
	};
	signal(SIGUSR1, fs_hold);
	signal(SIGUSR2, fs_hold);
	err = volatile_open();
	if (err) {
		fprintf(stderr, "%s: %s\n", argv[1], strerror(-err));
		return 1;
	}
	return fs_serve(argv[6]);
}
