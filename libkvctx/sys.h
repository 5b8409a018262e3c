/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The seam under the library: who serves a session. Above it is one library, below it stand the servers of the contract
 * in <linux/kvctx.h>: the kernel, and others that give the same answers to the same calls.
 *
 * Vocabulary
 *   server	a way to serve sessions: a table of functions, each like the system call of its name
 *   file	an open session, as an open file is to the kernel. A server's own structure begins with it
 *
 * Functions return 0 or more, or -errno as in <linux/kvctx.h>. Any number of threads may call those of one file at once,
 * but for close(), which is the last call. Structures and pointers are as ioctl() takes them; a server in the process
 * cannot know whether memory is there, and may use a wild pointer where the kernel says -EFAULT.
 *
 * Completions without a system call. The caller writes the head of the ring, which no server sees by itself. Hence
 *   look()	   The caller has found the ring empty. A server that has to be run to notice what devices have done does
 *		   so now, in the caller's thread, and does not sleep. It may take as long as checking pages takes.
 *   consumed()	   The caller has written head. Whoever moves head has to call it; he may hold locks of his own, and
 *		   it costs next to nothing.
 *
 * Readiness. The descriptor of poll_fd() is readable while head and tail of the ring differ, for poll(), epoll and
 * io_uring alike. The kernel looks at the ring when it is asked. A server whose descriptor is an eventfd keeps to it so:
 * it begins with the first poll_fd(), writes the eventfd when it moves tail off head, and reads it in consumed(), and
 * in a KVCTX_IOC_WAIT that consumes, when it finds both equal. It decides under one lock: a completion that comes
 * between is then either seen by that look or writes the eventfd after it. Sessions that nobody polls pay nothing.
 * Nobody but poll() and its like uses the descriptor: what read() gives and takes differs.
 */
#ifndef KVCTX_SYS_H
#define KVCTX_SYS_H

#include <stddef.h>
#include <stdint.h>

struct kvctx_server;

struct kvctx_file {
	const struct kvctx_server *server;
};

struct kvctx_server {
	/*
	 * @flags: of open(), without O_CLOEXEC, which is implied. The server's field of *@out is set. -ENOTTY: this is
	 * nothing that the server serves
	 */
	int (*open)(const char *path, int flags, struct kvctx_file **out);
	int (*ioctl)(struct kvctx_file *f, unsigned long nr, void *arg);
	/* MAP_SHARED; @offset: KVCTX_MMAP_*, plus bytes. Each call maps anew. A mapping outlives the file */
	int (*mmap)(struct kvctx_file *f, size_t len, int prot, uint64_t offset, void **out);
	void (*munmap)(struct kvctx_file *f, void *p, size_t len);
	int (*poll_fd)(struct kvctx_file *f);	/* cannot fail; the file's until close() */
	void (*close)(struct kvctx_file *f);
	void (*look)(struct kvctx_file *f);	/* NULL: completions come by themselves */
	void (*consumed)(struct kvctx_file *f);	/* NULL: head is looked at when it matters */
};

extern const struct kvctx_server kvctx_daemon;
extern const struct kvctx_server kvctx_kernel;
extern const struct kvctx_server kve_server;	/* in the process, see engine/server.c */

/*
 * Open the session that @path names, by what there is
 *   a character device		the kernel
 *   a socket			kvctxd
 *   DIR/TENANT, DIR a directory	the pool in DIR, served in this process
 * -ENOENT: there is nothing of that name, and no pool in DIR either. -ENOTTY: there is, but it is not for us.
 */
int kvctx_sys_open(const char *path, int flags, struct kvctx_file **out);

static inline int kvctx_sys_ioctl(struct kvctx_file *f, unsigned long nr, void *arg)
{
	return f->server->ioctl(f, nr, arg);
}

static inline int kvctx_sys_mmap(struct kvctx_file *f, size_t len, int prot, uint64_t offset, void **out)
{
	return f->server->mmap(f, len, prot, offset, out);
}

static inline void kvctx_sys_munmap(struct kvctx_file *f, void *p, size_t len)
{
	f->server->munmap(f, p, len);
}

static inline int kvctx_sys_poll_fd(struct kvctx_file *f)
{
	return f->server->poll_fd(f);
}

static inline void kvctx_sys_close(struct kvctx_file *f)
{
	f->server->close(f);
}

static inline void kvctx_sys_look(struct kvctx_file *f)
{
	if (f->server->look)
		f->server->look(f);
}

static inline void kvctx_sys_consumed(struct kvctx_file *f)
{
	if (f->server->consumed)
		f->server->consumed(f);
}

#endif
