// SPDX-License-Identifier: GPL-2.0
/* The trace that was asked for, see workload.h. */
#include <err.h>
#include <errno.h>
#include <string.h>

#include "loads.h"
#include "workload.h"

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	stop = sig;
}

const volatile sig_atomic_t *catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESETHAND };

	sigemptyset(&sa.sa_mask);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	return &stop;
}

int failed(const char *what, int ret)
{
	warnx("%s: %s", what, strerror(-ret));
	return ret;
}

const char *workload_name(const struct workload *w)
{
	return w->trace ? w->trace : "generated";
}

static int read_trace(const struct workload *w, struct trace *t)
{
	struct trace_error err;
	FILE *in = fopen(w->trace, "re");
	int ret;

	if (!in)
		return failed(w->trace, -errno);
	ret = trace_read(t, in, w->requests, &err);
	if (ret)
		warnx("%s:%zu: %s", w->trace, err.line, err.reason);
	fclose(in);
	return ret;
}

/* Generated requests are cut like those of a file: the first ones of a trace of --generate requests */
int workload_trace(const struct workload *w, struct trace *t)
{
	const struct load *load = w->load ? w->load : &loads[0];
	int ret;

	trace_init(t);
	if (w->trace)
		return read_trace(w, t);
	ret = load->make(t, w->generate, w->seed);
	if (ret)
		return failed("--generate", ret);
	if (w->requests)
		trace_cut(t, w->requests);
	return 0;
}
