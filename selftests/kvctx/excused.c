// SPDX-License-Identifier: GPL-2.0
/*
 * What those who serve the contract of uapi/linux/kvctx.h are excused from, and why: the one table of it. Who serves is
 * told by $KVCTX_NODE, as kvctx_open() tells it, and by $KVCTX_ENCRYPTED, if the tenant has a key. The module is excused
 * from nothing but what nobody can for such a tenant. With $KVCTX_UNEXCUSED nobody is: so `contract` finds out what they
 * need no excuse for.
 */
#include <fnmatch.h>
#include <sys/stat.h>

#include "harness.h"

/* Who */
#define PROCESS		1
#define DAEMON		2
#define BOTH		(PROCESS | DAEMON)
#define ENCRYPTED	4

#define POINTERS	"without the module the library itself uses what a caller points to: a wild pointer is a fault"
#define ONE_PROCESS	"a pool is one process's; others use a daemon"
#define SLOW		"needs a device that can be made stuck, slow or broken: slow_here.c is one only below threads"
#define COMMANDS	"io_uring commands are the kernel's; INFO does not promise them"
#define MEASURES	"measures the module's own memory"
#define MAPPINGS	"plain shared memory of the process, which it can map and change as any other"

#define CRCS		"CRCs are of what is encrypted, so callers have none"

static const struct {
	const char *test;	/* FIXTURE.TEST, as a pattern */
	int who;
	const char *why;
} excused[] = {
	{ "abi.bad_pointers*", BOTH, POINTERS },
	{ "session.partial_batch_when_sqes_end", BOTH, POINTERS },
	{ "edges.match_that_cannot_deliver", BOTH, POINTERS },
	{ "match.bad_pointers", BOTH, POINTERS },
	{ "events.bad_pointers", BOTH, POINTERS },
	{ "match.leases_take_what_they_hold", BOTH, MEASURES },
	{ "blocked.*", BOTH, "pages that come late (userfaultfd) keep the thread that touches them, which is the caller's own" },
	{ "session.memory_outlives_its_mapping", BOTH, "nothing pins the pages; the library asks to unregister first" },
	{ "session.memlock_*", PROCESS, "memory over the limit is used without being pinned, and INFO says so" },
	{ "session.memlock_*", DAEMON, "the daemon's memory is its own, and limited by it" },
	{ "session.mappings_are_special", BOTH, MAPPINGS },
	{ "session.two_processes_share_a_tenant", PROCESS, ONE_PROCESS },
	{ "session.killed_clients", PROCESS, ONE_PROCESS },
	{ "slots.load_after_prefetch", BOTH, SLOW },
	{ "slots.loads_wait_for_a_fill", BOTH, SLOW },
	{ "slots.replaced_while_filling", BOTH, SLOW },
	{ "slots.damaged_page", BOTH, SLOW },
	{ "slots.device_errors", BOTH, SLOW },
	{ "slots.closed_while_filling", BOTH, SLOW },
	{ "slots.killed_while_filling", PROCESS, ONE_PROCESS },
	{ "slots.killed_while_filling", DAEMON, SLOW },
	{ "edges.cost_of_registering_huge_pages", BOTH, MEASURES },
	{ "faults.*", BOTH, "the kernel's fault injection" },
	{ "lib.batch_of_a_ring", BOTH, COMMANDS },
	{ "events.what_happened", ENCRYPTED, CRCS },
	{ "replace.a_failed_one_changes_nothing", ENCRYPTED, CRCS },
	{ "edges.store_can_leave_checksums_to_the_caller", ENCRYPTED, CRCS },
	{ "slots.damaged_page", ENCRYPTED, "looks for the page on the device, where nobody finds it" },
	{ "edges.page_that_changed_while_it_was_stored", ENCRYPTED, "what is encrypted, and has the CRCs, is a copy" },
};

/* 0: the module, or nobody */
static int excused_who(void)
{
	const char *node = getenv("KVCTX_NODE");
	int encrypted = getenv("KVCTX_ENCRYPTED") ? ENCRYPTED : 0;
	struct stat st;

	if (!node)
		return 0;
	if (stat(node, &st))
		return PROCESS | encrypted;
	return (S_ISCHR(st.st_mode) ? 0 : S_ISSOCK(st.st_mode) ? DAEMON : PROCESS) | encrypted;
}

const char *harness_excused(const char *test)
{
	const char *io = getenv("KVCTX_IO"), *why;
	int who = getenv("KVCTX_UNEXCUSED") ? 0 : excused_who();
	size_t i;

	for (i = 0; i < sizeof(excused) / sizeof(excused[0]); i++) {
		why = excused[i].why;
		if (who & excused[i].who && !fnmatch(excused[i].test, test, 0) &&
		    !(who & PROCESS && io && !strcmp(why, SLOW)))
			return why;
	}
	return NULL;
}
