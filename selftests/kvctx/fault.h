/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One failure at a chosen place: the kernel's fail-nth (fault injection of the debug kernel) lets the n-th allocation,
 * or copy from or to user memory, of this task fail that faults.sh has switched on. A child does not inherit it.
 */
#ifndef FAULT_H
#define FAULT_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

/* Let the @n-th fail, counted from now; 0: none */
static inline void fault_arm(unsigned int n)
{
	char s[16];
	int fd = open("/proc/self/fail-nth", O_WRONLY | O_CLOEXEC);
	int len = snprintf(s, sizeof(s), "%u", n);

	if (fd < 0 || write(fd, s, len) != len) {
		perror("fail-nth");
		exit(99);
	}
	close(fd);
}

/* Has the one of task @pid, which may have ended, come? To be asked before it is armed again */
static inline bool fault_came(pid_t pid)
{
	char path[64], s[16] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fail-nth", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, s, sizeof(s) - 1) <= 0) {
		perror(path);
		exit(99);
	}
	close(fd);
	return !atoi(s);
}

#endif
