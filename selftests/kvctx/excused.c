// SPDX-License-Identifier: GPL-2.0
/*
 * What those who serve the contract of uapi/linux/kvctx.h are excused from, and why: the one table of it. Who serves is
 * told by $KVCTX_NODE, as kvctx_open() tells it. The module is excused from nothing.
 */
#include <fnmatch.h>
#include <sys/stat.h>

#include "harness.h"

#define POINTERS	"in the process a wild pointer of the caller's is a fault, as any access to it would be"
#define ONE_PROCESS	"a pool is one process's; others use a daemon"
#define SLOW		"needs a device that can be made stuck, slow or broken: dm-delay, in the guest"
#define COMMANDS	"io_uring commands are the kernel's; INFO does not promise them"
#define MAPPINGS	"plain shared memory of the process, which it can map and change as any other"

static const struct {
	const char *test;	/* FIXTURE.TEST, as a pattern */
	const char *why;
} excused_in_process[] = {
	{ "abi.bad_pointers*", POINTERS },
	{ "session.partial_batch_when_sqes_end", POINTERS },
	{ "edges.unwritable_argument_does_nothing", POINTERS },
	{ "edges.match_that_cannot_deliver", POINTERS },
	{ "match.bad_pointers", POINTERS },
	{ "blocked.*", "pages that come late (userfaultfd) keep the thread that touches them, which is the caller's own" },
	{ "session.memory_outlives_its_mapping", "nothing pins the pages; the library asks to unregister first" },
	{ "session.memlock_is_accounted", "memory over the limit is used without being pinned, and INFO says so" },
	{ "session.mappings_are_special", MAPPINGS },
	{ "slots.mappings_stay_for_reading", MAPPINGS },
	{ "edges.read_only_mappings_stay_so", MAPPINGS },
	{ "session.two_processes_share_a_tenant", ONE_PROCESS },
	{ "session.killed_clients", ONE_PROCESS },
	{ "slots.load_after_prefetch", SLOW },
	{ "slots.loads_wait_for_a_fill", SLOW },
	{ "slots.replaced_while_filling", SLOW },
	{ "slots.damaged_page", SLOW },
	{ "slots.device_errors", SLOW },
	{ "slots.end_of_session_while_filling", SLOW },
	{ "edges.cost_of_registering_huge_pages", "measures the module's own memory" },
	{ "faults.*", "the kernel's fault injection" },
	{ "lib.batch_of_a_ring", COMMANDS },
};

static bool in_process(void)
{
	const char *node = getenv("KVCTX_NODE");
	struct stat st;

	return node && (stat(node, &st) || !(S_ISCHR(st.st_mode) || S_ISSOCK(st.st_mode)));
}

const char *harness_excused(const char *test)
{
	size_t i;

	for (i = 0; in_process() && i < sizeof(excused_in_process) / sizeof(excused_in_process[0]); i++)
		if (!fnmatch(excused_in_process[i].test, test, 0))
			return excused_in_process[i].why;
	return NULL;
}
