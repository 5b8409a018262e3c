// SPDX-License-Identifier: GPL-2.0
/*
 * kvctx-simulate: plays a trace of inference requests on pools without devices, one for each capacity, beside caches of
 * single pages. See kvctx-simulate(1). What is not about simulating is in tools/workload.
 *
 * Every pool is planned, and the output is tried, before the first request is played. A simulation that was interrupted
 * has a table only: who reads the figures may count on all of them.
 *
 * Floors, lowest first; a file calls only what is below it.
 *   1  options pagegrain simpool
 *   2  simulate
 *   3  report
 *   4  main
 */
#include <errno.h>
#include <stdlib.h>

#include "outfile.h"
#include "report.h"
#include "simulate.h"

static int run_and_tell(struct simulation *s, struct outfile *json)
{
	const char *path = s->options->workload.json;
	int ret = simulation_run(s);

	if (ret && ret != -EINTR)
		return failed("simulation", ret);
	report_table(s, is_stdout(path) ? stderr : stdout);
	return ret ? ret : figures_commit(report_figures(s), json, path);
}

static int simulate(struct simulation *s)
{
	const char *path = s->options->workload.json;
	struct outfile json;
	int ret = outfile_open(&json, path);

	if (ret)
		failed(path, ret);
	else
		ret = run_and_tell(s, &json);
	outfile_abort(&json);
	if (ret == -EINTR)
		return EXIT_INTERRUPTED;
	return ret ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	static struct options options;
	static struct trace trace;
	static struct simulation s = { .options = &options, .trace = &trace };
	int status = EXIT_FAILURE, ret;

	options_parse(&options, argc, argv);
	s.stop = catch_signals();
	if (!workload_trace(&options.workload, &trace)) {
		ret = refs_init(&s.refs, &trace);
		if (ret)
			failed("simulation", ret);
		else
			status = simulation_plan(&s) ? EXIT_USAGE : simulate(&s);
	}
	refs_free(&s.refs);
	trace_free(&trace);
	return status;
}
