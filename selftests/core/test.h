/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the unit tests share: cmocka, the rig, and the list of groups that unit.c runs.
 */
#ifndef TEST_H
#define TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rig.h"

/* Where page @id is; it is there. */
static inline void place_of(struct rig *r, u32 id, struct kvc_load *ld)
{
	assert_int_equal(rig_hold(r, r->d, id, ld), 0);
	kvc_load_end(r->pool, ld, 0);
}

struct test_group {
	const char *name;
	const struct CMUnitTest *tests;
	size_t	nr;
};

#define TEST_GROUP(group)								\
	const struct test_group group##_group = { #group, group##_tests, ARRAY_SIZE(group##_tests) }

extern const struct test_group super_group, history_group, extent_group, crc_group, store_group, replace_group, load_group,
	match_group, delete_group,
	stays_group, flush_group, reclaim_group, prefix_group, recover_group, fail_group, tenant_group, keys_group, sizes_group,
	members_group, leave_group, grow_group, index_group, sweep_group, flash_group, events_group,
	lease_group, keyspaces_group, quota_group, memory_group, encrypted_group,
	return_group;

#endif
