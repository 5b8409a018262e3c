// SPDX-License-Identifier: GPL-2.0
/*
 * kvctx-replay: plays a trace of inference requests against a kvctx tenant, through libkvctx. See kvctx-replay(1).
 *
 * Everything that can be wrong beforehand (command line, trace, output files, device) is found before the first
 * operation is sent to the device. What is not about playing is in tools/workload.
 *
 * Floors, lowest first; a file calls only what is below it.
 *   1  hist options
 *   2  stats session
 *   3  player report
 *   4  main
 */
#include <errno.h>
#include <stdlib.h>

#include "options.h"
#include "outfile.h"
#include "player.h"
#include "report.h"
#include "session.h"
#include "stats.h"

static int dump_trace(const struct trace *t, const char *path)
{
	struct outfile out;
	int ret = outfile_open(&out, path);

	if (ret)
		return failed(path, ret);
	ret = trace_write(t, out.stream);
	if (ret)
		outfile_abort(&out);
	else
		ret = outfile_commit(&out);
	return ret ? failed(path, ret) : 0;
}

static int load_trace(struct trace *t, const struct options *o)
{
	int ret = workload_trace(&o->workload, t);

	if (!ret && o->dump_trace)
		ret = dump_trace(t, o->dump_trace);
	return ret;
}

/* What stands on standard output alone has to be all of it */
static FILE *table_goes(const struct options *o)
{
	return is_stdout(o->workload.json) || is_stdout(o->dump_trace) ? stderr : stdout;
}

static int play_on(struct session *session, const struct trace *t, const struct options *o, struct outfile *json)
{
	struct stats *stats = calloc(1, sizeof(*stats));
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
		failed("start", -ENOMEM);
		return EXIT_FAILURE;
	}
	progress_init(&progress, !o->workload.no_progress);
	play(session, t, o, stats, &progress);
	status = stats_good(stats, o->verify) ? EXIT_SUCCESS : EXIT_FAILURE;
	report_table(&report, table_goes(o));
	if (figures_commit(report_figures(&report), json, o->workload.json))
		status = EXIT_FAILURE;
	free(stats);
	return *session->stop ? EXIT_INTERRUPTED : status;
}

static int replay(const struct trace *t, const struct options *o, const volatile sig_atomic_t *stop)
{
	struct session session;
	struct outfile json;
	int ret = outfile_open(&json, o->workload.json), status;

	if (ret) {
		failed(o->workload.json, ret);
		return EXIT_FAILURE;
	}
	status = session_open(&session, o, t->longest, stop);
	if (!status) {
		status = play_on(&session, t, o, &json);
		session_close(&session);
	}
	outfile_abort(&json);
	return status;
}

int main(int argc, char **argv)
{
	struct options options = { 0 };
	const volatile sig_atomic_t *stop;
	struct trace trace;
	int status = EXIT_SUCCESS;

	options_parse(&options, argc, argv);
	stop = catch_signals();
	if (load_trace(&trace, &options))
		status = EXIT_FAILURE;
	else if (options.device)
		status = replay(&trace, &options, stop);
	trace_free(&trace);
	return status;
}
