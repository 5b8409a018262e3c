// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * One owner: other processes, and the children of this one.
 *
 * The other process is begun before this one has used the engine: it is no child in the sense of fork.c. It does what it
 * is told by a line of text and answers with a line.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

struct other {
	pid_t pid;
	FILE *to, *from;
};

static struct other others[3];
static int nr_others;

/* Words: get DIR, store FROM NR, flush, put, end */
static void other_obeys(FILE *in, FILE *out)
{
	char line[400], dir[300], why[KVE_WHY] = "";
	struct kve_pool *p = NULL;
	unsigned int from, nr;

	while (fgets(line, sizeof(line), in) && strcmp(line, "end\n")) {
		int err = -EINVAL;

		if (sscanf(line, "get %299s", dir) == 1) {
			err = kve_pool_get(dir, &p, why);
		} else if (sscanf(line, "store %u %u", &from, &nr) == 2) {
			rig_members = KVC_ANY_MEMBER;
			rig_stored(p, from, nr);
			err = 0;
		} else if (!strcmp(line, "flush\n")) {
			err = rig_flush(p, NULL);
		} else if (!strcmp(line, "put\n")) {
			kve_pool_put(p);
			err = 0;
		}
		fprintf(out, "%d %s\n", err, why);
		fflush(out);
	}
}

static void other_start(struct other *o)
{
	int to[2], from[2];

	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		abort();
	o->pid = fork();
	if (!o->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(to[1]);
		close(from[0]);
		other_obeys(fdopen(to[0], "r"), fdopen(from[1], "w"));
		_exit(0);
	}
	close(to[0]);
	close(from[1]);
	o->to = fdopen(to[1], "w");
	o->from = fdopen(from[0], "r");
}

static void other_end(struct other *o, int sig)
{
	if (sig)
		kill(o->pid, sig);
	else
		fputs("end\n", o->to);
	fclose(o->to);
	fclose(o->from);
	waitpid(o->pid, NULL, 0);
}

__attribute__((__format__(printf, 2, 3)))
static int tell(struct other *o, const char *fmt, ...)
{
	char answer[400];
	va_list args;

	va_start(args, fmt);
	vfprintf(o->to, fmt, args);
	va_end(args);
	fputc('\n', o->to);
	fflush(o->to);
	assert_non_null(fgets(answer, sizeof(answer), o->from));
	snprintf(rig_why, KVE_WHY, "%.*s", KVE_WHY - 1, answer);
	return atoi(answer);
}

static void the_second_process_is_refused(void **state)
{
	struct other *o = &others[nr_others++];
	char text[64];

	(void)state;
	rig_make(rig_dir, 2);
	assert_int_equal(tell(o, "get %s", rig_dir), 0);
	snprintf(text, sizeof(text), "in use by process %d; kvctxd", o->pid);
	rig_refused(-EBUSY, text);
	assert_int_equal(tell(o, "store 0 10"), 0);
	assert_int_equal(tell(o, "put"), 0);
	kve_pool_put(rig_attach());
	assert_int_equal(tell(o, "get %s", rig_dir), 0);
	assert_int_equal(tell(o, "put"), 0);
	other_end(o, 0);
}

static void a_killed_owner_leaves_what_it_flushed(void **state)
{
	struct other *o = &others[nr_others++];
	struct kve_pool *p;

	(void)state;
	rig_make(rig_dir, 2);
	assert_int_equal(tell(o, "get %s", rig_dir), 0);
	assert_int_equal(tell(o, "store 0 10"), 0);
	assert_int_equal(tell(o, "flush"), 0);
	assert_int_equal(tell(o, "store 10 10"), 0);
	other_end(o, SIGKILL);
	p = rig_attach();
	assert_int_equal(rig_found(p, 0, 10), 10);
	kve_pool_put(p);
}

static void a_file_in_two_pools_of_one_process(void **state)
{
	struct kve_pool *p, *q;

	(void)state;
	rig_make(rig_dir, 1);
	p = rig_attach();
	assert_int_equal(mkdir(rig_path(".b"), 0700), 0);
	assert_int_equal(link(rig_path("m0"), rig_path(".b/m0")), 0);
	assert_int_equal(kve_pool_get(rig_path(".b"), &q, rig_why), -EBUSY);
	assert_non_null(strstr(rig_why, "in use by this process"));
	kve_pool_put(p);
}

/* What a child finds, as its exit status */
static int in_child(struct kve_pool *p, const int *fds, int nr)
{
	struct kve_pool *q;
	int i;

	if (!kve_forked())
		return 1;
	for (i = 0; i < nr; i++)
		if (fcntl(fds[i], F_GETFD) != -1)
			return 2;
	if (kve_pool_get(p->dir, &q, rig_why) != -ENODEV)
		return 3;
	return 0;
}

static pid_t start_child(struct kve_pool *p, int *gate)
{
	int fds[2] = { p->members[0].dev->fd, p->members[1].dev->fd };
	int pipes[2], status;
	pid_t pid;
	char c;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		status = in_child(p, fds, 2);
		/* lives until it is let go */
		if (read(pipes[0], &c, 1) != 1)
			status = 4;
		_exit(status);
	}
	close(pipes[0]);
	*gate = pipes[1];
	return pid;
}

static void let_go(int gate)
{
	assert_int_equal(write(gate, "", 1), 1);
	close(gate);
}

static void a_child_owns_nothing(void **state)
{
	struct other *o = &others[nr_others++];
	int first_gate, gate, status;
	struct kve_pool *p;
	pid_t first, second;

	(void)state;
	rig_make(rig_dir, 2);
	p = rig_attach();
	first = start_child(p, &first_gate);
	second = start_child(p, &gate);
	/* a child's end is not the pool's */
	let_go(first_gate);
	assert_int_equal(waitpid(first, &status, 0), first);
	assert_int_equal(status, 0);
	assert_int_equal(tell(o, "get %s", rig_dir), -EBUSY);
	assert_non_null(strstr(rig_why, "in use by process"));
	rig_stored(p, 0, 10);
	assert_int_equal(rig_flush(p, NULL), 0);
	assert_int_equal(rig_found(p, 0, 10), 10);
	kve_pool_put(p);
	/* nor does it keep the pool from others */
	assert_int_equal(tell(o, "get %s", rig_dir), 0);
	assert_int_equal(tell(o, "put"), 0);
	let_go(gate);
	assert_int_equal(waitpid(second, &status, 0), second);
	assert_int_equal(status, 0);
	other_end(o, 0);
}

/* fork() while another thread attaches and detaches: no child has a descriptor of it */
static void *attach_and_detach(void *stop)
{
	while (!READ_ONCE(*(bool *)stop))
		kve_pool_put(rig_attach());
	return NULL;
}

static void children_of_a_busy_process(void **state)
{
	bool stop = false;
	pthread_t t;
	int i, status;

	(void)state;
	rig_make(rig_dir, 2);
	assert_int_equal(pthread_create(&t, NULL, attach_and_detach, &stop), 0);
	for (i = 0; i < 100; i++) {
		pid_t pid = fork();

		if (!pid) {
			char link[64], target[400];
			ssize_t n;
			int fd;

			for (fd = 0; fd < 256; fd++) {
				snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
				n = readlink(link, target, sizeof(target) - 1);
				target[n < 0 ? 0 : n] = 0;
				if (strstr(target, rig_dir))
					_exit(1);
			}
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	WRITE_ONCE(stop, true);
	pthread_join(t, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_second_process_is_refused),
		TEST(a_killed_owner_leaves_what_it_flushed),
		TEST(a_child_owns_nothing),
		TEST(a_file_in_two_pools_of_one_process),
		TEST(children_of_a_busy_process),
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(others); i++)
		other_start(&others[i]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
