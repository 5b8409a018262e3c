// SPDX-License-Identifier: GPL-2.0
/*
 * Unit tests of the engine: runs the groups, all or the one named, and adds up.
 */
#include "test.h"

static const struct test_group *const groups[] = {
	&crc_group, &super_group, &history_group, &extent_group, &keys_group, &store_group, &replace_group, &load_group,
	&match_group, &delete_group,
	&stays_group, &flush_group, &sizes_group, &reclaim_group, &prefix_group, &recover_group, &fail_group, &tenant_group,
	&members_group, &leave_group, &grow_group, &index_group, &sweep_group, &flash_group, &events_group,
	&lease_group, &keyspaces_group, &quota_group, &memory_group, &encrypted_group, &return_group,
};

static void on_fail(const char *what)
{
	fail_msg("%s", what);
}

int main(int argc, char **argv)
{
	size_t passed = 0, failed = 0, i;

	/* The leak checker ends the program before buffers are flushed. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	harness_fail = on_fail;
	for (i = 0; i < ARRAY_SIZE(groups); i++) {
		const struct test_group *g = groups[i];
		size_t n;

		if (argc > 1 && strcmp(argv[1], g->name))
			continue;
		n = (size_t)_cmocka_run_group_tests(g->name, g->tests, g->nr, NULL, NULL);
		failed += n;
		passed += g->nr - n;
	}
	printf("unit: %zu passed, %zu failed, 0 skipped\n", passed, failed);
	return failed != 0;
}
