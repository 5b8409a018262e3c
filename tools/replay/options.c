// SPDX-License-Identifier: GPL-2.0
/* The command line, see cmdline.h. */
#include "cmdline.h"
#include "options.h"
#include "outfile.h"

#define AT(field)	.at = offsetof(struct options, field)

static const struct cmd_option rows[] = {
	{ "dump-trace", "FILE", "write the requests as JSON Lines; alone, do nothing else", AT(dump_trace) },
	{ .help = "Against what:" },
	{ "device", "NODE", "the tenant's node, /dev/kvctx/POOL/TENANT", AT(device) },
	{ "page-size", "SIZE", "bytes of a page", AT(page_size), 1, 1 << 30, "256K" },
	{ "depth", "N", "pages in flight", AT(depth), 1, 65536, "32" },
	{ "arena", "SIZE", "pinned memory to stay within, if one page and the depth allow", AT(arena), 1, 1ULL << 40,
	  "64M" },
	{ "lease-ms", "N", "time limit of the lease on matched pages", AT(lease_ms), 1, UINT32_MAX, "60000" },
	{ "stall", "SECONDS", "give up after so long without a completion", AT(stall_s), 1, 86400, "120" },
	{ "verify", NULL, "compare every loaded byte, and require the kernel's own verification", AT(verify) },
	{ }
};

static void check(struct argp_state *state, void *options)
{
	const struct options *o = options;

	if (!o->device && !o->dump_trace)
		argp_error(state, "nothing to play against: give --device (or only --dump-trace)");
	if (!o->device && o->workload.json)
		argp_error(state, "--json: needs --device");
	if (is_stdout(o->workload.json) && is_stdout(o->dump_trace))
		argp_error(state, "--json, --dump-trace: only one of them can be standard output");
}

void options_parse(struct options *o, int argc, char **argv)
{
	static const struct cmdline line = {
		.version = "kvctx-replay " KVCTX_VERSION,
		.usage = "{--trace FILE | --generate N} --device NODE",
		.help = "Play inference requests against a kvctx tenant: match the prefix, load what is there, store "
			"the rest.\vExit status: 0 all pages right; 1 wrong pages, errors or a bad trace; 2 usage; "
			"3 no device or no permission; 130 interrupted.",
		.options = rows,
		.check = check,
	};

	cmdline_parse(&line, o, argc, argv);
}
