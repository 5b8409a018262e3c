/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What kvctxctl meets in its tests instead of the system: kvctxctl's objects are linked with these files into
 * kvctxctl-fake, a program that takes the same command lines.
 *
 *	fake_kernel.c	the generic-netlink family, below libnl: messages are real, the socket is not
 *	fake_kmod.c	in place of libkmod
 *	fake_nvme.c	in place of libnvme
 *	fake_system.c	system calls (wrapped by the linker): paths below $FAKE_ROOT, faults
 *
 * A test says how they behave through variables of the environment, FAKE_*, told in each file. They write what they
 * were asked for, one line each, to the file $FAKE_LOG.
 */
#ifndef CTL_FAKE_H
#define CTL_FAKE_H

#include <dirent.h>
#include <netlink/netlink.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "../ctl.h"

/* The variable's number; @other if it is not set */
long fake_number(const char *name, long other);
/* Is the variable set to @text? */
bool fake_is(const char *name, const char *text);
__printf(1, 2) void fake_log(const char *fmt, ...);
/* Make the empty file $FAKE_ROOT/PATH and the folders above it */
void fake_make(const char *path);
/* fake_nvme.c: called each time the tool looks into /sys/class/nvme */
void fake_namespaces_appear(void);

/* What the linker makes of calls to NAME, and what it calls __real_NAME: the real one */
int __wrap_genl_connect(struct nl_sock *sk);
int __wrap_nl_socket_add_membership(struct nl_sock *sk, int group);
int __wrap_setsockopt(int fd, int level, int name, const void *val, socklen_t len);
int __wrap_access(const char *path, int mode);
DIR *__wrap_opendir(const char *path);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_stat64(const char *path, struct stat *st);
int __wrap_fstat64(int fd, struct stat *st);
int __wrap_ioctl(int fd, unsigned long request, void *arg);
FILE *__wrap_fopen64(const char *path, const char *mode);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t offset);
int __wrap_fsync(int fd);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len);
int __real_access(const char *path, int mode);
DIR *__real_opendir(const char *path);
int __real_open64(const char *path, int flags, ...);
int __real_stat64(const char *path, struct stat *st);
int __real_fstat64(int fd, struct stat *st);
int __real_ioctl(int fd, unsigned long request, void *arg);
FILE *__real_fopen64(const char *path, const char *mode);
ssize_t __real_pwrite64(int fd, const void *buf, size_t len, off_t offset);
int __real_fsync(int fd);
int __real_fallocate64(int fd, int mode, off_t offset, off_t len);

#endif
