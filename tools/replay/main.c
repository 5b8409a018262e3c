// SPDX-License-Identifier: GPL-2.0
/*
 * kvctx-replay: plays a trace of inference requests against a kvctx tenant, or simulates it. See kvctx-replay(1).
 *
 * Everything that can be wrong beforehand (command line, trace, output files, device) is found before the first
 * operation is sent to the device.
 */
#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "loads.h"
#include "options.h"
#include "outfile.h"
#include "player.h"
#include "report.h"
#include "session.h"
#include "simulate.h"
#include "stats.h"
#include "trace.h"

static volatile sig_atomic_t stop;

/* A second signal ends the program at once */
static void on_signal(int sig)
{
	stop = sig;
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESETHAND };

	sigemptyset(&sa.sa_mask);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
}

static int fail(const char *what, int ret)
{
	warnx("%s: %s", what, strerror(-ret));
	return ret;
}

static int read_trace(struct trace *t, const struct options *o)
{
	struct trace_error err;
	FILE *in = fopen(o->trace, "re");
	int ret;

	if (!in)
		return fail(o->trace, -errno);
	ret = trace_read(t, in, o->requests, &err);
	if (ret)
		warnx("%s:%zu: %s", o->trace, err.line, err.reason);
	fclose(in);
	return ret;
}

/* Generated requests are cut like those of a file: the first ones of a trace of --generate requests */
static int make_trace(struct trace *t, const struct options *o)
{
	const struct load *load = o->load ? o->load : &loads[0];
	int ret = load->make(t, o->generate, o->seed);

	if (ret)
		return fail("--generate", ret);
	if (o->requests)
		trace_cut(t, o->requests);
	return 0;
}

static int dump_trace(const struct trace *t, const char *path)
{
	struct outfile out;
	int ret = outfile_open(&out, path);

	if (ret)
		return fail(path, ret);
	ret = trace_write(t, out.stream);
	if (ret)
		outfile_abort(&out);
	else
		ret = outfile_commit(&out);
	return ret ? fail(path, ret) : 0;
}

static int load_trace(struct trace *t, const struct options *o)
{
	int ret = o->trace ? read_trace(t, o) : make_trace(t, o);

	if (!ret && o->dump_trace)
		ret = dump_trace(t, o->dump_trace);
	return ret;
}

static int tell(const struct report *r, struct outfile *json)
{
	const char *path = r->options->json;
	int ret;

	report_table(r, options_table(r->options));
	if (!json->stream)
		return 0;
	ret = report_json(r, json->stream);
	if (!ret)
		ret = outfile_commit(json);
	return ret ? fail(path, ret) : 0;
}

static int play_on(struct session *session, const struct trace *t, const struct options *o, struct outfile *json)
{
	struct stats *stats = malloc(sizeof(*stats));
	struct progress progress;
	struct report report = {
		.options = o,
		.stats = stats,
		.pool = session->pool,
		.tenant = session->tenant,
		.total_requests = t->nr_requests,
	};
	int status;

	if (!stats) {
		fail("start", -ENOMEM);
		return EXIT_FAILURE;
	}
	stats_init(stats);
	progress_init(&progress, !o->no_progress);
	play(session, t, o, stats, &progress);
	status = stats_good(stats, o->verify) ? EXIT_SUCCESS : EXIT_FAILURE;
	if (tell(&report, json))
		status = EXIT_FAILURE;
	free(stats);
	return stop ? EXIT_INTERRUPTED : status;
}

static int replay(const struct trace *t, const struct options *o)
{
	struct outfile json = { 0 };
	struct session session;
	int status, ret;

	if (o->json) {
		ret = outfile_open(&json, o->json);
		if (ret) {
			fail(o->json, ret);
			return EXIT_FAILURE;
		}
	}
	status = session_open(&session, o, t->longest, &stop);
	if (!status) {
		status = play_on(&session, t, o, &json);
		session_close(&session);
	}
	outfile_abort(&json);
	return status;
}

int main(int argc, char **argv)
{
	struct options options;
	struct trace trace;
	int status = EXIT_SUCCESS;

	switch (options_parse(&options, argc, argv)) {
	case OPTIONS_RUN:
		break;
	case OPTIONS_DONE:
		return EXIT_SUCCESS;
	case OPTIONS_USAGE:
		return EXIT_USAGE;
	}
	catch_signals();
	trace_init(&trace);
	if (load_trace(&trace, &options))
		status = EXIT_FAILURE;
	else if (options.device)
		status = replay(&trace, &options);
	else if (options.simulate)
		status = simulate(&trace, &options, &stop);
	trace_free(&trace);
	return status;
}
