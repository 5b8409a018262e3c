// SPDX-License-Identifier: GPL-2.0
/*
 * Run a command again and again, with its first, second, ... failure in it (fault.h), until it needs no more of what
 * could fail.
 *
 *	fail_nth AFTER COMMAND [ARGUMENT]...
 *
 * AFTER is a shell command that runs after each, without failures: it has to succeed, and undoes what the command
 * did. $STATUS is the command's exit status, what it printed lies in /tmp/fail_nth.out.
 *
 * The command may fail with status 1 and has to say why; no signal may end it. The last time, when nothing fails, it
 * has to succeed. Prints "failures=N refused=N": how many there were, and how many of them the command did not survive.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "fault.h"

#define OUT "/tmp/fail_nth.out"
#define MAX 5000

static void die(unsigned int n, const char *what, int status)
{
	fflush(stdout);
	fprintf(stderr, "failure %u: %s, status %#x\n", n, what, status);
	if (system("tail -n 5 " OUT " >&2"))
		perror("tail");
	exit(1);
}

static void child(unsigned int n, char **argv)
{
	int fd = open(OUT, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
		_exit(98);
	fault_arm(n);
	execvp(argv[0], argv);
	_exit(97);
}

/* The command's status; in *came whether it met the failure. A child that has ended and was not waited for can be
 * asked.
 */
static int once(unsigned int n, char **argv, bool *came)
{
	pid_t pid = fork();
	siginfo_t info;
	int status;

	if (!pid)
		child(n, argv);
	if (pid < 0 || waitid(P_PID, pid, &info, WEXITED | WNOWAIT))
		die(n, strerror(errno), 0);
	*came = fault_came(pid);
	if (waitpid(pid, &status, 0) != pid)
		die(n, strerror(errno), 0);
	return status;
}

int main(int argc, char **argv)
{
	unsigned int n, refused = 0;
	bool came = true;

	if (argc < 3)
		return 2;
	for (n = 1; came; n++) {
		struct stat st;
		char s[16];
		int status;

		status = once(n, argv + 2, &came);
		if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
			die(n, "the command died", status);
		if (status && !came)
			die(n, "nothing failed but the command", status);
		if (status && (stat(OUT, &st) || !st.st_size))
			die(n, "the command does not say why it failed", status);
		refused += !!status;
		snprintf(s, sizeof(s), "%d", WEXITSTATUS(status));
		setenv("STATUS", s, 1);
		status = system(argv[1]);
		if (status)
			die(n, "afterwards", status);
		if (n == MAX)
			die(n, "no end", 0);
	}
	printf("failures=%u refused=%u\n", n - 2, refused);
	return 0;
}
