// SPDX-License-Identifier: GPL-2.0
/* Runs the tests of a program; see harness.h. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

enum verdict { PASSED, FAILED, SKIPPED, NR_VERDICTS };

struct harness_fixture harness_fixture_global = { .name = "global" };

static struct __test_metadata *tests, **tests_end = &tests;

/* Of the test that runs, which is a child */
static jmp_buf way_out;
static enum verdict verdict;
static char *reason;		/* of a skip; shared with the parent */
#define REASON_BYTES	256

void harness_add_variant(struct harness_fixture *f, struct harness_variant *v)
{
	struct harness_variant **end = &f->variants;

	while (*end)
		end = &(*end)->next;
	*end = v;
}

void harness_add_test(struct __test_metadata *t)
{
	*tests_end = t;
	tests_end = &t->next;
}

void harness_log(struct __test_metadata *t, const char *file, int line, const char *fmt, ...)
{
	const char *name = strrchr(file, '/');
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	printf("# %s:%d:%s:%s\n", name ? name + 1 : file, line, t->name, text);
}

void harness_differs(struct __test_metadata *t, const char *file, int line, const char *what, long long want,
		     long long seen)
{
	harness_log(t, file, line, "expected %s (%lld, %lld)", what, want, seen);
}

bool harness_fail(void)
{
	verdict = FAILED;
	return false;
}

void harness_end(void)
{
	verdict = FAILED;
	longjmp(way_out, 1);
}

void harness_skip(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(reason, REASON_BYTES, fmt, args);
	va_end(args);
	if (verdict == PASSED)
		verdict = SKIPPED;
}

static int test_run(struct __test_metadata *t, const void *variant)
{
	const struct harness_fixture *f = t->fixture;
	void *self = calloc(1, f->size + 1);
	volatile bool is_set_up = false;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!setjmp(way_out)) {
		if (f->setup)
			f->setup(t, self, variant);
		is_set_up = verdict == PASSED;
		if (is_set_up)
			t->test(t, self, variant);
	}
	if (is_set_up && f->teardown && !setjmp(way_out))
		f->teardown(t, self, variant);
	free(self);
	return verdict;
}

/* Wait for a test, and end all that it has left. Its status, -1 if it hangs */
static int test_wait(pid_t pid, unsigned int seconds)
{
	struct pollfd p = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
	int status, ended;

	ended = poll(&p, 1, (int)seconds * 1000);
	kill(-pid, SIGKILL);
	if (ended != 1)
		kill(pid, SIGKILL);
	close(p.fd);
	waitpid(pid, &status, 0);
	return ended == 1 ? status : -1;
}

static enum verdict test_judge(int status, const char *name, unsigned int seconds)
{
	if (status < 0)
		printf("# %s hangs: killed after %u s\n", name, seconds);
	else if (WIFSIGNALED(status))
		printf("# %s was killed by signal %d\n", name, WTERMSIG(status));
	else if (WEXITSTATUS(status) < NR_VERDICTS)
		return WEXITSTATUS(status);
	return FAILED;
}

/* Sanitizers are slow, and the machine may be busy */
static unsigned int patience(const struct __test_metadata *t)
{
	const char *times = getenv("KVCTX_PATIENCE");

	return t->seconds * (times ? (unsigned int)atoi(times) : 1);
}

static enum verdict test_do(struct __test_metadata *t, const struct harness_variant *v, const char *name)
{
	const char *excuse = harness_excused(name);
	pid_t pid;

	if (excuse) {
		snprintf(reason, REASON_BYTES, "%s", excuse);
		return SKIPPED;
	}
	reason[0] = 0;
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return FAILED;
	if (!pid)
		exit(test_run(t, v ? v->data : NULL));
	return test_judge(test_wait(pid, patience(t)), name, patience(t));
}

static bool is_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc == 1;
}

static void test_tell(struct __test_metadata *t, const struct harness_variant *v, int argc, char **argv,
		      unsigned int count[NR_VERDICTS])
{
	enum verdict verdict;
	char name[128];

	snprintf(name, sizeof(name), "%s%s%s.%s", t->fixture->name, v ? "." : "", v ? v->name : "", t->name);
	if (!is_wanted(name, argc, argv))
		return;
	verdict = test_do(t, v, name);
	count[verdict]++;
	printf("%sok %u %s%s%s\n", verdict == FAILED ? "not " : "", count[PASSED] + count[FAILED] + count[SKIPPED], name,
	       verdict == SKIPPED ? " # SKIP " : "", verdict == SKIPPED ? reason : "");
}

int harness_main(int argc, char **argv)
{
	unsigned int count[NR_VERDICTS] = { 0 };
	struct __test_metadata *t;

	setvbuf(stdout, NULL, _IOLBF, 0);
	reason = mmap(NULL, REASON_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (reason == MAP_FAILED)
		return 1;
	printf("TAP version 13\n");
	for (t = tests; t; t = t->next) {
		const struct harness_variant *v = t->fixture->variants;

		do {
			test_tell(t, v, argc, argv, count);
			v = v ? v->next : NULL;
		} while (v);
	}
	printf("# Totals: pass:%u fail:%u skip:%u\n", count[PASSED], count[FAILED], count[SKIPPED]);
	return count[FAILED] || !(count[PASSED] + count[SKIPPED]);
}
